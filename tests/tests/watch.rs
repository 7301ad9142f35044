//! What becomes of packets when a part of the router does not work: a worker that fails, a process that is stopped.
//!
//! The kernel's own forwarding is on, so that a packet that gets past the router gets past its filters as well. The test
//! plays the supervisor that starts the program again.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fingerpost_packet::feature::FeatureStates;
use fingerpost_packet::feature::source_filter::SourceFilters;
use fingerpost_packet::router_graph;
use fingerpost_tests::netns::{Line, Router, command, command_beside, conserved, ip, run};
use fingerpost_tests::testing_program;
use fingerpost_tests::traffic::{Traffic, overflowed};
use fingerpost_tests::world::Listener;

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
/// From a source that may send, and the same later.
const ALLOWED: &str = "10.9.0.1";
const LATER: &str = "10.9.0.3";
/// Packets from a source that a filter drops.
const FILTERED: &str = "10.9.0.2";
const BAD_SOURCE: [u8; 4] = [10, 0, 1, 3];
/// Packets a second.
const RATE: u64 = 2_000;
/// Longest time that a worker without a sign of life counts as alive, and a little more on a busy machine.
const PATIENCE: Duration = Duration::from_millis(2_300);

/// One at a time: two would lose packets to each other.
static ALONE: Mutex<()> = Mutex::new(());

struct Lab {
    line: Line,
    folder: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Lab {
    fn new(tools: &[&str]) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let line = Line::with_queues(&[&["ping", "nsenter"], tools].concat(), [2, 2])?;
        let (s, r, d) = (&line.source, &line.router, &line.destination);
        ip(&format!("-n {s} addr add 10.0.1.3/24 dev s0"));
        ip(&format!("-n {s} route add {FILTERED}/32 via 10.0.1.1 src 10.0.1.3"));
        for address in [ALLOWED, FILTERED, LATER] {
            ip(&format!("-n {d} addr add {address}/32 dev lo"));
        }
        ip(&format!("-n {r} route add 10.9.0.0/16 via 10.0.2.2"));
        line.kernel_forwards(true);
        let folder = std::env::temp_dir().join(format!("fpwatch-{r}"));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let lab = Self { line, folder, _alone: alone };
        lab.warm_up();
        Some(lab)
    }

    /// All neighbors are known.
    fn warm_up(&self) {
        run(&self.line.source, &format!("ping -c 2 -i 0.1 -W 2 {ALLOWED}"));
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        fs::write(&path, text).expect("the folder was made");
        path.display().to_string()
    }

    /// A configuration whose filter drops what comes from 10.0.1.3.
    fn filters(&self) -> String {
        let filter =
            "[[source_filter]]\nname = \"bad\"\naction = \"drop\"\nprefixes = [\"10.0.1.3/32\"]\n";
        self.file("filters.toml", filter)
    }

