//! Tables, addresses and checks for algorithms, wherever they live.
//!
//! An algorithm is tested by its registry row alone: [`checks`] lists what every row must stand, by
//! name; [`conformance`] runs them all; [`agree`] compares a table of any size with the oracle. All
//! of it is reproducible: what is random takes a seed.

mod agree;
mod changes;
mod conform;
mod fleet;
mod forge;
mod fuzz;
mod rig;
mod streams;
mod tables;

pub use crate::rng::Rng;
pub use agree::{Mismatch, Questions, agree};
pub use changes::{set, toggle};
pub use conform::{Check, EXPECTED_PANIC, checks, conformance};
pub use fleet::{Fleet, Member, Refused, Wrong};
pub use forge::forge;
pub use fuzz::{drive, random_input};
pub use rig::{FailingMemory, HeldGrace, ReaderGrace, Rig, copy_regions};
pub use streams::{Addresses, Stream, probes};
pub use tables::{Shape, read_table, table};
