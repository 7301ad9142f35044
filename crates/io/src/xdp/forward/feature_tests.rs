//! The features of interfaces in the program against the graph: the same packets, the same ends, the same counts.

use std::sync::Arc;

use fingerpost_lpm::testing::Rng;
use fingerpost_route::{Forwarding, ForwardingAction, PortTable, RouteMtu, UrpfMode};

use super::tests::{Lab, conserved, own};
use super::*;
use crate::xdp::{XDP_DROP, XDP_PASS, XDP_REDIRECT, testing};
use fingerpost_packet::Graph;
use fingerpost_packet::feature::FeatureStates;
use fingerpost_packet::feature::acl::{AccessLists, IngressList};
use fingerpost_packet::feature::row::{Cell, FeatureArc, InUse, State as _};
use fingerpost_packet::feature::source_filter::{Action, Filter, Row, SourceFilters, prefix, rate};
use fingerpost_packet::frame::DropReason;
use fingerpost_packet::router_graph::plan_with;
use fingerpost_packet::testing::{Bench, World, batch, fill_ip4_checksum, frame_v4, frame_v6};

/// Sources that all kinds of routes and lists have, and some that none has.
const SOURCES: &[&str] = &[
    "10.1.0.2",
    "10.9.0.2",
    "10.10.0.7",
    "172.23.0.9",
    "172.24.0.5",
    "172.25.0.9",
    "198.18.1.1",
    "198.51.100.9",
    "8.8.8.8",
    "9.1.1.1",
    "9.1.1.2",
    "9.1.2.1",
    "2001:db8:1::2",
    "2001:db8:9::2",
    "2001:db8:a::5",
    "2001:db8:c00::7",
    "2001:db8:180::9",
    "2001:db9::1",
    "2001:db9:0:1::1",
    "2a00::1",
];

fn filter(name: &str, action: Action, prefixes: &[&str], interfaces: Option<&[&str]>) -> Filter {
    Filter {
        name: name.to_owned(),
        action,
        file: None,
        prefixes: prefixes.iter().map(|text| prefix(text).unwrap()).collect(),
        interfaces: interfaces.map(|names| names.iter().map(ToString::to_string).collect()),
        local: false,
    }
}

fn filters() -> Vec<Filter> {
    vec![
        filter("bad", Action::Drop, &["9.1.0.0/16", "2001:db9::/48"], Some(&["wan", "strict"])),
        filter("good", Action::Pass, &["9.1.1.2", "172.24.0.0/16"], None),
        filter("seen", Action::Count, &["9.1.1.0/24", "10.0.0.0/8", "::/0"], Some(&["wan", "lan"])),
        filter("some", Action::Limit(rate("1").unwrap()), &["8.0.0.0/8"], Some(&["lan"])),
    ]
}

fn made(lab: &Lab, filters: Vec<Filter>) -> Arc<SourceFilters> {
    let made = SourceFilters::new(filters, None).unwrap();
    follow(lab, &made);
    Arc::new(made)
}

fn follow(lab: &Lab, filters: &SourceFilters) {
    let names = lab.topology.topology.ports.iter().map(|port| &*port.name);
    filters.follow((0..).zip(names));
}

/// Features besides uRPF.
#[derive(Default)]
struct Features {
    filters: Option<Arc<SourceFilters>>,
    acls: Option<Arc<AccessLists>>,
}

/// The built-in router over the same tables.
struct Router {
    bench: Bench,
    graph: Graph,
}

impl Router {
    fn new(forwarding: &Forwarding, features: &Features) -> Self {
        let mut bench = Bench::new(&World::new());
        bench.forwarding = forwarding.clone();
        let mut states =
            FeatureStates::default().with("urpf", Arc::new(InUse(FeatureArc::Ingress)));
        if let Some(filters) = &features.filters {
            states = states.with("source-filter", filters.clone());
        }
        if let Some(acls) = &features.acls {
            states = states.with("acl", acls.clone());
        }
        let plan = plan_with(None, &states).unwrap();
        Self { graph: Graph::new(&plan, &bench.pool), bench }
    }

