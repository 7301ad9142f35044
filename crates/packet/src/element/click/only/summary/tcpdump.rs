//! `FromTcpdump`: makes packets of the lines that `tcpdump` prints.
//!
//! Source: Click's `FromTcpdump`; the output of tcpdump 3 (`S 5:5(0) win 8 <mss 1460> (DF) (ttl 64, id 7)`) and of tcpdump 4
//! (`Flags [S], seq 5, win 8, options [mss 1460], length 0`), with `-n`; `-S` and `-v` print more of a packet. Lines about
//! anything but IPv4 are no packets, nor are ICMP messages of an unknown type. Sequence numbers that count from the first one
//! of their connection are those of the connection again, where its `SYN` was there. A segment without a sequence number has
//! the next one of its direction. The payload is zero bytes, with `ZERO false` none.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use super::fields::{Described, Field};
use super::source::{Form, Given, Row, open};
use crate::element::click::only::clock::{SECOND_NS, read_seconds};
use crate::filter::names::{self, Port};
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::ip4::FRAGMENT_OFFSET;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::graph::ElementClass;
use crate::language::{ClassSpec, Value};

pub(crate) const FROM: ElementClass = ElementClass {
    spec: ClassSpec::new("FromTcpdump", "0/1", "h/a", "x/y"),
    summary: "makes packets of the lines that tcpdump prints",
    configure: |setup| {
        let file = setup.args.positional_arg("FILENAME")?;
        let given = Given::read(setup);
        let timing = setup.args.keyword("TIMING");
        let zero = setup.args.keyword("ZERO");
        let checksum = setup.args.keyword("CHECKSUM");
        setup.args.finish()?;
        let form = Tcpdump {
            zero: zero?.unwrap_or(true),
            checksum: checksum?.unwrap_or(false),
            timing: timing?.unwrap_or(false),
            pending: None,
            first: HashMap::new(),
            next: HashMap::new(),
        };
        let lines = open(setup, Some(&file), None, false)?;
        given.made(setup, lines, form)
    },
};

/// An end of a connection and the other one: addresses and ports.
type Direction = [(u32, u16); 2];

/// Connections whose first sequence numbers are known, at most.
const MOST_CONNECTIONS: usize = 1 << 16;

#[derive(Clone)]
struct Tcpdump {
    zero: bool,
    checksum: bool,
    timing: bool,
    /// What a line had of a packet that the next line continues.
    pending: Option<Described>,
    /// First sequence number of each direction.
    first: HashMap<Direction, u32>,
    /// Number behind the last one of each direction.
    next: HashMap<Direction, u32>,
}

impl Form for Tcpdump {
    const NAME: &'static str = "FromTcpdump";

    fn line(&mut self, line: &str) -> Option<Row> {
        let pending = self.pending.take();
        let continues = line.starts_with(char::is_whitespace);
        let rest = line.trim();
        let (mut packet, rest) = match pending.filter(|_| continues) {
            Some(packet) => (packet, rest),
            None => {
                let mut packet = Described::default();
                let (time, rest) = timestamp(rest)?;
                packet.annotations.timestamp_ns = time;
                let rest = rest.strip_prefix("IP ").unwrap_or(rest);
                match rest.strip_prefix('(').and_then(group) {
                    Some((header, rest)) => {
                        take_header(&mut packet, header);
                        (packet, rest.trim_start())
                    }
                    None => (packet, rest),
                }
            }
        };
        if rest.is_empty() {
            self.pending = Some(packet);
            return None;
        }
        let (ends, rest) = rest.split_once(": ")?;
        let (src, dst) = ends.split_once(" > ")?;
        let ends = [end(src)?, end(dst.trim_end_matches(':'))?];
        (packet.src, packet.dst) = (ends[0].0, ends[1].0);
        packet.ports = ends.map(|(_, port)| port.unwrap_or(0));
        let direction = ends.map(|(addr, port)| (addr, port.unwrap_or(0)));
        self.take_rest(&mut packet, rest, direction, ends[0].1.is_some())?;
        let protocol = packet.proto.unwrap_or(TCP);
        let bytes = packet.packet(protocol, self.zero, self.checksum);
        Some((bytes, packet.annotations, 0))
    }

