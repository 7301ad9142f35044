//! Neighbor discovery: solicitations and advertisements of one link address (RFC 4861, 4.3 and 4.4).
//!
//! Such a packet is an IPv6 header, 24 bytes of ICMPv6, and options of which the link address is one of 8 bytes.

use fingerpost_route::Mac;

use super::checksum::pseudo_v6;
use super::icmp::PROTOCOL_ICMPV6;
use super::ip6::is_multicast;
use super::{IP6_BYTES, Ip6, Ip6Mut};

/// Who has this address?
pub const SOLICITATION: u8 = 135;
/// I have it.
pub const ADVERTISEMENT: u8 = 136;

/// In [`Nd::flags`] of an advertisement: a router sends it.
pub const ROUTER: u8 = 0x80;
/// It answers a solicitation.
pub const SOLICITED: u8 = 0x40;
/// What was known before is not so any more.
pub const OVERRIDE: u8 = 0x20;

/// All nodes of the link.
pub const ALL_NODES: u128 = 0xff02 << 112 | 1;

/// Bytes of a packet with a link address, from its IPv6 header on.
pub const ND_BYTES: usize = IP6_BYTES + BODY + OPTION;
const BODY: usize = 24;
const OPTION: usize = 8;

/// The option with the link address of a solicitation's sender.
const SOURCE_LINK: u8 = 1;
/// The option with the link address of an advertisement's target.
const TARGET_LINK: u8 = 2;

/// Contents of such a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nd {
    /// [`SOLICITATION`] or [`ADVERTISEMENT`].
    pub kind: u8,
    /// Flags of an advertisement.
    pub flags: u8,
    /// Who sends it.
    pub src: u128,
    /// Destination.
    pub dst: u128,
    /// The address that it is about.
    pub target: u128,
    /// The sender's link address in a solicitation, the target's in an advertisement.
    pub link: Option<Mac>,
}

/// The group in which all listen that have an address with the same last 24 bits (RFC 4291, 2.7.1).
pub fn solicited_node(addr: u128) -> u128 {
    0xff02 << 112 | 0x1_ff00_0000 | addr & 0xff_ffff
}

/// The link address of a group (RFC 2464, 7).
#[allow(clippy::cast_possible_truncation, reason = "takes the last bytes")]
pub fn multicast_mac(group: u128) -> Mac {
    let [a, b, c, d] = (group as u32).to_be_bytes();
    Mac([0x33, 0x33, a, b, c, d])
}

impl Nd {
    /// The packet `offset` bytes into a frame, if it must come from the link: see RFC 4861,
    /// 7.1.1 and 7.1.2.
    pub fn at(frame: &[u8], offset: usize) -> Option<Self> {
        let ip = Ip6::at(frame, offset)?;
        let (src, dst, len) = (ip.src(), ip.dst(), ip.payload_len());
        let usual = ip.version() == 6 && ip.next_header() == PROTOCOL_ICMPV6 && len >= BODY;
        // No router lets it through with this hop limit.
        if !usual || ip.hop_limit() != 255 {
            return None;
        }
        let body = frame.get(offset + IP6_BYTES..offset + IP6_BYTES + len)?;
        let (&[kind, code, _, _, flags, ..], options) = body.split_at_checked(BODY)? else {
            return None;
        };
        let target = u128::from_be_bytes(*body.get(8..)?.first_chunk()?);
        let wanted = match kind {
            SOLICITATION => SOURCE_LINK,
            ADVERTISEMENT => TARGET_LINK,
            _ => return None,
        };
        let length = u32::try_from(len).ok()?;
        let sum = pseudo_v6(&src.to_be_bytes(), &dst.to_be_bytes(), PROTOCOL_ICMPV6, length);
        if code != 0 || is_multicast(target) || sum.bytes(body).finish() != 0 {
            return None;
        }
        let link = link_address(options, wanted)?;
        let (kind, flags) = if kind == SOLICITATION { (kind, 0) } else { (kind, flags) };
        let sense = match kind {
            // Who has no address yet asks whether the one that it wants is free (RFC 4862, 5.4).
            SOLICITATION if src == 0 => link.is_none() && dst == solicited_node(target),
            SOLICITATION => !is_multicast(src),
            _ if is_multicast(dst) && flags & SOLICITED != 0 => false,
            _ => !is_multicast(src),
        };
        sense.then_some(Self { kind, flags, src, dst, target, link })
    }

    /// Writes it `offset` bytes into a frame, [`ND_BYTES`] with a link address and 8 less without. Whether there was
    /// room.
    pub fn write(&self, frame: &mut [u8], offset: usize) -> bool {
        let len = BODY + if self.link.is_some() { OPTION } else { 0 };
        let end = offset + IP6_BYTES + len;
        let Some(bytes) = frame.get_mut(offset..end) else { return false };
        let Some(mut ip) = Ip6Mut::at(bytes, 0) else { return false };
        let len = if self.link.is_some() { 32 } else { 24 };
        ip.set_first(0, 0);
        ip.set_payload_len(len);
        ip.set_next_header(PROTOCOL_ICMPV6);
        ip.set_hop_limit(255);
        ip.set_src(self.src);
        ip.set_dst(self.dst);
        let body = &mut bytes[IP6_BYTES..];
        body[..8].copy_from_slice(&[self.kind, 0, 0, 0, self.flags, 0, 0, 0]);
        body[8..24].copy_from_slice(&self.target.to_be_bytes());
        if let Some(mac) = self.link {
            let option = if self.kind == SOLICITATION { SOURCE_LINK } else { TARGET_LINK };
            body[24..26].copy_from_slice(&[option, 1]);
            body[26..32].copy_from_slice(&mac.0);
        }
        let (src, dst) = (self.src.to_be_bytes(), self.dst.to_be_bytes());
        let sum = pseudo_v6(&src, &dst, PROTOCOL_ICMPV6, len.into()).bytes(body).finish();
        body[2..4].copy_from_slice(&sum.to_be_bytes());
        true
    }
}

