//! How a group's members share its slots: pure arithmetic, in two modes.
//!
//! A packet of flow hash h takes slot `h * slots >> 32`, so slots need not be a power of two.
//!
//! [`GroupMode::Slots`] is FreeBSD's arithmetic: as many slots as the weights need to come out exactly,
//! at most 64, filled member by member. A changed group is laid out anew, so most flows may move.
//!
//! [`GroupMode::Resilient`] is the default: 256 buckets or more, and each remembers its owner. When
//! members come, go or change weight, a bucket stays with its owner as long as that has a claim to it; a
//! member that comes back finds the buckets that it left ([`Buckets`]).
//!
//! Source: slots: FreeBSD sys/net/route/nhgrp_ctl.c, described in its order of steps; a member to which it
//!         gives no slot at all gets one here. Shares of buckets: the method of Webster (highest averages,
//!         divisors 1, 3, 5, ..) with one for each member first. Largest remainders, the usual method, can
//!         take a bucket from a member because another one left; a method of divisors cannot (Balinski
//!         and Young, Fair Representation, 1982).
//! Cost:   some microseconds for 256 buckets and a few members

/// How groups are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GroupMode {
    /// FreeBSD's: exact for small weights, up to 64 slots, flows move when a group changes.
    Slots,
    /// Many buckets; only flows of members that left or shrank move.
    #[default]
    Resilient,
}

impl GroupMode {
    /// What it is called in configuration and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Slots => "slots",
            Self::Resilient => "resilient",
        }
    }
}

/// Most slots of [`GroupMode::Slots`], as in FreeBSD.
pub const MAX_SLOTS: u32 = 64;
/// Fewest buckets of [`GroupMode::Resilient`]: with 16 members a share is off by 3 % at most.
pub const MIN_BUCKETS: u32 = 256;
/// Most buckets: 16 KiB a group.
pub const MAX_BUCKETS: u32 = 4096;
/// Buckets a member when there are many.
const BUCKETS_A_MEMBER: u32 = 16;

/// FreeBSD's number of slots for weights in ascending order: their total divided by the least step from
/// one to the next (the first is a step from 0), if that divides the total and every weight and gives at
/// most 64; else 64. At least one a weight, which is more than 64 only for more members than FreeBSD has.
pub fn slot_count(weights: &[u32]) -> u32 {
    let weights = weights.iter().map(|&weight| weight.max(1));
    let mut unit = 0;
    let mut before = 0;
    for weight in weights.clone() {
        if weight > before && (unit == 0 || weight - before < unit) {
            unit = weight - before;
        }
        before = weight;
    }
    let total: u64 = weights.clone().map(u64::from).sum();
    let divides = weights.clone().all(|weight| weight % unit == 0);
    let exact = if divides { total / u64::from(unit.max(1)) } else { u64::from(MAX_SLOTS) };
    let count = u32::try_from(exact).unwrap_or(MAX_SLOTS).min(MAX_SLOTS);
    count.max(u32::try_from(weights.len()).expect("groups have some thousand members at most"))
}

/// How many slots each weight gets, in FreeBSD's mode: for weights in ascending order `weight * slots
/// left / weight left`, but never none.
pub fn slot_shares(weights: &[u32]) -> Vec<u32> {
    let slots = slot_count(weights);
    let mut shares = Vec::with_capacity(weights.len());
    let mut weight_left: u64 = weights.iter().map(|&w| u64::from(w.max(1))).sum();
    let mut left = u64::from(slots);
    for &weight in weights {
        let weight = u64::from(weight.max(1));
        let share = weight * left / weight_left;
        weight_left -= weight;
        left -= share;
        shares.push(u32::try_from(share).expect("at most the slots"));
    }
    if shares.contains(&0) { bucket_shares(weights, slots) } else { shares }
}

/// How many buckets a group of so many members has.
pub fn bucket_count(members: usize) -> u32 {
    let members = u32::try_from(members).unwrap_or(MAX_BUCKETS).min(MAX_BUCKETS);
    (members * BUCKETS_A_MEMBER).next_power_of_two().clamp(MIN_BUCKETS, MAX_BUCKETS)
}

