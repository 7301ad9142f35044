//! Alternating measurement: every run gets a turn before any gets its next, so that a slow minute of a
//! shared machine hits all alike.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::cores::pin;

/// Something that can be measured, over and over.
pub trait Measured {
    /// Works for a while and returns how much was done, in whatever counts.
    fn work(&mut self) -> u64;

    /// It will not work for a while: nobody has to wait for it.
    fn rest(&mut self) {}
}

/// Which time is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// That of the wall: for work that several threads share, or that waits.
    Wall,
    /// That of this thread: work that another program interrupts is not charged for it.
    Thread,
}

impl Clock {
    /// Times from some moment on.
    pub fn now(self) -> Duration {
        let id = match self {
            Self::Wall => ClockId::Monotonic,
            Self::Thread => ClockId::ThreadCPUTime,
        };
        clock_gettime(id).try_into().unwrap_or_default()
    }
}

/// How long and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Samples of each run. At least 9 make a median that one odd sample does not move.
    pub samples: usize,
    /// Least time of a sample.
    pub sample: Duration,
    /// Clock that measures.
    pub clock: Clock,
}

impl Plan {
    /// `seconds` of measuring a run, cut into samples.
    pub fn new(seconds: f64, samples: usize) -> Self {
        let samples = samples.max(1);
        #[allow(clippy::cast_precision_loss, reason = "a small number")]
        let sample = Duration::from_secs_f64(seconds.max(0.001) / samples as f64);
        Self { samples, sample, clock: Clock::Wall }
    }
}

/// Nanoseconds for each piece of work, over one sample.
#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
pub fn sample(run: &mut dyn Measured, plan: Plan) -> f64 {
    let start = plan.clock.now();
    let (mut done, mut elapsed) = (0, Duration::ZERO);
    while elapsed < plan.sample {
        done += run.work();
        elapsed = plan.clock.now().saturating_sub(start);
    }
    elapsed.as_nanos() as f64 / done.max(1) as f64
}

/// Samples like [`sample`], on one core while `busy` is called again and again on another.
///
/// # Errors
/// That of `busy`, which is not called again then.
pub fn sample_beside<E: Send>(
    run: &mut (dyn Measured + Send),
    plan: Plan,
    busy: &mut (dyn FnMut() -> Result<(), E> + Send),
) -> Result<f64, E> {
    let (start, stop) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            pin(1);
            start.wait();
            // Relaxed: nothing is published by it.
            while !stop.load(Ordering::Relaxed) {
                busy()?;
            }
            Ok(())
        });
        let asking = scope.spawn(|| {
            pin(0);
            start.wait();
            let took = sample(run, plan);
            stop.store(true, Ordering::Relaxed);
            run.rest();
            took
        });
        let took = asking.join().expect("the work does not panic");
        busy.join().expect("what is busy returns its errors")?;
        Ok(took)
    })
}

/// Millions of pieces of work a second of all together, each on a core of its own, over one sample.
#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
pub fn sample_together(runs: &mut [&mut (dyn Measured + Send)], plan: Plan) -> f64 {
    let start = Barrier::new(runs.len());
    std::thread::scope(|scope| {
        let spawned: Vec<_> = runs
            .iter_mut()
            .enumerate()
            .map(|(core, run)| {
                let start = &start;
                scope.spawn(move || {
                    pin(core);
                    start.wait();
                    let (begun, mut done, mut elapsed) = (Clock::Wall.now(), 0, Duration::ZERO);
                    while elapsed < plan.sample {
                        done += run.work();
                        elapsed = Clock::Wall.now().saturating_sub(begun);
                    }
                    run.rest();
                    done as f64 / elapsed.as_secs_f64() / 1e6
                })
            })
            .collect();
        spawned.into_iter().map(|one| one.join().expect("the work does not panic")).sum()
    })
}

/// Takes one sample of a run; `None` when that failed, and then it has no further turn.
pub type Turn<'a> = Box<dyn FnMut() -> Option<f64> + 'a>;

