//! `CPUSwitch` sends packets to the output of the worker that they are in.
//!
//! Source: Click's `CPUSwitch`. Workers count from 0 in the order in which they are made; where there are fewer
//! outputs, counting begins again with the first.

use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("CPUSwitch", "1/1-", "h/h", "x/x"),
    summary: "sends packets to the output of their worker",
    configure: |setup| {
        setup.args.finish()?;
        let outputs = u16::try_from(setup.outputs).unwrap_or(u16::MAX).max(1);
        let workers = AtomicU16::new(0);
        Ok(Made::new(move |instance| {
            // Relaxed: instances are made by one thread.
            let worker = if instance.is_dry_run() { 0 } else { workers.fetch_add(1, Relaxed) };
            Switch { output: worker % outputs }
        }))
    },
};

struct Switch {
    output: u16,
}

impl Element for Switch {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            batch.output(i, self.output);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::graph::Graph;
    use crate::testing::{Rig, World};

    #[test]
    fn each_worker_has_an_output() {
        let text = "FromDevice(a) -> c :: CPUSwitch -> ToDevice(x); c [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let mut goes = Vec::new();
        for _ in 0..3 {
            goes.push(rig.receive("a", &[&[1]])[0].0.clone());
            rig.dry_run("a", &[1]).unwrap();
            rig.graph = Graph::new(&rig.plan, &rig.bench.pool);
        }
        assert_eq!(goes, ["x", "y", "x"]);
    }
}
