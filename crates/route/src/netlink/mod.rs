//! Netlink messages, read in place and written into a byte vector.
//!
//! Source: the kernel's `include/uapi/linux/{netlink,rtnetlink,nexthop,if_link,if_addr,neighbour}.h`,
//! RFC 3549. No crate is used: those that exist know no next-hop objects and allocate per message,
//! and FRR's FPM stream carries the same message bodies.
//!
//! Shape: a datagram is a row of messages, a message a fixed header and a row of attributes, and
//! attributes nest:
//!
//! ```text
//! | len u32 | kind u16 | flags u16 | seq u32 | port u32 | body ...... pad to 4 |
//!                                                 | header | attribute | attribute |
//!                                            | len u16 | kind u16 | data .. pad to 4 |
//! ```
//!
//! Integers are in host order, addresses in network order. Every length is checked against what is
//! there before it is used, so any bytes can be given: the worst outcome is [`Malformed`].
//!
//! Cost: no allocation; a plain route is about 30 ns.

pub mod address;
pub mod errno;
pub mod export;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod link;
#[cfg(test)]
pub(crate) mod namespace;
pub mod neighbor;
pub mod nexthop;
pub mod obstacle;
pub mod route;
mod write;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use write::Request;

/// `AF_INET`.
pub const IPV4: u8 = 2;
/// `AF_INET6`.
pub const IPV6: u8 = 10;

/// A reply or error to a request (`NLMSG_ERROR`).
pub const ERROR: u16 = 2;
/// The end of a dump (`NLMSG_DONE`).
pub const DONE: u16 = 3;

/// Part of a dump (`NLM_F_MULTI`).
pub const F_MULTI: u16 = 0x2;
/// A reply is wanted, also where all is well (`NLM_F_ACK`).
pub const F_ACK: u16 = 0x4;
/// The dump was disturbed by a change and may miss entries (`NLM_F_DUMP_INTR`).
pub const F_DUMP_INTR: u16 = 0x10;
/// A notification of a replacement (`NLM_F_REPLACE`).
pub const F_REPLACE: u16 = 0x100;
/// The first of its kind (`NLM_F_EXCL`; IPv6 routes only).
pub const F_EXCL: u16 = 0x200;
/// A new entry (`NLM_F_CREATE`).
pub const F_CREATE: u16 = 0x400;
/// A new entry behind others of the same key (`NLM_F_APPEND`).
pub const F_APPEND: u16 = 0x800;

const HEADER_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;
/// The kind of an attribute without its two marks, nested and network order.
const KIND_MASK: u16 = 0x3fff;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A message claims a length that it cannot have.
    #[error("message of {len} bytes where {have} are left")]
    Message {
        /// Claimed length, in bytes.
        len: u32,
        /// Present length, in bytes.
        have: usize,
    },
    /// An attribute claims a length that it cannot have.
    #[error("attribute {kind} of {len} bytes where {have} are left")]
    Attribute {
        /// Its number; 0 when not even that is there.
        kind: u16,
        /// Claimed length, in bytes.
        len: u16,
        /// Present length, in bytes.
        have: usize,
    },
    /// A fixed part is shorter than its format.
    #[error("{what} of {have} bytes, needs {need}")]
    Short {
        /// Which part.
        what: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// A value outside what its field can hold.
    #[error("{what} {value} makes no sense")]
    Value {
        /// Which field.
        what: &'static str,
        /// What it holds.
        value: u64,
    },
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// What it is: `RTM_*` and the like, or [`ERROR`], [`DONE`].
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// Sequence number of the request that it replies to, or that caused the change it reports.
    pub seq: u32,
    /// Port of the requester; 0 for changes by the kernel itself.
    pub port: u32,
    /// The rest, without padding.
    pub body: &'a [u8],
}

