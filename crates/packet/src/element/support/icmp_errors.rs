//! What the elements that send ICMP errors share: limits, identifications and counts, and the drop of each packet.

use super::rate_limit::{ErrorClass, ErrorLimits, RateLimiter};
use crate::frame::wire::icmp::ERROR_HEADER;
use crate::frame::{Batch, Cause, DropReason, Meta, Packet};
use crate::graph::Context;

/// The first 8 bytes of an ICMP error, with a checksum of 0.
pub(crate) type ErrorHeader = [u8; ERROR_HEADER];

/// Errors of one instance of an element.
pub(crate) struct Errors {
    limiter: RateLimiter,
    /// Identification of the next error.
    id: u16,
    /// Errors made.
    sent: u64,
    /// Errors that the limiter held back.
    suppressed: u64,
    /// Packets that must not be answered.
    forbidden: u64,
    /// Nowhere to send it, or no address of ours to send it from.
    no_source: u64,
    /// No frame to write it into.
    no_buffer: u64,
}

impl Errors {
    /// Within these limits, which are this instance's own.
    pub(crate) fn new(limits: &ErrorLimits) -> Self {
        let limiter = RateLimiter::new(limits);
        let (id, sent, suppressed, forbidden, no_source, no_buffer) = (0, 0, 0, 0, 0, 0);
        Self { limiter, id, sent, suppressed, forbidden, no_source, no_buffer }
    }

    /// Frame of the error that begins with `header`, or `None` and a count why there is none. Without a header the
    /// packet must not be answered. `write` gets the frame, the header and an identification, and returns whether the
    /// error fits.
    pub(crate) fn write(
        &mut self,
        header: Option<ErrorHeader>,
        class: ErrorClass,
        cx: &Context<'_>,
        write: impl FnOnce(&mut Packet, ErrorHeader, u16) -> bool,
    ) -> Option<Packet> {
        let Some(header) = header else {
            self.forbidden += 1;
            return None;
        };
        if !self.limiter.allow(class, cx.now_ns) {
            self.suppressed += 1;
            return None;
        }
        let written = cx.pool.alloc().and_then(|mut packet| {
            let fits = write(&mut packet, header, self.id);
            fits.then_some(packet)
        });
        self.no_buffer += u64::from(written.is_none());
        written
    }

    /// Counts an error that has no source or no egress.
    pub(crate) fn no_source(&mut self) {
        self.no_source += 1;
    }

    /// Counts an error that is sent.
    pub(crate) fn sent(&mut self) {
        self.id = self.id.wrapping_add(1);
        self.sent += 1;
    }

    pub(crate) fn visit(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("sent", self.sent);
        visit("suppressed", self.suppressed);
        visit("forbidden", self.forbidden);
        visit("no_source", self.no_source);
        visit("no_buffer", self.no_buffer);
    }
}

/// Drops the packets of a batch, each by the cause in its note, and sends what `answer` makes of each by the output that
/// it names.
pub(crate) fn drop_answered(
    batch: &mut Batch,
    cx: &mut Context<'_>,
    mut answer: impl FnMut(&[u8], Meta, Cause, &Context<'_>) -> Option<(u16, Packet)>,
) {
    for i in 0..batch.len() {
        let meta = batch.meta()[i];
        let Some(cause) = meta.note.cause() else {
            debug_assert!(false, "{:?} is no cause", meta.note);
            batch.discard(i, DropReason::Discarded);
            continue;
        };
        batch.discard(i, cause.reason());
        if let Some((output, packet)) = answer(batch.bytes(i), meta, cause, cx) {
            cx.originate(output, packet);
        }
    }
}

/// Class of the error about a cause.
pub(crate) fn class(cause: Cause) -> ErrorClass {
    match cause {
        Cause::TtlExpired => ErrorClass::TimeExceeded,
        Cause::TooBig(_) => ErrorClass::TooBig,
        Cause::BadOption(_) => ErrorClass::Parameter,
        _ => ErrorClass::Unreachable,
    }
}
