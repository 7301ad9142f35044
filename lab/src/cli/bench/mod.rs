//! `fingerpost-lab bench`: a benchmark of each kind, and its options.

mod arguments;
mod build;
mod compare;
mod fib;
mod forward;
mod lookup;
mod papers;
mod print;
mod update;
mod xdp;

use super::command::Command;

pub(super) const COMMAND: Command = Command {
    name: "bench",
    summary: "Measure, after checking the answers",
    examples: "Examples:
  $ fingerpost-lab bench lookup --table testdata/tables/v4-tier1-nh496.txt.xz
  $ fingerpost-lab bench forward --table v4.txt.xz --table v6.txt.xz --stream prefix --json",
    arguments: |command| {
        let command = command.subcommand_required(true).arg_required_else_help(false);
        command.subcommands([
            lookup::command(),
            build::command(),
            update::command(),
            fib::command(),
            papers::command(),
            forward::command(),
            xdp::command(),
            compare::command(),
        ])
    },
    run: |matches, output| match matches.subcommand() {
        Some(("lookup", matches)) => lookup::run(matches, output),
        Some(("build", matches)) => build::run(matches, output),
        Some(("update", matches)) => update::run(matches, output),
        Some(("fib", matches)) => fib::run(matches, output),
        Some(("papers", matches)) => papers::run(matches, output),
        Some(("forward", matches)) => forward::run(matches, output),
        Some(("xdp", matches)) => xdp::run(matches, output),
        Some(("compare", matches)) => compare::run(matches, output),
        _ => unreachable!("clap requires a benchmark that there is"),
    },
};

/// `bench papers` by its own name.
pub(super) const PAPERS: Command = Command {
    name: "papers",
    summary: papers::SUMMARY,
    examples: "Examples:
  $ fingerpost-lab papers
  $ fingerpost-lab papers --seconds 2 --out docs/benchmarks

The options and results are those of `bench papers`.",
    arguments: papers::arguments,
    run: papers::run,
};