impl Message<'_> {
    /// The code of an [`ERROR`] or [`DONE`] message, 0 for success, else the errno (positive).
    ///
    /// # Errors
    /// [`Malformed`] where an [`ERROR`] holds no code.
    pub fn code(&self) -> Result<u32, Malformed> {
        match self.body.first_chunk() {
            Some(code) => Ok(i32::from_ne_bytes(*code).unsigned_abs()),
            // Old kernels end a dump with a bare header.
            None if self.kind == DONE => Ok(0),
            None => Err(Malformed::Short { what: "error", need: 4, have: self.body.len() }),
        }
    }
}

/// The messages of a datagram, one after another. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Over `bytes`, which begin with a message.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = core::mem::take(&mut self.rest);
        let Some(h) = bytes.first_chunk::<HEADER_BYTES>() else {
            let (need, have) = (HEADER_BYTES, bytes.len());
            return Some(Err(Malformed::Short { what: "message header", need, have }));
        };
        let len = u32_at(h, 0);
        let body = usize::try_from(len).ok().and_then(|len| bytes.get(HEADER_BYTES..len));
        let Some(body) = body else {
            return Some(Err(Malformed::Message { len, have: bytes.len() }));
        };
        // The last message of a datagram may lack its padding.
        self.rest = bytes.get(aligned(HEADER_BYTES + body.len())..).unwrap_or_default();
        Some(Ok(Message {
            kind: u16_at(h, 4),
            flags: u16_at(h, 6),
            seq: u32_at(h, 8),
            port: u32_at(h, 12),
            body,
        }))
    }
}

/// One attribute.
#[derive(Clone, Copy, Debug)]
pub struct Attr<'a> {
    /// Its number, without the marks for nesting and byte order.
    pub kind: u16,
    /// Its content, without padding.
    pub data: &'a [u8],
}

impl<'a> Attr<'a> {
    /// The content as a byte.
    ///
    /// # Errors
    /// [`Malformed::Attribute`] when it is shorter.
    pub fn u8(&self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// The content as a 16-bit integer in host order.
    ///
    /// # Errors
    /// [`Malformed::Attribute`] when it is shorter.
    pub fn u16(&self) -> Result<u16, Malformed> {
        self.array().map(u16::from_ne_bytes)
    }

    /// The content as a 32-bit integer in host order.
    ///
    /// # Errors
    /// [`Malformed::Attribute`] when it is shorter.
    pub fn u32(&self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    /// The content as a 32-bit integer in network order (nf_tables).
    ///
    /// # Errors
    /// [`Malformed::Attribute`] when it is shorter.
    pub fn u32_be(&self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// The content as an address; its length decides the family.
    ///
    /// # Errors
    /// [`Malformed::Attribute`] when it is neither 4 nor 16 bytes long.
    pub fn ip(&self) -> Result<IpAddr, Malformed> {
        match self.data.len() {
            4 => self.array::<4>().map(|a| IpAddr::V4(Ipv4Addr::from(a))),
            16 => self.array::<16>().map(|a| IpAddr::V6(Ipv6Addr::from(a))),
            _ => Err(self.wrong_len()),
        }
    }

    /// The content as text, up to the first zero byte; bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> std::borrow::Cow<'a, str> {
        let end = self.data.iter().position(|&b| b == 0).unwrap_or(self.data.len());
        String::from_utf8_lossy(&self.data[..end])
    }

    /// The attributes inside.
    pub fn nested(&self) -> Attrs<'a> {
        Attrs::new(self.data)
    }

    /// Longer content is fine: fields grow at their end.
    fn array<const N: usize>(&self) -> Result<[u8; N], Malformed> {
        self.data.first_chunk().copied().ok_or_else(|| self.wrong_len())
    }

    fn wrong_len(&self) -> Malformed {
        let len = u16::try_from(self.data.len()).unwrap_or(u16::MAX);
        Malformed::Attribute { kind: self.kind, len, have: self.data.len() }
    }
}

/// A row of attributes. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Attrs<'a> {
    rest: &'a [u8],
}

