//! Addresses of the host: `ifaddrmsg` and its attributes, and how to set one.

use core::net::IpAddr;

use super::{
    F_ACK, F_CREATE, F_REPLACE, IPV4, IPV6, Malformed, Message, Request, family_of, fixed, u32_at,
};
use crate::event::AddressUpdate;

/// `RTM_NEWADDR`.
pub const NEW: u16 = 20;
/// `RTM_DELADDR`.
pub const DEL: u16 = 21;
const GET: u16 = 22;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;

const IFA_F_SECONDARY: u32 = 0x01;
/// Used at once, without duplicate address detection; IPv6 only.
const IFA_F_NODAD: u8 = 0x02;
/// Another host has it: the kernel keeps it but does not use it.
const IFA_F_DADFAILED: u32 = 0x08;
/// Its prefix gets no route.
const IFA_F_NOPREFIXROUTE: u32 = 0x200;

/// Reads the body of [`NEW`] or [`DEL`]. `None` for families other than IPv4 and IPv6.
///
/// An address that another host has too (duplicate address detection failed) is as good as gone.
///
/// # Errors
/// [`Malformed`], also for a message without an address or with one of the other family.
pub fn parse(message: &Message<'_>) -> Result<Option<AddressUpdate>, Malformed> {
    let (h, attrs) = fixed::<8>(message.body, "ifaddrmsg")?;
    let [family, prefix_len, flags, ..] = *h;
    if family != IPV4 && family != IPV6 {
        return Ok(None);
    }
    let (mut addr, mut local, mut flags) = (None, None, u32::from(flags));
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            IFA_ADDRESS => addr = Some(attr.ip()?),
            // On point-to-point links this is ours and IFA_ADDRESS the peer's.
            IFA_LOCAL => local = Some(attr.ip()?),
            IFA_FLAGS => flags = attr.u32()?,
            _ => {}
        }
    }
    let is_own = |found: &IpAddr| family_of(*found) == family;
    let peer = addr.filter(|peer| local.is_some_and(|local| local != *peer)).filter(is_own);
    let addr = local
        .or(addr)
        .filter(is_own)
        .ok_or(Malformed::Value { what: "address of family", value: family.into() })?;
    if prefix_len > if family == IPV4 { 32 } else { 128 } {
        return Err(Malformed::Value { what: "prefix length", value: prefix_len.into() });
    }
    Ok(Some(AddressUpdate {
        link: u32_at(h, 4),
        addr,
        peer,
        prefix_len,
        no_prefix: flags & IFA_F_NOPREFIXROUTE != 0,
        gone: message.kind == DEL || flags & IFA_F_DADFAILED != 0,
        secondary: flags & IFA_F_SECONDARY != 0,
    }))
}

/// Request for all addresses of both families.
pub fn dump(seq: u32) -> Vec<u8> {
    Request::dump(GET, seq).fixed(&[0; 8]).finish()
}

/// Request to give a link a host address (/32 or /128), one of IPv6 without duplicate address detection. One that is there
/// stays.
pub fn set_request(seq: u32, link: u32, addr: IpAddr) -> Vec<u8> {
    request(NEW, F_ACK | F_CREATE | F_REPLACE, seq, link, addr)
}

/// Request to delete a host address of a link.
pub fn delete_request(seq: u32, link: u32, addr: IpAddr) -> Vec<u8> {
    request(DEL, F_ACK, seq, link, addr)
}

fn request(kind: u16, flags: u16, seq: u32, link: u32, addr: IpAddr) -> Vec<u8> {
    let (prefix_len, address_flags) = if addr.is_ipv4() { (32, 0) } else { (128, IFA_F_NODAD) };
    let head = [[family_of(addr), prefix_len, address_flags, 0], link.to_ne_bytes()];
    let request = Request::query(kind, flags, seq).fixed(head.as_flattened());
    request.ip(IFA_LOCAL, addr).ip(IFA_ADDRESS, addr).finish()
}
