//! Before an interface is taken over: what would the kernel have done to forwarded packets that we do
//! not do? Such an interface stays with the kernel, and one line says why and how to insist.

use std::io;
use std::time::{Duration, Instant};

use fingerpost_route::LinkState;
use fingerpost_route::netlink::obstacle::{Obstacle, Protocol, Survey, legacy_tables};

use crate::sys::{Netlink, Received, poll};

/// Membership in a bridge, bond or VRF is told by the link itself.
const MASTER: &str = "master";
/// What can be ignored by name.
pub(crate) const SUBSYSTEMS: &[&str] = &["rule", "tc", "xfrm", "nftables", "iptables", MASTER];
/// Tables of the old iptables modules, of the calling thread's namespace.
const LEGACY: [(&str, &str); 2] = [
    ("/proc/thread-self/net/ip_tables_names", "iptables"),
    ("/proc/thread-self/net/ip6_tables_names", "ip6tables"),
];
/// The kernel answers at once; this is for a kernel that does not answer at all.
const LONGEST_SURVEY: Duration = Duration::from_secs(5);

/// What a survey found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) obstacles: Vec<Obstacle>,
    /// What could not be found out, in words.
    pub(crate) unanswered: Vec<String>,
}

/// Asks the kernel for everything that could be in the way, in the present network namespace.
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
            Received::Empty => poll(&[socket.fd()], Duration::from_millis(100)),
        }
    }
    let mut obstacles = survey.obstacles().to_vec();
    for (file, tool) in LEGACY {
        let names = std::fs::read_to_string(file).unwrap_or_default();
        obstacles.extend(legacy_tables(&names, tool));
    }
    Ok(Findings { obstacles, unanswered: survey.unanswered().to_vec() })
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

/// The first thing that keeps a link with the kernel, in words with the override; `None` when nothing
/// does.
pub(crate) fn reason(
    link: u32,
    state: &LinkState,
    obstacles: &[Obstacle],
    ignore: &[String],
) -> Option<String> {
    let ignored = |subsystem: &str| ignore.iter().any(|word| word == subsystem);
    let (subsystem, what) = if state.master.is_some() && !ignored(MASTER) {
        let kind = if state.master_kind.is_empty() { "master" } else { &state.master_kind };
        (MASTER, format!("it belongs to a {kind}"))
    } else {
        let found = obstacles.iter().find(|obstacle| {
            obstacle.link.is_none_or(|l| l == link) && !ignored(obstacle.subsystem)
        })?;
        (found.subsystem, found.what.clone())
    };
    Some(format!("{what} (take it over anyway: --ignore {subsystem}, or takeover.ignore)"))
}
