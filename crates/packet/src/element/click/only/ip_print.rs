//! Packets in words, a line each: `IPPrint` for IPv4, `ARPPrint` for ARP.
//!
//! Source: Click's elements of these names, whose lines are those of tcpdump of their time. `TIMESTAMP`, `PAINT`, `ID`,
//! `TTL`, `TOS`, `LENGTH` and `AGGREGATE` choose what a line has; `ETHER` of `ARPPrint` puts the Ethernet addresses
//! before it. Differs: contents are not written.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::element::click::only::annotations::Annotations;
use crate::element::click::only::clock::seconds;
use crate::element::click::only::console;
use crate::element::click::only::seen::{Seen, long, word};
use crate::element::support::setting::Setting;
use crate::frame::wire::ETHER_BYTES;
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::{ClassSpec, ConfigError};

pub(crate) const IP: ElementClass = ElementClass {
    spec: ClassSpec::new("IPPrint", "1/1", "a/a", "x/x").ignores(&[
        "CONTENTS",
        "PAYLOAD",
        "NBYTES",
        "MAXLENGTH",
        "OUTFILE",
        "CHANNEL",
        "SWAP",
    ]),
    summary: "writes IPv4 packets in words to the standard error",
    configure: |setup| {
        let label = setup.args.optional::<String>("LABEL");
        let mut is = |name, usual| -> Result<bool, ConfigError> {
            Ok(setup.args.keyword(name)?.unwrap_or(usual))
        };
        let (timestamp, paint, id) = (is("TIMESTAMP", true), is("PAINT", false), is("ID", false));
        let (ttl, tos, length) = (is("TTL", false), is("TOS", false), is("LENGTH", false));
        let (aggregate, active) = (is("AGGREGATE", false), is("ACTIVE", true));
        setup.args.finish()?;
        let show = Show {
            label: label?.unwrap_or_default(),
            timestamp: timestamp?,
            paint: paint?,
            id: id?,
            ttl: ttl?,
            tos: tos?,
            length: length?,
            aggregate: aggregate?,
        };
        let active = Setting::new(active?);
        let each = active.clone();
        let made = Made::new(move |instance| IpPrint {
            show: show.clone(),
            // A dry run is not to be seen there.
            active: if instance.is_dry_run() { Setting::new(false) } else { each.clone() },
        });
        Ok(active.handled(made, "active"))
    },
};

pub(crate) const ARP: ElementClass = ElementClass {
    spec: ClassSpec::new("ARPPrint", "1/1", "a/a", "x/x").ignores(&["OUTFILE"]),
    summary: "writes ARP packets in words to the standard error",
    configure: |setup| {
        let label = setup.args.optional::<String>("LABEL");
        let timestamp = setup.args.keyword("TIMESTAMP");
        let ether = setup.args.keyword("ETHER");
        let active = setup.args.keyword("ACTIVE");
        setup.args.finish()?;
        let (label, timestamp, ether) =
            (label?.unwrap_or_default(), timestamp?.unwrap_or(true), ether?.unwrap_or(false));
        let active = Setting::new(active?.unwrap_or(true));
        let each = active.clone();
        let made = Made::new(move |instance| ArpPrint {
            label: label.clone(),
            timestamp,
            ether,
            active: if instance.is_dry_run() { Setting::new(false) } else { each.clone() },
        });
        Ok(active.handled(made, "active"))
    },
};

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
}

struct IpPrint {
    show: Show,
    active: Setting<bool>,
}

