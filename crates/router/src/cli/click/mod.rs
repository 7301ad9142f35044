//! `fingerpost click`: a configuration of Click, by Click's command line.

mod handlers;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{ArgAction, Args};
use fingerpost_packet::OpenPolicy;
use fingerpost_packet::element::click::only::clock;
use fingerpost_packet::handler::Handlers;
use fingerpost_packet::handler::control_socket::Listen;
use fingerpost_packet::language::Configuration;

use super::command::{Command, Exit, Failure, parsed};
use super::output::message;
use crate::click::single::{Single, SingleOptions, seconds_since, text_of};
use crate::click::words;
use crate::click::{ClickError, Given};
use crate::click::{flattened, planned};
use crate::sys;

pub(super) const COMMAND: Command = Command {
    name: "click",
    summary: "Run a configuration of the Click modular router",
    examples: "Examples:
  $ fingerpost click router.click
  $ fingerpost click -e 'InfiniteSource(LIMIT 3, STOP true) -> Print(x) -> Discard'
  $ fingerpost click --simtime shaper.click RATE=1Mbps -h counter.count
  $ fingerpost click -q -o flat.click router.click
  $ fingerpost click flatten router.click

The options are Click's. Without FILE and -e the configuration is read from standard input. \
It runs in one thread until it ends itself (STOP, stop, DriverManager); nothing is printed but what it prints. \
`fingerpost run FILE.click` runs it in several threads, with a report.",
    arguments: Arguments::augment_args,
    run: |matches, _| run(&parsed(matches)?),
};

#[derive(Args)]
#[command(disable_help_flag = true)]
struct Arguments {
    /// `flatten`, the configuration, and values of its variables
    #[arg(value_name = "FILE | VAR=VALUE")]
    words: Vec<String>,
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The configuration itself
    #[arg(short, long, value_name = "TEXT")]
    expression: Option<String>,
    /// Print this read handler at the end; ELEMENT may be a pattern (`*`, `?`, `[]`), or a class
    #[arg(short, long, value_name = "[ELEMENT.]HANDLER")]
    handler: Vec<String>,
    /// Read this handler at the end: a number is the exit code, `true` 0 and `false` 1
    #[arg(short = 'x', long, value_name = "[ELEMENT.]HANDLER")]
    exit_handler: Option<String>,
    /// Do not print warnings about the configuration
    #[arg(short = 'w', long)]
    no_warnings: bool,
    /// Folders of libraries (`require(library FILE)`) with colons between them, in the place of `$CLICKPATH`
    #[arg(short = 'C', long, value_name = "FOLDERS")]
    clickpath: Option<OsString>,
    /// Print the version
    #[arg(short = 'v', long)]
    version: bool,
    /// Do not run it: initialize, print handlers, and quit
    #[arg(short, long)]
    quit: bool,
    /// Write the configuration without compounds to a file, `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Serve its handlers on a TCP port of this host; `PORT+` takes the next free one
    #[arg(short, long, value_name = "PORT", value_parser = Listen::tcp)]
    port: Vec<Listen>,
    /// Serve its handlers on a Unix socket
    #[arg(short, long, value_name = "SOCKET")]
    unix_socket: Vec<PathBuf>,
    /// Let the handler `hotconfig` replace it
    #[arg(short = 'R', long)]
    allow_reconfigure: bool,
    /// Print on standard error how long it ran
    #[arg(short, long)]
    time: bool,
    /// Threads: one runs it, whatever is given
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<u32>,
    /// Threads stay on their processors: without effect
    #[arg(short, long)]
    affinity: bool,
    /// Print the classes of the elements, with `flatten`
    #[arg(short, long)]
    classes: bool,
    /// Print the names of the elements, with `flatten`
    #[arg(short = 'n', long, visible_alias = "names")]
    elements: bool,
    /// Print the declarations without arguments, with `flatten`
    #[arg(short, long, visible_aliases = ["declaration", "decls"])]
    declarations: bool,
    /// Put the values of variables in, with `flatten`
    #[arg(long)]
    expand_vars: bool,
    /// Print the configuration alone, with `flatten`: without effect, as nothing else is printed
    #[arg(long = "config")]
    config_only: bool,
    /// A virtual clock, which advances as fast as there is nothing to do, from a time in seconds on
    #[arg(long, visible_alias = "simulation-time", value_name = "TIME", num_args = 0..=1, require_equals = true,
        default_missing_value = "1000000000", value_parser = start_of_time)]
    simtime: Option<i64>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Nanoseconds of a time in seconds.
