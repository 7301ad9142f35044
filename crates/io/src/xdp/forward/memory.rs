//! Memory for tables that programs in the kernel read as well: an array map a region, mapped.
//!
//! Each region has a map of its own, so that none needs more than a few MiB in a piece, and room behind
//! it that is never used: the verifier counts a rank as up to 255, and a tail's as up to 766.
//!
//! What maps hold is taken at once and in pages of 4 KiB, so it is bounded in all. Beyond that, or where
//! the kernel has no more, tables lie in ordinary memory: the programs do without them and the graph
//! forwards.

use std::sync::{Arc, Mutex, Weak};

use fingerpost_lpm::{Addr, HugePages, Lookup, Memory, Region, UpdateError};
use fingerpost_route::MemoryMaker;

use super::{Forwarder, readable};
use crate::xdp::bpf::SharedMemory;

/// Bytes behind each region.
pub(super) const MARGIN: usize = 4096;

/// What all regions together may take unless the configuration states otherwise: a full table of both
/// families twice, since the old one lives until the new one is built.
pub const CAP_BYTES: usize = 16 << 20;

/// What a table takes of the memory that both sides see, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableMemory {
    /// In use, without room for growth.
    pub used: usize,
    /// Taken from the kernel, room for growth included.
    pub reserved: usize,
}

impl TableMemory {
    fn of<A: Addr>(lookup: &dyn Lookup<A>) -> Self {
        let maps = lookup.regions().iter().filter_map(SharedMemory::of);
        Self { used: lookup.bytes(), reserved: maps.map(SharedMemory::bytes).sum() }
    }
}

impl Forwarder {
    /// Bytes of kernel memory reserved for tables and next hops, those included that are being replaced.
    pub fn reserved_bytes(&self) -> usize {
        self.0.maps.reserved()
    }

    /// How many they may be at most.
    pub fn cap_bytes(&self) -> usize {
        self.0.maps.cap
    }

    /// What the IPv4 table of a fib and the IPv6 one take of them; `None` for one that no program can read.
    pub fn table_memory(&self, fib: u16) -> [Option<TableMemory>; 2] {
        let state = self.state();
        let Some(forwarding) = &state.forwarding else { return [None; 2] };
        let (v4, v6) = (forwarding.v4_of(fib), forwarding.v6_of(fib));
        [
            readable(v4).is_some().then(|| TableMemory::of(v4)),
            readable(v6).is_some().then(|| TableMemory::of(v6)),
        ]
    }
}

/// The maps in use.
#[derive(Debug)]
pub(super) struct Maps {
    cap: usize,
    alive: Mutex<Vec<Weak<SharedMemory>>>,
}

impl Maps {
    pub(super) fn new(cap: usize) -> Arc<Self> {
        Arc::new(Self { cap, alive: Mutex::default() })
    }

    /// Bytes that the kernel has reserved for regions.
    pub(super) fn reserved(&self) -> usize {
        let mut alive = self.alive.lock().expect("no panic while it is held");
        alive.retain(|map| map.strong_count() > 0);
        alive.iter().filter_map(Weak::upgrade).map(|map| map.bytes()).sum()
    }

    /// Makes memory of such maps.
    pub(super) fn maker(self: &Arc<Self>) -> MemoryMaker {
        let maps = self.clone();
        MemoryMaker::new(move || Box::new(Taken { maps: maps.clone(), other: HugePages::new() }))
    }

    /// A region in a map of its own; `None` when there is no room for it.
    fn take(&self, name: &'static str, bytes: usize) -> Option<Region> {
        let bytes = bytes.max(1).next_multiple_of(fingerpost_lpm::mem::LINE_BYTES);
        let size = bytes.checked_add(MARGIN)?.checked_next_multiple_of(4096)?;
        if self.reserved().checked_add(size)? > self.cap {
            return None;
        }
        let memory = SharedMemory::new(name, size).ok()?;
        self.alive.lock().expect("no panic while it is held").push(Arc::downgrade(&memory));
        Some(memory.region(name, bytes))
    }
}

/// The memory of one structure.
struct Taken {
    maps: Arc<Maps>,
    other: HugePages,
}

impl Memory for Taken {
    fn region(&mut self, name: &'static str, bytes: usize) -> Result<Region, UpdateError> {
        match self.maps.take(name, bytes) {
            Some(region) => Ok(region),
            None => self.other.region(name, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::testing;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn regions_lie_in_maps_up_to_the_cap() {
        if !testing::can_bpf() {
            return;
        }
        let maps = Maps::new(100_000);
        let maker = maps.maker();
        let mut memory = maker.make();
        let first = memory.region("first", 1000).unwrap();
        let shared = SharedMemory::of(&first).expect("in a map");
        assert!(shared.bytes() >= first.bytes() + MARGIN && first.bytes() >= 1000);
        first.u32s()[3].store(7, Relaxed);
        let mut value = vec![0; shared.bytes()];
        assert!(shared.map().lookup(&[0; 4], &mut value).unwrap());
        assert_eq!(value[12..16], 7u32.to_ne_bytes(), "the kernel reads the same bytes");
        let reserved = maps.reserved();
        assert_eq!(reserved, shared.bytes());
        let large = memory.region("large", 200_000).unwrap();
        assert!(SharedMemory::of(&large).is_none() && large.bytes() >= 200_000);
        let second = memory.region("second", 50_000).unwrap();
        assert!(SharedMemory::of(&second).is_some());
        drop((first, second));
        assert_eq!(maps.reserved(), 0);
    }
}
