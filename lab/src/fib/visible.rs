//! How long a change takes until a reader on another core sees it.
//!
//! The reader pins, looks up and follows the answer to the link address that a packet would be sent to,
//! over and over, until that is the one after the change; it takes the time then. The clock starts
//! before the control side receives the event.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fingerpost_lpm::testing::Rng;
use fingerpost_lpm::{Lookup, NextHopId};
use fingerpost_route::{Forwarding, Mac, Reader};

use super::world::{self, FAR, NEAR, World};
use super::{FibOptions, blank, check, load};
use crate::cores::pin;
use crate::document::{Mode, Run, Unit};
use crate::family::Family;
use crate::measure::Plan;
use crate::table::Table;
use fingerpost_command::progress::Progress;

/// A change that is not seen for so long counts as a wrong answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Single changes drawn; each route makes three.
const ROUTES: usize = 2000;
/// Routes behind the next hop that is lost, where the table has as many.
const BEHIND: usize = 400_000;

/// What a reader is to see.
struct Sight<A> {
    /// Addresses, at each of which the change must be seen.
    addrs: Vec<A>,
    mac: Option<Mac>,
    flows: Flows,
}

/// Flows that show the change.
#[derive(Clone, Copy)]
enum Flows {
    /// All are alike.
    One,
    /// Every one of some, spread over the members of a group.
    All,
    /// One of those is enough.
    Any,
}

/// Flows that are looked at: one for each bucket of a group of two, which is written bucket by bucket.
const FLOWS: u32 = 256;

/// An address for each next hop that the answers name: a host route has another one than a prefix has,
/// though both lead the same way, and they move one after the other.
fn one_of_each<A: Family>(addrs: &[A], table: &dyn Lookup<A>) -> Vec<A> {
    let each: BTreeMap<NextHopId, A> = addrs.iter().map(|&a| (table.lookup(a), a)).collect();
    each.into_values().collect()
}

/// The hash of a flow: in any part of its bits as good as random.
fn flow(number: u32) -> u32 {
    (number + 1).wrapping_mul(0x9e37_79b9).swap_bytes()
}

impl<A: Family> Sight<A> {
    #[inline]
    fn is_seen(&self, forwarding: &Forwarding) -> bool {
        let at = |&addr: &A| {
            let mut seen = (0..FLOWS).map(|n| world::leaves(forwarding, addr, n << 24) == self.mac);
            match self.flows {
                Flows::One => world::leaves(forwarding, addr, 0) == self.mac,
                Flows::All => seen.all(|seen| seen),
                Flows::Any => seen.any(|seen| seen),
            }
        };
        self.addrs.iter().all(at)
    }
}

/// How both ends meet.
#[derive(Default)]
struct Meeting {
    /// The number of the sight that is looked out for, from 1; 0 before the first.
    wanted: AtomicU64,
    /// The one that the reader looks out for, and has not seen when it first looked.
    watched: AtomicU64,
    /// The one that was seen last, and when, in ns.
    seen: AtomicU64,
    seen_ns: AtomicU64,
    /// Answers that were wrong when all had to be right.
    wrong: AtomicU64,
}

/// No further sight comes.
const OVER: u64 = u64::MAX;

/// Nanoseconds, of any thread.
fn ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).expect("a run is no century")
}

/// What a reader does once it saw a sight; returns how many answers were wrong.
type Then<'a> = &'a (dyn Fn(&Forwarding, u64) -> u64 + Sync);

/// The reader's side: until it is over.
fn watch<A: Family>(
    mut reader: Reader<Forwarding>,
    sights: &[Sight<A>],
    meeting: &Meeting,
    start: Instant,
    then: Then<'_>,
) {
    let mut last = 0;
    loop {
        // Nobody is to wait for this reader while it has nothing to look for.
        reader.pin();
        // SeqCst throughout: a few accesses a sight, and none inside the loop that is timed.
        let wanted = meeting.wanted.load(Ordering::SeqCst);
        if wanted == OVER {
            return;
        }
        if wanted == last {
            std::hint::spin_loop();
            continue;
        }
        last = wanted;
        let at = usize::try_from(wanted - 1).expect("an index") % sights.len();
        let sight = &sights[at];
        meeting.watched.store(wanted, Ordering::SeqCst);
        loop {
            let forwarding = reader.pin();
            if sight.is_seen(forwarding) {
                meeting.seen_ns.store(ns(start), Ordering::SeqCst);
                let wrong = then(forwarding, wanted);
                meeting.wrong.fetch_add(wrong, Ordering::SeqCst);
                meeting.seen.store(wanted, Ordering::SeqCst);
                break;
            }
            // Relaxed: it only ends the loop.
            if meeting.wanted.load(Ordering::Relaxed) != wanted {
                break;
            }
        }
    }
}

