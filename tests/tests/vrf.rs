//! The kernel's route tables: rules that choose one by the ingress interface, and VRFs, with what leaks between them.
//!
//! Four hosts around a router whose kernel forwards as well: what the router counts is what it forwarded itself. VRFs take
//! a machine whose kernel has them (`cargo xtask vm vrf`).

use std::time::{Duration, Instant};

use fingerpost_tests::bird::{self, Bird};
use fingerpost_tests::frr::Frr;
use fingerpost_tests::netns::{Router, Star, conserved, exec, has_kind, ip, run};
use fingerpost_tests::patience;
use serde_json::Value;

/// Longest wait for anything.
const LONGEST: Duration = Duration::from_secs(10);
/// Packets of one request.
const PINGS: u64 = 5;

/// The hosts and the router between them.
struct Stage {
    star: Star,
    router: Option<Router>,
}

impl Stage {
    /// The router's namespace.
    fn namespace(&self) -> &str {
        &self.star.router
    }

    fn router(&self) -> &Router {
        self.router.as_ref().expect("it was started")
    }

    /// Has the kernel forward, and the router take over the four interfaces.
    fn begin(&mut self, words: &str) {
        let on = "net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1";
        run(self.namespace(), &format!("sysctl -qw {on} net.ipv4.conf.all.rp_filter=0"));
        self.router = Some(Router::start_obeying(self.namespace(), words, 4));
    }

    fn does(&self, words: &str) {
        run(self.namespace(), words);
    }

    fn shown(&self, name: &str) -> Value {
        let rows: Vec<Value> = self.router().ask("interface show");
        rows.into_iter().find(|row| row["name"] == name).expect("it is shown")
    }

    /// Whether an interface is ours.
    fn ours(&self, name: &str) -> bool {
        self.shown(name)["path"] != "kernel"
    }

    /// Packets that went through the router, by workers or in XDP.
    fn forwarded(&self) -> u64 {
        let rows: Vec<Value> = self.router().ask("interface show");
        rows.iter().filter_map(|row| row["rx_packets"].as_u64()).sum()
    }

    /// Echo requests that a host received.
    fn echoes(&self, host: usize) -> u64 {
        let snmp = run(&self.star.hosts[host], "cat /proc/net/snmp");
        let mut lines = snmp.lines().filter(|line| line.starts_with("Icmp: "));
        let mut words = || lines.next().expect("names, then numbers").split(' ');
        let (names, numbers) = (words(), words());
        let row = names.zip(numbers).find(|(name, _)| *name == "InEchos");
        row.and_then(|(_, number)| number.parse().ok()).expect("a number")
    }

