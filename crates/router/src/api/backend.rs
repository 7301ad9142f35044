//! The seam between the control API and the daemon: what a backend can do, and the queue of requests for it.
//!
//! The server's thread sends [`Request`]s through [`Requests`]; the backend's thread takes them from its [`Queue`]
//! between two bursts of work and runs them on its [`Backend`]. The queue is bounded. A bell wakes the
//! backend from poll(2), so that a request waits for the work in progress and not for the next tick. Requests run within
//! a budget of time a turn: routes and packets go first.
//!
//! What takes longer than a request may take has two forms. A [`Job`] is the long part of a request, which another
//! thread runs. A [`Session`] numbers the state of a request that takes several turns.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fingerpost_route::Mark;
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc, oneshot, watch};

use super::access::Requester;
use super::cluster::{ClusterStatus, Drain, ParameterChange};
use super::config::{ConfigApplied, ConfigApply, ConfigEntry, ConfigShown};
use super::error::ApiError;
use super::features::{Feature, FeatureRow};
use super::graph::{ElementTimes, GraphStats, PacketTrace, TraceQuery, WhyAnswer, WhyQuery};
use super::log::{LogChange, LogState};
use super::map::{MapChanges, MapFound, MapRead};
use super::metrics::Counts;
use super::model::{
    AlgorithmChange, ConfigChange, ConfigText, Event, Fib, Group, Interface, Neighbor,
    NeighborChange, NeighborChanged, NextHop, RouteAnswer, RouteChange, RouteChanged, RouteQuery,
    Source, Status, Verification,
};
use super::saved::SavedChange;
use super::session::Session;
use super::source_filters::{FilterAnswer, FilterChange, FilterChanged, FilterList, FilterQuery};
use super::streams::RouteFilter;
use crate::bell::Bell;

/// Requests that may wait; further ones wait for room in the queue.
const WAITING: usize = 64;
/// Time that requests may take in a turn of the backend. A request is never interrupted, so each must be short by
/// itself.
const BUDGET: Duration = Duration::from_millis(2);

/// The part of a request that may take long: it runs outside the backend's thread.
pub(crate) type Job<T> = Box<dyn FnOnce() -> Result<T, ApiError> + Send>;

/// Job that prepares a change, and the session that holds its result.
pub(crate) type Preparation = (Session, Job<()>);

/// What packets are to follow before a request is answered.
#[derive(Clone, Debug)]
pub(crate) struct Awaited {
    /// Mark behind all changes of routes; `None` while files are read.
    pub(crate) mark: Option<Mark>,
    /// Start of the wait for that mark.
    pub(crate) since: Instant,
    /// Whether files that are being read are waited for.
    pub(crate) files: bool,
    /// Whether tables that are being built are waited for.
    pub(crate) builds: bool,
}

/// A change that was made, and what its requester waits for.
pub(crate) struct Made<T> {
    /// Result of the change.
    pub(crate) done: T,
    /// What packets are to follow.
    pub(crate) awaited: Awaited,
    /// Waits until the history has the change; `None` where it is not written.
    pub(crate) written: Option<Job<()>>,
}

/// A change that was made and is to be saved.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Route(RouteChange),
    Neighbor(NeighborChange),
    Algorithm(AlgorithmChange),
}

/// Result of a request that has deleted a change which was not made.
#[derive(Clone, Debug)]
pub(crate) enum Deleted {
    Route(RouteChanged),
    Neighbor(NeighborChanged),
}

impl TryFrom<Deleted> for RouteChanged {
    type Error = Deleted;

    fn try_from(deleted: Deleted) -> Result<Self, Deleted> {
        match deleted {
            Deleted::Route(done) => Ok(done),
            other => Err(other),
        }
    }
}

impl TryFrom<Deleted> for NeighborChanged {
    type Error = Deleted;

    fn try_from(deleted: Deleted) -> Result<Self, Deleted> {
        match deleted {
            Deleted::Neighbor(done) => Ok(done),
            other => Err(other),
        }
    }
}

impl TryFrom<Deleted> for () {
    type Error = Deleted;

    fn try_from(deleted: Deleted) -> Result<Self, Deleted> {
        Err(deleted)
    }
}

