//! Sets against a list of prefixes that is searched from end to end, through any changes; and readers beside them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

use fingerpost_lpm::{NextHopId, Prefix};
use fingerpost_route::AnyPrefix;
use proptest::prelude::*;

use super::{Edit, List, Mask, PrefixSets, mask, read_prefix};
use crate::language::open_policy::OpenPolicy;

const SETS: usize = 3;

/// What sets should hold.
type Model = Vec<BTreeSet<AnyPrefix>>;

fn contains(prefix: AnyPrefix, addr: IpAddr) -> bool {
    match (prefix, addr) {
        (AnyPrefix::V4(prefix), IpAddr::V4(addr)) => prefix.contains(addr.to_bits()),
        (AnyPrefix::V6(prefix), IpAddr::V6(addr)) => prefix.contains(addr.to_bits()),
        _ => false,
    }
}

fn model_lookup(model: &Model, addr: IpAddr) -> Mask {
    let covers = |set: &BTreeSet<AnyPrefix>| set.iter().any(|&prefix| contains(prefix, addr));
    model.iter().enumerate().fold(0, |mask, (at, set)| mask | Mask::from(covers(set)) << at)
}

fn sets(texts: [&str; SETS]) -> PrefixSets {
    let list = |text: &str| {
        let mut list = List::default();
        text.split(' ')
            .filter(|word| !word.is_empty())
            .for_each(|word| list.push(read_prefix(word).unwrap()));
        list
    };
    let names = ["a", "b", "c"];
    PrefixSets::new(
        names.into_iter().zip(texts).map(|(name, text)| (name.into(), list(text))).collect(),
    )
    .unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<Edit<AnyPrefix>>),
    Replace(usize, Vec<AnyPrefix>),
}

