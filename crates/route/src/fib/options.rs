//! The knobs of a FIB: FreeBSD's with their meanings and defaults, and a few of our own.
//!
//! `docs/internals/fib.md` has them as a table.

use std::fmt;
use std::time::Duration;

/// When changes are applied to a table, and when its algorithm is replaced. The defaults are those of FreeBSD 13 where it
/// has the knob (`net.route.algo.*`, and the constants of `fib_algo.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FibOptions {
    /// `bucket_time_ms`: changes are counted in buckets of so many milliseconds, and a first change
    /// that is not applied at once waits for one. 0 means 50.
    pub bucket_time_ms: u32,
    /// `bucket_change_threshold_rate`: so many changes **a second** put the next application off by a
    /// bucket; 500 are 25 in a bucket of 50 ms. A rate that comes to 0 a bucket never puts off.
    pub bucket_change_threshold_rate: u32,
    /// `fib_max_sync_delay_ms`: a change is never put off for longer.
    pub max_sync_delay_ms: u32,
    /// A better algorithm is looked for after so many changes, or after `evaluation_s`, whichever is first.
    pub evaluation_changes: u32,
    /// A better algorithm is looked for after so many seconds, or after `evaluation_changes`, whichever is first.
    pub evaluation_s: u32,
    /// An algorithm is replaced if the fitness of another is higher by so many percent. (FreeBSD: 12 points
    /// of 255.)
    pub hysteresis_percent: u32,
    /// Not in FreeBSD: applying and building takes at most this share of a core in the long run, in percent:
    /// after a round of `t` the next that is not cheap waits `t * (100 / share - 1)`. The longest delay
    /// wins over it.
    pub cpu_share_percent: u32,
    /// Not in FreeBSD: changes that are expected to be applied within so many microseconds do not wait.
    pub at_once_us: u32,
    /// Not in FreeBSD: longest duration of a calibration (`measured`), in milliseconds. Candidates that it cannot
    /// be expected to build in what is left of it are not tried.
    pub calibration_ms: u32,
    /// Not in FreeBSD: largest size of a candidate in a calibration, in MiB.
    pub calibration_mib: u32,
    /// Not in FreeBSD: share of a core that the auditor gets, in hundredths of a percent, in turns of at most 2 ms: about 20
    /// percent at most; 0 turns it off.
    pub audit_share_bp: u32,
}

impl Default for FibOptions {
    fn default() -> Self {
        Self {
            bucket_time_ms: 50,
            bucket_change_threshold_rate: 500,
            max_sync_delay_ms: 1000,
            evaluation_changes: 100,
            evaluation_s: 30,
            hysteresis_percent: 5,
            cpu_share_percent: 10,
            at_once_us: 1000,
            calibration_ms: 2000,
            calibration_mib: 1024,
            audit_share_bp: 50,
        }
    }
}

/// A knob that stands where it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FibOptionError {
    /// Which one.
    pub name: &'static str,
    /// The least it may be.
    pub min: u32,
    /// The most it may be.
    pub max: u32,
    /// What it was.
    pub got: u32,
}

impl fmt::Display for FibOptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, min, max, got } = self;
        write!(f, "{name} must be from {min} to {max}, not {got}")
    }
}

impl std::error::Error for FibOptionError {}

impl FibOptions {
    /// Validated options, with defaults for what may be left out: a bucket time of 0 is 50.
    ///
    /// # Errors
    /// The first knob that is out of its range.
    pub fn validated(mut self) -> Result<Self, FibOptionError> {
        if self.bucket_time_ms == 0 {
            self.bucket_time_ms = Self::default().bucket_time_ms;
        }
        let ranges = [
            ("bucket_time_ms", 1, 10_000, self.bucket_time_ms),
            ("max_sync_delay_ms", self.bucket_time_ms, 60_000, self.max_sync_delay_ms),
            ("evaluation_changes", 1, u32::MAX, self.evaluation_changes),
            ("evaluation_s", 1, 86_400, self.evaluation_s),
            ("hysteresis_percent", 0, 100, self.hysteresis_percent),
            ("cpu_share_percent", 1, 100, self.cpu_share_percent),
            ("at_once_us", 0, 1_000_000, self.at_once_us),
            ("calibration_ms", 1, 60_000, self.calibration_ms),
            ("calibration_mib", 1, 1 << 20, self.calibration_mib),
            ("audit_share_bp", 0, 10_000, self.audit_share_bp),
        ];
        for (name, min, max, got) in ranges {
            if got < min || got > max {
                return Err(FibOptionError { name, min, max, got });
            }
        }
        Ok(self)
    }

    /// Length of a bucket.
    pub fn bucket_time(&self) -> Duration {
        Duration::from_millis(u64::from(self.bucket_time_ms))
    }

    /// Longest delay.
    pub fn max_sync_delay(&self) -> Duration {
        Duration::from_millis(u64::from(self.max_sync_delay_ms))
    }

    /// Changes in one bucket that put the application off; 0: none do.
    pub fn bucket_changes(&self) -> usize {
        let rate = u64::from(self.bucket_change_threshold_rate);
        usize::try_from(rate * u64::from(self.bucket_time_ms) / 1000).unwrap_or(usize::MAX)
    }

    /// How long nothing may be done after something that took `cost`, to keep the share.
    pub(crate) fn rest_after(&self, cost: Duration) -> Duration {
        let share = self.cpu_share_percent.clamp(1, 100);
        cost * (100 - share) / share
    }

    /// The share of a core that `elapsed` earns.
    pub(crate) fn earned(&self, elapsed: Duration) -> Duration {
        elapsed * self.cpu_share_percent / 100
    }

    pub(crate) fn at_once(&self) -> Duration {
        Duration::from_micros(u64::from(self.at_once_us))
    }

    pub(crate) fn evaluation(&self) -> Duration {
        Duration::from_secs(u64::from(self.evaluation_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_freebsds() {
        let options = FibOptions::default().validated().unwrap();
        assert_eq!(options, FibOptions::default());
        assert_eq!(options.bucket_changes(), 25, "a rate a second, not a count a bucket");
        assert_eq!(options.rest_after(Duration::from_millis(10)), Duration::from_millis(90));
    }

    #[test]
    fn no_bucket_time_is_the_default_and_nonsense_is_named() {
        let none = FibOptions { bucket_time_ms: 0, ..FibOptions::default() };
        assert_eq!(none.validated().unwrap().bucket_time_ms, 50);
        let late = FibOptions { max_sync_delay_ms: 49, ..FibOptions::default() };
        let error = late.validated().unwrap_err();
        assert_eq!(error.to_string(), "max_sync_delay_ms must be from 50 to 60000, not 49");
        let greedy = FibOptions { cpu_share_percent: 0, ..FibOptions::default() };
        assert_eq!(greedy.validated().unwrap_err().name, "cpu_share_percent");
        let rare = FibOptions { bucket_change_threshold_rate: 19, ..FibOptions::default() };
        assert_eq!(rare.validated().unwrap().bucket_changes(), 0, "never puts off");
    }
}
