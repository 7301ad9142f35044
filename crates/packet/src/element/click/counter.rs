//! Counts packets and bytes that pass.
//!
//! Source: Click's `Counter`. Differs: a rate is that since it was last read, or since the start, not a
//! decaying mean, so that the reader decides the interval; and the workers do not look at the clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::frame::Batch;
use crate::frame::counters::{Count, PerWorker};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Counter", "1/1", "a/a", "x/x"),
    summary: "counts packets and bytes",
    configure: |setup| {
        setup.args.finish()?;
        let shared = setup.keep::<Shared>();
        let each = shared.clone();
        let read = |name, value: fn(&Shared) -> String| {
            let shared = shared.clone();
            Handler::read(name, move || value(&shared))
        };
        let made = Made::new(move |instance| Counter(each.counts.add(instance)))
            .handler(read("count", |shared| shared.since_reset().packets.to_string()))
            .handler(read("byte_count", |shared| shared.since_reset().bytes.to_string()))
            .handler(read("rate", |shared| per_second(shared.rate(RATE).packets)))
            .handler(read("byte_rate", |shared| per_second(shared.rate(BYTE_RATE).bytes)))
            .handler(read("bit_rate", |shared| per_second(8.0 * shared.rate(BIT_RATE).bytes)));
        Ok(made.command("reset", move || shared.reset()))
    },
};

/// Handler of the rate: each has its own last time.
const RATE: usize = 0;
const BYTE_RATE: usize = 1;
const BIT_RATE: usize = 2;

#[derive(Default)]
struct Counts {
    packets: Count,
    bytes: Count,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    packets: u64,
    bytes: u64,
}

struct Rates {
    packets: f64,
    bytes: f64,
}

/// What handlers reach.
#[derive(Default)]
struct Shared {
    counts: PerWorker<Counts>,
    marks: Mutex<Marks>,
}

/// What had been counted at earlier times.
struct Marks {
    reset: Totals,
    read: [(Instant, Totals); 3],
}

impl Default for Marks {
    fn default() -> Self {
        Self { reset: Totals::default(), read: [(Instant::now(), Totals::default()); 3] }
    }
}

impl Shared {
    fn totals(&self) -> Totals {
        let packets = self.counts.sum(|counts| counts.packets.read());
        Totals { packets, bytes: self.counts.sum(|counts| counts.bytes.read()) }
    }

    fn marks(&self) -> std::sync::MutexGuard<'_, Marks> {
        // Numbers are whole whatever panicked beside them.
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since_reset(&self) -> Totals {
        // Locked first: what is reset in between would be more than what was counted before.
        let marks = self.marks();
        let (now, then) = (self.totals(), marks.reset);
        Totals { packets: now.packets - then.packets, bytes: now.bytes - then.bytes }
    }

    fn reset(&self) {
        let mut marks = self.marks();
        let totals = self.totals();
        *marks = Marks { reset: totals, read: [(Instant::now(), totals); 3] };
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate is not exact")]
    fn rate(&self, reader: usize) -> Rates {
        let mut marks = self.marks();
        let (now, totals) = (Instant::now(), self.totals());
        let (then, before) = std::mem::replace(&mut marks.read[reader], (now, totals));
        let seconds = (now - then).as_secs_f64().max(1e-9);
        Rates {
            packets: (totals.packets - before.packets) as f64 / seconds,
            bytes: (totals.bytes - before.bytes) as f64 / seconds,
        }
    }
}

fn per_second(rate: f64) -> String {
    format!("{rate:.3}")
}

struct Counter(Arc<Counts>);

impl Element for Counter {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        self.0.packets.add(batch.len() as u64);
        self.0.bytes.add((0..batch.len()).map(|i| batch.frame_len(i) as u64).sum());
    }
}
