//! Aggregates: packets get the number of the group that they belong to. `AggregateIP(FIELD)` takes it from a field of
//! the header, `AggregateLength` from the length, `AggregatePaint` from the color, `AggregateIPAddrPair` and
//! `AggregateIPFlows` number pairs of addresses, and flows; `AggregateFirst` and `AggregateLast` sort out the first and
//! last packet of each, `AggregateFilter` picks some.
//!
//! Source: Click's elements of these names. A field is `ip src`, `ip dst/8`, `tcp sport`, `ip ttl`, or bits of a
//! header: `ip[OFFSET]`, `tcp[OFFSET:BYTES]`, each with `/PREFIX` for its first bits. With `INCREMENTAL true` the new
//! bits are put behind those of the aggregate before. What has no such field leaves by the second output, where it is
//! used, or ends. Flows end after `TCP_TIMEOUT` (a day), `TCP_DONE_TIMEOUT` (30 s, after both sides finished) or
//! `UDP_TIMEOUT` (60 s) without a packet. Packets of a flow's other direction get color 1, and those of its first color
//! 0. Later fragments belong to no flow: they leave by the second output. Workers number for themselves. Differs:
//! `TRACEINFO` is not written, and ICMP errors are flows of their own.

use std::collections::HashMap;
use std::collections::HashSet;
use std::time::Duration;

use super::annotations::Annotations;
use super::clock;
use super::each::{class, each, sorting};
use super::seen::{Seen, word};
use crate::element::support::setting::Setting;
use crate::filter::names;
use crate::frame::wire::icmp::PROTOCOL_ICMP;
use crate::frame::wire::protocol::{TCP, UDP};
use crate::frame::wire::{Ip4, Ip6};
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Exit, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError, Value};

/// Gives packet `i` an aggregate.
fn set(batch: &mut Batch, i: usize, aggregate: u32) {
    let mut annotations = Annotations::of(batch, i);
    annotations.aggregate = aggregate;
    annotations.set(batch, i);
}

/// Header that a field is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Header {
    Ip,
    /// The transport header, of a protocol where one is named.
    Transport(Option<u8>),
}

/// Bits of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    header: Header,
    offset_bits: usize,
    bits: usize,
}

/// Names of fields: where they are, in bits.
const FIELDS: &[(&str, Header, usize, usize)] = &[
    ("ip vers", Header::Ip, 0, 4),
    ("ip hl", Header::Ip, 4, 4),
    ("ip tos", Header::Ip, 8, 8),
    ("ip dscp", Header::Ip, 8, 6),
    ("ip ecn", Header::Ip, 14, 2),
    ("ip len", Header::Ip, 16, 16),
    ("ip id", Header::Ip, 32, 16),
    ("ip off", Header::Ip, 48, 16),
    ("ip ttl", Header::Ip, 64, 8),
    ("ip proto", Header::Ip, 72, 8),
    ("ip sum", Header::Ip, 80, 16),
    ("ip src", Header::Ip, 96, 32),
    ("ip dst", Header::Ip, 128, 32),
    ("sport", Header::Transport(None), 0, 16),
    ("dport", Header::Transport(None), 16, 16),
    ("tcp sport", Header::Transport(Some(TCP)), 0, 16),
    ("tcp dport", Header::Transport(Some(TCP)), 16, 16),
    ("tcp seq", Header::Transport(Some(TCP)), 32, 32),
    ("tcp ack", Header::Transport(Some(TCP)), 64, 32),
    ("tcp flags", Header::Transport(Some(TCP)), 104, 8),
    ("tcp win", Header::Transport(Some(TCP)), 112, 16),
    ("udp sport", Header::Transport(Some(UDP)), 0, 16),
    ("udp dport", Header::Transport(Some(UDP)), 16, 16),
    ("udp len", Header::Transport(Some(UDP)), 32, 16),
    ("icmp type", Header::Transport(Some(PROTOCOL_ICMP)), 0, 8),
    ("icmp code", Header::Transport(Some(PROTOCOL_ICMP)), 8, 8),
];

