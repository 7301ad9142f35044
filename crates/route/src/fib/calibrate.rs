//! `fib algorithm measured`: calibration of the candidates on the live table, on this machine.
//!
//! Each candidate is built from the live routes, and looks up the same addresses: random ones in live
//! prefixes, and as many from the whole address space. Its answers are compared with the RIB before its time
//! counts. The fastest wins; the algorithm in use stays when it is within the hysteresis of that. A calibration
//! takes one candidate a commit, so that changes wait for one build at most; candidates come by their fitness, and
//! those whose latest build took longer than the remaining time are left out. One line of the log has all numbers.
//!
//! Cost: the builds, and some ten milliseconds a candidate for the lookups. Memory: one table at a
//! time, at most `calibration_mib`, besides the published one.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use fingerpost_lpm::{
    Addr, Algorithm, HugePages, Lookup, Memory, NextHopId, Region, Rng, Routes, UpdateError,
};

use super::{Choice, Chooser, FibOptions};

/// Addresses of a calibration: more than the first caches hold answers for, few enough for milliseconds.
const ADDRS: usize = 16_384;
/// Rounds of lookups; the fastest counts.
const ROUNDS: usize = 5;
const BATCH: usize = 256;

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Measured { ns: f64, bytes: usize, build: Duration },
    Refused(UpdateError),
    Wrong(usize),
    NotTried,
}

/// The present calibration, and the cost of builds from one to the next.
pub(super) struct Calibration<A: Addr> {
    run: Option<Run<A>>,
    /// Build times, in seconds a prefix.
    build_costs: HashMap<&'static str, f64>,
}

struct Run<A: Addr> {
    left: Vec<&'static Algorithm<A>>,
    done: Vec<(&'static str, Outcome)>,
    spent: Duration,
    prefixes: usize,
}

/// Result of a step.
pub(super) struct Step {
    /// Further steps follow.
    pub(super) more: bool,
    /// Line for the log, of a calibration that is complete.
    pub(super) decision: Option<String>,
}

impl<A: Addr> Default for Calibration<A> {
    fn default() -> Self {
        Self { run: None, build_costs: HashMap::new() }
    }
}

impl<A: Addr> Calibration<A> {
    /// Drops the present calibration.
    pub(super) fn cancel(&mut self) {
        self.run = None;
    }

    /// Runs the next step, if a calibration is wanted. `current` is the algorithm in use.
    pub(super) fn step(
        &mut self,
        chooser: &mut Chooser<A>,
        options: &FibOptions,
        current: &'static str,
        routes: &dyn Routes<A>,
        now: Instant,
    ) -> Step {
        if chooser.choice() != Choice::Measured {
            self.cancel();
            return Step { more: false, decision: None };
        }
        let stats = routes.stats();
        let mut run = match self.run.take() {
            Some(run) => run,
            None if chooser.wants_calibration(stats.prefixes) => {
                let mut left = chooser.candidates(&stats, now);
                left.reverse();
                let prefixes = stats.prefixes;
                Run { left, done: Vec::new(), spent: Duration::ZERO, prefixes }
            }
            None => return Step { more: false, decision: None },
        };
        let Some(algorithm) = run.left.pop() else {
            let decision = decide(&run, chooser, options, current);
            return Step { more: true, decision: Some(decision) };
        };
        let budget = Duration::from_millis(u64::from(options.calibration_ms));
        #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52 prefixes")]
        let prefixes = stats.prefixes.max(1) as f64;
        let expected = self.build_costs.get(algorithm.name).copied().unwrap_or(0.0) * prefixes;
        let start = Instant::now();
        let outcome = if run.spent.as_secs_f64() + expected > budget.as_secs_f64() {
            Outcome::NotTried
        } else {
            let most = options.calibration_mib as usize * (1 << 20);
            measure(algorithm, routes, most)
        };
        if let Outcome::Measured { build, .. } = &outcome {
            self.build_costs.insert(algorithm.name, build.as_secs_f64() / prefixes);
        }
        run.spent += start.elapsed();
        run.done.push((algorithm.name, outcome));
        self.run = Some(run);
        Step { more: true, decision: None }
    }

