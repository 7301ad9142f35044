//! How often ICMP errors may be sent: a token bucket for each class of error, and a cap over them.
//!
//! A bucket is kept as the time at which it will be full again (the virtual scheduling form of the
//! leaky bucket, ITU-T I.371): one integer, no refill timer, no floats, the same answers for the same
//! times. RFC 4443, 2.4 (f) requires a limit for ICMPv6 and recommends a token bucket with both values
//! configurable; RFC 1812, 4.3.2.8 recommends one for ICMP. Elements that keep to a rate use the same bucket
//! (`element/click/rated.rs`).
//!
//! Cost: two comparisons, an addition and a division an error.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::language::{Args, ConfigError, Value};

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// One bucket's rate and size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// Tokens that come back a second; 0 sends nothing, [`Limit::NONE`] sends everything.
    pub rate_pps: u32,
    /// Tokens that a full bucket holds: how many may go at once; at least 1 is assumed.
    pub burst: u32,
}

impl Limit {
    /// No limit.
    pub const NONE: Self = Self { rate_pps: u32::MAX, burst: u32::MAX };
}

/// Argument of rate and burst.
impl Value for Limit {
    fn read(text: &str) -> Result<Self, String> {
        let mut words = text.split_ascii_whitespace();
        let (rate, burst, none) = (words.next(), words.next(), words.next());
        match (rate.map(u32::read), burst.map(u32::read), none) {
            (Some(Ok(rate_pps)), Some(Ok(burst)), None) => Ok(Self { rate_pps, burst }),
            _ => Err("no limit: packets a second, and how many at once".into()),
        }
    }
}

/// A token bucket over a monotonic clock. Exact: no part of a nanosecond is lost or given away.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Tokens that come back a second; [`UNLIMITED`] is no limit.
    rate: u64,
    /// How far ahead of the time a taker may find the bucket's full time, and still take.
    spare: Moment,
    /// When the bucket will be full.
    full_at: Moment,
}

/// A rate that is none.
const UNLIMITED: u64 = u64::MAX;

/// A time in nanoseconds, and a part of one over the bucket's rate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Moment {
    ns: u64,
    part: u64,
}

impl Moment {
    /// What so many tokens cost, behind a part of a nanosecond.
    fn of(tokens: u64, part: u64, rate: u64) -> Self {
        let rate = rate.max(1);
        let cost = u128::from(tokens) * u128::from(SECOND_NS) + u128::from(part);
        match u64::try_from(cost) {
            Ok(cost) => Self { ns: cost / rate, part: cost % rate },
            // More tokens than any packet costs.
            Err(_) => {
                Self { ns: u64::try_from(cost / u128::from(rate)).unwrap_or(u64::MAX), part: 0 }
            }
        }
    }
}

impl Bucket {
    /// A full bucket.
    pub fn new(limit: Limit) -> Self {
        let rate = if limit == Limit::NONE { UNLIMITED } else { limit.rate_pps.into() };
        Self::with_burst(rate, limit.burst.into())
    }

    /// A full bucket of this many tokens; at least 1 is assumed.
    pub(crate) fn with_burst(rate: u64, burst: u64) -> Self {
        let spare = Moment::of(burst.max(1) - 1, 0, rate);
        Self { rate, spare, full_at: Moment::default() }
    }

    /// A full bucket for takers of many tokens at once, who may take while less than `debt` are owed.
    pub(crate) fn with_debt(rate: u64, debt: u64) -> Self {
        Self { rate, spare: Moment::of(debt, 0, rate), full_at: Moment::default() }
    }

    /// Tokens that come back a second.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Becomes another bucket, of which as many tokens are taken as of this one, but not more than it has.
    pub(crate) fn become_of(&mut self, other: Self, now_ns: u64) {
        let owed = u128::from(self.ahead(now_ns).ns) * u128::from(self.rate);
        let owed = u64::try_from(owed / u128::from(SECOND_NS)).unwrap_or(u64::MAX);
        *self = other;
        self.take_many(owed, now_ns);
        let empty_ns = self.spare.ns.saturating_add(Moment::of(1, 0, self.rate).ns);
        self.full_at.ns = self.full_at.ns.min(now_ns.saturating_add(empty_ns));
    }

