//! Patterns of rewriters: the addresses and ports that a new flow gets.
//!
//! Source: the manual page of Click's `IPRewriter`. An address or port of a pattern is a value, `-` for that of the
//! packet, or a range of which flows get one each: `A-B#` the next one, `A-B?` any. Of ports 1 to 65535 a range of
//! source ports begins with the packet's own, where it has neither. `A/LEN` is the range of hosts of a prefix.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::table::Key;
use crate::filter::names::Port;
use crate::language::{Around, Value};

/// Ends of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct FlowId {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
}

/// [`FlowId`] in two words whose bytes are those of a packet: source and destination address, and both ports. The machine
/// reads and writes each at once, and swaps nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Words {
    pub(crate) addrs: u64,
    pub(crate) ports: u32,
}

impl Words {
    /// Words of packets of the other direction.
    #[inline(always)]
    pub(crate) fn reverse(self) -> Self {
        Self { addrs: self.addrs.rotate_left(32), ports: self.ports.rotate_left(16) }
    }
}

impl FlowId {
    #[inline]
    pub(crate) fn words(self) -> Words {
        let addrs = u64::from(self.src) << 32 | u64::from(self.dst);
        let ports = u32::from(self.sport) << 16 | u32::from(self.dport);
        Words { addrs: addrs.to_be(), ports: ports.to_be() }
    }

    /// Ends of [`Self::words`].
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "takes the halves of a word")]
    pub(crate) fn of_words(words: Words) -> Self {
        let (addrs, ports) = (u64::from_be(words.addrs), u32::from_be(words.ports));
        Self {
            src: (addrs >> 32) as u32,
            dst: addrs as u32,
            sport: (ports >> 16) as u16,
            dport: ports as u16,
        }
    }

    /// Ends of packets of the other direction.
    #[inline]
    pub(crate) fn reverse(self) -> Self {
        Self { src: self.dst, sport: self.dport, dst: self.src, dport: self.sport }
    }
}

/// Values that source addresses, or source ports, are taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    low: u32,
    high: u32,
    /// The next one, rather than that of the packet or any.
    sequential: bool,
}

/// A pattern.
#[derive(Default, Debug)]
pub(crate) struct Pattern {
    addr: Option<Range>,
    port: Option<Range>,
    daddr: Option<u32>,
    dport: Option<u16>,
    /// It has no ports.
    addrs_alone: bool,
    /// Values of the range that were taken so far: the place of the next one. All workers take of it.
    next: AtomicU64,
}

/// The part of a reply that differs between flows of a pattern to one destination.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Field {
    /// The source address.
    Addr,
    /// The source port.
    Port,
}

/// Ends that a new flow gets: fixed, or one of several values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// These ends and no others.
    One(FlowId),
    /// These ends, with one of the values.
    Of(Values),
}

/// Values that one is chosen of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Values {
    to: FlowId,
    pub(crate) field: Field,
    pub(crate) low: u32,
    pub(crate) high: u32,
    /// Place of the first that is looked at.
    pub(crate) begin: u64,
}

impl Values {
    #[cfg(test)]
    pub(super) fn of(
        to: FlowId,
        field: Field,
        range: std::ops::RangeInclusive<u32>,
        begin: u64,
    ) -> Self {
        Self { to, field, low: *range.start(), high: *range.end(), begin }
    }

    /// The ends with a value.
    #[inline]
    pub(crate) fn with(&self, value: u32) -> FlowId {
        match self.field {
            Field::Addr => FlowId { src: value, ..self.to },
            Field::Port => FlowId { sport: u16::try_from(value).unwrap_or(u16::MAX), ..self.to },
        }
    }

    /// The key of replies to a flow with a value.
    #[inline]
    pub(crate) fn reply_key(&self, key: &Key, value: u32) -> Key {
        Key { id: self.with(value).reverse(), ..*key }
    }
}

