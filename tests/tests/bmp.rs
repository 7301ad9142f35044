//! Routes of FRR's bgpd and of GoBGP by BMP: the best path of peers, their loss, and a daemon that comes back.
//!
//! BIRDs announce routes to a daemon beside the router, which sends to it what it has from them. `cargo xtask soak bmp`
//! announces a whole Internet table to GoBGP.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fingerpost_tests::bird::{Bird, speaker};
use fingerpost_tests::configuration::Configuration;
use fingerpost_tests::frr::Frr;
use fingerpost_tests::netns::{Line, Router, command, ip};
use fingerpost_tests::{patience, soak, zebra};
use serde_json::Value;

/// Routes of the first peer; the second one has the later half of them, and as many more.
const ROUTES: u32 = 2_000;

/// Longest time until the routes are those of the peers.
const LONGEST: Duration = Duration::from_secs(60);

const CONFIG: &str = "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"bmp\"\nsweep_s = 5\n";

/// Configuration of gobgpd.
const GOBGPD: &str = "[global.config]\nas = 65000\nrouter-id = \"10.255.0.1\"\n\
    [[neighbors]]\n[neighbors.config]\nneighbor-address = \"10.0.2.2\"\npeer-as = 65001\n\
    [[bmp-servers]]\n[bmp-servers.config]\naddress = \"127.0.0.1\"\nport = 11019\n\
    route-monitoring-policy = \"pre-policy\"\n";

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

fn wait_for(router: &Router, what: &str, want: &Routes) {
    let until = Instant::now() + patience(LONGEST.max(soak(Duration::ZERO)));
    loop {
        let rows: Vec<Value> = router.ask_lines("route show --source bmp");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let row = |row: &Value| (text(&row["prefix"]), text(&row["paths"][0]["gateway"]));
        let have: Routes = rows.iter().map(row).collect();
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

fn source(router: &Router) -> Value {
    let all: Vec<Value> = router.ask("source show");
    all.into_iter().find(|source| source["name"] == "bmp").unwrap_or(Value::Null)
}

#[test]
fn the_best_paths_of_two_peers_are_the_routes() {
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
    assert_eq!(source(&router)["errors"], 0, "{:#?}", source(&router));

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
    let said = source(&router);
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
    let Some(line) = Line::new(&["bird", "birdc", "gobgpd"]) else { return };
    ip(&format!("-n {} link set lo up", line.router));
    let of_soak = soak(Duration::ZERO);
    let table = if of_soak.is_zero() {
        prefixes(0..ROUTES).collect()
    } else {
        zebra::announced(usize::MAX)
    };
    let tenth = table.len() / 10;
    let by_peer = |prefixes: &[String]| -> Routes {
        prefixes.iter().map(|prefix| (prefix.clone(), "10.0.2.2".to_owned())).collect()
    };
    let announces =
        |prefixes: &[String]| speaker(prefixes.iter().cloned(), &[("10.0.2.2", "10.0.2.1")]);
    let config = Configuration::new(&line.router, CONFIG);
    let words = format!("{} --path graph", config.path().display());
    let router = Router::start(&line.router, &words, 2);
    let mut peer = Bird::start(&line.destination, &announces(&table[tenth..]));
    let began = Instant::now();
    let mut gobgp = GoBgp::start(&line.router);
    wait_for(&router, "the table", &by_peer(&table[tenth..]));
    println!("{} routes after {:.1} s", table.len() - tenth, began.elapsed().as_secs_f64());
    assert_eq!(source(&router)["errors"], 0, "{:#?}", source(&router));

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
