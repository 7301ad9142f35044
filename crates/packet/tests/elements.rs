//! Elements wired by configurations: what they do together, and their handlers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use fingerpost_packet::testing::{Rig, World};
use fingerpost_packet::{DropReason, ELEMENTS, Plan};

fn rig(text: &str) -> Rig {
    Rig::new(&World::new(), text)
}

/// The first bytes of frames, and who sent them.
fn seen(sent: &[(String, Vec<u8>)]) -> String {
    let each = sent.iter().map(|(device, frame)| format!("{device}:{}", frame[0]));
    each.collect::<Vec<_>>().join(" ")
}

fn errors(text: &str) -> String {
    Plan::read("a.click", text, ELEMENTS).unwrap_err().to_string()
}

#[test]
fn what_is_pushed_goes_through_at_once() {
    let mut rig = rig("FromDevice(a) -> c :: Counter -> ToDevice(b)");
    assert_eq!(seen(&rig.receive("a", &[&[1; 60], &[2; 60], &[3; 90]])), "b:1 b:2 b:3");
    assert_eq!((rig.read("c.count"), rig.read("c.byte_count")), ("3".into(), "210".into()));
    rig.write("c.reset", "");
    assert_eq!(rig.read("c.count"), "0");
    let counts = rig.graph.counters();
    let seen: Vec<u64> = counts.iter().map(|count| count.packets.read()).collect();
    assert_eq!(seen, [3, 3, 3]);
}

#[test]
fn a_queue_keeps_packets_until_they_are_asked_for() {
    let mut rig = rig("FromDevice(a) -> q :: Queue(3) -> c :: Counter -> ToDevice(b)");
    assert_eq!(rig.receive("a", &[&[1], &[2]]).len(), 0);
    assert_eq!((rig.read("q.length"), rig.graph.held().received), ("2".into(), 2));
    assert_eq!(rig.receive("a", &[&[3], &[4]]).len(), 0);
    assert_eq!((rig.read("q.drops"), rig.dropped(DropReason::QueueFull)), ("1".into(), 1));
    assert_eq!(seen(&rig.poll()), "b:1 b:2 b:3");
    assert_eq!((rig.read("q.length"), rig.read("q.highwater_length")), ("0".into(), "3".into()));
    assert_eq!(rig.read("c.count"), "3");
    rig.write("q.capacity", "1");
    assert_eq!(
        rig.handlers.write("q.capacity", "x").unwrap_err().to_string(),
        "`x` is no whole number"
    );
    rig.receive("a", &[&[5], &[6]]);
    assert_eq!((seen(&rig.poll()), rig.read("q.capacity")), ("b:5".into(), "1".into()));
    rig.receive("a", &[&[7]]);
    rig.graph.stop(&mut rig.bench.round());
    assert_eq!((rig.dropped(DropReason::Shutdown), rig.poll().len()), (1, 0));
}

#[test]
fn schedulers_take_turns_and_keep_order() {
    let inputs =
        "FromDevice(a) -> qa :: Queue; FromDevice(b) -> qb :: Queue; FromDevice(c) -> qc :: Queue;";
    let fill = |rig: &mut Rig| {
        rig.receive("a", &[&[1], &[2], &[3]]);
        rig.receive("c", &[&[11], &[12]]);
        rig.receive("b", &[&[21]]);
    };
    let mut turns = rig(&format!(
        "{inputs} s :: RoundRobinSched -> c :: Counter -> ToDevice(o); qa, qb, qc => s"
    ));
    fill(&mut turns);
    assert_eq!(seen(&turns.poll()), "o:1 o:21 o:11 o:2 o:12 o:3");
    let mut first =
        rig(&format!("{inputs} s :: PrioSched -> u :: Unqueue(4) -> ToDevice(o); qa, qb, qc => s"));
    fill(&mut first);
    assert_eq!(seen(&first.poll()), "o:1 o:2 o:3 o:21");
    assert_eq!(seen(&first.poll()), "o:11 o:12");
}

