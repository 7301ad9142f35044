//! `updates`: the table is changed in place, as fast as it goes, while the program forwards by it.
//!
//! One core sends, forwards and checks, as in every other run; the other one has the control side. Random
//! routes get another next hop and their own again; packets go to addresses that other routes decide, in
//! the same pieces of the table, so every packet must leave as if nothing happened. What a change unlinks
//! may be used again only when the program is past: one that came too early would misroute these.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fingerpost_lpm::testing::Rng;
use fingerpost_lpm::{Addr, Lookup, NextHopId, Prefix};
use fingerpost_route::{
    AnyPrefix, Control, MAIN_TABLE, RouteEvent, RouteKey, RouteUpdate, SourceId, Target,
};

use super::engine::Ours;
use super::lab::{self, Lab};
use super::{Traffic, XdpOptions, settled};
use crate::cores::elsewhere;
use crate::document::{Kind, Run, Unit};
use crate::forward::stream::{self, Stream};
use crate::forward::world;
use crate::table::{Table, Tables};

/// Routes that change, over and over.
const CHANGING: usize = 1 << 16;
/// Changes that become visible together, at once: none of them waits for more. Fewer of a small table,
/// which would be built anew for so many.
const ROUND: usize = 1024;
/// Marks them while destinations are drawn.
const CHANGES: NextHopId = NextHopId(u32::MAX);
/// Distance of the source that changes them: less than that of the table's.
const BETTER: u8 = 10;
/// A sample of the writer lasts so long at least.
const LEAST: Duration = Duration::from_millis(20);
/// Packets of a sample are so many times those of the other runs, so that grace comes often.
const LONGER: u32 = 4;

/// A run for each family that has a table.
pub(super) fn measure(lab: &Lab, options: &XdpOptions, two_cores: bool) -> Vec<Run> {
    let Tables { v4, v6 } = &options.tables;
    if !two_cores {
        let families = v4.as_ref().map(|_| 4).into_iter().chain(v6.as_ref().map(|_| 6));
        return families.map(blank).collect();
    }
    let v4 = v4.as_ref().map(|table| family(lab, options, table, AnyPrefix::V4, waiting_v4));
    let v6 = v6.as_ref().map(|table| family(lab, options, table, AnyPrefix::V6, waiting_v6));
    v4.into_iter().chain(v6).collect()
}

fn blank(family: u8) -> Run {
    let name = format!("updates-v{family}");
    let mut run = Run::new(&name, Kind::Ours, Stream::Prefix.name(), Unit::UpdatesPerSecond);
    (run.family, run.threads) = (Some(family), 2);
    run.note = "needs two cores".to_owned();
    run
}

fn family<A: Addr>(
    lab: &Lab,
    options: &XdpOptions,
    table: &Table<A>,
    any: fn(Prefix<A>) -> AnyPrefix,
    waiting: fn(&Control) -> u64,
) -> Run {
    let mut run = blank(A::FAMILY);
    run.note.clear();
    if let Err(error) = fill(&mut run, lab, options, table, any, waiting) {
        run.note = format!("{error:#}");
    }
    run
}

/// Bytes of a table that wait for readers.
fn waiting<A: Addr>(lookup: &dyn Lookup<A>) -> u64 {
    let mut bytes = 0;
    lookup.stats(&mut |name, value| bytes += if name == "waiting_bytes" { value } else { 0 });
    bytes
}

fn waiting_v4(control: &Control) -> u64 {
    waiting(&**control.fib_v4().lookup())
}

fn waiting_v6(control: &Control) -> u64 {
    waiting(&**control.fib_v6().lookup())
}

