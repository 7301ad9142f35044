//! Writes packets to the standard error, a line each: for who builds a graph and wants to see.
//!
//! Source: Click's `Print`: a label, the length, and the first bytes in hexadecimal, or as text with `CONTENTS ASCII`;
//! none with `CONTENTS NONE`. `TIMESTAMP` adds the packet's time, `HEADROOM` the free bytes before it and behind it,
//! `PRINTANNO` Click's 48 bytes of annotations: the color, the aggregate, and those without a name. One of the few elements
//! that do more than a router should do for a packet; it is not for graphs that carry load.

use std::fmt::Write as _;

use crate::element::support::byte_anno::ByteAnno;
use crate::element::support::console;
use crate::element::support::setting::Setting;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::language::{ClassSpec, ConfigError, annotations};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Print", "1/1", "a/a", "x/x").ignores(&["CPU"]),
    summary: "writes packets to the standard error",
    configure: |setup| {
        let label = setup.args.optional::<String>("LABEL");
        let most = setup.args.optional::<i64>("MAXLENGTH");
        let active = setup.args.keyword("ACTIVE");
        let (timestamp, annotations) =
            (setup.args.keyword::<bool>("TIMESTAMP"), setup.args.keyword::<bool>("PRINTANNO"));
        let headroom = setup.args.keyword::<bool>("HEADROOM");
        let lengths = [setup.args.keyword::<i64>("NBYTES"), setup.args.keyword::<i64>("LENGTH")];
        let contents = Contents::read(setup, "CONTENTS")?.unwrap_or(Contents::Hex);
        setup.args.finish()?;
        let label = label?.unwrap_or_default();
        let [bytes, length] = lengths;
        // Below 0 means all of them; 24 are Click's.
        let most = most?.or(bytes?).or(length?).unwrap_or(24);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let active = Setting::<bool>::new(active?.unwrap_or(true));
        let each = active.clone();
        let show = Show {
            label,
            most,
            contents,
            timestamp: timestamp?.unwrap_or(false),
            headroom: headroom?.unwrap_or(false),
            annotations: annotations?.unwrap_or(false),
        };
        let made = Made::new(move |instance| Print {
            show: show.clone(),
            // A dry run is not to be seen there.
            active: if instance.is_dry_run() { Setting::new(false) } else { each.clone() },
        });
        Ok(active.handled(made, "active"))
    },
};

/// How bytes are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    Hex,
    Ascii,
    None,
}

impl Contents {
    /// The value of an argument, where it is given.
    pub(super) fn read(
        setup: &mut Setup<'_>,
        name: &'static str,
    ) -> Result<Option<Self>, ConfigError> {
        let Some(arg) = setup.args.keyword_arg(name)? else { return Ok(None) };
        match arg.raw().to_ascii_uppercase().as_str() {
            "HEX" | "TRUE" | "YES" | "1" => Ok(Some(Self::Hex)),
            "ASCII" => Ok(Some(Self::Ascii)),
            "NONE" | "FALSE" | "NO" | "0" => Ok(Some(Self::None)),
            _ => Err(setup.args.refuse(&arg, &format!("{name}: HEX, ASCII or NONE"))),
        }
    }
}

/// What a line has.
#[derive(Clone)]
struct Show {
    label: String,
    contents: Contents,
    /// Bytes that are shown.
    most: usize,
    timestamp: bool,
    headroom: bool,
    annotations: bool,
}

struct Print {
    show: Show,
    active: Setting<bool>,
}

