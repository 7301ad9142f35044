//! Both ends of a run over rings of shared memory: this thread makes packets, and looks at those that come back.
//!
//! Cost: some 60 ns a packet, made and looked at; a ring that is full takes no more, which loses a packet as a link
//! would.

use std::time::{Duration, Instant};

use anyhow::Result;
use fingerpost_packet::Port;
use fingerpost_packet::frame::{Batch, Pool};
use rustix::time::{ClockId, clock_gettime};

use super::ends::{Ends, Load, Outcome};
use super::latency::Latency;
use super::packets::Packets;
use crate::forward::world;

/// Packets at once.
const BURST: u64 = 64;
/// What was due and could not be sent for so long is not sent any more.
const CATCH_UP_NS: u64 = 100_000;
/// Time from the last packet to the end of the arrivals.
const DRAIN: Duration = Duration::from_millis(50);
/// Behind the UDP header: when it was made, and its number.
const STAMP: usize = 42;
/// Frames: what both rings hold, and more.
const FRAMES: u32 = 4096;

/// The other ends of the router's three rings.
pub(super) struct RingEnds<'a> {
    packets: &'a Packets,
    pool: Pool,
    into: Box<dyn Port>,
    out: Vec<Box<dyn Port>>,
    batch: Box<Batch>,
    number: u64,
    /// The last number by each egress, and one more.
    last: [u64; 2],
}

/// Nanoseconds from some moment on.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

impl<'a> RingEnds<'a> {
    /// Ends at ports that `open` opens: the ingress, then the egresses.
    ///
    /// # Errors
    /// Those of `open`.
    pub(super) fn new(
        packets: &'a Packets,
        open: impl FnOnce(&Pool) -> Result<Vec<Box<dyn Port>>>,
    ) -> Result<Self> {
        let pool = Pool::new(FRAMES, 2048);
        let mut out = open(&pool)?;
        let into = out.remove(0);
        let batch = Batch::new(&pool);
        Ok(Self { packets, pool, into, out, batch, number: 0, last: [0; 2] })
    }

    /// Sends so many at once.
    fn send(&mut self, count: u64) -> Result<()> {
        let ns = now();
        for _ in 0..count {
            let Some(mut packet) = self.pool.alloc() else { break };
            let which =
                usize::try_from(self.number).expect("64 bits") % self.packets.templates.len();
            packet.set_len(self.packets.len);
            let bytes = packet.bytes_mut();
            bytes.copy_from_slice(&self.packets.templates[which]);
            bytes[STAMP..STAMP + 8].copy_from_slice(&ns.to_ne_bytes());
            bytes[STAMP + 8..STAMP + 16].copy_from_slice(&self.number.to_ne_bytes());
            self.number += 1;
            if self.batch.push(packet).is_err() {
                break;
            }
        }
        self.into.send(&mut self.batch)?;
        self.batch.clear();
        Ok(())
    }

    /// Looks at what came.
    fn look(&mut self, outcome: &mut Outcome) -> Result<u64> {
        let mut came = 0;
        for way in 0..self.out.len() {
            if self.out[way].recv(&mut self.batch)? == 0 {
                continue;
            }
            let ns = now();
            for i in 0..self.batch.len() {
                let frame = self.batch.bytes(i);
                let right = right(self.packets, frame, way);
                outcome.wrong += u64::from(!right);
                if right {
                    let word = |at: usize| {
                        u64::from_ne_bytes(frame[at..at + 8].try_into().expect("8 bytes"))
                    };
                    outcome.latency.add(ns.saturating_sub(word(STAMP)));
                    let number = word(STAMP + 8) + 1;
                    outcome.late += u64::from(number <= self.last[way]);
                    self.last[way] = self.last[way].max(number);
                }
            }
            came += self.batch.len() as u64;
            self.batch.clear();
        }
        outcome.arrived += came;
        Ok(came)
    }
}

/// Whether a frame of that egress is one of ours, as it must be.
fn right(packets: &Packets, frame: &[u8], way: usize) -> bool {
    if frame.len() != packets.len {
        return false;
    }
    let number = usize::from(u16::from_be_bytes([frame[34], frame[35]]));
    packets.found.get(number).is_some_and(|&(addr, hop)| {
        world::destination::<u32>(frame) == Some(addr)
            && world::egress_of(hop.0) == way
            && world::check::<u32>(frame, hop.0)
    })
}

impl Ends for RingEnds<'_> {
    fn offer(&mut self, load: Load) -> Result<Outcome> {
        let mut outcome = Outcome { latency: Latency::default(), ..Outcome::default() };
        self.last = [0; 2];
        let (first, start) = (self.number, now());
        let end = start + u64::try_from(load.time.as_nanos())?;
        let (mut due, mut at, mut last) = (start, start, start);
        while at < end {
            let mut count = BURST;
            if load.interval_ns > 0 {
                due = due.max(at.saturating_sub(CATCH_UP_NS));
                count = at.saturating_sub(due).div_ceil(load.interval_ns).min(BURST);
                due += count * load.interval_ns;
            }
            if count > 0 {
                self.send(count)?;
            }
            at = now();
            if self.look(&mut outcome)? > 0 {
                last = at;
            }
        }
        outcome.sent = self.number - first;
        let sending = at - start;
        let drained = Instant::now();
        let mut since = drained;
        while outcome.arrived < outcome.sent && since.elapsed() < DRAIN {
            if self.look(&mut outcome)? > 0 {
                (since, last) = (Instant::now(), now());
            }
        }
        #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
        let rate = |packets: u64, ns: u64| packets as f64 * 1e3 / ns.max(1) as f64;
        outcome.offered = rate(outcome.sent, sending);
        outcome.mpps = rate(outcome.arrived, last - start);
        Ok(outcome)
    }

    fn warm(&mut self) -> Result<u64> {
        // Until the router has come to the rings, what is sent is lost.
        let (mut outcome, start) = (Outcome::default(), Instant::now());
        while outcome.arrived == 0 && start.elapsed() < Duration::from_secs(5) {
            self.send(1)?;
            self.look(&mut outcome)?;
        }
        let some = Load { interval_ns: 0, time: Duration::from_millis(30) };
        Ok(self.offer(some)?.arrived)
    }
}
