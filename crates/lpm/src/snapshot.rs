//! Tables in files: what readers touch, saved as it lies in memory and mapped back.
//!
//! A table of a million routes is built in tens of milliseconds and mapped in the time it takes to sum
//! its bytes: for programs that start often, or that share one table. A snapshot holds the readers'
//! regions, not the routes, so it answers and is not changed.
//!
//! ```text
//! 0       magic "fplpmsnp", 8 bytes
//! 8       u32 version, u32 word order: 0x01020304 as the writer's machine stores it
//! 16      u64 bytes of the file, u64 sum of the header with this field 0
//! 32      u64 stamp of the layout (the first word of region `head`), u32 family, u32 regions
//! 48      name of the algorithm, 32 bytes, filled up with zeros
//! 80      a region each: name, 32 bytes; u64 offset, u64 bytes, u64 sum; 8 bytes of zeros
//! 4096 n  the regions' bytes, each from a multiple of 4096 on
//! ```
//!
//! Numbers are as the writer's machine stores them; a machine of the other order refuses the file.
//! Sums find damage, not malice: who can write the file can write its sums. What the regions hold is
//! then checked by the row's `open`, so that a forged file gives wrong answers and no harm.
//!
//! A file appears whole or not at all: it is written beside its place, flushed, and renamed. A mapped
//! file must not be cut short while it is used, which would end the program (`SIGBUS`); renaming a new
//! one over it is safe, and [`Snapshot::load`] copies instead. The mapping is private and writable
//! although nothing is written, because a [`Region`] lets safe code store: such a store stays in this
//! process.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::addr::Addr;
use crate::error::{FormatError, UpdateError};
use crate::head::HEAD;
use crate::input::{self, MOST_STREAM_BYTES};
use crate::lookup::{Algorithm, Lookup};
use crate::mem::{Memory, Region};
use crate::registry::{Rows, Unknown};

const MAGIC: [u8; 8] = *b"fplpmsnp";
/// Version of the header; each structure's own layout has a stamp of its own.
const VERSION: u32 = 1;
const WORD_ORDER: u32 = 0x0102_0304;
/// Where regions start: a page, so that each can be mapped by itself.
const ALIGN: usize = 4096;
const NAME_BYTES: usize = 32;
const FIXED_BYTES: usize = 80;
const ENTRY_BYTES: usize = NAME_BYTES + 32;
/// More than any structure has; a damaged count must not make us read without end.
const MOST_REGIONS: usize = 64;
/// Copied at a time.
const PIECE_BYTES: usize = 1 << 16;
/// Where the sum of the header stands.
const SUM_AT: usize = 24;

/// Saves what `lookup` answers from, so that [`Snapshot::open`] gives the same answers.
///
/// The table must not be changed meanwhile: hold its writer.
///
/// ```
/// use fingerpost_lpm::{Heap, NextHopId, RouteStore, find_v4, snapshot};
/// let routes: RouteStore<u32> = [("10.0.0.0/8".parse()?, NextHopId(1))].into_iter().collect();
/// let row = find_v4("dxr18")?;
/// let path = std::env::temp_dir().join(format!("fingerpost-{}.table", std::process::id()));
/// snapshot::save(&path, row, &*row.build(&routes, &mut Heap)?.publish())?;
/// let lookup = snapshot::Snapshot::open(&path)?.lookup::<u32>()?;
/// assert_eq!(lookup.lookup(0x0a01_0203), NextHopId(1));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SnapshotError::Io`], with nothing left behind; [`SnapshotError::NotSaved`].
pub fn save<A: Addr>(
    path: impl AsRef<Path>,
    algorithm: &Algorithm<A>,
    lookup: &dyn Lookup<A>,
) -> Result<(), SnapshotError> {
    if algorithm.open.is_none() {
        return Err(SnapshotError::NotSaved(algorithm.name.to_owned()));
    }
    let path = path.as_ref();
    let header = header(algorithm, lookup.regions());
    let beside = beside(path);
    let result = write(&beside, &header, lookup.regions()).and_then(|()| {
        fs::rename(&beside, path)?;
        // The name itself lies in the folder.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if cfg!(unix) { File::open(folder.unwrap_or(Path::new(".")))?.sync_all() } else { Ok(()) }
    });
    if result.is_err() {
        // Gone already when the rename was done; nothing else to be said then.
        let _ = fs::remove_file(&beside);
    }
    result.map_err(|error| SnapshotError::Io { doing: "write", path: path.to_owned(), error })
}

