//! `LinkUnqueue(LATENCY, BANDWIDTH)` pulls packets and hands them on as a link does: each takes its time to be sent,
//! and then the latency.
//!
//! Source: Click's `LinkUnqueue`. A packet is pulled when the one before it is sent. It takes as long as
//! it was, by its annotation, and has the time at which it arrives. Each worker has a link of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::element::click::only::annotations::Annotations;
use crate::element::click::only::clock;
use crate::element::support::resets::Resets;
use crate::element::support::setting::value;
use crate::element::support::time::nanoseconds;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{BATCH, Batch, DropReason, FLAG_GENERATED, PacketQueue};
use crate::graph::{Context, Element, ElementClass, Held, Inputs, Made};
use crate::handler::Handler;
use crate::language::{Bandwidth, ClassSpec};

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("LinkUnqueue", "1/1", "l/h", "x/y"),
    summary: "pulls packets and hands them on as a link does",
    configure: |setup| {
        let latency = setup.args.positional::<Duration>("LATENCY");
        let bandwidth = setup.args.positional::<Bandwidth>("BANDWIDTH");
        setup.args.finish()?;
        let link = Link::default();
        link.latency_ns.store(nanoseconds(latency?), Relaxed);
        link.bytes_per_s.store(bandwidth?.bytes_per_s.max(1), Relaxed);
        let link = Arc::new(link);
        let resets = Arc::new(Resets::new());
        let sizes = setup.keep::<PerWorker<Count>>();
        let made = Made::new({
            let (link, sizes, resets) = (link.clone(), sizes.clone(), resets.clone());
            move |instance| LinkUnqueue {
                link: link.clone(),
                packets: PacketQueue::with_room(BATCH),
                due_ns: VecDeque::with_capacity(BATCH),
                free_ns: 0,
                held: Held::default(),
                size: sizes.add(instance),
                resets: resets.instance(),
            }
        });
        let [read_latency, read_rate, set_latency, set_rate] = [(); 4].map(|()| link.clone());
        let (reset, emptied) = (resets.request(), sizes.clone());
        Ok(made
            .command("reset", move || {
                reset();
                // Who asks at once sees it.
                emptied.each(|size| size.set(0));
            })
            .holds(MOST)
            .counter("size", &sizes)
            .handler(Handler::read("latency", move || {
                format!("{:?}", Duration::from_nanos(read_latency.latency_ns.load(Relaxed)))
            }))
            .handler(Handler::read("bandwidth", move || {
                format!("{}Bps", read_rate.bytes_per_s.load(Relaxed))
            }))
            .handler(Handler::write("latency", move |text| {
                set_latency.latency_ns.store(nanoseconds(value(text)?), Relaxed);
                Ok(())
            }))
            .handler(Handler::write("bandwidth", move |text| {
                let rate = value::<Bandwidth>(text)?.bytes_per_s.max(1);
                set_rate.bytes_per_s.store(rate, Relaxed);
                Ok(())
            })))
    },
};

/// Packets on the link at most.
const MOST: usize = 4096;

/// What handlers change. Relaxed everywhere: nothing else depends on it.
#[derive(Default)]
struct Link {
    latency_ns: AtomicU64,
    bytes_per_s: AtomicU64,
}

struct LinkUnqueue {
    link: Arc<Link>,
    packets: PacketQueue,
    /// When each of them arrives.
    due_ns: VecDeque<u64>,
    /// When the last one is sent.
    free_ns: u64,
    held: Held,
    size: Arc<Count>,
    resets: Resets,
}

impl LinkUnqueue {
    fn empty(&mut self, reason: DropReason, cx: &mut Context<'_>) {
        while let Some(packet) = self.packets.pop() {
            cx.drop_packet(packet, reason);
        }
        (self.held, self.free_ns) = (Held::default(), 0);
        self.due_ns.clear();
        self.size.set(0);
    }
}

