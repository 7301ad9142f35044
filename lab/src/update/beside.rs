//! Lookups on one core while another one changes the table.

use fingerpost_lpm::{Algorithm, UpdateError};

use super::changes::Changes;
use super::writer::Writer;
use crate::batches::Batches;
use crate::document::Run;
use crate::family::Family;
use crate::measure::{Plan, sample_beside};
use crate::table::Table;

/// Samples of the share that remains while the table itself is changed.
pub(super) fn measure<A: Family>(
    row: &'static Algorithm<A>,
    table: &Table<A>,
    changes: &Changes<A>,
    plan: Plan,
    run: &mut Run,
) {
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        run.note = "needs two cores".to_owned();
        return;
    }
    match shares(row, table, changes, plan) {
        Ok(shares) => {
            run.set_samples(shares);
            run.threads = 2;
            run.note = "of the rate while the other core changes a table of its own".to_owned();
        }
        Err(error) => run.note = error.to_string(),
    }
}

fn shares<A: Family>(
    row: &'static Algorithm<A>,
    table: &Table<A>,
    changes: &Changes<A>,
    plan: Plan,
) -> Result<Vec<f64>, UpdateError> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let mut shared = Writer::new(row, table, changes)?;
    let mut private = Writer::new(row, table, changes)?;
    let mut lookups = Batches::new(table, shared.table.reader());
    let mut shares = Vec::new();
    for round in 0..=plan.samples {
        let busy = sample_beside(&mut lookups, plan, &mut || shared.step())?;
        let alone = sample_beside(&mut lookups, plan, &mut || private.step())?;
        if round > 0 {
            shares.push(alone / busy);
        }
    }
    Ok(shares)
}
