//! Lookups on one core while another one changes the table.

use fingerpost_lpm::testing::{Addresses, Stream};
use fingerpost_lpm::{Algorithm, LpmReader, NextHopId, UpdateError};

use super::changes::Changes;
use super::writer::Writer;
use crate::document::Run;
use crate::family::Family;
use crate::measure::{Measured, Plan, sample_beside};
use crate::table::Table;

const KEYS: usize = 1 << 18;
const BATCH: usize = 64;

/// Batches of lookups, each by a pin of its own, as a worker does it.
struct Lookups<'a, A: Family> {
    reader: LpmReader<A>,
    keys: &'a [A],
    at: usize,
    sum: u64,
}

impl<A: Family> Measured for Lookups<'_, A> {
    fn work(&mut self) -> u64 {
        let mut out = [NextHopId::NONE; BATCH];
        for _ in 0..64 {
            let keys = &self.keys[self.at..self.at + BATCH];
            self.at = (self.at + BATCH) % (self.keys.len() / BATCH * BATCH);
            self.reader.lookup_batch(keys, &mut out);
            self.sum += out.iter().map(|hop| u64::from(hop.0)).sum::<u64>();
        }
        std::hint::black_box(self.sum);
        64 * BATCH as u64
    }
}

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
    let prefixes: Vec<_> = table.routes.iter().map(|route| route.0).collect();
    let keys = Addresses::new(Stream::Announced, &prefixes, 5).take(KEYS);
    let mut shared = Writer::new(row, table, changes)?;
    let mut private = Writer::new(row, table, changes)?;
    let mut lookups = Lookups { reader: shared.table.reader(), keys: &keys, at: 0, sum: 0 };
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
