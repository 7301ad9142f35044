//! What numbers in headers are called, in filters and in arguments of elements.
//!
//! Source: the name tables of Click (ICMP types and codes, its documentation of `IPFilter` and
//! `ICMPError`), and IANA's registries for protocols and well-known ports.

use crate::frame::wire::icmp::{PROTOCOL_ICMP, PROTOCOL_ICMPV6};
use crate::frame::wire::protocol;
#[cfg(feature = "click")]
use crate::language::Value;
use crate::language::ports;

/// Names, and what they stand for.
pub(crate) type Names = [(&'static str, u16)];

/// What a name stands for.
pub(crate) fn number(names: &Names, name: &str) -> Option<u16> {
    names.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
}

/// Number of a protocol that a name or a number stands for; names also in capitals.
#[cfg(feature = "click")]
pub(crate) fn protocol(text: &str) -> Option<u8> {
    let named = number(PROTOCOLS, &text.to_ascii_lowercase());
    named.and_then(|number| u8::try_from(number).ok()).or_else(|| u8::read(text).ok())
}

/// Number of a port that a name of `PortInfo` or a well-known name stands for.
pub(crate) fn port(name: &str, udp_first: bool) -> Option<u16> {
    ports::named(name, udp_first).or_else(|| number(PORTS, name))
}

/// A port, as a number or by its name.
#[cfg(feature = "click")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Port(pub(crate) u16);

#[cfg(feature = "click")]
impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "click")]
impl Port {
    /// A port of UDP first, or of TCP.
    pub(crate) fn of(text: &str, udp_first: bool) -> Result<Self, String> {
        port(text, udp_first).map_or_else(|| u16::read(text), Ok).map(Self)
    }
}

#[cfg(feature = "click")]
impl Value for Port {
    fn read(text: &str) -> Result<Self, String> {
        // Elements that take one port alone are mostly about UDP.
        Self::of(text, true)
    }
}

pub(crate) const PROTOCOLS: &Names = &[
    ("icmp", PROTOCOL_ICMP as u16),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", protocol::TCP as u16),
    ("udp", protocol::UDP as u16),
    ("dccp", protocol::DCCP as u16),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", PROTOCOL_ICMPV6 as u16),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("sctp", protocol::SCTP as u16),
    ("udplite", protocol::UDP_LITE as u16),
];

const PORTS: &Names = &[
    ("echo", 7),
    ("discard", 9),
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("dns", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("http", 80),
    ("www", 80),
    ("pop3", 110),
    ("ntp", 123),
    ("imap", 143),
    ("snmp", 161),
    ("bgp", 179),
    ("https", 443),
    ("syslog", 514),
    ("rip", 520),
    ("chargen", 19),
    ("time", 37),
    ("whois", 43),
    ("gopher", 70),
    ("finger", 79),
    ("kerberos", 88),
    ("pop2", 109),
    ("sunrpc", 111),
    ("auth", 113),
    ("nntp", 119),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ssn", 139),
    ("snmp-trap", 162),
    ("irc", 194),
    ("imap3", 220),
    ("ldap", 389),
    ("microsoft-ds", 445),
    ("login", 513),
    ("shell", 514),
    ("printer", 515),
    ("uucp", 540),
    ("rtsp", 554),
    ("submission", 587),
    ("ipp", 631),
    ("ldaps", 636),
    ("imaps", 993),
    ("pop3s", 995),
    ("socks", 1080),
    ("openvpn", 1194),
    ("nfs", 2049),
    ("mysql", 3306),
    ("postgresql", 5432),
    ("sip", 5060),
    ("mdns", 5353),
    ("x11", 6000),
    ("http-alt", 8080),
];

/// Types of ICMP messages.
pub(crate) const ICMP_TYPES: &Names = &[
    ("echo-reply", 0),
    ("unreachable", 3),
    ("sourcequench", 4),
    ("redirect", 5),
    ("echo", 8),
    ("routeradvert", 9),
    ("routersolicit", 10),
    ("timeexceeded", 11),
    ("parameterproblem", 12),
    ("timestamp", 13),
    ("timestamp-reply", 14),
    ("inforeq", 15),
    ("inforeq-reply", 16),
    ("maskreq", 17),
    ("maskreq-reply", 18),
];

/// Types of ICMPv6 messages.
pub(crate) const ICMP6_TYPES: &Names = &[
    ("unreachable", 1),
    ("packettoobig", 2),
    ("timeexceeded", 3),
    ("parameterproblem", 4),
    ("echo", 128),
    ("echo-reply", 129),
    ("routersolicit", 133),
    ("routeradvert", 134),
    ("neighborsolicit", 135),
    ("neighboradvert", 136),
    ("redirect", 137),
];

/// Bits of the byte of flags in a TCP header.
pub(super) const TCP_FLAGS: &Names =
    &[("fin", 1), ("syn", 2), ("rst", 4), ("psh", 8), ("ack", 16), ("urg", 32)];

/// Differentiated services code points (RFC 2474, RFC 2597, RFC 3246, RFC 5865, RFC 8622).
pub(crate) const DSCPS: &Names = &[
    ("be", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        for names in [PROTOCOLS, PORTS, ICMP_TYPES, ICMP6_TYPES, TCP_FLAGS, DSCPS] {
            for (at, (name, value)) in names.iter().enumerate() {
                assert!(names[..at].iter().all(|other| other.0 != *name), "{name}");
                assert_eq!(number(names, name), Some(*value));
            }
        }
        assert_eq!(number(PORTS, ""), None);
    }
}
