//! Runs a plan: one instance of every element, one thread.
//!
//! Depth first: what an element lets through is finished before the next batch begins.
//! When all packets of a batch agree on an output, the batch itself goes there and nothing moves;
//! otherwise they are scattered by output, in order. Packets that an element emits follow those it
//! let through. Batches come from a store that grows to what was needed once, so that nothing is
//! allocated on the path after that.
//!
//! Where packets are pulled, the pull goes up the graph to an element that answers it, a queue or a scheduler;
//! those between process what comes. What they send to pushing outputs is finished before the answer proceeds, as in
//! Click, where a copy is pushed before its packet is returned.
//!
//! Packets that travel an edge closing a cycle count a round; after [`MAX_ROUNDS`] they are dropped.

mod traced;

use std::sync::Arc;

use fingerpost_lpm::simd::Ticks;
use fingerpost_route::{Forwarding, ResolveRequest};

use super::plan::{Edge, NodeId, Plan, Upstream};
use super::setup::Relay;
use super::{Context, Element, Held, Inputs, Transmit};
use crate::frame::counters::{Instance, NodeCounters, WorkerCounters};
use crate::frame::{BATCH, Batch, Decision, DropReason, Meta, Packet, Pool, ROUNDS_SHIFT};
use crate::graph::trace::Tracer;
use crate::language::Role;

/// Rounds that a packet may make inside the router.
pub const MAX_ROUNDS: u8 = 8;

/// Input of what its port received, for an element that has inputs besides.
pub const RECEIVED: u16 = u16::MAX;

/// Batches that a graph makes at its start.
const FIRST_BATCHES: usize = 16;

/// What the elements may use in one round of a worker.
pub struct Round<'a> {
    /// Time of the round, in nanoseconds of the monotonic clock.
    pub now_ns: u64,
    /// Routes, next hops, adjacencies and ports, pinned for this round.
    pub forwarding: &'a Forwarding,
    /// The worker's counters.
    pub counters: &'a WorkerCounters,
    /// Seed of the flow hash.
    pub flow_seed: u64,
    /// Resolve requests to the control side gather here.
    pub requests: &'a mut Vec<ResolveRequest>,
    /// Where packets leave.
    pub transmit: &'a mut dyn Transmit,
}

/// A plan at work. Belongs to one worker.
pub struct Graph {
    plan: Plan,
    /// Nodes of this graph and of the one before that continue as these.
    heirs: Vec<(NodeId, NodeId)>,
    nodes: Vec<Node>,
    /// Those that have a turn in each round.
    polled: Vec<usize>,
    counters: Arc<[NodeCounters]>,
    pool: Pool,
    work: Work,
    emitted: Vec<(u16, Packet)>,
    /// While the graph is timed.
    clock: Option<Ticks>,
    /// While packets are traced.
    tracer: Option<Box<Tracer>>,
}

struct Node {
    element: Box<dyn Element>,
    outputs: Box<[Option<Edge>]>,
    inputs: Box<[Option<Upstream>]>,
    /// Queues behind the outputs that hold it back.
    waits_for: Box<[NodeId]>,
    /// Input that a pulled output pulls from, where the element has no part in that.
    relay: Option<Relay>,
}

impl Node {
    /// Packets that the emptiest queue behind the outputs of a node takes.
    fn room(nodes: &[Self], at: usize) -> usize {
        let rooms =
            nodes[at].waits_for.iter().map(|&queue| nodes[usize::from(queue)].element.room());
        rooms.max().unwrap_or(usize::MAX)
    }

    /// Whether it may be at work while packets are pushed: it pulls.
    fn pulls(&self) -> bool {
        self.inputs.iter().any(Option::is_some)
    }
}

/// What is to be done, and the batches to do it with.
struct Work {
    pool: Pool,
    /// The next task is the last.
    stack: Vec<Task>,
    /// Tasks of the present node, in order, before they go onto the stack.
    ready: Vec<Task>,
    /// Batches being filled, by output of the present node.
    outs: Vec<Option<Box<Batch>>>,
    store: Vec<Box<Batch>>,
    /// A pull brought packets.
    active: bool,
}

struct Task {
    node: NodeId,
    input: u16,
    batch: Box<Batch>,
}

impl Graph {
    /// Makes an instance of every element for a worker. All packets must be of `pool`.
    pub fn new(plan: &Plan, pool: &Pool) -> Self {
        Self::of(plan, pool, Instance::Worker)
    }

