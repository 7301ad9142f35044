//! Right answers, worked out by the oracle before anything is timed.

use fingerpost_lpm::oracle::Oracle;
use fingerpost_lpm::{Addr, Lookup, NextHopId, Prefix};

use crate::document::Mode;

/// Addresses with the answers that the oracle gives.
#[derive(Clone, Debug)]
pub struct Questions<A: Addr> {
    /// Keys to look up.
    pub addrs: Vec<A>,
    /// What must come out.
    pub answers: Vec<NextHopId>,
}

impl<A: Addr> Questions<A> {
    /// Computes the expected answers by the oracle.
    pub fn new(addrs: Vec<A>, oracle: &Oracle<A>) -> Self {
        let answers = addrs.iter().map(|&addr| oracle.lookup(addr)).collect();
        Self { addrs, answers }
    }

    /// Both ends of prefixes and the addresses beside them: of all where there are no more than
    /// `most`, else of every n-th.
    pub fn edges(routes: &[(Prefix<A>, u32)], most: usize, oracle: &Oracle<A>) -> Self {
        let step = routes.len().div_ceil(most.max(1)).max(1);
        let ends = routes.iter().step_by(step).flat_map(|(prefix, _)| {
            let (first, last) = (prefix.first(), prefix.last());
            [first.prev(), first, last, last.next()]
        });
        Self::new(ends.collect(), oracle)
    }

    /// Number of wrong answers, in that mode.
    pub fn wrong(&self, lookup: &dyn Lookup<A>, mode: Mode, batch: usize) -> u64 {
        let mut out = vec![NextHopId::NONE; batch];
        let mut wrong = 0;
        for (addrs, answers) in self.addrs.chunks(batch).zip(self.answers.chunks(batch)) {
            ask(lookup, mode, addrs, &mut out);
            wrong += out.iter().zip(answers).filter(|(got, want)| got != want).count() as u64;
        }
        wrong
    }
}

/// One batch, in whatever mode.
pub fn ask<A: Addr>(lookup: &dyn Lookup<A>, mode: Mode, addrs: &[A], out: &mut [NextHopId]) {
    match mode {
        Mode::Batch => lookup.lookup_batch(addrs, out),
        Mode::Single => lookup.lookup_each(addrs, out),
        Mode::Dependent => lookup.lookup_chain(addrs, std::hint::black_box(0), out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fingerpost_lpm::{Heap, RouteStore};

    #[test]
    fn wrong_answers_are_counted() {
        let prefix = |text: &str| text.parse::<Prefix<u32>>().unwrap();
        let routes = [(prefix("10.0.0.0/8"), 1), (prefix("10.1.0.0/16"), 2)];
        let pairs = || routes.iter().map(|&(prefix, hop)| (prefix, NextHopId(hop)));
        let oracle: Oracle<u32> = pairs().collect();
        let store: RouteStore<u32> = pairs().collect();
        let mut table = fingerpost_lpm::find_v4("radix").unwrap().build(&store, &mut Heap).unwrap();
        let lookup = table.publish();
        let mut edges = Questions::edges(&routes, 10, &oracle);
        assert_eq!(edges.addrs.len(), 8);
        assert_eq!(Questions::edges(&routes, 1, &oracle).addrs.len(), 4);
        for mode in [Mode::Batch, Mode::Single, Mode::Dependent] {
            assert_eq!(edges.wrong(&*lookup, mode, 3), 0, "{mode:?}");
        }
        edges.answers[1] = NextHopId(3);
        edges.answers[7] = NextHopId(3);
        for mode in [Mode::Batch, Mode::Single, Mode::Dependent] {
            assert_eq!(edges.wrong(&*lookup, mode, 3), 2, "{mode:?}");
        }
    }
}
