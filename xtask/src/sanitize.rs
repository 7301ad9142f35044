//! Tests under AddressSanitizer and Miri, where a nightly compiler is there.
//!
//! AddressSanitizer runs all of the lookup crate, in a target folder of its own, in some minutes. Miri is a thousand
//! times as slow as the machine, so it gets tests that are small: of the lookup crate memory, free space, readers, the
//! store, and the owned table with its algorithms at a few routes; of the packet crate who owns a frame.

use std::process::Command;

use anyhow::Result;

use crate::sh;

/// What Miri runs in some minutes: which tests of a package, as words of cargo, and their names or parts of them.
const SMALL: &[(&str, &[&str])] = &[
    (
        "--package fingerpost-lpm --all-features --lib",
        &[
            "mem::tests",
            "head::",
            "intervals::",
            "readers::tests::an_epoch",
            "readers::tests::replaced",
            "readers::tests::a_reader",
            "routes::tests::nodes",
            "simd::",
        ],
    ),
    ("--package fingerpost-packet --lib", &["buf::"]),
    ("--package fingerpost-packet --test frames", &[]),
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
        println!(
            "skipped: needs a nightly toolchain with miri (rustup toolchain install nightly \
             --component miri --component rust-src)"
        );
        return Ok(());
    }
    for (which, names) in SMALL {
        let mut test = nightly(&format!("miri test {which} --"));
        test.args(*names);
        // The clock and the folder of temporary files belong to the machine.
        test.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("CARGO_TARGET_DIR", "target/miri");
        sh::run(&mut test)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_compiler_is_asked_by_name() {
        assert_eq!(sh::shown(&nightly("miri test")), "rustup run nightly cargo miri test");
        assert!(SMALL.iter().all(|(which, _)| which.starts_with("--package fingerpost-")));
        assert!(SMALL.iter().flat_map(|(_, names)| *names).all(|name| name.contains("::")));
    }
}
