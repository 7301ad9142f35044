//! The lookup calls of the data path, asked of what a control side published.

use super::tests::{LEFT, RIGHT, lab, mac, up, via};
use super::*;
use crate::calls::LookupFlags;
use crate::event::{LinkUpdate, MAIN_TABLE};
use crate::hops::ForwardingAction;

const ANY: LookupFlags = LookupFlags { no_default: false };
const NO_DEFAULT: LookupFlags = LookupFlags { no_default: true };

#[test]
fn calls_answer_as_freebsd_has_them() {
    let mut lab = lab();
    lab.route("0.0.0.0/0", via("10.0.1.9"));
    lab.route("192.0.2.0/24", via("10.0.1.9"));
    let paths = ["10.0.1.9", "10.0.2.9"].map(|gateway| Path {
        gateway: Some(gateway.parse().unwrap()),
        link: None,
        weight: 1,
    });
    lab.route("198.51.100.0/24", Target::Paths(paths.to_vec()));
    lab.route("203.0.113.0/24", Target::Unreachable);
    lab.route("2001:db8:9::/48", via("2001:db8:2::9"));
    lab.commit();
    let (left, right) = (lab.port("left"), lab.port("right"));
    let forwarding = lab.reader.pin().clone();
    let v4 = |dst: &str, flow, flags| forwarding.fib4_lookup(0, dst.parse().unwrap(), flow, flags);
    let near = v4("192.0.2.1", 0, ANY).unwrap();
    let far = v4("8.8.8.8", 0, ANY).unwrap();
    assert_eq!(near.action, far.action, "by the same gateway");
    assert_ne!(near.hop, far.hop, "but one is a default route's");
    assert_eq!(v4("192.0.2.1", 0, NO_DEFAULT), Some(near));
    assert_eq!(v4("8.8.8.8", 0, NO_DEFAULT), None);
    assert_eq!(v4("203.0.113.1", 0, ANY).unwrap().action, ForwardingAction::Unreachable);
    let flows = |dst: &str| -> std::collections::HashSet<ForwardingAction> {
        (0..64u32).map(|i| v4(dst, i << 24, ANY).unwrap().action).collect()
    };
    assert_eq!((flows("198.51.100.1").len(), flows("192.0.2.1").len()), (2, 1));

    let v6 = |dst: &str, scope| forwarding.fib6_lookup(0, dst.parse().unwrap(), scope, 0, ANY);
    assert!(matches!(v6("2001:db8:9::1", 0).unwrap().action, ForwardingAction::Adjacency(_)));
    assert_eq!(v6("2001:db8:9::1", 77), v6("2001:db8:9::1", 0), "a scope is of link-local ones");
    assert_eq!(v6("fe80::1", RIGHT).unwrap().action, ForwardingAction::Glean(right));
    assert_eq!((v6("fe80::1", 0), v6("fe80::1", 77)), (None, None));
    assert_eq!(v6("2001:db9::1", 0), None);

    let from =
        |src: &str, port, flags| forwarding.fib4_check_urpf(0, src.parse().unwrap(), port, flags);
    assert!(from("192.0.2.1", Some(left), ANY) && !from("192.0.2.1", Some(right), ANY));
    assert!(from("198.51.100.1", Some(left), ANY) && from("198.51.100.1", Some(right), ANY));
    assert!(from("10.0.2.50", Some(right), ANY) && !from("10.0.2.50", Some(left), ANY));
    assert!(from("8.8.8.8", None, ANY) && !from("8.8.8.8", None, NO_DEFAULT));
    let src = "fe80::7".parse().unwrap();
    assert!(forwarding.fib6_check_urpf(0, src, LEFT, Some(left), ANY));
    assert!(!forwarding.fib6_check_urpf(0, src, LEFT, Some(right), ANY));

    // A member whose link went down is none: the flow has another one.
    lab.link(RIGHT, LinkState { up: false, ..up("right") });
    lab.commit();
    let forwarding = lab.reader.pin().clone();
    let v4 = |dst: &str, flow| forwarding.fib4_lookup(0, dst.parse().unwrap(), flow, ANY).unwrap();
    assert!((0..64u32).all(|i| v4("198.51.100.1", i << 24).action == near.action));
    assert_eq!(forwarding.fib6_lookup(0, src, RIGHT, 0, ANY), None);
}

#[test]
fn a_default_route_that_changes_is_known_as_one() {
    let mut lab = lab();
    lab.neighbor(LEFT, "10.0.1.9", NeighborState::Reachable(mac(1)));
    for round in 0..4u8 {
        let gateway = if round % 2 == 0 { "10.0.1.9" } else { "10.0.2.9" };
        // What was a default route's index may be another route's later.
        lab.route("0.0.0.0/0", via(gateway));
        lab.route(&format!("198.51.{round}.0/24"), via(&format!("10.0.1.{}", 20 + round)));
        lab.commit();
        let forwarding = lab.reader.pin().clone();
        let ask = |dst: String| forwarding.fib4_lookup(0, dst.parse().unwrap(), 0, NO_DEFAULT);
        assert_eq!(ask("8.8.8.8".into()), None);
        for known in 0..=round {
            assert!(ask(format!("198.51.{known}.1")).is_some(), "round {round}");
        }
    }
    lab.event(RouteEvent::Link(LinkUpdate { link: LEFT, state: None }));
    lab.withdraw("0.0.0.0/0");
    lab.commit();
    assert!(lab.reader.pin().defaults.is_empty());
    assert_eq!(lab.control.candidates(MAIN_TABLE, AnyPrefix::parse("0.0.0.0/0").unwrap()), []);
}
