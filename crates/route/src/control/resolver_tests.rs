//! Next hops in their world: what a change of links, objects and routes costs, and what is refused.

use std::net::IpAddr;

use super::tests::{LEFT, Lab, RIGHT, lab, mac, up, via};
use super::*;
use crate::event::*;
use crate::group::GroupMode;
use crate::hops::ForwardingAction;

fn key(table: u32, prefix: &str) -> RouteKey {
    RouteKey { table, prefix: AnyPrefix::parse(prefix).unwrap(), metric: 0 }
}

fn paths(gateways: &[&str]) -> Target {
    let path =
        |gateway: &&str| Path { gateway: Some(gateway.parse().unwrap()), link: None, weight: 1 };
    Target::Paths(gateways.iter().map(path).collect())
}

fn resolved(lab: &Lab) -> u64 {
    lab.control.next_hops().counts().resolved
}

/// Routes by the thousand behind one gateway, whose own route changes: one entry is worked out, one word
/// written, and no route behind it is touched.
#[test]
fn a_failed_peer_costs_one_next_hop_however_many_routes_it_has() {
    let mut lab = lab();
    lab.neighbor(LEFT, "10.0.1.8", NeighborState::Reachable(mac(1)));
    lab.neighbor(RIGHT, "10.0.2.8", NeighborState::Reachable(mac(2)));
    lab.route("10.9.0.0/16", via("10.0.2.8"));
    lab.route("10.8.0.0/16", via("10.0.1.8"));
    for i in 0..5000u32 {
        lab.route(&format!("198.{}.{}.0/24", 18 + i / 250, i % 250), via("10.9.0.1"));
    }
    lab.commit();
    assert_eq!(lab.adjacency("198.18.7.1").dst, mac(2));
    let before = resolved(&lab);
    // The IGP finds another path.
    lab.route("10.9.0.0/16", via("10.0.1.8"));
    assert_eq!(lab.commit().changes, 1, "the IGP's own route");
    assert_eq!(resolved(&lab) - before, 1);
    assert_eq!(lab.adjacency("198.18.7.1").dst, mac(1));
    assert_eq!(lab.adjacency("198.37.249.1").dst, mac(1));
    // A longer route to it, and its end.
    lab.route("10.9.0.0/24", via("10.0.2.8"));
    lab.commit();
    assert_eq!(lab.adjacency("198.18.7.1").dst, mac(2));
    lab.withdraw("10.9.0.0/24");
    lab.commit();
    assert_eq!(lab.adjacency("198.18.7.1").dst, mac(1));
    lab.withdraw("10.9.0.0/16");
    assert_eq!(lab.commit().changes, 1);
    assert_eq!(lab.action("198.18.7.1"), ForwardingAction::Unreachable);
    let before = resolved(&lab);
    lab.withdraw("10.8.0.0/16");
    for i in 0..1000u32 {
        lab.route(&format!("203.0.{}.{}/32", i / 250, i % 250), Target::Blackhole);
    }
    lab.commit();
    assert_eq!(resolved(&lab) - before, 1, "the blackhole, which is new");
}

/// A host route becomes the route to a gateway in the middle of a commit; when it is forgotten, in another
/// one, the gateway follows.
#[test]
fn a_gateway_follows_its_own_host_route() {
    let mut lab = lab();
    lab.neighbor(RIGHT, "10.0.2.9", NeighborState::Reachable(mac(9)));
    lab.route("192.0.2.0/24", via("10.0.2.9"));
    lab.commit();
    assert_eq!(lab.adjacency("192.0.2.1").dst, mac(9));
    // The prefix moves to the other link: the host behind the first one must not be kept.
    lab.address(RIGHT, "10.0.2.1", 24, true);
    lab.address(LEFT, "10.0.2.1", 24, false);
    lab.commit();
    assert_eq!(lab.adjacency("192.0.2.1").port, lab.port("left"));
    lab.address(LEFT, "10.0.2.1", 24, true);
    lab.commit();
    assert_eq!(lab.action("192.0.2.1"), ForwardingAction::Unreachable);
}

