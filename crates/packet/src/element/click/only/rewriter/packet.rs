//! Addresses, ports and sequence numbers in a packet, and their checksums.

use super::pattern::{FlowId, Words};
use super::tcp::Deltas;
use crate::element::click::only::seen::{Seen, long, word};
use crate::frame::wire::checksum::{Sum, update, update_long};
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol::{TCP, UDP};
pub(super) use crate::frame::wire::tcp::{FIN, RST};
use crate::frame::wire::{IP4_BYTES, Ip4};

/// Ends and protocol of a packet whose IPv4 header begins at an offset; with ports where it has them.
pub(super) fn ends(frame: &[u8], network: usize, ports: bool) -> Option<(u8, FlowId)> {
    let seen = Seen::bare(frame, network);
    let ip = seen.ip()?;
    let addrs = FlowId { src: long(ip, 12)?, dst: long(ip, 16)?, sport: 0, dport: 0 };
    if !ports {
        return Some((ip[9], addrs));
    }
    let (protocol, transport) = seen.transport()?;
    if protocol == PROTOCOL_ICMP {
        let identifier = word(transport, IDENTIFIER)?;
        return match *transport.first()? {
            ECHO => Some((protocol, FlowId { sport: identifier, ..addrs })),
            ECHO_REPLY => Some((protocol, FlowId { dport: identifier, ..addrs })),
            _ => None,
        };
    }
    let has_ports = matches!(protocol, TCP | UDP);
    let id = FlowId { sport: word(transport, 0)?, dport: word(transport, 2)?, ..addrs };
    has_ports.then_some((protocol, id))
}

/// Whether a packet is an echo request.
pub(super) fn is_request(frame: &[u8], network: usize) -> bool {
    Seen::bare(frame, network).of(PROTOCOL_ICMP).and_then(<[u8]>::first) == Some(&ECHO)
}

/// Bytes of a plain packet that are read: up to the end of a UDP header.
pub(super) const PLAIN_BYTES: usize = IP4_BYTES + 8;

/// Protocol and [`words`] of a packet as nearly all are: an IPv4 header without options, and no later fragment. Of TCP and
/// UDP these are its [`ends`]. `None` leaves the others to that.
#[inline(always)]
pub(super) fn plain_ends(frame: &[u8], network: usize) -> Option<(u8, Words)> {
    let head: &[u8; PLAIN_BYTES] = frame.get(network..)?.first_chunk()?;
    let ip = Ip4::at(head, 0)?;
    let plain = ip.is_plain() & (ip.total_len() >= PLAIN_BYTES);
    plain.then(|| (ip.protocol(), words(head)))
}

/// Ends of a plain packet, by its bytes from the IPv4 header on.
#[inline(always)]
pub(super) fn words(head: &[u8; PLAIN_BYTES]) -> Words {
    let [.., a, b, c, d, e, f, g, h, i, j, k, l, _, _, _, _] = *head;
    Words {
        addrs: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        ports: u32::from_ne_bytes([i, j, k, l]),
    }
}

/// What the change of a flow's ends adds to the sums under the checksums of its packets (RFC 1624, equation 3), as packets
/// have it: sums of ones' complement are the same in both orders of bytes (RFC 1071, 2 (B)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sums {
    /// Sum of the addresses alone.
    ip: u16,
    /// Sum of addresses and ports.
    transport: u16,
}

impl Sums {
    pub(super) fn new(from: FlowId, to: FlowId) -> Self {
        let ip = Sum::ZERO.long(!from.src).long(!from.dst).long(to.src).long(to.dst);
        let transport = ip.word(!from.sport).word(!from.dport).word(to.sport).word(to.dport);
        Self { ip: ip.fold().to_be(), transport: transport.fold().to_be() }
    }

    /// Sums for packets of one direction.
    #[inline(always)]
    fn of(self, reply: bool) -> Self {
        let reverse = u16::from(reply).wrapping_neg();
        Self { ip: self.ip ^ reverse, transport: self.transport ^ reverse }
    }
}

/// Where the flags of a TCP header are.
pub(super) const FLAGS: usize = 13;

