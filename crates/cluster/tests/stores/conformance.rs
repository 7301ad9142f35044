//! What every store must do, over the one in memory and over real servers.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fingerpost_cluster::store::memory::Memory;
use fingerpost_cluster::store::{Event, Keep, Options, Store, StoreError};

use super::server::{KINDS, Server, TTL};

/// Longer than it takes until a session without a sign of life has ended, everywhere.
const LONG: Duration = Duration::from_secs(15);

/// A store to test. Each case has its own prefix.
struct Tested<'a> {
    open: &'a dyn Fn(&str) -> Box<dyn Store>,
    compact: &'a dyn Fn(&str),
    prefix: &'a str,
}

impl Tested<'_> {
    fn open(&self) -> Box<dyn Store> {
        (self.open)(self.prefix)
    }
}

/// A case with its name.
type Case = (&'static str, fn(&Tested<'_>));

const CASES: &[Case] = &[
    ("values", values),
    ("lists", lists),
    ("watches", watches),
    ("watches-wake", watches_wake),
    ("swaps", swaps),
    ("counter", counter),
    ("deletions", deletions),
    ("lease-ends", lease_ends),
    ("lease-kept", lease_kept),
    ("lease-lost", lease_lost),
    ("compacted", compacted),
];

fn run(open: &dyn Fn(&str) -> Box<dyn Store>, compact: &dyn Fn(&str)) {
    for (name, case) in CASES {
        println!("{name}");
        case(&Tested { open, compact, prefix: &format!("conformance/{name}") });
    }
}

#[test]
fn memory_does_what_a_store_must_do() {
    let stores = Mutex::new(BTreeMap::<String, Memory>::new());
    let store = |prefix: &str| stores.lock().unwrap().entry(prefix.to_owned()).or_default().clone();
    run(&|prefix| Box::new(store(prefix).open(TTL)), &|prefix| store(prefix).compact());
}

#[test]
fn servers_do_what_a_store_must_do() {
    for kind in KINDS {
        let Some(server) = Server::new(kind) else { continue };
        println!("{}", kind.name);
        let options = |prefix: &str| Options { prefix: prefix.to_owned(), ..server.options() };
        let compact = |prefix: &str| (kind.compact)(server.port(), prefix);
        run(&|prefix| server.open(&options(prefix)), &compact);
    }
}

fn values(tested: &Tested<'_>) {
    let (mut a, mut b) = (tested.open(), tested.open());
    assert_eq!(a.get("member/a").unwrap(), None);
    let all: Vec<u8> = (0..=255).collect();
    let mut last = 0;
    for (key, value) in [
        ("member/a", &all[..]),
        ("member/a", b""),
        ("member/a.rack-1_x", b"2"),
        ("number/7", b"{}"),
    ] {
        let revision = a.put(key, value, Keep::Forever).unwrap();
        assert!(revision > last, "{revision} after {last}");
        last = revision;
        let entry = b.get(key).unwrap().unwrap();
        assert_eq!((&entry.key[..], &entry.value[..], entry.revision), (key, value, revision));
    }
    let large = vec![b'x'; 500_000];
    a.put("member/large", &large, Keep::Leased).unwrap();
    assert_eq!(b.get("member/large").unwrap().unwrap().value, large);
}

fn lists(tested: &Tested<'_>) {
    let mut store = tested.open();
    assert_eq!(store.list("member/").unwrap().items, []);
    for key in ["member/b", "number/1", "member/a", "members", "member/c", "member/b"] {
        store.put(key, key.as_bytes(), Keep::Forever).unwrap();
    }
    store.delete("member/c").unwrap();
    let found = store.list("member/").unwrap();
    let keys: Vec<_> = found.items.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["member/a", "member/b"]);
    let last = found.items.iter().map(|entry| entry.revision).max().unwrap();
    assert!(found.revision >= last);
    let all = store.list("").unwrap();
    let keys: Vec<_> = all.items.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["member/a", "member/b", "members", "number/1"]);
}

fn short(event: &Event) -> (&str, Option<&[u8]>) {
    (&event.key, event.value.as_deref())
}

/// Changes up to a certain number of them.
fn changes(store: &mut dyn Store, after: &mut u64, count: usize) -> Vec<Event> {
    let until = Instant::now() + LONG;
    let mut events = Vec::new();
    while events.len() < count {
        let found = store.watch("member/", *after, Duration::from_secs(1)).unwrap();
        assert!(found.revision >= *after);
        *after = found.revision;
        events.extend(found.items);
        assert!(Instant::now() < until, "{events:?}");
    }
    events
}

