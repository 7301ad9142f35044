//! Multicast groups: a packet in each UDP datagram, to and from a group (Click's `McastSocket`).
//!
//! Source: RFC 1112; the socket options of `ip(7)`. A device is named by GROUP,PORT,SOURCE,SOURCE_PORT,LOOP,RCVBUF,SNDBUF, as the
//!         element `McastSocket` writes it; SOURCE may be empty, and buffers 0 for those of the kernel.
//! Shape:  two non-blocking sockets, one bound to the group and one that sends.
//! Cost:   a system call and a copy a packet.
//!
//! With SOURCE datagrams go out by the interface of this address, and those that this device sent itself do not arrive.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

use fingerpost_packet::device::{DeviceError, Driver, Port};
use fingerpost_packet::frame::Batch;

use crate::frame_each_call;
use crate::interface::socket;
use crate::socket_call::{bind, set_number, set_structure};

pub(crate) const DRIVER: Driver = Driver {
    name: "mcast",
    summary: "packets in UDP datagrams to and from a multicast group: GROUP,PORT,SOURCE,SOURCE_PORT,LOOP,RCVBUF,SNDBUF",
    in_rings: 0,
    external: true,
    open: |spec| Ok(vec![Box::new(Mcast::open(spec.name)?)]),
};

/// What the name of a device consists of.
struct Named {
    group: SocketAddrV4,
    source: Option<Ipv4Addr>,
    source_port: u16,
    looped: bool,
    receive_bytes: i32,
    send_bytes: i32,
}

impl Named {
    fn read(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.split(',').map(str::trim).collect();
        let [group, port, source, source_port, looped, receive, send] = parts[..] else {
            return None;
        };
        let group: Ipv4Addr = group.parse().ok().filter(Ipv4Addr::is_multicast)?;
        let source = if source.is_empty() { None } else { Some(source.parse().ok()?) };
        Some(Self {
            group: SocketAddrV4::new(group, port.parse().ok()?),
            source,
            source_port: source_port.parse().ok()?,
            looped: looped.parse().ok()?,
            receive_bytes: receive.parse().ok()?,
            send_bytes: send.parse().ok()?,
        })
    }
}

/// Both sockets of a group.
#[derive(Debug)]
struct Mcast {
    receiver: UdpSocket,
    sender: UdpSocket,
    group: SocketAddrV4,
    /// Address of our own datagrams, which do not arrive.
    ours: Option<SocketAddr>,
    name: String,
    /// No frame was free to read into.
    no_buffer: u64,
    /// Datagrams longer than a frame of the pool.
    too_long: u64,
}

impl Mcast {
    fn open(name: &str) -> Result<Self, DeviceError> {
        let named = Named::read(name).ok_or_else(|| DeviceError::Unfit {
            device: name.into(),
            what: "expected GROUP,PORT,SOURCE,SOURCE_PORT,LOOP,RCVBUF,SNDBUF, as \
                   233.252.0.0,1234,127.0.0.1,0,true,0,0"
                .into(),
        })?;
        let failed = |call| {
            move |source: io::Error| {
                let hint = match source.kind() {
                    ErrorKind::AddrNotAvailable => " (no interface has the source address)",
                    _ if source.raw_os_error() == Some(libc::ENODEV) => {
                        " (no route leads to the group: add one, or name a source address)"
                    }
                    _ => "",
                };
                DeviceError::System { device: name.into(), call, source, hint }
            }
        };
        let Named { group, source, source_port, .. } = named;
        let (receiver, sender) =
            (socket().map_err(failed("socket"))?, socket().map_err(failed("socket"))?);
        let buffer = |socket, option, bytes: i32| match bytes {
            0 => Ok(()),
            bytes => set_number(socket, (libc::SOL_SOCKET, option), bytes),
        };
        buffer(&receiver, libc::SO_RCVBUF, named.receive_bytes)
            .and_then(|()| buffer(&sender, libc::SO_SNDBUF, named.send_bytes))
            .map_err(failed("setsockopt(SO_RCVBUF, SO_SNDBUF)"))?;
        // Several programs of this host may be in the group.
        set_number(&receiver, (libc::SOL_SOCKET, libc::SO_REUSEADDR), 1)
            .map_err(failed("setsockopt(SO_REUSEADDR)"))?;
        bind(&receiver, &SocketAddr::V4(group).into()).map_err(failed("bind"))?;
        if let Some(source) = source {
            bind(&sender, &SocketAddr::from((source, source_port)).into())
                .map_err(failed("bind"))?;
            let interface = libc::in_addr { s_addr: source.to_bits().to_be() };
            set_structure(&sender, &interface).map_err(failed("setsockopt(IP_MULTICAST_IF)"))?;
        }
        let (receiver, sender) = (UdpSocket::from(receiver), UdpSocket::from(sender));
        let interface = source.unwrap_or(Ipv4Addr::UNSPECIFIED);
        receiver
            .join_multicast_v4(group.ip(), &interface)
            .map_err(failed("setsockopt(IP_ADD_MEMBERSHIP)"))?;
        sender
            .set_multicast_loop_v4(named.looped)
            .map_err(failed("setsockopt(IP_MULTICAST_LOOP)"))?;
        for socket in [&receiver, &sender] {
            socket.set_nonblocking(true).map_err(failed("ioctl(FIONBIO)"))?;
        }
        let ours = match source {
            Some(_) => Some(sender.local_addr().map_err(failed("getsockname"))?),
            None => None,
        };
        Ok(Self { receiver, sender, group, ours, name: name.into(), no_buffer: 0, too_long: 0 })
    }

