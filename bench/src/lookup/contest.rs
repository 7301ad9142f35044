//! What takes turns: a lookup structure (or a ceiling) with a stream of keys.

use std::sync::Arc;

use fingerpost_lpm::{Addr, Lookup, NextHopId};

use super::ceiling::{Loads, Words};
use super::check::ask;
use crate::document::Mode;
use crate::measure::Measured;

/// Keys between two looks at the clock.
const TURN: usize = 1 << 14;

/// What is asked.
pub(super) enum Subject<A: Addr> {
    /// An algorithm's reader.
    Lookup(Arc<dyn Lookup<A>>),
    /// The machine.
    Ceiling(Loads, Arc<Words>),
}

/// One that takes turns.
pub(super) struct Contestant<A: Addr> {
    pub(super) subject: Subject<A>,
    pub(super) mode: Mode,
    keys: Arc<Vec<A>>,
    at: usize,
    out: Vec<NextHopId>,
    /// Of all answers, so that none is left out.
    sum: u64,
}

impl<A: Addr> Contestant<A> {
    /// Asks `keys` in order, `batch` at a time, over and over.
    pub(super) fn new(subject: Subject<A>, mode: Mode, keys: &Arc<Vec<A>>, batch: usize) -> Self {
        // A chain goes on from batch to batch; a longer one is cut less often.
        let step = if mode == Mode::Dependent { TURN } else { batch };
        let out = vec![NextHopId::NONE; step];
        Self { subject, mode, keys: Arc::clone(keys), at: 0, out, sum: 0 }
    }
}

impl<A: Addr> Measured for Contestant<A> {
    fn work(&mut self) -> u64 {
        if self.at >= self.keys.len() {
            self.at = 0;
        }
        let keys = &self.keys[self.at..self.keys.len().min(self.at + TURN)];
        self.at += keys.len();
        for keys in keys.chunks(self.out.len()) {
            let out = &mut self.out[..keys.len()];
            match &self.subject {
                Subject::Lookup(lookup) => ask(&**lookup, self.mode, keys, out),
                Subject::Ceiling(loads, words) => words.run(*loads, self.mode, keys, out),
            }
            self.sum += out.iter().map(|hop| u64::from(hop.0)).sum::<u64>();
        }
        std::hint::black_box(self.sum);
        keys.len() as u64
    }
}
