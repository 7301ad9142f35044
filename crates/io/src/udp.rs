//! UDP tunnels: an Ethernet frame in each datagram, between two addresses.
//!
//! Source: the links of virtual machines and network simulators: `-netdev dgram` of QEMU (dgram(local, remote)), the UDP
//!         NIO of GNS3 and Dynamips. No header precedes the frame; RFC 768 carries it.
//! Shape:  a connected, non-blocking socket; a frame each datagram. A datagram of another sender does not arrive.
//! Cost:   a system call and a copy a packet, about 2 us: for links between processes and hosts that need no privilege.
//!
//! A frame as long as those of the pool, or longer, is dropped and counted, as is one that the socket refuses as too long.
//! While nobody listens at the other end, frames are lost as on a cable that is not plugged in.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

use fingerpost_packet::device::{DeviceError, Driver, Port};

use crate::frame_each_call;
use fingerpost_packet::frame::Batch;

pub(crate) const DRIVER: Driver = Driver {
    name: "udp",
    summary: "Ethernet frames in UDP datagrams, as QEMU and GNS3 link machines: LOCAL,REMOTE, two ADDRESS:PORT",
    in_rings: 0,
    external: true,
    open: |spec| Ok(vec![Box::new(Udp::open(spec.name)?)]),
};

/// A tunnel's end.
#[derive(Debug)]
struct Udp {
    socket: UdpSocket,
    name: String,
    counts: Counts,
}

/// Frames that were lost.
#[derive(Debug, Default)]
struct Counts {
    /// None was free to read into.
    no_buffer: u64,
    /// Longer than a frame of the pool, or than a datagram may be.
    too_long: u64,
    /// Nobody listened at the other end.
    refused: u64,
}

impl Udp {
    fn open(name: &str) -> Result<Self, DeviceError> {
        let address = |text: &str| text.trim().parse::<SocketAddr>().ok();
        let ends = name.split_once(',').and_then(|(local, remote)| {
            let ends = (address(local)?, address(remote)?);
            (ends.0.is_ipv4() == ends.1.is_ipv4()).then_some(ends)
        });
        let (local, remote) = ends.ok_or_else(|| DeviceError::Unfit {
            device: name.into(),
            what: "expected LOCAL,REMOTE of one family, as 127.0.0.1:10000,127.0.0.1:10001 or \
                   [::1]:10000,[::1]:10001"
                .into(),
        })?;
        let failed = |call| {
            move |source: io::Error| {
                let hint = match source.kind() {
                    ErrorKind::AddrInUse => " (another program has the local port)",
                    ErrorKind::AddrNotAvailable => " (no interface has the local address)",
                    _ => "",
                };
                DeviceError::System { device: name.into(), call, source, hint }
            }
        };
        let socket = UdpSocket::bind(local).map_err(failed("bind"))?;
        socket.connect(remote).map_err(failed("connect"))?;
        socket.set_nonblocking(true).map_err(failed("ioctl(FIONBIO)"))?;
        Ok(Self { socket, name: name.into(), counts: Counts::default() })
    }

    fn failed(&self, call: &'static str, source: io::Error) -> DeviceError {
        DeviceError::System { device: self.name.clone(), call, source, hint: "" }
    }
}

impl Port for Udp {
    fn recv(&mut self, into: &mut Batch) -> Result<usize, DeviceError> {
        let Self { socket, counts: Counts { no_buffer, too_long, refused }, .. } = self;
        let received =
            frame_each_call::receive(into, no_buffer, |bytes| match socket.recv(bytes) {
                // The rest of a longer one is cut off.
                Ok(len) if len == bytes.len() => {
                    *too_long += 1;
                    Ok(None)
                }
                received => repeated(received, refused).map(Some),
            });
        received.map_err(|error| self.failed("recv", error))
    }

