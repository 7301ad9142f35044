//! Memory from the system: huge pages where they can be had, and files mapped.
//!
//! A lookup in a table of megabytes misses the address cache as well as the data cache; with pages of
//! 2 MiB it misses neither as often. [`HugePages`] requests them: pages that the administrator has set
//! aside (`vm.nr_hugepages`) if there are, else transparent ones (`MADV_HUGEPAGE`). Whether they
//! came is up to the system; [`Pages`] reports it. Without them it is memory like any other.
//!
//! Invariants, beside those of `mem.rs`:
//! 1. A `Mapping` owns `total` bytes from `base` on, made by one `mmap` and unmapped by its `Drop` alone.
//! 2. Its `bytes` bytes from `start` on are inside, readable, writable and initialised: fresh pages are
//!    zero, those of a file are what the file holds. `start` is aligned to a page.
//! 3. A file is mapped private: what is stored goes to a copy of our own and never to the file. It has to
//!    be writable because a [`Region`] lets safe code store.
//! 4. Regions of a mapping lie within `start .. start + bytes` and hold it by `Arc`.

use alloc::sync::Arc;
use core::ptr::{self, NonNull};
use std::fs::{self, File};
use std::io::{self, Error};
use std::os::fd::AsRawFd;
use std::string::String;

use super::{Heap, LINE_BYTES, Memory, Region};
use crate::error::UpdateError;

/// Size of a huge page: what x86-64, and AArch64 with pages of 4 KiB, have.
const HUGE_BYTES: usize = 2 << 20;
/// What lies unused before and after an anonymous mapping: a multiple of every page size in use. It
/// also keeps the system from joining two mappings, whose pages would then be counted together.
const GUARD_BYTES: usize = 64 << 10;
/// A smaller region is not worth a mapping of its own.
const LEAST_BYTES: usize = HUGE_BYTES / 4;

/// Memory in huge pages, from the heap where that fails or is not worth it.
///
/// Regions of one value share pages as far as they fit, so take a new value for each table: what one
/// region holds is given back together.
///
/// ```
/// use fingerpost_lpm::{HugePages, Memory};
/// let region = HugePages::new().region("table", 3 << 20)?;
/// region.u64s()[0].store(1, std::sync::atomic::Ordering::Relaxed);
/// if let Some(pages) = region.pages() {
///     println!("{} of {} bytes in huge pages", pages.huge_bytes, pages.bytes);
/// }
/// # Ok::<(), fingerpost_lpm::UpdateError>(())
/// ```
#[derive(Debug, Default)]
pub struct HugePages {
    /// The newest mapping, and how much of it is given out.
    newest: Option<(Arc<Mapping>, usize)>,
}

impl HugePages {
    /// Takes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Region from the rest of the newest mapping.
    fn rest(&mut self, name: &'static str, size: usize) -> Option<Region> {
        let (mapping, used) = self.newest.as_mut()?;
        let region = mapping.region(name, *used, size)?;
        *used += size;
        Some(region)
    }
}

impl Memory for HugePages {
    fn region(&mut self, name: &'static str, bytes: usize) -> Result<Region, UpdateError> {
        let size = bytes.max(1).checked_next_multiple_of(LINE_BYTES);
        let size = size.ok_or(UpdateError::Memory { name, bytes })?;
        if let Some(region) = self.rest(name, size) {
            return Ok(region);
        }
        if size >= LEAST_BYTES
            && let Some(mapping) = Mapping::anonymous(size)
        {
            self.newest = Some((Arc::new(mapping), 0));
            if let Some(region) = self.rest(name, size) {
                return Ok(region);
            }
        }
        Heap.region(name, bytes)
    }
}

