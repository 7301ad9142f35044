//! Bytes to routes, changes and lookups, for every row of the registry: what a fuzzer drives.
//!
//! The fuzz target, the soak without one and the replay of old findings all call [`drive`]. What it
//! does follows from the bytes alone, so a finding is one file.
//!
//! ```text
//! first byte   even: IPv4, odd: IPv6; half of it: 0 all rows, else which one. For most inputs
//!              the next small row stands in for a large one, as that is slow to build.
//! then         steps: a byte says how many routes (its low 5 bits; 0 in them is a word to the
//!              readers: hold on to everything, or let go), then the routes. The first is built.
//! a route      a byte for where: 0 mod 4 an address of its own (4 or 8 bytes), 1 an earlier prefix
//!              once more, 2 its address at another length, 3 the address behind its end; by a
//!              byte, which one; a byte for the length; a byte for the next hop
//! next hop     0 withdraws; 250 and up are counted from the algorithm's limit, 255 is past it
//! ```

use alloc::vec::Vec;

use super::Rng;
use super::rig::{HeldGrace, Rig};
use super::streams::probes;
use crate::addr::{Addr, Prefix};
use crate::error::UpdateError;
use crate::lookup::{Algorithm, Routes};
use crate::next_hop_id::NextHopId;
use crate::registry::Rows;

/// A table that takes more than this when empty is built for every so many inputs only.
const LARGE_BYTES: usize = 2 << 20;
/// Every so many of those that are for all rows.
const LARGE_SHARE: u64 = 64;
/// Every so many of those that are for this row.
const LARGE_OWN_SHARE: u64 = 16;

/// Shorter than this is short.
const SHORT: u8 = 12;

/// A route as the bytes name it.
type Wish<A> = (Prefix<A>, u8);

enum Step<A: Addr> {
    Apply(Vec<Wish<A>>),
    /// Readers hold on, or let go.
    Hold(bool),
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn addr<A: Addr>(&mut self) -> Option<A> {
        let bytes = if A::BITS == 32 { 4 } else { 8 };
        let mut addr = 0u128;
        for _ in 0..bytes {
            addr = addr << 8 | u128::from(self.byte()?);
        }
        // Eight bytes of an IPv6 address are its first four and its last four.
        let spread = if A::BITS == 32 { addr } else { addr >> 32 << 96 | addr & 0xffff_ffff };
        Some(A::from_u128(spread))
    }

    /// Any length, but one that the family lacks stands for a longer one: a short prefix rewrites all of a
    /// direct table, so most are not.
    fn len<A: Addr>(&mut self) -> Option<u8> {
        let byte = self.byte()?;
        let past = byte.checked_sub(A::BITS + 1);
        Some(past.map_or(byte, |past| SHORT + past % (A::BITS + 1 - SHORT)))
    }

    fn wish<A: Addr>(&mut self, seen: &mut Vec<Prefix<A>>) -> Option<Wish<A>> {
        let kind = self.byte()? % 4;
        let prefix = if kind == 0 || seen.is_empty() {
            let addr = self.addr::<A>()?;
            Prefix::masked(addr, self.len::<A>()?)
        } else {
            let old = seen[usize::from(self.byte()?) % seen.len()];
            match kind {
                1 => old,
                2 => Prefix::masked(old.last(), self.len::<A>()?),
                _ => Prefix::masked(old.last().next(), self.len::<A>()?),
            }
        };
        seen.push(prefix);
        Some((prefix, self.byte()?))
    }

    fn step<A: Addr>(&mut self, seen: &mut Vec<Prefix<A>>) -> Option<Step<A>> {
        let head = self.byte()?;
        if head & 31 == 0 {
            return Some(Step::Hold(head & 32 != 0));
        }
        let wishes: Vec<_> = (0..head & 31).map_while(|_| self.wish(seen)).collect();
        Some(Step::Apply(wishes))
    }
}

