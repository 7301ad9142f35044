//! `CoDel(TARGET, INTERVAL)` drops packets that waited in a queue for too long: when none waited for less than the
//! target in an interval, one is dropped, and others at ever shorter intervals until the queue is short again.
//!
//! Source: Click's `CoDel`; RFC 8289. How long a packet waited is the time since its first timestamp, which
//! `SetTimestamp(FIRST true)` before the queue gives it; what has none passes. What passes has the time that it waited
//! there instead. Defaults are those of the RFC, 5 ms and 100 ms; a whole number without a unit is in milliseconds. A
//! queue of one packet is never too long. Differs: what it drops leaves by the second output, where it is used; it also
//! takes what is pushed.

use std::sync::Arc;
use std::time::Duration;

use super::annotations::Annotations;
use super::clock;
use super::each::sorting;
use super::nearest::Queues;
use crate::element::support::setting::{Setting, value};
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Exit, Made};
use crate::handler::Handler;
use crate::language::Value;

pub(crate) const CLASS: ElementClass =
    sorting("CoDel", &["out", "late"], "drops packets that waited for too long", |setup| {
        let target = setup.args.optional::<Millis>("TARGET");
        let interval = setup.args.optional::<Millis>("INTERVAL");
        let queues = Queues::read(setup);
        setup.args.finish()?;
        let target =
            Setting::new(micros(target?.map_or(Duration::from_millis(5), |target| target.0)));
        let interval = Setting::new(micros(
            interval?.map_or(Duration::from_millis(100), |interval| interval.0),
        ));
        let queues = queues?;
        let exit = setup.exit(1, DropReason::QueueFull);
        let drops = setup.keep::<PerWorker<Count>>();
        let made = Made::new({
            let (target, interval) = (target.clone(), interval.clone());
            let (queues, drops) = (queues.clone(), drops.clone());
            move |instance| CoDel {
                target_us: target.clone(),
                interval_us: interval.clone(),
                queues: queues.clone(),
                state: State::default(),
                exit,
                drops: drops.add(instance),
            }
        });
        let (names, lengths, count) = (queues.names.clone(), queues, drops.clone());
        let made = made
            .counter("drops", &drops)
            .handler(Handler::read("queues", move || names.to_string()))
            .handler(Handler::read("stats", move || {
                format!("{} current queue\n{} drops\n", lengths.length(), count.sum(Count::read))
            }));
        let made = timed(timed(made, "codel_target", &target), "target", &target);
        Ok(timed(timed(made, "codel_interval", &interval), "interval", &interval))
    });

/// A time, in milliseconds where it is a whole number without a unit.
struct Millis(Duration);

impl Value for Millis {
    fn read(text: &str) -> Result<Self, String> {
        let whole = u32::read(text).map(|ms| Duration::from_millis(ms.into()));
        whole.or_else(|_| Duration::read(text)).map(Self)
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1)
}

/// Adds handlers that read and change a time.
fn timed(made: Made, name: &'static str, time: &Setting<u32>) -> Made {
    let (shown, set) = (time.clone(), time.clone());
    let read = move || format!("{:.6}", f64::from(shown.get()) / 1e6);
    made.handler(Handler::read(name, read)).handler(Handler::write(name, move |text| {
        let given = micros(value::<Duration>(text)?);
        set.change(|_| given);
        Ok(())
    }))
}

/// State of the control law (RFC 8289, 5.3).
#[derive(Default)]
struct State {
    /// When the wait will have been above the target for an interval; 0 where it is below.
    above_until_ns: u64,
    /// Packets end, the next at `next_ns`; so many since that began.
    dropping: bool,
    next_ns: u64,
    count: u32,
    last_count: u32,
}

impl State {
    /// Whether a packet that waited so long ends.
    fn ends(
        &mut self,
        now_ns: u64,
        waited_ns: u64,
        alone: bool,
        target_ns: u64,
        interval_ns: u64,
    ) -> bool {
        let late = if waited_ns < target_ns || alone {
            self.above_until_ns = 0;
            false
        } else if self.above_until_ns == 0 {
            self.above_until_ns = now_ns + interval_ns;
            false
        } else {
            now_ns >= self.above_until_ns
        };
        if !late {
            self.dropping = false;
            return false;
        }
        if !self.dropping {
            self.dropping = true;
            // Soon after the last time it begins where that ended.
            let recent = now_ns.saturating_sub(self.next_ns) < 16 * interval_ns;
            let more = self.count - self.last_count;
            self.count = if recent && more > 1 { more } else { 1 };
            self.last_count = self.count;
            self.next_ns = law(now_ns, interval_ns, self.count);
            return true;
        }
        if now_ns < self.next_ns {
            return false;
        }
        self.count += 1;
        self.next_ns = law(self.next_ns, interval_ns, self.count);
        true
    }
}

