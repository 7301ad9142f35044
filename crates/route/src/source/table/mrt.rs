//! MRT table dumps: TABLE_DUMP_V2 (type 13) and TABLE_DUMP (type 12).
//!
//! Source: RFC 6396 section 4; RFC 8050 for additional paths. A record is a header of 12 bytes
//! (time u32, type u16, subtype u16, length u32, all in network order) and its body. Version 2 has a
//! record a prefix with an entry for each peer, version 1 a record for each prefix and peer. Of the
//! peers the first is taken unless one is chosen, or the best path. Unicast prefixes; other types (updates, for one) are passed
//! over.
//!
//! The best path is that of [`crate::bgp::ribs`]; a dump does not state which peers are internal, so all count as external.
//!
//! Cost: a record is walked only up to the entry that is taken; all of it for the best path.

use core::net::IpAddr;

use super::{FileHop, Outcome, PeerChoice, Step, TableEntry, Until};
use crate::bgp::mrt::HEADER_BYTES;
use crate::bgp::ribs::{Peer, Rank, rank};
use crate::bgp::{self, Fields, Words, masked, update};
use crate::event::AnyPrefix;

/// Real records stay below 1 MiB (a route of 1,000 peers); longer ones are not held in memory.
const RECORD_BYTES: usize = 16 << 20;

const TABLE_DUMP: u16 = 12;
const TABLE_DUMP_V2: u16 = 13;
const PEER_INDEX_TABLE: u16 = 1;

/// Layout of the records of a subtype of TABLE_DUMP_V2.
#[derive(Clone, Copy)]
struct Layout {
    /// Whether the prefixes are IPv6; `None` where the record names its family.
    v6: Option<bool>,
    /// Whether paths have identifiers.
    paths: bool,
}

impl Layout {
    /// `None` for subtypes without unicast prefixes.
    fn of(subtype: u16) -> Option<Self> {
        let (v6, paths) = match subtype {
            2 => (Some(false), false),
            4 => (Some(true), false),
            6 => (None, false),
            8 => (Some(false), true),
            10 => (Some(true), true),
            12 => (None, true),
            _ => return None,
        };
        Some(Self { v6, paths })
    }
}

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
    /// The best path of that prefix so far.
    best: Option<(Rank, TableEntry)>,
    /// Those of the index table, or, in version 1, in order of appearance.
    peers: Vec<Peer>,
}

impl Mrt {
    pub(super) fn step(&mut self, bytes: &[u8], choice: PeerChoice) -> Step {
        let mut header = Fields(bytes);
        let Ok((kind, subtype, len)) = header.record() else { return Step::More };
        let layout = Layout::of(subtype).filter(|_| kind == TABLE_DUMP_V2);
        let index = (kind, subtype) == (TABLE_DUMP_V2, PEER_INDEX_TABLE);
        if layout.is_none() && kind != TABLE_DUMP && !(index && choice == PeerChoice::Best) {
            return Step::Skip(HEADER_BYTES, Until::Bytes(len.into()), Outcome::Nothing);
        }
        let Some(size) = usize::try_from(len).ok().filter(|&size| size <= RECORD_BYTES) else {
            let words = format!("{len} bytes long, at most {RECORD_BYTES} make sense");
            return Step::Skip(HEADER_BYTES, Until::Bytes(len.into()), Outcome::Reject(words));
        };
        let Some(body) = header.0.get(..size) else { return Step::More };
        let found = match layout {
            Some(layout) => self.version_2(Fields(body), layout, choice),
            None if index => self.peer_index(Fields(body)).map(|()| None),
            None => self.version_1(Fields(body), subtype, choice),
        };
        let outcome = match found {
            Ok(Some(entry)) => Outcome::Entry(entry),
            Ok(None) => Outcome::Nothing,
            Err(words) => Outcome::Reject(words.into()),
        };
        Step::Done(HEADER_BYTES + size, outcome)
    }

    /// The best path of the last prefix, once there are no more records.
    pub(super) fn rest(&mut self) -> Option<TableEntry> {
        self.best.take().map(|(_, entry)| entry)
    }

