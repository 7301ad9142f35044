//! The local control API: HTTP with JSON over a Unix socket, for commands and for programs.
//!
//! ```text
//! a command -- client.rs -- socket -- server.rs -- backend.rs ---- the backend's thread
//!                                     own thread   channel + bell  trait Backend: daemon/backend/
//! ```
//!
//! A leaf of this crate: commands and the daemon use it, it uses neither. The server's thread owns connections and
//! HTTP; it never touches routes. A request becomes a [`backend::Request`], which the daemon's thread runs between two
//! bursts of its own work, and whose reply comes back through a channel. What is long (a million routes, a check of all
//! of them) is many short requests, each continuing where the one before it ended: nothing is held on either side while
//! a slow client takes its time.
//!
//! The types of `model.rs` are the JSON; the description of all of it is served at `/openapi.json` and is kept in
//! `docs/openapi.json`.

mod about;
pub(crate) mod access;
pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod config;
mod connections;
pub(crate) mod error;
mod extract;
pub(crate) mod features;
pub(crate) mod graph;
pub(crate) mod log;
pub(crate) mod map;
pub(crate) mod metrics;
pub(crate) mod model;
mod page;
pub(crate) mod saved;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod socket;
pub(crate) mod source_filters;
pub(crate) mod streams;
pub(crate) mod tcp;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
pub(crate) mod words;
