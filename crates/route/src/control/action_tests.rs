//! Tables, actions, snapshots, notices and lifetimes of routes, from outside.
//!
//! The cases of FreeBSD's test_rtsock_l3.c and test_rtsock_multipath.py are here in our words.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fingerpost_lpm::Prefix;
use proptest::prelude::*;

use super::tests::{LEFT, Lab, RIGHT, lab, up, via};
use super::*;
use crate::event::*;
use crate::hops::ForwardingAction;
use crate::nexthop::HopKey;
use crate::rib::Candidate;

const CUSTOMER: u32 = 100;

fn key_of(table: u32, prefix: &str) -> RouteKey {
    RouteKey { table, prefix: AnyPrefix::parse(prefix).unwrap(), metric: 0 }
}

fn paths(of: &[(&str, u32)]) -> Target {
    let path = |&(gateway, weight): &(&str, u32)| Path {
        gateway: Some(gateway.parse().unwrap()),
        link: None,
        weight,
    };
    Target::Paths(of.iter().map(path).collect())
}

/// The lab, and a source that acts.
struct Desk {
    lab: Lab,
    me: SourceId,
}

fn desk() -> Desk {
    let mut lab = lab();
    let me = lab.control.add_source("static", 1);
    lab.commit();
    Desk { lab, me }
}

impl Desk {
    fn put(&mut self, op: Operation, prefix: &str, target: &Target) -> Result<Done, RouteError> {
        let key = key_of(MAIN_TABLE, prefix);
        self.lab.control.put_route(self.me, key, op, target, None, None).map(|o| o.done)
    }
    fn delete(&mut self, prefix: &str, paths: &Paths) -> Result<Done, RouteError> {
        let key = key_of(MAIN_TABLE, prefix);
        self.lab.control.delete_route(self.me, key, paths).map(|o| o.done)
    }
    /// Gateways and weights of a route; empty when it is absent.
    fn paths(&self, prefix: &str) -> BTreeMap<String, u32> {
        let key = key_of(MAIN_TABLE, prefix);
        let control = &self.lab.control;
        let present = control.present(self.me, &key);
        let paths = present.map_or(Vec::new(), |hop| control.paths(hop));
        paths.iter().map(|w| (w.gateway.unwrap().to_string(), w.weight)).collect()
    }
    /// What happened since the last call, as `done prefix`.
    fn logged(&self, since: u64) -> Vec<(Done, String)> {
        let of = |notice: &Notice| match &notice.what {
            Happened::Route { done, key, .. } => Some((*done, key.prefix.to_string())),
            _ => None,
        };
        self.lab.control.notices(since).unwrap().filter_map(of).collect()
    }
}

fn named(gateway: &str) -> Paths {
    Paths::Named(vec![Path { gateway: Some(gateway.parse().unwrap()), link: None, weight: 1 }])
}

const P: &str = "192.0.2.0/24";