    fn is_timed(&self) -> bool {
        self.timing
    }
}

impl Tcpdump {
    /// Takes what stands behind the addresses; `None` where it is no packet.
    fn take_rest(
        &mut self,
        packet: &mut Described,
        rest: &str,
        direction: Direction,
        has_ports: bool,
    ) -> Option<()> {
        take_trailers(packet, rest);
        let lower = rest.to_ascii_lowercase();
        if let Some(message) = lower.strip_prefix("icmp") {
            packet.proto = Some(PROTOCOL_ICMP);
            let known = take_icmp(packet, message.trim_start_matches([':', ' ', '6']));
            // A later fragment has no type.
            if known.is_none() && packet.fragment & FRAGMENT_OFFSET == 0 {
                return None;
            }
        } else if let Some(words) = lower.strip_prefix("udp") {
            packet.proto = Some(UDP);
            take(packet, Field::PayloadLen, number_in(words));
        } else if let Some(words) = lower.strip_prefix("tcp ") {
            packet.proto = Some(TCP);
            take(packet, Field::PayloadLen, number_in(words));
        } else if let Some(words) = lower.strip_prefix("ip-proto-") {
            let (protocol, words) = words.split_once(' ').unwrap_or((words, ""));
            packet.proto = u8::read(protocol).ok();
            take(packet, Field::PayloadLen, number_in(words));
        } else if has_ports && self.take_tcp(packet, rest, direction) {
            packet.proto = Some(TCP);
        } else if packet.proto.is_none() && has_ports {
            // A protocol above UDP: its length stands in parentheses at the end.
            packet.proto = Some(UDP);
            let end = rest.rfind('(').map(|at| &rest[at + 1..]);
            take(packet, Field::PayloadLen, end.and_then(|end| end.split(')').next()));
        }
        Some(())
    }