    fn wait(&self, what: &str, done: impl Fn() -> bool) {
        let begun = Instant::now();
        while !done() {
            let said = || self.router().said();
            assert!(begun.elapsed() < patience(LONGEST), "waited for {what}: {:#?}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn pings(&self, from: usize, words: &str) -> bool {
        exec(&self.star.hosts[from], &format!("ping -c 1 -W 0.5 {words}")).status.success()
    }

    /// Packets of a host reach another one and come back, all of them forwarded here.
    fn reaches(&self, from: usize, words: &str, to: usize) {
        let right = || {
            let before = self.echoes(to);
            self.pings(from, words) && self.echoes(to) > before
        };
        self.wait(&format!("h{from} to reach h{to} at {words}"), right);
        let (echoes, forwarded) = (self.echoes(to), self.forwarded());
        let ping = format!("ping -q -c {PINGS} -i 0.02 -W 2 {words}");
        let said = exec(&self.star.hosts[from], &ping);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
        assert_eq!(self.echoes(to) - echoes, PINGS, "{words}: all by one table");
        let ours = || self.forwarded() >= forwarded + 2 * PINGS;
        self.wait(&format!("the packets to {words} to be counted"), ours);
    }
}

/// Hosts 10.0.N.2 behind 10.0.N.1 of interface rN.
fn plain(tools: &[&str]) -> Option<Stage> {
    let addrs = [0, 1, 2, 3].map(|n| (format!("10.0.{n}.2"), format!("10.0.{n}.1")));
    let star = Star::new(tools, addrs.each_ref().map(|(host, own)| (&**host, &**own)))?;
    let stage = Stage { star, router: None };
    for n in 0..4 {
        ip(&format!("-n {} addr add 10.0.{n}.1/24 dev r{n}", stage.namespace()));
    }
    Some(stage)
}

#[test]
fn rules_by_interface_choose_the_table() {
    for words in ["", "--path graph"] {
        let Some(mut stage) = plain(&["ping"]) else { return };
        for host in [2, 3] {
            ip(&format!("-n {} addr add 192.0.2.1/32 dev lo", stage.star.hosts[host]));
            ip(&format!("-n {} link set lo up", stage.star.hosts[host]));
        }
        let r = stage.namespace().to_owned();
        ip(&format!("-n {r} route add 192.0.2.0/24 via 10.0.3.2"));
        ip(&format!("-n {r} route add 192.0.2.0/24 via 10.0.2.2 table 100"));
        ip(&format!("-n {r} rule add pref 100 iif r0 lookup 100"));
        stage.begin(words);
        assert_eq!(
            (&stage.shown("r0")["table"], &stage.shown("r1")["table"]),
            (&100.into(), &254.into())
        );
        // Table 100 has the first, and nothing of the second, which the main table has.
        stage.reaches(0, "192.0.2.1", 2);
        stage.reaches(1, "192.0.2.1", 3);
        stage.reaches(0, "10.0.1.2", 1);
        // A rule is added while it runs, and deleted.
        stage.does("ip rule add pref 90 iif r1 lookup 100");
        stage.reaches(1, "192.0.2.1", 2);
        stage.does("ip rule del pref 100");
        stage.reaches(0, "192.0.2.1", 3);
        // So is a table's route; throw leads on to the main table.
        stage.does("ip route replace throw 192.0.2.0/24 table 100");
        stage.reaches(1, "192.0.2.1", 3);
        // One that looks at more than the interface keeps this interface with the kernel, and says so.
        stage.does("ip rule add pref 50 iif r1 from 10.0.1.2 lookup 101");
        stage.wait("the kernel to have r1", || !stage.ours("r1"));
        let policy = stage.shown("r1")["policy"].to_string();
        assert!(policy.contains("ip rule 50: from 10.0.1.2/32 iif r1 lookup 101"), "{policy}");
        assert!(stage.ours("r0") && stage.ours("r2"), "{:#?}", stage.router().said());
        assert!(stage.pings(1, "192.0.2.1"), "the kernel forwards");
        let said = stage.router().said();
        assert_eq!(said.iter().filter(|line| line.contains("ip rule 50")).count(), 1, "{said:#?}");
        stage.does("ip rule del pref 50");
        stage.wait("r1 to be ours again", || stage.ours("r1"));
        stage.reaches(1, "192.0.2.1", 3);
        // Rules for the host's own packets concern none that is forwarded.
        stage.does("ip rule add pref 40 iif lo fwmark 7 lookup 101");
        std::thread::sleep(Duration::from_millis(500));
        assert!((0..4).all(|n| stage.ours(&format!("r{n}"))), "{:#?}", stage.router().said());
        conserved(&stage.router.take().expect("it was started").stop());
    }
}

/// Two VRFs with the same prefixes: red has r0 and r1, blue r2 and r3.
fn vrfs(tools: &[&str]) -> Option<Stage> {
    let addrs = [1, 2, 1, 2].map(|n| (format!("10.0.{n}.2"), format!("10.0.{n}.1")));
    let star = Star::new(tools, addrs.each_ref().map(|(host, own)| (&**host, &**own)))?;
    let stage = Stage { star, router: None };
    let r = stage.namespace();
    if !has_kind(r, "vrf") {
        return None;
    }
    for (name, table, members) in [("red", 10, [0, 1]), ("blue", 20, [2, 3])] {
        ip(&format!("-n {r} link add {name} type vrf table {table}"));
        ip(&format!("-n {r} link set {name} up"));
        for (at, n) in members.into_iter().enumerate() {
            ip(&format!("-n {r} link set r{n} master {name}"));
            ip(&format!("-n {r} addr add 10.0.{}.1/24 dev r{n}", at + 1));
        }
    }
    for host in &stage.star.hosts {
        ip(&format!("-n {host} link set lo up"));
    }
    Some(stage)
}

#[test]
fn vrfs_have_tables_of_their_own_and_leak_as_the_kernel_says() {
    for words in ["", "--path graph"] {
        let Some(mut stage) = vrfs(&["ping"]) else { return };
        let r = stage.namespace().to_owned();
        let hosts = stage.star.hosts.clone();
        ip(&format!("-n {} addr add 10.9.0.2/32 dev lo", hosts[0]));
        ip(&format!("-n {} addr add 192.0.2.1/32 dev lo", hosts[3]));
        ip(&format!("-n {} addr add 10.7.0.9/24 dev h3", hosts[3]));
        ip(&format!("-n {} addr add 203.0.113.1/32 dev lo", hosts[1]));
        stage.begin(words);
        for (name, table) in [("r0", 10), ("r1", 10), ("r2", 20), ("r3", 20)] {
            assert_eq!(stage.shown(name)["table"], table, "{name}");
        }
        // The same address is another host in each.
        stage.reaches(0, "10.0.2.2", 1);
        stage.reaches(2, "10.0.2.2", 3);
        // What leaks: a route of red by an interface of blue, to a gateway and to a prefix, and one back.
        ip(&format!("-n {r} route add 192.0.2.0/24 table 10 via 10.0.2.2 dev r3 onlink"));
        ip(&format!("-n {r} route add 10.9.0.2/32 table 20 via 10.0.1.2 dev r0 onlink"));
        stage.reaches(0, "-I 10.9.0.2 192.0.2.1", 3);
        ip(&format!("-n {r} addr add 10.7.0.1/24 dev r3"));
        ip(&format!("-n {r} route add 10.7.0.0/24 table 10 dev r3"));
        stage.reaches(0, "-I 10.9.0.2 10.7.0.9", 3);
        // What red lacks is looked up in the main table, until red has a route for all.
        ip(&format!("-n {r} route add 203.0.113.0/24 via 10.0.2.2 dev r1 onlink"));
        stage.reaches(0, "203.0.113.1", 1);
        ip(&format!("-n {r} route add unreachable default metric 4278198272 table 10"));
        stage.wait("red to end there", || !stage.pings(0, "203.0.113.1"));
        stage.reaches(0, "10.0.2.2", 1);
        // An interface leaves its VRF, and comes back.
        ip(&format!("-n {r} link set r1 nomaster"));
        stage.wait("it to be in the main table", || stage.shown("r1")["table"] == 254);
        stage.wait("red to have lost it", || !stage.pings(0, "10.0.2.2"));
        ip(&format!("-n {r} link set r1 master red"));
        stage.reaches(0, "10.0.2.2", 1);
        stage.reaches(2, "10.0.2.2", 3);
        conserved(&stage.router.take().expect("it was started").stop());
    }
}

/// Routes whose interface is the device of the other VRF: looked up again there, in both directions and families.
#[test]
fn routes_by_the_device_of_a_vrf_lead_into_its_table() {
    for words in ["", "--path graph"] {
        let Some(mut stage) = vrfs(&["ping"]) else { return };
        let r = stage.namespace().to_owned();
        let hosts = stage.star.hosts.clone();
        ip(&format!("-n {} addr add 10.9.1.2/32 dev lo", hosts[0]));
        ip(&format!("-n {} addr add 198.51.100.1/32 dev lo", hosts[3]));
        for (host, link, subnet) in [(0, "r0", 1), (3, "r3", 2)] {
            ip(&format!("-n {} addr add fd0{subnet}::2/64 dev h{host} nodad", hosts[host]));
            ip(&format!("-n {r} addr add fd0{subnet}::1/64 dev {link} nodad"));
            ip(&format!("-n {} route add default via fd0{subnet}::1", hosts[host]));
        }
        stage.begin(words);
        let routes = [
            "198.51.100.0/24 table 10 dev blue",
            "198.51.100.0/25 table 20 via 10.0.2.2",
            "10.9.1.0/24 table 20 dev red",
            "10.9.1.2/32 table 10 via 10.0.1.2",
            "fd02::/64 table 10 dev blue",
            "fd01::/64 table 20 dev red",
            // An address of the router itself in the other VRF.
            "10.5.0.1/32 table 10 dev blue",
            // Two that lead to each other.
            "203.0.113.0/24 table 10 dev blue",
            "203.0.113.0/24 table 20 dev red",
        ];
        ip(&format!("-n {r} addr add 10.5.0.1/32 dev blue"));
        routes.iter().for_each(|route| drop(ip(&format!("-n {r} route add {route}"))));
        stage.reaches(0, "-I 10.9.1.2 198.51.100.1", 3);
        let why: Value = stage.router().ask("why 198.51.100.1 --from r0");
        let steps = why["dry_run"]["steps"].as_array().expect("steps of a path");
        let in_vrf =
            steps.iter().find_map(|step| step["vrf_routes"].get(0)).expect("a lookup in it");
        assert_eq!((&why["does"], &in_vrf["table"]), (&"forward".into(), &20.into()), "{why:#}");
        stage.wait("the other family", || stage.pings(0, "-6 fd02::2"));
        let before = stage.forwarded();
        for _ in 0..PINGS {
            assert!(stage.pings(0, "-6 -W 2 fd02::2"));
        }
        stage.wait("its packets to be counted", || stage.forwarded() >= before + 2 * PINGS);
        stage.wait("the router itself", || stage.pings(0, "-I 10.9.1.2 10.5.0.1"));
        assert!(!stage.pings(0, "-I 10.9.1.2 203.0.113.1"));
        // A change in blue needs none in red.
        ip(&format!("-n {r} route add blackhole 198.51.100.1/32 table 20"));
        stage.wait("blue to drop it", || !stage.pings(0, "-I 10.9.1.2 198.51.100.1"));
        ip(&format!("-n {r} route del blackhole 198.51.100.1/32 table 20"));
        stage.reaches(0, "-I 10.9.1.2 198.51.100.1", 3);
        let report = stage.router.take().expect("it was started").stop();
        let looped = report["dropped"]["loop_guard"].as_u64();
        assert!(looped.is_some_and(|count| count > 0), "{report:#}");
        conserved(&report);
    }
}

/// FRR in the two VRFs, an instance each, with the same prefix by other hosts, and a prefix of blue that red leaks.
#[test]
fn two_instances_of_frr_feed_two_vrfs() {
    let Some(mut stage) = vrfs(&["ping"]) else { return };
    let (r, hosts) = (stage.namespace().to_owned(), stage.star.hosts.clone());
    for (host, addr) in [(1, "192.0.2.1"), (3, "192.0.2.1"), (3, "198.51.100.1")] {
        ip(&format!("-n {} addr add {addr}/32 dev lo", hosts[host]));
    }
    ip(&format!("-n {} addr add 10.9.0.2/32 dev lo", hosts[0]));
    let red = "vrf red\n ip route 192.0.2.0/24 10.0.2.2\n \
               ip route 198.51.100.0/24 10.0.2.2 r3 nexthop-vrf blue onlink\nexit-vrf\n";
    let blue = "vrf blue\n ip route 192.0.2.0/24 10.0.2.2\n \
                ip route 10.9.0.0/24 10.0.1.2 r0 nexthop-vrf red onlink\nexit-vrf\n";
    // Neither takes the other's routes for what it left behind itself.
    let zebra: (&str, &[&str]) = ("", &["-K", "3600"]);
    let start = |name: &str, config: &str| {
        Frr::start_named(&format!("{r}-{name}"), &r, zebra, &[("staticd", config, &[])])
    };
    let Some(_red) = start("red", red) else { return };
    let Some(_blue) = start("blue", blue) else { return };
    stage.begin("");
    stage.reaches(0, "192.0.2.1", 1);
    stage.reaches(2, "192.0.2.1", 3);
    stage.reaches(0, "-I 10.9.0.2 198.51.100.1", 3);
    conserved(&stage.router.take().expect("it was started").stop());
}

/// Bgpd in the two VRFs, an instance of FRR each, which learn the same prefix from a BIRD of their own; zebra hands over
/// what they learn by FPM, or by the kernel.
#[test]
fn bgpd_in_two_vrfs_feeds_them_by_fpm_and_by_the_kernel() {
    for (source, words) in
        [("fpm", ""), ("fpm", "--path graph"), ("kernel", ""), ("kernel", "--path graph")]
    {
        let Some(mut stage) = vrfs(&["ping", "bird", "birdc"]) else { return };
        let (r, hosts) = (stage.namespace().to_owned(), stage.star.hosts.clone());
        for (host, addr) in [(1, "192.0.2.1"), (3, "192.0.2.1"), (3, "198.51.100.1")] {
            ip(&format!("-n {} addr add {addr}/32 dev lo", hosts[host]));
        }
        ip(&format!("-n {} addr add 10.9.0.2/32 dev lo", hosts[0]));
        let by_fpm = source == "fpm";
        let (zebra, options): (&str, &[&str]) = match by_fpm {
            true => ("fpm address 127.0.0.1 port 2620\n", &["-K", "3600", "-M", "dplane_fpm_nl"]),
            false => ("", &["-K", "3600"]),
        };
        let config = std::env::temp_dir().join(format!("{r}-bgpd.toml"));
        let fpm = if by_fpm { "[[source]]\nkind = \"fpm\"\nsweep_s = 2\n" } else { "" };
        std::fs::write(&config, format!("[[source]]\nkind = \"kernel\"\n{fpm}"))
            .expect("the temporary folder can be written");
        stage.begin(&format!("{} {words}", config.display()));
        let announce = |host: usize, prefixes: &[&str]| {
            let prefixes = prefixes.iter().map(|prefix| (*prefix).to_owned());
            Bird::start(&hosts[host], &bird::speaker(prefixes, &[("10.0.2.2", "10.0.2.1")]))
        };
        let _neighbor_of_red = announce(1, &["192.0.2.0/24"]);
        let mut neighbor_of_blue = announce(3, &["192.0.2.0/24", "198.51.100.0/24"]);
        // What leaks is static, as one bgpd knows nothing of the other.
        let leaks = [
            ("red", "198.51.100.0/24 10.0.2.2 r3 nexthop-vrf blue onlink"),
            ("blue", "10.9.0.0/24 10.0.1.2 r0 nexthop-vrf red onlink"),
        ];
        let mut instances = Vec::new();
        for (name, leak) in leaks {
            let bgpd = format!(
                "router bgp 65000 vrf {name}\n bgp router-id 10.0.2.1\n \
                 no bgp ebgp-requires-policy\n neighbor 10.0.2.2 remote-as 65001\n \
                 neighbor 10.0.2.2 timers connect 1\n"
            );
            let staticd = format!("vrf {name}\n ip route {leak}\nexit-vrf\n");
            // Two of them cannot listen at one port: each connects.
            let others: &[(&str, &str, &[&str])] =
                &[("bgpd", &bgpd, &["-p", "0"]), ("staticd", &staticd, &[])];
            let started = Frr::start_named(&format!("{r}-{name}"), &r, (zebra, options), others);
            let Some(frr) = started else { return };
            instances.push(frr);
        }
        let logs = || instances.iter().map(Frr::logs).collect::<String>();
        // Sources of the prefix in a table, the best first.
        let sources = |table: u32, prefix: &str| -> Vec<String> {
            let rows: Vec<Value> = stage.router().ask_lines(&format!("route show --vrf {table}"));
            let of_prefix = rows.iter().filter(|row| row["prefix"] == prefix);
            let (best, rest): (Vec<&Value>, Vec<&Value>) =
                of_prefix.partition(|row| row["best"] == true);
            let name = |row: &Value| row["source"].as_str().expect("a name").to_owned();
            best.into_iter().chain(rest).map(name).collect()
        };
        // A zebra is a source of its own; the kernel's routes of zebra count only where there is none.
        let learned = |table: u32, prefix: &str| {
            let found = sources(table, prefix);
            !found.is_empty() && found.iter().all(|name| name.starts_with(source))
        };
        for table in [10, 20] {
            stage.wait(&format!("table {table} by {source}: {}", logs()), || {
                learned(table, "192.0.2.0/24")
            });
        }
        stage.wait("what leaks", || learned(10, "198.51.100.0/24") && learned(20, "10.9.0.0/24"));
        stage.reaches(0, "192.0.2.1", 1);
        stage.reaches(2, "192.0.2.1", 3);
        stage.reaches(0, "-I 10.9.0.2 198.51.100.1", 3);
        // Blue loses the prefix, and red does not.
        neighbor_of_blue.kill();
        stage.wait("blue to have lost it", || sources(20, "192.0.2.0/24").is_empty());
        assert!(!stage.pings(2, "192.0.2.1"), "{source} {words:?}");
        stage.reaches(0, "192.0.2.1", 1);
        drop(instances);
        conserved(&stage.router.take().expect("it was started").stop());
        let _ = std::fs::remove_file(config);
    }
}
