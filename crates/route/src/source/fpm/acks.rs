//! Acknowledgements to zebra: a route that readers see, or one that was refused, is sent back.
//!
//! Source: FRR 8.5 and later, `fpm_read` in `zebra/dplane_fpm_nl.c`: it takes frames of its own format, of each frame the
//! first message, which must be an `RTM_NEWROUTE` with `NLM_F_REQUEST`, and finds the route by its table, prefix and
//! protocol; `RTM_F_OFFLOAD` or `RTM_F_OFFLOAD_FAILED` is for `bgp suppress-fib-pending`. So a route returns in a
//! frame of its own, as it came but for these flags and for the port, which is ours: none.
//!
//! Shape: the frames in the order in which their routes came, and an index by route. Only the latest message of a route is
//! acknowledged; a route that was deleted before readers saw it is not.
//! Cost:   about 100 ns a route

use std::collections::{HashMap, VecDeque};

use super::{HEADER_BYTES, NETLINK, VERSION};
use crate::event::RouteKey;
use crate::netlink::{Message, Request};

/// Readers see the route (`RTM_F_OFFLOAD`).
const OFFLOAD: u32 = 0x4000;
/// The route was refused (`RTM_F_OFFLOAD_FAILED`).
const OFFLOAD_FAILED: u32 = 0x2000_0000;
/// Place of `rtm_flags` in the body.
const FLAGS: std::ops::Range<usize> = 8..12;

/// Acknowledgement of one route.
#[derive(Debug)]
struct Ack {
    key: RouteKey,
    /// Number of the frame that had it.
    commit: u64,
    /// Body of the message; `None` when a later message has taken its place.
    body: Option<Box<[u8]>>,
    flags: u16,
    seq: u32,
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
    ready: Vec<u8>,
}

impl Acks {
    /// Adds the route of a message, to be acknowledged when readers see `commit`, or refused when `failed`.
    pub(super) fn add(&mut self, key: RouteKey, message: &Message<'_>, commit: u64, failed: bool) {
        let number = self.first + self.waiting.len() as u64;
        if let Some(before) = self.index.insert(key, number) {
            self.blank(before);
        }
        let (flags, seq, body) = (message.flags, message.seq, Some(message.body.into()));
        self.waiting.push_back(Ack { key, commit, body, flags, seq, failed });
    }

    /// The route is gone.
    pub(super) fn forget(&mut self, key: &RouteKey) {
        if let Some(number) = self.index.remove(key) {
            self.blank(number);
        }
    }

    fn at(&mut self, number: u64) -> &mut Ack {
        let at = usize::try_from(number - self.first).expect("what is in the index waits");
        &mut self.waiting[at]
    }

    fn blank(&mut self, number: u64) {
        self.at(number).body = None;
    }

    /// Makes those up to `commit` ready.
    pub(super) fn visible(&mut self, commit: u64, refused: &[RouteKey]) {
        for key in refused {
            if let Some(&number) = self.index.get(key) {
                self.at(number).failed = true;
            }
        }
        while let Some(ack) = self.waiting.pop_front_if(|ack| ack.commit <= commit) {
            self.first += 1;
            let Some(body) = ack.body else { continue };
            self.index.remove(&ack.key);
            self.ready.extend(frame(&body, ack.flags, ack.seq, ack.failed).unwrap_or_default());
        }
        if self.waiting.is_empty() {
            // The room of a full table is not kept.
            self.waiting.shrink_to(1024);
            self.index.shrink_to(1024);
        }
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
