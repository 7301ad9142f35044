//! The flows that rewriters know: found by the ends of a packet, in either direction.
//!
//! A flow stays until it was silent for a time, or until it is the first to end of a full table and nothing guarantees it
//! any more. Rewriters that share a capacity share a table. Cost: a lookup and an update a packet, under a lock that is free
//! where one worker runs; a full table looks for its first to end among all flows.

use std::collections::{BTreeSet, HashMap};

use super::pattern::FlowId;

/// Flow as one of its packets shows it: which rewriter's, its protocol, and its ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) owner: u32,
    pub(crate) protocol: u8,
    pub(crate) id: FlowId,
}

/// How long flows stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Time after the last packet.
    pub(crate) silent_ns: u64,
    /// So long after a packet another flow cannot take its place.
    pub(crate) guarantee_ns: u64,
}

/// What is known of a flow.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) key: Key,
    /// What its packets become.
    pub(crate) to: FlowId,
    /// Input of its first packet.
    pub(crate) input: u16,
    /// Annotation that replies get.
    pub(crate) reply_anno: u8,
    pub(crate) packets: u64,
    /// Packets of the other direction.
    pub(crate) replies: u64,
    /// Each end has closed its direction, or one has reset it.
    pub(crate) closed: [bool; 2],
    /// What was added to the data of each direction.
    pub(crate) deltas: [super::tcp::Deltas; 2],
    ends_ns: u64,
    guaranteed_ns: u64,
}

impl Flow {
    pub(crate) fn new(key: Key, to: FlowId, input: u16, reply_anno: u8) -> Self {
        Self {
            key,
            to,
            input,
            reply_anno,
            packets: 0,
            replies: 0,
            closed: [false; 2],
            deltas: Default::default(),
            ends_ns: 0,
            guaranteed_ns: 0,
        }
    }

    fn reply_key(&self) -> Key {
        Key { id: self.to.reverse(), ..self.key }
    }
}

/// A flow that was found, and whether by its replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) number: usize,
    pub(crate) reply: bool,
}

/// Flows that a table has unless configured otherwise.
const CAPACITY: usize = 1 << 20;

/// The table.
#[derive(Debug)]
pub(crate) struct Table {
    flows: Vec<Option<Flow>>,
    free: Vec<usize>,
    by_key: HashMap<Key, Found>,
    /// Flows by the time at which they end.
    by_end: BTreeSet<(u64, usize)>,
    capacity: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            flows: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            by_end: BTreeSet::new(),
            capacity: CAPACITY,
        }
    }
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.by_end.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets the capacity; the first to end make room.
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.len() > capacity {
            let Some(&(_, number)) = self.by_end.first() else { return };
            self.remove(number);
        }
    }

    /// Whether a flow is known by this key at this time.
    pub(crate) fn is_taken(&self, key: &Key, now_ns: u64) -> bool {
        let flow = self.by_key.get(key).and_then(|found| self.flows[found.number].as_ref());
        flow.is_some_and(|flow| flow.ends_ns > now_ns)
    }

    /// The flow of a packet, which has not ended.
    pub(crate) fn find(&mut self, key: &Key, now_ns: u64) -> Option<Found> {
        let found = *self.by_key.get(key)?;
        if self.flows[found.number].as_ref()?.ends_ns <= now_ns {
            self.remove(found.number);
            return None;
        }
        Some(found)
    }

    /// A flow by its number.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn flow(&mut self, number: usize) -> &mut Flow {
        self.flows[number].as_mut().expect("its number was just found")
    }

    /// Notes that a packet of a flow came.
    pub(crate) fn touch(&mut self, number: usize, times: Times, now_ns: u64) {
        let flow = self.flows[number].as_mut().expect("its number was just found");
        self.by_end.remove(&(flow.ends_ns, number));
        flow.ends_ns = now_ns.saturating_add(times.silent_ns);
        flow.guaranteed_ns = now_ns.saturating_add(times.guarantee_ns);
        self.by_end.insert((flow.ends_ns, number));
    }

    /// Adds a flow, whose keys are free; `None` where the table is full of flows that stay.
    pub(crate) fn add(&mut self, flow: Flow, times: Times, now_ns: u64) -> Option<usize> {
        if self.len() >= self.capacity {
            let evicted = self.by_end.iter().find(|&&(ends_ns, number)| {
                ends_ns <= now_ns
                    || self.flows[number].as_ref().is_some_and(|flow| flow.guaranteed_ns <= now_ns)
            });
            let &(_, number) = evicted?;
            self.remove(number);
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            self.flows.len() - 1
        });
        // Where both are the same, replies are what is meant.
        self.by_key.insert(flow.key, Found { number, reply: false });
        self.by_key.insert(flow.reply_key(), Found { number, reply: true });
        self.by_end.insert((flow.ends_ns, number));
        self.flows[number] = Some(flow);
        self.touch(number, times, now_ns);
        Some(number)
    }

    /// Ends a flow.
    pub(crate) fn remove(&mut self, number: usize) {
        let Some(flow) = self.flows[number].take() else { return };
        for key in [flow.key, flow.reply_key()] {
            if self.by_key.get(&key).is_some_and(|found| found.number == number) {
                self.by_key.remove(&key);
            }
        }
        self.by_end.remove(&(flow.ends_ns, number));
        self.free.push(number);
    }

    /// All flows of an owner.
    pub(crate) fn each(&self, owner: u32, visit: &mut dyn FnMut(&Flow)) {
        self.flows.iter().flatten().filter(|flow| flow.key.owner == owner).for_each(visit);
    }

    /// Ends all flows of an owner.
    pub(crate) fn clear(&mut self, owner: u32) {
        let of = |(number, flow): (usize, &Option<Flow>)| {
            flow.as_ref().filter(|flow| flow.key.owner == owner).map(|_| number)
        };
        let numbers: Vec<_> = self.flows.iter().enumerate().filter_map(of).collect();
        numbers.into_iter().for_each(|number| self.remove(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(src: u32) -> Flow {
        let id = FlowId { src, sport: 1, dst: 9, dport: 2 };
        let to = FlowId { src: 7, sport: 100 + u16::try_from(src).unwrap(), ..id };
        Flow::new(Key { owner: 0, protocol: 6, id }, to, 0, 0)
    }

    #[test]
    fn a_full_table_gives_up_what_nothing_guarantees() {
        let times = Times { silent_ns: 100, guarantee_ns: 10 };
        let mut table = Table::default();
        table.set_capacity(2);
        assert!(table.add(flow(1), times, 0).is_some() && table.add(flow(2), times, 5).is_some());
        assert_eq!(table.add(flow(3), times, 9), None);
        let found = table.find(&flow(1).reply_key(), 9).unwrap();
        assert!(found.reply);
        table.touch(found.number, times, 9);
        assert!(table.add(flow(3), times, 15).is_some(), "in the place of 2");
        assert!(table.find(&flow(2).key, 15).is_none() && table.find(&flow(1).key, 15).is_some());
        assert!(table.find(&flow(1).key, 109).is_none(), "it was silent");
        table.set_capacity(0);
        assert_eq!((table.len(), table.by_key.len()), (0, 0));
    }
}