#[test]
fn what_an_operation_does_depends_on_what_is_there() {
    let mut desk = desk();
    let p = AnyPrefix::parse(P).unwrap();
    let (a, b) = (via("10.0.1.9"), via("10.0.2.9"));
    assert_eq!(desk.put(Operation::CHANGE, P, &a), Err(RouteError::NoRoute(p)));
    assert_eq!(desk.delete(P, &Paths::All), Err(RouteError::NoRoute(p)));
    assert_eq!(desk.put(Operation::ADD, P, &a), Ok(Done::Added));
    assert_eq!(desk.put(Operation::ADD, P, &b), Err(RouteError::Exists(p)));
    assert_eq!(desk.put(Operation::CHANGE, P, &b), Ok(Done::Changed));
    assert_eq!(desk.paths(P), [("10.0.2.9".into(), 1)].into());
    assert_eq!(desk.put(Operation::REPLACE, P, &a), Ok(Done::Changed));
    assert_eq!(desk.put(Operation::APPEND, P, &a), Err(RouteError::Exists(p)));
    assert_eq!(desk.put(Operation::APPEND, P, &b), Ok(Done::Changed));
    assert_eq!(desk.paths(P).len(), 2);
    assert_eq!(desk.delete(P, &Paths::Only), Err(RouteError::ManyPaths { prefix: p, paths: 2 }));
    assert_eq!(desk.delete(P, &named("10.0.1.77")), Err(RouteError::NoPath(p)));
    assert_eq!(desk.delete(P, &named("10.0.1.9")), Ok(Done::Changed));
    assert_eq!(desk.paths(P), [("10.0.2.9".into(), 1)].into());
    assert_eq!(desk.delete(P, &Paths::Only), Ok(Done::Deleted));
    let other = "198.51.100.0/24";
    assert_eq!(desk.put(Operation::REPLACE, other, &a), Ok(Done::Added));
    assert_eq!(
        desk.put(Operation::APPEND, other, &Target::Blackhole).unwrap_err().code(),
        "exists"
    );
    assert_eq!(desk.put(Operation::REPLACE, other, &Target::Blackhole), Ok(Done::Changed));
    assert_eq!(desk.put(Operation::APPEND, other, &a).unwrap_err().code(), "exists");
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut desk = desk();
    desk.put(Operation::ADD, P, &via("10.0.1.9")).unwrap();
    let before = desk.lab.control.sequence();
    let refused: Vec<(&str, Target, &str)> = vec![
        ("2001:db8::/32", via("10.0.1.9"), "gateway-family"),
        (
            "198.51.100.0/24",
            Target::Path(Path { gateway: None, link: None, weight: 1 }),
            "empty-path",
        ),
        (
            "198.51.100.0/24",
            Target::Path(Path { gateway: None, link: Some(77), weight: 1 }),
            "no-such-interface",
        ),
        ("224.0.0.0/8", via("10.0.1.9"), "not-routed"),
        ("fe80::/64", via("fe80::1"), "not-routed"),
        // The host's own prefix and address.
        ("10.0.1.0/24", via("10.0.2.9"), "exists"),
        ("10.0.1.1/32", via("10.0.2.9"), "exists"),
    ];
    for (prefix, target, code) in refused {
        let got = desk.put(Operation::APPEND, prefix, &target).unwrap_err();
        assert_eq!(got.code(), code, "{prefix}: {got}");
        assert!(!got.to_string().is_empty());
    }
    assert_eq!(desk.delete("10.0.1.0/24", &Paths::All).unwrap_err().code(), "in-use");
    assert_eq!(desk.lab.control.sequence(), before);
    let forced = Operation { force: true, ..Operation::ADD };
    assert_eq!(desk.put(forced, "10.0.1.0/24", &via("10.0.2.9")), Ok(Done::Added));
    desk.lab.commit();
    let left = desk.lab.port("left");
    assert_eq!(
        desk.lab.action("10.0.1.50"),
        ForwardingAction::Glean(left),
        "the link's own route is nearer"
    );
}

#[test]
fn ipv4_goes_over_an_ipv6_gateway() {
    let mut desk = desk();
    desk.put(Operation::ADD, P, &via("2001:db8:2::9")).unwrap();
    desk.lab.commit();
    assert_eq!(desk.lab.adjacency("192.0.2.1").port, desk.lab.port("right"));
}

/// test_rtsock_multipath.py: every order in which paths come and go, and their weights.
#[test]
fn paths_come_and_go_in_every_order() {
    let all = [("10.0.1.7", 1), ("10.0.1.8", 2), ("10.0.2.9", 7)];
    for weights in [[1, 1, 1], [2, 3, 1], [2, 7, 1], [13, 21, 5]] {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for back in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                let mut desk = desk();
                let since = desk.lab.control.sequence();
                let mut want = BTreeMap::new();
                for i in order {
                    let path = [(all[i].0, weights[i])];
                    desk.put(Operation::APPEND, P, &paths(&path)).unwrap();
                    let twice = desk.put(Operation::APPEND, P, &paths(&path));
                    assert_eq!(twice.unwrap_err().code(), "exists");
                    want.insert(all[i].0.to_owned(), weights[i]);
                    let got = desk.paths(P);
                    assert_eq!(got, want, "the first one's weight counts too");
                }
                let one = desk.put(Operation::CHANGE, P, &paths(&[(all[0].0, 9)]));
                assert_eq!(one, Ok(Done::Changed), "of one path of several");
                assert_eq!((desk.paths(P)[all[0].0], desk.paths(P).len()), (9, 3));
                let unknown = desk.put(Operation::CHANGE, P, &paths(&[("10.0.1.66", 1)]));
                assert_eq!(unknown.unwrap_err().code(), "no-such-route");
                for (n, i) in back.into_iter().enumerate() {
                    let last = n == 2;
                    let done = if last { Done::Deleted } else { Done::Changed };
                    assert_eq!(desk.delete(P, &named(all[i].0)), Ok(done));
                    assert_eq!(desk.paths(P).len(), 2 - n);
                }
                let (changed, p) = ((Done::Changed, P.to_owned()), P.to_owned());
                let mut story = vec![changed; 7];
                (story[0], story[6]) = ((Done::Added, p.clone()), (Done::Deleted, p));
                story.truncate(7);
                let log = desk.logged(since);
                assert_eq!(log.first(), story.first());
                assert_eq!(log.last(), story.last());
                assert_eq!(log.len(), 7, "3 appended, 1 changed, 3 deleted: {log:?}");
            }
        }
    }
}

