//! Loops of single lookups, as jobs: what is compiled for other instructions than its caller
//! ([`BitOps`](crate::simd::BitOps)) cannot become part of a loop outside, so the loop goes with it.
//! Without that each key was a call: Poptrie's rate one by one was a third of itself.

use crate::addr::Addr;
use crate::next_hop_id::NextHopId;
use crate::simd::Job;

/// [`Lookup::lookup_each`](crate::Lookup::lookup_each); `out` is as long as `addrs`.
pub(crate) struct Each<'a, A, F> {
    pub(crate) addrs: &'a [A],
    pub(crate) out: &'a mut [NextHopId],
    /// One lookup.
    pub(crate) one: F,
}

impl<A: Addr, F: Fn(A) -> NextHopId> Job for Each<'_, A, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (&addr, out) in self.addrs.iter().zip(self.out) {
            *out = (self.one)(addr);
        }
    }
}

/// [`Lookup::lookup_chain`](crate::Lookup::lookup_chain); `out` is as long as `addrs`.
pub(crate) struct Chain<'a, A, F> {
    pub(crate) addrs: &'a [A],
    pub(crate) mask: u32,
    pub(crate) out: &'a mut [NextHopId],
    /// One lookup.
    pub(crate) one: F,
}

impl<A: Addr, F: Fn(A) -> NextHopId> Job for Chain<'_, A, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let mut last = 0;
        for (&addr, out) in self.addrs.iter().zip(self.out) {
            let wait = u128::from(last & self.mask);
            // Both halves of a long address: its upper one alone is enough to start.
            *out = (self.one)(addr ^ A::from_u128(wait << 64 | wait));
            last = out.0;
        }
    }
}
