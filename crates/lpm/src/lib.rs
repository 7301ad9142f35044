//! Longest-prefix match: address in, next-hop index out.
#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod addr;
pub mod algo;
pub mod head;
pub mod intervals;
pub mod lookup;
#[allow(unsafe_code, reason = "regions shared by atomics; its invariants are numbered there")]
pub mod mem;
#[cfg(feature = "std")]
pub mod oracle;
pub mod registry;
pub mod room;
pub mod routes;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use addr::{Addr, Prefix, PrefixError};
pub use lookup::{
    Algorithm, Change, Epoch, FormatError, Grace, Limits, Lookup, Module, NextHopId, NoReaders,
    Origin, Routes, Step, Table, TableStats, UpdateError,
};
pub use mem::{Heap, Memory, Region};
pub use registry::{Unknown, find_v4, find_v6, v4, v6};
pub use routes::{Hop, PrefixMap, RouteStore};