    /// What it sends for a frame, by port, and the reasons by which packets were dropped.
    fn run(&mut self, port: u16, frame: &[u8]) -> (Vec<(u16, Vec<u8>)>, Vec<DropReason>) {
        let count = |router: &Self| {
            let dropped = router.bench.counters.dropped.iter();
            dropped.map(|count| count.read()).collect::<Vec<_>>()
        };
        let before = count(self);
        let frames = batch(&self.bench.pool, port, std::iter::once(frame));
        self.graph.receive(port, frames, &mut self.bench.round());
        let sent = std::mem::take(&mut self.bench.sent.frames);
        let sent = sent.into_iter().map(|(port, frame, _)| (port, frame)).collect();
        let after = count(self);
        let reasons = DropReason::ALL.iter().copied();
        let dropped = reasons.filter(|&reason| after[reason as usize] > before[reason as usize]);
        (sent, dropped.collect())
    }
}

/// UDP from all kinds of sources.
pub(super) fn udp(rng: &mut Rng) -> Vec<u8> {
    let src = SOURCES[rng.below(SOURCES.len())];
    if src.contains(':') {
        return frame_v6(src, "2001:db8:180::9", 64, 17, &[0; 40]);
    }
    frame_v4(src, ["198.51.100.7", "172.25.0.9"][rng.below(2)], 64, 17, &[0; 40])
}

/// Sends packets through programs and graph, which have features of their own; what the programs leave goes through the
/// graph with theirs. How many were sent, dropped, and left.
fn compare(
    lab: &Lab,
    features: &Features,
    other: &Features,
    mut frame: impl FnMut(&mut Rng) -> Vec<u8>,
) -> [usize; 3] {
    let Lab { forwarder, topology, .. } = lab;
    let (mut graph, mut fallback) =
        (Router::new(&topology.forwarding, other), Router::new(&topology.forwarding, features));
    let mut rng = Rng::new(11);
    let mut programs = std::collections::BTreeMap::new();
    let (mut sent, mut dropped, mut left) = (0, 0, 0);
    for _ in 0..3000 {
        let name = ["lan", "wan", "strict", "loose"][rng.below(4)];
        let (port, mut frame) = (topology.port(name), frame(&mut rng));
        frame[..6].copy_from_slice(&topology.mac(name).0);
        let (device, wire) = lab.on_wire(port, &frame, 0);
        let before = forwarder.left_alone().unwrap();
        let program = programs.entry(device).or_insert_with(|| forwarder.tester(device).unwrap());
        let answer = program.test(&wire).unwrap();
        let after = forwarder.left_alone().unwrap();
        let why = after.iter().zip(&before).find(|(a, b)| a.1 > b.1).map(|(a, _)| a.0);
        let want = graph.run(port, &frame);
        let what = format!("{frame:02x?} by {name}: {why:?}, by the graph {:?}", want.1);
        match answer.action.cast_signed() {
            XDP_REDIRECT => {
                sent += 1;
                // Beside it the graph may send a redirect, where programs send those that turn back.
                let mut wire = want.0.iter().map(|(by, out)| lab.on_wire(*by, out, 0).1);
                assert!(wire.any(|out| out == answer.frame), "{what}");
            }
            XDP_DROP => {
                dropped += 1;
                let reason = why.and_then(LeftAlone::drop_reason);
                assert_eq!(want, (Vec::new(), Vec::from_iter(reason)), "{what}");
            }
            XDP_PASS => {
                left += 1;
                fallback.run(port, &frame);
            }
            other => panic!("{what}: action {other}"),
        }
    }
    println!("{sent} sent, {dropped} dropped, {left} left");
    assert!(sent > 500 && dropped > 300, "{sent} {dropped} {left}");
    conserved(forwarder);
    [sent, dropped, left]
}

/// What both counted, but for what a rate let pass or not.
fn counted(filters: &SourceFilters) -> Vec<(String, u64, u64, u64)> {
    let of = |row: Row| (row.name, row.packets, row.bytes, row.dropped);
    filters.rows().into_iter().map(of).filter(|row| row.0 != "some").collect()
}

