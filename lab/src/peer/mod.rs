//! The baselines that we compare with, as rows, and how one is found.
//!
//! Each is a program of its own in its own language under `lab/peers/`, which `cargo xtask peers`
//! builds into `target/peers`; nothing of them is linked here. A [`Peer`] is one of them at work, fed
//! over its pipes as in `lab/peers/README.md`. Only one works at a time, and only on request, so
//! turns of peers and of our own algorithms can alternate within one run.

mod process;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::named::named;

pub use process::{
    Chosen, Forwarded, Functions, HEAD_BYTES, Info, LOAD_LIMIT, Leave, Peer, Turn, Updates,
};

/// A program under `lab/peers/`, by the folder that it has there and in `target/peers`.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// The folder; also what `cargo xtask peers` takes.
    pub name: &'static str,
    /// Command line, its words relative to the folder where they name files in it.
    command: &'static [&'static str],
    /// Environment variables that it is started with, which make allocators use huge pages.
    env: &'static [(&'static str, &'static str)],
}

/// Variable that makes `malloc` of the C library use huge pages. Its alternative, reserved pages, needs a privilege.
const HUGE_MALLOC: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

static DPDK: Program = Program { name: "dpdk", command: &["peer"], env: &[] };
static BART: Program = Program { name: "bart", command: &["peer"], env: &[("GOMAXPROCS", "1")] };
static CRATES: Program = Program { name: "crates", command: &["peer"], env: &[HUGE_MALLOC] };
static PYTHON: Program =
    Program { name: "python", command: &["venv/bin/python", "peer.py"], env: &[HUGE_MALLOC] };

/// Registry row, plain data: a baseline of a program, for one family.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// What options and documents call it.
    pub name: &'static str,
    /// 4 or 6.
    pub family: u8,
    /// Who runs it.
    pub program: &'static Program,
    /// What the program calls it.
    pub engine: &'static str,
}

const fn row(
    name: &'static str,
    family: u8,
    program: &'static Program,
    engine: &'static str,
) -> Row {
    Row { name, family, program, engine }
}

/// What each is stands in `lab/peers/README.md`.
static ROWS: &[Row] = &[
    row("rte_lpm", 4, &DPDK, "rte_lpm"),
    row("rte_fib", 4, &DPDK, "rte_fib_2b"),
    row("rte_fib_4b", 4, &DPDK, "rte_fib_4b"),
    row("rte_lpm6", 6, &DPDK, "rte_lpm6"),
    row("rte_fib6", 6, &DPDK, "rte_fib6"),
    row("bart", 4, &BART, "table"),
    row("bart_fast", 4, &BART, "fast"),
    row("bart", 6, &BART, "table"),
    row("bart_fast", 6, &BART, "fast"),
    row("prefix-trie", 4, &CRATES, "prefix-trie"),
    row("ip_network_table", 4, &CRATES, "treebitmap"),
    row("iptrie", 4, &CRATES, "iptrie"),
    row("poptrie-rs", 4, &CRATES, "poptrie"),
    row("prefix-trie", 6, &CRATES, "prefix-trie"),
    row("ip_network_table", 6, &CRATES, "treebitmap"),
    row("iptrie", 6, &CRATES, "iptrie"),
    row("poptrie-rs", 6, &CRATES, "poptrie"),
    row("pytricia", 4, &PYTHON, "pytricia"),
    row("py-radix", 4, &PYTHON, "py-radix"),
    row("pytricia", 6, &PYTHON, "pytricia"),
    row("py-radix", 6, &PYTHON, "py-radix"),
];

/// Routers in one loop, for `bench forward`. rte_lpm's table is filled at once, since its own method takes
/// minutes: the same table and the same lookups.
static LOOPS: &[Row] = &[
    row("dpdk-loop", 4, &DPDK, "rte_lpm_filled"),
    row("dpdk-loop-add", 4, &DPDK, "rte_lpm"),
    row("dpdk-loop-fib", 4, &DPDK, "rte_fib_2b"),
];

/// All peers, each family a row of its own.
pub fn rows() -> &'static [Row] {
    ROWS
}

