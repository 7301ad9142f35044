//! The server: connections, paths, and the description of what there is.
//!
//! One thread, one runtime. Whatever a client does (half a request, nothing at all, leaving in the
//! middle) costs one of a bounded number of connections, whose place is taken by clients that send their
//! requests (`connections.rs`); only the time of a client that may change something and reads a stream is not bounded.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, WARNING};
use axum::{Extension, Json};
use fingerpost_command::former;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, MutexGuard, oneshot};
#[cfg(test)]
use utoipa_axum::{router::OpenApiRouter, routes};

use super::access::{self, Groups, Peer};
use super::backend::{Awaited, Job, Kept, Requests};
use super::connections::{Connection, Connections, Room, Work};
use super::error::{ApiError, Code, ErrorDocument};
use super::extract::{Document, Parameters};
use super::model::{
    AlgorithmChange, Fib, Group, Interface, Neighbor, NeighborChange, NeighborChanged, NextHop,
    RouteAnswer, RouteChange, RouteChanged, RouteQuery, Source, Status, Verification,
};
use super::saved::{self, Persist};
use super::tcp::{self, TcpServed};
use super::tls::Tls;
use super::{cluster, config, features, graph, log, map, metrics, page, source_filters, streams};
use crate::privilege;

/// Threads for the long parts of requests.
const MOST_JOBS: usize = 16;
/// Connections that take the place of others until there is a pause, and its length: whatever connects in a loop takes no more
/// than a part of a processor.
const CROWD: u32 = 8;
const CROWD_PAUSE: Duration = Duration::from_millis(1);
/// Time between two looks at a table that is built, and between two pieces of a verification, of 1 ms each: a request in a
/// loop would take both threads entirely.
const WHILE_BUILT: Duration = Duration::from_millis(20);
const BETWEEN_PIECES: Duration = Duration::from_millis(1);
/// Time between two pieces of a verification for a client that may not change anything: it takes a fifth of the backend's thread.
const BETWEEN_PIECES_OF_READERS: Duration = Duration::from_millis(4);
/// Longest time for the head of a request, and longest silence of a connection.
const LONGEST_HEAD: Duration = Duration::from_secs(10);
/// Largest head of a request, and most bytes of a response that wait for the client, beside what the socket holds.
const LARGEST_HEAD: usize = 64 << 10;

