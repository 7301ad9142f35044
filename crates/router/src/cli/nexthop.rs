//! `fingerpost nexthop`: the next hops of a running router.

use fingerpost_route::nexthop::MAX_RANKED;

use super::command::Command;
use super::list::{self, Listed};
use super::output::{Column, or_dash};
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
    const COLUMNS: &'static [Column<Self>] = &[
        ("index", |hop| hop.index.to_string()),
        ("type", |hop| hop.kind.clone()),
        ("object", |hop| or_dash(hop.object)),
        ("interface", |hop| or_dash(hop.interface.as_ref())),
        ("gateway", |hop| or_dash(hop.gateway.as_ref())),
        ("flags", |hop| hop.flags.clone()),
        ("use", |hop| hop.used.to_string()),
        ("mtu", |hop| or_dash(hop.mtu)),
        ("references", |hop| hop.references.to_string()),
    ];
    const ABOUT: &'static str =
        "List next hops: index, type, object, interface, gateway, flags, use, MTU, references";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost nexthop show
  $ fingerpost nexthop show --json

Flags: G gateway, H host route, d default route, R reject, B blackhole, D redirect, b broadcast, \
M group. `object` is the ID of the next-hop object of the source. A last line counts the lists of alternatives that \
were shortened to their best path, where there are any; `--json` has them by next hop (`shortened`).";

    fn ending(hops: &[Self]) -> Option<String> {
        let shortened: u64 = hops.iter().map(|hop| u64::from(hop.shortened)).sum();
        (shortened > 0).then(|| {
            format!(
                "lists of alternatives shortened to their best path: {shortened}, as there are at most {MAX_RANKED} lists"
            )
        })
    }
}
