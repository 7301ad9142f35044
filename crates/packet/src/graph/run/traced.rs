//! Running while packets are followed: the same as in `run/mod.rs`, with a look at what each element did.
//!
//! A packet that is followed is alone in its batch, so that what the element drops, sends and makes meanwhile is
//! this packet's doing. Packets that an element kept are recognized when it lets them go. Where packets are pulled,
//! each element between the keeper and the puller is seen as the answer comes down.

use std::cell::RefCell;

use super::{
    Away, Edge, Graph, MAX_ROUNDS, Node, Round, Task, Watch, Work, answer_emitted, context,
};
use crate::frame::counters::NodeCounters;
use crate::frame::{BATCH, Batch, Decision, DropReason, Meta, Packet, ROUNDS_SHIFT};
use crate::graph::plan::NodeId;
use crate::graph::trace::{At, Fate, Followed, Left, Tracer, Watched};
use crate::graph::{Context, Element, Inputs};

/// The tracer, for elements that work inside each other: one pulls, another answers.
type Shared<'t> = RefCell<&'t mut Tracer>;

/// What an element did besides labeling a batch, and emitting.
struct Deeds {
    /// Packets that it ended itself.
    ended: Vec<(u32, Fate)>,
    /// Packets that ports took of it.
    left: Vec<Left>,
    /// Number by which it explained itself.
    reason: u32,
}

/// Has an element do something, and sees what it does.
fn observe(tracer: &Shared<'_>, cx: &mut Context<'_>, act: impl FnOnce(&mut Context<'_>)) -> Deeds {
    let mut ended = Vec::new();
    let mut seen = Watched { inner: &mut *cx.transmit, tracer, left: Vec::new() };
    let mut inner = Context {
        now_ns: cx.now_ns,
        forwarding: cx.forwarding,
        counters: cx.counters,
        pool: cx.pool,
        flow_seed: cx.flow_seed,
        reason: 0,
        node: cx.node,
        ended: Some(&mut ended),
        emitted: &mut *cx.emitted,
        requests: &mut *cx.requests,
        transmit: &mut seen,
    };
    act(&mut inner);
    let reason = inner.reason;
    let left = seen.left;
    Deeds { ended, left, reason }
}

/// Where the outputs of an element lead.
#[derive(Clone, Copy)]
struct Edges<'a> {
    outputs: &'a [Option<Edge>],
    /// Output that was pulled.
    answer: Option<u16>,
}

/// What becomes of a packet that has this output.
fn onward(edges: Edges<'_>, output: u16, meta: Meta) -> Fate {
    match edges.outputs.get(usize::from(output)) {
        Some(Some(edge)) if edge.back && meta.flags >> ROUNDS_SHIFT >= MAX_ROUNDS => {
            Fate::Dropped(DropReason::LoopGuard)
        }
        Some(Some(_)) => Fate::Output(output),
        _ if edges.answer == Some(output) => Fate::Output(output),
        _ => Fate::Dropped(DropReason::Unwired),
    }
}

/// What became of packet `i` of a batch by its label, its bytes where they are still there, and what is known of it.
fn labeled(edges: Edges<'_>, batch: &Batch, i: usize) -> Option<(Fate, Meta)> {
    let meta = batch.meta()[i];
    match batch.decision(i) {
        Decision::Output(output) => Some((onward(edges, output, meta), meta)),
        Decision::Drop(reason) => Some((Fate::Dropped(reason), meta)),
        Decision::Taken => None,
    }
}

