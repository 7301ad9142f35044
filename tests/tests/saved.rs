//! Run-time changes that were saved are there again after a restart, and no others.

use std::process::Output;

use fingerpost_tests::folder::Folder;
use fingerpost_tests::netns::{Line, Router, conserved, exec, ip};
use fingerpost_tests::program;
use serde_json::Value;

const MAC: &str = "02:00:5e:10:00:01";
const CONFIG: &str =
    "[[source_filter]]\nname = \"bad\"\naction = \"drop\"\nprefixes = [\"10.99.0.0/16\"]\n";

struct Lab {
    line: Line,
    folder: Folder,
}

impl Lab {
    fn new() -> Option<Self> {
        let line = Line::new(&["ping"])?;
        ip(&format!("-n {} addr add 203.0.113.1/32 dev lo", line.destination));
        let folder = Folder::new(&line.router);
        folder.write("router.toml", CONFIG);
        Some(Self { line, folder })
    }

    fn start(&self) -> Router {
        let words =
            format!("--state {} {}", self.folder.file("state"), self.folder.file("router.toml"));
        Router::start(&self.line.router, &words, 2)
    }

    fn call(&self, words: &str) -> Output {
        let program = program().expect("the line was made with it");
        exec(&self.line.router, &format!("{} {words}", program.display()))
    }

