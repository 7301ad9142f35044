//! Classes to read configurations with, for tests, and what must hold of any text.

use std::ops::Range;

use super::class::{ClassSpec, Classes};
use super::flat::{Configuration, Connection, Declared};
use super::read::Language;
use super::value::unquote;

/// Some of Click's classes, by name: what they declare of their ports.
pub const CLASSES: &[ClassSpec] = &[
    ClassSpec::new("ARPQuerier", "2/1-2", "h/h", "xy/x"),
    ClassSpec::new("ARPResponder", "1/1-2", "a/ah", "x/x"),
    ClassSpec::new("CheckIPHeader", "1/1-2", "a/ah", "x/x").outputs(&["good", "bad"]),
    ClassSpec::new("Classifier", "1/-", "h/h", "x/x"),
    ClassSpec::new("ControlSocket", "0/0", "a/a", "x/x"),
    ClassSpec::new("Counter", "1/1", "a/a", "x/x"),
    ClassSpec::new("DXRIPLookup", "1/-", "h/h", "x/x"),
    ClassSpec::new("DecIPTTL", "1/1-2", "a/ah", "x/x").outputs(&["forward", "expired"]),
    ClassSpec::new("Discard", "1/0", "a/a", "x/x"),
    ClassSpec::new("DropBroadcasts", "1/1", "a/a", "x/x"),
    ClassSpec::new("EtherSwitch", "1-/=", "a/a", "#/[^#]"),
    ClassSpec::new("FixIPSrc", "1/1", "a/a", "x/x"),
    ClassSpec::new("FromDevice", "0/1", "h/h", "x/y"),
    ClassSpec::new("ICMPPingResponder", "1/1-2", "a/ah", "x/x"),
    ClassSpec::new("ICMPError", "1/1", "a/ah", "x/x"),
    ClassSpec::new("IPFragmenter", "1/1-2", "h/h", "x/x").outputs(&["out", "too_big"]),
    ClassSpec::new("IPGWOptions", "1/1-2", "a/ah", "x/x"),
    ClassSpec::new("Idle", "-/-", "a/a", "x/y"),
    ClassSpec::new("InfiniteSource", "0/1", "h/h", "x/y"),
    ClassSpec::new("Paint", "1/1", "a/a", "x/x"),
    ClassSpec::new("PaintTee", "1/1-2", "a/ah", "x/x"),
    ClassSpec::new("Print", "1/1", "a/a", "x/x"),
    ClassSpec::new("Queue", "1/1", "h/l", "x/y"),
    ClassSpec::new("RoundRobinSched", "1-/1", "l/l", "x/x"),
    ClassSpec::new("StaticIPLookup", "1/-", "h/h", "x/x"),
    ClassSpec::new("Strip", "1/1", "a/a", "x/x"),
    ClassSpec::new("Suppressor", "1-/=", "a/a", "#/#"),
    ClassSpec::new("Tee", "1/1-", "h/h", "x/x"),
    ClassSpec::new("TimedUnqueue", "1/1", "l/h", "x/y"),
    ClassSpec::new("ToDevice", "1/0", "l/l", "x/y"),
    ClassSpec::new("ToHost", "1/0", "h/h", "x/y"),
    ClassSpec::new("Unqueue", "1/1", "l/h", "x/y"),
    ClassSpec::new("Wrong", "1/one", "a/a", "x/x"),
];

/// What an element is given, without quotes.
fn arguments(element: &Declared) -> Vec<Vec<u8>> {
    let config = &element.config;
    let of = |range: Range<usize>| unquote(&config.as_str()[range]).into_owned();
    config.arguments().into_iter().map(of).collect()
}

/// The flat form of `first`, which was read with `classes`, reads as the same graph.
///
/// # Panics
/// Where it does not.
pub fn same_again<C: Classes + ?Sized>(first: &Configuration, classes: &C) {
    let text = first.flatconfig();
    let again = Language::new(classes)
        .read("flat", &text)
        .unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    assert_eq!(again.flatconfig(), text);
    assert_eq!(again.elements().len(), first.elements().len());
    for (one, other) in first.elements().iter().zip(again.elements()) {
        assert_eq!((&one.name, one.class), (&other.name, other.class));
        assert_eq!((one.inputs, one.outputs), (other.inputs, other.outputs));
        assert_eq!(arguments(one), arguments(other), "{}", one.name);
    }
    assert_eq!(again.connections().len(), first.connections().len());
    // Chains have them in another order.
    let sorted = |graph: &Configuration| {
        let ends = |wire: &Connection| (wire.from, wire.output, wire.to, wire.input, wire.kind);
        let mut wires: Vec<_> = graph.connections().iter().map(ends).collect();
        wires.sort_unstable();
        wires
    };
    assert_eq!(sorted(&again), sorted(first));
}

/// What must hold of any text: it is read to its end, without a panic, and errors have places in it.
///
/// # Panics
/// Where it does not hold.
pub fn check(text: &str) {
    match Language::new(CLASSES).read("a.click", text) {
        Ok(graph) => same_again(&graph, CLASSES),
        Err(errors) => {
            assert!(!errors.reports.is_empty() && errors.reports.len() <= 50);
            let lines: Vec<&str> = text.split('\n').collect();
            for report in &errors.reports {
                if &*report.place.file != "a.click" {
                    continue;
                }
                // A line directive may call it anything.
                if !text.contains('#') {
                    let line = lines[report.place.line as usize - 1];
                    assert!(report.place.column as usize <= line.chars().count() + 1, "{report}");
                }
                assert!(report.excerpt.1.end <= 100, "{report}");
            }
            assert!(errors.to_string().len() < 100_000);
        }
    }
}
