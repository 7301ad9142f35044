//! A ring buffer that programs in the kernel put records into, and this process takes them out of.
//!
//! Source: the kernel's `kernel/bpf/ringbuf.c` and `Documentation/bpf/ringbuf.rst`. Linux 5.8.
//! Shape:  a page with the consumer's position, which we write; a page with the producer's; the records, each behind 8 bytes
//!         that have its length and whether it is whole. The records are mapped twice in a row, so that none is cut in two.
//! Cost:   a read of the producer's position where there is nothing; no system call.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. Both mappings live until the buffer is dropped, with these sizes: one page, and one page and twice `bytes`.
//! 2. The kernel writes no record between the consumer's position and the producer's, once it is whole.
//! 3. Positions are multiples of 8, and a record ends before twice `bytes`: the kernel sees to it, and each length is checked
//!    before it is used.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, PoisonError};

use super::XdpError;
use super::bpf::{Map, MapKind};

/// Bytes before each record.
const HEADER: usize = 8;

/// Bits of a record's first word: it is not whole yet, or to be passed over.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// The ring buffer.
#[derive(Debug)]
pub struct RingBuffer {
    map: Map,
    bytes: usize,
    page: usize,
    consumer: NonNull<u8>,
    producer: NonNull<u8>,
    /// One at a time takes records.
    taking: Mutex<()>,
}

// SAFETY: by invariant 2 records are read only where nobody writes; positions are atomics.
unsafe impl Send for RingBuffer {}
// SAFETY: as above; `taking` keeps all but one thread away.
unsafe impl Sync for RingBuffer {}

fn page_bytes() -> usize {
    // SAFETY: takes no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

impl RingBuffer {
    /// A buffer for records of so many bytes in all: a power of two, and a page at least.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(name: &'static str, bytes: u32) -> Result<Self, XdpError> {
        let map = Map::new(MapKind::RingBuffer, name, 0, 0, bytes)?;
        let (bytes, page) = (bytes as usize, page_bytes());
        let consumer = map_memory(&map, libc::PROT_READ | libc::PROT_WRITE, 0, page)?;
        let producer = match map_memory(&map, libc::PROT_READ, page, page + 2 * bytes) {
            Ok(producer) => producer,
            Err(error) => {
                // SAFETY: it is ours, and nothing refers to it yet.
                unsafe { libc::munmap(consumer.as_ptr().cast(), page) };
                return Err(error);
            }
        };
        Ok(Self { map, bytes, page, consumer, producer, taking: Mutex::new(()) })
    }

    /// The map, for programs.
    pub fn map(&self) -> &Map {
        &self.map
    }

    fn consumer(&self) -> &AtomicU64 {
        // SAFETY: invariant 1, and a page is aligned.
        unsafe { self.consumer.cast::<AtomicU64>().as_ref() }
    }

    fn producer(&self) -> &AtomicU64 {
        // SAFETY: invariant 1, and a page is aligned.
        unsafe { self.producer.cast::<AtomicU64>().as_ref() }
    }

    /// The bytes of the records from a position on that has room for `len` of them.
    fn data(&self, position: u64, len: usize) -> Option<NonNull<u8>> {
        let at = usize::try_from(position & (self.bytes as u64 - 1)).ok()?;
        if at + len > 2 * self.bytes {
            return None;
        }
        // SAFETY: invariant 1, checked above.
        Some(unsafe { self.producer.add(self.page + at) })
    }

    /// Takes up to `most` records out. Returns how many there were.
    pub fn take(&self, most: usize, mut each: impl FnMut(&[u8])) -> usize {
        let _one = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = 0;
        // Relaxed: we alone write it, under the lock. Acquire pairs with the kernel's release of the records.
        let mut position = self.consumer().load(Relaxed);
        while taken < most && position < self.producer().load(Acquire) {
            let Some(header) = self.data(position, HEADER) else { break };
            // SAFETY: invariants 1 and 3: a word in the mapping, aligned to 8 bytes.
            let word = unsafe { header.cast::<AtomicU32>().as_ref() };
            // Acquire pairs with the kernel's release when a record is whole.
            let word = word.load(Acquire);
            if word & BUSY != 0 {
                break;
            }
            let len = (word & !DISCARDED) as usize;
            // Where the buffer ends behind the header, this is its beginning, which is the same memory.
            let Some(record) = self.data(position + HEADER as u64, len) else { break };
            if word & DISCARDED == 0 {
                // SAFETY: invariants 1 and 2, and the length was checked.
                each(unsafe { std::slice::from_raw_parts(record.as_ptr(), len) });
                taken += 1;
            }
            position += (HEADER + len).next_multiple_of(8) as u64;
            // Release: the record was read before the kernel may write there.
            self.consumer().store(position, Release);
        }
        taken
    }
}

/// Maps a part of a map.
fn map_memory(
    map: &Map,
    access: libc::c_int,
    from: usize,
    bytes: usize,
) -> Result<NonNull<u8>, XdpError> {
    let offset = libc::off_t::try_from(from).expect("a page");
    let fd = map.as_fd().as_raw_fd();
    // SAFETY: a new mapping at a place of the kernel's choice.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, offset) };
    if at == libc::MAP_FAILED {
        let source = io::Error::last_os_error();
        return Err(XdpError::System { call: "mmap of a ring buffer", source });
    }
    Ok(NonNull::new(at.cast()).expect("a mapping is not at 0"))
}

impl Drop for RingBuffer {
    fn drop(&mut self) {
        // SAFETY: invariant 1, and no reference is left.
        unsafe { libc::munmap(self.consumer.as_ptr().cast(), self.page) };
        // SAFETY: as above.
        unsafe { libc::munmap(self.producer.as_ptr().cast(), self.page + 2 * self.bytes) };
    }
}