    /// Sets the cost of a build, in seconds a prefix.
    #[cfg(test)]
    pub(super) fn set_build_cost(&mut self, name: &'static str, seconds: f64) {
        self.build_costs.insert(name, seconds);
    }
}

/// Chooses the winner of a complete calibration; returns the line for the log.
fn decide<A: Addr>(
    run: &Run<A>,
    chooser: &mut Chooser<A>,
    options: &FibOptions,
    current: &'static str,
) -> String {
    let time = |name: &str| {
        run.done.iter().find_map(|(n, outcome)| match outcome {
            Outcome::Measured { ns, .. } if *n == name => Some(*ns),
            _ => None,
        })
    };
    let mut named: Vec<(&'static str, f64)> =
        run.done.iter().filter_map(|(name, _)| Some((*name, time(name)?))).collect();
    named.sort_by(|a, b| a.1.total_cmp(&b.1));
    let Some(&(fastest, best)) = named.first() else {
        // Nothing could be measured: the present algorithm stays until the table has another size.
        chooser.measured(current, run.prefixes);
        return format!("calibration on {} prefixes: {}", run.prefixes, lines(run));
    };
    let margin = 1.0 + f64::from(options.hysteresis_percent) / 100.0;
    let winner = match time(current) {
        Some(ns) if ns <= best * margin => current,
        _ => fastest,
    };
    chooser.measured(winner, run.prefixes);
    format!("calibration on {} prefixes: {}: {winner}", run.prefixes, lines(run))
}

/// All candidates with their numbers, in one line.
fn lines<A: Addr>(run: &Run<A>) -> String {
    let mut text = String::new();
    for (name, outcome) in &run.done {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = match outcome {
            Outcome::Measured { ns, bytes, build } => write!(
                text,
                "{comma}{name} {ns:.1} ns, {} KiB, built in {:.1} ms",
                bytes.div_ceil(1024),
                build.as_secs_f64() * 1e3
            ),
            Outcome::Refused(error) => write!(text, "{comma}{name} not built ({error})"),
            Outcome::Wrong(answers) => write!(text, "{comma}{name} wrong ({answers} answers)"),
            Outcome::NotTried => write!(text, "{comma}{name} not tried (time)"),
        };
    }
    text
}

fn measure<A: Addr>(algorithm: &Algorithm<A>, routes: &dyn Routes<A>, most: usize) -> Outcome {
    let start = Instant::now();
    let mut memory = Bounded { left: most, inner: HugePages::new() };
    let lookup = match algorithm.build(routes, &mut memory) {
        Ok(mut table) => table.publish(),
        Err(error) => return Outcome::Refused(error),
    };
    let build = start.elapsed();
    let addrs = addresses(routes);
    let mut got = vec![NextHopId::NONE; addrs.len()];
    look_up(&*lookup, &addrs, &mut got);
    let right = |(addr, got): (&A, &NextHopId)| {
        routes.best(*addr).map_or(NextHopId::NONE, |(_, hop)| hop) == *got
    };
    let wrong = addrs.iter().zip(&got).filter(|pair| !right(*pair)).count();
    if wrong > 0 {
        return Outcome::Wrong(wrong);
    }
    let round = |_| {
        let start = Instant::now();
        look_up(&*lookup, &addrs, &mut got);
        start.elapsed()
    };
    let fastest = (0..ROUNDS).map(round).min().expect("there are rounds");
    #[allow(clippy::cast_precision_loss, reason = "some thousand addresses")]
    let ns = fastest.as_secs_f64() * 1e9 / addrs.len() as f64;
    Outcome::Measured { ns, bytes: lookup.bytes(), build }
}

fn look_up<A: Addr>(lookup: &dyn Lookup<A>, addrs: &[A], got: &mut [NextHopId]) {
    for (addrs, got) in addrs.chunks(BATCH).zip(got.chunks_mut(BATCH)) {
        lookup.lookup_batch(addrs, got);
    }
}

/// Half of them random hosts of live prefixes, half from all of IPv4, or from the eighth of IPv6 that is
/// routed.
fn addresses<A: Addr>(routes: &dyn Routes<A>) -> Vec<A> {
    let mut rng = Rng::new(0x0074_7269_616c);
    let step = (routes.prefixes() / (ADDRS / 2)).max(1);
    let mut prefixes = Vec::with_capacity(ADDRS);
    let mut at = 0_usize;
    routes.walk(A::MIN, A::MAX, &mut |prefix, _| {
        if at.is_multiple_of(step) {
            prefixes.push(prefix);
        }
        at += 1;
    });
    let eighth = if A::FAMILY == 4 { A::MIN } else { A::mask(3) };
    let draw = |n: usize| {
        let addr: A = rng.addr();
        match prefixes.len() {
            len if len > 0 && n.is_multiple_of(2) => {
                let at = usize::try_from(rng.word() % len as u64).expect("below a length");
                let prefix = prefixes[at];
                prefix.addr() | addr & !A::mask(prefix.len())
            }
            _ if eighth == A::MIN => addr,
            _ => addr & !eighth | (eighth ^ A::mask(2)),
        }
    };
    (0..ADDRS).map(draw).collect()
}

/// Memory with an end.
struct Bounded {
    left: usize,
    inner: HugePages,
}

impl Memory for Bounded {
    fn region(&mut self, name: &'static str, bytes: usize) -> Result<Region, UpdateError> {
        self.left = self.left.checked_sub(bytes).ok_or(UpdateError::Memory { name, bytes })?;
        self.inner.region(name, bytes)
    }
}
