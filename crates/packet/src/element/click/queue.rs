//! Keeps packets until they are pulled: where push ends and pull begins.
//!
//! Source: Click's queues. Packets that find one full are dropped; `FrontDropQueue` drops the oldest instead. What
//! comes by the second input of `MixedQueue` goes to its front, and pushes the last one out of a full one. Where the
//! second output is used, packets that have no room leave by it instead of being dropped. `Queue`, `FullNoteQueue`,
//! `QuickNoteQueue` and `ThreadSafeQueue` are the same here: full ones hold sources before them back. `NotifierQueue`,
//! `MixedQueue`, `FrontDropQueue` and `SimpleQueue` do not. Whoever pulls from an empty one sleeps, from any: a worker
//! does so whose elements all have nothing to do. Each worker has a queue of its own, of the whole capacity. `reset`
//! empties it and `reset_counts` forgets its highest length and its drops, each when a worker next comes to it.
//! `CPUQueue` is such a queue of 128 packets, whose outputs all give from it.

use std::any::Any;
use std::sync::Arc;

use crate::element::support::resets::Resets;
use crate::element::support::setting::Setting;
use crate::frame::counters::{Count, PerWorker};
use crate::frame::{Batch, DropReason, FLAG_GENERATED, PacketQueue};
use crate::graph::{Context, Element, ElementClass, Exit, Held, Inputs, LiveArg, Made, Setup};
use crate::handler::Handler;
use crate::language::{ClassSpec, ConfigError};

pub(crate) const CLASS: ElementClass = noted("Queue");
pub(crate) const FULL_NOTE: ElementClass = noted("FullNoteQueue");
pub(crate) const QUICK_NOTE: ElementClass = noted("QuickNoteQueue");
pub(crate) const THREAD_SAFE: ElementClass = noted("ThreadSafeQueue");
pub(crate) const NOTIFIER: ElementClass = unnoted("NotifierQueue");
pub(crate) const SIMPLE: ElementClass = unnoted("SimpleQueue");

pub(crate) const FRONT_DROP: ElementClass = ElementClass {
    spec: spec("FrontDropQueue", "1/1-2"),
    summary: "keeps packets until they are pulled; drops the oldest",
    configure: |setup| configure(setup, Discipline::Front),
};

pub(crate) const MIXED: ElementClass = ElementClass {
    spec: spec("MixedQueue", "2/1-2"),
    summary: "keeps packets until they are pulled, those of its second input before others",
    configure: |setup| configure(setup, Discipline::Tail),
};

#[cfg(feature = "click")]
pub(crate) const CPU: ElementClass = ElementClass {
    spec: ClassSpec::new("CPUQueue", "1/1-", "h/l", "x/y"),
    summary: "keeps packets until they are pulled, each worker its own",
    configure: |setup| {
        // No output is for packets that find it full.
        let full = Exit::drops(DropReason::QueueFull);
        made(setup, Discipline::Tail, 128, full)
    },
};

const fn spec(name: &'static str, ports: &'static str) -> ClassSpec {
    ClassSpec::new(name, ports, "h/lh", "x/y").outputs(&["out", "full"])
}

/// Class of queues that hold sources back.
const fn noted(name: &'static str) -> ElementClass {
    ElementClass {
        spec: spec(name, "1/1-2"),
        summary: "keeps packets until they are pulled; drops what does not fit",
        configure: |setup| Ok(configure(setup, Discipline::Tail)?.holds_back()),
    }
}

/// Class of queues that do not.
const fn unnoted(name: &'static str) -> ElementClass {
    ElementClass {
        spec: spec(name, "1/1-2"),
        summary: "a Queue that does not hold sources back",
        configure: |setup| configure(setup, Discipline::Tail),
    }
}

/// Packet that ends where there is no room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Discipline {
    /// The one that came.
    Tail,
    /// The oldest.
    Front,
}

fn configure(setup: &mut Setup<'_>, discipline: Discipline) -> Result<Made, ConfigError> {
    let full = setup.exit(1, DropReason::QueueFull);
    // Click's default.
    made(setup, discipline, 1000, full)
}

