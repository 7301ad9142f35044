//! VRFs and policy rules: which tables the packets of an interface are looked up in, and what is in them.

use super::tests::{LEFT, Lab, RIGHT, lab, mac, up, via};
use super::*;
use crate::event::{
    LinkState, MAIN_TABLE, Mac, NeighborState, Path, RouteEvent, RouteUpdate, Target,
};
use crate::forwarding::ResolveRequest;
use crate::hops::ForwardingAction;
use crate::mtu::RouteMtu;
use crate::rules::{PolicyRule, PolicyRules, RuleAction, usual};

const RED: u32 = 10;
const RED_DEVICE: u32 = 9;

/// The interface on the right belongs to a VRF.
fn vrf() -> Lab {
    let mut lab = lab();
    lab.link(RED_DEVICE, LinkState { kind: "vrf".into(), vrf: Some(RED), ..up("red") });
    lab.link(RIGHT, member());
    lab.commit();
    lab
}

fn member() -> LinkState {
    let master_kind = "vrf".into();
    LinkState { master: Some(RED_DEVICE), master_kind, vrf: Some(RED), ..up("right") }
}

fn route(lab: &mut Lab, table: u32, prefix: &str, target: Target) {
    let key = RouteKey { table, prefix: AnyPrefix::parse(prefix).unwrap(), metric: 0 };
    lab.event(RouteEvent::Route(RouteUpdate::new(key, target)));
}

/// What packets to an address meet that arrive on an interface.
fn action(lab: &mut Lab, port: &str, addr: &str) -> ForwardingAction {
    let (port, addr) = (lab.port(port), addr.parse::<std::net::Ipv4Addr>().unwrap().to_bits());
    let forwarding = lab.reader.pin().clone();
    forwarding.hops.action(forwarding.lookup(port, addr), 0)
}

fn adjacency(lab: &mut Lab, port: &str, addr: &str) -> Option<Mac> {
    match action(lab, port, addr) {
        ForwardingAction::Adjacency(index) => Some(lab.reader.pin().hops.adjacency(index).dst),
        _ => None,
    }
}

#[test]
fn members_of_a_vrf_have_its_table_and_behind_it_the_main_one() {
    let mut lab = vrf();
    let (left, right) = (lab.port("left"), lab.port("right"));
    assert_eq!(action(&mut lab, "right", "10.0.2.9"), ForwardingAction::Glean(right));
    assert_eq!(action(&mut lab, "left", "10.0.2.9"), ForwardingAction::NoRoute);
    // What the VRF lacks the main table has, unless the VRF says no.
    assert_eq!(action(&mut lab, "right", "10.0.1.9"), ForwardingAction::Glean(left));
    route(&mut lab, RED, "0.0.0.0/0", Target::Unreachable);
    route(&mut lab, RED, "10.0.1.128/25", Target::Throw);
    lab.commit();
    assert_eq!(action(&mut lab, "right", "10.0.1.9"), ForwardingAction::Unreachable);
    assert_eq!(action(&mut lab, "right", "10.0.1.200"), ForwardingAction::Glean(left));
    // A route by the VRF's device is a lookup in there.
    let by = Path { gateway: None, link: Some(RED_DEVICE), weight: 1 };
    route(&mut lab, MAIN_TABLE, "198.51.100.0/24", Target::Path(by));
    lab.commit();
    let red = lab.port("red");
    assert_eq!(
        action(&mut lab, "left", "198.51.100.1"),
        ForwardingAction::Vrf(red, RouteMtu::NONE)
    );
    lab.link(RED_DEVICE, LinkState { kind: "vrf".into(), vrf: Some(RED), up: false, ..up("red") });
    lab.commit();
    assert_eq!(action(&mut lab, "left", "198.51.100.1"), ForwardingAction::Unreachable);
    // It leaves the VRF.
    lab.link(RIGHT, up("right"));
    lab.commit();
    assert_eq!(action(&mut lab, "left", "10.0.2.9"), ForwardingAction::Glean(right));
    assert_eq!(lab.control.candidates(RED, AnyPrefix::parse("10.0.2.0/24").unwrap()), []);
}

