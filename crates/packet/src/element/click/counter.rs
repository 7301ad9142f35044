//! Counts packets and bytes that pass.
//!
//! Source: Click's `Counter`. Differs: a rate is that since it was last read, or since the start, not a
//! decaying mean, so that the reader decides the interval; and the workers do not look at the clock. A handler that is to
//! be called at a count is called behind the packet whose number is that of `COUNT_CALL`, or with which the bytes reach
//! `BYTE_COUNT_CALL`.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::element::support::caller::Caller;
use crate::element::support::setting::{Setting, value};
use crate::element::support::time;
use crate::frame::Batch;
use crate::frame::counters::{Count, PerWorker};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Counter", "1/1", "a/a", "x/x"),
    summary: "counts packets and bytes",
    configure: |setup| {
        let calls = [Call::read(setup, "COUNT_CALL"), Call::read(setup, "BYTE_COUNT_CALL")];
        setup.args.finish()?;
        let [count_call, byte_count_call] = calls;
        let (count_call, byte_count_call) = (count_call?, byte_count_call?);
        let shared = setup.keep::<Shared>();
        let each = shared.clone();
        let read = |name, value: fn(&Shared) -> String| {
            let shared = shared.clone();
            Handler::read(name, move || value(&shared))
        };
        let [calls, byte_calls] = [count_call.clone(), byte_count_call.clone()];
        let made = Made::new(move |instance| Counter {
            counts: each.counts.add(instance),
            shared: each.clone(),
            // A dry run changes nothing.
            calls: (!instance.is_dry_run()).then(|| [calls.clone(), byte_calls.clone()]),
        });
        let made = count_call.handled(made, "count_call");
        let made = byte_count_call
            .handled(made, "byte_count_call")
            .handler(read("count", |shared| shared.since_reset().packets.to_string()))
            .handler(read("byte_count", |shared| shared.since_reset().bytes.to_string()))
            .handler(read("rate", |shared| per_second(shared.rate(RATE).packets)))
            .handler(read("byte_rate", |shared| per_second(shared.rate(BYTE_RATE).bytes)))
            .handler(read("bit_rate", |shared| per_second(8.0 * shared.rate(BIT_RATE).bytes)));
        let both = shared.clone();
        let [again, byte_again] = [count_call, byte_count_call];
        let reset = move || {
            both.reset();
            again.arm();
            byte_again.arm();
        };
        Ok(made.command("reset", reset).command("reset_counts", move || shared.reset_counts()))
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
    read: [(u64, Totals); 3],
}

impl Default for Marks {
    fn default() -> Self {
        Self { reset: Totals::default(), read: [(time::now_ns(), Totals::default()); 3] }
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
        *marks = Marks { reset: totals, read: [(time::now_ns(), totals); 3] };
    }

    /// Lets counts begin again, and rates continue.
    fn reset_counts(&self) {
        let mut marks = self.marks();
        marks.reset = self.totals();
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate is not exact")]
    fn rate(&self, reader: usize) -> Rates {
        let mut marks = self.marks();
        let (now_ns, totals) = (time::now_ns(), self.totals());
        let (then_ns, before) = std::mem::replace(&mut marks.read[reader], (now_ns, totals));
        let seconds = (now_ns.saturating_sub(then_ns) as f64 / 1e9).max(1e-9);
        Rates {
            packets: (totals.packets - before.packets) as f64 / seconds,
            bytes: (totals.bytes - before.bytes) as f64 / seconds,
        }
    }
}

fn per_second(rate: f64) -> String {
    format!("{rate:.3}")
}

/// A handler that is called when a count reaches a number: `3 b.active true`.
#[derive(Clone)]
pub(super) struct Call {
    caller: Caller,
    at: Arc<Mutex<Option<(u64, String)>>>,
    /// It is still to be called.
    armed: Setting<bool>,
}

impl Call {
    pub(super) fn read(setup: &mut Setup<'_>, keyword: &'static str) -> Result<Self, ConfigError> {
        let arg = setup.args.keyword_arg(keyword)?;
        let call =
            Self { caller: Caller::of(setup), at: Arc::default(), armed: Setting::new(false) };
        if let Some(arg) = arg
            && let Err(words) = call.set(arg.raw())
        {
            return Err(setup.args.refuse(&arg, &format!("{keyword}: {words}")));
        }
        Ok(call)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(u64, String)>> {
        // A number and a text are whole whatever panicked.
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, text: &str) -> Result<(), String> {
        let text = text.trim();
        let (count, call) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if call.trim().is_empty() && !text.is_empty() {
            return Err("expected a count, a handler and its value".into());
        }
        let at = match text {
            "" => None,
            _ => Some((value::<u64>(count)?, call.trim().to_owned())),
        };
        *self.lock() = at;
        self.arm();
        Ok(())
    }

    fn arm(&self) {
        let any = self.lock().is_some();
        self.armed.change(|_| any);
    }

    /// Whether it is still to be called.
    pub(super) fn is_armed(&self) -> bool {
        self.armed.get()
    }

    /// Calls it, if the count is reached: `exact` where only that count will do.
    pub(super) fn reached(&self, exact: bool, count: impl Fn() -> u64) {
        if !self.armed.get() {
            return;
        }
        let Some((at, call)) = self.lock().clone() else { return };
        let count = count();
        if count == at || !exact && count > at {
            self.armed.change(|_| false);
            self.caller.call(&call);
        }
    }

    /// Adds the handlers that read and write it.
    pub(super) fn handled(&self, made: Made, name: &'static str) -> Made {
        let [read, write] = [(); 2].map(|()| self.clone());
        made.handler(Handler::read(name, move || {
            read.lock().as_ref().map_or_else(String::new, |(at, call)| format!("{at} {call}"))
        }))
        .handler(Handler::write(name, move |text| write.set(text)))
    }
}

struct Counter {
    counts: Arc<Counts>,
    shared: Arc<Shared>,
    calls: Option<[Call; 2]>,
}

impl Counter {
    fn count(&self, batch: &Batch, packets: Range<usize>) {
        self.counts.packets.add(packets.len() as u64);
        self.counts.bytes.add(packets.map(|i| batch.frame_len(i) as u64).sum());
    }
}

impl Element for Counter {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let Some([packets, bytes]) = &self.calls else {
            return self.count(batch, 0..batch.len());
        };
        if !packets.is_armed() && !bytes.is_armed() {
            return self.count(batch, 0..batch.len());
        }
        for i in 0..batch.len() {
            self.count(batch, i..i + 1);
            packets.reached(true, || self.shared.since_reset().packets);
            bytes.reached(false, || self.shared.since_reset().bytes);
        }
    }
}
