//! Programs that run in the kernel, and the calls to load them.
//!
//! A [`Classifier`] on each interface hands forwardable unicast to AF_XDP sockets, behind the forwarding program
//! ([`forward`]) where there is one; all else stays with the kernel. All programs are C, compiled beforehand and checked
//! in, and linked by [`load`]: neither a compiler nor libbpf is needed. [`bpf`] wraps bpf(2).
//!
//! Maps, programs and attachments are descriptors, and an interface falls back to the kernel when the last
//! one closes: nothing outlives the process but what is pinned ([`pins`]).

mod ahead;
#[allow(unsafe_code, reason = "system calls; its invariants are numbered there")]
pub mod bpf;
mod btf;
pub mod classify;
pub mod fabric;
pub mod forward;
pub mod load;
pub mod local;
pub mod pins;
pub mod presence;
pub mod reference;
#[allow(
    unsafe_code,
    reason = "a mapping that the kernel writes; its invariants are numbered there"
)]
pub mod ring_buffer;
#[cfg(any(test, feature = "testing"))]
#[allow(unsafe_code, reason = "a private network namespace; its invariants are numbered there")]
pub mod testing;

use std::fmt;

use fingerpost_packet::DeviceError;

pub use bpf::{Link, wait_for_programs};
pub use classify::{Classifier, Counts, Functions};
pub use local::LocalAddresses;
pub use pins::Pins;
pub use reference::{Verdict, classify};

/// What programs return (`enum xdp_action`): an error of theirs, which drops the frame.
pub const XDP_ABORTED: i32 = 0;
/// Drop it.
pub const XDP_DROP: i32 = 1;
/// Pass it to the kernel.
pub const XDP_PASS: i32 = 2;
/// Send it to the target of a redirect helper.
pub const XDP_REDIRECT: i32 = 4;

/// Address families.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Families {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

impl Families {
    /// Neither.
    pub const NONE: Self = Self { v4: false, v6: false };
    /// Both.
    pub const BOTH: Self = Self { v4: true, v6: true };

    /// Whether there is none that `other` has not.
    pub fn within(self, other: Self) -> bool {
        (!self.v4 || other.v4) && (!self.v6 || other.v6)
    }
}

/// Where on the receive path a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Below the network stack, before the kernel makes a socket buffer.
    Native,
    /// In the network stack, on a socket buffer: any device, slow.
    Generic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// Why the kernel refused a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpError {
    /// A call of bpf(2) failed.
    #[error("{call}: {source}{}", hint(source))]
    System {
        /// Which call, and on what.
        call: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The verifier rejected a program: a fault of ours, or a kernel too old.
    #[error("program {program} rejected: {source}{}; verifier: {log}", hint(source))]
    Rejected {
        /// Its name.
        program: &'static str,
        /// The kernel's error.
        source: std::io::Error,
        /// The verifier's log, its end if it is long.
        log: String,
    },
    /// An interface took no program.
    #[error("interface {ifindex}: {mode} XDP refused: {source}")]
    Attach {
        /// Which interface.
        ifindex: u32,
        /// Which mode.
        mode: Mode,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A map or a request is full.
    #[error("{what} limit exceeded: need {need}, at most {max}")]
    Limit {
        /// Name of the limited resource.
        what: &'static str,
        /// How many are allowed.
        max: usize,
        /// Number requested.
        need: usize,
    },
}

impl XdpError {
    /// Whether a link was to be changed whose interface is gone: nothing runs there any more.
    pub(crate) fn is_detached(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.raw_os_error() == Some(libc::ENOLINK))
    }

    /// Whether the process lacks the right to use bpf(2), or the kernel the call itself.
    pub fn is_refused(&self) -> bool {
        let (Self::System { source, .. }
        | Self::Rejected { source, .. }
        | Self::Attach { source, .. }) = self
        else {
            return false;
        };
        matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
    }

    /// Whether a privilege is missing.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::System { source, .. } | Self::Attach { source, .. } => {
                source.kind() == std::io::ErrorKind::PermissionDenied
            }
            // The verifier also returns EACCES, for what a program does.
            Self::Rejected { source, .. } => source.raw_os_error() == Some(libc::EPERM),
            Self::Limit { .. } => false,
        }
    }
}

impl From<XdpError> for DeviceError {
    fn from(error: XdpError) -> Self {
        Self::Driver { is_permission: error.is_permission(), source: Box::new(error) }
    }
}

fn hint(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            " (needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, not just in a user namespace)"
        }
        Some(libc::ENOSYS) => " (this kernel has no bpf(2))",
        _ => "",
    }
}
