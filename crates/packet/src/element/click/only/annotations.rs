//! Annotations of Click that packets of a router do not have: times, aggregates, numbers.
//!
//! Source: Click's `packet_anno.hh`, as its manual describes the annotations. They lie behind the packet in its frame
//! ([`crate::frame::ANNOTATION_BYTES`]); all are 0 where a packet has none.

use crate::frame::{AGGREGATE_AT, ANNOTATION_BYTES, Batch, NUMBERED_AT, Packet};

/// Annotations of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Annotations {
    /// Time of the packet, in nanoseconds of the time of day.
    pub(crate) timestamp_ns: i64,
    /// Time of the first of the packets that it stands for.
    pub(crate) first_ns: i64,
    /// Number of the aggregate that it belongs to.
    pub(crate) aggregate: u32,
    /// Packets that it stands for besides itself.
    pub(crate) extra_packets: u32,
    /// Bytes of it that were not captured.
    pub(crate) extra_length: u32,
    /// Number of the packet in its trace.
    pub(crate) packet_number: u32,
}

// The aggregate is between the times and the rest, and annotations without names are behind.
const _: () = assert!(AGGREGATE_AT == 16 && NUMBERED_AT == 32);

impl Annotations {
    fn read(bytes: &[u8; ANNOTATION_BYTES]) -> Self {
        let long = |at: usize| bytes[at..at + 8].try_into().map_or(0, i64::from_le_bytes);
        let word = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        Self {
            timestamp_ns: long(0),
            first_ns: long(8),
            aggregate: word(AGGREGATE_AT),
            extra_packets: word(20),
            extra_length: word(24),
            packet_number: word(28),
        }
    }

    fn write(&self, bytes: &mut [u8; ANNOTATION_BYTES]) {
        bytes[..8].copy_from_slice(&self.timestamp_ns.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first_ns.to_le_bytes());
        bytes[AGGREGATE_AT..AGGREGATE_AT + 4].copy_from_slice(&self.aggregate.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.extra_packets.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.extra_length.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.packet_number.to_le_bytes());
    }

    /// Those of packet `i`.
    pub(crate) fn of(batch: &Batch, i: usize) -> Self {
        batch.annotations(i).map_or(Self::default(), Self::read)
    }

    /// Those of a packet outside of a batch.
    pub(crate) fn of_packet(packet: &Packet) -> Self {
        packet.annotations().map_or(Self::default(), Self::read)
    }

    /// Gives them to packet `i`; a packet that leaves no room in its frame has none.
    pub(crate) fn set(&self, batch: &mut Batch, i: usize) {
        if let Some(bytes) = batch.annotations_mut(i) {
            self.write(bytes);
        }
    }

    /// Gives them to a packet outside of a batch.
    pub(crate) fn set_packet(&self, packet: &mut Packet) {
        if let Some(bytes) = packet.annotations_mut() {
            self.write(bytes);
        }
    }
}
