//! uRPF: drops packets whose source is not reached by the interface that they arrived on.
//!
//! Source: RFC 3704 (strict, feasible, loose), RFC 1812 5.3.8. `UrpfCheck` is the element for graphs with route tables of
//! their own; which sources are looked up and which are not is documented there.
//!
//! The mode of a port is in the port table (`urpf` of an interface). Strict: the best route to the source leaves by the
//! port, by one of its paths if it has several. Feasible: so does any route to that prefix, by the table of all paths
//! (`fingerpost_route`, `control/paths.rs`). Loose: there is a route, and not the default one (RFC 3704 2.5). A blackhole
//! is no route. The table is the one by which the port's packets are forwarded.
//!
//! A dropped packet is reported to nobody, since an ICMP error would go to a forged source.
//!
//! Cost: a lookup, and for a group of paths a look at its slots; a port without uRPF costs a look at the port table a
//! batch.

use std::collections::BTreeSet;
use std::sync::Arc;

use fingerpost_lpm::NextHopId;
use fingerpost_route::{Control, Forwarding, InterfaceSet, PortInfo, RouteError, UrpfMode};

use super::reader::{Mistake, word};
use super::row::{
    Feature, FeatureArc, Given, InUse, Item, Key, Settings as FeatureSettings, Stage, State,
    Support, Use,
};
use super::value::Value;
use crate::element::click::urpf_check::Sourced;
use crate::element::router::ether_input::AHEAD;
use crate::element::support::lookups::Lookups;
use crate::frame::{Batch, DropReason};
use crate::graph::{Context, Element, ElementClass, Made};
use crate::language::ClassSpec;

/// The row.
pub(super) const FEATURE: Feature = Feature {
    name: "urpf",
    summary: "drops packets whose source is not reached by the interface that they arrived on",
    key: Some(Key { name: "urpf", former: Some("reverse_path"), fields: &[] }),
    section: None,
    read,
    stages: &[Stage {
        name: "urpf",
        arc: FeatureArc::Ingress,
        // A packet that a list drops needs no lookup.
        after: &["source_filter"],
        element: &CLASS,
    }],
    guards: true,
    kernel: "the kernel forwards, by net.ipv4.conf.NAME.rp_filter",
    drop_reasons: &[DropReason::Urpf],
    columns: &[],
};

/// The modes of interfaces: `urpf` of `[[interface]]`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings(Vec<Interface>);

/// What the configuration has of one interface.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Interface {
    name: String,
    place: String,
    /// `None` for `"off"`.
    mode: Option<UrpfMode>,
}

const WORDS: [(&str, Option<UrpfMode>); 4] = [
    ("off", None),
    ("strict", Some(UrpfMode::Strict)),
    ("feasible", Some(UrpfMode::Feasible)),
    ("loose", Some(UrpfMode::Loose)),
];

fn read(given: &Given, mistakes: &mut Vec<Mistake>) -> Arc<dyn FeatureSettings> {
    let mut settings = Settings::default();
    for interface in &given.interfaces {
        let Some(value) = &interface.value else { continue };
        let mode = match value {
            Value::Text(text) => word(text, &WORDS),
            other => Err(format!("`urpf`: invalid type: {}, expected a string", other.describe())),
        };
        match mode {
            Ok(mode) => settings.0.push(Interface {
                name: interface.name.clone(),
                place: interface.place.clone(),
                mode,
            }),
            Err(what) => mistakes.push(Mistake::new(&interface.place, what)),
        }
    }
    Arc::new(settings)
}

impl Settings {
    /// Whether the configuration has a mode for this interface, be it `"off"`.
    pub fn has(&self, interface: &str) -> bool {
        self.0.iter().any(|known| known.name == interface)
    }

    /// The mode of an interface.
    pub fn mode(&self, interface: &str) -> Option<UrpfMode> {
        self.0.iter().find(|known| known.name == interface)?.mode
    }
}

impl FeatureSettings for Settings {
    fn is_same(&self, other: &dyn FeatureSettings) -> bool {
        let modes = |settings: &Self| -> Vec<(String, Option<UrpfMode>)> {
            settings.0.iter().map(|known| (known.name.clone(), known.mode)).collect()
        };
        other.of().is_some_and(|other| modes(self) == modes(other))
    }

    fn on(&self, interface: &str) -> Option<Use> {
        let found = self.0.iter().find(|known| known.name == interface)?;
        let words = found.mode?.name().to_owned();
        Some(Use { words, named: true, place: found.place.clone() })
    }

