//! Any bytes as paths of a table dump in MRT, which is written and read again.
//!
//! The work is in `fingerpost_route::source::fuzz`, which also runs without a fuzzer.
#![no_main]

use fingerpost_route::source::fuzz::dump;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dump(bytes));
