//! A link-latency meter, as an element of its own: how long packets take from one router to the next, without a packet of
//! its own and although some are lost.
//!
//! Source: Kompella, Levchenko, Snoeren, Varghese, "Every Microsecond Counts: Tracking Fine-Grain Latencies with a Lossy
//! Difference Aggregator", SIGCOMM 2009. Both ends add the times of the packets that they see into banks, by a hash of
//! what does not change in transit. Where a bank counts the same number at both ends nothing of it was lost, and the
//! difference of its sums is the time that its packets took together.
//!
//!     cargo run -p fingerpost-packet --example link_latency

use std::sync::Arc;

use fingerpost_packet::ELEMENTS;
use fingerpost_packet::frame::Batch;
use fingerpost_packet::frame::counters::{Count, PerWorker};
use fingerpost_packet::graph::{Context, Element, ElementClass, Made};
use fingerpost_packet::handler::Handler;
use fingerpost_packet::language::ClassSpec;
use fingerpost_packet::testing::{Rig, World, frame_v4};

const BANKS: usize = 32;

/// The row that graphs know it by.
const LATENCY_METER: ElementClass = ElementClass {
    spec: ClassSpec::new("LatencyMeter", "1/1", "a/a", "x/x"),
    summary: "adds up when packets pass, in banks, for who compares both ends of a link",
    configure: |setup| {
        setup.args.finish()?;
        let banks = setup.keep::<PerWorker<Banks>>();
        let each = banks.clone();
        Ok(Made::new(move |instance| LatencyMeter(each.add(instance)))
            .handler(Handler::read("banks", move || shown(&banks))))
    },
};

#[derive(Default)]
struct Banks([(Count, Count); BANKS]);

/// Packets and the sum of their times in nanoseconds, a bank a line.
fn shown(banks: &PerWorker<Banks>) -> String {
    let line = |bank: usize| {
        let sum = |of: fn(&(Count, Count)) -> &Count| banks.sum(|own| of(&own.0[bank]).read());
        format!("{} {}\n", sum(|bank| &bank.0), sum(|bank| &bank.1))
    };
    (0..BANKS).map(line).collect()
}

struct LatencyMeter(Arc<Banks>);

impl Element for LatencyMeter {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        for i in 0..batch.len() {
            // Behind the Ethernet header, which the next router writes anew.
            let hash = hash(batch.bytes(i).get(14..).unwrap_or_default());
            let (packets, time_ns) = &self.0.0[usize::try_from(hash).unwrap_or(0) % BANKS];
            packets.add(1);
            time_ns.add(cx.now_ns);
        }
    }
}

/// FNV-1a, mixed once more: its last bytes reach few bits.
fn hash(bytes: &[u8]) -> u64 {
    let step = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    (sum ^ sum >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

/// Mean microseconds from one end to the other, how many packets that is of, and how many were lost.
fn compare(near: &str, far: &str) -> (f64, u64, u64) {
    let read = |text: &str| -> Vec<(u64, u64)> {
        let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).unwrap_or(0);
        let line = |line: &str| {
            let mut words = line.split(' ');
            (number(words.next()), number(words.next()))
        };
        text.lines().map(line).collect()
    };
    let (mut packets, mut time_ns, mut lost) = (0, 0_u64, 0);
    for ((sent, sent_ns), (came, came_ns)) in read(near).into_iter().zip(read(far)) {
        lost += sent - came;
        if sent == came {
            packets += sent;
            time_ns = time_ns.wrapping_add(came_ns.wrapping_sub(sent_ns));
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "a mean")]
    let mean = time_ns as f64 / packets.max(1) as f64 / 1e3;
    (mean, packets, lost)
}

/// Two routers and a link of 37 microseconds between them that loses every 200th packet.
fn measured() -> (f64, u64, u64) {
    let mut classes = ELEMENTS.to_vec();
    classes.push(LATENCY_METER);
    let classes = classes.leak();
    let text = "FromDevice(in) -> m :: LatencyMeter -> ToDevice(out)";
    let (mut near, mut far) =
        (Rig::of(&World::new(), text, classes), Rig::of(&World::new(), text, classes));
    for number in 0..1000_u64 {
        near.bench.now_ns += 5_000;
        let payload = number.to_be_bytes();
        let frame = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &payload);
        for (_, frame) in near.receive("in", &[&frame]) {
            if number % 200 != 199 {
                far.bench.now_ns = near.bench.now_ns + 37_000;
                far.receive("in", &[&frame]);
            }
        }
    }
    compare(&near.read("m.banks"), &far.read("m.banks"))
}

fn main() {
    let (mean, packets, lost) = measured();
    println!("{mean:.1} us a packet, by {packets} packets; {lost} were lost");
}

#[test]
fn a_graph_tells_of_it_as_of_any_class() {
    let classes = [ELEMENTS, &[LATENCY_METER]].concat().leak();
    let rig = Rig::of(&World::new(), "Idle -> LatencyMeter -> Discard", classes);
    assert!(rig.read("classes").lines().any(|class| class == "LatencyMeter"));
}

#[test]
fn the_latency_of_the_link_is_found_although_packets_are_lost() {
    let (mean, packets, lost) = measured();
    assert!((mean - 37.0).abs() < 0.001 && packets > 500, "{mean} us by {packets}");
    assert_eq!(lost, 5);
}