#[test]
fn a_weight_of_the_first_path_counts_once_there_are_two() {
    let mut desk = desk();
    desk.put(Operation::ADD, P, &paths(&[("10.0.1.7", 2), ("10.0.2.9", 3)])).unwrap();
    assert_eq!(desk.paths(P), [("10.0.1.7".into(), 2), ("10.0.2.9".into(), 3)].into());
    desk.put(Operation::REPLACE, P, &paths(&[("10.0.1.7", 0), ("10.0.2.9", 1)])).unwrap();
    desk.lab.commit();
    let mut seen = std::collections::HashSet::new();
    for hash in (0..64u32).map(|i| i << 26 | i) {
        seen.insert(desk.lab.action_of_flow("192.0.2.1", hash));
    }
    assert_eq!(seen.len(), 2, "weight 0 is 1");
}

#[test]
fn tables_know_nothing_of_each_other() {
    let mut desk = desk();
    let key = key_of(CUSTOMER, P);
    let update = RouteUpdate { distance: Some(200), ..RouteUpdate::new(key, via("10.0.2.8")) };
    // Nothing for the host itself makes a table; and in this one no route leads to the gateway yet.
    desk.lab.event(RouteEvent::Route(update.clone()));
    let own = RouteKey { table: 255, ..key };
    desk.lab.event(RouteEvent::Route(RouteUpdate { key: own, ..update.clone() }));
    assert_eq!(desk.lab.control.tables(), [MAIN_TABLE, CUSTOMER].map(TableId::Routes));
    assert_eq!(desk.lab.control.candidates(CUSTOMER, key.prefix).len(), 1);
    desk.lab.event(RouteEvent::Withdraw(key));
    let target = via("10.0.2.9");
    let far = desk.lab.control.put_route(desk.me, key, Operation::ADD, &target, None, None);
    assert_eq!(far.unwrap_err().code(), "gateway-unreachable");
    desk.lab.control.bind_interface("right", CUSTOMER).unwrap();
    desk.lab.control.put_route(desk.me, key, Operation::ADD, &target, None, None).unwrap();
    desk.lab.event(RouteEvent::Route(RouteUpdate { key: RouteKey { metric: 5, ..key }, ..update }));
    desk.put(Operation::ADD, P, &via("10.0.1.9")).unwrap();
    desk.lab.commit();
    assert_eq!(desk.lab.control.candidates(CUSTOMER, key.prefix).len(), 2);
    let (left, right) = (desk.lab.port("left"), desk.lab.port("right"));
    let forwarding = desk.lab.reader.pin().clone();
    let ask = |port: u16, addr: &str| {
        let IpAddr::V4(addr) = addr.parse().unwrap() else { panic!("IPv4") };
        let [fib, _] = forwarding.ports.first_fibs(port);
        forwarding.hops.action(forwarding.v4_of(fib).lookup(addr.to_bits()), 0)
    };
    assert_ne!(ask(left, "192.0.2.1"), ask(right, "192.0.2.1"));
    assert_eq!(ask(left, "10.0.1.50"), ForwardingAction::Glean(left));
    assert_eq!(ask(right, "10.0.1.50"), ForwardingAction::NoRoute, "the link is in the main table");
    assert_eq!(ask(right, "10.0.2.50"), ForwardingAction::Glean(right));
    assert_eq!(ask(left, "10.0.2.50"), ForwardingAction::NoRoute, "it moved with its link");
    assert_eq!(ask(right, "10.0.2.1"), ForwardingAction::Local);
    // The neighbors of a link are in its table, and go with it.
    desk.lab.neighbor(RIGHT, "10.0.2.77", NeighborState::Reachable(super::tests::mac(7)));
    desk.lab.commit();
    let host = key_of(CUSTOMER, "10.0.2.77/32").prefix;
    let table = |control: &Control, number| control.candidates(number, host).len();
    assert_eq!(table(&desk.lab.control, CUSTOMER), 1);
    assert_eq!(table(&desk.lab.control, MAIN_TABLE), 0);
    let gone = LinkUpdate { link: RIGHT, state: None };
    desk.lab.event(RouteEvent::Link(gone));
    desk.lab.commit();
    assert_eq!(table(&desk.lab.control, CUSTOMER), 0);
    desk.lab.link(LEFT, up("left"));
}

