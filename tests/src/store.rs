//! Servers of the stores that have the members of a rack: etcd and NATS, in the namespace of its switch.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::certificates;
use crate::netns::{command, exec};
use crate::rack::{Built, Rack, STORE};
use crate::{patience, program_of_all_features, skip};

/// User and password of a server that demands them.
const USER: (&str, &str) = ("root", "correct-horse");

/// A server of a store. Killed when dropped.
pub struct Server {
    kind: &'static str,
    namespace: String,
    folder: PathBuf,
    /// Whether it demands TLS and a password.
    secured: bool,
    child: Option<Child>,
}

/// A rack whose members are in a store, and the store; `None`, with a skip line, where one of both is missing. The program of
/// the rack is the one with all features where the shipped one is without the store.
pub fn rack(tools: &[&str], built: Built) -> Option<(Rack, Server)> {
    let kind = built.store.expect("a rack with a store");
    let mut rack = Rack::new(tools, built)?;
    let lacks = |rack: &Rack| rack.check(0).contains("cargo feature");
    if lacks(&rack)
        && let Some(program) = program_of_all_features()
    {
        rack.program = program;
    }
    if lacks(&rack) {
        skip(&format!("a build with the feature {kind}"));
        return None;
    }
    let server = Server::new(kind, &rack);
    Some((rack, server))
}

impl Server {
    /// Starts a server that demands nothing.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn new(kind: &'static str, rack: &Rack) -> Self {
        let folder = std::env::temp_dir().join(format!("{}.store", rack.switch));
        std::fs::create_dir_all(&folder).expect("the temporary folder");
        let namespace = rack.switch.clone();
        let mut server = Self { kind, namespace, folder, secured: false, child: None };
        server.start();
        server
    }

    /// Has the server demand TLS and a password from now on. Returns configurations of the nodes with what they need for it.
    ///
    /// # Panics
    /// When certificates or users cannot be made.
    pub fn secure(&mut self, rack: &Rack) -> Vec<String> {
        self.certificates();
        let (user, password) = USER;
        if self.kind == "etcd" {
            // Users are made before TLS is demanded.
            self.post("auth/user/add", &format!(r#"{{"name":"{user}","password":"{password}"}}"#));
            self.post("auth/role/add", r#"{"name":"root"}"#);
            self.post("auth/user/grant", &format!(r#"{{"user":"{user}","role":"root"}}"#));
            self.post("auth/enable", "{}");
        }
        self.stop();
        self.secured = true;
        self.start();
        let file = |name: &str| self.folder.join(name).display().to_string();
        std::fs::write(file("password"), format!("{password}\n")).expect("the temporary folder");
        let of_node = |node: usize| {
            let text = rack.config_of(node);
            let (from, to) = match self.kind {
                "etcd" => ("\"http://", "\"https://"),
                _ => ("\"nats://", "\"tls://"),
            };
            assert!(text.contains(from), "{text}");
            let (ca, secret) = (file("ca.pem"), file("password"));
            let keys = format!("ca = \"{ca}\"\nuser = \"{user}\"\npassword_file = \"{secret}\"\n");
            text.replace(from, to).replace("endpoints = ", &format!("{keys}endpoints = "))
        };
        (0..rack.places.len()).map(of_node).collect()
    }

    /// Folder of its data, certificates and password: `ca.pem`, `other.pem` and `password`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts it, on the data that it had.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(&mut self) {
        let folder = self.folder.display();
        let words = match self.kind {
            "etcd" => {
                let scheme = if self.secured { "https" } else { "http" };
                let client = format!("{scheme}://{STORE}:2379");
                let peer = "http://127.0.0.1:2380";
                let mut words = format!(
                    "etcd --data-dir {folder}/data --listen-client-urls {client} --advertise-client-urls {client} \
                     --listen-peer-urls {peer} --initial-advertise-peer-urls {peer} --initial-cluster default={peer}"
                );
                if self.secured {
                    words +=
                        &format!(" --cert-file {folder}/server.pem --key-file {folder}/server.key");
                }
                words
            }
            _ => {
                let mut config = format!(
                    "listen: \"{STORE}:4222\"\njetstream {{ store_dir: \"{folder}/data\" }}\n"
                );
                if self.secured {
                    let (user, password) = USER;
                    config += &format!(
                        "tls {{ cert_file: \"{folder}/server.pem\", key_file: \"{folder}/server.key\" }}\n\
                         authorization {{ user: {user}, password: \"{password}\" }}\n"
                    );
                }
                let file = self.folder.join("nats.conf");
                std::fs::write(&file, config).expect("the temporary folder");
                format!("nats-server --config {}", file.display())
            }
        };
        let mut command = command(&self.namespace, &words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("the tool was found before"));
    }

    /// Ends it at once.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Two CAs, and the certificate of the server by one of them.
    fn certificates(&self) {
        for name in ["other", "ca"] {
            certificates::authority(&self.namespace, &self.folder, name);
        }
        certificates::certificate(&self.namespace, &self.folder, "ca", "server", STORE);
    }

    /// Has etcd keep a value for good.
    ///
    /// # Panics
    /// When it does not.
    pub fn put(&self, key: &str, value: &str) {
        let (key, value) = (base64(key.as_bytes()), base64(value.as_bytes()));
        self.post("kv/put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#));
    }

    /// A request to etcd that a node never makes; tried until the server takes it.
    fn post(&self, path: &str, body: &str) {
        let words = format!("curl -sSf -d {body} http://{STORE}:2379/v3/{path}");
        let until = Instant::now() + patience(Duration::from_secs(20));
        loop {
            let output = exec(&self.namespace, &words);
            if output.status.success() {
                return;
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(Instant::now() < until, "{path}: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let of_chunk = |chunk: &[u8]| -> String {
        let word = (0..3).fold(0, |word, i| word << 8 | usize::from(*chunk.get(i).unwrap_or(&0)));
        let digit = |i: usize| match i <= chunk.len() {
            true => char::from(DIGITS[word >> (18 - 6 * i) & 63]),
            false => '=',
        };
        (0..4).map(digit).collect()
    };
    bytes.chunks(3).map(of_chunk).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