/// A running server. It ends when this is dropped.
pub(crate) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on these sockets, to the members of these groups, and sends requests to the backend through `requests`.
    ///
    /// # Errors
    /// When the thread or its runtime cannot be made.
    pub(crate) fn start(
        sockets: Vec<Served>,
        groups: Groups,
        requests: Requests,
    ) -> io::Result<Self> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().enable_time().max_blocking_threads(MOST_JOBS).build()?;
        let (stop, stopped) = oneshot::channel();
        let thread =
            std::thread::Builder::new().name("fingerpost-api".into()).spawn(move || {
                privilege::keep_for_jobs();
                runtime.block_on(async move {
                    tokio::select! {
                        () = serve(sockets, Arc::new(groups), requests) => {}
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

/// A socket that is served, which must not block.
pub(crate) enum Served {
    /// A control socket, and whether requests over it only read, whoever makes them.
    Unix(UnixListener, bool),
    /// The TCP listener.
    Tcp(TcpServed),
}

async fn serve(sockets: Vec<Served>, groups: Arc<Groups>, requests: Requests) {
    let router = served(requests);
    let connections = Connections::default();
    let served = sockets.into_iter().map(|served| {
        let (mut router, groups) = (router.clone(), groups.clone());
        let connections = connections.clone();
        tokio::spawn(async move {
            let listener = match served {
                Served::Unix(listener, read_only) => tokio::net::UnixListener::from_std(listener)
                    .map(|listener| Listener::Unix(listener, read_only, groups)),
                Served::Tcp(TcpServed { listener, admission, tls }) => {
                    router =
                        router.layer(axum::middleware::from_fn_with_state(admission, tcp::admit));
                    tokio::net::TcpListener::from_std(listener)
                        .map(|listener| Listener::Tcp(listener, Peer::over_tcp(&groups), tls))
                }
            };
            let Ok(listener) = listener else { return };
            accept(&listener, &router, &connections).await;
        })
    });
    for task in served.collect::<Vec<_>>() {
        // It ends with the runtime.
        let _ = task.await;
    }
}

/// A socket that accepts connections.
enum Listener {
    Unix(tokio::net::UnixListener, bool, Arc<Groups>),
    Tcp(tokio::net::TcpListener, Peer, Option<Arc<Tls>>),
}

/// What is read from a client and written to it.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// Connection with a client.
trait Stream: Duplex + AsFd {
    /// The connection, for a write that does not wait.
    fn plain(self: Box<Self>) -> io::Result<Box<dyn Write>>;
}

impl Stream for tokio::net::UnixStream {
    fn plain(self: Box<Self>) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(self.into_std()?))
    }
}

impl Stream for tokio::net::TcpStream {
    fn plain(self: Box<Self>) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(self.into_std()?))
    }
}

impl Listener {
    /// The next client; `None` for one of whom nothing is known.
    async fn accept(&self) -> io::Result<Option<(Box<dyn Stream>, Peer)>> {
        Ok(match self {
            Self::Unix(listener, read_only, groups) => {
                let (stream, _) = listener.accept().await?;
                let peer = Peer::of(&stream, *read_only, groups);
                peer.map(|peer| -> (Box<dyn Stream>, Peer) { (Box::new(stream), peer) })
            }
            Self::Tcp(listener, peer, _) => {
                let (stream, _) = listener.accept().await?;
                // A response is written as one; without the option it is later.
                let _ = stream.set_nodelay(true);
                Some((Box::new(stream), peer.clone()))
            }
        })
    }

    /// TLS of its connections.
    fn tls(&self) -> Option<Arc<Tls>> {
        match self {
            Self::Unix(..) => None,
            Self::Tcp(.., tls) => tls.clone(),
        }
    }
}

async fn accept(listener: &Listener, router: &axum::Router, connections: &Connections) {
    let mut crowded = 0;
    loop {
        let Ok(accepted) = listener.accept().await else {
            // Out of descriptors, most likely: it gets better or it does not, but never by spinning.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some((stream, peer)) = accepted else { continue };
        let room = connections.enter(&peer);
        let is_crowded = room.as_ref().is_none_or(|room| room.took_place);
        let (tls, router) = (listener.tls(), router.clone());
        if let (Some(room), Ok(socket)) = (&room, stream.as_fd().try_clone_to_owned()) {
            room.watch(socket);
        }
        match room {
            Some(room) => drop(match tls {
                None => tokio::spawn(connection(stream, peer, room, router)),
                Some(tls) => tokio::spawn(secured(tls, stream, peer, room, router)),
            }),
            // A client that expects TLS would not understand it.
            None if tls.is_some() => {}
            None => refuse(stream),
        }
        crowded += u32::from(is_crowded);
        if crowded == CROWD {
            crowded = 0;
            tokio::time::sleep(CROWD_PAUSE).await;
        } else {
            // A request that has arrived is read before a newcomer could take the place of its connection.
            tokio::task::yield_now().await;
        }
    }
}

/// Serves a connection once TLS has begun on it.
async fn secured(
    tls: Arc<Tls>,
    stream: Box<dyn Stream>,
    peer: Peer,
    room: Room,
    router: axum::Router,
) {
    let begun = tokio::select! {
        begun = tokio::time::timeout(LONGEST_HEAD, tls.accept(stream)) => begun,
        () = room.connection.ended() => return,
    };
    if let Ok(Ok(stream)) = begun {
        connection(Box::new(stream), peer, room, router).await;
    }
}

/// Serves a connection, until its client ends it, reads nothing of a response, or another one takes its place.
async fn connection(stream: Box<dyn Duplex>, peer: Peer, room: Room, router: axum::Router) {
    let (connection, bytes) = (room.connection.clone(), room.bytes());
    let routes = TowerToHyperService::new(router);
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        let work = Work::begin(&connection);
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(connection.clone());
        // The response of a change is sent in any case: it was made.
        let bytes = (request.method() == hyper::Method::GET).then(|| bytes.clone());
        let response = Service::call(&routes, request);
        async move {
            let response = response.await.map(|response| {
                let fits = bytes.is_none_or(|bytes| bytes.hold(response.body()));
                if fits {
                    response
                } else {
                    axum::response::IntoResponse::into_response(too_many_bytes())
                }
            });
            response.map(|response| response.map(|body| work.with(body)))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(LONGEST_HEAD)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A client that breaks its own connection harms nobody else.
        _ = served => {}
        () = room.connection.ended() => {}
        () = room.connection.unread() => {}
    }
}

/// Error of a response for which there is no memory.
fn too_many_bytes() -> ApiError {
    ApiError::new(Code::Busy, "responses to others take all memory for them: try again later")
}

/// Refuses a client where all connections are in use.
fn refuse(stream: Box<dyn Stream>) {
    let error = ApiError::new(Code::Busy, "all connections are in use: try again later");
    let body = serde_json::to_string(&ErrorDocument { error }).unwrap_or_default();
    let head =
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close";
    let response = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    // It fits into the buffer of a new socket, or the client is gone.
    let _ = stream.plain().and_then(|mut stream| stream.write_all(response.as_bytes()));
}

/// Defines the router of a list of paths with the access that each needs, and for the tests its description.
macro_rules! paths {
    ($($access:ident: $method:ident $path:literal $($handler:ident)::+;)*) => {
        fn paths() -> axum::Router<Requests> {
            axum::Router::new()$(.route($path, axum::routing::$method($($handler)::+)
                .layer(axum::middleware::from_fn(access::$access))))*
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
    read: get "/v1/status" status;
    read: get "/v1/route" route;
    read: get "/v1/routes" streams::route_list;
    write: post "/v1/routes" change_route;
    read: get "/v1/events" streams::events;
    read: get "/v1/config" config::running;
    admin: post "/v1/config/diff" config::diff;
    write: post "/v1/config/apply" config::apply_one;
    write: post "/v1/config/confirm" config::confirm;
    write: post "/v1/config/rollback" config::rollback;
    read: get "/v1/config/changes" saved::changes;
    write: post "/v1/config/save" saved::save;
    read: get "/v1/config/history" config::history;
    read: get "/v1/config/history/{number}" config::of_history;
    read: get "/v1/nexthops" nexthops;
    read: get "/v1/groups" groups;
    read: get "/v1/fibs" fibs;
    write: put "/v1/algorithm" algorithm;
    read: post "/v1/verify" verify;
    read: get "/v1/interfaces" interfaces;
    read: get "/v1/neighbors" neighbors;
    write: post "/v1/neighbors" change_neighbor;
    read: get "/v1/sources" sources;
    read: get "/v1/features" features::features;
    read: get "/v1/features/{name}" features::feature;
    write: post "/v1/source-filters" source_filters::change;
    write: put "/v1/source-filters" source_filters::replace;
    read: get "/v1/source-filters/lookup" source_filters::lookup;
    read: get "/v1/cluster" cluster::cluster;
    write: post "/v1/cluster/drain" cluster::drain;
    write: post "/v1/cluster/parameters" cluster::set_parameters;
    read: get "/v1/graph" graph::graph;
    read: get "/v1/drop-reasons" graph::drop_reasons;
    read: get "/v1/map" map::map;
    write: put "/v1/graph" graph::swap;
    read: get "/v1/log" log::log;
    write: put "/v1/log/level" log::set_level;
    admin: get "/v1/trace" graph::trace;
    read: get "/v1/why" graph::why;
}

/// Description of the paths. A test makes it of the handlers and their types; the daemon only serves it.
const DESCRIPTION: &str = include_str!("../../../../docs/openapi.json");

/// All paths.
fn router() -> axum::Router<Requests> {
    let document = || async { ([(CONTENT_TYPE, "application/json")], DESCRIPTION) };
    let read = || axum::middleware::from_fn(access::read);
    paths()
        .merge(page::paths().layer(read()))
        .route("/openapi.json", axum::routing::get(document).layer(read()))
        .route("/metrics", axum::routing::get(metrics::metrics).layer(read()))
        .route(FORMER_SOURCES, axum::routing::get(former_sources).layer(read()))
        .fallback(|| async { ApiError::new(Code::NotFound, "no such path: see /openapi.json") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(Code::MethodNotAllowed, "method not allowed: see /openapi.json")
        })
}

/// All paths, with the state that their requests share.
fn served(requests: Requests) -> axum::Router {
    let router = router().layer(Extension(requests.clone())).layer(Extension(map::Maps::default()));
    let router = router.layer(Extension(graph::Timings::default()));
    let router = router.layer(Extension(Verifying::default()));
    router.with_state(requests)
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
#[cfg_attr(test, utoipa::path(post, path = "/v1/routes", params(Persist), request_body = RouteChange, responses(
    (status = 200, body = RouteChanged), (status = "default", body = ErrorDocument))))]
async fn change_route(
    State(requests): State<Requests>,
    Parameters(persist): Parameters<Persist>,
    Document(change): Document<RouteChange>,
) -> Answer<RouteChanged> {
    let kept = Kept::Route(change.clone());
    let made = saved::kept(&requests, persist, kept, move |b| b.change_route(&change));
    let (mut done, awaited) = made.await?;
    done.generation = visible(&requests, awaited).await?;
    Ok(Json(done))
}

/// Waits until packets follow a change that was made; the generation since which they do.
///
/// # Errors
/// [`Code::NotVisible`] when they do not after the longest wait, or when the daemon is stopping.
pub(super) async fn visible(requests: &Requests, mut awaited: Awaited) -> Result<u64, ApiError> {
    loop {
        let look = requests.call(move |backend| (backend.visible(&mut awaited), awaited)).await;
        let (seen, still) = look.map_err(ApiError::not_visible_if_stopping)?;
        if let Some(seen) = seen {
            return seen;
        }
        awaited = still;
        tokio::time::sleep(BETWEEN_PIECES).await;
    }
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
#[cfg_attr(test, utoipa::path(put, path = "/v1/algorithm", params(Persist), request_body = AlgorithmChange, responses(
    (status = 200, body = Vec<Fib>), (status = "default", body = ErrorDocument))))]
