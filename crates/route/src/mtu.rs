//! MTUs of next hops and routes: bytes of an IP packet, 0 for no limit.

/// The smaller one of two MTUs in bytes, where 0 stands for none.
pub fn narrower(a: u16, b: u16) -> u16 {
    if a == 0 || b == 0 { a.max(b) } else { a.min(b) }
}

/// Largest IP packet that a route into a VRF allows, in 11 bits: exact up to 1599 bytes, above that rounded down to a
/// multiple of 128. Senders learn such an MTU as it is rounded, and packets of that size fit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RouteMtu(u16);

impl RouteMtu {
    /// No limit.
    pub const NONE: Self = Self(0);
    /// Code 1 is the first byte above this.
    const BELOW: u16 = 64;
    /// The last exact MTU, and its code.
    const EXACT: u16 = 1599;
    const LAST_EXACT: u16 = Self::EXACT - Self::BELOW;
    const STEP: u16 = 128;
    /// Steps that have an exact code.
    const STEPS: u16 = Self::EXACT / Self::STEP;

    /// The MTU of a route, at least 68 bytes, or 0 for none.
    pub fn of(mtu: u16) -> Self {
        Self(match mtu {
            0 => 0,
            1..=Self::EXACT => mtu.saturating_sub(Self::BELOW).max(1),
            _ => Self::LAST_EXACT + mtu / Self::STEP - Self::STEPS,
        })
    }

    /// The MTU in bytes, 0 for none.
    pub fn bytes(self) -> u16 {
        match self.0 {
            0 => 0,
            1..=Self::LAST_EXACT => self.0 + Self::BELOW,
            code => (code - Self::LAST_EXACT + Self::STEPS) * Self::STEP,
        }
    }

    /// The code of 11 bits.
    pub(crate) fn encode(self) -> u16 {
        self.0
    }

    /// The MTU of a code from [`RouteMtu::encode`].
    pub(crate) fn decode(code: u16) -> Self {
        Self(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_of_a_route_into_a_vrf_is_exact_or_less() {
        assert_eq!((RouteMtu::of(0), RouteMtu::NONE.bytes()), (RouteMtu::NONE, 0));
        let mut before = 0;
        for mtu in 68..=u16::MAX {
            let (code, least) = (RouteMtu::of(mtu), if mtu <= 1599 { mtu } else { mtu - 127 });
            assert_eq!(RouteMtu::decode(code.encode()), code);
            assert!(
                code.encode() < 1 << 11 && (least..=mtu).contains(&code.bytes()),
                "{mtu}: {code:?}"
            );
            assert!(before <= code.bytes(), "{mtu}");
            before = code.bytes();
        }
        assert_eq!([1500, 1664, 9000].map(|mtu| RouteMtu::of(mtu).bytes()), [1500, 1664, 8960]);
    }
}
