//! Files that commands write: whole or not at all, and compressed where their name ends in `.gz` or `.bz2`.
//!
//! A file is written beside its place and renamed once it is complete. Equal contents make equal files.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use bzip2::write::BzEncoder;
use flate2::write::GzEncoder;

use crate::dispatch::Failure;

/// File in progress.
pub struct Saved {
    path: PathBuf,
    beside: PathBuf,
    /// `None` once it is complete.
    to: Option<Encoder>,
}

enum Encoder {
    Plain(BufWriter<File>),
    Gz(GzEncoder<BufWriter<File>>),
    Bz2(BzEncoder<BufWriter<File>>),
}

impl Saved {
    /// Begins a file that takes the place of `path` when it is complete.
    ///
    /// # Errors
    /// When the file beside cannot be made, or the name is that of a compression that is only read.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let begun = Self::begin(path);
        begun.map_err(|error| failed(path, &error))
    }

    fn begin(path: &Path) -> io::Result<Self> {
        let invalid = |words| io::Error::new(ErrorKind::InvalidInput, words);
        let name = path.file_name().ok_or_else(|| invalid("names no file"))?;
        let kind = path.extension().unwrap_or_default();
        if kind == "xz" || kind == "zst" {
            return Err(invalid("compressed files are written as .gz or .bz2"));
        }
        let name = format!(".{}.{}.part", name.display(), std::process::id());
        let beside = path.with_file_name(name);
        let file = BufWriter::with_capacity(1 << 16, File::create(&beside)?);
        let to = match kind.as_encoded_bytes() {
            b"gz" => Encoder::Gz(GzEncoder::new(file, flate2::Compression::default())),
            b"bz2" => Encoder::Bz2(BzEncoder::new(file, bzip2::Compression::best())),
            _ => Encoder::Plain(file),
        };
        Ok(Self { path: path.to_owned(), beside, to: Some(to) })
    }

    /// Completes the file; returns its length in bytes.
    ///
    /// # Errors
    /// When something cannot be written: the file at its place is as before.
    pub fn finish(mut self) -> Result<u64, Failure> {
        let finished = self.end();
        finished.map_err(|error| failed(&self.path, &error))
    }

    fn end(&mut self) -> io::Result<u64> {
        let file = match self.to.take() {
            Some(Encoder::Plain(file)) => file,
            Some(Encoder::Gz(file)) => file.finish()?,
            Some(Encoder::Bz2(file)) => file.finish()?,
            None => return Ok(0),
        };
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        let len = file.metadata()?.len();
        fs::rename(&self.beside, &self.path)?;
        Ok(len)
    }

    /// Failure of a command that could not write to the file.
    pub fn failed(&self, error: &io::Error) -> Failure {
        failed(&self.path, error)
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::outside(error.kind(), format_args!("{}: {error}", path.display()))
}

impl Write for Saved {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.to {
            Some(Encoder::Plain(file)) => file.write(bytes),
            Some(Encoder::Gz(file)) => file.write(bytes),
            Some(Encoder::Bz2(file)) => file.write(bytes),
            None => Ok(0),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        // Gone already when the rename was done.
        let _ = fs::remove_file(&self.beside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_when_it_is_complete() {
        let folder = std::env::temp_dir().join(format!("fingerpost-save-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("t.gz");
        let mut begun = Saved::create(&path).ok().unwrap();
        begun.write_all(b"10.0.0.0/8 1\n").unwrap();
        drop(begun);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "what is not complete is not there");
        for (name, magic) in [("t.gz", "1f8b"), ("t.bz2", "425a"), ("t.txt", "3130")] {
            let path = folder.join(name);
            let mut file = Saved::create(&path).ok().unwrap();
            file.write_all(b"10.0.0.0/8 1\n").unwrap();
            let len = file.finish().ok().unwrap();
            let bytes = fs::read(&path).unwrap();
            assert_eq!(bytes.len() as u64, len);
            assert_eq!(format!("{:02x}{:02x}", bytes[0], bytes[1]), magic, "{name}");
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        assert!(Saved::create(&folder.join("t.xz")).is_err(), "it is only read");
        fs::remove_dir_all(folder).unwrap();
    }
}
