//! `Hub` sends a copy of each packet to all outputs but that of its input.
//!
//! Source: Click's `Hub`.

use crate::element::support::copies::Copies;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Hub", "-/-", "h/h", "#/[^#]"),
    summary: "sends packets to all outputs but that of their input",
    configure: |setup| {
        setup.args.finish()?;
        let outputs = u16::try_from(setup.outputs).unwrap_or(u16::MAX);
        let failed = setup.keep::<PerWorker<Count>>();
        let shown = failed.clone();
        let made =
            Made::new(move |instance| Hub { outputs, copies: Copies::new(failed.add(instance)) });
        Ok(made.counter("failed", &shown))
    },
};

struct Hub {
    outputs: u16,
    copies: Copies,
}

impl Element for Hub {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let mut others = (0..self.outputs).filter(|&output| output != input);
        let first = others.next();
        for output in others {
            self.copies.send_all(batch, output, cx);
        }
        for i in 0..batch.len() {
            match first {
                Some(output) => batch.output(i, output),
                None => batch.discard(i, DropReason::Discarded),
            }
        }
    }
}
