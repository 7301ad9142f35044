//! Capabilities: which ones forwarding needs, which of them the process lacks, and giving up the rest.
//!
//! What decides is the set of effective capabilities, never the user id: root in a container may have none
//! of them, and a service with a user of its own has them as ambient ones. Linux counts them by thread, and
//! a thread begins with what the one that starts it has: so each of our threads gives up, first of all, what
//! its own work does not need.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use crate::sys;

/// The numbers of `linux/capability.h`.
const DAC_READ_SEARCH: u32 = 2;
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// One that forwarding needs.
#[derive(Debug)]
pub(crate) struct Need {
    number: u32,
    name: &'static str,
    /// What for.
    what: &'static str,
    /// Another one that the kernel takes in its place.
    instead: Option<u32>,
}

/// All that forwarding needs, from the first interface to the last one that comes later.
const FORWARDING: [Need; 5] = [
    Need {
        number: NET_ADMIN,
        name: "CAP_NET_ADMIN",
        what: "XDP programs on interfaces, neighbors, the kernel's packet filters",
        instead: None,
    },
    Need { number: NET_RAW, name: "CAP_NET_RAW", what: "AF_XDP and packet sockets", instead: None },
    Need {
        number: BPF,
        name: "CAP_BPF",
        what: "XDP programs and their maps",
        instead: Some(SYS_ADMIN),
    },
    Need {
        number: PERFMON,
        name: "CAP_PERFMON",
        what: "the same programs, whose use of pointers the kernel's verifier refuses without it",
        instead: Some(SYS_ADMIN),
    },
    Need {
        number: IPC_LOCK,
        name: "CAP_IPC_LOCK",
        what: "the locked memory of AF_XDP frames; `ulimit -l unlimited` does as well",
        instead: None,
    },
];

impl Need {
    /// The capability that fulfills it, of those in `held`.
    fn by(&self, held: u64) -> Option<u64> {
        let known = [Some(self.number), self.instead];
        known.into_iter().flatten().map(bit).find(|bit| held & bit != 0)
    }

    fn is_missing(&self, held: u64, locked_memory_limit: Option<u64>) -> bool {
        let unlimited = self.number == IPC_LOCK && locked_memory_limit.is_none();
        self.by(held).is_none() && !unlimited
    }
}

fn bit(number: u32) -> u64 {
    1 << number
}

