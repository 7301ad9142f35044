//! The cluster that this router is a node of.

use super::Daemon;
use crate::api::backend::Job;
use crate::api::cluster::{ClusterStatus, Drain, ParameterChange};
use crate::api::error::{ApiError, Code};

/// The error of a router that is no node.
fn no_node() -> ApiError {
    ApiError::new(
        Code::NotFound,
        "this router is no node of a cluster: its configuration has no [cluster]",
    )
}

impl Daemon {
    pub(super) fn cluster_status(&self) -> Result<ClusterStatus, ApiError> {
        let node = self.graph.node.as_ref().ok_or_else(no_node)?;
        Ok(node.status(&self.workers, &self.interfaces.left_xdp()))
    }

    pub(super) fn drain_node(&mut self, drain: Drain) -> Result<(), ApiError> {
        let node = self.graph.node.as_mut().ok_or_else(no_node)?;
        node.set_draining(drain.draining).map_err(|why| ApiError::new(Code::Refused, why))
    }

    pub(super) fn cluster_change(&self, change: &ParameterChange) -> Result<Job<u64>, ApiError> {
        self.graph.node.as_ref().ok_or_else(no_node)?.change_parameters(change)
    }
}
