//! The built-in router's check of sources: ends packets whose source is not reached by the way that they came in.
//!
//! Source: RFC 3704 (strict, feasible, loose), RFC 1812 5.3.8. `UrpfCheck` is the same for graphs with route tables of
//! their own; what is asked and what is not is said there.
//!
//! Which ports ask for it, and for what, says the port table (`reverse_path` of an interface). Strict: the best route to
//! the source leads out of the port, by one of its paths if it has several. Feasible: so does any route to that prefix,
//! by the table of all paths (`fingerpost_route`, `control/paths.rs`). Loose: there is a route, and not the default one
//! (RFC 3704 2.5). A route to nowhere is none. The table is the one by which the port's packets are forwarded.
//!
//! It stands behind the check of the header, whose outputs it passes on: what fails is told to nobody, since the answer
//! would go to who did not ask. Ports that do not ask cost a look at the port table a batch; a graph for a router
//! without such ports has no such element.
//!
//! Cost: a lookup, and for a group of paths a look at its slots.

use fingerpost_lpm::{Lookup, NextHopId};
use fingerpost_route::{Forwarding, PortInfo, ReversePath};

use super::ether_input::AHEAD;
use super::questions::Questions;
use super::urpf_check::Sourced;
use super::{Context, Element, ElementClass, Made};
use crate::buf::Batch;
use crate::drops::DropReason;
use crate::graph::ClassSpec;

pub(crate) const CLASS4: ElementClass = ElementClass {
    spec: ClassSpec {
        name: "IP4ReversePath",
        ports: "3/3",
        processing: "h/h",
        flow: "#/#",
        output_names: &["forward", "options", "error"],
    },
    summary: "ends IPv4 packets whose source is not reached by the port that they came in by",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(Check::<u32>::new))
    },
};

pub(crate) const CLASS6: ElementClass = ElementClass {
    spec: ClassSpec {
        name: "IP6ReversePath",
        ports: "2/2",
        processing: "h/h",
        flow: "#/#",
        output_names: &["forward", "error"],
    },
    summary: "ends IPv6 packets whose source is not reached by the port that they came in by",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(Check::<u128>::new))
    },
};

/// The tables of a family.
trait Looked: Sourced {
    fn table(forwarding: &Forwarding, fib: u16) -> &dyn Lookup<Self>;
}

impl Looked for u32 {
    fn table(forwarding: &Forwarding, fib: u16) -> &dyn Lookup<u32> {
        forwarding.v4_of(fib)
    }
}

impl Looked for u128 {
    fn table(forwarding: &Forwarding, fib: u16) -> &dyn Lookup<u128> {
        forwarding.v6_of(fib)
    }
}

struct Check<A> {
    questions: Questions<A>,
}

impl<A: Looked> Check<A> {
    fn new() -> Self {
        Self { questions: Questions::new() }
    }

    /// The packets of one port.
    fn check_port(
        &mut self,
        batch: &mut Batch,
        port: u16,
        mode: ReversePath,
        info: &PortInfo,
        forwarding: &Forwarding,
    ) {
        let questions = &mut self.questions;
        let len = questions.len;
        let fib = if mode == ReversePath::Feasible { info.paths } else { info.fib };
        let table = A::table(forwarding, fib);
        table.lookup_batch(&questions.addrs[..len], &mut questions.answers[..len]);
        for i in 0..len {
            if !takes(forwarding, mode, port, questions.answers[i]) {
                batch.discard(questions.place(i), DropReason::ReversePath);
            }
        }
    }
}

/// Whether a packet may come in by a port whose source has this next hop.
fn takes(forwarding: &Forwarding, mode: ReversePath, port: u16, hop: NextHopId) -> bool {
    match mode {
        ReversePath::Strict | ReversePath::Feasible => forwarding.leads_out(hop, Some(port)),
        ReversePath::Loose => {
            !forwarding.defaults.contains(&hop) && forwarding.leads_out(hop, None)
        }
    }
}

