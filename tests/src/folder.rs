//! A folder of a test's own.

use std::path::{Path, PathBuf};

/// A folder, which is deleted with all that is in it when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it for a test with a router of this namespace.
    ///
    /// # Panics
    /// When the temporary folder cannot be written.
    pub fn new(namespace: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{namespace}-folder"));
        std::fs::create_dir_all(&path).expect("the temporary folder can be written");
        Self(path)
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Path of a file in it, in words of a command.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file; returns its path.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).expect("the folder was made");
        self.file(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
