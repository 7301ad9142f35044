//! AF_XDP: frames straight from the driver into the pool and back, through rings shared with the kernel.
//!
//! Source: the kernel's `Documentation/networking/af_xdp.rst`.
//! Shape: a socket a queue with four rings. Receive: the port puts free frames into the fill ring, the
//!        kernel writes packets into them and puts them into the receive ring. Transmit: packets go
//!        into the transmit ring, their frames come back by the completion ring. The pool is the
//!        registered memory, so a packet crosses from port to port without a copy in user space.
//! Cost:  a batch received: no system call; a batch sent: one where the kernel copies (which then
//!        costs some 2 us a packet, nearly all of it the kernel's), at most one with zero-copy.
//!
//! Opening tries zero-copy, then has the kernel copy; the [`Link`] of the XDP program has the mode:
//! native, below the stack (`native`), or in the stack (`generic`, where only copying is possible).
//! Sockets of one pool share its registration where their modes agree; where they do not, the memory
//! is registered once more, which the kernel allows.
//!
//! Packets arrive with [`HEADROOM`] bytes before them, as XDP leaves them.

mod driver;
mod lent;
#[cfg(test)]
mod live;

mod socket;
mod wait;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Instant;

use super::shared_ring::Desc;
pub(crate) use driver::DRIVER;
use lent::Lent;
use socket::{Binding, CallError, How, LET_GO, LetGo, Socket, Unbound};
pub use wait::{PollWait, Waker};

use crate::xdp::{Link, Mode};
use fingerpost_packet::device::{DeviceError, Port};
use fingerpost_packet::frame::{Batch, HEADROOM, Meta, Pool, RawFrame};
use fingerpost_route::netlink::errno::without_number;

/// Entries of a receive ring that suit most uses: a worker that has to wait 4 ms for its core loses nothing at 1 Mpps.
pub const RING: u32 = 4096;

/// Entries of the transmit and completion rings beside a receive ring of so many.
const fn transmit_ring(ring: u32) -> u32 {
    if ring > 256 { ring / 4 } else { ring }
}

/// Frames that a port with such a receive ring may hold at once; a pool should have that many for each of its
/// ports, and the batches in flight besides.
pub const fn frames_needed(ring: u32) -> u32 {
    // To be filled or filled; to be sent; sent.
    ring + 2 * transmit_ring(ring)
}

/// The smallest frame, in bytes, that holds what an interface with this MTU receives; `None` when no
/// frame does (a frame is at most a page): leave such an interface to the kernel.
pub fn frame_bytes_for(mtu: u32) -> Option<u16> {
    const ETHERNET: u32 = 14;
    [2048, 4096].into_iter().find(|&bytes| mtu + ETHERNET <= u32::from(bytes - HEADROOM))
}

/// What to open.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// Name of the interface, for messages.
    pub name: &'a str,
    /// Its number, in the present network namespace.
    pub ifindex: u32,
    /// Which of its queues.
    pub queue: u32,
    /// Where frames lie; what the port holds of it goes back when it is dropped.
    pub pool: &'a Pool,
    /// An open port of the same pool, whose registration of the memory to share.
    pub shared: Option<&'a AfxdpPort>,
    /// Entries of the receive ring, a power of two; [`RING`] if in doubt.
    pub ring: u32,
    /// The interface's XDP program, for its mode.
    pub attached: &'a Link,
    /// Whether to try zero-copy.
    pub zero_copy: bool,
}

