//! NATS JetStream: a key-value bucket.
//!
//! Source: NATS 2.9 or later. The layout is that of its key-value buckets, so that `nats kv` shows it: stream `KV_BUCKET` with one
//!         message a key, subject `$KV.BUCKET.KEY`, and markers for deletions. Revisions are numbers of messages.
//! Shape:  a list reads the stream from its beginning, a watch from a revision: each the first message from a number on, until
//!         there is none. A core subscription shows when to read again. Leased keys name a session, see `leases`.
//! Cost:   a round trip a key of a list, two a leased put.
//! Limits: values of 1 MiB less headers, unless the server is configured otherwise; 32 MiB in all. Keys of letters, digits, hyphens,
//!         underscores, points and slashes. The operator makes a bucket with replicas beforehand. A purge by hand is not seen.
//!
//! In subjects `/` is `.`, and `.` is `=`. The key `member/a` of the prefix `fingerpost/1` is `$KV.fingerpost_1.member.a`.

mod connection;
mod leases;
mod protocol;

use std::time::{Duration, Instant};

use self::connection::{Connection, random};
use self::leases::{Leases, Life};
use self::protocol::{LEASE, Stored};
use super::wire::Endpoints;
use super::{Entry, Event, Found, Keep, Options, Store, StoreError, StoreKind};

/// Most changes that a watch returns at once.
const MOST_EVENTS: usize = 1024;
/// After the bell rang, the change may not be in the stream yet: pauses until it is read again, each twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(640);

/// Row of the registry.
pub(super) const KIND: StoreKind = StoreKind {
    name: "nats",
    summary: "NATS 2.9 or later with JetStream, a key-value bucket",
    open: |options| Ok(Box::new(Nats::new(options)?)),
};

/// Changes with their keys.
type Read = Vec<(String, Stored)>;

/// A session with NATS.
struct Nats {
    endpoints: Endpoints,
    options: Options,
    bucket: String,
    connection: Option<Connection>,
    /// Deadline of the call in progress.
    until: Instant,
    /// When the bucket was made, once it was seen.
    created: Option<String>,
    /// The bucket is another one since the last list.
    is_new: bool,
    lease: Option<Lease>,
}

/// The session itself.
#[derive(Clone)]
struct Lease {
    id: String,
    renewal: u64,
    revision: u64,
}

impl Nats {
    fn new(options: &Options) -> Result<Self, StoreError> {
        let bucket = options.prefix.trim_matches('/').replace('/', "_");
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(allowed) {
            return Err(StoreError::Configuration(format!(
                "prefix {:?}: NATS has letters, digits, hyphens, underscores and slashes",
                options.prefix
            )));
        }
        Ok(Self {
            endpoints: Endpoints::new(options, ["nats", "tls"], 4222)?,
            options: options.clone(),
            bucket,
            connection: None,
            until: Instant::now(),
            created: None,
            is_new: false,
            lease: None,
        })
    }