/// A name of our own in the same folder, which a rename can reach.
fn beside(path: &Path) -> PathBuf {
    use core::sync::atomic::AtomicU64;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let number = NEXT.fetch_add(1, Relaxed);
    path.with_file_name(std::format!(".{name}.{}.{number}.tmp", std::process::id()))
}

fn header<A: Addr>(algorithm: &Algorithm<A>, regions: &[Region]) -> Vec<u8> {
    assert!(regions.len() <= MOST_REGIONS, "{algorithm:?} has {} regions", regions.len());
    let mut header = Vec::with_capacity(ALIGN);
    let stamp = regions.iter().find(|region| region.name() == HEAD);
    let stamp = stamp.and_then(|head| head.u64s().first()).map_or(0, |word| word.load(Relaxed));
    header.extend(MAGIC);
    header.extend(VERSION.to_ne_bytes());
    header.extend(WORD_ORDER.to_ne_bytes());
    header.extend([0; 16]);
    header.extend(stamp.to_ne_bytes());
    header.extend(u32::from(A::FAMILY).to_ne_bytes());
    header.extend(u32::try_from(regions.len()).expect("at most 64").to_ne_bytes());
    push_name(&mut header, algorithm.name);
    let mut offset = (FIXED_BYTES + regions.len() * ENTRY_BYTES).next_multiple_of(ALIGN);
    for region in regions {
        push_name(&mut header, region.name());
        for value in [offset as u64, region.bytes() as u64, region_sum(region), 0] {
            header.extend(value.to_ne_bytes());
        }
        offset = (offset + region.bytes()).next_multiple_of(ALIGN);
    }
    header.resize(header.len().next_multiple_of(ALIGN), 0);
    header[16..24].copy_from_slice(&(offset as u64).to_ne_bytes());
    let sum = sum(&header);
    header[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_ne_bytes());
    header
}

fn push_name(header: &mut Vec<u8>, name: &str) {
    assert!(name.len() < NAME_BYTES, "{name}: names are shorter than {NAME_BYTES} bytes");
    header.extend(name.bytes());
    header.resize(header.len() + NAME_BYTES - name.len(), 0);
}

fn write(path: &Path, header: &[u8], regions: &[Region]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(header)?;
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    for region in regions {
        for cells in region.u8s().chunks(PIECE_BYTES) {
            piece.clear();
            piece.extend(cells.iter().map(|cell| cell.load(Relaxed)));
            file.write_all(&piece)?;
        }
        let filling = region.bytes().next_multiple_of(ALIGN) - region.bytes();
        file.write_all(&[0; ALIGN][..filling])?;
    }
    file.sync_all()
}

/// A saved table, checked.
#[derive(Clone, Debug)]
pub struct Snapshot {
    algorithm: String,
    family: u8,
    stamp: u64,
    regions: Vec<Region>,
}

impl Snapshot {
    /// Maps a file: its pages are read as they are needed and shared with every process that maps it.
    /// Reads all of it once, for the sums.
    ///
    /// # Errors
    /// [`SnapshotError`]: not readable, not such a file, of another version or order, cut short, or
    /// damaged.
    #[cfg(target_os = "linux")]
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SnapshotError> {
        use crate::mem::map::Mapping;
        let path = path.as_ref();
        let (file, found) = Found::read(path)?;
        let mapping = Mapping::file(&file, found.file_bytes);
        let mapping = Arc::new(mapping.map_err(|error| SnapshotError::Io {
            doing: "map",
            path: path.to_owned(),
            error,
        })?);
        found.check(|entry| {
            let region = mapping.region(entry.name, entry.offset, entry.bytes);
            region.ok_or(SnapshotError::Damaged("header"))
        })
    }

