//! Layout by which a program in the kernel reads a structure: the part of a registry row that the XDP datapath needs.
//!
//! The program has one reader for each layout, written in C. It is linked against the memory of a table: each region
//! stands for an array of the program, and constants of the program select its reader and how far it may index.

use alloc::vec::Vec;

use crate::addr::Addr;
use crate::mem::Region;
use crate::registry::Rows;

/// Layout of a structure as a program in the kernel reads it, plain data.
#[derive(Debug)]
pub struct KernelLayout {
    /// Regions that the program reads; all must lie in memory that the kernel shares.
    pub regions: &'static [KernelRegion],
    /// Names of the constants that [`Self::constants`] gives, in the same order.
    pub names: &'static [&'static str],
    /// Values of the constants for a structure with these regions, the first of them the number of the reader, from 1;
    /// `None` when the regions are of another layout.
    pub constants: fn(&[Region]) -> Option<Vec<u64>>,
}

/// Region of a structure, and the names that the program has for it.
#[derive(Debug)]
pub struct KernelRegion {
    /// Name of the region.
    pub region: &'static str,
    /// Arrays of the program that stand for it, each with cells of another width.
    pub arrays: &'static [&'static str],
    /// Constant that holds the number of the last 64-bit word, where the program bounds its indices by it.
    pub last: Option<&'static str>,
}

impl KernelLayout {
    /// Layouts of a family's algorithms.
    pub fn all<A: Rows>() -> impl Iterator<Item = &'static Self> {
        A::rows().filter_map(|row| row.kernel_layout)
    }

    /// Layout of the structure with these regions and its constants; `None` when the program has no reader for it.
    pub fn of<A: Addr + Rows>(regions: &[Region]) -> Option<(&'static Self, Vec<u64>)> {
        Self::all::<A>().find_map(|layout| Some((layout, (layout.constants)(regions)?)))
    }
}

/// Whether the XDP datapath can read tables of the algorithm called `name`.
pub fn is_kernel_readable(name: &str) -> bool {
    fn of<A: Rows>(name: &str) -> bool {
        A::rows().any(|row| row.name == name && row.kernel_layout.is_some())
    }
    of::<u32>(name) || of::<u128>(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Heap;
    use crate::routes::RouteStore;

    fn check<A: Rows>() {
        let routes = RouteStore::<A>::new();
        for row in A::rows() {
            let table = row.build(&routes, &mut Heap).map(|mut table| table.publish());
            let table = table.expect("an empty table fits all");
            let found = KernelLayout::of::<A>(table.regions());
            assert_eq!(found.is_some(), is_kernel_readable(row.name), "{}", row.name);
            let Some((layout, constants)) = found else { continue };
            assert!(constants.len() == layout.names.len() && constants[0] > 0, "{}", row.name);
            for region in layout.regions {
                assert!(table.regions().iter().any(|r| r.name() == region.region), "{region:?}");
            }
        }
    }

    #[test]
    fn a_layout_is_found_by_the_regions_of_its_tables() {
        check::<u32>();
        check::<u128>();
        assert!(!is_kernel_readable("no such algorithm"));
    }
}