impl<'a> Attrs<'a> {
    /// Over `bytes`, which begin with an attribute.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = core::mem::take(&mut self.rest);
        let have = bytes.len();
        let Some(h) = bytes.first_chunk::<ATTRIBUTE_BYTES>() else {
            return Some(Err(Malformed::Attribute { kind: 0, len: 0, have }));
        };
        let (len, kind) = (u16_at(h, 0), u16_at(h, 2) & KIND_MASK);
        let Some(data) = bytes.get(ATTRIBUTE_BYTES..usize::from(len)) else {
            return Some(Err(Malformed::Attribute { kind, len, have }));
        };
        self.rest = bytes.get(aligned(usize::from(len))..).unwrap_or_default();
        Some(Ok(Attr { kind, data }))
    }
}

/// Splits the fixed part off a body.
#[inline]
fn fixed<'a, const N: usize>(
    body: &'a [u8],
    what: &'static str,
) -> Result<(&'a [u8; N], Attrs<'a>), Malformed> {
    match body.split_first_chunk::<N>() {
        Some((head, rest)) => Ok((head, Attrs::new(rest))),
        None => Err(Malformed::Short { what, need: N, have: body.len() }),
    }
}

/// `at + 2 <= N` is the caller's to see to; constants make it plain.
#[inline]
fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