struct ArpPrint {
    label: String,
    timestamp: bool,
    ether: bool,
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
            let _ = write!(line, "#{} ", seen.annotations.aggregate);
        }
        if self.paint {
            let _ = write!(line, "paint {}: ", seen.paint);
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
        match seen.transport() {
            Some((protocol @ (TCP | UDP), transport)) if transport.len() >= 4 => {
                let port = |at| word(transport, at).unwrap_or(0);
                let _ = write!(line, "{src}.{} > {dst}.{}: ", port(0), port(2));
                line += &match protocol {
                    TCP => tcp(transport, usize::from(ip[0] & 15) * 4, stated, seen.frame.len()),
                    _ => word(transport, 4)
                        .map_or("truncated-udp".into(), |len| format!("udp {len}")),
                };
            }
            Some((PROTOCOL_ICMP, transport)) => {
                let _ = write!(line, "{src} > {dst}: icmp {}", icmp(transport));
            }
            _ => {
                let protocol = match ip[9] {
                    TCP => "tcp".into(),
                    UDP => "udp".into(),
                    other => format!("ip-proto-{other}"),
                };
                let _ = write!(line, "{src} > {dst}: {protocol}");
            }
        }
        let fragment = word(ip, 6).unwrap_or(0);
        if fragment & 0x3fff != 0 {
            let (id, more) =
                (word(ip, 4).unwrap_or(0), if fragment & 0x2000 != 0 { "+" } else { "" });
            let length = usize::from(stated).saturating_sub(usize::from(ip[0] & 15) * 4);
            let _ = write!(line, " (frag {id}:{length}@{}{more})", (fragment & 0x1fff) * 8);
        }
        line
    }
}

fn tcp(header: &[u8], ip_header: usize, stated: u16, frame: usize) -> String {
    let (Some(seq), Some(ack), Some(window)) = (long(header, 4), long(header, 8), word(header, 14))
    else {
        return "truncated-tcp".into();
    };
    let bits = header[13];
    let letters = [(2, 'S'), (1, 'F'), (4, 'R'), (8, 'P')];
    let mut flags: String =
        letters.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| *letter).collect();
    if flags.is_empty() {
        flags.push('.');
    }
    let length = u32::from(stated)
        .saturating_sub(u32::try_from(ip_header).unwrap_or(0) + u32::from(header[12] >> 4) * 4);
    let length = length + u32::from(bits & 2 != 0) + u32::from(bits & 1 != 0);
    let ack = if bits & 16 != 0 { format!(" ack {ack}") } else { String::new() };
    format!(
        "{flags} {seq}:{}({length},{frame},{stated}){ack} win {window}",
        seq.wrapping_add(length)
    )
}

fn icmp(header: &[u8]) -> String {
    let (Some(&kind), code) = (header.first(), header.get(1).copied().unwrap_or(0)) else {
        return "truncated".into();
    };
    let numbers =
        || format!(" ({}, {})", word(header, 4).unwrap_or(0), word(header, 6).unwrap_or(0));
    let coded = |name: &str, codes: &[&str]| match codes.get(usize::from(code)) {
        Some(code) => format!("{name} {code}"),
        None => format!("{name} code {code}"),
    };
    match kind {
        0 => format!("echo-reply{}", numbers()),
        8 => format!("echo{}", numbers()),
        3 => coded(
            "unreachable",
            &[
                "net",
                "host",
                "protocol",
                "port",
                "needfrag",
                "srcroutefail",
                "netunknown",
                "hostunknown",
            ],
        ),
        5 => coded("redirect", &["net", "host", "nettos", "hosttos"]),
        11 => coded("timeexceeded", &["transit", "reassembly"]),
        12 => coded("parameterproblem", &["erroratptr", "missingopt", "length"]),
        4 => "sourcequench".into(),
        13 => format!("timestamp{}", numbers()),
        14 => format!("timestampreply{}", numbers()),
        other => format!("type {other}"),
    }
}

impl Element for IpPrint {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        if !self.active.get() {
            return;
        }
        for i in 0..batch.len() {
            console::err(&format!("{}\n", self.show.line(&Seen::packet(batch, i))));
        }
    }
}

fn mac(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    digits.join("-")
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
                Some(line) if self.active.get() => console::err(&format!("{line}\n")),
                Some(_) => {}
                None => batch.discard(i, DropReason::Unmatched),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::element::click::only::console;
    use crate::testing::{Rig, World};

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
    }
}
