//! The contract of all route tables: batches whole or not at all, one answer for handlers and packets, and texts.

use std::collections::BTreeMap;
use std::sync::Arc;

use fingerpost_lpm::{Algorithm, Prefix};
use proptest::prelude::*;

use super::{Change, Family, Removal, Route, RouteTable, Test};

const OUTPUTS: u32 = 4;

fn table<A: Family>(rows: Vec<&'static Algorithm<A>>, routes: &[Route<A>]) -> RouteTable<A> {
    let made = RouteTable::new("DXRIPLookup", rows, OUTPUTS, Arc::default(), routes);
    made.unwrap_or_else(|(_, error)| panic!("{error}")).0
}

fn routes<A: Family>(texts: &[&str]) -> Vec<Route<A>> {
    texts.iter().map(|text| Route::read(text.split_ascii_whitespace()).unwrap()).collect()
}

fn v4(texts: &[&str]) -> RouteTable<u32> {
    table(vec![fingerpost_lpm::find_v4("dxr20").unwrap()], &routes(texts))
}

/// What a table should be: every prefix and its route.
type Model<A> = BTreeMap<Prefix<A>, Route<A>>;

/// All changes or none.
fn model_apply<A: Family>(model: &mut Model<A>, changes: &[Change<A>]) -> Result<(), usize> {
    let mut new = model.clone();
    for (at, change) in changes.iter().enumerate() {
        match change {
            Change::Add(route) if new.contains_key(&route.prefix) => return Err(at),
            Change::Add(route) | Change::Set(route) => {
                if u32::from(route.output) >= OUTPUTS {
                    return Err(at);
                }
                new.insert(route.prefix, *route);
            }
            Change::Remove(removal) => {
                let is = new.remove(&removal.prefix).ok_or(at)?;
                let same = |output| (output, removal.gateway) == (is.output, is.gateway);
                if removal.output.is_some_and(|output| !same(output)) {
                    return Err(at);
                }
            }
        }
    }
    *model = new;
    Ok(())
}

fn model_lookup<A: Family>(model: &Model<A>, addr: A) -> Option<Route<A>> {
    let holding = model.values().filter(|route| route.prefix.contains(addr));
    holding.max_by_key(|route| route.prefix.len()).copied()
}

/// Does the same to a table and to the model, and compares all answers.
fn agree<A: Family>(table: &RouteTable<A>, batches: &[Vec<Change<A>>], probes: &[A]) {
    let mut model = Model::new();
    let mut reader = table.reader();
    for changes in batches {
        let want = model_apply(&mut model, changes);
        let got = table.apply(changes);
        assert_eq!(got.as_ref().map(drop).map_err(|(at, _)| *at), want.map_err(Some), "{got:?}");
        assert_eq!(table.dump(), model.values().copied().collect::<Vec<_>>());
        for &probe in probes {
            let want = model_lookup(&model, probe);
            let path = table.path(reader.lookup(probe));
            assert_eq!(path, table.lookup(probe), "packets and handlers see the same");
            let gateway =
                |path: super::Path| table.gateways().get(path.gateway).and_then(A::from_ip);
            assert_eq!(
                path.map(|path| (path.output, gateway(path))),
                want.map(|route| (route.output, route.gateway))
            );
        }
    }
    for (prefix, route) in &model {
        assert_eq!(table.lookup_exact(*prefix).as_ref(), Some(route));
    }
    table.flush().unwrap();
    assert!(table.dump().is_empty() && table.lookup(A::MIN).is_none());
}

/// Few prefixes that lie in each other, so that changes meet.
fn prefix<A: Family>() -> impl Strategy<Value = Prefix<A>> {
    (0..4_u128, 0..5_u8).prop_map(|(bits, len)| {
        let len = [0, 3, 16, 20, A::BITS][usize::from(len)];
        Prefix::masked(A::from_u128(bits << (A::BITS - 4) | bits << 8 | bits), len)
    })
}

fn change<A: Family>() -> impl Strategy<Value = Change<A>> {
    let gateway = prop::option::of((1..4_u128).prop_map(A::from_u128));
    (0..4_u8, prefix::<A>(), gateway, 0..6_u16).prop_map(|(kind, prefix, gateway, output)| {
        let route = Route { prefix, gateway, output };
        match kind {
            0 => Change::Add(route),
            1 => Change::Set(route),
            2 => Change::Remove(Removal { prefix, gateway: None, output: None }),
            _ => Change::Remove(Removal { prefix, gateway, output: Some(output) }),
        }
    })
}

