//! Packets traced through the built-in router, in words.

use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;
use crate::graph::{Graph, Plan};
use crate::router_graph;
use crate::testing::{Bench, World, batch, frame_v4, frame_v6};
use fingerpost_route::ForwardingAction;

struct Rig {
    bench: Bench,
    graph: Graph,
    plan: Plan,
    traces: Receiver<Trace>,
}

fn rig(world: &World, filter: &str, packets: u32) -> Rig {
    let bench = Bench::new(world);
    let plan = router_graph::plan().unwrap();
    let mut graph = Graph::new(&plan, &bench.pool);
    let (wanted, traces) = Wanted::new(Some(Filter::parse(filter).unwrap()), packets);
    graph.trace(Some(wanted.tracer(&bench.pool)));
    Rig { bench, graph, plan, traces }
}

impl Rig {
    fn run(&mut self, frames: &[Vec<u8>]) {
        let frames = batch(&self.bench.pool, 0, frames.iter().map(|f| &f[..]));
        self.graph.receive(0, frames, &mut self.bench.round());
    }

    /// The steps of each trace that is done: packet, element, what became of it.
    fn reported(&self) -> Vec<Vec<String>> {
        let reported = |trace: Trace| {
            let step = |step: &Step| {
                let name = &self.plan.nodes()[usize::from(step.node)].name;
                let made: String = step.made.iter().map(|n| format!(" +{n}")).collect();
                format!("{} {name} {:?}{made}", step.packet, step.fate)
            };
            trace.steps.iter().map(step).collect()
        };
        self.traces.try_iter().map(reported).collect()
    }
}

fn world() -> World {
    let mut world = World::new();
    world.neighbor(3, 0);
    world.neighbor(4, 1);
    world.action("10.0.0.0/24", ForwardingAction::Adjacency(3));
    world.action("192.0.2.0/24", ForwardingAction::Adjacency(4));
    world.action("10.0.1.0/24", ForwardingAction::Glean(1));
    world
}

fn udp(dst: &str, ttl: u8, n: u8) -> Vec<u8> {
    frame_v4("10.0.0.9", dst, ttl, 17, &[n; 30])
}

#[test]
fn those_that_are_wanted_are_followed_and_all_are_forwarded_in_order() {
    let mut rig = rig(&world(), "dst 192.0.2.1 and udp", 2);
    let v6 = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[0; 8]);
    let lasts = [1, 9, 1, 1, 9].into_iter().zip(0..);
    let frames = lasts.map(|(last, n)| udp(&format!("192.0.2.{last}"), 64, n));
    let frames: Vec<_> = frames.chain([v6]).collect();
    rig.run(&frames);
    let order: Vec<u8> = rig.bench.sent.frames.iter().map(|f| *f.1.last().unwrap()).collect();
    assert_eq!(order, [0, 1, 2, 3, 4]);
    let way = [
        "0 FromPorts@1 Output(0)",
        "0 ether_input Output(0)",
        "0 ip4_input Output(0)",
        "0 ip4_lookup Output(0)",
        "0 ip4_next_hop Output(0)",
        "0 transmit Sent(1)",
    ];
    assert_eq!(rig.reported(), [way, way]);
    // It has what it wanted: nothing is left of it after the next packet.
    rig.run(&[udp("192.0.2.1", 64, 0)]);
    assert!(rig.reported().is_empty());
    assert_eq!(rig.bench.pool.free(), rig.bench.pool.frames());
}

#[test]
fn an_error_is_followed_to_its_end_and_the_drop_is_reported() {
    let mut rig = rig(&world(), "udp", 1);
    rig.run(&[udp("192.0.2.1", 1, 1)]);
    let reported = rig.reported().remove(0);
    let of =
        |packet: char| reported.iter().filter(|step| step.starts_with(packet)).collect::<Vec<_>>();
    assert_eq!(of('0').last().unwrap().as_str(), "0 icmp4_error Dropped(TtlExpired) +1");
    assert_eq!(of('1').first().unwrap().as_str(), "1 ip4_lookup Output(0)");
    assert_eq!(of('1').last().unwrap().as_str(), "1 transmit Sent(0)");
}

#[test]
fn a_packet_that_waits_goes_on_in_its_trace() {
    let mut world = world();
    let mut rig = rig(&world, "dst 10.0.1.7", 1);
    rig.run(&[udp("10.0.1.7", 64, 1), udp("10.0.1.8", 64, 2)]);
    assert!(rig.reported().is_empty());
    world.action("10.0.1.7/32", ForwardingAction::Adjacency(4));
    rig.bench.forwarding = world.forwarding();
    rig.graph.poll(&mut rig.bench.round());
    let reported = rig.reported().remove(0);
    let from = reported.iter().position(|step| step == "0 resolver Kept").unwrap();
    let rest = ["0 resolver Output(0)", "0 ip4_lookup Output(0)", "0 ip4_next_hop Output(0)"];
    assert_eq!(reported[from + 1..=from + 3], rest);
    assert_eq!(reported.last().unwrap(), "0 transmit Sent(1)");
    assert_eq!((reported.len(), rig.bench.sent.frames.len()), (from + 5, 1));
}

