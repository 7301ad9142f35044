//! Addresses of the host: `ifaddrmsg` and its attributes.

use super::{IPV4, IPV6, Malformed, Message, Request, fixed, u32_at};
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
/// Another host has it: the kernel keeps it but does not use it.
const IFA_F_DADFAILED: u32 = 0x08;

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
    let addr = local.or(addr).filter(|addr| super::family_of(*addr) == family);
    let addr = addr.ok_or(Malformed::Value { what: "address of family", value: family.into() })?;
    if prefix_len > if family == IPV4 { 32 } else { 128 } {
        return Err(Malformed::Value { what: "prefix length", value: prefix_len.into() });
    }
    Ok(Some(AddressUpdate {
        link: u32_at(h, 4),
        addr,
        prefix_len,
        gone: message.kind == DEL || flags & IFA_F_DADFAILED != 0,
        secondary: flags & IFA_F_SECONDARY != 0,
    }))
}

/// Request for all addresses of both families.
pub fn dump(seq: u32) -> Vec<u8> {
    Request::dump(GET, seq).fixed(&[0; 8]).finish()
}