    fn interfaces(&self) -> InterfaceSet {
        let used = self.0.iter().filter(|known| known.mode.is_some());
        InterfaceSet::Some(used.map(|known| known.name.clone()).collect())
    }

    fn xdp(&self, interface: Option<&str>) -> Support {
        match interface.and_then(|interface| self.mode(interface)) {
            Some(UrpfMode::Feasible) => {
                Support::Graph("the graph alone has the table of all paths")
            }
            _ => Support::Xdp,
        }
    }

    fn items(&self) -> Vec<Item> {
        let word = |mode: Option<UrpfMode>| mode.map_or("off", UrpfMode::name);
        let item = |known: &Interface| {
            Item::new(format!("interface {} urpf", known.name), word(known.mode))
        };
        self.0.iter().map(item).collect()
    }

    fn bind(
        &self,
        before: Option<&dyn FeatureSettings>,
        control: &mut Control,
    ) -> Result<(), RouteError> {
        let before = before.and_then(|before| before.of::<Self>());
        let known = before.iter().flat_map(|before| &before.0).map(|known| &known.name);
        let names: BTreeSet<&String> =
            known.chain(self.0.iter().map(|known| &known.name)).collect();
        names.into_iter().try_for_each(|name| control.check_sources(name, self.mode(name)))
    }

    fn make(&self, _: Option<&dyn State>) -> Result<Option<Arc<dyn State>>, Vec<String>> {
        let used = self.0.iter().any(|known| known.mode.is_some());
        Ok(used.then(|| Arc::new(InUse(FeatureArc::Ingress)) as Arc<dyn State>))
    }
}

pub(crate) const CLASS: ElementClass = ElementClass {
    spec: ClassSpec::new("IPUrpf", "5/5", "h/h", "#/#")
        .outputs(&["forward4", "options4", "error4", "forward6", "error6"]),
    summary: "drops packets whose source is not reached by the interface that they arrived on",
    configure: |setup| {
        setup.args.finish()?;
        Ok(Made::new(|_| Check { v4: Lookups::new(), v6: Lookups::new() }))
    },
};

/// The first input of IPv6.
const FIRST_V6: u16 = 3;

struct Check {
    v4: Lookups<u32>,
    v6: Lookups<u128>,
}

/// Drops the packets of one port whose sources do not pass.
fn check_port<A: Sourced>(
    lookups: &mut Lookups<A>,
    batch: &mut Batch,
    port: u16,
    mode: UrpfMode,
    info: &PortInfo,
    forwarding: &Forwarding,
) {
    let len = lookups.len;
    let fibs = forwarding.ports.fibs(port, A::INDEX);
    let feasible = mode == UrpfMode::Feasible;
    let table = A::table(forwarding, if feasible { info.paths } else { fibs[0] });
    table.lookup_batch(&lookups.addrs[..len], &mut lookups.answers[..len]);
    let leaves = info.bond.unwrap_or(port);
    for i in 0..len {
        if fibs.len() > 1 && !feasible && !forwarding.is_found(lookups.answers[i]) {
            lookups.answers[i] = forwarding.lookup(port, lookups.addrs[i]);
        }
        if !passes(forwarding, mode, leaves, lookups.answers[i]) {
            batch.discard(lookups.place(i), DropReason::Urpf);
        }
    }
}

/// Whether a packet passes that arrived on a port and whose source has this next hop.
fn passes(forwarding: &Forwarding, mode: UrpfMode, port: u16, hop: NextHopId) -> bool {
    match mode {
        UrpfMode::Strict | UrpfMode::Feasible => forwarding.leads_out(hop, Some(port)),
        UrpfMode::Loose => !forwarding.defaults.contains(&hop) && forwarding.leads_out(hop, None),
    }
}

/// Drops the packets of a batch whose sources do not pass.
fn check<A: Sourced>(lookups: &mut Lookups<A>, batch: &mut Batch, forwarding: &Forwarding) {
    // Nearly always a batch is of one port.
    let mut next = batch.meta().iter().map(|meta| meta.port).min();
    while let Some(port) = next.take() {
        let info = forwarding.ports.port(port);
        let check = info.and_then(|info| Some((info, info.urpf?)));
        lookups.clear();
        for i in 0..batch.len() {
            let meta = batch.meta()[i];
            if meta.port > port {
                next = Some(next.map_or(meta.port, |n: u16| n.min(meta.port)));
            } else if meta.port == port && check.is_some() {
                batch.prefetch(i + AHEAD);
                if let Some(src) = A::checked_source(batch.bytes(i), &meta) {
                    lookups.push(src, i);
                }
            }
        }
        if let Some((info, mode)) = check {
            check_port(lookups, batch, port, mode, info, forwarding);
        }
    }
}

