//! The program: [`fingerpost_router`] reads its command line and runs one command.
//!
//! A package of its own, because the last one decides how the link optimizes all of them: the packet path for speed, while
//! `fingerpost-router` itself is compiled for size.

use std::process::ExitCode;

fn main() -> ExitCode {
    fingerpost_router::main()
}
