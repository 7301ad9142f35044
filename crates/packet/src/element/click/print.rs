//! Writes packets to the standard error, a line each: for who builds a graph and wants to see.
//!
//! Source: Click's `Print`: a label, the length, and the first bytes in hexadecimal, or as text with `CONTENTS ASCII`;
//! none with `CONTENTS NONE`. One of the few elements that do more than a router should do for a packet; it is not for
//! graphs that carry load.

use std::fmt::Write as _;

use crate::element::support::console;
use crate::element::support::setting::Setting;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Print", "1/1", "a/a", "x/x").ignores(&[
        "TIMESTAMP",
        "PRINTANNO",
        "CPU",
        "HEADROOM",
    ]),
    summary: "writes packets to the standard error",
    configure: |setup| {
        let label = setup.args.optional::<String>("LABEL");
        let most = setup.args.optional::<i64>("MAXLENGTH");
        let active = setup.args.keyword("ACTIVE");
        let lengths = [setup.args.keyword::<i64>("NBYTES"), setup.args.keyword::<i64>("LENGTH")];
        let contents = match setup.args.keyword_arg("CONTENTS")? {
            None => Contents::Hex,
            Some(arg) => match arg.raw().to_ascii_uppercase().as_str() {
                "HEX" | "TRUE" | "1" => Contents::Hex,
                "ASCII" => Contents::Ascii,
                "NONE" | "FALSE" | "0" => Contents::None,
                _ => return Err(setup.args.refuse(&arg, "CONTENTS: HEX, ASCII or NONE")),
            },
        };
        setup.args.finish()?;
        let label = label?.unwrap_or_default();
        let [bytes, length] = lengths;
        // Below 0 means all of them; 24 are Click's.
        let most = most?.or(bytes?).or(length?).unwrap_or(24);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let active = Setting::<bool>::new(active?.unwrap_or(true));
        let each = active.clone();
        let made = Made::new(move |instance| Print {
            label: label.clone(),
            most,
            contents,
            // A dry run is not to be seen there.
            active: if instance.is_dry_run() { Setting::new(false) } else { each.clone() },
        });
        Ok(active.handled(made, "active"))
    },
};

/// How bytes are shown.
#[derive(Clone, Copy)]
enum Contents {
    Hex,
    Ascii,
    None,
}

struct Print {
    contents: Contents,
    label: String,
    /// Bytes that are shown.
    most: usize,
    active: Setting<bool>,
}

/// Line as Click's: the length right-aligned, bytes in groups of four.
fn line(label: &str, frame: &[u8], most: usize, contents: Contents) -> String {
    let mut line = format!("{label}{}{:4}", if label.is_empty() { "" } else { ": " }, frame.len());
    if !matches!(contents, Contents::None) && most > 0 && !frame.is_empty() {
        line += " | ";
    }
    for (at, byte) in frame.iter().take(most).enumerate() {
        match contents {
            Contents::Hex => {
                let space = if at > 0 && at % 4 == 0 { " " } else { "" };
                write!(line, "{space}{byte:02x}").expect("a text takes all");
            }
            Contents::Ascii => {
                if at % 8 == 0 {
                    line.push(' ');
                }
                line.push(if (32..127).contains(byte) { char::from(*byte) } else { '.' });
            }
            Contents::None => break,
        }
    }
    line
}

impl Element for Print {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        if self.active.get() {
            for i in 0..batch.len() {
                console::warn(&line(&self.label, batch.bytes(i), self.most, self.contents));
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
        assert_eq!(line("in", &[1, 2, 3, 4, 0xff, 6], 5, Contents::Hex), "in:    6 | 01020304 ff");
        assert_eq!(line("", &[0; 60], 0, Contents::Hex), "  60");
        assert_eq!(line("x", &[], usize::MAX, Contents::Hex), "x:    0");
        assert_eq!(line("x", b"B says hi.\n", 24, Contents::Ascii), "x:   11 |  B says h i..");
        assert_eq!(line("x", &[1], 24, Contents::None), "x:    1");
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
