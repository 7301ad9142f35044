//! Routes between VRFs, from the kernel's messages to what packets find: the dump of a kernel with two VRFs, byte by
//! byte as Linux 6.18 writes it.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test's own helpers")]

use std::net::IpAddr;
use std::time::Instant;

use fingerpost_route::control::ControlOptions;
use fingerpost_route::netlink::{DONE, F_MULTI, IPV4, IPV6, Request, link, route};
use fingerpost_route::source::{SourceSpec, find};
use fingerpost_route::{Control, Forwarding, ForwardingAction, RouteMtu};

/// Indices of the VRFs' devices, and of an interface in each.
const RED: u32 = 8;
const BLUE: u32 = 9;
const IN_RED: u32 = 11;
const IN_BLUE: u32 = 12;

/// Types of requests for dumps: links and routes.
const LINKS: u16 = 18;
const ROUTES: u16 = 26;

/// Attributes of a route.
const DST: u16 = 1;
const OIF: u16 = 4;
const GATEWAY: u16 = 5;
const TABLE: u16 = 15;

/// `RTN_UNICAST` and `RTN_LOCAL`.
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;

fn nested(attrs: &[(u16, &[u8])]) -> Vec<u8> {
    let all = attrs.iter().fold(Request::new(0, 0, 0), |all, (kind, data)| all.attr(*kind, data));
    all.finish()[16..].to_vec()
}

/// A line of the dump of links: a VRF's device, or a member of one.
fn link_line(seq: u32, index: u32, name: &str, table: u32, master: Option<u32>) -> Vec<u8> {
    let head = [[0, 0, 1, 0], index.to_ne_bytes(), 0x1_0001u32.to_ne_bytes(), [0; 4]];
    let of_vrf = nested(&[(1, &table.to_ne_bytes())]);
    let info = match master {
        None => nested(&[(1, b"vrf\0"), (2, &of_vrf)]),
        Some(_) => nested(&[(1, b"veth\0"), (4, b"vrf\0"), (5, &of_vrf)]),
    };
    let name = format!("{name}\0");
    let mac = [2, 0, 0, 0, 0, u8::try_from(index).unwrap()];
    let line = Request::new(link::NEW, F_MULTI, seq).fixed(head.as_flattened());
    let line = line.attr(3, name.as_bytes()).attr(4, &1500u32.to_ne_bytes()).attr(16, &[6]);
    let line = match master {
        Some(master) => line.attr(10, &master.to_ne_bytes()),
        None => line,
    };
    line.attr(1, &mac).attr(18, &info).finish()
}

fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    }
}

/// A line of a dump of routes: table, type, prefix, gateway (or none) and egress.
type Line = (u32, u8, &'static str, &'static str, u32);

fn route_line(seq: u32, (table, kind, prefix, gateway, egress): Line) -> Vec<u8> {
    let (addr, len) = prefix.split_once('/').unwrap();
    let addr: IpAddr = addr.parse().unwrap();
    let family = if addr.is_ipv4() { IPV4 } else { IPV6 };
    let head =
        [family, len.parse().unwrap(), 0, 0, u8::try_from(table).unwrap(), 3, 0, kind, 0, 0, 0, 0];
    let line = Request::new(route::NEW, F_MULTI, seq).fixed(&head);
    let line = line.attr(TABLE, &table.to_ne_bytes()).attr(DST, &octets(addr));
    let line = match gateway {
        "" => line,
        gateway => line.attr(GATEWAY, &octets(gateway.parse().unwrap())),
    };
    line.attr(OIF, &egress.to_ne_bytes()).finish()
}

const V4: &[Line] = &[
    // `ip route add 10.1.0.0/16 table 10 dev blue`
    (10, UNICAST, "10.1.0.0/16", "", BLUE),
    // `ip route add 10.2.0.0/24 table 10 via 10.0.3.9 dev blue0`
    (10, UNICAST, "10.2.0.0/24", "10.0.3.9", IN_BLUE),
    // Two that lead to each other.
    (10, UNICAST, "10.9.0.0/16", "", BLUE),
    (20, UNICAST, "10.9.9.0/24", "", RED),
    (20, UNICAST, "10.0.3.0/24", "", IN_BLUE),
    (20, UNICAST, "10.1.1.0/24", "10.0.3.9", IN_BLUE),
    (20, LOCAL, "10.1.2.2/32", "", BLUE),
];

const V6: &[Line] = &[
    (10, UNICAST, "2001:db8:1::/48", "", BLUE),
    (10, UNICAST, "2001:db8:2::/48", "fd03::9", IN_BLUE),
    (10, UNICAST, "2001:db8:9::/48", "", BLUE),
    (20, UNICAST, "2001:db8:9:9::/64", "", RED),
    (20, UNICAST, "fd03::/64", "", IN_BLUE),
    (20, UNICAST, "2001:db8:1:1::/64", "fd03::9", IN_BLUE),
    (20, LOCAL, "2001:db8:1:2::2/128", "", BLUE),
];

