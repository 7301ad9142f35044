//! Access lists and policers of a running router, with hosts on both sides.

use std::path::PathBuf;
use std::process::Stdio;

use fingerpost_tests::netns::{Line, Router, command, conserved, exec, ip, run};
use fingerpost_tests::traffic::Traffic;
use fingerpost_tests::world::Listener;
use serde_json::Value;

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// A second address of the destination, which rules deny.
const DENIED: &str = "10.0.2.3";

struct Lab {
    line: Line,
    folder: PathBuf,
}

impl Lab {
    fn new(tools: &[&str]) -> Option<Self> {
        let line = Line::new(tools)?;
        ip(&format!("-n {} addr add {DENIED}/24 dev d0", line.destination));
        let folder = std::env::temp_dir().join(format!("fpacl-{}", line.router));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        Some(Self { line, folder })
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, text).expect("the folder was made");
        path.display().to_string()
    }

    /// Whether pings from the source are answered.
    fn pings(&self, addr: &str) -> bool {
        let words = format!("ping -q -c 3 -i 0.2 -W 1 {addr}");
        exec(&self.line.source, &words).status.success()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn acl(rules: &[&str]) -> String {
    format!(
        "[[acl]]\nname = \"edge\"\ninterfaces = [\"r0\"]\ndirection = \"in\"\nrules = {rules:?}\n"
    )
}

/// Packets that the rule with this text took.
fn hits(router: &Router, rule: &str) -> u64 {
    let rows: Vec<Value> = router.ask("acl show");
    let row = rows.iter().find(|row| row["rule"] == rule);
    row.and_then(|row| row["packets"].as_u64()).unwrap_or_else(|| panic!("no {rule}: {rows:#?}"))
}

/// Rules decide, count, and are exchanged while packets cross, by this path.
fn rules_on(path: &str) {
    let Some(lab) = Lab::new(&["ping", "ethtool"]) else { return };
    // A veth takes packets from XDP while its peer has GRO.
    for (namespace, link) in [(&lab.line.source, "s0"), (&lab.line.destination, "d0")] {
        run(namespace, &format!("ethtool -K {link} gro on"));
    }
    let denies = format!("deny dst {DENIED}");
    let first = lab.file("first.toml", &acl(&["count icmp", &denies, "permit all"]));
    let router = Router::start(&lab.line.router, &format!("{first} --path {path}"), 2);
    let stays = |when: &str| {
        for row in router.ask::<Vec<Value>>("interface show") {
            assert!(row["name"] == "lo" || row["path"] == path, "{when}: {row}");
        }
    };
    stays("at the start");
    assert!(lab.pings("10.0.2.2") && lab.pings("fd02::2"));
    assert!(!lab.pings(DENIED));
    assert_eq!(hits(&router, &denies), 3);
    assert!(hits(&router, "count icmp") >= 6, "of IPv4 alone");
    let why: Value = router.ask(&format!("why {DENIED} --from r0"));
    assert!(why.to_string().contains(&format!("ACL edge, rule 2: {denies}")), "{why}");

    // Other rules, while pings cross: none is lost, and the counts of rules that stay go on.
    let counted = hits(&router, "count icmp");
    let words = "ping -q -c 200 -i 0.01 -W 1 10.0.2.2";
    let crossing = command(&lab.line.source, words).stdout(Stdio::piped()).spawn().expect("ping");
    let second = acl(&["permit dst 10.0.2.0/24", "count icmp", "deny ip vers 4"])
        + "[[source_filter]]\nname = \"seen\"\naction = \"count\"\nprefixes = [\"10.0.0.0/8\"]\n";
    let second = lab.file("second.toml", &second);
    let program = fingerpost_tests::program().expect("the line was made with it");
    run(&lab.line.router, &format!("{} config apply {second}", program.display()));
    stays("with other rules");
    assert!(lab.pings(DENIED) && !lab.pings("fd02::2"), "what no rule decides is denied");
    let output = crossing.wait_with_output().expect("it was started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(" 0% packet loss"), "{said}");
    assert!(hits(&router, "count icmp") >= counted);
    assert!(hits(&router, "permit dst 10.0.2.0/24") >= 3);
    let report = router.stop();
    conserved(&report);
    assert!(report["dropped"]["acl"].as_u64() >= Some(6), "{report}");
    let in_xdp = report["forwarded_xdp"].as_u64().expect("a count");
    assert_eq!(in_xdp >= 200, path == "xdp", "{report}");
}

#[test]
fn rules_permit_deny_and_count_and_are_replaced_in_the_graph() {
    rules_on("afxdp");
}

#[test]
fn rules_permit_deny_and_count_and_are_replaced_in_xdp() {
    rules_on("xdp");
}

fn policer(more: &str) -> String {
    format!("[[policer]]\nname = \"customer\"\ninterface = \"r1\"\ndirection = \"out\"\n{more}")
}

#[test]
fn a_policer_holds_its_rate() {
    let Some(lab) = Lab::new(&["ping"]) else { return };
    let text = policer("match = \"udp\"\nrate = 500\nburst = 50\n");
    let file = lab.file("police.toml", &text);
    let router = Router::start(&lab.line.router, &format!("{file} --path afxdp"), 2);
    assert!(lab.pings("10.0.2.2"));
    let counts = Traffic::begin(TRANSFER, &lab.line, &["10.0.2.2"], 2_000, 3).end();
    let rows: Vec<Value> = router.ask("policer show");
    println!("{counts:?}, {rows:?}");
    // The rate over some three seconds, and the burst; a busy machine sends for longer.
    assert!((1_200..=2_300).contains(&counts.received), "{counts:?}");
    assert_eq!(rows[0]["packets"].as_u64(), Some(counts.sent));
    assert_eq!(rows[0]["exceeding"].as_u64(), Some(counts.lost()));
    let report = router.stop();
    conserved(&report);
    assert_eq!(report["dropped"]["policer"].as_u64(), Some(counts.lost()), "{report}");
}

#[test]
fn what_exceeds_is_marked() {
    let Some(lab) = Lab::new(&["ping"]) else { return };
    let text = policer("match = \"udp\"\nrate = 100\nburst = 10\nexceed = \"dscp 8\"\n");
    let file = lab.file("mark.toml", &text);
    let router = Router::start(&lab.line.router, &format!("{file} --path afxdp"), 2);
    assert!(lab.pings("10.0.2.2"));
    let listener = Listener::start(&lab.line.destination, "d0");
    let counts = Traffic::begin(TRANSFER, &lab.line, &["10.0.2.2"], 1_000, 1).end();
    let frames = listener.frames();
    let udp = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == 17 && frame[33] == 2;
    let frames: Vec<&Vec<u8>> =
        frames.iter().map(|(_, frame)| frame).filter(|frame| udp(frame)).collect();
    let marked = frames.iter().filter(|frame| frame[15] == 8 << 2).count();
    println!("{marked} of {} frames marked, {counts:?}", frames.len());
    assert_eq!(counts.lost(), 0, "nothing is dropped, and checksums are right");
    assert!(marked > frames.len() / 2 && marked < frames.len());
    conserved(&router.stop());
}
