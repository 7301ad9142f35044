//! The graph of the built-in router: every element of the path, wired. `router.click` has it.
//!
//! The elements of the interface features in use are put into it where [`FeatureArc`] has their place: into the parsed
//! configuration, so that a router without a feature has no element of it.

use std::any::Any;
use std::sync::Arc;

use crate::ELEMENTS;
use crate::feature::row::{FeatureArc, Stage};
use crate::feature::{FEATURES, FeatureSettings, FeatureStates};
use crate::graph::{ElementClass, Kept, Plan, Registry};
use crate::language::splice::Point;
use crate::language::{ClassSpec, Configuration, Errors, Language};

/// Its text, in Click's language, without the elements of features.
pub const TEXT: &str = include_str!("router.click");

/// Where outputs of features' elements lead that are behind those for packets that pass, by their name: element and
/// input. `icmp4` and `icmp6` take packets about which an ICMP error is due, `lookup4` and `lookup6` packets that an
/// element made, `link` packets whose link header and port are written already.
pub const EXITS: [(&str, &str, u32); 5] = [
    ("icmp4", "icmp4_error", 0),
    ("icmp6", "icmp6_error", 0),
    ("lookup4", "ip4_lookup", 0),
    ("lookup6", "ip6_lookup", 0),
    ("link", TRANSMIT, 0),
];

/// The element that sends.
const TRANSMIT: &str = "transmit";

/// Elements that a crate above adds to the built-in graph. They are there whether or not the router has features, and
/// packets pass those of features as if they were not.
pub struct Addition {
    /// Classes of the added elements, and those of the built-in graph.
    pub registry: Registry,
    /// Its elements: name and class.
    pub elements: &'static [(&'static str, &'static ElementClass)],
    /// Element between the ports and the first check of a frame: packets that pass leave by its output 0.
    pub received: &'static str,
    /// Element that packets pass last before they are sent: by output 0.
    pub sent: &'static str,
    /// Further connections: element, name of its output, element that it leads to and its input.
    pub wires: &'static [(&'static str, &'static str, &'static str, u32)],
    /// State that all added elements share.
    pub state: Arc<dyn Any + Send + Sync>,
}

/// Outputs in whose connections elements of the arc `Ingress` stand, by slot.
const INGRESS: [(&str, &str); 5] = [
    ("ip4_input", "forward"),
    ("ip4_input", "options"),
    ("ip4_input", "error"),
    ("ip6_input", "forward"),
    ("ip6_input", "error"),
];

/// Elements of the arc `Hairpin`, whose output `turn` leads back to their last input, by slot.
const HAIRPIN: [(&str, u32); 2] = [("ip4_next_hop", 2), ("ip6_next_hop", 1)];

/// The only element that sends IPv4 packets to the arc `Egress`; all others send IPv6.
const EGRESS4: &str = "ip4_next_hop";

fn numbered(configuration: &Configuration, name: &str) -> u32 {
    let found = configuration.find(name).expect("an element of the built-in graph");
    u32::try_from(found).expect("elements are bounded")
}

fn output(class: &ClassSpec, name: &str) -> u32 {
    let found = class.output_names.iter().position(|known| *known == name);
    u32::try_from(found.expect("an output of the element")).expect("outputs are few")
}

/// Where elements of an arc stand: outputs of the configuration, by the slot that they are for.
fn points(configuration: &mut Configuration, arc: FeatureArc) -> Vec<Point> {
    let slots = |count: usize| 0..u32::try_from(count).expect("slots are few");
    match arc {
        FeatureArc::Ingress => {
            let point = |((element, name), input): (&(&str, &str), u32)| {
                let from = numbered(configuration, element);
                let class = &configuration.elements()[from as usize].class;
                Point { from, output: output(class, name), input }
            };
            INGRESS.iter().zip(slots(INGRESS.len())).map(point).collect()
        }
        FeatureArc::Hairpin => {
            let mut points = Vec::new();
            for ((element, back), input) in HAIRPIN.iter().zip(slots(HAIRPIN.len())) {
                let from = numbered(configuration, element);
                let turn = output(&configuration.elements()[from as usize].class, "turn");
                configuration.connect((from, turn), (from, *back));
                points.push(Point { from, output: turn, input });
            }
            points
        }
        FeatureArc::Egress => {
            let (transmit, v4) =
                (numbered(configuration, TRANSMIT), numbered(configuration, EGRESS4));
            let leaves = configuration.connections().iter().filter(|wire| wire.to == transmit);
            let point = |wire: &crate::language::Connection| Point {
                from: wire.from,
                output: wire.output,
                input: u32::from(wire.from != v4),
            };
            leaves.map(point).collect()
        }
    }
}

