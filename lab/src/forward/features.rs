//! Interface features on the ingress (`--features`), for the graph and for the XDP datapath.
//!
//! Traffic: every third route leads back to the ingress, as to a customer's networks, and packets come from addresses of
//! these routes to destinations of the others, so that strict uRPF lets each pass. Every row of the run has this traffic,
//! the one without features included.
//!
//! `source-filter` is a list of prefixes to drop that has none of the sources (`--listed`). `aclN` are N ordered rules on
//! prefixes of the table, protocols and ports; the first denies, the last permits all. None of the packets is for a
//! feature to drop, and each is compared with the oracle; that the feature does drop is checked by a packet of its own
//! ([`Running::refused`]). `sampling` takes one packet in 1,000, and a thread takes the samples 100 times a
//! second, as a daemon does; it drops none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fingerpost_lpm::{Addr, NextHopId, Prefix, Rng};
use fingerpost_packet::device::memory::HEADER_BYTES;
use fingerpost_packet::feature::row::{Given, GivenInterface};
use fingerpost_packet::feature::sampling::Sampling;
use fingerpost_packet::feature::{Feature as Row, FeatureSettings, FeatureStates, Value};
use fingerpost_route::Control;

use super::filters::{ListFile, Space};
use super::stream::{self, Stream};
use super::world::{self, LINKS, Ports, set_source};
use crate::table::{Table, Tables};

/// A feature as runs have it.
#[derive(Debug)]
pub struct Feature {
    /// Name of the option, and end of the run's name.
    pub name: &'static str,
    /// Name of its row among the features of the router.
    row: &'static str,
    /// Rules of the ACL.
    rules: usize,
}

static FEATURES: &[Feature] = &[
    Feature { name: "urpf", row: "urpf", rules: 0 },
    Feature { name: "source-filter", row: "source-filter", rules: 0 },
    Feature { name: "acl10", row: "acl", rules: 10 },
    Feature { name: "acl1000", row: "acl", rules: 1000 },
    Feature { name: "acl10000", row: "acl", rules: 10_000 },
    Feature { name: "sampling", row: "sampling", rules: 0 },
];

/// Sampling rate: one packet in so many.
const RATE: i64 = 1000;

/// Number of the file of the list: those of `--filters` are before it.
const LIST: usize = 16;

/// Features by name, as options take them: `acl` stands for lists of 10, 1,000 and 10,000 rules.
///
/// # Errors
/// When a name is none; the message lists those that are.
pub fn find(names: &str) -> Result<Vec<&'static Feature>> {
    let is = |feature: &Feature, name: &str| feature.name == name || feature.row == name;
    for name in names.split(',') {
        if !FEATURES.iter().any(|feature| is(feature, name)) {
            let known: Vec<_> = FEATURES.iter().map(|feature| feature.name).collect();
            bail!("no feature {name}: there are {}, acl for all lists of rules", known.join(", "));
        }
    }
    let wanted = |feature: &&Feature| names.split(',').any(|name| is(feature, name));
    Ok(FEATURES.iter().filter(wanted).collect())
}

/// The tables with every third route behind the ingress.
pub(crate) fn with_customers(tables: &Tables) -> Tables {
    fn marked<A: Addr>(table: &Table<A>) -> Table<A> {
        let mut table = table.clone();
        table.routes.iter_mut().step_by(3).for_each(|route| route.1 |= world::BEHIND_INGRESS);
        table
    }
    Tables { v4: tables.v4.as_ref().map(marked), v6: tables.v6.as_ref().map(marked) }
}

/// Packets of a table with customers: a destination with its next hop, and a source each.
pub(crate) struct Crossing<A: Addr> {
    pub(crate) destinations: Vec<(A, NextHopId)>,
    pub(crate) sources: Vec<A>,
}

