//! Times of packets: `TimeFilter` passes those of a time, `TimeRange` and `TimestampAccum` measure them,
//! `AdjustTimestamp` moves them, `SetTimestampDelta` makes differences of them, `StoreTimestamp(OFFSET)` writes them
//! into packets.
//!
//! Source: Click's elements of these names; a time is that which `SetTimestamp` or a trace gave a packet, 0 without
//! one. Times are seconds with a fraction, or have a unit (`20ms`). `START_AFTER` and `END_AFTER` count from the first
//! packet of all workers, `START_DELAY` and `END_DELAY` from when the configuration began to run, `INTERVAL` from the
//! start. In the call of `END_CALL` the word `$t` is the time of the packet. `SetTimestampDelta` means the time since
//! the first packet (`LAST`: since the packet before, `NOW`: until now, `FIRST`: since the first that the packet stands
//! for); each worker has its own of these. A time of 0 stays. `StoreTimestamp` makes packets as long as the time needs
//! them.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::annotations::Annotations;
use super::clock::{SECOND_NS, read_seconds, seconds, time_of_day};
use super::each::{class, each, sorting};
use crate::element::support::resets::Resets;
use crate::element::support::stop::EndCall;
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Ending, Exit, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{Args, ConfigError, Role, Value};

/// A time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Time(i64);

impl Time {
    pub(crate) fn ns(self) -> i64 {
        self.0
    }
}

impl Value for Time {
    fn read(text: &str) -> Result<Self, String> {
        let (sign, digits) = match text.trim().strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text.trim()),
        };
        // Seconds are exact; units are those of other times.
        let with_unit =
            || Duration::read(digits).ok().and_then(|time| i64::try_from(time.as_nanos()).ok());
        let ns = read_seconds(digits).or_else(with_unit);
        ns.map(|ns| Self(sign * ns)).ok_or_else(|| "no time in seconds".into())
    }
}

fn keyword(args: &mut Args<'_>, name: &'static str) -> Result<Option<i64>, ConfigError> {
    Ok(args.keyword::<Time>(name)?.map(|time| time.0))
}

pub(crate) const FILTER: ElementClass =
    sorting("TimeFilter", &["out", "others"], "passes packets of a time", |setup| {
        let start = setup.args.optional::<Time>("START")?.map(|time| time.0);
        let end = setup.args.optional::<Time>("END")?.map(|time| time.0);
        let start_delay = keyword(&mut setup.args, "START_DELAY")?;
        let start_after = keyword(&mut setup.args, "START_AFTER")?;
        let end_delay = keyword(&mut setup.args, "END_DELAY")?;
        let end_after = keyword(&mut setup.args, "END_AFTER")?;
        let call = EndCall::read(setup)?;
        let interval = keyword(&mut setup.args, "INTERVAL")?;
        let stop = setup.args.keyword("STOP");
        setup.args.finish()?;
        let several = |given: &[Option<i64>]| given.iter().flatten().count() > 1;
        if several(&[start, start_after, start_delay])
            || several(&[end, end_after, end_delay, interval])
        {
            return Err(setup.args.refuse_all("a bound is given twice"));
        }
        let stop = stop?.unwrap_or(false);
        if stop && call.is_some() {
            return Err(setup.args.refuse_all("STOP and END_CALL exclude each other"));
        }
        let bounds = Arc::new(Bounds {
            start: AtomicI64::new(start.unwrap_or(i64::MIN)),
            end: AtomicI64::new(end.unwrap_or(i64::MAX)),
            begun: AtomicBool::new(false),
            placed: AtomicBool::new(false),
            called: AtomicBool::new(false),
        });
        let exit = setup.exit(1, DropReason::Unmatched);
        let stop = stop.then(|| setup.ending.clone());
        let made = Made::new({
            let bounds = bounds.clone();
            move |instance| Filter {
                // Packets that are only evaluated move no bounds but their own.
                bounds: if instance.is_dry_run() { bounds.copy() } else { bounds.clone() },
                delays: [start_delay, end_delay],
                start_after,
                end_after,
                interval,
                exit,
                stop: stop.clone().filter(|_| !instance.is_dry_run()),
                call: call.clone().filter(|_| !instance.is_dry_run()),
            }
        });
        // Its first round is when the configuration begins to run.
        let made = if start_delay.or(end_delay).is_some() { made.polled() } else { made };
        Ok(bounds_handled(made, &bounds))
    })
    // `$t` is of `END_CALL`.
    .role(Role::Script);