/// test_rtsock_l3.c: what an address of an interface brings, it takes along.
#[test]
fn an_address_brings_its_routes_and_takes_them_along() {
    for (addr, len, own, subnet) in [
        ("198.51.100.7", 24, "198.51.100.7/32", "198.51.100.0/24"),
        ("2001:db8:7::7", 64, "2001:db8:7::7/128", "2001:db8:7::/64"),
    ] {
        let mut desk = desk();
        let since = desk.lab.control.sequence();
        desk.lab.address(LEFT, addr, len, false);
        let both = |done| [(done, own.to_owned()), (done, subnet.to_owned())];
        assert_eq!(desk.logged(since), both(Done::Added));
        let hop = |control: &Control, prefix: &str| {
            let of = control.candidates(MAIN_TABLE, AnyPrefix::parse(prefix).unwrap());
            control.next_hops().key(of[0].hop).cloned()
        };
        assert_eq!(hop(&desk.lab.control, own), Some(HopKey::Local));
        let link = Path { gateway: None, link: Some(LEFT), weight: 1 };
        assert_eq!(hop(&desk.lab.control, subnet), Some(HopKey::Path(link)));
        let since = desk.lab.control.sequence();
        desk.lab.address(LEFT, addr, len, true);
        assert_eq!(desk.logged(since), both(Done::Deleted));
    }
}

/// test_routing_l3.py: two interfaces with one prefix, and the first one loses its address.
#[test]
fn a_subnet_moves_to_the_interface_that_still_has_it() {
    let mut desk = desk();
    desk.lab.address(LEFT, "198.51.100.7", 24, false);
    desk.lab.address(RIGHT, "198.51.100.8", 24, false);
    desk.lab.commit();
    let (left, right) = (desk.lab.port("left"), desk.lab.port("right"));
    assert_eq!(desk.lab.action("198.51.100.50"), ForwardingAction::Glean(left));
    let since = desk.lab.control.sequence();
    desk.lab.address(LEFT, "198.51.100.7", 24, true);
    desk.lab.commit();
    assert_eq!(desk.lab.action("198.51.100.50"), ForwardingAction::Glean(right));
    assert_eq!(desk.lab.action("198.51.100.7"), ForwardingAction::Glean(right));
    assert_eq!(desk.lab.action("198.51.100.8"), ForwardingAction::Local);
    let moved = (Done::Changed, "198.51.100.0/24".to_owned());
    assert!(desk.logged(since).contains(&moved), "{:?}", desk.logged(since));
}

/// test_routing_l3.py: a link with one host at the other end, and no address of ours on it.
#[test]
fn a_route_over_a_link_without_addresses() {
    let mut desk = desk();
    desk.lab.link(9, LinkState { mac: None, ..up("ptp") });
    let path = Target::Path(Path { gateway: None, link: Some(9), weight: 1 });
    desk.put(Operation::ADD, P, &path).unwrap();
    desk.lab.commit();
    assert!(desk.lab.adjacency("192.0.2.1").resolved());
    assert_eq!(desk.lab.adjacency("192.0.2.1").port, desk.lab.port("ptp"));
}

#[test]
fn the_rib_answers_with_all_that_lead_there() {
    let mut desk = desk();
    for (prefix, gateway) in [("0.0.0.0/0", "10.0.1.9"), (P, "10.0.2.9")] {
        desk.put(Operation::ADD, prefix, &via(gateway)).unwrap();
    }
    desk.lab.route(P, via("10.0.1.8"));
    let control = &desk.lab.control;
    let found = control.lookup_route(MAIN_TABLE, "192.0.2.9".parse().unwrap()).unwrap();
    assert_eq!(found.prefix.to_string(), P);
    let distances: Vec<u8> = found.candidates.iter().map(|c| c.distance).collect();
    assert_eq!(distances, [0, 1], "the best first");
    let found = control.lookup_route(MAIN_TABLE, "192.0.3.9".parse().unwrap()).unwrap();
    assert_eq!(found.prefix.len(), 0);
    assert_eq!(control.lookup_route(MAIN_TABLE, "2001:db9::1".parse().unwrap()), None);
    assert_eq!(control.lookup_route(7, "192.0.2.9".parse().unwrap()), None);
    let over = control.covering(MAIN_TABLE, AnyPrefix::parse("192.0.2.128/25").unwrap());
    let over: Vec<String> = over.iter().map(|f| f.prefix.to_string()).collect();
    assert_eq!(over, ["0.0.0.0/0", P]);
    assert!(control.covering(7, found.prefix).is_empty());
}

#[test]
fn routes_end_when_their_time_has_come() {
    let mut desk = desk();
    let key = key_of(MAIN_TABLE, P);
    let now = desk.lab.now;
    let second = Duration::from_secs(1);
    let put = |desk: &mut Desk, op, life| {
        let control = &mut desk.lab.control;
        control.put_route(desk.me, key, op, &via("10.0.1.9"), None, life).unwrap();
    };
    put(&mut desk, Operation::ADD, Some((second, now)));
    assert_eq!(desk.lab.control.next_expiry(), Some(now + second));
    desk.lab.now += Duration::from_millis(999);
    desk.lab.commit();
    assert_ne!(desk.lab.action("192.0.2.1"), ForwardingAction::NoRoute);
    // Put anew it lives longer, and without an end it stays.
    put(&mut desk, Operation::REPLACE, Some((3 * second, now)));
    desk.lab.now = now + 2 * second;
    desk.lab.commit();
    assert_eq!(desk.paths(P).len(), 1);
    let since = desk.lab.control.sequence();
    desk.lab.now = now + 3 * second;
    desk.lab.commit();
    assert_eq!(desk.lab.action("192.0.2.1"), ForwardingAction::NoRoute);
    assert_eq!(desk.logged(since), [(Done::Deleted, P.to_owned())]);
    let now = desk.lab.now;
    put(&mut desk, Operation::ADD, Some((second, now)));
    put(&mut desk, Operation::REPLACE, None);
    assert_eq!(desk.lab.control.next_expiry(), None);
    put(&mut desk, Operation::REPLACE, Some((second, now)));
    desk.delete(P, &Paths::All).unwrap();
    assert_eq!(desk.lab.control.next_expiry(), None);
}

