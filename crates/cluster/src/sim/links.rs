//! The internal links: queues of two classes, served at their rates.
//!
//! A link that has packets is in a wheel, a list of links for each slot to come, so that a slot costs only the links that
//! send in it. Times are in 2^-16 slots: rates that are no whole number of slots stay exact. A packet takes its time give or
//! take a quarter, as packets of several sizes do: with exact times links fall into step, and a full output queue drops
//! the packets of the same links again and again (Floyd and Jacobson, "On traffic phase effects", 1992): shares of equal
//! inputs differed by 14 %.

use fingerpost_lpm::Rng;

use super::queue::{List, Queue, Slab};
use super::{Config, fairness};
use crate::fabric::Class;
use crate::rule::NodeId;

/// One slot in the unit of times.
pub(super) const SLOT: u64 = 1 << 16;

/// Internal link.
#[derive(Debug)]
pub(super) struct Link {
    transit: Queue,
    local: List,
    local_len: u32,
    /// Time that a packet takes; 0 for a link without a rate.
    pub(super) period: u32,
    /// Time from which on the link may send.
    ready: u64,
    /// Packets that it was to carry, those dropped among them.
    pub(super) offered: u32,
    /// Those up to the window before.
    before: u32,
    pub(super) worst: u32,
    waiting: bool,
}

impl Link {
    /// Packets in both queues.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.transit.len() + self.local_len
    }

    /// Time to drain the queues.
    #[inline]
    pub(super) fn backlog(&self) -> u64 {
        u64::from(self.len()) * u64::from(self.period)
    }
}

/// All links of a cluster, those that leave a node next to each other.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) all: Vec<Link>,
    /// Links of a node, those to itself among them.
    row: usize,
    wheel: Vec<Vec<u32>>,
    jitter: Rng,
    limit: u32,
}

impl Links {
    /// Idle links, `row` of each node, that take these times for a packet. `fair` makes the queue of transit.
    pub(super) fn new(
        periods: &[u32],
        row: usize,
        config: &Config,
        fair: impl Fn() -> Queue,
    ) -> Self {
        let idle = |&period: &u32| Link {
            transit: fair(),
            local: List::default(),
            local_len: 0,
            period,
            ready: 0,
            offered: 0,
            before: 0,
            worst: 0,
            waiting: false,
        };
        let longest = u64::from(periods.iter().copied().max().unwrap_or(0)).div_ceil(SLOT).max(1);
        #[allow(clippy::cast_possible_truncation, reason = "a period is a u32")]
        let turns = (longest as usize * 5 / 4 + 2).next_power_of_two();
        Self {
            all: periods.iter().map(idle).collect(),
            row,
            wheel: vec![Vec::new(); turns],
            jitter: Rng::new(config.seed ^ 1),
            limit: config.queue,
        }
    }

    /// Links that leave a node.
    #[inline]
    pub(super) fn of(&self, node: usize) -> &[Link] {
        &self.all[node * self.row..][..self.row]
    }

    /// Adds a packet to the queue of a link; returns the packet that is dropped for it.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a link is a u32, a turn of the wheel masked"
    )]
    pub(super) fn push(
        &mut self,
        slab: &mut Slab,
        link: usize,
        class: Class,
        id: u32,
        slot: u32,
    ) -> Option<u32> {
        let at = &mut self.all[link];
        at.offered += 1;
        let dropped = match class {
            Class::Transit => at.transit.push(slab, id, self.limit),
            Class::Local if at.len() >= self.limit => Some(id),
            Class::Local => {
                at.local.push(slab, id);
                at.local_len += 1;
                None
            }
        };
        at.worst = at.worst.max(at.len());
        if !at.waiting && at.len() > 0 {
            at.waiting = true;
            let due = u64::from(slot).max(at.ready.div_ceil(SLOT));
            let turn = due as usize & (self.wheel.len() - 1);
            self.wheel[turn].push(link as u32);
        }
        dropped
    }

    /// Ends a window of `slots`: load of its busiest link, in packets at that link's rate, and for each input that sent Jain's
    /// index of the loads of its links.
    pub(super) fn window(&mut self, slots: f64, mut input: impl FnMut(f64)) -> f64 {
        let (mut worst, mut loads) = (0.0, Vec::with_capacity(self.row));
        for row in self.all.chunks_mut(self.row) {
            loads.clear();
            for link in row.iter_mut().filter(|link| link.period > 0) {
                let packets = f64::from(link.offered - link.before);
                link.before = link.offered;
                loads.push(packets * f64::from(link.period) / SLOT as f64 / slots);
            }
            worst = loads.iter().copied().fold(worst, f64::max);
            if loads.iter().any(|&load| load > 0.0) {
                input(fairness::jain(&loads));
            }
        }
        worst
    }

    /// Empties the queues of a link.
    pub(super) fn drain(&mut self, slab: &mut Slab, link: usize, mut dropped: impl FnMut(u32)) {
        let at = &mut self.all[link];
        while let Some(id) = at.transit.pop(slab).or_else(|| at.local.pop(slab)) {
            dropped(id);
        }
        at.local_len = 0;
    }

    /// Sends what is due in this slot: `sent` gets each link and packet.
    #[allow(clippy::cast_possible_truncation, reason = "a turn of the wheel is masked")]
    pub(super) fn serve(
        &mut self,
        slab: &mut Slab,
        slot: u32,
        mut sent: impl FnMut(&mut Slab, u32, u32),
    ) {
        let mask = self.wheel.len() - 1;
        let now = u64::from(slot) * SLOT;
        let mut due = std::mem::take(&mut self.wheel[slot as usize & mask]);
        for link in due.drain(..) {
            let at = &mut self.all[link as usize];
            // A link saves no more than the part of a slot that it waited for this one.
            at.ready = at.ready.max((now + 1).saturating_sub(SLOT));
            while at.ready <= now {
                let id = match at.transit.pop(slab) {
                    Some(id) => id,
                    None => match at.local.pop(slab) {
                        Some(id) => {
                            at.local_len -= 1;
                            id
                        }
                        None => break,
                    },
                };
                let period = u64::from(at.period);
                let part = self.jitter.word() >> 32;
                at.ready += (period - period / 4) + ((period / 2 * part) >> 32);
                sent(slab, link, id);
            }
            at.waiting = at.len() > 0;
            if at.waiting {
                let turn = at.ready.div_ceil(SLOT) as usize & mask;
                self.wheel[turn].push(link);
            }
        }
        // The list keeps its memory for its next turn, with what was added to it meanwhile.
        due.append(&mut self.wheel[slot as usize & mask]);
        self.wheel[slot as usize & mask] = due;
    }
}

/// Time that a packet takes on a link of this rate, in R; 0 without a rate.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a u32 holds"
)]
pub(super) fn period(rate: f64) -> u32 {
    if rate > 0.0 { (SLOT as f64 / rate).clamp(1.0, 4e9) as u32 } else { 0 }
}

/// Ends of a link of a mesh.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "both are below the number of nodes")]
pub(super) fn ends(link: u32, nodes: usize) -> (NodeId, NodeId) {
    ((link as usize / nodes) as NodeId, (link as usize % nodes) as NodeId)
}
