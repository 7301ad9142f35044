//! The stores of the membership: one set of conformance tests over memory and real servers, their faults, and agents on them.
//!
//! Servers are those of Debian. A test starts its own on free ports of the loopback address, in a folder of its own, and ends
//! it by its process id.

#![allow(clippy::unwrap_used, reason = "a test: what fails here fails the test")]
#![allow(clippy::print_stdout, reason = "skips")]

mod agents;
mod conformance;
mod faults;
mod security;
mod server;
