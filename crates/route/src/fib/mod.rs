//! The FIB of one family: the one writer that keeps a lookup table in step with the RIB.
//!
//! It applies changes in place where the algorithm can, builds anew where it cannot, and goes to the
//! next algorithm where even that fails; what answered before answers on until its successor is ready.
//! Every decision is a line with its numbers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_lpm::{
    Addr, Algorithm, Change, Grace, HugePages, Lookup, NextHopId, Region, Routes, Step, Table,
    UpdateError,
};

pub mod choose;
pub mod publish;
pub(crate) mod sync;

pub use choose::Chooser;
pub use publish::{Publisher, Reader, Subscribe};

/// Changes that are a larger share of the table than this are cheaper to build than to apply.
const REBUILD_SHARE: usize = 4;

/// One family's lookup table and its writer.
pub struct Fib<A: Addr> {
    chooser: Chooser<A>,
    current: Option<Current<A>>,
    lookup: Arc<dyn Lookup<A>>,
    /// The lookup does not show all of the RIB: build at the next chance.
    stale: bool,
    decisions: Vec<String>,
    counts: FibCounts,
}

struct Current<A: Addr> {
    algorithm: &'static Algorithm<A>,
    table: Box<dyn Table<A>>,
}

/// What the writer did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FibCounts {
    /// Changes applied in place.
    pub applied: u64,
    /// Tables built.
    pub builds: u64,
    /// Builds and updates that failed.
    pub failures: u64,
    /// How long the latest build took.
    pub last_build: Duration,
}

impl<A: Addr> Fib<A> {
    /// Empty, choosing among `rows`.
    pub fn new(rows: impl IntoIterator<Item = &'static Algorithm<A>>) -> Self {
        Self {
            chooser: Chooser::new(rows),
            current: None,
            lookup: Arc::new(Nothing),
            stale: true,
            decisions: Vec::new(),
            counts: FibCounts::default(),
        }
    }

