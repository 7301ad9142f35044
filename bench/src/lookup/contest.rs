//! What takes turns: a lookup structure (or a ceiling) with a stream of keys, on one thread or several.

use std::sync::{Arc, Barrier};

use fingerpost_lpm::{Addr, Lookup, NextHopId};

use super::ceiling::{Loads, Words};
use super::check::ask;
use crate::document::Mode;
use crate::measure::{Measured, Plan, sample};

/// Keys between two looks at the clock.
const TURN: usize = 1 << 14;

/// What is asked.
#[derive(Clone)]
pub(super) enum Subject<A: Addr> {
    /// An algorithm's reader.
    Lookup(Arc<dyn Lookup<A>>),
    /// The machine.
    Ceiling(Loads, Arc<Words>),
}

/// One that takes turns.
pub(super) struct Contestant<A: Addr> {
    subject: Subject<A>,
    mode: Mode,
    keys: Arc<Vec<A>>,
    at: usize,
    out: Vec<NextHopId>,
    /// Of all answers, so that none is left out.
    sum: u64,
}

impl<A: Addr> Contestant<A> {
    /// Asks `keys` in order, `batch` at a time, over and over.
    pub(super) fn new(subject: Subject<A>, mode: Mode, keys: &Arc<Vec<A>>, batch: usize) -> Self {
        // A chain goes on from batch to batch; a longer one is cut less often.
        let step = if mode == Mode::Dependent { TURN } else { batch };
        let out = vec![NextHopId::NONE; step];
        Self { subject, mode, keys: Arc::clone(keys), at: 0, out, sum: 0 }
    }

    /// The same `part` of `parts` further in the keys.
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
        for keys in keys.chunks(self.out.len()) {
            let out = &mut self.out[..keys.len()];
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
pub(super) struct Team<A: Addr>(Vec<Contestant<A>>);

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
        Self((0..threads).map(member).collect())
    }

    /// Nanoseconds for each lookup of all together: the rates of the threads added, each by its clock.
    pub(super) fn sample(&mut self, plan: Plan) -> f64 {
        let start = Barrier::new(self.0.len());
        let rates = std::thread::scope(|scope| {
            let started = self.0.iter_mut().enumerate().map(|(core, member)| {
                let start = &start;
                scope.spawn(move || {
                    pin(core);
                    start.wait();
                    1.0 / sample(member, plan)
                })
            });
            let threads: Vec<_> = started.collect();
            let joined = threads.into_iter().map(|thread| thread.join().expect("lookups go on"));
            joined.sum::<f64>()
        });
        1.0 / rates
    }
}

/// Keeps this thread on the n-th of the cores that it may use; where the system refuses, it stays free.
pub(crate) fn pin(n: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let count = allowed.count().max(1) as usize;
    if let Some(core) = cores.nth(n % count) {
        let mut one = CpuSet::new();
        one.set(core);
        let _ = sched_setaffinity(None, &one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_team_has_keys_of_its_own_and_one_rate() {
        let keys = Arc::new((0..100_000u32).collect::<Vec<_>>());
        let subject = Subject::Ceiling(Loads::One, Arc::new(Words::new(1 << 16, 1)));
        let mut team = Team::new(&subject, Mode::Batch, &keys, 64, 2);
        assert_eq!(team.0.iter().map(|member| member.at).collect::<Vec<_>>(), [0, 50_000]);
        let plan = Plan { sample: Duration::from_millis(2), ..Plan::new(1.0, 1) };
        let together = team.sample(plan);
        assert!(together > 0.0 && together.is_finite());
        assert!(team.0.iter().all(|member| member.sum > 0));
        let slower = sample(&mut team.0[0], plan).max(sample(&mut team.0[1], plan));
        assert!(together < slower * 5.0, "{together} {slower}");
    }
}
