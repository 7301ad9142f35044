//! Debian's kernel for the machine, and a shell to begin with: fetched and unpacked below `target/vm`.
//!
//! Nothing of it is installed: a kernel package has hooks that change how its host boots. It is the newest that Debian has
//! for the release, from its backports (Debian 12's own, Linux 6.1, does not report what drivers do with XDP), with lists of
//! packages of its own. Modules of networks, file systems and virtual devices are kept until `target/vm` is deleted.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{debian, sh};

/// The package that depends on the newest kernel.
const NEWEST: &str = "linux-image-amd64";
/// The package with a shell that needs no library.
const SHELL: &str = "busybox-static";
/// Folders of modules that are kept.
const KEPT: &[&str] =
    &["net", "fs", "lib", "crypto", "drivers/net", "drivers/char", "drivers/virtio"];
/// Folders of those that are not: devices that no virtual machine has.
const LEFT: &[&str] = &["drivers/net/ethernet", "drivers/net/wireless", "drivers/net/usb"];

/// An unpacked kernel.
pub(super) struct Kernel {
    folder: PathBuf,
    version: String,
}

impl Kernel {
    /// Finds the one that was unpacked before, else fetches Debian's newest.
    ///
    /// # Errors
    /// When it cannot be fetched or unpacked.
    pub(super) fn provide() -> Result<Self> {
        let vm = sh::root().join("target/vm");
        fs::create_dir_all(&vm).with_context(|| format!("cannot make {}", vm.display()))?;
        if let Some(kernel) = Self::unpacked(&vm)? {
            return Ok(kernel);
        }
        let part = vm.join(format!("part-{}", std::process::id()));
        fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
        let made = fetch(&part);
        if let Ok(version) = &made {
            // Whole or not at all; another task may have been first.
            let _ = fs::rename(&part, vm.join(version));
        }
        let _ = fs::remove_dir_all(&part);
        made?;
        Self::unpacked(&vm)?.context("the kernel went away")
    }

    fn unpacked(vm: &Path) -> Result<Option<Self>> {
        for entry in fs::read_dir(vm).with_context(|| format!("cannot read {}", vm.display()))? {
            let kernel = Self::of(entry?.path());
            if let Some(kernel) = kernel.filter(|kernel| kernel.image().is_file()) {
                return Ok(Some(kernel));
            }
        }
        Ok(None)
    }

    fn of(folder: PathBuf) -> Option<Self> {
        let version = folder.file_name()?.to_str()?.to_owned();
        Some(Self { folder, version })
    }

    /// The kernel itself.
    pub(super) fn image(&self) -> PathBuf {
        self.folder.join(format!("boot/vmlinuz-{}", self.version))
    }

    /// The folder of its modules.
    pub(super) fn modules(&self) -> PathBuf {
        self.folder.join("lib/modules").join(&self.version)
    }

    /// The shell, with all that a shell script calls.
    pub(super) fn shell(&self) -> PathBuf {
        self.folder.join("bin/busybox")
    }

    /// Files of these modules and of those that they lean on, in the order in which they can be loaded.
    ///
    /// # Errors
    /// When there is no such module.
    pub(super) fn with_dependencies(&self, modules: &[&str]) -> Result<Vec<PathBuf>> {
        let mut command = sh::system("modprobe --show-depends --all --set-version");
        command.arg(&self.version).arg("--dirname").arg(&self.folder).args(modules);
        Ok(in_order(&sh::output(&mut command)?))
    }
}

