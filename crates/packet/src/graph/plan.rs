//! A plan: a flat table of nodes whose outputs are static edges, by index.
//!
//! Names exist while it is built; a running graph knows numbers only. Edges that close a cycle (an
//! ICMP error goes back to the lookup) are marked, so that the run counts rounds there and nowhere
//! else: every cycle has at least one such edge. A cycle of elements that pull from each other would never end, and is
//! refused.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use fingerpost_lpm::NextHopId;

use super::live::{Live, task_handlers};
use super::{
    Around, Device, Devices, Element, ElementClass, Ending, Installed, Instance, Kept, Made,
    Receives, Registry, Relay, Setup, Shown,
};
use crate::handler::Handlers;
use crate::handler::control_socket::SocketRequest;
use crate::language::{
    Codes, Configuration, Connection, Declared, Errors, Language, Problems, Processing, Report,
    addresses, annotations, ports, scoped, short,
};
use crate::route_table::FoundRoute;
use crate::route_table::gateways::Gateways;

/// A node's number in its plan.
pub type NodeId = u16;

/// Most nodes of a plan: the range of their numbers.
const MAX_NODES: usize = 1 << 16;

/// Where packets of an output go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The node that takes them.
    pub node: NodeId,
    /// Input of the node.
    pub input: u16,
    /// It closes a cycle.
    pub back: bool,
}

/// Output that an input pulls from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upstream {
    /// Node that is pulled from.
    pub node: NodeId,
    /// Output of the node.
    pub output: u16,
    /// Input that the node pulls from in turn, to process what comes; `None` where its element
    /// answers itself.
    pub through: Option<u16>,
}

/// One element of a plan.
#[derive(Clone)]
pub struct Node {
    /// Its own name, for counters.
    pub name: Arc<str>,
    /// What it is.
    pub class: &'static ElementClass,
    /// Pushing outputs by number; `None` where nothing is wired.
    pub outputs: Vec<Option<Edge>>,
    /// Pulling inputs by number.
    pub inputs: Vec<Option<Upstream>>,
    /// Queues behind its outputs that hold it back.
    pub(super) waits_for: Vec<NodeId>,
    made: Made,
    kept: Option<Kept>,
}

impl Node {
    /// A new instance; each worker has its own.
    pub(super) fn element(&self, instance: Instance) -> Box<dyn Element> {
        (self.made.make)(instance)
    }

    /// It has a turn in each round.
    pub(super) fn polled(&self) -> bool {
        self.made.polled
    }

    /// Input that a pulled output pulls from, where the element has no part in that.
    pub(super) fn relay(&self) -> Option<&Relay> {
        self.made.relay.as_ref()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) -> {:?}", self.name, self.class.spec.name, self.outputs)
    }
}

/// Checked wiring, ready to be run by any number of workers.
#[derive(Clone, Debug)]
pub struct Plan {
    nodes: Vec<Node>,
    /// Rows that it was planned with.
    registry: Registry,
    devices: Vec<Device>,
    /// Node that packets of a port enter, by port number.
    entries: Vec<Option<NodeId>>,
    /// Route tables, by node.
    tables: HashMap<usize, Shown>,
    /// Where those of other ports do.
    rest: Option<NodeId>,
    ending: Ending,
    installed: Installed,
    gateways: Arc<Gateways>,
    warnings: Vec<Report>,
}

impl Plan {
    /// Configures the elements of a configuration, each by its class in the registry, and wires them.
    ///
    /// # Errors
    /// All that is wrong with their arguments, and what cannot be run.
    pub fn of(
        configuration: &Configuration,
        registry: impl Into<Registry>,
    ) -> Result<Self, Errors> {
        Self::after(None, configuration, registry)
    }

    /// Plan that replaces `before`: devices keep their numbers, and elements of the same name and
    /// class what they share with their handlers.
    ///
    /// # Errors
    /// As [`Plan::of`].
    pub fn after(
        before: Option<&Self>,
        configuration: &Configuration,
        registry: impl Into<Registry>,
    ) -> Result<Self, Errors> {
        Self::given(before, configuration, registry.into(), &[])
    }

