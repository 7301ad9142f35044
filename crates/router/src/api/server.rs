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
use axum::http::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, oneshot};
use utoipa::{IntoParams, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::backend::Ask;
use super::error::{ApiError, Code, ErrorDocument};
use super::extract::{Document, Parameters};
use super::model::{
    AlgorithmChange, ConfigChange, ConfigText, Feed, Fib, Group, Interface, Neighbor,
    NeighborChange, NeighborChanged, NextHop, RouteAnswer, RouteChange, RouteChanged, Status,
    Verification,
};
use super::{features, graph, source_filters, streams};
use crate::privilege;
use crate::sys;

/// Clients at one time; the next one waits to be accepted.
const CONNECTIONS: usize = 128;
/// How long a request's head may take, and how long a kept connection may be silent.
const LONGEST_HEAD: Duration = Duration::from_secs(10);

/// A running server. It ends when this is dropped.
pub(crate) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on `listener`, which must not block, by asking through `ask`.
    ///
    /// # Errors
    /// When the thread or its runtime cannot be made.
    pub(crate) fn start(listener: UnixListener, ask: Ask) -> io::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread =
            std::thread::Builder::new().name("fingerpost-api".into()).spawn(move || {
                privilege::keep_for_files();
                runtime.block_on(async move {
                    let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { return };
                    tokio::select! {
                        () = serve(listener, ask) => {}
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
            // A server that failed has nothing more to say.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: tokio::net::UnixListener, ask: Ask) {
    let (router, _) = router();
    let router = router.with_state(ask);
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: it gets better or it does not, but never by spinning.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if !may_ask(&stream) {
            continue;
        }
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            // What a client does to its own connection is its own affair.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(LONGEST_HEAD)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            drop(permit);
        });
    }
}

/// The file's mode says the same; this also holds for who came before the mode was set.
fn may_ask(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == sys::user())
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Fingerpost control API",
        description = "HTTP with JSON over the Unix socket of a running `fingerpost run`. Streams \
                       are JSON lines. Every refusal is an `ErrorDocument`.",
        version = "1",
        license(name = "MIT OR Apache-2.0")
    ),
    components(schemas(ErrorDocument))
)]
struct Description;

/// All paths, and their description.
fn router() -> (axum::Router<Ask>, utoipa::openapi::OpenApi) {
    let (router, description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(status))
        .routes(routes!(route))
        .routes(routes!(streams::route_list, change_route))
        .routes(routes!(streams::events))
        .routes(routes!(config_diff))
        .routes(routes!(features::config_apply))
        .routes(routes!(nexthops))
        .routes(routes!(groups))
        .routes(routes!(fibs))
        .routes(routes!(algorithm))
        .routes(routes!(verify))
        .routes(routes!(interfaces))
        .routes(routes!(neighbors, change_neighbor))
        .routes(routes!(feeds))
        .routes(routes!(features::features))
        .routes(routes!(features::feature))
        .routes(routes!(source_filters::change, source_filters::replace))
        .routes(routes!(source_filters::lookup))
        .routes(routes!(graph::graph, graph::swap))
        .routes(routes!(graph::trace))
        .routes(routes!(graph::why))
        .split_for_parts();
    let text = written(&description);
    let document = move || async move { ([(CONTENT_TYPE, "application/json")], text) };
    let router = router
        .route("/openapi.json", axum::routing::get(document))
        .fallback(|| async { ApiError::new(Code::NotFound, "no such path: see /openapi.json") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(Code::MethodNotAllowed, "not by this method: see /openapi.json")
        });
    (router, description)
}

/// The description as it is served, and as it lies in `docs/openapi.json`.
fn written(description: &utoipa::openapi::OpenApi) -> String {
    let mut text = serde_json::to_string_pretty(description).expect("it is plain data");
    text.push('\n');
    text
}

type Answer<T> = Result<Json<T>, ApiError>;

/// The daemon itself.
#[utoipa::path(get, path = "/v1/status", responses(
    (status = 200, body = Status), (status = "default", body = ErrorDocument)))]
async fn status(State(ask): State<Ask>) -> Answer<Status> {
    Ok(Json(ask.ask(|daemon| daemon.status()).await?))
}

/// Parameters of `/v1/route`.
#[derive(Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RouteQuestion {
    /// Of which address.
    pub(crate) addr: String,
    /// With the steps of the lookup.
    #[serde(default)]
    pub(crate) explain: bool,
    /// Which member of a group this flow takes: `SRC,DST,PROTOCOL,SPORT,DPORT`.
    pub(crate) flow: Option<String>,
    /// In which table; the main one unless named.
    pub(crate) table: Option<u32>,
}

/// The route of an address, from the live lookup.
#[utoipa::path(get, path = "/v1/route", params(RouteQuestion), responses(
    (status = 200, body = RouteAnswer), (status = "default", body = ErrorDocument)))]
async fn route(
    State(ask): State<Ask>,
    Parameters(question): Parameters<RouteQuestion>,
) -> Answer<RouteAnswer> {
    ask.ask(move |daemon| daemon.route_answer(&question)).await?.map(Json)
}

/// Adds, changes or deletes a route of the feed `command`.
#[utoipa::path(post, path = "/v1/routes", request_body = RouteChange, responses(
    (status = 200, body = RouteChanged), (status = "default", body = ErrorDocument)))]
