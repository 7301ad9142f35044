//! Delays packets: `DelayUnqueue(20ms)` keeps each for this time and hands it on, `DelayShaper` until it is
//! pulled.
//!
//! Source: Click's elements of these names. The delay counts from the time that a packet has; it leaves with that time
//! and the delay, or from `DelayShaper` with the present time. Differs: without one it counts from when this
//! element took the packet, which is at once while it has room (`CAPACITY`, 1,000 packets); then they wait before it.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::element::support::setting::value;
use crate::element::support::time::nanoseconds;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{Batch, DropReason, FLAG_GENERATED, PacketQueue};
use crate::graph::{Context, Element, ElementClass, Held, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError};

pub(crate) const UNQUEUE: ElementClass = ElementClass {
    spec: spec("DelayUnqueue", "l/h"),
    summary: "pulls packets and hands them on after a time",
    configure: |setup| configure(setup, true),
};

pub(crate) const SHAPER: ElementClass = ElementClass {
    spec: spec("DelayShaper", "l/l"),
    summary: "gives packets on pull after a time",
    configure: |setup| Ok(configure(setup, false)?.polled()),
};

const fn spec(name: &'static str, processing: &'static str) -> ClassSpec {
    ClassSpec::new(name, "1/1", processing, "x/y")
}

