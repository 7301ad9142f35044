//! What takes turns: a lookup structure (or a ceiling) with a stream of keys, on one thread or several.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use fingerpost_lpm::{Addr, Lookup, NextHopId};

use super::ceiling::{Loads, Words};
use super::check::ask;
use crate::cores::pin;
use crate::document::Mode;
use crate::measure::{Clock, Measured, Plan};

/// Keys between two looks at the clock.
const TURN: usize = 1 << 14;

/// Answers of room before and behind those that are written: members of a team write to theirs all the
/// time, and two that shared a cache line would wait for each other.
const APART: usize = 32;

/// Keys of a contest.
#[derive(Clone)]
pub(super) enum Subject<A: Addr> {
    /// An algorithm's reader.
    Lookup(Arc<dyn Lookup<A>>),
    /// The machine.
    Ceiling(Loads, Arc<Words>),
}

/// One that takes turns; for the same reason as [`APART`] on cache lines of its own (they come in pairs).
#[repr(align(128))]
pub(super) struct Contestant<A: Addr> {
    subject: Subject<A>,
    mode: Mode,
    keys: Arc<Vec<A>>,
    at: usize,
    out: Vec<NextHopId>,
    /// Keys of a batch.
    step: usize,
    /// Sum of all answers, so that none is left out.
    sum: u64,
}

impl<A: Addr> Contestant<A> {
    /// Looks up `keys` in order, `batch` at a time, over and over.
    pub(super) fn new(subject: Subject<A>, mode: Mode, keys: &Arc<Vec<A>>, batch: usize) -> Self {
        // A chain goes on from batch to batch; a longer one is cut less often.
        let step = if mode == Mode::Dependent { TURN } else { batch };
        let out = vec![NextHopId::NONE; step + 2 * APART];
        Self { subject, mode, keys: Arc::clone(keys), at: 0, out, step, sum: 0 }
    }

    /// A copy that starts `part` of `parts` further in the keys.
    fn further(mut self, part: usize, parts: usize) -> Self {
        self.at = self.keys.len() / parts * part;
        self
    }
}

impl<A: Addr> Measured for Contestant<A> {
    fn work(&mut self) -> u64 {
        if self.at >= self.keys.len() {
            self.at = 0;
        }
        let keys = &self.keys[self.at..self.keys.len().min(self.at + TURN)];
        self.at += keys.len();
        for keys in keys.chunks(self.step) {
            let out = &mut self.out[APART..APART + keys.len()];
            match &self.subject {
                Subject::Lookup(lookup) => ask(&**lookup, self.mode, keys, out),
                Subject::Ceiling(loads, words) => words.run(*loads, self.mode, keys, out),
            }
            self.sum += out.iter().map(|hop| u64::from(hop.0)).sum::<u64>();
        }
        std::hint::black_box(self.sum);
        keys.len() as u64
    }
}

/// Several threads with one structure and keys of their own, each on a core.
pub(super) struct Team<A: Addr> {
    members: Vec<Contestant<A>>,
    scales: Vec<Scale>,
}

/// Numbers of one sample of a team beside its rate.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// The rates of all together by those of each alone, by the clocks of the threads.
    efficiency: f64,
    /// Efficiency by the clock of the wall.
    wall: f64,
    /// The least part of its core that a thread had.
    had: f64,
}

/// What a thread did in a while.
#[derive(Clone, Copy, Debug)]
struct Took {
    done: u64,
    cpu: Duration,
    wall: Duration,
}

impl Took {
    #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    fn rate(self) -> f64 {
        self.done as f64 / self.cpu.as_secs_f64().max(1e-9)
    }

    #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    fn wall_rate(self) -> f64 {
        self.done as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

impl<A: Addr> Team<A> {
    pub(super) fn new(
        subject: &Subject<A>,
        mode: Mode,
        keys: &Arc<Vec<A>>,
        batch: usize,
        threads: usize,
    ) -> Self {
        let member =
            |part| Contestant::new(subject.clone(), mode, keys, batch).further(part, threads);
        Self { members: (0..threads).map(member).collect(), scales: Vec::new() }
    }

