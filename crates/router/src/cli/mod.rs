//! The registry of commands.

mod algorithms;
mod bench;
mod choice;
pub(crate) mod command;
mod completions;
mod config;
mod demo;
mod feed;
mod fib;
mod filter;
mod graph;
mod group;
mod interface;
mod list;
mod load;
mod lookup;
mod monitor;
mod neighbor;
mod nexthop;
pub(crate) mod output;
mod release;
mod route;
mod run;
mod table;
mod top;
mod trace;
mod why;

use command::Command;

/// Every command, in the order in which help lists them.
pub(crate) static COMMANDS: &[Command] = &[
    demo::COMMAND,
    run::COMMAND,
    release::COMMAND,
    route::COMMAND,
    nexthop::COMMAND,
    group::COMMAND,
    fib::COMMAND,
    filter::COMMAND,
    interface::COMMAND,
    neighbor::COMMAND,
    feed::COMMAND,
    monitor::COMMAND,
    config::COMMAND,
    lookup::COMMAND,
    table::COMMAND,
    algorithms::COMMAND,
    graph::COMMAND,
    trace::COMMAND,
    why::COMMAND,
    top::COMMAND,
    bench::COMMAND,
    completions::COMMAND,
];
