//! `table fetch`, from a server of the test's own: whole files, parts, redirects, chunks, checksums and TLS.

#![allow(clippy::unwrap_used, reason = "these are the helpers of tests")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use fingerpost_tests::{program, skip};
use serde_json::Value;

/// Server of files, with what was requested: path and range.
struct Server {
    base: String,
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

/// Replies to the requests of a path: the last one over and over.
type Files = HashMap<String, Vec<Reply>>;

#[derive(Clone)]
enum Reply {
    /// The file, or the rest of it from the byte that is requested.
    Whole(Vec<u8>),
    /// So many bytes of that, and the connection is closed.
    Broken(Vec<u8>, usize),
    /// The file, or the rest of it if the request names this validator.
    Tagged(Vec<u8>, &'static str),
    /// The file, or the rest of it whatever validator the request names.
    Careless(Vec<u8>, &'static str),
    Chunks(Vec<u8>),
    Redirect(String),
    Missing,
}

impl Server {
    fn start(files: Files) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", socket.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (log, mut files) = (requests.clone(), files);
        std::thread::spawn(move || {
            for stream in socket.incoming() {
                // A client that is gone has what it wanted.
                let _ = serve(&stream.unwrap(), &mut files, &log);
            }
        });
        Self { base, requests }
    }

    fn requests(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

fn serve(
    mut stream: &TcpStream,
    files: &mut Files,
    log: &Mutex<Vec<(String, String)>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap()?;
    let path = request.split(' ').nth(1).unwrap().to_owned();
    let (mut range, mut tag) = (String::new(), String::new());
    for line in lines {
        let line = line?;
        if let Some(value) = line.strip_prefix("If-Range: ") {
            value.clone_into(&mut tag);
        } else if let Some(value) = line.strip_prefix("Range: ") {
            value.clone_into(&mut range);
        } else if line.is_empty() {
            break;
        }
    }
    log.lock().unwrap().push((path.clone(), range.clone()));
    let replies = files.entry(path).or_insert_with(|| vec![Reply::Missing]);
    let reply = if replies.len() > 1 { replies.remove(0) } else { replies[0].clone() };
    let mut header = String::new();
    let (bytes, most) = match reply {
        Reply::Tagged(bytes, of) => {
            header = format!("\r\nETag: {of}");
            if tag != of {
                range.clear();
            }
            let most = if tag.is_empty() { bytes.len() / 2 } else { usize::MAX };
            (bytes, most)
        }
        Reply::Careless(bytes, of) => {
            header = format!("\r\nETag: {of}");
            (bytes, usize::MAX)
        }
        Reply::Missing => {
            return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        }
        Reply::Redirect(to) => {
            return stream
                .write_all(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\n\r\n").as_bytes());
        }
        Reply::Chunks(bytes) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            for chunk in bytes.chunks(1000) {
                stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes())?;
                stream.write_all(chunk)?;
                stream.write_all(b"\r\n")?;
            }
            return stream.write_all(b"0\r\n\r\n");
        }
        Reply::Whole(bytes) => (bytes, usize::MAX),
        Reply::Broken(bytes, most) => (bytes, most),
    };
    let all = bytes.len();
    let from = range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-'));
    let from: usize = from.map_or(0, |from| from.parse().unwrap());
    let head = match from {
        0 => format!("200 OK\r\nContent-Length: {all}"),
        _ if from >= all => format!("416 Range Not Satisfiable\r\nContent-Range: bytes */{all}"),
        _ => format!(
            "206 Partial Content\r\nContent-Range: bytes {from}-{}/{all}\r\nContent-Length: {}",
            all - 1,
            all - from
        ),
    };
    stream.write_all(format!("HTTP/1.1 {head}{header}\r\n\r\n").as_bytes())?;
    let rest = bytes.get(from..).unwrap_or_default();
    stream.write_all(&rest[..rest.len().min(most)])
}

/// Temporary folder, deleted when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("fingerpost-fetch-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// These files, and beside each the note of where it is from.
fn with_notes(names: &[impl ToString]) -> Vec<String> {
    let names = names.iter().map(ToString::to_string);
    names.flat_map(|name| [name.clone(), name + ".from"]).collect()
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn fetch(program: &Path, folder: &Folder, words: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(["table", "fetch", "--json", "-o"]).arg(&folder.0).args(words);
    command.output().unwrap()
}

fn fetched(program: &Path, folder: &Folder, words: &[&str]) -> Vec<Value> {
    let output = fetch(program, folder, words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    all["files"].as_array().unwrap().clone()
}

fn refused(program: &Path, folder: &Folder, words: &[&str]) -> (Option<i32>, String) {
    let output = fetch(program, folder, words);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Bytes that differ everywhere.
fn bytes(len: u32) -> Vec<u8> {
    (0..len / 4).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn sha256(bytes: &[u8], folder: &Folder) -> String {
    let path = folder.0.with_extension("sum");
    std::fs::write(&path, bytes).unwrap();
    let output = Command::new("sha256sum").arg(&path).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

#[test]
fn a_dump_and_its_updates_are_fetched_once() {
    let Some(program) = program() else { return skip("a build of fingerpost") };
    let names = ["bview.20261121.0800.gz", "updates.20261121.0800.gz", "updates.20261121.0805.gz"];
    let file = |(n, name): (u32, &&str)| {
        (format!("/rrc00/2026.11/{name}"), vec![Reply::Whole(bytes(1000 * (n + 1)))])
    };
    let server = Server::start((0..).zip(&names).map(file).collect());
    let folder = Folder::new("collector");
    let words = [
        "--collector",
        "rrc00",
        "--date",
        "2026-11-21T10:21",
        "--updates",
        "2",
        "--base-url",
        &server.base,
    ];
    let files = fetched(&program, &folder, &words);
    let names = names.map(|name| format!("rrc00.{name}"));
    assert_eq!(folder.names(), with_notes(&names));
    for (n, (name, file)) in (1..).zip(names.iter().zip(&files)) {
        assert_eq!(folder.read(name), bytes(1000 * n));
        assert_eq!(
            (&file["bytes"], &file["resumed_at"]),
            (&(1000 * n).into(), &0.into()),
            "{file}"
        );
        assert_eq!(file["sha256"], sha256(&bytes(1000 * n), &folder), "{file}");
    }
    assert_eq!(server.requests().len(), 3);
    assert_eq!(fetched(&program, &folder, &words), files);
    assert_eq!(server.requests(), [], "what is there is not fetched again");
}

#[test]
fn the_latest_dump_is_the_last_one_that_is_there() {
    let Some(program) = program() else { return skip("a build of fingerpost") };
    let server = Server::start(Files::new());
    let folder = Folder::new("latest");
    let words = ["--collector", "route-views2", "--base-url", &server.base];
    let (code, said) = refused(&program, &folder, &words);
    assert!(
        code == Some(1) && said.contains("/route-views2/bgpdata/") && said.contains("404"),
        "{said}"
    );
    let paths: Vec<String> = server.requests().into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths.len(), 4, "{paths:?}");
    let later = |n: usize| paths[n].rsplit('/').next().unwrap().to_owned();
    assert!(later(0) > later(1) && later(2) > later(3), "{paths:?}");
}

#[test]
fn what_was_broken_off_is_continued() {
    let Some(program) = program() else { return skip("a build of fingerpost") };
    let all = bytes(400_000);
    let broken = |most| Reply::Broken(all.clone(), most);
    let files =
        [("/f".to_owned(), vec![broken(100_000), broken(50_000), Reply::Whole(all.clone())])];
    let server = Server::start(files.into_iter().collect());
    let (folder, url) = (Folder::new("broken"), format!("{}/f", server.base));
    let left = |part: &[u8], url: &str| {
        std::fs::remove_file(folder.0.join("f")).unwrap();
        std::fs::write(folder.0.join("f.part"), part).unwrap();
        std::fs::write(folder.0.join("f.part.from"), format!("{url}\n")).unwrap();
    };
    let files = fetched(&program, &folder, &[&url]);
    assert!(folder.read("f") == all && folder.names() == with_notes(&["f"]), "{files:?}");
    let ranges: Vec<String> = server.requests().into_iter().map(|(_, range)| range).collect();
    assert_eq!(ranges, ["", "bytes=100000-", "bytes=150000-"]);
    // What an earlier command left.
    left(&all[..123_456], &url);
    let wanted = sha256(&all, &folder);
    let files = fetched(&program, &folder, &[&url, "--sha256", &wanted]);
    assert_eq!(files[0]["resumed_at"], 123_456);
    assert!(folder.read("f") == all);
    assert_eq!(server.requests()[0].1, "bytes=123456-");
    // What is left of a file of that name at another URL.
    left(&bytes(200_000)[..123_456], "http://127.0.0.1:1/f");
    assert_eq!(fetched(&program, &folder, &[&url])[0]["resumed_at"], 0);
    assert!(folder.read("f") == all);
    assert_eq!(server.requests()[0].1, "");
    // It was whole, and is longer than the file there.
    for part in [all.clone(), [&all[..], b"x"].concat()] {
        left(&part, &url);
        fetched(&program, &folder, &[&url]);
        assert!(folder.read("f") == all);
    }
}

/// A URL whose file changes between two tries, and two URLs that end in one name.
#[test]
fn parts_of_two_files_are_not_joined() {
    let Some(program) = program() else { return skip("a build of fingerpost") };
    let (old, new) = (bytes(40_000), vec![7; 30_000]);
    let files = [
        (
            "/latest".to_owned(),
            vec![Reply::Tagged(old, "\"1\""), Reply::Tagged(new.clone(), "\"2\"")],
        ),
        ("/other/latest".to_owned(), vec![Reply::Whole(bytes(40_000))]),
    ];
    let server = Server::start(files.into_iter().collect());
    let folder = Folder::new("joined");
    let url = format!("{}/latest", server.base);
    fetched(&program, &folder, &[&url]);
    assert!(folder.read("latest") == new);
    assert_eq!(folder.names(), with_notes(&["latest"]));
    assert_eq!(server.requests()[1].1, "bytes=20000-");
    let other = format!("{}/other/latest", server.base);
    let (code, said) = refused(&program, &folder, &[&other]);
    assert!(code == Some(1) && said.contains("another file of 30000 bytes"), "{said}");
    assert!(folder.read("latest") == new);
}

/// Servers that send the rest of another file than the one that is wanted.
#[test]
fn a_server_that_ignores_the_condition_is_found_out() {
    let Some(program) = program() else { return skip("a build of fingerpost") };
    let (old, same_len, longer) = (bytes(40_000), vec![7; 40_000], vec![8; 50_000]);
    let careless = |bytes: &[u8]| Reply::Careless(bytes.to_owned(), "\"2\"");
    let files = [
        (
            "/tagged".to_owned(),
            vec![Reply::Tagged(old.clone(), "\"1\""), careless(&same_len), careless(&same_len)],
        ),
        (
            "/plain".to_owned(),
            vec![
                Reply::Broken(old, 20_000),
                Reply::Whole(longer.clone()),
                Reply::Whole(longer.clone()),
            ],
        ),
    ];
    let server = Server::start(files.into_iter().collect());
    let folder = Folder::new("careless");
    for (name, all) in [("tagged", same_len), ("plain", longer)] {
        fetched(&program, &folder, &[&format!("{}/{name}", server.base)]);
        assert!(folder.read(name) == all, "{name}");
        let ranges: Vec<String> = server.requests().into_iter().map(|(_, range)| range).collect();
        assert_eq!(ranges, ["", "bytes=20000-", ""], "{name}");
    }
}

/// A file that is there is compared by what its note has, or by the length that the server states, if it does.
#[test]
fn a_file_that_is_there_is_not_refused_for_want_of_a_length() {
    let Some(program) = program() else { return skip("a build of fingerpost") };
    let all = bytes(10_000);
    let files = [
        ("/f".to_owned(), vec![Reply::Chunks(all.clone())]),
        ("/other/f".to_owned(), vec![Reply::Whole(bytes(20_000))]),
    ];
    let server = Server::start(files.into_iter().collect());
    let (folder, url) = (Folder::new("there"), format!("{}/f", server.base));
    let first = fetched(&program, &folder, &[&url]);
    assert_eq!(server.requests().len(), 1);
    assert_eq!(fetched(&program, &folder, &[&url]), first);
    assert_eq!(server.requests(), [], "its note has the URL");
    let (code, said) = refused(&program, &folder, &[&format!("{}/other/f", server.base)]);
    assert!(code == Some(1) && said.contains("another file of 10000 bytes"), "{said}");
    std::fs::remove_file(folder.0.join("f.from")).unwrap();
    server.requests();
    assert_eq!(fetched(&program, &folder, &[&url]), first);
    assert_eq!(server.requests().len(), 1, "it is from an unknown place");
    // It is another one than the note is of.
    std::fs::write(folder.0.join("f.from"), format!("{url}\n\n9999\n")).unwrap();
    fetched(&program, &folder, &[&url]);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn redirects_and_chunks_are_followed_and_another_checksum_is_refused() {
    let Some(program) = program() else { return skip("a build of fingerpost") };
    let all = bytes(10_000);
    let mut files = Files::from([
        ("/c".to_owned(), vec![Reply::Chunks(all.clone())]),
        ("/round".to_owned(), vec![Reply::Redirect("/round".to_owned())]),
    ]);
    files.insert("/a".to_owned(), vec![Reply::Redirect("/c".to_owned())]);
    let server = Server::start(files);
    let folder = Folder::new("redirect");
    let url = |path: &str| format!("{}{path}", server.base);
    fetched(&program, &folder, &[&url("/a")]);
    assert!(folder.read("a") == all);
    let (code, said) = refused(&program, &folder, &[&url("/c"), "--sha256", &"0".repeat(64)]);
    assert!(code == Some(1) && said.contains(&sha256(&all, &folder)), "{said}");
    let (code, said) = refused(&program, &folder, &[&url("/round")]);
    assert!(code == Some(1) && said.contains("too many redirects"), "{said}");
    let (code, said) = refused(&program, &folder, &[&url("/none")]);
    assert!(code == Some(1) && said.contains("404 Not Found"), "{said}");
    for wrong in ["ftp://a/b", "http://a b"] {
        assert_eq!(refused(&program, &folder, &[wrong]).0, Some(2));
    }
    let left: Vec<String> =
        folder.names().into_iter().filter(|name| !name.contains(".part")).collect();
    assert_eq!(left, with_notes(&["a"]));
}

/// `openssl s_server` over a folder. Killed when dropped.
struct Secure(std::process::Child);

impl Drop for Secure {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_file_comes_over_tls_from_a_host_that_is_known() {
    let Some(program) = program() else { return skip("a build of fingerpost") };
    let (folder, served) = (Folder::new("tls"), Folder::new("served"));
    let all = bytes(100_000);
    std::fs::write(served.0.join("f"), &all).unwrap();
    let words = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
                 -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem";
    let openssl = |words: &str| {
        let mut command = Command::new("openssl");
        command.args(words.split_whitespace()).current_dir(&served.0);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command
    };
    if !openssl(words).status().is_ok_and(|status| status.success()) {
        return skip("openssl");
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let words = format!("s_server -accept 127.0.0.1:{port} -cert cert.pem -key key.pem -WWW");
    let _server = Secure(openssl(&words).spawn().unwrap());
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let by = |host: &str, authorities: &Path| {
        let mut command = Command::new(&program);
        command
            .args(["table", "fetch", "-o"])
            .arg(&folder.0)
            .arg(format!("https://{host}:{port}/f"));
        let output = command.env("SSL_CERT_FILE", authorities).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let own = served.0.join("cert.pem");
    let (done, said) = by("localhost", &own);
    if said.contains("feature `tls`") {
        return skip("a build of fingerpost with feature tls");
    }
    assert!(done && folder.read("f") == all, "{said}");
    std::fs::remove_file(folder.0.join("f")).unwrap();
    let (done, said) = by("127.0.0.1", &own);
    assert!(
        !done && said.contains("certificate"),
        "another name than that of the certificate: {said}"
    );
    let (done, said) = by("localhost", &served.0.join("none"));
    assert!(!done && said.contains("SSL_CERT_FILE"), "{said}");
}
