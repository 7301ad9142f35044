//! Named sets of prefixes in one lookup: all sets that cover an address, at once.
//!
//! Source: the lists of "Surgical DDoS Filtering With Fast LPM" (Salopek, Zec, Mikuc, Vasic, IEEE Access 10, 2022), each
//! of which is a table of its own there. Here the tables are merged: a lookup costs what one of them costs.
//!
//! Shape:  each family has a store of its prefixes with the sets that list them, a bit a set, and a table by the
//!         registry's fittest algorithm, where a prefix has the bits of all prefixes that cover it. So the longest
//!         match is all there is to know.
//! Cost:   some 90 bytes a prefix of IPv4 and 150 of IPv6 beside the lookup structure. A change of a prefix is one of
//!         the structure for it and each prefix below it. A set that is exchanged is built aside and published by one
//!         store: packets find the old one or the new one whole.
//!
//! Of changes in place each address sees one step, from its old answer to its new: what a longer prefix decides is
//! written before what is above it, and withdrawn after it.

mod file;
#[cfg(test)]
mod tests;
mod text;

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fingerpost_lpm::{
    Addr, KernelReader, Lookup, LpmReader, LpmTable, MemoryMaker, NextHopId, Prefix, PrefixMap,
    RouteStore, UpdateError,
};
use fingerpost_route::AnyPrefix;

use crate::route_table::Family;

pub(crate) use file::{read_file, read_lines};
pub(crate) use text::read_prefix;

/// Which sets, a bit each.
pub(crate) type Mask = u16;

/// Sets at most: the bits of a mask, which structures hold as the number of a next hop.
pub(crate) const MOST_SETS: usize = 15;

/// Prefixes of both families.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct List {
    pub(crate) v4: Vec<Prefix<u32>>,
    pub(crate) v6: Vec<Prefix<u128>>,
}

impl List {
    pub(crate) fn push(&mut self, prefix: AnyPrefix) {
        match prefix {
            AnyPrefix::V4(prefix) => self.v4.push(prefix),
            AnyPrefix::V6(prefix) => self.v6.push(prefix),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

/// A set gets a prefix, or loses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edit<P> {
    pub(crate) set: usize,
    pub(crate) prefix: P,
    pub(crate) add: bool,
}

/// The sets of one element.
pub(crate) struct PrefixSets {
    names: Box<[Box<str>]>,
    /// Reader of the present state, for callers that must not wait for a pending change.
    present: Mutex<SetsReader>,
    writer: Mutex<Writer>,
}

struct Writer {
    v4: Half<u32>,
    v6: Half<u128>,
    /// The structures lie where the XDP datapath reads.
    shared: bool,
}

/// One family.
struct Half<A: Family> {
    /// Prefixes, and the sets that list them.
    listed: PrefixMap<A, Mask>,
    counts: [usize; MOST_SETS],
    /// Prefixes, and the sets that cover them.
    table: LpmTable<A>,
}

/// A worker's end.
#[derive(Clone)]
pub(crate) struct SetsReader {
    pub(crate) v4: LpmReader<u32>,
    pub(crate) v6: LpmReader<u128>,
}

/// What sets hold, in numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Structure {
    pub(crate) family: u8,
    pub(crate) algorithm: &'static str,
    /// Distinct prefixes of all sets.
    pub(crate) prefixes: usize,
    pub(crate) bytes: usize,
}

impl PrefixSets {
    /// Sets of these names and prefixes.
    ///
    /// # Errors
    /// No memory for a structure.
    ///
    /// # Panics
    /// With more than [`MOST_SETS`].
    pub(crate) fn new(sets: Vec<(Box<str>, List)>) -> Result<Self, UpdateError> {
        assert!(sets.len() <= MOST_SETS, "a mask has a bit a set");
        let (names, lists): (Vec<_>, Vec<_>) = sets.into_iter().unzip();
        let (v4, v6) = lists.into_iter().map(|list| (list.v4, list.v6)).unzip();
        let writer = Writer { v4: Half::new(v4)?, v6: Half::new(v6)?, shared: false };
        let present = SetsReader { v4: writer.v4.table.reader(), v6: writer.v6.table.reader() };
        Ok(Self { names: names.into(), present: present.into(), writer: writer.into() })
    }

