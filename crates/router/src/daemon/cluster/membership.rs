//! Membership from a store: a thread with the agent of this node, whose latest word the daemon reads.
//!
//! Source: fail-static as in SDN agents: without the store the last known members stand, for the hold time.
//! Shape:  the thread steps the agent, which may block for seconds, and leaves a [`View`] in a mutex that nobody holds for
//!         longer than a copy of it. The daemon leaves the own record there in turn; it is put once a second at most. Changes of
//!         the parameters wait there for the next step, each with where its result goes.
//! Cost:   a lock and the copy of a few words a turn of the daemon.
//! Limits: when the router stops, the store has a second to learn it; else the session ends by itself.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fingerpost_cluster::store::Store;
use fingerpost_cluster::store::adopt::Adopted;
use fingerpost_cluster::store::agent::{Agent, Clock, Settings};
use fingerpost_cluster::store::member::{Membership, Record};
use fingerpost_cluster::store::parameters::{Change, Parameters};

use crate::privilege;

/// Least time between two puts of the own record.
const PUT: Duration = Duration::from_secs(1);

/// Longest that the end of the router waits for the store.
const LEAVE: Duration = Duration::from_secs(1);

/// Longest that a step waits for changes; the own record is put up to this and [`PUT`] late.
pub(super) const POLL: Duration = Duration::from_millis(500);

/// What the thread knows.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// The members, this node among them once it has joined.
    pub(super) membership: Arc<Membership>,
    /// Whether this node has joined, so that its number is certain.
    pub(super) joined: bool,
    /// Time since which the store does not answer.
    pub(super) lost: Option<Instant>,
    /// Why this node is not registered at present.
    pub(super) error: Option<String>,
    /// Parameters of the cluster.
    pub(super) parameters: Option<Adopted>,
}

/// A change of the parameters, and where its result goes: the new version, or why there is none.
type Requested = (Change, Sender<Result<u64, String>>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    view: View,
    /// Own record that is not the agent's yet.
    own: Option<Record>,
    changes: Vec<Requested>,
    stop: bool,
}

/// The thread that keeps the membership, until this is dropped.
#[derive(Debug)]
pub(super) struct Joined {
    shared: Arc<Shared>,
    /// Ends when the thread does.
    end: Receiver<()>,
}

impl Joined {
    /// Starts the thread, in the network namespace of the caller; number 0 of the own record takes one that is free. A store
    /// without parameters gets those of the configuration.
    pub(super) fn start(
        settings: Settings,
        own: Record,
        configured: Parameters,
        store: Box<dyn Store>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (alive, end) = mpsc::channel();
        let work = Work {
            hold: settings.hold,
            agent: Agent::new(settings, own).with_parameters(configured),
            store,
            start: Instant::now(),
            put: None,
            shared: shared.clone(),
        };
        std::thread::Builder::new().name("membership".into()).spawn(move || work.run(alive))?;
        Ok(Self { shared, end })
    }

    /// Waits until this node has joined. Returns what is known then.
    pub(super) fn wait(&self, longest: Duration) -> View {
        let state = self.shared.lock();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, longest, |state| !state.view.joined)
            .unwrap_or_else(PoisonError::into_inner);
        waited.0.view.clone()
    }

    /// What is known at present.
    pub(super) fn view(&self) -> View {
        self.shared.lock().view.clone()
    }

    /// Has the store have this own record.
    pub(super) fn publish(&self, record: Record) {
        self.shared.lock().own = Some(record);
    }

    /// Has the store have a change of the parameters. Returns where the result comes out.
    pub(super) fn change(&self, change: Change) -> Receiver<Result<u64, String>> {
        let (to, result) = mpsc::channel();
        self.shared.lock().changes.push((change, to));
        self.shared.changed.notify_all();
        result
    }

    /// Takes this node out of the store, as the last call.
    pub(super) fn leave(&self) {
        self.shared.stop();
        // Ends with the thread, in one way or the other.
        let _ = self.end.recv_timeout(LEAVE);
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }
}

/// What the thread has.
struct Work {
    agent: Agent,
    store: Box<dyn Store>,
    hold: Duration,
    start: Instant,
    put: Option<Instant>,
    shared: Arc<Shared>,
}

impl Work {
    fn clock(&self) -> Clock {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { now: self.start.elapsed(), unix_s: unix.as_secs() }
    }

    fn run(mut self, _alive: Sender<()>) {
        // Files were read when the store was opened.
        privilege::keep_nothing();
        loop {
            if self.put.is_none_or(|put| put.elapsed() >= PUT)
                && let Some(record) = self.shared.lock().own.take()
            {
                self.agent.publish(record);
                self.put = Some(Instant::now());
            }
            for (change, to) in self.take_changes() {
                let made = self.agent.change(&mut *self.store, &change);
                // Who asked for it may have left.
                let _ = to.send(made.map_err(|error| error.to_string()));
            }
            let clock = self.clock();
            let step = self.agent.step(&mut *self.store, clock);
            let view = self.view();
            let mut state = self.shared.lock();
            state.view = view;
            self.shared.changed.notify_all();
            let idle = |state: &mut State| !state.stop && state.changes.is_empty();
            let waited = self.shared.changed.wait_timeout_while(state, step.wait, idle);
            let stop = waited.unwrap_or_else(PoisonError::into_inner).0.stop;
            if stop {
                // A store that does not answer lets the session end.
                let clock = self.clock();
                let _ = self.agent.leave(&mut *self.store, clock);
                return;
            }
        }
    }

    fn take_changes(&self) -> Vec<Requested> {
        std::mem::take(&mut self.shared.lock().changes)
    }

