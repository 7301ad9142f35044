//! Sorts frames by patterns over their bytes: `Classifier(12/0806 20/0001, 12/0800, -)`.
//!
//! Source: Click's `Classifier`. A frame leaves by the output of the first pattern that takes it, and is dropped when
//! none does. A pattern is a list of `OFFSET/VALUE%MASK`, with hexadecimal values, or `-` for all. Outputs that no
//! frame leaves by are reported.
//!
//! Handlers `config` and `patternN` change the patterns while packets are sorted: all of them, or none where one is wrong.
//!
//! Cost: a load for each word that the patterns read, up to the first that holds.

use fingerpost_route::Reader;

use super::sorting::{Sorting, one_per_output, warn_of_unused};
use crate::element::router::ether_input::AHEAD;
use crate::filter::{Pattern, Patterns};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass};
use crate::language::{Args, ClassSpec, ConfigError};

const NAME: &str = "Classifier";

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new(NAME, "1/-", "h/h", "x/x"),
    summary: "sorts frames by patterns over their bytes",
    configure: |setup| Sorting::made(setup, NAME, read, |sorting| Classifier { sorting }),
};

fn read(args: &mut Args<'_>, outputs: u32) -> Result<Sorting<Patterns>, ConfigError> {
    let (patterns, texts) = one_per_output(args, outputs, Pattern::parse)?;
    warn_of_unused(args, patterns.len(), || Patterns::listing(&patterns));
    let choice = Patterns::new(patterns.iter().cloned());
    Ok(Sorting::new(texts, choice, move || Patterns::listing(&patterns)))
}

struct Classifier {
    sorting: Reader<Sorting<Patterns>>,
}

impl Element for Classifier {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let patterns = &self.sorting.pin().choice;
        for i in 0..batch.len() {
            batch.prefetch(i + AHEAD);
            match patterns.find(batch.bytes(i)) {
                Some(output) => batch.output(i, output),
                None => batch.discard(i, DropReason::Unmatched),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Plan;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn frames_leave_by_the_first_pattern_that_takes_them() {
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(in) -> c :: Classifier(0/01 2/??, 0/01, !1/02); c => ToDevice(a), ToDevice(b), ToDevice(c)",
        );
        let sent = rig.receive("in", &[&[1, 2, 3], &[1], &[2, 3], &[2, 2], &[]]);
        let names: String = sent.iter().map(|(device, _)| device.as_str()).collect();
        assert_eq!(names, "aacc");
        assert_eq!(rig.dropped(DropReason::Unmatched), 1);
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(in) -> c :: Classifier(0/01 2/03, 0/01); c => ToDevice(a), ToDevice(b)",
        );
        let sent = rig.receive("in", &[&[1, 2, 3], &[1, 2], &[2, 2]]);
        assert_eq!(sent.iter().map(|(device, _)| device.as_str()).collect::<String>(), "ab");
        assert_eq!(rig.dropped(DropReason::Unmatched), 1);
    }

    #[cfg(feature = "click")]
    #[test]
    fn outputs_that_no_packet_leaves_by_are_reported() {
        let warned = |patterns: &[&str]| {
            let outputs: Vec<_> =
                (0..patterns.len()).map(|n| format!("c [{n}] -> Discard;")).collect();
            let text =
                format!("Idle -> c :: Classifier({}); {}", patterns.join(", "), outputs.concat());
            crate::testing::warnings(&text)
        };
        let output = |number| format!("`c` (Classifier): output {number} matches no packets");
        assert_eq!(
            warned(&["12/0806", "12/0806 20/0002", "12/0800 12/0806", "12/0800"]),
            [output(1), output(2)]
        );
        assert_eq!(warned(&["-", "0/01"]), [output(1)]);
        assert!(warned(&["12/0806 20/0001", "12/0806 20/0002", "12/0800", "-"]).is_empty());
    }

    #[test]
    fn patterns_are_replaced_while_packets_are_sorted() {
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(in) -> c :: Classifier(0/01, -); c => ToDevice(a), ToDevice(b)",
        );
        let sent = |rig: &mut Rig| -> String {
            let sent = rig.receive("in", &[&[1], &[2]]).into_iter();
            sent.map(|(device, frame)| format!("{device}{}", frame[0])).collect()
        };
        assert_eq!(sent(&mut rig), "a1b2");
        rig.write("c.config", "0/02,0/01");
        assert_eq!((rig.read("c.config"), sent(&mut rig)), ("0/02, 0/01".into(), "a2b1".into()));
        for (config, words) in [
            ("0/02", "need 2 arguments, one per output port"),
            ("0/02, 0/0", "expected two hexadecimal digits a byte"),
        ] {
            let refused = rig.handlers.write("c.config", config).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        assert_eq!((rig.read("c.config"), sent(&mut rig)), ("0/02, 0/01".into(), "a2b1".into()));
    }

    #[cfg(feature = "click")]
    #[test]
    fn a_pattern_is_read_and_written_by_itself() {
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(in) -> c :: Classifier(0/01, -); c => ToDevice(a), ToDevice(b)",
        );
        rig.write("c.pattern0", " 0/02 ");
        assert_eq!([rig.read("c.pattern0"), rig.read("c.pattern1")], ["0/02", "-"]);
        let sent = rig.receive("in", &[&[1], &[2]]);
        let sent: Vec<_> = sent.iter().map(|(device, frame)| (device.as_str(), frame[0])).collect();
        assert_eq!(sent, [("a", 2), ("b", 1)]);
        for config in ["0/03, 0/04", "x", ""] {
            assert!(rig.handlers.write("c.pattern1", config).is_err(), "{config}");
        }
        assert_eq!(rig.read("c.config"), "0/02, -");
        let want =
            " 0   0/02000000%ff000000  yes->[0]  no->[1]\nsafe length 1\nalignment offset 0\n";
        assert_eq!(rig.read("c.program"), want);
    }

    #[test]
    fn each_output_has_its_pattern_and_all_that_is_wrong_is_reported() {
        let text = "Idle -> c :: Classifier(12/0800, -); c -> Discard";
        let reported = Plan::read("a", text, crate::ELEMENTS).unwrap_err().to_string();
        assert!(reported.contains("need 1 arguments, one per output port"), "{reported}");
        let reported = refused(&CLASS, "12/08, 12/0g, \\<ff>, x");
        for words in [
            "expected hexadecimal digits or `?`, at character 5",
            "no text",
            "expected `OFFSET/VALUE`, as in `12/0800`, at character 1",
        ] {
            assert!(reported.contains(words), "{reported}");
        }
    }
}
