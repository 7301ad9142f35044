//! The demo of a cluster: four nodes that act as one router, traffic between all external ports, and a node that is
//! killed and comes back while it flows.
//!
//! Source: RouteBricks, SOSP 2009: RB4, four servers of one external port each and a mesh of internal links; RB8/4 has two ports
//!         a server.
//! Shape:  a [`Rack`] has the nodes: processes in network namespaces, or threads over rings of shared memory for an ordinary
//!         user. Sender and checker are the same for both, a port at each host.
//! Cost:   some 6,500 packets a second in all: the rate of the links is the limit, and not the processor.
//! Limits: uniform traffic, IPv4.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use fingerpost_cluster::rule::Rule;
use fingerpost_packet::Port;
use serde::Serialize;

use crate::machine::cpu_name;

use self::picture::{Picture, Scene};
use self::traffic::{Phase, Shared, Tally, Traffic};

mod frr;
mod loads;
mod memory;
mod namespaces;
mod node;
mod picture;
mod plan;
mod probes;
mod store;
mod traffic;

/// Longest time that a failed node may go unnoticed: probes that miss five intervals of 8 ms, and a half, and some.
pub const DETECTION: Duration = Duration::from_millis(50);

/// External ports of a node, at most.
pub const MOST_PORTS: u8 = 2;

/// Longest time until all links are up and all routes known.
const LONGEST_START: Duration = Duration::from_secs(60);
/// Time between two looks at the nodes.
const TICK: Duration = Duration::from_millis(200);
/// Packets that were sent so long before the node is killed may still be on their path.
const IN_FLIGHT: Duration = Duration::from_millis(50);
/// Time from the last packet sent to the counts being final.
const DRAIN: Duration = Duration::from_millis(500);
/// Time from the return of a node to the routes being those of all data planes.
const SETTLE: Duration = Duration::from_millis(300);

/// What the demo runs with.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOptions {
    /// Duration of the traffic, about.
    pub time: Duration,
    /// Rule of the path selection.
    pub rule: Rule,
    /// External ports of each node, 1 to [`MOST_PORTS`].
    pub ports: u8,
    /// Nodes in this process, also where namespaces can be had.
    pub memory: bool,
}

/// Results of the demo. Field names are a contract with scripts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClusterReport {
    /// `namespaces` or `memory`.
    pub mode: &'static str,
    /// How many nodes there are.
    pub nodes: usize,
    /// External ports of each node.
    pub ports: u8,
    /// Where the nodes have the members from: `etcd` or `configuration`.
    pub members: &'static str,
    /// Origin of the routes: `bgp` (FRR's, by two route reflectors) or `static`.
    pub routes: &'static str,
    /// Rule of the path selection.
    pub rule: &'static str,
    /// Rate of an external port, in bit/s: R by the ports of a node.
    pub port_bps: u64,
    /// Rate of an internal link, 2R/N, in bit/s.
    pub link_bps: u64,
    /// Packets sent by the hosts.
    pub offered: u64,
    /// Packets received by the hosts.
    pub arrived: u64,
    /// Packets of `arrived` that were checked in full.
    pub verified: u64,
    /// Packets of `verified` that differ from what they must be.
    pub wrong: u64,
    /// Differences of the first of them.
    pub wrong_samples: Vec<String>,
    /// Packets between other nodes that were lost while the failed node was not noticed.
    pub lost_in_failure: u64,
    /// Packets from or to the failed node that were lost until it was back.
    pub lost_at_node: u64,
    /// All other lost packets.
    pub lost_otherwise: u64,
    /// Time until the last node noticed the failure, in milliseconds.
    pub detection_ms: f64,
    /// Time from the restart of the node to all links being up and all routes known, in milliseconds.
    pub return_ms: f64,
    /// Load of the busiest link in its busiest second, in 2R/N.
    pub worst_link: f64,
    /// Share of the packets that begin a reordered sequence, by RouteBricks' measure.
    pub reordered_sequences: f64,
    /// Duration of the traffic.
    pub seconds: f64,
    /// Name of the processor.
    pub cpu: String,
}

