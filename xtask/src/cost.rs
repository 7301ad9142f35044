//! `cargo xtask cost COMMIT`: what an addition cost, as files that its commit edited outside its own.
//!
//! Its own are the files that the commit adds. Not counted are files that follow from others or that every addition
//! touches: generated files and records, tests, documents, the changelog, the lock file, and the C programs of the XDP
//! datapath with their objects, whose form of a feature is a commit of its own.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::sh;

/// Most edits of files outside.
const MOST: usize = 3;

/// Prints the edited files that count.
///
/// # Errors
/// When there are more than [`MOST`], or git has no such commit.
pub(crate) fn cost(args: &[String]) -> Result<()> {
    let [commit] = args else { bail!("usage: cargo xtask cost COMMIT") };
    let edited = edited(&sh::root(), commit)?;
    for path in &edited {
        println!("{path}");
    }
    println!("{} files edited outside, at most {MOST}", edited.len());
    ensure!(edited.len() <= MOST, "{} files edited outside, at most {MOST}", edited.len());
    Ok(())
}

/// Files that the commit changed, renamed or removed, and that count.
fn edited(root: &Path, commit: &str) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root);
    git.args(["diff-tree", "-r", "--root", "--no-commit-id", "--name-status", "-M"]);
    let done = git.arg(commit).arg("--").output().context("git")?;
    let message = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{}", message.trim());
    let text = String::from_utf8(done.stdout).context("git: not UTF-8")?;
    let changes: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| Some((line.split_once('\t')?.0, line.rsplit_once('\t')?.1)))
        .collect();
    let edits = changes.into_iter().filter(|(kind, _)| *kind != "A").map(|change| change.1);
    Ok(edits.filter(|path| counts(path)).map(str::to_owned).collect())
}

/// Whether an edit of this file is a cost.
fn counts(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let (name, folders) = parts.split_last().expect("a path has a name");
    let folder = |names: &[&str]| folders.iter().any(|folder| names.contains(folder));
    let test = folder(&["tests", "testing", "golden", "testdata"]) || *name == "tests.rs";
    let page = folders.first() == Some(&"docs") || name.ends_with(".md");
    let made = ["Cargo.lock", "openapi.json"].contains(name);
    let xdp = folder(&["xdp"]) && [".c", ".h", ".o"].iter().any(|end| name.ends_with(end));
    !(test || page || made || xdp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A repository of its own, removed when dropped.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("fingerpost-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let scratch = Self(folder);
            scratch.git(&["init", "--quiet"]);
            scratch
        }

        fn git(&self, args: &[&str]) {
            let mut git = Command::new("git");
            git.arg("-C").arg(&self.0).args([
                "-c",
                "user.name=x",
                "-c",
                "user.email=x@example.net",
            ]);
            assert!(git.args(args).status().unwrap().success(), "{args:?}");
        }

        /// Commits a line more in each of these files.
        fn commit(&self, paths: &[&str]) {
            for path in paths {
                let path = self.0.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let old = fs::read_to_string(&path).unwrap_or_default();
                fs::write(&path, old + "line\n").unwrap();
            }
            self.git(&["add", "--all"]);
            self.git(&["commit", "--quiet", "--message", "x"]);
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_fourth_edit_is_found() {
        let scratch = Scratch::new("cost");
        let old = ["a/mod.rs", "b.rs", "c.rs", "d.rs"];
        let beside = [
            "Cargo.lock",
            "CHANGELOG.md",
            "docs/reference/elements.md",
            "docs/openapi.json",
            "crates/fingerpost/tests/golden/graph.txt",
            "a/tests.rs",
            "crates/io/src/xdp/forward/forward.c",
            "crates/io/src/xdp/forward/forward.o",
        ];
        scratch.commit(&[&old[..], &beside].concat());
        scratch.commit(&[&["a/new.rs", "a/new/part.rs"][..], &old[..3], &beside].concat());
        assert_eq!(edited(&scratch.0, "HEAD").unwrap(), old[..3]);
        scratch.commit(&[&["a/more.rs"][..], &old, &beside].concat());
        assert_eq!(edited(&scratch.0, "HEAD").unwrap().len(), MOST + 1);
        assert!(edited(&scratch.0, "nothing").is_err());
    }
}