#[test]
fn what_is_kept_is_told_when_nobody_asks_any_more() {
    let mut rig = rig(&world(), "udp", 5);
    rig.run(&[udp("10.0.1.7", 64, 1), udp("198.51.100.1", 64, 2)]);
    rig.graph.trace(None);
    let reported = rig.reported();
    assert_eq!(reported.len(), 2);
    let ends: Vec<_> = reported.iter().map(|steps| steps.last().unwrap().as_str()).collect();
    assert!(ends.contains(&"0 resolver Kept"), "{ends:?}");
    assert!(rig.traces.recv().is_err(), "nobody is left who could say more");
}

#[test]
fn what_was_rewritten_has_names() {
    let mut rig = rig(&world(), "udp", 1);
    rig.run(&[udp("192.0.2.1", 64, 1)]);
    let trace = rig.traces.try_recv().unwrap();
    let packet = &trace.packets[0];
    let reported: Vec<_> = changes(&packet.frame, &packet.last)
        .into_iter()
        .map(|change| format!("{} {} {}", change.field, change.from, change.to))
        .collect();
    let [mac, source, ttl, sum] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!(mac, "destination mac 02:00:00:00:00:00 02:00:00:00:01:04");
    assert_eq!(source, "source mac 02:00:00:00:09:09 02:00:00:00:00:01");
    assert_eq!(ttl, "ttl 64 63");
    assert!(sum.starts_with("header checksum 0x"), "{sum}");
    assert_eq!(summary(&packet.frame), "10.0.0.9 > 192.0.2.1 udp 257 > 257 ttl 64, 64 bytes");
    let mut other = packet.frame.to_vec();
    other[60..62].fill(7);
    let change = changes(&packet.frame, &other).remove(0);
    assert_eq!((&*change.field, &*change.from, &*change.to), ("bytes 60-61", "0101", "0707"));
    let mut other = packet.frame.to_vec();
    (other[40], other[35], other[50]) = (9, 9, 9);
    let change = changes(&packet.frame, &other);
    let fields: Vec<_> = change.iter().map(|change| &*change.field).collect();
    assert_eq!(fields, ["source port", "udp checksum", "bytes 50-50"]);
    let shorter = changes(&packet.frame, &packet.frame[14..]).remove(0);
    assert_eq!((&*shorter.field, shorter.from.len(), &*shorter.to), ("front", 28, ""));
}

#[test]
fn lines_of_frames() {
    let v6 = frame_v6("2001:db8::9", "2001:db8:5::1", 9, 58, &[128, 0, 0, 0]);
    let want = "2001:db8::9 > 2001:db8:5::1 icmp6 type 128 code 0 hop limit 9, 58 bytes";
    assert_eq!(summary(&v6), want);
    let mut arp = udp("192.0.2.1", 64, 1);
    arp[12..14].copy_from_slice(&[8, 6]);
    assert!(summary(&arp).ends_with("type 0x0806, 64 bytes"), "{}", summary(&arp));
    assert_eq!(summary(&arp[..9]), "9 bytes, no frame");
    assert!(summary(&v6[..20]).ends_with("cut off, 20 bytes"));
}

#[test]
fn a_capture_is_read_by_others() {
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
    use pcap_file::pcapng::{Block, PcapNgReader};
    let mut bytes = Vec::new();
    let mut file = Pcapng::new(&mut bytes).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
    for (name, len) in [("eth0", 61), ("eth1", 64), ("eth0", 1)] {
        file.frame(name, time, &vec![7; len], &format!("{name} {len}")).unwrap();
    }
    let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
    let mut seen = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(interface) => {
                let name = interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                });
                seen.push(format!("interface {}", name.unwrap()));
            }
            Block::EnhancedPacket(packet) => {
                let comment = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                    _ => None,
                });
                assert_eq!(SystemTime::UNIX_EPOCH + packet.timestamp, time);
                assert_eq!(packet.data.len(), packet.original_len as usize);
                seen.push(format!("{} {}", packet.interface_id, comment.unwrap()));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, ["interface eth0", "0 eth0 61", "interface eth1", "1 eth1 64", "0 eth0 1"]);
    let length = |number| captured(&bytes[..], number).unwrap().map(|frame| frame.len());
    assert_eq!([0, 1, 2, 3, 4].map(length), [None, Some(61), Some(64), Some(1), None]);
    // The same of a classic capture.
    let (packet, header) = (vec![9; 60], pcap_file::pcap::PcapHeader::default());
    let mut writer = pcap_file::pcap::PcapWriter::with_header(Vec::new(), header).unwrap();
    let record = pcap_file::pcap::PcapPacket::new(Duration::ZERO, 60, &packet);
    writer.write_packet(&record).unwrap();
    let classic = writer.into_writer();
    assert_eq!(captured(&classic[..], 1).unwrap(), Some(packet));
    assert_eq!(captured(&classic[..], 2).unwrap(), None);
    assert!(captured(&b"no capture file, but long enough to be one"[..], 1).is_err());
}

