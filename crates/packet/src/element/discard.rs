//! Drops every packet. For outputs whose packets are unwanted, so that they are counted as such.

use super::{Context, Element, ElementClass, Made};
use crate::buf::Batch;
use crate::counters::{Count, PerWorker};
use crate::drops::DropReason;
use crate::graph::ClassSpec;
use crate::handler::Handler;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec {
        name: "Discard",
        ports: "1/0",
        processing: "a/a",
        flow: "x/x",
        output_names: &[],
    },
    summary: "drops every packet",
    configure: |setup| {
        setup.args.finish()?;
        let counts = setup.keep::<PerWorker<Count>>();
        let (each, read) = (counts.clone(), counts);
        Ok(Made::new(move || Discard { count: each.add() })
            .handler(Handler::read("count", move || read.sum(Count::read).to_string())))
    },
};

struct Discard {
    count: std::sync::Arc<Count>,
}

impl Element for Discard {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        self.count.add(batch.len() as u64);
        for i in 0..batch.len() {
            batch.discard(i, DropReason::Discarded);
        }
    }
}
