//! The daemon as backend of the control API: `impl Backend`, a file a subject.
//!
//! A request runs between two bursts of work, so it sees routes and lookup in step. Each is short; what would be long is
//! a job for another thread, or a session of several requests.

pub(super) mod change;
mod cluster;
mod config;
mod driver;
mod events;
mod features;
pub(super) mod fibs;
mod graph;
mod hops;
mod links;
mod log;
mod lookup;
mod map;
mod metrics;
pub(super) mod neighbors;
pub(crate) mod routes;
mod saving;
pub(super) mod trace;
mod verify;
mod why;

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use fingerpost_packet::Plan;
use fingerpost_route::source::words::unknown;
use fingerpost_route::{Done, Requested, SourceReport};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::settings::{Progress, Settings};
use super::{Control, Daemon, Interfaces, RunningGraph, Sources, Workers, report, turns};
use crate::api::access::Requester;
use crate::api::backend::{Awaited, Backend, Deleted, Job, Kept, Made, Preparation, Queue};
use crate::api::cluster::{ClusterStatus, Drain, ParameterChange};
use crate::api::config::{ConfigApplied, ConfigApply, ConfigEntry, ConfigShown};
use crate::api::error::{ApiError, Code};
use crate::api::features::{Feature, FeatureRow};
use crate::api::graph::{ElementTimes, GraphStats, PacketTrace, TraceQuery, WhyAnswer, WhyQuery};
use crate::api::log::{LogChange, LogState};
use crate::api::map::{MapChanges, MapFound, MapRead};
use crate::api::metrics::Counts;
use crate::api::model::{
    AlgorithmChange, ConfigChange, ConfigText, Event, Fib, Group, Interface, Neighbor,
    NeighborChange, NeighborChanged, NextHop, RouteAnswer, RouteChange, RouteChanged, RouteQuery,
    Source, Status, Verification, WaitingConfig,
};
use crate::api::saved::SavedChange;
use crate::api::session::{Session, Sessions};
use crate::api::source_filters::{
    FilterAnswer, FilterChange, FilterChanged, FilterList, FilterQuery,
};
use crate::api::streams::RouteFilter;

/// Requests of the control API, and the state of those that take several turns.
#[derive(Default)]
pub(super) struct Inbox {
    /// The queue, while the API is served.
    queue: Option<Queue>,
    /// Whether the last turn had no time for all requests.
    is_behind: bool,
    lists: Sessions<routes::Listing>,
    verifications: Sessions<verify::Verifying>,
    preparations: Sessions<features::Preparing>,
    /// The packet trace in progress: at most one.
    traces: Sessions<trace::Tracing>,
}

impl Inbox {
    /// Serves the requests of this queue from now on.
    pub(super) fn serve(&mut self, queue: Queue) {
        self.queue = Some(queue);
    }

    /// Serves no more requests: their requesters are answered that the daemon is stopping.
    pub(super) fn close(&mut self) {
        self.queue = None;
    }

    /// Descriptor for poll: readable when a request waits.
    pub(super) fn fd(&self) -> Option<std::os::fd::RawFd> {
        self.queue.as_ref().map(Queue::fd)
    }

    /// Whether requests wait that the last turn had no time for.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }
}

impl Daemon {
    /// Runs the requests that wait: after the commit, so that they find routes and lookup in step.
    pub(super) fn run_requests(&mut self) {
        self.close_dropped();
        let Some(mut queue) = self.requests.queue.take() else { return };
        let started = Instant::now();
        while let Some(request) = queue.next(started) {
            self.control.set_time(SystemTime::now());
            request(self);
        }
        queue.publish(self.control.sequence());
        self.requests.is_behind = queue.has_waiting();
        self.requests.queue = Some(queue);
    }

    /// Closes the sessions whose requesters have finished or left.
    fn close_dropped(&mut self) {
        for list in self.requests.lists.close_dropped() {
            self.close_list(list);
        }
        drop(self.requests.verifications.close_dropped());
        for preparing in self.requests.preparations.close_dropped() {
            features::prepared(&preparing).into_iter().for_each(super::free::free_later);
        }
        if !self.requests.traces.close_dropped().is_empty() {
            trace::disarm(&self.workers);
        }
    }
}

