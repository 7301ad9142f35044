//! Every lookup algorithm against the oracle: bytes to routes, changes and lookups.
//!
//! The work is in `fingerpost_lpm::testing::drive`, which also runs without a fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fingerpost_lpm::testing::drive(bytes));
