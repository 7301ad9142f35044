//! Before an interface is taken over, and as long as it is: what would the kernel have done to forwarded packets that we
//! do not do? Such an interface stays with the kernel, and one line has the reason and the override.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use fingerpost_io::xdp::Families;
use fingerpost_route::netlink::errno::without_number;
use fingerpost_route::netlink::obstacle::forwarding::Forwarding;
use fingerpost_route::netlink::obstacle::legacy::{self, Tool};
use fingerpost_route::netlink::obstacle::{Obstacle, Protocol, Survey};
use fingerpost_route::{Control, LinkState, PolicyRules};

use crate::sys::{Netlink, Received, Tables, poll};

/// Membership in a bridge, or in a bond that does not use it: the link itself has it.
const MASTER: &str = "master";
/// Policy rules.
const RULE: &str = "rule";
/// Forwarding is switched off in the kernel.
const FORWARDING: &str = "forwarding";
/// Tables of the old iptables modules.
pub(super) const IPTABLES: &str = "iptables";
/// The kernel answers at once; this is for a kernel that does not answer at all.
const LONGEST_SURVEY: Duration = Duration::from_secs(5);
/// How often a table of the old iptables modules is read again that changes while it is read.
const READS: usize = 3;

/// What a survey found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) obstacles: Vec<Obstacle>,
    pub(crate) rules: PolicyRules,
    pub(crate) forwarding: Forwarding,
    /// Names of interfaces that receive IPv6 packets for forwarding although that is switched off.
    pub(crate) forced: BTreeSet<String>,
    /// What could not be found out, in words.
    pub(crate) unanswered: Vec<String>,
}

/// What is not taken from the kernel of an interface that is taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Packets of these families stay with the kernel.
    pub(crate) families: Families,
    /// Reason, with the override; `None` for no family.
    pub(crate) why: Option<String>,
}

/// Queries the kernel for every obstacle, in the present network namespace.
pub(crate) fn survey() -> io::Result<Findings> {
    let mut survey = Survey::new();
    let mut sockets: Vec<(Protocol, Netlink)> = Vec::new();
    let mut buffer = vec![0; 256 << 10];
    let until = Instant::now() + LONGEST_SURVEY;
    let mut asked = 0;
    loop {
        if let Some((protocol, request)) = survey.output() {
            asked = match sockets.iter().position(|(p, _)| *p == protocol) {
                Some(at) => at,
                None => match Netlink::open(protocol.number(), &[]) {
                    Ok(socket) => {
                        sockets.push((protocol, socket));
                        sockets.len() - 1
                    }
                    Err(error) => {
                        survey.failed(error.raw_os_error().map_or(0, i32::unsigned_abs));
                        continue;
                    }
                },
            };
            sockets[asked].1.send(&request)?;
        } else if survey.is_done() {
            break;
        }
        let socket = &sockets[asked].1;
        match socket.recv(&mut buffer)? {
            Received::Bytes(len) => survey.input(&buffer[..len]).map_err(io::Error::other)?,
            Received::Lost => return Err(io::Error::other("answers were lost")),
            Received::Empty if Instant::now() > until => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
            }
            Received::Empty => {
                poll(&[socket.fd()], Duration::from_millis(100));
            }
        }
    }
    let mut unanswered = survey.unanswered().to_vec();
    let mut obstacles = survey.obstacles().to_vec();
    obstacles.extend(legacy_tables(&mut unanswered));
    let forwarding = survey.forwarding().clone();
    let forced = if forwarding.off_v6().is_some() { forced() } else { BTreeSet::new() };
    Ok(Findings { obstacles, rules: survey.rules(), forwarding, forced, unanswered })
}

impl Findings {
    /// Has the control side look up by the policy rules; those that are more than a choice of tables are obstacles.
    pub(crate) fn apply_rules(&mut self, control: &mut Control) {
        control.set_rules(self.rules.clone());
        self.note_complex_rules(control);
    }

