//! Random early detection: `RED(MIN_THRESH, MAX_THRESH, MAX_P)` drops packets at random, the more the longer the queues
//! near it are on average; `AdaptiveRED(TARGET, MAX_P)` finds the probability for a length that is wanted.
//!
//! Source: Click's elements of these names; Floyd and Jacobson, 1993; Floyd, Gummadi, Shenker, Adaptive RED, 2001. The
//! average moves by 2^-`STABILITY` (4) of the difference at each packet. Below the first threshold none is dropped, at
//! the second `MAX_P` of them, beyond it ever more up to twice the threshold, or all with `GENTLE false`. What it drops
//! leaves by the second output, where it is used. Queues are those behind the element, else those before it. Each
//! worker has its average.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::each::sorting;
use super::nearest::Queues;
use super::random::{Chance, Random};
use crate::element::support::setting::Setting;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Exit, Made, Setup};
use crate::handler::Handler;
use crate::language::ConfigError;

pub(crate) const RED: ElementClass =
    sorting("RED", OUTPUTS, "drops packets at random while queues are long", |setup| {
        let min = setup.args.positional::<u32>("MIN_THRESH");
        let max = setup.args.positional::<u32>("MAX_THRESH");
        let probability = setup.args.positional::<Chance>("MAX_P");
        let gentle = setup.args.keyword("GENTLE");
        let (min, max, probability) = (min?, max?, probability?);
        if max < min {
            setup.args.refuse_all("MAX_THRESH is below MIN_THRESH");
        }
        let shared = Shared::new(min, max, probability, gentle?.unwrap_or(true));
        configure(setup, shared, false)
    });

pub(crate) const ADAPTIVE: ElementClass =
    sorting("AdaptiveRED", OUTPUTS, "RED that keeps queues at a length", |setup| {
        let target = setup.args.positional::<u32>("TARGET");
        let probability = setup.args.optional::<Chance>("MAX_P");
        let target = target?.max(10);
        let max = target.saturating_add(target / 2);
        let shared = Shared::new(target / 2, max, probability?.unwrap_or(Chance(0.02)), true);
        configure(setup, shared, true)
    });

const OUTPUTS: &[&str] = &["out", "early"];

fn configure(setup: &mut Setup<'_>, shared: Shared, adaptive: bool) -> Result<Made, ConfigError> {
    let stability = setup.args.keyword::<u8>("STABILITY");
    let queues = Queues::read(setup);
    setup.args.finish()?;
    let stability = stability?.unwrap_or(4);
    if stability > 16 {
        return Err(setup.args.refuse_all("STABILITY: 0 to 16 are possible"));
    }
    let (queues, shared) = (queues?, Arc::new(shared));
    let exit = setup.exit(1, DropReason::QueueFull);
    let drops = setup.keep::<PerWorker<Count>>();
    let random = Random::of(setup);
    let made = Made::new({
        let (queues, shared, drops) = (queues.clone(), shared.clone(), drops.clone());
        move |instance| Red {
            queues: queues.clone(),
            shared: shared.clone(),
            weight: 0.5_f64.powi(stability.into()),
            average: if instance.is_dry_run() { shared.average() } else { 0.0 },
            since: 0,
            random: random.clone(),
            adaptive,
            adapted_ns: 0,
            exit,
            drops: drops.add(instance),
            dry_run: instance.is_dry_run(),
        }
    });
    Ok(handled(made.counter("drops", &drops), &queues, &shared, drops))
}

fn handled(
    made: Made,
    queues: &Queues,
    shared: &Arc<Shared>,
    drops: Arc<PerWorker<Count>>,
) -> Made {
    let names = queues.names.clone();
    let [average, stats] = [(); 2].map(|()| shared.clone());
    let lengths = queues.clone();
    let made = made
        .handler(Handler::read("queues", move || names.to_string()))
        .handler(Handler::read("avg_queue_size", move || format!("{:.3}", average.average())))
        .handler(Handler::read("stats", move || {
            format!(
                "{} current queue\n{:.3} avg queue\n{} drops\n",
                lengths.length(),
                stats.average(),
                drops.sum(Count::read)
            )
        }));
    let made = shared.max_p.handled(made, "max_p");
    shared.max.handled(shared.min.handled(made, "min_thresh"), "max_thresh")
}

