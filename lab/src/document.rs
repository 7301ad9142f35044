//! The bench document: what every `bench` command prints with `--json`. Its fields are a contract.

use serde::{Deserialize, Serialize};

/// All runs of one command, with what they ran on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchDocument {
    /// What it ran on.
    pub machine: Machine,
    /// The (first) table.
    pub table: TableInfo,
    /// All tables, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableInfo>,
    /// The measurements.
    pub runs: Vec<Run>,
}

/// What the runs ran on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor.
    pub cpu: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Second-level cache of a core.
    pub l2_kib: u64,
    /// Last-level cache.
    pub l3_kib: u64,
    /// Widest vectors: `avx512`, `avx2`, `sse2`, `neon`, or empty.
    pub simd: String,
    /// How huge pages can be had: `thp`, `none` or `hugetlb`.
    pub huge_pages: String,
    /// Frequency governor, where the system has one.
    pub governor: String,
    /// Commit of the source; `unknown` outside a checkout.
    pub commit: String,
    /// Compiler.
    pub rustc: String,
}

/// A route table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableInfo {
    /// Where it came from.
    pub file: String,
    /// How many routes it has.
    pub routes: usize,
    /// How many distinct next hops.
    pub nexthops: usize,
    /// 4 or 6.
    pub family: u8,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was measured.
    pub name: String,
    /// Algorithm or program, where the name does not contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// Whose.
    pub kind: Kind,
    /// Which addresses.
    pub stream: String,
    /// How it was called.
    pub mode: Mode,
    /// Threads that worked at it.
    pub threads: usize,
    /// 4 or 6, where it makes a difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<u8>,
    /// Unit of the numbers below.
    pub unit: Unit,
    /// Median of the samples; absent when it could not be measured: see the note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// 99.9th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999: Option<f64>,
    /// Least sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Greatest sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// All samples, in order of time; of single updates every n-th by length.
    pub samples: Vec<f64>,
    /// Bytes of what was measured, where that has a size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The same, per prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_prefix: Option<f64>,
    /// Distinct cache lines that a lookup reads, in the mean, as its `explain` reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<f64>,
    /// The median as a part of the machine's own for two dependent loads a key from a table of as many
    /// bytes, measured in the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_two_loads: Option<f64>,
    /// The part of `bytes` that lies in huge pages, where the system reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_share: Option<f64>,
    /// Efficiency of several threads: their rate together as a part of what each reaches alone, on the same core and
    /// in the same turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<f64>,
    /// Efficiency of one plain load a key from a table of as many bytes: what the machine itself loses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_efficiency: Option<f64>,
    /// Distinct addresses that packets went to, where runs of one stream differ in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destinations: Option<usize>,
    /// Updates that were refused, of a peer; they count as done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
    /// Millions of packets a second that were offered, where the median is what arrived of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<f64>,
    /// Packets that were sent, in all samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Packets of these that did not arrive, sample by sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<u64>,
    /// Packets that arrived behind a later one of the same sender by the same output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordered: Option<u64>,
    /// Whether what came out was right.
    pub answers: Answers,
    /// How many answers were wrong.
    pub wrong: u64,
    /// What the reader must know.
    pub note: String,
}

/// Whose code was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Our own design.
    Ours,
    /// Our form of a published scheme.
    Published,
    /// Another program.
    Peer,
    /// What cannot be beaten: the harness alone.
    Ceiling,
}

/// How it was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Many at once.
    Batch,
    /// One by one, independent.
    Single,
    /// Each waits for the one before.
    Dependent,
}

/// Unit of a run's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Millions of lookups a second.
    #[serde(rename = "Mlookups/s")]
    MlookupsPerSecond,
    /// Nanoseconds a packet.
    #[serde(rename = "ns/packet")]
    NsPerPacket,
    /// Millions of packets a second.
    Mpps,
    /// Microseconds.
    #[serde(rename = "us")]
    Us,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Ms,
    /// Updates a second.
    #[serde(rename = "updates/s")]
    UpdatesPerSecond,
    /// Bytes.
    #[serde(rename = "bytes")]
    Bytes,
    /// A part of a whole, 0 to 1.
    #[serde(rename = "share")]
    Share,
    /// Cycles of the processor's time-stamp counter, which runs at one rate whatever the core's is.
    #[serde(rename = "cycles")]
    Cycles,
}

