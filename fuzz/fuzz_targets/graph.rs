//! Any text as a configuration in Click's language: read to its end, with errors that have places in it.
//!
//! The work is in `fingerpost_packet::language::testing::check`, which also runs without a fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        fingerpost_packet::language::testing::check(text);
    }
});
