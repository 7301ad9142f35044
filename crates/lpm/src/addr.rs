//! Addresses and prefixes: plain integers in host order.
//!
//! An IPv4 address is a `u32`, an IPv6 address a `u128`; bit 0 is the first bit on the wire, so it
//! is the most significant bit of the integer. Conversion from bytes happens once, at the edge.

use alloc::string::String;
use core::fmt;
use core::hash::Hash;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::{BitAnd, BitOr, BitXor, Not};
use core::str::FromStr;

/// An address of one family as an integer in host order.
pub trait Addr:
    Copy
    + Ord
    + Hash
    + Default
    + fmt::Debug
    + Send
    + Sync
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
    + 'static
{
    /// Bits of an address: 32 or 128.
    const BITS: u8;
    /// The family as it is printed and as options name it: 4 or 6.
    const FAMILY: u8;
    /// The lowest address.
    const MIN: Self;
    /// The highest address.
    const MAX: Self;

    /// Ones in the first `len` bits. `len` may be 0 to `BITS`.
    fn mask(len: u8) -> Self;
    /// Bit `index`, 0 being the first on the wire. Panics in debug builds when out of range.
    fn bit(self, index: u8) -> bool;
    /// `count` (at most 32) bits from bit `from` on, right-aligned. Bits past the end read as 0.
    fn bits(self, from: u8, count: u8) -> u32;
    /// Length of the common prefix with `other`, in bits.
    fn common_len(self, other: Self) -> u8;
    /// The next address; wraps at the end of the space.
    fn next(self) -> Self;
    /// The previous address; wraps at 0.
    fn prev(self) -> Self;
    /// Address of the low bits of `value`.
    fn from_u128(value: u128) -> Self;
    /// Zero-extended.
    fn to_u128(self) -> u128;
    /// The address as the standard library writes it.
    fn to_ip(self) -> IpAddr;
    /// `None` when the family differs.
    fn from_ip(ip: IpAddr) -> Option<Self>;
}

macro_rules! addr {
    ($t:ty, $bits:literal, $family:literal, $ip:ident, $variant:ident) => {
        impl Addr for $t {
            const BITS: u8 = $bits;
            const FAMILY: u8 = $family;
            const MIN: Self = 0;
            const MAX: Self = <$t>::MAX;

            #[inline]
            fn mask(len: u8) -> Self {
                debug_assert!(len <= $bits);
                // A shift by the full width is not defined; /0 has an empty mask.
                if len == 0 { 0 } else { <$t>::MAX << ($bits - len) }
            }
            #[inline]
            fn bit(self, index: u8) -> bool {
                debug_assert!(index < $bits);
                self >> ($bits - 1 - index) & 1 == 1
            }
            #[inline]
            #[allow(
                clippy::cast_possible_truncation,
                reason = "the shift leaves at most 32 significant bits"
            )]
            fn bits(self, from: u8, count: u8) -> u32 {
                debug_assert!(count <= 32);
                if count == 0 || from >= $bits {
                    return 0;
                }
                let aligned = self << from;
                (aligned >> ($bits - count)) as u32
            }
            #[inline]
            #[allow(clippy::cast_possible_truncation, reason = "at most 128")]
            fn common_len(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }
            #[inline]
            fn next(self) -> Self {
                self.wrapping_add(1)
            }
            #[inline]
            fn prev(self) -> Self {
                self.wrapping_sub(1)
            }
            #[inline]
            #[allow(clippy::cast_possible_truncation, reason = "documented: the low bits")]
            fn from_u128(value: u128) -> Self {
                value as $t
            }
            #[inline]
            fn to_u128(self) -> u128 {
                u128::from(self)
            }
            fn to_ip(self) -> IpAddr {
                IpAddr::$variant($ip::from_bits(self))
            }
            fn from_ip(ip: IpAddr) -> Option<Self> {
                match ip {
                    IpAddr::$variant(ip) => Some(ip.to_bits()),
                    _ => None,
                }
            }
        }
    };
}

addr!(u32, 32, 4, Ipv4Addr, V4);
addr!(u128, 128, 6, Ipv6Addr, V6);

/// An address and a length in bits; the bits past the length are always zero.
///
/// Ordered by address, then length: a parent sorts before its children.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Prefix<A: Addr> {
    addr: A,
    len: u8,
}

impl<A: Addr> Prefix<A> {
    /// The whole address space: the default route's prefix.
    pub const ALL: Self = Self { addr: A::MIN, len: 0 };

    /// Refuses a length beyond the family's and an address with host bits.
    pub fn new(addr: A, len: u8) -> Result<Self, PrefixError> {
        if len > A::BITS {
            return Err(PrefixError::Length { len, max: A::BITS });
        }
        let prefix = Self::masked(addr, len);
        if prefix.addr == addr { Ok(prefix) } else { Err(PrefixError::HostBits) }
    }