/// [`rewrite`] of a packet that [`plain_ends`] has read, of TCP or UDP, to these ends. False, with nothing changed, where it
/// is too short for that, or has flags that end its flow.
#[inline(always)]
pub(super) fn rewrite_plain(ip: &mut [u8], to: Words, sums: Sums, reply: bool) -> bool {
    let sums = sums.of(reply);
    let Some((head, rest)) = ip.split_first_chunk_mut::<PLAIN_BYTES>() else { return false };
    if head[9] == TCP {
        let Some(rest) = rest.first_chunk_mut::<{ TCP_BYTES - 8 }>() else { return false };
        if rest[FLAGS - 8] & (FIN | RST) != 0 {
            return false;
        }
        let sum = after([rest[8], rest[9]], sums.transport);
        rest[8..].copy_from_slice(&sum.to_ne_bytes());
    } else if head[26..] != [0; 2] {
        // UDP may have none.
        let sum = sent(UDP, after([head[26], head[27]], sums.transport));
        head[26..].copy_from_slice(&sum.to_ne_bytes());
    }
    let sum = after([head[10], head[11]], sums.ip);
    head[10..12].copy_from_slice(&sum.to_ne_bytes());
    head[12..20].copy_from_slice(&to.addrs.to_ne_bytes());
    head[20..24].copy_from_slice(&to.ports.to_ne_bytes());
    true
}

/// Bytes of a TCP header up to the end of its checksum.
const TCP_BYTES: usize = 18;

/// A checksum after the sum under it has changed, as packets have it: `~(~HC + change)`, whose carry is the borrow of
/// `HC - change`.
#[inline(always)]
fn after(checksum: [u8; 2], change: u16) -> u16 {
    let (sum, borrow) = u16::from_ne_bytes(checksum).overflowing_sub(change);
    sum.wrapping_sub(u16::from(borrow))
}

/// Types of ICMP messages that have an identifier, and where it is.
const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;
const IDENTIFIER: usize = 4;

/// Where the checksum of a transport header is.
fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP => Some(6),
        _ => None,
    }
}

/// A checksum as it is sent: 0 of UDP would be none, and is sent as all ones (RFC 768).
#[inline(always)]
fn sent(protocol: u8, sum: u16) -> u16 {
    if protocol == UDP && sum == 0 { !0 } else { sum }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(to) = bytes.get_mut(at..at + 2) {
        to.copy_from_slice(&value.to_be_bytes());
    }
}

/// Gives the packet whose IPv4 header `ip` begins with other ends; its checksums follow.
pub(crate) fn rewrite(ip: &mut [u8], from: FlowId, to: FlowId, ports: bool) {
    let Some(sum) = word(ip, 10) else { return };
    let sum = update_long(update_long(sum, from.src, to.src), from.dst, to.dst);
    put(ip, 10, sum);
    ip[12..16].copy_from_slice(&to.src.to_be_bytes());
    ip[16..20].copy_from_slice(&to.dst.to_be_bytes());
    let (protocol, header) = (ip[9], usize::from(ip[0] & 15) * 4);
    let first = word(ip, 6).is_some_and(|fragment| fragment & 0x1fff == 0);
    let Some(transport) = ip.get_mut(header..).filter(|_| first) else { return };
    if protocol == PROTOCOL_ICMP {
        if ports && let Some(sum) = word(transport, 2) {
            let (before, after) = match transport.first() {
                Some(&ECHO) => (from.sport, to.sport),
                _ => (from.dport, to.dport),
            };
            put(transport, 2, update(sum, before, after));
            put(transport, IDENTIFIER, after);
        }
        return;
    }
    if let Some(at) = checksum_at(protocol)
        && let Some(sum) = word(transport, at)
        // UDP may have none.
        && (protocol != UDP || sum != 0)
    {
        let mut sum = update_long(update_long(sum, from.src, to.src), from.dst, to.dst);
        if ports {
            sum = update(update(sum, from.sport, to.sport), from.dport, to.dport);
        }
        put(transport, at, sent(protocol, sum));
    }
    if ports && transport.len() >= 4 {
        put(transport, 0, to.sport);
        put(transport, 2, to.dport);
    }
}

