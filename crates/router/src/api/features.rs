//! Interface features over the API: the rows of each.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::backend::Requests;
#[cfg(test)]
use super::error::ErrorDocument;
use super::extract::Segment;
use super::server::{Answer, run};

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
    Segment(name): Segment,
) -> Answer<Vec<FeatureRow>> {
    run(requests.call(move |backend| backend.feature_rows(&name)).await??).await.map(Json)
}
