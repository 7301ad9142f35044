//! The filters by source of the configuration: made, followed as links come and go, and put into the graph.
//!
//! Lists are read and changed outside this thread, since a million prefixes take a second or so; what happens here takes
//! no longer than planning a graph.

use std::sync::Arc;
use std::time::Duration;

use fingerpost_packet::graph::Errors;
use fingerpost_packet::router_graph::{self, Sources};
use fingerpost_packet::source_filters::SourceFilters;
use fingerpost_packet::worker::Command;
use fingerpost_packet::{Graph, OpenPolicy, Plan};
use fingerpost_route::PortTable;

use super::{Daemon, DaemonError};
use crate::api::error::{ApiError, Code};
use crate::api::model::ConfigText;
use crate::click;
use crate::config::{Config, Filter};

/// More than workers need to take over a graph.
const LONGEST_ROUND: Duration = Duration::from_secs(2);

/// What the daemon has of them.
#[derive(Default)]
pub(crate) struct Filters {
    /// None without a filter.
    pub(super) made: Option<Arc<SourceFilters>>,
    /// Of the time when ports were told their names.
    ports: Option<Arc<PortTable>>,
}

/// Filters of a configuration that is not yet the running one, and those that it was made beside.
pub(crate) struct Prepared {
    wanted: Vec<Filter>,
    before: Option<Arc<SourceFilters>>,
    made: Option<Arc<SourceFilters>>,
}

/// What is to be prepared, for another thread.
pub(crate) struct Wanted {
    config: Config,
    before: Option<Arc<SourceFilters>>,
}

impl Wanted {
    /// Reads the lists.
    pub(crate) fn prepare(self) -> Result<Prepared, ApiError> {
        let Self { config, before } = self;
        let made = make(&config, before.as_deref());
        let made = made.map_err(|wrong| ApiError::new(Code::Refused, wrong.join("; ")))?;
        Ok(Prepared { wanted: config.filter, before, made })
    }
}

fn make(
    config: &Config,
    before: Option<&SourceFilters>,
) -> Result<Option<Arc<SourceFilters>>, Vec<String>> {
    if config.filter.is_empty() {
        return Ok(None);
    }
    SourceFilters::new(config.filters(), before).map(|made| Some(Arc::new(made)))
}

impl Prepared {
    /// They are not to be the running ones.
    pub(super) fn let_go(self) {
        let_go(self.made);
    }
}

impl Filters {
    pub(super) fn new(config: &Config) -> Result<Self, DaemonError> {
        let made = make(config, None).map_err(|wrong| DaemonError::Filter(wrong.join("; ")))?;
        Ok(Self { made, ports: None })
    }

    /// What the graph is to ask about sources.
    pub(super) fn sources(&self, config: &Config) -> Sources {
        Sources { checked: config.checks_sources(), filters: self.made.clone() }
    }
}

fn same(one: Option<&Arc<SourceFilters>>, other: Option<&Arc<SourceFilters>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// Workers leave the old graph within a round. Who is the last to have lists of millions of prefixes frees them, which
/// takes a while, so that is to be neither a worker nor the daemon's thread.
fn let_go(old: Option<Arc<SourceFilters>>) {
    let Some(old) = old else { return };
    let last = move || {
        std::thread::sleep(LONGEST_ROUND);
        drop(old);
    };
    // Without a thread they are freed at once.
    let _ = std::thread::Builder::new().name("fingerpost-free".into()).spawn(last);
}

impl Daemon {
    /// The filters, if there are any: whoever has them may ask and change their lists.
    pub(crate) fn filters(&self) -> Option<Arc<SourceFilters>> {
        self.filters.made.clone()
    }

    /// Before packets come in by a new port, it has its filters.
    pub(super) fn follow_ports(&mut self) {
        let Some(made) = &self.filters.made else { return };
        // Any change of a link makes a new one.
        let ports = self.control.forwarding().ports.clone();
        if self.filters.ports.as_ref().is_none_or(|seen| !Arc::ptr_eq(seen, &ports)) {
            made.follow(self.control.links().map(|(_, port, state)| (port, &*state.name)));
            self.filters.ports = Some(ports);
        }
    }

    /// What has to be read before these filters can be the running ones; `None` where they are.
    pub(crate) fn filters_wanted(&self, text: &ConfigText) -> Result<Option<Wanted>, ApiError> {
        let config = self.read_config(text)?;
        let same = config.filter == self.config.filter;
        Ok((!same).then(|| Wanted { config, before: self.filters() }))
    }

    /// Whether these can take the place of the running ones.
    pub(super) fn fits(&self, new: &Config, prepared: Option<&Prepared>) -> Result<(), ApiError> {
        let fits = match prepared {
            None => new.filter == self.config.filter,
            Some(prepared) => {
                prepared.wanted == new.filter
                    && same(prepared.before.as_ref(), self.filters.made.as_ref())
            }
        };
        let words = "the filters were changed by somebody else meanwhile: once more";
        if fits { Ok(()) } else { Err(ApiError::at(Code::Refused, "filter", words)) }
    }

    /// The running graph with these filters.
    pub(super) fn plan_filters(&self, prepared: Prepared) -> Result<(Prepared, Plan), ApiError> {
        let checked = self.config.checks_sources();
        match self.planned(&Sources { checked, filters: prepared.made.clone() }) {
            Ok(plan) => Ok((prepared, plan)),
            // Of a graph that was swapped in: something that it names is no longer there.
            Err(errors) => {
                prepared.let_go();
                Err(ApiError::at(Code::Refused, "graph", errors))
            }
        }
    }

    /// These are the filters from now on, in all workers.
    pub(super) fn put_filters(&mut self, prepared: Prepared, plan: Plan) {
        let Prepared { wanted, made, .. } = prepared;
        if let (Some(made), Some(before)) = (&made, &self.filters.made) {
            made.go_on_with(before);
        }
        let old = std::mem::replace(&mut self.filters.made, made);
        self.filters.ports = None;
        self.follow_ports();
        self.config.filter = wanted;
        self.interfaces.set_filters(self.config.filter.clone());
        self.replace_graph(plan);
        self.control.filter_sources(self.config.filtered());
        let_go(old);
    }

    /// The running graph, planned anew.
    pub(super) fn planned(&self, sources: &Sources) -> Result<Plan, Errors> {
        match &self.swapped {
            None => router_graph::plan_with(Some(&self.plan), sources),
            Some(ConfigText { file, text }) => {
                let configuration = click::configuration(file, text, &OpenPolicy::default())?;
                router_graph::plan_of(Some(&self.plan), &configuration, sources)
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
        self.tell_of_missing();
    }

    /// Tells that the graph does not do what the configuration asks.
    fn tell_of_missing(&mut self) {
        let Some(ConfigText { file, .. }) = &self.swapped else { return };
        let has = |class| self.plan.nodes().iter().any(|node| node.class.spec.name == class);
        let mut told = Vec::new();
        if self.config.checks_sources() && !(has("IP4ReversePath") && has("IP6ReversePath")) {
            let words = "has no IP4ReversePath and IP6ReversePath for what `reverse_path` asks";
            told.push(format!("{file} {words}: sources may go unchecked"));
        }
        if self.filters.made.is_some() && !has("IPSourceFilter") {
            let words = "has no IPSourceFilter for the filters of the configuration";
            told.push(format!("{file} {words}: they do not hold"));
        }
        self.messages.extend(told);
    }
}