/// The parts of the daemon that requests read.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) settings: &'a Settings,
    pub(super) progress: &'a Progress,
    pub(super) control: &'a Control,
    pub(super) sources: &'a Sources,
    pub(super) workers: &'a Workers,
    pub(super) graph: &'a RunningGraph,
    pub(super) interfaces: &'a Interfaces,
}

impl Daemon {
    /// What requests read.
    pub(super) fn view(&self) -> View<'_> {
        View {
            settings: &self.settings,
            progress: &self.progress,
            control: &self.control,
            sources: &self.sources,
            workers: &self.workers,
            graph: &self.graph,
            interfaces: &self.interfaces,
        }
    }

    /// Has all workers run another graph. A trace in progress ends: its steps name elements of the old graph.
    fn replace_graph(&mut self, plan: Plan) {
        if !self.requests.traces.close_all().is_empty() {
            trace::disarm(&self.workers);
        }
        self.graph.replace(plan, &mut self.workers);
    }
}

impl Backend for Daemon {
    fn status(&self) -> Status {
        self.view().state()
    }

    fn route(&self, query: &RouteQuery) -> Result<RouteAnswer, ApiError> {
        self.view().route_answer(query)
    }

    fn change_route(&mut self, change: &RouteChange) -> Result<RouteChanged, ApiError> {
        self.set_route(change)
    }

    fn awaited(&self) -> Awaited {
        let mark = Some(self.control.mark());
        Awaited { mark, since: Instant::now(), files: false, builds: false }
    }

    fn visible(&mut self, awaited: &mut Awaited) -> Option<Result<u64, ApiError>> {
        Self::visible(self, awaited)
    }

    fn open_routes(
        &mut self,
        filter: &RouteFilter,
        reader: Option<u32>,
        open: oneshot::Sender<()>,
    ) -> Result<Session, ApiError> {
        self.open_list(filter, reader, open)
    }

    fn next_routes(&mut self, session: u64) -> Result<(Vec<u8>, bool), ApiError> {
        self.next_of_list(session)
    }

    fn events(&self, since: Option<u64>) -> (Vec<Event>, u64) {
        self.view().events_since(since)
    }

    fn map_routes(&self, read: MapRead) -> Result<MapFound, ApiError> {
        self.view().map_routes(read)
    }

    fn map_changes(&self, table: u32, family: u8, since: Option<u64>) -> MapChanges {
        self.view().map_changes(table, family, since)
    }

    fn next_hops(&self) -> Vec<NextHop> {
        self.view().next_hop_list()
    }

    fn groups(&self) -> Vec<Group> {
        self.view().group_list()
    }

    fn fibs(&self) -> Vec<Fib> {
        self.view().fib_list()
    }

    fn choose_algorithm(&mut self, change: &AlgorithmChange) -> Result<(), ApiError> {
        self.pin_algorithm(change)?;
        self.note_algorithm(change);
        self.control.flush();
        self.commit(Instant::now());
        Ok(())
    }

    fn chosen_algorithm(&mut self, change: &AlgorithmChange) -> Option<Result<Vec<Fib>, ApiError>> {
        (!self.control.is_building()).then(|| self.pinned(change))
    }

    fn open_verification(&mut self, reads_only: bool) -> Session {
        self.open_comparison(reads_only)
    }

    fn next_verification(&mut self, session: u64) -> Option<Verification> {
        self.compare(session)
    }

    fn interfaces(&self) -> Vec<Interface> {
        self.view().interface_list()
    }

    fn neighbors(&self) -> Vec<Neighbor> {
        self.view().neighbor_list()
    }

    fn change_neighbor(&mut self, change: &NeighborChange) -> Result<NeighborChanged, ApiError> {
        self.set_neighbor(change)
    }

