//! Other programs at the same jobs, in a network namespace that goes with the run.
//!
//! Each loads the whole table, some of whose routes stand behind a next hop of their own ([`Jobs`]), and
//! does of the rest what it can. What it answers is compared with the oracle, by the neighbor that an
//! address leads to. A program that is missing, may not, or needs longer than [`LIMIT`] for a job is a
//! run with a note.

mod bird;
mod frr;
mod kernel;

use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use fingerpost_lpm::NextHopId;
use fingerpost_lpm::oracle::Oracle;
use fingerpost_lpm::testing::Rng;

use super::replay::Updates;
use super::{FibOptions, check, visible, world};
use crate::document::{Kind, Run, Unit};
use crate::family::Family;
use crate::named::named;
use crate::table::Table;
use fingerpost_command::progress::Progress;

/// Registry row: another program.
pub struct Peer {
    /// What options and documents call it.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// All its runs; one with a note where it cannot be had.
    pub(super) measure: fn(&FibOptions, &Updates, &mut Progress) -> Vec<Run>,
}

static PEERS: &[Peer] = &[kernel::PEER, bird::PEER, frr::PEER];

/// How long a job may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Addresses that are looked up after a job.
const ASKED: usize = 500;
/// The link that leads to all neighbors.
const LINK: &str = "bench0";

/// All of them.
pub fn peers() -> &'static [Peer] {
    PEERS
}

/// Rows by name, as `--peers` takes them: `all`, `none`, or names with commas.
///
/// # Errors
/// When a name is none; the message lists those that are.
pub fn find(names: &str) -> Result<Vec<&'static Peer>> {
    if names == "none" { Ok(Vec::new()) } else { named("peer", PEERS, |peer| peer.name, names) }
}

/// A run of a peer, without samples yet.
fn blank(peer: &str, job: &str, unit: Unit) -> Run {
    Run::new(peer, Kind::Peer, job, unit)
}

/// The tables as peers get them.
struct Jobs {
    v4: Option<Table<u32>>,
    v6: Option<Table<u128>>,
    /// The next hop with many routes behind it: its family and number. Of that number there is also a
    /// neighbor, and the one after it is where it moves.
    lost: (u8, u32),
    /// How many those are.
    behind: usize,
    /// The last number of a neighbor.
    neighbors: u32,
}

impl Jobs {
    fn new(options: &FibOptions, updates: &Updates) -> Self {
        let (mut v4, mut v6) = (options.tables.v4.clone(), options.tables.v6.clone());
        let hop = updates.hops[0].max(updates.hops[1]) + 1;
        let (family, behind) = match (&mut v4, &mut v6) {
            (Some(table), _) => (4, visible::put_behind(table, hop)),
            (None, Some(table)) => (6, visible::put_behind(table, hop)),
            (None, None) => (4, 0),
        };
        Self { v4, v6, lost: (family, hop), behind, neighbors: hop + 1 }
    }

    fn routes(&self) -> usize {
        self.v4.as_ref().map_or(0, |t| t.routes.len())
            + self.v6.as_ref().map_or(0, |t| t.routes.len())
    }

    /// Some addresses and the neighbors that they must lead to, once `updates` were made.
    fn questions(&self, updates: Option<&Updates>, seed: u64) -> Vec<(IpAddr, IpAddr)> {
        let mut found = Vec::new();
        if let Some(table) = &self.v4 {
            let mut oracle = table.oracle();
            updates.iter().flat_map(|u| &u.v4).for_each(|&(p, hop)| _ = oracle.set(p, hop));
            found.extend(ask(table, &oracle, seed));
        }
        if let Some(table) = &self.v6 {
            let mut oracle = table.oracle();
            updates.iter().flat_map(|u| &u.v6).for_each(|&(p, hop)| _ = oracle.set(p, hop));
            found.extend(ask(table, &oracle, seed));
        }
        found
    }

    /// An address behind the next hop that is lost.
    fn behind_it(&self, seed: u64) -> Option<IpAddr> {
        fn of<A: Family>(table: &Table<A>, hop: u32, seed: u64) -> Option<IpAddr> {
            let oracle = table.oracle();
            let mut rng = Rng::new(seed);
            let mut behind = table.routes.iter().filter(|route| route.1 == hop);
            let addr = behind.find_map(|route| check::own_addr(route.0, &oracle, &mut rng));
            addr.map(A::to_ip)
        }
        match (self.lost.0, &self.v4, &self.v6) {
            (4, Some(table), _) => of(table, self.lost.1, seed),
            (_, _, Some(table)) => of(table, self.lost.1, seed),
            _ => None,
        }
    }
}

fn ask<A: Family>(table: &Table<A>, oracle: &Oracle<A>, seed: u64) -> Vec<(IpAddr, IpAddr)> {
    let mut rng = Rng::new(seed);
    let mut found = Vec::new();
    for _ in 0..ASKED {
        let (prefix, _) = table.routes[rng.below(table.routes.len())];
        let addr = prefix.addr() | rng.addr::<A>() & !A::mask(prefix.len());
        let hop = oracle.lookup(addr);
        // An address without a route is answered in words of the program's own.
        if hop != NextHopId::NONE && !world::is_ours(addr) {
            found.push((addr.to_ip(), world::neighbor_on(A::FAMILY, 0, hop.0)));
        }
    }
    found
}

/// A run that could not be measured, with the reason.
fn failed(mut run: Run, why: impl Display) -> Run {
    run.note = why.to_string();
    run
}
