//! Next hops from outside: keys in, forwarding actions of flows out.

use std::collections::{HashMap, HashSet};

use fingerpost_lpm::NoReaders;
use proptest::prelude::*;

use super::*;
use crate::event::{MAIN_TABLE, ObjectTarget, Path};
use crate::hops::Adjacency;

/// Links 1 to 9 are up unless listed.
#[derive(Default)]
struct World {
    down: HashSet<u32>,
    objects: HashMap<u32, ObjectTarget>,
    routes: HashMap<AnyPrefix, NextHopId>,
}

impl World {
    fn lead(&mut self, prefix: &str, hop: NextHopId) {
        self.routes.insert(AnyPrefix::parse(prefix).unwrap(), hop);
    }
}

impl Resolver for World {
    fn exit(&self, gateway: Option<IpAddr>, link: u32) -> Option<Exit> {
        if self.down.contains(&link) || !self.has_link(link) {
            return None;
        }
        Some(match gateway {
            None => Exit::ForwardingAction(ForwardingAction::Glean(u16::try_from(link).unwrap())),
            neighbor => Exit::Adjacency(AdjacencyKey { link, neighbor, mtu: 0 }),
        })
    }
    fn adjacency(&self, _: AdjacencyKey) -> Adjacency {
        Adjacency::unresolved(1, false)
    }
    fn has_link(&self, link: u32) -> bool {
        (1..10).contains(&link)
    }
    fn route(&self, table: u32, gateway: IpAddr) -> Option<Found> {
        let routes = self.routes.iter().filter(|_| table == MAIN_TABLE);
        let covering = routes.filter(|(prefix, _)| covers(**prefix, gateway));
        let (&prefix, &hop) = covering.max_by_key(|(prefix, _)| prefix.len())?;
        Some(Found { prefix, hop })
    }
    fn object(&self, _: u16, id: u32) -> Option<&ObjectTarget> {
        self.objects.get(&id)
    }
}

fn hops() -> NextHops {
    NextHops::new(64, 4096, 64).unwrap()
}

