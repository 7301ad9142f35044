//! The Debian packages that the tests talk to, and how they get here.
//!
//! As root on Debian (or a distribution made from it) what is missing is installed; elsewhere it is
//! named, and the tests that need it print `skipped: needs ...`. No service is started or left to start with the machine.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::sh;

/// A program that some test starts, and the package that has it.
struct Need {
    package: &'static str,
    program: &'static str,
    why: &'static str,
}

/// A row for each program; rows of one package stand together.
const NEEDS: &[Need] = &[
    need("iproute2", "ip", "network namespaces, veth pairs, routes and next-hop objects"),
    need("iproute2", "tc", "filters on a link, which keep it with the kernel"),
    need("ethtool", "ethtool", "offloads of a veth pair"),
    need("iputils-ping", "ping", "ICMP and ICMPv6 across the router"),
    need("traceroute", "traceroute", "time exceeded, with the router's address"),
    need("iperf3", "iperf3", "TCP across the router"),
    need("nftables", "nft", "netfilter rules, which keep a link with the kernel"),
    need("tcpdump", "tcpdump", "reads back the pcap files that we write"),
    need("valgrind", "valgrind", "instruction counts of the forwarding path"),
    need("xz-utils", "xz", "compressed tables, as another program makes them"),
    need("bzip2", "bzip2", "compressed tables"),
    need("zstd", "zstd", "compressed tables"),
    need("iptables", "iptables-nft", "rules of both sorts, which keep a link with the kernel"),
    need("iptables", "iptables-legacy", "rules of the older sort"),
    need("openssl", "openssl", "certificates for TLS to the stores of the membership"),
    need("curl", "curl", "requests over TCP"),
    need("chromium", "chromium", "the page, in a real browser"),
    need("graphviz", "dot", "drawings of graphs: `graph show --svg`"),
    need("libcap2-bin", "capsh", "fewer capabilities than root has"),
    need("frr", "vtysh", "routes of a routing daemon: zebra, bgpd and staticd"),
    need("bird2", "bird", "routes of another one, and its other end of BGP"),
    need("gobgpd", "gobgpd", "routes of a third one, by BMP"),
    need("etcd-server", "etcd", "the membership of a cluster"),
    need("nats-server", "nats-server", "the membership of a cluster"),
    need("prometheus", "prometheus", "metrics, scraped as in production"),
    need("prometheus", "promtool", "names of metrics, and alert rules"),
    need("netcat-openbsd", "nc", "a client of a control socket, in a test of Click"),
    need("nfdump", "nfcapd", "samples by IPFIX, as a collector decodes them"),
    need("nfdump", "nfdump", "the records of these collectors"),
    need("nfdump-sflow", "sfcapd", "samples by sFlow"),
    need("pmacct", "nfacctd", "samples by IPFIX, another collector"),
    need("pmacct", "sfacctd", "samples by sFlow, another collector"),
    // The version that the shipped objects were made with; their bytes are compared.
    need("clang-14", "clang-14", "XDP programs from their sources"),
    need("llvm-14", "llvm-strip-14", "XDP programs, as small as they are shipped"),
    need("dpdk-dev", "dpdk-testpmd", "DPDK forwarding over AF_XDP"),
    need("qemu-system-x86", "qemu-system-x86_64", "a machine with all modules: cargo xtask vm"),
    need("kmod", "depmod", "modules of that machine's kernel"),
    need("mmdebstrap", "mmdebstrap", "a fresh Debian root, to install the package in"),
    need("systemd-container", "systemd-nspawn", "systemd in that root"),
    need("rpm", "rpmbuild", "the package for other distributions"),
    need("musl-tools", "musl-gcc", "static programs"),
];

/// Services of these packages that Debian starts with the machine once they are installed.
const SERVICES: &[(&str, &str)] = &[
    ("frr", "frr.service"),
    ("bird2", "bird.service"),
    ("gobgpd", "gobgpd.service"),
    ("etcd-server", "etcd.service"),
    ("nats-server", "nats-server.service"),
    ("nfdump", "nfdump.service"),
    ("pmacct", "nfacctd.service"),
    ("pmacct", "pmacctd.service"),
    ("pmacct", "sfacctd.service"),
    ("pmacct", "uacctd.service"),
    ("prometheus", "prometheus.service"),
];

/// The program that packages' scripts run before they start a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";
/// Our form of it, which forbids all starts. One that a killed task left is known by its text.
const NOTHING_STARTS: &str = "#!/bin/sh\n# Made by cargo xtask while it installs packages; delete it if it is still here.\nexit 101\n";

