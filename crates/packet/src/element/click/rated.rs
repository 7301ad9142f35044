//! Elements that keep to a rate: `RatedSplitter` sends the excess to its second output, `Shaper` and `RatedUnqueue` let
//! it wait; the second output of a shaper gives packets while its first one may not. `Bandwidth...` is the same in
//! bytes.
//!
//! Source: Click's elements of these names. Differs: packets are counted as they are, with the headers that they have
//! at this place of the graph, in a burst of 20 ms for splitters and shapers too. Shapers begin without it, as Click's
//! do, which make up for what was not used in the last second.

use std::sync::Arc;

use crate::element::support::allowance::{Allowance, Budget, Unit};
use crate::element::support::resets::Resets;
use crate::element::support::setting::Setting;
use crate::frame::Batch;
use crate::frame::counters::{Count, PerWorker};
use crate::graph::{Context, Element, ElementClass, Inputs, LiveArg, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError};

pub(crate) const SPLITTER: ElementClass = ElementClass {
    spec: splitter("RatedSplitter"),
    summary: "passes so many packets a second, and sends the rest to its second output",
    configure: |setup| made(setup, Unit::Packets, |budget| Splitter { budget }),
};

pub(crate) const BYTE_SPLITTER: ElementClass = ElementClass {
    spec: splitter("BandwidthRatedSplitter"),
    summary: "passes so many bytes a second, and sends the rest to its second output",
    configure: |setup| made(setup, Unit::Bytes, |budget| Splitter { budget }),
};

pub(crate) const SHAPER: ElementClass = ElementClass {
    spec: shaper("Shaper"),
    summary: "gives so many packets a second on pull",
    configure: |setup| shaping(setup, Unit::Packets),
};

pub(crate) const BYTE_SHAPER: ElementClass = ElementClass {
    spec: shaper("BandwidthShaper"),
    summary: "gives so many bytes a second on pull",
    configure: |setup| shaping(setup, Unit::Bytes),
};

pub(crate) const UNQUEUE: ElementClass = ElementClass {
    spec: pulled("RatedUnqueue", "l/h", "x/y"),
    summary: "pulls so many packets a second and hands them on",
    configure: |setup| pulling(setup, Unit::Packets),
};

pub(crate) const BYTE_UNQUEUE: ElementClass = ElementClass {
    spec: pulled("BandwidthRatedUnqueue", "l/h", "x/y"),
    summary: "pulls so many bytes a second and hands them on",
    configure: |setup| pulling(setup, Unit::Bytes),
};

const fn splitter(name: &'static str) -> ClassSpec {
    let output_names = &["within", "beyond"];
    ClassSpec::new(name, "1/2", "h/h", "x/x").outputs(output_names)
}

const fn shaper(name: &'static str) -> ClassSpec {
    ClassSpec::new(name, "1/1-2", "l/l", "x/x").outputs(&["shaped", "all"])
}

const fn pulled(name: &'static str, processing: &'static str, flow: &'static str) -> ClassSpec {
    ClassSpec::new(name, "1/1", processing, flow)
}

/// What the handler of all changes.
const RATE: &[LiveArg] = &[LiveArg { handler: "rate", keyword: "RATE" }];

fn made<E: Element + 'static>(
    setup: &mut Setup<'_>,
    unit: Unit,
    with: fn(Budget) -> E,
) -> Result<Made, ConfigError> {
    let allowance = Allowance::read(setup, unit, None);
    setup.args.finish()?;
    let allowance = allowance?;
    let each = allowance.clone();
    Ok(allowance.handled(Made::new(move |_| with(each.budget()))).live(RATE))
}

