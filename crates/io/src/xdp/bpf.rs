//! bpf(2) in calls that are safe to make: maps, programs, attachments.
//!
//! Source: `union bpf_attr` in the kernel's `include/uapi/linux/bpf.h`; each call fills the few
//! fields that it needs, named beside their offset. Kernel 5.9 for attachments as links, 5.18 for
//! live frames.
//! Cost: a system call each. Nothing here is on the packet path.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. `Attr` is larger than the kernel needs for any command used here and zero where not set.
//! 2. The pointers in it point to live memory of at least the size that the kernel will read or
//!    write: a map's key and value sizes are fixed when it is made (`Map::key_bytes`,
//!    `Map::value_bytes`, for per-CPU maps times the CPUs that are possible) and checked at each call.
//! 3. A descriptor that the kernel returns is new and ours alone.
//! 4. A `SharedMemory` is mapped whole, for reading and writing, until it is dropped; regions of it keep it.
//!    Programs write only words of it, as atomics do.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fingerpost_lpm::Region;
use fingerpost_route::netlink::errno::without_number;

use super::load::Insn;
use super::{Mode, XdpError};

/// Kinds of map (numbers of `enum bpf_map_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum MapKind {
    /// Values by key bytes.
    Hash = 1,
    /// Values by number.
    Array = 2,
    /// Programs by number, to continue in.
    ProgArray = 3,
    /// One value a number and CPU.
    PerCpuArray = 6,
    /// Values by the longest prefix of an address: keys are a length in bits (`u32`) and an address.
    LpmTrie = 11,
    /// Interfaces by number, to redirect to.
    DevMap = 14,
    /// AF_XDP sockets by number, to redirect to.
    XskMap = 17,
    /// Records from programs to this process; it has no keys and no values.
    RingBuffer = 27,
}

/// `enum bpf_cmd`.
#[derive(Clone, Copy)]
#[repr(i32)]
enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    ProgLoad = 5,
    ObjPin = 6,
    ObjGet = 7,
    ProgTestRun = 10,
    ObjInfo = 15,
    RawTracepointOpen = 17,
    MapLookupBatch = 24,
    LinkCreate = 28,
    LinkUpdate = 29,
}

/// `BPF_LINK_TYPE_XDP`.
const LINK_OF_XDP: u32 = 6;
const BPF_F_NO_PREALLOC: u32 = 1;
const BPF_F_MMAPABLE: u32 = 1 << 10;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const BPF_XDP: u32 = 37;
const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 2;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Values that are read together.
const BATCH: u32 = 256;
/// How often a program is loaded that the kernel was too busy for.
const LOADS: u32 = 20;

/// `union bpf_attr`: 144 bytes, more than any command here uses.
#[repr(C, align(8))]
struct Attr([u8; 144]);

impl Attr {
    fn new() -> Self {
        Self([0; 144])
    }

    fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn fd(self, at: usize, fd: RawFd) -> Self {
        self.u32(at, fd.cast_unsigned())
    }

    fn pointer<T>(self, at: usize, pointer: *const T) -> Self {
        self.u64(at, pointer as u64)
    }

    /// A name of at most 15 bytes, for listings.
    fn name(mut self, at: usize, name: &str) -> Self {
        let bytes = &name.as_bytes()[..name.len().min(15)];
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }
}

/// # Safety
/// Invariant 2 for every pointer in `attr`.
unsafe fn bpf(command: Command, attr: &mut Attr) -> io::Result<i32> {
    // SAFETY: invariant 1, and 2 by the caller.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command as i32, attr.0.as_mut_ptr(), attr.0.len()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::try_from(result).expect("bpf(2) returns an int"))
}

/// Gives a map, program or link a name in a file system of type bpf, which keeps it alive.
///
/// # Errors
/// The kernel's error: `EEXIST` where the name is taken.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_string(path)?;
    let mut attr = Attr::new().pointer(0, path.as_ptr()).fd(8, object.as_raw_fd());
    // SAFETY: invariant 2: a string with its end.
    unsafe { bpf(Command::ObjPin, &mut attr) }.map(drop)
}

/// What has that name.
fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = c_string(path)?;
    let mut attr = Attr::new().pointer(0, path.as_ptr());
    // SAFETY: invariant 2: a string with its end.
    let fd = unsafe { bpf(Command::ObjGet, &mut attr) }?;
    // SAFETY: invariant 3.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// First words of the kernel's information about a map, program or link.
