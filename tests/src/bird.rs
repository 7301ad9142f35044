//! BIRD in a network namespace, from a configuration of the test's own.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::netns::{command, exec};

/// A BIRD that runs. It ends when this is dropped.
#[derive(Debug)]
pub struct Bird {
    namespace: String,
    folder: PathBuf,
    child: Child,
}

impl Bird {
    /// Starts it with this configuration.
    ///
    /// # Panics
    /// When it does not answer within 20 s.
    pub fn start(namespace: &str, configuration: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("bird-{namespace}"));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let child = spawn(namespace, &folder, configuration);
        let bird = Self { namespace: namespace.to_owned(), folder, child };
        bird.wait_for_reply();
        bird
    }

    /// Ends it as a crash would, and starts it again with this configuration.
    ///
    /// # Panics
    /// When it does not answer within 20 s.
    pub fn restart(&mut self, configuration: &str) {
        self.kill();
        self.child = spawn(&self.namespace, &self.folder, configuration);
        self.wait_for_reply();
    }

    fn wait_for_reply(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.ask("show status").contains("Daemon is up") {
            assert!(Instant::now() < until, "BIRD does not answer in {}", self.namespace);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What it answers to a command.
    pub fn ask(&self, words: &str) -> String {
        let socket = self.folder.join("bird.ctl");
        let answer = exec(&self.namespace, &format!("birdc -s {} {words}", socket.display()));
        String::from_utf8_lossy(&answer.stdout).into_owned()
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        // It ended by itself otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn spawn(namespace: &str, folder: &Path, configuration: &str) -> Child {
    let file = folder.join("bird.conf");
    std::fs::write(&file, configuration).expect("the folder was made");
    let words = format!(
        "bird -f -c {} -s {} -P {}",
        file.display(),
        folder.join("bird.ctl").display(),
        folder.join("bird.pid").display(),
    );
    let child = command(namespace, &words).stderr(Stdio::null()).spawn();
    child.expect("ip was found before")
}

/// A configuration that announces `prefixes` to these neighbors of AS 65000, each named with the own address beside it; those of
/// IPv6 to neighbors with an IPv6 address.
pub fn speaker(prefixes: impl Iterator<Item = String>, sessions: &[(&str, &str)]) -> String {
    let mut text = String::from("router id 10.255.0.2;\nprotocol device {}\n");
    for (number, (own, neighbor)) in sessions.iter().enumerate() {
        let family = if own.contains(':') { "ipv6" } else { "ipv4" };
        let _ = writeln!(
            text,
            "protocol bgp up{number} {{ local {own} as 65001; neighbor {neighbor} as 65000; \
             connect retry time 1; error wait time 1, 2; \
             {family} {{ import none; export all; next hop self; }}; }}"
        );
    }
    let (v6, v4): (Vec<String>, Vec<String>) = prefixes.partition(|prefix| prefix.contains(':'));
    for (family, prefixes) in [("ipv4", v4), ("ipv6", v6)] {
        let _ = writeln!(text, "protocol static {{ {family};");
        for prefix in prefixes {
            let _ = writeln!(text, "route {prefix} blackhole;");
        }
        text += "}\n";
    }
    text
}

/// A configuration that learns routes from these neighbors of AS 65001, each named behind the own address, and puts them into the
/// kernel, several of equal preference as one multipath route.
pub fn learner(sessions: &[(&str, &str)]) -> String {
    let mut text = String::from("router id 10.255.0.1;\nprotocol device {}\n");
    let family = |own: &str| if own.contains(':') { "ipv6" } else { "ipv4" };
    for known in ["ipv4", "ipv6"] {
        if sessions.iter().any(|(own, _)| family(own) == known) {
            let _ = writeln!(
                text,
                "protocol kernel {{ merge paths on limit 8; {known} {{ import none; export all; }}; }}"
            );
        }
    }
    for (number, (own, neighbor)) in sessions.iter().enumerate() {
        let _ = writeln!(
            text,
            "protocol bgp down{number} {{ local {own} as 65000; neighbor {neighbor} as 65001; \
             connect retry time 1; error wait time 1, 2; {} {{ import all; export none; }}; }}",
            family(own)
        );
    }
    text
}
