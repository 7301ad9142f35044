//! Which algorithm serves a table, when to switch, and when to give one up.
//!
//! After FreeBSD 13's framework (in_fib_algo): every algorithm claims a fitness for a table's shape; a
//! clearly better claim wins at the next look; one that fails is left alone for a while, one whose
//! limits the table exceeds is banned for it. A choice of the user is never overridden.

use std::time::{Duration, Instant};

use fingerpost_lpm::{Addr, Algorithm, TableStats};

/// A switch must be worth a rebuild: FreeBSD's 5 %, as a fraction of the present claim.
const SWITCH_MARGIN: u32 = 20;
/// Look again after so many changes (FreeBSD's 100) ...
const LOOK_AFTER_CHANGES: u64 = 100;
/// ... or so much time, whichever comes first.
const LOOK_AFTER: Duration = Duration::from_secs(30);
/// Pause of an algorithm after a failed build; doubles with each further failure ...
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// ... up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

struct Row<A: Addr> {
    algorithm: &'static Algorithm<A>,
    banned: bool,
    paused_until: Option<Instant>,
    pause: Duration,
}

/// The candidates of one table, and what befell them.
pub struct Chooser<A: Addr> {
    rows: Vec<Row<A>>,
    pinned: Option<&'static str>,
    changes: u64,
    looked: Option<Instant>,
}

impl<A: Addr> Chooser<A> {
    /// Chooses among `rows`.
    pub fn new(rows: impl IntoIterator<Item = &'static Algorithm<A>>) -> Self {
        let rows = rows
            .into_iter()
            .map(|algorithm| Row {
                algorithm,
                banned: false,
                paused_until: None,
                pause: FIRST_PAUSE,
            })
            .collect();
        Self { rows, pinned: None, changes: 0, looked: None }
    }

    /// Uses this algorithm and no other, or chooses again. A pin lifts bans: it is a fresh decision.
    /// `false` when there is no such algorithm; nothing changed then.
    pub fn pin(&mut self, name: Option<&str>) -> bool {
        let pinned = match name {
            None => None,
            Some(name) => match self.rows.iter().find(|r| r.algorithm.name == name) {
                Some(row) => Some(row.algorithm.name),
                None => return false,
            },
        };
        self.pinned = pinned;
        self.looked = None;
        for row in &mut self.rows {
            row.banned = false;
            row.paused_until = None;
        }
        true
    }

    /// The names that can be pinned.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.rows.iter().map(|r| r.algorithm.name)
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
            || self.changes >= LOOK_AFTER_CHANGES
            || self.looked.is_none_or(|t| now.duration_since(t) >= LOOK_AFTER);
        if !due {
            return None;
        }
        self.changes = 0;
        self.looked = Some(now);
        let stats = stats();
        let fits = |row: &&Row<A>| {
            !row.banned
                && row.paused_until.is_none_or(|until| now >= until)
                && row.algorithm.limits.check(&stats).is_ok()
        };
        if let Some(name) = self.pinned
            && let Some(row) = self.rows.iter().filter(fits).find(|r| r.algorithm.name == name)
        {
            return differs(current, row.algorithm);
        }
        // Without a pin, or when the pinned one cannot hold the table: the old answer must not stay.
        let claim = |row: &Row<A>| u32::from((row.algorithm.fitness)(&stats));
        let best = self
            .rows
            .iter()
            .filter(fits)
            .filter(|row| claim(row) > 0)
            .max_by_key(|row| claim(row))?;
        let Some(row) = current.and_then(|c| self.rows.iter().find(|r| r.algorithm.name == c.name))
        else {
            return Some(best.algorithm);
        };
        let present = claim(row);
        (claim(best) > present + present / SWITCH_MARGIN)
            .then(|| differs(current, best.algorithm))
            .flatten()
    }

    /// The table exceeds this algorithm's limits: leave it alone for good.
    pub fn ban(&mut self, name: &str) {
        for row in self.rows.iter_mut().filter(|r| r.algorithm.name == name) {
            row.banned = true;
        }
    }

    /// A build failed: leave the algorithm alone for a while.
    pub fn pause(&mut self, name: &str, now: Instant) {
        for row in self.rows.iter_mut().filter(|r| r.algorithm.name == name) {
            row.paused_until = Some(now + row.pause);
            row.pause = (row.pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A build succeeded.
    pub fn built(&mut self, name: &str) {
        for row in self.rows.iter_mut().filter(|r| r.algorithm.name == name) {
            row.pause = FIRST_PAUSE;
            row.paused_until = None;
        }
    }
}

fn differs<A: Addr>(
    current: Option<&'static Algorithm<A>>,
    other: &'static Algorithm<A>,
) -> Option<&'static Algorithm<A>> {
    (current.map(|c| c.name) != Some(other.name)).then_some(other)
}
