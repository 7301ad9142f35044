//! Which crate may use which: `router -> cluster -> io -> packet -> route -> lpm`, and no arrow back, neither between
//! crates nor between the folders of a crate.
//!
//! Read from the manifests and from the crate names in the sources, so that a dependency fails here
//! before it is leaned on. A new crate needs a row in [`ROOMS`].

use std::collections::BTreeSet;

use fingerpost_tests::modules::{self, Uses};
use fingerpost_tests::source::{self, File};

/// A crate, its folder, and the crates of this repository that it may use.
struct Room {
    package: &'static str,
    dir: &'static str,
    uses: &'static [&'static str],
}

const LPM: &str = "fingerpost-lpm";
const ROUTE: &str = "fingerpost-route";
const PACKET: &str = "fingerpost-packet";
const IO: &str = "fingerpost-io";
const CLUSTER: &str = "fingerpost-cluster";
const COMMAND: &str = "fingerpost-command";
const ROUTER: &str = "fingerpost-router";
const LAB: &str = "fingerpost-lab";

const ROOMS: &[Room] = &[
    Room { package: LPM, dir: "crates/lpm", uses: &[] },
    Room { package: ROUTE, dir: "crates/route", uses: &[LPM] },
    Room { package: PACKET, dir: "crates/packet", uses: &[LPM, ROUTE] },
    Room { package: IO, dir: "crates/io", uses: &[LPM, ROUTE, PACKET] },
    Room { package: CLUSTER, dir: "crates/cluster", uses: &[LPM, ROUTE, PACKET, IO] },
    Room { package: COMMAND, dir: "crates/command", uses: &[LPM, ROUTE] },
    Room {
        package: ROUTER,
        dir: "crates/router",
        uses: &[LPM, ROUTE, PACKET, IO, CLUSTER, COMMAND],
    },
    // Its tests speak to it with the types of all.
    Room {
        package: "fingerpost",
        dir: "crates/fingerpost",
        uses: &[LPM, ROUTE, PACKET, IO, COMMAND, ROUTER],
    },
    Room { package: LAB, dir: "lab", uses: &[LPM, ROUTE, PACKET, IO, CLUSTER, COMMAND] },
    Room {
        package: "fingerpost-tests",
        dir: "tests",
        uses: &[LPM, ROUTE, PACKET, IO, CLUSTER, COMMAND, LAB],
    },
    Room { package: "xtask", dir: "xtask", uses: &[] },
];

/// Every dependency of a manifest, of whatever kind and platform, by the name of its package; true
/// when the library cannot be built without it.
fn dependencies(manifest: &toml::Table) -> BTreeSet<(String, bool)> {
    let mut all = BTreeSet::new();
    for (key, value) in manifest {
        let Some(table) = value.as_table() else { continue };
        match key.as_str() {
            "dependencies" | "dev-dependencies" | "build-dependencies" => {
                for (name, spec) in table {
                    let package = spec.get("package").and_then(toml::Value::as_str);
                    let optional = spec.get("optional").and_then(toml::Value::as_bool);
                    let needed = key == "dependencies" && optional != Some(true);
                    all.insert((package.unwrap_or(name).to_owned(), needed));
                }
            }
            "target" => {
                for platform in table.values().filter_map(toml::Value::as_table) {
                    all.extend(dependencies(platform));
                }
            }
            _ => {}
        }
    }
    all
}

/// What is wrong with the manifest of `room`.
fn check_manifest(room: &Room, text: &str) -> Vec<String> {
    let manifest: toml::Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("{}: {error}", room.dir)],
    };
    let mut wrong = Vec::new();
    let name = manifest.get("package").and_then(|p| p.get("name")).and_then(toml::Value::as_str);
    if name != Some(room.package) {
        wrong.push(format!("{}: the package is {name:?}, not {}", room.dir, room.package));
    }
    for (dependency, needed) in dependencies(&manifest) {
        let ours = ROOMS.iter().any(|other| other.package == dependency);
        // A crate may name itself, with other features, for its own tests.
        if ours && dependency != room.package && !room.uses.contains(&dependency.as_str()) {
            wrong.push(format!(
                "{}/Cargo.toml: {} must not use {dependency}",
                room.dir, room.package
            ));
        }
        let alone = match room.package {
            // Anything else would keep it out of kernels and small devices.
            LPM => needed && dependency != "libc",
            // It is built before anything is installed.
            "xtask" => !matches!(&*dependency, "anyhow" | "indicatif" | "serde_json"),
            _ => false,
        };
        if alone {
            wrong.push(format!(
                "{}/Cargo.toml: {} stands without {dependency}",
                room.dir, room.package
            ));
        }
    }
    wrong
}