/// Few prefixes that lie in each other, so that changes meet.
fn prefix() -> impl Strategy<Value = AnyPrefix> {
    (any::<bool>(), 0..4_u32, 0..5_usize).prop_map(|(v4, bits, len)| {
        let bits = bits << 28 | bits << 8 | bits;
        if v4 {
            AnyPrefix::V4(Prefix::masked(bits, [0, 3, 16, 24, 32][len]))
        } else {
            let bits = u128::from(bits) << 96 | u128::from(bits);
            AnyPrefix::V6(Prefix::masked(bits, [0, 3, 32, 64, 128][len]))
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let edit =
        (0..SETS, prefix(), any::<bool>()).prop_map(|(set, prefix, add)| Edit { set, prefix, add });
    prop_oneof![
        3 => prop::collection::vec(edit, 0..6).prop_map(Step::Apply),
        1 => (0..SETS, prop::collection::vec(prefix(), 0..6))
            .prop_map(|(set, list)| Step::Replace(set, list)),
    ]
}

fn probes() -> Vec<IpAddr> {
    let near = |bits: u32| {
        let bits = bits << 28 | bits << 8 | bits;
        let wide = u128::from(bits) << 96 | u128::from(bits);
        let v4 = [bits, bits ^ 1, bits ^ 0xff, bits ^ 0xffff].map(|bits| IpAddr::V4(bits.into()));
        let v6 =
            [wide, wide ^ 1, wide ^ 1 << 64, wide ^ 1 << 96].map(|bits| IpAddr::V6(bits.into()));
        [v4, v6].concat()
    };
    (0..4).flat_map(near).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sets_are_those_that_a_slow_search_finds(
        first in prop::collection::vec((0..SETS, prefix()), 0..12),
        steps in prop::collection::vec(step(), 0..12),
    ) {
        let mut model: Model = vec![BTreeSet::new(); SETS];
        let mut lists = vec![List::default(); SETS];
        for (set, prefix) in first {
            model[set].insert(prefix);
            lists[set].push(prefix);
        }
        let named = lists.into_iter().enumerate().map(|(at, list)| (format!("s{at}").into(), list));
        let sets = PrefixSets::new(named.collect()).unwrap();
        let mut reader = sets.reader();
        for step in [Step::Apply(Vec::new())].into_iter().chain(steps) {
            let (want, got) = match step {
                Step::Apply(edits) => {
                    let mut new = 0;
                    for Edit { set, prefix, add } in &edits {
                        let of = &mut model[*set];
                        new += usize::from(if *add { of.insert(*prefix) } else { of.remove(prefix) });
                    }
                    (new, sets.apply(&edits).unwrap())
                }
                Step::Replace(set, list) => {
                    let new: BTreeSet<_> = list.iter().copied().collect();
                    let differ = model[set].symmetric_difference(&new).count();
                    model[set] = new;
                    let mut given = List::default();
                    list.into_iter().for_each(|prefix| given.push(prefix));
                    (differ, sets.replace(set, given).unwrap())
                }
            };
            prop_assert_eq!(want, got);
            for probe in probes() {
                let want = model_lookup(&model, probe);
                prop_assert_eq!(sets.lookup(probe), want, "{}", probe);
                let seen = match probe {
                    IpAddr::V4(addr) => reader.v4.lookup(addr.to_bits()),
                    IpAddr::V6(addr) => reader.v6.lookup(addr.to_bits()),
                };
                prop_assert_eq!(mask(seen), want, "a worker sees the same");
            }
            for (set, of) in model.iter().enumerate() {
                let list = sets.list(set);
                let all: Vec<_> = list.v4.iter().map(|&p| AnyPrefix::V4(p))
                    .chain(list.v6.iter().map(|&p| AnyPrefix::V6(p))).collect();
                prop_assert!(all.iter().eq(of.iter()));
                prop_assert_eq!(sets.count(set), [list.v4.len(), list.v6.len()]);
            }
        }
    }
}

#[test]
fn many_prefixes_grow_into_the_structures_of_full_tables() {
    let mut lists = vec![List::default(); SETS];
    let mut random = 7_u64;
    for at in 0..60_000_usize {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bits = u32::try_from(random >> 32).unwrap();
        let len = 12 + u8::try_from(at % 21).unwrap();
        lists[at % SETS].push(AnyPrefix::V4(Prefix::masked(bits, len)));
        let wide = 1 << 125 | u128::from(bits) << 93;
        lists[at % SETS].push(AnyPrefix::V6(Prefix::masked(wide, len + 24)));
    }
    let model = lists.clone();
    let named = lists.into_iter().enumerate().map(|(at, list)| (format!("{at}").into(), list));
    let sets = PrefixSets::new(named.collect()).unwrap();
    let covers = |addr: u32| {
        let of = |list: &List| list.v4.iter().any(|prefix| prefix.contains(addr));
        model.iter().enumerate().fold(0, |mask, (at, list)| mask | Mask::from(of(list)) << at)
    };
    let mut several = 0;
    for at in 0..2_000 {
        let addr = model[at % SETS].v4[at * 7].last() ^ u32::from(at % 5 == 0);
        let want = covers(addr);
        several += usize::from(want.count_ones() > 1);
        assert_eq!(sets.lookup(IpAddr::V4(addr.into())), want);
    }
    assert!(several > 100, "prefixes of several sets meet: {several}");
}

#[test]
fn an_exchange_is_seen_whole() {
    // Every address is in the old list or in the new one, so any other answer is of half a change.
    let sets = sets(["0.0.0.0/1 ::/1", "0.0.0.0/0 ::/0", ""]);
    let halves = ["0.0.0.0/1 ::/1", "128.0.0.0/1 8000::/1"].map(|text| {
        let mut list = List::default();
        text.split(' ').for_each(|word| list.push(read_prefix(word).unwrap()));
        list
    });
    let mut reader = sets.reader();
    let (addrs, mut answers) = ([7, 1 << 31 | 7], [NextHopId::NONE; 2]);
    watched(
        || {
            reader.v4.lookup_batch(&addrs, &mut answers);
            match answers.map(mask) {
                [0b011, 0b010] => 0,
                [0b010, 0b011] => 1,
                other => panic!("half an exchange: {other:?}"),
            }
        },
        |round| assert!(sets.replace(0, halves[round % 2].clone()).unwrap() > 0),
    );
}

/// Has `look` return again and again which of two states it finds, while `change` brings about one after the other:
/// many times, and until both were found.
fn watched(mut look: impl FnMut() -> usize + Send, mut change: impl FnMut(usize)) {
    let (done, seen) = (AtomicBool::new(false), [const { AtomicBool::new(false) }; 2]);
    let both = || seen.iter().all(|seen| seen.load(SeqCst));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(SeqCst) {
                seen[look()].store(true, SeqCst);
            }
        });
        let begun = Instant::now();
        let mut round = 1;
        // On a busy machine the watcher may have its first turn late.
        while round < 2_000 || !(both() || watcher.is_finished() || begun.elapsed().as_secs() > 60)
        {
            change(round);
            round += 1;
        }
        done.store(true, SeqCst);
        watcher.join().unwrap();
    });
    assert!(both(), "both are to be seen: {seen:?}");
}

