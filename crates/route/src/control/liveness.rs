//! Whether the next hop of a path replies, by its link and its neighbor: for static routes with liveness.

use super::links::{connected_prefix, holds};
use super::{Control, NeighborRequest};
use crate::event::{NeighborState, Path};

/// State of a next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextHopState {
    /// Its link is down, or no link leads to it.
    Down,
    /// The neighbor did not reply.
    Silent(NeighborRequest),
    /// The neighbor is not known, or its resolution is in progress.
    Unknown(NeighborRequest),
    /// The neighbor has replied; a probe confirms it.
    Replies(NeighborRequest),
    /// The link is up, and there is nothing to confirm: the path has no gateway, the link has no neighbors, or a user set
    /// this one.
    Up,
}

impl Control {
    /// State of the next hop of a path of a route of this table. A gateway without a link is looked for on the links of
    /// the table, by their prefixes.
    pub fn next_hop_state(&self, table: u32, path: &Path) -> NextHopState {
        let found = path.link.or_else(|| {
            let links = self.links.iter().filter(|(_, entry)| entry.table() == table);
            let all =
                links.flat_map(|(link, entry)| entry.addresses().iter().map(move |a| (link, a)));
            let on =
                all.filter(|(_, addr)| path.gateway.is_some_and(|gateway| holds(addr, gateway)));
            on.max_by_key(|(_, addr)| connected_prefix(addr).len()).map(|(link, _)| link)
        });
        let entry = found.and_then(|link| self.links.get(link));
        let (Some(link), Some(entry)) = (found, entry.filter(|entry| entry.is_up())) else {
            return NextHopState::Down;
        };
        let Some(addr) = path.gateway.filter(|_| entry.state().mac.is_some()) else {
            return NextHopState::Up;
        };
        let request = NeighborRequest { link, addr };
        match self.neighbors.state(link, addr) {
            Some(NeighborState::Permanent(_)) => NextHopState::Up,
            Some(NeighborState::Reachable(_) | NeighborState::Stale(_)) => {
                NextHopState::Replies(request)
            }
            Some(NeighborState::Failed) => NextHopState::Silent(request),
            Some(NeighborState::Incomplete | NeighborState::Gone) | None => {
                NextHopState::Unknown(request)
            }
        }
    }

    /// Number of changes of links so far: of their state, carrier and settings.
    pub fn link_changes(&self) -> u64 {
        self.links.changes()
    }
}
