//! Packages: reproducible, complete, and of a unit that is hardened. `service.rs` installs and upgrades one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fingerpost_tests::folder::Folder;
use fingerpost_tests::netns::{Line, Router, command, conserved, ready, run};
use fingerpost_tests::packages::{made, package, packing};
use fingerpost_tests::{program, root, skip, soak, soaks};

/// The messages of a run to a service manager, in their order.
#[test]
fn the_service_manager_is_notified() {
    let Some(line) = Line::new(&[]) else { return };
    let folder = Folder::new(&line.router);
    let manager = UnixDatagram::bind(folder.path().join("notify")).expect("a new file");
    manager.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
    let with = |namespace: &str, words: &str| {
        let mut command = command(namespace, words);
        command.env("NOTIFY_SOCKET", folder.path().join("notify")).env("WATCHDOG_USEC", "1000000");
        command
    };
    let router = Router::start_by(with, &line.router, "", 2);
    let file = folder.write(
        "router.toml",
        "[takeover]\nignore = [\"forwarding\"]\n[fib]\nalgorithm_v4 = \"dxr18\"\n",
    );
    let _: serde_json::Value = router.ask(&format!("config apply {file}"));
    std::thread::sleep(Duration::from_millis(1200));
    router.stop();
    let mut buffer = [0; 1024];
    let next = || {
        let count = manager.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..count]).into_owned())
    };
    let said: Vec<String> = std::iter::from_fn(next).collect();
    let first = "READY=1\nSTATUS=Forwarding on ";
    assert!(said.first().is_some_and(|message| message.starts_with(first)), "{said:?}");
    let reload = said.iter().position(|m| m.starts_with("RELOADING=1\nMONOTONIC_USEC="));
    let reload = reload.unwrap_or_else(|| panic!("no reload: {said:?}"));
    assert!(said[reload..].iter().any(|message| message == "READY=1"), "{said:?}");
    assert!(said.iter().filter(|message| *message == "WATCHDOG=1").count() >= 2, "{said:?}");
    assert_eq!(said.last().map(String::as_str), Some("STOPPING=1"), "{said:?}");
}

/// Two packagings of the same program are equal, byte by byte, and hold what the recipe of the container takes.
#[test]
fn packages_are_reproducible() {
    if !ready(&["dpkg-deb", "rpmbuild", "strip", "tar"]) {
        return;
    }
    let program = program().expect("it was looked for");
    let folder = Folder::new(&format!("packages-{}", std::process::id()));
    let made = ["a", "b"].map(|name| package(&program, &folder.path().join(name), "deb rpm tar"));
    assert_eq!(made[0].len(), 3, "{made:?}");
    for (one, other) in made[0].iter().zip(&made[1]) {
        assert_eq!(one.file_name(), other.file_name());
        let (one_bytes, other_bytes) = (fs::read(one), fs::read(other));
        assert!(one_bytes.expect("made") == other_bytes.expect("made"), "{} differ", one.display());
    }
    let tarball = made[0].last().expect("there are three");
    let listed = Command::new("tar").arg("-tzf").arg(tarball).output().expect("it is everywhere");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let recipe = fs::read_to_string(root().join("contrib/container/Containerfile"));
    for copied in recipe.expect("it is there").lines().filter_map(|l| l.strip_prefix("COPY ")) {
        let from = copied.split(' ').next().expect("a word");
        assert!(listed.contains(&format!("/{from}")), "{from} is not in {listed}");
    }
}

/// A root in which an .rpm is installed: programs of this host, with what is written above them, and nothing else.
struct Root {
    files: PathBuf,
    _folder: Folder,
}

