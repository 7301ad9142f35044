//! Which pages there are, and their order: an index page names those of its folder.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::Page;
use crate::links::links;

/// Pages below one heading of the table of contents.
pub(crate) struct Part {
    /// Empty for the first page.
    pub(crate) title: &'static str,
    pub(crate) pages: Vec<Page>,
}

/// Where pages of a folder are ordered.
enum Order {
    /// Order of the links of this page, which has to name all.
    By(&'static str),
    /// Order of their numbers.
    Name,
}

/// Pages that belong to the repository as a whole.
const PROJECT: &[&str] = &[
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "testdata/README.md",
    "fuzz/README.md",
    "lab/peers/README.md",
];

/// All parts of the book.
///
/// # Errors
/// When a page cannot be read, or is not named by the index of its folder.
pub(crate) fn parts(root: &Path) -> Result<Vec<Part>> {
    let all =
        |paths: &[&str]| paths.iter().map(|path| read(root, path)).collect::<Result<Vec<_>>>();
    let part = |title, folder, order| {
        anyhow::Ok(Part { title, pages: folder_pages(root, folder, order)? })
    };
    Ok(vec![
        Part { title: "", pages: all(&["README.md", "docs/README.md"])? },
        part("Guide", "docs/guide", Order::By("docs/guide/README.md"))?,
        part("Reference", "docs/reference", Order::By("docs/README.md"))?,
        Part { title: "Words", pages: all(&["docs/glossary.md"])? },
        part("Internals", "docs/internals", Order::By("docs/README.md"))?,
        part("Decisions", "docs/decisions", Order::Name)?,
        part("Benchmarks", "docs/benchmarks", Order::By("docs/benchmarks/README.md"))?,
        Part { title: "The repository", pages: all(PROJECT)? },
    ])
}

pub(crate) fn is_index(path: &str) -> bool {
    path.ends_with("README.md")
}

fn read(root: &Path, path: &str) -> Result<Page> {
    let text = fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
    Ok(Page { path: path.to_owned(), text })
}

fn folder_pages(root: &Path, folder: &str, order: Order) -> Result<Vec<Page>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            paths.push(format!("{folder}/{name}"));
        }
    }
    if let Order::By(index) = order {
        let index = read(root, index)?;
        let named: Vec<_> = links(&index).iter().filter_map(|link| link.file(&index)).collect();
        let place = |path: &String| named.iter().position(|named| named == path);
        if let Some(lost) = paths.iter().find(|path| !is_index(path) && place(path).is_none()) {
            bail!("{lost}: is not in the book, since {} does not name it", index.path);
        }
        // The index itself is first.
        paths.sort_by_key(|path| (!is_index(path), place(path)));
    } else {
        paths.sort();
    }
    paths.iter().map(|path| read(root, path)).collect()
}
