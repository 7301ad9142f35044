//! The time until which programs that may outlive the daemon take it to run: past that they leave all
//! to the kernel.
//!
//! Shape: words of 8 bytes that both sides see: a stamp, the tick of the kernel's clock (jiffies) up to which
//!        programs forward, the tick at which the daemon last looked, and for the next daemon the seed of the flow hash.
//! Cost:  a comparison a packet, in programs that are linked for it; a beat is one system call.
//!
//! The kernel's ticks cannot be read by a process, so a program reads them for it (`heartbeat.c`). How long one
//! lasts follows from the resolution of the coarse clock.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fingerpost_lpm::Region;

use crate::xdp::XdpError;
use crate::xdp::bpf::{Program, SharedMemory, tick};
use crate::xdp::load::{self, Bound};

static OBJECT: &[u8] = include_bytes!("heartbeat.o");

/// Layout of the words behind it, and a sign that programs that this daemon finds are of a kind that it knows:
/// "post" and a version, to be raised whenever what a program and a later daemon share changes.
pub const STAMP: u64 = 0x706f_7374_0000_0001;

/// What the words are (`forward.c` has the second, `heartbeat.c` the third).
const STAMPED: usize = 0;
const UNTIL: usize = 1;
const NOW: usize = 2;
/// 0: not known. Programs have it linked in.
const SEED: usize = 3;
/// All of them, in a page.
const BYTES: usize = 4096;

/// The words, and how far ahead a beat reaches.
#[derive(Debug)]
pub struct Heartbeat {
    memory: Arc<SharedMemory>,
    words: Region,
    clock: Program,
    ahead: u64,
}

impl Heartbeat {
    /// New words; programs forward for `patience` after each beat, and not before the first.
    ///
    /// # Errors
    /// When the kernel makes no map.
    pub fn new(patience: Duration) -> Result<Self, XdpError> {
        let made = Self::of(SharedMemory::new("alive", BYTES)?, patience)?;
        made.words.u64s()[STAMPED].store(STAMP, Relaxed);
        made.words.u64s()[UNTIL].store(made.now()?, Relaxed);
        Ok(made)
    }

    /// The words that another daemon left; `Err` of the stamp where they mean something else.
    ///
    /// # Errors
    /// When the kernel loads no program.
    pub fn found(
        memory: Arc<SharedMemory>,
        patience: Duration,
    ) -> Result<Result<Self, u64>, XdpError> {
        if memory.bytes() != BYTES {
            return Ok(Err(0));
        }
        let stamp = memory.region("alive", BYTES).u64s()[STAMPED].load(Relaxed);
        if stamp != STAMP {
            return Ok(Err(stamp));
        }
        Self::of(memory, patience).map(Ok)
    }

    fn of(memory: Arc<SharedMemory>, patience: Duration) -> Result<Self, XdpError> {
        let alive = Bound::Memory(memory.map().as_fd());
        let code = load::link(OBJECT, "read_ticks", |name| (name == "alive").then_some(alive));
        let clock = Program::load("clock", &code)?;
        let words = memory.region("alive", BYTES);
        let ahead = patience.as_nanos() / tick().as_nanos().max(1);
        Ok(Self { memory, words, clock, ahead: u64::try_from(ahead).unwrap_or(u64::MAX) })
    }

    /// The seed of the flow hash that was noted here, if one was.
    pub fn flow_seed(&self) -> Option<u64> {
        // Relaxed: one word, which daemons alone read, one after the other.
        Some(self.words.u64s()[SEED].load(Relaxed)).filter(|&seed| seed != 0)
    }

    /// Notes the seed of the flow hash for the next daemon: flows stay on their paths while one replaces the other.
    pub fn note_flow_seed(&self, seed: u64) {
        // Relaxed: as above.
        self.words.u64s()[SEED].store(seed, Relaxed);
    }

    /// The memory, for programs, and to be pinned.
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// The daemon is there: programs forward for as long as they are patient.
    ///
    /// # Errors
    /// When the kernel does not return the time.
    pub fn beat(&self) -> Result<(), XdpError> {
        // Relaxed: one word, and nothing hangs on it.
        self.words.u64s()[UNTIL].store(self.now()?.saturating_add(self.ahead), Relaxed);
        Ok(())
    }

    /// Whether programs have given up: what they know may be old by now.
    ///
    /// # Errors
    /// When the kernel does not return the time.
    pub fn is_over(&self) -> Result<bool, XdpError> {
        // As the program compares.
        let late = self.now()?.wrapping_sub(self.words.u64s()[UNTIL].load(Relaxed));
        Ok(late.cast_signed() > 0)
    }

    fn now(&self) -> Result<u64, XdpError> {
        // The shortest frame that a program is run on.
        self.clock.test(&[0; 14])?;
        Ok(self.words.u64s()[NOW].load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::testing;

    #[test]
    fn a_beat_reaches_as_far_as_it_should() {
        if !testing::can_bpf() {
            return;
        }
        let patience = Duration::from_millis(200);
        let heartbeat = Heartbeat::new(patience).unwrap();
        assert_eq!(heartbeat.flow_seed(), None);
        heartbeat.note_flow_seed(7);
        std::thread::sleep(Duration::from_millis(30));
        assert!(heartbeat.is_over().unwrap(), "no beat yet");
        heartbeat.beat().unwrap();
        let began = std::time::Instant::now();
        assert!(!heartbeat.is_over().unwrap());
        while !heartbeat.is_over().unwrap() {
            assert!(began.elapsed() < Duration::from_secs(5));
            std::thread::sleep(Duration::from_millis(5));
        }
        // One tick more or less: of 10 ms at most.
        assert!(began.elapsed() + Duration::from_millis(20) > patience, "{:?}", began.elapsed());

        let again = Heartbeat::found(heartbeat.memory.clone(), patience).unwrap().unwrap();
        again.beat().unwrap();
        assert!(!heartbeat.is_over().unwrap(), "they share the words");
        assert_eq!(again.flow_seed(), Some(7));
        heartbeat.words.u64s()[STAMPED].store(STAMP + 1, Relaxed);
        let foreign = Heartbeat::found(heartbeat.memory.clone(), patience).unwrap();
        assert_eq!(foreign.err(), Some(STAMP + 1));
    }
}