/// Nanoseconds for each piece of work: the samples of each run. One turn each is thrown away first.
pub fn alternate(runs: &mut [&mut dyn Measured], plan: Plan) -> Vec<Vec<f64>> {
    let turn = |run: &'_ mut &mut dyn Measured| sample(*run, plan);
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for run in runs {
        turns.push(Box::new(move || Some(turn(run))));
    }
    alternate_told(&mut turns, plan.samples, &mut |_, _| ())
}

/// Turns like [`alternate`], of whatever they return; before each of them `tell` is given its number and
/// how many are done.
pub fn alternate_told(
    turns: &mut [Turn<'_>],
    count: usize,
    tell: &mut dyn FnMut(usize, usize),
) -> Vec<Vec<f64>> {
    let mut samples = vec![Vec::with_capacity(count); turns.len()];
    let mut failed = vec![false; turns.len()];
    let many = turns.len();
    for round in 0..=count {
        for (i, turn) in turns.iter_mut().enumerate() {
            tell(i, round * many + i);
            if failed[i] {
                continue;
            }
            match turn() {
                Some(sample) if round > 0 => samples[i].push(sample),
                Some(_) => {}
                None => {
                    failed[i] = true;
                    samples[i].clear();
                }
            }
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Turns<'a>(usize, &'a std::cell::RefCell<Vec<usize>>);
    impl Measured for Turns<'_> {
        fn work(&mut self) -> u64 {
            self.1.borrow_mut().push(self.0);
            std::thread::sleep(Duration::from_millis(2));
            10
        }
    }

    #[test]
    fn runs_take_turns() {
        let order = std::cell::RefCell::new(Vec::new());
        let (mut a, mut b) = (Turns(0, &order), Turns(1, &order));
        let plan = Plan { sample: Duration::from_millis(1), ..Plan::new(1.0, 3) };
        let samples = alternate(&mut [&mut a, &mut b], plan);
        assert_eq!(*order.borrow(), [0, 1, 0, 1, 0, 1, 0, 1]);
        assert!(samples.iter().all(|s| s.len() == 3 && s.iter().all(|&ns| ns >= 200_000.0)));
    }

    #[test]
    fn one_that_fails_has_no_further_turn() {
        let mut left = 3;
        let mut fails = || {
            left -= 1;
            (left > 0).then_some(1.0)
        };
        let mut turns: Vec<Turn<'_>> = vec![Box::new(&mut fails), Box::new(|| Some(2.0))];
        let mut told = Vec::new();
        let samples = alternate_told(&mut turns, 4, &mut |i, done| told.push((i, done)));
        assert_eq!(samples, [vec![], vec![2.0; 4]]);
        assert_eq!((told.len(), told[9]), (10, (1, 9)));
        drop(turns);
        assert_eq!(left, 0);
    }

    #[test]
    fn the_clock_of_a_thread_stands_while_it_sleeps() {
        let (wall, thread) = (Clock::Wall.now(), Clock::Thread.now());
        std::thread::sleep(Duration::from_millis(30));
        let (wall, thread) = (Clock::Wall.now() - wall, Clock::Thread.now() - thread);
        assert!(wall >= Duration::from_millis(30) && thread < Duration::from_millis(20));
    }

    #[test]
    fn a_sample_beside_others_ends_with_them_and_tells_their_error() {
        #[derive(Default)]
        struct Asks {
            rested: usize,
        }
        impl Measured for Asks {
            fn work(&mut self) -> u64 {
                std::thread::sleep(Duration::from_millis(1));
                1
            }
            fn rest(&mut self) {
                self.rested += 1;
            }
        }
        let (plan, mut asks, mut calls) = (Plan::new(0.02, 1), Asks::default(), 0);
        let mut busy = || {
            calls += 1;
            std::thread::sleep(Duration::from_millis(1));
            Ok::<(), &str>(())
        };
        let took = sample_beside(&mut asks, plan, &mut busy).unwrap();
        assert!(took >= 1e6 && calls > 1 && asks.rested == 1, "{took} ns, {calls} calls");
        let failed = sample_beside(&mut asks, plan, &mut || Err("it broke"));
        assert_eq!((failed, asks.rested), (Err("it broke"), 2));
    }
}
