//! `fingerpost group`: the groups of next hops of a running router.

use super::command::Command;
use super::list::{self, Listed};
use super::output::{Column, or_dash};
use crate::api::model::{Group, Member};

pub(super) const COMMAND: Command = Command {
    name: "group",
    summary: "Next-hop groups of the running router",
    examples: "",
    arguments: list::arguments::<Group>,
    run: list::run::<Group>,
};

impl Listed for Group {
    const PATH: &'static str = "/v1/groups";
    const COLUMNS: &'static [Column<Self>] = &[
        ("index", |group| group.index.to_string()),
        ("type", |group| group.kind.clone()),
        ("object", |group| or_dash(group.object)),
        ("interface", |_| String::new()),
        ("gateway", |_| String::new()),
        ("weight", |_| "-".to_owned()),
        ("slots", |group| group.slots.to_string()),
        ("use", |group| group.used.to_string()),
        ("mtu", |_| "-".to_owned()),
        ("references", |group| group.references.to_string()),
    ];
    const ABOUT: &'static str =
        "List next-hop groups with their members and the share of flows of each";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost group show
  $ fingerpost group show --json

Each group is one line, followed by a line for each member. A member that is down has no slots. \
`object` is the ID of the next-hop object of the group or the member.";

    fn parts(&self) -> Vec<Vec<String>> {
        let row = |member: &Member| {
            vec![
                "-".to_owned(),
                String::new(),
                or_dash(member.object),
                or_dash(member.interface.as_ref()),
                or_dash(member.gateway.as_ref()),
                member.weight.to_string(),
                member.slots.to_string(),
                "-".to_owned(),
                or_dash(member.mtu),
                "-".to_owned(),
            ]
        };
        self.members.iter().map(row).collect()
    }
}