/// Adds a path for so many seconds from now, or for ever.
fn path_for(desk: &mut Desk, op: Operation, gateway: &str, seconds: Option<u64>) -> Outcome {
    let life = seconds.map(|seconds| (Duration::from_secs(seconds), desk.lab.now));
    let key = key_of(MAIN_TABLE, P);
    desk.lab.control.put_route(desk.me, key, op, &via(gateway), None, life).unwrap()
}

/// test_rtnl_route.py: a member of a group expires, and the others stay.
#[test]
fn a_path_that_expires_goes_alone_and_the_others_keep_their_flows() {
    let mut desk = desk();
    let [stays, first, second] = ["10.0.1.7", "10.0.2.8", "10.0.2.9"];
    path_for(&mut desk, Operation::ADD, stays, None);
    path_for(&mut desk, Operation::APPEND, first, Some(2));
    path_for(&mut desk, Operation::APPEND, second, Some(5));
    desk.lab.commit();
    let start = desk.lab.now;
    let flows = |desk: &mut Desk| -> Vec<ForwardingAction> {
        (0..256).map(|flow| desk.lab.action_of_flow("192.0.2.1", flow)).collect()
    };
    let action = |desk: &Desk, gateway: &str| {
        let hops = desk.lab.control.next_hops();
        let gateway = gateway.parse().unwrap();
        let mut of = [LEFT, RIGHT].into_iter().flat_map(|link| hops.adjacencies_of(link, gateway));
        of.next().map(ForwardingAction::Adjacency).expect("some group leaves by it")
    };
    let [action_stays, action_first, action_second] =
        [stays, first, second].map(|g| action(&desk, g));
    let before = flows(&mut desk);
    for action in [action_stays, action_first, action_second] {
        assert!(before.iter().filter(|l| **l == action).count() >= 80, "a third each: {before:?}");
    }
    assert_eq!(desk.lab.control.next_expiry(), Some(start + Duration::from_secs(2)));
    desk.lab.now = start + Duration::from_millis(1999);
    desk.lab.commit();
    assert_eq!(desk.paths(P).len(), 3);

    // One change, and no route is deleted.
    let since = desk.lab.control.sequence();
    desk.lab.now = start + Duration::from_secs(2);
    desk.lab.commit();
    assert_eq!(desk.paths(P), [(stays.into(), 1), (second.into(), 1)].into());
    let mut told = desk.lab.control.notices(since).unwrap().filter_map(|n| match &n.what {
        Happened::Route { done, old, new, best, .. } => Some((*done, old, new, *best)),
        _ => None,
    });
    let (done, old, new, best) = told.next().unwrap();
    let count = |key: &Option<std::sync::Arc<HopKey>>| key.as_ref().unwrap().paths().len();
    assert_eq!((done, count(old), count(new), best), (Done::Changed, 3, 2, true));
    assert_eq!(told.count(), 0);
    for (before, after) in before.iter().zip(flows(&mut desk)) {
        let moved = *before == action_first;
        assert!(
            if moved { after != action_first } else { after == *before },
            "{before:?}, {after:?}"
        );
    }

    // The last two: a single path is left, and it has no end.
    desk.lab.now = start + Duration::from_secs(5);
    desk.lab.commit();
    assert!(flows(&mut desk).iter().all(|action| *action == action_stays));
    assert_eq!(desk.paths(P), [(stays.into(), 1)].into());
    assert_eq!(desk.lab.control.next_expiry(), None);
    let changed = (Done::Changed, P.to_owned());
    assert_eq!(desk.logged(since), [changed.clone(), changed]);
}

