//! A part of the table: flows, the index of the keys that belong to it, and the order in which its flows end.
//!
//! Flows that stay for the same time are in one list, the one that joined it first at its head. A packet marks its flow
//! and writes the time; a marked flow that is found at a head joins the end, as a clock's hand gives it a second chance
//! (Corbató, 1968). So a packet writes one cache line, and a look at the heads finds what has ended. The order is that
//! in which flows joined: a flow may stay longer than one that was silent for a shorter time, but none ends before its
//! time.

use std::collections::HashMap;

use fingerpost_lpm::mem::prefetch;

use super::chunks::Chunks;
use super::flow::{Flow, Key, LIVE, NONE, Times, USED};
use super::index::Index;
use crate::element::click::only::rewriter::tcp::Deltas;

/// Flows of a chunk: 64 KiB.
const CHUNK: usize = 1024;

/// Marked flows that a look for the first to end passes in a list.
const CHANCES: usize = 64;

/// Flows that a look for the first to end passes in a list whose head is guaranteed: flows that got a second chance are not
/// in the order of their last packets. A flow further behind is not found; the number bounds the cache lines that one look
/// reads.
const LOOKS: usize = 16;

/// Flows with the same times, and which are its first and last.
#[derive(Debug)]
struct List {
    times: Times,
    head: u32,
    tail: u32,
}

/// The part.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) index: Index,
    flows: Chunks<Flow, CHUNK>,
    /// First place without a flow.
    free: u32,
    lists: Vec<List>,
    /// The shortest of their times after the last packet.
    least_silent_ns: u64,
    /// Changes of data, of the few flows that have some.
    deltas: HashMap<u32, Box<[Deltas; 2]>>,
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            index: Index::default(),
            flows: Chunks::default(),
            free: NONE,
            lists: Vec::new(),
            least_silent_ns: u64::MAX,
            deltas: HashMap::new(),
        }
    }
}

impl Shard {
    /// Whether a place has a flow whose packets of a direction have this key, and then whether the key is that of replies.
    #[inline]
    pub(super) fn is(&self, at: u32, reply: bool, key: &Key) -> Option<bool> {
        self.flows[at as usize].is(key, reply)
    }

    /// Prefetches a place of flows, if there is such a place.
    #[inline(always)]
    pub(super) fn place(&self, at: u32) -> Option<&Flow> {
        let flow = self.flows.get(at as usize)?;
        prefetch(flow);
        Some(flow)
    }

    /// The shortest time that a flow may be silent.
    pub(crate) fn least_silent_ns(&self) -> u64 {
        self.least_silent_ns
    }

    /// The flow at a place.
    #[inline]
    pub(super) fn flow(&mut self, at: u32) -> &mut Flow {
        &mut self.flows[at as usize]
    }

    /// Changes of the data of a flow.
    pub(super) fn deltas(&mut self, at: u32) -> &mut [Deltas; 2] {
        self.flows[at as usize].change();
        self.deltas.entry(at).or_default()
    }

    /// Time at which a flow ends.
    #[inline]
    pub(super) fn ends_ns(&self, at: u32) -> u64 {
        let flow = &self.flows[at as usize];
        flow.seen_ns.get().saturating_add(self.lists[usize::from(flow.list)].times.silent_ns)
    }

    fn guaranteed_ns(&self, at: u32) -> u64 {
        let flow = &self.flows[at as usize];
        flow.seen_ns.get().saturating_add(self.lists[usize::from(flow.list)].times.guarantee_ns)
    }

    /// Puts a flow into a free place; `None` where places have no more numbers.
    pub(super) fn insert(
        &mut self,
        mut flow: Flow,
        times: Times,
        now_ns: u64,
        most: u32,
    ) -> Option<u32> {
        let at = if self.free == NONE {
            let at = u32::try_from(self.flows.len()).ok().filter(|&at| at < most)?;
            self.flows.push();
            at
        } else {
            let at = self.free;
            self.free = self.flows[at as usize].next;
            at
        };
        let list = self.list(times);
        flow.seen_ns = now_ns.into();
        flow.list = list;
        self.flows[at as usize] = flow;
        self.join(at);
        Some(at)
    }

