//! One AF_XDP socket: its system calls, and its four rings.
//!
//! Source: the kernel's `Documentation/networking/af_xdp.rst`, `include/uapi/linux/if_xdp.h`.
//! Cost: opening registers the pool's memory (pins its pages); a kick is a system call.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. Structures handed to the kernel are the C ones (of `libc`, or `repr(C)` here), with their size.
//! 2. A descriptor that the kernel returns is new and ours alone.
//! 3. Registered memory outlives the socket: the port that owns a `Socket` holds a clone of the pool
//!    (in its `Lent`) and closes the socket first. The kernel writes only to frames in the fill ring,
//!    which nobody else owns.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::transmit_ring;
use crate::shared_ring::{Consumer, Desc, Entry, Mapping, Offsets, Producer};
use crate::socket_call::set_option;
use fingerpost_packet::frame::Pool;

/// Socket option of Linux 6.18, which `libc` does not have yet.
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

/// A call that failed, by name.
pub(super) type CallError = (&'static str, io::Error);

/// How to bind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding<'a> {
    pub(super) ifindex: u32,
    pub(super) queue: u32,
    pub(super) how: How<'a>,
}

/// Whose registration of the memory a socket uses, and how frames move.
#[derive(Clone, Copy, Debug)]
pub(super) enum How<'a> {
    /// Its own; frames lie where the device puts them.
    ZeroCopy,
    /// Its own; the kernel copies.
    Copy,
    /// That of another socket, in whose mode frames move.
    Shared(BorrowedFd<'a>),
}

/// The socket. Fields are dropped in this order: rings hold the socket open, so they go first.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) rx: Consumer<Desc>,
    pub(super) tx: Producer<Desc>,
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    fd: OwnedFd,
}

/// Waits, when dropped, until the kernel has let go of a queue: closing a socket returns before that,
/// a process that is just being started may hold the descriptor a moment longer, and until then
/// frames may still be written. Takes some 10 ms.
#[derive(Debug)]
pub(super) struct LetGo {
    pub(super) ifindex: u32,
    pub(super) queue: u32,
}

/// How long a queue may stay taken by a socket that was closed.
pub(super) const LET_GO: Duration = Duration::from_secs(2);

impl Drop for LetGo {
    fn drop(&mut self) {
        let until = Instant::now() + LET_GO;
        // A queue is taken while any part of the old socket lives, so try to take it.
        let pool = Pool::new(1, 2048);
        while Instant::now() < until {
            let (ifindex, queue) = (self.ifindex, self.queue);
            let probe = Unbound::new(&pool, 2, How::Copy)
                .and_then(|probe| probe.bind(Binding { ifindex, queue, how: How::Copy }));
            match probe {
                Err((_, e)) if e.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                // Free, or there is no such queue any more.
                _ => return,
            }
        }
    }
}

/// A socket with its rings that is not bound yet.
#[derive(Debug)]
pub(super) struct Unbound(Socket);

impl Unbound {
    /// A socket with a receive ring and a fill ring of `ring` entries each, and shorter ones to transmit
    /// ([`transmit_ring`]): what is received waits for a worker to come, what is to be sent waits in queues of its own
    /// before it comes here.
    pub(super) fn new(pool: &Pool, ring: u32, how: How<'_>) -> Result<Self, CallError> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(("socket(AF_XDP)", io::Error::last_os_error()));
        }
        // SAFETY: invariant 2.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        if !matches!(how, How::Shared(_)) {
            let (base, bytes) = pool.memory();
            let registration = libc::xdp_umem_reg {
                addr: base.as_ptr() as u64,
                len: bytes as u64,
                chunk_size: pool.frame_bytes().into(),
                headroom: 0,
                flags: 0,
                tx_metadata_len: 0,
            };
            // SAFETY: invariants 1 and 3.
            unsafe { set(&fd, libc::XDP_UMEM_REG, &registration) }
                .map_err(|e| ("setsockopt(XDP_UMEM_REG)", e))?;
        }
        let out = transmit_ring(ring);
        let sizes = [
            (libc::XDP_RX_RING, ring),
            (libc::XDP_TX_RING, out),
            (libc::XDP_UMEM_FILL_RING, ring),
            (libc::XDP_UMEM_COMPLETION_RING, out),
        ];
        for (option, entries) in sizes {
            // SAFETY: invariant 1: the size of a ring is a u32.
            unsafe { set(&fd, option, &entries) }.map_err(|e| ("setsockopt(ring size)", e))?;
        }
        // In copy mode a frame to send becomes a socket buffer on the socket's account; the rings are
        // the limit meant, so let the account hold them full. Without the right, the default stays.
        let account = i32::try_from(out * 4096).unwrap_or(i32::MAX);
        // SAFETY: invariant 1: the option is an i32.
        let _ = unsafe { set_at(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &account) };
        // More work a kick than the 32 frames of old; kernels before 6.18 refuse, which is fine.
        // SAFETY: invariant 1: the option is an i32.
        let _ = unsafe { set(&fd, XDP_MAX_TX_SKB_BUDGET, &256i32) };

        let offsets = offsets(&fd).map_err(|e| ("getsockopt(XDP_MMAP_OFFSETS)", e))?;
        let mapped = |e| ("mmap of a ring", e);
        let rx = map::<Desc>(&fd, libc::XDP_PGOFF_RX_RING, &offsets.rx, ring).map_err(mapped)?;
        let tx = map::<Desc>(&fd, libc::XDP_PGOFF_TX_RING, &offsets.tx, out).map_err(mapped)?;
        let fill = map::<u64>(&fd, page(libc::XDP_UMEM_PGOFF_FILL_RING), &offsets.fr, ring)
            .map_err(mapped)?;
        let completion =
            map::<u64>(&fd, page(libc::XDP_UMEM_PGOFF_COMPLETION_RING), &offsets.cr, out)
                .map_err(mapped)?;
        Ok(Self(Socket {
            rx: Consumer::new(rx.0, rx.1, ring),
            tx: Producer::new(tx.0, tx.1, out),
            fill: Producer::new(fill.0, fill.1, ring),
            completion: Consumer::new(completion.0, completion.1, out),
            fd,
        }))
    }

    /// The fill ring, to be filled before binding: drivers take their first frames from it then.
    pub(super) fn fill(&mut self) -> &mut Producer<u64> {
        &mut self.0.fill
    }

    /// Binds it to a queue. What is in the fill ring is the kernel's from now on.
    pub(super) fn bind(self, binding: Binding<'_>) -> Result<Socket, CallError> {
        let (flags, shared) = match binding.how {
            How::ZeroCopy => (libc::XDP_ZEROCOPY | libc::XDP_USE_NEED_WAKEUP, 0),
            How::Copy => (libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP, 0),
            // Takes over the other flags of the socket that it shares with.
            How::Shared(fd) => (libc::XDP_SHARED_UMEM, fd.as_raw_fd().cast_unsigned()),
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: u16::try_from(libc::AF_XDP).expect("44"),
            sxdp_flags: flags,
            sxdp_ifindex: binding.ifindex,
            sxdp_queue_id: binding.queue,
            sxdp_shared_umem_fd: shared,
        };
        // SAFETY: invariant 1.
        let result = unsafe {
            libc::bind(
                self.0.fd.as_raw_fd(),
                (&raw const address).cast(),
                size::<libc::sockaddr_xdp>(),
            )
        };
        if result < 0 {
            return Err(("bind", io::Error::last_os_error()));
        }
        Ok(self.0)
    }
}

