//! Conditions as boxes: a range of each word of a packet's key, for structures that decide by comparisons alone.
//!
//! A [`Key`] is what conditions usually look at, in 16 words of 32 bits, a cache line. A condition becomes
//! boxes, one of which contains the key of each packet that it takes. What no box can express (bytes at an offset,
//! TTL, a condition that would take too many boxes) makes the boxes inexact: they contain the key of each packet
//! that the condition takes, and of others, which the condition itself has to judge.
//!
//! A field that a packet lacks has a value outside the field's range, so that a test of the field fails and the
//! contrary of the test holds, as in the language.

use super::field::{Field, Layer};
use super::program::{Expr, Test};
use super::{Condition, Family};
use crate::frame::wire::icmp::{PROTOCOL_ICMP, PROTOCOL_ICMPV6};
use crate::frame::wire::protocol;

/// Words of a key.
pub const WORDS: usize = 16;

/// What a packet is classified by. Words beyond those of [`word`] are 0.
pub type Key = [u32; WORDS];

/// Places in a key.
pub mod word {
    /// Source address; of IPv6 its first 32 bits.
    pub const SRC: usize = 0;
    /// Destination address; of IPv6 its first 32 bits.
    pub const DST: usize = 1;
    /// Source port, [`NO_PORT`], or [`ICMP`] and an ICMP type.
    pub const SRC_PORT: usize = 2;
    /// Destination port, or [`NO_PORT`].
    pub const DST_PORT: usize = 3;
    /// Protocol behind extension headers, or [`NO_PROTOCOL`].
    pub const PROTOCOL: usize = 4;
    /// TCP flags in the low 8 bits, [`NO_FLAGS`], [`FRAGMENT`], [`LATER`].
    pub const FLAGS: usize = 5;
    /// DSCP and ECN.
    pub const TRAFFIC_CLASS: usize = 6;
    /// Length of the packet in bytes, IP header included, as it states it.
    pub const LEN: usize = 7;
    /// Second to fourth word of an IPv6 source.
    pub const SRC_REST: usize = 8;
    /// Second to fourth word of an IPv6 destination.
    pub const DST_REST: usize = 11;

    /// There are no ports.
    pub const NO_PORT: u32 = 0x1_0000;
    /// Added to an ICMP type.
    pub const ICMP: u32 = 0x2_0000;
    /// The chain of extension headers is broken.
    pub const NO_PROTOCOL: u32 = 0x100;
    /// There are no TCP flags.
    pub const NO_FLAGS: u32 = 0x100;
    /// The packet is a fragment.
    pub const FRAGMENT: u32 = 0x200;
    /// The packet is a fragment other than the first.
    pub const LATER: u32 = 0x400;
}

/// A set of keys: a range of each word, and values of some of its bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyBox {
    /// The least value of each word.
    pub low: Key,
    /// The greatest.
    pub high: Key,
    /// The bits of each word that are compared with `bits`.
    pub mask: Key,
    /// What these bits are.
    pub bits: Key,
}

impl KeyBox {
    /// All keys.
    pub const ALL: Self =
        Self { low: [0; WORDS], high: [u32::MAX; WORDS], mask: [0; WORDS], bits: [0; WORDS] };

    /// Whether the key is in the box.
    pub fn contains(&self, key: &Key) -> bool {
        (0..WORDS).all(|w| {
            (self.low[w]..=self.high[w]).contains(&key[w]) && key[w] & self.mask[w] == self.bits[w]
        })
    }

    /// Whether all keys of the other box are in this one, as far as comparisons show.
    pub fn covers(&self, other: &Self) -> bool {
        (0..WORDS).all(|w| {
            let inside = self.low[w] <= other.low[w] && other.high[w] <= self.high[w];
            let known = self.mask[w] & !other.mask[w] == 0;
            inside && known && other.bits[w] & self.mask[w] == self.bits[w]
        })
    }

    /// The keys in both boxes; `None` where comparisons show that there are none.
    pub fn meet(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        for w in 0..WORDS {
            both.low[w] = self.low[w].max(other.low[w]);
            both.high[w] = self.high[w].min(other.high[w]);
            let common = self.mask[w] & other.mask[w];
            if both.low[w] > both.high[w] || (self.bits[w] ^ other.bits[w]) & common != 0 {
                return None;
            }
            both.mask[w] |= other.mask[w];
            both.bits[w] |= other.bits[w];
        }
        Some(both)
    }

