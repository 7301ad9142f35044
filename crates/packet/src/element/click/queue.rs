//! Keeps packets until they are pulled: where push ends and pull begins.
//!
//! Source: Click's `Queue`. Packets that find it full are dropped. Each worker has a queue of its own, of the
//! whole capacity. `reset` empties it and `reset_counts` forgets its highest length and its drops, each when a worker
//! next comes to it.

use std::any::Any;
use std::sync::Arc;

use crate::element::support::setting::Setting;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{Batch, DropReason, FLAG_GENERATED, PacketQueue};
use crate::graph::{Context, Element, ElementClass, Held, Inputs, Made};
use crate::handler::Handler;
use crate::language::ClassSpec;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("Queue", "1/1", "h/l", "x/y"),
    summary: "keeps packets until they are pulled; drops what does not fit",
    configure: |setup| {
        let capacity = setup.args.optional("CAPACITY");
        setup.args.finish()?;
        // Click's default.
        let usual = capacity?.unwrap_or(1000);
        let capacity = Setting::new(usual);
        let counts = setup.keep::<PerWorker<Counts>>();
        let read = |name, value: fn(&Counts) -> u64| {
            let counts = counts.clone();
            Handler::read(name, move || counts.sum(value).to_string())
        };
        let resets = Resets { packets: Setting::new(0), counts: Setting::new(0) };
        let made = Made::new({
            let (capacity, counts, resets) = (capacity.clone(), counts.clone(), resets.clone());
            move |instance| Queue::new(capacity.clone(), counts.add(instance), resets.clone())
        });
        let once_more = |name, times: Setting<u32>| {
            Handler::write(name, move |_| {
                times.change(|times| times.wrapping_add(1));
                Ok(())
            })
        };
        let made = made
            .holds(usual as usize)
            .handler(read("length", |counts| counts.length.read()))
            .handler(read("highwater_length", |counts| counts.highest.read()))
            .handler(read("drops", |counts| counts.drops.read()))
            .handler(once_more("reset", resets.packets))
            .handler(once_more("reset_counts", resets.counts));
        Ok(capacity.handled(made, "capacity"))
    },
};

/// Packets for which there is room from the start; more room is made when it is needed.
const FIRST_ROOM: usize = 1024;

#[derive(Default)]
struct Counts {
    length: Count,
    highest: Count,
    drops: Count,
}

/// Number of requests by handlers.
#[derive(Clone)]
struct Resets {
    packets: Setting<u32>,
    counts: Setting<u32>,
}

struct Queue {
    packets: PacketQueue,
    resets: Resets,
    /// How often of each it was done.
    done: [u32; 2],
    capacity: Setting<u32>,
    counts: Arc<Counts>,
    held: Held,
}

impl Queue {
    fn new(capacity: Setting<u32>, counts: Arc<Counts>, resets: Resets) -> Self {
        let packets = PacketQueue::with_room((capacity.get() as usize).min(FIRST_ROOM));
        let done = [resets.packets.get(), resets.counts.get()];
        Self { packets, resets, done, capacity, counts, held: Held::default() }
    }

    /// Carries out requests of handlers.
    #[inline]
    fn follow(&mut self, cx: &mut Context<'_>) {
        let resets = [self.resets.packets.get(), self.resets.counts.get()];
        if resets != self.done {
            self.reset(resets, cx);
        }
    }

    #[cold]
    fn reset(&mut self, resets: [u32; 2], cx: &mut Context<'_>) {
        let done = std::mem::replace(&mut self.done, resets);
        if resets[0] != done[0] {
            self.empty(DropReason::Discarded, cx);
        }
        if resets[1] != done[1] {
            self.counts.highest.set(self.packets.len() as u64);
            self.counts.drops.set(0);
        }
    }

    fn empty(&mut self, reason: DropReason, cx: &mut Context<'_>) {
        while let Some(packet) = self.packets.pop() {
            cx.drop_packet(packet, reason);
        }
        self.held = Held::default();
        self.count_length();
    }

    fn count_length(&self) {
        let length = self.packets.len() as u64;
        self.counts.length.set(length);
        if length > self.counts.highest.read() {
            self.counts.highest.set(length);
        }
    }
}

impl Element for Queue {
    fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        self.follow(cx);
        let room = (self.capacity.get() as usize).saturating_sub(self.packets.len());
        let fit = room.min(batch.len());
        for i in fit..batch.len() {
            batch.discard(i, DropReason::QueueFull);
        }
        self.counts.drops.add((batch.len() - fit) as u64);
        for i in 0..fit {
            self.held.add(batch.meta()[i].flags & FLAG_GENERATED != 0);
            self.packets.take(batch, i);
        }
        self.count_length();
    }

    fn pull(&mut self, _: u16, into: &mut Batch, _: &mut dyn Inputs, cx: &mut Context<'_>) {
        self.follow(cx);
        let before = into.len();
        self.packets.give(into);
        for meta in &into.meta()[before..] {
            self.held.remove(meta.flags & FLAG_GENERATED != 0);
        }
        self.count_length();
    }

    fn held(&self) -> Held {
        self.held
    }

    fn hand_over(&mut self) -> Option<Box<dyn Any + Send>> {
        let packets = std::mem::replace(&mut self.packets, PacketQueue::with_room(0));
        let held = std::mem::take(&mut self.held);
        let highest = self.counts.highest.read();
        self.counts.highest.set(0);
        self.count_length();
        Some(Box::new((packets, held, highest)))
    }

    fn take_over(&mut self, state: Box<dyn Any + Send>) {
        if let Ok(state) = state.downcast::<(PacketQueue, Held, u64)>() {
            let highest;
            (self.packets, self.held, highest) = *state;
            self.counts.highest.set(highest);
            self.count_length();
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.empty(DropReason::Shutdown, cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, World};

    #[test]
    fn it_is_emptied_and_counts_anew() {
        let text = "FromDevice(a) -> q :: Queue(3) -> s :: Shaper(1) -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        let shown = |rig: &Rig| {
            ["length", "highwater_length", "drops"].map(|name| rig.read(&format!("q.{name}")))
        };
        rig.receive("a", &[&[1], &[2], &[3], &[4], &[5]]);
        assert_eq!((rig.poll().len(), shown(&rig)), (1, ["2", "3", "2"].map(String::from)));
        rig.write("q.reset_counts", "");
        rig.bench.now_ns += 1_000_000_000;
        assert_eq!((rig.poll().len(), shown(&rig)), (1, ["1", "2", "0"].map(String::from)));
        rig.write("q.reset", "");
        rig.bench.now_ns += 1_000_000_000;
        assert_eq!((rig.poll().len(), shown(&rig)), (0, ["0", "2", "0"].map(String::from)));
        assert_eq!(rig.dropped(DropReason::Discarded), 1);
        rig.receive("a", &[&[6]]);
        assert_eq!(rig.poll()[0].1, [6]);
    }
}
