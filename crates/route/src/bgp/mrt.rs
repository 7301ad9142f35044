//! Records of MRT files: the paths of table dumps, TABLE_DUMP and TABLE_DUMP_V2, and the BGP messages that collectors record,
//! BGP4MP and BGP4MP_ET.
//!
//! Source: RFC 6396, RFC 8050 (path identifiers). The header of a record has 12 bytes: time u32, type u16, subtype u16, length
//! u32, all in network order.
//!
//! Shape:  bytes -> [`Records`] -> [`Record`] -> [`Message`] -> statements, by [`Message::statements`]; or
//!         -> [`RibRecord`] -> [`RibEntry`], or -> [`OldEntry`].
//! Cost:   a record is a slice of the file; that of [`super::update`] for its message.
//! Limits: a file is in memory.

use core::net::IpAddr;

use super::ribs::Peer;
use super::update::{self, AsNumbers, Encoding, Statement};
use super::{Fields, Words, masked};
use crate::event::AnyPrefix;

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 12;

/// Real records stay below 1 MiB (a route of 1,000 peers); longer ones are not held in memory.
pub const RECORD_BYTES: usize = 16 << 20;

/// Type of records of a table dump, version 1.
pub const TABLE_DUMP: u16 = 12;
/// Type of records of a table dump, version 2.
pub const TABLE_DUMP_V2: u16 = 13;
/// Subtype of the record of TABLE_DUMP_V2 with the peers.
pub const PEER_INDEX_TABLE: u16 = 1;
/// Type of records with BGP messages.
const BGP4MP: u16 = 16;
/// Type of such records with microseconds behind the header (RFC 6396 section 3).
const BGP4MP_ET: u16 = 17;

const AFI_IPV4: u16 = 1;
const AFI_IPV6: u16 = 2;

/// Whether these bytes can be the header of a record with BGP messages; no text and no table dump can.
pub fn is_updates(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, _, _, 0, 16 | 17, 0, 0..=11, ..])
}

/// Whether these bytes can be the header of a record of a type still in use (RFC 6396 section 4:
/// OSPFv2 11, TABLE_DUMP 12, TABLE_DUMP_V2 13, BGP4MP 16 and 17, ISIS 32 and 33, OSPFv3 48 and 49).
/// Text never can: it has no zero bytes.
pub fn is_header(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, _, _, 0, 11..=13 | 16 | 17 | 32 | 33 | 48 | 49, ..])
}

/// A record: header and body.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Seconds since 1970.
    pub time: u32,
    /// Type.
    pub kind: u16,
    /// Subtype.
    pub subtype: u16,
    /// What follows the header.
    pub body: Fields<'a>,
}

/// Records of a file in memory; where it ends inside one, the last item is an error.
#[derive(Clone, Debug)]
pub struct Records<'a>(Fields<'a>);

impl<'a> Records<'a> {
    /// Those of the whole file.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Fields(bytes))
    }

    /// Bytes behind the records so far.
    pub fn rest(&self) -> &'a [u8] {
        self.0.0
    }

    fn record(&mut self) -> Result<Record<'a>, Words> {
        let mut rest = self.0;
        let time = rest.array().map(u32::from_be_bytes)?;
        let (kind, subtype) = (rest.u16()?, rest.u16()?);
        let len = rest.array().map(u32::from_be_bytes)?;
        let body = Fields(rest.take(len as usize)?);
        self.0 = rest;
        Ok(Record { time, kind, subtype, body })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Words>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.0.is_empty() {
            return None;
        }
        let record = self.record().map_err(|_| "cut short");
        if record.is_err() {
            self.0 = Fields(&[]);
        }
        Some(record)
    }
}

/// Peer of a dump, with the number of its AS. A dump does not state which peers are internal: all count as external.
pub type DumpedPeer = (Peer, u32);

