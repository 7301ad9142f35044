//! The demo's lab: three network namespaces in a line, made by netlink alone.
//!
//! ```text
//! source            router                    destination
//!   s0 ------------- r0   r1 ----------------- d0
//!                         r2 ----------------- d1
//! ```
//!
//! The namespaces have no names: they, and all that is in them, go with the process.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use fingerpost_route::Mac;
use fingerpost_route::netlink::{Messages, Request};

use crate::sys::{Namespace, Netlink, Received, poll};

/// Next hops of the shipped tables, numbered from 1.
pub(super) const NEXT_HOPS: u16 = 496;
/// How long the kernel may take to answer a request.
const LONGEST_ANSWER: Duration = Duration::from_secs(5);

/// Frames enter the router here.
pub(super) const ROUTER_IN: &str = "r0";
/// And leave it here.
pub(super) const ROUTER_OUT: [&str; 2] = ["r1", "r2"];
/// Where the generator puts them.
pub(super) const SOURCE: &str = "s0";
/// Where they arrive.
pub(super) const DESTINATION: [&str; 2] = ["d0", "d1"];

/// The namespaces.
pub(super) struct Lab {
    pub(super) source: Namespace,
    pub(super) router: Namespace,
    pub(super) destination: Namespace,
}

/// The MAC of a lab interface.
pub(super) fn port_mac(name: &str) -> Mac {
    let bytes = name.as_bytes();
    Mac([2, 0xf0, 0, 0, bytes[0], bytes[1]])
}

/// The MAC that stands for a next hop.
pub(super) fn hop_mac(hop: u16) -> Mac {
    let [high, low] = hop.to_be_bytes();
    Mac([2, 0xfe, 0, 0, high, low])
}

/// By which of the router's outputs a next hop is reached: every other block of 128.
pub(super) fn hop_port(hop: u16) -> usize {
    usize::from(hop >> 7 & 1)
}

/// The address of a next hop, as the shipped tables write it.
pub(super) fn hop_addr(hop: u16, v6: bool) -> IpAddr {
    if v6 {
        IpAddr::V6(Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(hop)))
    } else {
        let [high, low] = hop.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(10, 255, high, low))
    }
}

impl Lab {
    /// Makes the lab: interfaces up, addresses on, neighbors known. Needs root.
    pub(super) fn new() -> io::Result<Self> {
        let lab = Self {
            source: Namespace::new()?,
            router: Namespace::new()?,
            destination: Namespace::new()?,
        };
        let fds = [lab.source.fd(), lab.destination.fd()];
        lab.router.run(|| {
            let mut rt = Rtnetlink::open()?;
            rt.veth(ROUTER_IN, SOURCE, fds[0])?;
            for (out, destination) in ROUTER_OUT.into_iter().zip(DESTINATION) {
                rt.veth(out, destination, fds[1])?;
            }
            rt.up("lo")?;
            for (i, name) in [ROUTER_IN, ROUTER_OUT[0], ROUTER_OUT[1]].into_iter().enumerate() {
                rt.up(name)?;
                // 198.18.0.0/15 and 2001:2::/48 are there for benchmarks (RFC 2544, RFC 5180).
                let i = u8::try_from(i).expect("three");
                rt.address(name, IpAddr::from([198, 18, i, 1]), 24)?;
                let v6 = Ipv6Addr::new(0x2001, 2, 0, u16::from(i), 0, 0, 0, 1);
                rt.address(name, IpAddr::V6(v6), 64)?;
            }
            // The next hops are on the links, but their subnets have no address of ours: with one, some
            // next hop would be the subnet's broadcast address.
            for block in 0..=(NEXT_HOPS >> 7) {
                let first = block << 7;
                let out = ROUTER_OUT[hop_port(first)];
                rt.link_route(hop_addr(first, false), 25, out)?;
                rt.link_route(hop_addr(first, true), 121, out)?;
            }
            for hop in 1..=NEXT_HOPS {
                let out = ROUTER_OUT[hop_port(hop)];
                rt.neighbor(hop_addr(hop, false), hop_mac(hop), out)?;
                rt.neighbor(hop_addr(hop, true), hop_mac(hop), out)?;
            }
            io::Result::Ok(())
        })??;
        lab.source.run(|| Rtnetlink::open()?.up(SOURCE))??;
        lab.destination.run(|| {
            let mut rt = Rtnetlink::open()?;
            DESTINATION.into_iter().try_for_each(|name| rt.up(name))
        })??;
        Ok(lab)
    }
}

/// Requests to the kernel, each waited for.
struct Rtnetlink {
    socket: Netlink,
    seq: u32,
}

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const NEW_NEIGHBOR: u16 = 28;
const ERROR: u16 = 2;
/// `NLM_F_ACK`, and with it `NLM_F_CREATE`.
const ACK: u16 = 0x4;
const CREATE: u16 = 0x400 | ACK;
const MAIN_TABLE: u8 = 254;

impl Rtnetlink {
    fn open() -> io::Result<Self> {
        Ok(Self { socket: Netlink::open(libc::NETLINK_ROUTE, &[])?, seq: 0 })
    }

    fn ask(&mut self, kind: u16, flags: u16) -> Request {
        self.seq += 1;
        Request::ask(kind, flags, self.seq)
    }

