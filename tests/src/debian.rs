//! A fresh Debian with systemd as its first process: a container in a network namespace of a test, or the machine that the test
//! runs in.
//!
//! `mmdebstrap` makes the root of the container from the archive of this host's release, once: `target/debian` keeps it, until
//! it is deleted. `systemd-nspawn` starts it, with this host's kernel and no other part of it. A machine that is such a Debian
//! itself is what `cargo xtask vm service` boots.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::folder::Folder;
use crate::{patience, root, skip};

/// Longest time to fetch the packages and make the root, in seconds.
const LONGEST: &str = "600";

/// Variable that is set in a machine that is a fresh Debian: the folder of the packages to install.
const BOOTED: &str = "FINGERPOST_DEBIAN";

/// Folder of the packages to install (`1.deb` and `2.deb`) where this machine is a fresh Debian itself.
pub fn booted() -> Option<PathBuf> {
    std::env::var_os(BOOTED).map(PathBuf::from)
}

/// A fresh Debian.
#[derive(Debug)]
pub enum Debian {
    /// A container beside the test.
    Container(Container),
    /// The machine of the test: [`booted`].
    Machine,
}

impl Debian {
    /// Runs a line of shell in it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn try_run(&self, line: &str) -> Output {
        let mut command = match self {
            Self::Container(container) => container.command("sh"),
            Self::Machine => alone(Command::new("sh")),
        };
        command.args(["-c", line]).output().expect("both programs were found before")
    }

    /// Runs a line of shell in it; returns what it wrote.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&self, line: &str) -> String {
        let output = self.try_run(line);
        let wrote = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {wrote}{failed}{}", self.journal());
        wrote
    }

    /// The end of its journal, for messages of failures.
    fn journal(&self) -> String {
        let output = self.try_run(
            "systemctl status --no-pager -n0 fingerpost; journalctl --no-pager -n 40 -o cat",
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Copies a file into it.
    ///
    /// # Panics
    /// When that fails.
    pub fn copy(&self, from: &Path, to: &str) {
        let to = match self {
            Self::Container(container) => container.files().join(to.trim_start_matches('/')),
            Self::Machine => to.into(),
        };
        fs::copy(from, &to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    }
}

/// A container. It ends with this.
#[derive(Debug)]
pub struct Container {
    nspawn: Child,
    /// Its first process, by the number of this host.
    first: u32,
    folder: Folder,
}

impl Container {
    /// Starts one in a network namespace; `None`, with a skip line, where that cannot be had.
    ///
    /// # Panics
    /// When a command of the set-up fails.
    pub fn start(namespace: &str) -> Option<Self> {
        let base = base()?;
        let folder = Folder::new(namespace);
        let files = folder.path().join("root");
        fs::create_dir_all(&files).expect("the temporary folder can be written");
        done(Command::new("tar").arg("-C").arg(&files).arg("-xf").arg(base));
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn
            .arg("-D")
            .arg(&files)
            .arg(format!("--network-namespace-path=/run/netns/{namespace}"));
        let words = "--boot --quiet --register=no --keep-unit --capability=all --system-call-filter=bpf \
                     --link-journal=no --console=pipe --resolv-conf=off --timezone=off";
        nspawn.args(words.split_ascii_whitespace()).arg(format!("--machine={namespace}"));
        nspawn.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let nspawn = nspawn.spawn().expect("it was found before");
        let mut container = Self { nspawn, first: 0, folder };
        let until = Instant::now() + patience(Duration::from_secs(30));
        // Its state is degraded where the kernel of the host lacks something that a unit wants.
        while !container.is_up() {
            if Instant::now() > until || !matches!(container.nspawn.try_wait(), Ok(None)) {
                skip("a system where systemd-nspawn boots a container");
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(container)
    }

    fn is_up(&mut self) -> bool {
        let nspawn = self.nspawn.id();
        let children = fs::read_to_string(format!("/proc/{nspawn}/task/{nspawn}/children"));
        let first = children.unwrap_or_default().split_whitespace().find_map(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            (name == "systemd\n").then(|| pid.parse().ok())?
        });
        let Some(first) = first else { return false };
        self.first = first;
        let state = self.command("systemctl").arg("is-system-running").output();
        let state = state.expect("nsenter was found before");
        let state = String::from_utf8_lossy(&state.stdout).into_owned();
        matches!(state.trim_end(), "running" | "degraded")
    }

    /// Its files, as this host sees them.
    pub fn files(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// A program in it.
    fn command(&self, program: &str) -> Command {
        let mut command = alone(Command::new("nsenter"));
        command.args(["-m", "-u", "-i", "-n", "-p", "-r", "-w", "-t"]).arg(self.first.to_string());
        command.arg(program);
        command
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let first = if self.first == 0 { self.nspawn.id() } else { self.first };
        // With its first process all others end; nspawn then removes what it made.
        let _ = Command::new("kill").args(["-s", "KILL", &first.to_string()]).status();
        let _ = self.nspawn.wait();
    }
}

/// The archive of the root, made where it was not made before.
fn base() -> Option<PathBuf> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let Some(suite) = suite.filter(|_| release.lines().any(|line| line == "ID=debian")) else {
        skip("Debian");
        return None;
    };
    let folder = root().join("target/debian");
    let file = folder.join(format!("{suite}.tar"));
    if file.is_file() {
        return Some(file);
    }
    fs::create_dir_all(&folder).expect("target can be written");
    let part = folder.join(format!("{suite}-{}.part.tar", std::process::id()));
    let mut make = Command::new("timeout");
    make.args([LONGEST, "mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd"]);
    for folder in ["doc", "locale"] {
        make.arg(format!("--dpkgopt=path-exclude=/usr/share/{folder}/*"));
    }
    let made = make.arg(suite).arg(&part).output().expect("timeout is of coreutils");
    if !made.status.success() {
        let _ = fs::remove_file(&part);
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        skip(&format!("an archive of Debian: {}", said.lines().last().unwrap_or("no answer")));
        return None;
    }
    // Whole or not at all.
    fs::rename(&part, &file).expect("both are in one folder");
    Some(file)
}

/// A command without input and without variables of the test.
fn alone(mut command: Command) -> Command {
    command.stdin(Stdio::null()).env_clear();
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
    command
}

fn done(command: &mut Command) {
    let output = command.output().expect("it is everywhere");
    assert!(output.status.success(), "{command:?}: {output:?}");
}