/// Nobody else changes features or the configuration while one holds it.
pub(crate) type WriteGuard = OwnedMutexGuard<()>;

/// What the control API needs of a router. All calls come from the router's own thread, and each is short.
pub(crate) trait Backend {
    /// State of the daemon.
    fn status(&self) -> Status;
    /// Route of an address, from the live lookup.
    fn route(&self, query: &RouteQuery) -> Result<RouteAnswer, ApiError>;
    /// Adds, changes or deletes a route of the source `command`. Packets may follow it later.
    fn change_route(&mut self, change: &RouteChange) -> Result<RouteChanged, ApiError>;
    /// All that is known now, for [`Backend::visible`].
    fn awaited(&self) -> Awaited;
    /// Generation in which packets follow what is awaited, or the error that they do not yet; `None` while the requester is to
    /// wait.
    fn visible(&mut self, awaited: &mut Awaited) -> Option<Result<u64, ApiError>>;
    /// Begins a list of the routes of this moment; `reader`: the user, if its client may not change anything. `open` is dropped
    /// when the list ends.
    fn open_routes(
        &mut self,
        filter: &RouteFilter,
        reader: Option<u32>,
        open: oneshot::Sender<()>,
    ) -> Result<Session, ApiError>;
    /// Next routes of a list as JSON lines, and whether there are more.
    fn next_routes(&mut self, session: u64) -> Result<(Vec<u8>, bool), ApiError>;
    /// Events after a sequence number, and the number to continue from. Without a number: from now on.
    fn events(&self, since: Option<u64>) -> (Vec<Event>, u64);
    /// Best routes of a table, for pictures of the address space.
    fn map_routes(&self, read: MapRead) -> Result<MapFound, ApiError>;
    /// Prefixes of a table and family whose best route changed after a notice.
    fn map_changes(&self, table: u32, family: u8, since: Option<u64>) -> MapChanges;
    /// Next hops, without groups.
    fn next_hops(&self) -> Vec<NextHop>;
    /// Next-hop groups and their members.
    fn groups(&self) -> Vec<Group>;
    /// Lookup tables, the main one first.
    fn fibs(&self) -> Vec<Fib>;
    /// Pins an algorithm, or leaves the choice to the FIB again.
    fn choose_algorithm(&mut self, change: &AlgorithmChange) -> Result<(), ApiError>;
    /// Lookup tables after such a change; `None` while they are built.
    fn chosen_algorithm(&mut self, change: &AlgorithmChange) -> Option<Result<Vec<Fib>, ApiError>>;
    /// Begins to compare the lookups of all tables with their routes; `reads_only`: on request of a client that may not change
    /// anything, so that nothing is done sooner for it.
    fn open_verification(&mut self, reads_only: bool) -> Session;
    /// Compares the next piece; the result once the last piece is compared.
    fn next_verification(&mut self, session: u64) -> Option<Verification>;
    /// Interfaces with their counters.
    fn interfaces(&self) -> Vec<Interface>;
    /// Neighbors on all links, by address.
    fn neighbors(&self) -> Vec<Neighbor>;
    /// Sets or deletes a neighbor. Packets may follow it later.
    fn change_neighbor(&mut self, change: &NeighborChange) -> Result<NeighborChanged, ApiError>;
    /// Route sources.
    fn sources(&self) -> Vec<Source>;
    /// The cluster that this router is a node of.
    fn cluster(&self) -> Result<ClusterStatus, ApiError>;
    /// Drains this node of a cluster, or ends that.
    fn drain(&mut self, drain: Drain) -> Result<(), ApiError>;
    /// Changes the parameters of the cluster in its store; the result is their version.
    fn change_parameters(&self, change: &ParameterChange) -> Result<Job<u64>, ApiError>;
    /// Levels of the log.
    fn log(&self) -> LogState;
    /// Changes levels of the log.
    fn set_log_level(&mut self, change: &LogChange) -> Result<(), ApiError>;
    /// Times the elements of the graph from now on, for at least this long.
    fn time_elements(&mut self, time: Duration);
    /// Packets and clock ticks of all elements so far.
    fn element_times(&self) -> ElementTimes;
    /// Counters of the elements, with the clock cycles since `before`.
    fn graph_stats(&self, before: Option<&ElementTimes>) -> GraphStats;
    /// Counters for metrics, those of the workers to be read by the caller.
    fn counts(&self) -> Counts;
    /// Replaces the graph of all workers.
    fn swap_graph(&mut self, text: &ConfigText) -> Result<GraphStats, ApiError>;
    /// Begins a packet trace; one at a time.
    fn open_trace(&mut self, query: &TraceQuery) -> Result<Session, ApiError>;
    /// Packets traced since the last call, and whether there may be more.
    fn next_traces(&mut self, session: u64) -> (Vec<PacketTrace>, bool);
    /// Dry run of a packet.
    fn why(&self, query: &WhyQuery) -> Result<WhyAnswer, ApiError>;
    /// Interface features of this program.
    fn features(&self) -> Vec<Feature>;
    /// Rows that a feature shows.
    fn feature_rows(&self, name: &str) -> Result<Job<Vec<FeatureRow>>, ApiError>;
    /// What the source filters do to packets from an address.
    fn filter_lookup(&self, query: FilterQuery) -> Result<Job<FilterAnswer>, ApiError>;
    /// Adds prefixes to a filter and deletes others.
    fn change_filter(&self, change: FilterChange) -> Job<FilterChanged>;
    /// Replaces the prefixes of a filter by those of a file.
    fn replace_filter(&self, list: FilterList) -> Job<FilterChanged>;
    /// Differences of a configuration from the running one.
    fn compare_config(&self, text: ConfigText) -> Job<Vec<ConfigChange>>;
    /// Prepares [`Backend::apply_config`] of the same text: reads it, which takes long for a long one.
    fn prepare_config(&mut self, text: ConfigText) -> Preparation;
    /// Work before a configuration is applied that must be confirmed: a record of it for the next start.
    fn record_config(&mut self, wanted: &ConfigApply) -> Result<Option<Job<()>>, ApiError>;
    /// Applies a configuration as far as that is possible without a restart, with what was prepared in a session.
    fn apply_config(
        &mut self,
        wanted: &ConfigApply,
        by: Requester,
        prepared: u64,
    ) -> Result<Made<ConfigApplied>, ApiError>;
    /// Confirms the configuration that waits for it.
    fn confirm_config(&mut self, by: &Requester) -> Result<Made<ConfigEntry>, ApiError>;
    /// Restores the configuration before the one that waits for its confirmation.
    fn undo_config(&mut self, by: &Requester) -> Result<Made<ConfigApplied>, ApiError>;
    /// Configurations that were applied, the oldest first.
    fn config_history(&self) -> Vec<ConfigEntry>;
    /// The configuration of this number, or the running one.
    fn shown_config(&self, number: Option<u64>) -> Result<ConfigShown, ApiError>;
    /// Refuses to save where nothing is kept across restarts.
    fn check_saving(&self) -> Result<(), ApiError>;
    /// Changes of source filters and algorithms that commands have made, behind changes that wait to be made.
    fn runtime_changes(&self) -> Vec<SavedChange>;
    /// Changes that the running configuration makes itself: its neighbors.
    fn configured_changes(&self) -> Vec<SavedChange>;
    /// Saves these run-time changes and no others.
    fn save_changes(&mut self, changes: Vec<SavedChange>) -> Job<()>;
    /// Deletes a change that waits to be made, or is saved if `persist`, for a request that found nothing to delete; `None`
    /// where there is no such change.
    fn delete_kept(&mut self, kept: &Kept, persist: bool) -> Option<Deleted>;
    /// Saves a change that was made, as it is by now.
    fn keep(&mut self, kept: &Kept) -> Job<()>;
    /// Notes changes of lists of source filters that were made; saves them if wanted.
    fn note_edits(&mut self, edits: Vec<SavedChange>, persist: bool) -> Option<Job<()>>;
    /// Notes a request for a change, in the log with its subject, and for followers of events.
    fn note_request(
        &mut self,
        by: Requester,
        request: String,
        subject: &str,
        error: Option<ApiError>,
    );
}

