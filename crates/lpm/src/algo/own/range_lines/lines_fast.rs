//! How many thresholds of a line are below a key: by vectors where the CPU has them.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. A [`Avx2`] or [`Avx512`] is made only where [`Simd::detect`] found that level.
//! 2. A [`Line`] is 64 bytes of initialised memory. Nobody writes to it while a reader can reach it, but
//!    in damaged or foreign memory; a vector load of it then gives any bytes, and any bytes do: what
//!    follows is a count of at most 32.
//!
//! The scalar twin is [`Scalar`], which the tests compare with what the CPU has.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::{View, Width};
use crate::next_hop_id::NextHopId;
use crate::simd::Simd;

/// A cache line of thresholds and results.
pub(super) type Line = [AtomicU64; 8];

/// Counts the thresholds of a line that are below a key.
pub(super) trait Below: Copy {
    /// Thresholds below the key among the last 12.
    fn upper12(self, line: &Line, key: u16) -> usize;
    /// Thresholds below the key among the last 16.
    fn upper16(self, line: &Line, key: u16) -> usize;
    /// Thresholds below the key among all 32.
    fn count32(self, line: &Line, key: u16) -> usize;
    /// Which of up to 64 entries, a multiple of 8, have this bit.
    fn having(self, entries: &[u32], bit: u32) -> u64;
}

/// Four thresholds a word, without vectors.
#[derive(Clone, Copy)]
pub(super) struct Scalar;

/// The last `N` words of a line. Two thresholds at a time in fields of 32 bits: key + 2^16 - 1 less a
/// threshold reaches 2^16 where the threshold is below the key. Their order within a word is no matter.
#[inline(always)]
fn count<const N: usize>(line: &Line, key: u16) -> usize {
    const FIELDS: u64 = 0x0000_ffff_0000_ffff;
    let key = u64::from(key) + 0xffff;
    let keys = key << 32 | key;
    let mut sum = 0;
    for word in &line[line.len() - N..] {
        let word = word.load(Relaxed);
        for fields in [word & FIELDS, word >> 16 & FIELDS] {
            sum += (keys - fields) >> 16 & 0x0000_0001_0000_0001;
        }
    }
    usize::try_from((sum >> 32) + (sum & 63)).expect("at most 32")
}

impl Below for Scalar {
    #[inline(always)]
    fn upper12(self, line: &Line, key: u16) -> usize {
        count::<3>(line, key)
    }
    #[inline(always)]
    fn upper16(self, line: &Line, key: u16) -> usize {
        count::<4>(line, key)
    }
    #[inline(always)]
    fn count32(self, line: &Line, key: u16) -> usize {
        count::<8>(line, key)
    }
    #[inline(always)]
    fn having(self, entries: &[u32], bit: u32) -> u64 {
        entries.iter().rev().fold(0, |all, entry| all << 1 | u64::from(entry & bit != 0))
    }
}

/// The rest of one lookup from a page entry on, by the best that `simd` allows.
#[inline]
pub(super) fn single<W: Width>(simd: Simd, view: &View<'_, W>, page: u32, addr: u128) -> NextHopId {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => x86::Avx512::new().single(view, page, addr),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => x86::Avx2::new().single(view, page, addr),
        _ => view.single(Scalar, page, addr),
    }
}