fn start_of_time(text: &str) -> Result<i64, String> {
    clock::read_seconds(text).ok_or_else(|| "no time in seconds".to_owned())
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.version {
        writeln!(std::io::stdout(), "click (Fingerpost) {}", env!("CARGO_PKG_VERSION"))?;
        return Ok(());
    }
    let mut words = arguments.words.iter();
    let mut file = arguments.file.clone();
    let mut flatten = false;
    let mut variables = Vec::new();
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if arguments.words.first().is_some_and(|word| word == "flatten") {
        flatten = true;
        words.next();
    }
    if arguments.file.is_some() && arguments.expression.is_some() {
        return Err(Failure::new(Exit::Usage, "-f and -e: one configuration at a time"));
    }
    if !flatten && arguments.is_listing() {
        let words = "--classes, --elements, --declarations, --expand-vars and --config are for `click flatten`";
        return Err(Failure::new(Exit::Usage, words));
    }
    for word in words {
        match word.split_once('=').filter(|(name, _)| is_name(name)) {
            Some((name, value)) => variables.push((name.to_owned(), value.to_owned())),
            None if file.is_none() && arguments.expression.is_none() => {
                file = Some(PathBuf::from(word))
            }
            None => {
                let words = format!("`{word}`: one configuration at a time");
                return Err(Failure::new(Exit::Usage, words));
            }
        }
    }
    let (name, text) = match &arguments.expression {
        Some(text) => ("config".to_owned(), text.clone()),
        None => {
            let path = file.unwrap_or_else(|| PathBuf::from("-"));
            let name = if path.as_os_str() == "-" {
                "<stdin>".to_owned()
            } else {
                path.display().to_string()
            };
            (name, text_of(&path)?)
        }
    };
    let refused = |error| match error {
        ClickError::Wrong(errors) => {
            words::lines(&errors).iter().for_each(|line| eprintln!("{line}"));
            Failure::Reported(Exit::Failed)
        }
        error => Failure::from(error),
    };
    let folders: Vec<PathBuf> = arguments
        .clickpath
        .clone()
        .or_else(|| std::env::var_os("CLICKPATH"))
        .iter()
        .flat_map(std::env::split_paths)
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect();
    let given = Given { variables: &variables, folders: &folders, keeps_unknown: true };
    let planned = |policy: &OpenPolicy| {
        planned(None, &name, &text, &given, policy).map_err(|errors| refused(errors.into()))
    };
    if flatten {
        let flat = flattened(&name, &text, &given, arguments.expand_vars);
        let flat = flat.map_err(|errors| refused(errors.into()))?;
        let output = arguments.output.as_deref().unwrap_or(Path::new("-"));
        return write_out(output, &arguments.listed(&flat));
    }
    let planned = planned(&OpenPolicy::waiting())?;
    if !arguments.no_warnings {
        planned.warnings_in_click().iter().for_each(|line| eprintln!("{line}"));
    }
    if let Some(path) = &arguments.output {
        write_out(path, &planned.flat())?;
    }
    let sockets = arguments.unix_socket.iter().map(|path| Listen::Unix(path.display().to_string()));
    let options = SingleOptions {
        name,
        given,
        sockets: arguments.port.iter().cloned().chain(sockets).collect(),
        reconfigures: arguments.allow_reconfigure,
        virtual_start_ns: arguments.simtime,
    };
    let is_empty = planned.is_empty() && !arguments.quit && !arguments.allow_reconfigure;
    if is_empty {
        // Nothing would ever end it.
        message(format_args!("{}: configuration has no elements, exiting", options.name));
        return Ok(());
    }
    sys::catch_signals();
    let mut single = Single::start(planned, options).map_err(refused)?;
    let start = Instant::now();
    if !arguments.quit {
        single.run(&mut sys::stop_asked);
    }
    if arguments.time {
        eprintln!("{} s", seconds_since(start));
    }
    let code = ended(single, &arguments.handler, arguments.exit_handler.as_deref())?;
    if code != 0 {
        std::process::exit(code);
    }
    Ok(())
}

/// Prints handlers and ends the elements, which write what they have kept for that. The exit code.
fn ended(
    single: Single<'_>,
    handlers: &[String],
    exit_handler: Option<&str>,
) -> Result<i32, Failure> {
    let printed = print_handlers(single.handlers(), handlers);
    let code = exit_handler.map(|name| exit_code(single.handlers(), name));
    // Before the process ends, and whatever failed: nothing else would.
    single.stop();
    code.unwrap_or_else(|| printed.map(|()| 0))
}

impl Arguments {
    /// Whether something is given that is for `flatten`.
    fn is_listing(&self) -> bool {
        let Self { classes, elements, declarations, expand_vars, config_only, .. } = self;
        [classes, elements, declarations, expand_vars, config_only].contains(&&true)
    }

