//! What the router may do is decided by capabilities and not by the user, each missing one is named, and what is
//! not needed any more is given up.
//!
//! The kernel's own forwarding is off: what crosses, the router has forwarded.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output};

use fingerpost_io::xdp::Pins;
use fingerpost_tests::netns::{Line, Router, command, command_beside, conserved, exec, ip, run};
use fingerpost_tests::{program, skip};
use serde_json::Value;

/// A user and a group that own nothing.
const NOBODY: &str = "65534";
/// All that forwarding needs: as setpriv has them, their numbers, and a word of the message about their purpose.
const NEEDED: [(&str, u32, &str); 5] = [
    ("net_admin", 12, "XDP programs on interfaces"),
    ("net_raw", 13, "AF_XDP and packet sockets"),
    ("bpf", 39, "maps"),
    ("perfmon", 38, "verifier refuses"),
    ("ipc_lock", 14, "locked memory"),
];

fn names() -> Vec<&'static str> {
    NEEDED.iter().map(|(name, _, _)| *name).collect()
}

/// `word` of capabilities for setpriv: these and no others.
fn set(capabilities: &[&str]) -> String {
    capabilities.iter().fold("-all".to_owned(), |all, name| format!("{all},+{name}"))
}

/// Runs words as a user of no rights but these capabilities, with so little locked memory as many systems allow.
fn as_nobody(namespace: &str, capabilities: &[&str], words: &str) -> Command {
    command(namespace, &for_nobody(capabilities, words))
}

fn for_nobody(capabilities: &[&str], words: &str) -> String {
    let set = set(capabilities);
    format!(
        "prlimit --memlock=65536:65536 setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --inh-caps {set} \
         --ambient-caps {set} -- {words}"
    )
}

/// A line where that user can run the program.
fn line() -> Option<Line> {
    let line = Line::new(&["ping", "setpriv", "prlimit"])?;
    let version = format!("{} --version", program()?.display());
    let may = as_nobody(&line.router, &[], &version).output().expect("ip was found before");
    if !may.status.success() {
        skip("a program that all users may run, and setpriv of util-linux 2.33");
        return None;
    }
    Some(line)
}

/// Where that user can have a control socket.
fn socket(line: &Line) -> String {
    format!("--socket {}/{}.sock", std::env::temp_dir().display(), line.router)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Sets of capabilities of every thread of a process, by what they are called in its status.
fn threads(pid: u32) -> Vec<(String, BTreeMap<String, u64>)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).expect("it runs");
    let thread = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("it runs").path();
        let status = read(path.join("status"));
        let fields = status.lines().filter_map(|line| line.split_once(":\t"));
        let sets = fields.clone().filter(|(name, _)| name.starts_with("Cap"));
        let number = |text: &str| u64::from_str_radix(text.trim(), 16).expect("a number");
        let mut sets: BTreeMap<_, _> =
            sets.map(|(name, value)| (name.to_owned(), number(value))).collect();
        let flag = fields.clone().find(|(name, _)| *name == "NoNewPrivs").expect("it is told");
        sets.insert("NoNewPrivs".into(), number(flag.1));
        let name = fields.clone().find(|(name, _)| *name == "Name").expect("it is told").1;
        let main = path.file_name().is_some_and(|task| *task == *pid.to_string());
        (if main { "main" } else { name }.to_owned(), sets)
    };
    tasks.map(thread).collect()
}

/// Every thread has given up what it does not need, for good.
fn gave_up(router: &Router, bounding_too: bool) {
    let five = NEEDED.iter().fold(0, |all, (_, number, _)| all | 1u64 << number);
    let found = threads(router.pid());
    assert!(found.len() >= 3, "main, worker and API: {found:?}");
    for (name, sets) in &found {
        let may = match name.as_str() {
            "main" | "opener" => five,
            // Surveys filters and rules; writes the host's addresses to maps of programs, or makes such maps for features;
            // builds lookup tables and loads the programs that read them.
            "policy" => 1 << 12 | 1 << 13,
            "addresses" | "fingerpost-api" => 1 << 39,
            "builder" => 1 << 12 | 1 << 38 | 1 << 39,
            _ => 0,
        };
        assert_eq!((sets["CapEff"], sets["CapPrm"]), (may, may), "{name}: {sets:x?}");
        assert_eq!((sets["CapInh"], sets["CapAmb"]), (0, 0), "{name}: {sets:x?}");
        assert_eq!(sets["NoNewPrivs"], 1, "{name}: {sets:x?}");
        // Only who has CAP_SETPCAP can change that set.
        assert!(!bounding_too || sets["CapBnd"] & !five == 0, "{name}: {sets:x?}");
    }
}

