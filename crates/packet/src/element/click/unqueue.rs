//! Pulls packets and pushes them: where pull ends and push begins.
//!
//! Source: Click's `Unqueue`. Differs: a burst is per round of the worker, and by default as large as a batch.

use crate::frame::{BATCH, Batch};
use crate::graph::{Context, Element, ElementClass, Inputs, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Unqueue", "1/1", "l/h", "x/y"),
    summary: "pulls packets and pushes them, a burst a round",
    configure: |setup| {
        let burst = setup.args.optional("BURST");
        setup.args.finish()?;
        let burst = burst?.unwrap_or(BATCH);
        Ok(Made::new(move |_| Unqueue { burst }))
    },
};

struct Unqueue {
    burst: usize,
}

impl Element for Unqueue {
    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        batch.set_limit(self.burst);
        inputs.pull(0, batch, cx);
        batch.set_limit(BATCH);
    }
}
