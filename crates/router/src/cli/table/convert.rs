//! `fingerpost table convert`: a table as text, or as an MRT dump of so many peers.
//!
//! Cost: loading; then about 150 ns a line or entry, and compression by the name of the file.

use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fingerpost_lpm::{Addr, Prefix};
use fingerpost_route::AnyPrefix;
use fingerpost_route::bgp::dump::{DumpPath, DumpPeer, DumpWriter};
use fingerpost_route::source::table::{FileHop, PeerChoice};
use serde::Serialize;

use crate::cli::command::{Exit, Failure};
use crate::cli::load::{Half, Tables};
use crate::cli::output::{Output, Report};
use fingerpost_command::save::Saved;

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost table convert v4.txt.xz v6.txt.xz --to mrt --peers 4 -o rib.mrt.gz
  $ fingerpost table convert rib.20261101.0600.bz2 --peer best --to text -o best.txt
  $ fingerpost table convert rib.bz2 --to text | head

Several files are one table, in which the later route of a prefix counts. Routes are written by \
prefix, those of IPv4 first, and equal input makes equal output. Every peer of an MRT dump has every \
route with the next hop of the table; their addresses are 198.18.0.1 and the following ones, their \
AS numbers 4200000000 and the following ones.";

#[derive(Args)]
pub(super) struct Arguments {
    /// Table files: lines `PREFIX NEXTHOP`, or MRT; plain, .gz, .bz2, .xz or .zst
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Format to write
    #[arg(long, value_name = "FORMAT")]
    to: Format,
    /// File to write, compressed if its name ends in .gz or .bz2 [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Number of peers of an MRT dump
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    peers: u16,
    /// Time of an MRT dump, in seconds since 1970
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    time: u32,
    /// Which routes of an MRT dump of several peers are read, as for `table info`
    #[arg(long, value_name = "first|N|best", default_value = "first")]
    peer: PeerChoice,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines `PREFIX NEXTHOP`
    Text,
    /// TABLE_DUMP_V2 of MRT (RFC 6396)
    Mrt,
}

pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let usage = |words| Err(Failure::new(Exit::Usage, words));
    if arguments.out.is_none() && output.is_json() {
        return usage("--json describes what is written to a file: name it with --out FILE");
    }
    if arguments.out.is_none() && arguments.to == Format::Mrt && io::stdout().is_terminal() {
        return usage("MRT is not for a terminal: name a file with --out FILE");
    }
    let tables = Tables::load_of(&arguments.files, arguments.peer)?;
    let Some(path) = &arguments.out else {
        write(&tables, arguments, output)?;
        return tables.verdict();
    };
    let mut file = Saved::create(path)?;
    write(&tables, arguments, &mut file).map_err(|error| file.failed(&error))?;
    let peers = if arguments.to == Format::Mrt { arguments.peers } else { 0 };
    let (routes_v4, routes_v6) = (tables.v4.routes.len(), tables.v6.routes.len());
    output.print(&Converted {
        file: path.display().to_string(),
        routes_v4,
        routes_v6,
        peers,
        entries: (routes_v4 + routes_v6) as u64 * u64::from(peers.max(1)),
        bytes: file.finish()?,
    })?;
    tables.verdict()
}

/// The JSON of this command.
#[derive(Serialize)]
struct Converted {
    file: String,
    routes_v4: usize,
    routes_v6: usize,
    /// Peers of the dump; 0 for text.
    peers: u16,
    /// Lines, or entries of all peers.
    entries: u64,
    bytes: u64,
}

impl Report for Converted {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let Self { file, routes_v4, routes_v6, entries, bytes, .. } = self;
        writeln!(
            to,
            "{file}: {routes_v4} IPv4 and {routes_v6} IPv6 routes, {entries} entries, {bytes} bytes"
        )
    }
}

fn write(tables: &Tables, arguments: &Arguments, to: &mut dyn Write) -> io::Result<()> {
    if arguments.to == Format::Text {
        each(&tables.v4, &mut |prefix: Prefix<u32>, hop| writeln!(to, "{prefix} {hop}"))?;
        return each(&tables.v6, &mut |prefix: Prefix<u128>, hop| writeln!(to, "{prefix} {hop}"));
    }
    let peers: Vec<DumpPeer> = (0..arguments.peers).map(peer).collect();
    let numbers: Vec<u32> = peers.iter().map(|peer| peer.as_number).collect();
    let mut dump = DumpWriter::new(to, arguments.time, "", &peers)?;
    let mut record = |prefix: AnyPrefix, hop| {
        let next_hop = match hop {
            FileHop::Addr(addr) => addr,
            FileHop::Number(number) => {
                let words = format!("next hop {number} of {prefix} is a number, MRT has addresses");
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
        };
        let path = |(peer, as_path)| DumpPath {
            peer,
            id: 0,
            since: arguments.time,
            origin: 0,
            as_path,
            next_hop,
            med: None,
            local_pref: None,
        };
        let paths: Vec<_> = (0..).zip(numbers.chunks(1)).map(path).collect();
        dump.prefix(prefix, &paths)
    };
    each(&tables.v4, &mut |prefix, hop| record(AnyPrefix::V4(prefix), hop))?;
    each(&tables.v6, &mut |prefix, hop| record(AnyPrefix::V6(prefix), hop))
}

/// Peer of this number: addresses are those for benchmarks (RFC 2544), AS numbers those for private use (RFC 6996).
fn peer(number: u16) -> DumpPeer {
    let addr = Ipv4Addr::from_bits(0xc612_0001 + u32::from(number));
    let as_number = 4_200_000_000 + u32::from(number);
    DumpPeer { bgp_id: addr.to_bits(), addr: IpAddr::V4(addr), as_number }
}

/// Routes of a family by prefix, with the next hop as the file names it.
fn each<A: Addr>(
    half: &Half<A>,
    visit: &mut dyn FnMut(Prefix<A>, FileHop) -> io::Result<()>,
) -> io::Result<()> {
    half.routes.iter().try_for_each(|(prefix, hop)| visit(prefix, half.hops[hop.index() - 1]))
}
