//! Routes of many BGP peers, and the best path of each prefix with its alternatives.
//!
//! Source: RFC 4271 section 9.1.2.2. Fingerpost is no BGP speaker: it chooses among what a monitored router or a collector
//! has from its peers. The choice has these steps, each among the paths that are left: highest LOCAL_PREF (100 where there is
//! none), shortest AS_PATH, lowest ORIGIN, lowest MULTI_EXIT_DISC (compared between all paths, 0 where there is none), an
//! external peer before an internal one, lowest BGP identifier, lowest address of the peer, lowest path identifier.
//!
//! Which next hops can be reached is not known here, and a route over one that cannot must not win (RFC 4271 section
//! 9.1.2.1): the next hops of the paths that follow the best one go along as its alternatives, of which the control side
//! takes the first one that leads anywhere. So a next hop that is lost or found moves all routes at once, and none is
//! chosen anew.
//!
//! Shape:  a map from prefixes to their paths, the best one first; a path is peer, identifier and shared attributes, 16 bytes.
//! Cost:   a change looks for its path among those of the prefix, and for its place by halves; the loss of a peer that has
//!         paths visits all prefixes, at most [`LOOKS`] of them a step ([`Ribs::step`]).
//! Limits: one path a prefix, no multipath; [`NEXT_HOPS`] different next hops of a prefix; those of [`Limits`].

use core::net::IpAddr;
use core::ops::Bound;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::Words;
use super::update::PathAttributes;
use crate::event::{self, AnyPrefix, MAIN_TABLE, RouteEvent, RouteKey, RouteUpdate, Target};

/// LOCAL_PREF of a path without one.
const LOCAL_PREF: u32 = 100;

/// Most next hops of a route, the best one among them. More would make almost as many lists of them as there are prefixes.
pub const NEXT_HOPS: usize = 4;

/// Most prefixes that a step visits, and most changes that follow from it: about a millisecond each.
const LOOKS: usize = if cfg!(test) { 8 } else { 8192 };
const CHANGES: usize = if cfg!(test) { 2 } else { 2048 };

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most peers at a time.
    pub peers: usize,
    /// Most prefixes of both families.
    pub prefixes: usize,
    /// Most paths of all prefixes.
    pub paths: usize,
    /// Most paths of one prefix.
    pub of_prefix: usize,
}

impl Default for Limits {
    /// Three Internet tables of prefixes, as many as forty peers with one each have paths; of a prefix what each peer of
    /// the largest collectors has.
    fn default() -> Self {
        Self { peers: 1024, prefixes: 4_000_000, paths: 50_000_000, of_prefix: 1024 }
    }
}

/// Number of a peer, as [`Ribs::add_peer`] gives it.
pub type PeerNumber = u32;

/// What is known of a peer that the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub addr: IpAddr,
    /// Its BGP identifier.
    pub bgp_id: u32,
    /// Whether it is of another AS.
    pub external: bool,
}

/// Next hops, each once, the best one first.
pub type NextHops = [Option<IpAddr>; NEXT_HOPS];

/// Next hops of a prefix after a change of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Prefix.
    pub prefix: AnyPrefix,
    /// That of the best path, then its alternatives; none for no route any more.
    pub next_hops: NextHops,
}

impl Change {
    /// The event of the change.
    pub fn event(self) -> RouteEvent {
        let key = RouteKey { table: MAIN_TABLE, prefix: self.prefix, metric: 0 };
        let path = |hop| event::Path { gateway: Some(hop), link: None, weight: 1 };
        let paths: Vec<event::Path> = self.next_hops.into_iter().flatten().map(path).collect();
        match paths[..] {
            [] => RouteEvent::Withdraw(key),
            [path] => RouteEvent::Route(RouteUpdate::new(key, Target::Path(path))),
            _ => RouteEvent::Route(RouteUpdate::new(key, Target::Ranked(paths))),
        }
    }
}

#[derive(Clone, Debug)]
struct Path {
    peer: PeerNumber,
    id: u32,
    attributes: Arc<PathAttributes>,
}

/// Paths of a prefix, the best one first.
type Paths = Vec<Path>;