fn info(object: BorrowedFd<'_>) -> io::Result<[u32; INFO_WORDS]> {
    let mut words = [0; INFO_WORDS];
    let bytes = u32::try_from(size_of_val(&words)).expect("a few words");
    let mut attr =
        Attr::new().fd(0, object.as_raw_fd()).u32(4, bytes).pointer(8, words.as_mut_ptr());
    // SAFETY: invariant 2: the kernel writes no more than the length given.
    unsafe { bpf(Command::ObjInfo, &mut attr) }?;
    Ok(words)
}

const INFO_WORDS: usize = 6;

/// The kernel's id of the map behind a descriptor.
pub(super) fn map_id(map: RawFd) -> io::Result<u32> {
    // SAFETY: it is not kept, and one that is not open is the kernel's to refuse.
    Ok(info(unsafe { BorrowedFd::borrow_raw(map) })?[1])
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// Mounts a file system of type bpf on a folder: only root sees into it.
///
/// # Errors
/// The kernel's error.
pub fn mount_bpffs(folder: &Path) -> io::Result<()> {
    let (at, kind) = (c_string(folder)?, c"bpf".as_ptr());
    // SAFETY: invariant 2: strings with their ends.
    let done = unsafe { libc::mount(kind, at.as_ptr(), kind, 0, c"mode=0700".as_ptr().cast()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether a folder lies in a file system of type bpf.
pub fn is_bpffs(folder: &Path) -> bool {
    let Ok(folder) = c_string(folder) else { return false };
    // SAFETY: all zeroes is a valid value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: invariant 2.
    let done = unsafe { libc::statfs(folder.as_ptr(), &raw mut found) };
    // Each C library has a type of its own for it.
    let kind: i64 = found.f_type as _;
    done == 0 && kind == BPFFS
}

/// `BPF_FS_MAGIC`.
const BPFFS: i64 = 0xcafe_4a11;

/// CPUs that can ever exist here: a per-CPU value has one part for each.
///
/// # Errors
/// When `/sys` does not report it; guessing low would let the kernel write past a buffer.
pub fn possible_cpus() -> io::Result<usize> {
    static CPUS: OnceLock<usize> = OnceLock::new();
    if let Some(&cpus) = CPUS.get() {
        return Ok(cpus);
    }
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    // `0-3` or `0-3,8-11`: the highest number decides, gaps have parts too.
    let last = text.trim().rsplit([',', '-']).next().and_then(|n| n.parse::<usize>().ok());
    let cpus = last.ok_or_else(|| io::Error::other(format!("possible CPUs: {text:?}")))? + 1;
    Ok(*CPUS.get_or_init(|| cpus))
}

/// How long a tick of the kernel's clock lasts.
pub fn tick() -> std::time::Duration {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The coarse clock advances once a tick, and reports that resolution.
    // SAFETY: invariant 2.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    std::time::Duration::from_nanos(u64::try_from(resolution.tv_nsec).unwrap_or(0))
}

/// A map. Programs that use it keep it alive.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_bytes: usize,
    /// Bytes of a value in user space: all CPUs' parts, each rounded up to 8 bytes.
    value_bytes: usize,
    entries: u32,
}

impl Map {
    /// A map of `entries` entries, with keys and values of these sizes in bytes.
    ///
    /// # Errors
    /// The kernel's error; a hash map or a trie takes its memory as it fills, the others at once.
    pub fn new(
        kind: MapKind,
        name: &'static str,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    ) -> Result<Self, XdpError> {
        let grows = matches!(kind, MapKind::Hash | MapKind::LpmTrie);
        let flags = if grows { BPF_F_NO_PREALLOC } else { 0 };
        Self::with_flags(kind, name, (key_bytes, value_bytes), entries, flags)
    }

    fn with_flags(
        kind: MapKind,
        name: &'static str,
        (key_bytes, value_bytes): (u32, u32),
        entries: u32,
        flags: u32,
    ) -> Result<Self, XdpError> {
        let error = |source| XdpError::System { call: "bpf(MAP_CREATE)", source };
        let mut attr = Attr::new()
            .u32(0, kind as u32)
            .u32(4, key_bytes)
            .u32(8, value_bytes)
            .u32(12, entries)
            .u32(16, flags)
            .name(28, name);
        // SAFETY: no pointers in it.
        let fd = unsafe { bpf(Command::MapCreate, &mut attr) }.map_err(error)?;
        // SAFETY: invariant 3.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let value_bytes = match kind {
            MapKind::PerCpuArray => {
                possible_cpus().map_err(error)? * value_bytes.next_multiple_of(8) as usize
            }
            _ => value_bytes as usize,
        };
        Ok(Self { fd, key_bytes: key_bytes as usize, value_bytes, entries })
    }

    /// Entries at most.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Writes the value at `key`, adding the key to a hash map.
    ///
    /// # Errors
    /// The kernel's error: `E2BIG` when full or out of range.
    ///
    /// # Panics
    /// When the sizes are not the map's.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!((key.len(), value.len()), (self.key_bytes, self.value_bytes));
        let mut attr = self.attr(key).pointer(16, value.as_ptr());
        // SAFETY: invariant 2, checked above.
        unsafe { bpf(Command::MapUpdate, &mut attr) }.map(drop)
    }

    /// Reads the value at `key`; `false` when there is none.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// When the sizes are not the map's.
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        assert_eq!((key.len(), value.len()), (self.key_bytes, self.value_bytes));
        let mut attr = self.attr(key).pointer(16, value.as_mut_ptr());
        // SAFETY: invariant 2, checked above.
        found(unsafe { bpf(Command::MapLookup, &mut attr) })
    }

    /// Removes `key`; `false` when there is no such key.
    ///
    /// # Errors
    /// The kernel's error: keys of an array cannot be removed.
    ///
    /// # Panics
    /// When the key's size is not the map's.
    pub fn delete(&self, key: &[u8]) -> io::Result<bool> {
        assert_eq!(key.len(), self.key_bytes);
        let mut attr = self.attr(key);
        // SAFETY: invariant 2, checked above.
        found(unsafe { bpf(Command::MapDelete, &mut attr) })
    }

    /// Sum over all CPUs of the 64-bit number at `index` of a per-CPU array.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn sum(&self, index: u32) -> io::Result<u64> {
        let parts = self.parts(index)?;
        let number = |part: &[u8]| u64::from_ne_bytes(part.try_into().expect("8 bytes each"));
        Ok(parts.chunks_exact(8).map(number).sum())
    }

    /// What stands at `index`: of a per-CPU array the parts of all CPUs, one after the other.
    fn parts(&self, index: u32) -> io::Result<Vec<u8>> {
        let mut parts = vec![0; self.value_bytes];
        self.lookup(&index.to_ne_bytes(), &mut parts)?;
        Ok(parts)
    }

    /// All values of an array in order, many in a system call: `visit` gets each number with what stands
    /// there, of a per-CPU array (Linux 5.13) the parts of all CPUs, one after the other.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// When keys are not numbers of 32 bits.
    pub fn each(&self, visit: &mut dyn FnMut(u32, &[u8])) -> io::Result<()> {
        assert_eq!(self.key_bytes, 4);
        let mut keys = [0_u32; BATCH as usize];
        let mut values = vec![0; BATCH as usize * self.value_bytes];
        let (mut done, mut last) = (0, 0_u32);
        while done < self.entries {
            let most = (self.entries - done).min(BATCH);
            let mut attr = Attr::new()
                .pointer(8, &raw mut last)
                .pointer(16, keys.as_mut_ptr())
                .pointer(24, values.as_mut_ptr())
                .u32(32, most)
                .fd(36, self.fd.as_raw_fd());
            let before = last;
            if done > 0 {
                attr = attr.pointer(0, &raw const before);
            }
            // SAFETY: invariant 2: room for `most` keys and values, and for a key before and after.
            unsafe { bpf(Command::MapLookupBatch, &mut attr) }?;
            let read = keys.iter().zip(values.chunks_exact(self.value_bytes));
            read.take(most as usize).for_each(|(key, value)| visit(*key, value));
            done += most;
        }
        Ok(())
    }

    fn attr(&self, key: &[u8]) -> Attr {
        Attr::new().fd(0, self.fd.as_raw_fd()).pointer(8, key.as_ptr())
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Memory that programs in the kernel and this process share: the only value of an array map, mapped.
#[derive(Debug)]
pub struct SharedMemory {
    map: Map,
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: by invariant 4 it is memory that is reached by atomics alone.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Zeroed, and taken from the kernel at once, in pages.
    ///
    /// # Errors
    /// The kernel's error: `E2BIG` or `ENOMEM` when it has not so much in a piece.
    pub fn new(name: &'static str, bytes: usize) -> Result<Arc<Self>, XdpError> {
        let error = |call| move |source| XdpError::System { call, source };
        let size = u32::try_from(bytes)
            .map_err(|e| error("bpf(MAP_CREATE) of shared memory")(io::Error::other(e)))?;
        let map = Map::with_flags(MapKind::Array, name, (4, size), 1, BPF_F_MMAPABLE)?;
        Self::of_map(map)
    }

    /// That which [`pin`] gave a name.
    ///
    /// # Errors
    /// The kernel's error; `EINVAL` for what is no such memory.
    pub fn pinned(path: &Path) -> Result<Arc<Self>, XdpError> {
        let error = |call| move |source| XdpError::System { call, source };
        let fd = pinned(path).map_err(error("bpf(OBJ_GET) of shared memory"))?;
        let info = info(fd.as_fd()).map_err(error("bpf(OBJ_GET_INFO) of shared memory"))?;
        // Kind, number, bytes of key and value, entries, flags.
        let [kind, _, key_bytes, bytes, entries, flags] = info;
        if (kind, key_bytes, entries) != (MapKind::Array as u32, 4, 1) || flags != BPF_F_MMAPABLE {
            let source = io::Error::from_raw_os_error(libc::EINVAL);
            return Err(error("looking at shared memory")(source));
        }
        Self::of_map(Map { fd, key_bytes: 4, value_bytes: bytes as usize, entries })
    }

    fn of_map(map: Map) -> Result<Arc<Self>, XdpError> {
        let error = |call| move |source| XdpError::System { call, source };
        let bytes = map.value_bytes;
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, map.fd.as_raw_fd());
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(error("mmap of a map")(io::Error::last_os_error()));
        }
        let at = NonNull::new(at.cast()).expect("a mapping is not at 0");
        Ok(Arc::new(Self { map, at, bytes }))
    }

    /// The map, for programs.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first `bytes` of it, as lookup structures use memory.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn region(self: &Arc<Self>, name: &'static str, bytes: usize) -> Region {
        assert!(bytes <= self.bytes, "{bytes} of {}", self.bytes);
        // SAFETY: invariant 4, and a page is aligned to more than a line.
        unsafe { Region::from_raw(name, self.at, bytes, self.clone()) }
    }

    /// The memory that a region lies in, if it is of this kind.
    pub fn of(region: &Region) -> Option<&Self> {
        region.owner().downcast_ref()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and by invariant 4 no region is left.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// Waits until every program that runs in the kernel at this moment has ended, and what it redirected lies in the rings
/// of its sockets: some 10 to 50 ms.
///
/// Source: membarrier(2), whose global command is a grace period of RCU; programs run inside its read side.
pub fn wait_for_programs() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: takes no pointers.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if done < 0 {
        // Refused with `nohz_full`. A poll of a driver lasts some milliseconds at most.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn found(result: io::Result<i32>) -> io::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What a program made of one frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// `XDP_PASS` and so on.
    pub action: u32,
    /// The frame as it left it.
    pub frame: Vec<u8>,
}

/// A loaded XDP program.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

impl Program {
    /// Loads `code`. The descriptors of its maps must be open; afterwards they need not be.
    ///
    /// # Errors
    /// `Rejected`, with the verifier's log.
    pub fn load(name: &'static str, code: &[Insn]) -> Result<Self, XdpError> {
        Self::load_for(name, code, None)
    }

    /// The same, for native mode on one interface of the present network namespace only: such a
    /// program may read the driver's metadata of a frame.
    ///
    /// # Errors
    /// `Rejected` also for an interface without native XDP.
    pub fn load_for(
        name: &'static str,
        code: &[Insn],
        ifindex: Option<u32>,
    ) -> Result<Self, XdpError> {
        Self::load_as(BPF_PROG_TYPE_XDP, name, code, ifindex)
    }

    /// Loads a program for a tracepoint.
    ///
    /// # Errors
    /// `Rejected`, with the verifier's log.
    pub fn load_tracing(name: &'static str, code: &[Insn]) -> Result<Self, XdpError> {
        Self::load_as(BPF_PROG_TYPE_RAW_TRACEPOINT, name, code, None)
    }

    fn load_as(
        kind: u32,
        name: &'static str,
        code: &[Insn],
        ifindex: Option<u32>,
    ) -> Result<Self, XdpError> {
        match Self::load_with_log(kind, name, code, ifindex, &mut []) {
            Ok(program) => Ok(program),
            // The log makes loading slow, so it is requested only now.
            Err(_) => {
                let mut log = vec![0; 1 << 20];
                Self::load_with_log(kind, name, code, ifindex, &mut log).map_err(|source| {
                    // Behind its end the kernel may leave bytes of earlier lines.
                    let log = log.split(|&byte| byte == 0).next().unwrap_or_default();
                    let log = String::from_utf8_lossy(log);
                    let lines: Vec<_> = log.lines().collect();
                    let log = lines[lines.len().saturating_sub(12)..].join("; ");
                    XdpError::Rejected { program: name, source, log }
                })
            }
        }
    }

    fn load_with_log(
        kind: u32,
        name: &str,
        code: &[Insn],
        ifindex: Option<u32>,
        log: &mut [u8],
    ) -> io::Result<Self> {
        let count = u32::try_from(code.len()).map_err(io::Error::other)?;
        let mut attr = Attr::new()
            .u32(0, kind)
            .u32(4, count)
            .pointer(8, code.as_ptr())
            // The helpers that we call require a license compatible with the kernel's; ours allow it.
            .pointer(16, c"Dual MIT/GPL".as_ptr())
            .name(48, name);
        if let Some(ifindex) = ifindex {
            attr = attr.u32(44, BPF_F_XDP_DEV_BOUND_ONLY).u32(64, ifindex);
        }
        if !log.is_empty() {
            let bytes = u32::try_from(log.len()).map_err(io::Error::other)?;
            attr = attr.u32(24, 1).u32(28, bytes).pointer(32, log.as_mut_ptr());
        }
        let mut tries = 1;
        loop {
            // SAFETY: invariant 2: `count` instructions of 8 bytes, a string with its end, the log.
            match unsafe { bpf(Command::ProgLoad, &mut attr) } {
                // SAFETY: invariant 3.
                Ok(fd) => return Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } }),
                // The verifier gives way to whatever wants the thread, which is no error of the program.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && tries < LOADS => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs it once on a frame of at least 14 bytes, as if received on queue 0 of the loopback
    /// device. Maps are really read and written; a redirected frame goes nowhere.
    ///
    /// # Errors
    /// The kernel's error: `EINVAL` for frames that are too short or too long (about 3.5 KB).
    pub fn test(&self, frame: &[u8]) -> Result<Answer, XdpError> {
        let error = |source| XdpError::System { call: "bpf(PROG_TEST_RUN)", source };
        let room = frame.len() + 256;
        let mut out = vec![0; room];
        let bytes = |n: usize| u32::try_from(n).map_err(|e| error(io::Error::other(e)));
        let mut attr = Attr::new()
            .fd(0, self.fd.as_raw_fd())
            .u32(8, bytes(frame.len())?)
            .u32(12, bytes(room)?)
            .pointer(16, frame.as_ptr())
            .pointer(24, out.as_mut_ptr())
            .u32(32, 1);
        // SAFETY: invariant 2: both buffers have the sizes given.
        unsafe { bpf(Command::ProgTestRun, &mut attr) }.map_err(error)?;
        let word = |at: usize| {
            u32::from_ne_bytes(attr.0[at..at + 4].try_into().expect("a slice of 4 bytes"))
        };
        out.truncate(word(12) as usize);
        Ok(Answer { action: word(4), frame: out })
    }

    /// Length of what the verifier left of it, in instructions.
    #[cfg(test)]
    pub fn instructions(&self) -> io::Result<u32> {
        Ok(info(self.fd.as_fd())?[5] / 8)
    }

    /// The kernel's id of it.
    #[cfg(test)]
    pub fn id(&self) -> io::Result<u32> {
        Ok(info(self.fd.as_fd())?[1])
    }

    /// Runs a program for a tracepoint once, in the calling thread.
    ///
    /// # Errors
    /// The kernel's error: `EINVAL` before 5.10.
    pub fn run_here(&self) -> io::Result<()> {
        let mut attr = Attr::new().fd(0, self.fd.as_raw_fd());
        // SAFETY: no pointers in it.
        unsafe { bpf(Command::ProgTestRun, &mut attr) }.map(drop)
    }

    /// Runs it whenever the kernel passes this tracepoint, until what is returned is dropped.
    ///
    /// # Errors
    /// The kernel's error: without CAP_PERFMON `EPERM`.
    pub fn trace(&self, tracepoint: &CStr) -> io::Result<OwnedFd> {
        let mut attr = Attr::new().pointer(0, tracepoint.as_ptr()).fd(8, self.fd.as_raw_fd());
        // SAFETY: invariant 2: a string with its end.
        let fd = unsafe { bpf(Command::RawTracepointOpen, &mut attr) }?;
        // SAFETY: invariant 3.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Runs it `repeat` times on one frame, each time as the last left it, and returns the nanoseconds
    /// that one took. What it redirects goes nowhere.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn time(&self, frame: &[u8], repeat: u32) -> Result<u32, XdpError> {
        let error = |source| XdpError::System { call: "bpf(PROG_TEST_RUN)", source };
        let bytes = u32::try_from(frame.len()).map_err(|e| error(io::Error::other(e)))?;
        let mut attr = Attr::new()
            .fd(0, self.fd.as_raw_fd())
            .u32(8, bytes)
            .pointer(16, frame.as_ptr())
            .u32(32, repeat);
        // SAFETY: invariant 2: the frame has the size given; no frame is written back.
        unsafe { bpf(Command::ProgTestRun, &mut attr) }.map_err(error)?;
        Ok(u32::from_ne_bytes(attr.0[36..40].try_into().expect("a slice of 4 bytes")))
    }

    /// Runs it on `repeat` frames that are then really sent where it redirects them, `batch` at a
    /// time. A call costs 25 ms besides (packets of one call share it: use 2^18 or more). The kernel
    /// reuses pages as the last receiver left them: a program must rewrite whatever it relies on.
    ///
    /// Returns early, without an error, when a signal arrives.
    ///
    /// # Errors
    /// The kernel's error: `EINVAL` before 5.18.
    pub fn run_live(&self, frame: &[u8], repeat: u32, batch: u32) -> Result<(), XdpError> {
        let error = |source| XdpError::System { call: "bpf(PROG_TEST_RUN, live frames)", source };
        let bytes = u32::try_from(frame.len()).map_err(|e| error(io::Error::other(e)))?;
        let mut attr = Attr::new()
            .fd(0, self.fd.as_raw_fd())
            .u32(8, bytes)
            .pointer(16, frame.as_ptr())
            .u32(32, repeat)
            .u32(64, BPF_F_TEST_XDP_LIVE_FRAMES)
            .u32(72, batch);
        // SAFETY: invariant 2: the frame has the size given; nothing is written back.
        match unsafe { bpf(Command::ProgTestRun, &mut attr) } {
            Ok(_) => Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => Ok(()),
            Err(e) => Err(error(e)),
        }
    }

    /// Attaches it to an interface of the present network namespace, until the link is dropped.
    ///
    /// # Errors
    /// `Attach`: `EBUSY` when another program is there, `EOPNOTSUPP` when the driver has no XDP,
    /// `ERANGE` or `EINVAL` when the MTU is too large for it.
    pub fn attach(&self, ifindex: u32, mode: Mode) -> Result<Link, XdpError> {
        let flags = match mode {
            Mode::Native => XDP_FLAGS_DRV_MODE,
            Mode::Generic => XDP_FLAGS_SKB_MODE,
        };
        let mut attr =
            Attr::new().fd(0, self.fd.as_raw_fd()).u32(4, ifindex).u32(8, BPF_XDP).u32(12, flags);
        // SAFETY: no pointers in it.
        let fd = unsafe { bpf(Command::LinkCreate, &mut attr) }
            .map_err(|source| XdpError::Attach { ifindex, mode, source })?;
        // SAFETY: invariant 3.
        Ok(Link { fd: unsafe { OwnedFd::from_raw_fd(fd) }, mode, why: String::new() })
    }

    /// Attaches it in native mode if possible, else in generic mode; the link has the reason.
    ///
    /// # Errors
    /// That of the generic attempt.
    pub fn attach_best(&self, ifindex: u32) -> Result<Link, XdpError> {
        match self.attach(ifindex, Mode::Native) {
            Ok(link) => Ok(link),
            Err(XdpError::Attach { source, .. }) => {
                let mut link = self.attach(ifindex, Mode::Generic)?;
                link.why = without_number(&format!("native XDP refused: {source}"));
                Ok(link)
            }
            Err(other) => Err(other),
        }
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Has the kernel tag all that leaves by an interface, beside the frames, as a VLAN device on it would:
/// this kernel may have none.
#[cfg(test)]
pub(crate) fn tag_on_egress(ifindex: u32) -> OwnedFd {
    const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
    const BPF_TCX_EGRESS: u32 = 47;
    let code = super::testing::program("push_tag");
    let count = u32::try_from(code.len()).unwrap();
    let mut attr = Attr::new()
        .u32(0, BPF_PROG_TYPE_SCHED_CLS)
        .u32(4, count)
        .pointer(8, code.as_ptr())
        .pointer(16, c"Dual MIT/GPL".as_ptr());
    // SAFETY: invariant 2: `count` instructions, a string with its end.
    let program = unsafe { bpf(Command::ProgLoad, &mut attr) }.unwrap();
    // SAFETY: invariant 3.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let mut attr = Attr::new().fd(0, program.as_raw_fd()).u32(4, ifindex).u32(8, BPF_TCX_EGRESS);
    // SAFETY: no pointers in it.
    let link = unsafe { bpf(Command::LinkCreate, &mut attr) }.unwrap();
    // SAFETY: invariant 3.
    unsafe { OwnedFd::from_raw_fd(link) }
}

/// A program on an interface. Dropping it, or the death of the process, detaches it.
#[derive(Debug)]
#[must_use = "a dropped link detaches its program"]
pub struct Link {
    fd: OwnedFd,
    mode: Mode,
    why: String,
}

impl Link {
    /// Where on the receive path it runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// That which [`pin`] gave a name, with the number of its interface: 0 where that is gone. Such links are of
    /// native mode.
    ///
    /// # Errors
    /// The kernel's error; `EINVAL` for what is no such link.
    pub fn pinned(path: &Path) -> Result<(Self, u32), XdpError> {
        let error = |source| XdpError::System { call: "bpf(OBJ_GET) of a link", source };
        let fd = pinned(path).map_err(error)?;
        // Kind, number of the link and of the program, nothing; then the kind's own: the interface.
        let [kind, _, _, _, ifindex, _] = info(fd.as_fd()).map_err(error)?;
        if kind != LINK_OF_XDP {
            return Err(error(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        Ok((Self { fd, mode: Mode::Native, why: String::new() }, ifindex))
    }

    /// Fails where the interface is gone, as [`Link::replace`] would.
    ///
    /// # Errors
    /// The error of a link that is detached.
    pub fn still_attached(&self) -> Result<(), XdpError> {
        let gone = || io::Error::from_raw_os_error(libc::ENOLINK);
        match info(self.fd.as_fd()) {
            Ok([_, _, _, _, 0, _]) => {
                Err(XdpError::System { call: "bpf(LINK_UPDATE)", source: gone() })
            }
            _ => Ok(()),
        }
    }

    /// Puts another program in the place of the present one: each frame is seen by one of the two.
    ///
    /// # Errors
    /// The kernel's error; the present one stays.
    pub fn replace(&self, program: &Program) -> Result<(), XdpError> {
        let mut attr = Attr::new().fd(0, self.fd.as_raw_fd()).fd(4, program.fd.as_raw_fd());
        // SAFETY: no pointers in it.
        unsafe { bpf(Command::LinkUpdate, &mut attr) }
            .map(drop)
            .map_err(|source| XdpError::System { call: "bpf(LINK_UPDATE)", source })
    }

    /// The kernel's id of its program.
    #[cfg(test)]
    pub fn program_id(&self) -> io::Result<u32> {
        Ok(info(self.fd.as_fd())?[2])
    }

    /// Why not in a better mode; empty when it runs in the best.
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn maps_keep_what_is_written() {
        if !testing::can_bpf() {
            return;
        }
        let hash = Map::new(MapKind::Hash, "hash", 16, 4, 3).unwrap();
        let keys: Vec<[u8; 16]> = (0..4).map(|i| [i; 16]).collect();
        for key in &keys[..3] {
            hash.update(key, &[key[0], 0, 0, 9]).unwrap();
        }
        let full = hash.update(&keys[3], &[0; 4]).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(libc::E2BIG));
        let mut value = [0; 4];
        assert!(hash.lookup(&keys[2], &mut value).unwrap());
        assert_eq!(value, [2, 0, 0, 9]);
        assert!(hash.delete(&keys[2]).unwrap() && !hash.delete(&keys[2]).unwrap());
        assert!(!hash.lookup(&keys[2], &mut value).unwrap());

        let counts = Map::new(MapKind::PerCpuArray, "counts", 4, 8, 2).unwrap();
        let cpus = possible_cpus().unwrap();
        let parts: Vec<u8> = (0..cpus as u64).flat_map(|i| (i + 5).to_ne_bytes()).collect();
        counts.update(&1u32.to_ne_bytes(), &parts).unwrap();
        let expected: u64 = (0..cpus as u64).map(|i| i + 5).sum();
        assert_eq!((counts.sum(0).unwrap(), counts.sum(1).unwrap()), (0, expected));
    }

    #[test]
    fn all_of_an_array_is_read_in_batches() {
        if !testing::can_bpf() {
            return;
        }
        for entries in [1, BATCH, 3 * BATCH + 1] {
            let map = Map::new(MapKind::PerCpuArray, "counts", 4, 8, entries).unwrap();
            let parts = |index: u32| -> Vec<u8> {
                let cpus = 0..possible_cpus().unwrap() as u64;
                cpus.flat_map(|cpu| (u64::from(index) << 8 | cpu).to_ne_bytes()).collect()
            };
            for index in 0..entries {
                map.update(&index.to_ne_bytes(), &parts(index)).unwrap();
            }
            let mut next = 0;
            map.each(&mut |index, value| {
                assert_eq!((index, value), (next, &parts(next)[..]));
                next += 1;
            })
            .unwrap();
            assert_eq!(next, entries);
        }
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn a_short_buffer_never_reaches_the_kernel() {
        if !testing::can_bpf() {
            panic!("skipped, left == right");
        }
        let map = Map::new(MapKind::Array, "array", 4, 8, 1).unwrap();
        drop(map.lookup(&[0; 4], &mut [0; 7]));
    }

    #[test]
    fn a_rejected_program_comes_with_the_verifiers_reason() {
        if !testing::can_bpf() {
            return;
        }
        let error = Program::load("wild", &testing::program("wild")).unwrap_err().to_string();
        assert!(error.contains("wild") && error.contains("invalid access to packet"), "{error}");
    }

    fn pass_all() -> Program {
        Program::load("pass", &testing::program("pass")).unwrap()
    }

    fn shown(name: &str) -> String {
        testing::ip(&format!("-o link show dev {name}"))
    }

    #[test]
    fn a_link_holds_as_long_as_it_lives() {
        testing::in_namespace(|| {
            let (a, _) = testing::veth("a0", "b0", 1);
            for (mode, word) in [(Mode::Native, " xdp "), (Mode::Generic, " xdpgeneric ")] {
                let link = pass_all().attach(a, mode).unwrap();
                assert_eq!((link.mode(), link.why()), (mode, ""));
                assert!(shown("a0").contains(word), "{}", shown("a0"));
                let error = pass_all().attach(a, mode).unwrap_err();
                let XdpError::Attach { source, .. } = &error else { panic!("{error}") };
                assert_eq!(source.raw_os_error(), Some(libc::EBUSY), "{error}");
                drop(link);
                testing::soon_without("a0", "xdp");
            }
            // The loopback device has no native XDP.
            let link = pass_all().attach_best(testing::ifindex("lo")).unwrap();
            assert_eq!(link.mode(), Mode::Generic);
            assert_eq!(link.why(), "native XDP refused: Operation not supported");
        });
    }

    const HOLD: &str = "FINGERPOST_TEST_HOLD";

    /// Does nothing unless [`a_link_dies_with_its_process`] starts it in a process of its own.
    #[test]
    fn holder() {
        let Ok(ifindex) = std::env::var(HOLD) else { return };
        let link = pass_all().attach(ifindex.parse().unwrap(), Mode::Native).unwrap();
        println!("attached");
        std::thread::sleep(std::time::Duration::from_secs(30));
        drop(link);
    }

    #[test]
    fn a_link_dies_with_its_process() {
        use std::io::{BufRead, BufReader};
        testing::in_namespace(|| {
            let (a, _) = testing::veth("a0", "b0", 1);
            let mut child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "xdp::bpf::tests::holder", "--nocapture"])
                .env(HOLD, a.to_string())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let attached = lines.map_while(Result::ok).any(|line| line.ends_with("attached"));
            let before = shown("a0");
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(attached && before.contains(" xdp "), "{before}");
            testing::soon_without("a0", "xdp");
        });
    }
}
