//! What programs sent, by the port that it left by.
//!
//! An adjacency counts it too, but adjacencies come and go, and their numbers are used again.
//!
//! Shape: for each CPU two words a port, frames and bytes (`forward.c`): 64 KiB a CPU.
//! Cost:  one line more that a packet touches, which no other CPU does.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fingerpost_lpm::Region;

use super::{PORTS, Used};
use crate::xdp::XdpError;
use crate::xdp::bpf::SharedMemory;

/// Words of a CPU.
const WORDS: usize = PORTS as usize * 2;

/// The counts of all ports.
#[derive(Debug)]
pub(super) struct Sent {
    memory: Arc<SharedMemory>,
    counts: Region,
}

impl Sent {
    /// Counts for so many CPUs.
    ///
    /// # Errors
    /// When the kernel makes no map.
    pub(super) fn new(cpus: usize) -> Result<Self, XdpError> {
        let bytes = cpus * WORDS * 8;
        let memory = SharedMemory::new("sent", bytes)?;
        let counts = memory.region("sent", bytes);
        Ok(Self { memory, counts })
    }

    /// The memory, for programs.
    pub(super) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// What was sent by a port.
    pub(super) fn of(&self, port: u16) -> Used {
        let mut used = Used::default();
        for cpu in self.counts.u64s().chunks_exact(WORDS) {
            if let Some([packets, bytes]) = cpu.as_chunks().0.get(usize::from(port)) {
                // Relaxed: numbers of a program that may be running, read for people.
                used.packets += packets.load(Relaxed);
                used.bytes += bytes.load(Relaxed);
            }
        }
        used
    }
}
