//! `fingerpost feed`: where the routes of a running router come from.

use super::command::Command;
use super::list::{self, Listed};
use super::output::or_dash;
use crate::api::model::Feed;

pub(super) const COMMAND: Command = Command {
    name: "feed",
    summary: "Sources of routes of the running router",
    examples: "",
    arguments: list::arguments::<Feed>,
    run: list::run::<Feed>,
};

impl Listed for Feed {
    const PATH: &'static str = "/v1/feeds";
    const HEADINGS: &'static [&'static str] =
        &["name", "distance", "routes", "refused", "messages", "resyncs", "latest refusal"];
    const ABOUT: &'static str = "List sources: distance, routes, refusals, messages";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost feed show
  $ fingerpost feed show --json

`host` are the addresses of this host, `neighbor` the stations found on its links, `command` the
routes of `fingerpost route add`.";

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