#[test]
fn copies_and_sources_count_as_our_own() {
    let mut rig = rig("FromDevice(a) -> t :: Tee(3); t => ToDevice(b), Discard, ToDevice(c)");
    // The packet itself goes by the first output, copies behind it.
    assert_eq!(seen(&rig.receive("a", &[&[1], &[2]])), "b:1 b:2 c:1 c:2");
    assert_eq!(rig.bench.counters.generated.read(), 4);
    assert_eq!(rig.read("t.failed"), "0");

    let mut rig = Rig::new(
        &World::new(),
        "s :: InfiniteSource(\\<07 08>, LIMIT 5, BURST 3, LENGTH 60) -> c :: Counter -> ToDevice(a)",
    );
    assert_eq!(seen(&rig.poll()), "a:7 a:7 a:7");
    rig.write("s.active", "false");
    assert_eq!((rig.poll().len(), rig.read("s.active")), (0, "false".into()));
    rig.write("s.active", "true");
    let sent = rig.poll();
    assert_eq!((sent.len(), sent[0].1.len(), &sent[0].1[..3]), (2, 60, &[7, 8, 7][..]));
    assert_eq!((rig.poll().len(), rig.read("s.count")), (0, "5".into()));
}

#[test]
fn discard_takes_what_is_pushed_and_what_waits() {
    let mut rig = rig(
        "FromDevice(a) -> d :: Discard; FromDevice(b) -> Queue -> e :: Discard; Idle -> Discard",
    );
    rig.receive("a", &[&[1], &[2]]);
    rig.receive("b", &[&[3]]);
    assert_eq!((rig.read("d.count"), rig.read("e.count")), ("2".into(), "0".into()));
    rig.poll();
    assert_eq!((rig.read("e.count"), rig.dropped(DropReason::Discarded)), ("1".into(), 3));
}

#[test]
fn idle_asks_for_nothing() {
    let mut rig = rig("FromDevice(a) -> q :: Queue -> Idle");
    rig.receive("a", &[&[1], &[2]]);
    rig.poll();
    assert_eq!((rig.read("q.length"), rig.dropped(DropReason::Discarded)), ("2".into(), 0));
}

#[test]
fn what_cannot_be_run_is_reported() {
    let reported = errors("FromDevice(a) -> Discard; b :: FromDevice(a) -> Discard");
    assert!(reported.contains("`b`: `FromDevice@1` receives the same packets"), "{reported}");
    let reported = errors("FromDevice -> Queue(x) -> Unqueue(BURST 2, 3) -> Discard");
    assert!(reported.contains("argument DEVNAME is missing"), "{reported}");
    assert!(reported.contains("CAPACITY: `x` is no whole number"), "{reported}");
    assert!(reported.contains("too many arguments"), "{reported}");
    let reported =
        errors("a :: RoundRobinSched -> b :: RoundRobinSched -> [1] a; Idle -> Queue -> a");
    assert!(reported.contains("pulls packets in a circle"), "{reported}");
    let reported = errors(
        "FromDevice(a, METHOD pcap) -> ToDevice(a, METHOD memory); FromDevice(b, METHOD x) -> Discard",
    );
    assert!(reported.contains("a is driven by pcap elsewhere, by memory here"), "{reported}");
    assert!(reported.contains("METHOD: no driver `x`; there are memory, pcap\n"), "{reported}");
    let reported = errors("Idle -> t :: Tee(3) -> Discard");
    assert!(reported.contains("3 outputs announced, 1 connected"), "{reported}");
}

#[test]
fn captures_are_read_and_written() {
    let folder = std::env::temp_dir().join(format!("fingerpost-elements-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let mut first = rig(&format!("FromDevice(a) -> d :: ToDump({}) -> Discard", path("one.pcap")));
    first.receive("a", &[&[1; 60], &[2; 70], &[3; 80]]);
    assert_eq!((first.read("d.count"), first.read("d.error")), ("3".into(), String::new()));
    drop(first);
    let (one, two) = (path("one.pcap"), path("two.pcap"));
    let text = format!("f :: FromDump({one}, BURST 2, STOP true) -> Queue -> d :: ToDump({two})");
    let mut second = rig(&text);
    let c = |rig: &Rig| {
        let counters = &rig.bench.counters;
        (counters.packets_in.read(), counters.packets_out.read(), rig.plan.is_stopped())
    };
    second.poll();
    assert_eq!(c(&second), (2, 2, false));
    second.poll();
    assert_eq!(c(&second), (3, 3, true));
    assert_eq!((second.read("f.count"), second.read("d.count")), ("3".into(), "3".into()));
    drop(second);
    assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&two).unwrap());
    std::fs::remove_dir_all(folder).unwrap();
    let reported = errors(&format!("FromDump({one}) -> Discard; Idle -> ToDump"));
    assert!(
        reported.contains("open: No such file") && reported.contains("FILENAME is missing"),
        "{reported}"
    );
}

