//! Folders of temporary files that go with this process: with their value, or, where the process was interrupted, when the
//! next one makes one.
//!
//! Shape:  `fingerpost-scratch-NAME-PID-N` in the system's folder of temporary files, held by a lock (`flock`) that the kernel
//!         releases with the process. It is made under another name, so that it has its lock when others can find it.
//! Limits: one that was interrupted before that stays behind, empty.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

/// What the names of these folders begin with.
const PREFIX: &str = "fingerpost-scratch-";

/// A folder. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes one, and removes those whose process is gone.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn new(name: &str) -> Result<Self> {
        Self::inside(&std::env::temp_dir(), name)
    }

    fn inside(all: &Path, name: &str) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        sweep(all);
        // Relaxed: a counter, nothing is published by it.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = format!("{PREFIX}{name}-{}-{number}", std::process::id());
        let (hidden, path) = (all.join(format!(".{own}")), all.join(own));
        let make = || -> std::io::Result<File> {
            fs::create_dir(&hidden)?;
            let lock = File::open(&hidden)?;
            lock.try_lock()?;
            fs::rename(&hidden, &path)?;
            Ok(lock)
        };
        let lock = make().with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path, _lock: lock })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file of it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind is removed later.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders that nobody holds. What cannot be removed is another user's.
fn sweep(all: &Path) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interrupted_process_left_is_removed() {
        let all = Scratch::new("test").unwrap();
        let first = Scratch::inside(all.path(), "first").unwrap();
        fs::write(first.file("kept"), "").unwrap();
        let (left, other) = (all.file("fingerpost-scratch-gone-1-0"), all.file("something"));
        for folder in [&left, &other] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), "").unwrap();
        }
        let second = Scratch::inside(all.path(), "second").unwrap();
        assert_eq!([left.exists(), other.exists()], [false, true]);
        assert!(first.file("kept").exists() && second.path().is_dir());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }
}
