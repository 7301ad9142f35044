//! Policers: token buckets that bound the rate of an interface's packets, or of those that a condition takes.
//!
//! `settings.rs` reads `[[policer]]`, `element.rs` is the step in the graph. Here is what runs: the buckets, which all
//! workers share ([`SharedBucket`]), so that the rate holds however the NIC spreads flows over workers.
//!
//! Cost: an exchange of a cache line between workers a batch, one a packet where the bucket is nearly empty.

mod element;
mod settings;
#[cfg(test)]
mod tests;

pub use settings::Settings;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use settings::Policer;

use super::acl::Direction;
use super::ports::PortWords;
use super::row::{Cell, Column, Feature, FeatureArc, Key, Stage, State};
use crate::element::support::rate_limit::SharedBucket;
use crate::filter::Filter;
use crate::frame::DropReason;
use crate::frame::counters::{Count, PerWorker};

/// The row.
pub(super) const FEATURE: Feature = Feature {
    name: "policer",
    summary: "bounds the rate of packets by token buckets: drops or re-marks what exceeds",
    key: None,
    section: Some(Key { name: "policer", former: None, fields: settings::FIELDS }),
    read: settings::read,
    stages: &[
        Stage {
            name: "policer_in",
            arc: FeatureArc::Ingress,
            // What is dropped anyway takes no tokens.
            after: &["source_filter", "urpf"],
            element: &element::INGRESS,
        },
        Stage {
            name: "policer_out",
            arc: FeatureArc::Egress,
            after: &[],
            element: &element::EGRESS,
        },
    ],
    guards: true,
    kernel: "the kernel forwards, by its own rules",
    drop_reasons: &[DropReason::Policer],
    columns: &[
        Column { field: "name", heading: "name", summary: "Name of the policer." },
        Column { field: "direction", heading: "direction", summary: "`in` or `out`." },
        Column { field: "interface", heading: "interface", summary: "Its interface." },
        Column {
            field: "match",
            heading: "match",
            summary: "Condition that takes its packets; null for all of the interface.",
        },
        Column {
            field: "rate",
            heading: "rate",
            summary: "Bits (`8Mbps`) or packets (`1000pps`) a second that conform, of all workers together.",
        },
        Column {
            field: "burst",
            heading: "burst",
            summary: "Packets or bytes that conform at once.",
        },
        Column { field: "exceed", heading: "exceed", summary: "`drop`, or `dscp` and a number." },
        Column { field: "packets", heading: "packets", summary: "Packets that it policed." },
        Column {
            field: "bytes",
            heading: "bytes",
            summary: "Bytes of these packets, Ethernet headers included.",
        },
        Column {
            field: "exceeding",
            heading: "exceeding",
            summary: "Packets of these that exceeded the rate.",
        },
    ],
};

/// What becomes of packets that exceed a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Exceed {
    /// They are dropped.
    Drop,
    /// They get this DSCP.
    Dscp(u8),
}

impl fmt::Display for Exceed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drop => f.write_str("drop"),
            Self::Dscp(dscp) => write!(f, "dscp {dscp}"),
        }
    }
}

/// A policer that runs.
#[derive(Debug)]
struct Running {
    policer: Policer,
    filter: Option<Filter>,
    /// Shared by all workers.
    bucket: SharedBucket,
    hits: PerWorker<Hits>,
    /// What the policer of this name had counted when this one was made.
    before: Mutex<[u64; 3]>,
}

/// Counts of one worker.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Hits {
    packets: Count,
    bytes: Count,
    exceeding: Count,
}

impl Running {
    fn new(policer: Policer) -> Self {
        Self {
            filter: policer.condition.as_ref().map(|(condition, _)| condition.filter()),
            bucket: SharedBucket::new(policer.rate.per_second(), policer.burst),
            policer,
            hits: PerWorker::default(),
            before: Mutex::default(),
        }
    }

