//! The registry of algorithms: our own designs, then published schemes.

mod own;
mod published;

use crate::lookup::Module;

/// Every algorithm of this crate, in the order in which they are listed.
pub fn modules() -> impl Iterator<Item = &'static Module> + Clone {
    own::ALGORITHMS.iter().chain(published::ALGORITHMS)
}
