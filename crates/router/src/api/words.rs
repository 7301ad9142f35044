//! Changes of routes and neighbors as people write them, on command lines and in the file of saved changes.

use std::fmt;
use std::net::IpAddr;

use fingerpost_route::source::line::{Line, LinePath, once};
use fingerpost_route::source::words::unknown;
use fingerpost_route::{AnyPrefix, Mac};

use super::model::{Action, NeighborAction, NeighborChange, PathChange, RouteChange};

/// A change of a route, of words. What they mean on this host the daemon knows: which interfaces there are,
/// whether a gateway can be found.
///
/// # Errors
/// What is wrong, and what would be right.
pub(crate) fn route(action: Action, first: &str, words: &[String]) -> Result<RouteChange, String> {
    let words = std::iter::once(first).chain(words.iter().map(String::as_str));
    let Line { prefix, paths, verdict, metric, mtu, table, expires, all } =
        Line::parse(words, &["expires", "all"])?;
    let path = |path: &LinePath<'_>| PathChange {
        gateway: path.gateway.map(|gateway| gateway.to_string()),
        dev: path.dev.map(str::to_owned),
        weight: path.weight,
    };
    Ok(RouteChange {
        action,
        prefix: prefix.to_string(),
        table,
        metric,
        mtu,
        paths: paths.iter().map(path).collect(),
        kind: verdict.map(str::to_owned),
        expires: expires.map(u64::from),
        all,
    })
}

/// A change of a neighbor, of an address and the words behind it. Which interfaces there are the daemon knows.
///
/// # Errors
/// What is wrong, and what would be right.
pub(crate) fn neighbor(
    action: NeighborAction,
    addr: &str,
    words: &[String],
) -> Result<NeighborChange, String> {
    let addr: IpAddr = addr.parse().map_err(|_| {
        format!("`{addr}` is no address: one of IPv4 or IPv6 is needed, its interface behind `dev`")
    })?;
    let (mut mac, mut dev) = (None, None);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let slot = match word {
            "lladdr" if action == NeighborAction::Delete => {
                return Err("`lladdr` is not needed: the address and `dev` are enough".into());
            }
            "lladdr" => &mut mac,
            "dev" => &mut dev,
            other => return Err(unknown("word", other, ["lladdr", "dev"])),
        };
        let value = words.next().ok_or_else(|| format!("what is the `{word}`? it must follow"))?;
        once(word, slot, value.to_owned())?;
    }
    let dev = dev.ok_or("on which interface? `dev INTERFACE` is needed")?;
    let mac = match mac {
        None if action == NeighborAction::Delete => None,
        None => return Err("where is it? `lladdr MAC` is needed".into()),
        Some(text) => {
            let mac: Mac =
                text.parse().map_err(|error| format!("`{text}` is no link address: {error}"))?;
            Some(mac.to_string())
        }
    };
    Ok(NeighborChange { action, addr: addr.to_string(), dev, mac })
}

/// Writes a route as [`route`] reads it.
pub(super) fn write_route(change: &RouteChange, f: &mut impl fmt::Write) -> fmt::Result {
    let RouteChange { prefix, table, metric, mtu, paths, kind, .. } = change;
    f.write_str(prefix)?;
    for PathChange { gateway, dev, weight } in paths {
        let words = [("via", gateway), ("dev", dev)];
        for (word, value) in words.iter().filter_map(|(word, value)| Some((word, value.as_ref()?)))
        {
            write!(f, " {word} {value}")?;
        }
        if *weight != 1 {
            write!(f, " weight {weight}")?;
        }
    }
    if let Some(kind) = kind {
        write!(f, " {kind}")?;
    }
    let numbers = [("metric", *metric), ("mtu", mtu.map(u32::from)), ("table", *table)];
    for (word, number) in numbers.into_iter().filter_map(|(word, number)| Some((word, number?))) {
        write!(f, " {word} {number}")?;
    }
    Ok(())
}

