//! A bell, which wakes a thread that sleeps in poll(2).

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// One end of a bell. Each end rings at the other.
#[derive(Debug)]
pub(crate) struct Bell(UnixStream);

impl Bell {
    /// Both ends.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        one.set_nonblocking(true)?;
        other.set_nonblocking(true)?;
        Ok((Self(one), Self(other)))
    }

    /// Rings at the other end.
    pub(crate) fn ring(&self) {
        // A full bell rings already, and one without another end rings for nobody.
        let _ = (&self.0).write(&[1]);
    }

    /// Ends the ringing here. What it rang for is looked at afterwards: what comes in between rings again.
    pub(crate) fn silence(&self) {
        while matches!((&self.0).read(&mut [0; 64]), Ok(bytes) if bytes > 0) {}
    }

    /// Descriptor for poll, readable while it rings here.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
