//! Notes of queues: between a source that waits and a queue no packet is lost, at whatever rates, and none stays behind.
//!
//! Source: Click's full and empty notes, as its manual has them. Sources, what packets pass, queues, what shapes them and what
//! drains them are random; time is virtual and moves as `fingerpost click --simtime` moves it. `FINGERPOST_SOAK_SECONDS` is how
//! long new graphs are made, after the first ones.
#![cfg(feature = "click")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use fingerpost_lpm::Rng;
use fingerpost_packet::DropReason;
use fingerpost_packet::testing::{Rig, World};

/// A sequence of numbers, and choices by them.
struct Random(Rng);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0.below(count)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.0.below(from.len())]
    }

    /// From 1 on, small ones most of all.
    fn some(&mut self, most: usize) -> usize {
        let below = self.pick(&[1, 4, 20, most]);
        1 + self.below(below.min(most))
    }
}

/// A graph, and how many packets its sources make.
struct Made {
    text: String,
    packets: usize,
}

/// A source that waits for room: its declaration by this name, and its packets.
fn source(random: &mut Random, name: &str) -> (String, usize) {
    let (limit, burst) = (random.some(600), random.some(300));
    let text = match random.below(4) {
        0 | 1 => format!("InfiniteSource(LIMIT {limit}, BURST {burst})"),
        2 => format!("RandomSource({}, {limit}, {burst})", random.below(100)),
        _ => {
            let lines = "1.0.0.1\n".repeat(limit);
            format!("FromIPSummaryDump(DATA \"!data src\n{lines}\")")
        }
    };
    (format!("{name} :: {text}"), limit)
}

/// What packets pass between a source and a queue: each of them, in order.
fn passed(random: &mut Random) -> &'static str {
    random.pick(&[
        "Null",
        "Counter",
        "Paint(3)",
        "Strip(0)",
        "CheckLength(2000)",
        "PushNull",
        "SetTimestamp",
        "Switch(0)",
        "AverageCounter",
        "Print(x, ACTIVE false)",
    ])
}

/// What is between a queue and what drains it.
fn shaper(random: &mut Random) -> String {
    match random.below(6) {
        0 => format!("Shaper({})", 50 + random.some(100_000)),
        1 => format!("BandwidthShaper({}kBps)", 1 + random.some(100_000)),
        2 => format!("DelayShaper({}us, CAPACITY {})", random.below(20_000), random.some(100)),
        3 => "PullNull".to_owned(),
        4 => "Counter".to_owned(),
        _ => "PrioSched".to_owned(),
    }
}

fn drain(random: &mut Random) -> String {
    match random.below(8) {
        0 => format!("RatedUnqueue({})", 50 + random.some(1_000_000)),
        1 => format!("Unqueue({})", random.some(256)),
        2 => format!("BandwidthRatedUnqueue({}kBps)", 1 + random.some(100_000)),
        3 => format!("TimedUnqueue({}us, {})", 1 + random.below(10_000), random.some(300)),
        4 => format!("LinkUnqueue({}us, {}kbps)", random.below(5000), 100 + random.some(1_000_000)),
        5 => format!("DelayUnqueue({}us)", random.below(20_000)),
        6 => format!("RoundRobinUnqueue({})", random.some(256)),
        _ => "Unqueue2".to_owned(),
    }
}

fn make(random: &mut Random) -> Made {
    let capacity = random.some(1000);
    let queue = random.pick(&["Queue", "FullNoteQueue", "QuickNoteQueue", "ThreadSafeQueue"]);
    let mut text = format!("q :: {queue}({capacity});\n");
    let mut packets = 0;
    for n in 0..random.pick(&[1, 1, 2, 3]) {
        let (source, limit) = source(random, &format!("s{n}"));
        packets += limit;
        text += &source;
        for _ in 0..random.below(4) {
            write!(text, " -> {}", passed(random)).unwrap();
        }
        text += " -> q;\n";
    }
    text += "q";
    for _ in 0..random.below(3) {
        write!(text, " -> {}", shaper(random)).unwrap();
    }
    writeln!(text, " -> {} -> sink :: Counter -> Discard;", drain(random)).unwrap();
    Made { text, packets }
}

/// Virtual time after which whatever is left is stuck: the slowest drain here takes twenty packets a second.
const LONGEST_NS: u64 = 20_000_000_000_000;
const ROUND_NS: u64 = 1000;
const STEP_NS: u64 = 1_000_000;

fn check(seed: u64) {
    let mut random = Random(Rng::new(seed));
    let Made { text, packets } = make(&mut random);
    let mut rig = Rig::new(&World::new(), &text);
    let begin_ns = rig.bench.now_ns;
    let count = |rig: &Rig, handler: &str| rig.read(handler).parse::<usize>().unwrap();
    // Packets that had no room when the queue became shorter.
    let mut beyond = 0;
    let mut rounds = 0_u64;
    loop {
        let active = rig.graph.poll(&mut rig.bench.round());
        let lost = usize::try_from(rig.dropped(DropReason::QueueFull)).unwrap();
        assert!(
            lost <= beyond,
            "seed {seed}, round {rounds}: lost between source and queue\n{text}"
        );
        rounds += 1;
        let held = rig.graph.held().total();
        let due = rig.graph.due_ns();
        let now_ns = rig.bench.now_ns;
        if !active && held == 0 {
            let came = count(&rig, "sink.count");
            if came + lost == packets {
                break;
            }
            // Some elements keep time for ever.
            assert!(due.is_some(), "seed {seed}: of {packets} packets {came} came\n{text}");
        }
        let all = now_ns - begin_ns;
        assert!(all < LONGEST_NS, "seed {seed}: {held} packets stay behind\n{text}");
        rig.bench.now_ns += match due {
            _ if active => ROUND_NS,
            Some(due) if due > now_ns && held == 0 => due - now_ns,
            Some(due) if due > now_ns => (due - now_ns).min(STEP_NS),
            _ => STEP_NS,
        };
        if random.below(200) == 0 {
            // A queue may become shorter or longer meanwhile: it drops what has no room, and nothing else.
            let capacity = random.some(1000);
            beyond += count(&rig, "q.length").saturating_sub(capacity);
            rig.write("q.capacity", &capacity.to_string());
        }
    }
    assert_eq!(count(&rig, "q.drops"), 0, "seed {seed}\n{text}");
}

#[test]
fn click_notes_hold_sources_back_without_loss() {
    let begin = Instant::now();
    let soak = std::env::var("FINGERPOST_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let soak = Duration::from_secs(soak.unwrap_or(0));
    let mut graphs = 0;
    while graphs < 60 || begin.elapsed() < soak {
        graphs += 1;
        check(graphs);
    }
    println!("{graphs} graphs");
}

/// The property is one that queues without notes do not have.
#[test]
fn click_notes_are_what_holds_sources_back() {
    let text =
        "InfiniteSource(LIMIT 100, BURST 10) -> SimpleQueue(5) -> RatedUnqueue(100) -> Discard";
    let mut rig = Rig::new(&World::new(), text);
    for _ in 0..20 {
        rig.poll();
        rig.bench.now_ns += STEP_NS;
    }
    assert!(rig.dropped(DropReason::QueueFull) > 0);
}