/// Puts an element into the connections of these points, and connects its further outputs.
fn put(configuration: &mut Configuration, stage: &Stage, points: &[Point]) {
    let class = stage.element.spec;
    let element = configuration.add_element(stage.name, class);
    configuration.splice(element, points);
    for (name, number) in class.output_names.iter().zip(0..) {
        let passes = points.iter().any(|point| point.input == number);
        let exit = EXITS.iter().find(|(known, ..)| known == name).filter(|_| !passes);
        if let Some((_, to, input)) = exit {
            let to = numbered(configuration, to);
            configuration.connect((element, number), (to, *input));
        }
    }
}

/// Element whose output 0 has what ports receive, and the output.
const RECEIVED: (&str, u32) = ("FromPorts@1", 0);

/// Puts added elements in, and connects those of their outputs that lead to (`sent` is set) or not to elements that packets
/// pass last.
fn add(configuration: &mut Configuration, addition: &Addition, sent: bool) {
    let find = |name: &str| addition.elements.iter().find(|(known, _)| *known == name);
    let class = |name: &str| find(name).expect("an added element").1.spec;
    if sent {
        // Behind all features: they see packets before they are encapsulated.
        let element = numbered(configuration, addition.sent);
        let transmit = numbered(configuration, TRANSMIT);
        let leaves = configuration.connections().iter().filter(|wire| wire.to == transmit);
        let points: Vec<Point> =
            leaves.map(|wire| Point { from: wire.from, output: wire.output, input: 0 }).collect();
        configuration.splice(element, &points);
    } else {
        for (name, class) in addition.elements {
            configuration.add_element(name, class.spec);
        }
        let element = numbered(configuration, addition.received);
        let (from, output) = (numbered(configuration, RECEIVED.0), RECEIVED.1);
        configuration.splice(element, &[Point { from, output, input: 0 }]);
    }
    for (from, name, to, input) in addition.wires {
        if sent == (*to == TRANSMIT || *to == addition.sent) {
            let wire = (numbered(configuration, from), output(&class(from), name));
            configuration.connect(wire, (numbered(configuration, to), *input));
        }
    }
}

/// The configuration of a router with these features, and with elements of a crate above.
fn configuration(
    states: &FeatureStates,
    addition: Option<&Addition>,
) -> Result<Configuration, Errors> {
    let mut configuration = Language::new(ELEMENTS).read("router.click", TEXT)?;
    if let Some(addition) = addition {
        add(&mut configuration, addition, false);
    }
    for arc in FeatureArc::ALL {
        let stages = states.stages(arc);
        if stages.is_empty() {
            continue;
        }
        let points = points(&mut configuration, arc);
        // The last first: each takes the place right behind the points.
        stages.iter().rev().for_each(|stage| put(&mut configuration, stage, &points));
    }
    if let Some(addition) = addition {
        add(&mut configuration, addition, true);
    }
    Ok(configuration)
}

/// The text of the graph of a router with these features.
///
/// # Panics
/// Never with the registries of this crate: its tests build it.
pub fn text_with(states: &FeatureStates) -> String {
    configuration(states, None).expect("the built-in graph is whole").flatconfig()
}

/// The graph of a router whose configuration is empty.
///
/// # Errors
/// Never with the registries of this crate: its tests build it.
pub fn plan() -> Result<Plan, Errors> {
    let states = FeatureStates::make(&FeatureSettings::default(), None);
    plan_with(None, &states.expect("usual settings name no file"))
}

/// The graph of a router with these features; workers may take it over from the one before.
///
/// # Errors
/// As [`plan`].
pub fn plan_with(before: Option<&Plan>, states: &FeatureStates) -> Result<Plan, Errors> {
    plan_of(before, &configuration(states, None)?, states)
}

