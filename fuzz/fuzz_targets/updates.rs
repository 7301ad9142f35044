//! Any bytes as recorded BGP updates: MRT records with messages of any encoding.
//!
//! The work is in `fingerpost_route::source::fuzz`, which also runs without a fuzzer.
#![no_main]

use fingerpost_route::source::fuzz::updates;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| updates(bytes));
