//! Any frames through the elements of a cluster node, for tests and the fuzzer.
//!
//! ```text
//! an input     bits 0 and 1: rule, bit 2: mode, bit 3: whether links have a rate; then frames
//! a frame      how, length, as many bytes (fewer at the end)
//! how          bits 0 and 1: the bytes are the frame; or they change, by an exclusive or from its first byte on, a good frame:
//!              in phase 1, in phase 2, or of the outside. Bits 2 and 3: the port
//! ```

use std::sync::{Arc, LazyLock};

use fingerpost_lpm::Heap;
use fingerpost_packet::feature::{FeatureSettings, FeatureStates};
use fingerpost_packet::frame::wire::Ether;
use fingerpost_packet::frame::{DropReason, FLAG_GENERATED};
use fingerpost_packet::graph::{ElementClass, Registry};
use fingerpost_packet::testing::{Bench, World, batch, frame_v4};
use fingerpost_packet::{Graph, Plan, router_graph};
use fingerpost_route::{Adjacency, ForwardingAction};

use super::{ELEMENTS, addition};
use crate::fabric::{Fabric, Mode, PathSettings, PortRole, Settings};
use crate::frame::{ETHERTYPE, FabricAddr, FrameClass, Header, LOOKUP};
use crate::rule::{self, Members, NodeId, Phase, Rule};

/// Port of the outside.
pub(super) const EXTERNAL: u16 = 0;
/// Port that leads to the other nodes.
pub(super) const INTERNAL: u16 = 1;
/// Port of the fabric interface.
pub(super) const FABRIC: u16 = 2;

/// Own adjacency index of the neighbor of each node.
pub(super) const INDEX: u32 = 5;
/// Adjacency of that neighbor in the tables of its node.
pub(super) const NEIGHBOR: u8 = 3;
/// Prefixes whose routes form a loop.
const LOOPED: [&str; 2] = ["203.0.113.0/24", "2001:db8:ff00::/40"];
/// First adjacency of those that name other nodes.
const OTHERS: u8 = 10;

static CLASSES: LazyLock<Vec<ElementClass>> =
    LazyLock::new(|| [fingerpost_packet::ELEMENTS, ELEMENTS].concat());

fn registry() -> Registry {
    Registry::from(&CLASSES[..])
}

/// A node: its state, its graph, and what that has around it.
pub(super) struct Node {
    pub(super) fabric: Arc<Fabric>,
    pub(super) bench: Bench,
    pub(super) graph: Graph,
}

fn plan(fabric: &Arc<Fabric>) -> Plan {
    let states =
        FeatureStates::make(&FeatureSettings::default(), None).expect("a node of a few members");
    router_graph::plan_added(None, &states, &addition(registry(), fabric.clone()))
        .expect("a node of a few members")
}

/// A node of so many. Behind node k are 198.51.k.0/24 and 2001:db8:k00::/40; its host is 192.0.2.k.
pub(super) fn node(
    number: NodeId,
    nodes: usize,
    mode: Mode,
    rule: Rule,
    rate: Option<u64>,
) -> Node {
    let settings = Settings { cluster: 9, node: number, ethertype: ETHERTYPE, clock_ns: 0 };
    let rule = rule::Settings { rule, threshold: 10_000 };
    let paths = PathSettings { mode, rule, flowlet_ns: 1_000_000 };
    let fabric = Fabric::new(&mut Heap, settings, paths, Members::equal(nodes))
        .expect("a node of a few members");
    let fabric = Arc::new(fabric);
    let mut world = World::new();
    world.ports.own_v4.push(0xc000_0200 | u32::from(number));
    world.ports.own_v4.sort_unstable();
    fabric.set_role(FABRIC, PortRole::Fabric);
    for other in 0..u8::try_from(nodes).expect("a node of a few members") {
        let (v4, v6) = (format!("198.51.{other}.0/24"), format!("2001:db8:{other:x}00::/40"));
        let (with_index, host) = (OTHERS + 2 * other, OTHERS + 2 * other + 1);
        if NodeId::from(other) == number {
            world.neighbor(NEIGHBOR, EXTERNAL);
            world.action(&v4, ForwardingAction::Adjacency(NEIGHBOR.into()));
            world.action(&v6, ForwardingAction::Adjacency(NEIGHBOR.into()));
            fabric.set_output(INDEX, Some(NEIGHBOR.into()));
            continue;
        }
        fabric.set_link(other.into(), INTERNAL, rate, 30_000);
        for (at, adjacency) in [(with_index, INDEX), (host, LOOKUP)] {
            let dst = FabricAddr { adjacency, output: other.into() }.mac();
            let src = FabricAddr { adjacency: LOOKUP, output: number }.mac();
            world.hops.set_adjacency(at.into(), Adjacency { dst, src, port: FABRIC, mtu: 1500 });
        }
        world.action(&v4, ForwardingAction::Adjacency(with_index.into()));
        world.action(&v6, ForwardingAction::Adjacency(with_index.into()));
        world.action(&format!("192.0.2.{other}/32"), ForwardingAction::Adjacency(host.into()));
    }
    // Each node believes the next one to have these prefixes.
    let next = OTHERS
        + 2 * ((u8::try_from(number).expect("a node of a few members") + 1)
            % u8::try_from(nodes).expect("a node of a few members"))
        + 1;
    for prefix in LOOPED {
        world.action(prefix, ForwardingAction::Adjacency(next.into()));
    }
    let bench = Bench::new(&world);
    let graph = Graph::new(&plan(&fabric), &bench.pool);
    Node { fabric, bench, graph }
}

