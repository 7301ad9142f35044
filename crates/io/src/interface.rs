//! Properties of an interface: name, number, addresses, receive queues; whether it hides VLAN tags.
//!
//! Source: `ETHTOOL_GCHANNELS`, `ETHTOOL_GFLAGS` in the kernel's `linux/ethtool.h`.
//!
//! The invariant that the unsafe code of this file relies on:
//! 1. The request and the structure it points to are the C ones and outlive the call.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::socket_call;
use fingerpost_lpm::Prefix;
use fingerpost_packet::language::{Around, Named};
use fingerpost_route::Mac;

const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_value`.
#[repr(C)]
struct Flags {
    command: u32,
    flags: u32,
}

/// Receive queues of an interface of the present network namespace: each needs a socket, or its
/// frames go to the kernel. A driver that does not report it has 1.
///
/// # Errors
/// When there is no such interface.
pub fn queues(name: &str) -> io::Result<u32> {
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    // SAFETY: invariant 1: the structure of that command.
    match unsafe { call(name, &mut channels) } {
        Ok(()) => Ok((channels.rx + channels.combined).max(1)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(error) => Err(error),
    }
}

/// Sets an interface to leave VLAN tags in the frames that it receives, where XDP programs see them
/// (`ethtool -K NAME rxvlan off`). Returns whether that changed anything; it lasts.
///
/// # Errors
/// When the driver cannot, or without the right to.
pub fn keep_tags(name: &str) -> io::Result<bool> {
    let mut flags = Flags { command: ETHTOOL_GFLAGS, flags: 0 };
    // SAFETY: invariant 1: the structure of that command.
    unsafe { call(name, &mut flags) }?;
    if flags.flags & ETH_FLAG_RXVLAN == 0 {
        return Ok(false);
    }
    flags = Flags { command: ETHTOOL_SFLAGS, flags: flags.flags & !ETH_FLAG_RXVLAN };
    // SAFETY: invariant 1: the structure of that command.
    unsafe { call(name, &mut flags) }.map(|()| true)
}

/// A request about the interface of that name.
pub(crate) fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: integers and a pointer: all bits zero are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

/// A socket that takes requests about any interface.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    socket_call::socket(libc::AF_INET, libc::SOCK_DGRAM)
}

/// # Safety
/// `T` must be the C structure of the command that it begins with.
unsafe fn call<T>(name: &str, command: &mut T) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(command).cast();
    let fd = socket()?;
    // SAFETY: invariant 1, by the caller.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) }
        < 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// First IPv4 address, link address and default gateway of an interface of the present network namespace; `None` where
/// there is none of that name.
pub fn addresses(name: &str) -> Option<Named> {
    index_of(name).ok()?;
    let socket = socket().ok()?;
    let ask = |call: libc::c_ulong| {
        let mut request = request(name).ok()?;
        // SAFETY: invariant 1.
        let done =
            unsafe { libc::ioctl(socket.as_raw_fd(), call as libc::Ioctl, &raw mut request) };
        // SAFETY: the call succeeded, so the kernel has filled in this part of the union.
        (done >= 0).then(|| unsafe { request.ifr_ifru.ifru_addr.sa_data.map(i8::cast_unsigned) })
    };
    let word = |data: [u8; 14]| u32::from_be_bytes([data[2], data[3], data[4], data[5]]);
    let own = ask(libc::SIOCGIFADDR).zip(ask(libc::SIOCGIFNETMASK)).map(|(addr, mask)| {
        let (addr, mask) = (word(addr), word(mask));
        let length = u8::try_from(mask.leading_ones()).expect("at most 32");
        Around { addr, prefix: Prefix::masked(addr, length) }
    });
    let mac = ask(libc::SIOCGIFHWADDR).and_then(|data| data.first_chunk().copied()).map(Mac);
    Some(Named { own, mac, gateway: gateway(name) })
}

/// Gateway of the default route by an interface.
fn gateway(name: &str) -> Option<Ipv4Addr> {
    // That of the thread, which may be in another namespace than its process.
    let routes = std::fs::read_to_string("/proc/thread-self/net/route").ok()?;
    let rows = routes.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let mut gateways = rows.filter_map(|row| match row[..] {
        // In the machine's order, as the kernel holds it.
        [interface, "00000000", gateway, ..] if interface == name => {
            u32::from_str_radix(gateway, 16).ok().map(|word| Ipv4Addr::from(word.to_ne_bytes()))
        }
        _ => None,
    });
    gateways.find(|gateway| !gateway.is_unspecified())
}

/// The number of an interface of the present network namespace.
///
/// # Errors
/// When there is none of that name.
pub fn index_of(name: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: invariant 1: a string with its end.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        ifindex => Ok(ifindex),
    }
}

/// The name of an interface of the present network namespace; where there is none, its number.
pub fn name_of(ifindex: u32) -> String {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: invariant 1: the buffer has the size that the call requires.
    let found = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr().cast()) };
    match std::ffi::CStr::from_bytes_until_nul(&name) {
        Ok(name) if !found.is_null() => name.to_string_lossy().into_owned(),
        _ => ifindex.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::testing;

    #[test]
    fn queues_are_counted() {
        testing::in_namespace(|| {
            let (a, _) = testing::veth("a0", "b0", 3);
            assert_eq!((index_of("a0").unwrap(), index_of("c0").is_err()), (a, true));
            assert_eq!((name_of(a), name_of(12_345)), ("a0".into(), "12345".into()));
            assert_eq!(queues("a0").unwrap(), 3);
            assert_eq!(queues("lo").unwrap(), 1);
            assert_eq!(queues("none").unwrap_err().raw_os_error(), Some(libc::ENODEV));
            assert_eq!(
                queues("a-name-too-long-for-it").unwrap_err().raw_os_error(),
                Some(libc::ENODEV)
            );
        });
    }

    #[test]
    fn tags_are_left_in() {
        testing::in_namespace(|| {
            testing::veth("a0", "b0", 1);
            assert_eq!((keep_tags("a0").unwrap(), keep_tags("a0").unwrap()), (true, false));
            assert!(keep_tags("none").is_err());
        });
    }
}
