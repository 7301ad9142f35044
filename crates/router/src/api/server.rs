//! The server: connections, paths, and the description of what there is.
//!
//! One thread, one runtime. Whatever a client does (half a request, nothing at all, leaving in the
//! middle) costs one of a bounded number of connections for a bounded time; only a client that reads
//! a stream may take as long as it likes.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, WARNING};
use fingerpost_command::former;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, oneshot};
#[cfg(test)]
use utoipa_axum::{router::OpenApiRouter, routes};

use super::backend::{Job, Requests};
#[cfg(test)]
use super::error::ErrorDocument;
use super::error::{ApiError, Code};
use super::extract::{Document, Parameters};
use super::model::{
    AlgorithmChange, ConfigChange, ConfigText, Fib, Group, Interface, Neighbor, NeighborChange,
    NeighborChanged, NextHop, RouteAnswer, RouteChange, RouteChanged, RouteQuery, Source, Status,
    Verification,
};
use super::{cluster, features, graph, source_filters, streams};
use crate::privilege;
use crate::sys;

/// Clients at one time; further ones wait to be accepted.
const CONNECTIONS: usize = 128;
/// Longest time for the head of a request, and longest silence of a connection.
const LONGEST_HEAD: Duration = Duration::from_secs(10);

/// A running server. It ends when this is dropped.
pub(crate) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on `listener`, which must not block, and sends requests to the backend through `requests`.
    ///
    /// # Errors
    /// When the thread or its runtime cannot be made.
    pub(crate) fn start(listener: UnixListener, requests: Requests) -> io::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread =
            std::thread::Builder::new().name("fingerpost-api".into()).spawn(move || {
                privilege::keep_for_jobs();
                runtime.block_on(async move {
                    let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { return };
                    tokio::select! {
                        () = serve(listener, requests) => {}
                        // Ends when the other end of `stop` is gone.
                        _ = stopped => {}
                    }
                });
                // What still reads a list is not waited for.
                runtime.shutdown_background();
            })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A server that failed has printed its error.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: tokio::net::UnixListener, requests: Requests) {
    let router = router().with_state(requests);
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: it gets better or it does not, but never by spinning.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if !is_allowed(&stream) {
            continue;
        }
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            // A client that breaks its own connection harms nobody else.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(LONGEST_HEAD)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            drop(permit);
        });
    }
}

/// Whether the client's user is allowed. The mode of the socket file states as much; this also holds for clients that
/// connected before the mode was set.
fn is_allowed(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == sys::user())
}

/// Defines the router of a list of paths, and for the tests its description.
macro_rules! paths {
    ($($method:ident $path:literal $($handler:ident)::+;)*) => {
        fn paths() -> axum::Router<Requests> {
            axum::Router::new()$(.route($path, axum::routing::$method($($handler)::+)))*
        }

        #[cfg(test)]
        fn description() -> utoipa::openapi::OpenApi {
            let description = <tests::Description as utoipa::OpenApi>::openapi();
            let paths = [$((stringify!($method), $path)),*];
            let router = OpenApiRouter::<Requests>::with_openapi(description);
            tests::checked(router$(.routes(routes!($($handler)::+)))*.into_openapi(), &paths)
        }
    };
}

paths! {
    get "/v1/status" status;
    get "/v1/route" route;
    get "/v1/routes" streams::route_list;
    post "/v1/routes" change_route;
    get "/v1/events" streams::events;
    post "/v1/config/diff" config_diff;
    post "/v1/config/apply" features::config_apply;
    get "/v1/nexthops" nexthops;
    get "/v1/groups" groups;
    get "/v1/fibs" fibs;
    put "/v1/algorithm" algorithm;
    post "/v1/verify" verify;
    get "/v1/interfaces" interfaces;
    get "/v1/neighbors" neighbors;
    post "/v1/neighbors" change_neighbor;
    get "/v1/sources" sources;
    get "/v1/features" features::features;
    get "/v1/features/{name}" features::feature;
    post "/v1/source-filters" source_filters::change;
    put "/v1/source-filters" source_filters::replace;
    get "/v1/source-filters/lookup" source_filters::lookup;
    get "/v1/cluster" cluster::cluster;
    post "/v1/cluster/drain" cluster::drain;
    get "/v1/graph" graph::graph;
    put "/v1/graph" graph::swap;
    get "/v1/trace" graph::trace;
    get "/v1/why" graph::why;
}

/// Description of the paths. A test makes it of the handlers and their types; the daemon only serves it.
const DESCRIPTION: &str = include_str!("../../../../docs/openapi.json");

