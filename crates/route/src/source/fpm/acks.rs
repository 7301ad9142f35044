//! Acknowledgements to zebra: a route that readers see, or one that was refused, is sent back.
//!
//! Source: FRR 8.5 and later, `fpm_read` in `zebra/dplane_fpm_nl.c`: it takes frames of its own format, of each frame the
//! first message, which must be an `RTM_NEWROUTE` with `NLM_F_REQUEST`, and finds the route by its table, prefix and
//! protocol; `RTM_F_OFFLOAD` or `RTM_F_OFFLOAD_FAILED` is for `bgp suppress-fib-pending`. So a route returns in a
//! frame of its own, as it came but for these flags and for the port, which is ours: none.
//!
//! **Objects that come later.** A route whose next-hop object is not there yet, or encapsulates packets, is kept, and no
//! packet follows it: it returns as failed, and again as offloaded when the object has come, or is a plain one.
//!
//! Shape: the frames in the order in which their routes came, and an index by route. Only the latest message of a route is
//! acknowledged; a route that was deleted before readers saw it is not. Routes that wait for an object lie apart, by object.
//! Cost:   about 100 ns a route

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{HEADER_BYTES, NETLINK, VERSION};
use crate::event::RouteKey;
use crate::netlink::{Message, Request};
use crate::source::Refused;

/// Readers see the route (`RTM_F_OFFLOAD`).
const OFFLOAD: u32 = 0x4000;
/// The route was refused (`RTM_F_OFFLOAD_FAILED`).
const OFFLOAD_FAILED: u32 = 0x2000_0000;
/// Place of `rtm_flags` in the body.
const FLAGS: std::ops::Range<usize> = 8..12;

/// What became of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Packets follow it once readers see it.
    Taken,
    /// Packets follow it once readers see it, if the object of this number is still there.
    TakenBy(u32),
    Refused,
    /// Packets follow it once the object of this number is there.
    Awaits(u32),
}

/// A message, to be sent back.
#[derive(Clone, Debug)]
struct Sent {
    body: Box<[u8]>,
    flags: u16,
    seq: u32,
}

/// Acknowledgement of one route.
#[derive(Debug)]
struct Ack {
    key: RouteKey,
    /// Number of the frame that had it.
    commit: u64,
    /// `None` when a later message has taken its place.
    sent: Option<Sent>,
    /// Object that it needs.
    object: Option<u32>,
    failed: bool,
}

/// Acknowledgements that wait until readers see their routes, and those that are ready to be sent.
#[derive(Debug, Default)]
pub(super) struct Acks {
    waiting: VecDeque<Ack>,
    /// Number of the first one that waits.
    first: u64,
    /// Number of each that waits.
    index: HashMap<RouteKey, u64>,
    /// Routes that wait for their objects, and the object of each.
    late: HashMap<u32, BTreeMap<RouteKey, Sent>>,
    object_of: HashMap<RouteKey, u32>,
    /// Objects that went away, and the number of the first acknowledgement after that.
    gone: HashMap<u32, u64>,
    ready: Vec<u8>,
}

impl Acks {
    /// Adds the route of a message, to be acknowledged when readers see `commit`.
    pub(super) fn add(
        &mut self,
        key: RouteKey,
        message: &Message<'_>,
        commit: u64,
        outcome: Outcome,
    ) {
        self.no_longer_late(&key);
        let sent = Sent { body: message.body.into(), flags: message.flags, seq: message.seq };
        if let Outcome::Awaits(object) = outcome {
            self.late.entry(object).or_default().insert(key, sent.clone());
            self.object_of.insert(key, object);
        }
        self.push(key, sent, commit, outcome);
    }

    fn push(&mut self, key: RouteKey, sent: Sent, commit: u64, outcome: Outcome) {
        let number = self.next();
        if let Some(before) = self.index.insert(key, number) {
            self.blank(before);
        }
        let (object, failed) = match outcome {
            Outcome::Taken => (None, false),
            Outcome::TakenBy(object) => (Some(object), false),
            Outcome::Refused | Outcome::Awaits(_) => (None, true),
        };
        self.waiting.push_back(Ack { key, commit, sent: Some(sent), object, failed });
    }

    /// Number of the next acknowledgement.
    fn next(&self) -> u64 {
        self.first + self.waiting.len() as u64
    }

