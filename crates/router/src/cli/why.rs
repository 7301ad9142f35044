//! `fingerpost why`: what the running router would do with a packet, and why.

use std::fmt::Write as _;
use std::io::{self, BufReader, Write};
use std::net::IpAddr;
use std::path::Path;

use clap::{ArgMatches, Args};
use fingerpost_lpm::input::{self, MOST_STREAM_BYTES};
use fingerpost_packet::graph::trace::captured;

use super::command::{Command, Exit, Failure, parsed};
use super::output::{Output, Report};
use super::route::drivers;
use crate::api::graph::{WhyAnswer, WhyQuery};
use crate::api::model::RouteAnswer;
use crate::cli::at::{At, AtGraph};
use crate::control::client::ControlClient;
use crate::flow::Flow;

pub(super) const COMMAND: Command = Command {
    name: "why",
    summary: "Explain what the running router does with a packet (dry run)",
    examples: "Examples:
  $ fingerpost why 192.0.2.1
  $ fingerpost why 192.0.2.1 --from eth0 --flow 10.0.1.2,192.0.2.1,udp,1024,53
  $ fingerpost why 02005e0000010200.. --from eth0
  $ fingerpost why capture.pcap --number 3 --from eth0
  $ fingerpost why 192.0.2.1 --control 127.0.0.1:1234

A dry run: nothing is sent, and no state changes. PACKET is a frame from its Ethernet header on, \
in hexadecimal digits, or packet --number of a capture file; for an address, a packet of --flow \
or of any flow is made up. The answer has the path through the graph by the present routes, the \
route, and the result of the XDP datapath. The ingress interface is the one that the frame is \
addressed to, unless --from names another.

--control evaluates the packet in a graph of a file (`run FILE.click`), with its present tables \
and settings; --from is a device of the file, by default the first one.",
    arguments: Arguments::augment_args,
    run,
};

#[derive(Args)]
struct Arguments {
    /// Destination address, or a packet: hexadecimal digits or a capture file
    #[arg(value_name = "ADDR|PACKET")]
    what: String,
    /// Flow of the packet: SRC,DST,PROTOCOL,SPORT,DPORT
    #[arg(long, value_name = "5-TUPLE")]
    flow: Option<String>,
    /// Ingress interface
    #[arg(long, value_name = "INTERFACE")]
    from: Option<String>,
    /// Number of the packet in a capture file, from 1
    #[arg(long, value_name = "N", default_value_t = 1)]
    number: usize,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    graph: AtGraph,
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    let Arguments { what, flow, from, number, at, graph } = parsed(matches)?;
    let mut question = WhyQuery { interface: from, ..WhyQuery::default() };
    if what.parse::<IpAddr>().is_ok() {
        (question.addr, question.flow) = (Some(what), flow);
    } else if flow.is_some() {
        return Err(Failure::new(
            Exit::Usage,
            "--flow needs the destination address as well: `why ADDR --flow ...`",
        ));
    } else if Path::new(&what).is_file() {
        question.packet = Some(packet_of(&what, number)?);
    } else if what.contains(|c: char| !c.is_ascii_hexdigit() && c != ':') {
        let words = format!("`{what}` is no address, no file, and no packet in hexadecimal digits");
        return Err(Failure::new(Exit::Usage, words));
    } else {
        question.packet = Some(what);
    }
    let answer = match graph.client()? {
        Some(graph) => tried(graph, question)?,
        None => at.client()?.get("/v1/why", &question)?,
    };
    Ok(output.print(&answer)?)
}

/// The answer of a graph of a file.
fn tried(mut graph: ControlClient, question: WhyQuery) -> Result<WhyAnswer, Failure> {
    let WhyQuery { addr, flow, packet, interface } = question;
    if let (Some(addr), Some(flow)) = (addr.as_ref().and_then(|addr| addr.parse().ok()), &flow) {
        Flow::parse(flow, addr).map_err(|words| Failure::new(Exit::Failed, words))?;
    }
    let words = [Some("json".to_owned()), interface, flow.or(addr), packet];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let answer = graph.read("why", &words.join(" "))?;
    serde_json::from_slice(answer.as_bytes())
        .map_err(|error| graph.protocol(format_args!("no answer: {error}")).into())
}

/// A packet of a capture file, in hexadecimal digits.
fn packet_of(path: &str, number: usize) -> Result<String, Failure> {
    let file = input::open_or_stdin(path, MOST_STREAM_BYTES)
        .map_err(|error| Failure::outside(error.kind(), format_args!("{path}: {error}")))?;
    let frame = captured(BufReader::new(file), number)
        .map_err(|error| Failure::new(Exit::Failed, format_args!("{path}: {error}")))?;
    let Some(frame) = frame else {
        return Err(Failure::new(
            Exit::Failed,
            format_args!("{path}: there is no packet {number}"),
        ));
    };
    Ok(frame.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

impl Report for WhyAnswer {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "{}: {}", self.does, self.verdict)?;
        if let Some(route) = &self.route {
            // How the lookup found it is for `route get --explain`.
            RouteAnswer { steps: Vec::new(), ..route.clone() }.text(to)?;
        }
        drivers(&self.drivers, to)?;
        write!(to, "dry run in the graph: ")?;
        self.dry_run.text(to)
    }
}