    fn peer_index(&mut self, mut body: Fields<'_>) -> Result<(), Words> {
        const V6: u8 = 1;
        const LONG_AS: u8 = 2;
        self.peers.clear();
        body.take(4)?; // the collector's identifier
        body.counted()?; // name of the view
        for _ in 0..body.u16()? {
            let kind = body.u8()?;
            let bgp_id = body.array().map(u32::from_be_bytes)?;
            let addr = body.next_hop(if kind & V6 == 0 { 4 } else { 16 })?;
            body.take(if kind & LONG_AS == 0 { 2 } else { 4 })?;
            self.peers.push(Peer { addr, bgp_id, external: true });
        }
        Ok(())
    }

    fn version_1(
        &mut self,
        mut body: Fields<'_>,
        afi: u16,
        choice: PeerChoice,
    ) -> Result<Option<TableEntry>, Words> {
        // view u16, sequence u16
        body.take(4)?;
        let (v6, addr_len) = match afi {
            AFI_IPV4 => (false, 4),
            AFI_IPV6 => (true, 16),
            _ => return Err("TABLE_DUMP of an unknown address family"),
        };
        let addr = body.next_hop(addr_len)?;
        let prefix = masked(addr, body.u8()?)?;
        // status u8, time u32, peer address, peer AS u16
        body.take(1 + 4)?;
        let peer = body.next_hop(addr_len)?;
        body.take(2)?;
        let known = self.last == Some(prefix);
        if choice == PeerChoice::First && known {
            return Ok(None);
        }
        let attributes = body.counted()?;
        let entry = |hop| TableEntry { prefix, hop: FileHop::Addr(hop) };
        match choice {
            PeerChoice::First => {
                let hop = next_hop(attributes, v6)?.ok_or("no next hop")?;
                // Only now: where this peer's route is of no use, the next peer's may be.
                self.last = Some(prefix);
                Ok(Some(entry(hop)))
            }
            PeerChoice::Number(number) => {
                let at = self.peers.iter().position(|known| known.addr == peer);
                let at = at.unwrap_or_else(|| {
                    self.peers.push(Peer { addr: peer, bgp_id: 0, external: true });
                    self.peers.len() - 1
                });
                if at != usize::from(number) {
                    return Ok(None);
                }
                Ok(Some(entry(next_hop(attributes, v6)?.ok_or("no next hop")?)))
            }
            PeerChoice::Best => {
                let attributes = update::attributes(attributes, v6, true)?.ok_or("no next hop")?;
                let peer = Peer { addr: peer, bgp_id: 0, external: true };
                let new = (rank(&peer, 0, &attributes), entry(attributes.next_hop));
                self.last = Some(prefix);
                match &mut self.best {
                    Some(best) if known => {
                        if new.0 < best.0 {
                            *best = new;
                        }
                        Ok(None)
                    }
                    best => Ok(best.replace(new).map(|(_, entry)| entry)),
                }
            }
        }
    }

    fn version_2(
        &self,
        mut body: Fields<'_>,
        layout: Layout,
        choice: PeerChoice,
    ) -> Result<Option<TableEntry>, Words> {
        body.take(4)?; // sequence
        let v6 = match layout.v6 {
            Some(v6) => v6,
            None => match update::family(&mut body)? {
                Some(v6) => v6,
                None => return Ok(None),
            },
        };
        let prefix = body.prefix(v6)?;
        let count = body.u16()?;
        let entry = |hop| TableEntry { prefix, hop: FileHop::Addr(hop) };
        let (mut hopless, mut best) = (false, None);
        for _ in 0..count {
            let index = body.u16()?;
            body.take(4)?; // time
            let path = if layout.paths { body.array().map(u32::from_be_bytes)? } else { 0 };
            let attributes = body.counted()?;
            match choice {
                PeerChoice::Number(number) if number != index => continue,
                PeerChoice::Best => {
                    if let Some(attributes) = update::attributes(attributes, v6, false)? {
                        // A peer that no table names ranks by its number.
                        let unknown =
                            Peer { addr: [0; 4].into(), bgp_id: index.into(), external: true };
                        let peer = self.peers.get(usize::from(index)).unwrap_or(&unknown);
                        let rank = rank(peer, path, &attributes);
                        if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                            best = Some((rank, attributes.next_hop));
                        }
                        continue;
                    }
                }
                _ => {
                    if let Some(hop) = next_hop(attributes, v6)? {
                        return Ok(Some(entry(hop)));
                    }
                }
            }
            hopless = true;
        }
        match best {
            Some((_, hop)) => Ok(Some(entry(hop))),
            None if hopless => Err("no next hop"),
            None => Ok(None),
        }
    }
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
