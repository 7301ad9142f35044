//! `SchedOrderTest(ID)` notes when it has a turn, for tests of who comes after whom: all of a configuration write one
//! list.
//!
//! Source: Click's `SchedOrderTest`. The list has `SIZE` places (1,024), an element takes `LIMIT` of them at most (0:
//! all); with `STOP true` the router ends when it is full. Elements have a turn each in every round here, whatever
//! `ScheduleInfo` has.

use std::sync::{Arc, Mutex, PoisonError};

use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Ending, Inputs, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

const NAME: &str = "SchedOrderTest";

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new(NAME, "0/0", "a/a", "x/y"),
    summary: "notes when it has a turn",
    configure: |setup| {
        let id = setup.args.positional::<u32>("ID");
        let size = setup.args.keyword::<usize>("SIZE");
        let limit = setup.args.keyword::<i64>("LIMIT");
        let stop = setup.args.keyword("STOP");
        setup.args.finish()?;
        let (id, size) = (id?, size?.unwrap_or(1024));
        let limit = limit?.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let stop = stop?.unwrap_or(false).then(|| setup.ending.clone());
        let elements = setup.around.configuration.map_or(&[][..], |all| all.elements());
        let first = elements.iter().position(|element| element.class.name == NAME).unwrap_or(0);
        let order = setup.shared::<Mutex<Vec<u32>>>(first);
        let shown = order.clone();
        let made = Made::new(move |instance| Noting {
            // Packets that are only evaluated have no turns.
            order: (!instance.is_dry_run()).then(|| order.clone()),
            id,
            size,
            left: limit,
            stop: stop.clone(),
        });
        Ok(made.polled().handler(Handler::read("order", move || {
            let order = shown.lock().unwrap_or_else(PoisonError::into_inner);
            order.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
        })))
    },
};

struct Noting {
    order: Option<Arc<Mutex<Vec<u32>>>>,
    id: u32,
    size: usize,
    left: usize,
    stop: Option<Ending>,
}

impl Element for Noting {
    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, _: &mut Context<'_>) {
        let acts = self.left > 0 || self.stop.is_some();
        let Some(order) = self.order.as_ref().filter(|_| acts) else { return };
        let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.len() < self.size && self.left > 0 {
            order.push(self.id);
            self.left -= 1;
        }
        if let Some(stop) = self.stop.as_ref().filter(|_| order.len() >= self.size) {
            stop.request();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn turns_are_noted() {
        let text = "a :: SchedOrderTest(1, SIZE 6, STOP true); SchedOrderTest(2, SIZE 6, LIMIT 1); SchedOrderTest(3, SIZE 6, LIMIT 0)";
        let mut rig = Rig::new(&World::new(), text);
        (0..4).for_each(|_| drop(rig.poll()));
        let mut limited = Rig::new(
            &World::new(),
            "SchedOrderTest(1, SIZE 3, LIMIT 1, STOP true); SchedOrderTest(2, SIZE 3)",
        );
        (0..4).for_each(|_| drop(limited.poll()));
        assert!(limited.plan.is_stopped(), "another one filled the list");
        assert_eq!((rig.read("a.order"), rig.plan.is_stopped()), ("1 2 3 1 3 1".into(), true));
    }
}
