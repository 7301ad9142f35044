//! The interface features of the configuration at run time: states made, followed as links come and go, and put into the
//! graph.
//!
//! States are made outside this thread, since a list of a million prefixes takes a second or so; what happens here takes
//! no longer than planning a graph.

use std::sync::Arc;
use std::time::Duration;

use fingerpost_packet::feature::{FeatureSettings, FeatureStates};
use fingerpost_packet::graph::Errors;
use fingerpost_packet::router_graph;
use fingerpost_packet::worker::Command;
use fingerpost_packet::{Graph, OpenPolicy, Plan};
use fingerpost_route::PortTable;

use super::{Daemon, DaemonError};
use crate::api::error::{ApiError, Code};
use crate::api::model::ConfigText;
use crate::click;
use crate::config::Config;

/// More than workers need to take over a graph.
const LONGEST_ROUND: Duration = Duration::from_secs(2);

/// The features of the running configuration.
#[derive(Default)]
pub(crate) struct Features {
    pub(super) states: FeatureStates,
    /// The ports whose names the states were given last.
    ports: Option<Arc<PortTable>>,
}

/// Features of a configuration that is not yet the running one, and those that they were made beside.
pub(crate) struct Prepared {
    wanted: FeatureSettings,
    before: FeatureStates,
    made: FeatureStates,
}

/// Settings that states are to be made of, for another thread.
pub(crate) struct Wanted {
    wanted: FeatureSettings,
    settings: FeatureSettings,
    before: FeatureStates,
}

impl Wanted {
    /// Makes the states; files are read here.
    pub(crate) fn prepare(self) -> Result<Prepared, ApiError> {
        let Self { wanted, settings, before } = self;
        let made = FeatureStates::make(&wanted, Some((&settings, &before)));
        let made = made.map_err(|wrong| ApiError::new(Code::Refused, wrong.join("; ")))?;
        Ok(Prepared { wanted, before, made })
    }
}

impl Prepared {
    /// They are not to be the running ones.
    pub(super) fn let_go(self) {
        let_go(self.made);
    }
}

impl Features {
    pub(super) fn new(config: &Config) -> Result<Self, DaemonError> {
        let states = FeatureStates::make(&config.features, None);
        let states = states.map_err(|wrong| DaemonError::Feature(wrong.join("; ")))?;
        Ok(Self { states, ports: None })
    }
}

/// Workers leave the old graph within a round. The last holder of lists of millions of prefixes frees them, which takes a
/// while, so that is to be neither a worker nor the daemon's thread.
fn let_go(old: FeatureStates) {
    let last = move || {
        std::thread::sleep(LONGEST_ROUND);
        drop(old);
    };
    // Without a thread they are freed at once.
    let _ = std::thread::Builder::new().name("fingerpost-free".into()).spawn(last);
}

impl Daemon {
    /// The states of the features in use: whoever has them may read them and change their lists.
    pub(crate) fn features(&self) -> FeatureStates {
        self.features.states.clone()
    }

    /// Before packets arrive on a new port, states have its name.
    pub(super) fn follow_ports(&mut self) {
        // Any change of a link makes a new one.
        let ports = self.control.forwarding().ports.clone();
        if self.features.ports.as_ref().is_none_or(|seen| !Arc::ptr_eq(seen, &ports)) {
            let names: Vec<(u16, &str)> =
                self.control.links().map(|(_, port, state)| (port, &*state.name)).collect();
            self.features.states.follow(&names);
            self.features.ports = Some(ports);
        }
    }

    /// What has to be made before these features can be the running ones; `None` where they are.
    pub(crate) fn features_wanted(&self, text: &ConfigText) -> Result<Option<Wanted>, ApiError> {
        let config = self.read_config(text)?;
        let same = config.features == self.config.features;
        Ok((!same).then(|| Wanted {
            wanted: config.features,
            settings: self.config.features.clone(),
            before: self.features(),
        }))
    }

