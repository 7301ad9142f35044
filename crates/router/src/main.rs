//! The program: reads its command line and runs one command.
//!
//! A command is a row of [`cli::COMMANDS`]; nothing here knows one by name.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::command::main(cli::COMMANDS)
}
