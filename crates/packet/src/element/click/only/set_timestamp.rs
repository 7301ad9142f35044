//! `SetTimestamp([TIME])` notes the time of day in packets, or the time that is given.
//!
//! Source: Click's `SetTimestamp`. `FIRST true` notes the time of the first packet that one stands for instead.

use crate::element::click::only::annotations::Annotations;
use crate::element::click::only::clock;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("SetTimestamp", "1/1", "a/a", "x/x").ignores(&["DELTA"]),
    summary: "notes the time in packets",
    configure: |setup| {
        let given = setup.args.optional_arg("TIMESTAMP")?;
        let first = setup.args.keyword("FIRST");
        setup.args.finish()?;
        let time = match given {
            None => None,
            Some(arg) => match clock::read_seconds(arg.raw()) {
                Some(time) => Some(time),
                None => return Err(setup.args.refuse(&arg, "TIMESTAMP: no time")),
            },
        };
        let first = first?.unwrap_or(false);
        Ok(Made::new(move |_| Set { time, first }))
    },
};

struct Set {
    time: Option<i64>,
    first: bool,
}

impl Element for Set {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let time = self.time.unwrap_or_else(|| clock::time_of_day(cx.now_ns));
        for i in 0..batch.len() {
            let mut annotations = Annotations::of(batch, i);
            *if self.first { &mut annotations.first_ns } else { &mut annotations.timestamp_ns } =
                time;
            annotations.set(batch, i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused, run};

    #[test]
    fn sources_note_when_they_make_a_packet() {
        for (source, stamped) in [
            ("InfiniteSource(LIMIT 1)", true),
            ("InfiniteSource(LIMIT 1, TIMESTAMP false)", false),
            ("RatedSource(LIMIT 1)", true),
            ("TimedSource(0.001, LIMIT 1)", true),
        ] {
            crate::element::click::only::console::collect();
            let text = format!("{source} -> ToIPSummaryDump(-, HEADER false, FIELDS timestamp)");
            let mut rig = Rig::new(&World::new(), &text);
            for _ in 0..5 {
                rig.poll();
                rig.bench.now_ns += 1_000_000;
            }
            let out = crate::element::click::only::console::collected().out;
            assert_eq!((out.lines().count(), out != "0.000000\n"), (1, stamped), "{source}: {out}");
        }
    }

    #[test]
    fn the_time_is_noted() {
        assert_eq!(Annotations::of(&run(&CLASS, "1.5", 0, &[&[7]]), 0).timestamp_ns, 1_500_000_000);
        assert_eq!(
            Annotations::of(&run(&CLASS, "2, FIRST true", 0, &[&[7]]), 0).first_ns,
            2_000_000_000
        );
        assert!(Annotations::of(&run(&CLASS, "", 0, &[&[7]]), 0).timestamp_ns > 0);
        assert!(refused(&CLASS, "x").contains("no time"));
    }
}