#[test]
fn a_new_configuration_goes_on_where_the_old_one_ends() {
    let mut rig = rig("FromDevice(a) -> c :: Counter -> q :: Queue(10) -> ToDevice(b)");
    rig.receive("a", &[&[1], &[2], &[3]]);
    // Another graph around a counter and a queue of the same names; devices in another order.
    rig.replace(
        "i :: Idle -> ToDevice(b); q :: Queue(20) -> u :: Unqueue -> d :: Counter -> [0] x :: Tee;
        x -> ToDevice(c); FromDevice(a) -> e :: Counter -> c :: Counter -> q",
    )
    .unwrap();
    assert_eq!(
        (rig.read("c.count"), rig.read("q.length"), rig.read("e.count")),
        ("3".into(), "3".into(), "0".into())
    );
    assert_eq!(rig.graph.held().received, 3);
    rig.receive("a", &[&[4]]);
    assert_eq!(seen(&rig.poll()), "c:1 c:2 c:3 c:4");
    assert_eq!(
        (rig.read("c.count"), rig.read("d.count"), rig.read("q.capacity")),
        ("4".into(), "4".into(), "20".into())
    );
    let devices: Vec<_> = rig.plan.devices().iter().map(|d| (d.name.as_str(), d.used)).collect();
    assert_eq!(devices, [("a", true), ("b", true), ("c", true)]);

    // What has no heir ends, and is counted.
    rig.receive("a", &[&[5], &[6]]);
    let wrong = rig.replace("FromDevice(a) -> q :: Queue(x) -> ToDevice(c)").unwrap_err();
    assert!(wrong.to_string().contains("no whole number"));
    assert_eq!(rig.read("q.length"), "2", "a refused configuration changes nothing");
    rig.replace("FromDevice(a) -> q :: Counter -> c :: Counter -> ToDevice(a)").unwrap();
    assert_eq!((rig.dropped(DropReason::Shutdown), rig.graph.held().total()), (2, 0));
    assert_eq!((rig.read("q.count"), rig.read("c.count")), ("0".into(), "6".into()));
    assert_eq!(seen(&rig.receive("a", &[&[7]])), "a:7");
    let unused = rig.plan.devices().iter().filter(|d| !d.used).count();
    assert_eq!(unused, 2);
}

#[test]
fn counts_of_replaced_instances_are_used_again() {
    let mut rig = rig("FromDevice(a) -> c :: Counter -> d :: Discard");
    for n in 1..100 {
        rig.receive("a", &[&[1]]);
        rig.replace("FromDevice(a) -> c :: Counter -> d :: Discard").unwrap();
        assert_eq!((rig.read("c.count"), rig.read("d.count")), (n.to_string(), n.to_string()));
        let node = rig.plan.find("c").unwrap();
        assert_eq!(rig.graph.counters()[usize::from(node)].packets.read(), n);
    }
}

#[test]
fn packets_that_wait_keep_their_gateway_and_a_queue_its_mark() {
    let before = "FromDevice(a) -> Strip(14) -> CheckIPHeader -> rt :: StaticIPLookup(192.0.2.0/24 10.0.0.9 0)
        -> q :: Queue -> Idle -> Discard";
    let after = "rt :: StaticIPLookup(203.0.113.0/24 10.0.0.77 0, 192.0.2.0/24 10.0.0.9 0); Idle -> rt -> q :: Queue
        -> Unqueue -> arp :: ARPQuerier(10.0.0.1/24, 2:0:0:0:0:1) -> ToDevice(b); Idle -> [1] arp";
    let mut rig = rig(before);
    let frame = fingerpost_packet::testing::frame_v4("10.0.0.7", "192.0.2.1", 9, 17, &[0; 30]);
    rig.receive("a", &[&frame]);
    assert_eq!((rig.read("q.length"), rig.read("q.highwater_length")), ("1".into(), "1".into()));
    rig.replace(after).unwrap();
    assert_eq!((rig.read("q.length"), rig.read("q.highwater_length")), ("1".into(), "1".into()));
    let asked = rig.poll();
    assert_eq!((asked.len(), &asked[0].1[38..42]), (1, &[10, 0, 0, 9][..]));
}

#[test]
fn outputs_and_lengths_have_bounds() {
    let reported = errors(
        "InfiniteSource -> Paint(0) -> rt :: StaticIPLookup(0.0.0.0/0 0); rt [65280] -> Discard",
    );
    assert!(reported.contains("no port 65280: at most 65279"), "{reported}");
    let reported = errors("InfiniteSource(LENGTH 18446744073709551615) -> Discard");
    assert!(reported.contains("packets have at most 1792 bytes"), "{reported}");
}
