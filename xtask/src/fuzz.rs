//! `cargo xtask soak fuzz_lookup`: the fuzz target of `fuzz/`, built and run with nothing installed but
//! a C++ compiler, which the fuzzer in `libfuzzer-sys` is compiled with.
//!
//! The flags are those of cargo-fuzz: edges counted in every crate of ours, debug assertions on, and
//! AddressSanitizer where a nightly compiler is there; the stable one knows all but the last. Inputs that
//! reached something new are kept in `target/fuzz/corpus`, so that the next run starts where this one
//! ended. The fuzzer writes how many inputs it ran and how many edges they reached as it goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{debian, sanitize, sh};

/// Counts each edge that is taken, and tells the fuzzer where the counts are. One value a flag.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 -Ccodegen-units=1 -Cdebug-assertions";

/// Longer inputs find nothing that shorter ones do not; the fuzzer grows them slowly.
const MOST_BYTES: u32 = 2048;

/// Seeds are made for so many rows; a number past a family's last one starts again at its first.
const MOST_ROWS: u8 = 40;

/// Builds the target, lets the fuzzer choose inputs for `seconds`, and fails when it found something.
pub(crate) fn lookup(seconds: &str) -> Result<()> {
    if sh::find("c++").is_none() {
        debian::install(&["g++"]).context("needs a C++ compiler (g++)")?;
    }
    sh::run(&mut build(sanitize::has_nightly()))?;
    let folder = sh::root().join("target/fuzz");
    for name in ["corpus", "findings", "seeds"] {
        let path = folder.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    seeds(&folder.join("seeds"))?;
    let ran = sh::run(&mut run(seconds));
    let kept = fs::read_dir(folder.join("corpus"))?.count();
    println!("corpus: {kept} inputs in target/fuzz/corpus");
    let findings: Vec<PathBuf> = fs::read_dir(folder.join("findings"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    for path in &findings {
        println!(
            "found something: {}; once it is repaired, move it to fuzz/regressions",
            path.display()
        );
    }
    ran?;
    ensure!(findings.is_empty(), "{} findings in target/fuzz/findings", findings.len());
    Ok(())
}

/// What once broke something, for each row by itself: the first byte's upper seven bits say which, and
/// any number will do. All rows at once would be slow to begin with.
fn seeds(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(sh::root().join("fuzz/regressions"))? {
        let entry = entry?;
        let mut bytes = fs::read(entry.path())?;
        for row in 1..=MOST_ROWS {
            if let Some(first) = bytes.first_mut() {
                *first = (*first % 2) + 2 * row;
            }
            let path = folder.join(format!("{}-{row}", entry.file_name().display()));
            fs::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// For a named target, as the flags must not reach what runs while it is built.
fn build(nightly: bool) -> Command {
    let (mut cargo, flags) = if nightly {
        (sanitize::nightly(""), format!("{COVERAGE} -Zsanitizer=address"))
    } else {
        println!("without AddressSanitizer: it needs a nightly compiler");
        (sh::command("cargo"), COVERAGE.to_owned())
    };
    cargo.args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--bin", "lookup"]);
    cargo.args(["--target", &target(), "--target-dir", "target/fuzz"]);
    cargo.env("RUSTFLAGS", flags);
    cargo
}

fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn run(seconds: &str) -> Command {
    let mut fuzzer = sh::command(&format!("target/fuzz/{}/release/lookup", target()));
    fuzzer.args([
        "target/fuzz/corpus",
        "target/fuzz/seeds",
        "-artifact_prefix=target/fuzz/findings/",
    ]);
    fuzzer.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={MOST_BYTES}"));
    // Large tables come and go; a stack is no place for what readers hold.
    fuzzer.env("ASAN_OPTIONS", "quarantine_size_mb=16:detect_stack_use_after_return=0");
    // An input for all rows may build all of the large tables, on machines that do other things.
    fuzzer.args([
        "-timeout=300",
        "-report_slow_units=300",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
    ]);
    fuzzer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzer_stays_inside_the_checkout() {
        let shown = sh::shown(&build(true));
        assert!(shown.contains("rustup run nightly cargo build --release"), "{shown}");
        assert!(
            shown.contains("-Zsanitizer=address") && shown.contains("--target-dir target/fuzz")
        );
        assert!(!sh::shown(&build(false)).contains("-Z"));
        let shown = sh::shown(&run("60"));
        assert!(shown.contains(" target/fuzz/corpus target/fuzz/seeds "), "{shown}");
        assert!(shown.contains("-artifact_prefix=target/") && shown.contains("-max_total_time=60"));
    }
}
