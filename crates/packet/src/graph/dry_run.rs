//! Dry run: a packet through a graph that sends nothing, to see what would happen to it.
//!
//! The graph has the wiring, the route tables and the settings of the workers' graphs, and frames and counters of its
//! own. What its elements share with those of the workers they only read, or have a copy of, as of learned neighbors
//! ([`Instance`](crate::graph::Instance)). Rates begin full, as for a worker that has just started.

use fingerpost_route::{Forwarding, ResolveRequest};

use super::trace::{Trace, Wanted};
use super::{Graph, Plan, Round, Transmit};
use crate::frame::counters::WorkerCounters;
use crate::frame::{BATCH, Batch, Pool};

/// For the packet, an error about it, or its fragments.
const FRAMES: u32 = 256;
/// Rounds in which what waits is pulled: a queue behind a queue takes one each.
const ROUNDS: usize = 16;

/// Where a packet is tried.
#[derive(Clone, Copy)]
pub struct DryRun<'a> {
    /// The graph.
    pub plan: &'a Plan,
    /// Ingress port of the packet.
    pub port: u16,
    /// Routes, next hops, adjacencies and ports of this moment.
    pub forwarding: &'a Forwarding,
    /// Seed of the flow hash: that of the workers.
    pub flow_seed: u64,
    /// Clock of the workers, in nanoseconds: how old learned neighbors are.
    pub now_ns: u64,
    /// Bytes of a frame's place: as in the pools of the workers.
    pub frame_bytes: u16,
}

/// Why a packet cannot be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DryRunError {
    /// The graph has no element for what the port receives.
    #[error("the graph takes no packets from it")]
    NoEntry,
    /// The packet is longer than a frame.
    #[error("more than the {0} bytes that a frame holds here")]
    TooLong(u16),
}

/// Sink of the packets of a dry run.
struct Nowhere;

impl Transmit for Nowhere {
    fn transmit(&mut self, batch: &mut Batch) {
        batch.clear();
    }

    fn room(&mut self, _: u16) -> usize {
        BATCH
    }
}

