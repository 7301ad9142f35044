//! A stream of updates as fast as it goes, and lookups on another core meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fingerpost_lpm::NextHopId;
use fingerpost_route::Forwarding;

use super::world::World;
use super::{FibOptions, blank, check, load};
use crate::batches::Batches;
use crate::cores::pin;
use crate::document::{Run, Unit};
use crate::family::Family;
use crate::measure::{Clock, Plan, sample_beside};
use crate::table::{Table, Tables};
use crate::update::changes::{Changes, random_pairs};
use fingerpost_command::progress::Progress;

/// Updates between commits, of which the FIB takes what is due. A source hands over what one read of its
/// socket gave, and 64 KiB of netlink are some 800 routes.
const BURST: usize = 1024;
/// Random pairs, where no stream is given.
const PAIRS: usize = 1 << 16;

/// The changes of both families.
pub(super) struct Updates {
    pub(super) v4: Changes<u32>,
    pub(super) v6: Changes<u128>,
    /// What they are.
    pub(super) name: &'static str,
    /// Next hops that they or the tables name, of each family.
    pub(super) hops: [u32; 2],
}

impl Updates {
    /// The recorded stream, or random routes withdrawn and announced again.
    pub(super) fn of(options: &FibOptions) -> Self {
        let tables = &options.tables;
        let (empty4, empty6) = (Table::new("", Vec::new()), Table::new("", Vec::new()));
        let v4 = tables.v4.as_ref().unwrap_or(&empty4);
        let v6 = tables.v6.as_ref().unwrap_or(&empty6);
        let (v4, v6, name) = match &options.recorded {
            Some(recorded) => (recorded.changes(v4), recorded.changes(v6), "the recorded stream"),
            None => (
                random_pairs(v4, PAIRS, options.seed),
                random_pairs(v6, PAIRS, options.seed),
                "random routes withdrawn and announced again",
            ),
        };
        let most = |hops: &mut dyn Iterator<Item = NextHopId>| hops.map(|hop| hop.0).max();
        let own = load::hops(tables);
        let hops = [
            most(&mut v4.iter().map(|change| change.1)).unwrap_or(0).max(own[0]),
            most(&mut v6.iter().map(|change| change.1)).unwrap_or(0).max(own[1]),
        ];
        Self { v4, v6, name, hops }
    }

    pub(super) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

/// A world with the table, and the updates that it goes through over and over.
struct Writer<'a> {
    world: World,
    updates: &'a Updates,
    at: usize,
}

impl<'a> Writer<'a> {
    fn new(tables: &Tables, updates: &'a Updates) -> Result<Self> {
        let mut world = World::new(updates.hops, 0)?;
        load::fill(&mut world, tables.v4.as_ref());
        load::fill(&mut world, tables.v6.as_ref());
        world.commit()?;
        Ok(Self { world, updates, at: 0 })
    }

    /// The next updates, visible when the FIB finds them due.
    fn burst(&mut self) -> Result<u64> {
        let Updates { v4, v6, .. } = self.updates;
        let end = (self.at + BURST).min(self.updates.len());
        for at in self.at..end {
            if let Some(&(prefix, hop)) = v4.get(at) {
                self.world.set(prefix, hop);
            } else {
                let (prefix, hop) = v6[at - v4.len()];
                self.world.set(prefix, hop);
            }
        }
        let done = end - self.at;
        self.at = if end == self.updates.len() { 0 } else { end };
        self.world.commit_due()?;
        Ok(done as u64)
    }

    /// Applies the rest of the updates, and looks up the edges of all prefixes that they name: how many
    /// answers were looked at, and how many were wrong.
    fn end(&mut self, tables: &Tables) -> Result<(u64, u64)> {
        while self.at > 0 {
            self.burst()?;
        }
        self.world.commit()?;
        if let Some(refused) = self.world.refused() {
            bail!(refused);
        }
        let mut reader = self.world.control.reader();
        let v4 = after(reader.pin(), tables.v4.as_ref(), &self.updates.v4);
        let v6 = after(reader.pin(), tables.v6.as_ref(), &self.updates.v6);
        Ok((v4.0 + v6.0, v4.1 + v6.1))
    }