    fn sources(&self) -> Vec<Source> {
        self.view().source_list()
    }

    fn cluster(&self) -> Result<ClusterStatus, ApiError> {
        self.cluster_status()
    }

    fn drain(&mut self, drain: Drain) -> Result<(), ApiError> {
        self.drain_node(drain)
    }

    fn change_parameters(&self, change: &ParameterChange) -> Result<Job<u64>, ApiError> {
        self.cluster_change(change)
    }

    fn log(&self) -> LogState {
        log::state()
    }

    fn set_log_level(&mut self, change: &LogChange) -> Result<(), ApiError> {
        log::set(change)
    }

    fn time_elements(&mut self, time: Duration) {
        self.workers.begin_timing(time);
    }

    fn element_times(&self) -> ElementTimes {
        self.workers.times()
    }

    fn graph_stats(&self, before: Option<&ElementTimes>) -> GraphStats {
        self.view().counters(before)
    }

    fn counts(&self) -> Counts {
        self.view().counts()
    }

    fn swap_graph(&mut self, text: &ConfigText) -> Result<GraphStats, ApiError> {
        // A rollback is planned with the graph of this moment.
        self.settings.lasting.check_waiting(Instant::now())?;
        let plan = self.view().plan_swap(text)?;
        self.graph.set_text(text.clone());
        self.replace_graph(plan);
        Ok(self.view().counters(None))
    }

    fn open_trace(&mut self, query: &TraceQuery) -> Result<Session, ApiError> {
        if let Some(tracing) = self.requests.traces.states().next() {
            return Err(tracing.busy());
        }
        let tracing = trace::Tracing::begin(query, &self.workers, self.graph.node.as_ref())?;
        Ok(self.requests.traces.open(tracing))
    }

    fn next_traces(&mut self, session: u64) -> (Vec<PacketTrace>, bool) {
        let Some(mut tracing) = self.requests.traces.take(session) else {
            // Another graph has ended it.
            return (Vec::new(), false);
        };
        let (taken, more) = tracing.take(&self.workers);
        if more {
            self.requests.traces.put(session, tracing);
        } else {
            trace::disarm(&self.workers);
        }
        let view = self.view();
        (taken.iter().map(|(number, trace)| view.traced(trace, *number)).collect(), more)
    }

    fn why(&self, query: &WhyQuery) -> Result<WhyAnswer, ApiError> {
        self.view().dry_run(query)
    }

    fn features(&self) -> Vec<Feature> {
        self.view().feature_list()
    }

    fn feature_rows(&self, name: &str) -> Result<Job<Vec<FeatureRow>>, ApiError> {
        self.view().rows_of(name)
    }

    fn filter_lookup(&self, query: FilterQuery) -> Result<Job<FilterAnswer>, ApiError> {
        self.view().look_up_source(query)
    }

    fn change_filter(&self, change: FilterChange) -> Job<FilterChanged> {
        self.view().edit_filter(change)
    }

    fn replace_filter(&self, list: FilterList) -> Job<FilterChanged> {
        self.view().reload_filter(list)
    }

    fn compare_config(&self, text: ConfigText) -> Job<Vec<ConfigChange>> {
        let running = self.view().running();
        Box::new(move || running.diff(&text))
    }

    fn prepare_config(&mut self, text: ConfigText) -> Preparation {
        self.prepare(text)
    }

    fn apply_config(
        &mut self,
        wanted: &ConfigApply,
        by: Requester,
        prepared: u64,
    ) -> Result<Made<ConfigApplied>, ApiError> {
        self.settings.lasting.begin();
        let preparing = self.requests.preparations.take(prepared);
        let done = self.apply(wanted, by, preparing.as_ref().and_then(features::prepared))?;
        Ok(self.applied(done))
    }

    fn record_config(&mut self, wanted: &ConfigApply) -> Result<Option<Job<()>>, ApiError> {
        let lasting = &self.settings.lasting;
        lasting.check_waiting(Instant::now())?;
        if wanted.confirm_s.is_none() {
            return Ok(None);
        }
        let written = lasting.record_unconfirmed(wanted.document());
        Ok(written.map(|written| -> Job<()> {
            Box::new(|| written().map_err(|words| ApiError::new(Code::Refused, words)))
        }))
    }