    /// Packets, bytes, and packets that exceeded.
    fn totals(&self) -> [u64; 3] {
        let of: [fn(&Hits) -> &Count; 3] =
            [|hits| &hits.packets, |hits| &hits.bytes, |hits| &hits.exceeding];
        let mut totals = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        for (total, of) in totals.iter_mut().zip(of) {
            *total = total.wrapping_add(self.hits.sum(|hits| of(hits).read()));
        }
        totals
    }

    fn go_on_with(&self, before: &Self) {
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = before.totals();
    }
}

/// The policers of a router.
pub struct Policers {
    policers: Vec<Arc<Running>>,
    /// Policers of one interface and direction, in order.
    chains: Vec<(String, Direction, Vec<Arc<Running>>)>,
    /// For each port the number of its chain and one more, or 0: of packets that arrive, and of those that leave.
    ports: [Arc<PortWords>; 2],
}

impl Policers {
    /// Makes policers. One that is the same as in `before` is taken over from there; counts continue by name.
    fn new(policers: Vec<Policer>, before: Option<&Self>) -> Self {
        let mut running: Vec<Arc<Running>> = Vec::with_capacity(policers.len());
        let mut chains: Vec<(String, Direction, Vec<Arc<Running>>)> = Vec::new();
        for policer in policers {
            let known = before.and_then(|before| before.find(&policer.name));
            let one = match known {
                Some(known) if known.policer == policer => known.clone(),
                known => {
                    let made = Running::new(policer);
                    known.iter().for_each(|known| made.go_on_with(known));
                    Arc::new(made)
                }
            };
            let Policer { interface, direction, .. } = &one.policer;
            let chain = chains.iter_mut().find(|(name, d, _)| name == interface && d == direction);
            match chain {
                Some((.., chain)) => chain.push(one.clone()),
                None => chains.push((interface.clone(), *direction, vec![one.clone()])),
            }
            running.push(one);
        }
        let ports = [(); 2].map(|()| Arc::new(PortWords::all(0)));
        Self { policers: running, chains, ports }
    }

    fn find(&self, name: &str) -> Option<&Arc<Running>> {
        self.policers.iter().find(|known| known.policer.name == name)
    }

    fn ports(&self, direction: Direction) -> &Arc<PortWords> {
        &self.ports[direction as usize]
    }
}

impl State for Policers {
    fn runs(&self, arc: FeatureArc) -> bool {
        self.policers.iter().any(|known| Some(known.policer.direction) == Direction::on(arc))
    }

    fn follow(&self, ports: &[(u16, &str)]) {
        for direction in [Direction::In, Direction::Out] {
            for (port, interface) in ports {
                let found =
                    self.chains.iter().position(|(n, d, _)| n == interface && *d == direction);
                let word = found.map_or(0, |number| u16::try_from(number + 1).unwrap_or(0));
                self.ports(direction).set(*port, word);
            }
        }
    }

    fn go_on_with(&self, before: &dyn State) {
        let Some(before) = before.of::<Self>() else { return };
        for one in &self.policers {
            let known = before.find(&one.policer.name).filter(|known| !Arc::ptr_eq(known, one));
            known.into_iter().for_each(|known| one.go_on_with(known));
        }
    }

    fn rows(&self) -> Vec<Vec<Cell>> {
        let row = |one: &Arc<Running>| {
            let Policer { name, interface, direction, rate, burst, exceed, condition } =
                &one.policer;
            let unit = if rate.is_of_bytes() { "B" } else { "" };
            let [packets, bytes, exceeding] = one.totals();
            let text = |text: &dyn fmt::Display| Cell::Text(text.to_string());
            vec![
                text(name),
                text(direction),
                text(interface),
                condition.as_ref().map_or(Cell::Nothing, |(_, words)| text(words)),
                text(rate),
                text(&format_args!("{burst}{unit}")),
                text(exceed),
                Cell::Number(packets),
                Cell::Number(bytes),
                Cell::Number(exceeding),
            ]
        };
        self.policers.iter().map(row).collect()
    }
}

impl fmt::Debug for Policers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.policers.iter().map(|one| &one.policer.name)).finish()
    }
}
