//! Running while packets are followed: the same as in `run.rs`, with a look at what each element did.
//!
//! A packet that is followed is alone in its batch, so that what the element drops, sends and makes meanwhile is
//! this packet's doing. Packets that an element kept are recognized when it lets them go.

use super::{Graph, MAX_ROUNDS, Node, Puller, Round, Task, Watch, Work};
use crate::buf::{Batch, Decision, Meta, Packet, Pool, ROUNDS_SHIFT};
use crate::counters::NodeCounters;
use crate::drops::DropReason;
use crate::element::Context;
use crate::trace::{At, Fate, Followed, Left, Tracer, Watched};

/// What an element did besides labeling a batch.
struct Deeds<'a> {
    /// Packets that it ended itself.
    ended: Vec<(u32, DropReason)>,
    /// Packets that ports took of it.
    left: Vec<Left>,
    emitted: &'a [(u16, Packet)],
}

/// Has an element do something, and sees what it does.
fn observe<'a>(
    tracer: &Tracer,
    (pool, emitted): (&Pool, &'a mut Vec<(u16, Packet)>),
    node: &NodeCounters,
    round: &mut Round<'_>,
    act: impl FnOnce(&mut Context<'_>),
) -> Deeds<'a> {
    let mut ended = Vec::new();
    let mut seen = Watched { inner: &mut *round.transmit, tracer, left: Vec::new() };
    act(&mut Context {
        now_ns: round.now_ns,
        forwarding: round.forwarding,
        counters: round.counters,
        pool,
        flow_seed: round.flow_seed,
        node: Some(node),
        ended: Some(&mut ended),
        emitted,
        asks: round.asks,
        transmit: &mut seen,
    });
    let left = seen.left;
    Deeds { ended, left, emitted }
}

/// What becomes of a packet that has this output.
fn onward(node: &Node, output: u16, meta: Meta) -> Fate {
    match node.outputs.get(usize::from(output)) {
        Some(Some(edge)) if edge.back && meta.flags >> ROUNDS_SHIFT >= MAX_ROUNDS => {
            Fate::Dropped(DropReason::LoopGuard)
        }
        Some(Some(_)) => Fate::Output(output),
        _ => Fate::Dropped(DropReason::Unwired),
    }
}

/// What became of packet `i` of a batch by its label, its bytes where they are still there, and what is known of it.
fn labeled(node: &Node, batch: &Batch, i: usize) -> Option<(Fate, Meta)> {
    let meta = batch.meta()[i];
    match batch.decision(i) {
        Decision::Output(output) => Some((onward(node, output, meta), meta)),
        Decision::Drop(reason) => Some((Fate::Dropped(reason), meta)),
        Decision::Taken => None,
    }
}

/// Tells the tracer what became of a packet that came in alone, and of those that the element made of it.
fn tell_alone(
    tracer: &mut Tracer,
    (of, number): (Followed, u32),
    at: At,
    node: &Node,
    (batch, before): (&Batch, Meta),
    deeds: &Deeds<'_>,
) {
    let mut emitted = deeds.emitted.iter();
    let ended = deeds.ended.iter().find(|ended| ended.0 == number);
    if let Some((fate, meta)) = (!batch.is_empty()).then(|| labeled(node, batch, 0)).flatten() {
        tracer.step(of, at, Some(batch.bytes(0)), meta, fate);
    } else if let Some(left) = deeds.left.iter().find(|left| left.number == number) {
        tracer.step(of, at, Some(&left.frame), left.meta, Fate::Sent(port(left.meta)));
    } else if let Some((_, reason)) = ended {
        tracer.step(of, at, None, before, Fate::Dropped(*reason));
    } else if let Some((output, packet)) = emitted.find(|(_, p)| p.frame_number() == number) {
        let fate = onward(node, *output, packet.meta);
        tracer.step(of, at, Some(packet.bytes()), packet.meta, fate);
    } else {
        tracer.step(of, at, None, before, Fate::Kept);
    }
    for (output, packet) in deeds.emitted {
        let made = packet.frame_number();
        // A frame that was just given back may have been taken for what was made.
        if (made == number && ended.is_none()) || (made != number && tracer.follows(made)) {
            continue;
        }
        if let Some(made) = tracer.made(of, made, packet.bytes(), packet.meta)
            && let fate @ Fate::Dropped(_) = onward(node, *output, packet.meta)
        {
            tracer.step(made, at, None, packet.meta, fate);
        }
    }
}

