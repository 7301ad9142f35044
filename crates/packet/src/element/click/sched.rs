//! Whose packets go next, where several inputs wait for one output.
//!
//! Source: Click's `RoundRobinSched` and `PrioSched`.

use crate::frame::{BATCH, Batch};
use crate::graph::{Context, Element, ElementClass, Inputs, Made};
use crate::language::ClassSpec;

pub(crate) const ROUND_ROBIN: ElementClass = ElementClass {
    spec: spec("RoundRobinSched"),
    summary: "pulls from its inputs by turns, a packet each",
    configure: |setup| {
        setup.args.finish()?;
        // The checker bounds the number of ports.
        let inputs = u16::try_from(setup.inputs).unwrap_or(u16::MAX);
        Ok(Made::new(move |_| RoundRobin { inputs, next: 0 }))
    },
};

pub(crate) const PRIORITY: ElementClass = ElementClass {
    spec: spec("PrioSched"),
    summary: "pulls from an input only when those before it have nothing",
    configure: |setup| {
        setup.args.finish()?;
        let inputs = u16::try_from(setup.inputs).unwrap_or(u16::MAX);
        Ok(Made::new(move |_| Priority { inputs }))
    },
};

const fn spec(name: &'static str) -> ClassSpec {
    ClassSpec::new(name, "1-/1", "l/l", "x/x")
}

struct RoundRobin {
    inputs: u16,
    next: u16,
}

impl Element for RoundRobin {
    fn pull(&mut self, _: u16, into: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        let wanted = into.len() + into.room();
        let mut without = 0;
        while into.len() < wanted && without < self.inputs {
            let before = into.len();
            into.set_limit(before + 1);
            inputs.pull(self.next, into, cx);
            without = if into.len() > before { 0 } else { without + 1 };
            self.next = (self.next + 1) % self.inputs;
        }
        into.set_limit(wanted.min(BATCH));
    }
}

struct Priority {
    inputs: u16,
}

impl Element for Priority {
    fn pull(&mut self, _: u16, into: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        for input in 0..self.inputs {
            if into.room() > 0 {
                inputs.pull(input, into, cx);
            }
        }
    }
}
