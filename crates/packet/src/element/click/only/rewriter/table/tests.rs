//! The table against a plain map.

use std::collections::HashMap;

use fingerpost_lpm::Rng;

use super::super::pattern::{Field, FlowId, Values};
use super::*;

const TIMES: [Times; 2] =
    [Times { silent_ns: 100, guarantee_ns: 10 }, Times { silent_ns: 30, guarantee_ns: 0 }];

fn key(n: u32) -> Key {
    let id = FlowId { src: n, sport: 1, dst: 9, dport: 2 };
    Key { owner: u16::try_from(n % 3).unwrap(), protocol: 6, id }
}

/// A flow whose replies no other of these has; that of 0 is its own reply.
fn flow(n: u32) -> Flow {
    let to = FlowId { src: 7, sport: 100 + u16::try_from(n).unwrap(), ..key(n).id };
    if n == 0 {
        let id = FlowId { src: 7, sport: 5, dst: 7, dport: 5 };
        return Flow::new(Key { id, ..key(0) }, id, 0, 0);
    }
    Flow::new(key(n), to, 0, 0)
}

/// What the model knows of a flow: its times, and that of its last packet.
type Known = HashMap<u32, (Times, u64)>;

/// Random steps with a table for so many workers; what is found is what the model has.
fn steps(seed: u64, workers: usize) {
    let mut random = Rng::new(seed);
    let table = Table::default();
    table.use_workers(workers);
    let mut capacity = 20;
    table.set_capacity(capacity);
    let (mut known, mut now_ns) = (Known::new(), 0);
    for step in 0..3000 {
        now_ns += random.below(4) as u64;
        let n = u32::try_from(random.below(40)).unwrap();
        let times = TIMES[random.below(2)];
        let says = format!("seed {seed}, {workers} workers, step {step}");
        let mut session = table.session();
        let alive = |known: &Known, n: u32| {
            known.get(&n).is_some_and(|(times, seen_ns)| seen_ns + times.silent_ns > now_ns)
        };
        match random.below(10) {
            0..4 => {
                let reply = random.below(2) == 1;
                let wanted = if reply { flow(n).reply_key() } else { flow(n).key() };
                let found = session.find(&wanted, now_ns);
                assert_eq!(found.is_some(), alive(&known, n), "{says}");
                if let Some(found) = found {
                    assert_eq!(found.reply, reply || n == 0, "{says}");
                    assert_eq!(session.flow(found).from(), flow(n).from(), "{says}");
                    session.touch(found, times, now_ns);
                    known.insert(n, (times, now_ns));
                } else {
                    known.remove(&n);
                }
            }
            4..8 if !alive(&known, n) => {
                assert!(session.find(&flow(n).key(), now_ns).is_none(), "{says}");
                known.remove(&n);
                let added = session.add(flow(n), times, now_ns);
                let mut ended = Vec::new();
                for &other in known.keys() {
                    if session.find(&flow(other).key(), now_ns).is_none() {
                        ended.push(other);
                    }
                }
                let mut evicted = 0;
                for other in ended {
                    let alive = alive(&known, other);
                    let (times, seen_ns) = known.remove(&other).unwrap();
                    evicted += usize::from(alive);
                    assert!(!alive || seen_ns + times.guarantee_ns <= now_ns, "{says}: guaranteed");
                }
                assert!(evicted <= 1, "{says}");
                let guaranteed =
                    |(times, seen_ns): &(Times, u64)| seen_ns + times.guarantee_ns > now_ns;
                match added {
                    Some(found) => {
                        assert_eq!(session.flow(found).from(), flow(n).from());
                        known.insert(n, (times, now_ns));
                    }
                    None => {
                        assert!(known.len() == capacity && known.values().any(guaranteed), "{says}")
                    }
                }
            }
            8 => {
                if let Some(found) = session.find(&flow(n).key(), now_ns) {
                    session.remove(found);
                }
                known.remove(&n);
            }
            9 if step % 50 == 0 => {
                drop(session);
                capacity = 1 + random.below(25);
                table.set_capacity(capacity);
                let mut session = table.session();
                known.retain(|&n, _| session.find(&flow(n).key(), now_ns).is_some());
            }
            _ => {}
        }
        assert!(table.len() <= capacity && known.len() <= capacity, "{says}");
    }
    for owner in 0..3 {
        table.clear(owner);
        table.each(owner, &mut |flow| panic!("{flow:?}"));
    }
    assert_eq!(table.len(), 0);
    // Nothing of them is left in an index.
    let mut session = table.session();
    for shard in 0..session.shards.len() {
        let held = session.shard(shard);
        assert_eq!((held.each().count(), held.index.len()), (0, 0), "seed {seed}");
    }
}

#[test]
fn flows_are_found_as_in_a_map() {
    for seed in 0..8 {
        steps(seed, 1);
        steps(seed, 3);
    }
}