/// Runs the bytes on the algorithms that they name, each answer compared with the oracle.
///
/// # Panics
/// At the first wrong one.
pub fn drive(bytes: &[u8]) {
    match bytes.split_first() {
        Some((first, rest)) if first % 2 == 0 => drive_family::<u32>(first / 2, rest),
        Some((first, rest)) => drive_family::<u128>(first / 2, rest),
        None => {}
    }
}

fn drive_family<A: Rows>(which: u8, bytes: &[u8]) {
    let mut seen = Vec::new();
    let mut reader = Bytes(bytes);
    let mut steps = Vec::new();
    while let Some(step) = reader.step(&mut seen) {
        steps.push(step);
    }
    // Which of the large ones are worth their time follows from the bytes too.
    let mut hash = Rng::new(bytes.iter().fold(0, |sum, &b| Rng::new(sum ^ u64::from(b)).word()));
    let Some(which) = usize::from(which).checked_sub(1) else {
        for row in A::rows() {
            if !is_large(row) || hash.word().is_multiple_of(LARGE_SHARE) {
                run(row, &steps, &seen);
            }
        }
        return;
    };
    let large = hash.word().is_multiple_of(LARGE_OWN_SHARE);
    let mut from = A::rows().cycle().skip(which % A::rows().count()).take(A::rows().count());
    if let Some(row) = from.find(|row| large || !is_large(row)) {
        run(row, &steps, &seen);
    }
}

