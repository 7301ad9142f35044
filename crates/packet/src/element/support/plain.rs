//! Plain bytes of a file that an element reads, which may be compressed.

use std::fs::File;
use std::io::{self, Read};

use fingerpost_route::source::SourceError;
use fingerpost_route::source::table::decompress::Decoded;

use crate::language::open_policy::OpenPolicy;

/// A file that an element reads, opened; none where the configuration is only checked and it is no regular file.
pub(crate) struct Opened {
    file: Option<File>,
    /// Its first bytes may come late, and are plain.
    special: bool,
}

impl Opened {
    /// Opens what a name stands for: a FIFO or a device only if it is `special`, or the policy has it so.
    ///
    /// # Errors
    /// As [`OpenPolicy::input`] and [`OpenPolicy::special_input`].
    pub(crate) fn new(policy: &OpenPolicy, name: &str, special: bool) -> io::Result<Self> {
        let special = special || policy.is_special(name);
        let file = match special {
            true => policy.special_input(name)?,
            false => Some(policy.input(name)?),
        };
        Ok(Self { file, special })
    }

    /// The plain bytes, and their number where that is known: of a regular file that is not compressed. `name` is for messages.
    ///
    /// # Errors
    /// The first bytes cannot be read.
    pub(crate) fn plain(self, name: &str) -> Result<(Option<Plain>, Option<u64>), SourceError> {
        let Some(file) = self.file else { return Ok((None, None)) };
        let about = file.metadata().ok().filter(std::fs::Metadata::is_file);
        let plain = if self.special { Plain::Stored(file) } else { Plain::of(name, file)? };
        let bytes = about.filter(|_| !plain.is_compressed()).map(|about| about.len());
        Ok((Some(plain), bytes))
    }
}

/// Reader of the plain bytes of a file.
pub(crate) enum Plain {
    /// Bytes as the file has them.
    Stored(File),
    /// Bytes of a file that may be compressed.
    Decoded(Decoded),
}

impl Plain {
    /// Those of a file that may be compressed; `name` is for messages.
    ///
    /// # Errors
    /// The first bytes cannot be read.
    pub(crate) fn of(name: &str, file: File) -> Result<Self, SourceError> {
        Ok(Self::Decoded(Decoded::new(name, Box::new(file))?))
    }

    /// Whether the file is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        matches!(self, Self::Decoded(decoded) if decoded.kind().is_some())
    }
}

impl Read for Plain {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stored(file) => file.read(into),
            Self::Decoded(decoded) => decoded.read_some(into).map_err(io::Error::other),
        }
    }
}
