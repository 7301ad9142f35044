//! What the host's kernel has of the other members of a cluster: addresses, neighbors and routes of the fabric interface.
//!
//! Source: decision 18; rtnetlink(7). The daemon states what there is to be, and the difference to what the kernel
//! accepted so far is sent.
//! Shape:  a map from what an entry is about to the entry. Addresses are set first, then neighbors, routes without a gateway
//!         and routes with one, as each needs those before it; deletions in the reverse order, after all that is set. A new link
//!         address or gateway replaces the one before, so that no packet finds neither.
//! Cost:   two system calls an entry that changed, some 10 us; none for those that stay.
//! Limits: where a neighbor is gone, all entries are set again after seconds (`in_kernel`); addresses and routes alone that
//!         others delete are not. Nothing is read from the kernel: the interface goes with the process, and all of its entries with it, so a run that crashed left none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fingerpost_cluster::frame::FabricAddr;
use fingerpost_route::netlink::route::{HostRoute, PROTOCOL_FINGERPOST};
use fingerpost_route::netlink::{address, errno, neighbor};
use fingerpost_route::{Control, Mac};

use super::own::is_routed;
use crate::sys::Netlink;

/// Metric of the routes. No other route has it, so that none is replaced; and it is higher than those of connected routes
/// and the defaults of programs: what the host has by itself for a prefix wins, in both families.
const METRIC: u32 = 0x6600;

/// Time until what was refused is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What the kernel is to have. The order is the one in which entries are set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Entry {
    /// A loopback address of this node, on the interface; routes of its family send from it.
    Address(IpAddr),
    /// A permanent neighbor.
    Neighbor {
        /// Its address.
        addr: IpAddr,
        /// Its link address, which names an adjacency.
        mac: [u8; 6],
    },
    /// A route over the interface.
    Route {
        /// Gateway, or `None` where the destinations themselves are neighbors.
        via: Option<IpAddr>,
        /// Address, host bits zero, and length in bits.
        prefix: (IpAddr, u8),
    },
}

/// What an entry is about: the kernel has one of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Subject {
    Address(IpAddr),
    Neighbor(IpAddr),
    Route((IpAddr, u8)),
}

/// An entry as the kernel has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Accepted {
    entry: Entry,
    /// Address that the host sends from by a route.
    source: Option<IpAddr>,
}

/// The entries of one interface, and the socket to change them.
#[derive(Debug)]
pub(super) struct Host {
    netlink: Netlink,
    /// Kernel index of the interface.
    link: u32,
    seq: u32,
    accepted: BTreeMap<Subject, Accepted>,
    /// Which of these are to be set again, as the kernel may have lost them.
    again: BTreeSet<Subject>,
    /// What was refused last, and when.
    refused: Option<(Instant, Vec<String>)>,
}

impl Host {
    /// Entries of the interface of this index, in the present network namespace; it has none yet.
    ///
    /// # Errors
    /// Errors of the socket.
    pub(super) fn new(link: u32) -> io::Result<Self> {
        let netlink = Netlink::open(libc::NETLINK_ROUTE, &[])?;
        let (accepted, again) = (BTreeMap::new(), BTreeSet::new());
        Ok(Self { netlink, link, seq: 0, accepted, again, refused: None })
    }

    /// Kernel index of the interface.
    pub(super) fn link(&self) -> u32 {
        self.link
    }

    /// Whether the control side has the neighbors that the kernel accepted, and no others with a link address of the fabric: then
    /// the adjacencies are theirs. Neighbors that somebody else has set do not matter.
    pub(super) fn is_known(&self, control: &Control) -> bool {
        let entries = self.accepted.values().filter_map(|accepted| match accepted.entry {
            Entry::Neighbor { addr, mac } => Some((addr, mac)),
            Entry::Address(_) | Entry::Route { .. } => None,
        });
        self.neighbors(control) == entries.collect()
    }

