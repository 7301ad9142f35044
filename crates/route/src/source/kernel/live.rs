//! The running kernel, in a network namespace of our own: the events must follow what `ip` does.
//!

use std::process::Command;
use std::time::{Duration, Instant};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};

use super::model::Model;
use super::{GROUPS, KIND, LINK_GROUPS, LOCAL_TABLE};
use crate::event::MAIN_TABLE;
use crate::netlink::namespace::{self, run};
use crate::netlink::{Messages, neighbor};
use crate::source::{RouteSource, SourceSpec, Transport};

fn in_namespace(name: &str, body: fn()) {
    namespace::run_in(module_path!(), name, body);
}

/// A source on a socket of its own, as the daemon has it.
struct Lab {
    socket: Socket,
    links: Socket,
    messages: usize,
    source: Box<dyn RouteSource>,
    model: Model,
    overruns: u32,
}

impl Lab {
    fn new(receive_bytes: Option<u32>) -> Self {
        let Transport::Netlink { groups, first } = KIND.transport else {
            panic!("a netlink source")
        };
        assert_eq!((groups, first), (GROUPS, LINK_GROUPS));
        let [socket, links] = [groups, first].map(|groups| {
            let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
            receive_bytes.inspect(|bytes| socket.set_rx_buf_sz(*bytes).unwrap());
            socket.bind_auto().unwrap();
            groups.iter().for_each(|group| socket.add_membership(*group).unwrap());
            socket.set_non_blocking(true).unwrap();
            socket
        });
        let source = (KIND.open)(&SourceSpec::default()).unwrap();
        Self { socket, links, messages: 0, source, model: Model::default(), overruns: 0 }
    }