impl Unit {
    /// Name in the document.
    pub fn name(self) -> &'static str {
        match self {
            Self::MlookupsPerSecond => "Mlookups/s",
            Self::NsPerPacket => "ns/packet",
            Self::Mpps => "Mpps",
            Self::Us => "us",
            Self::Ms => "ms",
            Self::UpdatesPerSecond => "updates/s",
            Self::Bytes => "bytes",
            Self::Share => "share",
            Self::Cycles => "cycles",
        }
    }
}

/// Whether what came out of a run was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answers {
    /// All that were checked.
    Ok,
    /// Some were not.
    Wrong,
    /// Nobody looked.
    Unchecked,
}

impl Mode {
    /// Name in the document.
    pub fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Single => "single",
            Self::Dependent => "dependent",
        }
    }
}

impl Run {
    /// A run of our own in batches on one thread, without samples yet.
    pub fn new(name: &str, kind: Kind, stream: &str, unit: Unit) -> Self {
        Self {
            name: name.to_owned(),
            algorithm: None,
            kind,
            stream: stream.to_owned(),
            mode: Mode::Batch,
            threads: 1,
            family: None,
            unit,
            median: None,
            p99: None,
            p999: None,
            min: None,
            max: None,
            samples: Vec::new(),
            bytes: None,
            bytes_per_prefix: None,
            lines: None,
            share_two_loads: None,
            huge_share: None,
            efficiency: None,
            machine_efficiency: None,
            destinations: None,
            refused: None,
            offered: None,
            sent: None,
            losses: Vec::new(),
            reordered: None,
            answers: Answers::Unchecked,
            wrong: 0,
            note: String::new(),
        }
    }

    /// Takes the samples and works out what follows from them. Percentiles are those of the samples,
    /// so they mean something only where there are enough.
    pub fn set_samples(&mut self, samples: Vec<f64>) {
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        self.samples = samples;
        self.median = percentile(&sorted, 0.5);
        self.min = sorted.first().copied();
        self.max = sorted.last().copied();
        if sorted.len() >= 100 {
            self.p99 = percentile(&sorted, 0.99);
        }
        if sorted.len() >= 1000 {
            self.p999 = percentile(&sorted, 0.999);
        }
    }

    /// Median of the samples as shares of those that another run had in the same turns; `None` without samples.
    pub fn share_of(&self, other: &Self) -> Option<f64> {
        let pairs = self.samples.iter().zip(&other.samples).filter(|pair| *pair.1 > 0.0);
        let mut shares: Vec<f64> = pairs.map(|(own, other)| own / other).collect();
        shares.sort_by(f64::total_cmp);
        percentile(&shares, 0.5)
    }

    /// Notes how many answers were checked and how many of them were wrong.
    pub fn set_answers(&mut self, checked: u64, wrong: u64) {
        self.wrong = wrong;
        self.answers = match (checked, wrong) {
            (0, _) => Answers::Unchecked,
            (_, 0) => Answers::Ok,
            _ => Answers::Wrong,
        };
    }
}

/// The value below which a part of the sorted samples lies; the mean of the two around it.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an index of a short list"
)]
pub(crate) fn percentile(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = part * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(f64::midpoint(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_the_fields_of_the_contract() {
        let mut run = Run::new("graph-v4", Kind::Ours, "uniform", Unit::NsPerPacket);
        run.set_samples(vec![3.0, 1.0, 2.0, 10.0]);
        run.set_answers(65_536, 0);
        let value = serde_json::to_value(&run).unwrap();
        assert_eq!(value["unit"], "ns/packet");
        assert_eq!((&value["kind"], &value["mode"]), (&"ours".into(), &"batch".into()));
        assert_eq!((&value["median"], &value["min"]), (&2.5.into(), &1.0.into()));
        assert_eq!((&value["answers"], &value["wrong"]), (&"ok".into(), &0.into()));
        for field in ["name", "stream", "threads", "max", "samples", "note"] {
            assert!(value.get(field).is_some(), "{field}");
        }
        assert!(value.get("p99").is_none(), "four samples have no 99th percentile");
        let back: Run = serde_json::from_value(value).unwrap();
        assert_eq!(back, run);
        for unit in
            [Unit::MlookupsPerSecond, Unit::NsPerPacket, Unit::Us, Unit::Share, Unit::Cycles]
        {
            assert_eq!(serde_json::to_value(unit).unwrap(), unit.name());
        }
    }

    #[test]
    fn wrong_answers_stay_marked() {
        let mut run = Run::new("x", Kind::Ours, "prefix", Unit::Mpps);
        run.set_answers(10, 1);
        assert_eq!((run.answers, run.wrong, run.median), (Answers::Wrong, 1, None));
    }
}
