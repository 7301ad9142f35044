//! Lists by length: sorted prefixes of each length, searched from the longest on.
//!
//! Source: the obvious scheme, before hashing (Waldvogel, Varghese, Turner, Plattner, SIGCOMM 1997).
//! Shape:  ends [u32; 34]: where the list of each length ends, longest first, after a 0;
//!         addrs, hops [u32; n]: the prefixes of all lists, sorted in each, and their next hops
//! Cost:   lookup up to 33 searches of log2(n) reads; any change builds anew
//! Limits: IPv4
//! Wins:   nothing but to show how an algorithm is added. Weak: everything else

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fingerpost_lpm::head::{HEAD, Head, stamp};
use fingerpost_lpm::lookup::check_out;
use fingerpost_lpm::mem::region_named;
use fingerpost_lpm::{
    Addr, Algorithm, Change, FormatError, Grace, Limits, Lookup, Memory, Module, NextHopId, Origin,
    Region, Routes, Step, Table, UpdateError,
};

/// The rows of this file.
pub(super) const MODULE: Module = Module {
    v4: &[Algorithm {
        name: "by_length",
        summary: "a sorted list for each length, searched from the longest on",
        source: "Waldvogel et al., SIGCOMM 1997, without its hashing",
        origin: Origin::Published,
        limits: Limits { next_hop: u32::MAX, prefix_len: 32, note: "" },
        fitness: |_| 1,
        make,
        open: Some(open),
        kernel_layout: None,
    }],
    v6: &[],
};

const LAYOUT: u64 = stamp(b"fpbl", 4, 1);
/// Word of the head.
const PREFIXES: usize = 0;
/// A list for each length from 32 to 0, and where the first begins.
const ENDS: usize = 34;

/// Never changed once built, so relaxed loads will do: whoever hands it over orders the bytes.
struct Reader {
    head: Head<1>,
    /// Head, ends, addrs, hops.
    regions: [Region; 4],
}

impl Reader {
    /// The list of a length: its place in `addrs` and `hops`.
    fn list(&self, len: u8) -> std::ops::Range<usize> {
        let end = |i: usize| self.regions[1].u32s()[i].load(Relaxed) as usize;
        let i = 32 - usize::from(len);
        end(i)..end(i + 1)
    }

    fn find(&self, addr: u32, step: &mut dyn FnMut(&Step)) -> NextHopId {
        for len in (0..=32).rev() {
            let list = self.list(len);
            let key = addr & u32::mask(len);
            let addrs = &self.regions[2].u32s()[list.clone()];
            let at = addrs.partition_point(|start| start.load(Relaxed) < key);
            let found = addrs.get(at).is_some_and(|start| start.load(Relaxed) == key);
            let (offset, value) = (4 * (list.start + at), u64::from(key));
            step(&Step { region: "addrs", offset, value, note: "where it would stand" });
            if found {
                return NextHopId(self.regions[3].u32s()[list.start + at].load(Relaxed));
            }
        }
        NextHopId::NONE
    }
}

impl Lookup<u32> for Reader {
    fn lookup(&self, addr: u32) -> NextHopId {
        self.find(addr, &mut |_| ())
    }

    fn lookup_batch(&self, addrs: &[u32], out: &mut [NextHopId]) {
        // A real one searches for several side by side, so that their cache misses overlap.
        let out = check_out(addrs, out);
        addrs.iter().zip(out).for_each(|(&addr, out)| *out = self.lookup(addr));
    }

    fn explain(&self, addr: u32, step: &mut dyn FnMut(&Step)) -> NextHopId {
        self.find(addr, step)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("prefixes", self.head.get(PREFIXES));
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }
}

/// The writer keeps nothing: any change requires a rebuild.
struct Writer(Arc<Reader>);

impl Table<u32> for Writer {
    fn apply(
        &mut self,
        changes: &[Change<u32>],
        _: &dyn Routes<u32>,
        _: &mut dyn Grace,
    ) -> Result<(), UpdateError> {
        if changes.iter().all(|c| c.old == c.new) { Ok(()) } else { Err(UpdateError::Rebuild) }
    }

    fn publish(&mut self) -> Arc<dyn Lookup<u32>> {
        self.0.clone()
    }
}

fn make(
    routes: &dyn Routes<u32>,
    memory: &mut dyn Memory,
) -> Result<Box<dyn Table<u32>>, UpdateError> {
    let mut lists: Vec<Vec<(u32, NextHopId)>> = vec![Vec::new(); 33];
    routes.walk(0, u32::MAX, &mut |prefix, hop| {
        lists[32 - usize::from(prefix.len())].push((prefix.addr(), hop));
    });
    let count = routes.stats().prefixes;
    let head = Head::<1>::new(memory, LAYOUT)?;
    head.set(PREFIXES, count);
    let ends = memory.region("ends", 4 * ENDS)?;
    let addrs = memory.region("addrs", 4 * count)?;
    let hops = memory.region("hops", 4 * count)?;
    let mut at = 0;
    for (list, end) in lists.iter().zip(&ends.u32s()[1..]) {
        for &(addr, hop) in list {
            addrs.u32s()[at].store(addr, Relaxed);
            hops.u32s()[at].store(hop.0, Relaxed);
            at += 1;
        }
        end.store(u32::try_from(at).expect("IPv4 has fewer than 2^33 prefixes"), Relaxed);
    }
    let regions = [head.region().clone(), ends, addrs, hops];
    Ok(Box::new(Writer(Arc::new(Reader { head, regions }))))
}

/// Saved bytes may be damaged: every list must lie inside both arrays.
fn open(saved: &[Region]) -> Result<Arc<dyn Lookup<u32>>, FormatError> {
    let head = Head::<1>::open(saved, LAYOUT)?;
    let named = |name| region_named(saved, name);
    let regions = [head.region().clone(), named("ends")?, named("addrs")?, named("hops")?];
    let room = regions[2].u32s().len().min(regions[3].u32s().len());
    let ends = regions[1].u32s().get(..ENDS).ok_or(FormatError::Bounds("ends"))?;
    let ends: Vec<usize> = ends.iter().map(|end| end.load(Relaxed) as usize).collect();
    if !ends.is_sorted() || ends[ENDS - 1] > room {
        return Err(FormatError::Bounds(HEAD));
    }
    Ok(Arc::new(Reader { head, regions }))
}
