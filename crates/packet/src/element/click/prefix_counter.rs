//! `PrefixCounter`: counts packets and bytes by the longest of its prefixes that their destination, or source, lies in.
//!
//! For an operator who needs to know how much goes to which customer, or comes from where (Fingerpost's own; the
//! lookup is any table's). Prefixes with one name share their counts. What none covers passes as well, or takes the second
//! output, and is counted under `-`, like what is no IP packet.
//!
//! Cost: the lookup's for a batch, the address of each header, two counts a packet; 16 bytes a name and worker.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fingerpost_lpm::{LpmReader, LpmTable, NextHopId, Prefix, RouteStore, UpdateError};
use fingerpost_route::AnyPrefix;

use crate::element::router::ether_input::AHEAD;
use crate::element::support::lookups::Lookups;
use crate::frame::Batch;
use crate::frame::counters::{Count, PerWorker};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::handler::Handler;
use crate::language::open_policy::OpenPolicy;
use crate::language::{Arg, ClassSpec, ConfigError};
use crate::prefix_sets::{read_file, read_prefix};
use crate::route_table::Family;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("PrefixCounter", "1/1-2", "a/ah", "x/x").outputs(&["covered", "rest"]),
    summary: "counts packets and bytes by the longest prefix of their destination or source",
    configure,
};

/// What is no prefix's.
const REST: &str = "-";
/// Lines of `top` by default.
const TOP: usize = 10;

/// State that the next configuration continues.
struct Shared {
    /// Names by number; the first is the rest's.
    names: Vec<Box<str>>,
    tables: Mutex<Tables>,
    counts: PerWorker<Rows>,
    /// What earlier configurations had counted under these names, less what was reset.
    before: Mutex<Vec<Totals>>,
}

struct Tables {
    v4: LpmTable<u32>,
    v6: LpmTable<u128>,
}

/// Counts of one worker, by the number of a name.
#[derive(Default)]
struct Rows(OnceLock<Box<[Row]>>);

#[derive(Default)]
struct Row {
    packets: Count,
    bytes: Count,
}

/// Wraps around, as counts do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Totals {
    packets: u64,
    bytes: u64,
}

impl Rows {
    fn all(&self, names: usize) -> &[Row] {
        self.0.get_or_init(|| (0..names).map(|_| Row::default()).collect())
    }
}

/// Prefixes as the arguments give them.
#[derive(Default)]
struct Given {
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
    v4: RouteStore<u32>,
    v6: RouteStore<u128>,
}

impl Given {
    /// Counts a prefix under a name, or its own.
    fn add(&mut self, prefix: AnyPrefix, name: Option<&str>) -> Result<(), String> {
        let own = || prefix.to_string().into();
        let name: Box<str> = name.map_or_else(own, Box::from);
        let next = u32::try_from(self.names.len()).map_err(|_| "too many names")?;
        let number = *self.numbers.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            next
        });
        let (number, before) = match prefix {
            AnyPrefix::V4(prefix) => (number, put(&mut self.v4, prefix, number)),
            AnyPrefix::V6(prefix) => (number, put(&mut self.v6, prefix, number)),
        };
        match before {
            Some(other) if other.0 != number => {
                Err(format!("{prefix} is counted under `{}` already", self.names[other.0 as usize]))
            }
            _ => Ok(()),
        }
    }
}

fn put<A: Family>(store: &mut RouteStore<A>, prefix: Prefix<A>, number: u32) -> Option<NextHopId> {
    store.insert(prefix, NextHopId(number))
}

/// `PREFIX [NAME]`.
fn read(arg: &Arg<'_>, given: &mut Given) -> Result<(), String> {
    let words: Result<Vec<String>, String> = arg.words().map(|word| word.value()).collect();
    let words = words?;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [prefix] => given.add(read_prefix(prefix)?, None),
        [prefix, name] if name != REST => given.add(read_prefix(prefix)?, Some(name)),
        _ => Err("what is counted is PREFIX [NAME]".into()),
    }
}

/// Names of files, each of many prefixes.
fn read_files(arg: &Arg<'_>, policy: &OpenPolicy, given: &mut Given) -> Result<(), String> {
    for word in arg.words() {
        let list = read_file(&word.value::<String>()?, policy)?;
        list.v4.into_iter().try_for_each(|prefix| given.add(AnyPrefix::V4(prefix), None))?;
        list.v6.into_iter().try_for_each(|prefix| given.add(AnyPrefix::V6(prefix), None))?;
    }
    Ok(())
}

