//! `cargo xtask test` and `cargo xtask check`: every step runs, whatever became of the one before. Steps that others do not
//! wait for work beside them. The last step runs in a machine of its own what skipped for want of one.
//!
//! The last line of standard output is `N passed, N failed, N skipped`, alone; the exit status is 1
//! when anything failed. A step that is no test, such as the linter, counts as one. All that the
//! steps wrote, also what passed tests wrote, is in `target/xtask/test.log`.

use std::fs::File;
use std::io::Write;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};

use crate::debian;
use crate::lanes::{self, Ended, Program};
use crate::package;
use crate::peers;
use crate::sh;
use crate::tally::{Tally, TestReader};
use crate::vm::{self, Machine};

/// How a step is counted.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Counted as one.
    Gate,
    /// Counted by the tests it runs.
    Tests,
    /// Likewise: `cargo test` builds them, and they run in lanes.
    Programs,
}

/// When a step works.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    /// In its place, after those before it.
    InOrder,
    /// From the beginning, beside those that stand before it: the last crates of a release build keep one core alone.
    Ahead,
    /// Beside the test programs, in the time that they leave on the processors: they wait more than they work.
    Beside,
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
    turn: Turn,
}

/// Failed programs that are run again, at most.
const MOST_AGAIN: usize = 12;

/// Arguments of test programs: without the first nothing would be counted as skipped.
const SHOWN: &[&str] = &["--show-output"];

const STEPS: &[Step] = &[
    gate("format", "cargo fmt --all --check"),
    // Workspaces of their own.
    gate("format of peers", "cargo fmt --manifest-path lab/peers/crates/Cargo.toml --check"),
    gate("format of fuzz", "cargo fmt --manifest-path fuzz/Cargo.toml --check"),
    gate("format of book", "cargo fmt --manifest-path xtask/book/Cargo.toml --check"),
    gate("lines", "cargo xtask lines"),
    // What is linked (deny.toml). Building cargo-deny takes longer than all other steps: it runs where it is installed,
    // and tests/tests/licences.rs holds the same by itself but for advisories.
    gate("deny", "cargo deny check licenses bans sources"),
    gate("advisories", "cargo deny check advisories"),
    // Before the release build is waited for, which keeps one core alone for minutes.
    Step {
        quick: false,
        ..gate("test programs", "cargo test --workspace --all-features --no-run")
    },
    // The tests in namespaces start the programs as they are shipped.
    Step { quick: false, turn: Turn::Ahead, ..gate("release", sh::RELEASE) },
    beside(gate("lint", "cargo clippy --workspace --all-targets --all-features -- -D warnings")),
    // The lookup crate is for kernels and other places without an operating system too.
    beside(gate("no_std", "cargo check --package fingerpost-lpm --no-default-features")),
    // The programs of the static tarball have another C library, whose types differ.
    beside(gate(
        "static",
        "cargo check --package fingerpost --package fingerpost-lab --target x86_64-unknown-linux-musl",
    )),
    Step {
        env: &[("RUSTDOCFLAGS", crate::DOC_FLAGS)],
        quick: false,
        ..beside(gate("docs", "cargo doc --workspace --all-features --no-deps"))
    },
    // Every page is in it, and every link leads somewhere.
    Step { quick: false, ..beside(gate("book", "cargo xtask docs book")) },
    Step {
        kind: Kind::Tests,
        quick: false,
        ..beside(gate(
            "tests of book",
            "cargo test --manifest-path xtask/book/Cargo.toml --target-dir target/book-tool --no-fail-fast -- --show-output",
        ))
    },
    Step {
        kind: Kind::Tests,
        ..beside(gate(
            "examples in documentation",
            "cargo test --workspace --all-features --doc --no-fail-fast -- --show-output",
        ))
    },
    // Every interleaving of publishing and reading. `--cfg loom` swaps the atomics of the whole
    // crate, so it has a target folder of its own; tests for it are named `loom_`.
    Step {
        kind: Kind::Tests,
        env: &[("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")],
        quick: false,
        ..beside(gate(
            "loom",
            "cargo test --package fingerpost-route --lib --no-fail-fast loom_ -- --show-output",
        ))
    },
    Step { kind: Kind::Programs, ..gate("tests", "cargo test --workspace --all-features") },
];

const fn gate(name: &'static str, command: &'static str) -> Step {
    Step { name, kind: Kind::Gate, env: &[], command, quick: true, turn: Turn::InOrder }
}