    fn range(w: usize, low: u32, high: u32) -> Self {
        let mut one = Self::ALL;
        (one.low[w], one.high[w]) = (low, high);
        one
    }

    fn masked(w: usize, mask: u32, bits: u32) -> Self {
        let mut one = Self::ALL;
        (one.mask[w], one.bits[w]) = (mask, bits);
        one
    }
}

/// A condition as boxes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Boxes {
    /// Each packet that the condition takes is in one of these.
    pub boxes: Vec<KeyBox>,
    /// The condition takes each packet that is in one of them.
    pub exact: bool,
}

/// Boxes of one condition at most: a condition beyond is a single inexact box.
const MOST_BOXES: usize = 256;

/// Values of masked bits that are listed one by one at most.
const MOST_VALUES: usize = 64;

impl Boxes {
    fn exactly(boxes: Vec<KeyBox>) -> Self {
        Self { boxes, exact: true }
    }

    fn inexact() -> Self {
        Self { boxes: vec![KeyBox::ALL], exact: false }
    }
}

impl Condition {
    /// The condition as boxes over keys of a family.
    pub fn boxes(&self, family: Family) -> Boxes {
        let boxes = of(&self.0, family);
        if boxes.boxes.len() > MOST_BOXES { Boxes::inexact() } else { boxes }
    }
}

fn of(expr: &Expr<Field>, family: Family) -> Boxes {
    match expr {
        Expr::Const(false) => Boxes::exactly(Vec::new()),
        Expr::Const(true) => Boxes::exactly(vec![KeyBox::ALL]),
        Expr::Test(test, must) => match tested(test, family) {
            Some((inside, outside)) => Boxes::exactly(if *must { inside } else { outside }),
            None => Boxes::inexact(),
        },
        Expr::All(parts) => {
            let mut all = Boxes::exactly(vec![KeyBox::ALL]);
            for part in parts {
                let part = by_offset(part, parts)
                    .map_or_else(|| of(part, family), |test| of(&test, family));
                let pairs = all.boxes.iter().flat_map(|a| part.boxes.iter().map(|b| a.meet(b)));
                let met: Vec<_> = pairs.flatten().take(MOST_BOXES + 1).collect();
                if met.len() > MOST_BOXES {
                    // Without this part the boxes are larger, and still contain what is wanted.
                    all.exact = false;
                    continue;
                }
                all.boxes = met;
                all.exact &= part.exact;
            }
            // Nothing is in no box.
            all.exact |= all.boxes.is_empty();
            all
        }
        Expr::Any(parts) => {
            let mut any = Boxes::exactly(Vec::new());
            for part in parts {
                let part = of(part, family);
                any.exact &= part.exact;
                for one in part.boxes {
                    if !any.boxes.iter().any(|known| known.covers(&one)) {
                        any.boxes.push(one);
                    }
                }
                if any.boxes.len() > MOST_BOXES {
                    return Boxes::inexact();
                }
            }
            any
        }
    }
}

/// A test of bytes at an offset, beside a test of the protocol, that is one of a field.
fn by_offset(part: &Expr<Field>, beside: &[Expr<Field>]) -> Option<Expr<Field>> {
    let Expr::Test(test, true) = part else { return None };
    let is = |protocol: u8| {
        let test = Test::equal(Field::Protocol, 0xff, protocol.into());
        beside.contains(&Expr::Test(test, true))
    };
    let field = match test.load {
        Field::At(Layer::Transport, 13, 1) if is(protocol::TCP) => Field::TcpFlags,
        Field::At(Layer::Transport, 0, 1) if is(PROTOCOL_ICMP) || is(PROTOCOL_ICMPV6) => {
            Field::IcmpType
        }
        _ => return None,
    };
    Some(Expr::Test(Test { load: field, ..*test }, true))
}

