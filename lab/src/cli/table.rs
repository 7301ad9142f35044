//! `fingerpost-lab table check`: every algorithm against the oracle, on a real table.
//!
//! Four tenths of the addresses are the ends of the prefixes and their neighbors, the rest uniform, in
//! announced prefixes and at random edges. The oracle computes the expected answers once for all algorithms.
//! Cost: 10 million addresses take the oracle some seconds and 60 (IPv4) or 240 MB (IPv6).

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use fingerpost_command::progress::Progress;
use fingerpost_lpm::testing::{Mismatch, Questions};
use fingerpost_lpm::{Algorithm, NextHopId, UpdateError};
use serde::Serialize;

use super::choice::{self, Built};
use super::command::{Command, Exit, Failure, parsed, subcommands};
use super::load::{Family, Half, Tables};
use super::output::{Column, Columns, Output, Report, message};

pub(super) const COMMAND: Command = Command {
    name: "table",
    summary: "Check the algorithms on a table from a file",
    examples: "",
    arguments: subcommands::<What>,
    run: |matches, output| match parsed::<What>(matches)? {
        What::Check(arguments) => run(&arguments, output),
    },
};

#[derive(Subcommand)]
enum What {
    /// Compare algorithms with the oracle: random addresses, and the ends of all prefixes
    #[command(after_help = EXAMPLES)]
    Check(Arguments),
}

const EXAMPLES: &str = "Examples:
  $ fingerpost-lab table check v4.txt.xz
  $ fingerpost-lab table check v4.txt.xz v6.txt.xz --count 10000000 --seed 7
  $ fingerpost-lab table check rib.bz2 --algorithm bsearch,dxr18 --json";

#[derive(Args)]
struct Arguments {
    /// Routes: lines `PREFIX NEXTHOP`, or MRT; plain, .gz, .bz2, .xz or .zst
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Algorithms; `fingerpost algorithms` lists them
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', default_value = choice::ALL)]
    #[arg(value_parser = choice::names(choice::ALL), hide_possible_values = true)]
    algorithm: Vec<String>,
    /// Addresses of each family
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    count: u32,
    /// Seed of the random addresses
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let tables = Tables::load(&arguments.files)?;
    let mut checks = Vec::new();
    check::<u32>(&tables, arguments, &mut checks);
    check::<u128>(&tables, arguments, &mut checks);
    let mut worst = Ok(());
    for name in &arguments.algorithm {
        if name != choice::ALL && checks.iter().all(|check| check.algorithm != name) {
            message(format_args!("{name}: not checked, it has no family that the table has"));
            worst = Err(Failure::Reported(Exit::Failed));
        }
    }
    let all = arguments.algorithm.iter().any(|name| name == choice::ALL);
    // One whose limits the table exceeds is no failure of a check of all.
    let unbuilt = |check: &&Check| check.answers == UNBUILT && !(all && check.limit);
    for check in checks.iter().filter(unbuilt) {
        message(format_args!("{} (IPv{}): {}", check.algorithm, check.family, check.note));
        worst = Err(Failure::Reported(Exit::Failed));
    }
    for check in checks.iter().filter(|check| check.answers == WRONG) {
        message(format_args!("{} (IPv{}): {}", check.algorithm, check.family, check.note));
        worst = Err(Failure::Reported(Exit::Differences));
    }
    if checks.is_empty() && worst.is_ok() {
        worst = Err(Failure::new(Exit::Failed, "no routes to check"));
    }
    output.print(&Checks { seed: arguments.seed, checks })?;
    worst.and(tables.verdict())
}

/// The JSON of this command.
#[derive(Serialize)]
struct Checks {
    seed: u64,
    checks: Vec<Check>,
}

const OK: &str = "ok";
const WRONG: &str = "wrong";
const UNBUILT: &str = "unbuilt";

/// Result of one algorithm in one family.
#[derive(Serialize)]
struct Check {
    algorithm: &'static str,
    family: u8,
    routes: usize,
    /// Addresses compared with the oracle; of a wrong one those up to the first difference.
    addresses: u64,
    /// `ok`, `wrong`, or `unbuilt` with the reason in `note`.
    answers: &'static str,
    build_ms: u64,
    /// Time of a lookup, in ns an address, with the comparison.
    ns_per_address: f64,
    bytes: usize,
    note: String,
    #[serde(skip)]
    limit: bool,
}

/// Checks the named algorithms on the routes of one family, if there are any.
fn check<A: Family>(tables: &Tables, arguments: &Arguments, checks: &mut Vec<Check>) {
    let half = A::of(tables);
    let wanted = |row: &&Algorithm<A>| {
        arguments.algorithm.iter().any(|name| name == choice::ALL || name == row.name)
    };
    let rows: Vec<_> = A::rows().filter(wanted).collect();
    if half.routes.is_empty() || rows.is_empty() {
        return;
    }
    let (count, len, family) = (arguments.count, half.routes.len(), A::FAMILY);
    let mut progress = Progress::new();
    progress.stage(&format!("IPv{family}: the oracle answers {count} addresses on {len} routes"));
    let routes: Vec<_> = half.routes.iter().map(|(prefix, &hop)| (prefix, hop)).collect();
    let questions = Questions::new(&routes, arguments.count as usize, arguments.seed);
    for (done, row) in rows.iter().enumerate() {
        progress.step(&format!("IPv{family}: {}", row.name), done, rows.len());
        checks.push(check_row(row, half, &questions));
    }
}

