//! Traffic from a capture file: its packets, flows and times, over the ports of a cluster.
//!
//! Shape:  the hash of its source address is the input of a packet, that of its destination one of the other nodes; the flow
//!         is the data plane's hash of addresses and ports. Times are stretched until the busiest port has the load that is
//!         wanted; then a port that is slower than its packets for a while keeps them, as one in front of it would.
//! Cost:   16 bytes a packet. The file is read once and played again and again.
//! Limits: Ethernet, with up to two VLAN tags; 2^24 IP packets. Sizes of packets are ignored: a packet takes a slot.

use std::collections::HashMap;
use std::sync::Arc;

use fingerpost_packet::device::{DeviceError, pcap};
use fingerpost_packet::frame::flow;
use fingerpost_packet::frame::wire::ether::{TYPE_IP4, TYPE_IP6, TYPE_SERVICE_VLAN, TYPE_VLAN};
use fingerpost_packet::frame::wire::{Ether, Ip4, Ip6};

use super::Matrix;
use crate::rule::NodeId;

/// Most packets that are read.
const MOST_PACKETS: usize = 1 << 24;

/// Bytes of an Ethernet header and of a VLAN tag.
const HEADER: usize = 14;
const TAG: usize = 4;

/// Reason why a file is no traffic.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file is no capture file, or cannot be read.
    #[error(transparent)]
    File(#[from] DeviceError),
    /// There is nothing to play.
    #[error("{file}: no IPv4 or IPv6 packets")]
    Empty {
        /// Name of the file.
        file: String,
    },
    /// There is too much to play.
    #[error("{file}: more than {MOST_PACKETS} IP packets")]
    TooLong {
        /// Name of the file.
        file: String,
    },
}

/// Packet of a trace.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Time since the first packet: nanoseconds, later slots.
    time: u64,
    flow: u32,
    to: NodeId,
    from: NodeId,
}

/// Packets of a capture file.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Packets of each input, by their slot.
    inputs: Arc<Vec<Vec<Record>>>,
    demands: Vec<Vec<f64>>,
    /// Distinct flows.
    flows: usize,
    /// Slots of one pass through the file.
    slots: u64,
    slot_ns: f64,
}

/// Nodes and hash of the flow of a frame; `None` when it is no IP packet.
fn parse(frame: &[u8], nodes: usize) -> Option<(NodeId, NodeId, u32)> {
    let mut kind = Ether::of(frame)?.kind();
    let mut at = HEADER;
    for _ in 0..2 {
        if kind == TYPE_VLAN || kind == TYPE_SERVICE_VLAN {
            let tag = frame.get(at..at + TAG)?;
            kind = u16::from_be_bytes([tag[2], tag[3]]);
            at += TAG;
        }
    }
    let packet = frame.get(at..)?;
    let hash = |address: u128| flow::hash_v6(1, address, 0, 0, 0, None) as usize;
    let (from, to, flow) = match kind {
        TYPE_IP4 => {
            let ip = Ip4::at(packet, 0)?;
            (u128::from(ip.src()), u128::from(ip.dst()), flow::of_ip4(0, packet))
        }
        TYPE_IP6 => {
            let ip = Ip6::at(packet, 0)?;
            (ip.src(), ip.dst(), flow::of_ip6(0, packet))
        }
        _ => return None,
    };
    let from = hash(from) % nodes;
    let to = (from + 1 + hash(to) % (nodes - 1)) % nodes;
    Some((NodeId::try_from(from).ok()?, NodeId::try_from(to).ok()?, flow))
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 2^24 packets; slots are positive"
)]
impl Trace {
    /// Reads a capture file for `nodes` nodes, the busiest port of which is to have `load` of R.
    ///
    /// # Errors
    /// When the file is no capture file, or has no IP packets, or too many.
    pub fn read(path: &str, nodes: usize, load: f64) -> Result<Self, TraceError> {
        let (mut records, mut first) = (Vec::new(), None);
        let mut numbers: HashMap<(NodeId, NodeId, u32), u32> = HashMap::new();
        pcap::read(path, |time, frame| {
            let Some(key) = parse(frame, nodes).filter(|_| records.len() <= MOST_PACKETS) else {
                return;
            };
            let next = numbers.len() as u32;
            let flow = *numbers.entry(key).or_insert(next);
            let first = *first.get_or_insert(time);
            let time = time.saturating_sub(first).as_nanos() as u64;
            records.push(Record { time, flow, from: key.0, to: key.1 });
        })?;
        let file = || path.to_owned();
        if records.is_empty() {
            return Err(TraceError::Empty { file: file() });
        }
        if records.len() > MOST_PACKETS {
            return Err(TraceError::TooLong { file: file() });
        }
        // Some files have all packets at one time: then their order is their time.
        if records.iter().all(|record| record.time == 0) {
            for (time, record) in records.iter_mut().enumerate() {
                record.time = time as u64;
            }
        }
        records.sort_by_key(|record| record.time);
        Ok(Self::stretch(&records, nodes, load, numbers.len()))
    }

