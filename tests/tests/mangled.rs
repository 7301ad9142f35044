//! Mutated requests at the control socket, the TCP listener and its TLS, for as long as a soak takes: the router forwards every
//! packet, serves others, keeps its memory, and fails at none.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fingerpost_tests::folder::Folder;
use fingerpost_tests::netns::{Line, Router, command, conserved, exec, run};
use fingerpost_tests::{certificates, patience, program, root, skip, soak};
use serde_json::Value;

const MANGLE: &str = env!("CARGO_BIN_EXE_mangle");
const ADDRESS: &str = "127.0.0.1:9477";
/// Time of the ordinary test.
const BRIEF: Duration = Duration::from_secs(5);
/// What the router may keep of all of it.
const SLACK_KIB: u64 = 64 << 10;

/// An example of what a schema describes.
fn example(schema: &Value, all: &Value, name: &str) -> Value {
    if let Some(path) = schema["$ref"].as_str() {
        let name = path.rsplit('/').next().unwrap_or_default();
        return example(&all["components"]["schemas"][name], all, name);
    }
    if let Some(first) = ["oneOf", "anyOf", "allOf"].iter().find_map(|kind| schema[kind].get(0)) {
        return example(first, all, name);
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind.unwrap_or("object") {
        "integer" | "number" => 1.into(),
        "boolean" => true.into(),
        "array" => Value::Array(vec![example(&schema["items"], all, name)]),
        "string" => match name {
            "addr" | "gateway" | "via" | "nexthop" => "10.0.2.9",
            "interface" => "r0",
            "mac" | "lladdr" => "02:00:00:00:00:01",
            "flow" => "udp 10.0.1.2:1 10.0.2.2:2",
            "text" => "[[source]]\nkind = \"kernel\"\n",
            _ => "10.9.0.0/24",
        }
        .into(),
        _ => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields.map(|(name, field)| (name.clone(), example(field, all, name))).collect()
        }
    }
}

/// A request of each kind that the description of the API has, and some of the page.
fn requests() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/openapi.json")).expect("it is kept");
    let all: Value = serde_json::from_str(&text).expect("it is JSON");
    let mut requests: Vec<String> = ["/", "/metrics", "/openapi.json", "/page.js"]
        .map(|path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        .into();
    for (path, methods) in all["paths"].as_object().expect("an object") {
        for (method, operation) in methods.as_object().expect("an object") {
            let mut path = path.replace("{number}", "1").replace("{name}", "acl");
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for (parameter, mark) in
                parameters.zip(std::iter::once('?').chain(std::iter::repeat('&')))
            {
                let name = parameter["name"].as_str().unwrap_or_default();
                let value = example(&parameter["schema"], &all, name);
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                path += &format!("{mark}{name}={}", value.replace(' ', "%20"));
            }
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let body = match schema.is_null() {
                true => String::new(),
                false => example(schema, &all, "").to_string(),
            };
            requests.push(format!(
                "{} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                method.to_uppercase(),
                body.len()
            ));
        }
    }
    requests
}

/// What a client of TLS sends first, as `curl` does.
fn client_hello() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let address = listener.local_addr().expect("it is bound");
    let mut curl = Command::new("curl");
    curl.args(["-s", "-m", "5", &format!("https://{address}/v1/status")]);
    let mut curl = curl.spawn().expect("curl was found before");
    let (mut stream, _) = listener.accept().expect("curl connects");
    let mut bytes = vec![0; 4096];
    let len = stream.read(&mut bytes).expect("curl sends");
    let _ = curl.kill();
    let _ = curl.wait();
    bytes.truncate(len);
    bytes
}

fn written(folder: &Folder, name: &str, inputs: impl IntoIterator<Item = Vec<u8>>) -> String {
    let mut text = String::new();
    for input in inputs {
        text.extend(input.iter().map(|byte| format!("{byte:02x}")));
        text.push('\n');
    }
    folder.write(name, &text)
}

