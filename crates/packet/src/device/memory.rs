//! Ports that are memory: for measuring the path without I/O, and for tests.
//!
//! [`Generator`] makes packets of prepared headers as fast as the path takes them; [`Sink`] counts
//! what leaves, looks at every n-th packet, and frees it. [`link`] joins two ports in one process,
//! also across pools, by a ring that copies. The driver `memory` opens a port that receives what it
//! sent.
//!
//! Cost: the generator copies 64 bytes a packet, which a device would have put there by DMA; measure
//! it alone and report it apart. A link takes a lock and a copy a packet; it is not for measuring.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use super::{DeviceError, DeviceSpec, Driver, Port, Ports};
use crate::frame::counters::Count;
use crate::frame::{Batch, Meta, Pool};

pub(crate) const DRIVER: Driver = Driver {
    name: "memory",
    summary: "receives what it sent, at most 256 frames at a time; for tests",
    in_rings: RING_FRAMES,
    external: false,
    open: open_loop,
};

/// Bytes that the generator writes of each packet: what the path can look at.
pub const HEADER_BYTES: usize = 64;

/// Frames that a loop or a link holds in each direction.
const RING_FRAMES: usize = 256;

/// Makes packets of prepared headers, over and over.
pub struct Generator {
    pool: Pool,
    headers: Arc<[[u8; HEADER_BYTES]]>,
    frame_len: u16,
    next: usize,
    made: u64,
    limit: u64,
    stamp: Option<Stamp>,
}

/// Writes into a generated frame, given its number.
pub type Stamp = Box<dyn FnMut(u64, &mut [u8]) + Send>;

impl Generator {
    /// Packets of `frame_len` bytes from the Ethernet header on, which begin like `headers`, in order.
    ///
    /// # Panics
    /// Without headers, or when such frames do not fit the pool's.
    pub fn new(pool: &Pool, headers: Arc<[[u8; HEADER_BYTES]]>, frame_len: u16) -> Self {
        assert!(!headers.is_empty(), "a generator needs headers");
        assert!(frame_len <= pool.max_len(), "frames of {frame_len} bytes do not fit the pool");
        let pool = pool.clone();
        Self { pool, headers, frame_len, next: 0, made: 0, limit: u64::MAX, stamp: None }
    }

    /// Stops after that many packets in all.
    #[must_use]
    pub fn limit(mut self, packets: u64) -> Self {
        self.limit = packets;
        self
    }

    /// Writes into each frame, given its number from 0: sequence numbers, payload.
    #[must_use]
    pub fn stamp(mut self, stamp: Stamp) -> Self {
        self.stamp = Some(stamp);
        self
    }
}

impl Port for Generator {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        assert!(into.pool().same(&self.pool), "a batch of the generator's pool");
        let left = usize::try_from(self.limit - self.made).unwrap_or(usize::MAX);
        let first = into.len();
        let Self { headers, next, .. } = self;
        let count = into.fill(left, self.frame_len, |frame| {
            begin(frame, &headers[*next]);
            *next = if *next + 1 == headers.len() { 0 } else { *next + 1 };
        });
        if let Some(stamp) = &mut self.stamp {
            for i in 0..count {
                stamp(self.made + i as u64, into.bytes_mut(first + i));
            }
        }
        self.made += count as u64;
        Ok(count)
    }

    /// Swallows what is sent.
    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let count = from.len();
        from.free_front(count);
        Ok(count)
    }

    fn mode(&self) -> String {
        format!("{} prepared headers", self.headers.len())
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("made", self.made);
    }
}

/// Copies the header to the front, as far as there is room.
#[inline(always)]
fn begin(frame: &mut [u8], header: &[u8; HEADER_BYTES]) {
    const HALF: usize = HEADER_BYTES / 2;
    if let Some(whole) = frame.first_chunk_mut::<HEADER_BYTES>() {
        *whole = *header;
    } else if frame.len() >= HALF {
        // Two pieces of a fixed size, which overlap: a call costs more than the copy.
        let at = frame.len() - HALF;
        let (mut first, mut last) = ([0; HALF], [0; HALF]);
        first.copy_from_slice(&header[..HALF]);
        last.copy_from_slice(&header[at..at + HALF]);
        frame[..HALF].copy_from_slice(&first);
        frame[at..].copy_from_slice(&last);
    } else {
        let len = frame.len();
        frame.copy_from_slice(&header[..len]);
    }
}

