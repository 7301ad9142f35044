//! Which vector instructions this CPU has, detected once and without an operating system's help; and its
//! clock, for measurements of single lookups.
//!
//! Algorithms with a vector form look here when they build, and keep a scalar twin for everything
//! else. Source: Intel SDM volume 1, 13.3 and 14.3 (CPUID leaves 1 and 7, XCR0); volume 2, LFENCE, RDTSC
//! and RDTSCP.
//!
//! Invariants that its unsafe code relies on:
//! 1. `saved_state` is called only when CPUID reports that the system uses XSAVE (OSXSAVE).
//! 2. A `Ticks` is made only where CPUID names RDTSCP, which comes with RDTSC; every processor of this
//!    architecture has LFENCE.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

/// What may be used, each level including the ones before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum Simd {
    /// No vectors.
    Scalar = 1,
    /// AVX2 with BMI1, BMI2, LZCNT and POPCNT: Intel since 2013, AMD since 2015.
    Avx2 = 2,
    /// AVX-512 F, BW, CD, DQ and VL: Intel servers since 2017, AMD since 2022.
    Avx512 = 3,
}

impl Simd {
    /// All levels, lowest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The highest level of this CPU that its operating system saves on a task switch.
    #[inline]
    pub fn detect() -> Self {
        static FOUND: AtomicU8 = AtomicU8::new(0);
        match FOUND.load(Relaxed) {
            1 => Self::Scalar,
            2 => Self::Avx2,
            3 => Self::Avx512,
            _ => {
                let found = ask();
                FOUND.store(found as u8, Relaxed);
                found
            }
        }
    }

    /// The levels that this CPU can run, lowest first: what a test of twins goes through.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|&level| level <= Self::detect())
    }

    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

/// A piece of work that [`BitOps::run`] may compile once more.
pub trait Job {
    /// What it gives.
    type Out;
    /// Does it. Mark it `#[inline(always)]`, and all that counts bits below it: only what becomes part
    /// of the compiled copy uses the instructions.
    fn run(self) -> Self::Out;
}

/// Proof that this CPU counts and shifts bits in one instruction (POPCNT, LZCNT, BMI1, BMI2).
///
/// A structure that ranks bitmaps keeps it from when it was built; without it the same code runs as
/// the compiler makes it for any CPU, so both give the same answers.
#[derive(Clone, Copy, Debug)]
pub struct BitOps(());

impl BitOps {
    /// `None` where the CPU lacks them.
    pub fn detect() -> Option<Self> {
        (Simd::detect() >= Simd::Avx2).then_some(Self(()))
    }

    /// Does `job` with these instructions if there is proof of them.
    #[inline(always)]
    #[allow(unsafe_code, reason = "instructions that CPUID must allow first")]
    pub fn run<J: Job>(proof: Option<Self>, job: J) -> J::Out {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if proof.is_some() {
            // SAFETY: `detect` alone makes the proof, after CPUID named all four.
            return unsafe { with_bits(job) };
        }
        let _ = proof;
        job.run()
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "popcnt,lzcnt,bmi1,bmi2")]
fn with_bits<J: Job>(job: J) -> J::Out {
    job.run()
}

