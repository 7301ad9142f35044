//! What is known of a packet besides its bytes: 16 bytes that travel with it.

use fingerpost_lpm::NextHopId;

/// What is known of a packet besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// Ingress port; for a packet of the router's own, that of the packet that caused it.
    pub port: u16,
    /// Bytes from the frame's start to the network header.
    pub network: u8,
    /// See the `FLAG_` constants.
    pub flags: u8,
    /// The lookup's answer: a next hop of the router, or in a graph with tables of its own a number of
    /// [`crate::gateways::Gateways`].
    pub hop: NextHopId,
    /// Value that one element passes to the next; both agree on the meaning.
    pub note: u32,
    /// Click's paint: a number that elements mark packets with.
    pub paint: u8,
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
/// A copy of a received packet: made here, but what is wrong with it is its sender's doing.
pub const FLAG_COPY: u8 = 8;
/// Times it went round inside the router, in the top four bits.
pub const ROUNDS_SHIFT: u8 = 4;

impl Meta {
    /// Whether it speaks for the router itself: made here, and no copy of a received packet.
    #[inline]
    pub fn is_ours(&self) -> bool {
        self.flags & (FLAG_GENERATED | FLAG_COPY) == FLAG_GENERATED
    }
}