/// A call of [`Backend`] that sends its own reply.
pub(crate) type Request = Box<dyn FnOnce(&mut dyn Backend) + Send>;

/// The requesters' end of the queue.
#[derive(Clone)]
pub(crate) struct Requests {
    queue: mpsc::Sender<Request>,
    bell: Arc<Bell>,
    sequence: watch::Receiver<u64>,
    writer: Arc<Mutex<()>>,
}

/// The backend's end of the queue.
pub(crate) struct Queue {
    requests: mpsc::Receiver<Request>,
    bell: Bell,
    sequence: watch::Sender<u64>,
}

/// Makes both ends.
///
/// # Errors
/// When there are no file descriptors left.
pub(crate) fn channel() -> std::io::Result<(Requests, Queue)> {
    let (ring, bell) = Bell::pair()?;
    let (queue, requests) = mpsc::channel(WAITING);
    let (sender, sequence) = watch::channel(0);
    let ends = Requests { queue, bell: Arc::new(ring), sequence, writer: Arc::default() };
    Ok((ends, Queue { requests, bell, sequence: sender }))
}

/// Replies with what `run` returns. A request whose requester has left is not run.
fn reply<T>(to: oneshot::Sender<T>, run: impl FnOnce() -> T) {
    if !to.is_closed() {
        // The requester may have left meanwhile: what was done is done.
        let _ = to.send(run());
    }
}

