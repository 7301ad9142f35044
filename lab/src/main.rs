//! The program `fingerpost-lab`: reads its command line and runs one command.
//!
//! A command is a row of [`cli::PROGRAM`]; nothing here knows one by name.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    fingerpost_command::dispatch::main(&cli::PROGRAM)
}
