//! Replay of MRT files: a table dump, where there is one, then the updates that a collector recorded.
//!
//! Source: RFC 6396, RFC 8050. The records of all files come one behind the other; types that are not read are passed over.
//!
//! **Table.** Records of TABLE_DUMP and TABLE_DUMP_V2 are the table, which ends at the first record of BGP4MP.
//!
//! **Which routes.** The best path of each prefix among all peers, with its alternatives ([`crate::bgp::ribs`]; all peers count as external), or the
//! paths of one peer. Peers are numbered as the first index table has them, then in the order in which they appear; a peer is known
//! by address and AS. When a session of the collector leaves the state Established, its peer's paths are gone,
//! some thousand prefixes at a time.
//!
//! **Time.** The first record of BGP4MP is taken at once, each later one when it is due: after the time since the first one as
//! recorded, divided by the speed. What is due, [`RouteSource::due`] has.
//!
//! **A record is one change**: after each follows [`RouteEvent::Commit`].
//!
//! Cost: about 1 us a path; 16 bytes for each path of each peer that counts, and equal attributes once.
//! Limits: one path a prefix, no multipath; a record of at most 16 MiB.

use core::net::IpAddr;
use core::num::NonZeroU32;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::table::PeerChoice;
use super::{Rejected, RouteSource, SourceError, SourceKind, SourceSpec, Transport};
use crate::bgp::mrt::{
    Content, DumpedPeer, Message, OldEntry, PEER_INDEX_TABLE, RECORD_BYTES, Record, Records,
    RibEntry, RibRecord, TABLE_DUMP, TABLE_DUMP_V2, peer_index,
};
use crate::bgp::ribs::{Change, Limits, Peer, PeerNumber, Ribs};
use crate::bgp::update::{self, AsNumbers, PathAttributes, Statement};
use crate::bgp::{Fields, Words};
use crate::event::{AnyPrefix, RouteEvent};

pub(super) const KIND: SourceKind = SourceKind {
    name: "mrt",
    summary: "MRT files that are replayed: a table dump, if any, and the updates that followed",
    transport: Transport::Replay,
    // As routes of external BGP.
    distance: 20,
    mirrored: &[],
    open: |spec| Ok(Box::new(Replayed::new(spec))),
};

/// Speed of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// Everything at once, whenever it was recorded.
    Max,
    /// So many times as fast as it was recorded.
    Times(NonZeroU32),
}

impl Default for Speed {
    fn default() -> Self {
        Self::Times(NonZeroU32::MIN)
    }
}

impl core::str::FromStr for Speed {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "max" => Ok(Self::Max),
            _ => text.parse().map(Self::Times).map_err(|_| "neither a number from 1, nor `max`"),
        }
    }
}

type Sink<'a> = &'a mut dyn FnMut(RouteEvent);

/// Equal attributes of different paths, kept once; more than so many are seldom equal to new ones.
const MOST_SHARED: usize = 1 << 16;

struct Replayed {
    /// Number of the only peer that counts; `None` for all.
    only: Option<usize>,
    clock: Clock,
    table: Table,
    /// Known peers; the number of one is its number in `ribs`.
    peers: Vec<DumpedPeer>,
    numbers: HashMap<(IpAddr, u32), PeerNumber>,
    /// Numbers of the peers of the latest index table.
    index: Vec<PeerNumber>,
    ribs: Ribs,
    shared: HashMap<PathAttributes, Arc<PathAttributes>>,
    records: u64,
    /// End-of-RIB markers of the updates.
    ends: u64,
    rejected: Rejected,
}

/// How far the table is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    New,
    Open,
    Complete,
}

/// Time of the replay.
struct Clock {
    speed: Speed,
    /// When the first message was taken, and its recorded time in microseconds.
    start: Option<(Instant, u64)>,
    /// When the next message is due, if that is what is waited for.
    due: Option<Instant>,
}

impl Clock {
    /// Whether a message of this recorded time may be taken.
    fn may(&mut self, time_us: u64, now: Instant) -> bool {
        let &mut (start, first) = self.start.get_or_insert((now, time_us));
        let after = Duration::from_micros(time_us.saturating_sub(first));
        let due = match self.speed {
            Speed::Max => return true,
            Speed::Times(times) => start.checked_add(after / times.get()),
        };
        // What is due at no time that there is, is not waited for.
        self.due = due.filter(|due| *due > now);
        self.due.is_none()
    }
}

