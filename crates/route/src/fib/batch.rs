//! When pending changes are applied: at once where that is cheap, else in FreeBSD's buckets.
//!
//! Time goes in, a verdict comes out; nothing here looks at a clock. The rules, in this order:
//!
//! 1. A forced round (a route of the host itself, the end of a table, a wish of the user) is at once.
//! 2. So are changes that are expected to be applied within `at_once_us`, as long as the share of the
//!    core is not spent. What to expect is measured: the cost a change of late, or that of a build where
//!    the algorithm could not change in place last time, or a build is cheaper.
//! 3. Others wait for the bucket of 50 ms in which the first of them came. A bucket with 25 changes or
//!    more puts the round off to the end of the next one, so a storm pushes it on, bucket by bucket.
//! 4. After a round of `t` the next one of this kind waits `9 t`: at most a tenth of a core. What another thread
//!    built is not the writer's time: changes that it can apply in place do not wait for it.
//! 5. No change waits longer than a second, in spite of 3 and 4.
//!
//! Differs from FreeBSD (`fib_algo.c`): 2 and 4 are ours; the threshold is a comparison by >=, where
//! FreeBSD tests for equality and so loses the moment when changes come in bulk.

use std::time::{Duration, Instant};

use super::options::FibOptions;

/// What a change is taken to cost before any was measured, in nanoseconds, and what that guess weighs
/// in changes.
const FIRST_GUESS_NS: f64 = 1000.0;
const GUESS_WEIGHT: f64 = 16.0;
/// What was measured longer ago than this many changes counts for less than half.
const MEMORY: f64 = 4096.0;

/// When to apply what is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// There is nothing.
    Never,
    /// Now.
    Now,
    /// Not before that, unless more comes and changes the verdict.
    At(Instant),
}

/// What was done in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// How long it took.
    pub cost: Duration,
    /// How many changes it made visible.
    pub changes: usize,
    /// The table was built, not changed in place.
    pub built: bool,
    /// The algorithm could not change it in place.
    pub refused: bool,
    /// Another thread built it.
    pub beside: bool,
}

/// The policy's memory of one table.
#[derive(Clone, Debug)]
pub struct Batching {
    options: FibOptions,
    /// When the first change came that readers do not see.
    diverged: Option<Instant>,
    /// End of waiting, once waiting was decided.
    due: Option<Instant>,
    bucket: u32,
    in_bucket: usize,
    cost_ns: f64,
    changes: f64,
    build: Option<Duration>,
    refused: bool,
    rest_until: Option<Instant>,
    /// What may be spent on changes at once; earned by time, up to what the longest delay earns.
    credit_ns: i64,
    credited: Option<Instant>,
}

impl Batching {
    /// A policy before the first round.
    pub fn new(options: FibOptions) -> Self {
        Self {
            options,
            diverged: None,
            due: None,
            bucket: 0,
            in_bucket: 0,
            cost_ns: FIRST_GUESS_NS * GUESS_WEIGHT,
            changes: GUESS_WEIGHT,
            build: None,
            refused: false,
            rest_until: None,
            credit_ns: nanos(options.earned(options.max_sync_delay())),
            credited: None,
        }
    }

    /// Other knobs from now on.
    pub fn set_options(&mut self, options: FibOptions) {
        self.options = options;
    }

    /// `new` changes came since the last call, and `pending` are not visible; when are they to be?
    pub fn offer(&mut self, new: usize, pending: usize, forced: bool, now: Instant) -> Due {
        if pending == 0 {
            self.settle();
            return Due::Never;
        }
        let diverged = *self.diverged.get_or_insert(now);
        self.earn(now);
        if forced {
            return Due::Now;
        }
        let cheap = self.expected(pending) <= self.options.at_once() && self.credit_ns >= 0;
        if self.due.is_none() && cheap {
            return Due::Now;
        }
        let length = self.options.bucket_time();
        let waited = now.saturating_duration_since(diverged);
        let bucket = u32::try_from(waited.as_nanos() / length.as_nanos()).unwrap_or(u32::MAX - 2);
        if bucket != self.bucket {
            (self.bucket, self.in_bucket) = (bucket, 0);
        }
        self.in_bucket += new;
        let latest = self.options.max_sync_delay();
        let mut due = self.due.unwrap_or(diverged + length);
        let threshold = self.options.bucket_changes();
        let put_off = length.saturating_mul(bucket + 2);
        if threshold > 0 && self.in_bucket >= threshold && put_off <= latest {
            due = due.max(diverged + put_off);
        }
        self.due = Some(due);
        let due = self.rest_until.map_or(due, |rest| rest.max(due)).min(diverged + latest);
        if now >= due { Due::Now } else { Due::At(due) }
    }