/// Program and graph decide alike by routes and by lists, and count on the same lists.
pub(super) fn every_feature(lab: &Lab) -> [Vec<(String, u64, u64, u64)>; 2] {
    let (here, there) = (made(lab, filters()), made(lab, filters()));
    compare(lab, &Features::default(), &Features::default(), udp);
    lab.forwarder.set_source_filters(Some(here.clone())).unwrap();
    let with = |filters: &Arc<SourceFilters>| Features {
        filters: Some(filters.clone()),
        ..Features::default()
    };
    compare(lab, &with(&here), &with(&there), udp);
    let limited = |filters: &SourceFilters| filters.rows().pop().unwrap().packets;
    assert_eq!(limited(&here), limited(&there), "by the graph alone");
    [counted(&here), counted(&there)]
}

#[test]
fn features_do_what_the_graph_does() {
    testing::in_namespace(|| {
        let [here, there] = every_feature(&Lab::new());
        assert_eq!(here, there);
    });
}

/// A source behind another VRF has a route, which is by no interface of this one. Packets that are led there are the graph's.
#[test]
fn routes_into_a_vrf_count_for_urpf_and_lead_to_the_graph() {
    testing::in_namespace(|| {
        let lab = Lab::new();
        let Forwarding { v4, v6, hops, .. } = &lab.topology.forwarding;
        let [behind4, behind6] = ["172.24.0.5", "2001:db8:c00::7"];
        let addr4: std::net::Ipv4Addr = behind4.parse().unwrap();
        let addr6: std::net::Ipv6Addr = behind6.parse().unwrap();
        for id in [v4.lookup(addr4.to_bits()), v6.lookup(addr6.to_bits())] {
            hops.set_hop(id, ForwardingAction::Vrf(lab.topology.port("wan"), RouteMtu::NONE));
        }
        compare(&lab, &Features::default(), &Features::default(), udp);
        for (name, action) in [("strict", XDP_DROP), ("loose", XDP_REDIRECT)] {
            let program = lab.forwarder.tester(lab.topology.port(name)).unwrap();
            for mut frame in [
                frame_v4(behind4, "198.51.100.7", 64, 17, &[0; 40]),
                frame_v6(behind6, "2001:db8:180::9", 64, 17, &[0; 40]),
            ] {
                frame[..6].copy_from_slice(&lab.topology.mac(name).0);
                assert_eq!(program.test(&frame).unwrap().action.cast_signed(), action, "{name}");
            }
        }
        for mut frame in [
            frame_v4("10.1.0.2", behind4, 64, 17, &[0; 40]),
            frame_v6("2001:db8:1::2", behind6, 64, 17, &[0; 40]),
        ] {
            frame[..6].copy_from_slice(&lab.topology.mac("lan").0);
            assert_eq!(lab.left(&frame), LeftAlone::Verdict);
        }
    });
}

/// Bytes differ by those of the tags.
#[test]
fn features_do_what_the_graph_does_with_tags() {
    testing::in_namespace(|| {
        let counts = every_feature(&Lab::tagged()).map(|counts| {
            counts
                .into_iter()
                .map(|(name, packets, _, dropped)| (name, packets, dropped))
                .collect::<Vec<_>>()
        });
        assert_eq!(counts[0], counts[1]);
    });
}

/// Rules of every kind, some of which only the graph can evaluate.
const RULES: &[&str] = &[
    "count udp",
    "count src 9.1.0.0/16 or dst 172.25.0.0/16 or src port 53",
    "log scans tcp opt syn and not tcp opt ack",
    "deny icmp type echo or icmp6 type 128-129",
    "deny src net 9.1.1.0/24 and tcp dst port 22",
    "permit src net 9.1.0.0/16 and udp dst port 1024-2048",
    "deny ip laterfrag and dst 172.25.0.0/16",
    "count ip frag",
    "deny ip dscp ef and ip len > 80",
    "deny tcp established and src port 443",
    "deny udp and not (dst port 53 or dst port 123) and src 2001:db9::/48",
    "deny dst 2001:db8:180::9 and ip dscp cs1",
    "permit ip proto 47",
    "deny dst port 179 or src port 179",
    "permit tcp or udp or icmp or icmp6",
    "deny ip proto 33-132 and ip ect",
];