    /// Puts the structures into memory of this maker, by algorithms that `reads` names: once, for the XDP datapath,
    /// which reads the same memory.
    ///
    /// # Errors
    /// No memory for a structure, or no such algorithm; all is as it was then, or the structure of one family moved.
    pub(crate) fn share(
        &self,
        memory: &MemoryMaker,
        reads: fn(&str) -> bool,
    ) -> Result<(), UpdateError> {
        let mut writer = self.writer();
        if !writer.shared {
            writer.v4.share(memory, reads)?;
            writer.v6.share(memory, reads)?;
            writer.shared = true;
        }
        drop(writer);
        self.follow();
        Ok(())
    }

    /// Brings readers in the kernel to the present structures, and to each that follows.
    pub(crate) fn set_kernel_readers(
        &self,
        v4: Box<dyn KernelReader<Arc<dyn Lookup<u32>>>>,
        v6: Box<dyn KernelReader<Arc<dyn Lookup<u128>>>>,
    ) {
        let mut writer = self.writer();
        writer.v4.table.set_kernel_reader(v4);
        writer.v6.table.set_kernel_reader(v6);
    }

    /// Names, by number.
    pub(crate) fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Reader for a worker.
    pub(crate) fn reader(&self) -> SetsReader {
        self.present().clone()
    }

    /// Carries out all edits, in order, or none. Returns how many of them changed something.
    ///
    /// # Errors
    /// No memory for a structure.
    pub(crate) fn apply(&self, edits: &[Edit<AnyPrefix>]) -> Result<usize, UpdateError> {
        let (v4, v6) = divide(edits);
        let done = self.writer().apply(&v4, &v6, false);
        self.follow();
        done
    }

    /// Exchanges all prefixes of a set at once. How many came or went.
    ///
    /// # Errors
    /// No memory for a structure.
    pub(crate) fn replace(&self, set: usize, list: List) -> Result<usize, UpdateError> {
        let mut writer = self.writer();
        let v4 = writer.v4.difference(set, list.v4);
        let v6 = writer.v6.difference(set, list.v6);
        let done = writer.apply(&v4, &v6, true);
        self.follow();
        done
    }

    /// Lets go of a structure that was replaced.
    fn follow(&self) {
        let mut present = self.present();
        let _ = present.v4.pin();
        let _ = present.v6.pin();
    }

    /// The sets that cover an address.
    pub(crate) fn lookup(&self, addr: IpAddr) -> Mask {
        let mut present = self.present();
        mask(match addr {
            IpAddr::V4(addr) => present.v4.lookup(addr.to_bits()),
            IpAddr::V6(addr) => present.v6.lookup(addr.to_bits()),
        })
    }

    /// The longest prefix of a set that covers an address.
    pub(crate) fn covering(&self, set: usize, addr: IpAddr) -> Option<AnyPrefix> {
        let writer = self.writer();
        match addr {
            IpAddr::V4(addr) => writer.v4.covering(set, addr.to_bits()).map(AnyPrefix::V4),
            IpAddr::V6(addr) => writer.v6.covering(set, addr.to_bits()).map(AnyPrefix::V6),
        }
    }

    /// Prefixes of a set, by address, then length.
    pub(crate) fn list(&self, set: usize) -> List {
        let writer = self.writer();
        List { v4: writer.v4.list(set), v6: writer.v6.list(set) }
    }

    /// How many it has, of IPv4 and of IPv6.
    pub(crate) fn count(&self, set: usize) -> [usize; 2] {
        let writer = self.writer();
        [writer.v4.counts[set], writer.v6.counts[set]]
    }

    /// The structures.
    pub(crate) fn structures(&self) -> [Structure; 2] {
        let writer = self.writer();
        [writer.v4.structure(), writer.v6.structure()]
    }