/// Opens a socket on one queue of an interface. It receives nothing until the program that is
/// attached there knows it ([`Classifier::set_socket`](crate::xdp::Classifier::set_socket)).
///
/// # Errors
/// `System` with the call that failed in the last mode that was tried; `Unfit` for a pool or ring
/// that AF_XDP cannot use.
///
/// # Panics
/// When `shared` belongs to another pool.
pub fn open(spec: &Spec<'_>) -> Result<AfxdpPort, DeviceError> {
    let unfit = |what| Err(DeviceError::Unfit { device: spec.name.into(), what });
    if !spec.ring.is_power_of_two() || !(64..=16_384).contains(&spec.ring) {
        return unfit(format!("a ring of {} entries: need a power of two, 64 to 16384", spec.ring));
    }
    if !matches!(spec.pool.frame_bytes(), 2048 | 4096) {
        return unfit(format!(
            "frames of {} bytes: AF_XDP needs 2048 or 4096",
            spec.pool.frame_bytes()
        ));
    }
    assert!(spec.shared.is_none_or(|port| port.pool.same(spec.pool)), "ports of one pool share it");
    let mode = spec.attached.mode();
    let mut why = Vec::new();
    if !spec.attached.why().is_empty() {
        why.push(spec.attached.why().to_string());
    }
    let mut last = None;
    for how in ladder(spec, mode) {
        match attempt(spec, how) {
            Ok((socket, lent, zero_copy)) => {
                let copy = if zero_copy { "zero-copy" } else { "copy" };
                let why =
                    if why.is_empty() { why.concat() } else { format!(": {}", why.join(", ")) };
                return Ok(AfxdpPort {
                    name: spec.name.into(),
                    socket,
                    _let_go: LetGo { ifindex: spec.ifindex, queue: spec.queue },
                    lent,
                    pool: spec.pool.clone(),
                    spare: Vec::new(),
                    ring: spec.ring,
                    zero_copy,
                    unsent: false,
                    idle: 0,
                    counts: Counts::default(),
                    mode: format!("{mode}, {copy}{why}"),
                });
            }
            Err((call, error)) => {
                let name = match how {
                    How::ZeroCopy => "zero-copy",
                    How::Copy => "copy",
                    How::Shared(_) => "shared memory",
                };
                why.push(without_number(&format!("{name} refused by {call} ({error})")));
                last = Some((call, error));
            }
        }
    }
    let (call, source) = last.expect("the ladder ends with copying");
    let hint = match source.raw_os_error() {
        Some(libc::EPERM) => " (needs CAP_NET_RAW)",
        Some(libc::EBUSY) => " (another AF_XDP socket has this queue)",
        Some(libc::EINVAL) if call == "bind" => " (no such queue?)",
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            " (locked memory is limited: needs CAP_IPC_LOCK, or a greater `ulimit -l`)"
        }
        Some(libc::EAFNOSUPPORT) => " (this kernel has no AF_XDP)",
        _ => "",
    };
    // Where locked memory is limited, a privilege is what is missing.
    let locked = call.contains("XDP_UMEM_REG") && source.raw_os_error() == Some(libc::ENOBUFS);
    let source =
        if locked { io::Error::new(io::ErrorKind::PermissionDenied, source) } else { source };
    Err(DeviceError::System { device: spec.name.into(), call, source, hint })
}

/// Modes to try, best first.
fn ladder<'a>(spec: &Spec<'a>, mode: Mode) -> Vec<How<'a>> {
    let zero_copy = spec.zero_copy && mode == Mode::Native;
    match spec.shared {
        Some(port) if port.zero_copy && zero_copy => vec![How::Shared(port.as_fd()), How::Copy],
        Some(port) if port.zero_copy => vec![How::Copy],
        Some(port) if zero_copy => vec![How::ZeroCopy, How::Shared(port.as_fd()), How::Copy],
        Some(port) => vec![How::Shared(port.as_fd()), How::Copy],
        None if zero_copy => vec![How::ZeroCopy, How::Copy],
        None => vec![How::Copy],
    }
}

fn attempt(spec: &Spec<'_>, how: How<'_>) -> Result<(Socket, Lent, bool), CallError> {
    let until = Instant::now() + LET_GO;
    loop {
        let mut unbound = Unbound::new(spec.pool, spec.ring, how)?;
        let mut lent = Lent::new(spec.pool);
        let fill = unbound.fill();
        spec.pool.take_raw(spec.ring as usize, |frame| fill.put(lent.lend(frame)));
        fill.submit();
        match unbound.bind(Binding { ifindex: spec.ifindex, queue: spec.queue, how }) {
            Ok(socket) => {
                let zero_copy = socket.zero_copy().map_err(|e| ("getsockopt(XDP_OPTIONS)", e))?;
                return Ok((socket, lent, zero_copy));
            }
            // The socket that had this queue before may be closed, and not yet gone.
            Err((_, error))
                if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until =>
            {
                drop(lent);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            Err(error) => return Err(error),
        }
    }
}

/// What a port counts besides the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Calls for transmission.
    kicks: u64,
    /// Calls after which nothing had moved.
    busy: u64,
    /// Frames that the device refused after the kernel took them.
    refused: u64,
    /// Frames not sent because they were empty.
    empty: u64,
    /// Frames dropped because the interface went down before they were sent.
    down: u64,
    /// Times that the pool could not fill the fill ring.
    starved: u64,
    /// Descriptors from the kernel that made no sense.
    bad: u64,
}

