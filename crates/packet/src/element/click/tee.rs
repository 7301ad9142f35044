//! A copy of each packet for each output.
//!
//! Source: Click's `Tee`. The first output gets the packet itself, and copies follow it; they count as packets of our own making.

use crate::element::support::copies::Copies;
use crate::frame::Batch;
use crate::frame::counters::{Count, PerWorker};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::language::{ClassSpec, ConfigError};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Tee", "1/1-", "h/h", "x/x"),
    summary: "sends a copy of each packet to each output",
    configure,
};

/// Makes an element that copies packets to all outputs but the first.
pub(crate) fn configure(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let outputs = setup.args.optional::<u32>("N")?;
    if let Some(outputs) = outputs
        && outputs != setup.outputs
    {
        let words = format!("{outputs} outputs announced, {} connected", setup.outputs);
        setup.args.refuse_all(&words);
    }
    setup.args.finish()?;
    let outputs = u16::try_from(setup.outputs).unwrap_or(u16::MAX);
    let failed = setup.keep::<PerWorker<Count>>();
    let shown = failed.clone();
    let made = move |instance| Tee { outputs, copies: Copies::new(failed.add(instance)) };
    Ok(Made::new(made).counter("failed", &shown))
}

struct Tee {
    outputs: u16,
    copies: Copies,
}

impl Element for Tee {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        // The packets themselves go first, to output 0: in Click a packet finishes its path from one output before
        // the copy for the next one is made.
        for output in 1..self.outputs {
            self.copies.send_all(batch, output, cx);
        }
    }
}
