//! `QuitWatcher(ELEMENT, ...)` ends the router as soon as one of these elements has no more turns: its handler
//! `scheduled` reads false.
//!
//! Source: Click's `QuitWatcher`, which looks every 10 ms. Differs: a task that waits for packets or for its time has
//! turns here. An element without that handler ends the router with a message.

use std::sync::Arc;

use super::console;
use super::interval::Interval;
use crate::element::support::caller::Caller;
use crate::element::support::one_instance::OneInstance;
use crate::element::support::setting::{Setting, Time};
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Ending, Inputs, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("QuitWatcher", "0/0", "a/a", "x/y"),
    summary: "ends the router when a task has no more turns",
    configure: |setup| {
        let given: Vec<_> = setup.args.rest().collect();
        let mut watched = Vec::new();
        for arg in given {
            let name: String = setup.args.read(&arg, "ELEMENT")?;
            // Outside of a configuration there is nothing to look at.
            if setup.around.configuration.is_some() && setup.element(&name).is_none() {
                let words = format!("ELEMENT: no element is named `{name}`");
                return Err(setup.args.refuse(&arg, &words));
            }
            watched.push(format!("{name}.scheduled"));
        }
        setup.args.finish()?;
        let watched: Arc<[String]> = watched.into();
        let (caller, ending) = (Caller::of(setup), setup.ending.clone());
        let one = OneInstance::default();
        let made = Made::new(move |instance| Watcher {
            works: one.is(instance) && !watched.is_empty(),
            watched: watched.clone(),
            caller: caller.clone(),
            ending: ending.clone(),
            turns: Interval::new(Setting::new(Time { ns: INTERVAL_NS })),
        });
        Ok(made.polled())
    },
};

const INTERVAL_NS: u64 = 10_000_000;

struct Watcher {
    /// It watches: one instance does, until it ended the router.
    works: bool,
    /// Names of handlers.
    watched: Arc<[String]>,
    caller: Caller,
    ending: Ending,
    turns: Interval,
}

impl Watcher {
    /// Whether an element has no more turns, by its handler.
    fn is_over(&self, handler: &str) -> bool {
        let found = self.caller.found(handler);
        match found.and_then(|(whole, handler)| handler.call_read(&whole, "")) {
            Ok(scheduled) => scheduled.is_empty() || scheduled.starts_with('f'),
            Err(error) => {
                console::warn(&error.to_string());
                true
            }
        }
    }
}

impl Element for Watcher {
    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        if !self.works || !self.turns.is_due(cx.now_ns) {
            return;
        }
        self.turns.end_turn(cx.now_ns);
        if self.watched.iter().any(|handler| self.is_over(handler)) {
            self.works = false;
            self.ending.request();
        }
    }

    fn keeps_time(&self) -> bool {
        self.works
    }

    fn due_ns(&self) -> Option<u64> {
        self.turns.due_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Plan;
    use crate::testing::{Rig, World};

    /// Whether the router ends by the next turn.
    fn ends(rig: &mut Rig) -> bool {
        rig.poll();
        rig.bench.now_ns += INTERVAL_NS;
        rig.poll();
        rig.plan.is_stopped()
    }

    #[test]
    fn the_router_ends_with_one_of_the_tasks() {
        let text = "s :: InfiniteSource(LIMIT 2, BURST 1) -> Discard; t :: InfiniteSource -> Discard; QuitWatcher(t, s)";
        let mut rig = Rig::new(&World::new(), text);
        (0..3).for_each(|_| drop(rig.poll()));
        assert!(!rig.plan.is_stopped(), "it looks every 10 ms");
        assert!(ends(&mut rig));
        let text = "s :: InfiniteSource(LIMIT 2) -> Discard; c :: { t :: InfiniteSource -> Discard; QuitWatcher(t) }";
        let mut rig = Rig::new(&World::new(), text);
        assert!(!ends(&mut rig), "nobody watches `s`");
        rig.write("c/t.active", "false");
        assert!(ends(&mut rig));
    }

    #[test]
    fn elements_have_to_be_there_and_to_have_turns() {
        let text = "InfiniteSource -> Discard; QuitWatcher(s)";
        let reported = Plan::read("a", text, crate::ELEMENTS).unwrap_err().to_string();
        assert!(reported.contains("no element is named `s`"), "{reported}");
        console::collect();
        let mut rig = Rig::new(&World::new(), "i :: AddressInfo(x 10.0.0.1); QuitWatcher(i)");
        assert!(ends(&mut rig));
        let err = console::collected().err;
        assert!(err.contains("scheduled"), "{err}");
    }
}
