//! Classes to read configurations with, for tests, and what must hold of any text.

use std::ops::Range;

use super::class::{ClassSpec, Classes};
use super::flat::{Configuration, Declared};
use super::read::Language;
use super::value::unquote;

const fn row(
    name: &'static str,
    ports: &'static str,
    processing: &'static str,
    flow: &'static str,
) -> ClassSpec {
    ClassSpec { name, ports, processing, flow, output_names: &[] }
}

const fn named(row: ClassSpec, output_names: &'static [&'static str]) -> ClassSpec {
    ClassSpec { output_names, ..row }
}

/// Some of Click's classes, by name: what they declare of their ports.
pub const CLASSES: &[ClassSpec] = &[
    row("ARPQuerier", "2/1-2", "h/h", "xy/x"),
    row("ARPResponder", "1/1-2", "a/ah", "x/x"),
    named(row("CheckIPHeader", "1/1-2", "a/ah", "x/x"), &["good", "bad"]),
    row("Classifier", "1/-", "h/h", "x/x"),
    row("ControlSocket", "0/0", "a/a", "x/x"),
    row("Counter", "1/1", "a/a", "x/x"),
    row("DXRIPLookup", "1/-", "h/h", "x/x"),
    named(row("DecIPTTL", "1/1-2", "a/ah", "x/x"), &["forward", "expired"]),
    row("Discard", "1/0", "a/a", "x/x"),
    row("DropBroadcasts", "1/1", "a/a", "x/x"),
    row("EtherSwitch", "1-/=", "a/a", "#/[^#]"),
    row("FixIPSrc", "1/1", "a/a", "x/x"),
    row("FromDevice", "0/1", "h/h", "x/y"),
    row("ICMPPingResponder", "1/1-2", "a/ah", "x/x"),
    row("ICMPError", "1/1", "a/ah", "x/x"),
    named(row("IPFragmenter", "1/1-2", "h/h", "x/x"), &["out", "too_big"]),
    row("IPGWOptions", "1/1-2", "a/ah", "x/x"),
    row("Idle", "-/-", "a/a", "x/y"),
    row("InfiniteSource", "0/1", "h/h", "x/y"),
    row("Paint", "1/1", "a/a", "x/x"),
    row("PaintTee", "1/1-2", "a/ah", "x/x"),
    row("Print", "1/1", "a/a", "x/x"),
    row("Queue", "1/1", "h/l", "x/y"),
    row("RoundRobinSched", "1-/1", "l/l", "x/x"),
    row("StaticIPLookup", "1/-", "h/h", "x/x"),
    row("Strip", "1/1", "a/a", "x/x"),
    row("Suppressor", "1-/=", "a/a", "#/#"),
    row("Tee", "1/1-", "h/h", "x/x"),
    row("TimedUnqueue", "1/1", "l/h", "x/y"),
    row("ToDevice", "1/0", "l/l", "x/y"),
    row("ToHost", "1/0", "h/h", "x/y"),
    row("Unqueue", "1/1", "l/h", "x/y"),
    row("Wrong", "1/one", "a/a", "x/x"),
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
    for (one, other) in first.connections().iter().zip(again.connections()) {
        assert_eq!(
            (one.from, one.output, one.to, one.input),
            (other.from, other.output, other.to, other.input)
        );
        assert_eq!(one.kind, other.kind);
    }
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
