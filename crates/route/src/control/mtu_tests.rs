//! The MTU of a route, as far as the adjacencies that packets leave by.

use std::net::IpAddr;

use super::tests::{Lab, RIGHT, lab, mac, up, via};
use super::*;
use crate::event::*;
use crate::hops::ForwardingAction;

const P: &str = "192.0.2.0/24";

fn key(prefix: &str) -> RouteKey {
    RouteKey { table: MAIN_TABLE, prefix: AnyPrefix::parse(prefix).unwrap(), metric: 0 }
}

fn link(mtu: u32) -> RouteEvent {
    let state = Some(LinkState { mtu, ..up("right") });
    RouteEvent::Link(LinkUpdate { link: RIGHT, state })
}

impl Lab {
    fn route_of(&mut self, prefix: &str, target: Target, mtu: u16) {
        self.event(RouteEvent::Route(RouteUpdate { mtu, ..RouteUpdate::new(key(prefix), target) }));
        self.commit();
    }
    fn mtu(&mut self, addr: &str) -> u16 {
        self.adjacency(addr).mtu
    }
}

/// A lab with neighbors by which packets can leave.
fn ready() -> Lab {
    let mut lab = lab();
    for addr in ["10.0.2.8", "10.0.2.9", "2001:db8:2::9"] {
        lab.neighbor(RIGHT, addr, NeighborState::Reachable(mac(9)));
    }
    lab.commit();
    lab
}

#[test]
fn packets_meet_the_smaller_one_of_route_and_link() {
    let mut lab = ready();
    lab.route_of(P, via("10.0.2.9"), 1000);
    lab.route_of("198.51.100.0/24", via("10.0.2.9"), 0);
    lab.route_of("2001:db8:9::/48", via("2001:db8:2::9"), 1400);
    let all = |lab: &mut Lab| ["192.0.2.1", "198.51.100.1", "2001:db8:9::1"].map(|a| lab.mtu(a));
    assert_eq!(all(&mut lab), [1000, 1500, 1400]);
    for (mtu, want) in [(900, [900; 3]), (9000, [1000, 9000, 1400]), (1500, [1000, 1500, 1400])] {
        lab.event(link(mtu));
        assert_eq!(all(&mut lab), want, "at once, without a commit");
    }
    lab.route_of(P, via("10.0.2.9"), 4000);
    assert_eq!(lab.mtu("192.0.2.1"), 1500);
    lab.route_of(P, via("10.0.2.9"), 0);
    assert_eq!(lab.mtu("192.0.2.1"), 1500);
    assert_eq!(lab.action("192.0.2.1"), lab.action("198.51.100.1"), "one adjacency again");
}

#[test]
fn what_does_not_fit_the_path_to_a_gateway_does_not_fit_the_route() {
    let mut lab = ready();
    lab.route_of("198.51.100.0/24", via("192.0.2.1"), 1400);
    lab.route_of(P, via("10.0.2.9"), 1300);
    assert_eq!(lab.mtu("198.51.100.1"), 1300);
    lab.route_of(P, via("10.0.2.9"), 0);
    assert_eq!(lab.mtu("198.51.100.1"), 1400);
}

#[test]
fn hosts_have_the_mtu_of_their_connected_route() {
    let mut lab = ready();
    let connected = Target::Path(Path { gateway: None, link: Some(RIGHT), weight: 1 });
    lab.neighbor(RIGHT, "10.9.0.7", NeighborState::Reachable(mac(7)));
    lab.route_of("203.0.113.0/24", via("10.9.0.7"), 0);
    for mtu in [1200, 0, 1100] {
        lab.route_of("10.9.0.0/24", connected.clone(), mtu);
        let want = if mtu == 0 { 1500 } else { mtu };
        assert_eq!((lab.mtu("10.9.0.7"), lab.mtu("203.0.113.1")), (want, want));
        assert_eq!(lab.action("10.9.0.8"), ForwardingAction::Glean(lab.port("right")));
    }
}

