//! TLS of the TCP listener in a build without it: the configuration is refused before.

use std::io;

use super::tcp::TlsFiles;

/// Never made.
#[derive(Debug)]
pub(super) enum Tls {}

impl Tls {
    /// Never succeeds.
    ///
    /// # Errors
    /// Always.
    pub(super) fn new(_: &TlsFiles) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "built without the cargo feature `tls`"))
    }

    /// Never called.
    pub(super) async fn accept<S>(&self, _: S) -> io::Result<S> {
        match *self {}
    }
}
