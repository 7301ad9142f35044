//! Route tables of graphs against Click's rules: thousands of random handler calls and packets, beside a plain list.
//!
//! Source: the manual page of Click's IPRouteTable. `add` fails where there is a route to the prefix, `set` replaces it, `remove`
//! takes any route of the prefix, or with an output only that very route; `ctrl` carries out all of its lines or none; `lookup`
//! is the output and the gateway of the longest prefix, or -1. `FINGERPOST_SOAK_SECONDS` is how long they continue.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use fingerpost_lpm::Rng;
use fingerpost_packet::testing::{Rig, World, frame_v4, frame_v6};

/// One of these.
fn pick<T: Copy>(random: &mut Rng, from: &[T]) -> T {
    from[random.below(from.len())]
}

fn once_in(random: &mut Rng, of: usize) -> bool {
    random.below(of) == 0
}

/// Outputs of each table.
const OUTPUTS: u16 = 4;

/// Address family: bits of an address, and its text.
#[derive(Clone, Copy, PartialEq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn bits(self) -> u32 {
        if self == Self::V4 { 32 } else { 128 }
    }

    fn text(self, addr: u128) -> String {
        match self {
            Self::V4 => Ipv4Addr::from_bits(u32::try_from(addr).unwrap()).to_string(),
            Self::V6 => Ipv6Addr::from_bits(addr).to_string(),
        }
    }

    fn all(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    fn mask(self, len: u32) -> u128 {
        // All bits of the family, but for those of hosts.
        self.all() & !self.all().checked_shr(len).unwrap_or(0)
    }
}

/// A route.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Route {
    addr: u128,
    len: u32,
    /// 0 is none.
    gateway: u128,
    output: u16,
}

/// A change; a removal may leave out the rest.
#[derive(Clone, Copy, Debug)]
enum Change {
    Add(Route),
    Set(Route),
    Remove(Route, bool),
}

/// The list: places of removed routes stay, and the next new route takes the first of them.
#[derive(Clone)]
struct List {
    family: Family,
    places: Vec<Option<Route>>,
}

impl List {
    fn find(&self, route: &Route) -> Option<usize> {
        let same =
            |at: &Option<Route>| at.is_some_and(|at| (at.addr, at.len) == (route.addr, route.len));
        self.places.iter().position(same)
    }

    fn text(&self, route: &Route, space: char) -> String {
        let gateway = match route.gateway {
            0 => "-".to_owned(),
            gateway => self.family.text(gateway),
        };
        let addr = self.family.text(route.addr);
        format!("{addr}/{}{space}{gateway}{space}{}", route.len, route.output)
    }

    /// Carries out a change, or returns a part of the words of its refusal.
    fn change(&mut self, change: Change) -> Result<(), String> {
        let (Change::Add(route) | Change::Set(route) | Change::Remove(route, _)) = change;
        let found = self.find(&route);
        match (change, found) {
            (Change::Add(_), Some(at)) => {
                let there = self.text(&self.places[at].unwrap(), ' ');
                Err(format!("conflict with existing route `{there}`"))
            }
            (Change::Add(_) | Change::Set(_), _) if route.output >= OUTPUTS => {
                Err(format!("output {} is not connected", route.output))
            }
            (Change::Add(_) | Change::Set(_), None) => {
                match self.places.iter().position(Option::is_none) {
                    Some(free) => self.places[free] = Some(route),
                    None => self.places.push(Some(route)),
                }
                Ok(())
            }
            (Change::Set(_), Some(at)) => {
                self.places[at] = Some(route);
                Ok(())
            }
            (Change::Remove(..), None) => Err("no route to ".to_owned()),
            (Change::Remove(_, very), Some(at)) => {
                let there = self.places[at].unwrap();
                if very && there != route {
                    return Err(format!("the route is `{}`", self.text(&there, ' ')));
                }
                self.places[at] = None;
                Ok(())
            }
        }
    }

    fn lookup(&self, addr: u128) -> Option<Route> {
        let holds = |route: &&Route| addr & self.family.mask(route.len) == route.addr;
        self.places.iter().flatten().filter(holds).max_by_key(|route| route.len).copied()
    }

    /// The table as it is listed: by address and length, or as the places are.
    fn table(&self, in_order: bool) -> String {
        let mut routes: Vec<Route> = self.places.iter().flatten().copied().collect();
        if in_order {
            routes.sort_by_key(|route| (route.addr, route.len));
        }
        routes.iter().map(|route| columns(&self.text(route, '\t'))).collect()
    }
}

/// Classes that list their routes in the order in which they were added.
const AS_ADDED: [&str; 3] = ["LinearIPLookup", "RadixIPLookup", "StaticIPLookup"];

/// A line with the tabs of Click's columns.
fn columns(line: &str) -> String {
    let words: Vec<&str> = line.split('\t').collect();
    let [prefix, gateway, output] = words[..] else { panic!("{line}") };
    let column =
        |word: &str, least| word.to_owned() + if word.len() + 1 < least { "\t\t" } else { "\t" };
    format!("{}{}{output}\n", column(prefix, 17), column(gateway, 9))
}

