//! FRR's daemons in a network namespace, with files and sockets of their own.
//!
//! Source: FRR's user guide (docs.frrouting.org, "Basic Commands"). Nothing of the host's FRR is touched: configuration,
//! process ids, zebra's socket and those of vtysh lie in a folder of the namespace's name.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::netns::{command, run};
use crate::skip;

/// Where distributions have the daemons.
const FOLDERS: [&str; 3] = ["/usr/lib/frr", "/usr/libexec/frr", "/usr/local/sbin"];
/// How long a daemon may take to open its socket for vtysh.
const LONGEST_START: Duration = Duration::from_secs(30);

/// Running daemons. They end when this is dropped.
#[derive(Debug)]
pub struct Frr {
    namespace: String,
    folder: PathBuf,
    /// Daemons with their names, zebra first.
    daemons: Vec<(String, Child)>,
}

impl Frr {
    /// Starts zebra and these other daemons in a namespace, each with its name, its configuration and further options
    /// (`&["-p", "0"]`), and waits until all of them reply to vtysh. `None`, with a skip line, where one is not installed.
    ///
    /// # Panics
    /// When one does not start.
    pub fn start(namespace: &str, zebra: &str, others: &[(&str, &str, &[&str])]) -> Option<Self> {
        Self::start_with(namespace, (zebra, &[]), others)
    }

    /// Starts zebra with its configuration and further options (`&["-M", "dplane_fpm_nl"]`), and others as
    /// [`Frr::start`].
    ///
    /// # Panics
    /// When one does not start.
    pub fn start_with(
        namespace: &str,
        zebra: (&str, &[&str]),
        others: &[(&str, &str, &[&str])],
    ) -> Option<Self> {
        Self::start_named(namespace, namespace, zebra, others)
    }

    /// One of several instances in a namespace, by a name that no other one has: [`Frr::start_with`].
    ///
    /// # Panics
    /// When one does not start.
    pub fn start_named(
        name: &str,
        namespace: &str,
        (zebra, options): (&str, &[&str]),
        others: &[(&str, &str, &[&str])],
    ) -> Option<Self> {
        let wanted = std::iter::once("zebra").chain(others.iter().map(|(name, ..)| *name));
        for name in wanted {
            program(name).or_else(|| {
                skip(name);
                None
            })?;
        }
        let vtysh = Command::new("vtysh").arg("--help").output();
        if !vtysh.is_ok_and(|vtysh| vtysh.status.success()) {
            skip("vtysh");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("{name}-frr"));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        // The daemons give up root for a user of their own.
        let owned = Command::new("chown").arg("frr:frr").arg(&folder).status();
        assert!(owned.is_ok_and(|owned| owned.success()), "FRR comes with a user frr");
        let mut frr = Self { namespace: namespace.to_owned(), folder, daemons: Vec::new() };
        frr.daemon("zebra", zebra, options);
        for (name, config, options) in others {
            frr.daemon(name, config, options);
        }
        Some(frr)
    }

