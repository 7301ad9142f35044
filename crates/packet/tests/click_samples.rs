//! The sample configurations of Click, unchanged: each is planned and runs for a while, but for those of a kept list, which has
//! the reason of each. The samples are in `click/conf` of the folder that `FINGERPOST_DATA` names.
#![cfg(feature = "click")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use fingerpost_lpm::Prefix;
use fingerpost_packet::element::click::only::console;
use fingerpost_packet::graph::Graph;
use fingerpost_packet::language::{Around, Errors, Language, Named};
use fingerpost_packet::testing::{Bench, World, batch, frame_v4, frame_v6};
use fingerpost_packet::{ELEMENTS, Plan, Registry};
use fingerpost_route::Mac;

/// Samples that are not planned: a part of what is reported, and why that stays so.
const NOT_LOADED: &[(&str, &str, &str)] = &[
    (
        "demo.click",
        "output 1 of `udp_block` (Block) is not connected",
        "it wants Block with one output and IPRateMonitor with the arguments of 2001, which Click does not take today",
    ),
    (
        "gnat01.click",
        "ProtocolTranslator",
        "a class that Click does not have today: 64 and 46 took its place",
    ),
    (
        "gnat02.click",
        "ProtocolTranslator",
        "a class that Click does not have today: 64 and 46 took its place",
    ),
    (
        "grid.click",
        "ifdef",
        "it is an input of the macro processor m4, and of Grid, a package of its own",
    ),
    (
        "ip64-nat3.click",
        "output 0 of `nda` (IP6NDAdvertiser) is not connected",
        "it forgets an output, which Click refuses as well",
    ),
    (
        "ip6ndadvertiser02.click",
        "NDAdv",
        "a class that Click does not have today: it is IP6NDAdvertiser",
    ),
    (
        "ipsec-router.click",
        "RadixIPsecLookup",
        "IPsec by its own ciphers: not planned, the kernel has it",
    ),
    ("rewriter.click", "Rewriter", "a class that Click does not have today: it is IPRewriter"),
    (
        "simple-dsdv.click",
        "GridLocationInfo2",
        "Grid is a package of its own, of a wireless experiment",
    ),
    (
        "simple-dsdv-userlevel.click",
        "GridLocationInfo2",
        "Grid is a package of its own, of a wireless experiment",
    ),
    (
        "test-tcp.click",
        "TCPConn",
        "TCP as elements, which Click itself calls an experiment: not planned",
    ),
];

/// Samples that are planned at least.
const LEAST: usize = 37;

/// Interfaces of a host.
fn interfaces(name: &str) -> Option<Named> {
    let number: u8 = name.strip_prefix("eth")?.parse().ok()?;
    let addr = u32::from_be_bytes([10, 0, number, 1]);
    let gateway = Some(Ipv4Addr::new(10, 0, number, 254));
    let own = Some(Around { addr, prefix: Prefix::masked(addr, 24) });
    Some(Named { own, mac: Some(Mac([2, 0, 0, 0, number, 1])), gateway })
}

fn plan(name: &str, text: &str) -> Result<Plan, Errors> {
    let registry = Registry { interfaces, ..Registry::from(ELEMENTS) };
    Plan::of(&Language::new(registry.elements).read(name, text)?, registry)
}

/// Lets it run with some packets from each of its devices.
fn run(plan: &Plan) {
    let bench = &mut Bench::new(&World::new());
    let mut graph = Graph::new(plan, &bench.pool);
    let mut arp = vec![0; 60];
    arp[..22].copy_from_slice(&[
        255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 9, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1,
    ]);
    let frames = [
        frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0, 53, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]),
        frame_v4("10.0.0.9", "18.26.4.125", 64, 1, &[8, 0, 0, 0, 0, 1, 0, 1]),
        frame_v4("10.0.0.9", "10.0.0.1", 1, 6, &[0x50; 20]),
        frame_v6("3ffe:1ce1:2::1", "::18.26.4.125", 64, 17, &[0, 1, 0, 2, 0, 8, 0, 0]),
        arp,
    ];
    for round in 0..300 {
        if round % 10 == 0 {
            for port in (0..).take(plan.devices().len()).filter(|&port| plan.entry(port).is_some())
            {
                let batch = batch(&bench.pool, port, frames.iter().map(|frame| &frame[..]));
                graph.receive(port, batch, &mut bench.round());
            }
        }
        graph.poll(&mut bench.round());
        bench.now_ns += 5_000_000;
        bench.sent.frames.clear();
    }
    graph.stop(&mut bench.round());
    assert_eq!(bench.pool.free(), bench.pool.frames(), "no frame is lost");
}

#[test]
fn samples_load_and_run() {
    let Some(data) = env::var_os("FINGERPOST_DATA") else {
        return println!("skipped: needs FINGERPOST_DATA with the sample configurations of Click");
    };
    let Ok(entries) = fs::read_dir(PathBuf::from(data).join("click/conf")) else {
        return println!("skipped: needs click/conf in FINGERPOST_DATA");
    };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "click"));
    files.sort();
    console::collect();
    let (mut loaded, mut wrong) = (BTreeSet::new(), Vec::new());
    for path in &files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let known = NOT_LOADED.iter().find(|(known, ..)| *known == name);
        match (plan(&name, &fs::read_to_string(path).unwrap()), known) {
            (Ok(plan), None) => {
                run(&plan);
                loaded.insert(name);
            }
            (Ok(_), Some(_)) => {
                wrong.push(format!("{name} is planned, and on the list of those that are not"))
            }
            (Err(errors), Some((_, part, _))) if errors.to_string().contains(part) => {}
            (Err(errors), _) => wrong.push(format!("{errors}")),
        }
    }
    console::collected();
    assert!(wrong.is_empty(), "{} of {} load\n{}", loaded.len(), files.len(), wrong.join("\n"));
    assert!(loaded.len() >= LEAST, "{} of {}", loaded.len(), files.len());
    let missing =
        NOT_LOADED.iter().filter(|(name, ..)| !files.iter().any(|path| path.ends_with(name)));
    assert_eq!(missing.count(), 0);
    println!("{} of {} samples load and run", loaded.len(), files.len());
}
