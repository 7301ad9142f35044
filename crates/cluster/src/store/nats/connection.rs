//! A connection to a NATS server: requests to JetStream, and what subscriptions bring meanwhile.
//!
//! Source: NATS client protocol. Our own: a call has to block, to end at a deadline, and to be bounded in memory.
//! Shape:  three subscriptions: answers, lives of sessions, and changes below the prefix that is watched. The last is a bell: it
//!         rings, and the stream is read.
//! Cost:   a round trip a request.
//! Limits: nothing is received between calls; a server that pings twice in vain (4 minutes) closes the connection.

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::wire::{Endpoint, Wire, shown};
use super::super::{Options, StoreError};
use super::leases::Leases;
use super::protocol::{
    Answer, Fault, Got, Info, MOST, Message, Operation, Published, Stored, Stream, operation,
    publication, status,
};

/// Most bytes of all messages that are read at once.
const MOST_BYTES: usize = 32 << 20;

/// Subscriptions.
const ANSWERS: u64 = 1;
const LEASES: u64 = 2;

/// Codes of JetStream's errors.
const UNAVAILABLE: u32 = 10_008;
const NO_MESSAGE: u32 = 10_037;
const NAME_IN_USE: u32 = 10_058;
const NO_STREAM: u32 = 10_059;
const WRONG_REVISION: u32 = 10_071;

/// A connection to one server, for one bucket.
pub(super) struct Connection {
    pub(super) wire: Wire,
    bucket: String,
    inbox: String,
    requests: u64,
    most_payload: usize,
    /// Number of the subscription to the changes of a subject.
    watched: (u64, String),
    /// Deadline of the call in progress.
    pub(super) until: Instant,
    /// It has changed.
    pub(super) rung: bool,
    pub(super) leases: Leases,
}

/// 64 random bits as text.
pub(super) fn random() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

impl Connection {
    /// Introduces itself to a server.
    pub(super) fn new(
        mut wire: Wire,
        endpoint: &Endpoint,
        options: &Options,
        bucket: &str,
        until: Instant,
    ) -> Result<Self, StoreError> {
        let info = match wire.next(until, MOST, operation)? {
            Some(Operation::Info(info)) => info,
            Some(_) => return Err(wire.nonsense("it begins without an INFO")),
            None => return Err(wire.unreachable("no answer in time")),
        };
        let Info { headers, tls_required, tls_available, max_payload } = info;
        if endpoint.tls && !(tls_required || tls_available) {
            return Err(wire.unreachable("it has no TLS"));
        }
        if tls_required && !endpoint.tls {
            return Err(wire.denied("it demands TLS, with a URL that begins with tls://"));
        }
        if !headers {
            return Err(wire.refused("it has no headers: NATS 2.9 or later is needed"));
        }
        let mut wire = wire.secure(endpoint, until)?;
        let mut connect = json!({
            "verbose": false, "pedantic": false, "tls_required": endpoint.tls, "name": "fingerpost",
            "lang": "rust", "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "headers": true,
            "no_responders": true,
        });
        if let Some((user, password)) = &options.user {
            connect["user"] = user.as_str().into();
            connect["pass"] = password.as_str().into();
        }
        if let Some(token) = &options.token {
            connect["auth_token"] = token.as_str().into();
        }
        let inbox = format!("_INBOX.{}", random());
        let hello = format!(
            "CONNECT {connect}\r\nSUB {inbox}.* {ANSWERS}\r\nSUB {}.> {LEASES}\r\nPING\r\n",
            Leases::subject(bucket)
        );
        wire.send(hello.as_bytes(), until)?;
        let mut connection = Self {
            wire,
            bucket: bucket.to_owned(),
            inbox,
            requests: 0,
            most_payload: max_payload,
            watched: (LEASES, String::new()),
            until,
            rung: false,
            leases: Leases::default(),
        };
        loop {
            match connection.next(until)? {
                Some(Operation::Pong) => return Ok(connection),
                Some(_) => {}
                None => return Err(connection.wire.unreachable("no answer in time")),
            }
        }
    }

    /// The next operation, with the work done that does not concern the caller; nothing at the deadline.
    fn next(&mut self, until: Instant) -> Result<Option<Operation>, StoreError> {
        let Some(found) = self.wire.next(until, MOST, operation)? else { return Ok(None) };
        match &found {
            Operation::Ping => self.wire.send(b"PONG\r\n", until)?,
            Operation::Message(message) if message.subscription == LEASES => {
                self.leases.note(&message.subject, &message.payload, Instant::now());
            }
            Operation::Message(message) if message.subscription == self.watched.0 => {
                self.rung = true
            }
            Operation::Error(why) => {
                let denied = ["Authorization", "Authentication", "Permissions"];
                return Err(if denied.iter().any(|word| why.contains(word)) {
                    self.wire.denied(why)
                } else {
                    self.wire.unreachable(why)
                });
            }
            _ => {}
        }
        Ok(Some(found))
    }

    /// Waits until the bell rings, at most until the deadline.
    pub(super) fn wait(&mut self, until: Instant) -> Result<(), StoreError> {
        while !self.rung && self.next(until)?.is_some() {}
        Ok(())
    }

    /// Rings the bell from now on when a subject changes.
    pub(super) fn watch(&mut self, subject: &str) -> Result<(), StoreError> {
        let (number, watched) = &self.watched;
        if watched == subject {
            return Ok(());
        }
        let (old, new) = (*number, *number + 1);
        let end = if old == LEASES { String::new() } else { format!("UNSUB {old}\r\n") };
        self.wire.send(format!("{end}SUB {subject} {new}\r\n").as_bytes(), self.until)?;
        self.watched = (new, subject.to_owned());
        Ok(())
    }

