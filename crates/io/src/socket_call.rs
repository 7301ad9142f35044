//! Calls of sockets: options, addresses, connections.
//!
//! Source: `socket(7)`, `ip(7)`, `ipv6(7)`, `unix(7)`, `packet(7)`.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. What is handed to the kernel lives through the call and has the size given; an address is that of its family.
//! 2. A descriptor that the kernel returns is new and ours alone.
//! 3. An option's value is the C structure that the option takes, and holds no pointer unless the caller answers for it: numbers
//!    hold none, and a structure of [`Plain`] has one option.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// An address, as the C structure of its family lies in memory.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    family: libc::c_int,
    bytes: Vec<u8>,
}

impl Address {
    fn new(family: libc::c_int, parts: &[&[u8]]) -> Self {
        // A family is 16 bits of an address.
        let [low, high, ..] = family.to_le_bytes();
        let mut bytes = u16::from_le_bytes([low, high]).to_ne_bytes().to_vec();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Self { family, bytes }
    }

    /// Interface, and the EtherType of what is received there.
    pub(crate) fn link(ifindex: i32, ethertype: u16) -> Self {
        let parts: [&[u8]; 3] = [&ethertype.to_be_bytes(), &ifindex.to_ne_bytes(), &[0; 12]];
        Self::new(libc::AF_PACKET, &parts)
    }

    /// Path of a Unix socket.
    ///
    /// # Errors
    /// `InvalidInput` for one that is empty, too long, or has a zero in it.
    pub(crate) fn path(path: &str) -> io::Result<Self> {
        if path.is_empty() || path.len() > 107 || path.contains('\0') {
            let words = "the path of a Unix socket has 1 to 107 bytes";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        }
        Ok(Self::new(libc::AF_UNIX, &[path.as_bytes(), &[0]]))
    }
}

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Self {
        let port = addr.port().to_be_bytes();
        match addr {
            SocketAddr::V4(addr) => {
                Self::new(libc::AF_INET, &[&port, &addr.ip().octets(), &[0; 8]])
            }
            SocketAddr::V6(addr) => {
                let (flow, scope) = (addr.flowinfo().to_be_bytes(), addr.scope_id().to_ne_bytes());
                Self::new(libc::AF_INET6, &[&port, &flow, &addr.ip().octets(), &scope])
            }
        }
    }
}

/// A socket, which programs that this one starts do not get.
pub(crate) fn socket(family: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: invariant 2.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A C structure without pointers, which one option takes.
pub(crate) trait Plain {
    /// Level and number of the option.
    const OPTION: (libc::c_int, libc::c_int);
}

impl Plain for libc::in_addr {
    const OPTION: (libc::c_int, libc::c_int) = (libc::IPPROTO_IP, libc::IP_MULTICAST_IF);
}

impl Plain for libc::packet_mreq {
    const OPTION: (libc::c_int, libc::c_int) = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
}

impl Plain for libc::tpacket_req3 {
    const OPTION: (libc::c_int, libc::c_int) = (libc::SOL_PACKET, libc::PACKET_RX_RING);
}

/// Sets the option of a socket that takes this structure.
pub(crate) fn set_structure<T: Plain>(socket: &impl AsFd, value: &T) -> io::Result<()> {
    // SAFETY: invariant 3.
    unsafe { set_option(socket, T::OPTION, value) }
}

/// Sets an option of a socket to a number.
pub(crate) fn set_number(
    socket: &impl AsFd,
    option: (libc::c_int, libc::c_int),
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: invariant 3; the kernel refuses a number where it takes a larger structure.
    unsafe { set_option(socket, option, &value) }
}

/// Sets an option of a socket.
///
/// # Safety
/// `value` is the C structure that the option takes. Memory that it points to lives through the call, or as long as the option
/// has the kernel use it.
pub(crate) unsafe fn set_option<T>(
    socket: &impl AsFd,
    (level, option): (libc::c_int, libc::c_int),
    value: &T,
) -> io::Result<()> {
    let bytes = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let (fd, value) = (socket.as_fd().as_raw_fd(), std::ptr::from_ref(value).cast());
    // SAFETY: invariant 1, and the rest by the caller.
    let done = unsafe { libc::setsockopt(fd, level, option, value, bytes) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Number that an option of a socket is set to.
#[cfg(test)]
pub(crate) fn number(
    socket: &impl AsFd,
    (level, option): (libc::c_int, libc::c_int),
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut bytes =
        libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(io::Error::other)?;
    let (fd, to) = (socket.as_fd().as_raw_fd(), std::ptr::from_mut(&mut value).cast());
    // SAFETY: invariant 1; the kernel writes no more than the size given.
    let done = unsafe { libc::getsockopt(fd, level, option, to, &raw mut bytes) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Binds a socket to an address.
pub(crate) fn bind(socket: &impl AsFd, address: &Address) -> io::Result<()> {
    let bytes = libc::socklen_t::try_from(address.bytes.len()).map_err(io::Error::other)?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: invariant 1.
    let done = unsafe { libc::bind(fd, address.bytes.as_ptr().cast(), bytes) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Connects a new stream socket to an address, from a `local` one where it is given. With `wait` it returns when the other
/// end has accepted; without it the connection may be pending, and may fail later.
///
/// # Errors
/// The kernel's error, of any of the calls.
pub(crate) fn connect(local: Option<&Address>, to: &Address, wait: bool) -> io::Result<OwnedFd> {
    let kind = if wait { libc::SOCK_STREAM } else { libc::SOCK_STREAM | libc::SOCK_NONBLOCK };
    let socket = socket(to.family, kind)?;
    if let Some(local) = local {
        // An address is free again when the connection before it is closed.
        set_number(&socket, (libc::SOL_SOCKET, libc::SO_REUSEADDR), 1)?;
        bind(&socket, local)?;
    }
    let bytes = libc::socklen_t::try_from(to.bytes.len()).map_err(io::Error::other)?;
    // SAFETY: invariant 1.
    let done = unsafe { libc::connect(socket.as_raw_fd(), to.bytes.as_ptr().cast(), bytes) };
    match io::Error::last_os_error() {
        error if done < 0 && error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_are_made_from_the_address_given() {
        for (server, local) in [("127.0.0.1:0", "127.0.0.9:0"), ("[::1]:0", "[::1]:0")] {
            let listener = TcpListener::bind(server).unwrap();
            let to = Address::from(listener.local_addr().unwrap());
            let local: SocketAddr = local.parse().unwrap();
            let connected = TcpStream::from(connect(Some(&local.into()), &to, true).unwrap());
            let (_, from) = listener.accept().unwrap();
            assert_eq!(from, connected.local_addr().unwrap());
            assert_eq!(from.ip(), local.ip());
        }
    }

    #[test]
    fn paths_that_fit_no_address_are_refused() {
        for path in [String::new(), "a\0b".into(), "x".repeat(108)] {
            assert!(Address::path(&path).is_err(), "{path:?}");
        }
    }
}