/// Number of the node that frames are sent to, and of nodes.
const OWN: NodeId = 1;
const NODES: usize = 3;
/// Frames of an input: fewer than ICMP errors may be sent at once.
const FRAMES: usize = 8;

/// A good frame from node 0 to node 2 in phase 1, or to this node in phase 2.
fn internal(phase: Phase) -> Vec<u8> {
    let output = if phase == Phase::First { 2 } else { OWN };
    let header = Header {
        cluster: 9,
        hop: OWN,
        output,
        sender: 0,
        phase,
        epoch: 0,
        ethertype: ETHERTYPE,
        adjacency: INDEX,
        class: FrameClass::Data,
    };
    let packet = frame_v4("10.0.0.9", &format!("198.51.{output}.5"), 64, 17, &[7; 26]);
    [&header.bytes()[..], &packet[14..]].concat()
}

/// The port and the bytes of each frame that an input names.
fn frames(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [how, len, rest @ ..] = bytes
        && frames.len() < FRAMES
    {
        let (given, after) = rest.split_at(rest.len().min((*len).into()));
        bytes = after;
        let changed = |mut frame: Vec<u8>| {
            frame.iter_mut().zip(given).for_each(|(byte, by)| *byte ^= by);
            frame
        };
        let frame = match how & 3 {
            0 => given.to_vec(),
            1 => changed(internal(Phase::First)),
            2 => changed(internal(Phase::Second)),
            _ => changed(frame_v4("10.0.0.9", "198.51.2.5", 64, 17, &[7; 26])),
        };
        let port = [INTERNAL, INTERNAL, EXTERNAL, FABRIC][usize::from(how >> 2 & 3)];
        frames.push((port, frame));
    }
    frames
}

/// What became of frames: how many were dropped for each reason, and how many packets left by each port.
#[derive(PartialEq, Eq, Debug)]
struct Ends {
    dropped: Vec<u64>,
    sent: [usize; 3],
}

/// Runs frames in these parts, each of which comes by one port.
fn run((mode, rule, rate): (Mode, Rule, Option<u64>), parts: &[&[(u16, Vec<u8>)]]) -> Ends {
    let Node { fabric, mut bench, mut graph } = node(OWN, NODES, mode, rule, rate);
    for part in parts {
        let port = part[0].0;
        let packets = batch(&bench.pool, port, part.iter().map(|(_, frame)| &frame[..]));
        graph.receive(port, packets, &mut bench.round());
    }
    let mut sent = [0; 3];
    for (port, frame, _) in &bench.sent.frames {
        sent[usize::from(*port)] += 1;
        if *port == INTERNAL {
            let header = Header::parse(frame, ETHERTYPE).expect("an internal frame");
            assert!((header.cluster, header.sender) == (9, OWN) && header.hop != OWN, "{header:?}");
            assert_eq!(header.phase == Phase::Second, header.hop == header.output, "{header:?}");
            assert_eq!(fabric.links.port(header.hop), Some(INTERNAL), "{header:?}");
        } else {
            let kind = Ether::of(frame).map(Ether::kind);
            assert!(kind.is_some_and(|kind| kind != ETHERTYPE), "no internal frame leaves");
        }
    }
    let received = bench.sent.frames.iter().filter(|frame| frame.2.flags & FLAG_GENERATED == 0);
    let received = received.count();
    let dropped = DropReason::ALL.iter().map(|&why| bench.counters.dropped[why as usize].read());
    let dropped: Vec<u64> = dropped.collect();
    let (held, count) = (graph.held(), parts.iter().map(|part| part.len()).sum::<usize>());
    let ended = usize::try_from(dropped.iter().sum::<u64>()).expect("a few") + received;
    assert_eq!(ended + held.received, count, "in = out + dropped + held");
    assert_eq!(bench.pool.free() + held.total(), bench.pool.frames(), "every frame is somewhere");
    graph.stop(&mut bench.round());
    assert_eq!(bench.pool.free(), bench.pool.frames(), "every frame came back");
    Ends { dropped, sent }
}

/// What must hold of any frames on any port: each is sent, dropped for a reason or held, what is sent to other nodes is an internal
/// frame that deviates once at most, none leaves the cluster, and it is the same whether they come one at a time or together.
///
/// # Panics
/// Where it does not hold.
pub fn check(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let mut frames = frames(rest);
    if frames.is_empty() {
        return;
    }
    let rule = Rule::ALL[usize::from(kind & 3) % Rule::ALL.len()];
    let mode = if kind & 4 == 0 { Mode::Vlb } else { Mode::Direct };
    let node = (mode, rule, (kind & 8 != 0).then_some(1_000_000_000));
    // Those of a port come together; what a port's frames do to those of another depends on their order.
    frames.sort_by_key(|frame| frame.0);
    let alone: Vec<_> = frames.chunks(1).collect();
    let together: Vec<_> = frames.chunk_by(|one, other| one.0 == other.0).collect();
    assert_eq!(run(node, &alone), run(node, &together));
}