    /// What is printed of a configuration without compounds.
    fn listed(&self, flat: &Configuration) -> String {
        let elements = flat.elements().iter();
        let mut lines: Vec<String> = match (self.classes, self.elements, self.declarations) {
            (true, ..) => elements.map(|element| format!("{}\n", element.class.name)).collect(),
            (_, true, _) => elements.map(|element| format!("{}\n", element.name)).collect(),
            (.., true) => elements
                .map(|element| format!("{} :: {}\n", element.name, element.class.name))
                .collect(),
            _ => return flat.flatconfig(),
        };
        lines.sort();
        lines.dedup();
        lines.concat()
    }
}

/// The exit code that a handler gives.
fn exit_code(handlers: &Handlers, name: &str) -> Result<i32, Failure> {
    let value = handlers.read(name, "").map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(match value.trim() {
        "true" | "yes" => 0,
        "false" | "no" => 1,
        // Of a number the system keeps the lowest byte.
        text => text.parse::<i32>().unwrap_or_else(|_| {
            message(format_args!("{name}: `{text}` is no exit code"));
            -1
        }),
    })
}

fn write_out(path: &Path, text: &str) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return Ok(std::io::stdout().write_all(text.as_bytes())?);
    }
    let failed = |error: std::io::Error| {
        Failure::outside(error.kind(), format_args!("{}: {error}", path.display()))
    };
    std::fs::write(path, text).map_err(failed)
}

/// Prints handlers, and reports what is wrong with others.
fn print_handlers(handlers: &Handlers, names: &[String]) -> Result<(), Failure> {
    let wrong = handlers::print(handlers, names, &mut std::io::stdout().lock())?;
    wrong.iter().for_each(message);
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Reported(Exit::Failed)) }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    fn arguments(words: &[&str]) -> Arguments {
        let command = Arguments::augment_args(clap::Command::new("click"));
        let matches = command.try_get_matches_from([&["click"][..], words].concat()).unwrap();
        Arguments::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn elements_end_whatever_handlers_do() {
        let file = std::env::temp_dir().join(format!("fp-ended-{}", std::process::id()));
        let text = format!(
            "Idle -> AggregateIPFlows(TRACEINFO {}) -> Discard; s :: Script(TYPE PASSIVE, return 3)",
            file.display()
        );
        let run = |handlers: &[&str], exit_handler| {
            let given = Given::default();
            let planned =
                super::planned(None, "a", &text, &given, &OpenPolicy::waiting()).ok().unwrap();
            let options = SingleOptions {
                name: "a".to_owned(),
                given,
                sockets: Vec::new(),
                reconfigures: false,
                virtual_start_ns: None,
            };
            let single = Single::start(planned, options).ok().unwrap();
            let handlers: Vec<String> = handlers.iter().map(ToString::to_string).collect();
            let code = ended(single, &handlers, exit_handler).ok();
            assert!(std::fs::read_to_string(&file).unwrap().ends_with("</trace>\n"));
            code
        };
        assert_eq!(run(&["s.nothing"], None), None);
        assert_eq!(run(&["s.nothing"], Some("s.run")), Some(3), "as in Click");
        assert_eq!(run(&[], Some("s.nothing")), None);
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn what_is_flat_is_listed() {
        let text = "define($n 5) elementclass A { $x | input -> b :: B($x) -> output }
            a :: A($n); Z -> a -> Queue($n) -> A(1) -> Z";
        let listed = |words: &[&str]| {
            let arguments = arguments(words);
            let flat = flattened("a", text, &Given::default(), arguments.expand_vars);
            (arguments.is_listing(), arguments.listed(&flat.unwrap()))
        };
        let all = |text: &str| (true, text.to_owned());
        assert_eq!(listed(&["flatten", "-c"]), all("B\nQueue\nZ\n"));
        assert_eq!(listed(&["flatten", "--names"]), all("A@4/b\nQueue@3\nZ@2\nZ@5\na/b\n"));
        assert_eq!(
            listed(&["flatten", "--decls"]),
            all("A@4/b :: B\nQueue@3 :: Queue\nZ@2 :: Z\nZ@5 :: Z\na/b :: B\n")
        );
        let (_, flat) = listed(&["flatten"]);
        assert!(
            flat.starts_with("define($n 5);\n\n") && flat.contains("Queue@3 :: Queue($n);\n"),
            "{flat}"
        );
        assert!(flat.contains("a/b :: B(5);\n"), "{flat}");
        let (_, flat) = listed(&["flatten", "--expand-vars"]);
        assert!(!flat.contains("define") && flat.contains("Queue@3 :: Queue(5);\n"), "{flat}");
    }
}
