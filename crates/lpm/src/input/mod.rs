//! Input files that somebody names: every reader of the workspace opens them here.
//!
//! A name may lead to anything. A FIFO would block the open until somebody writes to it, a device such as `/dev/zero`
//! never ends, and a tape or a watchdog does something by being opened. So a file is opened without waiting
//! (`O_NONBLOCK`), must be a regular one, and has a greatest size, which keeps out files without end that the kernel
//! calls regular (`/proc/kcore` has 128 TiB). Where a name is an argument of a command, `-` is standard input, and
//! whatever was passed to the command as a descriptor is read under its name.
//!
//! Cost: two system calls besides the open.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

#[cfg(unix)]
mod folder;

#[cfg(unix)]
pub use folder::Folder;

/// Bytes that a text may have which is read into memory as a whole: a configuration, a graph, a library. A route table of
/// a million routes as arguments of an element takes 30 MB.
pub const MOST_TEXT_BYTES: u64 = 64 << 20;

/// Bytes that a file may have which is read piece by piece: a table, a capture, a saved structure.
pub const MOST_STREAM_BYTES: u64 = 1 << 40;

/// Opens a regular file of at most `most_bytes` to read it.
///
/// # Errors
/// As [`File::open`]; [`ErrorKind::InvalidInput`] for what is no regular file, [`ErrorKind::FileTooLarge`] for one that is
/// larger.
pub fn open(path: impl AsRef<Path>, most_bytes: u64) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    regular(options.open(path)?, most_bytes)
}

/// Opens a regular file of at most `most_bytes`.
///
/// # Errors
/// As [`open`].
pub fn regular(file: File, most_bytes: u64) -> io::Result<File> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(no_regular_file(&metadata));
    }
    if metadata.len() > most_bytes {
        return Err(too_large(most_bytes));
    }
    Ok(file)
}

/// Opens a file; `-` is standard input, and so is `/dev/stdin`. A shell's `<(command)` is `/dev/fd/63`: these are read
/// whatever they are, since whoever started the program passed them to it.
///
/// # Errors
/// As [`open`].
pub fn open_or_stdin(path: impl AsRef<Path>, most_bytes: u64) -> io::Result<File> {
    let path = path.as_ref();
    if path == Path::new("-") {
        return stdin();
    }
    let passed = path == Path::new("/dev/stdin") || path.parent() == Some(Path::new("/dev/fd"));
    if passed { File::open(path) } else { open(path, most_bytes) }
}

/// The text of a file of at most [`MOST_TEXT_BYTES`].
///
/// # Errors
/// As [`open`], and [`ErrorKind::InvalidData`] for what is no UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    text(open(path, MOST_TEXT_BYTES)?, MOST_TEXT_BYTES)
}

/// Reads what [`open_or_stdin`] opens as text.
///
/// # Errors
/// As [`read_text`].
pub fn read_text_or_stdin(path: impl AsRef<Path>) -> io::Result<String> {
    text(open_or_stdin(path, MOST_TEXT_BYTES)?, MOST_TEXT_BYTES)
}

/// Rest of a file as text, whatever size it reported.
///
/// # Errors
/// As [`read_text`].
pub fn text(file: File, most_bytes: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        return Err(too_large(most_bytes));
    }
    let no_text = |_| io::Error::new(ErrorKind::InvalidData, "is no text (UTF-8)");
    String::from_utf8(bytes).map_err(no_text)
}

/// Standard input as a file of its own.
#[cfg(unix)]
fn stdin() -> io::Result<File> {
    use std::os::fd::AsFd;
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

#[cfg(not(unix))]
fn stdin() -> io::Result<File> {
    Err(ErrorKind::Unsupported.into())
}

fn too_large(most_bytes: u64) -> io::Error {
    io::Error::new(ErrorKind::FileTooLarge, format!("size limit exceeded: {most_bytes} bytes"))
}

fn no_regular_file(metadata: &std::fs::Metadata) -> io::Error {
    let kind = kind(metadata.file_type());
    io::Error::new(ErrorKind::InvalidInput, format!("is {kind}, and a regular file is wanted"))
}

#[cfg(unix)]
fn kind(found: std::fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match found {
        found if found.is_dir() => "a folder",
        found if found.is_fifo() => "a FIFO",
        found if found.is_socket() => "a socket",
        found if found.is_char_device() || found.is_block_device() => "a device",
        _ => "something else",
    }
}

#[cfg(not(unix))]
fn kind(found: std::fs::FileType) -> &'static str {
    if found.is_dir() { "a folder" } else { "something else" }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::path::PathBuf;
    use std::string::ToString;

    use super::*;

    fn folder() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("fp-input-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn only_regular_files_are_opened_and_nothing_waits() {
        let folder = folder();
        let (file, fifo) = (folder.join("file"), folder.join("fifo"));
        std::fs::write(&file, "10 bytes.\n").unwrap();
        assert_eq!(open(&file, 10).unwrap().metadata().unwrap().len(), 10);
        assert_eq!(open(&file, 9).unwrap_err().to_string(), "size limit exceeded: 9 bytes");
        assert_eq!(read_text(&file).unwrap(), "10 bytes.\n");
        // Nobody has it open for writing: a plain open would wait.
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let socket = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
        for (name, kind) in [
            (fifo, "a FIFO"),
            (folder.clone(), "a folder"),
            (PathBuf::from("/dev/zero"), "a device"),
            (PathBuf::from("/dev/null"), "a device"),
        ] {
            let told = open(&name, u64::MAX).unwrap_err();
            assert_eq!(told.kind(), ErrorKind::InvalidInput, "{}", name.display());
            assert_eq!(told.to_string(), format!("is {kind}, and a regular file is wanted"));
        }
        assert!(open(folder.join("socket"), u64::MAX).is_err(), "no open of a socket");
        drop(socket);
        let missing = open(folder.join("none"), u64::MAX).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_text_is_bounded_whatever_size_its_file_has() {
        // Of no size, by what the kernel says.
        let said = File::open("/proc/self/status").unwrap();
        assert_eq!(said.metadata().unwrap().len(), 0);
        assert_eq!(text(said, 10).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let said = File::open("/proc/self/status").unwrap();
        assert!(text(said, MOST_TEXT_BYTES).unwrap().starts_with("Name:"));
        let name = std::env::temp_dir().join(format!("fp-no-text-{}", std::process::id()));
        std::fs::write(&name, [b'a', 0xff]).unwrap();
        assert_eq!(read_text(&name).unwrap_err().kind(), ErrorKind::InvalidData);
        std::fs::remove_file(name).unwrap();
    }
}