/// What the graph alone evaluates, and takes few packets.
const IN_GRAPH: &[&str] = &["deny ip ttl < 9 and src 10.0.0.0/8", "count tcp[12] & 0xf0 = 0x50"];

/// Packets at the edges of these rules: all kinds of protocols, fragments, packets that end early.
fn any_packet(rng: &mut Rng) -> Vec<u8> {
    const PORTS: [u16; 9] = [22, 53, 123, 179, 443, 1023, 1024, 2048, 2049];
    let src = SOURCES[rng.below(SOURCES.len())];
    let protocol = [6, 6, 17, 17, 1, 58, 47, 33, 132, 0, 44, 60][rng.below(12)];
    let len = [0, 1, 3, 4, 13, 14, 20, 40, 40, 40, 200][rng.below(11)];
    let mut payload = vec![0; len.max(40)];
    for at in [0, 2] {
        payload[at..at + 2].copy_from_slice(&PORTS[rng.below(PORTS.len())].to_be_bytes());
    }
    match protocol {
        1 | 58 => payload[0] = [0, 3, 8, 128, 129, 130][rng.below(6)],
        // A header that leads to UDP.
        0 | 44 | 60 => payload[..4].copy_from_slice(&[17, 0, 0, [0, 8][rng.below(2)]]),
        _ => {}
    }
    (payload[12], payload[13]) = (0x50, [2, 16, 18, 4, 0][rng.below(5)]);
    payload.truncate(len);
    let tos = [0, 0xb8, 0x20, 1, 2][rng.below(5)];
    let ttl = if rng.chance(10) { 8 } else { 64 };
    if src.contains(':') {
        let mut frame = frame_v6(src, "2001:db8:180::9", ttl, protocol, &payload);
        frame[14] |= tos >> 4;
        frame[15] |= tos << 4;
        return frame;
    }
    let dst = ["198.51.100.7", "172.25.0.9"][rng.below(2)];
    let mut frame = frame_v4(src, dst, ttl, protocol, &payload);
    frame[15] = tos;
    let fragment = [0, 0, 0, 0x2000, 0x2001, 1, 0x4000_u16][rng.below(7)];
    frame[20..22].copy_from_slice(&fragment.to_be_bytes());
    fill_ip4_checksum(&mut frame);
    frame
}

