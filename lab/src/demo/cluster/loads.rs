//! Loads of the internal links, second by second, from the bytes that nodes counted.

use std::time::{Duration, Instant};

use super::plan::{LINK_BPS, NODES};
use super::{LinkView, NodeView};

/// Time over which a load is measured.
const SAMPLE: Duration = Duration::from_secs(1);

/// Loads in 2R/N, from node to node.
pub(super) type Matrix = [[f64; NODES]; NODES];

/// Bytes at the last sample, and the loads until then.
pub(super) struct Loads {
    at: Option<Instant>,
    bytes: [[u64; NODES]; NODES],
    last: Matrix,
    worst: f64,
}

impl Loads {
    pub(super) fn new() -> Self {
        Self { at: None, bytes: Default::default(), last: Matrix::default(), worst: 0.0 }
    }

    /// Takes the counts of the nodes, and measures if the last sample is long enough ago.
    pub(super) fn sample(&mut self, nodes: &[Option<NodeView>]) {
        let Some(at) = self.at else {
            self.take(nodes, None);
            return;
        };
        let time = at.elapsed();
        if time >= SAMPLE {
            self.take(nodes, Some(time));
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a share for people")]
    fn take(&mut self, nodes: &[Option<NodeView>], time: Option<Duration>) {
        self.at = Some(Instant::now());
        for (from, node) in nodes.iter().enumerate() {
            for to in 0..NODES {
                let link = node.as_ref().and_then(|node| node.links.get(to).copied().flatten());
                let now = link.map_or(0, |LinkView { bytes, .. }| bytes);
                let before = std::mem::replace(&mut self.bytes[from][to], now);
                // A node that has started again counts from 0.
                let sent = if now < before { now } else { now - before };
                self.last[from][to] = time
                    .map_or(0.0, |time| (sent * 8) as f64 / time.as_secs_f64() / LINK_BPS as f64);
                self.worst = self.worst.max(self.last[from][to]);
            }
        }
    }

    /// Loads of the last second.
    pub(super) fn last(&self) -> &Matrix {
        &self.last
    }

    /// Largest load of a link in a second.
    pub(super) fn worst(&self) -> f64 {
        self.worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(bytes: u64) -> Option<NodeView> {
        let link = Some(LinkView { up: true, bytes });
        Some(NodeView { links: vec![None, link, link, link] })
    }

    #[test]
    fn loads_are_in_the_rate_of_a_link() {
        let mut loads = Loads::new();
        let nodes = |bytes| [node(bytes), None, None, None];
        loads.sample(&nodes(1_000));
        assert_eq!(loads.worst(), 0.0);
        loads.sample(&nodes(1_000 + LINK_BPS / 8));
        assert_eq!(loads.worst(), 0.0, "no second is over");
        loads.take(&nodes(1_000 + LINK_BPS / 16), Some(SAMPLE));
        assert!((loads.last()[0][1] - 0.5).abs() < 1e-6, "{:?}", loads.last());
        loads.take(&nodes(LINK_BPS / 32), Some(SAMPLE));
        assert!((loads.last()[0][2] - 0.25).abs() < 1e-6, "counted anew: {:?}", loads.last());
        assert!((loads.worst() - 0.5).abs() < 1e-6);
    }
}
