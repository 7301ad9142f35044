//! The kernel's policy changes while the router runs: rules, filters, switches and masters that would stop packets stop
//! them here as well, within a second, and packets are forwarded here again when they are gone. It is so wherever the route
//! of the packets is from: the kernel, zebra by FPM, or a BGP router by BMP.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fingerpost_route::{AnyPrefix, MAIN_TABLE, Path, RouteKey, RouteUpdate, Target};
use fingerpost_tests::bmp::Monitored;
use fingerpost_tests::configuration::Configuration;
use fingerpost_tests::fpm::Zebra;
use fingerpost_tests::netns::{Line, Router, conserved, exec, ip, run};
use fingerpost_tests::skip;
use fingerpost_tests::traffic::{Traffic, overflowed};
use serde_json::Value;

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
/// Longest time from a change of the policy to packets that obey it: in the median, for a busy machine is late at times.
const SOON: Duration = Duration::from_secs(1);
/// Changes of one kind that are timed where the first was late.
const TIMES: usize = 3;
/// Longest wait for anything.
const LONGEST: Duration = Duration::from_secs(5);

/// Where the router has the routes to the destination from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Kernel,
    Fpm,
    Bmp,
}

/// Routes to the destination, each with its gateway.
const ROUTES: [(&str, &str); 2] = [("10.0.2.0/24", "10.0.3.2"), ("fd02::/64", "fd03::2")];

/// The source of those routes. Its session ends when this is dropped.
struct Source {
    by: By,
    config: Configuration,
    socket: PathBuf,
    zebra: Option<Zebra>,
    monitored: Option<Monitored>,
}

impl Source {
    /// Prepares the line, and a configuration with this besides. By another source than the kernel the destination is one
    /// hop behind the router's link, and the kernel has the routes too, by which it forwards what is left to it.
    fn new(by: By, line: &Line, besides: &str) -> Self {
        let (r, d) = (&line.router, &line.destination);
        let socket = std::env::temp_dir().join(format!("{r}-policy.sock"));
        let mut text = besides.to_owned();
        if by != By::Kernel {
            for addr in ["10.0.2.1/24", "fd02::1/64"] {
                ip(&format!("-n {r} addr del {addr} dev r1"));
            }
            for (namespace, link, host) in [(r, "r1", 1), (d, "d0", 2)] {
                ip(&format!("-n {namespace} addr add 10.0.3.{host}/24 dev {link}"));
                ip(&format!("-n {namespace} addr add fd03::{host}/64 dev {link} nodad"));
            }
            ip(&format!("-n {d} route replace default via 10.0.3.1"));
            ip(&format!("-n {d} -6 route replace default via fd03::1"));
            for (prefix, gateway) in ROUTES {
                ip(&format!("-n {r} route add {prefix} via {gateway}"));
            }
            let kind = if by == By::Fpm { "fpm" } else { "bmp" };
            text += &format!(
                "[[source]]\nkind = \"kernel\"\ndistance = 200\n[[source]]\nkind = \"{kind}\"\nlisten = {:?}\n",
                socket.display().to_string()
            );
        }
        let config = Configuration::new(r, &text);
        Self { by, config, socket, zebra: None, monitored: None }
    }

    /// Words for the router.
    fn words(&self) -> String {
        self.config.path().display().to_string()
    }