impl Value for Field {
    fn read(text: &str) -> Result<Self, String> {
        let wrong =
            || "no field: `ip src`, `ip dst/8`, `tcp sport`, `ip[9]`, `tcp[0:2]`".to_owned();
        let (place, prefix) = match text.split_once('/') {
            None => (text.trim(), None),
            Some((place, prefix)) => {
                (place.trim(), Some(usize::read(prefix.trim()).map_err(|_| wrong())?))
            }
        };
        let joined = place.split_whitespace().collect::<Vec<_>>().join(" ");
        let named = FIELDS.iter().find(|(name, ..)| *name == joined);
        let mut field = match named {
            Some(&(_, header, offset_bits, bits)) => Self { header, offset_bits, bits },
            None => {
                let (header, rest) = place.split_once('[').ok_or_else(wrong)?;
                let numbers = rest.strip_suffix(']').ok_or_else(wrong)?;
                let (offset, bytes) = numbers.split_once(':').unwrap_or((numbers, "1"));
                let number =
                    |text: &str| u16::read(text.trim()).map(usize::from).map_err(|_| wrong());
                let header = match header.trim() {
                    "ip" => Header::Ip,
                    "transp" => Header::Transport(None),
                    name => Header::Transport(Some(names::protocol(name).ok_or_else(wrong)?)),
                };
                Self { header, offset_bits: number(offset)? * 8, bits: number(bytes)? * 8 }
            }
        };
        field.bits = prefix.map_or(field.bits, |prefix| prefix.min(field.bits));
        match field.bits {
            1..=32 => Ok(field),
            _ => Err("no field of 1 to 32 bits".into()),
        }
    }
}

impl Field {
    /// Its value in a packet.
    fn of(self, seen: &Seen<'_>) -> Option<u32> {
        let bytes = match self.header {
            Header::Ip => seen.ip()?,
            Header::Transport(wanted) => {
                let (protocol, transport) = seen.transport()?;
                let fits = match wanted {
                    Some(wanted) => protocol == wanted,
                    None => matches!(protocol, TCP | UDP),
                };
                Some(transport).filter(|_| fits)?
            }
        };
        let mut value = 0_u64;
        let (first, last) = (self.offset_bits / 8, (self.offset_bits + self.bits - 1) / 8);
        for &byte in bytes.get(first..=last)? {
            value = value << 8 | u64::from(byte);
        }
        let behind = (last + 1) * 8 - (self.offset_bits + self.bits);
        u32::try_from(value >> behind & ((1 << self.bits) - 1)).ok()
    }
}

pub(crate) const IP: ElementClass = sorting(
    "AggregateIP",
    &["out", "others"],
    "gives packets the number that a field has",
    |setup| {
        let arg = setup.args.positional_arg("FIELD")?;
        let incremental = setup.args.keyword("INCREMENTAL");
        let unshift = setup.args.keyword("UNSHIFT_IP_ADDR");
        setup.args.finish()?;
        let text = arg.raw().to_owned();
        let field = Field::read(&text)
            .map_err(|words| setup.args.refuse(&arg, &format!("FIELD: `{text}` is {words}")))?;
        let incremental = incremental?.unwrap_or(false);
        // The prefix of an address is itself an address.
        let is_addr = field.header == Header::Ip && matches!(field.offset_bits, 96 | 128);
        let shift = if unshift?.unwrap_or(false) && is_addr { 32 - field.bits } else { 0 };
        let exit = setup.exit(1, DropReason::Unmatched);
        let made = each(move |batch, i| match field.of(&Seen::packet(batch, i)) {
            None => exit.take(batch, i),
            Some(value) if incremental => {
                let before = u64::from(Annotations::of(batch, i).aggregate);
                let [a, b, c, d, ..] = (before << field.bits | u64::from(value)).to_le_bytes();
                set(batch, i, u32::from_le_bytes([a, b, c, d]));
            }
            Some(value) => set(batch, i, value << shift),
        })?;
        let header = match field.header {
            Header::Ip => "ip",
            Header::Transport(_) => "transp",
        };
        Ok(made
            .handler(Handler::read("field", move || text.clone()))
            .handler(Handler::read("header", move || header.to_owned()))
            .handler(Handler::read("bit_offset", move || field.offset_bits.to_string()))
            .handler(Handler::read("bit_length", move || field.bits.to_string())))
    },
);

pub(crate) const LENGTH: ElementClass =
    class("AggregateLength", "gives packets their length as a number", |setup| {
        let ip = setup.args.keyword("IP");
        setup.args.finish()?;
        let ip = ip?.unwrap_or(false);
        each(move |batch, i| {
            let seen = Seen::packet(batch, i);
            let length = match (ip, seen.ip().and_then(|ip| word(ip, 2))) {
                (true, Some(stated)) => u32::from(stated),
                _ => {
                    u32::try_from(batch.frame_len(i)).unwrap_or(u32::MAX)
                        + Annotations::of(batch, i).extra_length
                }
            };
            set(batch, i, length);
        })
    });

