//! What a lookup answers.

/// The answer of a lookup: a dense index of a next hop or of a group of next hops.
///
/// Structures pack it into 15 to 31 bits as stated in their [`Limits`](crate::Limits).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct NextHopId(pub u32);

impl NextHopId {
    /// No prefix covers the address.
    pub const NONE: Self = Self(0);

    /// Whether there is no route.
    #[inline]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Index into an array.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