fn addr(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn path(last: u8, link: u32, weight: u32) -> Path {
    Path { gateway: Some(addr(last)), link: Some(link), weight }
}

fn far(gateway: [u8; 4]) -> Path {
    Path { gateway: Some(IpAddr::from(gateway)), link: None, weight: 1 }
}

fn connected(link: u32) -> HopKey {
    HopKey::Path(Path { gateway: None, link: Some(link), weight: 1 })
}

fn object(id: u32) -> HopKey {
    HopKey::Object { source: 0, id }
}

fn prefixes(texts: &[&str]) -> std::vec::IntoIter<AnyPrefix> {
    let parsed: Vec<_> = texts.iter().map(|text| AnyPrefix::parse(text).unwrap()).collect();
    parsed.into_iter()
}

const FLOWS: u32 = 4096;

/// The forwarding actions of as many flows, evenly over all hashes.
fn flows(table: &HopTable, id: NextHopId) -> Vec<ForwardingAction> {
    (0..FLOWS).map(|flow| table.action(id, flow << 20)).collect()
}

fn counts(hops: &NextHops, id: NextHopId) -> HashMap<ForwardingAction, usize> {
    let mut counts = HashMap::new();
    for action in flows(hops.table(), id) {
        *counts.entry(action).or_default() += 1;
    }
    counts
}

fn action_to(hops: &NextHops, path: Path) -> ForwardingAction {
    let key = AdjacencyKey { link: path.link.unwrap(), neighbor: path.gateway, mtu: 0 };
    ForwardingAction::Adjacency(hops.adjacency(key).unwrap())
}

#[test]
fn equal_keys_share_an_id_whatever_their_order() {
    let world = World::default();
    let mut hops = hops();
    let a = HopKey::of_paths(vec![path(1, 1, 2), path(2, 2, 1)]);
    let b = HopKey::of_paths(vec![path(2, 2, 1), path(1, 1, 2)]);
    let id = hops.acquire(&a, &world).unwrap();
    assert_eq!(hops.acquire(&b, &world).unwrap(), id);
    assert_eq!((hops.refs(id), hops.len()), (2, 1));
    let c = HopKey::of_paths(vec![path(2, 2, 2), path(1, 1, 1)]);
    assert_ne!(hops.acquire(&c, &world).unwrap(), id, "other weights are another group");
}

/// One prefix, one gateway, other flags: two objects.
#[test]
fn attributes_distinguish_next_hops() {
    let world = World::default();
    let mut hops = hops();
    let key = HopKey::Path(path(1, 1, 1));
    let plain = hops.acquire(&key, &world).unwrap();
    let flags = HopFlags::HOST | HopFlags::GATEWAY;
    let host = HopAttrs { flags, ..HopAttrs::default() };
    let host = hops.acquire_as(&key, host, None, &world).unwrap();
    let small = HopAttrs { mtu: 1280, ..HopAttrs::default() };
    let small_id = hops.acquire_as(&key, small, None, &world).unwrap();
    // The table does not matter to a path whose link is known.
    let table = HopAttrs { table: 7, ..HopAttrs::default() };
    assert_eq!(hops.acquire_as(&key, table, None, &world).unwrap(), plain);
    let ids = [plain, host, small_id];
    assert_eq!(hops.find_all(&key).collect::<Vec<_>>(), ids);
    assert_eq!(hops.find(&key), Some(plain));
    assert_eq!(hops.find_as(&key, small), Some(small_id));
    assert_eq!(hops.attrs(host).unwrap().flags, HopFlags::HOST, "the rest follows from the key");
    assert_eq!(hops.row(host).unwrap().flags, flags);
    // An MTU of its own is an adjacency of its own, of the same neighbor.
    assert_eq!(hops.content(plain), hops.content(host));
    assert_ne!(hops.content(plain), hops.content(small_id));
    assert_eq!(hops.adjacencies_of(1, addr(1)).count(), 2);
    assert_eq!(hops.adjacencies_on(1).count(), 2);
    assert_eq!(hops.adjacencies_on(2).count(), 0);
    hops.release(host);
    assert_eq!(hops.find_all(&key).collect::<Vec<_>>(), [plain, small_id]);
}

/// FreeBSD's own weights and what it makes of them, whatever the order of members.
#[test]
fn slots_are_as_in_freebsd_for_every_order_of_members() {
    let world = World::default();
    for (weights, shares) in [
        (&[2, 3][..], &[2, 3][..]),
        (&[1, 2], &[1, 2]),
        (&[2, 7], &[14, 50]),
        (&[13, 21], &[24, 40]),
        (&[100, 200, 400], &[1, 2, 4]),
        (&[1, 1000], &[1, 63]),
        (&[1, 1], &[1, 1]),
        (&[0, 3], &[1, 3]),
    ] {
        let members: Vec<(u32, u32)> =
            weights.iter().copied().zip(shares.iter().copied()).collect();
        for order in orders(&members) {
            let mut hops = hops();
            hops.set_mode(GroupMode::Slots).unwrap();
            let paths: Vec<Path> =
                (1..).zip(&order).map(|(i, &(weight, _))| path(i, i.into(), weight)).collect();
            let id = hops.acquire(&HopKey::of_paths(paths.clone()), &world).unwrap();
            let row = hops.row(id).unwrap();
            assert_eq!(row.slots, shares.iter().sum::<u32>(), "{order:?}");
            assert_eq!(hops.table().group(id).unwrap().1, row.slots);
            for (&(_, share), path) in order.iter().zip(&paths) {
                let action = action_to(&hops, *path);
                let member = row.members.iter().find(|member| member.action == action).unwrap();
                assert_eq!(member.slots, share, "{order:?}");
                let flows = counts(&hops, id)[&action];
                let want = FLOWS as usize * share as usize / row.slots as usize;
                assert!(flows.abs_diff(want) <= 1, "{order:?}: {flows} for {want}");
            }
        }
    }
}

/// All orders of a few things.
fn orders<T: Copy>(things: &[T]) -> Vec<Vec<T>> {
    if things.len() < 2 {
        return vec![things.to_vec()];
    }
    let mut all = Vec::new();
    for first in 0..things.len() {
        let mut rest = things.to_vec();
        let first = rest.remove(first);
        all.extend(orders(&rest).into_iter().map(|mut order| {
            order.insert(0, first);
            order
        }));
    }
    all
}

/// Members are added and taken away in every order, one at a time, by new keys as a RIB makes them: slots
/// follow the weights, and one alone is no group.
#[test]
fn every_order_of_adding_and_deleting_members() {
    let world = World::default();
    let paths = [path(1, 1, 2), path(2, 2, 3), path(3, 3, 4)];
    for mode in [GroupMode::Slots, GroupMode::Resilient] {
        for (add, delete) in orders(&paths)
            .into_iter()
            .flat_map(|a| orders(&paths).into_iter().map(move |d| (a.clone(), d)))
        {
            let mut hops = hops();
            hops.set_mode(mode).unwrap();
            let mut now: Vec<Path> = Vec::new();
            let mut id = None;
            let steps: Vec<(bool, Path)> =
                add.iter().map(|&w| (true, w)).chain(delete.iter().map(|&w| (false, w))).collect();
            for (add, path) in steps {
                if add {
                    now.push(path)
                } else {
                    now.retain(|w| *w != path)
                }
                let key = HopKey::of_paths(now.clone());
                let new = hops.acquire_as(&key, HopAttrs::default(), id, &world).unwrap();
                if let Some(old) = id.replace(new) {
                    hops.release(old);
                }
                hops.reclaim(&mut NoReaders);
                let total: u32 = now.iter().map(|w| w.weight).sum();
                let slots = match (now.len(), mode) {
                    (0 | 1, _) => 0,
                    (2, GroupMode::Slots) if total == 6 => 3,
                    (_, GroupMode::Slots) => total,
                    (_, GroupMode::Resilient) => 256,
                };
                let row = hops.row(new).unwrap();
                assert_eq!(row.slots, slots, "{mode:?} {now:?}");
                for path in now.iter().filter(|_| slots > 0) {
                    let action = action_to(&hops, *path);
                    let member = row.members.iter().find(|member| member.action == action).unwrap();
                    let exact = f64::from(slots * path.weight) / f64::from(total);
                    assert!((f64::from(member.slots) - exact).abs() < 1.0, "{mode:?} {now:?}");
                }
            }
            assert_eq!(hops.key(id.unwrap()), Some(&HopKey::Unreachable));
            assert_eq!(hops.adjacencies().count(), 0);
        }
    }
}

#[test]
fn a_link_that_fails_changes_contents_in_place() {
    let mut world = World::default();
    let mut hops = hops();
    let id = hops.acquire(&HopKey::of_paths(vec![path(1, 1, 3), path(2, 2, 1)]), &world).unwrap();
    let table = hops.table().clone();
    hops.take_grown();
    let (a, b) = (action_to(&hops, path(1, 1, 1)), action_to(&hops, path(2, 2, 1)));
    let before = flows(&table, id);
    assert_eq!(counts(&hops, id), [(a, 3072), (b, 1024)].into());
    world.down.insert(1);
    hops.refresh_link(1, &world).unwrap();
    assert!(flows(&table, id).iter().all(|&action| action == b));
    world.down.insert(2);
    hops.refresh_link(2, &world).unwrap();
    assert_eq!(table.action(id, 5), ForwardingAction::Unreachable);
    world.down.clear();
    hops.refresh_link(2, &world).unwrap();
    hops.refresh_link(1, &world).unwrap();
    let (a2, b2) = (action_to(&hops, path(1, 1, 1)), action_to(&hops, path(2, 2, 1)));
    let again: Vec<ForwardingAction> =
        before.iter().map(|&action| if action == a { a2 } else { b2 }).collect();
    assert!(flows(&table, id) == again, "every flow is back where it was");
    assert!(Arc::ptr_eq(&table, hops.table()) && !hops.take_grown(), "all in the same table");
}

#[test]
fn a_member_that_fails_moves_no_flow_of_the_others() {
    let mut world = World::default();
    let mut hops = hops();
    let paths: Vec<Path> = (1..=7).map(|i| path(i, i.into(), 1 + u32::from(i) % 3)).collect();
    let id = hops.acquire(&HopKey::of_paths(paths.clone()), &world).unwrap();
    let table = hops.table().clone();
    let mut before = flows(&table, id);
    let group = table.group(id);
    for failed in 1..=7 {
        let gone = action_to(&hops, paths[failed as usize - 1]);
        world.down.insert(failed);
        hops.refresh_link(failed, &world).unwrap();
        for (old, new) in before.iter().zip(flows(&table, id)) {
            assert!(if *old == gone { new != gone } else { new == *old });
        }
        assert_eq!(table.group(id), group, "in the same slots");
        world.down.clear();
        hops.refresh_link(failed, &world).unwrap();
        let back = action_to(&hops, paths[failed as usize - 1]);
        for (old, new) in before.iter().zip(flows(&table, id)) {
            assert_eq!(new, if *old == gone { back } else { *old });
        }
        // The adjacency has another index now.
        before = flows(&table, id);
        hops.reclaim(&mut NoReaders);
    }
}

/// The numbers of decision 8: what share of all flows moves when the first of n equal members fails, in
/// FreeBSD's slots and in buckets. What must move is one in n.
#[test]
fn how_many_flows_move_in_each_mode() {
    let moved = |mode: GroupMode, members: u8| {
        let mut world = World::default();
        let mut hops = hops();
        hops.set_mode(mode).unwrap();
        let mut paths: Vec<Path> = (1..=members).map(|i| path(i, 2, 1)).collect();
        paths[0].link = Some(1);
        let id = hops.acquire(&HopKey::of_paths(paths), &world).unwrap();
        let before = flows(hops.table(), id);
        world.down.insert(1);
        hops.refresh_link(1, &world).unwrap();
        let after = flows(hops.table(), id);
        before.iter().zip(&after).filter(|(before, after)| before != after).count()
    };
    for (members, slots, buckets) in
        [(2, 50, 50), (3, 50, 34), (4, 50, 25), (8, 50, 13), (16, 50, 6)]
    {
        let percent = |moved: usize| (moved * 100 + FLOWS as usize / 2) / FLOWS as usize;
        let moved = [GroupMode::Slots, GroupMode::Resilient].map(|mode| moved(mode, members));
        assert_eq!(moved.map(percent), [slots, buckets], "{members} members");
    }
}

#[test]
fn a_route_that_loses_a_path_keeps_the_flows_of_the_rest() {
    let world = World::default();
    let mut hops = hops();
    let paths: Vec<Path> = (1..=5).map(|i| path(i, i.into(), 1)).collect();
    let key = HopKey::of_paths(paths.clone());
    let old = hops.acquire(&key, &world).unwrap();
    let rest = HopKey::of_paths([&paths[..2], &paths[3..]].concat());
    let new = hops.acquire_as(&rest, HopAttrs::default(), Some(old), &world).unwrap();
    let gone = action_to(&hops, paths[2]);
    let (before, after) = (flows(hops.table(), old), flows(hops.table(), new));
    for (before, after) in before.iter().zip(&after) {
        assert!(before == after || *before == gone);
    }
    // And the path that comes back finds its flows.
    let again =
        hops.acquire_as(&key, HopAttrs { mtu: 1400, ..HopAttrs::default() }, Some(new), &world);
    let row = hops.row(again.unwrap()).unwrap();
    assert_eq!(row.members.len(), 5);
}

#[test]
fn objects_are_written_once_for_all_their_routes() {
    let mut world = World::default();
    let mut hops = hops();
    let id = hops.acquire(&object(9), &world).unwrap();
    assert_eq!(hops.table().action(id, 0), ForwardingAction::Unreachable, "not announced yet");
    world.objects.insert(9, ObjectTarget::Group(vec![(1, 1), (2, 1)]));
    world.objects.insert(1, ObjectTarget::Path(path(1, 1, 1)));
    hops.refresh_object(0, 9, &world).unwrap();
    assert_eq!(counts(&hops, id).len(), 1, "a member is still to come");
    world.objects.insert(2, ObjectTarget::Path(path(2, 2, 1)));
    hops.refresh_object(0, 2, &world).unwrap();
    assert_eq!(counts(&hops, id).len(), 2);
    world.objects.insert(9, ObjectTarget::Blackhole);
    hops.refresh_object(0, 9, &world).unwrap();
    assert_eq!(hops.table().action(id, 0), ForwardingAction::Blackhole);
    let resolved = hops.counts().resolved;
    hops.refresh_object(0, 2, &world).unwrap();
    assert_eq!(hops.counts().resolved, resolved, "it is no member any more");
    world.objects.insert(9, ObjectTarget::Group(vec![(9, 1)]));
    hops.refresh_object(0, 9, &world).unwrap();
    assert_eq!(hops.table().action(id, 0), ForwardingAction::Unreachable, "a loop leads nowhere");
}

#[test]
fn recursive_gateways_follow_their_route() {
    let mut world = World::default();
    let mut hops = hops();
    let near = hops.acquire(&connected(3), &world).unwrap();
    world.lead("10.0.0.0/24", near);
    let way7 = Path { link: None, ..path(7, 0, 1) };
    let id = hops.acquire(&HopKey::Path(way7), &world).unwrap();
    assert_eq!(hops.table().action(id, 0), action_to(&hops, path(7, 3, 1)));
    let other =
        hops.acquire(&HopKey::of_paths(vec![path(1, 1, 1), path(2, 2, 1)]), &world).unwrap();
    world.lead("10.0.0.0/28", other);
    hops.refresh_routes(prefixes(&["10.0.0.0/28"]), &world).unwrap();
    assert_eq!(counts(&hops, id), counts(&hops, other));
    let near = AdjacencyKey { link: 3, neighbor: way7.gateway, mtu: 0 };
    assert_eq!(hops.adjacency(near), None, "no packet leaves by it any more");
    world.lead("10.0.0.7/32", id);
    hops.refresh_routes(prefixes(&["10.0.0.7/32"]), &world).unwrap();
    assert_eq!(
        hops.table().action(id, 0),
        ForwardingAction::Unreachable,
        "its own route leads nowhere"
    );
}

#[test]
fn a_gateway_on_several_links_is_the_neighbor_on_each() {
    let mut world = World::default();
    let mut hops = hops();
    let paths = [1, 2].map(|link| Path { gateway: None, link: Some(link), weight: 1 });
    let near = hops.acquire(&HopKey::of_paths(paths.to_vec()), &world).unwrap();
    world.lead("10.0.0.0/24", near);
    let id = hops.acquire(&HopKey::Path(Path { link: None, ..path(7, 0, 1) }), &world).unwrap();
    let want = [(action_to(&hops, path(7, 1, 1)), 2048), (action_to(&hops, path(7, 2, 1)), 2048)];
    assert_eq!(counts(&hops, id), want.into());
}

/// Sixteen gateways, each reached by a group of all sixteen: without a stop that is 16! paths.
#[test]
fn loops_end() {
    let mut world = World::default();
    let mut hops = hops();
    let paths: Vec<Path> = (1..=16).map(|i| far([192, 0, 2, i])).collect();
    let id = hops.acquire(&HopKey::of_paths(paths.clone()), &world).unwrap();
    world.lead("192.0.2.0/24", id);
    hops.refresh_routes(prefixes(&["192.0.2.0/24"]), &world).unwrap();
    assert_eq!(hops.content(id), []);
    // The same through sixteen entries that differ, so that no key repeats at once.
    for i in 0..16 {
        let mut paths = paths.clone();
        paths[i].weight = 2;
        let id = hops.acquire(&HopKey::of_paths(paths), &world).unwrap();
        world.lead(&format!("192.0.2.{}/32", i + 1), id);
    }
    hops.refresh(&world).unwrap();
    assert!(hops.rows().all(|row| row.members.is_empty()));
}

/// The whole point: what is worked out is what depends on the change, not what there is.
#[test]
fn only_what_depends_on_a_change_is_resolved() {
    let mut world = World::default();
    let mut hops = NextHops::new(16_384, 16_384, 16_384).unwrap();
    let near = hops.acquire(&connected(3), &world).unwrap();
    world.lead("10.0.0.0/8", near);
    for id in 0..10_000u32 {
        let [.., a, b] = id.to_be_bytes();
        let gateway = Some(IpAddr::from([10, 1, a, b]));
        let target = ObjectTarget::Path(Path { gateway, link: Some(1 + id % 5), weight: 1 });
        world.objects.insert(id, target);
        hops.acquire(&object(id), &world).unwrap();
    }
    for i in 0..100 {
        hops.acquire(&HopKey::Path(far([10, 2, 0, i])), &world).unwrap();
        hops.acquire(&HopKey::of_paths(vec![far([10, 2, 0, i]), path(1, 9, 1)]), &world).unwrap();
    }
    assert_eq!((hops.len(), hops.gateways()), (10_201, 100));
    let mut before = hops.counts();
    let mut done = |hops: &NextHops| {
        let now = hops.counts();
        let done = (now.resolved - before.resolved, now.rewritten - before.rewritten);
        before = now;
        done
    };
    for id in 0..100 {
        world.objects.insert(id, ObjectTarget::Blackhole);
        hops.refresh_object(0, id, &world).unwrap();
    }
    assert_eq!(done(&hops), (100, 100), "100 of 10,000 objects");
    world.down.insert(9);
    hops.refresh_link(9, &world).unwrap();
    assert_eq!(done(&hops), (100, 100), "a link in a hundred groups");
    world.down.insert(5);
    hops.refresh_link(5, &world).unwrap();
    assert_eq!(done(&hops), (1980, 1980), "a link of a fifth of the objects");
    // Routes elsewhere, and routes that a longer one hides.
    hops.refresh_routes(prefixes(&["192.0.2.0/24", "0.0.0.0/0", "10.9.0.0/16"]), &world).unwrap();
    assert_eq!(done(&hops), (0, 0));
    // A route to some of the gateways, that leads where the old one did: looked up, not resolved.
    world.lead("10.2.0.0/25", near);
    hops.refresh_routes(prefixes(&["10.2.0.0/25"]), &world).unwrap();
    assert_eq!(done(&hops), (0, 0));
    // One that leads elsewhere.
    let other = hops.acquire(&connected(4), &world).unwrap();
    done(&hops);
    world.lead("10.2.0.8/29", other);
    hops.refresh_routes(prefixes(&["10.2.0.8/29"]), &world).unwrap();
    assert_eq!(done(&hops), (16, 16), "eight gateways in two entries each");
    // It is longer than this one, which goes.
    world.routes.remove(&AnyPrefix::parse("10.2.0.0/25").unwrap());
    hops.refresh_routes(prefixes(&["10.2.0.0/25"]), &world).unwrap();
    assert_eq!(done(&hops), (0, 0));
    // A storm of changes looks each gateway up once.
    let storm: Vec<_> = (0..100_000u32)
        .map(|i| AnyPrefix::V4(fingerpost_lpm::Prefix::masked(i << 8, 24)))
        .collect();
    world.lead("10.2.0.8/29", near);
    hops.refresh_routes(storm.into_iter(), &world).unwrap();
    assert_eq!(done(&hops), (16, 16));
}

/// An entry that is made between a change of the RIB and the refresh saw the new route, the older ones the
/// old one: a change back must not leave it behind.
#[test]
fn routes_that_change_and_change_back() {
    let mut world = World::default();
    let mut hops = hops();
    let (a, b) = (hops.acquire(&connected(1), &world), hops.acquire(&connected(2), &world));
    world.lead("10.0.0.0/24", a.clone().unwrap());
    let old = hops.acquire(&HopKey::Path(far([10, 0, 0, 9])), &world).unwrap();
    world.lead("10.0.0.0/24", b.unwrap());
    let paths = vec![far([10, 0, 0, 9]), path(1, 9, 1)];
    let new = hops.acquire(&HopKey::of_paths(paths), &world).unwrap();
    world.lead("10.0.0.0/24", a.unwrap());
    hops.refresh_routes(prefixes(&["10.0.0.0/24"]), &world).unwrap();
    let action = action_to(&hops, path(9, 1, 1));
    assert_eq!(hops.content(old), [(action, 1)]);
    assert!(hops.content(new).contains(&(action, 1)));
}

/// Epochs pass only on request.
#[derive(Default)]
struct Slow {
    now: u64,
    passed: u64,
}

impl Grace for Slow {
    fn retire(&mut self) -> Epoch {
        self.now += 1;
        Epoch(self.now)
    }
    fn passed(&self, epoch: Epoch) -> bool {
        epoch.0 <= self.passed
    }
}

#[test]
fn ids_are_reused_only_after_the_readers() {
    let world = World::default();
    let mut hops = hops();
    let mut grace = Slow::default();
    let key = |last| HopKey::of_paths(vec![path(last, 1, 1), path(last, 2, 1)]);
    let first = hops.acquire(&key(1), &world).unwrap();
    let word = hops.table().action(first, 0);
    hops.release(first);
    hops.reclaim(&mut grace);
    assert_eq!(hops.table().action(first, 0), word, "readers may still come here");
    let second = hops.acquire(&key(2), &world).unwrap();
    assert_ne!(first, second);
    assert_eq!(hops.table().action(first, 0), word);
    grace.passed = grace.now;
    hops.reclaim(&mut grace);
    assert_eq!(hops.waiting(), 0);
    assert_eq!(hops.acquire(&key(3), &world).unwrap(), first);
}

#[test]
fn the_table_grows_and_reports_it() {
    let world = World::default();
    let mut hops = NextHops::new(2, 2, 2).unwrap();
    hops.take_grown();
    let ids: Vec<_> = (1..100)
        .map(|i| {
            let paths = vec![path(i, 1, 1), path(i, 3, 1), path(i, 2, 2)];
            hops.acquire(&HopKey::of_paths(paths), &world).unwrap()
        })
        .collect();
    assert!(hops.take_grown() && !hops.take_grown());
    for &id in &ids {
        assert_eq!(counts(&hops, id).len(), 3);
    }
    for id in ids {
        hops.release(id);
    }
    hops.reclaim(&mut NoReaders);
    assert!(hops.is_empty() && hops.waiting() == 0);
    assert_eq!(hops.adjacencies().count(), 0);
}

#[test]
fn groups_change_their_layout_with_the_mode() {
    let world = World::default();
    let mut hops = NextHops::new(8, 8, 8).unwrap();
    let id = hops.acquire(&HopKey::of_paths(vec![path(1, 1, 2), path(2, 2, 3)]), &world).unwrap();
    let single = hops.acquire(&HopKey::Path(path(1, 1, 1)), &world).unwrap();
    assert_eq!(hops.row(id).unwrap().slots, 256);
    hops.set_mode(GroupMode::Slots).unwrap();
    assert_eq!((hops.row(id).unwrap().slots, hops.row(single).unwrap().slots), (5, 0));
    hops.set_mode(GroupMode::Resilient).unwrap();
    let row = hops.row(id).unwrap();
    let shares: Vec<u32> = row.members.iter().map(|member| member.slots).collect();
    assert_eq!((row.slots, shares), (256, vec![102, 154]));
}

#[test]
fn rows_have_what_is_shown() {
    let mut world = World::default();
    let mut hops = hops();
    let group = HopKey::of_paths(vec![path(1, 1, 1), path(2, 2, 3)]);
    let attrs = HopAttrs { flags: HopFlags::DEFAULT, mtu: 1400, table: MAIN_TABLE };
    let id = hops.acquire_as(&group, attrs, None, &world).unwrap();
    let row = hops.row(id).unwrap();
    assert_eq!((row.kind(), row.refs, row.attrs.mtu, row.slots), ("group", 1, 1400, 256));
    assert_eq!(row.flags, HopFlags::DEFAULT | HopFlags::MULTIPATH | HopFlags::GATEWAY);
    assert_eq!((row.gateway(), row.link()), (None, None));
    let members: Vec<_> = row.members.iter().map(|m| (m.weight, m.slots)).collect();
    assert_eq!(members, [(1, 64), (3, 192)]);
    world.objects.insert(5, ObjectTarget::Path(path(7, 4, 1)));
    world.lead("10.0.0.0/24", NextHopId(999));
    let ids = [
        hops.acquire(&HopKey::Path(path(3, 3, 1)), &world).unwrap(),
        hops.acquire(&connected(4), &world).unwrap(),
        hops.acquire(&object(5), &world).unwrap(),
        hops.acquire(&HopKey::Blackhole, &world).unwrap(),
        hops.acquire(&HopKey::Prohibit, &world).unwrap(),
        hops.acquire(&HopKey::Local, &world).unwrap(),
        hops.acquire(&HopKey::Path(far([10, 0, 0, 8])), &world).unwrap(),
    ];
    let shown: Vec<_> = ids
        .map(|id| {
            let row = hops.row(id).unwrap();
            (row.kind(), row.flags.letters(), row.link(), row.members.len())
        })
        .into();
    let want = [
        ("gateway", "G", Some(3), 1),
        ("link", "", Some(4), 1),
        ("object", "G", Some(4), 1),
        ("blackhole", "B", None, 1),
        ("prohibit", "R", None, 1),
        ("local", "", None, 1),
        ("gateway", "G", None, 0),
    ];
    assert_eq!(shown, want.map(|(kind, flags, link, n)| (kind, flags.to_owned(), link, n)));
    assert_eq!(hops.rows().count(), 8);
    assert_eq!(hops.row(NextHopId(999)).map(|row| row.id), None);
}

fn refused(result: Result<(), HopError>) -> String {
    result.expect_err("must be refused").to_string()
}

#[test]
fn bad_paths_are_refused_before_anything_changes() {
    let mut world = World::default();
    let mut hops = hops();
    let near = hops.acquire(&connected(3), &world).unwrap();
    world.lead("10.0.0.0/24", near);
    let say = |key: &HopKey| refused(hops.check(key, None, &world));
    assert_eq!(
        say(&HopKey::Path(Path { gateway: None, link: None, weight: 1 })),
        "a path needs a gateway or a device"
    );
    assert_eq!(say(&HopKey::Path(path(1, 77, 1))), "device 77 is not known");
    assert_eq!(
        say(&HopKey::Path(far([192, 0, 2, 1]))),
        "gateway 192.0.2.1: no route to it in table 254"
    );
    assert_eq!(say(&object(4)), "next hop 4 is not known");
    let many: Vec<Path> = (0..=255).map(|i| path(i, 1, 1)).chain([path(0, 2, 1)]).collect();
    assert_eq!(say(&HopKey::of_paths(many.clone())), "group has 257 members, at most 256");
    let heavy = HopKey::of_paths(vec![path(1, 1, 1), path(2, 1, 65_536)]);
    assert_eq!(say(&heavy), "weight 65536 of member 2 is over 65535");
    assert_eq!(
        refused(hops.check_shape(&HopKey::Group(Box::new([
            path(1, 1, 1),
            path(2, 1, 1),
            path(1, 1, 3)
        ])))),
        "member 3 is in the group twice"
    );
    let v6 = Some((MAIN_TABLE, AnyPrefix::parse("2001:db8::/32").unwrap()));
    assert_eq!(
        refused(hops.check(&HopKey::Path(path(1, 1, 1)), v6, &world)),
        "gateway 10.0.0.1 is out of family: an IPv6 route needs an IPv6 gateway"
    );
    let v4 = Some((MAIN_TABLE, AnyPrefix::parse("192.0.2.0/24").unwrap()));
    assert_eq!(hops.check(&HopKey::Path(path(1, 1, 1)), v4, &world), Ok(()));
    assert_eq!(hops.check(&HopKey::Path(far([10, 0, 0, 5])), v4, &world), Ok(()));
    assert_eq!(hops.check(&HopKey::Blackhole, v6, &world), Ok(()));
    // Events are taken as they come, but not these.
    for key in [heavy, HopKey::of_paths(many)] {
        assert!(hops.acquire(&key, &world).is_err());
    }
    hops.set_mode(GroupMode::Slots).unwrap();
    let many: Vec<Path> = (0..65).map(|i| path(i, 1, 1)).collect();
    let error = hops.acquire(&HopKey::of_paths(many), &world).unwrap_err();
    assert_eq!(error, HopError::Members { max: 64, got: 65 });
    assert_eq!((hops.len(), hops.adjacencies().count(), hops.waiting()), (1, 0, 0));
}

#[test]
fn loops_are_refused() {
    let mut world = World::default();
    let mut hops = hops();
    let near = hops.acquire(&connected(3), &world).unwrap();
    world.lead("10.0.0.0/24", near);
    let route = |prefix: &str| Some((MAIN_TABLE, AnyPrefix::parse(prefix).unwrap()));
    let a = HopKey::Path(far([10, 0, 0, 7]));
    // A route that would be the one to its own gateway.
    assert_eq!(
        refused(hops.check(&a, route("10.0.0.7/32"), &world)),
        "gateway 10.0.0.7 is reached through itself"
    );
    assert_eq!(hops.check(&a, route("10.0.0.0/8"), &world), Ok(()), "the shorter one is not");
    // Two routes, each by a gateway behind the other.
    let first = hops.acquire(&HopKey::Path(far([172, 16, 0, 1])), &world).unwrap();
    world.lead("172.17.0.0/16", first);
    let second = HopKey::Path(far([172, 17, 0, 1]));
    assert_eq!(
        refused(hops.check(&second, route("172.16.0.0/16"), &world)),
        "gateway 172.16.0.1 is reached through itself"
    );
    // And when it is there already.
    let second = hops.acquire(&second, &world).unwrap();
    world.lead("172.16.0.0/16", second);
    let third = HopKey::of_paths(vec![path(1, 1, 1), far([172, 16, 9, 9])]);
    assert!(refused(hops.check(&third, None, &world)).ends_with("is reached through itself"));
    // A long chain is no loop, but too long.
    for i in 1..20 {
        let hop = hops.acquire(&HopKey::Path(far([11, i - 1, 0, 1])), &world).unwrap();
        world.lead(&format!("11.{i}.0.0/16"), hop);
    }
    world.lead("11.0.0.0/16", near);
    assert_eq!(hops.check(&HopKey::Path(far([11, 7, 0, 1])), None, &world), Ok(()));
    assert_eq!(
        refused(hops.check(&HopKey::Path(far([11, 19, 0, 1])), None, &world)),
        "gateway 11.11.0.1 is more than 8 routes away"
    );
}

#[test]
fn bad_objects_are_refused() {
    let mut world = World::default();
    let hops = hops();
    world.objects.insert(1, ObjectTarget::Path(path(1, 1, 1)));
    world.objects.insert(2, ObjectTarget::Group(vec![(1, 1)]));
    world.objects.insert(3, ObjectTarget::Blackhole);
    let group = |members: &[(u32, u32)]| ObjectTarget::Group(members.to_vec());
    let say = |target: &ObjectTarget| refused(hops.check_object(0, 9, target, &world));
    assert_eq!(say(&group(&[(1, 1), (2, 1)])), "next hop 9: member 2 is a group itself");
    assert_eq!(say(&group(&[(9, 1)])), "next hop 9: member 9 is a group itself");
    assert_eq!(say(&group(&[(1, 1), (7, 1)])), "next hop 7 is not known");
    assert_eq!(say(&group(&[(1, 1), (1, 2)])), "member 2 is in the group twice");
    assert_eq!(say(&group(&[])), "a group needs members");
    assert_eq!(say(&group(&[(1, 70_000)])), "weight 70000 of member 1 is over 65535");
    assert_eq!(say(&ObjectTarget::Path(path(1, 44, 1))), "device 44 is not known");
    assert_eq!(hops.check_object(0, 9, &group(&[(1, 1), (3, 9)]), &world), Ok(()));
    // A route that names a nested group, made by events.
    world.objects.insert(5, group(&[(2, 1)]));
    assert_eq!(
        refused(hops.check(&object(5), None, &world)),
        "next hop 5: member 2 is a group itself"
    );
}

#[test]
fn a_full_table_refuses_and_goes_on() {
    let world = World::default();
    let mut hops = hops();
    hops.max_hops = 2;
    let key = |last| HopKey::Path(path(last, 1, 1));
    let first = hops.acquire(&key(1), &world).unwrap();
    hops.acquire(&key(2), &world).unwrap();
    let full = "next hops limit exceeded: need 3, at most 2";
    assert_eq!(refused(hops.check(&key(3), None, &world)), full);
    assert_eq!(hops.acquire(&key(3), &world).unwrap_err().to_string(), full);
    assert_eq!(hops.check(&key(2), None, &world), Ok(()), "this one is there");
    assert_eq!((hops.len(), hops.adjacencies().count()), (2, 2));
    hops.release(first);
    hops.acquire(&key(3), &world).unwrap();
}

/// A group that cannot grow keeps its old forwarding actions and their adjacencies, and is written at the next chance.
#[test]
fn what_could_not_be_written_is_tried_again() {
    let mut world = World::default();
    let mut hops = hops();
    world.objects.insert(1, ObjectTarget::Path(path(1, 1, 1)));
    world.objects.insert(2, ObjectTarget::Path(path(2, 2, 1)));
    world.objects.insert(9, ObjectTarget::Group(vec![(1, 1)]));
    let id = hops.acquire(&object(9), &world).unwrap();
    let old = hops.table().action(id, 0);
    world.objects.insert(9, ObjectTarget::Group(vec![(1, 1), (2, 1)]));
    hops.next_slot = MAX_INDEX - 5;
    let error = hops.refresh_object(0, 9, &world).unwrap_err();
    assert_eq!(error.to_string(), "slots limit exceeded: need 268435706, at most 268435455");
    assert_eq!(hops.table().action(id, 0), old);
    assert_eq!(hops.content(id), [(old, 1)]);
    assert_eq!(hops.adjacencies().count(), 1, "those of the new legs are given back");
    hops.next_slot = 0;
    hops.refresh_link(7, &world).unwrap();
    assert_eq!(counts(&hops, id).len(), 2);
    assert!(hops.unwritten.is_empty());
}

#[derive(Clone, Debug)]
enum Op {
    Link(u32),
    Object(u32, Vec<u32>),
    Route(u8, u8, usize),
    Acquire(Vec<(u8, u32)>),
    AcquireObject(u32),
    Release(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (1u32..6).prop_map(Op::Link),
        (1u32..6, proptest::collection::vec(1u32..6, 0..3)).prop_map(|(id, m)| Op::Object(id, m)),
        (0u8..8, 29u8..=32, 0usize..20).prop_map(|(net, len, hop)| Op::Route(net, len, hop)),
        proptest::collection::vec((0u8..8, 0u32..6), 1..4).prop_map(Op::Acquire),
        (1u32..6).prop_map(Op::AcquireObject),
        (0usize..20).prop_map(Op::Release),
    ]
}

proptest! {
    /// However things change, what the refreshes of single things leave is what working everything out
    /// anew would give, and the table equals it.
    #[test]
    fn refreshes_miss_nothing(ops in proptest::collection::vec(op(), 1..60), slots: bool) {
        let mut world = World::default();
        let mut hops = hops();
        if slots {
            hops.set_mode(GroupMode::Slots).unwrap();
        }
        let first = hops.acquire(&connected(1), &world).unwrap();
        world.lead("10.0.0.0/24", first);
        // Those that routes name stay for good.
        hops.add_ref(first);
        let mut held = vec![first];
        for op in ops {
            match op {
                Op::Link(link) => {
                    if !world.down.remove(&link) {
                        world.down.insert(link);
                    }
                    hops.refresh_link(link, &world).unwrap();
                }
                Op::Object(id, members) => {
                    let target = match members[..] {
                        [] => ObjectTarget::Blackhole,
                        [link] => ObjectTarget::Path(path(9, link, 1)),
                        _ => ObjectTarget::Group(members.iter().map(|&m| (m, m)).collect()),
                    };
                    world.objects.insert(id, target);
                    hops.refresh_object(0, id, &world).unwrap();
                }
                Op::Route(net, len, hop) => {
                    let prefix = fingerpost_lpm::Prefix::masked(0x0a00_0000 | u32::from(net), len);
                    let prefix = AnyPrefix::V4(prefix);
                    match held.get(hop) {
                        Some(&hop) => {
                            hops.add_ref(hop);
                            world.routes.insert(prefix, hop);
                        }
                        None => {
                            world.routes.remove(&prefix);
                        }
                    }
                    hops.refresh_routes([prefix].into_iter(), &world).unwrap();
                }
                Op::Acquire(paths) => {
                    let paths = paths
                        .into_iter()
                        .map(|(gateway, link)| Path {
                            link: (link > 0).then_some(link),
                            ..path(gateway, 0, 1)
                        })
                        .collect();
                    let key = HopKey::of_paths(paths);
                    held.push(hops.acquire_as(&key, HopAttrs::default(), held.last().copied(), &world).unwrap());
                }
                Op::AcquireObject(id) => held.push(hops.acquire(&object(id), &world).unwrap()),
                Op::Release(at) => {
                    if at < held.len() {
                        hops.release(held.swap_remove(at));
                    }
                }
            }
            hops.reclaim(&mut NoReaders);
            for (id, entry) in hops.used_entries() {
                let (exits, needs) = resolve::resolve(&hops, &entry.key, entry.attrs, &world);
                prop_assert_eq!(&entry.exits, &exits, "{:?}", &entry.key);
                prop_assert_eq!(&entry.needs.links, &needs.links);
                prop_assert_eq!(&entry.needs.objects, &needs.objects);
                // By which prefix is found what leads to the same does not matter.
                let hop = |found: &Option<Found>| found.map(|found| found.hop);
                let found: Vec<_> = needs.gateways.values().map(hop).collect();
                prop_assert_eq!(entry.needs.gateways.values().map(hop).collect::<Vec<_>>(), found);
                prop_assert!(entry.needs.gateways.keys().eq(needs.gateways.keys()));
                let want: HashSet<ForwardingAction> = entry.content.iter().map(|c| c.0).collect();
                let want = if want.is_empty() { [ForwardingAction::Unreachable].into() } else { want };
                let action = |flow: u32| hops.table().action(id, flow << 24);
                let got: HashSet<ForwardingAction> = (0..256).map(action).collect();
                prop_assert_eq!(got, want);
            }
        }
    }
}