fn batches<A: Family>() -> impl Strategy<Value = Vec<Vec<Change<A>>>> {
    prop::collection::vec(prop::collection::vec(change(), 0..5), 0..12)
}

fn probes<A: Family>() -> Vec<A> {
    let near = |bits: u128| A::from_u128(bits << (A::BITS - 4) | bits << 8 | bits);
    (0..4).flat_map(|bits| [near(bits), near(bits).next(), near(bits).prev()]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn batches_are_carried_out_whole_or_not_at_all_v4(batches in batches::<u32>()) {
        agree(&table(fingerpost_lpm::v4().collect(), &[]), &batches, &probes());
    }

    #[test]
    fn batches_are_carried_out_whole_or_not_at_all_v6(batches in batches::<u128>()) {
        agree(&table(fingerpost_lpm::v6().collect(), &[]), &batches, &probes());
    }
}

/// A few batches by each algorithm: the contract does not depend on which it is.
#[test]
fn every_algorithm_keeps_the_contract() {
    fn batches<A: Family>(family: [&str; 3]) -> Vec<Vec<Change<A>>> {
        let [wide, narrow, host] = family;
        let route = |prefix: &str, rest: &str| -> Route<A> {
            Route::read(format!("{prefix} {rest}").split(' ')).unwrap()
        };
        let removal = Removal { prefix: route(narrow, "0").prefix, gateway: None, output: None };
        vec![
            vec![Change::Add(route(wide, "0")), Change::Add(route(narrow, "1"))],
            vec![Change::Set(route(host, "2")), Change::Add(route(wide, "3"))],
            vec![Change::Remove(removal), Change::Set(route(host, "3")), Change::Remove(removal)],
            vec![Change::Remove(removal), Change::Set(route(host, "3"))],
        ]
    }
    let probes4 = [0x0a01_0203, 0x0a01_0204, 0x0a09_0000, 0x0b00_0000];
    for row in fingerpost_lpm::v4() {
        let batches = batches(["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32"]);
        agree(&table(vec![row], &[]), &batches, &probes4);
    }
    let probes6 = [0x2001_0db8_u128 << 96 | 7, 0x2001_0db8_u128 << 96 | 8, 0x2001_0db9_u128 << 96];
    for row in fingerpost_lpm::v6() {
        let batches = batches(["2001::/16", "2001:db8::/48", "2001:db8::7/128"]);
        agree(&table(vec![row], &[]), &batches, &probes6);
    }
}

#[test]
fn of_routes_with_one_prefix_the_last_counts() {
    let given = routes(&["10/8 1", "11/8 1", "10/8 2", "10.0.0.0/255.0.0.0 192.0.2.1 3"]);
    let rows = fingerpost_lpm::v4().collect();
    let made = RouteTable::<u32>::new("T", rows, OUTPUTS, Arc::default(), &given);
    let Ok((table, twice)) = made else { panic!("they can be had") };
    assert_eq!(twice, [2, 3]);
    assert_eq!(table.read_table(), "10.0.0.0/8\t\t192.0.2.1\t3\n11.0.0.0/8\t\t-\t\t1\n");
}

#[test]
fn single_changes_as_text() {
    let table = v4(&["10/8 1"]);
    assert_eq!(table.write_add("10.1.0.0/16 192.0.2.1 2\n"), Ok(()));
    let conflict = "conflict with existing route `10.0.0.0/8 - 1`";
    assert_eq!(table.write_add("10/8 2"), Err(conflict.to_owned()));
    let conflict = "conflict with existing route `10.1.0.0/16 192.0.2.1 2`";
    assert_eq!(table.write_add("10.1.0.0/16 0"), Err(conflict.to_owned()));
    assert_eq!(table.write_set("10/8 0.0.0.0 3"), Ok(()));
    let all = "10.0.0.0/8\t\t-\t\t3\n10.1.0.0/16\t\t192.0.2.1\t2\n";
    assert_eq!(table.read_table(), all);
    assert_eq!(table.write_remove("10/8 2"), Err("the route is `10.0.0.0/8 - 3`".to_owned()));
    let differs = "the route is `10.1.0.0/16 192.0.2.1 2`";
    assert_eq!(table.write_remove("10.1/16 2"), Err(differs.to_owned()));
    assert_eq!(table.write_remove("11/8"), Err("no route to 11.0.0.0/8".to_owned()));
    assert_eq!(table.read_table(), all);
    assert_eq!(table.write_remove("10.1/16 192.0.2.1 2"), Ok(()));
    assert_eq!(table.write_remove("10/8"), Ok(()));
    assert_eq!(table.read_table(), "");
}

#[test]
fn what_is_no_route_is_reported() {
    let table = v4(&[]);
    let reported = |text| table.write_add(text).unwrap_err();
    assert_eq!(reported(""), "a route is ADDR/MASK [GATEWAY] OUTPUT");
    assert_eq!(reported("10/8"), "a route is ADDR/MASK [GATEWAY] OUTPUT");
    assert_eq!(reported("10/8 1.2.3.4"), "a route is ADDR/MASK [GATEWAY] OUTPUT");
    assert!(reported("10/33 1").starts_with("`10/33` is no IPv4 prefix"));
    assert!(reported("10/8 -1").starts_with("`-1` is no IPv4 gateway"));
    assert_eq!(reported("10/8 fe80::1 1"), "`fe80::1` is no IPv4 gateway");
    assert_eq!(reported("10/8 1 2"), "`2` is one word too many");
    assert_eq!(reported("10/8 - 70000"), "`70000` is out of range: 0 to 65535 are possible");
    assert_eq!(reported("10/8 4"), "output 4 is not connected: there are 4");
}

#[test]
fn many_changes_at_once_are_all_or_none() {
    let table = v4(&["10/8 1"]);
    let before = table.read_table();
    let ctrl = |text| table.write_ctrl(text).unwrap_err();
    assert_eq!(ctrl("add 11/8 1\n\nset 10/8 2\nadd 11/8 1"), {
        "line 4: conflict with existing route `11.0.0.0/8 - 1`"
    });
    assert_eq!(ctrl("remove 10/8\nremove 10/8\n"), "line 2: no route to 10.0.0.0/8");
    assert_eq!(ctrl("add 11/8 1\nfrob 10/8"), {
        "line 2: `frob` is neither `add` nor `set` nor `remove`"
    });
    assert_eq!(ctrl("add 11/8 1\r\nadd 12/8 9\r\n"), {
        "line 2: output 9 is not connected: there are 4"
    });
    assert_eq!(table.read_table(), before);
    table.write_ctrl("").unwrap();
    table.write_ctrl("remove 10/8\r\nadd 10/8 9.9.9.9 2\r\nset 11/8 3\r\n").unwrap();
    assert_eq!(table.read_table(), "10.0.0.0/8\t\t9.9.9.9\t\t2\n11.0.0.0/8\t\t-\t\t3\n");
}

#[test]
fn lookups_as_text() {
    let table = v4(&["10/8 1", "10.1/16 192.0.2.1 2"]);
    let said = |text| table.read_lookup(text);
    assert_eq!(said("10.9.9.9"), Ok("1".to_owned()));
    assert_eq!(said(" 10.1.0.1\n"), Ok("2 192.0.2.1".to_owned()));
    assert_eq!(said("11.0.0.1"), Ok("-1".to_owned()));
    assert_eq!(said("::1"), Err("`::1` is no IPv4 address".to_owned()));
    assert_eq!(said(""), Err("`` is no IPv4 address".to_owned()));
    let six =
        self::table::<u128>(fingerpost_lpm::v6().collect(), &routes(&["2001:db8::/32 fe80::1 2"]));
    assert_eq!(six.read_lookup("2001:db8::9"), Ok("2 fe80::1".to_owned()));
    assert_eq!(six.read_lookup("10.0.0.1"), Err("`10.0.0.1` is no IPv6 address".to_owned()));
    assert_eq!(six.read_table(), "2001:db8::/32\t\tfe80::1\t\t2\n");
}

/// A text with N for each number in it.
fn form(text: &str) -> String {
    let mut form = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if form.ends_with('N') => {}
            '0'..='9' => form.push('N'),
            c => form.push(c),
        }
    }
    form
}