    /// Leaves one token, or with debt as many as are not owed: the next taker may take, and then waits.
    pub(crate) fn empty(&mut self, now_ns: u64) {
        let Moment { ns, part } = self.spare;
        self.full_at = Moment { ns: now_ns.saturating_add(ns), part };
    }

    /// How far the time at which it is full is ahead.
    #[inline]
    fn ahead(&self, now_ns: u64) -> Moment {
        match self.full_at.ns.checked_sub(now_ns) {
            Some(ns) => Moment { ns, part: self.full_at.part },
            None => Moment::default(),
        }
    }

    /// Whether a token is there.
    #[inline]
    pub fn has_token(&self, now_ns: u64) -> bool {
        self.rate == UNLIMITED || (self.rate != 0 && self.ahead(now_ns) <= self.spare)
    }

    /// Tokens that can be taken one by one before there is none; all that are there, and one on top.
    pub(crate) fn tokens(&self, now_ns: u64) -> u64 {
        if self.rate == UNLIMITED {
            return u64::MAX;
        }
        if !self.has_token(now_ns) {
            return 0;
        }
        let (spare, ahead, rate) = (self.spare, self.ahead(now_ns), u128::from(self.rate));
        // In parts of a nanosecond: not negative, since there is a token.
        let parts = |time: Moment| u128::from(time.ns) * rate + u128::from(time.part);
        let tokens = (parts(spare) - parts(ahead)) / u128::from(SECOND_NS);
        u64::try_from(tokens).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Takes a token; call after [`Bucket::has_token`] returned true.
    #[inline]
    pub fn take(&mut self, now_ns: u64) {
        self.take_many(1, now_ns);
    }

    /// Takes so many, some of which it may owe then.
    #[inline]
    pub(crate) fn take_many(&mut self, tokens: u64, now_ns: u64) {
        if self.full_at.ns < now_ns {
            self.full_at = Moment { ns: now_ns, part: 0 };
        }
        let cost = Moment::of(tokens, self.full_at.part, self.rate);
        self.full_at = Moment { ns: self.full_at.ns.saturating_add(cost.ns), part: cost.part };
    }
}

/// A token bucket that workers share: together they take no more than its rate, however packets are spread over them.
///
/// The state is the time at which the bucket will be full, as in [`Bucket`], in one word that takers exchange.
///
/// Cost: a division and an exchange of a cache line for each taker, which may take for a whole batch.
#[derive(Debug)]
pub struct SharedBucket {
    /// Tokens that come back a second.
    rate: u64,
    /// What all its tokens cost, in parts of a nanosecond.
    size: u64,
    /// How far ahead of the time `full_at` may be while a token is left.
    spare: u64,
    /// When the bucket will be full, in parts of a nanosecond.
    full_at: AtomicU64,
}

/// Parts of a nanosecond that a shared bucket counts: a byte takes 5 of them at 100 Gbit/s, and a word lasts for nine
/// years.
const PARTS: u64 = 64;

impl SharedBucket {
    /// A full bucket. A taker may take while tokens are left, and owe up to what one packet costs.
    pub fn new(rate: u64, burst: u64) -> Self {
        let made = Self { rate, size: 0, spare: 0, full_at: AtomicU64::new(0) };
        let burst = burst.max(1);
        Self { size: made.cost(burst), spare: made.cost(burst - 1), ..made }
    }

    fn cost(&self, tokens: u64) -> u64 {
        let parts = u128::from(tokens) * u128::from(SECOND_NS * PARTS);
        u64::try_from(parts / u128::from(self.rate.max(1))).unwrap_or(u64::MAX)
    }

    /// Takes so many tokens for one packet; `false`, and takes none, where no token is left.
    #[inline]
    pub fn take(&self, tokens: u64, now_ns: u64) -> bool {
        self.take_if(tokens, now_ns, |ahead, _| ahead <= self.spare)
    }

    /// Takes so many tokens for several packets together; `false`, and takes none, where there are fewer.
    #[inline]
    pub fn take_all(&self, tokens: u64, now_ns: u64) -> bool {
        self.take_if(tokens, now_ns, |ahead, cost| ahead.saturating_add(cost) <= self.size)
    }

