//! What is stored once and referred to often: chunks, and blocks of direct entries.

use alloc::collections::BTreeMap;

/// Which things exist, and how often each is referred to. Found by content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// (Hash of the content, name) to references. Equal hashes stand side by side.
    references: BTreeMap<(u32, u32), u32>,
}

impl Shared {
    /// FNV's prime; the content is compared anyway.
    pub(super) fn hash(seed: u32, words: impl Iterator<Item = u64>) -> u32 {
        words.fold(seed, |hash, word| {
            #[allow(clippy::cast_possible_truncation, reason = "both halves are taken")]
            let folded = (word ^ word >> 32) as u32;
            let mixed = (hash ^ folded).wrapping_mul(0x0100_0193);
            mixed ^ mixed >> 15
        })
    }

    /// Refers `times` more to the thing of this hash that is the same, if there is one.
    pub(super) fn share(
        &mut self,
        hash: u32,
        times: u32,
        same: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut same_hash = self.references.range_mut((hash, 0)..=(hash, u32::MAX));
        let ((_, name), references) = same_hash.find(|((_, name), _)| same(*name))?;
        *references += times;
        Some(*name)
    }

    /// A new thing.
    pub(super) fn add(&mut self, hash: u32, name: u32, times: u32) {
        self.references.insert((hash, name), times);
    }

    /// Drops one reference; whether it was the last.
    pub(super) fn release(&mut self, hash: u32, name: u32) -> bool {
        let references = self.references.get_mut(&(hash, name)).expect("what is in use is counted");
        *references -= 1;
        let last = *references == 0;
        if last {
            self.references.remove(&(hash, name));
        }
        last
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.references.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_not_the_content() {
        let mut shared = Shared::default();
        shared.add(7, 3, 1);
        shared.add(7, 8, 2);
        assert_eq!(shared.share(7, 1, |name| name == 8), Some(8));
        assert_eq!(shared.share(7, 1, |name| name == 9), None);
        assert_eq!(shared.share(8, 1, |name| name == 8), None);
        let last: alloc::vec::Vec<_> = (0..3).map(|_| shared.release(7, 8)).collect();
        assert_eq!((last.as_slice(), shared.len()), (&[false, false, true][..], 1));
    }
}
