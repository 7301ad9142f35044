//! A full table from events to a FIB that readers see, its size, and its withdrawal.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fingerpost_lpm::NextHopId;
use fingerpost_route::{Forwarding, Reader, RouteEvent};

use super::check;
use super::world::{self, World};
use super::{FibOptions, blank};
use crate::cores::pin;
use crate::document::{Run, Unit};
use crate::family::Family;
use crate::measure::Clock;
use crate::table::{Table, Tables};
use fingerpost_command::progress::Progress;

/// What one round took and left.
#[derive(Default)]
struct Round {
    load: Took,
    withdraw: Took,
    /// RIB, FIB and next hops by their own account, and what the process grew by.
    bytes: u64,
    grown: u64,
    /// Answers compared and wrong: with the table, and without it.
    full: (u64, u64),
    empty: (u64, u64),
    algorithms: String,
}

#[derive(Clone, Copy, Default)]
struct Took {
    wall: Duration,
    /// CPU time of the thread.
    cpu: Duration,
}

/// Next hops of each family's table.
pub(super) fn hops(tables: &Tables) -> [u32; 2] {
    [tables.v4.as_ref().map_or(0, |t| t.nexthops), tables.v6.as_ref().map_or(0, |t| t.nexthops)]
}

/// How many routes there are.
pub(super) fn routes(tables: &Tables) -> usize {
    tables.v4.as_ref().map_or(0, |t| t.routes.len())
        + tables.v6.as_ref().map_or(0, |t| t.routes.len())
}

/// `load`, `withdraw-all` and `bytes-per-route`.
pub(super) fn measure(options: &FibOptions, progress: &mut Progress) -> Vec<Run> {
    let tables = &options.tables;
    let mut runs = [
        blank("load", Unit::Ms),
        blank("withdraw-all", Unit::Ms),
        blank("bytes-per-route", Unit::Bytes),
    ];
    let mut rounds = Vec::new();
    // The first one finds no memory from before that it could use again, so that what the process
    // grows by is what the table takes; its times do not count.
    for number in 0..=options.samples {
        progress.step("load", number, options.samples + 1);
        // A thread of its own, so that what it is pinned to is not inherited by anything else.
        let round = std::thread::scope(|scope| {
            let round = || {
                pin(0);
                round(tables, number == 0)
            };
            scope.spawn(round).join().expect("a round returns its errors")
        });
        match round {
            Ok(round) => rounds.push(round),
            Err(error) => {
                for run in &mut runs {
                    run.note = format!("{error:#}");
                }
                return runs.into();
            }
        }
    }
    describe(&mut runs, &rounds, routes(tables));
    runs.into()
}

#[allow(clippy::cast_precision_loss, reason = "sizes stay below 2^53")]
fn describe(runs: &mut [Run; 3], rounds: &[Round], routes: usize) {
    let (first, rest) = rounds.split_first().expect("there is always a first round");
    let [load, withdraw, bytes] = runs;
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    let median_cpu = |of: &dyn Fn(&Round) -> Took| {
        let mut all: Vec<_> = rest.iter().map(|round| of(round).cpu).collect();
        all.sort_unstable();
        ms(all[all.len() / 2])
    };
    load.set_samples(rest.iter().map(|round| ms(round.load.wall)).collect());
    load.set_answers(first.full.0, first.full.1);
    load.note = format!(
        "{routes} routes, {}; {:.0} ms of CPU time",
        first.algorithms,
        median_cpu(&|round| round.load)
    );
    withdraw.set_samples(rest.iter().map(|round| ms(round.withdraw.wall)).collect());
    withdraw.set_answers(first.empty.0, first.empty.1);
    withdraw.note = format!("{:.0} ms of CPU time", median_cpu(&|round| round.withdraw));
    let each = |total: u64| total as f64 / routes.max(1) as f64;
    bytes.set_samples(vec![each(first.bytes)]);
    bytes.set_answers(first.full.0, first.full.1);
    bytes.bytes = Some(first.bytes);
    bytes.bytes_per_prefix = Some(each(first.bytes));
    bytes.note = format!("the process grew by {:.1} bytes a route", each(first.grown));
}

