//! MRT table dumps: TABLE_DUMP_V2 (type 13) and TABLE_DUMP (type 12).
//!
//! Source: RFC 6396 section 4; RFC 8050 for additional paths. A record is a header of 12 bytes
//! (time u32, type u16, subtype u16, length u32, all in network order) and its body. Version 2 has a
//! record a prefix with an entry for each peer, version 1 a record for each prefix and peer. Of the
//! peers the first is taken unless one is chosen. Other types (updates, for one) are passed over.
//!
//! Cost: a record is walked only up to the entry that is taken.

use core::net::IpAddr;

use super::{FileHop, Outcome, Step, TableEntry, Until};
use crate::bgp::{self, Fields, Words, masked};
use crate::event::AnyPrefix;

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
        let mut header = Fields(bytes);
        let Ok((kind, subtype, len)) = header.record() else { return Step::More };
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
            version_2(Fields(body), subtype, peer)
        } else {
            self.version_1(Fields(body), subtype)
        };
        let outcome = match found {
            Ok(Some(entry)) => Outcome::Entry(entry),
            Ok(None) => Outcome::Nothing,
            Err(words) => Outcome::Reject(words.into()),
        };
        Step::Done(HEADER_BYTES + size, outcome)
    }

    fn version_1(&mut self, mut body: Fields<'_>, afi: u16) -> Result<Option<TableEntry>, Words> {
        // view u16, sequence u16
        body.take(4)?;
        let addr: IpAddr = match afi {
            AFI_IPV4 => body.next_hop(4)?,
            AFI_IPV6 => body.next_hop(16)?,
            _ => return Err("TABLE_DUMP of an unknown address family"),
        };
        let len = body.u8()?;
        let prefix = masked(addr, len)?;
        // status u8, time u32, peer address, peer AS u16
        body.take(1 + 4 + if afi == AFI_IPV4 { 4 } else { 16 } + 2)?;
        if self.last == Some(prefix) {
            return Ok(None);
        }
        let attributes = body.counted()?;
        let hop = next_hop(attributes, afi == AFI_IPV6)?.ok_or("no next hop")?;
        // Only now: where this peer's route is of no use, the next peer's may be.
        self.last = Some(prefix);
        Ok(Some(TableEntry { prefix, hop: FileHop::Addr(hop) }))
    }
}

fn version_2(
    mut body: Fields<'_>,
    subtype: u16,
    peer: Option<u16>,
) -> Result<Option<TableEntry>, Words> {
    let v6 = matches!(subtype, RIB_IPV6_UNICAST | RIB_IPV6_UNICAST_ADDPATH);
    let paths = matches!(subtype, RIB_IPV4_UNICAST_ADDPATH | RIB_IPV6_UNICAST_ADDPATH);
    body.take(4)?; // sequence
    let prefix = body.prefix(v6)?;
    let count = body.u16()?;
    let mut hopless = false;
    for _ in 0..count {
        let index = body.u16()?;
        // time u32, then the path's number where there are several
        body.take(if paths { 8 } else { 4 })?;
        let attributes = body.counted()?;
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
fn next_hop(attributes: Fields<'_>, v6: bool) -> Result<Option<IpAddr>, Words> {
    let (mut plain, mut multi) = (None, None);
    for attribute in attributes.attributes() {
        let (kind, mut data) = attribute?;
        match kind {
            bgp::NEXT_HOP => {
                plain = Some(data.next_hop(4)?);
                if !v6 {
                    return Ok(plain);
                }
            }
            bgp::MP_REACH_NLRI => {
                // RFC 6396 4.3.4 keeps only the next hop; some writers keep all, which then begins
                // with the high byte of the address family, 0, where no next hop has length 0.
                if data.0.first() == Some(&0) {
                    data.take(3)?;
                }
                let len = data.u8()?;
                multi = Some(data.next_hop(len)?);
            }
            _ => {}
        }
    }
    Ok(if v6 { multi.or(plain) } else { plain.or(multi) })
}
