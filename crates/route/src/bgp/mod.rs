//! Fields of BGP messages and of MRT records, in network order.
//!
//! Source: RFC 4271 section 4.3 (prefixes, path attributes), RFC 4760 (next hops of IPv6), RFC 6396 section 2 (header of
//! a record).

pub mod dump;
pub mod mrt;
pub mod path_ids;
pub mod ribs;
pub mod update;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fingerpost_lpm::Prefix;

use crate::event::AnyPrefix;

/// Type of the path attribute with the next hop of IPv4.
pub const NEXT_HOP: u8 = 3;
/// Type of the path attribute with prefixes of another family, and their next hop.
pub const MP_REACH_NLRI: u8 = 14;
/// Type of the path attribute with withdrawn prefixes of another family.
pub const MP_UNREACH_NLRI: u8 = 15;

const EXTENDED_LEN: u8 = 0x10;

/// Reason why a message or record makes no sense.
pub type Words = &'static str;

const BEYOND: Words = "prefix length beyond the family's";

/// Bytes from whose front fields are taken; one that is not whole is an error.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::missing_errors_doc, reason = "all fail alike, as the type documents")]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// A field of `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Words> {
        let (head, rest) = self.0.split_first_chunk().ok_or("incomplete inside a field")?;
        self.0 = rest;
        Ok(*head)
    }

    /// A field of `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Words> {
        let (head, rest) = self.0.split_at_checked(len).ok_or("incomplete inside a field")?;
        self.0 = rest;
        Ok(head)
    }

    /// An integer of 8 bits.
    pub fn u8(&mut self) -> Result<u8, Words> {
        self.array().map(|[byte]| byte)
    }

    /// An integer of 16 bits.
    pub fn u16(&mut self) -> Result<u16, Words> {
        self.array().map(u16::from_be_bytes)
    }

    /// Type, subtype and length of an MRT record.
    pub fn record(&mut self) -> Result<(u16, u16, u32), Words> {
        self.take(4)?; // time
        Ok((self.u16()?, self.u16()?, self.array().map(u32::from_be_bytes)?))
    }

    /// A length of two bytes, and so many bytes.
    pub fn counted(&mut self) -> Result<Self, Words> {
        let len = self.u16()?;
        self.take(len.into()).map(Self)
    }

    /// A next hop of `len` bytes.
    pub fn next_hop(&mut self, len: u8) -> Result<IpAddr, Words> {
        let mut v6 = || self.array::<16>().map(Ipv6Addr::from);
        Ok(match len {
            4 => Ipv4Addr::from(self.array::<4>()?).into(),
            16 => v6()?.into(),
            // A global address and a link-local one; either may be all that there is.
            32 => {
                let (global, local) = (v6()?, v6()?);
                if global.is_unspecified() { local.into() } else { global.into() }
            }
            _ => return Err("next hop of an odd length"),
        })
    }

    /// A length in bits, then as many bytes as hold them.
    pub fn prefix(&mut self, v6: bool) -> Result<AnyPrefix, Words> {
        let len = self.u8()?;
        let bytes = self.take(usize::from(len).div_ceil(8))?;
        let mut addr = [0; 16];
        addr.get_mut(..bytes.len()).ok_or(BEYOND)?.copy_from_slice(bytes);
        let [a, b, c, d, ..] = addr;
        masked(if v6 { addr.into() } else { [a, b, c, d].into() }, len)
    }

    /// Path attributes, all that are left: type and value of each.
    pub fn attributes(mut self) -> impl Iterator<Item = Result<(u8, Self), Words>> {
        core::iter::from_fn(move || (!self.0.is_empty()).then(|| self.attribute()))
    }

    fn attribute(&mut self) -> Result<(u8, Self), Words> {
        let [flags, kind] = self.array()?;
        let len = if flags & EXTENDED_LEN != 0 { self.u16()? } else { self.u8()?.into() };
        Ok((kind, Self(self.take(len.into())?)))
    }
}

/// Prefix of an address; bits behind the length carry no meaning in BGP (RFC 4271 section 4.3).
///
/// # Errors
/// When the length is beyond that of the family.
pub fn masked(addr: IpAddr, len: u8) -> Result<AnyPrefix, Words> {
    match addr {
        IpAddr::V4(a) if len <= 32 => Ok(AnyPrefix::V4(Prefix::masked(a.to_bits(), len))),
        IpAddr::V6(a) if len <= 128 => Ok(AnyPrefix::V6(Prefix::masked(a.to_bits(), len))),
        _ => Err(BEYOND),
    }
}