impl ClusterReport {
    /// Packets that the failure may cost the other nodes: what was offered in the time that it took to notice it, or in
    /// [`DETECTION`] if that is longer.
    #[must_use]
    pub fn most_lost(&self) -> u64 {
        let seconds = (self.detection_ms / 1e3).max(DETECTION.as_secs_f64());
        self.offered_in(Duration::from_secs_f64(seconds))
    }

    /// Packets that were offered in so much time, in the mean.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a bound"
    )]
    pub fn offered_in(&self, time: Duration) -> u64 {
        (self.offered as f64 / self.seconds.max(1e-3) * time.as_secs_f64()).ceil() as u64
    }

    /// Faults of the run. Empty when all is well.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.wrong > 0 {
            let samples = self.wrong_samples.join("; ");
            faults.push(format!("{} packets were wrong: {samples}", self.wrong));
        }
        if self.verified == 0 || self.verified != self.arrived {
            faults.push(format!("{} of {} packets were checked", self.verified, self.arrived));
        }
        if self.lost_in_failure > self.most_lost() {
            let (lost, most) = (self.lost_in_failure, self.most_lost());
            faults.push(format!("the failure lost {lost} packets between other nodes, not {most}"));
        }
        // A busy machine may hold up a thread of a node for so long that the others take it for dead.
        if self.lost_otherwise > self.offered / 20 {
            faults.push(format!("{} packets were lost without a failure", self.lost_otherwise));
        }
        if self.worst_link > plan::MOST_LOAD {
            faults.push(format!("a link carried {:.2} of 2R/N", self.worst_link));
        }
        faults
    }
}

/// An internal link as the node at one end has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LinkView {
    up: bool,
    /// Bytes sent so far.
    bytes: u64,
}

/// A node at a moment; `None` in its place while it is dead.
#[derive(Clone, Debug, Default, PartialEq)]
struct NodeView {
    /// Links by node; `None` at its own place.
    links: Vec<Option<LinkView>>,
}

/// Four nodes, however they run.
trait Rack {
    /// `namespaces` or `memory`.
    fn mode(&self) -> &'static str;
    /// Origin of the routes.
    fn routes(&self) -> &'static str;
    /// Origin of the members.
    fn members(&self) -> &'static str;
    /// Ports of the hosts, in the order of [`plan::hosts`]; called once.
    fn hosts(&mut self) -> Result<Vec<Box<dyn Port>>>;
    /// The nodes at this moment.
    fn look(&mut self) -> Result<Vec<Option<NodeView>>>;
    /// Kills a node, and returns the time until all others had noticed.
    fn kill(&mut self, node: usize) -> Result<Duration>;
    /// Starts a node that was killed.
    fn restart(&mut self, node: usize) -> Result<()>;
    /// Whether all links are up and all routes known.
    fn is_whole(&mut self) -> Result<bool>;
}

/// Runs the demo, and reports its progress a line at a time, or as a picture on a terminal.
///
/// # Errors
/// When a part of the lab fails.
pub fn run(options: &ClusterOptions, progress: &dyn Fn(String)) -> Result<ClusterReport> {
    let mut rack = start(options, progress)?;
    let start = Instant::now();
    while !rack.is_whole()? {
        ensure!(start.elapsed() < LONGEST_START, "links or routes of the cluster do not come up");
        thread::sleep(TICK);
    }
    thread::sleep(SETTLE);
    let hosts = rack.hosts()?;
    let shared = Shared::default();
    let shared = &shared;
    let result = thread::scope(|scope| {
        let sender = scope.spawn(move || Traffic::new(options.ports, hosts).run(shared));
        let done = conduct(rack.as_mut(), options, shared, progress);
        shared.stop_sending.store(true, Relaxed);
        thread::sleep(DRAIN);
        shared.stop.store(true, Relaxed);
        let tally = sender.join().map_err(|_| anyhow!("the sender panicked"))??;
        Ok::<_, anyhow::Error>((done?, tally))
    });
    let (run, tally) = result?;
    Ok(report(rack.as_ref(), options, &run, tally))
}

