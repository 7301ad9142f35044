//! Keeps packets until they are asked for: where push ends and pull begins.
//!
//! Source: Click's `Queue`. Packets that find it full are dropped. Each worker has a queue of its own, of the
//! whole capacity.

use std::any::Any;
use std::sync::Arc;

use super::setting::Setting;
use super::{Context, Element, ElementClass, Held, Inputs, Made};
use crate::buf::{Batch, FLAG_GENERATED, PacketQueue};
use crate::counters::{Count, PerWorker};
use crate::drops::DropReason;
use crate::graph::ClassSpec;
use crate::handler::Handler;

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec {
        name: "Queue",
        ports: "1/1",
        processing: "h/l",
        flow: "x/y",
        output_names: &[],
    },
    summary: "keeps packets until they are asked for; drops what does not fit",
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
        let made = Made::new({
            let (capacity, counts) = (capacity.clone(), counts.clone());
            move || Queue::new(capacity.clone(), counts.add())
        });
        let made = made
            .holds(usual as usize)
            .handler(read("length", |counts| counts.length.read()))
            .handler(read("highwater_length", |counts| counts.highest.read()))
            .handler(read("drops", |counts| counts.drops.read()));
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

struct Queue {
    packets: PacketQueue,
    capacity: Setting<u32>,
    counts: Arc<Counts>,
    held: Held,
}

impl Queue {
    fn new(capacity: Setting<u32>, counts: Arc<Counts>) -> Self {
        let packets = PacketQueue::with_room((capacity.get() as usize).min(FIRST_ROOM));
        Self { packets, capacity, counts, held: Held::default() }
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
    fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
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

    fn pull(&mut self, _: u16, into: &mut Batch, _: &mut dyn Inputs, _: &mut Context<'_>) {
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
        while let Some(packet) = self.packets.pop() {
            cx.drop_packet(packet, DropReason::Shutdown);
        }
        self.held = Held::default();
        self.count_length();
    }
}
