//! Elements counted and timed, packets traced and tried, the graph replaced: all of a daemon that forwards.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Lab, in_namespace, ip};

/// Sends a datagram from the host.
fn send(lab: &Lab, to: &str) {
    let words = format!("echo 1 > /dev/udp/{to}/9");
    let sent = Command::new("ip").args(["netns", "exec", &lab.host, "bash", "-c", &words]).output();
    assert!(sent.unwrap().status.success(), "{to}");
}

fn lab(name: &str) -> Option<Lab> {
    let lab = Lab::new(name, &["--path", "afxdp"])?;
    for prefix in ["198.51.100.0/24", "203.0.113.0/24"] {
        ip(&format!("-n {} route add {prefix} via 10.0.1.1", lab.host));
    }
    Some(lab)
}

/// The row of an element.
fn element<'a>(stats: &'a Value, name: &str) -> &'a Value {
    let rows = stats["elements"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}: {stats}"))
}

/// Sends until the command has ended; its output.
pub(super) fn while_sending(lab: &Lab, words: &str, to: &str) -> (Vec<Value>, i32) {
    let mut child = in_namespace(&lab.router, words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "{words} does not end");
        send(lab, to);
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, output.status.code().unwrap_or_else(|| panic!("{words}: {said}")))
}

fn file(lab: &Lab, name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{}-{name}", lab.router))
}

#[test]
fn a_packet_is_followed_counted_and_tried() {
    let Some(lab) = lab("see") else { return };
    let capture = file(&lab, "trace.pcapng");
    let words = format!("trace add 2 udp --seconds 30 --json --pcapng {}", capture.display());
    let (traces, code) = while_sending(&lab, &words, "198.51.100.1");
    assert_eq!((traces.len(), code), (2, 0));
    for trace in &traces {
        let packet = &trace["packets"][0];
        assert_eq!(
            (&packet["fate"], &packet["interface"]),
            (&"sent".into(), &"r0".into()),
            "{trace}"
        );
        assert_eq!(trace["interface"], "r0");
        let steps = trace["steps"].as_array().unwrap();
        let step = |name: &str| steps.iter().find(|step| step["element"] == name).unwrap();
        let route = &step("ip4_lookup")["route"];
        assert_eq!((&route["prefix"], &route["table"]), (&"198.51.100.0/24".into(), &254.into()));
        assert_eq!(route["adjacency"]["neighbor"], "10.0.1.2");
        let changes: Vec<_> =
            steps.iter().flat_map(|step| step["changes"].as_array().unwrap()).collect();
        let ttl = changes.iter().find(|change| change["field"] == "ttl").unwrap();
        assert_eq!((&ttl["from"], &ttl["to"]), (&"64".into(), &"63".into()));
        assert!(changes.iter().any(|change| change["field"] == "destination mac"));
        assert_eq!(steps.last().unwrap()["element"], "transmit");
        assert_eq!(packet["frame"].as_str().unwrap().len(), packet["last"].as_str().unwrap().len());
    }

    // What was captured is tried again: it is addressed to r0, and goes the same way.
    let path = capture.display();
    let again = lab.json(&format!("why {path}"));
    assert_eq!((&again["does"], &again["interface"]), (&"forward".into(), &"r0".into()), "{again}");
    assert_eq!(again["route"]["prefix"], "198.51.100.0/24");
    let digits = traces[0]["packets"][0]["frame"].as_str().unwrap();
    let same = lab.json(&format!("why {digits}"));
    assert_eq!(same["dry_run"]["packets"], again["dry_run"]["packets"]);
    let (code, said) = lab.refused(&format!("why {path} --number 9"));
    assert!(code == 1 && said.contains("there is no packet 9"), "{said}");
    let _ = std::fs::remove_file(&capture);

    // Counted where they ended, with the reason.
    let before = lab.json("graph stats");
    for _ in 0..5 {
        send(&lab, "203.0.113.9");
    }
    let until = Instant::now() + Duration::from_secs(10);
    let stats = loop {
        let stats = lab.json("graph stats");
        if element(&stats, "icmp4_error")["reasons"]["no_route"].as_u64() >= Some(5) {
            break stats;
        }
        assert!(Instant::now() < until, "{stats}");
    };
    assert_eq!(before["timed"], Value::Null);
    assert!(element(&stats, "transmit")["packets"].as_u64().unwrap() >= 2);
    let row = element(&stats, "ip4_lookup");
    assert!(row["average_batch"].as_f64().unwrap() >= 1.0 && row["class"] == "IP4FIBLookup");
    let (timed, code) = while_sending(&lab, "graph stats --cycles 0.5 --json", "198.51.100.1");
    assert_eq!(code, 0);
    if timed[0]["timed"].is_number() {
        assert!(element(&timed[0], "ip4_lookup")["cycles"].as_f64().unwrap() > 1.0);
    }
    let text = lab.text("graph stats --busy");
    assert!(text.contains("icmp4_error") && text.contains("no_route"), "{text}");

    // What would become of packets.
    for (what, does, words) in [
        ("198.51.100.7", "forward", "it is forwarded by r0"),
        ("2001:db8::7", "wait", "it waits in resolver for the link address of fd01::2"),
        ("203.0.113.1", "drop", "no_route"),
        ("10.0.1.1", "local", "the kernel takes it"),
        ("10.0.1.99", "wait", "for the link address of 10.0.1.99 on r0"),
    ] {
        let answer = lab.json(&format!("why {what}"));
        assert_eq!(answer["does"], does, "{answer}");
        assert!(answer["verdict"].as_str().unwrap().contains(words), "{answer}");
        assert!(lab.text(&format!("why {what}")).starts_with(&format!("{does}: ")));
    }
    let known = lab.json("neighbor show");
    let asked = ["10.0.1.99", "fd01::2"];
    let asked = known.as_array().unwrap().iter().any(|row| asked.iter().any(|a| row["addr"] == *a));
    assert!(!asked, "a dry run resolves nobody: {known}");
    let (code, said) = lab.refused("why x.pcap");
    assert!(code == 2 && said.contains("is no address, no file"), "{said}");
    let (code, said) = lab.refused("why 020000000001020000000002 --from r9");
    assert!(code == 1 && said.contains("r9"), "{said}");
    let (code, said) = lab.refused("why 0200");
    assert!(code == 1 && said.contains("shorter than an Ethernet header"), "{said}");

    // Nothing comes, or what is asked for makes no sense.
    let (code, said) = lab.refused("trace add 1 icmp --seconds 0.3");
    assert!(code == 1 && said.contains("0 of 1 packets matched within 0.3 s"), "{said}");
    let (code, said) = lab.refused("trace add 1 icpm");
    assert!(code == 2 && said.contains("at character 1"), "{said}");
    let (status, answer) = lab.http("GET", "/v1/trace?packets=0&filter=udp&seconds=1", "");
    assert_eq!((status, &answer["error"]["where"]), (400, &"packets".into()));

    let (pictures, code) =
        while_sending(&lab, "top --count 2 --interval 0.3 --json", "198.51.100.1");
    assert_eq!((pictures.len(), code), (2, 0));
    let rows = pictures[1]["interfaces"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "r0").unwrap();
    assert!(row["rx_packets"].as_f64().unwrap() > 0.0, "{row}");
    assert!(lab.text("top --count 1 --interval 0.1").contains("icmp4_error"));
    lab.end();
}

