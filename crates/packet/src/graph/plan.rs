//! A plan: a flat table of nodes whose outputs are static edges, by index.
//!
//! Names exist while it is built; a running graph knows numbers only. Edges that close a cycle (an
//! ICMP error goes back to the lookup) are marked, so that the run counts rounds there and nowhere
//! else: every cycle has at least one such edge.

use std::fmt;
use std::sync::Arc;

use crate::element::{Element, ElementClass};

/// A node's number in its plan.
pub type NodeId = u16;

/// Where packets of an output go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The node that takes them.
    pub node: NodeId,
    /// At which of its inputs.
    pub input: u16,
    /// It closes a cycle.
    pub back: bool,
}

/// Makes an instance of an element for each worker.
pub type Make = Arc<dyn Fn() -> Box<dyn Element> + Send + Sync>;

/// One element of a plan.
#[derive(Clone)]
pub struct Node {
    /// Its own name, for counters.
    pub name: String,
    /// What it is.
    pub class: &'static ElementClass,
    /// By output number; `None` where nothing is wired.
    pub outputs: Vec<Option<Edge>>,
    /// Makes it in place of its class, where it has settings of its own.
    pub make: Option<Make>,
}

impl Node {
    /// A new instance; each worker has its own.
    pub fn element(&self) -> Box<dyn Element> {
        self.make.as_ref().map_or_else(self.class.make, |make| make())
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) -> {:?}", self.name, self.class.name, self.outputs)
    }
}

/// Checked wiring, ready to be run by any number of workers.
#[derive(Clone, Debug)]
pub struct Plan {
    nodes: Vec<Node>,
}

impl Plan {
    /// The nodes, by number.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of a name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let at = self.nodes.iter().position(|node| node.name == name)?;
        Some(NodeId::try_from(at).expect("the builder limits the number of nodes"))
    }
}

/// Why a plan was not built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No element of that name in the registry.
    #[error("no element is called {class}")]
    NoClass {
        /// What was asked for.
        class: String,
    },
    /// Two nodes of one name.
    #[error("two nodes are called {node}")]
    Twice {
        /// The name.
        node: String,
    },
    /// No node of that name.
    #[error("no node is called {node}")]
    NoNode {
        /// The name.
        node: String,
    },
    /// The node's element has no such output.
    #[error("{node} ({class}) has no output {output}")]
    NoOutput {
        /// The node.
        node: String,
        /// Its element.
        class: &'static str,
        /// Name or number of the output.
        output: String,
    },
    /// The node's element has no such input.
    #[error("{node} ({class}) has no input {input}")]
    NoInput {
        /// The node.
        node: String,
        /// Its element.
        class: &'static str,
        /// Name or number of the input.
        input: String,
    },
    /// A push output leads to one place only.
    #[error("output {output} of {node} is wired twice")]
    WiredTwice {
        /// The node.
        node: String,
        /// Name of the output.
        output: &'static str,
    },
    /// More nodes than fit a node number.
    #[error("too many nodes: at most {max}")]
    TooMany {
        /// What fits.
        max: usize,
    },
}

/// Nodes a plan holds at most.
const MAX_NODES: usize = 4096;

/// Collects nodes and edges by name.
#[derive(Debug, Default)]
pub struct PlanBuilder {
    nodes: Vec<Node>,
}

impl PlanBuilder {
    /// An empty plan.
    pub fn new() -> Self {
        Self::default()
    }

    /// A node of a registered element.
    ///
    /// # Errors
    /// [`PlanError::NoClass`], [`PlanError::Twice`], [`PlanError::TooMany`].
    pub fn node(&mut self, name: &str, class: &str) -> Result<&mut Self, PlanError> {
        let row = ElementClass::find(class)
            .ok_or_else(|| PlanError::NoClass { class: class.to_owned() })?;
        self.node_of(name, row)
    }

    /// A node of any element, registered or not.
    ///
    /// # Errors
    /// [`PlanError::Twice`], [`PlanError::TooMany`].
    pub fn node_of(
        &mut self,
        name: &str,
        class: &'static ElementClass,
    ) -> Result<&mut Self, PlanError> {
        if self.nodes.iter().any(|node| node.name == name) {
            return Err(PlanError::Twice { node: name.to_owned() });
        }
        if self.nodes.len() == MAX_NODES {
            return Err(PlanError::TooMany { max: MAX_NODES });
        }
        let outputs = vec![None; class.outputs.len()];
        self.nodes.push(Node { name: name.to_owned(), class, outputs, make: None });
        Ok(self)
    }

    /// Makes a node's element otherwise than its class does: with settings of its own.
    ///
    /// # Errors
    /// [`PlanError::NoNode`].
    pub fn make(&mut self, node: &str, make: Make) -> Result<&mut Self, PlanError> {
        let node = self.find(node)?;
        self.nodes[node].make = Some(make);
        Ok(self)
    }