#[test]
fn hosts_are_known_in_each_table_with_their_prefix() {
    let mut lab = vrf();
    let right = lab.port("right");
    let leak = Path { gateway: None, link: Some(RIGHT), weight: 1 };
    route(&mut lab, MAIN_TABLE, "10.0.2.0/25", Target::Path(leak));
    lab.commit();
    assert_eq!(action(&mut lab, "left", "10.0.2.9"), ForwardingAction::Glean(right));
    let (addr, ingress) = ("10.0.2.9".parse().unwrap(), lab.port("left"));
    lab.control.resolve(ResolveRequest::Neighbor { port: right, addr, ingress }, lab.now);
    assert_eq!(lab.control.take_requests(), [NeighborRequest { link: RIGHT, addr }]);
    lab.neighbor(RIGHT, "10.0.2.9", NeighborState::Reachable(mac(9)));
    lab.commit();
    for port in ["left", "right"] {
        assert_eq!(adjacency(&mut lab, port, "10.0.2.9"), Some(mac(9)), "from {port}");
    }
    // With a VRF it goes from one table to the others; it goes with its link from all.
    lab.link(RIGHT, up("right"));
    lab.commit();
    assert_eq!(adjacency(&mut lab, "left", "10.0.2.9"), None);
}

#[test]
fn vrfs_may_have_equal_addresses() {
    let mut lab = vrf();
    lab.link(LEFT + 100, LinkState { vrf: Some(20), ..up("blue") });
    lab.address(LEFT + 100, "10.0.2.1", 24, false);
    lab.neighbor(RIGHT, "10.0.2.8", NeighborState::Reachable(mac(1)));
    lab.neighbor(LEFT + 100, "10.0.2.8", NeighborState::Reachable(mac(2)));
    route(&mut lab, RED, "192.0.2.0/24", via("10.0.2.8"));
    route(&mut lab, 20, "192.0.2.0/24", via("10.0.2.8"));
    lab.address(LEFT + 100, "10.0.3.1", 32, false);
    lab.commit();
    for (port, dst) in [("right", mac(1)), ("blue", mac(2))] {
        for addr in ["10.0.2.8", "192.0.2.1"] {
            assert_eq!(adjacency(&mut lab, port, addr), Some(dst), "{addr} from {port}");
        }
    }
    assert_eq!(action(&mut lab, "left", "192.0.2.1"), ForwardingAction::NoRoute);
    // An address of the host in one is anybody's in the other.
    let ports = lab.reader.pin().ports.clone();
    let own = |addr: &str, port| ports.is_own_at(addr.parse().unwrap(), lab.port(port));
    assert_eq!(["blue", "right"].map(|port| own("10.0.3.1", port)), [true, false]);
    assert_eq!(["blue", "right"].map(|port| own("10.0.2.1", port)), [true, true]);
}

/// What a packet of a flow meets in the end.
fn last_action(lab: &mut Lab, port: &str, addr: &str, hash: u32) -> ForwardingAction {
    let (port, addr) = (lab.port(port), addr.parse::<std::net::Ipv4Addr>().unwrap().to_bits());
    let forwarding = lab.reader.pin().clone();
    let last = forwarding.lookups(port, addr, || hash).last().expect("at least one lookup");
    let first = forwarding.hops.action(forwarding.lookup(port, addr), hash);
    let followed = forwarding.follow(first, addr, || hash);
    assert_eq!(followed.map(|(action, _)| action), Some(last.action));
    last.action
}

