//! The running kernel, in a network namespace of our own: what its tools set up must be found.

use std::process::Command;

use netlink_sys::Socket;

use super::{Obstacle, Survey};
use crate::netlink::namespace::{self, run};
use crate::rules::Selected;

fn in_namespace(name: &str, body: fn()) {
    namespace::run_in(module_path!(), name, body);
}

/// Surveys everything, with a socket for each request.
fn survey() -> Vec<Obstacle> {
    surveyed().obstacles().to_vec()
}

fn surveyed() -> Survey {
    let mut survey = Survey::new();
    let mut buf = Vec::with_capacity(64 << 10);
    while let Some((protocol, request)) = survey.output() {
        let mut socket = Socket::new(isize::try_from(protocol.number()).unwrap()).unwrap();
        socket.bind_auto().unwrap();
        socket.send(&request, 0).unwrap();
        // Answered when the next question, or the end, is there; the answer is for this one only.
        for _ in 0..1000 {
            buf.clear();
            socket.recv(&mut buf, 0).unwrap();
            survey.input(&buf).unwrap();
            if survey.answered() {
                break;
            }
        }
    }
    assert!(survey.is_done());
    assert_eq!(survey.unanswered(), [""; 0]);
    survey
}

/// One obstacle, in one line.
fn found(what: &Obstacle) -> String {
    let link = what.link.map(|link| format!(" on {link}")).unwrap_or_default();
    format!("{}{link}: {}", what.subsystem, what.what)
}

#[test]
fn a_fresh_namespace_has_none() {
    in_namespace("a_fresh_namespace_has_none", || {
        run("ip link set lo up
             ip link add ra type veth peer name pa
             ip link set ra up
             ip addr add 10.0.1.1/24 dev ra
             tc qdisc add dev ra clsact");
        assert_eq!(survey(), []);
        // What concerns the host's own packets only is none either, nor what lets all pass.
        run("nft add table ip t
             nft add chain ip t in { type filter hook input priority 0 ; policy drop ; }
             nft add rule ip t in counter
             nft add chain ip t on { type filter hook forward priority 0 ; policy accept ; }
             nft add chain ip t jumped
             nft add rule ip t jumped drop
             ip xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir in");
        assert_eq!(survey(), []);
    });
}

#[test]
fn each_kind_is_found_and_named() {
    in_namespace("each_kind_is_found_and_named", || {
        run("ip link add ra index 11 type veth peer name pa index 12
             ip link set ra up
             ip xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir fwd
             ip xfrm policy add src 2001:db8::/32 dst ::/0 dir out action block
             tc qdisc add dev ra root tbf rate 1mbit burst 10kb latency 50ms
             tc qdisc add dev pa ingress
             tc filter add dev pa ingress u32 match u32 0 0 flowid 1:1
             nft add table ip t
             nft add chain ip t onward { type filter hook forward priority 0 ; policy drop ; }
             nft add chain ip t outward { type nat hook postrouting priority 100 ; }
             nft add rule ip t outward masquerade
             nft add rule ip t outward counter
             nft add table inet f
             nft add chain inet f pre { type filter hook prerouting priority -300 ; }
             nft add rule inet f pre notrack
             nft add table netdev n
             nft add chain netdev n in { type filter hook ingress device ra priority 0 ; }
             nft add rule netdev n in counter");
        let mut all: Vec<_> = survey().iter().map(found).collect();
        all.sort();
        let want = [
            "nftables: nft inet table f chain pre: filter hook prerouting, 1 rule",
            "nftables: nft ip table t chain onward: filter hook forward, 0 rules, policy drop",
            "nftables: nft ip table t chain outward: nat hook postrouting, 2 rules",
            "nftables: nft netdev table n chain in: filter hook ingress on ra, 1 rule",
            "tc on 11: tc qdisc tbf shapes what leaves",
            "tc on 12: tc ingress filter u32",
            "xfrm: ipsec policy dir fwd src 10.0.0.0/8 dst 10.1.0.0/16 allow",
            "xfrm: ipsec policy dir out src 2001:db8::/32 dst ::/0 block",
        ];
        assert_eq!(all, want);
    });
}

#[test]
fn policy_rules_are_read_in_their_order() {
    in_namespace("policy_rules_are_read_in_their_order", || {
        assert_eq!(tables(&surveyed(), "ra"), [Ok(vec![254, 253]), Ok(vec![254])]);
        run("ip link add ra type veth peer name pa
             ip rule add pref 50 iif ra lookup 100
             ip rule add pref 40 iif none fwmark 0x7 blackhole
             ip -6 rule add pref 60 lookup 7
             ip rule add pref 30 iif ra lookup 1000");
        let v4 = Ok(vec![1000, 100, 254, 253]);
        assert_eq!(tables(&surveyed(), "ra"), [v4.clone(), Ok(vec![7, 254])]);
        assert_eq!(tables(&surveyed(), "pa"), [Ok(vec![254, 253]), Ok(vec![7, 254])]);
        let words = "ip rule 40: from all iif none fwmark 0x7 blackhole";
        assert_eq!(tables(&surveyed(), "none")[0], Err(words.into()));
        run("ip -6 rule add pref 55 to 2001:db8::/32 lookup 7
             ip rule del from all lookup main
             ip rule del from all lookup default");
        let words = "ip -6 rule 55: from all to 2001:db8::/32 lookup 7";
        assert_eq!(tables(&surveyed(), "ra"), [Ok(vec![1000, 100]), Err(words.into())]);
        let words = "ip rule 32766: missing (lookup 254)";
        assert_eq!(tables(&surveyed(), "pa")[0], Err(words.into()));
    });
}

/// The tables of an interface that belongs to no VRF, of both families.
fn tables(survey: &Survey, name: &str) -> [Result<Vec<u32>, String>; 2] {
    [4, 6].map(|family| survey.rules().tables(family, Selected { name, vrf: None }))
}

#[test]
fn rules_of_iptables_are_found_as_nftables_chains() {
    in_namespace("rules_of_iptables_are_found_as_nftables_chains", || {
        if Command::new("iptables-nft").arg("-V").output().is_err() {
            return println!("skipped: needs iptables-nft (iptables)");
        }
        assert_eq!(survey(), []);
        run("iptables-nft -A FORWARD -j DROP");
        let all: Vec<_> = survey().iter().map(found).collect();
        assert_eq!(
            all,
            ["nftables: nft ip table filter chain FORWARD: filter hook forward, 1 rule"]
        );
    });
}

#[test]
fn switches_of_forwarding_are_read_per_interface_and_family() {
    in_namespace("switches_of_forwarding_are_read_per_interface_and_family", || {
        run("ip link add ra index 11 type veth peer name pa index 12");
        let off = || {
            let survey = surveyed();
            let links = [(11, "ra"), (12, "pa")];
            links.map(|(link, name)| {
                let forwarding = survey.forwarding();
                (forwarding.off_v4(link, name), forwarding.off_v6())
            })
        };
        let (v4, v6) = ("net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0");
        run("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0");
        assert_eq!(off(), [(); 2].map(|()| (Some(v4.into()), Some(v6.into()))));
        run("sysctl -qw net.ipv4.conf.pa.forwarding=1");
        assert_eq!(off().map(|(v4, _)| v4), [Some(v4.into()), None]);
        run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        assert_eq!(off(), [(None, None), (None, None)]);
        run("sysctl -qw net.ipv4.conf.ra.forwarding=0 net.ipv6.conf.ra.forwarding=0");
        assert_eq!(off(), [(Some("net.ipv4.conf.ra.forwarding=0".into()), None), (None, None)]);
    });
}
