//! The control side from outside: events in, forwarding actions out.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::event::*;
use crate::forwarding::ResolveRequest;
use crate::hops::{Adjacency, ForwardingAction};
use crate::nexthop::AdjacencyKey;

pub(super) const LEFT: u32 = 2;
pub(super) const RIGHT: u32 = 3;

pub(super) struct Lab {
    pub(super) control: Control,
    kernel: SourceId,
    pub(super) reader: Reader<Forwarding>,
    pub(super) now: Instant,
}

pub(super) fn lab() -> Lab {
    let mut control = Control::new(ControlOptions {
        v4: fingerpost_lpm::registry::v4().collect(),
        v6: fingerpost_lpm::registry::v6().collect(),
        connected_from_addresses: true,
    })
    .unwrap();
    let kernel = control.add_source("kernel", 0);
    let reader = control.reader();
    let mut lab = Lab { control, kernel, reader, now: Instant::now() };
    lab.link(1, LinkState { loopback: true, ..up("lo") });
    lab.link(LEFT, up("left"));
    lab.link(RIGHT, up("right"));
    lab.address(LEFT, "10.0.1.1", 24, false);
    lab.address(RIGHT, "10.0.2.1", 24, false);
    lab.address(RIGHT, "2001:db8:2::1", 64, false);
    lab
}

pub(super) fn up(name: &str) -> LinkState {
    let mac = Some(Mac([2, 0, 0, 0, 0, u8::try_from(name.len()).unwrap()]));
    LinkState { name: name.into(), up: true, mtu: 1500, mac, ..LinkState::default() }
}

pub(super) fn via(gateway: &str) -> Target {
    Target::Path(Path { gateway: Some(gateway.parse().unwrap()), link: None, weight: 1 })
}

pub(super) fn mac(last: u8) -> Mac {
    Mac([2, 9, 9, 9, 9, last])
}

impl Lab {
    pub(super) fn event(&mut self, event: RouteEvent) {
        self.control.handle(self.kernel, event);
    }
    pub(super) fn link(&mut self, link: u32, state: LinkState) {
        self.event(RouteEvent::Link(LinkUpdate { link, state: Some(state) }));
    }
    pub(super) fn address(&mut self, link: u32, addr: &str, prefix_len: u8, gone: bool) {
        let addr = addr.parse().unwrap();
        let update = AddressUpdate { gone, ..AddressUpdate::new(link, addr, prefix_len) };
        self.event(RouteEvent::Address(update));
    }
    pub(super) fn neighbor(&mut self, link: u32, addr: &str, state: NeighborState) {
        let addr = addr.parse().unwrap();
        self.event(RouteEvent::Neighbor(NeighborUpdate { link, addr, state }));
    }
    fn key(prefix: &str, metric: u32) -> RouteKey {
        RouteKey { table: MAIN_TABLE, prefix: AnyPrefix::parse(prefix).unwrap(), metric }
    }
    pub(super) fn route(&mut self, prefix: &str, target: Target) {
        let key = Self::key(prefix, 0);
        let update = RouteUpdate::new(key, target);
        self.event(RouteEvent::Route(update));
    }
    pub(super) fn withdraw(&mut self, prefix: &str) {
        self.event(RouteEvent::Withdraw(Self::key(prefix, 0)));
    }
    /// A commit that applies every change: on a busy machine they look expensive, and would wait for a batch.
    pub(super) fn commit(&mut self) -> Committed {
        self.control.flush();
        self.control.commit(self.now).unwrap()
    }
    pub(super) fn action(&mut self, addr: &str) -> ForwardingAction {
        self.action_of_flow(addr, 0)
    }
    pub(super) fn action_of_flow(&mut self, addr: &str, hash: u32) -> ForwardingAction {
        let forwarding = self.reader.pin();
        let hop = match addr.parse().unwrap() {
            IpAddr::V4(a) => forwarding.v4.lookup(a.to_bits()),
            IpAddr::V6(a) => forwarding.v6.lookup(a.to_bits()),
        };
        // A group's slot is the upper bits of the hash: flows 0 to 255 come by all of them.
        forwarding.hops.action(hop, hash << 24)
    }
    pub(super) fn adjacency(&mut self, addr: &str) -> Adjacency {
        match self.action(addr) {
            ForwardingAction::Adjacency(index) => self.reader.pin().hops.adjacency(index),
            other => panic!("{addr} leaves by {other:?}"),
        }
    }
    pub(super) fn port(&self, name: &str) -> u16 {
        self.control.links().find(|(_, _, state)| state.name == name).unwrap().1
    }
}

