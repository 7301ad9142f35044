//! `fingerpost fib show`: what answers, how large it is, how it came about.

use super::super::list::Listed;
use super::super::output::or_dash;
use crate::api::model::{Fib, SharedMemory};

impl Listed for Fib {
    const PATH: &'static str = "/v1/fibs";
    const HEADINGS: &'static [&'static str] = &[
        "table",
        "family",
        "algorithm",
        "choice",
        "instances",
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
    const ABOUT: &'static str =
        "Tell which algorithm answers, its size, builds and what is pending";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost fib show
  $ fingerpost fib show --json

`reserved` is what a table takes of the kernel memory that the programs in the drivers read as well;
the last line has the sum, next hops included, and its limit: `memory` of `[xdp]`.";

    fn cells(&self) -> Vec<String> {
        vec![
            self.table.to_string(),
            self.family.to_string(),
            self.algorithm.clone(),
            self.choice.clone(),
            self.instances.to_string(),
            self.generation.to_string(),
            self.prefixes.to_string(),
            self.routes.to_string(),
            self.bytes.to_string(),
            format!("{:.2}", self.bytes_per_prefix),
            format!("{:.2}", self.bytes_per_route),
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
        #[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
        let each = used as f64 / prefixes.max(1) as f64;
        Some(format!(
            "shared with drivers: {used} bytes in use by tables ({each:.2} a prefix), \
             {total_reserved} reserved in all, at most {cap}"
        ))
    }
}
