//! `cargo xtask package`: a .deb, an .rpm and a tarball of static programs, made by the distributions' own tools.
//!
//! One folder is laid out as it will be installed, from `contrib` and from what the program writes itself (manual pages,
//! completions), and packed three times. Times are those of the commit (`SOURCE_DATE_EPOCH`), owners are root, and
//! names are sorted: two packagings of the same programs are equal, byte by byte. The programs are built without the paths of
//! this host (`paths.rs`), so that packages of two checkouts are equal as well.

mod paths;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::sh;

const USAGE: &str =
    "usage: cargo xtask package [deb|rpm|tar].. [--programs DIR] [--out DIR] [--revision N]";

/// The programs; the second one is packed where it is there.
const PROGRAMS: [&str; 2] = ["fingerpost", "fingerpost-lab"];

/// Folder of the builds that are packed.
const BUILD: &str = "target/package-build";

/// Files of `contrib`, and their paths when installed.
const FILES: &[(&str, &str)] = &[
    ("systemd/fingerpost.service", "usr/lib/systemd/system/fingerpost.service"),
    ("systemd/run-fingerpost-bpf.mount", "usr/lib/systemd/system/run-fingerpost-bpf.mount"),
    ("systemd/sysusers.conf", "usr/lib/sysusers.d/fingerpost.conf"),
    ("systemd/tmpfiles.conf", "usr/lib/tmpfiles.d/fingerpost.conf"),
    ("fingerpost.toml", "etc/fingerpost/fingerpost.toml"),
];

/// Paths of completions, as Debian has them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/fingerpost"),
    ("zsh", "usr/share/zsh/vendor-completions/_fingerpost"),
    ("fish", "usr/share/fish/vendor_completions.d/fingerpost.fish"),
];

/// Target of programs that run on any distribution.
fn static_target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

#[derive(Debug, Default, PartialEq)]
struct Options {
    kinds: Vec<String>,
    programs: Option<PathBuf>,
    out: Option<PathBuf>,
    revision: Option<u32>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().context(USAGE);
            match arg.as_str() {
                "deb" | "rpm" | "tar" => options.kinds.push(arg.clone()),
                "--programs" => options.programs = Some(value()?.into()),
                "--out" => options.out = Some(value()?.into()),
                "--revision" => options.revision = Some(value()?.parse().context(USAGE)?),
                _ => bail!(USAGE),
            }
        }
        if options.kinds.is_empty() {
            options.kinds = ["deb", "rpm", "tar"].map(str::to_owned).to_vec();
        }
        Ok(options)
    }
}

/// Makes the packages, of programs that are in a folder or are built before.
pub(crate) fn package(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let out = options.out.clone().unwrap_or_else(|| sh::root().join("target/package"));
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let out = out.canonicalize()?;
    let work = sh::scratch(&format!("package-{}", std::process::id()))?;
    let epoch = epoch()?;
    if options.programs.is_none() {
        // Folders of registries, whose paths are replaced, are made with the first package from there.
        sh::run(&mut sh::command("cargo fetch --locked --quiet"))?;
    }
    let paths = paths::Paths::of_host()?;
    for kind in &options.kinds {
        let programs = match (&options.programs, kind.as_str()) {
            (Some(folder), _) => folder.clone(),
            (None, "tar") => built_static(&paths)?,
            (None, _) => built(sh::RELEASE, "", &paths)?,
        };
        let root = work.join(kind);
        let packed = Packed {
            version: env!("CARGO_PKG_VERSION"),
            revision: options.revision.unwrap_or(1),
            epoch: &epoch,
            out: &out,
            work: &work,
        };
        for found in stage(&programs, &root, kind == "rpm", &paths)? {
            // Other programs are packed as they are.
            ensure!(options.programs.is_some(), "{found}");
            println!("{found}");
        }
        let file = match kind.as_str() {
            "deb" => packed.deb(&root)?,
            "rpm" => packed.rpm(&root)?,
            _ => packed.tar(&root)?,
        };
        println!("{}", file.display());
    }
    fs::remove_dir_all(&work).with_context(|| work.display().to_string())
}