    /// The route is gone.
    pub(super) fn forget(&mut self, key: &RouteKey) {
        self.no_longer_late(key);
        if let Some(number) = self.index.remove(key) {
            self.blank(number);
        }
    }

    fn no_longer_late(&mut self, key: &RouteKey) {
        let Some(object) = self.object_of.remove(key) else { return };
        let late = self.late.get_mut(&object).expect("both have the route");
        late.remove(key);
        if late.is_empty() {
            self.late.remove(&object);
        }
    }

    /// Whether routes wait for objects.
    pub(super) fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Packets follow the object: the routes that waited for it are acknowledged when readers see `commit`.
    pub(super) fn arrived(&mut self, object: u32, commit: u64) {
        for (key, sent) in self.late.remove(&object).unwrap_or_default() {
            self.object_of.remove(&key);
            self.push(key, sent, commit, Outcome::TakenBy(object));
        }
    }

    /// The object is gone, and the routes that name it with it.
    pub(super) fn object_gone(&mut self, object: u32) {
        for key in self.late.remove(&object).unwrap_or_default().keys() {
            self.object_of.remove(key);
        }
        if !self.waiting.is_empty() {
            self.gone.insert(object, self.next());
        }
    }

    /// The object encapsulates packets: routes of it that are not acknowledged yet have failed, and wait for it.
    pub(super) fn suspend(&mut self, object: u32) {
        for ack in self.waiting.iter_mut().filter(|ack| ack.object == Some(object)) {
            let Some(sent) = &ack.sent else { continue };
            (ack.object, ack.failed) = (None, true);
            self.late.entry(object).or_default().insert(ack.key, sent.clone());
            self.object_of.insert(ack.key, object);
        }
    }

    fn at(&mut self, number: u64) -> &mut Ack {
        let at = usize::try_from(number - self.first).expect("what is in the index waits");
        &mut self.waiting[at]
    }

    fn blank(&mut self, number: u64) {
        self.at(number).sent = None;
    }

    /// Makes those up to `commit` ready. A route was refused in the form that its commit has, and in no later one.
    pub(super) fn visible(&mut self, commit: u64, refused: &[Refused]) {
        for &Refused { commit, key } in refused {
            let Some(&number) = self.index.get(&key) else { continue };
            let ack = self.at(number);
            if ack.commit == commit {
                ack.failed = true;
                // No object that comes makes it one that is taken.
                self.no_longer_late(&key);
            }
        }
        while let Some(ack) = self.waiting.pop_front_if(|ack| ack.commit <= commit) {
            let gone = ack.object.and_then(|object| self.gone.get(&object));
            let failed = ack.failed || gone.is_some_and(|after| self.first < *after);
            self.first += 1;
            let Some(Sent { body, flags, seq }) = ack.sent else { continue };
            self.index.remove(&ack.key);
            self.ready.extend(frame(&body, flags, seq, failed).unwrap_or_default());
        }
        let first = self.first;
        self.gone.retain(|_, after| *after > first);
        if self.waiting.is_empty() {
            // The room of a full table is not kept.
            self.waiting.shrink_to(1024);
            self.index.shrink_to(1024);
        }
    }

    /// Whether nothing waits, nor is kept for what does.
    #[cfg(test)]
    pub(super) fn remembers_nothing(&self) -> bool {
        self.waiting.is_empty() && self.index.is_empty() && self.gone.is_empty()
    }

    /// The bytes to send.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        (!self.ready.is_empty()).then(|| std::mem::take(&mut self.ready))
    }
}

/// A frame with the message of a route; `None` for one that came without its padding and does not fit with it.
fn frame(body: &[u8], flags: u16, seq: u32, failed: bool) -> Option<Vec<u8>> {
    let mut body = body.to_vec();
    let at = &mut body[FLAGS];
    let had = u32::from_ne_bytes([at[0], at[1], at[2], at[3]]) & !(OFFLOAD | OFFLOAD_FAILED);
    let result = if failed { OFFLOAD_FAILED } else { OFFLOAD };
    at.copy_from_slice(&(had | result).to_ne_bytes());
    let message = Request::query(crate::netlink::route::NEW, flags, seq).fixed(&body).finish();
    let len = u16::try_from(HEADER_BYTES + message.len()).ok()?;
    let mut frame = vec![VERSION, NETLINK];
    frame.extend(len.to_be_bytes());
    frame.extend(message);
    Some(frame)
}
