//! `route get`: what happens to a packet, asked of what the workers ask.

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::net::IpAddr;
use std::time::Instant;

use fingerpost_lpm::{Addr, Lookup, NextHopId, Prefix, Routes, Step};
use fingerpost_packet::flow::{hash_v4, hash_v6};
use fingerpost_packet::wire::{Ports, protocol};
use fingerpost_route::nexthop::HopKey;
use fingerpost_route::rib::{Candidate, Rib};
use fingerpost_route::{
    AnyPrefix, Ends, ForwardingAction, HopView, MAIN_TABLE, Path, RouteKey, RouteRow,
};

use super::hops::{Shown, action_word, stated};
use super::{Daemon, LinkNames};
use crate::api::error::{ApiError, Code};
use crate::api::model::{self, GroupAnswer, Route, RouteAnswer};
use crate::api::server::RouteQuestion;

/// What a lookup said, of either family.
struct Found {
    hop: NextHopId,
    best: Option<(AnyPrefix, NextHopId)>,
    candidates: Vec<Candidate>,
    steps: Vec<Step>,
}

fn find<A: Addr>(
    rib: &Rib<A>,
    lookup: &dyn Lookup<A>,
    addr: A,
    explain: bool,
    any: fn(Prefix<A>) -> AnyPrefix,
) -> Found {
    let mut steps = Vec::new();
    let hop = if explain {
        lookup.explain(addr, &mut |step| steps.push(*step))
    } else {
        lookup.lookup(addr)
    };
    let best = rib.best(addr);
    let candidates = best.map_or(Vec::new(), |(prefix, _)| rib.of(prefix).collect());
    Found { hop, best: best.map(|(prefix, hop)| (any(prefix), hop)), candidates, steps }
}

impl Daemon {
    /// The route of an address.
    pub(crate) fn route_answer(&self, question: &RouteQuestion) -> Result<RouteAnswer, ApiError> {
        let addr: IpAddr = question.addr.parse().map_err(|_| {
            let words = format_args!("`{}` is no address", question.addr);
            ApiError::at(Code::BadRequest, "addr", words)
        })?;
        let table = question.table.unwrap_or(MAIN_TABLE);
        let flow = question.flow.as_deref().map(|text| Flow::parse(text, addr)).transpose();
        let flow = flow.map_err(|words| ApiError::at(Code::BadRequest, "flow", words))?;
        let control = &self.control;
        let forwarding = control.forwarding();
        let known = control.ribs(table).zip(control.fibs(table));
        let Some(((rib_v4, rib_v6), (fib_v4, fib_v6))) = known else {
            let words = format_args!("there is no table {table}");
            return Err(ApiError::at(Code::NotFound, "table", words));
        };
        // As workers find it, and not as the writer has it.
        let others = forwarding.others.iter().find(|other| other.table == table.into());
        let (lookup_v4, lookup_v6) = match others {
            Some(other) => (&*other.v4, &*other.v6),
            None => (&*forwarding.v4, &*forwarding.v6),
        };
        let (found, algorithm) = match addr {
            IpAddr::V4(a) => {
                let addr = a.to_bits();
                let found = find(rib_v4, lookup_v4, addr, question.explain, AnyPrefix::V4);
                (found, fib_v4.algorithm())
            }
            IpAddr::V6(a) => {
                let addr = a.to_bits();
                let found = find(rib_v6, lookup_v6, addr, question.explain, AnyPrefix::V6);
                (found, fib_v6.algorithm())
            }
        };
        let hash = flow.map(|flow| flow.hash(self.flow_seed));
        let slots = forwarding.hops.group(found.hop).map(|(_, slots)| slots);
        let action = match (slots, hash) {
            (Some(_), None) => None,
            (_, hash) => Some(forwarding.hops.action(found.hop, hash.unwrap_or(0))),
        };
        let rib_hop = found.best.map_or(NextHopId::NONE, |(_, hop)| hop);
        let mut row = RowMaker::new(self);
        let prefix = found.best.map(|(prefix, _)| prefix);
        let candidates = prefix.map_or(Vec::new(), |prefix| {
            let ranked = found.candidates.iter().enumerate();
            ranked
                .map(|(rank, c)| row.route(control.hop_view(), table, prefix, c, rank == 0))
                .collect()
        });
        Ok(RouteAnswer {
            addr: addr.to_string(),
            table,
            prefix: prefix.map(|prefix| prefix.to_string()),
            candidates,
            nexthop: found.hop.0,
            agrees: found.hop == rib_hop,
            algorithm: algorithm.to_owned(),
            group: self.members(found.hop).map(|members| GroupAnswer {
                slots: slots.unwrap_or(0),
                hash,
                slot: hash.zip(slots).map(|(hash, slots)| slot(hash, slots)),
                members,
            }),
            action: action.map(|action| action_word(action).to_owned()),
            adjacency: match action {
                Some(ForwardingAction::Adjacency(index)) => self.adjacency(index),
                _ => None,
            },
            steps: found.steps.iter().map(step).collect(),
            drivers: match question.explain {
                true => self.in_drivers(table, addr, flow),
                false => Vec::new(),
            },
        })
    }
}