/// What handlers read and change. Relaxed everywhere: nothing else depends on it.
struct Bounds {
    start: AtomicI64,
    end: AtomicI64,
    /// The first packet came.
    begun: AtomicBool,
    /// The time when the configuration began to run is known.
    placed: AtomicBool,
    /// The end was reported, since it was set.
    called: AtomicBool,
}

impl Bounds {
    /// Bounds that are these now, and move apart.
    fn copy(&self) -> Arc<Self> {
        Arc::new(Self {
            start: AtomicI64::new(self.start.load(Relaxed)),
            end: AtomicI64::new(self.end.load(Relaxed)),
            begun: AtomicBool::new(self.begun.load(Relaxed)),
            placed: AtomicBool::new(self.placed.load(Relaxed)),
            called: AtomicBool::new(true),
        })
    }

    /// Whether this is the first packet.
    fn begins(&self) -> bool {
        !self.begun.load(Relaxed) && !self.begun.swap(true, Relaxed)
    }
}

fn bounds_handled(made: Made, bounds: &Arc<Bounds>) -> Made {
    let time =
        |ns: i64| if matches!(ns, i64::MIN | i64::MAX) { "0".to_owned() } else { seconds(ns) };
    let read = |text: &str| Time::read(text).map(|time| time.0);
    let [start, end, interval, set_start, set_end, set_interval, extend] =
        [(); 7].map(|()| bounds.clone());
    made.handler(Handler::read("start", move || time(start.start.load(Relaxed))))
        .handler(Handler::read("end", move || time(end.end.load(Relaxed))))
        .handler(Handler::read("interval", move || {
            let (start, end) = (interval.start.load(Relaxed), interval.end.load(Relaxed));
            time(if end == i64::MAX { end } else { end.saturating_sub(start) })
        }))
        .handler(Handler::write("start", move |text| {
            set_start.start.store(read(text)?, Relaxed);
            Ok(())
        }))
        .handler(Handler::write("end", move |text| {
            set_end.end.store(read(text)?, Relaxed);
            set_end.called.store(false, Relaxed);
            Ok(())
        }))
        .handler(Handler::write("interval", move |text| {
            let start = Some(set_interval.start.load(Relaxed)).filter(|start| *start != i64::MIN);
            set_interval.end.store(start.unwrap_or(0).saturating_add(read(text)?), Relaxed);
            set_interval.called.store(false, Relaxed);
            Ok(())
        }))
        .handler(Handler::write("extend_interval", move |text| {
            let by = read(text)?;
            let later = |end| (end != i64::MAX).then(|| i64::saturating_add(end, by));
            // Without an end there is nothing to extend.
            let _ = extend.end.fetch_update(Relaxed, Relaxed, later);
            extend.called.store(false, Relaxed);
            Ok(())
        }))
}

struct Filter {
    bounds: Arc<Bounds>,
    /// Start and end, from when the configuration began to run.
    delays: [Option<i64>; 2],
    /// Start, from the first packet.
    start_after: Option<i64>,
    /// End, from the first packet.
    end_after: Option<i64>,
    interval: Option<i64>,
    exit: Exit,
    stop: Option<Ending>,
    call: Option<EndCall>,
}

impl Filter {
    /// Calls the handler of the end, once, for a packet of that time.
    fn call(&self, time: i64) {
        if let Some(call) = &self.call
            && !self.bounds.called.swap(true, Relaxed)
        {
            call.make_of("$t", &seconds(time));
        }
    }

    /// Sets the bounds that count from when the configuration began to run: now, where it is the first round.
    fn place(&self, now_ns: u64) {
        if self.delays == [None; 2] || self.bounds.placed.swap(true, Relaxed) {
            return;
        }
        for (bound, delay) in [&self.bounds.start, &self.bounds.end].into_iter().zip(self.delays) {
            if let Some(delay) = delay {
                bound.store(time_of_day(now_ns).saturating_add(delay), Relaxed);
            }
        }
    }
}

