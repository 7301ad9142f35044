//! The service: its package is installed into a fresh Debian, started by systemd, upgraded and restarted under traffic, and
//! removed.
//!
//! `cargo xtask vm service` boots a machine that is this Debian, `cargo xtask soak service 60` a container in a namespace. The
//! kernel's own forwarding is off, and the configuration has it forward in spite of that: what crosses, the router has
//! forwarded.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use fingerpost_tests::debian::{Container, Debian, booted};
use fingerpost_tests::folder::Folder;
use fingerpost_tests::lasting::{Lasting, RATE};
use fingerpost_tests::netns::{ip, ready, run};
use fingerpost_tests::packages::package;
use fingerpost_tests::{emulated, patience, program, program_of_all_features, skip, soak, soaks};
use serde_json::Value;

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
const CONFIG: &str = "/etc/fingerpost/fingerpost.toml";
const ADDRESS: &str = "127.0.0.1:9477";
const DROP_INS: &str = "/etc/systemd/system/fingerpost.service.d";
/// Those of the unit, by their numbers.
const CAPABILITIES: [(&str, u32); 4] =
    [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];

/// Value of a property of the service.
fn property(debian: &Debian, name: &str) -> String {
    let line = format!("systemctl show fingerpost --value -p {name}");
    debian.run(&line).trim_end().to_owned()
}

/// A field of the status file of a process.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
}

/// Writes a drop-in of the unit.
fn drop_in(debian: &Debian, name: &str, text: &str) {
    let file = format!("{DROP_INS}/{name}.conf");
    debian.run(&format!("mkdir -p {DROP_INS}; printf '{text}' > {file}; systemctl daemon-reload"));
}

/// The two packages, in the order of their versions. Those of a machine were made before it booted.
fn packages(folder: &Folder) -> [PathBuf; 2] {
    if let Some(made) = booted() {
        return ["1.deb", "2.deb"].map(|name| made.join(name));
    }
    let first = program().expect("the line was made with it");
    let second = program_of_all_features().unwrap_or_else(|| first.clone());
    [(1, first), (2, second)].map(|(revision, program)| {
        let into = folder.path().join(revision.to_string());
        let made = package(&program, &into, &format!("deb --revision {revision}"));
        made.into_iter().next().expect("one package")
    })
}

/// How long packets go: an upgrade and a restart must end before.
fn traffic_seconds() -> u64 {
    soak(Duration::from_secs(if emulated() { 300 } else { 60 })).as_secs()
}

#[test]
fn a_package_is_installed_run_upgraded_and_removed() {
    let machine = booted().is_some();
    if !machine && !soaks() {
        return skip("cargo xtask vm service, or cargo xtask soak service 60");
    }
    let tools: &[&str] =
        if machine { &[] } else { &["mmdebstrap", "systemd-nspawn", "dpkg-deb", "strip"] };
    if !ready(tools) || !ready(&["prlimit", "curl"]) {
        return;
    }
    let line = if machine { Lasting::around_host(TRANSFER) } else { Lasting::new(TRANSFER) };
    let Some(line) = line else { return };
    let debian = if machine {
        Some(Debian::Machine)
    } else {
        Container::start(&line.line.router).map(Debian::Container)
    };
    let Some(debian) = debian else { return };
    println!("the first process is {}", debian.run("cat /proc/1/comm").trim_end());
    let folder = Folder::new(&format!("service-{}", std::process::id()));
    for (revision, made) in [1, 2].into_iter().zip(packages(&folder)) {
        debian.copy(&made, &format!("/opt/{revision}.deb"));
    }
    debian.run("dpkg -i /opt/1.deb");
    // It takes interfaces over only when it is told to.
    assert_eq!(property(&debian, "ActiveState"), "inactive");
    assert_eq!(property(&debian, "UnitFileState"), "disabled");
    let pages = "test -f /usr/share/man/man1/fingerpost-run.1.gz -a -f /usr/share/bash-completion/completions/fingerpost";
    debian.run(pages);
    debian.run(&format!("fingerpost config check {CONFIG}"));
    debian.run(&format!("sed -i 's/^nonstop_s.*/&\\nignore = [\"forwarding\"]/' {CONFIG}"));
    let more = format!("[listen]\\naddress = \"{ADDRESS}\"\\n[log]\\nformat = \"journald\"\\n");
    debian.run(&format!("printf '{more}' >> {CONFIG}"));
    run(&line.line.router, "ip link set lo up");
    // A service manager that may not raise limits cannot do without the capability.
    let limit = ["--memlock=unlimited:unlimited", "true"];
    let raises = Command::new("prlimit").args(limit).output().is_ok_and(|o| o.status.success());
    // Short enough that this test would outlive a service without signs of life.
    let watchdog = patience(Duration::from_secs(3)).as_secs();
    drop_in(&debian, "watchdog", &format!("[Service]\\nWatchdogSec={watchdog}\\n"));
    let mut allowed: u64 = CAPABILITIES.iter().map(|(_, number)| 1u64 << number).sum();
    if !raises {
        println!("without CAP_SYS_RESOURCE here: the unit gets CAP_IPC_LOCK");
        let text =
            "[Service]\\nAmbientCapabilities=CAP_IPC_LOCK\\nCapabilityBoundingSet=CAP_IPC_LOCK\\n";
        drop_in(&debian, "memlock", text);
        allowed |= 1 << 14;
    }
    each_missing_capability_is_named(&debian, raises);
    debian.run("systemctl start fingerpost");
    println!("{}", debian.run("systemctl status --no-pager -n0 fingerpost"));
    runs_with_what_the_unit_grants(&debian, allowed);
    line.warm_up();
    assert!(line.has_program("r0") && line.has_program("r1"));
    debian.run("fingerpost interface show");
    for (path, words) in [("/", "<title>Fingerpost"), ("/metrics", "fingerpost_interface_")] {
        let body = run(&line.line.router, &format!("curl -s -m 10 http://{ADDRESS}{path}"));
        assert!(body.contains(words), "{path}: {body}");
    }
    it_reloads_what_is_valid(&debian);
    the_journal_has_fields(&debian);
    upgraded_without_a_loss(&line, &debian);
    let said = debian.run("journalctl --no-pager -o cat -u fingerpost");
    for wrong in ["Watchdog timeout", "are not refused", "are kept"] {
        assert!(!said.contains(wrong), "{wrong}: {said}");
    }
    one_that_hangs_is_replaced(&debian);
    assert!(line.has_program("r0") && line.has_program("r1"));
    line.warm_up();
    debian.run("dpkg --purge fingerpost");
    assert!(!line.has_program("r0") && !line.has_program("r1"), "the kernel has them");
    debian.run("test ! -e /etc/fingerpost/fingerpost.toml -a ! -e /var/lib/fingerpost");
    assert!(!debian.try_run("mountpoint -q /run/fingerpost/bpf").status.success());
}

