//! Paths of the host that builds, which the compiler writes into programs (places of panics, debugging information): they are
//! replaced by names that are equal on all hosts.
//!
//! The flags are given to one build. As a part of the profile (`trim-paths`) Cargo has them only in its nightly form.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::sh;

/// Folders of this host, and what programs have in place of them.
pub(super) struct Paths {
    /// The more special one last: of those that match, compilers of Rust and of C take the last.
    replaced: Vec<(PathBuf, String)>,
}

impl Paths {
    /// Paths of this checkout, of the packages of registries, and of the sources of the standard library.
    ///
    /// # Errors
    /// When the compiler does not run.
    pub(super) fn of_host() -> Result<Self> {
        let home = std::env::home_dir();
        let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let cargo = cargo.or_else(|| Some(home.as_ref()?.join(".cargo")));
        let registries = cargo.as_deref().map(folders_of_registries).unwrap_or_default();
        let sysroot = sh::output(&mut sh::command("rustc --print sysroot"))?;
        let version = sh::output(&mut sh::command("rustc --version --verbose"))?;
        let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
        let std = Path::new(sysroot.trim_end()).join("lib/rustlib/src/rust");
        // As in the programs of a host without these sources.
        let std = (std, format!("/rustc/{}", commit.context("a compiler of no commit")?));
        Ok(Self::new(&sh::root(), &registries, [std], home))
    }

    fn new(
        checkout: &Path,
        registries: &[PathBuf],
        others: impl IntoIterator<Item = (PathBuf, String)>,
        home: Option<PathBuf>,
    ) -> Self {
        let mut replaced = Vec::new();
        // What lies elsewhere below the home folder. Of some users it is the root, which is a part of every path.
        let home = home.filter(|home| home.parent().is_some());
        replaced.extend(home.map(|home| (home, "/home".to_owned())));
        replaced.push((checkout.to_owned(), "/fingerpost".to_owned()));
        replaced.extend(registries.iter().map(|from| (from.clone(), "/registry".to_owned())));
        replaced.extend(others);
        Self { replaced }
    }

    /// Flags of the compiler.
    fn flags(&self) -> Vec<String> {
        let flag =
            |(from, to): &(PathBuf, String)| format!("--remap-path-prefix={}={to}", from.display());
        self.replaced.iter().map(flag).collect()
    }

    /// Flags of the C compiler. They are separated by blanks.
    ///
    /// # Errors
    /// When a path has a blank.
    fn c_flags(&self) -> Result<String> {
        let mut flags = Vec::new();
        for (from, to) in &self.replaced {
            let from = from.display().to_string();
            ensure!(
                !from.contains(char::is_whitespace),
                "{from:?} has a blank, which ends a flag of C"
            );
            flags.push(format!("-ffile-prefix-map={from}={to}"));
        }
        Ok(flags.join(" "))
    }

    /// Has a build of Cargo replace the paths, in Rust and in C.
    ///
    /// # Errors
    /// When a path cannot stand in a flag.
    pub(super) fn hide<'a>(&self, build: &'a mut Command) -> Result<&'a mut Command> {
        // Separated as no path is.
        build.env("CARGO_ENCODED_RUSTFLAGS", self.flags().join("\x1f"));
        Ok(build.env_remove("RUSTFLAGS").env("CFLAGS", self.c_flags()?))
    }

    /// The first of the paths that a program has.
    pub(super) fn found_in(&self, program: &[u8]) -> Option<String> {
        let mut found = self.replaced.iter().filter_map(|(folder, _)| {
            let path = format!("{}/", folder.display());
            let at = program.windows(path.len()).position(|window| window == path.as_bytes())?;
            let end = program[at..].iter().position(|byte| !byte.is_ascii_graphic());
            let end = at + end.unwrap_or(program.len() - at).min(200);
            Some(String::from_utf8_lossy(&program[at..end]).into_owned())
        });
        found.next()
    }
}

