//! Layout by which a program in the kernel reads a structure: the part of a registry row that the XDP datapath needs.
//!
//! The program has one reader for each layout, written in C. It is linked against the memory of a table: each region
//! stands for an array of the program, and constants of the program select its reader and how far it may index.

use alloc::vec::Vec;

use crate::mem::Region;

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