/// Routes of peers.
#[derive(Clone, Debug, Default)]
pub struct Ribs {
    limits: Limits,
    /// Paths of all prefixes.
    held: usize,
    peers: Vec<Peer>,
    /// Number of paths of each peer.
    counts: Vec<usize>,
    /// Numbers of peers that are gone.
    free: Vec<PeerNumber>,
    /// In their order, so that work on all of them can be done in steps.
    prefixes: BTreeMap<AnyPrefix, Paths>,
    work: Option<Work>,
}

/// Work on all prefixes that is not complete, and the last prefix that was visited.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// The paths of a peer go, and then its number is free, or it stays.
    Remove { peer: PeerNumber, frees: bool, after: Option<AnyPrefix> },
    /// All paths go, of which nobody is to know.
    Discard,
    /// All routes are visited again.
    Repeat { after: Option<AnyPrefix> },
}

impl Ribs {
    /// Routes of no peer yet, of which no more are kept than that.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds a peer without routes.
    ///
    /// # Errors
    /// When there are too many.
    pub fn add_peer(&mut self, peer: Peer) -> Result<PeerNumber, Words> {
        if let Some(number) = self.free.pop() {
            self.peers[number as usize] = peer;
            return Ok(number);
        }
        let number = PeerNumber::try_from(self.peers.len()).ok();
        let number = number.filter(|_| self.peers.len() < self.limits.peers);
        let number = number.ok_or("a peer too many (the limit is max_peers)")?;
        self.peers.push(peer);
        self.counts.push(0);
        Ok(number)
    }

    /// Whether a peer has paths.
    pub fn has_paths(&self, peer: PeerNumber) -> bool {
        self.counts[peer as usize] > 0
    }

    /// Removes a peer with its routes, in steps.
    pub fn remove_peer(&mut self, peer: PeerNumber) {
        self.begin(Work::Remove { peer, frees: true, after: None });
    }

    /// Removes the routes of a peer, in steps.
    pub fn clear_peer(&mut self, peer: PeerNumber) {
        self.begin(Work::Remove { peer, frees: false, after: None });
    }

