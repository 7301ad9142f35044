//! Any scripts in a small graph, for tests and the fuzzer: they run in virtual time, for a bounded number of steps.
//!
//! The text of an input is the instructions of four scripts with `~` between them: of one that starts by itself, of a passive
//! one, of one for packets, and of the manager. Others may stand behind a parenthesis that is closed early, where all classes
//! are those of the graph.

use super::{Bench, World};
use crate::classes::ELEMENTS;
use crate::element::click::only::clock;
use crate::element::click::only::script::bound_jumps;
use crate::element::support::console::{self, Written};
use crate::element::support::time;
use crate::frame::Pool;
use crate::graph::{Graph, Plan};
use crate::language::Language;
use crate::language::open_policy::OpenPolicy;

/// Classes that a graph may have: none opens anything, or takes much memory.
const CLASSES: &[&str] = &[
    "AddressInfo",
    "AverageCounter",
    "Counter",
    "Discard",
    "DriverManager",
    "Idle",
    "InfiniteSource",
    "Null",
    "Paint",
    "Queue",
    "RatedUnqueue",
    "Script",
    "Strip",
    "Switch",
    "Tee",
    "Unqueue",
];

/// Jumps and runs in one go: enough for each instruction of a short loop.
const JUMPS: usize = 300;
/// Rounds of the worker.
const ROUNDS: u64 = 40;
/// Bytes of the longest text.
const MOST_BYTES: usize = 4096;

/// The configuration of an input.
fn configuration(text: &str) -> String {
    let mut parts = text.splitn(4, '~');
    let [active, passive, packet, manager] = [(); 4].map(|()| parts.next().unwrap_or_default());
    format!(
        "i :: InfiniteSource(LIMIT 20, BURST 3, STOP true) -> w :: Switch(0)
            -> k :: Script(TYPE PACKET, {packet}) -> q :: Queue(5) -> u :: Unqueue(1, ACTIVE true) -> c :: Counter -> Discard;
         k [1] -> n :: Null -> Discard; w [1] -> r :: Queue(9) -> t :: RatedUnqueue(100) -> d :: Discard;
         s :: Script({active}); p :: Script(TYPE PASSIVE, {passive}); DriverManager({manager})"
    )
}

/// What the scripts of a configuration write, where it is one; checks that no packet is lost.
fn run(text: &str) -> Option<Written> {
    let policy = OpenPolicy::default().known_only();
    let read = Language::new(ELEMENTS).opening(policy).read("a.click", text).ok()?;
    if read.elements().iter().any(|element| !CLASSES.contains(&element.class.name)) {
        return None;
    }
    let plan = Plan::of(&read, ELEMENTS).ok()?;
    let mut bench = Bench { pool: Pool::new(128, 2048), ..Bench::new(&World::new()) };
    let handlers = std::sync::Arc::new(plan.handlers(read));
    plan.installed().install(&handlers);
    let mut graph = Graph::new(&plan, &bench.pool);
    clock::begin(1_000_000_000_000_000_000);
    time::seed(1);
    bound_jumps(JUMPS);
    console::collect();
    for round in 0..ROUNDS {
        if plan.is_stopped() {
            break;
        }
        graph.poll(&mut bench.round());
        if round % 8 == 5 {
            // Whoever calls handlers, as a control socket does.
            let _ = handlers.read("p.run", "7 'a b'");
            let _ = handlers.write("s.step", "");
            let _ = handlers.write("s.goto", "x");
        }
        let held = graph.held().total();
        assert_eq!(bench.pool.free() + held, bench.pool.frames(), "every frame is somewhere");
        let soon = bench.now_ns + 1_000_000;
        bench.now_ns = graph.due_ns().unwrap_or(0).clamp(soon, soon + 1_000_000_000);
    }
    graph.stop(&mut bench.round());
    assert_eq!(bench.pool.free(), bench.pool.frames(), "every frame came back");
    bound_jumps(1_000_000);
    Some(console::collected())
}

/// What must hold of any scripts: they come to an end, no packet is lost, and they write the same when they run again.
///
/// # Panics
/// Where it does not hold.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if text.len() > MOST_BYTES {
        return;
    }
    let text = configuration(text);
    assert_eq!(run(&text), run(&text), "the second run differs");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_an_input_run() {
        let text = configuration("print $(p.run 1), wait 1s, label x, write w.switch 1, print $(now)~return $(add $1 2)~return $(if $(lt $(c.count) 4) 0 1)~
            pause, print $(c.count) $(n.class) $(d.count), stop");
        let Written { out, err } = run(&text).unwrap();
        assert_eq!(err, "");
        assert!(out.starts_with("3\n1000000002."), "{out}");
        for text in [
            "",
            "~~~",
            "goto begin, é",
            "print >/etc/passwd x",
            "print x); ToDump(/nowhere",
            "print '",
        ] {
            check(text.as_bytes());
        }
        assert!(run(&configuration("x); Idle -> ToDump(/nowhere")).is_none());
    }
}