    /// Graph of instances for a dry run.
    pub(crate) fn dry_run(plan: &Plan, pool: &Pool) -> Self {
        Self::of(plan, pool, Instance::DryRun)
    }

    fn of(plan: &Plan, pool: &Pool, instance: Instance) -> Self {
        let nodes: Vec<Node> = plan
            .nodes()
            .iter()
            .map(|node| Node {
                element: node.element(instance),
                outputs: node.outputs.clone().into_boxed_slice(),
                inputs: node.inputs.clone().into_boxed_slice(),
                waits_for: node.waits_for.clone().into_boxed_slice(),
                relay: node.relay().cloned(),
            })
            .collect();
        let most = nodes.iter().map(|node| node.outputs.len()).max().unwrap_or(0);
        let polled = plan.nodes().iter().enumerate().filter(|(_, node)| node.polled());
        let mut polled: Vec<usize> = polled.map(|(at, _)| at).collect();
        // What a script waits for it sees before others have their turn of that time, as in Click.
        polled.sort_by_key(|&at| plan.nodes()[at].class.spec.role != Role::Script);
        Self {
            polled,
            plan: plan.clone(),
            heirs: Vec::new(),
            counters: nodes.iter().map(|_| NodeCounters::default()).collect(),
            nodes,
            pool: pool.clone(),
            work: Work {
                pool: pool.clone(),
                stack: Vec::with_capacity(FIRST_BATCHES),
                ready: Vec::with_capacity(FIRST_BATCHES),
                outs: (0..most).map(|_| None).collect(),
                store: (0..FIRST_BATCHES).map(|_| Batch::new(pool)).collect(),
                active: false,
            },
            emitted: Vec::new(),
            clock: None,
            tracer: None,
        }
    }

    /// Traces packets that are received from now on, or no longer. Costs nothing while it does not.
    pub fn trace(&mut self, tracer: Option<Box<Tracer>>) {
        self.tracer = tracer;
    }

    /// Counts the ticks of each node from now on, or no longer. Costs two looks at the processor's clock a
    /// batch and node, and nothing while it is off; counts nothing where there is no such clock. What a node pulls, and what
    /// is pushed meanwhile, counts for that node.
    pub fn set_clock(&mut self, clock: Option<Ticks>) {
        self.clock = clock;
    }

    /// The same, to replace a graph of the plan `before`.
    pub fn after(before: &Plan, plan: &Plan, pool: &Pool) -> Self {
        Self { heirs: plan.heirs(before), ..Self::new(plan, pool) }
    }

    /// Continues where `old` stops, element by element of the same name and class; what `old` still keeps is for
    /// [`Graph::stop`].
    pub fn take_over(&mut self, old: &mut Self) {
        for (new, before) in
            self.heirs.drain(..).map(|(new, old)| (usize::from(new), usize::from(old)))
        {
            if let Some(state) = old.nodes[before].element.hand_over() {
                self.nodes[new].element.take_over(state);
            }
            self.counters[new].take_over(&old.counters[before]);
        }
    }

    /// What the nodes count, by number; stays readable when the graph is gone.
    pub fn counters(&self) -> Arc<[NodeCounters]> {
        self.counters.clone()
    }

    /// An empty batch; [`Graph::run`] takes it back.
    pub fn batch(&mut self) -> Box<Batch> {
        self.work.batch()
    }

    /// Takes back a batch that was not run. Its packets, if any, are freed without being counted.
    pub fn recycle(&mut self, mut batch: Box<Batch>) {
        batch.clear();
        self.work.store.push(batch);
    }

