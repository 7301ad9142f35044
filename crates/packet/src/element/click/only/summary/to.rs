//! `ToIPSummaryDump`: writes a line about each packet.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use super::fields::{Field, quoted};
use super::{bad, binary};
use crate::element::click::only::clock::{seconds, time_of_day};
use crate::element::click::only::console;
use crate::element::click::only::seen::Seen;
use crate::element::click::only::time;
use crate::frame::Batch;
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

pub(crate) const TO: ElementClass = ElementClass {
    spec: ClassSpec::new("ToIPSummaryDump", "1/0-1", "a/a", "x/x"),
    summary: "writes a line about each packet; drops them there, or passes them",
    configure: |setup| {
        let file = setup.args.positional_arg("FILENAME")?;
        let fields = setup.list::<Field>("FIELDS");
        let contents = setup.list::<Field>("CONTENTS");
        let data = setup.list::<Field>("DATA");
        let header = setup.args.keyword("HEADER");
        let banner = setup.args.keyword_arg("BANNER")?;
        let creator = setup.args.keyword_arg("CREATOR")?;
        let verbose = setup.args.keyword::<bool>("VERBOSE");
        let binary = setup.args.keyword::<bool>("BINARY");
        let multi = setup.args.keyword::<bool>("MULTIPACKET");
        let bad = setup.args.keyword("BAD_PACKETS");
        let careful = setup.args.keyword("CAREFUL_TRUNC");
        let extra = setup.args.keyword("EXTRA_LENGTH");
        setup.args.finish()?;
        let name: String = setup.args.read(&file, "FILENAME")?;
        let fields =
            fields?.or(contents?).or(data?).unwrap_or_else(|| vec![Field::Timestamp, Field::Src]);
        let banner =
            banner.or(creator).map(|arg| String::from_utf8_lossy(&arg.bytes()).into_owned());
        let about: Arc<str> = about(banner.as_deref(), verbose?.unwrap_or(false)).into();
        let binary = binary?.unwrap_or(false);
        if let Some(field) = fields.iter().find(|field| binary && !binary::has(**field)) {
            let words = format!("BINARY: `{}` has no binary form", field.name());
            return Err(setup.args.refuse_all(&words));
        }
        // The field `count` has the number.
        let rows = Rows {
            binary,
            multi: multi?.unwrap_or(false) && !fields.contains(&Field::Count),
            extra: extra?.unwrap_or(true),
            bad: bad?.unwrap_or(false),
            careful: careful?.unwrap_or(true),
        };
        let opened = match name.as_str() {
            "-" => None,
            _ => {
                let opened = setup.policy.output(&name);
                opened.map_err(|error| setup.args.refuse(&file, &format!("{name}: {error}")))?
            }
        };
        // Made anew, but not before it is known that the configuration is run.
        let to = Arc::new(Mutex::new(To { file: opened, console: name == "-", begun: false }));
        let (ends, header, fields) =
            (setup.outputs == 0, header?.unwrap_or(true), Arc::from(fields));
        let made = Made::new(move |instance| {
            let to = (!instance.is_dry_run()).then(|| to.clone());
            let dump = Dump { to, fields: Arc::clone(&fields), header, ends, rows };
            dump.begin(&about);
            dump
        });
        // Each batch is written at once: nothing waits to be.
        Ok(made.command("flush", || {}))
    },
};

/// Lines of the header on what makes the file.
fn about(banner: Option<&str>, verbose: bool) -> String {
    let mut text = String::new();
    if let Some(banner) = banner.filter(|banner| !banner.is_empty()) {
        let _ = writeln!(text, "!creator {}", quoted(banner.as_bytes()));
    }
    if verbose {
        let now = time_of_day(time::now_ns());
        if let Ok(host) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
            let _ = writeln!(text, "!host {}", host.trim());
        }
        let _ = writeln!(text, "!runtime {}", seconds(now));
    }
    text
}

/// Where lines go.
struct To {
    file: Option<File>,
    console: bool,
    begun: bool,
}

impl To {
    fn write(&mut self, bytes: &[u8]) {
        if self.console {
            return console::out_bytes(bytes);
        }
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(bytes)
        {
            console::err(&format!("ToIPSummaryDump: {error}\n"));
            self.file = None;
        }
    }
}

