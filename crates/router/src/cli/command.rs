//! The seam of commands: the row by which one is known, how it fails, and how it is started.
//!
//! The command line of clap is put together from the rows. Whatever fails is one line on standard
//! error that names the place and the remedy, and an exit code that scripts may rely on.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, FromArgMatches};

use fingerpost_route::source::SourceError;

use super::output::{Output, message};

/// Registry row.
pub(crate) struct Command {
    /// What is typed.
    pub(crate) name: &'static str,
    /// One line.
    pub(crate) summary: &'static str,
    /// Ends its help: `Examples:`, then lines that begin with `$ fingerpost` or say what follows.
    pub(crate) examples: &'static str,
    /// Adds its options: `<Arguments as clap::Args>::augment_args`.
    pub(crate) arguments: fn(clap::Command) -> clap::Command,
    /// Runs it; [`parsed`] gives its options as a struct.
    pub(crate) run: fn(&ArgMatches, &mut Output) -> Result<(), Failure>,
}

/// Exit codes but 0, a promise to scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    dead_code,
    reason = "the codes of the contract are all named, whichever commands there are"
)]
pub(crate) enum Exit {
    /// Something failed or was not found.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// There is no daemon to talk to.
    Unreachable = 3,
    /// A privilege is missing.
    Permission = 4,
    /// A check found differences.
    Differences = 5,
    /// The user interrupted it.
    Interrupted = 130,
}

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What is printed, and how it exits.
    Said(Exit, String),
    /// All was said already; only the code is left.
    Told(Exit),
    /// Who reads standard output wants no more of it: as good as done.
    Closed,
}

impl Failure {
    /// Fails with `code` and these words, which name place and remedy.
    pub(crate) fn new(code: Exit, words: impl fmt::Display) -> Self {
        Self::Said(code, words.to_string())
    }

    /// Something of the outside world failed: a missing privilege has a code of its own.
    pub(crate) fn outside(kind: io::ErrorKind, words: impl fmt::Display) -> Self {
        let denied = kind == io::ErrorKind::PermissionDenied;
        Self::new(if denied { Exit::Permission } else { Exit::Failed }, words)
    }
}

/// Of writing to standard output; other failures of I/O go through [`Failure::outside`] with words.
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
        Self::Said(Exit::Usage, one_line(&error.render().to_string(), "fingerpost"))
    }
}

/// The options of a command, as `#[derive(clap::Args)]` names them.
///
/// # Errors
/// A usage failure.
pub(crate) fn parsed<T: FromArgMatches>(matches: &ArgMatches) -> Result<T, Failure> {
    Ok(T::from_arg_matches(matches)?)
}

/// The whole command line.
pub(crate) fn program(commands: &[Command]) -> clap::Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).global(true);
    // Below the options of the command itself.
    let json = json.display_order(900);
    let program = clap::Command::new("fingerpost")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A software IP router: routes in, packets through")
        .subcommand_required(true)
        .infer_long_args(false)
        .arg(json.help("Print JSON on standard output, and nothing else there"))
        .after_help(
            "Exit codes: 0 ok, 1 failed or not found, 2 usage, 3 daemon not reachable,\n\
             4 permission, 5 a check found differences, 130 interrupted.",
        );
    let commands = commands.iter().map(|row| {
        let command = clap::Command::new(row.name).after_help(row.examples);
        // Last: options that several commands share bring a summary of their own.
        (row.arguments)(command).about(row.summary).long_about(None)
    });
    program.subcommands(commands)
}

/// Runs the command that the command line names.
pub(crate) fn main(commands: &'static [Command]) -> ExitCode {
    crate::sys::exit_on_interrupt();
    let matches = match program(commands).try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return usage(&error, &path(&program(commands), std::env::args())),
    };
    let Some((name, matches)) = matches.subcommand() else {
        unreachable!("clap requires a command");
    };
    let row = commands.iter().find(|row| row.name == name).expect("clap knows only these rows");
    let mut output = Output::new(matches.get_flag("json"));
    let done = (row.run)(matches, &mut output);
    // What was found before a failure is still worth printing.
    let flushed = output.flush().map_err(Failure::from);
    match done.and(flushed) {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(Failure::Told(code)) => ExitCode::from(code as u8),
        Err(Failure::Said(code, words)) => {
            message(words);
            ExitCode::from(code as u8)
        }
    }
}

