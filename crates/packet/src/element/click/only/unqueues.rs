//! Further elements that pull packets and push them: `TimedUnqueue(INTERVAL, BURST)` a burst in each interval
//! (`Burster` is its older name), `RoundRobinUnqueue` from its inputs to the outputs of their numbers by turns,
//! `Unqueue2` as `Unqueue`.
//!
//! Source: Click's elements of these names. A burst of 0 of `Unqueue2` is all that comes; unless it has `QUIET true` there is a
//! warning that Click has `Unqueue` in its place. Differs: it does not stop while queues behind it are full, and `QUEUES`
//! changes nothing; `Unqueue` does not stop either, and packets wait where a shaper is between.

use std::sync::Arc;

use super::interval::Interval;
use crate::element::click::unqueue;
use crate::element::support::setting::{Setting, Time};
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{BATCH, Batch};
use crate::graph::{Context, Element, ElementClass, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError};

pub(crate) const TIMED: ElementClass = timed("TimedUnqueue");
pub(crate) const BURSTER: ElementClass = timed("Burster");

const fn timed(name: &'static str) -> ElementClass {
    ElementClass {
        spec: ClassSpec::new(name, "1/1", "l/h", "x/y"),
        summary: "pulls a burst of packets in each interval and pushes them",
        configure,
    }
}

fn configure(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let interval = setup.args.positional::<Time>("INTERVAL");
    let burst = setup.args.optional::<usize>("BURST");
    setup.args.finish()?;
    let (interval, burst) = (interval?, burst?.unwrap_or(1));
    Ok(Made::new(move |_| Timed { interval: Interval::new(Setting::new(interval)), burst }))
}

struct Timed {
    interval: Interval,
    burst: usize,
}

impl Element for Timed {
    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        if !self.interval.is_due(cx.now_ns) {
            return;
        }
        self.interval.end_turn(cx.now_ns);
        batch.set_limit(self.burst.min(BATCH));
        inputs.pull(0, batch, cx);
        batch.set_limit(BATCH);
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn due_ns(&self) -> Option<u64> {
        self.interval.due_ns()
    }
}

pub(crate) const ROUND_ROBIN: ElementClass = ElementClass {
    spec: ClassSpec::new("RoundRobinUnqueue", "1-/1-", "l/h", "x/x"),
    summary: "pulls from its inputs by turns, and pushes to the outputs of their numbers",
    configure: |setup| {
        let burst = setup.args.optional::<usize>("BURST");
        setup.args.finish()?;
        // 0 is as many as come.
        let burst = Some(burst?.unwrap_or(1))
            .filter(|burst| *burst > 0)
            .map_or(BATCH, |burst| burst.min(BATCH));
        if setup.inputs != setup.outputs {
            return Err(setup.args.refuse_all("as many inputs as outputs are wanted"));
        }
        let inputs = u16::try_from(setup.inputs).unwrap_or(u16::MAX);
        let packets = setup.keep::<PerWorker<Count>>();
        let shown = packets.clone();
        let made = Made::new(move |instance| RoundRobin {
            burst,
            inputs,
            next: 0,
            packets: packets.add(instance),
        });
        Ok(made.counter("packets", &shown))
    },
};

struct RoundRobin {
    burst: usize,
    inputs: u16,
    next: u16,
    packets: Arc<Count>,
}

impl Element for RoundRobin {
    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        for _ in 0..self.inputs {
            let before = batch.len();
            batch.set_limit((before + self.burst).min(BATCH));
            inputs.pull(self.next, batch, cx);
            batch.set_limit(BATCH);
            for i in before..batch.len() {
                batch.output(i, self.next);
            }
            self.packets.add((batch.len() - before) as u64);
            self.next = (self.next + 1) % self.inputs;
        }
    }
}

pub(crate) const SECOND: ElementClass = ElementClass {
    spec: ClassSpec { name: "Unqueue2", ignored: &["QUEUES"], ..unqueue::CLASS.spec },
    summary: "pulls packets and pushes them, as Unqueue",
    configure: |setup| {
        let quiet = setup.args.keyword("QUIET");
        let made = unqueue::configure(setup, true)?;
        if !quiet?.unwrap_or(false) {
            setup.args.warn_all("Unqueue2 is deprecated, you should probably use Unqueue");
        }
        let count = made.handlers.iter().find(|handler| handler.name() == "count").cloned();
        let packets = move || {
            let count = count.as_ref().and_then(|count| count.call_read("count", "").ok());
            format!("{} packets\n", count.unwrap_or_default())
        };
        Ok(made.handler(Handler::read("packets", packets)))
    },
};

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn bursts_leave_by_the_clock() {
        let text = "FromDevice(a) -> Queue -> TimedUnqueue(10ms, 2) -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[7][..]; 5]);
        let mut counts = Vec::new();
        for _ in 0..36 {
            counts.push(rig.poll().len());
            rig.bench.now_ns += 1_000_000;
        }
        assert_eq!(
            (counts[10], counts[20], counts[30], counts.iter().sum::<usize>()),
            (2, 2, 1, 5)
        );
    }

    #[test]
    fn inputs_have_outputs_of_their_own() {
        let text = "FromDevice(a) -> Queue -> [0] r :: RoundRobinUnqueue(2) => ToDevice(x), ToDevice(y);
            FromDevice(b) -> Queue -> [1] r; FromDevice(c) -> Queue -> u :: Unqueue2(1, QUIET true) -> ToDevice(z)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[1], &[2], &[3]]);
        rig.receive("b", &[&[4]]);
        rig.receive("c", &[&[5], &[6]]);
        let mut sent: Vec<_> = rig.poll().into_iter().map(|(to, frame)| (to, frame[0])).collect();
        sent.sort();
        assert_eq!(
            sent,
            [("x", 1), ("x", 2), ("y", 4), ("z", 5)].map(|(to, n)| (to.to_owned(), n))
        );
        assert_eq!((rig.poll().len(), rig.read("r.packets")), (2, "4".into()));
        assert_eq!((rig.read("u.packets"), rig.plan.warnings().len()), ("2 packets\n".into(), 0));
        let text = text.replace("RoundRobinUnqueue(2)", "RoundRobinUnqueue(BURST 0)");
        let mut rig = Rig::new(&World::new(), &text);
        rig.receive("a", &[&[1], &[2], &[3]]);
        assert_eq!(rig.poll().len(), 3, "all that come");
        let mut rig =
            Rig::new(&World::new(), "FromDevice(a) -> Queue -> Unqueue2(0) -> ToDevice(b)");
        assert!(rig.plan.warnings()[0].to_string().contains("Unqueue2 is deprecated"));
        rig.receive("a", &[&[1], &[2], &[3]]);
        assert_eq!(rig.poll().len(), 3, "all that come");
    }
}