    fn take_if(&self, tokens: u64, now_ns: u64, may: impl Fn(u64, u64) -> bool) -> bool {
        if self.rate == 0 {
            return false;
        }
        let (cost, now) = (self.cost(tokens), now_ns.saturating_mul(PARTS));
        // Relaxed: the word is all that takers share.
        let taken = self.full_at.fetch_update(Relaxed, Relaxed, |full_at| {
            let ahead = full_at.saturating_sub(now);
            may(ahead, cost).then(|| full_at.max(now).saturating_add(cost))
        });
        taken.is_ok()
    }
}

/// Classes of errors that do not take each other's tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorClass {
    /// Time exceeded: what traceroute lives on.
    TimeExceeded,
    /// Destination unreachable, but for "fragmentation needed".
    Unreachable,
    /// Fragmentation needed and packet too big: what path MTU discovery lives on.
    TooBig,
    /// Parameter problem.
    Parameter,
}

/// The limits of one worker and family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorLimits {
    /// Time exceeded.
    pub time_exceeded: Limit,
    /// Destination unreachable.
    pub unreachable: Limit,
    /// Fragmentation needed, packet too big.
    pub too_big: Limit,
    /// Parameter problem.
    pub parameter: Limit,
    /// Over all classes but too big, which must get through while others are flooded.
    pub all: Limit,
}

/// RFC 4443 names 10 a second with a burst of 10 for a small device. Linux allows (6.18) 10,000 a
/// second with a burst of 50 in all, besides one a second to each destination. A router between many
/// hosts needs more than the first and, without a limit for each destination, must stay below what
/// would cost it forwarding: an error costs about as much as a few forwarded packets, so all of the
/// below take under 1 % of a core.
impl Default for ErrorLimits {
    fn default() -> Self {
        Self {
            // A traceroute takes 3 from each router at once, mtr 1 a second: hundreds side by side.
            time_exceeded: Limit { rate_pps: 1_000, burst: 300 },
            // Scans of unused space are the usual cause; their senders need no quick answer.
            unreachable: Limit { rate_pps: 500, burst: 100 },
            // When a path narrows, every flow across it needs one before it can go on.
            too_big: Limit { rate_pps: 2_000, burst: 1_000 },
            // Hardly ever honest.
            parameter: Limit { rate_pps: 100, burst: 20 },
            all: Limit { rate_pps: 1_200, burst: 350 },
        }
    }
}

impl ErrorLimits {
    /// Reads the keyword arguments of an element that sends errors.
    /// Where one is not given it is that of `usual`.
    pub(crate) fn read(args: &mut Args<'_>, usual: Self) -> Result<Self, ConfigError> {
        let mut limit = |name, usual: Limit| Ok(args.keyword(name)?.unwrap_or(usual));
        let limits = [
            limit("TIME_EXCEEDED", usual.time_exceeded),
            limit("UNREACHABLE", usual.unreachable),
            limit("TOO_BIG", usual.too_big),
            limit("PARAMETER", usual.parameter),
            limit("ALL", usual.all),
        ];
        let [time_exceeded, unreachable, too_big, parameter, all] = limits;
        Ok(Self {
            time_exceeded: time_exceeded?,
            unreachable: unreachable?,
            too_big: too_big?,
            parameter: parameter?,
            all: all?,
        })
    }

    /// Everything is sent.
    pub const NONE: Self = Self {
        time_exceeded: Limit::NONE,
        unreachable: Limit::NONE,
        too_big: Limit::NONE,
        parameter: Limit::NONE,
        all: Limit::NONE,
    };
}

/// The buckets of one error element.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    classes: [Bucket; 4],
    all: Bucket,
}

impl RateLimiter {
    /// Limiter with all buckets full.
    pub fn new(limits: &ErrorLimits) -> Self {
        let ErrorLimits { time_exceeded, unreachable, too_big, parameter, all } = *limits;
        Self {
            classes: [time_exceeded, unreachable, too_big, parameter].map(Bucket::new),
            all: Bucket::new(all),
        }
    }

