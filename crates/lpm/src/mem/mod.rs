//! Memory that readers share with the one writer: flat regions of plain integers.
//!
//! A [`Region`] is reached by index, never by pointer, so a heap, huge pages, a mapped file or a BPF
//! map can hold it, and a saved snapshot is the same bytes. All access is by atomics: the writer
//! changes entries in place while readers read. On the machines we serve a relaxed atomic load is an
//! ordinary load.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. `Region::ptr` is valid for reads and writes of `Region::bytes` bytes while `owner` lives, and
//!    `owner` is never replaced.
//! 2. `Region::ptr` is aligned to 64 bytes, so to every atomic type used here.
//! 3. The memory is initialised (zeroed, or filled by its owner) before the `Region` exists.
//! 4. Nobody makes a reference to the memory other than through atomics.
//! 5. `Cells::mask` is less than the number of cells in its region, and never changes.
//! 6. What a `Cell` gives for a region is that region's memory from its beginning on, as integers that are atomic: the
//!    trait is sealed.

#[cfg(all(feature = "std", target_os = "linux"))]
pub(crate) mod map;

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::error::{FormatError, UpdateError};

/// Alignment of every region: one cache line.
pub const LINE_BYTES: usize = 64;

/// Where structures get the memory that their readers touch.
pub trait Memory {
    /// A zeroed region of at least `bytes` bytes, aligned to a cache line.
    ///
    /// # Errors
    /// [`UpdateError::Memory`] when it cannot be had.
    fn region(&mut self, name: &'static str, bytes: usize) -> Result<Region, UpdateError>;
}

/// Makes memory for what readers share, a structure at a time.
#[derive(Clone)]
pub struct MemoryMaker(Arc<dyn Fn() -> Box<dyn Memory> + Send + Sync>);

impl MemoryMaker {
    /// One that calls `make` for each structure.
    pub fn new(make: impl Fn() -> Box<dyn Memory> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// Memory for one structure.
    pub fn make(&self) -> Box<dyn Memory> {
        (self.0)()
    }
}

impl fmt::Debug for MemoryMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryMaker")
    }
}

/// Flat, shared memory of plain integers. Clones share the memory.
#[derive(Clone)]
pub struct Region {
    name: &'static str,
    ptr: NonNull<u8>,
    bytes: usize,
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: by invariants 1 and 4 a region is memory that is reached by atomics alone.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

macro_rules! view {
    ($name:ident, $atomic:ty, $doc:literal) => {
        #[doc = $doc]
        #[inline]
        pub fn $name(&self) -> &[$atomic] {
            // SAFETY: invariants 1 to 3; the length is rounded down to whole elements.
            unsafe {
                slice::from_raw_parts(
                    self.ptr.as_ptr().cast::<$atomic>(),
                    self.bytes / size_of::<$atomic>(),
                )
            }
        }
    };
}

impl Region {
    /// A region over memory that `owner` keeps, such as a mapped file or a BPF map.
    ///
    /// # Safety
    /// `ptr` must be aligned to [`LINE_BYTES`] and valid for reads and writes of `bytes`
    /// initialised bytes as long as `owner` lives, and be reached by atomics only.
    pub unsafe fn from_raw(
        name: &'static str,
        ptr: NonNull<u8>,
        bytes: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        debug_assert_eq!(ptr.as_ptr() as usize % LINE_BYTES, 0, "regions are line-aligned");
        Self { name, ptr, bytes, owner }
    }

    /// What the structure calls it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    view!(u8s, AtomicU8, "The memory as bytes.");
    view!(u16s, AtomicU16, "The memory as 16-bit integers.");
    view!(u32s, AtomicU32, "The memory as 32-bit integers.");
    view!(u64s, AtomicU64, "The memory as 64-bit integers.");

    /// Owner of the memory, given to [`Region::from_raw`]: a reader elsewhere checks what it is.
    pub fn owner(&self) -> &(dyn Any + Send + Sync) {
        &*self.owner
    }

    /// Whether both are the same memory.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner) && self.ptr == other.ptr
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({}, {} bytes)", self.name, self.bytes)
    }
}

/// What a region can be read as: an atomic, or an array of them.
///
/// [`Cells`] relies on what `slice` returns without a further check (invariant 6), so no other crate can implement it:
///
/// ```compile_fail,E0277
/// use fingerpost_lpm::{Region, mem::Cell};
/// struct Foreign([u8; 4096]);
/// static CELLS: [Foreign; 8] = [const { Foreign([0; 4096]) }; 8];
/// impl Cell for Foreign {
///     fn slice(_: &Region) -> &[Self] {
///         &CELLS
///     }
/// }
/// ```
pub trait Cell: sealed::Sealed + Sync + Sized {
    /// The region as a slice of such cells.
    fn slice(region: &Region) -> &[Self];
}

mod sealed {
    /// Keeps [`super::Cell`] to the types of this file.
    pub trait Sealed {}
}

macro_rules! cell {
    ($($atomic:ty, $view:ident;)*) => {
        $(impl sealed::Sealed for $atomic {}

        impl Cell for $atomic {
            fn slice(region: &Region) -> &[Self] {
                region.$view()
            }
        })*
    };
}

cell! { AtomicU8, u8s; AtomicU16, u16s; AtomicU32, u32s; AtomicU64, u64s; }

impl<const N: usize> sealed::Sealed for [AtomicU32; N] {}

impl<const N: usize> Cell for [AtomicU32; N] {
    fn slice(region: &Region) -> &[Self] {
        region.u32s().as_chunks().0
    }
}

impl<const N: usize> sealed::Sealed for [AtomicU64; N] {}