fn configure(setup: &mut Setup<'_>, hands_on: bool) -> Result<Made, ConfigError> {
    let delay = setup.args.positional::<Duration>("DELAY");
    let capacity = setup.args.keyword("CAPACITY");
    setup.args.finish()?;
    let delay_ns = Arc::new(AtomicU64::new(nanoseconds(delay?)));
    let (read, write, each) = (delay_ns.clone(), delay_ns.clone(), delay_ns);
    // As a queue.
    let capacity: u16 = capacity?.unwrap_or(1000);
    let lengths = setup.keep::<PerWorker<Count>>();
    let shown = lengths.clone();
    let made = Made::new(move |instance| Delay {
        delay_ns: each.clone(),
        capacity: capacity.into(),
        hands_on,
        kept: Kept {
            packets: PacketQueue::with_room(capacity.into()),
            since: VecDeque::with_capacity(capacity.into()),
            held: Held::default(),
        },
        length: lengths.add(instance),
    });
    let made = made.holds(capacity.into()).counter("length", &shown);
    Ok(made
        .handler(Handler::read("delay", move || {
            format!("{:.6}", Duration::from_nanos(read.load(Relaxed)).as_secs_f64())
        }))
        .handler(Handler::write("delay", move |text| {
            write.store(nanoseconds(value(text)?), Relaxed);
            Ok(())
        })))
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// How old packet `i` is by its time; 0 without one.
#[cfg(feature = "click")]
fn age_ns(batch: &Batch, i: usize, now_ns: u64) -> i64 {
    use crate::element::click::only::{annotations::Annotations, clock};
    match Annotations::of(batch, i).timestamp_ns {
        0 => 0,
        time => clock::time_of_day(now_ns).saturating_sub(time),
    }
}

/// Packets have no times where no element gives them any.
#[cfg(not(feature = "click"))]
fn age_ns(_: &Batch, _: usize, _: u64) -> i64 {
    0
}

/// Gives packet `i` the time of `ago_ns` before now.
#[cfg(feature = "click")]
pub(super) fn stamp(batch: &mut Batch, i: usize, now_ns: u64, ago_ns: i64) {
    use crate::element::click::only::{annotations::Annotations, clock};
    let mut annotations = Annotations::of(batch, i);
    annotations.timestamp_ns = clock::time_of_day(now_ns).saturating_sub(ago_ns);
    annotations.set(batch, i);
}

#[cfg(not(feature = "click"))]
pub(super) fn stamp(_: &mut Batch, _: usize, _: u64, _: i64) {}

struct Delay {
    /// Relaxed: nothing else depends on it.
    delay_ns: Arc<AtomicU64>,
    capacity: usize,
    /// Whether it pushes without a pull.
    hands_on: bool,
    kept: Kept,
    length: Arc<Count>,
}

/// Packets, and since when each is delayed, by the clock of the worker, which began at 0.
struct Kept {
    packets: PacketQueue,
    since: VecDeque<i64>,
    held: Held,
}

impl Delay {
    /// Takes what waits at the input, as far as there is room; `batch` is empty before and after.
    fn take(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        batch.set_limit(self.capacity.saturating_sub(self.kept.packets.len()));
        inputs.pull(0, batch, cx);
        batch.set_limit(crate::frame::BATCH);
        for i in 0..batch.len() {
            self.kept.held.add(batch.meta()[i].flags & FLAG_GENERATED != 0);
            let since = signed(cx.now_ns).saturating_sub(age_ns(batch, i, cx.now_ns));
            self.kept.packets.take(batch, i);
            self.kept.since.push_back(since);
        }
        batch.clear();
    }

    /// Gives what has waited long enough.
    fn give(&mut self, into: &mut Batch, now_ns: u64) {
        let (now, delay_ns) = (signed(now_ns), signed(self.delay_ns.load(Relaxed)));
        let ripe = |&&since: &&i64| now.saturating_sub(since) >= delay_ns;
        let count = self.kept.since.iter().take(into.room()).take_while(ripe).count();
        let (before, wanted) = (into.len(), into.len() + into.room());
        into.set_limit(before + count);
        self.kept.packets.give(into);
        into.set_limit(wanted);
        for (i, since) in self.kept.since.drain(..count).enumerate() {
            let late = now.saturating_sub(since).saturating_sub(delay_ns);
            stamp(into, before + i, now_ns, if self.hands_on { late } else { 0 });
        }
        for meta in &into.meta()[before..] {
            self.kept.held.remove(meta.flags & FLAG_GENERATED != 0);
        }
    }

    fn count_length(&self) {
        self.length.set(self.kept.packets.len() as u64);
    }
}

impl Element for Delay {
    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.take(batch, inputs, cx);
        if self.hands_on {
            self.give(batch, cx.now_ns);
        }
        self.count_length();
    }

    fn pull(&mut self, _: u16, into: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.give(into, cx.now_ns);
        self.count_length();
    }

    fn held(&self) -> Held {
        self.kept.held
    }

    fn hand_over(&mut self) -> Option<Box<dyn Any + Send>> {
        let none = Kept {
            packets: PacketQueue::with_room(0),
            since: VecDeque::new(),
            held: Held::default(),
        };
        let kept = std::mem::replace(&mut self.kept, none);
        self.count_length();
        Some(Box::new(kept))
    }

    fn take_over(&mut self, state: Box<dyn Any + Send>) {
        if let Ok(kept) = state.downcast::<Kept>() {
            self.kept = *kept;
            self.count_length();
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        while let Some(packet) = self.kept.packets.pop() {
            cx.drop_packet(packet, DropReason::Shutdown);
        }
        self.kept.since.clear();
        self.kept.held = Held::default();
        self.count_length();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    fn delays(each: impl Fn(&str)) {
        for class in ["DelayUnqueue", "DelayShaper"] {
            each(class);
        }
    }

    #[test]
    fn packets_go_on_after_the_time() {
        delays(|class| {
            let text = format!("FromDevice(a) -> Queue -> d :: {class}(20ms) -> ToDevice(b)");
            let mut rig = Rig::new(&World::new(), &text);
            let mut sent = Vec::new();
            for ms in 0..50_u8 {
                rig.bench.now_ns += 1_000_000;
                if ms % 10 == 0 {
                    rig.receive("a", &[&[ms], &[ms + 1]]);
                }
                sent.extend(rig.poll().into_iter().map(|(_, frame)| (ms, frame[0])));
            }
            let want = [(20, 0), (20, 1), (30, 10), (30, 11), (40, 20), (40, 21)];
            assert_eq!((&sent[..], rig.read("d.length")), (&want[..], "4".into()), "{class}");
            assert_eq!(rig.read("d.delay"), "0.020000");
            rig.write("d.delay", "1ms");
            rig.bench.now_ns += 1_000_000;
            assert_eq!(rig.poll().len(), 4, "{class}");
        });
    }

    #[cfg(feature = "click")]
    #[test]
    fn the_delay_counts_from_the_time_of_a_packet() {
        use crate::element::click::only::console;
        for (class, want) in [("DelayUnqueue(3s)", "4.000000\n"), ("DelayShaper(3s)", "")] {
            console::collect();
            let text = format!(
                "FromIPSummaryDump(DATA \"!data timestamp ip_src\n1 1.0.0.1\") -> Queue -> {class}
                    -> ToIPSummaryDump(-, HEADER false, FIELDS timestamp)"
            );
            let mut rig = Rig::new(&World::new(), &text);
            (0..5).for_each(|_| drop(rig.poll()));
            // It is from long ago.
            let out = console::collected().out;
            assert!(out.lines().count() == 1 && (want.is_empty() || out == want), "{class}: {out}");
            assert_eq!(out.len() > 10, want.is_empty(), "the present time: {out}");
        }
    }

    #[test]
    fn room_is_bounded_and_what_waits_is_handed_over() {
        delays(|class| {
            let text = format!(
                "FromDevice(a) -> q :: Queue(9) -> d :: {class}(1s, CAPACITY 3) -> ToDevice(b)"
            );
            let mut rig = Rig::new(&World::new(), &text);
            rig.receive("a", &[&[1], &[2], &[3], &[4], &[5]]);
            assert!(rig.poll().is_empty());
            assert_eq!((rig.read("d.length"), rig.read("q.length")), ("3".into(), "2".into()));
            rig.replace(&text.replace("1s", "2s")).unwrap();
            rig.bench.now_ns += 1_500_000_000;
            assert!(rig.poll().is_empty());
            rig.bench.now_ns += 500_000_000;
            let sent: Vec<_> = rig.poll().into_iter().map(|sent| sent.1[0]).collect();
            assert_eq!(sent, [1, 2, 3], "{class}");
            // What came after waits its own time.
            rig.poll();
            assert_eq!(rig.read("d.length"), "2");
            rig.graph.stop(&mut rig.bench.round());
            assert_eq!(rig.dropped(DropReason::Shutdown), 2);
        });
        assert!(refused(&UNQUEUE, "").contains("argument DELAY is missing"));
        assert!(refused(&SHAPER, "soon").contains("`soon` is no time"));
    }
}