/// Whether the compiler has the standard library of a target.
fn has_library(target: &str) -> Result<bool> {
    let library = sh::output(sh::command("rustc --print target-libdir --target").arg(target))?;
    Ok(Path::new(library.trim_end()).is_dir())
}

/// What a check of static programs needs and this host has not, once its standard library was to be installed.
pub(crate) fn static_missing() -> Option<&'static str> {
    let target = static_target();
    let has_library = || has_library(&target).unwrap_or(false);
    if target != "x86_64-unknown-linux-musl" {
        return Some("a host of x86-64");
    }
    if sh::find("musl-gcc").is_none() {
        return Some("musl-gcc (apt-get install musl-tools)");
    }
    if !has_library()
        && let Err(error) = sh::run(sh::command("rustup target add").arg(&target))
    {
        println!("{error:#}");
    }
    (!has_library()).then_some("the library of musl (rustup target add x86_64-unknown-linux-musl)")
}

/// Builds programs that need no library of a host; returns their folder.
fn built_static(paths: &paths::Paths) -> Result<PathBuf> {
    let target = static_target();
    ensure!(has_library(&target)?, "no standard library of {target}: rustup target add {target}");
    let mut words = format!("{} --target {target}", sh::RELEASE);
    if sh::find("musl-gcc").is_none() {
        // The TLS library has C, which takes a compiler for that target.
        println!("without musl-gcc (apt-get install musl-tools) the programs have no TLS");
        words += " --no-default-features --features fingerpost/click";
    }
    let folder = built(&words, &target, paths)?;
    for name in PROGRAMS {
        let program = fs::read(folder.join(name)).with_context(|| name.to_owned())?;
        ensure!(glibc(&program).is_none(), "{name} needs the C library of this host");
    }
    Ok(folder)
}

/// Builds the programs without the paths of this host; returns their folder.
fn built(words: &str, target: &str, paths: &paths::Paths) -> Result<PathBuf> {
    // A folder of its own: other flags would build what lies in the usual one anew, and the next build once more.
    let mut build = sh::command(words);
    build.args(["--locked", "--target-dir", BUILD]);
    sh::run(paths.hide(&mut build)?)?;
    Ok(sh::root().join(BUILD).join(target).join("release"))
}

/// Removes debugging information. Names of functions stay, for what a crash prints.
fn strip(program: &Path) -> Result<()> {
    sh::run(sh::command("strip --strip-debug").arg(program))
}

/// Seconds of the last commit, unless `SOURCE_DATE_EPOCH` has others.
fn epoch() -> Result<String> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(epoch) => Ok(epoch),
        Err(_) => {
            Ok(sh::output(&mut sh::command("git log -1 --format=%ct"))?.trim_end().to_owned())
        }
    }
}

/// Lays out what is installed. Returns which programs have a path of this host.
fn stage(programs: &Path, root: &Path, rpm: bool, paths: &paths::Paths) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for name in PROGRAMS {
        let (from, to) = (programs.join(name), root.join("usr/bin").join(name));
        if name != PROGRAMS[0] && !from.is_file() {
            println!("{} is not there: the package has no {name}", from.display());
            continue;
        }
        ensure!(from.is_file(), "{} is not there: {}", from.display(), sh::RELEASE);
        install(&from, &to, 0o755)?;
        strip(&to)?;
        let bytes = fs::read(&to).with_context(|| to.display().to_string())?;
        found.extend(
            paths
                .found_in(&bytes)
                .map(|path| format!("{} has a path of this host: {path}", from.display())),
        );
    }
    let contrib = sh::root().join("contrib");
    for (from, to) in FILES {
        install(&contrib.join(from), &root.join(to), 0o644)?;
    }
    let doc = root.join("usr/share/doc/fingerpost");
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
        install(&sh::root().join(file), &doc.join(file), 0o644)?;
    }
    write(&doc.join("copyright"), &copyright()?)?;
    let pages = root.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    let program = programs.join(PROGRAMS[0]);
    sh::run(Command::new(&program).arg("man").arg(&pages))?;
    sh::run(Command::new("gzip").args(["-n9r"]).arg(&pages))?;
    for (shell, path) in COMPLETIONS {
        let script = sh::output(Command::new(&program).args(["completions", shell]))?;
        let path =
            if rpm { path.replace("vendor-completions", "site-functions") } else { path.into() };
        write(&root.join(path), &script)?;
    }
    Ok(found)
}