async fn algorithm(
    State(requests): State<Requests>,
    Parameters(persist): Parameters<Persist>,
    Document(change): Document<AlgorithmChange>,
) -> Answer<Vec<Fib>> {
    let (wanted, kept) = (change.clone(), Kept::Algorithm(change.clone()));
    saved::kept(&requests, persist, kept, move |b| b.choose_algorithm(&wanted)).await?;
    loop {
        let wanted = change.clone();
        let chosen = requests.call(move |backend| backend.chosen_algorithm(&wanted)).await;
        if let Some(fibs) = chosen.map_err(ApiError::not_visible_if_stopping)? {
            return fibs.map(Json);
        }
        tokio::time::sleep(WHILE_BUILT).await;
    }
}

/// Verifications in progress: one of clients that may not change anything, and one of others.
#[derive(Clone, Default)]
struct Verifying {
    of_readers: Arc<Mutex<()>>,
    of_others: Arc<Mutex<()>>,
}

impl Verifying {
    /// Begins one once it may: those of readers do not wait for each other, and nobody waits for them.
    async fn begin(&self, reads_only: bool) -> Result<MutexGuard<'_, ()>, ApiError> {
        if !reads_only {
            return Ok(self.of_others.lock().await);
        }
        self.of_readers.try_lock().map_err(|_| {
            let words = "another verification of a client that may only read is in progress: try again later";
            ApiError::new(Code::Busy, words)
        })
    }
}

