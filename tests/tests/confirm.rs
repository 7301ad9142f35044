//! Changes of the configuration that must be confirmed: one that cuts the operator off ends by itself, and a restart does not make
//! it last. The history of all of them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use fingerpost_tests::folder::Folder;
use fingerpost_tests::netns::{Line, Router, command, conserved, exec, run};
use fingerpost_tests::{patience, program};
use serde_json::Value;

const SESSION: &str = env!("CARGO_BIN_EXE_session");
/// Seconds until a change is rolled back.
const WAIT: Duration = Duration::from_secs(8);

struct Lab {
    line: Line,
    folder: Folder,
}

impl Lab {
    fn new() -> Option<Self> {
        let line = Line::new(&["ping", "ethtool"])?;
        let folder = Folder::new(&line.router);
        Some(Self { line, folder })
    }

    fn start(&self, file: &str) -> Router {
        let words = format!("--state {} {file}", self.folder.file("state"));
        Router::start(&self.line.router, &words, 2)
    }

    fn call(&self, words: &str) -> Output {
        let program = program().expect("the line was made with it");
        exec(&self.line.router, &format!("{} {words}", program.display()))
    }

    /// A command that is refused with exit code 1; its message.
    fn refused(&self, words: &str) -> String {
        let output = self.call(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words}: {said}");
        said
    }
}

/// A server that sends back what comes. Killed when dropped.
struct Echo(Child);

