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

/// A control message with one descriptor, and room for a second one: up to where the next message would begin.
#[repr(C)]
struct Rights {
    header: libc::cmsghdr,
    fds: [RawFd; 2],
}

/// Bytes of a message with so many descriptors: what `CMSG_LEN` counts.
const fn rights_len(fds: usize) -> usize {
    size_of::<libc::cmsghdr>() + fds * size_of::<RawFd>()
}

impl Rights {
    fn new(fds: [RawFd; 2], count: usize) -> Self {
        // SAFETY: integers: all bits zero are valid.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        // Each C library has types of its own for lengths.
        header.cmsg_len = rights_len(count) as _;
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_RIGHTS;
        Self { header, fds }
    }

    /// The descriptors that the kernel wrote into it with a message whose control part has so many bytes.
    fn fds(&self, control: usize) -> &[RawFd] {
        let header = &self.header;
        let rights = header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS;
        let bytes: usize = if rights { header.cmsg_len as _ } else { 0 };
        let bytes = bytes.min(control);
        &self.fds[..bytes.saturating_sub(rights_len(0)) / size_of::<RawFd>()]
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
    send(stream, Rights::new([file.as_raw_fd(), -1], 1), words)
}

fn send(stream: &UnixStream, mut rights: Rights, words: &[u8]) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: words.as_ptr().cast_mut().cast(), iov_len: words.len() };
    let control = rights.header.cmsg_len;
    let message = message(&mut part, &mut rights, control as _);
    // SAFETY: invariant 1; the kernel only reads what the parts point to.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    match usize::try_from(sent) {
        Ok(sent) if sent == words.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// What the other end gave: how many bytes came into `words`, and the descriptor if there was one. Where there were
/// several, all are closed: the sender chose how many there are.
pub(super) fn take(stream: &UnixStream, words: &mut [u8]) -> io::Result<(usize, Option<File>)> {
    let mut rights = Rights::new([-1; 2], 0);
    let mut part = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: words.len() };
    let mut message = message(&mut part, &mut rights, size_of::<Rights>());
    // SAFETY: invariant 1.
    let came =
        unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let came = usize::try_from(came).map_err(|_| io::Error::last_os_error())?;
    // Those that there was no room for the kernel has closed, and sets a flag.
    let cut = message.msg_flags & libc::MSG_CTRUNC != 0;
    let fds = rights.fds(message.msg_controllen as _).iter();
    // SAFETY: invariant 2.
    let mut files: Vec<File> = fds.map(|&fd| unsafe { File::from_raw_fd(fd) }).collect();
    Ok((came, files.pop().filter(|_| files.is_empty() && !cut)))
}

/// Points at both, which must outlive it; `control` is how many bytes the second one has for the kernel.
fn message(part: &mut libc::iovec, rights: &mut Rights, control: usize) -> libc::msghdr {
    // SAFETY: integers and pointers: all bits zero are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = std::ptr::from_mut(rights).cast();
    message.msg_controllen = control as _;
    message
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::*;

    #[test]
    fn descriptors_that_are_not_wanted_are_closed() {
        for count in [0, 1, 2] {
            let (one, other) = UnixStream::pair().unwrap();
            let (mut near, far) = UnixStream::pair().unwrap();
            send(&one, Rights::new([far.as_raw_fd(); 2], count), b"ring").unwrap();
            drop(far);
            let mut words = [0; 4];
            let (came, file) = take(&other, &mut words).unwrap();
            assert_eq!((came, &words, file.is_some()), (4, b"ring", count == 1));
            drop(file);
            // The end comes when no descriptor of the far side is left.
            near.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            assert_eq!(near.read(&mut [0]).unwrap(), 0, "{count} descriptors");
        }
    }
}
