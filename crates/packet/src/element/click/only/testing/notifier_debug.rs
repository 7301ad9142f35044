//! `NotifierDebug` passes packets; its handler `signal` shows what queues near it report.
//!
//! Source: Click's `NotifierDebug`. Where packets are pulled, these are the queues before it, `empty/q:active` while
//! there are packets in `q`; where they are pushed, the queues behind it, `full/q:active` while `q` has room. Several
//! are separated by spaces; without any it is `busy`, as nothing ever waits then.

use crate::element::click::only::each::class;
use crate::element::click::only::nearest::{is_queue, near};
use crate::graph::{ElementClass, Made, Passing};
use crate::handler::Handler;
use crate::language::Processing;

pub(crate) const CLASS: ElementClass =
    class("NotifierDebug", "passes packets, and shows what queues near it report", |setup| {
        setup.args.finish()?;
        let (elements, connections) = match setup.around.configuration {
            Some(all) => (all.elements(), all.connections()),
            None => (&[][..], &[][..]),
        };
        let number = setup.number();
        let mut before = connections.iter().filter(|wire| wire.to as usize == number);
        let pulls = before.any(|wire| wire.kind == Processing::Pull);
        let queues = near(setup, !pulls, |other| is_queue(setup, other));
        let names: Vec<_> = queues.iter().map(|&queue| elements[queue].name.clone()).collect();
        let installed = setup.installed.clone();
        let (signal, line) =
            if pulls { ("empty", "nonempty true") } else { ("full", "nonfull true") };
        Ok(Made::new(|_| Passing).handler(Handler::read("signal", move || {
            let Some(handlers) = installed.handlers().filter(|_| !names.is_empty()) else {
                return "busy".into();
            };
            let shown = names.iter().map(|name| {
                let state =
                    handlers.read(&format!("{name}.notifier_state"), "").unwrap_or_default();
                let is_on = state.lines().any(|found| found == line);
                format!("{signal}/{name}:{}", if is_on { "active" } else { "inactive" })
            });
            shown.collect::<Vec<_>>().join(" ")
        })))
    });

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn signals_of_queues_are_shown() {
        let text = "FromDevice(a) -> d :: NotifierDebug -> Null -> q :: Queue(2) -> e :: NotifierDebug -> u :: Unqueue(ACTIVE false)
            -> f :: NotifierDebug -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        let signals = |rig: &Rig| ["d.signal", "e.signal", "f.signal"].map(|name| rig.read(name));
        assert_eq!(signals(&rig), ["full/q:active", "empty/q:inactive", "busy"]);
        rig.receive("a", &[&[1]]);
        assert_eq!(signals(&rig)[..2], ["full/q:active", "empty/q:active"]);
        rig.receive("a", &[&[2]]);
        assert_eq!(signals(&rig)[..2], ["full/q:inactive", "empty/q:active"]);
        rig.write("u.active", "true");
        let sent: usize = (0..4).map(|_| rig.poll().len()).sum();
        assert_eq!((sent, signals(&rig)[1].as_str()), (2, "empty/q:inactive"));
    }
}