fn start(options: &ClusterOptions, progress: &dyn Fn(String)) -> Result<Box<dyn Rack>> {
    if !options.memory {
        match namespaces::Spaces::new(options.rule, options.ports, progress) {
            Ok(rack) => return Ok(Box::new(rack)),
            Err(missing) => {
                progress(format!("{missing:#}: the nodes are threads over rings of shared memory"));
            }
        }
    }
    Ok(Box::new(memory::Memory::new(options.rule, options.ports)?))
}

/// What the conductor measured.
#[derive(Default)]
struct Run {
    detection: Duration,
    back: Duration,
    worst_link: f64,
}

/// Where the run is.
enum Stage {
    Before,
    Dead,
    Returning(Instant),
    After,
}

/// Kills a node after a third of the time, restarts it after half of it, and shows what happens.
fn conduct(
    rack: &mut dyn Rack,
    options: &ClusterOptions,
    shared: &Shared,
    progress: &dyn Fn(String),
) -> Result<Run> {
    let (start, time) = (Instant::now(), options.time);
    let (mut picture, mut loads) = (Picture::new(), loads::Loads::new());
    let (mut stage, mut run) = (Stage::Before, Run::default());
    let mut event = String::from("all nodes run");
    let mut end = time;
    shared.set_phase(Phase::Whole);
    loop {
        let elapsed = start.elapsed();
        match stage {
            Stage::Before if elapsed >= time / 3 => {
                shared.set_phase(Phase::Failing);
                thread::sleep(IN_FLIGHT);
                run.detection = rack.kill(plan::KILLED)?;
                thread::sleep(IN_FLIGHT);
                shared.set_phase(Phase::Down);
                event = format!(
                    "node {} was killed, and noticed after {:.0} ms",
                    plan::ID[plan::KILLED],
                    run.detection.as_secs_f64() * 1e3
                );
                stage = Stage::Dead;
            }
            Stage::Dead if elapsed >= time / 2 => {
                rack.restart(plan::KILLED)?;
                event += ", and starts again";
                stage = Stage::Returning(Instant::now());
            }
            Stage::Returning(since) if rack.is_whole()? => {
                run.back = since.elapsed();
                thread::sleep(SETTLE);
                shared.set_phase(Phase::Back);
                event += &format!(": back after {:.1} s", run.back.as_secs_f64());
                // Some traffic after it, however long it took.
                end = end.max(start.elapsed() + time / 6);
                stage = Stage::After;
            }
            Stage::Returning(since) => {
                ensure!(since.elapsed() < LONGEST_START, "the node does not come back");
            }
            Stage::After if elapsed >= end => break,
            _ => {}
        }
        let nodes = rack.look()?;
        loads.sample(&nodes);
        let scene = Scene {
            elapsed: start.elapsed(),
            time,
            event: &event,
            nodes: &nodes,
            loads: loads.last(),
            sent: shared.sent.load(Relaxed),
            arrived: shared.arrived.load(Relaxed),
            wrong: shared.wrong.load(Relaxed),
        };
        picture.draw(&scene, progress);
        thread::sleep(TICK);
    }
    run.worst_link = loads.worst();
    Ok(run)
}

fn report(rack: &dyn Rack, options: &ClusterOptions, run: &Run, tally: Tally) -> ClusterReport {
    ClusterReport {
        mode: rack.mode(),
        nodes: plan::NODES,
        ports: options.ports,
        members: rack.members(),
        routes: rack.routes(),
        rule: plan::rule_name(options.rule),
        port_bps: plan::NODE_BPS / u64::from(options.ports),
        link_bps: plan::LINK_BPS,
        offered: tally.offered,
        arrived: tally.arrived,
        verified: tally.verified,
        wrong: tally.wrong,
        reordered_sequences: tally.reordered_sequences(),
        lost_in_failure: tally.lost.in_failure,
        lost_at_node: tally.lost.at_node,
        lost_otherwise: tally.lost.otherwise,
        detection_ms: run.detection.as_secs_f64() * 1e3,
        return_ms: run.back.as_secs_f64() * 1e3,
        worst_link: run.worst_link,
        seconds: tally.seconds,
        wrong_samples: tally.samples,
        cpu: cpu_name(),
    }
}
