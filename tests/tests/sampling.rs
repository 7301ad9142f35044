//! Samples of a running router, as collectors decode them: sFlow by sfcapd of nfdump and sfacctd of pmacct, IPFIX by nfcapd and
//! nfacctd.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fingerpost_tests::folder::Folder;
use fingerpost_tests::netns::{Line, Router, await_port, command, conserved, exec, ip, ready, run};
use fingerpost_tests::traffic::Traffic;
use fingerpost_tests::world::Listener;
use serde_json::Value;

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");

/// Destinations behind the host at the end of the line.
const BEYOND: [&str; 2] = ["198.51.100.7", "2001:db8:9::7"];

/// Sampling rate of most tests: a packet in so many.
const RATE: u64 = 50;

/// Bytes of content of each packet.
const CONTENT: usize = 300;

/// Prefixes with their AS numbers: a longer prefix has its own, and the last one is of IPv6.
const AS_TABLE: &str = "10.0.1.0/24 64500\n198.51.0.0/16 1\n198.51.100.0/24 AS64501 # beyond\n\
                        fd01::/64 64500\n2001:db8::/32 4200000001\n";

/// The AS numbers by that table of [`BEYOND`]; the source has 64500.
const BEYOND_AS: [u64; 2] = [64_501, 4_200_000_001];

struct Lab {
    line: Line,
    folder: Folder,
}

impl Lab {
    /// The line, with a route to [`BEYOND`] by its end.
    fn new() -> Option<Self> {
        let line = Line::new(&["nfcapd", "sfcapd", "nfdump", "ethtool", "tcpdump", "curl"])?;
        let (r, d) = (&line.router, &line.destination);
        ip(&format!("-n {d} link set lo up"));
        for (addr, prefix, gateway) in
            [(BEYOND[0], "198.51.100.0/24", "10.0.2.2"), (BEYOND[1], "2001:db8:9::/48", "fd02::2")]
        {
            ip(&format!("-n {d} addr add {addr} dev lo"));
            ip(&format!("-n {r} route add {prefix} via {gateway}"));
        }
        // A veth takes packets from XDP while its peer has GRO, and programs leave those with partial checksums.
        for (namespace, link) in [(&line.source, "s0"), (d, "d0")] {
            run(namespace, &format!("ethtool -K {link} gro on tx off"));
        }
        let folder = Folder::new(&line.router);
        Some(Self { line, folder })
    }

    /// A configuration that samples on `r0` and reports to these collectors, with the AS numbers of [`AS_TABLE`].
    fn config(&self, rate: u64, collectors: &[(&str, &str)]) -> String {
        let as_table = self.folder.write("as.txt", AS_TABLE);
        let mut text = format!(
            "[[interface]]\nname = \"r0\"\nsampling = {rate}\n[[interface]]\nname = \"r1\"\n"
        );
        for (address, protocol) in collectors {
            text += &format!(
                "[[collector]]\naddress = \"{address}\"\nprotocol = \"{protocol}\"\ncounters_s = 1\n\
                 as_table = \"{as_table}\"\n"
            );
        }
        self.folder.write("sampling.toml", &text)
    }

    /// Sends so many packets a second to each of [`BEYOND`], for so many seconds each. Returns how many were sent, and how many
    /// of these were lost somewhere, by family: on a busy machine some are, before the router has them or behind it.
    fn send(&self, rate: u64, seconds: u64) -> [(u64, u64); 2] {
        let ends = [&*self.line.source, &*self.line.destination];
        ["198.51.100.7", "[2001:db8:9::7]"].map(|addr| {
            let traffic = Traffic::between(TRANSFER, ends, &[addr], (rate, seconds, CONTENT));
            let counts = traffic.end();
            assert!(counts.lost() * 5 < counts.sent, "{counts:?}");
            (counts.sent, counts.lost())
        })
    }

