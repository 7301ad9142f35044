//! Events of sources as lines of text, for the tests that compare them.

use crate::event::{ObjectTarget, Path, RouteEvent, RouteKey, Target};

fn named(key: &RouteKey) -> String {
    format!("{} table {} metric {}", key.prefix, key.table, key.metric)
}

fn path(path: &Path) -> String {
    let gateway = path.gateway.map_or("-".to_owned(), |gateway| gateway.to_string());
    let link = path.link.map_or(String::new(), |link| format!("@{link}"));
    format!("{gateway}{link}*{}", path.weight)
}

/// The line of an event.
pub(super) fn words(event: &RouteEvent) -> String {
    match event {
        RouteEvent::Route(update) => {
            let target = match &update.target {
                Target::Path(one) => path(one),
                Target::Paths(all) => all.iter().map(path).collect::<Vec<_>>().join(" "),
                Target::Object(id) => format!("object {id}"),
                other => format!("{other:?}").to_lowercase(),
            };
            let mtu = if update.mtu > 0 { format!(" mtu {}", update.mtu) } else { String::new() };
            format!("route {} {target}{mtu}", named(&update.key))
        }
        RouteEvent::Withdraw(key) => format!("withdraw {}", named(key)),
        RouteEvent::NextHop(update) => {
            let target = match &update.target {
                ObjectTarget::Path(one) => path(one),
                ObjectTarget::Group(members) => {
                    let member = |(id, weight): &(u32, u32)| format!("{id}*{weight}");
                    members.iter().map(member).collect::<Vec<_>>().join(" ")
                }
                ObjectTarget::Blackhole => "blackhole".to_owned(),
                ObjectTarget::Local => "local".to_owned(),
            };
            format!("object {} {target}", update.id)
        }
        RouteEvent::NextHopGone(id) => format!("object {id} gone"),
        RouteEvent::Link(update) => match &update.state {
            Some(state) => format!(
                "link {} {} {} mtu {}",
                update.link,
                state.name,
                if state.up { "up" } else { "down" },
                state.mtu
            ),
            None => format!("link {} gone", update.link),
        },
        RouteEvent::Address(update) => {
            let gone = if update.gone { " gone" } else { "" };
            format!("address {}/{}@{}{gone}", update.addr, update.prefix_len, update.link)
        }
        RouteEvent::Neighbor(update) => {
            format!("neighbor {}@{} {:?}", update.addr, update.link, update.state)
        }
        RouteEvent::Commit(number) => format!("commit {number}"),
        RouteEvent::StartOfTable => "start of table".to_owned(),
        RouteEvent::EndOfTable => "end of table".to_owned(),
    }
}