    /// Uses this algorithm and no other, or (`None`) chooses again.
    ///
    /// # Errors
    /// The names there are, when this is none of them.
    pub fn pin(&mut self, name: Option<&str>) -> Result<(), Vec<&'static str>> {
        if self.chooser.pin(name) { Ok(()) } else { Err(self.chooser.names().collect()) }
    }

    /// Brings the table in step with `routes`, which already hold `changes`. Returns whether readers
    /// must be given a new lookup; until they have it, the old one answers as before.
    ///
    /// # Errors
    /// When no algorithm could hold the routes: the old table stays, and the next call tries again.
    pub fn apply(
        &mut self,
        changes: &[Change<A>],
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
        now: Instant,
    ) -> Result<bool, UpdateError> {
        let before = self.lookup.clone();
        self.bring(changes, routes, grace, now)?;
        Ok(!Arc::ptr_eq(&before, &self.lookup))
    }

    fn bring(
        &mut self,
        changes: &[Change<A>],
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
        now: Instant,
    ) -> Result<(), UpdateError> {
        let current = self.current.as_ref().map(|c| c.algorithm);
        let better = self.chooser.choose(current, changes.len(), &mut || routes.stats(), now);
        if let Some(algorithm) = better
            && self.build(algorithm, routes, now).is_ok()
        {
            return Ok(());
        }
        if changes.is_empty() && !self.stale {
            return Ok(());
        }
        let mut last = UpdateError::Rebuild;
        if let Some(current) = &mut self.current {
            let algorithm = current.algorithm;
            let rebuild = self.stale
                || changes.len() > 64 && changes.len() > routes.stats().prefixes / REBUILD_SHARE;
            let result = if rebuild {
                Err(UpdateError::Rebuild)
            } else {
                current.table.apply(changes, routes, grace)
            };
            match result {
                Ok(()) => {
                    self.counts.applied += changes.len() as u64;
                    self.lookup = current.table.publish();
                    return Ok(());
                }
                Err(UpdateError::Rebuild) => match self.build(algorithm, routes, now) {
                    Ok(()) => return Ok(()),
                    Err(error) => last = error,
                },
                Err(error) => {
                    self.failed(algorithm, &error, now);
                    last = error;
                }
            }
        }
        // The present one cannot go on: take the best that can.
        self.stale = true;
        while let Some(algorithm) = self.chooser.choose(None, 0, &mut || routes.stats(), now) {
            match self.build(algorithm, routes, now) {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        self.decisions.push(format!("fib v{}: no algorithm can hold the table: {last}", A::FAMILY));
        Err(last)
    }

    fn build(
        &mut self,
        algorithm: &'static Algorithm<A>,
        routes: &dyn Routes<A>,
        now: Instant,
    ) -> Result<(), UpdateError> {
        let start = Instant::now();
        let mut table = algorithm
            .build(routes, &mut HugePages::new())
            .inspect_err(|error| self.failed(algorithm, error, now))?;
        self.lookup = table.publish();
        let took = start.elapsed();
        self.chooser.built(algorithm.name);
        let was = self.current.replace(Current { algorithm, table }).map(|c| c.algorithm.name);
        if was != Some(algorithm.name) {
            let stats = routes.stats();
            self.decisions.push(format!(
                "fib v{}: {} -> {}, fitness {}, {} prefixes, built in {:.1} ms",
                A::FAMILY,
                was.unwrap_or("nothing"),
                algorithm.name,
                (algorithm.fitness)(&stats),
                stats.prefixes,
                took.as_secs_f64() * 1e3,
            ));
        }
        self.counts.builds += 1;
        self.counts.last_build = took;
        self.stale = false;
        Ok(())
    }

    fn failed(&mut self, algorithm: &'static Algorithm<A>, error: &UpdateError, now: Instant) {
        self.counts.failures += 1;
        let (name, family) = (algorithm.name, A::FAMILY);
        match error {
            UpdateError::Limit { .. } => {
                self.chooser.ban(name);
                self.decisions.push(format!("fib v{family}: {name} given up: {error}"));
            }
            _ => {
                self.chooser.pause(name, now);
                self.decisions.push(format!("fib v{family}: {name} paused: {error}"));
            }
        }
    }

    /// What readers should use now.
    pub fn lookup(&self) -> &Arc<dyn Lookup<A>> {
        &self.lookup
    }

    /// Name of the algorithm in use; `none` before the first build.
    pub fn algorithm(&self) -> &'static str {
        self.current.as_ref().map_or("none", |c| c.algorithm.name)
    }

    /// What was done so far.
    pub fn counts(&self) -> FibCounts {
        self.counts
    }

    /// Decisions since the last call, a line each.
    pub fn take_decisions(&mut self) -> Vec<String> {
        std::mem::take(&mut self.decisions)
    }
}

/// The answer before there is a table: no route.
struct Nothing;

