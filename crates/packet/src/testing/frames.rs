//! Any frames through the built-in router, for tests and the fuzzer.
//!
//! ```text
//! a frame      how, length, as many bytes (fewer at the end)
//! how          bits 0 and 1: the bytes are the frame; or they change a good IPv4 or IPv6 frame, by an exclusive or
//!              from its first byte on; or they follow an Ethernet header to the port. Bit 2: the checksum of the
//!              IPv4 header is made right. Bits 3 and 4: the port
//! ```

use fingerpost_route::ForwardingAction;

use super::{Bench, World, batch, fill_ip4_checksum, frame_v4, frame_v6, port_mac};
use crate::frame::wire::{ETHER_BYTES, IP4_BYTES};
use crate::frame::{DropReason, FLAG_GENERATED};
use crate::graph::Graph;
use crate::router_graph;

/// Where a good packet of IPv4 comes from and goes to.
pub const V4: [&str; 2] = ["10.0.0.9", "192.0.2.1"];
/// Source and destination of IPv6 frames.
pub const V6: [&str; 2] = ["2001:db8::9", "2001:db8:99::1"];
/// Ports of the world.
const PORTS: u8 = 3;
/// Frames of an input: fewer than errors may be sent at once.
const FRAMES: usize = 8;

/// A router that knows its neighbors: default routes by port 1, and a sender on port 0.
pub fn bench() -> Bench {
    let mut world = World::new();
    world.neighbor(1, 1);
    world.action("0.0.0.0/0", ForwardingAction::Adjacency(1));
    world.action("::/0", ForwardingAction::Adjacency(1));
    for n in 0..PORTS {
        world.action(&format!("10.0.{n}.0/24"), ForwardingAction::Glean(n.into()));
    }
    // The sender is known, so that errors to it do not wait for its link address.
    world.neighbor(2, 0);
    for sender in [V4[0], V6[0]] {
        let len = if sender.contains(':') { 128 } else { 32 };
        world.action(&format!("{sender}/{len}"), ForwardingAction::Adjacency(2));
    }
    Bench::new(&world)
}

/// The port and the bytes of each frame that an input names.
fn frames(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [how, len, rest @ ..] = bytes
        && frames.len() < FRAMES
    {
        let (given, after) = rest.split_at(rest.len().min((*len).into()));
        bytes = after;
        let port = (how >> 3 & 3) % PORTS;
        let mut frame = match how & 3 {
            0 => given.to_vec(),
            1 => changed(frame_v4(V4[0], V4[1], 64, 17, &[7; 26]), given),
            2 => changed(frame_v6(V6[0], V6[1], 64, 17, &[7; 26]), given),
            _ => [&port_mac(port).0[..], &[2, 9, 9, 9, 9, 9], given].concat(),
        };
        if how & 4 != 0 && frame.len() >= ETHER_BYTES + IP4_BYTES {
            fill_ip4_checksum(&mut frame);
        }
        frames.push((port.into(), frame));
    }
    frames
}

fn changed(mut frame: Vec<u8>, by: &[u8]) -> Vec<u8> {
    frame.iter_mut().zip(by).for_each(|(byte, by)| *byte ^= by);
    frame
}

/// What became of frames: how many were dropped for each reason, and how many packets left.
#[derive(PartialEq, Eq, Debug)]
struct Ends {
    dropped: Vec<u64>,
    sent: usize,
    held: usize,
}

/// Runs frames in these parts, each of which comes by one port.
fn run(parts: &[&[(u16, Vec<u8>)]]) -> Ends {
    let mut bench = bench();
    let plan = router_graph::plan().expect("the built-in router is right");
    let mut graph = Graph::new(&plan, &bench.pool);
    for part in parts {
        let port = part[0].0;
        let packets = batch(&bench.pool, port, part.iter().map(|(_, frame)| &frame[..]));
        graph.receive(port, packets, &mut bench.round());
    }
    let generated = |flags: u8| flags & FLAG_GENERATED != 0;
    let received = bench.sent.frames.iter().filter(|frame| !generated(frame.2.flags)).count();
    let dropped: Vec<u64> = DropReason::ALL
        .iter()
        .map(|&reason| bench.counters.dropped[reason as usize].read())
        .collect();
    let (held, frames) = (graph.held(), parts.iter().map(|part| part.len()).sum::<usize>());
    let ended = usize::try_from(dropped.iter().sum::<u64>()).expect("a few") + received;
    assert_eq!(ended + held.received, frames, "in = out + dropped + held");
    assert_eq!(bench.pool.free() + held.total(), bench.pool.frames(), "every frame is somewhere");
    let ends = Ends { dropped, sent: bench.sent.frames.len(), held: held.total() };
    graph.stop(&mut bench.round());
    assert_eq!(bench.pool.free(), bench.pool.frames(), "every frame came back");
    ends
}

/// What must hold of any frames: each is sent, dropped for a reason or held, none is lost, and it is the same whether
/// they come one at a time or together.
///
/// # Panics
/// Where it does not hold.
pub fn check(bytes: &[u8]) {
    let mut frames = frames(bytes);
    if frames.is_empty() {
        return;
    }
    // Those of a port come together; what a port's frames do to those of another depends on their order.
    frames.sort_by_key(|frame| frame.0);
    let alone: Vec<_> = frames.chunks(1).collect();
    let together: Vec<_> = frames.chunk_by(|one, other| one.0 == other.0).collect();
    assert_eq!(run(&alone), run(&together));
}