impl Pattern {
    /// Reads the words of a pattern, with ports or without; what is wrong with them.
    ///
    /// A name of ports means that of UDP first where `udp_first`, that of TCP otherwise.
    pub(crate) fn read(
        words: &[String],
        addrs_alone: bool,
        udp_first: bool,
    ) -> Result<Self, String> {
        let mut pattern = Self { addrs_alone, ..Self::default() };
        let (saddr, sport, daddr, dport) = match (words, addrs_alone) {
            ([saddr, daddr], true) => (saddr, None, daddr, None),
            ([saddr, sport, daddr, dport], _) => (saddr, Some(sport), daddr, Some(dport)),
            _ => return Err("bad pattern: the numbers of words".into()),
        };
        if saddr != "-" {
            pattern.addr = Some(addrs(saddr).ok_or("bad source address")?);
        }
        if let Some(sport) = sport.filter(|sport| *sport != "-") {
            pattern.port = Some(ports(sport, udp_first).ok_or("bad source port")?);
        }
        if daddr != "-" {
            let addr = Ipv4Addr::read(daddr).map_err(|_| "bad destination address")?;
            pattern.daddr = Some(addr.to_bits());
        }
        if let Some(dport) = dport.filter(|dport| *dport != "-") {
            let Port(port) = Port::of(dport, udp_first).map_err(|_| "bad destination port")?;
            pattern.dport = Some(port);
        }
        Ok(pattern)
    }

    /// What a flow becomes, whose replies must be no other flow's.
    pub(crate) fn choice(&self, id: FlowId) -> Choice {
        let to = FlowId {
            src: self.addr.map_or(id.src, |range| range.low),
            sport: self.port.map_or(id.sport, low_port),
            dst: self.daddr.unwrap_or(id.dst),
            dport: self.dport.unwrap_or(id.dport),
        };
        let Some((Range { low, high, .. }, begin)) = self.varying(id) else {
            return Choice::One(to);
        };
        let varies = self.addr.is_some_and(|addr| addr.low != addr.high);
        let field = if varies { Field::Addr } else { Field::Port };
        Choice::Of(Values { to, field, low, high, begin })
    }

    /// A value was taken.
    pub(crate) fn take(&self, values: &Values, value: u32) {
        self.next.store(u64::from(value - values.low) + 1, Relaxed);
    }

    /// The range that values are taken from, and where in it to begin.
    fn varying(&self, id: FlowId) -> Option<(Range, u64)> {
        let varies = |range: &&Range| range.low != range.high;
        if let Some(range) = self.addr.as_ref().filter(varies) {
            return Some((*range, self.next.load(Relaxed)));
        }
        let range = self.port.as_ref().filter(varies)?;
        let own = u32::from(id.sport);
        let begin = match range.sequential {
            false if (range.low..=range.high).contains(&own) => u64::from(own - range.low),
            _ => self.next.load(Relaxed),
        };
        Some((*range, begin))
    }

    /// The pattern as text, without how values are taken.
    pub(crate) fn text(&self) -> String {
        let addr = |addr: u32| Ipv4Addr::from_bits(addr).to_string();
        let range = |range: Option<Range>, shown: &dyn Fn(u32) -> String| match range {
            None => "-".to_owned(),
            Some(range) if range.low == range.high => shown(range.low),
            Some(range) => {
                let sign = if range.sequential { "#" } else { "" };
                format!("{}-{}{sign}", shown(range.low), shown(range.high))
            }
        };
        let saddr = range(self.addr, &addr);
        let daddr = self.daddr.map_or("-".into(), addr);
        if self.addrs_alone {
            return format!("{saddr} {daddr}");
        }
        let sport = range(self.port, &|port| port.to_string());
        let dport = self.dport.map_or("-".into(), |port| port.to_string());
        format!("{saddr} {sport} {daddr} {dport}")
    }
}

fn low_port(range: Range) -> u16 {
    u16::try_from(range.low).unwrap_or(u16::MAX)
}

/// A range without its sign, and whether it is sequential.
fn signed(text: &str) -> (&str, bool) {
    match text.strip_suffix('#') {
        Some(text) => (text, true),
        None => (text.strip_suffix('?').unwrap_or(text), false),
    }
}

