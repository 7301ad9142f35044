//! Graphs in Click's language at work: between real hosts, and with a full table behind the control socket.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fingerpost_tests::click::{Telnet, ip6_router_of_two_ports, router_of_two_ports};
use fingerpost_tests::netns::{Line, Router, Star, command, exec, ip, run};
use fingerpost_tests::traffic::{Traffic, overflowed};
use fingerpost_tests::{program, quick, root, skip, tables};

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

#[test]
fn clicks_router_stands_between_two_hosts() {
    let Some(line) = Line::new(&["ping", "traceroute"]) else { return };
    // The graph has the addresses: the kernel beside it must not answer for them.
    for link in ["r0", "r1"] {
        ip(&format!("-n {} addr flush dev {link}", line.router));
    }
    let file = std::env::temp_dir().join(format!("{}.click", line.router));
    std::fs::write(&file, router_of_two_ports()).expect("the temporary folder can be written");
    let words = format!("{} --device eth0=afxdp:r0 --device eth1=afxdp:r1", file.display());
    let router = Router::begin(command, &line.router, &words);
    router.wait_for("to open its devices", |said| {
        ["eth0: ", "eth1: "].iter().all(|name| said.iter().any(|line| line.contains(name)))
    });
    run(&line.source, "ping -c 10 -i 0.05 -W 2 10.0.2.2");
    run(&line.destination, "ping -c 5 -i 0.05 -s 1400 -W 2 10.0.1.2");
    // The router itself, by the near address and by the far one.
    run(&line.source, "ping -c 2 -i 0.05 -W 2 10.0.1.1");
    run(&line.source, "ping -c 2 -i 0.05 -W 2 10.0.2.1");
    let path = run(&line.source, "traceroute -I -n -q 1 -w 2 10.0.2.2");
    let hop = |n: usize| path.lines().nth(n).unwrap_or_default().to_owned();
    assert!(hop(1).contains("10.0.1.1") && hop(2).contains("10.0.2.2"), "{path}");
    // A packet that may not be cut: the far link takes less from here on.
    let smaller = router_of_two_ports().replace("MTU 1500", "MTU 1000");
    assert!(smaller.contains("MTU 1000"), "the example has an MTU");
    let report = router.stop();
    assert!(report["packets_out"].as_u64() >= Some(34), "{report}");
    assert_eq!(report["dropped"].get("queue_full"), None, "{report}");

    std::fs::write(&file, smaller).expect("the temporary folder can be written");
    let router = Router::begin(command, &line.router, &words);
    router.wait_for("to open its devices", |said| said.iter().any(|l| l.contains("eth1: ")));
    run(&line.source, "ping -c 2 -i 0.05 -s 1400 -M dont -W 2 10.0.2.2");
    let told = exec(&line.source, "ping -c 2 -i 0.05 -s 1400 -M do -W 2 10.0.2.2");
    let told =
        String::from_utf8_lossy(&told.stdout).into_owned() + &String::from_utf8_lossy(&told.stderr);
    assert!(told.contains("mtu = 1000") || told.contains("mtu=1000"), "{told}");
    drop(router.stop());
    let _ = std::fs::remove_file(file);
}

