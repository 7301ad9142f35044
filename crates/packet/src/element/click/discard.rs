//! Drops every packet. For outputs whose packets are unwanted, so that they are counted as such.
//!
//! Source: Click's `Discard`. Where it pulls, it pulls `BURST` packets a turn (a batch, and with 0 as well), unless
//! `ACTIVE false` is given.

use std::sync::Arc;

use crate::element::support::packets::Packets;
use crate::element::support::setting::Setting;
use crate::frame::counters::Count;
use crate::frame::{BATCH, Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Inputs, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Discard", "1/0", "a/a", "x/x"),
    summary: "drops every packet",
    configure: |setup| {
        let active = setup.args.keyword("ACTIVE");
        let burst = setup.args.keyword::<usize>("BURST");
        setup.args.finish()?;
        let active = Setting::new(active?.unwrap_or(true));
        let burst = burst?.filter(|burst| *burst > 0).map_or(BATCH, |burst| burst.min(BATCH));
        let counts = setup.keep::<Packets>();
        let each = counts.clone();
        let pulls = active.clone();
        let made = Made::new(move |instance| Discard {
            count: each.workers.add(instance),
            active: pulls.clone(),
            burst,
        });
        let made = counts.handled(made).command("reset", move || counts.reset());
        Ok(active.handled(made, "active"))
    },
};

struct Discard {
    count: Arc<Count>,
    /// It pulls.
    active: Setting<bool>,
    /// Packets that it pulls in a turn.
    burst: usize,
}

impl Element for Discard {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        self.count.add(batch.len() as u64);
        for i in 0..batch.len() {
            batch.discard(i, DropReason::Discarded);
        }
    }

    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        if self.active.get() {
            batch.set_limit(self.burst);
            inputs.pull(0, batch, cx);
            batch.set_limit(BATCH);
            self.process(0, batch, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn it_pulls_while_it_is_active() {
        let text = "FromDevice(a) -> q :: Queue -> d :: Discard(ACTIVE false, BURST 2)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[1], &[2], &[3]]);
        rig.poll();
        assert_eq!(rig.read("q.length"), "3");
        rig.write("d.active", "true");
        rig.poll();
        assert_eq!((rig.read("q.length"), rig.read("d.count")), ("1".into(), "2".into()));
        let mut rig = Rig::new(&World::new(), &text.replace("ACTIVE false, BURST 2", "BURST 0"));
        rig.receive("a", &[&[1], &[2], &[3]]);
        rig.poll();
        assert_eq!(rig.read("d.count"), "3", "all of them");
    }

    #[test]
    fn counting_begins_anew() {
        let mut rig = Rig::new(&World::new(), "FromDevice(a) -> d :: Discard");
        rig.receive("a", &[&[1], &[2]]);
        assert_eq!(rig.read("d.count"), "2");
        rig.write("d.reset", "");
        assert_eq!(rig.read("d.count"), "0");
        rig.receive("a", &[&[3]]);
        rig.replace("FromDevice(a) -> d :: Discard; FromDevice(b) -> Discard").unwrap();
        assert_eq!(rig.read("d.count"), "1");
    }
}