    /// Neighbors of the control side that are those of the kernel's entries, or have a link address of the fabric, by address.
    fn neighbors(&self, control: &Control) -> BTreeMap<IpAddr, [u8; 6]> {
        let rows = control.neighbors();
        let rows = rows.filter(|row| row.link == self.link && is_routed(row.addr));
        rows.filter_map(|row| Some((row.addr, row.state.mac()?.0)))
            .filter(|(addr, mac)| FabricAddr::of(*mac).is_some() || self.has_neighbor(*addr))
            .collect()
    }

    fn has_neighbor(&self, addr: IpAddr) -> bool {
        self.accepted.contains_key(&Subject::Neighbor(addr))
    }

    /// Has the next [`Host::set`] set all entries again, and deletes neighbors of others that have a link address of the fabric:
    /// such an address names an adjacency of a member. Returns messages.
    pub(super) fn set_again(&mut self, control: &Control) -> Vec<String> {
        self.again = self.accepted.keys().copied().collect();
        let mut messages = Vec::new();
        for (addr, mac) in self.neighbors(control) {
            if self.has_neighbor(addr) {
                continue;
            }
            let entry = Entry::Neighbor { addr, mac };
            let request = entry.delete_request(self.next_seq(), self.link);
            messages.push(match self.netlink.request(&request) {
                Err(error) if !is_gone(&error) => {
                    format!("cannot delete {entry}, which is not a member's: {}", words(&error))
                }
                _ => format!("{entry}, which is not a member's, is deleted"),
            });
        }
        messages
    }

    /// Whether something was refused, and it is time to try it again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.refused.as_ref().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= RETRY)
    }

    /// Has the kernel have these entries, and no others of those it was given before. Returns a message for each refusal that
    /// is new; the rest is done, and what was refused is tried again by the next call.
    pub(super) fn set(&mut self, wanted: &BTreeSet<Entry>) -> Vec<String> {
        let refusals = self.apply(wanted);
        let before = self.refused.take().map(|(_, refusals)| refusals).unwrap_or_default();
        let new = refusals.iter().filter(|why| !before.contains(why)).cloned().collect();
        self.refused = (!refusals.is_empty()).then(|| (Instant::now(), refusals));
        new
    }

    fn apply(&mut self, wanted: &BTreeSet<Entry>) -> Vec<String> {
        let mut refusals = Vec::new();
        for &entry in wanted {
            let (subject, source) = (entry.subject(), self.source(wanted, entry));
            let new = Accepted { entry, source };
            if self.accepted.get(&subject) == Some(&new) && !self.again.contains(&subject) {
                continue;
            }
            let request = new.set_request(self.next_seq(), self.link);
            match self.netlink.request(&request) {
                Ok(()) => {
                    self.accepted.insert(subject, new);
                    self.again.remove(&subject);
                }
                Err(error) => refusals.push(format!("cannot set {entry}: {}", words(&error))),
            }
        }
        let accepted: BTreeSet<Entry> = self.accepted.values().map(|one| one.entry).collect();
        for &entry in accepted.iter().rev().filter(|entry| !wanted.contains(entry)) {
            let request = entry.delete_request(self.next_seq(), self.link);
            match self.netlink.request(&request) {
                Err(error) if !is_gone(&error) => {
                    refusals.push(format!("cannot delete {entry}: {}", words(&error)));
                }
                _ => {
                    self.accepted.remove(&entry.subject());
                    self.again.remove(&entry.subject());
                }
            }
        }
        refusals
    }

    /// The node's own address that the host sends from by an entry: one that the kernel accepted, and that stays.
    fn source(&self, wanted: &BTreeSet<Entry>, entry: Entry) -> Option<IpAddr> {
        let Entry::Route { prefix: (of, _), .. } = entry else { return None };
        // Addresses are the first of the order.
        let addrs = wanted.iter().map_while(|entry| match entry {
            Entry::Address(addr) => Some(*addr),
            _ => None,
        });
        let mut usable = addrs.filter(|addr| {
            addr.is_ipv4() == of.is_ipv4() && self.accepted.contains_key(&Subject::Address(*addr))
        });
        usable.next()
    }

    fn next_seq(&mut self) -> u32 {
        self.seq = self.seq.wrapping_add(1);
        self.seq
    }
}

