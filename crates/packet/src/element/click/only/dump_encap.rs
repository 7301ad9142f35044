//! What packets of capture files begin with: names of Click's `ENCAP`, and where their IP header is.
//!
//! Source: Click's `ToDump` and `FromDump`; the numbers are those of libpcap (`LINKTYPE_...`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::frame::wire::Ip4;
use crate::frame::wire::ether::TYPE_IP4;
use crate::language::Value;

/// Kind of the packets of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Encap {
    pub(crate) name: &'static str,
    /// Number of the link type in the file.
    pub(crate) link: u32,
    /// Bytes before the IP header, and where two of them are its EtherType.
    header: Option<(u8, Option<usize>)>,
}

const fn encap(name: &'static str, link: u32, header: Option<(u8, Option<usize>)>) -> Encap {
    Encap { name, link, header }
}

pub(crate) const ETHER: Encap = encap("ETHER", 1, Some((14, Some(12))));

/// The first of a name is the one that files are written with.
const ENCAPS: &[Encap] = &[
    ETHER,
    encap("IP", 101, Some((0, None))),
    encap("IP", 228, Some((0, None))),
    encap("IP", 12, Some((0, None))),
    encap("IP", 14, Some((0, None))),
    encap("NULL", 0, Some((4, None))),
    encap("NULL", 108, Some((4, None))),
    encap("PPP", 9, None),
    encap("FDDI", 10, Some((21, Some(19)))),
    encap("ATM", 100, Some((8, Some(6)))),
    encap("PPP_HDLC", 50, None),
    encap("HDLC", 104, Some((4, Some(2)))),
    encap("802_11", 105, None),
    encap("802.11", 105, None),
    encap("SLL", 113, Some((16, Some(14)))),
    encap("PRISM", 119, None),
    encap("AIRONET", 120, None),
    encap("SUNATM", 123, None),
];

impl Value for Encap {
    fn read(text: &str) -> Result<Self, String> {
        let found = ENCAPS.iter().find(|encap| encap.name == text.trim());
        let names = "no encapsulation: ETHER, IP, FDDI, SLL, PPP, HDLC, ... are possible";
        found.copied().ok_or_else(|| names.to_owned())
    }
}

impl Encap {
    /// Kind of the packets of a file with this link type.
    pub(crate) fn of_link(link: u32) -> Option<Self> {
        ENCAPS.iter().find(|encap| encap.link == link).copied()
    }

    /// Where the IPv4 header of a packet is, if it has a whole one.
    pub(crate) fn network(self, packet: &[u8]) -> Option<u8> {
        let (mut header, kind) = self.header?;
        if let Some(at) = kind {
            let kind_at = |at: usize| packet.get(at..at + 2).map(|kind| [kind[0], kind[1]]);
            let mut kind = kind_at(at)?;
            if self == ETHER && kind == [0x81, 0] {
                (kind, header) = (kind_at(at + 4)?, header + 4);
            }
            if u16::from_be_bytes(kind) != TYPE_IP4 {
                return None;
            }
        }
        let ip = Ip4::at(packet, header.into())?;
        let held = packet.len() - usize::from(header);
        let whole = packet[usize::from(header)] >> 4 == 4
            && ip.header_len() >= 20
            && ip.total_len() >= ip.header_len()
            && held >= ip.header_len();
        whole.then_some(header)
    }
}

/// What one `FromDump` shares with elements that name it.
#[derive(Default)]
pub(crate) struct Source {
    /// Kind of its packets, for `ToDump(USE_ENCAP_FROM)`.
    pub(crate) encap: OnceLock<Encap>,
    /// Packets leave one at a time.
    singly: AtomicBool,
}

// Relaxed, in both: it is set before any packet leaves.
impl Source {
    /// Lets packets leave one at a time, for who reads the place of each by a handler.
    pub(crate) fn give_singly(&self) {
        self.singly.store(true, Relaxed);
    }

    /// Whether packets leave one at a time.
    pub(crate) fn gives_singly(&self) -> bool {
        self.singly.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::frame_v4;

    #[test]
    fn headers_are_found_behind_each_kind() {
        let ether = frame_v4("10.0.0.1", "10.0.0.2", 64, 17, &[0; 8]);
        let ip = &ether[14..];
        let behind = |bytes: &[u8]| [bytes, ip].concat();
        let network = |name: &str, packet: &[u8]| Encap::read(name).unwrap().network(packet);
        assert_eq!(network("ETHER", &ether), Some(14));
        let tagged = [&ether[..12], &[0x81, 0, 0, 5], &ether[12..]].concat();
        assert_eq!(network("ETHER", &tagged), Some(18));
        assert_eq!(network("IP", ip), Some(0));
        assert_eq!(network("NULL", &behind(&[2, 0, 0, 0])), Some(4));
        assert_eq!(network("SLL", &behind(&[&[0; 14][..], &[8, 0]].concat())), Some(16));
        let none = [
            network("SLL", &behind(&[0; 16])),
            network("IP", &ip[..19]),
            network("IP", &ether),
            network("PRISM", ip),
            network("ETHER", &[]),
        ];
        assert_eq!(none, [None; 5]);
        assert!(Encap::read("TOKEN").is_err() && Encap::of_link(147).is_none());
    }
}
