//! Neighbors set by users, from outside.
//!
//! The six cases of FreeBSD's test_rtsock_lladdr.c are here under their names: entries of IPv4, global and
//! link-local IPv6, added and deleted. There the kernel's message is looked at; here also where packets go.

use std::net::IpAddr;

use super::tests::{LEFT, Lab, RIGHT, lab, mac, up, via};
use super::*;
use crate::event::*;
use crate::forwarding::ResolveRequest;
use crate::hops::Adjacency;
use crate::hops::ForwardingAction;

/// Two neighbors on the right link: one in its prefix, and one that only routes can name.
const V4: &str = "10.0.2.2";
const V6_GLOBAL: &str = "2001:db8:2::4242:4242";
const V6_LOCAL: &str = "fe80::4242:4242";

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn over_right(gateway: &str) -> Target {
    Target::Path(Path { gateway: Some(addr(gateway)), link: Some(RIGHT), weight: 1 })
}

/// Notices of neighbors after `since`: change, address, link address, and whether packets go
/// there.
fn notices(lab: &Lab, since: u64) -> Vec<(Done, String, Mac, bool)> {
    let of = |notice: &Notice| match &notice.what {
        Happened::Neighbor { done, interface, addr, mac, up } => {
            Some((*done, format!("{addr} {interface}"), *mac, *up))
        }
        _ => None,
    };
    lab.control.notices(since).unwrap().filter_map(of).collect()
}

impl Lab {
    fn add(&mut self, link: u32, text: &str, mac: Mac) -> Result<(), NeighborError> {
        self.control.add_neighbor(link, addr(text), mac)
    }
    fn replace(&mut self, link: u32, text: &str, mac: Mac) -> Result<Done, NeighborError> {
        self.control.replace_neighbor(link, addr(text), mac)
    }
    fn delete(&mut self, link: u32, text: &str) -> Result<Mac, NeighborError> {
        self.control.delete_neighbor(link, addr(text))
    }
    fn state(&self, text: &str) -> Option<(NeighborState, bool)> {
        let row = self.control.neighbors().find(|row| row.addr == addr(text));
        row.map(|row| (row.state, row.by_user))
    }
}

/// A route over the neighbor, and what packets of it meet.
fn routed(gateway: &str, destination: &str) -> Lab {
    let mut lab = lab();
    let prefix = if destination.contains(':') { "2001:db8:99::/48" } else { "192.0.2.0/24" };
    lab.route(prefix, over_right(gateway));
    lab.commit();
    assert!(!lab.adjacency(destination).resolved());
    lab
}

/// The entry is added: there is a notice, routes over it are complete at once, the host route with the
/// next commit where it is in a prefix of the link, and the kernel gets no request.
fn added(gateway: &str, destination: &str, on_link: bool) -> Lab {
    let mut lab = routed(gateway, destination);
    let since = lab.control.sequence();
    lab.add(RIGHT, gateway, mac(7)).unwrap();
    let want = [(Done::Added, format!("{gateway} right"), mac(7), true)];
    assert_eq!(notices(&lab, since), want);
    let right = Adjacency {
        dst: mac(7),
        src: up("right").mac.unwrap(),
        port: lab.port("right"),
        mtu: 1500,
    };
    assert_eq!(lab.adjacency(destination), right, "at once, without a commit");
    lab.commit();
    assert_eq!(lab.adjacency(destination), right);
    if on_link {
        assert_eq!(lab.adjacency(gateway), right);
    }
    assert_eq!(lab.state(gateway), Some((NeighborState::Permanent(mac(7)), true)));
    let ForwardingAction::Adjacency(index) = lab.action(destination) else {
        panic!("not an adjacency")
    };
    lab.control.resolve(ResolveRequest::Adjacency(index), lab.now);
    lab.control.resolve(
        ResolveRequest::Neighbor { port: right.port, addr: addr(gateway), ingress: 0 },
        lab.now,
    );
    lab.control.keep_alive([index]);
    lab.commit();
    assert_eq!(lab.control.take_requests(), []);
    lab
}

