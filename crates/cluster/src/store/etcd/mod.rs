//! etcd, by its JSON gateway.
//!
//! Source: etcd's API of version 3 (3.4 and later) under `/v3/`: the messages of its gRPC API as JSON, with bytes in base64 and
//!         64-bit numbers as strings.
//! Shape:  one connection for calls and one for the watch that continues from call to call; a lease is the session.
//! Cost:   a round trip a call; a watch costs none while nothing changes.
//! Limits: TTLs in whole seconds, and not below etcd's least one (2 s by default). Answers of 32 MiB.
//!
//! What is refused for an old token is repeated with a new one, and what failed on a connection that had been idle is repeated
//! on a new one, but for a swap: nobody knows whether it was made.

mod http;
mod json;

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::http::{Connection, Head, Length, MOST_BODY};
use self::json::{Kv, Refusal, Streamed};
use super::wire::{Endpoints, shown};
use super::{Entry, Event, Found, Keep, Options, Store, StoreError, StoreKind};

/// Row of the registry.
pub(super) const KIND: StoreKind = StoreKind {
    name: "etcd",
    summary: "etcd 3.4 or later, by its JSON gateway",
    open: |options| Ok(Box::new(Etcd::new(options)?)),
};

/// A session with etcd.
struct Etcd {
    endpoints: Endpoints,
    /// Ends in a slash.
    prefix: String,
    ttl_s: u64,
    user: Option<(String, String)>,
    /// The configured token, or the one that user and password got.
    token: Option<String>,
    connection: Option<Connection>,
    watching: Option<Watching>,
    lease: Option<u64>,
}

/// A watch that is open.
struct Watching {
    connection: Connection,
    prefix: String,
    /// Changes up to this revision were returned.
    revision: u64,
    /// What was received of the next line.
    line: Vec<u8>,
    /// When it began.
    since: Instant,
}

/// Longest life of a watch: a connection that the network between has forgotten looks like one without changes.
const WATCH: Duration = Duration::from_secs(60);

/// Why a request failed.
enum Failure {
    /// There was no answer to it.
    Lost(StoreError),
    /// There was one.
    Refused(Refusal, String),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Lost(error)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lost(error) => error,
            Failure::Refused(refusal, endpoint) => refusal.into_error(endpoint),
        }
    }
}

impl Etcd {
    fn new(options: &Options) -> Result<Self, StoreError> {
        if options.token.as_ref().is_some_and(|token| !is_token(token)) {
            return Err(StoreError::Configuration("a token that etcd cannot have".to_owned()));
        }
        Ok(Self {
            endpoints: Endpoints::new(options, ["http", "https"], 2379)?,
            prefix: format!("{}/", options.prefix.trim_end_matches('/')),
            ttl_s: (options.ttl.as_secs() + u64::from(options.ttl.subsec_nanos() > 0)).max(1),
            user: options.user.clone(),
            token: options.token.clone(),
            connection: None,
            watching: None,
            lease: None,
        })
    }

    /// A new connection, and a token if user and password have none yet.
    fn connect(&mut self, until: Instant) -> Result<Connection, Failure> {
        let mut connection = self.endpoints.connect(until, |wire, endpoint, until| {
            Ok(Connection { wire: wire.secure(endpoint, until)?, host: endpoint.host.clone() })
        })?;
        if let (Some((name, password)), None) = (&self.user, &self.token) {
            let request = json!({ "name": name, "password": password });
            let path = "/v3/auth/authenticate";
            let (json::Token { token }, _) =
                exchange(&mut connection, path, None, &request, until)?;
            if !is_token(&token) {
                return Err(connection.wire.nonsense("a token that none can be").into());
            }
            self.token = Some(token);
        }
        Ok(connection)
    }

    /// A request on the connection, which is made anew if need be.
    fn request<T: DeserializeOwned>(
        &mut self,
        path: &str,
        request: &Value,
        until: Instant,
    ) -> Result<T, Failure> {
        let mut connection = match self.connection.take() {
            Some(connection) if self.token.is_some() || self.user.is_none() => connection,
            _ => self.connect(until)?,
        };
        let token = self.token.as_deref();
        match exchange(&mut connection, path, token, request, until) {
            Ok((answer, last)) => {
                self.connection = (!last).then_some(connection);
                Ok(answer)
            }
            Err(Failure::Lost(error)) => {
                self.endpoints.failed();
                self.watching = None;
                Err(Failure::Lost(error))
            }
            Err(refused) => {
                self.connection = Some(connection);
                Err(refused)
            }
        }
    }

    /// A call: a request that is repeated where that can help. `again`: a request that may be made twice.
    fn call<T: DeserializeOwned>(
        &mut self,
        path: &str,
        request: &Value,
        again: bool,
    ) -> Result<T, Failure> {
        let until = self.endpoints.deadline();
        let mut old_connection = self.connection.is_some();
        let mut old_token = self.token.is_some() && self.user.is_some();
        loop {
            match self.request(path, request, until) {
                Err(Failure::Lost(StoreError::Unreachable { .. })) if again && old_connection => {
                    old_connection = false;
                }
                Err(Failure::Refused(refusal, _)) if old_token && refusal.is_old_token() => {
                    old_token = false;
                    self.token = None;
                }
                done => return done,
            }
        }
    }