#[test]
fn adjacencies_are_let_go_of_before_their_indices_are_reused() {
    let mut lab = lab();
    lab.neighbor(LEFT, "10.0.1.9", NeighborState::Reachable(mac(1)));
    lab.commit();
    let neighbor = Some("10.0.1.9".parse().unwrap());
    let key = AdjacencyKey { link: LEFT, neighbor, mtu: 0 };
    let index = lab.control.next_hops().adjacency(key).expect("the host route leaves by it");
    lab.neighbor(LEFT, "10.0.1.9", NeighborState::Gone);
    lab.address(LEFT, "10.0.1.1", 24, true);
    // Nobody is waited for.
    let Lab { mut control, now, .. } = lab;
    let mut seen = Vec::new();
    control.flush();
    let look = |hops: &NextHops| {
        seen.push((hops.adjacency(key), hops.table().adjacency(index).resolved()));
    };
    control.commit_with(now, look).unwrap();
    assert_eq!(seen, [(None, true)], "gone, and not free yet");
    assert!(!control.next_hops().table().adjacency(index).resolved(), "free after that");
}

#[test]
fn a_route_reaches_its_neighbor_step_by_step() {
    let mut lab = lab();
    lab.route("192.0.2.0/24", via("10.0.2.9"));
    lab.commit();
    assert!(!lab.adjacency("192.0.2.1").resolved());
    let ForwardingAction::Adjacency(index) = lab.action("192.0.2.1") else {
        panic!("not an adjacency")
    };
    lab.control.resolve(ResolveRequest::Adjacency(index), lab.now);
    let want = NeighborRequest { link: RIGHT, addr: "10.0.2.9".parse().unwrap() };
    assert_eq!(lab.control.take_requests(), [want]);
    lab.neighbor(RIGHT, "10.0.2.9", NeighborState::Reachable(mac(9)));
    let right = lab.port("right");
    let resolved = Adjacency { dst: mac(9), src: up("right").mac.unwrap(), port: right, mtu: 1500 };
    assert_eq!(lab.adjacency("192.0.2.1"), resolved, "at once, without a commit");
    lab.neighbor(RIGHT, "10.0.2.9", NeighborState::Failed);
    lab.commit();
    lab.now += Duration::from_millis(20);
    lab.commit();
    assert!(lab.adjacency("192.0.2.1").failed(), "it is no deletion, which two messages report");
    assert_eq!(lab.action("10.0.1.1"), ForwardingAction::Local);
    assert_eq!(lab.action("203.0.113.1"), ForwardingAction::NoRoute);
    lab.withdraw("192.0.2.0/24");
    lab.commit();
    assert_eq!(lab.action("192.0.2.1"), ForwardingAction::NoRoute);
}

#[test]
fn the_connected_prefix_is_that_of_the_other_end_or_none() {
    let mut lab = lab();
    let [addr, other] = ["10.7.0.1", "10.8.0.2"].map(|text| text.parse().unwrap());
    let with =
        |peer, no_prefix| AddressUpdate { peer, no_prefix, ..AddressUpdate::new(RIGHT, addr, 24) };
    // Near the own address, and near the other end's.
    let near = |lab: &mut Lab, update| {
        lab.event(RouteEvent::Address(update));
        lab.commit();
        assert_eq!(lab.action("10.7.0.1"), ForwardingAction::Local);
        ["10.7.0.9", "10.8.0.9"].map(|addr| lab.action(addr) != ForwardingAction::NoRoute)
    };
    let gone = |peer| AddressUpdate { gone: true, ..with(peer, false) };
    assert_eq!(near(&mut lab, with(None, false)), [true, false]);
    // The kernel has both.
    assert_eq!(near(&mut lab, with(Some(other), false)), [true, true]);
    assert_eq!(near(&mut lab, gone(None)), [false, true]);
    assert_eq!(near(&mut lab, with(Some(other), true)), [false, false]);
    assert_eq!(near(&mut lab, with(None, true)), [false, false]);
    assert_eq!(near(&mut lab, with(None, false)), [true, false]);
}