/// Peers of a record of subtype [`PEER_INDEX_TABLE`].
///
/// # Errors
/// When it makes no sense.
pub fn peer_index(mut body: Fields<'_>) -> Result<Vec<DumpedPeer>, Words> {
    const V6: u8 = 1;
    const LONG_AS: u8 = 2;
    body.take(4)?; // the collector's identifier
    body.counted()?; // name of the view
    let count = body.u16()?;
    let peer = |_| {
        let kind = body.u8()?;
        let bgp_id = body.array().map(u32::from_be_bytes)?;
        let addr = body.next_hop(if kind & V6 == 0 { 4 } else { 16 })?;
        let number = match kind & LONG_AS {
            0 => body.u16()?.into(),
            _ => body.array().map(u32::from_be_bytes)?,
        };
        Ok((Peer { addr, bgp_id, external: true }, number))
    };
    (0..count).map(peer).collect()
}

/// Record of TABLE_DUMP_V2 with the paths of a prefix.
#[derive(Clone, Copy, Debug)]
pub struct RibRecord<'a> {
    /// Prefix.
    pub prefix: AnyPrefix,
    has_ids: bool,
    count: u16,
    rest: Fields<'a>,
}

/// Path of a prefix in a record of TABLE_DUMP_V2.
#[derive(Clone, Copy, Debug)]
pub struct RibEntry<'a> {
    /// Number of its peer in the index table.
    pub peer: u16,
    /// Path identifier, or 0.
    pub id: u32,
    /// Path attributes, for [`update::attributes`].
    pub attributes: Fields<'a>,
}

impl<'a> RibRecord<'a> {
    /// Whether records of a subtype hold unicast prefixes.
    pub fn is_of(subtype: u16) -> bool {
        matches!(subtype, 2 | 4 | 6 | 8 | 10 | 12)
    }

    /// Paths of a record; `None` for other subtypes and families.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn of(subtype: u16, mut body: Fields<'a>) -> Result<Option<Self>, Words> {
        if !Self::is_of(subtype) {
            return Ok(None);
        }
        body.take(4)?; // sequence
        let v6 = match subtype {
            2 | 8 => false,
            4 | 10 => true,
            // RIB_GENERIC names its family.
            _ => match update::family(&mut body)? {
                Some(v6) => v6,
                None => return Ok(None),
            },
        };
        let (prefix, count) = (body.prefix(v6)?, body.u16()?);
        Ok(Some(Self { prefix, has_ids: subtype >= 8, count, rest: body }))
    }

    /// Its paths. One that is not whole is an error.
    pub fn entries(mut self) -> impl Iterator<Item = Result<RibEntry<'a>, Words>> {
        (0..self.count).map(move |_| self.entry())
    }

    fn entry(&mut self) -> Result<RibEntry<'a>, Words> {
        let peer = self.rest.u16()?;
        self.rest.take(4)?; // time
        let id = if self.has_ids { self.rest.array().map(u32::from_be_bytes)? } else { 0 };
        Ok(RibEntry { peer, id, attributes: self.rest.counted()? })
    }
}

/// Record of TABLE_DUMP: a path, with AS numbers of two bytes.
#[derive(Clone, Copy, Debug)]
pub struct OldEntry<'a> {
    /// Prefix.
    pub prefix: AnyPrefix,
    /// Peer that has it.
    pub peer: DumpedPeer,
    /// Path attributes, for [`update::attributes`].
    pub attributes: Fields<'a>,
}

impl<'a> OldEntry<'a> {
    /// Path of a record.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn of(subtype: u16, mut body: Fields<'a>) -> Result<Self, Words> {
        body.take(4)?; // view u16, sequence u16
        let len = match subtype {
            AFI_IPV4 => 4,
            AFI_IPV6 => 16,
            _ => return Err("TABLE_DUMP of an unknown address family"),
        };
        let addr = body.next_hop(len)?;
        let prefix = masked(addr, body.u8()?)?;
        body.take(1 + 4)?; // status u8, time u32
        let addr = body.next_hop(len)?;
        let peer = (Peer { addr, bgp_id: 0, external: true }, body.u16()?.into());
        Ok(Self { prefix, peer, attributes: body.counted()? })
    }
}