/// Help and version are answers; anything else that clap has to say is a mistake of the caller.
fn usage(error: &clap::Error, path: &str) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Colors are clap's business here.
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

/// What clap says in paragraphs, as one line: the mistake, what was probably meant, where help is.
fn one_line(text: &str, path: &str) -> String {
    let mut said: Vec<&str> = Vec::new();
    for paragraph in text.split("\n\n").map(str::trim) {
        if !paragraph.starts_with("Usage: ") && !paragraph.starts_with("For more information") {
            said.push(paragraph.strip_prefix("error: ").unwrap_or(paragraph));
        }
    }
    // Where the nearest word is known, all the others are only noise.
    if said.len() > 1
        && let Some(at) = said[0].find("[possible values:")
    {
        said[0] = said[0][..at].trim_end();
    }
    let said = said.join("; ").replace("tip: ", "");
    let words: Vec<&str> = said.split_whitespace().collect();
    format!("{} ({path} --help says more)", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::COMMANDS;

    /// Commands without commands of their own, with what is typed to reach them.
    fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        let mut below = command.get_subcommands().filter(|c| c.get_name() != "help").peekable();
        if below.peek().is_none() {
            found.push((path, command.clone()));
        } else {
            below.for_each(|command| leaves(command, &path, found));
        }
    }

    #[test]
    fn the_command_line_holds_together() {
        program(COMMANDS).debug_assert();
        for row in COMMANDS {
            assert!(!row.summary.is_empty() && !row.summary.ends_with('.'), "{}", row.name);
        }
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let mut found = Vec::new();
        leaves(&program(COMMANDS), "", &mut found);
        assert!(!found.is_empty());
        for (path, command) in found {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:\n"), "{path}: no examples");
            let mut examples = 0;
            for line in help.lines().filter_map(|line| line.trim().strip_prefix("$ ")) {
                let call = line.find("fingerpost ").map_or(line, |at| &line[at..]);
                let call = call.split(['|', '>', '#']).next().unwrap();
                assert!(call.starts_with(&path), "{path}: {line}");
                if let Err(error) = program(COMMANDS).try_get_matches_from(call.split_whitespace())
                {
                    panic!("{line}: {error}");
                }
                examples += 1;
            }
            assert!(examples > 0, "{path}: no examples");
        }
    }

    #[test]
    fn mistakes_are_one_line() {
        let said = |call: &str| {
            let error = program(COMMANDS).try_get_matches_from(call.split(' ')).unwrap_err();
            let path = path(&program(COMMANDS), call.split(' ').map(str::to_owned));
            one_line(&error.render().to_string(), &path)
        };
        assert_eq!(
            said("fingerpost algoritms"),
            "unrecognized subcommand 'algoritms'; a similar subcommand exists: 'algorithms' \
             (fingerpost --help says more)"
        );
        assert_eq!(
            said("fingerpost algorithms --jsn"),
            "unexpected argument '--jsn' found; a similar argument exists: '--json' \
             (fingerpost algorithms --help says more)"
        );
        assert_eq!(
            said("fingerpost table check x --algorithm bserch"),
            "invalid value 'bserch' for '--algorithm <NAME,..>'; a similar value exists: 'bsearch' \
             (fingerpost table check --help says more)"
        );
        assert!(said("fingerpost table check x --algorithm 12345").contains("dxr24"));
        assert!(said("fingerpost table").starts_with("'fingerpost table' requires a subcommand"));
    }

    #[test]
    fn failures_of_the_outside_have_their_codes() {
        let code = |failure| match failure {
            Failure::Said(code, _) | Failure::Told(code) => code as u8,
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
