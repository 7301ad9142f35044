//! Sources by the ingress interface: what uRPF lets pass.

use std::path::PathBuf;

use fingerpost_tests::netns::{Line, Router, conserved, exec, ip, run};
use serde_json::Value;

/// A configuration that checks the sources of packets that arrive on `r0`; it is deleted when this is dropped.
struct Configuration(PathBuf);

impl Configuration {
    fn new(line: &Line, check: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{}-{check}.toml", line.router));
        let text = format!(
            "[[interface]]\nname = \"r0\"\nurpf = \"{check}\"\n[[interface]]\nname = \"r1\"\n"
        );
        std::fs::write(&path, text).expect("the temporary folder can be written");
        Self(path)
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

/// Sources besides its own that the host on the left has, too.
const OTHERS: [&str; 2] = ["10.66.0.9", "fd66::9"];

/// Packets from each of those.
const EACH: u64 = 3;

/// Sends from the other sources to the host on the right.
fn send_from_others(line: &Line) {
    for (src, dst) in OTHERS.iter().zip(["10.0.2.2", "fd02::2"]) {
        let family = if src.contains(':') { "-6" } else { "-4" };
        // Nobody answers: the host on the right does not know the way, and is not meant to.
        exec(&line.source, &format!("ping {family} -c {EACH} -i 0.2 -W 1 -I {src} {dst}"));
    }
}

/// A line whose host on the left has further addresses, to which the best routes lead by the right.
fn line() -> Option<Line> {
    let line = Line::new(&["ping", "ethtool"])?;
    for (addr, gateway) in OTHERS.iter().zip(["10.0.2.2", "fd02::2"]) {
        let (len, subnet) =
            if addr.contains(':') { (128, "fd66::/64") } else { (32, "10.66.0.0/16") };
        let nodad = if addr.contains(':') { " nodad" } else { "" };
        ip(&format!("-n {} addr add {addr}/{len} dev s0{nodad}", line.source));
        ip(&format!("-n {} route add {subnet} via {gateway} metric 10", line.router));
        ip(&format!("-n {} route add blackhole {subnet}", line.destination));
    }
    // So that drivers take what programs send.
    for (namespace, link) in [(&line.source, "s0"), (&line.destination, "d0")] {
        run(namespace, &format!("ethtool -K {link} gro on"));
    }
    Some(line)
}

/// Packets that were dropped for their source.
fn forged(report: &Value) -> u64 {
    report["dropped"]["urpf"].as_u64().unwrap_or(0)
}

#[test]
fn a_forged_source_is_dropped_with_its_reason() {
    let Some(line) = line() else { return };
    let config = Configuration::new(&line, "strict");
    let router = Router::start(&line.router, &config.words(), 2);
    run(&line.source, "ping -c 3 -i 0.1 -W 2 10.0.2.2");
    run(&line.source, "ping -6 -c 3 -i 0.1 -W 2 fd02::2");
    send_from_others(&line);
    // The check is no obstacle to XDP, and nothing that arrived on r0 passed without it.
    let rows: Vec<Value> = router.ask("interface show");
    let way =
        |name: &str| rows.iter().find(|row| row["name"] == name).expect("it is there").clone();
    let (left, right) = (way("r0"), way("r1"));
    assert_eq!(left["path"], right["path"], "{left}");
    let why: Value = router.ask("why 10.0.2.2 --from r0 --flow 10.66.0.9,10.0.2.2,udp,1,2");
    assert_eq!(why["does"], "drop", "{why}");
    assert!(why["verdict"].as_str().unwrap().contains("urpf (urpf)"), "{why}");
    let why: Value = router.ask("why 10.0.2.2 --from r0");
    assert_eq!(why["does"], "forward", "a station there would be let pass: {why}");
    let report = router.stop();
    conserved(&report);
    assert_eq!(forged(&report), 2 * EACH, "{report}");
}

#[test]
fn a_path_that_is_not_the_best_is_feasible() {
    let Some(line) = line() else { return };
    for (subnet, gateway) in [("10.66.0.0/16", "10.0.1.2"), ("fd66::/64", "fd01::2")] {
        ip(&format!("-n {} route add {subnet} via {gateway} metric 20", line.router));
    }
    for (check, dropped) in [("strict", 2 * EACH), ("feasible", 0), ("loose", 0), ("off", 0)] {
        let config = Configuration::new(&line, check);
        let router = Router::start(&line.router, &config.words(), 2);
        run(&line.source, "ping -c 2 -i 0.1 -W 2 10.0.2.2");
        send_from_others(&line);
        let report = router.stop();
        conserved(&report);
        assert_eq!(forged(&report), dropped, "{check}: {report}");
        assert!(report["packets_out"].as_u64() >= Some(4), "{check}: {report}");
    }
    // Withdrawn, it is no longer.
    let config = Configuration::new(&line, "feasible");
    let router = Router::start(&line.router, &config.words(), 2);
    for subnet in ["10.66.0.0/16", "fd66::/64"] {
        ip(&format!("-n {} route del {subnet} metric 20", line.router));
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    send_from_others(&line);
    assert_eq!(forged(&router.stop()), 2 * EACH);
}

#[test]
fn the_filter_that_no_longer_holds_is_told() {
    let Some(line) = line() else { return };
    run(&line.router, "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.r0.rp_filter=1");
    run(&line.router, "sysctl -qw net.ipv4.conf.r1.rp_filter=2");
    let warned = |router: &Router| -> Vec<String> {
        let said = router.said();
        said.into_iter().filter(|line| line.contains("reverse-path filter")).collect()
    };
    let router = Router::start(&line.router, "", 2);
    let mut lines = warned(&router);
    // Behind the time.
    lines.sort_by_key(|line| line.split_once(' ').map(|(_, rest)| rest.to_owned()));
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, what) in lines.iter().zip(["r0: the kernel's", "r1: the kernel's"]) {
        assert!(line.contains(what) && line.contains("configure urpf ="), "{lines:?}");
    }
    assert!(lines[0].contains("(strict)") && lines[1].contains("(loose)"), "{lines:?}");
    router.stop();
    let config = Configuration::new(&line, "off");
    let router = Router::start(&line.router, &config.words(), 2);
    let lines = warned(&router);
    assert!(lines.len() == 1 && lines[0].contains("r1:"), "who said `off` knows it: {lines:?}");
    router.stop();
}
