//! Neighbors: the list, and one that a command sets or takes back.

use std::net::IpAddr;

use fingerpost_route::{Control, Done, Mac, NeighborError, NeighborRow, NeighborState};

use super::hops::link_name;
use super::{Daemon, LinkNames, View, bad, link_of, word};
use crate::api::error::{ApiError, Code};
use crate::api::model::{Neighbor, NeighborAction, NeighborChange, NeighborChanged};
use crate::api::saved::SavedChange;

impl View<'_> {
    /// Neighbors on all links, by address.
    pub(super) fn neighbor_list(&self) -> Vec<Neighbor> {
        let names = self.link_names();
        // Where the kernel keeps groups among neighbors, they are none.
        let stations = self.control.neighbors().filter(|row| !row.addr.is_multicast());
        stations.map(|row| self.neighbor_row(&row, &names)).collect()
    }

    fn neighbor_row(&self, row: &NeighborRow, names: &LinkNames) -> Neighbor {
        let is_up = || {
            let mut links = self.control.links();
            links.any(|(link, _, state)| link == row.link && state.up)
        };
        Neighbor {
            addr: row.addr.to_string(),
            interface: link_name(row.link, names),
            mac: row.state.mac().map(|mac| mac.to_string()),
            state: state(row.state, is_up).to_owned(),
            source: if row.by_user { "command" } else { "kernel" }.to_owned(),
        }
    }
}

/// Sets or deletes a neighbor.
pub(in crate::daemon) fn put(
    control: &mut Control,
    change: &NeighborChange,
) -> Result<(u32, IpAddr, Done), ApiError> {
    let addr: IpAddr = change.addr.parse().map_err(|_| {
        let words = format_args!("`{}` is no address: one of IPv4 or IPv6 is needed", change.addr);
        bad("addr", words)
    })?;
    let link = link_of(control, &change.dev)?;
    let done = match change.action {
        NeighborAction::Add => {
            let mac = link_address(change)?;
            control.add_neighbor(link, addr, mac).map(|()| Done::Added)
        }
        NeighborAction::Replace => control.replace_neighbor(link, addr, link_address(change)?),
        NeighborAction::Delete if change.mac.is_some() => {
            return Err(bad("mac", "a neighbor is deleted by its address and interface"));
        }
        NeighborAction::Delete => control.delete_neighbor(link, addr).map(|_| Done::Deleted),
    };
    done.map(|done| (link, addr, done)).map_err(|error| refused(&error))
}

impl Daemon {
    /// Makes a change; workers see it once [`Daemon::visible`] has a generation.
    pub(super) fn set_neighbor(
        &mut self,
        change: &NeighborChange,
    ) -> Result<NeighborChanged, ApiError> {
        let (link, addr, done) = put(&mut self.control, change)?;
        // It is newer than what waits for its interface.
        if let Some(subject) = SavedChange::Neighbor(change.clone()).subject() {
            self.settings.lasting.unmade.forget(&subject);
        }
        let sequence = self.control.sequence();
        self.commit_soon();
        let names = self.view().link_names();
        let now = self.control.neighbors().find(|row| (row.link, row.addr) == (link, addr));
        Ok(NeighborChanged {
            done: word(done).to_owned(),
            addr: addr.to_string(),
            interface: link_name(link, &names),
            sequence,
            generation: self.progress.generation(),
            now: now.map(|row| self.view().neighbor_row(&row, &names)),
        })
    }
}

/// State of a neighbor in a word.
pub(super) fn state(state: NeighborState, is_up: impl FnOnce() -> bool) -> &'static str {
    match state {
        NeighborState::Permanent(_) => permanent(is_up()),
        NeighborState::Reachable(_) => "reachable",
        NeighborState::Stale(_) => "stale",
        NeighborState::Incomplete => "incomplete",
        NeighborState::Failed | NeighborState::Gone => "failed",
    }
}

/// The state of a neighbor that somebody set, by whether its link is up.
pub(super) fn permanent(up: bool) -> &'static str {
    if up { "permanent" } else { "suspended" }
}

fn link_address(change: &NeighborChange) -> Result<Mac, ApiError> {
    let Some(text) = &change.mac else {
        return Err(bad("mac", "where is it? a link address is needed"));
    };
    text.parse().map_err(|error| bad("mac", format_args!("`{text}` is no link address: {error}")))
}

fn refused(error: &NeighborError) -> ApiError {
    let (code, place) = match error {
        NeighborError::Exists { .. } => (Code::Exists, "addr"),
        NeighborError::Unknown { .. } | NeighborError::Learned { .. } => (Code::NotFound, "addr"),
        NeighborError::NoLink(_) => (Code::NotFound, "dev"),
        NeighborError::NoEthernet(_) => (Code::Refused, "dev"),
        NeighborError::NotHost(_) | NeighborError::Mapped { .. } => (Code::BadRequest, "addr"),
        NeighborError::NotHostMac(_) => (Code::BadRequest, "mac"),
        _ => (Code::Refused, "addr"),
    };
    ApiError::at(code, place, error)
}
