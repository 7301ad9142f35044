//! Writer of table dumps: TABLE_DUMP_V2.
//!
//! Source: RFC 6396 section 4.3, RFC 8050 section 4 (several paths of a prefix). A dump is PEER_INDEX_TABLE, then a record
//! for each prefix: RIB_IPV4_UNICAST or RIB_IPV6_UNICAST, or that with path identifiers where a path has one. AS numbers
//! have four bytes; MP_REACH_NLRI has the next hop alone (section 4.3.4).
//!
//! Equal calls write equal bytes: time comes from the caller. Dumps are read by [`crate::source::table`].
//!
//! Cost: about 100 ns a path; the buffer of one record.

use core::net::{IpAddr, Ipv4Addr};
use std::io::{self, ErrorKind, Write};

use super::mrt::{HEADER_BYTES, TABLE_DUMP_V2};
use super::update::{AS_PATH, LOCAL_PREF, MULTI_EXIT_DISC, ORIGIN, SEQUENCE};
use super::{EXTENDED_LEN, MP_REACH_NLRI, NEXT_HOP};
use crate::event::AnyPrefix;

const PEER_INDEX_TABLE: u16 = 1;
const RIB_IPV4_UNICAST: u16 = 2;
const RIB_IPV6_UNICAST: u16 = 4;
/// Difference of a subtype with path identifiers from that without.
const WITH_PATHS: u16 = 6;

/// Flags of an attribute: well-known and transitive, optional and non-transitive.
const WELL_KNOWN: u8 = 0x40;
const OPTIONAL: u8 = 0x80;

/// Entry of PEER_INDEX_TABLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpPeer {
    /// BGP identifier.
    pub bgp_id: u32,
    /// Address.
    pub addr: IpAddr,
    /// Number of its AS.
    pub as_number: u32,
}

/// Path of a prefix, as one peer has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpPath<'a> {
    /// Index of the peer.
    pub peer: u16,
    /// Path identifier; 0 for none.
    pub id: u32,
    /// Seconds since 1970 at which the path was received.
    pub since: u32,
    /// ORIGIN: 0 IGP, 1 EGP, 2 INCOMPLETE.
    pub origin: u8,
    /// AS_PATH, one sequence.
    pub as_path: &'a [u32],
    /// Next hop.
    pub next_hop: IpAddr,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
}

