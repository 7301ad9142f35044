//! A daemon in a network namespace of its own, controlled by commands and over its bare socket.
//!
//! ```text
//! host (h0 10.0.1.2) -- (r0 10.0.1.1) router
//! ```
#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fingerpost_io::namespace::{Named, ip};
use serde_json::{Value, json};

mod beside;
mod damage;
mod filters;
mod mtu;
mod neighbors;
mod possible;
mod requests;
mod seeing;

use possible::possible;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fingerpost");

/// Two namespaces, and a daemon in one of them.
struct Lab {
    router: String,
    host: String,
    _namespaces: [Named; 2],
    daemon: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Lab {
    /// A lab whose daemon has these words behind `run`.
    fn new(name: &str, words: &[&str]) -> Option<Self> {
        possible()?;
        let of = |role: &str| format!("fpapi{role}{name}{}", std::process::id());
        let (router, host) = (of("r"), of("h"));
        let namespaces = [&router, &host].map(|name| Named::new(name.clone()));
        // A host whose kernel was told not to forward is not taken over.
        for switch in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            ip(&format!("netns exec {router} sysctl -qw {switch}"));
        }
        ip(&format!("-n {router} link add r0 type veth peer name h0 netns {host}"));
        for (namespace, link, last) in [(&router, "r0", 1), (&host, "h0", 2)] {
            ip(&format!("-n {namespace} addr add 10.0.1.{last}/24 dev {link}"));
            ip(&format!("-n {namespace} addr add fd01::{last}/64 dev {link} nodad"));
            ip(&format!("-n {namespace} link set {link} up"));
        }
        // Without it nothing leaves by r0 in XDP.
        ip(&format!("netns exec {host} ethtool -K h0 gro on"));
        ip(&format!("-n {router} route add 198.51.100.0/24 via 10.0.1.2"));
        ip(&format!("-n {router} route add 2001:db8::/32 via fd01::2"));
        let (daemon, said) = start(&router, words);
        let lab = Self { router, host, _namespaces: namespaces, daemon, said };
        lab.wait_for("forwarding on");
        Some(lab)
    }

