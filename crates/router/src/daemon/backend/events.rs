//! `monitor`: what happened, in order, from any number on that is still known.

use std::time::SystemTime;

use fingerpost_route::nexthop::HopKey;
use fingerpost_route::{Done, Happened, HopView, ObjectView, Requested, Takeover};

use super::hops::{Shown, object_paths, stated};
use super::neighbors::permanent;
use super::{LinkNames, View, word};
use crate::api::access::Requester;
use crate::api::model::{Event, EventKind, Hop};
use fingerpost_command::time::rfc3339;

/// Events a piece.
const PIECE: usize = 512;

impl View<'_> {
    /// The events behind `since`, a piece of them, and the number to continue behind. `None`: from now on.
    pub(super) fn events_since(&self, since: Option<u64>) -> (Vec<Event>, u64) {
        let now = self.control.sequence();
        let Some(since) = since else {
            return (vec![event(now, SystemTime::now(), EventKind::Start)], now);
        };
        let notices = match self.control.notices(since) {
            Ok(notices) => notices.take(PIECE),
            Err(gap) => {
                // Of a number from the future (another run's) all that is known is lost, too.
                let behind = gap.oldest.saturating_sub(1);
                let what = EventKind::Gap { oldest: gap.oldest };
                return (vec![event(behind, SystemTime::now(), what)], behind);
            }
        };
        let (links, view) = (self.link_names(), self.control.hop_view());
        let sources: Vec<String> = self.control.sources().map(|source| source.name).collect();
        let name = |source: u16| sources.get(usize::from(source)).cloned().unwrap_or_default();
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
                    source: name(*source),
                    best: *best,
                    old: old.as_ref().map(|key| hop(key, mtus.0, last, view, &links)),
                    new: new.as_ref().map(|key| hop(key, mtus.1, last, view, &links)),
                },
                Happened::Object { done, source, id, old, new } => EventKind::Object {
                    done: word(*done).to_owned(),
                    object: *id,
                    source: name(*source),
                    old: old.as_ref().map(|object| object_hop(object, &links)),
                    new: new.as_ref().map(|object| object_hop(object, &links)),
                },
                Happened::Link { done, link, name: interface, up, mtu, mac } => EventKind::Link {
                    done: word(*done).to_owned(),
                    interface: interface.to_string(),
                    index: *link,
                    up: *up,
                    mtu: *mtu,
                    mac: mac.map(|mac| mac.to_string()),
                },
                Happened::Interface { name: interface, takeover, path, mode } => {
                    EventKind::Interface {
                        done: takeover_word(*takeover).to_owned(),
                        interface: interface.to_string(),
                        path: (!path.is_empty()).then(|| (*path).to_owned()),
                        mode: mode.to_string(),
                    }
                }
                Happened::Neighbor { done, interface, addr, mac, up } => EventKind::Neighbor {
                    done: word(*done).to_owned(),
                    addr: addr.to_string(),
                    interface: interface.to_string(),
                    mac: mac.to_string(),
                    state: (*done != Done::Deleted).then(|| permanent(*up).to_owned()),
                },
                Happened::Request(requested) => {
                    let Requested { uid, pid, command, request, error } = &**requested;
                    let by = Requester { uid: *uid, pid: *pid, command: command.clone() };
                    EventKind::Request { by, request: request.clone(), error: error.clone() }
                }
                Happened::Configuration { number, done, text } => EventKind::Configuration {
                    number: *number,
                    done: (*done).to_owned(),
                    text: text.to_string(),
                },
                Happened::Visible(generation) => EventKind::Visible { generation: *generation },
                Happened::Decision(text) => EventKind::Decision { text: text.clone() },
            };
            events.push(event(notice.sequence, notice.time(), what));
        }
        (events, last)
    }
}

fn event(sequence: u64, time: SystemTime, what: EventKind) -> Event {
    Event { sequence, time: rfc3339(time), what }
}

/// What a route did, or does, by the notice of number `sequence`.
fn hop(key: &HopKey, mtu: u16, sequence: u64, view: HopView<'_>, links: &LinkNames) -> Hop {
    let Shown { kind, object, paths } = Shown::at(key, view, links, sequence);
    Hop { kind: kind.to_owned(), object, paths, mtu: stated(mtu) }
}

fn object_hop(object: &ObjectView, links: &LinkNames) -> Hop {
    let kind = match object {
        ObjectView { blackhole: true, .. } => "blackhole",
        ObjectView { group: true, .. } => "group",
        ObjectView { local: true, .. } => "local",
        _ => "via",
    };
    Hop { kind: kind.to_owned(), object: None, paths: object_paths(object, links), mtu: None }
}

/// What was done with an interface, in a word.
fn takeover_word(takeover: Takeover) -> &'static str {
    match takeover {
        Takeover::Taken => "taken_over",
        Takeover::Kernel => "kernel",
        Takeover::Released => "released",
        Takeover::Closed => "closed",
    }
}
