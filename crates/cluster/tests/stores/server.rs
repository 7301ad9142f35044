//! Servers of the stores: how each kind is started, secured and compacted.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fingerpost_cluster::store::{Options, Store, StoreError, find};

/// TTL of sessions in tests.
pub(crate) const TTL: Duration = Duration::from_secs(1);
/// User and password of servers with these, and the token of those with one.
pub(crate) const USER: (&str, &str) = ("root", "correct horse");
const TOKEN: &str = "s3cr3t-battery-staple";

/// What a server demands of its clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demand {
    Nothing,
    Password,
    Token,
    /// TLS, and a certificate of the same CA.
    Certificate,
}

/// What differs from one kind of server to the next.
pub(crate) struct Kind {
    /// Name of the store.
    pub(crate) name: &'static str,
    program: &'static str,
    /// URL schemes, without and with TLS.
    pub(crate) schemes: [&'static str; 2],
    command: fn(&mut Command, &Setup),
    /// Demands the password from now on.
    secure: fn(u16),
    /// Forgets former changes of the keys below `prefix`.
    pub(crate) compact: fn(u16, prefix: &str),
}

/// The kinds of servers that tests start.
pub(crate) static KINDS: &[&Kind] = &[&ETCD, &NATS];

static ETCD: Kind = Kind {
    name: "etcd",
    program: "etcd",
    schemes: ["http", "https"],
    command: |command, setup| {
        let [scheme, secured] = ETCD.schemes;
        let client =
            format!("{}://127.0.0.1:{}", if setup.tls() { secured } else { scheme }, setup.port);
        let peer = format!("http://127.0.0.1:{}", setup.second_port);
        command.arg("--data-dir").arg(setup.dir.join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        // With the usual ones no lease is shorter than 2 s.
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        if setup.tls() {
            command.arg("--cert-file").arg(setup.dir.join("server.pem"));
            command.arg("--key-file").arg(setup.dir.join("server.key"));
            command
                .arg("--client-cert-auth")
                .arg("--trusted-ca-file")
                .arg(setup.dir.join("ca.pem"));
        }
    },
    secure: |port| {
        let (user, password) = USER;
        post(port, "auth/user/add", &format!(r#"{{"name":"{user}","password":"{password}"}}"#));
        post(port, "auth/role/add", r#"{"name":"root"}"#);
        post(port, "auth/user/grant", &format!(r#"{{"user":"{user}","role":"root"}}"#));
        post(port, "auth/enable", "{}");
    },
    compact: |port, _| {
        let range = post(port, "kv/range", r#"{"key":"YQ=="}"#);
        let (_, revision) = range.split_once(r#""revision":""#).unwrap();
        let (revision, _) = revision.split_once('"').unwrap();
        post(port, "kv/compaction", &format!(r#"{{"revision":"{revision}"}}"#));
    },
};

pub(crate) static NATS: Kind = Kind {
    name: "nats",
    program: "nats-server",
    schemes: ["nats", "tls"],
    command: |command, setup| {
        let dir = setup.dir.display();
        let mut config = format!(
            "listen: \"127.0.0.1:{}\"\njetstream {{ store_dir: \"{dir}/data\" }}\n",
            setup.port
        );
        if setup.tls() {
            config += "tls { cert_file: server.pem, key_file: server.key, ca_file: ca.pem, verify: true }\n";
        }
        let (user, password) = USER;
        match setup.demand {
            Demand::Password => {
                config += &format!("authorization {{ user: {user}, password: \"{password}\" }}\n");
            }
            Demand::Token => config += &format!("authorization {{ token: \"{TOKEN}\" }}\n"),
            Demand::Nothing | Demand::Certificate => {}
        }
        let file = setup.dir.join("nats.conf");
        fs::write(&file, config).unwrap();
        command.arg("--config").arg(file);
    },
    // It does so from the start.
    secure: |_| {},
    // It has the latest change of each key for good. A new bucket has none of the former ones.
    compact: |port, prefix| {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
        let bucket = prefix.replace('/', "_");
        let hello = "CONNECT {\"verbose\":false}\r\nSUB answer 1\r\n";
        let delete = format!("PUB $JS.API.STREAM.DELETE.KV_{bucket} answer 0\r\n\r\n");
        stream.get_mut().write_all(format!("{hello}{delete}").as_bytes()).unwrap();
        let mut line = String::new();
        while !line.contains("\"success\":true") {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0 && !line.contains("error"), "{line}");
        }
    },
};

/// A request to etcd that the store itself never makes. Returns the answer.
fn post(port: u16, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "POST /v3/{path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}

/// How a server is started.
struct Setup {
    dir: PathBuf,
    port: u16,
    second_port: u16,
    demand: Demand,
}

impl Setup {
    fn tls(&self) -> bool {
        self.demand == Demand::Certificate
    }
}

/// A server that runs, but for the time between `stop` and `start`.
pub(crate) struct Server {
    pub(crate) kind: &'static Kind,
    setup: Setup,
    child: Option<Child>,
}

impl Server {
    /// Starts a server; none where its program is missing.
    pub(crate) fn new(kind: &'static Kind) -> Option<Self> {
        Self::that_demands(kind, Demand::Nothing)
    }

    /// Starts a server that demands something of its clients.
    pub(crate) fn that_demands(kind: &'static Kind, demand: Demand) -> Option<Self> {
        let programs = [kind.program.to_owned(), format!("/usr/sbin/{}", kind.program)];
        if !programs.iter().any(|program| is_there(program)) {
            println!("skipped: needs {}", kind.program);
            return None;
        }
        let tls = demand == Demand::Certificate;
        if tls && !is_there("openssl") {
            println!("skipped: needs openssl");
            return None;
        }
        let dir = directory();
        if tls {
            super::security::certificates(&dir);
        }
        // A port that is free now may be taken before the server has it.
        for _ in 0..5 {
            let [port, second_port] = free_ports();
            let setup = Setup { dir: dir.clone(), port, second_port, demand };
            let mut server = Self { kind, setup, child: None };
            if server.try_start().is_ok() {
                if demand == Demand::Password {
                    (kind.secure)(port);
                }
                return Some(server);
            }
        }
        let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
        panic!("{} does not start: {log}", kind.name);
    }

    /// The port of clients.
    pub(crate) fn port(&self) -> u16 {
        self.setup.port
    }

    /// Folder of the server, with the certificates.
    pub(crate) fn dir(&self) -> &Path {
        &self.setup.dir
    }

    /// Options that work.
    pub(crate) fn options(&self) -> Options {
        let [scheme, secured] = self.kind.schemes;
        let scheme = if self.setup.tls() { secured } else { scheme };
        let file = |name| self.setup.dir.join(name);
        let (user, password) = USER;
        let demands = |demand| self.setup.demand == demand;
        Options {
            endpoints: vec![format!("{scheme}://127.0.0.1:{}", self.setup.port)],
            ttl: TTL,
            ca: self.setup.tls().then(|| file("ca.pem")),
            identity: self.setup.tls().then(|| (file("client.pem"), file("client.key"))),
            user: demands(Demand::Password).then(|| (user.to_owned(), password.to_owned())),
            token: demands(Demand::Token).then(|| TOKEN.to_owned()),
            // Two busy cores may need more than the usual 2 s.
            timeout: Duration::from_secs(5),
            ..Options::default()
        }
    }

    /// Begins a session.
    pub(crate) fn open(&self, options: &Options) -> Box<dyn Store> {
        (find(self.kind.name).unwrap().open)(options).unwrap()
    }

    /// Ends the server.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts the server again, on the same port and with its data.
    pub(crate) fn start(&mut self) {
        self.try_start().unwrap();
    }

    fn try_start(&mut self) -> Result<(), StoreError> {
        let log = fs::File::create(self.setup.dir.join("log")).unwrap();
        let spawn = |program: &str| {
            let mut command = Command::new(program);
            command.current_dir(&self.setup.dir).stdin(Stdio::null());
            command.stdout(log.try_clone().unwrap()).stderr(log.try_clone().unwrap());
            (self.kind.command)(&mut command, &self.setup);
            command.spawn()
        };
        let child = spawn(self.kind.program);
        let child = child.or_else(|_| spawn(&format!("/usr/sbin/{}", self.kind.program)));
        self.child = Some(child.unwrap());
        let options =
            Options { timeout: Duration::from_secs(1), user: None, token: None, ..self.options() };
        let mut store = self.open(&options);
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            match store.get("ready") {
                Ok(_) | Err(StoreError::Denied { .. }) => return Ok(()),
                Err(error) => {
                    let ended = self.child.as_mut().unwrap().try_wait().unwrap().is_some();
                    if ended || Instant::now() > until {
                        self.stop();
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            let _ = fs::remove_dir_all(&self.setup.dir);
        }
    }
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.arg("--version").status().is_ok()
}

fn directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("fingerpost-stores-{}-{next}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
