//! The demo without root: the same control side, tables and graph, between ports of memory.

use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use fingerpost_lpm::registry;
use fingerpost_packet::frame::{Batch, HEADROOM, Meta};
use fingerpost_packet::graph::worker::{Worker, WorkerOptions};
use fingerpost_packet::{DeviceError, Pool, Port, WorkerCounters, router_graph};
use fingerpost_route::{
    Control, ControlOptions, LinkState, LinkUpdate, MAIN_TABLE, NeighborState, NeighborUpdate,
    Path, RouteEvent, RouteKey, RouteUpdate, Target,
};

use super::lab::{NEXT_HOPS, ROUTER_IN, ROUTER_OUT, hop_addr, hop_mac, hop_port, port_mac};
use super::traffic::{self, Checker, Flow, Oracle};
use super::{DemoReport, each, mega};
use crate::forward::world::LINKS;
use crate::traffic::generator::Tail;

/// One of so many packets is checked in full.
const SAMPLE: u64 = 16;
const FRAMES: u32 = 2048;

pub(super) fn run(
    oracle: &Oracle,
    time: Duration,
    progress: &(dyn Fn(String) + Sync),
) -> Result<DemoReport> {
    let flows = traffic::flows(oracle);
    let start = Instant::now();
    let control = learn(oracle)?;
    let load = start.elapsed();
    let (v4, v6) = (control.fib_v4(), control.fib_v6());
    progress(format!(
        "{} IPv4 and {} IPv6 routes after {:.0} ms",
        control.rib_v4().len(),
        control.rib_v6().len(),
        load.as_secs_f64() * 1e3
    ));
    let number = |name: &str| {
        let port = control.links().find(|(_, _, state)| state.name == name);
        port.expect("the lab has this link").1
    };
    let plan = router_graph::plan().expect("the built-in graph is whole: a test builds it");
    let counters = Arc::new(WorkerCounters::new(8, 2048));
    let pool = Pool::new(FRAMES, 2048);
    // No commands, requests or readers of events; the ends stay open until the run is over.
    let (_commands, commands) = channel();
    let (requests, _requests) = sync_channel(1);
    let (events, _events) = channel();
    let mut worker = Worker::new(WorkerOptions {
        plan: &plan,
        pool: pool.clone(),
        reader: control.reader(),
        counters: counters.clone(),
        commands,
        requests,
        events,
        flow_seed: 1,
    });
    let flows: Arc<[Flow]> = flows.into();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let generator = Generator { pool, flows: flows.clone(), made: 0 };
    worker.add_port(number(ROUTER_IN), Box::new(generator));
    for (at, name) in ROUTER_OUT.into_iter().enumerate() {
        worker.add_port(number(name), Box::new(Sink { at, seen: seen.clone() }));
    }
    progress(format!("sending to {} destinations", flows.len()));
    let mut checker = Checker::new(&flows);
    let start = Instant::now();
    let mut shown = Instant::now();
    let mut before = 0;
    while start.elapsed() < time {
        for _ in 0..64 {
            worker.round();
        }
        let samples = std::mem::take(&mut seen.lock().expect("one thread").samples);
        for (port, frame) in samples {
            checker.check(port, &frame);
        }
        let since = shown.elapsed().as_secs_f64();
        if since >= 1.0 {
            let out = counters.packets_out.read();
            let rate = mega(out - before, since);
            progress(format!("{:5.1} s  {rate:.2} Mpps", start.elapsed().as_secs_f64()));
            (before, shown) = (out, Instant::now());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    worker.stop();
    let seen = std::mem::take(&mut *seen.lock().expect("one thread"));
    for (port, frame) in &seen.samples {
        checker.check(*port, frame);
    }
    let dropped = fingerpost_packet::DropReason::ALL
        .iter()
        .map(|&reason| (reason.name().to_owned(), counters.dropped[reason as usize].read()))
        .filter(|(_, count)| *count > 0)
        .collect();
    let hops = checker.hops();
    let per_prefix = |bytes: usize, routes: usize| each(bytes as u64, routes as u64);
    Ok(DemoReport {
        mode: "memory",
        routes_v4: control.rib_v4().len(),
        routes_v6: control.rib_v6().len(),
        next_hops_used: hops,
        load_ms: load.as_secs_f64() * 1e3,
        algorithm_v4: v4.algorithm().into(),
        algorithm_v6: v6.algorithm().into(),
        bytes_per_prefix_v4: per_prefix(v4.lookup().bytes(), control.rib_v4().len()),
        bytes_per_prefix_v6: per_prefix(v6.lookup().bytes(), control.rib_v6().len()),
        offered: counters.packets_in.read(),
        packets_in: counters.packets_in.read(),
        packets_out: counters.packets_out.read(),
        forwarded_xdp: 0,
        dropped,
        held: counters.held.read(),
        originated: counters.generated_sent.read(),
        punted: 0,
        arrived: seen.arrived,
        verified: checker.verified,
        wrong: checker.wrong,
        wrong_samples: checker.samples,
        mpps: mega(counters.packets_out.read(), seconds),
        ns_per_packet: each(counters.path_ns.read(), counters.packets_in.read()),
        seconds,
        cpu: String::new(),
        interfaces: vec!["memory".into()],
    })
}

/// Control side with the lab's links, neighbors and routes.
fn learn(oracle: &Oracle) -> Result<Control> {
    let mut control = Control::new(ControlOptions {
        v4: registry::v4().collect(),
        v6: registry::v6().collect(),
        connected_from_addresses: false,
    })?;
    let us = control.add_source("demo", 1);
    let mut links = Vec::new();
    for (number, name) in [ROUTER_IN, ROUTER_OUT[0], ROUTER_OUT[1]].into_iter().enumerate() {
        let link = LINKS[number];
        let state = LinkState {
            name: name.into(),
            up: true,
            mtu: 1500,
            mac: Some(port_mac(number)),
            ..LinkState::default()
        };
        links.push(link);
        control.handle(us, RouteEvent::Link(LinkUpdate { link, state: Some(state) }));
    }
    for hop in 1..=NEXT_HOPS {
        for v6 in [false, true] {
            let (link, addr) = (links[1 + hop_port(hop)], hop_addr(hop, v6));
            let state = NeighborState::Reachable(hop_mac(hop));
            control.handle(us, RouteEvent::Neighbor(NeighborUpdate { link, addr, state }));
        }
    }
    for &(prefix, hop) in &oracle.prefixes {
        let gateway = Some(hop_addr(hop, prefix.family() == 6));
        let path = Path { gateway, link: Some(links[1 + hop_port(hop)]), weight: 1 };
        let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
        let target = Target::Path(path);
        let update = RouteUpdate::new(key, target);
        control.handle(us, RouteEvent::Route(update));
    }
    control.commit(Instant::now())?;
    Ok(control)
}

/// Makes frames of the flows in turn.
struct Generator {
    pool: Pool,
    flows: Arc<[Flow]>,
    made: u64,
}

impl Port for Generator {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        let first = into.len();
        let len = self.flows[0].frame.len();
        let bytes = u16::try_from(len).expect("a short frame");
        let count = self.pool.take_raw(into.room(), |frame| {
            into.push_raw(frame, HEADROOM, bytes, Meta::default());
        });
        for i in first..first + count {
            let number = self.made % self.flows.len() as u64;
            let template = u32::try_from(number).expect("fewer than 2^32 flows");
            let frame = &self.flows[template as usize].frame;
            into.bytes_mut(i).copy_from_slice(frame);
            // Wraps as the tail's own field does.
            #[allow(clippy::cast_possible_truncation, reason = "sequence numbers wrap")]
            Tail { sequence: self.made as u32, template }.write(into.bytes_mut(i));
            self.made += 1;
        }
        Ok(count)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let count = from.len();
        from.free_front(count);
        Ok(count)
    }
}

/// Counts and samples of both sinks.
#[derive(Default)]
struct Seen {
    arrived: u64,
    samples: Vec<(usize, Vec<u8>)>,
    random: u64,
}

/// Counts what arrives, and keeps a share of it to be checked.
struct Sink {
    at: usize,
    seen: Arc<Mutex<Seen>>,
}

impl Port for Sink {
    fn recv(&mut self, _: &mut Batch) -> Result<usize, DeviceError> {
        Ok(0)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let mut seen = self.seen.lock().expect("one thread");
        for i in 0..from.len() {
            seen.arrived += 1;
            // Not every n-th: that would be the same flows each time.
            seen.random = seen.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            if (seen.random >> 33).is_multiple_of(SAMPLE) {
                let frame = from.bytes(i).to_vec();
                seen.samples.push((self.at, frame));
            }
        }
        drop(seen);
        let count = from.len();
        from.free_front(count);
        Ok(count)
    }
}
