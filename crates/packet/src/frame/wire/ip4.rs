//! The fixed part of an IPv4 header (RFC 791): 20 bytes, options behind it.

/// Bytes of the header without options.
pub const IP4_BYTES: usize = 20;

/// The bit of [`Ip4::fragment`] that forbids fragmentation.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// Bit of [`Ip4::fragment`] that marks that more fragments follow.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// The bits of [`Ip4::fragment`] that hold the offset, in units of 8 bytes.
pub const FRAGMENT_OFFSET: u16 = 0x1fff;

/// An IPv4 header, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Ip4<'a>(&'a [u8; IP4_BYTES]);

impl<'a> Ip4<'a> {
    /// The header `offset` bytes into a frame; `None` when fewer than 20 bytes are left.
    #[inline]
    pub fn at(frame: &'a [u8], offset: usize) -> Option<Self> {
        frame.get(offset..)?.first_chunk().map(Self)
    }

    #[inline]
    fn word(self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    /// Should be 4.
    #[inline]
    pub fn version(self) -> u8 {
        self.0[0] >> 4
    }

    /// Version 4, a header without options, and no fragment but a first one.
    #[inline]
    pub fn is_plain(self) -> bool {
        // By the words that the sum reads as well.
        const FIRST: u32 = u32::from_ne_bytes([0xff, 0, 0, 0]);
        const PLAIN: u32 = u32::from_ne_bytes([0x45, 0, 0, 0]);
        const OFFSET: u32 = u32::from_ne_bytes([0, 0, 0x1f, 0xff]);
        (self.raw(0) & FIRST ^ PLAIN) | (self.raw(4) & OFFSET) == 0
    }

    /// Four bytes in the machine's order.
    #[inline]
    fn raw(self, at: usize) -> u32 {
        let b = self.0;
        u32::from_ne_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
    }

    /// Length of the header in bytes, as it states it: 0 to 60.
    #[inline]
    pub fn header_len(self) -> usize {
        usize::from(self.0[0] & 15) * 4
    }

    /// DSCP and ECN.
    #[inline]
    pub fn traffic_class(self) -> u8 {
        self.0[1]
    }

    /// Length of the packet in bytes, header included, as it states it.
    #[inline]
    pub fn total_len(self) -> usize {
        self.word(2).into()
    }

    /// Identification.
    #[inline]
    pub fn id(self) -> u16 {
        self.word(4)
    }

    /// Flags and fragment offset as one word; see the constants of this module.
    #[inline]
    pub fn fragment(self) -> u16 {
        self.word(6)
    }

    /// Whether it is a fragment, the first one included.
    #[inline]
    pub fn is_fragment(self) -> bool {
        self.fragment() & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0
    }

    /// Time to live.
    #[inline]
    pub fn ttl(self) -> u8 {
        self.0[8]
    }

    /// See [`crate::frame::wire::protocol`].
    #[inline]
    pub fn protocol(self) -> u8 {
        self.0[9]
    }

    /// Header checksum, as it stands there.
    #[inline]
    pub fn checksum(self) -> u16 {
        self.word(10)
    }

    /// Source.
    #[inline]
    pub fn src(self) -> u32 {
        u32::from_be_bytes([self.0[12], self.0[13], self.0[14], self.0[15]])
    }

    /// Destination.
    #[inline]
    pub fn dst(self) -> u32 {
        u32::from_be_bytes([self.0[16], self.0[17], self.0[18], self.0[19]])
    }

    /// Sum of the 20 bytes as 16-bit words of the machine's order, not folded. The ones' complement sum
    /// does not care for byte order (RFC 1071 section 2 B), so neither does [`sum_is_valid`].
    #[inline]
    pub fn raw_sum(self) -> u64 {
        let word = |at| u64::from(self.raw(at));
        word(0) + word(4) + word(8) + word(12) + word(16)
    }
}

/// Whether a header of this [`Ip4::raw_sum`] (plus that of its options) carries a right checksum.
#[inline]
pub fn sum_is_valid(sum: u64) -> bool {
    // Folding keeps the remainder by 0xffff, since 2^16 leaves 1. Of a right header it is 0; the sum itself never is,
    // because a header is not all zeros (its version is not). An odd number divides another without remainder when
    // the product with its inverse stays small (Hacker's Delight, 10-17).
    const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
    const { assert!(INVERSE.wrapping_mul(0xffff) == 1) };
    sum.wrapping_mul(INVERSE) <= u64::MAX / 0xffff
}

/// An IPv4 header, for writing. Nothing but [`Ip4Mut::decrement_ttl`] keeps the checksum right.
#[derive(Debug)]
pub struct Ip4Mut<'a>(&'a mut [u8; IP4_BYTES]);

impl<'a> Ip4Mut<'a> {
    /// The header `offset` bytes into a frame; `None` when fewer than 20 bytes are left.
    #[inline]
    pub fn at(frame: &'a mut [u8], offset: usize) -> Option<Self> {
        frame.get_mut(offset..)?.first_chunk_mut().map(Self)
    }

