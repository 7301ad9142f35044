//! A Debian that a machine boots instead of the files of its host: fresh, in memory, with systemd as its first process.
//!
//! `mmdebstrap` makes its archive once; `target/vm` keeps it. Beside it lie the packages that a test installs: two
//! of the program as it is shipped, the second one with a higher version.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::kernel;
use crate::{package, sh};

/// Packages of Debian besides the essential ones: systemd, and what the tests start.
const PACKAGES: &str = "systemd,curl,ethtool,iproute2,iputils-ping,kmod,procps";

/// Variable of the tests: the folder of the packages to install.
const VARIABLE: &str = "FINGERPOST_DEBIAN";

/// What such a machine is made of.
pub(super) struct Debian {
    archive: PathBuf,
    packages: PathBuf,
}

impl Debian {
    /// Makes the archive where it was not made before, and the packages.
    ///
    /// # Errors
    /// When a tool is missing or fails.
    pub(super) fn provide() -> Result<Self> {
        let folder = sh::root().join("target/vm");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let archive = archive(&folder)?;
        let packages = folder.join("packages");
        for (revision, name) in [("1", "1.deb"), ("2", "2.deb")] {
            make(&packages, revision, name)?;
        }
        Ok(Self { archive, packages })
    }

    /// The end of `init`, with the paths that it takes from the host.
    pub(super) fn init(&self, modules: &Path) -> String {
        let checkout = sh::root();
        let paths = [("archive", &*self.archive), ("checkout", &checkout), ("modules", modules)];
        let paths = paths.map(|(name, path)| format!("{name}={}\n", super::quoted(path)));
        paths.concat() + include_str!("debian.sh")
    }

    /// The line of the job that names the packages.
    pub(super) fn export(&self) -> String {
        format!("export {VARIABLE}={}\n", super::quoted(&self.packages))
    }
}

fn archive(folder: &Path) -> Result<PathBuf> {
    let release = fs::read_to_string("/etc/os-release").context("no release")?;
    let suite = kernel::codename(&release).context("a release without a name")?;
    let mut make = sh::command("mmdebstrap --variant=minbase");
    make.arg(format!("--include={PACKAGES}"));
    for folder in ["doc", "locale"] {
        make.arg(format!("--dpkgopt=path-exclude=/usr/share/{folder}/*"));
    }
    make.arg(suite);
    // Other packages are another archive.
    let mut words = DefaultHasher::new();
    sh::shown(&make).hash(&mut words);
    let file = folder.join(format!("{suite}-{:016x}.tar", words.finish()));
    if file.is_file() {
        return Ok(file);
    }
    let part = file.with_extension(format!("{}.part.tar", std::process::id()));
    sh::run(make.arg(&part))?;
    // Whole or not at all.
    fs::rename(&part, &file).with_context(|| file.display().to_string())?;
    Ok(file)
}

/// Packs the program that the tests start.
fn make(folder: &Path, revision: &str, name: &str) -> Result<()> {
    let programs = match std::env::var_os("FINGERPOST_BIN") {
        Some(program) => Path::new(&program).parent().context("no program")?.to_owned(),
        None => sh::root().join("target/release"),
    };
    let out = folder.join(revision);
    // One of another version may be there from a run that was interrupted.
    let _ = fs::remove_dir_all(&out);
    let words = ["deb", "--revision", revision, "--programs"].map(String::from);
    let mut args = words.to_vec();
    args.extend([programs.display().to_string(), "--out".into(), out.display().to_string()]);
    package::package(&args)?;
    let made = fs::read_dir(&out).with_context(|| out.display().to_string())?;
    for entry in made {
        fs::rename(entry?.path(), folder.join(name)).context("cannot move the package")?;
    }
    Ok(())
}
