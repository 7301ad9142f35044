//! Filters by source over the API: what there are, who is on them, and changes of their lists.
//!
//! The daemon's thread only says which filters there are. What may take long, a list of a million prefixes, is read and
//! changed by a thread for the question alone: routes, packets and other questions go on.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fingerpost_packet::source_filters::{Action, Covering, Row, SourceFilters, prefix};
use fingerpost_route::AnyPrefix;
use fingerpost_route::source::words::unknown;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::backend::Ask;
use super::error::{ApiError, Code, ErrorDocument};
use super::extract::{Document, Parameters};
use super::model::{ConfigChange, ConfigText};

/// A list of source prefixes, and what becomes of packets from there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Filter {
    /// Its name.
    pub(crate) name: String,
    /// `pass` (whatever other filters say), `drop`, `limit`, `count`.
    pub(crate) action: String,
    /// What it lets pass a second in each worker; null where it does not limit.
    pub(crate) rate: Option<String>,
    /// The interfaces whose packets it is for; null for all that are forwarded here.
    pub(crate) interfaces: Option<Vec<String>>,
    /// How many prefixes of IPv4 it has.
    pub(crate) prefixes_v4: usize,
    /// And of IPv6.
    pub(crate) prefixes_v6: usize,
    /// Packets from there that came in by these interfaces.
    pub(crate) packets: u64,
    /// Bytes of them, with their Ethernet headers.
    pub(crate) bytes: u64,
    /// Those of them that were dropped, by this filter or another one.
    pub(crate) dropped: u64,
}

/// The answer to `filter lookup`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FilterAnswer {
    /// What was asked.
    pub(crate) addr: String,
    /// What becomes of packets from there: `pass`, `drop`, or `limit`.
    pub(crate) does: String,
    /// The filters that it is on.
    pub(crate) filters: Vec<FilterHit>,
}

/// A filter that an address is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FilterHit {
    /// Its name.
    pub(crate) name: String,
    /// As of the filter.
    pub(crate) action: String,
    /// The longest of its prefixes that covers the address; null if it went just now.
    pub(crate) prefix: Option<String>,
    /// As of the filter.
    pub(crate) interfaces: Option<Vec<String>>,
}

/// Changes of a filter's list: all of them or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterChange {
    /// Which filter.
    pub(crate) filter: String,
    /// Prefixes, or addresses, that are to be on it. Host bits are cleared.
    #[serde(default)]
    pub(crate) add: Vec<String>,
    /// Those that are to be on it no longer.
    #[serde(default)]
    pub(crate) remove: Vec<String>,
}

/// Another list for a filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterList {
    /// Which filter.
    pub(crate) filter: String,
    /// A file that the daemon reads: prefixes, one a line, plain or compressed.
    pub(crate) file: String,
}

/// What a change of a list did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FilterChanged {
    /// Which filter.
    pub(crate) filter: String,
    /// Prefixes that came or went; the others were as wanted.
    pub(crate) changed: usize,
    /// Prefixes of IPv4 now.
    pub(crate) prefixes_v4: usize,
    /// And of IPv6.
    pub(crate) prefixes_v6: usize,
}

/// Parameters of `/v1/filters/lookup`.
#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FilterQuestion {
    /// Of which source address.
    pub(crate) addr: String,
    /// By the filters of this interface; by all unless named.
    pub(crate) interface: Option<String>,
}

fn rate_of(action: Action) -> Option<String> {
    match action {
        Action::Limit(rate) => Some(rate.to_string()),
        _ => None,
    }
}

impl From<Row> for Filter {
    fn from(row: Row) -> Self {
        Self {
            name: row.name,
            action: row.action.name().to_owned(),
            rate: rate_of(row.action),
            interfaces: row.interfaces,
            prefixes_v4: row.v4,
            prefixes_v6: row.v6,
            packets: row.packets,
            bytes: row.bytes,
            dropped: row.dropped,
        }
    }
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

/// Runs what may take long beside everything else.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    // It fails when the runtime ends, or with a panic, which said so itself.
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(ApiError::stopping()))
}