struct Dump {
    to: Option<Arc<Mutex<To>>>,
    fields: Arc<[Field]>,
    header: bool,
    ends: bool,
    rows: Rows,
}

/// What is written about a packet.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each is an argument")]
struct Rows {
    binary: bool,
    /// A packet that stands for several has as many rows.
    multi: bool,
    /// Bytes that were not captured count.
    extra: bool,
    /// What is wrong with its headers is reported before it.
    bad: bool,
    /// Bytes that are missing without a note are wrong, too.
    careful: bool,
}

/// Rows of one packet at most.
const MOST_ROWS: u32 = 1 << 16;

impl Dump {
    fn begin(&self, about: &str) {
        let Some(to) = &self.to else { return };
        let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut to.begun, true) {
            return;
        }
        if let Some(file) = &to.file {
            // A FIFO has no length.
            let _ = file.set_len(0);
        }
        if self.header {
            let names: Vec<_> = self.fields.iter().map(|field| field.name()).collect();
            let head = format!("!IPSummaryDump 1.3\n{about}!data {}\n", names.join(" "));
            to.write(head.as_bytes());
        }
        if self.rows.binary {
            to.write(b"!binary\n");
        }
    }
}

impl Dump {
    /// Writes what is wrong with a packet.
    fn report(&self, out: &mut Vec<u8>, seen: &Seen<'_>) {
        let Some(words) = bad::words(seen, self.rows.careful) else { return };
        let line = format!("!bad {words}\n");
        match self.rows.binary {
            true => binary::write_line(out, &line),
            false => out.extend(line.bytes()),
        }
    }

    fn row(&self, out: &mut Vec<u8>, seen: &Seen<'_>) {
        let texts = self.fields.iter().map(|field| seen.text(*field));
        if self.rows.binary {
            return binary::write(out, &self.fields, &texts.collect::<Vec<_>>());
        }
        for (at, text) in texts.enumerate() {
            if at > 0 {
                out.push(b' ');
            }
            out.extend(text.as_deref().unwrap_or("-").bytes());
        }
        out.push(b'\n');
    }
}

