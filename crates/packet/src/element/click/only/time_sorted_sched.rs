//! `TimeSortedSched` pulls from its inputs the packet whose time is the earliest.
//!
//! Source: Click's `TimeSortedSched`. It holds a packet of each input, or as many as `BUFFER` has, so that a
//! stream may be out of order by that much. With `STOP true` the router ends when no input has one. `well_ordered` is whether no packet was earlier than the one before it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::element::click::only::annotations::Annotations;
use crate::element::click::only::heads::Heads;
use crate::element::support::stop::Stop;
use crate::frame::{Batch, DropReason, FLAG_GENERATED, Packet};
use crate::graph::{Context, Element, ElementClass, Held, Inputs, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("TimeSortedSched", "-/1", "l/l", "x/x"),
    summary: "pulls from its inputs the packet whose time is the earliest",
    configure: |setup| {
        let stop = setup.args.keyword("STOP");
        let buffer = setup.args.keyword::<usize>("BUFFER");
        setup.args.finish()?;
        let buffer = buffer?.unwrap_or(1);
        if !(1..=MOST).contains(&buffer) {
            return Err(setup.args.refuse_all(&format!("BUFFER: 1 to {MOST} are possible")));
        }
        let stop = stop?.unwrap_or(false).then(|| setup.ending.clone());
        let inputs = setup.inputs as usize;
        let ordered = Arc::new(AtomicBool::new(true));
        let shown = ordered.clone();
        let made = Made::new(move |instance| Sorted {
            heads: Heads::new(inputs),
            kept: (0..inputs).map(|_| VecDeque::new()).collect(),
            buffer,
            last_ns: i64::MIN,
            ordered: (!instance.is_dry_run()).then(|| ordered.clone()),
            stop: Stop::new(stop.clone().filter(|_| !instance.is_dry_run())),
        });
        Ok(made
            .holds(inputs * buffer)
            // Relaxed: nothing depends on it.
            .handler(Handler::read("well_ordered", move || shown.load(Relaxed).to_string())))
    },
};

/// Packets of an input that are held at most.
const MOST: usize = 1024;

struct Sorted {
    heads: Heads,
    /// Packets of each input, as they came.
    kept: Vec<VecDeque<Packet>>,
    /// How many of each there are to be.
    buffer: usize,
    last_ns: i64,
    /// What the handler reads; `None` where packets are only evaluated.
    ordered: Option<Arc<AtomicBool>>,
    stop: Stop,
}

impl Element for Sorted {
    fn pull(&mut self, _: u16, into: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        while into.room() > 0 {
            let mut first: Option<(i64, usize, usize)> = None;
            for (input, kept) in self.kept.iter_mut().enumerate() {
                while kept.len() < self.buffer
                    && self.heads.pull(input, into, inputs, cx).is_some()
                    && let Some(packet) = self.heads.take(input)
                {
                    kept.push_back(packet);
                }
                for (at, packet) in kept.iter().enumerate() {
                    let time = Annotations::of_packet(packet).timestamp_ns;
                    if first.is_none_or(|(earliest, ..)| time < earliest) {
                        first = Some((time, input, at));
                    }
                }
            }
            let Some((time, input, at)) = first else {
                // Inputs that had none yet are not at their end.
                if self.last_ns > i64::MIN {
                    self.stop.request();
                }
                break;
            };
            if let Some(ordered) = self.ordered.as_ref().filter(|_| time < self.last_ns) {
                ordered.store(false, Relaxed);
            }
            self.last_ns = time;
            if let Some(packet) = self.kept[input].remove(at)
                && let Err(packet) = into.push(packet)
            {
                cx.drop_packet(packet, DropReason::NoBuffer);
            }
        }
    }

    fn held(&self) -> Held {
        let mut held = Held::default();
        for packet in self.kept.iter().flatten() {
            held.add(packet.meta.flags & FLAG_GENERATED != 0);
        }
        held
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        for packet in self.kept.iter_mut().flat_map(|kept| kept.drain(..)) {
            cx.drop_packet(packet, DropReason::Shutdown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::click::only::console;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn a_buffer_brings_packets_into_order() {
        let sorted = |buffer: &str| {
            console::collect();
            let text = format!(
                "FromIPSummaryDump(DATA \"!data timestamp\n1\n4\n3\n7\n\") -> [0] s :: TimeSortedSched(STOP true{buffer})
                 -> Unqueue -> ToIPSummaryDump(-, HEADER false, FIELDS ts_sec);
                 FromIPSummaryDump(DATA \"!data timestamp\n2\n6\n5\n\") -> [1] s"
            );
            let mut rig = Rig::new(&World::new(), &text);
            (0..20).for_each(|_| drop(rig.poll()));
            (console::collected().out.replace('\n', ""), rig.read("s.well_ordered"))
        };
        assert_eq!(sorted(", BUFFER 2"), ("1234567".into(), "true".into()));
        assert_eq!(sorted(""), ("1243657".into(), "false".into()));
        assert!(refused(&CLASS, "BUFFER 0").contains("1 to 1024"));
    }
}
