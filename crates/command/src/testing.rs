//! Conformance of a program's commands: each has help, a summary and examples that parse, refuses what it does not
//! know in one line, and prints what is recorded in `golden/*.txt`.
//!
//! A step of such a file is a command line (`$`, run by a shell in `golden/`), then standard output (`|`), standard
//! error (`!`) and the exit code (`?`) if it is not 0. Comments and blank lines stand between steps.
//! `FINGERPOST_ACCEPT=1` records what is printed now.
#![allow(clippy::unwrap_used, reason = "all of this file is for tests")]
#![allow(clippy::missing_panics_doc, reason = "a check fails by its panic")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::dispatch::{Program, command_line};

/// Commands without commands of their own, with the words that reach them.
fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
    let path = format!("{path} {}", command.get_name()).trim().to_owned();
    let mut below = command.get_subcommands().filter(|c| c.get_name() != "help").peekable();
    if below.peek().is_none() {
        found.push((path, command.clone()));
    } else {
        below.for_each(|command| leaves(command, &path, found));
    }
}

/// Checks the rows of a program: names and options agree, every summary is a line, every command has examples, and the
/// examples parse. Commands of another program are named in `elsewhere`.
pub fn check_rows(program: &Program, elsewhere: &[&str]) {
    command_line(program).debug_assert();
    for row in program.commands {
        assert!(!row.summary.is_empty() && !row.summary.ends_with('.'), "{}", row.name);
    }
    let mut found = Vec::new();
    leaves(&command_line(program), "", &mut found);
    assert!(!found.is_empty());
    let word = format!("{} ", program.name);
    for (path, command) in found.iter().filter(|(path, _)| !is_in(path, elsewhere)) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.starts_with("Examples:\n"), "{path}: no examples");
        let mut examples = 0;
        for line in help.lines().filter_map(|line| line.trim().strip_prefix("$ ")) {
            let call = line.find(&word).map_or(line, |at| &line[at..]);
            let call = call.split(['|', '>', '#']).next().unwrap();
            assert!(call.starts_with(path), "{path}: {line}");
            if let Err(error) = command_line(program).try_get_matches_from(call.split_whitespace())
            {
                panic!("{line}: {error}");
            }
            examples += 1;
        }
        assert!(examples > 0, "{path}: no examples");
    }
}

/// Whether a command line without options, which begins with the program's name, names one of these commands.
fn is_in(path: &str, commands: &[&str]) -> bool {
    path.split_once(' ').is_some_and(|(_, command)| commands.contains(&command))
}

/// A built program and the folder of its recorded output.
pub struct Golden {
    /// Path of the binary.
    pub program: PathBuf,
    /// Folder that the commands run in, with the records `*.txt`.
    pub folder: PathBuf,
}

impl Golden {
    /// Runs `line` by a shell that finds the program.
    fn shell(&self, line: &str) -> Output {
        let mut path = self.program.parent().unwrap().as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        Command::new("sh")
            .arg("-c")
            .arg(line)
            .current_dir(&self.folder)
            .env("PATH", path)
            .env("COLUMNS", "100")
            .env("LC_ALL", "C")
            .output()
            .unwrap()
    }

    /// A step and what it printed, as the file has it.
    fn step(&self, line: &str) -> String {
        let done = self.shell(line);
        let mut text = format!("$ {line}\n");
        for (mark, bytes) in [('|', &done.stdout), ('!', &done.stderr)] {
            for printed in String::from_utf8_lossy(bytes).lines() {
                text.push_str(format!("{mark} {printed}").trim_end());
                text.push('\n');
            }
        }
        match done.status.code() {
            Some(0) => {}
            Some(code) => writeln!(text, "? {code}").unwrap(),
            None => writeln!(text, "? {}", done.status).unwrap(),
        }
        text
    }