#[test]
fn one_that_is_too_small_is_refused() {
    let mut lab = ready();
    let me = lab.control.add_source("static", 1);
    for (prefix, gateway, min) in [(P, "10.0.2.9", 68), ("2001:db8:9::/48", "2001:db8:2::9", 1280)]
    {
        let before = lab.control.sequence();
        lab.route_of(prefix, via(gateway), min - 1);
        let report = lab.control.sources().find(|s| s.name == "kernel").unwrap();
        let (control, target) = (&mut lab.control, via(gateway));
        let mut put =
            |mtu| control.put_route(me, key(prefix), Operation::REPLACE, &target, Some(mtu), None);
        let error = put(min - 1).unwrap_err();
        assert_eq!(error.code(), "mtu-too-small");
        let words = format!(
            "{prefix}: an MTU of {} bytes is too small: at least {min} are needed",
            min - 1
        );
        assert_eq!((error.to_string(), report.last_refusal), (words.clone(), words));
        let prefix = key(prefix).prefix;
        assert_eq!(put(min).map(|o| o.done), Ok(Done::Added));
        assert_eq!(lab.control.candidates(MAIN_TABLE, prefix).len(), 1);
        assert_eq!(lab.control.sequence(), before + 1, "the refused ones changed nothing");
        lab.commit();
    }
    assert_eq!((lab.mtu("192.0.2.1"), lab.mtu("2001:db8:9::1")), (68, 1280));
}

#[test]
fn a_change_keeps_it_and_a_replacement_does_not() {
    let mut lab = ready();
    let me = lab.control.add_source("static", 1);
    let since = lab.control.sequence();
    let (a, b) = (via("10.0.2.9"), via("10.0.2.8"));
    for (operation, target, mtu, want) in [
        (Operation::ADD, &a, Some(1400), 1400),
        (Operation::APPEND, &b, None, 1400),
        (Operation::CHANGE, &a, Some(1300), 1300),
        (Operation::CHANGE, &b, None, 1300),
        (Operation::REPLACE, &b, None, 1500),
        (Operation::APPEND, &a, Some(1200), 1200),
        (Operation::CHANGE, &a, Some(0), 1500),
        (Operation::CHANGE, &a, Some(1000), 1000),
    ] {
        lab.control.put_route(me, key(P), operation, target, mtu, None).unwrap();
        lab.commit();
        assert_eq!(lab.mtu("192.0.2.1"), want, "{operation:?} {mtu:?}");
    }
    let Target::Path(gone) = a else { unreachable!() };
    lab.control.delete_route(me, key(P), &Paths::Named(vec![gone])).unwrap();
    lab.commit();
    assert_eq!(lab.mtu("192.0.2.1"), 1000, "one path fewer");
    // The last but one notice has another MTU alone.
    let told: Vec<(u16, u16)> = (lab.control.notices(since).unwrap())
        .filter_map(|notice| match &notice.what {
            Happened::Route { mtus, key: told, .. } if *told == key(P) => Some(*mtus),
            _ => None,
        })
        .collect();
    assert_eq!(told[..3], [(0, 1400), (1400, 1400), (1400, 1300)]);
    assert_eq!(told[told.len() - 2..], [(0, 1000), (1000, 1000)]);
    // What drops packets has none.
    let drops = Target::Blackhole;
    lab.control.put_route(me, key(P), Operation::REPLACE, &drops, Some(1400), None).unwrap();
    let hop = lab.control.candidates(MAIN_TABLE, key(P).prefix)[0].hop;
    assert_eq!(lab.control.next_hops().attrs(hop).unwrap().mtu, 0);
}

#[test]
fn another_mtu_moves_no_flow() {
    let mut lab = ready();
    for last in 10..15 {
        lab.neighbor(RIGHT, &format!("10.0.2.{last}"), NeighborState::Reachable(mac(last)));
    }
    let paths: Vec<Path> = (10..15u8)
        .map(|last| Path {
            gateway: Some(IpAddr::from([10, 0, 2, last])),
            link: Some(RIGHT),
            weight: last.into(),
        })
        .collect();
    let flows = |lab: &mut Lab| -> Vec<Mac> {
        let of = |hash| match lab.action_of_flow("192.0.2.1", hash) {
            ForwardingAction::Adjacency(index) => lab.reader.pin().hops.adjacency(index).dst,
            other => panic!("{other:?}"),
        };
        (0..256).map(of).collect()
    };
    // Not as they would lie from the beginning: one path came later.
    lab.route_of(P, Target::Paths(paths[1..].to_vec()), 0);
    lab.route_of(P, Target::Paths(paths.clone()), 0);
    let before = flows(&mut lab);
    for mtu in [1400, 1300, 0] {
        lab.route_of(P, Target::Paths(paths.clone()), mtu);
        assert_eq!(lab.mtu("192.0.2.1"), if mtu == 0 { 1500 } else { mtu });
        assert_eq!(flows(&mut lab), before, "{mtu}");
    }
}
