//! `AverageCounter` counts packets and bytes, and gives their rates from the first packet to the last.
//!
//! Source: Click's `AverageCounter`. `IGNORE` seconds at the start are left out of the rates.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::element::support::time::nanoseconds;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("AverageCounter", "1/1", "a/a", "x/x"),
    summary: "counts packets and gives their average rate",
    configure: |setup| {
        let ignore = setup.args.optional::<Duration>("IGNORE");
        setup.args.finish()?;
        let ignore_ns = nanoseconds(ignore?.unwrap_or_default());
        let shared = Arc::new(Mutex::new(Counted::default()));
        let read = |name, value: fn(&Counted) -> String| {
            let shared = shared.clone();
            Handler::read(name, move || value(&lock(&shared)))
        };
        let [each, reset] = [(); 2].map(|()| shared.clone());
        Ok(Made::new(move |instance| Counter {
            // A dry run counts for itself.
            counted: if instance.is_dry_run() { Arc::default() } else { each.clone() },
            ignore_ns,
        })
        .handler(read("count", |counted| counted.packets.to_string()))
        .handler(read("byte_count", |counted| counted.bytes.to_string()))
        .handler(read("rate", |counted| counted.rate(counted.packets_late)))
        .handler(read("byte_rate", |counted| counted.rate(counted.bytes_late)))
        .command("reset", move || *lock(&reset) = Counted::default()))
    },
};

#[derive(Default)]
struct Counted {
    packets: u64,
    bytes: u64,
    /// Packets after the ignored time.
    packets_late: u64,
    bytes_late: u64,
    first_ns: Option<u64>,
    /// Where the rates begin.
    from_ns: u64,
    last_ns: u64,
}

impl Counted {
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    fn rate(&self, count: u64) -> String {
        // Of less than a millisecond there is none.
        let time_ns = self.last_ns.saturating_sub(self.from_ns).max(1_000_000);
        (count as f64 * 1e9 / time_ns as f64).to_string()
    }
}

fn lock(counted: &Mutex<Counted>) -> std::sync::MutexGuard<'_, Counted> {
    // Counts are whole whatever panicked.
    counted.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Counter {
    counted: Arc<Mutex<Counted>>,
    ignore_ns: u64,
}

impl Element for Counter {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let mut counted = lock(&self.counted);
        let first = *counted.first_ns.get_or_insert(cx.now_ns);
        let (packets, bytes) = (batch.len() as u64, batch.total_bytes());
        counted.packets += packets;
        counted.bytes += bytes;
        counted.last_ns = cx.now_ns;
        counted.from_ns = first.saturating_add(self.ignore_ns);
        if cx.now_ns >= counted.from_ns {
            counted.packets_late += packets;
            counted.bytes_late += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn rates_are_those_of_the_whole_time() {
        let mut rig =
            Rig::new(&World::new(), "FromDevice(a) -> c :: AverageCounter -> ToDevice(b)");
        for _ in 0..11 {
            rig.receive("a", &[&[7; 10]]);
            rig.bench.now_ns += 100_000_000;
        }
        let shown =
            ["count", "byte_count", "rate", "byte_rate"].map(|name| rig.read(&format!("c.{name}")));
        assert_eq!(shown, ["11", "110", "11", "110"]);
        rig.write("c.reset", "");
        assert_eq!(rig.read("c.count"), "0");
    }
}
