//! What outlives the process: links of interfaces, and the heartbeat, by names in a file system of type bpf.
//!
//! Shape: a folder a router, `fingerpost/NAME`, with `alive` (the words of the heartbeat) and `link-N` for the
//!        interface of number N. A link keeps its program, and the program its maps: with the links all stays.
//! Cost:  a few system calls an interface; nothing while packets go.
//!
//! A router that comes back takes nothing from what it finds but the links themselves, in which it puts
//! programs of its own, and the heartbeat, whose stamp identifies the layout of its words. Folders that another user owns or
//! can look into are refused: who puts something there would choose what a router drives.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bpf::{self, Link, SharedMemory};
use super::forward::Heartbeat;
use super::{Mode, XdpError};
use crate::user;

/// Where such file systems are looked for. The one of our own comes first: the other one is usually open to root alone.
const PLACES: [&str; 2] = [OWN_PLACE, "/sys/fs/bpf"];
/// Where one is mounted if there is none.
const OWN_PLACE: &str = "/run/fingerpost/bpf";
const FOLDER: &str = "fingerpost";
const HEARTBEAT: &str = "alive";
const LINK: &str = "link-";
/// Mode of all folders here.
const MODE: u32 = 0o700;

/// The folder of one router.
#[derive(Clone, Debug)]
pub struct Pins {
    folder: PathBuf,
}

/// A pinned link, and the number of the interface that it was for.
#[derive(Debug)]
pub struct Kept {
    /// Number of the interface.
    pub ifindex: u32,
    /// `None` where the interface is gone, or the link cannot be had.
    pub link: Option<Link>,
}

impl Pins {
    /// The folder of the router `name`; `None` when there is none of this user's.
    pub fn of(name: &str) -> Option<Self> {
        Self::find(name).unwrap_or_default()
    }

    /// Finds the folder of the router `name`, with the reason why there is none.
    ///
    /// # Errors
    /// Where there is one that is not this user's alone, or one might be where this user may not look.
    pub fn find(name: &str) -> io::Result<Option<Self>> {
        Self::find_by(name, &own)
    }

    /// Finds the folder to release it: root may do that for every user's router.
    ///
    /// # Errors
    /// As for [`Pins::find`].
    pub fn find_to_release(name: &str) -> io::Result<Option<Self>> {
        Self::find_by(name, &|folder| {
            if user::own() == user::ROOT { any(folder) } else { own(folder) }
        })
    }

    fn find_by(name: &str, check: &dyn Fn(&Path) -> io::Result<()>) -> io::Result<Option<Self>> {
        let mut denied = None;
        // A user with a folder of its own in one place keeps nothing in a place that it may not look into.
        let owns_none = !places().any(|place| check(&place.join(FOLDER)).is_ok());
        for place in PLACES.map(Path::new) {
            let all = place.join(FOLDER);
            let folder = all.join(name);
            match fs::symlink_metadata(&folder) {
                Ok(_) if bpf::is_bpffs(place) => match check(&all).and_then(|()| check(&folder)) {
                    Ok(()) => return Ok(Some(Self { folder })),
                    Err(error) => denied = Some(error),
                },
                Err(error) if owns_none && error.kind() == io::ErrorKind::PermissionDenied => {
                    denied = Some(error);
                }
                _ => {}
            }
        }
        denied.map_or(Ok(None), Err)
    }

    /// The same, made where there is none; folders of routers that are gone with their interfaces go. `true`
    /// when a file system had to be mounted, too: it lasts as long as the mount namespace of this process.
    ///
    /// # Errors
    /// The kernel's error; and where there is one that is not this user's alone.
    pub fn make(name: &str) -> io::Result<(Self, bool)> {
        if let Some(there) = Self::of(name) {
            return Ok((there, false));
        }
        let create = |folder: &Path| DirBuilder::new().recursive(true).mode(MODE).create(folder);
        // Where this user has a folder already, or else where nobody has one.
        let all = |place: &&Path| own(&place.join(FOLDER));
        let absent =
            |place: &&Path| all(place).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let owned = places().find(|place| all(place).is_ok());
        let found = owned.or_else(|| places().find(absent)).or_else(|| places().next());
        let place = found.unwrap_or(Path::new(OWN_PLACE));
        if found.is_none() {
            create(place)?;
            bpf::mount_bpffs(place)?;
        }
        let all = place.join(FOLDER);
        create(&all)?;
        own(&all)?;
        sweep(&all)?;
        let folder = all.join(name);
        create(&folder)?;
        own(&folder)?;
        Ok((Self { folder }, found.is_none()))
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The memory of the heartbeat; `None` when there is none, or what is there is none.
    pub fn heartbeat(&self) -> Option<Arc<SharedMemory>> {
        SharedMemory::pinned(&self.folder.join(HEARTBEAT)).ok()
    }

    /// Keeps this heartbeat in the place of any other.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn keep_heartbeat(&self, heartbeat: &Heartbeat) -> io::Result<()> {
        let path = self.folder.join(HEARTBEAT);
        remove(&path)?;
        bpf::pin(heartbeat.memory().map().as_fd(), &path)
    }

