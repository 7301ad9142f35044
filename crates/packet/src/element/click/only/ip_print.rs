//! Packets in words, a line each: `IPPrint` for IPv4, `ARPPrint` for ARP.
//!
//! Source: Click's elements of these names, whose lines are those of tcpdump of their time. `TIMESTAMP`, `PAINT`, `ID`,
//! `TTL`, `TOS`, `LENGTH` and `AGGREGATE` choose what a line has; `ETHER` of `ARPPrint` puts the Ethernet addresses
//! before it. `CONTENTS HEX` or `ASCII` adds lines with the first `MAXLENGTH` bytes, 1500 without it, `PAYLOAD` those
//! behind the transport header; `SWAP false` has the numbers of echoes as a little-endian machine reads them. `OUTFILE`
//! takes the lines in place of the standard error.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use fingerpost_route::Mac;

use crate::element::click::icmp_error::v4_codes;
use crate::element::click::only::annotations::Annotations;
use crate::element::click::only::clock::seconds;
use crate::element::click::only::console;
use crate::element::click::only::seen::{Seen, long, word};
use crate::element::click::print::Contents;
use crate::element::support::setting::{Setting, dashed};
use crate::filter::names;
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::ip4::FRAGMENT_OFFSET;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::wire::{ETHER_BYTES, IP4_BYTES};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made, Setup};
use crate::language::{ClassSpec, ConfigError};

pub(crate) const IP: ElementClass = ElementClass {
    spec: ClassSpec::new("IPPrint", "1/1", "a/a", "x/x").ignores(&["CHANNEL"]),
    summary: "writes IPv4 packets in words to the standard error",
    configure: |setup| {
        let label = setup.args.optional::<String>("LABEL");
        let mut is = |name, usual| -> Result<bool, ConfigError> {
            Ok(setup.args.keyword(name)?.unwrap_or(usual))
        };
        let (timestamp, paint, id) = (is("TIMESTAMP", true), is("PAINT", false), is("ID", false));
        let (ttl, tos, length) = (is("TTL", false), is("TOS", false), is("LENGTH", false));
        let (aggregate, active) = (is("AGGREGATE", false), is("ACTIVE", true));
        let swap = is("SWAP", true);
        let most = [setup.args.keyword::<i64>("MAXLENGTH"), setup.args.keyword::<i64>("NBYTES")];
        let [contents, payload] = ["CONTENTS", "PAYLOAD"].map(|name| Contents::read(setup, name));
        let shown = |contents: &Contents| *contents != Contents::None;
        let (contents, payload) = (contents?.filter(shown), payload?.filter(shown));
        let out = Out::read(setup)?;
        setup.args.finish()?;
        if payload.is_some() && contents.is_some() {
            return Err(setup.args.refuse_all("one of PAYLOAD and CONTENTS"));
        }
        let [most, bytes] = most;
        let show = Show {
            label: label?.unwrap_or_default(),
            timestamp: timestamp?,
            paint: paint?,
            id: id?,
            ttl: ttl?,
            tos: tos?,
            length: length?,
            aggregate: aggregate?,
            swap: swap?,
            contents: contents.or(payload),
            payload: payload.is_some(),
            // Below 0 means all of them.
            most: usize::try_from(most?.or(bytes?).unwrap_or(1500)).unwrap_or(usize::MAX),
        };
        let active = Setting::new(active?);
        let each = active.clone();
        let made = Made::new(move |instance| IpPrint {
            show: show.clone(),
            out: out.clone(),
            // A dry run is not to be seen there.
            active: if instance.is_dry_run() { Setting::new(false) } else { each.clone() },
        });
        Ok(active.handled(made, "active"))
    },
};

pub(crate) const ARP: ElementClass = ElementClass {
    spec: ClassSpec::new("ARPPrint", "1/1", "a/a", "x/x"),
    summary: "writes ARP packets in words to the standard error",
    configure: |setup| {
        let label = setup.args.optional::<String>("LABEL");
        let timestamp = setup.args.keyword("TIMESTAMP");
        let ether = setup.args.keyword("ETHER");
        let active = setup.args.keyword("ACTIVE");
        let out = Out::read(setup)?;
        setup.args.finish()?;
        let (label, timestamp, ether) =
            (label?.unwrap_or_default(), timestamp?.unwrap_or(true), ether?.unwrap_or(false));
        let active = Setting::new(active?.unwrap_or(true));
        let each = active.clone();
        let made = Made::new(move |instance| ArpPrint {
            label: label.clone(),
            timestamp,
            ether,
            out: out.clone(),
            active: if instance.is_dry_run() { Setting::new(false) } else { each.clone() },
        });
        Ok(active.handled(made, "active"))
    },
};

