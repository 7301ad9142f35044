//! A store in memory, for tests: many sessions over one log of changes.
//!
//! Source: our own; it defines what the conformance tests expect of the real stores.
//! Shape:  a map of keys, a log of all changes, and the time of each session's latest sign of life.
//! Cost:   one lock; a watch sleeps on a condition.
//! Limits: one process; the log only grows.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Entry, Event, Found, Keep, Store, StoreError};

/// The store. Clones are the same one.
#[derive(Clone, Default)]
pub struct Memory(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stopped: bool,
    keys: BTreeMap<String, Held>,
    log: Vec<Event>,
    /// Revisions up to this one are forgotten.
    compacted: u64,
    revision: u64,
    sessions: BTreeMap<u64, (Instant, Duration)>,
    next_session: u64,
}

struct Held {
    value: Vec<u8>,
    revision: u64,
    session: Option<u64>,
}

/// A session with a [`Memory`].
pub struct Session {
    memory: Memory,
    ttl: Duration,
    number: Option<u64>,
}

impl Memory {
    /// Begins a session.
    #[must_use]
    pub fn open(&self, ttl: Duration) -> Session {
        Session { memory: self.clone(), ttl, number: None }
    }

    /// Stops answering, or answers again; sessions get their whole TTL then, as with etcd.
    pub fn stop(&self, stopped: bool) {
        let mut state = self.lock();
        state.stopped = stopped;
        let now = Instant::now();
        state.sessions.values_mut().for_each(|session| session.0 = now);
        self.0.changed.notify_all();
    }

    /// Forgets all changes so far, not their outcome.
    pub fn compact(&self) {
        let mut state = self.lock();
        state.compacted = state.revision;
        state.log.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, with everything expired that is due.
    fn current(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let mut state = self.lock();
        if state.stopped {
            return Err(unreachable());
        }
        if state.expire() {
            self.0.changed.notify_all();
        }
        Ok(state)
    }
}

fn unreachable() -> StoreError {
    StoreError::Unreachable { endpoint: "memory".to_owned(), why: "it is stopped".to_owned() }
}

impl State {
    fn record(&mut self, key: &str, value: Option<Vec<u8>>) -> u64 {
        self.revision += 1;
        self.log.push(Event { key: key.to_owned(), value, revision: self.revision });
        self.revision
    }

    fn expire(&mut self) -> bool {
        let now = Instant::now();
        let ended = |(number, (seen, ttl)): (&u64, &(Instant, Duration))| {
            (now.duration_since(*seen) > *ttl).then_some(*number)
        };
        let ended: Vec<u64> = self.sessions.iter().filter_map(ended).collect();
        let due = |held: &Held| held.session.is_some_and(|session| ended.contains(&session));
        let keys = self.keys.iter().filter(|(_, held)| due(held));
        let keys: Vec<String> = keys.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.keys.remove(&key);
            self.record(&key, None);
        }
        self.sessions.retain(|number, _| !ended.contains(number));
        !ended.is_empty()
    }
}

impl Session {
    fn write(&mut self, state: &mut State, key: &str, value: &[u8], keep: Keep) -> u64 {
        let session = (keep == Keep::Leased).then(|| {
            let number = *self.number.get_or_insert_with(|| {
                state.next_session += 1;
                state.next_session
            });
            state.sessions.entry(number).or_insert((Instant::now(), self.ttl));
            number
        });
        let revision = state.record(key, Some(value.to_vec()));
        state.keys.insert(key.to_owned(), Held { value: value.to_vec(), revision, session });
        revision
    }
}

impl Store for Session {
    fn get(&mut self, key: &str) -> Result<Option<Entry>, StoreError> {
        let state = self.memory.current()?;
        Ok(state.keys.get(key).map(|held| entry(key, held)))
    }

    fn list(&mut self, prefix: &str) -> Result<Found<Entry>, StoreError> {
        let state = self.memory.current()?;
        let keys = state.keys.iter().filter(|(key, _)| key.starts_with(prefix));
        let items = keys.map(|(key, held)| entry(key, held)).collect();
        Ok(Found { items, revision: state.revision })
    }

    fn watch(
        &mut self,
        prefix: &str,
        after: u64,
        timeout: Duration,
    ) -> Result<Found<Event>, StoreError> {
        let until = Instant::now() + timeout;
        loop {
            let state = self.memory.current()?;
            if after < state.compacted {
                return Err(StoreError::Compacted { after });
            }
            let new = state.log.iter().filter(|event| event.revision > after);
            let items: Vec<_> =
                new.filter(|event| event.key.starts_with(prefix)).cloned().collect();
            let now = Instant::now();
            if !items.is_empty() || now >= until {
                return Ok(Found { items, revision: state.revision });
            }
            // Short, for sessions end by time alone.
            let wait = (until - now).min(Duration::from_millis(20));
            drop(self.memory.0.changed.wait_timeout(state, wait));
        }
    }

    fn put(&mut self, key: &str, value: &[u8], keep: Keep) -> Result<u64, StoreError> {
        let memory = self.memory.clone();
        let mut state = memory.current()?;
        let revision = self.write(&mut state, key, value, keep);
        memory.0.changed.notify_all();
        Ok(revision)
    }

    fn swap(
        &mut self,
        key: &str,
        expected: u64,
        value: &[u8],
        keep: Keep,
    ) -> Result<Option<u64>, StoreError> {
        let memory = self.memory.clone();
        let mut state = memory.current()?;
        if state.keys.get(key).map_or(0, |held| held.revision) != expected {
            return Ok(None);
        }
        let revision = self.write(&mut state, key, value, keep);
        memory.0.changed.notify_all();
        Ok(Some(revision))
    }

    fn keep_alive(&mut self) -> Result<(), StoreError> {
        let mut state = self.memory.current()?;
        let Some(number) = self.number else { return Ok(()) };
        let Some(session) = state.sessions.get_mut(&number) else {
            self.number = None;
            return Err(StoreError::LeaseLost);
        };
        session.0 = Instant::now();
        Ok(())
    }

    fn delete(&mut self, key: &str) -> Result<(), StoreError> {
        let mut state = self.memory.current()?;
        if state.keys.remove(key).is_some() {
            state.record(key, None);
            self.memory.0.changed.notify_all();
        }
        Ok(())
    }
}

fn entry(key: &str, held: &Held) -> Entry {
    Entry { key: key.to_owned(), value: held.value.clone(), revision: held.revision }
}
