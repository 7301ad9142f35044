//! Configurations over the API: the running one, differences, `config apply`, a change that waits for its confirmation, and the
//! history.

use axum::Json;
use axum::extract::{Extension, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::access::Requester;
use super::backend::{Job, Made, Requests};
#[cfg(test)]
use super::error::ErrorDocument;
use super::error::{ApiError, Code};
use super::extract::{Document, Segment};
use super::model::{ConfigChange, ConfigText};
use super::server::{Answer, run, visible};
use crate::service::Reloading;

/// Longest time until a configuration must be confirmed: a day.
pub(crate) const LONGEST_CONFIRM_S: u32 = 86_400;

/// A configuration to apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigApply {
    /// File name, for messages.
    pub(crate) file: String,
    /// Content of the file.
    pub(crate) text: String,
    /// Seconds after which the configuration before is restored unless this one is confirmed, 1 to 86400; null: it stays.
    #[serde(default)]
    pub(crate) confirm_s: Option<u32>,
}

impl ConfigApply {
    /// File and text.
    pub(crate) fn document(&self) -> ConfigText {
        ConfigText { file: self.file.clone(), text: self.text.clone() }
    }
}

/// Result of a change of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ConfigApplied {
    /// Number of the configuration in the history.
    pub(crate) number: u64,
    /// Differences from the configuration before.
    pub(crate) changes: Vec<ConfigChange>,
    /// Seconds until the configuration before is restored unless this one is confirmed; null where it stays.
    pub(crate) confirm_s: Option<u32>,
}

/// What is to be rolled back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigRollback {
    /// Number of the configuration of the history to apply again; null: the configuration before the one that waits for its
    /// confirmation.
    #[serde(default)]
    pub(crate) number: Option<u64>,
    /// Seconds for its own confirmation, as `confirm_s` of `/v1/config/apply`.
    #[serde(default)]
    pub(crate) confirm_s: Option<u32>,
}

/// State of a configuration of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConfigState {
    /// The daemon started with it.
    Started,
    /// It was applied for good.
    Applied,
    /// It was applied, and waits for its confirmation.
    Waiting,
    /// It was applied and confirmed.
    Confirmed,
    /// It was applied, and the configuration before was restored.
    RolledBack,
}

/// A configuration of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ConfigEntry {
    /// Number, which grows with each configuration.
    pub(crate) number: u64,
    /// Time when it was applied, in UTC, by RFC 3339 with milliseconds.
    pub(crate) time: String,
    /// File name; empty where the daemon was started without a file.
    pub(crate) file: String,
    /// Who applied it.
    pub(crate) by: Requester,
    /// State.
    pub(crate) state: ConfigState,
    /// Why the configuration before was restored; null where it was not.
    #[serde(default)]
    pub(crate) reason: Option<String>,
    /// Time when it was confirmed or rolled back; null where it was neither.
    #[serde(default)]
    pub(crate) ended: Option<String>,
    /// Whether it is the running one.
    #[serde(default)]
    pub(crate) running: bool,
    /// Seconds until the configuration before is restored; null where it does not wait for its confirmation.
    #[serde(default)]
    pub(crate) seconds_left: Option<u64>,
    /// Its changes in words, the first ones of many.
    pub(crate) changes: Vec<String>,
}

/// A configuration of the history with its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ConfigShown {
    /// The configuration.
    #[serde(flatten)]
    pub(crate) entry: ConfigEntry,
    /// Its text.
    pub(crate) text: String,
}

/// Running configuration, and whether it waits for its confirmation.
#[cfg_attr(test, utoipa::path(get, path = "/v1/config", responses(
    (status = 200, body = ConfigShown), (status = "default", body = ErrorDocument))))]
pub(super) async fn running(State(requests): State<Requests>) -> Answer<ConfigShown> {
    requests.call(|backend| backend.shown_config(None)).await?.map(Json)
}

/// Configurations that were applied, the oldest first.
#[cfg_attr(test, utoipa::path(get, path = "/v1/config/history", responses(
    (status = 200, body = Vec<ConfigEntry>), (status = "default", body = ErrorDocument))))]
pub(super) async fn history(State(requests): State<Requests>) -> Answer<Vec<ConfigEntry>> {
    requests.call(|backend| backend.config_history()).await.map(Json)
}

/// Configuration of the history by its number, with its text.
#[cfg_attr(test, utoipa::path(get, path = "/v1/config/history/{number}", params(
    ("number" = u64, Path, description = "Number of the configuration")), responses(
    (status = 200, body = ConfigShown), (status = "default", body = ErrorDocument))))]
pub(super) async fn of_history(
    State(requests): State<Requests>,
    Segment(number): Segment,
) -> Answer<ConfigShown> {
    let number = number.parse().map_err(|_| {
        ApiError::at(Code::BadRequest, "number", format_args!("`{number}` is no number"))
    })?;
    requests.call(move |backend| backend.shown_config(Some(number))).await?.map(Json)
}