/// What handlers read and change.
struct Shared {
    min: Setting<u32>,
    max: Setting<u32>,
    max_p: Setting<Chance>,
    /// Bits of a real number. Relaxed: nothing else depends on it.
    average: AtomicU64,
    gentle: bool,
}

impl Shared {
    fn new(min: u32, max: u32, probability: Chance, gentle: bool) -> Self {
        let (max_p, average) = (Setting::new(probability), AtomicU64::new(0));
        Self { min: Setting::new(min), max: Setting::new(max), max_p, average, gentle }
    }

    fn average(&self) -> f64 {
        f64::from_bits(self.average.load(Relaxed))
    }
}

struct Red {
    queues: Queues,
    shared: Arc<Shared>,
    weight: f64,
    average: f64,
    /// Packets since the last that ended.
    since: u32,
    random: Random,
    adaptive: bool,
    adapted_ns: u64,
    exit: Exit,
    drops: Arc<Count>,
    /// Packets are only evaluated: what all share stays as it is.
    dry_run: bool,
}

impl Red {
    /// Whether the packet ends.
    fn ends(&mut self) -> bool {
        let shared = &self.shared;
        let (min, max) = (f64::from(shared.min.get()), f64::from(shared.max.get()));
        let Chance(max_p) = shared.max_p.get();
        let chance = if self.average <= min {
            self.since = 0;
            return false;
        } else if self.average <= max {
            max_p * (self.average - min) / (max - min).max(1.0)
        } else if shared.gentle && self.average <= 2.0 * max {
            max_p + (1.0 - max_p) * (self.average - max) / max.max(1.0)
        } else {
            1.0
        };
        self.since = self.since.saturating_add(1);
        // So that the distances of packets that end are even (Floyd and Jacobson, section 7).
        let rest = 1.0 - f64::from(self.since) * chance;
        let ends = chance >= 1.0 || rest <= 0.0 || self.random.real() < chance / rest;
        if ends {
            self.since = 0;
        }
        ends
    }

    /// Moves the probability towards what keeps the average in the middle.
    fn adapt(&mut self, now_ns: u64) {
        if now_ns < self.adapted_ns + INTERVAL_NS {
            return;
        }
        self.adapted_ns = now_ns;
        let (min, max) = (f64::from(self.shared.min.get()), f64::from(self.shared.max.get()));
        let (low, high) = (min + 0.4 * (max - min), min + 0.6 * (max - min));
        let Chance(p) = self.shared.max_p.get();
        if self.average > high && p <= 0.5 {
            self.shared.max_p.set(Chance(p + (p / 4.0).min(0.01)));
        } else if self.average < low && p >= 0.01 {
            self.shared.max_p.set(Chance(p * 0.9));
        }
    }
}

/// Interval of adaptation: that of the paper.
const INTERVAL_NS: u64 = 500_000_000;

