//! The graph that workers run: the built-in one or another one, with the interface features of the configuration.

use fingerpost_packet::feature::FeatureStates;
use fingerpost_packet::language::Errors;
use fingerpost_packet::{OpenPolicy, Plan, router_graph};
use fingerpost_route::Control;
use fingerpost_route::nexthop::NextHops;
use tracing::warn;

use super::cluster::Node;
use super::features::Features;
use super::sampling::Reports;
use super::workers::{SPARE_FRAMES, Workers};
use crate::api::model::ConfigText;
use crate::click;

/// The graph at present.
pub(super) struct RunningGraph {
    plan: Plan,
    /// Its text, where it is not the built-in one.
    swapped: Option<ConfigText>,
    /// Packets that elements of the built-in graph may hold.
    built_in_holds: usize,
    /// Node of a cluster that this router is: its elements are in the built-in graph.
    pub(super) node: Option<Node>,
    pub(super) features: Features,
    /// What is reported to collectors.
    pub(super) reports: Reports,
}

impl RunningGraph {
    /// The built-in graph with these features, and with the elements of a cluster node.
    pub(super) fn built_in(features: Features, node: Option<Node>) -> Self {
        let plan = built_in(None, features.states(), node.as_ref());
        let plan = plan.expect("the built-in graph is whole: a test builds it");
        let (built_in_holds, reports) = (plan.holds(), Reports::default());
        Self { built_in_holds, plan, swapped: None, node, features, reports }
    }

    /// The plan that workers run.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Most packets that the elements of a graph may hold: elements that hold more could hold all frames there are.
    pub(super) fn most_holds(&self) -> usize {
        self.built_in_holds + SPARE_FRAMES as usize / 2
    }

    /// Gives features the names of new ports, before packets arrive there: [`Features::follow_ports`].
    pub(super) fn follow_ports(&mut self, control: &Control) {
        for what in self.features.follow_ports(control) {
            warn!(target: "graph", "{what}");
        }
    }

    /// Follows the members of the cluster, and has the host's kernel reach them: [`Node::follow`].
    pub(super) fn follow_cluster(&mut self, control: &Control) {
        for what in self.node.as_mut().map_or_else(Vec::new, |node| node.follow(control)) {
            warn!(target: "cluster", "{what}");
        }
    }

    /// Lets go of adjacency indices that this node announced and whose adjacency a commit took: [`Node::check_announced`].
    pub(super) fn check_announced(&mut self, hops: &NextHops) {
        if let Some(node) = &mut self.node {
            node.check_announced(hops);
        }
    }

    /// Plans the running graph anew.
    pub(super) fn planned(&self, states: &FeatureStates) -> Result<Plan, Errors> {
        match &self.swapped {
            None => built_in(Some(&self.plan), states, self.node.as_ref()),
            Some(ConfigText { file, text }) => {
                let configuration = click::configuration(
                    file,
                    text,
                    &click::Given::default(),
                    &OpenPolicy::default(),
                )?;
                router_graph::plan_of(Some(&self.plan), &configuration, states)
            }
        }
    }

    /// The graph of this text takes the place of the built-in one with the next [`RunningGraph::replace`].
    pub(super) fn set_text(&mut self, text: ConfigText) {
        self.swapped = Some(text);
    }

    /// Has all workers run this plan from now on, and logs features of the configuration for which the graph has no
    /// element.
    pub(super) fn replace(&mut self, plan: Plan, workers: &mut Workers) {
        workers.replace_graph(&self.plan, &plan);
        self.plan = plan;
        self.missing().iter().for_each(|what| warn!(target: "graph", "{what}"));
    }

    fn missing(&self) -> Vec<String> {
        let Some(ConfigText { file, .. }) = &self.swapped else { return Vec::new() };
        let has = |class| self.plan.nodes().iter().any(|node| node.class.spec.name == class);
        let mut missing = Vec::new();
        for (row, state) in self.features.states().each() {
            for stage in row.stages.iter().filter(|stage| state.runs(stage.arc)) {
                let (class, name) = (stage.element.spec.name, row.name);
                if !has(class) {
                    missing.push(format!(
                        "{file} has no {class}: {name} of the configuration does not hold"
                    ));
                }
            }
        }
        missing
    }
}

/// The built-in graph with these features, and with the elements of a cluster node, after another plan.
fn built_in(
    before: Option<&Plan>,
    states: &FeatureStates,
    node: Option<&Node>,
) -> Result<Plan, Errors> {
    match node {
        Some(node) => router_graph::plan_added(before, states, &node.addition()),
        None => router_graph::plan_with(before, states),
    }
}