/// Lines of 24 bytes in hexadecimal, or of 48 letters.
fn lines_of(contents: Contents, bytes: &[u8]) -> String {
    let (row, group) = if contents == Contents::Hex { (24, 4) } else { (48, 8) };
    let mut text = String::new();
    for (at, &byte) in bytes.iter().enumerate() {
        if at % row == 0 {
            text += "\n  ";
        } else if at % group == 0 {
            text.push(' ');
        }
        if contents == Contents::Hex {
            text += &format!("{byte:02x}");
        } else {
            text.push(if (32..127).contains(&byte) { byte.into() } else { '.' });
        }
    }
    text
}

/// Where lines go: a file, or the standard error.
#[derive(Clone)]
struct Out(Option<Arc<Mutex<File>>>);

impl Out {
    fn read(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let Some(arg) = setup.args.keyword_arg("OUTFILE")? else { return Ok(Self(None)) };
        let name: String = setup.args.read(&arg, "OUTFILE")?;
        let file = setup.policy.new_output(&name);
        let file = file.map_err(|e| setup.args.refuse(&arg, &format!("{name}: {e}")))?;
        Ok(Self(file.map(|file| Arc::new(Mutex::new(file)))))
    }

    fn line(&self, line: &str) {
        match &self.0 {
            None => console::err(&format!("{line}\n")),
            Some(file) => {
                // A file is whole whatever panicked beside it. What it does not take is lost.
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = file.write_all(format!("{line}\n").as_bytes());
            }
        }
    }
}

#[derive(Clone)]
struct Show {
    label: String,
    timestamp: bool,
    paint: bool,
    id: bool,
    ttl: bool,
    tos: bool,
    length: bool,
    aggregate: bool,
    swap: bool,
    contents: Option<Contents>,
    /// Bytes behind the transport header, in place of all.
    payload: bool,
    /// Bytes that are shown.
    most: usize,
}

struct IpPrint {
    show: Show,
    out: Out,
    active: Setting<bool>,
}

struct ArpPrint {
    label: String,
    timestamp: bool,
    ether: bool,
    out: Out,
    active: Setting<bool>,
}

fn addr(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(long(bytes, at).unwrap_or(0))
}

fn begin(label: &str) -> String {
    if label.is_empty() { String::new() } else { format!("{label}: ") }
}