/// A message between a collector, or a router, and its peer.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Microseconds since 1970.
    pub time_us: u64,
    /// Address of the peer.
    pub peer: IpAddr,
    /// Number of the peer's AS.
    pub peer_as: u32,
    /// Number of the recorder's AS.
    pub local_as: u32,
    /// Whether the recorder sent the message instead of receiving it.
    pub local: bool,
    /// Encoding of the message.
    pub encoding: Encoding,
    /// Content.
    pub content: Content<'a>,
}

/// Content of a record of BGP4MP.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// A BGP message: type and body.
    Message(u8, Fields<'a>),
    /// States of the session before and after a change; 6 is Established.
    State(u16, u16),
}

impl<'a> Message<'a> {
    /// Content of a record; `None` for other types and subtypes.
    ///
    /// # Errors
    /// When it makes no sense.
    pub fn of(record: &Record<'a>) -> Result<Option<Self>, Words> {
        let mut body = record.body;
        let micros = match record.kind {
            BGP4MP => 0,
            BGP4MP_ET => body.array().map(u32::from_be_bytes)?,
            _ => return Ok(None),
        };
        // Subtypes 2 and 3 are tables of software of the past; no collector has written them since 2005.
        let (state, short_as, local, paths) = match record.subtype {
            0 => (true, true, false, false),
            1 => (false, true, false, false),
            4 => (false, false, false, false),
            5 => (true, false, false, false),
            6 => (false, true, true, false),
            7 => (false, false, true, false),
            8 => (false, true, false, true),
            9 => (false, false, false, true),
            10 => (false, true, true, true),
            11 => (false, false, true, true),
            _ => return Ok(None),
        };
        let number = |body: &mut Fields<'_>| match short_as {
            true => body.u16().map(u32::from),
            false => body.array().map(u32::from_be_bytes),
        };
        let (peer_as, local_as) = (number(&mut body)?, number(&mut body)?);
        body.u16()?; // interface
        let len = match body.u16()? {
            AFI_IPV4 => 4,
            AFI_IPV6 => 16,
            _ => return Err("session of an unknown address family"),
        };
        let peer = address(&mut body, len)?;
        body.take(len)?; // address of the recorder
        let content = if state {
            Content::State(body.u16()?, body.u16()?)
        } else {
            let (kind, message) = update::message(&mut body)?;
            Content::Message(kind, message)
        };
        let time_us = u64::from(record.time) * 1_000_000 + u64::from(micros);
        let as_numbers = if short_as { AsNumbers::Short } else { AsNumbers::Long };
        let encoding = Encoding { as_numbers, add_path: [paths; 2], next_hop: None };
        Ok(Some(Self { time_us, peer, peer_as, local_as, local, encoding, content }))
    }

    /// What an UPDATE message states; nothing for other messages.
    ///
    /// # Errors
    /// When it makes no sense. Nothing of it was visited then.
    pub fn statements(&self, visit: &mut dyn FnMut(Statement)) -> Result<(), Words> {
        match self.content {
            Content::Message(update::UPDATE, body) => update::update(body, self.encoding, visit),
            _ => Ok(()),
        }
    }
}

