//! Packets through ports of every kind, end to end: nothing is lost and nothing overtaken below capacity, and above it
//! as much arrives as before.
//!
//! The built-in router stands between the generator and the sink of `bench forward --path afxdp,af_packet,tap,ring`, on a
//! core of its own; every packet is numbered, stamped and compared with the oracle. A machine that is busy with other
//! work takes the router's core away for longer than a ring holds, in spite of the priority that the run is given where
//! that can be: so of several samples below capacity the best one has to lose nothing, or next to nothing
//! ([`LOST_OF`]). Order is required of all of them.
//! `cargo xtask soak ports` runs for longer.
//!
//! Rings are tested between two processes besides, with never more in flight than they hold: there not a single packet
//! may be missing.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fingerpost_io::DRIVERS;
use fingerpost_packet::device::DeviceSpec;
use fingerpost_packet::{Batch, Pool, Port};
use fingerpost_tests::{lab, program, quick, skip, soak};

const PATHS: [&str; 4] = ["afxdp", "af_packet", "tap", "ring"];
/// At half the capacity the best sample may lose one packet of so many: a pause of half a millisecond.
const LOST_OF: u64 = 1000;
/// Share of a ring: 1/20.
const LOST_OF_RING: u64 = 20;
/// How often a path is measured again where each sample lost more.
const TRIES: usize = 3;
/// The least share of the capacity that arrives where more is offered. What a busy machine takes away is in it.
const FLAT: f64 = 0.5;

/// A folder that goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("fingerpost-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        Self(folder)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.join(name);
        std::fs::write(&file, text).expect("the folder was made");
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Measures these paths, so long in all; the runs of the document.
fn measured(program: &Path, table: &Path, paths: &str, seconds: u64) -> Vec<serde_json::Value> {
    // Four kinds of ports, seven offers a sample; what is between samples takes as long again, and more.
    let samples = (seconds / 4).clamp(2, 60);
    let each = format!("{:.3}", seconds as f64 / 64.0);
    let mut command = Command::new("chrt");
    if command.arg("-r").arg("10").arg("true").output().is_ok_and(|tried| tried.status.success()) {
        command = Command::new("chrt");
        command.args(["-r", "10"]).arg(program);
    } else {
        command = Command::new(program);
    }
    let output = command
        .args(["bench", "forward", "--json", "--destinations", "1000", "--path", paths, "--table"])
        .arg(table)
        .args(["--seconds", &each, "--repeat", &samples.to_string()])
        .output()
        .expect("it was found before");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{paths}: {said}");
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("the document is JSON");
    document["runs"].as_array().expect("a row each").clone()
}

fn named<'a>(runs: &'a [serde_json::Value], name: &str) -> &'a serde_json::Value {
    runs.iter().find(|run| run["name"] == name).unwrap_or_else(|| panic!("no run {name}"))
}

/// Whether the best sample lost next to nothing.
fn is_whole(run: &serde_json::Value) -> bool {
    let losses = run["losses"].as_array().expect("one a sample");
    let least = losses.iter().filter_map(serde_json::Value::as_u64).min();
    let each = run["sent"].as_u64().expect("a number") / losses.len().max(1) as u64;
    // A ring holds 512 frames, a tenth of a millisecond at its rate: any pause of a shared core is longer. That it loses
    // nothing where its other side waits is the next test's matter.
    let lost_of = if run["name"] == "ring:load-0.5" { LOST_OF_RING } else { LOST_OF };
    least.expect("there is a sample") <= each / lost_of
}

#[test]
fn ports_lose_nothing_and_keep_order_below_capacity() {
    if quick() {
        return skip("time (FINGERPOST_QUICK is set)");
    }
    let Some(program) = lab() else { return skip("a release build of fingerpost-lab") };
    let folder = Folder::new("ports");
    let routes =
        (0..2000).map(|n| format!("{}.{}.0.0/16 10.0.0.{}\n", 20 + n / 200, n % 200, n % 20));
    let table = folder.file("table.txt", &routes.collect::<String>());
    let seconds = soak(Duration::from_secs(8)).as_secs();
    let runs = measured(&program, &table, &PATHS.join(","), seconds);
    let mut needs = None;
    for path in PATHS {
        let whole = named(&runs, path);
        let note = whole["note"].as_str().expect("text");
        if let Some(what) = note.strip_prefix("skipped: needs ") {
            needs = Some(what.to_owned());
            continue;
        }
        assert!(!note.starts_with("skipped"), "{path}: {note}");
        let mut mine = runs.clone();
        for attempt in 0.. {
            for run in &mine {
                let name = run["name"].as_str().expect("text");
                if name != path && !name.starts_with(&format!("{path}:")) {
                    continue;
                }
                println!("{name}: {} {}; {}", run["median"], run["unit"], run["note"]);
                assert_eq!(run["wrong"], 0, "{run}");
                assert!(run["reordered"].as_u64().unwrap_or(0) == 0, "{run}");
            }
            let half = named(&mine, &format!("{path}:load-0.5"));
            let flatness = named(&mine, &format!("{path}:flatness"))["median"].as_f64();
            assert!(half["sent"].as_u64() > Some(1000), "{half}");
            if is_whole(half) && flatness > Some(FLAT) {
                break;
            }
            assert!(
                attempt < TRIES,
                "{path}: lost below capacity, or {flatness:?} above it: {half}"
            );
            mine = measured(&program, &table, path, seconds);
        }
        let latency = named(&mine, &format!("{path}:latency"));
        assert!(latency["median"].as_f64() > Some(0.0), "{latency}");
    }
    if let Some(what) = needs {
        skip(&what);
    }
}

