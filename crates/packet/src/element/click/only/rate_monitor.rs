//! `IPRateMonitor(TYPE, RATIO, THRESH)` measures the rates of packets or bytes from and to prefixes, and of longer
//! prefixes where they are high.
//!
//! Source: Click's `IPRateMonitor`; Gil, Poletto: MULTOPS, USENIX Security 2001. Packets of the first input count for
//! their source, those of the second for their destination. Rates are kept for each `/8`; where one exceeds `THRESH` a
//! second, by either input, also for each `/16` in it, and so on. `RATIO` is the chance that a packet counts; `THRESH`
//! is given as if all did. `MEMORY` limits the memory in KiB, 100 at least; 0 stands for 64 MiB. What does not exceed
//! `THRESH` any more makes room for others. Unless `ANNO false` is given, packets have the rates of the longest prefix
//! that is known, in packets or bytes a second: bytes 24 to 27 of the annotations by number have that of the first
//! input, bytes 28 to 31 that of the second.
//! Handlers: `look` shows the time since rates were reset, in hundredths of a second, and then a line for each prefix
//! with both rates; those of longer prefixes follow it, behind a tab. `mem` is the memory in bytes.
//! `anno_level ADDR LEVEL SECONDS` keeps no longer prefixes than LEVEL (0 to 3) for this address, and forgets others.
//! Shape: a tree of tables of 256 cells, one for each value of a byte of the address.
//! Cost: a lock a batch, and four cells a packet at most.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::random::{Chance, Random};
use crate::element::support::setting::{Setting, value};
use crate::element::support::time;
use crate::frame::wire::Ip4;
use crate::frame::{ANNOTATION_BYTES, Batch, NUMBERED_AT};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("IPRateMonitor", "1-2/1-2", "a/a", "#/#"),
    summary: "measures rates from and to prefixes",
    configure: |setup| {
        let kind = setup.args.positional_arg("TYPE")?;
        let ratio = setup.args.positional::<Chance>("RATIO");
        let thresh = setup.args.positional::<u32>("THRESH");
        let memory = setup.args.optional::<u32>("MEMORY");
        let anno = setup.args.optional("ANNO");
        setup.args.finish()?;
        let bytes = match kind.raw() {
            "PACKETS" => false,
            "BYTES" => true,
            _ => return Err(setup.args.refuse(&kind, "TYPE: PACKETS or BYTES")),
        };
        let (ratio, thresh) = (ratio?, thresh?);
        let memory = Setting::new(enforced(memory?.unwrap_or(0)));
        let tree = setup.keep::<Mutex<Tree>>();
        let random = Random::of(setup);
        let (anno, outputs) = (anno?.unwrap_or(true), setup.outputs);
        let made = Made::new({
            let (tree, memory) = (tree.clone(), memory.clone());
            move |instance| Monitor {
                bytes,
                ratio,
                limit: f64::from(thresh) * ratio.0,
                memory: memory.clone(),
                anno,
                outputs: u16::try_from(outputs).unwrap_or(u16::MAX),
                random: random.clone(),
                tree: (!instance.is_dry_run()).then(|| tree.clone()),
            }
        });
        let [look, used, level, reset] = [(); 4].map(|()| tree.clone());
        let shown = memory.clone();
        Ok(made
            .handler(Handler::read("look", move || lock(&look).look(jiffy(time::now_ns()))))
            .handler(Handler::read("thresh", move || thresh.to_string()))
            .handler(Handler::read("mem", move || lock(&used).bytes().to_string()))
            .handler(Handler::read("memmax", move || shown.get().to_string()))
            .handler(Handler::write("memmax", move |text| {
                memory.set(enforced(value(text)?));
                Ok(())
            }))
            .handler(Handler::write("anno_level", move |text| {
                let stop = Stop::read(text, jiffy(time::now_ns()))?;
                lock(&level).stop(stop)
            }))
            .command("reset", move || *lock(&reset) = Tree::default()))
    },
};

/// Least memory, in KiB.
const LEAST_KIB: u32 = 100;
/// Memory where no limit is given, in KiB.
const UNLIMITED_KIB: u32 = 64 * 1024;

fn enforced(memory_kib: u32) -> u32 {
    if memory_kib == 0 { 0 } else { memory_kib.max(LEAST_KIB) }
}