    /// Takes a flow out of its place; its keys stay in the index.
    pub(super) fn take(&mut self, at: u32) -> Option<Flow> {
        if !self.flows[at as usize].has(LIVE) {
            return None;
        }
        self.leave(at);
        let place = &mut self.flows[at as usize];
        if place.is_changed() {
            self.deltas.remove(&at);
        }
        let mut empty = Flow::default();
        empty.next = self.free;
        self.free = at;
        Some(std::mem::replace(place, empty))
    }

    /// Notes that a packet of a flow came.
    #[inline]
    pub(super) fn touch(&mut self, at: u32, times: Times, now_ns: u64) {
        let flow = &mut self.flows[at as usize];
        flow.see(now_ns);
        if self.lists[usize::from(flow.list)].times != times {
            self.leave(at);
            let list = self.list(times);
            self.flows[at as usize].list = list;
            self.join(at);
        }
    }

    /// The list of flows that stay for a time.
    fn list(&mut self, times: Times) -> u16 {
        let known = self.lists.iter().position(|list| list.times == times);
        let at = known.unwrap_or_else(|| {
            // There are six a rewriter.
            if self.lists.len() <= usize::from(u16::MAX) {
                self.lists.push(List { times, head: NONE, tail: NONE });
                self.least_silent_ns = self.least_silent_ns.min(times.silent_ns);
            }
            self.lists.len() - 1
        });
        u16::try_from(at).unwrap_or(u16::MAX)
    }

    /// Joins the end of its list.
    fn join(&mut self, at: u32) {
        let list = &mut self.lists[usize::from(self.flows[at as usize].list)];
        let last = std::mem::replace(&mut list.tail, at);
        if last == NONE {
            list.head = at;
        } else {
            self.flows[last as usize].next = at;
        }
        let flow = &mut self.flows[at as usize];
        (flow.prev, flow.next) = (last, NONE);
        flow.set(USED, false);
    }

    fn leave(&mut self, at: u32) {
        let Flow { list, prev, next, .. } = self.flows[at as usize];
        let list = &mut self.lists[usize::from(list)];
        match prev {
            NONE => list.head = next,
            prev => self.flows[prev as usize].next = next,
        }
        match next {
            NONE => list.tail = prev,
            next => self.flows[next as usize].prev = prev,
        }
    }

    /// A flow that has ended, if the head of a list has.
    pub(super) fn ended(&mut self, now_ns: u64) -> Option<u32> {
        (0..self.lists.len()).find_map(|list| {
            let head = self.lists[list].head;
            if head == NONE {
                return None;
            }
            if self.ends_ns(head) <= now_ns {
                return Some(head);
            }
            if self.flows[head as usize].has(USED) {
                self.leave(head);
                self.join(head);
            }
            None
        })
    }

    /// The first to end and its time: of all, or of those that nothing guarantees, as far as [`LOOKS`] reach.
    pub(super) fn first(&mut self, now_ns: Option<u64>) -> Option<(u64, u32)> {
        let mut first = None;
        for list in 0..self.lists.len() {
            for _ in 0..CHANCES {
                let head = self.lists[list].head;
                if head == NONE || !self.flows[head as usize].has(USED) {
                    break;
                }
                self.leave(head);
                self.join(head);
            }
            let mut at = self.lists[list].head;
            for _ in 0..LOOKS {
                if at == NONE {
                    break;
                }
                let ends_ns = self.ends_ns(at);
                let goes =
                    now_ns.is_none_or(|now_ns| ends_ns.min(self.guaranteed_ns(at)) <= now_ns);
                if goes {
                    if first.is_none_or(|(first_ns, _)| ends_ns < first_ns) {
                        first = Some((ends_ns, at));
                    }
                    break;
                }
                at = self.flows[at as usize].next;
            }
        }
        first
    }

    /// The first flow of a list, and prefetches the one behind it.
    pub(super) fn head(&self, list: u16) -> Option<&Flow> {
        let head = self.lists.get(usize::from(list)).filter(|list| list.head != NONE)?.head;
        let flow = &self.flows[head as usize];
        if flow.next != NONE {
            prefetch(&self.flows[flow.next as usize]);
        }
        Some(flow)
    }

    /// All flows with their places.
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, &Flow)> {
        let flow = |at: u32| (at, &self.flows[at as usize]);
        (0..u32::try_from(self.flows.len()).unwrap_or(NONE))
            .map(flow)
            .filter(|(_, flow)| flow.has(LIVE))
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.index.bytes() + self.flows.bytes()
    }
}
