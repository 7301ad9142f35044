//! `cargo xtask test` and `cargo xtask check`: every step runs, whatever became of the one before. One that only builds
//! works beside others until it is needed. The last step runs in a machine of its own what skipped for want of one.
//!
//! The last line of standard output is `N passed, N failed, N skipped`, alone; the exit status is 1
//! when anything failed. A step that is no test, such as the linter, counts as one. All that the
//! steps wrote, also what passed tests wrote, is in `target/xtask/test.log`.

use std::fs::File;
use std::io::Write;
use std::process::{Command, ExitStatus};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};

use crate::debian;
use crate::peers;
use crate::sh;
use crate::tally::{Tally, TestReader};
use crate::vm::{Machine, Program};

/// How a step is counted.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Counted as one.
    Gate,
    /// Counted by the tests it runs.
    Tests,
}

/// One plain command.
struct Step {
    name: &'static str,
    kind: Kind,
    /// Variables set for it.
    env: &'static [(&'static str, &'static str)],
    command: &'static str,
    /// Also without namespaces and release builds.
    quick: bool,
    /// Begins before all others, and works beside those that stand before it: the last crates of a release build
    /// keep one core alone.
    ahead: bool,
}

/// Builds the programs as they are shipped.
pub(crate) const RELEASE: &str =
    "cargo build --release --package fingerpost --package fingerpost-lab";

const STEPS: &[Step] = &[
    gate("format", "cargo fmt --all --check"),
    // Workspaces of their own.
    gate("format of peers", "cargo fmt --manifest-path lab/peers/crates/Cargo.toml --check"),
    gate("format of fuzz", "cargo fmt --manifest-path fuzz/Cargo.toml --check"),
    gate("lines", "cargo xtask lines"),
    gate("lint", "cargo clippy --workspace --all-targets --all-features -- -D warnings"),
    // What is linked (deny.toml). Building cargo-deny takes longer than all other steps: it runs where it is installed,
    // and tests/tests/licences.rs holds the same by itself but for advisories.
    gate("deny", "cargo deny check licenses bans sources"),
    gate("advisories", "cargo deny check advisories"),
    // The lookup crate is for kernels and other places without an operating system too.
    gate("no_std", "cargo check --package fingerpost-lpm --no-default-features"),
    Step {
        env: &[("RUSTDOCFLAGS", crate::DOC_FLAGS)],
        quick: false,
        ..gate("docs", "cargo doc --workspace --all-features --no-deps")
    },
    // Before the release build is waited for, which keeps one core alone for minutes.
    Step {
        quick: false,
        ..gate("test programs", "cargo test --workspace --all-features --no-run")
    },
    // The tests in namespaces start the programs as they are shipped.
    Step { quick: false, ahead: true, ..gate("release", RELEASE) },
    Step {
        name: "tests",
        kind: Kind::Tests,
        env: &[],
        command: "cargo test --workspace --all-features --no-fail-fast -- --show-output",
        quick: true,
        ahead: false,
    },
    // Every interleaving of publishing and reading. `--cfg loom` swaps the atomics of the whole
    // crate, so it has a target folder of its own; tests for it are named `loom_`.
    Step {
        name: "loom",
        kind: Kind::Tests,
        env: &[("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")],
        command: "cargo test --package fingerpost-route --lib --no-fail-fast loom_ -- --show-output",
        quick: false,
        ahead: false,
    },
];

const fn gate(name: &'static str, command: &'static str) -> Step {
    Step { name, kind: Kind::Gate, env: &[], command, quick: true, ahead: false }
}

/// All of it.
pub(crate) fn test(args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "usage: cargo xtask test");
    debian::provide();
    peers::provide();
    all(false)
}

/// What needs neither privilege nor a release build.
pub(crate) fn check(args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "usage: cargo xtask check");
    all(true)
}

fn all(quick: bool) -> Result<()> {
    let log = sh::scratch("")?.join("test.log");
    let mut log = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut tally = Tally::default();
    let steps = || STEPS.iter().filter(|step| step.quick || !quick);
    let mut ahead: Vec<_> = steps().filter(|step| step.ahead).map(begin).collect();
    for step in steps() {
        if let Some(at) = ahead.iter().position(|begun| begun.step.name == step.name) {
            end(ahead.swap_remove(at), &mut tally, &mut log)?;
            continue;
        }
        if let Some(needs) = component_missing(step.name) {
            println!("skipped: needs {needs}");
            tally.skip(step.name, needs);
            continue;
        }
        let mut command = sh::command(step.command);
        command.envs(step.env.iter().copied());
        if quick && step.kind == Kind::Tests {
            command.env("FINGERPOST_QUICK", "1");
        }
        let began = Instant::now();
        if let Err(error) = run(step, &mut command, &mut tally, &mut log) {
            println!("{error:#}");
            tally.gate(step.name, false);
        }
        println!("{}: {} s\n", step.name, began.elapsed().as_secs());
    }
    let began = Instant::now();
    if let Err(error) = in_machine(&mut tally, &mut log) {
        println!("{error:#}");
        tally.gate("vm", false);
    }
    println!("vm: {} s\n", began.elapsed().as_secs());
    println!("{}", tally.report());
    if !tally.ok() {
        // Not an error to print: the sums stay the last line, also where both outputs are one.
        std::process::exit(1);
    }
    Ok(())
}

/// A gate that works beside others.
struct Begun {
    step: &'static Step,
    work: JoinHandle<(Result<ExitStatus>, Vec<String>, u64)>,
}