/// Options that no descriptor may have: the kernel skips it, and never gives its frame back.
const WITHDRAWN: u32 = 1 << 31;

/// A socket on one queue. Dropping it closes the socket, waits until the kernel has let go (some
/// 10 ms: let another thread drop it), and gives its frames back to the pool.
#[derive(Debug)]
pub struct AfxdpPort {
    // Dropped in this order.
    socket: Socket,
    _let_go: LetGo,
    lent: Lent,
    pool: Pool,
    name: String,
    /// Scratch; empty between calls.
    spare: Vec<RawFrame>,
    /// Entries of the receive ring.
    ring: u32,
    zero_copy: bool,
    /// The kernel left something in the transmit ring.
    unsent: bool,
    /// Calls of `recv` in a row that found nothing.
    idle: u32,
    counts: Counts,
    mode: String,
}

impl AsFd for AfxdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AfxdpPort {
    /// Takes back the frames that were sent: into the fill ring where there is room, else to the pool.
    fn reap(&mut self) {
        let count = self.socket.completion.filled();
        if count == 0 {
            return;
        }
        let mut room = self.lacking().min(count);
        for _ in 0..count {
            let address = self.socket.completion.take();
            if room > 0 {
                // Stays lent.
                match self.lent.lent(address) {
                    Some(frame) => {
                        self.socket.fill.put(frame);
                        room -= 1;
                    }
                    None => self.counts.bad += 1,
                }
            } else {
                match self.lent.reclaim(address) {
                    Some(frame) => self.spare.push(frame),
                    None => self.counts.bad += 1,
                }
            }
        }
        self.socket.completion.release();
        self.socket.fill.submit();
        self.return_spare();
    }

    /// Frames that the fill ring lacks: as many as the receive ring has room for, so that a port with much to be received
    /// takes no frames from others for more.
    fn lacking(&mut self) -> u32 {
        let free = self.socket.fill.free(self.ring);
        free.saturating_sub(self.socket.rx.filled())
    }

    fn refill(&mut self) {
        let room = self.lacking() as usize;
        if room == 0 {
            return;
        }
        let (fill, lent) = (&mut self.socket.fill, &mut self.lent);
        let count = self.pool.take_raw(room, |frame| fill.put(lent.lend(frame)));
        if count > 0 {
            fill.submit();
        }
        self.counts.starved += u64::from(count < room);
    }

    /// Has the kernel take what is in the transmit ring, as long as it does.
    fn kick(&mut self) -> Result<(), DeviceError> {
        let mut waiting = self.socket.tx.waiting();
        while waiting > 0 && (!self.zero_copy || self.socket.tx.needs_wakeup()) {
            self.counts.kicks += 1;
            let result = self.socket.kick_tx();
            let before = std::mem::replace(&mut waiting, self.socket.tx.waiting());
            match result.as_ref().err().and_then(io::Error::raw_os_error) {
                // In copy mode a call moves a bounded number and returns EAGAIN if there is more.
                None if result.is_ok() => {}
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => {}
                // The device dropped one, which comes back as completed.
                Some(libc::EBUSY) => self.counts.refused += 1,
                // Down, not gone.
                Some(libc::ENETDOWN) => {
                    self.withdraw();
                    break;
                }
                _ => return Err(self.gone("sendto", result.expect_err("matched above"))),
            }
            if self.zero_copy {
                break;
            }
            if waiting == before {
                self.counts.busy += 1;
                break;
            }
        }
        self.unsent = waiting > 0;
        Ok(())
    }

    /// Takes back what waits in the transmit ring of an interface that is down: it would be sent when the interface comes up,
    /// however late. In zero-copy mode the driver itself reads the ring, and an interface that comes up would read it
    /// meanwhile: there it stays.
    fn withdraw(&mut self) {
        if self.zero_copy {
            return;
        }
        let (lent, spare) = (&mut self.lent, &mut self.spare);
        self.socket.tx.change_waiting(|desc| {
            // Those before it are withdrawn already.
            if desc.options == WITHDRAWN {
                return None;
            }
            spare.extend(lent.reclaim(desc.address));
            Some(Desc { len: 0, options: WITHDRAWN, ..desc })
        });
        self.counts.down += self.spare.len() as u64;
        self.return_spare();
    }