/// Dump in progress.
///
/// ```
/// use fingerpost_route::bgp::dump::{DumpPath, DumpPeer, DumpWriter};
/// use fingerpost_route::source::table::TableReader;
/// let peer = DumpPeer { bgp_id: 1, addr: "192.0.2.1".parse().unwrap(), as_number: 64512 };
/// let path = DumpPath {
///     peer: 0,
///     id: 0,
///     since: 0,
///     origin: 0,
///     as_path: &[64512],
///     next_hop: peer.addr,
///     med: None,
///     local_pref: None,
/// };
/// let mut dump = DumpWriter::new(Vec::new(), 0, "", &[peer])?;
/// dump.prefix("10.0.0.0/8".parse().map(fingerpost_route::AnyPrefix::V4).unwrap(), &[path])?;
/// let bytes = std::io::Cursor::new(dump.into_inner());
/// let entry = TableReader::new("dump", bytes).unwrap().next().unwrap().unwrap();
/// assert_eq!((entry.prefix.to_string(), entry.hop.to_string()), ("10.0.0.0/8".into(), "192.0.2.1".into()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DumpWriter<W> {
    to: W,
    time: u32,
    sequence: u32,
    record: Vec<u8>,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump of the time `time` (seconds since 1970) with its peers; `view` is the name of the table.
    ///
    /// # Errors
    /// Those of `to`; [`ErrorKind::InvalidInput`] for more than 65,535 peers or a name longer than that.
    pub fn new(to: W, time: u32, view: &str, peers: &[DumpPeer]) -> io::Result<Self> {
        const V6: u8 = 1;
        const LONG_AS: u8 = 2;
        let mut dump = Self { to, time, sequence: 0, record: Vec::new() };
        dump.begin();
        // The collector's identifier: none.
        dump.record.extend(Ipv4Addr::UNSPECIFIED.octets());
        dump.counted("name of the table", |record| record.extend(view.as_bytes()))?;
        dump.record.extend(count("peers", peers.len())?);
        for peer in peers {
            dump.record.push(LONG_AS | if peer.addr.is_ipv6() { V6 } else { 0 });
            dump.record.extend(peer.bgp_id.to_be_bytes());
            addr(&mut dump.record, peer.addr);
            dump.record.extend(peer.as_number.to_be_bytes());
        }
        dump.end(PEER_INDEX_TABLE)?;
        Ok(dump)
    }

    /// Writes the paths of a prefix.
    ///
    /// # Errors
    /// Those of the writer; [`ErrorKind::InvalidInput`] for more than 65,535 paths, or an AS_PATH that no attribute can
    /// hold.
    pub fn prefix(&mut self, prefix: AnyPrefix, paths: &[DumpPath<'_>]) -> io::Result<()> {
        let has_ids = paths.iter().any(|path| path.id != 0);
        let (subtype, len, bytes) = match prefix {
            AnyPrefix::V4(p) => (RIB_IPV4_UNICAST, p.len(), p.addr().to_be_bytes().to_vec()),
            AnyPrefix::V6(p) => (RIB_IPV6_UNICAST, p.len(), p.addr().to_be_bytes().to_vec()),
        };
        self.begin();
        self.record.extend(self.sequence.to_be_bytes());
        self.record.push(len);
        self.record.extend(&bytes[..usize::from(len).div_ceil(8)]);
        self.record.extend(count("paths of a prefix", paths.len())?);
        for path in paths {
            self.record.extend(path.peer.to_be_bytes());
            self.record.extend(path.since.to_be_bytes());
            if has_ids {
                self.record.extend(path.id.to_be_bytes());
            }
            let plain = prefix.family() == 4 && path.next_hop.is_ipv4();
            self.counted("AS_PATH", |record| attributes(record, path, plain))?;
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.end(subtype + if has_ids { WITH_PATHS } else { 0 })
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.to
    }

    fn begin(&mut self) {
        self.record.clear();
        self.record.resize(HEADER_BYTES, 0);
    }

    /// Completes the header, and writes the record.
    fn end(&mut self, subtype: u16) -> io::Result<()> {
        let body = self.record.len() - HEADER_BYTES;
        let len = u32::try_from(body).map_err(|_| beyond("bytes of a record", body))?;
        let (time, rest) = self.record.split_at_mut(4);
        time.copy_from_slice(&self.time.to_be_bytes());
        rest[..2].copy_from_slice(&TABLE_DUMP_V2.to_be_bytes());
        rest[2..4].copy_from_slice(&subtype.to_be_bytes());
        rest[4..8].copy_from_slice(&len.to_be_bytes());
        self.to.write_all(&self.record)
    }

    /// A length of two bytes, and what `fill` adds.
    fn counted(&mut self, what: &str, fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let at = self.record.len();
        self.record.extend([0; 2]);
        fill(&mut self.record);
        let len = count(what, self.record.len() - at - 2)?;
        self.record[at..at + 2].copy_from_slice(&len);
        Ok(())
    }
}

/// Attributes by rising type, as RFC 4271 section 5 recommends; the next hop in NEXT_HOP where that is `plain`.
fn attributes(record: &mut Vec<u8>, path: &DumpPath<'_>, plain: bool) {
    const MOST_OF_SEGMENT: usize = 255;
    attribute(record, WELL_KNOWN, ORIGIN, &[path.origin]);
    let mut as_path = Vec::with_capacity(2 + 4 * path.as_path.len());
    for segment in path.as_path.chunks(MOST_OF_SEGMENT) {
        as_path.extend([SEQUENCE, u8::try_from(segment.len()).expect("at most 255")]);
        segment.iter().for_each(|number| as_path.extend(number.to_be_bytes()));
    }
    attribute(record, WELL_KNOWN, AS_PATH, &as_path);
    let mut hop = Vec::with_capacity(17);
    addr(&mut hop, path.next_hop);
    if plain {
        attribute(record, WELL_KNOWN, NEXT_HOP, &hop);
    }
    if let Some(med) = path.med {
        attribute(record, OPTIONAL, MULTI_EXIT_DISC, &med.to_be_bytes());
    }
    if let Some(local_pref) = path.local_pref {
        attribute(record, WELL_KNOWN, LOCAL_PREF, &local_pref.to_be_bytes());
    }
    if !plain {
        hop.insert(0, u8::try_from(hop.len()).expect("at most 16"));
        attribute(record, OPTIONAL, MP_REACH_NLRI, &hop);
    }
}

/// An attribute; one whose length needs more than two bytes makes its record too long, which is an error there.
fn attribute(record: &mut Vec<u8>, flags: u8, kind: u8, data: &[u8]) {
    match u8::try_from(data.len()) {
        Ok(len) => record.extend([flags, kind, len]),
        Err(_) => {
            record.extend([flags | EXTENDED_LEN, kind]);
            record.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    record.extend(data);
}

fn addr(record: &mut Vec<u8>, addr: IpAddr) {
    match addr {
        IpAddr::V4(addr) => record.extend(addr.octets()),
        IpAddr::V6(addr) => record.extend(addr.octets()),
    }
}

/// A number of two bytes.
fn count(what: &str, count: usize) -> io::Result<[u8; 2]> {
    u16::try_from(count).map(u16::to_be_bytes).map_err(|_| beyond(what, count))
}

fn beyond(what: &str, need: usize) -> io::Error {
    let words = format!("{what}: limit exceeded: need {need}, at most {}", u16::MAX);
    io::Error::new(ErrorKind::InvalidInput, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fuzz::dump;
    use fingerpost_lpm::Prefix;

    fn path(peer: u16) -> DumpPath<'static> {
        DumpPath {
            peer,
            id: 0,
            since: 9,
            origin: 0,
            as_path: &[65_536],
            next_hop: [192, 0, 2, 1].into(),
            med: None,
            local_pref: None,
        }
    }

    fn prefix() -> AnyPrefix {
        AnyPrefix::V4(Prefix::masked(0x0a01_0000, 16))
    }

    #[test]
    fn a_dump_has_the_bytes_of_the_rfc() {
        let peer = DumpPeer { bgp_id: 7, addr: [192, 0, 2, 9].into(), as_number: 65_536 };
        let mut dump = DumpWriter::new(Vec::new(), 5, "v", &[peer]).unwrap();
        dump.prefix(prefix(), &[path(0)]).unwrap();
        let index = [0, 0, 0, 5, 0, 13, 0, 1, 0, 0, 0, 22, 0, 0, 0, 0, 0, 1, b'v', 0, 1];
        let peer = [2, 0, 0, 0, 7, 192, 0, 2, 9, 0, 1, 0, 0];
        let rib = [0, 0, 0, 5, 0, 13, 0, 2, 0, 0, 0, 37, 0, 0, 0, 0, 16, 10, 1, 0, 1];
        let entry = [0, 0, 0, 0, 0, 9, 0, 20, 0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 1, 0, 0];
        let hop = [0x40, 3, 4, 192, 0, 2, 1];
        assert_eq!(dump.into_inner(), [&index[..], &peer, &rib, &entry, &hop].concat());
    }

    #[test]
    fn what_no_field_holds_is_refused() {
        let mut dump = DumpWriter::new(io::sink(), 0, "", &[]).unwrap();
        let long = vec![1; 16_400];
        let error = dump.prefix(prefix(), &[DumpPath { as_path: &long, ..path(0) }]).unwrap_err();
        assert!(error.to_string().starts_with("AS_PATH: limit exceeded: need 65"), "{error}");
        let error = dump.prefix(prefix(), &vec![path(0); 65_536]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "paths of a prefix: limit exceeded: need 65536, at most 65535"
        );
        let peer = DumpPeer { bgp_id: 7, addr: [192, 0, 2, 9].into(), as_number: 1 };
        let peers = DumpWriter::new(io::sink(), 0, "", &vec![peer; 65_536]).unwrap_err();
        assert_eq!(peers.kind(), ErrorKind::InvalidInput);
        dump.prefix(prefix(), &[path(0)]).unwrap();
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config {
            failure_persistence: None,
            ..proptest::test_runner::Config::with_cases(256)
        })]

        #[test]
        fn what_is_written_is_read(bytes in proptest::collection::vec(0u8.., 0..400)) {
            dump(&bytes);
        }
    }
}
