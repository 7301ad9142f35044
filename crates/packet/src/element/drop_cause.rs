//! Drops packets with the reason of the cause that their note holds, and tells nobody: stands where
//! an error element would, in a router that sends no ICMP.

use super::{Context, Element, ElementClass};
use crate::buf::Batch;
use crate::cause::Cause;
use crate::drops::DropReason;

pub(crate) const CLASS: ElementClass = ElementClass {
    name: "drop_cause",
    summary: "drops packets with the reason of their cause, and tells nobody",
    inputs: &["in"],
    outputs: &[],
    make: || Box::new(DropCause),
};

struct DropCause;

impl Element for DropCause {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let cause = Cause::of_note(batch.meta()[i].note);
            batch.discard(i, cause.map_or(DropReason::Discarded, Cause::reason));
        }
    }
}