impl Echo {
    fn start(namespace: &str, addr: &str) -> Self {
        let child = command(namespace, &format!("{SESSION} echo {addr}")).spawn();
        let echo = Self(child.expect("ip was found before"));
        let port = addr.rsplit_once(':').expect("address and port").1;
        let until = Instant::now() + patience(Duration::from_secs(10));
        let listens = format!("ss -tlnH sport = {port}");
        while run(namespace, &listens).is_empty() {
            assert!(Instant::now() < until, "nothing listens at {addr}");
            std::thread::sleep(Duration::from_millis(20));
        }
        echo
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The operator's session with a host, one TCP connection from the first to the last answer.
struct Operator {
    child: Child,
    to: ChildStdin,
    answers: Receiver<String>,
    asked: u32,
}

impl Operator {
    fn connect(line: &Line, addr: &str) -> Self {
        let child = command(&line.source, &format!("{SESSION} {addr}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("ip was found before");
        let to = child.stdin.take().expect("it is piped");
        let from = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for answer in from.lines().map_while(Result::ok) {
                if sender.send(answer).is_err() {
                    return;
                }
            }
        });
        let mut operator = Self { child, to, answers, asked: 0 };
        assert!(operator.is_answered(Duration::from_secs(5)), "no session with {addr}");
        operator
    }

    /// Whether a new line is answered in time.
    fn is_answered(&mut self, within: Duration) -> bool {
        self.asked += 1;
        writeln!(self.to, "{}", self.asked).expect("the session is open");
        let until = Instant::now() + within;
        while let Ok(answer) = self.answers.recv_timeout(until - Instant::now().min(until)) {
            if answer == self.asked.to_string() {
                return true;
            }
        }
        false
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config(routes: &str, more: &str) -> String {
    format!(
        "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fixed\"\nroutes = [{routes}]\n{more}"
    )
}

const ROUTE: &str = "\"203.0.113.0/24 via 10.0.2.2\"";

fn acl(rule: &str, more: &str) -> String {
    format!(
        "[[acl]]\nname = \"edge\"\ninterfaces = [\"r0\"]\ndirection = \"in\"\n{more}rules = [\"{rule}\", \"permit all\"]\n"
    )
}

fn history(router: &Router) -> Vec<Value> {
    router.ask("config history")
}

fn state(router: &Router, number: u64) -> String {
    let all = history(router);
    let found = all.iter().find(|entry| entry["number"] == number);
    found.unwrap_or_else(|| panic!("no {number}: {all:#?}"))["state"].as_str().unwrap_or("").into()
}

#[test]
fn a_change_that_cuts_the_operator_off_ends_by_itself() {
    let Some(lab) = Lab::new() else { return };
    cut_off(&lab, false);
}

/// The XDP datapath has other copies of rules and routes.
#[test]
fn a_change_that_cuts_the_operator_off_in_xdp_ends_by_itself() {
    let Some(lab) = Lab::new() else { return };
    // As in `lasting.rs`: what veths need so that their packets are forwarded in XDP.
    run(&lab.line.source, "ethtool -K s0 gro on tx off");
    run(&lab.line.destination, "ethtool -K d0 gro on tx off");
    cut_off(&lab, true);
}

fn cut_off(lab: &Lab, in_xdp: bool) {
    let good = lab.folder.write("good.toml", &config(ROUTE, ""));
    let router = lab.start(&good);
    if in_xdp {
        router.wait_for("to forward in XDP", |said| {
            said.iter().filter(|line| line.contains("forwarded in XDP")).count() == 2
        });
    }
    let _hosts = [
        Echo::start(&lab.line.destination, "10.0.2.2:7000"),
        Echo::start(&lab.line.router, "10.0.1.1:7001"),
    ];
    let over = acl("deny tcp dst port 7000", "");
    let to_itself = acl("deny tcp dst port 7001", "local = true\n");
    let cases = [
        ("an ACL drops the session over the router", "10.0.2.2:7000", config(ROUTE, &over)),
        ("an ACL drops the session with the router", "10.0.1.1:7001", config(ROUTE, &to_itself)),
        (
            "a route leads elsewhere",
            "10.0.2.2:7000",
            config("\"203.0.113.0/24 via 10.0.2.2\", \"10.0.2.2/32 blackhole\"", ""),
        ),
    ];
    for (at, (what, addr, text)) in cases.into_iter().enumerate() {
        let mut operator = Operator::connect(&lab.line, addr);
        let bad = lab.folder.write("bad.toml", &text);
        let before = Instant::now();
        let applied: Value =
            router.ask(&format!("config apply {bad} --confirm {}", WAIT.as_secs()));
        let number = at as u64 + 2;
        assert_eq!(
            (&applied["number"], &applied["confirm_s"]),
            (&number.into(), &8.into()),
            "{what}"
        );
        assert!(
            !operator.is_answered(Duration::from_secs(1)),
            "{what}: the session was not cut off"
        );
        assert_eq!(state(&router, number), "waiting", "{what}");
        // TCP sends again what was lost.
        let within = patience(Duration::from_secs(40));
        assert!(operator.is_answered(within), "{what}: {:#?}", router.said());
        let took = before.elapsed();
        assert!(took >= WAIT, "{what}: {took:?}");
        let all = history(&router);
        let entry = all.iter().find(|entry| entry["number"] == number).expect("it was applied");
        assert_eq!(entry["state"], "rolled_back", "{what}");
        assert_eq!(entry["reason"], "it was not confirmed within 8 s", "{what}");
        assert_eq!(router.ask::<Value>("config show")["number"], 1, "{what}");
        assert!(
            router.ask::<Value>(&format!("config diff {good}"))["changes"] == Value::Array(vec![])
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let report = router.stop();
    let in_drivers = report["forwarded_xdp"].as_u64();
    assert!(!in_xdp || in_drivers > Some(0), "{report}");
    conserved(&report);
}

#[test]
fn one_change_waits_at_a_time_and_ends_as_it_is_asked() {
    let Some(lab) = Lab::new() else { return };
    let good = lab.folder.write("good.toml", &config(ROUTE, ""));
    let router = lab.start(&good);
    let none = lab.refused("config confirm");
    assert!(none.contains("no configuration waits"), "{none}");
    let other = lab.folder.write("other.toml", &config("\"198.51.100.0/24 via 10.0.2.2\"", ""));
    let applied: Value = router.ask(&format!("config apply {other} --confirm 60"));
    assert_eq!(applied["number"], 2);
    let shown: Value = router.ask("config show");
    let left = shown["seconds_left"].as_u64().expect("it waits");
    assert!((50..=60).contains(&left) && shown["state"] == "waiting", "{shown}");
    let text = lab.call("config show");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("waiting for its confirmation, ") && text.contains("198.51.100"),
        "{text}"
    );
    // Whatever else would change it is refused, and names the way out.
    for words in [
        format!("config apply {good}"),
        format!("config apply {good} --confirm 9"),
        "config rollback 1".to_owned(),
    ] {
        let said = lab.refused(&words);
        assert!(said.contains("configuration 2 waits for its confirmation for "), "{said}");
        assert!(said.contains("`config confirm` keeps it, `config rollback` restores"), "{said}");
    }
    router.signal("HUP");
    router.wait_for("to refuse its file", |said| {
        said.iter()
            .any(|line| line.contains("good.toml is refused: the running configuration stays"))
    });
    let confirmed: Vec<Value> = router.ask("config confirm");
    assert_eq!((&confirmed[0]["number"], &confirmed[0]["state"]), (&2.into(), &"confirmed".into()));
    assert_eq!(router.ask::<Value>("config show")["seconds_left"], Value::Null);

    // By hand, before its time.
    let applied: Value = router.ask(&format!("config apply {good} --confirm 60"));
    assert_eq!(applied["number"], 3);
    let back: Value = router.ask("config rollback");
    assert_eq!((&back["number"], &back["confirm_s"]), (&2.into(), &Value::Null));
    assert_eq!((state(&router, 2), state(&router, 3)), ("confirmed".into(), "rolled_back".into()));
    let routes: Vec<Value> = router.ask_lines("route show --source fixed");
    assert_eq!((routes.len(), &routes[0]["prefix"]), (1, &"198.51.100.0/24".into()));

    // An earlier one again, with its own wait, which is confirmed in time.
    let again: Value = router.ask("config rollback 1 --confirm 2");
    assert_eq!((&again["number"], &again["confirm_s"]), (&4.into(), &2.into()));
    let _: Vec<Value> = router.ask("config confirm");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(
        (router.ask::<Value>("config show")["number"].clone(), state(&router, 4)),
        (4.into(), "confirmed".into())
    );
    assert!(lab.refused("config rollback 99").contains("no configuration 99 in the history"));
    let differs = lab.call("config diff --history 2");
    assert_eq!(differs.status.code(), Some(5), "{differs:?}");
    assert!(lab.call("config diff --history 1").status.success());
    let second = lab.call("config history 2");
    assert!(String::from_utf8_lossy(&second.stdout).contains("198.51.100.0/24"), "{second:?}");

    // Followers of events have all of it, with who asked for it.
    let words =
        format!("timeout 2 {} monitor --since 0 --json", program().expect("found").display());
    let events = exec(&lab.line.router, &words).stdout;
    let events = String::from_utf8(events).expect("JSON lines");
    let events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).collect::<Vec<_>>();
    let done: Vec<(u64, &str)> = of("configuration")
        .iter()
        .filter_map(|event| Some((event["number"].as_u64()?, event["done"].as_str()?)))
        .collect();
    let all = [(2, "waiting"), (2, "confirmed"), (3, "waiting"), (3, "rolled_back")];
    assert_eq!(done, [&all[..], &[(4, "waiting"), (4, "confirmed")]].concat());
    let requests = of("request");
    let by = |words: &str| {
        let found = requests
            .iter()
            .find(|event| event["command"].as_str().is_some_and(|command| command.contains(words)));
        *found.unwrap_or_else(|| panic!("nothing by {words}: {requests:#?}"))
    };
    let confirm = by("config confirm");
    assert_eq!(
        (&confirm["uid"], &confirm["request"]),
        (&0.into(), &"POST /v1/config/confirm".into())
    );
    let refused = requests.iter().filter(|event| event["error"].is_string()).count();
    assert_eq!(refused, 5, "{requests:#?}");
    conserved(&router.stop());
}

/// What a command had set in the place of the configuration is there again.
#[test]
fn a_rollback_restores_neighbors_of_commands() {
    let Some(lab) = Lab::new() else { return };
    let [by_file, by_command] = ["02:00:5e:10:00:01", "02:00:5e:10:00:02"];
    let row = format!(
        "[[neighbor]]\naddress = \"10.0.2.77\"\nlladdr = {by_file:?}\ninterface = \"r1\"\n"
    );
    let good = lab.folder.write("good.toml", &config(ROUTE, &row));
    let without = lab.folder.write("without.toml", &config(ROUTE, ""));
    let router = lab.start(&good);
    let mac = || {
        let rows: Vec<Value> = router.ask("neighbor show");
        let found = rows.iter().find(|row| row["addr"] == "10.0.2.77");
        found.and_then(|row| row["mac"].as_str().map(str::to_owned))
    };
    assert_eq!(mac().as_deref(), Some(by_file));
    let replace = format!("neighbor replace 10.0.2.77 lladdr {by_command} dev r1");
    assert!(lab.call(&replace).status.success());
    let _: Value = router.ask(&format!("config apply {without} --confirm 60"));
    assert_eq!(mac(), None);
    let _: Value = router.ask("config rollback");
    assert_eq!(mac().as_deref(), Some(by_command));
    conserved(&router.stop());
}

/// A rollback carries out what it can: it takes nothing away that it cannot give back.
#[test]
fn a_rollback_leaves_a_source_whose_file_is_gone() {
    let Some(lab) = Lab::new() else { return };
    let table = lab.folder.write("table.txt", "203.0.113.0/24 10.0.2.2\n");
    let with = |name: &str, distance: u8| {
        let text = format!(
            "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"file\"\npath = {table:?}\ndistance = {distance}\n"
        );
        lab.folder.write(name, &text)
    };
    let (good, other) = (with("good.toml", 20), with("other.toml", 30));
    let router = lab.start(&good);
    let routes = || {
        let all: Vec<Value> = router.ask_lines("route show");
        all.iter().filter(|row| row["prefix"] == "203.0.113.0/24").count()
    };
    assert_eq!(routes(), 1);
    let _: Value = router.ask(&format!("config apply {other} --confirm 60"));
    assert_eq!(routes(), 1);
    std::fs::remove_file(&table).expect("it was written above");
    let _: Value = router.ask("config rollback");
    assert_eq!(routes(), 1);
    conserved(&router.stop());
}

/// A source that cannot be opened refuses the whole change: the steps before it are taken back.
#[test]
fn a_change_is_applied_as_a_whole_or_not_at_all() {
    let Some(lab) = Lab::new() else { return };
    let fpm = |port: u32| format!("[[source]]\nkind = \"fpm\"\nlisten = \"127.0.0.1:{port}\"\n");
    let good = lab.folder.write("good.toml", &config(ROUTE, &fpm(7100)));
    let router = lab.start(&good);
    let _taken = Echo::start(&lab.line.router, "127.0.0.1:7200");
    let listens =
        |port: u32| !run(&lab.line.router, &format!("ss -tlnH sport = {port}")).is_empty();
    // The fixed routes change first, another source is added, and the last one's address is in use.
    let more = format!("{}{}{}", fpm(7101), fpm(7100), fpm(7200));
    let bad = config("\"198.51.100.0/24 via 10.0.2.2\"", &more);
    let bad = lab.folder.write("bad.toml", &(bad + &acl("deny tcp dst port 1", "")));
    for confirm in ["", " --confirm 60"] {
        let said = lab.refused(&format!("config apply {bad}{confirm}"));
        assert!(said.contains("Address already in use"), "{said}");
        let routes: Vec<Value> = router.ask_lines("route show --source fixed");
        assert_eq!((routes.len(), &routes[0]["prefix"]), (1, &"203.0.113.0/24".into()));
        assert!(listens(7100) && !listens(7101));
        assert_eq!(router.ask::<Vec<Value>>("acl show"), [] as [Value; 0]);
        assert!(lab.call(&format!("config diff {good}")).status.success());
        assert_eq!(
            (history(&router).len(), &router.ask::<Value>("config show")["number"]),
            (1, &1.into())
        );
    }
    conserved(&router.stop());
}

#[test]
fn a_restart_does_not_confirm() {
    let Some(lab) = Lab::new() else { return };
    let good = config(ROUTE, "");
    let file = lab.folder.write("router.toml", &good);
    let router = lab.start(&file);
    let bad = config("\"203.0.113.0/24 via 10.0.2.2\", \"10.0.2.2/32 blackhole\"", "");
    // The operator edits the file in its place.
    lab.folder.write("router.toml", &bad);
    let _: Value = router.ask(&format!("config apply {file} --confirm 60"));
    router.kill();
    let router = lab.start(&file);
    let message = "this configuration was not confirmed: the one before it is used";
    assert!(router.said().iter().any(|line| line.contains(message)), "{:#?}", router.said());
    run(&lab.line.source, "ping -c 2 -i 0.2 -W 2 10.0.2.2");
    let all = history(&router);
    assert_eq!(all.len(), 2, "{all:#?}");
    assert_eq!((&all[0]["running"], &all[0]["state"]), (&true.into(), &"started".into()));
    assert_eq!(
        (&all[1]["state"], &all[1]["reason"]),
        (&"rolled_back".into(), &"the daemon was restarted".into())
    );
    let by = all[1]["by"]["command"].as_str().expect("a command");
    assert!(by.ends_with(&format!("config apply {file} --confirm 60 --json")), "{by}");
    assert!(all[1]["by"]["uid"] == 0 && all[1]["by"]["pid"].as_u64() > Some(1), "{all:#?}");
    let changes = all[1]["changes"].as_array().expect("a list");
    let blackhole =
        |change: &Value| change.as_str().is_some_and(|text| text.contains("10.0.2.2/32 blackhole"));
    assert!(changes.iter().any(blackhole), "{all:#?}");
    // Nor does it after a rollback: the file still has it.
    router.stop();
    let router = lab.start(&file);
    assert!(router.said().iter().any(|line| line.contains(message)), "{:#?}", router.said());
    assert_eq!(history(&router).len(), 2);
    // Applied for good it is what the next run starts with, and what ran before is still known.
    let applied: Value = router.ask(&format!("config apply {file}"));
    assert_eq!(applied["number"], 3);
    router.stop();
    let router = lab.start(&file);
    assert!(!router.said().iter().any(|line| line.contains(message)), "{:#?}", router.said());
    assert!(!exec(&lab.line.source, "ping -c 1 -W 1 10.0.2.2").status.success());
    assert_eq!(router.ask::<Value>("config show")["number"], 3);
    let back: Value = router.ask("config rollback 1");
    assert_eq!(back["number"], 4);
    run(&lab.line.source, "ping -c 2 -i 0.2 -W 2 10.0.2.2");
    conserved(&router.stop());
}

#[test]
fn a_change_that_could_not_be_written_is_reported_as_made_and_no_later_one_is() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.folder.write("one.toml", &config(ROUTE, ""));
    let router = lab.start(&file);
    // Nothing can be written in its place.
    let taken = lab.folder.file("state/config-00000002.json");
    std::fs::create_dir_all(format!("{taken}/x")).expect("it is root's");
    let two = lab.folder.write("two.toml", &config("\"198.51.100.0/24 via 10.0.2.2\"", ""));
    let said = lab.refused(&format!("config apply {two}"));
    assert!(said.contains("done, but a restart may not find it"), "{said}");
    assert_eq!(router.ask::<Value>("config show")["number"], 2);
    let three = lab.folder.write("three.toml", &config(ROUTE, ""));
    let output = lab.call(&format!("config apply {three}"));
    assert!(output.status.success(), "{output:?}");
    conserved(&router.stop());
}
