//! What fuzzers start from and what they once found, on every test run: the files of `fuzz/regressions`, each by the
//! function that the target of its folder's name calls.

#![allow(clippy::unwrap_used, reason = "a test: what fails here fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use fingerpost_packet::feature::acl;
use fingerpost_packet::handler::control_socket;
use fingerpost_packet::{language, testing};
use fingerpost_route::{netlink, source};
use fingerpost_tests::folder::Folder;

/// A target, and what it does with an input.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 16] = [
    ("acl", acl::testing::check),
    ("bmp", source::fuzz::bmp),
    ("control", control_socket::testing::check),
    ("dump", source::fuzz::dump),
    ("fabric", fingerpost_cluster::element::testing::check),
    ("fpm", source::fuzz::fpm),
    ("frame", testing::frames::check),
    ("graph", |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            language::testing::check(text);
        }
    }),
    ("lookup", fingerpost_lpm::testing::drive),
    ("netlink", |bytes| {
        netlink::fuzz::check(bytes);
        source::fuzz::kernel(bytes);
    }),
    ("probe", fingerpost_cluster::probe::testing::check),
    ("script", testing::scripts::check),
    ("snapshot", fingerpost_lpm::testing::forge),
    ("summary", testing::summaries::check),
    ("table", |bytes| {
        source::fuzz::table(bytes);
        source::fuzz::compressed_table(bytes);
    }),
    ("updates", source::fuzz::updates),
];

/// The names in a folder of `fuzz`, without what follows the point.
fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fingerpost_tests::root().join("fuzz").join(folder)).unwrap();
    let name = |path: std::path::PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    entries.map(|entry| name(entry.unwrap().path())).collect()
}

#[test]
fn every_target_has_its_inputs_here() {
    let here: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!((&names("fuzz_targets"), &names("regressions")), (&here, &here));
}

/// The inputs in a folder: what keeps an empty folder is none.
fn inputs(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let hidden = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with('.');
    let mut inputs: Vec<_> = paths.filter(|path| !hidden(path)).collect();
    inputs.sort();
    inputs
}

#[test]
fn what_was_found_stays_repaired() {
    for (name, check) in TARGETS {
        let inputs = inputs(&fingerpost_tests::root().join("fuzz/regressions").join(name));
        assert!(!inputs.is_empty(), "no input of {name}");
        for path in inputs {
            let input = fs::read(&path).unwrap();
            assert!(catch_unwind(|| check(&input)).is_ok(), "{} fails again", path.display());
        }
    }
}

#[test]
fn a_hidden_file_is_no_input() {
    let folder = Folder::new("fuzzed");
    folder.write(".gitkeep", "");
    assert_eq!(inputs(folder.path()), [""; 0].map(PathBuf::from));
    folder.write("found", "x");
    assert_eq!(inputs(folder.path()), [folder.path().join("found")]);
}