#[test]
fn a_change_in_a_vrf_counts_for_routes_that_lead_there() {
    let mut lab = vrf();
    let (left, right) = (lab.port("left"), lab.port("right"));
    let into = Path { gateway: None, link: Some(RED_DEVICE), weight: 1 };
    let beside = Path { gateway: Some("10.0.1.9".parse().unwrap()), link: Some(LEFT), weight: 1 };
    route(&mut lab, MAIN_TABLE, "10.0.2.0/24", Target::Path(into));
    route(&mut lab, MAIN_TABLE, "192.0.2.0/24", Target::Paths(vec![into, beside]));
    lab.commit();
    assert_eq!(last_action(&mut lab, "left", "10.0.2.9", 0), ForwardingAction::Glean(right));
    // A host of the VRF is found in its table, and in no other.
    lab.neighbor(RIGHT, "10.0.2.9", NeighborState::Reachable(mac(9)));
    lab.commit();
    let ForwardingAction::Adjacency(index) = last_action(&mut lab, "left", "10.0.2.9", 0) else {
        panic!("the host is known");
    };
    assert_eq!(lab.reader.pin().hops.adjacency(index).port, right);
    // A group has members of both kinds. The VRF has no such route, and the main table behind it leads back.
    let port = lab.port("left");
    let forwarding = lab.reader.pin().clone();
    let hop = forwarding.lookup(port, 0xc000_0201_u32);
    let mut actions = [0, u32::MAX].map(|hash| forwarding.hops.action(hop, hash));
    actions.sort();
    let [ForwardingAction::Adjacency(index), ForwardingAction::Vrf(..)] = actions else {
        panic!("{actions:?}");
    };
    assert_eq!(forwarding.hops.adjacency(index).port, left);
    // For uRPF it is a route, by no interface of this VRF.
    let leads = [None, Some(right)].map(|port| {
        let hop =
            forwarding.lookup(left, "10.0.2.7".parse::<std::net::Ipv4Addr>().unwrap().to_bits());
        forwarding.leads_out(hop, port)
    });
    assert_eq!(leads, [true, false]);
    route(&mut lab, RED, "192.0.2.0/24", Target::Prohibit);
    lab.commit();
    let mut met = [0, u32::MAX].map(|hash| last_action(&mut lab, "left", "192.0.2.1", hash));
    met.sort();
    assert!(matches!(met, [ForwardingAction::Adjacency(_), ForwardingAction::Prohibit]), "{met:?}");
}

#[test]
fn the_mtus_of_a_route_into_a_vrf_and_of_its_device_are_limits() {
    let mut lab = vrf();
    let into = Target::Path(Path { gateway: None, link: Some(RED_DEVICE), weight: 1 });
    let addr = "10.0.2.9".parse::<std::net::Ipv4Addr>().unwrap().to_bits();
    for (of_route, of_device, want) in
        [(0, 65_575, u16::MAX), (1300, 65_575, 1300), (1300, 1280, 1280), (1300, 1500, 1300)]
    {
        let state = LinkState { kind: "vrf".into(), vrf: Some(RED), ..up("red") };
        lab.link(RED_DEVICE, LinkState { mtu: of_device, ..state });
        let prefix = AnyPrefix::parse("10.0.2.0/24").unwrap();
        let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
        let update = RouteUpdate { mtu: of_route, ..RouteUpdate::new(key, into.clone()) };
        lab.event(RouteEvent::Route(update));
        lab.commit();
        let (left, right) = (lab.port("left"), lab.port("right"));
        let forwarding = lab.reader.pin().clone();
        let first = forwarding.hops.action(forwarding.lookup(left, addr), 0);
        let followed = forwarding.follow(first, addr, || 0);
        assert_eq!(followed, Some((ForwardingAction::Glean(right), want)));
    }
}

#[test]
fn rules_of_one_family_concern_that_family() {
    let mut lab = lab();
    route(&mut lab, 7, "192.0.2.0/24", Target::Blackhole);
    let rule = PolicyRule {
        priority: 100,
        iif: Some("left".into()),
        action: RuleAction::Table(7),
        words: "ip rule 100".into(),
    };
    let with = |rule| PolicyRules::new([[usual(), vec![rule]].concat(), usual()]);
    lab.control.set_rules(with(rule.clone()));
    lab.commit();
    assert_eq!(action(&mut lab, "left", "192.0.2.1"), ForwardingAction::Blackhole);
    assert_eq!(action(&mut lab, "right", "192.0.2.1"), ForwardingAction::NoRoute);
    let right = lab.port("right");
    assert_eq!(action(&mut lab, "left", "10.0.2.9"), ForwardingAction::Glean(right));
    let ports = lab.reader.pin().ports.clone();
    assert_eq!(
        (ports.fibs(lab.port("left"), 0), ports.fibs(lab.port("left"), 1)),
        (&[1, 0][..], &[0][..])
    );
    assert_eq!(lab.control.complex_rules().next(), None);
    lab.control.set_rules(with(PolicyRule { action: RuleAction::Other, ..rule }));
    lab.commit();
    let complex: Vec<_> = lab.control.complex_rules().collect();
    assert_eq!(complex, [(LEFT, "ip rule 100".to_owned())]);
}