/// Lists for ports of the lab.
fn acls<R: AsRef<str>>(lab: &Lab, lists: &[IngressList<'_, R>]) -> Arc<AccessLists> {
    exchanged(lab, lists, None)
}

/// Such lists in the place of others.
fn exchanged<R: AsRef<str>>(
    lab: &Lab,
    lists: &[IngressList<'_, R>],
    before: Option<&AccessLists>,
) -> Arc<AccessLists> {
    let made = AccessLists::for_ingress(lists, before).unwrap();
    before.iter().for_each(|before| made.go_on_with(*before));
    let names = lab.topology.topology.ports.iter().map(|port| &*port.name);
    made.follow(&(0..).zip(names).collect::<Vec<_>>());
    Arc::new(made)
}

/// List, text and packets of all rules, and bytes where no tag adds to them.
fn hits(lab: &Lab, acls: &AccessLists) -> Vec<(String, u64, u64)> {
    let row = |row: Vec<Cell>| match &row[..] {
        [name, .., Cell::Text(text), Cell::Number(packets), Cell::Number(bytes)] => {
            let bytes = if lab.vlans.is_empty() { *bytes } else { 0 };
            (format!("{name:?} {text}"), *packets, bytes)
        }
        other => panic!("{other:?}"),
    };
    acls.rows().into_iter().map(row).collect()
}

/// Program and graph take the same rules for each packet, with source filters and uRPF beside them.
pub(super) fn every_rule(lab: &Lab) {
    let (wan, others) = (Some(&["wan"][..]), Some(&["strict", "lan"][..]));
    let with = |rules: &[&str]| {
        let lists = [("edge", wan, rules), ("inner", others, &rules[2..])];
        let features =
            || Features { acls: Some(acls(lab, &lists)), filters: Some(made(lab, filters())) };
        let (here, there) = (features(), features());
        lab.forwarder.set_source_filters(here.filters.clone()).unwrap();
        lab.forwarder.set_access_lists(here.acls.clone()).unwrap();
        let [.., left] = compare(lab, &here, &there, any_packet);
        let both = [here, there].map(|features| hits(lab, &features.acls.unwrap()));
        assert_eq!(both[0], both[1]);
        let taken = |rule: &&&str| both[0].iter().any(|hit| hit.0.ends_with(**rule) && hit.1 > 0);
        assert_eq!(rules.iter().filter(taken).count(), rules.len(), "{:?}", both[0]);
        left
    };
    let exact = with(RULES);
    let rules = [&RULES[..2], IN_GRAPH, &RULES[2..]].concat();
    let inexact = with(&rules);
    assert!(exact < inexact && inexact < 2000, "left to the graph: {exact}, {inexact}");
    lab.forwarder.set_source_filters(None).unwrap();
    lab.forwarder.set_access_lists(None).unwrap();
}

#[test]
fn rules_decide_as_in_the_graph() {
    testing::in_namespace(|| every_rule(&Lab::new()));
}

#[test]
fn rules_decide_as_in_the_graph_with_tags() {
    testing::in_namespace(|| every_rule(&Lab::tagged()));
}

/// Packets to the router itself are decided by the same rules where these are local, behind IPv4 options and IPv6
/// extension headers too, and pass to the kernel where they are not.
fn local_rules(lab: &Lab) {
    use fingerpost_packet::filter::Filter;
    let Lab { forwarder, topology, .. } = lab;
    let (port, mac) = (topology.port("wan"), topology.mac("wan").0);
    let addrs: Vec<_> = own(&topology.forwarding.ports).collect();
    let rules: Vec<(bool, Filter)> = RULES
        .iter()
        .filter(|rule| !rule.starts_with("count") && !rule.starts_with("log"))
        .map(|rule| rule.split_once(' ').unwrap())
        .map(|(verdict, words)| (verdict == "permit", Filter::parse(words).unwrap()))
        .collect();
    for local in [true, false] {
        let made = AccessLists::for_ingress(&[("edge", Some(&["wan"][..]), RULES)], None).unwrap();
        let made = if local { made.also_local() } else { made };
        let names = topology.topology.ports.iter().map(|port| &*port.name);
        made.follow(&(0..).zip(names).collect::<Vec<_>>());
        let made = Arc::new(made);
        forwarder.set_access_lists(Some(made.clone())).unwrap();
        assert_eq!(forwarder.guards(port), Some(Ok(())));
        let before: u64 = hits(lab, &made).iter().map(|hit| hit.1).sum();
        let mut rng = Rng::new(17);
        let (mut passed, mut dropped) = (0, 0);
        let (device, _) = lab.on_wire(port, &udp(&mut rng), 0);
        let program = forwarder.tester(device).unwrap();
        for _ in 0..3000 {
            let mut frame = any_packet(&mut rng);
            frame[..6].copy_from_slice(&mac);
            let is_v4 = frame[14] >> 4 == 4;
            let to = addrs.iter().find(|addr| addr.is_ipv4() == is_v4).unwrap();
            match to {
                std::net::IpAddr::V4(to) => frame[30..34].copy_from_slice(&to.octets()),
                std::net::IpAddr::V6(to) => frame[38..54].copy_from_slice(&to.octets()),
            }
            if is_v4 && rng.chance(4) {
                // Four bytes of options.
                frame.splice(34..34, [1; 4]);
                frame[14] = 0x46;
                let total = u16::from_be_bytes([frame[16], frame[17]]) + 4;
                frame[16..18].copy_from_slice(&total.to_be_bytes());
            }
            if is_v4 {
                fill_ip4_checksum(&mut frame);
            }
            let permits = rules.iter().find(|(_, filter)| filter.matches(&frame[14..]));
            let permits = !local || permits.is_some_and(|(permits, _)| *permits);
            let (_, wire) = lab.on_wire(port, &frame, 0);
            let action = program.test(&wire).unwrap().action.cast_signed();
            assert_eq!(action, if permits { XDP_PASS } else { XDP_DROP }, "{frame:02x?}");
            *if permits { &mut passed } else { &mut dropped } += 1;
        }
        println!("{passed} passed, {dropped} dropped");
        assert!(passed > 300 && (dropped > 300) == local, "{passed} {dropped}");
        let counted: u64 = hits(lab, &made).iter().map(|hit| hit.1).sum::<u64>() - before;
        assert_eq!(counted >= passed + dropped, local, "{counted}");
        conserved(forwarder);
    }
}

#[test]
fn rules_decide_packets_to_the_router_itself() {
    testing::in_namespace(|| local_rules(&Lab::new()));
}

#[test]
fn rules_decide_packets_to_the_router_itself_with_tags() {
    testing::in_namespace(|| local_rules(&Lab::tagged()));
}

/// Rules as in access lists: nested prefixes, few services.
fn many_rules(count: usize) -> Vec<String> {
    let mut rng = Rng::new(5);
    let mut rule = |n: usize| {
        let source = SOURCES[n % 11];
        let bits = 8 + rng.below(25);
        let port = [22, 53, 179, 443, 1024 + n % 1000, n % 60_000][rng.below(6)];
        let what = [format!("tcp dst port {port}"), format!("udp src port {port}-{}", port + 9)];
        let verdict = ["deny", "permit"][rng.below(2)];
        let dst = format!("dst net 172.{}.{}.0/{}", 16 + n % 16, n % 256, 16 + n % 9);
        match n % 50 {
            0 => format!("count src net {source}/{bits} and {}", what[0]),
            1 => format!("{verdict} src net 2001:db8:{n:x}::/48 and {}", what[1]),
            _ => format!("{verdict} src net {source}/{bits} and {dst} and {}", what[n % 2]),
        }
    };
    let mut rules: Vec<String> = (1..count).map(&mut rule).collect();
    rules.push("permit all".into());
    rules
}

/// Thousands of rules are loaded, and decide as in the graph, within the reads that a program may do.
#[test]
fn thousands_of_rules_decide_as_in_the_graph() {
    testing::in_namespace(|| {
        let lab = Lab::new();
        let [.., left_without] = compare(&lab, &Features::default(), &Features::default(), udp);
        for count in [1_000, 10_000] {
            let start = std::time::Instant::now();
            let rules = many_rules(count);
            let one =
                |_| Features { acls: Some(acls(&lab, &[("edge", None, &rules)])), filters: None };
            let [here, there] = [0, 1].map(one);
            let compiled = start.elapsed() / 2;
            let start = std::time::Instant::now();
            lab.forwarder.set_access_lists(here.acls.clone()).unwrap();
            println!(
                "{count} rules: compiled in {compiled:?}, taken over in {:?}",
                start.elapsed()
            );
            let reads = lab.forwarder.reads(lab.topology.port("wan")).unwrap();
            assert_eq!(reads, Ok(Reads { v4: true, v6: true }));
            compare(&lab, &here, &there, any_packet);
            let [.., left] = compare(&lab, &here, &there, udp);
            assert_eq!(left, left_without, "within the bounds of the program");
            let [here, there] = [here, there].map(|features| hits(&lab, &features.acls.unwrap()));
            assert_eq!(here, there);
        }
    });
}

/// Lists are exchanged while packets arrive: each packet is decided by one of them whole, and is counted.
#[test]
fn rules_are_exchanged_under_traffic() {
    use crate::af_packet;
    use fingerpost_packet::{Batch, Pool, Port as _};
    testing::in_namespace(|| {
        let lab = Lab::new();
        let Lab { forwarder, topology, .. } = &lab;
        let (name, wan) = (["wan"], topology.port("wan"));
        let frame = |src: u16, dst: u16| {
            let ports = [src.to_be_bytes(), dst.to_be_bytes()].concat();
            let payload = [&ports[..], &[0; 36]].concat();
            let mut frame = frame_v4("9.9.9.9", "172.25.0.9", 64, 17, &payload);
            frame[..6].copy_from_slice(&topology.mac("wan").0);
            frame
        };
        let lists = |deny: &'static str| [deny, "count udp", "permit all"];
        let list = |deny, before: Option<&AccessLists>| {
            exchanged(&lab, &[("edge", Some(&name[..]), &lists(deny)[..])], before)
        };
        let mut acls = list("deny src port 1", None);
        forwarder.set_access_lists(Some(acls.clone())).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        let before = forwarder.received()[&wan];
        let sent = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let pool = Pool::new(64, 2048);
                let far = format!("q{wan}");
                let mut port = af_packet::open(&far, testing::ifindex(&far)).unwrap();
                let mut batch = Batch::new(&pool);
                let mut sent = 0;
                while !done.load(Relaxed) {
                    // One that each list denies, one that none does.
                    for frame in [frame(1, 2), frame(3, 4)] {
                        let mut packet = pool.alloc().unwrap();
                        packet.set_len(frame.len());
                        packet.bytes_mut().copy_from_slice(&frame);
                        batch.push(packet).unwrap();
                    }
                    sent += port.send(&mut batch).unwrap() as u64;
                    assert!(batch.is_empty());
                    std::thread::sleep(std::time::Duration::from_micros(20));
                }
                sent
            });
            for deny in ["deny dst port 2", "deny src port 1"].repeat(4) {
                acls = list(deny, Some(&acls));
                forwarder.set_access_lists(Some(acls.clone())).unwrap();
            }
            done.store(true, Relaxed);
            sender.join().unwrap()
        });
        let received = || forwarder.received()[&wan].packets - before.packets;
        for _ in 0..200 {
            if received() == sent {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let reasons = forwarder.left_alone().unwrap();
        let denied = reasons.iter().find(|(why, _)| *why == LeftAlone::Acl).unwrap().1;
        println!("{sent} packets");
        assert!(sent > 1_000);
        assert_eq!((received(), denied * 2), (sent, sent));
        assert_eq!(forwarder.received()[&wan].left, before.left);
        // With the same rules a list is the same, and goes on counting.
        let counted = |acls: &AccessLists| hits(&lab, acls);
        let last = counted(&acls);
        let again = exchanged(&lab, &[("edge", None, &lists("deny src port 1")[..])], Some(&acls));
        forwarder.set_access_lists(Some(again.clone())).unwrap();
        assert_eq!(counted(&again)[1], last[1]);
        conserved(forwarder);
    });
}

