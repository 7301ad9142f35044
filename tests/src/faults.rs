//! Failures of a cluster of four nodes, and what they cost traffic from the host of node `a` to that of node `b`.
//!
//! Half of the packets take the direct link and a quarter each of the other nodes (the rule `vlb`), so that the share of the
//! traffic that crosses what fails is known, and lost packets are a time: that for which all of this share was lost.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use fingerpost_lpm::Rng;

use crate::netns::Router;
use crate::patience;
use crate::rack::{Built, Rack, packets, ping, wait_for, wait_for_links};
use crate::store::Server;
use crate::traffic::{Counts, Traffic};

/// Packets a second.
pub const RATE: u64 = 2_000;

/// Flows of these: destinations behind one node.
pub const FLOWS: usize = 16;

/// Longest time that a failure may lose packets, by the median of several.
pub const DETECTION_MS: f64 = 50.0;

/// Longest time of each failure, as other work may delay the threads of probes and workers.
pub const LONGEST_MS: f64 = 150.0;

/// Seconds for which the store forgets no node that does not answer: so long may node `a` be cut off it.
const TTL_S: u64 = 15;

/// Time for which it certainly forgets none: a node renews its session each third of the TTL.
const FORGOTTEN: Duration = Duration::from_secs(TTL_S * 2 / 3);

/// What fails. Nodes are counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The process of an intermediate node is killed.
    Killed(usize),
    /// An intermediate node is stopped in order, which drains it.
    Drained(usize),
    /// Both ends of a link lose the carrier.
    Cut(usize, usize),
    /// A link carries nothing from the first node to the second any more; the carrier stays.
    OneWay(usize, usize),
    /// Nothing comes from an intermediate node or gets there; its carriers stay, and its process runs.
    Silent(usize),
    /// Nothing passes between nodes `a` and `b` on one side, `c` and `d` on the other.
    Parted,
    /// The store does not answer.
    NoStore,
    /// Node `b` has started again, and node `a` cannot learn that from the store: its packets name indices and the epoch of
    /// before.
    Stale,
}

/// Node `a` and its host send to those of node `b`.
const ENDS: [usize; 2] = [0, 1];

impl Fault {
    /// Names of the kinds, [`Fault::kind`] of each.
    pub const KINDS: [&str; 8] = [
        "node killed",
        "node drained",
        "link cut",
        "link one-way",
        "node silent",
        "cluster parted",
        "store stopped",
        "epoch stale",
    ];

    /// A failure of a kind.
    ///
    /// # Panics
    /// When there is no such kind.
    pub fn random(kind: usize, rng: &mut Rng) -> Self {
        let between = 2 + rng.below(2);
        let from = rng.below(4);
        let to = (from + 1 + rng.below(3)) % 4;
        match kind {
            0 => Self::Killed(between),
            1 => Self::Drained(between),
            2 => Self::Cut(from, to),
            3 => Self::OneWay(from, to),
            4 => Self::Silent(between),
            5 => Self::Parted,
            6 => Self::NoStore,
            7 => Self::Stale,
            _ => panic!("kind {kind} of failures"),
        }
    }

    /// Number of its kind.
    pub const fn kind(self) -> usize {
        match self {
            Self::Killed(_) => 0,
            Self::Drained(_) => 1,
            Self::Cut(..) => 2,
            Self::OneWay(..) => 3,
            Self::Silent(_) => 4,
            Self::Parted => 5,
            Self::NoStore => 6,
            Self::Stale => 7,
        }
    }

    /// Part of the packets whose path the failure ends; `None` where it ends that of none.
    fn share(self) -> Option<f64> {
        match self {
            Self::Killed(_) | Self::Silent(_) => Some(0.25),
            // The end that receives nothing takes the link down for its own packets too: it drops those that it is an intermediate
            // node of until the ingress node knows.
            Self::OneWay(one, other) | Self::Cut(one, other) => {
                share_of_link(one, other).or(share_of_link(other, one))
            }
            Self::Parted => Some(0.5),
            Self::Drained(_) | Self::NoStore | Self::Stale => None,
        }
    }
}

/// Part of the packets that a link carries from one node to another.
fn share_of_link(from: usize, to: usize) -> Option<f64> {
    let [a, b] = ENDS;
    let carries = to != a && from != b && (from == a || to == b);
    carries.then(|| if (from, to) == (a, b) { 0.5 } else { 0.25 })
}