/// Where a test holds, and where it does not; `None` where boxes cannot express it.
fn tested(test: &Test<Field>, family: Family) -> Option<(Vec<KeyBox>, Vec<KeyBox>)> {
    let (v4, v6) = (family == Family::V4, family == Family::V6);
    let never = || Some((Vec::new(), vec![KeyBox::ALL]));
    let rest = |first: usize, more: usize, n: u8| {
        if n == 0 { first } else { more + usize::from(n) - 1 }
    };
    // The word, what its field's values are added to, and how many bits they have.
    let (w, base, bits) = match test.load {
        Field::Version => {
            let version = if v4 { 4 } else { 6 };
            let holds = (test.low..=test.high).contains(&(version & test.mask));
            let all = vec![KeyBox::ALL];
            return Some(if holds { (all, Vec::new()) } else { (Vec::new(), all) });
        }
        Field::Src4 | Field::Dst4 | Field::HeaderWords | Field::Id if v6 => return never(),
        Field::Src6(_) | Field::Dst6(_) if v4 => return never(),
        Field::At(Layer::Link, ..) => return None,
        Field::At(Layer::V6, ..) if v4 => return never(),
        Field::At(Layer::V4, ..) if v6 => return never(),
        Field::HeaderWords | Field::Id | Field::Ttl | Field::At(..) => return None,
        Field::Src4 => (word::SRC, 0, 32),
        Field::Dst4 => (word::DST, 0, 32),
        Field::Src6(n) => (rest(word::SRC, word::SRC_REST, n), 0, 32),
        Field::Dst6(n) => (rest(word::DST, word::DST_REST, n), 0, 32),
        Field::SrcPort => (word::SRC_PORT, 0, 16),
        Field::DstPort => (word::DST_PORT, 0, 16),
        Field::IcmpType => (word::SRC_PORT, word::ICMP, 8),
        Field::Protocol => (word::PROTOCOL, 0, 8),
        Field::TrafficClass => (word::TRAFFIC_CLASS, 0, 8),
        Field::Len => (word::LEN, 0, 20),
        Field::TcpFlags => return by_value(test, word::FLAGS, Some(word::NO_FLAGS)),
        Field::Fragment => return by_value(&shifted(test, 9), word::FLAGS, None),
        Field::Later => return by_value(&shifted(test, 10), word::FLAGS, None),
    };
    let all: u32 = u32::MAX >> (32 - bits);
    // A mask of leading bits leaves a range; trailing ones that it lacks may be anything.
    let free = all & !test.mask;
    if free & free.wrapping_add(1) != 0 {
        // Ports and ICMP types share a word, in which values alone do not show whether there is one.
        return if w == word::SRC_PORT || w == word::DST_PORT {
            None
        } else {
            by_value(test, w, None)
        };
    }
    let low = test.low.checked_add(free).map(|low| low & !free);
    let (Some(low), high) = (low, (test.high & !free | free).min(all)) else { return never() };
    if low > high {
        return never();
    }
    let (low, high) = (base + low, base + high);
    let mut outside = Vec::new();
    if let Some(below) = low.checked_sub(1) {
        outside.push(KeyBox::range(w, 0, below));
    }
    if let Some(above) = high.checked_add(1) {
        outside.push(KeyBox::range(w, above, u32::MAX));
    }
    Some((vec![KeyBox::range(w, low, high)], outside))
}

/// A test of a field that lies further left in its word.
fn shifted(test: &Test<Field>, by: u32) -> Test<Field> {
    Test { mask: test.mask << by, low: test.low << by, high: test.high << by, ..*test }
}

/// The values of the masked bits, one by one. A packet lacks the field where the bit `absent` is set.
fn by_value(
    test: &Test<Field>,
    w: usize,
    absent: Option<u32>,
) -> Option<(Vec<KeyBox>, Vec<KeyBox>)> {
    if test.mask.count_ones() > MOST_VALUES.ilog2() {
        return None;
    }
    let there = absent.unwrap_or(0);
    let mut outside: Vec<_> = absent.map(|bit| KeyBox::masked(w, bit, bit)).into_iter().collect();
    let mut inside = Vec::new();
    let mut value = 0_u32;
    loop {
        let holds = (test.low..=test.high).contains(&value);
        let side = if holds { &mut inside } else { &mut outside };
        side.push(KeyBox::masked(w, test.mask | there, value));
        // The next larger number of these bits alone.
        value = value.wrapping_sub(test.mask) & test.mask;
        if value == 0 {
            return Some((inside, outside));
        }
    }
}
