//! The record of a benchmark, as `--json` prints it and as recorded results are kept.
//!
//! Its fields are a promise: scripts read them. Raw samples stay in it, so that a reader can make other
//! statistics than ours.

use serde::Serialize;

use crate::machine::Machine;

/// Everything that was measured in one go.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    /// Where.
    pub machine: Machine,
    /// On which table; the first of two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableInfo>,
    /// All of them, where there are two.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableInfo>,
    /// What was measured.
    pub runs: Vec<Run>,
}

impl Document {
    /// Of this machine and these tables, without runs yet.
    pub fn new(tables: Vec<TableInfo>) -> Self {
        let table = tables.first().cloned();
        let tables = if tables.len() > 1 { tables } else { Vec::new() };
        Self { machine: Machine::here(), table, tables, runs: Vec::new() }
    }
}

/// A table that was measured on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableInfo {
    /// Where it is from.
    pub file: String,
    /// Prefixes in it.
    pub routes: usize,
    /// Distinct next hops.
    pub nexthops: usize,
    /// 4 or 6.
    pub family: u8,
}

/// What a run measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Our own design, or the router itself.
    Ours,
    /// A faithful form of a published scheme.
    Published,
    /// A program of somebody else.
    Peer,
    /// What nothing could exceed.
    Ceiling,
}

/// How addresses are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Many at once.
    Batch,
    /// One by one.
    Single,
    /// One by one, each waiting for the answer before.
    Dependent,
}

/// Of every figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Millions of lookups a second.
    #[serde(rename = "Mlookups/s")]
    MegaLookups,
    /// Nanoseconds a packet.
    #[serde(rename = "ns/packet")]
    NsPerPacket,
    /// Millions of packets a second.
    #[serde(rename = "Mpps")]
    MegaPackets,
    /// Microseconds.
    #[serde(rename = "us")]
    Micros,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millis,
    /// Updates a second.
    #[serde(rename = "updates/s")]
    Updates,
    /// Bytes.
    #[serde(rename = "bytes")]
    Bytes,
    /// From 0 to 1.
    #[serde(rename = "share")]
    Share,
}

impl Unit {
    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::MegaLookups | Self::MegaPackets | Self::Updates | Self::Share)
    }
}

/// Whether the answers of a run were the right ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answers {
    /// All that were checked.
    Ok,
    /// Not all: the figures count for nothing.
    Wrong,
    /// Nobody looked.
    #[default]
    Unchecked,
}

/// One thing measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// An algorithm, or what the path is called.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// 4 or 6.
    pub family: u8,
    /// Which addresses.
    pub stream: String,
    /// How they were asked.
    pub mode: Mode,
    /// How many at the same time.
    pub threads: usize,
    /// Of the figures below.
    pub unit: Unit,
    /// `None` for a run that could not be had; `note` says why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// 99 of 100 samples are at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// 999 of 1,000 samples are at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999: Option<f64>,
    /// The least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The greatest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// As they were taken, in order.
    pub samples: Vec<f64>,
    /// Of the structure, where there is one.
    pub bytes: usize,
    /// The same for each prefix.
    pub bytes_per_prefix: f64,
    /// Whether what it computed is right.
    pub answers: Answers,
    /// Wrong ones among those checked.
    pub wrong: u64,
    /// Anything to know beside the figures.
    pub note: String,
}

impl Run {
    /// A run of our own, in batches and one thread, without figures yet.
    pub fn new(name: impl Into<String>, family: u8, stream: impl Into<String>, unit: Unit) -> Self {
        Self {
            name: name.into(),
            kind: Kind::Ours,
            family,
            stream: stream.into(),
            mode: Mode::Batch,
            threads: 1,
            unit,
            median: None,
            p99: None,
            p999: None,
            min: None,
            max: None,
            samples: Vec::new(),
            bytes: 0,
            bytes_per_prefix: 0.0,
            answers: Answers::Unchecked,
            wrong: 0,
            note: String::new(),
        }
    }