/// What a failure cost.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Packets of the time around the failure.
    pub counts: Counts,
    /// Time for which all packets that crossed what failed were lost, in milliseconds; `None` where none did, or where the machine
    /// held a node up and more was lost than the failure explains.
    pub lost_ms: Option<f64>,
    /// Whether more was lost than the failure explains, and the machine held a node up meanwhile: the thread of its probes had no
    /// processor for most of the detection time, so that others found its links down.
    pub excused: bool,
}

/// Four nodes, their traffic, and their store where there is one.
pub struct Trial {
    /// The nodes and their links.
    pub rack: Rack,
    server: Option<Server>,
    routers: Vec<Option<Router>>,
    transfer: &'static str,
    addrs: Vec<String>,
    /// How often the machine held each node up, as of the beginning of the traffic.
    held_up: [u64; 4],
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rack.faults(self.routers.iter().flatten()))
    }
}

impl Trial {
    /// Four nodes that any of the failures can befall; those of the store need one. `None` with a skip line.
    pub fn built(store: Option<&'static str>) -> Built {
        let ttl = if store.is_some() { format!("ttl_s = {TTL_S}\n") } else { String::new() };
        let keys = format!("rule = \"vlb\"\nflowlet_ms = 1\n{ttl}");
        Built { keys, bridged: true, store, ..Built::of(4) }
    }

    /// Starts all nodes of a rack; `transfer` is the program that sends and counts.
    ///
    /// # Panics
    /// When one does not start, or a host does not answer.
    pub fn new(transfer: &'static str, rack: Rack, server: Option<Server>) -> Self {
        let routers: Vec<Router> = match &server {
            Some(_) => (0..4).map(|node| rack.start(node)).collect(),
            None => rack.start_all(),
        };
        if server.is_some() {
            routers.iter().for_each(|router| wait_for_members(router, 4));
            reach(&rack, 0, 1);
        }
        let addrs = rack.destinations(ENDS[0], ENDS[1], FLOWS);
        let routers = routers.into_iter().map(Some).collect();
        Self { rack, server, routers, transfer, addrs, held_up: [0; 4] }
    }

    /// Router of a node that runs.
    ///
    /// # Panics
    /// When it does not.
    pub fn router(&self, node: usize) -> &Router {
        self.routers[node].as_ref().expect("it runs")
    }

    /// Traffic for so many seconds.
    pub fn traffic(&self, seconds: u64) -> Traffic {
        let addrs: Vec<&str> = self.addrs.iter().map(String::as_str).collect();
        let ends = ENDS.map(|node| &*self.rack.places[node].hosts[0]);
        Traffic::between(self.transfer, ends, &addrs, (RATE, seconds, 24))
    }

    /// What a failure costs that befalls the traffic after so long. Afterwards all is mended.
    ///
    /// # Panics
    /// As [`Trial::end`], or when it is not mended.
    pub fn cost(&mut self, fault: Fault, after: Duration) -> Cost {
        if fault == Fault::Stale {
            let (counts, held_up_ms) = self.stale();
            return self.judge(fault, counts, held_up_ms);
        }
        let going = self.begin(2);
        thread::sleep(after);
        self.fail(fault);
        let cost = self.end(fault, going);
        self.mend(fault);
        cost
    }

    /// Traffic for so many seconds that a failure is to befall.
    pub fn begin(&mut self, seconds: u64) -> Traffic {
        self.held_up = self.late_intervals().0;
        self.traffic(seconds)
    }

    /// What a failure cost the traffic that it befell, at its end.
    ///
    /// # Panics
    /// When it cost more than [`LONGEST_MS`], or a packet arrived twice. A node that the machine held up may cost as long as that
    /// took besides.
    pub fn end(&self, fault: Fault, going: Traffic) -> Cost {
        let counts = going.end();
        self.judge(fault, counts, self.held_up_ms())
    }

