//! The registry of published schemes, each in a faithful form.

mod bsearch;
mod dir24_8;
mod dxr;
mod planb;
#[cfg(feature = "poptrie")]
mod poptrie;
mod radix;
mod radix_lockless;
mod sail;
mod tree_bitmap;

use crate::lookup::Module;

/// Published schemes, in the order in which they are listed.
pub(super) static ALGORITHMS: &[Module] = &[
    bsearch::MODULE,
    dir24_8::MODULE,
    dxr::MODULE,
    planb::MODULE,
    #[cfg(feature = "poptrie")]
    poptrie::MODULE,
    radix::MODULE,
    radix_lockless::MODULE,
    sail::MODULE,
    tree_bitmap::MODULE,
];
