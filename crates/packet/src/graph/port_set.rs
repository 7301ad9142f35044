//! Where packets leave a worker: its ports, with a queue each.
//!
//! Packets gather until there are [`SEND_AT`], or the round ends. What a port does not take stays in
//! its queue, in order, for later rounds; a queue that is full, or that has not moved for
//! [`PATIENCE_NS`], drops. Every packet that leaves, ends or stays is counted here.

use std::sync::Arc;
use std::time::Instant;

use super::{Held, Transmit};
use crate::device::{BURST, DeviceError, Port};
use crate::frame::counters::{WorkerCounters, nanoseconds};
use crate::frame::{BATCH, Batch, DropReason, FLAG_GENERATED, Meta, Places, Pool};

/// Packets in a queue that are sent without waiting for the end of the round.
const SEND_AT: usize = BURST;

/// A queue from which the port took nothing for so long is emptied: its packets are of no use to
/// anybody any more, and their frames are missing elsewhere.
const PATIENCE_NS: u64 = 100_000_000;

/// Tries to make room in a full queue before a packet is dropped.
const TRIES: usize = 2;

type Failed = (u16, DeviceError, Option<Box<dyn Port>>);

/// The ports of one worker, by number.
pub(crate) struct PortSet {
    slots: Vec<Option<Slot>>,
    counters: Arc<WorkerCounters>,
    pool: Pool,
    now_ns: u64,
}

struct Slot {
    number: u16,
    port: Box<dyn Port>,
    queue: Box<Batch>,
    /// Packets of our own making in the queue.
    generated: usize,
    /// When the port last took something, or the queue was empty.
    moved_ns: u64,
    failed: Option<DeviceError>,
}

impl PortSet {
    pub(crate) fn new(counters: Arc<WorkerCounters>, pool: Pool) -> Self {
        Self { slots: Vec::new(), counters, pool, now_ns: 0 }
    }

    /// Adds a port. One that had the number before comes back, and what waited for it is sent by the new one.
    pub(crate) fn add(&mut self, number: u16, port: Box<dyn Port>) -> Option<Box<dyn Port>> {
        let at = usize::from(number);
        if let Some(Some(slot)) = self.slots.get_mut(at) {
            (slot.moved_ns, slot.failed) = (self.now_ns, None);
            return Some(std::mem::replace(&mut slot.port, port));
        }
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        self.slots[at] = Some(Slot {
            number,
            port,
            queue: Batch::new(&self.pool),
            generated: 0,
            moved_ns: self.now_ns,
            failed: None,
        });
        None
    }

    /// Takes a port out; what its queue holds is dropped.
    pub(crate) fn remove(&mut self, number: u16, reason: DropReason) -> Option<Box<dyn Port>> {
        let mut slot = self.slots.get_mut(usize::from(number))?.take()?;
        slot.drop_queue(reason, &self.counters);
        Some(slot.port)
    }

    /// The ports that are there, in order of their numbers.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (u16, &dyn Port)> {
        self.slots.iter().flatten().map(|slot| (slot.number, &*slot.port))
    }

    /// Slots, holes included: numbers are below it.
    pub(crate) fn end(&self) -> u16 {
        u16::try_from(self.slots.len()).unwrap_or(u16::MAX)
    }

    /// The port of a number.
    pub(crate) fn port(&mut self, number: u16) -> Option<&mut dyn Port> {
        match self.slots.get_mut(usize::from(number)) {
            Some(Some(slot)) => Some(&mut *slot.port),
            _ => None,
        }
    }

    /// The frames that all its packets lie in.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Packets in all queues.
    pub(crate) fn queued(&self) -> Held {
        let mut held = Held::default();
        for slot in self.slots.iter().flatten() {
            held.generated += slot.generated;
            held.received += slot.queue.len() - slot.generated;
        }
        held
    }

    /// A round begins.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        for slot in self.slots.iter_mut().flatten() {
            if slot.queue.is_empty() {
                // Its patience begins with the first packet that waits.
                slot.moved_ns = now_ns;
            }
        }
    }

    /// Notes that a port's device failed: the end of the round takes it out.
    pub(crate) fn fail(&mut self, number: u16, error: DeviceError) {
        if let Some(Some(slot)) = self.slots.get_mut(usize::from(number)) {
            slot.failed = Some(error);
        }
    }

    /// The end of a round: sends what gathered.
    pub(crate) fn flush(&mut self) {
        let now_ns = self.now_ns;
        for slot in self.slots.iter_mut().flatten() {
            if slot.queue.is_empty() {
                continue;
            }
            slot.flush(now_ns, &self.counters);
            if !slot.queue.is_empty() && now_ns.saturating_sub(slot.moved_ns) >= PATIENCE_NS {
                slot.drop_queue(DropReason::TransmitFull, &self.counters);
            }
        }
    }

    /// A port whose device failed while it sent, if there is one: its number, why, and the port, which is taken out.
    pub(crate) fn failed(&mut self) -> Option<Failed> {
        let slot = self.slots.iter_mut().flatten().find(|slot| slot.failed.is_some())?;
        let (number, error) = (slot.number, slot.failed.take()?);
        let port = self.remove(number, DropReason::PortDown);
        Some((number, error, port))
    }
}

