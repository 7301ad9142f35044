//! Traces of single packets through a graph, element by element.
//!
//! A worker that has a [`Tracer`] looks at each packet that it receives, and follows those that are wanted: each
//! goes through the graph in a batch of its own, and what every element did to it becomes a [`Step`]. Elements do the
//! same to a packet in any batch, so packets are traced as they would have gone. What is made because of a
//! packet (an ICMP error, a fragment) is followed too. A packet is known by its frame, which it has for as long
//! as it is inside.
//!
//! The steps are recorded in `graph/run/traced.rs`; here is what they are gathered in. `changes.rs` lists what an
//! element rewrote, `pcapng.rs` writes frames with comments.
//!
//! Cost: nothing while there is no tracer. With one a filter a received packet; memory is allocated for packets that
//! are followed, of which there are at most [`MOST_PACKETS`].

mod changes;
mod pcapng;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::SystemTime;

use super::Transmit;
use crate::filter::Filter;
use crate::frame::wire::{ETHER_BYTES, Ether, ether};
use crate::frame::{Batch, DropReason, Meta, Pool};
use crate::graph::plan::NodeId;

pub use changes::{Change, changes, summary};
pub use pcapng::{Pcapng, captured};

/// Most packets that may be requested at once.
pub const MOST_PACKETS: u32 = 1000;
/// Steps of one trace, those of packets made meanwhile included: more than any graph of ours has, and a bound for
/// one that sends packets in circles.
const MOST_STEPS: usize = 512;
/// Packets of one trace, itself included.
const MOST_MADE: usize = 64;

/// What became of a packet in an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It continues by this output.
    Output(u16),
    /// It ended.
    Dropped(DropReason),
    /// The element keeps it, until later or for ever.
    Kept,
    /// It was handed to this port.
    Sent(u16),
    /// It left by other means than a port, as into a file.
    Written,
}

impl Fate {
    /// Whether nothing more happens to it.
    fn is_end(self) -> bool {
        matches!(self, Self::Dropped(_) | Self::Sent(_) | Self::Written)
    }
}

/// One packet in one element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Number of the packet in its trace.
    pub packet: u16,
    /// The element.
    pub node: NodeId,
    /// Input that it entered by.
    pub input: u16,
    /// What is known of it behind the element.
    pub meta: Meta,
    /// The frame behind it, where it is another one than before.
    pub frame: Option<Box<[u8]>>,
    /// What became of it.
    pub fate: Fate,
    /// Packets that the element made meanwhile, by their numbers.
    pub made: Vec<u16>,
    /// Number by which the element explained it ([`Context::reason`](crate::graph::Context::reason)); 0: it did not.
    pub reason: u32,
}

/// A packet of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traced {
    /// Frame as first seen.
    pub frame: Box<[u8]>,
    /// The same, of what is known of it.
    pub meta: Meta,
    /// Frame as last seen.
    pub last: Box<[u8]>,
}

/// Trace of one packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// When it was received.
    pub time: SystemTime,
    /// The packet itself, and then those that were made because of it.
    pub packets: Vec<Traced>,
    /// What happened, in order.
    pub steps: Vec<Step>,
    /// There was more than fits.
    pub cut: bool,
}

/// What is to be traced, for all workers together.
#[derive(Clone, Debug)]
pub struct Wanted {
    filter: Option<Filter>,
    /// EtherType of frames with a packet further in, and where that begins.
    inside: Option<(u16, usize)>,
    left: Arc<AtomicU32>,
    to: SyncSender<Trace>,
}

impl Wanted {
    /// The next so many packets (at most [`MOST_PACKETS`]) that `filter` takes, or of all; and where their traces
    /// come out. Nothing more comes when all tracers are gone.
    pub fn new(filter: Option<Filter>, packets: u32) -> (Self, Receiver<Trace>) {
        let packets = packets.min(MOST_PACKETS);
        // Room for all, so that a worker never waits and no trace is lost.
        let (to, traces) = sync_channel(packets as usize);
        (Self { filter, inside: None, left: Arc::new(AtomicU32::new(packets)), to }, traces)
    }

