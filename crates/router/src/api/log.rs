//! The log of the daemon: its levels, and changes of them at run time.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::backend::Requests;
use super::error::ApiError;
#[cfg(test)]
use super::error::ErrorDocument;
use super::extract::Document;
use super::server::Answer;

/// State of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LogState {
    /// Levels as the configuration writes them: `info,fib=debug`.
    pub(crate) level: String,
    /// Form of a line: `text`, `json` or `journald`.
    pub(crate) format: String,
    /// Lines that were left out because they repeated.
    pub(crate) suppressed: u64,
    /// Targets of lines.
    pub(crate) targets: Vec<LogTarget>,
}

/// A target of lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LogTarget {
    /// Name of the target.
    pub(crate) target: String,
    /// Least important level that is logged: `off`, `error`, `warn`, `info` or `debug`.
    pub(crate) level: String,
    /// What is logged there.
    pub(crate) summary: String,
}

/// A change of levels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogChange {
    /// `LEVEL` for all targets, or `TARGET=LEVEL` for one.
    pub(crate) level: String,
}

/// Levels of the log.
#[cfg_attr(test, utoipa::path(get, path = "/v1/log", responses(
    (status = 200, body = LogState), (status = "default", body = ErrorDocument))))]
pub(super) async fn log(State(requests): State<Requests>) -> Answer<LogState> {
    requests.call(|backend| backend.log()).await.map(Json)
}

/// Changes levels of the log until the end of the run, or until the configuration sets others.
#[cfg_attr(test, utoipa::path(put, path = "/v1/log/level", request_body = LogChange, responses(
    (status = 200, body = LogState), (status = "default", body = ErrorDocument))))]
pub(super) async fn set_level(
    State(requests): State<Requests>,
    Document(change): Document<LogChange>,
) -> Answer<LogState> {
    let done = move |backend: &mut dyn super::backend::Backend| -> Result<_, ApiError> {
        backend.set_log_level(&change)?;
        Ok(backend.log())
    };
    requests.call(done).await?.map(Json)
}