/// The graph of a router with these features and with elements of a crate above.
///
/// # Errors
/// As [`plan`].
///
/// # Panics
/// When the addition names elements or outputs that there are not.
pub fn plan_added(
    before: Option<&Plan>,
    states: &FeatureStates,
    addition: &Addition,
) -> Result<Plan, Errors> {
    let configuration = configuration(states, Some(addition))?;
    let added = addition.elements.iter();
    let added = added.map(|(_, class)| (class.spec.name, Some(addition.state.clone())));
    let given: Vec<_> = given(states).chain(added).collect();
    Plan::given(before, &configuration, addition.registry, &given)
}

/// The plan of a graph from a file: elements of features have the router's states.
///
/// # Errors
/// As [`Plan::after`].
pub fn plan_of(
    before: Option<&Plan>,
    configuration: &Configuration,
    states: &FeatureStates,
) -> Result<Plan, Errors> {
    Plan::given(before, configuration, ELEMENTS.into(), &given(states).collect::<Vec<_>>())
}

/// States of the elements of features, by class. Without a state: that of the graph before does not hold any more.
fn given(states: &FeatureStates) -> impl Iterator<Item = (&'static str, Option<Kept>)> {
    FEATURES.iter().flat_map(|row| {
        let state = states.find(row.name).map(|state| state.clone() as Kept);
        row.stages.iter().map(move |stage| (stage.element.spec.name, state.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::Value;
    use crate::feature::row::{Given, GivenInterface};
    use crate::frame::{DropReason, Meta};
    use crate::graph::Graph;
    use crate::testing::{Bench, World, batch, frame_v4, frame_v6, neighbor_mac};
    use fingerpost_route::{FibLookup, ForwardingAction, ResolveRequest, RouteMtu};

    struct Router {
        bench: Bench,
        graph: Graph,
    }

    /// States of features that are in use somehow.
    fn states(names: &[&str]) -> FeatureStates {
        let value = |text: &str| Some(Value::Text(text.to_owned()));
        let (settings, mistakes) = FeatureSettings::read(|row| {
            let used = names.contains(&row.name);
            let value = match row.name {
                "redirects" if !used => Some(Value::Boolean(false)),
                "urpf" if used => value("strict"),
                _ => None,
            };
            let interface =
                GivenInterface { name: "wan".into(), place: "interface.0".into(), value };
            let list = [("name", "x"), ("action", "drop")];
            let list = list.map(|(key, word)| (key.to_owned(), Value::Text(word.to_owned())));
            let item = ("source_filter.0".to_owned(), Value::Table(list.to_vec()));
            let items = Some(item).filter(|_| used && row.name == "source-filter");
            Given { interfaces: vec![interface], items: items.into_iter().collect() }
        });
        assert_eq!(mistakes, []);
        FeatureStates::make(&settings, None).unwrap()
    }

    fn router(world: &World) -> Router {
        let bench = Bench::new(world);
        let graph = Graph::new(&plan().unwrap(), &bench.pool);
        Router { bench, graph }
    }

    impl Router {
        /// Runs frames that port 0 received; what was sent since, by port.
        fn run(&mut self, frames: &[Vec<u8>]) -> Vec<(u16, Vec<u8>, Meta)> {
            let frames = batch(&self.bench.pool, 0, frames.iter().map(|f| &f[..]));
            self.graph.receive(0, frames, &mut self.bench.round());
            std::mem::take(&mut self.bench.sent.frames)
        }

        fn poll(&mut self) -> Vec<(u16, Vec<u8>, Meta)> {
            self.graph.poll(&mut self.bench.round());
            std::mem::take(&mut self.bench.sent.frames)
        }

        fn dropped(&self, reason: DropReason) -> u64 {
            self.bench.counters.dropped[reason as usize].read()
        }
    }

    #[test]
    fn both_families_cross_in_order() {
        let mut world = World::new();
        world.neighbor(4, 1);
        world.neighbor(6, 2);
        world.action("192.0.2.0/24", ForwardingAction::Adjacency(4));
        world.action("2001:db8:5::/48", ForwardingAction::Adjacency(6));
        let mut router = router(&world);
        let v4 = |n| frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[n; 30]);
        let v6 = |n| frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[n; 30]);
        let stray = frame_v4("10.0.0.9", "198.51.100.1", 64, 17, &[]);
        let sent = router.run(&[v4(1), v6(2), v4(3), stray, v6(4), v4(5)]);
        let seen: Vec<_> = sent.iter().map(|f| (f.0, f.1[5], *f.1.last().unwrap())).collect();
        assert_eq!(seen, [(1, 4, 1), (1, 4, 3), (1, 4, 5), (2, 6, 2), (2, 6, 4)]);
        assert_eq!(router.dropped(DropReason::NoRoute), 1);
    }

    #[test]
    fn packets_wait_for_a_neighbor_in_another_vrf() {
        let (mut world, mut vrf) = (World::new(), World::new());
        world.action("10.0.1.0/24", ForwardingAction::Vrf(2, RouteMtu::NONE));
        world.action("2001:db8:1::/48", ForwardingAction::Vrf(2, RouteMtu::NONE));
        let on_link = world.hop(ForwardingAction::Glean(1));
        vrf.route("10.0.1.0/24", on_link);
        vrf.route("2001:db8:1::/48", on_link);
        world.ports.ports[2].as_mut().unwrap().fib = 1;
        world.ports.many = true;
        let with = |world: &World, vrf: &World| {
            let (mut forwarding, other) = (world.forwarding(), vrf.forwarding());
            let (v4, v6) = (other.v4.clone(), other.v6.clone());
            forwarding.others = [FibLookup { table: 7.into(), v4, v6 }].into();
            forwarding
        };
        let mut router = router(&world);
        router.bench.forwarding = with(&world, &vrf);
        let v4 = frame_v4("10.0.0.9", "10.0.1.7", 64, 17, &[1]);
        let v6 = frame_v6("2001:db8::9", "2001:db8:1::7", 64, 17, &[2]);
        assert_eq!(router.run(&[v4, v6]).len(), 0);
        let neighbor = |addr: &str| {
            let addr = addr.parse().unwrap();
            ResolveRequest::Neighbor { port: 1, addr, ingress: 0 }
        };
        assert_eq!(router.bench.requests, ["10.0.1.7", "2001:db8:1::7"].map(neighbor));
        assert_eq!((router.poll().len(), router.graph.held().received), (0, 2));
        world.neighbor(4, 1);
        let host = world.hop(ForwardingAction::Adjacency(4));
        vrf.route("10.0.1.7/32", host);
        vrf.route("2001:db8:1::7/128", host);
        router.bench.forwarding = with(&world, &vrf);
        let mut sent = router.poll();
        sent.sort_by_key(|sent| sent.1[12..14].to_vec());
        assert_eq!((sent.len(), router.graph.held().received), (2, 0));
        assert_eq!((&sent[0].1[..6], sent[0].1[22]), (&neighbor_mac(4).0[..], 63));
        assert_eq!((&sent[1].1[..6], sent[1].1[21]), (&neighbor_mac(4).0[..], 63));
    }

    #[test]
    fn packets_wait_for_a_neighbor_and_go_on() {
        let mut world = World::new();
        world.action("10.0.1.0/24", ForwardingAction::Glean(1));
        world.action("2001:db8:5::/48", ForwardingAction::Adjacency(6));
        world.hops.set_unresolved(6, 2, false);
        let mut router = router(&world);
        let v4 = frame_v4("10.0.0.9", "10.0.1.7", 64, 17, &[1]);
        let v6 = frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[2]);
        assert_eq!(router.run(&[v4, v6]).len(), 0);
        assert_eq!(router.graph.held().received, 2);
        let want = [
            ResolveRequest::Neighbor { port: 1, addr: [10, 0, 1, 7].into(), ingress: 0 },
            ResolveRequest::Adjacency(6),
        ];
        assert_eq!(router.bench.requests, want);
        world.neighbor(4, 1);
        world.neighbor(6, 2);
        world.action("10.0.1.7/32", ForwardingAction::Adjacency(4));
        router.bench.forwarding = world.forwarding();
        let mut sent = router.poll();
        sent.sort_by_key(|sent| sent.1[12..14].to_vec());
        assert_eq!((sent.len(), router.graph.held().received), (2, 0));
        assert_eq!((&sent[0].1[..6], sent[0].1[22]), (&neighbor_mac(4).0[..], 63));
        assert_eq!((&sent[1].1[..6], sent[1].1[21]), (&neighbor_mac(6).0[..], 63));
        assert_eq!(router.bench.pool.free(), router.bench.pool.frames());
    }

    #[test]
    fn no_output_leads_nowhere() {
        let with = |names: &[&str]| plan_with(None, &states(names)).unwrap();
        let (plain, all) = (with(&[]), with(&["redirects", "urpf", "source-filter"]));
        let (checks, filters) = (with(&["urpf"]), with(&["source-filter"]));
        let sizes = [&plain, &checks, &filters, &all].map(|plan| plan.nodes().len());
        let added = sizes.map(|nodes| nodes - plain.nodes().len());
        assert_eq!(added, [0, 1, 1, 3], "nothing else is new");
        let before = |plan: &Plan, to: &str| {
            let to = plan.find(to);
            let leads = |edge: &Option<crate::graph::plan::Edge>| edge.map(|edge| edge.node) == to;
            let nodes = plan.nodes().iter().filter(|node| node.outputs.iter().any(leads));
            nodes.map(|node| node.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(before(&all, "source_filter"), ["ip4_input", "ip6_input"]);
        assert_eq!(before(&all, "urpf"), ["source_filter"]);
        for (from, to) in
            [("urpf", "ip4_lookup"), ("redirects", "ip6_lookup"), ("redirects", "transmit")]
        {
            assert!(before(&all, to).contains(&from.to_owned()), "{from} leads to {to}");
        }
        assert_eq!(before(&all, "redirects"), ["ip4_next_hop", "ip6_next_hop"]);
        assert_eq!(before(&filters, "ip4_options"), ["source_filter"]);
        for plan in [plain, checks, filters, all] {
            assert!(plan.nodes().iter().all(|node| node.outputs.iter().all(Option::is_some)));
            assert_eq!((plan.devices(), plan.entry(7)), (&[][..], plan.find("FromPorts@1")));
        }
    }

    #[test]
    fn a_packet_that_fails_urpf_causes_no_icmp_error() {
        let mut world = World::new();
        world.neighbor(3, 0);
        world.neighbor(4, 1);
        world.action("10.0.0.0/24", ForwardingAction::Adjacency(3));
        world.action("192.0.2.0/24", ForwardingAction::Adjacency(4));
        world.action("2001:db8:0::/64", ForwardingAction::Adjacency(3));
        world.action("2001:db8:5::/48", ForwardingAction::Adjacency(4));
        world.ports.ports[0].as_mut().unwrap().urpf = Some(fingerpost_route::UrpfMode::Strict);
        let bench = Bench::new(&world);
        let graph = Graph::new(&plan_with(None, &states(&["urpf"])).unwrap(), &bench.pool);
        let mut router = Router { bench, graph };
        // Plain, with a used-up TTL, without a route back.
        let frames = |v4: &str, v6: &str| {
            [1, 64]
                .map(|ttl| frame_v4(v4, "192.0.2.1", ttl, 17, &[0; 30]))
                .into_iter()
                .chain([1, 64].map(|ttl| frame_v6(v6, "2001:db8:5::1", ttl, 17, &[0; 30])))
        };
        let forged = frames("192.0.2.66", "2001:db8:5::66").chain(frames("8.8.8.8", "2001:db9::1"));
        let sent = router.run(&forged.collect::<Vec<_>>());
        assert_eq!((sent.len(), router.dropped(DropReason::Urpf)), (0, 8));
        let sent = router.run(&frames("10.0.0.9", "2001:db8::9").collect::<Vec<_>>());
        assert_eq!((sent.len(), router.dropped(DropReason::TtlExpired)), (4, 2));
        assert_eq!(router.bench.pool.free(), router.bench.pool.frames());
    }

    #[test]
    fn limits_are_those_asked_for() {
        let mut world = World::new();
        world.neighbor(3, 0);
        world.action("10.0.0.0/24", ForwardingAction::Adjacency(3));
        world.action("2001:db8:0::/64", ForwardingAction::Adjacency(3));
        let bench = Bench::new(&world);
        let many = "1000000000 1000000";
        let limits = format!("UNREACHABLE 0 0, TIME_EXCEEDED {many}, ALL {many}");
        let text = TEXT
            .replace("ICMP4Errors", &format!("ICMP4Errors({limits})"))
            .replace("ICMP6Errors", &format!("ICMP6Errors({limits})"));
        let plan = Plan::read("limits", &text, ELEMENTS).unwrap();
        let mut router = Router { graph: Graph::new(&plan, &bench.pool), bench };
        let v4 = |ttl| frame_v4("10.0.0.9", "192.0.2.1", ttl, 17, &[0; 8]);
        let v6 = |hops| frame_v6("2001:db8::9", "2001:db8:5::1", hops, 17, &[0; 8]);
        let mut sent = |frame: &[u8]| {
            (0..10).map(|_| router.run(&vec![frame.to_vec(); 200]).len()).sum::<usize>()
        };
        assert_eq!([sent(&v4(1)), sent(&v4(9)), sent(&v6(1)), sent(&v6(9))], [2000, 0, 2000, 0]);
    }

    #[test]
    fn errors_go_back_by_the_path() {
        let mut world = World::new();
        world.neighbor(3, 0);
        world.action("10.0.0.0/24", ForwardingAction::Adjacency(3));
        world.action("2001:db8:0::/64", ForwardingAction::Adjacency(3));
        let mut router = router(&world);
        let sent = router.run(&[
            frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &[0; 30]),
            frame_v4("10.0.0.9", "192.0.2.1", 1, 17, &[0; 30]),
            frame_v6("2001:db8::9", "2001:db8:5::1", 64, 17, &[0; 30]),
            frame_v6("2001:db8::9", "2001:db8:5::1", 1, 17, &[0; 30]),
            // To a source without a route, and about an error: nothing.
            frame_v4("172.16.0.1", "192.0.2.1", 64, 17, &[0; 30]),
            frame_v4("10.0.0.9", "192.0.2.1", 64, 1, &[3, 1, 0, 0, 0, 0, 0, 0]),
        ]);
        let v4 = |f: &[u8]| (f[22], f[23], f[34], f[35], f[30..34].to_vec());
        let v6 = |f: &[u8]| (f[21], f[20], f[54], f[55]);
        let to = vec![10, 0, 0, 9];
        assert_eq!(sent.len(), 4);
        // Depth first, the last output first filled: order between the two kinds is not promised.
        let mut fours: Vec<_> =
            sent.iter().filter(|f| f.1[12..14] == [8, 0]).map(|f| v4(&f.1)).collect();
        fours.sort();
        assert_eq!(fours, [(64, 1, 3, 0, to.clone()), (64, 1, 11, 0, to)]);
        let mut sixes: Vec<_> = sent.iter().filter(|f| f.1[12] == 0x86).map(|f| v6(&f.1)).collect();
        sixes.sort_unstable();
        assert_eq!(sixes, [(64, 58, 1, 0), (64, 58, 3, 0)]);
        let c = &router.bench.counters;
        assert_eq!((c.generated.read(), c.dropped_total()), (4, 6));
        assert_eq!(router.bench.pool.free(), router.bench.pool.frames());
    }

    #[test]
    fn fragments_leave_by_the_action_of_the_whole_packet() {
        let mut world = World::new();
        for (index, port) in [(4, 1), (5, 2), (6, 1), (7, 2)] {
            world.neighbor(index, port);
        }
        let group = world.group(&[4, 5, 6, 7].map(ForwardingAction::Adjacency));
        world.route("192.0.2.0/24", group);
        let mut router = router(&world);
        let mut cut = 0;
        for port in 0..64 {
            let mut payload = vec![port; 1400];
            payload[..4].copy_from_slice(&[4, port, 0, 53]);
            let whole = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &payload);
            payload.truncate(100);
            let small = frame_v4("10.0.0.9", "192.0.2.1", 64, 17, &payload);
            let action = router.run(&[small])[0].1[5];
            let sent = router.run(&[whole]);
            assert!(sent.iter().all(|f| f.1[5] == action && f.1[22] == 63), "{action}");
            assert_eq!(sent.len(), if action.is_multiple_of(2) { 1 } else { 2 });
            cut += usize::from(sent.len() == 2);
        }
        assert!((16..48).contains(&cut), "{cut}");
        assert_eq!(router.bench.counters.generated.read(), cut as u64);
    }
}
