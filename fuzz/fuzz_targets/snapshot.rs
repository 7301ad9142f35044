//! Snapshots with right sums over anything: refused, or harmless.
//!
//! The work is in `fingerpost_lpm::testing::forge`, which also runs without a fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fingerpost_lpm::testing::forge(bytes));