    /// Takes what a socket has received, if anything.
    fn take(&mut self, received: &std::io::Result<usize>, bytes: &[u8]) -> bool {
        match received {
            Ok(_) => {
                self.messages += Messages::new(bytes).count();
                let model = &mut self.model;
                let take = &mut |event| model.take(event);
                assert_eq!(self.source.input(bytes, Instant::now(), take), Ok(bytes.len()));
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => false,
            Err(error) if error.raw_os_error() == Some(ENOBUFS) => {
                self.overruns += 1;
                self.source.lost(Instant::now());
                true
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Carries bytes in both directions until all has been quiet for a while.
    fn settle(&mut self) {
        let (mut buf, mut link) = (Vec::with_capacity(64 << 10), Vec::with_capacity(64 << 10));
        let mut quiet = Instant::now();
        let end = quiet + Duration::from_secs(60);
        while quiet.elapsed() < Duration::from_millis(60) {
            assert!(Instant::now() < end, "it never becomes quiet");
            let mut out = Vec::new();
            self.source.output(&mut out);
            for request in out {
                assert_eq!(self.socket.send(&request, 0).unwrap(), request.len());
                quiet = Instant::now();
            }
            buf.clear();
            let received = self.socket.recv(&mut buf, 0);
            // Before what was received is looked at: all of links.
            loop {
                link.clear();
                let received = self.links.recv(&mut link, 0);
                if !self.take(&received, &link) {
                    break;
                }
                quiet = Instant::now();
            }
            if self.take(&received, &buf) {
                quiet = Instant::now();
            } else {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// The routes of the main table, but for the link-local ones.
    fn main(&mut self) -> Vec<String> {
        self.settle();
        assert_eq!(self.source.rejected().count, 0, "{:?}", self.source.rejected());
        let all = self.model.table(MAIN_TABLE);
        all.into_iter().filter(|route| !route.starts_with("fe80::")).collect()
    }

    /// Routes of the main table, once they equal those of a fresh dump: carrier is noticed late.
    fn agreed(&mut self) -> Vec<String> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let (all, fresh) = (self.main(), Self::new(None).main());
            if all == fresh {
                return all;
            }
            assert!(Instant::now() < end, "{all:?}\n{fresh:?}\n{:#?}", self.model);
        }
    }

    /// Runs commands, then compares the main table with the connected routes and `more`.
    #[track_caller]
    fn after(&mut self, script: &str, more: &[&str]) {
        run(script);
        let all = self.agreed();
        let rest: Vec<_> =
            all.iter().filter(|route| !CONNECTED.contains(&route.as_str())).collect();
        assert_eq!(rest, more, "\n{:#?}", self.model);
        assert_eq!(all.len() - rest.len(), CONNECTED.len(), "{all:?}");
    }
}

const ENOBUFS: i32 = 105;

const TWO_LINKS: &str = "
    ip link set lo up
    ip link add ra index 11 type veth peer name pa index 21
    ip link add rb index 12 type veth peer name pb index 22
    ip link set ra up
    ip link set rb up
    ip link set pa up
    ip link set pb up
    ip addr add 10.0.1.1/24 dev ra
    ip addr add 10.0.2.1/24 dev rb
    ip addr add 2001:db8:1::1/64 dev ra nodad
    ip addr add 2001:db8:2::1/64 dev rb nodad
";

const CONNECTED: [&str; 4] =
    ["10.0.1.0/24 @11", "10.0.2.0/24 @12", "2001:db8:1::/64 m256 @11", "2001:db8:2::/64 m256 @12"];

fn lab() -> Lab {
    run(TWO_LINKS);
    let mut lab = Lab::new(None);
    lab.after("", &[]);
    lab
}

#[test]
fn first_dump() {
    in_namespace("first_dump", || {
        let mut lab = lab();
        let (ra, _) = &lab.model.links[&11];
        assert_eq!((ra.name.as_str(), ra.kind.as_str(), ra.mtu), ("ra", "veth", 1500));
        assert!(ra.up && ra.mac.is_some() && !ra.loopback && ra.master.is_none());
        let (lo, _) = &lab.model.links[&1];
        assert!(lo.up && lo.loopback && lo.mac.is_none());
        let ours =
            |text: &str, link| lab.model.addresses.contains_key(&(link, text.parse().unwrap()));
        assert!(ours("10.0.1.1", 11) && ours("2001:db8:2::1", 12) && ours("127.0.0.1", 1));
        let local = lab.model.table(LOCAL_TABLE);
        for route in ["10.0.1.1/32 local", "10.0.2.255/32 local", "2001:db8:1::1/128 local"] {
            assert!(local.iter().any(|r| r == route), "{route} in {local:?}");
        }
        // More than one when the links were still coming up in the middle of the first.
        assert!(lab.model.dumps >= 1);

        run("ip link add br0 index 30 type bridge
             ip link set rb master br0
             ip link set ra mtu 1280
             ip link set ra name wan");
        lab.settle();
        let (rb, _) = &lab.model.links[&12];
        assert_eq!((rb.master, rb.master_kind.as_str()), (Some(30), "bridge"));
        let (wan, _) = &lab.model.links[&11];
        assert_eq!((wan.name.as_str(), wan.mtu), ("wan", 1280));
        run("ip link set rb nomaster
             ip link del br0");
        lab.settle();
        assert_eq!(lab.model.links[&12].0.master, None);
        assert!(!lab.model.links.contains_key(&30));
    });
}

#[test]
fn routes_come_and_go() {
    in_namespace("routes_come_and_go", || {
        let mut lab = lab();
        let dumps = lab.model.dumps;
        lab.after("ip route add 10.9.0.0/16 via 10.0.1.9", &["10.9.0.0/16 10.0.1.9@11"]);
        lab.after("ip route replace 10.9.0.0/16 via 10.0.2.9", &["10.9.0.0/16 10.0.2.9@12"]);
        lab.after(
            "ip route add 10.9.0.0/16 via 10.0.1.9 metric 50
             ip route add blackhole 10.8.0.0/16
             ip route add unreachable 10.7.0.0/16
             ip route add prohibit 10.6.0.0/16
             ip route add throw 10.5.0.0/16
             ip route add 10.4.0.0/16 via inet6 2001:db8:1::9
             ip route add 10.3.0.0/16 table 100 via 10.0.1.9",
            &[
                "10.4.0.0/16 2001:db8:1::9@11",
                "10.5.0.0/16 throw",
                "10.6.0.0/16 prohibit",
                "10.7.0.0/16 unreachable",
                "10.8.0.0/16 blackhole",
                "10.9.0.0/16 10.0.2.9@12",
                "10.9.0.0/16 m50 10.0.1.9@11",
            ],
        );
        assert_eq!(lab.model.table(100), ["10.3.0.0/16 10.0.1.9@11"]);
        lab.after(
            "ip route del 10.9.0.0/16 via 10.0.2.9
             ip route del 10.8.0.0/16
             ip route del 10.7.0.0/16
             ip route del 10.6.0.0/16
             ip route del 10.3.0.0/16 table 100
             ip route del 10.5.0.0/16
             ip route del 10.4.0.0/16",
            &["10.9.0.0/16 m50 10.0.1.9@11"],
        );
        lab.after(
            "ip -6 route add 2001:db8:9::/48 via 2001:db8:1::9
             ip -6 route add blackhole 2001:db8:8::/48 metric 7",
            &[
                "10.9.0.0/16 m50 10.0.1.9@11",
                "2001:db8:8::/48 m7 blackhole",
                "2001:db8:9::/48 m1024 2001:db8:1::9@11",
            ],
        );
        assert_eq!(lab.model.dumps, dumps, "nothing of this needs a new dump");
        assert_eq!(lab.model.table(100), [""; 0]);
        // A route on an address of ours is for the host.
        run("ip route add local 10.50.0.0/16 dev lo");
        lab.settle();
        assert!(lab.model.table(LOCAL_TABLE).iter().any(|r| r == "10.50.0.0/16 local"));
    });
}

#[test]
fn routes_state_an_mtu() {
    in_namespace("routes_state_an_mtu", || {
        let mut lab = lab();
        lab.after(
            "ip route add 10.9.0.0/16 via 10.0.1.9 mtu 1400
             ip route add 10.8.0.0/16 via 10.0.1.9 mtu lock 1300 initcwnd 20
             ip route add 10.7.0.0/16 mtu 1200 nexthop via 10.0.1.9 nexthop via 10.0.2.9
             ip route add 10.6.0.0/16 dev ra mtu 60
             ip -6 route add 2001:db8:9::/48 via 2001:db8:1::9 mtu 1400",
            &[
                "10.6.0.0/16 @11 mtu 68",
                "10.7.0.0/16 10.0.1.9@11 10.0.2.9@12 mtu 1200",
                "10.8.0.0/16 10.0.1.9@11 mtu 1300",
                "10.9.0.0/16 10.0.1.9@11 mtu 1400",
                "2001:db8:9::/48 m1024 2001:db8:1::9@11 mtu 1400",
            ],
        );
        lab.after(
            "ip route del 10.6.0.0/16
             ip route del 10.7.0.0/16
             ip route replace 10.8.0.0/16 via 10.0.1.9
             ip route change 10.9.0.0/16 via 10.0.2.9 mtu 1500
             ip -6 route replace 2001:db8:9::/48 via 2001:db8:1::9 mtu 1280",
            &[
                "10.8.0.0/16 10.0.1.9@11",
                "10.9.0.0/16 10.0.2.9@12 mtu 1500",
                "2001:db8:9::/48 m1024 2001:db8:1::9@11 mtu 1280",
            ],
        );
        // Two of one key that differ in their MTU alone.
        lab.after(
            "ip route del 10.8.0.0/16
             ip -6 route del 2001:db8:9::/48
             ip route append 10.9.0.0/16 via 10.0.2.9 mtu 1300",
            &["10.9.0.0/16 10.0.2.9@12 mtu 1500"],
        );
        lab.after(
            "ip route del 10.9.0.0/16 via 10.0.2.9 mtu 1500",
            &["10.9.0.0/16 10.0.2.9@12 mtu 1300"],
        );
        // The kernel lowers IPv6 routes with a link, and raises them with it, without a word.
        run("ip -6 route add 2001:db8:9::/48 via 2001:db8:1::9 mtu 1400");
        let all = "2001:db8:9::/48 m1024 2001:db8:1::9@11 mtu";
        for mtu in [1300, 1500] {
            run(&format!("ip link set ra mtu {mtu}"));
            assert!(lab.agreed().contains(&format!("{all} {mtu}")), "{:?}", lab.main());
        }
    });
}

#[test]
fn several_hops() {
    in_namespace("several_hops", || {
        let mut lab = lab();
        lab.after(
            "ip route add 10.9.0.0/16 nexthop via 10.0.1.9 weight 3 nexthop via 10.0.2.9
             ip -6 route add 2001:db8:9::/48 nexthop via 2001:db8:1::9 nexthop via 2001:db8:2::9",
            &[
                "10.9.0.0/16 10.0.1.9@11*3 10.0.2.9@12",
                "2001:db8:9::/48 m1024 2001:db8:1::9@11 2001:db8:2::9@12",
            ],
        );
        // IPv6 can lose and gain one hop.
        lab.after(
            "ip route del 10.9.0.0/16
             ip -6 route del 2001:db8:9::/48 via 2001:db8:1::9",
            &["2001:db8:9::/48 m1024 2001:db8:2::9@12"],
        );
        lab.after(
            "ip -6 route append 2001:db8:9::/48 via 2001:db8:1::7
             ip -6 route append 2001:db8:9::/48 via 2001:db8:1::8
             ip -6 route del 2001:db8:9::/48 via 2001:db8:2::9",
            &["2001:db8:9::/48 m1024 2001:db8:1::7@11 2001:db8:1::8@11"],
        );
        lab.after(
            "ip -6 route replace 2001:db8:9::/48 via 2001:db8:2::5",
            &["2001:db8:9::/48 m1024 2001:db8:2::5@12"],
        );
        lab.after("ip -6 route del 2001:db8:9::/48", &[]);
    });
}

#[test]
fn several_routes_of_one_key() {
    in_namespace("several_routes_of_one_key", || {
        let mut lab = lab();
        lab.after(
            "ip route add 10.9.0.0/16 via 10.0.1.9
             ip route append 10.9.0.0/16 via 10.0.2.9",
            &["10.9.0.0/16 10.0.1.9@11"],
        );
        lab.after("ip route del 10.9.0.0/16 via 10.0.1.9", &["10.9.0.0/16 10.0.2.9@12"]);
        lab.after("ip route prepend 10.9.0.0/16 via 10.0.1.8", &["10.9.0.0/16 10.0.1.8@11"]);
        // Known from the dump only, this time.
        let mut fresh = Lab::new(None);
        fresh.settle();
        fresh.after("ip route del 10.9.0.0/16 via 10.0.1.8", &["10.9.0.0/16 10.0.2.9@12"]);
        lab.after("", &["10.9.0.0/16 10.0.2.9@12"]);
        // Two links in one subnet: the kernel itself appends.
        run("ip addr add 10.0.7.1/24 dev ra
             ip addr add 10.0.7.2/24 dev rb");
        lab.after("", &["10.0.7.0/24 @11", "10.9.0.0/16 10.0.2.9@12"]);
        lab.after(
            "ip addr del 10.0.7.1/24 dev ra",
            &["10.0.7.0/24 @12", "10.9.0.0/16 10.0.2.9@12"],
        );
        lab.after(
            "ip addr del 10.0.7.2/24 dev rb
             ip route del 10.9.0.0/16",
            &[],
        );
    });
}

#[test]
fn objects_and_groups() {
    use crate::event::ObjectTarget;
    in_namespace("objects_and_groups", || {
        let mut lab = lab();
        let routes =
            ["10.8.0.0/16 object 5", "10.9.0.0/16 object 7", "2001:db8:9::/48 m1024 object 8"];
        lab.after(
            "ip nexthop add id 5 via 10.0.1.9 dev ra
             ip nexthop add id 6 via 10.0.2.9 dev rb
             ip nexthop add id 7 group 5,3/6
             ip -6 nexthop add id 8 blackhole
             ip nexthop add id 9 via 2001:db8:1::9 dev ra
             ip route add 10.9.0.0/16 nhid 7
             ip route add 10.8.0.0/16 nhid 5
             ip -6 route add 2001:db8:9::/48 nhid 8",
            &routes,
        );
        assert_eq!(lab.model.objects[&7].0, ObjectTarget::Group(vec![(5, 3), (6, 1)]));
        assert_eq!(lab.model.objects[&8].0, ObjectTarget::Blackhole);
        // A resilient group is a group: what it is laid out in is ours.
        lab.after("ip nexthop add id 10 group 5,3/6 type resilient buckets 8", &routes);
        assert_eq!(lab.model.objects[&10].0, ObjectTarget::Group(vec![(5, 3), (6, 1)]));
        lab.after("ip nexthop del id 10", &routes);
        // A replaced object keeps its routes.
        lab.after("ip nexthop replace id 5 via 10.0.2.7 dev rb", &routes);
        // A deleted one takes them with it, and leaves the group.
        lab.after("ip nexthop del id 5", &routes[1..]);
        assert_eq!(lab.model.objects[&7].0, ObjectTarget::Group(vec![(6, 1)]));
        lab.after("ip nexthop del id 6", &routes[2..]);
        lab.after("ip nexthop flush", &[]);
        assert!(lab.model.objects.is_empty());
    });
}

#[test]
fn links_go_down_without_a_word() {
    in_namespace("links_go_down_without_a_word", || {
        let mut lab = lab();
        let all = [
            "10.7.0.0/16 object 5",
            "10.8.0.0/16 10.0.1.9@11",
            "10.9.0.0/16 10.0.1.9@11 10.0.2.9@12",
            "2001:db8:8::/48 m1024 2001:db8:1::8@11",
            "2001:db8:9::/48 m1024 2001:db8:1::9@11 2001:db8:2::9@12",
        ];
        lab.after(
            "ip nexthop add id 5 via 10.0.1.9 dev ra
             ip route add 10.7.0.0/16 nhid 5
             ip route add 10.8.0.0/16 via 10.0.1.9
             ip route add 10.9.0.0/16 nexthop via 10.0.1.9 nexthop via 10.0.2.9
             ip -6 route add 2001:db8:8::/48 via 2001:db8:1::8
             ip -6 route add 2001:db8:9::/48 nexthop via 2001:db8:1::9 nexthop via 2001:db8:2::9",
            &all,
        );
        // Without carrier the kernel keeps routes of one hop, and uses the other hop of two.
        let carrier = |lab: &mut Lab, want: bool| {
            run(if want { "ip link set pa up" } else { "ip link set pa down" });
            while lab.model.links[&11].0.up != want {
                lab.settle();
            }
            lab.agreed()
        };
        let without = carrier(&mut lab, false);
        let has = |all: &[String], route: &str| all.iter().any(|r| r == route);
        assert!(has(&without, all[1]) && !has(&without, all[0]), "{without:?}");
        assert!(has(&without, "10.9.0.0/16 10.0.2.9@12"), "{without:?}");
        assert!(has(&without, "2001:db8:9::/48 m1024 2001:db8:2::9@12"), "{without:?}");
        assert!(!lab.model.objects.contains_key(&5));
        let with = carrier(&mut lab, true);
        assert!(has(&with, all[2]) && has(&with, all[4]), "{with:?}");
        // The hop without carrier is deleted: the other one stays.
        carrier(&mut lab, false);
        run("ip -6 route del 2001:db8:9::/48 via 2001:db8:1::9");
        assert!(has(&lab.agreed(), "2001:db8:9::/48 m1024 2001:db8:2::9@12"));
        carrier(&mut lab, true);
        // Set down, they go.
        run("ip link set ra down");
        let down = lab.agreed();
        assert!(!has(&down, all[1]) && has(&down, "10.9.0.0/16 10.0.2.9@12"), "{down:?}");
        run("ip link del ra");
        lab.agreed();
        assert!(!lab.model.links.contains_key(&11) && !lab.model.links.contains_key(&21));
        assert!(lab.model.addresses.keys().all(|(link, _)| *link != 11));
    });
}

/// A fresh dump has the route that has lost its last live hop, with the flag of a dead one, and the next route of the key
/// stands behind it.
#[test]
fn a_route_behind_a_dead_one_is_the_route() {
    in_namespace("a_route_behind_a_dead_one_is_the_route", || {
        let mut lab = lab();
        lab.after(
            "ip -6 route add 2001:db8:9::/48 metric 7 nexthop via 2001:db8:1::9 nexthop via 2001:db8:2::9",
            &["2001:db8:9::/48 m7 2001:db8:1::9@11 2001:db8:2::9@12"],
        );
        run("ip link set ra down");
        lab.agreed();
        run("ip -6 route del 2001:db8:9::/48 metric 7 via 2001:db8:2::9");
        let mut fresh = Lab::new(None);
        fresh.settle();
        run("ip -6 route append 2001:db8:9::/48 metric 7 dev rb");
        for source in [&mut lab, &mut fresh] {
            let all = source.agreed();
            assert!(all.iter().any(|route| route == "2001:db8:9::/48 m7 @12"), "{all:?}");
        }
    });
}

#[test]
fn routes_with_the_source_address_go_with_it() {
    in_namespace("routes_with_the_source_address_go_with_it", || {
        let mut lab = lab();
        run("ip addr add 10.0.3.1/32 dev ra");
        lab.after(
            "ip route add 10.9.0.0/16 via 10.0.2.9 src 10.0.3.1",
            &["10.9.0.0/16 10.0.2.9@12"],
        );
        lab.after("ip addr del 10.0.3.1/32 dev ra", &[]);
    });
}

#[test]
fn neighbors_are_resolved_on_request() {
    use crate::event::NeighborState;
    in_namespace("neighbors_are_resolved_on_request", || {
        // The other end of ra in a namespace of its own, so that it answers. Both end with the test:
        // the namespace has no name, only the process that holds it.
        run(TWO_LINKS);
        let mut other = Command::new("unshare").args(["--net", "sleep", "60"]).spawn().unwrap();
        let id = other.id();
        std::thread::sleep(Duration::from_millis(200));
        run(&format!(
            "ip link set pa netns {id}
             nsenter --net --target {id} ip link set pa up
             nsenter --net --target {id} ip addr add 10.0.1.9/24 dev pa"
        ));
        let mut lab = Lab::new(None);
        lab.settle();
        for (addr, want) in [("10.0.1.9", true), ("10.0.1.10", false)] {
            let addr = addr.parse().unwrap();
            let request = neighbor::use_request(0, 11, addr);
            lab.socket.send(&request, 0).unwrap();
            let mut states = Vec::new();
            for _ in 0..80 {
                lab.settle();
                states.extend(lab.model.neighbors.get(&(11, addr)).map(|(state, _)| *state));
                if matches!(
                    states.last(),
                    Some(NeighborState::Reachable(_) | NeighborState::Failed)
                ) {
                    break;
                }
            }
            match states.last() {
                Some(NeighborState::Reachable(mac)) if want => assert_ne!(mac.0, [0; 6]),
                Some(NeighborState::Failed) if !want => {}
                _ => panic!("{addr}: {states:?}"),
            }
        }
        run("ip neigh del 10.0.1.9 dev ra");
        lab.settle();
        assert!(!lab.model.neighbors.contains_key(&(11, "10.0.1.9".parse().unwrap())));
        other.kill().unwrap();
        other.wait().unwrap();
    });
}

#[test]
fn nothing_is_lost_when_messages_are() {
    in_namespace("nothing_is_lost_when_messages_are", || {
        run(TWO_LINKS);
        // Room for some ten messages.
        let mut lab = Lab::new(Some(4096));
        lab.after("", &[]);
        let mut batch = String::new();
        for i in 0..3000 {
            let gateway = 2 + i % 200;
            batch.push_str(&format!(
                "route add 10.{}.{}.0/24 via 10.0.1.{gateway}\n",
                100 + i / 256,
                i % 256
            ));
        }
        batch.push_str("route del 10.100.7.0/24\nroute del 10.101.7.0/24\n");
        let file = std::env::temp_dir().join(format!("fingerpost-batch-{}", std::process::id()));
        std::fs::write(&file, batch).unwrap();
        // The source reads while they come, and falls behind.
        let mut child = Command::new("ip").arg("-batch").arg(&file).spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(50));
            lab.settle();
        }
        let all = lab.agreed();
        std::fs::remove_file(file).unwrap();
        assert_eq!(all.len(), CONNECTED.len() + 2998);
        // And in reverse: routes and whole links go while nobody reads.
        let dumps = lab.model.dumps;
        run("ip route flush root 10.100.0.0/16
             ip link set ra down
             ip route add 10.200.0.0/16 via 10.0.2.9");
        let all = lab.agreed();
        assert!(lab.model.dumps > dumps);
        assert!(lab.overruns > 0, "{} messages in {} bytes", lab.messages, 4096);
        assert!(all.iter().any(|r| r == "10.200.0.0/16 10.0.2.9@12"), "{all:?}");
    });
}
