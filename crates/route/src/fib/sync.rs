//! The atomics and locks that publishing uses: the standard ones, or loom's under `cfg(loom)`.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering, fence},
};