/// The writer's side: makes a change that the sight of that number is to show, and returns how long it
/// took to be seen, in us; none if it never was.
fn change(
    meeting: &Meeting,
    start: Instant,
    number: u64,
    make: &mut dyn FnMut() -> Result<()>,
) -> Result<Option<f64>> {
    meeting.wanted.store(number, Ordering::SeqCst);
    wait(|| meeting.watched.load(Ordering::SeqCst) == number).context("the reader is gone")?;
    let begun = ns(start);
    make()?;
    let seen = wait(|| meeting.seen.load(Ordering::SeqCst) == number);
    #[allow(clippy::cast_precision_loss, reason = "times stay below 2^53 ns")]
    let took = meeting.seen_ns.load(Ordering::SeqCst).saturating_sub(begun) as f64 / 1e3;
    Ok(seen.is_some().then_some(took))
}

fn wait(mut done: impl FnMut() -> bool) -> Option<()> {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > PATIENCE {
            return None;
        }
        std::hint::spin_loop();
    }
    Some(())
}

/// Runs both ends on a core each.
fn beside<A: Family, T: Send>(
    reader: Reader<Forwarding>,
    sights: &[Sight<A>],
    then: Then<'_>,
    write: impl FnOnce(&Meeting, Instant) -> Result<T> + Send,
) -> Result<(T, u64)> {
    let (meeting, start, both) = (Meeting::default(), Instant::now(), Barrier::new(2));
    let (meeting, both) = (&meeting, &both);
    let written = std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(0);
            both.wait();
            watch(reader, sights, meeting, start, then);
        });
        let writer = scope.spawn(move || {
            pin(1);
            both.wait();
            let written = write(meeting, start);
            meeting.wanted.store(OVER, Ordering::SeqCst);
            written
        });
        writer.join().expect("the writer returns its errors")
    });
    Ok((written?, meeting.wrong.load(Ordering::SeqCst)))
}

/// A second core, or why not.
fn two_cores(run: &mut Run) -> bool {
    let enough = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) >= 2;
    if !enough {
        run.note = "needs two cores".to_owned();
    }
    enough
}

/// `change-to-visible`: one route gets another next hop, is withdrawn, and is announced again.
pub(super) fn single<A: Family>(table: &Table<A>, options: &FibOptions, plan: Plan) -> Run {
    let mut run = blank("change-to-visible", Unit::Us);
    (run.mode, run.family, run.threads) = (Mode::Single, Some(A::FAMILY), 2);
    if two_cores(&mut run)
        && let Err(error) = changes(table, options, plan, &mut run)
    {
        run.note = format!("{error:#}");
    }
    run
}

fn changes<A: Family>(
    table: &Table<A>,
    options: &FibOptions,
    plan: Plan,
    run: &mut Run,
) -> Result<()> {
    let mut oracle = table.oracle();
    let mut rng = Rng::new(options.seed);
    let (mut steps, mut sights) = (Vec::new(), Vec::new());
    for _ in 0..ROUTES {
        let (prefix, hop) = table.routes[rng.below(table.routes.len())];
        let Some(addr) = check::own_addr(prefix, &oracle, &mut rng) else { continue };
        let other = if hop == table.nexthops { 1 } else { hop + 1 };
        let mut before = NextHopId(hop);
        for hop in [NextHopId(other), NextHopId::NONE, NextHopId(hop)] {
            oracle.set(prefix, hop);
            let after = oracle.lookup(addr);
            // A withdrawal that leads to the same next hop cannot be seen, nor what follows it.
            if after != before {
                let mac = world::wanted::<A>(after);
                sights.push(Sight { addrs: vec![addr], mac, flows: Flows::One });
                steps.push((prefix, hop));
            }
            before = after;
        }
    }
    anyhow::ensure!(!steps.is_empty(), "no route of the table decides an address");
    // All routes are there, so that what is changed stands in a full RIB.
    let tables = &options.tables;
    let mut world = World::new(load::hops(tables), 0)?;
    load::fill(&mut world, tables.v4.as_ref());
    load::fill(&mut world, tables.v6.as_ref());
    world.commit()?;
    let least = plan.sample * u32::try_from(plan.samples).unwrap_or(1);
    let reader = world.control.reader();
    let (times, wrong) = beside(reader, &sights, &|_, _| 0, |meeting, start| {
        let (mut times, mut lost) = (Vec::new(), 0);
        // The first changes find the tables as the build left them: they do not count.
        let warm = steps.len() / 20;
        for (at, &(prefix, hop)) in steps.iter().enumerate() {
            let number = at as u64 + 1;
            let took = change(meeting, start, number, &mut || {
                world.set(prefix, hop);
                world.commit()
            })?;
            match took {
                Some(took) if at >= warm => times.push(took),
                Some(_) => {}
                None => lost += 1,
            }
            if start.elapsed() > least && times.len() >= 1000 {
                break;
            }
        }
        Ok((times, lost))
    })?;
    let (times, lost) = times;
    run.set_answers(times.len() as u64, wrong + lost);
    run.note = format!("{} changes, one at a time, unbatched", times.len());
    keep(run, times);
    Ok(())
}

/// All times count, and some of them are kept.
fn keep(run: &mut Run, times: Vec<f64>) {
    const KEPT: usize = 1000;
    let step = times.len().div_ceil(KEPT).max(1);
    run.set_samples(times);
    run.samples = run.samples.iter().copied().step_by(step).collect();
}