impl Replayed {
    fn new(spec: &SourceSpec) -> Self {
        let only = match spec.peer {
            PeerChoice::Number(number) => Some(usize::from(number)),
            PeerChoice::First | PeerChoice::Best => None,
        };
        Self {
            only,
            clock: Clock { speed: spec.speed, start: None, due: None },
            table: Table::New,
            peers: Vec::new(),
            numbers: HashMap::new(),
            index: Vec::new(),
            // What the files have, their owner has chosen.
            ribs: Ribs::new(Limits { peers: usize::MAX, ..Limits::default() }),
            shared: HashMap::new(),
            records: 0,
            ends: 0,
            rejected: Rejected::default(),
        }
    }

    /// Number of a peer.
    fn number(&mut self, known: DumpedPeer) -> Result<PeerNumber, Words> {
        let (peer, as_number) = known;
        match self.numbers.entry((peer.addr, as_number)) {
            Entry::Occupied(number) => Ok(*number.get()),
            Entry::Vacant(vacant) => {
                let number = self.ribs.add_peer(peer)?;
                self.peers.push(known);
                Ok(*vacant.insert(number))
            }
        }
    }

    fn counts(&self, peer: PeerNumber) -> bool {
        self.only.is_none_or(|only| only == peer as usize)
    }

    fn complete(&mut self, sink: Sink<'_>) {
        if core::mem::replace(&mut self.table, Table::Complete) != Table::Complete {
            sink(RouteEvent::EndOfTable);
        }
    }