/// What is wrong with one source file of `room`.
fn check_source(room: &Room, file: &File) -> Vec<String> {
    let mut wrong = Vec::new();
    for (line, word) in source::words(&source::code(&file.text)) {
        let package = word.replace('_', "-");
        // The program's name is also a plain word; nothing can use it, it is no library.
        let ours = package.contains('-') && ROOMS.iter().any(|other| other.package == package);
        let own = package == room.package;
        if ours && !own && !room.uses.contains(&package.as_str()) {
            wrong.push(format!("{}:{line}: {} must not use {word}", file.path, room.package));
        }
        let rib = file.path == "crates/route/src/rib.rs"
            || file.path.starts_with("crates/route/src/rib/");
        if rib && word.eq_ignore_ascii_case("fib") {
            wrong.push(format!("{}:{line}: the RIB does not know the FIB", file.path));
        }
    }
    wrong
}

/// Crates whose sources open no socket and call no system: ports and servers are in the crates above them.
const WITHOUT_SOCKETS: &[&str] = &["crates/route/src/", "crates/packet/src/"];

/// Names of the operating system in the source of a crate that stands without it.
fn check_sockets(file: &File) -> Vec<String> {
    if !WITHOUT_SOCKETS.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let socket = |word: &str| {
        let kind = ["Tcp", "Udp", "Unix"].iter().find_map(|kind| word.strip_prefix(kind));
        kind.is_some_and(|rest| ["Listener", "Socket", "Stream", "Datagram"].contains(&rest))
    };
    let code = source::code(&file.text);
    let mut wrong: Vec<_> = source::words(&code)
        .filter(|(_, word)| *word == "libc" || *word == "rustix" || socket(word))
        .map(|(line, word)| format!("{}:{line}: names {word}", file.path))
        .collect();
    // Also under another name: `use std::os::unix::net;`.
    for (line, text) in code.lines().enumerate().filter(|(_, text)| text.contains("unix::net")) {
        wrong.push(format!("{}:{}: {}", file.path, line + 1, text.trim()));
    }
    wrong
}

/// Arrows between modules of a crate that nothing may have, besides those that close a circle.
const NEVER: &[(&str, &str, &str)] = &[
    (ROUTER, "api", "cli"),
    (ROUTER, "api", "config"),
    (ROUTER, "api", "daemon"),
    (ROUTER, "daemon", "cli"),
    (ROUTE, "rib", "fib"),
    (ROUTE, "event", "source"),
    (PACKET, "graph", "element"),
];

/// What is wrong between the modules of a crate.
fn check_modules(package: &str, uses: &Uses) -> Vec<String> {
    let mut wrong = Vec::new();
    let circle = modules::circle(uses);
    if !circle.is_empty() {
        let places = circle.windows(2).map(|pair| uses[&pair[0]][&pair[1]].as_str());
        let places: Vec<&str> = places.collect();
        wrong.push(format!("{package}: {} ({})", circle.join(" -> "), places.join(", ")));
    }
    for (_, from, to) in NEVER.iter().filter(|(of, _, _)| *of == package) {
        if let Some(place) = uses.get(*from).and_then(|uses| uses.get(*to)) {
            wrong.push(format!("{place}: {from} must not use {to}"));
        }
    }
    wrong
}

fn room(package: &str) -> &'static Room {
    ROOMS.iter().find(|room| room.package == package).expect("a room of the table")
}

#[test]
fn every_member_has_its_place() {
    let text = std::fs::read_to_string(fingerpost_tests::root().join("Cargo.toml")).unwrap();
    let workspace: toml::Table = text.parse().unwrap();
    let members = workspace["workspace"]["members"].as_array().unwrap();
    assert!(members.len() >= 8);
    for member in members {
        let dir = member.as_str().unwrap();
        assert!(
            ROOMS.iter().any(|room| room.dir == dir),
            "{dir}: what may it use, who may use it?"
        );
    }
}