/// How many of `buckets` each weight gets: one, and then as near to its share as whole numbers come. When
/// a weight leaves or sinks, no other one's share sinks; when one comes or rises, no other one's rises.
///
/// # Panics
/// With more weights than buckets.
pub fn bucket_shares(weights: &[u32], buckets: u32) -> Vec<u32> {
    assert!(weights.len() <= buckets as usize, "every member has a bucket");
    let weight = |i: usize| u64::from(weights[i].max(1));
    let total: u64 = (0..weights.len()).map(weight).sum();
    let mut shares: Vec<u64> = (0..weights.len())
        .map(|i| ((2 * weight(i) * u64::from(buckets) + total) / (2 * total)).max(1))
        .collect();
    // Rounding gives some too many or too few in all: the claims next in rank decide. A member's claim to
    // its n-th bucket ranks as weight / (2 n - 1), the first one above all, the earlier member at a tie.
    let above = |i: usize, n: u64, j: usize, m: u64| {
        let (a, b) = (weight(i) * (2 * m - 1), weight(j) * (2 * n - 1));
        a > b || a == b && i < j
    };
    let mut given: u64 = shares.iter().sum();
    while !shares.is_empty() && given < u64::from(buckets) {
        let next = (0..shares.len())
            .reduce(|i, j| if above(j, shares[j] + 1, i, shares[i] + 1) { j } else { i })
            .expect("there are members");
        shares[next] += 1;
        given += 1;
    }
    while given > u64::from(buckets) {
        let last = (0..shares.len())
            .filter(|&i| shares[i] > 1)
            .reduce(|i, j| if above(j, shares[j], i, shares[i]) { i } else { j })
            .expect("there are no more members than buckets");
        shares[last] -= 1;
        given -= 1;
    }
    shares.into_iter().map(|s| u32::try_from(s).expect("at most the buckets")).collect()
}

const NOBODY: u16 = u16::MAX;

/// The buckets of one group, through all its changes.
///
/// A bucket has an owner, and a home: the member that it belonged to before that one left. A member that
/// comes back is given the buckets whose home it is, so the flap of a link moves that link's flows twice
/// and no other flow.
#[derive(Clone, Debug)]
pub struct Buckets<M> {
    /// Every member that is an owner or a home.
    known: Vec<M>,
    owner: Vec<u16>,
    home: Vec<u16>,
}

impl<M> Default for Buckets<M> {
    fn default() -> Self {
        Self { known: Vec::new(), owner: Vec::new(), home: Vec::new() }
    }
}

impl<M: Copy + Eq> Buckets<M> {
    /// Buckets, a power of two; 0 before the first members.
    pub fn len(&self) -> usize {
        self.owner.len()
    }

    /// Whether there never were members.
    pub fn is_empty(&self) -> bool {
        self.owner.is_empty()
    }

