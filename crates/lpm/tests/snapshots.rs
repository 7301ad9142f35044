//! Saved tables: of every algorithm, mapped and copied back; damaged, cut and foreign files.

#![allow(clippy::unwrap_used, reason = "a test: what fails here fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

use fingerpost_lpm::snapshot::{Snapshot, SnapshotError, save};
use fingerpost_lpm::testing::{Rng, Shape, forge, probes, table};
use fingerpost_lpm::{Addr, Algorithm, Heap, Limits, Lookup, NextHopId, RouteStore};
use fingerpost_lpm::{registry::Rows, v4};
use proptest::prelude::*;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fingerpost-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Larger tables are the same code, and slow to write.
const LARGE_BYTES: usize = 6 << 20;

fn sample<A: Addr>(limits: &Limits) -> RouteStore<A> {
    let routes = table(Shape::Hostile, 3000, limits.next_hop.min(1000), 21);
    routes.into_iter().filter(|(prefix, _)| prefix.len() <= limits.prefix_len).collect()
}

fn answers<A: Addr>(lookup: &dyn Lookup<A>, routes: &RouteStore<A>) -> Vec<NextHopId> {
    let addrs: Vec<A> = routes.iter().flat_map(|(prefix, _)| probes(prefix)).collect();
    let mut out = vec![NextHopId::NONE; addrs.len()];
    lookup.lookup_batch(&addrs, &mut out);
    out
}

fn every_row<A: Rows>(folder: &Folder) {
    let mut saved = 0;
    for row in A::rows().filter(|row| row.open.is_some()) {
        let routes = sample::<A>(&row.limits);
        let built = row.build(&routes, &mut Heap).unwrap().publish();
        if built.regions().iter().map(|region| region.bytes()).sum::<usize>() > LARGE_BYTES {
            continue;
        }
        let path = folder.0.join(row.name);
        save(&path, row, &*built).unwrap();
        for snapshot in [Snapshot::open(&path), Snapshot::load(&path, &mut Heap)] {
            let snapshot = snapshot.unwrap();
            assert_eq!((snapshot.algorithm(), snapshot.family()), (row.name, A::FAMILY));
            let lookup = snapshot.lookup::<A>().unwrap();
            assert_eq!(answers(&*lookup, &routes), answers(&*built, &routes), "{row:?}");
            assert_eq!(lookup.bytes(), built.bytes(), "{row:?}");
            // Saved once more, it is the same file.
            let again = folder.0.join("again");
            save(&again, row, &*lookup).unwrap();
            assert!(fs::read(&path).unwrap() == fs::read(&again).unwrap(), "{row:?}");
        }
        saved += 1;
    }
    assert!(saved >= 2, "{saved} of IPv{}", A::FAMILY);
    assert!(folder.names().iter().all(|name| !name.ends_with(".tmp")), "{:?}", folder.names());
}

#[test]
fn every_algorithm_v4() {
    every_row::<u32>(&Folder::new("saved-v4"));
}

#[test]
fn every_algorithm_v6() {
    every_row::<u128>(&Folder::new("saved-v6"));
}

/// A file to break: small, so that a flipped bit rarely lands in what only fills up a page.
struct Saved {
    folder: Folder,
    row: &'static Algorithm<u128>,
    routes: RouteStore<u128>,
    bytes: Vec<u8>,
    answers: Vec<NextHopId>,
}

impl Saved {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let row = u128::row("bsearch").unwrap();
        let routes = sample::<u128>(&row.limits);
        let lookup = row.build(&routes, &mut Heap).unwrap().publish();
        let path = folder.0.join("table");
        save(&path, row, &*lookup).unwrap();
        let answers = answers(&*lookup, &routes);
        Self { row, routes, bytes: fs::read(path).unwrap(), answers, folder }
    }

    /// Results of opening other bytes, mapped and read.
    fn opened(&self, bytes: &[u8]) -> [Result<Snapshot, SnapshotError>; 2] {
        let path = self.folder.0.join("broken");
        fs::write(&path, bytes).unwrap();
        [Snapshot::open(&path), Snapshot::load(&path, &mut Heap)]
    }

    fn is_refused(&self, bytes: &[u8], what: &str) {
        for opened in self.opened(bytes) {
            let error = opened.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(what), "{what} wanted: {error}");
            assert!(!error.ends_with('.') && error.chars().all(|c| !c.is_control()), "{error}");
        }
    }

    /// Refused, or as good as whole: the flipped bits lay in what fills up a page.
    fn is_refused_or_right(&self, bytes: &[u8]) -> bool {
        let mut refused = true;
        for snapshot in self.opened(bytes).into_iter().flatten() {
            let lookup = snapshot.lookup::<u128>().unwrap();
            assert_eq!(answers(&*lookup, &self.routes), self.answers);
            refused = false;
        }
        refused
    }
}