    /// Takes a TCP header; whether it is one.
    fn take_tcp(&mut self, packet: &mut Described, rest: &str, direction: Direction) -> bool {
        let (flags, rest) = match rest.strip_prefix("Flags [") {
            Some(rest) => rest.split_once(']').unwrap_or((rest, "")),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        let known = |letter: char| "SFPRUWEN.".contains(letter);
        if !flags.chars().all(known) && flags != "none" {
            return false;
        }
        let mut letters: String =
            flags.chars().filter(|letter| "SFPRUWEN".contains(*letter)).collect();
        let is_new = rest.starts_with(',') || rest.is_empty() && flags.ends_with('.');
        if is_new && flags.contains('.') {
            letters.push('A');
        }
        // What follows the length is of the payload.
        let (rest, mut length) = match rest.split_once(", length ") {
            Some((header, length)) => (header, number_in(length).map(str::to_owned)),
            None => (rest, None),
        };
        let mut words = rest.split([' ', ',']).filter(|word| !word.is_empty());
        let begins = flags.contains('S');
        let mut seq = None;
        while let Some(word) = words.next() {
            match word {
                "seq" | "ack" | "win" | "urg" => {
                    let value = words.next().unwrap_or_default();
                    match word {
                        "seq" => {
                            let of_seq;
                            (seq, of_seq) = self.take_seq(packet, value, direction, begins);
                            length = length.or(of_seq);
                        }
                        "ack" => {
                            let [one, other] = direction;
                            let ack = u32::read(value).ok();
                            let ack = ack.map(|ack| self.whole(ack, [other, one], begins));
                            take(packet, Field::Ack, ack.map(|ack| ack.to_string()).as_deref());
                            if !letters.contains('A') {
                                letters.push('A');
                            }
                        }
                        "win" => take(packet, Field::Window, Some(value)),
                        _ => take(packet, Field::Urgent, Some(value)),
                    }
                }
                "options" => while words.next().is_some_and(|word| !word.ends_with(']')) {},
                _ if word.ends_with(')') && word.contains(':') && word.contains('(') => {
                    (seq, length) = self.take_seq(packet, word, direction, begins);
                }
                _ => {}
            }
        }
        let options = between(rest, "options [", ']').or_else(|| between(rest, "<", '>'));
        let options = options.map(options_of).unwrap_or_default();
        take(packet, Field::Options, Some(&options).filter(|text| !text.is_empty()).map(|x| &**x));
        take(packet, Field::Flags, Some(&letters).filter(|text| !text.is_empty()).map(|x| &**x));
        take(packet, Field::PayloadLen, length.as_deref());
        match (seq, self.next.get(&direction)) {
            (Some(seq), _) => {
                let data = length.and_then(|length| u32::read(&length).ok()).unwrap_or(0);
                let marks = u32::from(begins) + u32::from(flags.contains('F'));
                self.advance(direction, seq.wrapping_add(data).wrapping_add(marks), begins);
            }
            (None, Some(next)) => take(packet, Field::Seq, Some(&next.to_string())),
            (None, None) => {}
        }
        true
    }

    /// Notes the next number of a direction, unless a later one is known.
    fn advance(&mut self, direction: Direction, next: u32, begins: bool) {
        if self.next.len() >= MOST_CONNECTIONS {
            self.next.clear();
        }
        let known = self.next.entry(direction).or_insert(next);
        if begins || next.wrapping_sub(*known).cast_signed() > 0 {
            *known = next;
        }
    }

    /// Takes `SEQ`, `SEQ:END` or `SEQ:END(LENGTH)`; the sequence number and the length of the data.
    fn take_seq(
        &mut self,
        packet: &mut Described,
        word: &str,
        direction: Direction,
        begins: bool,
    ) -> (Option<u32>, Option<String>) {
        let digits =
            |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().map(str::to_owned);
        let (seq, end) = word.split_once(':').unwrap_or((word, ""));
        let Some(seq) = digits(seq).and_then(|seq| u32::read(&seq).ok()) else {
            return (None, None);
        };
        if begins {
            if self.first.len() >= MOST_CONNECTIONS {
                self.first.clear();
            }
            self.first.insert(direction, seq);
        }
        let whole = self.whole(seq, direction, begins);
        take(packet, Field::Seq, Some(&whole.to_string()));
        let length = match end.split_once('(') {
            Some((_, length)) => digits(length),
            None => {
                let end = digits(end).and_then(|end| u32::read(&end).ok());
                end.map(|end| end.wrapping_sub(seq).to_string())
            }
        };
        (Some(whole), length)
    }

    /// A number of a direction, whose first one may have been subtracted: as the one or the other, what is nearer.
    fn whole(&self, number: u32, direction: Direction, begins: bool) -> u32 {
        match self.first.get(&direction) {
            Some(&first) if !begins => {
                let distance = number.wrapping_sub(first).cast_signed().unsigned_abs();
                if number < distance { first.wrapping_add(number) } else { number }
            }
            _ => number,
        }
    }
}

/// Takes a field whose text is there and fits.
fn take(packet: &mut Described, field: Field, text: Option<&str>) {
    if let Some(text) = text {
        // What does not fit is left out.
        let _ = packet.take(field, text);
    }
}

/// The first number of a text.
fn number_in(text: &str) -> Option<&str> {
    text.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())
}

