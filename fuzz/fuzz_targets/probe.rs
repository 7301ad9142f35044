//! Payloads of a cluster's probes: refused, or written again as they were.
//!
//! The work is in `fingerpost_cluster::probe::testing`, which also runs without a fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fingerpost_cluster::probe::testing::check(bytes));