    /// The pending changes are visible.
    pub fn done(&mut self, round: Round, now: Instant) {
        self.settle();
        if round.built {
            self.build = Some(round.cost);
        }
        if round.changes == 0 {
            return;
        }
        self.refused = round.refused;
        if !round.built {
            self.cost_ns += round.cost.as_secs_f64() * 1e9;
            #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52 changes")]
            let changes = round.changes as f64;
            self.changes += changes;
            if self.changes > MEMORY {
                let keep = MEMORY / 2.0 / self.changes;
                self.cost_ns *= keep;
                self.changes *= keep;
            }
        }
        self.earn(now);
        if !round.beside {
            self.credit_ns -= nanos(round.cost);
        }
        self.rest_until = Some(now + self.options.rest_after(round.cost));
    }

    /// Another thread has built a table, whose predecessor took the changes meanwhile: none has waited for it.
    pub fn replaced(&mut self, took: Duration) {
        self.settle();
        self.build = Some(took);
    }

    /// Time from which readers do not see everything.
    pub fn diverged(&self) -> Option<Instant> {
        self.diverged
    }

    /// What a change costs of late.
    pub fn cost_per_change(&self) -> Duration {
        Duration::from_secs_f64(self.cost_ns / self.changes * 1e-9)
    }

    fn settle(&mut self) {
        (self.diverged, self.due, self.bucket, self.in_bucket) = (None, None, 0, 0);
    }

    fn expected(&self, pending: usize) -> Duration {
        let pending = u32::try_from(pending).unwrap_or(u32::MAX);
        let in_place = self.cost_per_change().saturating_mul(pending);
        match self.build {
            Some(build) if self.refused => build,
            Some(build) => build.min(in_place),
            None => in_place,
        }
    }