impl Element for Dump {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if let Some(to) = &self.to {
            let mut lines = Vec::new();
            for i in 0..batch.len() {
                let mut seen = Seen::packet(batch, i);
                if self.rows.bad {
                    self.report(&mut lines, &seen);
                }
                if !self.rows.extra {
                    seen.annotations.extra_length = 0;
                }
                let more = seen.annotations.extra_packets.min(MOST_ROWS);
                for _ in 0..=if self.rows.multi { more } else { 0 } {
                    self.row(&mut lines, &seen);
                }
            }
            to.lock().unwrap_or_else(PoisonError::into_inner).write(&lines);
        }
        if self.ends {
            cx.written(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::element::click::only::console;
    use crate::testing::{Rig, World};

    #[test]
    fn values_have_the_form_of_clicks() {
        let row = |fields: &str, row: &str, shown: &str| {
            summary(&format!("!data {fields}\n{row}\n"), shown, "CHECKSUM true")
        };
        let out = row("src payload_len proto", "1.0.0.1 100 U", "ip_len ip_capture_len ip_hl");
        assert_eq!(out, "128 128 20\n", "all bytes are there");
        let out = row("ip_hl ip_dscp ip_ecn", "24 46 ce", "ip_hl ip_dscp ip_ecn ip_tos ip_len");
        assert_eq!(out, "24 46 ce 187 44\n");
        for offset in ["0", "0!", "1480+", "1480+!"] {
            assert_eq!(row("ip_fragoff", offset, "ip_fragoff"), format!("{offset}\n"));
        }
        let out = row("tcp_flags tcp_opt", "SN mss7;ts1:2", "tcp_flags tcp_off tcp_ntopt tcp_sack");
        assert_eq!(out, "SN 36 mss7 .\n");
        let fields = "icmp_type_name icmp_code_name icmp_nextmtu icmp_seq";
        let out =
            row("icmp_type_name icmp_code_name icmp_nextmtu", "unreachable needfrag 576", fields);
        assert_eq!(out, "unreachable needfrag 576 -\n");
        assert_eq!(row("icmp_type icmp_seq", "8 7", fields), "echo 0 - 7\n");
        let out = row("first_ntimestamp paint", "1.000000002 3", "first_ntimestamp paint ip_src");
        assert_eq!(out, "1.000000002 3 -\n", "annotations alone are no IP packet");
    }

    #[test]
    fn the_place_in_a_file_is_shown() {
        console::collect();
        let text = "f :: FromIPSummaryDump(DATA \"!data len\n40\n50\n\", ACTIVE false) -> Discard";
        let mut rig = Rig::new(&World::new(), text);
        let shown = |rig: &Rig| ["f.filesize", "f.filepos"].map(|name| rig.read(name));
        assert_eq!(shown(&rig), ["16", "0"]);
        rig.write("f.active", "true");
        rig.poll();
        assert_eq!(shown(&rig), ["16", "13"]);
        (0..3).for_each(|_| drop(rig.poll()));
        assert_eq!(shown(&rig), ["16", "16"]);
        let file = std::env::temp_dir().join(format!("fpsummary{}.gz", std::process::id()));
        let compressed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::fs::write(&file, compressed.finish().unwrap()).unwrap();
        let text = format!("f :: FromIPSummaryDump({}) -> Discard", file.display());
        let rig = Rig::new(&World::new(), &text);
        std::fs::remove_file(file).unwrap();
        assert_eq!(shown(&rig), ["-", "0"], "it is not known");
    }

    #[test]
    fn lines_may_have_values_for_all() {
        let data = "!flowid 1.0.0.1 5 2.0.0.2 6 U\n!aggregate 9\n!data len\n40\n\nx y\n50";
        let fields = "src sport dst dport proto aggregate len";
        let out = summary(data, fields, "");
        let flow = "1.0.0.1 5 2.0.0.2 6 U 9";
        assert_eq!(out, format!("{flow} 40\n{flow} 50\n"), "a line of no field is no packet");
        assert_eq!(summary("1 2\n", "len", ""), "");
        let out = summary("!data len count\n40 3\n", "len count", "MULTIPACKET true");
        assert_eq!(out, "40 1\n".repeat(3));
    }

    #[test]
    fn a_line_that_counts_several_is_as_many_packets() {
        let row = "!data len proto first_timestamp timestamp count\n200 U 1 4 4\n";
        let fields = "timestamp len udp_len wire_len count";
        let out = summary(row, fields, "MULTIPACKET true");
        let line = |time| format!("{time}.000000 50 30 50 1\n");
        assert_eq!(out, [1, 2, 3, 4].map(line).concat());
        let rest = summary("!data len count\n131 3\n", "len timestamp", "MULTIPACKET true");
        assert_eq!(rest, "43 0.000000\n43 0.000000\n45 0.000000\n");
        let row = "!data len count\n400 1000\n";
        let some = summary_of(row, "len", "MULTIPACKET true, SAMPLE 0.5", 1100).lines().count();
        assert!((1..1000).contains(&some), "{some}: it is decided for each packet");
        // Not all of a line at once.
        let text = "FromIPSummaryDump(DATA \"!data len count\n40 4294967295\n\", MULTIPACKET true, SAMPLE 0) -> ToDevice(x)";
        assert!(Rig::new(&World::new(), text).poll().is_empty());
    }

    #[test]
    fn offsets_of_fragments_have_the_unit_of_the_version() {
        for (head, want) in [
            ("!IPSummaryDump 1.0\n", "800+ f\n0+ F\n"),
            ("!IPSummaryDump 1.3\n", "96+ f\n0+ F\n"),
            ("", "96+ f\n0+ F\n"),
            ("# none\n!IPSummaryDump 1.0\n", "96+ f\n0+ F\n"),
        ] {
            let out =
                summary(&format!("{head}!data ip_fragoff\n100+\nF\n"), "ip_fragoff ip_frag", "");
            assert_eq!(out, want, "{head}");
        }
        assert_eq!(summary("!data ip_frag\n64\n", "ip_fragoff", ""), "64\n");
    }

    #[test]
    fn a_header_names_who_wrote_it() {
        console::collect();
        let text = "FromIPSummaryDump(DATA \"!data ts src\\n1 1.0.0.1\", STOP true) -> t :: ToIPSummaryDump(-, BANNER \"a b\")";
        let mut rig = Rig::new(&World::new(), text);
        (0..5).for_each(|_| drop(rig.poll()));
        rig.write("t.flush", "");
        let head = "!IPSummaryDump 1.3\n!creator \"a b\"\n!data timestamp ip_src\n";
        assert_eq!(console::collected().out, format!("{head}1.000000 1.0.0.1\n"));
    }

    #[test]
    fn a_verbose_header_has_the_host_and_the_time() {
        console::collect();
        let text =
            "FromIPSummaryDump(DATA \"!data \\\"ip src\\\" dst\n1.0.0.1 2.0.0.2\", STOP true)
            -> ToIPSummaryDump(-, VERBOSE true, FIELDS ip_src ip_dst)";
        let mut rig = Rig::new(&World::new(), text);
        (0..5).for_each(|_| drop(rig.poll()));
        let out = console::collected().out;
        let lines: Vec<_> = out.lines().collect();
        assert!(lines[1].starts_with("!host "), "{out}");
        assert!(lines[2].starts_with("!runtime "), "{out}");
        assert_eq!(lines[3..], ["!data ip_src ip_dst", "1.0.0.1 2.0.0.2"]);
    }

    #[test]
    fn other_letters_and_names_are_read() {
        let out = summary(
            "!data tcp_flags direction tcp_opt\nXY L 98\nEW X .\nC R mss7\n",
            "\"tcp flags\" direction tcp_opt",
            "",
        );
        assert_eq!(out, "EC > 98\nEC < .\nC < mss7\n");
    }

    fn summary(data: &str, fields: &str, more: &str) -> String {
        summary_of(data, fields, more, 50)
    }

    fn summary_of(data: &str, fields: &str, more: &str, rounds: usize) -> String {
        console::collect();
        let text = format!(
            "f :: FromIPSummaryDump(DATA \"{data}\", STOP true, {more}) -> ToIPSummaryDump(-, HEADER false, FIELDS {fields})"
        );
        let mut rig = Rig::new(&World::new(), &text);
        for _ in 0..rounds {
            rig.poll();
            rig.bench.now_ns += 100_000_000;
        }
        assert!(rig.plan.is_stopped());
        console::collected().out
    }

    #[test]
    fn what_is_read_is_written() {
        let row = "1.500000 1.2.3.4 5.6.7.8 T 10 20 3 4 SA mss1460 7 9 2";
        let fields = "timestamp ip_src ip_dst ip_proto sport dport tcp_seq tcp_ack tcp_flags tcp_opt ip_ttl ip_tos link";
        let out = summary(&format!("!data {fields}\n# none\n{row}\n"), fields, "CHECKSUM true");
        assert_eq!(out, format!("{row}\n"));
        let out = summary(
            "!data src dst icmp_type icmp_code\n1.0.0.1 2.0.0.2 8 1 # more",
            "proto icmp_type icmp_code sport ip_len",
            "ZERO true",
        );
        assert_eq!(out, "I 8 1 - 28\n");
        let out = summary(
            "!proto U\n!data dst len direction payload\n1.0.0.1 40 < \\\"a b\\\"\n",
            "proto len udp_len direction payload payload_len",
            "TIMING false",
        );
        assert_eq!(out, "U 40 20 < \"a b\" 12\n", "what is not there is noted");
        let out = summary("!data ts_usec1 ts_sec\n-9 -\n- -2\n7 3\n", "timestamp", "ZERO true");
        assert_eq!(out, "0.000000\n0.000000\n3.000007\n", "no time is before 1970");
    }

    #[test]
    fn bad_packets_are_reported() {
        let shown = |more: &str| {
            console::collect();
            let text = format!(
                "FromIPSummaryDump(DATA \"!data src len\n1.0.0.1 60\", STOP true, CHECKSUM true) -> Truncate(50, EXTRA_LENGTH false)
                 -> StoreData(0, \\<44>) -> ToIPSummaryDump(-, HEADER false, FIELDS src wire_len, {more})"
            );
            let mut rig = Rig::new(&World::new(), &text);
            (0..5).for_each(|_| drop(rig.poll()));
            console::collected().out
        };
        assert_eq!(shown("BAD_PACKETS false").lines().count(), 1);
        let lines = shown("BAD_PACKETS true");
        assert!(lines.starts_with("!bad IP header length 4\n"), "{lines}");
        let lines = shown("BAD_PACKETS true").replace("header length 4", "");
        assert_eq!(lines.lines().count(), 2, "the packet has its line");
    }

    #[test]
    fn bytes_without_capture_count() {
        let data = "!data src len\n1.0.0.1 60\n";
        assert_eq!(summary(data, "wire_len payload_len", ""), "60 20\n");
        assert_eq!(summary(data, "wire_len payload_len, EXTRA_LENGTH false", ""), "40 0\n");
    }

    #[test]
    fn times_are_kept() {
        console::collect();
        let text = "FromIPSummaryDump(DATA \"!data timestamp\n5\n5.25\n6\", TIMING true) -> c :: Counter -> Discard";
        let mut rig = Rig::new(&World::new(), text);
        let counts: Vec<_> = (0..12)
            .map(|_| {
                rig.poll();
                rig.bench.now_ns += 100_000_000;
                rig.read("c.count")
            })
            .collect();
        assert_eq!(counts.concat(), "111222222233", "0, 0.25 and 1 s");
        assert_eq!(rig.graph.due_ns(), None);
    }

    #[test]
    fn options_and_digests_of_payloads_are_fields() {
        let row = |fields: &str, row: &str, shown: &str| {
            summary(&format!("!data {fields}\n{row}\n"), shown, "CHECKSUM true")
        };
        let out = row("ip_opt sport", "rr{1.0.0.1}+1 80", "ip_opt ip_hl sport ip_len");
        assert_eq!(out, "rr{1.0.0.1}+1 32 80 52\n");
        assert_eq!(row("ip_hl ip_opt", "28 148=0:0", "ip_opt ip_hl"), "148=0:0 28\n");
        let out = row("payload", "\\\"abc\\\"", "payload_md5_hex");
        assert_eq!(out, "900150983cd24fb0d6963f7d28e17f72\n");
        assert_eq!(summary("!data len count\n40 3\n", "len", ", SAMPLE 0"), "");
    }

    #[test]
    fn rows_may_be_binary_and_files_compressed() {
        let file = std::env::temp_dir().join(format!("fpsummary{}", std::process::id()));
        let name = file.display();
        let fields = "timestamp ip_src sport ip_len tcp_flags payload";
        let text = format!(
            "FromIPSummaryDump(DATA \"!data {fields} count\n1.5 1.0.0.1 80 44 SA \\\"a b\\\" 2\", STOP true)
             -> ToIPSummaryDump({name}, FIELDS {fields}, BINARY true, MULTIPACKET true)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        (0..5).for_each(|_| drop(rig.poll()));
        let head = format!("!IPSummaryDump 1.3\n!data {fields}\n!binary\n");
        let bytes = std::fs::read(&file).unwrap();
        assert_eq!(bytes.len(), head.len() + 2 * (4 + 8 + 4 + 2 + 4 + 1 + 7));
        assert!(bytes.starts_with(head.as_bytes()));
        let read = |name: &str| {
            console::collect();
            let text = format!(
                "FromIPSummaryDump({name}, STOP true) -> ToIPSummaryDump(-, HEADER false, FIELDS {fields})"
            );
            let mut rig = Rig::new(&World::new(), &text);
            (0..9).for_each(|_| drop(rig.poll()));
            console::collected().out
        };
        let row = "1.500000 1.0.0.1 80 44 SA \"a b\"\n";
        assert_eq!(read(&name.to_string()), row.repeat(2));
        let status = std::process::Command::new("gzip").arg("-f").arg(&file).status();
        if !status.is_ok_and(|status| status.success()) {
            return println!("skipped: needs gzip");
        }
        assert_eq!(read(&format!("{name}.gz")), row.repeat(2));
        std::fs::remove_file(format!("{name}.gz")).unwrap();
        let refused =
            crate::testing::refused(&super::TO, "/dev/null, FIELDS icmp_type_name, BINARY true");
        assert!(refused.contains("`icmp_type_name` has no binary form"), "{refused}");
    }
}
