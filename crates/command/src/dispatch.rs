//! The seam of commands: the registry row, the failures with their exit codes, and the dispatch.
//!
//! The command line of clap is put together from the rows. Whatever fails is one line on standard
//! error that names the place and the remedy, and an exit code that scripts may rely on.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, FromArgMatches, Subcommand};

use fingerpost_route::source::SourceError;

use crate::former;
use crate::interrupt;
use crate::output::{Output, message, name, set_name};

/// A program and its registry of commands.
pub struct Program {
    /// Name of the binary.
    pub name: &'static str,
    /// One line, first in its help.
    pub about: &'static str,
    /// Every command, in the order in which help lists them.
    pub commands: &'static [Command],
    /// Commands made of another registry, if the program has any.
    pub made: Option<MadeCommands>,
}

/// Commands that a program makes of the rows of another registry.
#[derive(Clone, Copy)]
pub struct MadeCommands {
    /// Function that makes the command lines of all of them.
    pub all: fn() -> Vec<clap::Command>,
    /// Function that runs the one of a name.
    pub run: fn(&str, &ArgMatches, &mut Output) -> Result<(), Failure>,
}

/// Registry row of a command.
pub struct Command {
    /// First word of its command line.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// End of its help: `Examples:`, then lines that begin with `$` and the program's name, and notes.
    pub examples: &'static str,
    /// Function that adds its options: `<Arguments as clap::Args>::augment_args`.
    pub arguments: fn(clap::Command) -> clap::Command,
    /// Function that runs it; [`parsed`] returns its options as a struct.
    pub run: fn(&ArgMatches, &mut Output) -> Result<(), Failure>,
}

/// Exit codes other than 0, a promise to scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Something failed or was not found.
    Failed = 1,
    /// The command line is not valid.
    Usage = 2,
    /// No daemon answers.
    Unreachable = 3,
    /// A privilege is missing.
    Permission = 4,
    /// A check found differences.
    Differences = 5,
    /// The user interrupted it.
    Interrupted = interrupt::EXIT as isize,
}

/// Reason why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// Exit code, and the messages to print, a line each.
    Failed(Exit, String),
    /// Exit code of a failure whose messages are printed already.
    Reported(Exit),
    /// The reader of standard output closed it: not a failure.
    Closed,
}

impl Failure {
    /// A failure with `code` and a message that names place and remedy.
    pub fn new(code: Exit, words: impl fmt::Display) -> Self {
        Self::Failed(code, words.to_string())
    }

    /// A failure of the outside world: a missing privilege has a code of its own.
    pub fn outside(kind: io::ErrorKind, words: impl fmt::Display) -> Self {
        let denied = kind == io::ErrorKind::PermissionDenied;
        Self::new(if denied { Exit::Permission } else { Exit::Failed }, words)
    }
}

/// Failures of writing to standard output; other I/O errors go through [`Failure::outside`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::new(Exit::Failed, format_args!("standard output: {error}")),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let kind = error.chain().find_map(|cause| match cause.downcast_ref() {
            Some(SourceError::Io { kind, .. }) => Some(*kind),
            _ => cause.downcast_ref().map(io::Error::kind),
        });
        Self::outside(kind.unwrap_or(io::ErrorKind::Other), format_args!("{error:#}"))
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::Failed(Exit::Usage, one_line(&error.render().to_string(), name()))
    }
}

/// The options of a command, as `#[derive(clap::Args)]` names them.
///
/// # Errors
/// A usage failure.
pub fn parsed<T: FromArgMatches>(matches: &ArgMatches) -> Result<T, Failure> {
    Ok(T::from_arg_matches(matches)?)
}

/// A command with the commands of `T` below it. None named is a mistake, in one line, and not a call for help.
pub fn subcommands<T: Subcommand>(command: clap::Command) -> clap::Command {
    T::augment_subcommands(command).subcommand_required(true)
}

/// The whole command line.
#[must_use]
pub fn command_line(program: &Program) -> clap::Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).global(true);
    // Below the options of the command itself.
    let json = json.display_order(900);
    let line = clap::Command::new(program.name)
        .version(env!("CARGO_PKG_VERSION"))
        .about(program.about)
        .subcommand_required(true)
        .infer_long_args(false)
        .arg(json.help("Print JSON on standard output, and nothing else there"))
        .after_help(
            "Exit codes: 0 ok, 1 failed or not found, 2 usage, 3 daemon not reachable, 4 permission, \
             5 a check found differences, 130 interrupted.",
        );
    let commands = program.commands.iter().map(|row| {
        let command = clap::Command::new(row.name).after_help(row.examples);
        // Last: options that several commands share bring a summary of their own.
        (row.arguments)(command).about(row.summary).long_about(None)
    });
    let made = program.made.map_or_else(Vec::new, |made| (made.all)());
    line.subcommands(commands).subcommands(made)
}

/// Arguments of the process. A file name may be any bytes: what is no UTF-8 is replaced, and names no command.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned())
}

