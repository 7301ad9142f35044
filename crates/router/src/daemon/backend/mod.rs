//! What the daemon's thread answers to questions of the control API, a file a subject.
//!
//! An answer is made between two bursts of work, so it sees routes and lookup in step; each is short,
//! and what would be long is asked piece by piece.

mod change;
mod config;
mod driver;
mod events;
mod fibs;
mod graph;
mod hops;
mod links;
mod lookup;
mod neighbors;
pub(crate) mod routes;
pub(super) mod trace;
mod verify;
mod why;

pub(crate) use lookup::Flow;

use std::collections::HashMap;

use fingerpost_io::xdp::forward::Used;
use fingerpost_route::Done;
use fingerpost_route::source::words::unknown;

use super::{Daemon, report};
use crate::api::error::{ApiError, Code};
use crate::api::model::{Feed, Status};

/// Names of links by their number.
pub(super) type LinkNames = HashMap<u32, String>;

impl Daemon {
    /// The daemon itself.
    pub(crate) fn status(&self) -> Status {
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            seconds: self.started.elapsed().as_secs_f64(),
            routes_v4: self.control.rib_v4().len(),
            routes_v6: self.control.rib_v6().len(),
            interfaces: self.taken_over(),
            workers: self.workers.len(),
            workers_alive: self.workers_alive(),
            resident_kib: report::resident_kib(),
        }
    }

    /// Sources of routes.
    pub(crate) fn feeds(&self) -> Vec<Feed> {
        let all = self.control.sources().enumerate();
        let feeds = all.filter(|(number, _)| !self.sources.is_idle(*number)).map(|(_, source)| {
            let kernel = source.name == "kernel";
            Feed {
                name: source.name,
                distance: source.distance,
                routes: source.routes,
                refused: source.refused,
                last_refusal: source.last_refusal,
                messages: kernel.then_some(self.kernel.messages),
                resyncs: kernel.then_some(self.kernel.resyncs),
            }
        });
        feeds.collect()
    }

    /// The number of the source that is called so.
    fn source(&self, name: &str) -> Result<u16, ApiError> {
        let names: Vec<String> = self.control.sources().map(|source| source.name).collect();
        let found = names.iter().position(|known| known == name);
        found.and_then(|at| u16::try_from(at).ok()).ok_or_else(|| {
            let words = unknown("feed", name, names.iter().map(String::as_str));
            ApiError::at(Code::NotFound, "source", words)
        })
    }

    /// The number of the interface that is called so.
    fn link_of(&self, dev: &str) -> Result<u32, ApiError> {
        let known = self.control.links().find(|(_, _, state)| state.name == dev);
        known.map(|(link, ..)| link).ok_or_else(|| {
            let names = self.control.links().map(|(_, _, state)| state.name.as_str());
            ApiError::at(Code::NotFound, "dev", unknown("interface", dev, names))
        })
    }

    /// The port of the interface that is called so.
    pub(crate) fn port_of(&self, dev: &str) -> Result<u16, ApiError> {
        let link = self.link_of(dev)?;
        let port = self.control.links().find(|(known, ..)| *known == link);
        Ok(port.expect("it was found just now").1)
    }

    fn link_names(&self) -> LinkNames {
        self.control.links().map(|(link, _, state)| (link, state.name.clone())).collect()
    }

    /// Packets that left by an adjacency so far, by way of workers and of drivers, which `forwarded`.
    fn adjacency_used(&self, index: u32, forwarded: &[Used]) -> u64 {
        let count = |w: &super::WorkerHandle| {
            w.counters.adjacencies.get(index as usize).map_or(0, |count| count.read())
        };
        let in_drivers = forwarded.get(index as usize).map_or(0, |used| used.packets);
        self.workers.iter().map(count).sum::<u64>() + in_drivers
    }
}

/// A request that makes no sense, by the field that says so.
fn bad(place: &str, words: impl ToString) -> ApiError {
    ApiError::at(Code::BadRequest, place, words)
}

/// What an action did, in a word.
fn word(done: Done) -> &'static str {
    match done {
        Done::Added => "added",
        Done::Changed => "changed",
        Done::Deleted => "deleted",
    }
}
