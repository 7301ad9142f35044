//! Commands of `fingerpost-lab`, which measures and shows: the binary beside this one takes the place of the process,
//! with the command line as it is.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use clap::Args;

use super::command::{Command, Exit, Failure};

/// These commands, for tests of all others.
#[cfg(test)]
pub(super) const ELSEWHERE: &[&str] = &["demo", "bench", "papers", "table check"];

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

const ROW: Command = Command {
    name: "",
    summary: "",
    examples: "",
    arguments: Any::augment_args,
    run: |_, _| start(),
};

/// Arguments of the other program, `--help` among them.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(super) struct Any {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Starts the binary with the command line of this process; returns only where it does not start.
pub(super) fn start() -> Result<(), Failure> {
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
