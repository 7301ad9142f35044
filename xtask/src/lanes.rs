//! Test programs in lanes: several run at a time, as most of them wait for routers, daemons and clocks.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::sh;

/// Programs that run at the same time, of those that may.
pub(crate) const LANES: usize = 3;

/// Longest time of a program, in seconds. One that hangs is ended, with what it started, and fails.
pub(crate) const LIMIT_SECONDS: u32 = 600;

/// Programs that assert times of milliseconds: no other one runs beside them, only steps that get the processor when it is idle.
const ALONE: &[&str] =
    &["at_once", "cluster_faults", "cluster_overload", "failover", "probes", "stalls", "storm"];

/// Programs that take longest: they begin first, so that none of them is the last to run.
const LONG: &[&str] = &[
    "cluster",
    "cluster_store",
    "cluster_parameters",
    "cluster_restart",
    "cluster_matrices",
    "tour",
    "shares",
    "chaos",
    "crowds",
    "cluster_order",
];

/// Variables of the environment.
pub(crate) type Env<'a> = &'a [(&'a str, &'a str)];

/// A test program that cargo built.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Program {
    /// Name of the target: `cluster` for `tests/cluster.rs`.
    name: String,
    /// Text that cargo prints when it runs the program: `tests/cluster.rs (target/debug/deps/cluster-0123)`.
    running: String,
    file: PathBuf,
    /// Folder of its package, where it runs.
    package: PathBuf,
}

/// A program that has ended, with its output.
pub(crate) struct Ended {
    pub(crate) program: Program,
    pub(crate) lines: Vec<String>,
    pub(crate) status: Result<ExitStatus>,
    pub(crate) took: Duration,
}

impl Ended {
    pub(crate) fn passed(&self) -> bool {
        self.status.as_ref().is_ok_and(ExitStatus::success)
    }
}

impl Program {
    /// Its name in the line that cargo writes before it runs it.
    pub(crate) fn running(&self) -> &str {
        &self.running
    }

    /// That line.
    pub(crate) fn headline(&self) -> String {
        format!("     Running {}", self.running)
    }

    /// Reads a message of `cargo test --no-run --message-format=json`; `None` for one about something else.
    fn read(message: &str) -> Option<Self> {
        let message: serde_json::Value = serde_json::from_str(message).ok()?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let (target, file) = (&message["target"], PathBuf::from(message["executable"].as_str()?));
        let package = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        let source = PathBuf::from(target["src_path"].as_str()?);
        let source = source.strip_prefix(&package).unwrap_or(&source).display();
        let of_units = if target["kind"][0] == "test" { "" } else { "unittests " };
        let shown = file.strip_prefix(sh::root()).unwrap_or(&file).display();
        Some(Self {
            name: target["name"].as_str()?.into(),
            running: format!("{of_units}{source} ({shown})"),
            file,
            package,
        })
    }

    fn run(&self, args: &[&str], env: Env<'_>) -> (Result<ExitStatus>, Vec<String>) {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &LIMIT_SECONDS.to_string()]).arg(&self.file).args(args);
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        command.envs(env.iter().copied());
        if let Ok(xtask) = std::env::current_exe() {
            command.env("FINGERPOST_XTASK", xtask);
        }
        let mut lines = Vec::new();
        let status = sh::read(&mut command, |line| lines.push(line.into()));
        (status, lines)
    }
}

/// Builds the test programs of a `cargo test` command, which must not run them; hands over what cargo writes for people.
///
/// # Errors
/// When it cannot be started, or does not build.
pub(crate) fn build(command: &mut Command, mut each: impl FnMut(&str)) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    command.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let status = sh::lines(command, |line| {
        if line.starts_with('{') { programs.extend(Program::read(line)) } else { each(line) }
    })?;
    ensure!(status.success(), "{}: {status}", sh::shown(command));
    Ok(programs)
}

/// Those that run alone, and the others, which may run in lanes.
pub(crate) fn split(programs: Vec<Program>) -> (Vec<Program>, Vec<Program>) {
    let (alone, mut rest): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| ALONE.contains(&&*program.name));
    rest.sort_by_key(|program| !LONG.contains(&&*program.name));
    (alone, rest)
}

/// Runs the programs in so many lanes, with these arguments and variables; `each` gets them as they end.
///
/// # Errors
/// When `each` fails; programs that run then run to their end, and no more begin.
pub(crate) fn run(
    programs: Vec<Program>,
    lanes: usize,
    args: &[&str],
    env: Env<'_>,
    mut each: impl FnMut(Ended) -> Result<()>,
) -> Result<()> {
    let queue = Mutex::new(VecDeque::from(programs));
    let next = || queue.lock().expect("no lane panics with it").pop_front();
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..lanes {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(program) = next() {
                    let began = Instant::now();
                    let (status, lines) = program.run(args, env);
                    let took = began.elapsed();
                    if sender.send(Ended { program, lines, status, took }).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        // Its end drops the receiver: where `each` failed, lanes take no more.
        ended.into_iter().try_for_each(&mut each)
    })
    .context("test programs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, file: &str) -> Program {
        let (file, package) = (file.into(), sh::root());
        Program { name: name.into(), running: format!("tests/{name}.rs ({name}-1)"), file, package }
    }

    #[test]
    fn programs_are_read_from_what_cargo_reports() {
        let root = sh::root();
        let root = root.display();
        let message = format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"{root}/tests/Cargo.toml","target":{{"kind":["test"],
            "name":"acl","src_path":"{root}/tests/tests/acl.rs"}},"profile":{{"test":true}},
            "executable":"{root}/target/debug/deps/acl-01"}}"#
        );
        let read = Program::read(&message).unwrap();
        assert_eq!(read.headline(), "     Running tests/acl.rs (target/debug/deps/acl-01)");
        assert_eq!((read.name.as_str(), read.package), ("acl", sh::root().join("tests")));
        let units = Program::read(&message.replace(r#"["test"]"#, r#"["lib"]"#)).unwrap();
        assert!(units.headline().contains("Running unittests tests/acl.rs"));
        assert_eq!(Program::read(&message.replace("true", "false")), None);
        assert_eq!(Program::read(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn those_that_run_alone_and_long_ones_are_found() {
        let names = ["a", "tour", ALONE[0], "b", ALONE[1], "c"];
        let (alone, rest) = split(names.map(|name| program(name, "echo")).into());
        let names =
            |programs: &[Program]| programs.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&alone), [ALONE[0], ALONE[1]]);
        assert_eq!(names(&rest), ["tour", "a", "b", "c"]);
    }

    #[test]
    fn every_program_runs_once() {
        let names = ["a", "b", "c", "d", "e"];
        let mut ran = Vec::new();
        run(names.map(|name| program(name, "echo")).to_vec(), LANES, &["hello"], &[], |ended| {
            assert!(ended.passed());
            assert_eq!(ended.lines, ["hello"]);
            ran.push(ended.program.name);
            Ok(())
        })
        .unwrap();
        ran.sort();
        assert_eq!(ran, names);
    }

    #[test]
    fn no_more_programs_begin_after_an_error() {
        let programs =
            ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"].map(|n| program(n, "echo"));
        let mut ran = 0;
        let error = run(programs.to_vec(), LANES, &[], &[], |_| {
            ran += 1;
            anyhow::bail!("no")
        });
        assert!(error.is_err() && ran == 1, "{ran}");
    }

    #[test]
    fn a_failing_program_is_reported() {
        run(vec![program("x", "false")], 1, &[], &[], |ended| {
            assert!(!ended.passed());
            Ok(())
        })
        .unwrap();
    }
}