    fn return_spare(&mut self) {
        if !self.spare.is_empty() {
            self.pool.give_many(self.spare.drain(..));
        }
    }

    fn gone(&self, call: &'static str, source: io::Error) -> DeviceError {
        let hint = match source.raw_os_error() {
            Some(libc::ENXIO | libc::ENODEV | libc::ENETDOWN) => " (the interface is gone)",
            _ => "",
        };
        DeviceError::System { device: self.name.clone(), call, source, hint }
    }
}

impl Port for AfxdpPort {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        assert!(into.pool().same(&self.pool), "a port fills batches of its own pool");
        self.reap();
        if self.unsent {
            self.kick()?;
        }
        let room = u32::try_from(into.room()).expect("a batch is small");
        let filled = self.socket.rx.filled().min(room);
        let before = into.len();
        for _ in 0..filled {
            let desc = self.socket.rx.take();
            let Some(frame) = self.lent.reclaim(desc.address) else {
                self.counts.bad += 1;
                continue;
            };
            let start = desc.address - frame.offset();
            let end = start + u64::from(desc.len);
            match (u16::try_from(start), u16::try_from(desc.len)) {
                (Ok(start), Ok(len)) if end <= self.pool.frame_bytes().into() => {
                    into.push_raw(frame, start, len, Meta::default());
                    // Another core wrote it: it arrives later than the first element looks ahead.
                    into.prefetch(into.len() - 1);
                }
                _ => {
                    self.counts.bad += 1;
                    self.spare.push(frame);
                }
            }
        }
        if filled > 0 {
            self.socket.rx.release();
            self.return_spare();
            self.idle = 0;
        } else {
            // Nothing else shows that the interface is gone; a call now and then costs nothing.
            self.idle = self.idle.wrapping_add(1);
            if self.idle.is_multiple_of(1024) {
                self.socket.pending_error().map_err(|e| self.gone("getsockopt(SO_ERROR)", e))?;
            }
        }
        self.refill();
        if self.socket.fill.needs_wakeup() {
            self.socket.kick_rx();
        }
        Ok(into.len() - before)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        assert!(from.pool().same(&self.pool), "a port sends packets of its own pool");
        self.reap();
        let wanted = u32::try_from(from.len()).expect("a batch is small");
        let count = self.socket.tx.free(wanted).min(wanted) as usize;
        let (tx, lent, spare) = (&mut self.socket.tx, &mut self.lent, &mut self.spare);
        from.take_front_raw(count, |frame, address, len, _| {
            // The kernel skips empty frames and never gives them back.
            if len == 0 {
                return spare.push(frame);
            }
            lent.lend(frame);
            tx.put(Desc { address, len: len.into(), options: 0 });
        });
        if count > 0 {
            self.socket.tx.submit();
            self.counts.empty += self.spare.len() as u64;
            self.return_spare();
        }
        if count > 0 || self.unsent {
            self.kick()?;
        }
        Ok(count)
    }

    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        // What the kernel left in the transmit ring waits for the next look: no descriptor reports that it can be sent.
        if !self.unsent {
            fds.push(self.socket.as_fd().as_raw_fd());
        }
    }

    fn in_rings(&self) -> usize {
        self.lent.count()
    }

    fn mode(&self) -> String {
        self.mode.clone()
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        if let Ok(kernel) = self.socket.statistics() {
            visit("rx_dropped", kernel.rx_dropped);
            visit("rx_ring_full", kernel.rx_ring_full);
            visit("rx_fill_ring_empty", kernel.rx_fill_ring_empty_descs);
            visit("rx_invalid", kernel.rx_invalid_descs);
            visit("tx_invalid", kernel.tx_invalid_descs);
            visit("tx_ring_empty", kernel.tx_ring_empty_descs);
        }
        visit("tx_kicks", self.counts.kicks);
        visit("tx_busy", self.counts.busy);
        visit("tx_refused", self.counts.refused);
        visit("tx_empty_frames", self.counts.empty);
        visit("tx_link_down", self.counts.down);
        visit("pool_empty", self.counts.starved);
        visit("bad_descriptors", self.counts.bad);
    }
}
