//! `fingerpost run FILE.click`: graphs of files, by the program itself.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use fingerpost_io::DRIVERS;
use fingerpost_packet::device::DeviceSpec;
use fingerpost_packet::graph::trace::captured as read_captured;
use fingerpost_packet::{Batch, Pool, Port};
use serde_json::Value;

/// A folder of one test, gone when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fingerpost-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fingerpost(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fingerpost"));
    command.args(arguments);
    command
}

fn ran(arguments: &[&str]) -> Output {
    fingerpost(arguments).output().unwrap()
}

#[test]
fn packets_cross_from_file_to_file_and_it_ends() {
    let folder = Folder::new("click-files");
    let (made, copied) = (folder.path("made.pcap"), folder.path("copied.pcap"));
    let make = format!("InfiniteSource(LIMIT 300, BURST 40) -> ToDump({made}); Idle -> Discard");
    let make = folder.write("make.click", &make);
    // Without an end of its own: until it is told to stop.
    let child = fingerpost(&["run", &make, "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let soon = std::time::Instant::now();
    while fs::metadata(&made).map_or(0, |file| file.len()) < 24 + 300 * (16 + 60) {
        assert!(soon.elapsed().as_secs() < 20, "300 packets are not written");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let report = stopped(child);
    assert_eq!((&report["originated"], &report["originated_sent"]), (&300.into(), &300.into()));

    folder.write("way.inc", "elementclass Way { input -> c :: Counter -> output }");
    let copy = format!(
        "require(library way.inc); way :: Way;
         FromDump({made}, STOP true) -> way -> Queue(50) -> ToDump({copied});"
    );
    let copy = folder.write("copy.click", &copy);
    let output = ran(&["run", &copy, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["packets_in"], &report["packets_out"]), (&300.into(), &300.into()));
    assert_eq!(report["dropped"], serde_json::json!({}));
    let names: Vec<&Value> =
        report["elements"].as_array().unwrap().iter().map(|element| &element["name"]).collect();
    assert_eq!(names.last(), Some(&&"way/c".into()), "{report}");
    assert_eq!(fs::read(&made).unwrap(), fs::read(&copied).unwrap());
}

#[test]
fn two_processes_exchange_frames_by_shared_memory() {
    let folder = Folder::new("click-ring");
    let (socket, file) = (folder.path("socket"), folder.path("came.pcap"));
    let receive = format!("FromDevice({socket}, METHOD ring) -> c :: Counter -> ToDump({file})");
    let receive = folder.write("receive.click", &receive);
    let receiver = fingerpost(&["run", &receive, "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    // More than the ring holds: they wait where they are scheduled.
    let send = format!(
        "InfiniteSource(LIMIT 5000, BURST 256) -> q :: Queue(5000) -> ToDevice({socket}, METHOD ring)"
    );
    let send = folder.write("send.click", &send);
    let sender = fingerpost(&["run", &send, "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let begun = std::time::Instant::now();
    while captured(&file).len() < 5000 {
        assert!(begun.elapsed().as_secs() < 30, "{} frames came", captured(&file).len());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (sent, came) = (stopped(sender), stopped(receiver));
    assert_eq!((&sent["originated_sent"], &came["packets_in"]), (&5000.into(), &5000.into()));
    assert_eq!(
        (&sent["dropped"], &came["dropped"]),
        (&serde_json::json!({}), &serde_json::json!({}))
    );
}

/// A capture file of these frames.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0];
    for frame in frames {
        let len = u32::try_from(frame.len()).unwrap().to_le_bytes();
        file.extend([&[0; 8][..], &len, &len, frame].concat());
    }
    file
}

/// The frames of a capture file, as far as it is written.
fn captured(path: &str) -> Vec<Vec<u8>> {
    let file = fs::read(path).unwrap_or_default();
    let mut rest = file.get(24..).unwrap_or_default();
    let mut frames = Vec::new();
    while let Some(len) = rest.get(8..12) {
        let len = u32::from_le_bytes(len.try_into().unwrap()) as usize;
        let Some(frame) = rest.get(16..16 + len) else { break };
        frames.push(frame.to_vec());
        rest = &rest[16 + len..];
    }
    frames
}

#[test]
fn clicks_router_runs_from_capture_to_capture() {
    let folder = Folder::new("click-captures");
    let (left, right) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let (near, far) = ([2, 0, 0, 0, 9, 1], [2, 0, 0, 0, 9, 2]);
    // 198.51.100.7 to 203.0.113.9, TTL 64, with a right checksum: a header and nothing else.
    let mut packet =
        vec![0x45, 0, 0, 20, 0, 1, 0, 0, 64, 17, 0, 0, 198, 51, 100, 7, 203, 0, 113, 9];
    let sum: u32 = packet.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let ether = |to: [u8; 6], from: [u8; 6], kind: [u8; 2], rest: &[u8]| {
        [&to[..], &from, &kind, rest].concat()
    };
    let reply = [&[0, 1, 8, 0, 6, 4, 0, 2][..], &far, &[203, 0, 113, 9], &right, &[203, 0, 113, 1]];
    let reply = ether(right, far, [8, 6], &reply.concat());
    let name = |file: &str| folder.path(file);
    fs::write(name("in0"), capture(&[ether(left, near, [8, 0], &packet)])).unwrap();
    fs::write(name("in1"), capture(&[reply])).unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/graphs/ip-router-2.click");
    let device =
        |n: u8| format!("eth{n}=pcap:{},{}", name(&format!("in{n}")), name(&format!("out{n}")));
    let child =
        fingerpost(&["run", example, "--json", "--device", &device(0), "--device", &device(1)])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    let started = std::time::Instant::now();
    while captured(&name("out1")).len() < 2 {
        assert!(started.elapsed().as_secs() < 20, "{:02x?}", captured(&name("out1")));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let report = stopped(child);
    let sent = captured(&name("out1"));
    // First it asks who has the address, then the packet goes there, a hop older.
    assert_eq!(
        (&sent[0][..6], &sent[0][12..14], &sent[0][38..42]),
        (&[255; 6][..], &[8, 6][..], &[203, 0, 113, 9][..])
    );
    assert_eq!(sent[1][..14], ether(far, right, [8, 0], &[]));
    let header = &sent[1][14..34];
    let sum: u32 = header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    assert_eq!((header[8], (sum & 0xffff) + (sum >> 16)), (63, 0xffff));
    assert_eq!(header[12..], packet[12..]);
    assert_eq!(
        (report["packets_in"].as_u64(), captured(&name("out0")).len()),
        (Some(2), 0),
        "{report}"
    );
}

fn stopped(child: Child) -> Value {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn handlers_are_reached_by_the_port_asked_for() {
    let folder = Folder::new("click-port");
    let file = folder.write("a.click", "s :: InfiniteSource(LIMIT 7) -> c :: Counter -> Discard");
    let mut child = fingerpost(&["run", &file, "--json", "-p", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let place = line.trim().rsplit(' ').next().unwrap();
    let started = std::time::Instant::now();
    while !asked(place, b"read c.count\r\n").contains("DATA 1\r\n7") {
        assert!(started.elapsed().as_secs() < 20);
    }
    let report = stopped(child);
    assert_eq!(report["originated_dropped"], serde_json::json!({"discarded": 7}));
}

/// The replies of the control socket to commands.
fn asked(place: &str, commands: &[u8]) -> String {
    let mut client = TcpStream::connect(place).unwrap();
    client.write_all(commands).unwrap();
    client.write_all(b"quit\r\n").unwrap();
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    all
}

#[test]
fn a_configuration_is_replaced_by_another_or_stays() {
    let folder = Folder::new("click-replace");
    let path = folder.path("sock");
    let text = format!(
        "s :: InfiniteSource(LIMIT 7) -> c :: Counter -> q :: Queue; q -> Idle -> Discard;
         ControlSocket(UNIX, {path})"
    );
    let file = folder.write("a.click", &text);
    let mut child = fingerpost(&["run", &file, "--json", "-p", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut lines = [String::new(), String::new()];
    for line in &mut lines {
        told.read_line(line).unwrap();
    }
    let place = lines[1].trim().rsplit(' ').next().unwrap();
    let started = std::time::Instant::now();
    while !asked(place, b"read c.count\n").contains("\r\n7") {
        assert!(started.elapsed().as_secs() < 20);
    }
    let sent =
        |text: &str| asked(place, format!("writedata hotconfig {}\n{text}", text.len()).as_bytes());
    let refused = sent("c :: Counter -> Discrad");
    assert!(
        refused.contains("520-Write handler 'hotconfig' error:")
            && refused.contains("did you mean"),
        "{refused}"
    );
    assert!(asked(place, b"read q.length\n").contains("\r\n7"));
    let taken = sent(&format!(
        "ControlSocket(UNIX, {path}); Idle -> c :: Counter -> q :: Queue -> d :: Discard;
         FromDevice(x, METHOD memory) -> e :: Discard"
    ));
    assert!(taken.contains("200 Write handler 'hotconfig' OK"), "{taken}");
    while !asked(place, b"read d.count\n").contains("\r\n7") {
        assert!(started.elapsed().as_secs() < 20);
    }
    let stats = asked(place, b"read stats\n");
    assert!(stats.contains("\nd\tDiscard\t7\t") && stats.contains("\t7\tdiscarded 7"), "{stats}");
    let all = asked(place, b"read c.count\nread list\nread e.count\n");
    assert!(all.contains("\r\n7") && all.contains("ControlSocket@1\nIdle@2\nc\nq\nd\n"), "{all}");
    assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
    // Without the second socket and the device.
    assert!(sent("Idle -> d :: Discard").contains("200 Write"));
    while std::os::unix::net::UnixStream::connect(&path).is_ok() {
        assert!(started.elapsed().as_secs() < 20);
    }
    assert!(sent("Idle -> Queue(50000) -> d :: Discard").contains("200 Write"));
    let mut lines = told.lines().map_while(Result::ok).filter(|line| line.contains("frames"));
    let line = lines.next().unwrap();
    assert!(line.contains("may keep 50000 frames in each worker, and there are 5096: "), "{line}");
    let report = stopped(child);
    assert_eq!(
        (&report["originated"], &report["originated_dropped"]),
        (&7.into(), &serde_json::json!({"discarded": 7}))
    );
    assert_eq!(report["elements"][2]["packets"], 7);
}

#[test]
fn a_check_opens_nothing_for_writing_and_waits_for_nothing() {
    let folder = Folder::new("click-check");
    let (kept, new, fifo) = (folder.write("kept", "kept"), folder.path("new"), folder.path("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let text = format!(
        "FromDump({fifo}, SPECIAL true) -> ToDump({kept}); FromDump(-) -> ToDump({new});
         ControlSocket(UNIX, {new})"
    );
    let file = folder.write("a.click", &text);
    for words in [&["graph", "check", &file][..], &["run", "--check", &file]] {
        let output = fingerpost(words).stdin(Stdio::null()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{words:?}: {told}");
        assert_eq!(
            (fs::read(&kept).unwrap(), fs::exists(&new).unwrap()),
            (b"kept".to_vec(), false)
        );
    }
    // Without being asked for, and as anything else that is read.
    let wanted = "is a FIFO, and a regular file is wanted";
    for (text, words) in [
        (format!("FromDump({fifo}) -> Discard"), format!("{fifo}: open: {wanted}: see SPECIAL")),
        ("FromDump(/dev/zero) -> Discard".to_owned(), "is a device".to_owned()),
        (format!("require(library {fifo})"), wanted.to_owned()),
        ("require(library /dev/zero)".to_owned(), "is a device".to_owned()),
        (format!("Idle -> SourceFilter(a drop FILE {fifo}) -> Discard"), wanted.to_owned()),
    ] {
        let file = folder.write("a.click", &text);
        for arguments in
            [&["graph", "check", &file][..], &["run", "--check", &file], &["run", &file]]
        {
            let output = ran(arguments);
            let told = [output.stdout, output.stderr].concat();
            let told = String::from_utf8(told).unwrap();
            assert!(told.contains(&words) && output.status.code() == Some(1), "{text}: {told}");
        }
    }
    for arguments in [&["graph", "check", &fifo][..], &["config", "check", &fifo], &["run", &fifo]]
    {
        let output = ran(arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(wanted) && output.status.code() == Some(1), "{arguments:?}: {told}");
    }
    // What is given on purpose.
    for name in ["-", "/dev/stdin", "/dev/fd/0"] {
        let mut child = fingerpost(&["graph", "check", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"Idle -> Discard").unwrap();
        let told = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(told, format!("{name}: 2 elements, 1 connections, no errors\n"));
    }
}

#[test]
fn a_capture_is_read_from_standard_input_and_from_a_fifo() {
    let folder = Folder::new("click-special");
    let frames = [vec![7; 60], vec![8; 61]];
    let (fifo, out) = (folder.path("fifo"), folder.path("out"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for from in ["-", &format!("{fifo}, SPECIAL true")] {
        let text = format!("FromDump({from}, STOP true) -> Queue -> ToDump({out})");
        let file = folder.write("a.click", &text);
        let mut child = fingerpost(&["run", &file]).stdin(Stdio::piped()).spawn().unwrap();
        let mut into: Box<dyn Write> = match from {
            "-" => Box::new(child.stdin.take().unwrap()),
            _ => Box::new(fs::OpenOptions::new().write(true).open(&fifo).unwrap()),
        };
        into.write_all(&capture(&frames)).unwrap();
        drop(into);
        assert!(child.wait().unwrap().success());
        assert_eq!(captured(&out), frames, "{from}");
    }
}

#[test]
#[cfg(feature = "click")]
fn the_click_command_reads_large_packets_from_any_file() {
    let folder = Folder::new("click-large");
    let frames = [vec![7; 60], vec![8; 9014], vec![9; 65_000]];
    let (from, fifo) = (folder.write("from", ""), folder.path("fifo"));
    fs::write(&from, capture(&frames)).unwrap();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for input in [&from, &fifo] {
        let to = folder.path("to");
        let text = format!("FromDump({input}, STOP true) -> Queue -> ToDump({to}, SNAPLEN 0)");
        let mut child = fingerpost(&["click", "-e", &text]).spawn().unwrap();
        if *input == fifo {
            fs::write(&fifo, capture(&frames)).unwrap();
        }
        assert!(child.wait().unwrap().success());
        assert_eq!(captured(&to), frames, "{input}");
        fs::remove_file(to).unwrap();
    }
    let summary = "!data src ip_len\n1.0.0.1 20\n1.0.0.2 21\n";
    fs::write(&from, summary).unwrap();
    let text = format!(
        "FromIPSummaryDump({fifo}, STOP true) -> ToIPSummaryDump(-, FIELDS src ip_len, HEADER false)"
    );
    let child = fingerpost(&["click", "-e", &text]).stdout(Stdio::piped()).spawn().unwrap();
    fs::write(&fifo, summary).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1.0.0.1 20\n1.0.0.2 21\n");
}

#[test]
fn what_is_wrong_is_told_and_nothing_runs() {
    let folder = Folder::new("click-wrong");
    let wrong = folder.write("wrong.click", "FromDevice(nowhere0) -> Discrad; Queue(x) -> Discard");
    let output = ran(&["run", &wrong]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        told.contains("wrong.click:1:25") && told.contains("did you mean `Discard`?"),
        "{told}"
    );

    let good = folder.write("good.click", "FromDevice(nowhere0) -> Discard");
    let output = ran(&["run", &good, "--check", "--json"]);
    let outline: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        outline,
        serde_json::json!({"elements": 2, "devices": ["nowhere0"], "control_sockets": 0})
    );
    for (arguments, code, words) in [
        (&["run", &good][..], 1, "nowhere0: if_nametoindex: No such device"),
        (&["run", &good, "--device", "a=memory:x"], 1, "--device a: the file names no such device"),
        (&["run", &good, "--device", "nowhere0=magic:x"], 1, "no driver `magic`; there are memory"),
        (&["run", &good, "--device", "nowhere0"], 2, "is not NAME=DRIVER:WHAT"),
        (&["run", &good, "--only", "a"], 2, "--only is for a router that takes interfaces over"),
        (&["run", "-p", "1"], 2, "--port is for a graph"),
        (&["run", "--write-token", "x"], 2, "--write-token is for a graph"),
        (&["run", "--open-below", "x"], 2, "--open-below is for a graph"),
        (&["run", &good, "--write-token", "/dev/zero"], 1, "--write-token: /dev/zero: is a device"),
        (&["run", &good, "--open-below", "/nowhere"], 1, "--open-below /nowhere: No such file"),
        (&["run", "--workers", "2"], 2, "--workers is for a graph"),
        (&["run", &good, "--workers", "0"], 2, "0 is not in 1..=256"),
        (&["run", &good, "--cores", "99999"], 2, "`99999` is no processor of this process"),
        (&["run", &good, "-p", "x"], 2, "`x` is no TCP port"),
        (&["run", &folder.path("none.click")], 1, "none.click: No such file"),
    ] {
        let output = ran(arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(
            told.contains(words) && output.status.code() == Some(code),
            "{arguments:?}: {told}"
        );
    }
}

/// Packet `number` of a flow, in a frame of 60 bytes.
fn numbered(flow: u8, number: u64) -> Vec<u8> {
    let ip = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, flow, 192, 0, 2, 1];
    let udp = [0x10, flow, 0, 9, 0, 26, 0, 0];
    let number = number.to_be_bytes();
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip, &udp, &number, &[0; 10]].concat()
}

/// Which flow and which number a frame is; `None` where it is none of those.
fn number_of(frame: &[u8]) -> Option<(usize, u64)> {
    let (flow, number) = (*frame.get(29)?, frame.get(42..50)?);
    let number = u64::from_be_bytes(number.try_into().ok()?);
    (frame == numbered(flow, number)).then_some((flow.into(), number))
}

/// What the workers of a report received.
fn shares(report: &Value) -> Vec<u64> {
    let workers = report["workers"].as_array().unwrap();
    workers.iter().map(|worker| worker["packets_in"].as_u64().unwrap()).collect()
}

#[test]
fn several_workers_share_a_queue_and_a_new_configuration_costs_no_packet() {
    const FLOWS: usize = 40;
    let folder = Folder::new("click-workers");
    let rings = [folder.path("ring0"), folder.path("ring1")];
    let plain = "FromDevice(a) -> c :: Counter -> q :: Queue(2000) -> ToDevice(b)".to_owned();
    // Comes and goes with a device of its own.
    let other = plain.replace("-> q ::", "-> between :: Counter -> q ::")
        + "; InfiniteSource(LIMIT 9) -> ToDevice(m, METHOD memory)";
    let file = folder.write("a.click", &plain);
    let mut words = vec!["run", &file, "--json", "-p", "0", "--workers", "3"];
    let devices = [format!("a=ring:{}", rings[0]), format!("b=ring:{}", rings[1])];
    devices.iter().for_each(|device| words.extend(["--device", device]));
    let mut child =
        fingerpost(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let first = told.next().unwrap();
    assert!(
        first.contains(" a: ") && first.ends_with("one queue for 3 workers, by flow"),
        "{first}"
    );
    let place = told.find(|line| line.contains("control socket")).unwrap();
    let place = place.rsplit(' ').next().unwrap().to_owned();
    std::thread::spawn(move || told.for_each(drop));

    let pool = Pool::new(2048, 2048);
    let driver = DRIVERS.iter().find(|row| row.name == "ring").unwrap();
    let open = |name: &String| {
        let spec = DeviceSpec { name, queues: (0, 1), pools: std::slice::from_ref(&pool) };
        (driver.open)(&spec).unwrap().remove(0)
    };
    let (mut into, mut out): (Box<dyn Port>, Box<dyn Port>) = (open(&rings[0]), open(&rings[1]));
    let (mut sent, mut came) = (0_u64, 0_u64);
    let mut next = [0; FLOWS];
    let (mut going, mut coming) = (Batch::new(&pool), Batch::new(&pool));
    let swaps = std::thread::spawn({
        let place = place.clone();
        move || {
            let write = |text: &str| {
                asked(&place, format!("writedata hotconfig {}\n{text}", text.len()).as_bytes())
            };
            for text in [&plain, &other].into_iter().cycle().take(10) {
                std::thread::sleep(std::time::Duration::from_millis(100));
                let told = write(text);
                assert!(told.contains("200 Write handler 'hotconfig' OK"), "{told}");
            }
            // One that is refused leaves what runs as it is.
            let told = write(&other.replace("METHOD memory", "METHOD tap"));
            assert!(told.contains("device m: memory drives it already, and tap cannot"), "{told}");
            let told = asked(&place, b"write hotconfig FromDevice(c, METHOD afxdp) -> Discard\n");
            assert!(told.contains("520"), "{told}");
        }
    });
    let mut last = std::time::Instant::now();
    while came < sent || sent < 40_000 || !swaps.is_finished() {
        // Never more on the way than fits into the rings.
        while sent - came < 200 && (sent < 40_000 || !swaps.is_finished()) {
            let flow = usize::try_from(sent).unwrap() % FLOWS;
            let mut packet = pool.alloc().unwrap();
            packet.set_len(60);
            let frame = numbered(u8::try_from(flow).unwrap(), sent / FLOWS as u64);
            packet.bytes_mut().copy_from_slice(&frame);
            going.push(packet).unwrap();
            sent += 1;
        }
        into.send(&mut going).unwrap();
        if out.recv(&mut coming).unwrap() > 0 {
            last = std::time::Instant::now();
        }
        for i in 0..coming.len() {
            let (flow, number) = number_of(coming.bytes(i)).unwrap();
            assert_eq!(number, next[flow], "flow {flow}");
            next[flow] += 1;
            came += 1;
        }
        coming.clear();
        assert!(last.elapsed().as_secs() < 20, "of {sent} came {came}");
    }
    swaps.join().unwrap();
    let told = asked(&place, b"read c.count\nread q.length\nread q.drops\n");
    assert!(told.contains(&format!("\r\n{sent}200 Read handler 'q.length'")), "{sent}: {told}");
    let report = stopped(child);
    assert_eq!((&report["packets_in"], &report["packets_out"]), (&sent.into(), &sent.into()));
    assert_eq!(report["dropped"], serde_json::json!({}));
    let shares = shares(&report);
    assert!(shares.len() == 3 && shares.iter().all(|&n| n > sent / 20), "{shares:?} of {sent}");
    assert_eq!(shares.iter().sum::<u64>(), sent);
}

#[test]
fn several_workers_read_and_write_files_once() {
    let folder = Folder::new("click-workers-files");
    let file = |name: &str| folder.path(name);
    let frames: Vec<Vec<u8>> =
        (0..200).flat_map(|n| (0..20).map(move |flow| numbered(flow, n))).collect();
    fs::write(file("in"), capture(&frames)).unwrap();
    let in_order = |name: &str| {
        let came = captured(&file(name));
        let mut next = [0; 20];
        for frame in &came {
            let (flow, number) = number_of(frame).unwrap();
            assert_eq!(number, next[flow], "{name}: flow {flow}");
            next[flow] += 1;
        }
        came.len()
    };

    // By devices, which are spread over the workers, and by elements, of which the first worker's reads.
    let text = "FromDevice(x) -> c :: Counter -> ToDevice(x);
         FromDump(IN) -> d :: Counter -> Queue(5000) -> ToDump(OUT);
         s :: InfiniteSource(DATA \\<07>, LIMIT 1234, BURST 10) -> e :: Counter -> Discard;
         r :: RatedSource(LIMIT 100, RATE 100000) -> Discard";
    let text = text.replace("IN", &file("in")).replace("OUT", &file("dumped"));
    let text = folder.write("a.click", &text);
    let device = format!("x=pcap:{},{}", file("in"), file("sent"));
    let child = fingerpost(&["run", &text, "--json", "--workers", "4", "--device", &device])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    while captured(&file("sent")).len() < frames.len()
        || captured(&file("dumped")).len() < frames.len()
    {
        let now = (captured(&file("sent")).len(), captured(&file("dumped")).len());
        assert!(begun.elapsed().as_secs() < 30, "{now:?} frames are written");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let report = stopped(child);
    assert_eq!((in_order("sent"), in_order("dumped")), (frames.len(), frames.len()));
    let count = |name: &str| {
        let elements = report["elements"].as_array().unwrap();
        elements.iter().find(|element| element["name"] == name).unwrap()["packets"].as_u64()
    };
    assert_eq!([count("c"), count("d"), count("e")], [Some(4000), Some(4000), Some(1234)]);
    assert_eq!(report["originated"], 1334);
    assert!(shares(&report).iter().all(|&share| share > 200), "{:?}", shares(&report));

    // An element asks for the end: what others hold leaves first.
    let text = format!("FromDump({}, STOP true) -> Queue(5000) -> ToDevice(x)", file("in"));
    let text = folder.write("b.click", &text);
    let device = format!("x=pcap:,{}", file("ended"));
    let output = ran(&["run", &text, "--json", "--workers", "2", "--device", &device]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["packets_out"], 4000);
    assert_eq!(in_order("ended"), frames.len());
}

#[test]
fn elements_are_timed_and_workers_shown() {
    let folder = Folder::new("click-cycles");
    let text = "s :: InfiniteSource(BURST 32, ACTIVE true) -> c :: Counter -> Discard;
         Idle -> q :: Queue -> Discard";
    let file = folder.write("a.click", &text.replace("true", "false"));
    let mut child = fingerpost(&["run", &file, "--json", "-p", "0", "--workers", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let place = line.trim().rsplit(' ').next().unwrap();
    let told = asked(place, b"write cycles maybe\nread cycles\nwrite cycles true\n");
    assert!(told.contains("`maybe` is neither `true` nor `false`"), "{told}");
    assert!(told.contains("'cycles' OK\r\nDATA 0\r\n"), "{told}");
    if told.contains("no clock to count by") {
        println!("skipped: needs a processor with a clock");
        drop(stopped(child));
        return;
    }
    let rows = || {
        let told = asked(place, b"read cycles\n");
        let rows = told.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
        rows.filter(|row| row.len() == 4).collect::<Vec<_>>()
    };
    assert!(rows().len() == 6 && rows().iter().all(|row| row[2] == "0" && row[3] == "-"));
    // What replaces it is timed as well.
    let command = format!("writedata hotconfig {}\n{text}", text.len());
    assert!(asked(place, command.as_bytes()).contains("200 Write"));
    let begun = std::time::Instant::now();
    let number = |row: &[String], at: usize| row[at].parse::<f64>().unwrap();
    while number(&rows()[1], 2) < 10_000.0 {
        assert!(begun.elapsed().as_secs() < 20, "{:?}", rows());
    }
    let told = asked(place, b"write s.active false\nwrite cycles false\nread workers\n");
    let last = rows();
    assert_eq!(last[1][..2], ["c", "Counter"]);
    assert!((0.1..10_000.0).contains(&number(&last[1], 3)), "{last:?}");
    assert_eq!(last[4][..], ["q", "Queue", "0", "-"]);
    assert_eq!(rows(), last, "no longer timed");
    let workers: Vec<&str> = told.lines().filter(|line| line.contains('\t')).collect();
    let made = |row: &str| row.rsplit('\t').next().unwrap().parse::<u64>().unwrap();
    assert!(workers.len() == 2 && made(workers[0]) >= 10_000, "{workers:?}");
    assert_eq!(workers[1], "1\t0\t0\t0\t0\t0");
    let report = stopped(child);
    assert_eq!(report["workers"][1]["originated"], 0);
}

#[test]
fn ways_of_packets_are_read_from_a_handler() {
    let folder = Folder::new("click-trace");
    let frame: String = numbered(7, 1).iter().map(|byte| format!("{byte:02x} ")).collect();
    // What is sent by such a device is received.
    let text = format!(
        "s :: InfiniteSource(DATA \\<{frame}>, LIMIT 10, ACTIVE false) -> ToDevice(m, METHOD memory);
         FromDevice(m, METHOD memory) -> c :: Classifier(12/0806, 12/0800);
         c [0] -> Discard; c [1] -> v :: VLANEncap(VLAN_ID 7) -> d :: Discard"
    );
    let file = folder.write("a.click", &text);
    let mut child = fingerpost(&["run", &file, "--json", "-p", "0", "--workers", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let place = { told }.find(|line| line.contains("control socket")).unwrap();
    let place = place.rsplit(' ').next().unwrap();
    let refused = asked(place, b"write trace many\nwrite trace 1 udp (\nread trace\n");
    assert!(refused.contains("`many` is no number of packets up to 1000"), "{refused}");
    assert!(refused.matches("error:").count() == 2 && refused.contains("DATA 0\r\n"), "{refused}");
    let begun = std::time::Instant::now();
    let told = asked(place, b"write trace 3 src host 10.0.0.7 and udp\nwrite s.active true\n");
    assert!(told.matches("200 Write").count() == 2, "{told}");
    let mut ways = String::new();
    while !ways.contains("\n3 by m") {
        assert!(begun.elapsed().as_secs() < 20, "{ways}");
        ways = asked(place, b"read trace\n");
    }
    let mut rows = ways.lines().skip_while(|line| !line.starts_with("1 by m: "));
    let mut row = || rows.next().unwrap_or_default();
    assert!(row().contains("10.0.0.7 > 192.0.2.1 udp 4103 > 9"), "{ways}");
    assert!(row().ends_with(" (FromDevice) -> out"), "{ways}");
    assert_eq!(row(), "    c (Classifier) -> 1", "{ways}");
    let tagged = row();
    assert!(tagged.starts_with("    v (VLANEncap): ") && tagged.ends_with(" -> 0"), "{ways}");
    assert!(row().starts_with("    d (Discard): dropped, discarded: "), "{ways}");
    assert!(row().starts_with("2 by m: ") && !ways.contains("4 by m"), "{ways}");
    // What was traced is there when the elements are gone.
    let command = "writedata hotconfig 15\nIdle -> Discardread trace\n";
    assert!(asked(place, command.as_bytes()).contains("\n3 by m"), "{ways}");
    stopped(child);
}

/// A running graph, and where its control socket is.
fn started(arguments: &[&str]) -> (Child, String) {
    let mut child = fingerpost(&[&["run"], arguments, &["--json", "-p", "0"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let place = { told }.find(|line| line.contains("control socket")).unwrap();
    (child, place.rsplit(' ').next().unwrap().to_owned())
}

/// Packets come by `m`, those to 192.0.2.0/24 wait for the shaper and leave by `out`.
fn shaped(folder: &Folder) -> (Child, String) {
    let frame: String = numbered(7, 1).iter().map(|byte| format!("{byte:02x} ")).collect();
    let text = format!(
        "s :: InfiniteSource(DATA \\<{frame}>, LIMIT 10, ACTIVE false) -> ToDevice(m, METHOD memory);
         FromDevice(m, METHOD memory) -> c :: Counter -> Strip(14) -> CheckIPHeader(CHECKSUM false)
            -> rt :: RadixIPLookup(192.0.2.0/24 198.51.100.1 1, 0.0.0.0/0 0);
         rt [0] -> lost :: Discard;
         rt [1] -> t :: DecIPTTL -> q :: Queue -> l :: CheckLength(46) -> sh :: Shaper(1000)
            -> e :: EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02) -> d :: ToDevice(out);
         l [1] -> long :: Discard"
    );
    let file = folder.write("shaped.click", &text);
    let out = format!("out=pcap:,{}", folder.path("out.pcap"));
    started(&[&file, "--device", &out, "--workers", "2"])
}

#[test]
fn why_tells_what_would_become_of_a_packet_and_changes_nothing() {
    let folder = Folder::new("click-why");
    let (child, place) = shaped(&folder);
    let frame: String = numbered(7, 1).iter().map(|byte| format!("{byte:02x}")).collect();
    let shown =
        "read c.count\nread lost.count\nread q.highwater_length\nread stats\nread workers\n";
    let before = asked(&place, shown.as_bytes());
    let told = asked(&place, format!("read why m {frame}\n").as_bytes());
    let rows: Vec<&str> = told.lines().skip_while(|row| !row.starts_with("forward: ")).collect();
    assert_eq!(rows[0], "forward: it is forwarded by out", "{told}");
    assert!(rows[1].starts_with("1 by m: 10.0.0.7 > 192.0.2.1 udp 4103 > 9 ttl 64"), "{told}");
    let way = [
        "    c (Counter) -> 0",
        "    rt (RadixIPLookup): 192.0.2.0/24 via 198.51.100.1 -> 1",
        "    t (DecIPTTL): ",
        "    q (Queue): waits",
        "    q (Queue) -> out",
        "    l (CheckLength) -> out",
        "    sh (Shaper) -> shaped",
        "    e (EtherEncap): ",
        "    d (ToDevice): sent by out",
    ];
    let mut rest = rows.iter();
    for step in way {
        assert!(rest.any(|row| row.starts_with(step)), "{step} is not there: {told}");
    }
    // By the command, of addresses and packets.
    let why = |arguments: &[&str]| {
        let output = ran(&[&["why", "--json", "--control", &place], arguments].concat());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (answer, String::from_utf8(output.stderr).unwrap(), output.status.code())
    };
    let (answer, ..) = why(&["203.0.113.9", "--from", "m"]);
    assert_eq!((&answer["does"], &answer["interface"]), (&"drop".into(), &"m".into()));
    let steps = answer["dry_run"]["steps"].as_array().unwrap();
    let lookup = steps.iter().find(|step| step["element"] == "rt").unwrap();
    assert_eq!(lookup["found"], serde_json::json!({"prefix": "0.0.0.0/0", "gateway": null}));
    assert_eq!(steps.last().unwrap()["reason"], "discarded");
    let flow = ["192.0.2.5", "--flow", "10.0.0.1,192.0.2.5,tcp,1,2"];
    let (answer, ..) = why(&flow);
    assert_eq!(answer["verdict"], "it is forwarded by out");
    let summary = answer["dry_run"]["packets"][0]["summary"].as_str().unwrap();
    assert!(summary.starts_with("10.0.0.1 > 192.0.2.5 tcp 1 > 2"), "{summary}");
    fs::write(
        folder.path("in.pcap"),
        capture(&[numbered(1, 1), [numbered(7, 1), vec![0; 9]].concat()]),
    )
    .unwrap();
    // What a handler changed is what is tried.
    assert!(asked(&place, b"write rt.set 192.0.2.1/32 0\n").contains("200 Write"));
    let (answer, ..) = why(&[&folder.path("in.pcap"), "--number", "2"]);
    assert!(answer["verdict"].as_str().unwrap().starts_with("it is dropped by lost (discarded)"));
    assert!(asked(&place, b"write rt.remove 192.0.2.1/32\n").contains("200 Write"));
    for (arguments, code, words) in [
        (&["192.0.2.1", "--from", "out"][..], 1, "the graph receives nothing from out"),
        (&["192.0.2.1", "--from", "eth9"], 1, "is no hexadecimal digit"),
        (&["0102"], 1, "shorter than an Ethernet header"),
        (&["192.0.2.6", "--flow", flow[2]], 1, "the flow goes to 192.0.2.5"),
    ] {
        let (_, said, status) = why(arguments);
        assert!(said.contains(words) && status == Some(code), "{arguments:?}: {said}");
    }
    assert_eq!(asked(&place, shown.as_bytes()), before, "nothing was counted");
    stopped(child);
    let output = ran(&["why", "192.0.2.1", "--control", &place]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(captured(&folder.path("out.pcap")).len(), 0, "nothing was sent");
}

#[test]
fn traces_of_a_graph_become_a_capture() {
    let folder = Folder::new("click-pcapng");
    let (child, place) = shaped(&folder);
    let (file, filter) = (folder.path("ways.pcapng"), "src host 10.0.0.7 and udp");
    let follow = ["trace", "add", "3", filter, "--json", "--control", &place];
    let follow = [&follow[..], &["--pcapng", &file, "--seconds", "30"]].concat();
    let mut tracing = fingerpost(&follow).stdout(Stdio::piped()).spawn().unwrap();
    let begun = std::time::Instant::now();
    // What is made before it is asked for is not followed.
    while tracing.try_wait().unwrap().is_none() {
        assert!(begun.elapsed().as_secs() < 30, "it does not end");
        asked(&place, b"write s.reset\nwrite s.active true\n");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let output = tracing.wait_with_output().unwrap();
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout).unwrap();
    let traces: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(traces.len(), 3, "{lines}");
    for trace in &traces {
        let packet = &trace["packets"][0];
        assert_eq!((&packet["fate"], &packet["interface"]), (&"sent".into(), &"out".into()));
    }
    // As it came and as it left, each with its way or what became of it.
    let bytes = fs::read(&file).unwrap();
    let frames: Vec<_> = (1..).map_while(|n| read_captured(&bytes[..], n).unwrap()).collect();
    assert_eq!(frames.len(), 6);
    assert_eq!(frames[0], numbered(7, 1));
    assert_eq!((&frames[1][..6], frames[1][22]), (&[2, 0, 0, 0, 0, 2][..], 63));
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("trace 1, as it came") && text.contains("sh [shaped]\n"), "{text}");
    assert!(text.contains("rt [1]: 192.0.2.0/24 via 198.51.100.1"), "{text}");
    assert!(text.contains("trace 3, as it left"), "{text}");
    // Nothing comes: it says so, and the graph looks for nothing any more.
    let none = ["trace", "add", "1", "tcp", "--seconds", "0.3", "--control", &place];
    let output = ran(&none);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("0 of 1 packets matched"), "{said}");
    let (wrong, words) = (["trace", "add", "1", "udp", "--control", "nowhere"], "no place: a port");
    let output = ran(&wrong);
    assert!(String::from_utf8(output.stderr).unwrap().contains(words));
    stopped(child);
}

#[test]
fn a_graph_is_seen_at_a_glance() {
    let folder = Folder::new("click-top");
    let file = folder.write(
        "a.click",
        "s :: RatedSource(RATE 2000) -> c :: Counter -> d :: Discard; Idle -> q :: Queue -> Discard",
    );
    let (child, place) = started(&[&file, "--workers", "2"]);
    let top = ["top", "--count", "2", "--interval", "0.5", "--control", &place];
    let output = ran(&[&top[..], &["--json"]].concat());
    let said = String::from_utf8(output.stdout).unwrap();
    let pictures: Vec<Value> = said.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let last = &pictures[1];
    let of = |name: &str| {
        let rows = last["elements"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}: {said}"))
    };
    // A worker with nothing else to do sleeps for longer than a burst of the source lasts.
    let rate = of("c")["packets"].as_f64().unwrap();
    assert!((20.0..6000.0).contains(&rate), "{said}");
    let drops = &last["drops"][0];
    assert_eq!((&drops["element"], &drops["reason"]), (&"d".into(), &"discarded".into()));
    let workers = last["workers"].as_array().unwrap();
    assert_eq!((workers.len(), &workers[1]["generated"]), (2, &0.0.into()));
    assert!(workers[0]["generated"].as_f64().unwrap() > 20.0, "{said}");
    let output = ran(&top);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("worker  in/s") && text.contains("discarded"), "{text}");
    // Nobody is timed when nobody looks.
    let cycles = || asked(&place, b"read cycles\n");
    let before = cycles();
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(cycles(), before);
    stopped(child);
}

#[test]
fn a_rate_is_kept_where_nothing_comes_in() {
    let folder = Folder::new("click-rate");
    let text = "RatedSource(RATE 2000, LIMIT 2000, STOP true) -> c :: Counter -> Discard";
    let file = folder.write("a.click", text);
    let started = std::time::Instant::now();
    let output = ran(&["run", &file, "--json"]);
    let seconds = started.elapsed().as_secs_f64();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["originated"], 2000);
    // Asleep for longer than its burst of 20 ms lasts it makes a fifth of them.
    assert!((0.9..3.5).contains(&seconds), "{seconds} s");
}

#[test]
#[cfg(feature = "click")]
fn virtual_time_gives_the_same_each_time() {
    let text = "r :: RatedSource(RATE 700, LIMIT 900) -> Queue(40) -> s :: RatedUnqueue(300)
            -> p :: Script(TYPE PACKET, return $(random 2)) -> a :: Counter -> d :: Discard; p [1] -> b :: Counter -> d;
        InfiniteSource(LIMIT 20) -> IPEncap(udp, 1.0.0.1, 2.0.0.2) -> q :: ARPQuerier(1.0.0.3, 2:1:1:1:1:1, CAPACITY 7)
            -> ToIPSummaryDump(-, FIELDS timestamp ip_dst len); Idle -> [1] q;
        Script(wait 5, print $(a.count), print $(b.count), print $(a.rate), print $(random 1000000), print $(now),
            print q.table, stop)";
    let run = || {
        let output = ran(&["click", "--simtime", "-e", text]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let first = run();
    assert!(first.lines().count() > 6, "{first}");
    for _ in 0..3 {
        assert_eq!(run(), first);
    }
}

#[test]
#[cfg(feature = "click")]
fn a_script_replaces_the_configuration_that_it_is_of() {
    let start = std::time::Instant::now();
    let text = "Idle -> s :: Switch(0) -> Idle; s [1] -> Idle;
        Script(TYPE SIGNAL USR1, print 'stale');
        Script(writeq hotconfig \"Script(TYPE SIGNAL USR1, print 'fresh', stop); Script(print 'ready'); Idle -> Idle\")";
    let mut child =
        fingerpost(&["click", "-R", "-e", text]).stdout(Stdio::piped()).spawn().unwrap();
    let (to, lines) = std::sync::mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        stdout.lines().map_while(Result::ok).try_for_each(|line| to.send(line))
    });
    let next = |child: &mut std::process::Child| {
        let line = lines.recv_timeout(std::time::Duration::from_secs(20));
        line.unwrap_or_else(|_| {
            let _ = child.kill();
            panic!("it prints nothing")
        })
    };
    assert_eq!(next(&mut child), "ready");
    let sent = Command::new("kill").args(["-USR1", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(next(&mut child), "fresh", "the element of the new configuration");
    assert!(child.wait().unwrap().success());
    assert!(start.elapsed().as_secs() < 10, "nobody waits for it");
}

#[test]
#[cfg(feature = "click")]
fn the_port_of_the_driver_is_read_by_name() {
    let text = "DriverManager(print click_driver@@ControlSocket.port, stop)";
    let output = ran(&["click", "-p", "41970+", "-e", text]);
    let port: u16 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    assert!((41970..=41980).contains(&port), "{port}");
}