#[test]
fn an_ipv6_router_stands_between_two_hosts() {
    let Some(line) = Line::new(&["ping", "traceroute"]) else { return };
    // The graph has the addresses: the kernel beside it must not answer for them.
    for link in ["r0", "r1"] {
        ip(&format!("-n {} addr flush dev {link}", line.router));
    }
    let file = std::env::temp_dir().join(format!("{}-6.click", line.router));
    std::fs::write(&file, ip6_router_of_two_ports()).expect("the temporary folder can be written");
    let words = format!("{} --device eth0=afxdp:r0 --device eth1=afxdp:r1", file.display());
    let router = Router::begin(command, &line.router, &words);
    router.wait_for("to open its devices", |said| {
        ["eth0: ", "eth1: "].iter().all(|name| said.iter().any(|line| line.contains(name)))
    });
    run(&line.source, "ping -6 -c 10 -i 0.05 -W 2 fd02::2");
    run(&line.destination, "ping -6 -c 5 -i 0.05 -s 1300 -W 2 fd01::2");
    // The router itself, by the near address and by the far one.
    run(&line.source, "ping -6 -c 2 -i 0.05 -W 2 fd01::1");
    run(&line.source, "ping -6 -c 2 -i 0.05 -W 2 fd02::1");
    let path = run(&line.source, "traceroute -6 -I -n -q 1 -w 2 fd02::2");
    let hop = |n: usize| path.lines().nth(n).unwrap_or_default().to_owned();
    // An error speaks from the port by which the packet would have left.
    assert!(hop(1).contains("fd02::1") && hop(2).contains("fd02::2"), "{path}");
    // The kernel has taken our advertisement for that of a router.
    let known = ip(&format!("-n {} -6 neigh show fd01::1", line.source));
    assert!(known.contains("02:00:00:00:00:01 router"), "{known}");
    let told = |words: &str| {
        let told = exec(&line.source, words);
        [told.stdout, told.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat()
    };
    let long = told("ping -6 -c 2 -i 0.05 -s 1400 -M do -W 2 fd02::2");
    assert!(long.contains("mtu = 1400") || long.contains("mtu=1400"), "{long}");
    let nobody = told("ping -6 -c 1 -W 5 fd02::77");
    assert!(nobody.contains("Address unreachable"), "{nobody}");
    let report = router.stop();
    assert!(report["packets_out"].as_u64() >= Some(38), "{report}");
    let _ = std::fs::remove_file(file);
}

#[test]
fn clicks_router_of_four_ports_stands_between_four_hosts() {
    // The addresses of the example: the hosts', and the router's on the same link.
    let addrs = [
        ("198.51.100.2", "198.51.100.1"),
        ("203.0.113.254", "203.0.113.1"),
        ("192.0.2.2", "192.0.2.1"),
        ("198.18.0.2", "198.18.0.1"),
    ];
    let Some(star) = Star::new(&["ping", "traceroute"], addrs) else { return };
    let file = root().join("examples/graphs/ip-router-4.click");
    let devices: String = (0..4).map(|i| format!(" --device eth{i}=afxdp:r{i}")).collect();
    let router = Router::begin(command, &star.router, &format!("{}{devices}", file.display()));
    router.wait_for("to open its devices", |said| {
        (0..4).all(|i| said.iter().any(|line| line.contains(&format!("eth{i}: "))))
    });
    let others = |at: usize| (0..4).filter(move |&other| other != at);
    // Every host every other, all at once: ARP in all directions as well.
    let ways: Vec<(usize, usize)> =
        (0..4).flat_map(|from| others(from).map(move |to| (from, to))).collect();
    let ping = |&(from, to): &(usize, usize)| {
        let words = format!("ping -q -c 5 -i 0.05 -W 2 {}", addrs[to].0);
        let mut ping = command(&star.hosts[from], &words);
        ping.stdout(Stdio::piped()).spawn().expect("it was found before")
    };
    let pings: Vec<Child> = ways.iter().map(ping).collect();
    for ((from, to), ping) in ways.iter().zip(pings) {
        let said = ping.wait_with_output().expect("it was started").stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains(" 0% packet loss"), "{from} to {to}: {said}");
    }
    for (at, host) in star.hosts.iter().enumerate() {
        // The router, by the near address and by those of its other ports.
        run(host, &format!("ping -c 1 -W 2 {}", addrs[at].1));
        run(host, &format!("ping -c 1 -W 2 {}", addrs[(at + 1) % 4].1));
        let to = addrs[(at + 2) % 4].0;
        let path = run(host, &format!("traceroute -I -n -q 1 -w 2 {to}"));
        let hop = |n: usize| path.lines().nth(n).unwrap_or_default().to_owned();
        assert!(hop(1).contains(addrs[at].1) && hop(2).contains(to), "{path}");
        assert_eq!(path.lines().count(), 3, "{path}");
    }
    // A TTL that ends in the router.
    let told = exec(&star.hosts[3], &format!("ping -c 1 -t 1 -W 2 {}", addrs[0].0));
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("From 198.18.0.1") && told.contains("Time to live exceeded"), "{told}");
    // The third link takes 1,280 bytes: what may be cut arrives, the sender of what may not is told.
    run(&star.hosts[0], &format!("ping -c 2 -i 0.05 -s 1400 -M dont -W 2 {}", addrs[2].0));
    let told =
        exec(&star.hosts[0], &format!("ping -c 2 -i 0.05 -s 1400 -M do -W 2 {}", addrs[2].0));
    let told =
        String::from_utf8_lossy(&told.stdout).into_owned() + &String::from_utf8_lossy(&told.stderr);
    assert!(told.contains("mtu = 1280") || told.contains("mtu=1280"), "{told}");

    let report = router.stop();
    // Each host: 15 requests out and in, and as many replies; what is asked of the router comes on top.
    let elements = report["elements"].as_array().expect("a row each");
    for class in ["FromDevice", "ToDevice"] {
        let counts: Vec<u64> = elements
            .iter()
            .filter(|element| element["class"] == class)
            .filter_map(|element| element["packets"].as_u64())
            .collect();
        assert!(counts.len() == 4 && counts.iter().all(|&n| n >= 34), "{class} {counts:?}");
    }
    // Four paths and one ping met their end, one packet was too big; nobody takes the hosts' IPv6 frames.
    let dropped = report["dropped"].as_object().expect("by reason");
    for (reason, count) in dropped {
        let most = match reason.as_str() {
            "ttl_expired" => 5,
            "too_big" => 1,
            // Replies to ARP queries end where they are learned.
            "discarded" | "consumed" => u64::MAX,
            _ => 0,
        };
        assert!(count.as_u64() <= Some(most), "{reason}: {count}: {report}");
    }
}

