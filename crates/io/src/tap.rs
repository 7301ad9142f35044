//! TAP and TUN interfaces: frames, or IP packets without link header, to and from the host's own network stack.
//!
//! Source: the kernel's `Documentation/networking/tuntap.rst`. Opening makes the interface where there is none, brings
//! it up, and takes its only queue; one that this made goes with the port. Behind its name may stand what it is to have:
//! `tap0,10.0.0.1/24,ether=02:00:00:00:00:01,mtu=1400`; the kernel puts a number for `%d` in a name. [`open_queues`] makes
//! one with several queues.
//!
//! Shape: a descriptor a queue; a frame each read and write. Offloads are off, so that frames have their checksums.
//! Cost:  a system call and a copy a packet, some 2 us: for what is for the host itself, and for demonstrations.
//! Limits: 256 queues. The kernel picks the queue of a flow: that which the flow's answers are written to, else by a
//!        hash; frames of a queue that nobody reads are lost.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. Structures handed to the kernel are the C ones, zero where not set, and live through the call.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use fingerpost_packet::device::{DeviceError, Driver, Port};
use fingerpost_packet::language::{Around, Value};
use fingerpost_route::Mac;

use crate::frame_each_call;
use crate::interface::{request, socket};
use fingerpost_packet::frame::Batch;

pub(crate) const DRIVER: Driver = Driver {
    name: "tap",
    summary: "a TAP interface, made if there is none: frames to and from this host; needs root",
    in_rings: 0,
    external: true,
    open: |spec| Ok(vec![Box::new(Tap::open(spec.name)?)]),
};

pub(crate) const TUN: Driver = Driver {
    name: "tun",
    summary: "a TUN interface, made if there is none: IP packets to and from this host; needs root",
    in_rings: 0,
    external: true,
    open: |spec| Ok(vec![Box::new(Tap::open_as(spec.name, libc::IFF_TUN)?)]),
};

/// A TAP or TUN interface.
#[derive(Debug)]
struct Tap {
    file: File,
    /// `IFF_TAP` or `IFF_TUN`.
    kind: libc::c_int,
    name: String,
    /// Frames lost because none was free to read into.
    no_buffer: u64,
    /// Frames that the interface, being down, would not take.
    down: u64,
}

/// Makes a TAP interface with that many queues (at least one), gives it the link address and MTU, and only then brings
/// it up. Each port is a queue, for one worker; the interface goes with the last of them.
///
/// # Errors
/// When there is an interface of that name, whatever its kind and whoever has it open; without the right to make one;
/// for a group address, an MTU that a TAP interface cannot have, or more than 256 queues.
pub fn open_queues(
    name: &str,
    mac: [u8; 6],
    mtu: Option<u32>,
    queues: usize,
) -> Result<Vec<Box<dyn Port>>, DeviceError> {
    let failed = |call, hint| {
        move |source: io::Error| DeviceError::System { device: name.into(), call, source, hint }
    };
    let flags = libc::IFF_TAP | libc::IFF_MULTI_QUEUE;
    let mut ports: Vec<Box<dyn Port>> =
        vec![Box::new(Tap::attach(name, flags | libc::IFF_TUN_EXCL)?)];
    for _ in 1..queues {
        ports.push(Box::new(Tap::attach(name, flags)?));
    }

    prepare(name, &Wanted { name, own: None, mac: Some(mac), mtu })?;
    up(&mut request(name).map_err(failed("ioctl(SIOCSIFFLAGS)", ""))?)
        .map_err(failed("ioctl(SIOCSIFFLAGS)", ""))?;
    Ok(ports)
}

/// An interface as its text describes it.
struct Wanted<'a> {
    name: &'a str,
    own: Option<Around<u32>>,
    mac: Option<[u8; 6]>,
    mtu: Option<u32>,
}

impl<'a> Wanted<'a> {
    fn read(text: &'a str) -> Result<Self, DeviceError> {
        let mut parts = text.split(',');
        let mut wanted =
            Self { name: parts.next().unwrap_or_default(), own: None, mac: None, mtu: None };
        for part in parts {
            let known = match part.split_once('=') {
                Some(("ether", mac)) => Mac::read(mac).map(|mac| wanted.mac = Some(mac.0)).is_ok(),
                Some(("mtu", mtu)) => u32::read(mtu).map(|mtu| wanted.mtu = Some(mtu)).is_ok(),
                Some(_) => false,
                None => Around::read(part).map(|own| wanted.own = Some(own)).is_ok(),
            };
            if !known {
                return Err(DeviceError::Unfit {
                    device: text.into(),
                    what: format!(
                        "`{part}`: expected NAME[,ADDRESS/LENGTH][,ether=ADDRESS][,mtu=BYTES], as tap0,10.0.0.1/24"
                    ),
                });
            }
        }
        Ok(wanted)
    }
}

