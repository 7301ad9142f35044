//! Packets by the clock, one at a time: `TimedSource(INTERVAL, DATA)` makes a packet in each interval,
//! `TimedSink(INTERVAL)` pulls one and drops it.
//!
//! Source: Click's elements of these names. Of several workers the first makes packets.

use std::sync::Arc;

use super::interval::Interval;
use crate::element::click::source::{self, Data, stamp};
use crate::element::support::one_instance::OneInstance;
use crate::element::support::resets::Resets;
use crate::element::support::setting::{Setting, Time};
use crate::element::support::stop::Stop;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{BATCH, Batch, DropReason, FLAG_COPY, FLAG_GENERATED};
use crate::graph::{Context, Element, ElementClass, Inputs, Made};
use crate::language::ClassSpec;

pub(crate) const SOURCE: ElementClass = ElementClass {
    spec: ClassSpec::new("TimedSource", "0/1", "h/h", "x/y"),
    summary: "makes a packet in each interval",
    configure: |setup| {
        let interval = setup.args.optional::<Time>("INTERVAL");
        let data = setup.args.optional_arg("DATA")?;
        let limit = setup.args.keyword::<i64>("LIMIT");
        let active = setup.args.keyword("ACTIVE");
        let stop = setup.args.keyword("STOP");
        // It is shown, and has no effect: frames have room.
        let headroom = setup.args.keyword::<u32>("HEADROOM");
        setup.args.finish()?;
        let headroom = Setting::new(headroom?.unwrap_or(USUAL_HEADROOM));
        let interval = Setting::new(interval?.unwrap_or(USUAL_INTERVAL));
        let limit = Setting::new(limit?.unwrap_or(-1));
        let active = Setting::new(active?.unwrap_or(true));
        let stop = stop?.unwrap_or(false).then(|| setup.ending.clone());
        let data = Arc::new(Data::new(source::data(data.as_ref())));
        let counts = setup.keep::<PerWorker<Count>>();
        let resets = Arc::new(Resets::new());
        let one = OneInstance::default();
        let made = Made::new({
            let (active, counts, resets) = (active.clone(), counts.clone(), resets.clone());
            let (interval, limit, data) = (interval.clone(), limit.clone(), data.clone());
            move |instance| Source {
                works: one.is(instance),
                interval: Interval::new(interval.clone()),
                limit: limit.clone(),
                data: data.instance(),
                active: active.clone(),
                count: counts.add(instance),
                resets: resets.instance(),
                stop: Stop::new(stop.clone()),
            }
        });
        let made = data.handled(headroom.handled(made, "headroom"));
        let made = made.polled().counter("count", &counts);
        let made = limit.handled(interval.handled(made, "interval"), "limit");
        Ok(active.handled(resets.handled(made, "reset"), "active"))
    },
};

pub(crate) const SINK: ElementClass = ElementClass {
    spec: ClassSpec::new("TimedSink", "1/0", "l/h", "x/y"),
    summary: "pulls a packet in each interval, and drops it",
    configure: |setup| {
        let interval = setup.args.optional::<Time>("INTERVAL");
        setup.args.finish()?;
        let interval = Setting::new(interval?.unwrap_or(USUAL_INTERVAL));
        let each = interval.clone();
        let made = Made::new(move |_| Sink { interval: Interval::new(each.clone()) });
        Ok(interval.handled(made, "interval"))
    },
};

/// Headroom of packets in Click.
const USUAL_HEADROOM: u32 = 28;

/// Interval where none is given, as in Click.
const USUAL_INTERVAL: Time = Time { ns: 500_000_000 };

struct Source {
    works: bool,
    interval: Interval,
    /// Packets that are made; negative for all.
    limit: Setting<i64>,
    data: Data,
    active: Setting<bool>,
    count: Arc<Count>,
    resets: Resets,
    stop: Stop,
}

impl Element for Source {
    fn poll(&mut self, batch: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        if !self.works {
            return;
        }
        let is_due = self.interval.is_due(cx.now_ns);
        if self.resets.came() {
            self.count.set(0);
            self.stop.reset();
        }
        if !is_due || !self.active.get() {
            return;
        }
        self.interval.end_turn(cx.now_ns);
        if u64::try_from(self.limit.get()).is_ok_and(|limit| self.count.read() >= limit) {
            self.stop.request();
            return;
        }
        self.data.follow();
        let Some(mut packet) = cx.pool.alloc() else { return };
        if packet.set_len(self.data.bytes.len()) {
            packet.bytes_mut().copy_from_slice(&self.data.bytes);
            packet.meta.flags |= FLAG_GENERATED | FLAG_COPY;
            stamp(&mut packet, cx.now_ns);
            cx.counters.generated.add(1);
            self.count.add(1);
            batch.push(packet).expect("the batch of a turn is empty");
        }
    }

    fn keeps_time(&self) -> bool {
        self.works && self.active.get()
    }

    fn due_ns(&self) -> Option<u64> {
        self.interval.due_ns()
    }
}

struct Sink {
    interval: Interval,
}

impl Element for Sink {
    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        if !self.interval.is_due(cx.now_ns) {
            return;
        }
        self.interval.end_turn(cx.now_ns);
        batch.set_limit(1);
        inputs.pull(0, batch, cx);
        batch.set_limit(BATCH);
        for i in 0..batch.len() {
            batch.discard(i, DropReason::Discarded);
        }
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn due_ns(&self) -> Option<u64> {
        self.interval.due_ns()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn one_in_each_interval() {
        let text =
            "s :: TimedSource(20ms, \\<07>, LIMIT 3, STOP true) -> q :: Queue -> TimedSink(40ms)";
        let mut rig = Rig::new(&World::new(), text);
        let mut lengths = String::new();
        for _ in 0..12 {
            rig.poll();
            lengths += &rig.read("q.length");
            rig.bench.now_ns += 10_000_000;
        }
        assert_eq!(
            (lengths.as_str(), rig.read("s.count"), rig.plan.is_stopped()),
            ("001111221111", "3".into(), true)
        );
    }

    #[test]
    fn data_is_changed() {
        let text = "s :: TimedSource(10ms, abc) -> ToDevice(x); t :: TimedSource -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!([rig.read("s.data"), rig.read("s.headroom")], ["abc", "28"]);
        assert_eq!(rig.read("t.data").len(), 69);
        rig.write("s.data", "\\<0102>");
        rig.poll();
        rig.bench.now_ns += 10_000_000;
        assert_eq!(rig.poll()[0].1, [1, 2]);
    }

    #[test]
    fn intervals_and_limits_are_changed() {
        let text = "s :: TimedSource(1s, LIMIT 1) -> q :: Queue -> t :: TimedSink(1s)";
        let mut rig = Rig::new(&World::new(), text);
        rig.poll();
        rig.write("t.interval", "0.5");
        rig.write("s.interval", "10ms");
        rig.write("s.limit", "4");
        for _ in 0..110 {
            rig.bench.now_ns += 10_000_000;
            rig.poll();
        }
        let shown = ["s.count", "s.interval", "s.limit", "t.interval", "q.length"];
        assert_eq!(shown.map(|name| rig.read(name)), ["4", "0.01", "4", "0.5", "3"]);
    }
}
