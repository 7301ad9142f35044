//! Internal links: the length of a queue that nobody holds, in words that the graph and XDP share.
//!
//! Source: virtual queues (Gibbens and Kelly, "Resource pricing and the evolution of congestion control", 1999), in two classes.
//! Shape:  8 words of 64 bits for the link to each node, a cache line, little endian:
//!
//! ```text
//!         0  time until which all packets occupy the link, ns      4  most backlog of a class, ns
//!         1  time until which transit alone occupies it, ns        5  transit packets dropped
//!         2  egress port 16 | bit 16: usable, bit 17: there        6  local packets dropped
//!         3  time of a byte, in 2^-16 ns; 0: no rate               7  bytes sent, without those of [`Sent`]
//! ```
//!
//! Cost:   a batch reads the words of a link once and writes them once, however many packets it sends there. In transit to a
//!         link without a rate a packet adds its bytes to a count of the worker's own ([`Sent`]), without a locked access.
//! Limits: rates from 1 kbit/s.
//!
//! XDP and AF_XDP transmission pass no queue that we own and no queueing discipline, so a link has a configured
//! rate and its packets are counted against it. The backlog is the queue length that the rule reads. Transit has strict
//! priority: it waits behind transit alone, local packets wait behind both. What exceeds the limit is dropped and counted.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use fingerpost_lpm::{Memory, Region, UpdateError};
use fingerpost_packet::frame::counters::{Count, Instance, PerWorker};

use crate::rule::{MAX_NODES, NodeId};

/// Class of a packet on an internal link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It was received from another node.
    Transit,
    /// It was received on an external port of this node, or is its own.
    Local,
}

/// Packets that a link dropped, and bytes that it sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transit packets dropped.
    pub transit_dropped: u64,
    /// Local packets dropped.
    pub local_dropped: u64,
    /// Bytes sent.
    pub bytes: u64,
}

const ALL: usize = 0;
const TRANSIT: usize = 1;
const PORT: usize = 2;
const BYTE_COST: usize = 3;
const LIMIT: usize = 4;
const DROPPED: usize = 5;
const BYTES: usize = 7;

/// Bit of the port's word: link and peer are up.
const USABLE: u64 = 1 << 16;
/// Bit of the port's word: there is such a link.
const THERE: u64 = 1 << 17;

/// The links to all nodes, by node number.
#[derive(Clone, Debug)]
pub struct Links {
    region: Region,
    sent: Arc<PerWorker<Sent>>,
}

/// Bytes that one worker sent on links without a rate, by node.
#[derive(Debug)]
pub struct Sent(Box<[Count]>);

impl Default for Sent {
    fn default() -> Self {
        Self((0..MAX_NODES).map(|_| Count::default()).collect())
    }
}

impl Sent {
    /// Counts a packet of so many bytes to a node.
    #[inline]
    pub fn add(&self, node: NodeId, bytes: u64) {
        if let Some(count) = self.0.get(usize::from(node)) {
            count.add(bytes);
        }
    }
}

/// A link that packets may be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usable {
    /// Port by which they leave.
    pub port: u16,
    /// Whether it has a rate, so that they are to be charged.
    pub rated: bool,
}

impl Links {
    /// No links yet, for so many nodes.
    ///
    /// # Errors
    /// [`UpdateError::Memory`].
    pub fn new(
        memory: &mut dyn Memory,
        name: &'static str,
        nodes: usize,
    ) -> Result<Self, UpdateError> {
        Ok(Self { region: memory.region(name, nodes * 64)?, sent: Arc::default() })
    }

    /// The words, for sharing.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Counts of a worker that sends on links without a rate.
    pub fn sender(&self, instance: Instance) -> Arc<Sent> {
        self.sent.add(instance)
    }

    #[inline]
    fn words(&self, node: NodeId) -> Option<&[AtomicU64; 8]> {
        // Relaxed throughout: the words are counts and times, and nothing else is published by them.
        self.region.u64s().as_chunks().0.get(usize::from(node))
    }

