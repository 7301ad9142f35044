//! A bit flips in the memory of a running router: `fib verify` finds it, reports it and has it mended.
//!
//! The daemon has no door for that. As a failing memory cell would, the test writes into the process from
//! outside (proc_pid_mem(5)): what `route get --explain` reports for a few lookups shows where the structure
//! lies.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Lab;

/// How much is read at once.
const PIECE: usize = 1 << 20;
/// Routes 20.0.N.0/24; for a few of them the test requests what a lookup reads.
const ROUTES: u32 = 200;
/// A lookup of a /24 reads one cell of 16 bits, whose lowest is set where there is a block below.
const ALGORITHM: &str = "dir24_8";
const BIT: u64 = 1 << 1;

/// The last thing that a lookup reads: region, offset and value.
fn last_read(lab: &Lab, addr: &str) -> (String, u64, u64) {
    let answer = lab.json(&format!("route get {addr} --explain"));
    let step = answer["steps"].as_array().unwrap().last().unwrap();
    let number = |name: &str| step[name].as_u64().unwrap();
    (step["region"].as_str().unwrap().to_owned(), number("offset"), number("value"))
}

/// Memory that a process may write, by first address and length.
fn writable(pid: u32) -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let private = maps.lines().filter(|line| line.contains(" rw-p "));
    let bounds = private.map(|line| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (number(from), number(to) - number(from))
    });
    bounds.collect()
}

/// Where the region begins of which lookups read these 16-bit cells: offset and value.
fn find(memory: &File, maps: &[(u64, u64)], cells: &[(u64, u16)]) -> u64 {
    let stands = |base: u64| {
        cells.iter().all(|&(offset, value)| {
            let mut cell = [0; 2];
            let read = memory.read_exact_at(&mut cell, base + offset);
            read.is_ok() && u16::from_ne_bytes(cell) == value
        })
    };
    let (first, value) = cells[0];
    let mut found = HashSet::new();
    let mut piece = vec![0; PIECE];
    for &(from, bytes) in maps {
        for at in (from..from + bytes).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(usize::try_from(from + bytes - at).unwrap())];
            if memory.read_exact_at(piece, at).is_err() {
                continue;
            }
            let places = (at..).step_by(2).zip(piece.chunks_exact(2));
            let here = places.filter(|(_, cell)| **cell == value.to_ne_bytes());
            found.extend(here.map(|(at, _)| at.wrapping_sub(first)).filter(|&base| stands(base)));
        }
    }
    assert_eq!(found.len(), 1, "one place fits: {found:x?}");
    found.into_iter().next().unwrap()
}

/// Flips a bit of what a lookup of `addr` reads last. `None`, after a message, where another process
/// cannot be written to.
fn flip(lab: &Lab, addr: &str) -> Option<()> {
    let pid = lab.daemon.id();
    let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
    let Ok(memory) = memory else {
        println!("skipped: needs the right to write to another process");
        return None;
    };
    let (region, offset, value) = last_read(lab, addr);
    let mut cells = vec![(offset, u16::try_from(value).unwrap())];
    for n in (0..ROUTES).step_by(23) {
        let (other, offset, value) = last_read(lab, &format!("20.0.{n}.1"));
        assert_eq!(other, region);
        cells.push((offset, u16::try_from(value).unwrap()));
    }
    let base = find(&memory, &writable(pid), &cells);
    let flipped = u16::try_from(value ^ BIT).unwrap();
    memory.write_all_at(&flipped.to_ne_bytes(), base + offset).unwrap();
    let refused = lab.refused(&format!("route get {addr}"));
    let words =
        format!("{addr}: lookup and RIB disagree: `fingerpost fib verify` looks at all of them");
    assert_eq!(refused, (5, words));
    Some(())
}

/// The IPv4 lookup of the main table.
fn fib(lab: &Lab) -> Value {
    lab.json("fib show")[0].take()
}

