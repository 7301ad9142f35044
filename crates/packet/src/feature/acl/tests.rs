//! Access lists against the slow, obvious answer: rule after rule by the evaluator of expressions.

use fingerpost_lpm::testing::Rng;
use proptest::prelude::*;

use std::sync::Arc;
use std::time::Instant;

use fingerpost_route::ForwardingAction;

use super::FEATURE;
use super::classify::{Classifier, NONE, RuleBox};
use super::rules::{Rule, Rules, Verdict};
use super::testing::{compare, expected};
use crate::feature::FeatureStates;
use crate::feature::row::{Cell, FeatureArc, Given, GivenInterface, State};
use crate::feature::value::Value;
use crate::filter::{Family, Filter, Key, KeyBox, WORDS, key_of, word};
use crate::frame::DropReason;
use crate::frame::wire::ETHER_BYTES;
use crate::graph::Graph;
use crate::router_graph::plan_with;
use crate::testing::{Bench, World, batch, frame_v4, frame_v6};

fn check(texts: &[String], packets: &[Vec<u8>]) {
    let rules: Vec<Rule> = texts.iter().map(|text| Rule::parse(text).expect(text)).collect();
    compare(&rules, packets.iter().map(|packet| &packet[..]));
}

const V4: [&str; 5] = ["10.0.0.1", "10.0.0.2", "10.0.1.0", "10.1.0.0", "192.0.2.255"];
const V6: [&str; 4] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::", "2001:db9::"];
const PORTS: [u16; 7] = [0, 52, 53, 54, 1023, 1024, 65535];

fn condition() -> impl Strategy<Value = String> {
    let end = || prop::sample::select(vec!["src", "dst", "", "src and dst"]);
    let port = || prop::sample::select(PORTS.to_vec());
    let v4 = (end(), prop::sample::select(V4.to_vec()), 0..=32_u8)
        .prop_map(|(end, addr, len)| format!("{end} net {addr}/{len}"));
    let v6 = (end(), prop::sample::select(V6.to_vec()), 0..=128_u8)
        .prop_map(|(end, addr, len)| format!("{end} net {addr}/{len}"));
    let range = (end(), port(), port())
        .prop_map(|(end, a, b)| format!("{end} port {}-{}", a.min(b), a.max(b)));
    let related = (end(), prop::sample::select(vec!["=", "!=", "<", ">", "<=", ">="]), port())
        .prop_map(|(end, sign, port)| format!("{end} tcp port {sign} {port}"));
    let others = prop::sample::select(
        [
            "tcp",
            "udp",
            "icmp",
            "icmp6",
            "all",
            "none",
            "icmp type echo",
            "icmp6 type 0-128",
            "icmp type != 3",
            "tcp opt syn",
            "tcp opt != ack",
            "tcp established",
            "tcp[13] & 0x12 = 2",
            "icmp[0] > 7",
            "ip frag",
            "ip unfrag",
            "ip laterfrag",
            "ip len 40-60",
            "ip len > 60",
            "ip dscp ef",
            "ip dscp < 46",
            "ip ect",
            "ip ce",
            "ip tos & 2",
            "ip ttl < 9",
            "ip[6:2] & 0x1fff != 0",
            "ip6[6] = 17",
            "udp[2:2] = 53",
            "ip vers 4",
            "ip hl 5",
            "ip proto 0-16",
            "port 53",
        ]
        .into_iter()
        .filter(|text| Filter::parse(text).is_ok())
        .map(str::to_owned)
        .collect::<Vec<_>>(),
    );
    let leaf = prop_oneof![3 => v4, 2 => v6, 2 => range, 2 => related, 4 => others];
    leaf.prop_recursive(3, 10, 3, |inner| {
        let parts = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            3 => parts.clone().prop_map(|parts| format!("({})", parts.join(" and "))),
            1 => parts.prop_map(|parts| format!("({})", parts.join(" or "))),
            1 => inner.prop_map(|part| format!("not {part}")),
        ]
    })
}

fn rule() -> impl Strategy<Value = String> {
    let verdict = prop::sample::select(vec!["permit", "deny", "deny", "count", "log seen"]);
    (verdict, condition()).prop_map(|(verdict, condition)| format!("{verdict} {condition}"))
}