/// The texts that the authors of DXR recorded, but for the numbers.
#[test]
fn statistics_have_the_form_of_the_dxr_elements() {
    let recorded = "\
DXRIPLookup (D20R): 513644 prefixes, 239 unique nexthops
Lookup tables: 4194304 bytes direct, 512148 bytes range (9.1 bytes/prefix)
Direct table resolves 93.8% of IPv4 address space
Longest range chunk contains 176 fragments
Physical chunks: 40247 short, 1416 long
Physical fragments: 237728 short, 9173 long
Aggregated chunks: 63313 short, 1477 long
Aggregated fragments: 306484 short, 9354 long
Last update duration: 909.6 ms
";
    assert_eq!(recorded.len(), 428);
    let table = v4(&["10/8 1", "10.1.0.0/24 2", "10.1.0.128/25 3", "11/8 1", "12/8 9.9.9.9 1"]);
    let stat = table.read_stat();
    assert_eq!(form(&stat), form(recorded));
    assert!(stat.starts_with("DXRIPLookup (D20R): 5 prefixes, 4 unique nexthops\n"), "{stat}");
    assert!(stat.contains("Lookup tables: 4194304 bytes direct"), "{stat}");
    // One of 2^20 chunks: before the /24, its two halves, behind it.
    assert!(stat.contains("Direct table resolves 100.0% of"), "{stat}");
    assert!(stat.contains("Longest range chunk contains 3 fragments\n"), "{stat}");
    let rows = vec![fingerpost_lpm::find_v4("radix").unwrap()];
    let stat = self::table::<u32>(rows, &routes(&["10/8 1"])).read_stat();
    assert!(stat.starts_with("DXRIPLookup (radix): 1 prefixes, 1 unique nexthops\n"), "{stat}");
    assert!(stat.contains("\nLookup structure: ") && stat.contains("\nLast update duration: "));
}