    /// Sends the routes to the router, and waits until it prefers them.
    fn feed(&mut self, router: &Router) {
        let parsed = |(prefix, gateway): (&str, &str)| {
            (AnyPrefix::parse(prefix).expect("a prefix"), gateway.parse().expect("an address"))
        };
        match self.by {
            By::Kernel => return,
            By::Fpm => {
                let mut zebra = Zebra::connect(&self.socket);
                zebra.send(&ROUTES.map(parsed).map(|(prefix, gateway)| {
                    let key = RouteKey { table: MAIN_TABLE, prefix, metric: 0 };
                    let path = Path { gateway: Some(gateway), link: None, weight: 1 };
                    RouteUpdate::new(key, Target::Path(path))
                }));
                self.zebra = Some(zebra);
            }
            By::Bmp => {
                let mut monitored = Monitored::connect(&self.socket);
                monitored.up(1);
                for (prefix, gateway) in ROUTES.map(parsed) {
                    monitored.announce(1, prefix, gateway, 1);
                }
                self.monitored = Some(monitored);
            }
        }
        let kind = if self.by == By::Fpm { "fpm" } else { "bmp" };
        let until = Instant::now() + LONGEST;
        loop {
            let rows: Vec<Value> = router.ask_lines(&format!("route show --source {kind}"));
            if rows.len() == ROUTES.len() && rows.iter().all(|row| row["best"] == true) {
                return;
            }
            assert!(Instant::now() < until, "{rows:?} {:#?}", router.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A line whose kernel forwards, and the router on it.
struct Stage {
    line: Line,
    router: Router,
    source: Source,
}

impl Stage {
    fn new(by: By, tools: &[&str], words: &str) -> Option<Self> {
        Self::with(by, tools, words, "")
    }

    /// A stage with this in its configuration besides.
    fn with(by: By, tools: &[&str], words: &str, besides: &str) -> Option<Self> {
        let line = Line::new(tools)?;
        line.kernel_forwards(true);
        let mut source = Source::new(by, &line, besides);
        let words = format!("{} {words}", source.words());
        let router = Router::start_obeying(&line.router, words.trim_end(), 2);
        source.feed(&router);
        let stage = Self { line, router, source };
        stage.wait("packets to cross", || stage.crosses());
        Some(stage)
    }

    /// A command in the router's namespace.
    fn does(&self, words: &str) {
        run(&self.line.router, words);
    }

    /// The row of an interface of `interface show`.
    fn shown(&self, name: &str) -> Value {
        let rows: Vec<Value> = self.router.ask("interface show");
        rows.into_iter().find(|row| row["name"] == name).expect("it is shown")
    }

    /// Whether an interface is ours.
    fn ours(&self, name: &str) -> bool {
        self.shown(name)["path"] != "kernel"
    }

    fn policy(&self, name: &str) -> String {
        self.shown(name)["policy"].as_str().unwrap_or_default().to_owned()
    }

    fn pings(&self, words: &str) -> bool {
        exec(&self.line.source, &format!("ping -c 1 -W 0.2 {words}")).status.success()
    }

    fn crosses(&self) -> bool {
        self.pings("10.0.2.2")
    }

    /// Packets that went through the router, by workers or in XDP.
    fn forwarded(&self) -> u64 {
        let shown = |name| self.shown(name)["rx_packets"].as_u64().expect("a count");
        shown("r0") + shown("r1")
    }

    /// Waits until that is so; how long it took.
    fn wait(&self, what: &str, done: impl Fn() -> bool) -> Duration {
        let begun = Instant::now();
        while !done() {
            let said = || self.router.said();
            assert!(begun.elapsed() < LONGEST, "waited for {what}: {:#?}", said());
            std::thread::sleep(Duration::from_millis(10));
        }
        begun.elapsed()
    }

    /// Something is added that stops what crosses: it stops, the interfaces named are the kernel's, with the reason; it goes
    /// away: they are ours and packets cross. Both within a second.
    fn stops(&self, add: &[&str], remove: &[&str], interfaces: &[&str], words: &str) {
        let mut times = Vec::new();
        while times.len() < TIMES {
            let (stopped, back) = self.stops_once(add, remove, interfaces, words);
            println!("{words}: stopped after {stopped:.1?}, taken back after {back:.1?}");
            times.push(stopped.max(back));
            if times.len() == 1 && times[0] <= SOON {
                return;
            }
        }
        times.sort_unstable();
        assert!(times[TIMES / 2] <= SOON, "{words}: {times:?}");
    }

    /// How long it took packets to stop, and the router to have the interfaces back.
    fn stops_once(
        &self,
        add: &[&str],
        remove: &[&str],
        interfaces: &[&str],
        words: &str,
    ) -> (Duration, Duration) {
        assert!(self.crosses(), "before {add:?}: {:#?}", self.router.said());
        let begun = Instant::now();
        add.iter().for_each(|words| self.does(words));
        // A ping that gets no answer takes its time, which is not the router's.
        self.wait("packets to stop", || !self.crosses());
        let stopped = begun.elapsed();
        for name in interfaces {
            self.wait("the kernel to have it", || !self.ours(name));
            let policy = self.policy(name);
            assert!(policy.contains(words), "{name}: {policy}");
            let mode = self.shown(name)["mode"].to_string();
            assert!(mode.contains(words), "{name}: {mode}");
            let line = format!("{name}: given back to the kernel: ");
            let said = self.router.said();
            let line = said.iter().rfind(|said| said.contains(&line)).expect("it is logged");
            assert!(line.contains(words), "{line}");
        }
        let picture: Value = self.router.ask("top --count 1 --interval 0.1");
        let rows = picture["interfaces"].as_array().expect("a row for each");
        for name in interfaces {
            let row = rows.iter().find(|row| row["name"] == *name).expect("it is there");
            assert!(row["policy"].as_str().is_some_and(|why| why.contains(words)), "top: {row}");
        }
        assert!(!self.crosses(), "it still holds");
        let begun = Instant::now();
        remove.iter().for_each(|words| self.does(words));
        for name in interfaces {
            self.wait("it to be ours again", || self.ours(name));
            assert_eq!(self.shown(name)["policy"], Value::Null);
        }
        let back = begun.elapsed();
        self.wait("packets to cross again", || self.crosses());
        let before = self.forwarded();
        self.wait("packets to cross by us", || self.crosses() && self.forwarded() >= before + 2);
        (stopped, back)
    }
}

/// Each of these tests by each source of routes.
macro_rules! by_each_source {
    (@ $module:ident $by:ident $($test:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::$test(super::By::$by);
                }
            )*
        }
    };
    ($($test:ident)*) => {
        by_each_source!(@ by_the_kernel Kernel $($test)*);
        by_each_source!(@ by_fpm Fpm $($test)*);
        by_each_source!(@ by_bmp Bmp $($test)*);
    };
}

by_each_source! {
    an_nftables_rule_stops_packets
    a_rule_of_the_old_iptables_stops_packets
    a_routing_rule_stops_packets
    a_filter_of_traffic_control_stops_packets_of_its_interface
    an_ipsec_policy_stops_packets
    a_bridge_takes_the_packets_of_its_ports
    a_bridge_with_an_address_stays_with_the_kernel_and_is_logged_once
    a_kernel_that_is_told_not_to_forward_stops_packets
    a_host_that_is_no_router_does_not_become_one
    where_a_warning_is_wanted_interfaces_stay
    a_harmless_rule_costs_no_packet
}

fn an_nftables_rule_stops_packets(by: By) {
    let Some(stage) = Stage::new(by, &["ping", "nft"], "") else { return };
    stage.does("nft add table inet guard");
    stage.does("nft add chain inet guard fw { type filter hook forward priority 0 ; }");
    stage.stops(
        &["nft add rule inet guard fw ip daddr 10.0.2.2 drop"],
        &["nft flush chain inet guard fw"],
        &["r0", "r1"],
        "nft inet table guard chain fw: filter hook forward, 1 rule",
    );
    // A policy is no rule.
    stage.stops(
        &["nft chain inet guard fw { policy drop ; }"],
        &["nft chain inet guard fw { policy accept ; }"],
        &["r0", "r1"],
        "policy drop",
    );
    // What concerns the host's own packets only changes nothing.
    stage.does("nft add chain inet guard own { type filter hook input priority 0 ; }");
    stage.does("nft add rule inet guard own tcp dport 7 drop");
    std::thread::sleep(Duration::from_millis(500));
    assert!(stage.ours("r0") && stage.ours("r1"), "{:#?}", stage.router.said());
    conserved(&stage.router.stop());
}

fn a_rule_of_the_old_iptables_stops_packets(by: By) {
    let Some(stage) = Stage::new(by, &["ping", "iptables-legacy"], "--path graph") else { return };
    // The table is there from here on, and empty.
    if !exec(&stage.line.router, "iptables-legacy -L -n").status.success() {
        return skip("the old iptables modules");
    }
    std::thread::sleep(Duration::from_millis(600));
    assert!(stage.ours("r0"), "an empty table is no obstacle: {:#?}", stage.router.said());
    stage.stops(
        &["iptables-legacy -A FORWARD -d 10.0.2.2 -j DROP"],
        &["iptables-legacy -D FORWARD -d 10.0.2.2 -j DROP"],
        &["r0", "r1"],
        "iptables (legacy) table filter: chain FORWARD has rules",
    );
    stage.stops(
        &["iptables-legacy -P FORWARD DROP"],
        &["iptables-legacy -P FORWARD ACCEPT"],
        &["r0", "r1"],
        "iptables (legacy) table filter: chain FORWARD has policy DROP",
    );
    stage.does("iptables-legacy -A INPUT -p tcp --dport 7 -j DROP");
    std::thread::sleep(Duration::from_millis(600));
    assert!(stage.ours("r0"), "that is for the host itself: {:#?}", stage.router.said());
    let v6 = "ip6tables-legacy -A FORWARD -d fd02::2 -j DROP";
    if exec(&stage.line.router, v6).status.success() {
        stage.wait("the kernel to have it", || !stage.ours("r0"));
        assert!(stage.policy("r0").contains("ip6tables (legacy) table filter"));
        stage.wait("IPv6 to stop", || !stage.pings("fd02::2"));
    } else {
        skip("ip6tables-legacy in the kernel");
    }
    conserved(&stage.router.stop());
}

fn a_routing_rule_stops_packets(by: By) {
    let Some(stage) = Stage::new(by, &["ping"], "") else { return };
    stage.stops(
        &["ip rule add pref 50 from 10.0.1.2 prohibit"],
        &["ip rule del pref 50"],
        &["r0", "r1"],
        "ip rule 50: from 10.0.1.2/32 prohibit",
    );
    stage.does("ip -6 rule add pref 51 from fd01::2 blackhole");
    stage.wait("IPv6 to stop", || !stage.pings("fd02::2"));
    stage.wait("the kernel to have it", || stage.policy("r0").contains("ip -6 rule 51: "));
    stage.does("ip -6 rule del pref 51");
    stage.wait("it to be ours again", || stage.ours("r0") && stage.pings("fd02::2"));
    conserved(&stage.router.stop());
}

fn a_filter_of_traffic_control_stops_packets_of_its_interface(by: By) {
    let Some(stage) = Stage::new(by, &["ping", "tc"], "") else { return };
    stage.does("tc qdisc add dev r0 clsact");
    stage.does("tc qdisc add dev r1 clsact");
    // A filter that does nothing is one all the same: its interface is the kernel's, and no other.
    stage.does("tc filter add dev r1 ingress u32 match u32 0 0 flowid 1:1");
    stage.wait("the kernel to have it", || !stage.ours("r1"));
    assert!(stage.policy("r1").contains("tc ingress filter u32"), "{}", stage.policy("r1"));
    assert!(stage.ours("r0") && stage.policy("r0").is_empty() && stage.crosses());
    stage.does("tc filter del dev r1 ingress");
    stage.wait("it to be ours again", || stage.ours("r1") && stage.policy("r1").is_empty());
    let drop = "u32 match ip dst 10.0.2.2/32 action drop";
    let add = format!("tc filter add dev r0 ingress {drop}");
    if exec(&stage.line.router, &add).status.success() {
        stage.does("tc filter del dev r0 ingress");
        stage.wait("it to be ours again", || stage.ours("r0") && stage.crosses());
        stage.stops(&[&add], &["tc filter del dev r0 ingress"], &["r0"], "tc ingress filter u32");
        // What the other interface receives meets the filter on its way out.
        stage.stops(
            &["tc filter add dev r1 egress u32 match ip src 10.0.1.2/32 action drop"],
            &["tc filter del dev r1 egress"],
            &["r1"],
            "tc egress filter u32",
        );
    } else {
        skip("actions of tc filters in the kernel");
    }
    conserved(&stage.router.stop());
}

fn an_ipsec_policy_stops_packets(by: By) {
    let Some(stage) = Stage::new(by, &["ping"], "") else { return };
    let policy = "src 10.0.1.2/32 dst 10.0.2.2/32 dir fwd";
    if !exec(&stage.line.router, "ip xfrm policy").status.success() {
        return skip("IPsec in the kernel");
    }
    stage.stops(
        &[&format!("ip xfrm policy add {policy} action block")],
        &[&format!("ip xfrm policy del {policy}")],
        &["r0", "r1"],
        "ipsec policy dir fwd src 10.0.1.2/32 dst 10.0.2.2/32 block",
    );
    conserved(&stage.router.stop());
}

fn a_bridge_takes_the_packets_of_its_ports(by: By) {
    let Some(stage) = Stage::new(by, &["ping"], "") else { return };
    // Down, so that whatever its ports receive ends there.
    stage.does("ip link add br0 type bridge");
    stage.stops(
        &["ip link set r0 master br0"],
        &["ip link set r0 nomaster"],
        &["r0"],
        "it belongs to a bridge",
    );
    conserved(&stage.router.stop());
}

fn a_bridge_with_an_address_stays_with_the_kernel_and_is_logged_once(by: By) {
    for words in ["", "--path graph"] {
        let Some(line) = Line::new(&["ping"]) else { return };
        let r = line.router.clone();
        ip(&format!("-n {r} link add br0 type bridge"));
        ip(&format!("-n {r} addr flush dev r0"));
        ip(&format!("-n {r} link set r0 master br0"));
        ip(&format!("-n {r} addr add 10.0.1.1/24 dev br0"));
        ip(&format!("-n {r} addr add fd01::1/64 dev br0 nodad"));
        ip(&format!("-n {r} link set br0 up"));
        line.kernel_forwards(true);
        let mut source = Source::new(by, &line, "");
        let words = format!("{} {words}", source.words());
        let router = Router::start_obeying(&r, words.trim_end(), 1);
        source.feed(&router);
        let stage = Stage { line, router, source };
        let both = || stage.crosses() && stage.pings("fd02::2");
        stage.wait("packets to cross", both);
        assert!(stage.ours("r1") && !stage.ours("r0") && !stage.ours("br0"));
        let mode = |name| stage.shown(name)["mode"].to_string();
        assert!(
            mode("br0").contains("a bridge has no frames of its own to take"),
            "{}",
            mode("br0")
        );
        assert!(stage.policy("r0").contains("it belongs to a bridge"), "{}", stage.policy("r0"));
        // The kernel forwards what the bridge receives; replies arrive by r1, and leave by the bridge.
        let count = |name, what: &str| stage.shown(name)[what].as_u64().expect("a count");
        let (before, left) = (count("r1", "rx_packets"), count("br0", "tx_packets"));
        run(&stage.line.source, "ping -q -c 5 -i 0.1 -W 2 10.0.2.2");
        stage.wait("the replies", || count("r1", "rx_packets") >= before + 5);
        stage.wait("the bridge to have them", || count("br0", "tx_packets") >= left + 5);
        // It changes, and stays what it is.
        stage.does("ip addr add 10.0.9.1/24 dev br0");
        stage.does("ip link set br0 mtu 1400");
        stage.wait("its MTU", || stage.shown("br0")["mtu"] == 1400);
        stage.does("ip link set br0 mtu 1500");
        stage.does("ip link set br0 down");
        stage.wait("it to be down", || stage.shown("br0")["state"] != "up");
        stage.does("ip link set br0 up");
        stage.does("ip addr add fd01::1/64 dev br0 nodad");
        stage.wait("packets to cross again", both);
        let said = stage.router.said();
        for name in ["br0", "r0"] {
            let line = format!(" {name} stays with the kernel: ");
            let lines = said.iter().filter(|said| said.contains(&line)).count();
            assert_eq!(lines, 1, "{name}: {said:#?}");
        }
        conserved(&stage.router.stop());
    }
}

fn a_kernel_that_is_told_not_to_forward_stops_packets(by: By) {
    for path in ["", "--path graph"] {
        let Some(stage) = Stage::new(by, &["ping"], path) else { return };
        // Both families: nothing is left to be forwarded here.
        stage.stops(
            &["sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0"],
            &["sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"],
            &["r0", "r1"],
            "net.ipv4.ip_forward=0 and net.ipv6.conf.all.forwarding=0: forwarding is switched off in the kernel \
             (take it over anyway: --ignore forwarding, or takeover.ignore)",
        );
        // One family: the other is still forwarded here.
        for (switch, other, stopped, goes_on) in [
            ("net.ipv4.ip_forward", "IPv4", "10.0.2.2", "fd02::2"),
            ("net.ipv6.conf.all.forwarding", "IPv6", "fd02::2", "10.0.2.2"),
            ("net.ipv4.conf.r0.forwarding", "IPv4", "10.0.2.2", "fd02::2"),
        ] {
            assert!(stage.pings(stopped) && stage.pings(goes_on), "before {switch}");
            stage.does(&format!("sysctl -qw {switch}=0"));
            stage.wait("its packets to stop", || !stage.pings(stopped));
            let before = stage.forwarded();
            assert!(
                stage.pings(goes_on) && stage.ours("r0"),
                "{switch}: {:#?}",
                stage.router.said()
            );
            stage.wait("the others to be forwarded here", || {
                stage.pings(goes_on) && stage.forwarded() >= before + 2
            });
            let want = format!(
                "{switch}=0: {other} packets stay with the kernel (take it over anyway: --ignore forwarding"
            );
            assert!(stage.policy("r0").starts_with(&want), "{}", stage.policy("r0"));
            let r1 = stage.policy("r1");
            assert_eq!(r1.is_empty(), switch.contains("r0"), "{switch}: {r1}");
            stage.does(&format!("sysctl -qw {switch}=1"));
            stage.wait("its packets to cross", || stage.policy("r0").is_empty());
            let before = stage.forwarded();
            stage.wait("its packets to be forwarded here", || {
                stage.pings(stopped) && stage.forwarded() >= before + 2
            });
        }
        // What overrules it for one interface.
        if exec(&stage.line.router, "sysctl -q net.ipv6.conf.r0.force_forwarding").status.success()
        {
            stage.does("sysctl -qw net.ipv6.conf.all.forwarding=0");
            stage.wait("its packets to stop", || !stage.pings("fd02::2"));
            stage.does("sysctl -qw net.ipv6.conf.r0.force_forwarding=1");
            stage.wait("r0 to be whole again", || stage.policy("r0").is_empty());
            assert!(!stage.policy("r1").is_empty() && !stage.pings("fd02::2"), "replies stay");
            stage.does("sysctl -qw net.ipv6.conf.r1.force_forwarding=1");
            stage.wait("packets to cross", || {
                stage.pings("fd02::2") && stage.policy("r1").is_empty()
            });
            stage.does("sysctl -qw net.ipv6.conf.all.forwarding=1");
        } else {
            skip("Linux 6.17, for force_forwarding");
        }
        // This one is about neighbor discovery: the kernel forwards as before, and so does the router.
        stage.does("sysctl -qw net.ipv6.conf.r0.forwarding=0");
        std::thread::sleep(Duration::from_millis(500));
        assert!(stage.policy("r0").is_empty() && stage.pings("fd02::2"));
        conserved(&stage.router.stop());
        let Some(line) = Line::new(&["ping"]) else { return };
        line.kernel_forwards(true);
        run(&line.router, "sysctl -qw net.ipv6.conf.r0.forwarding=0");
        std::thread::sleep(Duration::from_millis(100));
        run(&line.source, "ping -6 -c 3 -i 0.2 -W 2 fd02::2");
    }
}

fn a_host_that_is_no_router_does_not_become_one(by: By) {
    let Some(line) = Line::new(&["ping"]) else { return };
    let mut source = Source::new(by, &line, "");
    let words = source.words();
    // As every host is that nobody made a router.
    line.kernel_forwards(false);
    let program = fingerpost_tests::program().expect("the line was made with it");
    let check = |more: &str| {
        run(&line.router, format!("{} run --check {words} {more}", program.display()).trim_end())
    };
    let said = check("");
    for name in ["r0", "r1"] {
        let want = format!(
            "{name} stays with the kernel: net.ipv4.ip_forward=0 and net.ipv6.conf.all.forwarding=0: forwarding is \
             switched off in the kernel (take it over anyway: --ignore forwarding, or takeover.ignore)"
        );
        assert!(said.contains(&want), "{said}");
    }
    assert!(check("--ignore forwarding").lines().all(|line| line.contains("would be taken over")));
    let router = Router::start_obeying(&line.router, &words, 0);
    source.feed(&router);
    assert!(!exec(&line.source, "ping -c 1 -W 0.5 10.0.2.2").status.success());
    // It becomes a router when the kernel is one.
    line.kernel_forwards(true);
    router.wait_for("to take both over", |said| {
        said.iter().filter(|line| line.contains("taken over: ")).count() == 2
    });
    run(&line.source, "ping -c 3 -i 0.1 -W 2 10.0.2.2");
    conserved(&router.stop());
    line.kernel_forwards(false);
    let router = Router::start_obeying(&line.router, &format!("{words} --ignore forwarding"), 2);
    source.feed(&router);
    run(&line.source, "ping -c 2 -i 0.1 -W 2 10.0.2.2");
    conserved(&router.stop());
}

fn where_a_warning_is_wanted_interfaces_stay(by: By) {
    let warn = "[takeover]\non_change = \"warn\"\n";
    let Some(stage) = Stage::with(by, &["ping", "nft"], "", warn) else { return };
    let guard = "nft inet table guard chain fw: filter hook forward, 0 rules, policy drop";
    let rule = || {
        stage.does("nft add table inet guard");
        stage.does(
            "nft add chain inet guard fw { type filter hook forward priority 0 ; policy drop ; }",
        );
    };
    rule();
    stage.wait("the mark", || {
        stage.policy("r0").contains(guard) && stage.policy("r1").contains(guard)
    });
    for name in ["r0", "r1"] {
        assert!(stage.ours(name) && stage.shown(name)["mode"].to_string().contains(guard));
        let warning = format!("{name}: stays taken over in spite of {guard}");
        assert!(stage.router.said().iter().any(|said| said.contains(&warning)));
    }
    assert!(stage.crosses(), "it stays, in spite of the rule");
    // A change of it does not undo that.
    stage.does("ip link set r0 mtu 1400");
    stage.wait("r0 to be ours again", || stage.shown("r0")["mtu"] == 1400 && stage.ours("r0"));
    stage.wait("packets to cross", || stage.crosses());
    stage.does("nft delete table inet guard");
    stage.wait("the mark to go", || stage.policy("r0").is_empty() && stage.policy("r1").is_empty());
    assert!(
        stage
            .router
            .said()
            .iter()
            .any(|said| said.contains("r0: the kernel's policy is no obstacle any more"))
    );
    // The same of a family, and of a master.
    stage.does("sysctl -qw net.ipv4.ip_forward=0");
    stage.wait("the mark", || stage.policy("r0").contains("net.ipv4.ip_forward=0"));
    assert!(stage.crosses() && stage.ours("r0"));
    stage.does("sysctl -qw net.ipv4.ip_forward=1");
    stage.wait("the mark to go", || stage.policy("r0").is_empty());
    stage.does("ip link add br0 type bridge");
    stage.does("ip link set r0 master br0");
    stage.wait("the mark", || stage.policy("r0").contains("it belongs to a bridge"));
    assert!(stage.ours("r0"));
    stage.does("ip link del br0");
    stage.wait("the mark to go", || stage.policy("r0").is_empty());
    // What was there before the start is no change.
    rule();
    stage.wait("the mark", || stage.policy("r0").contains(guard));
    conserved(&stage.router.stop());
    let router = Router::start_obeying(&stage.line.router, &stage.source.words(), 0);
    let rows: Vec<Value> = router.ask("interface show");
    assert!(rows.iter().all(|row| row["path"] == "kernel"), "{rows:#?}");
    conserved(&router.stop());
}

/// Interfaces are released and taken back again and again while packets cross, because of a rule that does nothing to
/// them: whoever forwards, none is lost.
fn a_harmless_rule_costs_no_packet(by: By) {
    const ROUNDS: u64 = 4;
    /// One in so many may be lost in a ring that a busy machine does not empty in time.
    const SLACK: u64 = 1000;
    for path in ["", "--path graph"] {
        let Some(stage) = Stage::new(by, &["ping", "nft"], path) else { return };
        stage.does("nft add table inet guard");
        stage.does("nft add chain inet guard fw { type filter hook forward priority 0 ; }");
        let overflow = || overflowed(&stage.line.destination);
        let before = overflow();
        let mut traffic = Traffic::begin(TRANSFER, &stage.line, &["10.0.2.2"], 2_000, ROUNDS * 3);
        let mut rounds = 0;
        while traffic.goes_on() {
            stage.does("nft add rule inet guard fw counter accept");
            stage.wait("the kernel to have them", || !stage.ours("r0") && !stage.ours("r1"));
            std::thread::sleep(Duration::from_millis(300));
            stage.does("nft flush chain inet guard fw");
            stage.wait("both to be ours again", || stage.ours("r0") && stage.ours("r1"));
            std::thread::sleep(Duration::from_millis(300));
            rounds += 1;
        }
        let counts = traffic.end();
        // What the receiver was too busy for is no fault of the router.
        let lost = counts.lost() - (overflow() - before);
        let Stage { router, line: _line, source: _source } = stage;
        let report = router.stop();
        println!("{path}: {rounds} rounds, {counts:?}, {lost} lost, {}", report["dropped"]);
        conserved(&report);
        assert!(rounds >= 2, "{rounds} rounds");
        // Nothing but what came in while the port to leave by was being opened.
        let port_down = report["dropped"]["port_down"].as_u64().unwrap_or_default();
        let reasons = report["dropped"].as_object().expect("drops by reason");
        let dropped: u64 = reasons.values().filter_map(Value::as_u64).sum();
        assert_eq!(dropped, port_down, "{report}");
        assert!(lost <= port_down + counts.sent / SLACK, "{lost}: {counts:?}: {report}");
    }
}
