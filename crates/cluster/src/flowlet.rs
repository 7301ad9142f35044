//! Flowlets: packets of a flow stay on one path until a gap that is longer than the paths differ.
//!
//! Source: RouteBricks, SOSP 2009, section 6, with its fall-back to packet-by-packet balancing; "Dynamic load balancing
//!         without packet reordering" (Kandula, Katabi, Sinha, Berger, CCR 2007).
//! Shape:  a power of two of 8-byte entries, one table a worker, so that nothing is locked:
//!
//! ```text
//!         | next node 16 | flags 16 | last seen, in ticks 32 |      flags: 1 used, 2 direct, 4 spray, 16.. reason
//! ```
//!
//! Cost:   one read and one write a packet; the path is chosen anew once a flowlet.
//! Limits: no keys. Flows of one entry share a path: their order holds, their balance suffers. The tick counter wraps at
//!         2^32, so a flow that is idle for exactly that long may keep its path once more.
//! Weak:   a flow larger than an internal link keeps its order only until that link is full; then it is sprayed.
//!
//! Nothing is reordered between two flowlets when the gap exceeds the largest difference of delay between two paths.

use crate::rule::{Choice, Members, NodeId, NodeState, Path, Why};

const USED: u16 = 1;
const DIRECT: u16 = 2;
const SPRAY: u16 = 4;
/// Bits above this one have the place of the choice's reason among all.
const WHY_SHIFT: u16 = 4;

/// Entry of the table.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    next: NodeId,
    flags: u16,
    last: u32,
}

const _: () = assert!(size_of::<Entry>() == 8, "an entry is 8 bytes");

/// Flow of a packet as the table sees it.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Hash of the flow's addresses and ports; its low bits pick the entry.
    pub hash: u32,
    /// Ingress node.
    pub from: NodeId,
    /// Egress node.
    pub to: NodeId,
}

/// What the table did for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The packet leaves by its ingress node.
    Local,
    /// The packet continues a flowlet.
    Kept,
    /// The packet begins a flowlet.
    Began,
    /// The path of the flowlet no longer worked, or led through a node that drains, so another one was chosen.
    Lost,
    /// The flowlet is in spray mode: this packet has a path of its own.
    Sprayed,
}

/// Table of flowlets of one worker.
#[derive(Clone, Debug)]
pub struct Flowlets {
    entries: Vec<Entry>,
    delta_ticks: u32,
}

impl Flowlets {
    /// Empty table of `entries`, for flowlets that end after a gap of more than `delta_ticks`; with 0 each packet is one.
    ///
    /// # Panics
    /// When `entries` is no power of two.
    pub fn new(entries: usize, delta_ticks: u32) -> Self {
        assert!(entries.is_power_of_two(), "entries: {entries}, a power of two");
        Self { entries: vec![Entry::default(); entries], delta_ticks }
    }

    /// Changes the gap; flowlets in progress follow it.
    pub fn set_delta(&mut self, delta_ticks: u32) {
        self.delta_ticks = delta_ticks;
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }

    /// Path of a packet at the time `now`, in ticks, with the reason of the choice that its flowlet keeps; `None` where
    /// `choose` finds none.
    ///
    /// A packet whose ingress node is its egress node takes no link and no entry. For others `choose` makes a new
    /// choice, and `overloaded` reports whether the link of a kept path is full: then the flowlet is in
    /// spray mode, a choice a packet, until it ends.
    #[inline]
    pub fn path(
        &mut self,
        members: &Members,
        flow: Flow,
        now: u32,
        overloaded: impl FnOnce(Path) -> bool,
        choose: impl FnOnce() -> Option<Choice>,
    ) -> Option<(Choice, Outcome)> {
        if flow.from == flow.to {
            return Some((Choice { path: Path::Local, why: Why::SameNode }, Outcome::Local));
        }
        let at = flow.hash as usize & (self.entries.len() - 1);
        let entry = &mut self.entries[at];
        let current = entry.flags & USED != 0
            && self.delta_ticks > 0
            && now.wrapping_sub(entry.last) <= self.delta_ticks;
        entry.last = now;
        let outcome = if !current {
            entry.flags = 0;
            Outcome::Began
        } else if entry.flags & SPRAY != 0 {
            Outcome::Sprayed
        } else {
            // An entry names a node: flows toward other outputs share it as an intermediate.
            let direct = entry.flags & DIRECT != 0 || entry.next == flow.to;
            let path = if direct { Path::Direct } else { Path::By(entry.next) };
            let kept = Choice { path, why: why_of(entry.flags) };
            if !path.usable(members, flow.from, flow.to) {
                entry.flags = 0;
                Outcome::Lost
            } else if drains(path, members) {
                // A flowlet that never pauses would stay until the node stops, and lose packets then.
                let Some(choice) = choose() else { return Some((kept, Outcome::Kept)) };
                (entry.next, entry.flags) = entry_of(choice, flow.to);
                return Some((choice, Outcome::Lost));
            } else if overloaded(path) {
                entry.flags |= SPRAY;
                Outcome::Sprayed
            } else {
                return Some((kept, Outcome::Kept));
            }
        };
        let choice = choose()?;
        if outcome != Outcome::Sprayed {
            (entry.next, entry.flags) = entry_of(choice, flow.to);
        }
        Some((choice, outcome))
    }
}