#[test]
fn a_configuration_is_exchanged_and_no_packet_is_lost() {
    let Some(line) = Line::new(&["ping"]) else { return };
    for link in ["r0", "r1"] {
        ip(&format!("-n {} addr flush dev {link}", line.router));
    }
    let folder = std::env::temp_dir();
    let (file, socket) = (
        folder.join(format!("{}-swap.click", line.router)),
        folder.join(format!("{}-swap.sock", line.router)),
    );
    let plain = format!("ControlSocket(UNIX, {});\n{}", socket.display(), router_of_two_ports());
    // The same with something between, and longer queues.
    let other = plain.replacen("-> rt;", "-> between :: Counter -> rt;", 1);
    let other = other.replace("Queue(200)", "Queue(500)");
    assert!(other.contains("between"), "the example leads to `rt`");
    std::fs::write(&file, &plain).expect("the temporary folder can be written");
    let words = format!("{} --device eth0=afxdp:r0 --device eth1=afxdp:r1", file.display());
    let router = Router::begin(command, &line.router, &words);
    router.wait_for("to listen", |said| said.iter().any(|l| l.contains("control socket")));
    run(&line.source, "ping -c 2 -i 0.05 -W 2 10.0.2.2");
    let mut ping = command(&line.source, "ping -q -c 300 -i 0.01 -W 2 10.0.2.2");
    let ping = ping.stdout(Stdio::piped()).spawn().expect("it was found before");
    let mut exchanged = 0;
    let client = UnixStream::connect(&socket).expect("it listens");
    let mut telnet = Telnet(BufReader::new(client));
    assert_eq!(telnet.line(), "Click::ControlSocket/1.3");
    for text in [&other, &plain].into_iter().cycle().take(10) {
        telnet.write_data("hotconfig", text);
        exchanged += 1;
        std::thread::sleep(Duration::from_millis(200));
    }
    let said = ping.wait_with_output().expect("it was started");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("300 received, 0% packet loss"), "{exchanged} exchanges: {said}");
    let report = router.stop();
    assert_eq!(report["dropped"].get("shutdown"), None, "{report}");
    let _ = std::fs::remove_file(file);
}