/// Each of the unit's capabilities in turn is left out: the service ends at once, with one line that names it.
fn each_missing_capability_is_named(debian: &Debian, raises: bool) {
    let lock = if raises { "" } else { "CAP_IPC_LOCK" };
    for (missing, _) in CAPABILITIES {
        let others = CAPABILITIES.iter().map(|(name, _)| *name).filter(|name| *name != missing);
        let others = others.chain([lock]).collect::<Vec<_>>().join(" ");
        // An empty value first: a list begins anew.
        let text = format!("[Service]\\nAmbientCapabilities=\\nAmbientCapabilities={others}\\n");
        drop_in(debian, "missing", &text);
        assert!(!debian.try_run("systemctl start fingerpost").status.success(), "{missing}");
        assert_eq!(property(debian, "ExecMainStatus"), "4", "{missing}");
        let said = debian.run("journalctl --no-pager -o cat -t fingerpost -n 1");
        assert!(said.contains("are missing: "), "{missing}: {said}");
        for (name, _) in CAPABILITIES {
            assert_eq!(said.contains(&format!("{name} (")), name == missing, "{missing}: {said}");
        }
    }
    debian.run(&format!("rm {DROP_INS}/missing.conf; systemctl daemon-reload"));
    debian.run("systemctl reset-failed fingerpost");
}

/// Its user, its capabilities, its filter of system calls, and what systemd knows of it.
fn runs_with_what_the_unit_grants(debian: &Debian, allowed: u64) {
    assert_eq!(property(debian, "ActiveState"), "active");
    let status = property(debian, "StatusText");
    assert!(status.starts_with("Forwarding on 2 interfaces, with "), "{status}");
    let pid = property(debian, "MainPID");
    let user = debian.run("id -u fingerpost").trim_end().to_owned();
    let tasks = debian.run(&format!("ls /proc/{pid}/task"));
    for task in tasks.split_whitespace() {
        let status = debian.run(&format!("cat /proc/{pid}/task/{task}/status"));
        assert_eq!(field(&status, "Uid").split('\t').next(), Some(&*user), "{status}");
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            let held = u64::from_str_radix(&field(&status, set), 16).expect("a number");
            assert_eq!(held & !allowed, 0, "{set}: {status}");
        }
        assert_eq!((&*field(&status, "NoNewPrivs"), &*field(&status, "Seccomp")), ("1", "2"));
    }
    let sockets = debian.run("stat -c '%a %U %G' /run/fingerpost/*.sock /run/fingerpost/*.sock.ro");
    assert_eq!(sockets, "660 fingerpost fingerpost-admin\n660 fingerpost fingerpost\n");
}

