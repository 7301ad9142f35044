//! What the names in `forward.c` stand for in a program: part of a map, a map, or a number.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use fingerpost_lpm::{Addr, KernelLayout, KernelRegion, Lookup, Region, Rows};

use super::epochs::Epochs;
use crate::xdp::bpf::{Map, SharedMemory};
use crate::xdp::load::Bound;

/// Beginnings of the names that tables have in the program: tables of routes, as their layouts name them, and lists of
/// sources.
pub(super) const ROUTES: &str = "v";
pub(super) const LISTS: &str = "s";

/// What the names in the program stand for.
pub(super) struct Names<'a> {
    /// Stands for what the program does not come to: any memory will do.
    pub(super) any: &'a SharedMemory,
    pub(super) bound: BTreeMap<String, Bound<'a>>,
}

impl<'a> Names<'a> {
    /// Those that all programs have.
    pub(super) fn new(epochs: &'a Epochs) -> Self {
        let mut names = Self { any: epochs.memory(), bound: BTreeMap::new() };
        names.memory("epochs", epochs.memory());
        names.number("processors", epochs.mask());
        names
    }

    pub(super) fn memory(&mut self, name: impl Into<String>, memory: &'a SharedMemory) {
        self.bound.insert(name.into(), Bound::Memory(memory.map().as_fd()));
    }

    pub(super) fn map(&mut self, name: impl Into<String>, map: &'a Map) {
        self.bound.insert(name.into(), Bound::Map(map.as_fd()));
    }

    pub(super) fn number(&mut self, name: impl Into<String>, number: u64) {
        self.bound.insert(name.into(), Bound::Number(number));
    }

    /// `false` when the region lies in other memory.
    pub(super) fn region(&mut self, name: impl Into<String>, region: &'a Region) -> bool {
        let shared = SharedMemory::of(region);
        self.memory(name, shared.unwrap_or(self.any));
        shared.is_some()
    }

    /// Binds what the program reads of a family's table: all to nothing where it has no reader for it, or where
    /// there is none to read. `kind` begins the names of the table in the program.
    pub(super) fn table<A: Rows>(&mut self, kind: &str, lookup: Option<&'a dyn Lookup<A>>) {
        let name = |name: &str| format!("{kind}{}", name.strip_prefix(ROUTES).unwrap_or(name));
        for layout in KernelLayout::all::<A>() {
            layout.names.iter().for_each(|part| self.number(name(part), 0));
            for region in layout.regions {
                region.arrays.iter().for_each(|part| self.memory(name(part), self.any));
                region.last.iter().for_each(|part| self.number(name(part), 0));
            }
        }
        let Some(lookup) = lookup else { return };
        let Some((layout, constants)) = readable(lookup) else { return };
        layout.names.iter().zip(constants).for_each(|(part, value)| self.number(name(part), value));
        for KernelRegion { region, arrays, last: last_word } in layout.regions {
            let Some(region) = region_of(lookup, region) else { continue };
            arrays.iter().for_each(|part| {
                self.region(name(part), region);
            });
            last_word.iter().for_each(|part| self.number(name(part), last(region, 8)));
        }
    }
}

/// Layout and constants of a table that the program can read: of a layout that it has a reader for, in memory that it
/// shares.
pub(super) fn readable<A: Rows>(
    lookup: &dyn Lookup<A>,
) -> Option<(&'static KernelLayout, Vec<u64>)> {
    let found = KernelLayout::of::<A>(lookup.regions())?;
    let shared = |region: &KernelRegion| {
        region_of(lookup, region.region).is_some_and(|region| SharedMemory::of(region).is_some())
    };
    found.0.regions.iter().all(shared).then_some(found)
}

pub(super) fn region_of<'a, A: Addr>(lookup: &'a dyn Lookup<A>, name: &str) -> Option<&'a Region> {
    lookup.regions().iter().find(|region| region.name() == name)
}

/// Number of the last cell of so many bytes.
pub(super) fn last(region: &Region, bytes: usize) -> u64 {
    (region.bytes() / bytes) as u64 - 1
}
