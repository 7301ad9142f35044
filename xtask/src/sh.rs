//! Runs plain commands: each is printed as one could type it, then run.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::progress::Progress;

/// Builds the programs as they are shipped.
pub(crate) const RELEASE: &str =
    "cargo build --release --package fingerpost --package fingerpost-lab";

/// The root of the checkout, where every command runs unless it has another folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

/// `target/xtask/NAME`: all that the tasks write beside builds stays inside the checkout.
pub(crate) fn scratch(name: &str) -> Result<PathBuf> {
    let dir = root().join("target/xtask").join(name);
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

/// A command that runs in the root of the checkout, from words separated by blanks.
pub(crate) fn command(words: &str) -> Command {
    let mut words = words.split_ascii_whitespace();
    let program = words.next().expect("a command has at least its name");
    let mut command = Command::new(program);
    command.args(words).current_dir(root());
    command
}

/// A command like [`command`], whose program may lie in a folder of system programs: a user's `PATH` need not name it.
pub(crate) fn system(words: &str) -> Command {
    let (program, rest) = words.split_once(' ').unwrap_or((words, ""));
    let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
    command.args(rest.split_ascii_whitespace()).current_dir(root());
    command
}

/// A command like [`command`] that runs in the time that others leave on the processors.
pub(crate) fn idle(words: &str) -> Command {
    if find("chrt").is_some() { command(&format!("chrt --idle 0 {words}")) } else { command(words) }
}

/// `command` as one would type it, with the variables it adds to the environment.
pub(crate) fn shown(command: &Command) -> String {
    let mut text = String::new();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => {
                let _ = write!(text, "{}={} ", name.display(), quoted(&value.to_string_lossy()));
            }
            None => {
                let _ = write!(text, "env -u {} ", name.display());
            }
        }
    }
    text.push_str(&quoted(&command.get_program().to_string_lossy()));
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&quoted(&arg.to_string_lossy()));
    }
    text
}

/// `word` as a shell takes it for one word.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Prints and runs; its output goes where ours goes.
///
/// # Errors
/// When it cannot be started or does not exit with 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", shown(command));
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{}: {status}", shown(command));
    }
    Ok(())
}

/// Prints and runs, with the time so far as progress; returns what it wrote to standard output.
///
/// # Errors
/// When it cannot be started, does not exit with 0, or writes something that is not UTF-8.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    println!("$ {}", shown(command));
    let mut progress = Progress::new();
    progress.stage(&command.get_program().to_string_lossy());
    let done = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    progress.done();
    if !done.status.success() {
        bail!("{}: {}", shown(command), done.status);
    }
    String::from_utf8(done.stdout).with_context(|| format!("{}: not UTF-8", shown(command)))
}

/// Prints and runs; hands over each line of its two outputs, in the order they were written.
///
/// # Errors
/// When it cannot be started or read.
pub(crate) fn lines(command: &mut Command, each: impl FnMut(&str)) -> Result<ExitStatus> {
    println!("$ {}", shown(command));
    read(command, each)
}

/// Like [`lines`], without printing the command.
///
/// # Errors
/// When it cannot be started or read.
pub(crate) fn read(command: &mut Command, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", shown(command)))?;
    // The command keeps its ends of the pipe; it must let go of them, or the end never comes.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        each(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        line.clear();
    }
    child.wait().with_context(|| format!("cannot wait for {}", shown(command)))
}

/// Where `program` is, in `PATH` or the folders of system programs.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|d| d.join(program)).find(|p| p.is_file())
}

/// Whether `command` can be started and exits with 0; prints nothing.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_one_would_type_them() {
        let mut c = command("cargo test --workspace");
        c.env("RUSTFLAGS", "--cfg loom").arg("it's").arg("");
        assert_eq!(shown(&c), r"RUSTFLAGS='--cfg loom' cargo test --workspace 'it'\''s' ''");
    }

    #[test]
    fn both_outputs_come_in_order_and_end() {
        let mut c = command("sh -c");
        c.arg("echo a; echo b >&2; printf 'c\\377'; exit 3");
        let mut seen = Vec::new();
        let status = lines(&mut c, |line| seen.push(line.to_owned())).unwrap();
        assert_eq!(seen, ["a", "b", "c\u{fffd}"]);
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn failures_name_the_command() {
        assert!(run(&mut command("false")).unwrap_err().to_string().starts_with("false: "));
        assert!(output(&mut command("no-such-program-here x")).is_err());
        assert!(works(&mut command("true")) && !works(&mut command("false")));
        assert!(find("sh").is_some() && find("no-such-program-here").is_none());
    }
}