#[test]
fn links_and_objects_cost_what_depends_on_them() {
    let mut lab = lab();
    let object = |gateway: &str, link| {
        let gateway = Some(gateway.parse().unwrap());
        ObjectTarget::Path(Path { gateway, link: Some(link), weight: 1 })
    };
    for id in 0..200u32 {
        let link = if id % 10 == 0 { LEFT } else { RIGHT };
        let target = object(&format!("10.0.2.{}", id + 2), link);
        lab.event(RouteEvent::NextHop(NextHopUpdate { id, target }));
        lab.route(&format!("198.51.{id}.0/24"), Target::Object(id));
    }
    lab.commit();
    let before = resolved(&lab);
    lab.commit();
    assert_eq!(resolved(&lab), before);
    lab.event(RouteEvent::NextHop(NextHopUpdate { id: 7, target: object("10.0.2.250", RIGHT) }));
    lab.commit();
    assert_eq!(resolved(&lab) - before, 1);
    lab.link(LEFT, LinkState { up: false, ..up("left") });
    lab.commit();
    let of_left = resolved(&lab) - before - 1;
    assert!((20..30).contains(&of_left), "{of_left}: its objects and its own prefix");
    assert_eq!(lab.action("198.51.10.1"), ForwardingAction::Unreachable);
    lab.event(RouteEvent::Link(LinkUpdate { link: LEFT, state: None }));
    lab.commit();
    assert!(resolved(&lab) - before < 60);
}

#[test]
fn a_route_that_loses_a_path_keeps_the_flows_of_the_others() {
    let mut lab = lab();
    let me = lab.control.add_source("static", 1);
    let key = key(MAIN_TABLE, "192.0.2.0/24");
    let all = paths(&["10.0.1.8", "10.0.1.9", "10.0.2.8", "10.0.2.9"]);
    lab.commit();
    lab.control.put_route(me, key, Operation::ADD, &all, None, None).unwrap();
    lab.commit();
    let flows = |lab: &mut Lab| -> Vec<ForwardingAction> {
        (0..256).map(|flow| lab.action_of_flow("192.0.2.1", flow)).collect()
    };
    let before = flows(&mut lab);
    let gone = Path { gateway: Some("10.0.2.8".parse().unwrap()), link: None, weight: 1 };
    lab.control.delete_route(me, key, &Paths::Named(vec![gone])).unwrap();
    lab.commit();
    let after = flows(&mut lab);
    let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    assert_eq!(moved, 64, "a quarter of the flows had the path that went");
    lab.control.put_route(me, key, Operation::APPEND, &via("10.0.2.8"), None, None).unwrap();
    lab.commit();
    let again = flows(&mut lab);
    let moved = after.iter().zip(&again).filter(|(before, after)| before != after).count();
    assert_eq!(moved, 64);
    lab.control.set_group_mode(GroupMode::Slots).unwrap();
    lab.commit();
    let rows = lab.control.next_hops().rows().filter(|row| row.slots > 0);
    assert_eq!(rows.map(|row| row.slots).collect::<Vec<_>>(), [4]);
}