    /// Whether there is one: it goes first when all is released.
    pub fn is_held(&self) -> bool {
        self.folder.join(HEARTBEAT).exists()
    }

    /// The links that are kept.
    ///
    /// # Errors
    /// The kernel's error for the folder.
    pub fn links(&self) -> io::Result<Vec<Kept>> {
        let kept = |ifindex| {
            let link = Link::pinned(&self.link(ifindex)).ok();
            let link = link.filter(|(_, of)| *of == ifindex).map(|(link, _)| link);
            Kept { ifindex, link }
        };
        Ok(self.numbers()?.into_iter().map(kept).collect())
    }

    /// Keeps the link of an interface, which must be of native mode.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// When it is of another mode.
    pub fn keep(&self, ifindex: u32, link: &Link) -> Result<(), XdpError> {
        assert_eq!(link.mode(), Mode::Native, "a found link is taken for a native one");
        match bpf::pin(link.as_fd(), &self.link(ifindex)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(source) => Err(XdpError::System { call: "bpf(OBJ_PIN) of a link", source }),
            Ok(()) => Ok(()),
        }
    }

    /// Keeps the link of an interface no longer: it ends when nobody holds it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn let_go(&self, ifindex: u32) -> io::Result<()> {
        remove(&self.link(ifindex))
    }

    /// Keeps nothing any more; returns the numbers of the interfaces whose links were kept.
    ///
    /// # Errors
    /// The kernel's error; what could be let go is.
    pub fn release(self) -> io::Result<Vec<u32>> {
        let numbers = self.numbers()?;
        remove(&self.folder.join(HEARTBEAT))?;
        for &ifindex in &numbers {
            self.let_go(ifindex)?;
        }
        fs::remove_dir(&self.folder)?;
        Ok(numbers)
    }

    fn link(&self, ifindex: u32) -> PathBuf {
        self.folder.join(format!("{LINK}{ifindex}"))
    }

    fn numbers(&self) -> io::Result<Vec<u32>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let number = |name: &str| name.strip_prefix(LINK)?.parse::<u32>().ok();
            numbers.extend(name.to_str().and_then(number));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// Refuses what is no folder, or one that is not this user's alone.
fn own(folder: &Path) -> io::Result<()> {
    let (user, own) = (fs::symlink_metadata(folder)?.uid(), user::own());
    if user != own {
        return refused(folder, &format!("belongs to user {user}, and this is user {own}"));
    }
    any(folder)
}

/// Refuses what is no folder, or one that is not one user's alone.
fn any(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    let mode = found.mode() & 0o7777;
    if !found.is_dir() {
        return refused(folder, "is no folder");
    }
    if mode != MODE {
        return refused(folder, &format!("has mode {mode:o} instead of {MODE:o}"));
    }
    Ok(())
}

fn refused(folder: &Path, why: &str) -> io::Result<()> {
    let words = format!("{} {why}: remove it if no router keeps anything there", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, words))
}

/// File systems of type bpf that there are.
fn places() -> impl Iterator<Item = &'static Path> {
    PLACES.into_iter().map(Path::new).filter(|place| bpf::is_bpffs(place))
}

/// Removes what routers kept whose interfaces are all gone, with their network namespace: nobody comes for it,
/// and it holds tables.
fn sweep(all: &Path) -> io::Result<()> {
    for entry in fs::read_dir(all)? {
        let pins = Pins { folder: entry?.path() };
        // What another router removes meanwhile is gone as well.
        let links = pins.links().unwrap_or_default();
        if !links.is_empty() && links.iter().all(|kept| kept.link.is_none()) {
            let _ = pins.release();
        }
    }
    Ok(())
}

