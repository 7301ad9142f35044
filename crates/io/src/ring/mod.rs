//! Frames to and from another process on this host, by memory that both share.
//!
//! Both name the same Unix socket. Who comes first listens there, makes the memory and hands it to who comes second;
//! after that the socket signals that somebody waits (a byte) or is gone (its end). When the second one goes, the first
//! waits for another; when the first goes, the port of the second closes.
//!
//! Source: after memif (FD.io VPP, `src/plugins/memif`), which has more: several queues, regions and versions.
//! Shape:  a line of counters each, then slots with lengths [u64; n], then chunks [n][2048 bytes], in each direction.
//! Cost:   a copy each side; a system call only where the other side sleeps. Neither process can harm the other but by
//!         what it sends: what lies in shared memory is copied before it is looked at, and lengths are checked. Both
//!         act for one user, or one of them for root: frames are the router's, and the socket is its user's alone.

#[allow(unsafe_code, reason = "system calls; its invariants are numbered there")]
mod handover;

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::shared_ring::{Consumer, Mapping, Offsets, Producer};
use crate::socket_path::{SocketPath, is_socket};
use crate::user;
use fingerpost_packet::device::{DeviceError, Driver, Port};
use fingerpost_packet::frame::{Batch, HEADROOM, Meta};

pub(crate) const DRIVER: Driver = Driver {
    name: "ring",
    summary: "frames to and from another process by shared memory; both name one Unix socket",
    in_rings: 0,
    external: true,
    open: |spec| Ok(vec![Box::new(Ring::open(spec.name)?)]),
};

/// Frames in flight in each direction.
const ENTRIES: u32 = 512;
/// Room for a frame, between two processes.
const CHUNK: usize = 2048;

/// Greeting of the first one: these bytes, and in its version the shape of the memory.
const GREETING: &[u8; 16] = b"fingerpost-ring1";

/// Mode of the socket.
const MODE: u32 = 0o600;

/// Rounds without a frame until the next look at whether somebody comes, or is gone.
const LOOK_EVERY: u32 = 256;

/// Where the parts of one direction lie; the second direction follows the first.
const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, slots: 192 };
const CHUNKS: usize = OFFSETS.slots + ENTRIES as usize * 8;

/// Bytes of one direction, with so much room for each frame.
const fn way(chunk: usize) -> usize {
    CHUNKS + ENTRIES as usize * chunk
}

/// One end.
pub(super) struct Ring {
    path: String,
    /// Socket of the end that came first.
    listener: Option<Listener>,
    state: State,
    /// Rounds without a frame.
    quiet: u32,
    counts: Counts,
}

enum State {
    /// Nobody is there yet.
    Alone,
    /// The other side has yet to hand over the memory.
    Asking(UnixStream),
    Joined(Box<Joined>),
}

/// Both directions, with somebody at the other end.
struct Joined {
    stream: UnixStream,
    memory: Arc<Mapping>,
    to: Producer<u64>,
    /// Where chunks to send begin.
    to_chunks: usize,
    from: Consumer<u64>,
    from_chunks: usize,
    /// Room for a frame.
    chunk: usize,
    /// A wakeup was requested from the other side.
    asked: AtomicBool,
}

#[derive(Debug, Default)]
struct Counts {
    /// Times that the other side took no more.
    full: u64,
    /// Times that there was no frame to receive into.
    no_buffer: u64,
    /// Frames too long for the ring, dropped.
    too_long: u64,
    /// Lengths that cannot be.
    bad: u64,
    /// How often somebody came.
    peers: u64,
    /// How often somebody came of a user whose frames are not taken.
    strangers: u64,
}

struct Listener {
    socket: UnixListener,
    _path: SocketPath,
}

/// Both ends of a ring inside this process, by the memory that two would share, for frames of so many bytes. `name` is
/// for messages.
pub(super) fn pair(name: &str, chunk: usize) -> io::Result<(Ring, Ring)> {
    let (one, other) = UnixStream::pair()?;
    let first = Joined::first(one, chunk)?;
    other.set_nonblocking(true)?;
    let second = Joined::second(&other, chunk)?.ok_or(ErrorKind::WouldBlock)?;
    let end = |joined| {
        let (path, state) = (name.to_owned(), State::Joined(Box::new(joined)));
        Ring { path, listener: None, state, quiet: 0, counts: Counts::default() }
    };
    Ok((end(first), end(second)))
}

