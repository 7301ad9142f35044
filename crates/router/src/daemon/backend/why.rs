//! `why`: dry run of a packet through an instance of the graph, by the present routes.
//!
//! The dry run is [`fingerpost_packet::graph::DryRun`]: it has no side effects, and resolves no neighbor.

use std::net::IpAddr;

use fingerpost_packet::frame::wire::{ETHER_BYTES, Ether, ether};
use fingerpost_packet::graph::trace::Trace;
use fingerpost_packet::graph::{DryRun, DryRunError};
use fingerpost_route::{LinkState, Mac, ResolveRequest};

use super::View;
use crate::api::error::{ApiError, Code};
use crate::api::graph::{PacketTrace, WhyAnswer, WhyQuery};
use crate::api::model::{DriverAnswer, RouteAnswer, RouteQuery};
use crate::flow::Flow;
use crate::packet_path::{self, SENDER, bytes, destination};

/// An interface that packets may arrive on.
type Entry<'a> = (u16, &'a LinkState, Mac);

impl View<'_> {
    /// Dry run of a packet.
    pub(super) fn dry_run(&self, question: &WhyQuery) -> Result<WhyAnswer, ApiError> {
        let (port, frame, flow) = match (&question.addr, &question.packet) {
            (Some(addr), None) => self.made_up(addr, question)?,
            (None, Some(digits)) => {
                let frame = bytes(digits).map_err(|words| bad("packet", words))?;
                (self.entry_of(&frame, question)?.0, frame, None)
            }
            _ => return Err(bad("query", "an address, or a packet".into())),
        };
        let addr = destination(&frame);
        let (table, first) = self.tables_of(port, addr);
        let route = addr.map(|addr| {
            let flow = flow.or_else(|| Flow::of_frame(&frame)).map(|flow| flow.to_string());
            let (addr, table) = (addr.to_string(), Some(table));
            self.route_answer(&RouteQuery { addr, explain: true, flow, table })
        });
        let mut route = route.transpose()?;
        // The result for a packet of this kind is replaced by the result for this packet.
        let drivers =
            route.as_mut().map_or_else(Vec::new, |route| std::mem::take(&mut route.drivers));
        let drivers = match (addr, frame.get(ETHER_BYTES..)) {
            (Some(addr), Some(packet)) if !drivers.is_empty() => {
                self.drivers_with(first, addr, drivers[0].packet.clone(), packet)
            }
            _ => Vec::new(),
        };
        let interface = self.port_name(port);
        let drivers = at_ingress(drivers, &interface);
        let (trace, requests) = self.evaluate(port, &frame)?;
        let dry_run = self.traced(&trace, 1);
        let (does, mut verdict) =
            self.verdict(&dry_run, route.as_ref(), &drivers, &interface, &requests);
        if does == "forward" {
            let paths = dry_run.steps.iter().filter_map(|step| step.cluster.as_deref());
            verdict.extend(paths.map(|path| format!("; {path}")));
        }
        let is_local = does == "local" && self.interfaces.unguarded(port).is_none();
        let dropped = is_local.then(|| {
            let mut states = self.graph.features.states().each();
            states.find_map(|(row, state)| Some((row.name, state.drops_local(&frame, port)?)))
        });
        let (does, verdict) = match dropped.flatten() {
            Some((row, list)) => {
                let why = format!("it is for this host, and {row} drops it in XDP: {list}");
                ("drop".to_owned(), why)
            }
            None => (does, verdict),
        };
        Ok(WhyAnswer { does, verdict, interface, route, drivers, dry_run })
    }

    /// A packet to an address: where it comes in, and its frame.
    fn made_up(
        &self,
        addr: &str,
        question: &WhyQuery,
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

    /// Flow of a host on the link of a port that checks or filters packets: a request for a destination alone gets the
    /// answer for a packet that could arrive there.
    fn beside(&self, port: u16, flow: Flow) -> Flow {
        let forwarding = self.control.forwarding();
        let guards = self.settings.config().features.guards(&self.port_name(port));
        let info = forwarding.ports.port(port).filter(|info| guards || info.urpf.is_some());
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

    /// Interfaces that packets may arrive on.
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

    /// Interface that a packet to an address may arrive on: taken over, and another than it leaves by, where there
    /// is such a one.
    fn usual_entry(&self, addr: IpAddr) -> Result<Entry<'_>, ApiError> {
        let question =
            RouteQuery { addr: addr.to_string(), explain: false, flow: None, table: None };
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
                "no interface is up that packets may arrive on",
            )
        })
    }

    /// The interface that a frame is addressed to.
    fn entry_of(&self, frame: &[u8], question: &WhyQuery) -> Result<Entry<'_>, ApiError> {
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

    /// Runs a frame that arrives at a port.
    fn evaluate(&self, port: u16, frame: &[u8]) -> Result<(Trace, Vec<ResolveRequest>), ApiError> {
        let size = self.workers.iter().map(|worker| worker.pool.frame_bytes()).max();
        let dry_run = DryRun {
            plan: self.graph.plan(),
            port,
            forwarding: &self.control.forwarding(),
            flow_seed: self.workers.flow_seed(),
            now_ns: u64::try_from(self.progress.elapsed().as_nanos()).unwrap_or(u64::MAX),
            frame_bytes: size.unwrap_or(2048),
        };
        dry_run.run(frame).map_err(|error| match error {
            DryRunError::NoEntry => bad("interface", error.to_string()),
            DryRunError::TooLong(_) => bad("packet", error.to_string()),
        })
    }

    /// The answer in a word, and in a sentence.
    fn verdict(
        &self,
        dry_run: &PacketTrace,
        route: Option<&RouteAnswer>,
        drivers: &[DriverAnswer],
        interface: &str,
        requests: &[ResolveRequest],
    ) -> (String, String) {
        let action = route.and_then(|route| route.action.as_deref());
        // In another VRF, by its address there.
        let in_vrf = dry_run.steps.iter().find_map(|step| step.vrf_routes.last());
        if action == Some("local") || in_vrf.is_some_and(|route| route.action == "local") {
            return ("local".into(), "it is for this host: the kernel takes it".into());
        }
        let driver = drivers.iter().find(|driver| driver.interfaces.iter().any(|i| i == interface));
        let place = match driver.map(|driver| driver.does.as_str()) {
            Some("forward") => " in XDP",
            _ => "",
        };
        packet_path::verdict(dry_run, place, || match requests.first() {
            Some(ResolveRequest::Neighbor { port, addr, .. }) => {
                format!("for the link address of {addr} on {}", self.port_name(*port))
            }
            Some(ResolveRequest::Adjacency(index)) => {
                let neighbor = self.adjacency(*index).and_then(|known| known.neighbor);
                format!("for the link address of {}", neighbor.unwrap_or_default())
            }
            _ => "for others".to_owned(),
        })
    }
}

/// The results of the program that the packet meets: programs of other interfaces do not see it. A result without
/// interfaces is the reason why there was no dry run.
fn at_ingress(mut results: Vec<DriverAnswer>, ingress: &str) -> Vec<DriverAnswer> {
    results.retain_mut(|result| {
        let had = !result.interfaces.is_empty();
        result.interfaces.retain(|name| name == ingress);
        !had || !result.interfaces.is_empty()
    });
    results
}

fn bad(place: &str, words: String) -> ApiError {
    ApiError::at(Code::BadRequest, place, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_the_ingress() {
        let of = |interfaces: &[&str], does: &str| DriverAnswer {
            interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
            table: 254,
            packet: String::new(),
            nexthop: None,
            does: does.to_owned(),
            adjacency: None,
            reason: None,
            why: None,
        };
        let results = vec![of(&["a"], "drop"), of(&["b", "c"], "forward"), of(&[], "none")];
        let kept = [of(&["c"], "forward"), of(&[], "none")];
        assert_eq!(at_ingress(results.clone(), "c"), kept);
        assert_eq!(at_ingress(results, "d"), kept[1..]);
    }
}
