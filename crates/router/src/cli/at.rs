//! The daemon or graph that a command connects to: options, clients, and exit codes of their errors.

use std::path::PathBuf;

use super::command::{Exit, Failure};
use crate::api::client::{Client, ClientError};
use crate::api::error::Code;
use crate::control::client::{ControlClient, ControlError};

/// Options of every command that connects to the daemon.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct At {
    /// Control socket of the daemon [default: the one of this network namespace]
    #[arg(
        long,
        value_name = "PATH",
        env = "FINGERPOST_SOCKET",
        hide_env_values = true,
        display_order = 800
    )]
    pub(crate) socket: Option<PathBuf>,
}

impl At {
    /// Client for one request or several.
    ///
    /// # Errors
    /// When the system has no room for it; whether there is a daemon shows at the first request.
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        Client::new(self.socket.as_deref())
    }
}

/// Option of changes that can be saved.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Persist {
    /// Save the change as well: the next run of the daemon makes it again
    #[arg(long)]
    pub(crate) persist: bool,
}

impl Persist {
    /// Path of the API for the change.
    pub(crate) fn path(self, path: &str) -> &str {
        debug_assert!(SAVING.iter().any(|(plain, _)| *plain == path));
        let saving = SAVING.iter().find(|(plain, _)| *plain == path).filter(|_| self.persist);
        saving.map_or(path, |(_, saving)| saving)
    }
}

/// Paths of changes that can be saved, each with its form that saves.
const SAVING: [(&str, &str); 4] = [
    ("/v1/routes", "/v1/routes?persist=true"),
    ("/v1/neighbors", "/v1/neighbors?persist=true"),
    ("/v1/source-filters", "/v1/source-filters?persist=true"),
    ("/v1/algorithm", "/v1/algorithm?persist=true"),
];

/// Options of commands that connect to the daemon or to a graph of a file.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AtGraph {
    /// Connect to a graph of a file instead, by its ControlSocket: PORT, HOST:PORT, or the path of a Unix socket
    #[arg(long, value_name = "PLACE", display_order = 801)]
    pub(crate) control: Option<String>,
    /// Token file for write access to that graph (see --write-token of `run`)
    #[arg(long, value_name = "FILE", display_order = 802, requires = "control")]
    pub(crate) write_token: Option<PathBuf>,
}

impl AtGraph {
    /// Client of the graph, where one is named.
    ///
    /// # Errors
    /// When nothing answers there, or the token is refused.
    pub(crate) fn client(&self) -> Result<Option<ControlClient>, ControlError> {
        let Some(place) = &self.control else { return Ok(None) };
        ControlClient::connect(place, self.write_token.as_deref()).map(Some)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::Runtime(cause) => Self::outside(cause.kind(), error),
            ClientError::Forbidden { .. } => Self::new(Exit::Permission, error),
            ClientError::NoDaemon(_) | ClientError::Connect { .. } | ClientError::Broken { .. } => {
                Self::new(Exit::Unreachable, error)
            }
            ClientError::Version { .. } | ClientError::Status { .. } => {
                Self::new(Exit::Failed, error)
            }
            ClientError::Refused(refusal) => {
                let exit = match refusal.code {
                    Code::Forbidden => Exit::Permission,
                    _ => Exit::Failed,
                };
                // The name of a field means nothing to the user of a command; a file and line does.
                let details = refusal.errors.iter().map(ToString::to_string);
                match refusal.errors.is_empty() {
                    true => Self::new(exit, &refusal.message),
                    false => Self::new(exit, details.collect::<Vec<_>>().join("\n")),
                }
            }
        }
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        let exit = match &error {
            ControlError::Denied { .. } => Exit::Permission,
            ControlError::Unreachable { .. } | ControlError::Broken { .. } => Exit::Unreachable,
            ControlError::Token(_)
            | ControlError::Refused { .. }
            | ControlError::Protocol { .. } => Exit::Failed,
        };
        Self::new(exit, error)
    }
}
