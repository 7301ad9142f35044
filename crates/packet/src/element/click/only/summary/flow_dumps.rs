//! `ToIPFlowDumps(PATTERN)` writes a summary file for each flow of TCP or UDP.
//!
//! Source: Click's `ToIPFlowDumps`. A flow has the packets of one aggregate, a direction those of one color, as
//! `AggregateIPFlows` gives them; packets without aggregate, later fragments and other protocols are in no file. The
//! name of a file is the pattern ([`super::pattern`]), `-` is standard output. A file begins with lines about its
//! flow: `!flowid`, its ends in the direction that has color 0; `!aggregate`; for TCP `!firstseq >` and `!firstseq <`,
//! the sequence numbers that those of each direction are relative to, unless `ABSOLUTE_SEQ` is given (the manual of
//! Click calls them `!first_seq`, and so on, and its program does not); `!firsttime`, which times are relative to,
//! unless `ABSOLUTE_TIME`: a microsecond before the first packet, since a time of 0 would be none. The fields are `timestamp`, `direction` and `payload_len`, for
//! TCP `timestamp`, `direction`, `tcp_flags`, `tcp_seq`, `payload_len` and `tcp_ack`, then with `IP_ID` `ip_id`, for
//! TCP with `TCP_WINDOW` `tcp_win`, with `TCP_OPT` the options but timestamps, with `ALL_TCP_OPT` all of them.
//! `BINARY` rows are those of `ToIPSummaryDump`. `GZIP` compresses the files, whose names end in `.gz` then. Flows of
//! fewer packets than `MINCOUNT` have no file.
//! Rows wait until there are 1,024 of a flow, or 16 MiB in all, until the flow ends by its `NOTIFIER` (an
//! `AggregateIPFlows`) and until the router stops; `clear` writes all and forgets all flows. The folders of a file are
//! made where the configuration may open everything. All workers write the files together, under a lock a batch.
//! Differs: 262,144 flows are known at most; one more writes all, and forgets them.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::binary;
use super::fields::Field;
use super::pattern::{Named, Pattern};
use crate::element::click::only::aggregate::ended::{Ended, Listener};
use crate::element::click::only::clock::seconds;
use crate::element::click::only::console;
use crate::element::click::only::seen::{Seen, long, word};
use crate::frame::Batch;
use crate::frame::wire::Ip4;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;
use crate::language::open_policy::OpenPolicy;

pub(crate) const FLOWS: ElementClass = ElementClass {
    spec: ClassSpec::new("ToIPFlowDumps", "1/0-1", "a/a", "x/x"),
    summary: "writes a summary file for each flow; drops packets there, or passes them",
    configure: |setup| {
        let pattern = setup.args.optional_arg("OUTPUT_PATTERN")?;
        let other_name = setup.args.keyword_arg("FILEPATTERN")?;
        let notifier = setup.args.keyword_arg("NOTIFIER")?;
        let mut is = |name| setup.args.keyword::<bool>(name).map(|is| is.unwrap_or(false));
        let format = Format {
            absolute_time: is("ABSOLUTE_TIME")?,
            absolute_seq: is("ABSOLUTE_SEQ")?,
            binary: is("BINARY")?,
            id: is("IP_ID")?,
            window: is("TCP_WINDOW")?,
            options: match (is("ALL_TCP_OPT")?, is("TCP_OPT")?) {
                (true, _) => Some(Field::Options),
                (false, true) => Some(Field::NotableOptions),
                (false, false) => None,
            },
        };
        let gzip = is("GZIP")?;
        let least = setup.args.keyword::<u64>("MINCOUNT");
        setup.args.finish()?;
        let pattern = match pattern.or(other_name) {
            None => Pattern::read("-").unwrap_or_default(),
            Some(arg) => {
                let text: String = setup.args.read(&arg, "OUTPUT_PATTERN")?;
                Pattern::read(&text).map_err(|words| setup.args.refuse(&arg, &words))?
            }
        };
        let ended = notifier.map(|arg| Ended::of(setup, &arg)).transpose()?;
        let ended = ended.map(|ended| Arc::new(ended.listen()));
        let dumps = Dumps {
            files: Files { pattern, gzip, policy: setup.policy.clone() },
            format,
            least: least?.unwrap_or(0),
            flows: BTreeMap::new(),
            waiting: 0,
            over: VecDeque::new(),
        };
        let dumps = Arc::new(Mutex::new(dumps));
        let (clear, ends) = (dumps.clone(), setup.outputs == 0);
        let made = Made::new(move |instance| ToFlows {
            dumps: (!instance.is_dry_run()).then(|| dumps.clone()),
            ended: ended.clone(),
            ends,
        });
        Ok(made.command("clear", move || lock(&clear).clear()))
    },
};

