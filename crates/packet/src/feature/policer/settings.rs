//! `[[policer]]`: policers as the configuration has them.

use std::sync::Arc;

use fingerpost_route::InterfaceSet;

use super::{Exceed, Policers};
use crate::element::support::allowance::Rate;
use crate::feature::acl::Direction;
use crate::feature::reader::{Mistake, Placed, TableReader, rate, read_items, unknown_interface};
use crate::feature::row::{Field, Given, Item, Settings as FeatureSettings, State, Support, Use};
use crate::feature::value::Value;
use crate::filter::Condition;

/// The policers of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<Placed<Policer>>);

/// A policer as it is configured.
#[derive(Clone, Debug)]
pub(super) struct Policer {
    pub(super) name: String,
    pub(super) interface: String,
    pub(super) direction: Direction,
    pub(super) rate: Rate,
    /// Packets or bytes that conform at once.
    pub(super) burst: u64,
    pub(super) exceed: Exceed,
    /// The condition that takes its packets, and its text; `None` for all of the interface.
    pub(super) condition: Option<(Condition, String)>,
}

/// Conditions are the same when their texts are.
impl PartialEq for Policer {
    fn eq(&self, other: &Self) -> bool {
        let of = |one: &Self| {
            let text = one.condition.as_ref().map(|(_, text)| text.clone());
            let names = (one.name.clone(), one.interface.clone());
            (names, one.direction, one.rate, one.burst, one.exceed, text)
        };
        of(self) == of(other)
    }
}

/// Policers at most: a port has the number of its interface's in a word.
const MOST_POLICERS: usize = 60_000;

/// The time in which a burst of the usual size comes back.
const USUAL_BURST_MS: u64 = 20;

/// Bytes of a burst at least, unless it is given: a few packets.
const LEAST_BURST_BYTES: u64 = 16_000;

/// Packets of a burst at least, unless it is given.
const LEAST_BURST_PACKETS: u64 = 16;

pub(super) const FIELDS: &[Field] = &[
    Field::new("name", "text", "Name in commands and counters."),
    Field::new("interface", "text", "Interface whose packets it is for."),
    Field::new("direction", "`in`, `out`", "Whether it is for packets that arrive, or that leave."),
    Field::new("match", "text", "Condition that its packets meet; all where it is missing."),
    Field::new(
        "rate",
        "a number of packets a second, or text as `\"8Mbps\"`",
        "Rate of the token bucket.",
    ),
    Field::new(
        "burst",
        "a number of packets or bytes",
        "Size of the token bucket; without it 20 ms at the rate, at least 16 packets or 16,000 bytes.",
    ),
    Field::new(
        "exceed",
        "`drop`, `dscp N`",
        "What becomes of packets above the rate: they are dropped, which is usual, or marked.",
    ),
];

pub(super) fn read(given: &Given, mistakes: &mut Vec<Mistake>) -> Arc<dyn FeatureSettings> {
    let most = (MOST_POLICERS, "policers");
    let items =
        read_items(given, mistakes, most, ("policer", |one: &Policer| &one.name), read_policer);
    Arc::new(Settings(items))
}

