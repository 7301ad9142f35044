//! What is urgent comes first: groups change before the routes behind them are withdrawn, however many there are.

use std::time::Instant;

use super::tests::{LEFT, Lab, RIGHT, lab, mac, up};
use super::*;
use crate::event::*;
use crate::hops::ForwardingAction;

const LEFT_OBJECT: u32 = 1;
const RIGHT_OBJECT: u32 = 2;
const GROUP: u32 = 10;
/// Number of routes of a full table.
const MANY: u32 = 900_000;

fn object(lab: &mut Lab, id: u32, link: u32, gateway: &str) {
    let path = Path { gateway: Some(gateway.parse().unwrap()), link: Some(link), weight: 1 };
    lab.event(RouteEvent::NextHop(NextHopUpdate { id, target: ObjectTarget::Path(path) }));
}

/// The `n`th of many prefixes, none of which the lab uses otherwise.
fn prefix(n: u32) -> AnyPrefix {
    AnyPrefix::V4(fingerpost_lpm::Prefix::masked((32 << 24) + (n << 8), 24))
}

fn route(lab: &mut Lab, prefix: AnyPrefix, target: Target) {
    let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
    lab.event(RouteEvent::Route(RouteUpdate::new(key, target)));
}

/// Two objects, a group of both with one route, and `many` routes behind the left one.
fn with_routes(many: u32) -> Lab {
    let mut lab = lab();
    lab.neighbor(LEFT, "10.0.1.9", NeighborState::Reachable(mac(1)));
    lab.neighbor(RIGHT, "10.0.2.9", NeighborState::Reachable(mac(2)));
    object(&mut lab, LEFT_OBJECT, LEFT, "10.0.1.9");
    object(&mut lab, RIGHT_OBJECT, RIGHT, "10.0.2.9");
    let both = ObjectTarget::Group(vec![(LEFT_OBJECT, 1), (RIGHT_OBJECT, 1)]);
    lab.event(RouteEvent::NextHop(NextHopUpdate { id: GROUP, target: both }));
    lab.route("192.0.2.0/24", Target::Object(GROUP));
    for n in 0..many {
        route(&mut lab, prefix(n), Target::Object(LEFT_OBJECT));
    }
    lab.control.commit_now(lab.now).unwrap();
    lab
}

/// Events of the kernel source for a link that goes down: the link, and the objects on it. What becomes of groups and
/// routes comes with a dump.
fn fails(lab: &mut Lab, link: u32, name: &str, object: u32) {
    let down = LinkState { up: false, ..up(name) };
    lab.event(RouteEvent::Link(LinkUpdate { link, state: Some(down) }));
    lab.event(RouteEvent::NextHopGone(object));
}

fn routes(lab: &Lab) -> u64 {
    lab.control.sources().find(|source| source.name == "kernel").unwrap().routes
}

