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

/// Whether a TCP segment to port 22 reaches the router itself, which refuses the connection.
fn reaches_ssh(lab: &Lab, addr: &str) -> bool {
    let mut connect = command(&lab.line.source, "timeout 0.7 bash -c");
    let output = connect.arg(format!("</dev/tcp/{addr}/22")).output().expect("bash was found");
    output.status.code() != Some(124)
}

/// Packets to the router itself are decided by lists that are local, and by no others, while the configuration changes and
/// other packets cross.
fn local_lists_on(path: &str) {
    const RULES: [&str; 4] = [
        "deny icmp and dst 10.0.1.1 and ip len 100",
        "deny icmp6 type 128 and dst fd01::1 and ip len 100",
        "deny tcp dst port 22",
        "permit all",
    ];
    let Some(lab) = Lab::new(&["ping", "ethtool", "bash", "timeout"]) else { return };
    for (namespace, link) in [(&lab.line.source, "s0"), (&lab.line.destination, "d0")] {
        run(namespace, &format!("ethtool -K {link} gro on"));
    }
    // Addresses of the source that are on a list; nothing is sent from them unless it names them.
    ip(&format!("-n {} addr add 10.0.1.66/24 dev s0", lab.line.source));
    ip(&format!("-n {} addr add fd01::66/64 dev s0 nodad preferred_lft 0", lab.line.source));
    let lists = |local: &str| {
        format!(
            "{}{local}[[source_filter]]\nname = \"bad\"\naction = \"drop\"\n\
             prefixes = [\"10.0.1.66\", \"fd01::66\"]\ninterfaces = [\"r0\"]\n{local}",
            acl(&RULES)
        )
    };
    let forwarded = lab.file("forwarded.toml", &lists(""));
    let local = lab.file("local.toml", &lists("local = true\n"));
    let router = Router::start(&lab.line.router, &format!("{forwarded} --path {path}"), 2);
    let program = fingerpost_tests::program().expect("the line was made with it");
    // Other packets cross meanwhile, and none is lost.
    let apply = |file: &str| {
        let words = "ping -q -c 150 -i 0.01 -W 1 10.0.2.2";
        let crossing = command(&lab.line.source, words).stdout(Stdio::piped()).spawn();
        run(&lab.line.router, &format!("{} config apply {file}", program.display()));
        let output = crossing.and_then(|crossing| crossing.wait_with_output()).expect("ping");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(" 0% packet loss"), "{path}: {said}");
    };
    // With IP header an echo request has 28 bytes more, or 48.
    let echoes = ["-s 72 10.0.1.1", "-s 52 fd01::1"];
    let listed = ["-I 10.0.1.66 10.0.1.1", "-I fd01::66 fd01::1"];
    let all_pass = |when: &str| {
        for words in echoes.iter().chain(&listed) {
            assert!(lab.pings(words), "{path}, {when}: {words}");
        }
        assert!(reaches_ssh(&lab, "10.0.1.1") && reaches_ssh(&lab, "fd01::1"), "{path}, {when}");
    };
    let why = |flow: &str| -> Value {
        let addr = flow.split(',').nth(1).expect("source and destination");
        router.ask(&format!("why {addr} --from r0 --flow {flow}"))
    };
    let ssh = "10.0.1.2,10.0.1.1,tcp,1024,22";
    assert_eq!(why(ssh)["does"], "local");
    all_pass("before");
    // Neighbors are resolved before it counts whether packets that cross are lost.
    assert!(lab.pings("10.0.2.2") && lab.pings("fd02::2"), "{path}");

    apply(&local);
    for row in router.ask::<Vec<Value>>("interface show") {
        assert!(row["name"] == "lo" || row["path"] == path, "{path}: {row}");
        let features = row["features"].as_array().expect("a list").iter();
        let local = features.filter(|feature| feature["settings"].to_string().contains("local"));
        assert_eq!(local.count(), if row["name"] == "r0" { 2 } else { 0 }, "{path}: {row}");
        assert!(!row.to_string().contains("packets to the router itself pass"), "{path}: {row}");
    }
    for words in echoes.iter().chain(&listed) {
        assert!(!lab.pings(words), "{path}: {words}");
    }
    assert!(!reaches_ssh(&lab, "10.0.1.1") && !reaches_ssh(&lab, "fd01::1"), "{path}");
    for rule in &RULES[..2] {
        assert_eq!(hits(&router, rule), 3, "{path}: {rule}");
    }
    let segments = hits(&router, RULES[2]);
    assert!(segments >= 2, "{path}: {segments}");
    let rows: Vec<Value> = router.ask("source-filter show");
    assert_eq!(rows[0]["packets"].as_u64(), Some(6), "{path}: {rows:?}");
    assert_eq!(rows[0]["dropped"].as_u64(), Some(6), "{path}: {rows:?}");
    // What no list drops passes, to the other end of the router too, and what crosses does.
    for addr in ["10.0.1.1", "fd01::1", "10.0.2.1", "fd02::1", "10.0.2.2", "fd02::2"] {
        assert!(lab.pings(addr), "{path}: {addr}");
    }
    for (flow, want) in [
        (ssh, "acl drops it in XDP: ACL edge, rule 3: deny tcp dst port 22"),
        ("fd01::2,fd01::1,tcp,1024,22", "ACL edge, rule 3: deny tcp dst port 22"),
        ("10.0.1.66,10.0.1.1,udp,1,2", "source-filter drops it in XDP: source filter bad"),
    ] {
        let answer = why(flow);
        assert_eq!(answer["does"], "drop", "{path}: {answer}");
        assert!(answer["verdict"].to_string().contains(want), "{path}: {answer}");
    }
    assert_eq!(why("10.0.1.2,10.0.1.1,tcp,1024,23")["does"], "local");

    apply(&forwarded);
    all_pass("after");
    let report = router.stop();
    conserved(&report);
    assert_eq!(report["dropped"]["acl"].as_u64(), Some(6 + segments), "{path}: {report}");
    assert_eq!(report["dropped"]["source_filter"].as_u64(), Some(6), "{path}: {report}");
}