/// The link address among options; `None` where they make no sense.
#[allow(clippy::option_option, reason = "no sense, and no address, are two things")]
fn link_address(mut options: &[u8], wanted: u8) -> Option<Option<Mac>> {
    let mut link = None;
    while let [kind, units, ..] = *options {
        let len = usize::from(units) * 8;
        // Of no length there would be options without end.
        let option = options.get(..len).filter(|_| len > 0)?;
        if kind == wanted && len == OPTION {
            link = option[2..].first_chunk().map(|mac| Mac(*mac));
        }
        options = &options[len..];
    }
    options.is_empty().then_some(link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::wire::checksum::checksum;

    const US: u128 = 0xfe80 << 112 | 1;
    const THEM: u128 = 0x2001_0db8 << 96 | 0xab_cdef;
    const LINK: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn solicitation() -> Nd {
        let dst = solicited_node(THEM);
        Nd { kind: SOLICITATION, flags: 0, src: US, dst, target: THEM, link: Some(LINK) }
    }

    fn frame(nd: &Nd) -> Vec<u8> {
        let mut frame = vec![0xee; 14 + ND_BYTES - if nd.link.is_some() { 0 } else { OPTION }];
        assert!(nd.write(&mut frame, 14));
        frame
    }

    /// Makes the checksum right again.
    fn summed(mut frame: Vec<u8>) -> Vec<u8> {
        frame[56..58].fill(0);
        let len = u32::try_from(frame.len() - 54).unwrap().to_be_bytes();
        let pseudo = [&frame[22..54], &len, &[0, 0, 0, 58], &frame[54..]].concat();
        frame[56..58].copy_from_slice(&checksum(&pseudo).to_be_bytes());
        frame
    }

    #[test]
    fn fields_are_where_the_rfc_has_them() {
        let bytes = frame(&solicitation());
        assert_eq!(bytes[14..22], [0x60, 0, 0, 0, 0, 32, 58, 255]);
        assert_eq!(bytes[38..54], [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xab, 0xcd, 0xef]);
        assert_eq!((bytes[54], bytes[55], &bytes[58..62]), (135, 0, &[0; 4][..]));
        assert_eq!(
            (&bytes[62..78], &bytes[78..]),
            (&THEM.to_be_bytes()[..], &[1, 1, 2, 0, 0, 0, 0, 9][..])
        );
        assert_eq!(bytes, summed(bytes.clone()));
        assert_eq!(multicast_mac(solicited_node(THEM)), Mac([0x33, 0x33, 0xff, 0xab, 0xcd, 0xef]));
        let flags = ROUTER | SOLICITED | OVERRIDE;
        let advertisement =
            Nd { kind: ADVERTISEMENT, flags, src: THEM, dst: US, target: THEM, link: Some(LINK) };
        let bytes = frame(&advertisement);
        assert_eq!((bytes[54], bytes[58], &bytes[78..80]), (136, 0xe0, &[2, 1][..]));
        for nd in [solicitation(), advertisement, Nd { link: None, ..advertisement }] {
            assert_eq!(Nd::at(&frame(&nd), 14), Some(nd));
        }
        let asks = Nd { src: 0, link: None, ..solicitation() };
        assert_eq!(Nd::at(&frame(&asks), 14), Some(asks));
        assert!(!asks.write(&mut [0; 77], 14) && Nd::at(&frame(&asks)[..77], 14).is_none());
    }

    #[test]
    fn what_may_not_be_believed_is_none() {
        let good = frame(&solicitation());
        let refused = |frame: Vec<u8>| assert_eq!(Nd::at(&frame, 14), None, "{frame:?}");
        // Any damage; then, with a right checksum, version, protocol, hop limit, code, another type, a group as target.
        (54..86).for_each(|at| {
            let mut frame = good.clone();
            frame[at] ^= 1;
            refused(frame);
        });
        for (at, byte) in
            [(14, 0x40), (20, 17), (21, 254), (55, 1), (54, 134), (62, 0xff), (79, 0), (79, 2)]
        {
            let mut frame = good.clone();
            frame[at] = byte;
            refused(summed(frame));
        }
        let mut short = summed(good[..77].to_vec());
        short[19] = 23;
        refused(summed(short));
        // Nobody asks with a link address from no address, or all of the link; and no group speaks.
        refused(frame(&Nd { src: 0, ..solicitation() }));
        refused(frame(&Nd { src: 0, link: None, dst: ALL_NODES, ..solicitation() }));
        refused(frame(&Nd { src: ALL_NODES, ..solicitation() }));
        let said = Nd {
            kind: ADVERTISEMENT,
            flags: SOLICITED,
            src: THEM,
            dst: ALL_NODES,
            ..solicitation()
        };
        refused(frame(&said));
        assert!(Nd::at(&frame(&Nd { flags: OVERRIDE, ..said }), 14).is_some());
        // Options that nobody knows are skipped.
        let mut more = [&good[..78], &[14, 1, 0, 0, 0, 0, 0, 0], &good[78..]].concat();
        more[19] = 40;
        assert_eq!(Nd::at(&summed(more), 14), Some(solicitation()));
    }
}