/// Peers by name, as `--peers` takes them: `all`, `none`, or names with commas, of one family.
///
/// # Errors
/// When a name is none of any family; the message lists those that are.
pub fn find(names: &str, family: u8) -> Result<Vec<&'static Row>> {
    Ok(rows_of(ROWS, names)?.into_iter().filter(|row| row.family == family).collect())
}

/// Routers by name, as `bench forward` takes them: `all`, `none`, or names with commas. `dpdk` stands for
/// those of DPDK that load a full table in time.
///
/// # Errors
/// When a name is none; the message lists those that are.
pub fn find_loops(names: &str) -> Result<Vec<&'static Row>> {
    rows_of(LOOPS, if matches!(names, "dpdk" | "all") { "dpdk-loop,dpdk-loop-fib" } else { names })
}

fn rows_of(rows: &'static [Row], names: &str) -> Result<Vec<&'static Row>> {
    if names == "none" { Ok(Vec::new()) } else { named("peer", rows, |row| row.name, names) }
}

/// Where the built programs are: `FINGERPOST_PEERS`, else `target/peers` of the checkout; `None` without either.
pub fn folder() -> Option<PathBuf> {
    folder_of(std::env::var_os("FINGERPOST_PEERS").map(PathBuf::from), crate::machine::checkout)
}

fn folder_of(set: Option<PathBuf>, checkout: impl FnOnce() -> Option<PathBuf>) -> Option<PathBuf> {
    set.or_else(|| Some(checkout()?.join("target/peers")))
}

/// Builds what `programs` name, and takes long; what cannot be had stays unbuilt, and starting a
/// baseline of it then fails with that reason.
///
/// # Errors
/// When there is no source tree, or `cargo` cannot be started.
pub fn build(programs: &[&str]) -> Result<()> {
    let root = crate::machine::checkout();
    let root = root.context("no checkout of Fingerpost has this program, or the current folder")?;
    let status = Command::new("cargo")
        .args(["xtask", "peers"])
        .args(programs)
        .current_dir(root)
        // Standard output belongs to the document.
        .stdout(std::io::stderr())
        .status()
        .context("cannot start cargo xtask peers")?;
    if !status.success() {
        bail!("cargo xtask peers: {status}");
    }
    Ok(())
}

impl Row {
    /// Whether its program has been built.
    pub fn is_built(&self) -> bool {
        self.command().is_some()
    }

    /// The command that starts it, without its arguments; `None` where it has not been built.
    fn command(&self) -> Option<Command> {
        let folder = folder()?.join(self.program.name);
        let words: Vec<_> = self.program.command.iter().map(|word| folder.join(word)).collect();
        let (program, rest) = words.split_first().expect("every program has a command");
        if !words.iter().all(|word| word.exists()) {
            return None;
        }
        let mut command = Command::new(program);
        command.args(rest).envs(self.program.env.iter().copied());
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_a_row_a_family_and_a_name() {
        for (at, row) in ROWS.iter().enumerate() {
            assert!(matches!(row.family, 4 | 6), "{}", row.name);
            assert!(!row.name.contains([',', ' ']) && !matches!(row.name, "all" | "none"));
            let twin = ROWS[at + 1..].iter().find(|r| (r.name, r.family) == (row.name, row.family));
            assert_eq!(twin, None);
        }
    }

    #[test]
    fn without_a_checkout_no_peer_is_taken_from_the_current_folder() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(folder_of(None, || None), None);
        assert_eq!(folder_of(path("/peers"), || None), path("/peers"));
        assert_eq!(folder_of(None, || path("/src")), path("/src/target/peers"));
    }

    #[test]
    fn options_name_peers() {
        let names = |option, family| {
            find(option, family).unwrap().iter().map(|row| row.name).collect::<Vec<_>>()
        };
        assert_eq!(names("bart,rte_fib,rte_fib6", 4), ["rte_fib", "bart"]);
        assert_eq!(names("rte_fib", 6), [""; 0]);
        assert_eq!(names("none", 4), [""; 0]);
        assert_eq!(names("all", 4).len() + names("all", 6).len(), ROWS.len());
        let error = find("rte_fib,nobody", 4).unwrap_err().to_string();
        assert!(error.contains("no peer nobody") && error.contains("py-radix"), "{error}");
    }
}