    /// A plan whose elements of certain classes, by name, get a state from outside, or none: not that of the plan
    /// before.
    ///
    /// # Errors
    /// As [`Plan::of`].
    pub(crate) fn given(
        before: Option<&Self>,
        configuration: &Configuration,
        registry: Registry,
        given: &[(&'static str, Option<Kept>)],
    ) -> Result<Self, Errors> {
        let mut problems = Problems::default();
        let planned = Planner::plan(before, configuration, registry, given, &mut problems);
        match planned.filter(|_| problems.is_empty()) {
            Some(plan) => Ok(Self { warnings: configuration.warnings(&problems), ..plan }),
            None => Err(configuration.errors(problems)),
        }
    }

    /// Reads a configuration and plans it. `name` is what messages call it.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn read(name: &str, text: &str, registry: impl Into<Registry>) -> Result<Self, Errors> {
        let registry = registry.into();
        Self::of(&Language::new(registry.elements).read(name, text)?, registry)
    }

    /// What may not be meant as it is written.
    pub fn warnings(&self) -> &[Report] {
        &self.warnings
    }

    /// The nodes, by number.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Nodes of this plan and of the one that it replaces, for each pair of the same name and class.
    pub(super) fn heirs(&self, before: &Self) -> Vec<(NodeId, NodeId)> {
        let names: HashMap<&str, usize> =
            before.nodes.iter().enumerate().map(|(at, node)| (&*node.name, at)).collect();
        let heir = |(at, node): (usize, &Node)| {
            let old = *names.get(&*node.name)?;
            let same = before.nodes[old].class.spec.name == node.class.spec.name;
            same.then(|| (numbered(at), numbered(old)))
        };
        self.nodes.iter().enumerate().filter_map(heir).collect()
    }

    fn names(&self) -> HashMap<&str, &Node> {
        self.nodes.iter().map(|node| (&*node.name, node)).collect()
    }

    /// The node of a name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let at = self.nodes.iter().position(|node| &*node.name == name)?;
        NodeId::try_from(at).ok()
    }

    /// The devices that it names, by the numbers of their ports.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Packets that its elements may keep, in each worker.
    pub fn holds(&self) -> usize {
        self.nodes.iter().fold(0, |sum, node| sum.saturating_add(node.made.holds))
    }

    /// Control sockets that it requests.
    pub fn control_sockets(&self) -> impl Iterator<Item = &SocketRequest> {
        self.nodes.iter().filter_map(|node| node.made.control_socket.as_ref())
    }

    /// Its handlers, as they are for `configuration`, which it was planned from.
    ///
    /// # Panics
    /// When it was planned from another one.
    pub fn handlers(&self, configuration: Configuration) -> Handlers {
        let elements = configuration.elements();
        let given = |(node, element): (&Node, &Declared)| {
            let mut handlers = node.made.handlers.clone();
            let pulls = node.inputs.iter().any(Option::is_some);
            if node.made.task || node.made.polled && (pulls || node.made.waits_for_room) {
                handlers.extend(task_handlers(&handlers));
            }
            if node.made.live.is_empty() {
                return handlers;
            }
            let live = Live {
                class: node.class,
                args: node.made.live,
                config: element.config.as_str().to_owned(),
                inputs: element.inputs,
                outputs: element.outputs,
                gateways: self.gateways.clone(),
            };
            live.handlers(handlers)
        };
        let given = self.nodes.iter().zip(elements).map(given).collect();
        Handlers::new(Arc::new(configuration), given, self.registry.elements)
    }

    /// Whether an element requested the end.
    pub fn is_stopped(&self) -> bool {
        self.ending.is_reached()
    }

    /// Where the handlers are put that its elements may call.
    pub fn installed(&self) -> &Installed {
        &self.installed
    }

    /// Requests the end, as an element may.
    pub fn request_stop(&self) {
        self.ending.request();
    }

    /// What the route table of a node finds at this moment for a packet: by the gateway that is noted of it, where one
    /// is, or else by its destination.
    pub fn route_of(&self, node: NodeId, noted: NextHopId, dst: IpAddr) -> Option<FoundRoute> {
        let table = self.tables.get(&usize::from(node))?.get()?;
        table.found(self.gateways.get(noted).unwrap_or(dst))
    }

    /// Whether a node has a route table.
    pub fn has_routes(&self, node: NodeId) -> bool {
        self.tables.get(&usize::from(node)).is_some_and(|table| table.get().is_some())
    }

    /// Where packets enter that this port received.
    pub fn entry(&self, port: u16) -> Option<NodeId> {
        self.entries.get(usize::from(port)).copied().flatten().or(self.rest)
    }
}

struct Planner<'a> {
    /// Nodes of the plan before this one.
    before: HashMap<&'a str, &'a Node>,
    /// States from outside, by the name of a class.
    given: &'a [(&'static str, Option<Kept>)],
    configuration: &'a Configuration,
    problems: &'a mut Problems,
    registry: Registry,
    devices: Devices,
    /// Route tables by element.
    tables: HashMap<usize, Shown>,
    /// What elements share with those that name them.
    shared: HashMap<usize, Kept>,
    gateways: Arc<Gateways>,
    ending: Ending,
    installed: Installed,
    nodes: Vec<Node>,
    entries: Vec<Option<NodeId>>,
    rest: Option<NodeId>,
}

