//! Whether the process that reads the AF_XDP sockets is there, and whether each of its workers works.
//!
//! A process that is killed gives back its memory first and closes its sockets one after the other, each with a grace
//! period: for 10 to 300 ms they receive what nobody takes. So a program at the tracepoint of ending threads sets a word
//! as soon as the process ends, and classifiers that see it give no more frames to sockets.
//!
//! A process that is stopped, or a worker that hangs, keeps its sockets. So each worker writes until when it counts as
//! working ([`Pulse`]), and classifiers compare that with the time, for the worker that owns the queue.
//!
//! Shape: words of 8 bytes: whether the process ended; its number, as the kernel counts (not that of a PID namespace);
//!        the kernel's time when it was last read; from byte 64 on a word a worker.
//! Cost:  some eight instructions a frame that goes to a socket; some twenty for each thread of the machine that ends;
//!        a store a worker ten times a second.
//! Limits: before Linux 6.16 the tracepoint comes after the memory was given back; without CAP_PERFMON no end is noted. Of
//!        several workers that share a queue the owner's word counts.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fingerpost_lpm::Region;
use fingerpost_packet::graph::worker::Heartbeat;

use super::bpf::{Map, Program, SharedMemory};
use super::load::{self, Bound, Insn};
use super::{XdpError, classify};

/// Offset in bytes of the time in the words (`classify.c`).
const NOW: usize = 16;
/// Offset of the first worker's word.
const WORKERS: usize = 64;
const BYTES: usize = 4096;
/// Workers that have a word of their own; further ones share those of others.
const MOST_WORKERS: usize = (BYTES - WORKERS) / 8;

/// How long a worker is taken to work after it wrote its word: far longer than a busy machine keeps it waiting.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Between two writes: with the longest sleep of a worker still a tenth of that.
const BEAT_NS: u64 = 100_000_000;

/// The words that classifiers read. Without [`Presence::watch`] the process counts as there, and without
/// [`Presence::pulses`] its workers as working.
#[derive(Debug)]
pub(super) struct Presence {
    memory: Arc<SharedMemory>,
    /// Number of workers that write a word.
    workers: AtomicU32,
}

/// The heartbeat of one worker.
#[derive(Debug)]
pub struct Pulse {
    words: Region,
    at: usize,
    /// The kernel's time, and when that was.
    kernel_ns: u64,
    then: Instant,
    /// The kernel's time when the clock of the worker began.
    began_ns: u64,
    /// When it writes next, by the clock of the worker.
    due_ns: u64,
}

