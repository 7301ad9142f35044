//! Many route tables: of each one RIB and one FIB a family, the main one first.
//!
//! A table is named by the kernel's number (the main one is 254); the word of the packet path is its
//! index here, a *fib*: 0 for the main table, the others in the order in which they came. A table is
//! never taken away again, as in FreeBSD, so an index in a packet's hand stays right.

use std::time::Instant;

use fingerpost_lpm::{Addr, Algorithm, Grace, Prefix, UpdateError};

use crate::event::{AnyPrefix, MAIN_TABLE};
use crate::fib::{Brought, Fib, FibOptions, Shared};
use crate::forwarding::FibLookup;
use crate::rib::{Candidate, Effect, Rib};

/// Most tables: their indices travel with packets as 16 bits.
const MAX_TABLES: usize = 65_535;

/// Numbers from here on are those of tables of paths: below the last one by the index of the table whose paths they
/// have ([`super::paths`]).
const FIRST_OF_PATHS: u32 = u32::MAX - 0xffff;

/// Whether the number is that of a table of paths.
pub(super) fn is_of_paths(number: u32) -> bool {
    number >= FIRST_OF_PATHS
}

/// The number of the table that has the paths of the one of this index.
pub(super) fn number_of_paths(fib: u16) -> u32 {
    u32::MAX - u32::from(fib)
}

/// One family of one table: its routes and its lookup structure.
pub(super) struct Family<A: Addr> {
    pub(super) rib: Rib<A>,
    pub(super) fib: Fib<A>,
}

impl<A: Addr> Family<A> {
    fn new(rows: &[&'static Algorithm<A>]) -> Self {
        let fib = Fib::new(rows.iter().copied());
        Self { rib: Rib::default(), fib }
    }

    fn note(&mut self, prefix: Prefix<A>, effect: &Effect) {
        if effect.old != effect.new {
            self.fib.note(prefix, effect.old);
        }
    }

    /// Makes changes visible whose time has come.
    pub(super) fn commit(
        &mut self,
        grace: &mut dyn Grace,
        now: Instant,
    ) -> Result<Brought, UpdateError> {
        self.fib.commit(|changes| self.rib.best_of(changes), &self.rib, grace, now)
    }
}

/// One route table.
pub(super) struct Table {
    pub(super) number: u32,
    pub(super) v4: Family<u32>,
    pub(super) v6: Family<u128>,
}

impl Table {
    pub(super) fn insert(&mut self, prefix: AnyPrefix, candidate: Candidate, stamp: u8) -> Effect {
        match prefix {
            AnyPrefix::V4(p) => {
                let effect = self.v4.rib.insert(p, candidate, stamp);
                self.v4.note(p, &effect);
                effect
            }
            AnyPrefix::V6(p) => {
                let effect = self.v6.rib.insert(p, candidate, stamp);
                self.v6.note(p, &effect);
                effect
            }
        }
    }

    pub(super) fn remove(&mut self, prefix: AnyPrefix, source: u16, metric: u32) -> Option<Effect> {
        match prefix {
            AnyPrefix::V4(p) => {
                let effect = self.v4.rib.remove(p, source, metric)?;
                self.v4.note(p, &effect);
                Some(effect)
            }
            AnyPrefix::V6(p) => {
                let effect = self.v6.rib.remove(p, source, metric)?;
                self.v6.note(p, &effect);
                Some(effect)
            }
        }
    }

    /// The candidates of exactly this prefix, the best first.
    pub(super) fn of(&self, prefix: AnyPrefix) -> Vec<Candidate> {
        match prefix {
            AnyPrefix::V4(p) => self.v4.rib.of(p).collect(),
            AnyPrefix::V6(p) => self.v6.rib.of(p).collect(),
        }
    }

    /// The candidate of a source and metric.
    pub(super) fn find(&self, prefix: AnyPrefix, source: u16, metric: u32) -> Option<Candidate> {
        match prefix {
            AnyPrefix::V4(p) => self.v4.rib.find(p, source, metric),
            AnyPrefix::V6(p) => self.v6.rib.find(p, source, metric),
        }
    }

    /// The next commit applies what is pending in the prefix's family at once: who brings an address or
    /// a route of the host itself up goes on in the belief that it works.
    pub(super) fn force(&mut self, prefix: AnyPrefix) {
        match prefix {
            AnyPrefix::V4(_) => self.v4.fib.force(),
            AnyPrefix::V6(_) => self.v6.fib.force(),
        }
    }

    /// The next commit makes everything visible.
    pub(super) fn flush(&mut self) {
        self.v4.fib.force();
        self.v6.fib.force();
    }

    fn share(&mut self, shared: &Shared) {
        self.v4.fib.share(shared.clone());
        self.v6.fib.share(shared.clone());
    }

    pub(super) fn lookup(&self) -> FibLookup {
        FibLookup {
            table: self.number,
            v4: self.v4.fib.lookup().clone(),
            v6: self.v6.fib.lookup().clone(),
        }
    }
}

/// All tables; the main one is always there.
pub(super) struct Tables {
    all: Vec<Table>,
    v4: Vec<&'static Algorithm<u32>>,
    v6: Vec<&'static Algorithm<u128>>,
    options: FibOptions,
    shared: Option<Shared>,
}

impl Tables {
    pub(super) fn new(v4: Vec<&'static Algorithm<u32>>, v6: Vec<&'static Algorithm<u128>>) -> Self {
        let options = FibOptions::default();
        let mut tables = Self { all: Vec::new(), v4, v6, options, shared: None };
        tables.push(MAIN_TABLE);
        tables
    }

    fn push(&mut self, number: u32) {
        let (v4, v6) = (Family::new(&self.v4), Family::new(&self.v6));
        self.all.push(Table { number, v4, v6 });
        self.set_options(self.options);
        // Programs outside forward by best routes and by nothing else.
        if let Some(shared) = self.shared.clone().filter(|_| !is_of_paths(number)) {
            self.all.last_mut().expect("just pushed").share(&shared);
        }
    }

    /// Shares all FIBs, and those to come, with a reader outside.
    pub(super) fn share(&mut self, shared: Shared) {
        let others = self.all.iter_mut().filter(|table| !is_of_paths(table.number));
        others.for_each(|table| table.share(&shared));
        self.shared = Some(shared);
    }

    /// The knobs of all FIBs, and of those to come.
    pub(super) fn set_options(&mut self, options: FibOptions) {
        self.options = options;
        for table in &mut self.all {
            table.v4.fib.set_options(options);
            table.v6.fib.set_options(options);
        }
    }

    pub(super) fn main(&self) -> &Table {
        &self.all[0]
    }

    pub(super) fn main_mut(&mut self) -> &mut Table {
        &mut self.all[0]
    }

    /// The index of a table's number.
    pub(super) fn fib(&self, number: u32) -> Option<u16> {
        let at = self.all.iter().position(|table| table.number == number)?;
        Some(u16::try_from(at).expect("there are at most 65,535 tables"))
    }

    /// The index of a table's number, made when there is none; `None` when there are too many.
    pub(super) fn add(&mut self, number: u32) -> Option<u16> {
        if self.fib(number).is_none() {
            if self.all.len() >= MAX_TABLES {
                return None;
            }
            self.push(number);
        }
        self.fib(number)
    }

    pub(super) fn get(&self, number: u32) -> Option<&Table> {
        self.all.iter().find(|table| table.number == number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Table> {
        self.all.iter_mut().find(|table| table.number == number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Table> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Table> {
        self.all.iter_mut()
    }
}
