//! `fib verify`: the lookups of all tables compared with their routes, a little at a time. Where drivers
//! forward, the lookups of their programs are compared as well.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_io::xdp::forward::{ProgramLookup, QueryProgram};
use fingerpost_lpm::{Addr, Lookup};
use fingerpost_route::TableId;
use fingerpost_route::fib::{AuditCounts, Auditor, Difference, Fib};
use fingerpost_route::rib::Rib;

use super::{Daemon, View};
use crate::api::model::{self, Verification};
use crate::api::session::Session;

/// Longest piece of work: routes and packets continue between two of them.
const PIECE: Duration = Duration::from_millis(1);
/// Longest wait until all that is known is visible: what is not by then counts as skipped. And the longest wait for a
/// program of the XDP datapath; then the thread of the daemon loads it, in a turn of tens of ms.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Differences that are listed.
const LISTED: usize = 100;

/// A comparison in progress.
pub(in crate::daemon) struct Verifying {
    tables: Vec<TableId>,
    /// Which table, and which of [`PARTS`] of it.
    at: (usize, usize),
    v4: Auditor<u32>,
    v6: Auditor<u128>,
    /// Lookup of the XDP datapath, and the generation that it is of.
    driver: Option<(u64, Arc<ProgramLookup>)>,
    /// Start of the wait for that lookup.
    driver_awaited: Option<Instant>,
    found: Verification,
    started: Instant,
    /// All that was known at the start is not visible yet.
    waits: bool,
}

/// A family of a table, and whose lookup is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    LookupV4,
    LookupV6,
    DriverV4,
    DriverV6,
}

/// Parts in order: the lookups are repaired before those of the programs, which read the same tables.
const PARTS: [Part; 4] = [Part::LookupV4, Part::LookupV6, Part::DriverV4, Part::DriverV6];

impl Daemon {
    /// Begins to compare. For a client that may change things, what is known by now is committed first, as far as that is cheap;
    /// one that may only read causes no commit, and waits for the next one as packets do.
    pub(super) fn open_comparison(&mut self, reads_only: bool) -> Session {
        if !reads_only {
            self.control.flush();
            self.commit(Instant::now());
        }
        let verifying = Verifying {
            tables: self.control.tables(),
            at: (0, 0),
            v4: Auditor::default(),
            v6: Auditor::default(),
            driver: None,
            driver_awaited: None,
            found: Verification::default(),
            started: Instant::now(),
            waits: true,
        };
        self.requests.verifications.open(verifying)
    }

    /// Compares the next piece; the result after the last piece. A table that answered wrongly is mended by then.
    pub(super) fn compare(&mut self, number: u64) -> Option<Verification> {
        let verifying = self.requests.verifications.take(number);
        let mut verifying = verifying.expect("its requester holds the session until the result");
        if verifying.waits {
            let waited = verifying.started.elapsed();
            verifying.waits = !self.control.is_visible() && waited < LONGEST_WAIT;
            if verifying.waits {
                self.requests.verifications.put(number, verifying);
                return None;
            }
        }
        let table = verifying.tables[verifying.at.0];
        let part = PARTS[verifying.at.1];
        if self.view().look_at_driver(&mut verifying, part) {
            self.requests.verifications.put(number, verifying);
            return None;
        }
        let Verifying { tables, at, v4, v6, driver, found, started, .. } = &mut verifying;
        let known = self.control.ribs(table).zip(self.control.fibs(table));
        let ((rib_v4, rib_v6), (fib_v4, fib_v6)) = known.expect("tables stay");
        let asked = driver.as_ref().map(|(_, asked)| &**asked);
        let ended = match (part, asked) {
            (Part::LookupV4, _) => piece(table.number(), rib_v4, fib_v4, None, v4, found),
            (Part::LookupV6, _) => piece(table.number(), rib_v6, fib_v6, None, v6, found),
            (Part::DriverV4, Some(asked)) => {
                piece(table.number(), rib_v4, fib_v4, Some(asked), v4, found)
            }
            (Part::DriverV6, Some(asked)) => {
                piece(table.number(), rib_v6, fib_v6, Some(asked), v6, found)
            }
            // No driver forwards by this table.
            (_, None) => true,
        };
        if ended
            && part == Part::LookupV6
            && self.control.adopt(table, v4, v6, self.interfaces.asked())
        {
            self.commit_whole();
        }
        if ended && matches!(part, Part::LookupV6 | Part::DriverV6) {
            (*v4, *v6) = (Auditor::default(), Auditor::default());
        }
        if ended {
            *driver = None;
            *at = if at.1 + 1 < PARTS.len() { (at.0, at.1 + 1) } else { (at.0 + 1, 0) };
        }
        if at.0 < tables.len() {
            self.requests.verifications.put(number, verifying);
            return None;
        }
        found.seconds = started.elapsed().as_secs_f64();
        Some(std::mem::take(found))
    }
}

impl View<'_> {
    /// Takes a program for lookups, if the part needs one and there is none for the present tables; whether it is being
    /// loaded.
    fn look_at_driver(&self, verifying: &mut Verifying, part: Part) -> bool {
        let fib = u16::try_from(verifying.at.0).unwrap_or(u16::MAX);
        let family = match part {
            Part::LookupV4 | Part::LookupV6 => return false,
            _ if verifying
                .driver
                .as_ref()
                .is_some_and(|(at, _)| *at == self.progress.generation()) =>
            {
                return false;
            }
            Part::DriverV4 => 0,
            Part::DriverV6 => 1,
        };
        let awaited = *verifying.driver_awaited.get_or_insert_with(Instant::now);
        let program = self.interfaces.forwarder().and_then(|forwarder| {
            match forwarder.query_program(fib, family) {
                QueryProgram::Loaded(program) => Some(Ok(program)),
                QueryProgram::None => None,
                // Tables that are built anew all the time outdate each program before it is there.
                QueryProgram::Loading(_) if awaited.elapsed() >= LONGEST_WAIT => {
                    forwarder.query_program_now(fib, family).map(Ok)
                }
                QueryProgram::Loading(_) => Some(Err(())),
            }
        });
        let Ok(program) = program.transpose() else { return true };
        verifying.driver_awaited = None;
        verifying.driver = program.map(|program| (self.progress.generation(), program));
        false
    }
}

/// Whether that was the last piece of this half.
fn piece<A: Addr>(
    table: u32,
    rib: &Rib<A>,
    fib: &Fib<A>,
    driver: Option<&ProgramLookup>,
    auditor: &mut Auditor<A>,
    found: &mut Verification,
) -> bool {
    if !fib.audit_with(auditor, driver.map(|asked| asked as &dyn Lookup<A>), rib, PIECE) {
        return false;
    }
    let AuditCounts { checked, skipped, mismatches, .. } = auditor.counts();
    found.addresses += checked;
    found.skipped += skipped;
    found.mismatches += mismatches;
    let room = LISTED - found.differences.len().min(LISTED);
    found.differences.extend(
        auditor.known().take(room).map(|difference| row(table, driver.is_some(), difference)),
    );
    true
}

fn row(table: u32, in_xdp: bool, difference: &Difference) -> model::Difference {
    let Difference { addr, prefix, rib, fib, .. } = difference;
    model::Difference {
        table,
        in_xdp,
        addr: addr.to_string(),
        prefix: prefix.map(|prefix| prefix.to_string()),
        rib: rib.0,
        fib: fib.0,
    }
}