    /// Replaces the rules among the obstacles by those that concern the interfaces of now; whether they are others.
    pub(crate) fn note_complex_rules(&mut self, control: &Control) -> bool {
        let rules = control.complex_rules();
        let rules: Vec<Obstacle> = rules
            .map(|(link, what)| Obstacle { subsystem: RULE, link: Some(link), what })
            .collect();
        let before: Vec<Obstacle> =
            self.obstacles.extract_if(.., |found| found.subsystem == RULE).collect();
        let changed = before != rules;
        self.obstacles.extend(rules);
        changed
    }
}

/// Interfaces with `net.ipv6.conf.IF.force_forwarding`, of the calling thread's namespace.
fn forced() -> BTreeSet<String> {
    let folder = std::fs::read_dir("/proc/sys/net/ipv6/conf");
    let names = folder.into_iter().flatten().flatten().filter(|entry| {
        // Before Linux 6.17 there is none.
        let switch = std::fs::read_to_string(entry.path().join("force_forwarding"));
        switch.is_ok_and(|switch| switch.trim() != "0")
    });
    names.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// What the old iptables modules do to forwarded packets. They report no changes, so they are polled.
pub(crate) fn legacy_tables(unanswered: &mut Vec<String>) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    for tool in legacy::TOOLS {
        match std::fs::read_to_string(tool.names) {
            Ok(names) => {
                let tables = names.lines().map(str::trim).filter(|name| !name.is_empty());
                obstacles.extend(tables.filter_map(|table| legacy_table(tool, table)));
            }
            // The module is not there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let what = format!("{} (legacy) tables: {error}", tool.name);
                unanswered.push(without_number(&what));
            }
        }
    }
    obstacles
}

fn legacy_table(tool: Tool, table: &str) -> Option<Obstacle> {
    for _ in 0..READS {
        match read_legacy(tool, table) {
            Ok(found) => return found,
            // It changed between the two requests.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            Err(error) => return Some(legacy::unknown(tool, table, &error.to_string())),
        }
    }
    Some(legacy::unknown(tool, table, "it changes all the time"))
}

fn read_legacy(tool: Tool, table: &str) -> io::Result<Option<Obstacle>> {
    let no_name = || io::Error::from(io::ErrorKind::InvalidInput);
    let socket = Tables::open(tool.family)?;
    let mut answer = legacy::info_request(table).ok_or_else(no_name)?;
    socket.ask(tool.level, legacy::INFO, &mut answer)?;
    let info = legacy::Info::parse(&answer);
    if let Some(found) = info.rules(tool, table) {
        return Ok(Some(found));
    }
    let mut entries = legacy::entries_request(table, &info).ok_or_else(no_name)?;
    socket.ask(tool.level, legacy::ENTRIES, &mut entries)?;
    Ok(info.policy(tool, table, &entries))
}

/// What the kernel's own reverse-path filter is for an interface of the calling thread's namespace, in a word; `None`
/// where it is off.
pub(crate) fn reverse_path_filter(name: &str) -> Option<&'static str> {
    let read = |of: &str| {
        let text =
            std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter")).ok()?;
        text.trim().parse::<u8>().ok()
    };
    // The kernel takes the greater one.
    match read("all").max(read(name)) {
        Some(1) => Some("strict"),
        Some(2) => Some("loose"),
        _ => None,
    }
}