impl Entry {
    fn subject(self) -> Subject {
        match self {
            Self::Address(addr) => Subject::Address(addr),
            Self::Neighbor { addr, .. } => Subject::Neighbor(addr),
            Self::Route { prefix, .. } => Subject::Route(prefix),
        }
    }

    fn delete_request(self, seq: u32, link: u32) -> Vec<u8> {
        match self {
            Self::Address(addr) => address::delete_request(seq, link, addr),
            Self::Neighbor { addr, .. } => neighbor::delete_request(seq, link, addr),
            Self::Route { via, prefix } => route(via, prefix, link, None).delete_request(seq),
        }
    }
}

impl Accepted {
    fn set_request(&self, seq: u32, link: u32) -> Vec<u8> {
        match self.entry {
            Entry::Address(addr) => address::set_request(seq, link, addr),
            Entry::Neighbor { addr, mac } => neighbor::set_request(seq, link, addr, Mac(mac)),
            Entry::Route { via, prefix } => route(via, prefix, link, self.source).set_request(seq),
        }
    }
}

fn route(
    gateway: Option<IpAddr>,
    (addr, prefix_len): (IpAddr, u8),
    link: u32,
    source: Option<IpAddr>,
) -> HostRoute {
    let protocol = PROTOCOL_FINGERPOST;
    HostRoute { addr, prefix_len, gateway, link, metric: METRIC, protocol, source }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(addr) => write!(f, "address {addr}"),
            Self::Neighbor { addr, mac } => write!(f, "neighbor {addr} at {}", Mac(*mac)),
            Self::Route { via: None, prefix: (addr, len) } => write!(f, "route {addr}/{len}"),
            Self::Route { via: Some(via), prefix: (addr, len) } => {
                write!(f, "route {addr}/{len} via {via}")
            }
        }
    }
}

fn words(error: &io::Error) -> String {
    errno::without_number(&error.to_string())
}

/// Whether what was to be deleted is not there: somebody deleted it, or it went with an address or the interface.
fn is_gone(error: &io::Error) -> bool {
    let gone = [libc::ENOENT, libc::ESRCH, libc::EADDRNOTAVAIL, libc::ENODEV];
    error.raw_os_error().is_some_and(|errno| gone.contains(&errno))
}

#[cfg(test)]
mod tests {
    use fingerpost_io::interface;
    use fingerpost_io::tap::open_queues;
    use fingerpost_io::xdp::testing::{self, ip};
    use fingerpost_route::ControlOptions;

    use crate::daemon::kernel::{KernelSettings, KernelSource};

    use super::*;

    const DEV: &str = "cluster0";

