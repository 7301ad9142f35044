//! Drops packets with the reason of the cause that their note holds, and sends no error: stands where
//! an error element would, in a router that sends no ICMP.

use crate::frame::{Batch, Cause, DropReason};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("DropCause", "1/0", "h/h", "x/x"),
    summary: "drops packets with the reason of their cause, without an ICMP error",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| DropCause))
    },
};

struct DropCause;

impl Element for DropCause {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let cause = batch.meta()[i].note.cause();
            batch.discard(i, cause.map_or(DropReason::Discarded, Cause::reason));
        }
    }
}
