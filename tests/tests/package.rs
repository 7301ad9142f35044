//! Packages: installed into a fresh Debian, started by systemd, upgraded under traffic, and removed.
//!
//! The kernel's own forwarding is off, and the configuration has it forward in spite of that: what crosses, the router has
//! forwarded.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fingerpost_tests::debian::{Container, copy};
use fingerpost_tests::folder::Folder;
use fingerpost_tests::lasting::Lasting;
use fingerpost_tests::netns::{Line, Router, command, ready, run};
use fingerpost_tests::{program, program_of_all_features, root, skip, soak};

const TRANSFER: &str = env!("CARGO_BIN_EXE_transfer");
const CONFIG: &str = "/etc/fingerpost/fingerpost.toml";
const ADDRESS: &str = "127.0.0.1:9477";
const DROP_INS: &str = "/etc/systemd/system/fingerpost.service.d";
/// Those of the unit, by their numbers.
const CAPABILITIES: [(&str, u32); 4] =
    [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];

/// Packs a program by `cargo xtask package`; returns the files that were made.
fn package(program: &Path, into: &Path, words: &str) -> Vec<PathBuf> {
    let programs = into.join("programs");
    fs::create_dir_all(&programs).expect("the temporary folder can be written");
    fs::copy(program, programs.join("fingerpost")).expect("it is there");
    // Cargo would wait for what else is built meanwhile.
    let mut xtask = match std::env::var_os("FINGERPOST_XTASK") {
        Some(built) => Command::new(built),
        None => {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["run", "--quiet", "--package", "xtask", "--"]);
            cargo
        }
    };
    xtask.arg("package").args(words.split(' '));
    xtask.arg("--programs").arg(&programs).arg("--out").arg(into).current_dir(root());
    let output = xtask.output().expect("cargo runs the tests");
    let wrote = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{wrote}{failed}");
    let files = wrote.lines().filter(|line| line.starts_with('/')).map(PathBuf::from);
    files.filter(|file| file.is_file()).collect()
}

/// Value of a property of the service.
fn property(container: &Container, name: &str) -> String {
    let line = format!("systemctl show fingerpost --value -p {name}");
    container.run(&line).trim_end().to_owned()
}

/// A status file of a process in the container.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
}

/// Writes a drop-in of the unit.
fn drop_in(container: &Container, name: &str, text: &str) {
    let file = format!("{DROP_INS}/{name}.conf");
    container
        .run(&format!("mkdir -p {DROP_INS}; printf '{text}' > {file}; systemctl daemon-reload"));
}

/// Making the root takes minutes, and the upgrade must end before the traffic: `cargo xtask soak package 60`.
#[test]
fn a_package_is_installed_run_upgraded_and_removed() {
    if soak(Duration::ZERO).is_zero() {
        return skip("cargo xtask soak package 60");
    }
    let tools = ["mmdebstrap", "systemd-nspawn", "dpkg-deb", "strip", "prlimit", "curl"];
    if !ready(&tools) {
        return;
    }
    let Some(line) = Lasting::new(TRANSFER) else { return };
    let Some(container) = Container::start(&line.line.router) else { return };
    let folder = Folder::new(&format!("package-{}", std::process::id()));
    let first = program().expect("the line was made with it");
    let second = program_of_all_features().unwrap_or_else(|| first.clone());
    for (revision, program) in [(1, &first), (2, &second)] {
        let into = folder.path().join(revision.to_string());
        let made = package(program, &into, &format!("deb --revision {revision}"));
        copy(&made[0], &container, &format!("/opt/{revision}.deb"));
    }
    container.run("dpkg -i /opt/1.deb");
    // It takes interfaces over only when it is told to.
    assert_eq!(property(&container, "ActiveState"), "inactive");
    assert_eq!(property(&container, "UnitFileState"), "disabled");
    let pages = "test -f /usr/share/man/man1/fingerpost-run.1.gz -a -f /usr/share/bash-completion/completions/fingerpost";
    container.run(pages);
    container.run(&format!("fingerpost config check {CONFIG}"));
    container.run(&format!("sed -i 's/^nonstop_s.*/&\\nignore = [\"forwarding\"]/' {CONFIG}"));
    container.run(&format!("printf '[listen]\\naddress = \"{ADDRESS}\"\\n' >> {CONFIG}"));
    run(&line.line.router, "ip link set lo up");
    // A service manager that may not raise limits cannot do without the capability.
    let limit = ["--memlock=unlimited:unlimited", "true"];
    let raises = Command::new("prlimit").args(limit).output().is_ok_and(|o| o.status.success());
    // Short enough that this test would outlive a service without signs of life.
    drop_in(&container, "watchdog", "[Service]\\nWatchdogSec=3\\n");
    let mut allowed: u64 = CAPABILITIES.iter().map(|(_, number)| 1u64 << number).sum();
    if !raises {
        println!("without CAP_SYS_RESOURCE here: the unit gets CAP_IPC_LOCK");
        let text =
            "[Service]\\nAmbientCapabilities=CAP_IPC_LOCK\\nCapabilityBoundingSet=CAP_IPC_LOCK\\n";
        drop_in(&container, "memlock", text);
        allowed |= 1 << 14;
    }
    each_missing_capability_is_named(&container, raises);
    container.run("systemctl start fingerpost");
    runs_with_what_the_unit_grants(&container, allowed);
    line.warm_up();
    assert!(line.has_program("r0") && line.has_program("r1"));
    container.run("fingerpost interface show");
    for (path, words) in [("/", "<title>Fingerpost"), ("/metrics", "fingerpost_interface_")] {
        let body = run(&line.line.router, &format!("curl -s -m 10 http://{ADDRESS}{path}"));
        assert!(body.contains(words), "{path}: {body}");
    }
    container.run(&format!("printf '[fib]\\nalgorithm_v4 = \"bc18\"\\n' >> {CONFIG}"));
    container.run("systemctl reload fingerpost");
    let applied = container.run("journalctl --no-pager -o cat -u fingerpost");
    assert!(applied.contains("fib.algorithm_v4: auto -> bc18"), "{applied}");
    container.run(&format!("cp {CONFIG} /opt/config; echo 'algorithm_v6 = 7' >> {CONFIG}"));
    assert!(!container.try_run("systemctl reload fingerpost").status.success());
    assert_eq!(property(&container, "ActiveState"), "active", "what is refused changes nothing");
    container.run(&format!("mv /opt/config {CONFIG}"));
    upgraded_without_a_loss(&line, &container);
    let said = container.run("journalctl --no-pager -o cat -u fingerpost");
    for wrong in ["Watchdog timeout", "are not refused", "are kept"] {
        assert!(!said.contains(wrong), "{wrong}: {said}");
    }
    container.run("dpkg --purge fingerpost");
    assert!(!line.has_program("r0") && !line.has_program("r1"), "the kernel has them");
    container.run("test ! -e /etc/fingerpost/fingerpost.toml -a ! -e /var/lib/fingerpost");
    assert!(!container.try_run("mountpoint -q /run/fingerpost/bpf").status.success());
}

