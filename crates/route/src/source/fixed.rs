//! Static routes, as configuration states them.
//!
//! Each is a [line](super::line) of words, of which `default` may be the prefix. A gateway of a route
//! for IPv4 may be an IPv6 address (RFC 8950). All is checked when the source is opened; it announces its
//! routes once, at the first [`RouteSource::input`] (of no bytes) or at [`RouteSource::finish`]. Links that are not there are
//! accepted with the numbers of [`add_absent_links`]: they may appear later.

use std::collections::HashMap;
use std::time::Instant;

use super::line::{Line, LinePath, check_paths, verdict};
use super::words::unknown;
use super::{RouteSource, SourceError, SourceKind, SourceSpec, Transport};
use crate::event::{MAIN_TABLE, Path, RouteEvent, RouteKey, RouteUpdate, Target};

pub(super) const KIND: SourceKind = SourceKind {
    name: "fixed",
    summary: "static routes from the configuration",
    transport: Transport::None,
    distance: 1,
    mirrored: &[],
    open: |spec| Ok(Box::new(Fixed { routes: Some(parse_all(spec)?) })),
};

struct Fixed {
    /// Routes that are not announced yet.
    routes: Option<Vec<RouteUpdate>>,
}

impl Fixed {
    fn announce(&mut self, sink: &mut dyn FnMut(RouteEvent)) {
        let Some(routes) = self.routes.take() else { return };
        sink(RouteEvent::StartOfTable);
        routes.into_iter().for_each(|route| sink(RouteEvent::Route(route)));
        sink(RouteEvent::EndOfTable);
    }
}

impl RouteSource for Fixed {
    /// Announces the routes; there is nothing to read in `bytes`.
    fn input(
        &mut self,
        bytes: &[u8],
        _now: Instant,
        sink: &mut dyn FnMut(RouteEvent),
    ) -> Result<usize, SourceError> {
        self.announce(sink);
        Ok(bytes.len())
    }

    fn finish(&mut self, sink: &mut dyn FnMut(RouteEvent)) -> Result<(), SourceError> {
        self.announce(sink);
        Ok(())
    }
}

