//! Packets in memory and the queues that they wait in.
//!
//! Shape: one slab of packets, linked by number; a queue is its first and last packet. A fair queue has such a list for each
//!        input and a ring of the inputs that wait.

use std::collections::VecDeque;

use crate::rule::NodeId;

/// No packet.
const NONE: u32 = u32::MAX;

/// Packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Packet {
    /// Flow among all flows of all pairs.
    pub(super) flow: u32,
    /// Number in the flow.
    pub(super) number: u32,
    /// Slot of its arrival at the cluster.
    pub(super) born: u32,
    /// Packet behind it in its queue.
    pub(super) next: u32,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    /// Links that it passed.
    pub(super) hops: u8,
}

/// All packets.
#[derive(Debug, Default)]
pub(super) struct Slab {
    packets: Vec<Packet>,
    free: Vec<u32>,
}

impl Slab {
    #[allow(clippy::cast_possible_truncation, reason = "packets are bounded by the queues")]
    pub(super) fn add(&mut self, packet: Packet) -> u32 {
        if let Some(id) = self.free.pop() {
            self.packets[id as usize] = packet;
            return id;
        }
        self.packets.push(packet);
        (self.packets.len() - 1) as u32
    }

    pub(super) fn remove(&mut self, id: u32) -> Packet {
        self.free.push(id);
        self.packets[id as usize]
    }

    pub(super) fn at(&mut self, id: u32) -> &mut Packet {
        &mut self.packets[id as usize]
    }

    /// Packets that are somewhere in the cluster.
    pub(super) fn held(&self) -> usize {
        self.packets.len() - self.free.len()
    }
}

/// First in, first out.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl List {
    #[inline]
    pub(super) fn push(&mut self, slab: &mut Slab, id: u32) {
        slab.at(id).next = NONE;
        if self.first == NONE {
            self.first = id;
        } else {
            slab.at(self.last).next = id;
        }
        self.last = id;
    }

    #[inline]
    pub(super) fn pop(&mut self, slab: &mut Slab) -> Option<u32> {
        if self.first == NONE {
            return None;
        }
        let id = self.first;
        self.first = slab.at(id).next;
        Some(id)
    }
}

/// Queue of a limited length that drops what arrives last, or is fair to inputs.
#[derive(Debug)]
pub(super) enum Queue {
    Proportional { list: List, len: u32 },
    MaxMin(Box<PerInput>),
}

/// A queue for each input. Packets are of one size, so deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) is a turn
/// for each input that waits.
#[derive(Debug)]
pub(super) struct PerInput {
    lists: Vec<(List, u32)>,
    turns: VecDeque<NodeId>,
    len: u32,
}

impl Queue {
    pub(super) fn proportional() -> Self {
        Self::Proportional { list: List::default(), len: 0 }
    }

    pub(super) fn max_min(nodes: usize) -> Self {
        let lists = vec![(List::default(), 0); nodes];
        Self::MaxMin(Box::new(PerInput { lists, turns: VecDeque::new(), len: 0 }))
    }

    pub(super) fn len(&self) -> u32 {
        match self {
            Self::Proportional { len, .. } => *len,
            Self::MaxMin(queue) => queue.len,
        }
    }

    /// Adds a packet; returns the one that is dropped for it, which may be itself.
    #[inline]
    pub(super) fn push(&mut self, slab: &mut Slab, id: u32, limit: u32) -> Option<u32> {
        match self {
            Self::Proportional { len, .. } if *len >= limit => Some(id),
            Self::Proportional { list, len } => {
                list.push(slab, id);
                *len += 1;
                None
            }
            Self::MaxMin(queue) => queue.push(slab, id, limit),
        }
    }

    #[inline]
    pub(super) fn pop(&mut self, slab: &mut Slab) -> Option<u32> {
        match self {
            Self::Proportional { list, len } => {
                let id = list.pop(slab)?;
                *len -= 1;
                Some(id)
            }
            Self::MaxMin(queue) => queue.pop(slab),
        }
    }
}

impl PerInput {
    fn push(&mut self, slab: &mut Slab, id: u32, limit: u32) -> Option<u32> {
        let from = slab.at(id).from;
        let own = self.lists[usize::from(from)].1;
        let mut dropped = None;
        if self.len >= limit {
            let longest =
                self.turns.iter().copied().max_by_key(|&at| self.lists[usize::from(at)].1);
            let longer = longest.filter(|&at| self.lists[usize::from(at)].1 > own + 1);
            let Some(longest) = longer else { return Some(id) };
            // Its oldest packet leaves, which keeps the order of the others. Its turn stays: more than one waited.
            let (list, len) = &mut self.lists[usize::from(longest)];
            dropped = list.pop(slab);
            *len -= 1;
            self.len -= 1;
        }
        let (list, len) = &mut self.lists[usize::from(from)];
        list.push(slab, id);
        *len += 1;
        self.len += 1;
        if *len == 1 {
            self.turns.push_back(from);
        }
        dropped
    }

    fn pop(&mut self, slab: &mut Slab) -> Option<u32> {
        let from = self.turns.pop_front()?;
        let (list, len) = &mut self.lists[usize::from(from)];
        let id = list.pop(slab);
        *len -= 1;
        self.len -= 1;
        if *len > 0 {
            self.turns.push_back(from);
        }
        id
    }
}
