//! What is known of a packet besides its bytes: 16 bytes that travel with it.

use fingerpost_lpm::NextHopId;
use fingerpost_route::ForwardingAction;

use crate::frame::Cause;
use crate::frame::wire::ETHER_BYTES;

/// What is known of a packet besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// Ingress port; for a packet of the router's own, that of the packet that caused it.
    pub port: u16,
    /// Bytes from the frame's start to the network header.
    pub network: u8,
    /// See the `FLAG_` constants.
    pub flags: u8,
    /// Where the lookup sends it.
    pub hop: Hop,
    /// Value that one element passes to the next.
    pub note: Note,
    /// Click's paint: a number that elements mark packets with.
    pub paint: u8,
    /// The frame holds annotations behind its bytes: see [`super::annotations`].
    pub annotated: bool,
    /// Click's VLAN annotation: priority and number of a VLAN, as in a tag; 0 for none.
    pub vlan: u16,
}

// Moved as one vector: what is added must fit.
const _: () = assert!(size_of::<Meta>() == 16);

/// Made by the router: an ICMP error or a further fragment. Never causes an error.
pub const FLAG_GENERATED: u8 = 1;
/// Arrived in a broadcast or multicast frame.
pub const FLAG_LINK_MULTICAST: u8 = 2;
/// Its source is to become that of the port by which it leaves.
pub const FLAG_FIX_SOURCE: u8 = 4;
/// Made here, but not in the router's name: a copy of a received packet, or what a source of a graph made. What is wrong
/// with it is its sender's doing.
pub const FLAG_COPY: u8 = 8;
/// Times it went round inside the router, in the top four bits.
pub const ROUNDS_SHIFT: u8 = 4;

impl Meta {
    /// Those of a frame that the router made about a packet of this ingress port, with an Ethernet header.
    pub(crate) fn generated(port: u16) -> Self {
        let network = u8::try_from(ETHER_BYTES).expect("14");
        Self { port, network, flags: FLAG_GENERATED, ..Self::default() }
    }

    /// Whether it speaks for the router itself: made here, and neither a copy of a received packet nor of a source.
    #[inline]
    pub fn is_ours(&self) -> bool {
        self.flags & (FLAG_GENERATED | FLAG_COPY) == FLAG_GENERATED
    }
}

/// Where the lookup sends a packet: a next hop of the router, the forwarding action that it resolved to, or in a graph
/// with tables of its own a gateway.
///
/// A tagged word, so that one is never read as another:
///
/// ```text
/// [ 0, 4 | index of a next hop, 28 ]        0 for none
/// [ 1 to 7, 4 | value, 28 ]                 a forwarding action but `NoRoute`, as it encodes itself
/// [ 8, 4 | number of a gateway, 28 ]
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hop(u32);

const TAG_SHIFT: u32 = 28;
const GATEWAY: u32 = 8 << TAG_SHIFT;

impl Hop {
    /// No answer yet, or no route.
    pub const NONE: Self = Self(0);

    /// The next hop that a lookup found.
    #[inline(always)]
    pub fn of_next_hop(id: NextHopId) -> Self {
        Self(id.0)
    }

    /// The action that a next hop resolved to.
    #[inline]
    pub fn of_action(action: ForwardingAction) -> Self {
        Self(action.encode())
    }

    /// A gateway by its number in [`crate::route_table::gateways::Gateways`]; 0 is none.
    #[inline]
    pub fn of_gateway(number: NextHopId) -> Self {
        if number.is_none() { Self::NONE } else { Self(GATEWAY | number.0) }
    }

    /// The next hop that the lookup found, for an element behind it.
    #[inline(always)]
    pub fn next_hop(self) -> NextHopId {
        debug_assert!(self.0 >> TAG_SHIFT == 0, "{self:?} is no next hop");
        NextHopId(self.0)
    }

    /// The next hop, if this is one or none.
    pub fn as_next_hop(self) -> Option<NextHopId> {
        (self.0 >> TAG_SHIFT == 0).then_some(NextHopId(self.0))
    }

