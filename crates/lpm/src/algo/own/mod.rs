//! The registry of our own designs.

mod bitmap_chunks;
mod bitmap_trie;
mod range_lines;

use crate::lookup::Module;

/// Our own designs, in the order in which they are listed.
pub(super) static ALGORITHMS: &[Module] =
    &[bitmap_chunks::MODULE, bitmap_trie::MODULE, range_lines::MODULE];
