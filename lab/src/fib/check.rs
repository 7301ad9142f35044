//! What packets must do, by the oracle, and what they do.

use fingerpost_lpm::Prefix;
use fingerpost_lpm::oracle::Oracle;
use fingerpost_lpm::testing::Rng;
use fingerpost_route::Forwarding;

use super::world;
use crate::family::Family;
use crate::lookup::check::Questions;

/// Prefixes whose edges are looked up.
const EDGES: usize = 50_000;

/// Looks up the edges of `prefixes`; returns the number of answers, and of wrong ones.
pub(super) fn edges<A: Family>(
    forwarding: &Forwarding,
    prefixes: &[(Prefix<A>, u32)],
    oracle: &Oracle<A>,
) -> (u64, u64) {
    let questions = Questions::edges(prefixes, EDGES, oracle);
    let pairs = questions.addrs.iter().zip(&questions.answers);
    let (mut asked, mut wrong) = (0, 0);
    for (&addr, &hop) in pairs.filter(|(addr, _)| !world::is_ours(**addr)) {
        asked += 1;
        wrong += u64::from(world::leaves(forwarding, addr, 0) != world::wanted::<A>(hop));
    }
    (asked, wrong)
}

/// An address that just this prefix decides, if one is found among a few.
pub(super) fn own_addr<A: Family>(
    prefix: Prefix<A>,
    oracle: &Oracle<A>,
    rng: &mut Rng,
) -> Option<A> {
    let random = |rng: &mut Rng| prefix.addr() | rng.addr::<A>() & !A::mask(prefix.len());
    let tries = [prefix.first(), prefix.last(), random(rng), random(rng), random(rng)];
    tries.into_iter().find(|&addr| {
        !world::is_ours(addr) && oracle.best(addr).is_some_and(|(found, _)| found == prefix)
    })
}