#[test]
fn each_kind_of_damage_has_its_error() {
    let saved = Saved::new("damage");
    let good = saved.bytes.clone();
    let with = |at: usize, new: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    saved.is_refused(&[], "not a saved table");
    saved.is_refused(b"0.0.0.0/0 10.0.0.1\n", "not a saved table");
    saved.is_refused(&with(8, &2u32.to_ne_bytes()), "version 2 are not read, only 1");
    saved.is_refused(&with(12, &0x0403_0201u32.to_ne_bytes()), "other byte order");
    saved.is_refused(&with(12, &7u32.to_ne_bytes()), "damaged in header");
    saved.is_refused(&with(44, &1000u32.to_ne_bytes()), "damaged in header");
    saved.is_refused(&with(50, b"x"), "damaged in header");
    for region in ["head", "high", "low", "hops"] {
        let entry =
            good.windows(region.len() + 1).position(|w| w == format!("{region}\0").as_bytes());
        let entry = entry.unwrap();
        let offset = good[entry + 32..entry + 40].try_into().unwrap();
        let at = usize::try_from(u64::from_ne_bytes(offset)).unwrap();
        saved.is_refused(&with(at + 5, &[good[at + 5] ^ 4]), &format!("damaged in {region}"));
    }
    for len in [8, 79, 80, 4095, 4096, 8192, good.len() - 1] {
        saved.is_refused(&good[..len], "cut short or added to");
    }
    let mut longer = good.clone();
    longer.push(0);
    saved.is_refused(&longer, "cut short or added to");
    saved.is_refused(&[&good[..], &good[..]].concat(), "cut short or added to");
    assert!(!saved.is_refused_or_right(&good));
}

#[test]
fn other_families_and_algorithms_are_refused() {
    let saved = Saved::new("others");
    let snapshot = Snapshot::open(saved.folder.0.join("table")).unwrap();
    let error = snapshot.lookup::<u32>().err().unwrap();
    assert_eq!(error.to_string(), "saved table is of IPv6, wanted was IPv4");
    let radix = snapshot.lookup_by(u128::row("radix").unwrap()).err().unwrap();
    assert!(matches!(radix, SnapshotError::Format(_)), "{radix}");
    let rename = |name, open| Algorithm { name, open, ..*saved.row };
    let path = saved.folder.0.join("other");
    let lookup = saved.row.build(&saved.routes, &mut Heap).unwrap().publish();
    save(&path, &rename("bserch", saved.row.open), &*lookup).unwrap();
    let error = Snapshot::open(&path).unwrap().lookup::<u128>().err().unwrap();
    assert_eq!(error.to_string(), "saved by \"bserch\": no such IPv6 algorithm");
    let error = save(&path, &rename("secret", None), &*lookup).unwrap_err();
    assert_eq!(error.to_string(), "tables of secret cannot be saved");
}

#[test]
fn a_file_is_replaced_whole_or_not_at_all() {
    let saved = Saved::new("replaced");
    let path = saved.folder.0.join("table");
    let old = Snapshot::open(&path).unwrap().lookup::<u128>().unwrap();
    let empty = saved.row.build(&RouteStore::new(), &mut Heap).unwrap().publish();
    save(&path, saved.row, &*empty).unwrap();
    assert_eq!(answers(&*old, &saved.routes), saved.answers, "the mapped file is still there");
    let new = Snapshot::open(&path).unwrap().lookup::<u128>().unwrap();
    assert!(answers(&*new, &saved.routes).iter().all(|hop| hop.is_none()));
    let nowhere = saved.folder.0.join("no/such/folder");
    let error = save(&nowhere, saved.row, &*empty).unwrap_err();
    assert!(error.to_string().starts_with("cannot write "), "{error}");
    // A folder cannot be replaced by a file; what was written beside it is gone.
    let folder = saved.folder.0.join("folder");
    fs::create_dir_all(folder.join("inside")).unwrap();
    assert!(save(&folder, saved.row, &*empty).is_err());
    let error = Snapshot::open(Path::new("/no/such/file")).unwrap_err();
    assert!(error.to_string().starts_with("cannot read /no/such/file: "), "{error}");
    assert!(Snapshot::open(&folder).is_err());
    let mut names = saved.folder.names();
    names.sort();
    assert_eq!(names, ["folder", "table"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any bits anywhere.
    #[test]
    fn flipped_bits_are_found(seed in any::<u64>()) {
        let saved = Saved::new("flips");
        let mut rng = Rng::new(seed);
        let mut refused = 0;
        for _ in 0..8 {
            let mut bytes = saved.bytes.clone();
            for _ in 0..=rng.below(3) {
                // Half of them in the header, which is small.
                let within = if rng.chance(50) { 400 } else { bytes.len() };
                let at = rng.below(within);
                bytes[at] ^= 1 << rng.below(8);
            }
            refused += usize::from(bytes == saved.bytes || saved.is_refused_or_right(&bytes));
        }
        prop_assert!(refused > 0, "seed {}: nothing was found", seed);
    }
}

#[test]
fn forged_tables_do_no_harm() {
    // A right sum over nonsense: what a program that writes sums could do. The rows' own checks and
    // masks answer for it; the conformance suite does the same to regions in memory.
    let folder = Folder::new("forged");
    for row in v4().filter(|row| row.open.is_some()) {
        let routes = sample::<u32>(&row.limits);
        let lookup = row.build(&routes, &mut Heap).unwrap().publish();
        if lookup.regions().iter().map(|region| region.bytes()).sum::<usize>() > LARGE_BYTES {
            continue;
        }
        for (i, region) in lookup.regions().iter().enumerate() {
            let words = region.u32s();
            let word = &words[words.len() / 2 + i];
            let old = word.swap(u32::MAX, std::sync::atomic::Ordering::Relaxed);
            let path = folder.0.join("table");
            save(&path, row, &*lookup).unwrap();
            word.store(old, std::sync::atomic::Ordering::Relaxed);
            if let Ok(lookup) = Snapshot::open(&path).unwrap().lookup::<u32>() {
                assert_eq!(answers(&*lookup, &routes).len(), 6 * routes.len());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// Arbitrary bytes in a file whose sums are right, as from the fuzzer.
    #[test]
    fn forged_files_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 1..60)) {
        forge(&bytes);
    }
}