impl Root {
    /// Makes it; `None`, with a skip line, where its file system cannot be mounted.
    fn new() -> Option<Self> {
        let folder = Folder::new(&format!("rpm-{}", std::process::id()));
        let files = folder.path().join("files");
        let [above, work] = ["above", "work"].map(|name| folder.path().join(name));
        let own = ["usr", "proc", "etc", "var", "run", "tmp"].map(|name| files.join(name));
        for folder in [&above, &work].into_iter().chain(&own) {
            fs::create_dir_all(folder).expect("the temporary folder can be written");
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{name}"), files.join(name)).expect("it was made");
        }
        let options =
            format!("lowerdir=/usr,upperdir={},workdir={}", above.display(), work.display());
        let root = Self { files, _folder: folder };
        // systemd-tmpfiles reads /proc.
        for (kind, options, at) in [("overlay", &*options, &own[0]), ("proc", "ro", &own[1])] {
            let mut mount = Command::new("mount");
            mount.args(["-t", kind, kind, "-o", options]).arg(at);
            if !mount.status().is_ok_and(|status| status.success()) {
                skip(&format!("mounts of type {kind}"));
                return None;
            }
        }
        root.done("--initdb");
        Some(root)
    }

    /// Runs rpm there; whether it succeeded, and what it wrote.
    fn rpm(&self, words: &str) -> (bool, String) {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root").arg(&self.files);
        let output = rpm.args(words.split(' ')).env("LC_ALL", "C").output();
        let output = output.expect("it was found before");
        let wrote = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&wrote).into_owned())
    }

    /// Runs rpm, which must succeed; what it wrote.
    fn done(&self, words: &str) -> String {
        let (ok, wrote) = self.rpm(words);
        assert!(ok, "{words}: {wrote}");
        wrote
    }

    fn read(&self, path: &str) -> String {
        let path = self.files.join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let mounted = ["usr", "proc"].map(|name| self.files.join(name));
        let _ = Command::new("umount").arg("--quiet").args(mounted).status();
    }
}

/// An .rpm has what the .deb has. It is installed, upgraded and removed by rpm in a root of its own.
#[test]
fn an_rpm_is_installed_upgraded_and_removed() {
    if !ready(&["dpkg-deb", "rpmbuild", "rpm", "strip", "systemd-sysusers"]) {
        return;
    }
    let program = program().expect("it was looked for");
    let folder = Folder::new(&format!("rpms-{}", std::process::id()));
    let first = package(&program, &folder.path().join("1"), "deb rpm");
    let second = package(&program, &folder.path().join("2"), "rpm --revision 2");
    let [deb, rpm] = &first[..] else { panic!("{first:?}") };
    assert_eq!(listed_by_rpm(rpm), listed_by_dpkg(deb));
    let Some(root) = Root::new() else { return };
    // Of an empty database nothing is there that it needs.
    let (ok, needs) = root.rpm(&format!("--force-debian -i {}", rpm.display()));
    assert!(!ok, "{needs}");
    for wanted in ["systemd", "libc.so.6(GLIBC_2.", "/bin/sh"] {
        assert!(needs.contains(wanted), "no {wanted}: {needs}");
    }
    root.done(&format!("--force-debian -i --nodeps {}", rpm.display()));
    assert_eq!(root.done("-V --nodeps fingerpost"), "");
    for (file, names) in
        [("etc/passwd", &["fingerpost"][..]), ("etc/group", &["fingerpost", "fingerpost-admin"])]
    {
        let text = root.read(file);
        for name in names {
            assert!(text.lines().any(|line| line.starts_with(&format!("{name}:"))), "{text}");
        }
    }
    let folder_of_sockets = fs::metadata(root.files.join("run/fingerpost")).expect("it was made");
    assert_eq!(folder_of_sockets.permissions().mode() & 0o7777, 0o711);
    let mut version = Command::new("chroot");
    let version = version.arg(&root.files).args(["fingerpost", "--version"]).output();
    assert!(version.is_ok_and(|output| output.stdout.starts_with(b"fingerpost ")));

    let config = root.files.join("etc/fingerpost/fingerpost.toml");
    let changed = root.read("etc/fingerpost/fingerpost.toml") + "# changed\n";
    fs::write(&config, &changed).expect("it can be written");
    root.done(&format!("--force-debian -U --nodeps {}", second[0].display()));
    assert!(root.done("-q fingerpost").contains("-2."), "the second one is installed");
    assert_eq!(root.read("etc/fingerpost/fingerpost.toml"), changed, "what was changed stays");
    let (_, differs) = root.rpm("-V --nodeps fingerpost");
    let differs: Vec<&str> = differs.lines().collect();
    assert!(
        matches!(differs[..], [line] if line.ends_with("  c /etc/fingerpost/fingerpost.toml")),
        "{differs:#?}"
    );

    root.done("--force-debian -e --nodeps fingerpost");
    assert!(!root.rpm("-q fingerpost").0);
    let kept = root.read("etc/fingerpost/fingerpost.toml.rpmsave");
    assert_eq!(kept, changed, "what was changed is kept beside");
    for path in listed_by_rpm(rpm).keys() {
        let own = path.contains("fingerpost") && path != "/etc/fingerpost";
        assert!(!own || !root.files.join(&path[1..]).exists(), "{path} is left");
    }
}

