//! Memory that two processes share, handed over by a Unix socket.
//!
//! Source: memfd_create(2), unix(7) (`SCM_RIGHTS`), fcntl(2) (`F_ADD_SEALS`). The memory is sealed against shrinking,
//! and who receives it looks whether it is: touching memory that another process cut off would end this one.
//!
//! Invariants that the unsafe code of this file relies on:
//! 1. Structures handed to the kernel are the C ones, zero where not set; what they point to lives through the call
//!    and has the size given.
//! 2. A descriptor that the kernel returns is new and ours alone.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// A control message with one descriptor.
#[repr(C)]
struct Rights {
    header: libc::cmsghdr,
    fd: RawFd,
    /// Up to where the next message would begin.
    _rest: [u8; 4],
}

/// Bytes of a message up to the end of its descriptor: what `CMSG_LEN` counts.
const RIGHTS_LEN: usize = size_of::<libc::cmsghdr>() + size_of::<RawFd>();

impl Rights {
    fn new(fd: RawFd, len: usize) -> Self {
        let header = libc::cmsghdr {
            cmsg_len: len,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        };
        Self { header, fd, _rest: [0; 4] }
    }

    /// The descriptor, if it is what the kernel wrote.
    fn fd(&self) -> Option<RawFd> {
        let header = &self.header;
        let rights = header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS;
        (rights && header.cmsg_len == RIGHTS_LEN).then_some(self.fd)
    }
}

/// New memory of that many bytes, all zero, that never shrinks.
pub(super) fn memory(bytes: usize) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a string with its end, and no other pointer.
    let fd = unsafe { libc::memfd_create(c"fingerpost-ring".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: invariant 2.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(bytes as u64)?;
    // SAFETY: no pointers.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
    if sealed < 0 { Err(io::Error::last_os_error()) } else { Ok(file) }
}

/// Whether it has so many bytes and keeps them.
pub(super) fn keeps(file: &File, bytes: usize) -> io::Result<bool> {
    // SAFETY: no pointers.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(seals & libc::F_SEAL_SHRINK != 0 && file.metadata()?.len() >= bytes as u64)
}

/// Hands a descriptor to the other end of a stream, with some bytes.
pub(super) fn give(stream: &UnixStream, file: &File, words: &[u8]) -> io::Result<()> {
    let mut rights = Rights::new(file.as_raw_fd(), RIGHTS_LEN);
    let mut part = libc::iovec { iov_base: words.as_ptr().cast_mut().cast(), iov_len: words.len() };
    let message = message(&mut part, &mut rights);
    // SAFETY: invariant 1; the kernel only reads what the parts point to.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    match usize::try_from(sent) {
        Ok(sent) if sent == words.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// What the other end gave: how many bytes came into `words`, and the descriptor if there was one.
pub(super) fn take(stream: &UnixStream, words: &mut [u8]) -> io::Result<(usize, Option<File>)> {
    let mut rights = Rights::new(-1, 0);
    let mut part = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: words.len() };
    let mut message = message(&mut part, &mut rights);
    // SAFETY: invariant 1.
    let came =
        unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let came = usize::try_from(came).map_err(|_| io::Error::last_os_error())?;
    let file = rights.fd().filter(|_| message.msg_controllen >= RIGHTS_LEN).map(|fd| {
        // SAFETY: invariant 2.
        File::from(unsafe { OwnedFd::from_raw_fd(fd) })
    });
    Ok((came, file))
}

/// Points at both, which must outlive it.
fn message(part: &mut libc::iovec, rights: &mut Rights) -> libc::msghdr {
    // SAFETY: integers and pointers: all bits zero are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = std::ptr::from_mut(rights).cast();
    message.msg_controllen = size_of::<Rights>();
    message
}