    /// With these samples, and the figures made of them.
    #[must_use]
    pub fn sampled(mut self, samples: Vec<f64>) -> Self {
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        self.median = median(&sorted);
        self.p99 = quantile(&sorted, 0.99);
        self.p999 = quantile(&sorted, 0.999);
        self.min = sorted.first().copied();
        self.max = sorted.last().copied();
        self.samples = samples;
        self
    }

    /// With the memory of the structure it measured.
    #[must_use]
    pub fn holding(mut self, bytes: usize, prefixes: usize) -> Self {
        self.bytes = bytes;
        self.bytes_per_prefix = bytes as f64 / prefixes.max(1) as f64;
        self
    }

    /// With the result of a check of its answers.
    #[must_use]
    pub fn checked(mut self, wrong: u64) -> Self {
        self.answers = if wrong == 0 { Answers::Ok } else { Answers::Wrong };
        self.wrong = wrong;
        self
    }
}

/// The middle, or between the two middle ones.
fn median(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        _ if sorted.is_empty() => None,
        0 => Some((sorted[half - 1] + sorted[half]) / 2.0),
        _ => Some(sorted[half]),
    }
}

/// The least sample that at least `share` of them do not exceed.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank: at least 0 and at most the number of samples"
    )]
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_made_of_the_samples() {
        let run = Run::new("x", 4, "uniform", Unit::NsPerPacket);
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let many = run.clone().sampled(samples.clone());
        assert_eq!((many.median, many.p99, many.p999), (Some(50.5), Some(99.0), Some(100.0)));
        assert_eq!((many.min, many.max, many.samples), (Some(1.0), Some(100.0), samples));
        let one = run.clone().sampled(vec![7.0]);
        assert_eq!(
            (one.median, one.p99, one.p999, one.min),
            (Some(7.0), Some(7.0), Some(7.0), Some(7.0))
        );
        let odd = run.clone().sampled(vec![3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.p99), (Some(2.0), Some(3.0)));
        let none = run.sampled(Vec::new());
        assert_eq!((none.median, none.p99, none.max), (None, None, None));
    }

    #[test]
    fn json_is_the_promised_one() {
        let table = |family| TableInfo { file: "t".into(), routes: 2, nexthops: 1, family };
        let mut document = Document::new(vec![table(4)]);
        document.runs.push(
            Run::new("graph-v4", 4, "prefix", Unit::NsPerPacket)
                .sampled(vec![10.0, 12.0, 11.0])
                .holding(100, 2)
                .checked(0),
        );
        document
            .runs
            .push(Run { note: "no BPF".into(), ..Run::new("afxdp", 4, "", Unit::MegaPackets) });
        let json = serde_json::to_value(&document).unwrap();
        for field in ["cpu", "cores", "l2_kib", "l3_kib", "simd", "huge_pages", "commit", "rustc"] {
            assert!(!json["machine"][field].is_null(), "{field}");
        }
        assert_eq!(json["table"]["routes"], 2);
        assert!(json.get("tables").is_none());
        let run = &json["runs"][0];
        assert_eq!(
            (&run["kind"], &run["mode"], &run["unit"]),
            (&"ours".into(), &"batch".into(), &"ns/packet".into())
        );
        assert_eq!((&run["median"], &run["answers"]), (&11.0.into(), &"ok".into()));
        assert_eq!(run["bytes_per_prefix"], 50.0);
        assert!(json["runs"][1].get("median").is_none());
        assert_eq!(json["runs"][1]["note"], "no BPF");

        let both = serde_json::to_value(Document::new(vec![table(4), table(6)])).unwrap();
        assert_eq!(
            (&both["table"]["family"], &both["tables"][1]["family"]),
            (&4.into(), &6.into())
        );
        let wrong = Run::new("x", 6, "", Unit::Share).checked(3);
        assert_eq!((wrong.answers, wrong.wrong), (Answers::Wrong, 3));
        assert!(Unit::MegaPackets.more_is_better() && !Unit::Bytes.more_is_better());
    }
}