#[test]
fn paths_that_end_together_are_one_change_and_the_last_ones_take_the_route_along() {
    let mut desk = desk();
    let both = paths(&[("10.0.1.7", 1), ("10.0.2.8", 2)]);
    let key = key_of(MAIN_TABLE, P);
    let life = Some((Duration::from_secs(3), desk.lab.now));
    desk.lab.control.put_route(desk.me, key, Operation::ADD, &both, None, life).unwrap();
    path_for(&mut desk, Operation::APPEND, "10.0.1.9", Some(1));
    let since = desk.lab.control.sequence();
    desk.lab.now += Duration::from_secs(1);
    desk.lab.commit();
    assert_eq!(desk.paths(P), [("10.0.1.7".into(), 1), ("10.0.2.8".into(), 2)].into());
    desk.lab.now += Duration::from_secs(2);
    desk.lab.commit();
    assert_eq!(desk.logged(since), [(Done::Changed, P.into()), (Done::Deleted, P.into())]);
    assert_eq!(desk.lab.action("192.0.2.1"), ForwardingAction::NoRoute);
    assert_eq!(desk.lab.control.next_expiry(), None);
}

/// A path has the lifetime that was set last.
#[test]
fn an_end_is_of_the_path_and_not_of_the_route() {
    let mut desk = desk();
    let (a, b, c) = ("10.0.1.7", "10.0.2.8", "10.0.1.9");
    let key = key_of(MAIN_TABLE, P);
    let start = desk.lab.now;
    let ends = |desk: &Desk| -> Vec<Option<u64>> {
        let paths = desk.lab.control.present(desk.me, &key);
        let paths = paths.map_or(Vec::new(), |hop| desk.lab.control.paths(hop));
        let end = |path: &Path| desk.lab.control.ends().of(desk.me.0, key, Some(path));
        paths.iter().map(|path| end(path).map(|at| (at - start).as_secs())).collect()
    };
    path_for(&mut desk, Operation::ADD, a, Some(10));
    path_for(&mut desk, Operation::APPEND, b, None);
    path_for(&mut desk, Operation::APPEND, c, Some(30));
    // By gateway: a, c, b.
    assert_eq!(ends(&desk), [Some(10), Some(30), None]);
    // Changed, one of several gets another end, or none.
    path_for(&mut desk, Operation::CHANGE, b, Some(20));
    path_for(&mut desk, Operation::CHANGE, a, None);
    assert_eq!(ends(&desk), [None, Some(30), Some(20)]);
    // What is refused changes no end.
    let life = Some((Duration::from_secs(1), start));
    let refused = desk.lab.control.put_route(desk.me, key, Operation::APPEND, &via(c), None, life);
    assert_eq!(refused.unwrap_err().code(), "exists");
    assert_eq!(ends(&desk), [None, Some(30), Some(20)]);
    // Deleted and appended again, it has no end.
    desk.delete(P, &named(c)).unwrap();
    path_for(&mut desk, Operation::APPEND, c, None);
    assert_eq!(ends(&desk), [None, None, Some(20)]);
    // A replaced route has the new lifetime alone.
    path_for(&mut desk, Operation::REPLACE, c, Some(40));
    assert_eq!((desk.paths(P).len(), ends(&desk)), (1, vec![Some(40)]));
    let blackhole = Target::Blackhole;
    desk.lab.control.put_route(desk.me, key, Operation::REPLACE, &blackhole, None, life).unwrap();
    let end = desk.lab.control.ends().of(desk.me.0, key, None);
    assert_eq!((end, desk.lab.control.next_expiry()), (Some(start + Duration::from_secs(1)), end));
    desk.lab.now += Duration::from_secs(1);
    desk.lab.commit();
    assert_eq!(desk.lab.action("192.0.2.1"), ForwardingAction::NoRoute);
    assert_eq!(desk.lab.control.next_expiry(), None);
}

#[test]
fn notices_are_numbered_and_can_be_resumed() {
    let mut desk = desk();
    let since = desk.lab.control.sequence();
    desk.put(Operation::ADD, P, &via("10.0.1.9")).unwrap();
    desk.put(Operation::REPLACE, P, &via("10.0.1.9")).unwrap();
    desk.lab.commit();
    desk.put(Operation::APPEND, P, &via("10.0.2.9")).unwrap();
    let all: Vec<Notice> = desk.lab.control.notices(since).unwrap().cloned().collect();
    assert!(all.iter().map(|n| n.sequence).eq(since + 1..=desk.lab.control.sequence()));
    let routes =
        |of: &[Notice]| of.iter().filter(|n| matches!(n.what, Happened::Route { .. })).count();
    assert_eq!(routes(&all), 2, "a repeated route is no change");
    assert!(all.iter().any(|n| matches!(n.what, Happened::Visible(_))));
    let Some(Notice { what: Happened::Route { done, old, new, best, .. }, sequence, .. }) =
        all.last()
    else {
        panic!("the last one is the change")
    };
    assert_eq!((*done, *best), (Done::Changed, true));
    assert!(matches!(old.as_deref(), Some(HopKey::Path(_))));
    assert!(matches!(new.as_deref(), Some(HopKey::Group(paths)) if paths.len() == 2));
    assert_eq!(desk.lab.control.notices(*sequence).unwrap().count(), 0);
    assert_eq!(desk.lab.control.notices(sequence - 1).unwrap().count(), 1);
    let ahead = desk.lab.control.notices(sequence + 1).map(Iterator::count);
    assert!(ahead.is_err(), "a number of another run");
    for i in 0..70_000u32 {
        let target = if i % 2 == 0 { via("10.0.1.9") } else { via("10.0.2.9") };
        desk.put(Operation::REPLACE, P, &target).unwrap();
    }
    let gap = desk.lab.control.notices(since).map(Iterator::count).unwrap_err();
    assert_eq!(gap.wanted, since);
    let oldest = gap.oldest;
    let kept = desk.lab.control.notices(oldest - 1).unwrap().count();
    assert_eq!(kept, 65_536, "from the oldest on");
}