/// Pings cross, by a program that is found on both interfaces; then an interface comes, and one is given back for a while.
fn forwards(line: &Line, router: Router, socket: &str) {
    run(&line.source, "ping -c 3 -i 0.2 -W 2 10.0.2.2");
    run(&line.source, "ping -6 -c 3 -i 0.2 -W 2 fd02::2");
    let taken = |name: &str| format!("{name}: taken over: ");
    ip(&format!("-n {} link add r2 type veth peer name s2 netns {}", line.router, line.source));
    ip(&format!("-n {} link set s2 up", line.source));
    ip(&format!("-n {} link set r2 up", line.router));
    router.wait_for("to take the new interface over", |said| {
        said.iter().any(|text| text.contains(&taken("r2")))
    });
    // Given back, and taken again.
    ip(&format!("-n {} link add br0 type bridge", line.router));
    ip(&format!("-n {} link set r0 master br0", line.router));
    router.wait_for("to give r0 back", |said| {
        said.iter().any(|text| text.contains("r0: given back to the kernel"))
    });
    ip(&format!("-n {} link set r0 nomaster", line.router));
    router.wait_for("to take the changed interface over again", |said| {
        said.iter().filter(|text| text.contains(&taken("r0"))).count() == 2
    });
    run(&line.source, "ping -c 3 -i 0.2 -W 2 10.0.2.2");
    let rows: Vec<Value> = router.ask(format!("interface show {socket}").trim_end());
    for name in ["r0", "r1", "r2"] {
        let row = rows.iter().find(|row| row["name"] == name).expect("it is there");
        assert_ne!(row["path"], "kernel", "{row}");
    }
    let report = router.stop();
    conserved(&report);
    assert!(report["packets_out"].as_u64() >= Some(12), "{report}");
}

#[test]
fn a_user_with_five_capabilities_forwards() {
    let Some(line) = line() else { return };
    let socket = socket(&line);
    let with = |namespace: &str, words: &str| as_nobody(namespace, &names(), words);
    let router = Router::start_by(with, &line.router, &socket, 2);
    gave_up(&router, false);
    forwards(&line, router, &socket);
}

#[test]
fn root_gives_up_what_it_does_not_need() {
    let Some(line) = line() else { return };
    let router = Router::start(&line.router, "", 2);
    gave_up(&router, true);
    forwards(&line, router, "");
}

#[test]
fn root_in_a_container_needs_no_more() {
    let Some(line) = line() else { return };
    let five = set(&names());
    let with = |namespace: &str, words: &str| {
        command(namespace, &format!("setpriv --bounding-set {five} --inh-caps -all -- {words}"))
    };
    let router = Router::start_by(with, &line.router, "", 2);
    gave_up(&router, false);
    forwards(&line, router, "");
}

