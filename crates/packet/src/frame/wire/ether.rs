//! The Ethernet II header: destination, source, type; 14 bytes.

use fingerpost_route::Mac;

/// Bytes of the header.
pub const ETHER_BYTES: usize = 14;

/// IPv4.
pub const TYPE_IP4: u16 = 0x0800;
/// ARP.
pub const TYPE_ARP: u16 = 0x0806;
/// IPv6.
pub const TYPE_IP6: u16 = 0x86dd;
/// A VLAN tag (IEEE 802.1Q): the packet's own type follows it.
pub const TYPE_VLAN: u16 = 0x8100;
/// The outer tag of a provider's network (IEEE 802.1ad), before one of [`TYPE_VLAN`].
pub const TYPE_SERVICE_VLAN: u16 = 0x88a8;
/// Bytes of a tag: its type, and priority and number of the VLAN.
pub const TAG_BYTES: usize = 4;

/// An Ethernet header, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Ether<'a>(&'a [u8; ETHER_BYTES]);

impl<'a> Ether<'a> {
    /// The header at the front of a frame; `None` when the frame is shorter.
    #[inline]
    pub fn of(frame: &'a [u8]) -> Option<Self> {
        frame.first_chunk().map(Self)
    }

    /// Destination.
    #[inline]
    pub fn dst(self) -> Mac {
        let b = self.0;
        Mac([b[0], b[1], b[2], b[3], b[4], b[5]])
    }

    /// Address as a number, the first byte highest: faster to compare.
    #[inline]
    pub fn dst_bits(self) -> u64 {
        let b = self.0;
        u64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) >> 16
    }

    /// Source.
    #[inline]
    pub fn src(self) -> Mac {
        let b = self.0;
        Mac([b[6], b[7], b[8], b[9], b[10], b[11]])
    }

    /// What follows; below 0x600 it is a length (IEEE 802.3).
    #[inline]
    pub fn kind(self) -> u16 {
        u16::from_be_bytes([self.0[12], self.0[13]])
    }

    /// Whether it is a group address or broadcast.
    #[inline]
    pub fn multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

/// An Ethernet header, for writing.
#[derive(Debug)]
pub struct EtherMut<'a>(&'a mut [u8; ETHER_BYTES]);

impl<'a> EtherMut<'a> {
    /// The header at the front of a frame; `None` when the frame is shorter.
    #[inline]
    pub fn of(frame: &'a mut [u8]) -> Option<Self> {
        frame.first_chunk_mut().map(Self)
    }

    /// Both addresses.
    #[inline]
    pub fn set_addrs(&mut self, dst: Mac, src: Mac) {
        self.0[..6].copy_from_slice(&dst.0);
        self.0[6..12].copy_from_slice(&src.0);
    }

    /// What follows.
    #[inline]
    pub fn set_kind(&mut self, kind: u16) {
        self.0[12..].copy_from_slice(&kind.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_standard_has_them() {
        let mut frame = [0u8; 20];
        let mut ether = EtherMut::of(&mut frame).unwrap();
        ether.set_addrs(Mac([2, 1, 2, 3, 4, 5]), Mac([2, 9, 8, 7, 6, 5]));
        ether.set_kind(TYPE_IP6);
        assert_eq!(frame[..14], [2, 1, 2, 3, 4, 5, 2, 9, 8, 7, 6, 5, 0x86, 0xdd]);
        let ether = Ether::of(&frame).unwrap();
        assert_eq!((ether.dst(), ether.src()), (Mac([2, 1, 2, 3, 4, 5]), Mac([2, 9, 8, 7, 6, 5])));
        assert_eq!((ether.dst_bits(), ether.dst().bits()), (0x0201_0203_0405, 0x0201_0203_0405));
        assert_eq!((ether.kind(), ether.multicast()), (TYPE_IP6, false));
        assert!(Ether::of(&[0xff; 14]).unwrap().multicast());
        assert!(Ether::of(&[0; 13]).is_none() && EtherMut::of(&mut [0; 13]).is_none());
    }
}
