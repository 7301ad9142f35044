//! Why a packet is dropped with an ICMP error: what an element notes in the packet's
//! metadata, and an error element turns into ICMP or ICMPv6.

use super::DropReason;

/// The cause of an ICMP error. 24 bits, so that it fits a packet's note.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// TTL or hop limit used up: 11/0, ICMPv6 3/0.
    TtlExpired,
    /// No prefix covers the destination: 3/0, ICMPv6 1/0.
    NoRoute,
    /// The next hop does not answer: 3/1, ICMPv6 1/3.
    HostUnreachable,
    /// The route is unreachable: 3/1, ICMPv6 1/6.
    Unreachable,
    /// The route is prohibited: 3/13, ICMPv6 1/1.
    Prohibit,
    /// Larger than this MTU and may not be fragmented: 3/4, ICMPv6 2/0.
    TooBig(u16),
    /// A bad IPv4 option at this offset of the header: 12/0.
    BadOption(u8),
    /// A link-local source that would leave its link: ICMPv6 1/2.
    Scope,
}

impl Cause {
    /// Its word, 24 bits: kind and value.
    pub(crate) fn encode(self) -> u32 {
        let (kind, value) = match self {
            Self::TtlExpired => (0, 0),
            Self::NoRoute => (1, 0),
            Self::HostUnreachable => (2, 0),
            Self::Unreachable => (3, 0),
            Self::Prohibit => (4, 0),
            Self::TooBig(mtu) => (5, mtu),
            Self::BadOption(at) => (6, u16::from(at)),
            Self::Scope => (7, 0),
        };
        kind << 16 | u32::from(value)
    }

    /// Reads its word back; `None` when there is no such kind.
    #[allow(clippy::cast_possible_truncation, reason = "takes the fields of a word")]
    pub(crate) fn decode(word: u32) -> Option<Self> {
        Some(match word >> 16 {
            0 => Self::TtlExpired,
            1 => Self::NoRoute,
            2 => Self::HostUnreachable,
            3 => Self::Unreachable,
            4 => Self::Prohibit,
            5 => Self::TooBig(word as u16),
            6 => Self::BadOption(word as u8),
            7 => Self::Scope,
            _ => return None,
        })
    }

    /// The reason under which the packet that caused it is counted.
    pub fn reason(self) -> DropReason {
        match self {
            Self::TtlExpired => DropReason::TtlExpired,
            Self::NoRoute => DropReason::NoRoute,
            Self::HostUnreachable => DropReason::HostUnreachable,
            Self::Unreachable => DropReason::Unreachable,
            Self::Prohibit => DropReason::Prohibit,
            Self::TooBig(_) => DropReason::TooBig,
            Self::BadOption(_) => DropReason::BadOption,
            Self::Scope => DropReason::Scope,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Note;

    #[test]
    fn a_note_holds_any_cause() {
        for cause in [
            Cause::TtlExpired,
            Cause::NoRoute,
            Cause::HostUnreachable,
            Cause::Unreachable,
            Cause::Prohibit,
            Cause::TooBig(u16::MAX),
            Cause::BadOption(59),
            Cause::Scope,
        ] {
            assert_eq!(cause.note().cause(), Some(cause));
        }
        assert_eq!((Note::egress(7).cause(), Cause::decode(u32::MAX)), (None, None));
    }
}