/// Ports that flows of the group leave by; `None` for none.
fn ports(lab: &mut Lab) -> Vec<Option<u16>> {
    let port = |action| match action {
        ForwardingAction::Adjacency(index) => Some(index),
        _ => None,
    };
    let actions: Vec<_> =
        (0..256).map(|hash| port(lab.action_of_flow("192.0.2.1", hash))).collect();
    let table = lab.control.next_hops().table().clone();
    let mut ports: Vec<_> =
        actions.iter().map(|action| action.map(|index| table.adjacency(index).port)).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[test]
fn a_group_fails_over_before_one_of_900_000_routes_is_withdrawn() {
    let mut lab = with_routes(MANY);
    let (left, right) = (lab.port("left"), lab.port("right"));
    assert_eq!(ports(&mut lab), [Some(left), Some(right)]);
    let (had, resolved) = (routes(&lab), lab.control.next_hops().counts().resolved);
    let began = Instant::now();
    fails(&mut lab, LEFT, "left", LEFT_OBJECT);
    lab.control.fail_over().unwrap();
    let took = began.elapsed();
    assert_eq!(ports(&mut lab), [Some(right)], "readers see it");
    assert_eq!(routes(&lab), had, "and no route has been touched");
    // The routes lead nowhere, without a change of any of them.
    assert_eq!(lab.action("32.0.7.1"), ForwardingAction::Unreachable);
    let resolved = lab.control.next_hops().counts().resolved - resolved;
    assert!(resolved < 20, "{resolved} next hops were worked out");
    assert!(took < Duration::from_millis(50), "{took:?}: not for each route");
    // They are withdrawn bit by bit, and a commit is short.
    let mut commits = 0;
    while lab.control.sweeping() {
        let before = routes(&lab);
        let pending = lab.commit().pending;
        assert!(pending > 0 || !lab.control.sweeping());
        assert!(pending == 0 || lab.control.next_due().is_some(), "what is pending is due");
        assert!(before - routes(&lab) < 5_000, "{}", before - routes(&lab));
        commits += 1;
        if commits == 100 {
            // Another event in between is as fast.
            assert!(routes(&lab) > u64::from(MANY) / 2);
            lab.link(RIGHT, LinkState { up: false, ..up("right") });
            lab.control.fail_over().unwrap();
            assert_eq!(ports(&mut lab), [None]);
            lab.link(RIGHT, up("right"));
            lab.control.fail_over().unwrap();
            assert_eq!(ports(&mut lab), [Some(right)]);
        }
    }
    assert!(commits > 100, "{commits}");
    lab.control.commit_now(lab.now).unwrap();
    assert_eq!(routes(&lab), had - u64::from(MANY));
    assert_eq!(
        (lab.action("32.0.7.1"), lab.action("45.187.159.1")),
        (ForwardingAction::NoRoute, ForwardingAction::NoRoute)
    );
    assert_eq!(ports(&mut lab), [Some(right)]);
}

#[test]
fn a_commit_that_makes_all_visible_withdraws_all() {
    let mut lab = with_routes(20_000);
    fails(&mut lab, LEFT, "left", LEFT_OBJECT);
    assert!(lab.commit().pending > 0 && lab.control.sweeping());
    lab.control.commit_now(lab.now).unwrap();
    assert!(!lab.control.sweeping());
    assert_eq!((routes(&lab), lab.action("32.0.7.1")), (1, ForwardingAction::NoRoute));
}

/// A commit, like a command, does not wait for a sweep of a million routes.
#[test]
fn a_commit_that_makes_a_change_visible_takes_one_step_of_the_sweep() {
    let mut lab = with_routes(20_000);
    fails(&mut lab, LEFT, "left", LEFT_OBJECT);
    lab.commit();
    lab.route("198.51.100.0/24", super::tests::via("10.0.2.9"));
    let before = routes(&lab);
    lab.control.commit_whole(lab.now, |_| ()).unwrap();
    assert!(lab.control.sweeping() && lab.control.shows(&lab.control.mark()));
    assert!((1..=2_048).contains(&(before - routes(&lab))), "{before}: {}", routes(&lab));
    assert_ne!(lab.action("198.51.100.1"), ForwardingAction::NoRoute);
}

#[test]
fn routes_of_an_object_that_is_gone_do_not_follow_a_later_one_of_its_number() {
    let mut lab = with_routes(20_000);
    // A gateway that is found by one of them.
    lab.route("198.51.100.0/24", super::tests::via("32.0.9.9"));
    lab.control.commit_now(lab.now).unwrap();
    assert!(lab.adjacency("198.51.100.1").resolved());
    lab.event(RouteEvent::NextHopGone(LEFT_OBJECT));
    lab.control.fail_over().unwrap();
    assert_eq!(lab.action("32.0.7.1"), ForwardingAction::Unreachable);
    object(&mut lab, LEFT_OBJECT, RIGHT, "10.0.2.9");
    route(&mut lab, prefix(7), Target::Object(LEFT_OBJECT));
    route(&mut lab, prefix(40_000), Target::Object(LEFT_OBJECT));
    assert!(lab.commit().pending > 0 && lab.control.sweeping());
    assert_eq!(
        lab.action("198.51.100.1"),
        ForwardingAction::Unreachable,
        "by a route that is gone"
    );
    lab.control.commit_now(lab.now).unwrap();
    let right = lab.port("right");
    assert_eq!(lab.adjacency("32.0.7.1").port, right, "announced again");
    assert_eq!(lab.adjacency("32.156.64.1").port, right);
    assert_eq!(lab.action("32.0.9.1"), ForwardingAction::NoRoute);
    assert_eq!(routes(&lab), 4);
    // And the later one takes its own along.
    lab.event(RouteEvent::NextHopGone(LEFT_OBJECT));
    lab.control.commit_now(lab.now).unwrap();
    assert_eq!(routes(&lab), 2);
}

#[test]
fn objects_that_go_during_a_sweep_are_swept_too() {
    let mut lab = with_routes(20_000);
    for n in 0..20 {
        route(&mut lab, prefix(n), Target::Object(RIGHT_OBJECT));
    }
    lab.control.commit_now(lab.now).unwrap();
    lab.event(RouteEvent::NextHopGone(LEFT_OBJECT));
    lab.commit();
    assert!(lab.control.sweeping());
    // Its routes lie behind the place where the sweep is by now.
    lab.event(RouteEvent::NextHopGone(RIGHT_OBJECT));
    while lab.control.sweeping() {
        lab.commit();
    }
    assert_eq!(routes(&lab), 1, "the group's alone");
    lab.control.commit_now(lab.now).unwrap();
    assert_eq!(lab.action("32.0.7.1"), ForwardingAction::NoRoute);
}

#[test]
fn a_dump_that_begins_before_the_last_one_is_swept_removes_nothing_that_it_repeats() {
    let mut lab = with_routes(20_000);
    lab.control.commit_now(lab.now).unwrap();
    let again = |lab: &mut Lab, routes: std::ops::Range<u32>| {
        for n in routes {
            route(lab, prefix(n), Target::Object(LEFT_OBJECT));
        }
    };
    let objects = |lab: &mut Lab| {
        object(lab, LEFT_OBJECT, LEFT, "10.0.1.9");
        object(lab, RIGHT_OBJECT, RIGHT, "10.0.2.9");
    };
    // The routes of before, but for the first half.
    lab.event(RouteEvent::StartOfTable);
    objects(&mut lab);
    again(&mut lab, 10_000..20_000);
    lab.event(RouteEvent::EndOfTable);
    lab.commit();
    assert!(lab.control.sweeping());
    // And again, with some of the first half, while the sweep is in progress.
    lab.event(RouteEvent::StartOfTable);
    objects(&mut lab);
    again(&mut lab, 9_000..12_000);
    while lab.control.sweeping() {
        lab.commit();
    }
    assert_eq!(routes(&lab), 11_000, "of the second dump nothing is known yet");
    again(&mut lab, 12_000..20_000);
    lab.event(RouteEvent::EndOfTable);
    lab.control.commit_now(lab.now).unwrap();
    assert_eq!(routes(&lab), 11_000);
    assert_eq!(lab.action("32.35.39.1"), ForwardingAction::NoRoute);
    assert!(lab.adjacency("32.35.40.1").resolved());
}

#[test]
fn a_route_that_abandoned_dumps_repeated_and_the_last_one_does_not_is_removed() {
    for abandoned in [0, 1, 98, 99, 100, 101, 127, 128, 199, 200, 255, 256, 1000] {
        let mut lab = with_routes(20);
        let before = routes(&lab);
        // Each has one of the routes, and ends with the loss of messages.
        for n in 0..abandoned {
            lab.event(RouteEvent::StartOfTable);
            route(&mut lab, prefix(n % 20), Target::Object(LEFT_OBJECT));
        }
        lab.event(RouteEvent::StartOfTable);
        object(&mut lab, LEFT_OBJECT, LEFT, "10.0.1.9");
        for n in 5..20 {
            route(&mut lab, prefix(n), Target::Object(LEFT_OBJECT));
        }
        assert_eq!(routes(&lab), before, "nothing is removed before the end of a dump");
        lab.event(RouteEvent::EndOfTable);
        lab.control.commit_now(lab.now).unwrap();
        assert_eq!(routes(&lab), 15, "after {abandoned} abandoned dumps");
    }
}

#[test]
fn a_link_without_carrier_is_as_good_as_down_until_its_next_event() {
    let mut lab = with_routes(10);
    let (left, right) = (lab.port("left"), lab.port("right"));
    lab.control.set_carrier(LEFT, false);
    lab.control.fail_over().unwrap();
    assert_eq!(ports(&mut lab), [Some(right)]);
    assert_eq!(lab.action("32.0.7.1"), ForwardingAction::Unreachable);
    lab.control.set_carrier(LEFT, true);
    lab.control.fail_over().unwrap();
    assert_eq!(ports(&mut lab), [Some(left), Some(right)]);
    lab.control.set_carrier(LEFT, false);
    lab.control.fail_over().unwrap();
    // Its notice has it as it was: it has come back.
    lab.link(LEFT, up("left"));
    lab.control.fail_over().unwrap();
    assert_eq!(ports(&mut lab), [Some(left), Some(right)]);
    lab.control.set_carrier(LEFT, false);
    lab.link(LEFT, LinkState { up: false, ..up("left") });
    lab.control.set_carrier(LEFT, true);
    lab.control.fail_over().unwrap();
    assert_eq!(ports(&mut lab), [Some(right)], "down is down");
}

/// The daemon polls without a wait while a commit has a step to do.
#[test]
fn a_sweep_that_waits_for_a_build_has_no_step() {
    let mut lab = with_routes(20_000);
    let jobs = std::sync::Arc::new(std::sync::Mutex::new(Vec::<crate::fib::Job>::new()));
    let queue = jobs.clone();
    lab.control.build_beside(crate::fib::Runner::new(move |job| queue.lock().unwrap().push(job)));
    lab.control.pin_algorithm(4, Some("dxr18")).unwrap();
    lab.control.flush();
    while jobs.lock().unwrap().is_empty() {
        lab.commit();
    }
    // More changes than the build may lack.
    for n in 0..150_000 {
        route(&mut lab, prefix(20_000 + n), Target::Blackhole);
    }
    lab.commit();
    assert!(lab.control.holds_sources() && !lab.control.sweeping());
    fails(&mut lab, LEFT, "left", LEFT_OBJECT);
    let before = routes(&lab);
    lab.commit();
    assert!(lab.control.sweeping() && !lab.control.sweeps());
    assert!(!lab.control.has_steps(lab.now), "it is built");
    assert_eq!(routes(&lab), before);
    let mut commits = 0;
    while lab.control.sweeping() || lab.control.is_building() {
        lab.now += Duration::from_millis(10);
        std::mem::take(&mut *jobs.lock().unwrap()).into_iter().for_each(|job| job());
        let due = lab.control.next_due().is_some_and(|due| due <= lab.now);
        assert!(lab.control.sweeps() || due, "none but what is due needs a commit");
        lab.control.commit(lab.now).unwrap();
        commits += 1;
        assert!(commits < 10_000);
    }
    assert_eq!(routes(&lab), before - 20_000);
}

/// A table that is built for each change is never in step while routes change, and may name ids that no route has.
#[test]
fn ids_are_used_again_while_tables_are_built_for_each_change() {
    let mut lab = with_routes(9000);
    let jobs = std::sync::Arc::new(std::sync::Mutex::new(Vec::<crate::fib::Job>::new()));
    let queue = jobs.clone();
    lab.control.build_beside(crate::fib::Runner::new(move |job| queue.lock().unwrap().push(job)));
    lab.control.pin_algorithm(4, Some("bsearch")).unwrap();
    let (mut most, mut waited, mut free) = (0, 0, false);
    for n in 0..8000_u32 {
        let gateway = Path {
            gateway: Some([10, 0, 1, 10 + (n % 200) as u8].into()),
            link: Some(LEFT),
            weight: 1,
        };
        route(&mut lab, prefix(n % 3), Target::Path(gateway));
        lab.now += std::time::Duration::from_millis(10);
        lab.control.commit(lab.now).unwrap();
        let ready = std::mem::take(&mut *jobs.lock().unwrap());
        ready.into_iter().for_each(|job| job());
        waited += u32::from(!lab.control.is_visible());
        let waiting = lab.control.next_hops().waiting();
        free |= most > 20 && waiting == 0;
        most = most.max(waiting);
    }
    assert!(waited > 7000, "{waited}: the table is in step all the time");
    assert!(free, "{most} ids wait");
}