/// Node and flags of an entry with this choice.
fn entry_of(Choice { path, why }: Choice, to: NodeId) -> (NodeId, u16) {
    let why = (why as u16) << WHY_SHIFT;
    match path {
        Path::Local => (to, 0),
        Path::Direct => (to, USED | DIRECT | why),
        Path::By(by) => (by, USED | why),
    }
}

/// Reason in the flags of an entry.
fn why_of(flags: u16) -> Why {
    Why::ALL.get(usize::from(flags >> WHY_SHIFT)).copied().unwrap_or(Why::Drawn)
}

/// Whether the intermediate of a path drains.
fn drains(path: Path, members: &Members) -> bool {
    matches!(path, Path::By(by) if members.node(by) == NodeState::Draining)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_lpm::Rng;
    use proptest::prelude::*;

    const DELTA: u32 = 10;
    const FLOW: Flow = Flow { hash: 5, from: 0, to: 1 };

    /// A choice of this path.
    fn drawn(path: Path) -> Option<Choice> {
        Some(Choice { path, why: Why::Drawn })
    }

    fn only_path((choice, outcome): (Choice, Outcome)) -> (Path, Outcome) {
        (choice.path, outcome)
    }

    /// Path of a packet of `flow` in a table without load, with this choice.
    fn path(
        table: &mut Flowlets,
        members: &Members,
        flow: Flow,
        now: u32,
        choice: Path,
    ) -> (Path, Outcome) {
        only_path(table.path(members, flow, now, |_| false, || drawn(choice)).unwrap())
    }

    #[test]
    fn a_gap_of_more_than_delta_begins_a_flowlet() {
        let (mut table, members) = (Flowlets::new(8, DELTA), Members::equal(4));
        // The last ticks before the counter wraps.
        let start = u32::MAX - 3;
        let two = (Path::By(2), Outcome::Began);
        assert_eq!(path(&mut table, &members, FLOW, start, Path::By(2)), two);
        let at = |ticks: u32| start.wrapping_add(ticks);
        let kept = (Path::By(2), Outcome::Kept);
        assert_eq!(path(&mut table, &members, FLOW, at(DELTA), Path::Direct), kept);
        assert_eq!(path(&mut table, &members, FLOW, at(2 * DELTA), Path::Direct), kept);
        let began = (Path::Direct, Outcome::Began);
        assert_eq!(path(&mut table, &members, FLOW, at(3 * DELTA + 1), Path::Direct), began);
        assert_eq!(table.bytes(), 64);
    }

    #[test]
    fn without_a_delta_each_packet_has_a_choice() {
        let (mut table, members) = (Flowlets::new(8, 0), Members::equal(4));
        for choice in [Path::By(2), Path::Direct, Path::By(3)] {
            let found = path(&mut table, &members, FLOW, 7, choice);
            assert_eq!(found, (choice, Outcome::Began));
        }
    }

    #[test]
    fn a_lost_node_or_link_and_a_draining_node_are_left_at_once() {
        let (mut table, mut members) = (Flowlets::new(8, DELTA), Members::equal(4));
        path(&mut table, &members, FLOW, 0, Path::By(2));
        members.set_node(2, NodeState::Draining);
        let lost = (Path::By(3), Outcome::Lost);
        assert_eq!(path(&mut table.clone(), &members, FLOW, 1, Path::By(3)), lost, "it drains");
        let none = table.clone().path(&members, FLOW, 1, |_| false, || None);
        let kept = none.map(only_path);
        assert_eq!(kept, Some((Path::By(2), Outcome::Kept)), "it still carries packets");
        members.set_node(2, NodeState::Down);
        assert_eq!(path(&mut table, &members, FLOW, 1, Path::By(3)), lost);
        members.set_link(3, 1, false);
        assert_eq!(
            path(&mut table, &members, FLOW, 1, Path::Direct),
            (Path::Direct, Outcome::Lost)
        );
        members.set_link(0, 1, false);
        assert_eq!(table.path(&members, FLOW, 1, |_| false, || None), None);
        // What had no path begins again, with whatever works then.
        members.set_link(0, 1, true);
        assert_eq!(path(&mut table, &members, FLOW, 1, Path::Direct).1, Outcome::Began);
    }

    #[test]
    fn an_overloaded_path_is_sprayed_until_the_flowlet_ends() {
        let (mut table, members) = (Flowlets::new(8, DELTA), Members::equal(4));
        path(&mut table, &members, FLOW, 0, Path::By(2));
        let full = |path| path == Path::By(2);
        let sprayed = |by| (Path::By(by), Outcome::Sprayed);
        let found = table.path(&members, FLOW, 1, full, || drawn(Path::By(3)));
        assert_eq!(found.map(only_path), Some(sprayed(3)));
        // The link has room again, and the flowlet stays sprayed.
        assert_eq!(path(&mut table, &members, FLOW, 2, Path::By(2)), sprayed(2));
        let after = path(&mut table, &members, FLOW, 3 + DELTA, Path::By(3));
        assert_eq!(after, (Path::By(3), Outcome::Began));
    }

    #[test]
    fn a_flowlet_keeps_the_reason_of_its_choice() {
        let members = Members::equal(4);
        for why in Why::ALL {
            for path in [Path::Direct, Path::By(2)] {
                let (mut table, choice) = (Flowlets::new(8, DELTA), Choice { path, why });
                let mut at = |now, new| table.path(&members, FLOW, now, |_| false, || Some(new));
                assert_eq!(at(0, choice), Some((choice, Outcome::Began)));
                let other = Choice { path: Path::By(3), why: Why::Drawn };
                assert_eq!(at(1, other), Some((choice, Outcome::Kept)));
            }
        }
    }

    #[test]
    fn flows_of_one_entry_share_its_node() {
        let (mut table, members) = (Flowlets::new(8, DELTA), Members::equal(4));
        path(&mut table, &members, FLOW, 0, Path::By(2));
        let other = Flow { to: 2, hash: 13, ..FLOW };
        assert_eq!(
            path(&mut table, &members, other, 0, Path::By(3)),
            (Path::Direct, Outcome::Kept)
        );
    }

    #[test]
    fn a_local_packet_leaves_the_flowlet_of_its_entry_alone() {
        let (mut table, members) = (Flowlets::new(8, DELTA), Members::equal(4));
        path(&mut table, &members, FLOW, 0, Path::By(2));
        let local = Flow { to: 0, ..FLOW };
        let found = path(&mut table, &members, local, DELTA, Path::Direct);
        assert_eq!(found, (Path::Local, Outcome::Local));
        let kept = (Path::By(2), Outcome::Kept);
        assert_eq!(path(&mut table, &members, FLOW, DELTA, Path::Direct), kept);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Packet { hash: u32, to: NodeId, wait: u32 },
        Node { node: NodeId, down: bool },
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let packet = (0..4u32, 1..6u16, prop_oneof![0..DELTA + 1, 0..3 * DELTA])
            .prop_map(|(hash, to, wait)| Op::Packet { hash, to, wait });
        let node = (1..6u16, any::<bool>()).prop_map(|(node, down)| Op::Node { node, down });
        prop::collection::vec(prop_oneof![6 => packet, 1 => node], 1..200)
    }

    /// Each packet against a table that remembers everything: within a flowlet the path changes only when it no longer
    /// works, and a path that is returned works.
    fn check(ops: &[Op], seed: u32) {
        let (mut members, mut table) = (Members::equal(6), Flowlets::new(4, DELTA));
        let (mut rng, mut now) = (Rng::new(u64::from(seed)), seed);
        let mut last: [Option<(u32, NodeId, Path)>; 4] = [None; 4];
        for op in ops {
            let (hash, to) = match *op {
                Op::Node { node, down } => {
                    let state = if down { NodeState::Down } else { NodeState::Active };
                    members.set_node(node, state);
                    continue;
                }
                Op::Packet { hash, to, wait } => {
                    now = now.wrapping_add(wait);
                    (hash, to)
                }
            };
            let flow = Flow { hash, from: 0, to };
            let choose = || {
                let by = [1, 2, 3, 4, 5][rng.below(5)];
                let drawn = if by == to { Path::Direct } else { Path::By(by) };
                let mut paths = [drawn, Path::Direct].into_iter();
                let path = paths.find(|path| path.usable(&members, 0, to))?;
                Some(Choice { path, why: Why::Drawn })
            };
            let found = table.path(&members, flow, now, |_| false, choose);
            let before = last[hash as usize].take();
            let Some((path, outcome)) = found.map(only_path) else { continue };
            assert!(path.usable(&members, 0, to), "{path:?} to {to} does not work");
            if let Some((seen, old_to, old)) = before {
                let ended = now.wrapping_sub(seen) > DELTA;
                assert_eq!(outcome == Outcome::Began, ended, "{outcome:?}");
                if old_to == to && !ended && old.usable(&members, 0, to) {
                    assert_eq!((path, outcome), (old, Outcome::Kept), "reordered in a flowlet");
                }
            }
            last[hash as usize] = Some((now, to, path));
        }
    }

    proptest! {
        #[test]
        fn a_flowlet_keeps_its_path(ops in ops(), seed: u32) {
            check(&ops, seed);
        }
    }
}
