//! Both ends of a run inside the kernel: a generator before the ingress, a watch behind the egresses.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::latency::Latency;
use super::watch::{Seen, Watch};
use crate::cores;
use crate::traffic::Generator;
use crate::traffic::generator::Sent;

/// What is offered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Nanoseconds from packet to packet; 0: as many as can be made.
    pub(super) interval_ns: u64,
    /// Duration, about.
    pub(super) time: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) sent: u64,
    /// Millions of packets a second that were sent, while they were.
    pub(super) offered: f64,
    pub(super) arrived: u64,
    /// Millions of packets a second that arrived.
    pub(super) mpps: f64,
    /// Not as they must be.
    pub(super) wrong: u64,
    /// Packets behind a later one of their stream.
    pub(super) late: u64,
    pub(super) latency: Latency,
}

/// Where packets come from and go to.
pub(super) trait Ends {
    /// Sends, and waits until what comes has come.
    ///
    /// # Errors
    /// The kernel's error.
    fn offer(&mut self, load: Load) -> Result<Outcome>;

    /// Sends every destination once, to have all caches warm; how many packets came out.
    ///
    /// # Errors
    /// The kernel's error.
    fn warm(&mut self) -> Result<u64>;
}

/// What a call of a generator takes besides its turns, about: the kernel makes and clears a pool of pages.
const CALL: Duration = Duration::from_millis(25);
/// Turns from which the time of one is estimated.
const SOME_TURNS: u32 = 1 << 17;
/// Shorter than that is none.
const LEAST_TURN: f64 = 20e-9;
/// A longer call cannot be ended.
const MOST_TURNS: u32 = 1 << 28;
/// Time from the last packet sent to the counts being final.
const DRAIN: Duration = Duration::from_millis(60);
/// Time between two reads of them.
const TICK: Duration = Duration::from_millis(1);

/// Generators, each on a core of its own, and what watches.
pub(super) struct KernelEnds {
    generators: Vec<(usize, Generator)>,
    watch: Watch,
    destinations: u32,
}

impl KernelEnds {
    /// Ends with generators that are to run on these cores.
    pub(super) fn new(
        generators: Vec<(usize, Generator)>,
        watch: Watch,
        destinations: usize,
    ) -> Self {
        let destinations = u32::try_from(destinations).expect("a port numbers them");
        Self { generators, watch, destinations }
    }

    /// All of them at once, so many turns each.
    fn run(&mut self, turns: u32) -> Result<()> {
        if let [(_, generator)] = &mut self.generators[..] {
            generator.run(turns)?;
            return Ok(());
        }
        std::thread::scope(|scope| {
            let mut runs = Vec::new();
            for (core, generator) in &mut self.generators {
                runs.push(scope.spawn(|| {
                    cores::keep_on(*core);
                    generator.run(turns)
                }));
            }
            for run in runs {
                run.join().expect("a generator returns its errors")?;
            }
            Ok(())
        })
    }

    fn pace(&mut self, interval_ns: u64) -> Result<()> {
        // Together they keep the pace.
        let interval_ns = interval_ns * self.generators.len() as u64;
        self.generators
            .iter_mut()
            .try_for_each(|(_, generator)| Ok(generator.set_pace(interval_ns)?))
    }

    fn sent(&self) -> Result<Sent> {
        let mut all = Sent::default();
        for (_, generator) in &self.generators {
            let sent = generator.sent()?;
            all.packets += sent.packets;
            all.ns = all.ns.max(sent.ns);
        }
        Ok(all)
    }

    /// Waits until so many packets arrived, or for some time no more.
    fn settle(&self, sent: u64) -> Result<Seen> {
        let mut arrived = self.watch.reading()?.arrived;
        let mut since = Instant::now();
        while arrived < sent && since.elapsed() < DRAIN {
            std::thread::sleep(TICK);
            let now = self.watch.reading()?.arrived;
            if now != arrived {
                (arrived, since) = (now, Instant::now());
            }
        }
        self.watch.read()
    }
}

impl Ends for KernelEnds {
    fn offer(&mut self, load: Load) -> Result<Outcome> {
        self.pace(load.interval_ns)?;
        let start = Instant::now();
        self.run(SOME_TURNS)?;
        let took = start.elapsed().saturating_sub(CALL).as_secs_f64() / f64::from(SOME_TURNS);
        let turns = load.time.as_secs_f64() / took.max(LEAST_TURN);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
        let turns = (turns as u32).clamp(SOME_TURNS, MOST_TURNS);
        self.settle(self.sent()?.packets)?;

        self.watch.reset()?;
        self.pace(load.interval_ns)?;
        self.run(turns)?;
        let sent = self.sent()?;
        ensure!(sent.packets > 1 && sent.ns > 0, "nothing was sent");
        let Seen { reading, late, latency } = self.settle(sent.packets)?;
        #[allow(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
        let rate = |packets: u64| packets as f64 * 1e3 / sent.ns as f64;
        Ok(Outcome {
            sent: sent.packets,
            offered: rate(sent.packets),
            arrived: reading.arrived,
            // By the watch's own clock; where too few came for that, by the sender's.
            mpps: reading.ns_per_packet().map_or_else(|| rate(reading.arrived), |ns| 1e3 / ns),
            wrong: reading.wrong,
            late,
            latency,
        })
    }

    fn warm(&mut self) -> Result<u64> {
        self.watch.reset()?;
        self.pace(0)?;
        self.run(self.destinations.max(4096))?;
        Ok(self.settle(u64::MAX)?.reading.arrived)
    }
}
