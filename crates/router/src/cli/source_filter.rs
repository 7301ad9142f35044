//! `fingerpost source-filter`: the source filters of a running router, and changes of their lists.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{ArgMatches, Args, Subcommand};
use fingerpost_packet::feature::FEATURES;
use fingerpost_packet::feature::source_filter::prefix;
use hyper::Method;

use super::command::{Command, Exit, Failure, parsed, subcommands};
use super::feature;
use super::output::{Columns, Output, Report, or_dash};
use crate::api::source_filters::{
    FilterAnswer, FilterChange, FilterChanged, FilterList, FilterQuery,
};
use crate::cli::at::{At, Persist};

pub(super) const COMMAND: Command = Command {
    name: NAME,
    summary: "Lists of source prefixes of the running router: their counters, and changes of them",
    examples: "",
    arguments: |command| {
        let command = subcommands::<What>(command);
        let row = FEATURES.iter().find(|row| row.name == NAME).expect("a feature of this name");
        command.subcommand(feature::show_command(row).display_order(0)).alias(FORMER_NAME)
    },
    run,
};

/// Name of the feature and of the command.
const NAME: &str = "source-filter";
/// Accepted for one release.
const FORMER_NAME: &str = "filter";
/// Path of the API.
const PATH: &str = "/v1/source-filters";

#[derive(Subcommand)]
enum What {
    /// Find the lists that have an address, and the verdict on packets from there
    #[command(after_help = LOOKUP)]
    Lookup(Lookup),
    /// Add prefixes to a list
    #[command(after_help = ADD)]
    Add(Change),
    /// Take prefixes from a list
    #[command(visible_alias = "del", after_help = REMOVE)]
    Remove(Change),
    /// Exchange a list for that of a file, at once
    #[command(after_help = REPLACE)]
    Replace(Replace),
}

const LOOKUP: &str = "Examples:
  $ fingerpost source-filter lookup 192.0.2.7
  $ fingerpost source-filter lookup 2001:db8::7 --from wan0

Without --from all filters count, whichever interfaces they are for. Exit code 0 whatever the verdict.";
const ADD: &str = "Examples:
  $ fingerpost source-filter add attackers 192.0.2.7 198.51.100.0/24 2001:db8:bad::/48

All of them or none; host bits are cleared. Packets see it when the command returns. What is added
lasts until the list is exchanged or the daemon ends, with --persist beyond its end.";
const REMOVE: &str = "Examples:
  $ fingerpost source-filter remove attackers 198.51.100.0/24

That very prefix: addresses that another one of the list covers stay on it.";
const REPLACE: &str = "Examples:
  $ fingerpost source-filter replace attackers /var/lib/lists/attackers.txt.gz

A prefix or address a line, of either family; `#` and `;` begin a comment; plain or compressed. The
daemon reads it. Packets find the old list or the new one, and never half of it; a line that is no
prefix leaves the old one.";

#[derive(Args)]
struct Lookup {
    /// Source address
    #[arg(value_name = "ADDR")]
    addr: String,
    /// Only the filters of this interface
    #[arg(long, value_name = "INTERFACE")]
    from: Option<String>,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
struct Change {
    /// Which filter
    #[arg(value_name = "NAME")]
    name: String,
    /// Prefixes or addresses, of either family
    #[arg(value_name = "PREFIX", required = true)]
    prefixes: Vec<String>,
    #[command(flatten)]
    persist: Persist,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
struct Replace {
    /// Which filter
    #[arg(value_name = "NAME")]
    name: String,
    /// Prefixes, one a line
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    persist: Persist,
    #[command(flatten)]
    at: At,
}

fn run(matches: &ArgMatches, output: &mut Output) -> Result<(), Failure> {
    if let Some(("show", matches)) = matches.subcommand() {
        let row = FEATURES.iter().find(|row| row.name == NAME).expect("a feature of this name");
        return feature::show(row, matches, output);
    }
    match parsed::<What>(matches)? {
        What::Lookup(Lookup { addr, from, at }) => {
            let question = FilterQuery { addr, interface: from };
            let answer: FilterAnswer = at.client()?.get(&format!("{PATH}/lookup"), &question)?;
            Ok(output.print(&answer)?)
        }
        What::Add(change) => edit(change, true, output),
        What::Remove(change) => edit(change, false, output),
        What::Replace(Replace { name, file, persist, at }) => {
            // As it is called here: the daemon may stand in another folder.
            let file = file.canonicalize().map_err(|error| {
                Failure::outside(error.kind(), format_args!("{}: {error}", file.display()))
            })?;
            let list = FilterList { filter: name, file: file.display().to_string() };
            let changed: FilterChanged =
                at.client()?.send(Method::PUT, persist.path(PATH), &list)?;
            Ok(output.print(&changed)?)
        }
    }
}

fn edit(change: Change, add: bool, output: &mut Output) -> Result<(), Failure> {
    let Change { name, prefixes, persist, at } = change;
    for text in &prefixes {
        prefix(text).map_err(|words| Failure::new(Exit::Usage, words))?;
    }
    let mut body = FilterChange { filter: name, ..FilterChange::default() };
    *if add { &mut body.add } else { &mut body.remove } = prefixes;
    let changed: FilterChanged = at.client()?.send(Method::POST, persist.path(PATH), &body)?;
    Ok(output.print(&changed)?)
}

impl Report for FilterAnswer {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "{}: {}", self.addr, self.does)?;
        if self.filters.is_empty() {
            return Ok(());
        }
        let mut columns = Columns::new(&["filter", "action", "prefix", "interfaces"]);
        for on in &self.filters {
            let interfaces = or_dash(on.interfaces.as_ref().map(|names| names.join(",")));
            let prefix = or_dash(on.prefix.as_ref());
            columns.row([on.name.clone(), on.action.clone(), prefix, interfaces]);
        }
        columns.write(to)
    }
}

impl Report for FilterChanged {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let Self { filter, changed, prefixes_v4, prefixes_v6 } = self;
        writeln!(
            to,
            "{filter}: {changed} changed, {prefixes_v4} IPv4 and {prefixes_v6} IPv6 prefixes"
        )
    }
}
