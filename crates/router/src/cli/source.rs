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
        ("kind", |source| source.kind.clone()),
        ("distance", |source| source.distance.to_string()),
        ("routes", |source| source.routes.to_string()),
        ("updates", |source| source.updates.to_string()),
        ("errors", |source| source.errors.to_string()),
        ("messages", |source| or_dash(source.messages)),
        ("resyncs", |source| or_dash(source.resyncs)),
        ("resync ms", |source| or_dash(source.resync_ms.map(|ms| format!("{ms:.0}")))),
        ("sessions", |source| or_dash(source.sessions)),
        ("state", |source| if source.in_sync { "in sync" } else { "not in sync" }.to_owned()),
        ("lag ms", |source| format!("{:.0}", source.lag_ms)),
        ("peer", |source| or_dash(source.peer.as_ref())),
        ("resync for", |source| source.resync_reason.clone()),
        ("exported", |source| or_dash(source.exported)),
        ("error", |source| source.last_error.clone()),
    ];
    const ABOUT: &'static str = "List route sources: distance, routes, updates, errors, sessions";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost source show
  $ fingerpost source show --json

Besides the configured sources there are `host` (addresses of this host), `neighbor` (hosts \
resolved on its links) and `command` (routes of `fingerpost route add`). A source whose peers \
connect (`fpm`, `bmp`) has a row for each peer; it is in sync while the peer is connected and has sent \
all of its table.";
}