pub(crate) const PAINT: ElementClass =
    class("AggregatePaint", "gives packets their color as a number", |setup| {
        let bits = setup.args.optional::<u32>("BITS");
        let incremental = setup.args.keyword("INCREMENTAL");
        setup.args.finish()?;
        let (bits, incremental) = (bits?.unwrap_or(8), incremental?.unwrap_or(false));
        if !(1..=8).contains(&bits) {
            return Err(setup.args.refuse_all("BITS: 1 to 8 are possible"));
        }
        each(move |batch, i| {
            let paint = u32::from(batch.meta()[i].paint) & ((1 << bits) - 1);
            let before = Annotations::of(batch, i).aggregate;
            set(batch, i, if incremental { before << bits | paint } else { paint });
        })
    });

/// What packets are numbered by: ends in an order that both directions have.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Ends {
    addrs: [u128; 2],
    ports: [u16; 2],
    protocol: u8,
}

struct Numbered {
    number: u32,
    /// The second of the ends sent first.
    turned: bool,
    last_ns: i64,
    /// FIN of each direction.
    finished: [bool; 2],
}

pub(crate) const PAIRS: ElementClass =
    sorting("AggregateIPAddrPair", OTHERS, "numbers pairs of addresses", |setup| {
        let timeout = setup.args.keyword::<Duration>("TIMEOUT");
        setup.args.keyword::<Duration>("REAP")?;
        let timeout = timeout?.filter(|timeout| !timeout.is_zero()).map_or(i64::MAX, nanoseconds);
        flows(setup, Timeouts { tcp_ns: timeout, done_ns: timeout, other_ns: timeout }, false)
    });

pub(crate) const FLOWS: ElementClass =
    sorting("AggregateIPFlows", OTHERS, "numbers flows", |setup| {
        let tcp = setup.args.keyword::<Duration>("TCP_TIMEOUT");
        let done = setup.args.keyword::<Duration>("TCP_DONE_TIMEOUT");
        let udp = setup.args.keyword::<Duration>("UDP_TIMEOUT");
        setup.args.keyword::<Duration>("FRAGMENT_TIMEOUT")?;
        setup.args.keyword::<Duration>("REAP")?;
        for ignored in ["ICMP", "FRAGMENTS", "TRACEINFO", "SOURCE"] {
            if setup.args.keyword_arg(ignored)?.is_some() {
                setup.args.warn_all(&format!("{ignored}: nothing is changed by it here"));
            }
        }
        let time = |given: Option<Duration>, seconds| {
            nanoseconds(given.unwrap_or(Duration::from_secs(seconds)))
        };
        let timeouts = Timeouts {
            tcp_ns: time(tcp?, 86_400),
            done_ns: time(done?, 30),
            other_ns: time(udp?, 60),
        };
        flows(setup, timeouts, true)
    });

const OTHERS: &[&str] = &["out", "others"];

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[derive(Clone, Copy)]
struct Timeouts {
    tcp_ns: i64,
    done_ns: i64,
    other_ns: i64,
}

fn flows(setup: &mut Setup<'_>, timeouts: Timeouts, ports: bool) -> Result<Made, ConfigError> {
    setup.args.finish()?;
    let exit = setup.exit(1, DropReason::Unmatched);
    let clears = Setting::<u32>::new(0);
    let each = clears.clone();
    let made = Made::new(move |_| Flows {
        timeouts,
        ports,
        exit,
        known: HashMap::new(),
        next: 1,
        seen: each.get(),
        clears: each.clone(),
    });
    Ok(made.command("clear", move || clears.change(|clears| clears.wrapping_add(1))))
}

/// Flows that are known at most; then all are forgotten.
const MOST_FLOWS: usize = 1 << 20;

struct Flows {
    timeouts: Timeouts,
    ports: bool,
    exit: Exit,
    known: HashMap<Ends, Numbered>,
    next: u32,
    /// Number of requests to begin anew, and of those carried out.
    clears: Setting<u32>,
    seen: u32,
}