impl<A: Looked> Element for Check<A> {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        let forwarding = cx.forwarding;
        if input != 0 {
            (0..batch.len()).for_each(|i| batch.output(i, input));
        }
        // Nearly always a batch is of one port.
        let mut next = batch.meta().iter().map(|meta| meta.port).min();
        while let Some(port) = next.take() {
            let info = forwarding.ports.port(port);
            let check = info.and_then(|info| Some((info, info.reverse_path?)));
            self.questions.clear();
            for i in 0..batch.len() {
                let meta = batch.meta()[i];
                if meta.port > port {
                    next = Some(next.map_or(meta.port, |n: u16| n.min(meta.port)));
                } else if meta.port == port && check.is_some() {
                    batch.prefetch(i + AHEAD);
                    if let Some(src) = A::asked_for(batch.bytes(i), &meta) {
                        self.questions.push(src, i);
                    }
                }
            }
            if let Some((info, mode)) = check {
                self.check_port(batch, port, mode, info, forwarding);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fingerpost_route::{FibLookup, ForwardingAction, PortTable};

    use super::*;
    use crate::buf::Decision;
    use crate::testing::{Bench, World, element, frame_v4, frame_v6};

    /// What becomes of packets from these sources that came in by port 1, as one batch with those of port 0, which
    /// does not ask.
    fn pass(forwarding: Forwarding, mode: ReversePath, sources: &[&str]) -> Vec<bool> {
        let mut bench = Bench::new(&World::new());
        bench.forwarding = forwarding;
        let mut ports = PortTable::clone(&bench.forwarding.ports);
        let port = ports.ports[1].as_mut().unwrap();
        (port.reverse_path, port.paths) = (Some(mode), 1);
        bench.forwarding.ports = Arc::new(ports);
        let mut passing = Vec::new();
        for (class, error, frames) in [
            (&CLASS4, 2, frames(sources, |s| frame_v4(s, "192.0.2.1", 64, 17, &[]), false)),
            (&CLASS6, 1, frames(sources, |s| frame_v6(s, "2001:db8:5::1", 64, 17, &[]), true)),
        ] {
            for input in [0, error] {
                let twice = frames.iter().chain(&frames).map(|frame| &frame[..]);
                let mut batch = crate::testing::batch(&bench.pool, 0, twice);
                for (i, meta) in batch.meta_mut().iter_mut().enumerate() {
                    (meta.network, meta.port) = (14, u16::from(i < frames.len()));
                }
                element(class, "").process(input, &mut batch, &mut bench.context());
                let out = |i: usize| match batch.decision(i) {
                    Decision::Output(output) => output == input,
                    Decision::Drop(DropReason::ReversePath) => false,
                    other => panic!("{other:?}"),
                };
                let seen: Vec<bool> = (0..frames.len()).map(out).collect();
                assert!((frames.len()..2 * frames.len()).all(out), "port 0 does not ask");
                if input == 0 {
                    passing.extend(seen);
                } else {
                    assert!(passing.ends_with(&seen), "by every output of the check before");
                }
            }
        }
        passing
    }

    fn frames(sources: &[&str], frame: impl Fn(&str) -> Vec<u8>, v6: bool) -> Vec<Vec<u8>> {
        sources.iter().filter(|s| s.contains(':') == v6).map(|s| frame(s)).collect()
    }

    /// Port 1 has the connected prefixes, a route and one of two paths; port 2 the others.
    fn world() -> World {
        let mut world = World::new();
        world.neighbor(4, 1);
        world.neighbor(6, 2);
        world.action("10.0.1.0/24", ForwardingAction::Glean(1));
        world.action("10.1.0.0/16", ForwardingAction::Adjacency(4));
        world.action("10.2.0.0/16", ForwardingAction::Adjacency(6));
        world.action("10.1.9.0/24", ForwardingAction::Blackhole);
        world.action("2001:db8:1::/48", ForwardingAction::Adjacency(4));
        world.action("2001:db8:2::/48", ForwardingAction::Adjacency(6));
        let both = world.group(&[ForwardingAction::Adjacency(6), ForwardingAction::Adjacency(4)]);
        world.route("10.3.0.0/16", both);
        world
    }

    const SOURCES: [&str; 9] = [
        "10.0.1.7",
        "10.1.0.1",
        "10.2.0.1",
        "10.1.9.1",
        "10.3.0.1",
        "8.8.8.8",
        "2001:db8:1::1",
        "2001:db8:2::1",
        "fe80::1",
    ];

    #[test]
    fn strict_wants_a_best_path_to_lead_back() {
        let want = [true, true, false, false, true, false, true, false, true];
        assert_eq!(pass(world().forwarding(), ReversePath::Strict, &SOURCES), want);
    }

    #[test]
    fn loose_wants_a_route_that_is_not_the_default_one() {
        let want = [true, true, true, false, true, false, true, true, true];
        assert_eq!(pass(world().forwarding(), ReversePath::Loose, &SOURCES), want);
        let mut world = world();
        let default = world.hop(ForwardingAction::Adjacency(4));
        world.route("0.0.0.0/0", default);
        let mut forwarding = world.forwarding();
        forwarding.defaults = [default].into();
        assert_eq!(pass(forwarding.clone(), ReversePath::Loose, &SOURCES), want);
        let strict = [true, true, false, false, true, true, true, false, true];
        assert_eq!(pass(forwarding, ReversePath::Strict, &SOURCES), strict);
    }

    #[test]
    fn feasible_asks_the_table_of_all_paths() {
        let (mut world, mut paths) = (world(), World::new());
        paths.route(
            "10.2.0.0/16",
            world.group(&[ForwardingAction::Adjacency(6), ForwardingAction::Adjacency(4)]),
        );
        let mut forwarding = world.forwarding();
        let Forwarding { v4, v6, .. } = paths.forwarding();
        forwarding.others = [FibLookup { table: 9.into(), v4, v6 }].into();
        let want = [false, false, true, false, false, false, false, false, true];
        assert_eq!(pass(forwarding.clone(), ReversePath::Feasible, &SOURCES), want);
        assert!(!pass(forwarding, ReversePath::Strict, &["10.2.0.1"])[0]);
    }
}