/// When the next packet ends: after the interval divided by the square root of how many did.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an interval of microseconds is exact enough"
)]
fn law(from_ns: u64, interval_ns: u64, count: u32) -> u64 {
    from_ns + (interval_ns as f64 / f64::from(count.max(1)).sqrt()) as u64
}

struct CoDel {
    target_us: Setting<u32>,
    interval_us: Setting<u32>,
    queues: Queues,
    state: State,
    exit: Exit,
    drops: Arc<Count>,
}

impl Element for CoDel {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let now = clock::time_of_day(cx.now_ns);
        let ns = |setting: &Setting<u32>| u64::from(setting.get()) * 1000;
        let (target_ns, interval_ns) = (ns(&self.target_us), ns(&self.interval_us));
        let length = self.queues.length() + batch.len() as u64;
        for i in 0..batch.len() {
            let mut annotations = Annotations::of(batch, i);
            if annotations.first_ns == 0 {
                continue;
            }
            let waited = now.saturating_sub(annotations.first_ns).max(0);
            annotations.first_ns = waited;
            annotations.set(batch, i);
            let waited_ns = waited.unsigned_abs();
            let alone = length - i as u64 <= 1;
            if self.state.ends(cx.now_ns, waited_ns, alone, target_ns, interval_ns) {
                self.drops.add(1);
                self.exit.take(batch, i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::element::click::only::console;
    use crate::testing::{Rig, World};

    const MS: u64 = 1_000_000;

    #[test]
    fn packets_end_while_the_queue_stands() {
        let text = "FromDevice(a) -> SetTimestamp(FIRST true) -> q :: Queue(1000) -> c :: CoDel -> Shaper(1000, BURST_SIZE 1) -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        rig.bench.now_ns = 1000 * MS;
        // 50 wait from the beginning, and as many come as are sent.
        rig.receive("a", &[&[7][..]; 50]);
        let mut ended = Vec::new();
        for ms in 0..600 {
            rig.bench.now_ns += MS;
            rig.receive("a", &[&[7]]);
            rig.poll();
            let drops: u64 = rig.read("c.drops").parse().unwrap();
            if drops > ended.len() as u64 {
                ended.push(ms);
            }
        }
        assert!(ended.len() >= 8, "{ended:?}");
        assert!((99..=110).contains(&ended[0]), "an interval above the target: {ended:?}");
        let gaps: Vec<_> = ended.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps[0] >= 70 && gaps[5] < gaps[0], "ever shorter: {gaps:?}");
        assert_eq!(
            (rig.read("c.codel_target"), rig.read("c.queues")),
            ("0.005000".into(), "q\n".into())
        );
        rig.write("c.codel_target", "10s");
        let before = rig.read("c.drops");
        for _ in 0..300 {
            rig.bench.now_ns += MS;
            rig.receive("a", &[&[7]]);
            rig.poll();
        }
        assert_eq!(rig.read("c.drops"), before);
        let text = text.replace("CoDel", "CoDel(7, INTERVAL 0.2)");
        let rig = Rig::new(&World::new(), &text);
        assert_eq!(["c.target", "c.interval"].map(|name| rig.read(name)), ["0.007000", "0.200000"]);
    }

    #[test]
    fn the_wait_is_noted() {
        console::collect();
        let text = "FromDevice(a) -> SetTimestamp(FIRST true) -> q :: Queue -> CoDel -> u :: Unqueue(ACTIVE false)
            -> ToIPSummaryDump(-, HEADER false, FIELDS first_timestamp)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[7]]);
        rig.bench.now_ns += 3 * MS;
        rig.write("u.active", "true");
        rig.poll();
        assert_eq!(console::collected().out, "0.003000\n");
    }
}
