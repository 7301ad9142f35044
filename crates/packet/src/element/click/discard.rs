//! Drops every packet. For outputs whose packets are unwanted, so that they are counted as such.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::frame::counters::{Count, PerWorker};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Discard", "1/0", "a/a", "x/x"),
    summary: "drops every packet",
    configure: |setup| {
        setup.args.finish()?;
        let counts = setup.keep::<Counts>();
        let (each, read) = (counts.clone(), counts.clone());
        Ok(Made::new(move |instance| Discard { count: each.workers.add(instance) })
            .handler(Handler::read("count", move || read.count().to_string()))
            .command("reset", move || counts.reset()))
    },
};

#[derive(Default)]
struct Counts {
    workers: PerWorker<Count>,
    /// What had been counted when it was last reset.
    before: AtomicU64,
}

impl Counts {
    fn count(&self) -> u64 {
        // Read first: what is counted in between is not less than that. Relaxed, as counts are.
        let before = self.before.load(Relaxed);
        self.workers.sum(Count::read) - before
    }

    fn reset(&self) {
        self.before.store(self.workers.sum(Count::read), Relaxed);
    }
}

struct Discard {
    count: Arc<Count>,
}

impl Element for Discard {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        self.count.add(batch.len() as u64);
        for i in 0..batch.len() {
            batch.discard(i, DropReason::Discarded);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn counting_begins_anew() {
        let mut rig = Rig::new(&World::new(), "FromDevice(a) -> d :: Discard");
        rig.receive("a", &[&[1], &[2]]);
        assert_eq!(rig.read("d.count"), "2");
        rig.write("d.reset", "");
        assert_eq!(rig.read("d.count"), "0");
        rig.receive("a", &[&[3]]);
        rig.replace("FromDevice(a) -> d :: Discard; FromDevice(b) -> Discard").unwrap();
        assert_eq!(rig.read("d.count"), "1");
    }
}