impl Show {
    fn line(&self, seen: &Seen<'_>) -> String {
        let mut line = begin(&self.label);
        if self.timestamp {
            line += &seconds(seen.annotations.timestamp_ns);
            line += ": ";
        }
        if self.aggregate {
            let _ = write!(line, "#{}", seen.annotations.aggregate);
        }
        if self.paint {
            let _ = write!(line, "{}{}", if self.aggregate { "." } else { "paint " }, seen.paint);
        }
        if self.aggregate || self.paint {
            line += ": ";
        }
        if seen.frame.len() < seen.network + IP4_BYTES {
            return line + "truncated-ip";
        }
        let Some(ip) = seen.ip() else {
            line += "(not an IP packet)";
            return line;
        };
        if self.id {
            let _ = write!(line, "id {} ", word(ip, 4).unwrap_or(0));
        }
        if self.ttl {
            let _ = write!(line, "ttl {} ", ip[8]);
        }
        if self.tos {
            let _ = write!(line, "tos {} ", ip[1]);
        }
        let stated = word(ip, 2).unwrap_or(0);
        if self.length {
            let _ = write!(line, "length {stated} ");
        }
        let (src, dst) = (addr(ip, 12), addr(ip, 16));
        let later = word(ip, 6).unwrap_or(0) & FRAGMENT_OFFSET != 0;
        let names = [(TCP, "tcp"), (UDP, "udp"), (PROTOCOL_ICMP, "icmp")];
        let name = names.iter().find(|(protocol, _)| *protocol == ip[9]).map(|(_, name)| *name);
        let transport = ip.get(usize::from(ip[0] & 15) * 4..).unwrap_or_default();
        match (ip[9], name) {
            (protocol, None) => {
                let _ = write!(line, "{src} > {dst}: ip-proto-{protocol}");
            }
            (_, Some(name)) if later => {
                let _ = write!(line, "{src} > {dst}: {name}");
            }
            (PROTOCOL_ICMP, _) => {
                let _ = write!(line, "{src} > {dst}: {}", icmp(transport, self.swap));
            }
            (_, Some(name)) if transport.len() < 4 => {
                let _ = write!(line, "{src} > {dst}: truncated-{name}");
            }
            (protocol, Some(_)) => {
                let port = |at| word(transport, at).unwrap_or(0);
                let _ = write!(line, "{src}.{} > {dst}.{}: ", port(0), port(2));
                line += &match protocol {
                    TCP => tcp(transport, usize::from(ip[0] & 15) * 4, stated, seen.frame.len()),
                    _ if transport.len() < 8 => "truncated-udp".into(),
                    _ => format!("udp {}", port(4)),
                };
            }
        }
        let fragment = word(ip, 6).unwrap_or(0);
        if fragment & 0x3fff != 0 {
            let (id, more) =
                (word(ip, 4).unwrap_or(0), if fragment & 0x2000 != 0 { "+" } else { "" });
            let length = usize::from(stated).saturating_sub(usize::from(ip[0] & 15) * 4);
            let _ = write!(line, " (frag {id}:{length}@{}{more})", (fragment & 0x1fff) * 8);
        }
        if let Some(contents) = self.contents {
            let bytes = match (self.payload, ip[9]) {
                (false, _) => Some(seen.frame),
                (true, TCP) if !later => {
                    let header = transport.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
                    transport.get(header..)
                }
                (true, UDP) if !later => transport.get(8..),
                (true, _) => Some(transport),
            };
            let bytes = bytes.unwrap_or_default();
            line += &lines_of(contents, &bytes[..bytes.len().min(self.most)]);
        }
        line
    }
}

fn tcp(header: &[u8], ip_header: usize, stated: u16, frame: usize) -> String {
    let (Some(seq), Some(ack), Some(&bits)) = (long(header, 4), long(header, 8), header.get(13))
    else {
        return "truncated-tcp".into();
    };
    let letters = [(2, 'S'), (1, 'F'), (4, 'R'), (8, 'P')];
    let mut flags: String =
        letters.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| *letter).collect();
    if flags.is_empty() {
        flags.push('.');
    }
    let headers = i64::try_from(ip_header).unwrap_or(0) + i64::from(header[12] >> 4) * 4;
    let length = i64::from(stated) - headers + i64::from(bits & 2 != 0) + i64::from(bits & 1 != 0);
    let end = (i64::from(seq) + length).rem_euclid(1 << 32);
    let ack = if bits & 16 != 0 { format!(" ack {ack}") } else { String::new() };
    let window = match word(header, 14) {
        Some(window) => format!(" win {window}"),
        None => "truncated-tcp".into(),
    };
    format!("{flags} {seq}:{end}({length},{frame},{stated}){ack}{window}")
}

/// Name of a code of a type, where it has one.
fn code_name(kind: u8, code: u8) -> Option<&'static str> {
    let mut names = v4_codes(kind).iter();
    names.find(|(_, known)| *known == u16::from(code)).map(|(name, _)| *name)
}

