//! Any bytes as messages of the kernel: of every kind, and with all requests that follow.
//!
//! The work is in `fingerpost_route`, `netlink::fuzz` and `source::fuzz`, which also run without a fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fingerpost_route::netlink::fuzz::check(bytes);
    fingerpost_route::source::fuzz::kernel(bytes);
});