    fn done(&self, words: &str) -> String {
        let output = self.call(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn saved(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.file("state/saved")).unwrap_or_default();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    fn crosses(&self, addr: &str) -> bool {
        exec(&self.line.source, &format!("ping -q -c 2 -i 0.2 -W 1 {addr}")).status.success()
    }
}

fn prefixes(router: &Router, source: &str) -> Vec<String> {
    let rows: Vec<Value> = router.ask_lines(&format!("route show --source {source}"));
    rows.iter().filter_map(|row| Some(row["prefix"].as_str()?.to_owned())).collect()
}

fn verdict(router: &Router, addr: &str) -> String {
    let answer: Value = router.ask(&format!("source-filter lookup {addr}"));
    answer["does"].as_str().unwrap_or_default().to_owned()
}

fn has_neighbor(router: &Router, addr: &str) -> bool {
    let rows: Vec<Value> = router.ask("neighbor show");
    rows.iter().any(|row| row["addr"] == addr && row["mac"] == MAC && row["source"] == "command")
}

fn algorithm(router: &Router) -> String {
    let rows: Vec<Value> = router.ask("fib algorithm --family 4");
    rows[0]["choice"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn what_was_saved_is_there_after_a_restart_and_nothing_else() {
    let Some(lab) = Lab::new() else { return };
    let router = lab.start();
    assert!(!lab.crosses("203.0.113.1"));
    for words in [
        "route add 203.0.113.0/24 via 10.0.2.2",
        // Its gateway is behind the other one, which its line stands before.
        "route add 198.51.100.0/24 via 203.0.113.9 metric 5 mtu 1400",
        "route add 100.64.0.0/10 via 10.0.2.2 expires 600",
        "neighbor add 10.0.2.77 lladdr 02:00:5e:10:00:01 dev r1",
        "source-filter add bad 192.0.2.7 192.0.2.8",
        "source-filter remove bad 10.99.0.0/16 192.0.2.8",
        "fib algorithm --family 4 dxr18",
    ] {
        lab.done(&format!("{words} --persist"));
    }
    lab.done("route add 192.0.2.0/24 blackhole");
    lab.done("source-filter add bad 192.0.2.9");
    let want = [
        &*format!("neighbor 10.0.2.77 lladdr {MAC} dev r1"),
        "route 198.51.100.0/24 via 203.0.113.9 metric 5 mtu 1400",
        "route 203.0.113.0/24 via 10.0.2.2",
        "algorithm 4 dxr18",
        "source-filter bad remove 10.99.0.0/16",
        "source-filter bad add 192.0.2.7/32",
    ];
    assert_eq!(lab.saved(), want);
    conserved(&router.stop());

    let router = lab.start();
    let left_out = |router: &Router| {
        router.said().into_iter().filter(|line| line.contains("left out")).collect::<Vec<_>>()
    };
    assert_eq!(left_out(&router), [""; 0]);
    assert_eq!(prefixes(&router, "command"), ["198.51.100.0/24", "203.0.113.0/24"]);
    assert!(lab.crosses("203.0.113.1"));
    assert!(has_neighbor(&router, "10.0.2.77"));
    let of = |addr: &str| verdict(&router, addr);
    let verdicts = [of("192.0.2.7"), of("192.0.2.8"), of("192.0.2.9"), of("10.99.1.1")];
    assert_eq!(verdicts, ["drop", "pass", "pass", "pass"]);
    assert_eq!(algorithm(&router), "dxr18");
    // A change that is not saved does not touch what is.
    lab.done("route del 203.0.113.0/24");
    lab.done("neighbor del 10.0.2.77 dev r1");
    assert_eq!(lab.saved(), want);
    lab.done("route del 198.51.100.0/24 metric 5 --persist");
    assert_eq!(lab.saved().len(), want.len() - 1);
    // All there is, and no more.
    lab.done("route add 192.0.2.0/24 blackhole");
    let saved: Value = router.ask("config save");
    let lines = [
        "route 192.0.2.0/24 blackhole",
        "algorithm 4 dxr18",
        "source-filter bad remove 10.99.0.0/16",
        "source-filter bad add 192.0.2.7/32",
    ];
    assert_eq!(saved["lines"], serde_json::json!(lines));
    assert_eq!(lab.saved(), lines);
    conserved(&router.stop());
    let router = lab.start();
    assert_eq!(prefixes(&router, "command"), ["192.0.2.0/24"]);
    conserved(&router.stop());
}

/// MAC of a neighbor that a command or the configuration has set.
fn mac(router: &Router, addr: &str) -> Option<String> {
    let rows: Vec<Value> = router.ask("neighbor show");
    let found = rows.iter().find(|row| row["addr"] == addr && row["source"] == "command")?;
    found["mac"].as_str().map(str::to_owned)
}

#[test]
fn neighbors_of_the_file_are_not_saved() {
    let Some(lab) = Lab::new() else { return };
    let file = |macs: &[(&str, &str)]| {
        let rows = macs.iter().map(|(addr, mac)| {
            format!("[[neighbor]]\naddress = \"{addr}\"\nlladdr = \"{mac}\"\ninterface = \"r1\"\n")
        });
        lab.folder.write("router.toml", &rows.collect::<String>());
    };
    let others = ["02:00:5E:10:00:02", "02:00:5e:10:00:03"];
    file(&[("10.0.2.77", others[0]), ("10.0.2.78", others[0])]);
    let router = lab.start();
    // This one is another one than in the file.
    lab.done(&format!("neighbor replace 10.0.2.78 lladdr {MAC} dev r1"));
    lab.done("config save");
    assert_eq!(lab.saved(), [format!("neighbor 10.0.2.78 lladdr {MAC} dev r1")]);
    conserved(&router.stop());
    file(&[("10.0.2.77", others[1]), ("10.0.2.78", others[0])]);
    let router = lab.start();
    assert_eq!(mac(&router, "10.0.2.77").as_deref(), Some(others[1]));
    assert_eq!(mac(&router, "10.0.2.78").as_deref(), Some(MAC));
    conserved(&router.stop());
    file(&[]);
    let router = lab.start();
    assert_eq!(mac(&router, "10.0.2.77"), None);
    conserved(&router.stop());
}

#[test]
fn saved_filter_entries_go_when_their_list_is_defined_differently() {
    let Some(lab) = Lab::new() else { return };
    let with = |name: &str, prefixes: &str| {
        let text = CONFIG.replace("\"10.99.0.0/16\"", prefixes);
        lab.folder.write(name, &text)
    };
    let next = with("next.toml", "\"10.99.0.0/16\", \"10.98.0.0/16\"");
    let router = lab.start();
    let entries = ["source-filter bad remove 10.99.0.0/16", "source-filter bad add 192.0.2.7/32"];
    lab.done("source-filter remove bad 10.99.0.0/16 --persist");
    lab.done("source-filter add bad 192.0.2.7 --persist");
    assert_eq!(lab.saved(), entries);
    // A change that is rolled back leaves them.
    lab.done(&format!("config apply {next} --confirm 60"));
    lab.done("config rollback");
    assert_eq!(lab.saved(), entries);
    assert_eq!(verdict(&router, "10.99.1.1"), "pass");
    lab.done(&format!("config apply {next} --confirm 60"));
    lab.done("config confirm");
    assert_eq!(lab.saved(), [""; 0]);
    lab.done("source-filter remove bad 10.98.0.0/16 --persist");
    let last = with("last.toml", "\"10.98.0.0/16\"");
    lab.done(&format!("config apply {last}"));
    assert_eq!(lab.saved(), [""; 0]);
    conserved(&router.stop());
    std::fs::copy(last, lab.folder.file("router.toml")).expect("both are there");
    let router = lab.start();
    assert_eq!(verdict(&router, "10.98.1.1"), "drop");
    conserved(&router.stop());
}

#[test]
fn a_line_that_is_wrong_is_named_and_the_router_starts_without_it() {
    let Some(lab) = Lab::new() else { return };
    std::fs::create_dir_all(lab.folder.file("state")).expect("the folder was made");
    let lines = format!(
        "# by hand\nroute 203.0.113.0/24 via 10.0.2.2\nrout 10.0.0.0/8 blackhole\nroute 10.0.0.1/8 blackhole\n\
         neighbor 10.7.0.1 lladdr {MAC} dev r9\nsource-filter worse add 10.0.0.0/8\nsource-filter bad add 192.0.2.7\n"
    );
    lab.folder.write("state/saved", &lines);
    let router = lab.start();
    for words in [
        "state/saved:3: unknown change `rout`, did you mean `route`?: the line is left out",
        "state/saved:4: `10.0.0.1/8` has bits set behind its length",
        "state/saved:5: unknown interface `r9`",
        "state/saved:6: no source filter `worse`: left out",
    ] {
        assert!(
            router.said().iter().any(|line| line.contains(words)),
            "{words}: {:#?}",
            router.said()
        );
    }
    assert!(lab.crosses("203.0.113.1"));
    assert_eq!(verdict(&router, "192.0.2.7"), "drop");
    // What it needs comes later.
    ip(&format!(
        "-n {} link add r9 type veth peer name s9 netns {}",
        lab.line.router, lab.line.source
    ));
    router.wait_for("to make the rest", |said| {
        said.iter().any(|line| line.contains("1 routes or neighbors are there now"))
    });
    assert!(has_neighbor(&router, "10.7.0.1"));
    // None of them is lost by another one that is saved.
    lab.done("route add 192.0.2.0/24 blackhole --persist");
    let saved = lab.saved();
    assert!(saved.iter().any(|line| line == "rout 10.0.0.0/8 blackhole"), "{saved:#?}");
    assert!(saved.iter().any(|line| line == "source-filter worse add 10.0.0.0/8"), "{saved:#?}");
    conserved(&router.stop());
}

#[test]
fn what_waits_gives_way_to_newer_changes_and_can_be_deleted() {
    let Some(lab) = Lab::new() else { return };
    std::fs::create_dir_all(lab.folder.file("state")).expect("the folder was made");
    let lines = format!(
        "neighbor 10.7.0.1 lladdr {MAC} dev r9\nneighbor 10.7.0.3 lladdr {MAC} dev r9\n\
         route 198.51.100.0/24 via 10.7.0.2 dev r9\nroute 203.0.113.0/24 via 10.7.0.2 dev r9\n\
         route 192.0.2.0/24 via 10.7.0.2 dev r9\nroute 192.0.2.128/25 via 10.7.0.2 dev r9\n"
    );
    lab.folder.write("state/saved", &lines);
    let router = lab.start();
    // Another one in its place.
    lab.done("route add 203.0.113.0/24 via 10.0.2.2");
    // What waits is deleted for this run, or for all.
    lab.done("route del 192.0.2.128/25");
    assert_eq!(lab.call("route del 192.0.2.128/25").status.code(), Some(1), "it is deleted");
    assert_eq!(lab.saved().len(), 6);
    lab.done("route del 192.0.2.128/25 --persist");
    lab.done("route del 192.0.2.0/24 via 10.7.0.2 dev r9 --persist");
    lab.done("neighbor del 10.7.0.1 dev r9 --persist");
    assert_eq!(lab.saved().len(), 3);
    assert_eq!(lab.call("route del 192.0.2.0/24 --persist").status.code(), Some(1));
    // All of it is saved, and in a file what a start takes.
    let merged = lab.folder.file("merged.toml");
    let output = lab.call(&format!("config save --to {merged}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let words = "left out: route 198.51.100.0/24 via 10.7.0.2 dev r9: there is no interface r9";
    assert!(output.status.success() && said.contains(words), "{said}");
    let text = std::fs::read_to_string(&merged).expect("it was written");
    assert!(text.contains("address = \"10.7.0.3\"") && text.contains("203.0.113.0/24"), "{text}");
    lab.done("config save");
    assert_eq!(lab.saved().len(), 3);
    let (router_side, other) = (&lab.line.router, &lab.line.source);
    ip(&format!("-n {router_side} link add r9 type veth peer name s9 netns {other}"));
    ip(&format!("-n {router_side} addr add 10.7.0.9/24 dev r9"));
    ip(&format!("-n {other} link set s9 up"));
    ip(&format!("-n {router_side} link set r9 up"));
    router.wait_for("to make the rest", |said| {
        said.iter().any(|line| line.contains("routes or neighbors are there now"))
    });
    assert!(has_neighbor(&router, "10.7.0.3") && !has_neighbor(&router, "10.7.0.1"));
    assert!(lab.crosses("203.0.113.1"), "the newer route is used");
    let until =
        std::time::Instant::now() + fingerpost_tests::patience(std::time::Duration::from_secs(10));
    while prefixes(&router, "command").len() < 2 && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(prefixes(&router, "command"), ["198.51.100.0/24", "203.0.113.0/24"]);
    conserved(&router.stop());
}

#[test]
fn a_file_gives_the_same_router() {
    let Some(lab) = Lab::new() else { return };
    // Without a state folder nothing is saved, and nothing changed.
    let router = Router::start(&lab.line.router, &lab.folder.file("router.toml"), 2);
    for words in ["route add 203.0.113.0/24 via 10.0.2.2 --persist", "config save"] {
        let refused = lab.call(words);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && said.contains("run --state DIR"), "{said}");
    }
    assert_eq!(prefixes(&router, "command"), [""; 0]);
    for words in [
        "route add 203.0.113.0/24 via 10.0.2.2",
        "route add 198.51.100.0/24 via 203.0.113.9 metric 5",
        "route add 192.0.2.0/24 prohibit table 9",
        "neighbor add 10.0.2.77 lladdr 02:00:5e:10:00:01 dev r1",
        "source-filter add bad 192.0.2.7",
        "source-filter remove bad 10.99.0.0/16",
        "fib algorithm --family 4 dxr18",
    ] {
        lab.done(words);
    }
    let file = lab.folder.file("merged.toml");
    lab.done(&format!("config save --to {file}"));
    lab.done(&format!("config check {file}"));
    let looks = |router: &Router, source: &str| {
        let of = |addr: &str| verdict(router, addr);
        (
            prefixes(router, source),
            has_neighbor(router, "10.0.2.77"),
            [of("192.0.2.7"), of("10.99.1.1")],
            algorithm(router),
            router
                .ask_lines::<Value>("route show --vrf 9")
                .iter()
                .filter(|row| row["kind"] == "prohibit")
                .count(),
        )
    };
    let before = looks(&router, "command");
    assert_eq!((before.0.len(), before.4), (2, 1));
    conserved(&router.stop());
    let router = Router::start(&lab.line.router, &file, 2);
    assert!(lab.crosses("203.0.113.1"));
    assert_eq!(looks(&router, "fixed"), before);
    // As another configuration it takes them back again.
    lab.done(&format!("config apply {}", lab.folder.file("router.toml")));
    assert!(!has_neighbor(&router, "10.0.2.77") && prefixes(&router, "fixed").is_empty());
    conserved(&router.stop());
}
