//! Messages of the kernel that are lost: all routes are read again, none is missing, and people see why and how long it
//! took. So it is with messages that nobody reports as lost, which a comparison finds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use fingerpost_tests::netns::{Line, Router, batch, run};
use fingerpost_tests::patience;
use serde_json::Value;

/// Changes of routes, in all.
const CHANGES: usize = 100_000;
/// Changes that the router has no time to read: the messages of ten fill its buffer.
const UNREAD: usize = 1_000;
/// Longest time from the last change to the same routes as the kernel has.
const LONGEST: Duration = Duration::from_secs(60);

/// The network number `i`, a /24.
fn prefix(i: usize) -> String {
    format!("{}.{}.{}.0/24", 20 + i / 65_536, i / 256 % 256, i % 256)
}

/// Gateways of the kernel's routes of the main table, by prefix.
fn of_kernel(namespace: &str) -> BTreeMap<String, String> {
    let text = run(namespace, "ip -o route show");
    let row = |row: &str| {
        let (prefix, rest) = row.split_once(' ')?;
        let gateway = rest.split_once("via ")?.1.split(' ').next()?;
        Some((prefix.to_owned(), gateway.to_owned()))
    };
    text.lines().filter_map(row).collect()
}

/// Those that the router has.
fn of_router(router: &Router) -> BTreeMap<String, String> {
    let rows: Vec<Value> = router.ask_lines("route show --source kernel");
    let row = |row: &Value| {
        let gateway = row["paths"][0]["gateway"].as_str().filter(|_| row["table"] == 254)?;
        let prefix = row["prefix"].as_str().filter(|prefix| !prefix.contains(':'))?;
        Some((prefix.to_owned(), gateway.to_owned()))
    };
    rows.iter().filter_map(row).collect()
}

#[test]
fn no_route_is_missing_when_messages_are_lost() {
    let Some(line) = Line::new(&[]) else { return };
    let config = std::env::temp_dir().join(format!("{}-resync.toml", line.router));
    let text = "[[source]]\nkind = \"kernel\"\nreceive_buffer_kib = 4\n";
    std::fs::write(&config, text).expect("the temporary folder can be written");
    let router = Router::start(&line.router, &format!("{} --path graph", config.display()), 2);
    let kernel = || router.source("kernel");
    // So small a buffer may be full at the start already.
    let before = kernel()["resyncs"].as_u64();
    // Three fifths are new routes; a fifth of the changes leads some of them elsewhere, and a fifth takes others away.
    let (new, fifth) = (CHANGES * 3 / 5, CHANGES / 5);
    let mut lines = String::new();
    for i in 0..new {
        let _ = writeln!(lines, "route add {} via 10.0.2.2", prefix(i));
    }
    for i in 0..fifth {
        let _ = writeln!(lines, "route replace {} via 10.0.1.2", prefix(3 * i));
        let _ = writeln!(lines, "route del {}", prefix(3 * i + 1));
    }
    assert_eq!(lines.lines().count(), CHANGES);
    // The router does not read the first of them, as when it is busy: a slow machine would not fill its buffer otherwise.
    let (first, rest) =
        lines.split_at(lines.match_indices('\n').nth(UNREAD).expect("a line").0 + 1);
    router.signal("STOP");
    batch(&line.router, first);
    router.signal("CONT");
    batch(&line.router, rest);
    let (changed, want) = (Instant::now(), of_kernel(&line.router));
    assert_eq!(want.len(), new - fifth);
    let same = || kernel()["in_sync"] == true && of_router(&router) == want;
    while !same() {
        let differ = of_router(&router).len().abs_diff(want.len());
        let waited = changed.elapsed();
        assert!(waited < patience(LONGEST), "{differ} routes after {waited:?}: {}", kernel());
        std::thread::sleep(Duration::from_millis(100));
    }
    let row = kernel();
    println!(
        "the same {} routes {:.1?} after the last change: {row}",
        want.len(),
        changed.elapsed()
    );
    assert!(row["resyncs"].as_u64() > before, "{row}");
    assert!(row["resync_ms"].as_f64() > Some(0.0), "{row}");
    assert!(row["resync_reason"].as_str().is_some_and(|why| why.contains("ENOBUFS")), "{row}");
    // In text, too.
    let shown = run(&line.router, &format!("{} source show", program()));
    assert!(shown.contains("resync ms") && shown.contains("ENOBUFS"), "{shown}");
    router.stop();
    let _ = std::fs::remove_file(config);
}

/// Sets the filter of the netlink socket of a process that follows routes: one that drops what is about routes, or one that
/// drops nothing. The socket is found by the groups that it has joined, and reached as a debugger would (`pidfd_getfd`).
const FILTER: &str = r#"
import ctypes, os, socket, struct, sys
pid, drop = int(sys.argv[1]), sys.argv[2] == "drop"
# RTNLGRP_IPV4_ROUTE and RTNLGRP_IPV6_ROUTE.
wanted = 1 << 6 | 1 << 10
rows = [line.split() for line in open(f"/proc/{pid}/net/netlink")][1:]
inodes = {row[9] for row in rows if row[1] == "0" and int(row[3], 16) & wanted == wanted}
fds = [fd for fd in os.listdir(f"/proc/{pid}/fd")
       if os.readlink(f"/proc/{pid}/fd/{fd}") in {f"socket:[{inode}]" for inode in inodes}]
