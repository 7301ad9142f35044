//! The other members in the host's kernel: what they announce, and what of it the kernel has lost.
//!
//! Shape:  a [`Host`] while the fabric interface is up. It gets all entries when the members, the own record or the lost members
//!         have changed; when the control side has had other neighbors for seconds than the kernel accepted, it sets all again.
//! Cost:   a pass over the neighbors of the fabric interface once a second, and in each turn until the control side has them.

use std::time::{Duration, Instant};

use fingerpost_cluster::rule::NodeId;
use fingerpost_cluster::store::member::{Membership, Record};
use fingerpost_route::Control;

use super::host::Host;
use super::ports::ClusterPorts;
use super::wanted::{Reach, entries};

/// Time between two looks whether the host's kernel still has what it accepted, and after which what it has lost is set again.
const LOOK: Duration = Duration::from_secs(1);
const LOST: Duration = Duration::from_secs(5);

/// What the members are at this moment.
pub(super) struct Known<'a> {
    pub(super) membership: &'a Membership,
    /// Record of this node.
    pub(super) own: &'a Record,
    /// Which members are up, and which of these are about to stop.
    pub(super) ports: &'a ClusterPorts,
}

/// What the host's kernel has of the other members.
pub(super) struct InKernel {
    /// Name of the fabric interface.
    interface: String,
    /// Its entries, while it is up.
    host: Option<Host>,
    reach: Reach,
    /// Whether the control side may not have the neighbors of the latest entries yet.
    awaited: bool,
    /// When the neighbors of the control side were compared last, and since when some are not those that the kernel accepted.
    compared: Instant,
    differs_since: Option<Instant>,
}

impl InKernel {
    /// Nothing yet of what is to be reached by this interface.
    pub(super) fn new(interface: String) -> Self {
        let (reach, compared) = (Reach::default(), Instant::now());
        Self { interface, host: None, reach, awaited: false, compared, differs_since: None }
    }

    /// Whether the fabric interface is known, and the kernel has its routes.
    pub(super) fn has_interface(&self) -> bool {
        self.host.is_some()
    }

    /// Whether a member has been down for so long that its routes are withdrawn, or was about to stop and is down.
    pub(super) fn is_gone(&self, node: NodeId) -> bool {
        self.reach.is_gone(node)
    }

    /// Has the kernel reach the other members by the fabric interface, once that is there; `changed`: the membership or the own
    /// record is another one since the last call. Returns messages, and whether the control side has the neighbors of all entries
    /// since this call.
    pub(super) fn follow(
        &mut self,
        control: &Control,
        known: &Known<'_>,
        changed: bool,
    ) -> (Vec<String>, bool) {
        let now = Instant::now();
        let reach = &mut self.reach;
        let follow =
            |members: &_, leaving: &_| reach.follow((members, leaving), known.membership, now);
        let changed = known.ports.found(follow) || changed;
        let mut links = control.links();
        let found = links.find(|(_, _, state)| state.name == self.interface && state.up);
        let Some((link, ..)) = found else {
            // The kernel has deleted the routes of an interface that is down.
            self.host = None;
            return (Vec::new(), false);
        };
        let is_whole = |host: &Host| host.link() == link && !host.is_due(now);
        let is_whole = !changed && self.host.as_ref().is_some_and(is_whole);
        let mut lost = false;
        if is_whole {
            match self.compare(control, now) {
                Compared::Lost => lost = true,
                Compared::Known => return (Vec::new(), std::mem::take(&mut self.awaited)),
                Compared::Waits => return (Vec::new(), false),
            }
        }
        let host = match self.host.take().filter(|host| host.link() == link) {
            Some(host) => Ok(host),
            None => Host::new(link),
        };
        let mut messages = Vec::new();
        match host {
            Ok(mut host) => {
                if lost {
                    let what =
                        "the kernel's neighbors are not those of the members: all are set again";
                    messages.push(what.to_owned());
                    messages.extend(host.set_again(control));
                }
                let is_lost = |node| self.reach.is_lost(node);
                messages.extend(host.set(&entries(known.membership, known.own, is_lost)));
                (self.host, self.awaited) = (Some(host), true);
            }
            Err(error) => messages.push(error.to_string()),
        }
        let name = &self.interface;
        (messages.into_iter().map(|what| format!("{name}: {what}")).collect(), false)
    }

    /// Looks whether the control side has the neighbors that the kernel accepted.
    fn compare(&mut self, control: &Control, now: Instant) -> Compared {
        if !self.awaited && now.saturating_duration_since(self.compared) < LOOK {
            return Compared::Waits;
        }
        self.compared = now;
        if self.host.as_ref().is_some_and(|host| host.is_known(control)) {
            self.differs_since = None;
            return Compared::Known;
        }
        let since = *self.differs_since.get_or_insert(now);
        if now.saturating_duration_since(since) < LOST {
            return Compared::Waits;
        }
        // Such as those of an interface that went down and came up between two looks.
        self.differs_since = None;
        Compared::Lost
    }
}

/// Result of a comparison.
enum Compared {
    /// It was not time yet, or the control side may get the neighbors yet.
    Waits,
    /// The control side has the neighbors of the kernel.
    Known,
    /// It has had others for too long.
    Lost,
}