/// A class of tables with a list beside it.
struct Pair {
    random: Rng,
    class: &'static str,
    rig: Rig,
    list: List,
    /// Calls of handlers, and packets.
    operations: usize,
}

/// Routes of a family: few prefixes, so that changes meet.
fn route(random: &mut Rng, family: Family) -> Route {
    let bits = family.bits();
    let len = match random.below(40) {
        0 => 0,
        1..=3 => 7,
        4..=9 => bits,
        10..=19 => bits / 2,
        _ => bits / 4 + u32::try_from(random.below((bits - bits / 4) as usize)).unwrap(),
    };
    let addr = address(random, family) & family.mask(len);
    let gateway = match random.below(3) {
        0 => family.all() / 3 + u128::from(random.word() % 3),
        _ => 0,
    };
    let output =
        if once_in(random, 40) { OUTPUTS } else { u16::try_from(random.below(4)).unwrap() };
    Route { addr, len, gateway, output }
}

/// Addresses with few bits set, in few places.
fn address(random: &mut Rng, family: Family) -> u128 {
    let bits = family.bits();
    let mut addr = 10_u128 << (bits - 8);
    for _ in 0..random.below(4) {
        addr ^= 1_u128 << random.below(bits as usize);
    }
    addr
}

impl Pair {
    fn new(class: &'static str, family: Family, seed: u64) -> Self {
        let mut random = Rng::new(seed);
        let mut list = List { family, places: Vec::new() };
        let mut texts = Vec::new();
        for _ in 0..random.below(30) {
            let given = Route { output: 1, ..route(&mut random, family) };
            list.change(Change::Set(given)).unwrap();
            texts.push(route_text(&mut random, family, &given));
        }
        let sinks: String = (0..OUTPUTS).map(|n| format!("t [{n}] -> ToDevice(o{n});\n")).collect();
        let text = format!(
            "FromDevice(a) -> Strip(14) -> MarkIPHeader -> t :: {class}({});\n{sinks}",
            texts.join(", ")
        );
        let rig = Rig::new(&World::new(), &text);
        Self { random, class, rig, list, operations: 0 }
    }

    /// A change, and its text without the name of the handler.
    fn change(&mut self) -> (&'static str, Change, String) {
        let family = self.list.family;
        let route = route(&mut self.random, family);
        // Routes that are there as often as not.
        let there: Vec<Route> = self.list.places.iter().flatten().copied().collect();
        match self.random.below(5) {
            0 | 1 => {
                let text = route_text(&mut self.random, family, &route);
                ("add", Change::Add(route), text)
            }
            2 => {
                let text = route_text(&mut self.random, family, &route);
                ("set", Change::Set(route), text)
            }
            _ => {
                let route = match there.is_empty() || once_in(&mut self.random, 4) {
                    true => Route { output: route.output % OUTPUTS, ..route },
                    false => pick(&mut self.random, &there),
                };
                let other = Route { gateway: 7, output: route.output ^ 1, ..route };
                let route = if once_in(&mut self.random, 5) { other } else { route };
                let prefix = prefix_text(&mut self.random, family, &route);
                match self.random.below(3) {
                    0 => ("remove", Change::Remove(route, false), prefix),
                    // A gateway without an output stands for nothing.
                    1 => {
                        let text = format!("{prefix} {}", family.text(9));
                        ("remove", Change::Remove(route, false), text)
                    }
                    _ => {
                        let text = route_text(&mut self.random, family, &route);
                        ("remove", Change::Remove(route, true), text)
                    }
                }
            }
        }
    }

    /// One call of a handler, or a packet.
    fn step(&mut self) {
        self.operations += 1;
        let changes = self.class != "StaticIPLookup";
        match self.random.below(20) {
            0..=7 if changes => {
                let (handler, change, text) = self.change();
                let wanted = self.list.change(change);
                let got = self.rig.handlers.write(&format!("t.{handler}"), &text);
                self.same(&format!("{handler} {text}"), wanted, got.map(drop));
            }
            8 | 9 if changes => self.several(),
            10 if changes && once_in(&mut self.random, 10) => {
                self.rig.write("t.flush", "");
                self.list.places.clear();
            }
            11 if changes => {
                let text = pick(
                    &mut self.random,
                    &["", "10/8", "x/8 1", "10/8 1 2 3", "10/8 -1", "10/8 x 1", "1/200 1"],
                );
                let handler = pick(&mut self.random, &["t.add", "t.set", "t.ctrl"]);
                let got = self.rig.handlers.write(handler, text);
                // Nothing is nothing to do.
                assert_eq!(got.is_ok(), (handler, text) == ("t.ctrl", ""), "{handler} {text}");
            }
            12 => self.packet(),
            13 => {
                let got = self.rig.read("t.table");
                assert_eq!(got, self.list.table(!AS_ADDED.contains(&self.class)), "{}", self.class);
            }
            _ => {
                let addr = self.near();
                let found = self.list.lookup(addr);
                let text = self.list.family.text(addr);
                let wanted = match found {
                    None => "-1".to_owned(),
                    Some(Route { gateway: 0, output, .. }) => output.to_string(),
                    Some(route) => {
                        format!("{} {}", route.output, self.list.family.text(route.gateway))
                    }
                };
                let got = self.rig.handlers.read("t.lookup", &text).unwrap();
                assert_eq!(got, wanted, "{}: {text}", self.class);
            }
        }
    }

