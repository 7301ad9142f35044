//! Routes of many BGP peers, and the best path of each prefix.
//!
//! Source: RFC 4271 section 9.1.2.2. Fingerpost is no BGP speaker: it chooses among what a monitored router or a collector
//! has from its peers. The choice has these steps, each among the paths that are left: highest LOCAL_PREF (100 where there is
//! none), shortest AS_PATH, lowest ORIGIN, lowest MULTI_EXIT_DISC (compared between all paths, 0 where there is none), an
//! external peer before an internal one, lowest BGP identifier, lowest address of the peer, lowest path identifier.
//!
//! Shape:  a map from prefixes to their paths; a path is peer, identifier and shared attributes, 16 bytes.
//! Cost:   a change compares the paths of its prefix; the loss of a peer that has paths visits all prefixes.
//! Limits: one path a prefix, no multipath.

use core::net::IpAddr;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::update::PathAttributes;
use crate::event::{self, AnyPrefix, MAIN_TABLE, RouteEvent, RouteKey, RouteUpdate, Target};

/// LOCAL_PREF of a path without one.
const LOCAL_PREF: u32 = 100;

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

/// Best path of a prefix after a change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Prefix.
    pub prefix: AnyPrefix,
    /// Its next hop; `None` for none any more.
    pub next_hop: Option<IpAddr>,
}