    /// Applies the filter also to the packets that frames of this EtherType have behind so many bytes.
    #[must_use]
    pub fn inside(self, ethertype: u16, bytes: usize) -> Self {
        Self { inside: Some((ethertype, bytes)), ..self }
    }

    /// For one worker, whose packets are all of `pool`.
    pub fn tracer(&self, pool: &Pool) -> Box<Tracer> {
        Box::new(Tracer {
            wanted: self.clone(),
            bits: vec![0; pool.frames().div_ceil(64)].into(),
            followed: Vec::new(),
            under_way: Vec::new(),
            next: 0,
        })
    }

    fn takes(&self, frame: &[u8]) -> bool {
        let Some(filter) = &self.filter else { return true };
        let at = match Ether::of(frame).map(Ether::kind) {
            Some(ether::TYPE_IP4 | ether::TYPE_IP6) => Some(ETHER_BYTES),
            Some(kind) => self.inside.filter(|(inside, _)| *inside == kind).map(|(_, at)| at),
            None => None,
        };
        at.and_then(|at| frame.get(at..)).is_some_and(|packet| filter.matches(packet))
    }

    /// One fewer is left, if any is.
    fn take(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Packets that are still to be found.
    pub fn left(&self) -> u32 {
        self.left.load(Relaxed)
    }
}

/// Which packet of which trace a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Followed {
    frame: u32,
    trace: u64,
    packet: u16,
}

/// Follows packets of one worker. What it has when it is dropped is handed out as far as it got.
pub struct Tracer {
    wanted: Wanted,
    /// A bit a frame of the pool: whether it is followed.
    bits: Box<[u64]>,
    followed: Vec<Followed>,
    under_way: Vec<(u64, Trace)>,
    /// Number of the next trace.
    next: u64,
}

impl Tracer {
    /// Looks at what was received; whether anything is still to be done.
    pub(crate) fn admit(&mut self, batch: &Batch) -> bool {
        for i in 0..batch.len() {
            // A frame that is received anew holds no old packet: where that ended was not seen.
            self.forget(batch.frame_number(i));
            if self.wanted.left() > 0 && self.wanted.takes(batch.bytes(i)) && self.wanted.take() {
                let first = Traced {
                    frame: batch.bytes(i).into(),
                    meta: batch.meta()[i],
                    last: batch.bytes(i).into(),
                };
                let trace = Trace {
                    time: SystemTime::now(),
                    packets: vec![first],
                    steps: Vec::new(),
                    cut: false,
                };
                let followed =
                    Followed { frame: batch.frame_number(i), trace: self.next, packet: 0 };
                self.next += 1;
                self.under_way.push((followed.trace, trace));
                self.follow(followed);
            }
        }
        self.hand_out();
        self.any() || self.wanted.left() > 0
    }

    /// Whether any packet is followed.
    pub(crate) fn any(&self) -> bool {
        !self.followed.is_empty()
    }

    /// Whether this frame is.
    pub(crate) fn follows(&self, frame: u32) -> bool {
        self.bits.get(frame as usize / 64).is_some_and(|word| word >> (frame % 64) & 1 == 1)
    }

    /// What this frame holds.
    pub(crate) fn find(&self, frame: u32) -> Option<Followed> {
        if !self.follows(frame) {
            return None;
        }
        self.followed.iter().copied().find(|followed| followed.frame == frame)
    }

    fn follow(&mut self, followed: Followed) {
        self.bits[followed.frame as usize / 64] |= 1 << (followed.frame % 64);
        self.followed.push(followed);
    }

    fn forget(&mut self, frame: u32) {
        if self.follows(frame) {
            self.bits[frame as usize / 64] &= !(1 << (frame % 64));
            self.followed.retain(|followed| followed.frame != frame);
        }
    }