/// And deleted: there is a notice, and packets wait for the kernel's reply as if it had never been.
fn deleted(gateway: &str, destination: &str, on_link: bool) {
    let mut lab = added(gateway, destination, on_link);
    let since = lab.control.sequence();
    assert_eq!(lab.delete(RIGHT, gateway), Ok(mac(7)));
    let want = [(Done::Deleted, format!("{gateway} right"), mac(7), true)];
    assert_eq!(notices(&lab, since), want);
    assert!(!lab.adjacency(destination).resolved(), "at once");
    lab.commit();
    if on_link {
        assert_eq!(lab.action(gateway), ForwardingAction::Glean(lab.port("right")));
    }
    assert_eq!(lab.state(gateway), None);
    let ForwardingAction::Adjacency(index) = lab.action(destination) else {
        panic!("not an adjacency")
    };
    lab.control.resolve(ResolveRequest::Adjacency(index), lab.now);
    let want = NeighborRequest { link: RIGHT, addr: addr(gateway) };
    assert_eq!(lab.control.take_requests(), [want]);
    assert_eq!(lab.delete(RIGHT, gateway).unwrap_err().code(), "no-such-neighbor", "twice");
}

#[test]
fn rtm_add_v6_ll_lle_success() {
    added(V6_LOCAL, "2001:db8:99::1", false);
}

#[test]
fn rtm_add_v6_gu_lle_success() {
    added(V6_GLOBAL, "2001:db8:99::1", true);
}

#[test]
fn rtm_add_v4_gu_lle_success() {
    added(V4, "192.0.2.1", true);
}

#[test]
fn rtm_del_v6_ll_lle_success() {
    deleted(V6_LOCAL, "2001:db8:99::1", false);
}

#[test]
fn rtm_del_v6_gu_lle_success() {
    deleted(V6_GLOBAL, "2001:db8:99::1", true);
}

#[test]
fn rtm_del_v4_gu_lle_success() {
    deleted(V4, "192.0.2.1", true);
}

#[test]
fn one_that_exists_is_replaced_and_not_added_again() {
    for (gateway, destination) in [(V4, "192.0.2.1"), (V6_GLOBAL, "2001:db8:99::1")] {
        let mut lab = added(gateway, destination, true);
        let since = lab.control.sequence();
        let again = lab.add(RIGHT, gateway, mac(8)).unwrap_err();
        assert_eq!(again.code(), "exists");
        let words = format!("{gateway}: exists on right, at {}: replace or delete it", mac(7));
        assert_eq!(again.to_string(), words);
        assert_eq!(lab.adjacency(destination).dst, mac(7));
        assert_eq!(lab.replace(RIGHT, gateway, mac(7)), Ok(Done::Changed));
        assert_eq!(lab.control.sequence(), since, "set again: nothing happened");
        assert_eq!(lab.replace(RIGHT, gateway, mac(8)), Ok(Done::Changed));
        assert_eq!(
            notices(&lab, since),
            [(Done::Changed, format!("{gateway} right"), mac(8), true)]
        );
        assert_eq!(lab.adjacency(destination).dst, mac(8), "at once");
        assert_eq!(lab.adjacency(gateway).dst, mac(8), "the host route, too");
        lab.delete(RIGHT, gateway).unwrap();
        assert_eq!(lab.replace(RIGHT, gateway, mac(9)), Ok(Done::Added));
        // A host of that address on another link is another one.
        lab.add(LEFT, gateway, mac(1)).unwrap();
        assert_eq!(lab.delete(LEFT, gateway), Ok(mac(1)));
        assert_eq!(lab.adjacency(destination).dst, mac(9));
    }
}