/// `at + 4 <= N` is the caller's to see to; constants make it plain.
#[inline]
fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Rounds up to the 4 bytes that everything in netlink is padded to.
#[inline]
fn aligned(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// The family number of an address.
pub fn family_of(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { IPV4 } else { IPV6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_each_other_and_end_at_the_first_bad_one() {
        let mut bytes = Request::new(16, 5, 7).fixed(&[1, 2, 3, 4]).attr(3, b"eth0\0").finish();
        let first = bytes.len();
        bytes.extend(Request::new(DONE, F_MULTI, 7).fixed(&0u32.to_ne_bytes()).finish());
        let all: Vec<_> = Messages::new(&bytes).map(Result::unwrap).collect();
        assert_eq!((all.len(), all[0].kind, all[0].flags, all[0].seq), (2, 16, 5, 7));
        assert_eq!((all[1].kind, all[1].code()), (DONE, Ok(0)));
        let (head, mut attrs) = fixed::<4>(all[0].body, "test").unwrap();
        assert_eq!(head, &[1, 2, 3, 4]);
        let name = attrs.next().unwrap().unwrap();
        assert_eq!((name.kind, name.text().as_ref()), (3, "eth0"));
        assert!(attrs.next().is_none());

        // The row is complete at a length of less than a header, or beyond the end: no loop on length 0.
        for bad in [0u32, 15, 1000, u32::MAX] {
            bytes[first..first + 4].copy_from_slice(&bad.to_ne_bytes());
            let have = bytes.len() - first;
            let mut row = Messages::new(&bytes);
            assert!(row.next().unwrap().is_ok());
            assert_eq!(row.next().unwrap().err(), Some(Malformed::Message { len: bad, have }));
            assert!(row.next().is_none());
        }
    }

    #[test]
    fn attributes_of_impossible_length_end_the_row() {
        for bad in [0u16, 3, 9, u16::MAX] {
            let mut bytes = [0u8; 8];
            bytes[..2].copy_from_slice(&bad.to_ne_bytes());
            bytes[2] = 5;
            let mut row = Attrs::new(&bytes);
            let want = Malformed::Attribute { kind: 5, len: bad, have: 8 };
            assert_eq!(row.next().unwrap().err(), Some(want));
            assert!(row.next().is_none());
        }
        let short = Attr { kind: 4, data: &[1, 2, 3] };
        assert!(short.u32().is_err() && short.ip().is_err());
        assert_eq!(short.u16().map(u16::to_ne_bytes), Ok([1, 2]));
    }

    #[test]
    fn the_last_padding_may_be_missing() {
        let bytes = Request::new(20, 0, 0).attr(1, &[9]).finish();
        let mut row = Messages::new(&bytes);
        let message = row.next().unwrap().unwrap();
        // Both the message's and the attribute's padding are cut off.
        let cut = &message.body[..5];
        assert_eq!(Attrs::new(cut).next().unwrap().unwrap().u8(), Ok(9));
        assert!(row.next().is_none());
    }

    /// `ip address add 10.0.0.1 peer 10.0.1.2/24 noprefixroute`.
    #[test]
    fn the_other_end_of_an_address_and_its_missing_prefix_are_read() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let update = |addr: &str, flags: u32| {
            let request = Request::query(address::NEW, 0, 0).fixed(&[2, 24, 0x80, 0, 7, 0, 0, 0]);
            let request = request.ip(1, ip(addr)).ip(2, ip("10.0.0.1"));
            let bytes = request.attr(8, &flags.to_ne_bytes()).finish();
            let message = Messages::new(&bytes).next().unwrap().unwrap();
            let found = address::parse(&message).unwrap().unwrap();
            (found.addr, found.peer, found.no_prefix)
        };
        assert_eq!(update("10.0.1.2", 0x280), (ip("10.0.0.1"), Some(ip("10.0.1.2")), true));
        assert_eq!(update("10.0.0.1", 0x80), (ip("10.0.0.1"), None, false));
    }

    #[test]
    fn what_is_set_is_read_again() {
        use super::route::{HostRoute, PROTOCOL_FINGERPOST, Route};
        use crate::event::{AddressUpdate, Mac, NeighborState, NeighborUpdate};
        let all = F_ACK | F_CREATE | F_REPLACE | 1;
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (addr, prefix_len) in [(ip("192.0.2.1"), 32), (ip("2001:db8::1"), 128)] {
            let bytes = address::set_request(5, 7, addr);
            let message = Messages::new(&bytes).next().unwrap().unwrap();
            assert_eq!((message.kind, message.flags, message.seq), (address::NEW, all, 5));
            let (gone, secondary) = (false, false);
            let update = AddressUpdate {
                link: 7,
                addr,
                peer: None,
                prefix_len,
                no_prefix: false,
                gone,
                secondary,
            };
            assert_eq!(address::parse(&message), Ok(Some(update)));
            let bytes = address::delete_request(5, 7, addr);
            let message = Messages::new(&bytes).next().unwrap().unwrap();
            assert_eq!((message.kind, message.flags), (address::DEL, F_ACK | 1));

            let mac = Mac([2, 0, 0, 7, 0, 3]);
            let bytes = neighbor::set_request(5, 7, addr, mac);
            let message = Messages::new(&bytes).next().unwrap().unwrap();
            assert_eq!((message.kind, message.flags), (neighbor::NEW, all));
            let update = NeighborUpdate { link: 7, addr, state: NeighborState::Permanent(mac) };
            assert_eq!(neighbor::parse(&message), Ok(Some(update)));
            let bytes = neighbor::delete_request(5, 7, addr);
            let message = Messages::new(&bytes).next().unwrap().unwrap();
            assert_eq!((message.kind, message.flags), (neighbor::DEL, F_ACK | 1));

            for gateway in [None, Some(addr), Some(ip("2001:db8::9"))] {
                let protocol = PROTOCOL_FINGERPOST;
                let (metric, source) = (9, Some(addr));
                let route =
                    HostRoute { addr, prefix_len, gateway, link: 7, metric, protocol, source };
                for bytes in [route.set_request(5), route.delete_request(5)] {
                    let message = Messages::new(&bytes).next().unwrap().unwrap();
                    let read = Route::parse(&message).unwrap().unwrap();
                    let hop = read.hops().next().unwrap().unwrap();
                    assert_eq!((hop.gateway, hop.link), (gateway, Some(7)));
                    assert_eq!((read.table, read.metric, read.protocol), (254, 9, protocol));
                    assert_eq!(read.prefix, crate::AnyPrefix::new(addr, prefix_len).unwrap());
                }
            }
        }
    }
}