impl Element for Red {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        // What of this batch passes is in the queue behind it before the next packet comes; before a queue in front of
        // it the rest of the batch would be there still.
        #[allow(clippy::cast_precision_loss, reason = "a queue is shorter than 2^52")]
        let length = self.queues.length() as f64;
        let mut passed = 0.0;
        for i in 0..batch.len() {
            #[allow(clippy::cast_precision_loss, reason = "a batch is small")]
            let others = match self.queues.behind {
                true => passed,
                false => (batch.len() - 1 - i) as f64,
            };
            self.average += self.weight * (length + others - self.average);
            if self.ends() {
                self.drops.add(1);
                self.exit.take(batch, i);
            } else {
                passed += 1.0;
            }
        }
        if self.dry_run {
            return;
        }
        self.shared.average.store(self.average.to_bits(), Relaxed);
        if self.adaptive {
            self.adapt(cx.now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn packets_end_as_the_queue_grows() {
        let text = |class: &str| {
            format!(
                "FromDevice(a) -> r :: {class} -> q :: Queue(1000) -> s :: Shaper(1) -> ToDevice(x); r [1] -> c :: Counter -> Discard"
            )
        };
        let mut rig =
            Rig::new(&World::new(), &text("RED(50, 200, 0.1, STABILITY 2, GENTLE false)"));
        let count = |rig: &Rig, name: &str| rig.read(name).parse::<u32>().unwrap();
        rig.receive("a", &[&[7][..]; 50]);
        assert_eq!(count(&rig, "c.count"), 0);
        for _ in 0..10 {
            rig.receive("a", &[&[7][..]; 50]);
        }
        let (ended, length) = (count(&rig, "c.count"), count(&rig, "q.length"));
        assert_eq!(ended, count(&rig, "r.drops"));
        assert!((195..=230).contains(&length), "{length} packets: at the second threshold all end");
        assert_eq!((rig.read("r.queues"), rig.read("r.max_thresh")), ("q\n".into(), "200".into()));
        let average: f64 = rig.read("r.avg_queue_size").parse().unwrap();
        assert!(average > 190.0, "{average}");
        rig.write("r.max_thresh", "900");
        rig.write("r.max_p", "0");
        rig.receive("a", &[&[7][..]; 50]);
        assert_eq!(count(&rig, "c.count"), ended);
        assert!(rig.handlers.write("r.max_p", "2").is_err());
    }

    #[test]
    fn more_end_beyond_the_second_threshold() {
        let text = "FromDevice(a) -> RED(10, 20, 0, STABILITY 0) -> q :: Queue(1000) -> Shaper(1) -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        for _ in 0..20 {
            rig.receive("a", &[&[7][..]; 50]);
        }
        // None ends up to 20, as MAX_P is 0, and all do above 40.
        let length: u32 = rig.read("q.length").parse().unwrap();
        assert!((22..=42).contains(&length), "{length}");
    }

    #[test]
    fn a_dry_run_moves_no_average() {
        let text =
            "FromDevice(a) -> r :: AdaptiveRED(20) -> Queue(1000) -> Shaper(1) -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        for _ in 0..4 {
            rig.receive("a", &[&[7][..]; 50]);
        }
        rig.bench.now_ns += 2 * INTERVAL_NS;
        let shown = |rig: &Rig| [rig.read("r.avg_queue_size"), rig.read("r.max_p")];
        let before = shown(&rig);
        rig.dry_run("a", &[7; 60]).unwrap();
        assert_eq!(shown(&rig), before);
    }

    #[test]
    fn the_probability_adapts() {
        let text =
            "FromDevice(a) -> r :: AdaptiveRED(20) -> q :: Queue(1000) -> Shaper(1) -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        for _ in 0..40 {
            rig.bench.now_ns += INTERVAL_NS;
            rig.receive("a", &[&[7][..]; 3]);
        }
        let p: f64 = rig.read("r.max_p").parse().unwrap();
        assert!(p > 0.02, "{p}");
        assert!(refused(&RED, "9, 5, .1").contains("MAX_THRESH is below"));
        assert!(refused(&RED, "1, 5, 2").contains("no probability: 0 to 1"));
    }

    #[test]
    fn queues_have_to_be_there() {
        let plan = crate::graph::Plan::read(
            "f",
            "FromDevice(a) -> RED(1, 2, .1) -> ToDevice(b)",
            crate::ELEMENTS,
        );
        assert!(plan.unwrap_err().to_string().contains("no queue is near it"));
        let text = "FromDevice(a) -> q :: Queue -> r :: RED(1, 2, .1) -> ToDevice(b)";
        assert_eq!(Rig::new(&World::new(), text).read("r.queues"), "q\n");
    }
}
