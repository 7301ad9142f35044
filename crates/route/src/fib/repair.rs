//! What follows from a difference: the table is built again, and an algorithm that is wrong even then is banned.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_lpm::{Addr, Lookup, Routes};

use super::audit::{self, Auditor, Verified};
use super::state::Event;
use super::{Fib, Severity};

/// Changes that wait, at most, while addresses are compared: each wrong answer is looked for in all of them.
const MOST_WAITING: usize = 1024;

/// Auditor of a FIB, and the latest repair that it ordered.
#[derive(Default)]
pub(super) struct Repair<A: Addr> {
    auditor: Auditor<A>,
    /// Builds and applied changes as of the table that the latest repair built, until the auditor
    /// found it right.
    rebuilt_at: Option<(u64, u64)>,
}

impl<A: Addr> Repair<A> {
    pub(super) fn auditor(&self) -> &Auditor<A> {
        &self.auditor
    }
}

impl<A: Addr> Fib<A> {
    /// Has the table built again at the next commit, as it is wrong. If it was built for that very
    /// reason and nothing changed since, the algorithm itself is at fault and is banned.
    pub fn distrust(&mut self, why: &str) {
        let Some(algorithm) = self.served.algorithm() else { return };
        let name = algorithm.name;
        self.counts.distrusted += 1;
        if self.repair.rebuilt_at == Some((self.counts.builds, self.counts.applied)) {
            self.chooser.ban(name);
            self.decide(Severity::Alarm, &format!("{name} given up: freshly built, {why}"));
        } else {
            self.decide(Severity::Alarm, &format!("{name} is built again: {why}"));
        }
        self.repair.rebuilt_at = Some((self.counts.builds + 1, self.counts.applied));
        self.unlist(Event::Invalidated);
    }

    /// One turn of the auditor; `true` when the next turn is another FIB's. A difference is logged and
    /// counted, and orders a rebuild; once that is visible, the wrong addresses are compared again.
    /// `kernel_reader` returns the lookup of the kernel reader, if there is one that reads this table.
    pub fn audit(
        &mut self,
        routes: &dyn Routes<A>,
        kernel_reader: &dyn Fn() -> Option<Arc<dyn Lookup<A>>>,
        budget: Duration,
        clock: &mut dyn FnMut() -> Instant,
    ) -> bool {
        if !self.state.is_listed() || self.backlog.listed() > MOST_WAITING {
            self.repair.auditor.leave_out();
            return true;
        }
        let kernel_reader = kernel_reader();
        let kernel_reader = kernel_reader.as_deref();
        if !self.recheck(routes, kernel_reader) {
            return true;
        }
        let lookup = &**self.served.lookup();
        let auditor = &mut self.repair.auditor;
        let turn = auditor.step(routes, lookup, kernel_reader, &self.backlog, budget, clock);
        if turn.differs {
            self.distrust_known();
        }
        turn.ended || turn.differs
    }

    /// Compares the addresses again that were wrong before the latest repair; whether none is wrong now.
    fn recheck(&mut self, routes: &dyn Routes<A>, kernel_reader: Option<&dyn Lookup<A>>) -> bool {
        let auditor = &mut self.repair.auditor;
        let known = auditor.known().count();
        if known == 0 {
            return true;
        }
        let lookup = &**self.served.lookup();
        let still = auditor.recheck(routes, lookup, kernel_reader, &self.backlog);
        if let Some(first) = still.first() {
            self.distrust(&format!("still wrong, {first}"));
            return false;
        }
        if auditor.known().next().is_some() {
            // Changes of the others wait.
            return true;
        }
        self.repair.rebuilt_at = None;
        self.decide(
            Severity::Choice,
            &format!("{known} addresses that were wrong are right again"),
        );
        true
    }

    fn distrust_known(&mut self) {
        let found = self.repair.auditor.known().count();
        let first = *self.repair.auditor.known().next().expect("one was just found");
        self.distrust(&format!("{found} addresses are wrong, {first}"));
    }

    /// Compares the whole table with `routes`, and keeps the first `limit` differences. Changes that
    /// are not applied yet count as differences.
    pub fn verify(&self, routes: &dyn Routes<A>, limit: usize) -> Verified {
        audit::verify(routes, &**self.served.lookup(), limit, &mut Instant::now)
    }

    /// Runs another auditor for as long as `budget`: its differences are repaired only when they are
    /// handed to [`Fib::adopt`]. `kernel_reader` replaces the published lookup: the lookup of the kernel
    /// reader, of this very table. `true` at the end of its pass. It waits while a table is built that has changes which
    /// the present one lacks, and while many changes wait.
    pub fn audit_with(
        &self,
        auditor: &mut Auditor<A>,
        kernel_reader: Option<&dyn Lookup<A>>,
        routes: &dyn Routes<A>,
        budget: Duration,
    ) -> bool {
        let lacks = self.served.beside.is_active() && !self.state.is_listed();
        if lacks || self.backlog.listed() > MOST_WAITING {
            return false;
        }
        let lookup = kernel_reader.unwrap_or(&**self.served.lookup());
        auditor.step(routes, lookup, None, &self.backlog, budget, &mut Instant::now).ended
    }

    /// Takes over the differences of another auditor that still stand: they are counted and logged, and
    /// the next commit builds the table again. Whether there were any.
    pub fn adopt(
        &mut self,
        other: &Auditor<A>,
        routes: &dyn Routes<A>,
        kernel_reader: &dyn Fn() -> Option<Arc<dyn Lookup<A>>>,
    ) -> bool {
        // A table that lacks unlisted changes is built in any case.
        if !self.state.is_listed() || !self.recheck(routes, kernel_reader().as_deref()) {
            return false;
        }
        let lookup = &**self.served.lookup();
        let news = self.repair.auditor.adopt(other, routes, lookup, &self.backlog);
        if news > 0 {
            self.distrust_known();
        }
        news > 0
    }

    /// Auditor of this FIB.
    pub fn auditor(&self) -> &Auditor<A> {
        &self.repair.auditor
    }
}
