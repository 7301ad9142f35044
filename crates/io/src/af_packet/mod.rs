//! Packet sockets: for devices that have no AF_XDP.
//!
//! Source: packet(7). In two forms. The driver of a graph's device sends whole Ethernet frames and receives them from a
//! ring (`block_ring.rs`); the kernel gets each of them as well, so that the interface should have no addresses. The
//! built-in router ([`open`]) only sends, by VLAN, tunnel, WireGuard or PPP: the Ethernet header that it has written is
//! taken off again and the kernel builds what the device needs, tag and all, from the link address on Ethernet-like
//! devices, from nothing on those that carry bare IP packets; what arrives there is the kernel's.
//! Limits of frames that this host sends, where they are received as well (`outbound`): those that the interface would give
//! checksums, or cut (TSO), come without them, and longer ones than a frame of the pool are counted as too long.
//! Cost: a copy and some 2.5 us a packet, a system call per 64.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. Structures handed to the kernel are the C ones, zero where not set; what they point to lives
//!    through the call and has the size given.
//! 2. A descriptor that the kernel returns is new and ours alone.
//! 3. The kernel only reads what a message's parts point to, though the C type is `*mut`.

mod block_ring;

use std::cell::Cell;
use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use block_ring::BlockRing;

use super::interface::{index_of, request};
use super::socket_call::{self, set_number};
use fingerpost_packet::device::{DeviceError, Driver, Port};
use fingerpost_packet::frame::Batch;

pub(crate) const DRIVER: Driver = Driver {
    name: "af_packet",
    summary: "a network interface by a packet socket, beside the kernel, which gets what is received as well: NAME[,outbound] (what it sends, too); needs root",
    in_rings: 0,
    external: true,
    open: |spec| {
        let (name, outbound) = match spec.name.strip_suffix(OUTBOUND) {
            Some(name) => (name, true),
            None => (spec.name, false),
        };
        let ifindex = index_of(name).map_err(|source| DeviceError::System {
            device: name.into(),
            call: "if_nametoindex",
            source,
            hint: "",
        })?;
        Ok(vec![Box::new(open_as(name, ifindex, Wants::Frames { outbound })?)])
    },
};

/// What stands behind the name of an interface of which frames are received as well that the kernel sends, or others.
const OUTBOUND: &str = ",outbound";

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Hardware types that `libc` does not name.
const ARPHRD_RAWIP: u16 = 519;
const ARPHRD_IP6GRE: u16 = 823;

#[allow(clippy::cast_possible_truncation, reason = "17")]
const AF_PACKET: libc::sa_family_t = libc::AF_PACKET as libc::sa_family_t;

#[allow(clippy::cast_possible_truncation, reason = "44")]
const ADDRESS_BYTES: libc::socklen_t = size_of::<Address>() as libc::socklen_t;

/// Messages a call.
const MESSAGES: usize = 64;

/// What a device puts before an IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkHeader {
    /// An Ethernet header, for which it needs the destination's address.
    Ethernet,
    /// Nothing: it gets whole frames.
    Ready,
    /// Nothing that we must know: one peer, or found by the kernel.
    None,
}

/// A link address of up to 32 bytes: the kernel wants room for the longest that the device could have
/// (16 bytes for IPv6 tunnels), whether or not it is used.
#[repr(C)]
#[derive(Clone, Copy)]
struct Address {
    fixed: libc::sockaddr_ll,
    more: [u8; 24],
}

/// A socket that sends by one device.
#[derive(Debug)]
pub struct AfPacketPort {
    fd: OwnedFd,
    name: String,
    ifindex: i32,
    header: LinkHeader,
    received: Option<BlockRing>,
    counts: Counts,
}

/// What a port is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// Whole Ethernet frames in both directions, where the device has them; those that others send by it are received as
    /// well where they are `outbound`.
    Frames { outbound: bool },
    /// Packets that the kernel puts a header in front of, sent alone.
    ToSend,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    /// Times that the device or the socket's account was full.
    full: u64,
    /// Times that the device was down.
    down: u64,
    /// Packets that the device would not send, dropped.
    errors: u64,
    /// Frames that found the ring full.
    lost: Cell<u64>,
}

