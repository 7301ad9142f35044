//! What was unlinked, in order, until no reader can hold it.

use alloc::collections::VecDeque;

use crate::lookup::{Epoch, Grace};

/// Blocks of memory, each with the epoch that must pass before it is used again.
#[derive(Debug)]
pub(crate) struct Retired<B>(VecDeque<(Epoch, B)>);

impl<B> Default for Retired<B> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<B> Retired<B> {
    /// One more, unlinked at `epoch`: what [`Grace::retire`] gave, not before that of the last one.
    pub(crate) fn push(&mut self, epoch: Epoch, block: B) {
        self.0.push_back((epoch, block));
    }

    /// The first, if it has passed. `passed` is the epoch that was found to have: a check takes a fence, and
    /// what a step unlinked has one epoch. It starts as `None` and is kept for the next call.
    pub(crate) fn pop(&mut self, grace: &dyn Grace, passed: &mut Option<Epoch>) -> Option<B> {
        let &(epoch, _) = self.0.front()?;
        if *passed != Some(epoch) && !grace.passed(epoch) {
            return None;
        }
        *passed = Some(epoch);
        self.0.pop_front().map(|(_, block)| block)
    }

    /// Whether nothing waits.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::HeldGrace;

    #[test]
    fn blocks_come_back_in_order_once_their_epoch_has_passed() {
        let (mut grace, mut waiting) = (HeldGrace::default(), Retired::default());
        let first = grace.retire();
        [1, 2].into_iter().for_each(|block| waiting.push(first, block));
        assert_eq!(waiting.pop(&grace, &mut None), None);
        grace.release();
        waiting.push(grace.retire(), 3);
        let mut passed = None;
        assert_eq!([1, 2, 3].map(|_| waiting.pop(&grace, &mut passed)), [Some(1), Some(2), None]);
        assert_eq!(passed, Some(first));
        grace.release();
        assert_eq!([3, 4].map(|_| waiting.pop(&grace, &mut passed)), [Some(3), None]);
    }
}
