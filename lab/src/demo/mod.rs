//! The demo: a full table, traffic at full rate, and an oracle that checks what arrives.
//!
//! As root it starts `fingerpost run` in a lab of network namespaces; without root it runs the same graph and tables
//! between ports of memory. [`cluster`] is the demo of four nodes that act as one router.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::machine::cpu_name;
use crate::scratch::Scratch;

pub mod cluster;
mod lab;
mod memory;
mod namespaces;
mod traffic;

/// The tables that the repository ships, so that the demo needs no file.
const TABLES: [(&str, &[u8]); 2] = [
    ("v4.txt.xz", include_bytes!("../../../testdata/tables/v4-tier1-nh496.txt.xz")),
    ("v6.txt.xz", include_bytes!("../../../testdata/tables/v6-tier1-nh496.txt.xz")),
];

/// Results of the demo. Field names are a contract with scripts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DemoReport {
    /// `namespaces` or `memory`.
    pub mode: &'static str,
    /// IPv4 routes of the router.
    pub routes_v4: usize,
    /// IPv6 routes of the router.
    pub routes_v6: usize,
    /// Next hops that packets arrived for.
    pub next_hops_used: usize,
    /// Time to load the tables.
    pub load_ms: f64,
    /// Lookup algorithm for IPv4.
    pub algorithm_v4: String,
    /// Lookup algorithm for IPv6.
    pub algorithm_v6: String,
    /// Memory of the IPv4 table for each prefix.
    pub bytes_per_prefix_v4: f64,
    /// Memory of the IPv6 table for each prefix.
    pub bytes_per_prefix_v6: f64,
    /// Packets sent by the generator.
    pub offered: u64,
    /// Packets taken for forwarding.
    pub packets_in: u64,
    /// Packets forwarded.
    pub packets_out: u64,
    /// Packets of `packets_out` that the XDP datapath forwarded.
    pub forwarded_xdp: u64,
    /// Dropped packets by drop reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets in the router at the end.
    pub held: u64,
    /// Packets made by the router itself.
    pub originated: u64,
    /// Packets passed to the host stack.
    pub punted: u64,
    /// Packets counted at the destination.
    pub arrived: u64,
    /// Packets of `arrived` that were checked in full.
    pub verified: u64,
    /// Packets of `verified` that differ from what the oracle expects.
    pub wrong: u64,
    /// Differences of the first of them.
    pub wrong_samples: Vec<String>,
    /// Packets out a second, in millions.
    pub mpps: f64,
    /// Time in the graph for each packet, without the kernel's receive and send.
    pub ns_per_packet: f64,
    /// Duration of the traffic.
    pub seconds: f64,
    /// Name of the processor.
    pub cpu: String,
    /// Interfaces of the router, with the datapath and driver of each.
    pub interfaces: Vec<String>,
}

impl DemoReport {
    /// Faults of the run: counts that do not add up, packets that were wrong. Empty when all is well.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let dropped: u64 = self.dropped.values().sum();
        let (a, b) = (self.packets_in, self.packets_out + dropped + self.held);
        if a != b {
            faults.push(format!("{a} packets in, but {b} out, dropped and held"));
        }
        if self.wrong > 0 {
            let samples = self.wrong_samples.join("; ");
            faults.push(format!("{} packets were wrong: {samples}", self.wrong));
        }
        if self.verified < 10_000 || self.verified < self.arrived / 64 {
            faults.push(format!("only {} of {} packets were checked", self.verified, self.arrived));
        }
        if self.arrived > self.packets_out {
            faults.push(format!("{} arrived, {} were sent", self.arrived, self.packets_out));
        }
        if self.held > 0 {
            faults.push(format!("{} packets are held", self.held));
        }
        if self.next_hops_used < 16 {
            faults.push(format!("traffic used only {} next hops", self.next_hops_used));
        }
        faults
    }
}

/// Runs the demo for about that long, and reports its progress a line at a time.
///
/// # Errors
/// When there is no program `fingerpost` beside this one, or a part of the lab fails.
pub fn run(time: Duration, progress: &(dyn Fn(String) + Sync)) -> Result<DemoReport> {
    progress("reading the shipped tables".into());
    let files = Files::write()?;
    let oracle = traffic::Oracle::read(&files.paths)?;
    let mut report = match lab::Demo::new() {
        Ok(lab) => namespaces::run(&lab, &files, &oracle, time, progress)?,
        Err(missing) => {
            progress(format!("{missing:#}: the same graph between ports of memory"));
            memory::run(&oracle, time, progress)?
        }
    };
    report.cpu = cpu_name();
    Ok(report)
}

/// The tables as files, until this is dropped.
struct Files {
    paths: Vec<PathBuf>,
    _folder: Scratch,
}

impl Files {
    fn write() -> Result<Self> {
        let folder = Scratch::new("demo")?;
        let paths: Vec<PathBuf> = TABLES.iter().map(|(name, _)| folder.file(name)).collect();
        for (path, (_, bytes)) in paths.iter().zip(TABLES) {
            let place = || format!("the shipped tables: {}", path.display());
            std::fs::write(path, bytes).with_context(place)?;
        }
        Ok(Self { paths, _folder: folder })
    }
}

/// Millions a second.
#[allow(clippy::cast_precision_loss, reason = "a rate for people")]
fn mega(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds / 1e6 } else { 0.0 }
}

/// Mean of a sum over `count`.
#[allow(clippy::cast_precision_loss, reason = "a mean for people")]
fn each(sum: u64, count: u64) -> f64 {
    if count > 0 { sum as f64 / count as f64 } else { 0.0 }
}