#[test]
fn hosts_on_a_link_become_host_routes_where_nothing_longer_leads_elsewhere() {
    let mut lab = lab();
    lab.commit();
    let right = lab.port("right");
    assert_eq!(lab.action("10.0.2.50"), ForwardingAction::Glean(right));
    let addr = "10.0.2.50".parse().unwrap();
    lab.control.resolve(ResolveRequest::Neighbor { port: right, addr, ingress: 0 }, lab.now);
    lab.commit();
    assert_eq!(
        lab.action("10.0.2.50"),
        ForwardingAction::Glean(right),
        "packets wait until there is an answer"
    );
    assert_eq!(lab.control.take_requests(), [NeighborRequest { link: RIGHT, addr }]);
    lab.neighbor(RIGHT, "10.0.2.50", NeighborState::Reachable(mac(5)));
    lab.commit();
    assert_eq!(lab.adjacency("10.0.2.50").dst, mac(5));
    // A longer route that leads elsewhere hides the host, and gives it back.
    lab.route("10.0.2.48/28", via("10.0.1.7"));
    lab.commit();
    assert_eq!(lab.adjacency("10.0.2.50").port, lab.port("left"));
    lab.withdraw("10.0.2.48/28");
    lab.commit();
    assert_eq!(lab.adjacency("10.0.2.50").dst, mac(5));
    // A neighbor entry of the wrong link leads nowhere.
    lab.neighbor(LEFT, "10.0.2.51", NeighborState::Reachable(mac(6)));
    lab.commit();
    assert_eq!(lab.action("10.0.2.51"), ForwardingAction::Glean(right));
    lab.neighbor(RIGHT, "10.0.2.50", NeighborState::Gone);
    lab.commit();
    assert_eq!(lab.adjacency("10.0.2.50").dst, mac(5), "until its use would show");
    lab.now += Duration::from_secs(5);
    lab.commit();
    assert_eq!(lab.action("10.0.2.50"), ForwardingAction::Glean(right));
}

#[test]
fn silent_hosts_are_forgotten_after_a_while() {
    let mut lab = lab();
    lab.commit();
    let right = lab.port("right");
    let addr = "10.0.2.66".parse().unwrap();
    lab.control.resolve(ResolveRequest::Neighbor { port: right, addr, ingress: 0 }, lab.now);
    lab.commit();
    lab.neighbor(RIGHT, "10.0.2.66", NeighborState::Failed);
    lab.commit();
    assert!(lab.adjacency("10.0.2.66").failed(), "senders get ICMP errors meanwhile");
    lab.now += Duration::from_secs(6);
    lab.commit();
    assert_eq!(lab.action("10.0.2.66"), ForwardingAction::Glean(right));
}

#[test]
fn a_sweep_of_a_subnet_is_bounded() {
    let mut lab = lab();
    lab.commit();
    let port = lab.port("right");
    let host = |i: u128| IpAddr::V6((0x2001_0db8_0002u128 << 80 | 1 << 32 | i).into());
    for i in 0..5000 {
        lab.control.resolve(ResolveRequest::Neighbor { port, addr: host(i), ingress: 0 }, lab.now);
    }
    lab.commit();
    let requests = lab.control.take_requests();
    assert_eq!(requests.len(), 768, "what made room is not requested");
    assert_eq!(lab.control.take_forgotten().len(), 5000 - 768, "the kernel forgets it as well");
    assert!(lab.control.rib_v6().len() <= 10, "and no host has a route before it replies");
    assert!(requests.iter().any(|request| request.addr == host(4999)), "the last one is requested");
}

