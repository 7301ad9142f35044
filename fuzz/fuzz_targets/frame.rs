//! Any frames through the built-in router: sent, dropped for a reason or held, and none is lost.
//!
//! The work is in `fingerpost_packet::testing::frames`, which also runs without a fuzzer.
#![no_main]

use fingerpost_packet::testing::frames::check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));
