//! The TCP listener: who gets what over it, a table of attempts, and a crowd of connections that takes no room from others.

use fingerpost_tests::certificates;
use fingerpost_tests::crowd::Crowd;
use fingerpost_tests::folder::Folder;
use fingerpost_tests::netns::{Line, Router, command, conserved, exec, run};
use fingerpost_tests::{program, skip};
use serde_json::Value;

const ADDRESS: &str = "127.0.0.1:9477";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Status and body of a response, or the error of a client that gets none.
fn get(namespace: &str, path: &str, headers: &[&str]) -> (u32, String) {
    let mut curl = command(namespace, "curl -s -m 10 -w %{http_code}");
    for header in headers {
        curl.args(["-H", header]);
    }
    let output =
        curl.arg(format!("http://{ADDRESS}{path}")).output().expect("curl was found before");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, code) = text.split_at(text.len() - 3);
    (code.parse().expect("curl prints a code"), body.to_owned())
}

fn routers_folder(line: &Line, more: &str) -> (Folder, String) {
    let folder = Folder::new(&line.router);
    let path = folder.write("router.toml", &format!("[listen]\naddress = \"{ADDRESS}\"\n{more}"));
    (folder, path)
}

#[test]
fn requests_only_read_and_name_this_host() {
    let Some(line) = Line::new(&["curl"]) else { return };
    let (folder, path) = routers_folder(&line, "names = [\"r1.example\"]\n");
    let router = Router::start(&line.router, &path, 2);
    let at = &line.router;
    for path in ["/v1/status", "/v1/routes", "/v1/config", "/openapi.json", "/v1/why?addr=10.0.2.2"]
    {
        let (code, body) = get(at, path, &[]);
        assert!(code == 200 && body.contains('{'), "{path}: {code} {body}");
    }
    let (code, body) = get(at, "/v1/status", &[]);
    let status: Value = serde_json::from_str(&body).expect("it is JSON");
    assert_eq!((code, status["interfaces"].as_u64()), (200, Some(2)));
    for (what, code, words) in [
        ("-X POST -d {} /v1/routes", 405, "only read"),
        ("-X PUT -d {} /v1/graph", 405, "only read"),
        ("-X POST /v1/verify", 405, "only read"),
        ("-X DELETE /v1/status", 405, "only read"),
        ("/v1/trace?packets=1&filter=ip&seconds=1", 403, "over the control socket"),
        ("-H host:evil.example /v1/status", 403, "`evil.example` is no name of this listener"),
        ("-H host:192.0.2.1 /v1/status", 403, "no name of this listener"),
        ("-H host:r1.example:9477 /v1/status", 200, "version"),
        ("-H host:localhost /v1/status", 200, "version"),
        ("-H sec-fetch-site:cross-site /v1/routes", 403, "pages of other sites"),
        ("/v1/nothing", 404, "no such path"),
    ] {
        let (options, path) = what.rsplit_once(' ').unwrap_or(("", what));
        let words_of = format!("curl -s -m 10 -w %{{http_code}} {options}");
        let output =
            command(at, words_of.trim_end()).arg(format!("http://{ADDRESS}{path}")).output();
        let text = String::from_utf8_lossy(&output.expect("it was found").stdout).into_owned();
        assert!(text.ends_with(&code.to_string()) && text.contains(words), "{what}: {text}");
    }
    let head = run(at, &format!("curl -s -I http://{ADDRESS}/v1/status"));
    for header in ["content-security-policy: default-src 'self'", "x-content-type-options: nosniff"]
    {
        assert!(head.contains(header), "{head}");
    }
    assert!(!head.to_lowercase().contains("access-control-"), "{head}");
    // Nothing was changed, and nobody who only reads writes into the log.
    let routes: Vec<Value> = router.ask_lines("route show --source command");
    assert!(routes.is_empty(), "{routes:?}");
    assert!(!router.said().iter().any(|line| line.contains("POST")), "{:#?}", router.said());
    // A second listener at that address is refused, with a remedy.
    let second = folder.file("second.sock");
    let words = format!("{} run {path} --socket {second}", program().expect("it runs").display());
    let refused = exec(at, &words);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("another address"), "{said}");
    conserved(&router.stop());
}

/// The router starts before the host has its addresses, at boot.
#[test]
fn an_address_may_come_later() {
    let Some(line) = Line::new(&["curl"]) else { return };
    let folder = Folder::new(&line.router);
    let at = &line.router;
    let status = |url: &str| {
        let output = exec(at, &format!("curl -g -s -m 5 {url}/v1/status"));
        String::from_utf8_lossy(&output.stdout).contains("version")
    };
    for (address, host) in [("192.0.2.77", "192.0.2.77"), ("2001:db8::77", "[2001:db8::77]")] {
        let text = format!("[listen]\naddress = \"{host}:9477\"\nremote = true\n");
        let path = folder.write("router.toml", &text);
        let router = Router::start(at, &path, 2);
        let said = router.said();
        assert!(said.iter().any(|line| line.contains("does not have it yet")), "{said:#?}");
        let url = format!("http://{host}:9477");
        assert!(!status(&url));
        let nodad = if address.contains(':') { "nodad" } else { "" };
        run(at, format!("ip address add {address} dev lo {nodad}").trim_end());
        assert!(status(&url), "{url}");
        conserved(&router.stop());
    }
}

