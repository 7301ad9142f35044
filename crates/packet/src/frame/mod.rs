//! Frames: their memory, headers, flow hashes, drop reasons and counters.

#[allow(unsafe_code, reason = "frames are owned by number; its invariants are numbered there")]
mod buf;
mod cause;
pub mod counters;
mod drops;
pub mod flow;
pub mod wire;

pub(crate) use buf::{AGGREGATE_AT, MOST_OUTPUT, NUMBERED_AT};
pub use buf::{
    ANNOTATION_BYTES, BATCH, Batch, Decision, FLAG_COPY, FLAG_FIX_SOURCE, FLAG_GENERATED,
    FLAG_LINK_MULTICAST, HEADROOM, Hop, Label, Meta, Note, Packet, PacketQueue, Places, Pool,
    ROUNDS_SHIFT, RawFrame, View,
};
pub use cause::Cause;
pub use drops::{DropReason, REASONS};
