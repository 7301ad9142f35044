//! What the tests of the whole system share: where things are, and how a test skips.
//!
//! The tests themselves lie in `tests/tests/`, a file a subject. Those that start the program start
//! the release build, which `cargo xtask test` makes first.

pub mod bird;
pub mod bmp;
pub mod browser;
pub mod certificates;
pub mod click;
pub mod configuration;
pub mod crowd;
pub mod debian;
pub mod faults;
pub mod folder;
pub mod fpm;
pub mod frr;
pub mod lasting;
pub mod matrices;
pub mod modules;
pub mod netns;
pub mod packages;
pub mod place;
pub mod rack;
pub mod source;
pub mod store;
pub mod tables;
pub mod traffic;
pub mod words;
pub mod world;
pub mod zebra;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The root of the checkout.
///
/// # Panics
/// Never: this crate lies in a folder of it.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the root").to_path_buf()
}

/// Prints that the running test needs something that is not here. Call it, then return.
///
/// `needs` is a privilege or a tool: `root`, `nft (nftables)`. The line is counted by
/// `cargo xtask test`, once a test; crates that cannot use this one print the same line,
/// `skipped: needs X`, with `println!`.
#[allow(clippy::print_stdout, reason = "the test runner keeps it under the name of the test")]
pub fn skip(needs: &str) {
    println!("skipped: needs {needs}");
}

/// Whether only the quick layers are wanted (`FINGERPOST_QUICK`, set by `cargo xtask check`): no
/// namespaces, no program from outside, no release build.
pub fn quick() -> bool {
    std::env::var_os("FINGERPOST_QUICK").is_some()
}

/// Duration of a test that repeats its work: `usual`, or what `cargo xtask soak` sets in
/// `FINGERPOST_SOAK_SECONDS`.
pub fn soak(usual: Duration) -> Duration {
    std::env::var("FINGERPOST_SOAK_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .map_or(usual, Duration::from_secs)
}

/// Whether `cargo xtask soak` runs the test.
pub fn soaks() -> bool {
    !soak(Duration::ZERO).is_zero()
}

/// Whether a machine without KVM may be what the test runs in (`FINGERPOST_VM`), which is some ten times slower.
pub fn emulated() -> bool {
    std::env::var("FINGERPOST_VM").is_ok_and(|choice| choice == "emulated")
}

/// How long a test waits at most for what takes `usual` at most: longer where a processor is emulated, and in a soak, whose
/// machine has other work.
pub fn patience(usual: Duration) -> Duration {
    if emulated() {
        usual * 10
    } else if soaks() {
        usual * 3
    } else {
        usual
    }
}

/// The program with the elements of feature `testing`: `FINGERPOST_BIN`, or the one that is built with all features beside
/// the running test. `None`, with a skip line, when there is none.
pub fn testing_program() -> Option<PathBuf> {
    let file = std::env::temp_dir().join(format!("fpfails{}.click", std::process::id()));
    std::fs::write(&file, "FromPorts -> PanicAfter(1) -> ToPorts").ok()?;
    let knows = |program: &PathBuf| {
        let check = Command::new(program).args(["graph", "check"]).arg(&file).output();
        check.is_ok_and(|check| check.status.success())
    };
    let found = [program(), program_of_all_features()].into_iter().flatten().find(knows);
    let _ = std::fs::remove_file(&file);
    if found.is_none() {
        skip("a build of fingerpost with feature testing");
    }
    found
}

/// The program that is built with all features beside the running test, if it was built.
pub fn program_of_all_features() -> Option<PathBuf> {
    // TARGET/debug/deps/THIS_TEST
    let path = std::env::current_exe().ok()?.ancestors().nth(2)?.join("fingerpost");
    path.is_file().then_some(path)
}

/// The program as it is shipped: `FINGERPOST_BIN`, or the release build beside the running test.
/// `None` when it was not built.
pub fn program() -> Option<PathBuf> {
    let path = std::env::var_os("FINGERPOST_BIN").map(PathBuf::from).or_else(|| {
        // TARGET/debug/deps/THIS_TEST
        let test = std::env::current_exe().ok()?;
        Some(test.ancestors().nth(3)?.join("release/fingerpost"))
    })?;
    path.is_file().then_some(path)
}

/// The program of the benchmarks and the demo, beside [`program`]. `None` when it was not built.
pub fn lab() -> Option<PathBuf> {
    let path = program()?.with_file_name("fingerpost-lab");
    path.is_file().then_some(path)
}
