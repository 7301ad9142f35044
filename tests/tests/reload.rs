//! SIGHUP reads the configuration file again while packets cross, and never ends the program.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fingerpost_tests::netns::{Line, Router, command, conserved, run};
use serde_json::Value;

/// A folder for files of a test, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(line: &Line) -> Self {
        let folder = std::env::temp_dir().join(format!("{}-reload", line.router));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the temporary folder can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config(routes: &str, more: &str) -> String {
    format!(
        "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fixed\"\nroutes = [{routes}]\n{more}"
    )
}

/// Sends SIGHUP and waits until `line` is printed once more.
fn hang_up(router: &Router, line: &str) {
    let times = |said: &[String]| said.iter().filter(|text| text.contains(line)).count();
    let before = times(&router.said());
    router.signal("HUP");
    router.wait_for(&format!("to say {line:?}"), |said| times(said) > before);
}

fn has_route(router: &Router, prefix: &str) -> bool {
    let rows: Vec<Value> = router.ask_lines("route show --source fixed");
    rows.iter().any(|row| row["prefix"] == prefix)
}

/// Pings across for so many seconds, 100 a second, once the neighbors are known.
fn pings(line: &Line, seconds: u64) -> std::process::Child {
    run(&line.source, "ping -c 2 -i 0.5 -W 3 10.0.2.2");
    let count = seconds * 100;
    command(&line.source, &format!("ping -q -i 0.01 -c {count} -W 1 10.0.2.2"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("ping was found before")
}

fn all_arrived(pings: std::process::Child) {
    let output = pings.wait_with_output().expect("it was started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(" 0% packet loss"), "{said}");
}

#[test]
fn a_changed_file_is_applied_and_a_wrong_one_refused_while_packets_cross() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let folder = Folder::new(&line);
    let first = "\"203.0.113.0/24 via 10.0.2.2\"";
    let file = folder.write("router.toml", &config(first, ""));
    let words = format!("{} --ignore tc", file.display());
    let router = Router::start(&line.router, &words, 2);
    let traffic = pings(&line, 4);
    assert!(has_route(&router, "203.0.113.0/24"));

    hang_up(&router, "router.toml read again: no change");

    let second = format!("{first}, \"198.51.100.0/24 via 10.0.2.2\"");
    folder.write("router.toml", &config(&second, "[fib]\nalgorithm_v4 = \"dxr18\"\n"));
    hang_up(&router, "fib.algorithm_v4: auto -> dxr18 (applied)");
    assert!(has_route(&router, "198.51.100.0/24") && has_route(&router, "203.0.113.0/24"));

    // What the command line said holds on; what needs a restart is told.
    folder.write("router.toml", &config(&second, "[takeover]\nignore = [\"rule\"]\n"));
    hang_up(&router, "takeover.ignore: forwarding, tc -> rule, forwarding, tc (needs a restart)");

    // All mistakes, and nothing has changed.
    folder
        .write("router.toml", &config("\"192.0.2.0/24 vai 10.0.2.2\"", "[fib]\nalgoritm_v4 = 1\n"));
    hang_up(&router, "router.toml is refused: the running configuration stays");
    let said = router.said();
    assert!(
        said.iter().any(|line| line.contains("router.toml:7: ") && line.contains("algorithm_v4")),
        "{said:#?}"
    );
    folder.write("router.toml", &config("\"192.0.2.0/24 vai 10.0.2.2\"", ""));
    hang_up(&router, "router.toml is refused: the running configuration stays");
    assert!(has_route(&router, "198.51.100.0/24") && !has_route(&router, "192.0.2.0/24"));

    std::fs::remove_file(&file).expect("it was written");
    hang_up(&router, "router.toml is refused: the running configuration stays");
    assert!(router.said().iter().any(|line| line.contains("No such file")), "{:#?}", router.said());

    all_arrived(traffic);
    assert!(has_route(&router, "198.51.100.0/24"));
    conserved(&router.stop());
}

#[test]
fn a_run_without_a_file_says_so_and_goes_on() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let router = Router::start(&line.router, "", 2);
    let traffic = pings(&line, 1);
    hang_up(&router, "SIGHUP: this run was started without a configuration file to read again");
    all_arrived(traffic);
    conserved(&router.stop());
}

/// From the first moments on, while a large table is read, and one after the other later.
#[test]
fn a_storm_of_signals_ends_nothing() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let folder = Folder::new(&line);
    let table: String = (0..200_000u32)
        .map(|n| format!("{}.{}.{}.0/24 10.0.2.2\n", 20 + (n >> 16), n >> 8 & 255, n & 255))
        .collect();
    let table = folder.write("table.txt", &table);
    let source = format!(
        "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"file\"\npath = \"{}\"\n",
        table.display()
    );
    let file = folder.write("router.toml", &source);
    let router = Router::begin(command, &line.router, &file.display().to_string());
    // Before that it is not this program yet.
    let until = Instant::now() + Duration::from_secs(10);
    while !catches_hangup(router.pid()) {
        assert!(Instant::now() < until, "it never catches SIGHUP");
        std::thread::sleep(Duration::from_millis(1));
    }
    let started = |said: &[String]| said.iter().any(|line| line.contains("forwarding on"));
    while !started(&router.said()) {
        assert!(Instant::now() < until + Duration::from_secs(50), "{:#?}", router.said());
        router.signal("HUP");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The kernel reports the carrier of a new veth up to a second late: an interface may come after the start.
    router.wait_for("to take both interfaces over", |said| {
        ["r0: taken over", "r1: taken over"]
            .iter()
            .all(|what| said.iter().any(|l| l.contains(what)))
    });
    // What came while it started is carried out once.
    router.wait_for("to read its file again", |said| {
        said.iter().any(|line| line.contains("router.toml read again: no change"))
    });
    let traffic = pings(&line, 1);
    for _ in 0..50 {
        router.signal("HUP");
    }
    all_arrived(traffic);
    conserved(&router.stop());
}

/// Whether the process has a handler for SIGHUP.
fn catches_hangup(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    // By the name, too: whoever starts it may have a handler of its own.
    caught.is_some_and(|bits| bits & 1 == 1) && status.starts_with("Name:\tfingerpost")
}

/// A graph is read again as if it was written to `hotconfig`.
#[test]
fn a_graph_is_read_again() {
    let Some(line) = Line::new(&[]) else { return };
    let folder = Folder::new(&line);
    let file = folder.write("graph.click", "one :: Idle -> Discard;");
    let router = Router::begin(command, &line.router, &file.display().to_string());
    router.wait_for("to catch SIGHUP", |_| catches_hangup(router.pid()));
    folder.write("graph.click", "two :: Idle -> three :: Counter -> Discard;");
    hang_up(&router, "was read again and runs from now on");
    folder.write("graph.click", "four :: Idel -> Discard;");
    hang_up(&router, "is refused: what ran before runs on");
    assert!(router.said().iter().any(|line| line.contains("Idel")), "{:#?}", router.said());
    let report = router.stop();
    let names: Vec<_> = report["elements"].as_array().expect("elements").iter().collect();
    assert!(names.iter().any(|row| row["name"] == "three"), "{report}");
}