/// A queue of this capacity, where none is given; packets without room leave by `full`.
fn made(
    setup: &mut Setup<'_>,
    discipline: Discipline,
    usual: u32,
    full: Exit,
) -> Result<Made, ConfigError> {
    let capacity = setup.args.optional("CAPACITY");
    setup.args.finish()?;
    let usual = capacity?.unwrap_or(usual);
    let capacity = Setting::new(usual);
    let counts = setup.keep::<PerWorker<Counts>>();
    #[cfg(feature = "click")]
    {
        let counts = counts.clone();
        let length = setup.shared::<super::only::nearest::Length>(setup.number());
        length.show(move || counts.sum(|counts| counts.length.read()));
    }
    let read = |name, value: fn(&Counts) -> u64| {
        let counts = counts.clone();
        Handler::read(name, move || counts.sum(value).to_string())
    };
    let (resets, recounts) = (Arc::new(Resets::new()), Arc::new(Resets::new()));
    let made = Made::new({
        let (capacity, counts) = (capacity.clone(), counts.clone());
        let (resets, recounts) = (resets.clone(), recounts.clone());
        move |instance| Queue {
            discipline,
            resets: resets.instance(),
            recounts: recounts.instance(),
            ..Queue::new(capacity.clone(), counts.add(instance), full)
        }
    });
    let made = made
        .holds(usual as usize)
        .handler(Handler::read("length", {
            let (counts, capacity) = (counts.clone(), capacity.clone());
            // Packets beyond a new capacity are dropped in the queue's next turn.
            move || counts.sum(|counts| counts.length.read().min(capacity.get().into())).to_string()
        }))
        .handler(read("highwater_length", |counts| counts.highest.read()))
        .handler(read("drops", |counts| counts.drops.read()));
    #[cfg(feature = "click")]
    let made = made.handler(Handler::read("notifier_state", {
        let (counts, capacity) = (counts.clone(), capacity.clone());
        move || {
            // Each worker has a queue of this capacity.
            let (mut nonempty, mut least) = (false, None::<u64>);
            counts.each(|counts| {
                let length = counts.length.read();
                nonempty |= length > 0;
                least = Some(least.map_or(length, |least| least.min(length)));
            });
            let nonfull = least.unwrap_or(0) < capacity.get().into();
            format!("nonempty {nonempty}\nnonfull {nonfull}\n")
        }
    }));
    let made = recounts.handled(resets.handled(made, "reset"), "reset_counts");
    Ok(capacity
        .handled(made, "capacity")
        .live(&[LiveArg { handler: "capacity", keyword: "CAPACITY" }]))
}

/// Packets for which there is room from the start; more room is made when it is needed.
const FIRST_ROOM: usize = 1024;

#[derive(Default)]
struct Counts {
    length: Count,
    highest: Count,
    drops: Count,
}

struct Queue {
    discipline: Discipline,
    /// Where packets go that have no room.
    full: Exit,
    packets: PacketQueue,
    /// Requests to drop all packets, and to count anew.
    resets: Resets,
    recounts: Resets,
    capacity: Setting<u32>,
    counts: Arc<Counts>,
    held: Held,
}

impl Queue {
    fn new(capacity: Setting<u32>, counts: Arc<Counts>, full: Exit) -> Self {
        let packets = PacketQueue::with_room((capacity.get() as usize).min(FIRST_ROOM));
        let (resets, recounts) = (Resets::new(), Resets::new());
        let (discipline, held) = (Discipline::Tail, Held::default());
        Self { discipline, full, packets, resets, recounts, capacity, counts, held }
    }

