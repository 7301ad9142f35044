//! The packet cases of `testdata/packets`: a fixed surrounding ([`topology`]), frames as text
//! ([`notation`]), what must come of them, and a stage on which a single element meets them.
//! Public behind the feature `testing`: the XDP program and the namespaces read the same files.

pub mod notation;
pub mod topology;

use std::path::Path;

use fingerpost_route::ResolveRequest;
use serde::Deserialize;

use crate::frame::counters::WorkerCounters;
use crate::frame::{Batch, DropReason, Meta, Note, Packet, Pool, REASONS};
use crate::graph::{Context, Element, Transmit};

pub use topology::Built;

/// One packet in, and all that comes of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What is shown; distinct among all cases.
    pub name: String,
    /// RFC and section that require it.
    pub rfc: String,
    /// Ingress port.
    pub port: String,
    /// The frame, in the notation of [`notation`].
    pub frame: String,
    /// Frames that leave, in order.
    #[serde(default)]
    pub out: Vec<Out>,
    /// Why it ends, where it does: the name of a [`DropReason`].
    pub drop: Option<String>,
    /// It waits for a link address.
    #[serde(default)]
    pub held: bool,
}

/// A frame that leaves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Out {
    /// Egress port.
    pub port: String,
    /// The frame.
    pub frame: Option<String>,
    /// Instead: the received frame, with these words changed.
    pub change: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    case: Vec<Case>,
}

impl Case {
    /// The frame that comes in.
    ///
    /// # Errors
    /// What is wrong with its text.
    pub fn input(&self, topology: &Built) -> Result<Vec<u8>, String> {
        notation::frame(&self.frame, topology, &[])
    }

    /// The frames that leave, each with the number of its port.
    ///
    /// # Errors
    /// What is wrong with their text.
    pub fn outputs(&self, topology: &Built) -> Result<Vec<(u16, Vec<u8>)>, String> {
        let input = self.input(topology)?;
        let quoted = input.get(14..).unwrap_or_default();
        let one = |out: &Out| {
            let frame = match (&out.frame, &out.change) {
                (Some(text), None) => notation::frame(text, topology, quoted),
                (None, Some(changes)) => notation::changed(&self.frame, changes, topology),
                _ => Err("an output has either `frame` or `change`".into()),
            };
            Ok((topology.port(&out.port), frame?))
        };
        self.out.iter().map(one).collect()
    }

    /// The reason named by `drop`.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn drop_reason(&self) -> Result<Option<DropReason>, String> {
        let Some(name) = &self.drop else { return Ok(None) };
        let found = DropReason::ALL.iter().find(|r| r.name() == name);
        found.map(|&r| Some(r)).ok_or_else(|| format!("no drop reason is called {name}"))
    }
}

/// What else lies beside the cases.
const NO_CASES: [&str; 3] = ["topology.toml", "bad.toml", "kernel.toml"];

/// All packet cases, each with the name of its file, in order of the files' names.
///
/// # Panics
/// When a file cannot be read or makes no sense; the message names the file and the place.
pub fn cases() -> Vec<(String, Case)> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/packets"));
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.expect("a readable folder").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".toml") && !NO_CASES.contains(&name.as_str()))
        .collect();
    names.sort();
    let mut all = Vec::new();
    for name in names {
        let text = std::fs::read_to_string(folder.join(&name)).expect("a readable file");
        let file: CaseFile = toml::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        all.extend(file.case.into_iter().map(|case| (name.clone(), case)));
    }
    all
}

/// Two frames side by side where they differ, 16 bytes a line; empty when they are equal.
pub fn diff(want: &[u8], got: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    if want.len() != got.len() {
        writeln!(text, "  length: want {}, got {}", want.len(), got.len()).expect("a String");
    }
    for at in (0..want.len().max(got.len())).step_by(16) {
        let line = |b: &[u8]| b.get(at..b.len().min(at + 16)).unwrap_or_default().to_vec();
        let (want, got) = (line(want), line(got));
        if want == got {
            continue;
        }
        let hex = |b: &[u8]| b.iter().map(|b| format!("{b:02x} ")).collect::<String>();
        let marks = (0..want.len().max(got.len()))
            .map(|i| if want.get(i) == got.get(i) { "   " } else { "^^ " })
            .collect::<String>();
        writeln!(text, "  {at:4}: want {}", hex(&want)).expect("a String");
        writeln!(text, "        got  {}", hex(&got)).expect("a String");
        writeln!(text, "             {}", marks.trim_end()).expect("a String");
    }
    text
}

