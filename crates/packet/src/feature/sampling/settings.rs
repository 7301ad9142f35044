//! `sampling` of `[[interface]]`, and `[[collector]]`: rates and collectors as the configuration has them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use fingerpost_route::InterfaceSet;

use super::{AsNumbers, Sampling};
use crate::feature::reader::{Mistake, Placed, TableReader, read_items};
use crate::feature::row::{Field, Given, Item, Settings as FeatureSettings, State, Support, Use};
use crate::feature::value::Value;
use crate::sample::HEADER_BYTES;

/// Sampling rates and collectors of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    interfaces: Vec<Interface>,
    collectors: Vec<Placed<Collector>>,
}

/// An interface with its rate.
#[derive(Clone, Debug)]
struct Interface {
    name: String,
    place: String,
    rate: u32,
}

/// Protocol of reports to a collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// sFlow version 5.
    Sflow,
    /// IPFIX (RFC 7011).
    Ipfix,
}

impl Protocol {
    const WORDS: [(&'static str, Self); 2] = [("sflow", Self::Sflow), ("ipfix", Self::Ipfix)];

    /// The port of collectors, by IANA.
    fn usual_port(self) -> u16 {
        match self {
            Self::Sflow => 6343,
            Self::Ipfix => 4739,
        }
    }

    /// Its name in configuration, logs and metrics.
    pub fn name(self) -> &'static str {
        let word = Self::WORDS.iter().find(|(_, protocol)| *protocol == self);
        word.expect("each has a word").0
    }
}

/// Where reports are sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Collector {
    /// Address and port.
    pub address: SocketAddr,
    /// Protocol.
    pub protocol: Protocol,
    /// Address by which the router calls itself; `None` for that which its datagrams come from.
    pub agent: Option<IpAddr>,
    /// Seconds between two reports of counters.
    pub counters_s: u32,
    /// Most bytes of a packet in a report.
    pub header: u16,
    /// File of [`AsNumbers`], for the AS numbers of source and destination.
    pub as_table: Option<String>,
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.address, self.protocol.name())
    }
}

/// Interfaces at most: a port has the number of its interface in a word.
const MOST_INTERFACES: usize = 60_000;

const MOST_COLLECTORS: usize = 16;

/// Greatest rate: the XDP datapath has 16 bits for it beside the other features of a port.
const MOST_RATE: u32 = 65_535;

/// Seconds between two reports of counters, unless they are given: as often as sFlow agents usually do.
const USUAL_COUNTERS_S: u32 = 20;

/// Bytes of a packet, unless they are given: those of sFlow's specification.
const USUAL_HEADER: u16 = 128;

/// Room for the headers of Ethernet, IPv6 and TCP, whatever is wanted.
const LEAST_HEADER: u16 = 80;

pub(super) const FIELDS: &[Field] = &[
    Field::new(
        "address",
        "text as `\"192.0.2.1:6343\"`",
        "Address of the collector, and its UDP port: without one 6343 for sFlow, 4739 for IPFIX.",
    ),
    Field::new("protocol", "`sflow`, `ipfix`", "sFlow version 5, or IPFIX (RFC 7011)."),
    Field::new(
        "agent",
        "text as `\"192.0.2.9\"`",
        "Address by which the router calls itself in sFlow; without it the address that it sends from.",
    ),
    Field::new(
        "counters_s",
        "a number of seconds",
        "Interval of counter samples, and in IPFIX of templates and selectors: 1 to 3600, usually 20.",
    ),
    Field::new(
        "header",
        "a number of bytes",
        "Most bytes of a packet that a sample has in sFlow: 80 to 256, usually 128.",
    ),
    Field::new(
        "as_table",
        "text",
        "File of prefixes and their AS numbers, a line each, for those of source and destination.",
    ),
];

pub(super) fn read(given: &Given, mistakes: &mut Vec<Mistake>) -> Arc<dyn FeatureSettings> {
    let mut settings = Settings::default();
    for interface in &given.interfaces {
        let Some(value) = &interface.value else { continue };
        match read_rate(value) {
            Ok(rate) => settings.interfaces.push(Interface {
                name: interface.name.clone(),
                place: interface.place.clone(),
                rate,
            }),
            Err(what) => mistakes.push(Mistake::new(&interface.place, what)),
        }
    }
    if let Some(one) = settings.interfaces.get(MOST_INTERFACES) {
        let what = format!("limit exceeded: {MOST_INTERFACES} interfaces that sample");
        mistakes.push(Mistake::new(&one.place, what));
    }
    if let (Some(first), []) = (settings.interfaces.first(), &*given.items) {
        let what =
            "`sampling` needs a collector: add `[[collector]]` with its `address` and `protocol`";
        mistakes.push(Mistake::new(&first.place, what));
    }
    settings.collectors = read_items(
        given,
        mistakes,
        (MOST_COLLECTORS, "collectors"),
        ("collector", |_| ""),
        |_, place, value, mistakes| read_collector(place, value, mistakes),
    );
    for (number, one) in settings.collectors.iter().enumerate() {
        let same = |known: &Placed<Collector>| known.item.address == one.item.address;
        if settings.collectors[..number].iter().any(same) {
            let what = format!("collector {} is given twice", one.item.address);
            mistakes.push(Mistake::new(format!("{}.address", one.place), what));
        }
    }
    Arc::new(settings)
}