    /// Header for reading.
    #[inline]
    pub fn view(&self) -> Ip4<'_> {
        Ip4(self.0)
    }

    #[inline]
    fn put(&mut self, at: usize, word: u16) {
        [self.0[at], self.0[at + 1]] = word.to_be_bytes();
    }

    /// Version 4, and a header of that many bytes: a multiple of 4, at most 60.
    #[inline]
    pub fn set_header_len(&mut self, bytes: u8) {
        debug_assert!(bytes.is_multiple_of(4) && (20..=60).contains(&bytes));
        self.0[0] = 0x40 | ((bytes / 4) & 15);
    }

    /// DSCP and ECN.
    #[inline]
    pub fn set_traffic_class(&mut self, class: u8) {
        self.0[1] = class;
    }

    /// Length of the packet in bytes, header included.
    #[inline]
    pub fn set_total_len(&mut self, bytes: u16) {
        self.put(2, bytes);
    }

    /// Identification.
    #[inline]
    pub fn set_id(&mut self, id: u16) {
        self.put(4, id);
    }

    /// Flags and fragment offset as one word.
    #[inline]
    pub fn set_fragment(&mut self, word: u16) {
        self.put(6, word);
    }

    /// Time to live.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.0[8] = ttl;
    }

    /// See [`crate::frame::wire::protocol`].
    #[inline]
    pub fn set_protocol(&mut self, protocol: u8) {
        self.0[9] = protocol;
    }

    /// Header checksum.
    #[inline]
    pub fn set_checksum(&mut self, sum: u16) {
        self.put(10, sum);
    }

    /// Source.
    #[inline]
    pub fn set_src(&mut self, addr: u32) {
        self.0[12..16].copy_from_slice(&addr.to_be_bytes());
    }

    /// Destination.
    #[inline]
    pub fn set_dst(&mut self, addr: u32) {
        self.0[16..].copy_from_slice(&addr.to_be_bytes());
    }

    /// One less, and the checksum as it follows: `HC' = ~(~HC + ~m + m')` with the word TTL:protocol,
    /// where `~m + m'` is always 0xfeff (RFC 1624 equation 3). A TTL of 0 wraps: test before.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "folded to 16 bits just before")]
    pub fn decrement_ttl(&mut self) {
        self.0[8] = self.0[8].wrapping_sub(1);
        let sum = u32::from(!self.view().checksum()) + 0xfeff;
        let sum = (sum & 0xffff) + (sum >> 16);
        self.put(10, !(sum as u16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of dataplane vectors: 10.0.0.1 to 192.0.2.7, checksum 0x526e at TTL 64.
    fn vector() -> [u8; 20] {
        [0x45, 0, 0, 0x3c, 0x1c, 0x46, 0x40, 0, 0x40, 6, 0x52, 0x6e, 0x0a, 0, 0, 1, 0xc0, 0, 2, 7]
    }

    fn full_sum(header: &[u8]) -> u16 {
        let sum: u32 = header
            .chunks(2)
            .enumerate()
            .map(|(i, w)| if i == 5 { 0 } else { u32::from(w[0]) << 8 | u32::from(w[1]) })
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        !u16::try_from(sum).unwrap()
    }

    #[test]
    fn fields_are_where_rfc_791_has_them() {
        let mut frame = [0u8; 24];
        let mut ip = Ip4Mut::at(&mut frame, 4).unwrap();
        ip.set_header_len(20);
        ip.set_traffic_class(0xb8);
        ip.set_total_len(1500);
        ip.set_id(0x1234);
        ip.set_fragment(MORE_FRAGMENTS | 185);
        ip.set_ttl(17);
        ip.set_protocol(89);
        ip.set_checksum(0xabcd);
        ip.set_src(0x0a00_0001);
        ip.set_dst(0xc000_0207);
        assert_eq!(
            frame[4..],
            [
                0x45, 0xb8, 5, 0xdc, 0x12, 0x34, 0x20, 185, 17, 89, 0xab, 0xcd, 10, 0, 0, 1, 192,
                0, 2, 7
            ]
        );
        let ip = Ip4::at(&frame, 4).unwrap();
        assert_eq!((ip.version(), ip.header_len(), ip.total_len()), (4, 20, 1500));
        assert_eq!((ip.id(), ip.fragment(), ip.ttl()), (0x1234, 0x20b9, 17));
        assert_eq!((ip.protocol(), ip.checksum(), ip.traffic_class()), (89, 0xabcd, 0xb8));
        assert_eq!((ip.src(), ip.dst(), ip.is_fragment()), (0x0a00_0001, 0xc000_0207, true));
        assert!(Ip4::at(&frame, 5).is_none() && Ip4Mut::at(&mut frame, 99).is_none());
    }

    #[test]
    fn the_checksum_is_checked_in_any_byte_order() {
        let mut header = vector();
        assert!(sum_is_valid(Ip4::at(&header, 0).unwrap().raw_sum()));
        for byte in 0..20 {
            for bit in 0..8 {
                header[byte] ^= 1 << bit;
                assert!(!sum_is_valid(Ip4::at(&header, 0).unwrap().raw_sum()), "{byte}.{bit}");
                header[byte] ^= 1 << bit;
            }
        }
        // Sums that carry through every fold.
        header = [0xff; 20];
        header[10..12].fill(0);
        let sum = full_sum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        assert!(sum_is_valid(Ip4::at(&header, 0).unwrap().raw_sum()));
    }

    #[test]
    fn decrementing_agrees_with_the_full_sum() {
        let mut header = vector();
        Ip4Mut::at(&mut header, 0).unwrap().decrement_ttl();
        assert_eq!(header[8..12], [63, 6, 0x53, 0x6e]);
        // Every identification, so that every checksum occurs, the two zeros among them.
        for id in 0..=u16::MAX {
            let mut header = vector();
            let mut ip = Ip4Mut::at(&mut header, 0).unwrap();
            ip.set_id(id);
            let sum = full_sum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            Ip4Mut::at(&mut header, 0).unwrap().decrement_ttl();
            assert!(sum_is_valid(Ip4::at(&header, 0).unwrap().raw_sum()), "{id:#x}");
            assert_eq!(Ip4::at(&header, 0).unwrap().checksum(), full_sum(&header), "{id:#x}");
        }
    }
}