impl<const N: usize> Cell for [AtomicU64; N] {
    fn slice(region: &Region) -> &[Self] {
        region.u64s().as_chunks().0
    }
}

/// A region read by an index of which only the low bits count, so that no read needs a check.
///
/// For the inner loop of a lookup: damaged memory gives wrong answers there, never harm. Compared
/// with checked indexing it took 15 % off the batches of DXR that search.
#[derive(Clone, Debug)]
pub struct Cells<T> {
    /// Keeps the memory.
    region: Region,
    mask: usize,
    cell: PhantomData<fn() -> T>,
}

impl<T: Cell> Cells<T> {
    /// The first `mask + 1` cells of a region; `mask` is all ones in its low bits.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn new(region: &Region, mask: usize) -> Self {
        let cells = T::slice(region);
        assert!(mask < cells.len(), "{} cells for a mask of {mask:#x}", cells.len());
        Self { region: region.clone(), mask, cell: PhantomData }
    }

    /// The region itself.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// What an inner loop copies to its registers.
    #[inline(always)]
    pub fn view(&self) -> Masked<'_, T> {
        Masked { first: self.region.ptr.cast(), mask: self.mask, region: PhantomData }
    }
}

/// A borrowed [`Cells`].
#[derive(Debug)]
pub struct Masked<'a, T> {
    first: NonNull<T>,
    mask: usize,
    region: PhantomData<&'a T>,
}

impl<T> Clone for Masked<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Masked<'_, T> {}

impl<'a, T> Masked<'a, T> {
    /// Prefetches the cache line of the cell at `index`. Harmless where there is none, so not masked.
    #[inline(always)]
    pub fn prefetch(self, index: usize) {
        prefetch_at(self.first.as_ptr().wrapping_add(index));
    }

    /// The cell at the low bits of `index`.
    #[inline(always)]
    pub fn at(self, index: usize) -> &'a T {
        // SAFETY: an index of at most `mask` is inside the region, by invariants 5 and 6.
        let cell = unsafe { self.first.add(index & self.mask) };
        // SAFETY: invariants 1 to 3, and the region is borrowed for 'a.
        unsafe { cell.as_ref() }
    }
}

/// The region called `name` of those that were saved.
///
/// # Errors
/// [`FormatError::Missing`].
pub fn region_named(saved: &[Region], name: &'static str) -> Result<Region, FormatError> {
    let region = saved.iter().find(|region| region.name() == name);
    region.cloned().ok_or(FormatError::Missing(name))
}

/// Memory from the program's heap.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

struct HeapBlock {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block is plain memory; nothing in it belongs to a thread.
unsafe impl Send for HeapBlock {}
// SAFETY: a shared reference to the block gives no access to its memory.
unsafe impl Sync for HeapBlock {}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        // SAFETY: `ptr` came from `alloc_zeroed` with this very layout.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) }
    }
}

impl Memory for Heap {
    fn region(&mut self, name: &'static str, bytes: usize) -> Result<Region, UpdateError> {
        let size = bytes.max(1).next_multiple_of(LINE_BYTES);
        let layout = Layout::from_size_align(size, LINE_BYTES)
            .map_err(|_| UpdateError::Memory { name, bytes })?;
        // SAFETY: the layout's size is not zero.
        let ptr = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(ptr).ok_or(UpdateError::Memory { name, bytes })?;
        let owner = Arc::new(HeapBlock { ptr, layout });
        // SAFETY: the block is aligned to a line, zeroed, and lives as long as its owner.
        Ok(unsafe { Region::from_raw(name, ptr, size, owner) })
    }
}

/// Prefetches the cache line of `item`.
#[inline(always)]
pub fn prefetch<T>(item: &T) {
    prefetch_at(item);
}

/// Prefetches the cache line at an address, be there memory or not.
#[inline(always)]
pub fn prefetch_at<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see, from whatever address.
    unsafe {
        core::arch::x86_64::_mm_prefetch(at.cast::<i8>(), core::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn regions_are_zeroed_aligned_and_shared() {
        let region = Heap.region("t", 100).unwrap();
        assert_eq!(region.bytes(), 128);
        assert_eq!(region.u8s().as_ptr() as usize % LINE_BYTES, 0);
        assert!(region.u64s().iter().all(|w| w.load(Relaxed) == 0));
        let other = region.clone();
        region.u16s()[63].store(7, Relaxed);
        assert_eq!(other.u16s()[63].load(Relaxed), 7);
        assert!(region.same(&other) && !region.same(&Heap.region("t", 100).unwrap()));
        prefetch(&region.u32s()[7]);
    }

    #[test]
    fn masked_indices_wrap() {
        let region = Heap.region("t", 64).unwrap();
        region
            .u16s()
            .iter()
            .enumerate()
            .for_each(|(i, c)| c.store(u16::try_from(i).unwrap(), Relaxed));
        let cells = Cells::<AtomicU16>::new(&region, 3);
        let read = |i| cells.view().at(i).load(Relaxed);
        assert_eq!([0, 3, 4, usize::MAX].map(read), [0, 3, 0, 3]);
        let pairs = Cells::<[AtomicU64; 2]>::new(&region, 3);
        assert_eq!(pairs.view().at(1)[0].load(Relaxed) & 0xffff, 8);
    }

    #[test]
    #[should_panic(expected = "32 cells for a mask of 0x3f")]
    fn a_mask_is_checked_once() {
        Cells::<AtomicU16>::new(&Heap.region("t", 64).unwrap(), 63);
    }

    #[test]
    fn a_region_that_cannot_be_had_is_an_error() {
        assert!(matches!(Heap.region("t", usize::MAX - 64), Err(UpdateError::Memory { .. })));
    }
}
