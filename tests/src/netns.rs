//! A line of network namespaces with real hosts on both ends, and the program as the router between.
//!
//! ```text
//! source (s0 10.0.1.2, fd01::2) -- (r0 10.0.1.1) router (r1 10.0.2.1) -- (d0 10.0.2.2, fd02::2)
//! ```
//!
//! Interfaces are veths as `ip link add` makes them: all offloads on, MTU 1500.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fingerpost_io::namespace::Named;
pub use fingerpost_io::namespace::ip;

use crate::{patience, program, quick, skip};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The three namespaces. They are deleted when this is dropped.
#[derive(Debug)]
pub struct Line {
    /// Where traffic comes from.
    pub source: String,
    /// Where the router runs.
    pub router: String,
    /// Where traffic goes.
    pub destination: String,
    _namespaces: Vec<Named>,
    _host: Option<Host>,
}

/// A name of the namespace of this process. It is deleted when this is dropped, and the namespace stays.
#[derive(Debug)]
struct Host;

impl Host {
    const NAME: &str = "fphost";

    fn new() -> Self {
        ip(&format!("netns attach {} {}", Self::NAME, std::process::id()));
        accept_own_addresses(Self::NAME);
        Self
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", Self::NAME]).output();
    }
}

impl Line {
    /// Makes the line; `None`, with a skip line, where that cannot be had: not root, no `ip`, no release
    /// build, or only the quick layers wanted. `tools` are the other programs that the test needs.
    ///
    /// # Panics
    /// When a command of the set-up fails.
    pub fn new(tools: &[&str]) -> Option<Self> {
        Self::of(tools, [String::new(), String::new()])
    }

    /// Makes the line with so many queues of `r0` and `s0`, and of `r1` and `d0`.
    ///
    /// # Panics
    /// When a command of the set-up fails.
    pub fn with_queues(tools: &[&str], queues: [u32; 2]) -> Option<Self> {
        let words = |count| format!(" numtxqueues {count} numrxqueues {count}");
        Self::of(tools, queues.map(words))
    }

    /// Makes the line around the host itself, whose own namespace is that of the router.
    ///
    /// # Panics
    /// When a command of the set-up fails.
    pub fn around_host(tools: &[&str]) -> Option<Self> {
        if !ready(tools) {
            return None;
        }
        let [source, destination] = namespaces(["s", "d"]);
        let (host, queues) = (Host::new(), [String::new(), String::new()]);
        let names = [&*source, Host::NAME, &*destination].map(str::to_owned);
        let mut line = Self::between(names, queues);
        (line._namespaces, line._host) = (vec![source, destination], Some(host));
        Some(line)
    }

    fn of(tools: &[&str], queues: [String; 2]) -> Option<Self> {
        if !ready(tools) {
            return None;
        }
        let namespaces = namespaces(["s", "r", "d"]);
        let mut line = Self::between(namespaces.each_ref().map(|name| name.to_string()), queues);
        line._namespaces = namespaces.into();
        Some(line)
    }

    fn between(names: [String; 3], [first, second]: [String; 2]) -> Self {
        let [source, router, destination] = names;
        let line = Self { source, router, destination, _namespaces: Vec::new(), _host: None };
        let (s, r, d) = (&line.source, &line.router, &line.destination);
        ip(&format!("-n {r} link add r0{first} type veth peer name s0 netns {s}{first}"));
        let names = format!("r1{second} type veth peer name d0 netns {d}{second}");
        ip(&format!("-n {r} link add {names}"));
        for (namespace, link, subnet, host) in
            [(s, "s0", 1, 2), (r, "r0", 1, 1), (r, "r1", 2, 1), (d, "d0", 2, 2)]
        {
            ip(&format!("-n {namespace} addr add 10.0.{subnet}.{host}/24 dev {link}"));
            ip(&format!("-n {namespace} addr add fd0{subnet}::{host}/64 dev {link} nodad"));
            ip(&format!("-n {namespace} link set {link} up"));
        }
        for (namespace, subnet) in [(s, 1), (d, 2)] {
            ip(&format!("-n {namespace} route add default via 10.0.{subnet}.1"));
            ip(&format!("-n {namespace} route add default via fd0{subnet}::1"));
        }
        line.kernel_forwards(false);
        line
    }