#[test]
fn a_user_s_neighbor_wins_over_the_kernel_s() {
    let mut lab = routed(V4, "192.0.2.1");
    lab.neighbor(RIGHT, V4, NeighborState::Reachable(mac(1)));
    lab.commit();
    lab.add(RIGHT, V4, mac(7)).unwrap();
    assert_eq!(lab.adjacency("192.0.2.1").dst, mac(7), "what was learned is no obstacle");
    let since = lab.control.sequence();
    for state in [
        NeighborState::Reachable(mac(2)),
        NeighborState::Failed,
        NeighborState::Gone,
        NeighborState::Stale(mac(3)),
    ] {
        lab.neighbor(RIGHT, V4, state);
        lab.commit();
        assert_eq!(lab.adjacency("192.0.2.1").dst, mac(7), "{state:?}");
        assert_eq!(lab.adjacency(V4).dst, mac(7), "{state:?}");
        assert_eq!(lab.state(V4), Some((NeighborState::Permanent(mac(7)), true)));
    }
    assert_eq!(lab.control.sequence(), since, "nothing happened to it");
    lab.delete(RIGHT, V4).unwrap();
    assert_eq!(lab.adjacency("192.0.2.1").dst, mac(3), "what was learned meanwhile, at once");
    assert_eq!(lab.state(V4), Some((NeighborState::Stale(mac(3)), false)));
    let learned = lab.delete(RIGHT, V4).unwrap_err();
    assert!(learned.to_string().contains("the kernel's own"), "{learned}");
    // There is no request for a silent gateway once a user has set it.
    lab.neighbor(RIGHT, V4, NeighborState::Failed);
    lab.add(RIGHT, V4, mac(8)).unwrap();
    lab.now += Duration::from_secs(6);
    lab.commit();
    assert_eq!(lab.control.take_requests(), []);
    assert_eq!(lab.adjacency("192.0.2.1").dst, mac(8));
}

#[test]
fn packets_that_wait_for_a_reply_get_a_user_s_neighbor() {
    let mut lab = lab();
    lab.commit();
    let port = lab.port("right");
    lab.control.resolve(ResolveRequest::Neighbor { port, addr: addr(V4), ingress: 0 }, lab.now);
    lab.commit();
    assert_eq!(lab.action(V4), ForwardingAction::Glean(port));
    lab.add(RIGHT, V4, mac(7)).unwrap();
    lab.commit();
    assert_eq!(lab.adjacency(V4).dst, mac(7));
    // Nothing of the question is left to run out.
    lab.now += Duration::from_secs(30);
    lab.commit();
    assert_eq!(lab.adjacency(V4).dst, mac(7));
    lab.delete(RIGHT, V4).unwrap();
    lab.commit();
    assert_eq!((lab.state(V4), lab.action(V4)), (None, ForwardingAction::Glean(port)));
}

#[test]
fn a_link_that_goes_down_suspends_them_and_one_that_vanishes_takes_them_along() {
    let mut lab = added(V4, "192.0.2.1", true);
    lab.add(RIGHT, V6_LOCAL, mac(8)).unwrap();
    lab.add(LEFT, "10.0.1.7", mac(9)).unwrap();
    let both = |done, up| {
        let one = |who: &str, last| (done, format!("{who} right"), mac(last), up);
        vec![one(V4, 7), one(V6_LOCAL, 8)]
    };
    let since = lab.control.sequence();
    lab.link(RIGHT, LinkState { up: false, ..up("right") });
    lab.commit();
    assert_eq!(notices(&lab, since), both(Done::Changed, false));
    assert!(
        !matches!(lab.action("192.0.2.1"), ForwardingAction::Adjacency(_)),
        "{:?}",
        lab.action("192.0.2.1")
    );
    assert!(!matches!(lab.action(V4), ForwardingAction::Adjacency(_)), "{:?}", lab.action(V4));
    assert_eq!(lab.state(V4), Some((NeighborState::Permanent(mac(7)), true)), "it stays");
    // A neighbor set on a link that is down counts when it is up.
    lab.replace(RIGHT, V4, mac(6)).unwrap();
    lab.replace(RIGHT, V4, mac(7)).unwrap();
    let since = lab.control.sequence();
    // The same again, and another size of packets: it did not turn.
    lab.link(RIGHT, LinkState { up: false, mtu: 1400, ..up("right") });
    assert_eq!(notices(&lab, since), []);
    lab.link(RIGHT, up("right"));
    lab.commit();
    assert_eq!(notices(&lab, since), both(Done::Changed, true));
    assert_eq!((lab.adjacency("192.0.2.1").dst, lab.adjacency(V4).dst), (mac(7), mac(7)));
    let since = lab.control.sequence();
    lab.event(RouteEvent::Link(LinkUpdate { link: RIGHT, state: None }));
    lab.commit();
    assert_eq!(notices(&lab, since), both(Done::Deleted, true));
    assert_eq!((lab.state(V4), lab.state(V6_LOCAL)), (None, None));
    // A link of the same number later is another one.
    lab.link(RIGHT, up("right"));
    lab.address(RIGHT, "10.0.2.1", 24, false);
    lab.commit();
    assert_eq!(lab.action(V4), ForwardingAction::Glean(lab.port("right")));
    assert_eq!(lab.adjacency("10.0.1.7").dst, mac(9), "that of the other link is still there");
}

