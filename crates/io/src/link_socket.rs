//! Frames of one EtherType on one interface, for what talks to the machine at the other end of a link.
//!
//! Source: packet(7); the filter is classic BPF (`Documentation/networking/filter.rst`).
//! Shape:  a packet socket bound to the interface and the EtherType, whole frames in both directions, promiscuous because
//!         the destinations are no addresses of the NIC. A filter in the kernel passes the frames whose byte at one
//!         offset has a value, so that the rest of the EtherType costs no copy.
//! Cost:   a system call and a copy a frame. Frames go by the queueing discipline, with the priority of control traffic.
//! Limits: VLAN tags are not looked at. The socket stays with its interface when that goes down and up; where the
//!         interface is deleted, calls fail and the socket has to be opened again.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. Structures and buffers handed to the kernel are the C ones, zero where not set; what they point to lives
//!    through the call and has the size given.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::af_packet::{bind, socket};
use crate::interface::{index_of, request};
use crate::socket_call::{set_number, set_option, set_structure};

/// Priority of control traffic (`TC_PRIO_CONTROL`), which `pfifo_fast` sends first.
const PRIORITY: libc::c_int = 7;

/// Which frames of the EtherType are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Only {
    /// Offset of the byte that is compared, from the start of the frame.
    pub at: u32,
    /// Value of that byte.
    pub value: u8,
}

/// A socket for frames of one EtherType on one interface.
#[derive(Debug)]
pub struct LinkSocket {
    fd: OwnedFd,
    name: String,
}

