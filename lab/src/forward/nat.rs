//! The forwarding path with address translation in it, and a table of many mappings.
//!
//! `IPRewriter` stands between the check of an IPv4 packet and its lookup, so a packet is translated and forwarded. All
//! flows come from one host that has a route, and get ports of one address. `nat-v4` has a flow for each destination,
//! all known; `nat-v4-known` has as many as are wanted, of which packets take any; in `nat-v4-new` each packet is of a
//! new flow, which takes the place of the first to end in a full table. `nat-v4-shared` is `nat-v4` by one of two workers
//! that share the table, with the locks that this takes; the other one is idle. In `nat-v4-beside` that one is at work on
//! another core, with as many flows of its own. `nat-v4-floor` is the path without translation, and beside it the cache
//! lines alone that no translation can leave out (`floor.rs`).
//!
//! Before anything is timed, every flow crosses once, which makes its mapping, and is compared with the oracle; of each
//! 997th a reply is sent back, which must reach the host at the flow's own port. A packet carries the number of its
//! flow.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow, ensure};
use fingerpost_lpm::{NextHopId, Rng};
use fingerpost_packet::device::memory::{Generator, Sink, Stamp};
use fingerpost_packet::frame::wire::{ETHER_BYTES, IP4_BYTES, Ip4};
use fingerpost_packet::handler::Handlers;
use fingerpost_packet::{Meta, router_graph};
use fingerpost_route::Control;

use super::{ForwardOptions, HEADER_BYTES, Headers, Path, Prepared, floor, graphs, packets, world};
use crate::document::{Kind, Run, Unit};
use crate::measure::Clock;
use crate::table::Table;

/// The address that flows get: of a documentation prefix (RFC 5737).
pub(super) const OUTSIDE: u32 = 0xcb00_7101;
pub(super) const FIRST_PORT: u16 = 1024;

/// Element that gives flows ports of [`OUTSIDE`] for as long as a bench takes, followed by an arrow. Its table holds so many.
pub(super) fn rewriter(capacity: u64) -> String {
    format!(
        "nat :: IPRewriter(pattern {} {FIRST_PORT}-65535# - - 0 0, GUARANTEE 0, TIMEOUT 1000000, \
         MAPPING_CAPACITY {capacity}) -> ",
        Ipv4Addr::from_bits(OUTSIDE)
    )
}

/// One flow of so many is replied to: a prime, so that all parts of the table are met.
const EACH: u64 = 997;

/// Source ports that flows of one destination have, from 1 on.
const PORTS: u64 = 65_000;

/// Where the transport header and its payload are.
const UDP: usize = ETHER_BYTES + IP4_BYTES;
const PAYLOAD: usize = UDP + 8;

/// A run with translation.
struct Row {
    name: &'static str,
    /// Flows that are known, given the number of destinations and of wanted mappings.
    flows: fn(each: u64, many: u64) -> u64,
    /// Workers that share the table.
    workers: usize,
    /// Whether the second worker is at work as well.
    beside: bool,
    /// The flows of its packets, where so many are known; `None` for that of the destination.
    stamp: fn(&Nat, flows: u64, seed: u64) -> Option<Stamp>,
}

const RUNS: [Row; 5] = [
    Row { name: "nat-v4", ..EACH_FLOW },
    Row { name: "nat-v4-shared", workers: 2, ..EACH_FLOW },
    Row { name: "nat-v4-beside", flows: |each, _| 2 * each, workers: 2, beside: true, ..EACH_FLOW },
    Row { name: "nat-v4-known", flows: |_, many| many, stamp: any, ..EACH_FLOW },
    Row {
        name: "nat-v4-new",
        flows: |_, many| many,
        stamp: |nat, flows, _| Some(nat.stamp(move |n| n + flows)),
        ..EACH_FLOW
    },
];

/// A known flow for each destination.
const EACH_FLOW: Row =
    Row { name: "", flows: |each, _| each, workers: 1, beside: false, stamp: |_, _, _| None };