#[test]
fn local_lists_hold_for_packets_to_the_router_itself_in_xdp() {
    local_lists_on("xdp");
}

#[test]
fn local_lists_hold_for_packets_to_the_router_itself_with_af_xdp() {
    local_lists_on("afxdp");
}

/// Generic mode, where the program runs behind the driver.
#[test]
fn local_lists_hold_for_packets_to_the_router_itself_in_generic_mode() {
    let Some(lab) = Lab::new(&["ping"]) else { return };
    let rules = ["deny icmp and dst 10.0.1.1", "permit all"];
    let modes = "[[interface]]\nname = \"r0\"\nmode = \"generic\"\n[[interface]]\nname = \"r1\"\n";
    let file = lab.file("generic.toml", &format!("{modes}{}local = true\n", acl(&rules)));
    let router = Router::start(&lab.line.router, &file, 2);
    assert!(!lab.pings("10.0.1.1") && lab.pings("10.0.2.1") && lab.pings("10.0.2.2"));
    assert_eq!(hits(&router, rules[0]), 3);
    conserved(&router.stop());
}

/// An interface that stays with the kernel has no program that applies the list, and the router reports that.
#[test]
fn a_local_list_that_does_not_hold_is_reported() {
    let Some(lab) = Lab::new(&["ping"]) else { return };
    let text =
        acl(&["deny icmp and dst 10.0.1.1", "permit all"]).replace("[\"r0\"]", "[\"r0\", \"r1\"]");
    let file = lab.file("only.toml", &format!("{text}local = true\n"));
    let router = Router::start(&lab.line.router, &format!("{file} --only r0"), 1);
    let passes = "packets to the router itself pass: the interface has no XDP program";
    router.wait_for("to report it", |said| {
        let start = "acl (edge (in, local)) of r1 does not hold: ";
        said.iter().any(|line| line.contains(start) && line.contains(passes))
    });
    assert!(!router.said().iter().any(|line| line.contains("of r0 does not hold")));
    let rows: Vec<Value> = router.ask("interface show");
    let row = rows.iter().find(|row| row["name"] == "r1").expect("it is shown");
    assert!(row["features"][0]["why"].to_string().contains(passes), "{row}");
    assert!(!lab.pings("10.0.1.1"));
    conserved(&router.stop());
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
