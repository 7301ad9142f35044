//! `monitor`: what happened, in order, from any number on that is still known.

use fingerpost_route::nexthop::HopKey;
use fingerpost_route::{Done, Happened};

use super::hops::{kind, stated, ways};
use super::neighbors::permanent;
use super::{Daemon, LinkNames, word};
use crate::api::model::{Event, EventKind, Hop};

/// Events a piece.
const PIECE: usize = 512;

impl Daemon {
    /// The events behind `since`, a piece of them, and the number to go on behind. `None`: from now on.
    pub(crate) fn events(&self, since: Option<u64>) -> (Vec<Event>, u64) {
        let now = self.control.sequence();
        let Some(since) = since else {
            return (vec![Event { sequence: now, what: EventKind::Start }], now);
        };
        let notices = match self.control.notices(since) {
            Ok(notices) => notices.take(PIECE),
            Err(gap) => {
                // Of a number from the future (another run's) all that is known is lost, too.
                let behind = gap.oldest.saturating_sub(1);
                let what = EventKind::Gap { oldest: gap.oldest };
                return (vec![Event { sequence: behind, what }], behind);
            }
        };
        let links = self.link_names();
        let sources: Vec<String> = self.control.sources().map(|source| source.name).collect();
        let mut last = since;
        let mut events = Vec::new();
        for notice in notices {
            last = notice.sequence;
            let what = match &notice.what {
                Happened::Route { done, source, key, old, new, mtus, best } => EventKind::Route {
                    done: word(*done).to_owned(),
                    prefix: key.prefix.to_string(),
                    table: key.table,
                    metric: key.metric,
                    source: sources.get(usize::from(*source)).cloned().unwrap_or_default(),
                    best: *best,
                    old: old.as_ref().map(|key| hop(key, mtus.0, &links)),
                    new: new.as_ref().map(|key| hop(key, mtus.1, &links)),
                },
                Happened::Neighbor { done, interface, addr, mac, up } => EventKind::Neighbor {
                    done: word(*done).to_owned(),
                    addr: addr.to_string(),
                    interface: interface.to_string(),
                    mac: mac.to_string(),
                    state: (*done != Done::Deleted).then(|| permanent(*up).to_owned()),
                },
                Happened::Visible(generation) => EventKind::Visible { generation: *generation },
                Happened::Decision(text) => EventKind::Decision { text: text.clone() },
            };
            events.push(Event { sequence: notice.sequence, what });
        }
        (events, last)
    }
}

fn hop(key: &HopKey, mtu: u16, links: &LinkNames) -> Hop {
    Hop { kind: kind(key).to_owned(), ways: ways(key, links), mtu: stated(mtu) }
}
