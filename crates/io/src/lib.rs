//! Ports of the operating system, and the XDP datapath: what opens sockets, maps memory of the kernel and loads programs.

#[allow(unsafe_code, reason = "system calls; its invariants are numbered there")]
pub mod af_packet;
#[allow(unsafe_code, reason = "rings shared with the kernel; each file numbers its invariants")]
pub mod afxdp;
mod frame_each_call;
#[allow(unsafe_code, reason = "system calls; its invariants are numbered there")]
pub mod interface;
#[allow(unsafe_code, reason = "system calls; its invariants are numbered there")]
pub mod link_socket;
mod mcast;
#[cfg(any(test, feature = "testing"))]
#[allow(unsafe_code, reason = "system calls; its invariants are numbered there")]
pub mod namespace;
mod ring;
#[allow(unsafe_code, reason = "system calls; its invariants are numbered there")]
pub mod schedule;
#[allow(unsafe_code, reason = "memory shared with others; its invariants are numbered there")]
mod shared_ring;
mod socket;
#[allow(unsafe_code, reason = "system calls; its invariants are numbered there")]
mod socket_call;
mod socket_path;
mod spread;
#[allow(unsafe_code, reason = "system calls; its invariants are numbered there")]
pub mod tap;
mod udp;
#[allow(unsafe_code, reason = "system calls; its invariants are numbered there")]
mod user;
pub mod xdp;

use fingerpost_packet::device::Driver;

pub use spread::{frames_held, share_out};

/// Every driver of this crate. Those of [`fingerpost_packet::device::DRIVERS`] need no operating system.
pub static DRIVERS: &[Driver] = &[
    ring::DRIVER,
    tap::DRIVER,
    tap::TUN,
    socket::DRIVER,
    udp::DRIVER,
    mcast::DRIVER,
    afxdp::DRIVER,
    af_packet::DRIVER,
];
