//! The packet cases of `testdata/packets`, through the built-in router: one packet into a worker with
//! all ports of the topology, and everything that comes of it compared byte for byte.

use std::sync::{Arc, Mutex, mpsc};

use fingerpost_packet::cases::{Built, Case, cases, diff};
use fingerpost_packet::feature::FeatureStates;
use fingerpost_packet::feature::row::{FeatureArc, InUse};
use fingerpost_packet::frame::BATCH;
use fingerpost_packet::frame::counters::WorkerCounters;
use fingerpost_packet::graph::worker::{Worker, WorkerOptions};
use fingerpost_packet::{Batch, DeviceError, DropReason, Pool, Port, router_graph};
use fingerpost_route::Publisher;

/// What left, in order: port and frame.
type Sent = Arc<Mutex<Vec<(u16, Vec<u8>)>>>;

/// A port that gives what it was loaded with and keeps what it is given.
struct CasePort {
    number: u16,
    inbox: Vec<Vec<u8>>,
    sent: Sent,
}

impl Port for CasePort {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        let count = self.inbox.len();
        for frame in self.inbox.drain(..) {
            let mut packet = into.pool().alloc().expect("a free frame");
            assert!(packet.set_len(frame.len()), "a frame of {} bytes does not fit", frame.len());
            packet.bytes_mut().copy_from_slice(&frame);
            into.push(packet).expect("room in the batch");
        }
        Ok(count)
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let count = from.len();
        let mut sent = self.sent.lock().expect("one thread");
        sent.extend((0..count).map(|i| (self.number, from.bytes(i).to_vec())));
        from.clear();
        Ok(count)
    }
}

struct Outcome {
    sent: Vec<(u16, Vec<u8>)>,
    counters: Arc<WorkerCounters>,
}

/// Runs frames, each with the number of its ingress port, through a new worker.
fn run(topology: &Built, frames: Vec<(u16, Vec<u8>)>) -> Outcome {
    let pool = Pool::new(512, 4096);
    let publisher = Publisher::new(topology.forwarding.clone());
    let ports = topology.topology.ports.len();
    let counters = Arc::new(WorkerCounters::new(ports, 256));
    let (_commands, commands) = mpsc::channel();
    let (requests, _asked) = mpsc::sync_channel(64);
    let (events, _told) = mpsc::channel();
    let features = FeatureStates::default()
        .with("urpf", Arc::new(InUse(FeatureArc::Ingress)))
        .with("redirects", Arc::new(InUse(FeatureArc::Hairpin)));
    let plan = router_graph::plan_with(None, &features).expect("the built-in graph");
    let mut worker = Worker::new(WorkerOptions {
        plan: &plan,
        pool: pool.clone(),
        reader: publisher.reader(),
        counters: counters.clone(),
        commands,
        requests,
        events,
        flow_seed: 0,
    });
    let sent = Sent::default();
    for (number, spec) in (0..).zip(&topology.topology.ports) {
        let mine = frames.iter().filter(|(port, _)| *port == number);
        let inbox = mine.map(|(_, frame)| frame.clone()).collect();
        if !spec.down {
            worker.add_port(number, Box::new(CasePort { number, inbox, sent: sent.clone() }));
        }
    }
    // All cases at once are one batch, as they would come from a busy port.
    worker.set_burst(BATCH);
    worker.round();
    // What is held counts as in the router; then it must all come back.
    let held = counters.held.read() + counters.generated_held.read();
    let c = &counters;
    assert_eq!(
        c.packets_in.read(),
        c.packets_out.read() + c.dropped_total() + c.held.read(),
        "in = out + dropped + held"
    );
    let generated_dropped: u64 = c.generated_dropped.iter().map(|n| n.read()).sum();
    assert_eq!(
        c.generated.read(),
        c.generated_sent.read() + generated_dropped + c.generated_held.read(),
        "generated = sent + dropped + held"
    );
    assert_eq!(pool.free() as u64 + held, pool.frames() as u64, "frames in use");
    let sent = std::mem::take(&mut *sent.lock().expect("one thread"));
    Outcome { sent, counters }
}

