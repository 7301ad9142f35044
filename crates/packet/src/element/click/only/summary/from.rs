//! `FromIPSummaryDump`: makes packets of the lines of a summary.

use super::binary::{self, Record};
use super::fields::{Described, Field, protocol};
use super::source::{Form, Given, Input, Row, open};
use crate::element::click::only::console;
use crate::element::click::only::script::{first_word, words};
use crate::frame::wire::protocol::TCP;
use crate::graph::ElementClass;
use crate::language::{ClassSpec, Value};

pub(crate) const FROM: ElementClass = ElementClass {
    spec: ClassSpec::new("FromIPSummaryDump", "0/1", "h/a", "x/y"),
    summary: "makes packets of the lines of a summary",
    configure: |setup| {
        let file = setup.args.optional_arg("FILENAME")?;
        let data = setup.args.keyword_arg("DATA")?;
        let fields = [
            setup.list::<Field>("FIELDS"),
            setup.list::<Field>("CONTENTS"),
            setup.list::<Field>("DEFAULT_FIELDS"),
            setup.list::<Field>("DEFAULT_CONTENTS"),
        ];
        let usual = setup.args.keyword_arg("PROTO")?;
        let given = Given::read(setup);
        let timing = setup.args.keyword("TIMING");
        // Bytes that nothing is known of are zeros in any case.
        let zero = setup.args.keyword::<bool>("ZERO");
        let checksum = setup.args.keyword("CHECKSUM");
        let flow = setup.args.keyword_arg("FLOWID")?;
        let usual_flow = setup.args.keyword_arg("DEFAULT_FLOWID")?;
        let multi = setup.args.keyword::<bool>("MULTIPACKET");
        let absent = setup.args.keyword("ALLOW_NONEXISTENT");
        setup.args.finish()?;
        let flow = flow.or(usual_flow);
        if let Some(arg) = &flow
            && Described::default().take_flow(arg.raw()).is_none()
        {
            return Err(setup.args.refuse(arg, "FLOWID: no flow"));
        }
        let multi = multi?.unwrap_or(false);
        zero?;
        let proto = match usual {
            None => TCP,
            Some(arg) => {
                protocol(arg.raw()).ok_or_else(|| setup.args.refuse(&arg, "PROTO: no protocol"))?
            }
        };
        let lines = open(setup, file.as_ref(), data.as_ref(), absent?.unwrap_or(false))?;
        let mut known = Vec::new();
        for list in fields {
            known = list?.unwrap_or(known);
        }
        let form = Summary {
            fields: known,
            proto,
            checksum: checksum?.unwrap_or(false),
            timing: timing?.unwrap_or(false),
            multi,
            flow: flow.map(|arg| arg.raw().to_owned()),
            aggregate: 0,
            complained: false,
            binary: false,
            begun: false,
            in_eights: false,
        };
        given.made(setup, lines, form)
    },
};

/// How lines are read.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "arguments, and lines that have come")]
struct Summary {
    fields: Vec<Field>,
    proto: u8,
    checksum: bool,
    timing: bool,
    /// A line that counts several packets stands for as many.
    multi: bool,
    /// Ends of packets whose line has none.
    flow: Option<String>,
    /// Aggregate of packets whose line has none.
    aggregate: u32,
    /// Whether a line that is no packet was reported.
    complained: bool,
    /// Records follow, in place of lines.
    binary: bool,
    /// The first line was read, which has the version.
    begun: bool,
    /// Offsets of fragments are in units of 8 bytes.
    in_eights: bool,
}

impl Form for Summary {
    const NAME: &'static str = "FromIPSummaryDump";

    fn line(&mut self, line: &str) -> Option<Row> {
        let line = line.trim();
        let is_first = !std::mem::replace(&mut self.begun, true);
        if let Some(about) = line.strip_prefix('!') {
            let (word, rest) = first_word(about);
            match word {
                "data" | "contents" => {
                    self.fields = words(rest)
                        .into_iter()
                        .map(|name| {
                            Field::read(name.trim_matches(['\'', '"'])).unwrap_or_else(|words| {
                                console::err(&format!("FromIPSummaryDump: `{name}` is {words}\n"));
                                Field::None
                            })
                        })
                        .collect();
                }
                "flowid" => {
                    self.flow = Described::default().take_flow(rest).map(|()| rest.to_owned());
                    if self.flow.is_none() {
                        self.complain(&format!("`{rest}` is no flow"));
                    }
                }
                "aggregate" => self.aggregate = u32::read(rest).unwrap_or(self.aggregate),
                "binary" => self.binary = true,
                "IPSummaryDump" => self.in_eights = is_first && rest == "1.0",
                "proto" => self.proto = protocol(rest).unwrap_or(self.proto),
                _ => {}
            }
            return None;
        }
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        if self.fields.is_empty() {
            self.complain("no `!data` line names the fields");
            return None;
        }
        self.row(&words(line), self.in_eights)
    }

    fn is_binary(&self) -> bool {
        self.binary
    }

    fn record(&mut self, input: &mut Input) -> Option<Option<Row>> {
        Some(match binary::read(input, &self.fields)? {
            Record::Line(line) => self.line(&line),
            Record::Row(texts) => self.row(&texts, false),
        })
    }

    fn repeats(&self) -> bool {
        self.multi
    }

    fn is_timed(&self) -> bool {
        self.timing
    }
}

impl Summary {
    /// The packet of a row of texts, whose offsets of fragments may be in units of 8 bytes.
    fn row(&mut self, words: &[impl AsRef<str>], in_eights: bool) -> Option<Row> {
        let mut described = Described::default();
        described.in_eights = in_eights;
        described.annotations.aggregate = self.aggregate;
        if let Some(flow) = &self.flow {
            let _ = described.take_flow(flow);
        }
        let mut taken = false;
        for (&field, word) in self.fields.iter().zip(words) {
            // What is wrong is left out, where other fields of the line are right.
            taken |= described.take(field, word.as_ref()).is_some();
        }
        if !taken {
            self.complain("a line does not have the fields of `!data`");
            return None;
        }
        let packet = match described.is_ip() {
            true => described.packet(self.proto, false, self.checksum),
            false => Vec::new(),
        };
        Some((packet, described.annotations, described.paint.unwrap_or(0)))
    }

    /// Reports what is wrong with a file, once.
    fn complain(&mut self, words: &str) {
        if !std::mem::replace(&mut self.complained, true) {
            console::err(&format!("FromIPSummaryDump: {words}\n"));
        }
    }
}
