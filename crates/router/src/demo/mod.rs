//! The demo: a full table, traffic at full rate, and an oracle that checks what arrives.
//!
//! As root it runs the router of `fingerpost run` in a lab of three network namespaces; without root
//! the same graph and tables between ports of memory.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

mod lab;
mod memory;
mod namespaces;
mod traffic;

/// The tables that the repository ships, so that the demo needs no file.
const TABLES: [(&str, &[u8]); 2] = [
    ("v4.txt.xz", include_bytes!("../../../../testdata/tables/v4-tier1-nh496.txt.xz")),
    ("v6.txt.xz", include_bytes!("../../../../testdata/tables/v6-tier1-nh496.txt.xz")),
];

/// What the demo found. Field names are a contract (`cli.md`).
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct DemoReport {
    /// `namespaces` or `memory`.
    pub(crate) mode: &'static str,
    pub(crate) routes_v4: usize,
    pub(crate) routes_v6: usize,
    pub(crate) next_hops_used: usize,
    pub(crate) load_ms: f64,
    pub(crate) algorithm_v4: &'static str,
    pub(crate) algorithm_v6: &'static str,
    pub(crate) bytes_per_prefix_v4: f64,
    pub(crate) bytes_per_prefix_v6: f64,
    /// Sent by the generator.
    pub(crate) offered: u64,
    pub(crate) packets_in: u64,
    pub(crate) packets_out: u64,
    /// Of these, forwarded in the driver.
    pub(crate) forwarded_in_drivers: u64,
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    pub(crate) held: u64,
    pub(crate) originated: u64,
    pub(crate) punted: u64,
    /// Counted at the destination.
    pub(crate) arrived: u64,
    /// Of these, checked in full.
    pub(crate) verified: u64,
    /// Of these, not as the oracle says.
    pub(crate) wrong: u64,
    /// What was wrong with the first of them.
    pub(crate) wrong_samples: Vec<String>,
    /// Packets out a second, in millions.
    pub(crate) mpps: f64,
    /// In the graph, without what the kernel takes to receive and send.
    pub(crate) ns_per_packet: f64,
    pub(crate) seconds: f64,
    pub(crate) cpu: String,
    pub(crate) interfaces: Vec<String>,
}

impl DemoReport {
    /// What does not add up, in words; empty when all is well.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let dropped: u64 = self.dropped.values().sum();
        let (a, b) = (self.packets_in, self.packets_out + dropped + self.held);
        if a != b {
            faults.push(format!("{a} packets in, but {b} out, dropped and held"));
        }
        if self.wrong > 0 {
            faults.push(format!(
                "{} packets were wrong: {}",
                self.wrong,
                self.wrong_samples.join("; ")
            ));
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

/// Why the demo could not be given.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("the lab: {0}")]
    Lab(io::Error),
    #[error("the shipped tables: {0}")]
    Tables(String),
    #[error("the router: {0}")]
    Router(#[from] crate::daemon::DaemonError),
    #[error("the generator: {0}")]
    Generator(#[from] fingerpost_packet::xdp::XdpError),
    #[error("the sink: {0}")]
    Sink(#[from] fingerpost_packet::DeviceError),
    #[error("{0} failed")]
    Thread(&'static str),
}

/// Gives the demo for about that long, telling its progress a line at a time.
pub(crate) fn run(
    time: Duration,
    progress: &(dyn Fn(String) + Sync),
) -> Result<DemoReport, DemoError> {
    progress("reading the shipped tables".into());
    let files = Files::write()?;
    let oracle = traffic::Oracle::read(&files.paths)?;
    let mut report = if crate::privilege::to_make_namespaces() {
        namespaces::run(&files, &oracle, time, progress)?
    } else {
        progress("without the capabilities for namespaces and forwarding: the same graph between ports of memory".into());
        memory::run(&oracle, time, progress)?
    };
    report.cpu = cpu();
    Ok(report)
}

/// The tables as files, for as long as this lives.
struct Files {
    folder: PathBuf,
    paths: Vec<PathBuf>,
}

impl Files {
    fn write() -> Result<Self, DemoError> {
        let folder = std::env::temp_dir().join(format!("fingerpost-demo-{}", std::process::id()));
        let fail = |error: io::Error| DemoError::Tables(format!("{}: {error}", folder.display()));
        std::fs::create_dir_all(&folder).map_err(fail)?;
        let paths: Vec<PathBuf> = TABLES.iter().map(|(name, _)| folder.join(name)).collect();
        for (path, (_, bytes)) in paths.iter().zip(TABLES) {
            std::fs::write(path, bytes).map_err(fail)?;
        }
        Ok(Self { folder, paths })
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What stays behind is in the folder for what may stay behind.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Absolute figures mean nothing without it.
fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, name)| name.trim()).into()
}

/// Millions a second.
#[allow(clippy::cast_precision_loss, reason = "a rate for people")]
fn mega(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds / 1e6 } else { 0.0 }
}

/// Nanoseconds each.
#[allow(clippy::cast_precision_loss, reason = "a mean for people")]
fn each(nanoseconds: u64, count: u64) -> f64 {
    if count > 0 { nanoseconds as f64 / count as f64 } else { 0.0 }
}
