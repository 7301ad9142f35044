//! Which algorithm serves a table, when to switch, and when to give one up.
//!
//! After FreeBSD 13's framework (in_fib_algo): every algorithm claims a fitness for a table's shape; a
//! clearly better claim wins at the next look; one that fails is left alone for a while, one whose
//! limits the table exceeds is banned for it. A choice of the user is never overridden while the chosen
//! one can hold the table at all. Differs: FreeBSD's pin of one table pins the whole family, and its
//! bans outlive a choice by hand.

use std::fmt;
use std::time::{Duration, Instant};

use fingerpost_lpm::{Addr, Algorithm, TableStats, UpdateError};

use super::options::FibOptions;

/// Pause of an algorithm after a failed build (FreeBSD's 50 ms); doubles with each further failure ...
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// ... so many times.
pub(super) const MOST_DOUBLINGS: u32 = 10;

/// What being favored adds to a claim: claims are at most 255. Far above, so that the hysteresis does
/// not keep one that is not.
const FAVOR: u32 = 1024;

/// How the algorithm is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// The algorithm of best fitness for the table's shape.
    #[default]
    Auto,
    /// This one and no other, while it can hold the table.
    Pinned(&'static str),
    /// The fastest by calibration on the live table.
    Measured,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Pinned(name) => name,
            Self::Measured => "measured",
        })
    }
}

struct Row<A: Addr> {
    algorithm: &'static Algorithm<A>,
    /// Claims more than any that is not.
    favored: bool,
    banned: bool,
    paused_until: Option<Instant>,
    failures: u32,
}

/// The candidates of one table, and what befell them.
pub struct Chooser<A: Addr> {
    rows: Vec<Row<A>>,
    options: FibOptions,
    choice: Choice,
    /// Winner of the latest calibration, and the prefixes that the table had then.
    measured: Option<(&'static str, usize)>,
    changes: u64,
    looked: Option<Instant>,
    last_error: Option<UpdateError>,
}

impl<A: Addr> Chooser<A> {
    /// Chooses among `rows`.
    pub fn new(rows: impl IntoIterator<Item = &'static Algorithm<A>>) -> Self {
        let row = |algorithm| Row {
            algorithm,
            favored: false,
            banned: false,
            paused_until: None,
            failures: 0,
        };
        Self {
            rows: rows.into_iter().map(row).collect(),
            options: FibOptions::default(),
            choice: Choice::Auto,
            measured: None,
            changes: 0,
            looked: None,
            last_error: None,
        }
    }

    /// Other knobs from now on.
    pub fn set_options(&mut self, options: FibOptions) {
        self.options = options;
    }

    /// Prefers these to all others, from the next look on, which is due.
    pub fn favor(&mut self, favored: impl Fn(&str) -> bool) {
        for row in &mut self.rows {
            row.favored = favored(row.algorithm.name);
        }
        self.looked = None;
    }

    /// Uses this algorithm and no other, or chooses again by fitness (`None` or `auto`) or by calibration
    /// (`measured`). `false` when there is no such algorithm; nothing changed then.
    pub fn pin(&mut self, name: Option<&str>) -> bool {
        let choice = match name {
            None | Some("auto") => Choice::Auto,
            Some("measured") => Choice::Measured,
            Some(name) => match self.rows.iter().find(|r| r.algorithm.name == name) {
                Some(row) => Choice::Pinned(row.algorithm.name),
                None => return false,
            },
        };
        self.decide(choice);
        true
    }

    /// Makes this the choice from now on. It is a fresh decision: bans and pauses are lifted, and an old
    /// calibration does not count.
    pub fn decide(&mut self, choice: Choice) {
        self.choice = choice;
        self.measured = None;
        self.looked = None;
        self.pardon();
    }

    /// How it chooses.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// The names that can be pinned.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.rows.iter().map(|r| r.algorithm.name)
    }

