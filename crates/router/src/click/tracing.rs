//! The ways of packets through such a router, as the global handler `trace`.
//!
//! `N FILTER` is written, and the next N packets that the filter takes are followed, whichever worker receives them;
//! what became of them is read, as often as one likes, until something else is written. A replaced configuration ends
//! it, since steps name elements of the one before.

use std::fmt::Write as _;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fingerpost_packet::filter::Filter;
use fingerpost_packet::handler::Handler;
use fingerpost_packet::trace::{Fate, MOST_PACKETS, Step, Trace, Wanted, changes, summary};
use fingerpost_packet::worker::Command;
use fingerpost_packet::{Plan, Pool};

use super::workers::{Orders, Workers};

/// What is followed, and what was told of it.
#[derive(Clone)]
pub(super) struct Tracing {
    workers: Arc<[(Orders, Pool)]>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    traces: Option<Receiver<Trace>>,
    number: usize,
    told: String,
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
            Handler::read("trace", move || {
                read.gather(&plan);
                read.state().told.clone()
            }),
            Handler::write("trace", move |text| write.begin(text)),
        ]
    }

    /// Puts what was traced so far into words, by the configuration that it was traced in.
    pub(super) fn gather(&self, plan: &Plan) {
        let State { traces, number, told } = &mut *self.state();
        for trace in traces.iter().flat_map(Receiver::try_iter) {
            *number += 1;
            tell(plan, *number, &trace, told);
        }
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
            // What was told stays to be read.
            state.traces = None;
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

/// One packet's way: the packet, then a line for each element.
fn tell(plan: &Plan, number: usize, trace: &Trace, text: &mut String) {
    let Some(first) = trace.packets.first() else { return };
    let from = device(plan, first.meta.port);
    let _ = writeln!(text, "{number} by {from}: {}", summary(&first.frame));
    let mut last: Vec<&[u8]> = trace.packets.iter().map(|packet| &*packet.frame).collect();
    for step in &trace.steps {
        let Some(before) = last.get_mut(usize::from(step.packet)) else { continue };
        let after = step.frame.as_deref().unwrap_or(before);
        let indent = if step.packet == 0 { "    " } else { "        " };
        let of = if step.packet == 0 { String::new() } else { format!("{}: ", step.packet) };
        let _ = writeln!(text, "{indent}{of}{}", line(plan, step, before, after));
        *before = after;
        for made in &step.made {
            let packet = trace.packets.get(usize::from(*made));
            let of = packet.map(|packet| summary(&packet.frame)).unwrap_or_default();
            let _ = writeln!(text, "        {made}: made of it: {of}");
        }
    }
    if trace.cut {
        text.push_str("    and more\n");
    }
}

/// What an element did to a packet.
fn line(plan: &Plan, step: &Step, before: &[u8], after: &[u8]) -> String {
    let Some(node) = plan.nodes().get(usize::from(step.node)) else { return "?".to_owned() };
    let spec = &node.class.spec;
    let mut text = format!("{} ({})", node.name, spec.name);
    let changed = changes(before, after);
    let changed: Vec<String> = changed
        .iter()
        .map(|change| format!("{} {} > {}", change.field, change.from, change.to))
        .collect();
    if !changed.is_empty() {
        let _ = write!(text, ": {}", changed.join(", "));
    }
    let _ = match step.fate {
        Fate::Output(output) => match spec.output_names.get(usize::from(output)) {
            Some(name) => write!(text, " -> {name}"),
            None => write!(text, " -> {output}"),
        },
        Fate::Dropped(why) => write!(text, ": dropped, {}: {}", why.name(), why.summary()),
        Fate::Kept => write!(text, ": waits"),
        Fate::Sent(port) => write!(text, ": sent by {}", device(plan, port)),
    };
    text
}

/// The name of a port's device.
fn device(plan: &Plan, port: u16) -> &str {
    plan.devices().get(usize::from(port)).map_or("-", |device| &device.name)
}