/// Moves the numbers of a TCP packet: its own by those of its direction, what it acknowledges by those of the other.
pub(super) fn renumber(ip: &mut [u8], own: &mut Deltas, other: &Deltas) {
    let header = usize::from(ip[0] & 15) * 4;
    let Some(tcp) = ip.get_mut(header..).filter(|tcp| tcp.len() >= 20) else { return };
    let (Some(seq), Some(ack), Some(mut sum)) = (long(tcp, 4), long(tcp, 8), word(tcp, 16)) else {
        return;
    };
    let moved = own.forward(seq);
    sum = update_long(sum, seq, moved);
    tcp[4..8].copy_from_slice(&moved.to_be_bytes());
    let moved = other.backward(ack);
    sum = update_long(sum, ack, moved);
    tcp[8..12].copy_from_slice(&moved.to_be_bytes());
    let options = (usize::from(tcp[12] >> 4) * 4).min(tcp.len());
    let mut at = 20;
    while at < options {
        let length = match tcp[at] {
            0 => break,
            1 => 1,
            _ => match tcp.get(at + 1) {
                Some(&length) if length >= 2 => usize::from(length),
                _ => break,
            },
        };
        // Blocks of selective acknowledgments.
        if tcp[at] == 5 {
            let mut block = at + 2;
            while block + 4 <= (at + length).min(options) {
                let Some(edge) = long(tcp, block) else { break };
                let moved = other.backward(edge).to_be_bytes();
                // Where it begins at an odd byte, its words lie across those that are summed.
                sum = match block % 2 {
                    0 => update_long(sum, edge, u32::from_be_bytes(moved)),
                    _ => update_long(
                        sum,
                        edge.rotate_left(8),
                        u32::from_be_bytes(moved).rotate_left(8),
                    ),
                };
                tcp[block..block + 4].copy_from_slice(&moved);
                block += 4;
            }
        }
        at += length;
    }
    put(tcp, 16, sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow() -> impl Strategy<Value = FlowId> {
        // Both zeros of a sum, and all else.
        let addr = || prop_oneof![Just(0), Just(u32::MAX), any::<u32>()];
        let port = || prop_oneof![Just(0), Just(u16::MAX), any::<u16>()];
        (addr(), addr(), port(), port()).prop_map(|(src, dst, sport, dport)| FlowId {
            src,
            dst,
            sport,
            dport,
        })
    }

    #[test]
    fn a_checksum_of_udp_never_becomes_none() {
        let from = FlowId { src: 1, sport: 2, dst: 3, dport: 4 };
        let to = FlowId { src: 5, sport: 6, ..from };
        let mut packet = [0; 28];
        (packet[0], packet[9]) = (0x45, UDP);
        let after = |sum: u16, plain: bool| {
            let mut packet = packet;
            put(&mut packet, 26, sum);
            match plain {
                true => {
                    let sums = Sums::new(from, to);
                    assert!(rewrite_plain(&mut packet, to.words(), sums, false));
                }
                false => rewrite(&mut packet, from, to, true),
            }
            word(&packet, 26).unwrap()
        };
        for plain in [false, true] {
            assert!((1..=u16::MAX).all(|sum| after(sum, plain) != 0));
            assert_eq!(after(0, plain), 0, "none stays none");
        }
    }

    proptest! {
        #[test]
        fn a_plain_packet_is_read_and_written_as_any_other(
            (mut bytes, from, to) in (any::<[u8; 44]>(), flow(), flow()),
            protocol in prop_oneof![Just(TCP), Just(UDP)],
            sums in prop_oneof![Just([0; 2]), Just([0xff; 2]), any::<[u8; 2]>()],
            len in 24..=44_usize,
            reply in any::<bool>(),
            first in prop_oneof![4 => Just(0x45), 1 => any::<u8>()],
            fragment in prop_oneof![4 => Just([0x40, 0]), 1 => any::<[u8; 2]>()],
        ) {
            bytes[0] = first;
            bytes[2..4].copy_from_slice(&[0, u8::try_from(len).unwrap()]);
            bytes[6..8].copy_from_slice(&fragment);
            bytes[9] = protocol;
            bytes[12..16].copy_from_slice(&from.src.to_be_bytes());
            bytes[16..20].copy_from_slice(&from.dst.to_be_bytes());
            put(&mut bytes, 20, from.sport);
            put(&mut bytes, 22, from.dport);
            bytes[26..28].copy_from_slice(&sums);
            bytes[36..38].copy_from_slice(&sums);
            if let Some(plain) = plain_ends(&bytes[..len], 0) {
                prop_assert_eq!(Some((protocol, from)), ends(&bytes[..len], 0, true));
                prop_assert_eq!(plain, (protocol, from.words()));
                let mut other = bytes;
                let known = if reply { (to.reverse(), from.reverse()) } else { (from, to) };
                let sums = Sums::new(known.0, known.1);
                let closes = protocol == TCP && bytes[33] & (FIN | RST) != 0;
                let done = rewrite_plain(&mut bytes[..len], to.words(), sums, reply);
                prop_assert_eq!(done, protocol == UDP || len >= 38 && !closes);
                if done {
                    rewrite(&mut other[..len], from, to, true);
                }
                // Two sums are one, of which this may have either.
                for at in [10, 26, 36] {
                    if word(&bytes, at) == Some(!0) && word(&other, at) == Some(0) {
                        put(&mut bytes, at, 0);
                    }
                }
                prop_assert_eq!(bytes, other);
            } else {
                let is_plain = first == 0x45 && fragment[0] & 0x1f == 0 && fragment[1] == 0;
                prop_assert!(len < PLAIN_BYTES || !is_plain);
            }
        }
    }
}