    /// Whether these can take the place of the running ones.
    pub(super) fn fits(&self, new: &Config, prepared: Option<&Prepared>) -> Result<(), ApiError> {
        let fits = match prepared {
            None => new.features == self.config.features,
            Some(prepared) => {
                prepared.wanted == new.features && prepared.before.is_same(&self.features.states)
            }
        };
        let words = "the features were changed by another request meanwhile: once more";
        if fits { Ok(()) } else { Err(ApiError::at(Code::Refused, "features", words)) }
    }

    /// The running graph with these features, of which the control side publishes what it has to.
    pub(super) fn plan_features(
        &mut self,
        prepared: Prepared,
    ) -> Result<(Prepared, Plan), ApiError> {
        let refuse = |prepared: Prepared, error| {
            prepared.let_go();
            Err(error)
        };
        let plan = match self.planned(&prepared.made) {
            Ok(plan) => plan,
            // Of a graph that was swapped in: something that it names is no longer there.
            Err(errors) => {
                return refuse(prepared, ApiError::at(Code::Refused, "graph", errors));
            }
        };
        match prepared.wanted.bind(Some(&self.config.features), &mut self.control) {
            Ok(()) => Ok((prepared, plan)),
            Err(error) => {
                self.unbind(&prepared.wanted);
                refuse(prepared, ApiError::new(Code::Refused, error))
            }
        }
    }

    /// The control side publishes what the running features have it publish, and nothing for others.
    fn unbind(&mut self, others: &FeatureSettings) {
        if let Err(error) = self.config.features.bind(Some(others), &mut self.control) {
            self.messages.push(format!("features of interfaces: {error}"));
        }
    }

    /// Features that were planned are not to be the running ones.
    pub(super) fn refuse_features(&mut self, prepared: Prepared) {
        self.unbind(&prepared.wanted);
        prepared.let_go();
    }

    /// These are the features from now on, in all workers.
    pub(super) fn put_features(&mut self, prepared: Prepared, plan: Plan) {
        let Prepared { wanted, made, .. } = prepared;
        made.go_on_with(&self.features.states);
        let old = std::mem::replace(&mut self.features.states, made);
        self.features.ports = None;
        self.follow_ports();
        self.config.features = wanted;
        self.interfaces.set_features(self.config.features.clone());
        self.replace_graph(plan);
        let_go(old);
    }

    /// The running graph, planned anew.
    fn planned(&self, states: &FeatureStates) -> Result<Plan, Errors> {
        match &self.swapped {
            None => router_graph::plan_with(Some(&self.plan), states),
            Some(ConfigText { file, text }) => {
                let configuration = click::configuration(file, text, &OpenPolicy::default())?;
                router_graph::plan_of(Some(&self.plan), &configuration, states)
            }
        }
    }

    /// All workers run this from now on.
    pub(super) fn replace_graph(&mut self, plan: Plan) {
        // Its steps name elements of the old graph.
        self.stop_tracing();
        for worker in &mut self.workers {
            let graph = Graph::after(&self.plan, &plan, &worker.pool);
            worker.nodes = graph.counters();
            worker.tell(Command::Replace(Box::new(graph)));
        }
        self.plan = plan;
        self.report_missing();
    }

    /// Logs features of the configuration for which the graph has no element.
    fn report_missing(&mut self) {
        let Some(ConfigText { file, .. }) = &self.swapped else { return };
        let has = |class| self.plan.nodes().iter().any(|node| node.class.spec.name == class);
        for (row, state) in self.features.states.each() {
            for stage in row.stages.iter().filter(|stage| state.runs(stage.arc)) {
                let class = stage.element.spec.name;
                if !has(class) {
                    let name = row.name;
                    let what =
                        format!("{file} has no {class}: {name} of the configuration does not hold");
                    self.messages.push(what);
                }
            }
        }
    }
}