    /// Nanoseconds for each lookup of all together: the rates of the threads added, each by its clock.
    ///
    /// Within the same turn each thread works alone before, on the core that it then has beside the
    /// others: cores of one machine need not be alike, and a run at another moment proves nothing.
    #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    pub(super) fn sample(&mut self, plan: Plan) -> f64 {
        let count = self.members.len();
        let start = Barrier::new(count);
        let took: Vec<(Took, Took)> = std::thread::scope(|scope| {
            let started = self.members.iter_mut().enumerate().map(|(core, member)| {
                let start = &start;
                scope.spawn(move || {
                    pin(core);
                    let mut alone = None;
                    for turn in 0..count {
                        start.wait();
                        if turn == core {
                            alone = Some(take(member, plan));
                        }
                    }
                    start.wait();
                    (alone.expect("each has its turn"), take(member, plan))
                })
            });
            let threads: Vec<_> = started.collect();
            threads.into_iter().map(|thread| thread.join().expect("lookups do not panic")).collect()
        });
        let sum = |rate: &dyn Fn(&(Took, Took)) -> f64| took.iter().map(rate).sum::<f64>();
        let together = sum(&|took| took.1.rate());
        let had = |took: &(Took, Took)| took.1.cpu.as_secs_f64() / took.1.wall.as_secs_f64();
        self.scales.push(Scale {
            efficiency: together / sum(&|took| took.0.rate()),
            wall: sum(&|took| took.1.wall_rate()) / sum(&|took| took.0.wall_rate()),
            had: took.iter().map(had).fold(1.0, f64::min),
        });
        1e9 / together
    }

    /// The median efficiency of all samples but the first, and what else is to be known of it.
    pub(super) fn efficiency(&self) -> Option<(f64, String)> {
        let counted = if self.scales.len() > 1 { &self.scales[1..] } else { &self.scales[..] };
        let median = |part: fn(&Scale) -> f64| {
            let mut parts: Vec<f64> = counted.iter().map(part).collect();
            parts.sort_by(f64::total_cmp);
            parts.get(parts.len() / 2).copied()
        };
        let (wall, had) = (median(|scale| scale.wall)?, median(|scale| scale.had)?);
        let note = format!("efficiency by the wall {wall:.2}, threads had {had:.2} of their cores");
        Some((median(|scale| scale.efficiency)?, note))
    }
}

/// Works until so much time has passed on the wall, so that all of a team work beside each other.
fn take<A: Addr>(member: &mut Contestant<A>, plan: Plan) -> Took {
    // What another core's turn or a new thread costs first is not counted.
    member.work();
    let (cpu, start) = (Clock::Thread.now(), Clock::Wall.now());
    let (mut done, mut wall) = (0, Duration::ZERO);
    while wall < plan.sample {
        done += member.work();
        wall = Clock::Wall.now().saturating_sub(start);
    }
    Took { done, cpu: Clock::Thread.now().saturating_sub(cpu), wall }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::sample;

    #[test]
    fn a_team_has_keys_of_its_own_and_one_rate() {
        let keys = Arc::new((0..100_000u32).collect::<Vec<_>>());
        let subject = Subject::Ceiling(Loads::One, Arc::new(Words::new(1 << 16, 1)));
        let mut team = Team::new(&subject, Mode::Batch, &keys, 64, 2);
        assert_eq!(team.members.iter().map(|member| member.at).collect::<Vec<_>>(), [0, 50_000]);
        assert!(team.efficiency().is_none());
        let plan = Plan { sample: Duration::from_millis(2), ..Plan::new(1.0, 1) };
        let together = team.sample(plan);
        assert!(together > 0.0 && together.is_finite());
        assert!(team.members.iter().all(|member| member.sum > 0));
        let slower = sample(&mut team.members[0], plan).max(sample(&mut team.members[1], plan));
        assert!(together < slower * 5.0, "{together} {slower}");
        // The first sample is not counted where there are others.
        team.sample(plan);
        team.scales[0].efficiency = 1e9;
        let (efficiency, note) = team.efficiency().unwrap();
        assert!(efficiency > 0.0 && efficiency < 100.0, "{efficiency}");
        assert!(note.contains("of their cores"), "{note}");
    }

    #[test]
    fn members_write_to_cache_lines_of_their_own() {
        let keys = Arc::new(vec![1u32; 64]);
        let subject = Subject::Ceiling(Loads::One, Arc::new(Words::new(1 << 10, 1)));
        let mut team = Team::new(&subject, Mode::Batch, &keys, 64, 4);
        assert_eq!(size_of::<Contestant<u32>>() % 128, 0);
        for member in &mut team.members {
            member.work();
            let written = member.out.iter().filter(|hop| !hop.is_none()).count();
            assert!(written > 0 && member.out[..APART].iter().all(|hop| hop.is_none()));
            assert!(member.out[member.step + APART..].iter().all(|hop| hop.is_none()));
        }
    }
}
