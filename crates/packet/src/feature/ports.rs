//! A word for each port, which the control side writes while workers read it: what a feature has of a port.
//!
//! Cost: 128 KiB, and a load a packet.

use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// A word for each port number.
pub(crate) struct PortWords(Box<[AtomicU16]>);

impl PortWords {
    /// Words with one value for all ports.
    pub(crate) fn all(word: u16) -> Self {
        Self((0..=u16::MAX).map(|_| AtomicU16::new(word)).collect())
    }

    /// The word of a port.
    #[inline]
    pub(crate) fn word(&self, port: u16) -> u16 {
        // Relaxed: no other memory depends on it.
        self.0[usize::from(port)].load(Relaxed)
    }

    /// Changes the word of a port.
    pub(crate) fn set(&self, port: u16, word: u16) {
        // Relaxed: as above.
        self.0[usize::from(port)].store(word, Relaxed);
    }
}