    /// Removes the routes of all peers, in steps; none of the changes is visited.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.held = 0;
        self.begin(Work::Discard);
    }

    /// Visits all routes, in steps, as if they were new.
    pub fn repeat(&mut self) {
        self.begin(Work::Repeat { after: None });
    }

    fn begin(&mut self, work: Work) {
        debug_assert!(self.work.is_none(), "the caller takes all steps before anything else");
        self.work = match work {
            Work::Remove { peer, frees, .. } if !self.has_paths(peer) => {
                self.free.extend(frees.then_some(peer));
                None
            }
            Work::Discard | Work::Repeat { .. } if self.is_empty() => None,
            work => Some(work),
        };
    }

    /// Whether steps are left: nothing else may be done before them.
    pub fn is_busy(&self) -> bool {
        self.work.is_some()
    }

    /// Takes the next step of what was begun, of some milliseconds at most, and visits the changes.
    pub fn step(&mut self, visit: &mut dyn FnMut(Change)) {
        self.work = match self.work.take() {
            Some(Work::Remove { peer, frees, after }) => {
                let after = self.remove_some(peer, after, visit);
                let more = after.is_some() && self.has_paths(peer);
                self.free.extend((frees && !more).then_some(peer));
                more.then_some(Work::Remove { peer, frees, after })
            }
            Some(Work::Discard) => {
                (0..LOOKS).for_each(|_| drop(self.prefixes.pop_first()));
                (!self.is_empty()).then_some(Work::Discard)
            }
            Some(Work::Repeat { after }) => {
                let after = self.repeat_some(after, visit);
                after.is_some().then_some(Work::Repeat { after })
            }
            None => None,
        };
    }

    /// Removes paths of a peer from the next prefixes; the last of them, `None` at the end.
    fn remove_some(
        &mut self,
        peer: PeerNumber,
        after: Option<AnyPrefix>,
        visit: &mut dyn FnMut(Change),
    ) -> Option<AnyPrefix> {
        let (mut changes, mut removed, mut empty) = (0, 0, Vec::new());
        let mut last = None;
        for (looks, (&prefix, paths)) in self.prefixes.range_mut(behind(after)).enumerate() {
            if looks == LOOKS || changes == CHANGES {
                break;
            }
            last = Some(prefix);
            if paths.iter().all(|path| path.peer != peer) {
                continue;
            }
            let (before, count) = (next_hops(paths), paths.len());
            paths.retain(|path| path.peer != peer);
            removed += count - paths.len();
            let now = next_hops(paths);
            if now != before {
                changes += 1;
                visit(Change { prefix, next_hops: now });
            }
            if paths.is_empty() {
                empty.push(prefix);
            }
        }
        empty.iter().for_each(|prefix| drop(self.prefixes.remove(prefix)));
        self.counts[peer as usize] -= removed;
        self.held -= removed;
        last
    }

    /// Visits the next routes; the last of them, `None` at the end.
    fn repeat_some(
        &self,
        after: Option<AnyPrefix>,
        visit: &mut dyn FnMut(Change),
    ) -> Option<AnyPrefix> {
        let mut last = None;
        for (&prefix, paths) in self.prefixes.range(behind(after)).take(CHANGES) {
            last = Some(prefix);
            let next_hops = next_hops(paths);
            if next_hops != NextHops::default() {
                visit(Change { prefix, next_hops });
            }
        }
        last
    }

    /// A peer has announced a path; the change that follows, if there is one.
    ///
    /// # Errors
    /// When a limit is reached: nothing changed then.
    pub fn announce(
        &mut self,
        peer: PeerNumber,
        prefix: AnyPrefix,
        id: u32,
        attributes: &Arc<PathAttributes>,
    ) -> Result<Option<Change>, Words> {
        let (limits, known) = (self.limits, self.prefixes.len());
        let mut entry = match self.prefixes.entry(prefix) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(_) if known >= limits.prefixes => {
                return Err("a prefix too many (the limit is max_prefixes)");
            }
            Entry::Vacant(_) if self.held >= limits.paths => return Err(TOO_MANY_PATHS),
            Entry::Vacant(entry) => entry.insert_entry(Paths::new()),
        };
        let paths = entry.get_mut();
        let before = next_hops(paths);
        match paths.iter().position(|path| (path.peer, path.id) == (peer, id)) {
            Some(at) => drop(paths.remove(at)),
            None if self.held >= limits.paths => return Err(TOO_MANY_PATHS),
            None if paths.len() >= limits.of_prefix => {
                return Err("a path too many of the prefix");
            }
            None => {
                self.counts[peer as usize] += 1;
                self.held += 1;
            }
        }
        let peers = &self.peers;
        let rank_of = |path: &Path| rank(&peers[path.peer as usize], path.id, &path.attributes);
        let new = Path { peer, id, attributes: attributes.clone() };
        let rank = rank_of(&new);
        let at = paths.partition_point(|path| rank_of(path) < rank);
        paths.insert(at, new);
        let now = next_hops(paths);
        Ok((now != before).then_some(Change { prefix, next_hops: now }))
    }

    /// A peer has withdrawn a path; the change that follows, if there is one.
    pub fn withdraw(&mut self, peer: PeerNumber, prefix: AnyPrefix, id: u32) -> Option<Change> {
        let Entry::Occupied(mut paths) = self.prefixes.entry(prefix) else { return None };
        let at = paths.get().iter().position(|path| (path.peer, path.id) == (peer, id))?;
        let before = next_hops(paths.get());
        paths.get_mut().remove(at);
        self.counts[peer as usize] -= 1;
        self.held -= 1;
        let now = next_hops(paths.get());
        if paths.get().is_empty() {
            paths.remove();
        }
        (now != before).then_some(Change { prefix, next_hops: now })
    }

    /// How many prefixes have a path.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Whether no prefix has one.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }
}

const TOO_MANY_PATHS: Words = "a path too many (the limit is max_paths)";

