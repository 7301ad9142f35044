//! The paths of packets through such a router, as the global handler `trace`.
//!
//! `N FILTER` is written, and the next N packets that the filter takes are followed, whichever worker receives them;
//! what became of them is read, as often as one likes, until something else is written: as text, or for programs with
//! the parameter `json`, a line each. A replaced configuration ends it, since steps name elements of the one before.

use std::fmt::Write as _;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fingerpost_packet::filter::Filter;
use fingerpost_packet::graph::trace::{MOST_PACKETS, Trace, Wanted};
use fingerpost_packet::graph::worker::Command;
use fingerpost_packet::handler::Handler;
use fingerpost_packet::{Plan, Pool};

use crate::api::graph::{PacketTrace, TraceStep};
use crate::packet_path::TraceWriter;

use super::workers::{Orders, Workers};

/// The trace in progress, and the traces taken from it.
#[derive(Clone)]
pub(super) struct Tracing {
    workers: Arc<[(Orders, Pool)]>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    traces: Option<Receiver<Trace>>,
    told: Vec<PacketTrace>,
}

impl Tracing {
    pub(super) fn new(workers: &Workers) -> Self {
        let orders = workers.orders();
        let workers = orders.iter().cloned().zip(workers.pools()).collect();
        Self { workers, state: Arc::default() }
    }

    /// The handlers of the present configuration.
    pub(super) fn handlers(&self, plan: &Plan) -> [Handler; 2] {
        let (plan, read, write) = (plan.clone(), self.clone(), self.clone());
        [
            Handler::read_with("trace", move |parameter| {
                read.gather(&plan);
                read.read(parameter)
            }),
            Handler::write("trace", move |text| write.begin(text)),
        ]
    }

    /// Puts what was traced so far into words, by the configuration that it was traced in.
    pub(super) fn gather(&self, plan: &Plan) {
        let State { traces, told } = &mut *self.state();
        for trace in traces.iter().flat_map(Receiver::try_iter) {
            told.push(words(plan, &trace, told.len() as u64 + 1));
        }
    }

    /// Nothing for text; `json` and from which number on, where not from the first, for a line each.
    fn read(&self, parameter: &str) -> Result<String, String> {
        let mut asked = parameter.split_whitespace();
        let state = self.state();
        let mut text = String::new();
        match (asked.next(), asked.next(), asked.next()) {
            (None, ..) => state.told.iter().for_each(|trace| tell(trace, &mut text)),
            (Some("json"), from, None) => {
                let from = from.map_or(Ok(1), str::parse::<u64>);
                let from = from.map_err(|_| format!("`{parameter}`: json [FROM]"))?;
                for trace in state.told.iter().filter(|trace| trace.number >= from) {
                    text += &json(trace);
                    text.push('\n');
                }
            }
            _ => return Err(format!("`{parameter}`: nothing, or json [FROM]")),
        }
        Ok(text)
    }

    /// `N FILTER`, or `N` alone for all packets; 0 ends it.
    fn begin(&self, text: &str) -> Result<(), String> {
        let (count, filter) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let count: u32 =
            count.parse().ok().filter(|&count| count <= MOST_PACKETS).ok_or_else(|| {
                format!("`{count}` is no number of packets up to {MOST_PACKETS}: N FILTER")
            })?;
        let filter = match filter.trim() {
            "" => None,
            filter => Some(Filter::parse(filter).map_err(|error| error.to_string())?),
        };
        let mut state = self.state();
        if count == 0 {
            // Taken traces stay to be read, and packets still inside are reported as far as they got.
            self.workers.iter().for_each(|(orders, _)| orders.tell(Command::Trace(None)));
            return Ok(());
        }
        let (wanted, traces) = Wanted::new(filter, count);
        *state = State { traces: Some(traces), ..State::default() };
        for (orders, pool) in &*self.workers {
            orders.tell(Command::Trace(Some(wanted.tracer(pool))));
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole whatever panicked beside it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A trace in words, of this configuration.
pub(super) fn words(plan: &Plan, trace: &Trace, number: u64) -> PacketTrace {
    let port = |number: u16| {
        let device = plan.devices().get(usize::from(number));
        device.map_or_else(|| "-".to_owned(), |device| device.name.clone())
    };
    let (found, notes) = (|_: &[u8], _| Vec::new(), |_: &str, _: &[u8], _| Vec::new());
    let cluster = |_: &str, _: &[u8], _: &[u8], _: u32| None;
    TraceWriter { plan, port: &port, found: &found, notes: &notes, cluster: &cluster }
        .write(trace, number)
}

/// Document of a trace, for programs.
pub(super) fn json(document: &impl serde::Serialize) -> String {
    serde_json::to_string(document).expect("writing to memory cannot fail")
}

/// Path of one packet: the packet, then a line for each element.
pub(super) fn tell(trace: &PacketTrace, text: &mut String) {
    let PacketTrace { number, interface, packets, .. } = trace;
    let summary = |packet: usize| packets.get(packet).map_or("", |packet| &packet.summary);
    let _ = writeln!(text, "{number} by {interface}: {}", summary(0));
    for step in &trace.steps {
        let indent = if step.packet == 0 { "    " } else { "        " };
        let of = if step.packet == 0 { String::new() } else { format!("{}: ", step.packet) };
        let _ = writeln!(text, "{indent}{of}{}", line(step));
        for made in &step.made {
            let _ = writeln!(text, "        {made}: made of it: {}", summary((*made).into()));
        }
    }
    if trace.cut {
        text.push_str("    and more\n");
    }
}

/// What an element did to a packet.
fn line(step: &TraceStep) -> String {
    let mut text = format!("{} ({})", step.element, step.class);
    if let Some(found) = &step.found {
        let _ = write!(text, ": {}", found.prefix.as_deref().unwrap_or("no route"));
        if let Some(gateway) = &found.gateway {
            let _ = write!(text, " via {gateway}");
        }
    }
    let changed = step.changes.iter();
    let changed: Vec<String> =
        changed.map(|change| format!("{} {} > {}", change.field, change.from, change.to)).collect();
    if !changed.is_empty() {
        let _ = write!(text, ": {}", changed.join(", "));
    }
    let or_dash = |words: &Option<String>| words.clone().unwrap_or_else(|| "-".to_owned());
    text += &match (step.does.as_str(), step.output, &step.output_name) {
        ("passed", _, Some(name)) => format!(" -> {name}"),
        ("passed", Some(output), None) => format!(" -> {output}"),
        ("dropped", ..) => format!(": dropped, {}: {}", or_dash(&step.reason), or_dash(&step.why)),
        ("sent", ..) => format!(": sent by {}", or_dash(&step.interface)),
        ("written", ..) => ": written".to_owned(),
        _ => ": waits".to_owned(),
    };
    text
}
