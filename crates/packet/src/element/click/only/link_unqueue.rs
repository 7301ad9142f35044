//! `LinkUnqueue(LATENCY, BANDWIDTH)` pulls packets and hands them on as a link does: each takes its time to be sent,
//! and then the latency.
//!
//! Source: Click's `LinkUnqueue`. A packet is pulled when the one before it is sent. Each worker has a link of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::element::support::resets::Resets;
use crate::element::support::setting::value;
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
        Ok(resets
            .handled(made, "reset")
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

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

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
            let send_ns = batch.frame_len(0) as u64 * 1_000_000_000 / bytes_per_s;
            // Turns are some time apart: what was missed in between is made up for.
            self.free_ns = self.free_ns.max(cx.now_ns.saturating_sub(TURN_NS)) + send_ns.max(1);
            self.due_ns.push_back(self.free_ns.saturating_add(latency_ns));
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
}
