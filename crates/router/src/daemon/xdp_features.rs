//! What drivers can do with XDP, as the kernel reports (Linux 6.3 and later).
//!
//! Source: the generic netlink family `netdev`, the kernel's `Documentation/netlink/specs/netdev.yaml`.
//! A driver that does not take what programs send drops it silently, so its features are queried before. A veth
//! takes it only while its peer has a program or GRO, so it is queried again now and then.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fingerpost_route::netlink::{Attrs, ERROR, Messages, Request};

use crate::sys::{Netlink, Received, poll};

/// Runs programs, and lets them redirect (`NETDEV_XDP_ACT_BASIC`, `_REDIRECT`).
const FORWARD: u64 = 1 | 2;
/// Takes what programs redirect to it (`NETDEV_XDP_ACT_NDO_XMIT`).
const TAKE: u64 = 4;

/// The kernel answers at once; this is for one that does not answer at all.
const LONGEST_ANSWER: Duration = Duration::from_secs(1);

/// What a driver can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Features {
    /// Programs in it can forward.
    pub(super) forward: bool,
    /// It sends what programs forward to it.
    pub(super) take: bool,
}

/// The kernel has no such family, and is not queried again: it looks for a module each time.
static UNKNOWN: AtomicBool = AtomicBool::new(false);

/// Reads the features of interfaces from the kernel, in the present network namespace.
pub(super) struct FeatureReader {
    socket: Netlink,
    family: u16,
    buffer: Vec<u8>,
}

/// The controller, which knows the numbers of families; a command and attributes of it.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Command of the family `netdev`.
const GET_DEVICE: u8 = 1;
const INDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;

/// Bytes before the attributes of generic netlink: command, version, two of nothing.
const FIXED: usize = 4;

impl FeatureReader {
    /// # Errors
    /// Also where the kernel has no such family.
    pub(super) fn new() -> io::Result<Self> {
        // Relaxed: a flag without data behind it.
        if UNKNOWN.load(Relaxed) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let socket = Netlink::open(libc::NETLINK_GENERIC, &[])?;
        let mut reader = Self { socket, family: CONTROLLER, buffer: vec![0; 16 << 10] };
        let family = reader.query(GET_FAMILY, FAMILY_NAME, b"netdev\0", FAMILY_ID);
        if family.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            UNKNOWN.store(true, Relaxed);
        }
        let family = family?;
        reader.family = family.first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes));
        Ok(reader)
    }

    /// The features of the interface of this number.
    pub(super) fn of(&mut self, ifindex: u32) -> io::Result<Features> {
        let bits = self.query(GET_DEVICE, INDEX, &ifindex.to_ne_bytes(), XDP_FEATURES)?;
        let bits = bits.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Ok(Features { forward: bits & FORWARD == FORWARD, take: bits & TAKE != 0 })
    }

    /// Attribute `wanted` of the reply to a request about one object.
    fn query(&mut self, command: u8, kind: u16, data: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
        let request = Request::query(self.family, 0, 1).fixed(&[command, 1, 0, 0]);
        self.socket.send(&request.attr(kind, data).finish())?;
        let until = Instant::now() + LONGEST_ANSWER;
        loop {
            let len = match self.socket.recv(&mut self.buffer)? {
                Received::Bytes(len) => len,
                Received::Empty if Instant::now() < until => {
                    poll(&[self.socket.fd()], Duration::from_millis(50));
                    continue;
                }
                _ => return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")),
            };
            let message = Messages::new(&self.buffer[..len]).next();
            let message = message.transpose().map_err(io::Error::other)?;
            let message = message.ok_or(io::ErrorKind::UnexpectedEof)?;
            if message.kind == ERROR {
                let code = message.code().map_err(io::Error::other)?;
                return Err(io::Error::from_raw_os_error(code.cast_signed()));
            }
            let attributes = Attrs::new(message.body.get(FIXED..).unwrap_or_default());
            let found = attributes.filter_map(Result::ok).find(|attr| attr.kind == wanted);
            return found.map(|attr| attr.data.to_vec()).ok_or(io::ErrorKind::NotFound.into());
        }
    }
}
