//! `cargo xtask fuzz NAME`: a fuzz target of `fuzz/fuzz_targets`, built and run with nothing installed but a C++
//! compiler, which the fuzzer in `libfuzzer-sys` is compiled with.
//!
//! The flags are those of cargo-fuzz: edges counted in every crate of ours, debug assertions on, and
//! AddressSanitizer where a nightly compiler is there; the stable one knows all but the last. Inputs that
//! reached something new are kept in `target/fuzz/corpus-NAME`, so that the next run starts where this one
//! ended, beside those of `fuzz/regressions/NAME`. The fuzzer writes how many inputs it ran and how many edges they
//! reached in the course of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{debian, sanitize, sh};

/// Counts each edge that is taken, and passes the place of the counts to the fuzzer. One value a flag.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 -Ccodegen-units=1 -Cdebug-assertions";

/// Seeds are made for so many rows; a number past a family's last one starts again at its first.
const MOST_ROWS: u8 = 40;

/// What is to be known of a target besides its name, which is that of its file.
struct Row {
    name: &'static str,
    /// Longer inputs find nothing that shorter ones do not; the fuzzer grows them slowly.
    most_bytes: u32,
    /// Writes inputs to start from, beside those of `fuzz/regressions/NAME`.
    seeds: fn(&Path) -> Result<()>,
}

/// What holds of a target that has no row.
const USUAL: Row = Row { name: "", most_bytes: 2048, seeds: |_| Ok(()) };

const ROWS: [Row; 7] = [
    Row { name: "lookup", seeds: each_algorithm, ..USUAL },
    // Whole frames of zebra, and sessions with the longest messages of BGP.
    Row { name: "fpm", most_bytes: 1 << 16, ..USUAL },
    Row { name: "bmp", most_bytes: 1 << 16, ..USUAL },
    // The longest example is not cut.
    Row { name: "graph", most_bytes: 8192, seeds: examples },
    Row { name: "control", most_bytes: 512, ..USUAL },
    // A line has a field; a script runs what it has.
    Row { name: "script", most_bytes: 1024, ..USUAL },
    Row { name: "summary", most_bytes: 1024, ..USUAL },
];

fn row(name: &str) -> &'static Row {
    ROWS.iter().find(|row| row.name == name).unwrap_or(&USUAL)
}

