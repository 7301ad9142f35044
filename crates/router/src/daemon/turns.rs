//! How long turns of the control thread take: its own CPU time, wall time beside it, and the stage of the longest.
//!
//! A turn that takes long delays every event behind it. Wall time counts what other threads and processes took of the core
//! as well, and waits for locks of the kernel; CPU time is the thread's own (`CLOCK_THREAD_CPUTIME_ID`).
//!
//! Shape:  counts by duration, four classes to each power of two of microseconds: a class is at most a quarter wider than
//!         its start.
//! Cost:   a system call a stage, about 0.3 us.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::api::model::{Quantiles, Turns as Row};
use crate::sys;

/// Classes to a power of two.
const PARTS: u64 = 4;
/// Powers of two of microseconds from 2^2: up to 2^26, a minute.
const POWERS: usize = 24;

/// Counts of durations by classes.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    longest: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; POWERS * 4], count: 0, longest: Duration::ZERO }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, time: Duration) {
        self.count += 1;
        self.longest = self.longest.max(time);
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(PARTS);
        let power = us.ilog2();
        let part = (us >> (power - 2)) & (PARTS - 1);
        let at = u64::from(power - 2) * PARTS + part;
        let last = self.counts.len() - 1;
        self.counts[usize::try_from(at).map_or(last, |at| at.min(last))] += 1;
    }

    /// Duration that a share of `parts` in a thousand does not exceed: the end of its class, at most the longest.
    pub(super) fn quantile(&self, parts: u64) -> Duration {
        let rank = (self.count * parts).div_ceil(1000).max(1);
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        let Some(at) = found.filter(|_| self.count > 0) else { return Duration::ZERO };
        let at = at as u64;
        let end = (PARTS + at % PARTS + 1) << (at / PARTS);
        Duration::from_micros(end).min(self.longest)
    }

    /// Quantiles in ms.
    pub(super) fn row(&self) -> Quantiles {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Quantiles {
            count: self.count,
            p50_ms: ms(self.quantile(500)),
            p99_ms: ms(self.quantile(990)),
            longest_ms: ms(self.longest),
        }
    }
}

/// Time so far of a turn in progress.
pub(super) struct Turn {
    wall: Instant,
    cpu: Duration,
    stage_began: Duration,
    /// Stages that are over, in order.
    stages: Vec<(&'static str, Duration)>,
}

impl Turn {
    /// Begins a turn.
    pub(super) fn begin() -> Self {
        let cpu = sys::thread_time();
        Self { wall: Instant::now(), cpu, stage_began: cpu, stages: Vec::with_capacity(16) }
    }

    /// Ends a stage of this name.
    pub(super) fn stage(&mut self, name: &'static str) {
        let now = sys::thread_time();
        self.stages.push((name, now.saturating_sub(self.stage_began)));
        self.stage_began = now;
    }
}

/// All turns so far.
#[derive(Debug, Default)]
pub(super) struct Turns {
    cpu: Histogram,
    wall: Histogram,
    /// Longest stage of the turn that took the most CPU time.
    longest: (Duration, &'static str),
    /// Longest time of each stage.
    stages: BTreeMap<&'static str, Duration>,
}

impl Turns {
    /// Counts a turn that is over.
    pub(super) fn end(&mut self, turn: &Turn) {
        let cpu = turn.stage_began.saturating_sub(turn.cpu);
        if cpu > self.cpu.longest {
            let longest = turn.stages.iter().max_by_key(|(_, took)| *took);
            self.longest = longest.map_or_else(Default::default, |&(name, took)| (took, name));
        }
        for &(name, took) in &turn.stages {
            let longest = self.stages.entry(name).or_default();
            *longest = took.max(*longest);
        }
        self.cpu.add(cpu);
        self.wall.add(turn.wall.elapsed());
    }

    /// State for reports.
    pub(super) fn row(&self) -> Row {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Row {
            cpu: self.cpu.row(),
            wall: self.wall.row(),
            longest_stage: self.longest.1.to_owned(),
            longest_stage_ms: ms(self.longest.0),
            stages: self.stages.iter().map(|(name, took)| ((*name).into(), ms(*took))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_quarter() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(990), Duration::ZERO);
        for us in 1..=1000 {
            histogram.add(Duration::from_micros(us * 7));
        }
        for (parts, exact) in [(500, 3500), (990, 6930), (1000, 7000)] {
            let found = u64::try_from(histogram.quantile(parts).as_micros()).unwrap();
            assert!(found >= exact && found * 4 <= exact * 5, "{parts}: {found}, {exact}");
        }
        histogram.add(Duration::from_secs(3600));
        assert_eq!(histogram.quantile(1000).as_micros(), 1 << 26, "beyond all classes");
        assert_eq!(histogram.row().count, 1001);
    }
}