fn icmp(header: &[u8], swap: bool) -> String {
    const TRUNCATED: &str = "truncated-icmp";
    let &[kind, code, ..] = header else { return TRUNCATED.into() };
    let numbered = |name: &str| match (word(header, 4), word(header, 6)) {
        (Some(id), Some(seq)) if swap => format!("icmp {name} ({id}, {seq})"),
        (Some(id), Some(seq)) => {
            format!("icmp {name} ({}, {})", id.swap_bytes(), seq.swap_bytes())
        }
        _ => format!("icmp {name} {TRUNCATED}"),
    };
    let known = code_name(kind, code);
    match kind {
        0 => numbered("echo-reply"),
        8 => numbered("echo"),
        3 => {
            let reason = known.map_or_else(|| format!("code {code}"), str::to_owned);
            let Some(inner) = header.get(8..).filter(|inner| inner.len() >= IP4_BYTES) else {
                return format!("icmp unreachable {reason} {TRUNCATED}");
            };
            let mut text = format!("icmp {} unreachable {reason}", addr(inner, 16));
            let protocol = names::PROTOCOLS.iter().find(|(_, n)| *n == u16::from(inner[9]));
            let protocol = protocol.map(|(name, _)| (*name).to_owned());
            match code {
                2 => {
                    let protocol = protocol.unwrap_or_else(|| inner[9].to_string());
                    let _ = write!(text, " {protocol}");
                }
                3 => {
                    let protocol = protocol.unwrap_or_else(|| format!("protocol {}", inner[9]));
                    let _ = write!(text, " {protocol}");
                    match word(inner, usize::from(inner[0] & 15) * 4 + 2) {
                        Some(port) => {
                            let _ = write!(text, "/{port}");
                        }
                        None => text += TRUNCATED,
                    }
                }
                4 => {
                    if let Some(mtu) = word(header, 6).filter(|mtu| *mtu != 0) {
                        let _ = write!(text, " (mtu {mtu})");
                    }
                }
                _ => {}
            }
            text
        }
        _ => {
            let name = names::ICMP_TYPES.iter().find(|(_, known)| *known == u16::from(kind));
            let name = name.map_or_else(|| format!("type {kind}"), |(name, _)| (*name).to_owned());
            match (known, code) {
                (Some(known), _) => format!("icmp {name} {known}"),
                (None, 0) => format!("icmp {name}"),
                (None, code) => format!("icmp {name} code {code}"),
            }
        }
    }
}

impl Element for IpPrint {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        if !self.active.get() {
            return;
        }
        for i in 0..batch.len() {
            self.out.line(&self.show.line(&Seen::packet(batch, i)));
        }
    }
}

fn mac(bytes: &[u8]) -> String {
    bytes.first_chunk().map_or_else(String::new, |bytes| dashed(Mac(*bytes)))
}

impl ArpPrint {
    fn line(&self, frame: &[u8], timestamp_ns: i64) -> Option<String> {
        let arp = frame.get(ETHER_BYTES..ETHER_BYTES + 28)?;
        let mut line = begin(&self.label);
        if self.timestamp {
            line += &seconds(timestamp_ns);
            line += ": ";
        }
        if self.ether {
            line += &format!("{} > {}: ", mac(&frame[6..12]), mac(&frame[..6]));
        }
        line += &match word(arp, 6)? {
            1 => format!("arp who-has {} tell {}", addr(arp, 24), addr(arp, 14)),
            2 => format!("arp reply {} is-at {}", addr(arp, 14), mac(&arp[8..14])),
            other => format!("arp op {other}"),
        };
        Some(line)
    }
}

