//! Crowds of clients at a control socket: others are served, and the router forwards on.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fingerpost_tests::crowd::Crowd;
use fingerpost_tests::folder::Folder;
use fingerpost_tests::netns::{Line, Router, command, conserved, run};
use fingerpost_tests::{patience, program, skip};

const SESSION: &str = env!("CARGO_BIN_EXE_session");
/// A group that no file has, whose members may read.
const READERS: u32 = 7001;
/// Connections of a crowd, more than there may be at one time.
const MANY: usize = 10_000;

struct Lab {
    line: Line,
    folder: Folder,
}

impl Lab {
    fn new() -> Option<Self> {
        let line = Line::new(&["ping", "setpriv", "prlimit"])?;
        let folder = Folder::new(&line.router);
        let lab = Self { line, folder };
        let version = format!("{} --version", program()?.display());
        if !command(&lab.line.router, &by(4001, &version))
            .output()
            .is_ok_and(|done| done.status.success())
        {
            skip("a program that all users may run, and setpriv of util-linux 2.33");
            return None;
        }
        Some(lab)
    }

    fn start(&self) -> (Router, String) {
        let text = format!("[control]\nread_group = {READERS}\n");
        let path = self.folder.write("router.toml", &text);
        let router = Router::start(&self.line.router, &path, 2);
        let said = router.said();
        let socket = said.iter().find_map(|line| line.split_once("control socket "));
        let socket = socket.expect("it has one").1.to_owned();
        (router, socket)
    }

    /// Pings across for so many seconds, once the neighbors are known.
    fn pings(&self, seconds: u64) -> Child {
        run(&self.line.source, "ping -c 2 -i 0.5 -W 3 10.0.2.2");
        command(&self.line.source, &format!("ping -q -i 0.02 -c {} -W 1 10.0.2.2", seconds * 50))
            .stdout(Stdio::piped())
            .spawn()
            .expect("ping was found before")
    }

    /// Time that a command of the user takes; it is served.
    fn served(&self, user: u32, words: &str) -> Duration {
        let program = program().expect("the line was made with it");
        let begun = Instant::now();
        let words = by(user, &format!("{} {words}", program.display()));
        let output = command(&self.line.router, &words).output().expect("ip was found before");
        assert!(output.status.success(), "{words}: {output:?}");
        begun.elapsed()
    }
}

/// Words that a user runs by, who may read, or root.
fn by(user: u32, words: &str) -> String {
    match user {
        0 => words.to_owned(),
        user => format!("setpriv --reuid {user} --regid {user} --groups {READERS} -- {words}"),
    }
}

/// A crowd of so many connections to a socket, of a user.
fn crowd_by(user: u32, path: &str, count: usize) -> Command {
    let mut command = Command::new("prlimit");
    let words = by(user, &format!("{SESSION} crowd {path} {count}"));
    command.arg("--nofile=20000:20000").args(words.split(' '));
    command
}

