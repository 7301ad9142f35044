//! The registry of drivers, and what a port is.

pub mod memory;
pub mod pcap;
mod queue_set;

use std::os::fd::RawFd;
use std::time::Duration;

use crate::frame::{Batch, Pool};

pub use queue_set::QueueSet;

/// Drivers that need no operating system. A program joins them with those of other crates.
pub static DRIVERS: &[Driver] = &[memory::DRIVER, pcap::DRIVER];

/// Registry row, plain data: all that is known of a driver without opening a device.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// What configuration and reports call it.
    pub name: &'static str,
    /// One line: what it drives, and what that needs.
    pub summary: &'static str,
    /// Frames of a pool that a queue may have in its rings.
    pub in_rings: usize,
    /// Its devices are something outside this process, which not everybody may have opened.
    pub external: bool,
    /// Opens a device: a port for each queue requested.
    pub open: fn(&DeviceSpec<'_>) -> Result<Ports, DeviceError>,
}

/// Packets taken from a port at once, and handed to it, unless configured otherwise: enough to overlap cache misses, few
/// enough to stay in the first-level cache from the first element to the last.
pub const BURST: usize = 128;

/// The ports of a device, by queue.
pub type Ports = Vec<Box<dyn Port>>;

/// What to open.
#[derive(Clone, Debug)]
pub struct DeviceSpec<'a> {
    /// Name of the interface, or what else names the device to its driver (paths, for a file).
    pub name: &'a str,
    /// Number of the first queue, and how many. Drivers of devices with one queue ignore it.
    pub queues: (u32, u32),
    /// Where received frames lie: those of each queue in one of these, by turns, as workers own the queues.
    pub pools: &'a [Pool],
}

impl DeviceSpec<'_> {
    /// Where frames of a queue lie, the first of those requested being 0.
    ///
    /// # Panics
    /// Without pools.
    pub fn pool(&self, queue: u32) -> &Pool {
        &self.pools[queue as usize % self.pools.len()]
    }
}

/// One queue pair of a device, owned by one worker.
pub trait Port: Send {
    /// Appends up to the batch's room; 0 means idle. The port number in the packets' metadata is left
    /// to the worker.
    ///
    /// # Errors
    /// When the device is gone or broken; the worker then closes the port.
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError>;
    /// Takes from the front what was accepted and returns how many; what stays in `from` was not
    /// sent and may be offered again.
    ///
    /// # Errors
    /// When the device is gone or broken.
    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError>;
    /// Called once a round instead of `recv` where nobody takes what it receives: what it has to do besides.
    ///
    /// # Errors
    /// When the device is gone or broken.
    fn tend(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
    /// What to wait for when there is nothing to do: adds the descriptors that become readable when
    /// frames arrive. A port that adds none has the worker sleep for a moment only, so one that waits for what no
    /// descriptor reports adds none at all, even where some would report a part of it.
    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        let _ = fds;
    }
    /// Frames of the pool that are in its rings.
    fn in_rings(&self) -> usize {
        0
    }
    /// How the device is driven and why (`native, copy: zero-copy refused (EOPNOTSUPP)`).
    fn mode(&self) -> String {
        String::new()
    }
    /// Named counts of the device's own (ring overruns and the like).
    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let _ = visit;
    }
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        (**self).recv(into)
    }
    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        (**self).send(from)
    }
    fn tend(&mut self) -> Result<(), DeviceError> {
        (**self).tend()
    }
    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        (**self).wait_fds(fds);
    }
    fn in_rings(&self) -> usize {
        (**self).in_rings()
    }
    fn mode(&self) -> String {
        (**self).mode()
    }
    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        (**self).stats(visit);
    }
}

/// How a worker sleeps when none of its ports has anything to do.
pub trait Wait: Send {
    /// Returns when one of `fds` is readable, when the worker is woken from outside, or when
    /// `timeout` is over. May return early.
    fn wait(&mut self, fds: &[RawFd], timeout: Duration);
}

/// Why a device cannot be opened or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A system call failed.
    #[error("{device}: {call}: {source}{hint}")]
    System {
        /// Which device or file.
        device: String,
        /// Which call.
        call: &'static str,
        /// Error of the kernel.
        source: std::io::Error,
        /// What to do about it; empty, or beginning with ` (`.
        hint: &'static str,
    },
    /// The device cannot do what is requested.
    #[error("{device}: {what}")]
    Unfit {
        /// Which device or file.
        device: String,
        /// What it lacks, and the remedy.
        what: String,
    },
    /// An error of the driver's own.
    #[error("{source}")]
    Driver {
        /// Cause; its text names the device.
        source: Box<dyn std::error::Error + Send + Sync>,
        /// A privilege is missing.
        is_permission: bool,
    },
}

impl DeviceError {
    /// Whether a privilege is missing.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::System { source, .. } => source.kind() == std::io::ErrorKind::PermissionDenied,
            Self::Driver { is_permission, .. } => *is_permission,
            Self::Unfit { .. } => false,
        }
    }
}
