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
use crate::bgp::mrt::{
    HEADER_BYTES, OldEntry, PEER_INDEX_TABLE, RECORD_BYTES, RibEntry, RibRecord, TABLE_DUMP,
    TABLE_DUMP_V2, peer_index,
};
use crate::bgp::ribs::{Peer, Rank, rank};
use crate::bgp::update::{self, AsNumbers};
use crate::bgp::{self, Fields, Words};
use crate::event::AnyPrefix;

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
        let routes = kind == TABLE_DUMP_V2 && RibRecord::is_of(subtype);
        let index = (kind, subtype) == (TABLE_DUMP_V2, PEER_INDEX_TABLE);
        if !routes && kind != TABLE_DUMP && !(index && choice == PeerChoice::Best) {
            return Step::Skip(HEADER_BYTES, Until::Bytes(len.into()), Outcome::Nothing);
        }
        let Some(size) = usize::try_from(len).ok().filter(|&size| size <= RECORD_BYTES) else {
            let words = format!("{len} bytes long, at most {RECORD_BYTES} make sense");
            return Step::Skip(HEADER_BYTES, Until::Bytes(len.into()), Outcome::Reject(words));
        };
        let Some(body) = header.0.get(..size) else { return Step::More };
        let body = Fields(body);
        let mut flaw = None;
        let found = if routes {
            RibRecord::of(subtype, body).and_then(|record| match record {
                Some(record) => self.version_2(record, choice, &mut flaw),
                None => Ok(None),
            })
        } else if index {
            peer_index(body).map(|peers| {
                self.peers = peers.into_iter().map(|(peer, _)| peer).collect();
                None
            })
        } else {
            OldEntry::of(subtype, body).and_then(|entry| self.version_1(&entry, choice))
        };
        let outcome = match found {
            Ok(Some(entry)) => match flaw {
                Some(words) => Outcome::Flawed(entry, words.into()),
                None => Outcome::Entry(entry),
            },
            Ok(None) => Outcome::Nothing,
            Err(words) => Outcome::Reject(words.into()),
        };
        Step::Done(HEADER_BYTES + size, outcome)
    }

    /// The best path of the last prefix, once there are no more records.
    pub(super) fn rest(&mut self) -> Option<TableEntry> {
        self.best.take().map(|(_, entry)| entry)
    }

    fn version_1(
        &mut self,
        found: &OldEntry<'_>,
        choice: PeerChoice,
    ) -> Result<Option<TableEntry>, Words> {
        let &OldEntry { prefix, peer: (peer, _), attributes } = found;
        let v6 = prefix.family() == 6;
        let known = self.last == Some(prefix);
        if choice == PeerChoice::First && known {
            return Ok(None);
        }
        let entry = |hop| TableEntry { prefix, hop: FileHop::Addr(hop) };
        match choice {
            PeerChoice::First => {
                let hop = next_hop(attributes, v6)?.ok_or("no next hop")?;
                // Only now: where this peer's route is of no use, the next peer's may be.
                self.last = Some(prefix);
                Ok(Some(entry(hop)))
            }
            PeerChoice::Number(number) => {
                let at = self.peers.iter().position(|known| known.addr == peer.addr);
                let at = at.unwrap_or_else(|| {
                    self.peers.push(peer);
                    self.peers.len() - 1
                });
                if at != usize::from(number) {
                    return Ok(None);
                }
                Ok(Some(entry(next_hop(attributes, v6)?.ok_or("no next hop")?)))
            }
            PeerChoice::Best => {
                let attributes =
                    update::attributes(attributes, v6, AsNumbers::Short)?.ok_or("no next hop")?;
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

    /// The path that is taken. `flaw` is what is wrong with one that cannot be read: it is passed over alone, as each has its
    /// length before it.
    fn version_2(
        &self,
        record: RibRecord<'_>,
        choice: PeerChoice,
        flaw: &mut Option<Words>,
    ) -> Result<Option<TableEntry>, Words> {
        let prefix = record.prefix;
        let v6 = prefix.family() == 6;
        let entry = |hop| TableEntry { prefix, hop: FileHop::Addr(hop) };
        let (mut hopless, mut best) = (false, None);
        for path in record.entries() {
            let RibEntry { peer: index, id, attributes } = path?;
            match choice {
                PeerChoice::Number(number) if number != index => continue,
                PeerChoice::Best => match update::attributes(attributes, v6, AsNumbers::Long) {
                    Ok(Some(attributes)) => {
                        // A peer that no table names ranks by its number.
                        let unknown =
                            Peer { addr: [0; 4].into(), bgp_id: index.into(), external: true };
                        let peer = self.peers.get(usize::from(index)).unwrap_or(&unknown);
                        let rank = rank(peer, id, &attributes);
                        if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                            best = Some((rank, attributes.next_hop));
                        }
                    }
                    Ok(None) => hopless = true,
                    Err(what) => *flaw = Some(what),
                },
                _ => match next_hop(attributes, v6) {
                    Ok(Some(hop)) => return Ok(Some(entry(hop))),
                    Ok(None) => hopless = true,
                    Err(what) => *flaw = Some(what),
                },
            }
        }
        match (best, *flaw) {
            (Some((_, hop)), _) => Ok(Some(entry(hop))),
            (None, Some(what)) => Err(what),
            (None, None) if hopless => Err("no next hop"),
            (None, None) => Ok(None),
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
