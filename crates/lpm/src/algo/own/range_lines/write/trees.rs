//! Trees of lines and the tails behind them: laid from the ranges of a /32, and unlinked again.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::{iter, mem};

use super::super::{DIRECT, FAN, HEAP, LINE_UNITS, TAIL, UNUSED, WHOLE, Width, tail_key};
use super::{Full, Writer};

impl<W: Width> Writer<W> {
    /// The lines of a /32, from the ranges that start in it and what serves its start otherwise.
    pub(super) fn tree(&mut self, carry: u32, group: &[(u128, u32)]) -> Result<u32, Full> {
        let mut ranges = mem::take(&mut self.ranges);
        ranges.clear();
        let entry = self
            .ranges_of(carry, group, (0, LAST_PART), &mut ranges)
            .and_then(|()| self.lay(&ranges));
        self.ranges = ranges;
        entry
    }

    /// The entry of a /32 that had `old`, when its /48s `first` to `last` have what starts at `edges`.
    /// The same if nothing changes, else what `old` leads to is unlinked.
    pub(super) fn splice(
        &mut self,
        old: u32,
        edges: &[(u128, u32)],
        (first, last): (u32, u32),
    ) -> Result<u32, Full> {
        let (mut before, mut ranges) = (mem::take(&mut self.before), mem::take(&mut self.ranges));
        before.clear();
        ranges.clear();
        let lines = self.ranges_at(old, &mut before);
        let kept = before.partition_point(|range| range.0 < first);
        ranges.extend_from_slice(&before[..kept]);
        let told = self.ranges_of(edges[0].1, edges, (first, last), &mut ranges);
        // What was there before and behind has no equal neighbors, so only what meets the new is looked at.
        let seam = kept.saturating_sub(1);
        let mut after = before.len();
        if last < LAST_PART {
            after = before.partition_point(|range| range.0 <= last + 1);
            ranges.push((last + 1, before[after - 1].1));
        }
        let next = before.get(after).copied();
        ranges.extend(next);
        merge_from::<W>(&mut ranges, seam);
        if next.is_some() {
            ranges.extend_from_slice(&before[after + 1..]);
        }
        let entry = match (told, &ranges[..]) {
            (Err(full), _) => Err(full),
            (Ok(()), same) if same == before => Ok(old),
            (Ok(()), &[(_, hop)]) if hop & W::DEEP == 0 => Ok(DIRECT | hop),
            (Ok(()), ranges) => self.lay(ranges),
        };
        if entry.is_ok_and(|entry| entry != old) {
            self.drop_all_lines(old, lines);
            let inside = before[kept..].iter().take_while(|range| range.0 <= last);
            for &(_, result) in inside {
                if result & W::DEEP != 0 {
                    self.drop_tail(result & !W::DEEP);
                }
            }
        }
        (self.before, self.ranges) = (before, ranges);
        entry
    }

    /// Ranges of /48s `first` to `last`.
    fn ranges_of(
        &mut self,
        mut carry: u32,
        group: &[(u128, u32)],
        (first, last): (u32, u32),
        ranges: &mut Vec<(u32, u32)>,
    ) -> Result<(), Full> {
        // From this /48 on `carry` is to be told, unless something else starts there.
        let mut due = Some(first);
        for inside in group.chunk_by(|a, b| part_of(a.0) == part_of(b.0)) {
            let part = part_of(inside[0].0);
            if let Some(due) = due
                && due < part
            {
                ranges.push((due, carry));
            }
            let deep = inside.len() > 1 || inside[0].0 << 48 != 0;
            let result = if deep { W::DEEP | self.new_tail(carry, inside)? } else { inside[0].1 };
            ranges.push((part, result));
            carry = inside[inside.len() - 1].1;
            due = deep.then_some(part + 1);
        }
        if let Some(due) = due
            && due <= last
        {
            ranges.push((due, carry));
        }
        Ok(())
    }