/// Any known flow of the destination whose turn it is.
fn any(nat: &Nat, flows: u64, seed: u64) -> Option<Stamp> {
    let mut random = Rng::new(seed);
    let each = nat.found.len() as u64;
    let of_each = usize::try_from(flows / each).unwrap_or(usize::MAX);
    Some(nat.stamp(move |n| n % each + random.below(of_each) as u64 * each))
}

/// A path with translation, the flows that cross it and where they come from.
struct Nat {
    path: Path,
    handlers: Handlers,
    /// Those of further workers.
    others: Vec<Path>,
    found: Arc<[(u32, NextHopId)]>,
    headers: Headers,
    host: (u32, NextHopId),
}

/// A frame that left, and by which egress.
type Left = (usize, [u8; PAYLOAD + 8]);

/// The runs of each stream. None without mappings.
pub(super) fn prepare(
    table: &Table<u32>,
    options: &ForwardOptions,
    control: &Control,
    ports: world::Ports,
    prepared: &mut Prepared,
) -> Result<()> {
    if options.mappings == 0 {
        return Ok(());
    }
    for &stream in &options.streams {
        let (found, headers) = packets(table, options, stream)?;
        let each = found.len() as u64;
        let many = (options.mappings as u64).next_multiple_of(each);
        ensure!(many / each <= PORTS, "so many mappings need more destinations");
        for row in &RUNS {
            let flows = (row.flows)(each, many);
            let capacity = (flows, row.workers);
            let mut nat = Nat::new(&found, &headers, capacity, options.burst, control, ports)?;
            let start = Clock::Thread.now();
            let left = nat.send(nat.headers.clone(), Some(nat.stamp(|n| n)), flows);
            let rate = flows as f64 / (Clock::Thread.now() - start).as_secs_f64() / 1e6;
            let (checked, wrong) = nat.check(left, flows)?;
            let mut run = Run::new(row.name, Kind::Ours, stream.name(), Unit::NsPerPacket);
            run.family = Some(4);
            run.set_answers(checked, wrong);
            let bytes = nat.count("nat.table_bytes")? / flows;
            run.note = format!("{flows} mappings of {bytes} bytes, made at {rate:.2} M a second");
            let stamp = (row.stamp)(&nat, flows, options.seed);
            run_on(&mut nat.path, nat.headers.clone(), stamp);
            match nat.others.pop().filter(|_| row.beside) {
                Some(mut other) => {
                    let stamp = nat.stamp(move |n| n % each + each);
                    run_on(&mut other, nat.headers.clone(), Some(stamp));
                    prepared.pairs.push((run, [nat.path, other]));
                }
                None => prepared.paths.push((run, nat.path)),
            }
        }
        let mut path =
            Path::new(router_graph::plan()?, control.reader(), ports, 4, headers, options.burst);
        path.free_run();
        let mut run = Run::new(floor::NAME, Kind::Ceiling, stream.name(), Unit::NsPerPacket);
        run.family = Some(4);
        run.note = format!("without translation; the lines of {each} flows are read and written");
        prepared.floors.push((run, floor::Floor::new(path, usize::try_from(each)?)));
    }
    Ok(())
}

impl Nat {
    fn new(
        found: &[(u32, NextHopId)],
        headers: &[[u8; HEADER_BYTES]],
        (capacity, workers): (u64, usize),
        burst: usize,
        control: &Control,
        ports: world::Ports,
    ) -> Result<Self> {
        let (plan, handlers) = graphs::built_in_with("nat", 4, &rewriter(capacity))?;
        let host = *found.first().context("no destination")?;
        let from_host = |header: &[u8; HEADER_BYTES]| {
            let mut header = *header;
            world::set_source(&mut header, host.0);
            header[UDP..UDP + 2].copy_from_slice(&1u16.to_be_bytes());
            header
        };
        let headers: Headers = headers.iter().map(from_host).collect();
        let path = || Path::new(plan.clone(), control.reader(), ports, 4, headers.clone(), burst);
        // A rewriter that has several workers when its first packet comes shares its table among them, idle ones too.
        let others = (1..workers).map(|_| path()).collect();
        let path = path();
        Ok(Self { path, others, handlers, found: found.into(), headers, host })
    }