fn read_policer(
    given: &Given,
    place: &str,
    value: &Value,
    mistakes: &mut Vec<Mistake>,
) -> Option<Policer> {
    let mut table = TableReader::new(place, value, FIELDS, mistakes)?;
    let name = table.required_text("name").unwrap_or_default().to_owned();
    let interface = table.required_text("interface").unwrap_or_default().to_owned();
    let known = || given.interfaces.iter().map(|known| &*known.name);
    if table.is_sure("interface")
        && !given.interfaces.is_empty()
        && !known().any(|known| known == interface)
    {
        table.wrong("interface", None, unknown_interface(&interface, known()));
    }
    let direction = table.required_word("direction", &Direction::WORDS).unwrap_or(Direction::In);
    let condition = table.text("match").and_then(|text| {
        let parsed = Condition::parse(text).map_err(|error| format!("`{text}`: {error}"));
        Some((table.tried("match", parsed)?, text.to_owned()))
    });
    if table.value("rate").is_none() {
        table.missing("rate");
    }
    let rate = table.rate("rate").unwrap_or_else(|| rate("1").expect("a rate"));
    let burst = match table.value("burst").map(|value| read_burst(value, rate)) {
        Some(Ok(burst)) => burst,
        Some(Err(what)) => {
            if table.is_sure("rate") {
                table.wrong("burst", None, what);
            }
            1
        }
        None => {
            let least = if rate.is_of_bytes() { LEAST_BURST_BYTES } else { LEAST_BURST_PACKETS };
            (rate.per_second() / 1_000).saturating_mul(USUAL_BURST_MS).max(least)
        }
    };
    let exceed = match table.text("exceed") {
        None | Some("drop") => Exceed::Drop,
        Some(text) => {
            let dscp = text.strip_prefix("dscp ").and_then(|number| number.trim().parse().ok());
            let dscp = dscp.filter(|dscp: &u8| *dscp < 64);
            if dscp.is_none() {
                let what = format!("`{text}`: `exceed` is \"drop\", or \"dscp N\" with 0 to 63");
                table.wrong("exceed", None, what);
            }
            dscp.map_or(Exceed::Drop, Exceed::Dscp)
        }
    };
    Some(Policer { name, interface, direction, rate, burst, exceed, condition })
}

/// Packets where packets are counted; else `1500B`, `64kB`, `1MB`.
fn read_burst(value: &Value, rate: Rate) -> Result<u64, String> {
    let needed = if rate.is_of_bytes() {
        "a burst in bytes is needed beside a rate in bits or bytes: \"64kB\", \"1MB\""
    } else {
        "a burst in packets is needed beside a rate in packets: a number"
    };
    let read = match value {
        Value::Integer(packets) if !rate.is_of_bytes() => u64::try_from(*packets).ok(),
        Value::Text(text) if rate.is_of_bytes() => {
            let units = [("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("B", 1)];
            units.iter().find_map(|(unit, bytes)| {
                let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
                number.checked_mul(*bytes)
            })
        }
        _ => None,
    };
    read.filter(|&burst| burst > 0).ok_or_else(|| needed.to_owned())
}

impl Settings {
    fn policers(&self) -> impl Iterator<Item = &Policer> {
        self.0.iter().map(|placed| &placed.item)
    }
}

impl FeatureSettings for Settings {
    fn is_same(&self, other: &dyn FeatureSettings) -> bool {
        other.of::<Self>().is_some_and(|other| self.policers().eq(other.policers()))
    }

    fn on(&self, interface: &str) -> Option<Use> {
        let used: Vec<&Placed<Policer>> =
            self.0.iter().filter(|one| one.item.interface == interface).collect();
        let first = used.first()?;
        let words = used.iter().map(|Placed { item: policer, .. }| {
            format!("{} ({}, {})", policer.name, policer.direction, policer.rate)
        });
        Some(Use {
            words: words.collect::<Vec<_>>().join(", "),
            named: true,
            place: format!("{}.interface", first.place),
        })
    }

    fn interfaces(&self) -> InterfaceSet {
        // What leaves by an interface may have arrived on any other.
        if self.policers().any(|policer| policer.direction == Direction::Out) {
            return InterfaceSet::All;
        }
        InterfaceSet::Some(self.policers().map(|policer| policer.interface.clone()).collect())
    }

    fn xdp(&self, _: Option<&str>) -> Support {
        Support::Graph("the graph alone has token buckets")
    }

    fn items(&self) -> Vec<Item> {
        let item = |policer: &Policer| {
            let Policer { name, interface, direction, rate, burst, exceed, condition } = policer;
            let mut words = format!("{interface}, {direction}, {rate}, burst {burst}, {exceed}");
            if let Some((_, text)) = condition {
                words += &format!(", {text}");
            }
            Item::new(format!("policer {name}"), words)
        };
        self.policers().map(item).collect()
    }

    fn make(&self, before: Option<&dyn State>) -> Result<Option<Arc<dyn State>>, Vec<String>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let before = before.and_then(|before| before.of());
        Ok(Some(Arc::new(Policers::new(self.policers().cloned().collect(), before))))
    }
}
