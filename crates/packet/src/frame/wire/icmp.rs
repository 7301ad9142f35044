//! ICMP (RFC 792) and ICMPv6 (RFC 4443): the types that matter to a router, which messages are
//! errors, and the search for the upper layer behind IPv6 extension headers (RFC 8200, 4).

/// ICMP's protocol number.
pub const PROTOCOL_ICMP: u8 = 1;
/// ICMPv6's next-header number.
pub const PROTOCOL_ICMPV6: u8 = 58;

/// ICMP: destination unreachable.
pub const V4_UNREACHABLE: u8 = 3;
/// ICMP: redirect.
pub const V4_REDIRECT: u8 = 5;
/// ICMP: time exceeded.
pub const V4_TIME_EXCEEDED: u8 = 11;
/// ICMP: parameter problem.
pub const V4_PARAMETER: u8 = 12;

/// ICMPv6: destination unreachable.
pub const V6_UNREACHABLE: u8 = 1;
/// ICMPv6: packet too big.
pub const V6_TOO_BIG: u8 = 2;
/// ICMPv6: time exceeded.
pub const V6_TIME_EXCEEDED: u8 = 3;

/// ICMPv6: parameter problem.
pub const V6_PARAMETER: u8 = 4;
/// ICMPv6: redirect, of neighbor discovery (RFC 4861).
pub const V6_REDIRECT: u8 = 137;

/// Length of an error's own header, before the quoted packet.
pub const ERROR_HEADER: usize = 8;

/// IPv6 next header: hop-by-hop options.
pub const NEXT_HOP_BY_HOP: u8 = 0;
/// IPv6 next header: routing header.
pub const NEXT_ROUTING: u8 = 43;
/// IPv6 next header: fragment header.
pub const NEXT_FRAGMENT: u8 = 44;
/// IPv6 next header: authentication header (RFC 4302).
pub const NEXT_AUTHENTICATION: u8 = 51;
/// IPv6 next header: destination options.
pub const NEXT_DESTINATION: u8 = 60;

/// Whether an ICMP message of this type is an error, or (redirect, source quench) counts as one
/// where RFC 1812, 4.3.2.7 forbids an answer.
#[inline]
pub fn is_v4_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

/// Whether an ICMPv6 message of this type must not be answered by an error: errors have the top bit
/// clear (RFC 4443, 2.1), a redirect (137) is named in 2.4 (e.2).
#[inline]
pub fn is_v6_error(kind: u8) -> bool {
    kind < 128 || kind == V6_REDIRECT
}

/// Where the upper layer of an IPv6 packet begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upper {
    /// Its protocol: not an extension header that we know.
    pub protocol: u8,
    /// Its offset from the start of the IPv6 header.
    pub at: usize,
    /// The packet is a fragment, and which: `None` for a whole packet, else the offset in bytes.
    pub fragment: Option<u16>,
    /// There was a routing header: the checksum may cover another destination than the header's.
    pub routed: bool,
}

/// Walks the extension headers of an IPv6 packet, which begins with its fixed header. `None` when
/// they run past the end. The upper layer of a fragment other than the first is where the piece of
/// it begins.
pub fn upper_layer(packet: &[u8]) -> Option<Upper> {
    let mut upper = Upper { protocol: *packet.get(6)?, at: 40, fragment: None, routed: false };
    // Each header takes at least 8 bytes, so the walk ends with the packet.
    loop {
        let header = |n: usize| packet.get(upper.at..)?.get(n).copied();
        let len = match upper.protocol {
            NEXT_HOP_BY_HOP | NEXT_DESTINATION => usize::from(header(1)?) * 8 + 8,
            NEXT_ROUTING => {
                upper.routed = true;
                usize::from(header(1)?) * 8 + 8
            }
            NEXT_AUTHENTICATION => usize::from(header(1)?) * 4 + 8,
            NEXT_FRAGMENT => {
                let offset = u16::from_be_bytes([header(2)?, header(3)?]) & !7;
                upper.fragment = Some(offset);
                8
            }
            _ => return Some(upper),
        };
        upper.protocol = header(0)?;
        upper.at += len;
        if upper.at > packet.len() {
            return None;
        }
        if upper.fragment.is_some_and(|offset| offset != 0) {
            return Some(upper);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[6] = next;
        packet.extend_from_slice(rest);
        packet
    }

    #[test]
    fn walks_the_chain() {
        let whole = |protocol, at| Some(Upper { protocol, at, fragment: None, routed: false });
        assert_eq!(upper_layer(&packet(17, &[0; 8])), whole(17, 40));
        // Hop-by-hop of 16 bytes, then destination options of 8, then TCP.
        let mut rest = vec![NEXT_DESTINATION, 1];
        rest.extend([0; 14]);
        rest.extend([6, 0, 1, 4, 0, 0, 0, 0]);
        assert_eq!(upper_layer(&packet(NEXT_HOP_BY_HOP, &rest)), whole(6, 64));
        // An authentication header counts in words of 4 bytes, less 2.
        assert_eq!(
            upper_layer(&packet(NEXT_AUTHENTICATION, &[&[58, 4][..], &[0; 30]].concat())),
            whole(58, 64)
        );
        // A routing header is noted.
        assert_eq!(
            upper_layer(&packet(NEXT_ROUTING, &[17, 0, 4, 0, 0, 0, 0, 0])),
            Some(Upper { protocol: 17, at: 48, fragment: None, routed: true })
        );
        // What is not known ends the walk.
        assert_eq!(upper_layer(&packet(59, &[])), whole(59, 40));
    }

    #[test]
    fn fragments() {
        let fragment = |word: u16, next| {
            let [a, b] = word.to_be_bytes();
            upper_layer(&packet(NEXT_FRAGMENT, &[next, 0, a, b, 0, 0, 0, 1]))
        };
        let upper = |protocol, offset| {
            Some(Upper { protocol, at: 48, fragment: Some(offset), routed: false })
        };
        assert_eq!(fragment(1, 17), upper(17, 0));
        assert_eq!(fragment(1481, 58), upper(58, 1480));
        // In a later fragment, what follows is payload even if the number is an extension header's.
        assert_eq!(fragment(8, NEXT_DESTINATION), upper(NEXT_DESTINATION, 8));
    }

    #[test]
    fn a_chain_that_leaves_the_packet_has_no_upper_layer() {
        assert_eq!(upper_layer(&[0; 6]), None);
        assert_eq!(upper_layer(&packet(NEXT_HOP_BY_HOP, &[17])), None);
        assert_eq!(upper_layer(&packet(NEXT_HOP_BY_HOP, &[17, 1, 0, 0, 0, 0, 0, 0])), None);
        assert_eq!(upper_layer(&packet(NEXT_FRAGMENT, &[17, 0, 0])), None);
        // Chained to itself it still ends.
        assert_eq!(upper_layer(&packet(NEXT_HOP_BY_HOP, &[0; 1024])), None);
    }
}
