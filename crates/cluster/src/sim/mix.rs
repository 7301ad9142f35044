//! Traffic like that of a trace: many flows of heavy-tailed sizes, which send in bursts.
//!
//! Source: sizes and bursts of Internet traffic are Pareto (Crovella and Bestavros, "Self-similarity in World Wide Web
//!         traffic", 1997; Kandula et al., CCR 2007, for the bursts of TCP flows that flowlets live on).
//! Shape:  on-off sources. A source sends flows one after another, each to an output drawn from the matrix, in bursts with
//!         the gap of its round-trip time. How long the flows are does not change how much is offered.
//! Cost:   a packet costs a push to and a pop from a heap of the sources of its input.
//! Limits: packets of sources that are due at once leave one a slot, as from one port.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fingerpost_lpm::Rng;

use super::Matrix;
use crate::rule::NodeId;

/// Parameters of the mix. Times are in slots.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Mean time between the packets of a burst: a port of a sender, slower than R.
    pub spacing_slots: u32,
    /// Gaps between bursts, the shortest and the longest; evenly spread by their logarithm.
    pub gap_slots: (u32, u32),
    /// Packets of the largest flow.
    pub largest: u32,
}

/// Nanoseconds of a slot in the default mix: 700 bytes, the mean of a backbone trace, at 10 Gbit/s.
pub const SLOT_NS: f64 = 560.0;

impl Default for Mix {
    /// Senders with ports of 1 Gbit/s and round trips of 0.6 to 60 ms, in slots of [`SLOT_NS`].
    fn default() -> Self {
        Self { spacing_slots: 10, gap_slots: (1_100, 110_000), largest: 100_000 }
    }
}

impl Mix {
    /// Packets of one input, each with its slot and its flow, for a load in packets a slot.
    pub fn packets(self, load: f64, seed: u64) -> impl Iterator<Item = (u32, u32)> {
        let (matrix, mut rng) = (Matrix::overload(2, &[1.0]), Rng::new(seed));
        let mut sources = Sources::new(self, &matrix, load, &mut rng);
        (0..u32::MAX).filter_map(move |slot| {
            let (_, flow) = sources.next(0, slot, &matrix, &mut rng)?;
            Some((slot, flow))
        })
    }
}

/// Pareto numbers, rounded down, with an upper bound.
#[derive(Clone, Copy, Debug)]
struct Pareto {
    least: f64,
    shape: f64,
    most: u32,
}

/// Packets of a burst.
const BURST: Pareto = Pareto { least: 2.0, shape: 1.5, most: 256 };

impl Pareto {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by `most`")]
    fn draw(&self, rng: &mut Rng) -> u32 {
        let drawn = self.least * (1.0 - rng.unit()).powf(-1.0 / self.shape);
        drawn.min(f64::from(self.most)) as u32
    }

    fn mean(&self) -> f64 {
        (1..=self.most).map(|k| (self.least / f64::from(k)).powf(self.shape).min(1.0)).sum()
    }
}

/// One source.
#[derive(Clone, Copy, Debug)]
struct Source {
    gap: f64,
    to: NodeId,
    flow: u32,
    /// Packets that are left of the flow and of the burst.
    flow_left: u32,
    burst_left: u32,
}

/// Sources of all inputs.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    mix: Mix,
    sources: Vec<Source>,
    /// For each input, when its sources send next; times are not rounded to slots before they are due.
    due: Vec<BinaryHeap<Reverse<(u64, u32)>>>,
    flows: u32,
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sources are bounded by the load, times by a run and a gap"
)]
impl Sources {
    /// Sources that offer `load` of the matrix.
    pub(super) fn new(mix: Mix, matrix: &Matrix, load: f64, rng: &mut Rng) -> Self {
        let burst = BURST.mean();
        let (shortest, longest) = (f64::from(mix.gap_slots.0), f64::from(mix.gap_slots.1));
        let mut all = Self { mix, sources: Vec::new(), due: Vec::new(), flows: 0 };
        for from in 0..matrix.nodes() {
            let (mut left, mut due) = ((matrix.input(from) * load).min(1.0), BinaryHeap::new());
            while left > 0.0 {
                let gap = shortest * (longest / shortest).powf(rng.unit());
                let cycle = gap + (burst - 1.0) * f64::from(mix.spacing_slots);
                // The last source fills up what is left of the load.
                let cycle = cycle.max(burst / left);
                let gap = cycle - (burst - 1.0) * f64::from(mix.spacing_slots);
                left -= burst / cycle;
                left = if left < 1e-6 { 0.0 } else { left };
                let source = all.sources.len() as u32;
                all.sources.push(Source { gap, to: 0, flow: 0, flow_left: 0, burst_left: 0 });
                due.push(Reverse(((rng.unit() * cycle) as u64, source)));
            }
            all.due.push(due);
        }
        all
    }

    /// Packet of an input in this slot, as its output and its flow. Flows are numbered in the order of their begin.
    #[inline]
    pub(super) fn next(
        &mut self,
        from: usize,
        slot: u32,
        matrix: &Matrix,
        rng: &mut Rng,
    ) -> Option<(NodeId, u32)> {
        let mut first = self.due[from].peek_mut()?;
        let Reverse((due, at)) = *first;
        if due > u64::from(slot) {
            return None;
        }
        let source = &mut self.sources[at as usize];
        if source.flow_left == 0 {
            let sizes = Pareto { least: 3.0, shape: 1.2, most: self.mix.largest };
            (source.flow, source.flow_left) = (self.flows, sizes.draw(rng));
            source.to = matrix.draw(from, rng);
            self.flows += 1;
        }
        if source.burst_left == 0 {
            source.burst_left = BURST.draw(rng);
        }
        source.flow_left -= 1;
        source.burst_left -= 1;
        let wait = if source.burst_left > 0 {
            1 + rng.below(2 * self.mix.spacing_slots as usize - 1) as u64
        } else {
            (-(1.0 - rng.unit()).ln() * source.gap) as u64
        };
        *first = Reverse((due + wait, at));
        Some((source.to, source.flow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_and_the_tail_of_the_mix() {
        let (matrix, mut rng) = (Matrix::overload(4, &[1.0, 0.25]), Rng::new(1));
        let mut sources = Sources::new(Mix::default(), &matrix, 0.8, &mut rng);
        let (mut counts, mut sizes) = ([0.0; 4], Vec::new());
        for slot in 0..1_000_000 {
            for (from, count) in counts.iter_mut().enumerate() {
                let Some((to, flow)) = sources.next(from, slot, &matrix, &mut rng) else {
                    continue;
                };
                assert_eq!(to, 3);
                *count += 1e-6;
                sizes.resize(sizes.len().max(flow as usize + 1), 0u32);
                sizes[flow as usize] += 1;
            }
        }
        assert!((counts[0] - 0.8f64).abs() < 0.05, "{counts:?}");
        assert!((counts[1] - 0.2f64).abs() < 0.02, "{counts:?}");
        assert_eq!(counts[2], 0.0);
        sizes.sort_unstable_by_key(|&size| Reverse(size));
        let (sum, tenth) =
            (sizes.iter().sum::<u32>(), sizes[..sizes.len() / 10].iter().sum::<u32>());
        assert!(sizes.len() > 10_000 && tenth > sum / 2, "{} flows, {tenth} of {sum}", sizes.len());
    }
}
