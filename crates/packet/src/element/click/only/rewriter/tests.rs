//! Translation, as packets and handlers show it.

use crate::element::click::only::console;
use crate::testing::{Rig, World, frame_v4, refused};

use super::*;

/// What a configuration writes, in rounds of a millisecond.
fn written(text: &str) -> String {
    console::collect();
    let mut rig = Rig::new(&World::new(), text);
    for _ in 0..200 {
        rig.poll();
        rig.bench.now_ns += 1_000_000;
    }
    console::collected().out
}

fn nat(class: &str, rows: &str, replies: &str) -> String {
    written(&format!(
        "rw :: {class}(pattern 1.0.0.1 1024-1025# - - 0 1, drop);
         FromIPSummaryDump(DATA \"!data src sport dst dport\n{rows}\", CHECKSUM true) -> [0] rw [0] -> CheckIPHeader
            -> CheckTCPHeader -> t :: ToIPSummaryDump(-, HEADER false, FIELDS src sport dst dport);
         FromIPSummaryDump(DATA \"!data src sport dst dport\n{replies}\", CHECKSUM true, ACTIVE false) -> CheckIPHeader
            -> [1] rw [1] -> CheckIPHeader -> CheckTCPHeader -> t;
         Script(wait 50ms, write FromIPSummaryDump@6.active true)"
    ))
}

#[test]
fn flows_get_ports_and_replies_find_back() {
    let rows = "10.0.0.1 5 8.0.0.1 80\n10.0.0.1 5 8.0.0.1 80\n10.0.0.2 5 8.0.0.1 80\n10.0.0.3 5 8.0.0.1 80\n10.0.0.3 5 8.0.0.2 80";
    let replies = "8.0.0.1 80 1.0.0.1 1025\n8.0.0.1 80 1.0.0.1 1026\n8.0.0.2 80 1.0.0.1 1024\n9.9.9.9 80 1.0.0.1 1024";
    let want = "1.0.0.1 1024 8.0.0.1 80\n1.0.0.1 1024 8.0.0.1 80\n1.0.0.1 1025 8.0.0.1 80\n1.0.0.1 1024 8.0.0.2 80\n\
                8.0.0.1 80 10.0.0.2 5\n8.0.0.2 80 10.0.0.3 5\n";
    for class in ["IPRewriter", "TCPRewriter", "UDPRewriter"] {
        assert_eq!(nat(class, rows, replies), want, "{class}");
    }
}

#[test]
fn flows_are_listed_by_protocol() {
    let text = "FromDevice(a) -> Strip(14) -> CheckIPHeader -> rw :: IPRewriter(pattern 1.0.0.1 700-900# - - 0 0) -> ToDevice(x)";
    let mut rig = Rig::new(&World::new(), text);
    for protocol in [6, 17] {
        let payload = [&[0, 5, 0, 80][..], &[0x50; 16]].concat();
        rig.receive("a", &[&frame_v4("10.0.0.1", "8.0.0.1", 64, protocol, &payload)]);
    }
    let lines = |name: &str| rig.read(name).lines().count();
    assert_eq!([lines("rw.table"), lines("rw.tcp_table"), lines("rw.udp_mappings")], [2, 1, 1]);
    assert_eq!(
        (rig.read("rw.nmappings"), rig.read("rw.pattern0")),
        ("2".into(), rig.read("rw.patterns"))
    );
    assert!(rig.read("rw.patterns").ends_with(" [2]\n"), "{}", rig.read("rw.patterns"));
    let row = "(10.0.0.1, 5, 8.0.0.1, 80) => (1.0.0.1, 700, 8.0.0.1, 80) [*0 0]\n";
    assert_eq!(rig.read("rw.tcp_table"), row);
}

#[test]
fn packets_go_by_one_of_the_destinations() {
    for (config, to) in [("", "x"), (", DST_ANNO true", "x"), (", DST_ANNO false", "y")] {
        let text = format!(
            "FromDevice(a) -> Strip(14) -> CheckIPHeader -> rw :: IPRewriter(pattern - - 10.0.0.9 - 0 0{config})
             -> r :: StaticIPLookup(10.0.0.0/8 0, 0/0 1); r => ToDevice(x), ToDevice(y)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        for _ in 0..3 {
            let sent = rig.receive("a", &[&frame_v4("10.0.0.1", "8.0.0.1", 64, 17, &[0; 20])]);
            assert_eq!(
                (sent[0].0.as_str(), &sent[0].1[16..20]),
                (to, &[10, 0, 0, 9][..]),
                "{config}"
            );
        }
    }
}

#[test]
fn echo_replies_begin_no_flow() {
    for (config, left) in [("pattern 1.0.0.1 - - - 0 0", 0), ("keep 0 0", 0), ("pass 0", 1)] {
        let text = format!(
            "FromDevice(a) -> Strip(14) -> CheckIPHeader -> rw :: ICMPPingRewriter({config}) -> ToDevice(x)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        let echo = |kind| frame_v4("10.0.0.1", "8.0.0.1", 64, 1, &[kind, 0, 0, 0, 0, 5, 0, 1]);
        assert_eq!(rig.receive("a", &[&echo(0)]).len(), left, "{config}");
        assert_eq!(rig.receive("a", &[&echo(8)]).len(), 1, "{config}");
    }
}

#[test]
fn destinations_are_not_changed_by_sources_alone() {
    let text = "FromDevice(a) -> rw :: IPAddrRewriter(pattern 1.0.0.1 2.0.0.2 0 0) -> ToDevice(x)";
    let reported = crate::graph::Plan::read("a", text, crate::ELEMENTS).unwrap_err();
    assert!(reported.to_string().contains("input spec 0: the destination of"), "{reported}");
}

#[test]
fn flows_are_listed_by_what_their_rewriter_changes() {
    for (class, pattern, row) in [
        ("IPAddrRewriter", "pattern 1.0.0.1 - 1 0", "10.0.0.1 => 1.0.0.1 [*1 0]\n"),
        (
            "IPAddrPairRewriter",
            "pattern 1.0.0.1 2.0.0.2 0 1",
            "(10.0.0.1, 8.0.0.1) => (1.0.0.1, 2.0.0.2) [*0 1]\n",
        ),
        (
            "ICMPPingRewriter",
            "pattern 1.0.0.1 9-20# - - 0 1",
            "(10.0.0.1, 8.0.0.1, 5) => (1.0.0.1, 8.0.0.1, 9) [*0 1]\n",
        ),
    ] {
        let text = format!(
            "FromDevice(a) -> Strip(14) -> CheckIPHeader -> rw :: {class}({pattern}) -> ToDevice(x); rw [1] -> ToDevice(y)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        rig.receive("a", &[&frame_v4("10.0.0.1", "8.0.0.1", 64, 1, &[8, 0, 0, 0, 0, 5, 0, 1])]);
        assert_eq!(rig.read("rw.table"), row, "{class}");
    }
}

#[test]
fn a_flow_without_a_place_or_a_port_is_a_counted_drop() {
    let graph = |args: &str| {
        format!(
            "FromDevice(a) -> Strip(14) -> CheckIPHeader -> rw :: IPRewriter({args}) -> ToDevice(x)"
        )
    };
    for args in
        ["pattern 1.0.0.1 700-701# - - 0 0", "pattern 1.0.0.1 1-65535# - - 0 0, MAPPING_CAPACITY 2"]
    {
        let mut rig = Rig::new(&World::new(), &graph(args));
        for host in 1..=4 {
            let frame = frame_v4(&format!("10.0.0.{host}"), "8.0.0.1", 64, 17, &[0; 20]);
            rig.receive("a", &[&frame]);
        }
        assert_eq!(rig.dropped(DropReason::NoMapping), 2, "{args}");
        assert_eq!(
            (rig.read("rw.mapping_failures"), rig.read("rw.size")),
            ("2".into(), "2".into())
        );
        assert!(rig.read("rw.table_bytes").parse::<usize>().unwrap() > 100);
        rig.write("rw.capacity", "40 5");
        assert_eq!(rig.read("rw.capacity"), "40");
        assert!(rig.handlers.write("rw.capacity", "40 x").is_err());
    }
}

#[test]
fn a_mapper_gives_its_patterns_in_turn() {
    let text = "FromDevice(a) -> Strip(14) -> CheckIPHeader -> rw :: IPRewriter(m) -> ToDevice(x); rw [1] -> ToDevice(y);
        m :: RoundRobinIPMapper(1.0.0.1 7-8# - - 0 1, pattern 1.0.0.2 9 - - 1 0)";
    let mut rig = Rig::new(&World::new(), text);
    let mut sent = Vec::new();
    for host in 1..=4 {
        let frame = frame_v4(&format!("10.0.0.{host}"), "8.0.0.1", 64, 17, &[0; 20]);
        sent.extend(rig.receive("a", &[&frame]).into_iter().map(|(to, bytes)| (to, bytes[15])));
    }
    let sent: Vec<_> = sent.iter().map(|(to, last)| (to.as_str(), *last)).collect();
    assert_eq!(sent, [("x", 1), ("y", 2), ("x", 1)], "the fourth finds no port");
    assert_eq!(
        (rig.read("rw.patterns"), rig.read("rw.nmappings")),
        ("<mapper> [3]\n".into(), "3".into())
    );
}

#[test]
fn a_mapper_by_source_gives_a_source_one_pattern() {
    let text = "FromDevice(a) -> Strip(14) -> CheckIPHeader -> rw :: IPRewriter(m) -> ToDevice(x); rw [1] -> ToDevice(y);
        m :: SourceIPHashMapper(16 0xbad, - - 1.0.0.1 - 0 1 1, pattern - - 1.0.0.2 - 0 1 2)";
    let mut rig = Rig::new(&World::new(), text);
    let mut seen = [0; 2];
    for host in 1..=60 {
        let mut to = Vec::new();
        for port in 1..=3 {
            let ports = [0, port, 0, 80, 0, 8, 0, 0];
            let frame = frame_v4(&format!("10.0.0.{host}"), "8.0.0.1", 64, 17, &ports);
            to.extend(rig.receive("a", &[&frame]).into_iter().map(|(_, bytes)| bytes[19]));
        }
        assert!(to.len() == 3 && to.iter().all(|server| *server == to[0]), "{to:?}");
        seen[usize::from(to[0]) - 1] += 1;
    }
    assert!(seen.iter().all(|hosts| *hosts > 5), "{seen:?}");
    for (config, words) in [
        ("m :: SourceIPHashMapper(16, - - 1.0.0.1 - 0 0 1)", "expected NODES SEED"),
        ("m :: SourceIPHashMapper(0 1, - - 1.0.0.1 - 0 0 1)", "1 to 1024 are possible"),
        ("m :: SourceIPHashMapper(16 1, - - 1.0.0.1 - 0 0 x)", "no number of a server"),
        ("m :: SourceIPHashMapper(16 1)", "it has no patterns"),
    ] {
        let text = format!("FromDevice(a) -> IPRewriter(m) -> ToDevice(x); {config}");
        let reported = crate::graph::Plan::read("a", &text, crate::ELEMENTS).unwrap_err();
        assert!(reported.to_string().contains(words), "{reported}");
    }
}

#[test]
fn a_mapper_is_found_in_its_compound() {
    let text = "elementclass C { input -> rw :: IPRewriter(m) -> output; m :: RoundRobinIPMapper(1.0.0.1 7-8# - - 0 0) };
        FromDevice(a) -> Strip(14) -> CheckIPHeader -> c :: C -> ToDevice(x)";
    let mut rig = Rig::new(&World::new(), text);
    let frame = frame_v4("10.0.0.1", "8.0.0.1", 64, 17, &[0; 20]);
    assert_eq!(rig.receive("a", &[&frame])[0].1[12..16], [1, 0, 0, 1]);
    assert_eq!(rig.read("c/rw.patterns"), "<mapper> [1]\n");
}

#[test]
fn flows_are_looked_up_by_either_end() {
    for (class, protocol) in [("IPRewriter", 6), ("UDPRewriter", 17), ("IPRewriter", 17)] {
        let text = format!(
            "FromDevice(a) -> Strip(14) -> CheckIPHeader -> rw :: {class}(pattern 1.0.0.1 700 - - 0 0) -> ToDevice(x)"
        );
        let mut rig = Rig::new(&World::new(), &text);
        let payload = [&[0, 5, 0, 80][..], &[0x50; 16]].concat();
        rig.receive("a", &[&frame_v4("10.0.0.1", "8.0.0.1", 64, protocol, &payload)]);
        let read = |ends: &str| rig.handlers.read("rw.lookup", ends).unwrap();
        assert_eq!(read("10.0.0.1 5 8.0.0.1 80"), "1.0.0.1 700 8.0.0.1 80", "{class} {protocol}");
        assert_eq!(read("8.0.0.1 80 1.0.0.1 700"), "8.0.0.1 80 10.0.0.1 5", "{class} {protocol}");
        assert_eq!(read("10.0.0.1 6 8.0.0.1 80"), "");
    }
    let text = "FromDevice(a) -> Strip(14) -> CheckIPHeader -> rw :: IPAddrRewriter(pattern 1.0.0.1 - 0 0) -> ToDevice(x)";
    let mut rig = Rig::new(&World::new(), text);
    rig.receive("a", &[&frame_v4("10.0.0.1", "8.0.0.1", 64, 17, &[0; 20])]);
    let read = |ends: &str| rig.handlers.read("rw.lookup", ends).unwrap();
    assert_eq!(read("10.0.0.1 5 9.0.0.1 80"), "1.0.0.1 5 9.0.0.1 80");
    assert!(!rig.read("rw.handlers").contains("tcp_lookup"));
}

#[test]
fn names_of_ports_are_those_of_the_protocol() {
    for (class, port) in [("TCPRewriter", "97"), ("UDPRewriter", "99"), ("IPRewriter", "99")] {
        let text = format!(
            "PortInfo(foo 99/udp, foo 97/tcp); IPRewriterPatterns(p 1.0.0.1 foo - foo);
             Idle -> rw :: {class}(pattern 1.0.0.1 foo-foo - foo 0 0, pattern p 0 0) -> Discard; Idle -> [1] rw"
        );
        let rig = Rig::new(&World::new(), &text);
        let line = format!("1.0.0.1 {port} - {port}\n");
        assert_eq!(rig.read("rw.patterns"), line.repeat(2), "{class}");
    }
}

#[test]
fn echoes_get_identifiers_and_replies_find_back() {
    let text = "FromDevice(a) -> Strip(14) -> CheckIPHeader -> [0] rw :: ICMPPingRewriter(pattern 1.0.0.1 700-701# - - 0 1, drop);
        FromDevice(b) -> Strip(14) -> CheckIPHeader -> [1] rw; rw [0] -> CheckICMPHeader -> ToDevice(x);
        rw [1] -> CheckICMPHeader -> ToDevice(y)";
    let mut rig = Rig::new(&World::new(), text);
    let mut echo = |device: &str, src: &str, dst: &str, kind: u8, id: u8| {
        let mut frame = frame_v4(src, dst, 64, 1, &[kind, 0, 0, 0, 0, id, 0, 2]);
        crate::element::click::only::checksums::fill_checksums(&mut frame[14..]);
        let sent = rig.receive(device, &[&frame]);
        let ends =
            |bytes: &[u8]| (bytes[12], bytes[16], u16::from_be_bytes([bytes[24], bytes[25]]));
        sent.first().map(|(to, bytes)| (to.clone(), ends(bytes)))
    };
    let x = |ends| Some(("x".to_owned(), ends));
    assert_eq!(echo("a", "10.0.0.1", "8.0.0.1", 8, 5), x((1, 8, 700)));
    assert_eq!(echo("a", "11.0.0.1", "8.0.0.1", 8, 5), x((1, 8, 701)));
    assert_eq!(echo("a", "12.0.0.1", "8.0.0.1", 8, 5), None, "none is left");
    // 700 is 0x02bc: only its low byte fits the closure's identifier.
    assert_eq!(echo("b", "8.0.0.1", "1.0.0.1", 0, 5), None, "nobody sent that");
    let mut reply = frame_v4("8.0.0.1", "1.0.0.1", 64, 1, &[0, 0, 0, 0, 2, 0xbc, 0, 2]);
    crate::element::click::only::checksums::fill_checksums(&mut reply[14..]);
    let sent = rig.receive("b", &[&reply]);
    assert_eq!((&*sent[0].0, sent[0].1[16], &sent[0].1[24..26]), ("y", 10, &[0, 5][..]));
}

#[test]
fn wrong_arguments() {
    let reported = refused(&IP, "pattern 1.0.0.1 1x - - 0 1");
    assert!(reported.contains("input spec 0: bad source port"), "{reported}");
    assert!(refused(&IP, "pattern x 0 1").contains("no pattern `x`"));
    assert!(refused(&IP, "keep 0 9").contains("bad output `9`"));
    assert!(refused(&IP, "drop, drop").contains("1 inputs want as many arguments, not 2"));
    assert!(refused(&ADDR, "pattern 1.0.0.x - 0 1").contains("input spec 0: bad source address"));
    assert!(refused(&IP, "drop, MAPPING_CAPACITY x").contains("there is no rewriter `x`"));
}