/// Has an element process a batch, and records it in the tracer.
fn process(
    tracer: &Shared<'_>,
    (element, at, edges): (&mut dyn Element, At, Edges<'_>),
    batch: &mut Batch,
    cx: &mut Context<'_>,
) {
    let alone = (batch.len() == 1).then(|| batch.frame_number(0));
    let followed = alone.and_then(|frame| tracer.borrow().find(frame));
    let before = batch.meta().first().copied().unwrap_or_default();
    let deeds = observe(tracer, cx, |cx| element.process(at.input, batch, cx));
    let tracer = &mut **tracer.borrow_mut();
    // First: what is made now is followed from here on.
    let emitted = &cx.emitted[..];
    tell_released(tracer, &|_| at, edges, followed.and(alone), (&deeds, emitted));
    if let (Some(of), Some(frame)) = (followed, alone) {
        tell_alone(tracer, (of, frame), at, edges, (batch, before), (&deeds, emitted));
    }
    tracer.hand_out();
}

/// Records the result of a packet that was received alone, and those of packets that the element made of it.
fn tell_alone(
    tracer: &mut Tracer,
    (of, number): (Followed, u32),
    at: At,
    edges: Edges<'_>,
    (batch, before): (&Batch, Meta),
    (deeds, all_emitted): (&Deeds, &[(u16, Packet)]),
) {
    let mut emitted = all_emitted.iter();
    let ended = deeds.ended.iter().find(|ended| ended.0 == number);
    if let Some((fate, meta)) = (!batch.is_empty()).then(|| labeled(edges, batch, 0)).flatten() {
        tracer.step(of, at, Some(batch.bytes(0)), meta, fate);
    } else if let Some(left) = deeds.left.iter().find(|left| left.number == number) {
        tracer.step(of, at, Some(&left.frame), left.meta, Fate::Sent(port(left.meta)));
    } else if let Some((_, fate)) = ended {
        tracer.step(of, at, None, before, *fate);
    } else if let Some((output, packet)) = emitted.find(|(_, p)| p.frame_number() == number) {
        let fate = onward(edges, *output, packet.meta);
        tracer.step(of, at, Some(packet.bytes()), packet.meta, fate);
    } else {
        tracer.step(of, at, None, before, Fate::Kept);
    }
    tracer.explain(of, deeds.reason);
    for (output, packet) in all_emitted {
        let made = packet.frame_number();
        // A frame that was just given back may have been taken for what was made.
        if (made == number && ended.is_none()) || (made != number && tracer.follows(made)) {
            continue;
        }
        if let Some(made) = tracer.made(of, made, packet.bytes(), packet.meta)
            && let fate @ Fate::Dropped(_) = onward(edges, *output, packet.meta)
        {
            tracer.step(made, at, None, packet.meta, fate);
        }
    }
}

/// Records packets that the element had kept, and that now left or were dropped. `place` is where one of them
/// entered, by its frame.
fn tell_released(
    tracer: &mut Tracer,
    place: &dyn Fn(u32) -> At,
    edges: Edges<'_>,
    alone: Option<u32>,
    (deeds, emitted): (&Deeds, &[(u16, Packet)]),
) {
    let other =
        |tracer: &Tracer, number| (alone != Some(number)).then(|| tracer.find(number)).flatten();
    for &(number, fate) in &deeds.ended {
        if let Some(of) = other(tracer, number) {
            tracer.step(of, place(number), None, Meta::default(), fate);
        }
    }
    for Left { number, frame, meta } in &deeds.left {
        if let Some(of) = other(tracer, *number) {
            tracer.step(of, place(*number), Some(frame), *meta, Fate::Sent(port(*meta)));
        }
    }
    for (output, packet) in emitted {
        let number = packet.frame_number();
        if let Some(of) = other(tracer, number) {
            let fate = onward(edges, *output, packet.meta);
            tracer.step(of, place(number), Some(packet.bytes()), packet.meta, fate);
        }
    }
}

/// Followed packets that an element pulled, each with its input.
#[derive(Default)]
struct Came(Vec<(u32, u16)>);

impl Came {
    /// Place where one of them entered; packets kept before entered long ago, by the first input most likely.
    fn at(&self, node: NodeId, number: u32) -> At {
        let found = self.0.iter().rfind(|came| came.0 == number);
        At { node, input: found.map_or(0, |came| came.1) }
    }

    /// Records those that the element keeps, which are all but those that left or were dropped.
    fn tell_kept(&self, tracer: &mut Tracer, node: NodeId, went_on: &dyn Fn(u32) -> bool) {
        for &(number, input) in &self.0 {
            if !went_on(number)
                && let Some(of) = tracer.find(number)
            {
                tracer.step(of, At { node, input }, None, Meta::default(), Fate::Kept);
            }
        }
    }
}

/// `Puller` of one node, with a record of what the pulled elements do.
struct TracedInputs<'a, 't> {
    at: usize,
    nodes: &'a mut [Node],
    counters: &'a [NodeCounters],
    work: &'a mut Work,
    tracer: &'a Shared<'t>,
    came: Came,
}

impl<'t> TracedInputs<'_, 't> {
    /// [`super::Puller::finish_pushed`] with the tracer.
    fn finish_pushed(&mut self, cx: &mut Context<'_>) {
        if self.work.ready.is_empty() {
            return;
        }
        let (counters, mut emitted, mut waiting) = (self.counters, Vec::new(), Vec::new());
        let cx = &mut cx.of_node(&counters[self.at]);
        cx.emitted = &mut emitted;
        let Self { nodes, work, tracer, .. } = self;
        work.stack_ready();
        while let Some(task) = work.stack.pop() {
            if nodes[usize::from(task.node)].pulls() {
                waiting.push(task);
            } else {
                step(task, nodes, counters, work, tracer, cx);
            }
        }
        work.ready.append(&mut waiting);
    }

    fn of(&mut self, at: usize) -> TracedInputs<'_, 't> {
        let Self { nodes, counters, work, tracer, .. } = self;
        TracedInputs { at, nodes, counters, work, tracer, came: Came::default() }
    }

    /// Counts what a pull at an input brought behind the first `before` packets, and notes which are followed.
    fn came(&mut self, input: u16, before: usize, into: &Batch) {
        let packets = into.len() - before;
        if packets > 0 {
            self.work.active = true;
            self.counters[self.at].batches.add(1);
            self.counters[self.at].packets.add(packets as u64);
        }
        for i in before..into.len() {
            let number = into.frame_number(i);
            if self.tracer.borrow().follows(number) {
                self.came.0.push((number, input));
            }
        }
    }
}