#[test]
fn two_workers_share_the_traffic_and_lose_none() {
    const QUEUES: u32 = 2;
    /// How often traffic is sent again where some did not come to the router.
    const TRIES: usize = 4;
    let count = |telnet: &mut Telnet<UnixStream>| -> u64 {
        telnet.read("seen.count").parse().expect("a number")
    };
    let Some(line) = Line::with_queues(&["ping", "ethtool"], [QUEUES; 2]) else { return };
    for link in ["r0", "r1"] {
        ip(&format!("-n {} addr flush dev {link}", line.router));
    }
    // No element of Click fills in a checksum that a sender leaves to a card.
    run(&line.source, "ethtool -K s0 tx off");
    // Enough flows for some to come by each queue, and to be each worker's.
    let addrs: Vec<String> = (100..148).map(|host| format!("10.0.2.{host}")).collect();
    for addr in &addrs {
        ip(&format!("-n {} addr add {addr}/32 dev d0", line.destination));
    }
    let flows: Vec<&str> = addrs.iter().map(String::as_str).collect();
    let folder = std::env::temp_dir();
    let (file, socket) = (
        folder.join(format!("{}-workers.click", line.router)),
        folder.join(format!("{}-workers.sock", line.router)),
    );
    let plain = format!("ControlSocket(UNIX, {});\n{}", socket.display(), router_of_two_ports());
    let plain = plain.replacen("-> rt;", "-> seen :: Counter -> rt;", 1);
    let other = plain.replacen("-> seen ::", "-> between :: Counter -> seen ::", 1);
    assert!(other.contains("between"), "the example leads to `rt`");
    std::fs::write(&file, &plain).expect("the temporary folder can be written");
    for (driver, workers, mode) in [
        ("afxdp", 2, "2 queues for 2 workers"),
        // The third shares the first one's queue.
        ("afxdp", 3, "2 queues for 3 workers, by flow"),
        ("af_packet", 2, "one queue for 2 workers, by flow"),
    ] {
        let words = format!(
            "{} --device eth0={driver}:r0 --device eth1={driver}:r1 --workers {workers}",
            file.display()
        );
        let router = Router::begin(command, &line.router, &words);
        router.wait_for("to listen", |said| said.iter().any(|l| l.contains("control socket")));
        assert!(router.said().iter().filter(|said| said.ends_with(mode)).count() == 2, "{mode}");
        let mut telnet = Telnet(BufReader::new(UnixStream::connect(&socket).expect("it listens")));
        assert_eq!(telnet.line(), "Click::ControlSocket/1.3");
        // Whichever worker asks for an address, all learn it.
        for addr in &addrs {
            run(&line.source, &format!("ping -c 1 -W 2 {addr}"));
        }
        let mut sent = 0;
        for attempt in 0.. {
            let before = [count(&mut telnet), overflowed(&line.destination)];
            let mut traffic = Traffic::begin(TRANSFER, &line, &flows, 2_000, 3);
            for text in [&other, &plain].into_iter().cycle() {
                if !traffic.goes_on() {
                    break;
                }
                telnet.write_data("hotconfig", text);
                std::thread::sleep(Duration::from_millis(200));
            }
            let counts = traffic.end();
            let [taken, socket_lost] =
                [count(&mut telnet) - before[0], overflowed(&line.destination) - before[1]];
            println!("{driver}, {workers} workers: {counts:?}, taken {taken}");
            assert_eq!((counts.received + socket_lost, counts.reordered), (taken, 0), "{counts:?}");
            sent += counts.sent;
            // What a busy machine loses before the router is no fault of it.
            if taken == counts.sent {
                break;
            }
            assert!(attempt < TRIES, "{taken} of {} came to the router", counts.sent);
        }
        let seen = count(&mut telnet);
        let report = router.stop();
        println!("{}", report["workers"]);
        let dropped = report["dropped"].as_object().expect("by reason");
        // Replies to ARP queries end where they are learned.
        let may_be = |reason: &String| ["discarded", "consumed"].contains(&&**reason);
        assert!(dropped.keys().all(may_be), "{report}");
        let elements = report["elements"].as_array().expect("a row each");
        let element = elements.iter().find(|row| row["name"] == "seen").expect("it has a name");
        assert!(element["packets"].as_u64() >= Some(seen), "{seen}: {report}");
        let shares = report["workers"].as_array().expect("a row each");
        let shares: Vec<u64> = shares.iter().filter_map(|row| row["packets_in"].as_u64()).collect();
        assert_eq!(
            (shares.len(), shares.iter().sum()),
            (workers, report["packets_in"].as_u64().expect("a number"))
        );
        assert!(shares.iter().all(|&share| share > sent / 100), "{shares:?}");
    }
    let _ = std::fs::remove_file(file);
}

