//! The registry of algorithms.

mod bitmap_chunks;
mod bitmap_trie;
mod bsearch;
mod dir24_8;
mod dxr;
mod planb;
#[cfg(feature = "poptrie")]
mod poptrie;
mod radix;
mod radix_lockless;
mod range_lines;
mod sail;
mod tree_bitmap;

use crate::lookup::Module;

pub use bitmap_chunks::ChunkForm;
pub use bitmap_trie::is_bitmap_trie;

/// Every algorithm this crate knows, in the order in which they are listed.
pub static ALGORITHMS: &[Module] = &[
    bitmap_chunks::MODULE,
    bitmap_trie::MODULE,
    bsearch::MODULE,
    dir24_8::MODULE,
    dxr::MODULE,
    planb::MODULE,
    #[cfg(feature = "poptrie")]
    poptrie::MODULE,
    radix::MODULE,
    radix_lockless::MODULE,
    sail::MODULE,
    range_lines::MODULE,
    tree_bitmap::MODULE,
];
