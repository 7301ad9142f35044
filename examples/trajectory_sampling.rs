//! Trajectory sampling, as an element of its own: which path packets take through a network, without state for any of them.
//!
//! Source: Duffield, Grossglauser, "Trajectory Sampling for Direct Traffic Observation", SIGCOMM 2000. Each router hashes
//! what does not change in transit. All sample the same packets, since all look at the same hash, and report a label,
//! another part of it; who gathers the labels sees the trajectories, and where they end.
//!
//!     cargo run -p fingerpost-packet --example trajectory_sampling

use std::collections::BTreeMap;
use std::sync::Arc;

use fingerpost_packet::ELEMENTS;
use fingerpost_packet::frame::Batch;
use fingerpost_packet::frame::counters::{Count, PerWorker};
use fingerpost_packet::graph::{Context, Element, ElementClass, Made};
use fingerpost_packet::handler::Handler;
use fingerpost_packet::language::ClassSpec;
use fingerpost_packet::testing::{Rig, World, frame_v4};

/// Labels that are kept until they are read: the latest.
const KEPT: u64 = 1024;

/// The row that graphs know it by.
const TRAJECTORY_SAMPLER: ElementClass = ElementClass {
    spec: ClassSpec::new("TrajectorySampler", "1/1", "a/a", "x/x"),
    summary: "notes the labels of one packet in ONE_IN, the same packets in every router",
    configure: |setup| {
        let one_in = setup.args.positional::<u32>("ONE_IN");
        setup.args.finish()?;
        let one_in = one_in?.max(1);
        let labels = setup.keep::<PerWorker<Labels>>();
        let each = labels.clone();
        Ok(Made::new(move |instance| TrajectorySampler { one_in, labels: each.add(instance) })
            .handler(Handler::read("labels", move || shown(&labels))))
    },
};

/// The latest labels of one worker.
struct Labels {
    ring: Box<[Count]>,
    written: Count,
}

impl Default for Labels {
    fn default() -> Self {
        Self { ring: (0..KEPT).map(|_| Count::default()).collect(), written: Count::default() }
    }
}

/// The labels that are there, one a line.
fn shown(labels: &PerWorker<Labels>) -> String {
    let text = std::cell::RefCell::new(String::new());
    labels.sum(|own| {
        let kept = own.written.read().min(KEPT);
        for label in own.ring.iter().take(usize::try_from(kept).unwrap_or(usize::MAX)) {
            *text.borrow_mut() += &format!("{:08x}\n", label.read());
        }
        0
    });
    text.into_inner()
}

struct TrajectorySampler {
    one_in: u32,
    labels: Arc<Labels>,
}

impl Element for TrajectorySampler {
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
        for i in 0..batch.len() {
            let at = usize::from(batch.meta()[i].network);
            let hash = invariant(batch.bytes(i).get(at..).unwrap_or_default());
            let [choice, label] = [hash & 0xffff_ffff, hash >> 32];
            if choice.is_multiple_of(self.one_in.into()) {
                let place = self.labels.written.read() % KEPT;
                self.labels.ring[usize::try_from(place).unwrap_or(0)].set(label);
                self.labels.written.add(1);
            }
        }
    }
}

/// A hash of an IPv4 packet that no router changes: without service class, TTL and checksum, and with what follows the
/// header, as far as 16 bytes of it.
fn invariant(packet: &[u8]) -> u64 {
    let kept = |at: usize| !matches!(at, 1 | 8 | 10 | 11);
    let bytes = packet.iter().take(36).enumerate().filter(|(at, _)| kept(*at));
    let sum = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |sum, (_, &byte)| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The low bits of such a sum are poor.
    (sum ^ sum >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A line of three routers, of which the second loses what is for 192.0.2.3: for each label the routers that saw it.
fn trajectories() -> BTreeMap<String, String> {
    let mut classes = ELEMENTS.to_vec();
    classes.push(TRAJECTORY_SAMPLER);
    let classes = classes.leak();
    let router = |routes: &str| {
        let text = format!(
            "FromDevice(in) -> Strip(14) -> CheckIPHeader -> t :: TrajectorySampler(10) -> DecIPTTL
             -> rt :: RadixIPLookup({routes}) -> Unstrip(14) -> ToDevice(out); rt[1] -> Discard"
        );
        Rig::of(&World::new(), &text, classes)
    };
    let through = "192.0.2.0/24 0, 198.51.100.0/24 1";
    let mut line = [router(through), router("192.0.2.0/24 0, 192.0.2.3/32 1"), router(through)];
    for number in 0..1000_u32 {
        let dst = format!("192.0.2.{}", number % 5);
        let mut frames = vec![frame_v4("10.0.0.9", &dst, 64, 17, &number.to_be_bytes())];
        for router in &mut line {
            let next = frames.iter().flat_map(|frame| router.receive("in", &[frame]));
            frames = next.map(|(_, frame)| frame).collect();
        }
    }
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for (router, name) in line.iter().zip(["a", "b", "c"]) {
        for label in router.read("t.labels").lines() {
            *seen.entry(label.to_owned()).or_default() += name;
        }
    }
    seen
}

fn main() {
    let seen = trajectories();
    for (label, way) in seen.iter().take(10) {
        println!("{label} {way}");
    }
    let lost = seen.values().filter(|way| *way != "abc").count();
    println!("{} of 1000 packets sampled, {lost} of them do not arrive", seen.len());
}

#[test]
fn all_routers_sample_the_same_packets_and_losses_show_where() {
    let seen = trajectories();
    assert!((50..200).contains(&seen.len()), "one in ten or so: {}", seen.len());
    // Forwarded all the way, or lost in the second router; a fifth of them are.
    assert!(seen.values().all(|way| way == "abc" || way == "ab"), "{seen:?}");
    let lost = seen.values().filter(|way| *way == "ab").count();
    assert!(lost * 10 > seen.len() && lost * 3 < seen.len(), "{lost} of {}", seen.len());
}
