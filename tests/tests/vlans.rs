//! VLAN interfaces of the kernel on interfaces that the router takes over: drivers forward between tagged and
//! untagged links, and what they leave the kernel gets.
//!
//! ```text
//! source s0 10.0.1.2, s0.10 10.10.0.2 == r0, r0.10 router r1, r1.20 == d0, d0.20 10.20.0.2 destination
//! ```
//!
//! Veths carry tags beside the frame, where drivers' programs leave such frames to the kernel; the hosts here are
//! configured not to, as a wire would have it.

use std::time::{Duration, Instant};

use fingerpost_tests::netns::{Line, Router, await_port, conserved, exec, has_kind, ip, run};
use fingerpost_tests::patience;
use serde_json::Value;

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
/// UDP packets a second, in the one second of a [`Tagged::blast`]; fewer where the receiver would not keep up.
fn rate() -> u64 {
    if fingerpost_tests::emulated() { 200 } else { 2_000 }
}

/// A line with a VLAN on each side.
struct Tagged(Line);

impl Tagged {
    fn new() -> Option<Self> {
        let line = Line::new(&["ping", "ethtool"])?;
        if !has_kind(&line.router, "vlan") {
            return None;
        }
        let (s, r, d) = (&line.source, &line.router, &line.destination);
        for (namespace, link, id) in [(s, "s0", 10), (r, "r0", 10), (r, "r1", 20), (d, "d0", 20)] {
            ip(&format!("-n {namespace} link add link {link} name {link}.{id} type vlan id {id}"));
        }
        // Another address than that of the interface below.
        ip(&format!("-n {r} link set r1.20 address 02:00:00:00:20:01"));
        for (namespace, link, id, host) in
            [(s, "s0", 10, 2), (r, "r0", 10, 1), (r, "r1", 20, 1), (d, "d0", 20, 2)]
        {
            let dev = format!("dev {link}.{id}");
            ip(&format!("-n {namespace} addr add 10.{id}.0.{host}/24 {dev}"));
            ip(&format!("-n {namespace} addr add fd{id}::{host}/64 {dev} nodad"));
            ip(&format!("-n {namespace} link set {link}.{id} up"));
        }
        ip(&format!("-n {d} addr add 10.20.0.3/24 dev d0.20"));
        ip(&format!("-n {d} addr add fd20::3/64 dev d0.20 nodad"));
        // By the tagged link: to the other one's first address, and to the untagged link beyond.
        for (namespace, routes) in [
            (s, ["10.20.0.2/32 via 10.10.0.1", "10.0.2.0/24 via 10.10.0.1"]),
            (s, ["fd20::2/128 via fd10::1", "fd02::/64 via fd10::1"]),
            (d, ["10.10.0.0/24 via 10.20.0.1", "fd10::/64 via fd20::1"]),
        ] {
            routes.iter().for_each(|route| drop(ip(&format!("-n {namespace} route add {route}"))));
        }
        for (namespace, link, vlan) in [(s, "s0", "s0.10"), (d, "d0", "d0.20")] {
            // Takes what programs send; fills checksums; tags in the frame.
            run(namespace, &format!("ethtool -K {link} gro on tx off txvlan off"));
            run(namespace, &format!("ethtool -K {vlan} tx off"));
        }
        Some(Self(line))
    }

    /// Neighbors of all hosts are permanent: none has to be resolved through the kernel.
    fn introduce(&self) {
        let Line { source: s, router: r, destination: d, .. } = &self.0;
        for (near, link, far, peer, addrs) in [
            (r, "r0", s, "s0", &["10.0.1.2", "fd01::2"][..]),
            (r, "r0.10", s, "s0.10", &["10.10.0.2", "fd10::2"]),
            (r, "r1", d, "d0", &["10.0.2.2", "fd02::2"]),
            (r, "r1.20", d, "d0.20", &["10.20.0.2", "10.20.0.3", "fd20::2", "fd20::3"]),
        ] {
            let mac = run(far, &format!("cat /sys/class/net/{peer}/address"));
            for addr in addrs {
                let mac = mac.trim();
                ip(&format!(
                    "-n {near} neigh replace {addr} lladdr {mac} dev {link} nud permanent"
                ));
            }
        }
    }

