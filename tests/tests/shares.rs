//! Flows of a next-hop group, each by the member that its hash chooses: the shares follow the weights, in XDP and in the graph
//! alike, and a member that fails moves its own flows and no other.
//!
//! ```text
//!                                  (r1) -- (d0)
//! source s0 -- (r0 10.0.1.1) router (r2) -- (d1) destination
//!                                  (r3) -- (d2)
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fingerpost_packet::testing::frame_v4;
use fingerpost_tests::netns::{Line, Router, command, conserved, ip, run};
use fingerpost_tests::patience;

const FRAMES: &str = env!("CARGO_BIN_EXE_frames");
/// Flows of a group: so many source ports to each of two addresses.
const PORTS: u16 = 50_000;
const FLOWS: usize = 2 * PORTS as usize;
/// Rate of their packets, and for how long: each flow has one at least.
const RATE: u64 = 15_000;
const SECONDS: u64 = 8;
/// What the shares may differ from the weights by.
const TOLERANCE: f64 = 0.02;
/// Looks in a row at which captures have not grown: they are complete.
const AT_REST: u32 = 5;
/// Share of the packets that a busy receiver may miss.
const MISSED: f64 = 0.01;
/// What the flows of a member that fails may lose: what was sent in that time, on a machine that runs other tests as well.
/// What is promised `failover.rs` measures.
const MOST_OUTAGE: Duration = Duration::from_millis(500);

/// A flow: which of the two addresses it is to, and its source port.
type Flow = (u8, u16);

