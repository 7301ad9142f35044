//! Drops every packet. For outputs whose packets are unwanted, so that they are counted as such.

use super::{Context, Element, ElementClass};
use crate::buf::Batch;
use crate::drops::DropReason;

pub(crate) const CLASS: ElementClass = ElementClass {
    name: "discard",
    summary: "drops every packet",
    inputs: &["in"],
    outputs: &[],
    make: || Box::new(Discard),
};

struct Discard;

impl Element for Discard {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            batch.discard(i, DropReason::Discarded);
        }
    }
}