fn lock(dumps: &Mutex<Dumps>) -> MutexGuard<'_, Dumps> {
    // At worst a row is written twice.
    dumps.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is written of a packet, and how.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each is an argument")]
struct Format {
    absolute_time: bool,
    absolute_seq: bool,
    binary: bool,
    id: bool,
    window: bool,
    options: Option<Field>,
}

impl Format {
    /// Fields of the packets of a protocol.
    fn fields(self, protocol: u8) -> Vec<Field> {
        let mut fields = vec![Field::Timestamp, Field::Direction];
        match protocol {
            TCP => fields.extend([Field::Flags, Field::Seq, Field::PayloadLen, Field::Ack]),
            _ => fields.push(Field::PayloadLen),
        }
        fields.extend(self.id.then_some(Field::Id));
        if protocol == TCP {
            fields.extend(self.window.then_some(Field::Window));
            fields.extend(self.options);
        }
        fields
    }
}

/// Names of files, and how they are opened.
struct Files {
    pattern: Pattern,
    gzip: bool,
    policy: OpenPolicy,
}

impl Files {
    /// Writes to the file of a flow, whose first bytes these are or not.
    fn write(&self, named: &Named, is_new: bool, bytes: &[u8]) {
        let mut name = self.pattern.name(named);
        if name == "-" {
            return console::out_bytes(bytes);
        }
        if self.gzip && !name.ends_with(".gz") {
            name.push_str(".gz");
        }
        if let Err(error) = self.write_to(&name, is_new, bytes) {
            console::err(&format!("ToIPFlowDumps: {name}: {error}\n"));
        }
    }

    fn write_to(&self, name: &str, is_new: bool, bytes: &[u8]) -> io::Result<()> {
        let file = match is_new {
            true => self.policy.new_output_in_folder(name)?,
            false => self.policy.output(name)?,
        };
        let Some(mut file) = file else { return Ok(()) };
        if !self.gzip {
            return file.write_all(bytes);
        }
        // Several streams one behind the other are one file.
        let mut encoder = GzEncoder::new(file, Compression::default());
        encoder.write_all(bytes)?;
        encoder.finish().map(drop)
    }
}

/// A flow, and rows of it that wait to be written.
struct Flow {
    named: Named,
    fields: Vec<Field>,
    zero_ns: i64,
    /// Numbers that those of each direction are relative to.
    first_seq: [Option<u32>; 2],
    packets: u64,
    rows: Vec<u8>,
    waiting: u32,
    has_file: bool,
}

impl Flow {
    /// The flow of a packet; `None` where it is of none.
    fn of(seen: &Seen<'_>, format: Format) -> Option<Self> {
        let (protocol, transport) = seen.transport()?;
        if !matches!(protocol, TCP | UDP) {
            return None;
        }
        let header = Ip4::at(seen.ip()?, 0)?;
        let mut ends = [
            (Ipv4Addr::from_bits(header.src()), word(transport, 0)?),
            (Ipv4Addr::from_bits(header.dst()), word(transport, 2)?),
        ];
        if seen.paint & 1 != 0 {
            ends.reverse();
        }
        let aggregate = seen.annotations.aggregate;
        Some(Self {
            named: Named { aggregate, ends, protocol: if protocol == TCP { 'T' } else { 'U' } },
            fields: format.fields(protocol),
            zero_ns: (seen.annotations.timestamp_ns - 1000).max(0),
            first_seq: [None; 2],
            packets: 0,
            rows: Vec::new(),
            waiting: 0,
            has_file: false,
        })
    }

