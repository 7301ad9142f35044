//! What a packet costs all nodes that it crosses: input, transit and egress node one behind the other, in one thread.
//!
//! A packet of a cluster costs the sum of what it costs each node. The runs of `cluster.rs` measure a node alone, between a
//! generator and sinks; here three of them are joined by wires that move frames without copying them, and what the whole
//! takes stands beside the sum, as RouteBricks compares its model with its prototype (section 6.2 of the paper). The rule
//! is plain VLB with one node of transit, so that every packet crosses that.
//!
//! The sum has three generators and three pairs of sinks, the path one of each and two wires.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, Result};
use fingerpost_cluster::fabric::{Fabric, PortRole};
use fingerpost_cluster::frame::FabricAddr;
use fingerpost_cluster::rule::{Members, NodeId, Rule};
use fingerpost_lpm::Heap;
use fingerpost_packet::device::memory::Sink;
use fingerpost_packet::frame::{Batch, Meta, Pool, RawFrame};
use fingerpost_packet::{DeviceError, Port};
use fingerpost_route::{Control, NeighborState, NeighborUpdate, RouteEvent};

use super::cluster::{RUNS, Scene, fabric_of, plan};
use super::{FRAME_BYTES, FRAMES, Path, ROUNDS, world};
use crate::document::Run;
use crate::measure::Measured;

/// What the run is called.
pub(super) const NAME: &str = "cluster-path";

/// Nodes of the path: input, transit, output.
const NODES: [NodeId; 3] = [0, 1, 2];

/// A path over three nodes.
pub(super) struct Chain {
    nodes: [Path; 3],
    /// Keeps the tables of the ingress node.
    _control: Control,
}

impl Chain {
    /// Makes it, with the destinations whose next hop is on the first egress, and sends to each of them once.
    pub(super) fn new(scene: &Scene<'_>) -> Result<(Run, Self)> {
        let ports = scene.ports;
        let [fabric_port, internal_port] = ports.out;
        // The transit node alone has a share of transit.
        let one = |node| fabric_of(&mut Heap, node, Members::new(&[0, 1, 0]), Rule::Vlb);

        let control = learn(scene)?;
        let input = one(NODES[0])?;
        input.set_role(fabric_port, PortRole::Fabric);
        input.set_link(NODES[1], internal_port, None, 0);
        let transit = one(NODES[1])?;
        transit.set_role(ports.input, PortRole::Internal);
        transit.set_link(NODES[2], internal_port, None, 0);
        let output = one(NODES[2])?;
        output.set_role(ports.input, PortRole::Internal);
        scene.set_outputs(&output)?;

        let pool = Pool::new(FRAMES, FRAME_BYTES);
        let burst = scene.options.burst;
        let headers: Arc<[_]> = (scene.found.iter().zip(&*scene.packets))
            .filter(|((_, hop), _)| world::egress_of(hop.0) == 0)
            .map(|(_, packet)| *packet)
            .collect();
        let node = |fabric: &Arc<Fabric>, control: &Control| -> Result<Path> {
            let (plan, reader) = (plan(fabric)?, control.reader());
            Ok(Path::of_pool(&pool, plan, reader, ports, 4, headers.clone(), burst))
        };
        let nodes =
            [node(&input, &control)?, node(&transit, &control)?, node(&output, scene.control)?];
        let mut chain = Self { nodes, _control: control };
        for at in 0..2 {
            let frames = Arc::<Mutex<VecDeque<_>>>::default();
            let end = |receives| Box::new(Wire { frames: frames.clone(), receives });
            chain.nodes[at].worker.add_port(internal_port, end(false));
            chain.nodes[at + 1].worker.add_port(ports.input, end(true));
        }

        let sent = headers.len() as u64;
        let watched = chain.nodes[2].watch(scene.leaves(world::TTL - 1));
        let first = &mut chain.nodes[0];
        first.worker.add_port(ports.input, Box::new(first.generator().limit(sent)));
        while chain.round() > 0 {}
        let mut run = scene.named(NAME, watched.verdict(sent));
        run.note = format!("{sent} destinations, three nodes");

        let [first, _, last] = &mut chain.nodes;
        first.worker.add_port(ports.input, Box::new(first.generator()));
        for port in ports.out {
            last.worker.add_port(port, Box::new(Sink::new()));
        }
        Ok((run, chain))
    }

    /// A round of each node; returns how many packets entered.
    fn round(&mut self) -> usize {
        let [input, transit, output] = &mut self.nodes;
        let entered = input.worker.round();
        transit.worker.round();
        output.worker.round();
        entered
    }
}

impl Measured for Chain {
    fn work(&mut self) -> u64 {
        (0..ROUNDS).map(|_| self.round() as u64).sum()
    }
}

/// The tables of the ingress node: next hops on the first egress are adjacencies of the egress node, by the number of the next
/// hop.
fn learn(scene: &Scene<'_>) -> Result<Control> {
    let tables = scene.options.tables.only(4);
    let (mut control, _) = world::build(&tables, None, None, None)?;
    let source = control.add_source("members", 20);
    for (_, hop) in scene.found.iter().filter(|(_, hop)| world::egress_of(hop.0) == 0) {
        let mac = FabricAddr { adjacency: hop.0, output: NODES[2] }.mac();
        let (link, addr) = (world::hop_link(hop.0), world::hop_addr(4, hop.0));
        let state = NeighborState::Reachable(mac);
        control.handle(source, RouteEvent::Neighbor(NeighborUpdate { link, addr, state }));
    }
    control.commit(Instant::now()).context("no algorithm holds the table")?;
    Ok(control)
}

/// End of a wire between two ports of one pool, in one direction: frames are moved, and no byte is copied.
struct Wire {
    /// Frames on the wire, each with the place of its first byte and its length.
    frames: Arc<Mutex<VecDeque<(RawFrame, u16, u16)>>>,
    receives: bool,
}

impl Port for Wire {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        if !self.receives {
            return Ok(0);
        }
        let mut frames = self.frames.lock().expect("one thread");
        let count = into.room().min(frames.len());
        for (frame, start, len) in frames.drain(..count) {
            into.push_raw(frame, start, len, Meta::default());
        }
        Ok(count)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let mut frames = self.frames.lock().expect("one thread");
        let count = from.len();
        from.take_front_raw(count, |frame, at, len, _| {
            let start = u16::try_from(at - frame.offset()).expect("within the frame");
            frames.push_back((frame, start, len));
        });
        Ok(count)
    }
}

/// Notes in the run of the path how it compares with the sum of its nodes, turn by turn.
pub(super) fn predict(runs: &mut [Run]) {
    let nodes: Vec<&Run> =
        RUNS.iter().filter_map(|name| runs.iter().find(|run| run.name == *name)).collect();
    let Some(first) = nodes.first().filter(|_| nodes.len() == RUNS.len()) else { return };
    let mut sum = (*first).clone();
    let at = |turn: usize| nodes.iter().filter_map(|run| run.samples.get(turn)).sum();
    sum.set_samples((0..first.samples.len()).map(at).collect());
    let Some(path) = runs.iter_mut().find(|run| run.name == NAME) else { return };
    if let (Some(share), Some(median)) = (path.share_of(&sum), sum.median) {
        path.note = format!("{}; {share:.2} of {median:.1}, the sum of the three", path.note);
    }
}
