//! Static routes, as configuration states them.
//!
//! ```text
//! PREFIX via GATEWAY [dev NAME] [weight N] [via GATEWAY ...] [metric N] [table N]
//! PREFIX dev NAME [metric N] [table N]
//! PREFIX blackhole|unreachable|prohibit [metric N] [table N]
//! ```
//!
//! Table 0 is the main one, as in the kernel's messages, and the default.
//! `default` may stand for the prefix where a gateway shows the family. A gateway of a route for
//! IPv4 may be an IPv6 address (RFC 8950). All is checked when the source is opened; it says its
//! routes once, at the first [`RouteSource::input`] (of no bytes) or at [`RouteSource::finish`].

use std::net::IpAddr;
use std::time::Instant;

use super::words::unknown;
use super::{RouteSource, SourceError, SourceKind, SourceSpec, Transport};
use crate::event::{AnyPrefix, MAIN_TABLE, RouteEvent, RouteKey, RouteUpdate, Target, Way};
use fingerpost_lpm::{Prefix, PrefixError};

pub(super) const KIND: SourceKind = SourceKind {
    name: "fixed",
    summary: "static routes from the configuration",
    transport: Transport::None,
    distance: 1,
    open: |spec| Ok(Box::new(Fixed { routes: Some(parse_all(spec)?) })),
};

struct Fixed {
    /// Until they are said.
    routes: Option<Vec<RouteUpdate>>,
}

impl Fixed {
    fn say(&mut self, sink: &mut dyn FnMut(RouteEvent)) {
        let Some(routes) = self.routes.take() else { return };
        sink(RouteEvent::StartOfTable);
        routes.into_iter().for_each(|route| sink(RouteEvent::Route(route)));
        sink(RouteEvent::EndOfTable);
    }
}

impl RouteSource for Fixed {
    /// Says the routes; there is nothing to read in `bytes`.
    fn input(
        &mut self,
        bytes: &[u8],
        _now: Instant,
        sink: &mut dyn FnMut(RouteEvent),
    ) -> Result<usize, SourceError> {
        self.say(sink);
        Ok(bytes.len())
    }

    fn finish(&mut self, sink: &mut dyn FnMut(RouteEvent)) -> Result<(), SourceError> {
        self.say(sink);
        Ok(())
    }
}

/// The first route that makes no sense ends it: half a configuration is not what was meant.
fn parse_all(spec: &SourceSpec) -> Result<Vec<RouteUpdate>, SourceError> {
    let mut routes: Vec<RouteUpdate> = Vec::with_capacity(spec.routes.len());
    for (index, line) in spec.routes.iter().enumerate() {
        let error = |what| {
            let file = if spec.name.is_empty() { "routes" } else { &spec.name };
            SourceError::Syntax { place: format!("{file}: route {} `{line}`", index + 1), what }
        };
        let route = parse(line, &spec.links).map_err(error)?;
        if let Some(first) = routes.iter().position(|other| other.key == route.key) {
            let RouteKey { prefix, metric, .. } = route.key;
            return Err(error(format!(
                "{prefix} with metric {metric} is route {} already: \
                 give another metric, or several `via` in one route",
                first + 1
            )));
        }
        routes.push(route);
    }
    Ok(routes)
}

/// What may stand behind a prefix, for the nearest word.
const WORDS: [&str; 8] =
    ["via", "dev", "weight", "metric", "table", "blackhole", "unreachable", "prohibit"];

/// The limit of a weight of a path: 16 bits, as in a next-hop object of the kernel.
const WEIGHT_MAX: u32 = 65_535;

