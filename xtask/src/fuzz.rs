//! `cargo xtask soak fuzz_lookup`, `fuzz_graph` and `fuzz_control`: a fuzz target of `fuzz/`, built and run with
//! nothing installed but a C++ compiler, which the fuzzer in `libfuzzer-sys` is compiled with.
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

/// Seeds are made for so many rows; a number past a family's last one starts again at its first.
const MOST_ROWS: u8 = 40;

/// A program of `fuzz/`, with the folders below `target/fuzz` that are its own.
struct Target {
    name: &'static str,
    corpus: &'static str,
    findings: &'static str,
    seeds: &'static str,
    /// Where a finding belongs once it is repaired.
    kept: &'static str,
    /// Longer inputs find nothing that shorter ones do not; the fuzzer grows them slowly.
    most_bytes: u32,
}

const LOOKUP: Target = Target {
    name: "lookup",
    corpus: "corpus",
    findings: "findings",
    seeds: "seeds",
    kept: "fuzz/regressions",
    most_bytes: 2048,
};

const GRAPH: Target = Target {
    name: "graph",
    corpus: "corpus-graph",
    findings: "findings-graph",
    seeds: "seeds-graph",
    kept: "testdata/graphs/broken, or as a test to crates/packet/src/graph/tests.rs where it is right",
    // The longest example is not cut.
    most_bytes: 8192,
};

const CONTROL: Target = Target {
    name: "control",
    corpus: "corpus-control",
    findings: "findings-control",
    seeds: "seeds-control",
    kept: "crates/packet/src/control_socket/tests.rs, as a test",
    most_bytes: 512,
};

/// Every lookup algorithm against the oracle.
pub(crate) fn lookup(seconds: &str) -> Result<()> {
    fuzz(&LOOKUP, seconds, seeds)
}

/// Any text as a configuration of a graph.
pub(crate) fn graph(seconds: &str) -> Result<()> {
    fuzz(&GRAPH, seconds, |folder| {
        for from in ["testdata/graphs/broken", "examples/graphs"] {
            for entry in fs::read_dir(sh::root().join(from))? {
                let path = entry?.path();
                if path.extension().is_some_and(|extension| extension == "click") {
                    let to = folder.join(path.file_name().unwrap_or_default());
                    fs::copy(&path, &to)
                        .with_context(|| format!("cannot copy {}", path.display()))?;
                }
            }
        }
        Ok(())
    })
}

/// Any bytes of a client of the control socket.
pub(crate) fn control(seconds: &str) -> Result<()> {
    fuzz(&CONTROL, seconds, |folder| {
        let seed = b"read list\r\nWRITEDATA q.take 2\nabWRITEUNTIL q.warn .\na\n.\nREAD q.fail x\n\
            checkread q.five\ncheckwrite q.five\nREADUNTIL q.echo\n\nhelp\nreaddata q.echo 9999\nquit\n";
        fs::write(folder.join("session"), seed).context("cannot write a seed")
    })
}

/// Builds the target, lets the fuzzer choose inputs for `seconds`, and fails when it found something.
fn fuzz(target: &Target, seconds: &str, seeds: fn(&Path) -> Result<()>) -> Result<()> {
    if sh::find("c++").is_none() {
        debian::install(&["g++"]).context("needs a C++ compiler (g++)")?;
    }
    sh::run(&mut build(target, sanitize::has_nightly()))?;
    let folder = sh::root().join("target/fuzz");
    for name in [target.corpus, target.findings, target.seeds] {
        let path = folder.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    seeds(&folder.join(target.seeds))?;
    let ran = sh::run(&mut run(target, seconds));
    let kept = fs::read_dir(folder.join(target.corpus))?.count();
    println!("corpus: {kept} inputs in target/fuzz/{}", target.corpus);
    let findings: Vec<PathBuf> = fs::read_dir(folder.join(target.findings))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    for path in &findings {
        println!(
            "found something: {}; once it is repaired, move it to {}",
            path.display(),
            target.kept
        );
    }
    ran?;
    let (count, place) = (findings.len(), target.findings);
    ensure!(findings.is_empty(), "{count} findings in target/fuzz/{place}");
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
fn build(of: &Target, nightly: bool) -> Command {
    let (mut cargo, flags) = if nightly {
        (sanitize::nightly(""), format!("{COVERAGE} -Zsanitizer=address"))
    } else {
        println!("without AddressSanitizer: it needs a nightly compiler");
        (sh::command("cargo"), COVERAGE.to_owned())
    };
    cargo.args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--bin", of.name]);
    cargo.args(["--target", &target(), "--target-dir", "target/fuzz"]);
    cargo.env("RUSTFLAGS", flags);
    cargo
}

fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn run(of: &Target, seconds: &str) -> Command {
    let mut fuzzer = sh::command(&format!("target/fuzz/{}/release/{}", target(), of.name));
    fuzzer.arg(format!("target/fuzz/{}", of.corpus)).arg(format!("target/fuzz/{}", of.seeds));
    fuzzer.arg(format!("-artifact_prefix=target/fuzz/{}/", of.findings));
    fuzzer.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={}", of.most_bytes));
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
        let shown = sh::shown(&build(&LOOKUP, true));
        assert!(shown.contains("rustup run nightly cargo build --release"), "{shown}");
        assert!(
            shown.contains("-Zsanitizer=address") && shown.contains("--target-dir target/fuzz")
        );
        assert!(!sh::shown(&build(&LOOKUP, false)).contains("-Z"));
        let shown = sh::shown(&run(&LOOKUP, "60"));
        assert!(shown.contains(" target/fuzz/corpus target/fuzz/seeds "), "{shown}");
        assert!(shown.contains("-artifact_prefix=target/") && shown.contains("-max_total_time=60"));
        let shown = sh::shown(&run(&GRAPH, "60"));
        assert!(
            shown.contains("/graph target/fuzz/corpus-graph target/fuzz/seeds-graph "),
            "{shown}"
        );
    }
}