/// Packets at the edges that rules have: whole ones, fragments, cut ones.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let port = || prop::sample::select(PORTS.to_vec());
    let addr = || (0..8_usize, -1..=1_i8);
    let protocol = prop::sample::select(vec![1_u8, 6, 17, 44, 58, 132]);
    let bits = (any::<u8>(), 0..4_u8, any::<u8>(), prop::sample::select(vec![0_u16, 0x2000, 1]));
    let cut = prop::option::weighted(0.1, 0..70_usize);
    (any::<bool>(), addr(), addr(), protocol, port(), port(), bits, cut).prop_map(
        |(six, src, dst, protocol, from, to, (flags, tos, kind, fragment), cut)| {
            let mut payload = vec![0; 20];
            payload[..2].copy_from_slice(&from.to_be_bytes());
            payload[2..4].copy_from_slice(&to.to_be_bytes());
            payload[13] = flags;
            if protocol == 1 || protocol == 58 {
                payload[0] = [0, 3, 8, 127, 128, 129][usize::from(kind) % 6];
            }
            if protocol == 44 {
                payload.splice(0..0, [17, 0, 0, u8::from(fragment != 0) * 9, 0, 0, 0, 1]);
            }
            let mut frame = if six {
                frame_v6(&near6(src), &near6(dst), 8 + kind % 2, protocol, &payload)
            } else {
                frame_v4(&near4(src), &near4(dst), 8 + kind % 2, protocol, &payload)
            };
            let ip = ETHER_BYTES;
            if six {
                frame[ip + 1] |= tos << 4;
                frame[ip] |= if kind > 127 { 11 } else { 0 };
            } else {
                frame[ip + 1] = tos | if kind > 127 { 0xb8 } else { 0 };
                frame[ip + 6..ip + 8].copy_from_slice(&fragment.to_be_bytes());
            }
            let mut packet = frame[ip..].to_vec();
            packet.truncate(cut.unwrap_or(usize::MAX));
            packet
        },
    )
}

fn near4((at, by): (usize, i8)) -> String {
    let addr: std::net::Ipv4Addr = V4[at % V4.len()].parse().unwrap();
    std::net::Ipv4Addr::from(addr.to_bits().wrapping_add_signed(by.into())).to_string()
}

fn near6((at, by): (usize, i8)) -> String {
    let addr: std::net::Ipv6Addr = V6[at % V6.len()].parse().unwrap();
    std::net::Ipv6Addr::from(addr.to_bits().wrapping_add_signed(by.into())).to_string()
}

proptest! {
    #[test]
    fn the_first_rule_decides(
        rules in prop::collection::vec(rule(), 0..60),
        packets in prop::collection::vec(packet(), 1..40),
    ) {
        check(&rules, &packets);
    }
}

/// Rules as they are in access lists and firewalls, after the distributions that ClassBench (Taylor and Turner, INFOCOM
/// 2005) names: nested prefixes, few services, mostly TCP; in firewalls half of the addresses are wildcards.
pub(super) fn rule_set(firewall: bool, rules: usize, seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let mask = |len: u8| u32::MAX << (32 - u32::from(len));
    let pool = |size: usize, rng: &mut Rng| {
        let mut made: Vec<(u32, u8)> = Vec::new();
        for n in 0..size {
            let len = [32, 32, 32, 30, 28, 27, 26, 24, 24, 24, 23, 20, 16][rng.below(13)];
            let any: u32 = rng.addr();
            let base = if n > 8 && rng.chance(66) {
                let (inside, len) = made[rng.below(n)];
                let keep = mask(len.min(24));
                inside & keep | any & !keep
            } else {
                [10, 172, 192, 131, 156][rng.below(5)] << 24 | any >> 8
            };
            made.push((base & mask(len), len));
        }
        made
    };
    let sources = pool((rules / 4).max(4), &mut rng);
    let destinations = pool((rules / 3).max(4), &mut rng);
    let services = [80, 443, 22, 25, 53, 110, 143, 1521, 3306, 8080, 161, 162, 123, 389];
    let wild = if firewall { [45, 35] } else { [10, 2] };
    let mut texts = Vec::new();
    while texts.len() + 1 < rules {
        let mut parts = Vec::new();
        for (end, pool, wild) in [("src", &sources, wild[0]), ("dst", &destinations, wild[1])] {
            if !rng.chance(wild) {
                let (addr, len) = pool[rng.below(pool.len())];
                parts.push(format!("{end} net {}/{len}", std::net::Ipv4Addr::from(addr)));
            }
        }
        // Rules for all addresses come late, and are few.
        if parts.is_empty() && rng.chance(75) {
            continue;
        }
        let protocol = rng.below(10);
        let names = ["tcp", "tcp", "tcp", "tcp", "tcp", "tcp", "udp", "udp", "icmp", "all"];
        parts.push(names[protocol].to_owned());
        if protocol < 8 {
            match rng.below(10) {
                0..=4 => parts.push(format!("dst port {}", services[rng.below(14)])),
                5 => parts.push("dst port 1024-65535".into()),
                6 => {
                    let low = rng.below(60_000);
                    parts.push(format!("dst port {low}-{}", low + rng.below(200)));
                }
                7 => parts.push(format!("dst port {}", rng.below(65_536))),
                _ => {}
            }
            if firewall && rng.chance(16) {
                parts.push("src port 1024-65535".into());
            }
        }
        if protocol < 6 && rng.chance(3) {
            parts.push("tcp opt syn and not tcp opt ack".into());
        }
        let verdict = if rng.chance(33) { "deny" } else { "permit" };
        texts.push(format!("{verdict} {}", parts.join(" and ")));
    }
    texts.push("deny all".into());
    texts
}