fn parse(line: &str, links: &[(String, u32)]) -> Result<RouteUpdate, String> {
    let mut words = line.split_ascii_whitespace().peekable();
    let first = words.next().ok_or("empty: `PREFIX via GATEWAY` is needed")?;
    let (mut ways, mut drop): (Vec<Way>, _) = (Vec::new(), None);
    let (mut metric, mut table) = (None, None);
    while let Some(word) = words.next() {
        let mut value = |what: &str| {
            words.next().ok_or_else(|| format!("`{word}` ends the route: {what} must follow"))
        };
        match word {
            "via" => {
                let text = value("a gateway")?;
                ways.push(Way { gateway: Some(gateway(text)?), link: None, weight: 0 });
            }
            "dev" => {
                let link = link(value("the name of a link")?, links)?;
                match ways.last_mut() {
                    None => ways.push(Way { gateway: None, link: Some(link), weight: 0 }),
                    Some(way) if way.link.is_none() && way.weight == 0 => way.link = Some(link),
                    Some(_) => return Err("`dev` belongs right behind its `via GATEWAY`".into()),
                }
            }
            "weight" => {
                let weight = number(word, value("a number")?, 1, WEIGHT_MAX)?;
                let way = ways.last_mut().filter(|way| way.weight == 0);
                way.ok_or("`weight` belongs right behind one `via GATEWAY`")?.weight = weight;
            }
            "metric" | "table" => {
                let number = number(word, value("a number")?, 0, u32::MAX)?;
                let of = if word == "metric" { &mut metric } else { &mut table };
                if of.replace(number).is_some() {
                    return Err(format!("`{word}` twice"));
                }
            }
            "blackhole" => drop = Some((word, Target::Blackhole)),
            "unreachable" => drop = Some((word, Target::Unreachable)),
            "prohibit" => drop = Some((word, Target::Prohibit)),
            other => return Err(unknown("word", other, WORDS)),
        }
    }
    let prefix = prefix(first, &ways)?;
    for way in &mut ways {
        way.weight = way.weight.max(1);
        match (way.gateway, way.link) {
            (Some(IpAddr::V4(gateway)), _) if prefix.family() == 6 => {
                return Err(format!("{gateway} is no gateway for IPv6: an IPv6 address is needed"));
            }
            (Some(IpAddr::V6(gateway)), None) if gateway.is_unicast_link_local() => {
                return Err(format!("{gateway} is link-local: say on which link by `dev NAME`"));
            }
            _ => {}
        }
    }
    for (index, way) in ways.iter().enumerate() {
        let same = |other: &Way| (other.gateway, other.link) == (way.gateway, way.link);
        if ways[..index].iter().any(same) {
            return Err("the same way twice: give it a larger `weight` instead".into());
        }
    }
    let target = match (drop, ways.len()) {
        (Some((word, _)), 1..) => {
            return Err(format!("`{word}` drops all packets: no `via` or `dev` may stand with it"));
        }
        (Some((_, target)), 0) => target,
        (None, 0) => return Err(format!("where to? `{first} via GATEWAY` or `{first} blackhole`")),
        (None, 1) => Target::Way(ways[0]),
        (None, _) => Target::Ways(ways),
    };
    let table = table.filter(|&number| number != 0).unwrap_or(MAIN_TABLE);
    let key = RouteKey { table, prefix, metric: metric.unwrap_or(0) };
    Ok(RouteUpdate { key, target, distance: None, append: false })
}

fn prefix(text: &str, ways: &[Way]) -> Result<AnyPrefix, String> {
    if text == "default" {
        return match ways.iter().find_map(|way| way.gateway) {
            Some(IpAddr::V4(_)) => Ok(AnyPrefix::V4(Prefix::ALL)),
            Some(IpAddr::V6(_)) => Ok(AnyPrefix::V6(Prefix::ALL)),
            None => Err("`default` of which family? write 0.0.0.0/0 or ::/0".into()),
        };
    }
    AnyPrefix::parse(text).map_err(|error| match error {
        PrefixError::Syntax(_) => format!(
            "`{text}` is no prefix: a route begins with one, as in `192.0.2.0/24 via 198.51.100.1`"
        ),
        PrefixError::HostBits => {
            format!("`{text}` has bits set behind its length: clear them or make it longer")
        }
        error => error.to_string(),
    })
}

fn gateway(text: &str) -> Result<IpAddr, String> {
    let addr: IpAddr = text
        .parse()
        .map_err(|_| format!("`{text}` is no gateway: an IPv4 or IPv6 address is needed"))?;
    let broadcast = matches!(addr, IpAddr::V4(a) if a.is_broadcast());
    if addr.is_unspecified() || addr.is_loopback() || addr.is_multicast() || broadcast {
        return Err(format!("{addr} cannot be a gateway: the address of a router is needed"));
    }
    Ok(addr)
}

fn link(name: &str, links: &[(String, u32)]) -> Result<u32, String> {
    let found = links.iter().find(|(other, _)| other == name).map(|(_, link)| *link);
    found.ok_or_else(|| unknown("link", name, links.iter().map(|(name, _)| name.as_str())))
}