/// Calls `visit` with the place of each bit that is set.
#[inline(always)]
pub(crate) fn each(mut bits: u64, mut visit: impl FnMut(usize)) {
    while bits != 0 {
        visit(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

/// The places of ones, from bit 0 on.
pub(crate) fn ones(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let place = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (place < 64).then_some(place)
    })
}

/// Proof that this CPU counts time in ticks of one rate (RDTSC, RDTSCP).
#[derive(Clone, Copy, Debug)]
pub struct Ticks(());

impl Ticks {
    /// `None` where it does not.
    pub fn detect() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use core::arch::x86_64::__cpuid;
            let known = __cpuid(0x8000_0000).eax > 0x8000_0000;
            (known && __cpuid(0x8000_0001).edx & 1 << 27 != 0).then_some(Self(()))
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        None
    }

    /// What `work` gives and how many ticks it took: nothing before it is still in progress when it starts,
    /// and nothing behind it starts before it is done. The fences and the clock are in it too: take away
    /// what empty work takes.
    #[inline(always)]
    pub fn of<T>(self, work: impl FnOnce() -> T) -> (T, u64) {
        let before = self.first();
        let out = work();
        (out, self.last().wrapping_sub(before))
    }

    /// The clock now, without fences: for pieces of work of some hundred instructions and more, one after
    /// the other, where what the processor does ahead for the next piece does not matter.
    #[inline(always)]
    #[allow(unsafe_code, reason = "an instruction that CPUID must allow first")]
    pub fn now(self) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            // SAFETY: invariant 2: `self` is the proof.
            unsafe { core::arch::x86_64::_rdtsc() }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        unreachable!("there is no proof on this machine")
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    #[allow(unsafe_code, reason = "instructions that CPUID must allow first")]
    fn first(self) -> u64 {
        use core::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: invariant 2.
        unsafe { _mm_lfence() };
        // SAFETY: invariant 2: `self` is the proof.
        let ticks = unsafe { _rdtsc() };
        // SAFETY: invariant 2.
        unsafe { _mm_lfence() };
        ticks
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    #[allow(unsafe_code, reason = "instructions that CPUID must allow first")]
    fn last(self) -> u64 {
        use core::arch::x86_64::{__rdtscp, _mm_lfence};
        let mut core = 0;
        // SAFETY: invariant 2: `self` is the proof; the number of the core goes to a place of our own.
        let ticks = unsafe { __rdtscp(&raw mut core) };
        // SAFETY: invariant 2.
        unsafe { _mm_lfence() };
        ticks
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    fn first(self) -> u64 {
        unreachable!("there is no proof on this machine")
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    fn last(self) -> u64 {
        unreachable!("there is no proof on this machine")
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn ask() -> Simd {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    const fn bits(numbers: &[u32]) -> u32 {
        let (mut all, mut i) = (0, 0);
        while i < numbers.len() {
            all |= 1 << numbers[i];
            i += 1;
        }
        all
    }
    let has = |register: u32, wanted: u32| register & wanted == wanted;
    if __cpuid(0).eax < 7 {
        return Simd::Scalar;
    }
    let (one, seven) = (__cpuid(1), __cpuid_count(7, 0));
    // POPCNT, OSXSAVE, AVX; then LZCNT.
    let extended =
        if __cpuid(0x8000_0000).eax > 0x8000_0000 { __cpuid(0x8000_0001).ecx } else { 0 };
    if !has(one.ecx, bits(&[23, 27, 28])) || !has(extended, bits(&[5])) {
        return Simd::Scalar;
    }
    let saved = saved_state();
    // BMI1, AVX2, BMI2; SSE and AVX state.
    if !has(seven.ebx, bits(&[3, 5, 8])) || !has(saved, bits(&[1, 2])) {
        return Simd::Scalar;
    }
    // F, DQ, CD, BW, VL; masks and both parts of the wide registers.
    if has(seven.ebx, bits(&[16, 17, 28, 30, 31])) && has(saved, bits(&[5, 6, 7])) {
        Simd::Avx512
    } else {
        Simd::Avx2
    }
}

/// Low half of XCR0: the registers that the operating system saves.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code, reason = "an instruction that CPUID must allow first")]
fn saved_state() -> u32 {
    #[target_feature(enable = "xsave")]
    fn xgetbv() -> u64 {
        // SAFETY: invariant 1: the caller has seen OSXSAVE, so the instruction exists and register 0 does too.
        unsafe { core::arch::x86_64::_xgetbv(0) }
    }
    // SAFETY: invariant 1: `ask` comes here only if CPUID says OSXSAVE.
    let saved = unsafe { xgetbv() };
    u32::try_from(saved & 0xffff_ffff).expect("32 bits")
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn ask() -> Simd {
    Simd::Scalar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn agrees_with_the_standard_library() {
        let avx2 = std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("bmi2");
        let avx512 = avx2
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512cd")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("avx512dq");
        let want = match (avx2, avx512) {
            (_, true) => Simd::Avx512,
            (true, _) => Simd::Avx2,
            _ => Simd::Scalar,
        };
        assert_eq!((Simd::detect(), Simd::detect()), (want, want));
        assert_eq!(Simd::available().last(), Some(want));
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn ticks_go_on_while_work_is_done() {
        let Some(ticks) = Ticks::detect() else { return };
        let sum = |count: u64| ticks.of(|| (0..count).fold(0, |a, b| core::hint::black_box(a ^ b)));
        let least = |count| (0..20).map(|_| sum(count).1).min().expect("some");
        assert!(least(0) < 2_000 && least(100_000) > 20 * least(0).max(1));
        assert_eq!(sum(4).0, 1 ^ 2 ^ 3);
        let start = ticks.now();
        sum(1000);
        assert!(ticks.now() - start >= 250, "four steps a tick are too many");
    }

    #[test]
    fn both_compilations_do_the_same() {
        struct Count(u64);
        impl Job for Count {
            type Out = (u32, u32);
            #[inline(always)]
            fn run(self) -> (u32, u32) {
                ((self.0 << (self.0 & 63)).count_ones(), self.0.leading_zeros())
            }
        }
        for word in [0, 1, 7, u64::MAX, 0x8000_0000_0000_0003] {
            assert_eq!(BitOps::run(BitOps::detect(), Count(word)), BitOps::run(None, Count(word)));
        }
    }
}