/// Lists change in place, are exchanged, go to other ports, and go away, while programs read them.
#[test]
fn lists_change_under_programs() {
    testing::in_namespace(|| {
        let lab = Lab::new();
        let Lab { forwarder, topology, .. } = &lab;
        let fate = |src: &str, name: &str| {
            let mut frame = frame_v4(src, "172.25.0.9", 64, 17, &[0; 40]);
            frame[..6].copy_from_slice(&topology.mac(name).0);
            let program = forwarder.tester(topology.port(name)).unwrap();
            program.test(&frame).unwrap().action.cast_signed()
        };
        let named = |interfaces: Option<&[&str]>| {
            vec![filter("bad", Action::Drop, &["9.1.0.0/16"], interfaces)]
        };
        let wan = made(&lab, named(Some(&["wan"])));
        forwarder.set_source_filters(Some(wan.clone())).unwrap();
        assert_eq!(fate("9.1.1.1", "wan"), XDP_DROP);
        assert_eq!(
            wan.edit(0, &[prefix("9.2.0.0/16").unwrap()], &[prefix("9.1.0.0/16").unwrap()]),
            Ok(2)
        );
        assert_eq!((fate("9.1.1.1", "wan"), fate("9.2.1.1", "wan")), (XDP_REDIRECT, XDP_DROP));
        // So many at once are built anew.
        let many: Vec<_> =
            (0..4000).map(|n| prefix(&format!("9.3.{}.{}", n / 16, n % 16)).unwrap()).collect();
        for round in 0..3 {
            assert_eq!(wan.edit(0, &many, &[]), Ok(4000), "{round}");
            assert_eq!((fate("9.3.7.9", "wan"), fate("9.3.7.99", "wan")), (XDP_DROP, XDP_REDIRECT));
            assert_eq!(wan.edit(0, &[], &many), Ok(4000), "{round}");
            assert_eq!(fate("9.3.7.9", "wan"), XDP_REDIRECT);
        }
        let path = std::env::temp_dir().join(format!("fingerpost-lists-{}", std::process::id()));
        std::fs::write(&path, "9.7.0.0/16\n").unwrap();
        assert_eq!(wan.replace(0, &path.display().to_string()), Ok(2));
        std::fs::remove_file(&path).unwrap();
        assert_eq!((fate("9.2.1.1", "wan"), fate("9.7.1.1", "wan")), (XDP_REDIRECT, XDP_DROP));
        // The same lists, and what they counted, for another port.
        let loose = SourceFilters::new(named(Some(&["loose"])), Some(&wan)).unwrap();
        follow(&lab, &loose);
        forwarder.set_source_filters(Some(Arc::new(loose.clone()))).unwrap();
        assert_eq!(fate("9.7.1.1", "wan"), XDP_REDIRECT);
        assert_eq!(fate("9.7.1.1", "loose"), XDP_DROP);
        assert_eq!((loose.rows()[0].packets, loose.rows()[0].dropped), (7, 7));
        // Programs for ports without features are those without.
        let plain = |name: &str| {
            let state = forwarder.state();
            state.ports[&topology.port(name)].features.as_ref().unwrap().is_none()
        };
        assert!(plain("wan") && !plain("loose"));
        forwarder.set_source_filters(None).unwrap();
        assert!(plain("wan") && plain("lan"));
        conserved(forwarder);
    });
}

