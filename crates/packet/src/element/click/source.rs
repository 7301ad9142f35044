//! Makes packets of nothing: for tests and measurements. `InfiniteSource` as many as it can, `RatedSource` so many a
//! second, `RandomSource` of random bytes (xorshift64, the same ones from the same `SEED`).
//!
//! `InfiniteSource` and `RandomSource` wait while all queues behind them are full (Click's full notes), and may be
//! pulled from instead.
//!
//! Source: Click's elements of these names. Packets of `InfiniteSource` (unless it has `TIMESTAMP false`) and of
//! `RatedSource` have the time at which they were made. All count as packets of our own making. Of several workers the
//! first makes them all, as one thread does in Click: `LIMIT` and rates hold for the router, and packets stay in order.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::element::support::allowance::{Allowance, Budget, Rate, Unit};
use crate::element::support::one_instance::OneInstance;
use crate::element::support::resets::Resets;
use crate::element::support::setting::{Setting, value};
use crate::element::support::stop::{EndCall, Stop};
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{BATCH, Batch, FLAG_COPY, FLAG_GENERATED, HEADROOM, Packet};
use crate::graph::{Context, Element, ElementClass, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{Arg, Bandwidth, ClassSpec, ConfigError, unquote};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: spec("InfiniteSource"),
    summary: "makes packets of the same bytes, a burst a round",
    configure: |setup| {
        let data = setup.args.optional_arg("DATA")?;
        let limit = setup.args.optional("LIMIT");
        let burst = setup.args.optional("BURST");
        let active = setup.args.optional("ACTIVE");
        let length = setup.args.keyword("LENGTH");
        let datasize = setup.args.keyword("DATASIZE");
        let stop = setup.args.keyword("STOP");
        let end = EndCall::read(setup);
        let stamped = setup.args.keyword("TIMESTAMP");
        setup.args.finish()?;
        let (limit, active, length) = (limit?, active?, length?.or(datasize?));
        let content = Content { filling: Filling::Same, stamped: stamped?.unwrap_or(true) };
        let stop = stop?.unwrap_or(false);
        let given = Given { data, limit, active, length, stop, end: end?, content };
        let burst = Setting::<u32>::new(burst?.unwrap_or(1));
        let each = burst.clone();
        let made = configure(setup, given, move || Pace::Round(each.clone()))?;
        Ok(burst.handled(burst.handled(made, "burst"), "burstsize"))
    },
};

pub(crate) const RANDOM: ElementClass = ElementClass {
    spec: spec("RandomSource"),
    summary: "makes packets of random bytes, a burst a round",
    configure: |setup| {
        let length = setup.args.positional("LENGTH");
        let limit = setup.args.optional("LIMIT");
        let burst = setup.args.optional("BURST");
        let active = setup.args.optional("ACTIVE");
        let stop = setup.args.keyword("STOP");
        let seed = setup.args.keyword("SEED");
        let end = EndCall::read(setup);
        let stamped = setup.args.keyword("TIMESTAMP");
        setup.args.finish()?;
        let (limit, active, length) = (limit?, active?, Some(length?));
        // A state of zeros would stay one.
        let filling = Filling::Random(seed?.unwrap_or(1_u64).max(1));
        let content = Content { filling, stamped: stamped?.unwrap_or(false) };
        let stop = stop?.unwrap_or(false);
        let given = Given { data: None, limit, active, length, stop, end: end?, content };
        let burst = Setting::<u32>::new(burst?.unwrap_or(1));
        let each = burst.clone();
        let made = configure(setup, given, move || Pace::Round(each.clone()))?;
        Ok(burst.handled(made, "burst"))
    },
};

