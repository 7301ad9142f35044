//! How long turns of the control thread take: its own CPU time, wall time beside it, and the stage of the longest.
//!
//! A turn that takes long delays every event behind it. Wall time counts what other threads and processes took of the core
//! as well, and waits for locks of the kernel; CPU time is the thread's own (`CLOCK_THREAD_CPUTIME_ID`).
//!
//! Cost:   a system call a stage, about 0.3 us.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fingerpost_route::Durations;
use tracing::warn;

use crate::api::model::{Quantiles, Turns as Row};
use crate::sys;

/// CPU time of a turn that is logged: it delays the events behind it.
const STALL: Duration = Duration::from_millis(100);
/// Wall time of such a turn: it waits for a core, or for a lock of the kernel.
const WALL_STALL: Duration = Duration::from_millis(500);

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Quantiles for reports, in ms.
pub(super) fn quantiles(durations: &Durations) -> Quantiles {
    Quantiles {
        count: durations.count(),
        p50_ms: ms(durations.quantile(500)),
        p99_ms: ms(durations.quantile(990)),
        longest_ms: ms(durations.longest()),
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

    /// The stage that took longest.
    fn longest(&self) -> (&'static str, Duration) {
        let longest = self.stages.iter().max_by_key(|(_, took)| *took);
        longest.copied().unwrap_or_default()
    }

    /// Logs a turn that took long.
    fn log(&self, cpu: Duration, wall: Duration) {
        let (stage, took) = self.longest();
        let (cpu_ms, wall_ms, stage_ms) = (ms(cpu), ms(wall), ms(took));
        warn!(
            target: "stall", cpu_ms, wall_ms, stage, stage_ms,
            "a turn of the control thread took {cpu_ms:.0} ms of CPU time and {wall_ms:.0} ms in all, its stage {stage} \
             {stage_ms:.0} ms: route changes were delayed"
        );
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
    pub(super) cpu: Durations,
    pub(super) wall: Durations,
    /// Longest stage of the turn that took the most CPU time.
    longest: (&'static str, Duration),
    /// Longest time of each stage.
    stages: BTreeMap<&'static str, Duration>,
}

impl Turns {
    /// Counts a turn that is over.
    pub(super) fn end(&mut self, turn: &Turn) {
        let cpu = turn.stage_began.saturating_sub(turn.cpu);
        if cpu > self.cpu.longest() {
            self.longest = turn.longest();
        }
        for &(name, took) in &turn.stages {
            let longest = self.stages.entry(name).or_default();
            *longest = took.max(*longest);
        }
        let wall = turn.wall.elapsed();
        self.cpu.add(cpu);
        self.wall.add(wall);
        if cpu >= STALL || wall >= WALL_STALL {
            turn.log(cpu, wall);
        }
    }

    /// State for reports.
    pub(super) fn row(&self) -> Row {
        Row {
            cpu: quantiles(&self.cpu),
            wall: quantiles(&self.wall),
            longest_stage: self.longest.0.to_owned(),
            longest_stage_ms: ms(self.longest.1),
            stages: self.stages.iter().map(|(name, took)| ((*name).into(), ms(*took))).collect(),
        }
    }
}