    /// Subject of a key.
    fn subject(&self, key: &str) -> Result<String, StoreError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        let whole = key.split('/').all(|part| !part.is_empty());
        if !whole || !key.bytes().all(allowed) || key.starts_with("lease/") {
            return Err(StoreError::Configuration(format!("NATS has no key {key:?}")));
        }
        Ok(format!("$KV.{}.{}", self.bucket, key.replace('.', "=").replace('/', ".")))
    }

    /// Subjects of all keys below a prefix.
    fn subjects(&self, prefix: &str) -> Result<String, StoreError> {
        match prefix.strip_suffix('/') {
            None => Ok(format!("$KV.{}.>", self.bucket)),
            Some(prefix) => Ok(format!("{}.>", self.subject(prefix)?)),
        }
    }

    /// Key of a subject; nothing for those of sessions.
    fn key(&self, subject: &str) -> Option<String> {
        let key = subject.strip_prefix("$KV.")?.strip_prefix(&self.bucket)?.strip_prefix('.')?;
        let key = key.replace('.', "/").replace('=', ".");
        (!key.starts_with("lease/")).then_some(key)
    }

    fn lease_subject(&self, id: &str) -> String {
        format!("{}.{id}", Leases::subject(&self.bucket))
    }

    /// The connection, made anew if there is none.
    fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        if self.connection.is_none() {
            let (options, bucket) = (&self.options, &self.bucket);
            let begin = |wire, endpoint: &_, until| {
                let mut connection = Connection::new(wire, endpoint, options, bucket, until)?;
                connection.stream().map(|stream| (connection, stream))
            };
            let (mut connection, stream) = self.endpoints.connect(self.until, begin)?;
            connection.until = self.until;
            let before = self.created.replace(stream.created.clone());
            self.is_new |= before.is_some_and(|before| before != stream.created);
            self.find_sessions(&mut connection)?;
            self.connection = Some(connection);
        }
        let connection = self.connection.as_mut().ok_or(StoreError::LeaseLost)?;
        connection.until = self.until;
        Ok(connection)
    }

    /// Finds all sessions, and deletes keys of those that are no more.
    fn find_sessions(&self, connection: &mut Connection) -> Result<(), StoreError> {
        let all = connection.read(&self.subjects("")?, 0, usize::MAX)?;
        for message in all.iter().filter(|message| self.key(&message.subject).is_none()) {
            if message.is_deleted() {
                // Somebody is at it; if not, it is suspect in a moment.
                let id = message.subject.rsplit('.').next().unwrap_or_default();
                connection.leases.renewed(id, Life { ttl_ms: 1000, renewal: 0 }, Instant::now());
            } else {
                connection.leases.note(&message.subject, &message.data, Instant::now());
            }
        }
        for message in &all {
            if message.lease().is_some_and(|id| !connection.leases.knows(id)) {
                connection.delete(&message.subject, Some(message.seq))?;
            }
        }
        Ok(())
    }

    /// Ends the sessions that were not kept alive.
    fn end_sessions(&mut self) -> Result<(), StoreError> {
        while let Some((id, life)) = self.connection()?.leases.suspect(Instant::now()) {
            let (subject, all) = (self.lease_subject(&id), self.subjects("")?);
            let connection = self.connection()?;
            if let Some(message) = connection.last(&subject)? {
                if !message.is_deleted() {
                    let now: Option<Life> = serde_json::from_slice(&message.data).ok();
                    let renewed = now.filter(|now| now.renewal != life.renewal);
                    let ended =
                        renewed.is_none() && connection.delete(&subject, Some(message.seq))?;
                    if !ended {
                        connection.leases.renewed(&id, renewed.unwrap_or(life), Instant::now());
                        continue;
                    }
                }
                for message in connection.read(&all, 0, usize::MAX)? {
                    if message.lease() == Some(&id) {
                        connection.delete(&message.subject, Some(message.seq))?;
                    }
                }
                // The marker goes last: who finds it repeats what may be missing.
                connection.purge(&subject)?;
            }
            connection.leases.forget(&id);
        }
        Ok(())
    }

    /// A call. `again`: it may be made twice if the connection broke.
    fn call<T>(
        &mut self,
        again: bool,
        mut call: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.until = self.endpoints.deadline();
        let mut old = self.connection.is_some();
        loop {
            let mut begun = false;
            let result = self.end_sessions().and_then(|()| {
                begun = true;
                call(self)
            });
            let broken = matches!(
                result,
                Err(StoreError::Unreachable { .. }
                    | StoreError::Nonsense { .. }
                    | StoreError::Denied { .. })
            );
            if broken && self.connection.take().is_some() {
                self.endpoints.failed();
            }
            let lost = matches!(result, Err(StoreError::Unreachable { .. }));
            if !(lost && old && (again || !begun)) {
                return result;
            }
            old = false;
        }
    }

    /// Puts the key of the session anew.
    fn renew(&mut self) -> Result<(), StoreError> {
        let Some(mut lease) = self.lease.clone() else { return Ok(()) };
        let subject = self.lease_subject(&lease.id);
        let ttl_ms = u64::try_from(self.options.ttl.as_millis()).unwrap_or(u64::MAX);
        for _ in 0..2 {
            lease.renewal += 1;
            let life = Life { ttl_ms, renewal: lease.renewal };
            let value = serde_json::to_vec(&life).unwrap_or_default();
            let connection = self.connection()?;
            let expected = Some(lease.revision);
            if let Some(revision) = connection.publish(&subject, expected, &[], &value)? {
                self.lease = Some(Lease { revision, ..lease });
                return Ok(());
            }
            // A renewal whose answer was lost has changed the revision.
            match connection.last(&subject)?.filter(|message| !message.is_deleted()) {
                Some(message) if message.seq > lease.revision => lease.revision = message.seq,
                _ => break,
            }
        }
        self.lease = None;
        Err(StoreError::LeaseLost)
    }

    /// The headers of a key that is kept so; begins a session if there is none.
    fn fields(&mut self, keep: Keep) -> Result<Vec<(&'static str, String)>, StoreError> {
        if keep == Keep::Forever {
            return Ok(Vec::new());
        }
        match self.renew() {
            Err(StoreError::LeaseLost) => {}
            done => done?,
        }
        if self.lease.is_none() {
            self.lease = Some(Lease { id: random(), renewal: 0, revision: 0 });
            self.renew()?;
        }
        Ok(self.lease.iter().map(|lease| (LEASE, lease.id.clone())).collect())
    }

    /// Changes after a revision, in their order, with their keys.
    fn read(&mut self, subjects: &str, after: u64, most: usize) -> Result<Read, StoreError> {
        let found = self.connection()?.read(subjects, after, most)?;
        Ok(found.into_iter().filter_map(|found| Some((self.key(&found.subject)?, found))).collect())
    }
}

