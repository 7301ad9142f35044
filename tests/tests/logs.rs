//! The log of a running router: levels at run time, JSON, the journal, and lines that repeat.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use fingerpost_tests::netns::{Line, Router, command};
use serde_json::{Value, json};

fn program() -> String {
    fingerpost_tests::program().expect("the line was made with it").display().to_string()
}

/// The lines so far, each a JSON object.
fn lines(router: &Router) -> Vec<Value> {
    let parsed = |line: &String| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    router.said().iter().map(parsed).collect()
}

fn of<'a>(lines: &'a [Value], target: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["target"] == target).collect()
}

/// Sends a request for a change of levels so many times over one connection.
fn set_levels(socket: &str, times: usize) {
    let mut stream = UnixStream::connect(socket).expect("the router serves it");
    let body = json!({"level": "fib=debug"}).to_string();
    let head = "PUT /v1/log/level HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let mut reply = [0; 16 << 10];
    for _ in 0..times {
        stream.write_all(request.as_bytes()).expect("it is served");
        let len = stream.read(&mut reply).expect("it replies");
        assert!(reply[..len].starts_with(b"HTTP/1.1 200"), "{:?}", &reply[..len]);
    }
}

#[test]
fn decisions_have_their_numbers_and_levels_change_at_run_time() {
    let Some(line) = Line::new(&[]) else { return };
    let folder = std::env::temp_dir().join(format!("{}-log", line.router));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, socket) = (folder.join("router.toml"), folder.join("socket"));
    let (file, socket) = (file.to_str().unwrap(), socket.to_str().unwrap());
    std::fs::write(file, "").unwrap();
    let words = format!("{file} --log-format json --socket {socket} --ignore tc");
    let router = Router::start(&line.router, &words, 2);
    let ask = |words: &str| router.ask::<Value>(&format!("{words} --socket {socket}"));

    let said = lines(&router);
    for line in &said {
        assert!(line["time"].as_str().unwrap().ends_with('Z') && line["level"].is_string());
        assert!(!line["message"].as_str().unwrap().is_empty(), "{line}");
    }
    let report = said.iter().find(|line| line["workers"].is_number()).expect("the summary");
    let builds = of(&said, "fib").into_iter().filter(|line| line["family"] == 4);
    let builds: Vec<&Value> = builds.collect();
    assert!(builds.iter().any(|line| line["algorithm"] == report["algorithm_v4"]), "{builds:?}");
    let fib = builds[0];
    assert!(fib["fitness"].as_u64() > Some(0) && fib["build_ms"].as_f64() >= Some(0.0), "{fib}");
    assert_eq!(fib["before"], Value::Null);
    let taken = of(&said, "takeover");
    let taken = taken.iter().find(|line| line["interface"] == "r0").expect("it is taken over");
    assert!(["xdp", "afxdp"].contains(&taken["path"].as_str().unwrap()), "{taken}");

    // A change is logged with who made it, and holds at once.
    assert!(of(&said, "fib").iter().all(|line| line["level"] != "debug"));
    let state = ask("log level fib=debug");
    let row = state["targets"].as_array().unwrap().iter().find(|row| row["target"] == "fib");
    assert_eq!(
        (&state["level"], &row.unwrap()["level"]),
        (&json!("info,fib=debug"), &json!("debug"))
    );
    router.wait_for("to log the request", |said| said.iter().any(|l| l.contains("/v1/log/level")));
    let said = lines(&router);
    let request = of(&said, "control").pop().unwrap();
    assert_eq!((&request["uid"], &request["level"]), (&json!(0), &json!("info")));
    assert!(request["command"].as_str().unwrap().contains("log level fib=debug"), "{request}");
    ask("log level control=off");
    ask("fib algorithm --family 4 dxr18");
    let before = lines(&router).len();
    ask("fib algorithm --family 4 auto");
    ask("fib algorithm --family 4 dxr18");
    let said = lines(&router);
    assert!(of(&said[before..], "control").is_empty(), "{:#?}", &said[before..]);
    let refused =
        command(&line.router, &format!("{} log level fbi=debug --socket {socket}", program()))
            .output()
            .unwrap();
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("unknown log target `fbi`, did you mean `fib`?"), "{words}");
    assert_eq!(refused.status.code(), Some(1), "{words}");

    // A configuration with other levels replaces all of them.
    std::fs::write(file, "[log]\nlevel = \"warn,control=info\"\n").unwrap();
    let done = ask(&format!("config apply {file}"));
    let changes = done["changes"].as_array().unwrap();
    assert!(changes.iter().any(|change| change["item"] == "log.level"), "{done}");
    assert_eq!(ask("log level")["level"], "warn,control=info");

    // Lines of one text are bounded, and the others are counted.
    let before = lines(&router).len();
    set_levels(socket, 500);
    let counts = |said: &[String]| {
        let new: Vec<Value> =
            said[before..].iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let requests = of(&new, "control");
        let left_out: u64 = requests.iter().filter_map(|line| line["suppressed"].as_u64()).sum();
        (requests.iter().filter(|line| line["suppressed"].is_null()).count() as u64, left_out)
    };
    router.wait_for("to count all", |said| {
        let (printed, left_out) = counts(said);
        left_out > 0 && printed + left_out >= 500
    });
    let (_, left_out) = counts(&router.said());
    assert!(ask("log level")["suppressed"].as_u64() >= Some(left_out));
    router.stop();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn in_the_journal_lines_have_a_priority_and_no_time() {
    let Some(line) = Line::new(&[]) else { return };
    let (reader, writer) = std::io::pipe().unwrap();
    let stream = File::from(OwnedFd::from(writer));
    let named = stream.metadata().map(|meta| format!("{}:{}", meta.dev(), meta.ino())).unwrap();
    let words = format!("{} run --ignore forwarding,tc", program());
    let mut router = command(&line.router, &words)
        .env("JOURNAL_STREAM", named)
        .stdout(Stdio::null())
        .stderr(stream)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(reader).lines().map_while(Result::ok);
    let ours = |line: &String| line.contains("r0: taken over: ");
    let said: Vec<String> = lines.by_ref().take_while(|line| !ours(line)).collect();
    let pid = router.id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    let rest: Vec<String> = lines.collect();
    assert!(router.wait().unwrap().success(), "{rest:?}");
    assert!(said.len() > 1, "{said:?}");
    for line in said.iter().chain(&rest) {
        let target = line.strip_prefix("<6>").or(line.strip_prefix("<4>"));
        assert!(target.is_some_and(|text| text.contains(": ")), "{line}");
    }
    assert!(said.iter().any(|line| line.starts_with("<6>fib: fib v4: ")), "{said:?}");
}
