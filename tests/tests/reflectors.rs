//! Routes of a cluster by iBGP: two of four nodes are FRR route reflectors, and the sessions cross the fabric.
//!
//! A BIRD behind each node announces a quarter of a table by a session with the node before, so by a port of another node. The
//! nodes keep the next hop as it is, and find the node that it is behind by connected prefixes. Then every host sends to addresses
//! of the table behind every other one, half of the packets over a third node, and each frame that arrives is compared with what it
//! must be, byte by byte (`src/bin/exact.rs`). `cargo xtask soak reflectors` announces a whole Internet table.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fingerpost_lpm::{Prefix, Rng};
use fingerpost_tests::bird::{Bird, speaker};
use fingerpost_tests::frr::Frr;
use fingerpost_tests::netns::{Router, command, run};
use fingerpost_tests::rack::{Built, Rack, packets, wait_for_links};
use fingerpost_tests::traffic::own_every_address;
use fingerpost_tests::{skip, soak, tables};

/// Sender and receiver of frames that are compared byte by byte.
const EXACT: &str = env!("CARGO_BIN_EXE_exact");

/// Half of the packets take a third node. A train of packets of a flow takes one path, however long a busy machine delays it.
const KEYS: &str = "rule = \"vlb\"\nflowlet_ms = 50";

/// How many nodes, with a host each.
const NODES: usize = 4;

/// Internet table of the soak.
const TABLE: &str = "v4-tier1-nh496.txt.xz";

/// Flows from each host to each other one, each to the first address of a prefix chosen at random.
const FLOWS: usize = 100;

/// Packets a second of each host, and for how many seconds.
const RATE: u64 = 1_000;
const SECONDS: u64 = 5;

/// Prefixes that the rack uses itself.
const OWN: [&str; 3] = ["10.0.0.0/8", "192.0.2.0/24", "127.0.0.0/8"];

/// bgpd of a node: sessions to the two reflectors, nodes 1 and 2, and one with AS 65100 at `outside`. Next hops stay as they
/// are: each node finds the one that they are behind by its connected prefixes. BIRD alone connects: of two connections that
/// meet, each end may close the other's.
fn bgpd(node: usize, nodes: usize, outside: &str) -> String {
    let mut text = format!(
        "router bgp 65000\n bgp router-id 192.0.2.{node}\n no bgp ebgp-requires-policy\n timers bgp 1 30\n \
         neighbor {outside} remote-as 65100\n neighbor {outside} ebgp-multihop 4\n \
         neighbor {outside} update-source 192.0.2.{node}\n neighbor {outside} passive\n"
    );
    let reflects = node <= 2;
    let peers: Vec<usize> =
        (1..=nodes).filter(|&peer| peer != node && (reflects || peer <= 2)).collect();
    for peer in &peers {
        text += &format!(
            " neighbor 192.0.2.{peer} remote-as 65000\n neighbor 192.0.2.{peer} update-source 192.0.2.{node}\n"
        );
    }
    text += " address-family ipv4 unicast\n  redistribute connected route-map outside\n";
    for peer in &peers {
        if reflects && *peer > 2 {
            text += &format!("  neighbor 192.0.2.{peer} route-reflector-client\n");
        }
    }
    text + " exit-address-family\nroute-map outside permit 10\n match interface x0\n"
}

/// Prefixes that the speaker announces: some thousand, or those of an Internet table.
fn prefixes() -> Option<Vec<Prefix<u32>>> {
    if soak(Duration::ZERO).is_zero() {
        let made = (0..2_000).map(|i| Prefix::masked((100 << 24 | 64 << 16) + (i << 8), 24));
        return Some(made.collect());
    }
    let path = tables::data().join(TABLE);
    if !path.exists() {
        skip(TABLE);
        return None;
    }
    let own = OWN.map(|own| own.parse::<Prefix<u32>>().expect("a prefix"));
    let apart = |prefix: &Prefix<u32>| {
        prefix.len() > 0
            && own.iter().all(|own| !own.contains(prefix.addr()) && !prefix.contains(own.addr()))
    };
    let table = tables::read::<u32>(&path);
    Some(table.into_iter().map(|(prefix, _)| prefix).filter(apart).collect())
}