    /// Text of a record with every step run again.
    #[must_use]
    pub fn again(&self, text: &str) -> String {
        let mut new = String::new();
        for line in text.lines() {
            match line.strip_prefix("$ ") {
                Some(line) => new.push_str(&self.step(line)),
                None if line.is_empty() || line.starts_with('#') => {
                    writeln!(new, "{line}").unwrap();
                }
                None => assert!(line.starts_with(['|', '!', '?']), "what is {line:?}?"),
            }
        }
        new
    }

    /// Compares every record with what is printed now; records it where `FINGERPOST_ACCEPT` is set.
    pub fn check_records(&self) {
        let (mut wrong, mut seen) = (String::new(), 0);
        for entry in std::fs::read_dir(&self.folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "txt") {
                continue;
            }
            seen += 1;
            let old = std::fs::read_to_string(&path).unwrap();
            let new = self.again(&old);
            if old == new {
                continue;
            }
            if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
                std::fs::write(&path, new).unwrap();
            } else {
                write!(wrong, "{}, {}", path.display(), difference(&old, &new)).unwrap();
            }
        }
        let how = "to accept: FINGERPOST_ACCEPT=1 cargo test --test golden, with the package";
        assert!(wrong.is_empty(), "\n{wrong}{how}");
        assert!(seen > 0, "no records in {}", self.folder.display());
    }

    /// Names that the help of `command` lists.
    fn listed(&self, command: &str) -> Vec<String> {
        let help = String::from_utf8(self.shell(&format!("{command} --help")).stdout).unwrap();
        let Some((_, list)) = help.split_once("Commands:\n") else { return Vec::new() };
        let list = list.split("\n\n").next().unwrap();
        let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next());
        names.filter(|name| *name != "help").map(str::to_owned).collect()
    }

    /// Checks every command, whether its output is recorded or not: it prints help, and refuses an unknown option in one
    /// line. Commands of another program are named in `elsewhere`.
    pub fn check_commands(&self, elsewhere: &[&str]) {
        let name = self.program.file_name().unwrap().to_str().unwrap();
        let (mut todo, mut seen) = (vec![name.to_owned()], 0);
        while let Some(command) = todo.pop() {
            let below: Vec<_> = self
                .listed(&command)
                .into_iter()
                .map(|below| format!("{command} {below}"))
                .filter(|path| !is_in(path, elsewhere))
                .collect();
            let help = self.shell(&format!("{command} --help"));
            let text = String::from_utf8(help.stdout).unwrap();
            assert!(help.status.success() && help.stderr.is_empty(), "{command} --help");
            assert!(text.contains("--json"), "{command} --help");
            let examples = format!("Examples:\n  $ {name} ");
            assert!(!below.is_empty() || text.contains(&examples), "{command} has no examples");

            let bad = self.shell(&format!("{command} --json --no-such-option"));
            let printed = String::from_utf8(bad.stderr).unwrap();
            assert_eq!(bad.status.code(), Some(2), "{command} --no-such-option");
            assert!(bad.stdout.is_empty() && printed.lines().count() == 1, "{command}: {printed}");
            let start = format!("{name}: unexpected argument");
            assert!(printed.starts_with(&start), "{command}: {printed}");
            seen += 1;
            todo.extend(below);
        }
        assert!(seen >= 3, "{seen} commands");
    }
}

/// First lines in which two texts differ, with the number of the first.
#[must_use]
pub fn difference(old: &str, new: &str) -> String {
    let at = old.lines().zip(new.lines()).take_while(|(old, new)| old == new).count();
    let show = |text: &str, mark: &str| {
        let lines = text.lines().skip(at).take(6);
        lines.fold(String::new(), |all, line| all + mark + line + "\n")
    };
    format!("line {}:\n{}{}", at + 1, show(old, "- "), show(new, "+ "))
}

/// Folder `tests/golden` of the package whose manifest lies in `manifest`.
#[must_use]
pub fn folder(manifest: &str) -> PathBuf {
    Path::new(manifest).join("tests/golden")
}
