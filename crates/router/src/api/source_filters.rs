//! Source filters over the API: a lookup, and changes of their prefixes. Their counters are in `/v1/features`.
//!
//! What may take long, such as a list of a million prefixes, is a job of the backend that runs in a thread of its own:
//! routes, packets and other requests do not wait for it. Changes run one after the other.

use axum::Json;
use axum::extract::State;
use fingerpost_packet::feature::source_filter::prefix;
use fingerpost_route::AnyPrefix;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::backend::{Backend, Job, Requests};
use super::error::ApiError;
#[cfg(test)]
use super::error::ErrorDocument;
use super::extract::{Document, Parameters};
use super::saved::{FilterEdit, Persist, SavedChange};
use super::server::{Answer, run};

/// Filters that match an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FilterAnswer {
    /// Source address that was looked up.
    pub(crate) addr: String,
    /// Action on packets from there: `pass`, `drop`, or `limit`.
    pub(crate) does: String,
    /// Filters that match.
    pub(crate) filters: Vec<FilterHit>,
}

/// A filter that matches an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FilterHit {
    /// Name of the filter.
    pub(crate) name: String,
    /// Action of the filter.
    pub(crate) action: String,
    /// Longest matching prefix of the filter; null if it was deleted meanwhile.
    pub(crate) prefix: Option<String>,
    /// Interfaces of the filter.
    pub(crate) interfaces: Option<Vec<String>>,
}

/// Change of the prefixes of a filter: all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterChange {
    /// Name of the filter.
    pub(crate) filter: String,
    /// Prefixes or addresses to add. Host bits are cleared.
    #[serde(default)]
    pub(crate) add: Vec<String>,
    /// Prefixes or addresses to delete.
    #[serde(default)]
    pub(crate) remove: Vec<String>,
}

/// Replacement of the prefixes of a filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterList {
    /// Name of the filter.
    pub(crate) filter: String,
    /// File that the daemon reads: prefixes, one a line, plain or compressed.
    pub(crate) file: String,
}

/// Result of a change of a filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FilterChanged {
    /// Name of the filter.
    pub(crate) filter: String,
    /// Number of prefixes added and deleted.
    pub(crate) changed: usize,
    /// Number of IPv4 prefixes after the change.
    pub(crate) prefixes_v4: usize,
    /// Number of IPv6 prefixes after the change.
    pub(crate) prefixes_v6: usize,
}

/// Parameters of `/v1/source-filters/lookup`.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FilterQuery {
    /// Source address.
    pub(crate) addr: String,
    /// Ingress interface whose filters apply; all filters by default.
    pub(crate) interface: Option<String>,
}

/// Action of the source filters on packets from an address.
#[cfg_attr(test, utoipa::path(get, path = "/v1/source-filters/lookup", params(FilterQuery), responses(
    (status = 200, body = FilterAnswer), (status = "default", body = ErrorDocument))))]
pub(super) async fn lookup(
    State(requests): State<Requests>,
    Parameters(query): Parameters<FilterQuery>,
) -> Answer<FilterAnswer> {
    run(requests.call(move |backend| backend.filter_lookup(query)).await??).await.map(Json)
}

/// Adds prefixes to a filter and deletes others, while packets are forwarded.
#[cfg_attr(test, utoipa::path(post, path = "/v1/source-filters", params(Persist), request_body = FilterChange, responses(
    (status = 200, body = FilterChanged), (status = "default", body = ErrorDocument))))]
pub(super) async fn change(
    State(requests): State<Requests>,
    Parameters(persist): Parameters<Persist>,
    Document(change): Document<FilterChange>,
) -> Answer<FilterChanged> {
    let edits = edits_of(&change);
    change_alone(&requests, persist, edits, move |b| b.change_filter(change)).await.map(Json)
}

/// Replaces the prefixes of a filter by those of a file, atomically and while packets are forwarded. A file with an error
/// changes nothing.
#[cfg_attr(test, utoipa::path(put, path = "/v1/source-filters", params(Persist), request_body = FilterList, responses(
    (status = 200, body = FilterChanged), (status = "default", body = ErrorDocument))))]
pub(super) async fn replace(
    State(requests): State<Requests>,
    Parameters(persist): Parameters<Persist>,
    Document(list): Document<FilterList>,
) -> Answer<FilterChanged> {
    let edit = FilterEdit::Replace(list.file.clone());
    let edits = vec![SavedChange::Filter { filter: list.filter.clone(), edit }];
    change_alone(&requests, persist, edits, move |b| b.replace_filter(list)).await.map(Json)
}

/// The changes of single prefixes; those that cannot be read are refused where they are made.
fn edits_of(change: &FilterChange) -> Vec<SavedChange> {
    let edits = |texts: &[String], edit: fn(AnyPrefix) -> FilterEdit| {
        let prefixes = texts.iter().filter_map(|text| prefix(text).ok());
        let changes = prefixes.map(|prefix| SavedChange::Filter {
            filter: change.filter.clone(),
            edit: edit(prefix),
        });
        changes.collect::<Vec<_>>()
    };
    // A prefix that is both is added in the end.
    [edits(&change.remove, FilterEdit::Remove), edits(&change.add, FilterEdit::Add)].concat()
}

/// Runs the job of a change while no other change runs, notes the changes, and saves them if wanted.
async fn change_alone<T: Send + 'static>(
    requests: &Requests,
    Persist { persist }: Persist,
    edits: Vec<SavedChange>,
    change: impl FnOnce(&mut dyn Backend) -> Job<T> + Send + 'static,
) -> Result<T, ApiError> {
    if persist {
        requests.call(|backend| backend.check_saving()).await??;
    }
    // The whole of it is carried out also where the client leaves.
    let _alone = requests.write_lock().await;
    let done = run(requests.call(change).await?).await?;
    let noted = requests.call(move |backend| backend.note_edits(edits, persist)).await;
    if let Some(job) = noted.map_err(ApiError::unsaved_if_stopping)? {
        run(job).await.map_err(ApiError::unsaved_if_stopping)?;
    }
    Ok(done)
}