    /// Carries out requests of handlers.
    #[inline]
    fn follow(&mut self, cx: &mut Context<'_>) {
        if self.resets.came() {
            self.empty(DropReason::Discarded, cx);
        }
        // The capacity was made smaller.
        while self.packets.len() > self.capacity.get() as usize {
            let last = match self.discipline {
                Discipline::Tail => self.packets.pop_back(),
                Discipline::Front => self.packets.pop(),
            };
            let Some(packet) = last else { break };
            self.held.remove(packet.meta.flags & FLAG_GENERATED != 0);
            cx.drop_packet(packet, DropReason::QueueFull);
        }
        if self.recounts.came() {
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

    /// Takes all packets, and ends others that have no room then.
    fn push_out(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let capacity = self.capacity.get() as usize;
        for i in 0..batch.len() {
            if self.packets.len() >= capacity {
                let pushed = match input {
                    0 => self.packets.pop(),
                    _ => self.packets.pop_back(),
                };
                self.counts.drops.add(1);
                let Some(packet) = pushed else {
                    self.full.take(batch, i);
                    continue;
                };
                self.held.remove(packet.meta.flags & FLAG_GENERATED != 0);
                self.full.emit(packet, cx);
            }
            self.held.add(batch.meta()[i].flags & FLAG_GENERATED != 0);
            match input {
                0 => self.packets.take(batch, i),
                _ => self.packets.take_front(batch, i),
            }
        }
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
    fn room(&self) -> usize {
        (self.capacity.get() as usize).saturating_sub(self.packets.len())
    }

    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        self.follow(cx);
        if input > 0 || self.discipline == Discipline::Front {
            return self.push_out(input, batch, cx);
        }
        let room = (self.capacity.get() as usize).saturating_sub(self.packets.len());
        let fit = room.min(batch.len());
        for i in fit..batch.len() {
            self.full.take(batch, i);
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
    fn a_smaller_capacity_drops_the_last() {
        for (class, kept) in [("Queue", [1, 2]), ("FrontDropQueue", [4, 5])] {
            let text = format!(
                "FromDevice(a) -> q :: {class}(9) -> u :: Unqueue(ACTIVE false) -> ToDevice(b)"
            );
            let mut rig = Rig::new(&World::new(), &text);
            rig.receive("a", &[&[1], &[2], &[3], &[4], &[5]]);
            rig.write("q.capacity", "2");
            assert_eq!((rig.read("q.length"), rig.read("q.drops")), ("2".into(), "0".into()));
            rig.write("u.active", "true");
            let left: Vec<_> = rig.poll().iter().map(|(_, frame)| frame[0]).collect();
            assert_eq!(left, kept, "{class}");
        }
    }

    #[test]
    fn disciplines() {
        let text = "FromDevice(a) -> q :: MixedQueue(3) -> s :: Shaper(1) -> ToDevice(x); FromDevice(b) -> [1] q;
            FromDevice(c) -> p :: FrontDropQueue(2) -> t :: Shaper(1) -> ToDevice(y)";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[1], &[2]]);
        rig.receive("b", &[&[3], &[4]]);
        rig.receive("a", &[&[5]]);
        rig.receive("c", &[&[6], &[7], &[8]]);
        let mut came = Vec::new();
        for _ in 0..9 {
            rig.bench.now_ns += 1_000_000_000;
            came.extend(rig.poll().into_iter().map(|(_, frame)| frame[0]));
        }
        assert_eq!(came, [4, 7, 3, 8, 1], "5 finds it full, 2 is pushed out by 4, 6 by 8");
        assert_eq!((rig.read("q.drops"), rig.read("p.drops")), ("2".into(), "1".into()));
        assert_eq!(rig.dropped(DropReason::QueueFull), 3);
    }

    #[test]
    fn what_has_no_room_may_leave_by_the_second_output() {
        for (class, left) in
            [("Queue", [3, 4]), ("SimpleQueue", [3, 4]), ("FrontDropQueue", [1, 2])]
        {
            let text = format!(
                "FromDevice(a) -> q :: {class}(2) -> u :: Unqueue(ACTIVE false) -> ToDevice(b); q [full] -> ToDevice(c)"
            );
            let mut rig = Rig::new(&World::new(), &text);
            let sent = rig.receive("a", &[&[1], &[2], &[3], &[4]]);
            let sent: Vec<_> = sent.iter().map(|(to, frame)| (&**to, frame[0])).collect();
            assert_eq!(sent, left.map(|byte| ("c", byte)), "{class}");
            assert_eq!((rig.read("q.drops"), rig.dropped(DropReason::QueueFull)), ("2".into(), 0));
        }
    }

    #[cfg(feature = "click")]
    #[test]
    fn all_outputs_of_a_queue_of_a_worker_give_from_it() {
        let text = "FromDevice(a) -> q :: CPUQueue(3) -> Unqueue(ACTIVE false) -> ToDevice(x);
            q [1] -> Unqueue -> ToDevice(y); q [2] -> Unqueue(ACTIVE false) -> ToDevice(z); p :: CPUQueue; Idle -> p -> Idle";
        let mut rig = Rig::new(&World::new(), text);
        rig.receive("a", &[&[1], &[2], &[3], &[4]]);
        let sent: Vec<_> = (0..4).flat_map(|_| rig.poll()).collect();
        assert_eq!(sent, [1, 2, 3].map(|byte| ("y".to_owned(), vec![byte])));
        let shown = ["q.capacity", "q.drops", "p.capacity"].map(|name| rig.read(name));
        assert_eq!(
            (shown, rig.dropped(DropReason::QueueFull)),
            (["3", "1", "128"].map(String::from), 1)
        );
    }

    #[test]
    fn it_is_emptied_and_counts_anew() {
        let text = "FromDevice(a) -> q :: Queue(3) -> s :: Shaper(1) -> ToDevice(b)";
        let mut rig = Rig::new(&World::new(), text);
        let shown = |rig: &Rig| {
            ["length", "highwater_length", "drops"].map(|name| rig.read(&format!("q.{name}")))
        };
        rig.receive("a", &[&[1], &[2], &[3], &[4], &[5]]);
        #[cfg(feature = "click")]
        {
            assert_eq!(rig.read("q.notifier_state"), "nonempty true\nnonfull false\n");
            let _other = crate::graph::Graph::new(&rig.plan, &rig.bench.pool);
            assert_eq!(rig.read("q.notifier_state"), "nonempty true\nnonfull true\n");
        }
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
