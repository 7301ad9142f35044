//! The registry of commands.

mod algorithms;
mod bench;
mod choice;
pub(crate) mod command;
mod completions;
mod demo;
mod load;
mod lookup;
pub(crate) mod output;
mod run;
mod table;

use command::Command;

/// Every command, in the order in which help lists them.
pub(crate) static COMMANDS: &[Command] = &[
    demo::COMMAND,
    run::COMMAND,
    lookup::COMMAND,
    table::COMMAND,
    algorithms::COMMAND,
    bench::COMMAND,
    completions::COMMAND,
];
