//! Next hops and groups on the control side: interned, counted, with dense ids that are reused only
//! when no reader can hold them any more.
//!
//! An entry is what a route names: one way out, several by weight, a next-hop object of a source, or a
//! verdict. Its *content* is the list of legs that packets take at the moment, worked out by a
//! [`Resolver`] that knows links and routes, and written into the [`HopTable`] in place: when a link
//! fails or a gateway moves, contents change and no route does.
//!
//! Cost:   interning is one hash look-up; a refresh works every entry out again, microseconds each
//! Limits: 2^28 slots and adjacencies; a group has at most 4,096 slots

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use fingerpost_lpm::{Epoch, Grace, NextHopId, UpdateError};

use crate::event::{ObjectTarget, Way};
use crate::hops::{HopTable, Leg};

/// Most slots of a group; weights finer than this are rounded.
const MAX_SLOTS: u32 = 4096;
/// Slots of a group whose weights do not add up to a power of two, a member; keeps the error of the
/// share below 1/16 of the smallest member.
const SLOTS_A_MEMBER: u32 = 16;
/// How deep recursive gateways and nested groups are followed.
const MAX_DEPTH: u8 = 8;

/// The identity of an entry: two routes that name equal keys share one id.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum HopKey {
    /// One way; its weight says nothing while it is alone, but counts again when another one joins.
    Way(Way),
    /// Several, sorted.
    Group(Box<[Way]>),
    /// A next-hop object: whatever its source says it is.
    Object {
        /// Number of the source.
        source: u16,
        /// The source's own number of the object.
        id: u32,
    },
    /// For the host.
    Local,
    /// Drop silently.
    Blackhole,
    /// Drop, with ICMP host unreachable.
    Unreachable,
    /// Drop, with ICMP administratively prohibited.
    Prohibit,
}

impl HopKey {
    /// The key of several ways: sorted, equal ones added up, one alone is no group.
    pub fn of_ways(mut ways: Vec<Way>) -> Self {
        ways.iter_mut().for_each(|way| way.weight = way.weight.max(1));
        ways.sort_unstable();
        ways.dedup_by(|b, a| {
            let same = a.gateway == b.gateway && a.link == b.link;
            if same {
                a.weight = a.weight.saturating_add(b.weight);
            }
            same
        });
        match ways[..] {
            [] => Self::Unreachable,
            [way] => Self::Way(way),
            _ => Self::Group(ways.into()),
        }
    }
}

/// What the control side must tell to work out contents.
pub trait Resolver {
    /// The leg of a way whose link is known: an adjacency (asked for through `adjacency`), a glean
    /// port, or a verdict. `None` when the link is down or gone.
    fn leg(
        &self,
        gateway: Option<IpAddr>,
        link: u32,
        adjacency: &mut dyn FnMut(AdjacencyKey) -> u32,
    ) -> Option<Leg>;
    /// What the best route to a gateway names, for a way without a link.
    fn route(&self, gateway: IpAddr) -> Option<NextHopId>;
    /// What an object of a source is, if it was announced.
    fn object(&self, source: u16, id: u32) -> Option<&ObjectTarget>;
}

/// The identity of an adjacency.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AdjacencyKey {
    /// Kernel index of the link.
    pub link: u32,
    /// The neighbor; `None` on links without link addresses, where there is just one.
    pub neighbor: Option<IpAddr>,
}

#[derive(Debug)]
struct Entry {
    key: Arc<HopKey>,
    refs: u32,
    content: Vec<(Leg, u32)>,
    /// First slot and number of slots, when it is a group.
    slots: Option<(u32, u32)>,
}

#[derive(Debug)]
enum Retired {
    Hop(u32),
    Slots(u32, u32),
    Adjacency(u32),
}

