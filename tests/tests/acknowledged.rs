//! Acknowledgements of FPM against packets: one that is sent when its route is acknowledged follows that route.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use fingerpost_route::netlink::Request;
use fingerpost_tests::configuration::Configuration;
use fingerpost_tests::netns::{Line, Router, command, conserved, run};
use fingerpost_tests::patience;
use fingerpost_tests::traffic::own_every_address;

/// Sender and receiver of numbered packets.
const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Routes that are added, and routes that are replaced, to each of which a packet is sent.
const ROUTES: u8 = 100;
/// Routes that are sent before each of them: builds begin and end beside.
const OTHERS: u32 = 300;

/// Flows of the packets that must arrive, and of those that must not: at one of these the receiver fails.
const ARRIVES: u8 = 0;
const DROPPED: u8 = 1;

/// Attributes and types of `rtnetlink(7)`.
const RTA_DST: u16 = 1;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const UNICAST: u8 = 1;
const BLACKHOLE: u8 = 6;

/// A frame that adds or replaces a route to a /24: over the destination's address, or one that drops packets.
fn frame(prefix: [u8; 4], kind: u8) -> Vec<u8> {
    let mut message = Request::query(24, 0x500, 0)
        .fixed(&[2, 24, 0, 0, 254, 186, 0, kind, 0, 0, 0, 0])
        .attr(RTA_DST, &prefix)
        .attr(RTA_PRIORITY, &20_u32.to_ne_bytes());
    if kind == UNICAST {
        message = message.attr(RTA_GATEWAY, &[10, 0, 2, 2]);
    }
    let message = message.finish();
    let len = u16::try_from(4 + message.len()).expect("a short message");
    [&[1, 1][..], &len.to_be_bytes(), &message].concat()
}

/// Reads acknowledgements until that of a route to `prefix` is among them.
///
/// # Panics
/// When a route has failed, or none comes.
fn await_acknowledgement(zebra: &mut UnixStream, prefix: [u8; 4]) {
    loop {
        let mut head = [0; 4];
        zebra.read_exact(&mut head).expect("an acknowledgement of each route");
        let len = u16::from_be_bytes([head[2], head[3]]);
        let mut message = vec![0; usize::from(len) - 4];
        zebra.read_exact(&mut message).expect("the rest of a frame");
        let failed = message[27] & 0x20 != 0;
        assert!(message[25] & 0x40 != 0 && !failed, "RTM_F_OFFLOAD alone: {message:?}");
        if message[32..36] == prefix {
            return;
        }
    }
}

fn transfer(namespace: &str, words: &str) -> Child {
    let mut command = command(namespace, &format!("{TRANSFER} {words}"));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it is built with the tests")
}

fn printed(child: Child) -> String {
    let output = child.wait_with_output().expect("it was started");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn packets_follow_what_is_acknowledged(path: &str) {
    let Some(line) = Line::new(&["ping"]) else { return };
    let socket = std::env::temp_dir().join(format!("{}-acknowledged.sock", line.router));
    let sources = format!(
        "[[source]]\nkind = \"kernel\"\n[[source]]\nkind = \"fpm\"\nlisten = {:?}\nsweep_s = 1\n",
        socket.display().to_string()
    );
    let config = Configuration::new(&line.router, &sources);
    let words = format!("{} --path {path}", config.path().display());
    let router = Router::start(&line.router, &words, 2);
    own_every_address(&line.destination, "d0");
    // The neighbor is known: no packet waits for it, or is dropped then.
    run(&line.source, "ping -c 2 -i 0.2 -W 2 10.0.2.2");

    let longest = patience(Duration::from_secs(60)).as_secs();
    let receiver = transfer(&line.destination, &format!("count 0.0.0.0:7100 1 {longest}"));
    router
        .wait_for("a receiver", |_| run(&line.destination, "cat /proc/net/udp").contains(":1BBC "));
    let mut sender = transfer(&line.source, "each 7100");
    let mut addrs = sender.stdin.take().expect("it is piped");

    let mut zebra = UnixStream::connect(&socket).expect("the router listens");
    zebra.set_read_timeout(Some(patience(Duration::from_secs(20)))).expect("a time above 0");
    let mut others = 0_u32;
    let mut change = |prefix: [u8; 4], kind: u8| {
        let mut bytes = Vec::new();
        for n in others..others + OTHERS {
            let [.., high, low] = n.to_be_bytes();
            bytes.extend(frame([11, high, low, 0], [UNICAST, BLACKHOLE][usize::from(n % 3 == 0)]));
        }
        others += OTHERS;
        bytes.extend(frame(prefix, kind));
        zebra.write_all(&bytes).expect("the router reads");
        await_acknowledgement(&mut zebra, prefix);
    };
    for route in 0..ROUTES {
        let (added, replaced) = ([10, 200, route, 0], [10, 201, route, 0]);
        change(replaced, UNICAST);
        change(added, UNICAST);
        writeln!(addrs, "{ARRIVES} 10.200.{route}.1").expect("the sender reads");
        change(replaced, BLACKHOLE);
        writeln!(addrs, "{DROPPED} 10.201.{route}.1").expect("the sender reads");
    }
    drop(addrs);
    assert_eq!(printed(sender).trim(), format!("sent {}", u32::from(ROUTES) * 2));
    let received = printed(receiver);
    assert!(received.starts_with(&format!("received {ROUTES} missing ")), "{received}");
    conserved(&router.stop());
}

#[test]
fn packets_follow_what_is_acknowledged_in_the_graph() {
    packets_follow_what_is_acknowledged("graph");
}

#[test]
fn packets_follow_what_is_acknowledged_in_xdp() {
    packets_follow_what_is_acknowledged("xdp");
}
