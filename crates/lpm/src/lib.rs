//! Longest-prefix match: address in, next-hop index out.
//!
//! A table of routes says for each prefix which next hop serves it; a lookup finds the longest prefix
//! that holds an address. Routes live in a [`RouteStore`]; an [`Algorithm`] compiles them into a
//! [`Table`], whose readers ([`Lookup`]) answer batches of addresses:
//!
//! ```
//! use fingerpost_lpm::{Heap, NextHopId, RouteStore, find_v4};
//! let mut routes = RouteStore::<u32>::new();
//! routes.insert("10.0.0.0/8".parse()?, NextHopId(1));
//! let mut table = find_v4("dxr18")?.build(&routes, &mut Heap)?;
//! assert_eq!(table.publish().lookup(0x0a01_0203), NextHopId(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Which algorithm: each row of the registry ([`v4`], [`v6`]) claims a fitness for a table's shape;
//! take the highest whose [`Limits`] hold. Up to some dozens of routes that is `bsearch`; for IPv4
//! tables of any size `dxr18`; for IPv6 tables of any size `rl32`.
//!
//! Changes go through [`Table::apply`]. It edits beside the readers and reuses what it unlinked once
//! [`Grace`] says that no reader holds it, or it asks for a new table ([`UpdateError::Rebuild`]).
//! Readers see [`Region`]s of plain integers, so a table can be saved, mapped, or shared.
#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod addr;
pub mod algo;
pub mod buddy;
pub mod head;
pub mod intervals;
pub mod lookup;
#[allow(unsafe_code, reason = "regions shared by atomics; its invariants are numbered there")]
pub mod mem;
#[cfg(feature = "std")]
pub mod oracle;
pub mod plies;
#[cfg(feature = "std")]
pub mod readers;
pub mod registry;
pub mod room;
pub mod routes;
pub mod simd;
#[cfg(feature = "std")]
pub mod snapshot;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use addr::{Addr, Prefix, PrefixError};
pub use lookup::{
    Algorithm, Change, Epoch, FormatError, Grace, Limits, Lookup, Module, NextHopId, NoReaders,
    Origin, Routes, Step, Table, TableStats, UpdateError,
};
#[cfg(all(feature = "std", target_os = "linux"))]
pub use mem::map::{HugePages, Pages, huge_pages_on_request, pages};
pub use mem::{Heap, Memory, Region};
#[cfg(feature = "std")]
pub use readers::{LpmReader, Pinned};
pub use registry::{Rows, Unknown, find_v4, find_v6, v4, v6};
pub use routes::{Hop, PrefixMap, RouteStore};
pub use simd::Simd;
pub use table::LpmTable;
