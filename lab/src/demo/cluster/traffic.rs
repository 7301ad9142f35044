//! Traffic between all hosts, and the check of what arrives: a thread with a port at each host.
//!
//! Shape:  flows of UDP packets, 16 from each host to each other one, that send in trains of heavy-tailed lengths, eight at
//!         a time: a host draws the flow of a train, uniformly over the outputs. A byte a packet has when it was sent, and whether
//!         it arrived.
//! Cost:   a copy and a comparison of 1,396 bytes a packet.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::time::{Duration, Instant};

use anyhow::Result;
use fingerpost_cluster::sim::{Order, Totals};
use fingerpost_lpm::Rng;
use fingerpost_packet::Port;
use fingerpost_packet::frame::wire::checksum::checksum;
use fingerpost_packet::frame::{BATCH, Batch, Pool};

use super::plan::{self, Host, KILLED, LOAD, NODE_PPS, NODES, OUTER_BYTES};
use crate::traffic::generator::{TAIL_BYTES, Tail, udp_frame};

/// Flows from a host to another one.
const FLOWS: usize = 16;
/// Trains that a host sends at once, and the logarithm of the packets of the longest: eight.
const TRAINS: usize = 8;
const LONGEST_TRAIN: u32 = 3;
/// Packets that are due and could not be sent in time: more of them are not sent any more.
const CATCH_UP: u64 = 16;
/// Time between two turns.
const NAP: Duration = Duration::from_micros(500);
/// Frames of all ports.
const FRAMES: u32 = 4096;

const TTL: u8 = 64;
/// Destination port of all packets.
const PORT: u16 = 7100;
/// Offsets in a frame: EtherType, TTL, header checksum, protocol, UDP destination port.
const TYPE_AT: usize = 12;
const IP_AT: usize = 14;
const TTL_AT: usize = 22;
const PROTOCOL_AT: usize = 23;
const SUM_AT: usize = 24;
const UDP_AT: usize = 34;
const PORT_AT: usize = 36;

/// Part of the run in which a packet is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// All nodes run.
    Whole = 0,
    /// A node is killed, and the others have yet to notice.
    Failing = 1,
    /// They have noticed.
    Down = 2,
    /// The node is back.
    Back = 3,
}

/// Mark of a packet that arrived, beside its phase.
const ARRIVED: u8 = 0x80;

/// State that the conductor and the traffic share.
#[derive(Default)]
pub(super) struct Shared {
    phase: AtomicU8,
    pub(super) stop_sending: AtomicBool,
    pub(super) stop: AtomicBool,
    pub(super) sent: AtomicU64,
    pub(super) arrived: AtomicU64,
    pub(super) wrong: AtomicU64,
}

impl Shared {
    /// Packets are sent in this phase from now on.
    pub(super) fn set_phase(&self, phase: Phase) {
        // Relaxed throughout: counts and flags without data behind them.
        self.phase.store(phase as u8, Relaxed);
    }
}

/// Lost packets by what they were lost to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    /// Between other nodes, before the failure was noticed.
    pub(super) in_failure: u64,
    /// From or to the killed node, until it was back.
    pub(super) at_node: u64,
    /// Neither of these.
    pub(super) otherwise: u64,
}

/// What was sent and what became of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) offered: u64,
    pub(super) arrived: u64,
    pub(super) verified: u64,
    pub(super) wrong: u64,
    pub(super) samples: Vec<String>,
    pub(super) lost: Lost,
    pub(super) order: Totals,
    pub(super) seconds: f64,
}

impl Tally {
    /// Share of the packets that begin a reordered sequence.
    #[allow(clippy::cast_precision_loss, reason = "a share for people")]
    pub(super) fn reordered_sequences(&self) -> f64 {
        let packets = self.order.packets.max(1);
        self.order.sequences as f64 / packets as f64
    }
}

/// A flow: what is sent, and what became of each packet.
struct Flow {
    from: Host,
    to: Host,
    frame: Vec<u8>,
    /// Phase of each packet, and whether it arrived.
    packets: Vec<u8>,
    order: Order,
}

