//! The head of a structure's memory: which layout it is, and the counts that readers may read.
//!
//! The first region of every structure, called `head`: 64-bit words, the first of which is the stamp
//! by which a saved or shared copy is known. Counts are written by the writer and read by
//! [`Lookup::stats`](crate::Lookup::stats); they are no part of a lookup and not ordered with it.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::error::{FormatError, UpdateError};
use crate::mem::{Memory, Region, region_named};

/// Name of the region.
pub const HEAD: &str = "head";

/// A view of the head: the stamp, then `N` words.
#[derive(Clone, Debug)]
pub struct Head<const N: usize>(Region);

/// Four letters for the structure, then its variant (such as a family or a stride), then the version
/// of its layout. Read on a machine of the other byte order it is another stamp, so such a file is
/// refused.
pub const fn stamp(letters: &[u8; 4], variant: u8, version: u8) -> u64 {
    (u32::from_be_bytes(*letters) as u64) << 32 | (variant as u64) << 8 | version as u64
}

impl<const N: usize> Head<N> {
    /// Size of the head in bytes.
    pub const BYTES: usize = (N + 1) * 8;

    /// A head with all counts 0.
    ///
    /// # Errors
    /// [`UpdateError::Memory`].
    pub fn new(memory: &mut dyn Memory, stamp: u64) -> Result<Self, UpdateError> {
        let region = memory.region(HEAD, Self::BYTES)?;
        region.u64s()[0].store(stamp, Relaxed);
        Ok(Self(region))
    }

    /// The head among saved regions.
    ///
    /// # Errors
    /// [`FormatError`] when it is missing, cut short, or of another layout.
    pub fn open(saved: &[Region], stamp: u64) -> Result<Self, FormatError> {
        let region = region_named(saved, HEAD)?;
        let words = region.u64s();
        if words.len() <= N {
            return Err(FormatError::Bounds(HEAD));
        }
        let got = words[0].load(Relaxed);
        if got != stamp {
            return Err(FormatError::Version { want: stamp, got });
        }
        Ok(Self(region))
    }

    /// The memory itself, for [`Lookup::regions`](crate::Lookup::regions).
    pub fn region(&self) -> &Region {
        &self.0
    }

    /// Word `index`, from 0 to `N - 1`.
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < N, "the head has {N} words");
        &self.0.u64s()[index + 1]
    }

    /// Reads word `index`.
    #[inline]
    pub fn get(&self, index: usize) -> u64 {
        self.word(index).load(Relaxed)
    }

    /// Writes word `index`.
    #[inline]
    pub fn set(&self, index: usize, value: usize) {
        self.word(index).store(value as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Heap;

    #[test]
    fn stamps_tell_layouts_apart() {
        let ours = stamp(b"test", 4, 1);
        let head = Head::<2>::new(&mut Heap, ours).unwrap();
        head.set(1, 7);
        let saved = [head.region().clone()];
        assert_eq!(Head::<2>::open(&saved, ours).unwrap().get(1), 7);
        for other in [stamp(b"tess", 4, 1), stamp(b"test", 6, 1), stamp(b"test", 4, 2)] {
            let want = FormatError::Version { want: other, got: ours };
            assert_eq!(Head::<2>::open(&saved, other).unwrap_err(), want);
        }
        assert_eq!(Head::<8>::open(&saved, ours).unwrap_err(), FormatError::Bounds(HEAD));
        assert_eq!(Head::<2>::open(&[], ours).unwrap_err(), FormatError::Missing(HEAD));
    }
}