    /// Held for a lookup, or to make one more.
    fn present(&self) -> MutexGuard<'_, SetsReader> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A change is whole or not at all, whatever panicked beside it.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Mask of an answer of a structure of sets.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "structures of sets hold masks")]
pub(crate) fn mask(answer: NextHopId) -> Mask {
    answer.0 as Mask
}

type Edits<A> = Vec<Edit<Prefix<A>>>;

fn divide(edits: &[Edit<AnyPrefix>]) -> (Edits<u32>, Edits<u128>) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for &Edit { set, prefix, add } in edits {
        match prefix {
            AnyPrefix::V4(prefix) => v4.push(Edit { set, prefix, add }),
            AnyPrefix::V6(prefix) => v6.push(Edit { set, prefix, add }),
        }
    }
    (v4, v6)
}

impl Writer {
    fn apply(
        &mut self,
        v4: &[Edit<Prefix<u32>>],
        v6: &[Edit<Prefix<u128>>],
        at_once: bool,
    ) -> Result<usize, UpdateError> {
        let before = self.v4.apply(v4, at_once)?;
        match self.v6.apply(v6, at_once) {
            Ok(others) => Ok(before.len() + others.len()),
            Err(error) => {
                self.v4.undo(before, at_once);
                Err(error)
            }
        }
    }
}

/// What prefixes had, in the order in which they lost it.
type Before<A> = Vec<(Prefix<A>, Mask)>;

impl<A: Family> Half<A> {
    fn new(lists: Vec<Vec<Prefix<A>>>) -> Result<Self, UpdateError> {
        let mut all: Vec<(Prefix<A>, Mask)> = Vec::with_capacity(lists.iter().map(Vec::len).sum());
        for (set, list) in lists.into_iter().enumerate() {
            all.extend(list.into_iter().map(|prefix| (prefix, 1 << set)));
        }
        // In order, so that the stores are filled from one end to the other.
        all.sort_unstable();
        all.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 |= if same { next.1 } else { 0 };
            same
        });
        let (mut listed, mut counts) = (PrefixMap::new(), [0; MOST_SETS]);
        for (prefix, mask) in all {
            listed.insert(prefix, mask);
            count(&mut counts, 0, mask);
        }
        let mut covered = RouteStore::new();
        below(&listed, Prefix::ALL, &mut |prefix, mask| {
            covered.insert(prefix, NextHopId(mask.into()));
        });
        let table = LpmTable::build_with(A::rows().collect(), covered)?;
        Ok(Self { listed, counts, table })
    }

    fn share(&mut self, memory: &MemoryMaker, reads: fn(&str) -> bool) -> Result<(), UpdateError> {
        self.table.share(memory.clone(), A::rows().filter(|row| reads(row.name)).collect())
    }

    /// Carries out edits, all or none. What the prefixes had that were changed.
    fn apply(
        &mut self,
        edits: &[Edit<Prefix<A>>],
        at_once: bool,
    ) -> Result<Before<A>, UpdateError> {
        let mut before = Vec::with_capacity(edits.len());
        for &Edit { set, prefix, add } in edits {
            let had = self.listed.get(prefix).copied().unwrap_or(0);
            let has = if add { had | 1 << set } else { had & !(1 << set) };
            if has != had {
                self.put(prefix, has);
                before.push((prefix, had));
            }
        }
        match self.carry_out(&before, at_once) {
            Ok(()) => Ok(before),
            Err(error) => {
                for (prefix, had) in before.into_iter().rev() {
                    self.put(prefix, had);
                }
                Err(error)
            }
        }
    }

    /// Takes changes back that were carried out.
    fn undo(&mut self, before: Before<A>, at_once: bool) {
        let mut changed = Vec::with_capacity(before.len());
        for (prefix, had) in before.into_iter().rev() {
            changed.push((prefix, self.listed.get(prefix).copied().unwrap_or(0)));
            self.put(prefix, had);
        }
        // No memory for what there was a moment ago: the structure lags behind the store until the next change below
        // the same prefixes, which is written from the store.
        let _ = self.carry_out(&changed, at_once);
    }

    fn put(&mut self, prefix: Prefix<A>, mask: Mask) {
        let had =
            if mask == 0 { self.listed.remove(prefix) } else { self.listed.insert(prefix, mask) };
        count(&mut self.counts, had.unwrap_or(0), mask);
    }

    /// Brings the table up to what is listed, where these prefixes changed.
    fn carry_out(
        &mut self,
        changed: &[(Prefix<A>, Mask)],
        at_once: bool,
    ) -> Result<(), UpdateError> {
        let mut prefixes: Vec<Prefix<A>> = changed.iter().map(|(prefix, _)| *prefix).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let (mut wanted, mut gone) = (Vec::new(), Vec::new());
        let mut done: Option<Prefix<A>> = None;
        for prefix in prefixes {
            if self.listed.get(prefix).is_none() && self.table.get(prefix).is_some() {
                gone.push((prefix, NextHopId::NONE));
            }
            if done.is_some_and(|done| done.covers(prefix)) {
                continue;
            }
            done = Some(prefix);
            below(&self.listed, prefix, &mut |prefix, mask| {
                let mask = NextHopId(mask.into());
                if self.table.get(prefix) != Some(mask) {
                    wanted.push((prefix, mask));
                }
            });
        }
        // See the head of this file.
        wanted.sort_by_key(|(prefix, _)| Reverse(prefix.len()));
        gone.sort_by_key(|(prefix, _)| prefix.len());
        wanted.extend(gone);
        match (wanted.is_empty(), at_once) {
            (true, _) => Ok(()),
            (false, true) => self.table.apply_at_once(&wanted),
            (false, false) => self.table.apply(&wanted),
        }
    }

    /// What makes a set into this list.
    fn difference(&self, set: usize, mut list: Vec<Prefix<A>>) -> Edits<A> {
        list.sort_unstable();
        list.dedup();
        let old = self.list(set);
        let (mut old, mut new) = (old.into_iter().peekable(), list.into_iter().peekable());
        let mut edits = Vec::new();
        // Both are in order.
        loop {
            let (prefix, add) = match (old.peek(), new.peek()) {
                (None, None) => return edits,
                (Some(a), Some(b)) if a == b => {
                    old.next();
                    new.next();
                    continue;
                }
                (Some(&a), b) if b.is_none_or(|b| a < *b) => {
                    old.next();
                    (a, false)
                }
                (_, Some(&b)) => {
                    new.next();
                    (b, true)
                }
                (Some(_), None) => unreachable!("it is before the end"),
            };
            edits.push(Edit { set, prefix, add });
        }
    }

    fn list(&self, set: usize) -> Vec<Prefix<A>> {
        let all = self.listed.iter().filter(|(_, mask)| **mask & 1 << set != 0);
        let mut list = Vec::with_capacity(self.counts[set]);
        list.extend(all.map(|(prefix, _)| prefix));
        list
    }

    fn covering(&self, set: usize, addr: A) -> Option<Prefix<A>> {
        let all = self.listed.covering(Prefix::masked(addr, A::BITS));
        let of_set = all.filter(|(_, mask)| **mask & 1 << set != 0).map(|(prefix, _)| prefix);
        of_set.max_by_key(|prefix| prefix.len())
    }

    fn structure(&self) -> Structure {
        Structure {
            family: A::FAMILY,
            algorithm: self.table.algorithm().name,
            prefixes: self.table.len(),
            bytes: self.table.structure().bytes(),
        }
    }
}

fn count(counts: &mut [usize; MOST_SETS], had: Mask, has: Mask) {
    for (set, count) in counts.iter_mut().enumerate() {
        match (had & 1 << set != 0, has & 1 << set != 0) {
            (false, true) => *count += 1,
            (true, false) => *count -= 1,
            _ => {}
        }
    }
}

/// Each prefix that `root` covers, by address, then length, and the sets that cover it.
fn below<A: Addr>(
    listed: &PrefixMap<A, Mask>,
    root: Prefix<A>,
    each: &mut dyn FnMut(Prefix<A>, Mask),
) {
    let above = listed.covering(root).filter(|(prefix, _)| *prefix != root);
    let above = above.fold(0, |sum, (_, mask)| sum | mask);
    // Those that cover the present one.
    let mut open: Vec<(Prefix<A>, Mask)> = Vec::new();
    for (prefix, own) in listed.covered(root) {
        while open.last().is_some_and(|(outer, _)| !outer.covers(prefix)) {
            open.pop();
        }
        let mask = own | open.last().map_or(above, |(_, mask)| *mask);
        open.push((prefix, mask));
        each(prefix, mask);
    }
}
