//! `trace add`: traces of workers as documents; the prefix of a lookup is looked up again in the RIB.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use fingerpost_lpm::{NextHopId, Routes};
use fingerpost_packet::Meta;
use fingerpost_packet::feature::Feature;
use fingerpost_packet::feature::row::FeatureArc;
use fingerpost_packet::filter::Filter;
use fingerpost_packet::frame::flow::{of_ip4, of_ip6};
use fingerpost_packet::frame::wire::{ETHER_BYTES, Ether, ether};
use fingerpost_packet::graph::trace::{MOST_PACKETS, Trace, Wanted};
use fingerpost_packet::graph::worker::Command;
use fingerpost_route::{AnyPrefix, ForwardingAction, FoundHop, MAIN_TABLE, MOST_VRFS};

use super::View;
use super::hops::action_word;
use crate::api::error::{ApiError, Code};
use crate::api::graph::{PacketTrace, TraceQuery, TraceRoute};
use crate::daemon::cluster::Node;
use crate::daemon::workers::Workers;
use crate::packet_path::{TraceWriter, destination};

/// Time that workers have to hand out their traces once they are stopped.
const ENDING: Duration = Duration::from_millis(500);

/// A trace in progress.
pub(in crate::daemon) struct Tracing {
    traces: Receiver<Trace>,
    until: Instant,
    /// Packets wanted.
    packets: u64,
    /// Packets taken so far.
    taken: u64,
    /// When workers were stopped.
    stopped: Option<Instant>,
}

impl Tracing {
    /// Has workers trace packets.
    pub(super) fn begin(
        query: &TraceQuery,
        workers: &Workers,
        node: Option<&Node>,
    ) -> Result<Self, ApiError> {
        if !(1..=MOST_PACKETS).contains(&query.packets) {
            let message = format!("1 to {MOST_PACKETS} packets");
            return Err(ApiError::at(Code::BadRequest, "packets", message));
        }
        let filter = Filter::parse(&query.filter)
            .map_err(|error| ApiError::at(Code::BadRequest, "filter", error))?;
        let (wanted, traces) = Wanted::new(Some(filter), query.packets);
        let wanted = match node {
            Some(node) => node.trace_inside(wanted),
            None => wanted,
        };
        for worker in workers.iter() {
            worker.send(Command::Trace(Some(wanted.tracer(&worker.pool))));
        }
        let until = Instant::now() + Duration::from_secs_f64(query.seconds);
        Ok(Self { traces, until, packets: query.packets.into(), taken: 0, stopped: None })
    }

    /// Error of another trace while this one is in progress.
    pub(super) fn busy(&self) -> ApiError {
        let left = self.until.saturating_duration_since(Instant::now()).as_secs() + 1;
        let message = format!("a trace is in progress, for {left} s at most: one at a time");
        ApiError::new(Code::Refused, message)
    }

    /// Traces since the last call, each with its number, and whether there may be more.
    pub(super) fn take(&mut self, workers: &Workers) -> (Vec<(u64, Trace)>, bool) {
        let now = Instant::now();
        let (mut taken, mut more) = (Vec::new(), true);
        loop {
            match self.traces.try_recv() {
                Ok(trace) => {
                    self.taken += 1;
                    taken.push((self.taken, trace));
                }
                Err(TryRecvError::Empty) => break,
                // All workers are done with it.
                Err(TryRecvError::Disconnected) => {
                    more = false;
                    break;
                }
            }
        }
        if now >= self.until && self.stopped.is_none() {
            self.stopped = Some(now);
            disarm(workers);
        }
        more &= self.taken < self.packets;
        more &= self.stopped.is_none_or(|at| now.duration_since(at) < ENDING);
        (taken, more)
    }
}

/// Has workers trace no more packets.
pub(super) fn disarm(workers: &Workers) {
    workers.iter().for_each(|worker| worker.send(Command::Trace(None)));
}

