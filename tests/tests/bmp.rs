//! Routes of FRR's bgpd and of GoBGP by BMP: the best path of peers, their loss, and a daemon that comes back.
//!
//! BIRDs announce routes to a daemon beside the router, which sends to it what it has from them; in two tests it is a
//! stand-in that reports. `cargo xtask soak bmp` announces the whole Internet tables of both families.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fingerpost_route::AnyPrefix;
use fingerpost_route::nexthop::MAX_RANKED;
use fingerpost_tests::bird::{Bird, speaker};
use fingerpost_tests::bmp::Monitored;
use fingerpost_tests::configuration::Configuration;
use fingerpost_tests::frr::Frr;
use fingerpost_tests::netns::{Line, Router, command, exec, ip, run};
use fingerpost_tests::traffic::{own_every_address, to_random};
use fingerpost_tests::{patience, program, soak, zebra};
use serde_json::Value;

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Routes of the first peer; the second one has the later half of them, and as many more.
const ROUTES: u32 = 2_000;

/// Longest time until the routes are those of the peers.
const LONGEST: Duration = Duration::from_secs(60);

const CONFIG: &str = "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"bmp\"\nsweep_s = 5\n";

/// Configuration of gobgpd.
const GOBGPD: &str = "[global.config]\nas = 65000\nrouter-id = \"10.255.0.1\"\n\
    [[neighbors]]\n[neighbors.config]\nneighbor-address = \"10.0.2.2\"\npeer-as = 65001\n\
    [[neighbors]]\n[neighbors.config]\nneighbor-address = \"fd02::2\"\npeer-as = 65001\n\
    [[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"ipv6-unicast\"\n\
    [[bmp-servers]]\n[bmp-servers.config]\naddress = \"127.0.0.1\"\nport = 11019\n\
    route-monitoring-policy = \"pre-policy\"\n";

/// Address of the metrics.
const METRICS: &str = "127.0.0.1:9477";

/// Gateway of each prefix.
type Routes = BTreeMap<String, String>;

fn prefixes(numbers: std::ops::Range<u32>) -> impl Iterator<Item = String> {
    numbers.map(|n| format!("100.{}.{}.0/24", 64 + n / 256, n % 256))
}

/// bgpd with both peers, which it reports.
fn bgpd() -> &'static str {
    "router bgp 65000\n bgp router-id 10.255.0.1\n no bgp ebgp-requires-policy\n \
     neighbor 10.0.2.2 remote-as 65001\n neighbor 10.0.2.2 timers connect 1\n \
     neighbor 10.0.1.2 remote-as 65002\n neighbor 10.0.1.2 timers connect 1\n \
     bmp targets fingerpost\n  bmp connect 127.0.0.1 port 11019 min-retry 100 max-retry 1000\n  \
     bmp monitor ipv4 unicast post-policy\n exit\n"
}

/// Own addresses of the peer in the place of the destination, and the router's.
const SESSIONS: [(&str, &str); 2] = [("10.0.2.2", "10.0.2.1"), ("fd02::2", "fd02::1")];

/// Routes to these prefixes by that peer.
fn by_peer(prefixes: &[String]) -> Routes {
    let gateway = |prefix: &str| SESSIONS[usize::from(prefix.contains(':'))].0.to_owned();
    prefixes.iter().map(|prefix| (prefix.clone(), gateway(prefix))).collect()
}

/// The peer in the place of the destination.
fn first(line: &Line) -> Bird {
    let sessions = [("10.0.2.2", "10.0.2.1")];
    Bird::start(&line.destination, &speaker(prefixes(0..ROUTES), &sessions))
}

/// The peer in the place of the source, whose paths are longer.
fn second(line: &Line) -> Bird {
    let sessions = [("10.0.1.2", "10.0.1.1")];
    let text = speaker(prefixes(ROUTES / 2..ROUTES * 3 / 2), &sessions)
        .replace("router id 10.255.0.2", "router id 10.255.0.3")
        .replace("as 65001", "as 65002")
        .replace("export all", "export filter { bgp_path.prepend(65002); accept; }");
    Bird::start(&line.source, &text)
}