impl Element for Filter {
    fn poll(&mut self, _: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.place(cx.now_ns);
    }

    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        self.place(cx.now_ns);
        for i in 0..batch.len() {
            let time = Annotations::of(batch, i).timestamp_ns;
            if self.bounds.begins() {
                if let Some(after) = self.start_after {
                    self.bounds.start.store(time.saturating_add(after), Relaxed);
                }
                if let Some(after) = self.end_after {
                    self.bounds.end.store(time.saturating_add(after), Relaxed);
                }
                if let Some(interval) = self.interval {
                    let start = self.bounds.start.load(Relaxed);
                    let start = if start == i64::MIN { time } else { start };
                    self.bounds.end.store(start.saturating_add(interval), Relaxed);
                }
            }
            let mut ended = time >= self.bounds.end.load(Relaxed);
            if ended && time >= self.bounds.start.load(Relaxed) {
                self.call(time);
                // The handler may have moved it.
                ended = time >= self.bounds.end.load(Relaxed);
            }
            if ended || time < self.bounds.start.load(Relaxed) {
                self.exit.take(batch, i);
            }
            if let Some(stop) = self.stop.as_ref().filter(|_| ended) {
                stop.request();
            }
        }
    }
}

/// First and last time of packets, and differences to now.
#[derive(Default)]
struct Measured {
    first: Option<i64>,
    last: Option<i64>,
    count: u64,
    sum_ns: i64,
}

impl Measured {
    fn interval(&self) -> i64 {
        self.last.unwrap_or(0).saturating_sub(self.first.unwrap_or(0))
    }
}

type Shared = Arc<Mutex<Measured>>;

/// A handler, and what it shows.
type Row = (&'static str, fn(&Measured) -> String);

/// Adds handlers that read what was measured.
fn measured(made: Made, shared: &Shared, reset: &'static str, rows: &[Row]) -> Made {
    let made = rows.iter().fold(made, |made, &(name, text)| {
        let shared = shared.clone();
        made.handler(Handler::read(name, move || {
            text(&shared.lock().unwrap_or_else(PoisonError::into_inner))
        }))
    });
    let shared = shared.clone();
    made.command(reset, move || {
        *shared.lock().unwrap_or_else(PoisonError::into_inner) = Measured::default();
    })
}

struct Measure {
    /// `None` where packets are only evaluated.
    shared: Option<Shared>,
}

impl Element for Measure {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let Some(shared) = &self.shared else { return };
        let now = time_of_day(cx.now_ns);
        let mut measured = shared.lock().unwrap_or_else(PoisonError::into_inner);
        for i in 0..batch.len() {
            let time = Annotations::of(batch, i).timestamp_ns;
            measured.first = Some(measured.first.map_or(time, |first| first.min(time)));
            measured.last = Some(measured.last.map_or(time, |last| last.max(time)));
            measured.count += 1;
            measured.sum_ns = measured.sum_ns.saturating_add(now.saturating_sub(time));
        }
    }
}

fn measure(setup: &mut Setup<'_>) -> (Made, Shared) {
    let shared = setup.keep::<Mutex<Measured>>();
    let each = shared.clone();
    let made = Made::new(move |instance| Measure {
        shared: (!instance.is_dry_run()).then(|| each.clone()),
    });
    (made, shared)
}

pub(crate) const RANGE: ElementClass =
    class("TimeRange", "measures from when to when packets are", |setup| {
        setup.args.finish()?;
        let (made, shared) = measure(setup);
        Ok(measured(
            made,
            &shared,
            "reset",
            &[
                ("first", |m| seconds(m.first.unwrap_or(0))),
                ("last", |m| seconds(m.last.unwrap_or(0))),
                ("interval", |m| seconds(m.interval())),
                ("range", |m| {
                    format!("{} {}", seconds(m.first.unwrap_or(0)), seconds(m.last.unwrap_or(0)))
                }),
            ],
        ))
    })
    .ignores(&["SIMPLE"]);

pub(crate) const ACCUM: ElementClass =
    class("TimestampAccum", "measures how old packets are", |setup| {
        setup.args.finish()?;
        let (made, shared) = measure(setup);
        Ok(measured(
            made,
            &shared,
            "reset_counts",
            &[
                ("count", |m| m.count.to_string()),
                ("time", |m| seconds(m.sum_ns)),
                ("average_time", |m| {
                    seconds(m.sum_ns / i64::try_from(m.count.max(1)).unwrap_or(i64::MAX))
                }),
            ],
        ))
    });

