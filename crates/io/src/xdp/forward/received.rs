//! Frames that programs saw, by ingress port: frames that ended there, dropped ones by reason, and frames left to others.
//!
//! Shape: two lines of 8 words a CPU (`forward.c`), the first with three words for all frames and four about samples, the second with
//!        dropped frames by reason. A port has a memory of its own, which its program knows by name; behind it are as many lines
//!        for each VLAN interface on it.
//! Cost:  one line more that a packet touches, two for one that is dropped, which no other CPU does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fingerpost_lpm::Region;
use fingerpost_packet::feature::sampling::Sampled;

use super::reasons::{DROPS, LeftAlone};
use crate::xdp::XdpError;
use crate::xdp::bpf::SharedMemory;

/// Words of 8 bytes a CPU.
const STRIDE: usize = 16;
/// The first of them about dropped frames.
const DROPPED: usize = 8;
/// Memories of ports that are gone which are still read, since a program may just be ending there.
const MOST_GONE: usize = 16;

/// Frames of one port that its program received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Frames that ended in the program: forwarded or dropped.
    pub packets: u64,
    /// Their bytes, as they came.
    pub bytes: u64,
    /// Frames that it left to the graph or the kernel.
    pub left: u64,
    /// Frames of those that ended that it dropped, by reason in the order of [`DROPS`].
    pub(super) dropped: [u64; DROPS.len()],
    /// Frames of those that ended, of a port that samples, and its samples.
    pub sampled: Sampled,
}

impl Received {
    /// Frames that the program dropped, by reason.
    pub fn dropped(&self) -> impl Iterator<Item = (LeftAlone, u64)> {
        DROPS.iter().copied().zip(self.dropped)
    }

    /// Counts since `before`. Samples are left as they are: they belong to the interface.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.packets = self.packets.saturating_sub(before.packets);
        self.bytes = self.bytes.saturating_sub(before.bytes);
        self.left = self.left.saturating_sub(before.left);
        let dropped = self.dropped.iter_mut().zip(before.dropped);
        dropped.for_each(|(count, n)| *count = count.saturating_sub(n));
        self
    }

    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.left += other.left;
        self.dropped.iter_mut().zip(other.dropped).for_each(|(sum, n)| *sum += n);
        self.sampled = self.sampled.plus(other.sampled);
    }
}

/// The counts of a port, and of the VLAN interfaces on it.
#[derive(Debug)]
pub(super) struct ReceivedCounts {
    /// The port, then its VLAN interfaces: each has the lines at its place in here.
    ports: Vec<u16>,
    cpus: usize,
    memory: Arc<SharedMemory>,
    counts: Region,
}

impl ReceivedCounts {
    /// Counts of a port, for so many CPUs.
    ///
    /// # Errors
    /// When the kernel makes no map.
    pub(super) fn new(port: u16, cpus: usize) -> Result<Self, XdpError> {
        Self::of(vec![port], cpus)
    }

    fn of(ports: Vec<u16>, cpus: usize) -> Result<Self, XdpError> {
        let bytes = ports.len().next_power_of_two() * cpus * STRIDE * 8;
        let memory = SharedMemory::new("seen", bytes)?;
        let counts = memory.region("seen", bytes);
        Ok(Self { ports, cpus, memory, counts })
    }

    /// Counters with the same places, and nothing counted yet.
    ///
    /// # Errors
    /// When the kernel makes no map.
    pub(super) fn like(other: &Self) -> Result<Self, XdpError> {
        Self::of(other.ports.clone(), other.cpus)
    }

    /// Gives these VLAN interfaces places. Where there are too few, this is another memory from here on and the
    /// one before comes back.
    ///
    /// # Errors
    /// When the kernel makes no map.
    pub(super) fn make_room(&mut self, vlans: &[u16]) -> Result<Option<Self>, XdpError> {
        let new = vlans.iter().filter(|vlan| !self.ports.contains(vlan)).copied();
        let all: Vec<u16> = self.ports.iter().copied().chain(new).collect();
        if all.len() <= self.places() {
            self.ports = all;
            return Ok(None);
        }
        // Without those that have gone since.
        let present = self.ports.iter().take(1).chain(vlans).copied().collect();
        let larger = Self::of(present, self.cpus)?;
        Ok(Some(std::mem::replace(self, larger)))
    }

