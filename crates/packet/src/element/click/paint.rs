//! Colors: `Paint` marks packets, `PaintTee` copies those of a color, `PaintSwitch` sorts by it.
//!
//! Source: Click's elements of these names. A router paints packets by their ingress port, and so
//! finds those that leave by the same one. `ANNO` names another annotation of one byte in place of the color.

use crate::element::support::byte_anno::ByteAnno;
use crate::element::support::copies::Copies;
use crate::element::support::setting::Setting;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, LiveArg, Made, Setup};
use crate::language::{ClassSpec, ConfigError};

/// What its handler changes.
const COLOR: &[LiveArg] = &[LiveArg { handler: "color", keyword: "COLOR" }];

pub(crate) const PAINT: ElementClass = ElementClass {
    spec: spec("Paint", "1/1", "a/a"),
    summary: "marks packets with a color",
    configure: |setup| {
        let color = setup.args.positional("COLOR");
        let anno = annotation(setup)?;
        setup.args.finish()?;
        let color = Setting::<u8>::new(color?);
        let each = color.clone();
        let made = Made::new(move |_| Paint { color: each.clone(), anno });
        Ok(color.handled(made, "color").live(COLOR))
    },
};

pub(crate) const TEE: ElementClass = ElementClass {
    spec: spec("PaintTee", "1/2", "a/ah"),
    summary: "sends a copy of packets of a color to its second output",
    configure: |setup| {
        let color = setup.args.positional("COLOR");
        let anno = annotation(setup)?;
        setup.args.finish()?;
        let color = Setting::<u8>::new(color?);
        let each = color.clone();
        let failed = setup.keep::<PerWorker<Count>>();
        let counts = failed.clone();
        let made = Made::new(move |instance| PaintTee {
            color: each.clone(),
            anno,
            copies: Copies::new(counts.add(instance)),
        });
        Ok(color.handled(made.counter("failed", &failed), "color").live(COLOR))
    },
};

pub(crate) const SWITCH: ElementClass = ElementClass {
    spec: spec("PaintSwitch", "1/-", "h/h"),
    summary: "sends packets to the output of their color",
    configure: |setup| {
        let anno = annotation(setup)?;
        setup.args.finish()?;
        let outputs = setup.outputs;
        let failed = setup.keep::<PerWorker<Count>>();
        let counts = failed.clone();
        let made = Made::new(move |instance| PaintSwitch {
            outputs,
            anno,
            copies: Copies::new(counts.add(instance)),
        });
        Ok(made.counter("failed", &failed))
    },
};

const fn spec(name: &'static str, ports: &'static str, processing: &'static str) -> ClassSpec {
    ClassSpec::new(name, ports, processing, "x/x")
}

/// The annotation that is meant, by its place or by `ANNO`.
fn annotation(setup: &mut Setup<'_>) -> Result<ByteAnno, ConfigError> {
    let arg = setup.args.optional_arg("ANNO")?;
    ByteAnno::read(setup, arg.as_ref())
}

struct Paint {
    color: Setting<u8>,
    anno: ByteAnno,
}

impl Element for Paint {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        let color = self.color.get();
        if self.anno == ByteAnno::Paint {
            for meta in batch.meta_mut() {
                meta.paint = color;
            }
            return;
        }
        (0..batch.len()).for_each(|i| self.anno.set(batch, i, color));
    }
}

struct PaintTee {
    color: Setting<u8>,
    anno: ByteAnno,
    copies: Copies,
}

impl Element for PaintTee {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let color = self.color.get();
        // The copy leaves before its packet, which is emitted behind it then, as are those that follow.
        let mut emitting = false;
        for i in 0..batch.len() {
            if self.anno.get(batch, i) == color {
                self.copies.send(batch, i, 1, cx);
                emitting = true;
            }
            if emitting {
                let packet = batch.take(i);
                cx.emit(0, packet);
            }
        }
    }
}

/// Color of packets that are for all outputs.
const ALL: u8 = 255;

struct PaintSwitch {
    outputs: u32,
    anno: ByteAnno,
    copies: Copies,
}