/// A sweep of 5,000 random hosts a second, and every 30 ms a host that takes 30 ms to answer.
#[test]
fn hosts_are_found_beside_a_sweep() {
    for ingress in [0, 1] {
        let mut lab = lab();
        lab.commit();
        let port = lab.port("right");
        let nobody = |i: u128| IpAddr::V6((0x2001_0db8_0002u128 << 80 | 1 << 32 | i).into());
        let host = |i: u128| IpAddr::V6((0x2001_0db8_0002u128 << 80 | 2 << 32 | i).into());
        let (mut swept, mut found) = (0, 0);
        for i in 0..40 {
            lab.control.resolve(ResolveRequest::Neighbor { port, addr: host(i), ingress }, lab.now);
            for _ in 0..15 {
                for _ in 0..10 {
                    swept += 1;
                    lab.control.resolve(
                        ResolveRequest::Neighbor { port, addr: nobody(swept), ingress: 0 },
                        lab.now,
                    );
                }
                lab.now += Duration::from_millis(2);
            }
            // The kernel got a request, and none to forget it again.
            let is_it = |request: &NeighborRequest| request.addr == host(i);
            let asked = lab.control.take_requests().iter().any(is_it);
            let forgotten = lab.control.take_forgotten().iter().any(is_it);
            found += usize::from(asked && !forgotten);
            lab.commit();
        }
        println!("{found} of 40 by ingress {ingress}, beside {swept}");
        assert!(found >= if ingress == 0 { 35 } else { 40 }, "{found} of 40");
    }
}

#[test]
fn a_link_that_goes_down_moves_groups_and_not_routes() {
    let mut lab = lab();
    let paths = [("10.0.1.9", 1), ("10.0.2.9", 3)].map(|(gateway, weight)| Path {
        gateway: Some(gateway.parse().unwrap()),
        link: None,
        weight,
    });
    lab.route("192.0.2.0/24", Target::Paths(paths.to_vec()));
    lab.neighbor(LEFT, "10.0.1.9", NeighborState::Reachable(mac(1)));
    lab.neighbor(RIGHT, "10.0.2.9", NeighborState::Reachable(mac(2)));
    lab.commit();
    let mut seen = BTreeMap::new();
    for hash in 0..256 {
        let action = lab.action_of_flow("192.0.2.1", hash);
        let ForwardingAction::Adjacency(index) = action else { panic!("{action:?}") };
        let port = lab.reader.pin().hops.adjacency(index).port;
        *seen.entry(port).or_insert(0) += 1;
    }
    assert_eq!(seen, [(lab.port("left"), 64), (lab.port("right"), 192)].into());
    lab.link(RIGHT, LinkState { up: false, ..up("right") });
    let done = lab.commit();
    for hash in 0..256 {
        let action = lab.action_of_flow("192.0.2.1", hash);
        let ForwardingAction::Adjacency(index) = action else { panic!("{action:?}") };
        assert_eq!(lab.reader.pin().hops.adjacency(index).dst, mac(1));
    }
    assert_eq!(done.changes, 1, "the host behind the link alone");
    lab.link(RIGHT, up("right"));
    lab.commit();
    let actions: HashSet<ForwardingAction> =
        (0..256).map(|hash| lab.action_of_flow("192.0.2.1", hash)).collect();
    assert_eq!(actions.len(), 2);
}

#[test]
fn objects_change_their_routes_in_place_and_take_them_along() {
    let mut lab = lab();
    let path = |gateway: &str| {
        ObjectTarget::Path(Path {
            gateway: Some(gateway.parse().unwrap()),
            link: Some(RIGHT),
            weight: 1,
        })
    };
    lab.neighbor(RIGHT, "10.0.2.8", NeighborState::Reachable(mac(8)));
    lab.neighbor(RIGHT, "10.0.2.9", NeighborState::Stale(mac(9)));
    lab.route("192.0.2.0/24", Target::Object(7));
    lab.route("198.51.100.0/24", Target::Object(7));
    lab.commit();
    assert_eq!(lab.action("192.0.2.1"), ForwardingAction::Unreachable, "not announced yet");
    lab.event(RouteEvent::NextHop(NextHopUpdate { id: 7, target: path("10.0.2.8") }));
    assert_eq!(lab.commit().changes, 0, "no route changed");
    assert_eq!(lab.adjacency("192.0.2.1").dst, mac(8));
    lab.event(RouteEvent::NextHop(NextHopUpdate { id: 7, target: path("10.0.2.9") }));
    lab.commit();
    assert_eq!(lab.adjacency("198.51.100.1").dst, mac(9));
    lab.event(RouteEvent::NextHopGone(7));
    assert_eq!(lab.commit().changes, 2);
    assert_eq!(lab.action("192.0.2.1"), ForwardingAction::NoRoute);
}