    /// Adds the row of a packet; by how many bytes those that wait are more.
    fn add(&mut self, seen: &Seen<'_>, format: Format) -> usize {
        let before = self.rows.len();
        let direction = usize::from(seen.paint & 1);
        let tcp = seen.of(TCP).unwrap_or_default();
        let acks = word(tcp, 12).is_some_and(|flags| flags & ACK != 0);
        if !tcp.is_empty() {
            let (seq, ack) = (long(tcp, 4), long(tcp, 8));
            self.first_seq[direction] = self.first_seq[direction].or(seq);
            if acks && self.first_seq[1 - direction].is_none() {
                // What it acknowledges was not seen: a SYN, as far as one knows.
                self.first_seq[1 - direction] = ack.map(|ack| ack.wrapping_sub(1));
            }
        }
        let mut seen = *seen;
        if !format.absolute_time {
            seen.annotations.timestamp_ns -= self.zero_ns;
        }
        let relative = |field: Field| {
            let first = match field {
                Field::Seq if !format.absolute_seq => self.first_seq[direction],
                Field::Ack if !format.absolute_seq && acks => self.first_seq[1 - direction],
                _ => None,
            };
            let text = seen.text(field)?;
            let Some(first) = first else { return Some(text) };
            let number = text.parse::<u32>().ok()?;
            Some(number.wrapping_sub(first).to_string())
        };
        let texts: Vec<_> = self.fields.iter().map(|field| relative(*field)).collect();
        match format.binary {
            true => binary::write(&mut self.rows, &self.fields, &texts),
            false => {
                let words: Vec<_> = texts.iter().map(|t| t.as_deref().unwrap_or("-")).collect();
                self.rows.extend(words.join(" ").bytes());
                self.rows.push(b'\n');
            }
        }
        self.packets += 1;
        self.waiting += 1;
        self.rows.len() - before
    }

    /// Lines about the flow.
    fn head(&self, format: Format) -> String {
        let [(src, sport), (dst, dport)] = self.named.ends;
        let Named { aggregate, protocol, .. } = self.named;
        let mut text = format!(
            "!IPSummaryDump 1.3\n!flowid {src} {sport} {dst} {dport} {protocol}\n!aggregate {aggregate}\n"
        );
        let seqs = [">", "<"].into_iter().zip(self.first_seq);
        for (direction, seq) in seqs.filter(|_| !format.absolute_seq) {
            if let Some(seq) = seq {
                text += &format!("!firstseq {direction} {seq}\n");
            }
        }
        if !format.absolute_time {
            text += &format!("!firsttime {}\n", seconds(self.zero_ns));
        }
        let names: Vec<_> = self.fields.iter().map(|field| field.name()).collect();
        text += &format!("!data {}\n", names.join(" "));
        if format.binary {
            text += "!binary\n";
        }
        text
    }

    /// Writes what waits, and returns how many bytes these were.
    fn write(&mut self, files: &Files, format: Format) -> usize {
        if self.rows.is_empty() {
            return 0;
        }
        let is_new = !std::mem::replace(&mut self.has_file, true);
        let mut bytes = if is_new { self.head(format).into_bytes() } else { Vec::new() };
        bytes.extend(&self.rows);
        files.write(&self.named, is_new, &bytes);
        self.waiting = 0;
        std::mem::take(&mut self.rows).len()
    }
}

/// Flag of TCP segments with an acknowledgment.
const ACK: u16 = 0x10;
/// Rows of a flow that wait at most.
const MOST_ROWS: u32 = 1024;
/// Bytes of rows that wait at most.
const MOST_WAITING: usize = 16 << 20;
/// Flows that are known at most.
const MOST_FLOWS: usize = 1 << 18;
/// Flows that are over and still known: packets of them may still come.
const MOST_OVER: usize = 4096;

/// All flows.
struct Dumps {
    files: Files,
    format: Format,
    /// Packets of a flow that is written, at least.
    least: u64,
    flows: BTreeMap<u32, Flow>,
    /// Bytes of rows that wait.
    waiting: usize,
    /// Flows that are over.
    over: VecDeque<u32>,
}

impl Dumps {
    fn add(&mut self, seen: &Seen<'_>) {
        let aggregate = seen.annotations.aggregate;
        let of_flow = seen.transport().is_some_and(|(protocol, _)| matches!(protocol, TCP | UDP));
        if aggregate == 0 || !of_flow {
            return;
        }
        if self.flows.len() >= MOST_FLOWS && !self.flows.contains_key(&aggregate) {
            self.clear();
        }
        let Self { files, format, least, flows, waiting, .. } = self;
        let flow = match flows.entry(aggregate) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                let Some(flow) = Flow::of(seen, *format) else { return };
                place.insert(flow)
            }
        };
        *waiting += flow.add(seen, *format);
        if flow.waiting >= MOST_ROWS && flow.packets >= *least {
            *waiting -= flow.write(files, *format);
        }
        if self.waiting > MOST_WAITING {
            self.write_all();
            // What has too few packets for a file, in so many flows.
            if self.waiting > MOST_WAITING / 2 {
                self.clear();
            }
        }
    }

    /// Writes what waits of flows that have enough packets.
    fn write_all(&mut self) {
        let enough = self.flows.values_mut().filter(|flow| flow.packets >= self.least);
        for flow in enough {
            self.waiting -= flow.write(&self.files, self.format);
        }
    }

    fn clear(&mut self) {
        self.write_all();
        self.flows.clear();
        self.over.clear();
        self.waiting = 0;
    }

    /// Writes flows that have ended, and forgets those that ended long before them.
    fn end(&mut self, ended: Vec<u32>) {
        for aggregate in ended {
            let Some(flow) = self.flows.get_mut(&aggregate) else { continue };
            if flow.packets >= self.least {
                self.waiting -= flow.write(&self.files, self.format);
            }
            self.over.push_back(aggregate);
        }
        while self.over.len() > MOST_OVER {
            let oldest = self.over.pop_front().and_then(|oldest| self.flows.remove(&oldest));
            self.waiting -= oldest.map_or(0, |flow| flow.rows.len());
        }
    }
}

