//! Elements that check headers, and count and report what is wrong with packets by reason.

use std::sync::Arc;

use crate::element::support::complaint::Complaint;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, Exit, Made, Setup};
use crate::handler::Handler;

/// What is reported, and how.
pub(super) struct Checks {
    /// What stands before a reason, behind the name of the element.
    pub(super) heading: &'static str,
    /// In words, what may be wrong, by number.
    pub(super) reasons: &'static [&'static str],
    /// All wrong packets are reported.
    pub(super) verbose: bool,
    /// There is a handler of counts by reason.
    pub(super) details: bool,
    /// Reason of drops, where the second output is not used.
    pub(super) drop: DropReason,
}

/// Reasons of one class at most.
const MOST: usize = 8;

#[derive(Default)]
struct Counts([Count; MOST]);

/// The element whose packets this checks: it returns the number of the reason why one is wrong.
pub(super) fn checked(
    setup: &mut Setup<'_>,
    checks: Checks,
    check: impl Fn(&mut Batch, usize) -> Option<usize> + Clone + Send + Sync + 'static,
) -> Made {
    let exit = setup.exit(1, checks.drop);
    let heading = format!("{}: {}", setup.name(), checks.heading);
    let complaint = Complaint::new(&heading, checks.verbose);
    let counts = setup.keep::<PerWorker<Counts>>();
    let (all, by_reason, reasons) = (counts.clone(), counts.clone(), checks.reasons);
    let made = Made::new(move |instance| Checked {
        check: check.clone(),
        exit,
        counts: counts.add(instance),
        reasons,
        complaint: if instance.is_dry_run() { Complaint::none() } else { complaint.clone() },
    });
    let made = made.handler(Handler::read("drops", move || {
        all.sum(|counts| counts.0.iter().map(Count::read).sum()).to_string()
    }));
    if !checks.details {
        return made;
    }
    made.handler(Handler::read("drop_details", move || {
        let line = |(at, words): (usize, &&str)| {
            format!("{}\t{words}\n", by_reason.sum(|counts| counts.0[at].read()))
        };
        reasons.iter().enumerate().map(line).collect()
    }))
}

struct Checked<C> {
    check: C,
    exit: Exit,
    counts: Arc<Counts>,
    reasons: &'static [&'static str],
    complaint: Complaint,
}

impl<C: Fn(&mut Batch, usize) -> Option<usize> + Send> Element for Checked<C> {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            if let Some(wrong) = (self.check)(batch, i) {
                self.counts.0[wrong].add(1);
                self.complaint.about(self.reasons[wrong]);
                self.exit.take(batch, i);
            }
        }
    }
}
