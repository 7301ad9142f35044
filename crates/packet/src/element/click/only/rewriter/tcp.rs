//! Sequence numbers of a direction into whose data bytes were put, or taken out.
//!
//! Source: the manual page of Click's `TCPRewriter`. A change is known by where the changed data ended. Changes that are more
//! than a gigabyte back are those of all numbers from then on.

/// Numbers behind which others are forgotten.
const FAR: i32 = 1 << 30;

/// What was changed, in order.
#[derive(Clone, Default, Debug)]
pub(crate) struct Deltas {
    /// What is added to all numbers.
    base: u32,
    /// Where the changed data ended, and what is added to numbers from there on.
    changes: Vec<(u32, u32)>,
}

#[allow(clippy::cast_possible_wrap, reason = "the distance on a circle")]
fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

/// Changes of a flow that are known one by one: what is older is acknowledged.
const MOST: usize = 16;

impl Deltas {
    /// Data that began at a number changed its length. Data that is sent again changes nothing.
    pub(crate) fn change(&mut self, seq: u32, before: u32, after: u32) {
        let end = seq.wrapping_add(before);
        if before == after || self.changes.iter().any(|&(known, _)| distance(known, end) <= 0) {
            return;
        }
        let last = self.changes.last().map_or(self.base, |change| change.1);
        if self.changes.len() == MOST {
            self.base = self.changes.remove(0).1;
        }
        self.changes.push((end, last.wrapping_add(after).wrapping_sub(before)));
    }

    /// The number that stands for one of the sender's.
    pub(crate) fn forward(&mut self, seq: u32) -> u32 {
        if let Some(&(end, delta)) = self.changes.last()
            && distance(end, seq) > FAR
        {
            self.base = delta;
            self.changes.clear();
        }
        let past = self.changes.iter().rev().find(|(end, _)| distance(*end, seq) >= 0);
        seq.wrapping_add(past.map_or(self.base, |change| change.1))
    }

    /// The sender's number that one stands for.
    pub(crate) fn backward(&self, ack: u32) -> u32 {
        let past = self.changes.iter().rev();
        let past = past.clone().find(|(end, delta)| distance(end.wrapping_add(*delta), ack) >= 0);
        ack.wrapping_sub(past.map_or(self.base, |change| change.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_behind_a_change_are_moved() {
        let mut deltas = Deltas::default();
        deltas.change(1, 29, 17);
        deltas.change(1, 29, 17);
        assert_eq!([0, 1, 30, 36].map(|seq| deltas.forward(seq)), [0, 1, 18, 24]);
        assert_eq!([1, 10, 18, 20].map(|ack| deltas.backward(ack)), [1, 10, 30, 32]);
        deltas.change(36, 29, 17);
        assert_eq!([30, 65, 71].map(|seq| deltas.forward(seq)), [18, 41, 47]);
        assert_eq!([10, 18, 45].map(|ack| deltas.backward(ack)), [10, 30, 69]);
        assert_eq!(
            (deltas.forward(1_100_000_000), deltas.forward(0)),
            (1_099_999_976, u32::MAX - 23)
        );
        assert_eq!(deltas.backward(0), 24);
    }
}