    /// Switches the kernel's own forwarding in the router on or off.
    pub fn kernel_forwards(&self, on: bool) {
        let on = u8::from(on);
        for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            run(&self.router, &format!("sysctl -qw {name}={on}"));
        }
    }
}

/// Four hosts around a router, each on a link of its own: host `i` has `hi`, the router `ri`. They are deleted when
/// this is dropped.
pub struct Star {
    /// Where the router runs; its links have no addresses.
    pub router: String,
    /// Around it.
    pub hosts: [String; 4],
    _namespaces: [Named; 5],
}

impl Star {
    /// Makes it, with for each host its IPv4 address (of a /24) and the router's. `None` as with [`Line::new`].
    ///
    /// # Panics
    /// When a command of the set-up fails.
    pub fn new(tools: &[&str], addrs: [(&str, &str); 4]) -> Option<Self> {
        if !ready(tools) {
            return None;
        }
        let namespaces = namespaces(["r", "a", "b", "c", "d"]);
        let [router, hosts @ ..] = namespaces.each_ref().map(|name| name.to_string());
        let star = Self { router, hosts, _namespaces: namespaces };
        for (i, (host, (addr, gateway))) in star.hosts.iter().zip(addrs).enumerate() {
            let router = &star.router;
            ip(&format!("-n {router} link add r{i} type veth peer name h{i} netns {host}"));
            ip(&format!("-n {router} link set r{i} up"));
            ip(&format!("-n {host} addr add {addr}/24 dev h{i}"));
            ip(&format!("-n {host} link set h{i} up"));
            ip(&format!("-n {host} route add default via {gateway}"));
        }
        Some(star)
    }
}

/// Whether there is all that namespaces need, and `tools`; prints a skip line where not.
pub fn ready(tools: &[&str]) -> bool {
    if quick() {
        skip("time (FINGERPOST_QUICK is set)");
        return false;
    }
    let id = Command::new("id").arg("-u").output();
    if !id.is_ok_and(|id| id.stdout == b"0\n") {
        skip("root");
        return false;
    }
    for tool in ["ip"].iter().chain(tools) {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
        if !found.is_ok_and(|found| found.status.success()) {
            skip(tool);
            return false;
        }
    }
    if program().is_none() {
        skip("a release build of fingerpost");
        return false;
    }
    true
}

/// New namespaces, a role each, in which only the loopback is there.
fn namespaces<const N: usize>(roles: [&str; N]) -> [Named; N] {
    let made = namespaces_of(roles.into_iter().map(str::to_owned));
    made.try_into().unwrap_or_else(|_| unreachable!("one a role"))
}

/// New namespaces for any number of roles: [`namespaces`].
pub(crate) fn namespaces_of(roles: impl Iterator<Item = String>) -> Vec<Named> {
    // Relaxed: only the number matters.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let made = roles.map(|role| {
        let namespace = Named::new(format!("fp{role}{}x{number}", std::process::id()));
        accept_own_addresses(&namespace);
        namespace
    });
    made.collect()
}

/// Has links to come use their addresses at once. Else no neighbor of IPv6 is resolved for up to two seconds after a link comes
/// up: the kernel sends no solicitation while its link-local address is tentative (RFC 4862, section 5.4).
fn accept_own_addresses(namespace: &str) {
    let words = "net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0";
    run(namespace, &format!("sysctl -qw {words}"));
}

/// Whether the kernel has interfaces of a kind (`vlan`, `bond`, `vrf`). Where not, prints that the test needs a machine
/// with them; `cargo xtask test` runs it again in one.
///
/// # Panics
/// When `ip` cannot be started.
pub fn has_kind(namespace: &str, kind: &str) -> bool {
    let probe = |words: &str| {
        let words = format!("-n {namespace} link {words}");
        Command::new("ip").args(words.split(' ')).output().expect("ip was found before")
    };
    let made = probe(&format!("add name fpprobe type {kind}"));
    if made.status.success() {
        probe("del fpprobe");
        return true;
    }
    // A VLAN without a link below is refused for another reason.
    if !String::from_utf8_lossy(&made.stderr).contains("Unknown device type") {
        return true;
    }
    skip(&format!("a machine with {kind} interfaces"));
    false
}

/// A command in a namespace, to be started.
pub fn command(namespace: &str, words: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).args(words.split(' '));
    command
}

