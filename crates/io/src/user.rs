//! Users: the one that this process acts for, and that of the process at the other end of a Unix socket.
//!
//! Source: geteuid(2), unix(7) (`SO_PEERCRED`).
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. Pointers passed to a call point to live values of the type that it expects, with their length beside them.

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The user who may do everything.
pub(crate) const ROOT: u32 = 0;

/// The user that this process acts for.
pub(crate) fn own() -> u32 {
    // SAFETY: takes no pointers and cannot fail.
    unsafe { libc::geteuid() }
}

/// The user of the process that connected, or that listened when it was connected to.
pub(crate) fn of_peer(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).map_err(io::Error::other)?;
    let (value, len) = ((&raw mut peer).cast(), &raw mut len);
    let (fd, level, option) = (stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: invariant 1.
    let got = unsafe { libc::getsockopt(fd, level, option, value, len) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(peer.uid) }
}

/// Whether processes of this user may exchange frames with this one: those of the same user, and of root.
pub(crate) fn is_trusted(user: u32) -> bool {
    user == ROOT || user == own()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_of_a_pair_is_this_user() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(of_peer(&one).unwrap(), own());
        assert!(is_trusted(own()) && is_trusted(ROOT) && !is_trusted(own() + 1));
    }
}
