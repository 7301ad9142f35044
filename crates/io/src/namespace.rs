//! Network namespaces for tests and the lab: [without a name](Namespace), of which nothing is left behind, and
//! [with one](Named), for programs that are started in it.
//!
//! Source: unshare(2), setns(2), network_namespaces(7), ip-netns(8).
//! Shape:  a descriptor of the namespace. It lasts as long as that, its threads and processes, whatever ends this process.
//! Cost:   one short thread to make one; two system calls to enter and leave.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. `unshare` and `setns` take no pointers and change the network namespace of the calling thread alone.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::process::Command;

/// The network namespace of the thread that opens it.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace of our own.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// Makes one, in which the loopback is down.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without CAP_SYS_ADMIN.
    ///
    /// # Panics
    /// When no thread can be started.
    pub fn new() -> io::Result<Self> {
        let make = || {
            // SAFETY: invariant 1.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => File::open(OWN).map(Self),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // The thread ends in it, and the caller stays where it is.
        std::thread::spawn(make).join().expect("no panic in it")
    }

    /// Calls `work` with this thread in the namespace; afterwards it is back.
    ///
    /// # Errors
    /// When the thread may not enter or leave.
    pub fn inside<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let own = File::open(OWN)?;
        enter(&self.0)?;
        let result = work();
        enter(&own)?;
        Ok(result)
    }

    /// Path of the namespace while this process holds it: for `ip link ... netns` and `nsenter --net`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// A command in the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).args(["--", program]);
        command
    }
}

fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: invariant 1.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A network namespace under `/run/netns`, which `ip -n` and `ip netns exec` find. Deleted when dropped.
#[derive(Debug)]
pub struct Named(String);

impl Named {
    /// Makes one, in which only the loopback is there, and up.
    ///
    /// # Panics
    /// When `ip` cannot make it.
    pub fn new(name: String) -> Self {
        ip(&format!("netns add {name}"));
        let named = Self(name);
        ip(&format!("-n {} link set lo up", named.0));
        named
    }
}

impl Deref for Named {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // One that cannot be deleted shows in `ip netns`.
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// Runs `ip` with these words, in the namespace of the thread; returns what it printed.
///
/// # Panics
/// When it fails.
pub fn ip(words: &str) -> String {
    run("ip", words)
}

/// Runs a program with these words, in the namespace of the thread; returns what it printed.
///
/// # Panics
/// When it is not there, or fails.
pub fn run(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let failure = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {failure}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