#[test]
fn a_flipped_bit_is_found_told_and_mended() {
    let folder = std::env::temp_dir().join(format!("fpapi-damage-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let table = folder.join("table.txt");
    // Without a period, so that no other place looks like it.
    let gateway = |n: u32| 2 + (n.wrapping_mul(0x9e37_79b1) >> 29);
    let routes = (0..ROUTES).map(|n| format!("20.0.{n}.0/24 10.0.1.{}\n", gateway(n)));
    std::fs::write(&table, routes.collect::<String>()).unwrap();
    let config = |share: u32| {
        let path = folder.join(format!("{share}.toml"));
        let text = format!(
            "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"file\"\npath = \"{}\"\n\
             [fib]\nalgorithm_v4 = \"{ALGORITHM}\"\n[fib.knobs]\naudit_share_bp = {share}\n",
            table.display()
        );
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // Nobody looks but who is told to.
    let Some(lab) = Lab::new("bit", &[&config(0)]) else { return };
    lab.wait_for("forwarding on");
    assert_eq!(fib(&lab)["algorithm"], ALGORITHM);
    let builds = fib(&lab)["builds"].as_u64().unwrap();

    if flip(&lab, "20.0.7.1").is_none() {
        return;
    }
    assert_eq!(fib(&lab)["mismatch_routes"], 0, "not known yet");
    let verify = lab.run("fib verify --json");
    assert_eq!((verify.status.code(), &verify.stderr[..]), (Some(5), &b""[..]));
    let found: Value = serde_json::from_slice(&verify.stdout).unwrap();
    let differences = found["differences"].as_array().unwrap();
    // Both ends of the prefix and their neighbors, some asked for twice.
    assert_eq!(differences.len(), 4, "{found}");
    assert!(found["mismatches"].as_u64() >= Some(4), "{found}");
    let first = &differences[0];
    assert_eq!((&first["table"], &first["addr"]), (&254.into(), &"20.0.7.0".into()));
    assert_eq!(first["prefix"], "20.0.7.0/24");
    let right = lab.json("route show --longer 20.0.7.0/24")["nexthop"].clone();
    assert!(first["rib"] == right && first["fib"] != right, "{first}");
    assert!(differences.iter().all(|other| other["prefix"] == first["prefix"]), "{found}");

    // Mended by the time that it is told; it counts until it was looked at again.
    assert_eq!(lab.json("route get 20.0.7.1")["agrees"], true);
    let after = fib(&lab);
    assert_eq!((&after["mismatch_routes"], &after["builds"]), (&1.into(), &(builds + 1).into()));
    let again = lab.json("fib verify");
    assert_eq!((&again["mismatches"], again["addresses"] == 0), (&0.into(), false));
    assert_eq!(fib(&lab)["mismatch_routes"], 0);
    lab.wait_for("addresses are wrong, 20.0.7.0: 20.0.7.0/24 has next hop");
    lab.wait_for("are right again");

    // The same in words.
    flip(&lab, "20.0.99.200").unwrap();
    let verify = lab.run("fib verify");
    assert_eq!(verify.status.code(), Some(5));
    let text = String::from_utf8(verify.stdout).unwrap();
    let (first, last) = (text.lines().next().unwrap(), text.lines().last().unwrap());
    assert!(first.starts_with("20.0.99.0 (table 254): the lookup has next hop "), "{text}");
    assert!(first.ends_with(" by 20.0.99.0/24") && last.ends_with(" differ"), "{text}");
    assert!(lab.text("fib verify").ends_with(": 0 differ\n"));

    // Nobody asks: the auditor finds it by itself.
    flip(&lab, "20.0.150.1").unwrap();
    lab.text(&format!("config apply {}", config(2000)));
    lab.wait_for("addresses are wrong, 20.0.150.0: 20.0.150.0/24 has next hop");
    let until = Instant::now() + Duration::from_secs(10);
    while fib(&lab)["mismatch_routes"] != 0 || !lab.run("route get 20.0.150.1").status.success() {
        assert!(Instant::now() < until, "{}", fib(&lab));
    }
    assert!(lab.text("fib verify").ends_with(": 0 differ\n"));
    lab.end();
    std::fs::remove_dir_all(folder).unwrap();
}