fn expected(of: [std::ops::Range<u32>; 2]) -> Routes {
    let [first, second] = of;
    let by = |gateway: &'static str| move |prefix: String| (prefix, gateway.to_owned());
    // Those of the first peer replace the others.
    prefixes(second).map(by("10.0.1.2")).chain(prefixes(first).map(by("10.0.2.2"))).collect()
}

/// Routes of the router by BMP.
fn routes(router: &Router) -> Routes {
    let rows: Vec<Value> = router.ask_lines("route show --source bmp");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| (text(&row["prefix"]), text(&row["paths"][0]["gateway"]));
    rows.iter().map(row).collect()
}

fn wait_for(router: &Router, what: &str, want: &Routes) {
    let until = Instant::now() + patience(LONGEST.max(soak(Duration::ZERO)));
    loop {
        let have = routes(router);
        if have == *want {
            return;
        }
        let other = have.iter().find(|(prefix, hop)| want.get(*prefix) != Some(hop));
        assert!(
            Instant::now() < until,
            "{what}: {} routes of {}, {other:?} {:#?}",
            have.len(),
            want.len(),
            router.said()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// One at a time: two of them load whole tables in a soak.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn the_best_paths_of_two_peers_are_the_routes() {
    let _alone = alone();
    let Some(line) = Line::new(&["bird", "birdc"]) else { return };
    ip(&format!("-n {} link set lo up", line.router));
    let config = Configuration::new(&line.router, CONFIG);
    let router =
        Router::start(&line.router, &format!("{} --path graph", config.path().display()), 2);
    let mut near = first(&line);
    let _far = second(&line);
    let options: &[&str] = &["-M", "bmp", "-p", "179"];
    let Some(mut frr) = Frr::start(&line.router, "", &[("bgpd", bgpd(), options)]) else { return };

    let (all, half) = (ROUTES, ROUTES / 2);
    wait_for(&router, "both peers", &expected([0..all, half..all + half]));
    assert_eq!(router.source("bmp")["errors"], 0, "{:#?}", router.source("bmp"));

    // Its routes go with a peer, and those of the other one take their place.
    near.kill();
    drop(near);
    wait_for(&router, "the second peer", &expected([0..0, half..all + half]));
    let mut near = first(&line);
    wait_for(&router, "both peers again", &expected([0..all, half..all + half]));

    // bgpd is gone: its routes stay. It comes back with fewer, and the others go.
    frr.kill("bgpd");
    near.kill();
    std::thread::sleep(Duration::from_secs(1));
    wait_for(&router, "the routes of before", &expected([0..all, half..all + half]));
    frr.restart("bgpd", bgpd(), options);
    wait_for(&router, "the second peer alone", &expected([0..0, half..all + half]));
    let said = router.source("bmp");
    assert_eq!((&said["resyncs"], &said["in_sync"]), (&1.into(), &true.into()), "{said:#}");
    drop(frr);
    router.stop();
}

/// A gobgpd beside the router. It ends when this is dropped.
struct GoBgp {
    namespace: String,
    file: PathBuf,
    child: Child,
}

impl GoBgp {
    fn start(namespace: &str) -> Self {
        let file = std::env::temp_dir().join(format!("{namespace}-gobgpd.toml"));
        std::fs::write(&file, GOBGPD).expect("the temporary folder can be written");
        let child = Self::spawn(namespace, &file);
        Self { namespace: namespace.to_owned(), file, child }
    }

    fn spawn(namespace: &str, file: &std::path::Path) -> Child {
        let words = format!("gobgpd --api-hosts 127.0.0.1:50051 -f {}", file.display());
        let mut command = command(namespace, &words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ip was found before")
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn restart(&mut self) {
        self.kill();
        self.child = Self::spawn(&self.namespace, &self.file);
    }
}

impl Drop for GoBgp {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(&self.file);
    }
}

#[test]
fn a_table_of_gobgp() {
    let _alone = alone();
    let Some(line) = Line::new(&["bird", "birdc", "gobgpd"]) else { return };
    ip(&format!("-n {} link set lo up", line.router));
    let of_soak = soak(Duration::ZERO);
    let table = if of_soak.is_zero() {
        zebra::mixed(prefixes(0..ROUTES).collect(), zebra::announced6(ROUTES as usize / 4))
    } else {
        zebra::mixed(zebra::announced(usize::MAX), zebra::announced6(usize::MAX))
    };
    let tenth = table.len() / 10;
    let announces = |prefixes: &[String]| speaker(prefixes.iter().cloned(), &SESSIONS);
    let config = Configuration::new(&line.router, CONFIG);
    let words = format!("{} --path graph", config.path().display());
    let router = Router::start(&line.router, &words, 2);
    let mut peer = Bird::start(&line.destination, &announces(&table[tenth..]));
    let began = Instant::now();
    let mut gobgp = GoBgp::start(&line.router);
    wait_for(&router, "the table", &by_peer(&table[tenth..]));
    println!("{} routes after {:.1} s", table.len() - tenth, began.elapsed().as_secs_f64());
    assert_eq!(router.source("bmp")["errors"], 0, "{:#?}", router.source("bmp"));
    let flows = if of_soak.is_zero() { 100 } else { 5_000 };
    own_every_address(&line.destination, "d0");
    let (hosts4, hosts6) = zebra::hosts(&table[tenth..]);
    let between = [line.source.as_str(), line.destination.as_str()];
    [hosts4, hosts6].iter().for_each(|hosts| to_random(TRANSFER, between, hosts, flows));
    println!("{} random destinations were reached", 2 * flows);

    // The daemon is gone, and its peer has another table meanwhile.
    gobgp.kill();
    peer.restart(&announces(&table[..table.len() - tenth]));
    wait_for(&router, "the routes of before", &by_peer(&table[tenth..]));
    gobgp.restart();
    wait_for(&router, "the other table", &by_peer(&table[..table.len() - tenth]));

    peer.kill();
    wait_for(&router, "no route", &Routes::new());
    router.stop();
}

/// Bgpd of both families: it reports its peer's routes, and zebra sets them in the kernel meanwhile.
#[test]
fn a_table_of_bgpd_beside_the_kernel() {
    let _alone = alone();
    let Some(line) = Line::new(&["bird", "birdc"]) else { return };
    ip(&format!("-n {} link set lo up", line.router));
    let [v4, v6, flows] = match soak(Duration::ZERO).is_zero() {
        true => [2 * ROUTES as usize, ROUTES as usize / 2, 100],
        false => [usize::MAX, usize::MAX, 5_000],
    };
    let table = zebra::mixed(zebra::announced(v4), zebra::announced6(v6));
    let bgpd = "router bgp 65000\n bgp router-id 10.255.0.1\n no bgp ebgp-requires-policy\n \
         neighbor 10.0.2.2 remote-as 65001\n neighbor 10.0.2.2 timers connect 1\n \
         neighbor fd02::2 remote-as 65001\n neighbor fd02::2 timers connect 1\n \
         address-family ipv4 unicast\n  no neighbor fd02::2 activate\n exit-address-family\n \
         address-family ipv6 unicast\n  neighbor fd02::2 activate\n exit-address-family\n \
         bmp targets fingerpost\n  bmp connect 127.0.0.1 port 11019 min-retry 100 max-retry 1000\n  \
         bmp monitor ipv4 unicast post-policy\n  bmp monitor ipv6 unicast post-policy\n exit\n";
    let options: &[&str] = &["-M", "bmp", "-p", "179"];
    let began = Instant::now();
    let Some(_frr) = Frr::start(&line.router, "", &[("bgpd", bgpd, options)]) else { return };
    let _peer = Bird::start(&line.destination, &speaker(table.iter().cloned(), &SESSIONS));
    let until = began + patience(LONGEST.max(soak(Duration::ZERO)));
    // bgpd 8.4 reports a route whose next hop it has not resolved yet as withdrawn, and not again once it has. So the station
    // comes when the table stands.
    let in_kernel = loop {
        std::thread::sleep(Duration::from_millis(200));
        let rows = [4, 6].map(|version| {
            let rows = run(&line.router, &format!("ip -{version} -o route show proto 186"));
            rows.lines().count()
        });
        if rows.iter().sum::<usize>() == table.len() {
            break began.elapsed();
        }
        assert!(Instant::now() < until, "{rows:?} of {}", table.len());
    };
    // The kernel's routes are those of zebra, which repeat the others.
    let config = CONFIG.replacen("\"kernel\"", "\"kernel\"\ndistance = 200", 1);
    let config = Configuration::new(&line.router, &config);
    let words = format!("{} --path graph", config.path().display());
    let began = Instant::now();
    let router = Router::start(&line.router, &words, 2);
    while router.source("bmp")["routes"] != table.len() as u64 {
        assert!(Instant::now() < until, "{:#?}", router.source("bmp"));
        std::thread::sleep(Duration::from_millis(200));
    }
    let taken = began.elapsed();
    let [taken, in_kernel] = [taken, in_kernel].map(|time| time.as_secs_f64());
    println!("{} routes by BMP after {taken:.1} s, in the kernel {in_kernel:.1} s", table.len());
    wait_for(&router, "each route", &by_peer(&table));
    assert_eq!(router.source("bmp")["errors"], 0, "{:#?}", router.source("bmp"));
    own_every_address(&line.destination, "d0");
    let (v4, v6) = zebra::hosts(&table);
    for hosts in [v4, v6] {
        to_random(TRANSFER, [&line.source, &line.destination], &hosts, flows);
    }
    println!("{} random destinations were reached", 2 * flows);
    router.stop();
}

/// A router that reports its routes before and behind its policy connects again: no route is missing meanwhile, and none of
/// those before the policy forwards.
#[test]
fn a_new_session_waits_for_the_routes_behind_the_policy() {
    let _alone = alone();
    let Some(line) = Line::new(&[]) else { return };
    let (router, mut monitored, _config) = reported(&line, "");
    let of = |prefix: &str| AnyPrefix::parse(prefix).expect("a prefix");
    let [near, far] = ["10.0.2.2", "10.0.1.2"];
    let before = |monitored: &mut Monitored| {
        monitored.up(1);
        for prefix in ["100.64.0.0/24", "100.64.1.0/24", "100.64.2.0/24"] {
            let far = far.parse().expect("an address");
            monitored.announce_before_policy(1, of(prefix), far);
        }
    };
    before(&mut monitored);
    announce(&mut monitored, 1, "100.64.0.0/24", near, 1);
    announce(&mut monitored, 1, "100.64.1.0/24", near, 1);
    let by = |prefixes: &[&str]| -> Routes {
        prefixes.iter().map(|prefix| ((*prefix).to_owned(), near.to_owned())).collect()
    };
    let both = by(&["100.64.0.0/24", "100.64.1.0/24"]);
    wait_for(&router, "the routes behind the policy", &both);
    drop(monitored);
    let mut again = Monitored::connect(&socket(&line));
    before(&mut again);
    let since = Instant::now();
    while router.source("bmp")["sessions"] != 2
        || router.source("bmp")["messages"].as_u64() < Some(10)
    {
        assert!(since.elapsed() < patience(LONGEST), "{}", router.source("bmp"));
    }
    assert_eq!(routes(&router), both, "{:#?}", router.said());
    announce(&mut again, 1, "100.64.0.0/24", near, 1);
    wait_for(&router, "the routes that were sent again", &by(&["100.64.0.0/24"]));
    router.stop();
}

/// The socket of the source.
fn socket(line: &Line) -> PathBuf {
    std::env::temp_dir().join(format!("{}-bmp.sock", line.router))
}

/// A router with a source of BMP that has these settings besides, and a stand-in that reports routes to it.
fn reported(line: &Line, settings: &str) -> (Router, Monitored, Configuration) {
    let socket = socket(line);
    let listen = format!("listen = {:?}\n{settings}\n", socket.display().to_string());
    let config = Configuration::new(&line.router, &(CONFIG.to_owned() + &listen));
    let router = Router::start(&line.router, &config.path().display().to_string(), 2);
    let monitored = Monitored::connect(&socket);
    (router, monitored, config)
}

fn announce(monitored: &mut Monitored, peer: u8, prefix: &str, gateway: &str, as_path_len: u8) {
    let prefix = AnyPrefix::parse(prefix).expect("a prefix");
    monitored.announce(peer, prefix, gateway.parse().expect("an address"), as_path_len);
}

/// The best path's next hop has no route: packets take the next path, and the best one as soon as its next hop has one.
#[test]
fn packets_take_the_next_path_where_the_best_leads_nowhere() {
    let _alone = alone();
    let Some(line) = Line::new(&["ping"]) else { return };
    for addr in ["100.64.0.1/32", "2001:db8:64::1/128 nodad"] {
        ip(&format!("-n {} addr add dev d0 {addr}", line.destination));
    }
    let (router, mut monitored, _config) = reported(&line, "");
    monitored.up(1);
    monitored.up(2);
    let prefixes = ["100.64.0.0/24", "2001:db8:64::/48"];
    for (prefix, best, next) in
        [(prefixes[0], "10.99.0.1", "10.0.2.2"), (prefixes[1], "fd99::1", "fd02::2")]
    {
        announce(&mut monitored, 1, prefix, best, 1);
        announce(&mut monitored, 2, prefix, next, 3);
    }
    let by = |gateways: [&str; 2]| -> Routes {
        prefixes.map(str::to_owned).into_iter().zip(gateways.map(str::to_owned)).collect()
    };
    let near = by(["10.0.2.2", "fd02::2"]);
    wait_for(&router, "the paths that lead somewhere", &near);
    let crosses = || {
        ["100.64.0.1", "2001:db8:64::1"].map(|addr| {
            let ping = format!("ping -c 2 -i 0.1 -W 1 {addr}");
            exec(&line.source, &ping).status.success()
        })
    };
    assert_eq!(crosses(), [true; 2], "{:#?}", router.said());
    // The best path leads somewhere now: to where the packets come from.
    for (prefix, gateway) in [("10.99.0.0/24", "10.0.1.2"), ("fd99::/64", "fd01::2")] {
        ip(&format!("-n {} route add {prefix} via {gateway}", line.router));
    }
    wait_for(&router, "the best paths", &by(["10.99.0.1", "fd99::1"]));
    assert_eq!(crosses(), [false; 2], "they come back");
    for prefix in ["10.99.0.0/24", "fd99::/64"] {
        ip(&format!("-n {} route del {prefix}", line.router));
    }
    wait_for(&router, "the others again", &near);
    assert_eq!(crosses(), [true; 2], "{:#?}", router.said());
    let found: Vec<Value> = router.ask_lines("route show --nexthop 10.0.2.2");
    assert!(found.iter().any(|row| row["prefix"] == prefixes[0]), "{found:#?}");
    let found: Vec<Value> = router.ask_lines("route show --source bmp --nexthop 10.99.0.1");
    assert!(found.is_empty(), "it is an alternative that is not in use: {found:#?}");
    // Its peer goes, and no other path is left to wait for.
    monitored.down(1);
    wait_for(&router, "the second peer alone", &near);
    monitored.down(2);
    wait_for(&router, "no route", &Routes::new());
    router.stop();
}

/// Lists of alternatives beyond the bound are their best path alone: the list of next hops and the metrics have how many.
#[test]
fn lists_of_alternatives_beyond_the_bound_are_counted() {
    const BEYOND: u32 = 16;
    let _alone = alone();
    let Some(line) = Line::new(&["curl"]) else { return };
    let lists = u32::try_from(MAX_RANKED).expect("it is small") + BEYOND;
    let (router, mut monitored, _config) =
        reported(&line, &format!("[listen]\naddress = \"{METRICS}\"\n"));
    monitored.up(1);
    monitored.up(2);
    for (n, prefix) in (0..lists).zip(prefixes(0..lists)) {
        announce(&mut monitored, 1, &prefix, &format!("10.98.{}.{}", n / 256, n % 256), 1);
        announce(&mut monitored, 2, &prefix, "10.0.2.2", 3);
    }
    let until = Instant::now() + patience(LONGEST);
    let rows = loop {
        let rows: Vec<Value> = router.ask("nexthop show");
        if rows.iter().any(|row| row["shortened"] != 0) && router.source("bmp")["in_sync"] == true {
            break rows;
        }
        assert!(Instant::now() < until, "{} next hops, {:#}", rows.len(), router.source("bmp"));
        std::thread::sleep(Duration::from_millis(200));
    };
    let ranked = rows.iter().filter(|row| row["type"] == "ranked").count();
    let alone: Vec<&Value> = rows.iter().filter(|row| row["shortened"] != 0).collect();
    assert_eq!((ranked, alone.len()), (MAX_RANKED, BEYOND as usize), "{:?}", alone.first());
    let fits = |row: &&&Value| row["shortened"] == 1 && row["type"] == "v4/gw";
    assert_eq!(alone.iter().filter(fits).count(), BEYOND as usize, "{alone:?}");
    let text = run(
        &line.router,
        &format!("{} nexthop show", program().expect("the line was made with it").display()),
    );
    let last = text.lines().last().unwrap_or_default();
    let want =
        "lists of alternatives shortened to their best path: 16, as there are at most 16384 lists";
    assert_eq!(last, want);
    let page = run(&line.router, &format!("curl -s http://{METRICS}/metrics"));
    assert!(page.contains("fingerpost_next_hop_lists_shortened_total 16\n"), "{page}");
    router.stop();
}

#[test]
fn what_is_too_much_is_dropped_and_counted() {
    let _alone = alone();
    let Some(line) = Line::new(&[]) else { return };
    let limits = "max_peers = 2\nmax_prefixes = 100\nmax_paths = 150";
    let (router, mut monitored, _config) = reported(&line, limits);
    for peer in 1..=3 {
        monitored.up(peer);
    }
    let all: Vec<String> = prefixes(0..120).collect();
    for prefix in &all {
        // The third peer is not there.
        for peer in 1..=3 {
            announce(&mut monitored, peer, prefix, "10.0.2.2", peer);
        }
    }
    wait_for(&router, "as many prefixes as may be", &by_peer(&all[..75]));
    let shown = router.source("bmp");
    // Of the first 75 prefixes both paths; no path of the other 45; a peer, and a message of it for each prefix.
    assert_eq!(shown["errors"], 2 * 45 + 1 + 120, "{shown:#}");
    let error = shown["last_error"].as_str().unwrap_or_default();
    assert!(error.contains("max_") || error.contains("not up"), "{shown:#}");
    // What goes makes room.
    monitored.down(1);
    wait_for(&router, "the second peer's", &by_peer(&all[..75]));
    for prefix in &all {
        announce(&mut monitored, 2, prefix, "10.0.2.2", 1);
    }
    wait_for(&router, "as many prefixes as may be", &by_peer(&all[..100]));
    router.stop();
}
