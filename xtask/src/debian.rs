//! The Debian packages that the tests talk to, and how they get here.
//!
//! As root on Debian (or a distribution made from it) what is missing is installed; elsewhere it is
//! named, and the tests that need it say `skipped: needs ...`.

use std::fs;
use std::os::unix::fs::MetadataExt;

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
];

const fn need(package: &'static str, program: &'static str, why: &'static str) -> Need {
    Need { package, program, why }
}

/// Installs what is missing where that is possible, says so where it is not.
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
pub(crate) fn install(packages: &[&str]) -> anyhow::Result<()> {
    if !is_debian() || sh::find("apt-get").is_none() {
        anyhow::bail!("not Debian: nothing is installed");
    }
    if !is_root() {
        anyhow::bail!("not root: nothing is installed");
    }
    sh::run(&mut apt("-q update"))?;
    sh::run(apt("-q install --yes --no-install-recommends").args(packages))
}

fn apt(words: &str) -> std::process::Command {
    let mut command = sh::command("apt-get");
    command.args(words.split_ascii_whitespace());
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

/// By the owner of our own process, so that no unsafe call is needed.
fn is_root() -> bool {
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
