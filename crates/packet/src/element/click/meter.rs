//! Where packets go depends on how many come: `Meter(1000, 5000)` sends all to output 0 while fewer than 1,000 a
//! second come, to output 1 below 5,000, and to output 2 from there on. `BandwidthMeter` is the same in bytes.
//!
//! Source: Click's elements of these names. The rate is a mean that each hundredth of a second counts into with a
//! sixteenth, as Click's does; so it follows a change within some tenths of a second. Each worker has its own.

use std::sync::Arc;

use crate::element::support::allowance::Unit;
use crate::frame::Batch;
use crate::frame::counters::{Count, PerWorker};
use crate::graph::{Context, Element, ElementClass, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{Bandwidth, ClassSpec, ConfigError};

pub(crate) const PACKETS: ElementClass = ElementClass {
    spec: spec("Meter"),
    summary: "sorts by how many packets a second come",
    configure: |setup| configure(setup, Unit::Packets),
};

pub(crate) const BYTES: ElementClass = ElementClass {
    spec: spec("BandwidthMeter"),
    summary: "sorts by how many bytes a second come",
    configure: |setup| configure(setup, Unit::Bytes),
};

const fn spec(name: &'static str) -> ClassSpec {
    ClassSpec::new(name, "1/-", "h/h", "x/x")
}

/// Time between two readings.
const TICK_NS: u64 = 10_000_000;
/// Ticks of a second.
const TICKS: f64 = 100.0;
/// What a tick counts for in the mean.
const WEIGHT: f64 = 1.0 / 16.0;

fn configure(setup: &mut Setup<'_>, unit: Unit) -> Result<Made, ConfigError> {
    let args = &mut setup.args;
    let given: Vec<_> = args.rest().collect();
    let mut rates: Vec<u64> = Vec::with_capacity(given.len());
    for arg in &given {
        let rate = match unit {
            Unit::Packets => args.read(arg, "RATE"),
            Unit::Bytes => args.read(arg, "RATE").map(|rate: Bandwidth| rate.bytes_per_s),
        };
        let Ok(rate) = rate else { continue };
        if rates.last().is_some_and(|&last| last >= rate) {
            args.refuse(arg, "rates have to rise");
        }
        rates.push(rate);
    }
    if given.is_empty() {
        args.refuse_all("argument RATE is missing");
    }
    args.finish()?;
    let wanted = u32::try_from(rates.len() + 1).unwrap_or(u32::MAX);
    if setup.outputs > wanted {
        let words = format!("{} outputs are used, and these rates have {wanted}", setup.outputs);
        return Err(setup.args.refuse_all(&words));
    }
    let seen = setup.keep::<PerWorker<Count>>();
    let text = |rate: &u64| match unit {
        Unit::Packets => format!("{rate}\n"),
        Unit::Bytes => format!("{rate}Bps\n"),
    };
    let meters: String = rates.iter().map(text).collect();
    let rates: Arc<[u64]> = rates.into();
    let made = Made::new({
        let seen = seen.clone();
        move |instance| Meter {
            unit,
            rates: rates.clone(),
            mean: 0.0,
            came: 0,
            tick_ns: 0,
            output: 0,
            seen: seen.add(instance),
        }
    });
    Ok(made
        .polled()
        .counter("rate", &seen)
        .handler(Handler::read("meters", move || meters.clone())))
}

struct Meter {
    unit: Unit,
    /// Rising.
    rates: Arc<[u64]>,
    /// Packets or bytes a second.
    mean: f64,
    /// Packets or bytes of the present tick.
    came: u64,
    /// When that began; 0 before the first.
    tick_ns: u64,
    /// Where packets go by the mean.
    output: u16,
    /// The mean, for handlers.
    seen: Arc<Count>,
}

impl Meter {
    /// Takes the ticks that are over into the mean.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a mean is not exact, and not negative"
    )]
    fn follow(&mut self, now_ns: u64) {
        if self.tick_ns == 0 {
            self.tick_ns = now_ns;
        }
        let ticks = now_ns.saturating_sub(self.tick_ns) / TICK_NS;
        if ticks == 0 {
            return;
        }
        self.tick_ns += ticks * TICK_NS;
        // What came was in the first of them; nothing in those behind.
        let came = std::mem::take(&mut self.came) as f64 * TICKS;
        self.mean += (came - self.mean) * WEIGHT;
        let quiet = i32::try_from(ticks - 1).unwrap_or(i32::MAX);
        self.mean *= (1.0 - WEIGHT).powi(quiet);
        self.seen.set(self.mean.round() as u64);
        let above = self.rates.iter().take_while(|&&rate| self.mean >= rate as f64).count();
        self.output = u16::try_from(above).unwrap_or(u16::MAX);
    }
}

impl Element for Meter {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        self.follow(cx.now_ns);
        self.came += match self.unit {
            Unit::Packets => batch.len() as u64,
            Unit::Bytes => batch.total_bytes(),
        };
        for i in 0..batch.len() {
            batch.output(i, self.output);
        }
    }

    /// So that the mean falls when nothing comes.
    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.follow(cx.now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    /// Receives 100 bytes so many times a millisecond for a second; where the last ones went.
    fn second(rig: &mut Rig, a_ms: usize) -> String {
        let frames = vec![&[7; 100][..]; a_ms];
        let mut last = String::new();
        for _ in 0..1000 {
            rig.bench.now_ns += 1_000_000;
            if let Some((device, _)) = rig.receive("in", &frames).pop() {
                last = device;
            }
            rig.poll();
        }
        last
    }

    #[test]
    fn packets_go_by_their_rate() {
        for class in ["Meter(1500, 3500)", "BandwidthMeter(150kBps, 2800kbps)"] {
            let text = format!(
                "FromDevice(in) -> m :: {class} => ToDevice(slow), ToDevice(fast), ToDevice(more)"
            );
            let mut rig = Rig::new(&World::new(), &text);
            let seen = [1, 2, 5, 2, 1].map(|a_ms| second(&mut rig, a_ms));
            assert_eq!(seen, ["slow", "fast", "more", "fast", "slow"], "{class}");
            let unit = if class.starts_with('B') { 100 } else { 1 };
            let rate = rig.read("m.rate").parse::<u64>().unwrap() / unit;
            assert!((995..=1010).contains(&rate), "{class}: {rate}");
            second(&mut rig, 0);
            assert!(rig.read("m.rate").parse::<u64>().unwrap() / unit < 5, "{class}");
        }
    }

    #[test]
    fn a_long_silence_is_one_step() {
        let text = "FromDevice(in) -> m :: Meter(100) => ToDevice(slow), ToDevice(fast)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!((second(&mut rig, 1), rig.read("m.meters")), ("fast".into(), "100\n".into()));
        rig.bench.now_ns += u64::from(u32::MAX) * 1_000_000_000;
        assert_eq!(rig.receive("in", &[&[1]])[0].0, "slow");
        assert_eq!(rig.read("m.rate"), "0");
    }

    #[test]
    fn wrong_rates_are_reported() {
        for (class, config, words) in [
            (&PACKETS, "", "argument RATE is missing"),
            (&PACKETS, "5, x", "RATE: `x` is no whole number"),
            (&PACKETS, "5, 5", "rates have to rise"),
            (&BYTES, "1kBps, 8kbps", "rates have to rise"),
            (&BYTES, "1, 2", "8 outputs are used, and these rates have 3"),
        ] {
            let reported = refused(class, config);
            assert!(reported.contains(words), "{config}: {reported}");
        }
    }
}