    /// Reads a file into memory of another kind, such as huge pages.
    ///
    /// # Errors
    /// As [`Snapshot::open`], and [`SnapshotError::Memory`].
    pub fn load(path: impl AsRef<Path>, memory: &mut dyn Memory) -> Result<Self, SnapshotError> {
        let path = path.as_ref();
        let (mut file, found) = Found::read(path)?;
        let unread = |error| SnapshotError::Io { doing: "read", path: path.to_owned(), error };
        found.check(|entry| {
            use std::io::{Seek, SeekFrom};
            let region = memory.region(entry.name, entry.bytes).map_err(SnapshotError::Memory)?;
            file.seek(SeekFrom::Start(entry.offset as u64)).map_err(unread)?;
            let mut piece = vec![0; PIECE_BYTES];
            for cells in region.u8s()[..entry.bytes].chunks(PIECE_BYTES) {
                let piece = &mut piece[..cells.len()];
                file.read_exact(piece).map_err(unread)?;
                cells.iter().zip(&*piece).for_each(|(cell, &byte)| cell.store(byte, Relaxed));
            }
            Ok(region)
        })
    }

    /// Name of the algorithm that made it.
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// 4 or 6.
    pub fn family(&self) -> u8 {
        self.family
    }

    /// Stamp of the structure's layout; see [`crate::head`].
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// The saved memory.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The reader, by the registry's row of the same name.
    ///
    /// # Errors
    /// [`SnapshotError::Family`], [`SnapshotError::Unknown`], [`SnapshotError::NotSaved`], and
    /// [`SnapshotError::Format`] when the regions do not hold together.
    pub fn lookup<A: Rows>(&self) -> Result<Arc<dyn Lookup<A>>, SnapshotError> {
        self.of_family::<A>()?;
        let unknown = |unknown| SnapshotError::Unknown(self.algorithm.clone(), unknown);
        self.lookup_by(A::row(&self.algorithm).map_err(unknown)?)
    }

    /// The reader, by a row that is in no registry.
    ///
    /// # Errors
    /// As [`Snapshot::lookup`]; the row's name is not compared, its layout is.
    pub fn lookup_by<A: Addr>(
        &self,
        row: &Algorithm<A>,
    ) -> Result<Arc<dyn Lookup<A>>, SnapshotError> {
        self.of_family::<A>()?;
        let open = row.open.ok_or_else(|| SnapshotError::NotSaved(row.name.to_owned()))?;
        open(&self.regions).map_err(SnapshotError::Format)
    }

    fn of_family<A: Addr>(&self) -> Result<(), SnapshotError> {
        let (want, got) = (A::FAMILY, self.family);
        if want == got { Ok(()) } else { Err(SnapshotError::Family { want, got }) }
    }
}

/// Contents of the header.
struct Found {
    algorithm: String,
    family: u8,
    stamp: u64,
    file_bytes: usize,
    entries: Vec<Entry>,
}

struct Entry {
    name: &'static str,
    offset: usize,
    bytes: usize,
    sum: u64,
}

impl Found {
    /// The header of a file, checked by itself and against the file's length.
    fn read(path: &Path) -> Result<(File, Self), SnapshotError> {
        let unread = |error| SnapshotError::Io { doing: "read", path: path.to_owned(), error };
        let mut file = input::open(path, MOST_STREAM_BYTES).map_err(unread)?;
        let length = file.metadata().map_err(unread)?.len();
        let most = (FIXED_BYTES + MOST_REGIONS * ENTRY_BYTES).next_multiple_of(ALIGN);
        let mut header = Vec::new();
        Read::by_ref(&mut file).take(most as u64).read_to_end(&mut header).map_err(unread)?;
        let found = Self::parse(&mut header, length)?;
        Ok((file, found))
    }

