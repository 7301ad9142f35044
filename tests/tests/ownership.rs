//! Static routes in the kernel's tables: what the router sets there, replaces and deletes, and what it never touches; and
//! static routes that follow the liveness of their next hops.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fingerpost_io::namespace::Named;
use fingerpost_tests::netns::{Line, Router, exec, ip, run};
use fingerpost_tests::patience;
use fingerpost_tests::traffic::Traffic;
use serde_json::Value;

/// A configuration file, which is deleted when this is dropped.
struct Configuration(PathBuf);

impl Configuration {
    fn new(line: &Line) -> Self {
        Self(std::env::temp_dir().join(format!("{}-ownership.toml", line.router)))
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).expect("the temporary folder can be written");
    }

    fn words(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The kernel source and these static routes.
fn config(routes: &[&str], more: &str) -> String {
    let routes: Vec<String> = routes.iter().map(|route| format!("{route:?}")).collect();
    format!(
        "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fixed\"\n{more}\nroutes = [{}]\n",
        routes.join(", ")
    )
}

/// Routes of a namespace, sorted: of protocol 103, or all others.
fn routes(namespace: &str, own: bool) -> Vec<String> {
    let all = ["-4", "-6"].map(|family| {
        // Not what the kernel has for itself, which comes and goes with links.
        run(namespace, &format!("ip -o -d {family} route show table all"))
    });
    let lines = all.iter().flat_map(|text| text.lines()).filter(|line| {
        line.contains("proto 103") == own
            && !line.contains("proto kernel")
            && !line.contains("table local")
    });
    let words = |line: &str| {
        let line = line.replace('\\', " ").replace(" table main", "");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let mut lines: Vec<String> = lines.map(words).collect();
    lines.sort();
    lines
}

/// Waits until the router's own routes in the kernel begin with these words.
fn wait_for(router: &Router, namespace: &str, want: &[&str]) {
    let until = Instant::now() + patience(Duration::from_secs(20));
    loop {
        let have = routes(namespace, true);
        if have.len() == want.len()
            && have.iter().zip(want).all(|(have, want)| have.starts_with(want))
        {
            return;
        }
        assert!(Instant::now() < until, "{have:#?} {want:#?} {:#?}", router.said());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn static_routes_are_the_kernels_too_and_no_other_route_is_touched() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let r = &line.router;
    for route in [
        "203.0.113.0/24 via 10.0.2.2 proto static",
        "198.51.100.0/24 via 10.0.2.2 proto bgp metric 7",
        "192.0.2.0/24 via 10.0.1.2 proto zebra metric 20",
        "2001:db8:7::/48 via fd02::2 proto bird",
    ] {
        ip(&format!("-n {r} route add {route}"));
    }
    let others = routes(r, false);
    let file = Configuration::new(&line);
    let all = [
        "192.0.2.0/24 via 10.0.2.2",
        "198.51.100.0/24 via 10.0.2.2 weight 3 via 10.0.1.2 weight 1",
        "203.0.113.0/24 via 10.0.1.2",
        "100.64.0.0/16 blackhole",
        "100.65.0.0/16 via 10.0.2.2 dev r1 mtu 1400 metric 9",
        "100.66.0.0/16 via 10.0.2.2 table 1000",
        "2001:db8:8::/48 via fd02::2",
        "2001:db8:9::/48 via fd02::2 via fd01::2",
    ];
    let export = "export = \"kernel\"";
    file.write(&config(&all, export));
    let router = Router::start(r, &file.words(), 2);
    let want = [
        "blackhole 100.64.0.0/16 proto 103 scope global",
        "unicast 100.65.0.0/16 via 10.0.2.2 dev r1 proto 103 scope global metric 9 onlink mtu 1400",
        "unicast 100.66.0.0/16 via 10.0.2.2 dev r1 table 1000 proto 103 scope global",
        "unicast 192.0.2.0/24 via 10.0.2.2 dev r1 proto 103 scope global",
        "unicast 198.51.100.0/24 proto 103 scope global nexthop via 10.0.2.2 dev r1 weight 3 nexthop via 10.0.1.2 dev r0 weight 1",
        "unicast 2001:db8:8::/48 via fd02::2 dev r1 proto 103 scope global metric 1024",
        "unicast 2001:db8:9::/48 proto 103 scope global metric 1024",
    ];
    wait_for(&router, r, &want);
    // The one whose place is taken is refused, counted and named.
    let fixed = router.source("fixed");
    assert_eq!((&fixed["exported"], &fixed["export_refused"]), (&7.into(), &1.into()), "{fixed:#}");
    let why =
        "cannot set route 203.0.113.0/24: another program has a route of that prefix and metric";
    assert_eq!(fixed["last_error"], why, "{fixed:#}");
    router.wait_for("to name the refusal", |said| said.iter().any(|line| line.contains(why)));
    // None of them is read as a route of the kernel, and ours is the best in our tables.
    let rows: Vec<Value> = router.ask_lines("route show --source kernel");
    for row in &rows {
        let prefix = row["prefix"].as_str().unwrap();
        assert!(!prefix.starts_with("100.6") && !prefix.starts_with("2001:db8:8"), "{row}");
    }
    assert_eq!(routes(r, false), others);

    // A reload changes, deletes and adds; what stays is left alone.
    file.write(&config(&["192.0.2.0/24 via 10.0.1.2", all[6], "100.67.0.0/16 prohibit"], export));
    router.signal("HUP");
    let want = [
        "prohibit 100.67.0.0/16 proto 103 scope global",
        "unicast 192.0.2.0/24 via 10.0.1.2 dev r0 proto 103 scope global",
        "unicast 2001:db8:8::/48 via fd02::2 dev r1 proto 103 scope global metric 1024",
    ];
    wait_for(&router, r, &want);
    assert_eq!(routes(r, false), others);

    // A route that went with its link comes back with it.
    ip(&format!("-n {r} link set r0 down"));
    wait_for(&router, r, &[want[0], want[2]]);
    ip(&format!("-n {r} link set r0 up"));
    wait_for(&router, r, &want);

    // After a crash they are there; what is not wanted any more is swept by the next run, and nothing else.
    ip(&format!("-n {r} route add 192.0.2.0/24 via 10.0.1.2 proto zebra metric 20"));
    let others = routes(r, false);
    router.kill();
    assert_eq!(routes(r, true).len(), 3);
    file.write(&config(&["100.67.0.0/16 prohibit", "100.68.0.0/16 via 10.0.2.2"], export));
    let router = Router::start(r, &file.words(), 2);
    let want = [
        "prohibit 100.67.0.0/16 proto 103 scope global",
        "unicast 100.68.0.0/16 via 10.0.2.2 dev r1 proto 103 scope global",
    ];
    wait_for(&router, r, &want);
    assert_eq!(routes(r, false), others);

    // A dry run touches nothing, and a stop leaves nothing of ours.
    file.write(&config(&[], ""));
    router.stop();
    assert_eq!(routes(r, true), [""; 0]);
    assert_eq!(routes(r, false), others);
    file.write(&config(&all, export));
    let program = fingerpost_tests::program().expect("the line was made with it");
    exec(r, &format!("{} run --check {}", program.display(), file.words()));
    assert_eq!(routes(r, true), [""; 0]);
}

/// A static route waits for its link, and follows it by name: also one that is made anew, with another number.
#[test]
fn a_static_route_follows_its_link_by_name() {
    let Some(line) = Line::new(&[]) else { return };
    let r = &line.router;
    let file = Configuration::new(&line);
    let all =
        ["100.70.0.0/16 dev late0", "100.71.0.0/16 via 10.0.2.2 dev r1 via 10.9.0.2 dev late0"];
    file.write(&config(&all, "export = \"kernel\""));
    let router = Router::start(r, &file.words(), 2);
    let without = ["unicast 100.71.0.0/16 via 10.0.2.2 dev r1 proto 103 scope global"];
    let with = [
        "unicast 100.70.0.0/16 dev late0 proto 103",
        "unicast 100.71.0.0/16 proto 103 scope global nexthop via 10.0.2.2 dev r1 weight 1 onlink nexthop via 10.9.0.2 dev late0 weight 1 onlink",
    ];
    wait_for(&router, r, &without);
    let waits = "no such interface yet: late0; routes that wait: 1";
    assert_eq!(router.source("fixed")["last_error"], waits);
    for _ in 0..2 {
        ip(&format!("-n {r} link add late0 type veth peer name late1"));
        ip(&format!("-n {r} addr add 10.9.0.1/24 dev late0"));
        ip(&format!("-n {r} link set late1 up"));
        ip(&format!("-n {r} link set late0 up"));
        wait_for(&router, r, &with);
        let rows: Vec<Value> = router.ask_lines("route show --source fixed");
        assert_eq!(rows.len(), 2, "{rows:#?}");
        assert_eq!(router.source("fixed")["last_error"], "");
        ip(&format!("-n {r} link del late0"));
        wait_for(&router, r, &without);
    }
    // Two that are gone, of which one comes back: nobody takes the routes of the other one.
    let two = ["100.70.0.0/16 dev late0", "100.72.0.0/16 dev early0"];
    file.write(&config(&two, "export = \"kernel\""));
    router.signal("HUP");
    let add = |name: &str| {
        ip(&format!("-n {r} link add {name} type veth peer name {name}p"));
        ip(&format!("-n {r} link set {name}p up"));
        ip(&format!("-n {r} link set {name} up"));
    };
    let route = |net: &str, name: &str| format!("unicast {net} dev {name} proto 103 scope link");
    let (early, late) = (route("100.72.0.0/16", "early0"), route("100.70.0.0/16", "late0"));
    add("early0");
    wait_for(&router, r, &[&early]);
    ip(&format!("-n {r} link del early0"));
    wait_for(&router, r, &[]);
    add("late0");
    wait_for(&router, r, &[&late]);
    add("early0");
    wait_for(&router, r, &[&late, &early]);
    ip(&format!("-n {r} link del late0"));
    ip(&format!("-n {r} link del early0"));
    file.write(&config(&all, "export = \"kernel\""));
    router.signal("HUP");
    wait_for(&router, r, &without);
    // Without `export` the kernel's copies go, and the router serves on.
    file.write(&config(&all, ""));
    router.signal("HUP");
    wait_for(&router, r, &[]);
    file.write(&config(&all, "export = \"kernel\""));
    router.signal("HUP");
    wait_for(&router, r, &without);
    router.stop();
    assert_eq!(routes(r, true), [""; 0]);
}

/// Traffic over a next hop that is lost moves to the backup route, and back.
fn loses(what: &str, port: &str, longest: Duration) {
    let Some(line) = Line::new(&["ping"]) else { return };
    let (r, d) = (&line.router, &line.destination);
    let named = Named::new(format!("{}sw", line.router));
    let switch: &str = &named;
    ip(&format!("-n {r} link add r2 type veth peer name p0 netns {switch}"));
    ip(&format!("-n {switch} link add p1 type veth peer name d1 netns {d}"));
    ip(&format!("-n {switch} link add br0 type bridge"));
    for (namespace, link) in [(r, "r2"), (d, "d1")] {
        ip(&format!("-n {namespace} link set {link} up"));
    }
    for port in ["p0", "p1"] {
        ip(&format!("-n {switch} link set {port} master br0"));
        ip(&format!("-n {switch} link set {port} up"));
    }
    ip(&format!("-n {switch} link set br0 up"));
    ip(&format!("-n {r} addr add 10.0.3.1/24 dev r2"));
    ip(&format!("-n {d} addr add 10.0.3.2/24 dev d1"));
    ip(&format!("-n {d} link set lo up"));
    ip(&format!("-n {d} addr add 10.99.0.1/32 dev lo"));
    ip(&format!("-n {d} route add 10.0.1.0/24 via 10.0.2.1"));
    // Three probes, 100 ms apart.
    run(r, "sysctl -qw net.ipv4.neigh.r2.retrans_time_ms=100");
    let file = Configuration::new(&line);
    file.write(
        "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fixed\"\nliveness = \"neighbor\"\nprobe_ms = 100\n\
         export = \"kernel\"\n\
         routes = [\"10.99.0.0/24 via 10.0.3.2 dev r2\"]\n\
         [[source]]\nkind = \"fixed\"\ndistance = 5\nroutes = [\"10.99.0.0/24 via 10.0.2.2\"]\n",
    );
    let router = Router::start(r, &file.words(), 3);
    let by = |gateway: &str| {
        let until = Instant::now() + patience(Duration::from_secs(20));
        loop {
            let rows: Vec<Value> = router.ask_lines("route show --longer 10.99.0.0/24");
            let found =
                rows.iter().find(|row| row["prefix"] == "10.99.0.0/24" && row["best"] == true);
            if found.is_some_and(|row| row["paths"][0]["gateway"] == gateway) {
                return;
            }
            assert!(Instant::now() < until, "{rows:?} {:#?}", router.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    by("10.0.3.2");
    wait_for(&router, r, &["unicast 10.99.0.0/24 via 10.0.3.2 dev r2 proto 103"]);
    let (rate, seconds) = (1_000, 6);
    let ends = [&*line.source, d];
    let transfer = env!("CARGO_BIN_EXE_transfer");
    let mut traffic = Traffic::between(transfer, ends, &["10.99.0.1"], (rate, seconds, 24));
    std::thread::sleep(Duration::from_millis(1500));
    let lost = Instant::now();
    ip(&format!("-n {switch} link set {port} down"));
    by("10.0.2.2");
    let seen = lost.elapsed();
    wait_for(&router, r, &[]);
    std::thread::sleep(Duration::from_millis(300));
    ip(&format!("-n {switch} link set {port} up"));
    by("10.0.3.2");
    wait_for(&router, r, &["unicast 10.99.0.0/24 via 10.0.3.2 dev r2 proto 103"]);
    assert!(traffic.goes_on(), "all of it happened under traffic");
    let counts = traffic.end();
    let gap = Duration::from_millis(counts.lost() * 1000 / rate);
    println!("{what}: seen after {seen:?}, {} packets of {rate}/s lost: {gap:?}", counts.lost());
    assert!(gap <= longest, "{what}: {gap:?}, {counts:?} {:#?}", router.said());
    assert!(counts.received > counts.sent / 2, "{counts:?}");
    let said = router.said();
    for word in ["is lost", "replies"] {
        let line = format!("next hop 10.0.3.2 on r2 {word}; static routes changed: 1");
        assert!(said.iter().any(|said| said.contains(&line)), "{line}: {said:#?}");
    }
    router.stop();
}

#[test]
fn a_next_hop_that_is_silent_is_left() {
    // A probe, three times retrans_time_ms, 20 ms, and the time of a busy machine.
    let longest = Duration::from_millis(100 + 3 * 100 + 20 + 400);
    loses("silent next hop", "p1", patience(longest));
}

#[test]
fn a_next_hop_whose_link_fails_is_left() {
    loses("link of the next hop", "p0", patience(Duration::from_millis(300)));
}
