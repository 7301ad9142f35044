//! `fingerpost graph show`: a configuration as it is once compounds and variables are expanded.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

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
    /// Print an SVG picture, drawn by Graphviz (pull connections dashed)
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
        (_, true) => picture("dot", &graph.dot())?,
        _ => graph.flatconfig(),
    };
    Ok(output.print(&Shown::new(&graph, text))?)
}

/// Picture that Graphviz's `program` makes of `text`.
fn picture(program: &str, text: &str) -> Result<String, Failure> {
    let failed = |words: &dyn Display| {
        let words = format_args!("cannot run {program} of Graphviz: {words}; see --dot");
        Failure::new(Exit::Failed, words)
    };
    let mut command = Command::new(program);
    command.arg("-Tsvg").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut dot = command.spawn().map_err(|error| failed(&error))?;
    // It writes nothing before it has read all.
    let written = dot.stdin.take().expect("it is piped").write_all(text.as_bytes());
    let done = written.and_then(|()| dot.wait_with_output()).map_err(|error| failed(&error))?;
    if !done.status.success() {
        return Err(failed(&done.status));
    }
    String::from_utf8(done.stdout).map_err(|error| failed(&error))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_is_what_the_program_makes_of_the_text() {
        let program = std::env::temp_dir().join(format!("fpdot{}", std::process::id()));
        std::fs::write(&program, "#!/bin/sh\nsed s/digraph/$1/\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        assert_eq!(picture(program.to_str().unwrap(), "digraph {}").unwrap(), "-Tsvg {}");
        std::fs::remove_file(&program).unwrap();
        for (program, reason) in [("/no/such/dot", "No such file"), ("false", "exit status: 1")] {
            let Err(Failure::Failed(Exit::Failed, words)) = picture(program, "") else { panic!() };
            assert!(words.contains(program) && words.contains(reason), "{words}");
        }
    }

    #[test]
    fn graphviz_draws_a_graph() {
        if Command::new("dot").arg("-V").output().is_err() {
            return println!("skipped: needs graphviz");
        }
        let file = std::env::temp_dir().join(format!("fpdraw{}.click", std::process::id()));
        std::fs::write(&file, "FromDevice(a) -> q :: Queue(8) -> ToDevice(b);").unwrap();
        let Ok(Ok(graph)) = super::super::read(&file) else { panic!("it is a graph") };
        std::fs::remove_file(&file).unwrap();
        let svg = picture("dot", &graph.dot()).unwrap();
        assert!(svg.contains("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for element in graph.elements() {
            assert!(svg.contains(element.class.name), "{}: {svg}", element.class.name);
        }
        let drawn = svg.matches("class=\"edge\"").count();
        assert_eq!(
            (drawn, svg.matches("stroke-dasharray").count()),
            (2, 1),
            "one is pulled: {svg}"
        );
    }
}