    /// Kernel index of an interface of the router.
    fn index(&self, name: &str) -> u64 {
        let text = run(&self.line.router, &format!("cat /sys/class/net/{name}/ifindex"));
        text.trim().parse().expect("a number")
    }
}

/// A collector of nfdump at the end of the line.
struct Collector {
    child: Option<Child>,
    folder: PathBuf,
}

impl Collector {
    /// Starts `nfcapd` or `sfcapd` at a UDP port, and waits until it listens.
    fn start(lab: &Lab, program: &str, port: u16) -> Self {
        let folder = lab.folder.path().join(program);
        std::fs::create_dir_all(&folder).expect("the folder of the test can be written");
        let (namespace, dir) = (&lab.line.destination, folder.display());
        let words = format!("{program} -p {port} -t 3600 -B 4000000 -w {dir}");
        let mut child = command(namespace, &words);
        let child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        await_port(namespace, port);
        Self { child: Some(child.expect("it was found before")), folder }
    }

    /// Ends it, and returns the records that it has.
    fn end(mut self) -> Vec<Value> {
        let mut child = self.child.take().expect("it was started");
        let pid = child.id().to_string();
        Command::new("kill").args(["-s", "TERM", &pid]).status().expect("kill was found");
        child.wait().expect("it was started");
        records(&self.folder)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The records of the files in a folder.
fn records(folder: &Path) -> Vec<Value> {
    let output = Command::new("nfdump")
        .args(["-o", "json", "-R"])
        .arg(folder)
        .output()
        .expect("it was found before");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:.2000}"))
}

/// A number of a record.
fn number(record: &Value, field: &str) -> u64 {
    record[field].as_u64().unwrap_or_else(|| panic!("no {field}: {record:#}"))
}

/// The row of `r0` in `sampling show`: packets, samples and lost samples.
fn counts(router: &Router) -> [u64; 3] {
    let rows: Vec<Value> = router.ask("sampling show");
    let row = rows.iter().find(|row| row["interface"] == "r0").expect("it samples");
    ["packets", "samples", "lost"].map(|field| number(row, field))
}

/// All that was sent, and all that was lost.
fn sums([v4, v6]: [(u64, u64); 2]) -> [u64; 2] {
    [v4.0 + v6.0, v4.1 + v6.1]
}

/// Waits until what was sampled has been sent: a report waits for others of its datagram.
fn wait_for_reports() {
    std::thread::sleep(Duration::from_millis(1500));
}

/// The metrics, by the control socket.
fn metrics(router: &Router) -> String {
    let said = router.said();
    let socket = said.iter().find_map(|line| line.split_once("control socket "));
    let (_, socket) = socket.expect("it serves one");
    let curl = ["-s", "--unix-socket", socket, "http://router/metrics"];
    let output = Command::new("curl").args(curl).output().expect("curl was found before");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Value of a counter, in sum over its labels.
fn metric(metrics: &str, name: &str) -> u64 {
    let lines = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    lines.map(|line| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).expect(line)).sum()
}

/// Samples of both families by both protocols, on one path of packets.
fn samples_on(path: &str) {
    let Some(lab) = Lab::new() else { return };
    let (sflow, ipfix) =
        (Collector::start(&lab, "sfcapd", 6343), Collector::start(&lab, "nfcapd", 4739));
    let config = lab.config(RATE, &[("10.0.2.2", "sflow"), ("10.0.2.2:4739", "ipfix")]);
    let router = Router::start(&lab.line.router, &format!("{config} --path {path}"), 2);
    let sent = lab.send(4000, 4);
    // Nowhere: each packet is dropped, and may be sampled before.
    let nowhere = "ping -q -i 0.002 -c 2000 -W 1 203.0.113.9";
    exec(&lab.line.source, nowhere);
    wait_for_reports();
    let [packets, samples, lost] = counts(&router);
    let (r0, r1) = (lab.index("r0"), lab.index("r1"));
    let on: Vec<Value> = router.ask("interface show");
    let on = on.iter().find(|row| row["name"] == "r0").expect("it is there");
    assert!(on.to_string().contains("1 in 50") && on["path"] == path, "{on}");
    let report = router.stop();
    conserved(&report);
    let in_xdp = report["forwarded_xdp"].as_u64().expect("a count");
    assert_eq!(in_xdp >= 20_000, path == "xdp", "{report}");
    let [all, missing] = sums(sent);
    assert!(packets >= all - missing, "{packets} packets of {sent:?}");
    assert_eq!(lost, 0, "the queue is long enough");

    for (name, records) in [("sflow", sflow.end()), ("ipfix", ipfix.end())] {
        // Nothing is lost without being counted, by anyone.
        assert_eq!(records.len() as u64, samples, "{name}");
        for (family, addrs, next_hop) in [
            (0, ["src4_addr", "dst4_addr"], ("ip4_next_hop", "10.0.2.2")),
            (1, ["src6_addr", "dst6_addr"], ("ip6_next_hop", "fd02::2")),
        ] {
            let source = ["10.0.1.2", "fd01::2"][family];
            let of = |record: &&Value| record[addrs[1]] == BEYOND[family];
            let mine: Vec<&Value> = records.iter().filter(of).collect();
            // sfcapd scales each by the rate that it states; nfcapd 1.7.1 takes no rate from options.
            let scale = if name == "sflow" { RATE } else { 1 };
            let estimate: u64 = mine.iter().map(|record| number(record, "in_packets")).sum();
            assert_eq!(estimate, mine.len() as u64 * scale, "{name}: {:#}", mine[0]);
            #[allow(clippy::cast_precision_loss, reason = "small numbers")]
            let [got, sent, lost] =
                [mine.len() as u64, sent[family].0, sent[family].1].map(|n| n as f64);
            let (want, lost) = (sent / RATE as f64, lost / RATE as f64);
            let off = 4.0 * (want / 3.0).sqrt();
            assert!(got < want + off && got > want - off - lost, "{name}: {got} of {want}, {lost}");
            let ip_header = [20, 40][family];
            // sFlow reports the frame with its check sequence, IPFIX the packet.
            let link = if name == "sflow" { 14 + 4 } else { 0 };
            let bytes = (CONTENT as u64 + 8 + ip_header + link) * scale;
            for record in mine {
                assert_eq!(record[addrs[0]], source, "{name}: {record:#}");
                assert_eq!(record[next_hop.0], next_hop.1, "{name}: {record:#}");
                let masks = [[24, 24], [64, 48]][family];
                let numbers = ["in_bytes", "proto", "dst_port", "src_mask", "dst_mask"];
                let numbers = numbers.map(|field| number(record, field));
                assert_eq!(numbers, [bytes, 17, 7100, masks[0], masks[1]], "{name}: {record:#}");
                let links = ["input_snmp", "output_snmp"].map(|field| number(record, field));
                assert_eq!(links, [r0, r1], "{name}: {record:#}");
                let numbers = ["src_as", "dst_as"].map(|field| number(record, field));
                assert_eq!(numbers, [64_500, BEYOND_AS[family]], "{name}: {record:#}");
            }
        }
        let dropped: Vec<&Value> =
            records.iter().filter(|record| record["dst4_addr"] == "203.0.113.9").collect();
        assert!((10..80).contains(&dropped.len()), "{name}: {} of 40", dropped.len());
        for record in dropped {
            assert_eq!((number(record, "src_mask"), number(record, "dst_mask")), (24, 0), "{name}");
            assert_eq!(number(record, "src_as"), 64_500, "{name}: {record:#}");
            assert!(number(record, "output_snmp") != r1, "{record:#}");
        }
    }
}

#[test]
fn samples_of_the_graph_agree_with_the_truth() {
    samples_on("afxdp");
}

#[test]
fn samples_of_xdp_agree_with_the_truth() {
    samples_on("xdp");
}

/// A collector of pmacct, which multiplies by the sampling rate, and the file that it writes. Killed when dropped.
struct Pmacct {
    child: Child,
    file: PathBuf,
}

impl Drop for Pmacct {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `sfacctd` or `nfacctd`.
fn start_pmacct(lab: &Lab, program: &str, port: u16) -> Pmacct {
    let (file, config) =
        (lab.folder.path().join(format!("{program}.json")), lab.folder.path().join(program));
    let text = format!(
        "daemonize: false\n{program}_port: {port}\n{program}_ip: 0.0.0.0\n{program}_renormalize: true\n\
         {program}_as: netflow\n{program}_net: netflow\nplugins: print\nprint_output: json\n\
         print_output_file: {}\nprint_output_file_append: true\nprint_refresh_time: 1\n\
         aggregate: dst_host, src_mask, dst_mask, in_iface, out_iface, peer_dst_ip, proto, src_as, dst_as\n",
        file.display()
    );
    std::fs::write(&config, text).expect("the folder was made");
    let words = format!("{program} -f {}", config.display());
    let mut child = command(&lab.line.destination, &words);
    let child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let started = Pmacct { child: child.expect("it was found before"), file };
    await_port(&lab.line.destination, port);
    started
}

#[test]
fn another_collector_finds_the_rate_and_the_route() {
    if !ready(&["sfacctd", "nfacctd"]) {
        return;
    }
    let Some(lab) = Lab::new() else { return };
    let started = [("sfacctd", 6343), ("nfacctd", 4739)]
        .map(|(program, port)| (program, start_pmacct(&lab, program, port)));
    let config = lab.config(RATE, &[("10.0.2.2", "sflow"), ("10.0.2.2:4739", "ipfix")]);
    let router = Router::start(&lab.line.router, &format!("{config} --path afxdp"), 2);
    // The rate is announced with the counters, and IPFIX has no other place for it.
    wait_for_reports();
    let sent = lab.send(3000, 3);
    wait_for_reports();
    let [_, samples, lost] = counts(&router);
    let (r0, r1) = (lab.index("r0"), lab.index("r1"));
    router.stop();
    std::thread::sleep(Duration::from_secs(3));
    for (program, mut pmacct) in started {
        let pid = pmacct.child.id().to_string();
        Command::new("kill").args(["-s", "INT", &pid]).status().expect("kill was found");
        pmacct.child.wait().expect("it was started");
        let text = std::fs::read_to_string(&pmacct.file).expect("it wrote what it had");
        let mut packets = [0; 2];
        for line in text.lines() {
            let row: Value = serde_json::from_str(line).expect("JSON, a line each");
            let family = usize::from(row["ip_dst"] == BEYOND[1]);
            assert_eq!(row["ip_dst"], BEYOND[family], "{program}: {row}");
            let numbers = ["iface_in", "iface_out", "mask_src", "mask_dst", "as_src", "as_dst"];
            let want = [r0, r1, [24, 64][family], [24, 48][family], 64_500, BEYOND_AS[family]];
            assert_eq!(numbers.map(|field| number(&row, field)), want, "{program}: {row}");
            if program == "sfacctd" && family == 1 {
                assert_eq!(row["peer_ip_dst"], "fd02::2", "{row}");
            }
            packets[family] += number(&row, "packets");
        }
        if program == "nfacctd" {
            assert_eq!(packets[0] + packets[1], (samples - lost) * RATE, "{text}");
        }
        // sfacctd takes the packets that could have been sampled between two samples.
        for (packets, (sent, missing)) in packets.into_iter().zip(sent) {
            let (least, most) = ((sent - missing) * 3 / 4, sent * 5 / 4);
            assert!((least..most).contains(&packets), "{program}: {packets} of {sent}");
        }
    }
}

/// The samples of a datagram of sFlow version 5: format and body of each.
fn samples_of(datagram: &[u8]) -> Vec<(u32, &[u8])> {
    let word = |at: usize| u32::from_be_bytes(datagram[at..at + 4].try_into().expect("4 bytes"));
    assert_eq!((word(0), word(4)), (5, 1), "version, and an agent with an IPv4 address");
    let (mut at, mut samples) = (28, Vec::new());
    for _ in 0..word(24) {
        let end = at + 8 + word(at + 4) as usize;
        samples.push((word(at), &datagram[at + 8..end]));
        at = end;
    }
    assert_eq!(at, datagram.len());
    samples
}

#[test]
fn counters_and_losses_are_reported() {
    let Some(lab) = Lab::new() else { return };
    let listener = Listener::start(&lab.line.destination, "d0");
    // Nobody listens at these ports: the kernel learns it by ICMP, and refuses the next datagram.
    let config = lab.config(2, &[("10.0.2.2", "sflow"), ("10.0.2.2:4739", "ipfix")]);
    let router = Router::start(&lab.line.router, &format!("{config} --path afxdp"), 2);
    let sent = lab.send(2000, 2);
    wait_for_reports();
    wait_for_reports();
    let [_, samples, lost] = counts(&router);
    let page = metrics(&router);
    let of = |name: &str| metric(&page, name);
    let failed = of("fingerpost_sampling_failed_datagrams_total");
    let datagrams = of("fingerpost_sampling_datagrams_total");
    assert_eq!(of("fingerpost_sampling_samples_total"), samples);
    assert_eq!(of("fingerpost_sampling_lost_samples_total"), lost);
    let [all, missing] = sums(sent);
    assert!(of("fingerpost_sampling_packets_total") >= all - missing);
    assert!(failed > 0 && datagrams > 0, "{failed} of {datagrams}");
    let refused =
        |said: &[String]| said.iter().any(|line| line.contains("samples are not sent to"));
    assert!(refused(&router.said()), "{:#?}", router.said());
    let r0 = u32::try_from(lab.index("r0")).expect("an index");
    router.stop();

    let frames = listener.frames();
    let to = |port: u16| {
        let at = move |frame: &&Vec<u8>| {
            frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == port.to_be_bytes()
        };
        frames.iter().map(|(_, frame)| frame).filter(at).map(|frame| &frame[42..])
    };
    let sflow: Vec<&[u8]> = to(6343).collect();
    let samples: Vec<(u32, &[u8])> = sflow.iter().flat_map(|one| samples_of(one)).collect();
    let word =
        |of: &[u8], at: usize| u32::from_be_bytes(of[at..at + 4].try_into().expect("4 bytes"));
    // Format 2: a number, the source, and one record of interface counters: its packets stand 40 bytes into it.
    let counters = samples.iter().filter(|(format, body)| *format == 2 && word(body, 4) == r0);
    let received: Vec<u32> = counters.map(|(_, body)| word(body, 20 + 32)).collect();
    assert!(received.len() >= 3 && received.is_sorted(), "{received:?}");
    let last = received.last().map_or(0, |last| u64::from(*last));
    assert!((all - missing..all + 200).contains(&last), "{received:?} of {sent:?}");
    // IPFIX: templates come again with each round, and behind them the selector: an interface with one packet in 2. The first
    // may come before the interface is taken over.
    let announced = to(4739).filter(|message| message[16..18] == [0, 2]).filter_map(|message| {
        let len =
            |set: usize| usize::from(u16::from_be_bytes([message[set + 2], message[set + 3]]));
        let selectors = 16 + len(16) + len(16 + len(16));
        message.get(selectors..).filter(|set| set.starts_with(&258_u16.to_be_bytes()))
    });
    let announced: Vec<&[u8]> = announced.collect();
    assert!(announced.len() >= 3, "{}", announced.len());
    for set in announced {
        // The number, its low half; one of two packets; one packet after the distance of one.
        let fields = [8, 14, 18, 22, 26].map(|offset| word(set, offset));
        assert_eq!(fields, [r0, 1, 2, 1, 1], "{set:02x?}");
    }
}
