//! What a worker counts. It alone writes; anybody may read, a little late.
//!
//! The law: `received + generated = sent + dropped + held`, where generated packets (ICMP errors,
//! further fragments) are also counted apart, so that for received ones alone
//! `packets_in = packets_out + dropped + held`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{DropReason, FLAG_GENERATED, Meta, REASONS};

/// A count with one writer: a load and a store, no locked instruction.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds; for the owning worker only.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The present value.
    #[inline]
    pub fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets it; for the owning worker only.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
}

/// Time that went by, as counts have it.
pub(crate) fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What an instance of an element is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instance {
    /// A worker: it shares counts, and what it learns and writes, with the instances of the others.
    Worker,
    /// A dry run: nothing that it does shows.
    DryRun,
}

impl Instance {
    /// Whether it is made for a dry run.
    pub fn is_dry_run(self) -> bool {
        self == Self::DryRun
    }
}

/// Counts that each worker has its own of, and readers see the sum of.
#[derive(Debug)]
pub struct PerWorker<T>(Mutex<Vec<Arc<T>>>);

impl<T> Default for PerWorker<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Default> PerWorker<T> {
    /// Adds counters of a worker. They stay in the sum when the worker has ended, and another one continues them.
    /// Counters of a dry run are in no sum.
    pub fn add(&self, instance: Instance) -> Arc<T> {
        if instance.is_dry_run() {
            return Arc::default();
        }
        let mut list = self.list();
        // Alone in the list: nobody writes to it any more, and nobody else can find it.
        if let Some(left) = list.iter().find(|counts| Arc::strong_count(counts) == 1) {
            return left.clone();
        }
        let counts = Arc::<T>::default();
        list.push(counts.clone());
        counts
    }

    /// The sum over all workers of what `read` finds.
    pub fn sum(&self, read: impl Fn(&T) -> u64) -> u64 {
        self.list().iter().map(|counts| read(counts)).fold(0, u64::wrapping_add)
    }

    /// The greatest of what `read` finds of the workers; 0 without any.
    pub fn greatest(&self, read: impl Fn(&T) -> u64) -> u64 {
        self.list().iter().map(|counts| read(counts)).max().unwrap_or(0)
    }

