//! Neighbors: `ndmsg` and its attributes, and how to have the kernel resolve one, or set one.

use core::net::IpAddr;

use super::{
    F_ACK, F_CREATE, F_REPLACE, IPV4, IPV6, Malformed, Message, Request, family_of, fixed, u16_at,
    u32_at,
};
use crate::event::{Mac, NeighborState, NeighborUpdate};

/// `RTM_NEWNEIGH`.
pub const NEW: u16 = 28;
/// `RTM_DELNEIGH`.
pub const DEL: u16 = 29;
const GET: u16 = 30;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

const NUD_INCOMPLETE: u16 = 0x01;
const NUD_REACHABLE: u16 = 0x02;
const NUD_STALE: u16 = 0x04;
const NUD_DELAY: u16 = 0x08;
const NUD_PROBE: u16 = 0x10;
const NUD_FAILED: u16 = 0x20;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;

const NTF_USE: u8 = 0x01;
const NTF_PROXY: u8 = 0x08;

/// Reads the body of [`NEW`] or [`DEL`]. `None` for what is no neighbor of ours: bridge entries,
/// proxy entries, and entries of links without Ethernet addresses.
///
/// # Errors
/// [`Malformed`].
pub fn parse(message: &Message<'_>) -> Result<Option<NeighborUpdate>, Malformed> {
    let (h, attrs) = fixed::<12>(message.body, "ndmsg")?;
    let (family, link, state, flags) = (h[0], u32_at(h, 4), u16_at(h, 8), h[10]);
    if (family != IPV4 && family != IPV6) || flags & NTF_PROXY != 0 {
        return Ok(None);
    }
    let (mut addr, mut mac) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NDA_DST => addr = Some(attr.ip()?),
            NDA_LLADDR => mac = attr.data.try_into().ok().map(Mac),
            _ => {}
        }
    }
    let addr = addr.filter(|addr| family_of(*addr) == family);
    let addr = addr.ok_or(Malformed::Value { what: "neighbor of family", value: family.into() })?;
    let state = match (message.kind == DEL, state, mac) {
        (true, ..) => NeighborState::Gone,
        (_, NUD_PERMANENT, Some(mac)) => NeighborState::Permanent(mac),
        (_, NUD_REACHABLE | NUD_NOARP, Some(mac)) => NeighborState::Reachable(mac),
        (_, NUD_STALE | NUD_DELAY | NUD_PROBE, Some(mac)) => NeighborState::Stale(mac),
        (_, NUD_FAILED, _) => NeighborState::Failed,
        (_, NUD_INCOMPLETE, _) => NeighborState::Incomplete,
        // NUD_NONE: made a moment ago and not requested yet; a further message follows.
        // A usable state without an Ethernet address belongs to a tunnel.
        _ => return Ok(None),
    };
    Ok(Some(NeighborUpdate { link, addr, state }))
}

/// Request for all neighbors of both families.
pub fn dump(seq: u32) -> Vec<u8> {
    Request::dump(GET, seq).fixed(&[0; 12]).finish()
}

/// Request to use a neighbor: the kernel resolves one that is not known, probes a stale one, and
/// reports the outcome to its multicast group. An entry that is fresh stays as it is. There is no
/// reply unless it fails (unknown link: ENODEV).
pub fn use_request(seq: u32, link: u32, addr: IpAddr) -> Vec<u8> {
    // State NUD_NONE: the kernel chooses.
    request((NEW, F_CREATE), (0, NTF_USE), seq, link, addr).finish()
}

/// Request to confirm a neighbor whose link address is known, by unicast, now: the kernel reports it as reachable, or after
/// its probes without a reply as failed. Of one that is not known there is an error (ENOENT), and nothing else.
pub fn probe_request(seq: u32, link: u32, addr: IpAddr) -> Vec<u8> {
    request((NEW, F_REPLACE), (NUD_PROBE, 0), seq, link, addr).finish()
}

/// Has the kernel forget a neighbor. Without an answer unless it fails (there is none: ENOENT).
pub fn forget_request(seq: u32, link: u32, addr: IpAddr) -> Vec<u8> {
    request((DEL, 0), (0, 0), seq, link, addr).finish()
}

/// Request to set a neighbor that is never resolved, probed or forgotten. One that is there is replaced.
pub fn set_request(seq: u32, link: u32, addr: IpAddr, mac: Mac) -> Vec<u8> {
    let flags = F_ACK | F_CREATE | F_REPLACE;
    let request = request((NEW, flags), (NUD_PERMANENT, 0), seq, link, addr);
    request.attr(NDA_LLADDR, &mac.0).finish()
}

/// Request to delete a neighbor.
pub fn delete_request(seq: u32, link: u32, addr: IpAddr) -> Vec<u8> {
    request((DEL, F_ACK), (0, 0), seq, link, addr).finish()
}

/// A message of some kind about a neighbor, with flags of the message, and the state and flags of the neighbor.
fn request(
    (kind, flags): (u16, u16),
    (state, of): (u16, u8),
    seq: u32,
    link: u32,
    addr: IpAddr,
) -> Request {
    let [low, high] = state.to_ne_bytes();
    let head = [[family_of(addr), 0, 0, 0], link.to_ne_bytes(), [low, high, of, 0]];
    Request::query(kind, flags, seq).fixed(head.as_flattened()).ip(NDA_DST, addr)
}