/// A stage for single elements: feeds packets, gathers what comes out.
pub struct Stage {
    /// The surrounding.
    pub topology: Built,
    /// The frames.
    pub pool: Pool,
    /// The counters.
    pub counters: WorkerCounters,
    /// The time, in nanoseconds.
    pub now_ns: u64,
    /// Resolve requests of the elements.
    pub requests: Vec<ResolveRequest>,
}

/// A packet that left an element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// Output of the element.
    pub output: u16,
    /// Its frame.
    pub frame: Vec<u8>,
    /// What was known of it.
    pub meta: Meta,
}

struct NoTransmit;

impl Transmit for NoTransmit {
    fn transmit(&mut self, batch: &mut Batch) {
        panic!("{} packets transmitted outside a graph", batch.len());
    }

    fn room(&mut self, _: u16) -> usize {
        0
    }
}

impl Default for Stage {
    fn default() -> Self {
        let topology = Built::of_cases();
        let ports = topology.topology.ports.len();
        Self {
            topology,
            pool: Pool::new(64, 4096),
            counters: WorkerCounters::new(ports, 64),
            now_ns: 1_000_000_000,
            requests: Vec::new(),
        }
    }
}

impl Stage {
    /// A frame in the notation of [`notation`].
    ///
    /// # Panics
    /// When it makes no sense.
    pub fn frame(&self, text: &str) -> Vec<u8> {
        self.quoting(text, &[])
    }

    /// Frame with a packet to quote.
    ///
    /// # Panics
    /// When it makes no sense.
    pub fn quoting(&self, text: &str, quoted: &[u8]) -> Vec<u8> {
        notation::frame(text, &self.topology, quoted).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Packet of the stage's pool as received on a port, with `note`.
    ///
    /// # Panics
    /// When no frame is free or the bytes do not fit.
    pub fn packet(&self, port: &str, bytes: &[u8], note: Note) -> Packet {
        let mut packet = self.pool.alloc().expect("a free frame");
        assert!(packet.set_len(bytes.len()), "{} bytes do not fit", bytes.len());
        packet.bytes_mut().copy_from_slice(bytes);
        packet.meta = Meta { port: self.topology.port(port), network: 14, note, ..Meta::default() };
        packet
    }

    /// Feeds the packets as one batch; what leaves the element, the batch's packets first.
    ///
    /// # Panics
    /// When there are more than a batch holds.
    pub fn run(&mut self, element: &mut dyn Element, packets: Vec<Packet>) -> Vec<Left> {
        let mut batch = Batch::new(&self.pool);
        for packet in packets {
            batch.push(packet).expect("room in the batch");
        }
        let mut emitted = Vec::new();
        let mut transmit = NoTransmit;
        let mut cx = Context::new(
            self.now_ns,
            &self.topology.forwarding,
            &self.counters,
            &self.pool,
            &mut emitted,
            &mut self.requests,
            &mut transmit,
        );
        element.process(0, &mut batch, &mut cx);
        let mut outs: Vec<(u16, Box<Batch>)> =
            (0..4).map(|output| (output, Batch::new(&self.pool))).collect();
        let counters = &self.counters;
        batch.scatter(
            |reason, meta| counters.drop_packet(reason, meta),
            |output, put| put(&mut outs[usize::from(output)].1),
        );
        let mut left = Vec::new();
        for (output, batch) in &outs {
            let one =
                |i| Left { output: *output, frame: batch.bytes(i).to_vec(), meta: batch.meta()[i] };
            left.extend((0..batch.len()).map(one));
        }
        let one = |(output, packet): &(u16, Packet)| Left {
            output: *output,
            frame: packet.bytes().to_vec(),
            meta: packet.meta,
        };
        left.extend(emitted.iter().map(one));
        left
    }

    /// Packets dropped so far, by reason.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        let count = |r: &DropReason| (*r, self.counters.dropped[*r as usize].read());
        assert_eq!(DropReason::ALL.len(), REASONS);
        DropReason::ALL.iter().map(count).filter(|(_, n)| *n > 0).collect()
    }

    /// A count of the element's own, by name.
    ///
    /// # Panics
    /// When it has none of that name.
    pub fn stat(element: &dyn Element, name: &str) -> u64 {
        let mut found = None;
        element.stats(&mut |n, value| found = (n == name).then_some(value).or(found));
        found.unwrap_or_else(|| panic!("no count is called {name}"))
    }
}