impl Flows {
    /// Ends of a packet, whether it comes from the second of them, and flags of TCP.
    fn ends(&self, seen: &Seen<'_>) -> Option<(Ends, bool, u8)> {
        let (src, dst, protocol, transport) = match seen.ip() {
            Some(ip) => {
                let header = Ip4::at(ip, 0)?;
                let transport = match seen.transport() {
                    Some((_, transport)) => transport,
                    None if self.ports => return None,
                    None => &[],
                };
                (header.src().into(), header.dst().into(), header.protocol(), transport)
            }
            None => {
                let frame = seen.frame.get(seen.network..)?;
                let header = Ip6::at(frame, 0).filter(|header| header.version() == 6)?;
                (header.src(), header.dst(), header.next_header(), frame.get(40..)?)
            }
        };
        let (mut sport, mut dport) = (0, 0);
        if self.ports && matches!(protocol, TCP | UDP) {
            (sport, dport) = (word(transport, 0)?, word(transport, 2)?);
        }
        let turned = (src, sport) > (dst, dport);
        let (addrs, ports) = match turned {
            true => ([dst, src], [dport, sport]),
            false => ([src, dst], [sport, dport]),
        };
        let protocol = if self.ports { protocol } else { 0 };
        let flags = if protocol == TCP { transport.get(13).copied().unwrap_or(0) } else { 0 };
        Some((Ends { addrs, ports, protocol }, turned, flags))
    }

    /// Number of a packet, and its direction.
    fn number(&mut self, ends: Ends, turned: bool, flags: u8, now_ns: i64) -> (u32, bool) {
        let timeouts = self.timeouts;
        let limit = |known: &Numbered| match (ends.protocol, known.finished) {
            (TCP, [true, true]) => timeouts.done_ns,
            (TCP, _) => timeouts.tcp_ns,
            _ => timeouts.other_ns,
        };
        let old = self.known.get(&ends);
        if old.is_none_or(|known| now_ns.saturating_sub(known.last_ns) >= limit(known)) {
            if self.known.len() >= MOST_FLOWS {
                self.known.clear();
            }
            let flow =
                Numbered { number: self.next, turned, last_ns: now_ns, finished: [false; 2] };
            self.next = self.next.wrapping_add(1).max(1);
            self.known.insert(ends, flow);
        }
        let Some(flow) = self.known.get_mut(&ends) else { return (0, false) };
        flow.last_ns = now_ns;
        let reply = flow.turned != turned;
        flow.finished[usize::from(reply)] |= flags & 1 != 0;
        if flags & 4 != 0 {
            flow.finished = [true; 2];
        }
        (flow.number, reply)
    }
}

impl Element for Flows {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let clears = self.clears.get();
        if clears != self.seen {
            self.seen = clears;
            self.known.clear();
        }
        for i in 0..batch.len() {
            let seen = Seen::packet(batch, i);
            let Some((ends, turned, flags)) = self.ends(&seen) else {
                self.exit.take(batch, i);
                continue;
            };
            let now_ns = match seen.annotations.timestamp_ns {
                0 => clock::time_of_day(cx.now_ns),
                time => time,
            };
            let (number, reply) = self.number(ends, turned, flags, now_ns);
            set(batch, i, number);
            batch.meta_mut()[i].paint = u8::from(reply);
        }
    }
}

pub(crate) const FIRST: ElementClass = sorting(
    "AggregateFirst",
    &["first", "others"],
    "passes the first packet of each aggregate",
    |setup| {
        setup.args.keyword_arg("NOTIFIER")?;
        setup.args.finish()?;
        let exit = setup.exit(1, DropReason::Discarded);
        Ok(Made::new(move |_| First { exit, seen: HashSet::new() }))
    },
);

struct First {
    exit: Exit,
    seen: HashSet<u32>,
}

impl Element for First {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let aggregate = Annotations::of(batch, i).aggregate;
            if self.seen.len() >= MOST_FLOWS {
                self.seen.clear();
            }
            if !self.seen.insert(aggregate) {
                self.exit.take(batch, i);
            }
        }
    }
}

pub(crate) const FILTER: ElementClass = ElementClass {
    spec: ClassSpec::new("AggregateFilter", "1/1-254", "h/h", "x/x"),
    summary: "sorts packets by their aggregates",
    configure: |setup| {
        let given: Vec<_> = setup.args.rest().collect();
        let mut rules = Vec::new();
        for arg in &given {
            match Rule::read(arg.raw(), setup.outputs) {
                Ok(rule) => rules.push(rule),
                Err(words) => {
                    setup.args.refuse(arg, &words);
                }
            }
        }
        setup.args.finish()?;
        Ok(Made::new(move |_| Filter { rules: rules.clone() }))
    },
};

/// What becomes of packets of some aggregates.
#[derive(Clone)]
struct Rule {
    output: Option<u16>,
    /// Ranges, with their last; empty for all.
    ranges: Vec<(u32, u32)>,
}