#[test]
fn what_leads_nowhere_is_refused_with_its_reason() {
    let mut lab = lab();
    let me = lab.control.add_source("static", 1);
    lab.commit();
    let mut say = |prefix: &str, target: &Target| {
        let before = lab.control.next_hops().len();
        let put =
            lab.control.put_route(me, key(MAIN_TABLE, prefix), Operation::ADD, target, None, None);
        let error = put.unwrap_err();
        assert_eq!(lab.control.next_hops().len(), before);
        assert_eq!(lab.control.candidates(MAIN_TABLE, AnyPrefix::parse(prefix).unwrap()), []);
        (error.code(), error.to_string())
    };
    let is = |code, text: &str| (code, text.to_owned());
    assert_eq!(
        say("192.0.2.0/24", &via("203.0.113.1")),
        is("gateway-unreachable", "192.0.2.0/24: gateway 203.0.113.1: no route to it in table 254")
    );
    assert_eq!(
        say("10.0.2.8/32", &via("10.0.2.8")),
        is("gateway-loop", "10.0.2.8/32: gateway 10.0.2.8 is reached through itself")
    );
    assert_eq!(
        say("192.0.2.0/24", &Target::Object(4)),
        is("no-such-next-hop", "192.0.2.0/24: next hop 4 is not known")
    );
    let path = |i: u32| Path {
        gateway: Some(IpAddr::from([10, 0, 1 + u8::from(i > 200), u8::try_from(i % 200).unwrap()])),
        link: None,
        weight: 1,
    };
    let many = Target::Paths((0..=256).map(|i| path(i + 2)).collect());
    assert_eq!(
        say("192.0.2.0/24", &many),
        is("too-many-members", "192.0.2.0/24: group has 257 members, at most 256")
    );
    let heavy = Target::Paths(vec![path(2), Path { weight: 65_536, ..path(3) }]);
    assert_eq!(
        say("192.0.2.0/24", &heavy),
        is("weight-too-large", "192.0.2.0/24: weight 65536 of member 2 is over 65535")
    );
}

/// Gateways of a table are found by the routes of that table.
#[test]
fn each_table_finds_its_own_gateways() {
    const OTHER: u32 = 100;
    let mut lab = lab();
    lab.control.bind_interface("right", OTHER).unwrap();
    lab.neighbor(LEFT, "10.0.1.8", NeighborState::Reachable(mac(1)));
    lab.neighbor(RIGHT, "10.0.2.8", NeighborState::Reachable(mac(2)));
    let me = lab.control.add_source("static", 1);
    lab.commit();
    for (table, near) in [(MAIN_TABLE, "10.0.1.8"), (OTHER, "10.0.2.8")] {
        for (prefix, gateway) in [("172.16.0.0/12", near), ("192.0.2.0/24", "172.16.0.1")] {
            let key = key(table, prefix);
            lab.control.put_route(me, key, Operation::ADD, &via(gateway), None, None).unwrap();
        }
    }
    lab.commit();
    let forwarding = lab.reader.pin().clone();
    for (port, dst) in [("left", mac(1)), ("right", mac(2))] {
        let [fib, _] = forwarding.ports.first_fibs(lab.port(port));
        let id = forwarding.v4_of(fib).lookup(0xc000_0201);
        let ForwardingAction::Adjacency(index) = forwarding.hops.action(id, 0) else {
            panic!("it leads out")
        };
        assert_eq!(forwarding.hops.adjacency(index).dst, dst);
    }
}

fn ranked(gateways: &[&str]) -> Target {
    let path =
        |gateway: &&str| Path { gateway: Some(gateway.parse().unwrap()), link: None, weight: 1 };
    Target::Ranked(gateways.iter().map(path).collect())
}

