//! Elements that do one thing to each packet, and pass it: a closure is one.

use crate::frame::Batch;
use crate::frame::counters::{Count, PerWorker};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::language::{ClassSpec, ConfigError};

/// What is done to packet `i` of a batch.
pub(crate) struct Each<F>(pub(crate) F);

impl<F: FnMut(&mut Batch, usize) + Send> Element for Each<F> {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            (self.0)(batch, i);
        }
    }
}

/// An element that does this to each packet, in all workers.
pub(crate) fn each(
    run: impl FnMut(&mut Batch, usize) + Clone + Send + Sync + 'static,
) -> Result<Made, ConfigError> {
    Ok(Made::new(move |_| Each(run.clone())))
}

/// An element that does this to each packet, and counts those of which it returns true: its handler `drops`.
pub(crate) fn counted(
    setup: &mut Setup<'_>,
    run: impl FnMut(&mut Batch, usize) -> bool + Clone + Send + Sync + 'static,
) -> Result<Made, ConfigError> {
    let drops = setup.keep::<PerWorker<Count>>();
    let shown = drops.clone();
    let made = Made::new(move |instance| {
        let (drops, mut run) = (drops.add(instance), run.clone());
        Each(move |batch: &mut Batch, i| {
            if run(batch, i) {
                drops.add(1);
            }
        })
    });
    Ok(made.counter("drops", &shown))
}

/// Class with an input and an output, pushed or pulled.
pub(crate) const fn class(
    name: &'static str,
    summary: &'static str,
    configure: fn(&mut Setup<'_>) -> Result<Made, ConfigError>,
) -> ElementClass {
    ElementClass { spec: ClassSpec::new(name, "1/1", "a/a", "x/x"), summary, configure }
}

/// Class with a second output, for packets that it does not pass.
pub(crate) const fn sorting(
    name: &'static str,
    outputs: &'static [&'static str],
    summary: &'static str,
    configure: fn(&mut Setup<'_>) -> Result<Made, ConfigError>,
) -> ElementClass {
    let spec = ClassSpec::new(name, "1/1-2", "a/ah", "x/x").outputs(outputs);
    ElementClass { spec, summary, configure }
}