#[test]
fn a_resync_an_address_set_anew_and_another_table_leave_them() {
    let mut lab = added(V4, "192.0.2.1", true);
    let since = lab.control.sequence();
    lab.event(RouteEvent::StartOfTable);
    lab.link(1, LinkState { loopback: true, ..up("lo") });
    lab.link(RIGHT, up("right"));
    lab.address(RIGHT, "10.0.2.1", 24, false);
    lab.route("192.0.2.0/24", over_right(V4));
    lab.event(RouteEvent::EndOfTable);
    lab.commit();
    assert_eq!(lab.adjacency("192.0.2.1").dst, mac(7));
    assert_eq!(lab.adjacency(V4).dst, mac(7));
    lab.address(RIGHT, "10.0.2.1", 24, true);
    lab.commit();
    assert_eq!(
        lab.action(V4),
        ForwardingAction::NoRoute,
        "the subnet is gone, and nothing leads to the host"
    );
    lab.address(RIGHT, "10.0.2.1", 24, false);
    lab.commit();
    assert_eq!(lab.adjacency(V4).dst, mac(7));
    lab.control.bind_interface("right", 100).unwrap();
    lab.commit();
    let host = AnyPrefix::parse("10.0.2.2/32").unwrap();
    let of = |control: &Control, table| control.candidates(table, host).len();
    assert_eq!((of(&lab.control, 100), of(&lab.control, crate::event::MAIN_TABLE)), (1, 0));
    assert_eq!(lab.state(V4), Some((NeighborState::Permanent(mac(7)), true)));
    assert_eq!(notices(&lab, since), [], "nothing happened to it");
}

#[test]
fn a_host_route_yields_to_routes_that_lead_elsewhere() {
    let mut lab = added(V4, "192.0.2.1", true);
    lab.route("10.0.2.0/28", via("10.0.1.7"));
    lab.commit();
    assert_eq!(lab.adjacency(V4).port, lab.port("left"));
    lab.withdraw("10.0.2.0/28");
    lab.commit();
    assert_eq!(lab.adjacency(V4).dst, mac(7));
    // Of no subnet of the link: for routes that name it, and no route by itself.
    lab.add(RIGHT, "203.0.113.7", mac(5)).unwrap();
    lab.commit();
    assert_eq!(lab.action("203.0.113.7"), ForwardingAction::NoRoute);
    lab.route("198.51.100.0/24", over_right("203.0.113.7"));
    lab.commit();
    assert_eq!(lab.adjacency("198.51.100.1").dst, mac(5));
}