/// A batch of lookups, by the best that `simd` allows.
#[inline]
pub(super) fn batch<W: Width>(
    simd: Simd,
    view: &View<'_, W>,
    addrs: &[u128],
    out: &mut [NextHopId],
) {
    match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => x86::Avx512::new().batch(view, addrs, out),
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => x86::Avx2::new().batch(view, addrs, out),
        _ => view.batch(Scalar, addrs, out),
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::{
        __m256i, __m512i, _mm256_and_si256, _mm256_castsi256_ps, _mm256_cmpeq_epi16,
        _mm256_cmpeq_epi32, _mm256_cmplt_epu16_mask, _mm256_loadu_si256, _mm256_max_epu16,
        _mm256_movemask_epi8, _mm256_movemask_ps, _mm256_packs_epi16, _mm256_set1_epi16,
        _mm256_set1_epi32, _mm256_test_epi32_mask, _mm512_cmplt_epu16_mask, _mm512_loadu_si512,
        _mm512_set1_epi16,
    };
    use core::ptr;

    use super::{Below, Line, NextHopId, Simd, View, Width};

    /// A CPU with AVX2.
    #[derive(Clone, Copy)]
    pub(super) struct Avx2(());

    /// A CPU with AVX-512 F, BW and VL.
    #[derive(Clone, Copy)]
    pub(super) struct Avx512(());

    macro_rules! level {
        ($level:ident, $features:literal) => {
            impl $level {
                #[inline(always)]
                pub(super) fn new() -> Self {
                    // Invariant 1; `detect` is a load and a compare.
                    assert!(Simd::detect() >= Simd::$level, "a reader uses what the CPU has");
                    Self(())
                }

                #[inline(always)]
                pub(super) fn single<W: Width>(
                    self,
                    view: &View<'_, W>,
                    page: u32,
                    addr: u128,
                ) -> NextHopId {
                    #[target_feature(enable = $features)]
                    fn run<W: Width>(
                        level: $level,
                        view: &View<'_, W>,
                        page: u32,
                        addr: u128,
                    ) -> NextHopId {
                        view.single(level, page, addr)
                    }
                    // SAFETY: invariant 1.
                    unsafe { run(self, view, page, addr) }
                }

                #[inline(always)]
                pub(super) fn batch<W: Width>(
                    self,
                    view: &View<'_, W>,
                    addrs: &[u128],
                    out: &mut [NextHopId],
                ) {
                    #[target_feature(enable = $features)]
                    fn run<W: Width>(
                        level: $level,
                        view: &View<'_, W>,
                        addrs: &[u128],
                        out: &mut [NextHopId],
                    ) {
                        view.batch(level, addrs, out);
                    }
                    // SAFETY: invariant 1.
                    unsafe { run(self, view, addrs, out) }
                }
            }
        };
    }

    level!(Avx2, "avx2,bmi1,bmi2,lzcnt,popcnt");
    level!(Avx512, "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512vl");

    #[inline(always)]
    fn half(line: &Line, upper: usize) -> __m256i {
        let at = ptr::from_ref(&line[4 * upper]).cast::<__m256i>();
        // SAFETY: invariant 2; AVX is there wherever a caller's level is, by invariant 1.
        unsafe { _mm256_loadu_si256(at) }
    }

    #[inline(always)]
    fn broadcast(key: u16) -> __m256i {
        // SAFETY: invariant 1.
        unsafe { _mm256_set1_epi16(key.cast_signed()) }
    }

    impl Avx2 {
        /// All ones in each 16 bits whose threshold is not below the key: it is the greater of the two.
        #[inline(always)]
        fn above(thresholds: __m256i, keys: __m256i) -> __m256i {
            // SAFETY: invariant 1.
            let greater = unsafe { _mm256_max_epu16(thresholds, keys) };
            // SAFETY: invariant 1.
            unsafe { _mm256_cmpeq_epi16(thresholds, greater) }
        }

        /// Two bits for each of the last 16 thresholds.
        #[inline(always)]
        fn upper(line: &Line, key: u16) -> u32 {
            let above = Self::above(half(line, 1), broadcast(key));
            // SAFETY: invariant 1.
            let mask = unsafe { _mm256_movemask_epi8(above) };
            !mask.cast_unsigned()
        }
    }

    impl Below for Avx2 {
        #[inline(always)]
        fn upper12(self, line: &Line, key: u16) -> usize {
            (Self::upper(line, key) >> 8).count_ones() as usize / 2
        }

        #[inline(always)]
        fn upper16(self, line: &Line, key: u16) -> usize {
            Self::upper(line, key).count_ones() as usize / 2
        }

        #[inline(always)]
        fn count32(self, line: &Line, key: u16) -> usize {
            let keys = broadcast(key);
            let lower = Self::above(half(line, 0), keys);
            let upper = Self::above(half(line, 1), keys);
            // SAFETY: invariant 1.
            let bytes = unsafe { _mm256_packs_epi16(lower, upper) };
            // SAFETY: invariant 1.
            let mask = unsafe { _mm256_movemask_epi8(bytes) };
            mask.count_zeros() as usize
        }

        #[inline(always)]
        fn having(self, entries: &[u32], bit: u32) -> u64 {
            let mut all = 0;
            // SAFETY: invariant 1.
            let bits = unsafe { _mm256_set1_epi32(bit.cast_signed()) };
            for (index, part) in entries.as_chunks::<8>().0.iter().enumerate() {
                // SAFETY: invariant 1; eight integers are 32 bytes.
                let entries = unsafe { _mm256_loadu_si256(ptr::from_ref(part).cast()) };
                // SAFETY: invariant 1.
                let found = unsafe { _mm256_and_si256(entries, bits) };
                // SAFETY: invariant 1.
                let found = unsafe { _mm256_cmpeq_epi32(found, bits) };
                // SAFETY: invariant 1.
                let found = unsafe { _mm256_castsi256_ps(found) };
                // SAFETY: invariant 1.
                let mask = unsafe { _mm256_movemask_ps(found) };
                all |= u64::from(mask.cast_unsigned()) << (8 * index);
            }
            all
        }
    }

    impl Avx512 {
        /// A bit for each of the last 16 thresholds.
        #[inline(always)]
        fn upper(line: &Line, key: u16) -> u32 {
            // SAFETY: invariant 1.
            u32::from(unsafe { _mm256_cmplt_epu16_mask(half(line, 1), broadcast(key)) })
        }
    }

    impl Below for Avx512 {
        #[inline(always)]
        fn upper12(self, line: &Line, key: u16) -> usize {
            (Self::upper(line, key) >> 4).count_ones() as usize
        }

        #[inline(always)]
        fn upper16(self, line: &Line, key: u16) -> usize {
            Self::upper(line, key).count_ones() as usize
        }

        #[inline(always)]
        fn count32(self, line: &Line, key: u16) -> usize {
            let at = ptr::from_ref(line).cast::<__m512i>();
            // SAFETY: invariants 1 and 2.
            let thresholds = unsafe { _mm512_loadu_si512(at) };
            // SAFETY: invariant 1.
            let keys = unsafe { _mm512_set1_epi16(key.cast_signed()) };
            // SAFETY: invariant 1.
            let mask = unsafe { _mm512_cmplt_epu16_mask(thresholds, keys) };
            mask.count_ones() as usize
        }

        #[inline(always)]
        fn having(self, entries: &[u32], bit: u32) -> u64 {
            let mut all = 0;
            // SAFETY: invariant 1.
            let bits = unsafe { _mm256_set1_epi32(bit.cast_signed()) };
            for (index, part) in entries.as_chunks::<8>().0.iter().enumerate() {
                // SAFETY: invariant 1; eight integers are 32 bytes.
                let entries = unsafe { _mm256_loadu_si256(ptr::from_ref(part).cast()) };
                // SAFETY: invariant 1.
                let mask = unsafe { _mm256_test_epi32_mask(entries, bits) };
                all |= u64::from(mask) << (8 * index);
            }
            all
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use core::array;

    fn twin(level: impl Below) {
        let mut rng = Rng::new(1);
        for round in 0..2000 {
            // Any bytes, few different ones, and those at which a signed compare would err.
            let word = |rng: &mut Rng| match round % 3 {
                0 => rng.word(),
                1 => rng.word() & 0x0003_0003_0003_0003,
                _ => rng.word() & 0x8001_8001_8001_8001 ^ 0x7fff_7fff_7fff_7fff,
            };
            let line: Line = array::from_fn(|_| AtomicU64::new(word(&mut rng)));
            let random = u16::try_from(word(&mut rng) & 0xffff).expect("16 bits");
            for key in [random, 0, 1, 0x7fff, 0x8000, u16::MAX] {
                assert_eq!(level.upper12(&line, key), Scalar.upper12(&line, key), "{line:?} {key}");
                assert_eq!(level.upper16(&line, key), Scalar.upper16(&line, key), "{line:?} {key}");
                assert_eq!(level.count32(&line, key), Scalar.count32(&line, key), "{line:?} {key}");
            }
            let entries: [u32; 64] =
                array::from_fn(|_| u32::try_from(rng.word() & 0x8000_0003).expect("32 bits"));
            for bit in [1, 2, 1 << 31] {
                for len in [8, 32, 64] {
                    let (got, want) =
                        (level.having(&entries[..len], bit), Scalar.having(&entries[..len], bit));
                    assert_eq!(got, want, "{bit:#x} of {len}");
                }
            }
        }
    }

    #[test]
    fn vectors_count_as_words_do() {
        // Against the obvious count first.
        let starts: [u16; 32] =
            array::from_fn(|i| u16::try_from(i * i * 60).expect("at most 57,660"));
        let line: Line = array::from_fn(|i| {
            let four: [u16; 4] = array::from_fn(|j| starts[4 * i + j]);
            AtomicU64::new(four.iter().rev().fold(0, |word, &t| word << 16 | u64::from(t)))
        });
        for key in 0..=u16::MAX {
            let below = |from: usize| starts[from..].iter().filter(|&&start| start < key).count();
            assert_eq!(Scalar.count32(&line, key), below(0));
            assert_eq!(Scalar.upper16(&line, key), below(16));
            assert_eq!(Scalar.upper12(&line, key), below(20));
        }
        for level in Simd::available() {
            match level {
                Simd::Scalar => {}
                Simd::Avx2 => twin(x86::Avx2::new()),
                Simd::Avx512 => twin(x86::Avx512::new()),
            }
        }
    }
}