proptest! {
    /// What a snapshot gives is what was there when it was opened, whatever changes meanwhile; with the
    /// notices since then it becomes what is there at the end.
    #[test]
    fn a_snapshot_is_of_one_moment(
        before in proptest::collection::vec((0u32..24, 24u8..=28), 0..40),
        steps in proptest::collection::vec(
            (0u32..24, 24u8..=28, 0u8..3, any::<bool>(), 0usize..4), 0..60),
        within in proptest::option::of((0u32..24, 20u8..=28)),
    ) {
        let mut desk = desk();
        let prefix = |addr: u32, len| Prefix::<u32>::masked(0xc000_0200 | addr << 4, len);
        let key = |p| RouteKey { table: MAIN_TABLE, prefix: AnyPrefix::V4(p), metric: 0 };
        let me = desk.me;
        for (addr, len) in before {
            let p = key(prefix(addr, len));
            let target = via("10.0.1.9");
            desk.lab.control.put_route(me, p, Operation::REPLACE, &target, None, None).unwrap();
        }
        let within = within.map(|(addr, len)| prefix(addr, len));
        let inside = |p: &Prefix<u32>| within.is_none_or(|w| w.covers(*p));
        let state = |control: &Control| -> Vec<(Prefix<u32>, Candidate)> {
            let of = |(p, _)| control.rib_v4().of(p).map(move |c| (p, c)).collect::<Vec<_>>();
            control.rib_v4().iter().filter(|(p, _)| inside(p)).flat_map(of).collect()
        };
        let want = state(&desk.lab.control);
        let control = &mut desk.lab.control;
        let id = control.open_snapshot(MAIN_TABLE, 4, within.map(AnyPrefix::V4)).unwrap();
        let mut got = Vec::new();
        let mut open = true;
        for (addr, len, what, fetch, most) in steps {
            let p = key(prefix(addr, len));
            let control = &mut desk.lab.control;
            match what {
                0 => drop(control.delete_route(me, p, &Paths::All)),
                1 => drop(control.put_route(me, p, Operation::REPLACE, &via("10.0.2.9"), None, None)),
                _ => drop(control.put_route(me, p, Operation::APPEND, &via("10.0.1.8"), None, None)),
            }
            desk.lab.control.commit(desk.lab.now).unwrap();
            if fetch && open {
                open = desk.lab.control.read_snapshot(id, most, &mut |_, row| {
                    let AnyPrefix::V4(p) = row.prefix else { panic!("IPv4") };
                    got.push((p, row.candidate));
                }).unwrap();
            }
        }
        while open {
            open = desk.lab.control.read_snapshot(id, 3, &mut |view, row| {
                let AnyPrefix::V4(p) = row.prefix else { panic!("IPv4") };
                assert!(view.hops.key(row.candidate.hop).is_some(), "an id in use");
                got.push((p, row.candidate));
            }).unwrap();
        }
        prop_assert_eq!(got, want);
        let again = desk.lab.control.read_snapshot(id, 1, &mut |_, _| {});
        prop_assert_eq!(again, Err(SnapshotError::Unknown));
    }
}

#[test]
fn a_group_of_groups_is_refused_and_the_rest_stays() {
    let mut desk = desk();
    let object = |id, target| RouteEvent::NextHop(crate::event::NextHopUpdate { id, target });
    let path = Path { gateway: Some("10.0.1.9".parse().unwrap()), link: Some(LEFT), weight: 1 };
    desk.lab.event(object(1, crate::event::ObjectTarget::Path(path)));
    desk.lab.event(object(2, crate::event::ObjectTarget::Group(vec![(1, 1)])));
    desk.lab.route(P, Target::Object(2));
    for members in [vec![(2, 1)], vec![(1, 1), (2, 1)]] {
        for id in [2, 3] {
            desk.lab.event(object(id, crate::event::ObjectTarget::Group(members.clone())));
        }
    }
    desk.lab.commit();
    assert_eq!(desk.lab.adjacency("192.0.2.1").port, desk.lab.port("left"), "as it was");
    let kernel = desk.lab.control.sources().find(|source| source.name == "kernel").unwrap();
    assert_eq!(kernel.refused, 4);
    assert!(kernel.last_refusal.contains("is a group itself"), "{}", kernel.last_refusal);
}

