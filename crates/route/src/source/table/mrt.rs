//! MRT table dumps: TABLE_DUMP_V2 (type 13) and TABLE_DUMP (type 12).
//!
//! Source: RFC 6396 section 4; RFC 8050 for additional paths. A record is a header of 12 bytes
//! (time u32, type u16, subtype u16, length u32, all in network order) and its body. Version 2 has a
//! record a prefix with an entry for each peer, version 1 a record for each prefix and peer. Of the
//! peers the first is taken unless one is chosen. Other types (updates, for one) are passed over.
//!
//! Cost: a record is walked only up to the entry that is taken.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{FileHop, Outcome, Step, TableEntry, Until};
use crate::event::AnyPrefix;
use fingerpost_lpm::Prefix;

const HEADER_BYTES: usize = 12;
/// Real records stay below 1 MiB (a route of 1,000 peers); longer ones are not held in memory.
const RECORD_BYTES: usize = 16 << 20;

const TABLE_DUMP: u16 = 12;
const TABLE_DUMP_V2: u16 = 13;
const RIB_IPV4_UNICAST: u16 = 2;
const RIB_IPV6_UNICAST: u16 = 4;
const RIB_IPV4_UNICAST_ADDPATH: u16 = 8;
const RIB_IPV6_UNICAST_ADDPATH: u16 = 10;

const AFI_IPV4: u16 = 1;
const AFI_IPV6: u16 = 2;

const ATTR_EXTENDED_LEN: u8 = 0x10;
const ATTR_NEXT_HOP: u8 = 3;
const ATTR_MP_REACH_NLRI: u8 = 14;

/// Whether these bytes can be the header of a record of a type still in use (RFC 6396 section 4:
/// OSPFv2 11, TABLE_DUMP 12, TABLE_DUMP_V2 13, BGP4MP 16 and 17, ISIS 32 and 33, OSPFv3 48 and 49).
/// Text never can: it has no zero bytes.
pub(super) fn is_header(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, _, _, 0, 11..=13 | 16 | 17 | 32 | 33 | 48 | 49, ..])
}

/// What is kept from one record to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Mrt {
    /// The prefix of the record before, in version 1: further peers of it follow it.
    last: Option<AnyPrefix>,
}

impl Mrt {
    pub(super) fn step(&mut self, bytes: &[u8], peer: Option<u16>) -> Step {
        let mut header = Cursor(bytes);
        let Some((_time, kind, subtype, len)) = header.header() else { return Step::More };
        let wanted = kind == TABLE_DUMP
            || kind == TABLE_DUMP_V2
                && [
                    RIB_IPV4_UNICAST,
                    RIB_IPV6_UNICAST,
                    RIB_IPV4_UNICAST_ADDPATH,
                    RIB_IPV6_UNICAST_ADDPATH,
                ]
                .contains(&subtype);
        if !wanted {
            return Step::Skip(HEADER_BYTES, Until::Bytes(len.into()), Outcome::Nothing);
        }
        let Some(size) = usize::try_from(len).ok().filter(|&size| size <= RECORD_BYTES) else {
            let words = format!("{len} bytes long, at most {RECORD_BYTES} make sense");
            return Step::Skip(HEADER_BYTES, Until::Bytes(len.into()), Outcome::Reject(words));
        };
        let Some(body) = header.0.get(..size) else { return Step::More };
        let found = if kind == TABLE_DUMP_V2 {
            version_2(Cursor(body), subtype, peer)
        } else {
            self.version_1(Cursor(body), subtype)
        };
        let outcome = match found {
            Ok(Some(entry)) => Outcome::Entry(entry),
            Ok(None) => Outcome::Nothing,
            Err(words) => Outcome::Reject(words.into()),
        };
        Step::Done(HEADER_BYTES + size, outcome)
    }

    fn version_1(&mut self, mut body: Cursor<'_>, afi: u16) -> Result<Option<TableEntry>, Words> {
        // view u16, sequence u16
        body.skip(4)?;
        let addr: IpAddr = match afi {
            AFI_IPV4 => body.v4()?.into(),
            AFI_IPV6 => body.v6()?.into(),
            _ => return Err("TABLE_DUMP of an unknown address family"),
        };
        let len = body.u8()?;
        let prefix = masked(addr, len)?;
        // status u8, time u32, peer address, peer AS u16
        body.skip(1 + 4 + if afi == AFI_IPV4 { 4 } else { 16 } + 2)?;
        if self.last == Some(prefix) {
            return Ok(None);
        }
        let size = body.u16()?;
        let attributes = body.take(size.into())?;
        let hop = next_hop(attributes, afi == AFI_IPV6)?.ok_or("no next hop")?;
        // Only now: where this peer's route is of no use, the next peer's may be.
        self.last = Some(prefix);
        Ok(Some(TableEntry { prefix, hop: FileHop::Addr(hop) }))
    }
}