    fn new_tail(&mut self, carry: u32, inside: &[(u128, u32)]) -> Result<u32, Full> {
        let outer = (inside[0].0 << 48 != 0).then_some((inside[0].0 >> 80 << 80, carry));
        let count = inside.len() + usize::from(outer.is_some());
        let number = self.numbers.pop().ok_or(Full::Tails)?;
        self.fresh.push((number, 0));
        let size = u32::try_from(1 + 2 * count).map_err(|_| Full::Heap)?;
        let unit = self.take(size)?;
        self.tally.tails += 1;
        let units = &self.reader.regions[HEAP].u64s()[unit as usize..];
        units[0].store(count as u64, Relaxed);
        for (index, &(start, hop)) in outer.iter().chain(inside).enumerate() {
            let (high, low) = tail_key(start);
            units[1 + index].store(high, Relaxed);
            units[1 + count + index].store(low << 48 | u64::from(hop), Relaxed);
        }
        // Relaxed: readers come here by a result that is published later.
        self.reader.regions[TAIL].u32s()[number as usize].store(unit, Relaxed);
        Ok(number)
    }

    /// Writes ranges as lines.
    fn lay(&mut self, ranges: &[(u32, u32)]) -> Result<u32, Full> {
        let leaves = ranges.len().div_ceil(W::RANGES);
        let depth = (0..3).find(|&depth| leaves <= FAN.pow(depth)).unwrap_or(3);
        let lines = lines_of(leaves, depth as usize);
        let unit = self.take(u32::try_from(lines).expect("at most 2^16") * LINE_UNITS)?;
        self.tally.lines += lines;
        let line = unit / LINE_UNITS;
        self.lay_at(line as usize, depth as usize, ranges);
        Ok(line << 2 | depth)
    }

    fn lay_at(&self, line: usize, depth: usize, ranges: &[(u32, u32)]) {
        if depth == 0 {
            self.put_thresholds(line, W::FIRST, ranges[1..].iter().map(|range| range.0));
            for (index, &(_, result)) in ranges.iter().enumerate() {
                W::put(self.reader.view(), line, index, result);
            }
            return;
        }
        let each = W::RANGES * FAN.pow(u32::try_from(depth - 1).expect("at most 2"));
        self.put_thresholds(line, 0, ranges.chunks(each).skip(1).map(|ranges| ranges[0].0));
        for (index, ranges) in ranges.chunks(each).enumerate() {
            self.lay_at(line + 1 + index * WHOLE[depth - 1], depth - 1, ranges);
        }
    }

    /// The starts of all ranges of a line but the first, from its half `first` on. A line is made
    /// beside the readers, so whole units are stored: a fourth of the stores.
    fn put_thresholds(&self, line: usize, first: usize, starts: impl Iterator<Item = u32>) {
        let mut halves = [UNUSED; 32];
        for (half, start) in halves[first..].iter_mut().zip(starts) {
            *half = u16::try_from(start - 1).expect("a range starts at 1 to 2^16 - 1");
        }
        let units = &self.reader.regions[HEAP].u64s()[8 * line..8 * line + 8];
        let (four, _) = halves.as_chunks::<4>();
        for (unit, &[a, b, c, d]) in units.iter().zip(four).skip(first / 4) {
            let bytes = [a, b, c, d].map(u16::to_ne_bytes);
            unit.store(
                u64::from_ne_bytes(*bytes.as_flattened().first_chunk().expect("8")),
                Relaxed,
            );
        }
    }

    /// Unlinks the lines of a node's entry and their tails, if it has any.
    pub(super) fn drop_tree(&mut self, entry: u32) {
        if entry & DIRECT != 0 {
            return;
        }
        let mut ranges = mem::take(&mut self.before);
        ranges.clear();
        let lines = self.ranges_at(entry, &mut ranges);
        for &(_, result) in &ranges {
            if result & W::DEEP != 0 {
                self.drop_tail(result & !W::DEEP);
            }
        }
        self.before = ranges;
        self.drop_all_lines(entry, lines);
    }

