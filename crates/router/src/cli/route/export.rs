//! `fingerpost route export`: the best routes of a running router, as an MRT dump.
//!
//! The router is the one peer of the dump, without address and AS number, as other routers dump their own routes. Its
//! routes have no AS path and no origin that it knows of: AS_PATH is empty, ORIGIN incomplete.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use fingerpost_command::save::Saved;
use fingerpost_route::AnyPrefix;
use fingerpost_route::bgp::dump::{DumpPath, DumpPeer, DumpWriter};
use serde::Serialize;

use super::super::command::{Exit, Failure};
use super::super::output::{Output, Report};
use super::show::table;
use crate::api::model::Route;
use crate::api::streams::RouteFilter;
use crate::cli::at::At;

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost route export --mrt routes.mrt.gz
  $ fingerpost route export --mrt routes.mrt --source bmp

Writes the best routes that lead to gateways, as they are when the command starts, as TABLE_DUMP_V2 \
(RFC 6396) of one peer, the router itself. A route with several paths is written with path identifiers \
(RFC 8050). Routes without a gateway (connected, local, blackhole) have no form in MRT: they are \
counted and left out.";

#[derive(Args)]
pub(super) struct Arguments {
    /// File to write, compressed if its name ends in .gz or .bz2
    #[arg(long, value_name = "FILE", required = true)]
    mrt: PathBuf,
    /// Routes of this table, by number, or `main`
    #[arg(long, visible_alias = "table", value_name = "TABLE", value_parser = table)]
    vrf: Option<u32>,
    /// Routes of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    #[command(flatten)]
    at: At,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let filter = RouteFilter {
        table: arguments.vrf,
        source: arguments.source.clone(),
        best: true,
        ..RouteFilter::default()
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
    let own = DumpPeer { bgp_id: 0, addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), as_number: 0 };
    let mut file = Saved::create(&arguments.mrt)?;
    let begun = DumpWriter::new(&mut file, time, "fingerpost", &[own]);
    let failed = |error: io::Error| {
        let words = format_args!("{}: {error}", arguments.mrt.display());
        Failure::outside(error.kind(), words)
    };
    let mut dump = begun.map_err(failed)?;
    let mut exported =
        Exported { file: arguments.mrt.display().to_string(), ..Exported::default() };
    arguments.at.client()?.lines("/v1/routes", &filter, &mut |lines| {
        for line in lines.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            let unknown = |error: &dyn std::fmt::Display| {
                Failure::new(Exit::Failed, format_args!("no route: {error}"))
            };
            let route: Route = serde_json::from_slice(line).map_err(|error| unknown(&error))?;
            let prefix = AnyPrefix::parse(&route.prefix).map_err(|error| unknown(&error))?;
            let gateways =
                route.paths.iter().filter_map(|path| path.gateway.as_ref()?.parse().ok());
            let gateways: Vec<IpAddr> = gateways.collect();
            let path = |(id, &next_hop)| DumpPath {
                peer: 0,
                id: if gateways.len() > 1 { id } else { 0 },
                since: time,
                origin: 2,
                as_path: &[],
                next_hop,
                med: None,
                local_pref: None,
            };
            let paths: Vec<_> = (1..).zip(&gateways).map(path).collect();
            if paths.is_empty() {
                exported.left_out += 1;
                continue;
            }
            exported.paths += paths.len() as u64;
            match prefix {
                AnyPrefix::V4(_) => exported.routes_v4 += 1,
                AnyPrefix::V6(_) => exported.routes_v6 += 1,
            }
            dump.prefix(prefix, &paths).map_err(failed)?;
        }
        Ok::<(), Failure>(())
    })?;
    exported.bytes = file.finish()?;
    Ok(output.print(&exported)?)
}

/// The JSON of this command.
#[derive(Default, Serialize)]
struct Exported {
    file: String,
    routes_v4: u64,
    routes_v6: u64,
    paths: u64,
    /// Routes without a gateway.
    left_out: u64,
    bytes: u64,
}

impl Report for Exported {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let Self { file, routes_v4, routes_v6, paths, left_out, bytes } = self;
        writeln!(
            to,
            "{file}: {routes_v4} IPv4 and {routes_v6} IPv6 routes, {paths} paths, {bytes} bytes; {left_out} without a \
             gateway left out"
        )
    }
}
