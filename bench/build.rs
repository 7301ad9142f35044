//! Writes the commit and the compiler of this build into the program, for the records of benchmarks.
//!
//! Outside a git checkout the commit is `unknown`. It is that of the last build: what was changed since
//! and not committed is told by nothing but the care of who measures.

use std::process::Command;

fn main() {
    // The log of HEAD is written at every commit, checkout and rebase.
    if let Some(log) = said("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let commit = said("git", &["rev-parse", "--short=12", "HEAD"]);
    println!("cargo::rustc-env=FINGERPOST_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let rustc = said(&rustc, &["--version"]);
    println!("cargo::rustc-env=FINGERPOST_RUSTC={}", rustc.as_deref().unwrap_or("unknown"));
}

/// The one line that a command prints; `None` when it is not there or fails.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