/// A program that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether `text` has the form of `like`: the same words, with any numbers.
fn same_form(text: &str, like: &str) -> bool {
    let words = |text: &str| {
        let number = |c: char| c.is_ascii_digit() || c == '.';
        text.replace(number, " ").split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    words(text) == words(like)
}

/// Session that the authors of DXR show (2014), without its numbers.
const STAT: [&str; 8] = [
    "DXRIPLookup (D20R): 513644 prefixes, 239 unique nexthops",
    "Lookup tables: 4194304 bytes direct, 512148 bytes range (9.1 bytes/prefix)",
    "Direct table resolves 93.8% of IPv4 address space",
    "Longest range chunk contains 176 fragments",
    "Physical chunks: 40247 short, 1416 long",
    "Physical fragments: 237728 short, 9173 long",
    "Aggregated chunks: 63313 short, 1477 long",
    "Aggregated fragments: 306484 short, 9354 long",
];

#[test]
fn a_full_table_is_loaded_and_asked_by_telnet() {
    if quick() {
        return skip("time (FINGERPOST_QUICK is set)");
    }
    let Some(program) = program() else { return skip("a release build of fingerpost") };
    let routes = tables::read::<u32>(&tables::shipped().join("v4-tier1-nh496.txt.xz"));
    assert!(routes.len() > 850_000, "{} routes", routes.len());
    let mut text = String::from("ControlSocket(TCP, 0);\nrt :: DXRIPLookup(\n");
    for (prefix, hop) in &routes {
        let _ = writeln!(text, "{prefix} {},", hop.0 % 200);
    }
    text += ");\nIdle -> rt;\n";
    for output in 0..200 {
        let _ = writeln!(text, "rt[{output}] -> Discard;");
    }
    let file = std::env::temp_dir().join(format!("fingerpost-{}.click", std::process::id()));
    std::fs::write(&file, text).expect("the temporary folder can be written");
    // The best of three: the machine does other things as well.
    let mut best = Duration::MAX;
    let mut session = None;
    for _ in 0..3 {
        let start = Instant::now();
        let child = Command::new(&program)
            .arg("run")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it was built");
        let mut running = Running(child);
        let said = BufReader::new(running.0.stderr.take().expect("it is piped"));
        let place = said.lines().map_while(Result::ok).find(|line| line.contains("control socket"));
        let place = place.expect("it opens its control socket");
        let place = place.rsplit(' ').next().expect("where").to_owned();
        let mut telnet = Telnet(BufReader::new(TcpStream::connect(place).expect("it listens")));
        assert_eq!(telnet.line(), "Click::ControlSocket/1.3");
        best = best.min(start.elapsed());
        session = Some((running, telnet));
    }
    let _ = std::fs::remove_file(file);
    println!("{} routes and 200 outputs from a file: {best:?}", routes.len());
    assert!(best < Duration::from_secs(2), "{best:?}");

    let (_running, mut telnet) = session.expect("there were three");
    let stat = telnet.read("rt.stat");
    let lines: Vec<&str> = stat.lines().collect();
    for (line, like) in lines.iter().zip(STAT) {
        assert!(same_form(line, like), "{line}\n{like}");
    }
    assert!(lines[0].contains(&format!("{} prefixes", routes.len())), "{stat}");
    for (number, name) in [("0", "SEQ"), ("1", "RND"), ("2", "REP")] {
        telnet.write("rt.bench_sel", number);
        let bench = telnet.read("rt.bench");
        let mut lines = bench.lines();
        let first = lines.next().unwrap_or_default();
        assert!(first.contains(&format!("{name} test")), "{bench}");
        let second = lines.next().unwrap_or_default();
        assert!(same_form(second, "268435456 lookups in 1.4 s (190.9 M lookups/s)"), "{bench}");
    }
    // A route comes and goes.
    telnet.write("rt.add", "192.0.2.77/32 5");
    write!(telnet.0.get_mut(), "read rt.lookup 192.0.2.77\r\n").expect("it is there");
    assert_eq!([telnet.line(), telnet.line()], ["200 Read handler 'rt.lookup' OK", "DATA 1"]);
    let mut port = [0; 1];
    telnet.0.read_exact(&mut port).expect("one byte");
    assert_eq!(port, *b"5");
    telnet.write("rt.remove", "192.0.2.77/32 5");
}
