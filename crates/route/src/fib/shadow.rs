//! Shadows: further tables, of other algorithms, that follow the same routes as the published one.
//!
//! They are fed the same changes in the same rounds, are asked by nobody but [`Fib::compare`], and can be
//! swapped in without a build when their algorithm is chosen; the table that served then takes their
//! place. A shadow that cannot follow is built again, or dropped, and the log says so; readers notice
//! nothing.

use std::net::IpAddr;
use std::sync::Arc;

use fingerpost_lpm::{
    Addr, Algorithm, Change, Grace, HugePages, Lookup, NextHopId, Routes, Table, UpdateError,
};

use super::audit::Mix;
use super::{Current, Fib, InstanceReport};

/// Addresses asked for at a time.
const BATCH: usize = 256;

/// A table beside the published one.
pub(super) struct Shadow<A: Addr> {
    algorithm: &'static Algorithm<A>,
    /// `None` until the first round, and when it lost step.
    state: Option<State<A>>,
}

struct State<A: Addr> {
    table: Box<dyn Table<A>>,
    lookup: Arc<dyn Lookup<A>>,
}

/// How a shadow compares with the published table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The shadow's algorithm.
    pub algorithm: &'static str,
    /// Addresses asked for.
    pub checked: u64,
    /// Those for which the answers differ.
    pub mismatches: u64,
    /// The first of them: address, answer of the published table, answer of the shadow.
    pub first: Option<(IpAddr, NextHopId, NextHopId)>,
}

impl<A: Addr> Fib<A> {
    /// Keeps a table of this algorithm in step beside the published one, from the next commit on.
    ///
    /// # Errors
    /// The names there are, when this is none of them.
    pub fn shadow(&mut self, name: &str) -> Result<(), Vec<&'static str>> {
        let Some(algorithm) = self.chooser.row(name) else {
            return Err(self.chooser.names().collect());
        };
        if self.shadows.iter().all(|shadow| shadow.algorithm.name != name) {
            self.shadows.push(Shadow { algorithm, state: None });
            self.forced = true;
        }
        Ok(())
    }

    /// Ends the shadow of this algorithm; whether there was one.
    pub fn unshadow(&mut self, name: &str) -> bool {
        let before = self.shadows.len();
        self.shadows.retain(|shadow| shadow.algorithm.name != name);
        self.shadows.len() < before
    }

    /// Asks the published table and every shadow that is in step for `random` addresses and for those at
    /// both ends of every prefix, inside and outside.
    pub fn compare(&self, routes: &dyn Routes<A>, random: usize, seed: u64) -> Vec<Compared> {
        let mut mix = Mix(seed);
        let mut addrs: Vec<A> = (0..random).map(|_| mix.addr()).collect();
        routes.walk(A::MIN, A::MAX, &mut |prefix, _| {
            let (first, last) = (prefix.first(), prefix.last());
            addrs.extend([first.prev(), first, first.next(), last.prev(), last, last.next()]);
        });
        let in_step =
            self.shadows.iter().filter_map(|s| Some((s.algorithm.name, s.state.as_ref()?)));
        in_step.map(|(name, state)| compare(name, &*self.lookup, &*state.lookup, &addrs)).collect()
    }

    /// The shadows, for the report.
    pub(super) fn shadow_reports(&self) -> impl Iterator<Item = InstanceReport> + '_ {
        self.shadows.iter().map(|shadow| InstanceReport {
            algorithm: shadow.algorithm.name,
            published: false,
            bytes: shadow.state.as_ref().map_or(0, |state| state.lookup.bytes()),
        })
    }

    /// Makes the shadow of `algorithm` the published table, if there is one in step, and the table that
    /// served a shadow; `changes` are applied to the former, and by [`Fib::follow`] to the latter.
    pub(super) fn swap(
        &mut self,
        algorithm: &'static Algorithm<A>,
        changes: &[Change<A>],
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
    ) -> bool {
        let named = |shadow: &&mut Shadow<A>| shadow.algorithm.name == algorithm.name;
        let Some(shadow) = self.shadows.iter_mut().find(named).filter(|_| !self.stale) else {
            return false;
        };
        let (Some(mut state), Some(current)) = (shadow.state.take(), self.current.take()) else {
            return false;
        };
        if !changes.is_empty() && state.table.apply(changes, routes, grace).is_err() {
            self.current = Some(current);
            return false;
        }
        let was = current.algorithm;
        let lookup = std::mem::replace(&mut self.lookup, state.table.publish());
        *shadow = Shadow { algorithm: was, state: Some(State { table: current.table, lookup }) };
        self.current = Some(Current { algorithm, table: state.table });
        self.decide(&format!("{} -> {}, which was in step", was.name, algorithm.name));
        true
    }

    /// Brings the shadows in step; `blind` when `changes` are not all that changed.
    pub(super) fn follow(
        &mut self,
        changes: &[Change<A>],
        blind: bool,
        routes: &dyn Routes<A>,
        grace: &mut dyn Grace,
    ) {
        let mut lost = Vec::new();
        for shadow in &mut self.shadows {
            let applied = match &mut shadow.state {
                Some(_) if changes.is_empty() && !blind => Ok(()),
                Some(state) if !blind => state.table.apply(changes, routes, grace),
                _ => Err(UpdateError::Rebuild),
            };
            let result = match applied {
                Err(UpdateError::Rebuild) => shadow.build(routes),
                other => other,
            };
            match (result, &mut shadow.state) {
                (Ok(()), Some(state)) => state.lookup = state.table.publish(),
                (Ok(()), None) => {}
                (Err(error), _) => lost.push((shadow.algorithm.name, error)),
            }
        }
        for (name, error) in lost {
            self.unshadow(name);
            self.decide(&format!("shadow {name} given up: {error}"));
        }
    }
}

impl<A: Addr> Shadow<A> {
    fn build(&mut self, routes: &dyn Routes<A>) -> Result<(), UpdateError> {
        let mut table = self.algorithm.build(routes, &mut HugePages::new())?;
        let lookup = table.publish();
        self.state = Some(State { table, lookup });
        Ok(())
    }
}

fn compare<A: Addr>(
    algorithm: &'static str,
    published: &dyn Lookup<A>,
    shadow: &dyn Lookup<A>,
    addrs: &[A],
) -> Compared {
    let mut result = Compared { algorithm, checked: 0, mismatches: 0, first: None };
    let (mut wants, mut gots) = ([NextHopId::NONE; BATCH], [NextHopId::NONE; BATCH]);
    for addrs in addrs.chunks(BATCH) {
        published.lookup_batch(addrs, &mut wants);
        shadow.lookup_batch(addrs, &mut gots);
        result.checked += addrs.len() as u64;
        for ((&addr, &want), &got) in addrs.iter().zip(&wants).zip(&gots) {
            if want != got {
                result.mismatches += 1;
                result.first.get_or_insert((addr.to_ip(), want, got));
            }
        }
    }
    result
}