fn copyright() -> Result<String> {
    let mit = fs::read_to_string(sh::root().join("LICENSE-MIT"))?;
    Ok(format!(
        "Fingerpost is licensed under either of MIT or Apache-2.0, at your option.\n\n{mit}"
    ))
}

fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let folder = to.parent().expect("it is a file of a folder");
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().expect("it is a file of a folder");
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// What all kinds of packages need.
struct Packed<'a> {
    version: &'static str,
    revision: u32,
    epoch: &'a str,
    out: &'a Path,
    work: &'a Path,
}

impl Packed<'_> {
    fn deb(&self, root: &Path) -> Result<PathBuf> {
        needs("dpkg-deb", "dpkg")?;
        let arch = sh::output(&mut sh::command("dpkg --print-architecture"))?;
        let arch = arch.trim_end();
        let version = format!("{}-{}", self.version, self.revision);
        let libc =
            libc_of(root).map_or(String::new(), |v| format!("libc6 (>= 2.{v}), libgcc-s1, "));
        let size = sh::output(sh::command("du -sk --apparent-size").arg(root))?;
        let size = size.split_whitespace().next().unwrap_or("0").to_owned();
        let control = format!(
            "Package: fingerpost\nVersion: {version}\nArchitecture: {arch}\nSection: net\nPriority: optional\n\
             Maintainer: Fingerpost <fingerpost@localhost>\nInstalled-Size: {size}\n\
             Depends: {libc}systemd\nRecommends: iproute2\n\
             Description: software IP router\n Replaces the kernel's forwarding of IPv4 and IPv6 on the interfaces \
             that you choose, by XDP\n programs or over AF_XDP. Routes come from the kernel, from FRR, over BMP and \
             from files.\n"
        );
        write(&root.join("DEBIAN/control"), &control)?;
        write(&root.join("DEBIAN/conffiles"), "/etc/fingerpost/fingerpost.toml\n")?;
        for script in ["postinst", "prerm", "postrm"] {
            let from = sh::root().join("contrib/packages").join(script);
            install(&from, &root.join("DEBIAN").join(script), 0o755)?;
        }
        folders(root)?;
        let file = self.out.join(format!("fingerpost_{version}_{arch}.deb"));
        let mut build = sh::command("dpkg-deb --root-owner-group --threads-max=1 -Zxz -z2 --build");
        sh::run(build.arg(root).arg(&file).env("SOURCE_DATE_EPOCH", self.epoch))?;
        Ok(file)
    }

    fn rpm(&self, root: &Path) -> Result<PathBuf> {
        needs("rpmbuild", "rpm")?;
        folders(root)?;
        let top = self.work.join("rpmbuild");
        let mut build = sh::command("rpmbuild -bb --quiet");
        let mut define = |name: &str, value: &str| {
            build.arg("--define").arg(format!("{name} {value}"));
        };
        define("_topdir", &top.to_string_lossy());
        define("package_root", &root.to_string_lossy());
        define("package_version", self.version);
        define("package_revision", &self.revision.to_string());
        // Nothing of this host, and no program changed after it was packed above.
        define("_buildhost", "localhost");
        define("_build_id_links", "none");
        define("debug_package", "%{nil}");
        define("__os_install_post", "%{nil}");
        define("use_source_date_epoch_as_buildtime", "1");
        define("clamp_mtime_to_source_date_epoch", "1");
        define("_binary_payload", "w2.xzdio");
        build.arg(sh::root().join("contrib/packages/fingerpost.spec"));
        // Files newer than the epoch get its time; all of them are.
        sh::run(build.env("SOURCE_DATE_EPOCH", self.epoch))?;
        let arch = std::env::consts::ARCH;
        let name = format!("fingerpost-{}-{}.{arch}.rpm", self.version, self.revision);
        let file = self.out.join(&name);
        fs::copy(top.join("RPMS").join(arch).join(&name), &file).context(name)?;
        Ok(file)
    }

    /// The files below `/usr`, and the configuration, in a folder of the package's name.
    fn tar(&self, root: &Path) -> Result<PathBuf> {
        folders(root)?;
        if libc_of(root).is_some() {
            println!(
                "the programs need the C library of this host: not for any host, nor for a container"
            );
        }
        let name = format!("fingerpost-{}-{}", self.version, std::env::consts::ARCH);
        let file = self.out.join(format!("{name}.tar.gz"));
        let mut pack =
            sh::command("tar --sort=name --owner=0 --group=0 --numeric-owner --format=ustar");
        pack.arg(format!("--mtime=@{}", self.epoch))
            .arg(format!("--transform=s,^\\(usr/\\)\\?,{name}/,"));
        pack.args(["--use-compress-program=gzip -n9", "-cf"]).arg(&file).arg("-C").arg(root);
        let mut parts = vec!["etc".to_owned()];
        for entry in fs::read_dir(root.join("usr"))? {
            parts.push(format!("usr/{}", entry?.file_name().display()));
        }
        parts.sort();
        sh::run(pack.args(parts))?;
        Ok(file)
    }
}

