//! Drops packets that arrived in a broadcast or multicast frame: what no router may forward (RFC 1812, 5.3.4).
//!
//! Source: Click's `DropBroadcasts`. Stands behind the route lookup, so that the router itself still gets them. Where its
//! second output is used, they leave by it.

use std::sync::Arc;

use crate::frame::counters::{Count, PerWorker};
use crate::frame::{Batch, DropReason, FLAG_LINK_MULTICAST};
use crate::graph::{Context, Element, ElementClass, Exit, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("DropBroadcasts", "1/1-2", "a/ah", "x/x").outputs(&["out", "others"]),
    summary: "drops packets that arrived in broadcast or multicast frames",
    configure: |setup| {
        setup.args.finish()?;
        let drops = setup.keep::<PerWorker<Count>>();
        let shown = drops.clone();
        let exit = setup.exit(1, DropReason::LinkBroadcast);
        let made = Made::new(move |instance| DropBroadcasts { exit, drops: drops.add(instance) });
        Ok(made.counter("drops", &shown))
    },
};

struct DropBroadcasts {
    exit: Exit,
    drops: Arc<Count>,
}

impl Element for DropBroadcasts {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            if batch.meta()[i].flags & FLAG_LINK_MULTICAST != 0 {
                self.drops.add(1);
                self.exit.take(batch, i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World};

    #[test]
    fn what_came_for_one_station_passes() {
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(a) -> Strip(14) -> d :: DropBroadcasts -> ToDevice(b)",
        );
        let frame = |first: u8| [&[first][..], &[0; 14]].concat();
        let sent = rig.receive("a", &[&frame(2), &frame(0xff), &frame(0x33), &frame(0)]);
        assert_eq!((sent.len(), rig.dropped(DropReason::LinkBroadcast)), (2, 2));
        assert_eq!(rig.read("d.drops"), "2");
        let text = "FromDevice(a) -> Strip(14) -> d :: DropBroadcasts -> ToDevice(b); d [others] -> ToDevice(c)";
        let sent = Rig::new(&World::new(), text).receive("a", &[&frame(2), &frame(0xff)]);
        assert_eq!([&sent[0].0, &sent[1].0], ["b", "c"]);
    }
}