    /// Turns times into slots.
    fn stretch(records: &[Record], nodes: usize, load: f64, flows: usize) -> Self {
        let mut counts = vec![vec![0.0; nodes]; nodes];
        for record in records {
            counts[usize::from(record.from)][usize::from(record.to)] += 1.0;
        }
        let sent = counts.iter().map(|row| row.iter().sum::<f64>());
        let received = (0..nodes).map(|to| counts.iter().map(|row| row[to]).sum::<f64>());
        let busiest = sent.chain(received).fold(0.0, f64::max);
        let slots = (busiest / load.max(1e-3)).ceil();
        let time = records.last().map_or(0, |record| record.time) as f64 + 1.0;
        let mut inputs = vec![Vec::new(); nodes];
        for record in records {
            let slot = (record.time as f64 / time * slots) as u64;
            inputs[usize::from(record.from)].push(Record { time: slot, ..*record });
        }
        for demand in counts.iter_mut().flatten() {
            *demand /= busiest;
        }
        Self {
            inputs: Arc::new(inputs),
            demands: counts,
            flows,
            slots: slots as u64,
            slot_ns: time / slots,
        }
    }

    /// Matrix of the packets, in which the busiest port has R.
    pub fn matrix(&self) -> Matrix {
        Matrix::from_demands(&self.demands)
    }

    /// Packets in the file that are played.
    pub fn packets(&self) -> usize {
        self.inputs.iter().map(Vec::len).sum()
    }

    /// Distinct flows, by addresses and ports.
    pub fn flows(&self) -> usize {
        self.flows
    }

    /// Slots of one pass through the file.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Nanoseconds of a slot, in the time of the file.
    pub fn slot_ns(&self) -> f64 {
        self.slot_ns
    }
}

/// Trace that is played.
#[derive(Clone, Debug)]
pub(super) struct Playback {
    trace: Trace,
    /// Place of each input in its packets, and the slot in which its pass began.
    at: Vec<(usize, u64)>,
}

impl Playback {
    pub(super) fn new(trace: &Trace) -> Self {
        Self { trace: trace.clone(), at: vec![(0, 0); trace.inputs.len()] }
    }

    /// Packet of an input in this slot, as its output and its flow.
    #[inline]
    pub(super) fn next(&mut self, from: usize, slot: u32) -> Option<(NodeId, u32)> {
        let packets = &self.trace.inputs[from];
        let (at, began) = &mut self.at[from];
        let packet = packets.get(*at)?;
        if *began + packet.time > u64::from(slot) {
            return None;
        }
        *at += 1;
        if *at == packets.len() {
            (*at, *began) = (0, *began + self.trace.slots);
        }
        Some((packet.to, packet.flow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rule;
    use crate::sim::{Config, run};
    use fingerpost_packet::device::Port as _;
    use fingerpost_packet::device::pcap::Pcap;
    use fingerpost_packet::frame::Pool;
    use fingerpost_packet::testing::{batch, frame_v4};

    /// Path of a file of this test.
    fn file(name: &str) -> String {
        let name = format!("fingerpost-trace-{}-{name}", std::process::id());
        std::env::temp_dir().join(name).display().to_string()
    }

    fn written(name: &str, frames: &[Vec<u8>]) -> String {
        let path = file(name);
        let pool = Pool::new(64, 2048);
        let mut port = Pcap::new("", &path).unwrap();
        for part in frames.chunks(32) {
            port.send(&mut batch(&pool, 0, part.iter().map(|frame| &frame[..]))).unwrap();
        }
        path
    }

    #[test]
    fn packets_of_a_file_are_played_in_order_at_the_load() {
        let frames: Vec<Vec<u8>> = (0..1000u32)
            .map(|n| {
                let (src, dst) = (format!("10.0.0.{}", n % 40), format!("192.0.2.{}", n % 7));
                frame_v4(&src, &dst, 64, 17, &[0; 20])
            })
            .collect();
        let path = written("played.pcap", &frames);
        let trace = Trace::read(&path, 8, 0.8).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((trace.packets(), trace.flows()), (1000, 280));
        let matrix = trace.matrix();
        let row = |from| (0..8).map(|to| matrix.demand(from, to)).sum::<f64>();
        let column = |to| (0..8).map(|from| matrix.demand(from, to)).sum::<f64>();
        let most = (0..8).map(row).chain((0..8).map(column)).fold(0.0, f64::max);
        assert!((most - 1.0).abs() < 1e-9 && (0..8).all(|node| matrix.demand(node, node) == 0.0));
        // Three passes.
        let slots = u32::try_from(trace.slots()).unwrap() * 3;
        let base = Config::new(matrix, Rule::Adaptive);
        let report = run(&Config { trace: Some(trace), load: 0.8, slots, ..base });
        assert!((2990..=3000).contains(&report.packets), "{}", report.packets);
        assert!(report.drops.sum() == 0 && report.held < 30, "{report:?}");
    }

    #[test]
    fn what_is_no_traffic_has_one_reason() {
        let error = |path: &str| Trace::read(path, 4, 0.9).unwrap_err().to_string();
        let missing = file("missing.pcap");
        assert!(error(&missing).starts_with(&format!("{missing}: open: ")), "{}", error(&missing));
        let arp = written("arp.pcap", &[vec![0; 60]]);
        assert_eq!(error(&arp), format!("{arp}: no IPv4 or IPv6 packets"));
        std::fs::write(&arp, "no capture file at all, whatever its name").unwrap();
        assert!(error(&arp).starts_with(&arp), "{}", error(&arp));
        std::fs::remove_file(&arp).unwrap();
    }
}