/// Ended when dropped.
struct Router(Child);

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const FRAME: usize = 60;
/// Frames in flight at most: half of what a ring has room for.
const WINDOW: u64 = 256;

/// A frame that is filled with its number.
fn frame(number: u64) -> [u8; FRAME] {
    let mut bytes = [0; FRAME];
    for (i, word) in (0..).zip(bytes.chunks_mut(8)) {
        let mixed = (number + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&mixed.to_le_bytes()[..word.len()]);
    }
    bytes
}

#[test]
fn rings_between_two_processes_lose_nothing() {
    if quick() {
        return skip("time (FINGERPOST_QUICK is set)");
    }
    let Some(program) = program() else { return skip("a release build") };
    let folder = Folder::new("rings");
    let graph = "FromDevice(eth0) -> Queue(1000) -> ToDevice(eth1);\n\
                 FromDevice(eth1) -> Queue(1000) -> ToDevice(eth0);\n";
    let graph = folder.file("wire.click", graph);
    let mut command = Command::new(&program);
    command.arg("run").arg(&graph);
    let paths = [0, 1].map(|i| folder.0.join(format!("ring{i}")).display().to_string());
    for (i, path) in (0..).zip(&paths) {
        command.args(["--device", &format!("eth{i}=ring:{path}")]);
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it is there");
    let mut router = Router(child);
    // The router comes first, and listens.
    let until = Instant::now() + Duration::from_secs(20);
    while !paths.iter().all(|path| Path::new(path).exists()) {
        assert!(Instant::now() < until, "the router does not come: {:?}", router.0.try_wait());
        std::thread::sleep(Duration::from_millis(5));
    }
    let pool = Pool::new(2048, 2048);
    let driver = DRIVERS.iter().find(|row| row.name == "ring").expect("there is a driver of rings");
    let mut ends: Vec<Box<dyn Port>> = paths
        .iter()
        .flat_map(|name| {
            let spec = DeviceSpec { name, queues: (0, 1), pools: std::slice::from_ref(&pool) };
            (driver.open)(&spec).expect("the router listens")
        })
        .collect();
    // Both ways at once: what goes in at one end comes out at the other.
    let (mut sent, mut came) = ([0_u64; 2], [0_u64; 2]);
    let mut batch = Batch::new(&pool);
    let until = Instant::now() + soak(Duration::from_secs(2));
    let mut last = Instant::now();
    loop {
        let over = Instant::now() > until;
        for way in [0, 1] {
            let room = WINDOW - (sent[way] - came[way]);
            for number in sent[way]..sent[way] + if over { 0 } else { room.min(64) } {
                let mut packet = pool.alloc().expect("few are on the way");
                packet.set_len(FRAME);
                packet.bytes_mut().copy_from_slice(&frame(number));
                batch.push(packet).expect("a batch has room");
            }
            sent[way] += ends[way].send(&mut batch).expect("the router is there") as u64;
            batch.clear();
            if ends[1 - way].recv(&mut batch).expect("the router is there") > 0 {
                last = Instant::now();
            }
            for i in 0..batch.len() {
                assert_eq!(batch.bytes(i), frame(came[way]), "number {} that way", came[way]);
                came[way] += 1;
            }
            batch.clear();
        }
        if over && came == sent {
            break;
        }
        assert!(last.elapsed() < Duration::from_secs(20), "of {sent:?} came {came:?}");
    }
    println!("{sent:?} frames crossed");
    assert!(sent.iter().all(|&count| count > 1000), "{sent:?}");
    assert!(router.0.try_wait().expect("it is ours").is_none(), "the router ended");
}
