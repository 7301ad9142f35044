//! Access lists: the rules that are found for a packet are those of a search from the first rule on.
//!
//! The work is in `fingerpost_packet::feature::acl::testing`, which also runs without a fuzzer.
#![no_main]

use fingerpost_packet::feature::acl::testing::check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));
