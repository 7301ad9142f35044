//! The lookups of the programs in the kernel, asked from here: the same code over the same memory, so that
//! an auditor or a test can compare what they answer.
//!
//! Cost: a system call of 1 to 2 us for [`ASKED`] addresses.

use fingerpost_lpm::{Addr, Lookup, NextHopId, Region, Step};

use crate::xdp::bpf::Program;

/// Addresses that a program answers at a time (`forward.c`).
const ASKED: usize = 64;

/// A lookup by a program. It reads the tables of the time when it was made.
#[derive(Debug)]
pub struct Asked {
    program: Program,
}

impl Asked {
    pub(super) fn new(program: Program) -> Self {
        Self { program }
    }

    /// # Panics
    /// When the kernel no longer runs a program that it has loaded.
    fn ask<A: Addr>(&self, addrs: &[A], out: &mut [NextHopId]) {
        let bytes = usize::from(A::BITS / 8);
        // Shorter than an Ethernet header a program is not run on.
        let mut packet = vec![0; addrs.len().max(4) * bytes];
        for (place, addr) in packet.chunks_exact_mut(bytes).zip(addrs) {
            let addr = addr.to_u128();
            if bytes == 4 {
                #[allow(clippy::cast_possible_truncation, reason = "an address of 32 bits")]
                place.copy_from_slice(&(addr as u32).to_ne_bytes());
            } else {
                #[allow(clippy::cast_possible_truncation, reason = "takes the two halves")]
                let (high, low) = ((addr >> 64) as u64, addr as u64);
                place[..8].copy_from_slice(&high.to_ne_bytes());
                place[8..].copy_from_slice(&low.to_ne_bytes());
            }
        }
        let answer = self.program.test(&packet).expect("a program that was loaded can be run");
        for (out, place) in out.iter_mut().zip(answer.frame.chunks_exact(bytes)) {
            let hop = place.first_chunk().expect("4 bytes or more");
            *out = NextHopId(u32::from_ne_bytes(*hop));
        }
    }
}

impl<A: Addr> Lookup<A> for Asked {
    fn lookup(&self, addr: A) -> NextHopId {
        let mut out = [NextHopId::NONE];
        self.ask(&[addr], &mut out);
        out[0]
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [NextHopId]) {
        let out = fingerpost_lpm::lookup::check_out(addrs, out);
        for (addrs, out) in addrs.chunks(ASKED).zip(out.chunks_mut(ASKED)) {
            self.ask(addrs, out);
        }
    }

    fn explain(&self, addr: A, _: &mut dyn FnMut(&Step)) -> NextHopId {
        self.lookup(addr)
    }

    fn stats(&self, _: &mut dyn FnMut(&'static str, u64)) {}

    fn regions(&self) -> &[Region] {
        &[]
    }
}