/// A command in the namespace, with the files of this process: what is mounted and pinned there outlives the command, unlike in
/// the view of files that `ip netns exec` makes for it.
pub fn command_beside(namespace: &str, words: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{namespace}")).args(words.split(' '));
    command
}

/// Waits until a program listens at a UDP port.
///
/// # Panics
/// When none does in 20 s.
pub fn await_port(namespace: &str, port: u16) {
    let port = format!(":{port:04X} ");
    let until = Instant::now() + patience(Duration::from_secs(20));
    while !run(namespace, "cat /proc/net/udp /proc/net/udp6").contains(&port) {
        assert!(Instant::now() < until, "nobody listens at {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command in a namespace to its end.
///
/// # Panics
/// When it cannot be started.
pub fn exec(namespace: &str, words: &str) -> Output {
    command(namespace, words).output().expect("ip was found before")
}

/// Runs a command in a namespace; returns what it wrote.
///
/// # Panics
/// When it fails.
pub fn run(namespace: &str, words: &str) -> String {
    let output = exec(namespace, words);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {said}{failed}");
    said
}

/// `fingerpost run` in a namespace. Killed when dropped.
pub struct Router {
    program: PathBuf,
    namespace: String,
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Router {
    /// Starts it with these words behind `run`, and waits until it forwards on `interfaces` of them.
    ///
    /// # Panics
    /// When it does not within 20 s.
    pub fn start(namespace: &str, words: &str, interfaces: usize) -> Self {
        Self::start_by(command, namespace, words, interfaces)
    }

    /// Starts the program by a command that this makes: [`command`] or [`command_beside`].
    ///
    /// # Panics
    /// As [`Router::start`].
    pub fn start_by(
        command: impl Fn(&str, &str) -> Command,
        namespace: &str,
        words: &str,
        interfaces: usize,
    ) -> Self {
        let router = Self::begin(command, namespace, words);
        router.wait_to_forward(interfaces);
        router
    }

    /// Starts another build of the program.
    ///
    /// # Panics
    /// As [`Router::start`].
    pub fn start_program(
        program: &Path,
        command: impl Fn(&str, &str) -> Command,
        namespace: &str,
        words: &str,
        interfaces: usize,
    ) -> Self {
        let router = Self::begin_program(program, command, namespace, words);
        router.wait_to_forward(interfaces);
        router
    }

    /// Starts it where the kernel's own forwarding is on, or keeps what it must not forward.
    ///
    /// # Panics
    /// As [`Router::start`].
    pub fn start_obeying(namespace: &str, words: &str, interfaces: usize) -> Self {
        let router = Self::spawn(command, namespace, words);
        router.wait_to_forward(interfaces);
        router
    }

    fn wait_to_forward(&self, interfaces: usize) {
        self.wait_for("to forward", |said| {
            said.iter().any(|line| line.contains("forwarding on"))
                && said.iter().filter(|line| line.contains("taken over: ")).count() >= interfaces
        });
    }

    /// Starts it without waiting for anything. A router that takes interfaces over does so although the kernel's own
    /// forwarding is off: [`Line::new`] sees to it that only the program forwards.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn begin(command: impl Fn(&str, &str) -> Command, namespace: &str, words: &str) -> Self {
        match words.contains(".click") {
            true => Self::spawn(command, namespace, words),
            false => Self::spawn(command, namespace, &format!("--ignore forwarding {words}")),
        }
    }

    /// Starts another build of the program, without waiting for anything: [`Router::begin`].
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn begin_program(
        program: &Path,
        command: impl Fn(&str, &str) -> Command,
        namespace: &str,
        words: &str,
    ) -> Self {
        Self::spawn_program(program, command, namespace, &format!("--ignore forwarding {words}"))
    }

    fn spawn(command: impl Fn(&str, &str) -> Command, namespace: &str, words: &str) -> Self {
        let program = program().expect("the line was made with it");
        Self::spawn_program(&program, command, namespace, words)
    }

    fn spawn_program(
        program: &Path,
        command: impl Fn(&str, &str) -> Command,
        namespace: &str,
        words: &str,
    ) -> Self {
        let words = format!("{} run --json {words}", program.display());
        let mut child = command(namespace, words.trim_end())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the tool was found before");
        let said = Arc::new(Mutex::new(Vec::new()));
        let stderr = child.stderr.take().expect("it is piped");
        let lines = said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().expect("no panic while holding it").push(line);
            }
        });
        Self { program: program.to_owned(), namespace: namespace.to_owned(), child, said }
    }

    /// What it answers to `fingerpost` with these words, as JSON.
    ///
    /// # Panics
    /// When it does not.
    pub fn ask<T: serde::de::DeserializeOwned>(&self, words: &str) -> T {
        let answer = run(&self.namespace, &format!("{} {words} --json", self.program.display()));
        serde_json::from_str(&answer).expect("the answer is JSON")
    }

    /// The row of a source; null where there is no such source.
    ///
    /// # Panics
    /// When the router does not reply.
    pub fn source(&self, name: &str) -> serde_json::Value {
        let all: Vec<serde_json::Value> = self.ask("source show");
        all.into_iter().find(|source| source["name"] == name).unwrap_or_default()
    }

    /// Requests a list, whose reply is JSON lines.
    ///
    /// # Panics
    /// When it does not.
    pub fn ask_lines<T: serde::de::DeserializeOwned>(&self, words: &str) -> Vec<T> {
        let answer = run(&self.namespace, &format!("{} {words} --json", self.program.display()));
        let parsed = |line| serde_json::from_str(line).expect("a line is JSON");
        answer.lines().map(parsed).collect()
    }

    /// Its messages so far.
    pub fn said(&self) -> Vec<String> {
        self.said.lock().expect("no panic while holding it").clone()
    }

    /// Waits until its messages fulfill `done`.
    ///
    /// # Panics
    /// When that takes more than 20 s.
    pub fn wait_for(&self, what: &str, done: impl Fn(&[String]) -> bool) {
        let until = Instant::now() + patience(Duration::from_secs(20));
        while !done(&self.said()) {
            assert!(Instant::now() < until, "waited for it {what}: {:#?}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its process, which `ip netns exec` became.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory of its process, in KiB.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.expect("Linux reports it, as a number")
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let _ = Command::new("kill").args(["-s", name, &pid]).status();
    }

    /// Ends it and returns its report.
    ///
    /// # Panics
    /// When it fails, or its report is no JSON.
    pub fn stop(mut self) -> serde_json::Value {
        self.signal("TERM");
        let (status, report) = self.end();
        assert!(status.success(), "{status}: {:#?}", self.said());
        report
    }

    /// Waits until it ends by itself; its exit status, its report, and its messages.
    ///
    /// # Panics
    /// When its report is no JSON.
    pub fn ended(mut self) -> (ExitStatus, serde_json::Value, Vec<String>) {
        let (status, report) = self.end();
        (status, report, self.said())
    }

    fn end(&mut self) -> (ExitStatus, serde_json::Value) {
        let mut report = String::new();
        let mut stdout = self.child.stdout.take().expect("it is piped");
        stdout.read_to_string(&mut report).expect("the report is text");
        let status = self.child.wait().expect("it was started");
        (status, serde_json::from_str(&report).expect("the report is JSON"))
    }

    /// Ends it at once, as a crash would.
    pub fn kill(mut self) {
        self.child.kill().expect("it was started");
        let _ = self.child.wait();
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `ip -batch` with these lines; a line that fails does not end it.
///
/// # Panics
/// When it cannot be run.
pub fn batch(namespace: &str, lines: &str) {
    let file = std::env::temp_dir().join(format!("{namespace}.batch"));
    std::fs::write(&file, lines).expect("the temporary folder can be written");
    let result = Command::new("ip")
        .args(["-n", namespace, "-force", "-batch"])
        .arg(&file)
        .output()
        .expect("ip was found before");
    let _ = std::fs::remove_file(&file);
    // With -force a line that failed shows in the status; the caller looks at what came of it.
    assert!(result.status.code().is_some(), "ip was killed");
}

/// Checks that of a report's packets none is missing: in = out + dropped + held.
///
/// # Panics
/// When one is.
pub fn conserved(report: &serde_json::Value) {
    let number =
        |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("no {name}: {report}"));
    let dropped: u64 = report["dropped"]
        .as_object()
        .expect("drops by reason")
        .values()
        .filter_map(serde_json::Value::as_u64)
        .sum();
    assert_eq!(
        number("packets_in"),
        number("packets_out") + dropped + number("held"),
        "packets are missing: {report}"
    );
}