/// Those that pull and push, unless `ACTIVE false` is given.
fn pulling(setup: &mut Setup<'_>, unit: Unit) -> Result<Made, ConfigError> {
    let allowance = Allowance::read(setup, unit, None);
    let active = Setting::new(setup.args.keyword("ACTIVE")?.unwrap_or(true));
    let turns = Arc::new(PerWorker::<[Count; 3]>::default());
    let made = pulled_by(setup, allowance, active.clone(), &turns)?;
    let shown = move || {
        let sum = |n: usize| turns.sum(|turns| turns[n].read());
        format!("{} calls to run_task()\n{} empty pulls\n{} pulls\n", sum(0), sum(1), sum(2))
    };
    Ok(active.handled(made, "active").handler(Handler::read("calls", shown)))
}

/// Those that are pulled.
fn shaping(setup: &mut Setup<'_>, unit: Unit) -> Result<Made, ConfigError> {
    let allowance = Allowance::read(setup, unit, None).map(Allowance::begins_empty);
    pulled_by(setup, allowance, Setting::new(true), &Arc::default())
}

/// `reset` lets their bucket be as at the start.
fn pulled_by(
    setup: &mut Setup<'_>,
    allowance: Result<Allowance, ConfigError>,
    active: Setting<bool>,
    turns: &Arc<PerWorker<[Count; 3]>>,
) -> Result<Made, ConfigError> {
    setup.args.finish()?;
    let allowance = allowance?;
    let resets = Arc::new(Resets::new());
    let made = Made::new({
        let (allowance, resets, turns) = (allowance.clone(), resets.clone(), turns.clone());
        move |instance| Pulled {
            budget: allowance.budget(),
            allowance: allowance.clone(),
            resets: resets.instance(),
            active: active.clone(),
            turns: turns.add(instance),
        }
    });
    Ok(allowance.handled(resets.handled(made, "reset")).live(RATE))
}

struct Splitter {
    budget: Budget,
}

impl Element for Splitter {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        self.budget.refresh(cx.now_ns);
        for i in 0..batch.len() {
            if !self.budget.spend(batch.frame_len(i), cx.now_ns) {
                batch.output(i, 1);
            }
        }
    }
}

/// Pulls no more than may pass, whether it is pulled itself or pushes.
struct Pulled {
    budget: Budget,
    allowance: Allowance,
    resets: Resets,
    /// It pulls.
    active: Setting<bool>,
    /// Turns in which it could pull, those that found nothing, and packets.
    turns: Arc<[Count; 3]>,
}

impl Pulled {
    fn follow(&mut self) {
        if self.resets.came() {
            self.budget = self.allowance.budget();
        }
    }
}

