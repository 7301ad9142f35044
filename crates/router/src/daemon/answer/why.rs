//! `why`: a packet through an instance of the graph that sends nothing, by the routes of this moment.
//!
//! The instance is wired as those of the workers are, with frames, counters and limits of its own, and no neighbor is
//! asked for. Of the built-in graph nothing that it does is seen outside. Elements of a graph that was swapped in share
//! what their handlers show with those of the workers: they count the trial too, and what they could learn from is
//! refused.

use std::net::IpAddr;
use std::sync::Arc;

use fingerpost_packet::buf::{BATCH, Batch};
use fingerpost_packet::graph::Round;
use fingerpost_packet::router_graph::Sources;
use fingerpost_packet::trace::{Trace, Wanted};
use fingerpost_packet::wire::icmp::PROTOCOL_ICMPV6;
use fingerpost_packet::wire::{ETHER_BYTES, Ether, IP6_BYTES, Ip4, Ip6, Ports, ether, nd};
use fingerpost_packet::{Graph, Pool, Transmit, WorkerCounters};
use fingerpost_route::{Ask, Forwarding, LinkState, Mac};

use super::Daemon;
use super::lookup::Flow;
use super::trace::destination;
use crate::api::error::{ApiError, Code};
use crate::api::model::{DriverAnswer, RouteAnswer};
use crate::api::seen::{PacketTrace, WhyAnswer, WhyQuestion};
use crate::api::server::RouteQuestion;
use crate::daemon::FLOW_SEED;

/// For the packet, an error about it, or its fragments.
const FRAMES: u32 = 256;
/// The sender of a packet that is made up: a link address that is set by hand.
const SENDER: Mac = Mac([2, 0, 0x5e, 0, 0, 1]);
/// Longest frame that may be asked for.
const LONGEST: usize = 9216;

/// Where packets of a trial go: nowhere.
struct Nowhere;

impl Transmit for Nowhere {
    fn transmit(&mut self, batch: &mut Batch) {
        batch.clear();
    }

    fn room(&mut self, _: u16) -> usize {
        BATCH
    }
}

/// Whether stations on a link say such things of themselves: ARP (anything but IP, to be safe) and neighbor discovery.
fn tells_of_neighbors(frame: &[u8]) -> bool {
    match Ether::of(frame).map(Ether::kind) {
        Some(ether::TYPE_IP4) => false,
        Some(ether::TYPE_IP6) => Ip6::at(frame, ETHER_BYTES).is_some_and(|ip| {
            let kind = frame.get(ETHER_BYTES + IP6_BYTES);
            ip.next_header() == PROTOCOL_ICMPV6
                && matches!(kind, Some(&(nd::SOLICITATION | nd::ADVERTISEMENT)))
        }),
        _ => true,
    }
}

/// An interface that packets may come in by.
type Entry<'a> = (u16, &'a LinkState, Mac);

impl Daemon {
    /// What would become of a packet.
    pub(crate) fn why(&self, question: &WhyQuestion) -> Result<WhyAnswer, ApiError> {
        let (port, frame, flow) = match (&question.addr, &question.packet) {
            (Some(addr), None) => self.made_up(addr, question)?,
            (None, Some(digits)) => {
                let frame = bytes(digits).map_err(|words| bad("packet", words))?;
                (self.entry_of(&frame, question)?.0, frame, None)
            }
            _ => return Err(bad("query", "an address, or a packet".into())),
        };
        let addr = destination(&frame);
        let table = self.table_of(port);
        let route = addr.map(|addr| {
            let flow = flow.or_else(|| flow_of(&frame)).map(|flow| flow.to_string());
            let (addr, table) = (addr.to_string(), Some(table));
            self.route_answer(&RouteQuestion { addr, explain: true, flow, table })
        });
        let mut route = route.transpose()?;
        // What they do with a packet of this kind gives way to what they do with this one.
        let drivers =
            route.as_mut().map_or_else(Vec::new, |route| std::mem::take(&mut route.drivers));
        let drivers = match (addr, frame.get(ETHER_BYTES..)) {
            (Some(addr), Some(packet)) if !drivers.is_empty() => {
                self.drivers_with(table, addr, drivers[0].packet.clone(), packet)
            }
            _ => Vec::new(),
        };
        let (trace, asks) = self.trial(port, &frame)?;
        let trial = self.traced(&trace, 1);
        let interface = self.port_name(port);
        let (does, verdict) = self.verdict(&trial, route.as_ref(), &drivers, &interface, &asks);
        Ok(WhyAnswer { does, verdict, interface, route, drivers, trial })
    }