/// Prefixes of the routes that a node has from the kernel, as text.
fn known(router: &Router) -> HashSet<String> {
    #[derive(serde::Deserialize)]
    struct Row {
        prefix: String,
    }
    let rows: Vec<Row> = router.ask_lines("route show");
    rows.into_iter().map(|row| row.prefix).collect()
}

/// Host that a prefix is behind.
fn host_of(at: usize) -> usize {
    at % NODES
}

/// Address of the host behind a node.
fn host_addr(node: usize) -> String {
    format!("10.{}.0.2", node + 1)
}

/// BIRD's configuration at a host: its quarter of the table, to the node before.
fn announcer(host: usize, prefixes: &[Prefix<u32>]) -> String {
    let quarter = prefixes.iter().enumerate().filter(|(at, _)| host_of(*at) == host);
    let own = host_addr(host);
    let node = format!("192.0.2.{}", (host + NODES - 1) % NODES + 1);
    speaker(quarter.map(|(_, prefix)| prefix.to_string()), &[(&own, &node)])
        .replace("router id 10.255.0.2", &format!("router id {own}"))
        .replace("as 65001", "as 65100")
        .replace("connect retry time 1;", "multihop; connect retry time 1;")
}

/// Flows between all hosts, a line each, as `exact` reads them: to addresses whose longest prefix is behind the other host.
fn flows(prefixes: &[Prefix<u32>]) -> String {
    let known: HashMap<Prefix<u32>, usize> =
        prefixes.iter().enumerate().map(|(at, prefix)| (*prefix, host_of(at))).collect();
    let behind = |addr: u32| {
        let mut lengths = (1..=32).rev();
        lengths.find_map(|len| known.get(&Prefix::masked(addr, len)).copied())
    };
    let mut addrs = vec![Vec::new(); NODES];
    let mut rng = Rng::new(0xfee1);
    while addrs.iter().any(|addrs| addrs.len() < FLOWS * (NODES - 1)) {
        let addr = prefixes[rng.below(prefixes.len())].addr() | 1;
        addrs[behind(addr).expect("it is in a prefix")].push(addr);
    }
    let mut text = String::new();
    for (to, addrs) in addrs.iter().enumerate() {
        let others = (0..NODES).filter(|&from| from != to);
        for (from, addrs) in others.zip(addrs.chunks(FLOWS)) {
            for addr in addrs {
                let (src, dst) = (host_addr(from), Ipv4Addr::from(*addr));
                writeln!(text, "{from} {to} {src} {dst}").expect("text");
            }
        }
    }
    text
}