/// All paths.
fn router() -> axum::Router<Requests> {
    let document = || async { ([(CONTENT_TYPE, "application/json")], DESCRIPTION) };
    paths()
        .route("/openapi.json", axum::routing::get(document))
        .route(FORMER_SOURCES, axum::routing::get(former_sources))
        .fallback(|| async { ApiError::new(Code::NotFound, "no such path: see /openapi.json") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(Code::MethodNotAllowed, "method not allowed: see /openapi.json")
        })
}

/// Response of a path: a document, or an error.
pub(super) type Answer<T> = Result<Json<T>, ApiError>;

/// Runs a job of the backend in a thread of its own.
pub(super) async fn run<T: Send + 'static>(job: Job<T>) -> Result<T, ApiError> {
    // It fails when the runtime ends, or with a panic, which has printed itself.
    tokio::task::spawn_blocking(job).await.unwrap_or_else(|_| Err(ApiError::stopping()))
}

/// State of the daemon.
#[cfg_attr(test, utoipa::path(get, path = "/v1/status", responses(
    (status = 200, body = Status), (status = "default", body = ErrorDocument))))]
async fn status(State(requests): State<Requests>) -> Answer<Status> {
    requests.call(|backend| backend.status()).await.map(Json)
}

/// Route of an address, from the live lookup.
#[cfg_attr(test, utoipa::path(get, path = "/v1/route", params(RouteQuery), responses(
    (status = 200, body = RouteAnswer), (status = "default", body = ErrorDocument))))]
async fn route(
    State(requests): State<Requests>,
    Parameters(query): Parameters<RouteQuery>,
) -> Answer<RouteAnswer> {
    requests.call(move |backend| backend.route(&query)).await?.map(Json)
}

/// Adds, changes or deletes a route of the source `command`.
#[cfg_attr(test, utoipa::path(post, path = "/v1/routes", request_body = RouteChange, responses(
    (status = 200, body = RouteChanged), (status = "default", body = ErrorDocument))))]
async fn change_route(
    State(requests): State<Requests>,
    Document(change): Document<RouteChange>,
) -> Answer<RouteChanged> {
    requests.call(move |backend| backend.change_route(&change)).await?.map(Json)
}

/// Differences of a configuration from the running one.
#[cfg_attr(test, utoipa::path(post, path = "/v1/config/diff", request_body = ConfigText, responses(
    (status = 200, body = Vec<ConfigChange>), (status = "default", body = ErrorDocument))))]
async fn config_diff(
    State(requests): State<Requests>,
    Document(text): Document<ConfigText>,
) -> Answer<Vec<ConfigChange>> {
    // A text of a hundred thousand routes takes a while to read; routes and packets do not wait for it.
    run(requests.call(move |backend| backend.compare_config(text)).await?).await.map(Json)
}

/// Next hops, without groups.
#[cfg_attr(test, utoipa::path(get, path = "/v1/nexthops", responses(
    (status = 200, body = Vec<NextHop>), (status = "default", body = ErrorDocument))))]
async fn nexthops(State(requests): State<Requests>) -> Answer<Vec<NextHop>> {
    requests.call(|backend| backend.next_hops()).await.map(Json)
}

/// Next-hop groups and their members.
#[cfg_attr(test, utoipa::path(get, path = "/v1/groups", responses(
    (status = 200, body = Vec<Group>), (status = "default", body = ErrorDocument))))]
async fn groups(State(requests): State<Requests>) -> Answer<Vec<Group>> {
    requests.call(|backend| backend.groups()).await.map(Json)
}

/// Lookup tables.
#[cfg_attr(test, utoipa::path(get, path = "/v1/fibs", responses(
    (status = 200, body = Vec<Fib>), (status = "default", body = ErrorDocument))))]
async fn fibs(State(requests): State<Requests>) -> Answer<Vec<Fib>> {
    requests.call(|backend| backend.fibs()).await.map(Json)
}

/// Pins a lookup algorithm, or leaves the choice to the FIB again.
#[cfg_attr(test, utoipa::path(put, path = "/v1/algorithm", request_body = AlgorithmChange, responses(
    (status = 200, body = Vec<Fib>), (status = "default", body = ErrorDocument))))]
async fn algorithm(
    State(requests): State<Requests>,
    Document(change): Document<AlgorithmChange>,
) -> Answer<Vec<Fib>> {
    let wanted = change.clone();
    requests.call(move |backend| backend.choose_algorithm(&wanted)).await??;
    loop {
        let wanted = change.clone();
        let chosen = requests.call(move |backend| backend.chosen_algorithm(&wanted));
        if let Some(fibs) = chosen.await? {
            return fibs.map(Json);
        }
    }
}

/// Compares the lookups of all tables with their routes. This takes a second or two for a full table; routes and packets
/// do not wait.
#[cfg_attr(test, utoipa::path(post, path = "/v1/verify", responses(
    (status = 200, body = Verification), (status = "default", body = ErrorDocument))))]