assert len(fds) == 1, (fds, rows)
pidfd = os.pidfd_open(pid)
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(438, pidfd, int(fds[0]), 0)
assert fd >= 0, os.strerror(ctypes.get_errno())
# The type of the message, as a number in network order: RTM_NEWROUTE 24, RTM_DELROUTE 25.
new, deleted = (socket.htons(kind) for kind in (24, 25))
code = [(0x28, 0, 0, 4), (0x15, 1, 0, new), (0x15, 0, 1, deleted), (6, 0, 0, 0), (6, 0, 0, 0xffffffff)]
if not drop:
    code = code[-1:]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in code))
program = struct.pack("HL", len(code), ctypes.addressof(filter))
# SO_ATTACH_FILTER
socket.socket(fileno=fd).setsockopt(socket.SOL_SOCKET, 26, program)
"#;

#[test]
fn a_silent_loss_is_found_and_changes_under_way_are_none() {
    let Some(line) = Line::new(&["python3"]) else { return };
    let r = &line.router;
    let config = std::env::temp_dir().join(format!("{r}-silent.toml"));
    let script = std::env::temp_dir().join(format!("{r}-filter.py"));
    std::fs::write(&config, "[[source]]\nkind = \"kernel\"\ncompare_s = 1\n")
        .expect("the temporary folder can be written");
    std::fs::write(&script, FILTER).expect("the temporary folder can be written");
    let router = Router::start(r, &format!("{} --path graph", config.display()), 2);
    let filter = |word: &str| {
        run(r, &format!("python3 {} {} {word}", script.display(), router.pid()));
    };
    let kernel = || router.source("kernel");
    let number = |name: &str| kernel()[name].as_u64().expect("a count");
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < patience(LONGEST), "waited for {what}: {}", kernel());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let same = |what: &str| {
        let want = of_kernel(r);
        wait(what, &|| kernel()["in_sync"] == true && of_router(&router) == want);
        want.len()
    };
    let routes = 5_000;
    let each = |words: &dyn Fn(usize) -> String| (0..routes).map(words).collect::<String>();
    batch(r, &each(&|i| format!("route add {} via 10.0.2.2\n", prefix(i))));
    assert_eq!(same("the routes"), routes);
    // Routes change all the time while comparisons go on, and none of them finds a loss.
    let (before, begun) = (number("comparisons"), Instant::now());
    while number("comparisons") < before + 4 {
        batch(r, &each(&|i| format!("route replace {} via 10.0.1.2\n", prefix(i))));
        batch(r, &each(&|i| format!("route del {}\n", prefix(i))));
        batch(r, &each(&|i| format!("route add {} via 10.0.2.2\n", prefix(i))));
        assert!(begun.elapsed() < patience(LONGEST), "{}", kernel());
    }
    assert_eq!(same("the routes as before"), routes);
    let quiet = kernel();
    assert_eq!(quiet["resyncs"], 0, "{quiet}");
    // A link that changes has all of it read again, and nothing was lost.
    let dumps = number("dumps");
    run(r, "ip link add c0 type veth peer name c1");
    run(r, "ip addr add 203.0.113.1/24 dev c0");
    for link in ["c0", "c1"] {
        run(r, &format!("ip link set {link} up"));
    }
    run(r, "ip link set c0 down");
    wait("a dump", &|| number("dumps") > dumps);
    assert_eq!(same("the same routes"), routes);
    let quiet = kernel();
    assert_eq!(quiet["resyncs"], 0, "{quiet}");
    let dumps = number("dumps");
    // From here on the source is not told of routes: one is new, one leads elsewhere, one is gone.
    filter("drop");
    let changes = [
        "route add 198.51.100.0/24 via 10.0.1.2".to_owned(),
        format!("route replace {} via 10.0.1.2", prefix(7)),
        format!("route del {}", prefix(9)),
    ];
    batch(r, &changes.join("\n"));
    let stale = of_router(&router);
    assert!(!stale.contains_key("198.51.100.0/24") && stale.contains_key(&prefix(9)));
    filter("pass");
    let changed = Instant::now();
    wait("a resynchronization", &|| number("resyncs") == 1);
    println!("found {:.1?} after the loss", changed.elapsed());
    assert_eq!(same("what was lost"), routes);
    wait("the end of it", &|| kernel()["resync_reason"] != quiet["resync_reason"]);
    let row = kernel();
    // As many went as came: those that went were not looked for.
    let why = "silent loss: 2 routes differ, e.g. 198.51.100.0/24";
    assert_eq!(row["resync_reason"], why, "{row}");
    assert!(row["resync_ms"].as_f64() > Some(0.0), "{row}");
    let line = format!("source kernel: {why}");
    assert!(router.said().iter().any(|said| said.contains(&line)), "{:#?}", router.said());
    // It follows again, and has nothing more to find.
    run(r, "ip route del 198.51.100.0/24");
    let done = number("comparisons");
    wait("further comparisons", &|| number("comparisons") >= done + 2);
    assert!(number("resyncs") == 1 && number("dumps") > dumps, "{}", kernel());
    assert_eq!(same("the last change"), routes - 1);
    router.stop();
    for file in [config, script] {
        let _ = std::fs::remove_file(file);
    }
}

fn program() -> String {
    fingerpost_tests::program().expect("the line was made with it").display().to_string()
}