    /// The owner of each bucket; none while there are no members.
    pub fn owners(&self) -> impl Iterator<Item = Option<M>> + '_ {
        self.owner.iter().map(|&owner| self.known.get(usize::from(owner)).copied())
    }

    /// What `of` makes of the owner of each bucket, in order; nothing while there are no members.
    pub fn lay<T: Copy>(&self, of: impl FnMut(&M) -> T) -> Vec<T> {
        let made: Vec<T> = self.known.iter().map(of).collect();
        self.owner.iter().filter_map(|&owner| made.get(usize::from(owner)).copied()).collect()
    }

    /// Goes through the names of all members; what is renamed keeps its buckets.
    pub fn rename(&mut self, rename: impl FnMut(&mut M)) {
        self.known.iter_mut().for_each(rename);
    }

    /// Gives the buckets to these members by weight, each named once. There are more of them than before
    /// when there are many more members: then each is split into equal ones, so that no flow notices.
    /// Members past the greatest number of buckets get none.
    pub fn arrange(&mut self, members: &[(M, u32)]) {
        let members = &members[..members.len().min(MAX_BUCKETS as usize)];
        if members.is_empty() {
            self.owner.fill(NOBODY);
            return;
        }
        self.split(bucket_count(members.len()) as usize);
        let weights: Vec<u32> = members.iter().map(|&(_, weight)| weight).collect();
        let buckets = u32::try_from(self.len()).expect("at most 4,096");
        let shares = bucket_shares(&weights, buckets);
        // Claims by number of the known member: how many buckets are still due to it.
        let mut due = vec![0; self.known.len()];
        for (&(member, _), &share) in members.iter().zip(&shares) {
            let at = self.known.iter().position(|&k| k == member).unwrap_or_else(|| {
                self.known.push(member);
                due.push(0);
                self.known.len() - 1
            });
            due[at] = i64::from(share);
        }
        let present: Vec<bool> = due.iter().map(|&share| share > 0).collect();
        let number = usize::from;
        let is_present = |m: u16| present.get(number(m)).copied().unwrap_or(false);
        for owner in self.owner.iter_mut() {
            if is_present(*owner) {
                due[number(*owner)] -= 1;
            } else {
                *owner = NOBODY;
            }
        }
        // Who has too many gives up first what is wanted back, then what was never its own.
        for round in 0..3 {
            for (owner, &home) in self.owner.iter_mut().zip(&self.home) {
                if *owner == NOBODY || due[number(*owner)] >= 0 {
                    continue;
                }
                let give = match round {
                    0 => home != *owner && is_present(home) && due[number(home)] > 0,
                    1 => home != *owner,
                    _ => true,
                };
                if !give {
                    continue;
                }
                due[number(*owner)] += 1;
                *owner = NOBODY;
                if round == 0 {
                    *owner = home;
                    due[number(home)] -= 1;
                }
            }
        }
        for (owner, &home) in self.owner.iter_mut().zip(&self.home) {
            if *owner == NOBODY && is_present(home) && due[number(home)] > 0 {
                *owner = home;
                due[number(home)] -= 1;
            }
        }
        // The rest goes round, so that the flows of one that left spread over all.
        let mut next = 0;
        for (owner, home) in self.owner.iter_mut().zip(&mut self.home) {
            if *owner != NOBODY {
                continue;
            }
            while due[next] <= 0 {
                next = (next + 1) % due.len();
            }
            due[next] -= 1;
            *owner = u16::try_from(next).expect("at most twice the buckets are known");
            // The home of one that left is kept for it.
            if *home == NOBODY || is_present(*home) {
                *home = *owner;
            }
            next = (next + 1) % due.len();
        }
        self.forget();
    }

    fn split(&mut self, buckets: usize) {
        if self.is_empty() {
            self.owner = vec![NOBODY; buckets];
            self.home = vec![NOBODY; buckets];
        }
        // A flow's bucket is the upper bits of its hash: the two halves of a bucket are neighbors.
        while self.len() < buckets {
            let twice = |list: &[u16]| list.iter().flat_map(|&m| [m, m]).collect();
            self.owner = twice(&self.owner);
            self.home = twice(&self.home);
        }
    }

    /// Forgets members that are neither owner nor home of any bucket.
    fn forget(&mut self) {
        let mut used = vec![false; self.known.len()];
        for &m in self.owner.iter().chain(&self.home) {
            if m != NOBODY {
                used[usize::from(m)] = true;
            }
        }
        if used.iter().all(|&u| u) {
            return;
        }
        let mut kept = 0;
        let new: Vec<u16> = used
            .iter()
            .map(|&used| {
                kept += u16::from(used);
                if used { kept - 1 } else { NOBODY }
            })
            .collect();
        for m in self.owner.iter_mut().chain(&mut self.home) {
            if *m != NOBODY {
                *m = new[usize::from(*m)];
            }
        }
        let mut used = used.iter();
        self.known.retain(|_| used.next().copied().unwrap_or(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn slots_are_those_of_freebsd() {
        for (weights, slots) in [
            (&[1, 1][..], &[1, 1][..]),
            (&[1, 2], &[1, 2]),
            (&[2, 3], &[2, 3]),
            (&[100, 200, 400], &[1, 2, 4]),
            (&[200, 300], &[2, 3]),
            (&[2, 7], &[14, 50]),
            (&[13, 21], &[24, 40]),
            (&[5, 5, 5], &[1, 1, 1]),
            (&[0, 0], &[1, 1]),
            (&[7], &[1]),
            // FreeBSD has 0 and 64 here: the first member would never be used.
            (&[1, 1000], &[1, 63]),
            (&[1, 1, 65_535], &[1, 1, 62]),
            (&[65_535, 65_535], &[1, 1]),
        ] {
            assert_eq!(slot_shares(weights), slots, "{weights:?}");
            assert_eq!(slot_count(weights), slots.iter().sum::<u32>(), "{weights:?}");
        }
    }

    #[test]
    fn more_members_than_slots_have_a_slot_each() {
        assert_eq!(slot_shares(&[1; 64]), [1; 64]);
        assert_eq!(slot_shares(&[3; 100]), [1; 100]);
        let weights: Vec<u32> = (1..=200).collect();
        assert_eq!(slot_shares(&weights), [1; 200]);
        let weights: Vec<u32> = (1..=64).collect();
        assert_eq!(slot_shares(&weights), [1; 64]);
    }

    #[test]
    fn shares_of_buckets_are_near_the_weights() {
        assert_eq!(bucket_shares(&[1, 1], 256), [128, 128]);
        assert_eq!(bucket_shares(&[1, 1, 1], 256), [86, 85, 85]);
        assert_eq!(bucket_shares(&[1, 1000], 256), [1, 255]);
        assert_eq!(bucket_shares(&[0, 3], 256), [64, 192]);
        assert_eq!(bucket_shares(&[1; 256], 256), [1; 256]);
        assert_eq!(bucket_shares(&[], 256), [0; 0]);
        assert_eq!(bucket_count(2), 256);
        assert_eq!(bucket_count(16), 256);
        assert_eq!(bucket_count(17), 512);
        assert_eq!(bucket_count(256), 4096);
        assert_eq!(bucket_count(100_000), 4096);
    }

    /// Why shares are not by largest remainders: by these, weights of 18, 2, 71 and 5 have 48, 6, 189 and 13
    /// of 256 buckets, and without the last one 51, 5 and 200: the second loses one, and flows of it
    /// move, though nothing happened to it.
    #[test]
    fn no_member_loses_when_another_one_leaves() {
        assert_eq!(bucket_shares(&[18, 2, 71, 5], 256), [48, 5, 190, 13]);
        assert_eq!(bucket_shares(&[18, 2, 71], 256), [51, 6, 199]);
        for (a, b, c) in (1..20).flat_map(|a| (1..20).map(move |b| (a, b, a * b % 50))) {
            let with = bucket_shares(&[a, 7, b, c], 256);
            let without = bucket_shares(&[a, 7, b], 256);
            assert!(with.iter().zip(&without).all(|(with, without)| without >= with));
        }
    }

    fn owners(buckets: &Buckets<u32>) -> Vec<Option<u32>> {
        buckets.owners().collect()
    }

    fn moved(before: &[Option<u32>], after: &[Option<u32>]) -> Vec<usize> {
        assert_eq!(before.len(), after.len());
        (0..before.len()).filter(|&i| before[i] != after[i]).collect()
    }

    #[test]
    fn one_that_leaves_takes_only_its_own_flows_along_and_finds_them_again() {
        let mut buckets = Buckets::default();
        let all: Vec<(u32, u32)> = (0..7).map(|m| (m, 1 + m % 3)).collect();
        buckets.arrange(&all);
        let before = owners(&buckets);
        for leaver in 0..7 {
            let rest: Vec<_> = all.iter().copied().filter(|&(m, _)| m != leaver).collect();
            buckets.arrange(&rest);
            let without = owners(&buckets);
            let own: Vec<usize> = (0..256).filter(|&i| before[i] == Some(leaver)).collect();
            assert_eq!(moved(&before, &without), own, "exactly its buckets");
            buckets.arrange(&all);
            assert_eq!(owners(&buckets), before, "as if nothing had happened");
        }
        // All but one, then none at all.
        buckets.arrange(&all[3..4]);
        buckets.arrange(&[]);
        assert!(owners(&buckets).iter().all(Option::is_none));
        buckets.arrange(&all);
        assert_eq!(owners(&buckets), before);
    }

    #[test]
    fn one_that_comes_takes_no_more_than_its_share() {
        for members in 1..40u32 {
            let mut buckets = Buckets::default();
            let all: Vec<(u32, u32)> = (0..=members).map(|m| (m, 1)).collect();
            // Room for all from the start, so that only the newcomer makes a difference.
            buckets.arrange(&all);
            let mut buckets = Buckets { known: Vec::new(), ..buckets };
            buckets.owner.fill(NOBODY);
            buckets.home.fill(NOBODY);
            buckets.arrange(&all[..all.len() - 1]);
            let before = owners(&buckets);
            buckets.arrange(&all);
            let after = owners(&buckets);
            let moved = moved(&before, &after);
            assert!(moved.iter().all(|&i| after[i] == Some(members)));
            let weights = vec![1; all.len()];
            let share = bucket_shares(&weights, u32::try_from(after.len()).unwrap());
            assert_eq!(moved.len(), *share.last().unwrap() as usize);
        }
    }

    #[test]
    fn more_buckets_move_no_flow() {
        let mut buckets = Buckets::default();
        let all: Vec<(u32, u32)> = (0..60).map(|m| (m, 1)).collect();
        buckets.arrange(&all[..16]);
        let before = owners(&buckets);
        buckets.split(1024);
        let split = owners(&buckets);
        for hash in (0..u32::MAX).step_by(1 << 20) {
            let slot = |n: usize| usize::try_from((u64::from(hash) * n as u64) >> 32).unwrap();
            assert_eq!(split[slot(1024)], before[slot(256)]);
        }
        buckets.arrange(&all);
        assert_eq!(buckets.len(), 1024);
    }

    proptest! {
        /// Whatever happens to a group, each member has its share, and no more buckets move than must.
        #[test]
        fn no_more_moves_than_must(
            steps in proptest::collection::vec(
                proptest::collection::btree_map(0u32..40, 1u32..100, 0..24), 1..12)
        ) {
            let mut buckets = Buckets::default();
            for members in steps {
                let members: Vec<(u32, u32)> = members.into_iter().collect();
                let old_len = buckets.len();
                let before = owners(&buckets);
                buckets.arrange(&members);
                let after = owners(&buckets);
                if members.is_empty() {
                    prop_assert!(after.iter().all(Option::is_none));
                    continue;
                }
                let times = after.len().checked_div(old_len).unwrap_or(0);
                let before: Vec<Option<u32>> = match times {
                    0 => vec![None; after.len()],
                    _ => before.iter().flat_map(|&owner| vec![owner; times]).collect(),
                };
                let weights: Vec<u32> = members.iter().map(|m| m.1).collect();
                let shares = bucket_shares(&weights, u32::try_from(after.len()).unwrap());
                let count = |list: &[Option<u32>]| {
                    let mut counts = BTreeMap::new();
                    for owner in list {
                        *counts.entry(*owner).or_insert(0u32) += 1;
                    }
                    counts
                };
                let (had, has) = (count(&before), count(&after));
                let mut least = 0;
                for (&(member, _), &share) in members.iter().zip(&shares) {
                    prop_assert_eq!(has.get(&Some(member)), Some(&share));
                    let had = had.get(&Some(member)).copied().unwrap_or(0);
                    least += share.saturating_sub(had) as usize;
                }
                prop_assert_eq!(has.len(), members.len());
                prop_assert_eq!(moved(&before, &after).len(), least);
                prop_assert!(buckets.known.len() <= 40);
            }
        }

        /// A flow moves only when its own member leaves, returns, or must give up some.
        #[test]
        fn flaps_leave_no_trace(
            members in proptest::collection::btree_map(0u32..30, 1u32..50, 2..20),
            down in proptest::collection::vec(0usize..20, 1..10),
        ) {
            let members: Vec<(u32, u32)> = members.into_iter().collect();
            let mut buckets = Buckets::default();
            buckets.arrange(&members);
            let before = owners(&buckets);
            for at in down {
                let gone = members[at % members.len()].0;
                let rest: Vec<_> = members.iter().copied().filter(|m| m.0 != gone).collect();
                buckets.arrange(&rest);
                for (old, new) in before.iter().zip(owners(&buckets)) {
                    prop_assert!(*old == Some(gone) || *old == new);
                }
                buckets.arrange(&members);
                prop_assert_eq!(&owners(&buckets), &before);
            }
        }
    }
}
