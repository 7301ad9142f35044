//! `fingerpost fib show`: what answers, how large it is, how it came about.

use super::super::list::Listed;
use crate::api::model::Fib;

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
    ];
    const ABOUT: &'static str =
        "Tell which algorithm answers, its size, builds and what is pending";
    const EXAMPLES: &'static str = "Examples:
  $ fingerpost fib show
  $ fingerpost fib show --json";

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
        ]
    }
}