/// Time at the beginning of a line, and what is behind it: `SECONDS.FRACTION` or `HH:MM:SS.FRACTION`, perhaps with a date.
fn timestamp(line: &str) -> Option<(i64, &str)> {
    let (mut word, mut rest) = line.split_once(' ')?;
    if word.len() == 10 && word.as_bytes()[4] == b'-' {
        (word, rest) = rest.trim_start().split_once(' ')?;
    }
    let mut parts = word.rsplit(':');
    let mut time = read_seconds(parts.next()?)?;
    let mut factors = [60, 3600].into_iter();
    for part in parts {
        let factor: i64 = factors.next()?;
        time = time.checked_add(i64::from(u8::read(part).ok()?) * factor * SECOND_NS)?;
    }
    Some((time, rest.trim_start()))
}

/// The inside of parentheses that were opened, and what is behind them.
fn group(text: &str) -> Option<(&str, &str)> {
    let mut depth = 1;
    for (at, byte) in text.bytes().enumerate() {
        depth += match byte {
            b'(' => 1,
            b')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return Some((&text[..at], &text[at + 1..]));
        }
    }
    None
}

fn between<'a>(text: &'a str, open: &str, close: char) -> Option<&'a str> {
    text.split_once(open)?.1.split(close).next()
}

/// Takes what `-v` prints of a header: `tos 0x0, ttl 64, id 7, offset 0, flags [DF], proto TCP (6), length 60`.
fn take_header(packet: &mut Described, header: &str) {
    let (mut offset, mut flags) = ("0", "");
    for part in header.split(", ") {
        let (name, value) = part.split_once(' ').unwrap_or((part, ""));
        match name {
            "tos" => take(packet, Field::Tos, value.split(',').next()),
            "ttl" => take(packet, Field::Ttl, Some(value)),
            "id" => take(packet, Field::Id, Some(value)),
            "len" | "length" => take(packet, Field::Len, Some(value)),
            "offset" => offset = value,
            "flags" => flags = value,
            "proto" => {
                let number = between(value, "(", ')').and_then(|number| u8::read(number).ok());
                packet.proto = number.or_else(|| names::protocol(&value.to_ascii_lowercase()));
            }
            _ => {}
        }
    }
    let (more, whole) = (flags.contains('+'), flags.contains("DF"));
    let marks = format!("{offset}{}{}", if more { "+" } else { "" }, if whole { "!" } else { "" });
    take(packet, Field::FragOffset, Some(&marks));
}

/// Takes what tcpdump 3 prints of the IP header behind all else: `(DF) [tos 0x10] (frag 7:1480@0+) (ttl 64, id 7, len 60)`.
fn take_trailers(packet: &mut Described, rest: &str) {
    if rest.contains("(DF)") {
        take(packet, Field::Frag, Some("!"));
    }
    if let Some(tos) = between(rest, "[tos ", ']') {
        take(packet, Field::Tos, tos.split(',').next());
    }
    if let Some(header) = between(rest, "(ttl ", ')') {
        let (ttl, others) = header.split_once(", ").unwrap_or((header, ""));
        take(packet, Field::Ttl, Some(ttl));
        for part in others.split(", ") {
            match part.split_once(' ') {
                Some(("id", id)) => take(packet, Field::Id, Some(id)),
                Some(("len", length)) => take(packet, Field::Len, Some(length)),
                _ => {}
            }
        }
    }
    if let Some(fragment) = between(rest, "(frag ", ')')
        && let Some((id, place)) = fragment.split_once(':')
        && let Some((length, offset)) = place.split_once('@')
    {
        take(packet, Field::Id, Some(id));
        take(packet, Field::FragOffset, Some(offset));
        if let Ok(length) = u16::read(length) {
            take(packet, Field::Len, Some(&length.saturating_add(20).to_string()));
        }
    }
}

