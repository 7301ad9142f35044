//! What the program is linked from: licences that may be linked, and no C to compile.
//!
//! `deny.toml` says the same to cargo-deny, which also knows advisories; this needs nothing but cargo.

#![allow(clippy::unwrap_used, reason = "these are the helpers of tests")]

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// Packages that bring C sources or look for a C library at build time.
const NO_C: &[&str] = &["bindgen", "cc", "cmake", "pkg-config", "vcpkg"];

/// The licences that `deny.toml` allows.
fn allowed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(fingerpost_tests::root().join("deny.toml")).unwrap();
    let config: toml::Table = text.parse().unwrap();
    let list = config["licenses"]["allow"].as_array().unwrap();
    list.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Whether an SPDX expression can be satisfied; `/` is the old way to write OR.
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

/// The packages of a build for `platform`, as cargo describes them.
fn packages(platform: &str) -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let done = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--all-features"])
        .args(["--filter-platform", platform])
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
    // The platform of this machine: its packages are here, those of others may not be.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let packages = packages(&platform);
    assert!(packages.len() > 20, "{} packages are not this repository's", packages.len());
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let license = package["license"].as_str().unwrap_or("none named");
        if !satisfied(license, &allowed) {
            wrong.push(format!("{name}: {license}"));
        }
        if NO_C.contains(&name) {
            wrong.push(format!("{name}: a build must not need a C compiler"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
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