impl<A: Addr> Crossing<A> {
    /// Draws so many packets, fewer where the table has fewer addresses.
    ///
    /// # Errors
    /// When the table has no route of either kind.
    pub(crate) fn draw(table: &Table<A>, stream: Stream, count: usize, seed: u64) -> Result<Self> {
        let oracle = table.oracle();
        let drawn = |seed: u64, behind: bool| {
            let mut found = stream::destinations(table, &oracle, stream, 4 * count, seed);
            found.retain(|found| (found.1.0 & world::BEHIND_INGRESS != 0) == behind);
            found.truncate(count);
            found
        };
        let (mut destinations, sources) = (drawn(seed, false), drawn(seed ^ 0x50_7ace, true));
        ensure!(
            !destinations.is_empty() && !sources.is_empty(),
            "{}: too few routes for customers and others",
            table.file
        );
        destinations.truncate(sources.len());
        Ok(Self { destinations, sources: sources.into_iter().map(|found| found.0).collect() })
    }

    /// Headers in order, each with a number by which its flow differs.
    pub(crate) fn headers(&self, mut number: impl FnMut(usize) -> u16) -> Vec<[u8; HEADER_BYTES]> {
        let packets = self.destinations.iter().zip(&self.sources).enumerate();
        let header = |(at, (destination, &source)): (usize, (&(A, NextHopId), &A))| {
            let mut header = world::header(destination.0, number(at));
            set_source(&mut header, source);
            header
        };
        packets.map(header).collect()
    }
}

/// A feature at work on the ingress.
pub(crate) struct Running {
    pub(crate) states: FeatureStates,
    /// A packet that it drops, if it drops any.
    pub(crate) refused: Option<[u8; HEADER_BYTES]>,
    /// What it is, for notes.
    pub(crate) words: String,
    _list: Option<ListFile>,
    _samples: Option<Collecting>,
}