/// Flows by host, then by the host that they go to.
fn flows(hosts: &[Host]) -> Vec<Flow> {
    let mut flows = Vec::new();
    for &from in hosts {
        for &to in hosts.iter().filter(|&&to| to != from) {
            for _ in 0..FLOWS {
                let port = 10_000 + u16::try_from(flows.len()).expect("at most 896 flows");
                let macs = [from.port_mac().0, from.mac().0];
                let addrs = [from.addr(), to.addr()].map(Into::into);
                let frame = udp_frame(macs, addrs, [port, PORT], TTL, OUTER_BYTES);
                let (packets, order) = (Vec::new(), Order::default());
                flows.push(Flow { from, to, frame, packets, order });
            }
        }
    }
    flows
}

/// What a host sends next.
#[derive(Clone, Copy, Default)]
struct Train {
    flow: usize,
    left: u32,
}

/// The hosts.
pub(super) struct Traffic {
    hosts: Vec<Host>,
    /// Port of each host.
    ports: Vec<Box<dyn Port>>,
    batch: Box<Batch>,
    flows: Vec<Flow>,
    /// Trains of each host.
    trains: Vec<[Train; TRAINS]>,
    draws: Rng,
    tally: Tally,
}

impl Traffic {
    /// The hosts of nodes with so many external ports each, at these ports.
    pub(super) fn new(each: u8, ports: Vec<Box<dyn Port>>) -> Self {
        let pool = Pool::new(FRAMES, 2048);
        let hosts: Vec<_> = plan::hosts(each).collect();
        Self {
            ports,
            batch: Batch::new(&pool),
            flows: flows(&hosts),
            trains: vec![Default::default(); hosts.len()],
            hosts,
            // Fixed: the same flows at each run.
            draws: Rng::new(0x9e37_79b9),
            tally: Tally::default(),
        }
    }

    /// Sends and receives until it is stopped.
    ///
    /// # Errors
    /// When a port fails.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "packets that are due"
    )]
    pub(super) fn run(mut self, shared: &Shared) -> Result<Tally> {
        let start = Instant::now();
        let each = self.hosts.len() / NODES;
        let rate = LOAD * NODE_PPS as f64 / each as f64;
        let mut made = vec![0u64; self.hosts.len()];
        let mut seconds = None;
        while !shared.stop.load(Relaxed) {
            if !shared.stop_sending.load(Relaxed) {
                let due = (start.elapsed().as_secs_f64() * rate) as u64;
                let phase = shared.phase.load(Relaxed);
                for (host, made) in made.iter_mut().enumerate() {
                    let count = (due - *made).min(CATCH_UP);
                    *made = due;
                    self.send(host, count, phase)?;
                }
            } else if seconds.is_none() {
                seconds = Some(start.elapsed().as_secs_f64());
            }
            for host in 0..self.hosts.len() {
                self.receive(host)?;
            }
            shared.sent.store(self.tally.offered, Relaxed);
            shared.arrived.store(self.tally.arrived, Relaxed);
            shared.wrong.store(self.tally.wrong, Relaxed);
            std::thread::sleep(NAP);
        }
        self.tally.seconds = seconds.unwrap_or_else(|| start.elapsed().as_secs_f64());
        Ok(self.end())
    }

    /// The flow of the next packet of a host.
    fn next(&mut self, host: usize) -> usize {
        let draws = &mut self.draws;
        let train = &mut self.trains[host][draws.below(TRAINS)];
        if train.left == 0 {
            // Low numbers more often, as few flows have most packets.
            let within = draws.below(FLOWS).min(draws.below(FLOWS));
            let others = self.hosts.len() - 1;
            train.flow = (host * others + draws.below(others)) * FLOWS + within;
            // Pareto of shape 1: half of the trains have one packet, a quarter two, an eighth each four and eight.
            train.left = 1 << draws.word().leading_zeros().min(LONGEST_TRAIN);
        }
        train.left -= 1;
        train.flow
    }

    fn send(&mut self, host: usize, count: u64, phase: u8) -> Result<()> {
        let mut queued = Vec::new();
        for _ in 0..count {
            let Some(mut packet) = self.batch.pool().alloc() else { break };
            let number = self.next(host);
            let flow = &mut self.flows[number];
            let sequence = u32::try_from(flow.packets.len()).expect("an hour of packets");
            let template = u32::try_from(number).expect("at most 896 flows");
            packet.set_len(flow.frame.len());
            packet.bytes_mut().copy_from_slice(&flow.frame);
            Tail { sequence, template }.write(packet.bytes_mut());
            if self.batch.push(packet).is_err() {
                break;
            }
            flow.packets.push(phase);
            queued.push(number);
        }
        let sent = self.ports[host].send(&mut self.batch)?;
        self.batch.clear();
        // What the port did not take was not sent.
        for number in queued.drain(sent..).rev() {
            self.flows[number].packets.pop();
        }
        self.tally.offered += sent as u64;
        Ok(())
    }

    fn receive(&mut self, host: usize) -> Result<()> {
        while self.ports[host].recv(&mut self.batch)? > 0 {
            for i in 0..self.batch.len() {
                let frame = self.batch.bytes(i);
                if is_ours(frame) {
                    check(&mut self.flows, &mut self.tally, self.hosts[host], frame);
                }
            }
            let full = self.batch.len() == BATCH;
            self.batch.clear();
            if !full {
                break;
            }
        }
        Ok(())
    }

    /// Adds up what did not arrive.
    fn end(mut self) -> Tally {
        for flow in &self.flows {
            let at_node = flow.from.node == KILLED || flow.to.node == KILLED;
            for &packet in flow.packets.iter().filter(|&&packet| packet & ARRIVED == 0) {
                let failing = packet == Phase::Failing as u8;
                let lost = &mut self.tally.lost;
                *match (at_node, failing || packet == Phase::Down as u8, failing) {
                    (true, true, _) => &mut lost.at_node,
                    (false, _, true) => &mut lost.in_failure,
                    _ => &mut lost.otherwise,
                } += 1;
            }
        }
        self.tally
    }
}

