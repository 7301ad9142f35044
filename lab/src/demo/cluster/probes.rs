//! Probes of a node in this process: the table of a real node ([`Table`]), whose frames cross the rings between packets.
//!
//! Shape:  a [`Wire`] is the node's port at a ring: it passes what it receives on to the graph, copies probes out of it, and
//!         sends those of the node. The thread of the probes has a deadline every interval, as that of `fingerpost run`.
//! Cost:   a byte a frame is looked at.
//! Limits: what a ring does not take is lost, as on a link. Probes pass with the worker: where that is held up for 44 ms, the others
//!         take the node for dead.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use fingerpost_cluster::frame::{CLASS_AT, ETHERTYPE, FrameClass, HEADER_BYTES, Header, LOOKUP};
use fingerpost_cluster::probe::{Local, Member, Table};
use fingerpost_cluster::rule::{Members, NodeId, Phase};
use fingerpost_packet::frame::{Batch, Pool};
use fingerpost_packet::{DeviceError, Port};

use super::plan::{ID, NODES, number, others};

/// Cluster that frames name.
pub(super) const CLUSTER: u8 = 1;
/// Time between probes, and how many missing ones take a link down: those of `fingerpost run`.
const INTERVAL: Duration = Duration::from_millis(8);
const MULTIPLIER: u32 = 5;
/// Least time between probes that are sent because of a change.
const URGENT: Duration = Duration::from_millis(1);

/// A probe that arrived: index of the link, and frame.
pub(super) type Arrived = (usize, Vec<u8>);

/// A port at an internal link.
pub(super) struct Wire {
    pub(super) ring: Box<dyn Port>,
    /// Index of the link.
    pub(super) link: usize,
    pub(super) arrived: Sender<Arrived>,
    /// Probes to be sent.
    pub(super) leaving: Receiver<Vec<u8>>,
    pub(super) pool: Pool,
    pub(super) batch: Box<Batch>,
}

impl Port for Wire {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        for frame in self.leaving.try_iter() {
            let Some(mut packet) = self.pool.alloc() else { break };
            packet.set_len(frame.len());
            packet.bytes_mut().copy_from_slice(&frame);
            // A full batch takes no more: the probe is lost.
            let _ = self.batch.push(packet);
        }
        if !self.batch.is_empty() {
            self.ring.send(&mut self.batch)?;
            self.batch.clear();
        }
        let first = into.len();
        let count = self.ring.recv(into)?;
        for i in first..into.len() {
            let frame = into.bytes(i);
            if frame.get(usize::from(CLASS_AT)) == Some(&FrameClass::Probe.byte()) {
                // The graph drops it as consumed. The thread of the probes may have ended.
                let _ = self.arrived.send((self.link, frame.to_vec()));
            }
        }
        Ok(count)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let count = from.len();
        self.ring.send(from)?;
        from.free_front(from.len());
        Ok(count)
    }
}

/// The probes of a node.
pub(super) struct Probes {
    table: Table,
    members: Members,
    own: NodeId,
    arrived: Receiver<Arrived>,
    /// Channels of the wires, by link.
    leaving: Vec<Sender<Vec<u8>>>,
    start: Instant,
}

impl Probes {
    /// Probes of node `own` in this start of it. Links are those to [`others`], in this order; all are down at first.
    pub(super) fn new(
        own: usize,
        boot: u32,
        members: Members,
        arrived: Receiver<Arrived>,
        leaving: Vec<Sender<Vec<u8>>>,
    ) -> Self {
        let local = Local {
            number: number(own),
            name: ID[own].to_owned(),
            boot,
            digest: 0,
            members: u16::try_from(NODES).expect("four nodes"),
            interval_ns: u64::try_from(INTERVAL.as_nanos()).expect("milliseconds"),
            multiplier: MULTIPLIER,
        };
        let member = |node: usize| Member { number: number(node), name: ID[node].to_owned() };
        let all: Vec<Member> = (0..NODES).map(member).collect();
        let links: Vec<_> = others(own).map(|other| Some(ID[other].to_owned())).collect();
        let table = Table::new(local, &all, &links);
        Self { table, members, own: number(own), arrived, leaving, start: Instant::now() }
    }

    /// Sends and receives until it is stopped. `on_change` gets the members each time that a data plane reads something new
    /// in them.
    pub(super) fn run(mut self, stop: &Arc<AtomicBool>, mut on_change: impl FnMut(&Members)) {
        let (mut next, mut sent, mut urgent) = (self.start, self.start, false);
        for link in 0..self.leaving.len() {
            self.table.carrier(link, true);
        }
        while !stop.load(Relaxed) {
            let due = if urgent { next.min(sent + URGENT) } else { next };
            let wait = due.saturating_duration_since(Instant::now());
            let mut frame = match self.arrived.recv_timeout(wait) {
                Ok(frame) => Some(frame),
                Err(RecvTimeoutError::Timeout) => None,
                // The worker has ended, and with it the node.
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // All that is there is taken before time is looked at: a thread that was held up takes no link down.
            while let Some((link, bytes)) = frame {
                urgent |= self.receive(link, &bytes);
                if self.table.apply(&mut self.members) {
                    on_change(&self.members);
                }
                frame = self.arrived.try_recv().ok();
            }
            let now = Instant::now();
            urgent |= self.table.expire(self.ns(now));
            let tick = now >= next;
            if tick {
                next = (next + INTERVAL).max(now);
            }
            if tick || urgent && now >= sent + URGENT {
                self.send();
                (sent, urgent) = (now, false);
            }
            if self.table.apply(&mut self.members) {
                on_change(&self.members);
            }
        }
    }

    fn ns(&self, now: Instant) -> u64 {
        u64::try_from((now - self.start).as_nanos()).unwrap_or(u64::MAX)
    }

    fn receive(&mut self, link: usize, frame: &[u8]) -> bool {
        let Ok(header) = Header::parse(frame, ETHERTYPE) else { return false };
        let (now, ends) = (self.ns(Instant::now()), (header.sender, header.hop));
        header.cluster == CLUSTER && self.table.receive(now, link, ends, &frame[HEADER_BYTES..])
    }

    fn send(&mut self) {
        let Self { table, leaving, own, .. } = self;
        for (link, to_wire) in leaving.iter().enumerate() {
            table.probes(link, |to, payload| {
                let header = Header {
                    cluster: CLUSTER,
                    hop: to,
                    output: to,
                    sender: *own,
                    phase: Phase::Second,
                    epoch: 0,
                    ethertype: ETHERTYPE,
                    adjacency: LOOKUP,
                    class: FrameClass::Probe,
                };
                // The worker may have ended.
                let _ = to_wire.send([&header.bytes()[..], payload].concat());
            });
        }
    }
}