/// Paths of `insmod PATH` lines, each once; what is built in has a line of its own.
fn in_order(shown: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for path in shown.lines().filter_map(|line| line.strip_prefix("insmod ")) {
        let path = PathBuf::from(path.trim_end());
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Fetches both packages into a folder and unpacks them there; returns the kernel's version.
fn fetch(folder: &Path) -> Result<String> {
    let backports = backports(folder).and_then(|options| Ok((newest(&options)?, options)));
    let (package, options) = match backports {
        Ok(found) => found,
        Err(error) => {
            println!("no backports: {error:#}");
            (newest(&[])?, Vec::new())
        }
    };
    download(folder, &options, &package)?;
    if download(folder, &[], SHELL).is_err() && debian::is_root() {
        // A fresh machine has no lists of packages yet.
        sh::run(&mut debian::apt("-q update"))?;
        download(folder, &[], SHELL)?;
    }
    let version = package.strip_prefix("linux-image-").context("no kernel package")?.to_owned();
    // Below `lib` or `usr/lib`, as the release has it.
    let mut names = vec![format!("./boot/vmlinuz-{version}"), "*/modules/*/modules.*".into()];
    names.extend(KEPT.iter().map(|kept| format!("*/modules/*/kernel/{kept}")));
    unpack(folder, &package, &names, LEFT)?;
    unpack(folder, SHELL, &["*/bin/busybox".into()], &[])?;
    for (there, here) in [("usr/lib", "lib"), ("usr/bin", "bin")] {
        if folder.join(there).is_dir() {
            fs::rename(folder.join(there), folder.join(here))
                .context("cannot move what was unpacked")?;
        }
    }
    sh::run(sh::system("depmod --basedir").arg(folder).arg(&version))?;
    Ok(version)
}

/// Options of apt under which the packages are those of the release's backports, without a change to the machine's own.
fn backports(folder: &Path) -> Result<Vec<String>> {
    let release = fs::read_to_string("/etc/os-release").context("no release")?;
    let release = codename(&release).context("a release without a name")?;
    let apt = folder.join("apt");
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(apt.join(part)).with_context(|| apt.display().to_string())?;
    }
    let list = apt.join("sources.list");
    let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let source =
        format!("deb [signed-by={keys}] http://deb.debian.org/debian {release}-backports main\n");
    fs::write(&list, source).with_context(|| list.display().to_string())?;
    let option =
        |name: &str, value: &Path| ["-o".to_owned(), format!("{name}={}", value.display())];
    let options = [
        option("Dir::Etc::sourcelist", &list),
        option("Dir::Etc::sourceparts", Path::new("/dev/null")),
        option("Dir::State::lists", &apt.join("lists")),
        option("Dir::Cache", &apt.join("cache")),
    ]
    .concat();
    // A suite that is not there is an error, not a warning.
    sh::run(debian::apt("-q -o APT::Update::Error-Mode=any update").args(&options))?;
    Ok(options)
}

/// `bookworm` of the line `VERSION_CODENAME=bookworm`.
pub(super) fn codename(os_release: &str) -> Option<&str> {
    let mut names = os_release.lines().filter_map(|line| line.strip_prefix("VERSION_CODENAME="));
    names.next().map(|name| name.trim_matches('"')).filter(|name| !name.is_empty())
}

fn download(folder: &Path, options: &[String], package: &str) -> Result<()> {
    // Who is root would otherwise be warned that the files are fetched as root.
    let mut download = debian::apt("-q -o APT::Sandbox::User=root download");
    sh::run(download.args(options).arg(package).current_dir(folder))
}

/// The kernel package that Debian's newest kernel is.
fn newest(options: &[String]) -> Result<String> {
    let mut command = sh::command("apt-cache depends --important");
    let shown = sh::output(command.args(options).arg(NEWEST))?;
    dependency(&shown).with_context(|| format!("{NEWEST} names no kernel"))
}

/// `linux-image-VERSION` of a line `  Depends: linux-image-VERSION`.
fn dependency(shown: &str) -> Option<String> {
    let mut depends = shown.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    depends.find(|name| name.starts_with("linux-image-")).map(str::to_owned)
}

/// Unpacks files by name from the package's archive, and deletes the archive.
fn unpack(folder: &Path, package: &str, names: &[String], left: &[&str]) -> Result<()> {
    let archive = archive(folder, package)?;
    let mut tar = String::from("dpkg-deb --fsys-tarfile \"$0\" | tar -x --wildcards");
    for left in left {
        tar += &format!(" --exclude='*/kernel/{left}/*'");
    }
    tar += " \"$@\"";
    let mut command = sh::command("sh -c");
    command.arg(tar).arg(&archive).args(names).current_dir(folder);
    sh::run(&mut command)?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

fn archive(folder: &Path, package: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(&format!("{package}_")) {
            return Ok(path);
        }
    }
    bail!("{package} was not fetched")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_what_the_package_depends_on() {
        let shown = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n";
        assert_eq!(dependency(shown).as_deref(), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(dependency("linux-image-amd64\n"), None);
    }

    #[test]
    fn a_release_has_a_name() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=bookworm\n"), Some("bookworm"));
        assert_eq!(codename("ID=debian\n"), None);
    }

    #[test]
    fn modules_come_after_what_they_lean_on() {
        let shown = "builtin unix\ninsmod /m/net/9p/9pnet.ko \ninsmod /m/fs/9p/9p.ko \n\
                     insmod /m/net/9p/9pnet.ko \ninsmod /m/net/9p/9pnet_virtio.ko \n";
        let want = ["/m/net/9p/9pnet.ko", "/m/fs/9p/9p.ko", "/m/net/9p/9pnet_virtio.ko"];
        assert_eq!(in_order(shown), want.map(PathBuf::from));
    }
}
