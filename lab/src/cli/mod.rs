//! The registry of commands.

mod bench;
mod demo;
mod table;

use fingerpost_command::dispatch::Program;
use fingerpost_command::{choice, dispatch as command, load, output};

/// The program.
pub(crate) const PROGRAM: Program = Program {
    name: "fingerpost-lab",
    about: "Benchmarks and the demo of Fingerpost, a software IP router",
    commands: &[demo::COMMAND, bench::COMMAND, bench::PAPERS, table::COMMAND],
    made: None,
};

#[cfg(test)]
mod tests {
    #[test]
    fn every_row_has_help_and_examples_that_parse() {
        fingerpost_command::testing::check_rows(&super::PROGRAM, &[]);
    }
}