/// The first route that is invalid is an error of all: half a configuration is not what was meant.
fn parse_all(spec: &SourceSpec) -> Result<Vec<RouteUpdate>, SourceError> {
    let mut routes: Vec<RouteUpdate> = Vec::with_capacity(spec.routes.len());
    let mut known = HashMap::with_capacity(spec.routes.len());
    for (index, line) in spec.routes.iter().enumerate() {
        let error = |what| {
            let name = if spec.name.is_empty() { "routes" } else { &spec.name };
            SourceError::Route { name: name.into(), number: index + 1, line: line.clone(), what }
        };
        let route = parse(line, &spec.links).map_err(error)?;
        if let Some(first) = known.insert(route.key, index) {
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

fn parse(line: &str, links: &[(String, u32)]) -> Result<RouteUpdate, String> {
    let Line { prefix, paths, verdict: word, metric, mtu, table, .. } =
        Line::parse(line.split_ascii_whitespace(), &[])?;
    let of = |path: &LinePath<'_>| {
        let link = path.dev.map(|name| link(name, links)).transpose()?;
        Ok(Path { gateway: path.gateway, link, weight: path.weight })
    };
    let paths = paths.iter().map(of).collect::<Result<Vec<Path>, String>>()?;
    check_paths(prefix, &paths)?;
    let target = match (word, paths.len()) {
        (Some(word), 0) if mtu.is_none() => verdict(word).expect("one of its words"),
        (Some(word), _) => {
            let others = "no `via`, `dev` or `mtu` may stand with it";
            return Err(format!("`{word}` drops all packets: {others}"));
        }
        (None, 0) => {
            return Err(format!("where to? `{prefix} via GATEWAY` or `{prefix} blackhole`"));
        }
        (None, 1) => Target::Path(paths[0]),
        (None, _) => Target::Paths(paths),
    };
    let (table, metric) = (table.unwrap_or(MAIN_TABLE), metric.unwrap_or(0));
    let key = RouteKey { table, prefix, metric };
    Ok(RouteUpdate { mtu: mtu.unwrap_or(0), ..RouteUpdate::new(key, target) })
}

fn link(name: &str, links: &[(String, u32)]) -> Result<u32, String> {
    let found = links.iter().find(|(other, _)| other == name).map(|(_, link)| *link);
    found.ok_or_else(|| unknown("link", name, links.iter().map(|(name, _)| name.as_str())))
}

#[cfg(test)]
mod tests {
    use super::super::line::{ABSENT_LINK, add_absent_links};
    use super::*;
    use crate::event::AnyPrefix;

    fn spec(routes: &[&str]) -> SourceSpec {
        SourceSpec {
            routes: routes.iter().map(|&r| r.into()).collect(),
            links: vec![("eth0".into(), 2), ("eth1".into(), 3)],
            ..SourceSpec::default()
        }
    }

    fn one(line: &str) -> Result<RouteUpdate, String> {
        parse(line, &spec(&[]).links)
    }

    fn path(gateway: &str, link: Option<u32>, weight: u32) -> Path {
        Path { gateway: Some(gateway.parse().unwrap()), link, weight }
    }

    #[test]
    fn routes_of_every_form() {
        for (line, prefix, metric, target) in [
            ("10.0.0.0/8 via 192.0.2.1", "10.0.0.0/8", 0, Target::Path(path("192.0.2.1", None, 1))),
            (
                "::/0 via fe80::1 dev eth1 metric 5",
                "::/0",
                5,
                Target::Path(path("fe80::1", Some(3), 1)),
            ),
            ("default via 192.0.2.1", "0.0.0.0/0", 0, Target::Path(path("192.0.2.1", None, 1))),
            (
                "10.0.0.0/8 dev eth0",
                "10.0.0.0/8",
                0,
                Target::Path(Path { gateway: None, link: Some(2), weight: 1 }),
            ),
            (
                "10.0.0.0/8 via 192.0.2.1 dev eth0 weight 3  via 2001:db8::1 metric 7",
                "10.0.0.0/8",
                7,
                Target::Paths(vec![path("192.0.2.1", Some(2), 3), path("2001:db8::1", None, 1)]),
            ),
            ("10.0.0.1 blackhole", "10.0.0.1/32", 0, Target::Blackhole),
            ("2001:db8::/32 metric 9 unreachable", "2001:db8::/32", 9, Target::Unreachable),
            ("0.0.0.0/0 prohibit", "0.0.0.0/0", 0, Target::Prohibit),
        ] {
            let key =
                RouteKey { table: MAIN_TABLE, prefix: AnyPrefix::parse(prefix).unwrap(), metric };
            let want = RouteUpdate::new(key, target);
            assert_eq!(one(line), Ok(want), "{line}");
        }
        assert_eq!(one("10.0.0.0/8 dev eth0 mtu 1400").unwrap().mtu, 1400);
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
            ("10.0.0.0/8 via", "incomplete after `via`: a gateway must follow"),
            (
                "via 10.0.0.1",
                "unknown word `10.0.0.1`, known: via, dev, weight, metric, mtu, table, blackhole, unreachable, prohibit",
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
                "10.0.0.0/8 blackhole mtu 1400",
                "`blackhole` drops all packets: no `via`, `dev` or `mtu` may stand with it",
            ),
            (
                "::/0 via fe80::1 dev eth0 mtu 1279",
                "`mtu 1279`: IPv6 needs at least 1280, 0 is the link's",
            ),
            (
                "10.0.0.0/8 blackhole dev eth0",
                "`blackhole` drops all packets: no `via`, `dev` or `mtu` may stand with it",
            ),
            (
                "2001:db8::/32 via 192.0.2.1",
                "192.0.2.1 is no gateway for IPv6: an IPv6 address is needed",
            ),
            ("::/0 via fe80::1", "fe80::1 is link-local: name its link by `dev NAME`"),
            (
                "10.0.0.0/8 via 192.0.2.1 via 192.0.2.1",
                "path repeated: give it a larger `weight` instead",
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
    fn links_that_are_not_there_get_numbers_of_their_own() {
        let lines = ["10.0.0.0/8 dev wg0", "0.0.0.0/0 via 10.0.0.1 dev eth1 via 10.0.0.2 dev ppp0"];
        let spec = SourceSpec {
            links: vec![("eth0".into(), 2), ("eth1".into(), 3)],
            routes: lines.map(Into::into).to_vec(),
            ..SourceSpec::default()
        };
        let mut links = spec.links.clone();
        let named = add_absent_links(&spec.routes, &mut links);
        let want = [("eth1", 3), ("ppp0", ABSENT_LINK + 1), ("wg0", ABSENT_LINK + 2)];
        assert!(named.iter().map(|(name, link)| (&**name, *link)).eq(want), "{named:?}");
        assert!((KIND.open)(&spec).is_err());
        assert!((KIND.open)(&SourceSpec { links, ..spec }).is_ok());
    }

    #[test]
    fn routes_are_announced_once() {
        let mut source = (KIND.open)(&spec(&["10.0.0.0/8 blackhole"])).unwrap();
        let mut events = Vec::new();
        source.input(&[], Instant::now(), &mut |e| events.push(e)).unwrap();
        source.finish(&mut |e| events.push(e)).unwrap();
        assert_eq!(events.len(), 3);
        assert_eq!((&events[0], &events[2]), (&RouteEvent::StartOfTable, &RouteEvent::EndOfTable));
    }
}