    /// The link to `node` leaves by `port`, at a rate in bit/s with at most `limit_bytes` of backlog per class; without a
    /// rate it is never full.
    ///
    /// # Panics
    /// When there is no such node, or the rate is below 1 kbit/s.
    pub fn set(&self, node: NodeId, port: u16, rate_bps: Option<u64>, limit_bytes: u64) {
        assert!(
            rate_bps.is_none_or(|rate| rate >= 1000),
            "rate: {rate_bps:?} bit/s, at least 1000"
        );
        let words = self.words(node).expect("a node of this cluster");
        let byte_cost = rate_bps.map_or(0, |rate| (8_000_000_000 << 16) / rate);
        if words[BYTE_COST].swap(byte_cost, Relaxed) != byte_cost {
            // Backlogs are times: those of the old rate would fill a faster link for as long.
            words[ALL].store(0, Relaxed);
            words[TRANSIT].store(0, Relaxed);
        }
        words[LIMIT].store(limit_bytes.saturating_mul(byte_cost) >> 16, Relaxed);
        // The thread of the probes may set whether it is usable meanwhile.
        let with_port = |word| Some(u64::from(port) | THERE | (word & USABLE));
        let _ = words[PORT].fetch_update(Relaxed, Relaxed, with_port);
    }

    /// Whether packets are sent on the link to a node.
    pub fn set_usable(&self, node: NodeId, usable: bool) {
        let Some(words) = self.words(node) else { return };
        if usable {
            words[PORT].fetch_or(USABLE, Relaxed);
        } else {
            words[PORT].fetch_and(!USABLE, Relaxed);
        }
    }

    /// No link leaves by this port any more: its number may be another interface's from now on. Whether a link is usable
    /// stays as the probes found it, whose thread may write that late, and finds nothing new where the port is back at once.
    pub fn close(&self, port: u16) {
        let without = |word: u64| (word & 0xffff == u64::from(port)).then_some(word & !THERE);
        for words in self.region.u64s().as_chunks::<8>().0 {
            let _ = words[PORT].fetch_update(Relaxed, Relaxed, without);
        }
    }

    /// Port by which packets for a node leave; `None` where there is no link to it.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "takes the field of a port")]
    pub fn port(&self, node: NodeId) -> Option<u16> {
        let word = self.words(node)?[PORT].load(Relaxed);
        (word & THERE != 0).then_some(word as u16)
    }

    /// The link to a node, if it is there and usable.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "takes the field of a port")]
    pub fn usable(&self, node: NodeId) -> Option<Usable> {
        let words = self.words(node)?;
        let (word, rated) = (words[PORT].load(Relaxed), words[BYTE_COST].load(Relaxed) != 0);
        (word & (THERE | USABLE) == THERE | USABLE).then_some(Usable { port: word as u16, rated })
    }

    /// Backlog of the link to a node, in nanoseconds.
    #[inline]
    pub fn backlog_ns(&self, node: NodeId, now_ns: u64) -> u64 {
        self.words(node).map_or(0, |words| words[ALL].load(Relaxed).saturating_sub(now_ns))
    }

    /// Time that so many bytes take on the link to a node, in nanoseconds; 0 without a rate.
    pub fn drain_ns(&self, node: NodeId, bytes: u64) -> u64 {
        let cost = self.words(node).map_or(0, |words| words[BYTE_COST].load(Relaxed));
        bytes.saturating_mul(cost) >> 16
    }

    /// What the link to a node dropped and sent.
    pub fn counts(&self, node: NodeId) -> Counts {
        let read = |at: usize| self.words(node).map_or(0, |words| words[at].load(Relaxed));
        Counts {
            transit_dropped: read(DROPPED),
            local_dropped: read(DROPPED + 1),
            bytes: read(BYTES).wrapping_add(
                self.sent.sum(|sent| sent.0.get(usize::from(node)).map_or(0, Count::read)),
            ),
        }
    }
}

/// Charges of one batch, gathered so that the words of a link are written once.
#[derive(Clone, Debug, Default)]
pub struct Charges {
    /// Whether they are those of a dry run, which no link has.
    dry_run: bool,
    now_ns: u64,
    pending: Vec<Pending>,
    touched: Vec<NodeId>,
}

/// What a batch adds to a link.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    touched: bool,
    /// Backlogs before the batch, in nanoseconds: of all packets, of transit.
    before: [u64; 2],
    added: [u64; 2],
    dropped: [u64; 2],
    bytes: u64,
}

