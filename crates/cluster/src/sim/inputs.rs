//! The choice of a path at the inputs: the rule on the queues of the node, allowances, and flowlets.

use fingerpost_lpm::Rng;

use super::links::{Link, Links, SLOT};
use super::{Config, FlowletSettings};
use crate::flowlet::{Flow, Flowlets, Outcome};
use crate::rule::{self, Local, Members, NodeId, Path, Rule, Settings};

/// Packets that may go direct before the fixed allowance of a pair has to recover. With 4 random arrivals waste a third of
/// the allowance of uniform traffic among eight nodes, with 32 less than a tenth.
const ALLOWANCE_BURST: u64 = 32;

/// Queues of one node, for the decision.
struct Here<'a> {
    links: &'a [Link],
    /// Time from which on the allowance of each output has room, less its burst; empty without allowances.
    allowances: &'a [u64],
    now: u64,
}

impl Local for Here<'_> {
    #[inline]
    fn backlog(&self, to: NodeId) -> u64 {
        self.links[usize::from(to)].backlog()
    }

    #[inline]
    fn allowance(&self, to: NodeId) -> bool {
        self.allowances.get(usize::from(to)).is_some_and(|&from| from <= self.now)
    }
}

/// What the inputs know beside the members and their links.
pub(super) struct Inputs {
    nodes: usize,
    settings: Settings,
    /// Allowances of all pairs and the time of a packet in each; empty without.
    allowances: Vec<u64>,
    allowance_period: Vec<u64>,
    /// A table a node; empty without flowlets.
    flowlets: Vec<Flowlets>,
    /// Packets on a link from which on its flowlets are sprayed.
    overloaded: u32,
}

/// Packet that arrived, for the choice of its path.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) flow: u32,
    pub(super) slot: u32,
}

impl Inputs {
    /// Inputs of nodes of these rates, in R, with links to all others.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive"
    )]
    pub(super) fn new(config: &Config, rates: &[f64], links: &Links) -> Self {
        let nodes = rates.len();
        // The threshold is in packets of a link of average rate; backlogs are times to drain.
        let periods = links.all.iter().map(|link| u64::from(link.period)).filter(|&time| time > 0);
        let (count, time) =
            periods.fold((0u64, 0u64), |(count, sum), time| (count + 1, sum + time));
        let threshold = config.settings.threshold * time / count.max(1);
        let all: f64 = rates.iter().sum();
        let pairs = if config.settings.rule == Rule::Fixed { nodes * nodes } else { 0 };
        let period = |pair| SLOT as f64 * all / (rates[pair / nodes] * rates[pair % nodes]);
        let table = |settings: FlowletSettings| {
            vec![Flowlets::new(settings.entries, settings.delta_slots); nodes]
        };
        Self {
            nodes,
            settings: Settings { threshold, ..config.settings },
            allowances: vec![0; pairs],
            allowance_period: (0..pairs).map(|pair| period(pair) as u64).collect(),
            flowlets: config.flowlets.map_or(Vec::new(), table),
            overloaded: config.queue / 2,
        }
    }

    /// Decides the path of a packet, and charges its allowance; `word` is random.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a hash takes the low half")]
    pub(super) fn path(
        &mut self,
        members: &Members,
        links: &[Link],
        arrival: Arrival,
        word: u64,
    ) -> Option<(Path, Outcome)> {
        let Arrival { from, to, flow, slot } = arrival;
        let row = usize::from(from) * self.nodes;
        let here = Here {
            links,
            allowances: self.allowances.get(row..row + self.nodes).unwrap_or(&[]),
            now: u64::from(slot) * SLOT,
        };
        let choose = || rule::choose(&self.settings, members, from, to, &here, word);
        let found = match self.flowlets.get_mut(usize::from(from)) {
            None => choose().map(|choice| (choice, Outcome::Kept)),
            Some(flowlets) => {
                let hash = Rng::new(u64::from(flow)).word() as u32;
                let overloaded =
                    |path: Path| here.links[usize::from(path.first(to))].len() >= self.overloaded;
                flowlets.path(members, Flow { hash, from, to }, slot, overloaded, choose)
            }
        };
        let found = found.map(|(choice, outcome)| (choice.path, outcome));
        let now = here.now;
        if !self.allowances.is_empty() && matches!(found, Some((Path::Direct, _))) {
            let pair = row + usize::from(to);
            let period = self.allowance_period[pair];
            // The bucket is full when the time lies a burst back.
            let full = now.saturating_sub(ALLOWANCE_BURST * period);
            self.allowances[pair] = self.allowances[pair].max(full) + period;
        }
        found
    }
}