impl Ring {
    fn open(path: &str) -> Result<Self, DeviceError> {
        let failed = |call| {
            move |source: io::Error| DeviceError::System {
                device: path.into(),
                call,
                source,
                hint: match call {
                    "bind" => {
                        " (a path for a Unix socket is wanted, in a folder that can be written to)"
                    }
                    "connect" if !is_socket(path) => " (what stands there is no socket)",
                    _ => "",
                },
            }
        };
        let new = |listener, state| Self {
            path: path.into(),
            listener,
            state,
            quiet: 0,
            counts: Counts::default(),
        };
        // Twice: another process may come first in between.
        for _ in 0..2 {
            match UnixStream::connect(path) {
                Ok(stream) => {
                    let other = user::of_peer(&stream).map_err(failed("getsockopt"))?;
                    if !user::is_trusted(other) {
                        let what = format!(
                            "user {other} listens there: frames are exchanged with processes of user {} and of root",
                            user::own()
                        );
                        return Err(DeviceError::Unfit { device: path.into(), what });
                    }
                    stream.set_nonblocking(true).map_err(failed("fcntl"))?;
                    return Ok(new(None, State::Asking(stream)));
                }
                // Left behind by who is gone. What is no socket is not ours to remove, though it refuses as well.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused && is_socket(path) => {
                    fs::remove_file(path).map_err(failed("unlink"))?;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(failed("connect")(error)),
            }
            match UnixListener::bind(path) {
                Ok(socket) => {
                    let listener = Listener { socket, _path: SocketPath::of(path) };
                    // Who connects before this line is looked at by its user, as everybody is.
                    fs::set_permissions(path, fs::Permissions::from_mode(MODE))
                        .map_err(failed("chmod"))?;
                    listener.socket.set_nonblocking(true).map_err(failed("fcntl"))?;
                    return Ok(new(Some(listener), State::Alone));
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(failed("bind")(error)),
            }
        }
        let what = "two others use it already".to_owned();
        Err(DeviceError::Unfit { device: path.into(), what })
    }

    /// Looks whether the other side is there, where it was not.
    fn meet(&mut self) -> Result<(), DeviceError> {
        if matches!(self.state, State::Joined(_)) {
            return Ok(());
        }
        // Not each time: it is a system call.
        self.quiet += 1;
        if self.quiet % LOOK_EVERY == 1 { self.join() } else { Ok(()) }
    }

    fn join(&mut self) -> Result<(), DeviceError> {
        let joined = match (&self.state, &self.listener) {
            (State::Alone, Some(listener)) => match listener.socket.accept() {
                Ok((stream, _)) if !user::of_peer(&stream).is_ok_and(user::is_trusted) => {
                    self.counts.strangers += 1;
                    None
                }
                // Who went again before it was answered leaves us where we were.
                Ok((stream, _)) => Joined::first(stream, CHUNK).ok(),
                Err(_) => None,
            },
            (State::Asking(stream), _) => match Joined::second(stream, CHUNK) {
                Ok(joined) => joined,
                Err(error) => return Err(self.gone(&error.to_string())),
            },
            (State::Alone, None) | (State::Joined(_), _) => None,
        };
        if let Some(joined) = joined {
            self.state = State::Joined(Box::new(joined));
            self.counts.peers += 1;
            self.quiet = 0;
        }
        Ok(())
    }

    /// Reads the messages of the other side: wakeups, or that it is gone.
    fn look(&mut self) -> Result<(), DeviceError> {
        let State::Joined(joined) = &mut self.state else { return Ok(()) };
        if joined.is_there() {
            return Ok(());
        }
        if self.listener.is_some() {
            self.state = State::Alone;
            return Ok(());
        }
        Err(self.gone("it has closed the socket"))
    }

    fn gone(&self, why: &str) -> DeviceError {
        let what = format!("the other side is gone: {why}");
        DeviceError::Unfit { device: self.path.clone(), what }
    }
}

impl Joined {
    /// The end that came first: makes the memory and hands it over.
    fn first(stream: UnixStream, chunk: usize) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let bytes = 2 * way(chunk);
        let file = handover::memory(bytes)?;
        let memory = Mapping::of_file(file.as_fd(), bytes)?;
        handover::give(&stream, &file, GREETING)?;
        Ok(Self::new(stream, memory, (0, way(chunk)), chunk))
    }

