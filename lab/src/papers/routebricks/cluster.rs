//! RouteBricks: several servers as one router, by traffic matrices, the order of flows, and failures.
//!
//! Source: the same paper, sections 3, 6.1 and 6.2, for rules, order, and the prediction from what one server measures; failures
//!         it did not measure. Ours are of the simulator, whose decisions are those of the data plane (`fingerpost_cluster::rule`):
//!         links of 2R/N, 95 % of R, queues of 200 packets; of the runs of `bench forward --cluster`; and of real nodes, which the
//!         demo of a cluster kills. `docs/internals/cluster.md` has what four real nodes measure besides.
//! Cost:   a real failure takes some ten seconds, most of them the start of four nodes and of the routing daemons.

use std::time::Duration;

use anyhow::Result;
use fingerpost_cluster::rule::Rule;
use fingerpost_cluster::sim::{
    Config, Failure, FlowletSettings, Lost, Matrix, Mix, Report, SLOT_NS, run,
};

use fingerpost_lpm::simd::Ticks;

use super::super::Paper;
use super::super::cycles::rate_ghz;
use super::super::page::{figure, table};
use crate::demo::cluster::{ClusterOptions, ClusterReport, DETECTION, run as demo};
use crate::document::Run;
use crate::forward::{ForwardOptions, Stream, forward};
use crate::table::{Table, Tables};

/// Heading of its first part.
pub(super) const HEADING: &str = "### RouteBricks: traffic matrices of a cluster";

/// Slots of a run of matrices and failures.
const SLOTS: u32 = 20_000;

/// Slots of a run of the order of flows: a tenth of a second.
const ORDER_SLOTS: u32 = 200_000;

/// Milliseconds that end a flowlet there.
const DELTA_MS: f64 = 100.0;

/// Runs of `bench forward` that are one node's part of a packet, in the order of its path, and the one that is all of it.
const PARTS: [&str; 3] = ["cluster-input", "cluster-transit", "cluster-output"];
const PATH: &str = "cluster-path";

/// Traffic around a real failure.
const AROUND: Duration = Duration::from_secs(4);

/// The part of the page about a cluster that depends on no table.
pub(super) fn section(paper: &mut Paper<'_>) {
    matrices(paper);
    order(paper);
    failures(paper);
    real_failures(paper);
}

/// What a packet costs all nodes of its path, predicted by what it costs each of them alone, and measured.
pub(super) fn prediction(paper: &mut Paper<'_>, name: &str, of: &Table<u32>) -> Result<()> {
    let options = ForwardOptions {
        tables: Tables { v4: Some(of.clone()), v6: None },
        streams: vec![Stream::Prefix],
        seconds: paper.options.seconds,
        samples: paper.options.samples,
        seed: paper.options.seed,
        elements: false,
        cluster: true,
        ..ForwardOptions::default()
    };
    let mut runs = forward(&options)?.runs;
    runs.retain(|run| PARTS.contains(&&*run.name) || run.name == PATH);
    paper.say(&format!(
        "### RouteBricks: prediction and measurement of a cluster ({name})\n\nThere: what a packet costs one server in each role \
         predicts 12.7 to 19.4 Gbps of 64-byte frames for four servers, and\n32.8 to 49.2 of real traffic; measured were 12 \
         and 35. Ours: what a packet costs input, transit and egress node alone, from\nmemory to memory, and what it costs on \
         its path over all three in one thread. The last column is the median over turns: a sum\nand a path of one turn have one \
         machine. Cycles are those of the counter."
    ));
    let medians: Vec<Option<f64>> = PARTS
        .iter()
        .chain([&PATH])
        .map(|name| runs.iter().find(|run| run.name == *name).and_then(|run| run.median))
        .collect();
    let sum = medians[..PARTS.len()].iter().copied().sum::<Option<f64>>();
    let (by_turn, ghz) = (path_by_turn(&runs), Ticks::detect().map(rate_ghz));
    let row = |unit: &str, of_ns: Option<f64>, digits: usize| {
        let scaled = |ns: Option<f64>| figure(ns.zip(of_ns).map(|(ns, by)| ns * by), digits);
        let mut row = vec![unit.to_owned()];
        row.extend(medians[..PARTS.len()].iter().map(|ns| scaled(*ns)));
        row.extend([scaled(sum), scaled(medians[PARTS.len()]), figure(by_turn, 2)]);
        row
    };
    let rows = [row("ns", Some(1.0), 1), row("cycles", ghz, 0)];
    let headings = [
        "a packet",
        "input",
        "transit",
        "output",
        "sum: predicted",
        "path: measured",
        "of the sum",
    ];
    table(&mut paper.text, &headings, &rows);
    paper.keep(name, &mut runs);
    Ok(())
}