/// Annotations of a packet, as they are written.
fn marks(batch: &Batch, i: usize) -> String {
    let bytes = (0..annotations::BYTES).map(|number| ByteAnno::of(number).get(batch, i));
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Time of a packet, as it is written.
#[cfg(feature = "click")]
fn time(batch: &Batch, i: usize) -> String {
    use crate::element::click::only::{annotations::Annotations, clock::seconds};
    seconds(Annotations::of(batch, i).timestamp_ns)
}

/// Packets have no times where no element gives them any.
#[cfg(not(feature = "click"))]
fn time(_: &Batch, _: usize) -> String {
    "0.000000".to_owned()
}

impl Show {
    /// Line as Click's: the length right-aligned, bytes in groups of four.
    fn line(
        &self,
        frame: &[u8],
        time: Option<String>,
        free: Option<(usize, usize)>,
        annotations: Option<String>,
    ) -> String {
        let mut line = self.label.clone();
        for text in time.into_iter().chain([format!("{:4}", frame.len())]) {
            if !line.is_empty() {
                line += ": ";
            }
            line += &text;
        }
        if let Some((before, behind)) = free {
            line += &format!(" (h{before} t{behind})");
        }
        if let Some(annotations) = annotations {
            line += &format!(" | {annotations}");
        }
        let bytes = &frame[..frame.len().min(self.most)];
        if matches!(self.contents, Contents::None) || bytes.is_empty() {
            return line;
        }
        line += " | ";
        for (at, byte) in bytes.iter().enumerate() {
            if self.contents == Contents::Hex {
                let space = if at > 0 && at % 4 == 0 { " " } else { "" };
                write!(line, "{space}{byte:02x}").expect("a text takes all");
            } else {
                if at % 8 == 0 {
                    line.push(' ');
                }
                line.push(if (32..127).contains(byte) { char::from(*byte) } else { '.' });
            }
        }
        line
    }
}

impl Element for Print {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        if self.active.get() {
            for i in 0..batch.len() {
                let time = self.show.timestamp.then(|| time(batch, i));
                let free = self.show.headroom.then(|| batch.free_bytes(i));
                let annotations = self.show.annotations.then(|| marks(batch, i));
                let line = self.show.line(batch.bytes(i), time, free, annotations);
                console::warn(&line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World, refused};

    #[test]
    fn a_line_shows_the_first_bytes() {
        let show = |label: &str, frame: &[u8], most, contents| {
            let label = label.to_owned();
            let (timestamp, headroom, annotations) = (false, false, false);
            let show = Show { label, contents, most, timestamp, headroom, annotations };
            show.line(frame, None, None, None)
        };
        assert_eq!(show("in", &[1, 2, 3, 4, 0xff, 6], 5, Contents::Hex), "in:    6 | 01020304 ff");
        assert_eq!(show("", &[0; 60], 0, Contents::Hex), "  60");
        assert_eq!(show("x", &[], usize::MAX, Contents::Hex), "x:    0");
        assert_eq!(show("x", b"B says hi.\n", 24, Contents::Ascii), "x:   11 |  B says h i..");
        assert_eq!(show("x", &[1], 24, Contents::None), "x:    1");
    }

    #[cfg(feature = "click")]
    #[test]
    fn times_and_annotations_are_shown() {
        console::collect();
        let text = "FromIPSummaryDump(DATA \"!data timestamp ip_src\n1.5 1.0.0.1\") -> Paint(7) -> AggregatePaint -> SetAnnoByte(5, 8)
            -> SetAnnoByte(47, 9) -> Truncate(2)
            -> Print(a, TIMESTAMP true, PRINTANNO true, NBYTES 1) -> Print(TIMESTAMP true, MAXLENGTH 0) -> Discard";
        let mut rig = Rig::new(&World::new(), text);
        (0..9).for_each(|_| drop(rig.poll()));
        let zeros = |bytes| "00".repeat(bytes);
        let annotations = format!("{}08{}07{}07{}09", zeros(5), zeros(14), zeros(3), zeros(22));
        let want = format!("a: 1.500000:    2 | {annotations} | 45\n1.500000:    2\n");
        assert_eq!(console::collected().err, want);
    }

    #[test]
    fn free_bytes_are_shown() {
        console::collect();
        let text = "FromDevice(a) -> Strip(14) -> Print(a, HEADROOM true, NBYTES 1) -> Discard";
        Rig::new(&World::new(), text).receive("a", &[&[7; 16]]);
        // Frames of 2,048 bytes, 256 of them before what is received.
        assert_eq!(console::collected().err, "a:    2 (h270 t1776) | 07\n");
    }

    #[test]
    fn packets_pass_whether_they_are_shown_or_not() {
        let text = "FromDevice(a) -> p :: Print(ok, -1, ACTIVE false) -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(rig.receive("a", &[&[1, 2]])[0].1, [1, 2]);
        rig.write("p.active", "true");
        assert_eq!(rig.receive("a", &[&[3]])[0].1, [3]);
        assert!(refused(&CLASS, "a, b").contains("`b` is no whole number"));
    }
}
