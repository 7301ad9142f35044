//! A flow, in one cache line.

use std::cell::Cell;

use super::super::packet::Sums;
use super::super::pattern::{FlowId, Words};

/// Flow as one of its packets shows it: which rewriter's, its protocol, and its ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) owner: u16,
    pub(crate) protocol: u8,
    pub(crate) id: FlowId,
}

impl Key {
    /// All but the ends, in a word.
    #[inline(always)]
    pub(crate) fn kind(&self) -> u32 {
        u32::from(self.owner) << 8 | u32::from(self.protocol)
    }
}

/// How long flows stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Times {
    /// Time after the last packet.
    pub(crate) silent_ns: u64,
    /// Time after its last packet during which no other flow takes its place.
    pub(crate) guarantee_ns: u64,
}

/// No flow.
pub(super) const NONE: u32 = u32::MAX;

/// What is known of a flow. The cells are what a packet changes of a flow that is settled: packets of a batch share it.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Flow {
    /// Ends of its first packet, and those of the replies to it: what the packets of a direction have, as [`Words`]. They
    /// become those of the other direction, reversed.
    addrs: [u64; 2],
    ports: [u32; 2],
    /// What that adds to checksums.
    pub(crate) sums: Sums,
    /// [`Key::kind`].
    kind: u32,
    /// Packets of both directions.
    packets: Cell<u64>,
    /// Time of its last packet.
    pub(super) seen_ns: Cell<u64>,
    /// Neighbors in the list of its times; of a place without a flow, `next` is another such place.
    pub(super) next: u32,
    pub(super) prev: u32,
    /// Which list it is in.
    pub(super) list: u16,
    /// Input of its first packet.
    pub(crate) input: u16,
    flags: Cell<u8>,
    /// Whether the timeout and the data of the flow stay the same with further packets of each direction, except for one that
    /// closes the connection and for the third packet of the flow.
    settled: [bool; 2],
    /// Annotation that replies get.
    pub(crate) reply_anno: u8,
}

/// Flag: the place holds a flow.
pub(super) const LIVE: u8 = 1;
/// A packet came since the flow joined its list.
pub(super) const USED: u8 = 2;
/// Numbers of its segments are changed.
pub(super) const CHANGED: u8 = 4;
/// Packets came, by direction, and what follows closed each.
const PASSED: u8 = 8;
const CLOSED: u8 = 32;

impl Flow {
    pub(crate) fn new(key: Key, to: FlowId, input: u16, reply_anno: u8) -> Self {
        let ends = [key.id.words(), to.reverse().words()];
        Self {
            addrs: ends.map(|ends| ends.addrs),
            ports: ends.map(|ends| ends.ports),
            sums: Sums::new(key.id, to),
            kind: key.kind(),
            input,
            reply_anno,
            flags: Cell::new(LIVE),
            ..Self::default()
        }
    }

    /// Ends of packets of a direction.
    #[inline(always)]
    fn ends(&self, reply: bool) -> Words {
        let at = usize::from(reply);
        Words { addrs: self.addrs[at], ports: self.ports[at] }
    }

    /// Ends of its first packet.
    pub(crate) fn from(&self) -> FlowId {
        FlowId::of_words(self.ends(false))
    }

    /// What packets of a direction become.
    pub(crate) fn to(&self, reply: bool) -> FlowId {
        FlowId::of_words(self.to_words(reply))
    }

    /// [`FlowId::words`] of [`Self::to`].
    #[inline(always)]
    pub(crate) fn to_words(&self, reply: bool) -> Words {
        self.ends(!reply).reverse()
    }

    /// Packets of both directions.
    #[inline]
    pub(crate) fn packets(&self) -> u64 {
        self.packets.get()
    }

    #[allow(clippy::cast_possible_truncation, reason = "takes the parts of a word")]
    pub(crate) fn key(&self) -> Key {
        Key { owner: (self.kind >> 8) as u16, protocol: self.kind as u8, id: self.from() }
    }

    pub(crate) fn reply_key(&self) -> Key {
        Key { id: FlowId::of_words(self.ends(true)), ..self.key() }
    }

    /// Whether packets of this key are the flow's, those of a direction, and then whether they are replies. Where both
    /// directions look the same, replies are what is meant.
    #[inline]
    pub(super) fn is(&self, key: &Key, reply: bool) -> Option<bool> {
        let is = self.has(LIVE) && self.is_of(key.kind(), key.id.words(), reply);
        is.then(|| reply || self.is_one())
    }

    /// Whether packets of a kind with these ends are those of a direction, if the place has a flow.
    #[inline(always)]
    fn is_of(&self, kind: u32, ends: Words, reply: bool) -> bool {
        self.ends(reply) == ends && self.kind == kind
    }

    /// Whether both directions look the same.
    fn is_one(&self) -> bool {
        self.ends(false) == self.ends(true)
    }

