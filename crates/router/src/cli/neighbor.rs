//! `fingerpost neighbor`: the neighbors of a running router.

use super::command::Command;
use super::list::{self, Listed};
use super::output::or_dash;
use crate::api::model::Neighbor;

pub(super) const COMMAND: Command = Command {
    name: "neighbor",
    summary: "Neighbors of the running router",
    examples: "",
    arguments: list::arguments::<Neighbor>,
    run: list::run::<Neighbor>,
};

impl Listed for Neighbor {
    const PATH: &'static str = "/v1/neighbors";
    const HEADINGS: &'static [&'static str] = &["address", "interface", "mac", "state"];
    const ABOUT: &'static str = "List neighbors: address, interface, link address, state";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost neighbor show
  $ fingerpost neighbor show --json";

    fn cells(&self) -> Vec<String> {
        let mac = or_dash(self.mac.as_ref());
        vec![self.addr.clone(), self.interface.clone(), mac, self.state.clone()]
    }
}