    /// Several changes at once.
    fn several(&mut self) {
        let mut trial = self.list.clone();
        let (mut text, mut wanted) = (String::new(), Ok(()));
        for _ in 0..1 + self.random.below(5) {
            if once_in(&mut self.random, 4) {
                text += "\n";
            }
            let (name, change, line) = self.change();
            text += &format!("{name} {line}\n");
            if wanted.is_ok() {
                let number = text.lines().count();
                wanted = trial.change(change).map_err(|words| format!("line {number}: {words}"));
            }
        }
        if wanted.is_ok() {
            self.list = trial;
        }
        let got = self.rig.handlers.write("t.ctrl", &text);
        self.same(&text, wanted, got.map(drop));
    }

    fn same<E: std::fmt::Display>(
        &self,
        text: &str,
        wanted: Result<(), String>,
        got: Result<(), E>,
    ) {
        let got = got.map_err(|error| error.to_string());
        let same = match (&wanted, &got) {
            (Ok(()), Ok(())) => true,
            (Err(words), Err(error)) => error.contains(words.as_str()),
            _ => false,
        };
        assert!(same, "{}: {text}: {got:?}, but the list: {wanted:?}", self.class);
    }

    /// An address at the end of a prefix of the table, or beside it.
    fn near(&mut self) -> u128 {
        let family = self.list.family;
        let there: Vec<Route> = self.list.places.iter().flatten().copied().collect();
        if there.is_empty() || once_in(&mut self.random, 4) {
            return address(&mut self.random, family);
        }
        let Route { addr, len, .. } = pick(&mut self.random, &there);
        let last = addr | (family.all() & !family.mask(len));
        let near = [addr, last, addr.wrapping_sub(1), last.wrapping_add(1)];
        pick(&mut self.random, &near) & family.all()
    }

    fn packet(&mut self) {
        let addr = self.near();
        let text = self.list.family.text(addr);
        let frame = match self.list.family {
            Family::V4 => frame_v4("10.0.0.9", &text, 64, 17, &[0; 8]),
            Family::V6 => frame_v6("2001:db8::9", &text, 64, 17, &[0; 8]),
        };
        let went = self.rig.receive("a", &[&frame]).pop().map(|(to, _)| to);
        let wanted = self.list.lookup(addr).map(|route| format!("o{}", route.output));
        assert_eq!(went, wanted, "{}: a packet to {text}", self.class);
    }
}

/// Host bits may be set; a mask may be an address; a whole address needs no mask.
fn prefix_text(random: &mut Rng, family: Family, route: &Route) -> String {
    let host = if once_in(random, 3) { family.all() & !family.mask(route.len) } else { 0 };
    let addr = family.text(route.addr | host);
    match (family, random.below(4)) {
        (_, 0) if route.len == family.bits() => addr,
        (Family::V4, 1) => format!("{addr}/{}", family.text(family.mask(route.len))),
        _ => format!("{addr}/{}", route.len),
    }
}

fn route_text(random: &mut Rng, family: Family, route: &Route) -> String {
    let prefix = prefix_text(random, family, route);
    let gateway = match (route.gateway, random.below(3)) {
        (0, 0) => "-".to_owned(),
        (0, 1) => family.text(0),
        (0, _) => String::new(),
        (gateway, _) => family.text(gateway),
    };
    format!("{prefix} {gateway} {}", route.output)
}

const CLASSES: &[(&str, Family)] = &[
    ("StaticIPLookup", Family::V4),
    ("LinearIPLookup", Family::V4),
    ("SortedIPLookup", Family::V4),
    ("RadixIPLookup", Family::V4),
    ("DirectIPLookup", Family::V4),
    ("RangeIPLookup", Family::V4),
    ("DXRIPLookup", Family::V4),
    ("BSDIPLookup", Family::V4),
    ("IPLookup", Family::V4),
    ("BSDIP6Lookup", Family::V6),
    ("IP6Lookup", Family::V6),
    #[cfg(feature = "click")]
    ("LookupIP6Route", Family::V6),
];

/// Operations of a table; some 9,000 of all.
const OPERATIONS: usize = 800;

#[test]
fn click_tables_answer_as_a_plain_list() {
    let begin = Instant::now();
    let soak = std::env::var("FINGERPOST_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let soak = Duration::from_secs(soak.unwrap_or(0));
    let (mut seed, mut operations) = (1, 0);
    while seed == 1 || begin.elapsed() < soak {
        for (n, &(class, family)) in CLASSES.iter().enumerate() {
            let mut pair = Pair::new(class, family, seed * 100 + n as u64);
            (0..OPERATIONS).for_each(|_| pair.step());
            operations += pair.operations;
        }
        seed += 1;
    }
    println!("{operations} operations on {} tables", CLASSES.len());
}
