//! An element that panics, for tests of what becomes of a router whose worker fails. No shipped program has it (feature
//! `testing`).

use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("PanicAfter", "1/1", "a/a", "x/x"),
    summary: "passes so many packets in each worker, and panics at the next: for tests",
    configure: |setup| {
        let packets = setup.args.positional("PACKETS");
        setup.args.finish()?;
        let left: u64 = packets?;
        Ok(Made::new(move |_| PanicAfter { left }))
    },
};

struct PanicAfter {
    left: u64,
}

impl Element for PanicAfter {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let packets = batch.len() as u64;
        assert!(packets <= self.left, "PanicAfter has passed what it was to pass");
        self.left -= packets;
    }
}
