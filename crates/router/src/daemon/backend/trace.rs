//! `trace add`: packets that workers follow, in words; what the lookup found is asked again of the RIB.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use fingerpost_lpm::Routes;
use fingerpost_packet::Meta;
use fingerpost_packet::feature::Feature;
use fingerpost_packet::feature::row::FeatureArc;
use fingerpost_packet::filter::Filter;
use fingerpost_packet::flow::{of_ip4, of_ip6};
use fingerpost_packet::trace::{MOST_PACKETS, Trace, Wanted};
use fingerpost_packet::wire::{ETHER_BYTES, Ether, ether};
use fingerpost_packet::worker::Command;
use fingerpost_route::{AnyPrefix, ForwardingAction, MAIN_TABLE};

use super::Daemon;
use super::hops::action_word;
use crate::api::error::{ApiError, Code};
use crate::api::graph::{PacketTrace, TraceQuestion, TraceRoute};
use crate::packet_path::{Teller, destination};

/// How long workers may take to hand out what they have, once they were told to stop.
const ENDING: Duration = Duration::from_millis(500);
/// A trace that nobody asks for any more ends by itself.
const ABANDONED: Duration = Duration::from_secs(10);

/// A trace under way.
pub(in crate::daemon) struct Tracing {
    number: u64,
    traces: Receiver<Trace>,
    until: Instant,
    /// How many were asked for.
    packets: u64,
    told: u64,
    /// Workers were told to stop then.
    stopped: Option<Instant>,
}

impl Daemon {
    /// Lets workers trace packets; the number of this trace.
    pub(crate) fn begin_trace(&mut self, question: &TraceQuestion) -> Result<u64, ApiError> {
        let now = Instant::now();
        if let Some(tracing) = &self.tracing {
            let left = tracing.until.saturating_duration_since(now).as_secs() + 1;
            let words = format!("a trace is under way, for {left} s at most: one at a time");
            return Err(ApiError::new(Code::Refused, words));
        }
        if !(1..=MOST_PACKETS).contains(&question.packets) {
            let words = format!("1 to {MOST_PACKETS} packets");
            return Err(ApiError::at(Code::BadRequest, "packets", words));
        }
        let filter = Filter::parse(&question.filter)
            .map_err(|error| ApiError::at(Code::BadRequest, "filter", error))?;
        let (wanted, traces) = Wanted::new(Some(filter), question.packets);
        for worker in &self.workers {
            worker.tell(Command::Trace(Some(wanted.tracer(&worker.pool))));
        }
        self.traces += 1;
        let until = now + Duration::from_secs_f64(question.seconds);
        let number = self.traces;
        let packets = question.packets.into();
        self.tracing = Some(Tracing { number, traces, until, packets, told: 0, stopped: None });
        Ok(number)
    }

    /// What was traced since the last call, and whether there may be more.
    pub(crate) fn next_traces(&mut self, number: u64) -> (Vec<PacketTrace>, bool) {
        let now = Instant::now();
        // Another's trace stays where it is.
        let Some(mut tracing) = self.tracing.take_if(|tracing| tracing.number == number) else {
            return (Vec::new(), false);
        };
        let (mut told, mut more) = (Vec::new(), true);
        loop {
            match tracing.traces.try_recv() {
                Ok(trace) => {
                    tracing.told += 1;
                    told.push(self.traced(&trace, tracing.told));
                }
                Err(TryRecvError::Empty) => break,
                // All workers are done with it.
                Err(TryRecvError::Disconnected) => {
                    more = false;
                    break;
                }
            }
        }
        if now >= tracing.until && tracing.stopped.is_none() {
            tracing.stopped = Some(now);
            self.disarm();
        }
        more &= tracing.told < tracing.packets;
        more &= tracing.stopped.is_none_or(|at| now.duration_since(at) < ENDING);
        if more {
            self.tracing = Some(tracing);
        } else {
            self.disarm();
        }
        (told, more)
    }