impl Change {
    /// The event of the change. Routes that a router itself originates have no next hop, and are left out.
    pub fn event(self) -> RouteEvent {
        let key = RouteKey { table: MAIN_TABLE, prefix: self.prefix, metric: 0 };
        match self.next_hop.filter(|hop| !hop.is_unspecified()) {
            Some(hop) => {
                let path = event::Path { gateway: Some(hop), link: None, weight: 1 };
                RouteEvent::Route(RouteUpdate::new(key, Target::Path(path)))
            }
            None => RouteEvent::Withdraw(key),
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
    peers: Vec<Peer>,
    /// Number of paths of each peer.
    counts: Vec<usize>,
    /// Numbers of peers that are gone.
    free: Vec<PeerNumber>,
    prefixes: HashMap<AnyPrefix, Paths>,
}

impl Ribs {
    /// Adds a peer without routes.
    pub fn add_peer(&mut self, peer: Peer) -> PeerNumber {
        if let Some(number) = self.free.pop() {
            self.peers[number as usize] = peer;
            return number;
        }
        self.peers.push(peer);
        self.counts.push(0);
        PeerNumber::try_from(self.peers.len() - 1).expect("fewer peers than addresses")
    }

    /// Removes a peer with its routes.
    pub fn remove_peer(&mut self, peer: PeerNumber, visit: &mut dyn FnMut(Change)) {
        self.clear_peer(peer, visit);
        self.free.push(peer);
    }

    /// Removes the routes of all peers.
    pub fn clear(&mut self, visit: &mut dyn FnMut(Change)) {
        self.counts.fill(0);
        for (prefix, _) in self.prefixes.drain() {
            visit(Change { prefix, next_hop: None });
        }
    }

    /// Removes the routes of a peer.
    pub fn clear_peer(&mut self, peer: PeerNumber, visit: &mut dyn FnMut(Change)) {
        if std::mem::take(&mut self.counts[peer as usize]) == 0 {
            return;
        }
        let peers = &self.peers;
        self.prefixes.retain(|&prefix, paths| {
            if paths.iter().all(|path| path.peer != peer) {
                return true;
            }
            let before = next_hop(paths);
            paths.retain(|path| path.peer != peer);
            choose(peers, paths);
            let now = next_hop(paths);
            if now != before {
                visit(Change { prefix, next_hop: now });
            }
            !paths.is_empty()
        });
    }

    /// A peer has announced a path; the change that follows, if there is one.
    pub fn announce(
        &mut self,
        peer: PeerNumber,
        prefix: AnyPrefix,
        id: u32,
        attributes: &Arc<PathAttributes>,
    ) -> Option<Change> {
        let paths = self.prefixes.entry(prefix).or_default();
        let before = next_hop(paths);
        let new = Path { peer, id, attributes: attributes.clone() };
        match paths.iter_mut().find(|path| (path.peer, path.id) == (peer, id)) {
            Some(path) => *path = new,
            None => {
                paths.push(new);
                self.counts[peer as usize] += 1;
            }
        }
        choose(&self.peers, paths);
        let now = next_hop(paths);
        (now != before).then_some(Change { prefix, next_hop: now })
    }

    /// A peer has withdrawn a path; the change that follows, if there is one.
    pub fn withdraw(&mut self, peer: PeerNumber, prefix: AnyPrefix, id: u32) -> Option<Change> {
        let Entry::Occupied(mut paths) = self.prefixes.entry(prefix) else { return None };
        let (before, count) = (next_hop(paths.get()), paths.get().len());
        paths.get_mut().retain(|path| (path.peer, path.id) != (peer, id));
        self.counts[peer as usize] -= count - paths.get().len();
        choose(&self.peers, paths.get_mut());
        let now = next_hop(paths.get());
        if paths.get().is_empty() {
            paths.remove();
        }
        (now != before).then_some(Change { prefix, next_hop: now })
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

fn next_hop(paths: &Paths) -> Option<IpAddr> {
    paths.first().map(|path| path.attributes.next_hop)
}

/// Puts the best path first.
fn choose(peers: &[Peer], paths: &mut Paths) {
    let best = paths
        .iter()
        .enumerate()
        .min_by_key(|(_, path)| rank(&peers[path.peer as usize], path.id, &path.attributes));
    if let Some(best) = best.map(|(at, _)| at) {
        paths.swap(0, best);
    }
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

    fn hop(change: Option<Change>) -> Option<Option<IpAddr>> {
        change.map(|change| change.next_hop)
    }

    fn is(last: u8) -> Option<Option<IpAddr>> {
        Some(Some([192, 0, 2, last].into()))
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
            let (a, b) = (ribs.add_peer(peer(1, true)), ribs.add_peer(peer(2, true)));
            let (mut first, mut second) = (attributes(1), attributes(2));
            pair[1](&mut first);
            pair[0](&mut second);
            let second_wins = first != attributes(1);
            ribs.announce(a, prefix(), 0, &Arc::new(first));
            let change = ribs.announce(b, prefix(), 0, &Arc::new(second));
            assert_eq!(hop(change), if second_wins { is(2) } else { None });
        }
    }

    #[test]
    fn equal_paths_are_chosen_by_their_peer() {
        let mut ribs = Ribs::default();
        let internal = ribs.add_peer(peer(1, false));
        let far = ribs.add_peer(peer(3, true));
        let near = ribs.add_peer(peer(2, true));
        let mut announce =
            |from, id, last| hop(ribs.announce(from, prefix(), id, &Arc::new(attributes(last))));
        assert_eq!(announce(internal, 0, 1), is(1));
        assert_eq!(announce(far, 0, 3), is(3), "an external peer");
        assert_eq!(announce(near, 7, 27), is(27), "the lower identifier");
        assert_eq!(announce(near, 5, 25), is(25), "the lower path identifier");
        assert_eq!(announce(near, 5, 25), None, "the same again");
        assert_eq!(hop(ribs.withdraw(near, prefix(), 5)), is(27));
        assert_eq!(hop(ribs.withdraw(near, prefix(), 5)), None, "it is gone");
        let mut changes = Vec::new();
        assert_eq!(ribs.counts, [1, 1, 1]);
        ribs.remove_peer(near, &mut |change| changes.push(change.next_hop));
        ribs.remove_peer(internal, &mut |change| changes.push(change.next_hop));
        ribs.clear_peer(far, &mut |change| changes.push(change.next_hop));
        assert_eq!(ribs.counts, [0; 3]);
        assert_eq!((changes, ribs.len()), (vec![Some([192, 0, 2, 3].into()), None], 0));
        assert_eq!(ribs.add_peer(peer(9, true)), internal, "a number is used again");
        ribs.announce(far, prefix(), 0, &Arc::new(attributes(3)));
        ribs.announce(internal, prefix(), 0, &Arc::new(attributes(9)));
        let mut gone = Vec::new();
        ribs.clear(&mut |change| gone.push(change.next_hop));
        assert_eq!((gone, ribs.is_empty()), (vec![None], true), "without another path between");
    }
}