impl<A: Addr> Lookup<A> for Nothing {
    fn lookup(&self, _: A) -> NextHopId {
        NextHopId::NONE
    }
    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        out[..addrs.len()].fill(NextHopId::NONE);
    }
    fn explain(&self, _: A, _: &mut dyn FnMut(&Step)) -> NextHopId {
        NextHopId::NONE
    }
    fn stats(&self, _: &mut dyn FnMut(&'static str, u64)) {}
    fn regions(&self) -> &[Region] {
        &[]
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use fingerpost_lpm::{Limits, Memory, NoReaders, Origin, Prefix, RouteStore, TableStats};

    /// Answers by the store's own search, and fails where told: limit at 4 prefixes, or no memory.
    fn toy<const MAX: u64>(
        routes: &dyn Routes<u32>,
        memory: &mut dyn Memory,
    ) -> Result<Box<dyn Table<u32>>, UpdateError> {
        let got = routes.stats().prefixes as u64;
        if got > MAX {
            return Err(UpdateError::Limit { what: "toy", max: MAX, got });
        }
        memory.region("toy", 64)?;
        Ok(Box::new(Toy))
    }

    struct Toy;
    impl Table<u32> for Toy {
        fn apply(
            &mut self,
            _: &[Change<u32>],
            _: &dyn Routes<u32>,
            _: &mut dyn Grace,
        ) -> Result<(), UpdateError> {
            Err(UpdateError::Rebuild)
        }
        fn publish(&mut self) -> Arc<dyn Lookup<u32>> {
            Arc::new(Nothing)
        }
    }

    const LIMITS: Limits = Limits { next_hop: 99, prefix_len: 32, note: "" };
    static SMALL: Algorithm<u32> = Algorithm {
        name: "small",
        summary: "",
        source: "",
        origin: Origin::Own,
        limits: LIMITS,
        fitness: |stats: &TableStats| if stats.prefixes < 9 { 200 } else { 100 },
        make: toy::<3>,
        open: None,
    };
    static LARGE: Algorithm<u32> =
        Algorithm { name: "large", fitness: |_| 150, make: toy::<1000>, ..SMALL_LIKE };
    const SMALL_LIKE: Algorithm<u32> = Algorithm {
        name: "",
        summary: "",
        source: "",
        origin: Origin::Own,
        limits: LIMITS,
        fitness: |_| 0,
        make: toy::<0>,
        open: None,
    };

    fn grow(fib: &mut Fib<u32>, store: &mut RouteStore<u32>, n: u32) -> Result<bool, UpdateError> {
        let prefix = Prefix::host(n);
        store.insert(prefix, NextHopId(n));
        let change = Change { prefix, old: NextHopId::NONE, new: NextHopId(n) };
        fib.apply(&[change], store, &mut NoReaders, Instant::now())
    }

    #[test]
    fn a_limit_moves_the_table_to_the_next_algorithm() {
        let mut fib = Fib::new([&SMALL, &LARGE]);
        let mut store = RouteStore::new();
        for n in 1..=3 {
            assert_eq!(grow(&mut fib, &mut store, n), Ok(true));
            assert_eq!(fib.algorithm(), "small");
        }
        assert_eq!(grow(&mut fib, &mut store, 4), Ok(true));
        assert_eq!(fib.algorithm(), "large");
        let said = fib.take_decisions().join("\n");
        assert!(said.contains("small given up: toy limit exceeded: need 4, at most 3"), "{said}");
        assert!(said.contains("small -> large, fitness 150, 4 prefixes"), "{said}");
    }

    #[test]
    fn a_table_that_nothing_holds_is_an_error_and_the_old_answer_stays() {
        let mut fib = Fib::new([&SMALL]);
        let mut store = RouteStore::new();
        for n in 1..=3 {
            grow(&mut fib, &mut store, n).unwrap();
        }
        let before = fib.lookup().clone();
        assert!(matches!(grow(&mut fib, &mut store, 4), Err(UpdateError::Limit { .. })));
        assert!(Arc::ptr_eq(&before, fib.lookup()));
        assert_eq!(fib.pin(Some("nonsense")), Err(vec!["small"]));
        store.remove(Prefix::host(4));
        fib.pin(Some("small")).unwrap();
        assert_eq!(fib.apply(&[], &store, &mut NoReaders, Instant::now()), Ok(true));
    }

    #[test]
    fn a_pin_wins_over_fitness_and_is_given_up_only_when_it_cannot_hold_the_table() {
        let mut fib = Fib::new([&SMALL, &LARGE]);
        fib.pin(Some("large")).unwrap();
        let mut store = RouteStore::new();
        grow(&mut fib, &mut store, 1).unwrap();
        assert_eq!(fib.algorithm(), "large");
        fib.pin(Some("small")).unwrap();
        grow(&mut fib, &mut store, 2).unwrap();
        assert_eq!(fib.algorithm(), "small");
        grow(&mut fib, &mut store, 3).unwrap();
        grow(&mut fib, &mut store, 4).unwrap();
        assert_eq!(fib.algorithm(), "large");
    }
}
