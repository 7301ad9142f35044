//! Packages: reproducible, complete, and of a unit that is hardened. `service.rs` installs and upgrades one.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use fingerpost_tests::folder::Folder;
use fingerpost_tests::netns::{Line, Router, command, ready};
use fingerpost_tests::packages::package;
use fingerpost_tests::{program, root, skip, soak};

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