fn fill<A: Addr>(
    run: &mut Run,
    lab: &Lab,
    options: &XdpOptions,
    table: &Table<A>,
    any: fn(Prefix<A>) -> AnyPrefix,
    waiting: fn(&Control) -> u64,
) -> Result<()> {
    let (changing, traffic) = scene(lab, options, table)?;
    let mut ours = lab.router.inside(|| Ours::new(&options.tables, A::FAMILY))?;
    let source = ours.control.add_source("updates", BETTER);
    let _held = lab.router.inside(|| {
        lab::set_forwarding(false)?;
        ours.hold()
    })?;
    let _ends = traffic.ends(lab)?;
    let built = builds(&ours.control);
    let control = &mut ours.control;
    let mut writer =
        Writer { control, source, changing: &changing, any, waiting, at: 0, most: 0, whole: 0.0 };
    let visible = writer.round();
    let (mut rates, mut sent, mut lost, mut wrong, mut ns) = (Vec::new(), 0, 0, 0, 0.0);
    for round in 0..=options.samples {
        traffic.meter.reset()?;
        let over = AtomicBool::new(false);
        let (rate, offered) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                elsewhere();
                lab.router.inside(|| writer.rate(&over))
            });
            let offered = traffic.generator.borrow_mut().run(LONGER * options.packets);
            over.store(true, Relaxed);
            (writer.join().expect("the writer returns its errors"), offered)
        });
        let (rate, offered) = (rate?, offered?);
        let reading = settled(&traffic.meter, offered)?;
        sent += offered;
        lost += offered.saturating_sub(reading.arrived);
        wrong += reading.wrong;
        // The first round finds the table as the build left it: it does not count.
        if round > 0 {
            rates.push(rate);
            ns += reading.ns_per_packet().context("too few packets arrived")?;
        }
    }
    let (most, whole) = (writer.most, writer.whole);
    run.destinations = Some(traffic.templates.len());
    run.set_answers(sent, wrong + lost);
    #[allow(clippy::cast_precision_loss, reason = "a few samples")]
    let ns = ns / options.samples as f64;
    run.set_samples(rates);
    run.note = format!(
        "{} routes, {visible} changes visible at a time; with the RIB {whole:.0}; {} builds, at most {} \
         KiB waiting; {sent} packets beside it, {ns:.0} ns each, {lost} lost",
        changing.len(),
        builds(&ours.control) - built,
        most.div_ceil(1024)
    );
    Ok(())
}

/// Tables built anew so far, and not changed in place.
fn builds(control: &Control) -> u64 {
    control.fib_v4().counts().builds + control.fib_v6().counts().builds
}

/// Routes that change, each with another next hop than it has.
type Changing<A> = Vec<(Prefix<A>, u32)>;

/// The routes that change, and traffic to addresses that other
/// routes decide.
fn scene<A: Addr>(
    lab: &Lab,
    options: &XdpOptions,
    table: &Table<A>,
) -> Result<(Changing<A>, Traffic)> {
    ensure!(table.nexthops > 1, "{}: one next hop", table.file);
    let mut rng = Rng::new(options.seed);
    // Half of a small table at most, so that something is left to forward.
    let changing = CHANGING.min(table.routes.len() / 2);
    let mut oracle = table.oracle();
    let mut drawn = BTreeMap::new();
    while drawn.len() < changing {
        let (prefix, hop) = table.routes[rng.below(table.routes.len())];
        drawn.insert(prefix, hop % table.nexthops + 1);
        oracle.set(prefix, CHANGES);
    }
    let count = options.destinations.iter().copied().max().unwrap_or(1);
    let mut found = stream::destinations(table, &oracle, Stream::Prefix, count, options.seed);
    found.retain(|&(_, hop)| hop != CHANGES);
    // Neighbors one after the other would fill one part of a table, which is built anew then.
    let mut changing: Changing<A> = drawn.into_iter().collect();
    for at in (1..changing.len()).rev() {
        changing.swap(at, rng.below(at + 1));
    }
    Ok((changing, Traffic::to(lab, table, &found)?))
}

/// Who changes them.
struct Writer<'a, A: Addr> {
    control: &'a mut Control,
    source: SourceId,
    changing: &'a [(Prefix<A>, u32)],
    any: fn(Prefix<A>) -> AnyPrefix,
    waiting: fn(&Control) -> u64,
    at: usize,
    /// Most bytes that waited.
    most: u64,
    /// Changes a second with what the RIB takes.
    whole: f64,
}

impl<A: Addr> Writer<'_, A> {
    /// Changes before they become visible.
    fn round(&self) -> usize {
        (self.changing.len() / 16).clamp(1, ROUND)
    }

    /// Changes until it is over; how many a second the table takes, waiting for readers included.
    #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    fn rate(&mut self, over: &AtomicBool) -> Result<f64> {
        let (start, mut done, mut took) = (Instant::now(), 0, Duration::ZERO);
        // Relaxed: it only ends the loop.
        while !over.load(Relaxed) || start.elapsed() < LEAST {
            for _ in 0..self.round() {
                self.step();
            }
            took += self.control.commit_now(Instant::now())?.took;
            self.most = self.most.max((self.waiting)(self.control));
            done += self.round();
        }
        self.whole = done as f64 / start.elapsed().as_secs_f64();
        Ok(done as f64 / took.as_secs_f64())
    }

    /// The next change: through all of them forwards, then back.
    fn step(&mut self) {
        let (prefix, other) = self.changing[self.at % self.changing.len()];
        let key = RouteKey { table: MAIN_TABLE, prefix: (self.any)(prefix), metric: 0 };
        let event = if self.at < self.changing.len() {
            let path = world::path(A::FAMILY, other);
            RouteEvent::Route(RouteUpdate::new(key, Target::Path(path)))
        } else {
            RouteEvent::Withdraw(key)
        };
        self.control.handle(self.source, event);
        self.at = (self.at + 1) % (2 * self.changing.len());
    }
}