impl Inputs for TracedInputs<'_, '_> {
    fn pull(&mut self, input: u16, into: &mut Batch, cx: &mut Context<'_>) {
        let upstream = self.nodes[self.at].inputs.get(usize::from(input));
        let Some(Some(upstream)) = upstream.copied() else { return };
        let before = into.len();
        if into.room() == 0 {
            return;
        }
        let (at, tracer, counters) = (usize::from(upstream.node), self.tracer, self.counters);
        let mut emitted = Vec::new();
        let cx = &mut cx.of_node(&counters[at]);
        if let Some(relay) = &self.nodes[at].relay {
            // The element has no part in that, and is pulled from again within.
            let from = relay(upstream.output);
            self.of(at).pull(from, into, cx);
            return self.came(input, before, into);
        }
        let mut element = std::mem::replace(&mut self.nodes[at].element, Box::new(Away));
        match upstream.through {
            None => {
                cx.emitted = &mut emitted;
                let mut inputs = self.of(at);
                let deeds = observe(tracer, cx, |cx| {
                    element.pull(upstream.output, into, &mut inputs, cx);
                });
                let came = inputs.came;
                let tracer = &mut **tracer.borrow_mut();
                let edges =
                    Edges { outputs: &self.nodes[at].outputs, answer: Some(upstream.output) };
                let given = before..into.len();
                for i in given.clone() {
                    let number = into.frame_number(i);
                    if let Some(of) = tracer.find(number) {
                        let (place, meta) = (came.at(upstream.node, number), into.meta()[i]);
                        let fate = Fate::Output(upstream.output);
                        tracer.step(of, place, Some(into.bytes(i)), meta, fate);
                    }
                }
                let released = (&deeds, &cx.emitted[..]);
                // What is emitted is not what was asked for.
                let pushed = Edges { answer: None, ..edges };
                tell_released(tracer, &|n| came.at(upstream.node, n), pushed, None, released);
                came.tell_kept(tracer, upstream.node, &|number| {
                    given.clone().any(|i| into.frame_number(i) == number)
                        || cx.emitted.iter().any(|(_, packet)| packet.frame_number() == number)
                });
                tracer.hand_out();
                self.work.active |= !cx.emitted.is_empty();
                let (node, counts) = (&self.nodes[at], &counters[at]);
                self.work.emitted(node, cx.emitted, counts, cx.counters);
            }
            Some(_) if !element.pulls(upstream.output) => {}
            Some(input) => {
                let mut batch = self.work.batch();
                batch.set_limit(into.room());
                self.of(at).pull(input, &mut batch, cx);
                batch.set_limit(BATCH);
                // What it emits stays apart.
                cx.emitted = &mut emitted;
                let parts = self.work.parts(batch, &tracer.borrow());
                for mut batch in parts {
                    let (node, counts) = (&self.nodes[at], &counters[at]);
                    let edges = Edges { outputs: &node.outputs, answer: Some(upstream.output) };
                    let place = At { node: upstream.node, input };
                    process(tracer, (&mut *element, place, edges), &mut batch, cx);
                    let answer = Some((upstream.output, &mut *into));
                    self.work.scatter(node, batch, answer, counts, cx.counters);
                    answer_emitted(upstream.output, cx.emitted, into);
                    self.work.emitted(node, cx.emitted, counts, cx.counters);
                }
            }
        }
        self.nodes[at].element = element;
        self.finish_pushed(cx);
        self.came(input, before, into);
    }

    fn room(&self) -> usize {
        Node::room(self.nodes, self.at)
    }
}

/// Has the element of a task process it, or a part of it that is followed alone, and puts what comes of it onto the stack.
fn step<'c>(
    task: Task,
    nodes: &mut [Node],
    counters: &'c [NodeCounters],
    work: &mut Work,
    tracer: &Shared<'_>,
    cx: &mut Context<'c>,
) {
    let Task { node: number, input, mut batch } = work.split(task, &tracer.borrow());
    let (node, counts) = (&mut nodes[usize::from(number)], &counters[usize::from(number)]);
    counts.batches.add(1);
    counts.packets.add(batch.len() as u64);
    cx.node = Some(counts);
    let edges = Edges { outputs: &node.outputs, answer: None };
    let at = At { node: number, input };
    process(tracer, (&mut *node.element, at, edges), &mut batch, cx);
    work.regroup(node, batch, counts, cx.counters);
    work.emitted(node, cx.emitted, counts, cx.counters);
    work.stack_ready();
}

