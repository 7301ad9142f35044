//! `fingerpost group`: the groups of next hops of a running router.

use super::command::Command;
use super::list::{self, Listed};
use super::output::or_dash;
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
    const HEADINGS: &'static [&'static str] = &[
        "index",
        "type",
        "object",
        "interface",
        "gateway",
        "weight",
        "slots",
        "use",
        "mtu",
        "references",
    ];
    const ABOUT: &'static str =
        "List next-hop groups with their members and the share of flows of each";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost group show
  $ fingerpost group show --json

Each group is one line, followed by a line for each member. A member that is down has no slots. \
`object` is the ID of the next-hop object of the group or the member.";

    fn cells(&self) -> Vec<String> {
        vec![
            self.index.to_string(),
            self.kind.clone(),
            or_dash(self.object),
            String::new(),
            String::new(),
            "-".to_owned(),
            self.slots.to_string(),
            self.used.to_string(),
            "-".to_owned(),
            self.references.to_string(),
        ]
    }

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
