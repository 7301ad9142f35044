//! `cargo xtask peers`: builds the programs that `fingerpost bench` compares with, in `target/peers`.
//!
//! Each stands on a library of its own language (`lab/peers/README.md`). What cannot be had here is
//! named with its reason, and the benches print it too; nothing else needs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{debian, fastclick, sh};

/// A program: its folder in `lab/peers` and in `target/peers`.
struct Program {
    name: &'static str,
    engines: &'static str,
    /// Debian packages that have what it is built with.
    packages: &'static [&'static str],
    /// Whether that is there.
    ready: fn() -> bool,
    /// Function that builds it from its sources into a folder.
    build: fn(&Path, &Path) -> Result<()>,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "dpdk",
        engines: "rte_lpm, rte_fib, rte_fib_4b, rte_lpm6, rte_fib6",
        packages: &["libdpdk-dev", "pkgconf", "gcc", "libc6-dev"],
        ready: || {
            sh::find("cc").is_some() && sh::works(&mut sh::command("pkg-config --exists libdpdk"))
        },
        build: dpdk,
    },
    Program {
        name: "bart",
        engines: "bart, bart_fast",
        packages: &["golang-go"],
        ready: || sh::find("go").is_some(),
        build: bart,
    },
    Program {
        name: "crates",
        engines: "prefix-trie, ip_network_table, iptrie, poptrie-rs",
        packages: &[],
        ready: || true,
        build: crates,
    },
    Program {
        name: "python",
        engines: "pytricia, py-radix",
        packages: &["python3-venv", "python3-dev", "gcc", "libc6-dev"],
        ready: || sh::works(&mut sh::command("python3 -m venv -h")) && sh::find("cc").is_some(),
        build: python,
    },
];

/// `[NAME..]`, by default all; or `fastclick --source DIR`.
pub(crate) fn peers(args: &[String]) -> Result<()> {
    if let [name, option, source] = args
        && (&**name, &**option) == ("fastclick", "--source")
    {
        return fastclick::fastclick(Path::new(source));
    }
    for arg in args {
        if !PROGRAMS.iter().any(|program| program.name == arg) {
            let names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
            let names = names.join(", ");
            bail!(
                "usage: cargo xtask peers [NAME..], with NAME one of {names}; or: cargo xtask peers fastclick --source DIR"
            );
        }
    }
    let mut report = Vec::new();
    for program in PROGRAMS {
        if args.is_empty() || args.iter().any(|arg| arg == program.name) {
            let Program { name, engines, .. } = program;
            report.push(match make(program) {
                Ok(()) => format!("built: {name} ({engines})"),
                Err(error) => format!("missing: {name} ({engines}): {}", one_line(&error)),
            });
        }
    }
    println!();
    for line in report {
        println!("{line}");
    }
    Ok(())
}

/// Builds for the tests the one program that Debian has all of, which takes seconds. The others fetch from registries
/// of other languages or build for minutes.
pub(crate) fn provide() {
    for program in PROGRAMS.iter().filter(|program| program.name == "dpdk") {
        if let Err(error) = make(program) {
            println!("missing: {} ({}): {}", program.name, program.engines, one_line(&error));
        }
    }
}

fn make(program: &Program) -> Result<()> {
    if !(program.ready)() && !program.packages.is_empty() {
        let packages = program.packages.join(" ");
        debian::install(program.packages).with_context(|| format!("needs {packages}"))?;
        ensure!((program.ready)(), "needs {packages}");
    }
    let source = sh::root().join("lab/peers").join(program.name);
    let target = sh::root().join("target/peers").join(program.name);
    fs::create_dir_all(&target).with_context(|| format!("cannot make {}", target.display()))?;
    (program.build)(&source, &target)
}

fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn dpdk(source: &Path, target: &Path) -> Result<()> {
    let flags = sh::output(&mut sh::command("pkg-config --cflags --libs-only-L libdpdk"))?;
    // Inlined lookups are ours to compile, so for this machine, after the flags that say otherwise.
    let mut cc = sh::command("cc -O3 -Wall -Wextra");
    cc.args(flags.split_ascii_whitespace()).args(["-march=native", "-o"]).arg(target.join("peer"));
    cc.args(with_extension(source, "c")?);
    sh::run(cc.args([
        "-lrte_fib",
        "-lrte_lpm",
        "-lrte_rib",
        "-lrte_mbuf",
        "-lrte_mempool",
        "-lrte_eal",
    ]))
}

fn bart(source: &Path, target: &Path) -> Result<()> {
    let mut go = sh::command("go build -trimpath -o");
    // What every server of the last ten years has; ignored on other architectures.
    go.arg(target.join("peer")).arg(".").env("GOAMD64", "v3").current_dir(source);
    sh::run(&mut go)
}

fn crates(source: &Path, target: &Path) -> Result<()> {
    let mut cargo = sh::command("cargo build --release --locked --target-dir");
    cargo.arg(target.join("target")).arg("--manifest-path").arg(source.join("Cargo.toml"));
    sh::run(cargo.env("RUSTFLAGS", "-C target-cpu=native"))?;
    copy(&target.join("target/release/fingerpost-peers"), &target.join("peer"))
}

fn python(source: &Path, target: &Path) -> Result<()> {
    let venv = target.join("venv");
    sh::run(sh::command("python3 -m venv").arg(&venv))?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    sh::run(pip.arg(source.join("requirements.txt")))?;
    copy(&source.join("peer.py"), &target.join("peer.py"))
}

fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    // A program that still runs keeps its old file.
    let _ = fs::remove_file(to);
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_its_sources() {
        for program in PROGRAMS {
            let source = sh::root().join("lab/peers").join(program.name);
            assert!(source.is_dir(), "{}", source.display());
            assert!(!program.engines.is_empty());
        }
        let sources = with_extension(&sh::root().join("lab/peers/dpdk"), "c").unwrap();
        assert!(sources.iter().any(|path| path.ends_with("main.c")));
    }

    #[test]
    fn unknown_names_are_refused() {
        let error = peers(&["nobody".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("dpdk, bart, crates, python"), "{error}");
    }

    #[test]
    fn reasons_take_one_line() {
        let error = anyhow::anyhow!("a\n  b").context("c");
        assert_eq!(one_line(&error), "c: a b");
    }
}