/// What the path takes of the sum of its nodes: the median over turns.
fn path_by_turn(runs: &[Run]) -> Option<f64> {
    let samples =
        |name: &str| runs.iter().find(|run| run.name == name).map(|run| run.samples.as_slice());
    let path = samples(PATH)?;
    let parts: Vec<&[f64]> = PARTS.iter().map(|name| samples(name)).collect::<Option<_>>()?;
    let share = |(turn, path): (usize, &f64)| {
        let sum = parts.iter().map(|part| part.get(turn).copied()).sum::<Option<f64>>()?;
        Some(path / sum)
    };
    let mut shares: Vec<f64> = path.iter().enumerate().filter_map(share).collect();
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).copied()
}

/// What fixed and adaptive allowances deliver.
fn matrices(paper: &mut Paper<'_>) {
    paper.say(HEADING);
    paper.say(
        "There: R/N of each input's traffic to an output goes straight to \
         it, the rest by an intermediate (`fixed`); RB4 had\nlinks of R, twice 2R/N. Ours: links of 2R/N; `adaptive` looks \
         at the backlogs of the own node. Links in 2R/N, nodes in R.",
    );
    let mut rows = Vec::new();
    for nodes in [4, 16] {
        let kinds = [
            ("uniform", Matrix::uniform(nodes)),
            ("permutation", Matrix::permutation(nodes)),
            ("adversarial", Matrix::adversarial(nodes)),
        ];
        for (name, matrix) in kinds {
            for (rule, word) in
                [(Rule::Vlb, "vlb"), (Rule::Fixed, "fixed"), (Rule::Adaptive, "adaptive")]
            {
                let report = run(&Config { slots: SLOTS, ..Config::new(matrix.clone(), rule) });
                rows.push(vec![
                    nodes.to_string(),
                    name.to_owned(),
                    word.to_owned(),
                    figure(Some(report.delivered), 3),
                    figure(Some(report.worst_link), 2),
                    figure(Some(report.worst_node), 2),
                    figure(Some(report.hops), 2),
                    report.worst_queue.to_string(),
                ]);
            }
        }
    }
    let headings =
        ["nodes", "matrix", "rule", "delivered", "worst link", "worst node", "hops", "worst queue"];
    table(&mut paper.text, &headings, &rows);
}

/// The order of flows between one input and one output.
fn order(paper: &mut Paper<'_>) {
    paper.say(
        "### RouteBricks: order of flows\n\nThere: the Abilene trace forced through one input and one output, 5.5 % of \
         the packet sequences reordered, 0.15 % with\nflowlets that end after 100 ms. Ours: a mix of flows like that of \
         a trace, in per cent; RFC 4737 counts packets.",
    );
    let mut rows = Vec::new();
    for (name, delta_ms, there) in [
        ("a choice a packet", None, Some(5.5)),
        ("flowlets, 100 ms", Some(DELTA_MS), Some(0.15)),
        ("flowlets, 2 ms", Some(2.0), None),
    ] {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most 100 ms"
        )]
        let flowlets = delta_ms.map(|ms: f64| FlowletSettings {
            delta_slots: (ms * 1e6 / SLOT_NS) as u32,
            entries: 1 << 16,
        });
        let base = Config::new(Matrix::overload(4, &[1.0]), Rule::Adaptive);
        let config = Config { mix: Some(Mix::default()), flowlets, slots: ORDER_SLOTS, ..base };
        let Report { reordered_sequences, reordered_rfc4737, .. } = run(&config);
        rows.push(vec![
            name.to_owned(),
            figure(there, 2),
            figure(Some(reordered_sequences * 100.0), 3),
            figure(Some(reordered_rfc4737 * 100.0), 3),
        ]);
    }
    let headings = ["path", "there", "ours, sequences", "ours, RFC 4737"];
    table(&mut paper.text, &headings, &rows);
}