impl Charges {
    /// Charges of an element.
    pub fn of(instance: Instance) -> Self {
        Self { dry_run: instance.is_dry_run(), ..Self::default() }
    }

    /// Begins a batch of this time.
    pub fn begin(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Backlog of the link to a node with what the batch has added, in nanoseconds.
    #[inline]
    pub fn backlog_ns(&self, links: &Links, node: NodeId) -> u64 {
        match self.pending.get(usize::from(node)) {
            Some(pending) if pending.touched => pending.before[ALL] + pending.added[ALL],
            _ => links.backlog_ns(node, self.now_ns),
        }
    }

    /// Whether a packet of `bytes` of this class would exceed the limit of the link to a node.
    #[inline]
    pub fn is_full(&self, links: &Links, node: NodeId, bytes: u64) -> bool {
        let Some(words) = links.words(node) else { return true };
        let cost = bytes.saturating_mul(words[BYTE_COST].load(Relaxed)) >> 16;
        cost != 0 && self.backlog_ns(links, node) + cost > words[LIMIT].load(Relaxed)
    }

    /// Charges a packet, and returns whether it may be sent.
    #[inline]
    pub fn charge(&mut self, links: &Links, node: NodeId, class: Class, bytes: u64) -> bool {
        let Some(words) = links.words(node) else { return false };
        let at = usize::from(node);
        if self.pending.len() <= at {
            self.pending.resize(at + 1, Pending::default());
        }
        let pending = &mut self.pending[at];
        if !pending.touched {
            pending.touched = true;
            pending.before =
                [ALL, TRANSIT].map(|word| words[word].load(Relaxed).saturating_sub(self.now_ns));
            self.touched.push(node);
        }
        let cost = bytes.saturating_mul(words[BYTE_COST].load(Relaxed)) >> 16;
        let of = if class == Class::Transit { TRANSIT } else { ALL };
        let backlog = pending.before[of] + pending.added[of];
        if cost != 0 && backlog + cost > words[LIMIT].load(Relaxed) {
            pending.dropped[usize::from(class == Class::Local)] += 1;
            return false;
        }
        pending.added[ALL] += cost;
        if class == Class::Transit {
            pending.added[TRANSIT] += cost;
        }
        pending.bytes += bytes;
        true
    }

    /// Ends the batch: writes what it added.
    pub fn end(&mut self, links: &Links) {
        for node in self.touched.drain(..) {
            let Pending { added, dropped, bytes, .. } =
                std::mem::take(&mut self.pending[usize::from(node)]);
            let Some(words) = links.words(node).filter(|_| !self.dry_run) else { continue };
            for (word, added) in [ALL, TRANSIT].into_iter().zip(added) {
                if added != 0 {
                    words[word].fetch_max(self.now_ns, Relaxed);
                    words[word].fetch_add(added, Relaxed);
                }
            }
            for (at, dropped) in dropped.into_iter().enumerate() {
                if dropped != 0 {
                    words[DROPPED + at].fetch_add(dropped, Relaxed);
                }
            }
            words[BYTES].fetch_add(bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_lpm::Heap;
    use proptest::prelude::*;

    /// A link of 1 Gbit/s to node 1: 1,000 bytes take 8 us. At most 4,000 bytes of backlog.
    fn links() -> Links {
        let links = Links::new(&mut Heap, "links", 3).unwrap();
        links.set(1, 5, Some(1_000_000_000), 4000);
        links
    }

    #[test]
    fn a_dry_run_charges_no_link() {
        let links = links();
        let mut charges = Charges::of(Instance::DryRun);
        charges.begin(1_000);
        let taken = (0..9).filter(|_| charges.charge(&links, 1, Class::Local, 1000)).count();
        charges.end(&links);
        assert_eq!((taken, links.backlog_ns(1, 1_000), links.counts(1).bytes), (4, 0, 0));
        assert_eq!(links.counts(1).local_dropped, 0);
    }

    /// How many of `count` packets of 1,000 bytes the link takes at this time.
    fn sent(links: &Links, now_ns: u64, class: Class, count: usize) -> usize {
        let mut charges = Charges::default();
        charges.begin(now_ns);
        let taken = (0..count).filter(|_| charges.charge(links, 1, class, 1000)).count();
        charges.end(links);
        taken
    }

    #[test]
    fn transit_does_not_wait_behind_local_packets() {
        let links = links();
        assert_eq!(sent(&links, 1000, Class::Local, 9), 4);
        assert_eq!(links.backlog_ns(1, 1000), 32_000);
        assert_eq!(sent(&links, 1000, Class::Transit, 9), 4);
        assert_eq!(links.backlog_ns(1, 1000), 64_000);
        // Local packets wait until both are sent.
        assert_eq!(sent(&links, 1000 + 32_000, Class::Local, 9), 0);
        assert_eq!(sent(&links, 1000 + 48_000, Class::Local, 9), 2);
        assert_eq!(sent(&links, 1000 + 48_000, Class::Transit, 1), 1);
        let counts = Counts { transit_dropped: 5, local_dropped: 5 + 9 + 7, bytes: 11_000 };
        assert_eq!(links.counts(1), counts);
    }

    #[test]
    fn a_link_without_a_rate_is_never_full() {
        let links = links();
        links.set(1, 5, None, 4000);
        assert_eq!(sent(&links, 0, Class::Local, 1000), 1000);
        assert_eq!((links.backlog_ns(1, 0), links.counts(1).bytes), (0, 1_000_000));
    }

    #[test]
    fn another_rate_begins_without_backlog() {
        let links = links();
        links.set(1, 5, Some(1_000_000), u64::MAX >> 20);
        assert_eq!(sent(&links, 0, Class::Local, 100), 100);
        assert!(links.backlog_ns(1, 0) > 500_000_000);
        links.set(1, 6, Some(1_000_000), u64::MAX >> 20);
        assert!(links.backlog_ns(1, 0) > 500_000_000, "the same rate");
        links.set(1, 6, Some(10_000_000_000), 300_000);
        assert_eq!(links.backlog_ns(1, 0), 0);
        assert_eq!(sent(&links, 0, Class::Local, 100), 100);
    }

    #[test]
    fn a_link_names_its_port() {
        let links = links();
        assert_eq!([0, 1, 2, 9].map(|node| links.port(node)), [None, Some(5), None, None]);
        links.set_usable(1, true);
        links.set_usable(9, true);
        assert_eq!(links.port(1), Some(5));
        assert_eq!(links.usable(1), Some(Usable { port: 5, rated: true }));
        links.set(1, 6, None, 0);
        assert_eq!(links.usable(1), Some(Usable { port: 6, rated: false }));
        links.close(5);
        assert_eq!(links.port(1), Some(6), "it has another port by now");
        links.close(6);
        // The thread of the probes had found it up before.
        links.set_usable(1, true);
        assert_eq!((links.port(1), links.usable(1)), (None, None));
        links.set(1, 6, None, 0);
        assert_eq!(links.usable(1), Some(Usable { port: 6, rated: false }));
        links.set_usable(1, false);
        links.set_usable(2, true);
        assert_eq!([1, 2, 9].map(|node| links.usable(node)), [None; 3], "down, or not there");
        assert!(!Charges::default().charge(&links, 9, Class::Local, 64), "there is no such node");
    }

    #[test]
    fn what_workers_sent_adds_up() {
        let links = links();
        assert_eq!(sent(&links, 0, Class::Local, 1), 1);
        let workers = [Instance::Worker, Instance::Worker, Instance::DryRun];
        for worker in workers.map(|instance| links.sender(instance)) {
            worker.add(1, 60);
            worker.add(2, 10);
            worker.add(NodeId::MAX, 1);
        }
        assert_eq!([1, 2, 9].map(|node| links.clone().counts(node).bytes), [1120, 20, 0]);
    }

    proptest! {
        #[test]
        fn no_interval_has_more_than_the_rate_and_the_limit(
            steps in proptest::collection::vec((0u64..20_000, 0usize..6, any::<bool>()), 1..60),
        ) {
            let links = links();
            let (mut now, mut bytes) = (1, 0);
            for (passed, count, transit) in steps {
                now += passed;
                let class = if transit { Class::Transit } else { Class::Local };
                bytes += sent(&links, now, class, count) as u64 * 1000;
                // Both classes may have their limit.
                prop_assert!(bytes * 8 <= now + 2 * 32_000, "{bytes} bytes in {now} ns");
            }
            prop_assert_eq!(links.counts(1).bytes, bytes);
        }
    }
}
