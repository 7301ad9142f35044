//! The tables and formulas of `docs/internals/cluster.md`, run.

use super::*;
use crate::rule::NodeId;
use proptest::prelude::*;

fn near(name: &str, found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{name}: {found:.4}, not {expected:.4}");
}

/// The table of the rules at 95 % load: delivered and hops of VLB, of the fixed allowance and of the adaptive rule.
#[test]
fn the_adaptive_rule_delivers_what_the_fixed_allowance_does_not() {
    let table = [
        ("4 adversarial", Matrix::adversarial(4), [1.50, 1.52, 1.26], 0.877),
        ("4 permutation", Matrix::permutation(4), [1.50, 1.67, 1.47], 0.789),
        ("4 uniform", Matrix::uniform(4), [1.50, 1.21, 1.00], 1.0),
        ("8 permutation", Matrix::permutation(8), [1.75, 1.86, 1.74], 0.921),
        ("8 uniform", Matrix::uniform(8), [1.75, 1.08, 1.00], 1.0),
        ("16 adversarial", Matrix::adversarial(16), [1.87, 1.91, 1.83], 0.971),
    ];
    for (name, matrix, hops, fixed) in table {
        let rules = [(Rule::Vlb, 1.0), (Rule::Fixed, fixed), (Rule::Adaptive, 1.0)];
        for ((rule, delivered), hops) in rules.into_iter().zip(hops) {
            let report = run(&Config { slots: 100_000, ..Config::new(matrix.clone(), rule) });
            let name = format!("{name}, {rule:?}");
            near(&name, report.delivered, delivered, 0.012);
            near(&name, report.hops, hops, 0.06);
            assert!(report.worst_node < 3.0, "{name}: {report:?}");
            if rule == Rule::Adaptive {
                assert!(report.worst_queue <= 12 && report.drops.sum() == 0, "{name}: {report:?}");
            }
        }
    }
}

/// Loads of links and nodes without drops are those of the formulas.
#[test]
fn loads_are_those_of_the_formulas() {
    for matrix in [Matrix::permutation(8), Matrix::uniform(8), Matrix::random(8, 3, 5)] {
        // Links of twice the size, so that the fixed allowance drops nothing either.
        let with = |rule| {
            let base = Config::new(matrix.clone(), rule);
            run(&Config { slots: 100_000, load: 1.0, link_rate: 2.0, queue: 2000, ..base })
        };
        for (rule, loads) in
            [(Rule::Vlb, Loads::vlb(&matrix)), (Rule::Fixed, Loads::fixed(&matrix))]
        {
            let report = with(rule);
            // `worst_link` is in units of 2R/N.
            near(&format!("{rule:?} link"), report.worst_link, loads.worst_link / 2.0, 0.06);
            near(&format!("{rule:?} transit"), report.worst_transit(), loads.transit, 0.03);
        }
    }
}

/// Unequal nodes: link i -> j needs `2 r_i r_j / sum(r)`, and has exactly that.
#[test]
fn unequal_nodes_need_links_by_their_rates() {
    for weights in [None, Some(vec![4, 4, 2, 1, 0, 1])] {
        let config = Config {
            rates: vec![4, 4, 2, 1, 1, 1],
            weights,
            ..Config::new(Matrix::uniform(6), Rule::Vlb)
        };
        for rule in [Rule::Vlb, Rule::Adaptive] {
            let settings = Settings { rule, ..config.settings };
            let report = run(&Config { settings, slots: 50_000, ..config.clone() });
            assert!(report.drops.sum() == 0 && report.worst_link < 1.02, "{report:?}");
            let none = config.weights.is_some();
            assert!(
                !none || report.nodes[4].transit == 0.0,
                "a node without weight carries transit"
            );
        }
    }
}

/// Offers of 10 : 10 : 2 to an output of 10: in proportion from one queue, 4 : 4 : 2 from a queue for each input.
#[test]
fn overload_is_shared_as_the_queues_share() {
    let config = Config {
        load: 1.0,
        slots: 100_000,
        ..Config::new(Matrix::overload(32, &[1.0, 1.0, 0.2]), Rule::Adaptive)
    };
    let shares = |fair| run(&Config { fair, ..config.clone() }).shares[..3].to_vec();
    for (fair, expected) in
        [(Fair::Proportional, [0.4545, 0.4545, 0.0909]), (Fair::MaxMin, [0.4, 0.4, 0.2])]
    {
        for (share, expected) in shares(fair).into_iter().zip(expected) {
            near(&format!("{fair:?}"), share, expected, 0.02 * expected.max(0.4));
        }
    }
    assert!(run(&Config { fair: Fair::MaxMin, ..config }).max_min_error < 0.02);
}