/// Takes an ICMP message by its words; `None` where they name none.
fn take_icmp(packet: &mut Described, words: &str) -> Option<()> {
    let code = |words: &str| match words {
        _ if words.contains("need to frag") => 4,
        _ if words.contains("port") => 3,
        _ if words.contains("protocol") => 2,
        _ if words.contains("net ") => 0,
        _ => 1,
    };
    let (kind, code) = match words {
        _ if words.starts_with("echo request") => (8, 0),
        _ if words.starts_with("echo reply") => (0, 0),
        _ if words.starts_with("time exceeded") => (11, 0),
        _ if words.starts_with("ip reassembly time exceeded") => (11, 1),
        _ if words.starts_with("redirect") => (5, u8::from(words.contains("host"))),
        _ if words.starts_with("source quench") => (4, 0),
        _ if words.starts_with("parameter problem") => (12, 0),
        _ if words.starts_with("time stamp reply") => (14, 0),
        _ if words.starts_with("time stamp") => (13, 0),
        _ if words.starts_with("router adv") => (9, 0),
        _ if words.starts_with("router sol") => (10, 0),
        _ if words.contains("unreachable") => (3, code(words)),
        _ if words.starts_with("information request") => (15, 0),
        _ if words.starts_with("information reply") => (16, 0),
        _ if words.starts_with("address mask request") => (17, 0),
        _ if words.starts_with("address mask is") => (18, 0),
        _ => (u8::read(number_in(words.strip_prefix("type-#")?)?).ok()?, 0),
    };
    let number = |name: &str| between(words, name, ',').and_then(number_in);
    for (field, text) in [
        (Field::IcmpType, Some(kind.to_string())),
        (Field::IcmpCode, Some(code.to_string())),
        (Field::IcmpId, number(", id ").map(str::to_owned)),
        (Field::IcmpSeq, number(", seq ").map(str::to_owned)),
        // The message's own header counts.
        (
            Field::PayloadLen,
            number(", length ")
                .and_then(|text| u32::read(text).ok()?.checked_sub(8))
                .map(|n| n.to_string()),
        ),
    ] {
        take(packet, field, text.as_deref());
    }
    Some(())
}

/// Options as `ToIPSummaryDump` has them.
fn options_of(text: &str) -> String {
    let mut parts = Vec::new();
    for option in text.split(',').map(str::trim) {
        let numbers: Vec<&str> =
            option.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty()).collect();
        match (option.split([' ', ':']).next().unwrap_or_default(), &numbers[..]) {
            ("mss", [size, ..]) => parts.push(format!("mss{size}")),
            ("wscale", [shift, ..]) => parts.push(format!("wscale{shift}")),
            ("sackOK", _) => parts.push("sackok".to_owned()),
            ("timestamp" | "TS", [value, echo, ..]) => parts.push(format!("ts{value}:{echo}")),
            ("sack", [_, blocks @ ..]) => {
                parts.extend(
                    blocks.chunks_exact(2).map(|ends| format!("sack{}-{}", ends[0], ends[1])),
                );
            }
            ("nop", _) => parts.push("nop".to_owned()),
            ("eol", _) => parts.push("eol".to_owned()),
            _ => {}
        }
    }
    parts.join(";")
}

/// Address and port of an end: `1.2.3.4.80`, `1.2.3.4.http` or `1.2.3.4`.
fn end(text: &str) -> Option<(u32, Option<u16>)> {
    if let Ok(addr) = text.parse::<Ipv4Addr>() {
        return Some((addr.to_bits(), None));
    }
    let (addr, port) = text.rsplit_once('.')?;
    let addr = addr.parse::<Ipv4Addr>().ok()?;
    Some((addr.to_bits(), Some(Port::read(port).ok()?.0)))
}

#[cfg(test)]
mod tests {
    use crate::element::click::only::console;
    use crate::testing::{Rig, World};