#[test]
fn rules_are_read_or_refused_with_the_place() {
    let rule = Rule::parse("  deny   tcp dst  port 22 ").unwrap();
    assert_eq!((&*rule.text, rule.verdict), ("deny tcp dst port 22", Verdict::Deny));
    assert_eq!(Rule::parse("log scans tcp opt syn").unwrap().verdict, Verdict::Log("scans".into()));
    for (text, at, words) in [
        ("", 0, "expected `permit`, `deny`, `count` or `log`"),
        (" allow all", 1, "expected `permit`, `deny`, `count` or `log`"),
        ("log", 3, "expected a name: letters, digits, `_`, `-` and `.`"),
        ("log a/b all", 4, "expected a name: letters, digits, `_`, `-` and `.`"),
        ("permit", 6, "expected a primitive"),
        ("deny  tcp dst port x", 19, "expected a number"),
    ] {
        let error = Rule::parse(text).unwrap_err();
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.message.starts_with(words), "{text}: {error}");
    }
}

#[test]
fn fragments_have_no_ports() {
    let mut packet =
        frame_v4("10.0.0.1", "10.0.0.2", 64, 17, &[0, 53, 0, 53])[ETHER_BYTES..].to_vec();
    let rules = ["permit udp dst port 53", "deny ip laterfrag", "permit all"];
    let rules = Rules::new(rules.iter().map(|text| Rule::parse(text).unwrap()).collect());
    assert_eq!(rules.all_of(&packet), [0]);
    // A first fragment has them, later ones have not, whatever their bytes are.
    packet[6] = 0x20;
    assert_eq!(rules.all_of(&packet), [0]);
    packet[7] = 1;
    assert_eq!(rules.all_of(&packet), [1]);
    let (family, key) = key_of(&packet).unwrap();
    assert_eq!((family, key[word::DST_PORT]), (Family::V4, word::NO_PORT));
}

