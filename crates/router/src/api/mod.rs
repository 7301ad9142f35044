//! The local control API: HTTP with JSON over a Unix socket, for commands and for programs.
//!
//! ```text
//! a command -- client.rs -- socket -- server.rs -- backend.rs ---- the daemon's thread
//!                                     own thread   channel + bell  daemon/backend/
//! ```
//!
//! The server's thread owns connections and knows HTTP; it never touches routes. A request becomes a
//! [`backend::Question`], a closure that the daemon's thread runs between two bursts of its own work,
//! and whose answer comes back through a channel. What is long (a million routes, a check of all of
//! them) is many small questions, each going on where the one before it ended: nothing is held on
//! either side while a slow client takes its time.
//!
//! The types of `model.rs` are the JSON; the description of it all is served at `/openapi.json` and
//! lies in `docs/openapi.json`.

pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod error;
mod extract;
pub(crate) mod features;
pub(crate) mod graph;
pub(crate) mod model;
pub(crate) mod server;
pub(crate) mod socket;
pub(crate) mod source_filters;
pub(crate) mod streams;