    fn drop_all_lines(&mut self, entry: u32, lines: usize) {
        if lines > 0 {
            self.tally.lines -= lines;
            let units = u32::try_from(lines).expect("what was laid") * LINE_UNITS;
            self.unlink((entry >> 2) * LINE_UNITS, units);
        }
    }

    /// All ranges of a node's entry; the number of its lines.
    fn ranges_at(&self, entry: u32, ranges: &mut Vec<(u32, u32)>) -> usize {
        if entry & DIRECT != 0 {
            ranges.push((0, entry & !DIRECT));
            return 0;
        }
        self.read(entry as usize >> 2, entry as usize & 3, 0, ranges)
    }

    /// The ranges of a tree of which the first starts at `start`; the number of its lines.
    fn read(&self, line: usize, depth: usize, start: u32, ranges: &mut Vec<(u32, u32)>) -> usize {
        let halves = &self.reader.regions[HEAP].u16s()[32 * line..32 * line + 32];
        if depth == 0 {
            let view = self.reader.view();
            let mut leaf = [(start, W::result(view, line, 0)); 32];
            let mut count = 1;
            for (range, half) in leaf[1..].iter_mut().zip(&halves[W::FIRST..]) {
                let half = half.load(Relaxed);
                if half == UNUSED {
                    break;
                }
                *range = (u32::from(half) + 1, W::result(view, line, count));
                count += 1;
            }
            ranges.extend_from_slice(&leaf[..count]);
            return 1;
        }
        let thresholds = halves.iter().map(|half| half.load(Relaxed));
        let starts = thresholds.take_while(|&half| half != UNUSED).map(|half| u32::from(half) + 1);
        let starts = iter::once(start).chain(starts);
        let mut lines = 1;
        for (child, start) in starts.enumerate() {
            lines += self.read(line + 1 + child * WHOLE[depth - 1], depth - 1, start, ranges);
        }
        lines
    }

    fn drop_tail(&mut self, number: u32) {
        let unit = self.reader.regions[TAIL].u32s()[number as usize].load(Relaxed);
        let count = self.reader.regions[HEAP].u64s()[unit as usize].load(Relaxed);
        self.tally.tails -= 1;
        self.unlink(unit, u32::try_from(1 + 2 * count).expect("what was taken"));
        self.stale.push((number, 0));
    }
}

/// Merges adjacent ranges with one answer, from `seam` on.
fn merge_from<W: Width>(ranges: &mut Vec<(u32, u32)>, seam: usize) {
    let mut kept = seam;
    for at in seam + 1..ranges.len() {
        let next = ranges[at];
        if next.1 != ranges[kept].1 || next.1 & W::DEEP != 0 {
            kept += 1;
            ranges[kept] = next;
        }
    }
    ranges.truncate(kept + 1);
}

/// The last /48 of a /32.
const LAST_PART: u32 = 0xffff;

/// The /48 of an address in its /32.
#[allow(clippy::cast_possible_truncation, reason = "16 bits")]
pub(super) fn part_of(addr: u128) -> u32 {
    (addr >> 80) as u32 & 0xffff
}

/// Lines of a tree of `leaves` leaves.
fn lines_of(leaves: usize, depth: usize) -> usize {
    if depth == 0 {
        return 1;
    }
    // Leaves of a whole child.
    let each = FAN.pow(u32::try_from(depth - 1).expect("at most 2"));
    let rest = leaves % each;
    let last = if rest > 0 { lines_of(rest, depth - 1) } else { 0 };
    1 + leaves / each * WHOLE[depth - 1] + last
}

#[cfg(test)]
mod tests {
    use super::super::super::{Narrow, Wide};
    use super::super::tests::{built, verify};
    use super::*;
    use crate::addr::Prefix;
    use crate::error::UpdateError;
    use crate::lookup::{Change, NoReaders, Table};
    use crate::next_hop_id::NextHopId;
    use crate::routes::RouteStore;
    use crate::simd::Simd;
    use crate::testing::Rng;