/// Those that the process lacks, one at least.
#[derive(Debug)]
pub(crate) struct Missing(Vec<&'static Need>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("forwarding needs root, or capabilities of which these are missing: ")?;
        for (at, need) in self.0.iter().enumerate() {
            let Need { name, what, .. } = need;
            write!(f, "{}{name} ({what})", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Missing {}

/// Whether the calling thread may do all that forwarding needs.
///
/// # Errors
/// All that is missing.
pub(crate) fn to_forward() -> Result<(), Missing> {
    // A kernel that does not report them refuses by itself.
    let Ok(held) = sys::capabilities() else { return Ok(()) };
    let limit = sys::locked_memory_limit();
    let missing: Vec<_> = FORWARDING.iter().filter(|need| need.is_missing(held, limit)).collect();
    if missing.is_empty() { Ok(()) } else { Err(Missing(missing)) }
}

/// The calling thread keeps what forwarding needs, as interfaces come and change, and nothing else. One of
/// `files` that it could not read again otherwise is a reason to keep CAP_DAC_READ_SEARCH.
///
/// # Errors
/// Error of the kernel.
pub(crate) fn keep_to_forward(files: &[PathBuf]) -> io::Result<()> {
    let held = sys::capabilities()?;
    let keep = FORWARDING.iter().filter_map(|need| need.by(held)).fold(0, |all, bit| all | bit);
    let beyond = if denied(files) { bit(DAC_READ_SEARCH) } else { 0 };
    sys::keep_capabilities(keep | beyond)
}

/// What to do about a file that cannot be read; empty where it is no matter of privileges.
pub(crate) fn to_read(error: ErrorKind) -> &'static str {
    match error {
        ErrorKind::PermissionDenied => " (let this user read it, or add CAP_DAC_READ_SEARCH)",
        _ => "",
    }
}

/// Whether one of these cannot be read by a thread without capabilities. A pipe is not a file to read again.
fn denied(files: &[PathBuf]) -> bool {
    let denied = |path: &PathBuf| {
        std::fs::metadata(path).map_or_else(
            |error| error.kind() == ErrorKind::PermissionDenied,
            |found| {
                let opened = || File::open(path).map(drop);
                found.is_file()
                    && opened().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
            },
        )
    };
    std::thread::scope(|scope| {
        let without = scope.spawn(|| sys::keep_capabilities(0).is_ok() && files.iter().any(denied));
        without.join().unwrap_or(false)
    })
}

/// A thread that carries packets between ports that were opened for it, or answers clients, keeps nothing.
/// What the kernel refuses here it refuses the thread that started this one as well, which reports it.
pub(crate) fn keep_nothing() {
    let _ = sys::keep_capabilities(0);
}

/// A thread that reads files which the configuration names keeps what the process has for that.
pub(crate) fn keep_to_read_files() {
    // As above.
    let _ = sys::keep_capabilities(bit(DAC_READ_SEARCH));
}

/// A thread with packet sockets keeps what opening them again takes, where their interfaces come back.
pub(crate) fn keep_for_packet_sockets() {
    let held = sys::capabilities().unwrap_or(0);
    // As above.
    let _ = sys::keep_capabilities(held & bit(NET_RAW));
}

/// A thread that works for clients keeps what the whole process kept for files, which they name, and what the memory takes
/// that features share with XDP programs: their lists are compiled here.
pub(crate) fn keep_for_jobs() {
    // As above.
    let _ = sys::keep_capabilities(bit(DAC_READ_SEARCH) | to_use_maps());
}

/// Keeps the capabilities to read filters, rules and policies of the kernel.
pub(crate) fn keep_to_survey() {
    let held = sys::capabilities().unwrap_or(0);
    // As above.
    let _ = sys::keep_capabilities(held & (bit(NET_ADMIN) | bit(NET_RAW)));
}

/// Keeps the capability to set routes of the kernel.
pub(crate) fn keep_to_set_routes() {
    let held = sys::capabilities().unwrap_or(0);
    // As above.
    let _ = sys::keep_capabilities(held & bit(NET_ADMIN));
}

/// Keeps the capabilities that kernels before 5.19 require to run loaded programs or write to their maps.
pub(crate) fn keep_to_run_programs() {
    // As above.
    let _ = sys::keep_capabilities(to_use_maps());
}

/// Keeps the capabilities to load programs, whose tables it makes.
pub(crate) fn keep_to_load_programs() {
    let held = sys::capabilities().unwrap_or(0);
    let needs = FORWARDING.iter().filter(|need| [NET_ADMIN, BPF, PERFMON].contains(&need.number));
    // As above.
    let _ = sys::keep_capabilities(
        needs.filter_map(|need| need.by(held)).fold(0, |all, bit| all | bit),
    );
}

/// A thread that opens interfaces keeps what forwarding needs, of what it has.
pub(crate) fn keep_to_open_interfaces() {
    // As above.
    let _ = keep_to_forward(&[]);
}

/// The capability by which the calling thread makes and changes maps of programs.
fn to_use_maps() -> u64 {
    let held = sys::capabilities().unwrap_or(0);
    let bpf = FORWARDING.iter().find(|need| need.number == BPF);
    bpf.and_then(|need| need.by(held)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(held: &[u32], limit: Option<u64>) -> Vec<&'static str> {
        let held = held.iter().fold(0, |all, number| all | bit(*number));
        let missing = FORWARDING.iter().filter(|need| need.is_missing(held, limit));
        missing.map(|need| need.name).collect()
    }

    #[test]
    fn what_is_missing_is_named() {
        let all = [NET_ADMIN, NET_RAW, BPF, PERFMON, IPC_LOCK];
        let cases: &[(&[u32], Option<u64>, &[&str])] = &[
            (&all, Some(0), &[]),
            (&[NET_ADMIN, NET_RAW, IPC_LOCK, SYS_ADMIN], Some(0), &[]),
            (&[NET_ADMIN, NET_RAW, BPF, PERFMON], None, &[]),
            (&[NET_ADMIN, NET_RAW, BPF, PERFMON], Some(8 << 20), &["CAP_IPC_LOCK"]),
            (&[SYS_ADMIN], None, &["CAP_NET_ADMIN", "CAP_NET_RAW"]),
            (&[IPC_LOCK, NET_RAW, BPF], Some(0), &["CAP_NET_ADMIN", "CAP_PERFMON"]),
        ];
        for (held, limit, want) in cases {
            assert_eq!(missing(held, *limit), *want, "{held:?}");
        }
        let words = Missing(FORWARDING.iter().take(2).collect()).to_string();
        assert_eq!(
            words,
            "forwarding needs root, or capabilities of which these are missing: CAP_NET_ADMIN (XDP programs on \
             interfaces, neighbors, the kernel's packet filters), CAP_NET_RAW (AF_XDP and packet sockets)"
        );
    }

    #[test]
    fn a_thread_gives_up_for_itself_alone() {
        let before = sys::capabilities().unwrap();
        let inside = std::thread::spawn(|| {
            keep_nothing();
            let own = sys::capabilities().unwrap();
            (own, std::thread::spawn(|| sys::capabilities().unwrap()).join().unwrap())
        });
        assert_eq!(inside.join().unwrap(), (0, 0));
        let reads = std::thread::spawn(|| {
            keep_to_read_files();
            sys::capabilities().unwrap()
        });
        assert_eq!(reads.join().unwrap(), before & bit(DAC_READ_SEARCH));
        assert_eq!(sys::capabilities().unwrap(), before);
    }
}
