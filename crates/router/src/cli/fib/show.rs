//! `fingerpost fib show`: what answers, how large it is, how it came about.

use super::super::list::Listed;
use super::super::output::{Column, or_dash};
use crate::api::model::{Fib, SharedMemory};
use crate::daemon::each;

impl Listed for Fib {
    const PATH: &'static str = "/v1/fibs";
    const COLUMNS: &'static [Column<Self>] = &[
        ("table", |fib| format!("{}{}", fib.table, if fib.paths { " paths" } else { "" })),
        ("family", |fib| fib.family.to_string()),
        ("algorithm", |fib| fib.algorithm.clone()),
        ("choice", |fib| fib.choice.clone()),
        ("generation", |fib| fib.generation.to_string()),
        ("prefixes", |fib| fib.prefixes.to_string()),
        ("routes", |fib| fib.routes.to_string()),
        ("bytes", |fib| fib.bytes.to_string()),
        ("bytes/prefix", |fib| figure(fib.bytes_per_prefix)),
        ("bytes/route", |fib| figure(fib.bytes_per_route)),
        ("pending", |fib| fib.pending.to_string()),
        ("wrong", |fib| fib.mismatch_routes.to_string()),
        ("builds", |fib| fib.builds.to_string()),
        ("failures", |fib| fib.failures.to_string()),
        ("last build ms", |fib| format!("{:.1}", fib.last_build_ms)),
        ("reserved", |fib| or_dash(fib.shared.map(|shared| shared.reserved))),
    ];
    const ABOUT: &'static str = "List lookup tables: algorithm, size, builds, pending changes";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost fib show
  $ fingerpost fib show --json

`reserved` is the memory of a table that the XDP datapath reads as well; the last line has the \
sum, including next hops, and its limit: `memory` of `[xdp]`. Bytes per prefix and per route are \
shown for 1,000 or more: for fewer, the fixed size of the structures dominates.";

    fn ending(fibs: &[Self]) -> Option<String> {
        let of = |fib: &Self| Some((fib.prefixes, fib.shared?));
        let shared: Vec<_> = fibs.iter().filter_map(of).collect();
        let (_, SharedMemory { total_reserved, cap, .. }) = shared.first()?;
        let used: usize = shared.iter().map(|(_, shared)| shared.used).sum();
        let prefixes: usize = shared.iter().map(|(prefixes, _)| prefixes).sum();
        let each =
            each(used, prefixes).map_or(String::new(), |each| format!(" ({each:.2} a prefix)"));
        Some(format!(
            "shared with the XDP datapath: {used} bytes in use by tables{each}, \
             {total_reserved} reserved in all, at most {cap}"
        ))
    }
}

fn figure(each: Option<f64>) -> String {
    or_dash(each.map(|each| format!("{each:.2}")))
}
