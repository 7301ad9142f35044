//! TLS of the TCP listener in a build without it: the configuration is refused before.

use std::io;

use super::tcp::TlsFiles;

/// TLS, which a build without it never has.
#[derive(Debug)]
pub(super) enum Tls {}

impl Tls {
    /// Refusal of the configuration.
    ///
    /// # Errors
    /// Always.
    pub(super) fn new(_: &TlsFiles) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "built without the cargo feature `tls`"))
    }

    /// TLS connection of a stream: there is none.
    pub(super) async fn accept<S>(&self, _: S) -> io::Result<S> {
        match *self {}
    }
}