fn needs(program: &str, package: &str) -> Result<()> {
    ensure!(sh::find(program).is_some(), "{program} is missing: apt-get install {package}");
    Ok(())
}

/// Folders have the mode that packages give them, whatever this user's mask is.
fn folders(root: &Path) -> Result<()> {
    for entry in fs::read_dir(root).with_context(|| root.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            folders(&path)?;
        } else if path.metadata()?.permissions().mode() & 0o111 == 0 {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        }
    }
    Ok(fs::set_permissions(root, fs::Permissions::from_mode(0o755))?)
}

/// The oldest C library that the programs of a package run with: [`glibc`].
fn libc_of(root: &Path) -> Option<u32> {
    let programs =
        PROGRAMS.iter().filter_map(|name| fs::read(root.join("usr/bin").join(name)).ok());
    programs.filter_map(|program| glibc(&program)).max()
}

/// Minor version of the oldest C library that a program runs with, by the names of its symbols; none for a static one.
fn glibc(program: &[u8]) -> Option<u32> {
    let mark = b"GLIBC_2.";
    let found = program.windows(mark.len()).enumerate().filter(|(_, window)| *window == mark);
    let minor = found.filter_map(|(at, _)| {
        let digits = program[at + mark.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        String::from_utf8(digits.copied().collect()).ok()?.parse::<u32>().ok()
    });
    minor.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_words() {
        let parse = |words: &str| {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            Options::parse(&words)
        };
        let all = parse("").unwrap();
        assert_eq!(all.kinds, ["deb", "rpm", "tar"]);
        let one = parse("deb --programs x --revision 2").unwrap();
        assert_eq!((one.kinds.len(), one.revision), (1, Some(2)));
        assert_eq!(one.programs, Some("x".into()));
        for wrong in ["exe", "--out", "--revision x"] {
            assert!(parse(wrong).unwrap_err().to_string().starts_with("usage: "), "{wrong}");
        }
    }

    #[test]
    fn the_newest_symbol_decides() {
        let program = b"\0GLIBC_2.17\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE";
        assert_eq!(glibc(program), Some(34));
        assert_eq!(glibc(b"static"), None);
    }

    #[test]
    fn all_files_of_contrib_are_there() {
        for (from, _) in FILES {
            assert!(sh::root().join("contrib").join(from).is_file(), "{from}");
        }
    }
}