impl Element for LinkUnqueue {
    fn poll(&mut self, batch: &mut Batch, inputs: &mut dyn Inputs, cx: &mut Context<'_>) {
        if self.resets.came() {
            self.empty(DropReason::Discarded, cx);
        }
        let latency_ns = self.link.latency_ns.load(Relaxed);
        let bytes_per_s = self.link.bytes_per_s.load(Relaxed);
        while self.free_ns <= cx.now_ns && self.packets.len() < MOST {
            batch.set_limit(1);
            inputs.pull(0, batch, cx);
            batch.set_limit(BATCH);
            if batch.is_empty() {
                // What comes later begins then.
                self.free_ns = cx.now_ns;
                break;
            }
            let mut annotations = Annotations::of(batch, 0);
            let bytes = batch.frame_len(0) as u64 + u64::from(annotations.extra_length);
            let send_ns = bytes * 1_000_000_000 / bytes_per_s;
            // Turns are some time apart: what was missed in between is made up for.
            self.free_ns = self.free_ns.max(cx.now_ns.saturating_sub(TURN_NS)) + send_ns.max(1);
            let due_ns = self.free_ns.saturating_add(latency_ns);
            annotations.timestamp_ns = clock::time_of_day(due_ns);
            annotations.set(batch, 0);
            self.due_ns.push_back(due_ns);
            self.held.add(batch.meta()[0].flags & FLAG_GENERATED != 0);
            self.packets.take(batch, 0);
            batch.close_up(|_, _| {});
        }
        let due = self.due_ns.iter().take_while(|&&due| due <= cx.now_ns).count().min(BATCH);
        self.due_ns.drain(..due);
        batch.set_limit(due);
        self.packets.give(batch);
        batch.set_limit(BATCH);
        for meta in batch.meta() {
            self.held.remove(meta.flags & FLAG_GENERATED != 0);
        }
        self.size.set(self.packets.len() as u64);
    }

    fn keeps_time(&self) -> bool {
        !self.packets.is_empty()
    }

    fn due_ns(&self) -> Option<u64> {
        self.due_ns.front().copied()
    }

    fn held(&self) -> Held {
        self.held
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.empty(DropReason::Shutdown, cx);
    }
}

/// Longest time between two turns that the link does not stand idle in.
const TURN_NS: u64 = 2_000_000;

#[cfg(test)]
mod tests {
    use crate::testing::{Rig, World};

    #[test]
    fn packets_take_their_time_and_the_latency() {
        let text = "FromDevice(a) -> Queue -> u :: LinkUnqueue(20ms, 100kBps) -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        rig.bench.now_ns = 1_000_000_000;
        rig.receive("a", &[&[7; 1000][..]; 3]);
        let mut times = Vec::new();
        for ms in 0..80 {
            times.extend(rig.poll().iter().map(|_| ms));
            rig.bench.now_ns += 1_000_000;
        }
        // Ten milliseconds each, less what a turn makes up for.
        assert_eq!(times.len(), 3);
        assert!((28..=30).contains(&times[0]) && (48..=50).contains(&times[2]), "{times:?}");
        rig.receive("a", &[&[7; 1000][..]]);
        rig.poll();
        assert_eq!(rig.read("u.size"), "1");
        rig.write("u.reset", "");
        assert_eq!(rig.read("u.size"), "0");
        rig.write("u.latency", "0");
        rig.receive("a", &[&[7; 1000][..]]);
        (0..15).for_each(|_| {
            times.extend(rig.poll().iter().map(|_| 0));
            rig.bench.now_ns += 1_000_000;
        });
        assert_eq!(
            (times.len(), rig.read("u.size"), rig.read("u.bandwidth")),
            (4, "0".into(), "100000Bps".into())
        );
    }

    #[test]
    fn packets_have_the_time_at_which_they_arrive() {
        crate::element::click::only::console::collect();
        // 40 bytes and 60 that were not captured, a second each 100: 1 s, and 10 s of latency; then another second.
        let text = "FromIPSummaryDump(DATA \"!data timestamp ip_src ip_len\n1 1.0.0.1 100\n2 1.0.0.2 100\")
            -> Queue -> LinkUnqueue(10s, 100Bps) -> ToIPSummaryDump(-, HEADER false, FIELDS timestamp)";
        let mut rig = Rig::new(&World::new(), text);
        let start = crate::element::click::only::clock::time_of_day(rig.bench.now_ns);
        for _ in 0..130 {
            rig.poll();
            rig.bench.now_ns += 100_000_000;
        }
        let out = crate::element::click::only::console::collected().out;
        let times = out.lines().map(|line| line.parse::<f64>().expect("a time"));
        #[allow(clippy::cast_precision_loss, reason = "of seconds")]
        let after: Vec<_> = times.map(|time| time - start as f64 / 1e9).collect();
        assert!(after.len() == 2 && (10.9..11.3).contains(&after[0]), "{out}");
        assert!((0.9..1.1).contains(&(after[1] - after[0])), "{out}");
    }
}
