//! Source filters over the API: lookups in their lists, and changes of these. What they count is in `/v1/features`.
//!
//! The daemon's thread only hands out the filters. What may take long, a list of a million prefixes, is read and changed
//! by a thread for the request alone: routes, packets and other requests go on.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fingerpost_packet::feature::source_filter::{Covering, SourceFilters, prefix};
use fingerpost_route::AnyPrefix;
use fingerpost_route::source::words::unknown;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::backend::Ask;
use super::error::{ApiError, Code, ErrorDocument};
use super::extract::{Document, Parameters};
use super::features::aside;

/// The answer to `source-filter lookup`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FilterAnswer {
    /// The address.
    pub(crate) addr: String,
    /// Verdict on packets from there: `pass`, `drop`, or `limit`.
    pub(crate) does: String,
    /// The filters whose lists have it.
    pub(crate) filters: Vec<FilterHit>,
}

/// A filter whose list has an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FilterHit {
    /// Its name.
    pub(crate) name: String,
    /// Its action.
    pub(crate) action: String,
    /// The longest of its prefixes that covers the address; null if it went just now.
    pub(crate) prefix: Option<String>,
    /// The interfaces whose packets it is for; null for all that are forwarded here.
    pub(crate) interfaces: Option<Vec<String>>,
}

/// Changes of a filter's list: all of them or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterChange {
    /// Name of the filter.
    pub(crate) filter: String,
    /// Prefixes, or addresses, that are to be on it. Host bits are cleared.
    #[serde(default)]
    pub(crate) add: Vec<String>,
    /// Prefixes that are to be on it no longer.
    #[serde(default)]
    pub(crate) remove: Vec<String>,
}

/// Another list for a filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterList {
    /// Name of the filter.
    pub(crate) filter: String,
    /// A file that the daemon reads: prefixes, one a line, plain or compressed.
    pub(crate) file: String,
}

/// What a change of a list did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FilterChanged {
    /// Name of the filter.
    pub(crate) filter: String,
    /// Prefixes that came or went; the others were as wanted.
    pub(crate) changed: usize,
    /// Number of IPv4 prefixes now.
    pub(crate) prefixes_v4: usize,
    /// Number of IPv6 prefixes now.
    pub(crate) prefixes_v6: usize,
}

/// Parameters of `/v1/source-filters/lookup`.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FilterQuestion {
    /// Source address.
    pub(crate) addr: String,
    /// Name of an interface, for its filters alone; all filters unless named.
    pub(crate) interface: Option<String>,
}

impl From<Covering> for FilterHit {
    fn from(on: Covering) -> Self {
        Self {
            name: on.name,
            action: on.action.name().to_owned(),
            prefix: on.prefix.map(|prefix| prefix.to_string()),
            interfaces: on.interfaces,
        }
    }
}

/// The number of the filter of this name.
fn find(filters: Option<&Arc<SourceFilters>>, name: &str) -> Result<usize, ApiError> {
    let none = || {
        ApiError::at(Code::NotFound, "filter", "there are no source filters: see [[source_filter]]")
    };
    let filters = filters.ok_or_else(none)?;
    filters.find(name).ok_or_else(|| {
        ApiError::at(Code::NotFound, "filter", unknown("source filter", name, filters.names()))
    })
}

fn prefixes(place: &str, texts: &[String]) -> Result<Vec<AnyPrefix>, ApiError> {
    let read = |text: &String| prefix(text);
    let read: Result<Vec<AnyPrefix>, String> = texts.iter().map(read).collect();
    read.map_err(|words| ApiError::at(Code::BadRequest, place, words))
}

/// Verdict of the source filters on packets from an address.
#[utoipa::path(get, path = "/v1/source-filters/lookup", params(FilterQuestion), responses(
    (status = 200, body = FilterAnswer), (status = "default", body = ErrorDocument)))]
pub(super) async fn lookup(
    State(ask): State<Ask>,
    Parameters(question): Parameters<FilterQuestion>,
) -> Result<Json<FilterAnswer>, ApiError> {
    let FilterQuestion { addr, interface } = question;
    let words = || ApiError::at(Code::BadRequest, "addr", format!("`{addr}` is no address"));
    let addr: IpAddr = addr.parse().map_err(|_| words())?;
    let (filters, port) = ask
        .ask(move |daemon| -> Result<_, ApiError> {
            let port = interface.map(|name| daemon.port_of(&name)).transpose()?;
            Ok((daemon.features().of::<SourceFilters>(), port))
        })
        .await??;
    aside(move || {
        let found = filters.map(|filters| filters.lookup(addr, port));
        let (does, on) = found.unwrap_or(("pass", Vec::new()));
        let filters = on.into_iter().map(FilterHit::from).collect();
        Ok(Json(FilterAnswer { addr: addr.to_string(), does: does.to_owned(), filters }))
    })
    .await
}

/// Adds prefixes to a filter's list, and takes others away, while packets flow.
#[utoipa::path(post, path = "/v1/source-filters", request_body = FilterChange, responses(
    (status = 200, body = FilterChanged), (status = "default", body = ErrorDocument)))]
pub(super) async fn change(
    State(ask): State<Ask>,
    Document(change): Document<FilterChange>,
) -> Result<Json<FilterChanged>, ApiError> {
    let alone = ask.changes().await;
    let filters = ask.ask(|daemon| daemon.features().of::<SourceFilters>()).await?;
    aside(move || {
        // To the end, also where the client goes away.
        let _alone = alone;
        let add = prefixes("add", &change.add)?;
        let remove = prefixes("remove", &change.remove)?;
        changed(filters, change.filter, |filters, at| filters.edit(at, &add, &remove))
    })
    .await
}

/// Exchanges a filter's list for that of a file, at once and while packets flow. A file that cannot be
/// read changes nothing.
#[utoipa::path(put, path = "/v1/source-filters", request_body = FilterList, responses(
    (status = 200, body = FilterChanged), (status = "default", body = ErrorDocument)))]
pub(super) async fn replace(
    State(ask): State<Ask>,
    Document(list): Document<FilterList>,
) -> Result<Json<FilterChanged>, ApiError> {
    let alone = ask.changes().await;
    let filters = ask.ask(|daemon| daemon.features().of::<SourceFilters>()).await?;
    aside(move || {
        let _alone = alone;
        changed(filters, list.filter, |filters, at| filters.replace(at, &list.file))
    })
    .await
}

fn changed(
    filters: Option<Arc<SourceFilters>>,
    filter: String,
    change: impl FnOnce(&SourceFilters, usize) -> Result<usize, String>,
) -> Result<Json<FilterChanged>, ApiError> {
    let at = find(filters.as_ref(), &filter)?;
    let filters = filters.expect("one was found there");
    let done = change(&filters, at).map_err(|words| ApiError::new(Code::Refused, words))?;
    let [prefixes_v4, prefixes_v6] = filters.count(at);
    Ok(Json(FilterChanged { filter, changed: done, prefixes_v4, prefixes_v6 }))
}