/// Compares the lookups of all tables with their routes. This takes a second or two for a full table; routes and packets
/// do not wait. Clients that may not change anything have one in progress in all; a further one is refused as `busy`. Those of
/// other clients take turns.
#[cfg_attr(test, utoipa::path(post, path = "/v1/verify", responses(
    (status = 200, body = Verification), (status = "default", body = ErrorDocument))))]
async fn verify(
    State(requests): State<Requests>,
    Extension(connection): Extension<Arc<Connection>>,
    Extension(verifying): Extension<Verifying>,
) -> Answer<Verification> {
    let reads_only = connection.reader().is_some();
    let _turn = verifying.begin(reads_only).await?;
    let pause = if reads_only { BETWEEN_PIECES_OF_READERS } else { BETWEEN_PIECES };
    let session = requests.call(move |backend| backend.open_verification(reads_only)).await?;
    let number = session.number();
    loop {
        let next = requests.call(move |backend| backend.next_verification(number));
        if let Some(found) = next.await? {
            return Ok(Json(found));
        }
        tokio::time::sleep(pause).await;
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
#[cfg_attr(test, utoipa::path(post, path = "/v1/neighbors", params(Persist), request_body = NeighborChange, responses(
    (status = 200, body = NeighborChanged), (status = "default", body = ErrorDocument))))]