async fn verify(State(requests): State<Requests>) -> Answer<Verification> {
    let session = requests.call(|backend| backend.open_verification()).await?;
    let number = session.number();
    loop {
        let next = requests.call(move |backend| backend.next_verification(number));
        if let Some(found) = next.await? {
            return Ok(Json(found));
        }
    }
}

/// Interfaces.
#[cfg_attr(test, utoipa::path(get, path = "/v1/interfaces", responses(
    (status = 200, body = Vec<Interface>), (status = "default", body = ErrorDocument))))]
async fn interfaces(State(requests): State<Requests>) -> Answer<Vec<Interface>> {
    requests.call(|backend| backend.interfaces()).await.map(Json)
}

/// Neighbors on the links.
#[cfg_attr(test, utoipa::path(get, path = "/v1/neighbors", responses(
    (status = 200, body = Vec<Neighbor>), (status = "default", body = ErrorDocument))))]
async fn neighbors(State(requests): State<Requests>) -> Answer<Vec<Neighbor>> {
    requests.call(|backend| backend.neighbors()).await.map(Json)
}

/// Sets the link address of a neighbor, or deletes it.
#[cfg_attr(test, utoipa::path(post, path = "/v1/neighbors", request_body = NeighborChange, responses(
    (status = 200, body = NeighborChanged), (status = "default", body = ErrorDocument))))]
async fn change_neighbor(
    State(requests): State<Requests>,
    Document(change): Document<NeighborChange>,
) -> Answer<NeighborChanged> {
    requests.call(move |backend| backend.change_neighbor(&change)).await?.map(Json)
}

/// Route sources.
#[cfg_attr(test, utoipa::path(get, path = "/v1/sources", responses(
    (status = 200, body = Vec<Source>), (status = "default", body = ErrorDocument))))]
async fn sources(State(requests): State<Requests>) -> Answer<Vec<Source>> {
    requests.call(|backend| backend.sources()).await.map(Json)
}

/// Former path of `/v1/sources`, accepted for one release.
const FORMER_SOURCES: &str = "/v1/feeds";

/// Route sources, with a warning in the header.
async fn former_sources(requests: State<Requests>) -> (HeaderMap, Answer<Vec<Source>>) {
    let words = former::warning(FORMER_SOURCES, "/v1/sources");
    let warning = HeaderValue::try_from(format!("299 fingerpost \"{words}\""));
    let headers = warning.map(|value| HeaderMap::from_iter([(WARNING, value)]));
    (headers.unwrap_or_default(), sources(requests).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(utoipa::OpenApi)]
    #[openapi(
        info(
            title = "Fingerpost control API",
            description = "HTTP with JSON over the Unix socket of a running `fingerpost run`. Streams \
                           are JSON lines. Every error is an `ErrorDocument`.",
            version = "1",
            license(name = "MIT OR Apache-2.0")
        ),
        components(schemas(ErrorDocument))
    )]
    pub(super) struct Description;

    /// A description, of just the methods and paths that are served.
    pub(super) fn checked(
        description: utoipa::openapi::OpenApi,
        served: &[(&str, &str)],
    ) -> utoipa::openapi::OpenApi {
        let document = serde_json::to_value(&description).unwrap();
        let mut described = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            described
                .extend(methods.as_object().unwrap().keys().map(|method| (&**method, &**path)));
        }
        let mut served = served.to_vec();
        described.sort_unstable();
        served.sort_unstable();
        assert_eq!(served, described, "the list and the attributes of the handlers");
        description
    }

    #[test]
    fn the_description_in_docs_is_the_one_that_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let now = serde_json::to_string_pretty(&description()).unwrap() + "\n";
        if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
            std::fs::write(path, &now).unwrap();
        }
        let recorded = std::fs::read_to_string(path).unwrap();
        assert!(
            recorded == now,
            "docs/openapi.json is of another time: FINGERPOST_ACCEPT=1 cargo test -p fingerpost-router \
             description"
        );
    }

    #[test]
    fn every_path_is_described_with_its_refusals() {
        let description = serde_json::to_value(description()).unwrap();
        let paths = description["paths"].as_object().unwrap();
        assert!(paths.len() >= 14);
        for (path, methods) in paths {
            assert!(path.starts_with("/v1/"), "{path}");
            for (method, row) in methods.as_object().unwrap() {
                let said = row["summary"].as_str().or(row["description"].as_str());
                assert!(said.is_some_and(|words| !words.is_empty()), "{method} {path}");
                let refusal = &row["responses"]["default"]["content"]["application/json"];
                assert_eq!(
                    refusal["schema"]["$ref"], "#/components/schemas/ErrorDocument",
                    "{method} {path}"
                );
            }
        }
    }
}
