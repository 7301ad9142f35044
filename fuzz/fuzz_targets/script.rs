//! Any text as the instructions of scripts, which run in virtual time: they come to an end, and no packet is lost.
//!
//! The work is in `fingerpost_packet::testing::scripts`, which also runs without a fuzzer.
#![no_main]

use fingerpost_packet::testing::scripts::check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));
