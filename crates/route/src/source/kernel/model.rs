//! A consumer of events in few lines, by the rules that `event.rs` states: what tests compare.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::event::{LinkState, NeighborState, ObjectTarget, RouteEvent, RouteKey, Target};
use crate::source::rtnetlink::Body;

/// Everything that was announced, with the dump that had it last.
#[derive(Debug, Default)]
pub(super) struct Model {
    dump: u32,
    open: bool,
    pub(super) dumps: u32,
    pub(super) routes: BTreeMap<RouteKey, (Body, u32)>,
    pub(super) objects: BTreeMap<u32, (ObjectTarget, u32)>,
    pub(super) links: BTreeMap<u32, (LinkState, u32)>,
    pub(super) addresses: BTreeMap<(u32, IpAddr), u32>,
    pub(super) neighbors: BTreeMap<(u32, IpAddr), (NeighborState, u32)>,
}

impl Model {
    pub(super) fn take(&mut self, event: RouteEvent) {
        let dump = self.dump;
        match event {
            RouteEvent::Route(update) => {
                assert!(!update.append, "this source announces whole routes");
                let body = Body { target: update.target, mtu: update.mtu };
                self.routes.insert(update.key, (body, dump));
            }
            RouteEvent::Withdraw(key) => drop(self.routes.remove(&key)),
            RouteEvent::NextHop(update) => {
                self.objects.insert(update.id, (update.target, dump));
            }
            RouteEvent::NextHopGone(id) => self.object_gone(id),
            RouteEvent::Link(update) => match update.state {
                Some(state) => drop(self.links.insert(update.link, (state, dump))),
                None => drop(self.links.remove(&update.link)),
            },
            RouteEvent::Address(update) if update.gone => {
                self.addresses.remove(&(update.link, update.addr));
            }
            RouteEvent::Address(update) => {
                self.addresses.insert((update.link, update.addr), dump);
            }
            RouteEvent::Neighbor(update) if update.state == NeighborState::Gone => {
                self.neighbors.remove(&(update.link, update.addr));
            }
            RouteEvent::Neighbor(update) => {
                self.neighbors.insert((update.link, update.addr), (update.state, dump));
            }
            RouteEvent::Commit(_) => {}
            RouteEvent::StartOfTable => {
                self.dump += 1;
                self.open = true;
            }
            RouteEvent::EndOfTable => {
                assert!(self.open, "an end without a start");
                (self.open, self.dumps) = (false, self.dumps + 1);
                self.routes.retain(|_, (_, body)| *body == dump);
                let gone: Vec<u32> = self
                    .objects
                    .iter()
                    .filter(|(_, (_, body))| *body != dump)
                    .map(|o| *o.0)
                    .collect();
                gone.into_iter().for_each(|id| self.object_gone(id));
                self.links.retain(|_, (_, body)| *body == dump);
                self.addresses.retain(|_, body| *body == dump);
                self.neighbors.retain(|_, (_, body)| *body == dump);
            }
        }
    }

    fn object_gone(&mut self, id: u32) {
        self.objects.remove(&id);
        self.routes.retain(|_, (body, _)| body.target != Target::Object(id));
    }

    /// The routes of a table, in words: `10.0.0.0/8 m5 10.0.0.1@2 10.0.0.2@3*7 mtu 1400`.
    pub(super) fn table(&self, table: u32) -> Vec<String> {
        let of_table = self.routes.iter().filter(|(key, _)| key.table == table);
        of_table.map(|(key, (body, _))| words(key, body)).collect()
    }
}

pub(super) fn words(key: &RouteKey, body: &Body) -> String {
    let mtu = if body.mtu == 0 { String::new() } else { format!(" mtu {}", body.mtu) };
    paths(key, &body.target) + &mtu
}

fn paths(key: &RouteKey, target: &Target) -> String {
    let metric = if key.metric == 0 { String::new() } else { format!(" m{}", key.metric) };
    let paths = match target {
        Target::Path(path) => core::slice::from_ref(path),
        Target::Paths(paths) => paths,
        Target::Object(id) => return format!("{}{metric} object {id}", key.prefix),
        other => return format!("{}{metric} {other:?}", key.prefix).to_lowercase(),
    };
    let mut text = format!("{}{metric}", key.prefix);
    // Which hop comes first means nothing, and the kernel's notifications begin with the newest.
    let mut paths = paths.to_vec();
    paths.sort();
    for path in paths {
        text.push(' ');
        path.gateway.iter().for_each(|gateway| text.push_str(&gateway.to_string()));
        path.link.iter().for_each(|link| text.push_str(&format!("@{link}")));
        if path.weight > 1 {
            text.push_str(&format!("*{}", path.weight));
        }
    }
    text
}