impl Element for Pulled {
    fn pull(
        &mut self,
        output: u16,
        into: &mut Batch,
        inputs: &mut dyn Inputs,
        cx: &mut Context<'_>,
    ) {
        self.follow();
        if output > 0 {
            self.budget.refresh(cx.now_ns);
            if !self.budget.has_room(cx.now_ns) {
                inputs.pull(0, into, cx);
            }
            return;
        }
        self.budget.pull(into, inputs, cx);
    }

    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.follow();
        if !self.active.get() {
            return;
        }
        self.budget.pull(batch, inputs, cx);
        let [calls, empty, packets] = &*self.turns;
        calls.add(1);
        empty.add(u64::from(batch.is_empty()));
        packets.add(batch.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    const MS: u64 = 1_000_000;

    /// So many packets of 100 bytes received in the middle of each millisecond of a second, and pulled; what came
    /// out, by device, in all and until half of the time.
    fn sent(rig: &mut Rig, a_ms: usize) -> [(usize, usize); 2] {
        let frame = [7; 100];
        let frames = vec![&frame[..]; a_ms];
        let mut seen = [(0, 0); 2];
        for ms in 0..1000 {
            rig.bench.now_ns += MS;
            let mut now = rig.receive("in", &frames);
            now.extend(rig.poll());
            for (device, _) in now {
                let (all, half) = &mut seen[usize::from(device == "more")];
                *all += 1;
                *half += usize::from(ms < 500);
            }
        }
        seen
    }

    #[test]
    fn an_unqueue_pulls_while_it_is_active() {
        let text =
            "FromDevice(in) -> q :: Queue -> r :: RatedUnqueue(100, ACTIVE false) -> ToDevice(out)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("in", &[&[7; 100][..]; 3]);
        assert_eq!((rig.poll().len(), rig.read("q.length")), (0, "3".into()));
        rig.write("r.active", "true");
        assert_eq!(rig.poll().len(), 2, "20 ms are the burst");
        assert_eq!(rig.poll().len(), 0);
        let want = "2 calls to run_task()\n1 empty pulls\n2 pulls\n";
        assert_eq!(rig.read("r.calls"), want);
    }

    #[test]
    fn the_second_output_of_a_shaper_gives_the_rest() {
        let text = "FromDevice(in) -> Queue -> s :: Shaper(100) -> ToDevice(out); s [all] -> ToDevice(more)";
        let mut rig = Rig::new(&World::new(), text);
        let mut sent = rig.receive("in", &[&[7; 100][..]; 10]);
        sent.extend(rig.poll());
        let count = |device: &str| sent.iter().filter(|(to, _)| to == device).count();
        assert_eq!((count("out"), count("more")), (1, 9), "one, and what exceeds it");
        rig.bench.now_ns += 10 * MS;
        assert_eq!(rig.receive("in", &[&[7; 100]]).len() + rig.poll().len(), 1);
    }

    #[test]
    fn a_shaper_begins_without_a_burst() {
        for class in ["Shaper(100)", "BandwidthShaper(10kBps)"] {
            let text = format!("FromDevice(in) -> Queue -> s :: {class} -> ToDevice(out)");
            let mut rig = Rig::new(&World::new(), &text);
            let at_once =
                |rig: &mut Rig| rig.receive("in", &[&[7; 100][..]; 200]).len() + rig.poll().len();
            assert_eq!(at_once(&mut rig), 1, "{class}");
            rig.bench.now_ns += 5000 * MS;
            assert!((2..=3).contains(&rig.poll().len()), "{class}: 20 ms");
            rig.bench.now_ns += 500 * MS;
            rig.write("s.reset", "");
            assert_eq!(rig.poll().len(), 1, "{class}: begun anew");
            rig.bench.now_ns += 500 * MS;
            rig.write("s.rate", if class.starts_with('B') { "1kBps" } else { "10" });
            assert_eq!(rig.poll().len(), 1, "{class}: another rate begins now");
        }
    }

    #[test]
    fn what_is_too_much_goes_another_way() {
        let split = |class: &str| {
            let text =
                format!("FromDevice(in) -> s :: {class} -> ToDevice(out); s [1] -> ToDevice(more)");
            Rig::new(&World::new(), &text)
        };
        // A burst of 20 ms, then the rate: 400 and 20 less at the start, where the bucket is full.
        for class in [
            "RatedSplitter(400)",
            "BandwidthRatedSplitter(40kBps)",
            "BandwidthRatedSplitter(320 kbps)",
        ] {
            let rig = &mut split(class);
            let [(within, half), (beyond, _)] = sent(rig, 2);
            assert_eq!(within + beyond, 2000, "{class}");
            assert!(
                (406..=409).contains(&within) && (206..=209).contains(&half),
                "{class}: {within} {half}"
            );
            // Less than the rate goes whole, and after a pause no more than a burst at once.
            rig.bench.now_ns += 1000 * MS;
            let frames = [&[7; 100][..]; 40];
            let within = rig.receive("in", &frames).iter().filter(|sent| sent.0 == "out").count();
            assert!((8..=9).contains(&within), "{class}: {within}");
        }
        let rig = &mut split("RatedSplitter(400, BURST_SIZE 50)");
        assert_eq!(sent(rig, 1)[0].0, 449);
        rig.write("s.rate", "100");
        assert!((99..=101).contains(&sent(rig, 1)[0].0));
        assert_eq!(rig.read("s.rate"), "100");
        let rig = &mut split("BandwidthRatedSplitter(1MBps, BURST_DURATION 1s)");
        rig.write("s.rate", "80kbps");
        assert_eq!(rig.read("s.rate"), "80kbps");
        assert!(
            (200..=201).contains(&sent(rig, 1)[0].0),
            "what comes in a second, and a burst of that"
        );
        rig.write("s.rate", "0");
        assert_eq!(sent(rig, 1)[0].0, 0);
    }

    #[test]
    fn what_is_too_much_waits() {
        for (class, text) in [
            ("RatedUnqueue(400)", "-> s -> ToDevice(out)"),
            ("BandwidthRatedUnqueue(40kBps)", "-> s -> ToDevice(out)"),
            ("Shaper(400)", "-> s -> Unqueue(1) -> ToDevice(out)"),
            ("BandwidthShaper(320kbps)", "-> s -> ToDevice(out)"),
        ] {
            let text = format!("FromDevice(in) -> q :: Queue(600) {text}; s :: {class}");
            let rig = &mut Rig::new(&World::new(), &text);
            let [(out, half), _] = sent(rig, 1);
            assert!(
                (400..=409).contains(&out) && (200..=209).contains(&half),
                "{class}: {out} {half}"
            );
            let waits: usize = rig.read("q.length").parse().unwrap();
            let full: usize = rig.read("q.drops").parse().unwrap();
            assert_eq!((out + waits, full), (1000, 0), "{class}");
        }
    }

    #[test]
    fn the_guide_has_it_so() {
        let guide = include_str!("../../../../../docs/guide/build-a-graph.md");
        let lines = guide.lines().skip_while(|line| !line.contains("RatedSplitter(1000)"));
        let lines = lines.skip_while(|line| !line.starts_with("    "));
        let text: Vec<_> = lines.take_while(|line| line.starts_with("    ")).collect();
        let mut rig = Rig::new(&World::new(), &text.join("\n"));
        let frames = [&[0; 1000][..]; 30];
        assert_eq!(rig.receive("eth0", &frames).len(), 20);
        // A packet, and what 20 ms give: 25,000 bytes.
        rig.receive("eth1", &frames);
        assert_eq!(rig.poll().len(), 1);
        rig.bench.now_ns += 20 * MS;
        assert_eq!(rig.poll().len(), 25);
    }

    #[test]
    fn bytes_are_those_of_the_packets() {
        let text = "FromDevice(in) -> s :: BandwidthRatedSplitter(1000Bps, BURST_BYTES 0) -> ToDevice(out);
                    s [1] -> Discard";
        let rig = &mut Rig::new(&World::new(), text);
        let mut goes = |bytes: usize| !rig.receive("in", &[&vec![0; bytes]]).is_empty();
        // The first one takes a second and a half of what comes, but for a few bytes that Click rounds up to.
        assert_eq!([goes(1500), goes(60)], [true, false]);
        rig.bench.now_ns += 1494 * MS;
        assert!(rig.receive("in", &[&[0; 60]]).is_empty());
        rig.bench.now_ns += 6 * MS;
        assert_eq!(rig.receive("in", &[&[0; 60], &[0; 60]]).len(), 1);
    }

    #[test]
    fn wrong_rates_are_reported() {
        for (class, config, words) in [
            (&SPLITTER, "", "argument RATE is missing"),
            (&SHAPER, "many", "RATE: `many` is no whole number"),
            (&BYTE_UNQUEUE, "1Mb", "RATE: `1Mb` is no bandwidth"),
            (
                &UNQUEUE,
                "1, BURST_SIZE 1, BURST_DURATION 1s",
                "give one of BURST_DURATION and BURST_SIZE",
            ),
            (&BYTE_SHAPER, "1, BURST_SIZE 1", "unknown keyword `BURST_SIZE`"),
            (&BYTE_SPLITTER, "1, BURST_DURATION x", "`x` is no time"),
        ] {
            let reported = refused(class, config);
            assert!(reported.contains(words), "{config}: {reported}");
        }
    }
}