    fn summary(lines: &str, fields: &str) -> String {
        let file = std::env::temp_dir().join(format!(
            "fptcpdump{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::write(&file, lines).unwrap();
        console::collect();
        let text = format!(
            "f :: FromTcpdump({}, STOP true) -> ToIPSummaryDump(-, HEADER false, FIELDS {fields})",
            file.display()
        );
        let mut rig = Rig::new(&World::new(), &text);
        (0..30).for_each(|_| drop(rig.poll()));
        assert!(rig.plan.is_stopped());
        std::fs::remove_file(file).unwrap();
        console::collected().out
    }

    #[test]
    fn lines_of_tcpdump_3_are_packets() {
        let lines = "\
1000212480.005813 18.26.4.44.34004 > 64.71.165.130.80: S 100:100(0) win 5840 <mss 1460,sackOK,timestamp 7 0,nop,wscale 0> (DF) (ttl 64, id 5, len 60)
1000212480.105813 64.71.165.130.80 > 18.26.4.44.34004: S 900000:900000(0) ack 101 win 17520 <mss 1460> (DF) [tos 0x10]
1000212480.205813 18.26.4.44.34004 > 64.71.165.130.80: . ack 1 win 5840
1000212480.305813 18.26.4.44.34004 > 64.71.165.130.80: P 1:11(10) ack 1 win 5840
00:00:01.5 1.0.0.1.53 > 2.0.0.2.1000: udp 12 (frag 7:20@0+)
2 1.0.0.1 > 2.0.0.2: icmp: echo request
3 1.0.0.1 > 2.0.0.2: icmp: host 2.0.0.9 unreachable (ttl 9, id 1)
arp who-has 1.0.0.1 tell 1.0.0.2
";
        let fields = "timestamp src sport dst dport proto tcp_seq tcp_ack tcp_flags payload_len";
        assert_eq!(
            summary(lines, fields),
            "1000212480.005813 18.26.4.44 34004 64.71.165.130 80 T 100 0 S 0
1000212480.105813 64.71.165.130 80 18.26.4.44 34004 T 900000 101 SA 0
1000212480.205813 18.26.4.44 34004 64.71.165.130 80 T 101 900001 A 0
1000212480.305813 18.26.4.44 34004 64.71.165.130 80 T 101 900001 PA 10
1.500000 1.0.0.1 53 2.0.0.2 1000 U - - - 12
2.000000 1.0.0.1 - 2.0.0.2 - I - - - 0
3.000000 1.0.0.1 - 2.0.0.2 - I - - - 0
"
        );
        let fields = "ip_len ip_ttl ip_id ip_tos ip_frag tcp_opt tcp_window icmp_type icmp_code";
        assert_eq!(
            summary(lines, fields),
            "60 64 5 0 ! mss1460;sackok;ts7:0;wscale0 5840 - -
44 100 0 16 ! mss1460 17520 - -
40 100 0 0 . . 5840 - -
50 100 0 0 . . 5840 - -
40 100 7 0 F - - - -
28 100 0 0 . - - 8 0
28 9 1 0 . - - 3 1
"
        );
    }

    #[test]
    fn lines_of_tcpdump_4_are_packets() {
        let lines = "\
12:00:00.000001 IP (tos 0x0, ttl 63, id 9, offset 0, flags [DF], proto TCP (6), length 60)
    1.0.0.1.5 > 2.0.0.2.80: Flags [S], cksum 0x1 (correct), seq 7, win 100, options [mss 1460,sackOK,TS val 3 ecr 4,nop,wscale 7], length 0
12:00:01.000000 IP 2.0.0.2.80 > 1.0.0.1.5: Flags [P.], seq 1:21, ack 2, win 9, length 20: HTTP
12:00:02.000000 IP 1.0.0.1 > 2.0.0.2: ICMP echo reply, id 3, seq 4, length 64
12:00:03.000000 IP 1.0.0.1.5353 > 2.0.0.2.53: 12345+ A? example.org. (29)
12:00:04.000000 IP 1.0.0.1.9 > 2.0.0.2.10: UDP, length 100
12:00:05.000000 IP6 fe80::1.9 > fe80::2.10: UDP, length 100
";
        let fields = "ts_sec src sport dport proto tcp_seq tcp_ack tcp_flags tcp_opt ip_len ip_ttl icmp_id icmp_seq";
        assert_eq!(
            summary(lines, fields),
            "43200 1.0.0.1 5 80 T 7 0 S mss1460;sackok;ts3:4;wscale7 60 63 - -
43201 2.0.0.2 80 5 T 1 9 PA . 60 100 - -
43202 1.0.0.1 - - I - - - - 84 100 3 4
43203 1.0.0.1 5353 53 U - - - - 57 100 - -
43204 1.0.0.1 9 10 U - - - - 128 100 - -
"
        );
    }

    #[test]
    fn words_of_the_payload_are_not_those_of_the_header() {
        let lines = "\
1 IP 1.0.0.1.5 > 2.0.0.2.80: Flags [P.], seq 10:30, ack 2, win 9, options [nop,nop,TS val 3 ecr 4], length 20: HTTP: GET /seq 7 win 8, length 5 <mss 9>
2 IP 1.0.0.1.5 > 2.0.0.2.80: Flags [.], ack 3, win 9, length 0
3 IP 1.0.0.1.5 > 2.0.0.2.80: Flags [F.], seq 30, ack 3, win 9, length 0
4 IP 1.0.0.1.5 > 2.0.0.2.80: Flags [.], ack 4, win 9, length 0
";
        assert_eq!(
            summary(lines, "tcp_seq tcp_ack tcp_flags tcp_window tcp_opt payload_len"),
            "10 2 PA 9 ts3:4 20\n30 3 A 9 . 0\n30 3 FA 9 . 0\n31 4 A 9 . 0\n"
        );
    }

    #[test]
    fn times_have_at_most_three_parts() {
        let rest = "1.0.0.1 > 2.0.0.2: icmp: echo request";
        let dates = "2024-01-01 ".repeat(100_000);
        let lines = format!(
            "0:0:0:0:0:0:0 {rest}\n0:0:0:0 {rest}\n{dates}1 {rest}\n2024-01-01 1:01:01.5 {rest}\n255:255:1 {rest}\n"
        );
        assert_eq!(summary(&lines, "timestamp"), "3661.500000\n933301.000000\n");
    }

    #[test]
    fn icmp_messages_have_their_type() {
        let words = [
            "time exceeded in-transit",
            "ip reassembly time exceeded",
            "type-#19",
            "address mask request",
            "no known words",
            "(frag 7:20@1480)",
        ];
        let lines: String =
            words.iter().map(|words| format!("1 1.0.0.1 > 2.0.0.2: icmp: {words}\n")).collect();
        assert_eq!(summary(&lines, "icmp_type icmp_code"), "11 0\n11 1\n19 0\n17 0\n- -\n");
    }

    #[test]
    fn the_payload_is_zero_bytes() {
        let file = std::env::temp_dir().join(format!("fptcpzero{}", std::process::id()));
        std::fs::write(&file, "1 1.0.0.1.9 > 2.0.0.2.10: udp 100\n").unwrap();
        for (zero, len) in [("", 128), (", ZERO false", 28)] {
            let text = format!("FromTcpdump({}{zero}) -> ToDevice(x)", file.display());
            let mut rig = Rig::new(&World::new(), &text);
            let about =
                ["filename", "filesize", "filepos"].map(|name| format!("FromTcpdump@1.{name}"));
            assert_eq!([&about[1], &about[2]].map(|name| rig.read(name)), ["34", "0"]);
            let sent: Vec<_> = (0..3).flat_map(|_| rig.poll()).map(|(_, ip)| ip.len()).collect();
            assert_eq!(sent, [len]);
            let name = file.display().to_string();
            assert_eq!(about.map(|name| rig.read(&name)), [name.as_str(), "34", "34"]);
        }
        std::fs::remove_file(file).unwrap();
    }
}