fn version_2(
    mut body: Cursor<'_>,
    subtype: u16,
    peer: Option<u16>,
) -> Result<Option<TableEntry>, Words> {
    let v6 = matches!(subtype, RIB_IPV6_UNICAST | RIB_IPV6_UNICAST_ADDPATH);
    let paths = matches!(subtype, RIB_IPV4_UNICAST_ADDPATH | RIB_IPV6_UNICAST_ADDPATH);
    body.skip(4)?; // sequence
    let prefix = body.prefix(v6)?;
    let count = body.u16()?;
    let mut hopless = false;
    for _ in 0..count {
        let index = body.u16()?;
        // time u32, then the path's number where there are several
        body.skip(if paths { 8 } else { 4 })?;
        let size = body.u16()?;
        let attributes = body.take(size.into())?;
        if peer.is_some_and(|peer| peer != index) {
            continue;
        }
        if let Some(hop) = next_hop(attributes, v6)? {
            return Ok(Some(TableEntry { prefix, hop: FileHop::Addr(hop) }));
        }
        hopless = true;
    }
    if hopless { Err("no next hop") } else { Ok(None) }
}

/// The next hop among BGP path attributes: NEXT_HOP for IPv4, MP_REACH_NLRI for IPv6, or the other
/// one where that is missing (RFC 8950).
fn next_hop(attributes: &[u8], v6: bool) -> Result<Option<IpAddr>, Words> {
    let (mut plain, mut multi) = (None, None);
    let mut rest = Cursor(attributes);
    while !rest.0.is_empty() {
        let (flags, kind) = (rest.u8()?, rest.u8()?);
        let len = if flags & ATTR_EXTENDED_LEN != 0 { rest.u16()? } else { rest.u8()?.into() };
        let mut data = Cursor(rest.take(len.into())?);
        match kind {
            ATTR_NEXT_HOP => {
                plain = Some(IpAddr::V4(data.v4()?));
                if !v6 {
                    return Ok(plain);
                }
            }
            ATTR_MP_REACH_NLRI => {
                // RFC 6396 4.3.4 keeps only the next hop; some writers keep all, which then begins
                // with the high byte of the address family, 0, where no next hop has length 0.
                if data.0.first() == Some(&0) {
                    data.skip(3)?;
                }
                let len = data.u8()?;
                multi = Some(match len {
                    4 => IpAddr::V4(data.v4()?),
                    16 => data.v6()?.into(),
                    // A global address and a link-local one; either may be all that there is.
                    32 => {
                        let (global, local) = (data.v6()?, data.v6()?);
                        if global.is_unspecified() { local.into() } else { global.into() }
                    }
                    _ => return Err("next hop of an odd length"),
                });
            }
            _ => {}
        }
    }
    Ok(if v6 { multi.or(plain) } else { plain.or(multi) })
}

/// Bits behind the length carry no meaning in BGP (RFC 4271 section 4.3).
fn masked(addr: IpAddr, len: u8) -> Result<AnyPrefix, Words> {
    match addr {
        IpAddr::V4(a) if len <= 32 => Ok(AnyPrefix::V4(Prefix::masked(a.to_bits(), len))),
        IpAddr::V6(a) if len <= 128 => Ok(AnyPrefix::V6(Prefix::masked(a.to_bits(), len))),
        _ => Err("prefix length beyond the family's"),
    }
}

/// Why a record makes no sense.
type Words = &'static str;

const SHORT: Words = "incomplete inside a field";

/// Reads fields in network order from the front.
#[derive(Clone, Copy)]
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Words> {
        let (head, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*head)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Words> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(SHORT)?;
        self.0 = rest;
        Ok(head)
    }

    fn skip(&mut self, len: usize) -> Result<(), Words> {
        self.take(len).map(drop)
    }

    fn u8(&mut self) -> Result<u8, Words> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Words> {
        self.array().map(u16::from_be_bytes)
    }

    fn v4(&mut self) -> Result<Ipv4Addr, Words> {
        self.array::<4>().map(Ipv4Addr::from)
    }

    fn v6(&mut self) -> Result<Ipv6Addr, Words> {
        self.array::<16>().map(Ipv6Addr::from)
    }

    /// Length in bits, then as many bytes as hold them.
    fn prefix(&mut self, v6: bool) -> Result<AnyPrefix, Words> {
        let len = self.u8()?;
        let bytes = self.take(usize::from(len).div_ceil(8))?;
        let mut addr = [0; 16];
        addr.get_mut(..bytes.len())
            .ok_or("prefix length beyond the family's")?
            .copy_from_slice(bytes);
        let addr = if v6 {
            Ipv6Addr::from(addr).into()
        } else {
            Ipv4Addr::new(addr[0], addr[1], addr[2], addr[3]).into()
        };
        masked(addr, len)
    }

    /// Time, type, subtype and length of a record.
    fn header(&mut self) -> Option<(u32, u16, u16, u32)> {
        let time = self.array().ok().map(u32::from_be_bytes)?;
        let (kind, subtype) = (self.u16().ok()?, self.u16().ok()?);
        let len = self.array().ok().map(u32::from_be_bytes)?;
        Some((time, kind, subtype, len))
    }
}