/// All inputs to one output at a load of `offered` R in all.
fn all_to_one(offered: f64) -> Report {
    let matrix = Matrix::overload(16, &[offered / 15.0; 15]);
    run(&Config { load: 1.0, slots: 400_000, ..Config::new(matrix, Rule::Adaptive) })
}

#[test]
fn an_overloaded_output_is_full_and_its_shares_are_equal_within_2_percent() {
    let report = all_to_one(2.0);
    assert!(report.shares.iter().sum::<f64>() > 0.99, "{:?}", report.shares);
    assert!(report.max_min_error < 0.02 && report.jain > 0.999, "{:?}", report.shares);
}

#[test]
fn twice_the_load_of_an_output_carries_97_percent_of_what_its_load_does() {
    let (full, twice) = (all_to_one(1.0).out as f64, all_to_one(2.0).out as f64);
    assert!(twice > 0.97 * full, "{full} and {twice} packets");
}

/// Eight inputs send to four outputs, R in all to each, and twice as much.
#[test]
fn a_cluster_at_200_percent_carries_97_percent_of_what_it_does_at_100() {
    let with = |offered: f64, rule| {
        let rows: Vec<Vec<f64>> = (0..16)
            .map(|from| {
                let share = if from < 8 { offered / 8.0 } else { 0.0 };
                (0..16).map(|to| if to < 12 { 0.0 } else { share }).collect()
            })
            .collect();
        let matrix = Matrix::from_demands(&rows);
        run(&Config { load: 1.0, slots: 100_000, ..Config::new(matrix, rule) })
    };
    for rule in [Rule::Vlb, Rule::Adaptive] {
        let (full, twice) = (with(1.0, rule), with(2.0, rule));
        assert!(twice.out as f64 > 0.97 * full.out as f64, "{rule:?}: {} {}", full.out, twice.out);
        assert!(twice.jain > 0.999, "{rule:?}: {twice:?}");
    }
}

/// Fifteen inputs send `hot` R each to output 0, and fifteen 0.5 R to an output that nobody else sends to.
fn hot_output_beside_pairs(hot: f64, fair: Fair, rule: Rule) -> Report {
    let rows: Vec<Vec<f64>> = (0..16)
        .map(|from: usize| {
            let mut row = vec![0.0; 16];
            row[0] = if from == 0 { 0.0 } else { hot };
            if from < 15 {
                row[from + 1] = 0.5;
            }
            row
        })
        .collect();
    let base = Config::new(Matrix::from_demands(&rows), rule);
    run(&Config { load: 1.0, slots: 100_000, fair, ..base })
}

#[test]
fn an_overloaded_output_leaves_the_traffic_to_other_outputs_unhurt() {
    for fair in [Fair::Proportional, Fair::MaxMin] {
        let alone = hot_output_beside_pairs(0.0, fair, Rule::Adaptive);
        let beside = hot_output_beside_pairs(0.45, fair, Rule::Adaptive);
        // 6.75 R for an output of R.
        assert!(beside.outputs[0].dropped > 500_000, "{:?}", beside.outputs[0]);
        near("output 0", beside.outputs[0].out as f64 / 100_000.0, 1.0, 0.01);
        for (to, (alone, beside)) in alone.outputs.iter().zip(&beside.outputs).enumerate().skip(1) {
            let name = format!("{fair:?}, output {to}: {alone:?} and {beside:?}");
            assert_eq!((alone.dropped, beside.dropped), (0, 0), "{name}");
            near(&name, beside.out as f64 / alone.out as f64, 1.0, 0.02);
            // What arrived has left, but for what is on the path at the end.
            assert!(beside.offered - beside.out < 100, "{name}");
        }
    }
}

/// Under plain VLB one packet in N deviates over the node of the overloaded output, whose links are full of transit to it.
#[test]
fn vlb_loses_one_nth_of_the_traffic_to_other_outputs_beside_an_overloaded_one() {
    let report = hot_output_beside_pairs(0.45, Fair::Proportional, Rule::Vlb);
    for (to, output) in report.outputs.iter().enumerate().skip(1) {
        let lost = output.dropped as f64 / output.offered as f64;
        // Input 0 has no link to itself.
        near(&format!("output {to}"), lost, if to == 1 { 0.0 } else { 1.0 / 16.0 }, 0.005);
    }
}