/// Requests huge pages under a vector with room for one: to be called when it has got more, before that is touched.
///
/// The advice is for all pages that it touches, its first and last included: an allocator that gave it a mapping of its own
/// moves that mapping by the page tables when the vector grows, and cannot where only a part of it is advised.
pub(crate) fn prefer_huge<T>(vec: &mut alloc::vec::Vec<T>) {
    let bytes = vec.capacity() * size_of::<T>();
    if bytes < HUGE_BYTES || cfg!(miri) {
        return;
    }
    let from = vec.as_mut_ptr().cast::<u8>();
    // SAFETY: it has no preconditions.
    let Ok(page) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) else { return };
    let before = from.addr() % page;
    let whole = (before + bytes).next_multiple_of(page);
    // SAFETY: the pages are mapped, as each has a byte of the room of `vec`; the advice changes no content, of what else is on
    // them neither. Where it is refused the pages stay small.
    unsafe { libc::madvise(from.wrapping_sub(before).cast(), whole, libc::MADV_HUGEPAGE) };
}

/// What a system has given for some memory, at the moment of the query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Bytes of the memory.
    pub bytes: usize,
    /// Bytes of them in huge pages. Where other memory lies in the same mapping, its share of them.
    pub huge_bytes: usize,
}

impl Region {
    /// How much of the region is in huge pages now; a page that was never touched is in none. Reads
    /// `/proc/self/smaps`, so it is for reports. `None` where the system does not report it.
    pub fn pages(&self) -> Option<Pages> {
        pages(std::slice::from_ref(self))
    }
}

/// [`Region::pages`] of several at once.
pub fn pages(regions: &[Region]) -> Option<Pages> {
    let text = fs::read_to_string("/proc/self/smaps").ok()?;
    let ranges = regions.iter().map(|region| {
        let from = region.ptr.as_ptr() as usize;
        from..from + region.bytes
    });
    let mut sum = Pages { bytes: regions.iter().map(Region::bytes).sum(), huge_bytes: 0 };
    let ranges: alloc::vec::Vec<_> = ranges.collect();
    let mut told = false;
    // Bytes of the present mapping, and how many of them are in the regions.
    let (mut mapped, mut ours) = (1, 0);
    for line in text.lines() {
        if let Some((from, to)) = bounds(line) {
            mapped = (to - from).max(1);
            let inside =
                |r: &core::ops::Range<usize>| r.end.min(to).saturating_sub(r.start.max(from));
            ours = ranges.iter().map(inside).sum::<usize>();
        } else if let Some(bytes) = huge(line) {
            told = true;
            let share = bytes as u128 * ours as u128 / mapped as u128;
            sum.huge_bytes += usize::try_from(share).unwrap_or(usize::MAX);
        }
    }
    told.then_some(sum)
}

/// `7f0000000000-7f0000200000 rw-p ...`
fn bounds(line: &str) -> Option<(usize, usize)> {
    let (from, rest) = line.split_once('-')?;
    let (to, _) = rest.split_once(' ')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
}

/// Bytes of `AnonHugePages:   2048 kB`, and of the pages set aside, which are not counted there.
fn huge(line: &str) -> Option<usize> {
    let names = ["AnonHugePages:", "Private_Hugetlb:", "Shared_Hugetlb:"];
    let rest = names.iter().find_map(|name| line.strip_prefix(name))?;
    let kib: usize = rest.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Pages from the system, given back when the last region of them is gone.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    total: usize,
    start: usize,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; by invariant 1 only `Drop` ends it.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference to it gives no access to its memory but by regions, that is, by atomics.
unsafe impl Sync for Mapping {}

impl core::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Mapping({} bytes)", self.bytes)
    }
}

impl Mapping {
    /// At least `bytes` zeroed bytes, aligned to a huge page. `None` when the system has none.
    fn anonymous(bytes: usize) -> Option<Self> {
        // Miri knows neither protection nor advice.
        if cfg!(miri) {
            return None;
        }
        let bytes = bytes.checked_next_multiple_of(HUGE_BYTES)?;
        Self::set_aside(bytes).or_else(|| Self::transparent(bytes))
    }

    /// From the pages that the administrator set aside, if there are enough.
    fn set_aside(bytes: usize) -> Option<Self> {
        let flags =
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        let base = map(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1).ok()?;
        Some(Self { base, total: bytes, start: 0, bytes })
    }