/// Whether an empty table of a row is large; found out once, as it takes a build.
pub(super) fn is_large<A: Addr>(row: &'static Algorithm<A>) -> bool {
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    static KNOWN: Mutex<BTreeMap<(u8, &'static str), bool>> = Mutex::new(BTreeMap::new());
    let key = (A::FAMILY, row.name);
    let mut known = KNOWN.lock().expect("an empty table builds");
    *known.entry(key).or_insert_with(|| {
        let rig = Rig::new(row, &[]).expect("an empty table builds");
        rig.lookup.regions().iter().map(crate::Region::bytes).sum::<usize>() > LARGE_BYTES
    })
}

/// What a wish means to a row.
fn route<A: Addr>(row: &Algorithm<A>, &(prefix, byte): &Wish<A>) -> (Prefix<A>, NextHopId) {
    let most = row.limits.next_hop;
    let hop = match byte {
        255 => most.saturating_add(1),
        250..255 => most.saturating_sub(u32::from(byte - 250)),
        small => most.min(u32::from(small)),
    };
    (prefix, NextHopId(hop))
}

fn run<A: Addr>(row: &Algorithm<A>, steps: &[Step<A>], seen: &[Prefix<A>]) {
    let limits = &row.limits;
    let is_past = |&(prefix, hop): &(Prefix<A>, NextHopId)| {
        !hop.is_none() && (hop.0 > limits.next_hop || prefix.len() > limits.prefix_len)
    };
    let mut steps = steps;
    let mut first = Vec::new();
    if let [Step::Apply(wishes), rest @ ..] = steps {
        steps = rest;
        first = wishes.iter().map(|wish| route(row, wish)).collect();
        first.retain(|route| !is_past(route) && !route.1.is_none());
    }
    let mut rig = match Rig::new(row, &first) {
        Ok(rig) => rig,
        // A limit of another kind, which the row has in words.
        Err(UpdateError::Limit { .. }) if !limits.note.is_empty() => return,
        Err(error) => panic!("{row:?}: {error}"),
    };
    let mut grace = HeldGrace::default();
    let mut held = false;
    for step in steps {
        let wishes = match step {
            Step::Hold(hold) => {
                held = *hold;
                grace.release();
                continue;
            }
            Step::Apply(wishes) => wishes,
        };
        let wanted: Vec<_> = wishes.iter().map(|wish| route(row, wish)).collect();
        match rig.apply(&wanted, &mut grace) {
            Ok(()) => limits.check(&rig.routes.stats()).expect("what is past a limit is refused"),
            Err(UpdateError::Limit { .. })
                if !limits.note.is_empty() || wanted.iter().any(is_past) => {}
            Err(error) => panic!("{row:?}: {error}"),
        }
        if !held {
            grace.release();
        }
        let addrs: Vec<A> = wanted.iter().flat_map(|&(prefix, _)| probes(prefix)).collect();
        rig.verify(&addrs, "after a step");
    }
    let mut addrs: Vec<A> = seen.iter().flat_map(|&prefix| probes(prefix)).collect();
    addrs.extend([A::MIN, A::MAX]);
    rig.verify(&addrs, "at the end");
    grace.release();
    let all: Vec<_> = rig.routes.iter().map(|(prefix, _)| (prefix, NextHopId::NONE)).collect();
    rig.apply(&all, &mut grace).expect("a withdrawal");
    rig.verify(&addrs, "withdrawn");
    assert!(rig.counters().contains(&("prefixes", 0)), "{row:?}: {:?}", rig.counters());
}

/// Bytes that make sense to [`drive`], at random: for soaks without a fuzzer.
pub fn random_input(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let byte = |rng: &mut Rng| u8::try_from(rng.below(256)).expect("below 256");
    // For all rows.
    bytes.push(u8::from(rng.chance(50)));
    let v4 = bytes[0] == 0;
    // A few places, so that prefixes nest.
    let few = rng.chance(60);
    for step in 0..rng.below(14) + 2 {
        let most = if step == 0 || rng.chance(20) { 31 } else { 3 };
        let count = rng.below(most + 1);
        bytes.push(u8::try_from(count | rng.below(8) << 5).expect("below 256"));
        for _ in 0..count {
            let kind = if step == 0 && few { rng.below(3) } else { rng.below(4) };
            bytes.push(u8::try_from(kind).expect("below 4"));
            let own = if v4 { 4 } else { 8 };
            for _ in 0..if kind == 0 { own } else { 1 } {
                let mixed = [0, 255, 10, byte(rng)][rng.below(4)];
                bytes.push(if few { mixed } else { byte(rng) });
            }
            if kind != 1 {
                // A short prefix rewrites all of a direct table, so most are not.
                let (least, most) = if v4 { (12, 32) } else { (16, 128) };
                let len = if rng.chance(6) {
                    rng.below(most + 1)
                } else {
                    least + rng.below(most + 1 - least)
                };
                bytes.push(u8::try_from(len).expect("at most 128"));
            }
            bytes.push([0, 1, 2, byte(rng)][rng.below(4)]);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_will_do() {
        drive(&[]);
        for byte in 0..=255u8 {
            let mut seen = Vec::<Prefix<u32>>::new();
            let bytes = [byte; 40];
            let mut reader = Bytes(&bytes);
            while reader.step(&mut seen).is_some() {}
            assert!(reader.0.is_empty());
        }
        drive(&[0, 3]);
        drive(&[1, 1, 0, 0x20, 1]);
        // One row, whichever number it has.
        for first in [2, 3, 254, 255] {
            drive(&[first, 1, 0, 10, 1, 2, 3, 5, 6, 7, 8, 24, 1]);
        }
    }

    #[test]
    fn random_inputs_are_read_to_their_ends() {
        let mut rng = Rng::new(1);
        let (mut routes, mut holds) = (0, 0);
        for _ in 0..200 {
            let bytes = random_input(&mut rng);
            let mut seen = Vec::<Prefix<u128>>::new();
            let mut reader = Bytes(&bytes[1..]);
            while let Some(step) = reader.step(&mut seen) {
                holds += usize::from(matches!(step, Step::Hold(_)));
            }
            routes += seen.len();
        }
        assert!(routes > 2000 && holds > 50, "{routes} routes, {holds} words");
    }
}
