//! Programs of eBPF: each object that is shipped is what the pinned compiler makes of its source.
//!
//! `FINGERPOST_ACCEPT=1 cargo test -p fingerpost-tests --test programs` writes the objects again.

use std::process::Command;

use fingerpost_tests::{root, skip, source};

/// Folders with sources of programs, and where headers are looked for.
const FOLDERS: &[&str] = &["crates/io/src", "lab/src"];
const HEADERS: &str = "crates/io/src/xdp";

/// The version that the shipped objects were made with; another makes other bytes.
const COMPILER: &str = "clang-14";
const STRIP: &str = "llvm-strip-14";

#[test]
fn each_object_is_that_of_its_source() {
    let folder = std::env::temp_dir().join(format!("fingerpost-object-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let sources: Vec<_> = FOLDERS.iter().flat_map(|folder| source::files(folder, ".c")).collect();
    assert!(sources.len() > 2, "{} sources are not these programs", sources.len());
    for source in sources {
        let (path, made) = (root().join(&source.path), folder.join("made.o"));
        let compiled = Command::new(COMPILER)
            .args(["-O2", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"])
            .args(["-Wno-unused-function", "-I"])
            .arg(root().join(HEADERS))
            .arg("-c")
            .arg(&path)
            .arg("-o")
            .arg(&made)
            .status();
        let Ok(compiled) = compiled else { return not_compared(COMPILER, "clang-14") };
        assert!(compiled.success(), "{} compiles", source.path);
        let stripped = Command::new(STRIP).arg("--strip-unneeded").arg(&made).status();
        let Ok(stripped) = stripped else { return not_compared(STRIP, "llvm-14") };
        assert!(stripped.success());
        let new = std::fs::read(&made).unwrap();
        let object = path.with_extension("o");
        if std::env::var_os("FINGERPOST_ACCEPT").is_some() {
            std::fs::write(object, &new).unwrap();
        } else {
            let same = std::fs::read(&object).is_ok_and(|shipped| shipped == new);
            let accept = "FINGERPOST_ACCEPT=1 cargo test -p fingerpost-tests --test programs";
            assert!(same, "the object of {} is another one; to accept: {accept}", source.path);
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A program of a package of Debian is missing. A run of CI that could have had it fails: else an object could be
/// shipped that is not that of its source.
fn not_compared(program: &str, package: &str) {
    let policy = Command::new("apt-cache").args(["policy", package]).output();
    let policy = policy.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    assert!(
        std::env::var_os("CI").is_none() || !can_be_installed(&policy.unwrap_or_default()),
        "{program} is missing and no object was compared with its source: apt-get install {package}"
    );
    skip(program);
}

/// Whether `apt-cache policy` names a version that can be installed.
fn can_be_installed(policy: &str) -> bool {
    let candidate = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "));
    candidate.is_some_and(|version| version != "(none)")
}

#[test]
fn a_compiler_that_could_be_had_is_known() {
    let policy = |candidate: &str| format!("clang-14:\n  Installed: (none)\n{candidate}");
    assert!(can_be_installed(&policy("  Candidate: 1:14.0.6-12\n  Version table:\n")));
    assert!(!can_be_installed(&policy("  Candidate: (none)\n")));
    assert!(!can_be_installed(""), "no such package, or no Debian");
}