/// Address of a family that begins with these bytes.
fn sockaddr(family: libc::sa_family_t, bytes: &[u8]) -> libc::sockaddr {
    // SAFETY: integers: all bits zero are valid.
    let mut address: libc::sockaddr = unsafe { std::mem::zeroed() };
    address.sa_family = family;
    for (to, from) in address.sa_data.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    address
}

/// Gives an interface what is wanted of it, before it is brought up.
fn prepare(name: &str, wanted: &Wanted<'_>) -> Result<(), DeviceError> {
    let failed = |call, hint| {
        move |source: io::Error| DeviceError::System { device: name.into(), call, source, hint }
    };
    let mut request = request(name).map_err(failed("ioctl(SIOCSIFHWADDR)", ""))?;
    let socket = socket().map_err(failed("socket", ""))?;
    if let Some(mac) = wanted.mac {
        request.ifr_ifru.ifru_hwaddr = sockaddr(libc::ARPHRD_ETHER, &mac);
        ioctl(socket.as_raw_fd(), libc::SIOCSIFHWADDR, &mut request)
            .map_err(failed("ioctl(SIOCSIFHWADDR)", " (no host has such a link address)"))?;
    }
    if let Some(mtu) = wanted.mtu {
        request.ifr_ifru.ifru_mtu = mtu.try_into().unwrap_or(libc::c_int::MAX);
        ioctl(socket.as_raw_fd(), libc::SIOCSIFMTU, &mut request)
            .map_err(failed("ioctl(SIOCSIFMTU)", " (an MTU from 68 to 65521)"))?;
    }
    if let Some(own) = wanted.own {
        let [a, b, c, d] = own.addr.to_be_bytes();
        let [e, f, g, h] =
            (!u32::MAX.checked_shr(own.prefix.len().into()).unwrap_or(0)).to_be_bytes();
        // A port precedes the address of the family.
        request.ifr_ifru.ifru_addr = sockaddr(INET, &[0, 0, a, b, c, d]);
        ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR, &mut request)
            .map_err(failed("ioctl(SIOCSIFADDR)", ""))?;
        request.ifr_ifru.ifru_netmask = sockaddr(INET, &[0, 0, e, f, g, h]);
        ioctl(socket.as_raw_fd(), libc::SIOCSIFNETMASK, &mut request)
            .map_err(failed("ioctl(SIOCSIFNETMASK)", ""))?;
    }
    Ok(())
}

#[allow(clippy::cast_possible_truncation, reason = "2")]
const INET: libc::sa_family_t = libc::AF_INET as libc::sa_family_t;

impl Tap {
    /// The only queue of a TAP interface, which is up then.
    fn open(text: &str) -> Result<Self, DeviceError> {
        Self::open_as(text, libc::IFF_TAP)
    }

    /// The only queue of an interface of that kind.
    fn open_as(text: &str, kind: libc::c_int) -> Result<Self, DeviceError> {
        let mut wanted = Wanted::read(text)?;
        if kind == libc::IFF_TUN {
            // Its packets have no link header.
            wanted.mac = None;
        }
        let tap = Self::attach(wanted.name, kind)?;
        prepare(&tap.name, &wanted)?;
        request(&tap.name)
            .and_then(|mut request| up(&mut request))
            .map_err(|error| tap.failed("ioctl(SIOCSIFFLAGS)", error))?;
        Ok(tap)
    }