    fn confirm_config(&mut self, by: &Requester) -> Result<Made<ConfigEntry>, ApiError> {
        self.settings.lasting.begin();
        let done = self.confirm(by)?;
        Ok(Made { done, awaited: self.awaited(), written: self.history_written() })
    }

    fn undo_config(&mut self, by: &Requester) -> Result<Made<ConfigApplied>, ApiError> {
        self.settings.lasting.begin();
        let done = self.roll_back(&format!("by {by}"))?;
        Ok(self.applied(done))
    }

    fn config_history(&self) -> Vec<ConfigEntry> {
        self.settings.lasting.entries(Instant::now())
    }

    fn shown_config(&self, number: Option<u64>) -> Result<ConfigShown, ApiError> {
        self.settings.lasting.shown(number, Instant::now())
    }

    fn check_saving(&self) -> Result<(), ApiError> {
        self.check_folder()
    }

    fn runtime_changes(&self) -> Vec<SavedChange> {
        let lasting = &self.settings.lasting;
        let unmade = lasting.unmade.changes.iter().map(|placed| &placed.change);
        unmade.chain(lasting.present.all()).cloned().collect()
    }

    fn configured_changes(&self) -> Vec<SavedChange> {
        self.configured_neighbors().collect()
    }

    fn save_changes(&mut self, changes: Vec<SavedChange>) -> Job<()> {
        self.save_all(changes)
    }

    fn delete_kept(&mut self, kept: &Kept, persist: bool) -> Option<Deleted> {
        self.delete_unmade(kept, persist)
    }

    fn keep(&mut self, kept: &Kept) -> Job<()> {
        self.save_one(kept)
    }

    fn note_edits(&mut self, edits: Vec<SavedChange>, persist: bool) -> Option<Job<()>> {
        self.note_filter_edits(edits, persist)
    }

    fn note_request(
        &mut self,
        by: Requester,
        request: String,
        subject: &str,
        error: Option<ApiError>,
    ) {
        let is_refused = error.as_ref().is_some_and(|error| !error.code.is_done());
        if is_refused && !self.journal.count_refusal(Instant::now()) {
            return;
        }
        let refused = if is_refused { "refused: " } else { "" };
        let error = error.map(|error| error.message);
        let Requester { uid, pid, command } = &by;
        let about = if subject.is_empty() { String::new() } else { format!(": {subject}") };
        match &error {
            None => {
                // A line with a subject is never left out (`log/limit.rs`).
                info!(
                    target: "control", uid, pid, command, request, subject,
                    "{by}: {request}: done{about}"
                );
            }
            Some(error) => warn!(
                target: "control", uid, pid, command, request, subject, error,
                "{by}: {request}: {refused}{error}{about}"
            ),
        }
        let Requester { uid, pid, command } = by;
        self.control.note_request(Requested { uid, pid, command, request, error });
    }
}

/// Names of links by their number.
pub(super) type LinkNames = HashMap<u32, String>;