fn rig_of(text: &str) -> Rig {
    let bench = Bench::new(&world());
    let plan =
        Plan::read("test", text, crate::ELEMENTS).unwrap_or_else(|errors| panic!("{errors}"));
    let mut graph = Graph::new(&plan, &bench.pool);
    let (wanted, traces) = Wanted::new(Some(Filter::parse("udp").unwrap()), 10);
    graph.trace(Some(wanted.tracer(&bench.pool)));
    Rig { bench, graph, plan, traces }
}

#[test]
fn what_a_packet_passes_while_it_is_asked_for_is_reported() {
    let mut rig = rig_of(
        "FromDevice(in) -> short :: CheckLength(300) -> q :: Queue -> s :: RoundRobinSched;
         short [1] -> long :: Queue -> [1] s;
         s -> l :: CheckLength(100) -> p :: Shaper(1000) -> t :: ToDevice(out); l [1] -> d :: Discard",
    );
    let long = |bytes: usize| frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &vec![7; bytes - 34]);
    let frames = [long(60), long(200), long(400), long(61)];
    // It begins without a burst.
    rig.graph.poll(&mut rig.bench.round());
    rig.bench.now_ns += 20_000_000;
    rig.run(&frames);
    assert!(rig.reported().is_empty() && rig.bench.sent.frames.is_empty());
    // In a round the shaper lets 20 pass.
    rig.graph.poll(&mut rig.bench.round());
    let sent: Vec<usize> = rig.bench.sent.frames.iter().map(|frame| frame.1.len()).collect();
    assert_eq!(sent, [60, 61]);
    let mut reported = rig.reported();
    let way = |short: &str, queue: &str, rest: &[&str]| -> Vec<String> {
        let first = ["FromDevice@1 Output(0)", short].map(str::to_owned);
        let kept =
            [format!("{queue} Kept"), format!("{queue} Output(0)"), "s Output(0)".to_owned()];
        let rest = rest.iter().map(ToString::to_string);
        let all = first.into_iter().chain(kept).chain(rest);
        all.map(|step| format!("0 {step}")).collect()
    };
    let out = ["l Output(0)", "p Output(0)", "t Sent(1)"];
    let end = ["l Output(1)", "d Dropped(Discarded)"];
    let (short, long) = ("short Output(0)", "short Output(1)");
    let mut want = [
        way(short, "q", &out),
        way(short, "q", &out),
        way(short, "q", &end),
        way(long, "long", &end),
    ];
    reported.sort();
    want.sort();
    assert_eq!(reported, want);
    assert_eq!(rig.bench.pool.free(), rig.bench.pool.frames());
}

#[test]
fn inputs_are_those_that_a_packet_came_by() {
    let mut rig = rig_of(
        "FromDevice(in) -> c :: CheckLength(300) -> Queue -> [1] s :: PrioSched; Idle -> Queue -> s;
         c [1] -> Discard; s -> u :: Unqueue -> ToDevice(out)",
    );
    rig.run(&[udp("192.0.2.1", 64, 1)]);
    rig.graph.poll(&mut rig.bench.round());
    let trace = rig.traces.try_recv().unwrap();
    let at = |name: &str| rig.plan.find(name).unwrap();
    let inputs = |node| trace.steps.iter().filter(|s| s.node == node).map(|s| s.input).collect();
    let (scheduler, unqueue): (Vec<_>, Vec<_>) = (inputs(at("s")), inputs(at("u")));
    assert_eq!((scheduler, unqueue), (vec![1], vec![0]));
}

#[test]
fn a_copy_is_followed_before_its_packet_goes_on() {
    let mut rig = rig_of(
        "FromDevice(in) -> q :: Queue -> t :: PaintTee(0) -> u :: Unqueue -> o :: ToDevice(out);
         t [1] -> c :: Counter -> d :: ToDevice(copy)",
    );
    rig.run(&[udp("192.0.2.1", 64, 1)]);
    rig.graph.poll(&mut rig.bench.round());
    let way = [
        "0 FromDevice@1 Output(0)",
        "0 q Kept",
        "0 q Output(0)",
        "0 t Output(0) +1",
        "1 c Output(0)",
        "1 d Sent(2)",
        "0 u Output(0)",
        "0 o Sent(1)",
    ];
    assert_eq!(rig.reported(), [way]);
    assert_eq!(rig.bench.pool.free(), rig.bench.pool.frames());
}

#[test]
fn who_asks_may_keep_what_comes() {
    let mut rig = rig_of(
        "FromDevice(in) -> q :: Queue -> d :: DelayShaper(1ms) -> u :: Unqueue -> t :: ToDevice(out)",
    );
    rig.run(&[udp("192.0.2.1", 64, 1)]);
    rig.graph.poll(&mut rig.bench.round());
    assert!(rig.reported().is_empty(), "it is inside");
    rig.bench.now_ns += 2_000_000;
    rig.graph.poll(&mut rig.bench.round());
    let way = [
        "0 FromDevice@1 Output(0)",
        "0 q Kept",
        "0 q Output(0)",
        "0 d Kept",
        "0 d Output(0)",
        "0 u Output(0)",
        "0 t Sent(1)",
    ];
    assert_eq!(rig.reported(), [way]);
}
