//! Any frames through the elements of a cluster node: sent, dropped for a reason or held, and none leaves as an internal frame.
//!
//! The work is in `fingerpost_cluster::element::testing`, which also runs without a fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fingerpost_cluster::element::testing::check(bytes));