    /// A call that writes, under the lease if it is to be kept so; `request` makes it.
    fn write<T: DeserializeOwned>(
        &mut self,
        path: &str,
        keep: Keep,
        again: bool,
        request: impl Fn(u64) -> Value,
    ) -> Result<T, StoreError> {
        if keep == Keep::Forever {
            return Ok(self.call(path, &request(0), again)?);
        }
        if let Some(lease) = self.lease {
            match self.call(path, &request(lease), again) {
                Err(Failure::Refused(refusal, _)) if refusal.is_lost_lease() => {}
                done => return Ok(done?),
            }
        }
        let grant = json!({ "TTL": self.ttl_s.to_string() });
        let granted: json::Lease = self.call("/v3/lease/grant", &grant, true)?;
        self.lease = Some(granted.id);
        Ok(self.call(path, &request(granted.id), again)?)
    }

    fn key(&self, key: &str) -> String {
        BASE64.encode(format!("{}{key}", self.prefix))
    }

    /// First key and end of the keys below `prefix`.
    fn range(&self, prefix: &str) -> (String, String) {
        let all = format!("{}{prefix}", self.prefix);
        // The character that follows the slash.
        let end = format!("{}0", all.strip_suffix('/').unwrap_or(&all));
        (BASE64.encode(all), BASE64.encode(end))
    }

    /// An entry without the prefix of the cluster; nothing for a key that is no text.
    fn entry(&self, kv: Kv) -> Option<Entry> {
        let key = std::str::from_utf8(&kv.key).ok()?.strip_prefix(&self.prefix)?.to_owned();
        Some(Entry { key, value: kv.value, revision: kv.mod_revision })
    }

    fn begin_watch(&mut self, prefix: &str, after: u64) -> Result<Watching, Failure> {
        let until = self.endpoints.deadline();
        let (key, range_end) = self.range(prefix);
        let start = after.saturating_add(1).to_string();
        let request = json!({
            "create_request": { "key": key, "range_end": range_end, "start_revision": start }
        });
        let mut connection = self.connect(until)?;
        let token = self.token.as_deref();
        let head = begin(&mut connection, "/v3/watch", token, &request, until)?;
        if head.length != Length::Chunks {
            return Err(connection.wire.nonsense("a watch that has a length").into());
        }
        Ok(Watching {
            connection,
            prefix: prefix.to_owned(),
            revision: after,
            line: Vec::new(),
            since: Instant::now(),
        })
    }

    /// Changes of an open watch.
    fn changes(
        &self,
        watching: &mut Watching,
        after: u64,
        until: Instant,
    ) -> Result<Found<Event>, Failure> {
        while let Some(line) = watching.next_line(until)? {
            let endpoint = &watching.connection.wire;
            let message: Streamed<json::Watch> =
                serde_json::from_slice(&line).map_err(|error| endpoint.nonsense(error))?;
            let watch = match message {
                Streamed::Result(watch) => watch,
                Streamed::Error(refusal) => return Err(Failure::Refused(refusal, endpoint.name())),
            };
            if watch.compact_revision > 0 {
                return Err(StoreError::Compacted { after }.into());
            }
            if watch.canceled {
                return Err(Failure::Refused(
                    Refusal::canceled(watch.cancel_reason),
                    endpoint.name(),
                ));
            }
            let last = watch.events.iter().map(|event| event.kv.mod_revision).max();
            watching.revision = watching.revision.max(last.unwrap_or(0));
            let new = watch.events.into_iter().filter(|event| event.kv.mod_revision > after);
            let items: Vec<Event> = new
                .filter_map(|event| {
                    let (deleted, revision) = (event.kind == "DELETE", event.kv.mod_revision);
                    let Entry { key, value, .. } = self.entry(event.kv)?;
                    Some(Event { key, value: (!deleted).then_some(value), revision })
                })
                .collect();
            if !items.is_empty() {
                return Ok(Found { items, revision: watching.revision.max(after) });
            }
        }
        Ok(Found { items: Vec::new(), revision: watching.revision.max(after) })
    }
}

impl Watching {
    /// The next line, which is one message; nothing when it is not whole at the deadline.
    fn next_line(&mut self, until: Instant) -> Result<Option<Vec<u8>>, StoreError> {
        let mut searched = 0;
        loop {
            let new = &self.line[searched..];
            if let Some(end) = new.iter().position(|byte| *byte == b'\n') {
                let rest = self.line.split_off(searched + end + 1);
                return Ok(Some(std::mem::replace(&mut self.line, rest)));
            }
            searched = self.line.len();
            let Some(chunk) = self.connection.chunk(until)? else { return Ok(None) };
            if chunk.is_empty() {
                return Err(self.connection.wire.unreachable("it closed the watch"));
            }
            self.line.extend_from_slice(&chunk);
            if self.line.len() > MOST_BODY {
                return Err(self.connection.wire.nonsense("an endless line"));
            }
        }
    }
}