fn configure(setup: &mut Setup<'_>) -> Result<Made, ConfigError> {
    let address = setup.args.keyword_arg("ADDRESS");
    let files = setup.args.keyword_arg("FILE");
    let mut given = Given { names: vec![REST.into()], ..Given::default() };
    for arg in setup.args.rest() {
        if let Err(words) = read(&arg, &mut given) {
            setup.args.refuse(&arg, &words);
        }
    }
    if let Some(arg) = files?
        && let Err(words) = read_files(&arg, setup.policy, &mut given)
    {
        setup.args.refuse(&arg, &words);
    }
    let by_source = match address? {
        None => false,
        Some(arg) => match arg.raw() {
            "dst" => false,
            "src" => true,
            _ => return Err(setup.args.refuse(&arg, "ADDRESS is `dst` or `src`")),
        },
    };
    setup.args.finish()?;
    let before = setup.before.cloned().and_then(|kept| kept.downcast::<Shared>().ok());
    let shared = Shared::new(given, before.as_deref());
    let shared = Arc::new(shared.map_err(|error| setup.args.refuse_all(&error.to_string()))?);
    setup.kept = Some(shared.clone());
    let apart = setup.outputs > 1;
    let each = shared.clone();
    let made = Made::new(move |instance| {
        let tables = each.tables();
        PrefixCounter {
            names: each.names.len(),
            rows: each.counts.add(instance),
            by_source,
            apart,
            v4: Counting { reader: tables.v4.reader(), lookups: Lookups::new() },
            v6: Counting { reader: tables.v6.reader(), lookups: Lookups::new() },
        }
    });
    let of = || shared.clone();
    let (count, top, lookup, stat, reset) = (of(), of(), of(), of(), of());
    Ok(made
        .handler(Handler::read("count", move || count.read_count()))
        .handler(Handler::read_with("top", move |text| top.read_top(text)))
        .handler(Handler::read_with("lookup", move |text| lookup.read_lookup(text)))
        .handler(Handler::read("stat", move || stat.read_stat()))
        .command("reset", move || reset.reset()))
}

impl Shared {
    fn new(given: Given, old: Option<&Self>) -> Result<Self, UpdateError> {
        let Given { names, numbers, v4, v6 } = given;
        let mut before = vec![Totals::default(); names.len()];
        for (name, totals) in old.into_iter().flat_map(|old| old.names.iter().zip(old.totals())) {
            let known = if **name == *REST { Some(&0) } else { numbers.get(name) };
            if let Some(&number) = known {
                before[number as usize] = totals;
            }
        }
        let tables = Tables { v4: LpmTable::build(v4)?, v6: LpmTable::build(v6)? };
        let (tables, before) = (Mutex::new(tables), Mutex::new(before));
        Ok(Self { names, tables, counts: PerWorker::default(), before })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // They are never changed.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn before(&self) -> MutexGuard<'_, Vec<Totals>> {
        // Whole whatever panicked beside it: each of its numbers is.
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted, by number.
    fn totals(&self) -> Vec<Totals> {
        self.beside(self.before().clone())
    }

    /// What workers have counted, and this.
    fn beside(&self, mut totals: Vec<Totals>) -> Vec<Totals> {
        self.counts.each(|rows| {
            for (total, row) in totals.iter_mut().zip(rows.all(self.names.len())) {
                total.packets = total.packets.wrapping_add(row.packets.read());
                total.bytes = total.bytes.wrapping_add(row.bytes.read());
            }
        });
        totals
    }

    fn reset(&self) {
        let mut before = self.before();
        let counted = self.beside(vec![Totals::default(); self.names.len()]);
        for (before, now) in before.iter_mut().zip(counted) {
            before.packets = 0_u64.wrapping_sub(now.packets);
            before.bytes = 0_u64.wrapping_sub(now.bytes);
        }
    }

    fn lines<'a>(&self, rows: impl Iterator<Item = (usize, &'a Totals)>) -> String {
        let mut text = String::new();
        for (number, Totals { packets, bytes }) in rows {
            let _ = writeln!(text, "{} {packets} {bytes}", self.names[number]);
        }
        text
    }

    /// Counts in the order of the arguments; the rest last.
    fn read_count(&self) -> String {
        let totals = self.totals();
        let rest = std::iter::once((0, &totals[0]));
        self.lines(totals.iter().enumerate().skip(1).chain(rest))
    }

    /// Those with the most bytes.
    fn read_top(&self, text: &str) -> Result<String, String> {
        let most = match text.trim() {
            "" => TOP,
            number => number.parse().map_err(|_| format!("`{number}` is no number of lines"))?,
        };
        let totals = self.totals();
        let mut rows: Vec<_> =
            totals.iter().enumerate().filter(|(_, row)| row.packets > 0).collect();
        // Equal ones in the order of the arguments.
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.bytes));
        rows.truncate(most);
        Ok(self.lines(rows.into_iter()))
    }

    fn read_lookup(&self, text: &str) -> Result<String, String> {
        let text = text.trim();
        let addr = text.parse().map_err(|_| format!("`{text}` is no address"))?;
        let found = match addr {
            IpAddr::V4(addr) => self.tables().v4.lookup(addr.to_bits()),
            IpAddr::V6(addr) => self.tables().v6.lookup(addr.to_bits()),
        };
        Ok(self.names[found.0 as usize].to_string())
    }

    fn read_stat(&self) -> String {
        let tables = self.tables();
        let names = self.names.len() - 1;
        let line = |family, prefixes, bytes, algorithm| {
            format!("IPv{family}: {prefixes} prefixes, {bytes} bytes ({algorithm})\n")
        };
        let (v4, v6) = (&tables.v4, &tables.v6);
        format!("{names} names\n")
            + &line(4, v4.len(), v4.structure().bytes(), v4.algorithm().name)
            + &line(6, v6.len(), v6.structure().bytes(), v6.algorithm().name)
    }
}

