//! `fingerpost graph swap`: another graph for the workers of a running router.

use std::path::PathBuf;

use clap::Args;
use hyper::Method;

use crate::api::graph::GraphStats;
use crate::api::model::ConfigText;
use crate::cli::at::At;
use crate::cli::command::{Exit, Failure};
use crate::cli::output::{Output, message};

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost graph swap router.click

Packets enter the graph by FromPorts and leave it by ToPorts; a graph of the daemon opens no \
device itself. Elements of equal name and class keep their state, and no packet is lost. The swap \
is refused where an interface forwards in XDP, past the graph, and where the file has an error: \
then the running graph stays. A restarted daemon begins with the built-in graph. A graph of `run \
FILE.click` is replaced by its handler `hotconfig`.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Configuration in Click's language
    file: PathBuf,
    #[command(flatten)]
    at: At,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let file = arguments.file.display().to_string();
    // Expanded here, with the libraries that it requires from its own folder.
    let graph = super::read(&arguments.file)?.map_err(|errors| {
        for report in &errors.reports {
            message(format_args!("{}: {}", report.place, report.message));
        }
        Failure::Reported(Exit::Failed)
    })?;
    let text = ConfigText { file, text: graph.flatconfig() };
    let stats: GraphStats = arguments.at.client()?.send(Method::PUT, "/v1/graph", &text)?;
    Ok(output.print(&stats)?)
}