/// The port that a note for transmit names.
fn port(meta: Meta) -> u16 {
    meta.note.egress_port()
}

/// Records the result of packets that an element has in its turn: of those that it pulled, and of
/// those that it had kept.
fn tell_polled(
    tracer: &mut Tracer,
    (node, edges): (NodeId, Edges<'_>),
    batch: &Batch,
    came: &Came,
    (deeds, emitted): (&Deeds, &[(u16, Packet)]),
) {
    for i in 0..batch.len() {
        let number = batch.frame_number(i);
        if let Some((fate, meta)) = labeled(edges, batch, i)
            && let Some(of) = tracer.find(number)
        {
            tracer.step(of, came.at(node, number), Some(batch.bytes(i)), meta, fate);
        }
    }
    tell_released(tracer, &|n| came.at(node, n), edges, None, (deeds, emitted));
    came.tell_kept(tracer, node, &|number| {
        let here = |i| batch.frame_number(i) == number && batch.decision(i) != Decision::Taken;
        (0..batch.len()).any(here) || emitted.iter().any(|p| p.1.frame_number() == number)
    });
    tracer.hand_out();
}

impl Graph {
    /// [`Graph::finish`] with the tracer.
    #[cold]
    pub(super) fn finish_traced(&mut self, round: &mut Round<'_>) {
        let Self { nodes, counters, pool, work, emitted, clock, tracer, .. } = self;
        let Some(tracer) = tracer else { return };
        let tracer = Shared::new(tracer);
        let mut watch = Watch::new(*clock);
        let cx = &mut context(pool, emitted, round);
        while let Some(task) = work.stack.pop() {
            let number = usize::from(task.node);
            step(task, nodes, counters, work, &tracer, cx);
            watch.lap(&counters[number]);
        }
    }

    /// [`Graph::poll`] with the tracer.
    #[cold]
    pub(super) fn poll_traced(&mut self, round: &mut Round<'_>) -> bool {
        self.work.active = false;
        for turn in 0..self.polled.len() {
            let at = self.polled[turn];
            let mut watch = Watch::new(self.clock);
            let Self { nodes, counters, pool, work, emitted, tracer, .. } = self;
            let Some(tracer) = tracer else { break };
            let tracer = &Shared::new(tracer);
            let mut batch = work.batch();
            let mut element = std::mem::replace(&mut nodes[at].element, Box::new(Away));
            let cx = &mut context(pool, emitted, round);
            cx.node = Some(&counters[at]);
            let mut inputs =
                TracedInputs { at, nodes, counters, work, tracer, came: Came::default() };
            let deeds = observe(tracer, cx, |cx| element.poll(&mut batch, &mut inputs, cx));
            let came = inputs.came;
            nodes[at].element = element;
            work.active |= !batch.is_empty() || !cx.emitted.is_empty();
            let number = u16::try_from(at).expect("nodes are numbered in 16 bits");
            let edges = Edges { outputs: &nodes[at].outputs, answer: None };
            let deeds = (&deeds, &cx.emitted[..]);
            tell_polled(&mut tracer.borrow_mut(), (number, edges), &batch, &came, deeds);
            let counts = &counters[at];
            work.regroup(&nodes[at], batch, counts, cx.counters);
            work.emitted(&nodes[at], cx.emitted, counts, cx.counters);
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
        let Task { node, input, batch } = task;
        let mut parts = self.parts(batch, tracer).into_iter();
        let first = parts.next().expect("a batch is a part at least");
        self.stack.extend(parts.rev().map(|batch| Task { node, input, batch }));
        Task { node, input, batch: first }
    }

    /// All parts of a batch, in order.
    fn parts(&mut self, mut batch: Box<Batch>, tracer: &Tracer) -> Vec<Box<Batch>> {
        let alone = |batch: &Batch, i: usize| tracer.follows(batch.frame_number(i));
        if batch.len() < 2 || (0..batch.len()).all(|i| !alone(&batch, i)) {
            return vec![batch];
        }
        let (mut parts, mut ends): (Vec<Box<Batch>>, bool) = (Vec::new(), true);
        for i in 0..batch.len() {
            let one = alone(&batch, i);
            if one || ends {
                parts.push(self.batch());
            }
            ends = one;
            batch.move_to(i, parts.last_mut().expect("one was just pushed, or before"));
        }
        batch.clear();
        self.store.push(batch);
        parts
    }
}