/// An equal path at a greater distance: another route is the best now, and there is a notice.
#[test]
fn a_change_of_distance_alone_is_a_change() {
    let mut desk = desk();
    let key = key_of(MAIN_TABLE, P);
    let log = |desk: &mut Desk, distance| {
        let since = desk.lab.control.sequence();
        let target = via("10.0.1.9");
        let update = RouteUpdate { distance: Some(distance), ..RouteUpdate::new(key, target) };
        desk.lab.event(RouteEvent::Route(update));
        desk.logged(since)
    };
    assert_eq!(log(&mut desk, 0), [(Done::Added, P.to_owned())]);
    desk.put(Operation::ADD, P, &via("10.0.2.9")).unwrap();
    assert_eq!(log(&mut desk, 0), []);
    assert_eq!(log(&mut desk, 200), [(Done::Changed, P.to_owned())]);
    desk.lab.commit();
    assert_eq!(desk.lab.adjacency("192.0.2.1").port, desk.lab.port("right"));
}

#[test]
fn snapshots_are_few_and_leave_nothing_behind() {
    let mut desk = desk();
    desk.put(Operation::ADD, P, &via("10.0.1.9")).unwrap();
    let hops = desk.lab.control.next_hops().len();
    let open = |desk: &mut Desk| desk.lab.control.open_snapshot(MAIN_TABLE, 4, None);
    let ids: Vec<SnapshotId> = (0..64).map(|_| open(&mut desk).unwrap()).collect();
    assert_eq!(open(&mut desk), Err(SnapshotError::TooMany));
    let control = &mut desk.lab.control;
    assert_eq!(control.open_snapshot(7, 4, None), Err(SnapshotError::NoTable(7)));
    desk.delete(P, &Paths::All).unwrap();
    assert_eq!(desk.lab.control.next_hops().len(), hops, "still to be given");
    ids.into_iter().for_each(|id| desk.lab.control.close_snapshot(id));
    desk.lab.commit();
    assert_eq!(desk.lab.control.next_hops().len(), hops - 1);
}

#[test]
fn snapshots_remember_only_so_much_alone_and_together() {
    let mut desk = desk();
    let change = |desk: &mut Desk, count: u32, octet: u32| {
        for at in 0..count {
            let addr = std::net::Ipv4Addr::from_bits(0x0a00_0000 | octet << 16 | at << 8);
            desk.put(Operation::REPLACE, &format!("{addr}/24"), &via("10.0.1.9")).unwrap();
        }
    };
    let read = |desk: &mut Desk, id| {
        let mut rows = 0;
        let done = desk.lab.control.read_snapshot(id, 1000, &mut |_, _| rows += 1);
        done.map(|more| (more, rows))
    };
    let open = |desk: &mut Desk| desk.lab.control.open_snapshot(MAIN_TABLE, 4, None).unwrap();
    change(&mut desk, 1, 0);
    let hops = desk.lab.control.next_hops().len();
    let all = open(&mut desk);
    let there = read(&mut desk, all).unwrap().1;
    // 256 of one, 512 of all: in the test.
    let ids: Vec<SnapshotId> = (0..3).map(|_| open(&mut desk)).collect();
    change(&mut desk, 200, 1);
    let done: Vec<_> = ids.into_iter().map(|id| read(&mut desk, id)).collect();
    let outrun = done.iter().filter(|done| **done == Err(SnapshotError::Outrun)).count();
    let whole = done.iter().filter(|done| **done == Ok((false, there))).count();
    assert_eq!((outrun, whole), (1, 2), "{done:?}");
    let id = open(&mut desk);
    change(&mut desk, 256, 2);
    assert_eq!(read(&mut desk, id), Ok((false, there + 200)));
    let id = open(&mut desk);
    change(&mut desk, 200, 3);
    change(&mut desk, 57, 4);
    assert_eq!(read(&mut desk, id), Err(SnapshotError::Outrun));
    assert_eq!(desk.lab.control.next_hops().len(), hops);
}

#[test]
fn a_route_of_one_address_to_a_link_is_deleted_as_it_was_added() {
    let mut desk = desk();
    let path = Path { gateway: None, link: Some(RIGHT), weight: 1 };
    let prefix = "203.0.113.7/32";
    let added = desk.put(Operation::ADD, prefix, &Target::Path(path));
    assert_eq!(added, Ok(Done::Added));
    assert_eq!(desk.delete(prefix, &Paths::Named(vec![path])), Ok(Done::Deleted));
}