    /// Whether an error of this class may be sent now; if so, its tokens are taken.
    pub fn allow(&mut self, class: ErrorClass, now_ns: u64) -> bool {
        let capped = class != ErrorClass::TooBig;
        let bucket = &mut self.classes[class as usize];
        // Both are asked before either pays: a refused error costs no token.
        if !bucket.has_token(now_ns) || (capped && !self.all.has_token(now_ns)) {
            return false;
        }
        bucket.take(now_ns);
        if capped {
            self.all.take(now_ns);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(bucket: &mut Bucket, times: impl Iterator<Item = u64>) -> usize {
        times
            .filter(|&now| {
                bucket.has_token(now) && {
                    bucket.take(now);
                    true
                }
            })
            .count()
    }

    #[test]
    fn a_burst_then_the_rate() {
        let mut bucket = Bucket::new(Limit { rate_pps: 10, burst: 3 });
        let start = 77 * SECOND_NS;
        assert_eq!(sent(&mut bucket, std::iter::repeat_n(start, 100)), 3);
        assert_eq!(sent(&mut bucket, std::iter::once(start + SECOND_NS / 10 - 1)), 0);
        assert_eq!(sent(&mut bucket, std::iter::once(start + SECOND_NS / 10)), 1);
        // Asked every millisecond for ten seconds: ten a second.
        let ms = (1..=10_000).map(|t| start + SECOND_NS / 10 + t * 1_000_000);
        assert_eq!(sent(&mut bucket, ms), 100);
        // After a long silence a burst, and not more.
        assert_eq!(sent(&mut bucket, std::iter::repeat_n(start * 2, 100)), 3);
    }

    #[test]
    fn extremes() {
        let many = || std::iter::repeat_n(5, 10_000);
        assert_eq!(sent(&mut Bucket::new(Limit { rate_pps: 0, burst: 5 }), many()), 0);
        assert_eq!(sent(&mut Bucket::new(Limit::NONE), many()), 10_000);
        assert_eq!(sent(&mut Bucket::new(Limit { rate_pps: 1, burst: 0 }), many()), 1);
        let huge = Limit { rate_pps: u32::MAX - 1, burst: u32::MAX };
        assert_eq!(sent(&mut Bucket::new(huge), many()), 10_000);
        let mut late = Bucket::new(Limit { rate_pps: 1, burst: 1 });
        assert_eq!(
            sent(&mut late, std::iter::repeat_n(u64::MAX, 2)),
            2,
            "the end of time saturates"
        );
    }

    #[test]
    fn no_part_of_a_nanosecond_is_lost() {
        // 3 bytes a nanosecond: a packet of 100 costs 33 and a third.
        let mut bucket = Bucket::with_debt(3 * SECOND_NS, 100);
        let mut taken = 0_u64;
        for now in 0..10_000 {
            while bucket.has_token(now) {
                bucket.take_many(100, now);
                taken += 100;
            }
        }
        // The rate, what may be owed, and what was taken at once beyond that.
        assert_eq!(taken, 30_100);
        assert_eq!(sent(&mut Bucket::with_burst(7, 3), std::iter::repeat_n(9, 10)), 3);
    }

    #[test]
    fn tokens_are_those_that_can_be_taken() {
        for (rate, burst) in [(7, 3), (10_000_000, 256), (3, 1), (0, 4)] {
            let mut bucket = Bucket::with_burst(rate, burst);
            for now in [5, 5, 90, 300_000_000, 300_000_001, 900_000_000] {
                let tokens = bucket.tokens(now);
                let all = sent(&mut bucket.clone(), std::iter::repeat_n(now, 1000));
                assert_eq!(tokens, all as u64, "{rate} {burst} {now}");
                bucket.take_many(tokens.min(2), now);
            }
        }
        assert_eq!(Bucket::new(Limit::NONE).tokens(1), u64::MAX);
        let mut bucket = Bucket::with_burst(10, 4);
        bucket.take_many(4, SECOND_NS);
        assert!(!bucket.has_token(SECOND_NS));
        bucket.become_of(Bucket::with_burst(1_000, 4), SECOND_NS);
        let tokens = [0, 1, 2, 9].map(|ms| bucket.tokens(SECOND_NS + ms * 1_000_000));
        assert_eq!((bucket.rate(), tokens), (1_000, [0, 1, 2, 4]));
        bucket.take_many(4, 2 * SECOND_NS);
        bucket.become_of(Bucket::with_burst(1, 1), 2 * SECOND_NS);
        assert_eq!((bucket.tokens(2 * SECOND_NS), bucket.tokens(3 * SECOND_NS)), (0, 1));
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing_away() {
        let mut bucket = Bucket::new(Limit { rate_pps: 1, burst: 1 });
        assert_eq!(sent(&mut bucket, [10 * SECOND_NS, 0, 10 * SECOND_NS].into_iter()), 1);
    }

    #[test]
    fn workers_share_a_bucket_whatever_each_of_them_asks_for() {
        for workers in [1, 2, 4] {
            // 1 MB a second and 10 kB at once, for a second of 10 MB.
            let bucket = SharedBucket::new(1_000_000, 10_000);
            let taken: u64 = std::thread::scope(|scope| {
                let worker = |of: u64| {
                    let bucket = &bucket;
                    scope.spawn(move || {
                        let times = (0..10_000_u64).filter(|n| n % workers == of);
                        times.filter(|n| bucket.take(1_000, n * 100_000)).count() as u64 * 1_000
                    })
                };
                let running: Vec<_> = (0..workers).map(worker).collect();
                running.into_iter().map(|worker| worker.join().unwrap()).sum()
            });
            // Workers whose clocks are apart by a second at most find up to that much more or less of its use.
            assert!((1_000_000..=1_011_000).contains(&taken) || workers > 1, "{taken}");
            assert!(taken <= 1_011_000, "{workers} workers took {taken}");
        }
    }

    #[test]
    fn a_shared_bucket_is_as_one_of_a_worker() {
        for (rate, burst) in [(10, 3), (1_000_000, 1), (7, 1), (0, 5)] {
            let (shared, mut own) =
                (SharedBucket::new(rate, burst), Bucket::with_burst(rate, burst));
            for step in 0..3_000_u64 {
                let now = 5 * SECOND_NS + step * 1_234_567;
                let may = own.has_token(now);
                if may {
                    own.take(now);
                }
                assert_eq!(shared.take(1, now), may, "{rate} {burst} {step}");
            }
        }
        let bucket = SharedBucket::new(1_000, 10);
        assert!(!bucket.take_all(11, 1) && bucket.take_all(9, 1) && !bucket.take_all(2, 1));
        assert!(bucket.take(5, 1), "owed");
        assert!(!bucket.take(1, 1));
    }

    #[test]
    fn classes_do_not_starve_too_big() {
        let limits = ErrorLimits {
            unreachable: Limit { rate_pps: 100, burst: 10 },
            all: Limit { rate_pps: 100, burst: 15 },
            ..ErrorLimits::default()
        };
        let mut limiter = RateLimiter::new(&limits);
        let mut count = |class| (0..5_000).filter(|_| limiter.allow(class, 1)).count();
        assert_eq!(count(ErrorClass::Unreachable), 10);
        assert_eq!(count(ErrorClass::TimeExceeded), 5, "what the cap leaves");
        assert_eq!(count(ErrorClass::Parameter), 0);
        assert_eq!(count(ErrorClass::TooBig), 1_000, "its own bucket only");
    }

    #[test]
    fn a_refused_error_costs_nothing() {
        let one = Limit { rate_pps: 1, burst: 1 };
        let limits = ErrorLimits { unreachable: one, ..ErrorLimits::default() };
        let mut limiter = RateLimiter::new(&limits);
        for _ in 0..1_000 {
            limiter.allow(ErrorClass::Unreachable, 1);
        }
        let rest = (0..1_000).filter(|_| limiter.allow(ErrorClass::TimeExceeded, 1)).count();
        assert_eq!(rest, 300, "1 of the 350 of the cap is gone, and the class has 300");
    }

    proptest! {
        /// No window of time sees more than a burst and the rate over its length.
        #[test]
        fn never_more_than_promised(
            rate_pps in 1..2_000_u32,
            burst in 1..50_u32,
            steps in prop::collection::vec(0..20_000_000_u64, 1..300),
        ) {
            let mut bucket = Bucket::new(Limit { rate_pps, burst });
            let (mut now, mut times) = (0, Vec::new());
            for step in steps {
                now += step;
                if bucket.has_token(now) {
                    bucket.take(now);
                    times.push(now);
                }
            }
            for (i, &from) in times.iter().enumerate() {
                for (j, &to) in times.iter().enumerate().skip(i) {
                    let allowed = u64::from(burst) + (to - from) * u64::from(rate_pps) / SECOND_NS;
                    prop_assert!((j - i + 1) as u64 <= allowed);
                }
            }
        }
    }
}
