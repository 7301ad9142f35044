//! A folder below which files are opened by name, whatever is exchanged there meanwhile.
//!
//! No symbolic link is followed, neither as a folder on the path nor at its end, and `..` is refused: each folder is opened
//! by itself, through the descriptor of the one around it, so that a name which is exchanged meanwhile leads nowhere else.
//!
//! Source: open(2), `O_PATH` and `O_NOFOLLOW`; `/proc/self/fd` stands in for openat(2).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::string::ToString;

/// A folder whose files may be opened.
#[derive(Debug)]
pub struct Folder {
    /// Absolute.
    path: PathBuf,
    handle: File,
}

impl Folder {
    /// Opens a folder, which must exist.
    ///
    /// # Errors
    /// As [`File::open`].
    pub fn new(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let mut options = OpenOptions::new();
        let handle =
            options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(&path)?;
        Ok(Self { path, handle })
    }

    /// Opens a file by its absolute path; `None` where that does not lie below the folder.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; `ELOOP` or `ENOTDIR` for a symbolic link.
    pub fn open_below(&self, path: &Path, options: &mut OpenOptions) -> io::Result<Option<File>> {
        let Ok(rest) = path.strip_prefix(&self.path) else { return Ok(None) };
        let mut around = self.handle.try_clone()?;
        let mut names = rest.components().peekable();
        while let Some(Component::Normal(name)) = names.next() {
            let at = Path::new("/proc/self/fd").join(around.as_raw_fd().to_string()).join(name);
            if names.peek().is_none() {
                return options
                    .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                    .open(at)
                    .map(Some);
            }
            let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
            around = OpenOptions::new().read(true).custom_flags(flags).open(at)?;
        }
        Ok(None)
    }
}
