//! `TimeSortedSched` pulls from its inputs the packet whose time is the earliest.
//!
//! Source: Click's `TimeSortedSched`. It holds a packet of each input. With `STOP true` the router ends when no input
//! has one. `well_ordered` is whether no packet was earlier than the one before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::element::click::only::annotations::Annotations;
use crate::element::click::only::heads::Heads;
use crate::element::support::stop::Stop;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Held, Inputs, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("TimeSortedSched", "-/1", "l/l", "x/x").ignores(&["BUFFER"]),
    summary: "pulls from its inputs the packet whose time is the earliest",
    configure: |setup| {
        let stop = setup.args.keyword("STOP");
        setup.args.finish()?;
        let stop = stop?.unwrap_or(false).then(|| setup.ending.clone());
        let inputs = setup.inputs as usize;
        let ordered = Arc::new(AtomicBool::new(true));
        let shown = ordered.clone();
        let made = Made::new(move |instance| Sorted {
            heads: Heads::new(inputs),
            inputs,
            last_ns: i64::MIN,
            ordered: (!instance.is_dry_run()).then(|| ordered.clone()),
            stop: Stop::new(stop.clone().filter(|_| !instance.is_dry_run())),
        });
        Ok(made
            .holds(inputs)
            // Relaxed: nothing depends on it.
            .handler(Handler::read("well_ordered", move || shown.load(Relaxed).to_string())))
    },
};

struct Sorted {
    heads: Heads,
    inputs: usize,
    last_ns: i64,
    /// What the handler reads; `None` where packets are only evaluated.
    ordered: Option<Arc<AtomicBool>>,
    stop: Stop,
}

impl Element for Sorted {
    fn pull(&mut self, _: u16, into: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        while into.room() > 0 {
            let mut first = None;
            for input in 0..self.inputs {
                let head = self.heads.pull(input, into, inputs, cx);
                let time = head.map(|packet| Annotations::of_packet(packet).timestamp_ns);
                if let Some(time) = time
                    && first.is_none_or(|(earliest, _)| time < earliest)
                {
                    first = Some((time, input));
                }
            }
            let Some((time, input)) = first else {
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
            self.heads.give(input, into, cx);
        }
    }

    fn held(&self) -> Held {
        self.heads.held()
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.heads.stop(cx);
    }
}