impl<'a> Planner<'a> {
    fn plan(
        before: Option<&'a Plan>,
        configuration: &'a Configuration,
        registry: Registry,
        given: &'a [(&'static str, Option<Kept>)],
        problems: &'a mut Problems,
    ) -> Option<Plan> {
        let elements = configuration.elements();
        if let Some(first) = elements.get(MAX_NODES) {
            problems.add(first.place, format!("more than {MAX_NODES} elements"));
            return None;
        }
        addresses::declare(configuration, registry.interfaces);
        ports::declare(configuration);
        annotations::declare(configuration);
        let known: HashMap<&str, _> =
            registry.elements.iter().map(|row| (row.spec.name, row)).collect();
        let mut planner = Self {
            configuration,
            problems,
            registry,
            devices: Devices::after(before.map_or(&[], |plan| plan.devices())),
            tables: HashMap::new(),
            shared: HashMap::new(),
            before: before.map(|plan| plan.names()).unwrap_or_default(),
            given,
            // Packets that go on into the new graph carry numbers of the old one.
            gateways: before.map(|plan| plan.gateways.clone()).unwrap_or_default(),
            ending: Ending::default(),
            installed: Installed::default(),
            nodes: Vec::with_capacity(elements.len()),
            entries: Vec::new(),
            rest: None,
        };
        for (number, element) in elements.iter().enumerate() {
            let Some(class) = known.get(element.class.name) else {
                let words = format!("class `{}` cannot be run", element.class.name);
                planner.problems.add(element.place, words);
                continue;
            };
            scoped::enter(&element.name);
            planner.node(number, element, class);
        }
        scoped::enter("");
        // With all numbers right, or not at all.
        if planner.nodes.len() < elements.len() {
            return None;
        }
        planner.wire();
        mark_back_edges(&mut planner.nodes);
        let devices = planner.devices.list;
        let Self { nodes, entries, rest, ending, installed, gateways, tables, .. } = planner;
        Some(Plan {
            nodes,
            registry,
            devices,
            entries,
            tables,
            rest,
            ending,
            installed,
            gateways,
            warnings: Vec::new(),
        })
    }

    fn node(&mut self, number: usize, element: &Declared, class: &'static ElementClass) {
        let given = self.given.iter().find(|(name, _)| *name == class.spec.name);
        let (elements, nodes) = (self.configuration.elements(), &self.before);
        let kept_before = |number: usize| {
            let element: &Declared = &elements[number];
            let node = nodes.get(&*element.name)?;
            node.kept.clone().filter(|_| node.class.spec.name == element.class.name)
        };
        let own = kept_before(number);
        let mut setup = Setup {
            args: self.configuration.args(number, self.problems),
            inputs: element.inputs,
            outputs: element.outputs,
            gateways: &self.gateways,
            ending: &self.ending,
            installed: &self.installed,
            policy: self.configuration.policy(),
            drivers: self.registry.drivers,
            devices: &mut self.devices,
            around: Around {
                configuration: Some(self.configuration),
                number,
                tables: &mut self.tables,
                shared: &mut self.shared,
                kept_before: &kept_before,
            },
            before: match given {
                Some((_, state)) => state.as_ref(),
                None => own.as_ref(),
            },
            kept: None,
        };
        let Ok(made) = (class.configure)(&mut setup) else { return };
        let kept = setup.kept.take();
        let slot = match made.receives {
            Receives::Nothing => None,
            Receives::Rest => Some(&mut self.rest),
            Receives::Port(port) => {
                let port = usize::from(port);
                if self.entries.len() <= port {
                    self.entries.resize(port + 1, None);
                }
                Some(&mut self.entries[port])
            }
        };
        if let Some(slot) = slot {
            if let Some(first) = *slot {
                let first = &self.configuration.elements()[usize::from(first)];
                let words = format!("`{}` receives the same packets", short(&first.name));
                let words = format!("`{}`: {words}", short(&element.name));
                self.problems.add(element.place, words).note(first.place, "declared here");
            }
            *slot = Some(numbered(number));
        }
        self.nodes.push(Node {
            name: element.name.clone(),
            class,
            outputs: vec![None; element.outputs as usize],
            inputs: vec![None; element.inputs as usize],
            waits_for: Vec::new(),
            made,
            kept,
        });
    }

    fn wire(&mut self) {
        let connections = self.configuration.connections();
        let pulled = |wire: &&Connection| wire.kind == Processing::Pull;
        for wire in connections.iter().filter(|wire| !pulled(wire)) {
            let edge = Edge {
                node: numbered(wire.to as usize),
                input: numbered(wire.input as usize),
                back: false,
            };
            self.nodes[wire.from as usize].outputs[wire.output as usize] = Some(edge);
        }
        for wire in connections.iter().filter(pulled) {
            let upstream = Upstream {
                node: numbered(wire.from as usize),
                output: numbered(wire.output as usize),
                through: None,
            };
            self.nodes[wire.to as usize].inputs[wire.input as usize] = Some(upstream);
        }
        // What pulls and is not pulled from begins by itself, in a turn of each round.
        let pulled_from: HashSet<u32> =
            connections.iter().filter(pulled).map(|wire| wire.from).collect();
        for wire in connections.iter().filter(pulled).filter(|wire| !pulled_from.contains(&wire.to))
        {
            self.nodes[wire.to as usize].made.polled = true;
        }
        // A source whose output is pulled makes packets on each pull.
        for wire in connections.iter().filter(pulled) {
            let node = &mut self.nodes[wire.from as usize];
            if node.inputs.is_empty() {
                node.made.polled = false;
            }
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].made.waits_for_room {
                self.nodes[at].waits_for = self.queues_behind(at).unwrap_or_default();
            }
        }
        // Only now it is known which inputs pull.
        for wire in connections.iter().filter(pulled) {
            let through = self.through(wire);
            if let Some(upstream) = &mut self.nodes[wire.to as usize].inputs[wire.input as usize] {
                upstream.through = through;
            }
        }
        self.refuse_pull_cycles();
    }

    /// The queues that packets of a node reach, where all of its paths end in queues that hold it back.
    fn queues_behind(&self, from: usize) -> Option<Vec<NodeId>> {
        let (mut found, mut seen, mut open) = (Vec::new(), HashSet::from([from]), vec![from]);
        while let Some(at) = open.pop() {
            let node = &self.nodes[at];
            if node.made.holds_back {
                found.push(numbered(at));
                continue;
            }
            if node.outputs.iter().all(Option::is_none) {
                return None;
            }
            let behind = node.outputs.iter().flatten().map(|edge| usize::from(edge.node));
            open.extend(behind.filter(|&next| seen.insert(next)));
        }
        Some(found)
    }

    /// An agnostic output that is pulled pulls from the first input that it is joined to.
    fn through(&self, wire: &Connection) -> Option<u16> {
        let node = &self.nodes[wire.from as usize];
        let codes = Codes::read(&node.class.spec).ok()?;
        let output = wire.output as usize;
        if codes.output(output) != Processing::Agnostic {
            return None;
        }
        let input = (0..node.inputs.len())
            .find(|&at| node.inputs[at].is_some() && codes.join(at, output))?;
        Some(numbered(input))
    }

    fn refuse_pull_cycles(&mut self) {
        // A relay counts as two, one of its first output and one of the second, which pulls from input 0 alone.
        let pulls = |part: usize, input: usize| {
            if part % 2 == 1 && input > 0 {
                return None;
            }
            let upstream = self.nodes[part / 2].inputs.get(input)?;
            Some(upstream.map(|Upstream { node, output, .. }| {
                let node = usize::from(node);
                2 * node + usize::from(output > 0 && self.nodes[node].relay().is_some())
            }))
        };
        for (part, _) in closing(2 * self.nodes.len(), pulls) {
            let element = &self.configuration.elements()[part / 2];
            let words = "pulls packets in a circle, which would never end";
            let words = format!("`{}` {words}", short(&element.name));
            self.problems.add(element.place, words).hint("put a Queue between");
        }
    }
}