#[test]
fn large_rule_sets_have_the_answers_of_a_search() {
    for firewall in [false, true] {
        let texts = rule_set(firewall, 1_500, 5);
        let mut rng = Rng::new(9);
        let rules: Vec<Rule> = texts.iter().map(|text| Rule::parse(text).unwrap()).collect();
        let filters: Vec<Filter> = rules.iter().map(|rule| rule.condition.filter()).collect();
        let compiled = Rules::new(rules.clone());
        let boxes = rules.iter().flat_map(|rule| rule.condition.boxes(Family::V4).boxes);
        let boxes: Vec<_> = boxes.collect();
        // At the corners of boxes, and just outside.
        for _ in 0..3_000 {
            let one = &boxes[rng.below(boxes.len())];
            let mut corner = |w: usize| {
                let end = if rng.below(2) == 0 { one.low[w] } else { one.high[w] };
                end.wrapping_add([0, 0, 0, 1, u32::MAX][rng.below(5)])
            };
            let addr = |bits: u32| std::net::Ipv4Addr::from(bits).to_string();
            let (src, dst) = (addr(corner(word::SRC)), addr(corner(word::DST)));
            let mut payload = [0; 20];
            payload[..2].copy_from_slice(&corner(word::SRC_PORT).to_be_bytes()[2..]);
            payload[2..4].copy_from_slice(&corner(word::DST_PORT).to_be_bytes()[2..]);
            let [.., protocol] = corner(word::PROTOCOL).to_be_bytes();
            payload[13] = [2, 16, 18][rng.below(3)];
            let frame = frame_v4(&src, &dst, 64, protocol, &payload);
            let packet = &frame[ETHER_BYTES..];
            assert_eq!(
                compiled.all_of(packet),
                expected(&rules, &filters, packet),
                "{packet:02x?}"
            );
        }
    }
}

/// Boxes of a rule set, for IPv4.
fn boxes_of(texts: &[String]) -> Vec<RuleBox> {
    let rules = texts.iter().map(|text| Rule::parse(text).unwrap());
    let boxes = (0..).zip(rules).flat_map(|(rule, read)| {
        let made = read.condition.boxes(Family::V4);
        let exact = made.exact;
        made.boxes.into_iter().map(move |keys| RuleBox { rule, keys, exact })
    });
    boxes.collect()
}

/// A key of a box.
fn inside(keys: &KeyBox, rng: &mut Rng) -> Key {
    let widest = [u32::MAX, u32::MAX, 0xffff, 0xffff, 0xff, 0xff, 0xff, 1500];
    let mut key = [0; WORDS];
    for (w, most) in widest.into_iter().enumerate() {
        let (low, high) = (keys.low[w], keys.high[w].min(most.max(keys.low[w])));
        let any = low + u32::try_from(rng.below((high - low) as usize + 1)).unwrap();
        key[w] = any & !keys.mask[w] | keys.bits[w];
    }
    key
}

/// Prints what a lookup costs at 10, 1,000 and 10,000 rules: `cargo test --release -p fingerpost-packet --lib
/// cost_of_a_lookup -- --nocapture`.
#[test]
fn the_cost_of_a_lookup_does_not_grow_with_the_rules() {
    for (style, firewall) in [("access lists", false), ("firewalls", true)] {
        let mut reads = Vec::new();
        for count in [10, 1_000, 10_000] {
            let boxes = boxes_of(&rule_set(firewall, count, 7));
            let start = Instant::now();
            let classifier = Classifier::for_first(boxes.clone());
            let built = start.elapsed();
            let mut rng = Rng::new(3);
            let keys: Vec<Key> =
                (0..8192).map(|_| inside(&boxes[rng.below(boxes.len())].keys, &mut rng)).collect();
            let mut best = vec![NONE; keys.len()];
            let pass = |best: &mut [u32]| {
                let start = Instant::now();
                for (keys, best) in keys.chunks(256).zip(best.chunks_mut(256)) {
                    classifier.find(keys, best, |_, _| true);
                }
                start.elapsed()
            };
            let least = (0..11).map(|_| pass(&mut best)).min().unwrap();
            for (key, best) in keys.iter().zip(&best).step_by(64) {
                let want = boxes.iter().find(|one| one.keys.contains(key)).map(|one| one.rule);
                assert_eq!(Some(*best).filter(|&best| best != NONE), want);
            }
            let cost = classifier.cost(&keys);
            println!(
                "{style}: {count} rules, {:.1} ns a packet, {:.1} reads (most {}), built in {built:?}",
                least.as_secs_f64() * 1e9 / keys.len() as f64,
                cost.average,
                cost.worst
            );
            reads.push(cost.average);
        }
        let ratio = reads[2] / reads[1];
        println!("{style}: 10,000 rules take {ratio:.2} times the reads of 1,000");
        assert!(ratio < 2.0 && reads[2] < 30.0, "{reads:?}");
    }
}

