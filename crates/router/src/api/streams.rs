//! Streams of JSON lines, made as fast as they are read.
//!
//! A stream is a task of the server's thread that requests one piece after the other and puts it into a channel of two;
//! while that is full it requests nothing. A slow client costs those two pieces, a client that leaves the piece in
//! progress. Where there is no room for another client, the oldest stream ends (`connections.rs`).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use utoipa::IntoParams;

use super::backend::Requests;
use super::connections::{Connection, Streaming};
use super::error::ApiError;
use super::extract::Parameters;
#[cfg(test)]
use super::{error::ErrorDocument, model::Event, model::Route};

/// Number of pieces that wait for a slow client.
const AHEAD: usize = 2;
/// Longest time for which a client that may not change anything leaves a piece of a list unread: others wait for its place, and
/// the router remembers what changes ahead of it.
const LONGEST_PIECE: Duration = Duration::from_secs(60);
/// Longest time for which an error waits for a client that reads nothing.
const LONGEST_ERROR: Duration = Duration::from_secs(1);
/// JSON, a document a line.
pub(super) const LINES: &str = "application/x-ndjson";

/// Parameters of `/v1/routes`. All that are given must hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RouteFilter {
    /// Route table, by number; the main one by default.
    pub(crate) table: Option<u32>,
    /// Name of the route source.
    pub(crate) source: Option<String>,
    /// Prefix whose routes are listed, with those of the more specific prefixes.
    pub(crate) longer: Option<String>,
    /// Prefix whose routes are listed, with those of the less specific prefixes.
    pub(crate) covering: Option<String>,
    /// Gateway (an address), interface (a name), index of a next hop or group (a number), or ID of a next-hop object
    /// (`object:ID`) that a route leads over, also through a next-hop object or the route to its gateway. `dev:NAME` is an
    /// interface whatever its name.
    pub(crate) nexthop: Option<String>,
    /// Lists only the best route of each prefix.
    #[serde(default)]
    pub(crate) best: bool,
    /// Largest number of routes.
    pub(crate) limit: Option<u64>,
}

/// Routes at the moment of the request, a JSON line each, by prefix. However many there are, and however slowly they are
/// read, neither side holds more than some hundreds. The connection of a client that may not change anything ends where it
/// reads nothing for a minute, and where there are 24 other lists of such clients and its user has most of them.
#[cfg_attr(test, utoipa::path(get, path = "/v1/routes", params(RouteFilter), responses(
    (status = 200, body = Route, content_type = LINES), (status = "default", body = ErrorDocument))))]
pub(super) async fn route_list(
    State(requests): State<Requests>,
    Extension(connection): Extension<Arc<Connection>>,
    Parameters(filter): Parameters<RouteFilter>,
) -> Result<Response, ApiError> {
    let reader = connection.reader();
    let (open, mut gone) = oneshot::channel();
    let session = requests.call(move |b| b.open_routes(&filter, reader, open)).await??;
    let (to, body) = mpsc::channel(AHEAD);
    let slow = connection.clone();
    tokio::spawn(async move {
        let number = session.number();
        loop {
            match requests.call(move |backend| backend.next_routes(number)).await {
                Ok(Ok((lines, more))) => {
                    let sent = async {
                        if lines.is_empty() {
                            return true;
                        }
                        let sent = to.send(Ok(lines.into()));
                        if reader.is_none() {
                            return sent.await.is_ok();
                        }
                        tokio::select! {
                            sent = sent => return sent.is_ok(),
                            // Its place is another list's. A list that is read to its end is gone, too.
                            _ = &mut gone, if more => {}
                            () = tokio::time::sleep(LONGEST_PIECE) => {}
                        }
                        slow.cut();
                        false
                    };
                    if !sent.await || !more {
                        return;
                    }
                }
                // The stream breaks off, which the client can distinguish from an end.
                Ok(Err(error)) | Err(error) => {
                    let sent = to.send(Err(io::Error::other(error)));
                    if tokio::time::timeout(LONGEST_ERROR, sent).await.is_err() {
                        slow.cut();
                    }
                    return;
                }
            }
        }
    });
    Ok(streamed(body, &connection))
}

/// Parameters of `/v1/events`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventFilter {
    /// Sequence number after which the stream begins; by default it begins with the next event.
    pub(crate) since: Option<u64>,
}

/// Events of routes, next-hop objects, links, interfaces, and neighbors that commands have set, a JSON line each, as they
/// happen. The stream does not end by itself.
#[cfg_attr(test, utoipa::path(get, path = "/v1/events", params(EventFilter), responses(
    (status = 200, body = Event, content_type = LINES), (status = "default", body = ErrorDocument))))]
pub(super) async fn events(
    State(requests): State<Requests>,
    Extension(connection): Extension<Arc<Connection>>,
    Parameters(EventFilter { mut since }): Parameters<EventFilter>,
) -> Result<Response, ApiError> {
    let (to, body) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let mut sequence = requests.sequence();
        // The backend's end is gone when this fails, and the stream ends with it.
        while let Ok((events, last)) = requests.call(move |backend| backend.events(since)).await {
            since = Some(last);
            if !events.is_empty() {
                if to.send(Ok(lines(&events).into())).await.is_err() {
                    return;
                }
                continue;
            }
            tokio::select! {
                // An event since the request was sent counts as well.
                there = sequence.wait_for(|&number| number > last) => {
                    if there.is_err() {
                        return;
                    }
                }
                () = to.closed() => return,
            }
        }
    });
    Ok(streamed(body, &connection))
}

/// The pieces of a stream, as a body.
struct Pieces {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    _streaming: Streaming,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.pieces.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// The pieces of a stream, as the response to a request over a connection.
pub(super) fn streamed(
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    connection: &Arc<Connection>,
) -> Response {
    let body = Pieces { pieces, _streaming: Streaming::begin(connection) };
    ([(CONTENT_TYPE, LINES)], Body::new(body)).into_response()
}

/// A JSON line each.
pub(crate) fn lines<T: Serialize>(rows: &[T]) -> Vec<u8> {
    let mut text = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut text, row).expect("writing to memory cannot fail");
        text.push(b'\n');
    }
    text
}