#[test]
fn a_resync_removes_what_is_not_repeated() {
    let mut lab = lab();
    lab.route("192.0.2.0/24", via("10.0.2.9"));
    lab.route("198.51.100.0/24", via("10.0.2.9"));
    lab.neighbor(RIGHT, "10.0.2.9", NeighborState::Reachable(mac(9)));
    lab.neighbor(RIGHT, "10.0.2.8", NeighborState::Reachable(mac(8)));
    lab.commit();
    lab.event(RouteEvent::StartOfTable);
    lab.link(1, LinkState { loopback: true, ..up("lo") });
    lab.link(RIGHT, up("right"));
    lab.address(RIGHT, "10.0.2.1", 24, false);
    lab.neighbor(RIGHT, "10.0.2.9", NeighborState::Reachable(mac(9)));
    lab.route("198.51.100.0/24", via("10.0.2.9"));
    lab.commit();
    assert_eq!(lab.adjacency("192.0.2.1").dst, mac(9), "nothing goes before the dump is over");
    lab.event(RouteEvent::EndOfTable);
    lab.commit();
    assert_eq!(lab.action("192.0.2.1"), ForwardingAction::NoRoute);
    assert_eq!(lab.adjacency("198.51.100.1").dst, mac(9));
    lab.now += Duration::from_secs(5);
    lab.commit();
    assert_eq!(lab.action("10.0.2.8"), ForwardingAction::Glean(lab.port("right")));
    assert_eq!(
        lab.action("10.0.1.1"),
        ForwardingAction::NoRoute,
        "the left link is gone with its address"
    );
    assert_eq!(lab.control.links().count(), 2);
}

#[test]
fn a_route_that_is_refused_takes_the_place_of_the_one_before() {
    let mut lab = lab();
    lab.route("192.0.2.0/24", via("10.0.1.9"));
    assert!(lab.control.has_key(lab.kernel, &Lab::key("192.0.2.0/24", 0)));
    lab.route("192.0.2.0/24", Target::Path(Path { gateway: None, link: None, weight: 1 }));
    assert_eq!(lab.control.source(lab.kernel).refused, 1);
    assert!(!lab.control.has_key(lab.kernel, &Lab::key("192.0.2.0/24", 0)));
    // Paths that are added to a route leave it as it is.
    lab.route("192.0.2.0/24", via("10.0.1.9"));
    let none = Target::Path(Path { gateway: None, link: None, weight: 1 });
    let update = RouteUpdate::new(Lab::key("192.0.2.0/24", 0), none);
    lab.event(RouteEvent::Route(RouteUpdate { append: true, ..update }));
    assert_eq!(lab.control.source(lab.kernel).refused, 2);
    assert!(lab.control.has_key(lab.kernel, &Lab::key("192.0.2.0/24", 0)));
}

