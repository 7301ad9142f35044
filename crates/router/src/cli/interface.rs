//! `fingerpost interface`: the interfaces of a running router.

use super::command::Command;
use super::list::{self, Listed};
use super::output::or_dash;
use crate::api::model::Interface;

pub(super) const COMMAND: Command = Command {
    name: "interface",
    summary: "Interfaces of the running router",
    examples: "",
    arguments: list::arguments::<Interface>,
    run: list::run::<Interface>,
};

impl Listed for Interface {
    const PATH: &'static str = "/v1/interfaces";
    const HEADINGS: &'static [&'static str] =
        &["name", "state", "mtu", "mac", "path", "received", "sent", "punted", "addresses", "mode"];
    const ABOUT: &'static str =
        "List interfaces: state, addresses, packets, and how each is driven";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost interface show
  $ fingerpost interface show --json";

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            if self.up { "up" } else { "down" }.to_owned(),
            self.mtu.to_string(),
            or_dash(self.mac.as_ref()),
            self.path.clone(),
            self.rx_packets.to_string(),
            self.tx_packets.to_string(),
            self.punted.to_string(),
            if self.addresses.is_empty() { "-".to_owned() } else { self.addresses.join(",") },
            self.mode.clone(),
        ]
    }
}
