//! ARP over Ethernet for IPv4 (RFC 826): 28 bytes, behind the Ethernet header.

use fingerpost_route::Mac;

/// Bytes of the packet.
pub const ARP_BYTES: usize = 28;

/// Who has this address?
pub const REQUEST: u16 = 1;
/// I have it.
pub const REPLY: u16 = 2;

/// What ARP packets for IPv4 over Ethernet begin with: hardware type, protocol type, and their lengths.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// One of the two ends that a packet speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Its link address.
    pub mac: Mac,
    /// Its IPv4 address.
    pub addr: u32,
}

/// An ARP packet, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Arp<'a>(&'a [u8; ARP_BYTES]);

impl<'a> Arp<'a> {
    /// The packet `offset` bytes into a frame; `None` when it is shorter, or not of IPv4 over Ethernet.
    #[inline]
    pub fn at(frame: &'a [u8], offset: usize) -> Option<Self> {
        let bytes: &[u8; ARP_BYTES] = frame.get(offset..)?.first_chunk()?;
        bytes.starts_with(&KIND).then_some(Self(bytes))
    }

    /// [`REQUEST`], [`REPLY`], or something else.
    #[inline]
    pub fn operation(self) -> u16 {
        u16::from_be_bytes([self.0[6], self.0[7]])
    }

    /// Who sent it.
    #[inline]
    pub fn sender(self) -> End {
        self.end(8)
    }

    /// Whom it is about, or for.
    #[inline]
    pub fn target(self) -> End {
        self.end(18)
    }

    fn end(self, at: usize) -> End {
        let b = &self.0[at..at + 10];
        End {
            mac: Mac([b[0], b[1], b[2], b[3], b[4], b[5]]),
            addr: u32::from_be_bytes([b[6], b[7], b[8], b[9]]),
        }
    }
}

/// Writes an ARP packet `offset` bytes into a frame. Whether there is room.
pub fn write_arp(
    frame: &mut [u8],
    offset: usize,
    operation: u16,
    sender: End,
    target: End,
) -> bool {
    let bytes = frame.get_mut(offset..).and_then(|rest| rest.first_chunk_mut::<ARP_BYTES>());
    let Some(bytes) = bytes else { return false };
    bytes[..6].copy_from_slice(&KIND);
    bytes[6..8].copy_from_slice(&operation.to_be_bytes());
    for (at, end) in [(8, sender), (18, target)] {
        bytes[at..at + 6].copy_from_slice(&end.mac.0);
        bytes[at + 6..at + 10].copy_from_slice(&end.addr.to_be_bytes());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_rfc_has_them() {
        let sender = End { mac: Mac([2, 0, 0, 0, 0, 9]), addr: 0x0a00_0009 };
        let target = End { mac: Mac([0; 6]), addr: 0x0a00_0001 };
        let mut frame = [0xee; 44];
        assert!(write_arp(&mut frame, 14, REQUEST, sender, target));
        let want =
            [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1];
        assert_eq!((&frame[14..42], &frame[42..]), (&want[..], &[0xee; 2][..]));
        let arp = Arp::at(&frame, 14).unwrap();
        assert_eq!((arp.operation(), arp.sender(), arp.target()), (REQUEST, sender, target));
    }

    #[test]
    fn what_is_no_such_packet_is_none() {
        let end = End { mac: Mac([1; 6]), addr: 1 };
        let mut frame = [0; 28];
        assert!(write_arp(&mut frame, 0, REPLY, end, end));
        assert!(Arp::at(&frame, 0).is_some() && Arp::at(&frame[..27], 0).is_none());
        assert!(Arp::at(&frame, 1).is_none() && Arp::at(&frame, 99).is_none());
        assert!(!write_arp(&mut frame, 1, REPLY, end, end));
        // Another hardware, another protocol, other lengths.
        for at in 0..6 {
            let mut other = frame;
            other[at] ^= 1;
            assert!(Arp::at(&other, 0).is_none(), "byte {at}");
        }
    }
}