    fn wait_for(&self, words: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        while !self.said().iter().any(|line| line.contains(words)) {
            assert!(Instant::now() < until, "waited for {words:?}: {:#?}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// A command in the daemon's namespace.
    fn run(&self, words: &str) -> Output {
        in_namespace(&self.router, words).output().unwrap()
    }

    /// A command that works; its text.
    fn text(&self, words: &str) -> String {
        let output = self.run(words);
        assert!(output.status.success() && output.stderr.is_empty(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A command that works, maybe with warnings; its text, and those.
    fn warned(&self, words: &str) -> (String, String) {
        let output = self.run(words);
        assert!(output.status.success(), "{words}: {output:?}");
        let [text, warnings] = [output.stdout, output.stderr];
        (String::from_utf8(text).unwrap(), String::from_utf8(warnings).unwrap())
    }

    /// A command that works; its JSON.
    fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.text(&format!("{words} --json"))).unwrap()
    }

    /// A command that fails: its exit code and its one line.
    fn refused(&self, words: &str) -> (i32, String) {
        let output = self.run(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{words}: {said}");
        let said = said.trim().strip_prefix("fingerpost: ").unwrap().to_owned();
        (output.status.code().unwrap(), said)
    }

    /// The daemon's socket, as it reports it.
    fn socket(&self) -> PathBuf {
        let said = self.said();
        let line = said.iter().find_map(|line| line.split_once("control socket ")).unwrap();
        PathBuf::from(line.1)
    }

    /// Sends these bytes as they are; the answer, head and body.
    fn raw(&self, request: &[u8]) -> (String, String) {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut answer = String::new();
        // A server that has heard enough answers and hangs up, in the middle of our sending.
        let _ = stream.write_all(request);
        let _ = stream.read_to_string(&mut answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        (head.to_owned(), body.to_owned())
    }

    /// A request with a body; the status and the JSON of the answer.
    fn http(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (head, body) = self.raw(request.as_bytes());
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Ends the daemon as an administrator does.
    fn end(mut self) {
        signal(&self.daemon, "TERM");
        assert!(self.daemon.wait().unwrap().success(), "{:#?}", self.said());
        let path = self.socket();
        assert!(!path.exists(), "{} is left", path.display());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn in_namespace(namespace: &str, words: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, PROGRAM]).args(words.split_whitespace());
    command.env_remove("FINGERPOST_SOCKET").stdin(Stdio::null());
    command
}

fn start(namespace: &str, words: &[&str]) -> (Child, Arc<Mutex<Vec<String>>>) {
    let mut command = in_namespace(namespace, "run");
    let mut child =
        command.args(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let (stderr, lines) = (child.stderr.take().unwrap(), said.clone());
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            lines.lock().unwrap().push(line);
        }
    });
    (child, said)
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

#[test]
fn a_running_router_tells_what_it_does() {
    let Some(lab) = Lab::new("show", &[]) else { return };

    let answer = lab.json("route get 198.51.100.7 --explain");
    assert_eq!((&answer["prefix"], &answer["agrees"]), (&json!("198.51.100.0/24"), &json!(true)));
    let best = &answer["candidates"][0];
    assert_eq!((&best["source"], &best["best"]), (&json!("kernel"), &json!(true)));
    let way = json!({"gateway": "10.0.1.2", "dev": "r0", "weight": 1});
    assert_eq!(best["paths"], json!([way]));
    assert_eq!(
        (&answer["action"], &answer["adjacency"]["interface"]),
        (&"adjacency".into(), &"r0".into())
    );
    assert!(!answer["steps"].as_array().unwrap().is_empty(), "{answer}");
    if lab.json("interface show")[0]["path"] == "xdp" {
        let driver = &answer["drivers"][0];
        assert_eq!((&driver["interfaces"], &driver["table"]), (&json!(["r0"]), &json!(254)));
        assert_eq!(driver["nexthop"], answer["nexthop"]);
        assert_eq!(driver["packet"], "192.0.2.254,198.51.100.7,udp,1024,1024");
        // The other end of h0 has no program, so that its driver takes nothing; nor is it known yet.
        let reason = driver["reason"].as_str().unwrap();
        assert!(
            driver["does"] == "leave" && ["egress", "unresolved"].contains(&reason),
            "{driver}"
        );
        let flow = "9.9.9.9,198.51.100.7,tcp,7,8";
        let text = lab.text(&format!("route get 198.51.100.7 --explain --flow {flow}"));
        let told = "in XDP on r0: left to the graph or the kernel (";
        assert!(
            text.contains(told) && text.contains(&format!("dry run in XDP: {flow}, ")),
            "{text}"
        );
        assert_eq!(lab.json("route get 198.51.100.7")["drivers"], json!([]));
    }
    assert!(
        lab.text("route get 2001:db8::9").starts_with("2001:db8::9 by 2001:db8::/32 (table 254")
    );
    let nothing = lab.run("route get 203.0.113.1");
    assert_eq!(nothing.status.code(), Some(1));
    assert!(String::from_utf8(nothing.stdout).unwrap().contains("has no route"));

    // A flow takes the same member each time, and another one takes the other.
    ip(&format!(
        "-n {} route add 203.0.113.0/24 nexthop via 10.0.1.2 nexthop via 10.0.1.3 weight 3",
        lab.router
    ));
    let until = Instant::now() + Duration::from_secs(5);
    while !lab.run("route get 203.0.113.1").status.success() {
        assert!(Instant::now() < until, "the kernel's route did not come");
    }
    let of_port = |port: u16| {
        let flow = format!("10.0.9.9,203.0.113.1,udp,{port},53");
        let answer = lab.json(&format!("route get 203.0.113.1 --flow {flow}"));
        let slots = answer["group"]["slots"].as_u64().unwrap();
        assert!(answer["group"]["slot"].as_u64().unwrap() < slots, "{answer}");
        answer["adjacency"]["neighbor"].as_str().unwrap().to_owned()
    };
    let taken: Vec<String> = (0..40).map(|n| of_port(1000 + n)).collect();
    assert_eq!(of_port(1000), taken[0]);
    let of = |gateway: &str| taken.iter().filter(|neighbor| *neighbor == gateway).count();
    assert!(of("10.0.1.2") > 0 && of("10.0.1.3") > of("10.0.1.2"), "{taken:?}");

    let groups = lab.json("group show");
    let members = groups[0]["members"].as_array().unwrap();
    let share = |gateway: &str| {
        let member = members.iter().find(|member| member["gateway"] == gateway).unwrap();
        (member["weight"].as_u64().unwrap(), member["slots"].as_u64().unwrap())
    };
    let ((one, few), (three, many)) = (share("10.0.1.2"), share("10.0.1.3"));
    assert_eq!((one, three, many), (1, 3, 3 * few));
    assert_eq!(few + many, groups[0]["slots"].as_u64().unwrap());

    let hops = lab.json("nexthop show");
    let hop = hops.as_array().unwrap().iter().find(|hop| hop["gateway"] == "10.0.1.2").unwrap();
    assert_eq!((&hop["type"], &hop["interface"]), (&"v4/gw".into(), &"r0".into()));
    assert_eq!((&hop["mtu"], &hop["flags"]), (&1500.into(), &"G".into()));
    assert!(hop["references"].as_u64() > Some(0) && hop["use"].is_u64());

    let interfaces = lab.json("interface show");
    let r0 = interfaces.as_array().unwrap().iter().find(|row| row["name"] == "r0").unwrap();
    assert_eq!((&r0["up"], &r0["path"]), (&true.into(), &"xdp".into()));
    assert_eq!(r0["table"], 254);
    assert!(r0["addresses"].as_array().unwrap().contains(&"10.0.1.1/24".into()), "{r0}");
    let feeds = lab.json("source show");
    let kernel = feeds.as_array().unwrap().iter().find(|row| row["name"] == "kernel").unwrap();
    assert!(kernel["routes"].as_u64() >= Some(3) && kernel["resyncs"] == 0, "{kernel}");
    ip(&format!("-n {} neigh add 10.0.1.99 lladdr 02:00:00:00:00:99 dev r0", lab.router));
    // Addresses of other neighbors widen the columns.
    let row = ["10.0.1.99", "r0", "02:00:00:00:00:99"];
    let is_it = |line: &str| line.split_ascii_whitespace().take(3).eq(row);
    let known = || lab.text("neighbor show").lines().any(is_it);
    while !known() {
        assert!(Instant::now() < until + Duration::from_secs(5), "{}", lab.text("neighbor show"));
    }
    lab.end();
}

/// The lines of a stream.
fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn all_routes_are_listed_as_the_kernel_has_them() {
    let Some(lab) = Lab::new("list", &[]) else { return };
    const MANY: usize = 4000;
    let mut lines = String::new();
    for n in 0..MANY {
        let via = if n % 3 == 0 { 3 } else { 2 };
        lines += &format!("route add 20.{}.{}.0/24 via 10.0.1.{via}\n", n >> 8, n & 255);
    }
    let file = std::env::temp_dir().join(&lab.router);
    std::fs::write(&file, lines).unwrap();
    ip(&format!("-n {} -batch {}", lab.router, file.display()));
    std::fs::remove_file(file).unwrap();
    let shown = |words: &str| rows(&lab.text(&format!("route show --json {words}")));
    let until = Instant::now() + Duration::from_secs(10);
    while shown("--longer 20.0.0.0/8").len() < MANY {
        assert!(Instant::now() < until, "the kernel's routes did not come");
    }

    // The same as `ip` says, prefix by prefix.
    let words = ip(&format!("-n {} route show", lab.router));
    let mut theirs: Vec<(String, String)> = Vec::new();
    for line in words.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let prefix = if words[0] == "default" { "0.0.0.0/0" } else { words[0] };
        let via = words.iter().position(|word| *word == "via").map_or("-", |at| words[at + 1]);
        theirs.push((prefix.to_owned(), via.to_owned()));
    }
    let all = shown("");
    let ours = all
        .iter()
        .filter(|row| row["source"] == "kernel")
        .filter(|row| row["kind"] == "via" && !row["prefix"].as_str().unwrap().contains(':'));
    let mut ours: Vec<(String, String)> = ours
        .map(|row| {
            let via = row["paths"][0]["gateway"].as_str().unwrap_or("-");
            (row["prefix"].as_str().unwrap().to_owned(), via.to_owned())
        })
        .collect();
    assert!(ours.is_sorted_by_key(|(prefix, _)| {
        let (addr, len) = prefix.split_once('/').unwrap();
        (addr.parse::<std::net::Ipv4Addr>().unwrap(), len.parse::<u8>().unwrap())
    }));
    ours.sort();
    theirs.sort();
    assert!(ours.len() > MANY);
    assert_eq!(ours, theirs);

    let over = shown("--nexthop 10.0.1.3");
    assert_eq!(over.len(), MANY.div_ceil(3));
    let index = over[0]["nexthop"].to_string();
    assert_eq!(shown(&format!("--nexthop {index}")), over);
    assert_eq!(shown("--limit 7"), all[..7]);
    assert_eq!(shown("--source host").len(), all.iter().filter(|r| r["source"] == "host").count());
    let covering = shown("--covering 20.1.2.0/24 --best");
    assert_eq!(covering.len(), 1);
    assert_eq!(covering[0]["prefix"], "20.1.2.0/24");
    assert!(shown("--longer 2001::/16").iter().all(|row| row["prefix"] == "2001:db8::/32"));
    let text = lab.text("route show --longer 20.1.2.0/23");
    assert_eq!(
        text,
        "* 20.1.2.0/24        kernel   [0/0]      via 10.0.1.3 dev r0\n\
         * 20.1.3.0/24        kernel   [0/0]      via 10.0.1.2 dev r0\n"
    );
    // Every route of the RIB is one that the lookup gives, once no change is pending.
    let until = Instant::now() + Duration::from_secs(10);
    for row in over.iter().step_by(200) {
        let addr = row["prefix"].as_str().unwrap().replace(".0/24", ".9");
        let mut answer = lab.json(&format!("route get {addr}"));
        while answer["pending"].as_u64().unwrap() > 0 && Instant::now() < until {
            answer = lab.json(&format!("route get {addr}"));
        }
        assert_eq!((&answer["nexthop"], &answer["agrees"]), (&row["nexthop"], &true.into()));
    }

    // Who leaves in the middle of a stream, again and again, leaves nothing behind.
    for _ in 0..80 {
        let mut stream = UnixStream::connect(lab.socket()).unwrap();
        stream.write_all(b"GET /v1/routes HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 100]).unwrap();
    }
    assert_eq!(shown("").len(), all.len());

    for (words, code, want) in [
        ("--source kernl", 1, "unknown source `kernl`, did you mean `kernel`?"),
        ("--longer 10.0.0.1/8", 1, "`10.0.0.1/8` is no prefix: "),
        ("--covering x", 1, "`x` is no prefix: "),
        ("--nexthop x", 1, "`x` is no gateway, no index and no object:ID; unknown interface `x`"),
        ("--vrf 77", 1, "there is no table 77"),
        ("--limit -1", 2, "unexpected argument '-1'"),
        ("--longer 10.0.0.0/8 --covering 10.0.0.0/8", 2, "cannot be used with"),
    ] {
        let (exit, said) = lab.refused(&format!("route show {words}"));
        assert!(exit == code && said.contains(want), "{words}: {exit} {said}");
    }
    lab.end();
}

#[test]
fn algorithms_change_while_it_runs() {
    let Some(lab) = Lab::new("alg", &[]) else { return };
    let fibs = lab.json("fib show");
    for (at, family) in [(0, 4), (1, 6)] {
        let fib = &fibs[at];
        assert_eq!((&fib["family"], &fib["table"]), (&family.into(), &254.into()));
        assert_eq!((&fib["choice"], &fib["pending"]), (&"auto".into(), &0.into()));
        assert!(fib["bytes"].as_u64() > Some(0) && fib["bytes_per_route"].is_null());
        assert_eq!(fib["mismatch_routes"], 0);
        assert!(fib["builds"].as_u64() > Some(0) && fib["generation"].as_u64() > Some(0));
    }
    if lab.json("interface show").as_array().unwrap().iter().any(|link| link["path"] == "xdp") {
        let of = |at: usize, word: &str| fibs[at]["shared"][word].as_u64().unwrap();
        assert!(
            (0..2).all(|at| of(at, "used") > 0 && of(at, "used") < of(at, "reserved")),
            "{fibs}"
        );
        let tables = of(0, "reserved") + of(1, "reserved");
        assert!(
            tables < of(0, "total_reserved") && of(0, "total_reserved") < of(0, "cap"),
            "{fibs}"
        );
        let text = lab.text("fib show");
        let last = text.lines().last().unwrap();
        let used = of(0, "used") + of(1, "used");
        assert!(
            last.starts_with(&format!("shared with the XDP datapath: {used} bytes in use")),
            "{last}"
        );
        assert!(last.ends_with(&format!(" at most {}", 16 << 20)), "{last}");
        // The turn of IPv6 comes when all of IPv4 was looked at.
        let until = Instant::now() + Duration::from_secs(20);
        while lab.json("fib show")[0]["audited_xdp"] == 0 {
            assert!(Instant::now() < until, "the auditor asks the programs, too");
        }
    }
    let before = fibs[0]["algorithm"].clone();
    let (rows, warnings) = lab.warned("fib algorithm --family 4 dxr18 --json");
    let rows: Value = serde_json::from_str(&rows).unwrap();
    assert_eq!(rows, json!([{"table": 254, "family": 4, "algorithm": "dxr18", "choice": "dxr18"}]));
    assert_eq!(lab.json("route get 198.51.100.7")["algorithm"], "dxr18");
    // Packets of that family leave XDP, where there is XDP.
    let leave = "IPv4 packets of table 254 leave XDP for the graph: the XDP datapath reads no table of dxr18";
    match &fibs[0]["in_xdp"] {
        Value::Null => assert_eq!(warnings, ""),
        reads => assert!(reads == true && warnings.contains(leave), "{reads} {warnings}"),
    }
    // A name of one family only leaves the other alone.
    lab.warned("fib algorithm radix");
    let rows = lab.json("fib algorithm");
    assert_eq!((&rows[0]["algorithm"], &rows[1]["algorithm"]), (&"radix".into(), &"radix".into()));
    lab.warned("fib algorithm dxr18");
    let rows = lab.json("fib algorithm");
    assert_eq!((&rows[0]["choice"], &rows[1]["choice"]), (&"dxr18".into(), &"radix".into()));
    let (code, said) = lab.refused("fib algorithm --family 6 dxr18");
    assert!(code == 1 && said.starts_with("unknown algorithm `dxr18`"), "{said}");
    let (code, said) = lab.refused("fib algorithm dxr81");
    assert!(code == 2 && said.contains("'dxr81'"), "{said}");
    // By calibration on the live table, which may take some turns; it ends as a line of the log.
    lab.warned("fib algorithm --family 4 measured");
    assert_eq!(lab.json("fib algorithm")[0]["choice"], "measured");
    lab.wait_for("fib v4: calibration on");
    assert_eq!(lab.json("fib verify")["mismatches"], 0);
    lab.text("fib algorithm auto");
    assert_eq!(lab.json("fib algorithm")[0]["algorithm"], before);
    lab.end();
}

#[test]
fn one_daemon_a_socket() {
    let Some(mut lab) = Lab::new("two", &[]) else { return };
    let path = lab.socket();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (code, said) = lab.refused("run");
    assert_eq!(code, 1);
    let first = format!("a daemon (process {}) answers at {}", lab.daemon.id(), path.display());
    assert!(said.starts_with(&first), "{said}");
    // By its path from another namespace, by option and by environment.
    let path = path.to_str().unwrap();
    let elsewhere = |words: &str| in_namespace(&lab.host, words).output().unwrap();
    assert_eq!(elsewhere("fib show").status.code(), Some(3));
    assert!(elsewhere(&format!("fib show --socket {path}")).status.success());
    let by_name = in_namespace(&lab.host, "fib show").env("FINGERPOST_SOCKET", path).output();
    assert!(by_name.unwrap().status.success());
    // An ordinary user may not ask. Where the program itself is out of his reach there is nothing to see.
    let mut other = Command::new(PROGRAM);
    let other = other.args(["fib", "show", "--socket", path]).uid(65_534).gid(65_534).output();
    match other {
        Ok(output) => assert_eq!(output.status.code(), Some(4), "{output:?}"),
        Err(_) => println!("skipped: needs a program that others may run"),
    }
    // A crash leaves the file; nobody answers there, and the next daemon takes it.
    lab.daemon.kill().unwrap();
    lab.daemon.wait().unwrap();
    assert!(std::path::Path::new(path).exists());
    let (code, said) = lab.refused("fib show");
    assert_eq!(code, 3);
    assert!(said.starts_with(&format!("no daemon answers at {path}: start one")), "{said}");
    (lab.daemon, lab.said) = start(&lab.router, &[]);
    lab.wait_for("forwarding on");
    assert!(lab.run("fib show").status.success());
    lab.end();
}

#[test]
fn nonsense_is_refused_and_the_daemon_lives() {
    let Some(lab) = Lab::new("bad", &[]) else { return };
    let (status, document) = lab.http("GET", "/openapi.json", "");
    assert_eq!((status, &document["info"]["title"]), (200, &"Fingerpost control API".into()));
    for (method, path, body, want, code, place) in [
        ("GET", "/v1/nothing", "", 404, "not_found", None),
        ("DELETE", "/v1/fibs", "", 405, "method_not_allowed", None),
        ("GET", "/v1/route", "", 400, "bad_request", Some("query")),
        ("GET", "/v1/route?addr=10.0.0.1&adr=1", "", 400, "bad_request", Some("query")),
        ("GET", "/v1/route?addr=10.0.0.256", "", 400, "bad_request", Some("addr")),
        ("GET", "/v1/route?addr=10.0.0.1&table=9", "", 404, "not_found", Some("table")),
        ("GET", "/v1/route?addr=10.0.0.1&flow=1,2", "", 400, "bad_request", Some("flow")),
        ("GET", "/v1/events?since=x", "", 400, "bad_request", Some("query")),
        ("POST", "/v1/routes", "null", 400, "bad_request", Some("body")),
        (
            "POST",
            "/v1/config/apply",
            "{\"file\":\"x\",\"text\":\"[\"}",
            400,
            "bad_request",
            Some("x:1"),
        ),
        ("PUT", "/v1/algorithm", "", 400, "bad_request", Some("body")),
        ("PUT", "/v1/algorithm", "{", 400, "bad_request", Some("body")),
        ("PUT", "/v1/algorithm", "[1,2]", 400, "bad_request", Some("body")),
        ("PUT", "/v1/algorithm", "{\"nam\":\"radix\"}", 400, "bad_request", Some("body")),
        (
            "PUT",
            "/v1/algorithm",
            "{\"name\":\"radix\",\"family\":5}",
            400,
            "bad_request",
            Some("family"),
        ),
        ("PUT", "/v1/algorithm", "{\"name\":\"radx\"}", 404, "not_found", Some("name")),
    ] {
        let (status, document) = lab.http(method, path, body);
        let error = &document["error"];
        assert_eq!(
            (status, &error["code"]),
            (want, &code.into()),
            "{method} {path} {body}: {error}"
        );
        assert_eq!(error["where"], json!(place), "{method} {path} {body}: {error}");
        assert!(error["message"].as_str().is_some_and(|said| !said.contains('\n')), "{error}");
    }
    let large = "x".repeat(5 << 20);
    let (status, document) = lab.http("PUT", "/v1/algorithm", &large);
    assert_eq!((status, &document["error"]["code"]), (413, &"too_large".into()));
    // No HTTP at all, and a head without an end.
    let (head, _) = lab.raw(b"\x16\x03\x01 hello\r\n\r\n");
    assert!(head.contains(" 400 "), "{head}");
    let (head, _) = lab.raw(format!("GET /{} HTTP/1.1\r\n", "x".repeat(1 << 20)).as_bytes());
    assert!(head.contains(" 414 ") || head.contains(" 431 "), "{head}");
    // Half requests: left alone they end by themselves, and cost others nothing.
    let half = |bytes: &[u8]| {
        let mut half = UnixStream::connect(lab.socket()).unwrap();
        half.write_all(bytes).unwrap();
        half.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        half
    };
    let body = b"PUT /v1/algorithm HTTP/1.1\r\ncontent-length: 99\r\n\r\n{";
    let halves: Vec<_> = (0..40).map(|_| half(body)).collect();
    let heads: Vec<_> = [&b""[..], b"G", b"GET /v1/fibs HTTP/1.1\r\nhost: "].map(half).into();
    let started = Instant::now();
    assert!(lab.run("fib show").status.success());
    assert!(started.elapsed() < Duration::from_secs(5));
    for mut head in heads {
        // Nobody knows what was meant: it is closed.
        let mut answer = Vec::new();
        head.read_to_end(&mut answer).unwrap();
    }
    for mut half in halves {
        let mut answer = [0; 64];
        let read = half.read(&mut answer).unwrap();
        let head = String::from_utf8_lossy(&answer[..read]).into_owned();
        assert!(head.starts_with("HTTP/1.1 408 "), "{head}");
    }
    assert_eq!(lab.json("fib algorithm")[0]["choice"], "auto");
    lab.end();
}

#[test]
fn commands_change_routes_one_by_one() {
    let Some(lab) = Lab::new("change", &[]) else { return };
    let get = |addr: &str| lab.json(&format!("route get {addr}"));
    let gateways = |addr: &str| -> Vec<String> {
        let answer = get(addr);
        let paths = answer["candidates"][0]["paths"].as_array().unwrap().clone();
        paths.iter().map(|path| path["gateway"].as_str().unwrap().to_owned()).collect()
    };
    let changed = lab.json("route add 192.0.2.0/24 via 10.0.1.2");
    assert_eq!(
        (&changed["done"], &changed["candidates"][0]["source"]),
        (&"added".into(), &"command".into())
    );
    assert_eq!(get("192.0.2.9")["adjacency"]["neighbor"], "10.0.1.2");
    // Visible to the workers when the command returns, and in the lists.
    assert_eq!(rows(&lab.text("route show --source command --json")).len(), 1);
    let (code, said) = lab.refused("route add 192.0.2.0/24 via 10.0.1.3");
    assert!(code == 1 && said.contains("exists"), "{said}");
    assert_eq!(lab.json("route append 192.0.2.0/24 via 10.0.1.3 weight 3")["done"], "changed");
    assert_eq!(gateways("192.0.2.9"), ["10.0.1.2", "10.0.1.3"]);
    let groups = lab.json("group show");
    let slots: Vec<u64> = groups[0]["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["slots"].as_u64().unwrap())
        .collect();
    assert_eq!(slots[1], 3 * slots[0], "{groups}");
    let (code, said) = lab.refused("route append 192.0.2.0/24 via 10.0.1.3");
    assert!(code == 1 && said.contains("exists"), "{said}");
    lab.text("route change 192.0.2.0/24 via 10.0.1.3 weight 1");
    assert_eq!(lab.json("group show")[0]["members"][1]["weight"], 1);
    let (code, said) = lab.refused("route del 192.0.2.0/24");
    assert!(code == 1 && said.contains("no such route with one path"), "{said}");
    assert_eq!(lab.json("route del 192.0.2.0/24 via 10.0.1.2")["done"], "changed");
    assert_eq!(gateways("192.0.2.9"), ["10.0.1.3"]);
    assert_eq!(
        lab.text("route replace 192.0.2.0/24 blackhole"),
        "changed 192.0.2.0/24: blackhole\n"
    );
    assert_eq!(get("192.0.2.9")["action"], "blackhole");
    assert_eq!(lab.text("route del 192.0.2.0/24"), "deleted 192.0.2.0/24\n");
    assert_eq!(lab.run("route get 192.0.2.9").status.code(), Some(1));

    // IPv4 by an IPv6 gateway, a gateway that is found by its route, one of the kernel's prefixes.
    lab.text("route add 192.0.2.0/25 via fd01::2");
    assert_eq!(get("192.0.2.9")["adjacency"]["neighbor"], "fd01::2");
    lab.text("route add 192.0.2.128/25 via 198.51.100.1");
    assert_eq!(get("192.0.2.129")["adjacency"]["neighbor"], "10.0.1.2");
    let said = lab.text("route add 198.51.100.0/24 via 10.0.1.3");
    assert_eq!(
        said,
        "added 198.51.100.0/24; packets take that of kernel [0/0]: via 10.0.1.2 dev r0\n"
    );
    lab.text("route del 198.51.100.0/24");
    // A table of its own, and an end.
    lab.text("route add 203.0.113.0/24 via 10.0.1.2 dev r0 table 77");
    assert_eq!(rows(&lab.text("route show --vrf 77 --json"))[0]["prefix"], "203.0.113.0/24");
    assert!(lab.text("route get 203.0.113.1 --table 77").contains("(table 77"));
    lab.text("route add 203.0.113.0/24 prohibit expires 1");
    assert_eq!(get("203.0.113.1")["action"], "prohibit");
    let until = Instant::now() + Duration::from_secs(5);
    while lab.run("route get 203.0.113.1").status.success() {
        assert!(Instant::now() < until, "it did not end");
        std::thread::sleep(Duration::from_millis(50));
    }

    // One of several paths expires alone.
    lab.text("route add 203.0.113.0/24 via 10.0.1.2 weight 2");
    let said = lab.text("route append 203.0.113.0/24 via 10.0.1.3 expires 2");
    assert!(said.contains("via 10.0.1.2 weight 2 via 10.0.1.3 weight 1 expires "), "{said}");
    let shown = &rows(&lab.text("route show --longer 203.0.113.0/24 --json"))[0]["paths"];
    assert!(shown[0].get("expires").is_none() && shown[1]["expires"].as_u64() <= Some(2));
    let until = Instant::now() + Duration::from_secs(5);
    while gateways("203.0.113.1").len() > 1 {
        assert!(Instant::now() < until, "it did not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(gateways("203.0.113.1"), ["10.0.1.2"]);
    lab.text("route del 203.0.113.0/24");

    let before = lab.text("route show --json");
    for (words, code, want) in [
        ("add 10.0.0.1/8 via 10.0.1.2", 2, "has bits set behind its length"),
        ("add 10.0.0.0/8 via 10.0.1.2 dev r9", 1, "unknown interface `r9`, did you mean `r0`?"),
        ("add 10.0.0.0/8 via 192.0.9.9", 1, "gateway 192.0.9.9: no route to it in table 254"),
        ("add 2001:db8:1::/48 via 10.0.1.2", 1, "is no gateway for IPv6"),
        ("add 192.0.9.0/24 via 192.0.9.1", 1, "gateway 192.0.9.1 is reached through itself"),
        ("add 10.0.0.0/8 via 10.0.1.2 weight 0", 2, "1 to 65535 is needed"),
        ("add 10.0.0.0/8 via 10.0.1.2 mtu 67", 2, "IPv4 needs at least 68"),
        ("add 10.0.0.0/8 blackhole mtu 1400", 1, "a route that drops packets has none"),
        ("del 10.0.0.0/8 mtu 1400", 1, "whatever its MTU"),
        ("add 10.0.0.0/8 via 10.0.1.2 via 10.0.1.2", 1, "path repeated"),
        ("add 10.0.0.0/8", 1, "where to?"),
        ("add 10.0.0.0/8 via fe80::1", 1, "is link-local: name its link"),
        ("add 224.0.0.0/4 via 10.0.1.2", 1, "are not routed"),
        ("add 10.0.1.1/32 via 10.0.1.2", 1, "exists"),
        ("del 10.0.0.0/8", 1, "no such route"),
        ("del 2001:db8::/32", 1, "the one of kernel goes with its source"),
        ("change 10.0.0.0/8 via 10.0.1.2", 1, "no such route"),
        ("add 10.0.0.0/8 via 10.0.1.2 expires 0", 1, "at least 1 second"),
        ("add 10.0.0.0/8 via 10.0.1.2 blackhole", 1, "has no paths"),
    ] {
        let (exit, said) = lab.refused(&format!("route {words}"));
        assert!(exit == code && said.contains(want), "{words}: {exit} {said}");
    }
    let mtu = |mtu: &str| {
        format!(
            "{{\"action\":\"add\",\"prefix\":\"2001:db8:1::/48\",\"mtu\":{mtu},\
             \"paths\":[{{\"gateway\":\"fd01::2\"}}]}}"
        )
    };
    for (body, want) in [
        ("{\"action\":\"add\"}", 400),
        ("{\"action\":\"ad\",\"prefix\":\"10.0.0.0/8\"}", 400),
        ("{\"action\":\"add\",\"prefix\":\"10.0.0.0/8\",\"kind\":\"x\"}", 400),
        ("{\"action\":\"add\",\"prefix\":7}", 400),
        (&mtu("1279"), 422),
        (&mtu("70000"), 400),
        ("{\"action\":\"change\",\"prefix\":\"10.0.0.0/8\",\"kind\":\"blackhole\"}", 404),
    ] {
        assert_eq!(lab.http("POST", "/v1/routes", body).0, want, "{body}");
    }
    assert_eq!(lab.text("route show --json"), before, "nothing was changed");
    // What a program leaves out has its usual value, and what is unknown is no matter of taste.
    let body =
        |path: &str| format!("{{\"action\":\"add\",\"prefix\":\"10.0.0.0/8\",\"paths\":[{path}]}}");
    assert_eq!(lab.http("POST", "/v1/routes", &body("{\"gatway\":\"10.0.1.2\"}")).0, 400);
    let (status, changed) = lab.http("POST", "/v1/routes", &body("{\"gateway\":\"10.0.1.2\"}"));
    assert_eq!((status, &changed["candidates"][0]["paths"][0]["weight"]), (200, &1.into()));
    assert_eq!(
        rows(&lab.text("route show --vrf main --source command --longer 10.0.0.0/8 --json")).len(),
        1
    );
    lab.end();
}

#[test]
fn a_monitor_misses_nothing() {
    let Some(lab) = Lab::new("mon", &[]) else { return };
    let mut monitor = in_namespace(&lab.router, "monitor --json");
    let mut monitor = monitor.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(monitor.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let start = next();
    assert_eq!(start["event"], "start");
    let first = start["sequence"].as_u64().unwrap();
    lab.text("route add 192.0.2.0/24 via 10.0.1.2");
    lab.text("route del 192.0.2.0/24");
    let mut seen = Vec::new();
    let mut number = first;
    while seen.len() < 2 {
        let event = next();
        number += 1;
        assert_eq!(event["sequence"], number, "{event}");
        if event["event"] == "route" && event["source"] == "command" {
            seen.push(event);
        }
    }
    assert_eq!((&seen[0]["done"], &seen[1]["done"]), (&"added".into(), &"deleted".into()));
    assert_eq!(seen[0]["new"]["paths"][0]["gateway"], "10.0.1.2");
    assert_eq!((&seen[0]["old"], &seen[0]["prefix"]), (&Value::Null, &"192.0.2.0/24".into()));
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    // The same again, from where it began.
    let again = lab.text(&format!("monitor --json --since {first} --count {}", number - first));
    let again = rows(&again);
    assert!(again.contains(&seen[0]) && again.contains(&seen[1]), "{again:?}");
    let text = lab.text(&format!("monitor --since {first} --count {}", number - first));
    assert!(
        text.contains(" added     192.0.2.0/24 command metric 0 table 254 is via 10.0.1.2"),
        "{text}"
    );
    // Of a number that is not known here all is lost.
    let gap = rows(&lab.text("monitor --json --since 999999999 --count 1"));
    assert_eq!(gap[0]["event"], "gap");
    // The end of the daemon is the end of the stream.
    let mut monitor = in_namespace(&lab.router, "monitor");
    let mut monitor = monitor.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(monitor.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    lab.end();
    assert_eq!(monitor.wait().unwrap().code(), Some(3));
}

#[test]
fn a_configuration_is_applied_while_it_runs() {
    let folder = std::env::temp_dir().join(format!("fpapi-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let table = file("table.txt", "192.0.2.0/24 10.0.1.2\n192.0.3.0/24 10.0.1.2\n");
    let first = file(
        "first.toml",
        "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fixed\"\nroutes = [\n  \
         \"203.0.113.0/24 via 10.0.1.2\",\n  \"203.0.114.0/24 via 10.0.1.2\",\n]\n",
    );
    let Some(lab) = Lab::new("conf", &[&first]) else { return };
    assert_eq!(lab.json(&format!("config diff {first}"))["changes"], json!([]));
    let second = file(
        "second.toml",
        &format!(
            "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fixed\"\nroutes = [\n  \
             \"203.0.113.0/24 via 10.0.1.3\",\n]\n[[source]]\nkind = \"file\"\npath = \"{table}\"\n\
             distance = 30\n[fib]\nalgorithm_v4 = \"dxr18\"\n[takeover]\nignore = [\"tc\"]\n\
             [groups]\nlayout = \"slots\"\n"
        ),
    );
    let diff = lab.run(&format!("config diff {second} --json"));
    assert_eq!(diff.status.code(), Some(5));
    let diff: Value = serde_json::from_slice(&diff.stdout).unwrap();
    let items = |document: &Value| -> Vec<(String, bool, bool)> {
        let rows = document["changes"].as_array().unwrap().iter();
        rows.map(|row| {
            let flag = |name: &str| row[name].as_bool().unwrap();
            (row["item"].as_str().unwrap().to_owned(), flag("restart"), flag("applied"))
        })
        .collect()
    };
    let of_file = format!("source file {table}");
    let want = |applied| {
        let now = |item: &str| (item.to_owned(), false, applied);
        let fixed = now("fixed route");
        let late = ("takeover.ignore".to_owned(), true, false);
        let (algorithm, groups) = (now("fib.algorithm_v4"), now("groups.layout"));
        vec![algorithm, groups, fixed.clone(), fixed.clone(), fixed, now(&of_file), late]
    };
    assert_eq!(items(&diff), want(false));
    assert_eq!(items(&lab.json(&format!("config apply {second}"))), want(true));
    assert_eq!(lab.json("route get 203.0.113.1")["adjacency"]["neighbor"], "10.0.1.3");
    assert_eq!(lab.run("route get 203.0.114.1").status.code(), Some(1));
    let answer = lab.json("route get 192.0.3.1");
    assert_eq!(
        (&answer["algorithm"], &answer["candidates"][0]["distance"]),
        (&"dxr18".into(), &30.into())
    );
    // What needs a restart still differs, and nothing else.
    let rest = lab.run(&format!("config diff {second}"));
    assert_eq!(
        String::from_utf8(rest.stdout).unwrap(),
        "takeover.ignore:  -> tc (needs a restart)\n"
    );

    // Another distance, and back to where it began.
    let third = std::fs::read_to_string(&second).unwrap().replace("distance = 30", "distance = 40");
    lab.text(&format!("config apply {}", file("third.toml", &third)));
    assert_eq!(lab.json("route get 192.0.3.1")["candidates"].as_array().unwrap().len(), 1);
    assert_eq!(lab.json("route get 192.0.3.1")["candidates"][0]["distance"], 40);

    // Mistakes: all of them named, nothing changed.
    let before = lab.text("route show --json");
    let bad = file(
        "bad.toml",
        "[[source]]\nkind = \"fixed\"\nroutes = [\n  \"10.0.0.1/8 via 10.0.1.2\",\n  \
         \"10.0.0.0/8 via 10.0.1.2 weight 0\",\n]\n[[source]]\nkind = \"file\"\npath = \"/nonexistent\"\n",
    );
    let refused = lab.run(&format!("config apply {bad}"));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 3), "{said}");
    for place in [format!("{bad}:4: "), format!("{bad}:5: "), format!("{bad}:9: ")] {
        assert!(said.contains(&place), "{place}: {said}");
    }
    let checked = lab.run(&format!("config check {bad} --json"));
    let document: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(1));
    let lines: Vec<&Value> =
        document["errors"].as_array().unwrap().iter().map(|error| &error["line"]).collect();
    assert_eq!(lines, [&json!(4), &json!(5), &json!(9)], "{document}");
    assert_eq!(lab.text(&format!("config check {second}")), format!("{second}: ok\n"));
    assert_eq!(lab.text("route show --json"), before);

    lab.text(&format!("config apply {first}"));
    assert_eq!(lab.json(&format!("config diff {first}"))["changes"], json!([]));
    assert_eq!(lab.run("route get 192.0.3.1").status.code(), Some(1));
    assert!(lab.run("route get 203.0.114.1").status.success());
    assert!(!lab.text("source show").contains("file"));
    let former = lab.run("feed show");
    let warning = "`feed` is called `source` now: the next release refuses it";
    assert!(former.status.success());
    assert!(String::from_utf8_lossy(&former.stderr).contains(warning), "{former:?}");
    let (head, _) = lab.raw(b"GET /v1/feeds HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(head.contains("`/v1/feeds` is called `/v1/sources` now"), "{head}");
    lab.end();
    std::fs::remove_dir_all(folder).unwrap();
}

/// Resident memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn many_routes_stream_in_constant_memory_while_routes_change() {
    const MANY: u32 = 200_000;
    let folder = std::env::temp_dir().join(format!("fpapi-many-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut lines = String::new();
    for n in 0..MANY {
        let prefix = std::net::Ipv4Addr::from_bits((20 << 24) + (n << 8));
        lines += &format!("{prefix}/24 10.0.1.2\n");
    }
    let table = folder.join("many.txt");
    std::fs::write(&table, lines).unwrap();
    let config = folder.join("many.toml");
    let text = format!(
        "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"file\"\npath = \"{}\"\n",
        table.display()
    );
    std::fs::write(&config, text).unwrap();
    let Some(lab) = Lab::new("many", &[config.to_str().unwrap()]) else { return };
    let daemon = lab.daemon.id();
    let count = |words: &str| lab.text(&format!("route show --json {words}")).lines().count();
    let (all, before) = (count(""), resident(daemon));
    assert!(all > MANY as usize);
    // Someone who reads a little and then nothing, while others read all and routes come and go.
    let mut slow = UnixStream::connect(lab.socket()).unwrap();
    slow.write_all(b"GET /v1/routes?source=file HTTP/1.0\r\nhost: x\r\n\r\n").unwrap();
    slow.read_exact(&mut [0; 1000]).unwrap();
    lab.text("route add 52.0.0.0/8 via 10.0.1.2");
    lab.text("route add 20.0.0.0/8 blackhole");
    let started = Instant::now();
    lab.text("route del 20.0.0.0/8");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(count(""), all + 1);
    let grown = resident(daemon).saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more for a list of {all} routes");
    // The slow one gets what there was when it asked, and all of it.
    let mut rest = String::new();
    slow.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    slow.read_to_string(&mut rest).unwrap();
    let seen = rest.lines().filter(|line| line.starts_with('{') && line.ends_with('}')).count();
    assert!((MANY as usize - 10..=MANY as usize).contains(&seen), "{seen} of {MANY}");
    assert!(rest.trim_end().ends_with('}') && !rest.contains("52.0.0.0/8"));
    let verified = || serde_json::from_str::<Value>(&lab.warned("fib verify --json").0).unwrap();
    let found = verified();
    assert_eq!((&found["mismatches"], &found["differences"]), (&0.into(), &json!([])));
    assert!(found["addresses"].as_u64() > Some(u64::from(MANY)), "{found}");
    for algorithm in ["dxr18", "radix", "auto"] {
        lab.warned(&format!("fib algorithm {algorithm}"));
        assert_eq!(verified()["mismatches"], 0, "{algorithm}");
    }
    assert!(lab.warned("fib verify").0.ends_with(": 0 differ\n"));
    lab.end();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn packets_take_the_routes_of_commands() {
    let Some(lab) = Lab::new("pkt", &[]) else { return };
    if !Command::new("ping").arg("-V").output().is_ok_and(|ping| ping.status.success()) {
        println!("skipped: needs ping");
        return;
    }
    // A second link, which the daemon finds while it runs, and behind it a net that only commands name.
    ip(&format!("-n {} link add r1 type veth peer name d1", lab.router));
    let beyond = format!("{}d", lab.host);
    let _beyond = Named::new(beyond.clone());
    ip(&format!("-n {} link set d1 netns {beyond}", lab.router));
    for (namespace, words) in [
        (&lab.router, "addr add 10.0.7.1/24 dev r1"),
        (&lab.router, "link set r1 up"),
        (&beyond, "link set lo up"),
        (&beyond, "addr add 10.0.7.2/24 dev d1"),
        (&beyond, "addr add 10.7.0.1/32 dev lo"),
        (&beyond, "link set d1 up"),
        (&beyond, "route add default via 10.0.7.1"),
        (&lab.host, "route add 10.7.0.0/16 via 10.0.1.1"),
    ] {
        ip(&format!("-n {namespace} {words}"));
    }
    lab.wait_for("r1: taken over");
    let ping = || {
        let words =
            ["netns", "exec", &lab.host, "ping", "-c", "2", "-i", "0.2", "-W", "2", "10.7.0.1"];
        let output = Command::new("ip").args(words).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (arrived, said) = ping();
    assert!(!arrived && said.contains("Net Unreachable"), "{said}");
    lab.text("route add 10.7.0.0/16 via 10.0.7.2");
    let (arrived, said) = ping();
    assert!(arrived, "{said}");
    let answer = lab.json("route get 10.7.0.1");
    assert_eq!(
        (&answer["adjacency"]["resolved"], &answer["action"]),
        (&true.into(), &"adjacency".into())
    );
    let hops = lab.json("nexthop show");
    let hop = hops.as_array().unwrap().iter().find(|hop| hop["gateway"] == "10.0.7.2").unwrap();
    assert!(hop["use"].as_u64() >= Some(2), "{hop}");
    let rows = lab.json("interface show");
    let r1 = rows.as_array().unwrap().iter().find(|row| row["name"] == "r1").unwrap();
    assert!(r1["tx_packets"].as_u64() >= Some(2), "{r1}");
    // A router that answers nobody who asks where it is: somebody has to say it.
    let mac = |namespace: &str, link: &str| {
        ip(&format!("netns exec {namespace} cat /sys/class/net/{link}/address")).trim().to_owned()
    };
    let (near, far) = (mac(&lab.router, "r1"), mac(&beyond, "d1"));
    ip(&format!("-n {beyond} link set d1 arp off"));
    ip(&format!("-n {beyond} addr add 10.0.7.3/24 dev d1"));
    ip(&format!("-n {beyond} neigh replace 10.0.7.1 lladdr {near} dev d1 nud permanent"));
    lab.text("route replace 10.7.0.0/16 via 10.0.7.3");
    let (arrived, said) = ping();
    assert!(!arrived, "{said}");
    lab.text(&format!("neighbor add 10.0.7.3 lladdr {far} dev r1"));
    let (arrived, said) = ping();
    assert!(arrived, "{said}");
    lab.text("neighbor replace 10.0.7.3 lladdr 02:00:00:00:00:07 dev r1");
    let (arrived, said) = ping();
    assert!(!arrived, "nobody has that address: {said}");
    lab.text("neighbor del 10.0.7.3 dev r1");
    lab.text("route replace 10.7.0.0/16 prohibit");
    let (arrived, said) = ping();
    assert!(!arrived && said.contains("Packet filtered"), "{said}");
    lab.text("route del 10.7.0.0/16");
    let (arrived, said) = ping();
    assert!(!arrived && said.contains("Net Unreachable"), "{said}");
    lab.end();
}