    /// Sends a request and waits for its acknowledgement.
    fn send(&self, request: Request) -> io::Result<()> {
        self.socket.send(&request.finish())?;
        let mut buffer = [0; 4096];
        let until = Instant::now() + LONGEST_ANSWER;
        while Instant::now() < until {
            let Received::Bytes(len) = self.socket.recv(&mut buffer)? else {
                poll(&[self.socket.fd()], Duration::from_millis(100));
                continue;
            };
            for message in Messages::new(&buffer[..len]) {
                let message = message.map_err(io::Error::other)?;
                if message.kind == ERROR && message.seq == self.seq {
                    let code = message.code().map_err(io::Error::other)?.cast_signed();
                    return match code {
                        0 => Ok(()),
                        code => Err(io::Error::from_raw_os_error(code.abs())),
                    };
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel does not answer"))
    }

    /// A pair of interfaces, the second one in another namespace.
    fn veth(&mut self, name: &str, peer: &str, namespace: i32) -> io::Result<()> {
        let there = [
            link_header(0, 0),
            attr(libc::IFLA_IFNAME, &text(peer)),
            attr(libc::IFLA_ADDRESS, &port_mac(peer).0),
            attr(libc::IFLA_NET_NS_FD, &namespace.to_ne_bytes()),
        ];
        const VETH_INFO_PEER: u16 = 1;
        let info = [
            attr(libc::IFLA_INFO_KIND, &text("veth")),
            attr(libc::IFLA_INFO_DATA, &attr(VETH_INFO_PEER, &there.concat())),
        ];
        const EXCLUSIVE: u16 = 0x200;
        let request = self
            .ask(NEW_LINK, CREATE | EXCLUSIVE)
            .fixed(&link_header(0, 0))
            .attr(libc::IFLA_IFNAME, &text(name))
            .attr(libc::IFLA_ADDRESS, &port_mac(name).0)
            .attr(libc::IFLA_LINKINFO, &info.concat());
        self.send(request)
    }

    fn up(&mut self, name: &str) -> io::Result<()> {
        let up = u32::try_from(libc::IFF_UP).expect("a flag");
        let request =
            self.ask(NEW_LINK, ACK).fixed(&link_header(0, up)).attr(libc::IFLA_IFNAME, &text(name));
        self.send(request)
    }

    fn address(&mut self, link: &str, addr: IpAddr, len: u8) -> io::Result<()> {
        const NO_DAD: u8 = 2;
        let flags = if addr.is_ipv6() { NO_DAD } else { 0 };
        let [a, b, c, d] = index(link)?.to_ne_bytes();
        let header = [family(addr), len, flags, 0, a, b, c, d];
        let bytes = octets(addr);
        let request = self
            .ask(NEW_ADDRESS, CREATE)
            .fixed(&header)
            .attr(libc::IFA_LOCAL, &bytes)
            .attr(libc::IFA_ADDRESS, &bytes);
        self.send(request)
    }

    fn link_route(&mut self, first: IpAddr, len: u8, link: &str) -> io::Result<()> {
        let header = [
            family(first),
            len,
            0,
            0,
            MAIN_TABLE,
            libc::RTPROT_STATIC,
            libc::RT_SCOPE_LINK,
            libc::RTN_UNICAST,
            0,
            0,
            0,
            0,
        ];
        let request = self
            .ask(NEW_ROUTE, CREATE)
            .fixed(&header)
            .attr(libc::RTA_DST, &octets(first))
            .attr(libc::RTA_OIF, &index(link)?.to_ne_bytes());
        self.send(request)
    }

    fn neighbor(&mut self, addr: IpAddr, mac: Mac, link: &str) -> io::Result<()> {
        let [a, b, c, d] = index(link)?.to_ne_bytes();
        let [low, high] = libc::NUD_PERMANENT.to_ne_bytes();
        let header = [family(addr), 0, 0, 0, a, b, c, d, low, high, 0, 0];
        let request = self
            .ask(NEW_NEIGHBOR, CREATE)
            .fixed(&header)
            .attr(libc::NDA_DST, &octets(addr))
            .attr(libc::NDA_LLADDR, &mac.0);
        self.send(request)
    }
}

/// The number of an interface of the present namespace.
pub(super) fn index(name: &str) -> io::Result<u32> {
    crate::sys::interface_index(name)
}

fn family(addr: IpAddr) -> u8 {
    fingerpost_route::netlink::family_of(addr)
}

fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// `struct ifinfomsg`, with the flag to change.
fn link_header(index: i32, flag: u32) -> Vec<u8> {
    let mut header = vec![0; 4];
    header.extend_from_slice(&index.to_ne_bytes());
    header.extend_from_slice(&flag.to_ne_bytes());
    header.extend_from_slice(&flag.to_ne_bytes());
    header
}

/// One attribute, padded, for putting into another.
fn attr(kind: u16, data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + data.len()).expect("a small attribute");
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn text(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_hops_have_two_ports_and_a_mac_each() {
        let mut ports = [0; 2];
        let mut macs = std::collections::HashSet::new();
        for hop in 1..=NEXT_HOPS {
            ports[hop_port(hop)] += 1;
            assert!(macs.insert(hop_mac(hop)));
        }
        assert!(ports.iter().all(|&n| n > 100), "{ports:?}");
        assert_eq!(hop_addr(300, false).to_string(), "10.255.1.44");
        assert_eq!(hop_addr(300, true).to_string(), "fd00::12c");
    }

    #[test]
    fn the_lab_comes_up() {
        if !crate::privilege::to_make_namespaces() {
            eprintln!("skipped: needs root");
            return;
        }
        let lab = Lab::new().unwrap();
        for (namespace, name) in [
            (&lab.source, SOURCE),
            (&lab.router, ROUTER_OUT[1]),
            (&lab.destination, DESTINATION[1]),
        ] {
            assert!(namespace.run(|| index(name)).unwrap().unwrap() > 0);
        }
        assert!(lab.source.run(|| index(ROUTER_IN)).unwrap().is_err(), "it is elsewhere");
    }
}