    fn view(&self) -> View {
        let mut membership = self.agent.membership();
        let lost = membership.store_lost_since;
        if lost.is_some_and(|since| self.start.elapsed().saturating_sub(since) > self.hold) {
            // From now on the number may be another node's.
            let own = self.agent.own().clone();
            membership = Arc::new(Membership { members: vec![own], ..(*membership).clone() });
        }
        View {
            membership,
            joined: self.agent.has_joined(),
            lost: lost.map(|since| self.start + since),
            error: self.agent.error().map(ToString::to_string),
            parameters: Some(self.agent.parameters().clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use fingerpost_cluster::store::memory::{Memory, Session};
    use fingerpost_cluster::store::{Entry, Event, Found, Keep, StoreError};

    use super::*;

    fn start(memory: &Memory, id: &str, hold: Duration) -> Joined {
        let ttl = Duration::from_secs(4);
        let settings = Settings { ttl, hold, poll: Duration::from_millis(5) };
        let own = Record { id: id.to_owned(), boot: 1, ..Record::default() };
        let store = Box::new(memory.open(ttl));
        Joined::start(settings, own, Parameters::default(), store).unwrap()
    }

    fn wait_for(joined: &Joined, what: &str, done: impl Fn(&View) -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !done(&joined.view()) {
            assert!(Instant::now() < until, "{what}: {:?}", joined.view());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn ids(view: &View) -> Vec<&str> {
        view.membership.members.iter().map(|record| &*record.id).collect()
    }

    #[test]
    fn members_come_and_go_and_stay_while_the_store_is_lost() {
        let memory = Memory::default();
        let a = start(&memory, "a", Duration::from_secs(60));
        assert_eq!(ids(&a.wait(Duration::from_secs(10))), ["a"]);
        let b = start(&memory, "b", Duration::from_secs(2));
        wait_for(&a, "the new one", |view| ids(view) == ["a", "b"]);
        let own = b.wait(Duration::from_secs(10)).membership.members[1].clone();
        b.publish(Record { weight: 7, ..own });
        wait_for(&a, "the record", |view| {
            view.membership.members.iter().any(|record| record.weight == 7)
        });
        wait_for(&b, "the other", |view| ids(view) == ["a", "b"]);
        memory.stop(true);
        for node in [&a, &b] {
            wait_for(node, "the loss", |view| view.lost.is_some() && view.error.is_some());
            assert_eq!(ids(&node.view()), ["a", "b"]);
        }
        wait_for(&b, "the end of the hold time", |view| ids(view) == ["b"]);
        assert_eq!(ids(&a.view()), ["a", "b"]);
        memory.stop(false);
        wait_for(&b, "the store", |view| ids(view) == ["a", "b"] && view.error.is_none());
        b.leave();
        wait_for(&a, "the end of b", |view| ids(view) == ["a"]);
    }

    #[test]
    fn a_change_has_its_version_as_result_or_the_reason() {
        let memory = Memory::default();
        let a = start(&memory, "a", Duration::from_secs(60));
        a.wait(Duration::from_secs(10));
        let change = |value| Change::parse([("flowlet_ms", value)], &[]).unwrap();
        let made = |value| a.change(change(value)).recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(made("5"), Ok(2));
        wait_for(&a, "the change", |view| {
            let parameters = &view.parameters.as_ref().unwrap().parameters;
            (parameters.version, parameters.flowlet_ms) == (2, 5)
        });
        memory.stop(true);
        let why = made("6").unwrap_err();
        assert!(why.contains("unreachable") && why.contains("keep their parameters"), "{why}");
        assert_eq!(a.view().parameters.unwrap().parameters.flowlet_ms, 5);
    }

    /// A store whose calls hang.
    struct Hung(Session, Arc<AtomicBool>);

    impl Store for Hung {
        fn get(&mut self, key: &str) -> Result<Option<Entry>, StoreError> {
            self.0.get(key)
        }
        fn list(&mut self, prefix: &str) -> Result<Found<Entry>, StoreError> {
            while self.1.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.0.list(prefix)
        }
        fn watch(
            &mut self,
            prefix: &str,
            after: u64,
            timeout: Duration,
        ) -> Result<Found<Event>, StoreError> {
            self.0.watch(prefix, after, timeout)
        }
        fn put(&mut self, key: &str, value: &[u8], keep: Keep) -> Result<u64, StoreError> {
            self.0.put(key, value, keep)
        }
        fn swap(
            &mut self,
            key: &str,
            expected: u64,
            value: &[u8],
            keep: Keep,
        ) -> Result<Option<u64>, StoreError> {
            self.0.swap(key, expected, value, keep)
        }
        fn keep_alive(&mut self) -> Result<(), StoreError> {
            self.0.keep_alive()
        }
        fn delete(&mut self, key: &str) -> Result<(), StoreError> {
            self.0.delete(key)
        }
    }

    #[test]
    fn a_store_that_hangs_holds_nobody_up() {
        let hangs = Arc::new(AtomicBool::new(true));
        let store = Hung(Memory::default().open(Duration::from_secs(4)), hangs.clone());
        let own = Record { id: "a".to_owned(), ..Record::default() };
        let parameters = Parameters::default();
        let joined = Joined::start(Settings::default(), own, parameters, Box::new(store)).unwrap();
        let began = Instant::now();
        assert!(!joined.wait(Duration::from_millis(50)).joined);
        joined.publish(Record::default());
        joined.leave();
        assert!(began.elapsed() < Duration::from_secs(2));
        hangs.store(false, Relaxed);
    }
}