struct ToFlows {
    /// `None` where packets are only evaluated.
    dumps: Option<Arc<Mutex<Dumps>>>,
    /// Flows that end, of the element that numbers them.
    ended: Option<Arc<Listener>>,
    ends: bool,
}

impl Element for ToFlows {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if let Some(dumps) = &self.dumps {
            let mut dumps = lock(dumps);
            for i in 0..batch.len() {
                dumps.add(&Seen::packet(batch, i));
            }
            // Packets of such a flow may be in this batch.
            if let Some(ended) = &self.ended {
                dumps.end(ended.take());
            }
        }
        if self.ends {
            cx.written(batch);
        }
    }

    fn stop(&mut self, _: &mut Context<'_>) {
        self.write_all();
    }
}

impl ToFlows {
    fn write_all(&self) {
        if let Some(dumps) = &self.dumps {
            lock(dumps).write_all();
        }
    }
}

impl Drop for ToFlows {
    /// Writes what waits: a program that ends does not stop its elements in any case.
    fn drop(&mut self) {
        self.write_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::testing::{Rig, World, refused};

    const THERE: &str = "1.0.0.1 5 2.0.0.2 80 T";
    const BACK: &str = "2.0.0.2 80 1.0.0.1 5 T";

    /// A handshake and data, and a UDP packet.
    fn rows() -> String {
        format!(
            "!data timestamp src sport dst dport proto tcp_flags tcp_seq tcp_ack payload_len ip_id tcp_win tcp_opt
1 {THERE} S 1000 0 0 7 512 mss1460;ts1:2
1.25 {BACK} SA 4294967295 1001 0 8 513 .
1.5 {THERE} PA 1001 0 3 9 514 .
2 3.0.0.3 9 4.0.0.4 53 U - - - 4 10 - -
"
        )
    }

    /// What is written to standard output about these rows.
    fn dumped(rows: &str, more: &str) -> String {
        console::collect();
        let text = format!(
            "FromIPSummaryDump(DATA \"{rows}\", STOP true, CHECKSUM true) -> a :: AggregateIPFlows -> t :: ToIPFlowDumps({more})"
        );
        let mut rig = Rig::new(&World::new(), &text);
        (0..20).for_each(|_| drop(rig.poll()));
        drop(rig);
        console::collected().out
    }

    #[test]
    fn each_flow_has_lines_of_its_own() {
        let udp = "!IPSummaryDump 1.3\n!flowid 3.0.0.3 9 4.0.0.4 53 U\n!aggregate 2\n!firsttime 1.999999\n\
            !data timestamp direction payload_len\n0.000001 > 4\n";
        let head = "!IPSummaryDump 1.3\n!flowid 1.0.0.1 5 2.0.0.2 80 T\n!aggregate 1\n";
        let fields = "timestamp direction tcp_flags tcp_seq payload_len tcp_ack";
        let tcp = format!(
            "{head}!firstseq > 1000\n!firstseq < 4294967295\n!firsttime 0.999999\n!data {fields}\n\
             0.000001 > S 0 0 0\n0.250001 < SA 0 0 1\n0.500001 > PA 1 3 1\n"
        );
        assert_eq!(dumped(&rows(), "-"), format!("{tcp}{udp}"));
        assert_eq!(dumped(&rows(), ""), dumped(&rows(), "OUTPUT_PATTERN -, NOTIFIER a"));
        let more = "FILEPATTERN -, ABSOLUTE_TIME true, ABSOLUTE_SEQ true, IP_ID true, TCP_WINDOW true, TCP_OPT true, MINCOUNT 2";
        let want = format!(
            "{head}!data {fields} ip_id tcp_win tcp_ntopt\n1.000000 > S 1000 0 0 7 512 mss1460\n\
             1.250000 < SA 4294967295 0 1001 8 513 .\n1.500000 > PA 1001 3 0 9 514 .\n"
        );
        assert_eq!(dumped(&rows(), more), want);
        assert!(dumped(&rows(), "-, ALL_TCP_OPT true").contains("> S 0 0 0 mss1460;ts1:2\n"));
    }

    #[test]
    fn what_answers_first_is_turned() {
        // The second direction is the first that is seen of the pair of numbers.
        let rows = format!(
            "!data src sport dst dport proto tcp_flags tcp_seq tcp_ack direction aggregate\n{BACK} A 70 20 < 6\n"
        );
        console::collect();
        let text = format!("FromIPSummaryDump(DATA \"{rows}\", STOP true) -> ToIPFlowDumps(-)");
        let mut rig = Rig::new(&World::new(), &text);
        (0..5).for_each(|_| drop(rig.poll()));
        rig.write("ToIPFlowDumps@2.clear", "");
        let out = console::collected().out;
        let want = "!flowid 1.0.0.1 5 2.0.0.2 80 T\n!aggregate 6\n!firstseq > 19\n!firstseq < 70\n!firsttime 0.000000\n";
        assert!(out.contains(want), "{out}");
        assert!(out.ends_with("0.000000 < A 0 0 1\n"), "{out}");
        rig.graph.stop(&mut rig.bench.round());
        assert_eq!(console::collected().out, "", "it was written");
    }

    fn folder(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("fpflows-{name}-{}", std::process::id()))
    }

