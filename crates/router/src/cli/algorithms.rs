//! `fingerpost algorithms`: what the registry of lookup algorithms holds.

use std::collections::BTreeMap;
use std::io::{self, Write};

use fingerpost_lpm::{Addr, Algorithm, Origin};
use serde::Serialize;

use super::command::{Command, Failure};
use super::output::{Columns, Output, Report};

pub(super) const COMMAND: Command = Command {
    name: "algorithms",
    summary: "List the lookup algorithms with their sources and limits",
    examples: "Examples:
  $ fingerpost algorithms
  $ fingerpost algorithms --json | jq -r '.[] | select(.families | index(6)) | .name'

An algorithm that this program was built without has no families, and names the cargo feature \
that adds it.",
    arguments: |command| command,
    run: |_, output| run(output),
};

fn run(output: &mut Output) -> Result<(), Failure> {
    Ok(output.print(&Rows(rows()))?)
}

/// The array that is the JSON of this command.
#[derive(Serialize)]
struct Rows(Vec<Row>);

/// One name, in whichever families it has.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    families: Vec<u8>,
    summary: &'static str,
    source: &'static str,
    origin: &'static str,
    /// Limits by family: `v4`, `v6`.
    limits: BTreeMap<&'static str, RowLimits>,
    /// Cargo feature that adds an algorithm which this program was built without.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs_feature: Option<&'static str>,
}

#[derive(Serialize)]
struct RowLimits {
    /// The greatest next-hop index.
    next_hop: u32,
    /// The longest prefix, in bits.
    prefix_len: u8,
    /// Any further limit, in words.
    #[serde(skip_serializing_if = "str::is_empty")]
    note: &'static str,
}

/// Every name once, in the order of the registry, then what this program was built without.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    fingerpost_lpm::v4().for_each(|algorithm| add(&mut rows, algorithm));
    fingerpost_lpm::v6().for_each(|algorithm| add(&mut rows, algorithm));
    rows.extend(fingerpost_lpm::registry::left_out().map(|algorithm| Row {
        name: algorithm.name,
        families: Vec::new(),
        summary: algorithm.summary,
        source: algorithm.source,
        origin: "published",
        limits: BTreeMap::new(),
        needs_feature: Some(algorithm.feature),
    }));
    rows
}

fn add<A: Addr>(rows: &mut Vec<Row>, algorithm: &Algorithm<A>) {
    let known = rows.iter().position(|row| row.name == algorithm.name);
    let row = known.unwrap_or_else(|| {
        rows.push(Row {
            name: algorithm.name,
            families: Vec::new(),
            summary: algorithm.summary,
            source: algorithm.source,
            origin: match algorithm.origin {
                Origin::Published => "published",
                Origin::Own => "own",
            },
            limits: BTreeMap::new(),
            needs_feature: None,
        });
        rows.len() - 1
    });
    let row = &mut rows[row];
    row.families.push(A::FAMILY);
    let limits = &algorithm.limits;
    row.limits.insert(
        if A::FAMILY == 4 { "v4" } else { "v6" },
        RowLimits { next_hop: limits.next_hop, prefix_len: limits.prefix_len, note: limits.note },
    );
}

impl Report for Rows {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut columns = Columns::new(&["NAME", "FAMILIES", "ORIGIN", "SUMMARY", "SOURCE"]);
        for row in &self.0 {
            let mut families: Vec<_> = row.families.iter().map(ToString::to_string).collect();
            let (mut summary, source) = (row.summary.to_owned(), row.source.to_owned());
            if let Some(feature) = row.needs_feature {
                families = vec!["-".to_owned()];
                summary += &format!(" (not in this program: build with `--features {feature}`)");
            }
            columns.row([row.name.into(), families.join(" "), row.origin.into(), summary, source]);
        }
        columns.write(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_registry_is_there_once() {
        let rows = rows();
        for (at, row) in rows.iter().enumerate() {
            assert!(rows[..at].iter().all(|other| other.name != row.name), "{}", row.name);
            let v4 = fingerpost_lpm::find_v4(row.name).is_ok();
            let v6 = fingerpost_lpm::find_v6(row.name).is_ok();
            assert_eq!(row.families.contains(&4), v4, "{}", row.name);
            assert_eq!(row.families.contains(&6), v6, "{}", row.name);
            assert_eq!(row.limits.len(), row.families.len());
        }
        assert!(rows.iter().any(|row| row.families == [4, 6]));
        // Poptrie is one of them whether it is built in or not.
        let poptrie = rows.iter().find(|row| row.name == "poptrie").unwrap();
        assert_eq!(poptrie.needs_feature.is_none(), cfg!(feature = "poptrie"));
    }
}