/// The best next hop cannot be reached: packets take the next one, and the best one again when it can. However many routes
/// there are, none of them changes for that.
#[test]
fn a_next_hop_that_cannot_be_reached_leaves_the_route_to_its_alternatives() {
    let mut lab = lab();
    lab.neighbor(LEFT, "10.0.1.8", NeighborState::Reachable(mac(1)));
    lab.neighbor(RIGHT, "10.0.2.8", NeighborState::Reachable(mac(2)));
    for i in 0..5000u32 {
        let prefix = format!("198.{}.{}.0/24", 18 + i / 250, i % 250);
        lab.route(&prefix, ranked(&["10.9.0.1", "10.8.0.1", "10.0.2.8"]));
    }
    lab.commit();
    let leaves = |lab: &mut Lab, dst: Mac| {
        ["198.18.7.1", "198.37.249.1"].iter().all(|addr| lab.adjacency(addr).dst == dst)
    };
    assert!(leaves(&mut lab, mac(2)), "no route leads to those before it");
    let hops = |lab: &Lab| {
        let (id, _) = lab
            .control
            .next_hops()
            .iter()
            .find(|(_, key)| matches!(key, crate::nexthop::HopKey::Ranked(_)))?;
        let gateway = lab.control.next_hops().paths(id)[0].gateway?;
        let row = lab.control.next_hops().row(id)?;
        assert_eq!((row.kind(), row.gateway()), ("ranked", Some(gateway)));
        Some(gateway.to_string())
    };
    assert_eq!(hops(&lab).as_deref(), Some("10.0.2.8"));
    let before = resolved(&lab);
    lab.route("10.9.0.0/16", via("10.0.1.8"));
    assert_eq!(lab.commit().changes, 1, "the route to the gateway");
    assert_eq!(resolved(&lab) - before, 2, "the list, and the gateway of that route, which is new");
    assert!(leaves(&mut lab, mac(1)));
    assert_eq!(hops(&lab).as_deref(), Some("10.9.0.1"));
    // Its link goes down, before any route does.
    lab.link(LEFT, LinkState { up: false, ..up("left") });
    lab.commit();
    assert!(leaves(&mut lab, mac(2)));
    lab.link(LEFT, up("left"));
    lab.commit();
    assert!(leaves(&mut lab, mac(1)));
    // A verdict on the path to the best one does not count while another one leads somewhere.
    for verdict in [Target::Blackhole, Target::Unreachable, Target::Prohibit] {
        lab.route("10.9.0.0/16", verdict);
        lab.commit();
        assert!(leaves(&mut lab, mac(2)));
    }
    // Where none is left it counts.
    lab.link(RIGHT, LinkState { up: false, ..up("right") });
    lab.route("10.9.0.0/16", Target::Prohibit);
    lab.commit();
    assert_eq!(lab.action("198.18.7.1"), ForwardingAction::Prohibit);
    lab.withdraw("10.9.0.0/16");
    lab.commit();
    assert_eq!(lab.action("198.18.7.1"), ForwardingAction::Unreachable);
}

/// A route to the gateway that is the route itself leads nowhere, and the next one is taken.
#[test]
fn an_alternative_is_taken_where_the_best_leads_back_to_the_route() {
    let mut lab = lab();
    lab.neighbor(RIGHT, "10.0.2.8", NeighborState::Reachable(mac(2)));
    lab.route("192.0.0.0/8", ranked(&["192.0.2.1", "10.0.2.8"]));
    lab.commit();
    assert_eq!(lab.adjacency("192.1.2.3").dst, mac(2));
}

/// Alternatives of which there are too many lists are left out, and nothing is refused for it.
#[test]
fn too_many_lists_of_alternatives_are_the_best_path_alone() {
    let mut lab = lab();
    for n in 0..6 {
        lab.neighbor(RIGHT, &format!("10.0.2.{}", 8 + n), NeighborState::Reachable(mac(n)));
        let (first, second) = (format!("10.9.{n}.1"), format!("10.0.2.{}", 8 + n));
        lab.route(&format!("198.51.{n}.0/24"), ranked(&[&first, &second]));
    }
    lab.commit();
    assert_eq!(lab.control.next_hops().counts().shortened, 2);
    let rows = lab.control.hop_view().hops.rows();
    let left_out: Vec<_> = rows.filter(|row| row.shortened > 0).collect();
    let gateways = left_out.iter().map(|row| row.gateway().unwrap().to_string());
    assert_eq!(gateways.collect::<Vec<_>>(), ["10.9.4.1", "10.9.5.1"]);
    assert!(left_out.iter().all(|row| row.shortened == 1));
    assert_eq!(lab.adjacency("198.51.3.1").dst, mac(3));
    assert_eq!(lab.action("198.51.5.1"), ForwardingAction::Unreachable);
    // Where one list is gone another one has room.
    lab.withdraw("198.51.0.0/24");
    lab.route("198.51.5.0/24", ranked(&["10.9.5.1", "10.0.2.13"]));
    lab.commit();
    assert_eq!(lab.adjacency("198.51.5.1").dst, mac(5));
}