/// The number of the filter of this name.
fn find(filters: Option<&Arc<SourceFilters>>, name: &str) -> Result<usize, ApiError> {
    let none = || ApiError::at(Code::NotFound, "filter", "there are no filters: see [[filter]]");
    let filters = filters.ok_or_else(none)?;
    filters.find(name).ok_or_else(|| {
        ApiError::at(Code::NotFound, "filter", unknown("filter", name, filters.names()))
    })
}

fn prefixes(place: &str, texts: &[String]) -> Result<Vec<AnyPrefix>, ApiError> {
    let read = |text: &String| prefix(text);
    let read: Result<Vec<AnyPrefix>, String> = texts.iter().map(read).collect();
    read.map_err(|words| ApiError::at(Code::BadRequest, place, words))
}

/// Filters by source prefix.
#[utoipa::path(get, path = "/v1/filters", responses(
    (status = 200, body = Vec<Filter>), (status = "default", body = ErrorDocument)))]
pub(super) async fn filters(State(ask): State<Ask>) -> Result<Json<Vec<Filter>>, ApiError> {
    let filters = ask.ask(|daemon| daemon.filters()).await?;
    let rows = aside(move || Ok(filters.map(|filters| filters.rows()).unwrap_or_default()));
    Ok(Json(rows.await?.into_iter().map(Filter::from).collect()))
}

/// What becomes of packets from an address by the filters.
#[utoipa::path(get, path = "/v1/filters/lookup", params(FilterQuestion), responses(
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
            Ok((daemon.filters(), port))
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
#[utoipa::path(post, path = "/v1/filters", request_body = FilterChange, responses(
    (status = 200, body = FilterChanged), (status = "default", body = ErrorDocument)))]
pub(super) async fn change(
    State(ask): State<Ask>,
    Document(change): Document<FilterChange>,
) -> Result<Json<FilterChanged>, ApiError> {
    let alone = ask.filters().await;
    let filters = ask.ask(|daemon| daemon.filters()).await?;
    aside(move || {
        // To the end, also where the client goes away.
        let _alone = alone;
        let add = prefixes("add", &change.add)?;
        let remove = prefixes("remove", &change.remove)?;
        changed(filters, change.filter, |filters, at| filters.edit(at, &add, &remove))
    })
    .await
}

/// Exchanges a filter's list for that of a file, at once and while packets flow. A file that makes no sense changes
/// nothing.
#[utoipa::path(put, path = "/v1/filters", request_body = FilterList, responses(
    (status = 200, body = FilterChanged), (status = "default", body = ErrorDocument)))]
pub(super) async fn replace(
    State(ask): State<Ask>,
    Document(list): Document<FilterList>,
) -> Result<Json<FilterChanged>, ApiError> {
    let alone = ask.filters().await;
    let filters = ask.ask(|daemon| daemon.filters()).await?;
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

/// Makes the running configuration this one, as far as that can be done while running.
#[utoipa::path(post, path = "/v1/config/apply", request_body = ConfigText, responses(
    (status = 200, body = Vec<ConfigChange>), (status = "default", body = ErrorDocument)))]
pub(super) async fn config_apply(
    State(ask): State<Ask>,
    Document(text): Document<ConfigText>,
) -> Result<Json<Vec<ConfigChange>>, ApiError> {
    apply(&ask, text).await.map(Json)
}

/// The same for whoever asks from within: reads the lists of other filters, then asks the daemon for all of it.
pub(crate) async fn apply(ask: &Ask, text: ConfigText) -> Result<Vec<ConfigChange>, ApiError> {
    // What is added to a list meanwhile would be missing in what is made of it.
    let alone = ask.filters().await;
    let asked = text.clone();
    let wanted = ask.ask(move |daemon| daemon.filters_wanted(&asked)).await??;
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
