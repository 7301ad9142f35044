//! Longest-prefix match: address in, next-hop index out.
//!
//! ```
//! use fingerpost_lpm::{LpmTable, NextHopId};
//! let mut table = LpmTable::<u32>::new();
//! table.insert("10.0.0.0/8".parse()?, NextHopId(1))?;
//! table.insert("10.1.0.0/16".parse()?, NextHopId(2))?;
//! assert_eq!(table.lookup(0x0a01_0203), NextHopId(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A table of routes maps each prefix to a next hop; a lookup finds the longest prefix
//! that holds an address. Addresses are integers in host order: `u32` for IPv4, `u128` for IPv6
//! (`Ipv4Addr::to_bits` and `Ipv6Addr::to_bits` make them). A next hop is a number from 1 on, an index
//! into whatever the program keeps.
//!
//! # What to use
//!
//! - [`LpmTable`]: routes, a structure that answers, and readers in other threads
//!   ([`LpmTable::reader`]), each change in all of them when it returns.
//! - [`LpmTable::lookup_batch`], or that of a reader, for many addresses: their cache misses overlap,
//!   so that an address takes a third to a tenth of the time of one that waits for the one before. From
//!   64 on.
//! - [`PrefixMap`]: prefixes with values of any type, exact, covering and ordered access; no fast
//!   lookup.
//! - [`snapshot`]: a table in a file, saved by one program and mapped by others.
//! - [`Algorithm`], [`Table`] and [`Lookup`]: the seam below, for programs that have a store of their own
//!   or decide themselves when to build; and for algorithms that live elsewhere (feature `testing` has
//!   the suite that they must pass).
//!
//! ```
//! use fingerpost_lpm::{Heap, NextHopId, RouteStore, find_v4};
//! let mut routes = RouteStore::<u32>::new();
//! routes.insert("10.0.0.0/8".parse()?, NextHopId(1));
//! let mut table = find_v4("dxr18")?.build(&routes, &mut Heap)?;
//! let mut answers = [NextHopId::NONE; 2];
//! table.publish().lookup_batch(&[0x0a01_0203, 0x0b00_0001], &mut answers);
//! assert_eq!(answers, [NextHopId(1), NextHopId::NONE]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which algorithm
//!
//! Each row of the registry ([`v4`], [`v6`]) claims a fitness for a table's shape, and [`LpmTable::new`]
//! takes the highest whose [`Limits`] hold, now and again as the table grows. To choose yourself
//! ([`LpmTable::with_algorithm`]), bytes a prefix are those of full tables (901,899 IPv4 and 160,147 IPv6
//! routes, 496 next hops):
//!
//! | algorithm | good for | IPv4 | IPv6 | a change |
//! |---|---|---|---|---|
//! | `bsearch` | some dozens of routes, which stay in the first cache | 3.34 | 13.0 | builds anew |
//! | `bc18` | IPv4 of any size | 1.90 | - | in place |
//! | `rl32` | IPv6 of any size | - | 8.21 | in place |
//! | `bt18` | IPv6 that a program in the kernel reads from the same memory | - | 14.8 | in place |
//! | `dxr16` | IPv4 in a small cache | 1.62 | - | in place |
//! | `dxr18` | IPv4 in the second cache: a read, then a short search | 2.01 | - | in place |
//! | `dxr20` | IPv4 with a larger cache: shorter searches | 5.41 | - | in place |
//! | `dir24_8` | IPv4 with locality and huge pages: one read up to /24 | 37.2 | - | in place |
//! | `fib6` | IPv6 with few places that hold long prefixes | - | 288 | in place |
//! | `radix` | any table and any change, slowly | 29.3 | 60.8 | in place |
//!
//! What each is, where it is from, what a lookup and a change cost and when it loses stands at the head
//! of its file in `src/algo`; [`Algorithm::summary`] and [`Algorithm::source`] have it in a line, and
//! [`Lookup::explain`] lists the reads of one lookup. All but `bsearch` and `radix` begin with a direct
//! table on the first bits, memory that does not depend on the routes: in a table of a hundred routes it
//! is nearly all. In DXR, DIR-24-8 and `fib6` its entry is the answer where nothing longer is announced;
//! `bc18` always reads a second place, `rl32` three to five lines in all, `bt18` six to a /48. A lookup that
//! misses a cache waits for memory, so of two the smaller structure is often the faster; measure with your
//! addresses before you choose by somebody else's table.
//!
//! # Changes
//!
//! Changes go through [`Table::apply`]. It edits beside the readers and reuses what it unlinked once
//! [`Grace`] reports that no reader holds it, or it requires a rebuild ([`UpdateError::Rebuild`]).
//! Readers see [`Region`]s of plain integers, so a table can be saved, mapped, or shared.
//! [`LpmTable`] does all of it by itself.
//!
//! # Features
//!
//! `std` (default): huge pages, files and reader handles; `libc` for the first two. Without it the crate
//! is `no_std` with `alloc`, the owned table included. `testing`: oracle, generated tables, the conformance
//! suite and what the fuzzer drives. `poptrie`: see its file. CPU features are detected at run time.
#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod addr;
pub mod algo;
pub mod error;
pub mod head;
#[cfg(feature = "std")]
pub mod input;
pub mod intervals;
pub mod kernel_layout;
pub mod lookup;
#[allow(unsafe_code, reason = "regions shared by atomics; its invariants are numbered there")]
pub mod mem;
pub mod next_hop_id;
mod one_by_one;
#[cfg(feature = "std")]
pub mod oracle;
#[cfg(feature = "std")]
pub mod readers;
pub mod registry;
pub mod rng;
pub mod routes;
pub mod simd;
#[cfg(feature = "std")]
pub mod snapshot;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod toolkit;

pub use addr::{Addr, Prefix, PrefixError};
pub use error::{FormatError, UpdateError};
pub use kernel_layout::{KernelLayout, KernelRegion};
pub use lookup::{
    Algorithm, Change, Epoch, Grace, KernelReader, Limits, Lookup, Module, NoReaders, Origin,
    Routes, Step, Table, TableStats,
};
#[cfg(all(feature = "std", target_os = "linux"))]
pub use mem::map::{HugePages, Pages, huge_pages_on_request, pages};
pub use mem::{Heap, Memory, MemoryMaker, Region, prefetch_at};
pub use next_hop_id::NextHopId;
#[cfg(feature = "std")]
pub use readers::{LpmReader, Pinned};
pub use registry::{Rows, Unknown, find_v4, find_v6, is_kernel_readable, v4, v6};
pub use rng::Rng;
pub use routes::{Hop, PrefixMap, RouteStore};
pub use simd::Simd;
pub use table::LpmTable;
