//! A flow, in one cache line.

use super::super::packet::Sums;
use super::super::pattern::FlowId;

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

/// What is known of a flow.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Flow {
    /// Ends of its first packet, and those of the replies to it: what the packets of a direction have. They become those of
    /// the other direction, reversed.
    pub(super) ends: [FlowId; 2],
    /// What that adds to checksums.
    pub(crate) sums: Sums,
    /// [`Key::kind`].
    pub(super) kind: u32,
    /// Packets of both directions.
    pub(crate) packets: u64,
    /// Time of its last packet.
    pub(super) seen_ns: u64,
    /// Neighbors in the list of its times; of a place without a flow, `next` is another such place.
    pub(super) next: u32,
    pub(super) prev: u32,
    /// Which list it is in.
    pub(super) list: u16,
    /// Input of its first packet.
    pub(crate) input: u16,
    pub(super) flags: u16,
    /// Annotation that replies get.
    pub(crate) reply_anno: u8,
}

/// Flag: the place holds a flow.
pub(super) const LIVE: u16 = 1;
/// A packet came since the flow joined its list.
pub(super) const USED: u16 = 2;
/// Numbers of its segments are changed.
pub(super) const CHANGED: u16 = 4;
/// Packets came, by direction, and what follows closed each.
const PASSED: u16 = 8;
const CLOSED: u16 = 32;
/// One more packet of a direction, which closes nothing and is not the third one of the flow, leaves it for as long as it stays
/// now, and its data as they are.
const SETTLED: u16 = 128;

impl Flow {
    pub(crate) fn new(key: Key, to: FlowId, input: u16, reply_anno: u8) -> Self {
        Self {
            ends: [key.id, to.reverse()],
            sums: Sums::new(key.id, to),
            kind: key.kind(),
            input,
            reply_anno,
            flags: LIVE,
            ..Self::default()
        }
    }

    /// Ends of its first packet.
    pub(crate) fn from(&self) -> FlowId {
        self.ends[0]
    }

    /// What packets of a direction become.
    pub(crate) fn to(&self, reply: bool) -> FlowId {
        self.ends[usize::from(!reply)].reverse()
    }

    /// [`FlowId::words`] of [`Self::to`].
    #[inline(always)]
    pub(crate) fn to_words(&self, reply: bool) -> (u64, u32) {
        self.ends[usize::from(!reply)].reverse_words()
    }

    #[allow(clippy::cast_possible_truncation, reason = "takes the parts of a word")]
    pub(crate) fn key(&self) -> Key {
        Key { owner: (self.kind >> 8) as u16, protocol: self.kind as u8, id: self.ends[0] }
    }

    pub(crate) fn reply_key(&self) -> Key {
        Key { id: self.ends[1], ..self.key() }
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
    fn is_of(&self, kind: u32, (addrs, ports): (u64, u32), reply: bool) -> bool {
        let (own_addrs, own_ports) = self.ends[usize::from(reply)].words();
        (addrs ^ own_addrs) | u64::from(ports ^ own_ports) | u64::from(kind ^ self.kind) == 0
    }

    /// Whether both directions look the same.
    fn is_one(&self) -> bool {
        self.ends[0] == self.ends[1]
    }

    /// [`Self::is`] of a flow that one more packet of the direction changes in nothing but what [`Self::pass`] notes.
    #[inline(always)]
    pub(super) fn is_settled(&self, kind: u32, ends: (u64, u32), reply: bool) -> bool {
        // The third packet is that which makes a flow of packets a stream.
        self.is_of(kind, ends, reply) && self.has(SETTLED << u8::from(reply)) && self.packets != 2
    }

    #[inline]
    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(super) fn set(&mut self, flag: u16, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// Counts a packet of a direction.
    #[inline]
    pub(crate) fn count(&mut self, reply: bool) {
        self.packets += 1;
        self.flags |= PASSED << u8::from(reply);
        if !self.is_changed() && !self.is_one() {
            self.flags |= SETTLED << u8::from(reply);
        }
    }

    /// Marks the flow: payload lengths change from now on.
    pub(super) fn change(&mut self) {
        self.set(CHANGED, true);
        self.set(SETTLED | SETTLED << 1, false);
    }

    /// Counts a packet of a settled flow, and notes its time.
    #[inline(always)]
    pub(crate) fn pass(&mut self, now_ns: u64) {
        self.packets += 1;
        self.seen_ns = now_ns;
        self.flags |= USED;
    }

    /// Notes the time of a packet.
    #[inline]
    pub(crate) fn see(&mut self, now_ns: u64) {
        // A new flow is at the end of its list already.
        if self.seen_ns != now_ns {
            self.seen_ns = now_ns;
            self.set(USED, true);
        }
    }

    /// Whether packets of both directions came.
    #[inline]
    pub(crate) fn is_answered(&self) -> bool {
        self.flags & (PASSED | PASSED << 1) == PASSED | PASSED << 1
    }

    /// A direction is closed.
    #[inline]
    pub(crate) fn close(&mut self, reply: bool) {
        self.flags |= CLOSED << u8::from(reply);
    }

    /// Whether both directions are closed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.flags & (CLOSED | CLOSED << 1) == CLOSED | CLOSED << 1
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
