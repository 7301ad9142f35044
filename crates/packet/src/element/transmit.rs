//! Where packets leave the graph: each goes to the queue of the port that its note names.

use super::{Context, Element, ElementClass};
use crate::buf::Batch;

pub(crate) const CLASS: ElementClass = ElementClass {
    name: "transmit",
    summary: "hands packets to the port that their note names",
    inputs: &["in"],
    outputs: &[],
    make: || Box::new(TransmitElement),
};

struct TransmitElement;

impl Element for TransmitElement {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.transmit(batch);
    }
}
