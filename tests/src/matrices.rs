//! Traffic matrices over a rack of four nodes whose internal links have 2R/N: what is delivered, and what links and nodes
//! have of it.
//!
//! Source: the matrices of the simulator (`fingerpost_cluster::sim::Matrix`), so that both have the same ones.
//! Cost:   two processes for each pair of hosts that has traffic.

use std::collections::HashMap;
use std::time::Duration;

use fingerpost_cluster::sim::Matrix;

use crate::netns::Router;
use crate::rack::{Built, Rack};
use crate::traffic::{Counts, Traffic};

/// How many nodes.
pub const NODES: usize = 4;

/// R, the rate of an external port, in packets of [`BYTES`] a second.
pub const PORT: u64 = 1_800;

/// Rate of an internal link: 2R/N, half of R of [`FRAME`] bytes.
pub const LINK: &str = "10.08Mbps";

/// Content of a packet.
pub const BYTES: usize = 1_354;

/// Bytes of such a packet as an internal frame.
pub const FRAME: u64 = 1_400;

/// Flows of each pair: destinations.
const FLOWS: usize = 16;

/// Share of a matrix that is offered.
pub const LOAD: f64 = 0.95;

/// A rack with links of 2R/N.
pub fn built(rule: &str) -> Built {
    let keys = format!("rule = \"{rule}\"\nflowlet_ms = 1");
    Built { rate: Some(LINK), keys, ..Built::of(NODES) }
}

/// All three others send to the first node, R in all and half of it one of them, and the rest of what they can to each
/// other; the first one sends to all alike. No output is offered more than R.
pub fn hot_spot() -> Matrix {
    let rows: [[f64; NODES]; NODES] = [
        [0.0, 0.25, 0.25, 0.25],
        [0.5, 0.0, 0.25, 0.25],
        [0.3, 0.35, 0.0, 0.35],
        [0.2, 0.4, 0.4, 0.0],
    ];
    Matrix::from_demands(&rows.map(Vec::from))
}

/// What came of a matrix.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Packets by input and output, for those that have traffic.
    pub pairs: Vec<((usize, usize), Counts)>,
    /// Bytes that the links were offered, dropped ones included, over the time: that of the link with most, in its rate.
    pub offered_link: f64,
    /// Bytes that the link that carried most sent, in its rate.
    pub carried_link: f64,
    /// Packets that the node with most of them processed, in R.
    pub worst_node: f64,
    /// Share of what was offered in the second half of the time, when queues are full, that no link dropped.
    pub steady: f64,
    /// Seconds of sending.
    pub seconds: u64,
}

impl Outcome {
    /// Packets of all pairs that `of` names.
    pub fn sum(&self, of: impl Fn(usize, usize) -> bool) -> Counts {
        let mut sum = Counts::default();
        for ((from, to), counts) in &self.pairs {
            if of(*from, *to) {
                sum.add(*counts);
            }
        }
        sum
    }

    /// Delivered share.
    #[allow(clippy::cast_precision_loss, reason = "packets of seconds")]
    pub fn delivered(&self) -> f64 {
        let all = self.sum(|_, _| true);
        all.received as f64 / all.sent as f64
    }

    /// Its numbers on a line.
    pub fn summary(&self) -> String {
        let all = self.sum(|_, _| true);
        format!(
            "{} of {} packets, {:.3}, in the second half {:.3}; links offered {:.3}, carried {:.3} of 2R/N; node {:.2} R; {} reordered",
            all.received,
            all.sent,
            self.delivered(),
            self.steady,
            self.offered_link,
            self.carried_link,
            self.worst_node,
            all.reordered
        )
    }
}

/// What a node has counted.
#[derive(Clone, Debug)]
struct Counted {
    /// Bytes sent and packets dropped, by link.
    links: Vec<[u64; 2]>,
    /// Packets that the node processed.
    processed: u64,
    /// Packets of its external ports to other nodes, dropped ones included.
    offered: u64,
    /// Packets that its links dropped.
    dropped: u64,
}

impl Counted {
    fn of(router: &Router) -> Self {
        let status: serde_json::Value = router.ask("cluster status");
        let members = status["members"].as_array().expect("members").iter();
        let links: Vec<[u64; 3]> = members
            .filter_map(|member| {
                // None of the node itself.
                let count = |what: &str| member["link"][what].as_u64();
                Some([count("bytes")?, count("transit_dropped")?, count("local_dropped")?])
            })
            .collect();
        let count = |what: &str| status["packets"][what].as_u64().expect("a count");
        let [direct, balanced, transit, output, looked_up] =
            ["direct", "balanced", "transit", "output", "looked_up"].map(count);
        Self {
            processed: direct + balanced + transit + output + looked_up,
            offered: direct + balanced + links.iter().map(|[.., local]| local).sum::<u64>(),
            dropped: links.iter().map(|[_, transit, local]| transit + local).sum(),
            links: links.iter().map(|[sent, transit, local]| [*sent, transit + local]).collect(),
        }
    }
}

