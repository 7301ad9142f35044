//! Any bytes as a session of FRR's zebra, whole and cut, with all acknowledgements.
//!
//! The work is in `fingerpost_route`, `source::fuzz`, which also runs without a fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fingerpost_route::source::fuzz::fpm(bytes);
});
