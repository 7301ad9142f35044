//! `fingerpost graph swap`: another graph for the workers of a running router.

use std::path::PathBuf;

use clap::Args;
use hyper::Method;

use crate::api::client::At;
use crate::api::graph::GraphStats;
use crate::api::model::ConfigText;
use crate::cli::command::{Exit, Failure};
use crate::cli::output::{Output, message};

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost graph swap router.click

The built-in router is such a graph (crates/packet/src/router.click in the sources, and a place to
begin with). Packets come by FromPorts and leave by ToPorts; a graph of the daemon opens nothing
itself. Elements of equal name and class go on with what they know, and no packet is lost. Refused
where an interface forwards in its driver, past the graph, and whenever the file has a mistake:
then the running graph stays. The daemon begins with the built-in graph again. What `run
FILE.click` runs is replaced by its handler `hotconfig`.";

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
