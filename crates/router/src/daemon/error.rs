//! Why a run cannot start or continue.

use fingerpost_io::xdp;
use fingerpost_route::source::SourceError;

use super::cluster::ClusterError;
use super::kernel::KernelError;
use super::learn::LONGEST_DUMP;
use crate::privilege::{self, Missing};

/// Why a run cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error("looking for what the kernel does to forwarded packets: {0}")]
    Survey(std::io::Error),
    #[error(transparent)]
    Xdp(#[from] xdp::XdpError),
    #[error("[cluster]: {0}")]
    Cluster(#[from] ClusterError),
    #[error("{0}")]
    Routes(#[from] fingerpost_lpm::UpdateError),
    #[error("{0}")]
    Tables(#[from] fingerpost_route::RouteError),
    #[error("{0}")]
    Feature(String),
    #[error("source {kind}: {error}{}", to_read(error))]
    Source { kind: String, error: SourceError },
    #[error("the first dump of the kernel took longer than {} s", LONGEST_DUMP.as_secs())]
    Dump,
    #[error("{0}")]
    Thread(std::io::Error),
    #[error(transparent)]
    Permission(#[from] Missing),
    #[error("no interface can be taken over: {0}")]
    Refused(String),
    #[error("{failed} of {workers} workers failed: the router must be started again")]
    Workers { failed: usize, workers: usize },
}

fn to_read(error: &SourceError) -> &'static str {
    match error {
        SourceError::Io { kind, .. } => privilege::to_read(*kind),
        _ => "",
    }
}

impl DaemonError {
    /// Whether a missing privilege is the cause.
    pub(crate) fn is_permission(&self) -> bool {
        let denied = |e: &std::io::Error| e.kind() == std::io::ErrorKind::PermissionDenied;
        match self {
            Self::Permission(_) | Self::Refused(_) => true,
            Self::Xdp(error) => error.is_permission(),
            Self::Source { error: SourceError::Io { kind, .. }, .. } => {
                *kind == std::io::ErrorKind::PermissionDenied
            }
            Self::Survey(error)
            | Self::Thread(error)
            | Self::Kernel(KernelError::Socket(error)) => denied(error),
            _ => false,
        }
    }
}