impl View<'_> {
    /// Document of a trace.
    pub(super) fn traced(&self, trace: &Trace, number: u64) -> PacketTrace {
        let port = |number| self.port_name(number);
        let found = |frame: &[u8], meta| self.found(frame, meta);
        let notes = |class: &str, frame: &[u8], meta| self.notes(class, frame, meta);
        let cluster = |class: &str, before: &[u8], after: &[u8], reason: u32| {
            self.graph.node.as_ref()?.step(class, before, after, reason)
        };
        let (plan, port) = (self.graph.plan(), &port);
        let writer = TraceWriter { plan, port, found: &found, notes: &notes, cluster: &cluster };
        writer.write(trace, number)
    }

    /// Decision of the feature whose element is of this class about a frame.
    fn notes(&self, class: &str, frame: &[u8], meta: Meta) -> Vec<String> {
        let states = self.graph.features.states();
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

    /// What a lookup found for a frame, and what the lookups in VRFs find that its route leads to.
    fn found(&self, frame: &[u8], meta: Meta) -> Vec<TraceRoute> {
        let Some((hop, addr)) = meta.hop.as_next_hop().zip(destination(frame)) else {
            return Vec::new();
        };
        let forwarding = self.control.forwarding();
        let hash = flow_hash(self.workers.flow_seed(), frame);
        let (table, _) = self.tables_of(meta.port, Some(addr));
        let action = forwarding.hops.action(hop, hash);
        let first = self.trace_route(table, addr, hop, action);
        let ForwardingAction::Vrf(port, _) = action else { return vec![first] };
        let found: Vec<FoundHop> = match addr {
            IpAddr::V4(addr) => {
                forwarding.lookups(port, addr.to_bits(), || hash).take(MOST_VRFS).collect()
            }
            IpAddr::V6(addr) => {
                forwarding.lookups(port, addr.to_bits(), || hash).take(MOST_VRFS).collect()
            }
        };
        let route = |found: FoundHop| {
            self.trace_route(self.table_of_fib(found.fib), addr, found.hop, found.action)
        };
        std::iter::once(first).chain(found.into_iter().map(route)).collect()
    }

    fn trace_route(
        &self,
        table: u32,
        addr: IpAddr,
        hop: NextHopId,
        action: ForwardingAction,
    ) -> TraceRoute {
        let prefix = self.control.ribs(table).and_then(|(rib_v4, rib_v6)| match addr {
            IpAddr::V4(addr) => {
                rib_v4.best(addr.to_bits()).map(|(prefix, _)| AnyPrefix::V4(prefix))
            }
            IpAddr::V6(addr) => {
                rib_v6.best(addr.to_bits()).map(|(prefix, _)| AnyPrefix::V6(prefix))
            }
        });
        TraceRoute {
            table,
            prefix: prefix.map(|prefix| prefix.to_string()),
            nexthop: hop.0,
            action: action_word(action).to_owned(),
            adjacency: match action {
                ForwardingAction::Adjacency(index) => self.adjacency(index),
                _ => None,
            },
        }
    }

    /// Number of the route table of a fib.
    fn table_of_fib(&self, fib: u16) -> u32 {
        let tables = self.control.tables();
        tables.get(usize::from(fib)).map_or(MAIN_TABLE, |id| id.number())
    }

    /// Route table with the route of packets to an address that arrive at a port, and the one that is looked up first.
    pub(super) fn tables_of(&self, port: u16, addr: Option<IpAddr>) -> (u32, u32) {
        let forwarding = self.control.forwarding();
        let fibs =
            forwarding.ports.fibs(port, usize::from(addr.is_some_and(|addr| addr.is_ipv6())));
        let has = |fib: u16| match addr {
            Some(IpAddr::V4(addr)) => {
                forwarding.is_found(forwarding.v4_of(fib).lookup(addr.to_bits()))
            }
            Some(IpAddr::V6(addr)) => {
                forwarding.is_found(forwarding.v6_of(fib).lookup(addr.to_bits()))
            }
            None => true,
        };
        let found = fibs.iter().copied().find(|&fib| has(fib));
        (self.table_of_fib(found.unwrap_or(fibs[0])), self.table_of_fib(fibs[0]))
    }

    pub(super) fn port_name(&self, port: u16) -> String {
        let link = self.control.links().find(|(_, number, _)| *number == port);
        link.map_or_else(|| port.to_string(), |(_, _, state)| state.name.clone())
    }
}

/// Flow hash of a frame in workers with this seed.
fn flow_hash(seed: u64, frame: &[u8]) -> u32 {
    let packet = frame.get(ETHER_BYTES..).unwrap_or_default();
    match Ether::of(frame).map(Ether::kind) {
        Some(ether::TYPE_IP6) => of_ip6(seed, packet),
        _ => of_ip4(seed, packet),
    }
}