/// Notes the end of the process while it is kept.
#[derive(Debug)]
pub struct Watch(#[allow(dead_code, reason = "dropping it ends the watch")] OwnedFd);

impl Presence {
    pub(super) fn new() -> Result<Self, XdpError> {
        let memory = SharedMemory::new("presence", BYTES)?;
        Ok(Self { memory, workers: AtomicU32::new(0) })
    }

    /// The map whose first word is not 0 once the process ended.
    pub(super) fn map(&self) -> &Map {
        self.memory.map()
    }

    /// Number of workers whose words classifiers read.
    pub(super) fn workers(&self) -> u32 {
        // Relaxed: the thread that loads classifiers has set it.
        self.workers.load(Relaxed)
    }

    /// A heartbeat for each of so many workers, which begins now; classifiers that are loaded from here on read them.
    pub(super) fn pulses(&self, workers: usize) -> Result<Vec<Pulse>, XdpError> {
        let (kernel_ns, then) = self.time()?;
        let words = workers.min(MOST_WORKERS);
        self.workers.store(u32::try_from(words).unwrap_or_default(), Relaxed);
        let first = WORKERS / 8;
        let pulse = |worker| Pulse::new(self.words(), first + worker % words, kernel_ns, then);
        Ok((0..workers).map(pulse).collect())
    }

    /// The time as programs read it: in a time namespace a process reads another one.
    pub(super) fn time(&self) -> Result<(u64, Instant), XdpError> {
        // The shortest frame that a program is run on.
        Program::load("clock", &self.link("read_clock"))?.test(&[0; 14])?;
        Ok((self.words().u64s()[NOW / 8].load(Relaxed), Instant::now()))
    }

    /// A function of `classify.c` that has to do with these words alone.
    fn link(&self, function: &str) -> Vec<Insn> {
        let memory = self.map().as_fd();
        load::link(classify::OBJECT, function, |name| {
            (name == "presence").then_some(Bound::Memory(memory))
        })
    }

    fn words(&self) -> Region {
        self.memory.region("presence", BYTES)
    }

    /// Notes the end of the calling process.
    pub(super) fn watch(&self) -> Result<Watch, XdpError> {
        Program::load_tracing("remember", &self.link("remember"))?
            .run_here()
            .map_err(|source| XdpError::System { call: "bpf(PROG_TEST_RUN)", source })?;
        Program::load_tracing("ending", &self.link("ending"))?
            .trace(c"sched_process_exit")
            .map(Watch)
            .map_err(|source| XdpError::System { call: "bpf(RAW_TRACEPOINT_OPEN)", source })
    }
}

impl Pulse {
    fn new(words: Region, at: usize, kernel_ns: u64, then: Instant) -> Self {
        let mut pulse = Self { words, at, kernel_ns, then, began_ns: 0, due_ns: 0 };
        pulse.start_clock(then);
        pulse.beat(0);
        pulse
    }
}

impl Heartbeat for Pulse {
    fn start_clock(&mut self, start: Instant) {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (before, after) = (self.then.duration_since(start), start.duration_since(self.then));
        self.began_ns = self.kernel_ns.wrapping_sub(ns(before)).wrapping_add(ns(after));
        self.due_ns = 0;
    }

    #[inline]
    fn beat(&mut self, now_ns: u64) {
        if now_ns >= self.due_ns {
            self.due_ns = now_ns + BEAT_NS;
            let until = self.began_ns.wrapping_add(now_ns).wrapping_add(PATIENCE_NS);
            // Relaxed: one word, and nothing hangs on it.
            self.words.u64s()[self.at].store(until, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn the_process_is_there_while_its_threads_end() {
        if !testing::can_bpf() {
            return;
        }
        let presence = Presence::new().unwrap();
        let watch = presence.watch();
        let watch = match watch {
            Err(error) if error.is_refused() => return testing::skipped("CAP_PERFMON"),
            watch => watch.unwrap(),
        };
        let words = presence.words();
        let word = |at: usize| words.u64s()[at].load(Relaxed);
        assert_ne!(word(1), 0, "its number");
        std::thread::spawn(|| ()).join().unwrap();
        assert!(std::process::Command::new("true").status().unwrap().success());
        assert_eq!(word(0), 0, "neither a thread of ours nor another process");
        drop(watch);
    }

    #[test]
    fn a_worker_is_believed_for_two_seconds_of_the_kernels_clock() {
        if !testing::can_bpf() {
            return;
        }
        let presence = Presence::new().unwrap();
        let mut pulses = presence.pulses(3).unwrap();
        assert_eq!(presence.workers(), 3);
        let words = presence.words();
        let word = |worker: usize| words.u64s()[WORKERS / 8 + worker].load(Relaxed);
        let ahead = |word: u64| word - presence.time().unwrap().0;
        // A tick more or less, on a busy machine.
        let (most, least) = (2_000_000_000, 1_500_000_000);
        for worker in 0..3 {
            assert!((least..=most).contains(&ahead(word(worker))), "{}", ahead(word(worker)));
        }
        // A worker whose clock began a second ago, or will begin.
        let now = Instant::now();
        let second = Duration::from_secs(1);
        pulses[1].start_clock(now.checked_sub(second).unwrap());
        pulses[1].beat(1_000_000_000);
        assert!((least..=most + 20_000_000).contains(&ahead(word(1))), "{}", ahead(word(1)));
        let before = word(1);
        pulses[1].beat(1_050_000_000);
        assert_eq!(word(1), before, "not due yet");
        pulses[1].beat(1_100_000_000);
        assert_eq!(word(1), before + 100_000_000);
    }
}
