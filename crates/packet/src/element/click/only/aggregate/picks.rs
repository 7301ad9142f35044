//! Packets by their aggregate: `AggregateFirst` passes the first of each, `AggregateFilter` sorts them by number.
//!
//! Source: Click's elements of these names. Other packets than the first leave by the second output of
//! `AggregateFirst`, where it is used, or are dropped; it forgets aggregates that have ended by its `NOTIFIER`, an
//! `AggregateIPFlows`. A rule of `AggregateFilter` is `allow`, `deny` or an output, and
//! numbers or ranges.

use std::collections::HashSet;

use super::ended::{Ended, Listener};
use super::flows::MOST_FLOWS;
use crate::element::click::only::annotations::Annotations;
use crate::element::click::only::each::sorting;
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Exit, Made};
use crate::language::{ClassSpec, Value};

pub(crate) const FIRST: ElementClass = sorting(
    "AggregateFirst",
    &["first", "others"],
    "passes the first packet of each aggregate",
    |setup| {
        let notifier = setup.args.keyword_arg("NOTIFIER")?;
        setup.args.finish()?;
        let ended = notifier.map(|arg| Ended::of(setup, &arg)).transpose()?;
        let exit = setup.exit(1, DropReason::Discarded);
        Ok(Made::new(move |instance| First {
            exit,
            seen: HashSet::new(),
            ended: ended.as_ref().filter(|_| !instance.is_dry_run()).map(|ended| ended.listen()),
        }))
    },
);

struct First {
    exit: Exit,
    seen: HashSet<u32>,
    /// Aggregates that have ended, of which no more packets come.
    ended: Option<Listener>,
}

impl Element for First {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let aggregate = Annotations::of(batch, i).aggregate;
            if self.seen.len() >= MOST_FLOWS {
                self.seen.clear();
            }
            if !self.seen.insert(aggregate) {
                self.exit.take(batch, i);
            }
        }
        // Packets of such an aggregate may be in this batch.
        for aggregate in self.ended.as_ref().map(Listener::take).unwrap_or_default() {
            self.seen.remove(&aggregate);
        }
    }
}

pub(crate) const FILTER: ElementClass = ElementClass {
    spec: ClassSpec::new("AggregateFilter", "1/1-254", "h/h", "x/x"),
    summary: "sorts packets by their aggregates",
    configure: |setup| {
        let given: Vec<_> = setup.args.rest().collect();
        let mut rules = Vec::new();
        for arg in &given {
            match Rule::read(arg.raw(), setup.outputs) {
                Ok(rule) => rules.push(rule),
                Err(words) => {
                    setup.args.refuse(arg, &words);
                }
            }
        }
        setup.args.finish()?;
        Ok(Made::new(move |_| Filter { rules: rules.clone() }))
    },
};

/// What becomes of packets of some aggregates.
#[derive(Clone)]
struct Rule {
    output: Option<u16>,
    /// Ranges, with their last; empty for all.
    ranges: Vec<(u32, u32)>,
}

impl Rule {
    fn read(text: &str, outputs: u32) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let output = match words.next() {
            Some("allow") => Some(0),
            Some("deny" | "drop") => None,
            Some(number) => {
                let output = u16::read(number).ok().filter(|&n| u32::from(n) < outputs);
                Some(output.ok_or_else(|| {
                    format!("`{number}` is neither `allow`, `deny` nor an output")
                })?)
            }
            None => return Err("a rule is an action and aggregates".into()),
        };
        let mut ranges = Vec::new();
        for word in words {
            if matches!(word, "all" | "-" | "else" | "other") {
                return Ok(Self { output, ranges: Vec::new() });
            }
            let (low, high) = word.split_once('-').unwrap_or((word, word));
            let number = |text| u32::read(text).map_err(|words| format!("`{word}` is {words}"));
            ranges.push((number(low)?, number(high)?));
        }
        if ranges.is_empty() {
            Err("a rule is an action and aggregates".into())
        } else {
            Ok(Self { output, ranges })
        }
    }

    fn fits(&self, aggregate: u32) -> bool {
        self.ranges.is_empty()
            || self.ranges.iter().any(|&(low, high)| (low..=high).contains(&aggregate))
    }
}

struct Filter {
    rules: Vec<Rule>,
}

impl Element for Filter {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let aggregate = Annotations::of(batch, i).aggregate;
            match self.rules.iter().find(|rule| rule.fits(aggregate)).and_then(|rule| rule.output) {
                Some(output) => batch.output(i, output),
                None => batch.discard(i, DropReason::Unmatched),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn aggregates_that_have_ended_are_forgotten() {
        // A number that is there again stands for what is numbered anew.
        let text = "FromDevice(a) -> MarkIPHeader(14) -> n :: AggregateIPFlows -> SetAnnoByte(AGGREGATE, 1)
            -> f :: AggregateFirst(NOTIFIER n) -> ToDevice(x); f [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        let frame =
            crate::testing::frame_v4("10.0.0.1", "10.0.0.9", 9, 17, &[0, 5, 0, 6, 0, 8, 0, 0]);
        let send = |rig: &mut Rig| rig.receive("a", &[&frame]).remove(0).0;
        assert_eq!([send(&mut rig), send(&mut rig)], ["x", "y"]);
        rig.write("n.clear", "");
        assert_eq!([send(&mut rig), send(&mut rig)], ["y", "x"]);
        assert!(refused(&FIRST, "NOTIFIER n").contains("no element that numbers flows"));
    }
}