    #[test]
    fn files_are_named_by_flow() {
        let folder = folder("named");
        let pattern = folder.join("%.3n/%p%03n-%s");
        let pattern = pattern.display().to_string();
        assert_eq!(dumped(&rows(), &pattern), "");
        let tcp = std::fs::read_to_string(folder.join("1/T001-1.0.0.1")).unwrap();
        assert!(tcp.ends_with("0.500001 > PA 1 3 1\n"), "{tcp}");
        assert_eq!(
            std::fs::read_to_string(folder.join("2/U002-3.0.0.3")).unwrap().lines().count(),
            6
        );
        dumped(&rows(), &format!("{pattern}, GZIP true, BINARY true"));
        let file = std::fs::File::open(folder.join("2/U002-3.0.0.3.gz")).unwrap();
        let mut bytes = Vec::new();
        flate2::read::MultiGzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        let row = [0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0, 1, b'>', 0, 0, 0, 4];
        assert!(bytes.ends_with(&[b"!binary\n", &row[..]].concat()), "{bytes:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn long_flows_are_written_in_parts() {
        let folder = folder("long");
        let pattern = folder.join("%n").display().to_string();
        let flow = |port| format!("{port} 1.0.0.1 5 2.0.0.2 80 U\n");
        let text: String = (0..1500).map(|_| flow(1)).collect();
        let rows = format!(
            "!data timestamp src sport dst dport proto\n{text}200 1.0.0.1 5 2.0.0.2 80 U\n"
        );
        console::collect();
        let text = format!(
            "FromIPSummaryDump(DATA \"{rows}\", STOP true) -> a :: AggregateIPFlows -> ToIPFlowDumps({pattern}, NOTIFIER a)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        let lines =
            || std::fs::read_to_string(folder.join("1")).map_or(0, |text| text.lines().count());
        (0..1400).for_each(|_| drop(rig.poll()));
        assert_eq!(lines(), 5 + 1024);
        (0..200).for_each(|_| drop(rig.poll()));
        assert_eq!(lines(), 5 + 1500, "the flow has ended: another one has begun");
        assert!(!folder.join("2").exists());
        rig.graph.stop(&mut rig.bench.round());
        assert!(folder.join("2").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_of_no_flow_is_in_no_file() {
        let rows = "!data src dst proto fragoff aggregate\n1.0.0.1 2.0.0.2 I 0 4\n1.0.0.1 2.0.0.2 U 80 4\n1.0.0.1 2.0.0.2 U 0 0\n";
        console::collect();
        let text = format!(
            "FromIPSummaryDump(DATA \"{rows}\", STOP true) -> t :: ToIPFlowDumps(-) -> c :: Counter -> Discard"
        );
        let mut rig = Rig::new(&World::new(), &text);
        (0..5).for_each(|_| drop(rig.poll()));
        rig.write("t.clear", "");
        assert_eq!((console::collected().out, rig.read("c.count")), (String::new(), "3".into()));
        assert!(refused(&FLOWS, "/tmp/%q").contains("%q"));
        assert!(refused(&FLOWS, "-, NOTIFIER x").contains("no element that numbers flows"));
    }
}
