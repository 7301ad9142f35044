//! Stores that stop, stall or answer nonsense: an error in bounded time and memory, and all is well afterwards.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use fingerpost_cluster::store::{Keep, Options, Store, StoreError, find};

use super::server::{KINDS, Kind, Server};

const TIMEOUT: Duration = Duration::from_millis(500);

#[test]
fn a_server_that_stops_is_unreachable_until_it_is_back() {
    for kind in KINDS {
        let Some(mut server) = Server::new(kind) else { continue };
        let options = server.options();
        let mut store = server.open(&options);
        store.put("number/1", b"a", Keep::Forever).unwrap();
        let after = store.list("").unwrap().revision;
        server.stop();
        for _ in 0..2 {
            let begin = Instant::now();
            let calls = [
                store.get("number/1").map(drop),
                store.put("number/1", b"b", Keep::Forever).map(drop),
                store.watch("", after, Duration::from_secs(1)).map(drop),
            ];
            for call in calls {
                assert!(matches!(call, Err(StoreError::Unreachable { .. })), "{call:?}");
            }
            assert!(begin.elapsed() < options.timeout * 3, "{:?}", begin.elapsed());
        }
        server.start();
        assert_eq!(store.get("number/1").unwrap().unwrap().value, b"a");
        assert!(store.put("number/1", b"c", Keep::Leased).unwrap() > after);
        let found = store.watch("", after, Duration::from_secs(10)).unwrap();
        assert_eq!(found.items[0].key, "number/1");
    }
}

#[test]
fn the_next_endpoint_is_used_when_one_fails() {
    for kind in KINDS {
        let Some(server) = Server::new(kind) else { continue };
        let (silent, closed) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let url = |port| format!("{}://127.0.0.1:{port}", kind.schemes[0]);
        let ports = [&silent, &closed].map(|listener| listener.local_addr().unwrap().port());
        drop(closed);
        let mut options = server.options();
        options.endpoints = vec![url(ports[1]), url(ports[0]), url(server.port())];
        options.timeout = TIMEOUT;
        let mut store = server.open(&options);
        let begin = Instant::now();
        let mut failed = 0;
        while let Err(error) = store.put("member/a", b"1", Keep::Leased) {
            assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
            failed += 1;
        }
        assert!(failed < 3 && begin.elapsed() < TIMEOUT * 6, "{failed}, {:?}", begin.elapsed());
        store.keep_alive().unwrap();
    }
}

/// What a server that is none does with a connection.
type Nonsense = (&'static str, fn(&mut TcpStream) -> std::io::Result<()>);

/// Answers `body` as HTTP to each request, until the client leaves.
fn http(stream: &mut TcpStream, body: &[u8]) -> std::io::Result<()> {
    let mut request = [0; 4096];
    while stream.read(&mut request)? > 0 {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())?;
        stream.write_all(body)?;
    }
    Ok(())
}

/// Begins as NATS does, and answers `body` to each request. A request for one message more gets its number.
fn nats(stream: &mut TcpStream, body: &str) -> std::io::Result<()> {
    stream.write_all(b"INFO {\"headers\":true,\"max_payload\":1048576}\r\nPONG\r\n")?;
    let mut seq = 0;
    for line in BufReader::new(stream.try_clone()?).lines() {
        let line = line?;
        let mut words = line.split(' ');
        if let (Some("PUB" | "HPUB"), Some(_), Some(reply)) =
            (words.next(), words.next(), words.next())
        {
            seq += 1;
            let body = body.replace("SEQ", &seq.to_string());
            write!(stream, "MSG {reply} 1 {}\r\n{body}\r\n", body.len())?;
        }
    }
    Ok(())
}

fn endless(stream: &mut TcpStream, begin: &[u8], piece: &[u8]) -> std::io::Result<()> {
    stream.write_all(begin)?;
    loop {
        stream.write_all(piece)?;
    }
}