#[test]
fn each_missing_capability_is_named() {
    let Some(line) = line() else { return };
    let run = format!("{} run {}", program().expect("the line has it").display(), socket(&line));
    // Who has too little, and what is missing there.
    let mut cases: Vec<(String, Command, Vec<&str>)> = Vec::new();
    for missing in names() {
        let others: Vec<_> = names().into_iter().filter(|name| *name != missing).collect();
        let user = as_nobody(&line.router, &others, &run);
        cases.push((format!("nobody without {missing}"), user, vec![missing]));
        let others = set(&others);
        let words = format!(
            "prlimit --memlock=65536:65536 setpriv --bounding-set {others} --inh-caps -all -- {run}"
        );
        cases.push((
            format!("root without {missing}"),
            command(&line.router, &words),
            vec![missing],
        ));
    }
    cases.push(("nobody".into(), as_nobody(&line.router, &[], &run), names()));
    for (who, mut command, missing) in cases {
        let output = command.output().expect("ip was found before");
        let said = said(&output);
        assert_eq!(output.status.code(), Some(4), "{who}: {said}");
        assert!(said.lines().count() == 1 && said.contains("are missing: "), "{who}: {said}");
        for (name, _, what) in NEEDED {
            let named = said.contains(&format!("CAP_{} (", name.to_uppercase()));
            assert_eq!(named, missing.contains(&name), "{who}, {name}: {said}");
            assert!(!named || said.contains(what), "{who}, {name}: {said}");
        }
    }
}

/// Locked memory without a limit is as good as CAP_IPC_LOCK, and one that is too small is not.
#[test]
fn locked_memory_may_be_unlimited_instead() {
    let Some(line) = line() else { return };
    let set = set(&["net_admin", "net_raw", "bpf", "perfmon"]);
    let with = |namespace: &str, words: &str| {
        command(
            namespace,
            &format!(
                "prlimit --memlock=unlimited:unlimited setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups \
                 --inh-caps {set} --ambient-caps {set} -- {words}"
            ),
        )
    };
    if !with(&line.router, "true").output().is_ok_and(|output| output.status.success()) {
        return skip("CAP_SYS_RESOURCE, to raise the limit of locked memory");
    }
    let socket = socket(&line);
    let router = Router::start_by(with, &line.router, &socket, 2);
    run(&line.source, "ping -c 3 -i 0.2 -W 2 10.0.2.2");
    router.stop();
}

/// Root of a user namespace has all capabilities there, and the kernel gives it no program all the same.
#[test]
fn a_privilege_that_only_seems_to_be_there_is_missing() {
    let Some(line) = line() else { return };
    let program = program().expect("the line has it");
    let script = format!(
        "ip link set lo up; ip link add r0 type veth peer name r1; ip link set r0 up; ip link set r1 up; \
         exec {} run --socket {}/{}.sock",
        program.display(),
        std::env::temp_dir().display(),
        line.source
    );
    let inside = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net"]).args(words).output()
    };
    if !inside(&["ip", "link", "add", "x0", "type", "veth", "peer", "name", "x1"])
        .is_ok_and(|output| output.status.success())
    {
        return skip("user namespaces");
    }
    let output = inside(&["sh", "-c", &script]).expect("it was found before");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("Operation not permitted") && said.contains("CAP_BPF"), "{said}");
    assert!(!said.contains("forwarding on 0 interfaces"), "{said}");
}

/// `run --check` prints what it can find out, and that a run would be refused.
#[test]
fn a_check_tells_that_a_run_would_be_refused() {
    let Some(line) = line() else { return };
    let check = format!("{} run --check --json", program().expect("the line has it").display());
    let output = as_nobody(&line.router, &names(), &check).output().expect("ip was found before");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let whole: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(whole["interfaces"].as_array().map(Vec::len), Some(2), "{whole}");
    let output = as_nobody(&line.router, &[], &check).output().expect("ip was found before");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    let seen: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(seen["interfaces"].as_array().map(Vec::len), Some(2), "{seen}");
    assert!(said.contains("CAP_NET_ADMIN") && said.contains("CAP_IPC_LOCK"), "{said}");
    assert!(said.contains("unknown: "), "it may not see packet filters: {said}");
}

