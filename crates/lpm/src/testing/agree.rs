//! Millions of addresses against the oracle: for real tables.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::Rng;
use super::streams::{Addresses, Stream};
use crate::addr::{Addr, Prefix};
use crate::error::UpdateError;
use crate::lookup::{Algorithm, Lookup};
use crate::mem::Heap;
use crate::next_hop_id::NextHopId;
use crate::oracle::Oracle;
use crate::routes::RouteStore;

/// Why an algorithm and the oracle do not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch<A: Addr> {
    /// The table was not built.
    Refused(UpdateError),
    /// A wrong answer.
    Answer {
        /// Address of the lookup.
        addr: A,
        /// Answer of the algorithm.
        got: NextHopId,
        /// Answer of the oracle, with its route.
        want: Option<(Prefix<A>, NextHopId)>,
        /// Whether the lookup was in a batch, or alone.
        batch: bool,
    },
}

impl<A: Addr> fmt::Display for Mismatch<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "not built: {error}"),
            Self::Answer { addr, got, want, batch } => {
                let how = if *batch { "in a batch" } else { "alone" };
                write!(f, "{} gives {} {how}, ", addr.to_ip(), got.0)?;
                match want {
                    Some((prefix, hop)) => write!(f, "the oracle {} by {prefix}", hop.0),
                    None => f.write_str("the oracle has no route"),
                }
            }
        }
    }
}

impl<A: Addr> core::error::Error for Mismatch<A> {}

/// Addresses and their right answers, worked out once for any number of algorithms.
///
/// Four tenths are the ends of the prefixes and the addresses before and after them (all of them
/// where the number allows), the rest are in equal parts uniform, in announced prefixes, and at edges
/// drawn at random.
pub struct Questions<A: Addr> {
    routes: RouteStore<A>,
    oracle: Oracle<A>,
    addrs: Vec<A>,
    answers: Vec<NextHopId>,
}

/// Addresses looked up at once, as a worker would.
const BATCH: usize = 256;
/// One address in so many is also looked up alone.
const SINGLE: usize = 8;

impl<A: Addr> Questions<A> {
    /// Works out the answers to `count` addresses.
    pub fn new(routes: &[(Prefix<A>, NextHopId)], count: usize, seed: u64) -> Self {
        let prefixes: Vec<_> = routes.iter().map(|&(prefix, _)| prefix).collect();
        let mut addrs = Vec::with_capacity(count);
        let mut rng = Rng::new(seed);
        // A random rotation, so that several runs with few addresses see different edges.
        let from = if prefixes.is_empty() { 0 } else { rng.below(prefixes.len()) };
        for &prefix in prefixes[from..].iter().chain(&prefixes[..from]) {
            if addrs.len() + 4 > count * 4 / 10 {
                break;
            }
            let (first, last) = (prefix.first(), prefix.last());
            addrs.extend([first.prev(), first, last, last.next()]);
        }
        let streams = [Stream::Uniform, Stream::Announced, Stream::Edges, Stream::Anywhere];
        let mut streams = streams.map(|stream| Addresses::new(stream, &prefixes, rng.word()));
        while addrs.len() < count {
            // Addresses outside all routed space are worth few questions.
            let stream = if rng.chance(2) { 3 } else { rng.below(3) };
            addrs.push(streams[stream].draw());
        }
        let oracle: Oracle<A> = routes.iter().copied().collect();
        let answers = answers(&prefixes, &oracle, &addrs);
        Self { routes: routes.iter().copied().collect(), oracle, addrs, answers }
    }

    /// Routes that the lookups are about.
    pub fn routes(&self) -> &RouteStore<A> {
        &self.routes
    }

    /// Builds a table and looks all addresses up in it. Returns their number.
    ///
    /// # Errors
    /// The first [`Mismatch`].
    pub fn ask(&self, algorithm: &Algorithm<A>) -> Result<u64, Mismatch<A>> {
        let table = algorithm.build(&self.routes, &mut Heap);
        self.ask_lookup(&*table.map_err(Mismatch::Refused)?.publish())
    }

    /// Looks all addresses up in a table that exists.
    ///
    /// # Errors
    /// The first [`Mismatch`].
    pub fn ask_lookup(&self, lookup: &dyn Lookup<A>) -> Result<u64, Mismatch<A>> {
        let mut out = vec![NextHopId::NONE; BATCH];
        for (addrs, answers) in self.addrs.chunks(BATCH).zip(self.answers.chunks(BATCH)) {
            lookup.lookup_batch(addrs, &mut out);
            for (i, (&addr, &want)) in addrs.iter().zip(answers).enumerate() {
                self.compare(addr, out[i], want, true)?;
                if i % SINGLE == 0 {
                    self.compare(addr, lookup.lookup(addr), want, false)?;
                }
            }
        }
        Ok(self.addrs.len() as u64)
    }

    fn compare(
        &self,
        addr: A,
        got: NextHopId,
        want: NextHopId,
        batch: bool,
    ) -> Result<(), Mismatch<A>> {
        if got == want {
            return Ok(());
        }
        Err(Mismatch::Answer { addr, got, want: self.oracle.best(addr), batch })
    }
}

/// Answers of the oracle. It is queried once for each stretch in which no prefix begins or
/// ends, as all addresses of one have the same answer; and for some addresses themselves, in case that
/// were not so.
fn answers<A: Addr>(prefixes: &[Prefix<A>], oracle: &Oracle<A>, addrs: &[A]) -> Vec<NextHopId> {
    if addrs.len() < prefixes.len() {
        return addrs.iter().map(|&addr| oracle.lookup(addr)).collect();
    }
    let mut starts: Vec<A> = prefixes.iter().flat_map(|p| [p.first(), p.last().next()]).collect();
    starts.push(A::MIN);
    starts.sort_unstable();
    starts.dedup();
    let hops: Vec<_> = starts.iter().map(|&start| oracle.lookup(start)).collect();
    let answer = |(at, &addr): (usize, &A)| {
        let hop = hops[starts.partition_point(|&start| start <= addr) - 1];
        if at.is_multiple_of(64) {
            assert_eq!(hop, oracle.lookup(addr), "{}", addr.to_ip());
        }
        hop
    };
    addrs.iter().enumerate().map(answer).collect()
}

/// Builds a table of `routes` and compares its answers to `count` uniform, prefix-biased and edge
/// addresses with the oracle. Returns how many were compared. For several algorithms on one table use
/// [`Questions`], which queries the oracle once.
///
/// # Errors
/// The first [`Mismatch`].
pub fn agree<A: Addr>(
    algorithm: &Algorithm<A>,
    routes: &[(Prefix<A>, NextHopId)],
    count: usize,
    seed: u64,
) -> Result<u64, Mismatch<A>> {
    Questions::new(routes, count, seed).ask(algorithm)
}
