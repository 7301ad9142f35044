//! Does nothing: has no packets to give, and drops those it gets. Closes ports that a configuration leaves
//! unused.

use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Inputs, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Idle", "-/-", "a/a", "x/y"),
    summary: "gives no packets, and drops those it gets",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| Idle))
    },
};

struct Idle;

impl Element for Idle {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            batch.discard(i, DropReason::Discarded);
        }
    }

    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, _: &mut Context<'_>) {}
}
