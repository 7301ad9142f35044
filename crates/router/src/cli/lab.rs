//! Commands of `fingerpost-lab`, which measures and shows: the binary beside this one takes the place of the process,
//! with the command line as it is.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use clap::{Arg, ArgAction, ArgMatches, value_parser};

use super::command::{Command, Exit, Failure};
use super::output::Output;

/// File name of the binary.
const BINARY: &str = "fingerpost-lab";

pub(super) const DEMO: Command = Command {
    name: "demo",
    summary: "Forward at full rate through a full table, and check what arrives (fingerpost-lab)",
    ..ROW
};

pub(super) const BENCH: Command = Command {
    name: "bench",
    summary: "Measure, after checking the answers (fingerpost-lab)",
    ..ROW
};

pub(super) const PAPERS: Command = Command {
    name: "papers",
    summary: "The figures of the papers, beside those of this machine (fingerpost-lab)",
    ..ROW
};

const ROW: Command = Command { name: "", summary: "", examples: "", arguments: any, run };

/// Every argument is one of the other program, `--help` too.
fn any(command: clap::Command) -> clap::Command {
    let arguments = Arg::new("arguments").action(ArgAction::Append).num_args(0..);
    let arguments = arguments.value_parser(value_parser!(OsString)).value_name("ARGUMENTS");
    command.disable_help_flag(true).arg(arguments.trailing_var_arg(true).allow_hyphen_values(true))
}

/// Does not return where the binary starts.
fn run(_: &ArgMatches, _: &mut Output) -> Result<(), Failure> {
    let own = std::env::current_exe();
    let own = own.map_err(|error| Failure::outside(error.kind(), format_args!("{error}")))?;
    let lab = own.with_file_name(BINARY);
    let error = std::process::Command::new(&lab).args(std::env::args_os().skip(1)).exec();
    let path = lab.display();
    let remedy = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "; `cargo build --release --workspace` builds it beside this program, `cargo xtask demo` runs the demo"
        }
        _ => "",
    };
    Err(Failure::new(Exit::Failed, format_args!("{path}: {error}{remedy}")))
}
