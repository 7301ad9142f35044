//! Plain bytes of a file, which may be compressed.

use std::fs::File;
use std::io::{self, Read};

use fingerpost_route::source::SourceError;
use fingerpost_route::source::table::decompress::Decoded;

/// Reader of the plain bytes.
pub(crate) struct Plain(Decoded);

impl Plain {
    /// Bytes of a file, whose first ones are read now; `name` is for messages.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn of(name: &str, file: File) -> Result<Self, SourceError> {
        Decoded::new(name, Box::new(file)).map(Self)
    }
}

impl Read for Plain {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_some(into).map_err(io::Error::other)
    }
}
