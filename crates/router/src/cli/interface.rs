//! `fingerpost interface`: the interfaces of a running router.

use super::command::Command;
use super::list::{self, Listed};
use super::output::{Column, or_dash};
use crate::api::model::{Interface, InterfaceFeature};

pub(super) const COMMAND: Command = Command {
    name: "interface",
    summary: "Interfaces of the running router",
    examples: "",
    arguments: list::arguments::<Interface>,
    run: list::run::<Interface>,
};

impl Listed for Interface {
    const PATH: &'static str = "/v1/interfaces";
    const COLUMNS: &'static [Column<Self>] = &[
        ("name", |port| port.name.clone()),
        ("state", |port| if port.up { "up" } else { "down" }.to_owned()),
        ("mtu", |port| port.mtu.to_string()),
        ("mac", |port| or_dash(port.mac.as_ref())),
        ("path", |port| port.path.clone()),
        ("features", |port| features(&port.features)),
        ("received", |port| port.rx_packets.to_string()),
        ("sent", |port| port.tx_packets.to_string()),
        ("punted", |port| port.punted.to_string()),
        ("dropped", |port| port.dropped.values().sum::<u64>().to_string()),
        ("addresses", |port| or_dash(Some(port.addresses.join(",")).filter(|all| !all.is_empty()))),
        ("mode", |port| port.mode.clone()),
    ];
    const ABOUT: &'static str =
        "List interfaces: state, addresses, features, packets, and how each is driven";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost interface show
  $ fingerpost interface show --json

`dropped` is the sum of the received packets that were dropped; the JSON has them by reason, and the
counts of the device itself (`device`), such as frames that found a full ring.
`features` are what the interface applies to its packets, with the settings; `(graph)` behind one that
takes its packets out of the XDP datapath, `(xdp, graph)` behind one that takes some of them out (`why` of
the JSON has which), `(kernel)` behind one that does not hold since the interface stays with the kernel.";
}

/// Features in a cell.
fn features(features: &[InterfaceFeature]) -> String {
    let one = |feature: &InterfaceFeature| {
        let InterfaceFeature { name, settings, path, why } = feature;
        let place = match (&**path, why) {
            (_, None) => String::new(),
            ("xdp", Some(_)) => " (xdp, graph)".to_owned(),
            (path, Some(_)) => format!(" ({path})"),
        };
        format!("{name} {settings}{place}")
    };
    match features {
        [] => "-".to_owned(),
        some => some.iter().map(one).collect::<Vec<_>>().join("; "),
    }
}