#[test]
fn a_crowd_takes_no_room_from_others() {
    let Some(lab) = Lab::new() else { return };
    let (router, socket) = lab.start();
    let before = router.resident_kib();
    let pings = lab.pings(60);
    let head = "GET /v1/status HTTP/1.1\r\nhost: x\r\nx-";
    let body = "POST /v1/routes HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n{";
    // The crowd's user is the one that is served, too: it is no matter of users.
    for (user, path, count, text) in [
        (0, socket.clone(), MANY, ""),
        (0, socket.clone(), MANY / 10, head),
        (0, socket.clone(), MANY / 10, body),
        (4001, format!("{socket}.ro"), MANY / 10, head),
    ] {
        let begun = Instant::now();
        let mut crowd = Crowd::begin(&mut crowd_by(user, &path, count), text);
        // While they come, and once they are there.
        let mut longest = Duration::ZERO;
        for _ in 0..5 {
            longest = longest.max(lab.served(user, "route get 10.0.2.2"));
        }
        assert_eq!(crowd.has_come(), count);
        let came = begun.elapsed();
        for _ in 0..5 {
            longest = longest.max(lab.served(user, "route get 10.0.2.2"));
            longest = longest.max(lab.served(0, "route show"));
        }
        let left = crowd.end();
        println!(
            "{count} connections of {user} in {came:?}: {left} left, others served in {longest:?}"
        );
        assert!(left <= 256, "{left} connections of {count}");
        assert!(longest < patience(Duration::from_secs(5)), "{longest:?} with {count} of {text:?}");
    }
    let grown = router.resident_kib().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB");
    let output = pings.wait_with_output().expect("it was started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(" 0% packet loss"), "{said}");
    conserved(&router.stop());
}

/// Half a request ends its connection by itself, and so does half a body.
#[test]
fn a_client_that_sends_slowly_is_not_waited_for() {
    let Some(lab) = Lab::new() else { return };
    let (router, socket) = lab.start();
    for text in [
        "GET /v1/status HTTP/1.1\r\nx-",
        "POST /v1/routes HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n{",
        "POST /v1/routes HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
    ] {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream.write_all(text.as_bytes()).expect("there is room");
        stream.set_read_timeout(Some(Duration::from_millis(500))).expect("not zero");
        let begun = Instant::now();
        let mut answer = Vec::new();
        while begun.elapsed() < patience(Duration::from_secs(30)) {
            // A byte every half a second, as slow-loris does.
            if stream.write_all(b"a").is_err() {
                break;
            }
            match stream.read_to_end(&mut answer) {
                Ok(_) => break,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        let took = begun.elapsed();
        assert!(took < patience(Duration::from_secs(20)), "{text:?}: {took:?}");
        println!(
            "{:?} ended after {took:?}: {:?}",
            &text[..4],
            String::from_utf8_lossy(&answer).lines().next()
        );
    }
    conserved(&router.stop());
}

#[test]
fn large_bodies_take_little_memory() {
    let Some(lab) = Lab::new() else { return };
    let (router, socket) = lab.start();
    let before = router.resident_kib();
    let connect = || {
        let stream = UnixStream::connect(&socket).expect("it listens");
        stream.set_read_timeout(Some(patience(Duration::from_secs(20)))).expect("not zero");
        stream
    };
    let answer = |stream: &mut UnixStream| {
        let mut bytes = Vec::new();
        // What was not read of the request breaks the connection off behind the answer.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    // A gigabyte that is announced is refused at once.
    let mut stream = connect();
    let head =
        format!("POST /v1/config/apply HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", 1 << 30);
    stream.write_all(head.as_bytes()).expect("there is room");
    let said = answer(&mut stream);
    assert!(said.starts_with("HTTP/1.1 413") && said.contains("too_large"), "{said}");
    // One that is not announced, when it gets too large.
    let mut stream = connect();
    let head = "POST /v1/config/apply HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("there is room");
    let mut chunk = b"100000\r\n".to_vec();
    chunk.extend(std::iter::repeat_n(b' ', 1 << 20));
    chunk.extend(b"\r\n");
    let sent = (0..1024).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!(sent < 64, "{sent} MiB of a body were taken");
    // Many at one time, of which each is as large as may be.
    let size = 4 << 20;
    let head =
        format!("POST /v1/config/diff HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n");
    let senders: Vec<_> = (0..100)
        .map(|_| {
            let (mut stream, head) = (connect(), head.clone());
            std::thread::spawn(move || {
                let body = vec![b' '; size - 1];
                // It waits for its turn, and may give way.
                let _ = stream.set_write_timeout(Some(Duration::from_secs(5)));
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
                std::thread::sleep(Duration::from_secs(3));
            })
        })
        .collect();
    let mut most = 0;
    for _ in 0..20 {
        most = most.max(router.resident_kib().saturating_sub(before));
        assert!(lab.served(0, "route get 10.0.2.2") < patience(Duration::from_secs(5)));
        std::thread::sleep(Duration::from_millis(100));
    }
    senders.into_iter().for_each(|sender| sender.join().expect("it does not panic"));
    println!("100 bodies of 4 MiB: {most} KiB more");
    assert!(most < 128 << 10, "{most} KiB");
    conserved(&router.stop());
}

/// Lists of routes that nobody reads on hold nothing from others, and end.
#[test]
fn slow_readers_of_routes_leave_room_for_others() {
    let Some(lab) = Lab::new() else { return };
    let (router, socket) = lab.start();
    // More than sockets and pieces hold: a list of it is not sent as a whole.
    let lines: String = (0..30_000_u32)
        .map(|at| format!("100.{}.{}.0/24 10.0.2.2\n", 64 + at / 256, at % 256))
        .collect();
    let table = lab.folder.write("table.txt", &lines);
    let text = format!(
        "[control]\nread_group = {READERS}\n[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"file\"\npath = {table:?}\n"
    );
    let path = lab.folder.write("more.toml", &text);
    lab.served(0, &format!("config apply {path}"));
    let list = "GET /v1/routes HTTP/1.1\r\nhost: x\r\n\r\n";
    let reading = format!("{socket}.ro");
    let mut crowds: Vec<Crowd> =
        [4001, 4002].map(|user| Crowd::begin(&mut crowd_by(user, &reading, 60), list)).into();
    crowds.iter_mut().for_each(|crowd| assert_eq!(crowd.has_come(), 60));
    std::thread::sleep(Duration::from_millis(500));
    for user in [0, 4003, 0, 4001] {
        lab.served(user, "route show");
        lab.served(0, "route replace 203.0.113.0/24 blackhole");
    }
    // A list that gave its place to another ends its connection a moment later.
    std::thread::sleep(patience(Duration::from_secs(3)));
    // Readers have 24 lists at most.
    let left: usize = crowds.into_iter().map(Crowd::end).sum();
    assert!(left <= 24, "{left}");
    conserved(&router.stop());
}

/// Large responses that nobody reads: their connections lose their place to others, and end by themselves.
#[test]
fn who_does_not_read_a_response_leaves_room_for_others() {
    let Some(lab) = Lab::new() else { return };
    let (router, socket) = lab.start();
    let map = "GET /v1/map?prefix=0.0.0.0/0&order=8 HTTP/1.1\r\nhost: x\r\n\r\n";
    let reading = format!("{socket}.ro");
    let mut crowds: Vec<Crowd> =
        [4001, 4002].map(|user| Crowd::begin(&mut crowd_by(user, &reading, 100), map)).into();
    crowds.iter_mut().for_each(|crowd| assert_eq!(crowd.has_come(), 100));
    std::thread::sleep(Duration::from_secs(3));
    for user in [0, 4001, 4002, 4003] {
        lab.served(user, "route get 10.0.2.2");
    }
    // 30 s each, and the time in which all responses begin.
    std::thread::sleep(patience(Duration::from_secs(50)));
    let left: usize = crowds.into_iter().map(Crowd::end).sum();
    assert_eq!(left, 0);
    conserved(&router.stop());
}

/// Streams last as long as they are read, unless there is no room for others.
#[test]
fn streams_of_one_user_leave_room_for_others() {
    let Some(lab) = Lab::new() else { return };
    let (router, socket) = lab.start();
    let events = "GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n";
    let reading = format!("{socket}.ro");
    let mut crowds: Vec<Crowd> =
        [4001, 4002].map(|user| Crowd::begin(&mut crowd_by(user, &reading, 200), events)).into();
    crowds.iter_mut().for_each(|crowd| assert_eq!(crowd.has_come(), 200));
    std::thread::sleep(Duration::from_millis(500));
    // The readers have what readers may have: others have room.
    for _ in 0..5 {
        lab.served(0, "route show");
        lab.served(0, "route replace 203.0.113.0/24 blackhole");
    }
    // For their users and for other readers the oldest streams end.
    for user in [4001, 4002, 4003] {
        for _ in 0..5 {
            lab.served(user, "route show");
        }
    }
    drop(crowds);
    lab.served(4003, "route show");
    conserved(&router.stop());
}