pub(crate) const RATED: ElementClass = ElementClass {
    spec: spec("RatedSource"),
    summary: "makes packets of the same bytes, so many a second",
    configure: |setup| {
        let data = setup.args.optional_arg("DATA")?;
        let allowance = Allowance::read(setup, Unit::Packets, Some(RATE));
        let limit = setup.args.optional("LIMIT");
        let active = setup.args.optional("ACTIVE");
        let length = setup.args.keyword("LENGTH");
        let least = setup.args.keyword::<usize>("DATASIZE");
        let bandwidth = setup.args.keyword::<Bandwidth>("BANDWIDTH");
        let stop = setup.args.keyword("STOP");
        let end = EndCall::read(setup);
        setup.args.finish()?;
        let bytes = data.as_ref().map_or(USUAL.len(), |data: &Arg<'_>| data.bytes().len());
        // What is there is not cut for it.
        let length = length?.or(least?.map(|least| least.max(bytes)));
        let (limit, active, stop) = (limit?, active?, stop?.unwrap_or(false));
        let allowance = allowance?;
        if let Some(Bandwidth { bytes_per_s }) = bandwidth? {
            let each = length.unwrap_or(bytes).max(1) as u64;
            let rate = Rate::of_packets(bytes_per_s / each);
            allowance.set(rate).map_err(|words| setup.args.refuse_all(&words))?;
        }
        let each = allowance.clone();
        let content = Content { filling: Filling::Same, stamped: true };
        let given = Given { data, limit, active, length, stop, end: end?, content };
        Ok(allowance.handled(configure(setup, given, move || Pace::Rated(each.budget()))?))
    },
};

const fn spec(name: &'static str) -> ClassSpec {
    ClassSpec::new(name, "0/1", "h/a", "x/y")
}

/// What both take.
struct Given<'a> {
    data: Option<Arg<'a>>,
    limit: Option<i64>,
    active: Option<bool>,
    length: Option<usize>,
    /// The router ends when the last packet is made.
    stop: bool,
    /// What is called then.
    end: Option<EndCall>,
    content: Content,
}

/// What packets hold.
#[derive(Clone)]
struct Content {
    filling: Filling,
    /// The time at which they were made.
    stamped: bool,
}

/// Bytes of packets.
#[derive(Clone)]
enum Filling {
    /// Equal bytes in all.
    Same,
    /// Random bytes, from this state on.
    Random(u64),
    /// Bytes that are changed for each packet.
    #[cfg(feature = "click")]
    Changed(Change),
}

/// What changes the bytes of a packet by its number, from 0 on, and the time of the worker's clock.
#[cfg(feature = "click")]
pub(crate) type Change = Arc<dyn Fn(&mut [u8], u64, u64) + Send + Sync>;

/// Notes the time of the worker's clock in a packet.
#[cfg(feature = "click")]
pub(super) fn stamp(packet: &mut Packet, now_ns: u64) {
    use super::only::{annotations::Annotations, clock::time_of_day};
    let timestamp_ns = time_of_day(now_ns);
    Annotations { timestamp_ns, ..Annotations::default() }.set_packet(packet);
}

#[cfg(not(feature = "click"))]
fn stamp(_: &mut Packet, _: u64) {}