    fn judge(&self, fault: Fault, counts: Counts, held_up_ms: Option<f64>) -> Cost {
        #[allow(clippy::cast_precision_loss, reason = "counts of seconds")]
        let ms = |share: f64| counts.lost() as f64 / (RATE as f64 * share) * 1000.0;
        let lost_ms = fault.share().map(ms);
        let fine = lost_ms.map_or(counts.lost() == 0, |ms| ms <= LONGEST_MS);
        let excused = !fine && held_up_ms.is_some_and(|late_ms| ms(1.0) <= LONGEST_MS + late_ms);
        assert!((fine || excused) && counts.twice == 0, "{fault:?}: {counts:?}\n{self:?}");
        if excused {
            println!("{fault:?}, a node was held up: {counts:?}\n{self:?}");
        }
        Cost { counts, lost_ms: lost_ms.filter(|_| fine), excused }
    }

    /// Intervals of each node whose probes the machine held up, and the longest time of that in milliseconds.
    fn late_intervals(&self) -> ([u64; 4], f64) {
        let (mut intervals, mut most_ms) = ([0; 4], 0.0_f64);
        for (intervals, router) in intervals.iter_mut().zip(&self.routers) {
            let Some(router) = router else { continue };
            let status: serde_json::Value = router.ask("cluster status");
            let probes = &status["probes"];
            *intervals = probes["late_intervals"].as_u64().expect("a count");
            most_ms = most_ms.max(probes["most_late_ms"].as_f64().expect("a time"));
        }
        (intervals, most_ms)
    }

    /// For how long the machine held a node up at most, where it did since the traffic began.
    fn held_up_ms(&self) -> Option<f64> {
        let (intervals, most_ms) = self.late_intervals();
        let late = intervals.iter().zip(self.held_up).any(|(now, before)| *now > before);
        late.then_some(most_ms)
    }

    /// Checks that nothing is lost in a second without a failure.
    ///
    /// # Panics
    /// When something is.
    pub fn lose_nothing(&self) {
        let counts = self.traffic(1).end();
        assert!(counts.lost() == 0 && counts.twice == 0, "{counts:?}\n{self:?}");
    }