    /// Nobody waits for this trace any more.
    pub(crate) fn end_trace(&mut self, number: u64) {
        if self.tracing.as_ref().is_some_and(|tracing| tracing.number == number) {
            self.stop_tracing();
        }
    }

    /// Ends the trace under way; who waits for it gets no more.
    pub(in crate::daemon) fn stop_tracing(&mut self) {
        if self.tracing.take().is_some() {
            self.disarm();
        }
    }

    /// Ends a trace that nobody has asked for in a long time.
    pub(in crate::daemon) fn end_abandoned_trace(&mut self, now: Instant) {
        if self.tracing.as_ref().is_some_and(|tracing| now >= tracing.until + ABANDONED) {
            self.stop_tracing();
        }
    }

    fn disarm(&self) {
        self.workers.iter().for_each(|worker| worker.tell(Command::Trace(None)));
    }

    /// A trace in words.
    pub(super) fn traced(&self, trace: &Trace, number: u64) -> PacketTrace {
        let port = |number| self.port_name(number);
        let found = |frame: &[u8], meta| self.found(frame, meta);
        let notes = |class: &str, frame: &[u8], meta| self.notes(class, frame, meta);
        let teller = Teller { plan: &self.plan, port: &port, found: &found, notes: &notes };
        teller.told(trace, number)
    }

    /// Decision of the feature whose element is of this class about a frame.
    fn notes(&self, class: &str, frame: &[u8], meta: Meta) -> Vec<String> {
        let states = &self.features.states;
        let stage = |row: &'static Feature| {
            row.stages.iter().find(|stage| stage.element.spec.name == class)
        };
        let found = states.each().find_map(|(row, state)| Some((stage(row)?.arc, state)));
        let Some((arc, state)) = found else { return Vec::new() };
        let port = match arc {
            FeatureArc::Egress => meta.note.egress_port(),
            FeatureArc::Ingress | FeatureArc::Hairpin => meta.port,
        };
        state.notes(arc, frame, port)
    }

    /// What a lookup found for a frame.
    fn found(&self, frame: &[u8], meta: Meta) -> Option<TraceRoute> {
        let hop = meta.hop.as_next_hop()?;
        let forwarding = self.control.forwarding();
        let table = self.table_of(meta.port);
        let (rib_v4, rib_v6) = self.control.ribs(table)?;
        let prefix = match destination(frame)? {
            IpAddr::V4(addr) => {
                rib_v4.best(addr.to_bits()).map(|(prefix, _)| AnyPrefix::V4(prefix))
            }
            IpAddr::V6(addr) => {
                rib_v6.best(addr.to_bits()).map(|(prefix, _)| AnyPrefix::V6(prefix))
            }
        };
        let action = forwarding.hops.action(hop, flow_hash(self.flow_seed, frame));
        Some(TraceRoute {
            table,
            prefix: prefix.map(|prefix| prefix.to_string()),
            nexthop: hop.0,
            action: action_word(action).to_owned(),
            adjacency: match action {
                ForwardingAction::Adjacency(index) => self.adjacency(index),
                _ => None,
            },
        })
    }

    /// The routing table that packets of a port ask.
    pub(super) fn table_of(&self, port: u16) -> u32 {
        let fib = self.control.forwarding().ports.fib(port);
        self.control.tables().get(usize::from(fib)).map_or(MAIN_TABLE, |id| id.number())
    }

    pub(super) fn port_name(&self, port: u16) -> String {
        let link = self.control.links().find(|(_, number, _)| *number == port);
        link.map_or_else(|| port.to_string(), |(_, _, state)| state.name.clone())
    }
}

/// As workers with this seed hash it.
fn flow_hash(seed: u64, frame: &[u8]) -> u32 {
    let packet = frame.get(ETHER_BYTES..).unwrap_or_default();
    match Ether::of(frame).map(Ether::kind) {
        Some(ether::TYPE_IP6) => of_ip6(seed, packet),
        _ => of_ip4(seed, packet),
    }
}