    fn parse(header: &mut Vec<u8>, length: u64) -> Result<Self, SnapshotError> {
        const DAMAGED: SnapshotError = SnapshotError::Damaged("header");
        if header.get(..8) != Some(&MAGIC) {
            return Err(SnapshotError::NotASnapshot);
        }
        if header.len() < FIXED_BYTES {
            return Err(SnapshotError::Truncated { want: ALIGN as u64, got: length });
        }
        let version = u32_at(header, 8);
        match u32_at(header, 12) {
            WORD_ORDER => {}
            order if order == WORD_ORDER.swap_bytes() => return Err(SnapshotError::WordOrder),
            _ => return Err(DAMAGED),
        }
        if version != VERSION {
            return Err(SnapshotError::Version { want: VERSION, got: version });
        }
        let regions = u32_at(header, 44) as usize;
        if regions > MOST_REGIONS {
            return Err(DAMAGED);
        }
        let end = (FIXED_BYTES + regions * ENTRY_BYTES).next_multiple_of(ALIGN);
        if header.len() < end {
            return Err(SnapshotError::Truncated { want: end as u64, got: length });
        }
        header.truncate(end);
        let told = u64_at(header, SUM_AT);
        header[SUM_AT..SUM_AT + 8].fill(0);
        if sum(header) != told {
            return Err(DAMAGED);
        }
        let file_bytes = u64_at(header, 16);
        if length != file_bytes {
            return Err(SnapshotError::Truncated { want: file_bytes, got: length });
        }
        let entry = |at: usize| {
            let number =
                |field: usize| usize::try_from(u64_at(header, at + NAME_BYTES + 8 * field)).ok();
            let (offset, bytes) = (number(0)?, number(1)?);
            let end = u64::try_from(offset.checked_add(bytes)?).ok()?;
            if !offset.is_multiple_of(ALIGN) || end > file_bytes {
                return None;
            }
            let name = interned(name_at(header, at)?);
            Some(Entry { name, offset, bytes, sum: u64_at(header, at + NAME_BYTES + 16) })
        };
        let entries: Option<Vec<Entry>> =
            (0..regions).map(|i| entry(FIXED_BYTES + i * ENTRY_BYTES)).collect();
        Ok(Self {
            algorithm: name_at(header, 48).ok_or(DAMAGED)?.to_owned(),
            family: u8::try_from(u32_at(header, 40)).map_err(|_| DAMAGED)?,
            stamp: u64_at(header, 32),
            file_bytes: usize::try_from(file_bytes).map_err(|_| DAMAGED)?,
            entries: entries.ok_or(DAMAGED)?,
        })
    }

    /// Takes the regions by `take` and sums them.
    fn check(
        self,
        mut take: impl FnMut(&Entry) -> Result<Region, SnapshotError>,
    ) -> Result<Snapshot, SnapshotError> {
        let mut regions = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let region = take(entry)?;
            if region_sum_of(&region, entry.bytes) != entry.sum {
                return Err(SnapshotError::Damaged(entry.name));
            }
            regions.push(region);
        }
        let Self { algorithm, family, stamp, .. } = self;
        Ok(Snapshot { algorithm, family, stamp, regions })
    }
}