#[test]
fn the_graph_is_replaced_while_packets_pass() {
    let Some(lab) = lab("swap") else { return };
    let built_in = include_str!("../../../packet/src/router.click");
    let (before, after) =
        ("-> ip4_lookup :: IP4FIBLookup", "-> seen :: Counter -> ip4_lookup :: IP4FIBLookup");
    assert!(built_in.contains(before));
    let path = file(&lab, "swap.click");
    std::fs::write(&path, built_in.replace(before, after)).unwrap();
    let swap = format!("graph swap {}", path.display());
    let words = "trace add 1 udp --seconds 30 --json";
    assert_eq!(while_sending(&lab, words, "198.51.100.1").1, 0);
    let old = element(&lab.json("graph stats"), "transmit")["packets"].as_u64().unwrap();
    let stats = lab.json(&swap);
    assert_eq!(element(&stats, "seen")["class"], "Counter");
    let (traces, code) = while_sending(&lab, words, "198.51.100.1");
    assert_eq!(code, 0);
    let steps = traces[0]["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["element"] == "seen"), "{steps:?}");
    let stats = lab.json("graph stats");
    assert!(element(&stats, "transmit")["packets"].as_u64().unwrap() > old, "counts go on");
    assert!(element(&stats, "seen")["packets"].as_u64().unwrap() > 0);

    // What cannot be leaves what is.
    for (text, words) in [
        ("FromPorts -> Discad;", "Discad"),
        ("FromDevice(r0) -> Discard;", "a graph of the daemon opens nothing"),
        ("Idle -> Discard;", "it has no FromPorts"),
        ("FromPorts -> Discard; ControlSocket(TCP, 1);", "no control socket"),
    ] {
        std::fs::write(&path, text).unwrap();
        let (code, said) = lab.refused(&swap);
        assert!(code == 1 && said.contains(words), "{text}: {said}");
    }
    element(&lab.json("graph stats"), "seen");
    let _ = std::fs::remove_file(&path);
    lab.end();
}
