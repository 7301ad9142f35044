//! `fingerpost graph show`: a configuration as it is once compounds and variables are expanded.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use fingerpost_packet::language::{Configuration, Processing};
use serde::Serialize;

use crate::cli::command::{Exit, Failure};
use crate::cli::output::{Output, Report, message};

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost graph show router.click
  $ fingerpost graph show router.click --dot | dot -Tpdf > router.pdf
  $ fingerpost graph show router.click --svg > router.svg
  $ fingerpost graph show router.click --json | jq -r '.elements[].name'";

#[derive(Args)]
pub(super) struct Arguments {
    /// Configuration in Click's language
    file: PathBuf,
    /// Print the language of Graphviz
    #[arg(long, conflicts_with = "svg")]
    dot: bool,
    /// Print an SVG picture: push connections solid, pull connections dashed, back edges curved
    #[arg(long)]
    svg: bool,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let graph = super::read(&arguments.file)?.map_err(|errors| {
        let file = arguments.file.display();
        for report in &errors.reports {
            message(format_args!("{}: {}", report.place, report.message));
        }
        message(format_args!("see fingerpost graph check {file}"));
        Failure::Reported(Exit::Failed)
    })?;
    let text = match (arguments.dot, arguments.svg) {
        (true, _) => graph.dot(),
        (_, true) => graph.svg().map_err(|error| {
            let file = arguments.file.display();
            Failure::new(Exit::Failed, format_args!("{file}: {error}; --dot has no such limit"))
        })?,
        _ => graph.flatconfig(),
    };
    Ok(output.print(&Shown::new(&graph, text))?)
}

/// The JSON of this command.
#[derive(Serialize)]
struct Shown<'a> {
    elements: Vec<Element<'a>>,
    connections: Vec<Connection<'a>>,
    /// What is printed without `--json`.
    text: String,
}

#[derive(Serialize)]
struct Element<'a> {
    name: &'a str,
    class: &'a str,
    config: &'a str,
    inputs: u32,
    outputs: u32,
}

#[derive(Serialize)]
struct Connection<'a> {
    from: &'a str,
    output: u32,
    to: &'a str,
    input: u32,
    /// `push` or `pull`.
    kind: &'static str,
}

impl<'a> Shown<'a> {
    fn new(graph: &'a Configuration, text: String) -> Self {
        let elements = graph.elements().iter().map(|element| Element {
            name: &element.name,
            class: element.class.name,
            config: element.config.as_str(),
            inputs: element.inputs,
            outputs: element.outputs,
        });
        let name = |number: u32| &*graph.elements()[number as usize].name;
        let connections = graph.connections().iter().map(|wire| Connection {
            from: name(wire.from),
            output: wire.output,
            to: name(wire.to),
            input: wire.input,
            kind: if wire.kind == Processing::Pull { "pull" } else { "push" },
        });
        Self { elements: elements.collect(), connections: connections.collect(), text }
    }
}

impl Report for Shown<'_> {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(self.text.as_bytes())
    }
}