/// A rack that matrices are offered to.
pub struct Stage<'a> {
    rack: &'a Rack,
    routers: &'a [Router],
    transfer: &'a str,
    /// Destinations that are known to answer, by input and output.
    destinations: HashMap<(usize, usize), Vec<String>>,
}

impl<'a> Stage<'a> {
    /// The rack with its routers; `transfer` is the program that sends and receives.
    pub fn new(transfer: &'a str, rack: &'a Rack, routers: &'a [Router]) -> Self {
        Self { rack, routers, transfer, destinations: HashMap::new() }
    }

    /// Destinations of a pair.
    fn addrs(&mut self, (from, to): (usize, usize)) -> Vec<String> {
        let found = self.destinations.entry((from, to));
        found.or_insert_with(|| self.rack.destinations(from, to, FLOWS)).clone()
    }

    /// Begins to send so many packets a second for a pair.
    fn begin(
        &self,
        (from, to): (usize, usize),
        rate: u64,
        addrs: &[String],
        seconds: u64,
    ) -> Traffic {
        let addrs: Vec<&str> = addrs.iter().map(String::as_str).collect();
        let ends = [&*self.rack.places[from].hosts[0], &*self.rack.places[to].hosts[0]];
        Traffic::scattered(self.transfer, ends, &addrs, (rate, seconds, BYTES))
    }

    /// Offers so much of a matrix for some seconds. What a node sends to itself crosses no link, and is left out.
    ///
    /// # Panics
    /// When the traffic cannot be made.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates and shares"
    )]
    pub fn offer(&mut self, matrix: &Matrix, load: f64, seconds: u64) -> Outcome {
        let nodes = matrix.nodes();
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        let pairs = pairs.filter(|&(from, to)| from != to && matrix.demand(from, to) > 0.0);
        let counted = || self.routers.iter().map(Counted::of).collect::<Vec<_>>();
        let rate = |(from, to)| (matrix.demand(from, to) * load * PORT as f64) as u64;
        let ready: Vec<_> = pairs.map(|pair| (pair, rate(pair), self.addrs(pair))).collect();
        let before = counted();
        let going: Vec<Traffic> = ready
            .iter()
            .map(|(pair, rate, addrs)| self.begin(*pair, *rate, addrs, seconds))
            .collect();
        std::thread::sleep(Duration::from_secs(seconds) / 2);
        let half = counted();
        let counts = going.into_iter().map(Traffic::end);
        let pairs = ready.iter().map(|(pair, ..)| *pair).zip(counts).collect();
        let nodes = before.into_iter().zip(half).zip(counted());
        let nodes: Vec<_> = nodes.map(|((before, half), after)| [before, half, after]).collect();
        Outcome::of(pairs, seconds, &nodes)
    }
}

impl Outcome {
    /// Outcome by what each node had counted before, after half of the time, and at the end.
    #[allow(clippy::cast_precision_loss, reason = "packets and bytes of seconds")]
    fn of(pairs: Vec<((usize, usize), Counts)>, seconds: u64, nodes: &[[Counted; 3]]) -> Self {
        let (mut carried, mut offered, mut processed) = (0, 0, 0);
        let (mut late_offered, mut late_dropped) = (0, 0);
        for [before, half, after] in nodes {
            processed = processed.max(after.processed - before.processed);
            late_offered += after.offered - half.offered;
            late_dropped += after.dropped - half.dropped;
            for ([sent, dropped], [sent_before, dropped_before]) in
                after.links.iter().zip(&before.links)
            {
                let (sent, dropped) = (sent - sent_before, dropped - dropped_before);
                carried = carried.max(sent);
                offered = offered.max(sent + dropped * FRAME);
            }
        }
        let link = (FRAME * PORT / 2 * seconds) as f64;
        Self {
            pairs,
            carried_link: carried as f64 / link,
            offered_link: offered as f64 / link,
            worst_node: processed as f64 / (PORT * seconds) as f64,
            steady: 1.0 - late_dropped as f64 / late_offered as f64,
            seconds,
        }
    }
}
