//! Every interleaving of a reader with the writer of next hops, in small: ids, slots and adjacencies that
//! are used again, and groups that change under the reader.

use std::collections::HashMap;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::*;
use crate::event::{Mac, ObjectTarget, Path};
use crate::fib::Publisher;
use crate::hops::Adjacency;

#[derive(Default)]
struct World {
    objects: HashMap<u32, ObjectTarget>,
}

impl World {
    /// Objects 1 to 9 are gateways of that number, object 10 is a group of these.
    fn of(group: &[u32]) -> Self {
        let mut objects: HashMap<_, _> =
            (1..10).map(|n| (n, ObjectTarget::Path(path(n)))).collect();
        objects.insert(10, ObjectTarget::Group(group.iter().map(|&n| (n, 1)).collect()));
        Self { objects }
    }
}

impl Resolver for World {
    fn exit(&self, neighbor: Option<IpAddr>, link: u32) -> Option<Exit> {
        Some(Exit::Adjacency(AdjacencyKey { link, neighbor, mtu: 0 }))
    }
    /// The last byte of each neighbor's link address is the gateway's.
    fn adjacency(&self, key: AdjacencyKey) -> Adjacency {
        let Some(IpAddr::V4(addr)) = key.neighbor else { panic!("an IPv4 gateway") };
        let dst = Mac([2, 0, 0, 0, 0, addr.octets()[3]]);
        Adjacency { dst, src: Mac::default(), port: 1, mtu: 9 }
    }
    fn has_link(&self, _: u32) -> bool {
        true
    }
    fn route(&self, _: u32, _: IpAddr) -> Option<Found> {
        None
    }
    fn object(&self, _: u16, id: u32) -> Option<&ObjectTarget> {
        self.objects.get(&id)
    }
}

fn path(n: u32) -> Path {
    Path { gateway: Some(IpAddr::from([10, 0, 0, last(n)])), link: Some(1), weight: 1 }
}

fn last(n: u32) -> u8 {
    u8::try_from(n).expect("few gateways")
}

fn object(id: u32) -> HopKey {
    HopKey::Object { source: 0, id }
}

/// Gateway of a packet; `None` while its neighbor is not known.
fn gateway(table: &HopTable, id: NextHopId, hash: u32) -> Option<u8> {
    let ForwardingAction::Adjacency(index) = table.action(id, hash) else { panic!("it leads out") };
    let adjacency = table.adjacency(index);
    adjacency.resolved().then_some(adjacency.dst.0[5])
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    // All schedules with so many switches that nothing forced; without a bound it takes hours.
    model.preemption_bound = Some(3);
    model.check(body);
}

/// The route leaves its next hop, which is given up; another one takes its id and its adjacency when it
/// may. A reader that found the id in the table sees the first one's forwarding action and neighbor.
#[test]
fn loom_an_id_never_leads_to_another_objects_action() {
    model(|| {
        let world = World::of(&[]);
        let mut publisher = Publisher::new(());
        let mut hops = NextHops::new(3, 1, 2).expect("small");
        let first = hops.acquire(&object(1), &world).expect("room");
        let route = loom::sync::Arc::new(AtomicU32::new(first.0));
        let (table, seen) = (hops.table().clone(), route.clone());
        let mut reader = publisher.reader();
        let thread = thread::spawn(move || {
            for _ in 0..2 {
                reader.pin();
                let id = NextHopId(seen.load(Ordering::Relaxed));
                if id == first {
                    assert_eq!(gateway(&table, id, 0), Some(1));
                }
            }
        });
        route.store(0, Ordering::Relaxed);
        hops.release(first);
        hops.reclaim(&mut publisher);
        hops.acquire(&object(2), &world).expect("room");
        thread.join().expect("what it saw was right");
    });
}

/// One member of a group goes for another, in the same slots: a flow goes to the old one or the new one,
/// and a flow of the member that stays does not notice.
#[test]
fn loom_a_group_changes_in_place() {
    model(|| {
        let mut world = World::of(&[1, 2]);
        let mut publisher = Publisher::new(());
        let mut hops = NextHops::new(2, 2, 3).expect("small");
        hops.set_mode(GroupMode::Slots).expect("no groups yet");
        let id = hops.acquire(&object(10), &world).expect("room");
        let table = hops.table().clone();
        let mut reader = publisher.reader();
        let thread = thread::spawn(move || {
            reader.pin();
            assert_eq!(gateway(&table, id, 0), Some(1));
            assert!(matches!(gateway(&table, id, u32::MAX), Some(2 | 3)));
        });
        world.objects.insert(10, ObjectTarget::Group(vec![(1, 1), (3, 1)]));
        hops.refresh_object(0, 10, &world).expect("room");
        hops.reclaim(&mut publisher);
        thread.join().expect("what it saw was right");
    });
}

/// A group moves to more slots, and another group takes the ones it left when it may.
#[test]
fn loom_slots_are_used_again_after_their_readers() {
    model(|| {
        let mut world = World::of(&[1, 2]);
        let mut publisher = Publisher::new(());
        let mut hops = NextHops::new(3, 7, 5).expect("small");
        hops.set_mode(GroupMode::Slots).expect("no groups yet");
        let id = hops.acquire(&object(10), &world).expect("room");
        for n in [3, 4, 5] {
            // In use by others: here it is about slots alone.
            let key = AdjacencyKey { link: 1, neighbor: path(n).gateway, mtu: 0 };
            hops.acquire_adjacency(key, &world).expect("room");
        }
        let table = hops.table().clone();
        let mut reader = publisher.reader();
        let thread = thread::spawn(move || {
            for _ in 0..2 {
                reader.pin();
                assert!(matches!(gateway(&table, id, u32::MAX), Some(2 | 3)));
            }
        });
        world.objects.insert(10, ObjectTarget::Group(vec![(1, 1), (2, 1), (3, 1)]));
        hops.refresh_object(0, 10, &world).expect("room");
        hops.reclaim(&mut publisher);
        hops.acquire(&HopKey::of_paths(vec![path(4), path(5)]), &world).expect("room");
        thread.join().expect("what it saw was right");
    });
}
