//! Drops every packet. For outputs whose packets are unwanted, so that they are counted as such.

use super::{Context, Element, ElementClass, Inputs, Made};
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
        let made = Made::new(move || Discard { count: each.add() })
            .handler(Handler::read("count", move || read.sum(Count::read).to_string()));
        Ok(if setup.pulls { made.polled() } else { made })
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

    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        inputs.pull(0, batch, cx);
        self.process(0, batch, cx);
    }
}
