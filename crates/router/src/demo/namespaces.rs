//! The demo as root: generator, router and sinks in namespaces of their own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use fingerpost_packet::xdp::{Generator, Sink};

use super::lab::{DESTINATION, Lab, ROUTER_OUT, SOURCE, index};
use super::traffic::{self, Checker, FRAME_BYTES, Flow, Oracle};
use super::{DemoError, DemoReport, Files, each, mega};
use crate::config::{Config, PacketPath, Source, Takeover};
use crate::daemon::{Daemon, Report, RunOptions};

/// Packets a call of the generator makes: enough that the call's fixed cost does not show.
const BURST: u32 = 1 << 18;
/// One of so many packets is checked in full.
const SAMPLE: u32 = 16;
/// From the last packet sent to the counts being final.
const DRAIN: Duration = Duration::from_millis(500);
/// How long the router may take to learn the tables.
const LONGEST_START: Duration = Duration::from_secs(120);

/// What the threads tell each other.
#[derive(Default)]
struct Shared {
    stop_router: AtomicBool,
    stop_sink: AtomicBool,
    packets_out: AtomicU64,
    arrived: AtomicU64,
}

pub(super) fn run(
    files: &Files,
    oracle: &Oracle,
    time: Duration,
    progress: &(dyn Fn(String) + Sync),
) -> Result<DemoReport, DemoError> {
    let flows = traffic::flows(oracle);
    progress("making three network namespaces".into());
    let lab = Lab::new().map_err(DemoError::Lab)?;
    let shared = Shared::default();
    let (lab, shared, flows) = (&lab, &shared, &flows[..]);
    thread::scope(|scope| {
        let (ready, is_ready) = channel();
        let router = scope.spawn(move || route(files, lab, shared, &ready, progress));
        let started = is_ready.recv_timeout(LONGEST_START).is_ok();
        if !started {
            // It says why itself.
            shared.stop_router.store(true, Relaxed);
            router.join().map_err(|_| DemoError::Thread("the router"))??;
            return Err(DemoError::Thread("the router"));
        }
        let (ready, is_ready) = channel();
        let sink = scope.spawn(move || check(lab, shared, flows, &ready));
        if is_ready.recv_timeout(LONGEST_START).is_err() {
            shared.stop_router.store(true, Relaxed);
            sink.join().map_err(|_| DemoError::Thread("the sink"))??;
            return Err(DemoError::Thread("the sink"));
        }
        progress(format!("sending to {} destinations", flows.len()));
        let sent = scope.spawn(move || generate(lab, shared, flows, time, progress)).join();
        thread::sleep(DRAIN);
        shared.stop_router.store(true, Relaxed);
        let routed = router.join();
        // What the router held may still have been on its way.
        thread::sleep(DRAIN);
        shared.stop_sink.store(true, Relaxed);
        let checked = sink.join().map_err(|_| DemoError::Thread("the sink"))??;
        let (offered, seconds) = sent.map_err(|_| DemoError::Thread("the generator"))??;
        let (report, path_ns) = routed.map_err(|_| DemoError::Thread("the router"))??;
        Ok(DemoReport {
            mode: "namespaces",
            routes_v4: report.routes_v4,
            routes_v6: report.routes_v6,
            next_hops_used: checked.hops,
            load_ms: report.load_ms,
            algorithm_v4: report.algorithm_v4,
            algorithm_v6: report.algorithm_v6,
            bytes_per_prefix_v4: report.bytes_per_prefix_v4.unwrap_or_default(),
            bytes_per_prefix_v6: report.bytes_per_prefix_v6.unwrap_or_default(),
            offered,
            packets_in: report.packets_in,
            packets_out: report.packets_out,
            forwarded_in_drivers: report.forwarded_in_drivers,
            held: report.held,
            originated: report.originated,
            punted: report.punted,
            arrived: checked.arrived,
            verified: checked.verified,
            wrong: checked.wrong,
            wrong_samples: checked.samples,
            mpps: mega(report.packets_out, seconds),
            ns_per_packet: each(path_ns, report.packets_in - report.forwarded_in_drivers),
            seconds,
            interfaces: report
                .interfaces
                .iter()
                .map(|i| format!("{}: {}, {}", i.name, i.path, i.mode))
                .collect(),
            dropped: report.dropped,
            cpu: String::new(),
        })
    })
}

