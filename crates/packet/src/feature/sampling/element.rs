//! Sampling's step in the graph: it copies the beginning of one packet in N, and passes all on.
//!
//! Cost: a look at the port of each packet, and a count a batch; for a sample a copy of up to 256 bytes into the queue. That is
//!       a bounded channel between threads, into which a worker puts without waiting.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::{Hits, Sampling};
use crate::feature::ports::PortWords;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Instance, Made};
use crate::language::ClassSpec;
use crate::sample::{Sample, Skip};

pub(super) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("IPSampler", "5/5", "h/h", "#/#")
        .outputs(&["forward4", "options4", "error4", "forward6", "error6"]),
    summary: "takes samples of packets that arrive, at the rate of their port",
    configure: |setup| {
        setup.args.finish()?;
        let sampling = setup.state::<Sampling>();
        Ok(Made::new(move |instance| Sampler::new(sampling.as_deref(), instance)))
    },
};

pub(super) struct Sampler {
    /// Countdowns by number of the interface, with this worker's counts.
    countdowns: Vec<(Skip, Arc<Hits>)>,
    /// `None` without a state, and in a dry run: nothing is sampled.
    ports: Option<Arc<PortWords>>,
    queue: Option<SyncSender<Sample>>,
}

impl Sampler {
    pub(super) fn new(sampling: Option<&Sampling>, instance: Instance) -> Self {
        let sampling = sampling.filter(|_| !instance.is_dry_run());
        let seed = RandomState::new();
        let countdowns = sampling.iter().flat_map(|all| &all.interfaces).zip(0_u64..);
        Self {
            countdowns: countdowns
                .map(|(one, n)| (Skip::new(one.rate, seed.hash_one(n)), one.hits.add(instance)))
                .collect(),
            ports: sampling.map(|sampling| sampling.ports.clone()),
            queue: sampling.map(|sampling| sampling.queue.sender.clone()),
        }
    }

    /// Counts packets of one port, and takes samples of them.
    fn sample(
        (skip, hits): &mut (Skip, Arc<Hits>),
        queue: Option<&SyncSender<Sample>>,
        batch: &Batch,
        packets: Range<usize>,
    ) {
        hits.packets.add(packets.len() as u64);
        let mut at = packets.start;
        while let Some(next) = skip.next(packets.end - at) {
            let place = at + next;
            let sample = Sample::of(batch.meta()[place].port, batch.bytes(place));
            hits.samples.add(1);
            // Full, or nobody takes samples any more.
            if queue.is_none_or(|queue| queue.try_send(sample).is_err()) {
                hits.lost.add(1);
            }
            at = place + 1;
        }
    }
}

impl Element for Sampler {
    fn process(&mut self, input: u16, batch: &mut Batch, _: &mut Context<'_>) {
        if input != 0 {
            (0..batch.len()).for_each(|i| batch.output(i, input));
        }
        let Self { countdowns, ports: Some(ports), queue } = self else { return };
        let word = |at: usize| ports.word(batch.meta()[at].port);
        // Nearly always a batch is of one port.
        let mut at = 0;
        while at < batch.len() {
            let (begin, of) = (at, word(at));
            while at < batch.len() && word(at) == of {
                at += 1;
            }
            let number = usize::from(of).checked_sub(1);
            if let Some(countdown) = number.and_then(|number| countdowns.get_mut(number)) {
                Self::sample(countdown, queue.as_ref(), batch, begin..at);
            }
        }
    }
}
