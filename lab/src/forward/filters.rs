//! The forwarding path with lists of source prefixes in it: the cost of source filters beside forwarding.
//!
//! Three lists of a million prefixes each are what "Surgical DDoS Filtering With Fast LPM" (Salopek, Zec, Mikuc, Vasic,
//! IEEE Access 10, 2022) looked up for each packet. `filters-v4` has an element a list, so as many lookups, as there;
//! `filters-v4-merged` has all lists in one element and one lookup. Every list drops; a tenth of the sources are on one.
//!
//! No list of addresses to drop is at hand that may be handed on, so they are drawn by seed: lengths as often as the
//! route table has them, but longer than 16 bits, for IPv6 32 (a list of random short
//! prefixes would cover most addresses), places where the table has routes. Sources are as many distinct ones as
//! there are destinations.
//!
//! Before anything is timed every packet crosses once: those whose source is on a list, by a hash map a length, must
//! end at a filter, and all others arrive as they must without filters.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use fingerpost_lpm::oracle::Oracle;
use fingerpost_lpm::{Addr, NextHopId, Prefix, Rng};
use fingerpost_packet::{Handlers, Plan};
use fingerpost_route::Control;

use super::{ForwardOptions, Path, Prepared, graphs, stream, world};
use crate::document::{Kind, Run, Unit};
use crate::table::Table;

/// One source of so many is on a list.
const LISTED_EACH: usize = 10;

/// Draws at most for each that is wanted.
const DRAWS: usize = 64;

/// The runs of a family, with the elements in a row and with one for all lists. None without filters.
pub(super) fn prepare<A: Addr>(
    table: &Table<A>,
    options: &ForwardOptions,
    control: &Control,
    ports: world::Ports,
    prepared: &mut Prepared,
) -> Result<()> {
    if options.filters == 0 {
        return Ok(());
    }
    ensure!(!table.routes.is_empty(), "{}: no routes", table.file);
    let space = Space::new(table);
    let seeds = (0..options.filters).map(|at| options.seed.wrapping_add(at as u64));
    let lists: Vec<Vec<Prefix<A>>> = seeds.map(|seed| space.list(options.listed, seed)).collect();
    let mut listed = Oracle::new();
    for &prefix in lists.iter().flatten() {
        listed.set(prefix, NextHopId(1));
    }
    let oracle = table.oracle();
    for merged in [false, true] {
        let (plan, handlers, elements) = graph(&lists, merged)?;
        let name = format!("filters-v{}{}", A::FAMILY, if merged { "-merged" } else { "" });
        for &stream in &options.streams {
            let found =
                stream::destinations(table, &oracle, stream, options.destinations, options.seed);
            ensure!(!found.is_empty(), "{}: no address to forward to", table.file);
            let sources = space.sources(&lists, &listed, found.len(), options.seed)?;
            let mut flows = Rng::new(options.seed);
            let mut headers = Vec::with_capacity(found.len());
            let mut arriving = Vec::with_capacity(found.len());
            for (destination, &source) in found.iter().zip(&sources) {
                let [.., a, b] = flows.word().to_be_bytes();
                let mut header = world::header(destination.0, u16::from_be_bytes([a, b]));
                world::set_source(&mut header, source);
                headers.push(header);
                if listed.lookup(source).is_none() {
                    arriving.push(*destination);
                }
            }
            let (all, ending) = (headers.len(), headers.len() - arriving.len());
            let before = dropped(&handlers, &elements)?;
            let mut path = Path::new(
                plan.clone(),
                control.reader(),
                ports,
                A::FAMILY,
                headers.into(),
                options.burst,
            );
            let (checked, mut wrong) = path.check_of(&arriving, all as u64);
            let ended = dropped(&handlers, &elements)? - before;
            wrong = wrong.max(ended.abs_diff(ending as u64));
            let mut run = Run::new(&name, Kind::Ours, stream.name(), Unit::NsPerPacket);
            run.family = Some(A::FAMILY);
            run.set_answers(checked + ended, wrong);
            run.note = format!(
                "{} lists of {} prefixes, {} lookups a packet, {all} sources of which {ending} are dropped",
                lists.len(),
                lists.iter().map(Vec::len).max().unwrap_or(0),
                elements.len(),
            );
            path.free_run();
            prepared.paths.push((run, path));
        }
    }
    Ok(())
}

