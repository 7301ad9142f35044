//! Where tests find the real tables, which are not part of the repository.

use std::path::{Path, PathBuf};

/// A file of the data folder; `None`, and a line that reports the skip, where there is no such folder.
pub(crate) fn data(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("FINGERPOST_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let file = folder.join(name);
    if folder.is_dir() {
        return Some(file);
    }
    println!("skipped: needs real tables (FINGERPOST_DATA)");
    None
}