/// Mode, owner and group of a packed file or folder, by path.
type Listed = BTreeMap<String, String>;

fn output(command: &mut Command) -> String {
    let output = command.env("LC_ALL", "C").output().expect("it was found before");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Files of an .rpm, and the folders of its own.
fn listed_by_rpm(file: &Path) -> Listed {
    let format = "[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME}\n]";
    let listed = output(Command::new("rpm").args(["-qp", "--qf", format]).arg(file));
    let rows = listed.lines().filter_map(|row| row.split_once(' '));
    rows.map(|(path, rest)| (path.to_owned(), rest.to_owned())).collect()
}

/// Files of a .deb, at the paths that an .rpm has them at, and the folders of its own.
fn listed_by_dpkg(file: &Path) -> Listed {
    let listed = output(Command::new("dpkg-deb").arg("-c").arg(file));
    let rows = listed.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let of_all = rows.map(|row| {
        let path = row[5].trim_start_matches('.').trim_end_matches('/');
        let path = path.replace("vendor-completions", "site-functions");
        (path, format!("{} {}", row[0], row[1]))
    });
    // Of folders only those that no other package has.
    let own = |(path, row): &(String, String)| {
        !row.starts_with('d') || path.split('/').any(|part| part == "fingerpost")
    };
    of_all.filter(own).collect()
}

/// Programs are built in two checkouts in different folders, and packed there: `cargo xtask soak package 60 two_checkouts`.
#[test]
fn packages_of_two_checkouts_are_equal() {
    if soak(Duration::ZERO).is_zero() {
        return skip("cargo xtask soak package 60 two_checkouts");
    }
    if !ready(&["dpkg-deb", "git", "strip"]) {
        return;
    }
    let folder = Folder::new(&format!("checkouts-{}", std::process::id()));
    let made = ["one", "another/folder"].map(|name| {
        let checkout = folder.path().join(name);
        let clone = ["clone", "--quiet", "--no-hardlinks"];
        let cloned = Command::new("git").args(clone).arg(root()).arg(&checkout).status();
        assert!(cloned.expect("git was found").success());
        let words = ["run", "--quiet", "--package", "xtask", "--", "package", "deb"];
        let mut cargo = Command::new(env!("CARGO"));
        // Of the tests' own build.
        cargo.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_MANIFEST_DIR");
        let packed = cargo.args(words).current_dir(&checkout).status().expect("it runs the tests");
        assert!(packed.success(), "in {}", checkout.display());
        let mut files = fs::read_dir(checkout.join("target/package")).expect("it was made");
        let file = files.next().expect("one package").expect("it can be read").path();
        let bytes = fs::read(file).expect("it was made");
        // Each takes a gigabyte.
        fs::remove_dir_all(checkout.join("target")).expect("nobody else has it");
        bytes
    });
    assert!(made[0] == made[1], "packages of {} and {} bytes", made[0].len(), made[1].len());
}

/// Static programs run in an empty root, and the container of the recipe forwards: `cargo xtask soak package 60 container`.
#[test]
fn a_container_of_static_programs_forwards() {
    if !soaks() {
        return skip("cargo xtask soak package 60 container");
    }
    let Some(line) = Line::new(&["podman", "crun", "curl", "ping", "strip"]) else { return };
    let folder = Folder::new(&line.router);
    let packing = packing(folder.path(), "tar");
    let failed = String::from_utf8_lossy(&packing.stderr).into_owned();
    if let Some((_, target)) = failed.split_once("rustup target add ") {
        return skip(target.trim_end());
    }
    let tarball = &made(&packing)[0];
    let [context, empty] = ["context", "empty"].map(|name| folder.path().join(name));
    fs::create_dir(&context).and_then(|()| fs::create_dir(&empty)).expect("new folders");
    let mut unpack = Command::new("tar");
    unpack.args(["--strip-components=1", "-xzf"]).arg(tarball).arg("-C").arg(&context);
    output(&mut unpack);
    for name in ["fingerpost", "fingerpost-lab"] {
        fs::copy(context.join("bin").join(name), empty.join(name)).expect("both are packed");
        let version =
            output(Command::new("chroot").arg(&empty).arg(format!("/{name}")).arg("--version"));
        assert!(version.starts_with(name), "{version}");
    }
    // Storage of the test's own; and no cgroup, which takes a service manager.
    let storage = folder.file("storage");
    let podman = format!("podman --root {storage} --runroot {storage}.run --storage-driver vfs");
    let recipe = root().join("contrib/container/Containerfile");
    let words = format!("build --isolation chroot -t fingerpost -f {}", recipe.display());
    let words = format!("{podman} {words} {}", context.display());
    let mut words = words.split(' ');
    let program = words.next().expect("there are many");
    output(Command::new(program).args(words));
    let config = folder.write("router.toml", "[listen]\naddress = \"127.0.0.1:9477\"\n");
    let recipe = fs::read_to_string(recipe).expect("it is there");
    let words = recipe.split_once("podman run ").expect("the comment has it").1;
    let words = words.split_once(" fingerpost\n").expect("the image is last").0;
    // As the comment of the recipe has it, over two lines.
    let words = words.replace("\\\n#       ", "");
    // Limits that need no privilege. The namespace has a view of its own of /sys, with no cgroup.
    let limits = "--cgroups=disabled --ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024";
    let script = format!(
        "mount -t cgroup2 cgroup2 /sys/fs/cgroup\n\
         exec {podman} run --rm {limits} --volume={config}:/router.toml:ro {words} fingerpost \"$@\"\n"
    );
    let script = format!("sh {}", folder.write("run.sh", &script));
    let router =
        Router::start_program(Path::new(&script), command, &line.router, "/router.toml", 2);
    run(&line.source, "ping -c 5 -i 0.2 -W 2 10.0.2.2");
    run(&line.source, "ping -6 -c 5 -i 0.2 -W 2 fd02::2");
    let page = run(&line.router, "curl -s -m 10 http://127.0.0.1:9477/");
    assert!(page.contains("<title>Fingerpost"), "{page}");
    conserved(&router.stop());
}

/// Exposure by systemd's own measure: at most 2.5 of 10.
#[test]
fn the_unit_is_hardened() {
    let unit = root().join("contrib/systemd/fingerpost.service");
    let words = ["security", "--offline=true", "--threshold=25", "--no-pager"];
    match Command::new("systemd-analyze").args(words).arg(&unit).output() {
        Err(_) => skip("systemd-analyze (systemd)"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            println!("{}", said.lines().last().unwrap_or_default());
            assert!(output.status.success(), "{said}");
        }
    }
}
