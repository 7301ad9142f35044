//! The result of a run.

/// Packets dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Queue of a link full, local packets.
    pub link_local: u64,
    /// Queue of a link full, transit packets.
    pub link_transit: u64,
    /// Queue of an output full.
    pub output: u64,
    /// No path, known to the input.
    pub unreachable: u64,
    /// Lost in a failure: sent to what had failed, held by it, or refused by an intermediate that saw it first.
    pub failed: u64,
}

impl Drops {
    /// Drops for want of room.
    pub fn full(&self) -> u64 {
        self.link_local + self.link_transit + self.output
    }

    /// Sum of all reasons.
    pub fn sum(&self) -> u64 {
        self.full() + self.unreachable + self.failed
    }
}

/// Packets that a node processed, in R.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Processed {
    /// Packets from its external ports.
    pub input: f64,
    /// Packets from a link to a link.
    pub transit: f64,
    /// Packets to its external ports.
    pub output: f64,
}

impl Processed {
    /// Sum of the three: a packet counts at its input and again at its output.
    pub fn sum(&self) -> f64 {
        self.input + self.transit + self.output
    }
}

/// Packets of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Packets that arrived for it.
    pub offered: u64,
    /// Packets that left by it.
    pub out: u64,
    /// Packets dropped on their path to it; what is left is still in queues.
    pub dropped: u64,
}

/// Percentiles of the time through the cluster, in slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Median.
    pub p50: u32,
    /// Time that 99 % of the packets do not exceed.
    pub p99: u32,
    /// Time that 99.9 % of the packets do not exceed.
    pub p999: u32,
}

impl Latency {
    /// Percentiles of a histogram: packets for each number of slots.
    pub(super) fn of(histogram: &[u64]) -> Self {
        let all: u64 = histogram.iter().sum();
        let percentile = |per_mille: u64| {
            let (mut before, wanted) = (0, (all * per_mille).div_ceil(1000));
            let found = histogram.iter().position(|&count| {
                before += count;
                before >= wanted && before > 0
            });
            u32::try_from(found.unwrap_or(0)).unwrap_or(u32::MAX)
        };
        Self { p50: percentile(500), p99: percentile(990), p999: percentile(999) }
    }
}

/// Slots of a window in which the balance of links is measured.
pub const WINDOW: u32 = 4096;

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Packets that arrived at the inputs.
    pub packets: u64,
    /// Packets that left by their output.
    pub out: u64,
    /// Packets still in queues at the end: packets = out + drops + held.
    pub held: u64,
    /// Drops by reason.
    pub drops: Drops,
    /// Those lost in a failure that arrived after their input saw it.
    pub failed_after_detection: u64,
    /// Slots until the last node saw a failure.
    pub detection_slots: u32,
    /// Packets that an input did not take, because the node of their output was draining. They are not among the others.
    pub withdrawn: u64,
    /// Share delivered of what was delivered or dropped.
    pub delivered: f64,
    /// Internal links that a delivered packet passed, on average over those with different input and output.
    pub hops: f64,
    /// Packets offered to the busiest link, in units of its 2R/N.
    pub worst_link: f64,
    /// Load of the busiest link in its busiest window of [`WINDOW`] slots, in the unit of `worst_link`.
    pub worst_window: f64,
    /// Jain's index of the loads of the links that leave an input, each in units of its 2R/N: mean over the inputs that sent,
    /// and over windows.
    pub link_jain: f64,
    /// Input, transit and output packets of the busiest node, in R.
    pub worst_node: f64,
    /// Load of each link as in `worst_link`: in a mesh from the first node to each node, then from the second one.
    pub links: Vec<f64>,
    /// What each node processed, in R.
    pub nodes: Vec<Processed>,
    /// Packets of each output.
    pub outputs: Vec<Served>,
    /// Longest queue of a link, in packets.
    pub worst_queue: u32,
    /// Longest queue of an output, in packets.
    pub worst_output_queue: u32,
    /// Longest queue that an output would have if all packets reached it at once, in packets: what bursts cost without a
    /// fabric.
    pub worst_ideal_queue: u32,
    /// Share of the packets that begin a reordered sequence (RouteBricks).
    pub reordered_sequences: f64,
    /// Share of the packets that are reordered (RFC 4737).
    pub reordered_rfc4737: f64,
    /// Share of the packets that are reordered with an extent of 3 or more.
    pub extent_3: f64,
    /// Largest extent.
    pub extent: u32,
    /// Jain's index of the shares that the inputs got of the output that most was offered to, each over what it offered.
    pub jain: f64,
    /// Largest relative difference of such a share from the max-min fair one.
    pub max_min_error: f64,
    /// Shares that the inputs got of that output, in its rate.
    pub shares: Vec<f64>,
    /// Time through the cluster.
    pub latency: Latency,
    /// Packets for each number of slots through the cluster; the last number may have those of more slots.
    pub latencies: Vec<u64>,
    /// Longest queue of each link, in packets, in the order of `links`.
    pub queues: Vec<u32>,
    /// Flowlets begun.
    pub flowlets: u64,
    /// Flowlets that lost their path.
    pub flowlets_lost: u64,
    /// Packets sent in spray mode.
    pub sprayed: u64,
}

impl Report {
    /// Transit of the node that has most, in R.
    pub fn worst_transit(&self) -> f64 {
        self.nodes.iter().map(|node| node.transit).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_histogram() {
        let mut histogram = vec![0; 100];
        histogram[3] = 989;
        histogram[50] = 10;
        histogram[99] = 1;
        assert_eq!(Latency::of(&histogram), Latency { p50: 3, p99: 50, p999: 50 });
        assert_eq!(Latency::of(&[]), Latency::default());
    }
}
