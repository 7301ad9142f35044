//! The FIB: the one writer that turns deltas into what readers see.

pub mod publish;
pub(crate) mod sync;

pub use publish::{Publisher, Reader, Subscribe};
