//! The IPv6 header (RFC 8200): 40 bytes, extension headers behind it.

/// Bytes of the header.
pub const IP6_BYTES: usize = 40;

/// An IPv6 header, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Ip6<'a>(&'a [u8; IP6_BYTES]);

impl<'a> Ip6<'a> {
    /// The header `offset` bytes into a frame; `None` when fewer than 40 bytes are left.
    #[inline]
    pub fn at(frame: &'a [u8], offset: usize) -> Option<Self> {
        frame.get(offset..)?.first_chunk().map(Self)
    }

    #[inline]
    fn first(self) -> u32 {
        u32::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }

    /// Should be 6.
    #[inline]
    pub fn version(self) -> u8 {
        self.0[0] >> 4
    }

    /// DSCP and ECN.
    #[inline]
    pub fn traffic_class(self) -> u8 {
        self.0[0] << 4 | self.0[1] >> 4
    }

    /// 20 bits.
    #[inline]
    pub fn flow_label(self) -> u32 {
        self.first() & 0xf_ffff
    }

    /// Bytes behind this header, as it states it.
    #[inline]
    pub fn payload_len(self) -> usize {
        u16::from_be_bytes([self.0[4], self.0[5]]).into()
    }

    /// What follows; see [`crate::frame::wire::protocol`].
    #[inline]
    pub fn next_header(self) -> u8 {
        self.0[6]
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(self) -> u8 {
        self.0[7]
    }

    /// Source.
    #[inline]
    pub fn src(self) -> u128 {
        let (_, rest) = self.0.split_at(8);
        u128::from_be_bytes(*rest.first_chunk().expect("32 bytes are left"))
    }

    /// Destination.
    #[inline]
    pub fn dst(self) -> u128 {
        u128::from_be_bytes(*self.0.last_chunk().expect("40 bytes hold 16"))
    }
}

/// An IPv6 header, for writing.
#[derive(Debug)]
pub struct Ip6Mut<'a>(&'a mut [u8; IP6_BYTES]);

impl<'a> Ip6Mut<'a> {
    /// The header `offset` bytes into a frame; `None` when fewer than 40 bytes are left.
    #[inline]
    pub fn at(frame: &'a mut [u8], offset: usize) -> Option<Self> {
        frame.get_mut(offset..)?.first_chunk_mut().map(Self)
    }

    /// Header for reading.
    #[inline]
    pub fn view(&self) -> Ip6<'_> {
        Ip6(self.0)
    }

    /// Version 6, DSCP with ECN, and the 20 bits of the flow label.
    #[inline]
    pub fn set_first(&mut self, traffic_class: u8, flow_label: u32) {
        let word = 6 << 28 | u32::from(traffic_class) << 20 | (flow_label & 0xf_ffff);
        self.0[..4].copy_from_slice(&word.to_be_bytes());
    }

    /// Bytes behind this header.
    #[inline]
    pub fn set_payload_len(&mut self, bytes: u16) {
        [self.0[4], self.0[5]] = bytes.to_be_bytes();
    }

    /// What follows.
    #[inline]
    pub fn set_next_header(&mut self, protocol: u8) {
        self.0[6] = protocol;
    }

    /// Hop limit.
    #[inline]
    pub fn set_hop_limit(&mut self, hops: u8) {
        self.0[7] = hops;
    }

    /// One less; a limit of 0 wraps: test before.
    #[inline]
    pub fn decrement_hop_limit(&mut self) {
        self.0[7] = self.0[7].wrapping_sub(1);
    }

    /// Source.
    #[inline]
    pub fn set_src(&mut self, addr: u128) {
        self.0[8..24].copy_from_slice(&addr.to_be_bytes());
    }

    /// Destination.
    #[inline]
    pub fn set_dst(&mut self, addr: u128) {
        self.0[24..].copy_from_slice(&addr.to_be_bytes());
    }
}

/// Whether it is a multicast address (ff00::/8).
#[inline]
pub fn is_multicast(addr: u128) -> bool {
    addr >> 120 == 0xff
}

/// Whether it is a link-local unicast address (fe80::/10).
#[inline]
pub fn is_link_local(addr: u128) -> bool {
    addr >> 118 == 0x3fa
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_rfc_8200_has_them() {
        let mut frame = [0u8; 41];
        let (src, dst) = (0x2001_0db8 << 96 | 1, 0xfe80 << 112 | 2);
        let mut ip = Ip6Mut::at(&mut frame, 1).unwrap();
        ip.set_first(0xb9, 0xa_bcde);
        ip.set_payload_len(0x1234);
        ip.set_next_header(58);
        ip.set_hop_limit(64);
        ip.decrement_hop_limit();
        ip.set_src(src);
        ip.set_dst(dst);
        assert_eq!(frame[1..9], [0x6b, 0x9a, 0xbc, 0xde, 0x12, 0x34, 58, 63]);
        assert_eq!((frame[9], frame[24], frame[25], frame[40]), (0x20, 1, 0xfe, 2));
        let ip = Ip6::at(&frame, 1).unwrap();
        assert_eq!((ip.version(), ip.traffic_class(), ip.flow_label()), (6, 0xb9, 0xa_bcde));
        assert_eq!((ip.payload_len(), ip.next_header(), ip.hop_limit()), (0x1234, 58, 63));
        assert_eq!((ip.src(), ip.dst()), (src, dst));
        assert!(is_link_local(dst) && !is_link_local(src) && !is_multicast(dst));
        assert!(is_link_local(0xfebf << 112) && !is_link_local(0xfec0 << 112));
        assert!(is_multicast(0xff02 << 112 | 1));
        assert!(Ip6::at(&frame, 2).is_none() && Ip6Mut::at(&mut frame, usize::MAX).is_none());
    }
}
