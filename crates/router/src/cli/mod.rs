//! The registry of commands.

mod algorithms;
mod choice;
pub(crate) mod command;
mod completions;
mod load;
mod lookup;
pub(crate) mod output;
mod table;

use command::Command;

/// Every command, in the order in which help lists them.
pub(crate) static COMMANDS: &[Command] =
    &[lookup::COMMAND, table::COMMAND, algorithms::COMMAND, completions::COMMAND];