/// Runs the command that the command line names.
pub fn main(program: &Program) -> ExitCode {
    set_name(program.name);
    interrupt::exit_on_interrupt();
    let matches = match command_line(program).try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return usage(&error, &path(&command_line(program), arguments())),
    };
    let Some((name, matches)) = matches.subcommand() else {
        unreachable!("clap requires a command");
    };
    former::warnings(&command_line(program), arguments()).iter().for_each(message);
    let mut output = Output::new(matches.get_flag("json"));
    let done = match program.commands.iter().find(|row| row.name == name) {
        Some(row) => (row.run)(matches, &mut output),
        None => {
            let made = program.made.expect("clap knows the rows and what is made");
            (made.run)(name, matches, &mut output)
        }
    };
    // Results found before a failure are still printed.
    let flushed = output.flush().map_err(Failure::from);
    match done.and(flushed) {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(Failure::Reported(code)) => ExitCode::from(code as u8),
        Err(Failure::Failed(code, words)) => {
            words.lines().for_each(message);
            ExitCode::from(code as u8)
        }
    }
}

/// Prints help and version as results; any other message of clap is a usage failure.
fn usage(error: &clap::Error, path: &str) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // clap decides on colors.
        return match error.print() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        };
    }
    message(one_line(&error.render().to_string(), path));
    ExitCode::from(Exit::Usage as u8)
}

/// The words of `args` that name a command, as far as there is one.
fn path(program: &clap::Command, args: impl Iterator<Item = String>) -> String {
    let (mut at, mut path) = (program, program.get_name().to_owned());
    for arg in args {
        if let Some(below) = at.get_subcommands().find(|command| command.get_name() == arg) {
            at = below;
            path = path + " " + &arg;
        }
    }
    path
}

/// Paragraphs of a message of clap as one line: the mistake, the nearest valid word, where help is.
fn one_line(text: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for paragraph in text.split("\n\n").map(str::trim) {
        if !paragraph.starts_with("Usage: ") && !paragraph.starts_with("For more information") {
            parts.push(paragraph.strip_prefix("error: ").unwrap_or(paragraph));
        }
    }
    // Where the nearest word is known, all the others are only noise.
    if parts.len() > 1
        && let Some(at) = parts[0].find("[possible values:")
    {
        parts[0] = parts[0][..at].trim_end();
    }
    let text = parts.join("; ").replace("tip: ", "");
    let words: Vec<&str> = text.split_whitespace().collect();
    format!("{} (see {path} --help)", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice;

    fn table(command: clap::Command) -> clap::Command {
        let name = Arg::new("algorithm").long("algorithm").value_name("NAME,..");
        let check = clap::Command::new("check").arg(Arg::new("file"));
        let check = check.arg(name.value_parser(choice::names(choice::ALL)));
        command.subcommand_required(true).subcommand(check)
    }

    const PROGRAM: Program = Program {
        name: "fingerpost",
        about: "",
        commands: &[
            Command {
                name: "algorithms",
                summary: "",
                examples: "",
                arguments: |command| command,
                run: |_, _| Ok(()),
            },
            Command {
                name: "table",
                summary: "",
                examples: "",
                arguments: table,
                run: |_, _| Ok(()),
            },
        ],
        made: None,
    };

    #[test]
    fn mistakes_are_one_line() {
        let message = |call: &str| {
            let error = command_line(&PROGRAM).try_get_matches_from(call.split(' ')).unwrap_err();
            let path = path(&command_line(&PROGRAM), call.split(' ').map(str::to_owned));
            one_line(&error.render().to_string(), &path)
        };
        assert_eq!(
            message("fingerpost algoritms"),
            "unrecognized subcommand 'algoritms'; a similar subcommand exists: 'algorithms' \
             (see fingerpost --help)"
        );
        assert_eq!(
            message("fingerpost algorithms --jsn"),
            "unexpected argument '--jsn' found; a similar argument exists: '--json' \
             (see fingerpost algorithms --help)"
        );
        assert_eq!(
            message("fingerpost table check x --algorithm bserch"),
            "invalid value 'bserch' for '--algorithm <NAME,..>'; a similar value exists: 'bsearch' \
             (see fingerpost table check --help)"
        );
        assert!(message("fingerpost table check x --algorithm 12345").contains("dxr24"));
        assert!(
            message("fingerpost table").starts_with("'fingerpost table' requires a subcommand")
        );
    }

    #[test]
    fn failures_of_the_outside_have_their_codes() {
        let code = |failure| match failure {
            Failure::Failed(code, _) | Failure::Reported(code) => code as u8,
            Failure::Closed => 0,
        };
        let error = |kind: io::ErrorKind| anyhow::Error::from(io::Error::from(kind)).context("x");
        assert_eq!(code(error(io::ErrorKind::PermissionDenied).into()), 4);
        assert_eq!(code(error(io::ErrorKind::BrokenPipe).into()), 1);
        let file = |kind| SourceError::Io { name: "t".into(), kind, what: "no".into() };
        assert_eq!(code(anyhow::Error::from(file(io::ErrorKind::PermissionDenied)).into()), 4);
        assert_eq!(code(anyhow::Error::from(file(io::ErrorKind::NotFound)).into()), 1);
        assert_eq!(code(io::Error::from(io::ErrorKind::BrokenPipe).into()), 0);
        assert_eq!(code(io::Error::from(io::ErrorKind::StorageFull).into()), 1);
        assert_eq!(Exit::Interrupted as u8, 130);
    }
}