impl Element for PaintSwitch {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            let color = self.anno.get(batch, i);
            if color == ALL {
                let last = u16::try_from(self.outputs.saturating_sub(1)).unwrap_or(u16::MAX);
                for output in 0..last {
                    self.copies.send(batch, i, output, cx);
                }
                batch.output(i, last);
            } else if u32::from(color) < self.outputs {
                batch.output(i, color.into());
            } else {
                batch.discard(i, DropReason::Unmatched);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Decision, FLAG_COPY, FLAG_GENERATED};
    use crate::testing::{Bench, Rig, World, batch, element, refused, run};

    #[test]
    fn colors_are_marked_and_sorted_by() {
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(a) -> p :: Paint(1) -> s :: PaintSwitch; FromDevice(b) -> s; FromDevice(c) -> Paint(9) -> s;
             s => ToDevice(x), ToDevice(y)",
        );
        assert_eq!(rig.receive("a", &[&[5]])[0].0, "y");
        assert_eq!(rig.receive("b", &[&[5]])[0].0, "x");
        assert!(rig.receive("c", &[&[5]]).is_empty());
        assert_eq!(rig.dropped(DropReason::Unmatched), 1);
        rig.write("p.color", "255");
        let mut to: Vec<_> = rig.receive("a", &[&[5]]).into_iter().map(|sent| sent.0).collect();
        to.sort();
        assert_eq!(to, ["x", "y"], "a color for all outputs");
        rig.write("p.color", "0");
        assert_eq!(
            (rig.receive("a", &[&[5]])[0].0.as_str(), rig.read("p.color")),
            ("x", "0".into())
        );
        let text = "FromDevice(a) -> Queue -> Paint(1) -> t :: PaintTee(1) -> ToDevice(x); t [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[5], &[6]]);
        let mut to: Vec<_> = rig.poll().into_iter().map(|sent| (sent.0, sent.1[0])).collect();
        to.sort();
        let want = [("x", 5), ("x", 6), ("y", 5), ("y", 6)];
        assert_eq!(to, want.map(|(device, byte)| (device.to_owned(), byte)), "pulled");
        assert!(refused(&PAINT, "1, ANNO 48").contains("PAINT, AGGREGATE and 0 to 47"));
        assert_eq!(run(&PAINT, "7, 20", 0, &[&[1]]).meta()[0].paint, 7);
        let mut rig = Rig::new(
            &World::new(),
            "FromDevice(a) -> Paint(1, 5) -> Paint(2, ANNO 6) -> t :: PaintTee(2, 6) -> s :: PaintSwitch(ANNO 5);
             s => ToDevice(x), ToDevice(y); t [1] -> ToDevice(z)",
        );
        let mut to: Vec<_> = rig.receive("a", &[&[5]]).into_iter().map(|sent| sent.0).collect();
        to.sort();
        assert_eq!(to, ["y", "z"]);
        let text = "FromDevice(a) -> Paint(1, 24) -> s :: PaintSwitch(AGGREGATE); s => ToDevice(x), ToDevice(y)";
        let sent = Rig::new(&World::new(), text).receive("a", &[&[5]]);
        assert_eq!(sent[0].0, "y", "24 is the aggregate, as 20 is the color");
        assert_eq!(run(&PAINT, "7, ANNO PAINT", 0, &[&[1]]).meta()[0].paint, 7);
        assert!(refused(&PAINT, "256").contains("0 to 255 are possible"));
        assert_eq!(run(&PAINT, "7", 0, &[&[1]]).meta()[0].paint, 7);
    }

    #[test]
    fn a_color_is_copied_and_copies_are_known_as_such() {
        let bench = &mut Bench::new(&World::new());
        let mut batch = batch(&bench.pool, 3, [&[1_u8][..], &[2], &[3]]);
        batch.meta_mut()[1].paint = 4;
        batch.meta_mut()[2].paint = 4;
        batch.meta_mut()[2].flags = FLAG_GENERATED;
        element(&TEE, "4").process(0, &mut batch, &mut bench.context());
        assert_eq!(batch.decision(0), Decision::Output(0));
        let sent: Vec<_> =
            bench.emitted.iter().map(|(output, p)| (*output, p.bytes()[0], p.meta.flags)).collect();
        let copy = FLAG_GENERATED | FLAG_COPY;
        // A copy leaves before its packet.
        let want = [(1, 2, copy), (0, 2, 0), (1, 3, FLAG_GENERATED), (0, 3, FLAG_GENERATED)];
        assert_eq!(sent, want);
        assert_eq!(bench.emitted[0].1.meta.port, 3);
    }
}
