//! Any text as a summary of packets: it is read to its end, and what is written of the packets is read as the same ones.
//!
//! The work is in `fingerpost_packet::testing::summaries`, which also runs without a fuzzer.
#![no_main]

use fingerpost_packet::testing::summaries::check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));
