//! `route get`: the route of an address, from the lookup that the workers use.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::IpAddr;
use std::time::Instant;

use fingerpost_lpm::{Addr, Lookup, NextHopId, Prefix, Routes, Step};
use fingerpost_route::nexthop::HopKey;
use fingerpost_route::rib::{Candidate, Rib};
use fingerpost_route::{AnyPrefix, Ends, ForwardingAction, HopView, Path, RouteKey, RouteRow};

use super::hops::{Shown, action_word, stated};
use super::{LinkNames, View};
use crate::api::error::{ApiError, Code};
use crate::api::model::{self, GroupAnswer, Route, RouteAnswer, RouteQuery};
use crate::flow::Flow;

/// Result of a lookup, of either family.
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

impl View<'_> {
    /// The route of an address.
    pub(super) fn route_answer(&self, question: &RouteQuery) -> Result<RouteAnswer, ApiError> {
        let addr: IpAddr = question.addr.parse().map_err(|_| {
            let words = format_args!("`{}` is no address", question.addr);
            ApiError::at(Code::BadRequest, "addr", words)
        })?;
        let table = model::table_or_main(question.table);
        let flow = question.flow.as_deref().map(|text| Flow::parse(text, addr)).transpose();
        let flow = flow.map_err(|words| ApiError::at(Code::BadRequest, "flow", words))?;
        let control = self.control;
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
        let (found, algorithm, pending) = match addr {
            IpAddr::V4(a) => {
                let addr = a.to_bits();
                let found = find(rib_v4, lookup_v4, addr, question.explain, AnyPrefix::V4);
                (found, fib_v4.algorithm(), fib_v4.pending())
            }
            IpAddr::V6(a) => {
                let addr = a.to_bits();
                let found = find(rib_v6, lookup_v6, addr, question.explain, AnyPrefix::V6);
                (found, fib_v6.algorithm(), fib_v6.pending())
            }
        };
        let hash = flow.map(|flow| flow.hash(self.workers.flow_seed()));
        let slots = forwarding.hops.group(found.hop).map(|(_, slots)| slots);
        let action = match (slots, hash) {
            (Some(_), None) => None,
            (_, hash) => Some(forwarding.hops.action(found.hop, hash.unwrap_or(0))),
        };
        let rib_hop = found.best.map_or(NextHopId::NONE, |(_, hop)| hop);
        let mut row = RowMaker::new(*self);
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
            pending,
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

/// Beginning of the part of a next hop in the JSON of a route. No name of a source holds this, as its quotation marks are
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
    pub(super) fn new(view: View<'_>) -> Self {
        let sources = view.control.sources().map(|source| source.name).collect();
        let (ends, now) = (view.control.ends(), Instant::now());
        let (shown, tails) = (HashMap::new(), HashMap::new());
        Self { links: view.link_names(), shown, tails, sources, ends, now }
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
