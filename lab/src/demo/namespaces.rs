//! The demo as root: `fingerpost run` in one namespace, generator and sinks in another.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use super::lab::{Demo, ROUTER_OUT};
use super::traffic::{self, Checker, FRAME_BYTES, Flow, Oracle};
use super::{DemoReport, Files, each, mega};
use crate::program::Router;
use crate::traffic::{Generator, Sink};

/// Packets a call of the generator makes: enough that the call's fixed cost does not show.
const BURST: u32 = 1 << 18;
/// One of so many packets is checked in full.
const SAMPLE: u32 = 16;
/// Time from the last packet sent to the counts being final.
const DRAIN: Duration = Duration::from_millis(500);
/// Longest time until the router has the tables.
const LONGEST_START: Duration = Duration::from_secs(120);

/// State shared by the threads.
#[derive(Default)]
struct Shared {
    stop_sink: AtomicBool,
    arrived: AtomicU64,
}

/// Fields of the report of `fingerpost run`.
#[derive(Deserialize)]
struct RunReport {
    routes_v4: usize,
    routes_v6: usize,
    load_ms: f64,
    algorithm_v4: String,
    algorithm_v6: String,
    bytes_per_prefix_v4: Option<f64>,
    bytes_per_prefix_v6: Option<f64>,
    packets_in: u64,
    packets_out: u64,
    forwarded_xdp: u64,
    dropped: BTreeMap<String, u64>,
    held: u64,
    originated: u64,
    punted: u64,
    path_ns: u64,
    interfaces: Vec<RunInterface>,
}

#[derive(Deserialize)]
struct RunInterface {
    name: String,
    path: String,
    mode: String,
}

pub(super) fn run(
    lab: &Demo,
    files: &Files,
    oracle: &Oracle,
    time: Duration,
    progress: &(dyn Fn(String) + Sync),
) -> Result<DemoReport> {
    let flows = traffic::flows(oracle);
    let shared = Shared::default();
    let (shared, flows) = (&shared, &flows[..]);
    progress("starting fingerpost run in a network namespace".into());
    let (mut router, messages) = Router::start(&lab.0.router, &config(files))?;
    thread::scope(|scope| {
        // It ends with the router, which is stopped or dropped below.
        scope.spawn(move || messages.pass_on(progress));
        router.wait(1 + ROUTER_OUT.len() as u64, LONGEST_START)?;
        let (ready, is_ready) = channel();
        let sink = scope.spawn(move || check(lab, shared, flows, &ready));
        if is_ready.recv_timeout(LONGEST_START).is_err() {
            drop(router);
            sink.join().map_err(|_| anyhow!("the sink panicked"))??;
            return Err(anyhow!("the sink does not start"));
        }
        progress(format!("sending to {} destinations", flows.len()));
        let sent = generate(lab, shared, flows, time, progress);
        thread::sleep(DRAIN);
        let report = router.stop::<RunReport>();
        // Packets that the router held may still be on their way.
        thread::sleep(DRAIN);
        shared.stop_sink.store(true, Relaxed);
        let checked = sink.join().map_err(|_| anyhow!("the sink panicked"))??;
        let ((offered, seconds), report) = (sent?, report?);
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
            forwarded_xdp: report.forwarded_xdp,
            held: report.held,
            originated: report.originated,
            punted: report.punted,
            arrived: checked.arrived,
            verified: checked.verified,
            wrong: checked.wrong,
            wrong_samples: checked.samples,
            mpps: mega(report.packets_out, seconds),
            ns_per_packet: each(report.path_ns, report.packets_in - report.forwarded_xdp),
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

/// Configuration of the router: the kernel's routes and the shipped tables.
fn config(files: &Files) -> String {
    // The kernel's forwarding is off in a new namespace.
    let mut text =
        String::from("[takeover]\nignore = [\"forwarding\"]\n\n[[source]]\nkind = \"kernel\"\n");
    for path in &files.paths {
        let path = path.display();
        let _ = write!(text, "\n[[source]]\nkind = \"file\"\npath = \"{path}\"\n");
    }
    text
}

/// Counts of the sinks.
struct Checked {
    arrived: u64,
    verified: u64,
    wrong: u64,
    hops: usize,
    samples: Vec<String>,
}

/// Counts what arrives at the far ends of the router's links, and checks a share of it.
fn check(lab: &Demo, shared: &Shared, flows: &[Flow], ready: &Sender<()>) -> Result<Checked> {
    let attach = |link| Sink::attach(link, FRAME_BYTES, SAMPLE).context("the sink");
    let mut sinks: Vec<_> =
        lab.0.outside.inside(|| lab.0.far.into_iter().map(attach).collect::<Result<_>>())?;
    let _ = ready.send(());
    let mut checker = Checker::new(flows);
    loop {
        // Loaded before the polls: the last turn counts what arrives later.
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

/// Sends for that long; returns the number of packets and the duration in seconds.
fn generate(
    lab: &Demo,
    shared: &Shared,
    flows: &[Flow],
    time: Duration,
    progress: &(dyn Fn(String) + Sync),
) -> Result<(u64, f64)> {
    let templates: Vec<Vec<u8>> = flows.iter().map(|flow| flow.frame.clone()).collect();
    lab.0.outside.inside(|| {
        let mut generator = Generator::new(&templates, lab.0.source).context("the generator")?;
        let start = Instant::now();
        let (mut shown, mut before) = (Instant::now(), 0);
        while start.elapsed() < time {
            generator.run(BURST).context("the generator")?;
            let since = shown.elapsed().as_secs_f64();
            if since >= 1.0 {
                let arrived = shared.arrived.load(Relaxed);
                let (elapsed, rate) =
                    (start.elapsed().as_secs_f64(), mega(arrived - before, since));
                progress(format!("{elapsed:5.1} s  {rate:.3} Mpps  {arrived} arrived"));
                (before, shown) = (arrived, Instant::now());
            }
        }
        Ok((generator.offered()?, start.elapsed().as_secs_f64()))
    })
}
