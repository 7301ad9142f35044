//! A flow, in one cache line.

use super::super::packet::Sums;
use super::super::pattern::FlowId;

/// Flow as one of its packets shows it: which rewriter's, its protocol, and its ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) owner: u32,
    pub(crate) protocol: u8,
    pub(crate) id: FlowId,
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
    /// Ends of its first packet.
    pub(crate) from: FlowId,
    /// What its packets become.
    pub(crate) to: FlowId,
    /// What that adds to checksums.
    pub(crate) sums: Sums,
    pub(super) owner: u32,
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
    pub(super) protocol: u8,
    /// Annotation that replies get.
    pub(crate) reply_anno: u8,
    pub(super) flags: u8,
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
        Self {
            from: key.id,
            to,
            sums: Sums::new(key.id, to),
            owner: key.owner,
            protocol: key.protocol,
            input,
            reply_anno,
            flags: LIVE,
            ..Self::default()
        }
    }

    pub(crate) fn key(&self) -> Key {
        Key { owner: self.owner, protocol: self.protocol, id: self.from }
    }

    pub(crate) fn reply_key(&self) -> Key {
        Key { id: self.to.reverse(), ..self.key() }
    }

    /// Whether packets of this key are the flow's, and then whether they are replies. Where both directions look the
    /// same, replies are what is meant.
    #[inline]
    pub(super) fn is(&self, key: &Key) -> Option<bool> {
        let other = self.owner ^ key.owner | u32::from(self.protocol ^ key.protocol);
        let ((addrs, ports), (key_addrs, key_ports)) = (self.from.words(), key.id.words());
        let own = (addrs ^ key_addrs) | u64::from(ports ^ key_ports);
        let (addrs, ports) = self.to.words();
        let (key_addrs, key_ports) = (key_addrs.rotate_left(32), key_ports.rotate_left(16));
        let reply = (addrs ^ key_addrs) | u64::from(ports ^ key_ports);
        let is = (other == 0) & self.has(LIVE) & ((reply == 0) | (own == 0));
        is.then_some(reply == 0)
    }

    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(super) fn set(&mut self, flag: u8, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// Counts a packet of a direction.
    #[inline]
    pub(crate) fn count(&mut self, reply: bool) {
        self.packets += 1;
        self.flags |= PASSED << u8::from(reply);
    }

    /// Whether one more packet of a direction, which closes nothing, leaves it for as long as it stays now, and its data as
    /// they are.
    #[inline]
    pub(crate) fn is_settled(&self, reply: bool) -> bool {
        let passed = PASSED << u8::from(reply);
        // The third packet is that which makes a flow of packets a stream.
        self.packets != 2 && self.flags & (passed | CHANGED) == passed
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
}