/// Folders that packages of registries are unpacked in, one a registry. Their names have a number of its address.
fn folders_of_registries(cargo: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(cargo.join("registry/src")) else { return Vec::new() };
    let mut folders: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::strip;
    use super::*;

    /// Compiles a program of a package and a checkout, each with a panic.
    fn compiled(folder: &Path, flags: &[String]) -> Vec<u8> {
        let (package, checkout) =
            (folder.join("home/.cargo/registry/src/index-1/p"), folder.join("home/checkout"));
        for folder in [&package, &checkout] {
            fs::create_dir_all(folder).unwrap();
        }
        let panics = |name: &str| format!("pub fn {name}(n: u8) {{ assert!(n > 7, \"{{n}}\") }}\n");
        fs::write(package.join("lib.rs"), panics("p")).unwrap();
        let main = format!("#[path = {:?}] mod p;\n{}", package.join("lib.rs"), panics("f"));
        let main =
            main + "fn main() { let n = std::env::args().count(); p::p(n as u8); f(n as u8) }\n";
        fs::write(checkout.join("main.rs"), main).unwrap();
        let made = folder.join("made");
        let mut rustc = Command::new("rustc");
        rustc.args(["-Cdebuginfo=1"]).args(flags).arg("-o").arg(&made);
        let output = rustc.arg(checkout.join("main.rs")).current_dir(&checkout).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        strip(&made).unwrap();
        fs::read(made).unwrap()
    }

    /// Equal programs from two hosts, without a path of either; without the flags they have them.
    #[test]
    fn programs_have_no_path_of_the_host() {
        if sh::find("strip").is_none() {
            return println!("skipped: needs strip (binutils)");
        }
        let scratch = sh::scratch("paths-of-tests").unwrap();
        let hosts = ["one", "another-host"].map(|name| {
            let folder = scratch.join(name);
            let home = folder.join("home");
            let registries = || folders_of_registries(&home.join(".cargo"));
            let none = Paths::new(&home.join("checkout"), &[], [], Some(home.clone()));
            let plain = compiled(&folder, &[]);
            let found = none.found_in(&plain).expect("the place of a panic");
            assert!(found.starts_with(&*home.to_string_lossy()), "{found}");
            assert_eq!(registries().len(), 1);
            let paths = Paths::new(&home.join("checkout"), &registries(), [], Some(home.clone()));
            let hidden = compiled(&folder, &paths.flags());
            assert_eq!(paths.found_in(&hidden), None);
            let has =
                |text: &str| hidden.windows(text.len()).any(|window| window == text.as_bytes());
            assert!(
                has("/registry/p/lib.rs") && has("/fingerpost/main.rs"),
                "they have other names"
            );
            hidden
        });
        fs::remove_dir_all(&scratch).unwrap();
        assert!(hosts[0] == hosts[1], "they differ");
    }

    /// A C file of a package that lies below the home folder has the name of its registry, not of the home folder.
    #[test]
    fn a_file_of_c_has_the_more_special_name() {
        if sh::find("cc").is_none() {
            return println!("skipped: needs a C compiler");
        }
        let scratch = sh::scratch("paths-of-c").unwrap();
        let (home, object) = (scratch.join("home"), scratch.join("p.o"));
        let package = home.join(".cargo/registry/src/index-1/p");
        fs::create_dir_all(&package).unwrap();
        let source = package.join("p.c");
        fs::write(&source, "const char *f(void) { return __FILE__; }\n").unwrap();
        let registries = folders_of_registries(&home.join(".cargo"));
        let paths = Paths::new(&home.join("checkout"), &registries, [], Some(home));
        let mut cc = Command::new("cc");
        cc.args(paths.c_flags().unwrap().split(' ')).args(["-g", "-c", "-o"]).arg(&object);
        assert!(cc.arg(&source).current_dir(&package).status().unwrap().success());
        let compiled = fs::read(&object).unwrap();
        fs::remove_dir_all(&scratch).unwrap();
        assert_eq!(paths.found_in(&compiled), None);
        let has = |text: &str| compiled.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(has("/registry/p/p.c"), "it has another name");
        let blank = Paths::new(Path::new("/a b"), &[], [], None).c_flags().unwrap_err();
        assert!(blank.to_string().contains("has a blank"), "{blank}");
    }

    #[test]
    fn a_path_is_found_by_its_bytes() {
        let paths = Paths::new(Path::new("/a/checkout"), &[], [], Some("/home/b".into()));
        assert_eq!(paths.found_in(b"\x7fELF /a/checkouts /home/bc/d"), None);
        let found = |program: &[u8]| paths.found_in(program);
        assert_eq!(found(b"\x00/a/checkout/x.rs\x00y").as_deref(), Some("/a/checkout/x.rs"));
        assert_eq!(found(b"/home/b/.cargo").as_deref(), Some("/home/b/.cargo"));
        // A home folder that is the root is none to look for.
        assert_eq!(Paths::new(Path::new("/a"), &[], [], Some("/".into())).found_in(b"/b/"), None);
    }
}