    /// Makes the failure.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn fail(&mut self, fault: Fault) {
        match fault {
            Fault::Killed(node) => self.routers[node].take().expect("it runs").kill(),
            Fault::Drained(node) => drop(self.routers[node].take().expect("it runs").stop()),
            Fault::Cut(one, other) => self.rack.carrier(&[(one, other)], "down"),
            Fault::OneWay(from, to) => self.rack.pass_nothing(&[(from, to)]),
            Fault::Silent(node) => {
                let others = (0..4).filter(|other| *other != node);
                let pairs: Vec<_> =
                    others.flat_map(|other| [(node, other), (other, node)]).collect();
                self.rack.pass_nothing(&pairs);
            }
            Fault::Parted => {
                let links = [(0, 2), (0, 3), (1, 2), (1, 3)];
                let pairs: Vec<_> = links.into_iter().flat_map(|(i, j)| [(i, j), (j, i)]).collect();
                self.rack.pass_nothing(&pairs);
            }
            Fault::NoStore => self.server.as_mut().expect("a rack with a store").stop(),
            Fault::Stale => self.rack.manage(ENDS[0], "down"),
        }
    }

    /// Mends it, and waits until all nodes have all links.
    ///
    /// # Panics
    /// When one does not get them.
    pub fn mend(&mut self, fault: Fault) {
        match fault {
            Fault::Killed(node) | Fault::Drained(node) => {
                self.routers[node] = Some(self.rack.start(node));
            }
            Fault::Cut(one, other) => self.rack.carrier(&[(one, other)], "up"),
            Fault::OneWay(..) | Fault::Silent(_) | Fault::Parted => self.rack.pass_nothing(&[]),
            Fault::NoStore => self.server.as_mut().expect("a rack with a store").start(),
            Fault::Stale => self.rack.manage(ENDS[0], "up"),
        }
        let routers = self.routers.iter().flatten();
        match &self.server {
            None => routers.for_each(wait_for_links),
            Some(_) => routers.for_each(|router| {
                wait_for_members(router, 4);
                wait_for(router, "the store", |status| status["store"]["state"] == "in_sync");
            }),
        }
        if self.server.is_some() {
            reach(&self.rack, 0, 1);
        }
    }

    /// Packets that name adjacencies of a former start of their egress node: it looks up their destinations.
    fn stale(&mut self) -> (Counts, Option<f64>) {
        const TIMES: usize = 5;
        for _ in 0..TIMES {
            if let Some((mut counts, late_ms)) = self.sent_stale() {
                let (more, later_ms) = self.sent_fresh();
                counts.add(more);
                return (counts, late_ms.into_iter().chain(later_ms).reduce(f64::max));
            }
            self.mend(Fault::Stale);
        }
        panic!("node b takes longer than {FORGOTTEN:?} to start again, {TIMES} times\n{self:?}");
    }

    /// Sends them; `None` where the store may have forgotten the sender in the meantime. So it may when node b could not take
    /// its record away in time, and waits for the end of its own session.
    fn sent_stale(&mut self) -> Option<(Counts, Option<f64>)> {
        let [from, to] = ENDS;
        let began = Instant::now();
        self.fail(Fault::Stale);
        let _ = self.routers[to].take().expect("it runs").stop();
        let again = self.rack.start(to);
        if began.elapsed() > FORGOTTEN / 2 {
            self.routers[to] = Some(again);
            return None;
        }
        wait_for_links(&again);
        self.routers[to] = Some(again);
        wait_for_links(self.router(from));
        reach(&self.rack, from, to);
        let before = self.received();
        let counts = self.begin(1).end();
        let held_up_ms = self.held_up_ms();
        if began.elapsed() > FORGOTTEN {
            return None;
        }
        let after = self.received();
        let [output, looked_up] = [after[0] - before[0], after[1] - before[1]];
        let epochs = self.epochs();
        println!(
            "epochs {epochs:?}: {output} by their adjacency, {looked_up} looked up: {counts:?}"
        );
        assert!(
            looked_up >= counts.received && output == 0,
            "{output} by their adjacency, {looked_up} looked up: {counts:?}\n{self:?}"
        );
        Some((counts, held_up_ms))
    }

    /// Packets until they name the adjacencies of the new start.
    fn sent_fresh(&mut self) -> (Counts, Option<f64>) {
        let (mut counts, mut held_up_ms) = (Counts::default(), None);
        // With the record of the new start it names the new indices.
        self.mend(Fault::Stale);
        let until = Instant::now() + patience(Duration::from_secs(20));
        loop {
            let before = self.received();
            let more = self.begin(1).end();
            held_up_ms = held_up_ms.into_iter().chain(self.held_up_ms()).reduce(f64::max);
            println!("by the indices of the new start: {more:?}");
            counts.add(more);
            if self.received()[0] - before[0] >= more.sent {
                return (counts, held_up_ms);
            }
            assert!(Instant::now() < until, "{:?}, {more:?}\n{self:?}", self.received());
        }
    }

    /// Packets that left the cluster at node `b`: by the adjacency that they named, and after a lookup.
    fn received(&self) -> [u64; 2] {
        ["output", "looked_up"].map(|what| packets(self.router(ENDS[1]), what))
    }

    /// Epoch of node `b` as its sender has it, and its own.
    fn epochs(&self) -> [u64; 2] {
        ENDS.map(|node| {
            let status: serde_json::Value = self.router(node).ask("cluster status");
            let mut members = status["members"].as_array().expect("members").iter();
            let member = members.find(|member| member["id"] == self.rack.places[ENDS[1]].id);
            member.expect("a member")["epoch"].as_u64().expect("a number")
        })
    }
}

/// Waits until a node has so many members, with all links up.
///
/// # Panics
/// When that takes longer than the TTL allows.
pub fn wait_for_members(router: &Router, count: usize) {
    wait_for(router, &format!("{count} members with links"), |status| {
        let members = status["members"].as_array().expect("members");
        let mut links = members.iter().map(|member| &member["link"]).filter(|link| !link.is_null());
        members.len() == count && links.all(|link| link["up"] == true)
    });
}

/// Waits until the host of a node answers that of another one: routes come with the records.
///
/// # Panics
/// When it does not within 20 s.
pub fn reach(rack: &Rack, from: usize, to: usize) {
    let until = Instant::now() + patience(Duration::from_secs(20));
    for addr in [format!("10.{}.0.2", to + 1), format!("fd00:{}:0::2", to + 1)] {
        loop {
            let said = ping(&rack.places[from].hosts[0], &addr);
            if said.contains("1 received") {
                break;
            }
            assert!(Instant::now() < until, "{from} to {addr}: {said}");
        }
    }
}