    /// A packet to an address: where it comes in, and its frame.
    fn made_up(
        &self,
        addr: &str,
        question: &WhyQuestion,
    ) -> Result<(u16, Vec<u8>, Option<Flow>), ApiError> {
        let addr: IpAddr =
            addr.parse().map_err(|_| bad("addr", format!("`{addr}` is no address")))?;
        let flow = question.flow.as_deref().map(|text| Flow::parse(text, addr)).transpose();
        let flow = flow.map_err(|words| bad("flow", words))?.unwrap_or_else(|| Flow::any(addr));
        let (port, _, mac) = match &question.interface {
            Some(name) => self.named(name)?,
            None => self.usual_entry(addr)?,
        };
        let flow = match question.flow {
            None => self.beside(port, flow),
            Some(_) => flow,
        };
        let kind = if addr.is_ipv4() { ether::TYPE_IP4 } else { ether::TYPE_IP6 };
        let frame = [&mac.0[..], &SENDER.0, &kind.to_be_bytes(), &flow.packet()].concat();
        Ok((port, frame, Some(flow)))
    }

    /// The flow of a station on the link of a port that has sources checked: who asks for a destination alone is not
    /// to be told that the packet was forged.
    fn beside(&self, port: u16, flow: Flow) -> Flow {
        let forwarding = self.control.forwarding();
        let info = forwarding.ports.port(port).filter(|info| info.reverse_path.is_some());
        let beside = info.and_then(|info| match flow.src {
            IpAddr::V4(_) => {
                let (addr, len) = info.v4.iter().find(|(_, len)| *len < 31)?;
                let first = addr.to_bits() & (u32::MAX << (32 - len));
                let other = [first + 1, first + 2].into_iter().find(|a| *a != addr.to_bits())?;
                Some(IpAddr::V4(other.into()))
            }
            IpAddr::V6(_) => {
                let global = |a: &&(std::net::Ipv6Addr, u8)| !a.0.is_unicast_link_local();
                let (addr, _) = info.v6.iter().find(global)?;
                Some(IpAddr::V6((addr.to_bits() ^ 1).into()))
            }
        });
        Flow { src: beside.unwrap_or(flow.src), ..flow }
    }

