//! `TimerTest(DELAY)` has a timer that handlers set, and a line on standard error when it expires.
//!
//! Source: Click's `TimerTest`. `schedule_after T` sets it to `T` seconds from now on, `scheduled` is whether it is set
//! (written: sets it to now, or not), `unschedule` takes it back, `expiry` is the time of day at which it expires, 0 where
//! it is not set. With `SCHEDULE true` it is set from the start, to `DELAY`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::element::click::only::clock::{seconds, time_of_day};
use crate::element::click::only::console;
use crate::element::support::setting::{Time, value};
use crate::element::support::time;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Inputs, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("TimerTest", "0/0", "a/a", "x/y"),
    summary: "a timer that handlers set",
    configure: |setup| {
        let delay = setup.args.keyword::<Time>("DELAY");
        let schedule = setup.args.keyword("SCHEDULE");
        let benchmark = setup.args.keyword::<u32>("BENCHMARK");
        setup.args.finish()?;
        let (delay, schedule) = (delay?, schedule?);
        if benchmark?.is_some_and(|rounds| rounds > 0) {
            setup.args.warn_here("BENCHMARK: no effect here");
        }
        let timer = Timer::default();
        if schedule.unwrap_or(delay.is_some()) {
            timer.after(delay.map_or(0, |delay| delay.ns));
        }
        let (each, name) = (timer.clone(), setup.name().to_owned());
        let made = Made::new(move |instance| Test {
            timer: (!instance.is_dry_run()).then(|| each.clone()),
            name: name.clone(),
        });
        let [scheduled, set, after, un, expiry] = [(); 5].map(|()| timer.clone());
        Ok(made
            .polled()
            .handler(Handler::read("scheduled", move || scheduled.is_set().to_string()))
            .handler(Handler::write("scheduled", move |text| {
                match value(text)? {
                    true => set.after(0),
                    false => set.unset(),
                }
                Ok(())
            }))
            .handler(Handler::write("schedule_after", move |text| {
                after.after(value::<Time>(text)?.ns);
                Ok(())
            }))
            .command("unschedule", move || un.unset())
            .handler(Handler::read("expiry", move || {
                let due = Some(expiry.due_ns()).filter(|due| *due > 0);
                seconds(due.map_or(0, time_of_day))
            })))
    },
};

/// When the timer expires, by the clock of the worker. Relaxed: nothing else depends on it.
#[derive(Clone)]
struct Timer(Arc<AtomicU64>);

const UNSET: u64 = u64::MAX;

impl Default for Timer {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(UNSET)))
    }
}

impl Timer {
    fn after(&self, ns: u64) {
        self.0.store(time::now_ns().saturating_add(ns).min(UNSET - 1), Relaxed);
    }

    fn unset(&self) {
        self.0.store(UNSET, Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Relaxed) != UNSET
    }

    /// When it expires; 0 where it is not set.
    fn due_ns(&self) -> u64 {
        Some(self.0.load(Relaxed)).filter(|due| *due != UNSET).unwrap_or(0)
    }

    /// Whether it expires now: then it is no longer set.
    fn expires(&self, now_ns: u64) -> bool {
        let due_ns = self.0.load(Relaxed);
        due_ns <= now_ns && self.0.compare_exchange(due_ns, UNSET, Relaxed, Relaxed).is_ok()
    }
}

struct Test {
    timer: Option<Timer>,
    name: String,
}

impl Element for Test {
    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        if self.timer.as_ref().is_some_and(|timer| timer.expires(cx.now_ns)) {
            let now = seconds(time_of_day(cx.now_ns));
            console::warn(&format!("{now}: {} fired", self.name));
        }
    }

    fn keeps_time(&self) -> bool {
        self.timer.as_ref().is_some_and(Timer::is_set)
    }

    fn due_ns(&self) -> Option<u64> {
        self.timer.as_ref().map(Timer::due_ns)
    }
}

#[cfg(test)]
mod tests {
    use crate::element::click::only::console;
    use crate::testing::{Rig, World};

    #[test]
    fn a_timer_expires_once() {
        console::collect();
        let mut rig = Rig::new(&World::new(), "t :: TimerTest; u :: TimerTest(DELAY 1000s)");
        assert_eq!([rig.read("t.scheduled"), rig.read("u.scheduled")], ["false", "true"]);
        assert_eq!(
            (rig.read("t.expiry").as_str(), rig.read("u.expiry") != "0.000000"),
            ("0.000000", true)
        );
        rig.write("t.schedule_after", "100s");
        assert_eq!(rig.read("t.scheduled"), "true");
        // The clock of handlers is that of the process.
        rig.bench.now_ns = u64::MAX / 2;
        rig.poll();
        assert_eq!([rig.read("t.scheduled"), rig.read("u.scheduled")], ["false", "false"]);
        rig.poll();
        assert_eq!(console::collected().err.lines().count(), 2);
        rig.write("t.scheduled", "true");
        rig.write("t.unschedule", "");
        assert_eq!((rig.poll().len(), rig.read("t.scheduled")), (0, "false".into()));
    }
}