struct PrefixCounter {
    names: usize,
    rows: Arc<Rows>,
    by_source: bool,
    /// What no prefix covers has an output of its own.
    apart: bool,
    v4: Counting<u32>,
    v6: Counting<u128>,
}

/// Lookups of one family.
struct Counting<A: Family> {
    reader: LpmReader<A>,
    lookups: Lookups<A>,
}

impl<A: Family> Counting<A> {
    /// Takes the packet's address, if it has one.
    #[inline]
    fn take(&mut self, by_source: bool, frame: &[u8], at: usize, place: usize) -> bool {
        let addr = if by_source { A::src(frame, at) } else { A::dst(frame, at) };
        addr.map(|addr| self.lookups.push(addr, place)).is_some()
    }

    fn count(&mut self, rows: &[Row], apart: bool, batch: &mut Batch) {
        let Self { reader, lookups } = self;
        let len = lookups.len;
        reader.lookup_batch(&lookups.addrs[..len], &mut lookups.answers[..len]);
        for k in 0..len {
            one(rows, lookups.answers[k], apart, lookups.place(k), batch);
        }
        lookups.clear();
    }
}

#[inline]
fn one(rows: &[Row], found: NextHopId, apart: bool, i: usize, batch: &mut Batch) {
    let row = &rows[found.0 as usize];
    row.packets.add(1);
    row.bytes.add(batch.frame_len(i) as u64);
    if apart && found.is_none() {
        batch.output(i, 1);
    }
}

impl Element for PrefixCounter {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let Self { names, rows, by_source, apart, v4, v6 } = self;
        let rows = rows.all(*names);
        for i in 0..batch.len() {
            batch.prefetch(i + AHEAD);
            let at = usize::from(batch.meta()[i].network);
            let frame = batch.bytes(i);
            let taken = match frame.get(at).map_or(0, |first| first >> 4) {
                4 => v4.take(*by_source, frame, at, i),
                6 => v6.take(*by_source, frame, at, i),
                _ => false,
            };
            if !taken {
                one(rows, NextHopId::NONE, *apart, i, batch);
            }
        }
        if v4.lookups.len > 0 {
            v4.count(rows, *apart, batch);
        }
        if v6.lookups.len > 0 {
            v6.count(rows, *apart, batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, frame_v4, frame_v6, refused};

    fn to(dst: &str) -> Vec<u8> {
        match dst.contains(':') {
            true => frame_v6("2001:db8:9::9", dst, 64, 17, &[0; 20]),
            false => frame_v4("198.51.100.9", dst, 64, 17, &[0; 20]),
        }
    }

    /// The devices that they leave by.
    fn receive(rig: &mut Rig, dsts: &[&str]) -> Vec<String> {
        let frames: Vec<Vec<u8>> = dsts.iter().map(|dst| to(dst)).collect();
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        rig.receive("a", &frames).into_iter().map(|(port, _)| port).collect()
    }

    #[test]
    fn the_longest_prefix_counts() {
        let text = "FromDevice(a) -> Strip(14) -> c :: PrefixCounter(10.0.0.0/8 wide, 10.1.0.0/16,
            192.0.2.0/24 wide, 2001:db8::/32 six) -> Unstrip(14) -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        let sent = ["10.0.0.1", "10.1.0.1", "192.0.2.1", "8.8.8.8", "2001:db8::1", "2001:db9::1"];
        assert_eq!(receive(&mut rig, &sent).len(), 6, "all pass");
        // 20 and 40 bytes of header, and 20 more.
        let counted = "wide 2 80\n10.1.0.0/16 1 40\nsix 1 60\n- 2 100\n";
        assert_eq!(rig.read("c.count"), counted);
        assert_eq!(rig.handlers.read("c.top", "2").unwrap(), "- 2 100\nwide 2 80\n");
        assert_eq!(rig.handlers.read("c.top", "").unwrap().lines().count(), 4);
        for (addr, name) in [("10.1.2.3", "10.1.0.0/16"), ("10.2.2.3", "wide"), ("::1", "-")] {
            assert_eq!(rig.handlers.read("c.lookup", addr).unwrap(), name);
        }
        assert!(rig.handlers.read("c.lookup", "x").is_err());
        assert!(rig.handlers.read("c.top", "x").is_err());
        assert!(rig.read("c.stat").starts_with("3 names\nIPv4: 3 prefixes, "));
        rig.write("c.reset", "");
        assert_eq!(rig.read("c.top"), "");
        receive(&mut rig, &["10.0.0.1"]);
        assert_eq!(rig.read("c.top"), "wide 1 40\n");
    }