/// Opens a sender on a device of the present network namespace.
///
/// # Errors
/// `System` without the right to, or without the device; `Unfit` for a device of a kind that is
/// neither Ethernet nor bare IP.
pub fn open(name: &str, ifindex: u32) -> Result<AfPacketPort, DeviceError> {
    open_as(name, ifindex, Wants::ToSend)
}

fn open_as(name: &str, ifindex: u32, wants: Wants) -> Result<AfPacketPort, DeviceError> {
    let error = |call, source: io::Error| {
        let hint = match source.raw_os_error() {
            Some(libc::EPERM) => " (needs CAP_NET_RAW)",
            _ => "",
        };
        DeviceError::System { device: name.into(), call, source, hint }
    };
    let mut fd = socket(libc::SOCK_DGRAM).map_err(|e| error("socket(AF_PACKET)", e))?;
    let mut header = match hardware(&fd, name).map_err(|e| error("ioctl(SIOCGIFHWADDR)", e))? {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => LinkHeader::Ethernet,
        libc::ARPHRD_NONE
        | ARPHRD_RAWIP
        | libc::ARPHRD_VOID
        | libc::ARPHRD_PPP
        | libc::ARPHRD_TUNNEL
        | libc::ARPHRD_TUNNEL6
        | libc::ARPHRD_SIT
        | libc::ARPHRD_IPGRE
        | ARPHRD_IP6GRE => LinkHeader::None,
        other => {
            let what =
                format!("hardware type {other}: need Ethernet or a device of bare IP packets");
            return Err(DeviceError::Unfit { device: name.into(), what });
        }
    };
    let ifindex = i32::try_from(ifindex)
        .map_err(|_| error("sendmmsg", io::Error::from_raw_os_error(libc::ENODEV)))?;
    let mut received = None;
    if let Wants::Frames { outbound } = wants
        && header == LinkHeader::Ethernet
    {
        header = LinkHeader::Ready;
        fd = socket(libc::SOCK_RAW).map_err(|e| error("socket(AF_PACKET)", e))?;
        received = Some(BlockRing::new(&fd).map_err(|e| error("setsockopt(PACKET_RX_RING)", e))?);
        let ignores = (libc::PACKET_IGNORE_OUTGOING, libc::c_int::from(!outbound));
        for (option, value) in [ignores, (libc::PACKET_QDISC_BYPASS, 1)] {
            set_number(&fd, (libc::SOL_PACKET, option), value)
                .map_err(|e| error("setsockopt(SOL_PACKET)", e))?;
        }
        // From here on frames come.
        let all = u16::try_from(libc::ETH_P_ALL).expect("3");
        bind(&fd, ifindex, all).map_err(|e| error("bind", e))?;
    }
    Ok(AfPacketPort { fd, name: name.into(), ifindex, header, received, counts: Counts::default() })
}

/// A packet socket that receives nothing yet: its protocol is 0.
pub(crate) fn socket(kind: libc::c_int) -> io::Result<OwnedFd> {
    socket_call::socket(AF_PACKET.into(), kind | libc::SOCK_NONBLOCK)
}

/// Receives what comes by this device with this EtherType.
pub(crate) fn bind(fd: &OwnedFd, ifindex: i32, ethertype: u16) -> io::Result<()> {
    socket_call::bind(fd, &socket_call::Address::link(ifindex, ethertype))
}

/// Frames that the ring had no room for, since the last call.
fn lost(fd: &OwnedFd) -> u64 {
    let mut stats = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
    let Ok(mut bytes) = libc::socklen_t::try_from(size_of_val(&stats)) else { return 0 };
    // SAFETY: invariant 1.
    let done = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut bytes,
        )
    };
    if done < 0 { 0 } else { stats.tp_drops.into() }
}