fn u32_at(header: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(header[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(header: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(header[at..at + 8].try_into().expect("8 bytes"))
}

fn name_at(header: &[u8], at: usize) -> Option<&str> {
    let name = &header[at..at + NAME_BYTES];
    let end = name.iter().position(|&byte| byte == 0)?;
    core::str::from_utf8(&name[..end]).ok().filter(|name| !name.is_empty())
}

/// A region's name lives as long as the program, so a name that comes from a file is kept for good:
/// each once, and only from a header whose sum is right.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().expect("nothing panics while holding it");
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = name.to_owned().leak();
    names.insert(name);
    name
}

/// Four sums side by side, so that a processor works on all of them; each step can be undone, so a
/// change of one word always changes the sum.
#[derive(Clone, Copy)]
struct Sum([u64; 4], u64);

impl Sum {
    const NEW: Self = Self([1, 2, 3, 4], 0);

    fn step(lane: u64, word: u64) -> u64 {
        // An odd factor; its high half is near that of the golden ratio.
        (lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    }

    #[inline]
    fn four(&mut self, words: [u64; 4]) {
        for (lane, word) in self.0.iter_mut().zip(words) {
            *lane = Self::step(*lane, word);
        }
        self.1 += 32;
    }

    fn end(self, rest: &[u8]) -> u64 {
        let mut sum = self.1 + rest.len() as u64;
        for lane in self.0 {
            sum = Self::step(sum, lane);
        }
        for &byte in rest {
            sum = Self::step(sum, u64::from(byte));
        }
        sum ^ sum >> 32
    }
}

fn sum(bytes: &[u8]) -> u64 {
    let mut sum = Sum::NEW;
    let (fours, rest) = bytes.as_chunks::<32>();
    for four in fours {
        let words = four.as_chunks::<8>().0;
        sum.four([0, 1, 2, 3].map(|i| u64::from_ne_bytes(words[i])));
    }
    sum.end(rest)
}

/// Recomputes the sums of a file, as far as its header locates them: a forgery, for tests.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn put_sums(file: &mut [u8]) {
    let regions = file.get(..FIXED_BYTES).map_or(0, |header| u32_at(header, 44) as usize);
    let end = FIXED_BYTES + regions.min(MOST_REGIONS) * ENTRY_BYTES;
    if end.next_multiple_of(ALIGN) > file.len() {
        return;
    }
    for at in (FIXED_BYTES..end).step_by(ENTRY_BYTES) {
        let number = |at: usize| usize::try_from(u64_at(file, at)).ok();
        let (offset, bytes) = (number(at + NAME_BYTES), number(at + NAME_BYTES + 8));
        let region = offset.zip(bytes).and_then(|(from, len)| file[..].get(from..)?.get(..len));
        let Some(sum) = region.map(sum) else { continue };
        file[at + NAME_BYTES + 16..at + NAME_BYTES + 24].copy_from_slice(&sum.to_ne_bytes());
    }
    file[SUM_AT..SUM_AT + 8].fill(0);
    let sum = sum(&file[..end.next_multiple_of(ALIGN)]);
    file[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_ne_bytes());
}

fn region_sum(region: &Region) -> u64 {
    region_sum_of(region, region.bytes())
}

/// Sum of the first `bytes` bytes: memory may have been rounded up to a cache line.
fn region_sum_of(region: &Region, bytes: usize) -> u64 {
    let mut sum = Sum::NEW;
    let words = &region.u64s()[..bytes / 32 * 4];
    for four in words.as_chunks::<4>().0 {
        sum.four([0, 1, 2, 3].map(|i| four[i].load(Relaxed)));
    }
    let rest = &region.u8s()[bytes / 32 * 32..bytes];
    let rest: Vec<u8> = rest.iter().map(|byte| byte.load(Relaxed)).collect();
    sum.end(&rest)
}

/// Why a table was not saved or opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The system refused something.
    Io {
        /// `read`, `map` or `write`.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Something else than a saved table.
    NotASnapshot,
    /// Written by a newer or older program.
    Version {
        /// What this program reads.
        want: u32,
        /// What was found.
        got: u32,
    },
    /// Written on a machine that stores numbers the other way round.
    WordOrder,
    /// The file's length is not the one it was written with.
    Truncated {
        /// Bytes that were written.
        want: u64,
        /// Bytes that are there.
        got: u64,
    },
    /// The sum of a part, named here, is wrong.
    Damaged(&'static str),
    /// A table of the other family.
    Family {
        /// Expected value.
        want: u8,
        /// What the file holds.
        got: u8,
    },
    /// Made by an algorithm that this program does not have.
    Unknown(String, Unknown),
    /// Tables of this algorithm are not saved: its row has no `open`.
    NotSaved(String),
    /// The structure itself does not hold together, or has another layout.
    Format(FormatError),
    /// No memory to read it into.
    Memory(UpdateError),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, error } => {
                write!(f, "cannot {doing} {}: {error}", path.display())
            }
            Self::NotASnapshot => f.write_str("not a saved table"),
            Self::Version { want, got } => {
                write!(f, "saved tables of version {got} are not read, only {want}")
            }
            Self::WordOrder => f.write_str("saved on a machine of the other byte order"),
            Self::Truncated { want, got } => {
                write!(f, "saved table cut short or added to: {got} bytes, written were {want}")
            }
            Self::Damaged(part) => write!(f, "saved table damaged in {part}"),
            Self::Family { want, got } => {
                write!(f, "saved table is of IPv{got}, wanted was IPv{want}")
            }
            Self::Unknown(name, unknown) => write!(f, "saved by {name:?}: {unknown}"),
            Self::NotSaved(name) => write!(f, "tables of {name} cannot be saved"),
            Self::Format(error) => fmt::Display::fmt(error, f),
            Self::Memory(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl core::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            Self::Unknown(_, error) => Some(error),
            Self::Format(error) => Some(error),
            Self::Memory(error) => Some(error),
            _ => None,
        }
    }
}
