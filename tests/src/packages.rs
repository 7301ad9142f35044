//! Packages, made by `cargo xtask package`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::root;

/// Packs a program; returns the files that were made.
///
/// # Panics
/// When that fails.
pub fn package(program: &Path, into: &Path, words: &str) -> Vec<PathBuf> {
    let programs = into.join("programs");
    fs::create_dir_all(&programs).expect("the temporary folder can be written");
    fs::copy(program, programs.join("fingerpost")).expect("it is there");
    let output = packing(into, &format!("{words} --programs {}", programs.display()));
    made(&output)
}

/// Runs `cargo xtask package` with these words, for a folder.
///
/// # Panics
/// When cargo cannot be started.
pub fn packing(into: &Path, words: &str) -> Output {
    // Cargo would wait for what else is built meanwhile.
    let mut xtask = match std::env::var_os("FINGERPOST_XTASK") {
        Some(built) => Command::new(built),
        None => {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["run", "--quiet", "--package", "xtask", "--"]);
            cargo
        }
    };
    xtask.arg("package").args(words.split(' ')).arg("--out").arg(into).current_dir(root());
    xtask.output().expect("cargo runs the tests")
}

/// Files that were made.
///
/// # Panics
/// When it failed.
pub fn made(output: &Output) -> Vec<PathBuf> {
    let wrote = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{wrote}{}", String::from_utf8_lossy(&output.stderr));
    let files = wrote.lines().filter(|line| line.starts_with('/')).map(PathBuf::from);
    files.filter(|file| file.is_file()).collect()
}
