//! FRR at a node of the demo: zebra and bgpd, with iBGP sessions to two route reflectors.
//!
//! Source: FRR's user guide (docs.frrouting.org, "Basic Commands", "BGP"). Nothing of the host's FRR is touched:
//!         configurations, sockets and process ids lie in a folder of the namespace's.
//! Limits: IPv4. A node announces the prefixes of its external ports with its loopback as the next hop.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::plan::{self, NODES, REFLECTORS};
use crate::namespace::Namespace;

/// Where distributions have the daemons.
const FOLDERS: [&str; 3] = ["/usr/lib/frr", "/usr/libexec/frr", "/usr/local/sbin"];
/// The daemons give up root for this user and group.
const USER: &str = "frr:frr";
/// How long a daemon may take to open its socket.
const LONGEST_START: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(20);

/// The daemons of a node. They end when this is dropped.
pub(super) struct Frr {
    /// Zebra first.
    daemons: Vec<Child>,
}

fn program(name: &str) -> Option<PathBuf> {
    let mut known = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    known.find(|path| path.is_file())
}

/// Whether the daemons are installed.
///
/// # Errors
/// When they are not.
pub(super) fn is_there() -> Result<()> {
    for name in ["zebra", "bgpd"] {
        ensure!(program(name).is_some(), "FRR's {name} is not installed");
    }
    Ok(())
}

impl Frr {
    /// Starts them in the namespace of a node.
    ///
    /// # Errors
    /// When one does not start.
    pub(super) fn start(namespace: &Namespace, node: usize, ports: u8) -> Result<Self> {
        let folder = namespace.file("frr");
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let owned = Command::new("chown").arg(USER).arg(&folder).status();
        ensure!(owned.is_ok_and(|owned| owned.success()), "FRR's user {USER} is not there");
        let mut frr = Self { daemons: Vec::new() };
        frr.daemon(namespace, &folder, "zebra", "no ip forwarding\nno ipv6 forwarding\n")?;
        frr.daemon(namespace, &folder, "bgpd", &bgpd(node, ports))?;
        Ok(frr)
    }

    fn daemon(
        &mut self,
        namespace: &Namespace,
        folder: &Path,
        name: &str,
        config: &str,
    ) -> Result<()> {
        let file = |suffix: &str| folder.join(format!("{name}.{suffix}"));
        std::fs::write(file("conf"), config).with_context(|| file("conf").display().to_string())?;
        let program = program(name).context("it was found before")?;
        // The kernel ends a process with the thread that starts it, but not one that has changed its user: so it is the first
        // one of a PID namespace that ends, and all of the namespace with it.
        let mut daemon = namespace.command("setpriv");
        daemon.args(["--pdeathsig", "KILL", "--", "unshare", "--pid", "--fork"]);
        daemon.args(["--kill-child=KILL", "--", "sh", "-c", "\"$0\" \"$@\" & wait"]).arg(program);
        daemon.arg("-f").arg(file("conf")).arg("-i").arg(file("pid"));
        daemon.arg("-z").arg(folder.join("zserv.api")).arg("--vty_socket").arg(folder);
        // No port for telnet.
        daemon.args(["-A", "127.0.0.1", "-P", "0"]);
        self.daemons.push(daemon.spawn().with_context(|| name.to_owned())?);
        let start = Instant::now();
        while !file("vty").exists() {
            let child = self.daemons.last_mut().expect("just pushed");
            let ended = child.try_wait()?;
            ensure!(ended.is_none() && start.elapsed() < LONGEST_START, "{name} does not start");
            std::thread::sleep(TICK);
        }
        Ok(())
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        // Nothing but the namespace has their routes, and it goes as well.
        for child in self.daemons.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Configuration of bgpd: the first nodes reflect the routes of the others. Sessions are fast to return.
fn bgpd(node: usize, ports: u8) -> String {
    let own = plan::loopback(node);
    let mut text = format!("router bgp 65000\n bgp router-id {own}\n timers bgp 1 3\n");
    let reflects = node < REFLECTORS;
    let peers = || plan::others(node).filter(|&peer| reflects || peer < REFLECTORS);
    for peer in peers().map(plan::loopback) {
        let _ = write!(
            text,
            " neighbor {peer} remote-as 65000\n neighbor {peer} update-source {own}\n \
             neighbor {peer} timers connect 1\n"
        );
    }
    text += " address-family ipv4 unicast\n  redistribute connected route-map external\n";
    for peer in (REFLECTORS..NODES).filter(|_| reflects).map(plan::loopback) {
        let _ = writeln!(text, "  neighbor {peer} route-reflector-client");
    }
    text += " exit-address-family\n";
    for host in plan::hosts_of(node, ports) {
        let (sequence, name) = (10 + host.port, host.interface());
        let _ = write!(text, "route-map external permit {sequence}\n match interface {name}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_reflect() {
        let (first, last) = (bgpd(0, 1), bgpd(3, 2));
        assert_eq!(first.matches("remote-as").count(), 3);
        assert_eq!(first.matches("route-reflector-client").count(), 2);
        assert!(last.contains("neighbor 192.0.2.2 update-source 192.0.2.4\n"), "{last}");
        assert_eq!(last.matches("remote-as").count(), 2);
        assert!(!last.contains("reflector"));
        assert_eq!([&first, &last].map(|text| text.matches("match interface").count()), [1, 2]);
    }
}
