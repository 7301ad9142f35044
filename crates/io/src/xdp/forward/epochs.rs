//! Grace for memory that programs in the kernel read: a count a CPU, odd while a program runs there.
//!
//! A program adds 1 to its CPU's count by an exchange when it begins, and 1 by a store when it ends, so
//! that a writer that has unlinked something notes the odd counts and waits until each has changed. No
//! program is interrupted by another of its kind on the same CPU: XDP runs with bottom halves off.
//!
//! Cost: about 4 ns a packet, for the number of the CPU, the exchange and the store; to mark is to read a
//! line a CPU.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::atomic::fence;
use std::sync::{Arc, Mutex};

use fingerpost_lpm::{Epoch, Region};

use crate::xdp::XdpError;
use crate::xdp::bpf::{SharedMemory, possible_cpus};

/// Words of 8 bytes a CPU: a line, so that counting does not slow the neighbors.
const STRIDE: usize = 8;
/// Marks that may wait; then the last of them stands for the newer ones too.
const MOST_WAITING: usize = 256;

/// The counts, and what was marked and is not over.
#[derive(Debug)]
pub(super) struct Epochs {
    memory: Arc<SharedMemory>,
    counts: Region,
    /// Marks of the route tables.
    marks: Marks,
}

/// What one writer has marked.
#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<Begun>);

#[derive(Debug, Default)]
struct Begun {
    /// The CPUs that were inside, with their counts, by epoch.
    waiting: VecDeque<(u64, Vec<(usize, u64)>)>,
    /// All up to this one are over.
    passed: u64,
}

impl Epochs {
    /// Counts for all CPUs that there can be.
    ///
    /// # Errors
    /// When the kernel makes no map.
    pub(super) fn new() -> Result<Self, XdpError> {
        let cpus =
            possible_cpus().map_err(|source| XdpError::System { call: "possible CPUs", source })?;
        let bytes = cpus.next_power_of_two() * STRIDE * 8;
        let memory = SharedMemory::new("epochs", bytes)?;
        let counts = memory.region("epochs", bytes);
        Ok(Self { memory, counts, marks: Marks::default() })
    }

    /// The memory, for programs.
    pub(super) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Masks the number of a CPU.
    pub(super) fn mask(&self) -> u64 {
        self.cpus() as u64 - 1
    }

    /// Numbers of CPUs, masked: a power of two.
    pub(super) fn cpus(&self) -> usize {
        self.counts.bytes() / (STRIDE * 8)
    }

    /// Notes what runs now, for the writer of the tables.
    pub(super) fn mark(&self, epoch: Epoch) {
        self.mark_in(&self.marks, epoch);
    }

    /// Whether all that ran when the writer of the tables marked `epoch` has ended.
    pub(super) fn passed(&self, epoch: Epoch) -> bool {
        self.passed_in(&self.marks, epoch)
    }

    /// Notes what runs now.
    pub(super) fn mark_in(&self, marks: &Marks, epoch: Epoch) {
        let mut begun = marks.0.lock().expect("no panic while it is held");
        // Orders the unlinking stores before the reads; it pairs with the exchange of the programs: we see
        // their count odd, or they see what was unlinked.
        fence(SeqCst);
        let busy = (self.counts.u64s().iter().step_by(STRIDE).enumerate())
            .map(|(cpu, count)| (cpu, count.load(Acquire)))
            .filter(|(_, count)| count % 2 == 1)
            .collect();
        if begun.waiting.len() == MOST_WAITING {
            begun.waiting.pop_back();
        }
        begun.waiting.push_back((epoch.0, busy));
        self.advance(&mut begun);
    }

    /// Whether all that ran when `epoch` was marked has ended.
    pub(super) fn passed_in(&self, marks: &Marks, epoch: Epoch) -> bool {
        let mut begun = marks.0.lock().expect("no panic while it is held");
        begun.passed >= epoch.0 || {
            self.advance(&mut begun);
            begun.passed >= epoch.0
        }
    }

    fn advance(&self, begun: &mut Begun) {
        let counts = self.counts.u64s();
        // Acquire pairs with the store by which a program ends: what it read, it read before.
        let inside = |&(cpu, count): &(usize, u64)| counts[cpu * STRIDE].load(Acquire) == count;
        while let Some((epoch, busy)) = begun.waiting.front_mut() {
            busy.retain(inside);
            if !busy.is_empty() {
                return;
            }
            begun.passed = *epoch;
            begun.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::testing;

    #[test]
    fn an_epoch_passes_when_all_that_ran_has_ended() {
        if !testing::can_bpf() {
            return;
        }
        let epochs = Epochs::new().unwrap();
        let count = |to| epochs.counts.u64s()[0].store(to, SeqCst);
        epochs.mark(Epoch(5));
        assert!(epochs.passed(Epoch(5)) && epochs.passed(Epoch(3)), "nothing ran");
        count(1);
        epochs.mark(Epoch(6));
        assert!(!epochs.passed(Epoch(6)) && epochs.passed(Epoch(5)));
        count(3);
        assert!(epochs.passed(Epoch(6)), "another run than that which was marked");
        epochs.mark(Epoch(7));
        for epoch in 8..2000 {
            epochs.mark(Epoch(epoch));
        }
        assert!(!epochs.passed(Epoch(7)));
        assert!(epochs.marks.0.lock().unwrap().waiting.len() <= MOST_WAITING);
        count(4);
        assert!(epochs.passed(Epoch(1999)));
    }
}