/// The device's hardware type (`ARPHRD_...`).
fn hardware(fd: &OwnedFd, name: &str) -> io::Result<u16> {
    let mut request = request(name)?;
    // SAFETY: invariant 1.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFHWADDR as libc::Ioctl, &raw mut request) }
        < 0
    {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the kernel has filled in this part of the union.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
}

impl AfPacketPort {
    /// Where a frame goes, for the kernel.
    fn address(&self, frame: &[u8]) -> Address {
        let mut address = Address {
            fixed: libc::sockaddr_ll {
                sll_family: AF_PACKET,
                sll_protocol: u16::from_ne_bytes([frame[12], frame[13]]),
                sll_ifindex: self.ifindex,
                sll_hatype: 0,
                sll_pkttype: 0,
                sll_halen: 0,
                sll_addr: [0; 8],
            },
            more: [0; 24],
        };
        if self.header == LinkHeader::Ethernet {
            address.fixed.sll_halen = 6;
            address.fixed.sll_addr[..6].copy_from_slice(&frame[..6]);
        }
        address
    }

    /// Sends some packets from the front, each longer than an Ethernet header; returns how many.
    fn submit(&self, from: &Batch, count: usize) -> io::Result<usize> {
        let count = count.min(MESSAGES);
        // SAFETY: integers and pointers: all bits zero are valid.
        let mut messages: [libc::mmsghdr; MESSAGES] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut parts: [libc::iovec; MESSAGES] = unsafe { std::mem::zeroed() };
        // SAFETY: integers alone.
        let mut addresses: [Address; MESSAGES] = unsafe { std::mem::zeroed() };
        for i in 0..count {
            let frame = from.bytes(i);
            let whole = self.header == LinkHeader::Ready;
            let packet = if whole { frame } else { &frame[ETHERNET..] };
            addresses[i] = self.address(frame);
            parts[i] =
                libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
            let message = &mut messages[i].msg_hdr;
            message.msg_name = (&raw mut addresses[i]).cast();
            message.msg_namelen = ADDRESS_BYTES;
            message.msg_iov = &raw mut parts[i];
            message.msg_iovlen = 1;
        }
        // SAFETY: invariants 1 and 3: the arrays and the batch outlive the call.
        let sent = unsafe {
            libc::sendmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                libc::c_uint::try_from(count).expect("at most 64"),
                libc::MSG_DONTWAIT as _,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl Port for AfPacketPort {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        Ok(self.received.as_mut().map_or(0, |ring| ring.receive(into)))
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let before = from.len();
        while !from.is_empty() {
            let whole = (0..from.len()).take_while(|&i| from.frame_len(i) > ETHERNET).count();
            if whole == 0 {
                self.counts.errors += 1;
                from.free_front(1);
                continue;
            }
            let error = match self.submit(from, whole) {
                // After fewer than were offered the next call returns the reason.
                Ok(sent) => {
                    from.free_front(sent);
                    continue;
                }
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                    self.counts.full += 1;
                    break;
                }
                Some(libc::ENETDOWN) => {
                    self.counts.down += 1;
                    break;
                }
                Some(libc::ENXIO | libc::ENODEV | libc::EBADF) => {
                    return Err(DeviceError::System {
                        device: self.name.clone(),
                        call: "sendmmsg",
                        source: error,
                        hint: " (the interface is gone)",
                    });
                }
                // This packet never will: too long, or of a protocol that the device refuses.
                _ => {
                    self.counts.errors += 1;
                    from.free_front(1);
                }
            }
        }
        Ok(before - from.len())
    }

    /// One that only sends never becomes readable; naming it keeps the worker from looking again and again.
    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        fds.push(self.fd.as_raw_fd());
    }

    fn mode(&self) -> String {
        match self.header {
            LinkHeader::Ready => "packet socket, frames from a ring".into(),
            LinkHeader::Ethernet => "packet socket, Ethernet; sends only".into(),
            LinkHeader::None => "packet socket, bare IP; sends only".into(),
        }
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("tx_full", self.counts.full);
        visit("tx_down", self.counts.down);
        visit("tx_errors", self.counts.errors);
        if let Some(ring) = &self.received {
            // The kernel counts from zero each time.
            self.counts.lost.set(self.counts.lost.get() + lost(&self.fd));
            visit("rx_lost", self.counts.lost.get());
            visit("rx_too_long", ring.too_long);
            visit("no_buffer", ring.no_buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::FromRawFd;
    use std::os::fd::IntoRawFd;

    use super::*;
    use crate::xdp::testing;
    use fingerpost_packet::device::DeviceSpec;
    use fingerpost_packet::frame::Pool;

    /// The far end of a device of our own making: what it is given to send can be read.
    fn tunnel(name: &str, kind: libc::c_int) -> File {
        let fd = File::options().read(true).write(true).open("/dev/net/tun").unwrap();
        // SAFETY: integers and a pointer: all bits zero are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI).try_into().unwrap();
        // SAFETY: invariant 1.
        let made = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw const request) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        let fd = fd.into_raw_fd();
        // SAFETY: an open descriptor of ours.
        unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
        testing::ip(&format!("link set {name} up mtu 1280"));
        // SAFETY: invariant 2: it was given up above.
        unsafe { File::from_raw_fd(fd) }
    }

    fn read(file: &mut File) -> Option<Vec<u8>> {
        let mut buffer = [0; 4096];
        match file.read(&mut buffer) {
            Ok(count) => Some(buffer[..count].to_vec()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
            Err(e) => panic!("{e}"),
        }
    }

    const TO: [u8; 6] = [2, 0, 0, 0, 0, 7];

    /// An Ethernet frame around something like an IP packet of `len` bytes.
    fn put(batch: &mut Batch, kind: u16, len: usize) -> Vec<u8> {
        let mut packet = batch.pool().alloc().unwrap();
        packet.set_len(ETHERNET + len);
        let bytes = packet.bytes_mut();
        bytes.fill(u8::try_from(len % 251).unwrap());
        bytes[..6].copy_from_slice(&TO);
        bytes[6..12].fill(0xee);
        bytes[12..14].copy_from_slice(&kind.to_be_bytes());
        if len > 0 {
            bytes[14] = if kind == 0x0800 { 0x45 } else { 0x60 };
        }
        let content = bytes[14..].to_vec();
        batch.push(packet).unwrap();
        content
    }

    fn stat(port: &AfPacketPort, name: &str) -> u64 {
        let mut found = None;
        port.stats(&mut |n, value| found = found.or((n == name).then_some(value)));
        found.unwrap()
    }

    #[test]
    fn a_row_of_the_registry_opens_it() {
        testing::in_namespace(|| {
            let _far = tunnel("t0", libc::IFF_TUN);
            let pool = Pool::new(8, 2048);
            let spec =
                |name| DeviceSpec { name, queues: (0, 1), pools: std::slice::from_ref(&pool) };
            let ports = (DRIVER.open)(&spec("t0")).unwrap();
            let mut fds = Vec::new();
            ports[0].wait_fds(&mut fds);
            assert_eq!((ports.len(), fds.len()), (1, 1));
            assert!((DRIVER.open)(&spec("t1")).is_err());
        });
    }

    #[test]
    fn what_others_send_is_received_where_that_is_wished() {
        testing::in_namespace(|| {
            let _far = tunnel("e0", libc::IFF_TAP);
            let pool = Pool::new(64, 2048);
            let open = |name| {
                let spec = DeviceSpec { name, queues: (0, 1), pools: std::slice::from_ref(&pool) };
                (DRIVER.open)(&spec).unwrap().remove(0)
            };
            let (mut both, mut alone) = (open("e0,outbound"), open("e0"));
            let mut kernel = super::open("e0", testing::ifindex("e0")).unwrap();
            let mut batch = Batch::new(&pool);
            put(&mut batch, 0x0800, 90);
            kernel.send(&mut batch).unwrap();
            let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
            let mut came = Vec::new();
            while !came.contains(&104) {
                assert!(std::time::Instant::now() < until, "{came:?}");
                both.recv(&mut batch).unwrap();
                came.extend((0..batch.len()).map(|i| batch.frame_len(i)));
                batch.clear();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            assert_eq!(alone.recv(&mut batch).unwrap(), 0);
            assert!(open_as("e1", 1, Wants::Frames { outbound: true }).is_err());
        });
    }

    /// Frames come whole and go whole: in order, of every length, with the tag that the kernel took off, and not
    /// our own ones.
    #[test]
    fn whole_frames_come_from_the_ring() {
        testing::in_namespace(|| {
            let mut far = tunnel("e0", libc::IFF_TAP);
            let pool = Pool::new(512, 2048);
            let mut port =
                open_as("e0", testing::ifindex("e0"), Wants::Frames { outbound: false }).unwrap();
            assert_eq!(port.mode(), "packet socket, frames from a ring");
            let frame = |len: usize, number: u8| {
                let mut frame = vec![number; len];
                frame[12..14].copy_from_slice(&[8, 0]);
                frame
            };
            let mut sent: Vec<_> = (0..200).map(|i| frame(60 + usize::from(i) * 6, i)).collect();
            let mut tagged = frame(64, 201);
            tagged[12..18].copy_from_slice(&[0x81, 0, 0x20, 5, 8, 0]);
            sent.push(tagged);
            for frame in &sent {
                std::io::Write::write_all(&mut far, frame).unwrap();
            }
            let mut batch = Batch::new(&pool);
            put(&mut batch, 0x0800, 90);
            port.send(&mut batch).unwrap();
            let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
            let mut came: Vec<Vec<u8>> = Vec::new();
            while came.len() < sent.len() {
                assert!(std::time::Instant::now() < until, "{} of {}", came.len(), sent.len());
                batch.set_limit(7);
                port.recv(&mut batch).unwrap();
                came.extend((0..batch.len()).map(|i| batch.bytes(i).to_vec()));
                batch.clear();
            }
            assert_eq!(came, sent);
            assert_eq!(read(&mut far).map(|frame| frame.len()), Some(104));
            std::thread::sleep(std::time::Duration::from_millis(10));
            assert_eq!(port.recv(&mut batch).unwrap(), 0, "what we sent does not come back");
            let counts = ["rx_lost", "rx_too_long", "no_buffer"].map(|name| stat(&port, name));
            assert_eq!((counts, pool.free()), ([0; 3], 512));
        });
    }

    /// Many times what the ring holds: blocks are used again and again, and what finds none is counted.
    #[test]
    fn blocks_go_round_and_losses_are_counted() {
        testing::in_namespace(|| {
            let mut far = tunnel("e0", libc::IFF_TAP);
            let pool = Pool::new(16, 2048);
            let mut port =
                open_as("e0", testing::ifindex("e0"), Wants::Frames { outbound: false }).unwrap();
            let mut batch = Batch::new(&pool);
            let (mut came, mut next) = (0_u64, 0_u64);
            let mut frame = [0x11; 1500];
            for turn in 0..6_000_u64 {
                frame[20..28].copy_from_slice(&turn.to_be_bytes());
                std::io::Write::write_all(&mut far, &frame).unwrap();
                // Nobody reads for a while, which is more than the ring holds.
                if (2_000..4_000).contains(&turn) {
                    continue;
                }
                while port.recv(&mut batch).unwrap() > 0 {
                    for i in 0..batch.len() {
                        let number = u64::from_be_bytes(batch.bytes(i)[20..28].try_into().unwrap());
                        assert!(number >= next, "in order");
                        next = number + 1;
                    }
                    came += batch.len() as u64;
                    batch.clear();
                }
            }
            let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
            while came + stat(&port, "rx_lost") < 6_000 {
                assert!(std::time::Instant::now() < until, "{came} of 6000");
                came += port.recv(&mut batch).unwrap() as u64;
                batch.clear();
            }
            assert_eq!(came + stat(&port, "rx_lost"), 6_000);
            assert!(stat(&port, "rx_lost") > 0 && came > 4_000, "{came} came");
        });
    }

    #[test]
    fn bare_devices_get_the_packet_alone() {
        testing::in_namespace(|| {
            let mut far = tunnel("t0", libc::IFF_TUN);
            let mut port = open("t0", testing::ifindex("t0")).unwrap();
            assert_eq!(port.mode(), "packet socket, bare IP; sends only");
            let pool = Pool::new(256, 2048);
            let mut batch = Batch::new(&pool);
            // More than a call takes, both families, one too long and one too short in between.
            let mut expected = Vec::new();
            for i in 0..150 {
                let kind = if i % 3 == 0 { 0x86dd } else { 0x0800 };
                expected.push(put(&mut batch, kind, 40 + i));
                if i == 70 {
                    put(&mut batch, kind, 1281);
                    put(&mut batch, kind, 0);
                }
            }
            assert_eq!(port.send(&mut batch).unwrap(), 152);
            for packet in expected {
                assert_eq!(read(&mut far), Some(packet));
            }
            assert_eq!((read(&mut far), stat(&port, "tx_errors")), (None, 2));
            assert_eq!((batch.len(), pool.free()), (0, 256));
            assert_eq!(port.recv(&mut batch).unwrap(), 0);
        });
    }

    #[test]
    fn ethernet_devices_get_a_header_of_their_own() {
        testing::in_namespace(|| {
            let mut far = tunnel("e0", libc::IFF_TAP);
            let own = testing::mac("e0");
            let mut port = open("e0", testing::ifindex("e0")).unwrap();
            assert_eq!(port.mode(), "packet socket, Ethernet; sends only");
            let pool = Pool::new(8, 2048);
            let mut batch = Batch::new(&pool);
            let packet = put(&mut batch, 0x0800, 1280);
            assert_eq!(port.send(&mut batch).unwrap(), 1);
            let expected = [&TO[..], &own, &[8, 0], &packet].concat();
            assert_eq!(read(&mut far), Some(expected));
        });
    }

    #[test]
    fn what_cannot_go_now_stays_and_a_lost_device_is_told() {
        testing::in_namespace(|| {
            let far = tunnel("t0", libc::IFF_TUN);
            let mut port = open("t0", testing::ifindex("t0")).unwrap();
            let pool = Pool::new(8, 2048);
            let mut batch = Batch::new(&pool);
            put(&mut batch, 0x0800, 60);
            testing::ip("link set t0 down");
            assert_eq!(port.send(&mut batch).unwrap(), 0);
            assert_eq!((batch.len(), stat(&port, "tx_down")), (1, 1));
            testing::ip("link set t0 up");
            assert_eq!(port.send(&mut batch).unwrap(), 1);
            drop(far);
            put(&mut batch, 0x0800, 60);
            let error = port.send(&mut batch).unwrap_err().to_string();
            assert!(error.ends_with("(the interface is gone)"), "{error}");
            assert_eq!(batch.len(), 1);
            let error = open("t0", 77).unwrap_err().to_string();
            assert!(error.starts_with("t0: ioctl(SIOCGIFHWADDR): "), "{error}");
        });
    }

    /// A slow device behind a short queue: what it refuses is counted, stays, and goes later.
    #[test]
    fn a_full_device_leaves_packets_in_the_batch() {
        testing::in_namespace(|| {
            let mut far = tunnel("t0", libc::IFF_TUN);
            testing::run("tc", "qdisc add dev t0 root tbf rate 8mbit burst 3000 limit 3000");
            let mut port = open("t0", testing::ifindex("t0")).unwrap();
            let pool = Pool::new(64, 2048);
            let mut batch = Batch::new(&pool);
            let expected: Vec<_> = (0..40).map(|i| put(&mut batch, 0x0800, 1000 + i)).collect();
            let (mut got, mut first) = (Vec::new(), None);
            let start = std::time::Instant::now();
            while got.len() < expected.len() {
                let sent = port.send(&mut batch).unwrap();
                first.get_or_insert(sent);
                got.extend(std::iter::from_fn(|| read(&mut far)));
                assert!(start.elapsed() < std::time::Duration::from_secs(10), "{}", got.len());
            }
            assert_eq!(got, expected, "each once, in order");
            assert!(first < Some(40) && stat(&port, "tx_full") > 0, "{first:?}");
            assert_eq!((stat(&port, "tx_errors"), pool.free()), (0, 64));
        });
    }
}