/// A control side that has read the dumps.
fn control() -> Control {
    let mut control = Control::new(ControlOptions {
        v4: fingerpost_lpm::registry::v4().collect(),
        v6: fingerpost_lpm::registry::v6().collect(),
        connected_from_addresses: false,
    })
    .unwrap();
    let kind = find("kernel").unwrap();
    let mut source = (kind.open)(&SourceSpec::default()).unwrap();
    let id = control.add_source("kernel", 0);
    let mut routes = [V4, V6].into_iter();
    loop {
        let mut requests = Vec::new();
        source.output(&mut requests);
        let Some(request) = requests.pop() else { break };
        assert!(requests.is_empty(), "one dump at a time");
        let seq = u32::from_ne_bytes(request[8..12].try_into().unwrap());
        let mut bytes = match u16::from_ne_bytes([request[4], request[5]]) {
            LINKS => [
                link_line(seq, RED, "red", 10, None),
                link_line(seq, BLUE, "blue", 20, None),
                link_line(seq, IN_RED, "red0", 10, Some(RED)),
                link_line(seq, IN_BLUE, "blue0", 20, Some(BLUE)),
            ]
            .concat(),
            ROUTES => {
                let lines = routes.next().expect("one dump a family").iter();
                lines.flat_map(|line| route_line(seq, *line)).collect()
            }
            _ => Vec::new(),
        };
        bytes.extend(Request::new(DONE, F_MULTI, seq).fixed(&[0; 4]).finish());
        let now = Instant::now();
        source.input(&bytes, now, &mut |event| control.handle(id, event)).unwrap();
    }
    assert_eq!(source.rejected().count, 0, "{:?}", source.rejected().samples);
    control.flush();
    control.commit(Instant::now()).unwrap();
    control
}

/// Tables that a packet is looked up in that arrives on `red0`, and what it meets there.
fn lookups(control: &Control, forwarding: &Forwarding, addr: &str) -> Vec<(u32, ForwardingAction)> {
    let red0 = control.links().find(|(link, _, _)| *link == IN_RED).unwrap().1;
    let found: Vec<_> = match addr.parse().unwrap() {
        IpAddr::V4(addr) => forwarding.lookups(red0, addr.to_bits(), || 0).collect(),
        IpAddr::V6(addr) => forwarding.lookups(red0, addr.to_bits(), || 0).collect(),
    };
    let tables = control.tables();
    found.iter().map(|found| (tables[usize::from(found.fib)].number(), found.action)).collect()
}

#[test]
fn a_route_by_the_device_of_a_vrf_is_a_lookup_in_its_table() {
    let control = control();
    let forwarding = control.forwarding();
    let port = |link| control.links().find(|(other, _, _)| *other == link).unwrap().1;
    let [red, blue, blue0] = [RED, BLUE, IN_BLUE].map(port);
    let found = |addr| lookups(&control, &forwarding, addr);
    let leaves_by = |action| match action {
        ForwardingAction::Adjacency(index) => Some(forwarding.hops.adjacency(index).port),
        _ => None,
    };
    for (through, direct, own, missing, looped) in [
        ("10.1.1.5", "10.2.0.5", "10.1.2.2", "10.1.7.7", "10.9.9.9"),
        (
            "2001:db8:1:1::5",
            "2001:db8:2::5",
            "2001:db8:1:2::2",
            "2001:db8:1:7::7",
            "2001:db8:9:9::9",
        ),
    ] {
        let [first, second] = found(through)[..] else { panic!("{:?}", found(through)) };
        assert_eq!(first, (10, ForwardingAction::Vrf(blue, RouteMtu::NONE)));
        assert_eq!((second.0, leaves_by(second.1)), (20, Some(blue0)));
        let [only] = found(direct)[..] else { panic!("{:?}", found(direct)) };
        assert_eq!((only.0, leaves_by(only.1)), (10, Some(blue0)));
        assert_eq!(found(own).last(), Some(&(20, ForwardingAction::Local)));
        assert_eq!(found(missing).last(), Some(&(20, ForwardingAction::NoRoute)));
        let rounds = found(looped);
        assert_eq!(rounds.len(), 9);
        let to_blue = (10, ForwardingAction::Vrf(blue, RouteMtu::NONE));
        assert_eq!(
            (rounds[0], rounds[1]),
            (to_blue, (20, ForwardingAction::Vrf(red, RouteMtu::NONE)))
        );
    }
}

#[test]
fn lookups_in_vrfs_end() {
    let control = control();
    let forwarding = control.forwarding();
    let port = |link| control.links().find(|(other, _, _)| *other == link).unwrap().1;
    let into = ForwardingAction::Vrf(port(BLUE), RouteMtu::NONE);
    let follow = |addr: &str| {
        let hash = || panic!("there is no group");
        match addr.parse().unwrap() {
            IpAddr::V4(addr) => forwarding.follow(into, addr.to_bits(), hash),
            IpAddr::V6(addr) => forwarding.follow(into, addr.to_bits(), hash),
        }
        .map(|(action, _)| action)
    };
    for (own, looped) in [("10.1.2.2", "10.9.9.9"), ("2001:db8:1:2::2", "2001:db8:9:9::9")] {
        assert_eq!((follow(own), follow(looped)), (Some(ForwardingAction::Local), None));
    }
}