    /// Numbers of ranges in one /32 around those at which a tree becomes deeper.
    fn depths<W: Width>() {
        let block: u128 = 0x2001_0db8 << 96;
        let full: [usize; 3] = [0, 1, 2].map(|depth| W::RANGES * FAN.pow(depth));
        let counts = full.iter().flat_map(|&count| [count - 1, count, count + 1]);
        for count in counts.chain([1 << 16]) {
            let mut routes = RouteStore::<u128>::new();
            // One of the ranges is before the first route.
            for index in 1..count as u128 {
                let hop = NextHopId(1 + u32::from(index % 2 == 0));
                routes.insert(Prefix::masked(block | index << 80, 48), hop);
            }
            if count == 1 << 16 {
                routes.insert(Prefix::masked(block, 48), NextHopId(9));
            } else if count > 1 {
                // And one after the last.
                routes.insert(Prefix::masked(block | 0xffff << 80, 48), NextHopId(9));
                routes.remove(Prefix::masked(block | (count as u128 - 1) << 80, 48));
            }
            let mut writer = built::<W>(&routes, Simd::detect());
            let when = alloc::format!("{count} ranges");
            verify(&writer, &routes, &when);
            let leaves = writer.tally.lines;
            assert!(leaves >= count / W::RANGES, "{when}: {leaves} lines");
            // All of it is found again when it goes.
            let changes: Vec<_> = routes
                .iter()
                .map(|(prefix, &old)| Change { prefix, old, new: NextHopId::NONE })
                .collect();
            let empty = RouteStore::new();
            match writer.apply(&changes, &empty, &mut NoReaders) {
                Ok(()) => {
                    let fresh = built::<W>(&empty, Simd::detect());
                    assert_eq!(writer.tally, fresh.tally, "{when}");
                }
                error => assert_eq!((error, W::DEEP), (Err(UpdateError::Rebuild), DIRECT)),
            }
        }
    }

    #[test]
    fn trees_of_every_depth() {
        depths::<Narrow>();
        depths::<Wide>();
    }

    /// Random changes in one /32 against a table that is made anew.
    fn splices<W: Width>() {
        let block: u128 = 0x2001_0db8 << 96;
        let mut rng = Rng::new(4);
        let mut routes = RouteStore::<u128>::new();
        routes.insert(Prefix::masked(block, 20), NextHopId(5));
        let mut writer = built::<W>(&routes, Simd::detect());
        for round in 0..400 {
            let len = [33, 36, 40, 44, 47, 48, 48, 48, 49, 64, 128][rng.below(11)];
            // Few places, so that ranges meet, merge and part; both ends among them.
            let part = [0, 0xffff, rng.below(24), rng.below(1 << 16)][rng.below(4)] as u128;
            let low = [0, u128::MAX >> 48, rng.addr()][rng.below(3)];
            let prefix = Prefix::masked(block | part << 80 | low >> 48, len);
            let old = routes.remove(prefix).unwrap_or_default();
            let gone = !old.is_none() && rng.chance(70);
            let new = NextHopId(if gone { 0 } else { 5 + u32::from(rng.chance(60)) });
            if !gone {
                routes.insert(prefix, new);
            }
            let change = Change { prefix, old, new };
            writer.apply(&[change], &routes, &mut NoReaders).expect("there is room");
            let anew = built::<W>(&routes, Simd::detect());
            assert_eq!(writer.tally, anew.tally, "round {round}: {change:?}");
            verify(&writer, &routes, &alloc::format!("round {round}"));
        }
        assert!(writer.tally.lines > 3 && writer.tally.tails > 3, "{:?}", writer.tally);
    }

    #[test]
    fn a_part_is_spliced_as_if_all_were_made_anew() {
        splices::<Narrow>();
        splices::<Wide>();
    }
}