/// What a sink saw; its owner writes, anybody reads.
#[derive(Debug, Default)]
pub struct SinkCounters {
    /// Packets that arrived.
    pub packets: Count,
    /// Their bytes, link header included.
    pub bytes: Count,
    /// Packets that were shown to the check.
    pub checked: Count,
}

/// Looks at a packet that arrived.
pub type Check = Box<dyn FnMut(&[u8], &Meta) + Send>;

/// Counts and frees what is sent; never receives.
#[derive(Default)]
pub struct Sink {
    counters: Arc<SinkCounters>,
    check: Option<(u64, Check)>,
    /// Packets until the next check.
    until: u64,
}

impl Sink {
    /// Counts only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows the first packet and every `every`-th after it to `check`; 0 counts as 1.
    #[must_use]
    pub fn check(mut self, every: u64, check: Check) -> Self {
        self.check = Some((every.max(1), check));
        self
    }

    /// Its counters, which stay readable when the port is gone.
    pub fn counters(&self) -> Arc<SinkCounters> {
        self.counters.clone()
    }
}

impl Port for Sink {
    fn recv(&mut self, _: &mut Batch) -> Result<usize, DeviceError> {
        Ok(0)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let count = from.len();
        let bytes = from.total_bytes();
        if let Some((every, check)) = &mut self.check {
            let mut at = self.until;
            while at < count as u64 {
                let i = usize::try_from(at).expect("below the length of a batch");
                check(from.bytes(i), &from.meta()[i]);
                self.counters.checked.add(1);
                at += *every;
            }
            self.until = at - count as u64;
        }
        self.counters.packets.add(count as u64);
        self.counters.bytes.add(bytes);
        from.free_front(count);
        Ok(count)
    }

    fn mode(&self) -> String {
        "counts and frees".into()
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("packets", self.counters.packets.read());
        visit("checked", self.counters.checked.read());
    }
}

/// Frames that one end has sent and the other has not received.
#[derive(Clone, Default)]
struct Ring(Arc<Mutex<VecDeque<Box<[u8]>>>>);

impl Ring {
    fn with<T>(&self, act: impl FnOnce(&mut VecDeque<Box<[u8]>>) -> T) -> T {
        act(&mut self.0.lock().expect("no panic while holding a ring"))
    }
}

/// One end of a link between two ports of one process.
pub struct Link {
    pool: Pool,
    out: Ring,
    back: Ring,
    capacity: usize,
    no_buffer: u64,
}

/// Two ports, each receiving what the other sends. A full ring takes no more.
pub fn link(a: &Pool, b: &Pool, capacity: usize) -> (Link, Link) {
    let (there, back) = (Ring::default(), Ring::default());
    let end = |pool: &Pool, out: &Ring, back: &Ring| Link {
        pool: pool.clone(),
        out: out.clone(),
        back: back.clone(),
        capacity,
        no_buffer: 0,
    };
    (end(a, &there, &back), end(b, &back, &there))
}

fn open_loop(spec: &DeviceSpec<'_>) -> Result<Ports, DeviceError> {
    let (_, count) = spec.queues;
    let ports = (0..count.max(1)).map(|queue| {
        let ring = Ring::default();
        let pool = spec.pool(queue).clone();
        let port =
            Link { pool, out: ring.clone(), back: ring, capacity: RING_FRAMES, no_buffer: 0 };
        Box::new(port) as Box<dyn Port>
    });
    Ok(ports.collect())
}

impl Port for Link {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        let mut count = 0;
        while into.room() > 0 {
            let Some(frame) = self.back.with(VecDeque::pop_front) else { break };
            let Some(mut packet) = self.pool.alloc().filter(|_| frame.len() <= max_len(&self.pool))
            else {
                // As a device would: no buffer, no packet.
                self.no_buffer += 1;
                continue;
            };
            packet.set_len(frame.len());
            packet.bytes_mut().copy_from_slice(&frame);
            into.push(packet).expect("there is room");
            count += 1;
        }
        Ok(count)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let count = self.out.with(|ring| {
            let count = from.len().min(self.capacity.saturating_sub(ring.len()));
            ring.extend((0..count).map(|i| Box::from(from.bytes(i))));
            count
        });
        from.free_front(count);
        Ok(count)
    }

    fn mode(&self) -> String {
        format!("ring of {} frames, copied", self.capacity)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("no_buffer", self.no_buffer);
    }
}