    /// Sends a batch through the graph from an input of `node` on, to its end.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn run(&mut self, node: NodeId, input: u16, batch: Box<Batch>, round: &mut Round<'_>) {
        self.work.stack.push(Task { node, input, batch });
        self.finish(round);
    }

    /// Whether there is an element for what this port receives.
    pub fn takes(&self, port: u16) -> bool {
        self.plan.entry(port).is_some()
    }

    /// Sends a batch that a port received through the graph.
    ///
    /// # Panics
    /// When there is no element for it.
    pub fn receive(&mut self, port: u16, batch: Box<Batch>, round: &mut Round<'_>) {
        let node = self.plan.entry(port).expect("receivers requested it");
        if let Some(tracer) = &mut self.tracer
            && !tracer.admit(&batch)
        {
            self.tracer = None;
        }
        let input = if self.nodes[usize::from(node)].inputs.is_empty() { 0 } else { RECEIVED };
        self.run(node, input, batch, round);
    }

    /// Gives those elements a turn that want one: waiting packets may continue. Returns whether any did.
    pub fn poll(&mut self, round: &mut Round<'_>) -> bool {
        if self.follows() {
            return self.poll_traced(round);
        }
        self.work.active = false;
        for turn in 0..self.polled.len() {
            let at = self.polled[turn];
            let mut watch = Watch::new(self.clock);
            let Self { nodes, counters, pool, work, emitted, .. } = self;
            let mut batch = work.batch();
            let cx = &mut context(pool, emitted, round);
            cx.node = Some(&counters[at]);
            let mut element = std::mem::replace(&mut nodes[at].element, Box::new(Away));
            element.poll(&mut batch, &mut Puller { at, nodes, counters, work }, cx);
            nodes[at].element = element;
            work.active |= !batch.is_empty() || !cx.emitted.is_empty();
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

    /// Ends what the elements keep, because the worker stops.
    pub fn stop(&mut self, round: &mut Round<'_>) {
        for (node, counters) in self.nodes.iter_mut().zip(self.counters.iter()) {
            let cx = &mut context(&self.pool, &mut self.emitted, round);
            cx.node = Some(counters);
            node.element.stop(cx);
            for (_, packet) in cx.emitted.drain(..) {
                drop_counted(DropReason::Shutdown, &packet.meta, counters, cx.counters);
            }
        }
    }

    /// Whether some element makes packets by the clock.
    pub fn keeps_time(&self) -> bool {
        self.polled.iter().any(|&at| self.nodes[at].element.keeps_time())
    }

    /// The earliest turn that an element keeps time for: `None` where none does, 0 where one does not know when.
    pub fn due_ns(&self) -> Option<u64> {
        let keepers = self.polled.iter().map(|&at| &self.nodes[at].element);
        keepers.filter(|element| element.keeps_time()).map(|e| e.due_ns().unwrap_or(0)).min()
    }

    /// Packets that the elements keep.
    pub fn held(&self) -> Held {
        let mut held = Held::default();
        for node in &self.nodes {
            held += node.element.held();
        }
        held
    }

    /// Named counts of one node's element.
    pub fn stats(&self, node: NodeId, visit: &mut dyn FnMut(&'static str, u64)) {
        self.nodes[usize::from(node)].element.stats(visit);
    }

    /// Whether packets are inside that are traced.
    fn follows(&self) -> bool {
        self.tracer.as_ref().is_some_and(|tracer| tracer.any())
    }

    /// Works until the stack is empty.
    fn finish(&mut self, round: &mut Round<'_>) {
        if self.follows() {
            return self.finish_traced(round);
        }
        let Self { nodes, counters, pool, work, emitted, clock, .. } = self;
        let mut watch = Watch::new(*clock);
        let cx = &mut context(pool, emitted, round);
        while let Some(Task { node: at, mut input, mut batch }) = work.stack.pop() {
            let mut at = usize::from(at);
            // Stays in here as long as there is one way to go.
            loop {
                let (node, counts) = (&mut nodes[at], &counters[at]);
                counts.batches.add(1);
                counts.packets.add(batch.len() as u64);
                cx.node = Some(counts);
                node.element.process(input, &mut batch, cx);
                if cx.emitted.is_empty()
                    && let Some(Decision::Output(output)) = batch.uniform()
                    && let Some(Some(edge)) = node.outputs.get(usize::from(output))
                    && !edge.back
                    && !batch.is_empty()
                {
                    batch.unlabel();
                    (at, input) = (edge.node.into(), edge.input);
                    watch.lap(counts);
                    continue;
                }
                work.regroup(node, batch, counts, cx.counters);
                work.emitted(node, cx.emitted, counts, cx.counters);
                work.stack_ready();
                watch.lap(counts);
                break;
            }
        }
    }
}

/// Takes the time between two nodes, if anybody wants it: each look ends one and begins the next, so that
/// nothing falls in between.
struct Watch {
    clock: Option<Ticks>,
    last: u64,
}

impl Watch {
    #[inline]
    fn new(clock: Option<Ticks>) -> Self {
        Self { clock, last: clock.map_or(0, Ticks::now) }
    }

    #[inline]
    fn lap(&mut self, counts: &NodeCounters) {
        if let Some(clock) = self.clock {
            let now = clock.now();
            counts.ticks.add(now.wrapping_sub(self.last));
            self.last = now;
        }
    }
}

/// Stands for an element that is at work, and so cannot be pulled.
struct Away;

impl Element for Away {}

/// The inputs of one node.
struct Puller<'a> {
    at: usize,
    nodes: &'a mut [Node],
    counters: &'a [NodeCounters],
    work: &'a mut Work,
}

impl Inputs for Puller<'_> {
    fn pull(&mut self, input: u16, into: &mut Batch, cx: &mut Context<'_>) {
        let upstream = self.nodes[self.at].inputs.get(usize::from(input));
        let Some(Some(upstream)) = upstream.copied() else { return };
        let before = into.len();
        if into.room() == 0 {
            return;
        }
        let at = usize::from(upstream.node);
        let mut emitted = Vec::new();
        let cx = &mut cx.of_node(&self.counters[at]);
        if let Some(relay) = &self.nodes[at].relay {
            let input = relay(upstream.output);
            self.of(at).pull(input, into, cx);
            return self.came(into.len() - before);
        }
        // The plan refuses circles of elements that pull, so none pulls from itself.
        let mut element = std::mem::replace(&mut self.nodes[at].element, Box::new(Away));
        match upstream.through {
            None => {
                cx.emitted = &mut emitted;
                element.pull(upstream.output, into, &mut self.of(at), cx);
                self.work.active |= !cx.emitted.is_empty();
                let (node, counts) = (&self.nodes[at], &self.counters[at]);
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
                element.process(input, &mut batch, cx);
                let (node, counts) = (&self.nodes[at], &self.counters[at]);
                let answer = Some((upstream.output, &mut *into));
                self.work.scatter(node, batch, answer, counts, cx.counters);
                answer_emitted(upstream.output, cx.emitted, into);
                self.work.emitted(node, cx.emitted, counts, cx.counters);
            }
        }
        self.nodes[at].element = element;
        self.finish_pushed(cx);
        self.came(into.len() - before);
    }

    fn room(&self) -> usize {
        Node::room(self.nodes, self.at)
    }
}