/// Tells the tracer of packets that the element had kept, and that now went on or ended.
fn tell_released(tracer: &mut Tracer, at: At, node: &Node, alone: Option<u32>, deeds: &Deeds<'_>) {
    let other =
        |tracer: &Tracer, number| (alone != Some(number)).then(|| tracer.find(number)).flatten();
    for (number, reason) in &deeds.ended {
        if let Some(of) = other(tracer, *number) {
            tracer.step(of, at, None, Meta::default(), Fate::Dropped(*reason));
        }
    }
    for left in &deeds.left {
        if let Some(of) = other(tracer, left.number) {
            tracer.step(of, at, Some(&left.frame), left.meta, Fate::Sent(port(left.meta)));
        }
    }
    for (output, packet) in deeds.emitted {
        if let Some(of) = other(tracer, packet.frame_number()) {
            let fate = onward(node, *output, packet.meta);
            tracer.step(of, at, Some(packet.bytes()), packet.meta, fate);
        }
    }
}

/// The port that a note for transmit names.
#[allow(clippy::cast_possible_truncation, reason = "a note for transmit is a port number")]
fn port(meta: Meta) -> u16 {
    meta.note as u16
}

impl Graph {
    /// As [`Graph::finish`].
    #[cold]
    pub(super) fn finish_traced(&mut self, round: &mut Round<'_>) {
        let Self { nodes, counters, pool, work, emitted, clock, tracer, .. } = self;
        let Some(tracer) = tracer else { return };
        let mut watch = Watch::new(*clock);
        while let Some(task) = work.stack.pop() {
            let Task { node: number, input, mut batch } = work.split(task, tracer);
            let (node, counts) = (&mut nodes[usize::from(number)], &counters[usize::from(number)]);
            counts.batches.add(1);
            counts.packets.add(batch.len() as u64);
            let alone = (batch.len() == 1).then(|| batch.frame_number(0));
            let followed = alone.and_then(|frame| tracer.find(frame));
            let before = batch.meta().first().copied().unwrap_or_default();
            let deeds = observe(tracer, (pool, emitted), counts, round, |cx| {
                node.element.process(input, &mut batch, cx);
            });
            let at = At { node: number, input };
            // First: what is made now is followed from here on.
            tell_released(tracer, at, node, followed.and(alone), &deeds);
            if let (Some(of), Some(frame)) = (followed, alone) {
                tell_alone(tracer, (of, frame), at, node, (&batch, before), &deeds);
            }
            tracer.hand_out();
            work.regroup(node, batch, counts, round.counters);
            work.emitted(node, emitted, counts, round.counters);
            work.stack_ready();
            watch.lap(counts);
        }
    }

    /// As [`Graph::poll`].
    #[cold]
    pub(super) fn poll_traced(&mut self, round: &mut Round<'_>) -> bool {
        self.work.active = false;
        for turn in 0..self.polled.len() {
            let at = self.polled[turn];
            let mut watch = Watch::new(self.clock);
            let Self { nodes, counters, pool, work, emitted, tracer, .. } = self;
            let Some(tracer) = tracer else { break };
            let mut batch = work.batch();
            let mut element = std::mem::replace(&mut nodes[at].element, Box::new(super::Away));
            let deeds = observe(tracer, (pool, emitted), &counters[at], round, |cx| {
                element.poll(&mut batch, &mut Puller { at, nodes, counters, work }, cx);
            });
            nodes[at].element = element;
            work.active |= !batch.is_empty() || !deeds.emitted.is_empty();
            let number = u16::try_from(at).expect("nodes are numbered in 16 bits");
            let (place, node) = (At { node: number, input: 0 }, &nodes[at]);
            for i in 0..batch.len() {
                if let Some((fate, meta)) = labeled(node, &batch, i)
                    && let Some(of) = tracer.find(batch.frame_number(i))
                {
                    tracer.step(of, place, Some(batch.bytes(i)), meta, fate);
                }
            }
            tell_released(tracer, place, node, None, &deeds);
            tracer.hand_out();
            let counts = &counters[at];
            work.regroup(node, batch, counts, round.counters);
            work.emitted(node, emitted, counts, round.counters);
            watch.lap(counts);
            if !work.ready.is_empty() {
                work.stack_ready();
                self.finish(round);
            }
        }
        self.work.active
    }
}

impl Work {
    /// Makes of a task as many as are needed for each packet that is followed to be alone; the first of them.
    fn split(&mut self, task: Task, tracer: &Tracer) -> Task {
        let Task { node, input, mut batch } = task;
        let alone = |batch: &Batch, i: usize| tracer.follows(batch.frame_number(i));
        if batch.len() < 2 || (0..batch.len()).all(|i| !alone(&batch, i)) {
            return Task { node, input, batch };
        }
        let (mut parts, mut ends): (Vec<Task>, bool) = (Vec::new(), true);
        for i in 0..batch.len() {
            let one = alone(&batch, i);
            if one || ends {
                parts.push(Task { node, input, batch: self.batch() });
            }
            ends = one;
            let part = parts.last_mut().expect("one was just pushed, or before");
            batch.move_to(i, &mut part.batch);
        }
        batch.free_rest();
        self.store.push(batch);
        self.stack.extend(parts.into_iter().rev());
        self.stack.pop().expect("a batch of two or more has parts")
    }
}
