//! `IP6Fragmenter(MTU)` passes IPv6 packets that fit an MTU; others leave by its second output, for `ICMP6Error`.
//!
//! Source: Click's `IP6Fragmenter`, which does not fragment either (RFC 8200, 5: routers do not). Handler `drops` counts what
//! does not fit; `fragments` is 0.

use super::each::sorting;
use crate::frame::Batch;
use crate::frame::DropReason;
use crate::frame::counters::{Count, PerWorker};
use crate::graph::{Context, Element, ElementClass, Exit, Made};
use crate::handler::Handler;
use std::sync::Arc;

pub(crate) const CLASS: ElementClass =
    sorting("IP6Fragmenter", &["out", "too_big"], "passes IPv6 packets that fit an MTU", |setup| {
        let mtu = setup.args.positional::<usize>("MTU");
        setup.args.finish()?;
        let (mtu, exit) = (mtu?, setup.exit(1, DropReason::TooBig));
        let drops = setup.keep::<PerWorker<Count>>();
        let shown = drops.clone();
        let made = Made::new(move |instance| Fits { mtu, exit, drops: drops.add(instance) });
        Ok(made.counter("drops", &shown).handler(Handler::read("fragments", || "0".to_owned())))
    });

struct Fits {
    mtu: usize,
    exit: Exit,
    drops: Arc<Count>,
}

impl Element for Fits {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let network = usize::from(batch.meta()[i].network);
            if batch.frame_len(i).saturating_sub(network) > self.mtu {
                self.drops.add(1);
                self.exit.take(batch, i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn what_is_too_big_leaves_apart() {
        let text =
            "FromDevice(a) -> f :: IP6Fragmenter(50) -> ToDevice(x); f [too_big] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let sent = rig.receive("a", &[&[0x60; 50], &[0x60; 51]]);
        assert_eq!([&sent[0].0, &sent[1].0], ["x", "y"]);
        assert_eq!([rig.read("f.drops"), rig.read("f.fragments")], ["1", "0"]);
    }

    #[test]
    fn bytes_before_the_network_header_do_not_count() {
        let text = "FromDevice(a) -> MarkIP6Header(14) -> f :: IP6Fragmenter(50) -> ToDevice(x); f [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let sent = rig.receive("a", &[&[0x60; 64], &[0x60; 65]]);
        assert_eq!([&sent[0].0, &sent[1].0], ["x", "y"]);
        assert_eq!(rig.read("f.drops"), "1");
    }
}