    /// Traffic that a filter drops, in the background.
    fn send_filtered(&self, seconds: u64) -> std::process::Child {
        let words = format!("{TRANSFER} blast {FILTERED}:7100 {RATE} {seconds}");
        command(&self.line.source, &words).stdout(Stdio::null()).spawn().expect("it is built")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// IPv4 packets that arrived from 10.0.1.3, and from others.
fn arrived(listener: &Listener) -> (usize, usize) {
    let frames = listener.frames();
    let v4 = frames.iter().filter(|(_, frame)| frame[12..14] == [8, 0]);
    let (bad, others): (Vec<_>, Vec<_>) = v4.partition(|(_, frame)| frame[26..30] == BAD_SOURCE);
    (bad.len(), others.len())
}

#[test]
fn a_worker_that_fails_ends_the_run_and_nothing_gets_past_a_filter() {
    let Some(program) = testing_program() else { return };
    let Some(lab) = Lab::new(&["tcpdump"]) else { return };
    let words = format!("{} --path afxdp", lab.filters());
    let start = || Router::start_program(&program, command_beside, &lab.line.router, &words, 2);
    let none = SourceFilters::new(Vec::new(), None).expect("no files");
    let features = FeatureStates::default().with("source-filter", Arc::new(none));
    let text = router_graph::text_with(&features);
    let text = text.replace("FromPorts@1 ->", "FromPorts@1 -> PanicAfter(1500) ->");
    assert!(text.contains("PanicAfter"), "{text}");
    let graph = lab.file("fails.click", &text);

    let listener = Listener::start(&lab.line.destination, "d0");
    let router = start();
    let mut filtered = lab.send_filtered(9);
    let traffic = Traffic::begin(TRANSFER, &lab.line, &[ALLOWED], RATE, 8);
    thread::sleep(Duration::from_secs(1));
    let swap = format!("{} graph swap {graph}", program.display());
    run(&lab.line.router, &swap);
    let (status, report, said) = router.ended();
    let told = |words: &str| said.iter().any(|line| line.contains(words));
    assert_eq!(status.code(), Some(1), "{said:#?}");
    assert!(told("failed: PanicAfter has passed what it was to pass"), "{said:#?}");
    assert!(told("of 2 workers failed") || told("of 1 workers failed"), "{said:#?}");
    assert!(told("r0: drops what it would forward until a daemon takes it over"), "{said:#?}");
    assert!(report["workers_alive"].as_u64() < report["workers"].as_u64(), "{report}");
    assert!(report["dropped"]["no_worker"].as_u64() >= Some(1), "{report}");
    conserved(&report);

    // The supervisor takes its time: nobody is there, and nothing is forwarded.
    thread::sleep(Duration::from_millis(200));
    let before = arrived(&listener).1;
    thread::sleep(Duration::from_millis(500));
    assert_eq!(arrived(&listener), (0, before));
    let router = start();
    let counts = traffic.end();
    let _ = filtered.wait();
    let (bad, others) = arrived(&listener);
    println!("{counts:?}, {others} arrived in all, {bad} of them filtered");
    assert_eq!(bad, 0, "{:#?}", router.said());
    assert!(others as u64 > before as u64 + RATE, "{before}, then {others}: {:#?}", router.said());
    let report = router.stop();
    conserved(&report);
    assert!(report["dropped"]["source_filter"].as_u64() > Some(RATE), "{report}");
    let release = format!("{} release", program.display());
    let left = command_beside(&lab.line.router, &release).output().expect("it was found before");
    assert!(left.status.success() && left.stdout.is_empty(), "nothing is held: {left:?}");
    assert!(lab.pings(ALLOWED), "the kernel has its interfaces back");
}

#[test]
fn what_a_failed_router_holds_is_released() {
    let Some(program) = testing_program() else { return };
    let Some(lab) = Lab::new(&[]) else { return };
    let words = format!("{} --path afxdp", lab.filters());
    let router = Router::start_program(&program, command_beside, &lab.line.router, &words, 2);
    let graph = lab.file("fails.click", "FromPorts -> PanicAfter(0) -> ToPorts");
    run(&lab.line.router, &format!("{} graph swap {graph}", program.display()));
    assert!(!lab.pings(ALLOWED));
    assert_eq!(router.ended().0.code(), Some(1));
    assert!(!lab.pings(ALLOWED), "nobody looks at sources");
    let mut release = command_beside(&lab.line.router, &format!("{} release", program.display()));
    assert!(release.status().expect("it was found before").success());
    assert!(lab.pings(ALLOWED), "the kernel has its interfaces back");
}

impl Lab {
    fn pings(&self, address: &str) -> bool {
        let mut ping: Command =
            command(&self.line.source, &format!("ping -c 2 -i 0.2 -W 1 {address}"));
        ping.output().expect("it was found before").status.success()
    }
}

#[test]
fn a_stopped_process_costs_two_seconds_of_packets() {
    let Some(lab) = Lab::new(&[]) else { return };
    let router = Router::start(&lab.line.router, "--path afxdp", 2);
    lab.warm_up();
    let full = overflowed(&lab.line.destination);
    router.signal("STOP");
    let first = Traffic::begin(TRANSFER, &lab.line, &[ALLOWED], RATE, 4).end();
    let most = RATE * u64::try_from(PATIENCE.as_millis()).expect("seconds") / 1000;
    println!("stopped: {first:?}, at most {most} lost");
    assert!(first.lost() > 0 && first.lost() <= most, "{first:?}, at most {most} lost");
    // From here on the kernel forwards, until it goes on; what waited in its rings arrives late.
    let second = Traffic::begin(TRANSFER, &lab.line, &[LATER], RATE, 4);
    thread::sleep(Duration::from_secs(2));
    router.signal("CONT");
    let second = second.end();
    println!("stopped, and going on: {second:?}");
    let full = overflowed(&lab.line.destination) - full;
    assert!(second.lost() <= full, "{second:?}, {full} without room at the receiver");
    let report = router.stop();
    conserved(&report);
    assert!(report["packets_in"].as_u64() > Some(RATE), "it took its packets back: {report}");
}

#[test]
fn a_stopped_process_lets_nothing_past_a_filter() {
    let Some(lab) = Lab::new(&["tcpdump"]) else { return };
    let listener = Listener::start(&lab.line.destination, "d0");
    let router = Router::start(&lab.line.router, &format!("{} --path afxdp", lab.filters()), 2);
    lab.warm_up();
    router.signal("STOP");
    thread::sleep(PATIENCE);
    let (_, before) = arrived(&listener);
    let mut filtered = lab.send_filtered(2);
    assert!(!lab.pings(ALLOWED), "it would not be asked about its source");
    let _ = filtered.wait();
    assert_eq!(arrived(&listener), (0, before));
    router.signal("CONT");
    thread::sleep(Duration::from_millis(300));
    assert!(lab.pings(ALLOWED));
    let mut filtered = lab.send_filtered(1);
    let _ = filtered.wait();
    assert_eq!(arrived(&listener).0, 0);
    let report = router.stop();
    conserved(&report);
    assert!(report["dropped"]["no_worker"].as_u64() > Some(RATE), "{report}");
    assert!(report["dropped"]["source_filter"].as_u64() > Some(RATE / 2), "{report}");
}