pub(crate) const ADJUST: ElementClass =
    class("AdjustTimestamp", "moves the times of packets", |setup| {
        let time = setup.args.positional::<Time>("TIME");
        let all = setup.args.keyword("ALL");
        let first = setup.args.keyword("FIRST");
        setup.args.finish()?;
        let (all, first) = (all?.unwrap_or(false), first?.unwrap_or(false));
        let by = Arc::new(AtomicI64::new(time?.0));
        let (shown, set) = (by.clone(), by.clone());
        let made = each(move |batch, i| {
            let by = by.load(Relaxed);
            let mut annotations = Annotations::of(batch, i);
            // A time of 0 is none, and stays so unless all are moved.
            let moved = |time: i64| if time == 0 && !all { 0 } else { time.saturating_add(by) };
            match first {
                true => annotations.first_ns = moved(annotations.first_ns),
                false => annotations.timestamp_ns = moved(annotations.timestamp_ns),
            }
            annotations.set(batch, i);
        })?;
        Ok(made.handler(Handler::read("time", move || seconds(shown.load(Relaxed)))).handler(
            Handler::write("time", move |text| {
                set.store(Time::read(text).map(|time| time.0)?, Relaxed);
                Ok(())
            }),
        ))
    });

pub(crate) const DELTA: ElementClass =
    class("SetTimestampDelta", "makes differences of the times of packets", |setup| {
        let kind = setup.args.optional::<String>("TYPE");
        setup.args.finish()?;
        let kind = match kind?.as_deref() {
            None | Some("RANGE") => Delta::First,
            Some("LAST") => Delta::Before,
            Some("NOW") => Delta::Now,
            Some("FIRST") => Delta::OfFirst,
            Some(_) => {
                let words = "TYPE: RANGE, LAST, NOW and FIRST are possible";
                return Err(setup.args.refuse_all(words));
            }
        };
        let resets = Arc::new(Resets::new());
        let first = Arc::new(AtomicI64::new(0));
        let made = Made::new({
            let (resets, first) = (resets.clone(), first.clone());
            move |instance| SetDelta {
                kind,
                from: None,
                resets: resets.instance(),
                first: (!instance.is_dry_run()).then(|| first.clone()),
            }
        });
        let made = made.handler(Handler::read("first", move || seconds(first.load(Relaxed))));
        Ok(resets.handled(made, "reset"))
    });

#[derive(Clone, Copy, PartialEq, Eq)]
enum Delta {
    First,
    Before,
    Now,
    /// Time since the first of the packets that a packet stands for.
    OfFirst,
}

struct SetDelta {
    kind: Delta,
    from: Option<i64>,
    resets: Resets,
    /// What the handler reads; `None` where packets are only evaluated.
    first: Option<Arc<AtomicI64>>,
}

impl Element for SetDelta {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if self.resets.came() {
            self.from = None;
        }
        for i in 0..batch.len() {
            let mut annotations = Annotations::of(batch, i);
            let time = annotations.timestamp_ns;
            if time == 0 {
                continue;
            }
            let from = *self.from.get_or_insert_with(|| {
                if let Some(first) = &self.first {
                    first.store(time, Relaxed);
                }
                time
            });
            annotations.timestamp_ns = match self.kind {
                Delta::Now => time_of_day(cx.now_ns).saturating_sub(time),
                Delta::OfFirst => time.saturating_sub(annotations.first_ns),
                Delta::First | Delta::Before => time.saturating_sub(from),
            };
            if self.kind == Delta::Before {
                self.from = Some(time);
            }
            annotations.set(batch, i);
        }
    }
}

