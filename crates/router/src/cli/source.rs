//! `fingerpost source`: the route sources of a running router. `fingerpost feed` is another name of it.

use super::command::Command;
use super::list::{self, Listed};
use super::output::or_dash;
use crate::api::model::Source;

pub(super) const COMMAND: Command = Command {
    name: "source",
    summary: "Route sources of the running router",
    examples: "",
    arguments: |command| list::arguments::<Source>(command.alias("feed")),
    run: list::run::<Source>,
};

impl Listed for Source {
    const PATH: &'static str = "/v1/sources";
    const HEADINGS: &'static [&'static str] =
        &["name", "distance", "routes", "refused", "messages", "resyncs", "latest refusal"];
    const ABOUT: &'static str = "List route sources: distance, routes, refusals, messages";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost source show
  $ fingerpost source show --json

Besides the configured sources there are `host` (addresses of this host), `neighbor` (hosts \
resolved on its links) and `command` (routes of `fingerpost route add`).";

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.distance.to_string(),
            self.routes.to_string(),
            self.refused.to_string(),
            or_dash(self.messages),
            or_dash(self.resyncs),
            self.last_refusal.clone(),
        ]
    }
}