    #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    fn rate(&mut self, plan: Plan) -> Result<Rate> {
        let (start, cpu, mut done) = (Instant::now(), Clock::Thread.now(), 0);
        while start.elapsed() < plan.sample {
            done += self.burst()?;
        }
        self.world.commit()?;
        let (wall, cpu) = (start.elapsed(), Clock::Thread.now().saturating_sub(cpu));
        let each = |time: Duration| done as f64 / time.as_secs_f64().max(1e-9);
        Ok(Rate { wall: each(wall), cpu: each(cpu) })
    }
}

/// Updates a second, by the clock of the wall and by that of the thread: another program on the core
/// makes the difference.
struct Rate {
    wall: f64,
    cpu: f64,
}

/// `stream-replay`.
pub(super) fn measure(options: &FibOptions, updates: &Updates, plan: Plan) -> Run {
    let mut run = blank("stream-replay", Unit::UpdatesPerSecond);
    let measured = std::thread::scope(|scope| {
        let body = || {
            pin(0);
            rates(&options.tables, updates, plan, &mut run)
        };
        scope.spawn(body).join().expect("a replay returns its errors")
    });
    if let Err(error) = measured {
        run.note = format!("{error:#}");
    }
    run
}

fn rates(tables: &Tables, updates: &Updates, plan: Plan, run: &mut Run) -> Result<()> {
    ensure!(updates.len() > 0, "no update for the families of the table");
    let mut writer = Writer::new(tables, updates)?;
    let (mut rates, mut alone) = (Vec::new(), Vec::new());
    for round in 0..=plan.samples {
        let rate = writer.rate(plan)?;
        if round > 0 {
            rates.push(rate.wall);
            alone.push(rate.cpu);
        }
    }
    alone.sort_by(f64::total_cmp);
    let (asked, wrong) = writer.end(tables)?;
    run.set_answers(asked, wrong);
    run.set_samples(rates);
    run.note = format!(
        "{}, {} updates, {BURST} handed over at once, batched by the FIB; {:.0} a second of CPU time",
        updates.name,
        updates.len(),
        alone[alone.len() / 2]
    );
    Ok(())
}

/// The edges of all prefixes that the changes name, once all were made.
fn after<A: Family>(
    forwarding: &Forwarding,
    table: Option<&Table<A>>,
    changes: &Changes<A>,
) -> (u64, u64) {
    let mut oracle = table.map(Table::oracle).unwrap_or_default();
    for &(prefix, hop) in changes {
        oracle.set(prefix, hop);
    }
    let named: Vec<_> = changes.iter().map(|&(prefix, hop)| (prefix, hop.0)).collect();
    check::edges(forwarding, &named, &oracle)
}

/// `lookups-during-updates`.
pub(super) fn beside(
    options: &FibOptions,
    updates: &Updates,
    plan: Plan,
    progress: &mut Progress,
) -> Run {
    let mut run = blank("lookups-during-updates", Unit::Share);
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        run.note = "needs two cores".to_owned();
        return run;
    }
    let tables = &options.tables;
    run.threads = 2;
    run.note = format!(
        "of the rate while the other core replays {} into a router of its own",
        updates.name
    );
    let shared = match (&tables.v4, &tables.v6) {
        (Some(table), _) => shares(tables, table, updates, plan, &mut run, progress),
        (None, Some(table)) => shares(tables, table, updates, plan, &mut run, progress),
        (None, None) => Ok(()),
    };
    if let Err(error) = shared {
        run.note = format!("{error:#}");
    }
    run
}

fn shares<A: Family>(
    tables: &Tables,
    table: &Table<A>,
    updates: &Updates,
    plan: Plan,
    run: &mut Run,
    progress: &mut Progress,
) -> Result<()> {
    ensure!(updates.len() > 0, "no update for the families of the table");
    let mut shared = Writer::new(tables, updates)?;
    let mut private = Writer::new(tables, updates)?;
    let mut lookups = Batches::new(table, shared.world.control.reader());
    let mut shares = Vec::new();
    for round in 0..=plan.samples {
        progress.step("lookups beside updates", round, plan.samples + 1);
        let busy = sample_beside(&mut lookups, plan, &mut || shared.burst().map(drop))
            .context("the writer failed")?;
        let alone = sample_beside(&mut lookups, plan, &mut || private.burst().map(drop))
            .context("the writer failed")?;
        if round > 0 {
            shares.push(alone / busy);
        }
    }
    let (asked, wrong) = shared.end(tables)?;
    run.set_answers(asked, wrong);
    run.set_samples(shares);
    Ok(())
}