fn begin(step: &'static Step) -> Begun {
    let work = thread::spawn(|| {
        let (began, mut said) = (Instant::now(), Vec::new());
        let mut command = sh::command(step.command);
        let done = sh::lines(command.envs(step.env.iter().copied()), |line| said.push(line.into()));
        (done, said, began.elapsed().as_secs())
    });
    Begun { step, work }
}

/// Waits for it; its output comes all at once, in its place.
fn end(begun: Begun, tally: &mut Tally, log: &mut File) -> Result<()> {
    let Begun { step, work } = begun;
    let began = Instant::now();
    let (done, said, seconds) = work.join().map_err(|_| anyhow!("{}: lost", step.name))?;
    writeln!(log, "$ {}", step.command)?;
    for line in said {
        println!("{line}");
        writeln!(log, "{line}")?;
    }
    if let Err(error) = &done {
        println!("{error:#}");
    }
    tally.gate(step.name, done.is_ok_and(|status| status.success()));
    let waited = began.elapsed().as_secs();
    println!("{}: {seconds} s, {waited} of them waited for\n", step.name);
    Ok(())
}

fn run(step: &Step, command: &mut Command, tally: &mut Tally, log: &mut File) -> Result<()> {
    writeln!(log, "$ {}", sh::shown(command))?;
    let mut lost = Ok(());
    if step.kind == Kind::Gate {
        let status = sh::lines(command, |line| {
            println!("{line}");
            if lost.is_ok() {
                lost = writeln!(log, "{line}");
            }
        })?;
        tally.gate(step.name, status.success());
    } else {
        let mut reader = TestReader::new(step.name, tally);
        let status = sh::lines(command, |line| {
            if reader.line(line) {
                println!("{line}");
            }
            if lost.is_ok() {
                lost = writeln!(log, "{line}");
            }
        })?;
        reader.end(status.success());
    }
    lost.context("cannot write the log")
}

/// Runs the tests that need a machine with what is not here in one that has it, all in the same.
fn in_machine(tally: &mut Tally, log: &mut File) -> Result<()> {
    let wanted = tally.for_machine();
    if wanted.is_empty() {
        return Ok(());
    }
    let machine = match Machine::new() {
        Ok(machine) => machine,
        Err(needs) => {
            tally.without_machine(&needs);
            return Ok(());
        }
    };
    tally.in_machine();
    let programs: Vec<_> = wanted
        .into_iter()
        .map(|(running, tests)| {
            let args = ["--exact", "--show-output"].map(str::to_owned).into_iter().chain(tests);
            Program { running, args: args.collect() }
        })
        .collect();
    let mut reader = TestReader::new("vm", tally);
    let mut lost = Ok(());
    let ok = machine.run(&programs, |line| {
        if reader.line(line) {
            println!("{line}");
        }
        if lost.is_ok() {
            lost = writeln!(log, "{line}");
        }
    })?;
    reader.end(ok);
    lost.context("cannot write the log")
}

/// rustfmt and clippy are components of the toolchain that may have been left out; cargo-deny is a program of its own, with
/// a database that it fetches.
fn component_missing(step: &str) -> Option<&'static str> {
    let (subcommand, component) = match step {
        "deny" | "advisories" => {
            let has = |words: &str| sh::works(&mut sh::command(words));
            if !has("cargo deny --version") {
                return Some("cargo-deny (cargo install --locked cargo-deny)");
            }
            let missing = step == "advisories" && !has("cargo deny fetch db");
            return missing.then_some("the database of advisories (cargo deny fetch db)");
        }
        "format" | "format of peers" | "format of fuzz" => ("cargo fmt --version", "rustfmt"),
        "lint" => ("cargo clippy --version", "clippy"),
        _ => return None,
    };
    if sh::works(&mut sh::command(subcommand)) {
        return None;
    }
    let added = sh::run(sh::command("rustup component add").arg(component));
    if let Err(error) = added {
        println!("{error:#}");
    }
    if sh::works(&mut sh::command(subcommand)) { None } else { Some(component) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_check_builds_no_release_and_keeps_the_tests() {
        let quick: Vec<_> = STEPS.iter().filter(|step| step.quick).map(|step| step.name).collect();
        let formats = ["format", "format of peers", "format of fuzz"];
        let gates = ["lines", "lint", "deny", "advisories", "no_std", "tests"];
        assert_eq!(quick, [&formats[..], &gates].concat());
        assert!(STEPS.iter().filter(|s| s.quick).all(|s| !s.command.contains("--release")));
    }

    #[test]
    fn only_gates_work_beside_others() {
        assert!(STEPS.iter().filter(|step| step.ahead).all(|step| step.kind == Kind::Gate));
        let step = STEPS.iter().find(|step| step.name == "format").unwrap();
        let (mut tally, mut log) = (Tally::default(), log_file());
        let begun = Begun { step, work: thread::spawn(|| (Err(anyhow!("no")), Vec::new(), 0)) };
        end(begun, &mut tally, &mut log).unwrap();
        assert!(!tally.ok() && tally.report().contains("failed: format"));
    }

    fn log_file() -> File {
        File::create(sh::scratch("unit").unwrap().join("ahead.log")).unwrap()
    }

    #[test]
    fn test_programs_show_what_they_write() {
        // Without it nothing would be counted as skipped.
        for step in STEPS.iter().filter(|step| step.kind == Kind::Tests) {
            assert!(
                step.command.ends_with("--show-output") && step.command.contains("--no-fail-fast")
            );
        }
    }
}
