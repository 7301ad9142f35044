//! `bench fib`: the control side as a whole, from events to what readers see.
//!
//! Everything goes through [`fingerpost_route::Control`] as the daemon uses it: a table whose next hops
//! are found by interior routes, some links, a neighbor for each next hop ([`world`]). What comes out is
//! followed to the link address of a packet and compared with the oracle; a number whose answers were
//! not all right is marked.
//!
//! `load` is the full table from its first event until a reader sees it, on one core; `withdraw-all` the
//! return; `bytes-per-route` what RIB, FIB and next hops hold then. `stream-replay` is a recorded
//! stream through RIB and FIB. `change-to-visible` is one route until a reader on the other core sees
//! it, `nexthop-loss` a next hop with 400,000 routes behind it, `lookups-during-updates` what is left of
//! the rate of lookups while the other core replays. All times are of the wall.
//!
//! Other programs do the same jobs where they have them ([`outside`]).

mod check;
mod load;
mod outside;
mod replay;
mod visible;
mod world;

use anyhow::{Result, bail};

use crate::document::{BenchDocument, Kind, Run, Unit};
use crate::measure::Plan;
use crate::table::Tables;
use crate::update::changes::Recorded;
use fingerpost_command::progress::Progress;

pub use outside::{Peer, find, peers};

/// What to measure.
pub struct FibOptions {
    /// Route tables.
    pub tables: Tables,
    /// A recorded stream; random routes withdrawn and announced where there is none.
    pub recorded: Option<Recorded>,
    /// Other programs.
    pub peers: Vec<&'static Peer>,
    /// Measuring time of a run that is a rate.
    pub seconds: f64,
    /// Samples of each run.
    pub samples: usize,
    /// Seed of all that is drawn.
    pub seed: u64,
}

/// Measures.
///
/// # Errors
/// When there is no table.
pub fn fib(options: &FibOptions, progress: &mut Progress) -> Result<BenchDocument> {
    if options.tables.v4.is_none() && options.tables.v6.is_none() {
        bail!("no table");
    }
    let plan = Plan::new(options.seconds, options.samples);
    let mut runs = load::measure(options, progress);
    let updates = replay::Updates::of(options);
    progress.stage("stream-replay");
    runs.push(replay::measure(options, &updates, plan));
    progress.stage("change-to-visible");
    if let Some(table) = &options.tables.v4 {
        runs.push(visible::single(table, options, plan));
    }
    if let Some(table) = &options.tables.v6 {
        runs.push(visible::single(table, options, plan));
    }
    runs.extend(match (&options.tables.v4, &options.tables.v6) {
        (Some(table), _) => visible::loss(table, options, progress),
        (None, Some(table)) => visible::loss(table, options, progress),
        (None, None) => Vec::new(),
    });
    runs.push(replay::beside(options, &updates, plan, progress));
    for peer in &options.peers {
        progress.stage(peer.name);
        runs.extend((peer.measure)(options, &updates, progress));
    }
    progress.done();
    options.tables.document(runs)
}

/// A run of ours, without samples yet.
fn blank(name: &str, unit: Unit) -> Run {
    Run::new(name, Kind::Ours, name, unit)
}

#[cfg(test)]
mod tests;
