//! Places of servers that clients of the tests connect to.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// A connection to an address and port, or to the path of a Unix socket.
///
/// # Errors
/// When nobody listens there.
pub fn connect(place: &str) -> io::Result<UnixStream> {
    match place.contains('/') {
        true => UnixStream::connect(place),
        false => TcpStream::connect(place).map(|stream| UnixStream::from(OwnedFd::from(stream))),
    }
}
