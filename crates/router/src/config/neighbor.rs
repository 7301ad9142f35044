//! The section `[[neighbor]]`: link addresses that are set by hand.

use std::net::IpAddr;

use fingerpost_packet::feature::Mistake as Wrong;
use fingerpost_route::Mac;
use serde::Deserialize;

use crate::api::model::{NeighborAction, NeighborChange};
use crate::api::saved::SavedChange;

/// A static neighbor, as `fingerpost neighbor add` sets it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StaticNeighbor {
    /// Address of the neighbor.
    pub(crate) address: String,
    /// Link address of the neighbor.
    pub(crate) lladdr: String,
    /// Interface of the neighbor. While it is not there, the neighbor waits for it.
    pub(crate) interface: String,
}

impl StaticNeighbor {
    /// Whether both have one address on one interface.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        (&self.address, &self.interface) == (&other.address, &other.interface)
    }

    /// Change that sets or deletes the neighbor.
    pub(crate) fn change(&self, action: NeighborAction) -> NeighborChange {
        // As the router writes them, whatever the letters of the file.
        let written = |text: &str, read: Option<String>| read.unwrap_or_else(|| text.to_owned());
        let addr = self.address.parse().ok().map(|addr: IpAddr| addr.to_string());
        let mac = self.lladdr.parse().ok().map(|mac: Mac| mac.to_string());
        let mac = (action != NeighborAction::Delete).then(|| written(&self.lladdr, mac));
        let addr = written(&self.address, addr);
        NeighborChange { action, addr, dev: self.interface.clone(), mac }
    }

    /// Change that sets the neighbor, with its place in the configuration.
    pub(crate) fn placed(&self) -> (String, SavedChange) {
        let change = self.change(NeighborAction::Replace);
        (format!("[[neighbor]] {}", self.address), SavedChange::Neighbor(change))
    }

    /// Mistakes in the neighbors of a configuration.
    pub(super) fn check(all: &[Self]) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        for (at, one) in all.iter().enumerate() {
            let place = |key: &str| format!("neighbor.{at}.{key}");
            if one.address.parse::<IpAddr>().is_err() {
                let what = format!("`{}` is no address of IPv4 or IPv6", one.address);
                wrong.push(Wrong::new(place("address"), what));
            }
            if let Err(error) = one.lladdr.parse::<Mac>() {
                let what = format!("`{}` is no link address: {error}", one.lladdr);
                wrong.push(Wrong::new(place("lladdr"), what));
            }
            if all[..at].iter().any(|other| other.is_of(one)) {
                let what = format!(
                    "neighbor {} on {} is there twice: keep one",
                    one.address, one.interface
                );
                wrong.push(Wrong::new(place("address"), what));
            }
        }
        wrong
    }
}

impl std::fmt::Display for StaticNeighbor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} lladdr {} dev {}", self.address, self.lladdr, self.interface)
    }
}