fn watches(tested: &Tested<'_>) {
    let (mut a, mut b) = (tested.open(), tested.open());
    a.put("member/a", b"1", Keep::Forever).unwrap();
    let mut after = b.list("member/").unwrap().revision;
    let begin = Instant::now();
    assert_eq!(b.watch("member/", after, Duration::from_millis(200)).unwrap().items, []);
    assert!(begin.elapsed() >= Duration::from_millis(150));

    // While nobody waits.
    a.put("number/1", b"x", Keep::Forever).unwrap();
    let first = a.put("member/b", b"2", Keep::Forever).unwrap();
    let second = a.put("member/a", b"3", Keep::Forever).unwrap();
    let events = changes(&mut *b, &mut after, 2);
    let found: Vec<_> = events.iter().map(short).collect();
    assert_eq!(found, [("member/b", Some(&b"2"[..])), ("member/a", Some(b"3"))]);
    assert_eq!([events[0].revision, events[1].revision], [first, second]);
    assert_eq!(b.watch("member/", after, Duration::from_millis(100)).unwrap().items, []);

    // From a revision in the middle, in a session that has not watched yet.
    let mut middle = first;
    let events = changes(&mut *tested.open(), &mut middle, 1);
    assert_eq!(events.iter().map(short).collect::<Vec<_>>(), [("member/a", Some(&b"3"[..]))]);

    a.delete("member/a").unwrap();
    let events = changes(&mut *b, &mut after, 1);
    assert_eq!(short(&events[0]), ("member/a", None));
    assert!(events[0].revision > second);
}

fn watches_wake(tested: &Tested<'_>) {
    let (mut a, mut b) = (tested.open(), tested.open());
    let mut after = b.list("member/").unwrap().revision;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let found = b.watch("member/", after, LONG).unwrap();
            after = found.revision;
            (found.items, Instant::now())
        });
        std::thread::sleep(Duration::from_millis(500));
        let put = Instant::now();
        a.put("member/x", b"1", Keep::Leased).unwrap();
        let (events, woken) = waiting.join().unwrap();
        assert_eq!(events.iter().map(short).collect::<Vec<_>>(), [("member/x", Some(&b"1"[..]))]);
        assert!(woken - put < Duration::from_secs(2), "{:?}", woken - put);
    });
}

fn swaps(tested: &Tested<'_>) {
    let (mut a, mut b) = (tested.open(), tested.open());
    let first = a.swap("number/1", 0, b"a", Keep::Forever).unwrap().unwrap();
    assert_eq!(b.swap("number/1", 0, b"b", Keep::Forever).unwrap(), None);
    assert_eq!(b.get("number/1").unwrap().unwrap().value, b"a");
    let second = b.swap("number/1", first, b"b", Keep::Leased).unwrap().unwrap();
    assert!(second > first);
    assert_eq!(a.swap("number/1", first, b"c", Keep::Leased).unwrap(), None);
    assert_eq!(a.swap("number/2", first, b"c", Keep::Forever).unwrap(), None);
    a.delete("number/1").unwrap();
    assert_eq!(b.swap("number/1", second, b"d", Keep::Forever).unwrap(), None);
    assert!(b.swap("number/1", 0, b"e", Keep::Leased).unwrap().is_some());
    assert_eq!(a.get("number/1").unwrap().unwrap().value, b"e");
}

