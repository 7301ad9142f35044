//! Interface features over the API: the rows of each, and `config apply`, which makes their states.

use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::backend::Requests;
use super::error::ApiError;
#[cfg(test)]
use super::error::ErrorDocument;
use super::extract::Document;
use super::model::{ConfigChange, ConfigText};
use super::server::{Answer, run};
use super::session::Session;

/// An interface feature of this program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Feature {
    /// Name of the feature.
    pub(crate) name: String,
    /// Description, in a line.
    pub(crate) summary: String,
    /// Whether some interface uses it.
    pub(crate) used: bool,
}

/// A row of a feature as JSON, with the feature's own fields.
pub(crate) type FeatureRow = Map<String, Value>;

/// Interface features.
#[cfg_attr(test, utoipa::path(get, path = "/v1/features", responses(
    (status = 200, body = Vec<Feature>), (status = "default", body = ErrorDocument))))]
pub(super) async fn features(State(requests): State<Requests>) -> Answer<Vec<Feature>> {
    requests.call(|backend| backend.features()).await.map(Json)
}

/// Rows of a feature, an object each with the feature's own fields; `NAME show` prints the same rows.
#[cfg_attr(test, utoipa::path(get, path = "/v1/features/{name}", params(
    ("name" = String, Path, description = "Name of the feature")), responses(
    (status = 200, body = Vec<Object>), (status = "default", body = ErrorDocument))))]
pub(super) async fn feature(
    State(requests): State<Requests>,
    Path(name): Path<String>,
) -> Answer<Vec<FeatureRow>> {
    run(requests.call(move |backend| backend.feature_rows(&name)).await??).await.map(Json)
}

/// Applies a configuration, as far as that is possible without a restart.
#[cfg_attr(test, utoipa::path(post, path = "/v1/config/apply", request_body = ConfigText, responses(
    (status = 200, body = Vec<ConfigChange>), (status = "default", body = ErrorDocument))))]
pub(super) async fn config_apply(
    State(requests): State<Requests>,
    Document(text): Document<ConfigText>,
) -> Answer<Vec<ConfigChange>> {
    apply(&requests, text).await.map(Json)
}

/// Applies a configuration: makes the states of changed features in a thread of its own, then has the backend apply it.
///
/// # Errors
/// When the text has errors, or the change is refused; then the running configuration stays.
pub(crate) async fn apply(
    requests: &Requests,
    text: ConfigText,
) -> Result<Vec<ConfigChange>, ApiError> {
    // A prefix that is added to a filter meanwhile would be missing in what is prepared.
    let alone = requests.write_lock().await;
    let asked = text.clone();
    let (alone, session) =
        match requests.call(move |backend| backend.prepare_config(&asked)).await?? {
            Some((session, job)) => {
                (run(Box::new(move || job().map(|()| alone))).await?, Some(session))
            }
            None => (alone, None),
        };
    let number = session.as_ref().map(Session::number);
    let applied = requests.call(move |backend| {
        let _alone = alone;
        backend.apply_config(&text, number)
    });
    applied.await?
}