fn addrs(text: &str) -> Option<Range> {
    let (text, sequential) = signed(text);
    let one = |text: &str| Ipv4Addr::read(text).ok().map(Ipv4Addr::to_bits);
    if text.contains('/') {
        let around = Around::<u32>::read(text).ok()?;
        let (low, high) = (around.prefix.addr(), around.prefix.last());
        // The address of the prefix and that for all of its hosts are no hosts.
        let (low, high) = match around.prefix.len() {
            31.. => (low, high),
            _ => (low.max(around.addr).max(low + 1), high - 1),
        };
        return (low <= high).then_some(Range { low, high, sequential });
    }
    // A name may have the sign of a range in it.
    let (low, high) = match (one(text), text.split_once('-')) {
        (Some(addr), _) => (addr, addr),
        (None, Some((low, high))) => (one(low)?, one(high)?),
        (None, None) => return None,
    };
    (low <= high).then_some(Range { low, high, sequential })
}

fn ports(text: &str, udp_first: bool) -> Option<Range> {
    let (text, sequential) = signed(text);
    let one = |text: &str| Port::of(text, udp_first).ok().map(|Port(port)| u32::from(port));
    // A name may have the sign of a range in it.
    let (low, high) = match (one(text), text.split_once('-')) {
        (Some(port), _) => (port, port),
        (None, Some((low, high))) => (one(low)?, one(high)?),
        (None, None) => return None,
    };
    // Port 0 is none, but for a range that begins with it.
    (low <= high).then_some(Range { low, high, sequential })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str, addrs_alone: bool) -> Result<Pattern, String> {
        let words: Vec<_> = text.split(' ').map(str::to_owned).collect();
        Pattern::read(&words, addrs_alone, true)
    }

    #[test]
    fn patterns_are_read_and_written() {
        for text in ["1.0.0.1 1 - -", "1.0.0.1 1-65535 - -", "1.0.0.1 - - -", "- - 2.0.0.2 7"] {
            assert_eq!(pattern(text, false).unwrap().text(), text);
        }
        let of = |text| pattern(text, true).map(|pattern| pattern.text());
        assert_eq!(of("1.0.0.1/24 -"), Ok("1.0.0.1-1.0.0.254 -".into()));
        assert_eq!(of("1.0.0.1/8 -"), Ok("1.0.0.1-1.255.255.254 -".into()));
        assert_eq!(of("1.0.0.x -"), Err("bad source address".into()));
        assert_eq!(of("1.0.0.255/24 -"), Err("bad source address".into()));
        assert_eq!(of("1.255.0.0-1.0.255.255 -"), Err("bad source address".into()));
        for port in ["1x", "456-19", "456-65536"] {
            assert_eq!(
                pattern(&format!("1.0.0.1 {port} - -"), false).map(|pattern| pattern.text()),
                Err("bad source port".into())
            );
        }
    }

    #[test]
    fn values_are_taken_in_order() {
        let id = FlowId { src: 1, sport: 7, dst: 2, dport: 3 };
        let pattern = super::tests::pattern("0.0.0.9 1024-1026# - 80", false).unwrap();
        let of = |pattern: &Pattern| match pattern.choice(id) {
            Choice::Of(values) => values,
            Choice::One(one) => panic!("{one:?}"),
        };
        let mut values = of(&pattern);
        assert_eq!((values.low, values.high, values.begin), (1024, 1026, 0));
        assert_eq!(values.with(1025), FlowId { src: 9, sport: 1025, dst: 2, dport: 80 });
        pattern.take(&values, 1026);
        values = of(&pattern);
        assert_eq!((values.begin, values.field), (3, Field::Port));
        let own = super::tests::pattern("0.0.0.9 1-65535 - -", false).unwrap();
        assert_eq!(of(&own).begin, 6, "the packet's own");
        let addrs = super::tests::pattern("1.0.0.0/24 -", true).unwrap();
        assert_eq!(of(&addrs).with(5).src, 5);
        let one = super::tests::pattern("0.0.0.9 5 - -", false).unwrap();
        assert_eq!(one.choice(id), Choice::One(FlowId { src: 9, sport: 5, ..id }));
    }
}