    fn daemon(&mut self, name: &str, config: &str, options: &[&str]) {
        let file = |suffix: &str| self.folder.join(format!("{name}.{suffix}"));
        let log = format!("log file {}\n", file("log").display());
        std::fs::write(file("conf"), log + config).expect("the folder was just made");
        let said = File::create(file("out")).expect("the folder was just made");
        let program = program(name).expect("it was found before");
        let mut daemon = command(&self.namespace, program.to_str().expect("a path of ours"));
        daemon.arg("-f").arg(file("conf")).arg("-i").arg(file("pid"));
        daemon.arg("-z").arg(self.folder.join("zserv.api")).arg("--vty_socket").arg(&self.folder);
        // No port for telnet.
        daemon.args(["-A", "127.0.0.1", "-P", "0"]).args(options);
        let errors = said.try_clone().expect("there are file descriptors left");
        let started = daemon.stdin(Stdio::null()).stdout(said).stderr(errors).spawn();
        self.daemons.push((name.to_owned(), started.expect("ip was found before")));
        let until = Instant::now() + LONGEST_START;
        while !file("vty").exists() {
            let said = std::fs::read_to_string(file("out")).unwrap_or_default();
            let (_, child) = self.daemons.last_mut().expect("just pushed");
            let ended = child.try_wait().expect("it is a child");
            assert!(ended.is_none() && Instant::now() < until, "{name}: {ended:?} {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs commands of vtysh, one after the other; returns what they wrote.
    ///
    /// # Panics
    /// When one fails.
    pub fn vtysh(&self, commands: &[&str]) -> String {
        let mut vtysh = Command::new("vtysh");
        vtysh.arg("--vty_socket").arg(&self.folder);
        for words in commands {
            vtysh.args(["-c", words]);
        }
        let output = vtysh.output().expect("it was found before");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "vtysh {commands:?}: {said}");
        said
    }

    /// Version of zebra, major and minor; `None` where it is not installed.
    ///
    /// # Panics
    /// When it does not report its version.
    pub fn version() -> Option<(u32, u32)> {
        let output = Command::new(program("zebra")?).arg("--version").output();
        let said = String::from_utf8_lossy(&output.expect("it was found").stdout).into_owned();
        let number =
            said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let mut parts = number.unwrap_or_else(|| panic!("a version: {said}")).split('.');
        let mut part = || parts.next().and_then(|part| part.parse().ok()).expect("digits");
        Some((part(), part()))
    }

    /// Waits until so many routes of the kernel's main IPv4 table are of this protocol (`static`, `bgp`).
    ///
    /// # Panics
    /// When that takes longer than `longest`.
    pub fn wait_for_routes(&self, protocol: &str, count: usize, longest: Duration) {
        let until = Instant::now() + longest;
        // By FRR's own numbers: names may stand for the kernel's.
        let number = match protocol {
            "bgp" => "186",
            "static" => "196",
            other => other,
        };
        loop {
            let asked = Instant::now();
            let routes = run(&self.namespace, &format!("ip -o route show proto {number}"));
            let there = routes.lines().count();
            if there == count {
                return;
            }
            assert!(Instant::now() < until, "{there} routes of {count}: {}", self.logs());
            // A list of many routes takes the kernel's time, which the daemons need.
            std::thread::sleep(Duration::from_millis(50).max(asked.elapsed() * 4));
        }
    }

    /// Process of a daemon, for signals.
    ///
    /// # Panics
    /// When it was not started.
    pub fn pid(&self, name: &str) -> u32 {
        let daemon = self.daemons.iter().find(|(known, _)| known == name);
        daemon.unwrap_or_else(|| panic!("no {name} was started")).1.id()
    }

    /// Ends a daemon at once, as a crash would.
    ///
    /// # Panics
    /// When it was not started.
    pub fn kill(&mut self, name: &str) {
        let at = self.daemons.iter().position(|(known, _)| known == name);
        let (_, mut child) = self.daemons.remove(at.expect("it was started"));
        let _ = child.kill();
        let _ = child.wait();
        // The next one waits for a socket of its own.
        let _ = std::fs::remove_file(self.folder.join(format!("{name}.vty")));
    }

    /// Starts a daemon, also one that was killed, with its configuration and options.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self, name: &str, config: &str, options: &[&str]) {
        self.daemon(name, config, options);
        // Zebra ends last, see `drop`.
        self.daemons.sort_by_key(|(name, _)| name != "zebra");
    }

    /// All that the daemons logged.
    pub fn logs(&self) -> String {
        let log = |(name, _): &(String, Child)| {
            let text = std::fs::read_to_string(self.folder.join(format!("{name}.log")));
            format!("{name}:\n{}", text.unwrap_or_default())
        };
        self.daemons.iter().map(log).collect()
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        // Zebra last: it takes the routes of the others away when they leave.
        for (_, child) in self.daemons.iter_mut().rev() {
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let until = Instant::now() + Duration::from_secs(5);
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A daemon by its name, if it is installed.
fn program(name: &str) -> Option<PathBuf> {
    let known = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    known.into_iter().find(|path| path.is_file())
}