fn configure(
    setup: &mut Setup<'_>,
    given: Given<'_>,
    pace: impl Fn() -> Pace + Send + Sync + 'static,
) -> Result<Made, ConfigError> {
    let Given { data, limit, active, length, stop, end, content } = given;
    let limit = Setting::new(limit.unwrap_or(-1));
    let active = Setting::new(active.unwrap_or(true));
    let data = data.as_ref().map_or_else(|| USUAL.into(), |data: &Arg<'_>| data.bytes());
    let longest = usize::from(LONGEST);
    if length.unwrap_or(data.len()) > longest {
        let words = format!("packets have at most {longest} bytes");
        return Err(setup.args.refuse_all(&words));
    }
    let data = padded(&data, length);
    Ok(assemble(setup, data, (&limit, &active), (stop, end), content, pace))
}

/// A source of packets of these bytes.
fn assemble(
    setup: &mut Setup<'_>,
    data: Arc<[u8]>,
    (limit, active): (&Setting<i64>, &Setting<bool>),
    (stop, end): (bool, Option<EndCall>),
    content: Content,
    pace: impl Fn() -> Pace + Send + Sync + 'static,
) -> Made {
    let data = Arc::new(Data::new(data));
    let counts = setup.keep::<PerWorker<Count>>();
    let resets = Arc::new(Resets::new());
    let waits = matches!(pace(), Pace::Round(_));
    let stop = stop.then(|| setup.ending.clone());
    let one = OneInstance::default();
    let made = Made::new({
        let (active, limit, counts) = (active.clone(), limit.clone(), counts.clone());
        let (resets, data) = (resets.clone(), data.clone());
        move |instance| Source {
            data: data.instance(),
            first: one.is(instance),
            limit: limit.clone(),
            made: 0,
            pace: pace(),
            active: active.clone(),
            count: counts.add(instance),
            resets: resets.instance(),
            stop: Stop::new(stop.clone()).calling(end.clone()),
            content: content.clone(),
        }
    });
    let made = if waits { made.waits_for_room() } else { made };
    let made = made.polled().task().counter("count", &counts);
    let made = data.handled(data.sized(resets.handled(made, "reset")));
    limit.handled(active.handled(made, "active"), "limit")
}

/// A source of packets of these bytes at a rate, or as fast as they are taken.
#[cfg(feature = "click")]
pub(crate) fn of_bytes(
    setup: &mut Setup<'_>,
    data: &[u8],
    limit: &Setting<i64>,
    active: bool,
    rate: Option<&Allowance>,
    change: Change,
) -> Made {
    let content = Content { filling: Filling::Changed(change), stamped: false };
    let active = Setting::new(active);
    let (settings, ending) = ((limit, &active), (false, None));
    match rate {
        None => {
            let burst = Setting::new(u32::try_from(BATCH).unwrap_or(u32::MAX));
            let pace = move || Pace::Round(burst.clone());
            assemble(setup, data.into(), settings, ending, content, pace)
        }
        Some(allowance) => {
            let each = allowance.clone();
            let pace = move || Pace::Rated(each.budget());
            assemble(setup, data.into(), settings, ending, content, pace)
        }
    }
}

/// Packets a second of `RatedSource`: Click's.
const RATE: u64 = 10;

/// What the smallest frames hold behind their headroom.
pub(super) const LONGEST: u16 = 2048 - HEADROOM;

/// Default payload of a packet: Click's, since summaries and prints show it.
const USUAL: &[u8] = b"Random bullshit in a packet, at least 64 bytes long. Well, now it is.";

/// The data of an argument, or the default payload.
#[cfg(feature = "click")]
pub(super) fn data(arg: Option<&Arg<'_>>) -> Arc<[u8]> {
    arg.map_or_else(|| USUAL.into(), |arg| arg.bytes().into())
}

/// `data`, cut or repeated to that length.
fn padded(data: &[u8], length: Option<usize>) -> Arc<[u8]> {
    match length {
        Some(length) if !data.is_empty() => data.iter().copied().cycle().take(length).collect(),
        _ => data.into(),
    }
}

/// How many are made.
enum Pace {
    /// Number in each round.
    Round(Setting<u32>),
    Rated(Budget),
}

/// Bytes of the packets, which a handler changes.
pub(super) struct Data {
    pub(super) bytes: Arc<[u8]>,
    shared: Arc<Mutex<Arc<[u8]>>>,
    changed: Resets,
}

impl Data {
    pub(super) fn new(bytes: Arc<[u8]>) -> Self {
        let shared = Arc::new(Mutex::new(bytes.clone()));
        Self { bytes, shared, changed: Resets::new() }
    }

    fn shared(shared: &Mutex<Arc<[u8]>>) -> MutexGuard<'_, Arc<[u8]>> {
        // A pointer is whole whatever panicked.
        shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn instance(&self) -> Self {
        let bytes = Self::shared(&self.shared).clone();
        Self { bytes, shared: self.shared.clone(), changed: self.changed.instance() }
    }

    #[inline]
    pub(super) fn follow(&mut self) {
        if self.changed.came() {
            self.bytes = Self::shared(&self.shared).clone();
        }
    }

    /// Adds the handlers that read and write how many they are.
    fn sized(&self, made: Made) -> Made {
        ["length", "datasize"].into_iter().fold(made, |made, name| {
            let [read, write] = [(); 2].map(|()| self.shared.clone());
            let change = self.changed.request();
            made.handler(Handler::read(name, move || Self::shared(&read).len().to_string()))
                .handler(Handler::write(name, move |text| {
                    let length = value::<u16>(text)?;
                    if length > LONGEST {
                        return Err(format!("packets have at most {LONGEST} bytes"));
                    }
                    let mut data = Self::shared(&write);
                    *data = padded(&data, Some(length.into()));
                    change();
                    Ok(())
                }))
        })
    }

    /// Adds the handlers that read and write them.
    pub(super) fn handled(&self, made: Made) -> Made {
        let [read, write] = [(); 2].map(|()| self.shared.clone());
        let change = self.changed.request();
        made.handler(Handler::read("data", move || {
            String::from_utf8_lossy(&Self::shared(&read)).into_owned()
        }))
        .handler(Handler::write("data", move |text| {
            let bytes = unquote(text.trim()).into_owned();
            if bytes.len() > usize::from(LONGEST) {
                return Err(format!("packets have at most {LONGEST} bytes"));
            }
            *Self::shared(&write) = bytes.into();
            change();
            Ok(())
        }))
    }
}

struct Source {
    data: Data,
    /// Whether this is the first worker: others make none.
    first: bool,
    /// How many are made; negative for all.
    limit: Setting<i64>,
    /// Packets made of these.
    made: u64,
    pace: Pace,
    active: Setting<bool>,
    count: Arc<Count>,
    /// Requests to begin again.
    resets: Resets,
    stop: Stop,
    content: Content,
}

/// Fills bytes from a generator, continuing a state that is not 0.
fn scatter(bytes: &mut [u8], state: &mut u64) {
    for word in bytes.chunks_mut(8) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

impl Element for Source {
    fn keeps_time(&self) -> bool {
        self.first && self.left() > 0 && self.active.get() && matches!(self.pace, Pace::Rated(_))
    }

    fn pull(&mut self, _: u16, into: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.make(into, into.room(), cx);
    }

    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        let room = match self.pace {
            Pace::Round(_) => inputs.room(),
            // Its rate is its promise.
            Pace::Rated(_) => usize::MAX,
        };
        self.make(batch, room, cx);
    }
}

impl Source {
    /// Packets that are to be made.
    fn left(&self) -> u64 {
        u64::try_from(self.limit.get()).map_or(u64::MAX, |limit| limit.saturating_sub(self.made))
    }

    /// Makes packets, so many at most.
    fn make(&mut self, batch: &mut Batch, room: usize, cx: &mut Context<'_>) {
        if !self.first {
            return;
        }
        self.data.follow();
        if self.resets.came() {
            self.made = 0;
            self.stop.reset();
            self.count.set(0);
        }
        if !self.active.get() {
            return;
        }
        let left = self.left();
        if left == 0 {
            // Whoever is behind it had a turn since the last packet.
            self.stop.request();
            return;
        }
        self.stop.reset();
        let most = BATCH.min(room).min(usize::try_from(left).unwrap_or(usize::MAX));
        let wanted = match &mut self.pace {
            Pace::Round(burst) => most.min(burst.get() as usize),
            Pace::Rated(budget) => budget.grant(most, cx.now_ns),
        };
        let before = batch.len();
        for _ in 0..wanted {
            let Some(mut packet) = cx.pool.alloc() else { break };
            if !packet.set_len(self.data.bytes.len()) {
                break;
            }
            match &mut self.content.filling {
                Filling::Same => packet.bytes_mut().copy_from_slice(&self.data.bytes),
                Filling::Random(state) => scatter(packet.bytes_mut(), state),
                #[cfg(feature = "click")]
                Filling::Changed(change) => {
                    packet.bytes_mut().copy_from_slice(&self.data.bytes);
                    let number = self.made + (batch.len() - before) as u64;
                    change(packet.bytes_mut(), number, cx.now_ns);
                }
            }
            packet.meta.flags |= FLAG_GENERATED | FLAG_COPY;
            if self.content.stamped {
                stamp(&mut packet, cx.now_ns);
            }
            batch.push(packet).expect("a batch holds a burst");
        }
        let made = (batch.len() - before) as u64;
        cx.counters.generated.add(made);
        self.count.add(made);
        self.made += made;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::DropReason;
    use crate::graph::{DryRun, Graph, Plan};
    use crate::testing::{Bench, Rig, World, refused};

    #[test]
    fn packets_are_made_at_a_rate() {
        let text = "s :: RatedSource(\\<07 08>, 1000, 1500, DATASIZE 5) -> ToDevice(a)";
        let mut rig = Rig::new(&World::new(), text);
        let after = |rig: &mut Rig, ms: u64| {
            let mut all = Vec::new();
            for _ in 0..ms {
                rig.bench.now_ns += 1_000_000;
                all.extend(rig.poll());
            }
            all.len()
        };
        rig.write("s.active", "false");
        assert_eq!(after(&mut rig, 5), 0);
        rig.write("s.active", "true");
        let first = rig.poll();
        assert_eq!((first.len(), &first[0].1[..]), (20, &[7, 8, 7, 8, 7][..]), "a burst of 20 ms");
        assert_eq!(after(&mut rig, 1000), 1000);
        rig.write("s.rate", "500");
        assert_eq!(after(&mut rig, 100), 49, "the burst was used up");
        assert_eq!((after(&mut rig, 2000), rig.read("s.count")), (431, "1500".into()), "the limit");
        rig.write("s.reset", "");
        rig.write("s.rate", "100000");
        assert_eq!((after(&mut rig, 9), rig.read("s.count")), (1500, "1500".into()));
    }

    #[test]
    fn of_several_workers_the_first_makes_all() {
        let text = "s :: InfiniteSource(LIMIT 5, BURST 3) -> ToDevice(a)";
        let mut rig = Rig::new(&World::new(), text);
        let mut others = [(); 2].map(|()| Graph::new(&rig.plan, &rig.bench.pool));
        for left in [3, 2, 0] {
            for other in &mut others {
                other.poll(&mut rig.bench.round());
            }
            assert_eq!((rig.bench.sent.frames.len(), rig.poll().len()), (0, left));
        }
        assert_eq!(rig.read("s.count"), "5");
    }

    #[test]
    fn a_dry_run_before_the_first_worker_takes_nothing_from_it() {
        let text = "FromDevice(in) -> Discard; InfiniteSource(LIMIT 5, BURST 3) -> ToDevice(a)";
        let plan = Plan::read("f", text, crate::ELEMENTS).unwrap();
        let mut bench = Bench::new(&World::new());
        let dry_run = DryRun {
            plan: &plan,
            port: 0,
            forwarding: &bench.forwarding,
            flow_seed: 0,
            now_ns: 0,
            frame_bytes: 2048,
        };
        dry_run.run(&[7; 60]).unwrap();
        let mut graph = Graph::new(&plan, &bench.pool);
        graph.poll(&mut bench.round());
        assert_eq!(bench.sent.frames.len(), 3);
        graph.stop(&mut bench.round());
    }

    #[test]
    fn full_queues_hold_it_back() {
        let lost = |text: &str| {
            let mut rig = Rig::new(&World::new(), text);
            for _ in 0..300 {
                rig.bench.now_ns += 100_000;
                rig.poll();
            }
            (rig.read("s.count"), rig.dropped(DropReason::QueueFull))
        };
        let source = "s :: InfiniteSource(BURST 7)";
        let drain = "RatedUnqueue(1000) -> ToDevice(a)";
        let (count, dropped) = lost(&format!("{source} -> Counter -> Queue(20) -> {drain}"));
        assert_eq!(
            (count, dropped),
            ("69".into(), 0),
            "a burst of 20, then 29 in 30 ms, and a full queue"
        );
        let (_, dropped) = lost(&format!("{source} -> SimpleQueue(20) -> {drain}"));
        assert_eq!(dropped, 300 * 7 - 69, "it has no note");
        let both = "s -> t :: Tee; t [1] -> Queue(30) -> Idle; t -> Queue(20) -> Idle";
        let (count, dropped) = lost(&format!("{source}; {both}"));
        assert_eq!((count, dropped), ("30".into(), 10), "as long as one has room");
        let (count, _) =
            lost(&format!("{source} -> t :: Tee -> Discard; t [1] -> Queue(20) -> Idle"));
        assert_eq!(count, "2100", "one way is never full");
    }

    #[test]
    fn it_may_be_pulled_from() {
        let text =
            "s :: InfiniteSource(\\<07>, LIMIT 3, STOP true) -> u :: Unqueue(2) -> ToDevice(a)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!((rig.poll().len(), rig.poll().len(), rig.poll().len()), (1, 1, 1));
        assert!(!rig.plan.is_stopped());
        assert_eq!((rig.poll().len(), rig.plan.is_stopped()), (0, true));
        assert_eq!(rig.bench.counters.generated.read(), 3);
    }

    #[test]
    fn bytes_are_random() {
        let make = |config: &str| {
            let text = format!("s :: RandomSource({config}, 300, 256) -> ToDevice(a)");
            let mut rig = Rig::new(&World::new(), &text);
            let mut all = rig.poll();
            all.extend(rig.poll());
            all.into_iter().map(|(_, frame)| frame).collect::<Vec<_>>()
        };
        let made = make("61");
        assert!(made.len() == 300 && made.iter().all(|frame| frame.len() == 61));
        // Of 18,300 bytes each of 256 comes some 71 times: ten standard deviations are a wide margin.
        let mut counts = [0_usize; 256];
        made.iter().flatten().for_each(|&byte| counts[usize::from(byte)] += 1);
        assert!(counts.iter().all(|count| (1..160).contains(count)), "{counts:?}");
        assert!((1..made.len()).all(|i| made[i] != made[i - 1]));
        assert!(made == make("61, SEED 1") && made != make("61, SEED 2"));
        assert_eq!(make("0, SEED 0"), vec![Vec::<u8>::new(); 300]);
        assert!(refused(&RANDOM, "1793").contains("packets have at most 1792 bytes"));
    }

    #[test]
    fn limits_and_bursts_are_changed() {
        let text = "s :: InfiniteSource(LIMIT 3, BURST 2) -> ToDevice(a)";
        let mut rig = Rig::new(&World::new(), text);
        let sent: Vec<_> = (0..4).map(|_| rig.poll().len()).collect();
        assert_eq!(sent, [2, 1, 0, 0]);
        rig.write("s.limit", "9");
        rig.write("s.burst", "4");
        let sent: Vec<_> = (0..3).map(|_| rig.poll().len()).collect();
        assert_eq!((sent, rig.read("s.count")), (vec![4, 2, 0], "9".into()));
        rig.write("s.limit", "-1");
        assert_eq!((rig.poll().len(), rig.read("s.burst")), (4, "4".into()));
    }

    #[test]
    fn the_last_packet_may_call_a_handler() {
        let text = "InfiniteSource(LIMIT 2, END_CALL c.reset 1) -> c :: Counter -> ToDevice(a);
            RandomSource(5, 1, TIMESTAMP true, END_CALL d.reset) -> d :: Counter -> ToDevice(a)";
        let mut rig = Rig::new(&World::new(), text);
        rig.poll();
        assert_eq!(["c.count", "d.count"].map(|name| rig.read(name)), ["1", "1"]);
        (0..5).for_each(|_| drop(rig.poll()));
        assert_eq!(["c.count", "d.count"].map(|name| rig.read(name)), ["0", "0"]);
    }

    #[test]
    fn lengths_and_bandwidths_are_given_and_changed() {
        let text = "s :: RatedSource(\\<07 08>, BANDWIDTH 8kbps, LENGTH 100) -> Discard;
            i :: InfiniteSource(\\<07 08>, LIMIT 3, DATASIZE 3) -> ToDevice(a)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(
            ["s.rate", "s.length", "i.datasize"].map(|name| rig.read(name)),
            ["10", "100", "3"]
        );
        rig.write("i.length", "4");
        rig.write("i.burstsize", "2");
        let frames: Vec<_> = rig.poll().into_iter().map(|(_, frame)| frame).collect();
        assert_eq!(frames, [[7, 8, 7, 7], [7, 8, 7, 7]]);
    }

    #[test]
    fn the_last_packet_may_end_the_router() {
        let mut rig =
            Rig::new(&World::new(), "s :: RatedSource(LIMIT 2, STOP true) -> ToDevice(a)");
        assert_eq!(rig.poll().len(), 1, "ten a second by default");
        assert!(!rig.plan.is_stopped());
        rig.bench.now_ns += 100_000_000;
        assert_eq!((rig.poll().len(), rig.plan.is_stopped()), (1, false));
        assert_eq!((rig.poll().len(), rig.plan.is_stopped()), (0, true));
        let reported = refused(&RATED, "x, y, LENGTH 3000");
        assert!(reported.contains("RATE: `y` is no whole number"), "{reported}");
        assert!(refused(&RATED, "x, DATASIZE 2000").contains("packets have at most 1792 bytes"));
    }
}