impl Store for Etcd {
    fn get(&mut self, key: &str) -> Result<Option<Entry>, StoreError> {
        let request = json!({ "key": self.key(key) });
        let found: json::Range = self.call("/v3/kv/range", &request, true)?;
        Ok(found.kvs.into_iter().find_map(|kv| self.entry(kv)))
    }

    fn list(&mut self, prefix: &str) -> Result<Found<Entry>, StoreError> {
        let (key, range_end) = self.range(prefix);
        let request = json!({ "key": key, "range_end": range_end });
        let found: json::Range = self.call("/v3/kv/range", &request, true)?;
        let items = found.kvs.into_iter().filter_map(|kv| self.entry(kv)).collect();
        Ok(Found { items, revision: found.header.revision })
    }

    fn watch(
        &mut self,
        prefix: &str,
        after: u64,
        timeout: Duration,
    ) -> Result<Found<Event>, StoreError> {
        let until = Instant::now() + timeout;
        let mut old_token = self.token.is_some() && self.user.is_some();
        loop {
            let open = self.watching.take();
            let open = open.filter(|open| {
                open.prefix == prefix && open.revision <= after && open.since.elapsed() < WATCH
            });
            let old = open.is_some();
            let watching = open.map_or_else(|| self.begin_watch(prefix, after), Ok);
            let found = watching.and_then(|mut watching| {
                let found = self.changes(&mut watching, after, until)?;
                self.watching = Some(watching);
                Ok(found)
            });
            match found {
                Ok(found) => return Ok(found),
                // The store may have been started anew since.
                Err(Failure::Lost(StoreError::Unreachable { .. })) if old => {}
                Err(Failure::Refused(refusal, _)) if old_token && refusal.is_denied() => {
                    old_token = false;
                    self.token = None;
                }
                Err(failure) => {
                    if matches!(failure, Failure::Lost(_)) {
                        self.endpoints.failed();
                    }
                    return Err(failure.into());
                }
            }
        }
    }

    fn put(&mut self, key: &str, value: &[u8], keep: Keep) -> Result<u64, StoreError> {
        let (key, value) = (self.key(key), BASE64.encode(value));
        let request = |lease| put_request(&key, &value, lease);
        let answer: json::Written = self.write("/v3/kv/put", keep, true, request)?;
        Ok(answer.header.revision)
    }

    fn swap(
        &mut self,
        key: &str,
        expected: u64,
        value: &[u8],
        keep: Keep,
    ) -> Result<Option<u64>, StoreError> {
        let (key, value) = (self.key(key), BASE64.encode(value));
        let request = |lease| {
            json!({
                "compare": [{ "key": key, "target": "MOD", "mod_revision": expected.to_string() }],
                "success": [{ "request_put": put_request(&key, &value, lease) }],
            })
        };
        let answer: json::Written = self.write("/v3/kv/txn", keep, false, request)?;
        Ok(answer.succeeded.then_some(answer.header.revision))
    }

    fn keep_alive(&mut self) -> Result<(), StoreError> {
        let Some(lease) = self.lease else { return Ok(()) };
        let request = json!({ "ID": lease.to_string() });
        match self.call("/v3/lease/keepalive", &request, true)? {
            Streamed::Result(json::Lease { ttl: 1.., .. }) => Ok(()),
            Streamed::Result(_) => {
                self.lease = None;
                Err(StoreError::LeaseLost)
            }
            Streamed::Error(refusal) => {
                let endpoint = self.connection.as_ref().map(|connection| connection.wire.name());
                Err(refusal.into_error(endpoint.unwrap_or_default()))
            }
        }
    }

    fn delete(&mut self, key: &str) -> Result<(), StoreError> {
        let request = json!({ "key": self.key(key) });
        let _: json::Written = self.call("/v3/kv/deleterange", &request, true)?;
        Ok(())
    }
}

fn put_request(key: &str, value: &str, lease: u64) -> Value {
    json!({ "key": key, "value": value, "lease": lease.to_string() })
}

/// Whether a token fits into a line of a request.
fn is_token(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

/// A request and its answer, and whether the server closes the connection behind it.
fn exchange<T: DeserializeOwned>(
    connection: &mut Connection,
    path: &str,
    token: Option<&str>,
    request: &Value,
    until: Instant,
) -> Result<(T, bool), Failure> {
    let head = begin(connection, path, token, request, until)?;
    let body = connection.body(head, until)?;
    let answer = serde_json::from_slice(&body).map_err(|error| connection.wire.nonsense(error))?;
    Ok((answer, head.last))
}

/// A request and the head of an answer with success.
fn begin(
    connection: &mut Connection,
    path: &str,
    token: Option<&str>,
    request: &Value,
    until: Instant,
) -> Result<Head, Failure> {
    let head = connection.post(path, token, request.to_string().as_bytes(), until)?;
    if head.status == 200 {
        return Ok(head);
    }
    let body = connection.body(head, until)?;
    Err(match Refusal::read(&body) {
        Some(refusal) => Failure::Refused(refusal, connection.wire.name()),
        None => {
            connection.wire.nonsense(format!("status {}, {:?}", head.status, shown(&body))).into()
        }
    })
}