fn read_rate(value: &Value) -> Result<u32, String> {
    let wanted = format!("one packet in so many, 1 to {MOST_RATE}");
    let Value::Integer(rate) = value else {
        return Err(format!("`sampling`: invalid type: {}, expected {wanted}", value.describe()));
    };
    let read = u32::try_from(*rate).ok().filter(|rate| (1..=MOST_RATE).contains(rate));
    read.ok_or_else(|| format!("`sampling`: {rate} is out of range: {wanted}"))
}

fn read_collector(place: &str, value: &Value, mistakes: &mut Vec<Mistake>) -> Option<Collector> {
    let mut table = TableReader::new(place, value, FIELDS, mistakes)?;
    let protocol = table.required_word("protocol", &Protocol::WORDS).unwrap_or(Protocol::Sflow);
    let address = table.required_text("address").and_then(|text| {
        let read = text
            .parse()
            .or_else(|_| text.parse().map(|addr: IpAddr| (addr, protocol.usual_port()).into()));
        let wanted = "\"192.0.2.1\", \"192.0.2.1:6343\" or \"[2001:db8::1]:6343\"";
        table.tried("address", read.map_err(|_| format!("`{text}` is no address: write {wanted}")))
    });
    if let Some(0) = address.map(|address: SocketAddr| address.port()) {
        table.wrong("address", None, "port 0 is none that a collector listens at");
    }
    let agent = table.text("agent").and_then(|text| {
        table.tried("agent", text.parse().map_err(|_| format!("`{text}` is no address")))
    });
    let counters_s = number(&mut table, "counters_s", 1..=3600).unwrap_or(USUAL_COUNTERS_S);
    let most = u32::try_from(HEADER_BYTES).expect("a few hundred");
    let header = number(&mut table, "header", LEAST_HEADER.into()..=most);
    let header = header.and_then(|bytes| bytes.try_into().ok()).unwrap_or(USUAL_HEADER);
    let as_table = table.text("as_table").map(ToOwned::to_owned);
    Some(Collector { address: address?, protocol, agent, counters_s, header, as_table })
}

/// A number of a range, where the key is given.
fn number<'a>(
    table: &mut TableReader<'a>,
    key: &'a str,
    range: std::ops::RangeInclusive<u32>,
) -> Option<u32> {
    let read = match table.value(key)? {
        Value::Integer(number) => u32::try_from(*number).ok().filter(|n| range.contains(n)),
        _ => None,
    };
    let (least, most) = (range.start(), range.end());
    table.tried(key, read.ok_or_else(|| format!("`{key}` is a number from {least} to {most}")))
}

impl Settings {
    fn rates(&self) -> Vec<(String, u32)> {
        self.interfaces.iter().map(|one| (one.name.clone(), one.rate)).collect()
    }

    fn collectors(&self) -> Vec<Collector> {
        self.collectors.iter().map(|placed| placed.item.clone()).collect()
    }
}

impl FeatureSettings for Settings {
    fn is_same(&self, other: &dyn FeatureSettings) -> bool {
        let of = |one: &Self| (one.rates(), one.collectors());
        other.of::<Self>().is_some_and(|other| of(self) == of(other))
    }

    fn on(&self, interface: &str) -> Option<Use> {
        let found = self.interfaces.iter().find(|known| known.name == interface)?;
        let words = format!("1 in {}", found.rate);
        Some(Use { words, named: true, place: found.place.clone() })
    }

    fn interfaces(&self) -> InterfaceSet {
        InterfaceSet::Some(self.interfaces.iter().map(|one| one.name.clone()).collect())
    }

    fn xdp(&self, _: Option<&str>) -> Support {
        Support::Xdp
    }

    fn items(&self) -> Vec<Item> {
        let rate = |one: &Interface| {
            Item::new(format!("interface {} sampling", one.name), format!("1 in {}", one.rate))
        };
        let collector = |Placed { item, .. }: &Placed<Collector>| {
            let Collector { address, protocol, agent, counters_s, header, as_table } = item;
            let mut words =
                format!("{}, counters every {counters_s} s, header {header}", protocol.name());
            if let Some(agent) = agent {
                words += &format!(", agent {agent}");
            }
            if let Some(file) = as_table {
                words += &format!(", AS numbers of {file}");
            }
            Item::new(format!("collector {address}"), words)
        };
        self.interfaces.iter().map(rate).chain(self.collectors.iter().map(collector)).collect()
    }

    fn files(&self) -> Vec<(String, String)> {
        let file = |placed: &Placed<Collector>| {
            Some((format!("{}.as_table", placed.place), placed.item.as_table.clone()?))
        };
        self.collectors.iter().filter_map(file).collect()
    }

    fn check_files(&self) -> Vec<Mistake> {
        let wrong = |(place, file): (String, String)| {
            AsNumbers::read(&file).err().map(|what| Mistake::new(place, what))
        };
        self.files().into_iter().filter_map(wrong).collect()
    }

    fn make(&self, before: Option<&dyn State>) -> Result<Option<Arc<dyn State>>, Vec<String>> {
        if self.collectors.is_empty() {
            return Ok(None);
        }
        let before = before.and_then(|before| before.of());
        Ok(Some(Arc::new(Sampling::new(&self.rates(), self.collectors(), before))))
    }
}