impl View<'_> {
    /// The daemon itself.
    fn state(&self) -> Status {
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            seconds: self.progress.elapsed().as_secs_f64(),
            routes_v4: self.control.rib_v4().len(),
            routes_v6: self.control.rib_v6().len(),
            interfaces: self.interfaces.taken_over(),
            workers: self.workers.len(),
            workers_alive: self.workers.alive(),
            resident_kib: report::resident_kib(),
            turns: self.progress.turns.row(),
            visible: turns::quantiles(&self.sources.visible),
            waiting: self
                .settings
                .lasting
                .waiting(Instant::now())
                .map(|(number, seconds_left)| WaitingConfig { number, seconds_left }),
        }
    }

    /// Sources of routes.
    fn source_list(&self) -> Vec<Source> {
        let now = Instant::now();
        let all = self.control.sources().enumerate();
        let used = all.filter(|(number, _)| !self.sources.configured.is_idle(*number));
        used.map(|(number, source)| self.source_row(number, source, now)).collect()
    }

    fn source_row(&self, number: usize, source: SourceReport, now: Instant) -> Source {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let SourceReport { name, distance, routes, updates, refused, last_refusal, .. } = source;
        let mut row = Source {
            kind: name.clone(),
            name,
            distance,
            routes,
            updates,
            errors: refused,
            last_error: last_refusal.clone(),
            refused,
            last_refusal,
            messages: None,
            last_message_ms: None,
            resyncs: None,
            dumps: None,
            resync_ms: None,
            resync_reason: String::new(),
            comparisons: None,
            compare_ms: None,
            in_sync: !source.dumping,
            tables: source.tables,
            end_of_rib: None,
            lag_ms: 0.0,
            sessions: None,
            peer: None,
            exported: None,
            export_refused: None,
        };
        let kernel = &self.sources.kernel;
        if kernel.id().index() == number {
            let (errors, last) = kernel.errors();
            row.errors += errors;
            row.last_error = if last.is_empty() { row.last_error } else { last };
            row.messages = Some(kernel.messages);
            row.last_message_ms = kernel.last_message(now).map(ms);
            row.resyncs = Some(kernel.resyncs().lost);
            row.dumps = Some(kernel.resyncs().dumps);
            if let Some((why, took)) = &kernel.resyncs().last {
                (row.resync_ms, row.resync_reason) = (Some(ms(*took)), why.clone());
            }
            row.lag_ms = ms(kernel.lag(now));
            if let Some(compared) = kernel.compared() {
                row.comparisons = Some(compared.done);
                row.compare_ms = (compared.done > 0).then(|| ms(compared.work));
            }
        }
        if let Some(state) = self.sources.configured.state(number, now) {
            state.kind.clone_into(&mut row.kind);
            if row.last_error.is_empty() {
                row.last_error = state.waiting.unwrap_or_default();
            }
            if let Some(exported) = state.exported {
                row.exported = Some(exported.routes);
                row.export_refused = Some(exported.refused);
                row.errors += exported.refused;
                if exported.refused > 0 {
                    row.last_error = exported.last_refusal;
                }
            }
            if let Some(seat) = state.seat {
                row.errors += seat.errors;
                row.last_error =
                    if seat.last_error.is_empty() { row.last_error } else { seat.last_error };
                row.messages = Some(seat.messages);
                row.last_message_ms = seat.last_message.map(ms);
                row.resyncs = Some(seat.sessions.saturating_sub(1));
                row.end_of_rib = Some(seat.ends);
                row.in_sync &= seat.is_open;
                row.lag_ms = ms(seat.lag);
                row.sessions = Some(seat.sessions);
                row.peer = Some(seat.peer).filter(|peer| !peer.is_empty());
            }
        }
        row
    }

    /// The number of the source that is called so.
    fn source(&self, name: &str) -> Result<u16, ApiError> {
        let names: Vec<String> = self.control.sources().map(|source| source.name).collect();
        let found = names.iter().position(|known| known == name);
        found.and_then(|at| u16::try_from(at).ok()).ok_or_else(|| {
            let words = unknown("source", name, names.iter().map(String::as_str));
            ApiError::at(Code::NotFound, "source", words)
        })
    }

    /// The number of the interface that is called so.
    fn link_of(&self, dev: &str) -> Result<u32, ApiError> {
        link_of(self.control, dev)
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
}

/// The number of the interface that is called so.
fn link_of(control: &Control, dev: &str) -> Result<u32, ApiError> {
    let known = control.links().find(|(_, _, state)| state.name == dev);
    known.map(|(link, ..)| link).ok_or_else(|| {
        let names = control.links().map(|(_, _, state)| state.name.as_str());
        ApiError::at(Code::NotFound, "dev", unknown("interface", dev, names))
    })
}

/// Error of an invalid request, by its field.
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
