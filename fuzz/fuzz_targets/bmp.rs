//! Any bytes as a session of a BGP router that reports its routes (BMP), whole and cut.
//!
//! The work is in `fingerpost_route`, `source::fuzz`, which also runs without a fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fingerpost_route::source::fuzz::bmp(bytes);
});