fn address(body: &mut Fields<'_>, len: usize) -> Result<IpAddr, Words> {
    match len {
        4 => body.array::<4>().map(IpAddr::from),
        _ => body.array::<16>().map(IpAddr::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn counted(bytes: &[u8]) -> Vec<u8> {
        [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
    }

    fn record(kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[0, 0, 0, 1][..], &kind.to_be_bytes(), &subtype.to_be_bytes(), &len, body].concat()
    }

    fn session(kind: u16, subtype: u16, rest: &[u8]) -> Vec<u8> {
        let short = matches!(subtype, 0 | 1 | 6 | 8 | 10);
        let number: &[u8] = if short { &[0, 7] } else { &[0, 1, 0, 7] };
        let micros: &[u8] = if kind == 17 { &[0, 0, 0, 5] } else { &[] };
        let head = [micros, number, number, &[0, 9], &[0, 1], &[192, 0, 2, 9], &[9; 4]].concat();
        record(kind, subtype, &[&head[..], rest].concat())
    }

    fn message(kind: u16, subtype: u16, bgp: u8, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len() + 19).unwrap().to_be_bytes();
        session(kind, subtype, &[&[255; 16], &len[..], &[bgp], body].concat())
    }

    fn said(bytes: &[u8]) -> Result<Vec<String>, Words> {
        let mut said = Vec::new();
        for record in Records::new(bytes) {
            let Some(message) = Message::of(&record?)? else { continue };
            if let Content::State(old, new) = message.content {
                said.push(format!("{} AS{} {old} to {new}", message.peer, message.peer_as));
            }
            message.statements(&mut |statement| {
                said.push(match statement {
                    Statement::Announced(prefix, path, a) => {
                        format!("{prefix} {path} {} {}", a.next_hop, a.as_path_len)
                    }
                    Statement::Withdrawn(prefix, path) => format!("{prefix} {path} -"),
                    Statement::EndOfRib { v6 } => format!("end {v6}"),
                });
            })?;
        }
        Ok(said)
    }

    #[test]
    fn every_subtype_is_read_and_every_cut_is_noticed() {
        let hop = [0x40, 3, 4, 192, 0, 2, 1];
        let long = [&hop[..], &[0x40, 2, 6, 2, 1, 0, 1, 0, 7]].concat();
        let short = [&hop[..], &[0x40, 2, 4, 2, 1, 0, 7]].concat();
        let v4 = |attributes: &[u8]| {
            [&counted(&[8, 10])[..], &counted(attributes), &[24, 12, 1, 2]].concat()
        };
        let paths = |attributes: &[u8]| {
            [&counted(&[0, 0, 0, 3, 8, 10])[..], &counted(attributes), &[0, 0, 0, 4, 8, 11]]
                .concat()
        };
        let mut reach = vec![0x90, 14, 0, 0, 0, 2, 1, 16];
        reach.extend(Ipv6Addr::LOCALHOST.octets());
        reach.extend([0, 32, 0x20, 1, 0x0d, 0xb8]);
        reach[3] = u8::try_from(reach.len() - 4).unwrap();
        let v6 = [&counted(&[])[..], &counted(&reach)].concat();
        let file = [
            message(16, 4, 2, &v4(&long)),
            message(16, 1, 2, &v4(&short)),
            message(16, 4, 4, &[]),
            message(17, 7, 2, &v6),
            session(16, 0, &[0, 5, 0, 6]),
            session(17, 5, &[0, 6, 0, 1]),
            message(16, 8, 2, &paths(&short)),
            message(16, 11, 2, &paths(&long)),
            record(13, 1, &[1, 2, 3]),
            message(16, 6, 2, &[0, 0, 0, 0]),
        ];
        let all = file.concat();
        assert!(is_updates(&all) && !is_updates(b"1 a 10.0.0.0/8 1"));
        assert_eq!(
            said(&all).unwrap(),
            [
                "10.0.0.0/8 0 -",
                "12.1.2.0/24 0 192.0.2.1 1",
                "10.0.0.0/8 0 -",
                "12.1.2.0/24 0 192.0.2.1 1",
                "2001:db8::/32 0 ::1 0",
                "192.0.2.9 AS7 5 to 6",
                "192.0.2.9 AS65543 6 to 1",
                "10.0.0.0/8 3 -",
                "11.0.0.0/8 4 192.0.2.1 1",
                "10.0.0.0/8 3 -",
                "11.0.0.0/8 4 192.0.2.1 1",
                "end false",
            ]
        );
        let ends: Vec<_> = (1..=file.len()).map(|n| file[..n].concat().len()).collect();
        for cut in 1..all.len() {
            assert_eq!(said(&all[..cut]).is_ok(), ends.contains(&cut), "{cut}");
        }
        // Any one byte may be any other.
        for at in 0..all.len() {
            for value in [0, 1, 14, 127, 255] {
                let mut changed = all.clone();
                changed[at] = value;
                crate::source::fuzz::updates(&changed);
            }
        }
        let last = Records::new(&all[..all.len() - 1]).last().unwrap();
        assert_eq!(last.err(), Some("cut short"));
        assert_eq!(Records::new(&all[..all.len() - 1]).count(), file.len());
    }
}