/// What of a link stays with the kernel while it is taken over.
///
/// # Errors
/// The first thing that keeps the whole link with the kernel, in words with the override.
pub(crate) fn judge(
    link: u32,
    state: &LinkState,
    findings: &Findings,
    ignore: &[String],
) -> Result<Left, String> {
    let ignored = |subsystem: &str| ignore.iter().any(|word| word == subsystem);
    let insist = |subsystem: &str| {
        format!("(take it over anyway: --ignore {subsystem}, or takeover.ignore)")
    };
    // The packets of a VRF's member are its own, with the routes of the VRF; those of a bond's are the bond's, as long as it
    // uses the member.
    let in_bond = state.is_in_bond();
    if in_bond && state.backup && !ignored(MASTER) {
        return Err(format!("the bond that it belongs to does not use it {}", insist(MASTER)));
    }
    if state.master.is_some() && state.vrf.is_none() && !in_bond && !ignored(MASTER) {
        let kind = if state.master_kind.is_empty() { "master" } else { &state.master_kind };
        return Err(format!("it belongs to a {kind} {}", insist(MASTER)));
    }
    let here = |obstacle: &&Obstacle| {
        obstacle.link.is_none_or(|l| l == link) && !ignored(obstacle.subsystem)
    };
    if let Some(Obstacle { subsystem, what, .. }) = findings.obstacles.iter().find(here) {
        return Err(format!("{what} {}", insist(subsystem)));
    }
    if ignored(FORWARDING) {
        return Ok(Left::default());
    }
    let v6 = findings.forwarding.off_v6().filter(|_| !findings.forced.contains(&state.name));
    let off = [findings.forwarding.off_v4(link, &state.name), v6];
    let families = Families { v4: off[0].is_some(), v6: off[1].is_some() };
    let why = match off {
        [None, None] => None,
        [Some(v4), None] => {
            Some(format!("{v4}: IPv4 packets stay with the kernel {}", insist(FORWARDING)))
        }
        [None, Some(v6)] => {
            Some(format!("{v6}: IPv6 packets stay with the kernel {}", insist(FORWARDING)))
        }
        [Some(v4), Some(v6)] => {
            let why = "forwarding is switched off in the kernel";
            return Err(format!("{v4} and {v6}: {why} {}", insist(FORWARDING)));
        }
    };
    Ok(Left { families, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacles_are_judged_by_link_and_by_what_is_ignored() {
        let known = crate::config::Takeover::SUBSYSTEMS;
        assert!([FORWARDING, IPTABLES, MASTER].iter().all(|name| known.contains(name)));
        let plain = LinkState { name: "a".into(), ..LinkState::default() };
        let of = |subsystem, link| Obstacle { subsystem, link, what: format!("{subsystem} x") };
        let findings = |obstacles| Findings { obstacles, ..Findings::default() };
        let none = findings(vec![]);
        assert_eq!(judge(3, &plain, &none, &[]), Ok(Left::default()));
        let one = findings(vec![of("tc", Some(3))]);
        assert_eq!(judge(4, &plain, &one, &[]), Ok(Left::default()));
        let why = judge(3, &plain, &one, &[]).unwrap_err();
        assert_eq!(why, "tc x (take it over anyway: --ignore tc, or takeover.ignore)");
        assert!(judge(3, &plain, &one, &["tc".into()]).is_ok());
        let all = findings(vec![of("tc", Some(3)), of("nftables", None)]);
        let why = judge(3, &plain, &all, &["tc".into()]).unwrap_err();
        assert!(why.starts_with("nftables x (") && why.contains("--ignore nftables"), "{why}");
        let port = LinkState { master: Some(9), master_kind: "bridge".into(), ..plain };
        let why = judge(3, &port, &none, &[]).unwrap_err();
        assert!(why.starts_with("it belongs to a bridge (") && why.contains("--ignore master"));
        assert!(judge(3, &port, &none, &["master".into()]).is_ok());
        let bonded = LinkState { master_kind: "bond".into(), ..port.clone() };
        assert_eq!(judge(3, &bonded, &none, &[]), Ok(Left::default()));
        let backup = LinkState { backup: true, ..bonded };
        let why = judge(3, &backup, &none, &[]).unwrap_err();
        assert!(why.starts_with("the bond that it belongs to does not use it ("), "{why}");
        let member = LinkState { master_kind: "vrf".into(), vrf: Some(10), ..port };
        assert_eq!(judge(3, &member, &none, &[]), Ok(Left::default()));
    }
}