fn counter(tested: &Tested<'_>) {
    const EACH: u32 = 20;
    let count = |mut store: Box<dyn Store>| {
        for _ in 0..EACH {
            loop {
                let entry = store.get("number/1").unwrap();
                let (count, revision) = entry.map_or((0, 0), |entry| {
                    let count: u32 = String::from_utf8(entry.value).unwrap().parse().unwrap();
                    (count, entry.revision)
                });
                let next = (count + 1).to_string();
                if store
                    .swap("number/1", revision, next.as_bytes(), Keep::Forever)
                    .unwrap()
                    .is_some()
                {
                    break;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let sessions = [tested.open(), tested.open(), tested.open()];
        for store in sessions {
            scope.spawn(move || count(store));
        }
    });
    let found = tested.open().get("number/1").unwrap().unwrap();
    assert_eq!(found.value, (3 * EACH).to_string().as_bytes());
}

fn deletions(tested: &Tested<'_>) {
    let mut store = tested.open();
    store.delete("member/a").unwrap();
    store.put("member/a", b"1", Keep::Leased).unwrap();
    store.delete("member/a").unwrap();
    store.delete("member/a").unwrap();
    assert_eq!(store.get("member/a").unwrap(), None);
    store.put("member/a", b"2", Keep::Leased).unwrap();
    assert_eq!(store.get("member/a").unwrap().unwrap().value, b"2");
}

fn lease_ends(tested: &Tested<'_>) {
    let mut observer = tested.open();
    observer.put("member/o", b"o", Keep::Leased).unwrap();
    let mut after = observer.list("member/").unwrap().revision;
    let mut session = tested.open();
    session.put("member/a", b"1", Keep::Leased).unwrap();
    session.put("member/b", b"1", Keep::Leased).unwrap();
    session.put("member/c", b"1", Keep::Leased).unwrap();
    session.put("member/c", b"2", Keep::Forever).unwrap();
    session.put("member/d", b"1", Keep::Forever).unwrap();
    drop(session);
    let last = Instant::now();
    let mut gone = Vec::new();
    while gone.len() < 2 {
        assert!(last.elapsed() < LONG, "{gone:?}");
        observer.keep_alive().unwrap();
        let found = observer.watch("member/", after, TTL / 4).unwrap();
        after = found.revision;
        gone.extend(found.items.into_iter().filter(|event| event.value.is_none()));
    }
    assert!(last.elapsed() > TTL * 3 / 4, "{:?}", last.elapsed());
    gone.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(
        gone.iter().map(short).collect::<Vec<_>>(),
        [("member/a", None), ("member/b", None)]
    );
    let keys: Vec<_> =
        observer.list("member/").unwrap().items.into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, ["member/c", "member/d", "member/o"]);
}

fn lease_kept(tested: &Tested<'_>) {
    let (mut a, mut b) = (tested.open(), tested.open());
    a.keep_alive().unwrap();
    a.put("member/a", b"1", Keep::Leased).unwrap();
    let begin = Instant::now();
    while begin.elapsed() < TTL * 3 {
        a.keep_alive().unwrap();
        assert!(b.get("member/a").unwrap().is_some(), "{:?}", begin.elapsed());
        std::thread::sleep(TTL / 5);
    }
}

fn lease_lost(tested: &Tested<'_>) {
    let (mut a, mut b) = (tested.open(), tested.open());
    a.put("member/a", b"1", Keep::Leased).unwrap();
    let begin = Instant::now();
    while b.get("member/a").unwrap().is_some() {
        assert!(begin.elapsed() < LONG);
        std::thread::sleep(TTL / 5);
    }
    let lost = a.keep_alive();
    assert!(matches!(lost, Err(StoreError::LeaseLost)), "{lost:?}");
    a.put("member/a", b"2", Keep::Leased).unwrap();
    a.keep_alive().unwrap();
    assert_eq!(b.get("member/a").unwrap().unwrap().value, b"2");

    // A put after the end of a session begins another one by itself.
    let begin = Instant::now();
    while b.get("member/a").unwrap().is_some() {
        assert!(begin.elapsed() < LONG);
        std::thread::sleep(TTL / 5);
    }
    a.put("member/a", b"3", Keep::Leased).unwrap();
    a.keep_alive().unwrap();
    assert_eq!(b.get("member/a").unwrap().unwrap().value, b"3");
}

fn compacted(tested: &Tested<'_>) {
    let mut store = tested.open();
    let first = store.put("member/a", b"1", Keep::Forever).unwrap();
    for value in [b"2", b"3"] {
        store.put("member/a", value, Keep::Forever).unwrap();
    }
    (tested.compact)(tested.prefix);
    let lost = store.watch("member/", first, Duration::from_secs(1));
    assert!(matches!(lost, Err(StoreError::Compacted { after }) if after == first), "{lost:?}");
    let mut after = store.list("member/").unwrap().revision;
    store.put("member/b", b"4", Keep::Forever).unwrap();
    let events = changes(&mut *store, &mut after, 1);
    assert_eq!(events.iter().map(short).collect::<Vec<_>>(), [("member/b", Some(&b"4"[..]))]);
}