    fn earn(&mut self, now: Instant) {
        let since = self.credited.replace(now).unwrap_or(now);
        let earned = nanos(self.options.earned(now.saturating_duration_since(since)));
        let most = nanos(self.options.earned(self.options.max_sync_delay()));
        self.credit_ns = self.credit_ns.saturating_add(earned).min(most);
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    struct Desk {
        batching: Batching,
        start: Instant,
    }

    /// `cost` a build, which the algorithm needs for every change.
    fn rebuilder(cost: Duration) -> Desk {
        let mut desk = Desk {
            batching: Batching::new(FibOptions::default()),
            start: Instant::now() + Duration::from_secs(100),
        };
        let round = Round { cost, changes: 1, built: true, refused: true, beside: false };
        // Long ago, so that nothing rests because of it.
        desk.batching.done(round, desk.start - Duration::from_secs(60));
        desk
    }

    impl Desk {
        fn at(&self, ms: u32) -> Instant {
            self.start + MS * ms
        }
        fn offer(&mut self, new: usize, pending: usize, ms: u32) -> Due {
            self.batching.offer(new, pending, false, self.at(ms))
        }
        fn round(&mut self, changes: usize, cost: Duration, ms: u32) {
            let round = Round { cost, changes, built: false, refused: false, beside: false };
            self.batching.done(round, self.at(ms));
        }
    }

    #[test]
    fn cheap_changes_are_at_once() {
        let mut desk =
            Desk { batching: Batching::new(FibOptions::default()), start: Instant::now() };
        for ms in 0..1000 {
            assert_eq!(desk.offer(1, 1, ms), Due::Now);
            desk.round(1, Duration::from_micros(3), ms);
        }
        assert_eq!(desk.offer(0, 0, 1000), Due::Never);
        assert!(desk.batching.cost_per_change() > Duration::from_micros(2));
        // 1000 changes of 3 us are more than a millisecond: they wait for their bucket.
        assert_eq!(desk.offer(1000, 1000, 1001), Due::At(desk.at(1101)));
    }

    #[test]
    fn a_lone_change_that_costs_a_build_waits_for_one_bucket() {
        let mut desk = rebuilder(4 * MS);
        assert_eq!(desk.offer(1, 1, 0), Due::At(desk.at(50)));
        assert_eq!(desk.offer(0, 1, 49), Due::At(desk.at(50)));
        assert_eq!(desk.offer(0, 1, 50), Due::Now);
    }

    #[test]
    fn a_small_table_is_built_at_once() {
        let mut desk = rebuilder(MS / 10);
        assert_eq!(desk.offer(1, 1, 0), Due::Now);
    }

    #[test]
    fn twenty_five_changes_in_a_bucket_put_off_to_the_end_of_the_next() {
        let mut desk = rebuilder(4 * MS);
        assert_eq!(desk.offer(24, 24, 0), Due::At(desk.at(50)));
        assert_eq!(desk.offer(1, 25, 1), Due::At(desk.at(100)));
        // In bulk, past the threshold and not at it.
        assert_eq!(desk.offer(1000, 1025, 51), Due::At(desk.at(150)));
        assert_eq!(
            desk.offer(24, 1049, 101),
            Due::At(desk.at(150)),
            "a calm bucket puts nothing off"
        );
        assert_eq!(desk.offer(0, 1049, 150), Due::Now);
    }

    #[test]
    fn a_storm_is_visible_after_a_second() {
        let mut desk = rebuilder(4 * MS);
        let mut pending = 0;
        for ms in 0..1000 {
            pending += 10;
            assert_ne!(desk.offer(10, pending, ms), Due::Now, "at {ms} ms");
        }
        assert_eq!(desk.offer(10, pending, 1000), Due::Now);
    }

    #[test]
    fn a_round_rests_nine_times_its_cost_and_never_beyond_the_longest_delay() {
        let mut desk = rebuilder(4 * MS);
        let round = Round { cost: 30 * MS, changes: 1, built: true, refused: true, beside: false };
        desk.batching.done(round, desk.at(0));
        assert_eq!(desk.offer(1, 1, 10), Due::At(desk.at(270)));
        let round = Round { cost: 900 * MS, changes: 1, built: true, refused: true, beside: false };
        desk.batching.done(round, desk.at(300));
        assert_eq!(desk.offer(1, 1, 310), Due::At(desk.at(1310)), "the delay wins over the share");
    }

    #[test]
    fn the_share_of_the_core_is_kept_in_the_long_run() {
        // Each change takes 0.9 ms and one comes every millisecond: a tenth of a core is 0.1 ms.
        let mut desk =
            Desk { batching: Batching::new(FibOptions::default()), start: Instant::now() };
        let (mut pending, mut spent, mut longest, mut since) = (0, Duration::ZERO, 0, 0);
        for ms in 0..20_000 {
            if pending == 0 {
                since = ms;
            }
            pending += 1;
            if desk.offer(1, pending, ms) == Due::Now {
                let cost = MS * 9 / 10;
                desk.round(pending, cost, ms);
                spent += cost;
                longest = longest.max(ms - since);
                pending = 0;
            }
        }
        // What may be spent ahead is the share of a second.
        assert!(spent < MS * 2000 + MS * 100 + MS, "{spent:?}");
        assert!(longest <= 1000, "{longest} ms");
    }

    #[test]
    fn a_forced_round_is_at_once() {
        let mut desk = rebuilder(400 * MS);
        assert_ne!(desk.offer(5, 5, 0), Due::Now);
        assert_eq!(desk.batching.offer(1, 6, true, desk.at(1)), Due::Now);
        assert_eq!(desk.batching.diverged(), Some(desk.at(0)));
        desk.round(6, MS, 2);
        assert_eq!(desk.batching.diverged(), None);
        assert_eq!(desk.batching.offer(0, 0, true, desk.at(3)), Due::Never, "nothing to force");
    }

    #[test]
    fn a_build_in_between_does_not_make_later_changes_wait() {
        let mut desk =
            Desk { batching: Batching::new(FibOptions::default()), start: Instant::now() };
        let first = Round { cost: 80 * MS, changes: 0, built: true, refused: false, beside: false };
        desk.batching.done(first, desk.at(0));
        assert_eq!(desk.offer(1, 1, 1), Due::Now, "a first build is no measure of changes");
        let refused =
            Round { cost: 80 * MS, changes: 1, built: true, refused: true, beside: false };
        desk.batching.done(refused, desk.at(1));
        assert_ne!(desk.offer(1, 1, 2), Due::Now);
        desk.round(1, MS / 100, 900);
        assert_eq!(desk.offer(1, 1, 901), Due::Now);
    }

    #[test]
    fn what_another_thread_built_costs_changes_no_wait() {
        let cheap = |mut desk: Desk| desk.offer(1, 1, 1) == Due::Now;
        let desk =
            || Desk { batching: Batching::new(FibOptions::default()), start: Instant::now() };
        let round =
            |beside| Round { cost: 900 * MS, changes: 9, built: true, refused: false, beside };
        for (beside, at_once) in [(false, false), (true, true)] {
            let mut desk = desk();
            desk.batching.done(round(beside), desk.at(0));
            assert_eq!(cheap(desk), at_once);
        }
        let mut desk = desk();
        desk.offer(1, 1_000_000, 0);
        desk.batching.replaced(900 * MS);
        assert_eq!(desk.batching.diverged(), None);
        assert!(cheap(desk));
    }

    #[test]
    fn other_knobs_are_minded() {
        let mut desk = rebuilder(4 * MS);
        let options = FibOptions {
            bucket_time_ms: 20,
            bucket_change_threshold_rate: 0,
            max_sync_delay_ms: 100,
            ..FibOptions::default()
        };
        desk.batching.set_options(options);
        assert_eq!(desk.offer(5000, 5000, 0), Due::At(desk.at(20)), "never put off");
        desk.batching.set_options(FibOptions { at_once_us: 5000, ..options });
        desk.round(1, Duration::ZERO, 1);
        assert_eq!(desk.offer(1, 1, 2), Due::Now);
    }
}