impl Rule {
    fn read(text: &str, outputs: u32) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let output = match words.next() {
            Some("allow") => Some(0),
            Some("deny" | "drop") => None,
            Some(number) => {
                let output = u16::read(number).ok().filter(|&n| u32::from(n) < outputs);
                Some(output.ok_or_else(|| {
                    format!("`{number}` is neither `allow`, `deny` nor an output")
                })?)
            }
            None => return Err("a rule is an action and aggregates".into()),
        };
        let mut ranges = Vec::new();
        for word in words {
            if matches!(word, "all" | "-" | "else" | "other") {
                return Ok(Self { output, ranges: Vec::new() });
            }
            let (low, high) = word.split_once('-').unwrap_or((word, word));
            let number = |text| u32::read(text).map_err(|words| format!("`{word}` is {words}"));
            ranges.push((number(low)?, number(high)?));
        }
        if ranges.is_empty() {
            Err("a rule is an action and aggregates".into())
        } else {
            Ok(Self { output, ranges })
        }
    }

    fn fits(&self, aggregate: u32) -> bool {
        self.ranges.is_empty()
            || self.ranges.iter().any(|&(low, high)| (low..=high).contains(&aggregate))
    }
}

struct Filter {
    rules: Vec<Rule>,
}

impl Element for Filter {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let aggregate = Annotations::of(batch, i).aggregate;
            match self.rules.iter().find(|rule| rule.fits(aggregate)).and_then(|rule| rule.output) {
                Some(output) => batch.output(i, output),
                None => batch.discard(i, DropReason::Unmatched),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::click::only::console;
    use crate::testing::{Rig, World, frame_v4, refused, run};

    #[test]
    fn fields_are_numbers() {
        let frame = frame_v4("10.1.2.3", "192.0.2.7", 64, 17, &[0, 53, 1, 2, 0, 8, 0, 0]);
        let number = |config: &str| {
            let batch = run(&IP, config, 14, &[&frame]);
            Annotations::of(&batch, 0).aggregate
        };
        assert_eq!(number("ip src/8"), 10);
        assert_eq!(number("ip src/16, UNSHIFT_IP_ADDR true"), 0x0a01_0000);
        assert_eq!(
            [number("udp dport"), number("ip ttl"), number("ip[9]"), number("udp[0:2]")],
            [258, 64, 17, 53]
        );
        assert_eq!(number("ip hl"), 5);
        let tcp = run(&IP, "tcp sport", 14, &[&frame]);
        assert_eq!(tcp.decision(0), crate::frame::Decision::Output(1));
        assert!(refused(&IP, "ip color").contains("is no field"));
        let text = "FromDevice(a) -> MarkIPHeader(14) -> AggregateIP(ip src/8) -> g :: AggregateIP(ip ttl, INCREMENTAL true)
            -> f :: AggregateFilter(1 2624, deny all); f [0] -> ToDevice(x); f [1] -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        assert_eq!(rig.receive("a", &[&frame])[0].0, "y", "10 * 256 + 64");
        assert_eq!((rig.read("g.bit_offset"), rig.read("g.field")), ("64".into(), "ip ttl".into()));
    }

    #[test]
    fn flows_are_numbered_in_both_directions() {
        console::collect();
        let rows = "!data timestamp src sport dst dport proto\n1 1.0.0.1 5 2.0.0.2 6 U\n2 2.0.0.2 6 1.0.0.1 5 U\n3 1.0.0.1 7 2.0.0.2 6 U\n100 1.0.0.1 5 2.0.0.2 6 U\n";
        let text = format!(
            "FromIPSummaryDump(DATA \"{rows}\", STOP true) -> AggregateIPFlows -> f :: AggregateFirst -> c :: Counter -> t :: ToIPSummaryDump(-, HEADER false, FIELDS aggregate link);
             f [1] -> AggregateIPAddrPair -> t"
        );
        let mut rig = Rig::new(&World::new(), &text);
        (0..20).for_each(|_| drop(rig.poll()));
        assert_eq!(console::collected().out, "1 0\n1 0\n2 0\n3 0\n", "the pair begins anew");
        assert_eq!(rig.read("c.count"), "3");
        let frame = frame_v4("10.1.2.3", "192.0.2.7", 64, 17, &[0; 30]);
        assert_eq!(Annotations::of(&run(&LENGTH, "IP true", 14, &[&frame]), 0).aggregate, 50);
        assert_eq!(Annotations::of(&run(&LENGTH, "", 14, &[&frame]), 0).aggregate, 64);
    }
}
