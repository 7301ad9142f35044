//! Questions about the RIB: what people ask, and what the FIB's answers are checked by.
//!
//! Source: FreeBSD's `fib4_lookup_rt` and `fib6_lookup_rt` (sys/netinet/in_fib.c), which search the RIB
//! itself and give the route as well as its next hop. Differs: any table, all candidates of the prefix.

use std::net::IpAddr;

use fingerpost_lpm::Routes;

use super::Control;
use crate::event::AnyPrefix;
use crate::fib::Fib;
use crate::rib::{Candidate, Rib};

/// A prefix of the RIB and who leads to it, the best first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteFound {
    /// The prefix.
    pub prefix: AnyPrefix,
    /// Its candidates; the first one forwards.
    pub candidates: Vec<Candidate>,
}

impl Control {
    /// The route that packets to an address take by the RIB: the longest prefix of a table that holds it.
    /// `None` where there is no such table.
    pub fn lookup_route(&self, table: u32, addr: IpAddr) -> Option<RouteFound> {
        let table = self.tables.get(table)?;
        let prefix = match addr {
            IpAddr::V4(a) => AnyPrefix::V4(table.v4.rib.best(a.to_bits())?.0),
            IpAddr::V6(a) => AnyPrefix::V6(table.v6.rib.best(a.to_bits())?.0),
        };
        Some(RouteFound { prefix, candidates: table.of(prefix) })
    }

    /// The prefixes of a table that cover `prefix`, itself included, the shortest first.
    pub fn covering(&self, table: u32, prefix: AnyPrefix) -> Vec<RouteFound> {
        let Some(table) = self.tables.get(table) else { return Vec::new() };
        let of = |prefix| RouteFound { prefix, candidates: table.of(prefix) };
        match prefix {
            AnyPrefix::V4(p) => table.v4.rib.covering(p).map(|p| of(AnyPrefix::V4(p))).collect(),
            AnyPrefix::V6(p) => table.v6.rib.covering(p).map(|p| of(AnyPrefix::V6(p))).collect(),
        }
    }

    /// The candidates of exactly this prefix in a table, the best first.
    pub fn candidates(&self, table: u32, prefix: AnyPrefix) -> Vec<Candidate> {
        self.tables.get(table).map_or(Vec::new(), |table| table.of(prefix))
    }

    /// Numbers of the route tables, the main one first: a place here is a fib.
    pub fn tables(&self) -> Vec<u32> {
        self.tables.iter().map(|table| table.number).collect()
    }

    /// The IPv4 and IPv6 routes of a table, if there is such a table.
    pub fn ribs(&self, table: u32) -> Option<(&Rib<u32>, &Rib<u128>)> {
        self.tables.get(table).map(|table| (&table.v4.rib, &table.v6.rib))
    }

    /// The writers of a table's lookups, for their names and counts.
    pub fn fibs(&self, table: u32) -> Option<(&Fib<u32>, &Fib<u128>)> {
        self.tables.get(table).map(|table| (&table.v4.fib, &table.v6.fib))
    }

    /// IPv4 routes of the main table.
    pub fn rib_v4(&self) -> &Rib<u32> {
        &self.tables.main().v4.rib
    }

    /// IPv6 routes of the main table.
    pub fn rib_v6(&self) -> &Rib<u128> {
        &self.tables.main().v6.rib
    }

    /// The writer of the main table's IPv4 structure, for its name and counts.
    pub fn fib_v4(&self) -> &Fib<u32> {
        &self.tables.main().v4.fib
    }

    /// The writer of the main table's IPv6 structure, for its name and counts.
    pub fn fib_v6(&self) -> &Fib<u128> {
        &self.tables.main().v6.fib
    }
}