#[test]
fn no_manifest_points_back() {
    let root = fingerpost_tests::root();
    let mut wrong = Vec::new();
    for room in ROOMS {
        if let Ok(text) = std::fs::read_to_string(root.join(room.dir).join("Cargo.toml")) {
            wrong.extend(check_manifest(room, &text));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn no_source_points_back() {
    let root = fingerpost_tests::root();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for room in ROOMS.iter().filter(|room| root.join(room.dir).is_dir()) {
        for file in source::files(room.dir, ".rs") {
            wrong.extend(check_source(room, &file));
            seen += 1;
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(seen > 20, "{seen} files are not this repository");
}

#[test]
fn route_and_packet_open_no_socket() {
    let files = WITHOUT_SOCKETS
        .iter()
        .flat_map(|folder| source::files(folder.trim_end_matches('/'), ".rs"));
    let files: Vec<_> = files.collect();
    assert!(files.len() > 20, "{} files are not these crates", files.len());
    let wrong: Vec<_> = files.iter().flat_map(check_sockets).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let check = |path: &str, text: &str| {
        check_sockets(&File { path: path.to_owned(), text: text.to_owned() }).len()
    };
    let packet = "crates/packet/src/x.rs";
    assert_eq!(check(packet, "fn f() { libc::close(1) }"), 1);
    assert_eq!(check(packet, "use std::net::{IpAddr, TcpListener};"), 1);
    assert_eq!(check("crates/route/src/x.rs", "use std::net::UdpSocket;"), 1);
    assert_eq!(check(packet, "use std::os::unix::net;"), 1);
    assert_eq!(check(packet, "use std::net::IpAddr; // no TcpListener"), 0);
    assert_eq!(check(packet, "enum Listen { Tcp(u16), Unix(String) }"), 0);
    assert_eq!(check("crates/io/src/x.rs", "use std::os::unix::net::UnixStream;"), 0);
}

#[test]
fn no_module_points_back() {
    let root = fingerpost_tests::root();
    let mut wrong = Vec::new();
    for room in ROOMS {
        let src = format!("{}/src", room.dir);
        if !root.join(&src).is_dir() {
            continue;
        }
        wrong.extend(check_modules(room.package, &modules::uses(&src)));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_module_that_points_back_is_found() {
    let uses = |files: &[(&str, &str)]| {
        let file = |&(path, text): &(&str, &str)| File { path: path.into(), text: text.into() };
        modules::uses_of("src", &files.iter().map(file).collect::<Vec<_>>())
    };
    let circle = uses(&[("src/a.rs", "use crate::b::X;"), ("src/b.rs", "use super::a::Y;")]);
    assert_eq!(check_modules("xtask", &circle), ["xtask: a -> b -> a (src/a.rs:1, src/b.rs:1)"]);
    let back = uses(&[("src/api/mod.rs", "use crate::daemon::Daemon;"), ("src/daemon.rs", "")]);
    assert_eq!(check_modules(ROUTER, &back), ["src/api/mod.rs:1: api must not use daemon"]);
    let right = uses(&[("src/daemon.rs", "use crate::api::Backend;"), ("src/api/mod.rs", "")]);
    assert_eq!(check_modules(ROUTER, &right), [""; 0]);
}

#[test]
fn a_manifest_that_points_back_is_found() {
    let lpm = |rest: &str| format!("[package]\nname = \"fingerpost-lpm\"\n{rest}");
    let bad = [
        "[dependencies]\nfingerpost-route.workspace = true",
        "[dev-dependencies]\nfingerpost-tests = { path = \"../../tests\" }",
        "[target.'cfg(unix)'.dependencies]\nfingerpost = \"1\"",
        "[dependencies]\nx = { package = \"fingerpost-packet\", version = \"1\", optional = true }",
        "[dependencies]\nserde = \"1\"",
    ];
    for rest in bad {
        assert_eq!(check_manifest(room(LPM), &lpm(rest)).len().min(1), 1, "{rest}");
    }
    let good = "[dependencies]\nlibc = \"0\"\nserde = { version = \"1\", optional = true }\n\
                [dev-dependencies]\nproptest = \"1\"\nfingerpost-lpm = { path = \".\" }";
    assert_eq!(check_manifest(room(LPM), &lpm(good)), [""; 0]);
    assert_eq!(check_manifest(room(ROUTE), &lpm("")).len(), 1, "another crate's manifest");
    let xtask = "[package]\nname = \"xtask\"\n[dependencies]\nanyhow = \"1\"\nclap = \"4\"";
    assert_eq!(check_manifest(room("xtask"), xtask).len(), 1);
    assert_eq!(check_manifest(room("xtask"), "not a manifest").len(), 1);
}

#[test]
fn a_source_that_points_back_is_found() {
    let check = |package: &str, path: &str, text: &str| {
        check_source(room(package), &File { path: path.to_owned(), text: text.to_owned() }).len()
    };
    assert_eq!(check(LPM, "crates/lpm/src/x.rs", "use fingerpost_route::Rib;"), 1);
    assert_eq!(check(ROUTE, "crates/route/src/x.rs", "fn f() { ::fingerpost_packet::g() }"), 1);
    assert_eq!(check(PACKET, "crates/packet/src/x.rs", "use fingerpost_lpm as l;"), 0);
    assert_eq!(check(PACKET, "crates/packet/src/x.rs", "use fingerpost_io::afxdp;"), 1);
    assert_eq!(check(PACKET, "crates/packet/src/x.rs", "// fingerpost_lab measures it"), 0);
    assert_eq!(check(LAB, "lab/src/x.rs", "use fingerpost_tests::skip;"), 1);
    let router = "crates/router/src/cli/lab.rs";
    assert_eq!(check(ROUTER, router, "use fingerpost_lab::run;"), 1);
    assert_eq!(check(ROUTER, router, "const BINARY: &str = \"fingerpost-lab\";"), 0);
    assert_eq!(check(ROUTE, "crates/route/src/rib.rs", "use crate::fib::Fib;"), 2);
    assert_eq!(check(ROUTE, "crates/route/src/rib.rs", "/// Never asks the fib."), 0);
    assert_eq!(check(ROUTE, "crates/route/src/fib/mod.rs", "use crate::rib::Rib;"), 0);
}
