//! What the program `fingerpost` does: reads its command line and runs one command.
//!
//! A command is a row of `cli::PROGRAM`; nothing here knows one by name.

mod api;
mod bell;
mod cli;
mod click;
mod config;
mod control;
mod daemon;
mod flow;
mod log;
mod packet_path;
mod privilege;
mod registry;
mod service;
mod stamp;
#[allow(unsafe_code, reason = "system calls; its invariants are numbered there")]
mod sys;
mod syscalls;

use std::process::ExitCode;

/// Runs the command that the command line names.
pub fn main() -> ExitCode {
    cli::command::main(&cli::PROGRAM)
}
