//! The time of day as elements know it: that of their worker's clock, and where it began.
//!
//! Source: Click's `Timestamp::now`, and its virtual clock, which begins at 1,000,000,000 seconds. The driver of a thread
//! names which; elsewhere it is the time of the host.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::graph::worker::clock_start;

/// Nanoseconds of a second.
pub(crate) const SECOND_NS: i64 = 1_000_000_000;

thread_local! {
    /// Time of day at which the worker's clock was 0; unknown yet where negative.
    static BEGAN_NS: Cell<i64> = const { Cell::new(-1) };
}

/// Lets the clock of this thread begin at that time of day.
pub fn begin(time_of_day_ns: i64) {
    BEGAN_NS.set(time_of_day_ns);
}

/// Time of day at that time of the worker's clock, in nanoseconds.
pub(crate) fn time_of_day(now_ns: u64) -> i64 {
    if BEGAN_NS.get() < 0 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = since.saturating_sub(clock_start().elapsed());
        BEGAN_NS.set(i64::try_from(since.as_nanos()).unwrap_or(0));
    }
    BEGAN_NS.get().saturating_add_unsigned(now_ns)
}

/// Seconds with six digits behind the point, as Click writes times.
pub(crate) fn seconds(ns: i64) -> String {
    let micros = ns.unsigned_abs() / 1000;
    let sign = if ns < 0 && micros > 0 { "-" } else { "" };
    format!("{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// Seconds with nine digits behind the point.
pub(crate) fn long_seconds(ns: i64) -> String {
    let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Nanoseconds of a decimal number of seconds.
pub fn read_seconds(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let part: String = part.chars().chain("000000000".chars()).take(9).collect();
    whole.checked_mul(SECOND_NS)?.checked_add(part.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        assert_eq!([-3_500_000_000, -500].map(seconds), ["-3.500000", "0.000000"]);
        assert_eq!([-3_500_000_000, 7].map(long_seconds), ["-3.500000000", "0.000000007"]);
        assert_eq!(
            [".5", "1", "0.000001", "2."].map(read_seconds),
            [500_000_000, 1_000_000_000, 1000, 2_000_000_000].map(Some)
        );
        assert_eq!(["", ".", "x", "1e3", "-1"].map(read_seconds), [None; 5]);
        assert_eq!((seconds(1_234_567_899), seconds(0)), ("1.234567".into(), "0.000000".into()));
        begin(5);
        assert_eq!(time_of_day(7), 12);
    }
}