    /// How many interfaces have places, or could.
    pub(super) fn places(&self) -> usize {
        self.counts.bytes() / (self.cpus * STRIDE * 8)
    }

    /// The place of one that has one, else the port's own.
    pub(super) fn place(&self, port: u16) -> u64 {
        self.ports.iter().position(|known| *known == port).unwrap_or_default() as u64
    }

    /// The memory, for programs.
    pub(super) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    fn add_to(&self, all: &mut BTreeMap<u16, Received>) {
        let places = self.counts.u64s().chunks_exact(self.cpus * STRIDE);
        for (&port, place) in self.ports.iter().zip(places) {
            let of_port = all.entry(port).or_default();
            for line in place.chunks_exact(STRIDE) {
                // Relaxed: numbers of a program that may be running, read for people.
                let words = [0, 1, 2, 4, 5, 6].map(|at: usize| line[at].load(Relaxed));
                let [packets, bytes, left, sampleable, samples, lost] = words;
                let sampled = Sampled { packets: sampleable, samples, lost };
                let dropped = std::array::from_fn(|at| line[DROPPED + at].load(Relaxed));
                of_port.add(Received { packets, bytes, left, dropped, sampled });
            }
        }
    }
}

/// The counts of ports that are no more.
#[derive(Debug, Default)]
pub(super) struct Gone {
    last: VecDeque<ReceivedCounts>,
    before: BTreeMap<u16, Received>,
}

impl Gone {
    pub(super) fn push(&mut self, seen: ReceivedCounts) {
        self.last.push_back(seen);
        if self.last.len() > MOST_GONE
            && let Some(oldest) = self.last.pop_front()
        {
            oldest.add_to(&mut self.before);
        }
    }

    /// The counts together with these of ports that are there, by port.
    pub(super) fn and<'a>(
        &'a self,
        present: impl Iterator<Item = &'a ReceivedCounts>,
    ) -> BTreeMap<u16, Received> {
        let mut all = self.before.clone();
        self.last.iter().chain(present).for_each(|seen| seen.add_to(&mut all));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::testing;

    #[test]
    fn ports_that_go_and_come_back_keep_their_counts() {
        if !testing::can_bpf() {
            return;
        }
        let mut gone = Gone::default();
        let count = |seen: &ReceivedCounts, cpu: usize| {
            for (at, add) in [(0, 1), (1, 60), (2, 2), (DROPPED + 1, 3)] {
                seen.counts.u64s()[cpu * STRIDE + at].fetch_add(add, Relaxed);
            }
        };
        let rounds = 3 * MOST_GONE as u64;
        for round in 0..rounds {
            let seen = ReceivedCounts::new(u16::try_from(round % 2).unwrap(), 2).unwrap();
            count(&seen, 0);
            gone.push(seen);
        }
        assert_eq!(gone.last.len(), MOST_GONE);
        // What ends late still counts.
        count(gone.last.back().unwrap(), 1);
        let here = ReceivedCounts::new(0, 2).unwrap();
        count(&here, 1);
        let each = rounds / 2 + 1;
        let mut received =
            Received { packets: each, bytes: 60 * each, left: 2 * each, ..Received::default() };
        received.dropped[1] = 3 * each;
        let all = gone.and([&here].into_iter());
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [(0, received), (1, received)]);
    }

    #[test]
    fn vlan_interfaces_have_places_beside_the_port() {
        if !testing::can_bpf() {
            return;
        }
        let mut seen = ReceivedCounts::new(7, 2).unwrap();
        let mut gone = Gone::default();
        for round in 0..40 {
            // One that stays, and one that is another one each time.
            let grown = seen.make_room(&[8, 100 + round]).unwrap();
            grown.into_iter().for_each(|before| gone.push(before));
            assert!(seen.places() <= 4, "those that went leave their places");
            for (port, cpu) in [(7, 0), (8, 1), (100 + round, 0)] {
                let line = (usize::try_from(seen.place(port)).unwrap() * 2 + cpu) * STRIDE;
                seen.counts.u64s()[line].fetch_add(1, Relaxed);
            }
        }
        let all = gone.and([&seen].into_iter());
        assert_eq!((all[&7].packets, all[&8].packets, all.len()), (40, 40, 42));
        assert!(all.iter().all(|(port, received)| *port < 100 || received.packets == 1));
    }
}