/// A thread that takes samples until this is dropped.
pub(crate) struct Collecting {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Collecting {
    /// Calls `take`, which takes the samples that there are, every 10 ms.
    pub(crate) fn start(mut take: impl FnMut() + Send + 'static) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let end = ends.clone();
        let thread = std::thread::spawn(move || {
            // Relaxed: nothing else follows from it.
            while !end.load(Ordering::Relaxed) {
                take();
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self { ends, thread: Some(thread) }
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Running {
    /// Configures the feature for the ingress, as a daemon does it from a file. `crossing` are the packets to let pass.
    ///
    /// # Errors
    /// When the feature cannot be had.
    pub(crate) fn start<A: Addr>(
        feature: &Feature,
        table: &Table<A>,
        crossing: &Crossing<A>,
        listed: usize,
        control: &mut Control,
        ports: Ports,
    ) -> Result<Self> {
        let names = LINKS.map(world::link_name);
        let mut refused = world::header(crossing.destinations[0].0, 1);
        let text = |text: &str| Value::Text(text.to_owned());
        let table_of = |fields: Vec<(&str, Value)>| {
            let interfaces = ("interfaces", Value::List(vec![text(&names[0])]));
            let fields = [("name", text("bench")), interfaces].into_iter().chain(fields);
            Value::Table(fields.map(|(key, value)| (key.to_owned(), value)).collect())
        };
        let (mut value, mut item, mut list) = (None, None, None);
        let words = match feature.row {
            "urpf" => {
                value = Some(text("strict"));
                // Its route leads elsewhere.
                set_source(&mut refused, crossing.destinations[0].0);
                "strict".to_owned()
            }
            "source-filter" => {
                let prefixes = without(Space::new(table).list(listed, 1), &crossing.sources);
                let first = prefixes.first().context("no prefix is left for the list")?;
                set_source(&mut refused, first.first());
                let file = ListFile::write(LIST, &prefixes)?;
                item = Some(table_of(vec![("action", text("drop")), ("file", text(&file.path()))]));
                list = Some(file);
                format!("{} prefixes to drop", prefixes.len())
            }
            "acl" => {
                set_source(&mut refused, crossing.sources[0]);
                world::set_port(&mut refused, A::FAMILY, REFUSED_PORT);
                let rules = rules(table, feature.rules);
                let rules = Value::List(rules.iter().map(|rule| text(rule)).collect());
                item = Some(table_of(vec![("direction", text("in")), ("rules", rules)]));
                format!("{} rules", feature.rules)
            }
            "sampling" => {
                value = Some(Value::Integer(RATE));
                let fields = [("address", "192.0.2.1"), ("protocol", "sflow")];
                item = Some(Value::Table(
                    fields.map(|(key, word)| (key.to_owned(), text(word))).into(),
                ));
                format!("1 in {RATE}")
            }
            other => bail!("{other} is not measured"),
        };
        let given = |row: &Row| {
            if row.name != feature.row {
                return Given::default();
            }
            let (name, place) = (names[0].clone(), "interface[0]".to_owned());
            let interfaces = vec![GivenInterface { name, place, value: value.clone() }];
            let items = item.iter().map(|item| (feature.row.to_owned(), item.clone())).collect();
            Given { interfaces, items }
        };
        let (settings, mistakes) = FeatureSettings::read(given);
        ensure!(mistakes.is_empty(), "{}: {mistakes:?}", feature.name);
        settings.bind(None, control)?;
        control.commit(Instant::now()).context("no algorithm holds the table")?;
        let states = FeatureStates::make(&settings, None)
            .map_err(|wrong| anyhow!("{}: {}", feature.name, wrong.join("; ")))?;
        let named: Vec<_> = ports.all().into_iter().zip(names.iter().map(|name| &**name)).collect();
        states.follow(&named);
        let sampling = states.of::<Sampling>();
        let refused = sampling.is_none().then_some(refused);
        let samples = sampling
            .map(|sampling| Collecting::start(move || _ = sampling.take(usize::MAX, |_| ())));
        Ok(Self { states, refused, words, _list: list, _samples: samples })
    }
}

/// The prefixes that have none of these addresses.
fn without<A: Addr>(mut prefixes: Vec<Prefix<A>>, addresses: &[A]) -> Vec<Prefix<A>> {
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    prefixes.retain(|prefix| {
        let at = sorted.partition_point(|addr| *addr < prefix.addr());
        sorted.get(at).is_none_or(|addr| !prefix.contains(*addr))
    });
    prefixes
}

/// Services that rules name, and the port of which the first rule denies.
const SERVICES: [u16; 12] = [80, 443, 22, 25, 53, 110, 143, 1521, 3306, 8080, 161, 123];
const REFUSED_PORT: u16 = 7;

/// So many rules, after the distributions of access lists: prefixes of the table, few services, mostly TCP. Packets of the
/// bench are UDP to port 9: of those that a rule for UDP takes, it permits all.
fn rules<A: Addr>(table: &Table<A>, count: usize) -> Vec<String> {
    let mut random = Rng::new(1000);
    let mut rules = vec![format!("deny udp and dst port {REFUSED_PORT}")];
    while rules.len() + 1 < count {
        let mut rule = match random.below(10) {
            0..4 => "deny tcp",
            4..7 => "permit tcp",
            _ => "permit udp",
        }
        .to_owned();
        for (end, wild) in [("src", 10), ("dst", 5)] {
            let prefix = table.routes[random.below(table.routes.len())].0;
            if !random.chance(wild) {
                rule += &format!(" and {end} net {prefix}");
            }
        }
        match random.below(10) {
            0..6 => rule += &format!(" and dst port {}", SERVICES[random.below(SERVICES.len())]),
            6 => rule += " and dst port 1024-65535",
            _ => {}
        }
        rules.push(rule);
    }
    rules.push("permit all".to_owned());
    rules
}

#[cfg(test)]
mod tests {
    use super::super::tests::tables;
    use super::super::{ForwardOptions, forward};
    use super::*;
    use crate::document::Answers;
    use crate::measure::Measured as _;

    #[test]
    fn every_feature_lets_the_packets_pass_that_it_must() {
        let options = ForwardOptions {
            tables: tables(),
            streams: vec![Stream::Prefix],
            destinations: 300,
            seconds: 0.01,
            features: find("urpf,source-filter,acl10,acl1000,sampling").unwrap(),
            listed: 2000,
            elements: false,
            ..ForwardOptions::default()
        };
        let document = forward(&options).unwrap();
        let seen: Vec<_> = document.runs.iter().map(|run| (&run.name[..], run.answers)).collect();
        let of = |family: u8| {
            let features = ["", "-urpf", "-source-filter", "-acl10", "-acl1000", "-sampling"];
            features.map(|feature| (format!("graph-v{family}{feature}"), Answers::Ok))
        };
        let mut want: Vec<_> = of(4).into_iter().chain(of(6)).collect();
        want.push(("generator".to_owned(), Answers::Unchecked));
        assert_eq!(seen, want.iter().map(|(name, ok)| (&name[..], *ok)).collect::<Vec<_>>());
    }

    /// One packet in so many of those that pass, and all pass.
    #[test]
    fn sampling_takes_its_share() {
        let options = ForwardOptions {
            tables: tables(),
            destinations: 300,
            features: find("sampling").unwrap(),
            ..ForwardOptions::default()
        };
        let table = with_customers(&options.tables).v4.unwrap();
        let crossing = Crossing::draw(&table, Stream::Prefix, 300, 1).unwrap();
        let only = with_customers(&options.tables.only(4));
        let (mut control, ports) = world::build(&only, None, None, None).unwrap();
        let running =
            Running::start(options.features[0], &table, &crossing, 0, &mut control, ports).unwrap();
        assert!(running.refused.is_none());
        let plan = fingerpost_packet::router_graph::plan_with(None, &running.states).unwrap();
        let headers = crossing.headers(|at| u16::try_from(at).unwrap()).into();
        let reader = control.reader();
        let mut path = super::super::Path::new(plan, reader, ports, 4, headers, 32);
        path.free_run();
        for _ in 0..4000 {
            path.work();
        }
        let (_, rate, sampled) =
            running.states.of::<Sampling>().unwrap().interfaces().next().unwrap();
        assert_eq!(i64::from(rate), RATE);
        assert!(sampled.packets > 100_000, "{sampled:?}");
        let want = sampled.packets / 1000;
        assert!((want / 2..want * 2).contains(&sampled.samples), "{sampled:?}");
    }

    #[test]
    fn customers_send_to_others() {
        let tables = with_customers(&tables());
        let table = tables.v4.unwrap();
        let oracle = table.oracle();
        let crossing = Crossing::draw(&table, Stream::Prefix, 500, 1).unwrap();
        assert!(crossing.destinations.len() > 400);
        for (destination, source) in crossing.destinations.iter().zip(&crossing.sources) {
            assert_ne!(world::hop_link(destination.1.0), LINKS[0]);
            assert_eq!(world::hop_link(oracle.lookup(*source).0), LINKS[0]);
        }
        let list = without(Space::new(&table).list(3000, 1), &crossing.sources);
        assert!(list.len() > 1000, "{}", list.len());
        assert!(!list.iter().any(|p| crossing.sources.iter().any(|source| p.contains(*source))));
        assert_eq!(rules(&table, 100).len(), 100);
    }

    #[test]
    fn features_are_found_by_name() {
        let names = |text| find(text).unwrap().iter().map(|f| f.name).collect::<Vec<_>>();
        assert_eq!(names("acl,urpf"), ["urpf", "acl10", "acl1000", "acl10000"]);
        assert_eq!(names("acl1000"), ["acl1000"]);
        assert_eq!(names("sampling"), ["sampling"]);
        assert!(find("none,urpf").unwrap_err().to_string().contains("no feature none"));
    }
}