/// State of these ACLs (name, direction, interface, rules), or what is wrong with them.
fn made(
    acls: &[(&str, &str, &str, &[&str])],
    before: Option<&dyn State>,
) -> Result<Arc<dyn State>, String> {
    let interfaces = ["lan", "wan"].map(|name| GivenInterface {
        name: name.to_owned(),
        place: String::new(),
        value: None,
    });
    let text = |text: &str| Value::Text(text.to_owned());
    let item = |number: usize,
                (name, direction, interface, rules): &(&str, &str, &str, &[&str])| {
        let table = vec![
            ("name".to_owned(), text(name)),
            ("direction".to_owned(), text(direction)),
            ("interfaces".to_owned(), Value::List(vec![text(interface)])),
            ("rules".to_owned(), Value::List(rules.iter().map(|rule| text(rule)).collect())),
        ];
        (format!("acl.{number}"), Value::Table(table))
    };
    let items = acls.iter().enumerate().map(|(number, acl)| item(number, acl)).collect();
    let mut mistakes = Vec::new();
    let settings = (FEATURE.read)(&Given { interfaces: interfaces.into(), items }, &mut mistakes);
    match mistakes.first() {
        Some(mistake) => Err(format!("{}: {}", mistake.at, mistake.what)),
        None => Ok(settings.make(before).unwrap().unwrap()),
    }
}

/// Text, packets and bytes of all rows.
fn rows(state: &dyn State) -> Vec<(String, u64, u64)> {
    let row = |row: &Vec<Cell>| match &row[4..] {
        [Cell::Text(text), Cell::Number(packets), Cell::Number(bytes)] => {
            (text.clone(), *packets, *bytes)
        }
        other => panic!("{other:?}"),
    };
    state.rows().iter().map(row).collect()
}

/// The built-in router, whose ports are `lan` and `wan`, with routes by both.
struct Router {
    bench: Bench,
    plan: crate::Plan,
    graph: Graph,
}

impl Router {
    fn new(state: &Arc<dyn State>) -> Self {
        let mut world = World::new();
        world.neighbor(3, 0);
        world.neighbor(4, 1);
        world.action("10.0.0.0/8", ForwardingAction::Adjacency(3));
        world.action("192.0.2.0/24", ForwardingAction::Adjacency(4));
        world.action("2001:db8:5::/48", ForwardingAction::Adjacency(4));
        let bench = Bench::new(&world);
        state.follow(&[(0, "lan"), (1, "wan")]);
        let states = FeatureStates::default().with("acl", state.clone());
        let plan = plan_with(None, &states).unwrap();
        Self { graph: Graph::new(&plan, &bench.pool), bench, plan }
    }

    fn replace(&mut self, state: &Arc<dyn State>) {
        state.follow(&[(0, "lan"), (1, "wan")]);
        let states = FeatureStates::default().with("acl", state.clone());
        let plan = plan_with(Some(&self.plan), &states).unwrap();
        let mut graph = Graph::after(&self.plan, &plan, &self.bench.pool);
        graph.take_over(&mut self.graph);
        (self.plan, self.graph) = (plan, graph);
    }

    /// Frames that are sent of these, which arrive on `lan`.
    fn send(&mut self, frames: &[Vec<u8>]) -> usize {
        let frames = batch(&self.bench.pool, 0, frames.iter().map(|frame| &frame[..]));
        self.graph.receive(0, frames, &mut self.bench.round());
        std::mem::take(&mut self.bench.sent.frames).len()
    }

    fn denied(&self) -> u64 {
        self.bench.counters.dropped[DropReason::Acl as usize].read()
    }
}

fn udp(port: u16, ttl: u8) -> Vec<u8> {
    let mut payload = [0; 30];
    payload[2..4].copy_from_slice(&port.to_be_bytes());
    frame_v4("10.0.0.9", "192.0.2.1", ttl, 17, &payload)
}

fn udp6(port: u16) -> Vec<u8> {
    let mut payload = [0; 30];
    payload[2..4].copy_from_slice(&port.to_be_bytes());
    frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &payload)
}

const RULES: [&str; 4] =
    ["count udp", "log scans dst port 22", "deny dst port 22", "permit port 53 or ip vers 6"];

