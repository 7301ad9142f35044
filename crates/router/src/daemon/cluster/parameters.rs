//! The parameters of the cluster as this node runs by them: what follows from a change, and changes by command.
//!
//! Shape:  the thread of the store has the latest ones; a turn of the daemon that finds others sets mode, rule, gap and rates in
//!         words that workers and programs read, and weight and state in what this node announces.
//! Cost:   a comparison a turn.
//! Limits: what is set is not undone when the store is lost.

use std::time::Duration;

use fingerpost_cluster::store::adopt::Adopted;
use fingerpost_cluster::store::parameters::Change;
use tracing::{info, warn};

use super::Node;
use crate::api::backend::Job;
use crate::api::cluster::{ClusterParameters, ParameterChange};
use crate::api::error::{ApiError, Code};

/// Longest that a change waits for the store: a step of its thread, and calls of it that fail.
const CHANGE: Duration = Duration::from_secs(15);

impl Node {
    /// Runs by the parameters that the store has by now.
    pub(super) fn follow_parameters(&mut self) {
        let Some(store) = &mut self.store else { return };
        let Some(found) = store.joined.view().parameters else { return };
        if found == store.parameters {
            return;
        }
        let before = std::mem::replace(&mut store.parameters, found);
        let Adopted { parameters, mode, error } = &store.parameters;
        if let Some(why) = error.as_ref().filter(|_| *error != before.error) {
            warn!(
                target: "cluster",
                "the parameters in the store are unreadable: {why}; this node keeps version {}: `fingerpost cluster set` with any \
                 parameter replaces them",
                parameters.version
            );
        }
        if before.parameters != *parameters {
            info!(
                target: "cluster",
                version = parameters.version,
                "parameters version {}: mode {}, rule {}, flowlet_ms {}",
                parameters.version,
                parameters.mode.name(),
                parameters.rule.name(),
                parameters.flowlet_ms
            );
        }
        if before.mode != *mode {
            info!(target: "cluster", "mode {} is in use", mode.name());
        }
        self.run_by_parameters();
    }

    /// Has workers, programs and other nodes run by the parameters.
    pub(super) fn run_by_parameters(&mut self) {
        let Some(store) = &mut self.store else { return };
        let Adopted { parameters, mode, .. } = &store.parameters;
        let id = &self.config.node;
        self.ports.set_rate(parameters.rate_bps);
        self.fabric.set_paths(super::paths(parameters, *mode, self.ports.lowest_rate()));
        let configured = self.config.own().map_or(1, |own| own.weight);
        let weight = parameters.weights.get(id).copied().unwrap_or(configured);
        if store.own.record().weight != weight {
            store.own.record_mut().weight = weight;
            store.joined.publish(store.own.record().clone());
        }
        self.drain.everywhere = parameters.draining.contains(id);
        self.announce_drain();
    }

    /// Changes the parameters in the store, by a job that waits for it and returns the new version.
    pub(in crate::daemon) fn change_parameters(
        &self,
        wanted: &ParameterChange,
    ) -> Result<Job<u64>, ApiError> {
        let Some(store) = &self.store else {
            let words = "the parameters of this cluster are in the configuration of its nodes: change [cluster] there and \
                         restart them, or keep members and parameters in a `store`";
            return Err(ApiError::new(Code::Refused, words));
        };
        let words = wanted.set.iter().map(|(key, value)| (&**key, &**value));
        let ids: Vec<&str> = self.membership.members.iter().map(|record| &*record.id).collect();
        let change = Change::parse(words, &ids)
            .map_err(|words| ApiError::at(Code::BadRequest, "set", words))?;
        let result = store.joined.change(change);
        Ok(Box::new(move || match result.recv_timeout(CHANGE) {
            Ok(made) => made.map_err(|why| ApiError::new(Code::Refused, why)),
            Err(_) => {
                let words = "the store has not answered in time: `fingerpost cluster status` has the version of the parameters";
                Err(ApiError::new(Code::Refused, words))
            }
        }))
    }

    /// The parameters, and which members lag behind.
    pub(super) fn parameter_state(&self) -> Option<ClusterParameters> {
        let Adopted { parameters, error, .. } = &self.store.as_ref()?.parameters;
        let lagging = self.others().filter(|record| record.parameters < parameters.version);
        Some(ClusterParameters {
            version: parameters.version,
            mode: parameters.mode.name().to_owned(),
            rule: parameters.rule.name().to_owned(),
            flowlet_ms: parameters.flowlet_ms,
            rate_bps: parameters.rate_bps,
            weights: parameters.weights.clone(),
            draining: parameters.draining.iter().cloned().collect(),
            lagging: lagging.map(|record| record.id.clone()).collect(),
            error: error.clone(),
        })
    }
}
