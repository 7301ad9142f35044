//! Addresses, ports and sequence numbers in a packet, and their checksums.

use super::pattern::FlowId;
use super::tcp::Deltas;
use crate::element::click::only::seen::{Seen, long, word};
use crate::frame::wire::checksum::{update, update_long};
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol::{TCP, UDP};

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
        put(transport, at, sum);
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