impl Puller<'_> {
    /// Finishes what was sent to pushing outputs during a pull. What comes to an element that pulls as well waits until
    /// that has had its turn.
    fn finish_pushed(&mut self, cx: &mut Context<'_>) {
        if self.work.ready.is_empty() {
            return;
        }
        let (counters, mut emitted, mut waiting) = (self.counters, Vec::new(), Vec::new());
        let cx = &mut cx.of_node(&counters[self.at]);
        cx.emitted = &mut emitted;
        let Self { nodes, work, .. } = self;
        work.stack_ready();
        while let Some(task) = work.stack.pop() {
            let at = usize::from(task.node);
            let (node, counts) = (&mut nodes[at], &counters[at]);
            if node.pulls() {
                waiting.push(task);
                continue;
            }
            let Task { input, mut batch, .. } = task;
            counts.batches.add(1);
            counts.packets.add(batch.len() as u64);
            cx.node = Some(counts);
            node.element.process(input, &mut batch, cx);
            work.regroup(node, batch, counts, cx.counters);
            work.emitted(node, cx.emitted, counts, cx.counters);
            work.stack_ready();
        }
        work.ready.append(&mut waiting);
    }

    /// Counts what a pull brought.
    fn came(&mut self, packets: usize) {
        if packets > 0 {
            self.work.active = true;
            self.counters[self.at].batches.add(1);
            self.counters[self.at].packets.add(packets as u64);
        }
    }

    fn of(&mut self, at: usize) -> Puller<'_> {
        Puller { at, nodes: self.nodes, counters: self.counters, work: self.work }
    }
}

fn context<'a>(
    pool: &'a Pool,
    emitted: &'a mut Vec<(u16, Packet)>,
    round: &'a mut Round<'_>,
) -> Context<'a> {
    Context {
        now_ns: round.now_ns,
        forwarding: round.forwarding,
        counters: round.counters,
        pool,
        flow_seed: round.flow_seed,
        reason: 0,
        node: None,
        ended: None,
        emitted,
        requests: round.requests,
        transmit: round.transmit,
    }
}

impl Work {
    fn batch(&mut self) -> Box<Batch> {
        self.store.pop().unwrap_or_else(|| Batch::new(&self.pool))
    }