#[test]
fn a_token_is_needed_where_there_is_one() {
    let Some(line) = Line::new(&["curl"]) else { return };
    let folder = Folder::new(&line.router);
    folder.write("token", &format!("{TOKEN}\n"));
    let text =
        format!("[listen]\naddress = \"{ADDRESS}\"\ntoken_file = \"{}\"\n", folder.file("token"));
    let path = folder.write("router.toml", &text);
    let router = Router::start(&line.router, &path, 2);
    let bearer = format!("authorization: Bearer {TOKEN}");
    assert_eq!(get(&line.router, "/v1/status", &[&bearer]).0, 200);
    for wrong in ["authorization: Bearer x", "authorization: Basic x", "x: y"] {
        let (code, body) = get(&line.router, "/v1/status", &[wrong]);
        assert!(code == 401 && body.contains("token_file"), "{wrong}: {code} {body}");
    }
    // Another token replaces it while the router runs.
    let other = TOKEN.to_uppercase();
    folder.write("token", &format!("{other}\n"));
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let renewed = format!("authorization: Bearer {other}");
    assert_eq!(get(&line.router, "/v1/status", &[&renewed]).0, 200);
    assert_eq!(get(&line.router, "/v1/status", &[&bearer]).0, 401);
    conserved(&router.stop());
    // One that cannot be a token is refused at the start.
    folder.write("token", "short\n");
    let words = format!("{} run {path}", program().expect("it ran").display());
    let refused = exec(&line.router, &words);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("at least 16"), "{said}");
}

#[test]
fn tls_admits_clients_with_a_certificate_and_takes_a_renewed_one() {
    let Some(line) = Line::new(&["curl", "openssl"]) else { return };
    let folder = Folder::new(&line.router);
    for ca in ["ca", "other"] {
        certificates::authority(&line.router, folder.path(), ca);
    }
    let certificate = |ca: &str, name: &str| {
        certificates::certificate(&line.router, folder.path(), ca, name, "127.0.0.1");
    };
    certificate("ca", "router");
    certificate("ca", "client");
    certificate("other", "stranger");
    let [pem, key, ca] = ["router.pem", "router.key", "ca.pem"].map(|name| folder.file(name));
    let tls = format!("certificate = \"{pem}\"\nkey = \"{key}\"\nclient_ca = \"{ca}\"");
    let text = format!("[listen]\naddress = \"{ADDRESS}\"\n{tls}\n");
    let path = folder.write("router.toml", &text);
    let lacks =
        exec(&line.router, &format!("{} config check {path}", program().unwrap().display()));
    if String::from_utf8_lossy(&lacks.stderr).contains("cargo feature") {
        return skip("a build with the feature tls");
    }
    let router = Router::start(&line.router, &path, 2);
    let get = |ca: &str, name: &str, scheme: &str| {
        let mut words = format!("curl -s -m 10 --cacert {}", folder.file(&format!("{ca}.pem")));
        if !name.is_empty() {
            let [pem, key] = ["pem", "key"].map(|kind| folder.file(&format!("{name}.{kind}")));
            words += &format!(" --cert {pem} --key {key}");
        }
        let output = exec(&line.router, &format!("{words} {scheme}://{ADDRESS}/v1/status"));
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("version")
    };
    assert!(get("ca", "client", "https"));
    for (ca, name, scheme) in [
        ("ca", "", "https"),
        ("ca", "stranger", "https"),
        ("other", "client", "https"),
        ("ca", "client", "http"),
    ] {
        assert!(!get(ca, name, scheme), "{ca} {name} {scheme}");
    }

    // Another one, by another CA; and one that cannot be used.
    let again = |name: &str| {
        for kind in ["pem", "key"] {
            let from = folder.file(&format!("{name}.{kind}"));
            std::fs::copy(from, folder.file(&format!("router.{kind}"))).expect("both are there");
        }
        std::thread::sleep(std::time::Duration::from_millis(1_100));
    };
    again("stranger");
    assert!(get("other", "client", "https") && !get("ca", "client", "https"));
    folder.write("router.pem", "nonsense\n");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    assert!(get("other", "client", "https"));
    router.wait_for("a message", |said| {
        said.iter().any(|line| line.contains("no certificate in it") && line.contains("former"))
    });
    certificate("ca", "router");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    assert!(get("ca", "client", "https"));
    conserved(&router.stop());
}

#[test]
fn a_crowd_takes_no_room_from_others() {
    let Some(line) = Line::new(&["curl", "prlimit"]) else { return };
    let (_folder, path) = routers_folder(&line, "");
    let router = Router::start(&line.router, &path, 2);
    let before = router.resident_kib();
    let session = env!("CARGO_BIN_EXE_session");
    let words = format!("prlimit --nofile=20000:20000 {session} crowd {ADDRESS} 1000");
    // Half a request, and streams that never end.
    for text in ["GET", "GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        let mut crowd = Crowd::begin(&mut command(&line.router, &words), text);
        assert_eq!(crowd.has_come(), 1000);
        for _ in 0..10 {
            assert_eq!(get(&line.router, "/v1/status", &[]).0, 200);
            let _: Value = router.ask("fib show");
        }
        crowd.end();
    }
    // Requests that take a minute.
    let text = "GET /v1/graph?cycles=60 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut crowd = Crowd::begin(&mut command(&line.router, &words), text);
    assert_eq!(crowd.has_come(), 1000);
    for _ in 0..10 {
        assert_eq!(get(&line.router, "/v1/status", &[]).0, 200);
    }
    let (code, body) = get(&line.router, "/v1/graph?cycles=1", &[]);
    assert!(code == 503 && body.contains("time elements"), "{code} {body}");
    crowd.end();
    let grown = router.resident_kib().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more");
    conserved(&router.stop());
}