    /// Takes a record, unless it is not due, or paths of a lost peer go first.
    fn record(&mut self, record: &Record<'_>, now: Instant, sink: Sink<'_>) -> Result<bool, Words> {
        if record.kind == TABLE_DUMP_V2 && record.subtype == PEER_INDEX_TABLE {
            let peers = peer_index(record.body)?;
            self.index =
                peers.into_iter().map(|peer| self.number(peer)).collect::<Result<_, _>>()?;
        } else if record.kind == TABLE_DUMP_V2 {
            let Some(paths) = RibRecord::of(record.subtype, record.body)? else { return Ok(true) };
            for path in paths.entries() {
                let RibEntry { peer, id, attributes } = path?;
                let peer = self.index.get(usize::from(peer)).copied();
                let taken =
                    peer.ok_or("a path of a peer that no index table has").and_then(|peer| {
                        self.path(peer, paths.prefix, id, attributes, AsNumbers::Long, sink)
                    });
                // The next path has a length of its own before it.
                if let Err(what) = taken {
                    let (record, prefix) = (self.records + 1, paths.prefix);
                    self.rejected.add(|| format!("record {record}: {prefix}: {what}"));
                }
            }
        } else if record.kind == TABLE_DUMP {
            let OldEntry { prefix, peer, attributes } = OldEntry::of(record.subtype, record.body)?;
            let peer = self.number(peer)?;
            self.path(peer, prefix, 0, attributes, AsNumbers::Short, sink)?;
        } else {
            // One that makes no sense has no time either.
            let Some(message) = Message::of(record)? else { return Ok(true) };
            if !self.clock.may(message.time_us, now) {
                return Ok(false);
            }
            self.complete(sink);
            self.message(&message, sink)?;
            // The record is taken once the last of these paths is gone.
            if self.ribs.is_busy() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A path of a dump.
    fn path(
        &mut self,
        peer: PeerNumber,
        prefix: AnyPrefix,
        id: u32,
        attributes: Fields<'_>,
        as_numbers: AsNumbers,
        sink: Sink<'_>,
    ) -> Result<(), Words> {
        if !self.counts(peer) {
            return Ok(());
        }
        let v6 = prefix.family() == 6;
        let attributes = update::attributes(attributes, v6, as_numbers)?.ok_or("no next hop")?;
        if self.shared.len() >= MOST_SHARED {
            self.shared.clear();
        }
        let shared = self.shared.entry(attributes);
        let attributes = shared.or_insert_with_key(|key| Arc::new(key.clone())).clone();
        if let Some(change) = self.ribs.announce(peer, prefix, id, &attributes)? {
            sink(change.event());
        }
        Ok(())
    }

    fn message(&mut self, message: &Message<'_>, sink: Sink<'_>) -> Result<(), Words> {
        const ESTABLISHED: u16 = 6;
        // What the recorder itself sent is no route of its peer.
        if message.local {
            return Ok(());
        }
        let peer = Peer { addr: message.peer, bgp_id: 0, external: true };
        let peer = self.number((peer, message.peer_as))?;
        if !self.counts(peer) {
            return Ok(());
        }
        let (ribs, rejected, records) = (&mut self.ribs, &mut self.rejected, self.records);
        let ends = &mut self.ends;
        let mut changed = |change: Change| sink(change.event());
        if let Content::State(before, after) = message.content {
            if before == ESTABLISHED && after != ESTABLISHED {
                ribs.clear_peer(peer);
            }
            return Ok(());
        }
        message.statements(&mut |statement| {
            let change = match statement {
                Statement::Announced(prefix, id, attributes) => {
                    ribs.announce(peer, prefix, id, &attributes).unwrap_or_else(|what| {
                        rejected.add(|| format!("record {}: {prefix}: {what}", records + 1));
                        None
                    })
                }
                Statement::Withdrawn(prefix, id) => ribs.withdraw(peer, prefix, id),
                Statement::EndOfRib { .. } => {
                    *ends += 1;
                    None
                }
            };
            change.into_iter().for_each(&mut changed);
        })
    }
}

impl RouteSource for Replayed {
    fn input(&mut self, bytes: &[u8], now: Instant, sink: Sink<'_>) -> Result<usize, SourceError> {
        if self.table == Table::New {
            self.table = Table::Open;
            sink(RouteEvent::StartOfTable);
        }
        self.clock.due = None;
        self.ribs.step(&mut |change| sink(change.event()));
        if self.ribs.is_busy() {
            self.clock.due = Some(now);
            return Ok(0);
        }
        let mut records = Records::new(bytes);
        let mut taken = 0;
        while let Some(record) = records.next() {
            let Ok(record) = record else { break };
            match self.record(&record, now, sink) {
                Ok(false) => {
                    if self.ribs.is_busy() {
                        self.clock.due = Some(now);
                    }
                    return Ok(taken);
                }
                Ok(true) => {}
                Err(what) => {
                    let number = self.records + 1;
                    self.rejected.add(|| format!("record {number}: {what}"));
                }
            }
            self.records += 1;
            taken = bytes.len() - records.rest().len();
            sink(RouteEvent::Commit(self.records));
        }
        let rest = Fields(&bytes[taken..]).record();
        if let Some((.., len)) = rest.ok().filter(|&(.., len)| len as usize > RECORD_BYTES) {
            return Err(SourceError::Syntax {
                place: format!("record {}", self.records + 1),
                what: format!("{len} bytes long, at most {RECORD_BYTES} make sense"),
            });
        }
        Ok(taken)
    }

    fn finish(&mut self, sink: Sink<'_>) -> Result<(), SourceError> {
        self.complete(sink);
        Ok(())
    }

    fn due(&self) -> Option<Instant> {
        self.clock.due
    }

    fn ends(&self) -> u64 {
        self.ends
    }

    fn rejected(&self) -> Rejected {
        self.rejected.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bgp::dump::{DumpPath, DumpPeer, DumpWriter};

    /// A record of BGP4MP_ET, so many seconds behind the first; of the peer 192.0.2.`peer`, whose AS is 64500 + `peer`.
    fn record(seconds: u32, subtype: u16, peer: u8, content: &[u8]) -> Vec<u8> {
        let session =
            [&[0, 0, 251, 244 + peer, 0, 0, 0, 9, 0, 0, 0, 1][..], &[192, 0, 2, peer], &[9; 4]];
        let body = [&[0, 0, 0, 0][..], &session.concat(), content].concat();
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        let time = (1_000 + seconds).to_be_bytes();
        [&time[..], &[0, 17], &subtype.to_be_bytes(), &len, &body].concat()
    }

    /// An UPDATE message that withdraws or announces prefixes of length 8, of which each byte is one.
    fn update(seconds: u32, peer: u8, withdrawn: &[u8], announced: &[u8]) -> Vec<u8> {
        let prefixes = |of: &[u8]| of.iter().flat_map(|&byte| [8, byte]).collect::<Vec<u8>>();
        let counted =
            |of: Vec<u8>| [&u16::try_from(of.len()).unwrap().to_be_bytes()[..], &of].concat();
        let path = [
            &[0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 251, 244][..],
            &[0x40, 3, 4, 192, 0, 2, peer],
        ];
        let path = if announced.is_empty() { Vec::new() } else { path.concat() };
        let body = [counted(prefixes(withdrawn)), counted(path), prefixes(announced)].concat();
        let len = u16::try_from(19 + body.len()).unwrap().to_be_bytes();
        record(seconds, 4, peer, &[&[255; 16][..], &len, &[2], &body].concat())
    }

    /// Both peers have 10.0.0.0/8, the first also 11.0.0.0/8, over a longer path.
    fn dump() -> Vec<u8> {
        let peer = |n: u8| DumpPeer {
            bgp_id: 9,
            addr: [192, 0, 2, n].into(),
            as_number: 64_500 + u32::from(n),
        };
        let path = |n: u8, as_path| DumpPath {
            peer: u16::from(n) - 1,
            id: 0,
            since: 0,
            origin: 0,
            as_path,
            next_hop: [192, 0, 2, n].into(),
            med: None,
            local_pref: None,
        };
        let prefix = |n: u8| crate::bgp::masked([n, 0, 0, 0].into(), 8).unwrap();
        let mut dump = DumpWriter::new(Vec::new(), 0, "", &[peer(1), peer(2)]).unwrap();
        dump.prefix(prefix(10), &[path(1, &[1, 2]), path(2, &[1])]).unwrap();
        dump.prefix(prefix(11), &[path(1, &[1, 2])]).unwrap();
        dump.into_inner()
    }

    /// Dump, then updates: the second peer withdraws, the first announces, then its session is lost.
    fn file() -> Vec<u8> {
        let lost = record(30, 5, 1, &[0, 6, 0, 1]);
        [
            dump(),
            update(0, 2, &[10], &[]),
            update(10, 1, &[], &[12]),
            lost,
            update(40, 2, &[], &[13]),
        ]
        .concat()
    }

    fn words(event: &RouteEvent) -> String {
        match event {
            RouteEvent::Route(route) => format!("{} {:?}", route.key.prefix, route.target),
            RouteEvent::Withdraw(key) => format!("{} -", key.prefix),
            other => format!("{other:?}"),
        }
    }

    fn open(peer: &str, speed: &str) -> Box<dyn RouteSource> {
        let (peer, speed) = (peer.parse().unwrap(), speed.parse().unwrap());
        (KIND.open)(&SourceSpec { peer, speed, ..SourceSpec::default() }).unwrap()
    }

    /// Gives the source all there is, until it takes no more; how much it took.
    fn all_of(source: &mut dyn RouteSource, bytes: &[u8], sink: Sink<'_>) -> usize {
        let (now, mut taken) = (Instant::now(), 0);
        loop {
            taken += source.input(&bytes[taken..], now, sink).unwrap();
            if source.due().is_none() {
                return taken;
            }
        }
    }

    /// A peer with more prefixes than a step has goes in several, and what follows waits for the last of them.
    #[test]
    fn the_paths_of_a_lost_peer_go_in_steps() {
        let announced: Vec<u8> = (1..=9).collect();
        let lost = record(1, 5, 1, &[0, 6, 0, 1]);
        let bytes = [update(0, 1, &[], &announced), lost.clone(), update(2, 2, &[], &[1])];
        let (mut source, now) = (open("best", "max"), Instant::now());
        let mut rest = &bytes.concat()[..];
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (mut gone, mut commits) = (0, 0);
            let taken = source.input(rest, now, &mut |event| match event {
                RouteEvent::Withdraw(_) => gone += 1,
                RouteEvent::Commit(_) => commits += 1,
                _ => {}
            });
            rest = &rest[taken.unwrap()..];
            assert_eq!(source.due(), (!rest.is_empty()).then_some(now));
            steps.push((gone, commits));
        }
        assert_eq!(steps, [(0, 1), (2, 0), (2, 0), (2, 0), (2, 0), (1, 2)]);
    }

    /// Routes by the last byte of their next hop, and marks, but for commits.
    fn said(peer: &str) -> Vec<String> {
        let (mut source, mut said) = (open(peer, "max"), Vec::new());
        let mut sink = |event| match event {
            RouteEvent::Commit(_) => {}
            event => said.push(words(&event)),
        };
        let bytes = file();
        assert_eq!(all_of(&mut *source, &bytes, &mut sink), bytes.len());
        source.finish(&mut sink).unwrap();
        // Of alternatives, all of them.
        let hops = |words: String| match words.split_once(['P', 'R']) {
            Some((prefix, rest)) if prefix.ends_with(' ') => {
                let hops = rest.split("Some(192.0.2.").skip(1).map(|hop| &hop[..1]);
                format!("{prefix}{}", hops.collect::<Vec<_>>().join(" "))
            }
            _ => words,
        };
        said.into_iter().map(hops).collect()
    }

    #[test]
    fn the_best_path_follows_the_updates() {
        let mut all = said("best");
        // A lost peer's prefixes go in any order.
        let lost = all.len() - 4..all.len() - 1;
        all[lost].sort();
        assert_eq!(
            all,
            [
                "StartOfTable",
                "10.0.0.0/8 1",
                "10.0.0.0/8 2 1",
                "11.0.0.0/8 1",
                "EndOfTable",
                "10.0.0.0/8 1",
                "12.0.0.0/8 1",
                "10.0.0.0/8 -",
                "11.0.0.0/8 -",
                "12.0.0.0/8 -",
                "13.0.0.0/8 2",
            ]
        );
    }

    #[test]
    fn one_peer_alone_counts_if_it_is_chosen() {
        assert_eq!(
            said("1"),
            ["StartOfTable", "10.0.0.0/8 2", "EndOfTable", "10.0.0.0/8 -", "13.0.0.0/8 2"]
        );
        assert_eq!(said("2"), ["StartOfTable", "EndOfTable"], "there are two");
    }

    #[test]
    fn a_record_waits_for_its_time() {
        let (mut source, bytes, start) = (open("best", "10"), file(), Instant::now());
        let mut rest = &bytes[..];
        let mut at = |millis: u64| {
            let mut commits = 0;
            let now = start + Duration::from_millis(millis);
            let sink = &mut |event| commits += u32::from(matches!(event, RouteEvent::Commit(_)));
            let taken = source.input(rest, now, sink).unwrap();
            rest = &rest[taken..];
            // Paths of a lost peer go first.
            while source.due() == Some(now) {
                rest = &rest[source.input(rest, now, sink).unwrap()..];
            }
            (commits, source.due().map(|due| (due - start).as_millis()))
        };
        // The table and the first message at once.
        assert_eq!(at(0), (4, Some(1000)));
        assert_eq!(at(999), (0, Some(1000)));
        assert_eq!(at(1000), (1, Some(3000)));
        assert_eq!(at(9000), (2, None));
        assert_eq!(at(9000), (0, None));
    }

    #[test]
    fn what_makes_no_sense_is_counted_and_passed_over() {
        let mut wrong = update(0, 1, &[], &[12]);
        let last = wrong.len() - 2;
        wrong[last] = 33;
        let strange = [&[0; 4][..], &[0, 13, 0, 2, 0, 0, 0, 1, 7]].concat();
        let bytes = [wrong, strange, update(0, 1, &[], &[12])].concat();
        let mut source = open("best", "max");
        let mut routes = 0;
        let sink = &mut |event| routes += u32::from(matches!(event, RouteEvent::Route(_)));
        assert_eq!(source.input(&bytes, Instant::now(), sink), Ok(bytes.len()));
        let Rejected { count, samples } = source.rejected();
        assert_eq!((routes, count), (1, 2), "{samples:?}");
        assert_eq!(samples[0], "record 1: incomplete inside a field");
        let long = [&[0; 4][..], &[0, 13, 0, 2, 255, 0, 0, 0]].concat();
        let error = source.input(&long, Instant::now(), &mut |_| {}).unwrap_err();
        assert!(error.to_string().starts_with("record 4: 4278190080 bytes long"), "{error}");
    }

    #[test]
    fn a_path_that_makes_no_sense_leaves_those_of_other_peers() {
        let mut bytes = dump();
        // ORIGIN of the first path of 10.0.0.0/8 has no value: its length byte.
        let at = bytes.windows(4).position(|four| four == [0x40, 1, 1, 0]).unwrap();
        bytes[at + 2] = 200;
        let (mut source, mut said) = (open("best", "max"), Vec::new());
        let sink = &mut |event: RouteEvent| said.push(words(&event));
        assert_eq!(source.input(&bytes, Instant::now(), sink), Ok(bytes.len()));
        said.retain(|line| line.starts_with("1"));
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("10.0.0.0/8 ") && said[0].contains("192.0.2.2"), "{said:?}");
        let why = "record 2: 10.0.0.0/8: incomplete inside a field";
        assert_eq!(source.rejected(), Rejected { count: 1, samples: vec![why.into()] });
    }

    #[test]
    fn a_speed_is_a_number_or_max() {
        assert_eq!("1".parse(), Ok(Speed::default()));
        assert_eq!("max".parse(), Ok(Speed::Max));
        for wrong in ["0", "fast", "1.5", ""] {
            assert!(wrong.parse::<Speed>().is_err(), "{wrong}");
        }
    }
}
