//! `FromIPSummaryDump`: makes packets of the lines of a summary.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::sync::{Arc, Mutex, PoisonError};

use super::binary::{self, Record};
use super::fields::{Described, Field, protocol};
use crate::element::click::only::annotations::Annotations;
use crate::element::click::only::console;
use crate::element::click::only::random::{Chance, Random};
use crate::element::click::only::script::{first_word, words};
use crate::element::support::plain::Plain;
use crate::element::support::setting::Setting;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::wire::protocol::TCP;
use crate::frame::{ANNOTATION_BYTES, Batch};
use crate::graph::{Context, Element, ElementClass, Ending, Inputs, Made, Setup};
use crate::handler::Handler;
use crate::language::{Arg, ClassSpec, ConfigError, Value};

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
        let stop = setup.args.keyword("STOP");
        let timing = setup.args.keyword("TIMING");
        let active = setup.args.keyword("ACTIVE");
        let zero = setup.args.keyword("ZERO");
        let checksum = setup.args.keyword("CHECKSUM");
        let flow = setup.args.keyword_arg("FLOWID")?;
        let usual_flow = setup.args.keyword_arg("DEFAULT_FLOWID")?;
        let multi = setup.args.keyword::<bool>("MULTIPACKET");
        let sample = setup.args.keyword::<Chance>("SAMPLE");
        let absent = setup.args.keyword("ALLOW_NONEXISTENT");
        setup.args.finish()?;
        let flow = flow.or(usual_flow);
        if let Some(arg) = &flow
            && Described::default().take_flow(arg.raw()).is_none()
        {
            return Err(setup.args.refuse(arg, "FLOWID: no flow"));
        }
        let multi = multi?.unwrap_or(false);
        let sample = sample?.unwrap_or(Chance(1.0));
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
        let active = Setting::new(active?.unwrap_or(true));
        let form = Form {
            fields: known,
            proto,
            zero: zero?.unwrap_or(false),
            checksum: checksum?.unwrap_or(false),
            timing: timing?.unwrap_or(false),
            multi,
            flow: flow.map(|arg| arg.raw().to_owned()),
            aggregate: 0,
            complained: false,
            binary: false,
        };
        let stop = stop?.unwrap_or(false).then(|| setup.ending.clone());
        let lines = Mutex::new(lines);
        let counts = setup.keep::<PerWorker<Count>>();
        let made = Made::new({
            let (active, counts) = (active.clone(), counts.clone());
            move |instance| Source {
                // One instance reads it: that of the first worker.
                lines: match instance.is_dry_run() {
                    true => None,
                    false => lines.lock().unwrap_or_else(PoisonError::into_inner).take(),
                },
                form: form.clone(),
                next: None,
                began: None,
                active: active.clone(),
                stop: stop.clone(),
                count: counts.add(instance),
                sample,
                random: Random::default(),
            }
        });
        let halt = active.clone();
        let made = made
            .polled()
            .waits_for_room()
            .counter("count", &counts)
            .handler(Handler::read("encap", || "IP".to_owned()))
            .handler(Handler::read("sampling_prob", move || sample.to_string()))
            .command("stop", move || halt.change(|_| false));
        Ok(active.handled(made, "active"))
    },
};

type Lines = BufReader<Box<dyn Read + Send>>;

/// What is to be read; `None` where nothing is.
fn open(
    setup: &mut Setup<'_>,
    file: Option<&Arg<'_>>,
    data: Option<&Arg<'_>>,
    absent: bool,
) -> Result<Option<Lines>, ConfigError> {
    if let Some(data) = data {
        let bytes = Cursor::new(data.bytes().into_owned());
        return Ok(Some(BufReader::new(Box::new(bytes))));
    }
    let Some(arg) = file else { return Err(setup.args.refuse_all("argument FILENAME is missing")) };
    let name: String = setup.args.read(arg, "FILENAME")?;
    let opened = match name == "-" {
        true => setup.policy.special_input(&name),
        false => setup.policy.input(&name).map(Some),
    };
    match opened {
        Ok(file) => {
            let plain = file.map(|file: File| match name.as_str() {
                // Its first bytes may come late.
                "-" => Ok(Box::new(file) as Box<dyn Read + Send>),
                _ => Plain::of(&name, file).map(|plain| Box::new(plain) as _),
            });
            let plain = plain.transpose();
            let plain = plain.map_err(|error| setup.args.refuse(arg, &error.to_string()))?;
            Ok(plain.map(BufReader::new))
        }
        Err(error) if absent && error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(setup.args.refuse(arg, &format!("{name}: {error}"))),
    }
}

/// How lines are read.
#[derive(Clone)]
struct Form {
    fields: Vec<Field>,
    proto: u8,
    zero: bool,
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
}