impl Store for Nats {
    fn get(&mut self, key: &str) -> Result<Option<Entry>, StoreError> {
        let subject = self.subject(key)?;
        let found = self.call(true, |nats| nats.connection()?.last(&subject))?;
        Ok(found.filter(|found| !found.is_deleted()).map(|found| entry(key.to_owned(), found)))
    }

    fn list(&mut self, prefix: &str) -> Result<Found<Entry>, StoreError> {
        let subjects = self.subjects(prefix)?;
        let read = self.call(true, |nats| {
            nats.is_new = false;
            nats.read(&subjects, 0, usize::MAX)
        })?;
        let revision = read.last().map_or(0, |(_, last)| last.seq);
        // A key that was put while the list was read is there twice.
        let mut items = std::collections::BTreeMap::new();
        for (key, found) in read {
            if found.is_deleted() {
                items.remove(&key);
            } else {
                items.insert(key.clone(), entry(key, found));
            }
        }
        Ok(Found { items: items.into_values().collect(), revision })
    }

    fn watch(
        &mut self,
        prefix: &str,
        after: u64,
        timeout: Duration,
    ) -> Result<Found<Event>, StoreError> {
        let subjects = self.subjects(prefix)?;
        let end = Instant::now() + timeout;
        let mut pause = None;
        loop {
            let read = self.call(true, |nats| {
                let connection = nats.connection()?;
                connection.watch(&subjects)?;
                connection.rung = false;
                if nats.is_new {
                    return Err(StoreError::Compacted { after });
                }
                nats.read(&subjects, after, MOST_EVENTS)
            })?;
            let now = Instant::now();
            if !read.is_empty() || now >= end {
                let revision = read.last().map_or(after, |(_, last)| last.seq);
                return Ok(Found { items: read.into_iter().map(event).collect(), revision });
            }
            let due = self.connection.as_ref().and_then(|connection| connection.leases.due());
            let next = [due, pause.map(|pause| now + pause)].into_iter().flatten().min();
            // Not before now, for what is due there was read already.
            let until = next.unwrap_or(end).clamp(now + FIRST_PAUSE, end.max(now + FIRST_PAUSE));
            let waited = self.call(false, |nats| {
                let connection = nats.connection()?;
                connection.wait(until)?;
                Ok(connection.rung)
            });
            let rung = match waited {
                // On a new connection it has to be read again.
                Err(StoreError::Unreachable { .. }) => true,
                waited => waited?,
            };
            pause = match pause {
                _ if rung => Some(FIRST_PAUSE),
                Some(pause) if pause < LAST_PAUSE => Some(pause * 2),
                _ => None,
            };
        }
    }

    fn put(&mut self, key: &str, value: &[u8], keep: Keep) -> Result<u64, StoreError> {
        let subject = self.subject(key)?;
        let done = self.call(true, |nats| {
            let fields = nats.fields(keep)?;
            nats.connection()?.publish(&subject, None, &fields, value)
        })?;
        // Nothing was expected, so nothing can differ from it.
        done.ok_or(StoreError::LeaseLost)
    }

    fn swap(
        &mut self,
        key: &str,
        expected: u64,
        value: &[u8],
        keep: Keep,
    ) -> Result<Option<u64>, StoreError> {
        let subject = self.subject(key)?;
        self.call(false, |nats| {
            let fields = nats.fields(keep)?;
            let connection = nats.connection()?;
            let mut publish =
                |expected| connection.publish(&subject, Some(expected), &fields, value);
            let done = publish(expected)?;
            if done.is_some() || expected != 0 {
                return Ok(done);
            }
            // A key that was deleted has a marker.
            match connection.last(&subject)?.filter(Stored::is_deleted) {
                None => Ok(None),
                Some(marker) => connection.publish(&subject, Some(marker.seq), &fields, value),
            }
        })
    }

    fn keep_alive(&mut self) -> Result<(), StoreError> {
        if self.lease.is_none() {
            return Ok(());
        }
        self.call(true, Self::renew)
    }

    fn delete(&mut self, key: &str) -> Result<(), StoreError> {
        let subject = self.subject(key)?;
        self.call(true, |nats| {
            let connection = nats.connection()?;
            if connection.last(&subject)?.is_some_and(|found| !found.is_deleted()) {
                connection.delete(&subject, None)?;
            }
            Ok(())
        })
    }
}

fn entry(key: String, found: Stored) -> Entry {
    Entry { key, value: found.data, revision: found.seq }
}

fn event((key, found): (String, Stored)) -> Event {
    let value = (!found.is_deleted()).then_some(found.data);
    Event { key, value, revision: found.seq }
}
