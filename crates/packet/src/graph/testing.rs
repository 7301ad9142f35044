//! Classes to read configurations with, for tests: what Click's elements declare of their ports.

use super::class::ClassSpec;

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

/// Some of Click's classes, by name.
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