impl DryRun<'_> {
    /// Trace of a frame, and resolve requests of the elements.
    ///
    /// # Errors
    /// It cannot come in there.
    pub fn run(&self, frame: &[u8]) -> Result<(Trace, Vec<ResolveRequest>), DryRunError> {
        if self.plan.entry(self.port).is_none() {
            return Err(DryRunError::NoEntry);
        }
        let pool = Pool::new(FRAMES, self.frame_bytes);
        let mut graph = Graph::dry_run(self.plan, &pool);
        let mut batch = graph.batch();
        let mut packet = pool.alloc().expect("a new pool has frames");
        if !packet.set_len(frame.len()) {
            return Err(DryRunError::TooLong(pool.max_len()));
        }
        packet.bytes_mut().copy_from_slice(frame);
        packet.meta.port = self.port;
        batch.push(packet).expect("a new batch has room");
        let (wanted, traces) = Wanted::new(None, 1);
        graph.trace(Some(wanted.tracer(&pool)));
        let counters = WorkerCounters::new(0, 1);
        let (mut requests, mut transmit) = (Vec::new(), Nowhere);
        let mut round = Round {
            now_ns: self.now_ns,
            forwarding: self.forwarding,
            counters: &counters,
            flow_seed: self.flow_seed,
            requests: &mut requests,
            transmit: &mut transmit,
        };
        graph.receive(self.port, batch, &mut round);
        let mut trace = traces.try_recv();
        for _ in 0..ROUNDS {
            if trace.is_ok() || !graph.poll(&mut round) {
                break;
            }
            trace = traces.try_recv();
        }
        // What waits is told as it is.
        graph.trace(None);
        graph.stop(&mut round);
        let trace = trace.or_else(|_| traces.recv());
        Ok((trace.expect("a tracer that ends hands out what it has"), requests))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, frame_v4};

    /// Element and fate of each step of a packet that `in` receives.
    fn tried(rig: &Rig, frame: &[u8]) -> Result<Vec<String>, DryRunError> {
        let trace = rig.dry_run("in", frame)?;
        let step = |step: &super::super::trace::Step| {
            let name = &rig.plan.nodes()[usize::from(step.node)].name;
            let fate = step.fate;
            format!("{} {name} {fate:?}", step.packet)
        };
        Ok(trace.steps.iter().map(step).collect())
    }

    fn udp() -> Vec<u8> {
        frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[7; 30])
    }

    #[test]
    fn nothing_is_counted_or_written() {
        let file = std::env::temp_dir().join(format!("fingerpost-dry-run-{}", std::process::id()));
        let text = format!(
            "FromDevice(in) -> c :: Counter -> t :: Tee -> q :: Queue(1) -> s :: Shaper(1000)
                -> w :: ToDump({});
             t [1] -> p :: Print(seen) -> d :: Discard; FromDevice(other) -> Discard",
            file.display()
        );
        let mut rig = Rig::new(&World::new(), &text);
        let first = rig.receive("in", &[&udp()]);
        let before = std::fs::read(&file).unwrap();
        let shown = ["c.count", "d.count", "q.length", "q.highwater_length", "w.count"];
        let counts = shown.map(|handler| rig.read(handler));
        let way = tried(&rig, &udp()).unwrap();
        assert_eq!(way.last().unwrap(), "0 w Written", "{way:?}");
        assert!(way.contains(&"1 d Dropped(Discarded)".to_owned()), "{way:?}");
        assert!(first.is_empty() && before == std::fs::read(&file).unwrap());
        assert_eq!(shown.map(|handler| rig.read(handler)), counts);
        // The workers' queue is full; a dry run begins with an empty one, each time.
        assert_eq!((tried(&rig, &udp()).unwrap(), &*counts[0]), (way, "1"));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(tried(&rig, &[0; 3000]), Err(DryRunError::TooLong(1792)));
        let rig = Rig::new(&World::new(), "FromDevice(x) -> Discard; Idle -> ToDevice(in)");
        assert_eq!(tried(&rig, &udp()), Err(DryRunError::NoEntry));
    }

    #[test]
    fn tables_and_settings_are_those_of_the_moment_and_nothing_is_learned() {
        let text = "FromDevice(in) -> c :: Classifier(12/0800, 12/0806);
            c [0] -> Strip(14) -> CheckIPHeader -> rt :: RadixIPLookup(192.0.2.0/24 0, 0.0.0.0/0 1);
            rt [0] -> a :: ARPQuerier(10.0.0.1/24, 02:00:00:00:00:01) -> o :: ToDevice(out);
            rt [1] -> s :: Switch(0); s [0] -> x :: Discard; s [1] -> y :: Discard;
            c [1] -> [1] a";
        let mut rig = Rig::new(&World::new(), text);
        let end = |rig: &mut Rig| tried(rig, &udp()).unwrap().pop().unwrap();
        // It waits, and a question is made.
        assert_eq!(end(&mut rig), "1 o Sent(1)");
        rig.write("rt.set", "192.0.2.0/24 10.0.0.7 0");
        rig.write("a.insert", "10.0.0.7 02:00:00:00:00:07");
        assert_eq!(end(&mut rig), "0 o Sent(1)");
        let (near, us) = ([2, 0, 0, 0, 0, 8], [2, 0, 0, 0, 0, 1]);
        let arp = [&[0, 1, 8, 0, 6, 4, 0, 2][..], &near, &[10, 0, 0, 7], &us, &[10, 0, 0, 1]];
        let arp = [&us[..], &near, &[8, 6], &arp.concat(), &[0; 18]].concat();
        assert_eq!(tried(&rig, &arp).unwrap().pop().unwrap(), "0 a Dropped(Consumed)");
        assert_eq!(rig.read("a.table"), "10.0.0.7 1 02-00-00-00-00-07 0.000000\n");
        assert_eq!((rig.read("a.responses"), rig.read("a.queries")), ("0".into(), "0".into()));
        rig.write("rt.set", "192.0.2.0/24 1");
        rig.write("s.switch", "1");
        assert_eq!(end(&mut rig), "0 y Dropped(Discarded)");
        assert_eq!((rig.read("x.count"), rig.read("y.count")), ("0".into(), "0".into()));
    }
}
