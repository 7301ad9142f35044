//! The list of what can be done, as `cargo xtask NAME`; nothing has to be installed first.
//!
//! Each task is a few plain commands, printed before they run, that work as well when typed by hand.
//! This crate needs little beside the standard library, so that it is built in seconds.

mod cost;
mod debian;
mod fastclick;
mod fuzz;
mod lanes;
mod lines;
/// Messages of what is shared with the programs.
mod output {
    pub(crate) fn message(words: &str) {
        eprintln!("xtask: {words}");
    }

    /// No message comes while a command runs.
    pub(crate) fn drawn(_: fn(&mut dyn FnMut())) {}
}
mod package;
mod peers;
#[path = "../../crates/command/src/progress.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared with the programs, which use all of it")]
mod progress;
mod sanitize;
mod sh;
#[path = "../../tests/src/source.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared with the tests, which use all of it")]
mod source;
mod tables;
mod tally;
mod test;
mod vm;
#[path = "../../tests/src/words.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared with the tests, which use all of it")]
mod words;

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use sh::root;

/// A link to a private item is plain text for readers from outside, and a help for those inside.
const DOC_FLAGS: &str = "-D warnings -A rustdoc::private-intra-doc-links";

/// A task: a row of the help and what it does.
struct Task {
    name: &'static str,
    usage: &'static str,
    summary: &'static str,
    run: fn(&[String]) -> Result<()>,
}