const NONSENSE: &[Nonsense] = &[
    ("another protocol", |stream| stream.write_all(b"220 mail.example ESMTP\r\n")),
    ("garbage", |stream| stream.write_all(&[0xff, 0, 1, 0x80, b'\n', 0x16, 3, 1])),
    ("nothing, and the end", |_| Ok(())),
    ("nothing, and no end", |stream| stream.read_to_end(&mut Vec::new()).map(drop)),
    ("an endless line", |stream| endless(stream, b"HTTP/1.1 200 ", &[b'x'; 65_536])),
    ("an endless line of any protocol", |stream| {
        endless(stream, b"INFO {\"a\":\"", &[b'x'; 65_536])
    }),
    ("a page", |stream| http(stream, b"<html><body>It works</body></html>")),
    ("no object", |stream| http(stream, b"[[[[")),
    ("another object", |stream| {
        http(stream, b"{\"header\":{\"revision\":\"banana\"},\"token\":4}")
    }),
    ("deep nesting", |stream| http(stream, &[b'['; 100_000])),
    ("half an answer", |stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"header\":")
    }),
    ("a vast length", |stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n")
    }),
    ("endless chunks", |stream| {
        let chunk = [b"8000\r\n".as_slice(), &[b' '; 0x8000], b"\r\n"].concat();
        endless(stream, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &chunk)
    }),
    ("a message that is a page", |stream| nats(stream, "<html>It works</html>")),
    ("a message that is another object", |stream| {
        nats(stream, "{\"error\":[],\"message\":7,\"seq\":-1}")
    }),
    ("a bucket that never ends", |stream| {
        let value = "QUJD".repeat(100_000);
        let message =
            format!("{{\"subject\":\"$KV.fingerpost_1.a\",\"seq\":SEQ,\"data\":\"{value}\"}}");
        nats(stream, &format!("{{\"created\":\"now\",\"message\":{message}}}"))
    }),
    ("endless messages", |stream| {
        let begin = b"INFO {\"headers\":true,\"max_payload\":1048576}\r\nPONG\r\n";
        endless(stream, begin, &b"PING\r\nMSG $KV.fingerpost_1.lease.a 2 2\r\n{}\r\n".repeat(1000))
    }),
    ("a vast message", |stream| {
        stream.write_all(
            b"INFO {\"max_payload\":1,\"headers\":true}\r\nMSG a 1 18446744073709551615\r\n",
        )
    }),
    ("an endless trailer", |stream| {
        endless(stream, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n")
    }),
];

/// A store of a server that is none.
fn nonsense_store(
    kind: &Kind,
    answer: fn(&mut TcpStream) -> std::io::Result<()>,
) -> Box<dyn Store> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("{}://{}", kind.schemes[0], listener.local_addr().unwrap());
    // The thread ends with the tests.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || answer(&mut stream));
        }
    });
    let options = Options { endpoints: vec![endpoint], timeout: TIMEOUT, ..Options::default() };
    (find(kind.name).unwrap().open)(&options).unwrap()
}

/// Most memory that this process had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn nonsense_is_an_error_and_no_harm() {
    for kind in KINDS {
        for (what, answer) in NONSENSE {
            let mut store = nonsense_store(kind, *answer);
            let begin = Instant::now();
            let calls = [
                store.get("a").map(drop),
                store.list("").map(drop),
                store.swap("a", 0, b"", Keep::Leased).map(drop),
                store.watch("", 0, TIMEOUT * 8).map(drop),
            ];
            for (call, number) in calls.into_iter().zip(1..) {
                let expected = matches!(
                    call,
                    Err(StoreError::Nonsense { .. } | StoreError::Unreachable { .. })
                );
                assert!(expected, "{}: {what}: call {number}: {call:?}", kind.name);
                if number == 1 {
                    println!("{what}: {}", call.unwrap_err());
                }
            }
            assert!(begin.elapsed() < TIMEOUT * 20, "{what}: {:?}", begin.elapsed());
        }
    }
    assert!(peak_kib() < 400 << 10, "{} KiB", peak_kib());
}
