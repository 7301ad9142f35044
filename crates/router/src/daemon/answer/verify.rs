//! `fib verify`: the lookups of all tables compared with their routes, a little at a time.

use std::time::{Duration, Instant};

use fingerpost_lpm::Addr;
use fingerpost_route::fib::{AuditCounts, Auditor, Difference, Fib};
use fingerpost_route::rib::Rib;

use super::Daemon;
use crate::api::model::{self, Verification};

/// A piece: routes and packets go on in between.
const PIECE: Duration = Duration::from_millis(1);
/// Differences that are told.
const TOLD: usize = 100;

/// A comparison under way.
pub(crate) struct Verifying {
    tables: Vec<u32>,
    /// Which table, and whether its IPv4 half is done.
    at: (usize, bool),
    v4: Auditor<u32>,
    v6: Auditor<u128>,
    found: Verification,
    started: Instant,
}

impl Daemon {
    /// Begins to compare; all that is known by now is visible first.
    pub(crate) fn begin_verify(&mut self) -> Verifying {
        self.commit_now();
        Verifying {
            tables: self.control.tables(),
            at: (0, false),
            v4: Auditor::default(),
            v6: Auditor::default(),
            found: Verification::default(),
            started: Instant::now(),
        }
    }

    /// Compares a piece further; `Ok` with the result when that was the last. What a table answered
    /// wrongly it answers rightly by then.
    pub(crate) fn verify_on(
        &mut self,
        mut under_way: Verifying,
    ) -> Result<Verification, Box<Verifying>> {
        let Verifying { tables, at, v4, v6, found, started } = &mut under_way;
        let known = self.control.ribs(tables[at.0]).zip(self.control.fibs(tables[at.0]));
        let ((rib_v4, rib_v6), (fib_v4, fib_v6)) = known.expect("tables stay");
        let ended = if at.1 {
            piece(tables[at.0], rib_v6, fib_v6, v6, found)
        } else {
            piece(tables[at.0], rib_v4, fib_v4, v4, found)
        };
        if ended && at.1 {
            if self.control.adopt(tables[at.0], v4, v6) {
                self.commit_now();
            }
            (*v4, *v6) = (Auditor::default(), Auditor::default());
        }
        if ended {
            *at = if at.1 { (at.0 + 1, false) } else { (at.0, true) };
        }
        if at.0 < tables.len() {
            return Err(Box::new(under_way));
        }
        found.seconds = started.elapsed().as_secs_f64();
        Ok(std::mem::take(found))
    }
}

/// Whether that was the last piece of this half.
fn piece<A: Addr>(
    table: u32,
    rib: &Rib<A>,
    fib: &Fib<A>,
    auditor: &mut Auditor<A>,
    found: &mut Verification,
) -> bool {
    if !fib.audit_with(auditor, rib, PIECE) {
        return false;
    }
    let AuditCounts { checked, skipped, mismatches, .. } = auditor.counts();
    found.addresses += checked;
    found.skipped += skipped;
    found.mismatches += mismatches;
    let room = TOLD - found.differences.len().min(TOLD);
    found.differences.extend(auditor.known().take(room).map(|difference| told(table, difference)));
    true
}

fn told(table: u32, difference: &Difference) -> model::Difference {
    let Difference { addr, prefix, rib, fib } = difference;
    model::Difference {
        table,
        addr: addr.to_string(),
        prefix: prefix.map(|prefix| prefix.to_string()),
        rib: rib.0,
        fib: fib.0,
    }
}