    #[test]
    fn sources_count_where_that_is_said_and_the_rest_has_an_output() {
        let text =
            "FromDevice(a) -> Strip(14) -> c :: PrefixCounter(198.51.100.0/24 ours, ADDRESS src)
            -> ToDevice(b); c [rest] -> ToDevice(c)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(receive(&mut rig, &["10.0.0.1", "2001:db8::1"]), ["b", "c"]);
        // No IP packet.
        assert_eq!(rig.receive("a", &[&[0; 60]])[0].0, "c");
        assert_eq!(rig.read("c.count"), "ours 1 40\n- 2 106\n");
    }

    #[test]
    fn counts_go_on_by_name() {
        let text = |args: &str| {
            format!("FromDevice(a) -> Strip(14) -> c :: PrefixCounter({args}) -> ToDevice(b)")
        };
        let mut rig = Rig::new(&World::new(), &text("10.0.0.0/8 x, 11.0.0.0/8 y"));
        receive(&mut rig, &["10.0.0.1", "11.0.0.1", "12.0.0.1"]);
        rig.replace(&text("12.0.0.0/8 z, 11.0.0.0/8 y, 10.0.0.0/8")).unwrap();
        assert_eq!(rig.read("c.count"), "z 0 0\ny 1 40\n10.0.0.0/8 0 0\n- 1 40\n");
        receive(&mut rig, &["10.0.0.1", "11.0.0.1"]);
        assert_eq!(rig.read("c.count"), "z 0 0\ny 2 80\n10.0.0.0/8 1 40\n- 1 40\n");
    }

    #[test]
    fn files_hold_many() {
        let path = std::env::temp_dir().join(format!("fingerpost-use-{}", std::process::id()));
        let mut list: String =
            (0..5000).map(|n| format!("10.{}.{}.0/24\n", n / 256, n % 256)).collect();
        list += "2001:db8::/32\n";
        std::fs::write(&path, list).unwrap();
        let text = format!(
            "FromDevice(a) -> Strip(14) -> c :: PrefixCounter(10.0.1.0/24 own, FILE {}) -> ToDevice(b)",
            path.display()
        );
        let reported = refused(&CLASS, &format!("10.0.1.0/24 own, FILE {}", path.display()));
        let mut rig = Rig::new(&World::new(), &text.replace("10.0.1.0/24 own, ", ""));
        std::fs::remove_file(&path).unwrap();
        assert!(reported.contains("10.0.1.0/24 is counted under `own` already"), "{reported}");
        receive(&mut rig, &["10.0.1.1", "10.19.135.1", "10.19.136.1", "2001:db8::7"]);
        let want = "- 1 40\n10.0.1.0/24 1 40\n10.19.135.0/24 1 40\n2001:db8::/32 1 60\n";
        let mut lines: Vec<_> = rig.read("c.top").lines().map(|line| format!("{line}\n")).collect();
        lines.sort_unstable();
        assert_eq!(lines.concat(), want);
        assert_eq!(rig.read("c.count").lines().count(), 5002);
    }

    #[test]
    fn what_is_wrong_is_reported() {
        for (config, want) in [
            ("10.0.0.0/33", "`10.0.0.0/33` is no IPv4 prefix"),
            ("10.0.0.0/8 a b", "what is counted is PREFIX [NAME]"),
            ("10.0.0.0/8 -", "what is counted is PREFIX [NAME]"),
            ("10.0.0.0/8 a, 10.0.0.0/8 b", "10.0.0.0/8 is counted under `a` already"),
            ("FILE /nowhere", "/nowhere: "),
            ("ADDRESS both", "ADDRESS is `dst` or `src`"),
        ] {
            let reported = refused(&CLASS, config);
            assert!(reported.contains(want), "{config}: {reported}");
        }
    }
}
