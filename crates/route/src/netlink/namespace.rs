//! Tests against the running kernel: each starts itself again below `unshare --net` and so has a
//! kernel of its own, of which nothing is left behind.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Runs `body` in a namespace of its own; `module` and `name` are the test's.
pub(crate) fn run_in(module: &str, name: &str, body: fn()) {
    const INSIDE: &str = "FINGERPOST_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    if std::env::var_os("FINGERPOST_QUICK").is_some() {
        return println!("skipped: needs namespaces (FINGERPOST_QUICK is set)");
    }
    if std::fs::metadata("/proc/self").map_or(1, |meta| meta.uid()) != 0 {
        return println!("skipped: needs root");
    }
    let exe = std::env::current_exe().unwrap();
    // Tests are named without their crate.
    let (_, module) = module.split_once("::").expect("crate::module");
    let output = Command::new("unshare")
        .args(["--net", "--"])
        .arg(exe)
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg(format!("{module}::{name}"))
        .env(INSIDE, "1")
        .output()
        .expect("unshare is part of util-linux");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Each line as a command; fails where one does.
pub(crate) fn run(script: &str) {
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.split_ascii_whitespace();
        let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