/// A configuration that is valid is applied; another one changes nothing.
fn it_reloads_what_is_valid(debian: &Debian) {
    debian.run(&format!("printf '[fib]\\nalgorithm_v4 = \"bc18\"\\n' >> {CONFIG}"));
    debian.run("systemctl reload fingerpost");
    let applied = debian.run("journalctl --no-pager -o cat -u fingerpost");
    assert!(applied.contains("fib.algorithm_v4: auto -> bc18"), "{applied}");
    debian.run(&format!("cp {CONFIG} /opt/config; echo 'algorithm_v6 = 7' >> {CONFIG}"));
    assert!(!debian.try_run("systemctl reload fingerpost").status.success());
    assert_eq!(property(debian, "ActiveState"), "active", "what is refused changes nothing");
    debian.run(&format!("mv /opt/config {CONFIG}"));
}

/// Events are found by their fields, and have those that the journal adds.
fn the_journal_has_fields(debian: &Debian) {
    let of = |target: &str| -> Vec<Value> {
        let line =
            format!("journalctl --no-pager -o json -t fingerpost FINGERPOST_TARGET={target}");
        let parsed = |line| serde_json::from_str(line).expect("a line is JSON");
        debian.run(&line).lines().map(parsed).collect()
    };
    let summary = of("run").into_iter().find(|event| event["FINGERPOST_WORKERS"].is_string());
    let summary = summary.expect("it forwards, and has reported it");
    let unit = [
        ("FINGERPOST_INTERFACES", "2"),
        ("PRIORITY", "6"),
        ("_SYSTEMD_UNIT", "fingerpost.service"),
        ("_TRANSPORT", "journal"),
    ];
    for (name, wanted) in unit {
        assert_eq!(summary[name], wanted, "{summary}");
    }
    // The reload above, by its user.
    let changes = of("control");
    let uid = debian.run("id -u fingerpost").trim_end().to_owned();
    let reload = changes.iter().find(|event| event["FINGERPOST_UID"] == *uid);
    assert!(reload.is_some(), "{changes:?}");
}

/// A process that gives no sign of life is replaced, and what was taken over stays so.
fn one_that_hangs_is_replaced(debian: &Debian) {
    let before = property(debian, "MainPID");
    debian.run(&format!("kill -s STOP {before}"));
    let until = Instant::now() + patience(Duration::from_secs(30));
    let replaced = |now: &str| now != before && now != "0";
    while !replaced(&property(debian, "MainPID")) || property(debian, "ActiveState") != "active" {
        assert!(Instant::now() < until, "{before} is still there");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(property(debian, "NRestarts"), "1");
    let said = debian.run("journalctl --no-pager -o cat -u fingerpost");
    assert!(said.contains("Watchdog timeout"), "{said}");
}

/// Packets that the source could not hand to the router.
fn lost_before(line: &Lasting) -> u64 {
    let shown = ip(&format!("-n {} -s -j link show dev s0", line.line.source));
    let shown: Value = serde_json::from_str(&shown).expect("it is JSON");
    shown[0]["stats64"]["tx"]["dropped"].as_u64().expect("a number")
}

/// An upgrade, and a restart, while packets go. An emulated machine may be too slow for its own source; a real one is not.
fn upgraded_without_a_loss(line: &Lasting, debian: &Debian) {
    let before = property(debian, "MainPID");
    let seconds = traffic_seconds();
    let lost = lost_before(line);
    let rate = if emulated() { RATE / 15 } else { RATE };
    let traffic = line.traffic_to("10.9.0.1:7200", rate, seconds);
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    debian.run("dpkg --force-confold -i /opt/2.deb");
    let upgraded = property(debian, "MainPID");
    assert!(upgraded != before && upgraded != "0", "another process runs");
    assert_eq!(property(debian, "ActiveState"), "active");
    let metrics = || run(&line.line.router, &format!("curl -s -m 30 http://{ADDRESS}/metrics"));
    let mut counted = metrics();
    debian.run("systemctl restart fingerpost");
    println!(
        "upgraded and restarted in {:.1} s, under traffic of {seconds} s",
        began.elapsed().as_secs_f64()
    );
    let left = Duration::from_secs(seconds).checked_sub(began.elapsed());
    assert!(left > Some(Duration::from_millis(500)), "the traffic ended before");
    assert_ne!(property(debian, "MainPID"), upgraded);
    let (sent, arrived) = traffic.end();
    let lost = lost_before(line) - lost;
    println!("{arrived} of {sent} arrived, {lost} did not get to the router");
    counted += &metrics();
    let drops = counted.lines().filter(|row| row.starts_with("fingerpost_dropped_packets_total{"));
    let drops: Vec<&str> = drops.filter(|row| !row.ends_with(" 0")).collect();
    let counters = || run(&line.line.router, "ip -s -s link show");
    assert_eq!(sent, arrived + lost, "{drops:#?}{}", counters());
    assert!(lost == 0 || emulated(), "{lost} of {sent}");
    println!("drops that the router counted: {drops:?}");
    let kept = debian.run(&format!("dpkg -s fingerpost; cat {CONFIG}"));
    assert!(kept.contains("-2\n") && kept.contains("ignore = [\"forwarding\"]"), "{kept}");
}