impl Element for ArpPrint {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let is_arp = word(batch.bytes(i), 12) == Some(0x0806);
            let line = self.line(batch.bytes(i), Annotations::of(batch, i).timestamp_ns);
            match line.filter(|_| is_arp) {
                Some(line) if self.active.get() => self.out.line(&line),
                Some(_) => {}
                None => batch.discard(i, DropReason::Unmatched),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::IP;
    use crate::element::click::only::console;
    use crate::testing::{Rig, World, refused};

    fn lines(data: &str, config: &str) -> String {
        console::collect();
        let text = format!("FromIPSummaryDump(DATA \"{data}\") -> IPPrint({config}) -> Discard");
        let mut rig = Rig::new(&World::new(), &text);
        (0..9).for_each(|_| drop(rig.poll()));
        console::collected().err
    }

    #[test]
    fn packets_in_words() {
        let data = "!data timestamp src sport dst dport proto\n1 1.0.0.1 20 2.0.0.2 80 T\n2.5 1.0.0.1 20 2.0.0.2 80 U";
        let want = "a: 1.000000: 1.0.0.1.20 > 2.0.0.2.80: . 0:0(0,40,40) win 0\na: 2.500000: 1.0.0.1.20 > 2.0.0.2.80: udp 8\n";
        assert_eq!(lines(data, "a"), want);
        let data = "!data src dst icmp_type link\n1.0.0.1 2.0.0.2 11 3";
        assert_eq!(
            lines(data, "TIMESTAMP false, PAINT true"),
            "paint 3: 1.0.0.1 > 2.0.0.2: icmp timeexceeded transit\n"
        );
        let data = "!data tcp_flags tcp_seq payload\nSA 7 xyz";
        let want = "0.0.0.0.0 > 0.0.0.0.0: S 7:11(4,43,43) ack 0 win 0\n";
        assert_eq!(lines(data, "TIMESTAMP false"), want);
        assert_eq!(
            lines(data, "TIMESTAMP false, PAINT true, AGGREGATE true, PAYLOAD ascii"),
            format!("#0.0: {}\n  xyz\n", want.trim_end())
        );
        let hex = lines(data, "TIMESTAMP false, CONTENTS true, NBYTES 30");
        let rows: Vec<_> = hex.lines().skip(1).collect();
        assert_eq!(rows.len(), 2);
        assert!(rows[0].starts_with("  4500002b ") && rows[0].len() == 2 + 48 + 5, "{hex}");
        assert_eq!(rows[1].len(), 2 + 12 + 1);
        let data = "!data ip_src ip_dst ip_proto icmp_type icmp_flowid icmp_seq\n1.0.0.1 2.0.0.2 I 8 258 3\n- - I 14 1 1\n- - 89 0 0 0";
        let want = "1.0.0.1 > 2.0.0.2: icmp echo (258, 3)\n0.0.0.0 > 0.0.0.0: icmp timestamp-reply\n0.0.0.0 > 0.0.0.0: ip-proto-89\n";
        assert_eq!(lines(data, "TIMESTAMP false"), want);
        assert!(lines(data, "TIMESTAMP false, SWAP false").contains("echo (513, 768)"));
        let data = "!data ip_src ip_dst ip_proto ip_id ip_frag ip_fragoff sport\n1.0.0.1 2.0.0.2 T 7 f 8+ 5";
        assert_eq!(lines(data, "TIMESTAMP false"), "1.0.0.1 > 2.0.0.2: tcp (frag 7:0@8+)\n");
        assert!(refused(&IP, "CONTENTS HEX, PAYLOAD HEX").contains("one of PAYLOAD and CONTENTS"));
    }

    #[test]
    fn errors_name_what_could_not_be_reached() {
        let text = "FromIPSummaryDump(DATA \"!data src sport dst dport proto\n1.0.0.1 5 2.0.0.2 6 U\", CHECKSUM true)
            -> t :: Tee(3) -> ICMPError(9.9.9.9, unreachable, port) -> p :: IPPrint(TIMESTAMP false) -> Discard;
            t [1] -> ICMPError(9.9.9.9, unreachable, protocol) -> p;
            t [2] -> ICMPError(9.9.9.9, unreachable, needfrag, PMTU 576) -> p";
        console::collect();
        let mut rig = Rig::new(&World::new(), text);
        (0..9).for_each(|_| drop(rig.poll()));
        let mut lines: Vec<_> =
            console::collected().err.lines().map(|line| line.to_owned()).collect();
        lines.sort();
        let begin = "9.9.9.9 > 1.0.0.1: icmp 2.0.0.2 unreachable";
        assert_eq!(
            lines,
            [
                format!("{begin} needfrag (mtu 576)"),
                format!("{begin} port udp/6"),
                format!("{begin} protocol udp")
            ]
        );
    }

    #[test]
    fn lines_go_to_a_file() {
        let name = std::env::temp_dir().join(format!("ip-print-{}", std::process::id()));
        std::fs::write(&name, "before").unwrap();
        let config = format!("a, TIMESTAMP false, OUTFILE {}", name.display());
        assert_eq!(lines("!data src\n1.0.0.1", &config), "");
        let text = std::fs::read_to_string(&name).unwrap();
        std::fs::remove_file(&name).unwrap();
        assert_eq!(text, "a: 1.0.0.1.0 > 0.0.0.0.0: . 0:0(0,40,40) win 0\n");
    }
}