    /// Gives the n-th packet the source port and the number of flow `flow(n)`.
    fn stamp(&self, mut flow: impl FnMut(u64) -> u64 + Send + 'static) -> Stamp {
        let each = self.found.len() as u64;
        Box::new(move |n, frame| {
            let flow = flow(n);
            frame[UDP..UDP + 2].copy_from_slice(&port_of(flow, each).to_be_bytes());
            frame[PAYLOAD..PAYLOAD + 8].copy_from_slice(&flow.to_be_bytes());
        })
    }

    /// Sends so many packets; gives those that left whose flow is a 997th, or all if there are few, and how many left
    /// in all.
    fn send(&mut self, headers: Headers, stamp: Option<Stamp>, sent: u64) -> (Vec<Left>, u64) {
        let each = if sent < EACH * 8 { 1 } else { EACH };
        let seen = Arc::new(Mutex::new((Vec::new(), 0)));
        for (way, port) in self.path.ports.out.into_iter().enumerate() {
            let seen = seen.clone();
            let look = move |frame: &[u8], _: &Meta| {
                let mut seen = seen.lock().expect("one thread");
                seen.1 += 1;
                if let Some(frame) = frame.first_chunk()
                    && number(frame).is_multiple_of(each)
                {
                    seen.0.push((way, *frame));
                }
            };
            self.path.worker.add_port(port, Box::new(Sink::new().check(1, Box::new(look))));
        }
        let generator = generator(&self.path, headers, stamp).limit(sent);
        self.path.worker.add_port(self.path.ports.input, Box::new(generator));
        while self.path.worker.round() > 0 {}
        std::mem::take(&mut *seen.lock().expect("one thread"))
    }

    /// Compares what left with the oracle, and sends a reply to each: how many were looked at, and how many were wrong.
    fn check(&mut self, (left, count): (Vec<Left>, u64), sent: u64) -> Result<(u64, u64)> {
        let each = self.found.len() as u64;
        let mut wrong = sent.abs_diff(count).max(sent.abs_diff(self.count("nat.size")?));
        let mut replies = Vec::with_capacity(left.len());
        for (way, frame) in &left {
            let (dst, hop) = self.found[usize::try_from(number(frame) % each)?];
            let ends = ends(frame);
            let right = world::check::<u32>(frame, hop.0)
                && world::egress_of(hop.0) == *way
                && ends.is_some_and(|(src, port, to, _)| {
                    src == OUTSIDE && port >= FIRST_PORT && to == dst
                });
            let (Some((_, port, ..)), true) = (ends, right) else {
                wrong += 1;
                continue;
            };
            let mut reply = world::header(OUTSIDE, 9);
            world::set_source(&mut reply, dst);
            world::set_port(&mut reply, 4, port);
            reply[PAYLOAD..PAYLOAD + 8].copy_from_slice(&frame[PAYLOAD..]);
            replies.push(reply);
        }
        let (host, hop) = self.host;
        let wanted = replies.len() as u64;
        if wanted == 0 {
            return Ok((wrong, wrong));
        }
        let mut back = 0;
        for (way, frame) in self.send_all(replies.into(), wanted) {
            let flow = number(&frame);
            let (dst, _) = self.found[usize::try_from(flow % each)?];
            let right = world::check::<u32>(&frame, hop.0)
                && world::egress_of(hop.0) == way
                && ends(&frame) == Some((dst, 9, host, port_of(flow, each)));
            back += u64::from(right);
        }
        Ok((2 * wanted + wrong, wrong + wanted - back))
    }