/// 64 nodes of which the last one dies, comes back, and is seen by the others in slots of their own.
#[test]
fn a_lost_node_costs_only_what_was_sent_before_it_was_seen() {
    for flowlets in [None, Some(FlowletSettings { delta_slots: 200, entries: 4096 })] {
        let failures = vec![Failure {
            lost: Lost::Node(7),
            slot: 2000,
            detection_slots: 500,
            jitter_slots: 200,
            until: Some(8000),
        }];
        let base = Config::new(Matrix::permutation(64), Rule::Adaptive);
        let config = Config { load: 0.9, flowlets, failures, slots: 12_000, ..base };
        let report = run(&config);
        assert!(report.drops.failed > 0 && report.failed_after_detection == 0, "{report:?}");
        assert!((500..=700).contains(&report.detection_slots));
        // Node 7 is the output of node 6, one intermediate of 62 for the others, and had full links.
        assert!(report.drops.failed < 700 + 700 * 63 / 62 * 2 + 200 * 64, "{:?}", report.drops);
        // Its neighbor has no path to it, and the links of 63 nodes are a little short.
        assert!(report.drops.unreachable > 4000 && report.drops.link_transit == 0, "{report:?}");
        // A loss that lasts is no worse: nothing is lost after the detection.
        let forever = Failure { until: None, ..config.failures[0] };
        let lasting = run(&Config { failures: vec![forever], ..config });
        assert_eq!(lasting.drops.failed, report.drops.failed, "the return loses packets");
    }
}

#[test]
fn a_cut_link_is_avoided_in_its_direction() {
    for until in [None, Some(15_000)] {
        let lost = Lost::Link(0, 1);
        let (detection_slots, jitter_slots) = (300, 100);
        let failures = vec![Failure { lost, slot: 1000, detection_slots, jitter_slots, until }];
        let base = Config::new(Matrix::permutation(64), Rule::Adaptive);
        let report = run(&Config { load: 0.8, failures, slots: 20_000, ..base });
        assert!(report.drops.failed > 0 && report.failed_after_detection == 0, "{report:?}");
        // At most what a link of 2R/N carries while it is not seen, with its queue.
        assert!(report.drops.failed < 400 * 2 / 64 + 32, "{:?}", report.drops);
        assert_eq!(report.drops.unreachable, 0);
        assert_eq!(report.drops.full(), 0);
    }
}

/// A node that drains in this slot, is stopped once all have seen it, and comes back.
fn restarted(node: NodeId, slot: u32) -> [Failure; 2] {
    let (detection_slots, jitter_slots, until) = (300, 100, Some(slot + 1200));
    let drain = Failure { lost: Lost::Drained(node), slot, detection_slots, jitter_slots, until };
    [drain, Failure { lost: Lost::Node(node), slot: slot + 700, ..drain }]
}

/// 64 nodes: one drains and dies, and a rolling restart of all of them, one after the other.
#[test]
fn drained_nodes_and_a_rolling_restart_of_all_lose_nothing() {
    let flowlets = Some(FlowletSettings { delta_slots: 200, entries: 4096 });
    let base = Config { load: 0.7, flowlets, ..Config::new(Matrix::uniform(64), Rule::Adaptive) };
    let one = Config { failures: restarted(3, 1000).to_vec(), slots: 4000, ..base.clone() };
    let report = run(&one);
    assert_eq!(report.drops.sum(), 0, "{report:?}");
    assert!(report.withdrawn > 0);
    let each = |node: u16| restarted(node, 1000 + 1700 * u32::from(node));
    let rolling = Config { failures: (0..64).flat_map(each).collect(), slots: 111_000, ..base };
    let report = run(&rolling);
    assert_eq!(report.drops.sum(), 0, "{report:?}");
    assert!(report.packets > 4_500_000 && report.withdrawn > 60 * 400, "{report:?}");
    // One that is stopped before the others have seen that it drains costs what is on its way to it.
    let early = |node: u16| each(node).map(|it| Failure { slot: it.slot.min(1300), ..it });
    let hasty = Config { failures: early(0).to_vec(), slots: 4000, ..rolling };
    assert!(run(&hasty).drops.failed > 0);
}