#[test]
fn what_can_be_no_neighbor_is_refused_when_it_is_set() {
    let mut lab = added(V4, "192.0.2.1", true);
    lab.link(9, LinkState { mac: None, kind: "wireguard".into(), ..up("tunnel") });
    lab.commit();
    let before = (lab.control.sequence(), lab.control.neighbors().collect::<Vec<_>>());
    let group = Mac([1, 0, 0x5e, 0, 0, 1]);
    for (link, text, mac, code, words) in [
        (77, V4, mac(8), "no-such-interface", "there is no link 77"),
        (9, "10.0.9.9", mac(8), "no-ethernet", "tunnel has no Ethernet addresses"),
        (1, "10.0.9.9", mac(8), "no-ethernet", "lo has no Ethernet addresses"),
        (RIGHT, "10.0.2.1", mac(8), "own-address", "10.0.2.1 is this host's own"),
        (RIGHT, "10.0.1.1", mac(8), "own-address", "10.0.1.1 is this host's own"),
        (RIGHT, "2001:db8:2::1", mac(8), "own-address", "2001:db8:2::1 is this host's own"),
        (RIGHT, "::ffff:10.0.2.9", mac(8), "wrong-family", "write 10.0.2.9"),
        (RIGHT, "10.0.2.255", mac(8), "not-a-host", "10.0.2.255 is no address of a host"),
        (RIGHT, "10.0.2.0", mac(8), "not-a-host", "no group, broadcast"),
        (RIGHT, "224.0.0.5", mac(8), "not-a-host", "no group, broadcast"),
        (RIGHT, "ff02::1", mac(8), "not-a-host", "no group, broadcast"),
        (RIGHT, "::", mac(8), "not-a-host", "no group, broadcast"),
        (RIGHT, "127.0.0.1", mac(8), "not-a-host", "no group, broadcast"),
        (
            RIGHT,
            "10.0.2.9",
            group,
            "not-a-host-mac",
            "is a group's: the link address of one card is needed",
        ),
        (
            RIGHT,
            "10.0.2.9",
            Mac([0xff; 6]),
            "not-a-host-mac",
            "is a group's: the link address of one card is needed",
        ),
        (RIGHT, "10.0.2.9", Mac([0; 6]), "not-a-host-mac", "is all zero"),
    ] {
        let added = lab.add(link, text, mac).unwrap_err();
        assert_eq!(added.code(), code, "{text}: {added}");
        assert!(added.to_string().contains(words), "{added}");
        assert_eq!(lab.replace(link, text, mac), Err(added), "{text}");
    }
    assert_eq!(lab.delete(77, V4), Err(NeighborError::NoLink(77)));
    let unknown = lab.delete(LEFT, V4).unwrap_err();
    assert_eq!(unknown.to_string(), "10.0.2.2: no such neighbor on left: list them all");
    assert_eq!((lab.control.sequence(), lab.control.neighbors().collect()), before);
}

#[test]
fn a_route_of_one_address_to_a_link_leads_to_that_neighbor() {
    let mut lab = lab();
    let host = Path { gateway: None, link: Some(RIGHT), weight: 1 };
    lab.add(RIGHT, "203.0.113.7", mac(5)).unwrap();
    lab.route("203.0.113.7/32", Target::Path(host));
    lab.commit();
    // Every packet leaves by the neighbor, and none waits for its link address.
    assert_eq!(lab.adjacency("203.0.113.7").dst, mac(5));
    // A prefix of several hosts has no neighbor of its own.
    lab.route("203.0.113.8/31", Target::Path(host));
    lab.commit();
    assert_eq!(lab.action("203.0.113.8"), ForwardingAction::Glean(lab.port("right")));
}

#[test]
fn host_routes_of_neighbors_are_no_prefixes_that_route() {
    let mut lab = routed(V4, "192.0.2.1");
    let prefix = |lab: &Lab, text: &str| {
        lab.control.routed_prefix(MAIN_TABLE, addr(text)).map(|prefix| prefix.to_string())
    };
    let connected = prefix(&lab, V4);
    lab.add(RIGHT, V4, mac(7)).unwrap();
    lab.commit();
    let host = lab.control.lookup_route(MAIN_TABLE, addr(V4)).unwrap().prefix;
    assert_eq!(host.to_string(), format!("{V4}/32"));
    assert_eq!(prefix(&lab, V4), connected);
    assert!(connected.is_some_and(|prefix| prefix.starts_with("10.0.2.0/")));
    assert_eq!(prefix(&lab, "192.0.2.1").as_deref(), Some("192.0.2.0/24"));
    assert_eq!(prefix(&lab, "203.0.113.1"), None);
    assert_eq!(lab.control.routed_prefix(7_u32, addr(V4)), None, "no such table");
}
