//! What the live tests need: the right to use bpf(2), and a network namespace that nobody else sees.
//!
//! Invariants: 1. A descriptor that the kernel returns is new and ours alone.

use std::process::Command;

use super::bpf::{Map, MapKind};
use super::load::{self, Insn};
use crate::namespace::Namespace;
pub use crate::namespace::{ip, run};

/// Function of `testing.c`.
pub fn program(function: &str) -> Vec<Insn> {
    load::link(include_bytes!("testing.o"), function, |_| None)
}

/// Whether bpf(2) may be used; prints the skip when not.
pub fn can_bpf() -> bool {
    let probe = Map::new(MapKind::Array, "probe", 4, 4, 1);
    match probe {
        Ok(_) => true,
        Err(error) if error.is_refused() => {
            skipped("root");
            false
        }
        Err(error) => panic!("bpf(2) works in parts only: {error}"),
    }
}

/// Reports that a test was skipped; `cargo xtask test` counts the line.
pub fn skipped(need: &str) {
    println!("skipped: needs {need}");
}

/// Runs `test` on a thread with a network namespace of its own, which ends with the thread and with
/// it all links made there. Skips without the rights, and where only quick tests are wanted. IPv6 is
/// off, so that nothing speaks unasked.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if std::env::var_os("FINGERPOST_QUICK").is_some() {
        return skipped("namespaces (FINGERPOST_QUICK is set)");
    }
    if !can_bpf() {
        return;
    }
    if Command::new("ip").arg("-V").output().is_err() {
        return skipped("ip (iproute2)");
    }
    let Ok(namespace) = Namespace::new() else { return skipped("root") };
    let inside = || {
        // Reads as the namespace of the thread that opens it.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
            .expect("a namespace of our own can be set up");
        ip("link set lo up");
        test();
    };
    let thread = std::thread::spawn(move || namespace.inside(inside).expect("root enters it"));
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Makes a pair of connected interfaces with that many queues each, up, and returns their numbers.
pub fn veth(a: &str, b: &str, queues: u32) -> (u32, u32) {
    let many = format!("numtxqueues {queues} numrxqueues {queues}");
    ip(&format!("link add {a} {many} type veth peer name {b} {many}"));
    ip(&format!("link set {a} up"));
    ip(&format!("link set {b} up"));
    (ifindex(a), ifindex(b))
}

/// Waits until `ip link` no longer shows `word` for an interface: a process that another test is just
/// starting may hold a descriptor for a moment longer than its owner.
pub fn soon_without(name: &str, word: &str) {
    let shown = || ip(&format!("-o link show dev {name}"));
    for _ in 0..100 {
        if !shown().contains(word) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("still {word}: {}", shown());
}

/// The number of an interface.
pub fn ifindex(name: &str) -> u32 {
    let line = ip(&format!("-o link show dev {name}"));
    let number = line.split(':').next().and_then(|n| n.trim().parse().ok());
    number.expect("ip shows the number first")
}

/// An AF_XDP socket that is bound to nothing.
pub fn xdp_socket() -> std::os::fd::OwnedFd {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0, "an AF_XDP socket: {}", std::io::Error::last_os_error());
    // SAFETY: invariant 1.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
}

/// Link address of an interface.
///
/// # Panics
/// When there is no such interface.
pub fn mac(name: &str) -> [u8; 6] {
    let line = ip(&format!("-o link show dev {name}"));
    let at = line.find("link/ether ").expect("ip shows the address") + 11;
    let byte = |at| u8::from_str_radix(&line[at..at + 2], 16).expect("an address is hexadecimal");
    std::array::from_fn(|n| byte(at + 3 * n))
}