/// Runs a router with a configuration while `senders`, which get its control socket, send mutated inputs. Of each sender's a share
/// must be answered.
fn stays_as_it_is(line: &Line, config: &str, senders: impl Fn(&str) -> Vec<(String, f64)>) {
    let longest = soak(BRIEF);
    let router = Router::start(&line.router, config, 2);
    let said = router.said();
    let socket = said.iter().find_map(|line| line.split_once("control socket "));
    let senders = senders(socket.expect("it has one").1);
    run(&line.source, "ping -c 2 -i 0.2 -W 2 10.0.2.2");
    let resident = router.resident_kib();
    let packets = longest.as_secs() * 100;
    let ping = command(&line.source, &format!("ping -q -i 0.01 -c {packets} -W 5 10.0.2.2"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("ping was found before");
    let began = Instant::now();
    let start = |(words, least): &(String, f64)| {
        let mut command = command(&line.router, words);
        (command.stdout(Stdio::piped()).spawn().expect("it was built before"), *least)
    };
    let senders: Vec<(Child, f64)> = senders.iter().map(start).collect();
    while began.elapsed() < longest {
        let asked = Instant::now();
        let interfaces: Vec<Value> = router.ask("interface show");
        assert!(interfaces.len() >= 2, "{interfaces:?}");
        let took = asked.elapsed();
        assert!(took < patience(Duration::from_secs(5)), "{took:?} for others");
        std::thread::sleep(Duration::from_millis(500));
    }
    for (sender, least) in senders {
        let output = sender.wait_with_output().expect("it was started");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        let counts = text.lines().next().unwrap_or_default();
        eprintln!("{counts}");
        let count = |at: usize| counts.split(' ').nth(at).and_then(|word| word.parse::<f64>().ok());
        let [sent, answered, failed] = [1, 3, 5].map(|at| count(at).expect("a count"));
        assert!(sent >= longest.as_secs_f64() && answered >= sent * least, "{counts}");
        assert!(failed == 0.0, "{text}");
    }
    let ping = ping.wait_with_output().expect("it was started");
    let ping = String::from_utf8_lossy(&ping.stdout).into_owned();
    assert!(ping.contains(" 0% packet loss"), "{ping}");
    let said = router.said();
    assert!(!said.iter().any(|line| line.contains("panicked")), "{said:#?}");
    let after = router.resident_kib();
    assert!(after < resident + SLACK_KIB, "{resident} KiB before, {after} KiB after");
    conserved(&router.stop());
}

/// A sender to a place, of the inputs in a file.
fn mangle(place: &str, inputs: &str) -> String {
    format!("{MANGLE} {place} {} {} {inputs}", std::process::id(), soak(BRIEF).as_secs())
}

fn of_text(requests: Vec<String>) -> impl Iterator<Item = Vec<u8>> {
    requests.into_iter().map(String::into_bytes)
}

#[test]
fn mutated_requests_at_the_control_sockets_hurt_nobody() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let folder = Folder::new(&line.router);
    // A graph or a configuration that is right and another one may forward less.
    let changes =
        |text: &String| text.starts_with("PUT /v1/graph") || text.contains("/config/apply");
    let all = requests();
    let most: Vec<String> = all.iter().filter(|text| !changes(text)).cloned().collect();
    let (all, most) =
        (written(&folder, "all", of_text(all)), written(&folder, "most", of_text(most)));
    stays_as_it_is(&line, "", |socket| {
        vec![(mangle(socket, &most), 0.5), (mangle(&format!("{socket}.ro"), &all), 0.5)]
    });
}

#[test]
fn mutated_requests_at_the_listener_hurt_nobody() {
    let Some(line) = Line::new(&["ping"]) else { return };
    let folder = Folder::new(&line.router);
    let config = folder.write("router.toml", &format!("[listen]\naddress = \"{ADDRESS}\"\n"));
    let all = written(&folder, "all", of_text(requests()));
    stays_as_it_is(&line, &config, |_| vec![(mangle(ADDRESS, &all), 0.5)]);
}

#[test]
fn mutated_handshakes_of_tls_hurt_nobody() {
    let Some(line) = Line::new(&["ping", "curl", "openssl"]) else { return };
    let folder = Folder::new(&line.router);
    certificates::authority(&line.router, folder.path(), "ca");
    certificates::certificate(&line.router, folder.path(), "ca", "router", "127.0.0.1");
    let [pem, key] = ["router.pem", "router.key"].map(|name| folder.file(name));
    let tls = format!("certificate = \"{pem}\"\nkey = \"{key}\"");
    let text = format!("[listen]\naddress = \"{ADDRESS}\"\n{tls}\n");
    let config = folder.write("router.toml", &text);
    let check = format!("{} config check {config}", program().expect("a line has it").display());
    if String::from_utf8_lossy(&exec(&line.router, &check).stderr).contains("cargo feature") {
        return skip("a build with the feature tls");
    }
    let hello = client_hello();
    assert!(hello.starts_with(&[22, 3, 1]), "a handshake record: {hello:?}");
    // Records of other kinds follow it: a change of the cipher, an alert, and data.
    let more = [&[20, 3, 3, 0, 1, 1][..], &[21, 3, 3, 0, 2, 2, 0], &[23, 3, 3, 0, 2, 1, 1]];
    let all = more.map(|record| [&hello, record].concat());
    let all = written(&folder, "all", [hello].into_iter().chain(all));
    stays_as_it_is(&line, &config, |_| vec![(mangle(ADDRESS, &all), 0.0)]);
}