#[test]
fn a_source_has_no_more_routes_and_tables_than_its_limits() {
    let mut lab = lab();
    let source = lab.control.add_source("fpm", 20);
    lab.control.note_refusals(source);
    lab.control.limit(source, SourceLimits { routes: 3, tables: 2 });
    let before = lab.control.tables().len();
    let key = |table, prefix| RouteKey { table, ..Lab::key(prefix, 0) };
    let mut set = |key, target| {
        lab.control.handle(source, RouteEvent::Route(RouteUpdate::new(key, target)));
        let refused = lab.control.take_refusals(source);
        let report = lab.control.source(source);
        (refused, report.routes, report.last_refusal.clone())
    };
    // Refused for another reason: its table is there.
    let (nowhere, tables) =
        (Target::Path(Path { gateway: None, link: None, weight: 1 }), [101, 102]);
    assert_eq!(set(key(101, "192.0.2.0/24"), nowhere).1, 0);
    for (count, table) in (1..).zip(tables) {
        assert_eq!(set(key(table, "192.0.2.0/24"), Target::Blackhole).1, count);
    }
    let beyond = key(103, "192.0.2.0/24");
    let why = "192.0.2.0/24: a table too many (the limit is max_tables)";
    assert_eq!(set(beyond, Target::Blackhole), (vec![beyond], 2, why.to_owned()));
    assert_eq!(set(key(101, "198.51.100.0/24"), Target::Blackhole).1, 3);
    let beyond = key(MAIN_TABLE, "203.0.113.0/24");
    let why = "203.0.113.0/24: a route too many (the limit is max_prefixes)";
    assert_eq!(set(beyond, Target::Blackhole), (vec![beyond], 3, why.to_owned()));
    // What is there may change, and what goes makes room.
    assert_eq!(set(key(101, "192.0.2.0/24"), Target::Prohibit).0, []);
    lab.control.handle(source, RouteEvent::Withdraw(key(102, "192.0.2.0/24")));
    lab.control.handle(source, RouteEvent::Route(RouteUpdate::new(beyond, Target::Blackhole)));
    assert_eq!((lab.control.source(source).routes, lab.control.tables().len()), (3, before + 2));
    assert_eq!(lab.control.source(source).refused, 3);
    // Another source is not concerned.
    lab.route("203.0.113.0/24", via("10.0.1.9"));
    assert!(lab.control.has_key(lab.kernel, &Lab::key("203.0.113.0/24", 0)));
}

/// Routes of the session before, which are withdrawn unless they are repeated, take no room from those of this one.
#[test]
fn routes_of_an_earlier_dump_do_not_count_against_the_limit() {
    let mut lab = lab();
    let source = lab.control.add_source("fpm", 20);
    lab.control.limit(source, SourceLimits { routes: 2, tables: 2 });
    let key = |n: u8| Lab::key(&format!("10.{n}.0.0/16"), 0);
    let route = |n| RouteEvent::Route(RouteUpdate::new(key(n), Target::Blackhole));
    let mut dump = |numbers: &[u8], ends: bool| {
        lab.control.handle(source, RouteEvent::StartOfTable);
        numbers.iter().for_each(|&n| lab.control.handle(source, route(n)));
        if ends {
            lab.control.handle(source, RouteEvent::EndOfTable);
            lab.control.commit_now(Instant::now()).unwrap();
        }
        let has = (1..=9).filter(|&n| lab.control.has_key(source, &key(n)));
        (has.collect::<Vec<_>>(), lab.control.source(source).refused)
    };
    assert_eq!(dump(&[1, 2], true), (vec![1, 2], 0));
    assert_eq!(dump(&[2, 3], true), (vec![2, 3], 0));
    // Beyond the limit is what the session itself has too much, also where that was there before.
    assert_eq!(dump(&[4, 5, 6, 3], true), (vec![4, 5], 2));
    // No more than twice as many stay, however many dumps are abandoned.
    assert_eq!(dump(&[6, 7], false), (vec![4, 5, 6, 7], 2));
    assert_eq!(dump(&[8, 7, 6], true), (vec![6, 7], 3));
    lab.control.handle(source, RouteEvent::Withdraw(key(7)));
    lab.control.handle(source, route(9));
    assert_eq!(lab.control.source(source).routes, 2);
    assert!(lab.control.has_key(source, &key(9)));
}

