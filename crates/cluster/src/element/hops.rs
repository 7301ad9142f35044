//! TTL and hop limit of packets between nodes: a cluster is one hop, whatever path a packet takes through it.
//!
//! Source: RFC 1624 for the checksum.
//! Cost:   a header that is in the cache.

use fingerpost_packet::frame::Batch;
use fingerpost_packet::frame::wire::checksum::update;
use fingerpost_packet::frame::wire::{ETHER_BYTES, Ether, Ip4Mut, Ip6Mut, ether};

/// Gives back the hop that the ingress node has counted.
pub(super) fn count_up(frame: &mut [u8], ipv6: bool) {
    change(frame, ipv6, |hops| Some(hops.saturating_add(1)));
}

/// Counts another hop of packet `i`, which has a link header; false where none is left.
pub(super) fn count_down(batch: &mut Batch, i: usize) -> bool {
    let ipv6 = Ether::of(batch.bytes(i)).is_some_and(|ether| ether.kind() == ether::TYPE_IP6);
    change(batch.bytes_mut(i), ipv6, |hops| hops.checked_sub(1).filter(|left| *left > 0))
}

/// Changes the hops of a packet behind a link header; false, and nothing changes, where `to` has no number for them.
fn change(frame: &mut [u8], ipv6: bool, to: impl Fn(u8) -> Option<u8>) -> bool {
    if ipv6 {
        let Some(mut ip) = Ip6Mut::at(frame, ETHER_BYTES) else { return false };
        let Some(hops) = to(ip.view().hop_limit()) else { return false };
        ip.set_hop_limit(hops);
        return true;
    }
    let Some(mut ip) = Ip4Mut::at(frame, ETHER_BYTES) else { return false };
    let (ttl, protocol) = (ip.view().ttl(), ip.view().protocol());
    let Some(new) = to(ttl) else { return false };
    let word = |ttl: u8| u16::from_be_bytes([ttl, protocol]);
    let sum = update(ip.view().checksum(), word(ttl), word(new));
    ip.set_ttl(new);
    ip.set_checksum(sum);
    true
}
