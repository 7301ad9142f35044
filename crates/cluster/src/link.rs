//! The length of a queue that nobody holds: a token bucket for each internal link.
//!
//! Source: virtual queues (Gibbens and Kelly, "Resource pricing and the evolution of congestion control", 1999), in two classes.
//! Shape:  two backlogs, transit and local, as time to drain; time passes and drains transit first.
//! Cost:   a packet costs one multiplication and two subtractions; no clock is read here.
//! Limits: rates from 1 kbit/s; backlogs in picoseconds, so that links of different rates compare.
//!
//! XDP and AF_XDP transmission pass no queue that we own and no queueing discipline, so an internal link has a
//! configured rate and its packets are counted against it. The backlog is the queue length that the rule reads.
//! Transit has strict priority: it is charged first, and it drains first. What exceeds the limit is dropped and counted.

/// Class of a packet on an internal link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It was received from another node.
    Transit,
    /// It was received on an external port of this node.
    Local,
}

/// Packets that a link sent and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transit packets sent.
    pub transit: u64,
    /// Local packets sent.
    pub local: u64,
    /// Transit packets dropped.
    pub transit_dropped: u64,
    /// Local packets dropped.
    pub local_dropped: u64,
    /// Bytes sent.
    pub bytes: u64,
}

/// Internal link with a configured rate.
#[derive(Clone, Debug)]
pub struct Link {
    /// Time that a byte takes, in units of 2^-16 ps.
    byte_cost: u64,
    /// Most backlog, in picoseconds.
    limit_ps: u64,
    transit_ps: u64,
    local_ps: u64,
    last_ns: u64,
    counts: Counts,
}

impl Link {
    /// Idle link of a rate in bit/s, whose backlog is at most `limit_bytes` per class.
    ///
    /// # Panics
    /// When the rate is below 1 kbit/s.
    pub fn new(rate_bps: u64, limit_bytes: u64) -> Self {
        assert!(rate_bps >= 1000, "rate: {rate_bps} bit/s, at least 1000");
        let byte_cost = (8_000_000_000_000 << 16) / rate_bps;
        let limit_ps = limit_bytes.saturating_mul(byte_cost) >> 16;
        let (transit_ps, local_ps, last_ns) = (0, 0, 0);
        Self { byte_cost, limit_ps, transit_ps, local_ps, last_ns, counts: Counts::default() }
    }

    /// Lets time pass until `now_ns`. An earlier time changes nothing.
    #[inline]
    pub fn advance(&mut self, now_ns: u64) {
        let passed_ps = now_ns.saturating_sub(self.last_ns).saturating_mul(1000);
        self.last_ns = self.last_ns.max(now_ns);
        let rest_ps = passed_ps.saturating_sub(self.transit_ps);
        self.transit_ps = self.transit_ps.saturating_sub(passed_ps);
        self.local_ps = self.local_ps.saturating_sub(rest_ps);
    }

    /// Charges a packet of `bytes`, and returns whether it may be sent. In a batch transit is charged first.
    #[inline]
    pub fn charge(&mut self, class: Class, bytes: u32) -> bool {
        let cost_ps = (u64::from(bytes) * self.byte_cost) >> 16;
        // Transit does not wait behind local packets; local ones wait behind both.
        let before_ps = match class {
            Class::Transit => self.transit_ps,
            Class::Local => self.transit_ps + self.local_ps,
        };
        let sent = before_ps + cost_ps <= self.limit_ps;
        let (backlog_ps, sent_count, dropped) = match class {
            Class::Transit => {
                (&mut self.transit_ps, &mut self.counts.transit, &mut self.counts.transit_dropped)
            }
            Class::Local => {
                (&mut self.local_ps, &mut self.counts.local, &mut self.counts.local_dropped)
            }
        };
        if sent {
            *backlog_ps += cost_ps;
            *sent_count += 1;
            self.counts.bytes += u64::from(bytes);
        } else {
            *dropped += 1;
        }
        sent
    }

    /// Backlog that the rule reads: time that the link takes to drain it, in picoseconds.
    #[inline]
    pub fn backlog_ps(&self) -> u64 {
        self.transit_ps + self.local_ps
    }

    /// Time that `bytes` take, in picoseconds: a threshold in bytes as a backlog.
    pub fn drain_ps(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.byte_cost) >> 16
    }

    /// Packets that the link sent and dropped.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GBIT: u64 = 1_000_000_000;

    #[test]
    fn the_backlog_drains_at_the_rate() {
        let mut link = Link::new(10 * GBIT, 15_000);
        assert!(link.charge(Class::Local, 1500));
        // 1,500 bytes at 10 Gbit/s are 1.2 us.
        assert_eq!(link.backlog_ps(), 1_200_000);
        assert_eq!(link.drain_ps(1500), 1_200_000);
        link.advance(700);
        assert_eq!(link.backlog_ps(), 500_000);
        link.advance(600);
        assert_eq!(link.backlog_ps(), 500_000, "time does not run backward");
        link.advance(5000);
        assert_eq!(link.backlog_ps(), 0, "an idle link saves nothing");
    }

    #[test]
    fn transit_is_served_first() {
        let mut link = Link::new(GBIT, 3000);
        assert!(link.charge(Class::Local, 1500) && link.charge(Class::Local, 1500));
        assert!(!link.charge(Class::Local, 64), "the limit");
        assert!(link.charge(Class::Transit, 1500) && link.charge(Class::Transit, 1500));
        assert!(!link.charge(Class::Transit, 64));
        // Both transit packets drain in 24 us; until then local packets wait.
        link.advance(24_000);
        assert!(!link.charge(Class::Local, 64) && link.charge(Class::Transit, 64));
        let counts = link.counts();
        assert_eq!((counts.transit, counts.local), (3, 2));
        assert_eq!((counts.transit_dropped, counts.local_dropped), (1, 2));
        assert_eq!(counts.bytes, 4 * 1500 + 64);
    }

    proptest! {
        /// What is sent never exceeds the rate by more than both limits, and transit alone never by more than its own.
        #[test]
        fn no_more_than_the_rate(
            packets in prop::collection::vec((0u64..3000, any::<bool>(), 64u32..1500), 1..300),
            rate in 100_000_000u64..100 * GBIT,
        ) {
            let limit = 20_000;
            let mut link = Link::new(rate, limit);
            let (mut now, mut sent, mut transit) = (0u64, 0u64, 0u64);
            for &(wait, is_transit, bytes) in &packets {
                now += wait;
                link.advance(now);
                let class = if is_transit { Class::Transit } else { Class::Local };
                if link.charge(class, bytes) {
                    sent += u64::from(bytes);
                    transit += if is_transit { u64::from(bytes) } else { 0 };
                }
                // A byte of rounding a packet.
                let drained = now * rate / 8 / GBIT + packets.len() as u64;
                prop_assert!(transit <= limit + drained);
                prop_assert!(sent <= 2 * limit + drained);
            }
            let counts = link.counts();
            let all = counts.transit + counts.local + counts.transit_dropped + counts.local_dropped;
            prop_assert_eq!(all, packets.len() as u64);
        }
    }
}