/// Lists have no prefix as short as this or shorter.
fn longer_than<A: Addr>() -> u8 {
    if A::FAMILY == 4 { 16 } else { 32 }
}

/// Where a table has routes.
pub(super) struct Space<'a, A: Addr> {
    table: &'a Table<A>,
    /// Up to each route, how much of the address space all before it and itself have.
    sums: Vec<f64>,
}

impl<'a, A: Addr> Space<'a, A> {
    pub(super) fn new(table: &'a Table<A>) -> Self {
        let mut sum = 0.0;
        let share = |(prefix, _): &(Prefix<A>, u32)| {
            sum += (-f64::from(prefix.len())).exp2();
            sum
        };
        Self { table, sums: table.routes.iter().map(share).collect() }
    }

    /// An address that some route covers, each of them alike.
    fn address(&self, random: &mut Rng) -> A {
        let at = random.unit() * self.sums.last().copied().unwrap_or_default();
        let at = self.sums.partition_point(|&sum| sum <= at).min(self.sums.len() - 1);
        random.host(self.table.routes[at].0)
    }

    /// Draws up to `count` distinct prefixes.
    pub(super) fn list(&self, count: usize, seed: u64) -> Vec<Prefix<A>> {
        let long = self.table.routes.iter().map(|(prefix, _)| prefix.len());
        let long: Vec<u8> = long.filter(|&len| len > longer_than::<A>()).collect();
        // Not the numbers that destinations are drawn by.
        let mut random = Rng::new(seed ^ 0x5ea1_15f5);
        let mut seen = HashSet::with_capacity(count);
        let mut drawn = Vec::with_capacity(count);
        for _ in 0..count.saturating_mul(DRAWS) {
            if drawn.len() == count || long.is_empty() {
                break;
            }
            let addr = self.address(&mut random);
            let prefix = Prefix::masked(addr, long[random.below(long.len())]);
            if seen.insert(prefix) {
                drawn.push(prefix);
            }
        }
        drawn
    }

    /// Distinct sources, a tenth of which are on a list, in random order.
    fn sources(
        &self,
        lists: &[Vec<Prefix<A>>],
        listed: &Oracle<A>,
        count: usize,
        seed: u64,
    ) -> Result<Vec<A>> {
        let mut random = Rng::new(seed ^ 0x0050_0ce5);
        let (mut seen, mut drawn) = (HashSet::new(), Vec::with_capacity(count));
        while drawn.len() < count {
            let on_list = random.below(LISTED_EACH) == 0;
            let fits = (0..DRAWS).find_map(|_| {
                let addr = if on_list {
                    let list = &lists[random.below(lists.len())];
                    let at = random.below(list.len().max(1));
                    random.host(*list.get(at)?)
                } else {
                    self.address(&mut random)
                };
                let fits = listed.lookup(addr).is_none() != on_list && stream::forwardable(addr);
                (fits && seen.insert(addr)).then_some(addr)
            });
            drawn.push(
                fits.with_context(|| format!("no more sources like the first {}", drawn.len()))?,
            );
        }
        Ok(drawn)
    }
}

/// The built-in router with filters between the check of a packet and its lookup; its handlers; and the filters' names.
fn graph<A: Addr>(lists: &[Vec<Prefix<A>>], merged: bool) -> Result<(Plan, Handlers, Vec<String>)> {
    let files: Vec<ListFile> = lists
        .iter()
        .enumerate()
        .map(|(at, list)| ListFile::write(at, list))
        .collect::<Result<_>>()?;
    let sets = files.iter().enumerate();
    let sets: Vec<String> =
        sets.map(|(at, file)| format!("list{at} drop FILE \"{}\"", file.path())).collect();
    let sets = if merged { vec![sets.join(", ")] } else { sets };
    let names: Vec<String> = (0..sets.len()).map(|at| format!("filter{at}")).collect();
    let mut chain = String::new();
    for (name, sets) in names.iter().zip(&sets) {
        write!(chain, "{name} :: SourceFilter({sets}) -> ")?;
    }
    let (plan, handlers) = graphs::built_in_with("filters", A::FAMILY, &chain)?;
    Ok((plan, handlers, names))
}