    /// Makes tasks of a batch by its labels.
    fn regroup(
        &mut self,
        node: &Node,
        mut batch: Box<Batch>,
        counts: &NodeCounters,
        counters: &WorkerCounters,
    ) {
        if batch.is_empty() {
            self.store.push(batch);
            return;
        }
        if let Some(Decision::Output(output)) = batch.uniform()
            && let Some(Some(edge)) = node.outputs.get(usize::from(output))
        {
            batch.unlabel();
            self.task(*edge, batch, counts, counters);
            return;
        }
        if let Some(output) = batch.shared_output()
            && let Some(Some(edge)) = node.outputs.get(usize::from(output))
        {
            batch.close_up(|reason, meta| drop_counted(reason, meta, counts, counters));
            self.task(*edge, batch, counts, counters);
            return;
        }
        self.scatter(node, batch, None, counts, counters);
    }

    /// Puts the packets of `batch` for the pulled output into that batch, and makes tasks of the others.
    fn scatter(
        &mut self,
        node: &Node,
        mut batch: Box<Batch>,
        mut answer: Option<(u16, &mut Batch)>,
        counts: &NodeCounters,
        counters: &WorkerCounters,
    ) {
        let Self { outs, store, pool, .. } = self;
        batch.scatter(
            |reason, meta| drop_counted(reason, meta, counts, counters),
            |to, put| {
                if let Some((output, into)) = &mut answer
                    && to == *output
                {
                    put(into);
                } else if let Some(Some(_)) = node.outputs.get(usize::from(to)) {
                    put(outs[usize::from(to)]
                        .get_or_insert_with(|| store.pop().unwrap_or_else(|| Batch::new(pool))));
                }
            },
        );
        self.store.push(batch);
        self.flush(node, counts, counters);
    }

    /// Makes tasks of emitted packets, in their order: a task ends where the output changes.
    fn emitted(
        &mut self,
        node: &Node,
        emitted: &mut Vec<(u16, Packet)>,
        counts: &NodeCounters,
        counters: &WorkerCounters,
    ) {
        if emitted.is_empty() {
            return;
        }
        let mut last = None;
        for (output, packet) in emitted.drain(..) {
            let output = usize::from(output);
            let Some(Some(edge)) = node.outputs.get(output) else {
                drop_counted(DropReason::Unwired, &packet.meta, counts, counters);
                continue;
            };
            if last.replace(output).is_some_and(|last| last != output) {
                self.flush(node, counts, counters);
            }
            let mut batch = self.outs[output].take().unwrap_or_else(|| self.batch());
            if let Err(packet) = batch.push(packet) {
                self.task(*edge, batch, counts, counters);
                batch = self.batch();
                batch.push(packet).expect("an empty batch has room");
            }
            self.outs[output] = Some(batch);
        }
        self.flush(node, counts, counters);
    }

    /// Makes tasks of the batches being filled, by output number.
    fn flush(&mut self, node: &Node, counts: &NodeCounters, counters: &WorkerCounters) {
        for (output, edge) in node.outputs.iter().enumerate() {
            if let Some(batch) = self.outs[output].take() {
                let edge = edge.expect("only wired outputs are filled");
                self.task(edge, batch, counts, counters);
            }
        }
    }

    fn task(
        &mut self,
        edge: Edge,
        mut batch: Box<Batch>,
        counts: &NodeCounters,
        counters: &WorkerCounters,
    ) {
        if edge.back && count_round(&mut batch) {
            let mut rest = self.batch();
            batch.scatter(
                |reason, meta| drop_counted(reason, meta, counts, counters),
                |_, put| put(&mut rest),
            );
            self.store.push(std::mem::replace(&mut batch, rest));
            if batch.is_empty() {
                self.store.push(batch);
                return;
            }
        }
        self.ready.push(Task { node: edge.node, input: edge.input, batch });
    }

    fn stack_ready(&mut self) {
        self.stack.extend(self.ready.drain(..).rev());
    }
}

/// Counts a round of every packet, labels those that made too many; whether there are such.
#[cold]
fn count_round(batch: &mut Batch) -> bool {
    let mut any = false;
    for i in 0..batch.len() {
        let meta = &mut batch.meta_mut()[i];
        if meta.flags >> ROUNDS_SHIFT >= MAX_ROUNDS {
            batch.discard(i, DropReason::LoopGuard);
            any = true;
        } else {
            meta.flags += 1 << ROUNDS_SHIFT;
        }
    }
    any
}