    /// Sends these packets once, and gives all that left.
    fn send_all(&mut self, headers: Headers, sent: u64) -> Vec<Left> {
        let mut all = Vec::new();
        // In parts that are small enough for all of them to be looked at.
        for part in headers.chunks(usize::try_from(EACH).unwrap_or(1)) {
            all.extend(self.send(part.into(), None, part.len() as u64).0);
        }
        debug_assert!(all.len() as u64 <= sent, "no packet twice");
        all
    }

    fn count(&self, handler: &str) -> Result<u64> {
        let count = self.handlers.read(handler, "").map_err(|error| anyhow!("{error}"))?;
        count.trim().parse().context("a count")
    }
}

fn generator(path: &Path, headers: Headers, stamp: Option<Stamp>) -> Generator {
    let generator = Generator::new(&path.pool, headers, path.len);
    match stamp {
        Some(stamp) => generator.stamp(stamp),
        None => generator,
    }
}

/// Sends on and on from now on; what leaves is only counted.
fn run_on(path: &mut Path, headers: Headers, stamp: Option<Stamp>) {
    let generator = generator(path, headers, stamp);
    path.worker.add_port(path.ports.input, Box::new(generator));
    for port in path.ports.out {
        path.worker.add_port(port, Box::new(Sink::new()));
    }
}

/// Source port of a flow.
fn port_of(flow: u64, each: u64) -> u16 {
    u16::try_from(1 + flow / each % PORTS).unwrap_or(1)
}

/// Number of the flow of a frame.
fn number(frame: &[u8; PAYLOAD + 8]) -> u64 {
    u64::from_be_bytes(*frame.last_chunk().expect("it is as long"))
}

/// Source, source port, destination and destination port.
fn ends(frame: &[u8]) -> Option<(u32, u16, u32, u16)> {
    let ip = Ip4::at(frame, ETHER_BYTES)?;
    let port = |at| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    Some((ip.src(), port(UDP)?, ip.dst(), port(UDP + 2)?))
}

/// Notes with each run how it compares with the path without translation, turn by turn.
pub(super) fn compare(runs: &mut [Run]) {
    let is_ours = |name: &str| RUNS.iter().any(|row| row.name == name) || name == floor::NAME;
    super::note_shares(runs, "graph-v4", is_ours);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Answers;
    use crate::forward::{Stream, forward, tests::tables};
    use crate::table::Tables;

    fn options() -> ForwardOptions {
        ForwardOptions {
            tables: Tables { v6: None, ..tables() },
            streams: vec![Stream::Prefix],
            destinations: 500,
            seconds: 0.01,
            mappings: 9_900,
            elements: false,
            ..ForwardOptions::default()
        }
    }

    #[test]
    fn flows_are_translated_and_replies_find_back() {
        let runs = forward(&options()).unwrap().runs;
        for row in &RUNS {
            let mappings = (row.flows)(500, 10_000);
            let run = runs.iter().find(|run| run.name == row.name).unwrap();
            assert_eq!((run.answers, run.samples.len()), (Answers::Ok, 9), "{run:?}");
            assert!(run.note.starts_with(&format!("{mappings} mappings of ")), "{}", run.note);
            assert!(run.note.ends_with(" of graph-v4"), "{}", run.note);
        }
    }

    #[test]
    fn a_reply_that_finds_no_flow_is_seen() {
        let tables = options().tables;
        let table = tables.v4.as_ref().unwrap();
        let (control, ports) = world::build(&tables, None, None, None).unwrap();
        let (found, headers) = packets(table, &options(), Stream::Prefix).unwrap();
        // A table that is too small for the last three.
        let mut nat = Nat::new(&found, &headers, (497, 1), 64, &control, ports).unwrap();
        let left = nat.send(nat.headers.clone(), Some(nat.stamp(|n| n)), 500);
        let (checked, wrong) = nat.check(left, 500).unwrap();
        assert!(checked > 900 && wrong >= 3, "{wrong} of {checked}");
    }
}
