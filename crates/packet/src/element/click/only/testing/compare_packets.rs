//! `ComparePackets` compares the packets that it pulls from its two inputs, pair by pair, and gives each to the output of its
//! number.
//!
//! Source: Click's `ComparePackets`. `diffs` is how many pairs were not the same, `all_same` whether none was, `diff_details`
//! what differed how often. Times count unless `TIMESTAMP false` is given.

use std::sync::Arc;

use crate::element::click::only::annotations::Annotations;
use crate::element::click::only::heads::Heads;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{Batch, Packet};
use crate::graph::{Context, Element, ElementClass, Held, Inputs, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("ComparePackets", "2/2", "l/l", "#/#"),
    summary: "compares the packets of two inputs",
    configure: |setup| {
        let times = setup.args.optional("TIMESTAMP");
        setup.args.finish()?;
        let times = times?.unwrap_or(true);
        let counts = setup.keep::<PerWorker<Counts>>();
        let [pairs, same, details] = [(); 3].map(|()| counts.clone());
        let made = Made::new(move |instance| Compare {
            heads: Heads::new(2),
            is_compared: false,
            times,
            counts: counts.add(instance),
        });
        Ok(made
            .holds(2)
            .handler(Handler::read("diffs", move || {
                pairs.sum(|counts| counts.pairs.read()).to_string()
            }))
            .handler(Handler::read("all_same", move || {
                (same.sum(|counts| counts.pairs.read()) == 0).to_string()
            }))
            .handler(Handler::read("diff_details", move || {
                let line = |(at, words): (usize, &&str)| {
                    let count = details.sum(|counts| counts.parts[at].read());
                    (count > 0).then(|| format!("{count} {words}\n"))
                };
                PARTS.iter().enumerate().filter_map(line).collect()
            })))
    },
};

/// What may differ.
const PARTS: [&str; 7] = [
    "different length",
    "different data",
    "different timestamp",
    "different network header",
    "different color",
    "different aggregate",
    "different count",
];

#[derive(Default)]
struct Counts {
    /// Pairs that are not the same.
    pairs: Count,
    parts: [Count; PARTS.len()],
}

struct Compare {
    heads: Heads,
    /// The packets that are held were compared, where both are there.
    is_compared: bool,
    times: bool,
    counts: Arc<Counts>,
}

impl Compare {
    fn compare(&self, one: &Packet, other: &Packet) {
        let (noted, others) = (Annotations::of_packet(one), Annotations::of_packet(other));
        let differs = [
            one.bytes().len() != other.bytes().len(),
            one.bytes() != other.bytes(),
            self.times && noted.timestamp_ns != others.timestamp_ns,
            one.meta.network != other.meta.network,
            one.meta.paint != other.meta.paint,
            noted.aggregate != others.aggregate,
            noted.extra_packets != others.extra_packets,
        ];
        for (count, _) in self.counts.parts.iter().zip(differs).filter(|(_, differs)| *differs) {
            count.add(1);
        }
        self.counts.pairs.add(differs.contains(&true).into());
    }
}

impl Element for Compare {
    fn pull(
        &mut self,
        output: u16,
        into: &mut Batch,
        inputs: &mut dyn Inputs,
        cx: &mut Context<'_>,
    ) {
        while into.room() > 0 {
            // One of a pair may be given already: its other one is not followed by packets before it is given as well.
            let (output, other) = (usize::from(output), usize::from(1 - output));
            let is_half =
                self.is_compared && self.heads.is_there(output) != self.heads.is_there(other);
            if !is_half {
                let have = [0, 1].map(|input| self.heads.pull(input, into, inputs, cx).is_some());
                if have != [true, true] {
                    return;
                }
                if let [Some(one), Some(two)] = self.heads.both()
                    && !self.is_compared
                {
                    self.compare(one, two);
                    self.is_compared = true;
                }
            }
            if !self.heads.is_there(output) {
                return;
            }
            self.heads.give(output, into, cx);
            self.is_compared = self.heads.is_there(other);
        }
    }

    fn held(&self) -> Held {
        self.heads.held()
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.heads.stop(cx);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn pairs_are_compared() {
        let text = "FromDevice(a) -> Queue -> [0] c :: ComparePackets; FromDevice(b) -> Paint(1) -> p :: PaintSwitch;
            p [0] -> Discard; p [1] -> Paint(0) -> Queue -> [1] c; c [0] -> ToDevice(x); c [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[1], &[2, 2], &[3]]);
        assert_eq!((rig.poll().len(), rig.read("c.all_same")), (0, "true".into()), "no pair");
        rig.receive("b", &[&[1], &[2, 9], &[3, 3]]);
        let sent: Vec<_> = (0..6).flat_map(|_| rig.poll()).collect();
        let of = |device: &str| sent.iter().filter(|(to, _)| to == device).count();
        assert_eq!((of("x"), of("y")), (3, 3));
        assert_eq!((rig.read("c.diffs"), rig.read("c.all_same")), ("2".into(), "false".into()));
        assert_eq!(rig.read("c.diff_details"), "1 different length\n2 different data\n");
    }
}
