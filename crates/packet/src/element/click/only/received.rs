//! What is done to packets that come from outside: the time at which they came is noted, they are cut to `SNAPLEN` bytes,
//! or sorted by whether they are IPv4 packets (`FORCE_IP`).
//!
//! Source: Click's `FromDevice` and `Socket`. Bytes that are cut off are noted.

use super::annotations::Annotations;
use super::clock;
use super::dump_encap::ETHER;
use crate::frame::Batch;
use crate::graph::Exit;

/// What is done to them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    /// The time is noted.
    pub(crate) stamps: bool,
    /// Bytes of a packet at most.
    pub(crate) snap_len: Option<usize>,
    /// Where frames go that have no IPv4 header, while the header of the others is marked.
    pub(crate) force_ip: Option<Exit>,
}

impl Received {
    /// Does so with a batch, at this time of the monotonic clock.
    pub(crate) fn note(self, batch: &mut Batch, now_ns: u64) {
        if let Some(most) = self.snap_len {
            for i in 0..batch.len() {
                let cut = batch.frame_len(i).saturating_sub(most);
                if cut > 0 {
                    batch.truncate(i, most);
                    let mut annotations = Annotations::of(batch, i);
                    annotations.extra_length += u32::try_from(cut).unwrap_or(0);
                    annotations.set(batch, i);
                }
            }
        }
        if self.stamps {
            let timestamp_ns = clock::time_of_day(now_ns);
            for i in 0..batch.len() {
                Annotations { timestamp_ns, ..Annotations::of(batch, i) }.set(batch, i);
            }
        }
        if let Some(others) = self.force_ip {
            for i in 0..batch.len() {
                match ETHER.network(batch.bytes(i)) {
                    Some(network) => batch.meta_mut()[i].network = network,
                    None => others.take(batch, i),
                }
            }
        }
    }
}