    fn send(&mut self, from: &mut Batch) -> Result<usize, DeviceError> {
        let Self { socket, counts: Counts { too_long, refused, .. }, .. } = self;
        let sent = frame_each_call::send(from, |bytes| match socket.send(bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                *too_long += 1;
                Ok(())
            }
            sent => repeated(sent, refused).map(drop),
        });
        sent.map_err(|error| self.failed("send", error))
    }

    fn wait_fds(&self, fds: &mut Vec<RawFd>) {
        fds.push(self.socket.as_raw_fd());
    }

    fn mode(&self) -> String {
        "UDP tunnel".into()
    }

    fn stats(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("no_buffer", self.counts.no_buffer);
        visit("too_long", self.counts.too_long);
        visit("refused", self.counts.refused);
    }
}

/// The result of a call, which is to be repeated where it is the error of an earlier frame: the other end, or a router on
/// the path, reported that the address is not reached.
fn repeated(result: io::Result<usize>, refused: &mut u64) -> io::Result<usize> {
    use ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    result.map_err(|error| match error.kind() {
        ConnectionRefused | HostUnreachable | NetworkUnreachable => {
            *refused += 1;
            ErrorKind::Interrupted.into()
        }
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use fingerpost_packet::frame::Pool;
    use fingerpost_packet::testing::batch;

    /// Two ends on loopback, linked with each other.
    fn pair() -> (Udp, Udp) {
        // Two ports that are free now: the sockets that had them are gone when the ends open.
        let [a, b] = {
            let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
            sockets.map(|socket| socket.local_addr().unwrap())
        };
        let open = |local, remote| Udp::open(&format!("{local},{remote}")).unwrap();
        (open(a, b), open(b, a))
    }

    fn received(port: &mut Udp, pool: &Pool) -> Vec<Vec<u8>> {
        let start = Instant::now();
        loop {
            let mut batch = Batch::new(pool);
            if port.recv(&mut batch).unwrap() > 0 || start.elapsed() > Duration::from_secs(5) {
                return (0..batch.len()).map(|i| batch.bytes(i).to_vec()).collect();
            }
        }
    }

    #[test]
    fn frames_cross_both_ways() {
        let pool = Pool::new(64, 2048);
        let (mut a, mut b) = pair();
        let frames = [&[1_u8; 60][..], &[2; 1514]];
        assert_eq!(a.send(&mut batch(&pool, 0, frames)).unwrap(), 2);
        assert_eq!(received(&mut b, &pool), frames);
        assert_eq!(b.send(&mut batch(&pool, 0, [&[3_u8; 70][..]])).unwrap(), 1);
        assert_eq!(received(&mut a, &pool), [vec![3; 70]]);
        assert_eq!(a.recv(&mut Batch::new(&pool)).unwrap(), 0);
        assert_eq!(pool.free(), 64);
    }

    #[test]
    fn losses_are_counted_and_end_nothing() {
        let (large, small) = (Pool::new(8, 4096), Pool::new(8, 2048));
        let (mut a, mut b) = pair();
        a.send(&mut batch(&large, 0, [&[1_u8; 3000][..], &[2; 100]])).unwrap();
        assert_eq!(received(&mut b, &small), [vec![2; 100]]);
        assert_eq!((b.counts.too_long, small.free()), (1, 8));
        drop(b);
        for _ in 0..3 {
            assert_eq!(a.send(&mut batch(&large, 0, [&[1_u8; 60][..]])).unwrap(), 1);
        }
        assert_eq!(a.recv(&mut Batch::new(&large)).unwrap(), 0);
        assert!(a.counts.refused > 0);
        assert_eq!(large.free(), 8);
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_an_example() {
        for name in ["", "127.0.0.1:1", "127.0.0.1:1,[::1]:2", "a:1,b:2"] {
            let error = Udp::open(name).unwrap_err().to_string();
            assert!(error.contains("expected LOCAL,REMOTE"), "{error}");
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let taken = format!("{},127.0.0.1:9", socket.local_addr().unwrap());
        let error = Udp::open(&taken).unwrap_err().to_string();
        assert!(error.contains("another program has the local port"), "{error}");
    }
}
