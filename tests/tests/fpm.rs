//! Routes of FRR's zebra by FPM: every route compared with zebra's own, restarts, withdrawals, and acknowledgements.
//!
//! With FRR where it is installed, in namespaces; and with recorded or made frames over a Unix socket, where the test
//! plays zebra.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fingerpost_route::netlink;
use fingerpost_tests::bird::{self, Bird};
use fingerpost_tests::configuration::Configuration;
use fingerpost_tests::frr::Frr;
use fingerpost_tests::netns::{Line, Router, ip, run};
use fingerpost_tests::traffic::{own_every_address, to_random};
use fingerpost_tests::{patience, skip, soak, tables, zebra};
use serde_json::Value;

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

const MODULE: &[&str] = &["-M", "dplane_fpm_nl"];
/// Routes of BGP in the tests; a soak has the whole table.
const ROUTES: usize = 50_000;
/// Longest time until routes are the router's after an event.
const LONGEST: Duration = Duration::from_secs(120);

/// One at a time: each waits for silences.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Lab {
    line: Line,
    router: Router,
    _config: Configuration,
}

impl Lab {
    /// A router with these sources.
    fn new(line: Line, sources: &str) -> Self {
        ip(&format!("-n {} link set lo up", line.router));
        let config = Configuration::new(&line.router, sources);
        let words = format!("{} --path graph", config.path().display());
        let router = Router::start(&line.router, &words, 2);
        Self { line, router, _config: config }
    }

    /// The row of a source.
    fn source(&self, name: &str) -> Value {
        self.router.source(name)
    }