/// A source that acknowledges its routes would else report them as offloaded.
#[test]
fn a_source_knows_of_routes_that_no_packet_is_forwarded_by() {
    let mut lab = lab();
    let source = lab.control.add_source("fpm", 20);
    lab.control.note_refusals(source);
    let local = RouteKey { table: LOCAL_TABLE, ..Lab::key("192.0.2.1/32", 0) };
    let keys =
        [Lab::key("ff02::/16", 0), Lab::key("fe80::/64", 0), Lab::key("224.0.0.0/4", 0), local];
    for key in keys {
        let update = RouteUpdate::new(
            key,
            via(if key.prefix.family() == 4 { "10.0.1.9" } else { "2001:db8:2::9" }),
        );
        lab.control.handle(source, RouteEvent::Route(update));
        assert_eq!(lab.control.take_refusals(source), [key]);
    }
    assert_eq!(lab.control.source(source).refused, 0);
}

#[test]
fn bad_routes_are_refused_and_the_rest_goes_on() {
    let mut lab = lab();
    lab.route("2001:db8:9::/48", via("10.0.2.9"));
    lab.route("192.0.2.0/24", Target::Path(Path { gateway: None, link: None, weight: 1 }));
    lab.route("fe80::/64", via("2001:db8:2::9"));
    lab.route("224.0.0.0/4", via("10.0.2.9"));
    lab.route("198.51.100.0/24", via("10.0.2.9"));
    // RFC 8950: an IPv4 route over an IPv6 next hop.
    lab.route("203.0.113.0/24", via("2001:db8:2::9"));
    lab.neighbor(RIGHT, "2001:db8:2::9", NeighborState::Reachable(mac(4)));
    lab.commit();
    let report = lab.control.sources().find(|s| s.name == "kernel").unwrap();
    assert_eq!((report.routes, report.refused), (2, 2));
    assert!(report.last_refusal.contains("192.0.2.0/24: a path needs"), "{}", report.last_refusal);
    assert_eq!(lab.adjacency("203.0.113.1").dst, mac(4));
}

#[test]
fn own_addresses_and_broadcasts_are_known_to_readers() {
    let mut lab = lab();
    lab.address(LEFT, "10.0.1.2", 31, false);
    lab.commit();
    let left = lab.port("left");
    let ports = lab.reader.pin().ports.clone();
    let bits = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_bits();
    assert_eq!(ports.own_v4, ["10.0.1.1", "10.0.1.2", "10.0.2.1"].map(bits));
    assert_eq!(ports.broadcast_v4, ["10.0.1.0", "10.0.1.255", "10.0.2.0", "10.0.2.255"].map(bits));
    assert_eq!(ports.port(left).unwrap().v4.len(), 2);
    lab.event(RouteEvent::Link(LinkUpdate { link: LEFT, state: None }));
    lab.commit();
    assert_eq!(lab.reader.pin().ports.port(left), None);
    assert_eq!(lab.action("10.0.1.1"), ForwardingAction::NoRoute);
}

#[test]
fn an_address_with_two_prefixes_goes_with_the_last_one() {
    let mut lab = lab();
    let has = |lab: &mut Lab| {
        lab.commit();
        ["10.9.0.1", "10.9.0.9", "10.9.7.9"]
            .map(|addr| lab.action(addr) != ForwardingAction::NoRoute)
    };
    lab.address(LEFT, "10.9.0.1", 24, false);
    lab.address(LEFT, "10.9.0.1", 16, false);
    assert_eq!(has(&mut lab), [true; 3]);
    lab.address(LEFT, "10.9.0.1", 16, true);
    assert_eq!(has(&mut lab), [true, true, false]);
    // A dump that has one of them.
    lab.address(LEFT, "10.9.0.1", 16, false);
    lab.event(RouteEvent::StartOfTable);
    lab.link(LEFT, up("left"));
    lab.address(LEFT, "10.9.0.1", 16, false);
    lab.event(RouteEvent::EndOfTable);
    assert_eq!(has(&mut lab), [true; 3]);
    assert_eq!(lab.control.addresses().filter(|a| a.link == LEFT).count(), 1);
    lab.address(LEFT, "10.9.0.1", 16, true);
    assert_eq!(has(&mut lab), [false; 3]);
    // The kernel has one of IPv6 once.
    lab.address(LEFT, "2001:db8:9::1", 64, false);
    lab.address(LEFT, "2001:db8:9::1", 48, false);
    lab.address(LEFT, "2001:db8:9::1", 48, true);
    assert_eq!(lab.control.addresses().filter(|a| a.link == LEFT).count(), 0);
}