/// Whether a frame has a packet of the hosts: ARP and ICMP are others'.
fn is_ours(frame: &[u8]) -> bool {
    let at = |at: usize, bytes: &[u8]| frame.get(at..at + bytes.len()) == Some(bytes);
    at(TYPE_AT, &[0x08, 0x00]) && at(PROTOCOL_AT, &[17]) && at(PORT_AT, &PORT.to_be_bytes())
}

fn check(flows: &mut [Flow], tally: &mut Tally, host: Host, frame: &[u8]) {
    tally.arrived += 1;
    tally.verified += 1;
    if let Err(what) = verify(flows, &mut tally.order, host, frame) {
        tally.wrong += 1;
        if tally.samples.len() < 5 {
            tally.samples.push(what);
        }
    }
}

/// Compares a frame that a host received with what it must be.
fn verify(flows: &mut [Flow], order: &mut Totals, host: Host, frame: &[u8]) -> Result<(), String> {
    let tail = Tail::of(frame).ok_or("the tail is damaged")?;
    let number = tail.template as usize;
    let flow = flows.get_mut(number).ok_or_else(|| format!("no flow {number}"))?;
    let name = format!("flow {number} to host {}", flow.to);
    if host != flow.to {
        return Err(format!("{name}: left at the port of host {host}"));
    }
    if frame.len() != flow.frame.len() {
        return Err(format!("{name}: {} bytes", frame.len()));
    }
    let macs = [host.mac().0, host.port_mac().0].concat();
    if frame[..TYPE_AT] != macs {
        return Err(format!("{name}: link addresses {:x?}", &frame[..TYPE_AT]));
    }
    if frame[TTL_AT] != TTL - 1 {
        return Err(format!("{name}: TTL {}, not {}", frame[TTL_AT], TTL - 1));
    }
    if checksum(&frame[IP_AT..UDP_AT]) != 0 {
        return Err(format!("{name}: the header checksum is wrong"));
    }
    let end = frame.len() - TAIL_BYTES;
    let parts = [TYPE_AT..TTL_AT, PROTOCOL_AT..SUM_AT, SUM_AT + 2..end];
    if parts.into_iter().any(|part| frame[part.clone()] != flow.frame[part]) {
        return Err(format!("{name}: the content changed"));
    }
    match flow.packets.get_mut(tail.sequence as usize) {
        None => return Err(format!("{name}: packet {} was not sent", tail.sequence)),
        Some(packet) if *packet & ARRIVED != 0 => {
            return Err(format!("{name}: packet {} came twice", tail.sequence));
        }
        Some(packet) => *packet |= ARRIVED,
    }
    flow.order.arrive(tail.sequence, order);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frame of a packet as the host must receive it.
    fn received(flow: &Flow, number: u32, sequence: u32) -> Vec<u8> {
        let mut frame = flow.frame.clone();
        frame[..6].copy_from_slice(&flow.to.mac().0);
        frame[6..12].copy_from_slice(&flow.to.port_mac().0);
        frame[TTL_AT] -= 1;
        frame[SUM_AT..SUM_AT + 2].fill(0);
        let sum = checksum(&frame[IP_AT..UDP_AT]);
        frame[SUM_AT..SUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        Tail { sequence, template: number }.write(&mut frame);
        frame
    }

    #[test]
    fn every_kind_of_damage_is_seen() {
        let hosts: Vec<_> = plan::hosts(2).collect();
        let (mut flows, mut tally) = (flows(&hosts), Tally::default());
        assert_eq!(flows.len(), 8 * 7 * FLOWS);
        flows[0].packets = vec![0; 4];
        let (to, good) = (flows[0].to, received(&flows[0], 0, 1));
        assert!(is_ours(&good) && !is_ours(&good[..30]));
        check(&mut flows, &mut tally, to, &good);
        assert_eq!((tally.verified, tally.wrong), (1, 0), "{:?}", tally.samples);
        check(&mut flows, &mut tally, to, &good);
        assert!(tally.samples[0].contains("came twice"), "{:?}", tally.samples);
        let [first, third, fifth] = [0, 2, 4].map(|number| received(&flows[0], 0, number));
        check(&mut flows, &mut tally, hosts[0], &third);
        check(&mut flows, &mut tally, to, &fifth);
        for at in [0, 11, 14, TTL_AT, SUM_AT, 30, 700, OUTER_BYTES - 1] {
            let mut bad = third.clone();
            bad[at] ^= 1;
            check(&mut flows, &mut tally, to, &bad);
        }
        check(&mut flows, &mut tally, to, &third);
        check(&mut flows, &mut tally, to, &first);
        assert_eq!((tally.verified, tally.wrong), (14, 11), "{:?}", tally.samples);
        assert_eq!((tally.order.packets, tally.order.sequences), (3, 1));
    }

    #[test]
    fn losses_are_of_the_failure_of_the_node_or_of_neither() {
        let mut traffic = Traffic::new(1, Vec::new());
        let between = |from, to| {
            let is_it = |flow: &Flow| (flow.from.node, flow.to.node) == (from, to);
            flows(&plan::hosts(1).collect::<Vec<_>>()).iter().position(is_it).expect("a flow")
        };
        let phases = [Phase::Whole, Phase::Failing, Phase::Down, Phase::Back].map(|p| p as u8);
        traffic.flows[between(0, 1)].packets = phases.to_vec();
        traffic.flows[between(0, KILLED)].packets = phases.to_vec();
        traffic.flows[between(1, 0)].packets = phases.map(|phase| phase | ARRIVED).to_vec();
        let lost = traffic.end().lost;
        assert_eq!(lost, Lost { in_failure: 1, at_node: 2, otherwise: 5 });
    }

    #[test]
    fn trains_go_to_all_others_alike() {
        let mut traffic = Traffic::new(1, Vec::new());
        let mut counts = [0u32; NODES];
        for _ in 0..30_000 {
            let number = traffic.next(1);
            assert_eq!(traffic.flows[number].from.node, 1);
            counts[traffic.flows[number].to.node] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!(plan::others(1).all(|to| (9_000..11_000).contains(&counts[to])), "{counts:?}");
    }
}