const fn beside(step: Step) -> Step {
    Step { turn: Turn::Beside, ..step }
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
    let log = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut book = Book { tally: Tally::default(), log };
    let (mut ahead, mut beside, mut in_order) = (Vec::new(), Vec::new(), Vec::new());
    for step in STEPS.iter().filter(|step| step.quick || !quick) {
        if let Some(needs) = component_missing(step.name) {
            println!("skipped: needs {needs}");
            book.tally.skip(step.name, needs);
            continue;
        }
        match step.turn {
            Turn::InOrder => in_order.push(step),
            Turn::Ahead => ahead.push(thread::spawn(|| step.work(step.command_line(), false))),
            Turn::Beside => beside.push(step),
        }
    }
    for step in in_order {
        let began = Instant::now();
        if step.kind == Kind::Programs {
            for work in ahead.drain(..) {
                book.enter(work.join().map_err(|_| anyhow!("a step is lost"))?)?;
            }
            if let Err(error) = programs(&mut book, step, std::mem::take(&mut beside), quick) {
                println!("{error:#}");
                book.tally.gate(step.name, false);
            }
            println!("{}: {} s\n", step.name, began.elapsed().as_secs());
        } else {
            book.enter(step.work(step.command_line(), true))?;
        }
    }
    let began = Instant::now();
    if let Err(error) = in_machine(&mut book.tally, &mut book.log) {
        println!("{error:#}");
        book.tally.gate("vm", false);
    }
    println!("vm: {} s\n", began.elapsed().as_secs());
    println!("{}", book.tally.report());
    if !book.tally.ok() {
        // Not an error to print: the sums stay the last line, also where both outputs are one.
        std::process::exit(1);
    }
    Ok(())
}

/// Runs the test programs: those that run alone, the others in lanes with the steps beside them, and once more, alone, those
/// that failed there.
fn programs(book: &mut Book, step: &Step, beside: Vec<&'static Step>, quick: bool) -> Result<()> {
    let built = book.build(step)?;
    ensure!(!built.is_empty(), "{}: no test program was built", step.name);
    let (alone, rest) = lanes::split(built);
    // Cargo builds one thing at a time: the steps beside begin when nobody waits for it. They get the processor when nothing
    // else wants it, which is most of the time also while programs run alone.
    let beside = thread::spawn(|| beside.into_iter().map(Step::work_idle).collect());
    let ran = book.run(step, alone, 1, quick).and_then(|mut failed| {
        failed.extend(book.run(step, rest, lanes::LANES, quick)?);
        Ok(failed)
    });
    let done: Vec<Done> = beside.join().map_err(|_| anyhow!("a step is lost"))?;
    done.into_iter().try_for_each(|done| book.enter(done))?;
    book.run_again(step, ran?, quick)
}

/// A step that is over.
struct Done {
    step: &'static Step,
    status: Result<ExitStatus>,
    said: Vec<String>,
    /// Its output was shown as it came; that of steps beside others is shown all at once.
    live: bool,
    seconds: u64,
}

impl Step {
    fn command_line(&self) -> Command {
        sh::command(self.command)
    }

    fn work_idle(&'static self) -> Done {
        self.work(sh::idle(self.command), false)
    }

    /// `live`: its output is shown as it comes.
    fn work(&'static self, mut command: Command, live: bool) -> Done {
        let (began, mut said) = (Instant::now(), Vec::new());
        command.envs(self.env.iter().copied());
        let status = sh::lines(&mut command, |line| {
            if live {
                println!("{line}");
            }
            said.push(line.into());
        });
        Done { step: self, status, said, live, seconds: began.elapsed().as_secs() }
    }
}

/// Counts and log of the steps.
struct Book {
    tally: Tally,
    log: File,
}

impl Book {
    /// Counts a step that is over, and shows its output.
    fn enter(&mut self, done: Done) -> Result<()> {
        let Done { step, status, said, live, seconds } = done;
        writeln!(self.log, "$ {}", step.command)?;
        let ok = status.as_ref().is_ok_and(ExitStatus::success);
        let mut reader =
            (step.kind != Kind::Gate).then(|| TestReader::new(step.name, &mut self.tally));
        for line in said {
            if reader.as_mut().is_none_or(|reader| reader.line(&line)) && !live {
                println!("{line}");
            }
            writeln!(self.log, "{line}")?;
        }
        match reader {
            Some(reader) => reader.end(ok),
            None => self.tally.gate(step.name, ok),
        }
        if let Err(error) = status {
            println!("{error:#}");
        }
        println!("{}: {seconds} s\n", step.name);
        Ok(())
    }