fn max_len(pool: &Pool) -> usize {
    pool.max_len().into()
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generator({} made)", self.made)
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sink({} packets)", self.counters.packets.read())
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({} frames)", self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(n: u8) -> Arc<[[u8; HEADER_BYTES]]> {
        (0..n).map(|i| [i; HEADER_BYTES]).collect()
    }

    #[test]
    fn a_generator_repeats_its_headers_and_ends() {
        let pool = Pool::new(64, 2048);
        let mut port =
            Generator::new(&pool, headers(3), 100).limit(8).stamp(Box::new(|n, frame| {
                frame[99] = u8::try_from(n).unwrap();
            }));
        let mut batch = Batch::new(&pool);
        batch.set_limit(5);
        assert_eq!(port.recv(&mut batch).unwrap(), 5);
        let seen: Vec<_> = (0..5).map(|i| (batch.bytes(i)[63], batch.bytes(i)[99])).collect();
        assert_eq!(seen, [(0, 0), (1, 1), (2, 2), (0, 3), (1, 4)]);
        assert_eq!(batch.frame_len(0), 100);
        batch.set_limit(256);
        assert_eq!(port.recv(&mut batch).unwrap(), 3);
        assert_eq!(batch.bytes(5)[63], 2);
        assert_eq!(port.recv(&mut batch).unwrap(), 0, "limit");
        assert_eq!(port.send(&mut batch).unwrap(), 8);
        assert_eq!(pool.free(), 64);
        // Frames shorter than a header, and a pool that runs dry.
        let mut port = Generator::new(&pool, headers(1), 60);
        assert_eq!(port.recv(&mut batch).unwrap(), 64);
        assert_eq!(batch.bytes(63).len(), 60);
        assert_eq!(port.recv(&mut batch).unwrap(), 0);
    }

    #[test]
    fn a_sink_counts_all_and_checks_some() {
        let pool = Pool::new(64, 2048);
        let (seen, from_check) = std::sync::mpsc::channel();
        let mut sink = Sink::new().check(7, Box::new(move |frame, _| seen.send(frame[0]).unwrap()));
        let mut source = Generator::new(&pool, headers(64), 60);
        for size in [3, 1, 10, 50] {
            let mut batch = Batch::new(&pool);
            batch.set_limit(size);
            source.recv(&mut batch).unwrap();
            assert_eq!(sink.send(&mut batch).unwrap(), size);
        }
        let counters = sink.counters();
        assert_eq!((counters.packets.read(), counters.bytes.read()), (64, 64 * 60));
        let want: Vec<u8> = (0..64).step_by(7).collect();
        drop(sink);
        assert_eq!(from_check.iter().collect::<Vec<_>>(), want);
        assert_eq!(counters.checked.read(), 10);
    }

    #[test]
    fn a_link_joins_two_pools_and_takes_no_more_than_fits() {
        let (here, there) = (Pool::new(16, 2048), Pool::new(4, 2048));
        let (mut a, mut b) = link(&here, &there, 10);
        let mut batch = Batch::new(&here);
        Generator::new(&here, headers(16), 60).recv(&mut batch).unwrap();
        assert_eq!(a.send(&mut batch).unwrap(), 10);
        assert_eq!((batch.len(), batch.bytes(0)[0]), (6, 10), "the rest stays, in order");
        let mut got = Batch::new(&there);
        assert_eq!(b.recv(&mut got).unwrap(), 4, "no frame, no packet");
        assert_eq!(got.bytes(3)[0], 3);
        let mut lost = 0;
        b.stats(&mut |_, n| lost += n);
        assert_eq!(lost, 6);
        assert_eq!(b.send(&mut got).unwrap(), 4);
        batch.clear();
        assert_eq!(a.recv(&mut batch).unwrap(), 4);
    }
}