fn number(word: &str, text: &str, min: u32, max: u32) -> Result<u32, String> {
    let value = text.parse().ok().filter(|value| (min..=max).contains(value));
    value.ok_or_else(|| format!("`{word} {text}`: a number from {min} to {max} is needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(routes: &[&str]) -> SourceSpec {
        SourceSpec {
            name: String::new(),
            routes: routes.iter().map(|&r| r.into()).collect(),
            links: vec![("eth0".into(), 2), ("eth1".into(), 3)],
        }
    }

    fn one(line: &str) -> Result<RouteUpdate, String> {
        parse(line, &spec(&[]).links)
    }

    fn way(gateway: &str, link: Option<u32>, weight: u32) -> Way {
        Way { gateway: Some(gateway.parse().unwrap()), link, weight }
    }

    #[test]
    fn routes_of_every_form() {
        for (line, prefix, metric, target) in [
            ("10.0.0.0/8 via 192.0.2.1", "10.0.0.0/8", 0, Target::Way(way("192.0.2.1", None, 1))),
            (
                "::/0 via fe80::1 dev eth1 metric 5",
                "::/0",
                5,
                Target::Way(way("fe80::1", Some(3), 1)),
            ),
            ("default via 192.0.2.1", "0.0.0.0/0", 0, Target::Way(way("192.0.2.1", None, 1))),
            (
                "10.0.0.0/8 dev eth0",
                "10.0.0.0/8",
                0,
                Target::Way(Way { gateway: None, link: Some(2), weight: 1 }),
            ),
            (
                "10.0.0.0/8 via 192.0.2.1 dev eth0 weight 3  via 2001:db8::1 metric 7",
                "10.0.0.0/8",
                7,
                Target::Ways(vec![way("192.0.2.1", Some(2), 3), way("2001:db8::1", None, 1)]),
            ),
            ("10.0.0.1 blackhole", "10.0.0.1/32", 0, Target::Blackhole),
            ("2001:db8::/32 metric 9 unreachable", "2001:db8::/32", 9, Target::Unreachable),
            ("0.0.0.0/0 prohibit", "0.0.0.0/0", 0, Target::Prohibit),
        ] {
            let key =
                RouteKey { table: MAIN_TABLE, prefix: AnyPrefix::parse(prefix).unwrap(), metric };
            let want = RouteUpdate { key, target, distance: None, append: false };
            assert_eq!(one(line), Ok(want), "{line}");
        }
        for (line, table) in
            [("table 100", 100), ("table 0", MAIN_TABLE), ("table 254", MAIN_TABLE)]
        {
            let route = one(&format!("10.0.0.0/8 blackhole {line}")).unwrap();
            assert_eq!(route.key.table, table, "{line}");
        }
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (line, words) in [
            ("", "empty: `PREFIX via GATEWAY` is needed"),
            ("10.0.0.0/8", "where to? `10.0.0.0/8 via GATEWAY` or `10.0.0.0/8 blackhole`"),
            ("10.0.0.0/8 vai 192.0.2.1", "unknown word `vai`, did you mean `via`?"),
            ("10.0.0.0/8 via", "`via` ends the route: a gateway must follow"),
            (
                "via 10.0.0.1",
                "unknown word `10.0.0.1`, known: via, dev, weight, metric, table, blackhole, unreachable, prohibit",
            ),
            (
                "10.0.0.1/8 via 192.0.2.1",
                "`10.0.0.1/8` has bits set behind its length: clear them or make it longer",
            ),
            ("10.0.0.0/33 blackhole", "prefix length 33 exceeds 32"),
            ("10.0.0.0/8 via eth0", "`eth0` is no gateway: an IPv4 or IPv6 address is needed"),
            (
                "10.0.0.0/8 via 224.0.0.5",
                "224.0.0.5 cannot be a gateway: the address of a router is needed",
            ),
            ("10.0.0.0/8 dev eth9", "unknown link `eth9`, did you mean `eth0`?"),
            ("10.0.0.0/8 dev wireguard", "unknown link `wireguard`, known: eth0, eth1"),
            ("10.0.0.0/8 dev eth0 dev eth1", "`dev` belongs right behind its `via GATEWAY`"),
            ("10.0.0.0/8 weight 2", "`weight` belongs right behind one `via GATEWAY`"),
            ("10.0.0.0/8 via 192.0.2.1 weight 0", "`weight 0`: a number from 1 to 65535 is needed"),
            (
                "10.0.0.0/8 via 192.0.2.1 metric -1",
                "`metric -1`: a number from 0 to 4294967295 is needed",
            ),
            ("10.0.0.0/8 blackhole metric 1 metric 1", "`metric` twice"),
            ("10.0.0.0/8 table 1 blackhole table 1", "`table` twice"),
            (
                "10.0.0.0/8 blackhole dev eth0",
                "`blackhole` drops all packets: no `via` or `dev` may stand with it",
            ),
            (
                "2001:db8::/32 via 192.0.2.1",
                "192.0.2.1 is no gateway for IPv6: an IPv6 address is needed",
            ),
            ("::/0 via fe80::1", "fe80::1 is link-local: say on which link by `dev NAME`"),
            (
                "10.0.0.0/8 via 192.0.2.1 via 192.0.2.1",
                "the same way twice: give it a larger `weight` instead",
            ),
            ("default blackhole", "`default` of which family? write 0.0.0.0/0 or ::/0"),
        ] {
            assert_eq!(one(line), Err(words.into()), "{line}");
        }
        let twice = ["10.0.0.0/8 blackhole", "10.1.0.0/16 blackhole", "10.0.0.0/8 via 192.0.2.1"];
        let error = (KIND.open)(&spec(&twice)).err().unwrap().to_string();
        assert_eq!(
            error,
            "routes: route 3 `10.0.0.0/8 via 192.0.2.1`: 10.0.0.0/8 with metric 0 is route 1 \
             already: give another metric, or several `via` in one route"
        );
    }

    #[test]
    fn says_its_routes_once() {
        let mut source = (KIND.open)(&spec(&["10.0.0.0/8 blackhole"])).unwrap();
        let mut events = Vec::new();
        source.input(&[], Instant::now(), &mut |e| events.push(e)).unwrap();
        source.finish(&mut |e| events.push(e)).unwrap();
        assert_eq!(events.len(), 3);
        assert_eq!((&events[0], &events[2]), (&RouteEvent::StartOfTable, &RouteEvent::EndOfTable));
    }
}