fn round(tables: &Tables, check: bool) -> Result<Round> {
    let mut world = World::new(hops(tables), 0)?;
    let mut reader = world.control.reader();
    let mut done = Round::default();
    let resident = resident();
    done.load = timed(|| {
        world.mark(RouteEvent::StartOfTable);
        fill(&mut world, tables.v4.as_ref());
        fill(&mut world, tables.v6.as_ref());
        world.mark(RouteEvent::EndOfTable);
        world.commit()?;
        ensure!(sees(&mut reader, tables, true), "the table is not to be seen after its commit");
        Ok(())
    })?;
    done.grown = self::resident().saturating_sub(resident);
    // What the empty world had is part of it: a router without it holds no table.
    done.bytes = bytes(&world);
    done.algorithms = world.algorithms();
    if let Some(refused) = world.refused() {
        anyhow::bail!(refused);
    }
    if check {
        ask(&mut reader, tables, false, &mut done.full);
    }
    done.withdraw = timed(|| {
        empty(&mut world, tables.v4.as_ref());
        empty(&mut world, tables.v6.as_ref());
        world.commit()?;
        ensure!(sees(&mut reader, tables, false), "the table is still seen");
        Ok(())
    })?;
    if check {
        ask(&mut reader, tables, true, &mut done.empty);
    }
    Ok(done)
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Took> {
    let (wall, cpu) = (Instant::now(), Clock::Thread.now());
    work()?;
    Ok(Took { wall: wall.elapsed(), cpu: Clock::Thread.now().saturating_sub(cpu) })
}

/// Every route of the table, as its file has them.
pub(super) fn fill<A: Family>(world: &mut World, table: Option<&Table<A>>) {
    for &(prefix, hop) in table.map_or(&[][..], |table| &table.routes) {
        world.set(prefix, NextHopId(hop));
    }
}

fn empty<A: Family>(world: &mut World, table: Option<&Table<A>>) {
    for &(prefix, _) in table.map_or(&[][..], |table| &table.routes) {
        world.set(prefix, NextHopId::NONE);
    }
}

/// Whether a reader sees the last route of each table, or none of them.
fn sees(reader: &mut Reader<Forwarding>, tables: &Tables, routed: bool) -> bool {
    fn last<A: Family>(forwarding: &Forwarding, table: Option<&Table<A>>, routed: bool) -> bool {
        let Some(&(prefix, _)) = table.and_then(|table| table.routes.last()) else { return true };
        world::is_ours(prefix.last())
            || world::leaves(forwarding, prefix.last(), 0).is_some() == routed
    }
    let forwarding = reader.pin();
    last(forwarding, tables.v4.as_ref(), routed) && last(forwarding, tables.v6.as_ref(), routed)
}

/// The edges of the tables' prefixes; `empty`: after all of them were withdrawn.
fn ask(reader: &mut Reader<Forwarding>, tables: &Tables, empty: bool, total: &mut (u64, u64)) {
    fn of<A: Family>(forwarding: &Forwarding, table: Option<&Table<A>>, empty: bool) -> (u64, u64) {
        let Some(table) = table else { return (0, 0) };
        let oracle = if empty { Default::default() } else { table.oracle() };
        check::edges(forwarding, &table.routes, &oracle)
    }
    let forwarding = reader.pin();
    let v4 = of(forwarding, tables.v4.as_ref(), empty);
    let v6 = of(forwarding, tables.v6.as_ref(), empty);
    *total = (v4.0 + v6.0, v4.1 + v6.1);
}

/// What RIB, FIB and next hops hold, by their own account.
fn bytes(world: &World) -> u64 {
    let control = &world.control;
    let regions = control.next_hops().table().regions();
    let hops: usize = regions.iter().map(|region| region.bytes()).sum();
    let fib = control.fib_v4().lookup().bytes() + control.fib_v6().lookup().bytes();
    (control.rib_v4().bytes() + control.rib_v6().bytes() + fib + hops) as u64
}

/// Bytes of the process that lie in memory and belong to no file; 0 where the system does not report it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
