//! Headers as they lie in a frame: a view each, read and written in place.
//!
//! A view holds a reference to an array of the header's fixed size, so the length is checked once,
//! when it is made; after that no access can fail. Addresses come out as integers in host order.

pub mod arp;
pub mod checksum;
pub mod ether;
pub mod icmp;
pub mod ip4;
pub mod ip6;
pub mod nd;
pub mod ports;

pub use arp::Arp;
pub use ether::{ETHER_BYTES, Ether, EtherMut};
pub use ip4::{IP4_BYTES, Ip4, Ip4Mut};
pub use ip6::{IP6_BYTES, Ip6, Ip6Mut};
pub use ports::Ports;

/// Numbers of transport protocols that the router looks at; those of ICMP are in [`icmp`].
pub mod protocol {
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
}

/// Bytes of a UDP header.
pub const UDP_BYTES: usize = 8;

/// Flags of a TCP header (RFC 9293, 3.1).
pub mod tcp {
    /// The sender has no more data.
    pub const FIN: u8 = 1;
    /// The connection is opened.
    pub const SYN: u8 = 2;
    /// The connection is reset.
    pub const RST: u8 = 4;
    /// The data is for the application at once.
    pub const PSH: u8 = 8;
    /// The acknowledgment number counts.
    pub const ACK: u8 = 16;
}