    /// A queue of an interface, which is made where there is none. `flags` are the kind and further ones of TUNSETIFF.
    fn attach(name: &str, flags: libc::c_int) -> Result<Self, DeviceError> {
        let failed = |call| {
            move |source: io::Error| {
                let hint = match source.raw_os_error() {
                    Some(libc::EPERM | libc::EACCES) => " (needs CAP_NET_ADMIN)",
                    Some(libc::EBUSY) if flags & libc::IFF_TUN_EXCL != 0 => {
                        " (an interface of that name exists)"
                    }
                    Some(libc::EBUSY) => " (another program has it open)",
                    Some(libc::EINVAL) if flags & libc::IFF_TUN != 0 => " (not a TUN interface)",
                    Some(libc::EINVAL) => " (not a TAP interface)",
                    Some(libc::E2BIG) => " (more queues than a TAP interface can have)",
                    _ => "",
                };
                DeviceError::System { device: name.into(), call, source, hint }
            }
        };
        let mut request = request(name).map_err(failed("ioctl(TUNSETIFF)"))?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(failed("open of /dev/net/tun"))?;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "all are below 2^16; the kernel reads bits"
        )]
        let word = (libc::IFF_NO_PI | flags) as libc::c_short;
        request.ifr_ifru.ifru_flags = word;
        ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request)
            .map_err(failed("ioctl(TUNSETIFF)"))?;
        // The kernel may have put a number in it.
        let given = request.ifr_name.iter().take_while(|byte| **byte != 0);
        let name = given.map(|byte| char::from(byte.cast_unsigned())).collect();
        let kind = flags & (libc::IFF_TAP | libc::IFF_TUN);
        Ok(Self { file, kind, name, no_buffer: 0, down: 0 })
    }

    fn failed(&self, call: &'static str, source: io::Error) -> DeviceError {
        DeviceError::System { device: self.name.clone(), call, source, hint: "" }
    }
}

