//! `fingerpost nexthop`: the next hops of a running router.

use super::command::Command;
use super::list::{self, Listed};
use super::output::or_dash;
use crate::api::model::NextHop;

pub(super) const COMMAND: Command = Command {
    name: "nexthop",
    summary: "Next hops of the running router",
    examples: "",
    arguments: list::arguments::<NextHop>,
    run: list::run::<NextHop>,
};

impl Listed for NextHop {
    const PATH: &'static str = "/v1/nexthops";
    const HEADINGS: &'static [&'static str] =
        &["index", "type", "object", "interface", "gateway", "flags", "use", "mtu", "references"];
    const ABOUT: &'static str =
        "List next hops: index, type, object, interface, gateway, flags, use, MTU, references";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost nexthop show
  $ fingerpost nexthop show --json

Flags: G gateway, H host route, d default route, R reject, B blackhole, D redirect, b broadcast, \
M group. `object` is the ID of the next-hop object of the source.";

    fn cells(&self) -> Vec<String> {
        vec![
            self.index.to_string(),
            self.kind.clone(),
            or_dash(self.object),
            or_dash(self.interface.as_ref()),
            or_dash(self.gateway.as_ref()),
            self.flags.clone(),
            self.used.to_string(),
            or_dash(self.mtu),
            self.references.to_string(),
        ]
    }
}