    /// The end that came second; `None` while nothing was handed over.
    fn second(stream: &UnixStream, chunk: usize) -> io::Result<Option<Self>> {
        let mut greeting = [0; GREETING.len()];
        let (came, file) = match handover::take(stream, &mut greeting) {
            Ok(taken) => taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let other = |words: &str| io::Error::new(ErrorKind::InvalidData, words);
        let Some(file) = file.filter(|_| greeting[..came] == GREETING[..]) else {
            return Err(other("it speaks of something else"));
        };
        let bytes = 2 * way(chunk);
        if !handover::keeps(&file, bytes)? {
            return Err(other("its memory is too small, or can be cut off"));
        }
        let memory = Mapping::of_file(file.as_fd(), bytes)?;
        Ok(Some(Self::new(stream.try_clone()?, memory, (way(chunk), 0), chunk)))
    }

    /// `to` and `from` are where the directions begin.
    fn new(stream: UnixStream, memory: Mapping, (to, from): (usize, usize), chunk: usize) -> Self {
        let memory = Arc::new(memory);
        let at = |way: usize| Offsets {
            producer: way + OFFSETS.producer,
            consumer: way + OFFSETS.consumer,
            flags: way + OFFSETS.flags,
            slots: way + OFFSETS.slots,
        };
        Self {
            stream,
            to: Producer::new(memory.clone(), at(to), ENTRIES),
            to_chunks: to + CHUNKS,
            from: Consumer::new(memory.clone(), at(from), ENTRIES),
            from_chunks: from + CHUNKS,
            chunk,
            memory,
            asked: AtomicBool::new(false),
        }
    }

    /// Reads all that was sent.
    fn is_there(&mut self) -> bool {
        loop {
            match self.stream.read(&mut [0; 64]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// Copies received frames into the batch; gives how many, and how many had a length that cannot be.
    fn receive(&mut self, into: &mut Batch, counts: &mut Counts) -> usize {
        let wanted = into.room().min(self.from.filled() as usize);
        if wanted == 0 {
            return 0;
        }
        let (first, pool) = (into.len(), into.pool().clone());
        let longest = pool.max_len();
        let count = pool.take_raw(wanted, |frame| {
            into.push_raw(frame, HEADROOM, longest, Meta::default());
        });
        for i in first..first + count {
            let chunk = self.from_chunks + self.from.place() * self.chunk;
            let told = usize::try_from(self.from.take()).unwrap_or(usize::MAX);
            // An empty frame ends as one that is too short.
            let len = if told > self.chunk.min(longest.into()) { 0 } else { told };
            counts.bad += u64::from(len != told);
            self.memory.read(chunk, &mut into.bytes_mut(i)[..len]);
            into.truncate(i, len);
        }
        self.from.release();
        counts.no_buffer += u64::from(count < wanted);
        count
    }

    /// Copies frames from the front of the batch out; gives how many.
    fn transmit(&mut self, from: &mut Batch, counts: &mut Counts) -> usize {
        let wanted = u32::try_from(from.len()).unwrap_or(u32::MAX);
        let free = self.to.free(wanted) as usize;
        let count = from.len().min(free);
        for i in 0..count {
            let frame = from.bytes(i);
            if frame.len() > self.chunk {
                counts.too_long += 1;
                continue;
            }
            self.memory.write(self.to_chunks + self.to.place() * self.chunk, frame);
            self.to.put(frame.len() as u64);
        }
        counts.full += u64::from(count < from.len());
        if self.to.submit_and_ask() {
            // Full of bytes that nobody reads: it will wake. Gone: the next look finds it.
            let _ = self.stream.write(&[1]);
        }
        from.free_front(count);
        count
    }
}

impl Port for Ring {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        self.meet()?;
        let State::Joined(joined) = &mut self.state else { return Ok(0) };
        // Relaxed: the worker alone reads and writes it.
        let woken = joined.asked.swap(false, Relaxed);
        if woken {
            joined.from.sleeps(false);
        }
        let count = joined.receive(into, &mut self.counts);
        self.quiet = if count > 0 { 0 } else { self.quiet + 1 };
        // What was sent before the other side went is still received.
        if count == 0 && (woken || self.quiet.is_multiple_of(LOOK_EVERY)) {
            self.look()?;
        }
        Ok(count)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        self.meet()?;
        let State::Joined(joined) = &mut self.state else { return Ok(0) };
        let count = joined.transmit(from, &mut self.counts);
        if count == 0 && !from.is_empty() {
            self.look()?;
        }
        Ok(count)
    }

    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        match (&self.state, &self.listener) {
            (State::Joined(joined), _) => {
                joined.asked.store(true, Relaxed);
                // Where frames came in the meantime nobody signals it, and the worker sleeps a moment only.
                if !joined.from.sleeps(true) {
                    fds.push(joined.stream.as_raw_fd());
                }
            }
            (State::Asking(stream), _) => fds.push(stream.as_raw_fd()),
            (State::Alone, Some(listener)) => fds.push(listener.socket.as_raw_fd()),
            (State::Alone, None) => {}
        }
    }

    fn mode(&self) -> String {
        let end = if self.listener.is_some() { "first" } else { "second" };
        format!("shared memory, {ENTRIES} frames in each direction, copied; came {end}")
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("peers", self.counts.peers);
        visit("strangers", self.counts.strangers);
        visit("tx_full", self.counts.full);
        visit("no_buffer", self.counts.no_buffer);
        visit("too_long", self.counts.too_long);
        visit("bad_lengths", self.counts.bad);
    }
}

#[cfg(test)]
mod tests;