    /// Whether it was silent for less than this.
    #[inline(always)]
    pub(crate) fn stays(&self, now_ns: u64, silent_ns: u64) -> bool {
        now_ns.wrapping_sub(self.seen_ns.get()) < silent_ns
    }

    /// [`Self::is`] of a flow that one more packet of the direction changes in nothing but what [`Self::pass`] notes.
    #[inline(always)]
    pub(crate) fn is_settled(&self, kind: u32, ends: Words, reply: bool) -> bool {
        // The third packet is that which makes a flow of packets a stream.
        self.is_of(kind, ends, reply) && self.settled[usize::from(reply)] && self.packets() != 2
    }

    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags.get() & flag != 0
    }

    #[inline]
    pub(super) fn set(&self, flag: u8, on: bool) {
        let flags = self.flags.get();
        self.flags.set(if on { flags | flag } else { flags & !flag });
    }

    /// Whether it has both of these flags of directions.
    #[inline]
    fn has_both(&self, flag: u8) -> bool {
        self.flags.get() & (flag | flag << 1) == flag | flag << 1
    }

    /// Counts a packet of a direction.
    #[inline]
    pub(crate) fn count(&mut self, reply: bool) {
        self.packets.set(self.packets() + 1);
        self.set(PASSED << u8::from(reply), true);
        if !self.is_changed() && !self.is_one() {
            self.settled[usize::from(reply)] = true;
        }
    }

    /// Marks the flow: payload lengths change from now on.
    pub(super) fn change(&mut self) {
        self.set(CHANGED, true);
        self.settled = [false; 2];
    }

    /// Counts a packet of a settled flow, and notes its time.
    #[inline(always)]
    pub(crate) fn pass(&self, now_ns: u64) {
        self.packets.set(self.packets() + 1);
        self.seen_ns.set(now_ns);
        self.set(USED, true);
    }

    /// Notes the time of a packet.
    #[inline]
    pub(crate) fn see(&self, now_ns: u64) {
        // A new flow is at the end of its list already.
        if self.seen_ns.replace(now_ns) != now_ns {
            self.set(USED, true);
        }
    }

    /// Whether packets of both directions came.
    #[inline]
    pub(crate) fn is_answered(&self) -> bool {
        self.has_both(PASSED)
    }

    /// A direction is closed.
    #[inline]
    pub(crate) fn close(&self, reply: bool) {
        self.set(CLOSED << u8::from(reply), true);
    }

    /// Whether both directions are closed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.has_both(CLOSED)
    }

    /// Whether data of the flow changed its length.
    #[inline]
    pub(crate) fn is_changed(&self) -> bool {
        self.has(CHANGED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_a_cache_line() {
        assert_eq!((size_of::<Flow>(), align_of::<Flow>()), (64, 64));
        let mut flow = Flow::default();
        for flag in [LIVE, USED, CHANGED] {
            flow.set(flag, true);
            assert!(flow.has(flag) && !flow.is_answered() && !flow.is_closed());
        }
        flow.count(false);
        flow.close(true);
        assert!(!flow.is_answered() && !flow.is_closed());
        flow.count(true);
        flow.close(false);
        flow.set(USED, false);
        assert!(flow.is_answered() && flow.is_closed() && !flow.has(USED) && flow.has(LIVE));
    }

    #[test]
    fn a_direction_is_settled_when_its_packets_change_nothing() {
        let id = FlowId { src: 1, sport: 2, dst: 3, dport: 4 };
        let (key, to) = (Key { owner: 5, protocol: 17, id }, FlowId { sport: 6, ..id });
        let settled = |flow: &Flow| {
            [(key, false), (Key { id: to.reverse(), ..key }, true)].map(|(key, reply)| {
                let other = Key { owner: 6, ..key };
                assert!(!flow.is_settled(other.kind(), key.id.words(), reply));
                assert!(!flow.is_settled(key.kind(), key.id.words(), !reply));
                assert_eq!(flow.is(&key, reply), Some(reply));
                flow.is_settled(key.kind(), key.id.words(), reply)
            })
        };
        let mut flow = Flow::new(key, to, 0, 0);
        assert_eq!((flow.key(), flow.to(false), flow.to(true)), (key, to, id.reverse()));
        for (reply, want) in [(false, [true, false]), (false, [false; 2]), (false, [true, false])] {
            flow.count(reply);
            assert_eq!(settled(&flow), want);
        }
        flow.count(true);
        assert_eq!(settled(&flow), [true; 2]);
        flow.change();
        flow.count(true);
        assert_eq!(settled(&flow), [false; 2]);
        let mut one = Flow::new(key, id.reverse(), 0, 0);
        (0..4).for_each(|_| one.count(false));
        assert_eq!(one.is(&key, false), Some(true));
        assert!(!one.is_settled(key.kind(), id.words(), false), "its replies are what is meant");
    }
}