    /// Builds the test programs.
    fn build(&mut self, step: &Step) -> Result<Vec<Program>> {
        let mut lost = Ok(());
        let programs = lanes::build(&mut step.command_line(), |line| {
            println!("{line}");
            if lost.is_ok() {
                lost = writeln!(self.log, "{line}");
            }
        })?;
        lost.context("cannot write the log")?;
        Ok(programs)
    }

    /// Runs test programs in so many lanes, and counts those that pass. Returns the others.
    fn run(
        &mut self,
        step: &Step,
        programs: Vec<Program>,
        lanes: usize,
        quick: bool,
    ) -> Result<Vec<Program>> {
        let mut failed = Vec::new();
        lanes::run(programs, lanes, SHOWN, env(quick), |ended| {
            if ended.passed() {
                return self.enter_program(step, &ended);
            }
            // Shown, and not counted.
            let tally = std::mem::take(&mut self.tally);
            let entered = self.enter_program(step, &ended);
            self.tally = tally;
            failed.push(ended.program);
            entered
        })?;
        Ok(failed)
    }

    /// Runs failed programs once more, alone, and counts what they do there: beside others, times are not the program's own.
    /// That does not explain many failures.
    fn run_again(&mut self, step: &Step, mut programs: Vec<Program>, quick: bool) -> Result<()> {
        for program in programs.split_off(programs.len().min(MOST_AGAIN)) {
            self.tally.gate(program.running(), false);
        }
        for program in &programs {
            self.tally.again(program.running());
        }
        lanes::run(programs, 1, SHOWN, env(quick), |ended| self.enter_program(step, &ended))
    }

    /// Counts a program that is over, and shows its output.
    fn enter_program(&mut self, step: &Step, ended: &Ended) -> Result<()> {
        let mut reader = TestReader::new(step.name, &mut self.tally);
        for line in [ended.program.headline()].iter().chain(&ended.lines) {
            if reader.line(line) {
                println!("{line}");
            }
            writeln!(self.log, "{line}").context("cannot write the log")?;
        }
        match &ended.status {
            Err(error) => println!("{error:#}"),
            Ok(status) if status.code() == Some(124) => {
                println!("ended after {} s", lanes::LIMIT_SECONDS);
            }
            Ok(_) => {}
        }
        reader.program_ended(ended.passed());
        println!("{} s\n", ended.took.as_secs());
        Ok(())
    }
}

/// Variables of test programs.
fn env(quick: bool) -> lanes::Env<'static> {
    if quick { &[("FINGERPOST_QUICK", "1")] } else { &[] }
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
            vm::Program { running, args: args.collect() }
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
        "format" | "format of peers" | "format of fuzz" | "format of book" => {
            ("cargo fmt --version", "rustfmt")
        }
        "lint" => ("cargo clippy --version", "clippy"),
        "static" => return package::static_missing(),
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
        let formats = ["format", "format of peers", "format of fuzz", "format of book"];
        let gates = [
            "lines",
            "deny",
            "advisories",
            "lint",
            "no_std",
            "static",
            "examples in documentation",
            "tests",
        ];
        assert_eq!(quick, [&formats[..], &gates].concat());
        assert!(STEPS.iter().filter(|s| s.quick).all(|s| !s.command.contains("--release")));
    }

    #[test]
    fn steps_ahead_and_beside_are_counted_as_others_are() {
        let step = |name| STEPS.iter().find(|step| step.name == name).unwrap();
        let log = File::create(sh::scratch("unit").unwrap().join("ahead.log")).unwrap();
        let mut book = Book { tally: Tally::default(), log };
        let said = vec!["test result: ok. 3 passed; 0 failed; 0 ignored".to_owned()];
        let lost =
            Done { step: step("lint"), status: Err(anyhow!("no")), said, live: false, seconds: 0 };
        book.enter(lost).unwrap();
        let work = |name| {
            step(name)
                .work(sh::command("echo test result: ok. 3 passed; 0 failed; 0 ignored"), false)
        };
        book.enter(work("docs")).unwrap();
        book.enter(work("loom")).unwrap();
        assert_eq!(book.tally.report(), "\nfailed: lint\n4 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn test_programs_show_what_they_write() {
        // Without it nothing would be counted as skipped.
        for step in STEPS.iter().filter(|step| step.kind == Kind::Tests) {
            assert!(step.command.ends_with(SHOWN[0]) && step.command.contains("--no-fail-fast"));
        }
    }
}
