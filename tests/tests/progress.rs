//! Progress of long work: a bar on a terminal, lines in a pipe, and standard output as it would be without.

#![allow(clippy::unwrap_used, reason = "these are the helpers of tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use fingerpost_tests::folder::Folder;
use fingerpost_tests::{lab, program, skip};
use serde_json::Value;

/// Pieces that are sent half a second apart: a line after five seconds comes before the end.
const PIECES: u32 = 14;
const PAUSE: Duration = Duration::from_millis(500);
const PIECE_BYTES: usize = 64 << 10;

/// A server of one file, which it sends slowly.
fn slow_server() -> String {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/rib", socket.local_addr().unwrap());
    thread::spawn(move || {
        let mut stream = socket.accept().unwrap().0;
        for line in BufReader::new(stream.try_clone().unwrap()).lines() {
            if line.unwrap().is_empty() {
                break;
            }
        }
        let len = PIECE_BYTES * PIECES as usize;
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n").unwrap();
        for _ in 0..PIECES {
            stream.write_all(&vec![b'#'; PIECE_BYTES]).unwrap();
            thread::sleep(PAUSE);
        }
    });
    url
}

/// Output of a program whose standard error is a pipe.
fn piped(program: &Path, words: &str) -> Output {
    Command::new(program).args(words.split(' ')).env("TERM", "xterm").output().unwrap()
}

/// What is written to a pseudo-terminal, and standard output apart from it.
fn on_terminal(program: &Path, words: &str, folder: &Folder) -> (String, String) {
    let file = folder.file("stdout");
    let line = format!("{} {words} > {}", program.display(), file);
    let mut script = Command::new("script");
    script.args(["-qfec", &line]).arg(folder.file("typescript")).env("TERM", "xterm");
    let output = script.stdin(Stdio::null()).output().unwrap();
    let drawn = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{line}: {drawn}");
    (drawn, std::fs::read_to_string(file).unwrap())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_fetch_has_a_bar_on_a_terminal_and_lines_elsewhere() {
    let Some(program) = program() else { return skip("the program") };
    let (piped_to, drawn_to) = (Folder::new("progress-pipe"), Folder::new("progress-terminal"));
    let words = |folder: &Folder| {
        format!("table fetch {} --json --out {}", slow_server(), folder.path().display())
    };
    let in_pipe = thread::scope(|scope| {
        let in_pipe = scope.spawn(|| piped(&program, &words(&piped_to)));
        if Command::new("script").arg("--version").output().is_err() {
            skip("script (bsdutils)");
        } else {
            let (drawn, written) = on_terminal(&program, &words(&drawn_to), &drawn_to);
            assert!(drawn.contains("rib [#") && drawn.contains(" left"), "{drawn:?}");
            assert!(drawn.contains("KiB/s"), "{drawn:?}");
            // Nothing is left of it.
            assert!(drawn.trim_end_matches(['\r', '\n']).ends_with("\x1b[2K"), "{drawn:?}");
            assert_eq!(json(&written)["files"][0]["bytes"], PIECE_BYTES as u64 * 14);
        }
        in_pipe.join().unwrap()
    });
    let errors = String::from_utf8_lossy(&in_pipe.stderr);
    let lines: Vec<_> = errors.lines().collect();
    // One every five seconds, of seven or more.
    assert!((1..PIECES as usize / 2).contains(&lines.len()), "{errors}");
    for line in lines {
        let fits = line.starts_with("fingerpost: rib: ") && line.ends_with(" left");
        assert!(fits && line.contains(" %, ") && line.contains("KiB/s, "), "{line}");
    }
    assert_eq!(json(&String::from_utf8_lossy(&in_pipe.stdout))["files"][0]["resumed_at"], 0);
}

#[test]
fn a_table_that_comes_slowly_is_seen_to_be_read() {
    let Some(program) = program() else { return skip("the program") };
    let mut child = Command::new(&program)
        .args(["table", "info", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for piece in 0..PIECES {
        let routes: String = (0..5000)
            .map(|n| format!("10.{piece}.{}.{}/32 192.0.2.1\n", n / 256, n % 256))
            .collect();
        input.write_all(routes.as_bytes()).unwrap();
        thread::sleep(PAUSE);
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.starts_with("fingerpost: reading -: ") && errors.contains("B/s\n"), "{errors}");
    assert!(json(&String::from_utf8_lossy(&output.stdout)).is_object());
}

#[test]
fn a_bench_and_work_without_length_are_shown() {
    let Some(lab) = lab() else { return skip("fingerpost-lab") };
    let folder = Folder::new("progress-bench");
    let table = folder.file("table.txt");
    let routes: String =
        (0..1000).map(|n| format!("10.{}.{}.0/24 7\n", n / 256, n % 256)).collect();
    std::fs::write(&table, routes).unwrap();
    let bench = format!(
        "bench lookup --table {} --algorithm bsearch --stream uniform --mode batch --no-ceilings --seconds 7 --repeat 3 --json",
        table
    );
    let done = piped(&lab, &bench);
    let errors = String::from_utf8_lossy(&done.stderr);
    let fits = |line: &str| line.starts_with("fingerpost-lab: ") && line.ends_with(" left");
    assert!(done.status.success() && errors.lines().any(fits), "{errors}");
    assert!(json(&String::from_utf8_lossy(&done.stdout)).is_object());
    if Command::new("script").arg("--version").output().is_err() {
        return skip("script (bsdutils)");
    }
    let quick = bench.replace("--seconds 7", "--seconds 0.5");
    let (drawn, written) = on_terminal(&lab, &quick, &folder);
    assert!(drawn.contains("computing the expected answers, 0s"), "{drawn:?}");
    assert!(drawn.contains("bsearch") && drawn.contains(" [#"), "{drawn:?}");
    assert!(json(&written).is_object());
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_gets_lines() {
    let Some(program) = program() else { return skip("the program") };
    if Command::new("script").arg("--version").output().is_err() {
        return skip("script (bsdutils)");
    }
    let folder = Folder::new("progress-dumb");
    let words = format!("table fetch {} --out {}", slow_server(), folder.path().display());
    let line = format!("TERM=dumb {} {words}", program.display());
    let mut script = Command::new("script");
    script.args(["-qfec", &line]).arg(folder.file("typescript")).stdin(Stdio::null());
    let mut script = script.stdout(Stdio::piped()).spawn().unwrap();
    let mut drawn = String::new();
    script.stdout.take().unwrap().read_to_string(&mut drawn).unwrap();
    assert!(script.wait().unwrap().success(), "{drawn}");
    assert!(!drawn.contains('\x1b') && drawn.contains("fingerpost: rib: "), "{drawn:?}");
}