    /// Looks at the counts of each worker.
    pub fn each(&self, look: impl FnMut(&T)) {
        self.list().iter().map(AsRef::as_ref).for_each(look);
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<T>>> {
        // A list of pointers is whole whatever panicked beside it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts by drop reason.
#[derive(Debug)]
struct ByReason([Count; REASONS]);

impl Default for ByReason {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

/// Counters of one port and worker.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct PortCounters {
    /// Frames received.
    pub rx_packets: Count,
    /// Bytes of them, link header included.
    pub rx_bytes: Count,
    /// Frames sent.
    pub tx_packets: Count,
    /// Bytes of them, link header included.
    pub tx_bytes: Count,
    /// Frames of the worker's pool in the rings of the port, as of a moment ago.
    pub in_rings: Count,
    /// Packets received there and dropped.
    dropped: ByReason,
    /// Counts of the device's own, as of a moment ago.
    device: Mutex<Vec<(&'static str, u64)>>,
}

impl PortCounters {
    /// Packets received there and dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped.0[reason as usize].read()
    }

    /// Counts of the device's own, by name; those of the last port where there is none.
    pub fn device(&self) -> Vec<(&'static str, u64)> {
        self.device_counts().clone()
    }

    /// Notes what the port reports: frames in its rings, and counts of the device.
    pub(crate) fn note_device(
        &self,
        in_rings: usize,
        counts: impl FnOnce(&mut dyn FnMut(&'static str, u64)),
    ) {
        self.in_rings.set(in_rings as u64);
        let mut noted = self.device_counts();
        noted.clear();
        counts(&mut |name, count| noted.push((name, count)));
    }

    /// Forgets the device: another interface has the number of the port.
    pub fn forget_device(&self) {
        self.device_counts().clear();
    }

    fn device_counts(&self) -> MutexGuard<'_, Vec<(&'static str, u64)>> {
        // Numbers for people: whole enough whatever panicked beside them.
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one node of a graph counts. The worker alone writes; anybody may read.
#[derive(Debug, Default)]
pub struct NodeCounters {
    /// Packets that reached it.
    pub packets: Count,
    /// Batches that reached it.
    pub batches: Count,
    /// Ticks of the processor's clock that it worked, dividing its batches included; only while the graph
    /// is timed. Pulls from other elements are included.
    pub ticks: Count,
    /// Packets that ended at it. Apart, so that what every batch counts lies close together.
    dropped: Box<ByReason>,
}

impl NodeCounters {
    /// Counts a packet that ended at it.
    #[inline]
    pub(crate) fn drop_packet(&self, reason: DropReason) {
        self.dropped.0[reason as usize].add(1);
    }

    /// Packets that ended at it for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped.0[reason as usize].read()
    }

    /// All packets that ended at it.
    pub fn drops(&self) -> u64 {
        self.dropped.0.iter().map(Count::read).sum()
    }

    /// Continues the counts of another.
    pub(crate) fn take_over(&self, before: &Self) {
        self.packets.set(before.packets.read());
        self.batches.set(before.batches.read());
        self.ticks.set(before.ticks.read());
        for (to, from) in self.dropped.0.iter().zip(&before.dropped.0) {
            to.set(from.read());
        }
    }
}

/// All counts of one worker.
#[derive(Debug)]
pub struct WorkerCounters {
    /// Counters by port number.
    pub ports: Box<[PortCounters]>,
    /// Received packets dropped, by reason.
    pub dropped: [Count; REASONS],
    /// Packets of our own making dropped, by reason.
    pub generated_dropped: [Count; REASONS],
    /// Drops behind the last element, before a port.
    pub at_ports: NodeCounters,
    /// Packets of our own making: ICMP errors, and all fragments but the first.
    pub generated: Count,
    /// Those of them that were sent.
    pub generated_sent: Count,
    /// Packets taken for forwarding.
    pub packets_in: Count,
    /// Those of them that were sent.
    pub packets_out: Count,
    /// Received packets that wait inside: for a link address, or in a queue to a port.
    pub held: Count,
    /// Packets of our own making that wait inside.
    pub generated_held: Count,
    /// Resolve requests that found no room in the queue to the control side; they are sent again.
    pub requests_lost: Count,
    /// Packets sent through each adjacency, by its index modulo the number of counters.
    pub adjacencies: Box<[Count]>,
    /// Nanoseconds in the graph, without what ports took to send.
    pub path_ns: Count,
    /// Nanoseconds in the ports' `send`.
    pub send_ns: Count,
    /// Ticks of the processor's clock in the ports' `recv`, while the worker is timed.
    pub receive_ticks: Count,
    /// Ticks at the end of rounds, when what gathered for ports is sent, while the worker is timed.
    pub send_ticks: Count,
    /// Rounds of the worker that found packets, or had some of its own to move.
    pub busy_rounds: Count,
    /// Rounds that found none.
    pub idle_rounds: Count,
}

impl WorkerCounters {
    /// Counters for that many ports and adjacencies.
    pub fn new(ports: usize, adjacencies: usize) -> Self {
        Self {
            ports: (0..ports).map(|_| PortCounters::default()).collect(),
            dropped: std::array::from_fn(|_| Count::default()),
            generated_dropped: std::array::from_fn(|_| Count::default()),
            at_ports: NodeCounters::default(),
            generated: Count::default(),
            generated_sent: Count::default(),
            packets_in: Count::default(),
            packets_out: Count::default(),
            held: Count::default(),
            generated_held: Count::default(),
            requests_lost: Count::default(),
            adjacencies: (0..adjacencies.max(1)).map(|_| Count::default()).collect(),
            path_ns: Count::default(),
            send_ns: Count::default(),
            receive_ticks: Count::default(),
            send_ticks: Count::default(),
            busy_rounds: Count::default(),
            idle_rounds: Count::default(),
        }
    }

    /// Counts a dropped packet.
    #[inline]
    pub fn drop_packet(&self, reason: DropReason, meta: &Meta) {
        let at = reason as usize;
        if meta.flags & FLAG_GENERATED != 0 {
            self.generated_dropped[at].add(1);
            return;
        }
        self.dropped[at].add(1);
        if let Some(port) = self.ports.get(usize::from(meta.port)) {
            port.dropped.0[at].add(1);
        }
    }

    /// Counts a packet that ended behind the last element.
    pub(crate) fn drop_at_port(&self, reason: DropReason, meta: &Meta) {
        self.drop_packet(reason, meta);
        self.at_ports.drop_packet(reason);
    }

    /// Counts a packet sent through an adjacency.
    #[inline]
    pub fn use_adjacency(&self, index: u32) {
        if let Some(count) = self.adjacencies.get(index as usize) {
            count.add(1);
        }
    }

    /// All received packets dropped.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().map(Count::read).sum()
    }

    /// Counts the packets that were inside a worker that failed as dropped. Call it once its thread has ended.
    pub fn fail(&self) {
        let generated_dropped: u64 = self.generated_dropped.iter().map(Count::read).sum();
        for (came, went, dropped, counts, held) in [
            (&self.packets_in, &self.packets_out, self.dropped_total(), &self.dropped, &self.held),
            (
                &self.generated,
                &self.generated_sent,
                generated_dropped,
                &self.generated_dropped,
                &self.generated_held,
            ),
        ] {
            // What was sent when it failed, and not yet counted so, counts as inside.
            let inside = came.read().saturating_sub(went.read() + dropped);
            counts[DropReason::NoWorker as usize].add(inside);
            held.set(0);
        }
    }
}