    /// The row of this name.
    pub fn row(&self, name: &str) -> Option<&'static Algorithm<A>> {
        self.rows.iter().map(|r| r.algorithm).find(|algorithm| algorithm.name == name)
    }

    /// Those that may be built for such a table, the best claim first.
    pub fn candidates(&self, stats: &TableStats, now: Instant) -> Vec<&'static Algorithm<A>> {
        let fits = self.rows.iter().filter(|row| row.fits(stats, now));
        let mut fits: Vec<_> = fits.map(|row| row.algorithm).collect();
        fits.sort_by_key(|algorithm| std::cmp::Reverse((algorithm.fitness)(stats)));
        fits
    }

    /// Whether the next look is due at once: the user decided, or a calibration did.
    pub fn is_due(&self) -> bool {
        self.looked.is_none()
    }

    /// Whether a calibration is due: it is wanted, and there was none or the table has another size by now.
    pub fn wants_calibration(&self, prefixes: usize) -> bool {
        let outdated = |then: usize| prefixes > 2 * then.max(64) || 2 * prefixes.max(64) < then;
        self.choice == Choice::Measured && self.measured.is_none_or(|(_, then)| outdated(then))
    }

    /// Takes the winner of a calibration, on a table of so many prefixes.
    pub fn measured(&mut self, name: &'static str, prefixes: usize) {
        self.measured = Some((name, prefixes));
        self.looked = None;
    }

    /// The algorithm to use instead of `current`, if a look is due and another one is clearly better;
    /// without a current one the best there is.
    pub fn choose(
        &mut self,
        current: Option<&'static Algorithm<A>>,
        changes: usize,
        stats: &mut dyn FnMut() -> TableStats,
        now: Instant,
    ) -> Option<&'static Algorithm<A>> {
        self.changes += changes as u64;
        let due = current.is_none()
            || self.changes >= u64::from(self.options.evaluation_changes)
            || self
                .looked
                .is_none_or(|t| now.saturating_duration_since(t) >= self.options.evaluation());
        if !due {
            return None;
        }
        self.changes = 0;
        self.looked = Some(now);
        let stats = stats();
        let wanted = match self.choice {
            Choice::Auto => None,
            Choice::Pinned(name) => Some(name),
            Choice::Measured => self.measured.map(|(name, _)| name),
        };
        let mut fit = self.rows.iter().filter(|row| row.fits(&stats, now));
        if let Some(name) = wanted
            && let Some(row) = fit.clone().find(|r| r.algorithm.name == name)
        {
            return differs(current, row.algorithm);
        }
        // Nothing is wanted, or what is wanted cannot hold the table: the old answer must not stay.
        let claim = |row: &Row<A>| row.claim(&stats);
        let Some(present) =
            current.and_then(|c| self.rows.iter().find(|r| r.algorithm.name == c.name))
        else {
            let best = fit.filter(|row| claim(row) > 0).max_by_key(|row| claim(row))?;
            return Some(best.algorithm);
        };
        let enough = claim(present) * (100 + self.options.hysteresis_percent);
        let best = fit.by_ref().max_by_key(|row| claim(row))?;
        (claim(best) * 100 > enough).then(|| differs(current, best.algorithm)).flatten()
    }

    /// The table exceeds this algorithm's limits, or it answered wrongly: leave it alone for good.
    pub fn ban(&mut self, name: &str) {
        for row in self.rows.iter_mut().filter(|r| r.algorithm.name == name) {
            row.banned = true;
        }
    }

    /// Whether the algorithm is left alone for good.
    pub fn is_banned(&self, name: &str) -> bool {
        self.rows.iter().any(|row| row.banned && row.algorithm.name == name)
    }

    /// The names of those that are banned.
    pub fn banned(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.rows.iter().filter(|row| row.banned).map(|row| row.algorithm.name)
    }

    /// A build failed: leave the algorithm alone for a while.
    pub fn pause(&mut self, name: &str, now: Instant) {
        for row in self.rows.iter_mut().filter(|r| r.algorithm.name == name) {
            row.paused_until = Some(now + pause(row.failures));
            row.failures += 1;
        }
    }

    /// Counts a failed build or change: bans an algorithm whose limits are exceeded, and pauses any other.
    /// Returns which of the two, in words.
    pub(super) fn failed(&mut self, name: &str, error: &UpdateError, now: Instant) -> &'static str {
        self.last_error = Some(error.clone());
        if let UpdateError::Limit { .. } = error {
            self.ban(name);
            return "given up";
        }
        self.pause(name, now);
        "paused"
    }

    /// Error of the latest failure.
    pub(super) fn last_error(&self) -> Option<&UpdateError> {
        self.last_error.as_ref()
    }

    /// A build succeeded.
    pub fn built(&mut self, name: &str) {
        for row in self.rows.iter_mut().filter(|r| r.algorithm.name == name) {
            row.failures = 0;
            row.paused_until = None;
        }
    }

    /// Bans and pauses are lifted: a fresh start, or nothing else is left to try.
    pub fn pardon(&mut self) {
        for row in &mut self.rows {
            row.banned = false;
            row.paused_until = None;
        }
    }
}

impl<A: Addr> Row<A> {
    /// The algorithm's claim for such a table; the least of a favored one is above all others'.
    fn claim(&self, stats: &TableStats) -> u32 {
        let fitness = u32::from((self.algorithm.fitness)(stats));
        if self.favored && fitness > 0 { fitness + FAVOR } else { fitness }
    }

    fn fits(&self, stats: &TableStats, now: Instant) -> bool {
        !self.banned
            && self.paused_until.is_none_or(|until| now >= until)
            && self.algorithm.limits.check(stats).is_ok()
    }
}

/// How long to leave alone what failed so often before.
pub(super) fn pause(failures: u32) -> Duration {
    FIRST_PAUSE * 2_u32.pow(failures.min(MOST_DOUBLINGS))
}

fn differs<A: Addr>(
    current: Option<&'static Algorithm<A>>,
    other: &'static Algorithm<A>,
) -> Option<&'static Algorithm<A>> {
    (current.map(|c| c.name) != Some(other.name)).then_some(other)
}