/// A check that the graph alone has, and the names that a program without features comes to.
#[test]
fn ports_without_features_run_nothing_of_them() {
    let features = ["ingress", "defaults", "verdicts", "hits", "urpf", "lists", "acl", "acls"];
    let names = |function: &str| {
        let found = std::cell::RefCell::new(std::collections::BTreeSet::new());
        let bind = |name: &str| {
            found.borrow_mut().insert(name.to_owned());
            Some(Bound::Number(0))
        };
        load::function(OBJECT, function, bind).unwrap();
        found.into_inner()
    };
    let (plain, all) = (names("forward"), names("forward_with_features"));
    for name in features {
        assert!(all.contains(name) && !plain.contains(name), "{name}");
    }
    assert!(
        plain.iter().all(|name| !name.starts_with('s')
            || ["seen", "slots"].contains(&&**name)
            || ["sent", "settings", "seed", "seen_last", "slots_last", "nonstop"]
                .contains(&&**name)),
        "{plain:?}"
    );
    testing::in_namespace(|| {
        let Lab { mut forwarder, topology, .. } = Lab::new();
        let strict = topology.port("strict");
        assert!(forwarder.reads(strict).unwrap().is_ok());
        let mut ports = PortTable::clone(&topology.forwarding.ports);
        ports.ports[usize::from(strict)].as_mut().unwrap().urpf = Some(UrpfMode::Feasible);
        forwarder.follow(&Forwarding { ports: Arc::new(ports), ..topology.forwarding.clone() });
        let why = forwarder.reads(strict).unwrap().unwrap_err();
        assert!(why.contains("feasible") && forwarder.tester(strict).is_err(), "{why}");
    });
}
