//! `fingerpost fib show`: what answers, how large it is, how it came about.

use std::io::{self, Write};

use serde::Serialize;

use super::super::command::Failure;
use super::super::output::{Columns, Output, Report};
use crate::api::client::At;
use crate::api::model::Fib;

pub(super) const EXAMPLES: &str = "Examples:
  $ fingerpost fib show
  $ fingerpost fib show --json";

pub(super) fn run(at: &At, output: &mut Output) -> Result<(), Failure> {
    let rows: Vec<Fib> = at.client()?.get("/v1/fibs", &())?;
    Ok(output.print(&Fibs(rows))?)
}

#[derive(Serialize)]
struct Fibs(Vec<Fib>);

impl Report for Fibs {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut columns = Columns::new(&[
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
        ]);
        for row in &self.0 {
            columns.row([
                row.table.to_string(),
                row.family.to_string(),
                row.algorithm.clone(),
                row.choice.clone(),
                row.instances.to_string(),
                row.generation.to_string(),
                row.prefixes.to_string(),
                row.routes.to_string(),
                row.bytes.to_string(),
                format!("{:.2}", row.bytes_per_prefix),
                format!("{:.2}", row.bytes_per_route),
                row.pending.to_string(),
                row.mismatch_routes.to_string(),
                row.builds.to_string(),
                row.failures.to_string(),
                format!("{:.1}", row.last_build_ms),
            ]);
        }
        columns.write(to)
    }
}