impl LinkSocket {
    /// Opens a socket on an interface of the present network namespace.
    ///
    /// # Errors
    /// The kernel's error: `ENODEV` without the interface, `EPERM` without CAP_NET_RAW.
    pub fn open(name: &str, ethertype: u16, only: Only) -> io::Result<Self> {
        let ifindex = index_of(name)?.cast_signed();
        let fd = socket(libc::SOCK_RAW)?;
        set_number(&fd, (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING), 1)?;
        let membership = libc::packet_mreq {
            mr_ifindex: ifindex,
            #[allow(clippy::cast_possible_truncation, reason = "1")]
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_structure(&fd, &membership)?;
        filter(&fd, only)?;
        set_number(&fd, (libc::SOL_SOCKET, libc::SO_PRIORITY), PRIORITY)?;
        // From here on frames come.
        bind(&fd, ifindex, ethertype)?;
        Ok(Self { fd, name: name.into() })
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The kernel's error; `ENETDOWN` where the interface is down, `ENOBUFS` where it has no carrier.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let (fd, bytes) = (self.fd.as_raw_fd(), frame.as_ptr().cast());
        // SAFETY: invariant 1.
        let sent = unsafe { libc::send(fd, bytes, frame.len(), libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Receives a frame that is there; `None` where there is none. A frame longer than the buffer is cut.
    ///
    /// # Errors
    /// The kernel's error; `ENETDOWN` once when the interface went down.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        let (fd, room) = (self.fd.as_raw_fd(), buffer.len());
        // SAFETY: invariant 1.
        let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), room, libc::MSG_DONTWAIT) };
        match usize::try_from(got) {
            Ok(bytes) => Ok(Some(&buffer[..bytes])),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Whether the interface is up and has a carrier. The kernel may show a change up to a second late when it follows
    /// another one (`net/core/link_watch.c`); that costs no lock of the kernel, as `ETHTOOL_GLINK` would.
    ///
    /// # Errors
    /// `ENODEV` where the interface is gone.
    pub fn carrier(&self) -> io::Result<bool> {
        let mut request = request(&self.name)?;
        let fd = self.fd.as_raw_fd();
        // SAFETY: invariant 1.
        if unsafe { libc::ioctl(fd, libc::SIOCGIFFLAGS as libc::Ioctl, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so the kernel has filled in this part of the union.
        let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        let both = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(flags & both == both)
    }
}

impl AsFd for LinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits until one of the sockets has a frame or an error, or the time is over.
///
/// # Errors
/// The kernel's error; a signal counts as the end of the time.
pub fn wait(sockets: &[BorrowedFd<'_>], most: Duration) -> io::Result<()> {
    let one = |socket: &BorrowedFd<'_>| libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polled: Vec<_> = sockets.iter().map(one).collect();
    let count = libc::nfds_t::try_from(polled.len()).map_err(io::Error::other)?;
    let timeout = libc::timespec {
        tv_sec: i64::try_from(most.as_secs()).map_err(io::Error::other)?,
        tv_nsec: most.subsec_nanos().into(),
    };
    let no_mask = std::ptr::null();
    // SAFETY: invariant 1.
    let done = unsafe { libc::ppoll(polled.as_mut_ptr(), count, &raw const timeout, no_mask) };
    match (done, io::Error::last_os_error()) {
        (..0, error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Whether an error of a socket is that there is no such interface, or no longer.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

/// Passes frames whose byte has the value, and no others.
fn filter(fd: &OwnedFd, only: Only) -> io::Result<()> {
    #[allow(clippy::cast_possible_truncation, reason = "operations have 16 bits")]
    let step =
        |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    // A frame that is too short for the load is not passed.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, only.at),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, only.value.into()),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
    // SAFETY: invariant 1: the option takes this structure, and the kernel copies the steps before it returns.
    unsafe { set_option(fd, (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER), &program) }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::xdp::testing;

    fn frame(kind: u16, class: u8, number: u8) -> Vec<u8> {
        let mut frame = vec![number; 60];
        frame[..6].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        frame[17] = class;
        frame
    }

    #[test]
    fn frames_of_the_class_pass_and_no_others() {
        testing::in_namespace(|| {
            testing::veth("a0", "b0", 1);
            let only = Only { at: 17, value: 0xff };
            let a = LinkSocket::open("a0", 0x88b5, only).unwrap();
            let b = LinkSocket::open("b0", 0x88b5, only).unwrap();
            let mut buffer = [0; 100];
            assert_eq!(b.receive(&mut buffer).unwrap(), None);
            for (kind, class, number) in
                [(0x88b5, 0, 1), (0x88b6, 0xff, 2), (0x88b5, 0xff, 3), (0x0800, 0xff, 4)]
            {
                a.send(&frame(kind, class, number)).unwrap();
            }
            a.send(&frame(0x88b5, 0, 5)[..15]).unwrap();
            wait(&[a.as_fd(), b.as_fd()], Duration::from_secs(5)).unwrap();
            assert_eq!(b.receive(&mut buffer).unwrap(), Some(&frame(0x88b5, 0xff, 3)[..]));
            assert_eq!(b.receive(&mut buffer).unwrap(), None);
            assert_eq!(a.receive(&mut buffer).unwrap(), None, "not its own");
            wait(&[], Duration::from_millis(1)).unwrap();
        });
    }

    /// The kernel may show a carrier late: see [`LinkSocket::carrier`].
    fn wait_for_carrier(ends: [&LinkSocket; 2], want: bool) {
        let until = Instant::now() + Duration::from_secs(10);
        while ends.iter().any(|end| end.carrier().unwrap() != want) {
            assert!(Instant::now() < until, "no carrier {want}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn carrier_follows_both_ends() {
        testing::in_namespace(|| {
            testing::veth("a0", "b0", 1);
            let only = Only { at: 17, value: 0xff };
            let a = LinkSocket::open("a0", 0x88b5, only).unwrap();
            let b = LinkSocket::open("b0", 0x88b5, only).unwrap();
            wait_for_carrier([&a, &b], true);
            testing::ip("link set b0 down");
            let mut buffer = [0; 100];
            wait_for_carrier([&a, &b], false);
            assert_eq!(b.receive(&mut buffer).unwrap_err().raw_os_error(), Some(libc::ENETDOWN));
            testing::ip("link set b0 up");
            wait_for_carrier([&a, &b], true);
            a.send(&frame(0x88b5, 0xff, 1)).unwrap();
            wait(&[b.as_fd()], Duration::from_secs(5)).unwrap();
            assert!(b.receive(&mut buffer).unwrap().is_some(), "the socket is the old one");
            testing::ip("link del a0");
            assert_eq!(a.carrier().unwrap_err().raw_os_error(), Some(libc::ENODEV));
            assert!(is_gone(&a.send(&frame(0x88b5, 0xff, 2)).unwrap_err()));
            assert!(is_gone(&LinkSocket::open("a0", 0x88b5, only).unwrap_err()));
        });
    }
}
