//! A configuration file of a test's own.

use std::path::{Path, PathBuf};

/// A file, which is deleted when this is dropped.
#[derive(Debug)]
pub struct Configuration(PathBuf);

impl Configuration {
    /// Writes it for a router of this namespace.
    ///
    /// # Panics
    /// When the temporary folder cannot be written.
    pub fn new(namespace: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{namespace}.toml"));
        std::fs::write(&path, text).expect("the temporary folder can be written");
        Self(path)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