/// What a graph opens decides what it needs: nothing for files, CAP_NET_RAW for a packet socket.
#[test]
fn a_graph_needs_what_its_devices_need() {
    let Some(line) = line() else { return };
    let folder = std::env::temp_dir().join(format!("{}-graphs", line.router));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let program = program().expect("the line has it");
    let attempt = |capabilities: &[&str], graph: &str| {
        let file = folder.join("graph.click");
        std::fs::write(&file, graph).expect("the temporary folder can be written");
        let words = format!("timeout -s TERM 3 {} run {}", program.display(), file.display());
        let output = as_nobody(&line.router, capabilities, &words).output();
        let output = output.expect("ip was found before");
        (output.status.code(), said(&output))
    };
    let idle = "RatedSource(LIMIT 10, STOP true) -> Discard;";
    assert_eq!(attempt(&[], idle).0, Some(0), "{:?}", attempt(&[], idle));
    let packets = "FromDevice(r0, METHOD af_packet) -> Discard;";
    let (code, words) = attempt(&[], packets);
    assert!(code == Some(4) && words.contains("CAP_NET_RAW"), "{code:?} {words}");
    // Ended by the signal, in good order.
    assert_eq!(attempt(&["net_raw"], packets).0, Some(124), "{:?}", attempt(&["net_raw"], packets));
    let xdp = "FromDevice(r0, METHOD afxdp) -> Discard;";
    assert_eq!(attempt(&names(), xdp).0, Some(124), "{:?}", attempt(&names(), xdp));
    for missing in ["net_admin", "net_raw", "bpf", "ipc_lock"] {
        let others: Vec<_> = names().into_iter().filter(|name| *name != missing).collect();
        let (code, words) = attempt(&others, xdp);
        let name = format!("CAP_{}", missing.to_uppercase());
        assert!(code == Some(4) && words.contains(&name), "{missing}: {code:?} {words}");
    }
    let _ = std::fs::remove_dir_all(&folder);
}

/// A user who may not look there gets an error, not an empty answer.
#[test]
fn what_root_left_is_released_by_root() {
    let Some(line) = line() else { return };
    let namespace = std::fs::metadata(format!("/run/netns/{}", line.router)).expect("it was made");
    let name = namespace.ino().to_string();
    let pins = match Pins::make(&name) {
        Ok((pins, _)) => pins,
        Err(error) => return skip(&format!("a file system of type bpf: {error}")),
    };
    let release = format!("{} release", program().expect("the line has it").display());
    let other = command_beside(&line.router, &for_nobody(&names(), &release)).output();
    let other = other.expect("nsenter is of util-linux, as setpriv");
    assert_eq!(other.status.code(), Some(4), "{}", said(&other));
    assert!(said(&other).contains("Permission denied"), "{}", said(&other));
    assert!(pins.folder().is_dir());
    let own = command_beside(&line.router, &release).output().expect("it was found before");
    assert_eq!(own.status.code(), Some(0), "{}", said(&own));
    assert!(!pins.folder().exists());
}

/// A file of the configuration that only CAP_DAC_READ_SEARCH opens is read, and that capability kept for the next time.
#[test]
fn files_may_need_one_more() {
    let Some(line) = line() else { return };
    let folder = std::env::temp_dir().join(format!("{}-files", line.router));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let file = folder.join("router.toml");
    std::fs::write(&file, "[fib]\nalgorithm_v4 = \"radix\"\n").expect("it can be written");
    exec(&line.router, &format!("chmod 600 {}", file.display()));
    let words = format!("{} {}", file.display(), socket(&line));
    let run = format!("{} run {words}", program().expect("the line has it").display());
    let output = as_nobody(&line.router, &names(), &run).output().expect("ip was found before");
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    let more: Vec<_> = names().into_iter().chain(["dac_read_search"]).collect();
    let with = |namespace: &str, words: &str| as_nobody(namespace, &more, words);
    let router = Router::start_by(with, &line.router, &words, 2);
    let read_search = 1 << 2;
    for (name, sets) in threads(router.pid()) {
        let kept = sets["CapEff"] & read_search != 0;
        assert_eq!(kept, name == "main" || name == "fingerpost-api", "{name}: {sets:x?}");
    }
    std::fs::write(&file, "[fib]\nalgorithm_v4 = \"dxr18\"\n").expect("it can be written");
    router.signal("HUP");
    router.wait_for("to read its file again", |said| {
        said.iter().any(|line| line.contains("fib.algorithm_v4: radix -> dxr18 (applied)"))
    });
    router.stop();
    let _ = std::fs::remove_dir_all(&folder);
}