/// The slot of a flow, as `HopTable::forwarding action` has it.
fn slot(hash: u32, slots: u32) -> u32 {
    u32::try_from((u64::from(hash) * u64::from(slots)) >> 32).expect("less than the slots")
}

fn step(step: &Step) -> model::Step {
    model::Step {
        region: step.region.to_owned(),
        offset: step.offset,
        value: step.value,
        note: step.note.to_owned(),
    }
}

/// Where what a next hop says begins in the JSON of a route. No name of a source holds this, as its quotation marks are
/// escaped.
const KIND: &[u8] = br#","kind":"#;

/// Makes routes of candidates; holds the names that they need. What next hops lead to is worked out once each, as a
/// million routes share a few of them: so it is good for one moment.
pub(super) struct RowMaker {
    links: LinkNames,
    shown: HashMap<NextHopId, Shown>,
    /// How the lines of all routes of a next hop end.
    tails: HashMap<NextHopId, Vec<u8>>,
    sources: Vec<String>,
    ends: Ends,
    now: Instant,
}

impl RowMaker {
    pub(super) fn new(daemon: &Daemon) -> Self {
        let sources = daemon.control.sources().map(|source| source.name).collect();
        let (ends, now) = (daemon.control.ends(), Instant::now());
        let (shown, tails) = (HashMap::new(), HashMap::new());
        Self { links: daemon.link_names(), shown, tails, sources, ends, now }
    }

    /// Writes a route as a line of JSON. From its `kind` on it is the same for all routes of a next hop and made once, but
    /// for routes that end by themselves.
    pub(super) fn line(&mut self, view: HopView<'_>, table: u32, row: &RouteRow, to: &mut Vec<u8>) {
        let RouteRow { prefix, candidate, rank } = *row;
        let Candidate { source, distance, metric, hop } = candidate;
        let (best, name) = (rank == 0, RouteKey { table, prefix, metric });
        let own = view.hops.key(hop).map_or(&[][..], HopKey::paths);
        let ends = match own {
            [] => self.ends.of(source, name, None).is_some(),
            paths => paths.iter().any(|path| self.ends.of(source, name, Some(path)).is_some()),
        };
        if ends || !self.tails.contains_key(&hop) {
            let route = self.route(view, table, prefix, &candidate, best);
            let mut line = serde_json::to_vec(&route).expect("it is plain data");
            line.push(b'\n');
            if !ends {
                let at = line.windows(KIND.len()).position(|part| part == KIND);
                let tail = line[at.expect("every route has a kind")..].to_vec();
                self.tails.insert(hop, tail);
            }
            return to.extend_from_slice(&line);
        }
        let source = self.sources.get(usize::from(source)).map_or("", String::as_str);
        // Writing to memory cannot fail.
        let _ = write!(to, r#"{{"prefix":"{prefix}","table":{table},"source":"#);
        serde_json::to_writer(&mut *to, source).expect("writing to memory cannot fail");
        let _ = write!(to, r#","distance":{distance},"metric":{metric},"best":{best}"#);
        to.extend_from_slice(&self.tails[&hop]);
    }

    pub(super) fn route(
        &mut self,
        view: HopView<'_>,
        table: u32,
        prefix: AnyPrefix,
        candidate: &Candidate,
        best: bool,
    ) -> Route {
        let (hops, hop) = (view.hops, candidate.hop);
        let key = hops.key(hop);
        let shown = || key.map_or_else(Shown::none, |key| Shown::new(key, view, &self.links));
        let Shown { kind, object, mut paths } = self.shown.entry(hop).or_insert_with(shown).clone();
        let name = RouteKey { table, prefix, metric: candidate.metric };
        let left = |path: Option<&Path>| {
            let end = self.ends.of(candidate.source, name, path)?;
            Some(end.saturating_duration_since(self.now).as_secs())
        };
        let own = key.map_or(&[][..], HopKey::paths);
        for (shown, path) in paths.iter_mut().zip(own) {
            shown.expires = left(Some(path));
        }
        Route {
            prefix: prefix.to_string(),
            table,
            source: self.sources.get(usize::from(candidate.source)).cloned().unwrap_or_default(),
            distance: candidate.distance,
            metric: candidate.metric,
            best,
            kind: kind.to_owned(),
            expires: if own.is_empty() { left(None) } else { None },
            object,
            paths,
            mtu: stated(hops.attrs(hop).map_or(0, |attrs| attrs.mtu)),
            nexthop: hop.0,
        }
    }
}

/// A flow, as its five parts name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) ports: Option<Ports>,
    pub(crate) label: u32,
}

/// Names of protocols that people know.
const PROTOCOLS: [(&str, u8); 6] = [
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("sctp", protocol::SCTP),
    ("dccp", protocol::DCCP),
    ("icmp", 1),
    ("icmpv6", 58),
];

impl Flow {
    /// `SRC,DST,PROTOCOL[,SPORT,DPORT[,LABEL]]`, of packets to `addr`.
    pub(crate) fn parse(text: &str, addr: IpAddr) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let (src, dst, protocol, ports, label) = match parts[..] {
            [src, dst, protocol] => (src, dst, protocol, None, None),
            [src, dst, protocol, sport, dport] => (src, dst, protocol, Some((sport, dport)), None),
            [src, dst, protocol, sport, dport, label] => {
                (src, dst, protocol, Some((sport, dport)), Some(label))
            }
            _ => return Err(format!("`{text}`: SRC,DST,PROTOCOL,SPORT,DPORT is needed")),
        };
        let ip = |text: &str| text.parse::<IpAddr>().map_err(|_| format!("`{text}` is no address"));
        let (src, dst) = (ip(src)?, ip(dst)?);
        if dst != addr {
            return Err(format!("the flow goes to {dst}, and {addr} was asked for"));
        }
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(format!("{src} and {dst} are not of one family"));
        }
        let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(protocol));
        let number = named.map(|(_, number)| *number).or_else(|| protocol.parse().ok());
        let number = number.ok_or_else(|| format!("`{protocol}` is no protocol: tcp, udp, 47"))?;
        let port = |text: &str| text.parse::<u16>().map_err(|_| format!("`{text}` is no port"));
        let ports = match ports {
            Some((src, dst)) => Some(Ports { src: port(src)?, dst: port(dst)? }),
            None => None,
        };
        let label = match label {
            Some(text) => text.parse().map_err(|_| format!("`{text}` is no flow label"))?,
            None => 0,
        };
        Ok(Self { src, dst, protocol: number, ports, label })
    }

    /// As workers with this seed hash its packets.
    pub(super) fn hash(self, seed: u64) -> u32 {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                hash_v4(seed, src.to_bits(), dst.to_bits(), self.protocol, self.ports)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let (src, dst) = (src.to_bits(), dst.to_bits());
                hash_v6(seed, src, dst, self.label, self.protocol, self.ports)
            }
            _ => unreachable!("parsing makes sure that both are of one family"),
        }
    }
}