fn lock(tree: &Mutex<Tree>) -> MutexGuard<'_, Tree> {
    // A rate that was being added to is whole.
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hundredths of a second, which rates are measured by.
fn jiffy(now_ns: u64) -> u32 {
    let [a, b, c, d, ..] = (now_ns / 10_000_000).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// A moving average: each hundredth of a second counts a sixteenth of what came.
#[derive(Clone, Copy, Default)]
struct Rate {
    /// Average for a hundredth of a second, without the present one.
    average: f64,
    /// Amount in the present one.
    now: u32,
    /// Its number.
    jiffy: u32,
}

impl Rate {
    const KEPT: f64 = 15.0 / 16.0;

    fn advance(&mut self, jiffy: u32) {
        // Clocks of workers differ a little: what is over stays so.
        let past = jiffy.wrapping_sub(self.jiffy).cast_signed();
        if past > 0 {
            let others = (past - 1).min(i32::from(i16::MAX));
            let last = self.average * Self::KEPT + f64::from(self.now) * (1.0 - Self::KEPT);
            *self = Self { average: last * Self::KEPT.powi(others), now: 0, jiffy };
        }
    }

    fn add(&mut self, amount: u32, jiffy: u32) {
        self.advance(jiffy);
        self.now = self.now.saturating_add(amount);
    }

    /// The rate a second.
    fn per_second(mut self, jiffy: u32) -> f64 {
        self.advance(jiffy);
        self.average * 100.0
    }
}

/// Rates of a prefix, by input, and those of the longer ones in it.
#[derive(Default)]
struct Cell {
    rates: [Rate; 2],
    below: Option<Box<Table>>,
}

impl Cell {
    fn per_second(&self, jiffy: u32) -> [f64; 2] {
        self.rates.map(|rate| rate.per_second(jiffy))
    }
}

/// Cells by a byte of an address.
struct Table(Vec<Cell>);

/// Bytes of a table.
const TABLE_BYTES: usize = size_of::<Table>() + 256 * size_of::<Cell>();

impl Default for Table {
    fn default() -> Self {
        Self((0..256).map(|_| Cell::default()).collect())
    }
}

impl Table {
    /// Removes tables below cells whose rates are not over the limit; how many there were.
    fn fold(&mut self, jiffy: u32, limit: f64) -> usize {
        let mut removed = 0;
        for cell in &mut self.0 {
            let is_over = cell.per_second(jiffy).iter().any(|rate| *rate > limit);
            removed += match &mut cell.below {
                Some(below) if is_over => below.fold(jiffy, limit),
                below => below.take().map_or(0, |below| below.count()),
            };
        }
        removed
    }

    /// How many tables it is, with those below.
    fn count(&self) -> usize {
        1 + self
            .0
            .iter()
            .filter_map(|cell| cell.below.as_ref())
            .map(|table| table.count())
            .sum::<usize>()
    }

    fn look(&self, out: &mut String, before: &str, jiffy: u32) {
        for (byte, cell) in self.0.iter().enumerate() {
            let rates = cell.per_second(jiffy);
            if rates.iter().all(|rate| *rate < LEAST_SHOWN) {
                continue;
            }
            let prefix = format!("{before}{byte}");
            let [first, second] = rates.map(decimal);
            // A text takes all.
            let _ = writeln!(out, "{prefix}\t{first}\t{second}");
            if let Some(below) = &cell.below {
                below.look(out, &format!("\t{prefix}."), jiffy);
            }
        }
    }
}

/// Rate a second that is shown as one.
const LEAST_SHOWN: f64 = 0.0005;

/// A number with three digits behind the point at most.
fn decimal(rate: f64) -> String {
    let text = format!("{rate:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A prefix in which no longer ones are known for some time.
struct Stop {
    addr: u32,
    level: u32,
    until: u32,
}

/// Such prefixes at most.
const MOST_STOPS: usize = 1024;

impl Stop {
    fn read(text: &str, now: u32) -> Result<Self, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let [addr, level, seconds] = words[..] else {
            return Err("an address, a level from 0 to 3 and a time in seconds are wanted".into());
        };
        let (addr, level) = (value::<Ipv4Addr>(addr)?, value::<u32>(level)?);
        if level > 3 {
            return Err(format!("`{level}` is no level: 0 to 3 are possible"));
        }
        let time = value::<u32>(seconds)?.saturating_mul(100);
        // Later than half of all numbers would be earlier.
        let until = now.wrapping_add(time.min(i32::MAX.cast_unsigned()));
        Ok(Self { addr: addr.to_bits(), level, until })
    }

    fn covers(&self, addr: u32, level: u32, jiffy: u32) -> bool {
        let is_on = self.until.wrapping_sub(jiffy).cast_signed() > 0;
        is_on && level == self.level && (addr ^ self.addr) >> (24 - 8 * level) == 0
    }
}

/// All rates.
struct Tree {
    root: Table,
    tables: usize,
    /// When rates were reset.
    began: u32,
    /// When what is not over the limit was removed last.
    folded: u32,
    stops: BTreeMap<(u32, u32), Stop>,
}

impl Default for Tree {
    fn default() -> Self {
        let began = jiffy(time::now_ns());
        Self { root: Table::default(), tables: 1, began, folded: began, stops: BTreeMap::new() }
    }
}

/// A packet to count, and by what rules.
#[derive(Clone, Copy)]
struct Seen {
    addr: u32,
    input: usize,
    /// `None` where it does not count.
    amount: Option<u32>,
    jiffy: u32,
}

impl Tree {
    fn bytes(&self) -> usize {
        self.tables * TABLE_BYTES
    }

    /// Counts a packet; the rates of the longest prefix that is known, by input.
    fn count(&mut self, seen: Seen, limit: f64, most_bytes: usize) -> [f64; 2] {
        let Seen { addr, input, amount, jiffy } = seen;
        let is_full = (self.tables + 1) * TABLE_BYTES > most_bytes;
        if is_full && jiffy.wrapping_sub(self.folded) >= 100 {
            self.folded = jiffy;
            self.tables -= self.root.fold(jiffy, limit);
        }
        let mut has_room = (self.tables + 1) * TABLE_BYTES <= most_bytes;
        let (mut table, mut rates) = (&mut self.root, [0.0; 2]);
        for (level, byte) in (0..).zip(addr.to_be_bytes()) {
            let cell = &mut table.0[usize::from(byte)];
            if let Some(amount) = amount {
                cell.rates[input].add(amount, jiffy);
            }
            rates = cell.per_second(jiffy);
            let grows = cell.below.is_none()
                && level < 3
                && has_room
                && amount.is_some()
                && rates.iter().any(|rate| *rate > limit)
                && !self.stops.values().any(|stop| stop.covers(addr, level, jiffy));
            if grows {
                cell.below = Some(Box::default());
                self.tables += 1;
                has_room = (self.tables + 1) * TABLE_BYTES <= most_bytes;
            }
            match &mut cell.below {
                Some(below) => table = below,
                None => break,
            }
        }
        rates
    }

    fn look(&self, jiffy: u32) -> String {
        let mut text = format!("{}\n", jiffy.wrapping_sub(self.began));
        self.root.look(&mut text, "", jiffy);
        text
    }

    /// Forgets longer prefixes, and learns none for some time.
    fn stop(&mut self, stop: Stop) -> Result<(), String> {
        let key = (stop.level, stop.addr >> (24 - 8 * stop.level));
        if self.stops.len() >= MOST_STOPS && !self.stops.contains_key(&key) {
            let now = jiffy(time::now_ns());
            self.stops.retain(|_, stop| stop.until.wrapping_sub(now).cast_signed() > 0);
            if self.stops.len() >= MOST_STOPS {
                return Err(format!("{MOST_STOPS} addresses have a level"));
            }
        }
        let mut table = &mut self.root;
        for (level, byte) in (0..).zip(stop.addr.to_be_bytes()) {
            let cell = &mut table.0[usize::from(byte)];
            if level == stop.level {
                self.tables -= cell.below.take().map_or(0, |below| below.count());
                break;
            }
            match &mut cell.below {
                Some(below) => table = below,
                None => break,
            }
        }
        self.stops.insert(key, stop);
        Ok(())
    }
}

struct Monitor {
    bytes: bool,
    ratio: Chance,
    /// Rate a second above which longer prefixes are known.
    limit: f64,
    memory: Setting<u32>,
    anno: bool,
    outputs: u16,
    random: Random,
    /// `None` where packets are only evaluated.
    tree: Option<Arc<Mutex<Tree>>>,
}

/// Place of the rates in the annotations of a packet: bytes 24 to 31 of those by number.
const RATES_AT: usize = NUMBERED_AT + 24;
const _: () = assert!(RATES_AT + 8 <= ANNOTATION_BYTES);

/// Rates of packet `i`, of the first input and of the second; zeros where it has none.
pub(super) fn rates(batch: &Batch, i: usize) -> [u32; 2] {
    let rate = |at: usize| {
        let bytes = batch.annotations(i).and_then(|bytes| bytes.get(at..)?.first_chunk());
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    [rate(RATES_AT), rate(RATES_AT + 4)]
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn whole(rate: f64) -> u32 {
    rate.round() as u32
}

impl Element for Monitor {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let output = input.min(self.outputs.saturating_sub(1));
        for i in 0..batch.len() {
            batch.output(i, output);
        }
        let Some(tree) = &self.tree else { return };
        let memory_kib = match self.memory.get() {
            0 => UNLIMITED_KIB,
            memory_kib => memory_kib,
        };
        let (jiffy, input) = (jiffy(cx.now_ns), usize::from(input.min(1)));
        let mut tree = lock(tree);
        for i in 0..batch.len() {
            let network = usize::from(batch.meta()[i].network);
            let header = Ip4::at(batch.bytes(i), network).filter(|header| header.version() == 4);
            let Some(header) = header else { continue };
            let counts = self.ratio.0 >= 1.0 || self.random.real() < self.ratio.0;
            let amount = if self.bytes { header.total_len() } else { 1 };
            let seen = Seen {
                addr: if input == 0 { header.src() } else { header.dst() },
                input,
                amount: counts.then(|| u32::try_from(amount).unwrap_or(u32::MAX)),
                jiffy,
            };
            let rates = tree.count(seen, self.limit, memory_kib as usize * 1024);
            if let Some(bytes) = batch.annotations_mut(i).filter(|_| self.anno) {
                let rates = rates.map(|rate| whole(rate).to_be_bytes());
                bytes[RATES_AT..RATES_AT + 8].copy_from_slice(rates.as_flattened());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, frame_v4, refused};

    const ROOM: usize = 1 << 20;

    fn tree() -> Tree {
        Tree { began: 0, folded: 0, ..Tree::default() }
    }

    fn add(tree: &mut Tree, addr: u32, input: usize, amount: u32, jiffy: u32) -> [f64; 2] {
        tree.count(Seen { addr, input, amount: Some(amount), jiffy }, 256.0, ROOM)
    }

    #[test]
    fn averages_follow_what_comes() {
        let mut rate = Rate::default();
        rate.add(16, 7);
        assert_eq!([rate.per_second(7), rate.per_second(8)], [0.0, 100.0], "a sixteenth of 16");
        assert_eq!(rate.per_second(9), 93.75, "15 sixteenths of that");
        rate.add(16, 8);
        assert_eq!(rate.per_second(9), 193.75);
        // An earlier time changes nothing.
        rate.add(1, 5);
        assert_eq!((rate.now, rate.jiffy), (17, 8));
        for jiffy in 9..500 {
            rate.add(5, jiffy);
        }
        assert!((rate.per_second(500) - 500.0).abs() < 0.01, "500 a second");
    }

    #[test]
    fn longer_prefixes_are_known_where_rates_are_high() {
        let mut tree = tree();
        add(&mut tree, 0x1214_0405, 0, 40, 0);
        add(&mut tree, 0x0a00_0001, 1, 16, 0);
        assert_eq!(tree.look(1), "1\n10\t0\t100\n18\t250\t0\n");
        add(&mut tree, 0x1214_0405, 0, 40, 1);
        // 250 * 15 / 16 + 250
        assert_eq!(tree.look(2), "2\n10\t0\t93.75\n18\t484.375\t0\n");
        assert_eq!(tree.tables, 1, "it is known in the next hundredth");
        assert_eq!(add(&mut tree, 0x1214_0405, 0, 40, 2), [0.0; 2], "the rate of 18.20");
        assert_eq!(tree.tables, 2);
        let text = tree.look(3);
        assert_eq!(text, "3\n10\t0\t87.891\n18\t704.102\t0\n\t18.20\t250\t0\n");
        for jiffy in 3..90 {
            add(&mut tree, 0x1214_0405, 0, 40, jiffy);
        }
        assert_eq!((tree.tables, tree.root.count()), (4, 4));
        let lines = tree.look(90);
        let last = lines.lines().last().unwrap();
        assert!(last.starts_with("\t\t\t18.20.4.5\t"), "{lines}");
        assert_eq!(tree.bytes(), 4 * TABLE_BYTES);
    }

    #[test]
    fn a_level_may_be_the_last() {
        let mut tree = tree();
        for jiffy in 0..90 {
            add(&mut tree, 0x1214_0405, 0, 40, jiffy);
        }
        tree.stop(Stop::read("18.20.0.0 1 10", 90).unwrap()).unwrap();
        assert_eq!(tree.tables, 2, "18.20 is known, and nothing in it");
        for jiffy in 90..1090 {
            add(&mut tree, 0x1214_0405, 0, 40, jiffy);
        }
        assert_eq!(tree.tables, 2);
        add(&mut tree, 0x1214_0405, 0, 40, 1090);
        assert_eq!(tree.tables, 3, "ten seconds are over");
        for wrong in ["", "18.20.0.0 1", "x 1 10", "18.20.0.0 4 10", "18.20.0.0 1 10 1"] {
            assert!(Stop::read(wrong, 0).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_low_makes_room() {
        let mut tree = tree();
        let most = 3 * TABLE_BYTES;
        let count = |tree: &mut Tree, addr, jiffy| {
            tree.count(Seen { addr, input: 0, amount: Some(40), jiffy }, 256.0, most)
        };
        for jiffy in 0..50 {
            count(&mut tree, 0x1214_0405, jiffy);
        }
        assert_eq!(tree.tables, 3, "there is no room for the fourth");
        for jiffy in 500..550 {
            count(&mut tree, 0x0a00_0001, jiffy);
        }
        assert_eq!((tree.tables, tree.root.count()), (3, 3));
        assert!(tree.root.0[18].below.is_none() && tree.root.0[10].below.is_some());
    }

    #[test]
    fn packets_have_the_rates_of_their_addresses() {
        let text = "FromDevice(a) -> MarkIPHeader(14) -> m :: IPRateMonitor(BYTES, 1, 1000000, 600) -> ToDevice(x);
            FromDevice(b) -> MarkIPHeader(14) -> [1] m [1] -> s :: SetAnnoByte(31, 4, ANNO_INPUT 31) -> ToDevice(y)";
        let text =
            text.replace("s :: SetAnnoByte(31, 4, ANNO_INPUT 31)", "c :: CheckPaint(200, ANNO 31)");
        let text = format!("{text}; c [1] -> ToDevice(z)");
        let mut rig = Rig::new(&World::new(), &text);
        // 128 bytes behind the Ethernet header.
        let frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 108]);
        assert_eq!(rig.receive("a", &[&frame, &[0x60; 60]])[0].0, "x");
        let reply = frame_v4("192.0.2.1", "10.0.0.9", 64, 17, &[0; 12]);
        assert_eq!(rig.receive("b", &[&reply])[0].0, "z", "no rate yet");
        rig.bench.now_ns += 10_000_000;
        // 32 bytes in a hundredth of a second: a sixteenth of 3,200.
        assert_eq!(rig.receive("b", &[&reply])[0].0, "y", "200");
        assert_eq!(
            ["thresh", "memmax"].map(|name| rig.read(&format!("m.{name}"))),
            ["1000000", "600"]
        );
        rig.write("m.memmax", "7");
        assert_eq!([rig.read("m.memmax"), rig.read("m.mem")], ["100", &TABLE_BYTES.to_string()]);
        rig.write("m.anno_level", "10.0.0.9 2 5");
        rig.write("m.reset", "");
        assert_eq!(rig.read("m.look").lines().count(), 1);
        assert!(refused(&CLASS, "BITS, 1, 5").contains("PACKETS or BYTES"));
        assert!(refused(&CLASS, "BYTES, 2, 5").contains("RATIO"));
    }

    #[test]
    fn some_packets_count_by_chance() {
        let text =
            "FromDevice(a) -> MarkIPHeader(14) -> m :: IPRateMonitor(PACKETS, 0, 1) -> ToDevice(x)";
        let mut rig = Rig::new(&World::new(), text);
        let frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[]);
        rig.receive("a", &[&frame]);
        rig.bench.now_ns += 10_000_000;
        assert_eq!(rig.receive("a", &[&frame]).len(), 1);
        assert_eq!(
            (rig.read("m.mem"), rig.read("m.look").lines().count()),
            (TABLE_BYTES.to_string(), 1)
        );
    }
}
