//! The two ports that begin the header of most transport protocols.

use super::protocol;

/// Source and destination port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports {
    /// Source.
    pub src: u16,
    /// Destination.
    pub dst: u16,
}

impl Ports {
    /// The ports at the front of a transport header. `None` when the protocol has none, or when the
    /// packet ends before them. The caller has made sure that it is not a later fragment.
    #[inline]
    pub fn of(protocol: u8, transport: &[u8]) -> Option<Self> {
        if !has_ports(protocol) {
            return None;
        }
        let &[a, b, c, d] = transport.first_chunk()?;
        Some(Self { src: u16::from_be_bytes([a, b]), dst: u16::from_be_bytes([c, d]) })
    }
}

/// Whether headers of this protocol begin with two ports.
#[inline]
pub fn has_ports(protocol: u8) -> bool {
    matches!(
        protocol,
        protocol::TCP | protocol::UDP | protocol::DCCP | protocol::SCTP | protocol::UDP_LITE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_protocols_have_ports_and_short_packets_have_none() {
        let bytes = [0x12, 0x34, 0, 80, 9];
        for p in [protocol::TCP, protocol::UDP, protocol::SCTP] {
            assert_eq!(Ports::of(p, &bytes), Some(Ports { src: 0x1234, dst: 80 }));
            assert_eq!(Ports::of(p, &bytes[..3]), None);
        }
        assert_eq!(Ports::of(1, &bytes), None);
    }
}