impl Socket {
    /// Whether frames lie where the device put them.
    pub(super) fn zero_copy(&self) -> io::Result<bool> {
        // SAFETY: invariant 1.
        let options: libc::xdp_options = unsafe { get(&self.fd, libc::XDP_OPTIONS) }?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// What the kernel counts: `struct xdp_statistics`.
    pub(super) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        // SAFETY: invariant 1.
        unsafe { get(&self.fd, libc::XDP_STATISTICS) }
    }

    /// The error that is pending on it, if any: a device that went away leaves one, once.
    pub(super) fn pending_error(&self) -> io::Result<()> {
        let mut code = 0i32;
        let mut len = size::<i32>();
        // SAFETY: invariant 1.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut code).cast(),
                &raw mut len,
            )
        };
        match (result, code) {
            (0, 0) => Ok(()),
            (0, code) => Err(io::Error::from_raw_os_error(code)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Has the kernel look at the transmit ring.
    pub(super) fn kick_tx(&self) -> io::Result<()> {
        // SAFETY: no buffer and no address: null pointers with length 0.
        let result = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Has the kernel look at the fill ring.
    pub(super) fn kick_rx(&self) {
        // SAFETY: no buffer and no address: null pointers with length 0.
        unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn page(offset: libc::c_ulonglong) -> libc::off_t {
    libc::off_t::try_from(offset).expect("the rings lie below 8 GiB")
}

fn size<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("a small structure")
}

fn map<T: Entry>(
    fd: &OwnedFd,
    page: libc::off_t,
    offsets: &libc::xdp_ring_offset,
    entries: u32,
) -> io::Result<(Arc<Mapping>, Offsets)> {
    let word = |n: u64| usize::try_from(n).map_err(io::Error::other);
    let offsets = Offsets {
        producer: word(offsets.producer)?,
        consumer: word(offsets.consumer)?,
        flags: word(offsets.flags)?,
        slots: word(offsets.desc)?,
    };
    let mapping = Mapping::of_socket(fd.as_fd(), page, offsets.bytes::<T>(entries))?;
    Ok((Arc::new(mapping), offsets))
}

fn offsets(fd: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: invariant 1.
    unsafe { get(fd, libc::XDP_MMAP_OFFSETS) }
}

/// # Safety
/// `value` must be of the type that the option takes, and what it points to fit invariant 3.
unsafe fn set<T>(fd: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: by the caller.
    unsafe { set_at(fd, libc::SOL_XDP, option, value) }
}

/// # Safety
/// As `set`.
unsafe fn set_at<T>(fd: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: by the caller.
    unsafe { set_option(fd, (level, option), value) }
}

/// # Safety
/// `T` must be the structure of integers that the option gives.
unsafe fn get<T>(fd: &OwnedFd, option: i32) -> io::Result<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    let mut len = size::<T>();
    // SAFETY: the kernel writes at most `len` bytes.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            option,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: integers, by the caller: zero where the kernel wrote nothing.
    Ok(unsafe { value.assume_init() })
}