fn ioctl(fd: RawFd, call: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: invariant 1.
    let done = unsafe { libc::ioctl(fd, call as libc::Ioctl, std::ptr::from_mut(request)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Brings the interface up.
fn up(request: &mut libc::ifreq) -> io::Result<()> {
    let socket = socket()?;
    ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, request)?;
    #[allow(clippy::cast_possible_truncation, reason = "1")]
    let is_up = libc::IFF_UP as libc::c_short;
    // SAFETY: the call succeeded, so the kernel has filled in this part of the union.
    unsafe { request.ifr_ifru.ifru_flags |= is_up };
    ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, request)
}

impl Port for Tap {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        let Self { file, no_buffer, .. } = self;
        let received =
            frame_each_call::receive(into, no_buffer, |bytes| file.read(bytes).map(Some));
        received.map_err(|error| self.failed("read", error))
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let Self { file, down, .. } = self;
        let sent = frame_each_call::send(from, |bytes| match file.write(bytes) {
            // While the interface is down, and for frames that it finds too short.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {
                *down += 1;
                Ok(())
            }
            written => written.map(drop),
        });
        sent.map_err(|error| self.failed("write", error))
    }

    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        fds.push(self.file.as_raw_fd());
    }

    fn mode(&self) -> String {
        let kind = if self.kind == libc::IFF_TUN { "TUN" } else { "TAP" };
        format!("{kind} interface {}", self.name)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("no_buffer", self.no_buffer);
        visit("down", self.down);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::xdp::testing;
    use fingerpost_packet::frame::Pool;
    use fingerpost_packet::testing::frame_v4;

    /// What comes, until there is a frame that begins so from its 12th byte on.
    fn await_frame(tap: &mut Tap, pool: &Pool, begins: &[u8]) -> Vec<u8> {
        let start = Instant::now();
        loop {
            let mut batch = Batch::new(pool);
            tap.recv(&mut batch).unwrap();
            let found = (0..batch.len()).find(|&i| batch.bytes(i)[12..].starts_with(begins));
            if let Some(i) = found {
                return batch.bytes(i).to_vec();
            }
            assert!(start.elapsed() < Duration::from_secs(5), "no such frame came");
        }
    }

    #[test]
    fn frames_go_to_the_host_and_come_from_it() {
        testing::in_namespace(|| {
            let pool = Pool::new(64, 2048);
            let mut tap = Tap::open("fp0").unwrap();
            testing::ip("addr add 10.9.0.1/24 dev fp0");
            testing::ip("link set fp0 address 02:00:00:00:00:01");
            testing::ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev fp0");
            let socket = UdpSocket::bind("10.9.0.1:4000").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket.send_to(b"hello", "10.9.0.2:4001").unwrap();
            let frame = await_frame(&mut tap, &pool, &[8, 0, 0x45]);
            assert_eq!(
                (&frame[..6], &frame[6..12]),
                (&[2, 0, 0, 0, 0, 2][..], &[2, 0, 0, 0, 0, 1][..])
            );
            assert_eq!(&frame[frame.len() - 5..], b"hello");

            // 0: no UDP checksum.
            let udp = [&[0x0f, 0xa1, 0x0f, 0xa0, 0, 13, 0, 0][..], b"world"].concat();
            let mut answer = frame_v4("10.9.0.2", "10.9.0.1", 64, 17, &udp);
            answer[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            let mut batch = fingerpost_packet::testing::batch(&pool, 0, [&answer[..]]);
            assert_eq!(tap.send(&mut batch).unwrap(), 1);
            let mut bytes = [0; 16];
            let (len, from) = socket.recv_from(&mut bytes).unwrap();
            assert_eq!((&bytes[..len], from.to_string()), (&b"world"[..], "10.9.0.2:4001".into()));

            testing::ip("link set fp0 down");
            let mut batch = fingerpost_packet::testing::batch(&pool, 0, [&answer[..]]);
            assert_eq!((tap.send(&mut batch).unwrap(), tap.down), (1, 1));
            assert_eq!(pool.free(), 64);
            let told = Tap::open("fp0").unwrap_err().to_string();
            assert!(told.contains("another program has it open"), "{told}");
            let told = Tap::open("lo").unwrap_err().to_string();
            assert!(told.starts_with("lo: ioctl(TUNSETIFF): "), "{told}");
            drop(tap);
            assert!(!testing::ip("-o link").contains("fp0"), "it goes with the port");
        });
    }

    #[test]
    fn an_interface_has_what_its_text_describes() {
        testing::in_namespace(|| {
            let pool = Pool::new(64, 2048);
            let text = "fp%d,10.9.0.1/24,ether=02:00:00:00:00:07,mtu=1400";
            let tap = Tap::open(text).unwrap();
            assert_eq!((&*tap.name, tap.mode()), ("fp0", "TAP interface fp0".into()));
            let shown = testing::ip("addr show dev fp0");
            assert!(shown.contains("inet 10.9.0.1/24") && shown.contains("mtu 1400"), "{shown}");
            assert_eq!(testing::mac("fp0"), [2, 0, 0, 0, 0, 7]);
            let found = crate::interface::addresses("fp0").unwrap();
            let own = found.own.unwrap();
            assert_eq!(
                (own.addr, own.prefix.len(), found.mac),
                (0x0a09_0001, 24, Some(Mac([2, 0, 0, 0, 0, 7])))
            );
            testing::ip("route add default via 10.9.0.254 dev fp0");
            let gateway = crate::interface::addresses("fp0").unwrap().gateway;
            assert_eq!(gateway, Some("10.9.0.254".parse().unwrap()));
            assert!(crate::interface::addresses("fp7").is_none());

            let mut tun = Tap::open_as("tun%d,10.8.0.1/24", libc::IFF_TUN).unwrap();
            let socket = UdpSocket::bind("10.8.0.1:4000").unwrap();
            socket.send_to(b"hello", "10.8.0.2:4001").unwrap();
            let start = Instant::now();
            let packet = loop {
                let mut batch = Batch::new(&pool);
                tun.recv(&mut batch).unwrap();
                let found = (0..batch.len()).find(|&i| batch.bytes(i)[0] == 0x45);
                if let Some(i) = found {
                    break batch.bytes(i).to_vec();
                }
                assert!(start.elapsed() < Duration::from_secs(5), "no such packet came");
            };
            assert_eq!((&packet[16..20], &packet[28..]), (&[10, 8, 0, 2][..], &b"hello"[..]));
            for wrong in ["fp1,10.9.0.1/33", "fp1,color=red", "fp1,mtu=x"] {
                let told = Tap::open(wrong).unwrap_err().to_string();
                assert!(told.contains("expected NAME[,ADDRESS/LENGTH]"), "{told}");
            }
        });
    }

    /// UDP payloads of the frames to these neighbors that a queue has, each with the queue's number.
    fn payloads(ports: &mut [Box<dyn Port>], pool: &Pool, into: &mut Vec<(usize, Vec<u8>)>) {
        for (queue, port) in ports.iter_mut().enumerate() {
            let mut batch = Batch::new(pool);
            port.recv(&mut batch).unwrap();
            for i in 0..batch.len() {
                let bytes = batch.bytes(i);
                if bytes[..5] == [2, 0, 0, 7, 0] && bytes[12..14] == [8, 0] {
                    into.push((queue, bytes[42..].to_vec()));
                }
            }
        }
    }

    #[test]
    fn each_flow_comes_on_one_queue_and_every_queue_sends() {
        testing::in_namespace(|| {
            const FLOWS: u8 = 64;
            let pool = Pool::new(256, 2048);
            let mac = [2, 0, 0, 0, 0, 1];
            let mut ports = open_queues("fp0", mac, Some(1400), 2).unwrap();
            assert_eq!(ports.len(), 2);
            assert_eq!(testing::mac("fp0"), mac);
            let shown = testing::ip("-o link show dev fp0");
            assert!(shown.contains("mtu 1400") && shown.contains(",UP"), "{shown}");
            testing::ip("addr add 192.0.2.1/32 dev fp0");
            testing::ip("route add 192.0.2.0/24 dev fp0");
            for n in 2..6 {
                testing::ip(&format!(
                    "neigh add 192.0.2.{n} lladdr 02:00:00:07:00:0{n} nud permanent dev fp0"
                ));
            }

            // A flow for each socket and neighbor, two packets each.
            let sockets: Vec<UdpSocket> = (0..FLOWS / 4)
                .map(|n| UdpSocket::bind(("192.0.2.1", 4000 + u16::from(n))).unwrap())
                .collect();
            let mut wanted = Vec::new();
            for turn in 0..2 {
                for flow in 0..FLOWS {
                    let socket = &sockets[usize::from(flow / 4)];
                    socket.send_to(&[flow, turn], format!("192.0.2.{}:9", 2 + flow % 4)).unwrap();
                    wanted.push(vec![flow, turn]);
                }
            }
            let (start, mut came) = (Instant::now(), Vec::new());
            while came.len() < wanted.len() && start.elapsed() < Duration::from_secs(5) {
                payloads(&mut ports, &pool, &mut came);
            }
            // What would come twice comes now.
            std::thread::sleep(Duration::from_millis(50));
            payloads(&mut ports, &pool, &mut came);
            let mut sorted: Vec<Vec<u8>> = came.iter().map(|(_, bytes)| bytes.clone()).collect();
            sorted.sort();
            wanted.sort();
            assert_eq!(sorted, wanted);
            for queue in 0..2 {
                assert!(came.iter().any(|(on, _)| *on == queue), "queue {queue} has none");
            }
            for (queue, bytes) in &came {
                let other = came.iter().find(|(on, b)| b[0] == bytes[0] && on != queue);
                assert_eq!(other, None, "flow {} stays on its queue", bytes[0]);
            }

            // 0: no UDP checksum.
            let udp = [&[0, 9, 0x0f, 0xa0, 0, 13, 0, 0][..], b"world"].concat();
            let mut answer = frame_v4("192.0.2.2", "192.0.2.1", 64, 17, &udp);
            answer[..6].copy_from_slice(&mac);
            sockets[0].set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            for port in &mut ports {
                let mut batch = fingerpost_packet::testing::batch(&pool, 0, [&answer[..]]);
                assert_eq!(port.send(&mut batch).unwrap(), 1);
                let mut bytes = [0; 16];
                let (len, from) = sockets[0].recv_from(&mut bytes).unwrap();
                assert_eq!(
                    (&bytes[..len], from.to_string()),
                    (&b"world"[..], "192.0.2.2:9".into())
                );
            }

            let _ = ports.pop();
            assert!(testing::ip("-o link").contains("fp0"), "it has a queue still");
            drop(ports);
            assert!(!testing::ip("-o link").contains("fp0"), "it goes with the last queue");
        });
    }

    #[test]
    fn queues_are_of_an_interface_of_our_own() {
        testing::in_namespace(|| {
            let told = |name, mac, mtu, queues| {
                open_queues(name, mac, mtu, queues)
                    .map(|ports| ports.len())
                    .unwrap_err()
                    .to_string()
            };
            let mac = [2, 0, 0, 0, 0, 1];
            let held = open_queues("fp0", mac, None, 2).unwrap();
            testing::ip("tuntap add fp1 mode tap multi_queue");
            for name in ["fp0", "fp1", "lo"] {
                let told = told(name, mac, None, 2);
                let words =
                    format!("{name}: ioctl(TUNSETIFF): Device or resource busy (os error 16)");
                assert_eq!(told, format!("{words} (an interface of that name exists)"));
            }
            drop(held);
            // A process that another test forks holds the descriptors until its exec.
            let gone = || {
                let until = Instant::now() + Duration::from_secs(5);
                while testing::ip("-o link").contains("fp0") && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(10));
                }
                !testing::ip("-o link").contains("fp0")
            };
            assert!(gone());
            assert!(told("fp0", [1, 0, 0, 0, 0, 1], None, 1).contains("no host has such a link"));
            assert!(told("fp0", mac, Some(u32::MAX), 1).contains("an MTU from 68 to 65521"));
            assert!(told("fp0", mac, None, 257).contains("more queues than"));
            assert!(told("", mac, None, 1).contains("No such device"));
            assert!(gone(), "a failure leaves none behind");
            assert_eq!(open_queues("fp0", mac, None, 0).unwrap().len(), 1);
        });
    }
}