fn check_row<A: Family>(row: &Algorithm<A>, half: &Half<A>, questions: &Questions<A>) -> Check {
    let mut check = Check {
        algorithm: row.name,
        family: A::FAMILY,
        routes: half.routes.len(),
        addresses: 0,
        answers: UNBUILT,
        build_ms: 0,
        ns_per_address: 0.0,
        bytes: 0,
        note: String::new(),
        limit: false,
    };
    let built = match Built::new(row, half) {
        Ok(built) => built,
        Err(error) => {
            check.limit = matches!(error, UpdateError::Limit { .. });
            check.note = error.to_string();
            return check;
        }
    };
    check.build_ms = u64::try_from(built.took.as_millis()).unwrap_or(u64::MAX);
    check.bytes = built.lookup.bytes();
    let start = Instant::now();
    match questions.ask_lookup(&*built.lookup) {
        Ok(asked) => {
            check.answers = OK;
            check.addresses = asked;
            check.ns_per_address = start.elapsed().as_secs_f64() * 1e9 / asked.max(1) as f64;
        }
        Err(mismatch) => {
            check.answers = WRONG;
            check.note = difference(&mismatch, half);
        }
    }
    check
}

/// A difference with next hops as the file names them.
fn difference<A: Family>(mismatch: &Mismatch<A>, half: &Half<A>) -> String {
    let Mismatch::Answer { addr, got, want, batch } = mismatch else {
        return mismatch.to_string();
    };
    let name = |hop: NextHopId| match hop.index().checked_sub(1) {
        None => "no route".to_owned(),
        Some(at) => half.hops.get(at).map_or(format!("index {at}"), ToString::to_string),
    };
    let how = if *batch { "in a batch" } else { "alone" };
    let right =
        want.map_or("no route".into(), |(prefix, hop)| format!("{} by {prefix}", name(hop)));
    format!("{} gives {} {how}, the oracle {right}", addr.to_ip(), name(*got))
}

const COLUMNS: &[Column<Check>] = &[
    ("FAMILY", |check| check.family.to_string()),
    ("ALGORITHM", |check| check.algorithm.to_owned()),
    ("ROUTES", |check| check.routes.to_string()),
    ("ADDRESSES", |check| check.addresses.to_string()),
    ("ANSWERS", |check| check.answers.to_owned()),
    ("BUILD ms", |check| check.build_ms.to_string()),
    ("ns/ADDRESS", |check| format!("{:.1}", check.ns_per_address)),
    ("BYTES", |check| check.bytes.to_string()),
    ("NOTE", |check| check.note.clone()),
];

impl Report for Checks {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        Columns::of(COLUMNS, &self.checks).write(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use fingerpost_lpm::{Change, Grace, Lookup, Memory, Region, Routes, Step, testing};

    /// Right but for one address.
    struct Almost(Arc<dyn Lookup<u32>>);

    const WRONG_AT: u32 = 0x0a01_0000;

    impl Lookup<u32> for Almost {
        fn lookup(&self, addr: u32) -> NextHopId {
            if addr == WRONG_AT { NextHopId(1) } else { self.0.lookup(addr) }
        }
        fn lookup_batch(&self, addrs: &[u32], out: &mut [NextHopId]) {
            for (&addr, hop) in addrs.iter().zip(out) {
                *hop = self.lookup(addr);
            }
        }
        fn explain(&self, addr: u32, _: &mut dyn FnMut(&Step)) -> NextHopId {
            self.lookup(addr)
        }
        fn stats(&self, _: &mut dyn FnMut(&'static str, u64)) {}
        fn regions(&self) -> &[Region] {
            &[]
        }
    }

    impl fingerpost_lpm::Table<u32> for Almost {
        fn apply(
            &mut self,
            _: &[Change<u32>],
            _: &dyn Routes<u32>,
            _: &mut dyn Grace,
        ) -> Result<(), UpdateError> {
            Err(UpdateError::Rebuild)
        }
        fn publish(&mut self) -> Arc<dyn Lookup<u32>> {
            Arc::new(Self(self.0.clone()))
        }
    }

    fn almost(
        routes: &dyn Routes<u32>,
        memory: &mut dyn Memory,
    ) -> Result<Box<dyn fingerpost_lpm::Table<u32>>, UpdateError> {
        let row = fingerpost_lpm::find_v4("bsearch").expect("the registry has it");
        Ok(Box::new(Almost(row.build(routes, memory)?.publish())))
    }

    #[test]
    fn a_wrong_answer_is_found_and_a_right_one_is_not() {
        let mut tables = Tables::default();
        for (prefix, number) in [("10.0.0.0/8", 7), ("10.1.0.0/16", 9)] {
            tables.v4.insert(
                prefix.parse().unwrap(),
                fingerpost_route::source::table::FileHop::Number(number),
            );
        }
        let routes: Vec<_> = tables.v4.routes.iter().map(|(prefix, &hop)| (prefix, hop)).collect();
        let questions = testing::Questions::new(&routes, 1000, 1);
        let row = fingerpost_lpm::find_v4("bsearch").unwrap();
        let good = check_row(row, &tables.v4, &questions);
        assert_eq!((good.answers, good.addresses, good.note.as_str()), (OK, 1000, ""));

        let bad = Algorithm { name: "almost", make: almost, ..*row };
        let found = check_row(&bad, &tables.v4, &questions);
        let words = "10.1.0.0 gives 7 in a batch, the oracle 9 by 10.1.0.0/16";
        assert_eq!((found.answers, found.note.as_str()), (WRONG, words));

        let mut limits = row.limits;
        limits.prefix_len = 8;
        let small = Algorithm { limits, ..*row };
        let found = check_row(&small, &tables.v4, &questions);
        assert_eq!((found.answers, found.limit), (UNBUILT, true));
        assert!(found.note.contains("limit exceeded"), "{}", found.note);
    }
}