    fn trace(&mut self, number: u64) -> Option<&mut Trace> {
        self.under_way.iter_mut().find(|(of, _)| *of == number).map(|(_, trace)| trace)
    }

    /// What an element did with a packet. `frame` is it behind the element, where that can be seen.
    pub(crate) fn step(
        &mut self,
        of: Followed,
        at: At,
        frame: Option<&[u8]>,
        meta: Meta,
        fate: Fate,
    ) {
        let Some(trace) = self.trace(of.trace) else { return };
        if trace.steps.len() == MOST_STEPS {
            trace.cut = true;
        } else {
            let packet = &mut trace.packets[usize::from(of.packet)];
            let frame = frame.filter(|frame| **frame != *packet.last).map(Box::from);
            if let Some(frame) = &frame {
                packet.last.clone_from(frame);
            }
            let At { node, input } = at;
            let made = Vec::new();
            let packet = of.packet;
            trace.steps.push(Step { packet, node, input, meta, frame, fate, made, reason: 0 });
        }
        if fate.is_end() {
            self.forget(of.frame);
        }
    }

    /// The element of the latest step of `of` explained it by this number.
    pub(crate) fn explain(&mut self, of: Followed, reason: u32) {
        let step = self.trace(of.trace).and_then(|trace| trace.steps.last_mut());
        if let Some(step) = step.filter(|step| step.packet == of.packet) {
            step.reason = reason;
        }
    }

    /// The element of the latest step of `of` made a packet.
    pub(crate) fn made(
        &mut self,
        of: Followed,
        number: u32,
        frame: &[u8],
        meta: Meta,
    ) -> Option<Followed> {
        let trace = self.trace(of.trace)?;
        let packet = u16::try_from(trace.packets.len()).expect("bounded");
        let step = trace.steps.iter_mut().rfind(|step| step.packet == of.packet)?;
        if usize::from(packet) == MOST_MADE {
            trace.cut = true;
            return None;
        }
        step.made.push(packet);
        trace.packets.push(Traced { frame: frame.into(), meta, last: frame.into() });
        let made = Followed { frame: number, trace: of.trace, packet };
        self.forget(number);
        self.follow(made);
        Some(made)
    }

    /// Hands out traces of which no packet is inside any more.
    pub(crate) fn hand_out(&mut self) {
        let mut at = 0;
        while let Some((number, _)) = self.under_way.get(at) {
            if self.followed.iter().any(|followed| followed.trace == *number) {
                at += 1;
            } else {
                let (_, trace) = self.under_way.remove(at);
                // There is room, or nobody wants it any more.
                let _ = self.wanted.to.try_send(trace);
            }
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.followed.clear();
        self.hand_out();
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tracer({} followed, {} left)", self.followed.len(), self.wanted.left())
    }
}

/// Where a packet is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) node: NodeId,
    pub(crate) input: u16,
}

/// A transmit that sees which followed packets leave.
pub(crate) struct Watched<'a, 't> {
    pub(crate) inner: &'a mut dyn Transmit,
    pub(crate) tracer: &'a RefCell<&'t mut Tracer>,
    pub(crate) left: Vec<Left>,
}

/// A packet that a port took.
pub(crate) struct Left {
    pub(crate) number: u32,
    pub(crate) frame: Box<[u8]>,
    pub(crate) meta: Meta,
}

impl Transmit for Watched<'_, '_> {
    fn transmit(&mut self, batch: &mut Batch) {
        for i in 0..batch.len() {
            let number = batch.frame_number(i);
            if self.tracer.borrow().follows(number) {
                self.left.push(Left {
                    number,
                    frame: batch.bytes(i).into(),
                    meta: batch.meta()[i],
                });
            }
        }
        self.inner.transmit(batch);
        // What stays was not taken: its label says why.
        for i in 0..batch.len() {
            let number = batch.frame_number(i);
            self.left.retain(|left| left.number != number);
        }
    }

    fn room(&mut self, port: u16) -> usize {
        self.inner.room(port)
    }
}