    fn start(&self) -> Router {
        let router = Router::start(&self.0.router, "--path xdp", 2);
        // Drivers are asked what they take four times a second.
        std::thread::sleep(Duration::from_millis(600));
        router
    }

    /// Numbered packets to an address of the destination, of which none may be missing: how many there were.
    fn blast(&self, addr: &str) -> u64 {
        let to = if addr.contains(':') { format!("[{addr}]:7200") } else { format!("{addr}:7200") };
        let longest = patience(Duration::from_secs(20)).as_secs();
        let listen = format!("{TRANSFER} count {to} 1 {longest}");
        let receiver = fingerpost_tests::netns::command(&self.0.destination, &listen)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it is built");
        // What comes before it listens would be missing.
        await_port(&self.0.destination, 7200);
        let sent = run(&self.0.source, &format!("{TRANSFER} blast {to} {} 1", rate()));
        let received = receiver.wait_with_output().expect("it was started");
        let received = String::from_utf8_lossy(&received.stdout).into_owned();
        let sent: u64 = sent.trim().strip_prefix("sent ").expect("its line").parse().expect("one");
        let whole = format!("received {sent} missing 0 ");
        assert!(received.starts_with(&whole), "{addr}: {received} of {sent}");
        sent
    }
}

/// Description of an interface.
fn shown(router: &Router, name: &str) -> Value {
    let rows: Vec<Value> = router.ask("interface show");
    rows.into_iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

fn received(router: &Router, name: &str) -> u64 {
    shown(router, name)["rx_packets"].as_u64().expect("a number")
}

/// The kernel forwards nothing here, so drivers did: tagged to tagged, to untagged, and from untagged.
#[test]
fn drivers_forward_between_vlans() {
    let Some(line) = Tagged::new() else { return };
    line.introduce();
    let router = line.start();
    for (name, way) in [("r0.10", "r0, tag 10"), ("r1.20", "r1, tag 20")] {
        let row = shown(&router, name);
        let mode = format!("IPv4 and IPv6 forwarded in XDP on {way}, the rest by the kernel");
        assert_eq!((&row["path"], &row["mode"]), (&"xdp".into(), &Value::from(mode)), "{row}");
    }
    // To where, the link it comes by, the one its answers come by.
    let ways = [
        ("10.20.0.2", "r0.10", "r1.20"),
        ("fd20::2", "r0.10", "r1.20"),
        ("10.0.2.2", "r0.10", "r1.20"),
        ("fd02::2", "r0.10", "r1.20"),
        ("10.20.0.3", "r0", "r1"),
        ("fd20::3", "r0", "r1"),
    ];
    for (addr, by, back) in ways {
        let before = (received(&router, by), received(&router, back));
        run(&line.0.source, &format!("ping -c 5 -i 0.1 -W 2 {addr}"));
        // The largest packet; with its tag, the largest frame.
        let most = if addr.contains(':') { 1452 } else { 1472 };
        run(&line.0.source, &format!("ping -c 2 -i 0.1 -W 2 -M do -s {most} {addr}"));
        let sent = line.blast(addr);
        let after = (received(&router, by), received(&router, back));
        assert!(
            after.0 >= before.0 + sent + 7,
            "{addr} by {by}: {before:?} {after:?}, {sent} sent"
        );
        assert!(after.1 >= before.1 + 7, "{addr} back by {back}: {before:?} {after:?}");
    }
    let answer: Value = router.ask("route get 10.20.0.2 --explain");
    assert_eq!(answer["adjacency"]["interface"], "r1.20", "{answer}");
    let driver = &answer["drivers"][0];
    let seen = (&driver["does"], &driver["adjacency"]["interface"]);
    assert_eq!(seen, (&"forward".into(), &"r1.20".into()), "{answer}");
    let by = driver["interfaces"].as_array().expect("a list");
    assert!(by.contains(&"r0".into()) && by.contains(&"r0.10".into()), "{driver}");
    let rows: Vec<Value> = router.ask("interface show");
    let all: u64 = rows.iter().filter_map(|row| row["rx_packets"].as_u64()).sum();
    let report = router.stop();
    conserved(&report);
    assert_eq!(report["packets_in"], all, "{rows:#?}");
    assert!(report["forwarded_xdp"].as_u64() >= Some(6 * rate() / 2), "{report}");
}

/// What drivers leave alone arrives too: tagged the kernel forwards it, untagged the graph.
#[test]
fn what_drivers_leave_is_not_lost() {
    let Some(line) = Tagged::new() else { return };
    line.0.kernel_forwards(true);
    let router = line.start();
    let Line { source, router: namespace, destination, .. } = &line.0;
    // Neighbors that nobody knows yet.
    for addr in ["10.20.0.2", "fd20::2", "10.0.2.2", "fd02::2", "10.20.0.3", "fd20::3"] {
        run(source, &format!("ping -c 4 -i 0.2 -W 2 {addr}"));
    }
    let before = received(&router, "r0.10");
    run(source, "ping -c 4 -i 0.2 -W 2 10.20.0.2");
    assert!(received(&router, "r0.10") >= before + 4, "in the driver once they are known");
    // Whom to tell that the time is up: the VLAN interface answers.
    let told = exec(source, "ping -c 1 -W 2 -t 1 10.20.0.2");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("From 10.10.0.1"), "{told}");
    // Options, by the graph out of the VLAN interface.
    let before = shown(&router, "r1.20")["tx_packets"].as_u64();
    run(source, "ping -c 3 -i 0.2 -W 2 -R 10.20.0.3");
    assert!(shown(&router, "r1.20")["tx_packets"].as_u64() >= before.map(|n| n + 3));
    // The same, tagged, by the kernel.
    run(source, "ping -c 3 -i 0.2 -W 2 -R 10.20.0.2");
    // A tag beside the frame is not for programs.
    let (tagged, untagged) = (received(&router, "r0.10"), received(&router, "r0"));
    run(source, "ethtool -K s0 txvlan on");
    run(source, "ping -c 4 -i 0.2 -W 2 10.20.0.2");
    run(source, "ethtool -K s0 txvlan off");
    assert_eq!((received(&router, "r0.10"), received(&router, "r0")), (tagged, untagged));

    // While it runs others come, and one goes.
    ip(&format!("-n {namespace} link add link r0 name r0.30 type vlan id 30"));
    ip(&format!("-n {namespace} link add link r0 name r0.40 type vlan id 40 egress-qos-map 0:5"));
    ip(&format!("-n {namespace} link add link r0 name r0.50 type vlan proto 802.1ad id 50"));
    ip(&format!("-n {namespace} link add link r0.10 name deep type vlan id 7"));
    for (name, said) in [
        ("r0.30", "r0.30: forwarded in XDP on r0, tag 30, else by the kernel"),
        ("r0.40", "r0.40 stays with the kernel: it maps priorities"),
        ("r0.50", "r0.50 stays with the kernel: its tags are of type 0x88a8, not 0x8100"),
        ("deep", "deep stays with the kernel: r0.10 stays with the kernel: a vlan has no frames"),
    ] {
        ip(&format!("-n {namespace} link set {name} up"));
        router.wait_for(said, |lines| lines.iter().any(|line| line.contains(said)));
        let path = if name == "r0.30" { "xdp" } else { "kernel" };
        let row = shown(&router, name);
        assert_eq!(row["path"], path, "{row}");
    }
    ip(&format!("-n {namespace} addr add 10.30.0.1/24 dev r0.30"));
    ip(&format!("-n {source} link add link s0 name s0.30 type vlan id 30"));
    ip(&format!("-n {source} addr add 10.30.0.2/24 dev s0.30"));
    ip(&format!("-n {source} link set s0.30 up"));
    ip(&format!("-n {destination} route add 10.30.0.0/24 via 10.20.0.1"));
    let until = Instant::now() + patience(Duration::from_secs(3));
    loop {
        let before = received(&router, "r1.20");
        run(source, "ping -c 6 -i 0.2 -W 2 -I 10.30.0.2 10.20.0.2");
        if received(&router, "r1.20") >= before + 4 {
            break;
        }
        assert!(Instant::now() < until, "answers to a VLAN that came later");
    }
    ip(&format!("-n {namespace} link del r0.30"));
    router
        .wait_for("r0.30: closed", |lines| lines.iter().any(|line| line.contains("r0.30: closed")));
    run(source, "ping -c 2 -i 0.2 -W 2 10.20.0.2");
    let report = router.stop();
    conserved(&report);
    let left = &report["left_xdp"];
    assert!(left["options"].as_u64() >= Some(6) && left["expired"].as_u64() >= Some(1), "{report}");
}