/// `nexthop-loss` and `nexthop-loss-link`: many routes, one next hop that the interior protocol leads to
/// another path, or one of whose two links goes down.
pub(super) fn loss<A: Family>(
    table: &Table<A>,
    options: &FibOptions,
    progress: &mut Progress,
) -> Vec<Run> {
    let mut runs = Vec::new();
    for (name, how) in [("nexthop-loss", How::Route), ("nexthop-loss-link", How::Link)] {
        progress.stage(name);
        let mut run = blank(name, Unit::Us);
        (run.mode, run.family, run.threads) = (Mode::Single, Some(A::FAMILY), 2);
        if two_cores(&mut run)
            && let Err(error) = losses(table, options, how, &mut run)
        {
            run.note = format!("{error:#}");
        }
        runs.push(run);
    }
    runs
}

/// How the next hop is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The better of two interior routes to it is withdrawn.
    Route,
    /// It is reached over two links, and one of them goes down.
    Link,
}

/// Puts routes of the table, spread over it, behind a next hop of that number; returns how many.
pub(super) fn put_behind<A: Family>(table: &mut Table<A>, hop: u32) -> usize {
    let all = table.routes.len();
    let most = BEHIND.min(all);
    for (at, route) in table.routes.iter_mut().enumerate() {
        // Where the share that lies before a route grows by one.
        if (at + 1) * most / all > at * most / all {
            route.1 = hop;
        }
    }
    table.nexthops = table.nexthops.max(hop);
    most
}

fn losses<A: Family>(
    table: &Table<A>,
    options: &FibOptions,
    how: How,
    run: &mut Run,
) -> Result<()> {
    let mut table = table.clone();
    let hop = table.nexthops + 1;
    let count = put_behind(&mut table, hop);
    let oracle = table.oracle();
    let mut rng = Rng::new(options.seed);
    let mut addrs = Vec::new();
    for &(prefix, _) in table.routes.iter().filter(|route| route.1 == hop) {
        addrs.extend(check::own_addr(prefix, &oracle, &mut rng));
    }
    anyhow::ensure!(!addrs.is_empty(), "no route of the table decides an address");
    // Two more neighbors: the one that is lost, and the one that packets go to then.
    let mut hops = load::hops(&options.tables);
    hops[usize::from(A::FAMILY == 6)] = hop;
    let (near, far) = (hop + 1, hop + 2);
    let mut world = World::new(hops, 2)?;
    match how {
        How::Route => {
            world.lead(A::FAMILY, hop, &[near], NEAR);
            world.lead(A::FAMILY, hop, &[far], FAR);
        }
        How::Link => world.lead(A::FAMILY, hop, &[near, far], NEAR),
    }
    load::fill(&mut world, Some(&table));
    world.commit()?;
    let mut reader = world.control.reader();
    let [lost, other] = [near, far].map(|number| Some(world::mac(A::FAMILY, number)));
    let each = one_of_each(&addrs, A::table(reader.pin(), 0));
    let (gone, back) = match how {
        How::Route => (Flows::One, Flows::One),
        // Of a group the flows of the lost member move; which come back is the group's affair.
        How::Link => (Flows::All, Flows::Any),
    };
    let sights = [
        Sight { addrs: each.clone(), mac: other, flows: gone },
        Sight { addrs: each, mac: lost, flows: back },
    ];
    // Whoever sees it moved asks all others at once, each for another flow.
    let all = |forwarding: &Forwarding, number: u64| {
        let moved = |(addr, n): (&A, u32)| {
            let mac = world::leaves(forwarding, *addr, flow(n));
            if number % 2 == 1 {
                mac == other
            } else {
                mac == lost || mac == other && how == How::Link
            }
        };
        addrs.iter().zip(0..).filter(|&one| !moved(one)).count() as u64
    };
    let rounds = options.samples.max(2) as u64;
    let ((times, never), wrong) = beside(reader, &sights, &all, |meeting, start| {
        let (mut times, mut never) = (Vec::new(), 0);
        for round in 0..=rounds {
            let took = change(meeting, start, 2 * round + 1, &mut || {
                match how {
                    How::Route => world.lead_away(A::FAMILY, hop, NEAR),
                    How::Link => world.set_link(world::link(near), false),
                }
                world.commit()
            })?;
            match took {
                Some(took) if round > 0 => times.push(took),
                Some(_) => {}
                None => never += 1,
            }
            let back = change(meeting, start, 2 * round + 2, &mut || {
                match how {
                    How::Route => world.lead(A::FAMILY, hop, &[near], NEAR),
                    How::Link => world.set_link(world::link(near), true),
                }
                world.commit()
            })?;
            never += u64::from(back.is_none());
        }
        Ok((times, never))
    })?;
    let asked = addrs.len() as u64 * 2 * (rounds + 1);
    run.set_answers(asked, wrong + never);
    run.set_samples(times);
    run.note =
        format!("{count} routes behind it; all looked up once one of each next hop had moved");
    Ok(())
}