/// 64 nodes in two halves that do not reach each other, and become one again.
#[test]
fn the_halves_of_a_partition_lose_nothing_within_them() {
    let (slot, until, load) = (2000, 12_000, 0.4);
    let partition = Failure {
        lost: Lost::Between(32),
        slot,
        detection_slots: 500,
        jitter_slots: 200,
        until: Some(until),
    };
    for matrix in [Matrix::uniform(64), Matrix::permutation(64)] {
        // Two demands of a permutation, and 32 of 63 of a uniform matrix, are between the halves.
        let across: f64 = (0..64)
            .flat_map(|from| (0..64).map(move |to| (from, to)))
            .filter(|(from, to)| (*from < 32) != (*to < 32))
            .map(|(from, to)| matrix.demand(from, to))
            .sum();
        let base = Config {
            load,
            failures: vec![partition],
            slots: 16_000,
            ..Config::new(matrix, Rule::Adaptive)
        };
        let report = run(&base);
        assert_eq!(report.failed_after_detection, 0, "{report:?}");
        // What was sent across before the nodes saw it, and what they send over nodes of the other half.
        assert!(report.drops.failed > 0, "{report:?}");
        assert!((report.drops.failed as f64) < load * 64.0 * 700.0, "{report:?}");
        // Afterwards what is between the halves has no path, until the last node sees them one again.
        let seen = f64::from(until + 700 - slot - 600);
        let expected = across * load * seen;
        let found = report.drops.unreachable as f64;
        assert!((found / expected - 1.0).abs() < 0.05, "{found} unreachable, not {expected}");
        assert_eq!(report.drops.full(), 0, "{report:?}");
        assert_eq!(report.packets, report.out + report.drops.sum() + report.held);
    }
}

/// A pair forced over the other nodes, as RouteBricks measured it: flowlets keep its order, spraying does not.
#[test]
fn flowlets_keep_the_order_of_flows() {
    let with = |delta: Option<u32>| {
        let flowlets = delta.map(|delta_slots| FlowletSettings { delta_slots, entries: 4096 });
        let base = Config::new(Matrix::overload(8, &[0.9]), Rule::Adaptive);
        run(&Config { load: 1.0, flows: 200, burst: 8.0, flowlets, slots: 200_000, ..base })
    };
    let (without, kept) = (with(None), with(Some(400)));
    assert!(without.reordered_sequences > 0.02, "{without:?}");
    assert!(kept.reordered_sequences < 0.0015, "{kept:?}");
    assert!(kept.reordered_rfc4737 < without.reordered_rfc4737 / 10.0);
    assert!(kept.flowlets > 1000 && kept.delivered > 0.99, "{kept:?}");
}

proptest! {
    /// In = out + dropped by reason + held, whatever fails; equal seeds have equal results.
    #[test]
    fn packets_are_conserved(
        nodes in 2usize..12,
        seed: u64,
        rule in prop_oneof![Just(Rule::Vlb), Just(Rule::Fixed), Just(Rule::Adaptive)],
        load in 0.1f64..1.2,
        burst in 1.0f64..20.0,
        delta in prop::option::of(0u32..100),
        fair in any::<bool>(),
        lost in 0u16..6,
    ) {
        let rule = if nodes == 2 { Rule::Adaptive } else { rule };
        let node = lost % u16::try_from(nodes).unwrap();
        let lost = match lost % 3 {
            0 => Lost::Node(node),
            1 => Lost::Link(node, (node + 1) % u16::try_from(nodes).unwrap()),
            _ => Lost::Drained(node),
        };
        let config = Config {
            load,
            burst,
            seed,
            queue: 20,
            slots: 600,
            flows: 3,
            fair: if fair { Fair::MaxMin } else { Fair::Proportional },
            flowlets: delta.map(|delta_slots| FlowletSettings { delta_slots, entries: 64 }),
            failures: vec![
                Failure { lost, slot: 200, detection_slots: 50, jitter_slots: 30, until: Some(400) },
                Failure { lost, slot: 300, detection_slots: 9, jitter_slots: 0, until: Some(310) },
            ],
            ..Config::new(Matrix::random(nodes, 3, seed), rule)
        };
        let report = run(&config);
        prop_assert_eq!(report.packets, report.out + report.drops.sum() + report.held);
        prop_assert_eq!(run(&config), report);
    }
}