    fn failed(&self, call: &'static str, source: io::Error) -> DeviceError {
        DeviceError::System { device: self.name.clone(), call, source, hint: "" }
    }
}

impl Port for Mcast {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        let Self { receiver, ours, no_buffer, too_long, .. } = self;
        let received = frame_each_call::receive(into, no_buffer, |bytes| {
            let (len, from) = receiver.recv_from(bytes)?;
            // The rest of a longer one is cut off.
            let whole = len < bytes.len();
            *too_long += u64::from(!whole);
            Ok(Some(len).filter(|_| whole && Some(from) != *ours))
        });
        received.map_err(|error| self.failed("recvfrom", error))
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let Self { sender, group, .. } = self;
        let sent = frame_each_call::send(from, |bytes| sender.send_to(bytes, *group).map(drop));
        sent.map_err(|error| self.failed("sendto", error))
    }

    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        fds.push(self.receiver.as_raw_fd());
    }

    fn mode(&self) -> String {
        format!("multicast group {}", self.group)
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("no_buffer", self.no_buffer);
        visit("too_long", self.too_long);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use fingerpost_packet::frame::Pool;
    use fingerpost_packet::testing::batch;

    fn received(port: &mut Mcast, pool: &Pool, patience: Duration) -> Vec<Vec<u8>> {
        let start = Instant::now();
        loop {
            let mut batch = Batch::new(pool);
            if port.recv(&mut batch).unwrap() > 0 || start.elapsed() > patience {
                return (0..batch.len()).map(|i| batch.bytes(i).to_vec()).collect();
            }
        }
    }

    #[test]
    fn a_group_receives_what_others_send() {
        let pool = Pool::new(64, 2048);
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let name = format!("233.252.0.1,{free},127.0.0.1,0,true,0,4096");
        let (mut a, mut b) = (Mcast::open(&name).unwrap(), Mcast::open(&name).unwrap());
        assert_eq!(a.send(&mut batch(&pool, 0, [&[7_u8; 10][..], &[8; 900]])).unwrap(), 2);
        let seen = received(&mut b, &pool, Duration::from_secs(5));
        assert_eq!(seen, [vec![7; 10], vec![8; 900]]);
        assert_eq!(received(&mut a, &pool, Duration::from_millis(20)), [[0_u8; 0]; 0], "its own");
        assert_eq!(pool.free(), 64);
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        for name in
            ["", "10.0.0.1,1,,0,true,0,0", "233.252.0.1,1,,0,true,0", "233.252.0.1,x,,0,true,0,0"]
        {
            let error = Mcast::open(name).unwrap_err().to_string();
            assert!(error.contains("expected GROUP,PORT"), "{error}");
        }
    }
}
