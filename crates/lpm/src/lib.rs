//! Longest-prefix match: address in, next-hop index out.
#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod addr;
pub mod algo;
pub mod lookup;
#[allow(unsafe_code, reason = "regions shared by atomics; its invariants are numbered there")]
pub mod mem;
pub mod routes;

pub use addr::{Addr, Prefix, PrefixError};
pub use lookup::{
    Algorithm, Change, Epoch, FormatError, Grace, Limits, Lookup, Module, NextHopId, NoReaders,
    Origin, Routes, Step, Table, TableStats, UpdateError,
};
pub use mem::{Heap, Memory, Region};
pub use routes::{Hop, PrefixMap, RouteStore};
