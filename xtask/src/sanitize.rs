//! The tests of the lookup crate under AddressSanitizer and Miri, where a nightly compiler is there.
//!
//! AddressSanitizer runs all of them, in a target folder of its own, in some minutes. Miri is a thousand
//! times as slow as the machine, so it gets those that are small: memory, free space, readers, the
//! store, and the owned table with its algorithms at a few routes.

use std::process::Command;

use anyhow::Result;

use crate::sh;

/// What Miri runs in some minutes: names, or parts of them.
const SMALL: &[&str] = &[
    "mem::tests",
    "head::",
    "intervals::",
    "readers::tests::an_epoch",
    "readers::tests::replaced",
    "readers::tests::a_reader",
    "routes::tests::nodes",
    "simd::",
];

/// `rustup run nightly cargo WORDS`: also from inside a cargo of another toolchain.
pub(crate) fn nightly(words: &str) -> Command {
    sh::command(&format!("rustup run nightly cargo {words}"))
}

/// Whether there is one.
pub(crate) fn has_nightly() -> bool {
    sh::works(&mut nightly("--version"))
}

/// All tests, every memory access watched.
pub(crate) fn asan() -> Result<()> {
    if !has_nightly() {
        println!("skipped: needs a nightly compiler (rustup toolchain install nightly)");
        return Ok(());
    }
    let mut test = nightly(
        "test --package fingerpost-lpm --all-features --lib --tests --no-fail-fast --target",
    );
    test.arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
    test.env("RUSTFLAGS", "-Zsanitizer=address").env("CARGO_TARGET_DIR", "target/asan");
    // A test asks for more memory than there is; it is refused, as without the sanitizer.
    test.env("ASAN_OPTIONS", "allocator_may_return_null=1");
    sh::run(&mut test)
}

/// The small tests, every access, reference and ordering watched.
pub(crate) fn miri() -> Result<()> {
    if !sh::works(&mut nightly("miri --version")) {
        println!("skipped: needs Miri (rustup +nightly component add miri rust-src)");
        return Ok(());
    }
    let mut test = nightly("miri test --package fingerpost-lpm --all-features --lib --");
    test.args(SMALL);
    // The clock and the folder of temporary files belong to the machine.
    test.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("CARGO_TARGET_DIR", "target/miri");
    sh::run(&mut test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_compiler_is_asked_by_name() {
        assert_eq!(sh::shown(&nightly("miri test")), "rustup run nightly cargo miri test");
        assert!(SMALL.iter().all(|name| name.contains("::")));
    }
}