#[test]
fn an_address_sees_one_step_of_a_batch() {
    // One batch puts all of 10/8 into a set, and the inner prefix into another; the next takes both out.
    let sets = sets(["", "", "10.0.0.0/7"]);
    let words = "a 10.0.0.0/8\nb 10.1.0.0/16";
    let mut reader = sets.reader();
    watched(
        || match mask(reader.v4.lookup(0x0a01_0203)) {
            0b100 => 0,
            0b111 => 1,
            other => panic!("half a batch: {other:#b}"),
        },
        |round| {
            let verb = if round % 2 == 1 { "add" } else { "remove" };
            let text = words.split('\n').map(|line| format!("{verb} {line}\n")).collect::<String>();
            assert_eq!(sets.write_ctrl(&text), Ok(Vec::new()));
        },
    );
}

#[test]
fn texts() {
    let sets = sets(["10.0.0.0/8", "10.1.0.0/16 2001:db8::/32", ""]);
    assert_eq!(sets.read_table(""), Ok("a\t10.0.0.0/8\nb\t10.1.0.0/16\nb\t2001:db8::/32\n".into()));
    assert_eq!(sets.write_edit(true, "c 192.0.2.9 192.0.2.0/24"), Ok(Vec::new()));
    assert_eq!(sets.read_table("c"), Ok("c\t192.0.2.0/24\nc\t192.0.2.9/32\n".into()));
    let mask = sets.read_lookup(" 10.1.2.3\n").unwrap();
    assert_eq!((sets.text(mask), sets.text(0)), ("a,b".into(), "-".into()));
    let reported = |result: Result<Vec<String>, String>| result.unwrap().join("; ");
    assert_eq!(reported(sets.write_edit(true, "a 10.0.0.0/8")), "`a` has 10.0.0.0/8 as it is");
    assert_eq!(
        reported(sets.write_edit(false, "a 1.1.1.1")),
        "`a` does not have 1.1.1.1/32 as it is"
    );
    assert_eq!(
        reported(sets.write_ctrl("add a 10.0.0.0/8 11.0.0.0/8\nremove a 11.0.0.0/8")),
        "1 of 3 changes had no effect"
    );
    for (got, want) in [
        (sets.write_edit(true, "d 1.1.1.1"), "`d` is no set: a, b, c"),
        (sets.write_edit(true, ""), "the name of a set is wanted: a, b, c"),
        (sets.write_edit(true, "a"), "a PREFIX is wanted"),
        (sets.write_ctrl("add a 1.1.1.1\nflush a"), "line 2: `flush` is neither"),
        (sets.write_ctrl("add a 1.1.1.1\n\nadd a 1.1.1.1/40"), "line 3: `1.1.1.1/40` is no IPv4"),
    ] {
        let reported = got.unwrap_err();
        assert!(reported.starts_with(want), "{reported}");
    }
    assert_eq!(sets.lookup("1.1.1.1".parse().unwrap()), 0, "none of a batch that makes no sense");
    assert_eq!(sets.write_set("b 8.8.8.8"), Ok(()));
    assert_eq!(sets.read_table("b"), Ok("b\t8.8.8.8/32\n".into()));
    assert_eq!(sets.write_set("b"), Ok(()));
    assert_eq!(sets.read_table("b"), Ok(String::new()));
    let load = |text| sets.write_load(text, &OpenPolicy::default());
    assert!(load("a /nowhere").unwrap_err().starts_with("/nowhere: "));
    assert!(load("a").is_err());
    assert!(sets.read_lookup("x").unwrap_err().contains("no IP address"));
}
