//! Alternating measurement: every run gets a turn before any gets its next, so that a slow minute of a
//! shared machine hits all alike.

use std::time::{Duration, Instant};

/// Something that can be measured, over and over.
pub trait Measured {
    /// Works for a while and returns how much was done, in whatever counts.
    fn work(&mut self) -> u64;
}

/// How long and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Samples of each run. At least 9 make a median that one odd sample does not move.
    pub samples: usize,
    /// Least time of a sample.
    pub sample: Duration,
}

impl Plan {
    /// `seconds` of measuring a run, cut into samples.
    pub fn new(seconds: f64, samples: usize) -> Self {
        let samples = samples.max(1);
        #[allow(clippy::cast_precision_loss, reason = "a small number")]
        let sample = Duration::from_secs_f64(seconds.max(0.001) / samples as f64);
        Self { samples, sample }
    }
}

/// Nanoseconds for each piece of work: the samples of each run. One turn each is thrown away first.
#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
pub fn alternate(runs: &mut [&mut dyn Measured], plan: Plan) -> Vec<Vec<f64>> {
    let mut samples = vec![Vec::with_capacity(plan.samples); runs.len()];
    for turn in 0..=plan.samples {
        for (run, samples) in runs.iter_mut().zip(&mut samples) {
            let start = Instant::now();
            let (mut done, mut elapsed) = (0, Duration::ZERO);
            while elapsed < plan.sample {
                done += run.work();
                elapsed = start.elapsed();
            }
            if turn > 0 {
                samples.push(elapsed.as_nanos() as f64 / done.max(1) as f64);
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
        let plan = Plan { samples: 3, sample: Duration::from_millis(1) };
        let samples = alternate(&mut [&mut a, &mut b], plan);
        assert_eq!(*order.borrow(), [0, 1, 0, 1, 0, 1, 0, 1]);
        assert!(samples.iter().all(|s| s.len() == 3 && s.iter().all(|&ns| ns >= 200_000.0)));
    }
}