    /// Clears the host bits. Panics when `len` exceeds the family's width.
    #[inline]
    pub fn masked(addr: A, len: u8) -> Self {
        assert!(len <= A::BITS, "prefix length {len} exceeds {}", A::BITS);
        Self { addr: addr & A::mask(len), len }
    }

    /// The prefix that holds just `addr`.
    #[inline]
    pub fn host(addr: A) -> Self {
        Self { addr, len: A::BITS }
    }

    /// The lowest address, which is also the prefix's own.
    #[inline]
    pub fn addr(self) -> A {
        self.addr
    }

    /// Length in bits.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a length in bits, not a size")]
    pub fn len(self) -> u8 {
        self.len
    }

    /// The lowest address.
    #[inline]
    pub fn first(self) -> A {
        self.addr
    }

    /// The highest address.
    #[inline]
    pub fn last(self) -> A {
        self.addr | !A::mask(self.len)
    }

    /// Whether `addr` lies in this prefix.
    #[inline]
    pub fn contains(self, addr: A) -> bool {
        addr & A::mask(self.len) == self.addr
    }

    /// Whether `other` is this prefix or lies in it.
    #[inline]
    pub fn covers(self, other: Self) -> bool {
        self.len <= other.len && self.contains(other.addr)
    }
}

impl<A: Addr> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr.to_ip(), self.len)
    }
}

impl<A: Addr> fmt::Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<A: Addr> FromStr for Prefix<A> {
    type Err = PrefixError;

    /// `ADDR/LEN`; a bare address is a host prefix. Host bits are an error.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => {
                // `u8::from_str` takes a sign; a prefix length has none.
                let digits = !len.is_empty() && len.bytes().all(|b| b.is_ascii_digit());
                let len = len.parse().ok().filter(|_| digits);
                (addr, Some(len.ok_or_else(|| PrefixError::Syntax(text.into()))?))
            }
            None => (text, None),
        };
        let ip: IpAddr = addr.parse().map_err(|_| PrefixError::Syntax(text.into()))?;
        let addr = A::from_ip(ip).ok_or(PrefixError::Family { want: A::FAMILY })?;
        Self::new(addr, len.unwrap_or(A::BITS))
    }
}

/// Why a prefix was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrefixError {
    /// Not `ADDR/LEN`.
    Syntax(String),
    /// The address belongs to the other family.
    Family {
        /// Expected family, 4 or 6.
        want: u8,
    },
    /// The length exceeds the family's width.
    Length {
        /// What was given.
        len: u8,
        /// What is possible.
        max: u8,
    },
    /// Bits past the length are set.
    HostBits,
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(text) => write!(f, "not a prefix: {text:?}"),
            Self::Family { want } => write!(f, "not an IPv{want} prefix"),
            Self::Length { len, max } => write!(f, "prefix length {len} exceeds {max}"),
            Self::HostBits => f.write_str("host bits are set behind the prefix length"),
        }
    }
}

impl core::error::Error for PrefixError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_width_shifts() {
        assert_eq!(<u32 as Addr>::mask(0), 0);
        assert_eq!(<u32 as Addr>::mask(32), u32::MAX);
        assert_eq!(<u128 as Addr>::mask(128), u128::MAX);
        assert_eq!(Prefix::<u32>::ALL.last(), u32::MAX);
        assert_eq!(Prefix::host(u128::MAX).first(), u128::MAX);
        assert_eq!(0x1234_5678u32.bits(8, 12), 0x345);
        assert_eq!(0x1234_5678u32.bits(28, 8), 0x80);
        assert_eq!(1u32.bits(32, 4), 0);
    }

    #[test]
    fn prefixes_parse_and_print() {
        let p: Prefix<u32> = "10.1.0.0/16".parse().unwrap();
        assert_eq!(alloc::format!("{p}"), "10.1.0.0/16");
        assert!(p.contains(0x0a01_ffff) && !p.contains(0x0a02_0000));
        assert_eq!("10.1.0.1/16".parse::<Prefix<u32>>(), Err(PrefixError::HostBits));
        assert_eq!(
            "10.0.0.0/33".parse::<Prefix<u32>>(),
            Err(PrefixError::Length { len: 33, max: 32 })
        );
        assert_eq!("::/0".parse::<Prefix<u32>>(), Err(PrefixError::Family { want: 4 }));
        for bad in ["10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/8/8", "10.0/8", "", "/8", "10.0.0.0/ 8"] {
            assert!(matches!(bad.parse::<Prefix<u32>>(), Err(PrefixError::Syntax(_))), "{bad}");
        }
        let v6: Prefix<u128> = "2001:db8::/32".parse().unwrap();
        assert!(v6.covers("2001:db8:1::/48".parse().unwrap()));
        assert!(!v6.covers("2001:db9::/48".parse().unwrap()));
    }

    #[test]
    fn parents_sort_before_children() {
        let mut all: [Prefix<u32>; 3] =
            ["10.0.0.0/24", "10.0.0.0/8", "9.0.0.0/32"].map(|t| t.parse().unwrap());
        all.sort();
        assert_eq!(all.map(|p| p.len()), [32, 8, 24]);
    }
}