/// Interned next hops, and the writer's side of the [`HopTable`].
#[derive(Debug)]
pub struct NextHops {
    table: Arc<HopTable>,
    entries: Vec<Option<Entry>>,
    by_key: HashMap<Arc<HopKey>, u32>,
    free_hops: Vec<u32>,
    free_slots: HashMap<u32, Vec<u32>>,
    next_slot: u32,
    adjacencies: Vec<Option<(AdjacencyKey, u32)>>,
    adjacency_ids: HashMap<AdjacencyKey, u32>,
    free_adjacencies: Vec<u32>,
    /// Unlinked since the last [`NextHops::reclaim`].
    unlinked: Vec<Retired>,
    waiting: VecDeque<(Epoch, Retired)>,
    /// Adjacencies that were newly made and are not filled yet.
    fresh: Vec<u32>,
    grown: bool,
}

impl NextHops {
    /// Room for that many ids, slots and adjacencies; it grows by itself.
    ///
    /// # Errors
    /// [`UpdateError::Memory`].
    pub fn new(hops: usize, slots: usize, adjacencies: usize) -> Result<Self, UpdateError> {
        Ok(Self {
            table: Arc::new(HopTable::new(hops, slots, adjacencies)?),
            // Id 0 means that there is no route.
            entries: vec![None],
            by_key: HashMap::new(),
            free_hops: Vec::new(),
            free_slots: HashMap::new(),
            next_slot: 0,
            adjacencies: Vec::new(),
            adjacency_ids: HashMap::new(),
            free_adjacencies: Vec::new(),
            unlinked: Vec::new(),
            waiting: VecDeque::new(),
            fresh: Vec::new(),
            grown: false,
        })
    }

    /// The table that readers use.
    pub fn table(&self) -> &Arc<HopTable> {
        &self.table
    }

    /// Whether the table was replaced by a larger one since the last call: it must then be published
    /// before any route names a new id.
    pub fn take_grown(&mut self) -> bool {
        std::mem::take(&mut self.grown)
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Ids, slots and adjacencies that wait for readers before they can be used again.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.unlinked.len()
    }

    /// The id of `key`, made when it is new, with one more reference.
    ///
    /// # Errors
    /// [`UpdateError`] when there is no room for a new one; nothing changed then.
    pub fn acquire(
        &mut self,
        key: &HopKey,
        resolver: &dyn Resolver,
    ) -> Result<NextHopId, UpdateError> {
        if let Some(&id) = self.by_key.get(key) {
            let entry = self.entries[id as usize].as_mut().expect("keys name entries");
            entry.refs += 1;
            return Ok(NextHopId(id));
        }
        let id = match self.free_hops.pop() {
            Some(id) => id,
            None => {
                let id = u32::try_from(self.entries.len()).expect("ids are 32 bits");
                self.reserve(id as usize + 1, 0, 0)?;
                self.entries.push(None);
                id
            }
        };
        let key = Arc::new(key.clone());
        let entry = Entry { key: key.clone(), refs: 1, content: Vec::new(), slots: None };
        self.entries[id as usize] = Some(entry);
        self.by_key.insert(key, id);
        self.table.set_hop(NextHopId(id), Leg::Unreachable);
        if let Err(error) = self.refresh_one(id, resolver) {
            self.release(NextHopId(id));
            return Err(error);
        }
        Ok(NextHopId(id))
    }

    /// One reference more to an id that is in use.
    pub fn add_ref(&mut self, id: NextHopId) {
        self.entries[id.index()].as_mut().expect("the id is in use").refs += 1;
    }

    /// One reference less. With the last one the id is retired: it is reused once readers are past it.
    pub fn release(&mut self, id: NextHopId) {
        let entry = self.entries[id.index()].as_mut().expect("the id is in use");
        entry.refs -= 1;
        if entry.refs > 0 {
            return;
        }
        let entry = self.entries[id.index()].take().expect("just seen");
        self.by_key.remove(&entry.key);
        self.unlinked.push(Retired::Hop(id.0));
        if let Some((first, count)) = entry.slots {
            self.unlinked.push(Retired::Slots(first, count));
        }
        for (leg, _) in entry.content {
            self.release_leg(leg);
        }
    }

    /// What the id stands for.
    pub fn key(&self, id: NextHopId) -> Option<&HopKey> {
        Some(&self.entries.get(id.index())?.as_ref()?.key)
    }

    /// The same, to keep for longer than the id is in use.
    pub fn shared_key(&self, id: NextHopId) -> Option<Arc<HopKey>> {
        Some(self.entries.get(id.index())?.as_ref()?.key.clone())
    }

