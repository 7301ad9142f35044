//! Arrivals of packets at the inputs: bursts of geometric length with geometric gaps.
//!
//! A mean burst of one packet is Bernoulli traffic. All packets of a burst go from one input to one output, as one flow.
//! Or the sources of a mix, or the packets of a capture file.

use fingerpost_lpm::Rng;

use super::mix::Sources;
use super::trace::Playback;
use super::{Config, Matrix};
use crate::rule::NodeId;

/// One input.
#[derive(Clone, Debug, Default)]
struct Input {
    /// Probability that an idle slot begins a burst.
    begin: f64,
    /// Whether a burst lasts, with its output and flow.
    current: Option<(NodeId, u32)>,
}

/// Traffic in place of bursts.
#[derive(Clone, Debug)]
enum Instead {
    Mix(Sources),
    Trace(Playback),
}

/// All inputs.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    inputs: Vec<Input>,
    /// Probability that a burst continues after a packet.
    last: f64,
    flows: u32,
    /// What takes the place of bursts.
    instead: Option<Instead>,
}

impl Arrivals {
    /// Arrivals of a matrix at the load of a configuration.
    pub(super) fn new(config: &Config, matrix: &Matrix, rng: &mut Rng) -> Self {
        let burst = config.burst.max(1.0);
        let input = |from| {
            let rate = (matrix.input(from) * config.load).min(1.0);
            let idle = burst * (1.0 - rate) / rate;
            Input { begin: if rate > 0.0 { 1.0 / (1.0 + idle) } else { 0.0 }, current: None }
        };
        let inputs = (0..matrix.nodes()).map(input).collect();
        let instead = match (&config.trace, config.mix) {
            (Some(trace), _) => Some(Instead::Trace(Playback::new(trace))),
            (None, Some(mix)) => Some(Instead::Mix(Sources::new(mix, matrix, config.load, rng))),
            (None, None) => None,
        };
        Self { inputs, last: 1.0 - 1.0 / burst, flows: config.flows.max(1), instead }
    }

    /// Packet of an input in this slot, as its output and its flow. Without a mix the flows of a pair follow each other.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "flows are below 2^32")]
    pub(super) fn next(
        &mut self,
        from: usize,
        slot: u32,
        matrix: &Matrix,
        rng: &mut Rng,
    ) -> Option<(NodeId, u32)> {
        match &mut self.instead {
            None => {}
            Some(Instead::Mix(mix)) => return mix.next(from, slot, matrix, rng),
            Some(Instead::Trace(trace)) => return trace.next(from, slot),
        }
        let input = &mut self.inputs[from];
        let packet = match input.current {
            Some(packet) => packet,
            None if rng.unit() < input.begin => {
                let to = matrix.draw(from, rng);
                let flow = if self.flows == 1 { 0 } else { rng.below(self.flows as usize) as u32 };
                let pair = (from * matrix.nodes() + usize::from(to)) as u32;
                (to, pair * self.flows + flow)
            }
            None => return None,
        };
        input.current = (self.last > 0.0 && rng.unit() < self.last).then_some(packet);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rule;

    #[test]
    fn the_load_is_that_of_the_matrix_whatever_the_burst() {
        for burst in [1.0, 5.0] {
            let config = Config { burst, load: 0.6, ..Config::new(Matrix::uniform(4), Rule::Vlb) };
            let (mut rng, mut count, mut runs, mut last) = (Rng::new(1), 0.0, 0.0, None);
            let mut arrivals = Arrivals::new(&config, &config.matrix, &mut rng);
            for slot in 0..200_000 {
                let next = arrivals.next(2, slot, &config.matrix, &mut rng);
                count += if next.is_some() { 1.0 } else { 0.0 };
                runs += if next.is_some() && next != last { 1.0 } else { 0.0 };
                last = next;
            }
            assert!((count / 200_000.0 - 0.6f64).abs() < 0.01, "{count}");
            assert!(burst == 1.0 || count / runs > burst, "{runs} runs of {count} packets");
        }
    }
}