    /// Interfaces that packets may come in by.
    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let links = self.control.links().filter(|(_, _, state)| !state.loopback && state.up);
        links.filter_map(|(_, port, state)| Some((port, state, state.mac?)))
    }

    fn named(&self, name: &str) -> Result<Entry<'_>, ApiError> {
        self.link_of(name)?;
        let found = self.entries().find(|(_, state, _)| state.name == name);
        found.ok_or_else(|| {
            let words = format!("{name} is down, or has no Ethernet: no packet comes in there");
            ApiError::at(Code::Refused, "interface", words)
        })
    }

    /// One that a packet to an address may come in by: taken over, and another than it leaves by, where there
    /// is such a one.
    fn usual_entry(&self, addr: IpAddr) -> Result<Entry<'_>, ApiError> {
        let question =
            RouteQuestion { addr: addr.to_string(), explain: false, flow: None, table: None };
        let out = self.route_answer(&question)?.adjacency.map(|adjacency| adjacency.interface);
        let report = self.interfaces.report();
        let ours = |name: &str| report.iter().any(|row| row.name == name && row.path != "kernel");
        let rank = |(_, state, _): &Entry<'_>| {
            (!ours(&state.name), out.as_deref() == Some(state.name.as_str()))
        };
        self.entries().min_by_key(rank).ok_or_else(|| {
            ApiError::at(
                Code::Refused,
                "interface",
                "no interface is up that packets may come in by",
            )
        })
    }

    /// The interface that a frame is addressed to.
    fn entry_of(&self, frame: &[u8], question: &WhyQuestion) -> Result<Entry<'_>, ApiError> {
        if let Some(name) = &question.interface {
            return self.named(name);
        }
        let Some(ether) = Ether::of(frame) else {
            return Err(bad("packet", "shorter than an Ethernet header".into()));
        };
        let found = self.entries().find(|(_, _, mac)| *mac == ether.dst());
        found.ok_or_else(|| {
            let words =
                format!("no interface that is up has the address {}: name one", ether.dst());
            bad("interface", words)
        })
    }

    /// Runs a frame that comes in by a port.
    fn trial(&self, port: u16, frame: &[u8]) -> Result<(Trace, Vec<Ask>), ApiError> {
        let learns = |class: &str| matches!(class, "ARPQuerier" | "NDSolicitor");
        let learning = self.plan.nodes().iter().find(|node| learns(node.class.spec.name));
        if let Some(node) = learning.filter(|_| tells_of_neighbors(frame)) {
            let words =
                format!("`{}` would learn from it, and a trial is to change nothing", node.name);
            return Err(bad("packet", words));
        }
        let size = self.workers.iter().map(|worker| worker.pool.frame_bytes()).max();
        let pool = Pool::new(FRAMES, size.unwrap_or(2048));
        // Filters count for all workers.
        let uncounted = self.filters().map(|filters| Arc::new(filters.trial()));
        let sources = Sources { filters: uncounted, ..self.filters.sources(&self.config) };
        let planned = sources.filters.is_some().then(|| self.planned(&sources)).transpose();
        let planned = planned.map_err(|errors| ApiError::at(Code::Refused, "graph", errors))?;
        let mut graph = Graph::new(planned.as_ref().unwrap_or(&self.plan), &pool);
        let mut batch = graph.batch();
        let mut packet = pool.alloc().expect("a new pool has frames");
        if !packet.set_len(frame.len()) {
            let words = format!("more than the {} bytes that a frame holds here", pool.max_len());
            return Err(bad("packet", words));
        }
        packet.bytes_mut().copy_from_slice(frame);
        packet.meta.port = port;
        batch.push(packet).expect("a new batch has room");
        let (wanted, traces) = Wanted::new(None, 1);
        graph.trace(Some(wanted.tracer(&pool)));
        let counters = WorkerCounters::new(0, 1);
        let forwarding = self.control.forwarding();
        let forwarding: &Forwarding = &forwarding;
        let mut asks = Vec::new();
        let mut transmit = Nowhere;
        let mut round = Round {
            now_ns: 0,
            forwarding,
            counters: &counters,
            flow_seed: FLOW_SEED,
            asks: &mut asks,
            transmit: &mut transmit,
        };
        if !graph.takes(port) {
            return Err(bad("interface", "the graph takes no packets from it".into()));
        }
        graph.receive(port, batch, &mut round);
        // What waits is told as it is.
        graph.trace(None);
        graph.stop(&mut round);
        let trace = traces.recv().expect("a tracer that ends hands out what it has");
        Ok((trace, asks))
    }

    /// The answer in a word, and in a sentence.
    fn verdict(
        &self,
        trial: &PacketTrace,
        route: Option<&RouteAnswer>,
        drivers: &[DriverAnswer],
        interface: &str,
        asks: &[Ask],
    ) -> (String, String) {
        let packet = &trial.packets[0];
        let leg = route.and_then(|route| route.leg.as_deref());
        let say = |does: &str, words: String| (does.to_owned(), words);
        if leg == Some("local") {
            return say("local", "it is for this host: the kernel takes it".into());
        }
        let driver = drivers.iter().find(|driver| driver.interfaces.iter().any(|i| i == interface));
        let last = trial.steps.iter().rfind(|step| step.packet == 0);
        match packet.fate.as_str() {
            "sent" => {
                let by = packet.interface.as_deref().unwrap_or("-");
                let place = match driver.map(|driver| driver.does.as_str()) {
                    Some("forward") => " in the driver",
                    _ => "",
                };
                say("forward", format!("it is forwarded by {by}{place}"))
            }
            "dropped" => {
                let reason = packet.reason.as_deref().unwrap_or("-");
                let at = last.map_or("-", |step| step.element.as_str());
                let why = last.and_then(|step| step.why.as_deref()).unwrap_or_default();
                let told = match &trial.packets[1..] {
                    [] => String::new(),
                    made => format!(" Its sender is told: {}", made[0].summary),
                };
                let on = last.map(|step| step.filters.join(", ")).filter(|on| !on.is_empty());
                let on = on.map_or_else(String::new, |on| format!(" It is on: {on}."));
                say("drop", format!("it is dropped by {at} ({reason}): {why}{on}{told}"))
            }
            _ => {
                let at = last.map_or("-", |step| step.element.as_str());
                let words = match asks.first() {
                    Some(Ask::Neighbor { port, addr }) => {
                        format!("for the link address of {addr} on {}", self.port_name(*port))
                    }
                    Some(Ask::Adjacency(index)) => {
                        let neighbor = self.adjacency(*index).and_then(|known| known.neighbor);
                        format!("for the link address of {}", neighbor.unwrap_or_default())
                    }
                    _ => "for others".to_owned(),
                };
                say("wait", format!("it waits in {at} {words}"))
            }
        }
    }
}