/// Removes a name, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::time::Duration;

    use super::super::{Classifier, Functions, LocalAddresses, testing};
    use super::*;

    #[test]
    fn folders_of_others_are_refused() {
        testing::in_namespace(|| {
            let name = format!("test-{}-others", std::process::id());
            let folder = match Pins::make(&name) {
                Ok((pins, _)) => pins.folder,
                Err(error) => {
                    return testing::skipped(&format!("a file system of type bpf: {error}"));
                }
            };
            let refused = |words: &str| {
                for error in [Pins::find(&name).unwrap_err(), Pins::make(&name).unwrap_err()] {
                    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                    assert!(error.to_string().contains(words), "{error}");
                }
                assert!(Pins::of(&name).is_none());
            };
            fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
            refused("has mode 755 instead of 700: remove it");
            assert!(Pins::find_to_release(&name).is_err(), "others can write there");
            fs::set_permissions(&folder, Permissions::from_mode(MODE)).unwrap();
            chown(&folder, Some(65534), None).unwrap();
            refused("belongs to user 65534, and this is user 0");
            let pins = Pins::find_to_release(&name).unwrap().expect("root releases for everybody");
            pins.release().unwrap();
            let elsewhere = folder.with_file_name(format!("{name}-elsewhere"));
            fs::create_dir(&elsewhere).unwrap();
            symlink(&elsewhere, &folder).unwrap();
            refused("is no folder");
            fs::remove_file(&folder).unwrap();
            fs::remove_dir(&elsewhere).unwrap();
            assert!(Pins::find(&name).unwrap().is_none());
        });
    }

    #[test]
    fn what_is_kept_is_found_again() {
        testing::in_namespace(|| {
            let name = format!("test-{}", std::process::id());
            assert!(Pins::of(&name).is_none());
            let (pins, _) = match Pins::make(&name) {
                Ok(made) => made,
                Err(error) => {
                    return testing::skipped(&format!("a file system of type bpf: {error}"));
                }
            };
            let (near, _) = testing::veth("a0", "b0", 1);
            let shown = || testing::ip("-o link show dev a0");
            let local = LocalAddresses::new().unwrap();
            let classifier = Classifier::load(testing::mac("a0"), &local, 2000).unwrap();
            let link = classifier.attach(near, Mode::Native).unwrap();
            pins.keep(near, &link).unwrap();
            pins.keep(near, &link).unwrap();
            let heartbeat = Heartbeat::new(Duration::from_secs(1)).unwrap();
            assert!(!pins.is_held());
            pins.keep_heartbeat(&heartbeat).unwrap();
            pins.keep_heartbeat(&heartbeat).unwrap();
            heartbeat.beat().unwrap();
            drop((link, heartbeat));

            let pins = Pins::of(&name).expect("it was made");
            assert!(pins.is_held() && shown().contains(" xdp "), "{}", shown());
            let words = pins.heartbeat().unwrap();
            let heartbeat = Heartbeat::found(words, Duration::from_secs(1)).unwrap().unwrap();
            assert!(!heartbeat.is_over().unwrap());
            let mut links = pins.links().unwrap();
            assert_eq!(links.len(), 1);
            let kept = links.pop().unwrap();
            assert_eq!(kept.ifindex, near);
            let link = kept.link.expect("the interface is there");
            classifier.put(near, &link, Functions::default()).unwrap();
            drop(link);
            assert!(shown().contains(" xdp "), "{}", shown());

            // A link whose interface went is of no use.
            let (gone, _) = testing::veth("c0", "d0", 1);
            let link = classifier.attach(gone, Mode::Native).unwrap();
            pins.keep(gone, &link).unwrap();
            drop(link);
            testing::ip("link del c0");
            assert!(pins.links().unwrap().iter().any(|k| k.ifindex == gone && k.link.is_none()));

            assert_eq!(pins.release().unwrap(), [near, gone]);
            assert!(Pins::of(&name).is_none());
            testing::soon_without("a0", "xdp");

            // A router whose interfaces are all gone left its folder behind.
            let (old, other) = (format!("{name}-old"), format!("{name}-other"));
            let (pins, _) = Pins::make(&old).unwrap();
            let (gone, _) = testing::veth("e0", "f0", 1);
            let link = classifier.attach(gone, Mode::Native).unwrap();
            pins.keep(gone, &link).unwrap();
            drop(link);
            Pins::make(&other).unwrap().0.release().unwrap();
            assert!(Pins::of(&old).is_some(), "an interface that is there is somebody's");
            testing::ip("link del e0");
            Pins::make(&other).unwrap().0.release().unwrap();
            assert!(Pins::of(&old).is_none());
        });
    }
}