#[test]
fn packets_pass_and_are_counted_by_rules() {
    let state = made(&[("edge", "in", "lan", &RULES)], None).unwrap();
    let mut router = Router::new(&state);
    let frames = [udp(22, 64), udp(53, 64), udp(80, 64), udp6(22), udp6(80), udp(22, 1)];
    assert_eq!(router.send(&frames), 2, "of one whose TTL is used up no sender learns");
    assert_eq!(router.denied(), 4);
    let want = [
        ("count udp", 6, 4 * 64 + 2 * 84),
        ("log scans dst port 22", 3, 2 * 64 + 84),
        ("deny dst port 22", 3, 2 * 64 + 84),
        ("permit port 53 or ip vers 6", 2, 64 + 84),
        ("no rule: deny", 1, 64),
        ("counter scans", 3, 2 * 64 + 84),
    ];
    assert_eq!(rows(&*state), want.map(|(text, n, bytes)| (text.to_owned(), n, bytes)));
    assert_eq!(router.bench.pool.free(), router.bench.pool.frames());
    let notes = state.notes(FeatureArc::Ingress, &udp(22, 64), 0);
    assert_eq!(notes.last().unwrap(), "ACL edge, rule 3: deny dst port 22");
    assert_eq!(state.notes(FeatureArc::Ingress, &udp(99, 64), 0).len(), 2);
    for (arc, port) in [(FeatureArc::Ingress, 1), (FeatureArc::Egress, 0)] {
        assert!(state.notes(arc, &udp(22, 64), port).is_empty());
    }
}

#[test]
fn packets_that_leave_are_decided_by_their_interface() {
    let state = made(&[("out", "out", "wan", &["deny dst port 22", "permit all"])], None).unwrap();
    let mut router = Router::new(&state);
    assert_eq!(router.send(&[udp(22, 64), udp(53, 64), udp6(22), udp6(53)]), 2);
    let other = made(&[("out", "out", "lan", &["deny all"])], None).unwrap();
    router.replace(&other);
    assert_eq!(router.send(&[udp(22, 64), udp6(22)]), 2);
    assert_eq!(router.denied(), 2);
}

#[test]
fn rules_that_stay_go_on_with_their_counts() {
    let state = made(&[("edge", "in", "lan", &RULES)], None).unwrap();
    let mut router = Router::new(&state);
    router.send(&[udp(22, 64), udp(53, 64), udp(80, 64)]);
    let same = made(&[("edge", "in", "lan", &RULES)], Some(&*state)).unwrap();
    router.replace(&same);
    router.send(&[udp(53, 64)]);
    assert_eq!(rows(&*same), rows(&*state), "the same list");
    let changed = ["deny dst port 80", "permit port 53 or ip vers 6", "count  udp", "count udp"];
    let next = made(&[("edge", "in", "lan", &changed)], Some(&*same)).unwrap();
    router.send(&[udp(53, 64)]);
    // As of the moment at which workers take it over.
    next.go_on_with(&*same);
    router.replace(&next);
    assert_eq!(router.send(&[udp(80, 64), udp(53, 64)]), 1);
    let counts: Vec<_> = rows(&*next).into_iter().map(|(_, packets, _)| packets).collect();
    assert_eq!(counts, [1, 4, 5, 0, 1]);
}

#[test]
fn mistakes_name_their_places() {
    let wrong = |acls: &[(&str, &str, &str, &[&str])]| made(acls, None).map(|_| ()).unwrap_err();
    for (acl, want) in [
        (("a b", "in", "lan", &["permit all"][..]), "acl.0.name: ACL \"a b\": a name has"),
        (("a", "up", "lan", &[]), "acl.0.direction: unknown variant `up`"),
        (("a", "in", "lam", &[]), "acl.0.interfaces.0: "),
        (
            ("a", "in", "lan", &["permit all", "deny tpc"]),
            "acl.0.rules.1: ACL \"a\": `deny tpc`: expected",
        ),
    ] {
        let found = wrong(&[acl]);
        assert!(found.starts_with(want), "{found}");
    }
    let one = |name| (name, "in", "lan", &["permit all"][..]);
    assert!(wrong(&[one("a"), one("a")]).contains("named twice"));
    let found = wrong(&[one("a"), one("b")]);
    assert_eq!(found, "acl.1.name: ACL \"b\": lan has ACL \"a\" with direction \"in\"");
    assert!(made(&[one("a"), ("b", "out", "lan", &[])], None).is_ok());
}
