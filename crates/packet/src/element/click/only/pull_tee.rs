//! `PullTee` copies packets that are pulled: a copy for each output but the first, by which they are pulled.
//!
//! Source: Click's `PullTee`. Differs: it also takes what is pushed, as `Tee` does.

use crate::element::support::copies::Copies;
use crate::frame::Batch;
use crate::frame::counters::{Count, PerWorker};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("PullTee", "1/1-", "a/ah", "x/x"),
    summary: "copies packets that are pulled",
    configure: |setup| {
        let outputs = setup.args.optional::<u32>("N")?;
        if let Some(outputs) = outputs.filter(|&outputs| outputs != setup.outputs) {
            let words = format!("{outputs} outputs announced, {} connected", setup.outputs);
            setup.args.refuse_all(&words);
        }
        setup.args.finish()?;
        let outputs = u16::try_from(setup.outputs).unwrap_or(u16::MAX);
        let failed = setup.keep::<PerWorker<Count>>();
        let shown = failed.clone();
        let made = move |instance| PullTee { outputs, copies: Copies::new(failed.add(instance)) };
        Ok(Made::new(made).counter("failed", &shown))
    },
};

struct PullTee {
    outputs: u16,
    copies: Copies,
}

impl Element for PullTee {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for output in 1..self.outputs {
            self.copies.send_all(batch, output, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn what_is_pulled_is_copied() {
        let text = "FromDevice(a) -> Queue -> t :: PullTee -> ToDevice(x); t [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[7], &[8]]);
        let mut sent = rig.poll();
        sent.sort();
        let want = [("x", 7), ("x", 8), ("y", 7), ("y", 8)];
        assert_eq!(sent, want.map(|(device, byte)| (device.to_owned(), vec![byte])));
    }
}