    fn wait_for(&self, what: &str, done: impl Fn() -> bool) {
        let until = Instant::now() + patience(LONGEST.max(soak(Duration::ZERO)));
        while !done() {
            let sources: Value = self.router.ask("source show");
            let said = self.router.said();
            assert!(Instant::now() < until, "{what}: {sources} {said:#?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits for the end of the table in so many sessions of zebra.
    fn wait_for_table(&self, sessions: u64) {
        self.wait_for("a complete table", || {
            let fpm = self.source("fpm");
            fpm["sessions"] == sessions && fpm["in_sync"] == true
        });
    }
}

const BGPD: &str = "router bgp 65000\n bgp router-id 10.255.0.1\n no bgp ebgp-requires-policy\n \
     neighbor 10.0.2.2 remote-as 65001\n neighbor 10.0.2.2 timers connect 1\n \
     neighbor fd02::2 remote-as 65001\n neighbor fd02::2 timers connect 1\n \
     address-family ipv4 unicast\n  no neighbor fd02::2 activate\n exit-address-family\n \
     address-family ipv6 unicast\n  neighbor fd02::2 activate\n exit-address-family\n";

fn speaker(line: &Line, prefixes: &[String]) -> Bird {
    let sessions = [("10.0.2.2", "10.0.2.1"), ("fd02::2", "fd02::1")];
    Bird::start(&line.destination, &bird::speaker(prefixes.iter().cloned(), &sessions))
}

/// Bgpd learns a table, zebra sends it; zebra and the neighbor are killed, and the table changes meanwhile.
#[test]
fn a_table_of_bgpd_by_zebra() {
    let _alone = alone();
    let Some(line) = Line::new(&["bird", "birdc"]) else { return };
    let of_soak = !soak(Duration::ZERO).is_zero();
    let [v4, v6, flows] =
        if of_soak { [usize::MAX, usize::MAX, 5_000] } else { [ROUTES * 4 / 5, ROUTES / 5, 250] };
    let all = zebra::mixed(zebra::announced(v4), zebra::announced6(v6));
    let tenth = all.len() / 10;
    let mut neighbor = speaker(&line, &all[tenth..]);
    let zebra = "fpm address 127.0.0.1 port 2620\n";
    let options: &[&str] = &["-p", "179"];
    let sources = "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fpm\"\nsweep_s = 10\n";
    let lab = Lab::new(line, sources);
    let Some(mut frr) =
        Frr::start_with(&lab.line.router, (zebra, MODULE), &[("bgpd", BGPD, options)])
    else {
        return;
    };
    let began = Instant::now();
    let of_fpm = |count: usize| lab.source("fpm")["routes"] == count as u64;
    lab.wait_for("a first route", || !of_fpm(0));
    let first = began.elapsed().as_secs_f64();
    lab.wait_for("all routes", || of_fpm(all.len() - tenth));
    let last = began.elapsed().as_secs_f64();
    println!("{} routes in {last:.1} s, the first after {first:.1} s", all.len() - tenth);
    // Zebra sets them in the kernel as well.
    let in_kernel = |version: u8| {
        let rows = run(&lab.line.router, &format!("ip -{version} -o route show proto 186"));
        rows.lines().count()
    };
    lab.wait_for("all routes in the kernel", || in_kernel(4) + in_kernel(6) == all.len() - tenth);
    println!("in the kernel in {:.1} s", began.elapsed().as_secs_f64());
    lab.wait_for_table(1);
    assert_eq!(zebra::compare(&lab.router, &frr), all.len() - tenth);
    own_every_address(&lab.line.destination, "d0");
    let (hosts4, hosts6) = zebra::hosts(&all[tenth..]);
    let between = [lab.line.source.as_str(), lab.line.destination.as_str()];
    to_random(TRANSFER, between, &hosts4, flows);
    to_random(TRANSFER, between, &hosts6, flows);
    println!("{} random destinations were reached", 2 * flows);
    // They do not count there.
    let of_kernel = || lab.source("kernel")["routes"].as_u64().expect("a number");
    lab.wait_for("no routes of zebra by the kernel", || of_kernel() < 100);
    // Zebra 8.4 sends routes that change while a session begins before it sends the next-hop objects that were there already,
    // and sends these routes again with its whole table.
    let source = lab.source("fpm");
    let said = source["last_error"].as_str().unwrap_or_default();
    assert!(source["errors"] == 0 || said.contains("next-hop object"), "{source}");

    // All is withdrawn, and comes back.
    neighbor.kill();
    drop(neighbor);
    lab.wait_for("no routes", || of_fpm(0));
    let mut neighbor = speaker(&lab.line, &all[tenth..]);
    lab.wait_for("all routes again", || of_fpm(all.len() - tenth));
    assert_eq!(zebra::compare(&lab.router, &frr), all.len() - tenth);
    assert_eq!(lab.source("fpm")["errors"], source["errors"], "{}", lab.source("fpm"));

    // Zebra is gone: its routes stay, and those that it left in the kernel count again.
    // In this order, as zebra withdraws the routes of a bgpd that is gone.
    frr.kill("zebra");
    frr.kill("bgpd");
    lab.wait_for("the kernel's routes", || of_kernel() > tenth as u64);
    assert!(of_fpm(all.len() - tenth) && lab.source("fpm")["in_sync"] == false);
    // Meanwhile the neighbor has lost a tenth of its routes and has another one. What zebra left in the kernel goes, as
    // it would take that for routes of bgpd again (FRR 8.4).
    neighbor.kill();
    drop(neighbor);
    let mut neighbor = speaker(&lab.line, &all[..all.len() - tenth]);
    ip(&format!("-n {} nexthop flush", lab.line.router));
    // As watchfrr does: bgpd would not send all to a zebra that it finds again.
    frr.restart("zebra", zebra, MODULE);
    frr.restart("bgpd", BGPD, options);
    lab.wait_for_table(2);
    assert_eq!(zebra::compare(&lab.router, &frr), all.len() - tenth);
    lab.wait_for("no routes of zebra by the kernel", || of_kernel() < 100);
    assert_eq!(lab.source("fpm")["resyncs"], 1);
    neighbor.kill();
    lab.wait_for("no routes", || of_fpm(0));
    // It fails where it finds a difference.
    let _: Value = lab.router.ask("fib verify");
    drop(frr);
    lab.router.stop();
}

/// Static routes of every form, with next-hop objects and without.
#[test]
fn static_routes_of_zebra_in_both_forms() {
    let _alone = alone();
    for with_objects in [true, false] {
        let Some(line) = Line::new(&[]) else { return };
        let lab = Lab::new(
            line,
            "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fpm\"\nsweep_s = 2\n",
        );
        let groups = if with_objects { "" } else { "no fpm use-next-hop-groups\n" };
        let zebra = format!("{groups}fpm address 127.0.0.1 port 2620\n");
        let routes = "ip route 192.0.2.0/24 10.0.2.2\n\
            ip route 198.51.100.0/24 10.0.1.2\nip route 198.51.100.0/24 10.0.2.2\n\
            ip route 203.0.113.0/24 blackhole\nip route 100.64.0.0/10 reject\n\
            ip route 198.18.0.0/15 r1\nip route 192.0.3.0/24 192.0.2.9\n\
            ipv6 route 2001:db8:1::/48 fd02::2\n\
            ipv6 route 2001:db8:2::/48 fd01::2\nipv6 route 2001:db8:2::/48 fd02::2\n";
        let Some(frr) =
            Frr::start_with(&lab.line.router, (&zebra, MODULE), &[("staticd", routes, &[])])
        else {
            return;
        };
        lab.wait_for_table(1);
        lab.wait_for("static routes", || lab.source("fpm")["routes"] == 8);
        assert_eq!(zebra::compare(&lab.router, &frr), 8);
        // At the begin of a session FRR 8.4 sends the tables of VRFs, and routes of others as they come.
        frr.vtysh(&["conf t", "ip route 192.0.2.0/24 10.0.1.2 table 100"]);
        lab.wait_for("a route of table 100", || lab.source("fpm")["routes"] == 9);
        assert_eq!(zebra::compare(&lab.router, &frr), 9);
        let by_object: Vec<Value> = lab.router.ask_lines("route show --source fpm");
        let objects = by_object.iter().filter(|row| row["kind"] == "object").count();
        assert_eq!(objects > 0, with_objects);
        // Less, more and others; a group that becomes one next hop.
        frr.vtysh(&[
            "conf t",
            "no ip route 198.51.100.0/24 10.0.1.2",
            "no ip route 203.0.113.0/24 blackhole",
            "ip route 203.0.113.0/25 10.0.1.2",
            "no ip route 192.0.2.0/24 10.0.2.2",
            "ip route 192.0.2.0/24 10.0.1.2",
            "ipv6 route 2001:db8:1::/48 fd01::2",
        ]);
        zebra::compare(&lab.router, &frr);
        let said = lab.router.said();
        assert_eq!(lab.source("fpm")["errors"], 0, "{said:?}");
        // FRR 8.4 reads acknowledgements and ignores them; none may make it close the session.
        assert_eq!(lab.source("fpm")["sessions"], 1, "{said:?}");
        drop(frr);
        lab.router.stop();
    }
}

/// A frame that adds `10.N.M.0/24`, dropping its packets.
fn made(n: usize) -> Vec<u8> {
    let [.., high, low] = u32::try_from(n).expect("a small number").to_be_bytes();
    let message = netlink::Request::query(24, 0x500, 0)
        .fixed(&[2, 24, 0, 0, 254, 186, 0, 6, 0, 0, 0, 0])
        .attr(1, &[10, high, low, 0])
        .attr(6, &20_u32.to_ne_bytes())
        .finish();
    let len = u16::try_from(4 + message.len()).expect("a short message");
    [&[1, 1][..], &len.to_be_bytes(), &message].concat()
}

/// Zebra marks the routes that are acknowledged, for `bgp suppress-fib-pending`.
#[test]
fn zebra_marks_routes_that_readers_see() {
    let _alone = alone();
    if Frr::version().is_some_and(|version| version < (8, 5)) {
        skip("FRR 8.5, which reads acknowledgements");
        return;
    }
    let Some(line) = Line::new(&[]) else { return };
    let lab =
        Lab::new(line, "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fpm\"\nsweep_s = 2\n");
    let zebra = "fpm address 127.0.0.1 port 2620\n";
    let options: &[&str] = &["-M", "dplane_fpm_nl", "--asic-offload=notify_on_offload"];
    let routes = "ip route 192.0.2.0/24 10.0.2.2\nipv6 route 2001:db8:1::/48 fd02::2\n";
    let Some(frr) =
        Frr::start_with(&lab.line.router, (zebra, options), &[("staticd", routes, &[])])
    else {
        return;
    };
    for words in ["show ip route 192.0.2.0/24 json", "show ipv6 route 2001:db8:1::/48 json"] {
        lab.wait_for(words, || frr.vtysh(&[words]).contains("\"offloaded\":true"));
    }
}

/// A peer that loses its power leaves its connection open, and is back before anyone has noticed.
#[test]
fn a_peer_that_lost_its_power_has_its_seat_at_once() {
    const SOURCE: &str = "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fpm\"\n\
                          listen = \"10.0.2.1:2620\"\nremote = true\nsweep_s = 2\n";
    let _alone = alone();
    let Some(line) = Line::new(&["bash"]) else { return };
    let lab = Lab::new(line, SOURCE);
    let namespace = &lab.line.destination;
    let frames = std::env::temp_dir().join(format!("{namespace}-frames"));
    // It does not read: what is left in its socket when it is killed makes its kernel send a reset, once.
    let connect = |routes: std::ops::Range<usize>| {
        std::fs::write(&frames, routes.flat_map(made).collect::<Vec<u8>>()).expect("a file");
        let script = format!(
            "exec 3<>/dev/tcp/10.0.2.1/2620; cat {} >&3; exec sleep 1000",
            frames.display()
        );
        std::process::Command::new("ip")
            .args(["netns", "exec", namespace, "bash", "-c", &script])
            .spawn()
            .expect("ip was found before")
    };
    let mut peer = connect(0..3);
    lab.wait_for_table(1);
    std::thread::sleep(Duration::from_secs(1));
    ip(&format!("-n {namespace} link set d0 down"));
    peer.kill().and_then(|()| peer.wait()).expect("it was started");
    ip(&format!("-n {namespace} link set d0 up"));
    let mut peer = connect(2..5);
    lab.wait_for_table(2);
    let all: Vec<Value> = lab.router.ask("source show");
    let names: Vec<&str> = all.iter().filter_map(|source| source["name"].as_str()).collect();
    assert!(!names.contains(&"fpm-2"), "{names:?} {:#?}", lab.router.said());
    lab.wait_for("the routes that were not sent again", || lab.source("fpm")["routes"] == 3);
    // A second peer at the address, beside one that is there, has a seat of its own.
    let mut second = connect(7..8);
    lab.wait_for("a second seat", || lab.source("fpm-2")["routes"] == 1);
    assert_eq!(lab.source("fpm")["in_sync"], true, "{:#?}", lab.router.said());
    for child in [&mut peer, &mut second] {
        child.kill().and_then(|()| child.wait()).expect("it was started");
    }
    std::fs::remove_file(&frames).expect("it was written");
    lab.router.stop();
}

/// Two daemons at one address of which the first one sends all the time, and nothing is sent to it: the kernel probes no such
/// connection.
#[test]
fn a_peer_that_sends_keeps_its_seat_beside_another_one() {
    const SOURCE: &str = "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fpm\"\n\
                          listen = \"10.0.2.1:2620\"\nremote = true\nacknowledge = false\nsweep_s = 1\n";
    let _alone = alone();
    let Some(line) = Line::new(&["bash"]) else { return };
    let lab = Lab::new(line, SOURCE);
    let namespace = &lab.line.destination;
    let files = [0, 1].map(|n| std::env::temp_dir().join(format!("{namespace}-peer-{n}")));
    let connect = |n: usize| {
        std::fs::write(&files[n], made(n)).expect("a file");
        let script = format!(
            "exec 3<>/dev/tcp/10.0.2.1/2620; while cat {} >&3; do sleep 0.2; done",
            files[n].display()
        );
        let mut command = std::process::Command::new("ip");
        command.args(["netns", "exec", namespace, "bash", "-c", &script]);
        command.spawn().expect("ip was found before")
    };
    let mut first = connect(0);
    lab.wait_for("the first seat", || lab.source("fpm")["routes"] == 1);
    std::thread::sleep(Duration::from_secs(2));
    let mut second = connect(1);
    lab.wait_for("a second seat", || lab.source("fpm-2")["routes"] == 1);
    // Longer than a peer is waited for.
    std::thread::sleep(Duration::from_secs(6));
    let said = lab.router.said();
    assert!(!said.iter().any(|line| line.contains("does not reply here")), "{said:#?}");
    for child in [&mut first, &mut second] {
        child.kill().and_then(|()| child.wait()).expect("it was started");
    }
    files.iter().for_each(|file| std::fs::remove_file(file).expect("it was written"));
    lab.router.stop();
}

/// A peer that loses its power while an acknowledgement is on its path: the kernel sends that again for a quarter of an hour, and
/// no probe meanwhile.
#[test]
fn a_peer_that_owes_an_acknowledgement_is_given_up() {
    const SOURCE: &str = "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fpm\"\n\
                          listen = \"10.0.2.1:2620\"\nremote = true\nsweep_s = 2\nstale_s = 5\n";
    let _alone = alone();
    let Some(line) = Line::new(&["bash"]) else { return };
    let lab = Lab::new(line, SOURCE);
    let (namespace, folder) = (&lab.line.destination, std::env::temp_dir());
    let files = ["first", "second"].map(|name| folder.join(format!("{namespace}-{name}")));
    std::fs::write(&files[0], made(1)).expect("a file");
    let [first, second] = files.each_ref().map(|file| file.display());
    let script = format!(
        "exec 3<>/dev/tcp/10.0.2.1/2620; cat {first} >&3; until [ -e {second} ]; do sleep 0.1; done; \
         cat {second} >&3; exec sleep 1000"
    );
    let mut peer = std::process::Command::new("ip")
        .args(["netns", "exec", namespace, "bash", "-c", &script])
        .spawn()
        .expect("ip was found before");
    lab.wait_for_table(1);
    // What the router sends leads nowhere from here on.
    let nowhere = "10.0.2.2 lladdr 02:00:00:00:00:99 dev r1 nud permanent";
    ip(&format!("-n {} neigh replace {nowhere}", lab.line.router));
    let renamed = folder.join(format!("{namespace}-third"));
    std::fs::write(&renamed, made(2)).expect("a file");
    std::fs::rename(&renamed, &files[1]).expect("in one folder");
    lab.wait_for("the second route", || lab.source("fpm")["routes"] == 2);
    ip(&format!("-n {namespace} link set d0 down"));
    peer.kill().and_then(|()| peer.wait()).expect("it was started");
    let since = Instant::now();
    lab.wait_for("the end of its routes", || lab.source("fpm")["routes"] == 0);
    let took = since.elapsed();
    assert!(took < patience(Duration::from_secs(60)), "{took:?}: {:#?}", lab.router.said());
    let said = lab.router.said();
    assert!(
        said.iter().any(|line| line.contains("session with 10.0.2.2 ended: timed out")),
        "{said:#?}"
    );
    files.iter().for_each(|file| std::fs::remove_file(file).expect("it was written"));
    lab.router.stop();
}

/// What zebra's reader takes: every route as it was sent, with the flag of one that readers see.
#[test]
fn acknowledgements_for_zebras_reader() {
    let _alone = alone();
    let Some(line) = Line::new(&[]) else { return };
    let socket = std::env::temp_dir().join(format!("{}-fpm.sock", line.router));
    let sources = format!(
        "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fpm\"\nlisten = {:?}\nsweep_s = 1\n",
        socket.display().to_string()
    );
    let lab = Lab::new(line, &sources);
    let recorded = tables::data().join("fpm/frr844-bgp-first2000.bin");
    let bytes = match recorded.is_file() {
        true => std::fs::read(recorded).expect("it is a file"),
        false => (0..2000).flat_map(made).collect(),
    };
    let mut want = Vec::new();
    let mut rest = &bytes[..];
    while let &[_, _, high, low, ..] = rest {
        let (frame, after) = rest.split_at(usize::from(u16::from_be_bytes([high, low])));
        rest = after;
        if frame[8] == 24 {
            let mut frame = frame.to_vec();
            // The port of the sender is ours: none. The flag is RTM_F_OFFLOAD.
            frame[16..20].fill(0);
            frame[29] |= 0x40;
            want.extend(frame);
        }
    }
    let mut zebra = UnixStream::connect(&socket).expect("the router listens");
    zebra.set_read_timeout(Some(patience(Duration::from_secs(20)))).expect("a time above 0");
    zebra.write_all(&bytes).expect("the router reads");
    let mut got = vec![0; want.len()];
    zebra.read_exact(&mut got).expect("an acknowledgement for each route");
    assert!(got == want, "bytes exactly");
    // What is acknowledged is looked up.
    let addresses = if bytes[8] == 104 { ["1.0.0.1", "1.0.4.1"] } else { ["10.3.1.1", "10.7.1.1"] };
    for address in addresses {
        let answer: Value = lab.router.ask(&format!("route get {address}"));
        assert_eq!(answer["candidates"][0]["source"], "fpm", "{answer}");
    }
    // One that is deleted and added again returns once more; one that would encapsulate packets failed.
    let mut label = made(5);
    label.extend([6, 0, 21, 0, 1, 0, 0, 0]);
    let len = u8::try_from(label.len()).expect("a short frame");
    (label[3], label[4], label[27]) = (len, len - 4, 1);
    zebra.write_all(&[made(4), label.clone()].concat()).expect("the router reads");
    let mut got = vec![0; made(4).len() + label.len()];
    zebra.read_exact(&mut got).expect("two acknowledgements");
    let mut want = made(4);
    want[29] |= 0x40;
    label[31] |= 0x20;
    assert_eq!(got, [want, label].concat());
    assert_eq!(lab.source("fpm")["errors"], 1);
    lab.router.stop();
    assert!(!socket.exists());
}