/// A prefix as routes are written; `None` where it is none.
pub(super) fn prefix_of(text: &str) -> Option<AnyPrefix> {
    Line::parse([text, "blackhole"], &[]).ok().map(|line| line.prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route_of(line: &str) -> Result<RouteChange, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        route(Action::Add, &words[0], &words[1..])
    }

    #[test]
    fn routes_of_every_form() {
        let path = |gateway: Option<&str>, dev: Option<&str>, weight| PathChange {
            gateway: gateway.map(str::to_owned),
            dev: dev.map(str::to_owned),
            weight,
        };
        let route = route_of(
            "10.0.0.0/8 via 192.0.2.1 dev eth0 weight 3 via 2001:DB8::1 metric 7 mtu 1400",
        );
        let route = route.unwrap();
        assert_eq!(
            (route.prefix.as_str(), route.metric, route.table, route.mtu),
            ("10.0.0.0/8", Some(7), None, Some(1400))
        );
        let first = path(Some("192.0.2.1"), Some("eth0"), 3);
        assert_eq!(route.paths, [first, path(Some("2001:db8::1"), None, 1)]);
        let route = route_of("default via 2001:db8::1 table 10 expires 60").unwrap();
        assert_eq!(
            (route.prefix.as_str(), route.table, route.expires),
            ("::/0", Some(10), Some(60))
        );
        let route = route_of("192.0.2.0/24 dev eth0").unwrap();
        assert_eq!(route.paths, [path(None, Some("eth0"), 1)]);
        assert_eq!(route_of("10.1.0.0/16 prohibit").unwrap().kind.as_deref(), Some("prohibit"));
        assert!(route_of("10.1.0.0/16 all").unwrap().all);
    }

    #[test]
    fn mistakes_of_routes_name_the_remedy() {
        for (line, words) in [
            ("10.0.0.1/8 via 192.0.2.1", "`10.0.0.1/8` has bits set behind its length"),
            ("10.0.0/8 via 192.0.2.1", "`10.0.0/8` is no prefix"),
            ("10.0.0.0/33 blackhole", "prefix length 33 exceeds 32"),
            ("10.0.0.0/8 vai 192.0.2.1", "unknown word `vai`, did you mean `via`?"),
            ("10.0.0.0/8 via", "incomplete after `via`: a gateway must follow"),
            ("10.0.0.0/8 via eth0", "`eth0` is no gateway"),
            ("10.0.0.0/8 weight 2", "`weight` belongs right behind one `via GATEWAY`"),
            ("10.0.0.0/8 via 192.0.2.1 weight x", "`weight x`: a number from 1 to 65535 is needed"),
            ("10.0.0.0/8 dev a dev b", "`dev` belongs right behind its `via GATEWAY`"),
            ("10.0.0.0/8 blackhole prohibit", "`prohibit` twice"),
            ("10.0.0.0/8 metric 1 metric 2", "`metric` twice"),
            ("default blackhole", "`default` of which family?"),
        ] {
            let got = route_of(line).unwrap_err();
            assert!(got.contains(words), "{line}: {got}");
        }
    }

    fn neighbor_of(action: NeighborAction, line: &str) -> Result<NeighborChange, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        neighbor(action, &words[0], &words[1..])
    }

    #[test]
    fn neighbors_of_every_form() {
        let want = NeighborChange {
            action: NeighborAction::Add,
            addr: "2001:db8::1".into(),
            dev: "eth0".into(),
            mac: Some("02:00:5e:10:00:01".into()),
        };
        for line in [
            "2001:DB8::1 lladdr 02-00-5E-10-00-01 dev eth0",
            "2001:db8::1 dev eth0 lladdr 2:0:5e:10:0:1",
        ] {
            assert_eq!(neighbor_of(NeighborAction::Add, line).as_ref(), Ok(&want), "{line}");
        }
        let gone = neighbor_of(NeighborAction::Delete, "192.0.2.1 dev eth0").unwrap();
        assert_eq!((gone.addr.as_str(), gone.mac), ("192.0.2.1", None));
    }

    #[test]
    fn mistakes_of_neighbors_name_the_remedy() {
        for (line, words) in [
            ("192.0.2 lladdr 2:0:0:0:0:1 dev e", "`192.0.2` is no address"),
            ("fe80::1%e lladdr 2:0:0:0:0:1", "its interface behind `dev`"),
            ("192.0.2.1 lladdr 2:0:0:0:0:1", "on which interface?"),
            ("192.0.2.1 dev e", "where is it? `lladdr MAC` is needed"),
            ("192.0.2.1 lladdr 2:0:0:0:1 dev e", "`2:0:0:0:1` is no link address: six bytes"),
            ("192.0.2.1 lladdr", "what is the `lladdr`?"),
            ("192.0.2.1 dev a dev b", "`dev` twice"),
            ("192.0.2.1 ladr 2:0:0:0:0:1", "unknown word `ladr`, did you mean `lladdr`?"),
        ] {
            let got = neighbor_of(NeighborAction::Replace, line).unwrap_err();
            assert!(got.contains(words), "{line}: {got}");
        }
        let got =
            neighbor_of(NeighborAction::Delete, "192.0.2.1 lladdr 2:0:0:0:0:1 dev e").unwrap_err();
        assert!(got.contains("is not needed"), "{got}");
    }
}
