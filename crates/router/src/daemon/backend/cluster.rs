//! The cluster that this router is a node of.

use super::Daemon;
use crate::api::cluster::{ClusterStatus, Drain};
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
        self.graph.node.as_mut().ok_or_else(no_node)?.set_draining(drain.draining);
        Ok(())
    }
}
