//! What the elements and workers of such a router do, as global handlers: `stats`, `workers`, `cycles`.
//!
//! Elements are timed only while somebody wants that: two looks at the processor's clock a batch and element. A
//! replaced configuration continues to be timed, an element of the same name and class from what it had.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fingerpost_lpm::simd::Ticks;
use fingerpost_packet::graph::NodeCounters;
use fingerpost_packet::graph::worker::Command;
use fingerpost_packet::handler::Handler;
use fingerpost_packet::language::Value;
use fingerpost_packet::{Plan, WorkerCounters};

use super::report;
use super::workers::{Orders, Workers};

/// What handlers see of a router, whatever it is replaced by.
#[derive(Clone)]
pub(super) struct Seeing {
    orders: Arc<[Orders]>,
    counters: Arc<[Arc<WorkerCounters>]>,
    timing: Arc<Mutex<Timing>>,
}

enum Timing {
    /// What elements took until they were timed no longer.
    Off(String),
    /// What they had counted when it began.
    Since(HashMap<String, Counted>),
}

/// What an element counted, in all workers.
#[derive(Clone, Copy, Default)]
struct Counted {
    packets: u64,
    ticks: u64,
}

/// The elements of a configuration, and what they count in each worker.
#[derive(Clone)]
struct Elements {
    plan: Plan,
    nodes: Vec<Arc<[NodeCounters]>>,
}

impl Elements {
    /// Each with its class and counts.
    fn counted(&self) -> impl Iterator<Item = (&str, &'static str, Counted)> {
        self.plan.nodes().iter().enumerate().map(|(at, node)| {
            let each = || self.nodes.iter().filter_map(move |worker| worker.get(at));
            let packets = each().map(|node| node.packets.read()).sum();
            let ticks = each().map(|node| node.ticks.read()).sum();
            (&*node.name, node.class.spec.name, Counted { packets, ticks })
        })
    }

    /// A line each: name, class, packets and cycles a packet since then.
    #[allow(clippy::cast_precision_loss, reason = "averages for people")]
    fn cycles(&self, since: &HashMap<String, Counted>) -> String {
        let mut text = String::new();
        for (name, class, now) in self.counted() {
            let before = since.get(name).copied().unwrap_or_default();
            // An element of the same name and another class begins anew.
            let packets = now.packets.checked_sub(before.packets).unwrap_or(now.packets);
            let ticks = now.ticks.checked_sub(before.ticks).unwrap_or(now.ticks);
            let _ = write!(text, "{name}\t{class}\t{packets}\t");
            let _ = match packets {
                0 => writeln!(text, "-"),
                _ => writeln!(text, "{:.1}", ticks as f64 / packets as f64),
            };
        }
        text
    }
}

impl Seeing {
    pub(super) fn new(workers: &Workers) -> Self {
        let timing = Arc::new(Mutex::new(Timing::Off(String::new())));
        Self { orders: workers.orders(), counters: workers.counters().cloned().collect(), timing }
    }

    /// The handlers of the present configuration.
    pub(super) fn handlers(&self, plan: &Plan, workers: &Workers) -> Vec<Handler> {
        let elements = Elements { plan: plan.clone(), nodes: workers.nodes() };
        let stats = elements.clone();
        let (all, read, timed) = (self.clone(), self.clone(), self.clone());
        let mine = elements.clone();
        vec![
            Handler::read("stats", move || report::stats(&stats.plan, &stats.nodes)),
            Handler::read("workers", move || all.shares()),
            Handler::read("cycles", move || match &*read.timing() {
                Timing::Off(text) => text.clone(),
                Timing::Since(since) => mine.cycles(since),
            }),
            Handler::write("cycles", move |text| {
                let on = bool::read(text).map_err(|what| format!("`{text}` is {what}"))?;
                timed.time(on, &elements)
            }),
        ]
    }

    /// A line each: number, packets in, out, dropped, held and of its own making.
    fn shares(&self) -> String {
        let mut text = String::new();
        for (number, counters) in self.counters.iter().enumerate() {
            let (came, left) = (counters.packets_in.read(), counters.packets_out.read());
            let (dropped, held) = (counters.dropped_total(), counters.held.read());
            let made = counters.generated.read();
            let _ = writeln!(text, "{number}\t{came}\t{left}\t{dropped}\t{held}\t{made}");
        }
        text
    }

    /// Begins to time elements, anew where they are timed already, or ends it.
    fn time(&self, on: bool, elements: &Elements) -> Result<(), String> {
        if Ticks::detect().is_none() {
            return Err("this processor has no clock to count by".to_owned());
        }
        let mut timing = self.timing();
        *timing = match (&*timing, on) {
            (_, true) => {
                let counted = elements.counted();
                Timing::Since(
                    counted.map(|(name, _, counted)| (name.to_owned(), counted)).collect(),
                )
            }
            (Timing::Since(since), false) => Timing::Off(elements.cycles(since)),
            (Timing::Off(_), false) => return Ok(()),
        };
        self.orders.iter().for_each(|worker| worker.tell(Command::Time(on)));
        Ok(())
    }

    fn timing(&self) -> MutexGuard<'_, Timing> {
        // Whole whatever panicked beside it.
        self.timing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