#[test]
fn the_neighbors_in_use_are_kept_alive() {
    let mut lab = lab();
    lab.neighbor(RIGHT, "10.0.2.8", NeighborState::Reachable(mac(8)));
    lab.neighbor(RIGHT, "10.0.2.9", NeighborState::Stale(mac(9)));
    lab.commit();
    let all: Vec<u32> = lab.control.next_hops().adjacencies().map(|(index, _)| index).collect();
    assert_eq!(all.len(), 2);
    lab.control.keep_alive(all);
    let want = NeighborRequest { link: RIGHT, addr: "10.0.2.9".parse().unwrap() };
    assert_eq!(lab.control.take_requests(), [want]);
}

#[test]
fn a_mark_is_shown_whatever_comes_behind_it() {
    let mut lab = lab();
    lab.control.commit_now(lab.now).unwrap();
    let before = lab.control.mark();
    lab.route("192.0.2.0/24", Target::Blackhole);
    let mark = lab.control.mark();
    assert!(lab.control.shows(&before) && !lab.control.shows(&mark));
    lab.commit();
    lab.route("198.51.100.0/24", Target::Blackhole);
    assert!(lab.control.shows(&mark) && !lab.control.shows(&lab.control.mark()));
    lab.commit();
    assert!(lab.control.shows(&lab.control.mark()));
}

#[test]
fn everything_withdrawn_leaves_nothing() {
    let mut lab = lab();
    for i in 0..500 {
        lab.route(&format!("192.{}.{}.0/24", i / 250, i % 250), via("10.0.2.9"));
    }
    lab.commit();
    let hops = lab.control.next_hops().len();
    for i in 0..500 {
        lab.withdraw(&format!("192.{}.{}.0/24", i / 250, i % 250));
    }
    assert_eq!(lab.commit().changes, 500);
    assert_eq!(lab.control.next_hops().len(), hops - 1);
    lab.reader.pin();
    lab.commit();
    assert_eq!(lab.control.next_hops().waiting(), 0);
}

#[test]
fn default_routes_are_listed_and_a_member_on_a_failed_link_is_none() {
    let mut lab = lab();
    lab.neighbor(LEFT, "10.0.1.9", NeighborState::Reachable(mac(1)));
    let paths = ["10.0.1.9", "10.0.2.9"].map(|gateway| Path {
        gateway: Some(gateway.parse().unwrap()),
        link: None,
        weight: 1,
    });
    lab.route("203.0.113.0/24", Target::Paths(paths.to_vec()));
    let (left, right) = (lab.port("left"), lab.port("right"));
    for round in 0..4u8 {
        let gateway = if round % 2 == 0 { "10.0.1.9" } else { "10.0.2.9" };
        // The next hop of a former default route may be another route's next.
        lab.route("0.0.0.0/0", via(gateway));
        lab.route(&format!("198.51.{round}.0/24"), via(&format!("10.0.1.{}", 20 + round)));
        lab.commit();
        let forwarding = lab.reader.pin().clone();
        let hop = |dst: [u8; 4]| forwarding.v4.lookup(u32::from_be_bytes(dst));
        assert!(forwarding.defaults.contains(&hop([8, 8, 8, 8])));
        for known in 0..=round {
            assert!(!forwarding.defaults.contains(&hop([198, 51, known, 1])), "round {round}");
        }
        let (group, near) = (hop([203, 0, 113, 1]), hop([198, 51, round, 1]));
        let leads =
            |hop| [Some(left), Some(right), None].map(|port| forwarding.leads_out(hop, port));
        assert_eq!((leads(group), leads(near)), ([true; 3], [true, false, true]));
    }
    lab.link(RIGHT, LinkState { up: false, ..up("right") });
    lab.withdraw("0.0.0.0/0");
    lab.commit();
    let forwarding = lab.reader.pin().clone();
    assert!(forwarding.defaults.is_empty());
    assert!(!forwarding.leads_out(forwarding.v4.lookup(0xcb00_7101), Some(right)));
}