/// As it is parsed.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},", self.src, self.dst)?;
        match PROTOCOLS.iter().find(|(_, number)| *number == self.protocol) {
            Some((name, _)) => f.write_str(name)?,
            None => write!(f, "{}", self.protocol)?,
        }
        if let Some(ports) = self.ports {
            write!(f, ",{},{}", ports.src, ports.dst)?;
        }
        if self.label != 0 { write!(f, ",{}", self.label) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_packet::flow::of_ip4;

    fn parse(text: &str) -> Result<Flow, String> {
        let addr = text.split(',').nth(1).unwrap_or("::").trim().parse();
        Flow::parse(text, addr.unwrap_or(IpAddr::from([0; 4])))
    }

    #[test]
    fn a_named_flow_hashes_as_its_packets_do() {
        let flow = parse("10.0.1.2,10.0.2.2,udp,1024,53").unwrap();
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend([10, 0, 1, 2, 10, 0, 2, 2, 4, 0, 0, 53, 0, 8, 0, 0]);
        assert_eq!(flow.hash(7), of_ip4(7, &packet));
        assert_eq!(parse("10.0.1.2, 10.0.2.2, 17, 1024, 53"), Ok(flow));
        let label = parse("fd01::2,fd02::2,TCP,1,2,7").unwrap();
        assert_ne!(label.hash(7), Flow { label: 0, ..label }.hash(7));
    }

    #[test]
    fn mistakes_say_what_is_needed() {
        for (text, words) in [
            ("10.0.0.1", "SRC,DST,PROTOCOL,SPORT,DPORT is needed"),
            ("10.0.0.1,10.0.0.2,udp,1", "SRC,DST,PROTOCOL,SPORT,DPORT is needed"),
            ("10.0.0.1,fd00::1,udp,1,2", "are not of one family"),
            ("x,10.0.0.2,udp,1,2", "`x` is no address"),
            ("10.0.0.1,10.0.0.2,ucp,1,2", "`ucp` is no protocol"),
            ("10.0.0.1,10.0.0.2,udp,1,65536", "`65536` is no port"),
            ("fd00::1,fd00::2,udp,1,2,x", "`x` is no flow label"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
        }
        let other = Flow::parse("10.0.0.1,10.0.0.2,6", "10.0.0.3".parse().unwrap()).unwrap_err();
        assert_eq!(other, "the flow goes to 10.0.0.2, and 10.0.0.3 was asked for");
    }
}
