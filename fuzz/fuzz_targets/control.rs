//! Any bytes of a client of the control socket: read to their end, with the same replies however they are cut.
//!
//! The work is in `fingerpost_packet::handler::control_socket::testing`, which also runs without a fuzzer.
#![no_main]

use fingerpost_packet::handler::control_socket::testing::check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));