pub(crate) const STORE: ElementClass =
    class("StoreTimestamp", "writes the times of packets into them", |setup| {
        let offset = setup.args.optional::<usize>("OFFSET");
        let tail = setup.args.keyword("TAIL");
        setup.args.finish()?;
        let offset = match (offset?, tail?.unwrap_or(false)) {
            (Some(offset), false) => Some(offset),
            (None, true) => None,
            _ => return Err(setup.args.refuse_all("one of OFFSET and TAIL has to be given")),
        };
        each(move |batch, i| {
            let time = Annotations::of(batch, i).timestamp_ns;
            let part = |number: i64| u32::try_from(number).unwrap_or(0).to_be_bytes();
            // Seconds and nanoseconds, in network order.
            let words =
                [part(time.div_euclid(SECOND_NS)), part(time.rem_euclid(SECOND_NS))].concat();
            let len = batch.frame_len(i);
            let at = offset.unwrap_or(len);
            let longer = at.saturating_add(words.len()).saturating_sub(len);
            if longer > 0 {
                if !batch.lengthen(i, longer) {
                    return batch.discard(i, DropReason::NoBuffer);
                }
                batch.bytes_mut(i)[len..].fill(0);
            }
            batch.bytes_mut(i)[at..at + words.len()].copy_from_slice(&words);
        })
    });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::click::only::console;
    use crate::testing::{Rig, World, refused, run};

    #[test]
    fn times_are_filtered_and_measured() {
        console::collect();
        let rows = "!data timestamp\n10\n11\n12.5\n13\n14\n";
        let text = format!(
            "FromIPSummaryDump(DATA \"{rows}\") -> f :: TimeFilter(START_AFTER 1, INTERVAL 2) -> r :: TimeRange -> AdjustTimestamp(-1)
             -> SetTimestampDelta(RANGE) -> t :: ToIPSummaryDump(-, HEADER false, FIELDS timestamp); f [1] -> a :: TimestampAccum -> Discard"
        );
        let mut rig = Rig::new(&World::new(), &text);
        (0..20).for_each(|_| drop(rig.poll()));
        assert_eq!(console::collected().out, "0.000000\n1.500000\n", "11 and 12.5");
        assert_eq!(
            (rig.read("r.range"), rig.read("f.end")),
            ("11.000000 12.500000".into(), "13.000000".into())
        );
        assert_eq!((rig.read("a.count"), rig.read("f.interval")), ("3".into(), "2.000000".into()));
        rig.write("r.reset", "");
        rig.write("f.extend_interval", "5");
        assert_eq!(
            (rig.read("r.interval"), rig.read("f.end")),
            ("0.000000".into(), "18.000000".into())
        );
        assert!(refused(&FILTER, "START 1, START_DELAY 2").contains("given twice"));
        assert!(refused(&FILTER, "START x").contains("no time"));
        assert!(refused(&FILTER, "END_AFTER 1, END_DELAY 2").contains("given twice"));
        assert!(refused(&FILTER, "STOP true, END_CALL x.y").contains("exclude"));
        rig.write("f.interval", "500ms");
        assert_eq!(
            (rig.read("f.start"), rig.read("f.end")),
            ("11.000000".into(), "11.500000".into())
        );
    }

    #[test]
    fn a_dry_run_moves_no_time() {
        let text = "FromDevice(a) -> SetTimestamp(7) -> f :: TimeFilter(START_AFTER 0, INTERVAL 1, STOP true)
            -> d :: SetTimestampDelta(LAST) -> s :: TimeSortedSched(STOP true)";
        let text = text.replace("-> s ::", "-> Queue -> s ::") + " -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), &text);
        let shown = |rig: &Rig| ["f.start", "f.end", "d.first"].map(|name| rig.read(name));
        rig.dry_run("a", &[9; 60]).unwrap();
        assert_eq!(
            (shown(&rig), rig.plan.is_stopped()),
            (["0", "0", "0.000000"].map(Into::into), false)
        );
        rig.receive("a", &[&[9; 60]]);
        let begun = shown(&rig);
        assert_eq!(begun, ["7.000000", "8.000000", "7.000000"]);
        rig.write("f.end", "1");
        rig.dry_run("a", &[9; 60]).unwrap();
        assert!(!rig.plan.is_stopped(), "a packet behind the end that is only evaluated");
        // The instance of another worker begins where the first one is.
        let mut second = crate::graph::Graph::new(&rig.plan, &rig.bench.pool);
        let batch = crate::testing::batch(&rig.bench.pool, 0, [&[9_u8; 60][..]]);
        second.receive(0, batch, &mut rig.bench.round());
        assert_eq!(rig.read("f.end"), "1.000000");
        second.stop(&mut rig.bench.round());
    }

    #[test]
    fn delays_count_from_the_beginning() {
        let text = "FromDevice(a) -> SetTimestamp -> f :: TimeFilter(START_DELAY 1, END_DELAY 2) -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        rig.poll();
        let times = [500, 1200, 1900, 2100].map(|ms| {
            let began = rig.bench.now_ns;
            rig.bench.now_ns += ms * 1_000_000;
            let sent = rig.receive("a", &[&[9; 60]]).len();
            rig.bench.now_ns = began;
            sent
        });
        assert_eq!(times, [0, 1, 1, 0]);
    }

    #[test]
    fn differences_are_those_of_times_that_are_known() {
        let shown = |kind: &str| {
            console::collect();
            let rows = "!data timestamp first_timestamp\n0 0\n5 2\n7 3";
            let text = format!(
                "FromIPSummaryDump(DATA \"{rows}\") -> SetTimestampDelta(TYPE {kind})
                 -> ToIPSummaryDump(-, HEADER false, FIELDS ts_sec)"
            );
            let mut rig = Rig::new(&World::new(), &text);
            (0..9).for_each(|_| drop(rig.poll()));
            console::collected().out
        };
        assert_eq!(["RANGE", "LAST", "FIRST"].map(shown), ["0\n0\n2\n", "0\n0\n2\n", "0\n3\n4\n"]);
    }

    #[test]
    fn what_has_no_end_is_not_extended() {
        let rig = Rig::new(&World::new(), "FromDevice(a) -> f :: TimeFilter(START 1) -> Discard");
        rig.write("f.extend_interval", "5");
        assert_eq!(rig.read("f.end"), "0", "none");
        console::collect();
        let rows = "!data timestamp\n1\n2\n3\n4\n5";
        let text = format!(
            "FromIPSummaryDump(DATA \"{rows}\", STOP true) -> f :: TimeFilter(END 3, END_CALL s.run 1 $t) -> c :: Counter -> Discard;
             s :: Script(TYPE PASSIVE, print $args, write f.end $(add $(f.end) $1)); DriverManager(pause, print c.count)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        (0..9).for_each(|_| drop(rig.poll()));
        assert_eq!(console::collected().out, "1 3.000000\n1 4.000000\n1 5.000000\n5\n");
        let rig = Rig::new(&World::new(), "FromDevice(a) -> f :: TimeFilter(2, 5) -> Discard");
        let bounds = ["f.start", "f.end"].map(|name| rig.read(name));
        assert_eq!(bounds, ["2.000000", "5.000000"]);
    }

    #[test]
    fn times_are_written_into_packets() {
        let text = "FromDevice(a) -> SetTimestamp(7.5) -> StoreTimestamp(1) -> ToDevice(x)";
        let sent = Rig::new(&World::new(), text).receive("a", &[&[9; 10], &[9; 8]]);
        let time = [0, 0, 0, 7, 0x1d, 0xcd, 0x65, 0];
        assert_eq!(sent[0].1, [&[9][..], &time, &[9]].concat());
        assert_eq!(sent[1].1, [&[9][..], &time].concat(), "it becomes as long as the time needs");
        let text = text.replace("(1)", "(TAIL true)");
        let sent = Rig::new(&World::new(), &text).receive("a", &[&[9; 3]]);
        assert_eq!(sent[0].1, [&[9; 3][..], &time].concat());
        let beyond = run(&STORE, "OFFSET 2", 0, &[&[]]);
        assert_eq!(beyond.bytes(0), [0; 10]);
        assert!(refused(&STORE, "OFFSET 2, TAIL true").contains("OFFSET and TAIL"));
        let moved = run(&ADJUST, "2, ALL true", 0, &[&[1]]);
        let noted = Annotations::of(&moved, 0);
        assert_eq!((noted.timestamp_ns, noted.first_ns), (2 * SECOND_NS, 0));
        let moved = run(&ADJUST, "2ms, ALL true, FIRST true", 0, &[&[1]]);
        let noted = Annotations::of(&moved, 0);
        assert_eq!((noted.timestamp_ns, noted.first_ns), (0, 2_000_000));
        let moved = run(&ADJUST, "2", 0, &[&[1]]);
        assert_eq!(Annotations::of(&moved, 0).timestamp_ns, 0, "there is no time to move");
        let rig = Rig::new(&World::new(), "FromDevice(a) -> t :: AdjustTimestamp(1) -> Discard");
        rig.write("t.time", "-3.5");
        assert_eq!(rig.read("t.time"), "-3.500000");
    }
}