const fn need(package: &'static str, program: &'static str, why: &'static str) -> Need {
    Need { package, program, why }
}

/// Installs what is missing where that is possible, names it where it is not.
pub(crate) fn provide() {
    let missing = missing();
    if missing.is_empty() {
        return;
    }
    let mut packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    packages.dedup();
    if let Err(error) = install(&packages) {
        println!("{error:#}");
    }
    for need in self::missing() {
        println!("missing: {} ({}): {}", need.program, need.package, need.why);
    }
}

fn missing() -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| sh::find(need.program).is_none()).collect()
}

/// Installs packages, as root on Debian.
///
/// # Errors
/// When we may not, or the package manager fails.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if !is_debian() || sh::find("apt-get").is_none() {
        anyhow::bail!("not Debian: nothing is installed");
    }
    if !is_root() {
        anyhow::bail!("not root: nothing is installed");
    }
    sh::run(&mut apt("-q update"))?;
    let quiet = Quiet::new(Path::new(POLICY))?;
    let installed = sh::run(apt("-q install --yes --no-install-recommends").args(packages));
    drop(quiet);
    for (_, service) in SERVICES.iter().filter(|(package, _)| packages.contains(package)) {
        // It was not there before, so nobody wants it at the next start.
        if Path::new("/run/systemd/system").is_dir() {
            sh::run(sh::command("systemctl disable --quiet").arg(service))?;
        }
    }
    installed
}

/// A time in which packages start no service. A machine with a policy of its own keeps it.
struct Quiet(Option<PathBuf>);

impl Quiet {
    fn new(policy: &Path) -> Result<Self> {
        if policy.exists() && fs::read_to_string(policy).is_ok_and(|text| text != NOTHING_STARTS) {
            return Ok(Self(None));
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o755);
        let made =
            options.open(policy).and_then(|mut file| file.write_all(NOTHING_STARTS.as_bytes()));
        made.with_context(|| format!("cannot write {}", policy.display()))?;
        Ok(Self(Some(policy.to_owned())))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(policy) = &self.0
            && let Err(error) = fs::remove_file(policy)
        {
            println!("{} is still there: {error}", policy.display());
        }
    }
}

pub(crate) fn apt(words: &str) -> std::process::Command {
    let mut command = sh::command("apt-get");
    // Another task may be installing.
    command.args(["-o", "DPkg::Lock::Timeout=120"]).args(words.split_ascii_whitespace());
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(std::process::Stdio::null());
    command
}

fn is_debian() -> bool {
    fs::read_to_string("/etc/os-release").is_ok_and(|text| names_debian(&text))
}

/// `ID=debian`, or `ID_LIKE="... debian ..."`.
fn names_debian(os_release: &str) -> bool {
    os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .any(|value| value.trim_matches('"').split_ascii_whitespace().any(|id| id == "debian"))
}

/// User of our own process, as the owner of its folder, so that no unsafe call is needed.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_and_its_children_are_known() {
        assert!(names_debian("NAME=\"Debian GNU/Linux\"\nID=debian\n"));
        assert!(names_debian("ID=ubuntu\nID_LIKE=debian\n"));
        assert!(names_debian("ID=x\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!names_debian("ID=fedora\nVARIANT_ID=debian\n"));
    }

    #[test]
    fn nothing_starts_while_packages_are_installed() {
        let policy = sh::scratch("unit").unwrap().join(format!("policy-{}", std::process::id()));
        // Also where a task before was killed.
        for _ in 0..2 {
            let quiet = Quiet::new(&policy).unwrap();
            let answer = std::process::Command::new(&policy).args(["frr", "start"]).status();
            assert_eq!(answer.unwrap().code(), Some(101));
            std::mem::forget(quiet);
        }
        drop(Quiet::new(&policy).unwrap());
        assert!(!policy.exists());
        fs::write(&policy, "#!/bin/sh\nexit 104\n").unwrap();
        drop(Quiet::new(&policy).unwrap());
        assert!(fs::read_to_string(&policy).unwrap().ends_with("exit 104\n"));
        fs::remove_file(&policy).unwrap();
        for (package, _) in SERVICES {
            assert!(NEEDS.iter().any(|need| need.package == *package));
        }
    }

    #[test]
    fn packages_of_one_name_stand_together() {
        // What `dedup` leans on when two programs come from one package.
        let mut seen = Vec::new();
        for need in NEEDS {
            if seen.last() != Some(&need.package) {
                assert!(!seen.contains(&need.package), "{}", need.package);
                seen.push(need.package);
            }
            assert!(!need.why.is_empty());
        }
    }
}
