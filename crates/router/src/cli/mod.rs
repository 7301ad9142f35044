//! The registry of commands.

mod algorithms;
mod at;
#[cfg(feature = "click")]
mod click;
mod cluster;
mod completions;
mod config;
mod feature;
mod fib;
mod graph;
mod group;
mod interface;
mod lab;
mod list;
mod log;
mod lookup;
mod man;
mod monitor;
mod neighbor;
mod nexthop;
mod release;
mod route;
mod run;
mod source;
mod source_filter;
mod table;
mod top;
mod trace;
mod why;

use fingerpost_command::dispatch::Program;
pub(crate) use fingerpost_command::{choice, dispatch as command, load, output};

use command::Command;

/// The program.
pub(crate) const PROGRAM: Program = Program {
    name: "fingerpost",
    about: "A software IP router: routes in, packets through",
    commands: COMMANDS,
    made: Some(feature::COMMANDS),
};

/// Every command, in the order in which help lists them.
static COMMANDS: &[Command] = &[
    run::COMMAND,
    release::COMMAND,
    route::COMMAND,
    nexthop::COMMAND,
    group::COMMAND,
    fib::COMMAND,
    source::COMMAND,
    source_filter::COMMAND,
    interface::COMMAND,
    neighbor::COMMAND,
    monitor::COMMAND,
    config::COMMAND,
    log::COMMAND,
    lookup::COMMAND,
    table::COMMAND,
    algorithms::COMMAND,
    graph::COMMAND,
    #[cfg(feature = "click")]
    click::COMMAND,
    trace::COMMAND,
    why::COMMAND,
    top::COMMAND,
    cluster::COMMAND,
    lab::DEMO,
    lab::BENCH,
    lab::PAPERS,
    completions::COMMAND,
    man::COMMAND,
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_row_has_help_and_examples_that_parse() {
        fingerpost_command::testing::check_rows(&super::PROGRAM, super::lab::ELSEWHERE);
    }

    #[test]
    fn former_names_warn_with_the_present_ones() {
        let program = super::command::command_line(&super::PROGRAM);
        for (call, alias, name) in [
            ("fingerpost run --survive 60", "--survive", "--nonstop"),
            ("fingerpost feed show", "feed", "source"),
            ("fingerpost --json filter show", "filter", "source-filter"),
        ] {
            let args = call.split(' ').map(str::to_owned);
            let warning = fingerpost_command::former::warning(alias, name);
            assert_eq!(fingerpost_command::former::warnings(&program, args), [warning]);
        }
    }
}