    /// The word of the forwarding action that was resolved before; see [`ForwardingAction::decode`].
    #[inline(always)]
    pub fn action_word(self) -> u32 {
        debug_assert!(matches!(self.0 >> TAG_SHIFT, 1..8) || self.0 == 0, "{self:?} is no action");
        self.0
    }

    /// The gateway by its number, [`NextHopId::NONE`] where there is none.
    #[inline]
    pub fn gateway(self) -> NextHopId {
        if self.0 >= GATEWAY { NextHopId(self.0 & !GATEWAY) } else { NextHopId::NONE }
    }
}

/// Value that one element passes to the next: the egress port, the cause of an ICMP error, or an MTU.
///
/// ```text
/// [ 0, 8 | 0, 8 | egress port, 16 ]
/// [ 1, 8 | kind, 8 | value, 16 ]            a cause
/// [ 2, 8 | 0, 8 | MTU in bytes, 16 ]
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Note(u32);

const NOTE_SHIFT: u32 = 24;
const CAUSE: u32 = 1;
const MTU: u32 = 2;

impl Note {
    /// The port that a packet leaves by.
    #[inline(always)]
    pub fn egress(port: u16) -> Self {
        Self(u32::from(port))
    }

    /// The cause of an ICMP error.
    #[inline]
    pub fn of_cause(cause: Cause) -> Self {
        Self(CAUSE << NOTE_SHIFT | cause.encode())
    }

    /// The MTU that a packet is fragmented for, in bytes.
    #[inline]
    pub fn of_mtu(mtu: u16) -> Self {
        Self(MTU << NOTE_SHIFT | u32::from(mtu))
    }

    /// The port that the packet leaves by, for an element behind its next hop; of another note the low 16 bits.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "takes the field of a port")]
    pub fn egress_port(self) -> u16 {
        self.0 as u16
    }

    /// Index of the egress port, for who transmits: past all ports where the note is something else, since a graph may
    /// lead any packet there.
    #[inline(always)]
    pub fn egress_index(self) -> usize {
        self.0 as usize
    }

    /// The cause; `None` when it is not one.
    #[inline]
    pub fn cause(self) -> Option<Cause> {
        let word = self.0 & ((1 << NOTE_SHIFT) - 1);
        (self.0 >> NOTE_SHIFT == CAUSE).then(|| Cause::decode(word)).flatten()
    }

    /// The MTU, in bytes; `None` when it is not one.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "takes the field of an MTU")]
    pub fn mtu(self) -> Option<u16> {
        (self.0 >> NOTE_SHIFT == MTU).then_some(self.0 as u16)
    }
}

impl Cause {
    /// The note that holds it.
    pub fn note(self) -> Note {
        Note::of_cause(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_what_it_was_written_as() {
        let hops = [Hop::NONE, Hop::of_next_hop(NextHopId(5))];
        assert_eq!(hops.map(Hop::as_next_hop), [Some(NextHopId::NONE), Some(NextHopId(5))]);
        assert_eq!(hops.map(Hop::gateway), [NextHopId::NONE; 2]);
        let gateway = Hop::of_gateway(NextHopId(5));
        assert_eq!((gateway.gateway(), gateway.as_next_hop()), (NextHopId(5), None));
        assert_eq!(Hop::of_gateway(NextHopId::NONE), Hop::NONE);
        for action in [ForwardingAction::Adjacency(9), ForwardingAction::Glean(9)] {
            let hop = Hop::of_action(action);
            assert_eq!(ForwardingAction::decode(hop.action_word()), action);
            assert_eq!((hop.gateway(), hop.as_next_hop()), (NextHopId::NONE, None));
        }
        assert_eq!(Hop::of_action(ForwardingAction::NoRoute), Hop::NONE);
        let notes = [Note::egress(1400), Note::of_mtu(1400), Note::of_cause(Cause::TooBig(1400))];
        assert_eq!(notes.map(Note::mtu), [None, Some(1400), None]);
        assert_eq!(notes.map(Note::cause), [None, None, Some(Cause::TooBig(1400))]);
        assert_eq!((notes[0].egress_port(), notes[0].egress_index()), (1400, 1400));
        assert!(notes[1..].iter().all(|note| note.egress_index() > usize::from(u16::MAX)));
    }
}
