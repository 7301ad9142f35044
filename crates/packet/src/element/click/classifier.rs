//! Sorts frames by patterns over their bytes: `Classifier(12/0806 20/0001, 12/0800, -)`.
//!
//! Source: Click's `Classifier`. A frame leaves by the output of the first pattern that takes it, and is dropped when
//! none does. A pattern is a list of `OFFSET/VALUE%MASK`, with hexadecimal values, or `-` for all.
//!
//! Cost: a load for each word that the patterns read, up to the first that holds.

use std::sync::Arc;

use crate::element::router::ether_input::AHEAD;
use crate::filter::{FilterError, Pattern, Patterns};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::language::{Arg, ClassSpec, ConfigError};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Classifier", "1/-", "h/h", "x/x"),
    summary: "sorts frames by patterns over their bytes",
    configure: |setup| {
        let patterns = one_per_output(setup, Pattern::parse);
        setup.args.finish()?;
        let patterns = Arc::new(Patterns::new(patterns?));
        Ok(Made::new(move |_| Classifier { patterns: patterns.clone() }))
    },
};

/// Reads all arguments as patterns.
pub(super) fn patterns<T>(
    setup: &mut Setup<'_>,
    read: impl Fn(&str) -> Result<T, FilterError>,
) -> Result<Vec<T>, ConfigError> {
    let args = setup.args.rest();
    let one = |arg: Arg<'_>| {
        let bytes = arg.bytes();
        let text = std::str::from_utf8(&bytes).map_err(|_| "no text".to_owned());
        text.and_then(|text| read(text).map_err(|error| error.to_string()))
            .map_err(|words| setup.args.refuse(&arg, &words))
    };
    // All that is wrong is told, not only the first.
    let patterns: Vec<_> = args.map(one).collect();
    patterns.into_iter().collect()
}

/// Reads all arguments as patterns, of which each output has one.
pub(super) fn one_per_output<T>(
    setup: &mut Setup<'_>,
    read: impl Fn(&str) -> Result<T, FilterError>,
) -> Result<Vec<T>, ConfigError> {
    let patterns = patterns(setup, read)?;
    let outputs = setup.outputs;
    if patterns.len() != outputs as usize {
        let words = format!("need {outputs} arguments, one per output port");
        return Err(setup.args.refuse_all(&words));
    }
    Ok(patterns)
}

struct Classifier {
    patterns: Arc<Patterns>,
}

impl Element for Classifier {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            batch.prefetch(i + AHEAD);
            match self.patterns.find(batch.bytes(i)) {
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
