//! `cargo xtask lines`: how much source there is, per room and in all, and a bound that it may not exceed.
//!
//! Counted are lines of Rust that are not blank, comments among them. Not counted are tests: folders `tests`, `testing`,
//! `fuzz`, `examples` and `lab/peers` (baselines), and items under `#[cfg(test)]` or feature `testing` with their files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::sh;

/// Most lines in all. A change that needs more raises it here, in its own commit, with what it adds.
const MOST: usize = 175_500;

/// Folders whose files are no part of a product.
const APART: &[&str] = &["tests", "testing", "fuzz", "examples", "peers", "target"];

/// Prints the counts.
///
/// # Errors
/// When there are more than [`MOST`] lines, or a file cannot be read.
pub(crate) fn lines(args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "usage: cargo xtask lines");
    let rooms = rooms(&sh::root())?;
    let all: usize = rooms.values().sum();
    for (room, count) in &rooms {
        println!("{count:>7}  {room}");
    }
    println!("{all:>7}  in all, of {MOST} at most");
    ensure!(all <= MOST, "{all} lines, at most {MOST}: see xtask/src/lines.rs");
    Ok(())
}

/// Lines of each room.
fn rooms(root: &Path) -> Result<BTreeMap<String, usize>> {
    let mut files = Vec::new();
    for top in ["crates", "bindings", "lab", "xtask"] {
        walk(&root.join(top), &mut files)?;
    }
    let mut counts = BTreeMap::new();
    let mut of_tests = BTreeSet::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let (count, modules) = count(&text);
        let folder = folder_of_modules(file);
        of_tests.extend(modules.iter().map(|module| folder.join(module)));
        counts.insert(file.clone(), count);
    }
    let mut rooms = BTreeMap::new();
    for (file, count) in counts {
        if of_tests.contains(&file.with_extension(""))
            || file.ancestors().any(|folder| of_tests.contains(folder))
        {
            continue;
        }
        let path = file.strip_prefix(root).expect("it was found below");
        let parts = if path.starts_with("crates") || path.starts_with("bindings") { 2 } else { 1 };
        let room: PathBuf = path.components().take(parts).collect();
        *rooms.entry(room.display().to_string()).or_insert(0) += count;
    }
    Ok(rooms)
}

/// Source files below a folder that may not be there.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !APART.contains(&name.as_str()) {
                walk(&path, files)?;
            }
        } else if name.ends_with(".rs") && !["tests.rs", "testing.rs"].contains(&name.as_str()) {
            files.push(path);
        }
    }
    Ok(())
}

/// Where the files of a file's modules are.
fn folder_of_modules(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default();
    if ["mod.rs", "lib.rs", "main.rs"].iter().any(|root| name == *root) {
        file.with_file_name("")
    } else {
        file.with_extension("")
    }
}

/// Attributes of items that only tests have.
const OF_TESTS: &[&str] = &[
    "#[cfg(test)]",
    "#[cfg(all(test",
    "#[cfg(all(loom, test",
    "#[cfg(any(test, feature = \"testing\"))]",
    "#[cfg(feature = \"testing\")]",
];

/// Lines that are not blank and of no test, and the names of modules of tests that have a file.
fn count(text: &str) -> (usize, Vec<String>) {
    let (mut count, mut modules) = (0, Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let word = line.trim();
        if !OF_TESTS.iter().any(|start| word.starts_with(start)) {
            count += usize::from(!word.is_empty());
            continue;
        }
        // Formatted code: an item that does not end on its line ends with a brace in its column.
        let indent = &line[..line.len() - line.trim_start().len()];
        let item = lines.by_ref().find(|line| !line.trim_start().starts_with("#["));
        let Some(item) = item.map(str::trim_end) else { break };
        if let Some(module) = item.strip_suffix(';') {
            if let Some((_, name)) = module.split_once("mod ") {
                modules.push(name.to_owned());
            }
        } else if !item.ends_with('}') && !item.ends_with(',') {
            let ends = ["}", "};", "})", "});"].map(|end| format!("{indent}{end}"));
            lines.by_ref().find(|line| ends.iter().any(|end| line == end));
        }
    }
    (count, modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_blank_lines_are_not_counted() {
        let text = "//! A file.\n\nuse x;\n#[cfg(test)]\nmod tests;\n\
                    #[cfg(any(test, feature = \"testing\"))]\npub(crate) mod lab;\n\nfn f() {\n\
                    }\n\n#[cfg(test)]\nimpl F {\n    fn g() {\n    }\n}\n\nconst C: u8 = 1;\n\n#[cfg(test)]\n\
                    #[allow(x, reason = \"y\")]\nmod more {\n    fn h() {\n    }\n}\n";
        assert_eq!(count(text), (5, vec!["tests".to_owned(), "lab".to_owned()]));
        let fields = "struct S {\n    a: u8,\n    #[cfg(test)]\n    b: u8,\n    c: u8,\n}\n";
        assert_eq!(count(fields), (4, Vec::new()));
    }

    #[test]
    fn the_rooms_are_those_of_the_repository() {
        let rooms = rooms(&sh::root()).unwrap();
        for room in ["crates/lpm", "crates/router", "lab", "xtask"] {
            assert!(rooms.get(room).is_some_and(|count| *count > 500), "{room}: {rooms:?}");
        }
        assert!(rooms.keys().all(|room| room != "tests" && room != "fuzz"), "{rooms:?}");
        assert!(rooms.values().sum::<usize>() <= MOST, "{rooms:?}");
    }

    #[test]
    fn modules_lie_beside_a_root_and_below_a_file() {
        assert_eq!(folder_of_modules(Path::new("a/mod.rs")), Path::new("a/"));
        assert_eq!(folder_of_modules(Path::new("a/b.rs")), Path::new("a/b"));
    }
}
