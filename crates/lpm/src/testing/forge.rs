//! Forged snapshots: files with right sums over anything, as who can write the file could make them.
//!
//! The fuzz target, a property test and the replay of old findings all call [`forge`]. What it does follows from the
//! bytes alone, so a finding is one file.
//!
//! ```text
//! first byte   even: IPv4, odd: IPv6; half of it: whose table is saved, of the rows that are small
//! then         forgeries of 8 bytes: how, where (3 bytes), a value (4 bytes)
//! how          bit 7: in the header, else anywhere; bits 2 to 6: one word in so many (a power of two) from
//!              there on, 0 only the one; bits 0 and 1: the value is stored, or its complement, or one bit
//!              is turned, or the word at the value's place is copied
//! ```

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{format, fs};

use super::fuzz::is_large;
use super::streams::probes;
use super::tables::{Shape, table};
use crate::addr::Addr;
use crate::lookup::{Algorithm, Lookup};
use crate::mem::Heap;
use crate::next_hop_id::NextHopId;
use crate::registry::Rows;
use crate::routes::RouteStore;
use crate::snapshot::{self, Snapshot};

/// Routes of a saved table.
const ROUTES: usize = 200;
/// Bytes of a forgery.
const FORGERY: usize = 8;
/// Bytes of a file's header: that of a structure with three regions.
const HEADER_BYTES: usize = 272;
/// Addresses that are also looked up alone.
const ALONE: usize = 500;

/// What must hold of any bytes: a snapshot with these forgeries is refused, or its table gives some answer to each
/// address, the same one however it is looked up.
///
/// # Panics
/// Where it does not hold.
pub fn forge(bytes: &[u8]) {
    let Some((&first, forgeries)) = bytes.split_first() else { return };
    let which = usize::from(first / 2);
    if first & 1 == 0 { run::<u32>(which, forgeries) } else { run::<u128>(which, forgeries) }
}

fn run<A: Rows>(which: usize, forgeries: &[u8]) {
    let small: Vec<_> = A::rows().filter(|row| row.open.is_some() && !is_large(row)).collect();
    let Some(row) = small.get(which % small.len().max(1)) else { return };
    let mut file = saved(row).to_vec();
    for forgery in forgeries.as_chunks::<FORGERY>().0 {
        change(&mut file, *forgery);
    }
    snapshot::put_sums(&mut file);
    let path = place();
    fs::write(&path, &file).expect("a temporary file can be written");
    let addrs: Vec<A> = routes(row).iter().flat_map(|(prefix, _)| probes(prefix)).collect();
    for opened in [Snapshot::open(&path), Snapshot::load(&path, &mut Heap)] {
        if let Ok(lookup) = opened.and_then(|snapshot| snapshot.lookup::<A>()) {
            harmless(row.name, &*lookup, &addrs);
        }
    }
    fs::remove_file(&path).expect("it was written");
}

/// One forgery, in words of the file.
fn change(file: &mut [u8], [how, a, b, c, value @ ..]: [u8; FORGERY]) {
    let (words, _) = file.as_chunks_mut::<4>();
    let within = if how & 0x80 != 0 { HEADER_BYTES / 4 } else { words.len() };
    let from = u32::from_le_bytes([a, b, c, 0]) as usize % within;
    let stride = match how >> 2 & 0x1f {
        0 => words.len(),
        exponent => 1 << exponent,
    };
    let value = u32::from_le_bytes(value);
    let copied = u32::from_ne_bytes(words[value as usize % words.len()]);
    for word in words[from..].iter_mut().step_by(stride) {
        let old = u32::from_ne_bytes(*word);
        let new = match how & 3 {
            0 => value,
            1 => !value,
            2 => old ^ 1 << (value % 32),
            _ => copied,
        };
        *word = new.to_ne_bytes();
    }
}

fn routes<A: Addr>(row: &Algorithm<A>) -> RouteStore<A> {
    let routes = table(Shape::Hostile, ROUTES, row.limits.next_hop.min(1000), 21);
    routes.into_iter().filter(|(prefix, _)| prefix.len() <= row.limits.prefix_len).collect()
}

/// Files by family and row.
type Files = BTreeMap<(u8, &'static str), Arc<[u8]>>;

/// The file of a row's table, made once.
fn saved<A: Rows>(row: &'static Algorithm<A>) -> Arc<[u8]> {
    static FILES: Mutex<Files> = Mutex::new(Files::new());
    let mut files = FILES.lock().expect("a small table is built and saved");
    let made = files.entry((A::FAMILY, row.name)).or_insert_with(|| {
        let path = place();
        let mut built =
            row.build(&routes(row), &mut Heap).expect("a table within the limits builds");
        snapshot::save(&path, row, &*built.publish()).expect("a temporary file can be written");
        let bytes = fs::read(&path).expect("it was saved");
        fs::remove_file(&path).expect("it was saved");
        bytes.into()
    });
    made.clone()
}

/// A file that nobody else has, in memory where that is possible.
fn place() -> std::path::PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let shared = std::path::PathBuf::from("/dev/shm");
    let folder = if shared.is_dir() { shared } else { std::env::temp_dir() };
    folder.join(format!("fingerpost-forged-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)))
}

/// What must hold of a reader of damaged memory: it answers, the same one at a time and all together, and
/// all that it lists ends.
///
/// # Panics
/// Where it does not hold.
pub(super) fn harmless<A: Addr>(name: &str, lookup: &dyn Lookup<A>, addrs: &[A]) {
    let mut out = vec![NextHopId::NONE; addrs.len()];
    lookup.lookup_batch(addrs, &mut out);
    for (&addr, &batched) in addrs.iter().zip(&out).take(ALONE) {
        assert_eq!(lookup.lookup(addr), batched, "{name}: damaged, {addr:?}");
        lookup.explain(addr, &mut |_| ());
    }
    lookup.stats(&mut |_, _| ());
    lookup.bytes();
}
