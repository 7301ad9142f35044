//! RouteBricks: several servers as one router, by traffic matrices, the order of flows, and failures.
//!
//! Source: the same paper, sections 3, 6.1 and 6.2, for rules and order; failures it did not measure. Ours are of the
//! simulator, whose decisions are those of the data plane (`fingerpost_cluster::rule`): links of 2R/N, 95 % of R, queues of
//! 200 packets. `docs/internals/cluster.md` has what four real nodes measure.

use fingerpost_cluster::rule::Rule;
use fingerpost_cluster::sim::{
    Config, Failure, FlowletSettings, Lost, Matrix, Mix, Report, SLOT_NS, run,
};

use super::super::Paper;
use super::super::page::{figure, table};

/// Heading of its first part.
pub(super) const HEADING: &str = "### RouteBricks: traffic matrices of a cluster";

/// Slots of a run of matrices and failures.
const SLOTS: u32 = 20_000;

/// Slots of a run of the order of flows: a tenth of a second.
const ORDER_SLOTS: u32 = 200_000;

/// Milliseconds that end a flowlet there.
const DELTA_MS: f64 = 100.0;

/// The part of the page about a cluster.
pub(super) fn section(paper: &mut Paper<'_>) {
    matrices(paper);
    order(paper);
    failures(paper);
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