#[test]
fn a_full_table_gives_up_what_nothing_guarantees() {
    let times = TIMES[0];
    let table = Table::default();
    table.set_capacity(2);
    let mut session = table.session();
    assert!(session.add(flow(1), times, 0).is_some() && session.add(flow(2), times, 5).is_some());
    assert_eq!(session.add(flow(3), times, 9), None);
    let found = session.find(&flow(1).reply_key(), 9).unwrap();
    assert!(found.reply);
    session.touch(found, times, 9);
    assert!(session.add(flow(3), times, 15).is_some(), "in the place of 2");
    let mut is_known = |n, now_ns| session.find(&flow(n).key(), now_ns).is_some();
    assert!(!is_known(2, 15) && is_known(1, 15));
    assert!(is_known(1, 108) && !is_known(1, 109), "it was silent");
    drop(session);
    table.set_capacity(0);
    assert_eq!(table.len(), 0);
}

#[test]
fn a_full_table_gives_up_a_flow_behind_one_that_is_guaranteed() {
    let times = TIMES[0];
    let table = Table::default();
    table.set_capacity(3);
    let mut session = table.session();
    for n in 1..=3 {
        assert!(session.add(flow(n), times, n.into()).is_some());
    }
    let touch = |session: &mut Session<'_>, n, now_ns| {
        let found = session.find(&flow(n).key(), now_ns).expect("it stays");
        session.touch(found, times, now_ns);
    };
    touch(&mut session, 1, 4);
    assert_eq!(session.add(flow(4), times, 5), None, "its look gives 1 a second chance, behind 3");
    touch(&mut session, 1, 6);
    touch(&mut session, 2, 7);
    touch(&mut session, 3, 8);
    assert!(session.add(flow(4), times, 16).is_some(), "in the place of 1");
    assert_eq!(session.find(&flow(1).key(), 16), None);
}

#[test]
fn what_has_ended_makes_place_without_a_search() {
    let table = Table::default();
    let mut session = table.session();
    for n in 0..1000 {
        // Each ends before the next but 33 comes.
        assert!(session.add(flow(n), TIMES[1], u64::from(n)).is_some());
    }
    assert!(table.len() <= 33, "{}", table.len());
    assert!(session.shard(0).each().all(|(at, _)| at < 34), "places are used again");
}

/// Flows of different hosts to one destination.
fn to_one(src: u32, dst: u32) -> Key {
    let id = FlowId { src, sport: 1, dst, dport: 80 };
    Key { owner: 0, protocol: 17, id }
}

/// Gives a flow a value of a range of ports, beginning at a place.
fn map(session: &mut Session<'_>, key: Key, begin: u64) -> Option<u16> {
    let to = FlowId { src: 5, ..key.id };
    let values = Values::of(to, Field::Port, 1024..=65_535, begin);
    let value = session.free_value(&key, &values, 0)?;
    session.add(Flow::new(key, values.with(value), 0, 0), TIMES[0], 0)?;
    Some(u16::try_from(value).unwrap())
}

#[test]
fn a_port_is_found_at_once_where_nearly_all_are_taken() {
    const PORTS: u32 = 65_536 - 1024;
    for workers in [1, 2] {
        let table = Table::default();
        table.use_workers(workers);
        let mut session = table.session();
        for n in 0..PORTS {
            assert_eq!(
                map(&mut session, to_one(n, 8), n.into()),
                Some(1024 + u16::try_from(n).unwrap())
            );
        }
        // All ports are looked at once; a search that finds none in time is a failure.
        for _ in 0..20 {
            assert_eq!(map(&mut session, to_one(PORTS, 8), 7), None);
        }
        let looks = |session: &Session<'_>| session.looks;
        let before = looks(&session);
        for _ in 0..100 {
            assert_eq!(map(&mut session, to_one(PORTS, 8), 7), None);
        }
        assert!(looks(&session) - before <= 100 * 16, "all blocks are marked");
        assert_eq!(map(&mut session, to_one(PORTS, 9), 7), Some(1031), "to another destination");
        let mut random = Rng::new(4);
        let mut of: Vec<u32> = (0..PORTS).collect();
        let before = looks(&session);
        for n in 0..2000 {
            let at = random.below(of.len());
            let found = session.find(&to_one(of[at], 8), 0).unwrap();
            session.remove(found);
            of[at] = PORTS + 1 + n;
            let begin = random.below(PORTS as usize) as u64;
            let port = map(&mut session, to_one(of[at], 8), begin);
            assert_eq!(port, Some(1024 + u16::try_from(at).unwrap()), "the only one");
        }
        let mean = (looks(&session) - before) / 2000;
        assert!(mean <= 16 + 64 + 64, "{mean} looks a flow");
    }
}