/// The targets: a file each.
fn targets() -> Result<Vec<String>> {
    let folder = sh::root().join("fuzz/fuzz_targets");
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".rs").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// `cargo xtask fuzz [NAME [SECONDS]]`; without a name, all of them one after the other.
pub(crate) fn fuzz(args: &[String]) -> Result<()> {
    let (name, seconds) = match args {
        [] => (None, "60"),
        [name] => (Some(name), "600"),
        [name, seconds] if seconds.parse::<u32>().is_ok() => (Some(name), seconds.as_str()),
        _ => bail!("usage: cargo xtask fuzz [NAME [SECONDS]]"),
    };
    let known = targets()?;
    let wanted = match name {
        None => known,
        Some(name) if known.contains(name) => vec![name.clone()],
        Some(name) => bail!("no target {name}, but {}", known.join(", ")),
    };
    let failed: Vec<String> = wanted
        .into_iter()
        .filter_map(|name| Some(format!("{name}: {:#}", one(&name, seconds).err()?)))
        .collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Builds the target, lets the fuzzer choose inputs for `seconds`, and fails when it found something.
fn one(name: &str, seconds: &str) -> Result<()> {
    if sh::find("c++").is_none() {
        debian::install(&["g++"]).context("needs a C++ compiler (g++)")?;
    }
    sh::run(&mut build(name, sanitize::has_nightly()))?;
    let folder = sh::root().join("target/fuzz");
    let of = |what: &str| folder.join(format!("{what}-{name}"));
    for path in ["corpus", "findings", "seeds"].map(of) {
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    (row(name).seeds)(&of("seeds"))?;
    let ran = sh::run(&mut run(name, seconds));
    let kept = fs::read_dir(of("corpus"))?.count();
    println!("corpus: {kept} inputs in target/fuzz/corpus-{name}");
    let findings: Vec<PathBuf> = fs::read_dir(of("findings"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    for path in &findings {
        println!(
            "found something: {}; once it is repaired, move it to fuzz/regressions/{name}",
            path.display()
        );
    }
    ran?;
    let count = findings.len();
    ensure!(findings.is_empty(), "{count} findings in target/fuzz/findings-{name}");
    Ok(())
}

/// Inputs that once broke something, for each row by itself: the first byte's upper seven bits select it, and
/// any number will do. All rows at once would be slow to begin with.
fn each_algorithm(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(sh::root().join("fuzz/regressions/lookup"))? {
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

/// Configurations, right and wrong.
fn examples(folder: &Path) -> Result<()> {
    for from in ["testdata/graphs/broken", "examples/graphs"] {
        for entry in fs::read_dir(sh::root().join(from))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "click") {
                let to = folder.join(path.file_name().unwrap_or_default());
                fs::copy(&path, &to).with_context(|| format!("cannot copy {}", path.display()))?;
            }
        }
    }
    Ok(())
}

/// For a named target, as the flags must not reach what runs while it is built.
fn build(name: &str, nightly: bool) -> Command {
    let (mut cargo, flags) = if nightly {
        (sanitize::nightly(""), format!("{COVERAGE} -Zsanitizer=address"))
    } else {
        println!("without AddressSanitizer: it needs a nightly compiler");
        (sh::command("cargo"), COVERAGE.to_owned())
    };
    cargo.args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--bin", name]);
    cargo.args(["--target", &target(), "--target-dir", "target/fuzz"]);
    cargo.env("RUSTFLAGS", flags);
    cargo
}

fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn run(name: &str, seconds: &str) -> Command {
    let mut fuzzer = sh::command(&format!("target/fuzz/{}/release/{name}", target()));
    // What is new goes to the first folder.
    fuzzer.args(["corpus", "seeds"].map(|folder| format!("target/fuzz/{folder}-{name}")));
    fuzzer.arg(format!("fuzz/regressions/{name}"));
    fuzzer.arg(format!("-artifact_prefix=target/fuzz/findings-{name}/"));
    let most_bytes = row(name).most_bytes;
    fuzzer.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={most_bytes}"));
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
        let shown = sh::shown(&build("lookup", true));
        assert!(shown.contains("rustup run nightly cargo build --release"), "{shown}");
        assert!(
            shown.contains("-Zsanitizer=address") && shown.contains("--target-dir target/fuzz")
        );
        assert!(!sh::shown(&build("lookup", false)).contains("-Z"));
        let shown = sh::shown(&run("graph", "60"));
        let folders =
            "/graph target/fuzz/corpus-graph target/fuzz/seeds-graph fuzz/regressions/graph ";
        assert!(shown.contains(folders), "{shown}");
        assert!(shown.contains("-artifact_prefix=target/") && shown.contains("-max_total_time=60"));
        assert!(shown.contains("-max_len=8192") && row("frame").most_bytes == 2048);
        // The length of an FPM frame has 16 bits.
        assert!(sh::shown(&run("fpm", "60")).contains("-max_len=65536"));
    }

    #[test]
    fn every_target_is_built_and_has_something_to_start_from() {
        let names = targets().unwrap();
        assert!(names.len() >= 7 && ROWS.iter().all(|row| names.iter().any(|n| n == row.name)));
        let manifest = fs::read_to_string(sh::root().join("fuzz/Cargo.toml")).unwrap();
        for name in &names {
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
            let folder = sh::root().join("fuzz/regressions").join(name);
            let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name());
            // What keeps an empty folder is no input.
            let mut inputs = files.filter(|name| !name.to_string_lossy().starts_with('.'));
            assert!(inputs.next().is_some(), "{name}");
        }
        let error = fuzz(&["nothing".into()]).unwrap_err().to_string();
        assert!(error.contains("no target nothing, but acl, bmp, control, "), "{error}");
    }
}
