//! `fingerpost table info`: how many routes, of which lengths, to how many next hops; and how a table
//! falls into chunks, which sizes DXR and its like (the table of the DXR paper, for any K).
//!
//! Cost: loading; the distribution of chunks is one ordered walk of the routes for each K.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use fingerpost_lpm::{Addr, Prefix, RouteStore, intervals};
use fingerpost_route::source::table::PeerChoice;
use serde::{Serialize, Serializer};

use crate::cli::command::Failure;
use crate::cli::load::{Half, Tables};
use crate::cli::output::{Columns, Output, Report};

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost table info rib.20261101.0600.bz2
  $ fingerpost table info rib.20261101.0600.bz2 --peer best
  $ fingerpost table info v4.txt.xz --chunks 16,18,20
  $ fingerpost table info v4.txt.xz --json | jq .routes_v4";

#[derive(Args)]
pub(super) struct Arguments {
    /// Table files: lines `PREFIX NEXTHOP`, or MRT; plain, .gz, .bz2, .xz or .zst
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Which routes of an MRT dump of several peers: of the first peer that a prefix has, of the peer with this number, or
    /// the best ones
    #[arg(long, value_name = "first|N|best", default_value = "first")]
    peer: PeerChoice,
    /// Also the distribution of chunk lengths: of the 2^K parts of the address space, how many hold
    /// how many ranges with a next hop of their own
    #[arg(long, value_name = "K", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=32))]
    chunks: Vec<u8>,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let tables = Tables::load_of(&arguments.files, arguments.peer)?;
    output.print(&Info::new(&tables, &arguments.chunks))?;
    tables.verdict()
}

/// The JSON of this command.
#[derive(Serialize)]
struct Info {
    routes_v4: usize,
    routes_v6: usize,
    nexthops: usize,
    lengths_v4: InOrder<usize, u32>,
    lengths_v6: InOrder<usize, u32>,
    default_v4: bool,
    default_v6: bool,
    /// Routes that a later one of the same prefix replaced.
    replaced: u64,
    /// Lines or records that make no sense.
    rejected: u64,
    load_ms: u64,
    routes_per_second: u64,
    /// Bytes of the two route stores.
    store_bytes: usize,
    /// Peak resident memory of this program; 0 where the system does not report it.
    peak_bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chunks: Vec<Chunks>,
}

impl Info {
    fn new(tables: &Tables, chunks: &[u8]) -> Self {
        let Tables { v4, v6, .. } = tables;
        let hops: HashSet<_> = v4.hops.iter().chain(&v6.hops).collect();
        let of_family = |k| [Chunks::new(k, &v4.routes), Chunks::new(k, &v6.routes)];
        let seconds = tables.took.as_secs_f64().max(1e-9);
        Self {
            routes_v4: v4.routes.len(),
            routes_v6: v6.routes.len(),
            nexthops: hops.len(),
            lengths_v4: lengths(v4),
            lengths_v6: lengths(v6),
            default_v4: v4.routes.get(Prefix::ALL).is_some(),
            default_v6: v6.routes.get(Prefix::ALL).is_some(),
            replaced: tables.replaced,
            rejected: tables.rejected,
            load_ms: u64::try_from(tables.took.as_millis()).unwrap_or(u64::MAX),
            routes_per_second: per_second(tables.read, seconds),
            store_bytes: v4.routes.bytes() + v6.routes.bytes(),
            peak_bytes: peak_bytes(),
            chunks: chunks.iter().flat_map(|&k| of_family(k)).flatten().collect(),
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a rate; the conversion saturates")]
fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds) as u64
}

/// `VmHWM` of Linux.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn lengths<A: Addr>(half: &Half<A>) -> InOrder<usize, u32> {
    let used = half.routes.lengths().iter().copied().enumerate().filter(|&(_, count)| count > 0);
    InOrder(used.collect())
}

/// A JSON object whose fields keep their order.
struct InOrder<K, V>(Vec<(K, V)>);

impl<K: Serialize, V: Serialize> Serialize for InOrder<K, V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// How many of the 2^K parts of an address space hold how many ranges.
#[derive(Serialize)]
struct Chunks {
    family: u8,
    k: u8,
    /// 2^K.
    chunks: u64,
    /// Ranges of the longest.
    longest: u64,
    /// Chunks by ranges: `1`, `2`, `3-4`, `5-8` and so on by powers of two.
    counts: InOrder<String, u64>,
    /// Shares of the counts in all chunks.
    shares: InOrder<String, f64>,
}