/// What a failed node or link costs.
fn failures(paper: &mut Paper<'_>) {
    paper.say(
        "### RouteBricks: failures\n\nThere: none measured. Ours: uniform traffic, what fails is seen by the others within \
         the slots named, each in one of its\nown, and drops nothing after that.",
    );
    let (detection_slots, jitter_slots) = (1_000, 200);
    let mut rows = Vec::new();
    for nodes in [4, 64] {
        for (name, lost) in [
            ("a node fails", Lost::Node(1)),
            ("a link fails", Lost::Link(0, 1)),
            ("a node drains", Lost::Drained(1)),
        ] {
            let failure =
                Failure { lost, slot: SLOTS / 4, detection_slots, jitter_slots, until: None };
            let base = Config::new(Matrix::uniform(nodes), Rule::Adaptive);
            let report = run(&Config { slots: SLOTS, failures: vec![failure], ..base });
            #[allow(clippy::cast_precision_loss, reason = "a share for people")]
            let share = report.drops.failed as f64 / report.packets as f64;
            rows.push(vec![
                nodes.to_string(),
                name.to_owned(),
                report.detection_slots.to_string(),
                report.drops.failed.to_string(),
                figure(Some(share * 100.0), 3),
                report.failed_after_detection.to_string(),
            ]);
        }
    }
    let headings = ["nodes", "failure", "detection, slots", "packets lost", "%", "lost after it"];
    table(&mut paper.text, &headings, &rows);
}

/// What real nodes that are killed cost, with the demo of a cluster.
fn real_failures(paper: &mut Paper<'_>) {
    paper.say(
        "### RouteBricks: failures of real nodes\n\nThere: none measured. Ours: `demo cluster`, four nodes with a mesh of links of \
         2R/N and uniform traffic of 0.9 R at each, every\nframe compared with what it must be; a node is killed, and comes back. \
         Lost between other nodes, before the last of them\nhad noticed; from and to the killed node; and otherwise.",
    );
    let mut rows = Vec::new();
    let (mut lost, mut offered) = (Vec::new(), 0);
    for number in 1..=paper.options.failures {
        paper.progress.stage(&format!("real failures: {number}"));
        let options =
            ClusterOptions { time: AROUND, rule: Rule::Adaptive, ports: 1, memory: false };
        match demo(&options, &|_| ()) {
            Ok(report) => {
                lost.push(report.lost_in_failure);
                offered += report.offered_in(DETECTION);
                rows.push(real_row(number, &report));
            }
            Err(error) => paper.say(&format!("Run {number} failed: {error:#}.")),
        }
    }
    let headings = [
        "run",
        "nodes run in",
        "packets",
        "wrong",
        "noticed, ms",
        "lost",
        "at the node",
        "otherwise",
        "busiest link, 2R/N",
        "reordered, %",
    ];
    table(&mut paper.text, &headings, &rows);
    lost.sort_unstable();
    if let Some(median) = lost.get(lost.len() / 2) {
        paper.say(&format!(
            "Median of the packets lost between other nodes: {median}; {} are offered in the {} ms that are stated for the \
             detection.",
            offered / lost.len() as u64,
            DETECTION.as_millis()
        ));
    }
}

/// A row of the table of real failures.
fn real_row(number: usize, report: &ClusterReport) -> Vec<String> {
    vec![
        number.to_string(),
        report.mode.to_owned(),
        report.offered.to_string(),
        report.wrong.to_string(),
        figure(Some(report.detection_ms), 0),
        report.lost_in_failure.to_string(),
        report.lost_at_node.to_string(),
        report.lost_otherwise.to_string(),
        figure(Some(report.worst_link), 2),
        figure(Some(report.reordered_sequences * 100.0), 3),
    ]
}