impl Places for PortSet {
    #[inline(always)]
    fn place(&mut self, meta: &Meta) -> Result<&mut Batch, DropReason> {
        let at = meta.note.egress_index();
        let room = matches!(self.slots.get(at), Some(Some(slot)) if slot.queue.room() > 0);
        if !room || meta.flags & FLAG_GENERATED != 0 {
            self.admit(at, meta)?;
        }
        match self.slots.get_mut(at) {
            Some(Some(slot)) => Ok(&mut *slot.queue),
            _ => Err(DropReason::PortDown),
        }
    }
}

impl PortSet {
    /// Lets a packet in that does not simply join its queue, or returns why it cannot.
    #[cold]
    fn admit(&mut self, at: usize, meta: &Meta) -> Result<(), DropReason> {
        let Some(Some(slot)) = self.slots.get_mut(at) else { return Err(DropReason::PortDown) };
        if slot.queue.room() == 0 && !slot.make_room(self.now_ns, &self.counters) {
            return Err(DropReason::TransmitFull);
        }
        slot.generated += usize::from(meta.flags & FLAG_GENERATED != 0);
        Ok(())
    }
}

impl Transmit for PortSet {
    fn transmit(&mut self, batch: &mut Batch) {
        batch.distribute(self);
        for slot in self.slots.iter_mut().flatten() {
            if slot.queue.len() >= SEND_AT {
                slot.flush(self.now_ns, &self.counters);
            }
        }
    }

    fn room(&mut self, port: u16) -> usize {
        let Some(Some(slot)) = self.slots.get(usize::from(port)) else {
            // There it is dropped, and counted.
            return BATCH;
        };
        slot.queue.room()
    }
}

impl Slot {
    /// Sends what the port takes.
    fn flush(&mut self, now_ns: u64, counters: &WorkerCounters) {
        if self.failed.is_some() {
            self.drop_queue(DropReason::PortDown, counters);
            return;
        }
        let (before, bytes) = (self.queue.len(), self.queue.total_bytes());
        let start = Instant::now();
        let result = self.port.send(&mut self.queue);
        counters.send_ns.add(nanoseconds(start));
        let sent = before - self.queue.len();
        if sent > 0 {
            let left = self.queue.meta().iter().filter(|meta| meta.flags & FLAG_GENERATED != 0);
            let generated = left.count();
            let sent_bytes = bytes - self.queue.total_bytes();
            let sent_generated = self.generated - generated;
            self.generated = generated;
            if let Some(port) = counters.ports.get(usize::from(self.number)) {
                port.tx_packets.add(sent as u64);
                port.tx_bytes.add(sent_bytes);
            }
            counters.packets_out.add((sent - sent_generated) as u64);
            counters.generated_sent.add(sent_generated as u64);
        }
        if sent > 0 || self.queue.is_empty() {
            self.moved_ns = now_ns;
        }
        if let Err(error) = result {
            self.failed = Some(error);
            self.drop_queue(DropReason::TransmitError, counters);
        }
    }

    /// Whether a full queue has room after a few tries.
    #[cold]
    fn make_room(&mut self, now_ns: u64, counters: &WorkerCounters) -> bool {
        for _ in 0..TRIES {
            self.flush(now_ns, counters);
            if self.queue.room() > 0 {
                return true;
            }
        }
        false
    }

    fn drop_queue(&mut self, reason: DropReason, counters: &WorkerCounters) {
        for meta in self.queue.meta() {
            counters.drop_at_port(reason, meta);
        }
        self.queue.clear();
        self.generated = 0;
    }
}
