//! IPsec policies that forwarded packets meet.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::{IPV4, IPV6, Malformed, Message, Request, u16_at};
use super::Obstacle;

/// `XFRM_MSG_NEWPOLICY`.
pub const NEW: u16 = 0x13;
const GET: u16 = 0x15;

/// Size of `xfrm_userpolicy_info`: a selector (56 bytes), lifetimes (64 and 32), priority, index,
/// then direction at 160 and action at 161.
const INFO_BYTES: usize = 168;
const DIRECTION: usize = 160;
const ACTION: usize = 161;

/// Size of `xfrm_userpolicy_id`.
const ID_BYTES: usize = 64;

/// Reads [`NEW`]. `None` for policies of sockets and of packets for this host.
///
/// # Errors
/// [`Malformed`].
pub fn parse(message: &Message<'_>) -> Result<Option<Obstacle>, Malformed> {
    let body = message.body;
    let Some(info) = body.first_chunk::<INFO_BYTES>() else {
        let what = "xfrm_userpolicy_info";
        return Err(Malformed::Short { what, need: INFO_BYTES, have: body.len() });
    };
    // A forwarded packet is checked against the policies of direction fwd, then, on egress,
    // encapsulated by those of direction out.
    let direction = match info[DIRECTION] {
        1 => "out",
        2 => "fwd",
        _ => return Ok(None),
    };
    let action = if info[ACTION] == 0 { "allow" } else { "block" };
    let (dst_len, src_len) = (info[42], info[43]);
    let family = u8::try_from(u16_at(info, 40)).unwrap_or(0);
    let (Some(dst), Some(src)) = (address(info, 0, family), address(info, 16, family)) else {
        return Err(Malformed::Value { what: "policy family", value: family.into() });
    };
    let what = format!("ipsec policy dir {direction} src {src}/{src_len} dst {dst}/{dst_len}");
    Ok(Some(Obstacle { subsystem: "xfrm", link: None, what: format!("{what} {action}") }))
}

fn address(info: &[u8; INFO_BYTES], at: usize, family: u8) -> Option<IpAddr> {
    let bytes = info[at..].first_chunk::<16>()?;
    match family {
        // A policy of no family matches both.
        0 | IPV6 => Some(Ipv6Addr::from(*bytes).into()),
        IPV4 => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
        _ => None,
    }
}

/// Request for all policies.
pub fn dump(seq: u32) -> Vec<u8> {
    Request::dump(GET, seq).fixed(&[0; ID_BYTES]).finish()
}
