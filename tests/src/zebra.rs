//! Routes of FRR's zebra beside those that a router has from it, one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use fingerpost_route::AnyPrefix;
use serde::Deserialize;

use crate::frr::Frr;
use crate::netns::Router;
use crate::{patience, soak, tables};

/// Next hops of a route: gateway (empty for none) and interface (empty for none), or one word for what drops packets.
type Hops = BTreeSet<(String, String)>;
/// Table and prefix.
type Routes = BTreeMap<(u64, String), Hops>;

/// Number of the main table.
const MAIN: u64 = 254;

/// Longest time until the two are equal.
const LONGEST: Duration = Duration::from_secs(30);

/// A route of a prefix, as zebra prints it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    selected: bool,
    protocol: String,
    table: Option<u64>,
    nexthops: Vec<Hop>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hop {
    #[serde(default)]
    fib: bool,
    #[serde(default)]
    unreachable: bool,
    #[serde(default)]
    reject: bool,
    #[serde(default)]
    blackhole: bool,
    #[serde(default)]
    ip: String,
    #[serde(default)]
    interface_name: String,
}

/// A route of the router.
#[derive(Deserialize)]
struct Row {
    table: Option<u64>,
    prefix: String,
    kind: String,
    #[serde(default)]
    paths: Vec<Path>,
}

#[derive(Deserialize)]
struct Path {
    gateway: Option<String>,
    dev: Option<String>,
}

/// Waits until the router has every route that zebra has, in all of its tables, and no other by FPM; returns how many.
///
/// # Panics
/// When they still differ after half a minute, or after the time of a soak.
pub fn compare(router: &Router, frr: &Frr) -> usize {
    let until = Instant::now() + patience(LONGEST.max(soak(Duration::ZERO)));
    loop {
        let want = of_zebra(frr);
        let tables = want.keys().map(|(table, _)| *table).chain([MAIN]).collect();
        let have = of_router(router, &tables);
        if have == want {
            return want.len();
        }
        let missing: Vec<_> = want.iter().filter(|(key, _)| !have.contains_key(key)).collect();
        let stale: Vec<_> = have.iter().filter(|(key, _)| !want.contains_key(key)).collect();
        let other: Vec<_> = (want.iter())
            .filter_map(|(key, hops)| Some((key, hops, have.get(key).filter(|h| *h != hops)?)))
            .collect();
        assert!(
            Instant::now() < until,
            "missing {} {:?}, stale {} {:?}, other {} {:?}",
            missing.len(),
            missing.first(),
            stale.len(),
            stale.first(),
            other.len(),
            other.first()
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Routes that the router has by FPM, in these tables.
fn of_router(router: &Router, tables: &BTreeSet<u64>) -> Routes {
    let of = |table: &u64| -> Vec<Row> {
        router.ask_lines(&format!("route show --source fpm --vrf {table}"))
    };
    let hops = |row: Row| -> Hops {
        if row.paths.is_empty() {
            return [(row.kind, String::new())].into();
        }
        let hop = |path: Path| (path.gateway.unwrap_or_default(), path.dev.unwrap_or_default());
        row.paths.into_iter().map(hop).collect()
    };
    let rows = tables.iter().flat_map(of);
    rows.map(|row| ((row.table.unwrap_or(MAIN), row.prefix.clone()), hops(row))).collect()
}

/// Routes that zebra has selected and sends: those of its own protocols, of every table.
fn of_zebra(frr: &Frr) -> Routes {
    let mut routes = Routes::new();
    for words in ["show ip route table all json", "show ipv6 route table all json"] {
        let said = frr.vtysh(&[words]);
        for (table, document) in documents(&said) {
            for (prefix, entries) in document {
                let own = |entry: &Entry| {
                    entry.selected
                        && !matches!(entry.protocol.as_str(), "connected" | "kernel" | "local")
                };
                if let Some(entry) = entries.into_iter().find(own) {
                    routes.insert((entry.table.unwrap_or(table), prefix), hops(entry.nexthops));
                }
            }
        }
    }
    routes
}

/// The documents that FRR writes one after the other, each behind the number of its table where it has one.
fn documents(said: &str) -> Vec<(u64, BTreeMap<String, Vec<Entry>>)> {
    let mut all = Vec::new();
    let mut table = MAIN;
    let mut rest = said;
    while let Some(start) = rest.find(['{', 'T']) {
        rest = &rest[start..];
        if let Some(after) = rest.strip_prefix("Table ") {
            let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            table = after[..end].parse().expect("digits");
            rest = &after[end..];
            continue;
        }
        let mut documents = serde_json::Deserializer::from_str(rest).into_iter();
        match documents.next() {
            Some(Ok(document)) => all.push((table, document)),
            _ => panic!("{rest:.200}"),
        }
        rest = &rest[documents.byte_offset()..];
    }
    all
}

/// Next hops of zebra's that are in use.
fn hops(all: Vec<Hop>) -> Hops {
    let used = all.into_iter().filter(|hop| hop.fib || hop.unreachable);
    used.map(|hop| match (hop.reject, hop.blackhole) {
        (true, _) => ("unreachable".to_owned(), String::new()),
        (_, true) => ("blackhole".to_owned(), String::new()),
        _ => (hop.ip, hop.interface_name),
    })
    .collect()
}

/// So many prefixes of the table that is shipped, at most, as text: without the default route and what a line of
/// namespaces uses itself.
///
/// # Panics
/// When it cannot be read.
pub fn announced(count: usize) -> Vec<String> {
    let used = |prefix: &AnyPrefix| match prefix {
        AnyPrefix::V4(prefix) => prefix.len() > 0 && prefix.addr() >> 24 != 10,
        AnyPrefix::V6(_) => false,
    };
    of_table("v4-tier1-nh496.txt.xz", used).take(count).collect()
}

/// So many IPv6 prefixes of the table that is shipped, at most: [`announced`].
///
/// # Panics
/// When it cannot be read.
pub fn announced6(count: usize) -> Vec<String> {
    let used = |prefix: &AnyPrefix| matches!(prefix, AnyPrefix::V6(prefix) if prefix.len() > 0);
    of_table("v6-tier1-nh496.txt.xz", used).take(count).collect()
}

/// Prefixes of both families mixed, as each part has its share of both.
///
/// # Panics
/// When there is none of IPv6.
pub fn mixed(v4: Vec<String>, v6: Vec<String>) -> Vec<String> {
    let every = v4.len() / v6.len();
    let mut v6 = v6.into_iter();
    let mut all = Vec::with_capacity(v4.len() + v6.len());
    for (at, prefix) in v4.into_iter().enumerate() {
        all.push(prefix);
        if at % every == 0 {
            all.extend(v6.next());
        }
    }
    all.extend(v6);
    all
}

/// First host of each prefix, by family.
///
/// # Panics
/// When one is no prefix.
pub fn hosts(prefixes: &[String]) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let host = |prefix: &String| match AnyPrefix::parse(prefix).expect("a prefix") {
        AnyPrefix::V4(prefix) => IpAddr::from(Ipv4Addr::from(prefix.addr() | 1)),
        AnyPrefix::V6(prefix) => IpAddr::from(Ipv6Addr::from(prefix.addr() | 1)),
    };
    prefixes.iter().map(host).partition(IpAddr::is_ipv4)
}

fn of_table(name: &str, used: impl Fn(&AnyPrefix) -> bool) -> impl Iterator<Item = String> {
    let all = tables::entries(name).map(|entry| entry.prefix);
    all.filter(used).map(|prefix| prefix.to_string())
}
