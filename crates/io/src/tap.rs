//! TAP interfaces: frames to and from the host's own network stack.
//!
//! Source: the kernel's `Documentation/networking/tuntap.rst`. Opening makes the interface where there is none, brings
//! it up, and takes its only queue; one that this made goes with the port.
//!
//! Shape: a descriptor; a frame each read and write. Offloads are off, so that frames have their checksums.
//! Cost:  a system call and a copy a packet, some 2 us: for what is for the host itself, and for demonstrations.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. Structures handed to the kernel are the C ones, zero where not set, and live through the call.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use fingerpost_packet::device::{DeviceError, Driver, Port};

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

/// A TAP interface.
#[derive(Debug)]
struct Tap {
    file: File,
    name: String,
    /// Frames lost because none was free to read into.
    no_buffer: u64,
    /// Frames that the interface, being down, would not take.
    down: u64,
}

impl Tap {
    fn open(name: &str) -> Result<Self, DeviceError> {
        let failed = |call| {
            move |source: io::Error| {
                let hint = match source.raw_os_error() {
                    Some(libc::EPERM | libc::EACCES) => " (needs CAP_NET_ADMIN)",
                    Some(libc::EBUSY) => " (another program has it open)",
                    Some(libc::EINVAL) => " (not a TAP interface)",
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
        #[allow(clippy::cast_possible_truncation, reason = "both are below 2^15")]
        let flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        request.ifr_ifru.ifru_flags = flags;
        ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request)
            .map_err(failed("ioctl(TUNSETIFF)"))?;
        up(&mut request).map_err(failed("ioctl(SIOCSIFFLAGS)"))?;
        Ok(Self { file, name: name.into(), no_buffer: 0, down: 0 })
    }

    fn failed(&self, call: &'static str, source: io::Error) -> DeviceError {
        DeviceError::System { device: self.name.clone(), call, source, hint: "" }
    }
}

fn ioctl(fd: RawFd, call: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: invariant 1.
    let done = unsafe { libc::ioctl(fd, call, std::ptr::from_mut(request)) };
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
        "TAP interface".into()
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
}