/// Each of the unit's capabilities in turn is left out: the service ends at once, with one line that names it.
fn each_missing_capability_is_named(container: &Container, raises: bool) {
    let lock = if raises { "" } else { "CAP_IPC_LOCK" };
    for (missing, _) in CAPABILITIES {
        let others = CAPABILITIES.iter().map(|(name, _)| *name).filter(|name| *name != missing);
        let others = others.chain([lock]).collect::<Vec<_>>().join(" ");
        // An empty value first: a list begins anew.
        let text = format!("[Service]\\nAmbientCapabilities=\\nAmbientCapabilities={others}\\n");
        drop_in(container, "missing", &text);
        assert!(!container.try_run("systemctl start fingerpost").status.success(), "{missing}");
        assert_eq!(property(container, "ExecMainStatus"), "4", "{missing}");
        let said = container.run("journalctl --no-pager -o cat -t fingerpost -n 1");
        assert!(said.contains("are missing: "), "{missing}: {said}");
        for (name, _) in CAPABILITIES {
            assert_eq!(said.contains(&format!("{name} (")), name == missing, "{missing}: {said}");
        }
    }
    container.run(&format!("rm {DROP_INS}/missing.conf; systemctl daemon-reload"));
    container.run("systemctl reset-failed fingerpost");
}

/// Its user, its capabilities, its filter of system calls, and what systemd knows of it.
fn runs_with_what_the_unit_grants(container: &Container, allowed: u64) {
    assert_eq!(property(container, "ActiveState"), "active");
    let status = property(container, "StatusText");
    assert!(status.starts_with("Forwarding on 2 interfaces, with "), "{status}");
    let pid = property(container, "MainPID");
    let user = container.run("id -u fingerpost").trim_end().to_owned();
    let tasks = container.run(&format!("ls /proc/{pid}/task"));
    for task in tasks.split_whitespace() {
        let status = container.run(&format!("cat /proc/{pid}/task/{task}/status"));
        assert_eq!(field(&status, "Uid").split('\t').next(), Some(&*user), "{status}");
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            let held = u64::from_str_radix(&field(&status, set), 16).expect("a number");
            assert_eq!(held & !allowed, 0, "{set}: {status}");
        }
        assert_eq!((&*field(&status, "NoNewPrivs"), &*field(&status, "Seccomp")), ("1", "2"));
    }
    let sockets =
        container.run("stat -c '%a %U %G' /run/fingerpost/*.sock /run/fingerpost/*.sock.ro");
    assert_eq!(sockets, "660 fingerpost fingerpost-admin\n660 fingerpost fingerpost\n");
}

/// An upgrade, and a restart, while packets go.
fn upgraded_without_a_loss(line: &Lasting, container: &Container) {
    let before = property(container, "MainPID");
    let seconds = soak(Duration::ZERO);
    let traffic = line.traffic(seconds.as_secs());
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    container.run("dpkg --force-confold -i /opt/2.deb");
    let upgraded = property(container, "MainPID");
    assert!(upgraded != before && upgraded != "0", "another process runs");
    assert_eq!(property(container, "ActiveState"), "active");
    container.run("systemctl restart fingerpost");
    let (took, of) = (began.elapsed().as_secs_f64(), seconds.as_secs());
    println!("upgraded and restarted in {took:.1} s, under traffic of {of} s");
    assert!(began.elapsed() + Duration::from_millis(500) < seconds, "the traffic ended before");
    assert_ne!(property(container, "MainPID"), upgraded);
    let (sent, arrived) = traffic.end();
    println!("{arrived} of {sent} arrived");
    let counters = || run(&line.line.router, "ip -s -s link show");
    assert_eq!(sent, arrived, "{}{}", container.run("fingerpost top --count 1"), counters());
    let kept = container.run(&format!("dpkg -s fingerpost; cat {CONFIG}"));
    assert!(kept.contains("-2\n") && kept.contains("ignore = [\"forwarding\"]"), "{kept}");
}

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