async fn change_neighbor(
    State(requests): State<Requests>,
    Parameters(persist): Parameters<Persist>,
    Document(change): Document<NeighborChange>,
) -> Answer<NeighborChanged> {
    let kept = Kept::Neighbor(change.clone());
    let made = saved::kept(&requests, persist, kept, move |b| b.change_neighbor(&change));
    let (mut done, awaited) = made.await?;
    done.generation = visible(&requests, awaited).await?;
    Ok(Json(done))
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
    use std::time::Instant;

    use super::super::connections::Patience;
    use super::*;

    #[derive(utoipa::OpenApi)]
    #[openapi(
        info(
            title = "Fingerpost control API",
            description = "HTTP with JSON over the Unix socket of a running `fingerpost run`, and its GET \
                           requests over TCP (`[listen]`). Streams are JSON lines. Every error is an \
                           `ErrorDocument`.",
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

    /// A client of the server of these paths, until `work` is done.
    fn with_client<T, F: Future<Output = T>>(
        routes: axum::Router,
        patience: Patience,
        work: impl FnOnce(tokio::net::UnixStream) -> F,
    ) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, server) = tokio::net::UnixStream::pair().unwrap();
            let peer = Peer::with(1, access::Access::Read);
            let room = Connections::with_patience(patience).enter(&peer).unwrap();
            let served = tokio::spawn(connection(Box::new(server), peer, room, routes));
            let done = work(client).await;
            served.abort();
            done
        })
    }

    /// All that a client reads until the server closes the connection.
    async fn read_all(client: &tokio::net::UnixStream) -> Vec<u8> {
        let (mut all, mut part) = (Vec::new(), [0; 4096]);
        loop {
            client.readable().await.unwrap();
            match client.try_read(&mut part) {
                Ok(0) => return all,
                Ok(count) => all.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return all,
            }
        }
    }

    async fn send(client: &tokio::net::UnixStream, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            client.writable().await.unwrap();
            match client.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The server reads no more.
                Err(_) => return,
            }
        }
    }

    #[test]
    fn a_head_has_a_largest_size() {
        let routes = || axum::Router::new().route("/", axum::routing::get(|| async { "done" }));
        for (name_len, status) in [(LARGEST_HEAD / 2, "200"), (2 * LARGEST_HEAD, "431")] {
            let long = "a".repeat(name_len);
            let head =
                format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-long: {long}\r\n\r\n");
            let said = with_client(routes(), Patience::default(), async |client| {
                send(&client, head.as_bytes()).await;
                read_all(&client).await
            });
            let said = String::from_utf8_lossy(&said).into_owned();
            assert!(said.starts_with(&format!("HTTP/1.1 {status}")), "{name_len}: {said}");
        }
    }

    /// The time that a client keeps its connection open which reads so much every 20 ms of a large response, and whether it gets
    /// all of it.
    fn slow_client(patience: Patience, piece: usize) -> (Duration, bool) {
        const LARGE: usize = 2 << 20;
        let routes =
            axum::Router::new().route("/", axum::routing::get(|| async { vec![b'x'; LARGE] }));
        with_client(routes, patience, async |client| {
            send(&client, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
            let (begun, mut got, mut part) = (Instant::now(), 0, vec![0; piece]);
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if piece == 0 && begun.elapsed() > Duration::from_secs(2) {
                    // What the sockets hold is all that there is, if the server has closed the connection.
                    return (begun.elapsed(), read_all(&client).await.len() > LARGE);
                }
                match client.try_read(&mut part) {
                    Ok(0) if piece > 0 => return (begun.elapsed(), got > LARGE),
                    Ok(count) => got += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return (begun.elapsed(), got > LARGE),
                }
            }
        })
    }

    #[test]
    fn a_client_that_does_not_read_its_response_is_disconnected() {
        let patience = |piece_ms, whole_ms| Patience {
            piece: Duration::from_millis(piece_ms),
            whole: Duration::from_millis(whole_ms),
        };
        let (_, whole) = slow_client(patience(500, 60_000), 0);
        assert!(!whole, "nothing was read for 2 s");
        let (took, whole) = slow_client(patience(60_000, 1_000), 4096);
        assert!(!whole && took > Duration::from_secs(1), "little was read: {took:?}");
        let (_, whole) = slow_client(patience(5_000, 60_000), 256 << 10);
        assert!(whole);
    }

    #[test]
    fn responses_that_nobody_reads_are_held_up_to_a_bound() {
        const LARGE: usize = 1 << 20;
        let routes =
            axum::Router::new().route("/", axum::routing::get(|| async { vec![b'x'; LARGE] }));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let said = runtime.block_on(async {
            let (connections, mut clients) = (Connections::default(), Vec::new());
            for _ in 0..24 {
                let (client, server) = tokio::net::UnixStream::pair().unwrap();
                let room = connections.enter(&Peer::with(1, access::Access::Read)).unwrap();
                tokio::spawn(connection(
                    Box::new(server),
                    Peer::with(1, access::Access::Read),
                    room,
                    routes.clone(),
                ));
                send(&client, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
                clients.push(client);
            }
            // All are served before the first one reads.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let mut said = Vec::new();
            for client in &clients {
                said.push(read_all(client).await);
            }
            said
        });
        let mut whole = 0;
        for said in &said {
            let text = String::from_utf8_lossy(said);
            match text.split_once("\r\n\r\n") {
                Some((head, body)) if head.starts_with("HTTP/1.1 200") => {
                    assert!(body.bytes().all(|byte| byte == b'x') && body.len() <= LARGE);
                    whole += usize::from(body.len() == LARGE);
                }
                Some((head, body)) => {
                    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
                    let error: serde_json::Value = serde_json::from_str(body).unwrap();
                    assert_eq!(error["error"]["code"], "busy", "{error}");
                }
                // It gave way before a byte was sent.
                None => assert!(text.is_empty(), "{text}"),
            }
        }
        // On a busy machine some are slow before the last one is served, and give way.
        assert!((1..=16).contains(&whole), "{whole} of 24 are whole, of 1 MiB each");
    }

    /// The server sees no end of a connection behind a request that has arrived and waits for the response to the one before.
    #[test]
    fn a_client_that_leaves_with_requests_unserved_gives_way() {
        let routes = axum::Router::new().route("/", axum::routing::get(std::future::pending::<()>));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let peer = Peer::with(1, access::Access::Write);
            let (connections, mut clients) = (Connections::default(), Vec::new());
            while let Some(room) = connections.enter(&peer) {
                assert!(!room.took_place, "each is being served");
                let (client, server) = tokio::net::UnixStream::pair().unwrap();
                room.watch(server.as_fd().try_clone_to_owned().unwrap());
                tokio::spawn(connection(Box::new(server), peer.clone(), room, routes.clone()));
                send(&client, "GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2).as_bytes()).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
                clients.push(client);
            }
            drop(clients);
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(connections.enter(&peer).is_some_and(|room| room.took_place));
        });
    }

    /// Responses to `count` requests of one kind, by a client each, over paths whose backend replies to none of them.
    fn responses(access: access::Access, request: &str, count: usize) -> Vec<String> {
        let (requests, queue) = super::super::backend::channel().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (routes, connections) = (served(requests), Connections::default());
            let mut clients = Vec::new();
            for _ in 0..count {
                let (client, server) = tokio::net::UnixStream::pair().unwrap();
                let peer = Peer::with(1, access);
                let room = connections.enter(&peer).unwrap();
                tokio::spawn(connection(Box::new(server), peer, room, routes.clone()));
                let request = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
                send(&client, request.as_bytes()).await;
                clients.push(client);
            }
            let mut said = Vec::new();
            for client in clients {
                let read = tokio::time::timeout(Duration::from_millis(200), read_all(&client));
                let read = read.await.unwrap_or_default();
                said.push(String::from_utf8_lossy(&read).into_owned());
            }
            drop(queue);
            said
        })
    }

    #[test]
    fn readers_have_few_timings_at_one_time() {
        for (access, waiting) in [(access::Access::Read, 4), (access::Access::Write, 8)] {
            let said = responses(access, "GET /v1/graph?cycles=60", 8);
            assert_eq!(said.iter().filter(|said| said.is_empty()).count(), waiting, "{said:?}");
            let refused = said.iter().filter(|said| !said.is_empty());
            for said in refused {
                assert!(
                    said.starts_with("HTTP/1.1 503") && said.contains("time elements"),
                    "{said}"
                );
            }
        }
    }

    #[test]
    fn readers_have_a_verification_at_one_time() {
        let said = responses(access::Access::Read, "POST /v1/verify", 3);
        assert_eq!(said.iter().filter(|said| said.is_empty()).count(), 1, "{said:?}");
        let refused = said.iter().filter(|said| said.starts_with("HTTP/1.1 503"));
        assert!(refused.clone().all(|said| said.contains("another verification")), "{said:?}");
        assert_eq!(refused.count(), 2);
        // Others take turns.
        let said = responses(access::Access::Write, "POST /v1/verify", 3);
        assert!(said.iter().all(String::is_empty), "{said:?}");
    }
}