    /// The id of a key that is in use.
    pub fn find(&self, key: &HopKey) -> Option<NextHopId> {
        self.by_key.get(key).map(|&id| NextHopId(id))
    }

    /// References to the id.
    pub fn refs(&self, id: NextHopId) -> u32 {
        self.entries.get(id.index()).and_then(Option::as_ref).map_or(0, |e| e.refs)
    }

    /// The legs of an id and their weights.
    pub fn content(&self, id: NextHopId) -> &[(Leg, u32)] {
        self.entries.get(id.index()).and_then(Option::as_ref).map_or(&[], |e| &e.content)
    }

    /// Every id in use with its key.
    pub fn iter(&self) -> impl Iterator<Item = (NextHopId, &HopKey)> {
        self.entries.iter().enumerate().filter_map(|(id, entry)| {
            let id = u32::try_from(id).expect("ids are 32 bits");
            Some((NextHopId(id), &*entry.as_ref()?.key))
        })
    }

    /// The adjacency of a key, if some leg leaves by it.
    pub fn adjacency(&self, key: AdjacencyKey) -> Option<u32> {
        self.adjacency_ids.get(&key).copied()
    }

    /// The key of an adjacency that is in use.
    pub fn adjacency_key(&self, index: u32) -> Option<AdjacencyKey> {
        Some(self.adjacencies.get(index as usize)?.as_ref()?.0)
    }

    /// Every adjacency in use.
    pub fn adjacencies(&self) -> impl Iterator<Item = (u32, AdjacencyKey)> {
        self.adjacencies.iter().enumerate().filter_map(|(index, a)| {
            let index = u32::try_from(index).expect("indices are 28 bits");
            Some((index, a.as_ref()?.0))
        })
    }