/// Sends the flows of a file from all hosts at once, and checks what arrives at each.
fn any_to_any(rack: &Rack, routers: &[Router], file: &Path) {
    let file = file.display();
    let start = |host: usize, what: &str, more: &str| -> Child {
        let (place, words) = (&rack.places[host], format!("{EXACT} {what} h0"));
        let router = run(&place.namespace, "cat /sys/class/net/x0/address");
        let words = format!("{words} {} {file} {host} {more}", router.trim());
        let mut command = command(&place.hosts[0], &words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().expect("the helper is built with the tests")
    };
    let mut receivers: Vec<(Child, _)> = (0..NODES)
        .map(|host| {
            let mut child = start(host, "check", &(SECONDS + 20).to_string());
            let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
            let mut line = String::new();
            said.read_line(&mut line).expect("text");
            assert_eq!(line, "ready\n");
            (child, said)
        })
        .collect();
    let senders: Vec<Child> =
        (0..NODES).map(|host| start(host, "send", &format!("{RATE} {SECONDS}"))).collect();
    let mut sent = 0;
    for sender in senders {
        let said = sender.wait_with_output().expect("it was started").stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        sent += said.trim().strip_prefix("sent ").and_then(|n| n.parse::<u64>().ok()).expect(&said);
    }
    let (mut received, mut missed) = (0, 0);
    for (child, said) in &mut receivers {
        // It ends once its input is closed and nothing comes any more.
        drop(child.stdin.take());
        let mut line = String::new();
        said.read_to_string(&mut line).expect("text");
        let words: Vec<&str> = line.split_whitespace().collect();
        received += words[1].parse::<u64>().expect("a count");
        missed += words[3].parse::<u64>().expect("a count");
        let rest = ["twice", "0", "reordered", "0", "sequences", "0", "wrong", "0"];
        assert_eq!(words.get(4..12), Some(&rest[..]), "{line}");
        child.wait().expect("it was started");
    }
    let flows = NODES * (NODES - 1) * FLOWS;
    println!("{received} of {sent} packets of {flows} flows, {missed} missed by who checks");
    assert!(sent >= NODES as u64 * RATE * SECONDS * 9 / 10, "{sent}");
    assert!(received <= sent && received + missed >= sent, "{}", rack.faults(routers));
    assert!(missed * 100 < sent, "{missed}");
}

#[test]
fn routes_come_by_route_reflectors_over_the_fabric() {
    let Some(prefixes) = prefixes() else { return };
    let built = Built { keys: KEYS.to_owned(), ..Built::of(NODES) };
    let Some(rack) = Rack::new(&["bird"], built) else { return };
    // Routes that the test makes itself would be in FRR's way.
    let routers: Vec<Router> = (0..NODES).map(|node| rack.start_with(node, NODES)).collect();
    let mut reflected = Vec::new();
    for (i, place) in rack.places.iter().enumerate() {
        let config = bgpd(i + 1, NODES, &host_addr((i + 1) % NODES));
        let Some(frr) = Frr::start(&place.namespace, "", &[("bgpd", &config, &[])]) else { return };
        reflected.push(frr);
    }
    let began = Instant::now();
    let hosts = rack.places.iter().enumerate();
    let _birds: Vec<Bird> = hosts
        .map(|(host, place)| Bird::start(&place.hosts[0], &announcer(host, &prefixes)))
        .collect();
    // The prefixes, and what is connected to the three other nodes.
    let longest = Duration::from_secs(60).max(soak(Duration::ZERO));
    for frr in &reflected {
        frr.wait_for_routes("bgp", prefixes.len() + NODES - 1, longest);
    }
    println!(
        "{} prefixes in four kernels after {:.1} s",
        prefixes.len(),
        began.elapsed().as_secs_f64()
    );
    for (router, place) in routers.iter().zip(&rack.places) {
        every_prefix_is_there(router, &place.id, &prefixes, longest);
    }
    println!("in four routers after {:.1} s", began.elapsed().as_secs_f64());

    for place in &rack.places {
        own_every_address(&place.hosts[0], "h0");
    }
    routers.iter().for_each(wait_for_links);
    let file = std::env::temp_dir().join(format!("{}.flows", rack.switch));
    std::fs::write(&file, flows(&prefixes)).expect("the temporary folder");
    any_to_any(&rack, &routers, &file);
    let _ = std::fs::remove_file(&file);
    let over_others = routers.iter().map(|router| packets(router, "transit")).sum::<u64>();
    println!("{over_others} over a third node");
    assert!(over_others > NODES as u64 * RATE * SECONDS / 3, "{over_others}");
}

/// Waits until a node has all prefixes.
fn every_prefix_is_there(router: &Router, id: &str, prefixes: &[Prefix<u32>], longest: Duration) {
    let until = Instant::now() + longest;
    loop {
        let known = known(router);
        let missing = prefixes.iter().filter(|prefix| !known.contains(&prefix.to_string())).count();
        if missing == 0 {
            return;
        }
        assert!(Instant::now() < until, "{id} misses {missing} of {} prefixes", prefixes.len());
        std::thread::sleep(Duration::from_millis(100));
    }
}