    /// Publishes and waits for the answer.
    fn request(
        &mut self,
        subject: &str,
        fields: &[(&str, String)],
        payload: &[u8],
    ) -> Result<Message, StoreError> {
        self.requests += 1;
        let reply = format!("{}.{}", self.inbox, self.requests);
        let bytes = publication(subject, &reply, fields, payload);
        if bytes.len() > self.most_payload {
            let most = self.most_payload;
            return Err(self.wire.refused(format!("{} bytes, at most {most}", payload.len())));
        }
        self.wire.send(&bytes, self.until)?;
        loop {
            match self.next(self.until)? {
                Some(Operation::Message(message)) if message.subject == reply => {
                    return match status(&message.headers) {
                        None => Ok(message),
                        // 503: nobody answers such requests.
                        Some(_) => Err(self.wire.unreachable("JetStream is not there")),
                    };
                }
                Some(_) => {}
                None => return Err(self.wire.unreachable("no answer in time")),
            }
        }
    }

    /// A request whose answer is JSON; nothing when JetStream answers with the error `none`.
    fn call<T: DeserializeOwned>(
        &mut self,
        subject: &str,
        fields: &[(&str, String)],
        payload: &[u8],
        none: u32,
    ) -> Result<Option<T>, StoreError> {
        let message = self.request(subject, fields, payload)?;
        match serde_json::from_slice::<Answer<T>>(&message.payload) {
            Ok(Answer { error: Some(Fault { err_code, .. }), .. }) if err_code == none => Ok(None),
            Ok(Answer { error: Some(Fault { err_code, description }), .. }) => {
                let lost = [UNAVAILABLE, NO_STREAM].contains(&err_code);
                let why = format!("{description} ({err_code})");
                Err(if lost { self.wire.unreachable(why) } else { self.wire.refused(why) })
            }
            Ok(Answer { answer: Some(answer), .. }) => Ok(Some(answer)),
            Ok(Answer { answer: None, .. }) => Err(self.wire.nonsense(shown(&message.payload))),
            Err(error) => Err(self.wire.nonsense(error)),
        }
    }

    fn api<T: DeserializeOwned>(
        &mut self,
        what: &str,
        request: &Value,
        none: u32,
    ) -> Result<Option<T>, StoreError> {
        let subject = format!("$JS.API.STREAM.{what}.KV_{}", self.bucket);
        self.call(&subject, &[], request.to_string().as_bytes(), none)
    }

    /// The stream of the bucket, which is made if it is not there.
    pub(super) fn stream(&mut self) -> Result<Stream, StoreError> {
        // What another node makes at this moment is found in the second round.
        for _ in 0..2 {
            if let Some(stream) = self.api("INFO", &json!({}), NO_STREAM)? {
                return Ok(stream);
            }
            let settings = json!({
                "name": format!("KV_{}", self.bucket), "subjects": [format!("$KV.{}.>", self.bucket)],
                "max_msgs_per_subject": 1, "max_consumers": -1, "max_msgs": -1, "max_bytes": -1,
                "discard": "new", "storage": "file", "num_replicas": 1, "retention": "limits",
                "allow_rollup_hdrs": true, "deny_delete": true, "allow_direct": true,
            });
            if let Some(stream) = self.api("CREATE", &settings, NAME_IN_USE)? {
                return Ok(stream);
            }
        }
        Err(self.wire.unreachable("its bucket comes and goes"))
    }

    /// The latest message of a subject.
    pub(super) fn last(&mut self, subject: &str) -> Result<Option<Stored>, StoreError> {
        let request = json!({ "last_by_subj": subject });
        let got: Option<Got> = self.api("MSG.GET", &request, NO_MESSAGE)?;
        Ok(got.map(|got| got.message))
    }

    /// Messages of matching subjects after the one with this number, in their order.
    pub(super) fn read(
        &mut self,
        subjects: &str,
        after: u64,
        most: usize,
    ) -> Result<Vec<Stored>, StoreError> {
        let (mut found, mut bytes, mut last) = (Vec::new(), 0, after);
        while found.len() < most {
            let request = json!({ "seq": last.saturating_add(1), "next_by_subj": subjects });
            let Some(Got { message }) = self.api("MSG.GET", &request, NO_MESSAGE)? else { break };
            bytes += message.subject.len() + message.data.len();
            if message.seq <= last || bytes > MOST_BYTES {
                return Err(self.wire.nonsense(format!("message {}, {bytes} bytes", message.seq)));
            }
            last = message.seq;
            found.push(message);
        }
        Ok(found)
    }

    /// Forgets all messages of a subject.
    pub(super) fn purge(&mut self, subject: &str) -> Result<(), StoreError> {
        let request = json!({ "filter": subject });
        self.api::<Value>("PURGE", &request, 0).map(drop)
    }

    /// Publishes to the stream, only if the latest message of the subject has this number. Returns the new one.
    pub(super) fn publish(
        &mut self,
        subject: &str,
        expected: Option<u64>,
        fields: &[(&str, String)],
        value: &[u8],
    ) -> Result<Option<u64>, StoreError> {
        let expected =
            expected.map(|expected| ("Nats-Expected-Last-Subject-Sequence", expected.to_string()));
        let fields: Vec<_> = fields.iter().cloned().chain(expected).collect();
        let done: Option<Published> = self.call(subject, &fields, value, WRONG_REVISION)?;
        Ok(done.map(|done| done.seq))
    }

    /// Publishes a marker of a deletion. Returns whether it was, as for `publish`.
    pub(super) fn delete(
        &mut self,
        subject: &str,
        expected: Option<u64>,
    ) -> Result<bool, StoreError> {
        let marker = [("KV-Operation", "DEL".to_owned())];
        Ok(self.publish(subject, expected, &marker, b"")?.is_some())
    }
}