    /// Adjacencies made since the last call: they are unresolved until the caller fills them.
    pub fn take_fresh(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.fresh)
    }

    /// Works every entry out again, after links, objects or routes to gateways changed.
    ///
    /// # Errors
    /// [`UpdateError`] when there is no room for a larger group; what could be done is done.
    pub fn refresh(&mut self, resolver: &dyn Resolver) -> Result<(), UpdateError> {
        for id in 1..u32::try_from(self.entries.len()).expect("ids are 32 bits") {
            if self.entries[id as usize].is_some() {
                self.refresh_one(id, resolver)?;
            }
        }
        Ok(())
    }

    /// Gives what readers are past back for use. Call it after the tables that named the unlinked ids
    /// were changed.
    pub fn reclaim(&mut self, grace: &mut dyn Grace) {
        if !self.unlinked.is_empty() {
            let epoch = grace.retire();
            self.waiting.extend(self.unlinked.drain(..).map(|retired| (epoch, retired)));
        }
        while let Some(&(epoch, _)) = self.waiting.front() {
            if !grace.passed(epoch) {
                break;
            }
            match self.waiting.pop_front().expect("just seen").1 {
                Retired::Hop(id) => {
                    self.table.set_hop(NextHopId(id), Leg::NoRoute);
                    self.free_hops.push(id);
                }
                Retired::Slots(first, count) => {
                    self.free_slots.entry(count).or_default().push(first);
                }
                Retired::Adjacency(index) => {
                    self.table.set_unresolved(index, 0, false);
                    self.free_adjacencies.push(index);
                }
            }
        }
    }

    fn refresh_one(&mut self, id: u32, resolver: &dyn Resolver) -> Result<(), UpdateError> {
        let entry = self.entries[id as usize].as_ref().expect("the id is in use");
        let key = entry.key.clone();
        let mut legs = Vec::new();
        self.expand(&key, 1, resolver, MAX_DEPTH, &mut legs)?;
        let content = sorted(legs);
        let entry = self.entries[id as usize].as_ref().expect("the id is in use");
        if entry.content == content {
            // The new list holds references of its own.
            for (leg, _) in content {
                self.release_leg(leg);
            }
            return Ok(());
        }
        let slots = self.write(id, &content)?;
        let entry = self.entries[id as usize].as_mut().expect("the id is in use");
        let old = std::mem::replace(&mut entry.content, content);
        if let Some((first, count)) = std::mem::replace(&mut entry.slots, slots) {
            self.unlinked.push(Retired::Slots(first, count));
        }
        for (leg, _) in old {
            self.release_leg(leg);
        }
        Ok(())
    }

    /// Appends the legs of `key`, each holding a reference to its adjacency.
    fn expand(
        &mut self,
        key: &HopKey,
        weight: u32,
        resolver: &dyn Resolver,
        depth: u8,
        legs: &mut Vec<(Leg, u32)>,
    ) -> Result<(), UpdateError> {
        let Some(depth) = depth.checked_sub(1) else { return Ok(()) };
        match key {
            HopKey::Way(way) => self.expand_way(way, weight, resolver, depth, legs)?,
            HopKey::Group(ways) => {
                for way in ways {
                    let weight = weight.saturating_mul(way.weight.max(1));
                    self.expand_way(way, weight, resolver, depth, legs)?;
                }
            }
            HopKey::Object { source, id } => match resolver.object(*source, *id) {
                Some(ObjectTarget::Way(way)) => {
                    self.expand_way(&way.clone(), weight, resolver, depth, legs)?;
                }
                Some(ObjectTarget::Group(members)) => {
                    for &(member, share) in members {
                        let key = HopKey::Object { source: *source, id: member };
                        let weight = weight.saturating_mul(share.max(1));
                        self.expand(&key, weight, resolver, depth, legs)?;
                    }
                }
                Some(ObjectTarget::Blackhole) => legs.push((Leg::Blackhole, weight)),
                None => {}
            },
            HopKey::Local => legs.push((Leg::Local, weight)),
            HopKey::Blackhole => legs.push((Leg::Blackhole, weight)),
            HopKey::Unreachable => legs.push((Leg::Unreachable, weight)),
            HopKey::Prohibit => legs.push((Leg::Prohibit, weight)),
        }
        Ok(())
    }

    fn expand_way(
        &mut self,
        way: &Way,
        weight: u32,
        resolver: &dyn Resolver,
        depth: u8,
        legs: &mut Vec<(Leg, u32)>,
    ) -> Result<(), UpdateError> {
        if let Some(link) = way.link {
            return self.expand_link(way.gateway, link, weight, resolver, legs);
        }
        let Some(gateway) = way.gateway else { return Ok(()) };
        let Some(id) = resolver.route(gateway) else { return Ok(()) };
        match self.key(id).cloned() {
            // The gateway is on a link itself: it is the neighbor.
            Some(HopKey::Way(Way { gateway: None, link: Some(link), .. })) => {
                self.expand_link(Some(gateway), link, weight, resolver, legs)
            }
            Some(key) => self.expand(&key, weight, resolver, depth, legs),
            None => Ok(()),
        }
    }

    fn expand_link(
        &mut self,
        gateway: Option<IpAddr>,
        link: u32,
        weight: u32,
        resolver: &dyn Resolver,
        legs: &mut Vec<(Leg, u32)>,
    ) -> Result<(), UpdateError> {
        let mut failed = None;
        let leg = resolver.leg(gateway, link, &mut |key| match self.acquire_adjacency(key) {
            Ok(index) => index,
            Err(error) => {
                failed = Some(error);
                0
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        legs.extend(leg.map(|leg| (leg, weight)));
        Ok(())
    }

    fn acquire_adjacency(&mut self, key: AdjacencyKey) -> Result<u32, UpdateError> {
        if let Some(&index) = self.adjacency_ids.get(&key) {
            self.adjacencies[index as usize].as_mut().expect("keys name adjacencies").1 += 1;
            return Ok(index);
        }
        let index = match self.free_adjacencies.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.adjacencies.len()).expect("indices are 28 bits");
                self.reserve(0, 0, index as usize + 1)?;
                self.adjacencies.push(None);
                index
            }
        };
        self.adjacencies[index as usize] = Some((key, 1));
        self.adjacency_ids.insert(key, index);
        self.fresh.push(index);
        Ok(index)
    }

    fn release_leg(&mut self, leg: Leg) {
        let Leg::Adjacency(index) = leg else { return };
        let slot = &mut self.adjacencies[index as usize];
        let (key, refs) = slot.as_mut().expect("legs name adjacencies in use");
        *refs -= 1;
        if *refs == 0 {
            self.adjacency_ids.remove(key);
            *slot = None;
            self.fresh.retain(|&f| f != index);
            self.unlinked.push(Retired::Adjacency(index));
        }
    }

    /// Writes a content into the table; returns the slots it took.
    fn write(
        &mut self,
        id: u32,
        content: &[(Leg, u32)],
    ) -> Result<Option<(u32, u32)>, UpdateError> {
        let id = NextHopId(id);
        match content {
            // No way out at the moment: the sender is told.
            [] => self.table.set_hop(id, Leg::Unreachable),
            [(leg, _)] => self.table.set_hop(id, *leg),
            legs => {
                let shares = shares(legs);
                let count: u32 = shares.iter().sum();
                let first = self.take_slots(count)?;
                let mut slot = first;
                for (&(leg, _), &share) in legs.iter().zip(&shares) {
                    for _ in 0..share {
                        self.table.set_slot(slot, leg);
                        slot += 1;
                    }
                }
                self.table.set_group(id, first, count);
                return Ok(Some((first, count)));
            }
        }
        Ok(None)
    }

    fn take_slots(&mut self, count: u32) -> Result<u32, UpdateError> {
        if let Some(first) = self.free_slots.get_mut(&count).and_then(Vec::pop) {
            return Ok(first);
        }
        let first = self.next_slot;
        self.reserve(0, (first + count) as usize, 0)?;
        self.next_slot += count;
        Ok(first)
    }

    /// Makes room, by a larger table when needed.
    fn reserve(
        &mut self,
        hops: usize,
        slots: usize,
        adjacencies: usize,
    ) -> Result<(), UpdateError> {
        let have = self.table.capacity();
        if hops <= have.0 && slots <= have.1 && adjacencies <= have.2 {
            return Ok(());
        }
        let fit = |need: usize, have: usize| if need > have { need.max(have * 2) } else { have };
        let larger =
            HopTable::new(fit(hops, have.0), fit(slots, have.1), fit(adjacencies, have.2))?;
        self.table.copy_to(&larger);
        self.table = Arc::new(larger);
        self.grown = true;
        Ok(())
    }
}

