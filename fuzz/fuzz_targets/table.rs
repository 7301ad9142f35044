//! Any bytes as a table of routes, text or MRT, compressed or not: the same however they are cut.
//!
//! The work is in `fingerpost_route::source::fuzz`, which also runs without a fuzzer.
#![no_main]

use fingerpost_route::source::fuzz::{compressed_table, table};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    table(bytes);
    compressed_table(bytes);
});
