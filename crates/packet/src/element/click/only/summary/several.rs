//! The packets that a line stands for which counts several: `MULTIPACKET` of `FromIPSummaryDump`.
//!
//! Source: Click's element. The bytes of the line are divided among the packets: the last one has what is left over, and
//! each has at least those that the line describes. Their times lie at equal distances between the first and the last one
//! of the line, where it has both.

use super::source::Row;
use crate::element::click::only::annotations::Annotations;
use crate::frame::wire::ip4::FRAGMENT_OFFSET;
use crate::frame::wire::protocol::UDP;
use crate::frame::wire::{IP4_BYTES, Ip4};

/// Packets of one line that are still to come.
pub(super) struct Several {
    bytes: Vec<u8>,
    /// Those of the next one, which stands for those behind it.
    annotations: Annotations,
    paint: u8,
    /// Bytes of each packet but the last, with those that are not there.
    length: u32,
    /// Time from one to the next.
    step_ns: i64,
    /// Time of the last one.
    end_ns: i64,
}

impl Several {
    /// The packets of a row: one, unless it `repeats`.
    pub(super) fn of((bytes, mut annotations, paint): Row, repeats: bool) -> Self {
        let others = if repeats { annotations.extra_packets } else { 0 };
        let (held, end_ns) = (size(&bytes), annotations.timestamp_ns);
        let all = u64::from(held) + u64::from(annotations.extra_length);
        let length = u32::try_from(all / (u64::from(others) + 1)).unwrap_or(u32::MAX);
        if others > 0 && length < held {
            annotations.extra_length = held.saturating_mul(others);
        }
        let length = length.max(held);
        let mut step_ns = 0;
        if others > 0 && annotations.first_ns != 0 {
            step_ns = end_ns.saturating_sub(annotations.first_ns) / i64::from(others);
            annotations.timestamp_ns = annotations.first_ns;
        }
        Self { bytes, annotations, paint, length, step_ns, end_ns }
    }

    /// The next packet, and those behind it.
    pub(super) fn next(mut self, repeats: bool) -> (Row, Option<Self>) {
        let others = if repeats { self.annotations.extra_packets } else { 0 };
        if others == 0 {
            return ((self.bytes, self.annotations, self.paint), None);
        }
        let held = size(&self.bytes);
        state_length(&mut self.bytes, self.length);
        let extra_length = self.length - held;
        let one = Annotations { extra_packets: 0, extra_length, ..self.annotations };
        let row = (self.bytes.clone(), one, self.paint);
        let left = &mut self.annotations;
        left.extra_packets = others - 1;
        left.extra_length = left.extra_length.saturating_sub(self.length);
        left.timestamp_ns = left.timestamp_ns.saturating_add(self.step_ns);
        if others == 1 {
            left.timestamp_ns = self.end_ns;
            state_length(&mut self.bytes, held.saturating_add(left.extra_length));
        }
        (row, Some(self))
    }
}

fn size(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// Writes a length into the headers of an IPv4 packet, where it is one.
fn state_length(packet: &mut [u8], length: u32) {
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    let Some(ip) = Ip4::at(packet, 0).filter(|ip| ip.version() == 4) else { return };
    let header = ip.header_len().max(IP4_BYTES);
    let is_udp = ip.protocol() == UDP && ip.fragment() & FRAGMENT_OFFSET == 0;
    let stated = ip.total_len() == usize::from(length);
    if stated {
        return;
    }
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    if let (true, Some(field)) = (is_udp, packet.get_mut(header + 4..header + 6)) {
        let payload = usize::from(length).saturating_sub(header);
        field.copy_from_slice(&u16::try_from(payload).unwrap_or(u16::MAX).to_be_bytes());
    }
}