/// In a fixed order, so that equal contents are equal lists. Equal legs stay apart: each holds a
/// reference to its adjacency.
fn sorted(mut legs: Vec<(Leg, u32)>) -> Vec<(Leg, u32)> {
    legs.sort_unstable_by_key(|(leg, weight)| (leg.encode(), *weight));
    legs
}

/// How many slots each leg gets: exactly by weight where that is a power of two in all, else the
/// nearest by largest remainder, at least one each.
fn shares(legs: &[(Leg, u32)]) -> Vec<u32> {
    let divisor = legs.iter().fold(0, |a, &(_, w)| gcd(a, w.max(1)));
    let weights: Vec<u64> = legs.iter().map(|&(_, w)| u64::from(w.max(1) / divisor)).collect();
    let total: u64 = weights.iter().sum();
    let members = u32::try_from(legs.len()).unwrap_or(MAX_SLOTS).min(MAX_SLOTS);
    let slots = match u32::try_from(total) {
        Ok(total) if total.is_power_of_two() && total <= MAX_SLOTS => total,
        _ => (members * SLOTS_A_MEMBER).next_power_of_two().clamp(2, MAX_SLOTS),
    };
    // With more members than slots the rest go without: MAX_SLOTS is far past any real group.
    let mut shares: Vec<u32> = weights
        .iter()
        .map(|w| u32::try_from(w * u64::from(slots) / total).expect("at most the slots").max(1))
        .collect();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse((weights[i] * u64::from(slots) % total, i)));
    let mut given: u32 = shares.iter().sum();
    for &i in order.iter().cycle().take(shares.len() * 2) {
        if given < slots {
            shares[i] += 1;
            given += 1;
        }
    }
    while given > slots {
        let most = (0..shares.len()).max_by_key(|&i| shares[i]).expect("a group has members");
        shares[most] -= 1;
        given -= 1;
    }
    shares
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_lpm::NoReaders;
    use std::collections::HashSet;

    /// Links 1 to 9 are up unless listed; a gateway without a link is on link 1.
    #[derive(Default)]
    struct World {
        down: HashSet<u32>,
        objects: HashMap<u32, ObjectTarget>,
        via: Option<NextHopId>,
    }

    impl Resolver for World {
        fn leg(
            &self,
            gateway: Option<IpAddr>,
            link: u32,
            adjacency: &mut dyn FnMut(AdjacencyKey) -> u32,
        ) -> Option<Leg> {
            if self.down.contains(&link) {
                return None;
            }
            Some(match gateway {
                None => Leg::Glean(u16::try_from(link).unwrap()),
                neighbor => Leg::Adjacency(adjacency(AdjacencyKey { link, neighbor })),
            })
        }
        fn route(&self, _: IpAddr) -> Option<NextHopId> {
            self.via
        }
        fn object(&self, _: u16, id: u32) -> Option<&ObjectTarget> {
            self.objects.get(&id)
        }
    }

    fn way(last: u8, link: u32, weight: u32) -> Way {
        Way { gateway: Some(IpAddr::from([10, 0, 0, last])), link: Some(link), weight }
    }

    fn counts(hops: &NextHops, id: NextHopId) -> HashMap<Leg, usize> {
        let mut counts = HashMap::new();
        for hash in 0..MAX_SLOTS {
            *counts.entry(hops.table().leg(id, hash)).or_default() += 1;
        }
        counts
    }

    #[test]
    fn equal_keys_share_an_id_whatever_their_order() {
        let world = World::default();
        let mut hops = NextHops::new(4, 4, 4).unwrap();
        let a = HopKey::of_ways(vec![way(1, 1, 2), way(2, 2, 1)]);
        let b = HopKey::of_ways(vec![way(2, 2, 1), way(1, 1, 2)]);
        let id = hops.acquire(&a, &world).unwrap();
        assert_eq!(hops.acquire(&b, &world).unwrap(), id);
        assert_eq!(hops.refs(id), 2);
        assert_eq!(HopKey::of_ways(vec![way(1, 1, 0)]), HopKey::Way(way(1, 1, 1)));
    }

    #[test]
    fn weights_become_slots() {
        for (weights, slots) in [
            (vec![3, 1], vec![3, 1]),
            (vec![200, 200], vec![1, 1]),
            (vec![1, 1, 1], vec![22, 21, 21]),
            (vec![2, 3], vec![13, 19]),
            (vec![1, 1_000_000], vec![1, 31]),
        ] {
            let legs: Vec<_> = weights.iter().map(|&w| (Leg::Local, w)).collect();
            let mut got = shares(&legs);
            let total: u32 = got.iter().sum();
            assert!(total.is_power_of_two(), "{weights:?} {got:?}");
            if weights == [1, 1, 1] {
                got.sort_by_key(|&g| std::cmp::Reverse(g));
            }
            assert_eq!(got, slots, "{weights:?}");
        }
    }

    #[test]
    fn a_link_that_fails_changes_contents_in_place() {
        let mut world = World::default();
        let mut hops = NextHops::new(64, 64, 64).unwrap();
        let id = hops.acquire(&HopKey::of_ways(vec![way(1, 1, 3), way(2, 2, 1)]), &world).unwrap();
        let table = hops.table().clone();
        let (a, b) = (
            hops.adjacency(AdjacencyKey { link: 1, neighbor: way(1, 1, 1).gateway }).unwrap(),
            hops.adjacency(AdjacencyKey { link: 2, neighbor: way(2, 2, 1).gateway }).unwrap(),
        );
        assert_eq!(
            counts(&hops, id),
            [(Leg::Adjacency(a), 3072), (Leg::Adjacency(b), 1024)].into()
        );
        world.down.insert(1);
        hops.refresh(&world).unwrap();
        assert_eq!(table.leg(id, 5), Leg::Adjacency(b));
        world.down.insert(2);
        hops.refresh(&world).unwrap();
        assert_eq!(table.leg(id, 5), Leg::Unreachable);
        world.down.clear();
        hops.refresh(&world).unwrap();
        assert_eq!(counts(&hops, id).len(), 2);
        assert!(Arc::ptr_eq(&table, hops.table()), "all of it in the same table");
    }

    #[test]
    fn objects_are_written_once_for_all_their_routes() {
        let mut world = World::default();
        let mut hops = NextHops::new(64, 64, 64).unwrap();
        let group = HopKey::Object { source: 0, id: 9 };
        let id = hops.acquire(&group, &world).unwrap();
        assert_eq!(hops.table().leg(id, 0), Leg::Unreachable, "not announced yet");
        world.objects.insert(9, ObjectTarget::Group(vec![(1, 1), (2, 1)]));
        world.objects.insert(1, ObjectTarget::Way(way(1, 1, 1)));
        hops.refresh(&world).unwrap();
        assert_eq!(counts(&hops, id).len(), 1, "a member is still to come");
        world.objects.insert(2, ObjectTarget::Way(way(2, 2, 1)));
        hops.refresh(&world).unwrap();
        assert_eq!(counts(&hops, id).len(), 2);
        world.objects.insert(9, ObjectTarget::Blackhole);
        hops.refresh(&world).unwrap();
        assert_eq!(hops.table().leg(id, 0), Leg::Blackhole);
        world.objects.insert(9, ObjectTarget::Group(vec![(9, 1)]));
        hops.refresh(&world).unwrap();
        assert_eq!(hops.table().leg(id, 0), Leg::Unreachable, "a loop has no way out");
    }

    #[test]
    fn recursive_gateways_follow_their_route() {
        let mut world = World::default();
        let mut hops = NextHops::new(64, 64, 64).unwrap();
        let connected = HopKey::Way(Way { gateway: None, link: Some(3), weight: 1 });
        let connected = hops.acquire(&connected, &world).unwrap();
        world.via = Some(connected);
        let far = Way { link: None, ..way(7, 0, 1) };
        let id = hops.acquire(&HopKey::Way(far), &world).unwrap();
        let near = AdjacencyKey { link: 3, neighbor: far.gateway };
        assert_eq!(hops.table().leg(id, 0), Leg::Adjacency(hops.adjacency(near).unwrap()));
        let other =
            hops.acquire(&HopKey::of_ways(vec![way(1, 1, 1), way(2, 2, 1)]), &world).unwrap();
        world.via = Some(other);
        hops.refresh(&world).unwrap();
        assert_eq!(counts(&hops, id), counts(&hops, other));
        assert_eq!(hops.adjacency(near), None, "nobody leaves by it any more");
        world.via = Some(id);
        hops.refresh(&world).unwrap();
        assert_eq!(hops.table().leg(id, 0), Leg::Unreachable, "its own route is no way out");
    }

    /// Epochs pass only when told.
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
        let mut hops = NextHops::new(64, 64, 64).unwrap();
        let mut grace = Slow::default();
        let key = |last| HopKey::of_ways(vec![way(last, 1, 1), way(last, 2, 1)]);
        let first = hops.acquire(&key(1), &world).unwrap();
        let word = hops.table().leg(first, 0);
        hops.release(first);
        hops.reclaim(&mut grace);
        assert_eq!(hops.table().leg(first, 0), word, "readers may still come here");
        let second = hops.acquire(&key(2), &world).unwrap();
        assert_ne!(first, second);
        assert_eq!(hops.table().leg(first, 0), word);
        grace.passed = grace.now;
        hops.reclaim(&mut grace);
        assert_eq!(hops.waiting(), 0);
        assert_eq!(hops.acquire(&key(3), &world).unwrap(), first);
    }

    #[test]
    fn the_table_grows_and_says_so() {
        let world = World::default();
        let mut hops = NextHops::new(2, 2, 2).unwrap();
        hops.take_grown();
        let ids: Vec<_> = (1..100)
            .map(|i| {
                let ways = vec![way(i, 1, 1), way(i, 2, 1), way(i, 3, 2)];
                hops.acquire(&HopKey::of_ways(ways), &world).unwrap()
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
}