impl Chunks {
    /// `None` for a family without routes.
    fn new<A: Addr>(k: u8, routes: &RouteStore<A>) -> Option<Self> {
        if routes.is_empty() {
            return None;
        }
        let chunks = 1u64 << k;
        let mut counts = vec![0u64];
        let (mut longest, mut seen) = (1, 0);
        let mut count = |ranges: u64| {
            // 1, 2, 3 to 4, 5 to 8: bin 0, 1, 2, 3.
            let bin = ranges.next_power_of_two().trailing_zeros() as usize;
            counts.resize(counts.len().max(bin + 1), 0);
            counts[bin] += 1;
            longest = longest.max(ranges);
            seen += 1;
        };
        // A chunk has as many ranges as answers begin inside it, and the one that it begins with.
        let mut at = (0, 1);
        intervals::sweep(Prefix::ALL, routes, &mut |start: A, _| {
            if start & A::mask(k) == start {
                return;
            }
            let chunk = start.bits(0, k);
            if chunk != at.0 {
                if at.1 > 1 {
                    count(at.1);
                }
                at = (chunk, 1);
            }
            at.1 += 1;
        });
        if at.1 > 1 {
            count(at.1);
        }
        counts[0] = chunks - seen;
        let label = |bin: usize| match bin {
            0 => "1".to_owned(),
            1 => "2".to_owned(),
            _ => format!("{}-{}", (1 << (bin - 1)) + 1, 1 << bin),
        };
        let counts: Vec<_> = counts.into_iter().enumerate().map(|(b, n)| (label(b), n)).collect();
        let share = |(label, n): &(String, u64)| (label.clone(), *n as f64 / chunks as f64);
        let shares = InOrder(counts.iter().map(share).collect());
        Some(Self { family: A::FAMILY, k, chunks, longest, counts: InOrder(counts), shares })
    }
}

impl Report for Info {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let yes = |is| if is { "yes" } else { "no" };
        writeln!(to, "routes     {} IPv4, {} IPv6", self.routes_v4, self.routes_v6)?;
        writeln!(to, "next hops  {}", self.nexthops)?;
        writeln!(to, "default    IPv4 {}, IPv6 {}", yes(self.default_v4), yes(self.default_v6))?;
        if self.replaced + self.rejected > 0 {
            let Self { replaced, rejected, .. } = self;
            writeln!(to, "besides    {replaced} replaced by a later line, {rejected} rejected")?;
        }
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(
            to,
            "loaded     in {} ms, {} routes/s; route store {:.1} MiB, peak {:.1} MiB",
            self.load_ms,
            self.routes_per_second,
            mib(self.store_bytes as u64),
            mib(self.peak_bytes)
        )?;
        let mut columns = Columns::new(&["LENGTH", "IPv4", "IPv6"]);
        for len in 0..=128 {
            let of = |lengths: &InOrder<usize, u32>| {
                lengths.0.iter().find(|&&(l, _)| l == len).map(|&(_, count)| count)
            };
            let (v4, v6) = (of(&self.lengths_v4), of(&self.lengths_v6));
            if v4.or(v6).is_some() {
                let cell = |count: Option<u32>| count.map_or("-".into(), |n| n.to_string());
                columns.row([len.to_string(), cell(v4), cell(v6)]);
            }
        }
        writeln!(to)?;
        columns.write(to)?;
        for chunks in &self.chunks {
            let Chunks { family, k, longest, .. } = chunks;
            writeln!(to, "\nIPv{family} in 2^{k} chunks, of at most {longest} ranges:")?;
            let mut columns = Columns::new(&["RANGES", "CHUNKS", "SHARE"]);
            for ((label, count), (_, share)) in chunks.counts.0.iter().zip(&chunks.shares.0) {
                columns.row([label.clone(), count.to_string(), format!("{share:.5}")]);
            }
            columns.write(to)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_lpm::{NextHopId, Routes, testing};

    /// Counted one chunk after the other.
    fn slow<A: Addr>(k: u8, routes: &RouteStore<A>) -> Vec<u64> {
        let mut counts = vec![0; 40];
        for chunk in 0..1u128 << k {
            let block = Prefix::masked(A::from_u128(chunk << (A::BITS - k)), k);
            let mut ranges = 0u64;
            intervals::sweep(block, routes, &mut |_, _| ranges += 1);
            counts[ranges.next_power_of_two().trailing_zeros() as usize] += 1;
        }
        while counts.last() == Some(&0) {
            counts.pop();
        }
        counts
    }

    fn compare<A: Addr>(shape: testing::Shape) {
        let routes: RouteStore<A> = testing::table(shape, 5000, 20, 3).into_iter().collect();
        assert!(routes.stats().prefixes > 1000);
        for k in [1, 2, 8, 12] {
            let chunks = Chunks::new(k, &routes).unwrap();
            let counts: Vec<_> = chunks.counts.0.iter().map(|&(_, n)| n).collect();
            assert_eq!(counts, slow(k, &routes), "IPv{} k {k}", A::FAMILY);
            assert!((chunks.shares.0.iter().map(|(_, s)| s).sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn chunks_are_counted_as_one_would() {
        for shape in [testing::Shape::Internet, testing::Shape::Hostile] {
            compare::<u32>(shape);
            compare::<u128>(shape);
        }
        let labels = |chunks: &Chunks| {
            chunks.counts.0.iter().map(|(label, _)| label.clone()).collect::<Vec<_>>()
        };
        let mut routes = RouteStore::<u32>::new();
        assert!(Chunks::new(8, &routes).is_none());
        routes.insert(Prefix::ALL, NextHopId(1));
        assert_eq!(labels(&Chunks::new(32, &routes).unwrap()), ["1"]);
        for host in 0..5u32 {
            routes.insert(Prefix::host(host * 2), NextHopId(2));
        }
        let chunks = Chunks::new(8, &routes).unwrap();
        assert_eq!(labels(&chunks), ["1", "2", "3-4", "5-8", "9-16"]);
        assert_eq!((chunks.longest, chunks.counts.0[4].1, chunks.counts.0[0].1), (10, 1, 255));
    }

    #[test]
    fn the_system_says_how_much_is_resident() {
        assert!(peak_bytes() > 1 << 20);
    }
}