/// A number that the limit of nodes, or of ports, keeps small.
fn numbered(number: usize) -> u16 {
    u16::try_from(number).expect("nodes and ports are bounded")
}

fn mark_back_edges(nodes: &mut [Node]) {
    let leads = |node: usize, output: usize| {
        let edge = nodes[node].outputs.get(output)?;
        Some(edge.map(|edge| usize::from(edge.node)))
    };
    for (node, output) in closing(nodes.len(), leads) {
        if let Some(edge) = &mut nodes[node].outputs[output] {
            edge.back = true;
        }
    }
}

/// The edges that close cycles, as node and number of the edge: those which a walk, depth first, finds to lead
/// to a node that is still being walked. `next` gives where an edge leads, and `None` past the last.
fn closing(
    nodes: usize,
    next: impl Fn(usize, usize) -> Option<Option<usize>>,
) -> Vec<(usize, usize)> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; nodes];
    let mut found = Vec::new();
    for root in 0..nodes {
        let mut path = vec![(root, 0)];
        while let Some((node, edge)) = path.pop() {
            if edge == 0 {
                if marks[node] != Mark::New {
                    continue;
                }
                marks[node] = Mark::Open;
            }
            let Some(leads) = next(node, edge) else {
                marks[node] = Mark::Done;
                continue;
            };
            path.push((node, edge + 1));
            match leads.map(|to| (to, marks[to])) {
                Some((to, Mark::New)) => path.push((to, 0)),
                Some((_, Mark::Open)) => found.push((node, edge)),
                Some((_, Mark::Done)) | None => {}
            }
        }
    }
    found
}
