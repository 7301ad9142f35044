//! Interface features over the API: what each has to show, by the registry's rows; and `config apply`, which makes their
//! states.

use axum::Json;
use axum::extract::{Path, State};
use fingerpost_packet::feature::row::Cell;
use fingerpost_packet::feature::{FEATURES, Feature as Row};
use fingerpost_route::source::words::unknown;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::backend::Ask;
use super::error::{ApiError, Code, ErrorDocument};
use super::extract::Document;
use super::model::{ConfigChange, ConfigText};

/// An interface feature that this program has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Feature {
    /// Its name.
    pub(crate) name: String,
    /// What it does, in a line.
    pub(crate) summary: String,
    /// Some interface uses it.
    pub(crate) used: bool,
}

/// Interface features.
#[utoipa::path(get, path = "/v1/features", responses(
    (status = 200, body = Vec<Feature>), (status = "default", body = ErrorDocument)))]
pub(super) async fn features(State(ask): State<Ask>) -> Result<Json<Vec<Feature>>, ApiError> {
    let states = ask.ask(|daemon| daemon.features()).await?;
    let feature = |row: &Row| Feature {
        name: row.name.to_owned(),
        summary: row.summary.to_owned(),
        used: states.find(row.name).is_some(),
    };
    Ok(Json(FEATURES.iter().map(feature).collect()))
}

/// What a feature shows: an object a row, with the feature's own fields; `NAME show` has the same.
#[utoipa::path(get, path = "/v1/features/{name}", params(
    ("name" = String, Path, description = "Name of the feature")), responses(
    (status = 200, body = Vec<Object>), (status = "default", body = ErrorDocument)))]
pub(super) async fn feature(
    State(ask): State<Ask>,
    Path(name): Path<String>,
) -> Result<Json<Vec<Map<String, Value>>>, ApiError> {
    let row = FEATURES.iter().find(|row| row.name == name && !row.columns.is_empty());
    let row = row.ok_or_else(|| {
        let known = FEATURES.iter().filter(|row| !row.columns.is_empty()).map(|row| row.name);
        ApiError::at(Code::NotFound, "name", unknown("feature with rows", &name, known))
    })?;
    let states = ask.ask(|daemon| daemon.features()).await?;
    // Sums over the counts of all workers: beside routes and packets.
    let rows =
        aside(move || Ok(states.find(row.name).map(|state| state.rows()).unwrap_or_default()));
    Ok(Json(rows.await?.into_iter().map(|cells| object(row, cells)).collect()))
}

/// A row as JSON.
fn object(row: &Row, cells: Vec<Cell>) -> Map<String, Value> {
    let value = |cell| match cell {
        Cell::Nothing => Value::Null,
        Cell::Text(text) => text.into(),
        Cell::Number(number) => number.into(),
        Cell::Words(words) => words.into(),
    };
    let fields = row.columns.iter().map(|column| column.field.to_owned());
    fields.zip(cells.into_iter().map(value)).collect()
}

/// Runs what may take long beside everything else.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    // It fails when the runtime ends, or with a panic, which said so itself.
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(ApiError::stopping()))
}

/// Makes the running configuration this one, as far as that can be done while running.
#[utoipa::path(post, path = "/v1/config/apply", request_body = ConfigText, responses(
    (status = 200, body = Vec<ConfigChange>), (status = "default", body = ErrorDocument)))]
pub(super) async fn config_apply(
    State(ask): State<Ask>,
    Document(text): Document<ConfigText>,
) -> Result<Json<Vec<ConfigChange>>, ApiError> {
    apply(&ask, text).await.map(Json)
}

/// Applies a configuration: makes the states of changed features, then has the daemon apply all of it.
pub(crate) async fn apply(ask: &Ask, text: ConfigText) -> Result<Vec<ConfigChange>, ApiError> {
    // What is added to a list meanwhile would be missing in what is made of it.
    let alone = ask.changes().await;
    let asked = text.clone();
    let wanted = ask.ask(move |daemon| daemon.features_wanted(&asked)).await??;
    let (alone, prepared) = match wanted {
        Some(wanted) => aside(move || Ok((alone, Some(wanted.prepare()?)))).await?,
        None => (alone, None),
    };
    let applied = ask.ask(move |daemon| {
        let _alone = alone;
        daemon.config_apply(&text, prepared)
    });
    applied.await?
}