async fn change_route(
    State(ask): State<Ask>,
    Document(change): Document<RouteChange>,
) -> Answer<RouteChanged> {
    ask.ask(move |daemon| daemon.change_route(&change)).await?.map(Json)
}

/// How a configuration differs from the running one.
#[utoipa::path(post, path = "/v1/config/diff", request_body = ConfigText, responses(
    (status = 200, body = Vec<ConfigChange>), (status = "default", body = ErrorDocument)))]
async fn config_diff(
    State(ask): State<Ask>,
    Document(text): Document<ConfigText>,
) -> Answer<Vec<ConfigChange>> {
    // A text of a hundred thousand routes takes a while to read, and routes and packets do not wait for that.
    let running = ask.ask(|daemon| daemon.running()).await?;
    features::aside(move || running.diff(&text)).await.map(Json)
}

/// Next hops, without groups.
#[utoipa::path(get, path = "/v1/nexthops", responses(
    (status = 200, body = Vec<NextHop>), (status = "default", body = ErrorDocument)))]
async fn nexthops(State(ask): State<Ask>) -> Answer<Vec<NextHop>> {
    Ok(Json(ask.ask(|daemon| daemon.nexthops()).await?))
}

/// Groups and their members.
#[utoipa::path(get, path = "/v1/groups", responses(
    (status = 200, body = Vec<Group>), (status = "default", body = ErrorDocument)))]
async fn groups(State(ask): State<Ask>) -> Answer<Vec<Group>> {
    Ok(Json(ask.ask(|daemon| daemon.groups()).await?))
}

/// Lookup tables.
#[utoipa::path(get, path = "/v1/fibs", responses(
    (status = 200, body = Vec<Fib>), (status = "default", body = ErrorDocument)))]
async fn fibs(State(ask): State<Ask>) -> Answer<Vec<Fib>> {
    Ok(Json(ask.ask(|daemon| daemon.fibs()).await?))
}

/// Chooses an algorithm, or leaves the choice to the daemon again.
#[utoipa::path(put, path = "/v1/algorithm", request_body = AlgorithmChange, responses(
    (status = 200, body = Vec<Fib>), (status = "default", body = ErrorDocument)))]
async fn algorithm(
    State(ask): State<Ask>,
    Document(change): Document<AlgorithmChange>,
) -> Answer<Vec<Fib>> {
    ask.ask(move |daemon| daemon.choose_algorithm(&change)).await?.map(Json)
}

/// Compares the lookups of all tables with their routes. It takes as long as a second or two for a
/// full table, while routes and packets go on.
#[utoipa::path(post, path = "/v1/verify", responses(
    (status = 200, body = Verification), (status = "default", body = ErrorDocument)))]
async fn verify(State(ask): State<Ask>) -> Answer<Verification> {
    let mut under_path = ask.ask(|daemon| daemon.begin_verify()).await?;
    loop {
        match ask.ask(move |daemon| daemon.verify_on(under_path)).await? {
            Ok(found) => return Ok(Json(found)),
            Err(rest) => under_path = *rest,
        }
    }
}

/// Interfaces.
#[utoipa::path(get, path = "/v1/interfaces", responses(
    (status = 200, body = Vec<Interface>), (status = "default", body = ErrorDocument)))]
async fn interfaces(State(ask): State<Ask>) -> Answer<Vec<Interface>> {
    Ok(Json(ask.ask(|daemon| daemon.interface_list()).await?))
}

/// Neighbors on the links.
#[utoipa::path(get, path = "/v1/neighbors", responses(
    (status = 200, body = Vec<Neighbor>), (status = "default", body = ErrorDocument)))]
async fn neighbors(State(ask): State<Ask>) -> Answer<Vec<Neighbor>> {
    Ok(Json(ask.ask(|daemon| daemon.neighbor_list()).await?))
}

/// Sets the link address of a neighbor, or takes it back.
#[utoipa::path(post, path = "/v1/neighbors", request_body = NeighborChange, responses(
    (status = 200, body = NeighborChanged), (status = "default", body = ErrorDocument)))]
async fn change_neighbor(
    State(ask): State<Ask>,
    Document(change): Document<NeighborChange>,
) -> Answer<NeighborChanged> {
    ask.ask(move |daemon| daemon.change_neighbor(&change)).await?.map(Json)
}

/// Sources of routes.
#[utoipa::path(get, path = "/v1/feeds", responses(
    (status = 200, body = Vec<Feed>), (status = "default", body = ErrorDocument)))]
async fn feeds(State(ask): State<Ask>) -> Answer<Vec<Feed>> {
    Ok(Json(ask.ask(|daemon| daemon.feeds()).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_in_docs_is_the_one_that_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let now = written(&router().1);
        if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
            std::fs::write(path, &now).unwrap();
        }
        let recorded = std::fs::read_to_string(path).unwrap();
        assert!(
            recorded == now,
            "docs/openapi.json is of another time: FINGERPOST_ACCEPT=1 cargo test -p fingerpost \
             description"
        );
    }

    #[test]
    fn every_path_is_described_with_its_refusals() {
        let description = serde_json::to_value(router().1).unwrap();
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