/// The router: exactly what `fingerpost run` does with such a configuration.
fn route(
    files: &Files,
    lab: &Lab,
    shared: &Shared,
    ready: &Sender<()>,
    progress: &(dyn Fn(String) + Sync),
) -> Result<(Report, u64), DemoError> {
    lab.router.enter().map_err(DemoError::Lab)?;
    let source =
        |kind: &str| Source { kind: kind.into(), path: None, routes: vec![], distance: None };
    let mut sources = vec![source("kernel")];
    sources.extend(files.paths.iter().map(|p| Source { path: Some(p.clone()), ..source("file") }));
    // Nobody switches the kernel's forwarding on in a namespace that is new.
    let takeover = Takeover { ignore: vec!["forwarding".into()], ..Takeover::default() };
    let options = RunOptions {
        config: Config { source: sources, takeover, ..Config::default() },
        only: Vec::new(),
        path: PacketPath::Auto,
        ..RunOptions::default()
    };
    let mut daemon = Daemon::start(&options)?;
    for line in daemon.take_messages() {
        progress(line);
    }
    let report = daemon.report();
    progress(format!(
        "the router has {} IPv4 and {} IPv6 routes after {:.0} ms",
        report.routes_v4, report.routes_v6, report.load_ms
    ));
    let mut last = Instant::now();
    let mut waiting = true;
    let worked = daemon.run(&mut || shared.stop_router.load(Relaxed), &mut |daemon| {
        daemon.take_messages().into_iter().for_each(progress);
        // A new link takes a moment to come up; before that nobody would take its packets.
        if waiting && daemon.taken_over() == 1 + ROUTER_OUT.len() {
            waiting = false;
            let _ = ready.send(());
        }
        if last.elapsed() > Duration::from_millis(200) {
            last = Instant::now();
            shared.packets_out.store(daemon.packets_out(), Relaxed);
        }
    });
    let path_ns = daemon.path_ns();
    let (report, messages) = daemon.stop();
    messages.into_iter().for_each(progress);
    worked?;
    Ok((report, path_ns))
}

/// What arrived.
struct Checked {
    arrived: u64,
    verified: u64,
    wrong: u64,
    hops: usize,
    samples: Vec<String>,
}

fn check(
    lab: &Lab,
    shared: &Shared,
    flows: &[Flow],
    ready: &Sender<()>,
) -> Result<Checked, DemoError> {
    lab.destination.enter().map_err(DemoError::Lab)?;
    let mut sinks = Vec::new();
    for name in DESTINATION {
        let link = index(name).map_err(DemoError::Lab)?;
        sinks.push(Sink::attach(link, FRAME_BYTES, SAMPLE)?);
    }
    let _ = ready.send(());
    let mut checker = Checker::new(flows);
    loop {
        // Read before polling: what arrives later is seen in the last turn.
        let last = shared.stop_sink.load(Relaxed);
        let mut seen = 0;
        for (port, sink) in sinks.iter_mut().enumerate() {
            seen += sink.poll(&mut |frame| checker.check(port, frame))?;
        }
        let mut arrived = 0;
        for sink in &sinks {
            arrived += sink.arrived()?;
        }
        shared.arrived.store(arrived, Relaxed);
        if last {
            let (hops, samples) = (checker.hops(), checker.samples);
            let (verified, wrong) = (checker.verified, checker.wrong);
            return Ok(Checked { arrived, verified, wrong, hops, samples });
        }
        if seen == 0 {
            // The sink shares a core with the router: do not spin.
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Sends for that long; returns how many packets and how long it was.
fn generate(
    lab: &Lab,
    shared: &Shared,
    flows: &[Flow],
    time: Duration,
    progress: &(dyn Fn(String) + Sync),
) -> Result<(u64, f64), DemoError> {
    lab.source.enter().map_err(DemoError::Lab)?;
    let templates: Vec<Vec<u8>> = flows.iter().map(|flow| flow.frame.clone()).collect();
    let link = index(SOURCE).map_err(DemoError::Lab)?;
    let mut generator = Generator::new(&templates, link)?;
    let start = Instant::now();
    let mut told = Instant::now();
    let mut before = 0;
    while start.elapsed() < time {
        generator.run(BURST)?;
        let since = told.elapsed().as_secs_f64();
        if since >= 1.0 {
            let out = shared.packets_out.load(Relaxed);
            progress(format!(
                "{:5.1} s  {:.3} Mpps  {} out, {} arrived",
                start.elapsed().as_secs_f64(),
                mega(out - before, since),
                out,
                shared.arrived.load(Relaxed),
            ));
            (before, told) = (out, Instant::now());
        }
    }
    Ok((generator.offered()?, start.elapsed().as_secs_f64()))
}
