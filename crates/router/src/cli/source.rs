//! `fingerpost source`: the route sources of a running router. Its former name is `fingerpost feed`.

use super::command::Command;
use super::list::{self, Listed};
use super::output::{Column, or_dash};
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
    const COLUMNS: &'static [Column<Self>] = &[
        ("name", |source| source.name.clone()),
        ("distance", |source| source.distance.to_string()),
        ("routes", |source| source.routes.to_string()),
        ("refused", |source| source.refused.to_string()),
        ("messages", |source| or_dash(source.messages)),
        ("resyncs", |source| or_dash(source.resyncs)),
        ("latest refusal", |source| source.last_refusal.clone()),
    ];
    const ABOUT: &'static str = "List route sources: distance, routes, refusals, messages";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost source show
  $ fingerpost source show --json

Besides the configured sources there are `host` (addresses of this host), `neighbor` (hosts \
resolved on its links) and `command` (routes of `fingerpost route add`).";
}
