//! What the program is linked from: licences that may be linked, packages of the public registry in stated versions, and no C to
//! compile but for features that are off by default.
//!
//! `deny.toml` has the same for cargo-deny, which also knows advisories (`cargo xtask check` runs it where it is
//! installed); this needs nothing but cargo.

#![allow(clippy::unwrap_used, reason = "these are the helpers of tests")]

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// Packages that bring C sources or look for a C library at build time.
const NO_C: &[&str] = &["bindgen", "cc", "cmake", "pkg-config", "vcpkg"];

/// Features that are off by default may bring C: those of the stores link a TLS library.
const ALL: [&str; 1] = ["--all-features"];

/// Where packages come from that are not of this repository.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn deny() -> toml::Table {
    let text = std::fs::read_to_string(fingerpost_tests::root().join("deny.toml")).unwrap();
    text.parse().unwrap()
}

/// The licences that `deny.toml` allows.
fn allowed() -> BTreeSet<String> {
    let config = deny();
    let list = config["licenses"]["allow"].as_array().unwrap();
    list.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Faults of where a package comes from, and of the versions that it requires.
fn foreign(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap();
    let mut wrong = Vec::new();
    match package["source"].as_str() {
        Some(CRATES_IO) => {}
        Some(other) => wrong.push(format!("{name}: from {other}, not from the public registry")),
        None => {
            for wanted in package["dependencies"].as_array().unwrap() {
                // Crates of this repository name each other by path.
                if wanted["req"] == "*" && wanted["path"].is_null() {
                    wrong.push(format!("{name}: any version of {}", wanted["name"]));
                }
            }
        }
    }
    wrong
}

/// Whether an SPDX expression can be satisfied; `/` is the old form of OR.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_ascii_whitespace().collect();
    let mut at = 0;
    let ok = any(&words, &mut at, allowed);
    ok && at == words.len()
}

fn any(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut ok = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        // Both sides are read, whatever the first one says.
        ok |= all(words, at, allowed);
    }
    ok
}

fn all(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut ok = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        ok &= one(words, at, allowed);
    }
    ok
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let ok = any(words, at, allowed);
        *at += 1;
        return ok;
    }
    let mut name = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        name = format!("{name} WITH {}", words.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    allowed.contains(&name)
}

/// The packages of a build with these features for the platform of this machine, as cargo describes them. Those of other
/// platforms may not be here.
fn packages(features: &[&str]) -> Vec<Value> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let done = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", &platform])
        .args(features)
        .current_dir(fingerpost_tests::root())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let metadata: Value = serde_json::from_slice(&done.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[test]
fn everything_linked_may_be_linked() {
    let allowed = allowed();
    let packages = packages(&ALL);
    assert!(packages.len() > 20, "{} packages are not this repository's", packages.len());
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let license = package["license"].as_str().unwrap_or("none named");
        if !satisfied(license, &allowed) {
            wrong.push(format!("{name}: {license}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn only_the_tls_library_is_in_c() {
    let (without, default, all) =
        (packages(&["--no-default-features"]), packages(&[]), packages(&ALL));
    let in_c = |packages: &[Value]| -> Vec<String> {
        let names = packages.iter().map(|package| package["name"].as_str().unwrap().to_owned());
        names.filter(|name| NO_C.contains(&name.as_str())).collect()
    };
    assert!(without.len() > 20, "{} packages are not this repository's", without.len());
    for packages in [&default, &all] {
        assert_eq!(in_c(packages), ["cc"], "the TLS library of stores, listener and https");
    }
    let wrong = in_c(&without);
    assert!(wrong.is_empty(), "what needs no TLS must not need a C compiler: {wrong:?}");
}

#[test]
fn packages_are_of_crates_io_and_of_stated_versions() {
    let (config, words) =
        (deny(), |table: &toml::Value, key: &str| table[key].as_str() == Some("deny"));
    assert!(
        words(&config["sources"], "unknown-registry") && words(&config["sources"], "unknown-git")
    );
    assert!(words(&config["bans"], "wildcards"));
    let wrong: Vec<String> = packages(&ALL).iter().flat_map(foreign).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let package = |source: Value, req: &str, path: Value| {
        let wanted = serde_json::json!([{ "name": "b", "req": req, "path": path }]);
        foreign(&serde_json::json!({ "name": "a", "source": source, "dependencies": wanted })).len()
    };
    assert_eq!(package(CRATES_IO.into(), "*", Value::Null), 0, "what others ask for is theirs");
    assert_eq!(package("git+https://example.net/a".into(), "1", Value::Null), 1);
    assert_eq!(package("registry+https://example.net/index".into(), "1", Value::Null), 1);
    assert_eq!(package(Value::Null, "*", Value::Null), 1);
    assert_eq!(package(Value::Null, "*", "/b".into()) + package(Value::Null, "^1", Value::Null), 0);
}

#[test]
fn expressions_are_read_as_spdx() {
    let allowed: BTreeSet<String> =
        ["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/GPL-3.0",
        "(GPL-3.0 OR MIT) AND Zlib",
        "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
    ] {
        assert!(satisfied(good, &allowed), "{good}");
    }
    for bad in
        ["", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "(MIT OR GPL-3.0) AND GPL-3.0", "MIT MIT"]
    {
        assert!(!satisfied(bad, &allowed), "{bad}");
    }
}
