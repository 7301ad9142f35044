//! The flow hash, by which packets of one flow take one of several equal paths.
//!
//! Each 64-bit word of the key is folded in by an exclusive or, a multiplication and a shift, and the
//! result is mixed once more: arithmetic that an XDP program can do as well. The constants are those
//! of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
//!
//! The key: IPv4 addresses, protocol and ports, without the ports in fragments, so that all
//! fragments of a datagram take one path. IPv6 addresses, flow label (RFC 6438), next header, and
//! ports when their header follows the fixed one; longer chains are not walked. An ICMP error hashes
//! as the flow of the packet that it quotes, in the other direction, so that path-MTU messages reach
//! the same instance as the answers do.
//!
//! Cost: two multiplications and one a word: 2 words for IPv4, 5 for IPv6. Only packets of a group
//! are hashed.

use crate::frame::wire::icmp::{
    ERROR_HEADER, PROTOCOL_ICMP, PROTOCOL_ICMPV6, is_v4_error, is_v6_error,
};
use crate::frame::wire::{IP4_BYTES, IP6_BYTES, Ip4, Ip6, Ports};

/// Multiplies each word.
pub const WORD_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Multiplies the state at the end, in turn.
pub const FINAL_FACTORS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

#[inline]
fn fold(state: u64, word: u64) -> u64 {
    let state = (state ^ word).wrapping_mul(WORD_FACTOR);
    state ^ (state >> 32)
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the low half is the hash")]
fn finish(mut state: u64) -> u32 {
    state = state.wrapping_mul(FINAL_FACTORS[0]);
    state ^= state >> 29;
    state = state.wrapping_mul(FINAL_FACTORS[1]);
    (state ^ (state >> 32)) as u32
}

/// Protocol and ports as one word: `source port << 24 | destination port << 8 | protocol`.
#[inline]
fn transport_word(protocol: u8, ports: Option<Ports>) -> u64 {
    let ports = ports.map_or(0, |p| u64::from(p.src) << 16 | u64::from(p.dst));
    ports << 8 | u64::from(protocol)
}

/// Hash of an IPv4 flow; `ports` is `None` for fragments and protocols without.
#[inline]
pub fn hash_v4(seed: u64, src: u32, dst: u32, protocol: u8, ports: Option<Ports>) -> u32 {
    let state = fold(seed, u64::from(src) << 32 | u64::from(dst));
    finish(fold(state, transport_word(protocol, ports)))
}

/// Hash of an IPv6 flow; the label has 20 bits.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "takes the halves of addresses")]
pub fn hash_v6(
    seed: u64,
    src: u128,
    dst: u128,
    label: u32,
    next_header: u8,
    ports: Option<Ports>,
) -> u32 {
    let mut state = seed;
    for word in [(src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64] {
        state = fold(state, word);
    }
    // The word of protocol and ports ends at bit 39; the label goes above.
    let word = u64::from(label & 0xf_ffff) << 40 | transport_word(next_header, ports);
    finish(fold(state, word))
}

/// Hash of an IPv4 packet that begins with its header; 0 when it is cut short.
pub fn of_ip4(seed: u64, packet: &[u8]) -> u32 {
    let Some(ip) = Ip4::at(packet, 0) else { return 0 };
    let protocol = ip.protocol();
    if ip.is_fragment() {
        return hash_v4(seed, ip.src(), ip.dst(), protocol, None);
    }
    let transport = packet.get(ip.header_len().max(IP4_BYTES)..).unwrap_or(&[]);
    if protocol == PROTOCOL_ICMP
        && transport.first().is_some_and(|&kind| is_v4_error(kind))
        && let Some(quoted) = transport.get(ERROR_HEADER..)
        && let Some(inner) = Ip4::at(quoted, 0)
        && inner.version() == 4
    {
        let ports = match quoted.get(inner.header_len().max(IP4_BYTES)..) {
            Some(transport) if !inner.is_fragment() => Ports::of(inner.protocol(), transport),
            _ => None,
        };
        return hash_v4(seed, inner.dst(), inner.src(), inner.protocol(), ports.map(swap));
    }
    hash_v4(seed, ip.src(), ip.dst(), protocol, Ports::of(protocol, transport))
}

/// Hash of an IPv6 packet that begins with its header; 0 when it is cut short.
pub fn of_ip6(seed: u64, packet: &[u8]) -> u32 {
    let Some(ip) = Ip6::at(packet, 0) else { return 0 };
    let (next, transport) = (ip.next_header(), packet.get(IP6_BYTES..).unwrap_or(&[]));
    if next == PROTOCOL_ICMPV6
        && transport.first().is_some_and(|&kind| is_v6_error(kind))
        && let Some(quoted) = transport.get(ERROR_HEADER..)
        && let Some(inner) = Ip6::at(quoted, 0)
        && inner.version() == 6
    {
        let (next, rest) = (inner.next_header(), quoted.get(IP6_BYTES..).unwrap_or(&[]));
        let ports = Ports::of(next, rest).map(swap);
        return hash_v6(seed, inner.dst(), inner.src(), inner.flow_label(), next, ports);
    }
    hash_v6(seed, ip.src(), ip.dst(), ip.flow_label(), next, Ports::of(next, transport))
}

fn swap(ports: Ports) -> Ports {
    Ports { src: ports.dst, dst: ports.src }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::wire::protocol::{TCP, UDP};
    use crate::testing::{frame_v4, frame_v6};

    fn ports(src: u16, dst: u16) -> Option<Ports> {
        Some(Ports { src, dst })
    }

    /// Recorded; the XDP program must give the same.
    #[test]
    fn recorded_vectors() {
        let (a, b) = (0x0a00_0001, 0xc000_0207);
        let vectors = [
            (hash_v4(0, 0, 0, 0, None), 0),
            (hash_v4(0, a, b, TCP, ports(1024, 80)), V[0]),
            (hash_v4(0, a, b, TCP, None), V[1]),
            (hash_v4(1, a, b, TCP, ports(1024, 80)), V[2]),
            (hash_v4(u64::MAX, u32::MAX, u32::MAX, 255, ports(65535, 65535)), V[3]),
            (hash_v6(0, 1 << 64, 2, 0, UDP, ports(53, 5353)), V[4]),
            (hash_v6(7, u128::MAX, 0x2001_0db8 << 96, 0xf_ffff, 44, None), V[5]),
        ];
        for (i, (got, want)) in vectors.into_iter().enumerate() {
            assert_eq!(got, want, "vector {i}: {got:#010x}");
        }
    }
    const V: [u32; 6] =
        [0xb971_f116, 0x06fa_00af, 0xe8fe_12e2, 0xc03a_2126, 0x90c5_b12d, 0x9a22_14df];

    /// Chi-squared over 256 buckets of a mask, as groups use it: 255 degrees of freedom, so below 347
    /// in 9,999 of 10,000 cases.
    fn chi_squared(hashes: impl Iterator<Item = u32>) -> f64 {
        let (mut counts, mut all) = ([0u32; 256], 0.0);
        for hash in hashes {
            counts[(hash & 255) as usize] += 1;
            all += 1.0;
        }
        let want = all / 256.0;
        counts.iter().map(|&n| (f64::from(n) - want).powi(2) / want).sum()
    }

    #[test]
    fn neighboring_flows_spread_evenly() {
        for seed in [0, 1, 0xdead_beef_0123_4567] {
            let n = 0..65_536u32;
            let low = |n: u32| u16::try_from(n & 0xffff).unwrap();
            let sets: [(&str, f64); 5] = [
                (
                    "source ports",
                    chi_squared(n.clone().map(|n| hash_v4(seed, 1, 2, 6, ports(low(n), 80)))),
                ),
                (
                    "destinations",
                    chi_squared(n.clone().map(|n| hash_v4(seed, 1, n << 8, 17, None))),
                ),
                ("sources", chi_squared(n.clone().map(|n| hash_v4(seed, n, 9, 6, ports(9, 9))))),
                (
                    "v6 hosts",
                    chi_squared(n.clone().map(|n| hash_v6(seed, n.into(), 2, 0, 6, None))),
                ),
                (
                    "v6 subnets",
                    chi_squared(n.map(|n| hash_v6(seed, 1, u128::from(n) << 64, 0, 6, None))),
                ),
            ];
            for (name, chi) in sets {
                assert!(chi < 347.0, "{name}, seed {seed}: {chi}");
            }
        }
    }

    #[test]
    fn fragments_of_a_datagram_share_a_path() {
        let payload = [4, 0, 0, 80, 0, 8, 0, 0, 1, 2, 3, 4];
        let whole = frame_v4("10.0.0.9", "192.0.2.1", 64, UDP, &payload);
        let mut first = whole.clone();
        first[14 + 6] = 0x20;
        let mut later = frame_v4("10.0.0.9", "192.0.2.1", 64, UDP, &[9; 40]);
        later[14 + 7] = 1;
        let hash = |frame: &[u8]| of_ip4(5, &frame[14..]);
        assert_eq!(hash(&first), hash(&later));
        assert_ne!(hash(&whole), hash(&first));
        let mut other = whole.clone();
        other[14 + 20] ^= 1;
        assert_ne!(hash(&other), hash(&whole), "ports count");
    }

    #[test]
    fn an_error_hashes_as_the_answer_to_what_it_quotes() {
        let out = frame_v4("10.0.0.9", "192.0.2.1", 64, TCP, &[4, 0, 0, 80, 0, 0, 0, 1]);
        let back = frame_v4("192.0.2.1", "10.0.0.9", 64, TCP, &[0, 80, 4, 0, 9, 9, 9, 9]);
        let mut message = vec![3, 4, 0, 0, 0, 0, 5, 120];
        message.extend_from_slice(&out[14..]);
        let error = frame_v4("198.51.100.1", "10.0.0.9", 60, PROTOCOL_ICMP, &message);
        assert_eq!(of_ip4(3, &error[14..]), of_ip4(3, &back[14..]));
        // An echo is no error.
        message[0] = 8;
        let echo = frame_v4("198.51.100.1", "10.0.0.9", 60, PROTOCOL_ICMP, &message);
        assert_ne!(of_ip4(3, &echo[14..]), of_ip4(3, &back[14..]));

        let out = frame_v6("2001:db8::9", "2001:db8:5::1", 64, UDP, &[4, 0, 0, 53, 0, 8, 0, 0]);
        let back = frame_v6("2001:db8:5::1", "2001:db8::9", 64, UDP, &[0, 53, 4, 0, 0, 8, 0, 0]);
        let mut message = vec![2, 0, 0, 0, 0, 0, 5, 0];
        message.extend_from_slice(&out[14..]);
        let error = frame_v6("2001:db8:7::1", "2001:db8::9", 60, PROTOCOL_ICMPV6, &message);
        assert_eq!(of_ip6(3, &error[14..]), of_ip6(3, &back[14..]));
    }

    #[test]
    fn short_packets_hash_to_something() {
        let frame =
            frame_v4("10.0.0.9", "192.0.2.1", 64, PROTOCOL_ICMP, &[3, 0, 0, 0, 0, 0, 0, 0, 0x4f]);
        for len in 0..frame.len() - 14 {
            of_ip4(0, &frame[14..14 + len]);
        }
        let frame = frame_v6("::9", "::1", 64, PROTOCOL_ICMPV6, &[1; 60]);
        for len in 0..frame.len() - 14 {
            of_ip6(0, &frame[14..14 + len]);
        }
    }
}