/// The prefixes behind this one; all of them behind none.
fn behind(after: Option<AnyPrefix>) -> (Bound<AnyPrefix>, Bound<AnyPrefix>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

/// Next hops of the paths in their order. A route that the router itself originates has none: it is left out, and no path
/// behind it is an alternative.
fn next_hops(paths: &Paths) -> NextHops {
    let (mut found, mut count) = (NextHops::default(), 0);
    for path in paths {
        let hop = path.attributes.next_hop;
        if hop.is_unspecified() || count == NEXT_HOPS {
            break;
        }
        if !found[..count].contains(&Some(hop)) {
            found[count] = Some(hop);
            count += 1;
        }
    }
    found
}

/// Rank of a path in the choice, step by step: the lowest is the best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u32, u32, u8, u32, bool, u32, IpAddr, u32);

/// Rank of a path of a peer with this identifier.
pub fn rank(peer: &Peer, id: u32, attributes: &PathAttributes) -> Rank {
    Rank(
        u32::MAX - attributes.local_pref.unwrap_or(LOCAL_PREF),
        attributes.as_path_len,
        attributes.origin,
        attributes.med.unwrap_or(0),
        !peer.external,
        peer.bgp_id,
        peer.addr,
        id,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(hop: u8) -> PathAttributes {
        PathAttributes {
            next_hop: [192, 0, 2, hop].into(),
            local_pref: None,
            as_path_len: 3,
            origin: 0,
            med: None,
        }
    }

    fn peer(last: u8, external: bool) -> Peer {
        Peer { addr: [10, 0, 0, last].into(), bgp_id: u32::from(last), external }
    }

    fn prefix() -> AnyPrefix {
        crate::bgp::masked([10, 0, 0, 0].into(), 8).unwrap()
    }

    type Announced = Result<Option<Change>, Words>;

    /// Last bytes of the next hops of a change; none for a route that is gone.
    fn hops(change: Option<Change>) -> Option<Vec<u8>> {
        let last = |hop: IpAddr| match hop {
            IpAddr::V4(hop) => hop.octets()[3],
            IpAddr::V6(_) => panic!("{hop}"),
        };
        Some(change?.next_hops.into_iter().flatten().map(last).collect())
    }

    fn announced(change: Announced) -> Option<Vec<u8>> {
        hops(change.expect("no limit is reached"))
    }

    fn are(last: &[u8]) -> Option<Vec<u8>> {
        Some(last.to_vec())
    }

    #[test]
    fn each_step_decides_only_where_those_before_it_do_not() {
        let worse: [fn(&mut PathAttributes); 5] = [
            |a| a.med = Some(1),
            |a| a.origin = 1,
            |a| a.as_path_len = 4,
            |a| a.local_pref = Some(99),
            |_| (),
        ];
        // The later a step, the less it counts: each path is worse in one step, and better in all that follow.
        for pair in worse.windows(2) {
            let mut ribs = Ribs::default();
            let [a, b] = [1, 2].map(|last| ribs.add_peer(peer(last, true)).unwrap());
            let (mut first, mut second) = (attributes(1), attributes(2));
            pair[1](&mut first);
            pair[0](&mut second);
            let second_wins = first != attributes(1);
            ribs.announce(a, prefix(), 0, &Arc::new(first)).unwrap();
            let change = ribs.announce(b, prefix(), 0, &Arc::new(second));
            assert_eq!(announced(change), are(if second_wins { &[2, 1] } else { &[1, 2] }));
        }
    }

    #[test]
    fn equal_paths_are_chosen_by_their_peer() {
        let mut ribs = Ribs::default();
        let internal = ribs.add_peer(peer(1, false)).unwrap();
        let far = ribs.add_peer(peer(3, true)).unwrap();
        let near = ribs.add_peer(peer(2, true)).unwrap();
        let mut announce = |from, id, last| {
            announced(ribs.announce(from, prefix(), id, &Arc::new(attributes(last))))
        };
        assert_eq!(announce(internal, 0, 1), are(&[1]));
        assert_eq!(announce(far, 0, 3), are(&[3, 1]), "an external peer");
        assert_eq!(announce(near, 7, 27), are(&[27, 3, 1]), "the lower identifier");
        assert_eq!(announce(near, 5, 25), are(&[25, 27, 3, 1]), "the lower path identifier");
        assert_eq!(announce(near, 5, 25), None, "the same again");
        assert_eq!(hops(ribs.withdraw(near, prefix(), 5)), are(&[27, 3, 1]));
        assert_eq!(hops(ribs.withdraw(near, prefix(), 5)), None, "it is gone");
        let mut changes = Vec::new();
        assert_eq!((&ribs.counts[..], ribs.held), (&[1, 1, 1][..], 3));
        ribs.remove_peer(near);
        all_steps(&mut ribs, |change| changes.extend(hops(Some(change))));
        ribs.remove_peer(internal);
        all_steps(&mut ribs, |change| changes.extend(hops(Some(change))));
        ribs.clear_peer(far);
        all_steps(&mut ribs, |change| changes.extend(hops(Some(change))));
        assert_eq!((&ribs.counts[..], ribs.held), (&[0; 3][..], 0));
        assert_eq!((changes, ribs.len()), (vec![vec![3, 1], vec![3], vec![]], 0));
        assert_eq!(ribs.add_peer(peer(9, true)), Ok(internal), "a number is used again");
        ribs.announce(far, prefix(), 0, &Arc::new(attributes(3))).unwrap();
        ribs.announce(internal, prefix(), 0, &Arc::new(attributes(9))).unwrap();
        let mut again = Vec::new();
        ribs.repeat();
        all_steps(&mut ribs, |change| again.extend(hops(Some(change))));
        assert_eq!(again, [[3, 9]]);
        ribs.clear();
        all_steps(&mut ribs, |change| panic!("{change:?}"));
        assert!(ribs.is_empty());
        assert_eq!((&ribs.counts[..], ribs.held), (&[0; 3][..], 0));
    }

    /// Steps of what was begun until its end; how many those were.
    fn all_steps(ribs: &mut Ribs, mut visit: impl FnMut(Change)) -> usize {
        let mut steps = 0;
        while ribs.is_busy() {
            ribs.step(&mut visit);
            steps += 1;
        }
        steps
    }

    /// A peer with all of a table, and one with some of it: no step has more changes or looks than its share.
    #[test]
    fn work_on_all_prefixes_is_done_in_steps() {
        let mut ribs = Ribs::default();
        let [a, b] = [1, 2].map(|last| ribs.add_peer(peer(last, true)).unwrap());
        let of = |n: u8| crate::bgp::masked([n, 0, 0, 0].into(), 8).unwrap();
        let most = 4 * u8::try_from(LOOKS).unwrap();
        for n in 0..most {
            ribs.announce(a, of(n), 0, &Arc::new(attributes(1))).unwrap();
        }
        ribs.announce(b, of(most - 1), 0, &Arc::new(attributes(2))).unwrap();
        let (mut gone, mut changes) = (Vec::new(), 0);
        ribs.clear_peer(b);
        assert!(all_steps(&mut ribs, |change| gone.extend(hops(Some(change)))) >= 4, "by looks");
        assert_eq!(gone, [[1]]);
        ribs.repeat();
        assert!(all_steps(&mut ribs, |_| changes += 1) > usize::from(most) / CHANGES);
        assert_eq!(changes, most);
        ribs.remove_peer(a);
        assert!(ribs.has_paths(a), "nothing is done before the first step");
        let mut step = 0;
        ribs.step(&mut |_| step += 1);
        assert_eq!((step, ribs.len()), (CHANGES, usize::from(most) - CHANGES));
        assert_eq!((ribs.counts[a as usize], ribs.held), (ribs.len(), ribs.len()));
        assert!(all_steps(&mut ribs, |change| assert_eq!(hops(Some(change)), are(&[]))) > 1);
        assert_eq!((ribs.is_empty(), ribs.held, ribs.add_peer(peer(3, true))), (true, 0, Ok(a)));
        for n in 0..most {
            ribs.announce(a, of(n), 0, &Arc::new(attributes(1))).unwrap();
        }
        ribs.clear();
        assert!(all_steps(&mut ribs, |_| ()) >= 4);
    }

    #[test]
    fn alternatives_are_different_and_few_and_none_is_behind_a_local_route() {
        let mut ribs = Ribs::default();
        let from = ribs.add_peer(peer(1, true)).unwrap();
        let mut announce =
            |id, last| announced(ribs.announce(from, prefix(), id, &Arc::new(attributes(last))));
        assert_eq!(announce(2, 1), are(&[1]));
        assert_eq!(announce(3, 1), None, "a next hop of before");
        assert_eq!(announce(4, 2), are(&[1, 2]));
        assert_eq!(announce(6, 4), are(&[1, 2, 4]));
        assert_eq!(announce(7, 5), are(&[1, 2, 4, 5]));
        assert_eq!(announce(8, 6), None, "one too many");
        assert_eq!(announce(5, 3), are(&[1, 2, 3, 4]), "before those behind it");
        let local = PathAttributes { next_hop: IpAddr::from([0; 4]), ..attributes(0) };
        let change = ribs.announce(from, prefix(), 1, &Arc::new(local.clone()));
        assert_eq!(announced(change), are(&[]), "the router itself");
        assert_eq!(announced(ribs.announce(from, prefix(), 4, &Arc::new(local))), None);
        assert_eq!(hops(ribs.withdraw(from, prefix(), 1)), are(&[1]));
    }

    /// However paths come and go, their order is that of their ranks.
    #[test]
    fn paths_are_in_order() {
        let mut ribs = Ribs::default();
        let peers: Vec<_> = (0..4).map(|n| ribs.add_peer(peer(n, n % 2 == 0)).unwrap()).collect();
        let mut seed = 1_u32;
        for _ in 0..2_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [a, b, c, d] = seed.to_be_bytes();
            let (from, id) = (peers[usize::from(a % 4)], u32::from(b % 8));
            if c % 3 == 0 {
                ribs.withdraw(from, prefix(), id);
            } else {
                let path = PathAttributes { med: Some(u32::from(c % 5)), ..attributes(d % 9) };
                ribs.announce(from, prefix(), id, &Arc::new(path)).unwrap();
            }
            let paths = ribs.prefixes.get(&prefix()).map_or(&[][..], |paths| paths);
            let rank =
                |path: &Path| rank(&ribs.peers[path.peer as usize], path.id, &path.attributes);
            assert!(paths.is_sorted_by_key(rank), "{paths:?}");
            assert_eq!((ribs.counts.iter().sum::<usize>(), ribs.held), (paths.len(), paths.len()));
        }
    }

    #[test]
    fn beyond_a_limit_nothing_changes() {
        let limits = Limits { peers: 2, prefixes: 3, paths: 5, of_prefix: 2 };
        let mut ribs = Ribs::new(limits);
        let [a, b] = [1, 2].map(|last| ribs.add_peer(peer(last, true)).unwrap());
        assert_eq!(ribs.add_peer(peer(3, true)), Err("a peer too many (the limit is max_peers)"));
        let of = |n: u8| crate::bgp::masked([n, 0, 0, 0].into(), 8).unwrap();
        let path = Arc::new(attributes(7));
        let mut announce = |from, n, id| ribs.announce(from, of(n), id, &path).map(hops);
        assert_eq!(announce(a, 1, 1), Ok(are(&[7])));
        assert_eq!(announce(b, 1, 0), Ok(None));
        assert_eq!(announce(a, 1, 2), Err("a path too many of the prefix"));
        assert_eq!(announce(b, 1, 0), Ok(None), "it is there already");
        assert_eq!(announce(a, 2, 0), Ok(are(&[7])));
        assert_eq!(announce(a, 3, 0), Ok(are(&[7])));
        assert_eq!(announce(a, 4, 0), Err("a prefix too many (the limit is max_prefixes)"));
        assert_eq!(announce(b, 2, 0), Ok(None));
        assert_eq!(announce(b, 3, 0), Err("a path too many (the limit is max_paths)"));
        assert_eq!((ribs.len(), ribs.held, &ribs.counts[..]), (3, 5, &[3, 2][..]));
        // What goes makes room.
        assert_eq!(hops(ribs.withdraw(a, of(3), 0)), are(&[]));
        assert_eq!(announced(ribs.announce(b, of(4), 0, &path)), are(&[7]));
        assert_eq!(ribs.withdraw(b, of(3), 0), None, "it was never there");
        ribs.remove_peer(a);
        all_steps(&mut ribs, |_| ());
        assert_eq!(ribs.add_peer(peer(3, true)), Ok(a));
        assert_eq!((ribs.len(), ribs.held), (3, 3));
    }
}
