//! `fingerpost cluster`: plan and simulate a cluster of routers, and the node that a running router is.

mod parameters;
mod plan;
mod sim;
mod status;

use clap::{ArgMatches, Subcommand};

use super::command::{Command, Failure, parsed, subcommands};
use super::output::Output;
use crate::cli::at::At;

pub(super) const COMMAND: Command = Command {
    name: "cluster",
    summary: "A cluster of routers that act as one: plan, simulate, status, parameters, drain",
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
    /// State of the cluster: members, links and their load, packets, drops
    #[command(after_help = status::EXAMPLES)]
    Status(At),
    /// Change parameters of the cluster in its store, for all nodes
    #[command(after_help = parameters::EXAMPLES)]
    Set(parameters::Arguments),
    /// Drain this node: the others send nothing through it
    #[command(after_help = status::DRAIN)]
    Drain(At),
    /// End the drain of this node
    #[command(after_help = status::UNDRAIN)]
    Undrain(At),
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    match parsed::<What>(matches)? {
        What::Plan(arguments) => plan::run(&arguments, output),
        What::Sim(arguments) => sim::run(&arguments, output),
        What::Status(at) => status::run(&at, output),
        What::Set(arguments) => parameters::run(&arguments, output),
        What::Drain(at) => status::drain(&at, true, output),
        What::Undrain(at) => status::drain(&at, false, output),
    }
}