    /// Runs `test` with a fabric interface; it gets the interface's index.
    fn with_fabric(test: impl FnOnce(u32) + Send + 'static) {
        testing::in_namespace(|| {
            // Interfaces of these namespaces come without IPv6.
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "0").unwrap();
            let ports = open_queues(DEV, [2, 0, 0, 0, 0, 1], None, 2).unwrap();
            test(interface::index_of(DEV).unwrap());
            drop(ports);
        });
    }

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn address(text: &str) -> Entry {
        Entry::Address(addr(text))
    }

    fn neighbor(text: &str, index: u8, node: u8) -> Entry {
        Entry::Neighbor { addr: addr(text), mac: [2, 0, 0, index, 0, node] }
    }

    fn route(text: &str, len: u8, via: Option<&str>) -> Entry {
        Entry::Route { via: via.map(addr), prefix: (addr(text), len) }
    }

    /// What `ip` prints, a line each without spaces at its end, sorted.
    fn lines(words: &str) -> Vec<String> {
        let mut lines: Vec<String> = ip(words).lines().map(|line| line.trim().into()).collect();
        lines.sort();
        lines
    }

    /// Addresses, neighbors, and routes of both families.
    fn shown() -> [Vec<String>; 4] {
        let mut addrs: Vec<String> = ip("-o addr show dev cluster0 scope global")
            .lines()
            .map(|line| line.split_whitespace().skip(3).take(3).collect::<Vec<_>>().join(" "))
            .collect();
        addrs.sort();
        let routes = lines("-4 route show proto 0x66");
        [
            addrs,
            lines("neigh show nud permanent dev cluster0"),
            routes,
            lines("-6 route show proto 0x66"),
        ]
    }

    fn both_families() -> BTreeSet<Entry> {
        [
            address("192.0.2.1"),
            address("2001:db8::1"),
            neighbor("192.0.2.2", 0, 2),
            neighbor("10.1.0.5", 7, 2),
            neighbor("2001:db8::2", 0, 2),
            route("192.0.2.2", 32, None),
            route("10.1.0.5", 32, None),
            route("10.1.0.0", 24, Some("192.0.2.2")),
            route("2001:db8::2", 128, None),
            route("2001:db8:1::", 48, Some("2001:db8::2")),
            // Of the other family.
            route("10.2.0.0", 24, Some("2001:db8::2")),
        ]
        .into()
    }

    #[test]
    fn the_kernel_has_what_is_wanted_and_no_more() {
        with_fabric(|link| {
            let mut host = Host::new(link).unwrap();
            assert_eq!(host.link(), link);
            let wanted = both_families();
            assert_eq!(host.set(&wanted), [""; 0]);
            let all = shown();
            assert_eq!(all[0], ["192.0.2.1/32 scope global", "2001:db8::1/128 scope global"]);
            assert_eq!(
                all[1],
                [
                    "10.1.0.5 lladdr 02:00:00:07:00:02 PERMANENT",
                    "192.0.2.2 lladdr 02:00:00:00:00:02 PERMANENT",
                    "2001:db8::2 lladdr 02:00:00:00:00:02 PERMANENT",
                ]
            );
            assert_eq!(
                all[2],
                [
                    "10.1.0.0/24 via 192.0.2.2 dev cluster0 src 192.0.2.1 metric 26112 onlink",
                    "10.1.0.5 dev cluster0 scope link src 192.0.2.1 metric 26112",
                    "10.2.0.0/24 via inet6 2001:db8::2 dev cluster0 src 192.0.2.1 metric 26112 onlink",
                    "192.0.2.2 dev cluster0 scope link src 192.0.2.1 metric 26112",
                ]
            );
            assert_eq!(
                all[3],
                [
                    "2001:db8:1::/48 via 2001:db8::2 dev cluster0 src 2001:db8::1 metric 26112 onlink pref medium",
                    "2001:db8::2 dev cluster0 src 2001:db8::1 metric 26112 pref medium",
                ]
            );
            assert!(ip("route get 10.1.0.9").contains("via 192.0.2.2 dev cluster0 src 192.0.2.1"));

            let sent = host.seq;
            assert_eq!(host.set(&wanted), [""; 0]);
            assert_eq!(host.seq, sent, "nothing changed, nothing is sent");

            let fewer: BTreeSet<Entry> = [address("192.0.2.1"), neighbor("192.0.2.2", 0, 2)].into();
            assert_eq!(host.set(&fewer), [""; 0]);
            let [addrs, neighbors, routes4, routes6] = shown();
            assert_eq!((addrs.len(), neighbors.len(), routes4.len(), routes6.len()), (1, 1, 0, 0));
            assert_eq!(host.set(&wanted), [""; 0]);
            assert_eq!(shown(), all);
            assert_eq!(host.set(&BTreeSet::new()), [""; 0]);
            assert!(shown().iter().all(Vec::is_empty), "{:?}", shown());
        });
    }

    #[test]
    fn the_control_side_knows_what_the_kernel_accepted_once_it_has_heard_of_it() {
        with_fabric(|link| {
            let (v4, v6) = (fingerpost_lpm::v4().collect(), fingerpost_lpm::v6().collect());
            let options = ControlOptions { v4, v6, connected_from_addresses: true };
            let mut control = Control::new(options).unwrap();
            let settings =
                KernelSettings { routes: false, distance: None, buffer_kib: None, compare_s: None };
            let mut kernel = KernelSource::open(&mut control, settings, &[]).unwrap();
            // The thread that reads the kernel's messages has some time.
            let mut hear =
                |control: &mut Control, enough: &dyn Fn(&KernelSource, &Control) -> bool| {
                    let began = Instant::now();
                    while !enough(&kernel, control) && began.elapsed() < Duration::from_secs(10) {
                        kernel.turn(control).unwrap();
                    }
                    enough(&kernel, control)
                };
            assert!(hear(&mut control, &|kernel, _| kernel.ready()));
            let mut host = Host::new(link).unwrap();
            let two = [neighbor("192.0.2.2", 7, 2), neighbor("2001:db8::2", 8, 2)];
            for wanted in [&two[..], &[neighbor("192.0.2.2", 9, 3)]] {
                assert_eq!(host.set(&wanted.iter().copied().collect()), [""; 0]);
                assert!(!host.is_known(&control), "{wanted:?}");
                assert!(hear(&mut control, &|_, control| host.is_known(control)), "{wanted:?}");
            }
            // A neighbor that somebody else has set does not matter, unless its link address is one of the fabric.
            ip("neigh add 192.0.2.7 lladdr 00:11:22:33:44:55 dev cluster0");
            let seen =
                |control: &Control| control.neighbors().any(|row| row.addr == addr("192.0.2.7"));
            assert!(hear(&mut control, &|_, control| seen(control)));
            assert!(host.is_known(&control));
            ip("neigh replace 192.0.2.7 lladdr 02:00:00:01:00:02 dev cluster0");
            assert!(hear(&mut control, &|_, control| !host.is_known(control)));
            // It would be one for ever: it is deleted.
            let deleted = host.set_again(&control);
            let what =
                "neighbor 192.0.2.7 at 02:00:00:01:00:02, which is not a member's, is deleted";
            assert_eq!(deleted, [what]);
            assert!(hear(&mut control, &|_, control| host.is_known(control)));
            // What the kernel deleted is missed.
            ip("link set cluster0 down");
            ip("link set cluster0 up");
            assert!(hear(&mut control, &|_, control| !host.is_known(control)));
        });
    }

    #[test]
    fn what_the_kernel_lost_is_set_again_and_what_is_not_wanted_any_more_is_deleted() {
        with_fabric(|link| {
            let (v4, v6) = (fingerpost_lpm::v4().collect(), fingerpost_lpm::v6().collect());
            let options = ControlOptions { v4, v6, connected_from_addresses: true };
            let control = Control::new(options).unwrap();
            let mut host = Host::new(link).unwrap();
            let mut wanted = both_families();
            assert_eq!(host.set(&wanted), [""; 0]);
            let all = shown();
            ip("neigh del 10.1.0.5 dev cluster0");
            ip("route del 10.1.0.0/24 proto 0x66");
            ip("addr del 2001:db8::1/128 dev cluster0");
            assert_eq!(host.set_again(&control), [""; 0]);
            assert_eq!(host.set(&wanted), [""; 0]);
            assert_eq!(shown(), all);
            let sent = host.seq;
            assert_eq!((host.set(&wanted), host.seq), (Vec::new(), sent), "once");
            // What the members announce changes at the same time.
            assert_eq!(host.set_again(&control), [""; 0]);
            assert!(wanted.remove(&neighbor("10.1.0.5", 7, 2)));
            assert!(wanted.remove(&route("10.1.0.5", 32, None)));
            assert_eq!(host.set(&wanted), [""; 0]);
            let [_, neighbors, routes4, _] = shown();
            assert_eq!((neighbors.len(), routes4.len()), (2, 3), "{neighbors:?} {routes4:?}");
            // What is refused is tried again.
            assert_eq!(host.set_again(&control), [""; 0]);
            ip("link set cluster0 down");
            assert_ne!(host.set(&wanted), [""; 0]);
            ip("link set cluster0 up");
            assert_eq!(host.set(&wanted), [""; 0]);
            let again = shown();
            assert_eq!((&again[0], &again[1..3]), (&all[0], &[neighbors, routes4][..]));
        });
    }

    #[test]
    fn a_change_replaces_and_leaves_routes_of_others() {
        with_fabric(|link| {
            testing::veth("other0", "other1", 1);
            ip("addr add 10.1.0.1/24 dev other0");
            ip("addr add 2001:db8:1::1/48 dev other0 nodad");
            let others = [lines("-4 route show dev other0"), lines("-6 route show dev other0")];
            let mut host = Host::new(link).unwrap();
            let mut wanted = both_families();
            assert_eq!(host.set(&wanted), [""; 0]);

            // The neighbor is behind another node, the prefixes are connected to it, and the loopback is another one.
            wanted.remove(&neighbor("192.0.2.2", 0, 2));
            wanted.insert(neighbor("192.0.2.2", 9, 3));
            for (prefix, len, via) in
                [("10.1.0.0", 24, "192.0.2.2"), ("2001:db8:1::", 48, "2001:db8::2")]
            {
                wanted.remove(&route(prefix, len, Some(via)));
                wanted.insert(route(prefix, len, None));
            }
            wanted.remove(&address("192.0.2.1"));
            wanted.insert(address("192.0.2.9"));
            assert_eq!(host.set(&wanted), [""; 0]);
            let [addrs, neighbors, routes4, routes6] = shown();
            assert_eq!(addrs, ["192.0.2.9/32 scope global", "2001:db8::1/128 scope global"]);
            assert_eq!(neighbors[1], "192.0.2.2 lladdr 02:00:00:09:00:03 PERMANENT");
            assert_eq!(neighbors.len(), 3);
            assert_eq!(
                routes4[0],
                "10.1.0.0/24 dev cluster0 scope link src 192.0.2.9 metric 26112"
            );
            assert_eq!(routes4.len(), 4);
            assert!(routes4.iter().all(|route| route.contains("src 192.0.2.9")), "{routes4:?}");
            assert_eq!(
                routes6[0],
                "2001:db8:1::/48 dev cluster0 src 2001:db8::1 metric 26112 pref medium"
            );
            assert_eq!(routes6.len(), 2);

            // The host's own connected prefixes win.
            assert!(ip("route get 10.1.0.9").contains("dev other0"));
            assert!(ip("-6 route get 2001:db8:1::9").contains("dev other0"));
            assert_eq!(host.set(&BTreeSet::new()), [""; 0]);
            assert_eq!(
                [lines("-4 route show dev other0"), lines("-6 route show dev other0")],
                others
            );
        });
    }

    #[test]
    fn a_refusal_is_reported_and_the_rest_is_set() {
        with_fabric(|link| {
            let mut host = Host::new(link).unwrap();
            let good = both_families();
            let mut wanted = good.clone();
            // A group is no address of a host, a prefix has no host bits, and no gateway is an own address.
            wanted.insert(address("ff02::7"));
            wanted.insert(route("10.3.0.1", 24, None));
            wanted.insert(route("10.4.0.0", 24, Some("192.0.2.1")));
            let refused = [
                "cannot set address ff02::7: Cannot assign requested address",
                "cannot set route 10.3.0.1/24: Invalid argument",
                "cannot set route 10.4.0.0/24 via 192.0.2.1: Invalid argument",
            ];
            // They are tried again, and reported once.
            for reported in [&refused[..], &[]] {
                let refusals = host.set(&wanted);
                assert_eq!(refusals, reported);
                assert!(host.is_due(Instant::now() + RETRY) && !host.is_due(Instant::now()));
                let [addrs, neighbors, routes4, routes6] = shown();
                let counts = (addrs.len(), neighbors.len(), routes4.len(), routes6.len());
                assert_eq!(counts, (2, 3, 4, 2));
            }

            // What somebody else deleted is gone as wanted.
            ip("route del 10.1.0.0/24 proto 0x66");
            ip("neigh del 10.1.0.5 dev cluster0");
            ip("addr del 192.0.2.1/32 dev cluster0");
            assert_eq!(host.set(&BTreeSet::new()), [""; 0]);

            assert_eq!(host.set(&good), [""; 0]);
            ip("link del cluster0");
            let refusals = host.set(&[neighbor("192.0.2.7", 0, 7)].into());
            assert_eq!(
                refusals,
                ["cannot set neighbor 192.0.2.7 at 02:00:00:00:00:07: No such device"]
            );
            assert!(host.accepted.is_empty(), "all went with the interface");
        });
    }
}
