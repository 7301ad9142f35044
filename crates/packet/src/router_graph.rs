//! The graph of the built-in router: every element of the path, wired. `router.click` has it.
//!
//! Where a port has the sources of its packets checked, or filtered by lists, the elements for it stand behind those that
//! check headers: filters first, so that what they drop asks no route table. A router without such a port has no element
//! for it.

use std::sync::Arc;

use crate::element::{ELEMENTS, ip_source_filter};
use crate::graph::{Configuration, Errors, Language, Plan};
use crate::source_filters::SourceFilters;

/// Its text, in Click's language.
pub const TEXT: &str = include_str!("router.click");

/// What is added where sources are checked.
const CHECKS: &str = "
// The sources of what comes in by ports that ask for it.
ip4_input [forward] -> ip4_reverse_path :: IP4ReversePath;
ip4_input [options] -> [1] ip4_reverse_path;
ip4_input [error] -> [2] ip4_reverse_path;
ip6_input [forward] -> ip6_reverse_path :: IP6ReversePath;
ip6_input [error] -> [1] ip6_reverse_path;
";

/// What is added where there are filters.
const FILTERS: &str = "
// The lists that sources of what comes in are on.
ip4_input [forward] -> source_filter :: IPSourceFilter;
ip4_input [options] -> [1] source_filter;
ip4_input [error] -> [2] source_filter;
ip6_input [forward] -> [3] source_filter;
ip6_input [error] -> [4] source_filter;
";

/// What is asked about sources, besides what every router does.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Some port has them checked by routes.
    pub checked: bool,
    /// Lists that they may be on.
    pub filters: Option<Arc<SourceFilters>>,
}

/// The text for a router that looks at sources.
pub fn text_with(sources: &Sources) -> String {
    let mut text = TEXT.to_owned();
    if sources.checked {
        for family in ["ip4", "ip6"] {
            let (input, check) = (format!("{family}_input ["), format!("{family}_reverse_path ["));
            text = text.replace(&input, &check);
        }
        text += CHECKS;
    }
    if sources.filters.is_some() {
        for family in ["4", "6"] {
            for way in ["forward", "options", "error"] {
                let input = format!("ip{family}_input [{way}]");
                text = text.replace(&input, &format!("source_filter [{way}{family}]"));
            }
        }
        text += FILTERS;
    }
    text
}

/// The built-in router.
///
/// # Errors
/// Never with the registry of this crate: its tests build it.
pub fn plan() -> Result<Plan, Errors> {
    plan_with(None, &Sources::default())
}

/// The same for a router that looks at sources, and may go on where another graph ends.
///
/// # Errors
/// As [`plan`].
pub fn plan_with(before: Option<&Plan>, sources: &Sources) -> Result<Plan, Errors> {
    let read = Language::new(ELEMENTS).read("router.click", &text_with(sources))?;
    plan_of(before, &read, sources)
}

/// Another graph in its place: elements for filters have those of the router.
///
/// # Errors
/// As [`Plan::after`].
pub fn plan_of(
    before: Option<&Plan>,
    configuration: &Configuration,
    sources: &Sources,
) -> Result<Plan, Errors> {
    // Those of the graph before may be none any more.
    let given = sources.filters.clone().or_else(|| before.map(|_| Arc::default()));
    let given = given.map(|filters| (ip_source_filter::NAME, filters as _));
    Plan::given(before, configuration, ELEMENTS.into(), given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Meta;
    use crate::drops::DropReason;
    use crate::graph::Graph;
    use crate::testing::{Bench, World, batch, frame_v4, frame_v6, neighbor_mac};
    use fingerpost_route::{ForwardingAction, ResolveRequest};

    struct Router {
        bench: Bench,
        graph: Graph,
    }

    fn router(world: &World) -> Router {
        let bench = Bench::new(world);
        let graph = Graph::new(&plan().unwrap(), &bench.pool);
        Router { bench, graph }
    }

    impl Router {
        /// Runs frames that came in by port 0; what was sent since, by port.
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
        assert_eq!(router.bench.asks, want);
        world.neighbor(4, 1);
        world.neighbor(6, 2);
        world.action("10.0.1.7/32", ForwardingAction::Adjacency(4));
        router.bench.forwarding = world.forwarding();
        let sent = router.poll();
        assert_eq!((sent.len(), router.graph.held().received), (2, 0));
        assert_eq!((&sent[0].1[..6], sent[0].1[22]), (&neighbor_mac(4).0[..], 63));
        assert_eq!((&sent[1].1[..6], sent[1].1[21]), (&neighbor_mac(6).0[..], 63));
        assert_eq!(router.bench.pool.free(), router.bench.pool.frames());
    }

    #[test]
    fn no_output_leads_nowhere() {
        let with = |checked, filters: bool| {
            let filters = filters.then(Arc::default);
            plan_with(None, &Sources { checked, filters }).unwrap()
        };
        let (plain, all) = (plan().unwrap(), with(true, true));
        let (checks, filters) = (with(true, false), with(false, true));
        let sizes = [&plain, &checks, &filters, &all].map(|plan| plan.nodes().len());
        let added = sizes.map(|nodes| nodes - plain.nodes().len());
        assert_eq!(added, [0, 2, 1, 3], "nothing else is new");
        let before = |plan: &Plan, to: &str| {
            let to = plan.find(to);
            let leads = |edge: &Option<crate::graph::plan::Edge>| edge.map(|edge| edge.node) == to;
            let nodes = plan.nodes().iter().filter(|node| node.outputs.iter().any(leads));
            nodes.map(|node| node.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(before(&all, "source_filter"), ["ip4_input", "ip6_input"]);
        assert_eq!(before(&all, "ip4_reverse_path"), ["source_filter"]);
        assert_eq!(before(&filters, "ip4_options"), ["source_filter"]);
        for plan in [plain, checks, filters, all] {
            assert!(plan.nodes().iter().all(|node| node.outputs.iter().all(Option::is_some)));
            assert_eq!((plan.devices(), plan.entry(7)), (&[][..], plan.find("FromPorts@1")));
        }
    }

    #[test]
    fn who_may_not_come_in_here_is_told_nothing() {
        let mut world = World::new();
        world.neighbor(3, 0);
        world.neighbor(4, 1);
        world.action("10.0.0.0/24", ForwardingAction::Adjacency(3));
        world.action("192.0.2.0/24", ForwardingAction::Adjacency(4));
        world.action("2001:db8:0::/64", ForwardingAction::Adjacency(3));
        world.action("2001:db8:5::/48", ForwardingAction::Adjacency(4));
        world.ports.ports[0].as_mut().unwrap().reverse_path =
            Some(fingerpost_route::ReversePath::Strict);
        let bench = Bench::new(&world);
        let checks = Sources { checked: true, ..Sources::default() };
        let graph = Graph::new(&plan_with(None, &checks).unwrap(), &bench.pool);
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
        assert_eq!((sent.len(), router.dropped(DropReason::ReversePath)), (0, 8));
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