/// What is wrong with a case; empty when nothing is.
fn check(topology: &Built, case: &Case) -> Result<String, String> {
    use std::fmt::Write;
    let want_drop = case.drop_reason()?;
    // Ports are emptied one after the other, so order is kept within a port.
    let mut want = case.outputs(topology)?;
    want.sort_by_key(|(port, _)| *port);
    let input = case.input(topology)?;
    let mut outcome = run(topology, vec![(topology.port(&case.port), input)]);
    outcome.sent.sort_by_key(|(port, _)| *port);
    let mut text = String::new();
    let mut say = |line: String| writeln!(text, "{line}").expect("a String");

    for i in 0..want.len().max(outcome.sent.len()) {
        match (want.get(i), outcome.sent.get(i)) {
            (Some((want_port, want)), Some((port, got))) => {
                if want_port != port {
                    let (want, got) = (topology.port_name(*want_port), topology.port_name(*port));
                    say(format!("  frame {i}: want it by {want}, left by {got}"));
                }
                let difference = diff(want, got);
                if !difference.is_empty() {
                    say(format!("  frame {i}:\n{}", difference.trim_end()));
                }
            }
            (Some((port, want)), None) => {
                say(format!("  frame {i} did not leave by {}:", topology.port_name(*port)));
                say(diff(want, &[]).trim_end().into());
            }
            (None, Some((port, got))) => {
                say(format!("  frame {i} left by {}:", topology.port_name(*port)));
                say(diff(&[], got).trim_end().into());
            }
            (None, None) => {}
        }
    }
    for &reason in DropReason::ALL {
        let want = u64::from(want_drop == Some(reason));
        let got = outcome.counters.dropped[reason as usize].read();
        if want != got {
            say(format!("  dropped as {}: want {want}, got {got}", reason.name()));
        }
        let generated = outcome.counters.generated_dropped[reason as usize].read();
        if generated != 0 {
            say(format!("  of our own making, dropped as {}: {generated}", reason.name()));
        }
    }
    let held = outcome.counters.held.read();
    if held != u64::from(case.held) {
        say(format!("  held: want {}, got {held}", u64::from(case.held)));
    }
    Ok(text)
}

#[test]
fn every_case_comes_out_as_written() {
    let topology = Built::of_cases();
    let cases = cases();
    let mut failed = Vec::new();
    for (file, case) in &cases {
        let wrong = check(&topology, case).unwrap_or_else(|e| format!("  {e}\n"));
        if !wrong.is_empty() {
            failed.push(format!("{file}: {} ({})\n{wrong}", case.name, case.rfc));
        }
    }
    let (count, bad) = (cases.len(), failed.len());
    assert!(failed.is_empty(), "{bad} of {count} cases failed\n\n{}", failed.join("\n"));
    println!("{count} packet cases");
}

#[test]
fn cases_are_named_apart_and_say_who_says_so() {
    let cases = cases();
    assert!(cases.len() >= 80, "{} cases", cases.len());
    for (i, (file, case)) in cases.iter().enumerate() {
        assert!(!case.rfc.trim().is_empty(), "{file}: {}: no source", case.name);
        let twin = cases[..i].iter().find(|(_, other)| other.name == case.name);
        assert!(twin.is_none(), "two cases are called {:?}", case.name);
        let end = usize::from(case.drop.is_some()) + usize::from(case.held);
        assert!(end <= 1, "{}: dropped and held", case.name);
        assert!(end == 1 || !case.out.is_empty(), "{}: nothing comes of it", case.name);
    }
}

/// All cases at once, so that they share batches: nothing that comes of one depends on another. Only
/// the identification of our IPv4 errors counts on, so those are compared without it.
#[test]
fn cases_do_not_disturb_each_other() {
    let topology = Built::of_cases();
    let cases = cases();
    let mut want = Vec::new();
    let mut frames = Vec::new();
    for (_, case) in &cases {
        want.extend(case.outputs(&topology).expect("a case that makes sense"));
        let input = case.input(&topology).expect("a case that makes sense");
        frames.push((topology.port(&case.port), input));
    }
    let mut sent = run(&topology, frames).sent;
    for (_, frame) in want.iter_mut().chain(&mut sent) {
        if frame[12..14] == [8, 0] && frame[14 + 1] == 0xc0 {
            frame[14 + 4..14 + 6].fill(0);
            frame[14 + 10..14 + 12].fill(0);
        }
    }
    want.sort();
    sent.sort();
    assert_eq!(sent.len(), want.len());
    for ((want_port, want), (port, got)) in want.iter().zip(&sent) {
        let difference = diff(want, got);
        assert!(want_port == port && difference.is_empty(), "{want_port} {port}\n{difference}");
    }
}
