//! What the commands print, as recorded in `golden/*.txt`, a file a command.
//!
//! A step of such a file is what is typed (`$`, run by a shell in `golden/`), then standard output
//! (`|`), standard error (`!`) and the exit code (`?`) if it is not 0. Comments and blank lines stand
//! between steps. `FINGERPOST_ACCEPT=1` records what is printed now.
#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Runs `line` by a shell that finds the program.
fn shell(line: &str) -> std::process::Output {
    let program = Path::new(env!("CARGO_BIN_EXE_fingerpost"));
    let mut path = program.parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    Command::new("sh")
        .arg("-c")
        .arg(line)
        .current_dir(folder())
        .env("PATH", path)
        .env("COLUMNS", "100")
        .env("LC_ALL", "C")
        .output()
        .unwrap()
}

/// A step and what it printed, as the file has it.
fn step(line: &str) -> String {
    let done = shell(line);
    let mut text = format!("$ {line}\n");
    for (mark, bytes) in [('|', &done.stdout), ('!', &done.stderr)] {
        for said in String::from_utf8_lossy(bytes).lines() {
            text.push_str(format!("{mark} {said}").trim_end());
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

/// The file with every step run again.
fn again(text: &str) -> String {
    let mut new = String::new();
    for line in text.lines() {
        match line.strip_prefix("$ ") {
            Some(line) => new.push_str(&step(line)),
            None if line.is_empty() || line.starts_with('#') => {
                writeln!(new, "{line}").unwrap();
            }
            None => assert!(line.starts_with(['|', '!', '?']), "what is {line:?}?"),
        }
    }
    new
}

/// The first lines in which two texts differ, with where they are.
fn difference(old: &str, new: &str) -> String {
    let at = old.lines().zip(new.lines()).take_while(|(old, new)| old == new).count();
    let show = |text: &str, mark: &str| {
        let lines = text.lines().skip(at).take(6);
        lines.fold(String::new(), |all, line| all + mark + line + "\n")
    };
    format!("line {}:\n{}{}", at + 1, show(old, "- "), show(new, "+ "))
}

#[test]
fn commands_print_what_is_recorded() {
    let mut wrong = String::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        seen += 1;
        let old = std::fs::read_to_string(&path).unwrap();
        let new = again(&old);
        if old == new {
            continue;
        }
        if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
            std::fs::write(&path, new).unwrap();
        } else {
            write!(wrong, "{}, {}", path.display(), difference(&old, &new)).unwrap();
        }
    }
    let how = "to accept: FINGERPOST_ACCEPT=1 cargo test -p fingerpost --test golden";
    assert!(wrong.is_empty(), "\n{wrong}{how}");
    assert!(seen > 3, "{seen} files");
}

/// The names that the help of `command` lists.
fn listed(command: &str) -> Vec<String> {
    let help = String::from_utf8(shell(&format!("{command} --help")).stdout).unwrap();
    let Some((_, list)) = help.split_once("Commands:\n") else { return Vec::new() };
    let list = list.split("\n\n").next().unwrap();
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command there is, whether its output is recorded or not.
#[test]
fn every_command_has_help_and_refuses_nonsense() {
    let mut todo: Vec<String> = vec!["fingerpost".into()];
    let mut seen = 0;
    while let Some(command) = todo.pop() {
        let below: Vec<_> =
            listed(&command).into_iter().map(|name| format!("{command} {name}")).collect();
        let help = shell(&format!("{command} --help"));
        let text = String::from_utf8(help.stdout).unwrap();
        assert!(help.status.success() && help.stderr.is_empty(), "{command} --help");
        assert!(text.contains("--json"), "{command} --help");
        let leaf = below.is_empty();
        assert!(!leaf || text.contains("Examples:\n  $ fingerpost "), "{command} has no examples");

        let bad = shell(&format!("{command} --json --no-such-option"));
        let said = String::from_utf8(bad.stderr).unwrap();
        assert_eq!(bad.status.code(), Some(2), "{command} --no-such-option");
        assert!(bad.stdout.is_empty() && said.lines().count() == 1, "{command}: {said}");
        assert!(said.starts_with("fingerpost: unexpected argument"), "{command}: {said}");
        seen += 1;
        todo.extend(below);
    }
    assert!(seen >= 5, "{seen} commands");
}

#[test]
fn differences_are_found() {
    let text = "$ echo a; echo b >&2; exit 3\n| a\n! b\n? 3\n";
    assert_eq!(again(text), text);
    assert_eq!(again("# x\n\n$ echo a; echo b >&2; exit 3\n| old\n"), format!("# x\n\n{text}"));
    assert_eq!(difference("a\nb\n", "a\nc\n"), "line 2:\n- b\n+ c\n");
}
