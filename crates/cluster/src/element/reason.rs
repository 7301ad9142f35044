//! Why a packet took its path, as a number that traces keep.
//!
//! Shape:  8 bits with the reason of the choice, 8 above with what the flowlet table did; 0 is none, and 1 alone mode `direct`.
//! Cost:   a store a packet.

use crate::flowlet::Outcome;
use crate::rule::Why;

/// Why a packet took its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Mode `direct`: packets take the direct link while it is up.
    ModeDirect,
    /// The rule, for this packet or for an earlier one of its flowlet.
    Rule(Why, Outcome),
}

const OUTCOMES: [Outcome; 5] =
    [Outcome::Local, Outcome::Kept, Outcome::Began, Outcome::Lost, Outcome::Sprayed];

impl Reason {
    /// Its number, above 0.
    #[inline]
    pub fn number(self) -> u32 {
        match self {
            Self::ModeDirect => 1,
            Self::Rule(why, outcome) => (why as u32 + 1) | (outcome as u32 + 1) << 8,
        }
    }

    /// Reason of this number.
    pub fn of(number: u32) -> Option<Self> {
        let at = |shift: u32| (number >> shift & 0xff).checked_sub(1).map(|at| at as usize);
        match (at(0)?, at(8)) {
            (0, None) => Some(Self::ModeDirect),
            (why, outcome) => Some(Self::Rule(*Why::ALL.get(why)?, *OUTCOMES.get(outcome?)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_from_its_number() {
        let of_rule = |outcome| Why::ALL.map(move |why| Reason::Rule(why, outcome));
        let all = OUTCOMES.into_iter().flat_map(of_rule).chain([Reason::ModeDirect]);
        for reason in all {
            assert_eq!(Reason::of(reason.number()), Some(reason));
        }
        assert_eq!([0, 2, 0x100, 0x0710, u32::MAX].map(Reason::of), [None; 5]);
    }
}
