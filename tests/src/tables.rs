//! Tables of routes and streams of updates, read as the program reads them.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};

use fingerpost_lpm::{Addr, NextHopId, Prefix};
use fingerpost_route::AnyPrefix;
use fingerpost_route::source::table::decompress::Decoded;
use fingerpost_route::source::table::{FileHop, TableEntry, TableReader};

/// A route's prefix and next hop.
pub type Route<A> = (Prefix<A>, NextHopId);

/// The tables that are shipped.
pub fn shipped() -> PathBuf {
    crate::root().join("testdata/tables")
}

/// Where further tables lie: `FINGERPOST_DATA`, or beside the checkout.
pub fn data() -> PathBuf {
    let beside = || crate::root().join("../shared/data");
    env::var_os("FINGERPOST_DATA").map_or_else(beside, PathBuf::from)
}

/// The routes of a table in their order, next hops numbered from 1 as they come.
///
/// # Panics
/// When it cannot be read whole, or has a route of the other family.
pub fn read<A: Addr>(path: &Path) -> Vec<Route<A>> {
    let name = path.display();
    let mut table = TableReader::open(path).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut hops: BTreeMap<FileHop, u32> = BTreeMap::new();
    let mut routes = Vec::new();
    for entry in &mut table {
        let entry = entry.unwrap_or_else(|e| panic!("{name}: {e}"));
        let next = u32::try_from(hops.len()).expect("fewer next hops than routes") + 1;
        let hop = NextHopId(*hops.entry(entry.hop).or_insert(next));
        let (family, addr, len) = match entry.prefix {
            AnyPrefix::V4(prefix) => (4, u128::from(prefix.addr()), prefix.len()),
            AnyPrefix::V6(prefix) => (6, prefix.addr(), prefix.len()),
        };
        assert_eq!(family, A::FAMILY, "{name}: {}", entry.prefix);
        routes.push((Prefix::masked(A::from_u128(addr), len), hop));
    }
    assert_eq!(table.rejected().count, 0, "{name}: {:?}", table.rejected());
    routes
}

/// Entries of a shipped table in their order.
///
/// # Panics
/// When it cannot be read.
pub fn entries(name: &str) -> impl Iterator<Item = TableEntry> {
    let reader = TableReader::open(&shipped().join(name)).expect("the table is shipped");
    reader.map(|entry| entry.expect("the table is whole"))
}

/// Lines for `ip -batch` that add every `share`th route of the shipped IPv4 table by a gateway.
///
/// # Panics
/// When the table cannot be read.
pub fn routes_by(gateway: &str, share: usize) -> String {
    let routes = entries("v4-tier1-nh496.txt.xz").step_by(share);
    routes.map(|route| format!("route add {} via {gateway}\n", route.prefix)).collect()
}

/// The text of a file, compressed or not.
///
/// # Panics
/// When it cannot be read, or is no text.
pub fn text(path: &Path) -> String {
    let name = path.display().to_string();
    let read = || -> anyhow::Result<String> {
        let mut decoded = Decoded::new(&name, Box::new(File::open(path)?))?;
        let (mut bytes, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            match decoded.read_some(&mut piece)? {
                0 => return Ok(String::from_utf8(bytes)?),
                len => bytes.extend_from_slice(&piece[..len]),
            }
        }
    };
    read().unwrap_or_else(|e| panic!("{name}: {e:#}"))
}