impl Form {
    /// The packet of a line; `None` where it is none.
    fn read(&mut self, line: &str) -> Option<(Vec<u8>, Annotations, u8)> {
        let line = line.trim();
        if let Some(about) = line.strip_prefix('!') {
            let (word, rest) = first_word(about);
            match word {
                "data" | "contents" => {
                    self.fields = rest
                        .split_whitespace()
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
        self.row(&words(line))
    }

    /// The packet of a row of texts.
    fn row(&mut self, words: &[impl AsRef<str>]) -> Option<(Vec<u8>, Annotations, u8)> {
        let mut described = Described::default();
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
            true => described.packet(self.proto, self.zero, self.checksum),
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

struct Source {
    /// Lines that are not read yet; `None` at their end.
    lines: Option<Lines>,
    form: Form,
    /// The packet that is next.
    next: Option<(Vec<u8>, Annotations, u8)>,
    /// Time of the first packet, and of the clock when it left.
    began: Option<(i64, u64)>,
    active: Setting<bool>,
    stop: Option<Ending>,
    count: Arc<Count>,
    sample: Chance,
    random: Random,
}

/// Bytes of a line, at most: what is longer is several lines.
const MOST_LINE: u64 = 1 << 20;

impl Source {
    /// Reads on to the next packet; whether there is one.
    fn look(&mut self) -> bool {
        let mut line = Vec::new();
        while self.next.is_none() {
            let Some(lines) = &mut self.lines else { return false };
            if self.form.binary {
                match binary::read(lines, &self.form.fields) {
                    Some(Record::Line(line)) => self.next = self.form.read(&line),
                    Some(Record::Row(texts)) => self.next = self.form.row(&texts),
                    None => self.end(),
                }
                self.choose();
                continue;
            }
            line.clear();
            let read = lines.by_ref().take(MOST_LINE).read_until(b'\n', &mut line);
            if let Err(error) = &read {
                console::err(&format!("FromIPSummaryDump: {error}\n"));
            }
            match read {
                Ok(0) | Err(_) => self.end(),
                Ok(_) => self.next = self.form.read(&String::from_utf8_lossy(&line)),
            }
            self.choose();
        }
        true
    }

    /// Leaves out a packet by chance.
    fn choose(&mut self) {
        let Chance(part) = self.sample;
        if part < 1.0 && self.next.is_some() && self.random.real() >= part {
            self.next = None;
        }
    }

    fn end(&mut self) {
        self.lines = None;
        if let Some(stop) = &self.stop {
            stop.request();
        }
    }

    /// Time at which the next packet leaves.
    fn due(&self) -> Option<u64> {
        let (_, annotations, _) = self.next.as_ref()?;
        let (first, then) = self.began.filter(|_| self.form.timing)?;
        let since = annotations.timestamp_ns.saturating_sub(first);
        Some(then.saturating_add(u64::try_from(since).unwrap_or(0)))
    }

    /// Puts the next packet into a batch, if it is time; whether there was one.
    fn give(&mut self, into: &mut Batch, cx: &mut Context<'_>) -> bool {
        if !self.active.get() || !self.look() || self.due().is_some_and(|due| due > cx.now_ns) {
            return false;
        }
        let Some(mut packet) = cx.pool.alloc() else { return false };
        let Some((bytes, mut annotations, paint)) = self.next.take() else { return false };
        if self.form.multi && annotations.extra_packets > 0 {
            let more = Annotations { extra_packets: annotations.extra_packets - 1, ..annotations };
            self.next = Some((bytes.clone(), more, paint));
            annotations.extra_packets = 0;
        }
        self.began.get_or_insert((annotations.timestamp_ns, cx.now_ns));
        let most = usize::from(cx.pool.max_len()) - ANNOTATION_BYTES;
        let len = bytes.len().min(most);
        annotations.extra_length += u32::try_from(bytes.len() - len).unwrap_or(0);
        if !packet.set_len(len) {
            return false;
        }
        packet.bytes_mut().copy_from_slice(&bytes[..len]);
        packet.meta.paint = paint;
        annotations.set_packet(&mut packet);
        cx.counters.packets_in.add(1);
        self.count.add(1);
        into.push(packet).is_ok()
    }
}

impl Element for Source {
    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        if inputs.room() > 0 {
            self.give(batch, cx);
        }
    }

    fn pull(&mut self, _: u16, into: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        while into.room() > 0 && self.give(into, cx) {}
    }

    fn keeps_time(&self) -> bool {
        self.active.get() && self.due().is_some()
    }

    fn due_ns(&self) -> Option<u64> {
        self.due()
    }
}