/// Packets that the filters have dropped so far.
fn dropped(handlers: &Handlers, elements: &[String]) -> Result<u64> {
    let mut sum = 0;
    for name in elements {
        let count =
            handlers.read(&format!("{name}.drops"), "").map_err(|error| anyhow!("{error}"))?;
        sum += count.trim().parse::<u64>().context("a count")?;
    }
    Ok(sum)
}

/// A list in a file, which goes with it.
pub(super) struct ListFile(PathBuf);

impl ListFile {
    pub(super) fn write<A: Addr>(at: usize, list: &[Prefix<A>]) -> Result<Self> {
        let name = format!("fingerpost-list-{}-v{}-{at}", std::process::id(), A::FAMILY);
        let file = Self(std::env::temp_dir().join(name));
        let mut out = std::io::BufWriter::new(std::fs::File::create(&file.0)?);
        for prefix in list {
            writeln!(out, "{prefix}")?;
        }
        out.flush()?;
        Ok(file)
    }

    /// The path, for configurations.
    pub(super) fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for ListFile {
    fn drop(&mut self) {
        // What cannot be removed lies in the folder for such files.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Answers;
    use crate::forward::{Stream, forward, tests::tables};
    use fingerpost_packet::device::memory::HEADER_BYTES;

    fn options() -> ForwardOptions {
        ForwardOptions {
            tables: tables(),
            streams: vec![Stream::Prefix],
            destinations: 500,
            seconds: 0.01,
            filters: 3,
            listed: 2000,
            elements: false,
            ..ForwardOptions::default()
        }
    }

    #[test]
    fn listed_sources_end_and_others_arrive() {
        let document = forward(&options()).unwrap();
        let seen: Vec<_> = document
            .runs
            .iter()
            .map(|run| (&run.name[..], run.answers, run.samples.len()))
            .collect();
        let ours = ["graph-v4", "filters-v4", "filters-v4-merged", "graph-v6", "filters-v6"];
        let ours = ours.into_iter().chain(["filters-v6-merged"]).map(|name| (name, Answers::Ok, 9));
        assert_eq!(seen, ours.chain([("generator", Answers::Unchecked, 9)]).collect::<Vec<_>>());
    }

    #[test]
    fn a_tenth_of_the_sources_are_on_a_list_by_a_search_of_all() {
        let tables = tables();
        let space = Space::new(tables.v4.as_ref().unwrap());
        let lists: Vec<_> = (0..3).map(|seed| space.list(1000, seed)).collect();
        let mut listed = Oracle::new();
        for &prefix in lists.iter().flatten() {
            listed.set(prefix, NextHopId(1));
        }
        let sources = space.sources(&lists, &listed, 1000, 1).unwrap();
        let on_list =
            |source: &&u32| lists.iter().flatten().any(|prefix| prefix.contains(**source));
        assert!((60..140).contains(&sources.iter().filter(on_list).count()));
        assert!(lists.iter().all(|list| list.len() == 1000 && list.iter().all(|p| p.len() > 16)));
        assert_ne!(lists[0], lists[1]);
    }

    #[test]
    fn a_filter_that_lets_a_source_pass_is_seen() {
        let tables = tables();
        let table = tables.v4.as_ref().unwrap();
        let (control, ports) = world::build(&tables, None, None, None).unwrap();
        let oracle = table.oracle();
        let found = stream::destinations(table, &oracle, Stream::Prefix, 100, 3);
        let headers: Vec<_> = found.iter().map(|found| world::header(found.0, 1)).collect();
        let lists = [vec![Prefix::masked(0xc633_6400, 24)]];
        let (plan, handlers, elements) = graph::<u32>(&lists, true).unwrap();
        let path = |headers: &[[u8; HEADER_BYTES]]| {
            Path::new(plan.clone(), control.reader(), ports, 4, headers.into(), 64)
        };
        assert_eq!(path(&headers).check_of(&found[..0], 100), (0, 0), "all end");
        assert_eq!(dropped(&handlers, &elements).unwrap(), 100);
        // As if the lists had one source less.
        let mut headers = headers;
        world::set_source(&mut headers[7], 0xc633_6309_u32);
        assert_eq!(path(&headers).check_of(&found[..0], 100), (1, 1));
        assert_eq!(path(&headers).check_of(&found[7..8], 100), (1, 0));
    }
}
