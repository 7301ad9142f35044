//! Route sources: the kernel, the configured ones, and commands. Configured sources are opened, read, and exchanged while
//! the router runs.

use std::time::Instant;

use fingerpost_route::source::{SourceError, SourceSpec, file, find};
use fingerpost_route::{Control, RouteEvent, SourceId};

use super::kernel::KernelSource;
use crate::config::Source;

/// A source that was read.
pub(super) struct Fed {
    pub(super) source: Source,
    pub(super) id: SourceId,
}

/// All route sources of a run.
pub(super) struct Sources {
    pub(super) kernel: KernelSource,
    pub(super) configured: Configured,
    /// Source of routes that commands make.
    pub(super) command: SourceId,
}

/// Configured sources that were read, and numbers of those that were removed.
#[derive(Default)]
pub(super) struct Configured {
    pub(super) fed: Vec<Fed>,
    /// Numbers by name and distance: a number cannot be returned, but it can be used again.
    idle: Vec<(String, u8, SourceId)>,
}

impl Configured {
    /// Reads a source to its end; returns messages for the log.
    ///
    /// # Errors
    /// When it cannot be opened: nothing changed then. One that breaks off later is used as far as it
    /// could be read.
    pub(super) fn feed(
        &mut self,
        control: &mut Control,
        source: &Source,
    ) -> Result<Vec<String>, SourceError> {
        let kind = find(&source.kind).expect("checked with the configuration");
        let distance = source.distance.unwrap_or(kind.distance);
        let same = |(name, at, _): &(String, u8, SourceId)| name == kind.name && *at == distance;
        let mut open = open(control, source)?;
        let id = match self.idle.iter().position(same) {
            Some(at) => self.idle.swap_remove(at).2,
            None => control.add_source(kind.name, distance),
        };
        let said = say(control, source, id, open.as_mut());
        self.fed.push(Fed { source: source.clone(), id });
        Ok(said)
    }

    /// Reads a source again in the place of `at`: routes that it no longer has are withdrawn.
    ///
    /// # Errors
    /// When it cannot be opened: nothing changed then.
    pub(super) fn feed_again(
        &mut self,
        control: &mut Control,
        at: usize,
        source: &Source,
    ) -> Result<Vec<String>, SourceError> {
        let mut open = open(control, source)?;
        let fed = &mut self.fed[at];
        fed.source = source.clone();
        let id = fed.id;
        Ok(say(control, source, id, open.as_mut()))
    }

    /// Takes a source away with its routes.
    pub(super) fn remove(&mut self, control: &mut Control, at: usize) {
        let Fed { source, id } = self.fed.remove(at);
        control.handle(id, RouteEvent::StartOfTable);
        control.handle(id, RouteEvent::EndOfTable);
        let kind = find(&source.kind).expect("it was opened");
        self.idle.push((kind.name.to_owned(), source.distance.unwrap_or(kind.distance), id));
    }

    /// Whether the source of this number was taken away.
    pub(super) fn is_idle(&self, number: usize) -> bool {
        self.idle.iter().any(|(_, _, id)| id.index() == number)
    }
}

type Opened = Box<dyn fingerpost_route::source::RouteSource>;

fn open(control: &Control, source: &Source) -> Result<Opened, SourceError> {
    let kind = find(&source.kind).expect("checked with the configuration");
    let name = source.path.as_ref().map_or(String::new(), |path| path.display().to_string());
    let links = control.links().map(|(link, _, state)| (state.name.clone(), link)).collect();
    (kind.open)(&SourceSpec { name, routes: source.routes.clone(), links })
}

/// Reads all routes of an open source.
fn say(
    control: &mut Control,
    source: &Source,
    id: SourceId,
    open: &mut dyn fingerpost_route::source::RouteSource,
) -> Vec<String> {
    let sink = &mut |event| control.handle(id, event);
    let ended = match &source.path {
        Some(path) => file::feed(open, path, sink),
        None => open.input(&[], Instant::now(), sink).and_then(|_| open.finish(sink)),
    };
    let mut said = Vec::new();
    // What could be read is used; the rest is reported.
    if let Err(error) = ended {
        said.push(format!("source {}: {error}", source.kind));
    }
    let rejected = open.rejected();
    if rejected.count > 0 {
        let samples = rejected.samples.join("; ");
        said.push(format!("source {}: {} rejected: {samples}", source.kind, rejected.count));
    }
    said
}