    /// Wires an output to an input, each by name or by number.
    ///
    /// # Errors
    /// [`PlanError::NoNode`], [`PlanError::NoOutput`], [`PlanError::NoInput`],
    /// [`PlanError::WiredTwice`].
    pub fn edge(
        &mut self,
        from: &str,
        output: &str,
        to: &str,
        input: &str,
    ) -> Result<&mut Self, PlanError> {
        let (from, to) = (self.find(from)?, self.find(to)?);
        let target = &self.nodes[to];
        let input = port(target.class.inputs, input).ok_or_else(|| PlanError::NoInput {
            node: target.name.clone(),
            class: target.class.name,
            input: input.to_owned(),
        })?;
        let source = &mut self.nodes[from];
        let output = port(source.class.outputs, output).ok_or_else(|| PlanError::NoOutput {
            node: source.name.clone(),
            class: source.class.name,
            output: output.to_owned(),
        })?;
        let slot = &mut source.outputs[usize::from(output)];
        if slot.is_some() {
            return Err(PlanError::WiredTwice {
                node: source.name.clone(),
                output: source.class.outputs[usize::from(output)],
            });
        }
        let node = NodeId::try_from(to).expect("limited when the node was added");
        *slot = Some(Edge { node, input, back: false });
        Ok(self)
    }

    /// Finds the edges that close cycles, and hands the plan out.
    pub fn build(mut self) -> Plan {
        mark_back_edges(&mut self.nodes);
        Plan { nodes: self.nodes }
    }

    fn find(&self, name: &str) -> Result<usize, PlanError> {
        let at = self.nodes.iter().position(|node| node.name == name);
        at.ok_or_else(|| PlanError::NoNode { node: name.to_owned() })
    }
}

/// A port by name or number.
fn port(names: &[&str], wanted: &str) -> Option<u16> {
    let at = names
        .iter()
        .position(|name| *name == wanted)
        .or_else(|| wanted.parse().ok().filter(|&n: &usize| n < names.len()))?;
    u16::try_from(at).ok()
}

/// Walks depth first; an edge to a node that is still being walked closes a cycle.
fn mark_back_edges(nodes: &mut [Node]) {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; nodes.len()];
    for root in 0..nodes.len() {
        let mut path = vec![(root, 0)];
        while let Some((node, output)) = path.pop() {
            if output == 0 {
                if marks[node] != Mark::New {
                    continue;
                }
                marks[node] = Mark::Open;
            }
            let Some(slot) = nodes[node].outputs.get_mut(output) else {
                marks[node] = Mark::Done;
                continue;
            };
            path.push((node, output + 1));
            if let Some(edge) = slot {
                let next = usize::from(edge.node);
                match marks[next] {
                    Mark::New => path.push((next, 0)),
                    Mark::Open => edge.back = true,
                    Mark::Done => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Context, Element};

    struct Nothing;
    impl Element for Nothing {
        fn process(&mut self, _: u16, _: &mut crate::Batch, _: &mut Context<'_>) {}
    }
    static FORK: ElementClass = ElementClass {
        name: "fork",
        summary: "",
        inputs: &["in"],
        outputs: &["left", "right"],
        make: || Box::new(Nothing),
    };

    fn forks(names: &[&str]) -> PlanBuilder {
        let mut builder = PlanBuilder::new();
        for name in names {
            builder.node_of(name, &FORK).unwrap();
        }
        builder
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let mut b = forks(&["a", "b"]);
        let text = |e: Result<&mut PlanBuilder, PlanError>| e.unwrap_err().to_string();
        assert_eq!(text(b.node("c", "no_such")), "no element is called no_such");
        assert_eq!(text(b.node_of("a", &FORK)), "two nodes are called a");
        assert_eq!(text(b.edge("a", "up", "b", "in")), "a (fork) has no output up");
        assert_eq!(text(b.edge("a", "2", "b", "in")), "a (fork) has no output 2");
        assert_eq!(text(b.edge("a", "left", "b", "1")), "b (fork) has no input 1");
        assert_eq!(text(b.edge("a", "left", "c", "0")), "no node is called c");
        b.edge("a", "left", "b", "in").unwrap();
        assert_eq!(text(b.edge("a", "0", "b", "0")), "output left of a is wired twice");
    }

    #[test]
    fn every_cycle_has_a_marked_edge_and_nothing_else_has() {
        let mut b = forks(&["a", "b", "c", "d"]);
        // a -> b -> c, a -> c (no cycle), c -> b and d -> d (cycles).
        b.edge("a", "left", "b", "in").unwrap();
        b.edge("a", "right", "c", "in").unwrap();
        b.edge("b", "left", "c", "in").unwrap();
        b.edge("c", "right", "b", "in").unwrap();
        b.edge("d", "left", "d", "in").unwrap();
        b.edge("d", "right", "a", "in").unwrap();
        let plan = b.build();
        let back = |name: &str, output: usize| {
            let node = &plan.nodes()[usize::from(plan.find(name).unwrap())];
            node.outputs[output].unwrap().back
        };
        assert!(!back("a", 0) && !back("a", 1) && !back("b", 0) && !back("d", 1));
        assert!(back("c", 1) && back("d", 0));
    }
}
