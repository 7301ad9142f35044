//! TLS of the TCP listener in a build without it: the configuration is refused before.

use std::io;

use super::tcp::TlsFiles;

/// TLS that there is never.
#[derive(Debug)]
pub(super) enum Tls {}

impl Tls {
    /// Refuses.
    ///
    /// # Errors
    /// Always.
    pub(super) fn new(_: &TlsFiles) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "built without the cargo feature `tls`"))
    }

    /// Stands for the real one.
    pub(super) async fn accept<S>(&self, _: S) -> io::Result<S> {
        match *self {}
    }
}
