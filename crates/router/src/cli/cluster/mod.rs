//! `fingerpost cluster`: plan and simulate a cluster of routers.

mod plan;
mod sim;

use clap::{ArgMatches, Subcommand};

use super::command::{Command, Failure, parsed, subcommands};
use super::output::Output;

pub(super) const COMMAND: Command = Command {
    name: "cluster",
    summary: "Plan and simulate a cluster of routers that act as one",
    examples: "",
    arguments: subcommands::<What>,
    run,
};

#[derive(Subcommand)]
enum What {
    /// Plan a cluster: servers, links and their rates, cores, what failures leave, and power
    #[command(after_help = plan::EXAMPLES)]
    Plan(plan::Arguments),
    /// Simulate a cluster: delivered packets, loads, reordering, fairness and latency of a traffic matrix
    #[command(after_help = sim::EXAMPLES)]
    Sim(sim::Arguments),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    match parsed::<What>(matches)? {
        What::Plan(arguments) => plan::run(&arguments, output),
        What::Sim(arguments) => sim::run(&arguments, output),
    }
}