/// Differences of a configuration from the running one.
#[cfg_attr(test, utoipa::path(post, path = "/v1/config/diff", request_body = ConfigText, responses(
    (status = 200, body = Vec<ConfigChange>), (status = "default", body = ErrorDocument))))]
pub(super) async fn diff(
    State(requests): State<Requests>,
    Document(text): Document<ConfigText>,
) -> Answer<Vec<ConfigChange>> {
    // A text of a hundred thousand routes takes a while to read; routes and packets do not wait for it.
    run(requests.call(move |backend| backend.compare_config(text)).await?).await.map(Json)
}

/// Applies a configuration, as far as that is possible without a restart: all of it or nothing. With `confirm_s` the daemon
/// restores the configuration before unless this one is confirmed in time.
#[cfg_attr(test, utoipa::path(post, path = "/v1/config/apply", request_body = ConfigApply, responses(
    (status = 200, body = ConfigApplied), (status = "default", body = ErrorDocument))))]
pub(super) async fn apply_one(
    State(requests): State<Requests>,
    Extension(by): Extension<Requester>,
    Document(wanted): Document<ConfigApply>,
) -> Answer<ConfigApplied> {
    apply(&requests, wanted, by).await.map(Json)
}

/// Confirms the configuration that waits for it.
#[cfg_attr(test, utoipa::path(post, path = "/v1/config/confirm", responses(
    (status = 200, body = ConfigEntry), (status = "default", body = ErrorDocument))))]
pub(super) async fn confirm(
    State(requests): State<Requests>,
    Extension(by): Extension<Requester>,
) -> Answer<ConfigEntry> {
    let confirmed = requests.call(move |backend| backend.confirm_config(&by)).await??;
    written(confirmed.written).await?;
    Ok(Json(confirmed.done))
}

/// Restores the configuration before the one that waits for its confirmation, or applies one of the history again.
#[cfg_attr(test, utoipa::path(post, path = "/v1/config/rollback", request_body = ConfigRollback, responses(
    (status = 200, body = ConfigApplied), (status = "default", body = ErrorDocument))))]
pub(super) async fn rollback(
    State(requests): State<Requests>,
    Extension(by): Extension<Requester>,
    Document(ConfigRollback { number, confirm_s }): Document<ConfigRollback>,
) -> Answer<ConfigApplied> {
    let Some(number) = number else {
        let undone = requests.call(move |backend| backend.undo_config(&by)).await??;
        return lasting(&requests, undone).await.map(Json);
    };
    let shown = requests.call(move |backend| backend.shown_config(Some(number))).await??;
    let wanted = ConfigApply { file: shown.entry.file, text: shown.text, confirm_s };
    apply(&requests, wanted, by).await.map(Json)
}

/// Applies a configuration: makes the states of changed features in a thread of its own, then has the backend apply it.
///
/// # Errors
/// When the text has errors, or the change is refused; then the running configuration stays.
pub(crate) async fn apply(
    requests: &Requests,
    wanted: ConfigApply,
    by: Requester,
) -> Result<ConfigApplied, ApiError> {
    if wanted.confirm_s.is_some_and(|seconds| !(1..=LONGEST_CONFIRM_S).contains(&seconds)) {
        let words = format_args!("1 to {LONGEST_CONFIRM_S} seconds are needed");
        return Err(ApiError::at(Code::BadRequest, "confirm_s", words));
    }
    // A prefix that is added to a filter meanwhile would be missing in what is prepared.
    let alone = requests.write_lock().await;
    let reloading = Reloading::begin();
    let text = wanted.document();
    let (session, job) = requests.call(move |backend| backend.prepare_config(text)).await?;
    let alone = run(Box::new(move || job().map(|()| alone))).await?;
    let asked = wanted.clone();
    let alone = match requests.call(move |backend| backend.record_config(&asked)).await?? {
        Some(job) => run(Box::new(move || job().map(|()| alone))).await?,
        None => alone,
    };
    let number = session.number();
    let applied = requests.call(move |backend| {
        // Until the end of the change: the messages of the next one follow those of this one.
        let _held = (alone, reloading);
        backend.apply_config(&wanted, by, number)
    });
    lasting(requests, applied.await??).await
}

/// Waits until packets follow a change and the history has it. The reply to a change that was made never reads as if
/// nothing was changed.
async fn lasting<T>(requests: &Requests, made: Made<T>) -> Result<T, ApiError> {
    let seen = visible(requests, made.awaited).await;
    written(made.written).await?;
    seen.map(|_| made.done)
}

/// Waits until the history is written, so that it has what was replied even if the daemon is killed in the next moment.
async fn written(job: Option<Job<()>>) -> Result<(), ApiError> {
    let Some(job) = job else { return Ok(()) };
    run(job).await.map_err(ApiError::unsaved_if_stopping)
}