const TASKS: &[Task] = &[
    Task {
        name: "test",
        usage: "",
        summary: "install what the tests talk to, then format, lint and every layer of tests",
        run: test::test,
    },
    Task {
        name: "check",
        usage: "",
        summary: "format, lint and the quick layers of tests; no release build, no namespaces",
        run: test::check,
    },
    Task {
        name: "demo",
        usage: "[ARGS...]",
        summary: "build fingerpost and fingerpost-lab, and run the demo: a router forwards at full rate",
        run: |args| lab("demo", args),
    },
    Task {
        name: "bench",
        usage: "[ARGS...]",
        summary: "fingerpost-lab bench ARGS, from a release build",
        run: |args| lab("bench", args),
    },
    Task {
        name: "peers",
        usage: "[NAME..]",
        summary: "build what bench compares with, in target/peers (DPDK, Go, Rust, Python; network); fastclick --source DIR: build FastClick or Click from its source, and measure it beside ours",
        run: peers::peers,
    },
    Task {
        name: "vm",
        usage: "TEST [FILTER..]",
        summary: "a file of tests/tests, or the tests of a package, under Debian's kernel in a machine (KVM)",
        run: vm::vm,
    },
    Task {
        name: "package",
        usage: "[deb|rpm|tar]..",
        summary: "packages in target/package: .deb, .rpm, a tarball of static programs; --programs DIR packs what is built",
        run: package::package,
    },
    Task {
        name: "docs",
        usage: "[book]",
        summary: "docs/reference anew, the API of every crate in target/doc, and all pages as one book in target/book; warnings \
                  and broken links fail",
        run: docs,
    },
    Task {
        name: "words",
        usage: "[PATH..]",
        summary: "words that docs/glossary.md replaces, and fragments, below PATHs or counted by folder",
        run: glossary,
    },
    Task {
        name: "lines",
        usage: "",
        summary: "lines of source per room, without tests; more than the recorded bound fail",
        run: lines::lines,
    },
    Task {
        name: "cost",
        usage: "COMMIT",
        summary: "the files that an addition edited outside its own; more than three fail",
        run: cost::cost,
    },
    Task {
        name: "tables",
        usage: "[--out DIR]",
        summary: "make the tables of testdata/tables again, from their sources (go, npm, network)",
        run: tables::tables,
    },
    Task {
        name: "soak",
        usage: "NAME [SECONDS [TEST]]",
        summary: "tests named NAME for SECONDS (600; matrices of cluster_rule, 10000): proof, fib, xdp, cluster, cluster_rule, at_once, \
                  takeover, failover, tour, storm, metrics, fpm, bmp, chaos, ...; of a file of tests those with TEST in their \
                  names; asan and miri",
        run: soak,
    },
    Task {
        name: "fuzz",
        usage: "[NAME [SECONDS]]",
        summary: "a target of fuzz/fuzz_targets for SECONDS (600), or each of them for a minute",
        run: fuzz::fuzz,
    },
    Task { name: "help", usage: "", summary: "this list", run: help },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = args.split_first().map_or(("help", &args[..]), |(n, r)| (n.as_str(), r));
    let name = if matches!(name, "-h" | "--help") { "help" } else { name };
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        eprintln!("xtask: no task {name}; cargo xtask help lists them");
        return ExitCode::from(2);
    };
    match (task.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn help(_: &[String]) -> Result<()> {
    println!("cargo xtask NAME, with NAME one of\n");
    for task in TASKS {
        let call = format!("{} {}", task.name, task.usage);
        println!("  {call:<22} {}", task.summary);
    }
    println!("\nCONTRIBUTING.md has more.");
    Ok(())
}

/// Builds both programs and runs a command of the lab; its exit code is ours.
fn lab(command: &str, args: &[String]) -> Result<()> {
    sh::run(&mut sh::command(sh::RELEASE))?;
    let mut lab = sh::command("target/release/fingerpost-lab");
    lab.arg(command).args(args);
    println!("$ {}", sh::shown(&lab));
    // Standard output is that of the command.
    let status = lab.status().context("target/release/fingerpost-lab")?;
    std::process::exit(status.code().unwrap_or(1));
}

/// The reference, the API and the book; or the book alone, of the pages as they are.
fn docs(args: &[String]) -> Result<()> {
    if args == ["book"] {
        return book();
    }
    // The pages of docs/reference, from a build of this moment.
    sh::run(&mut sh::command("cargo build --package fingerpost"))?;
    let mut pages = sh::command("cargo test --package fingerpost-tests --test reference");
    let program = sh::root().join("target/debug/fingerpost");
    sh::run(pages.env("FINGERPOST_ACCEPT", "1").env("FINGERPOST_BIN", program))?;
    let mut doc = sh::command("cargo doc --workspace --all-features --no-deps");
    sh::run(doc.args(args).env("RUSTDOCFLAGS", DOC_FLAGS))?;
    book()
}

/// The book, by a tool of a workspace of its own: its packages would double the time until `cargo xtask` itself runs.
fn book() -> Result<()> {
    let tool =
        "cargo run --quiet --manifest-path xtask/book/Cargo.toml --target-dir target/book-tool";
    let mut make = sh::command(tool);
    sh::run(make.args(["--locked", "--", ".", "target/book"]))
}

/// Lists the breaches of the language rules below paths, or counts them by folder.
fn glossary(args: &[String]) -> Result<()> {
    if args.is_empty() {
        let all: Vec<_> = words::files(".").iter().flat_map(words::check).collect();
        for (folder, count) in words::by_folder(&all) {
            println!("{count:>6}  {folder}");
        }
        println!(
            "{:>6}  in all; cargo xtask words PATH lists those of a file or folder",
            all.len()
        );
        return Ok(());
    }
    let mut all = 0;
    for path in args {
        let path = path.trim_start_matches("./").trim_end_matches('/');
        for breach in words::files(path).iter().flat_map(words::check) {
            println!("{breach}");
            all += 1;
        }
    }
    if all > 0 {
        bail!("{all} to mend; docs/glossary.md has the words");
    }
    Ok(())
}

/// A soak is an ordinary test that runs for as long as `FINGERPOST_SOAK_SECONDS` sets, `cluster_rule` for as many
/// matrices as `FINGERPOST_MATRICES`; two names are the same tests under another compiler, and `fuzz_NAME` is a fuzzer.
fn soak(args: &[String]) -> Result<()> {
    let is_number = |text: &String| text.parse::<u32>().is_ok();
    let (name, seconds, filter) = match args {
        [name] if name == "cluster_rule" => (name, "10000", ""),
        [name] if name == "asan" => return sanitize::asan(),
        [name] if name == "miri" => return sanitize::miri(),
        [name] => (name, "600", ""),
        [name, seconds] if is_number(seconds) => (name, seconds.as_str(), ""),
        [name, seconds, filter] if is_number(seconds) => (name, seconds.as_str(), filter.as_str()),
        _ => bail!("usage: cargo xtask soak NAME [SECONDS [TEST]]"),
    };
    if let Some(target) = name.strip_prefix("fuzz_") {
        ensure!(filter.is_empty(), "{name} is a fuzzer, which has no tests to select from");
        return fuzz::fuzz(&[target.to_owned(), seconds.to_owned()]);
    }
    let of_program = [
        "at_once",
        "bmp",
        "chaos",
        "cluster",
        "cluster_matrices",
        "cluster_overload",
        "fpm",
        "kernel_table",
        "metrics",
        "pages",
        "ports",
        "reflectors",
        "stalls",
        "takeover",
        "failover",
        "package",
        "service",
        "tour",
        "storm",
    ];
    if of_program.contains(&name.as_str()) {
        // What counts is how the program was built, not who watches it.
        let programs = match name.as_str() {
            "cluster" => "cluster_faults --test cluster_restart --test cluster_store",
            name => name,
        };
        sh::run(&mut sh::command(sh::RELEASE))?;
        let tests = format!(
            "cargo test --package fingerpost-tests --test {programs} -- {filter} --nocapture"
        );
        return sh::run(sh::command(&tests).env("FINGERPOST_SOAK_SECONDS", seconds));
    }
    ensure!(filter.is_empty(), "{name} is no file of tests of which TEST selects some");
    // Of one package, the tests that need no program can go on without the others being built.
    let mut tests = sh::command("cargo test --release");
    if name == "proof" {
        // With every row there is.
        let package = ["--package", "fingerpost-tests", "--features", "fingerpost-lpm/poptrie"];
        tests.args(package).args(["--test", "proof"]);
    } else if name == "fib" {
        tests.args(["--package", "fingerpost-route", "--test", "soak_fib"]);
    } else if name == "cluster_rule" {
        tests.args(["--package", "fingerpost-cluster", "--test", "admissible"]);
    } else if name == "cluster_delta" {
        tests.args(["--package", "fingerpost-cluster", "--test", "reordering"]);
    } else if name == "cluster_probe" {
        tests.args(["--package", "fingerpost-cluster", "--test", "probes"]);
    } else if ["click_filters", "click_tables", "click_notes"].contains(&name.as_str()) {
        tests.args(["--package", "fingerpost-packet", "--test", name]);
    } else if name == "xdp" {
        tests.args(["--package", "fingerpost-tests", "--test", "xdp_lookup"]);
    } else {
        sh::run(&mut sh::command(sh::RELEASE))?;
        tests.args(["--workspace", "--all-features"]);
    }
    let limit =
        if name == "cluster_rule" { "FINGERPOST_MATRICES" } else { "FINGERPOST_SOAK_SECONDS" };
    sh::run(tests.args([name, "--", "--nocapture"]).env(limit, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuzzer_has_no_tests_to_select_from() {
        let refused = soak(&["fuzz_lookup", "1", "v4"].map(String::from)).unwrap_err();
        assert!(refused.to_string().contains("fuzz_lookup is a fuzzer"), "{refused}");
    }
}
