//! Whether the process that reads the AF_XDP sockets is there: the kernel itself notes its end.
//!
//! A process that is killed gives back its memory first and closes its sockets one after the other, each with a grace
//! period: for 10 to 300 ms they receive what nobody takes. So a program at the tracepoint of ending threads sets a word
//! as soon as the process ends, and classifiers that see it leave all frames to the kernel.
//!
//! Shape: two words of 8 bytes: whether the process ended; its number, as the kernel counts (not that of a PID namespace).
//! Cost:  three instructions a frame that goes to a socket; some twenty for each thread of the machine that ends.
//! Limits: before Linux 6.16 the tracepoint comes after the memory was given back; without CAP_PERFMON nothing is noted.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::XdpError;
use super::asm::Reg::{R0, R1, R2, R3};
use super::asm::Width::Double;
use super::asm::{Asm, Helper, Insn, When};
use super::bpf::{Map, Program, SharedMemory};

/// Offsets of the words in bytes.
const ENDED: i16 = 0;
const PROCESS: i16 = 8;
const BYTES: usize = 4096;

/// The words, for classifiers to ask. Without [`Presence::watch`] the process counts as there.
#[derive(Debug)]
pub(super) struct Presence(Arc<SharedMemory>);

/// Notes the end of the process while it is kept.
#[derive(Debug)]
pub struct Watch(#[allow(dead_code, reason = "dropping it ends the watch")] OwnedFd);

impl Presence {
    pub(super) fn new() -> Result<Self, XdpError> {
        Ok(Self(SharedMemory::new("presence", BYTES)?))
    }

    /// The map whose first word is not 0 once the process ended.
    pub(super) fn map(&self) -> &Map {
        self.0.map()
    }

    /// Notes the end of the calling process.
    pub(super) fn watch(&self) -> Result<Watch, XdpError> {
        Program::load_tracing("remember", &remember(self.map()))?
            .run_here()
            .map_err(|source| XdpError::System { call: "bpf(PROG_TEST_RUN)", source })?;
        Program::load_tracing("ending", &ending(self.map()))?
            .trace(c"sched_process_exit")
            .map(Watch)
            .map_err(|source| XdpError::System { call: "bpf(RAW_TRACEPOINT_OPEN)", source })
    }
}

/// Stores the number of the process that runs it.
fn remember(words: &Map) -> Vec<Insn> {
    let mut a = Asm::new();
    a.call(Helper::CurrentProcess).shr(R0, 32);
    a.set_map_value(R1, words.as_fd(), 0).store(Double, R1, PROCESS, R0);
    a.set(R0, 0).exit();
    a.finish()
}

/// Sets the first word where the first thread of that process ends: the others may end while it goes on.
fn ending(words: &Map) -> Vec<Insn> {
    let mut a = Asm::new();
    let other = a.label();
    a.call(Helper::CurrentProcess).set_map_value(R1, words.as_fd(), 0);
    a.load(Double, R2, R1, PROCESS);
    a.set(R3, R0).shr(R3, 32).branch(R3, When::Ne, R2, other);
    a.branch32(R0, When::Ne, R2, other);
    a.store(Double, R1, ENDED, 1);
    a.bind(other).set(R0, 0).exit();
    a.finish()
}

#[cfg(test)]
mod tests {
    use super::super::lab;
    use super::*;

    #[test]
    fn the_process_is_there_while_its_threads_end() {
        if !lab::can_bpf() {
            return;
        }
        let presence = Presence::new().unwrap();
        let watch = presence.watch();
        let watch = match watch {
            Err(error) if error.is_refused() => return lab::skipped("CAP_PERFMON"),
            watch => watch.unwrap(),
        };
        let words = presence.0.region("presence", BYTES);
        let word =
            |at: i16| words.u64s()[at as usize / 8].load(std::sync::atomic::Ordering::Relaxed);
        assert_ne!(word(PROCESS), 0);
        std::thread::spawn(|| ()).join().unwrap();
        assert!(std::process::Command::new("true").status().unwrap().success());
        assert_eq!(word(ENDED), 0, "neither a thread of ours nor another process");
        drop(watch);
    }
}
