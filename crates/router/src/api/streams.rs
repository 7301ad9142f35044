//! Answers without an end in sight: JSON lines, made as fast as they are read.
//!
//! A stream is a task of the server's thread that asks the daemon for one piece after the other and
//! puts it into a channel of two; while that is full nothing is asked. What a slow client costs is
//! those two pieces; what one costs that leaves is the piece under way.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::backend::Ask;
use super::error::{ApiError, ErrorDocument};
use super::extract::Parameters;
use super::model::{Event, Route};

/// Pieces that wait for a slow client.
const AHEAD: usize = 2;
/// JSON, a document a line.
pub(super) const LINES: &str = "application/x-ndjson";

/// Parameters of `/v1/routes`. All that are given must hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RouteFilter {
    /// Of this table, by number; of the main one unless named.
    pub(crate) table: Option<u32>,
    /// From the feed of this name.
    pub(crate) source: Option<String>,
    /// Of this prefix and those that it covers.
    pub(crate) longer: Option<String>,
    /// Of the prefixes that cover this one, itself included.
    pub(crate) covering: Option<String>,
    /// Over this gateway (an address), this interface (a name), the next hop or group of this index (a
    /// number), or next-hop object ID (`object:ID`). Of a route that leaves by what a next-hop object or the
    /// route to its gateway says, that counts as well. `dev:NAME` is an interface whatever its name.
    pub(crate) nexthop: Option<String>,
    /// Only those that packets take.
    #[serde(default)]
    pub(crate) best: bool,
    /// At most so many.
    pub(crate) limit: Option<u64>,
}

/// Routes, a JSON line each, by prefix, as they are at the moment of the question. However many there
/// are, and however slowly they are read, neither side holds more than some hundreds.
#[utoipa::path(get, path = "/v1/routes", params(RouteFilter), responses(
    (status = 200, body = Route, content_type = LINES), (status = "default", body = ErrorDocument)))]
pub(super) async fn route_list(
    State(ask): State<Ask>,
    Parameters(filter): Parameters<RouteFilter>,
) -> Result<Response, ApiError> {
    let mut listing = Some(ask.ask(move |daemon| daemon.list_routes(&filter)).await??);
    let (to, body) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        while let Some(now) = listing.take() {
            match ask.ask(move |daemon| daemon.next_routes(now)).await {
                Ok(Ok((lines, rest))) => {
                    listing = rest;
                    if !lines.is_empty() && to.send(Ok(lines.into())).await.is_err() {
                        return;
                    }
                }
                // The stream breaks off, which the client can tell from an end.
                Ok(Err(error)) | Err(error) => {
                    let _ = to.send(Err(io::Error::other(error))).await;
                    return;
                }
            }
        }
    });
    Ok(streamed(body))
}

/// Parameters of `/v1/events`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventFilter {
    /// Begin behind the event of this number; without it, with those to come.
    pub(crate) since: Option<u64>,
}

/// What happens to routes, next-hop objects, links, interfaces, and neighbors that commands have set, a JSON line each, as
/// it happens. The stream has no end of its own.
#[utoipa::path(get, path = "/v1/events", params(EventFilter), responses(
    (status = 200, body = Event, content_type = LINES), (status = "default", body = ErrorDocument)))]
pub(super) async fn events(
    State(ask): State<Ask>,
    Parameters(EventFilter { mut since }): Parameters<EventFilter>,
) -> Result<Response, ApiError> {
    let (to, body) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let mut news = ask.news();
        // The daemon's end is gone when this fails, and the stream ends with it.
        while let Ok((events, last)) = ask.ask(move |daemon| daemon.events(since)).await {
            since = Some(last);
            if !events.is_empty() {
                if to.send(Ok(lines(&events).into())).await.is_err() {
                    return;
                }
                continue;
            }
            tokio::select! {
                // What came since the question was asked counts as news, too.
                there = news.wait_for(|&number| number > last) => {
                    if there.is_err() {
                        return;
                    }
                }
                () = to.closed() => return,
            }
        }
    });
    Ok(streamed(body))
}

/// The pieces of a stream, as a body.
struct Pieces(mpsc::Receiver<io::Result<Bytes>>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

pub(super) fn streamed(pieces: mpsc::Receiver<io::Result<Bytes>>) -> Response {
    ([(CONTENT_TYPE, LINES)], Body::new(Pieces(pieces))).into_response()
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
