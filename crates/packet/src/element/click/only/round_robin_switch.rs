//! `RoundRobinSwitch` sends packets to its outputs by turns.
//!
//! Source: Click's `RoundRobinSwitch`.

use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("RoundRobinSwitch", "1/1-", "h/h", "x/x"),
    summary: "sends packets to its outputs by turns",
    configure: |setup| {
        setup.args.finish()?;
        let outputs = u16::try_from(setup.outputs).unwrap_or(u16::MAX).max(1);
        Ok(Made::new(move |_| Turns { outputs, next: 0 }))
    },
};

struct Turns {
    outputs: u16,
    next: u16,
}

impl Element for Turns {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            batch.output(i, self.next);
            self.next = (self.next + 1) % self.outputs;
        }
    }
}