impl Requests {
    /// Sequence number of the latest event, as it grows.
    pub(crate) fn sequence(&self) -> watch::Receiver<u64> {
        self.sequence.clone()
    }

    /// Waits until nobody else changes features or the configuration, which takes longer than a request may. Nobody else
    /// does until the guard is dropped.
    pub(crate) async fn write_lock(&self) -> WriteGuard {
        self.writer.clone().lock_owned().await
    }

    /// Has the backend run `call`, and waits for what that returns.
    ///
    /// # Errors
    /// When the backend is stopping.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut dyn Backend) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (to, result) = oneshot::channel();
        let request: Request = Box::new(|backend| reply(to, || call(backend)));
        self.queue.send(request).await.map_err(|_| ApiError::stopping())?;
        self.bell.ring();
        result.await.map_err(|_| ApiError::stopping())
    }
}

impl Queue {
    /// Publishes the sequence number of the latest event.
    pub(crate) fn publish(&self, sequence: u64) {
        self.sequence.send_if_modified(|known| std::mem::replace(known, sequence) != sequence);
    }

    /// Descriptor for poll: readable when a request waits.
    pub(crate) fn fd(&self) -> RawFd {
        self.bell.fd()
    }

    /// Whether a request waits.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Next request, while there is one and the turn that began at `started` has time left.
    pub(crate) fn next(&mut self, started: Instant) -> Option<Request> {
        if started.elapsed() > BUDGET {
            return None;
        }
        match self.requests.try_recv() {
            Ok(request) => Some(request),
            Err(_) => {
                self.bell.silence();
                self.requests.try_recv().ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bell_rings_until_all_requests_are_taken_and_a_late_turn_takes_none() {
        let (requests, mut queue) = channel().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for _ in 0..3 {
            runtime.block_on(requests.queue.send(Box::new(|_| ()))).ok().unwrap();
            requests.bell.ring();
        }
        let ringing = |queue: &Queue| {
            let before = Instant::now();
            crate::sys::poll(&[queue.fd()], Duration::from_millis(200));
            before.elapsed() < Duration::from_millis(100)
        };
        assert!(ringing(&queue));
        let late = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        assert!(queue.next(late).is_none() && ringing(&queue));
        for _ in 0..3 {
            assert!(queue.next(Instant::now()).is_some());
        }
        assert!(queue.next(Instant::now()).is_none() && !ringing(&queue));
        drop(queue);
        let gone = runtime.block_on(requests.call(|backend| backend.status()));
        assert_eq!(gone, Err(ApiError::stopping()));
    }

    #[test]
    fn a_request_whose_requester_left_is_not_run() {
        let (to, result) = oneshot::channel::<()>();
        drop(result);
        reply(to, || unreachable!("nobody waits for it"));
    }
}