impl Element for Check {
    fn process(&mut self, input: u16, batch: &mut Batch, cx: &mut Context<'_>) {
        if input != 0 {
            (0..batch.len()).for_each(|i| batch.output(i, input));
        }
        if input < FIRST_V6 {
            check(&mut self.v4, batch, cx.forwarding);
        } else {
            check(&mut self.v6, batch, cx.forwarding);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fingerpost_route::{FibLookup, ForwardingAction, PortTable, RouteMtu};

    use super::*;
    use crate::frame::Decision;
    use crate::testing::{Bench, World, element, frame_v4, frame_v6};

    /// Which packets from these sources pass that arrived on port 1, as one batch with those of port 0, which has no
    /// uRPF.
    fn pass(forwarding: Forwarding, mode: UrpfMode, sources: &[&str]) -> Vec<bool> {
        let mut bench = Bench::new(&World::new());
        bench.forwarding = forwarding;
        let mut ports = PortTable::clone(&bench.forwarding.ports);
        let port = ports.ports[1].as_mut().unwrap();
        (port.urpf, port.paths) = (Some(mode), 1);
        bench.forwarding.ports = Arc::new(ports);
        let mut passing = Vec::new();
        for (inputs, frames) in [
            ([0, 2], frames(sources, |s| frame_v4(s, "192.0.2.1", 64, 17, &[]), false)),
            ([3, 4], frames(sources, |s| frame_v6(s, "2001:db8:5::1", 64, 17, &[]), true)),
        ] {
            for input in inputs {
                let twice = frames.iter().chain(&frames).map(|frame| &frame[..]);
                let mut batch = crate::testing::batch(&bench.pool, 0, twice);
                for (i, meta) in batch.meta_mut().iter_mut().enumerate() {
                    (meta.network, meta.port) = (14, u16::from(i < frames.len()));
                }
                element(&CLASS, "").process(input, &mut batch, &mut bench.context());
                let out = |i: usize| match batch.decision(i) {
                    Decision::Output(output) => output == input,
                    Decision::Drop(DropReason::Urpf) => false,
                    other => panic!("{other:?}"),
                };
                let seen: Vec<bool> = (0..frames.len()).map(out).collect();
                assert!((frames.len()..2 * frames.len()).all(out), "port 0 has no uRPF");
                if input == inputs[0] {
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
        assert_eq!(pass(world().forwarding(), UrpfMode::Strict, &SOURCES), want);
    }

    #[test]
    fn loose_wants_a_route_that_is_not_the_default_one() {
        let want = [true, true, true, false, true, false, true, true, true];
        assert_eq!(pass(world().forwarding(), UrpfMode::Loose, &SOURCES), want);
        let mut world = world();
        let default = world.hop(ForwardingAction::Adjacency(4));
        world.route("0.0.0.0/0", default);
        let mut forwarding = world.forwarding();
        forwarding.defaults = [default].into();
        assert_eq!(pass(forwarding.clone(), UrpfMode::Loose, &SOURCES), want);
        let strict = [true, true, false, false, true, true, true, false, true];
        assert_eq!(pass(forwarding, UrpfMode::Strict, &SOURCES), strict);
    }

    #[test]
    fn a_route_into_a_vrf_leads_out_but_not_by_the_ingress() {
        let mut world = world();
        world.action("10.4.0.0/16", ForwardingAction::Vrf(0, RouteMtu::NONE));
        world.action("2001:db8:4::/48", ForwardingAction::Vrf(0, RouteMtu::NONE));
        let sources = ["10.4.0.1", "2001:db8:4::1"];
        assert_eq!(pass(world.forwarding(), UrpfMode::Loose, &sources), [true; 2]);
        assert_eq!(pass(world.forwarding(), UrpfMode::Strict, &sources), [false; 2]);
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
        assert_eq!(pass(forwarding.clone(), UrpfMode::Feasible, &SOURCES), want);
        assert!(!pass(forwarding, UrpfMode::Strict, &["10.2.0.1"])[0]);
    }
}
