//! `TimeSortedSched` pulls from its inputs the packet whose time is the earliest.
//!
//! Source: Click's `TimeSortedSched`. It holds a packet of each input. With `STOP true` the router ends when no input has one.
//! `well_ordered` is whether no packet was earlier than the one before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::element::click::only::annotations::Annotations;
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
        setup.args.keyword::<usize>("BUFFER")?;
        setup.args.finish()?;
        let stop = stop?.unwrap_or(false).then(|| setup.stop.clone());
        let inputs = setup.inputs as usize;
        let ordered = Arc::new(AtomicBool::new(true));
        let shown = ordered.clone();
        let made = Made::new(move |_| Sorted {
            waiting: (0..inputs).map(|_| None).collect(),
            last_ns: i64::MIN,
            ordered: ordered.clone(),
            stop: Stop::new(stop.clone()),
        });
        Ok(made
            .holds(inputs)
            // Relaxed: nothing depends on it.
            .handler(Handler::read("well_ordered", move || shown.load(Relaxed).to_string())))
    },
};

struct Sorted {
    /// A packet of each input, and its time.
    waiting: Vec<Option<(i64, Packet)>>,
    last_ns: i64,
    ordered: Arc<AtomicBool>,
    stop: Stop,
}

impl Element for Sorted {
    fn pull(&mut self, _: u16, into: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        let wanted = into.len() + into.room();
        while into.len() < wanted {
            for (input, waiting) in self.waiting.iter_mut().enumerate() {
                if waiting.is_none() {
                    let before = into.len();
                    into.set_limit(before + 1);
                    inputs.pull(u16::try_from(input).unwrap_or(u16::MAX), into, cx);
                    if into.len() > before {
                        let time = Annotations::of(into, before).timestamp_ns;
                        *waiting = Some((time, into.take(before)));
                        into.close_up(|_, _| {});
                    }
                }
            }
            let first = self.waiting.iter_mut().filter(|waiting| waiting.is_some());
            let first = first.min_by_key(|waiting| waiting.as_ref().map(|(time, _)| *time));
            let Some((time, packet)) = first.and_then(Option::take) else {
                // Inputs that had none yet are not at their end.
                if self.last_ns > i64::MIN {
                    self.stop.request();
                }
                break;
            };
            if time < self.last_ns {
                self.ordered.store(false, Relaxed);
            }
            self.last_ns = time;
            into.set_limit(into.len() + 1);
            if let Err(packet) = into.push(packet) {
                cx.drop_packet(packet, DropReason::NoBuffer);
            }
        }
        into.set_limit(wanted);
    }

    fn held(&self) -> Held {
        let mut held = Held::default();
        for (_, packet) in self.waiting.iter().flatten() {
            held.add(packet.meta.flags & FLAG_GENERATED != 0);
        }
        held
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        for (_, packet) in self.waiting.iter_mut().filter_map(Option::take) {
            cx.drop_packet(packet, DropReason::Shutdown);
        }
    }
}