/// Moves what was emitted to a pulled output into the batch of the puller.
fn answer_emitted(output: u16, emitted: &mut Vec<(u16, Packet)>, into: &mut Batch) {
    let mut at = 0;
    while at < emitted.len() && into.room() > 0 {
        if emitted[at].0 != output {
            at += 1;
            continue;
        }
        let (_, packet) = emitted.remove(at);
        if let Err(packet) = into.push(packet) {
            return emitted.insert(at, (output, packet));
        }
    }
}

fn drop_counted(reason: DropReason, meta: &Meta, counts: &NodeCounters, counters: &WorkerCounters) {
    counts.drop_packet(reason);
    counters.drop_packet(reason, meta);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{ElementClass, Made};
    use crate::language::ClassSpec;
    use crate::testing::{Bench, World, batch};

    /// Sends each packet to the output that its first byte names; 9 is dropped, 8 is taken and
    /// emitted again to output 1, 7 is taken and ended.
    struct Fork;
    impl Element for Fork {
        fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
            for i in 0..batch.len() {
                match batch.bytes(i)[0] {
                    9 => batch.discard(i, DropReason::TooShort),
                    8 => {
                        let packet = batch.take(i);
                        cx.emit(1, packet);
                    }
                    7 => {
                        let packet = batch.take(i);
                        cx.drop_packet(packet, DropReason::Consumed);
                    }
                    output => batch.output(i, output.into()),
                }
            }
        }
    }
    /// Takes the first byte off, so that the next one decides.
    struct Strip;
    impl Element for Strip {
        fn process(&mut self, _: u16, batch: &mut Batch, _: &mut Context<'_>) {
            for i in 0..batch.len() {
                assert!(batch.pull_front(i, 1));
            }
        }
    }
    static CLASSES: &[ElementClass] = &[
        ElementClass {
            spec: spec("Fork", "0-1/0-3", "h/h"),
            summary: "",
            configure: |_| Ok(Made::new(|_| Fork)),
        },
        ElementClass {
            spec: spec("Strip", "1/1", "a/a"),
            summary: "",
            configure: |_| Ok(Made::new(|_| Strip)),
        },
        ElementClass {
            spec: spec("Out", "1/0", "h/h"),
            summary: "",
            configure: |_| Ok(Made::new(|_| Out)),
        },
    ];

    const fn spec(name: &'static str, ports: &'static str, processing: &'static str) -> ClassSpec {
        ClassSpec::new(name, ports, processing, "x/x")
    }

    struct Out;
    impl Element for Out {
        fn process(&mut self, _: u16, batch: &mut Batch, cx: &mut Context<'_>) {
            cx.transmit(batch);
        }
    }

    fn graph(pool: &Pool) -> (Graph, Plan) {
        let text = "fork :: Fork; out :: Out;
            fork [0] -> Strip -> out; fork [1] -> out; fork [2] -> fork;";
        let plan = Plan::read("test", text, CLASSES).unwrap_or_else(|errors| panic!("{errors}"));
        (Graph::new(&plan, pool), plan)
    }

    type Outcome = (Bench, Vec<Vec<u8>>, Arc<[NodeCounters]>);

    fn run(frames: &[&[u8]]) -> Outcome {
        let mut bench = Bench::new(&World::new());
        let (mut graph, plan) = graph(&bench.pool);
        let frames = batch(&bench.pool, 0, frames.iter().copied());
        graph.run(plan.find("fork").unwrap(), 0, frames, &mut bench.round());
        let sent = bench.sent.frames.iter().map(|f| f.1.clone()).collect();
        let counters = graph.counters();
        assert_eq!(bench.pool.free(), bench.pool.frames(), "every frame came back");
        (bench, sent, counters)
    }

    #[test]
    fn a_batch_of_one_mind_is_not_copied_and_others_keep_their_order() {
        let (_, sent, counters) = run(&[&[0, 1], &[0, 2], &[0, 3]]);
        assert_eq!(sent, [[1], [2], [3]]);
        let seen: Vec<_> = counters.iter().map(|c| (c.batches.read(), c.packets.read())).collect();
        assert_eq!(seen, [(1, 3), (1, 3), (1, 3)]);
        // Output a comes first, what was emitted last.
        let (bench, sent, counters) =
            run(&[&[1, 1], &[8, 2], &[0, 3], &[9, 4], &[1, 5], &[0, 6], &[8, 7]]);
        assert_eq!(sent, [vec![3], vec![6], vec![1, 1], vec![1, 5], vec![8, 2], vec![8, 7]]);
        assert_eq!((counters[0].drops(), counters[0].dropped(DropReason::TooShort)), (1, 1));
        assert_eq!(bench.counters.dropped[DropReason::TooShort as usize].read(), 1);
    }

    #[test]
    fn a_dropped_or_taken_batch_ends() {
        let (bench, sent, _) = run(&[&[9, 1], &[9, 2]]);
        assert!(sent.is_empty());
        assert_eq!(bench.counters.dropped_total(), 2);
        let (_, sent, _) = run(&[&[8, 1], &[8, 2]]);
        assert_eq!(sent, [[8, 1], [8, 2]]);
    }

    #[test]
    fn a_packet_that_ends_is_counted_where_it_does_and_why() {
        let (bench, sent, counters) = run(&[&[9, 1], &[7, 2], &[0, 3], &[7, 4], &[2, 7]]);
        assert_eq!(sent, [[3]]);
        let at = |node: usize, why| counters[node].dropped(why);
        assert_eq!((at(0, DropReason::TooShort), at(0, DropReason::Consumed)), (1, 2));
        assert_eq!(at(0, DropReason::LoopGuard), 1);
        let all: u64 = counters.iter().map(NodeCounters::drops).sum();
        assert_eq!(all, bench.counters.dropped_total());
    }

    #[test]
    fn loops_end_and_are_counted() {
        let (bench, sent, counters) = run(&[&[2, 1], &[2, 2], &[1, 3]]);
        assert_eq!(sent, [[1, 3]]);
        assert_eq!(bench.counters.dropped[DropReason::LoopGuard as usize].read(), 2);
        assert_eq!(counters[0].packets.read(), 3 + 2 * u64::from(MAX_ROUNDS));
    }

    #[test]
    fn an_output_that_leads_nowhere_drops() {
        let mut bench = Bench::new(&World::new());
        let plan = Plan::read("test", "fork :: Fork", CLASSES).unwrap();
        let mut graph = Graph::new(&plan, &bench.pool);
        for frames in [&[&[0u8][..], &[1]][..], &[&[1]], &[&[8]]] {
            let frames = batch(&bench.pool, 0, frames.iter().copied());
            graph.run(0, 0, frames, &mut bench.round());
        }
        assert_eq!(bench.counters.dropped[DropReason::Unwired as usize].read(), 4);
        assert_eq!(bench.pool.free(), bench.pool.frames());
    }

    #[test]
    fn ticks_are_counted_while_the_graph_is_timed() {
        let mut bench = Bench::new(&World::new());
        let (mut graph, plan) = graph(&bench.pool);
        let counters = graph.counters();
        let mut ticks = |clock| {
            graph.set_clock(clock);
            let frames = batch(&bench.pool, 0, [&[0, 1][..], &[1, 2]]);
            graph.run(plan.find("fork").unwrap(), 0, frames, &mut bench.round());
            counters.iter().map(|c| c.ticks.read()).collect::<Vec<_>>()
        };
        assert_eq!(ticks(None), [0; 3]);
        let Some(clock) = Ticks::detect() else { return };
        let start = clock.now();
        let timed = ticks(Some(clock));
        assert!(timed.iter().all(|&ticks| ticks > 0), "{timed:?}");
        assert!(timed.iter().sum::<u64>() <= clock.now() - start);
        assert_eq!(ticks(None), timed);
    }

    #[test]
    fn more_emitted_packets_than_a_batch_holds() {
        let frames: Vec<&[u8]> = vec![&[8]; crate::frame::BATCH];
        let mut bench = Bench::new(&World::new());
        let (mut graph, _) = graph(&bench.pool);
        let first = batch(&bench.pool, 0, frames.iter().copied());
        let extra: Vec<_> =
            (0..40).map(|_| (1, crate::testing::packet(&bench.pool, 0, &[1, 1]))).collect();
        graph.emitted.extend(extra);
        graph.run(0, 0, first, &mut bench.round());
        assert_eq!(bench.sent.frames.len(), crate::frame::BATCH + 40);
        assert_eq!(bench.pool.free(), bench.pool.frames());
    }
}