/// The flow that a frame is of.
fn flow_of(frame: &[u8]) -> Option<Flow> {
    let packet = frame.get(ETHER_BYTES..)?;
    match Ether::of(frame)?.kind() {
        ether::TYPE_IP4 => {
            let ip = Ip4::at(packet, 0)?;
            let transport = packet.get(ip.header_len()..).unwrap_or_default();
            let ports = Ports::of(ip.protocol(), transport).filter(|_| !ip.is_fragment());
            let (src, dst) = (IpAddr::V4(ip.src().into()), IpAddr::V4(ip.dst().into()));
            Some(Flow { src, dst, protocol: ip.protocol(), ports, label: 0 })
        }
        ether::TYPE_IP6 => {
            let ip = Ip6::at(packet, 0)?;
            let ports = Ports::of(ip.next_header(), packet.get(40..).unwrap_or_default());
            let (src, dst) = (IpAddr::V6(ip.src().into()), IpAddr::V6(ip.dst().into()));
            let (protocol, label) = (ip.next_header(), ip.flow_label());
            // A label can only be named behind ports.
            let ports = if label == 0 { ports } else { ports.or(Some(Ports { src: 0, dst: 0 })) };
            Some(Flow { src, dst, protocol, ports, label })
        }
        _ => None,
    }
}

/// A frame of hexadecimal digits; blanks and colons between them are passed over.
fn bytes(digits: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u32> = digits
        .chars()
        .filter(|c| !c.is_whitespace() && *c != ':')
        .map(|c| c.to_digit(16).ok_or_else(|| format!("`{c}` is no hexadecimal digit")))
        .collect::<Result<_, _>>()?;
    if digits.len() % 2 == 1 {
        return Err("an odd number of digits".into());
    }
    if digits.len() / 2 > LONGEST {
        return Err(format!("more than {LONGEST} bytes"));
    }
    let byte = |pair: &[u32]| u8::try_from(pair[0] << 4 | pair[1]).expect("two digits");
    Ok(digits.chunks(2).map(byte).collect())
}

fn bad(place: &str, words: String) -> ApiError {
    ApiError::at(Code::BadRequest, place, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_people_write_them() {
        assert_eq!(bytes("02:00 5E ff\n"), Ok(vec![2, 0, 0x5e, 0xff]));
        assert_eq!(bytes("020"), Err("an odd number of digits".into()));
        assert_eq!(bytes("0x12"), Err("`x` is no hexadecimal digit".into()));
        assert!(bytes(&"00".repeat(LONGEST + 1)).unwrap_err().contains("more than 9216"));
    }

    #[test]
    fn the_flow_of_a_frame_is_that_of_its_packet() {
        for text in
            ["10.0.1.2,10.0.2.2,udp,1024,53", "fd01::2,fd02::2,tcp,1,2,7", "10.0.1.2,10.0.2.2,icmp"]
        {
            let dst = text.split(',').nth(1).unwrap().parse().unwrap();
            let flow = Flow::parse(text, dst).unwrap();
            let kind = if dst.is_ipv4() { ether::TYPE_IP4 } else { ether::TYPE_IP6 };
            let frame = [&[0; 12][..], &kind.to_be_bytes(), &flow.packet()].concat();
            assert_eq!(flow_of(&frame), Some(flow), "{text}");
        }
    }
}
