//! Tasks without packets: `HandlerTask(HANDLER)` calls a handler in each turn, `NullTask(LIMIT)` counts its turns.
//!
//! Source: Click's elements of these names. `HandlerTask` has one turn, all of them with `RESCHEDULE true`, none while
//! `ACTIVE false`; a write to `reschedule` changes that and gives it another one. `NullTask` ends the router at its
//! limit with `STOP true`; a limit of 0 is none. A write to `scheduled` gives either a turn, or takes it.

use std::sync::Arc;

use crate::element::support::caller::Caller;
use crate::element::support::one_instance::OneInstance;
use crate::element::support::resets::Resets;
use crate::element::support::setting::{Setting, value};
use crate::element::support::stop::Stop;
use crate::frame::Batch;
use crate::frame::counters::{Count, PerWorker};
use crate::graph::{Context, Element, ElementClass, Inputs, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const HANDLER: ElementClass = ElementClass {
    spec: ClassSpec::new("HandlerTask", "0/0", "a/a", "x/y"),
    summary: "calls a handler in its turns",
    configure: |setup| {
        let call = setup.args.positional_arg("HANDLER");
        let active = setup.args.keyword("ACTIVE");
        let again = setup.args.keyword("RESCHEDULE");
        setup.args.finish()?;
        let call: Arc<str> = call?.uncommented().into();
        let again = Setting::new(again?.unwrap_or(false));
        let due = Setting::new(active?.unwrap_or(true));
        let (caller, counts) = (Caller::of(setup), setup.keep::<PerWorker<Count>>());
        let one = OneInstance::default();
        let made = Made::new({
            let (again, due, counts) = (again.clone(), due.clone(), counts.clone());
            move |instance| Calling {
                works: one.is(instance),
                caller: caller.clone(),
                call: call.clone(),
                again: again.clone(),
                due: due.clone(),
                count: counts.add(instance),
            }
        });
        let shown = again.clone();
        let made = made.polled().task().counter("count", &counts);
        let made = scheduled(made, due.clone(), |is_due| is_due);
        Ok(made.handler(Handler::read("reschedule", move || shown.get().to_string())).handler(
            Handler::write("reschedule", move |text| {
                again.set(value(text)?);
                due.set(true);
                Ok(())
            }),
        ))
    },
};

/// Adds the handlers that show and change whether a task has a turn.
fn scheduled(
    made: Made,
    due: Setting<bool>,
    shown: impl Fn(bool) -> bool + Send + Sync + 'static,
) -> Made {
    let read = due.clone();
    let made = made.handler(Handler::read("scheduled", move || shown(read.get()).to_string()));
    made.handler(Handler::write("scheduled", move |text| {
        due.set(value(text)?);
        Ok(())
    }))
}

struct Calling {
    works: bool,
    caller: Caller,
    call: Arc<str>,
    again: Setting<bool>,
    /// It has a turn.
    due: Setting<bool>,
    count: Arc<Count>,
}

impl Element for Calling {
    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, _: &mut Context<'_>) {
        if self.works && self.due.get() {
            // The handler may give it another one.
            self.due.set(self.again.get());
            self.count.add(1);
            self.caller.call(&self.call);
        }
    }

    fn keeps_time(&self) -> bool {
        self.works && self.due.get()
    }
}

pub(crate) const NULL: ElementClass = ElementClass {
    spec: ClassSpec::new("NullTask", "0/0", "a/a", "x/y"),
    summary: "counts its turns",
    configure: |setup| {
        let limit = setup.args.optional::<i64>("LIMIT");
        let active = setup.args.keyword("ACTIVE");
        let stop = setup.args.keyword("STOP");
        setup.args.finish()?;
        let limit = Setting::new(limit?.unwrap_or(0));
        let (active, stop) = (Setting::new(active?.unwrap_or(true)), stop?.unwrap_or(false));
        let stop = stop.then(|| setup.ending.clone());
        let counts = setup.keep::<PerWorker<Count>>();
        let resets = Resets::new();
        let request = resets.request();
        let one = OneInstance::default();
        let made = Made::new({
            let (limit, counts, active) = (limit.clone(), counts.clone(), active.clone());
            move |instance| Counting {
                works: one.is(instance),
                active: active.clone(),
                limit: limit.clone(),
                count: counts.add(instance),
                resets: resets.instance(),
                stop: Stop::new(stop.clone()),
            }
        });
        let made = made.polled().task().counter("count", &counts).command("reset", request);
        let bound = limit.clone();
        let made = scheduled(made, active, move |is_active| {
            is_active && is_below(bound.get(), counts.sum(Count::read))
        });
        Ok(limit.handled(made, "limit"))
    },
};

/// Whether a count is below a limit, of which 0 is none.
fn is_below(limit: i64, count: u64) -> bool {
    u64::try_from(limit).map_or(true, |limit| limit == 0 || count < limit)
}

struct Counting {
    works: bool,
    active: Setting<bool>,
    limit: Setting<i64>,
    count: Arc<Count>,
    resets: Resets,
    stop: Stop,
}

impl Counting {
    fn has_more(&self) -> bool {
        self.works && self.active.get() && is_below(self.limit.get(), self.count.read())
    }
}

impl Element for Counting {
    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, _: &mut Context<'_>) {
        if self.resets.came() {
            self.count.set(0);
            self.stop.reset();
        }
        if self.has_more() {
            self.count.add(1);
        }
        if self.works && self.active.get() && !self.has_more() {
            self.stop.request();
        }
    }

    fn keeps_time(&self) -> bool {
        self.has_more()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn turns_call_handlers() {
        let text = "Idle -> s :: Switch(0) -> Discard; s [1] -> Discard;
            h :: HandlerTask(s.switch 1); i :: HandlerTask(s.switch 1, RESCHEDULE true, ACTIVE false)";
        let mut rig = Rig::new(&World::new(), text);
        (0..3).for_each(|_| drop(rig.poll()));
        assert_eq!(
            [rig.read("s.switch"), rig.read("h.count"), rig.read("i.count")],
            ["1", "1", "0"]
        );
        rig.write("s.switch", "0");
        rig.write("h.reschedule", "true");
        (0..3).for_each(|_| drop(rig.poll()));
        assert_eq!([rig.read("s.switch"), rig.read("h.count")], ["1", "4"]);
        rig.write("h.scheduled", "false");
        rig.write("i.scheduled", "true");
        (0..2).for_each(|_| drop(rig.poll()));
        assert_eq!([rig.read("h.count"), rig.read("i.count")], ["4", "2"]);
    }

    #[test]
    fn turns_are_counted() {
        let mut rig =
            Rig::new(&World::new(), "n :: NullTask(2, STOP true); m :: NullTask(ACTIVE false)");
        assert_eq!([rig.read("n.scheduled"), rig.read("m.scheduled")], ["true", "false"]);
        rig.poll();
        assert_eq!((rig.read("n.count"), rig.plan.is_stopped()), ("1".into(), false));
        (0..3).for_each(|_| drop(rig.poll()));
        assert_eq!((rig.read("n.count"), rig.plan.is_stopped()), ("2".into(), true));
        assert_eq!([rig.read("m.count"), rig.read("m.limit")], ["0", "0"], "no limit");
        rig.write("m.scheduled", "true");
        (0..3).for_each(|_| drop(rig.poll()));
        assert_eq!([rig.read("n.scheduled"), rig.read("m.count")], ["false", "3"]);
        rig.write("n.reset", "");
        rig.poll();
        assert_eq!(rig.read("n.count"), "1");
    }
}
