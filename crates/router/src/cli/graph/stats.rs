//! `fingerpost graph stats`: what the elements of the running router count.

use std::collections::BTreeMap;
use std::io::{self, Write};

use clap::Args;

use crate::api::graph::{ElementStats, GraphQuery, GraphStats};
use crate::cli::at::At;
use crate::cli::command::Failure;
use crate::cli::output::{Columns, Output, Report, or_dash};

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost graph stats
  $ fingerpost graph stats --cycles
  $ fingerpost graph stats --json | jq '.elements[] | select(.dropped > 0) | {name, reasons}'

Each element of each worker is one line. `(ports)` are the queues to the ports, with the packets \
dropped there. --cycles times the elements for a second, or for SECONDS: two reads of the clock \
per batch and element, none before or after. Packets that the XDP datapath forwards reach no \
element: they are counted below the list.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Time the elements for a second, or SECONDS
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    cycles: Option<f64>,
    /// List only elements that received packets
    #[arg(long)]
    busy: bool,
    #[command(flatten)]
    at: At,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let question = GraphQuery { cycles: arguments.cycles };
    let mut stats: GraphStats = arguments.at.client()?.get("/v1/graph", &question)?;
    if arguments.busy {
        stats.elements.retain(|element| element.packets > 0);
    }
    Ok(output.print(&stats)?)
}

impl Report for GraphStats {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let headings =
            ["element", "class", "worker", "packets", "batches", "batch", "cycles", "dropped"];
        let mut columns = Columns::new(&headings);
        self.elements.iter().for_each(|element| columns.row(element.cells()));
        columns.write(to)?;
        let drops = || self.elements.iter().filter(|element| element.dropped > 0);
        if drops().next().is_some() {
            writeln!(to)?;
            let mut columns = Columns::new(&["dropped by", "worker", "packets", "reason"]);
            for element in drops() {
                for (reason, packets) in &element.reasons {
                    let (name, worker) = (element.name.clone(), element.worker.to_string());
                    columns.row([name, worker, packets.to_string(), reason.clone()]);
                }
            }
            columns.write(to)?;
        }
        let drivers = &self.drivers;
        if !drivers.interfaces.is_empty() {
            writeln!(to)?;
            let names = drivers.interfaces.join(", ");
            writeln!(to, "forwarded in XDP (now on {names}): {}", drivers.forwarded)?;
            reasons(to, "dropped there", &drivers.dropped)?;
            reasons(to, "left to the graph or the kernel", &drivers.left)?;
        }
        Ok(())
    }
}

fn reasons(to: &mut dyn Write, words: &str, counts: &BTreeMap<String, u64>) -> io::Result<()> {
    for (reason, packets) in counts {
        writeln!(to, "  {words}: {packets} {reason}")?;
    }
    Ok(())
}

impl ElementStats {
    fn cells(&self) -> Vec<String> {
        let rounded = |value: Option<f64>| or_dash(value.map(|value| format!("{value:.1}")));
        vec![
            self.name.clone(),
            self.class.clone(),
            self.worker.to_string(),
            self.packets.to_string(),
            self.batches.to_string(),
            rounded(self.average_batch),
            rounded(self.cycles),
            self.dropped.to_string(),
        ]
    }
}