    /// Ordinary pages that the system is requested to make huge. Aligned, which a large mapping is not by
    /// itself, inside a larger one that may not be touched.
    fn transparent(bytes: usize) -> Option<Self> {
        let total = bytes.checked_add(HUGE_BYTES + 2 * GUARD_BYTES)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let base = map(total, libc::PROT_NONE, flags, -1).ok()?;
        let guarded = base.as_ptr() as usize + GUARD_BYTES;
        let start = guarded.next_multiple_of(HUGE_BYTES) - base.as_ptr() as usize;
        let mapping = Self { base, total, start, bytes };
        // SAFETY: by the choice of `total` all of it is inside the mapping just made.
        let opened = unsafe {
            libc::mprotect(
                mapping.first().as_ptr().cast(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if opened != 0 {
            return None;
        }
        // SAFETY: as above; the advice changes no content. Where it is refused the pages stay small,
        // as `Pages` then tells.
        unsafe { libc::madvise(mapping.first().as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Some(mapping)
    }

    /// A file, from its beginning to the `bytes`-th byte.
    ///
    /// # Errors
    /// Of the system, and when the file is shorter or `bytes` is 0.
    pub(crate) fn file(file: &File, bytes: usize) -> io::Result<Self> {
        if bytes == 0 || file.metadata()?.len() < bytes as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let base = map(bytes, access, libc::MAP_PRIVATE, file.as_raw_fd())?;
        Ok(Self { base, total: bytes, start: 0, bytes })
    }

    /// A part of the mapping. `None` when it is not aligned to a line or not inside.
    pub(crate) fn region(
        self: &Arc<Self>,
        name: &'static str,
        offset: usize,
        bytes: usize,
    ) -> Option<Region> {
        if !offset.is_multiple_of(LINE_BYTES) || bytes > self.bytes.checked_sub(offset)? {
            return None;
        }
        // SAFETY: by the line above and invariant 2 it is inside the mapping.
        let first = unsafe { self.first().add(offset) };
        // SAFETY: invariants 2 and 4; the owner keeps the mapping, and all reach it by regions.
        Some(unsafe { Region::from_raw(name, first, bytes, Arc::<Self>::clone(self)) })
    }

    /// The first byte that may be used.
    fn first(&self) -> NonNull<u8> {
        // SAFETY: invariant 2: `start` is inside.
        unsafe { self.base.add(self.start) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: invariants 1 and 4: the mapping is ours, and no region of it is left.
        let done = unsafe { libc::munmap(self.base.as_ptr().cast(), self.total) };
        debug_assert_eq!(
            done,
            0,
            "a mapping of ours can be given back: {}",
            Error::last_os_error()
        );
    }
}

/// `mmap`, wherever the system likes; `fd` is -1 for no file.
fn map(bytes: usize, access: i32, flags: i32, fd: i32) -> io::Result<NonNull<u8>> {
    // SAFETY: with no address given it replaces nothing that exists.
    let base = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Whether the system makes transparent huge pages on request; for tests and reports.
pub fn huge_pages_on_request() -> bool {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let setting = setting.unwrap_or_else(|_| String::from("[never]"));
    !setting.contains("[never]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::modules;
    use crate::lookup::Routes;
    use crate::next_hop_id::NextHopId;
    use crate::testing::{Shape, probes, table};
    use crate::{Prefix, RouteStore};
    use core::sync::atomic::Ordering::Relaxed;
    use std::println;

    #[test]
    fn regions_share_pages_and_never_overlap() {
        let mut memory = HugePages::new();
        let sizes = [100, HUGE_BYTES / 2, HUGE_BYTES / 2 - 128, 64, 65, 3 * HUGE_BYTES + 1, 7];
        let regions = sizes.map(|bytes| memory.region("t", bytes).unwrap());
        for (i, region) in regions.iter().enumerate() {
            assert!(region.bytes() >= sizes[i] && region.bytes() < sizes[i] + LINE_BYTES);
            assert_eq!(region.u8s().as_ptr() as usize % LINE_BYTES, 0);
            let tag = u8::try_from(i + 1).unwrap();
            assert!(region.u8s().iter().all(|cell| cell.swap(tag, Relaxed) == 0), "region {i}");
        }
        for (i, region) in regions.iter().enumerate() {
            assert!(region.u8s().iter().all(|cell| usize::from(cell.load(Relaxed)) == i + 1));
        }
        drop(memory);
        let kept = regions[5].clone();
        drop(regions);
        assert_eq!(kept.u8s()[3 * HUGE_BYTES].load(Relaxed), 6, "a region keeps its mapping");
        assert!(matches!(
            HugePages::new().region("t", usize::MAX),
            Err(UpdateError::Memory { bytes: usize::MAX, .. })
        ));
        assert!(HugePages::new().region("t", usize::MAX >> 8).is_err());
    }

    #[test]
    fn huge_pages_are_had_and_counted() {
        if !huge_pages_on_request() {
            println!("skipped: needs transparent huge pages");
            return;
        }
        let mut memory = HugePages::new();
        let region = memory.region("t", 8 << 20).unwrap();
        assert_eq!(region.u8s().as_ptr() as usize % HUGE_BYTES, 0);
        assert_eq!(region.pages(), Some(Pages { bytes: 8 << 20, huge_bytes: 0 }), "none touched");
        region.u64s().iter().step_by(512).for_each(|word| word.store(1, Relaxed));
        let pages = region.pages().unwrap();
        assert!(pages.huge_bytes >= 2 << 20, "{pages:?}");
        // A heap of this size is a mapping of small pages, unless the system makes all of them huge.
        let heap = Heap.region("t", 8 << 20).unwrap();
        assert_eq!(pages_of_two(&region, &heap).bytes, 16 << 20);
    }

    fn pages_of_two(a: &Region, b: &Region) -> Pages {
        pages(&[a.clone(), b.clone()]).unwrap()
    }

    #[test]
    fn lines_of_smaps_are_read() {
        assert_eq!(bounds("7f00-7f80 rw-p 00000000 00:00 0  [heap]"), Some((0x7f00, 0x7f80)));
        assert_eq!(bounds("Rss:                2048 kB"), None);
        assert_eq!(huge("AnonHugePages:      4096 kB"), Some(4 << 20));
        assert_eq!(huge("Private_Hugetlb:    2048 kB"), Some(2 << 20));
        assert_eq!(huge("FilePmdMapped:      2048 kB"), None);
    }

    #[test]
    fn every_algorithm_builds_in_them() {
        fn check<A: crate::Addr>(rows: impl Iterator<Item = &'static crate::Algorithm<A>>) {
            let routes: RouteStore<A> = table(Shape::Internet, 2000, 90, 1).into_iter().collect();
            for row in rows.filter(|row| row.limits.check(&routes.stats()).is_ok()) {
                let lookup = row.build(&routes, &mut HugePages::new()).unwrap().publish();
                for addr in routes.iter().flat_map(|(prefix, _)| probes(prefix)) {
                    let want = routes.best(addr).map_or(NextHopId::NONE, |(_, hop)| hop);
                    assert_eq!(lookup.lookup(addr), want, "{row:?}, {addr:?}");
                }
            }
        }
        check(modules().flat_map(|module| module.v4));
        check(modules().flat_map(|module| module.v6));
        assert!(Prefix::<u32>::ALL.contains(0));
    }

    #[test]
    fn files_are_mapped_and_stay_as_they_are() {
        let path = std::env::temp_dir().join(std::format!("fingerpost-map-{}", std::process::id()));
        fs::write(&path, [7; 5000]).unwrap();
        let file = File::open(&path).unwrap();
        assert!(Mapping::file(&file, 5001).is_err() && Mapping::file(&file, 0).is_err());
        let mapping = Arc::new(Mapping::file(&file, 5000).unwrap());
        for (offset, bytes) in [(1, 64), (4992, 9), (5056, 0), (usize::MAX - 63, 64)] {
            assert!(mapping.region("t", offset, bytes).is_none(), "{offset}, {bytes}");
        }
        let region = mapping.region("t", 4096, 904).unwrap();
        region.u8s()[903].store(8, Relaxed);
        assert_eq!((region.u8s()[902].load(Relaxed), region.u8s()[903].load(Relaxed)), (7, 8));
        drop((mapping, file));
        assert_eq!(fs::read(&path).unwrap(), [7; 5000]);
        fs::remove_file(&path).unwrap();
    }
}