/// What the authors' own figures keep to.
#[test]
fn statistics_fit_together() {
    let texts: Vec<String> = (0..3000_u32)
        .map(|n| {
            let addr = std::net::Ipv4Addr::from(n.wrapping_mul(0x9e37_79b1) & 0x0fff_ff80);
            format!("{addr}/{} {}", [12, 22, 25][(n % 3) as usize], n % OUTPUTS)
        })
        .collect();
    let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
    let stat = v4(&texts).read_stat();
    let numbers: Vec<f64> = stat
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter_map(|word| word.parse().ok())
        .collect();
    // D20R is one of them, and IPv4.
    let [_, prefixes, paths, direct, ranges, each, resolved, _, longest, rest @ ..] = &numbers[..]
    else {
        panic!("{stat}")
    };
    let [short, long, short_ranges, long_ranges, all_short, all_long, all_ranges, more, _] = rest
    else {
        panic!("{stat}")
    };
    assert_eq!((*paths, *direct), (4.0, 4.0 * f64::from(1 << 20)), "{stat}");
    assert!((each - (direct + ranges) / prefixes).abs() <= 0.05, "{stat}");
    assert!((ranges - (2.0 * short_ranges + 4.0 * long_ranges)).abs() < 0.5, "{stat}");
    let share = 100.0 * (all_short + all_long) / f64::from(1 << 20);
    assert!((resolved + share - 100.0).abs() <= 0.05 && share > 0.0, "{stat}");
    assert!(short + long > 0.0 && short + long <= all_short + all_long, "{stat}");
    assert!(short_ranges + long_ranges <= all_ranges + more, "{stat}");
    assert!(*longest > 2.0 && *longest <= short_ranges + long_ranges, "{stat}");
}

#[test]
fn benches_have_the_form_of_the_dxr_elements() {
    let table = v4(&["10/8 1"]);
    assert_eq!(table.read_bench_sel(), "0");
    for (number, name) in [("0", "SEQ"), ("1\n", "RND"), (" 2", "REP")] {
        table.write_bench_sel(number).unwrap();
        assert_eq!(table.read_bench_sel(), number.trim());
        let said = table.bench(1 << 16, std::time::Duration::from_millis(5));
        let recorded = format!(
            "DXRIPLookup (D20R), {name} test, uniformly random keys:\n\
             268435456 lookups in 1.406164355 s (190.9 M lookups/s)\n"
        );
        assert_eq!(form(&said), form(&recorded));
    }
    for wrong in ["3", "", "-1", "x"] {
        assert!(table.write_bench_sel(wrong).unwrap_err().ends_with("0 = SEQ, 1 = RND, 2 = REP"));
    }
    assert_eq!(table.read_bench_sel(), "2");
    assert_eq!(Test::default(), Test::Dependent);
}
