//! Reordering of flows, by RouteBricks' measure and by RFC 4737.
//!
//! Source: RFC 4737, sections 3 (a packet is reordered when its number is below the next expected one) and 4.2 (extent: how
//!         many packets before it the earliest arrival with a larger number was). RouteBricks, SOSP 2009, section 6: a
//!         run of reordered packets of a flow is one reordered sequence, so 1 4 2 3 5 has one.
//! Shape:  a flow has the last four runs of arrivals in order; 52 bytes.
//! Limits: a number arrives once; an extent that reaches back over more than four runs is reported as that to the oldest of them.

/// Arrivals in order: place and number of the first, and the number after the last.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    arrival: u32,
    number: u32,
    end: u32,
}

const RUNS: usize = 4;

/// Order of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order {
    arrivals: u32,
    /// Newest first. The end of the newest is the next number expected; numbers begin with 0.
    runs: [Run; RUNS],
}

/// Reordering of many flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets that arrived.
    pub packets: u64,
    /// Runs of reordered packets of a flow.
    pub sequences: u64,
    /// Packets that RFC 4737 calls reordered.
    pub reordered: u64,
    /// Those of extent 3 or more, which TCP may take for a loss.
    pub extent_3: u64,
    /// Largest extent.
    pub extent: u32,
}

impl Order {
    /// Counts the arrival of the packet with this number.
    #[inline]
    pub fn arrive(&mut self, number: u32, totals: &mut Totals) {
        let arrival = self.arrivals;
        self.arrivals += 1;
        totals.packets += 1;
        if number >= self.runs[0].end {
            // A run continues while neither a number nor an arrival is left out.
            let newest = self.runs[0];
            if number.wrapping_sub(newest.number) != arrival.wrapping_sub(newest.arrival) {
                self.runs.copy_within(..RUNS - 1, 1);
                self.runs[0] = Run { arrival, number, end: 0 };
            }
            self.runs[0].end = number + 1;
            return;
        }
        totals.reordered += 1;
        let extent = arrival - self.earliest_above(number);
        totals.extent = totals.extent.max(extent);
        totals.extent_3 += u64::from(extent >= 3);
        // The largest number arrived just before, or a smaller one that was reordered itself.
        let newest = self.runs[0];
        let largest = newest.arrival + (newest.end - 1 - newest.number);
        totals.sequences += u64::from(arrival == largest + 1);
    }

    /// Arrival of the first packet with a larger number.
    fn earliest_above(&self, number: u32) -> u32 {
        let mut found = self.arrivals;
        for run in self.runs.iter().take_while(|run| run.end > number + 1) {
            found = run.arrival + (number + 1).saturating_sub(run.number);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn totals(numbers: &[u32]) -> Totals {
        let (mut order, mut totals) = (Order::default(), Totals::default());
        numbers.iter().for_each(|&number| order.arrive(number, &mut totals));
        totals
    }

    /// Both documents' own example.
    #[test]
    fn one_sequence_of_two_packets() {
        let found = totals(&[0, 3, 1, 2, 4]);
        let expected = Totals { packets: 5, sequences: 1, reordered: 2, extent_3: 0, extent: 2 };
        assert_eq!(found, expected);
        assert_eq!(totals(&[0, 1, 2, 5, 6]).reordered, 0, "a loss is no reordering");
        assert_eq!(totals(&[1, 0, 3, 2]).sequences, 2);
    }

    proptest! {
        /// Compared with the definitions, on orders with few runs.
        #[test]
        fn as_the_definitions(swaps in prop::collection::vec((0usize..40, 1usize..12), 0..3)) {
            let mut numbers: Vec<u32> = (0..60).collect();
            for (at, by) in swaps {
                let moved = numbers.remove(at);
                numbers.insert(at + by, moved);
            }
            let found = totals(&numbers);
            let late = |at: usize| numbers[..at].iter().any(|&before| before > numbers[at]);
            let extents: Vec<usize> = (0..60).filter(|&at| late(at))
                .map(|at| at - numbers.iter().position(|&n| n > numbers[at]).unwrap()).collect();
            prop_assert_eq!(found.reordered, extents.len() as u64);
            prop_assert_eq!(found.extent as usize, extents.iter().copied().max().unwrap_or(0));
            prop_assert_eq!(found.extent_3, extents.iter().filter(|&&e| e >= 3).count() as u64);
            let runs = (1..60).filter(|&at| late(at) && !late(at - 1)).count();
            prop_assert_eq!(found.sequences, runs as u64);
        }
    }
}
