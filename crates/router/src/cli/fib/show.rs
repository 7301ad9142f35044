//! `fingerpost fib show`: what answers, how large it is, how it came about.

use super::super::list::Listed;
use super::super::output::or_dash;
use crate::api::model::{Fib, SharedMemory};
use crate::daemon::each;

impl Listed for Fib {
    const PATH: &'static str = "/v1/fibs";
    const HEADINGS: &'static [&'static str] = &[
        "table",
        "family",
        "algorithm",
        "choice",
        "generation",
        "prefixes",
        "routes",
        "bytes",
        "bytes/prefix",
        "bytes/route",
        "pending",
        "wrong",
        "builds",
        "failures",
        "last build ms",
        "reserved",
    ];
    const ABOUT: &'static str = "List lookup tables: algorithm, size, builds, pending changes";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost fib show
  $ fingerpost fib show --json

`reserved` is the memory of a table that the XDP datapath reads as well; the last line has the \
sum, including next hops, and its limit: `memory` of `[xdp]`. Bytes per prefix and per route are \
shown for 1,000 or more: for fewer, the fixed size of the structures dominates.";

    fn cells(&self) -> Vec<String> {
        vec![
            if self.paths { format!("{} paths", self.table) } else { self.table.to_string() },
            self.family.to_string(),
            self.algorithm.clone(),
            self.choice.clone(),
            self.generation.to_string(),
            self.prefixes.to_string(),
            self.routes.to_string(),
            self.bytes.to_string(),
            figure(self.bytes_per_prefix),
            figure(self.bytes_per_route),
            self.pending.to_string(),
            self.mismatch_routes.to_string(),
            self.builds.to_string(),
            self.failures.to_string(),
            format!("{:.1}", self.last_build_ms),
            or_dash(self.shared.map(|shared| shared.reserved)),
        ]
    }

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