struct Lab {
    line: Line,
    folder: PathBuf,
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Lab {
    fn new() -> Option<Self> {
        let line = Line::new(&["ping", "ethtool", "tcpdump"])?;
        let (s, r, d) = (&line.source, &line.router, &line.destination);
        let folder = std::env::temp_dir().join(format!("{r}-shares"));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        for n in [1, 2] {
            ip(&format!("-n {r} link add r{} type veth peer name d{n} netns {d}", n + 1));
            ip(&format!("-n {r} addr add 10.0.{}.1/24 dev r{}", n + 2, n + 1));
            ip(&format!("-n {d} addr add 10.0.{}.2/24 dev d{n}", n + 2));
            ip(&format!("-n {r} link set r{} up", n + 1));
            ip(&format!("-n {d} link set d{n} up"));
        }
        // Nobody there answers, and veths take what programs send.
        run(d, "sysctl -qw net.ipv4.ip_forward=0 net.ipv4.conf.all.rp_filter=0");
        for (namespace, link) in [(s, "s0"), (d, "d0"), (d, "d1"), (d, "d2")] {
            run(namespace, &format!("ethtool -K {link} gro on tx off"));
        }
        for (id, subnet, link) in [(1, 2, "r1"), (2, 3, "r2"), (3, 4, "r3")] {
            ip(&format!("-n {r} nexthop add id {id} via 10.0.{subnet}.2 dev {link}"));
        }
        ip(&format!("-n {r} nexthop add id 10 group 1,3/2,1"));
        ip(&format!("-n {r} nexthop add id 20 group 1/2/3"));
        ip(&format!("-n {r} route add 10.50.0.0/24 nhid 10"));
        ip(&format!("-n {r} route add 10.60.0.0/24 nhid 20"));
        let mac = run(r, "cat /sys/class/net/r0/address");
        let mac: Vec<u8> = (mac.trim().split(':'))
            .map(|byte| u8::from_str_radix(byte, 16).expect("a link address"))
            .collect();
        for group in [50_u8, 60] {
            let mut text = String::new();
            for (to, port) in [1_u8, 2].into_iter().flat_map(|to| (1..=PORTS).map(move |p| (to, p)))
            {
                let sum = checksum(group, to, port);
                let udp = [&port.to_be_bytes()[..], &[0, 9, 0, 20], &sum.to_be_bytes(), &[0; 12]];
                let udp = udp.concat();
                let mut frame = frame_v4("10.0.1.2", &format!("10.{group}.0.{to}"), 64, 17, &udp);
                frame[..6].copy_from_slice(&mac);
                for byte in frame {
                    let _ = write!(text, "{byte:02x}");
                }
                text.push('\n');
            }
            std::fs::write(folder.join(group.to_string()), text).expect("the folder was made");
        }
        Some(Self { line, folder })
    }

    fn router(&self, words: &str) -> Router {
        let config = self.folder.join("router.toml");
        std::fs::write(&config, "[groups]\nflow_seed = 7\n").expect("the folder was made");
        let router = Router::start(&self.line.router, &format!("{} {words}", config.display()), 4);
        for subnet in [2, 3, 4] {
            run(&self.line.router, &format!("ping -c 1 -W 5 10.0.{subnet}.2"));
        }
        router
    }

    /// Has the source send the packets of a group, for so long.
    fn send(&self, group: u8) -> Child {
        let file = self.folder.join(group.to_string());
        let words = format!("{FRAMES} s0 {} {RATE} {SECONDS}", file.display());
        let mut command = command(&self.line.source, &words);
        command.stdout(Stdio::piped()).spawn().expect("the helper is built with the tests")
    }

    /// Sends the packets of a group, and `meanwhile`; the flows that each link carried, and how many packets were sent
    /// and did not arrive.
    fn carried(&self, group: u8, meanwhile: impl FnOnce()) -> ([BTreeSet<Flow>; 3], u64) {
        let file = |n: usize| self.folder.join(format!("d{n}.pcap"));
        let mut captures: Vec<Child> = (0..3)
            .map(|n| {
                let words = format!(
                    "tcpdump -q -n -s 64 -B 65536 -U -Z root -w {} -i d{n} udp and net 10.{group}.0.0/24",
                    file(n).display()
                );
                let mut command = command(&self.line.destination, &words);
                command.stderr(Stdio::null()).spawn().expect("tcpdump was found before")
            })
            .collect();
        let until = Instant::now() + patience(Duration::from_secs(10));
        while !(0..3).all(|n| std::fs::metadata(file(n)).is_ok_and(|file| file.len() >= 24)) {
            assert!(Instant::now() < until, "tcpdump does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        let sender = self.send(group);
        meanwhile();
        let said = sender.wait_with_output().expect("it was started").stdout;
        // tcpdump is behind on a busy machine, and what it has not read it does not write.
        let sizes = || [0, 1, 2].map(|n| std::fs::metadata(file(n)).map_or(0, |file| file.len()));
        let (mut before, mut same) = (sizes(), 0);
        while same < AT_REST {
            std::thread::sleep(Duration::from_millis(200));
            let now = sizes();
            same = if now == before { same + 1 } else { 0 };
            before = now;
        }
        for capture in &mut captures {
            let _ = std::process::Command::new("kill").arg(capture.id().to_string()).status();
            let _ = capture.wait();
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        let sent: u64 =
            said.trim().strip_prefix("sent ").and_then(|n| n.parse().ok()).expect("a number");
        let all = [0, 1, 2].map(|n| flows(&std::fs::read(file(n)).expect("it was written")));
        let arrived: usize = all.iter().map(Vec::len).sum();
        (0..3).for_each(|n| drop(std::fs::remove_file(file(n))));
        (all.map(|flows| flows.into_iter().collect()), sent - arrived as u64)
    }
}

/// Checksum of a UDP packet with twelve zeros from 10.0.1.2 to 10.GROUP.0.TO, port 9 (RFC 768).
fn checksum(group: u8, to: u8, port: u16) -> u16 {
    let words = [0x0a00, 0x0102, 0x0a00 | u16::from(group), to.into(), 17, 20, port, 9, 20];
    let sum: u32 = words.into_iter().map(u32::from).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let sum = !u16::try_from((folded & 0xffff) + (folded >> 16)).expect("it is folded");
    if sum == 0 { u16::MAX } else { sum }
}

/// The flows of the packets of a capture, one by one.
fn flows(capture: &[u8]) -> Vec<Flow> {
    let (mut flows, mut at) = (Vec::new(), 24);
    while let Some(record) = capture.get(at..at + 16) {
        let len = u32::from_le_bytes(record[8..12].try_into().expect("four bytes")) as usize;
        let Some(frame) = capture.get(at + 16..at + 16 + len) else { break };
        flows.push((frame[33], u16::from_be_bytes([frame[34], frame[35]])));
        at += 16 + len;
    }
    flows
}

/// Whether nearly all flows were seen, by one link each.
fn complete(carried: &[BTreeSet<Flow>; 3], lost: u64) -> bool {
    let once = carried.iter().map(BTreeSet::len).sum::<usize>();
    let all: BTreeSet<Flow> = carried.iter().flatten().copied().collect();
    let most_missed = MISSED * (RATE * SECONDS) as f64;
    once == all.len() && (FLOWS - once) as f64 <= most_missed && lost as f64 <= most_missed
}

#[test]
fn flows_are_shared_by_weight_and_only_those_of_a_failed_member_move() {
    let Some(lab) = Lab::new() else { return };
    let r = lab.line.router.clone();
    let mut before: Vec<[BTreeSet<Flow>; 3]> = Vec::new();
    for (by, words) in [("xdp", ""), ("graph", "--path graph")] {
        let router = lab.router(words);
        let (shared, lost) = lab.carried(50, || {});
        let [most, few, none] = shared.each_ref().map(BTreeSet::len);
        let share = few as f64 / (most + few) as f64;
        println!("{by}: weights 3:1, {most} and {few} flows, {lost} packets missed");
        assert!(complete(&shared, lost) && none == 0, "{by}: {none} by the third, {lost} missed");
        assert!((share / 0.25 - 1.0).abs() < TOLERANCE, "{by}: {share}");

        // One of three fails: its flows are shared among the others, which keep theirs.
        let (all, lost) = lab.carried(60, || {});
        assert!(complete(&all, lost), "{by}: {lost} missed");
        let (during, lost) = lab.carried(60, || {
            std::thread::sleep(Duration::from_millis(1500));
            ip(&format!("-n {r} link set r2 down"));
        });
        let outage = Duration::from_secs_f64(3.0 * lost as f64 / RATE as f64);
        println!(
            "{by}: a member of three fails: {lost} packets missed, of its flows those of {outage:.1?}"
        );
        assert!(outage <= patience(MOST_OUTAGE), "{by}: {lost} packets of {outage:?}");
        let (after, lost) = lab.carried(60, || {});
        assert!(complete(&after, lost) && after[1].is_empty(), "{by}: {lost} missed");
        for (kept, other) in [(0, 2), (2, 0)] {
            for now in [&during, &after] {
                assert!(all[kept].is_disjoint(&now[other]), "{by}: member {kept} keeps its flows");
            }
            let moved = after[kept].intersection(&all[1]).count();
            println!("{by}: member {kept} has {} flows and {moved} more", all[kept].len());
            assert!(moved > all[1].len() / 3, "{by}: {moved} of {} flows", all[1].len());
        }
        let report = router.stop();
        let in_xdp = report["forwarded_xdp"].as_u64() > Some(0);
        assert_eq!(in_xdp, by == "xdp", "{report}");
        conserved(&report);
        ip(&format!("-n {r} link set r2 up"));
        // The object went with the link.
        ip(&format!("-n {r} nexthop replace id 2 via 10.0.3.2 dev r2"));
        ip(&format!("-n {r} nexthop replace id 10 group 1,3/2,1"));
        ip(&format!("-n {r} nexthop replace id 20 group 1/2/3"));
        before.push(shared);
    }
    let [xdp, graph] = [&before[0], &before[1]];
    assert!(xdp[0].is_disjoint(&graph[1]) && xdp[1].is_disjoint(&graph[0]), "the same by both");
}
