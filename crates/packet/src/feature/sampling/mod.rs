//! Sampling: one packet in N that an interface receives and the router forwards is reported to collectors.
//!
//! `settings.rs` reads `sampling` of `[[interface]]` and `[[collector]]`, `element.rs` is the step in the graph. Here is what
//! they share: the rates and counts of interfaces, and the queue of samples, from which the control side takes them
//! ([`Sampling::take`]) to report them ([`crate::sample`]). `as_numbers.rs` reads tables of AS numbers for that.
//!
//! Cost: a look at the port of each packet; a copy of up to 256 bytes a sample. The queue is bounded: what does not fit is lost,
//!       and counted.

mod as_numbers;
mod element;
mod settings;
#[cfg(test)]
mod tests;

pub use as_numbers::AsNumbers;
pub use settings::{Collector, Protocol, Settings};

use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ports::PortWords;
use super::row::{Cell, Column, Feature, FeatureArc, Key, Stage, State};
use crate::frame::counters::{Count, PerWorker};
use crate::sample::Sample;

/// The row.
pub(super) const FEATURE: Feature = Feature {
    name: "sampling",
    summary: "reports one packet in N that an interface receives to collectors, by sFlow or IPFIX",
    key: Some(Key { name: "sampling", former: None, fields: &[] }),
    section: Some(Key { name: "collector", former: None, fields: settings::FIELDS }),
    read: settings::read,
    stages: &[Stage {
        name: "sampling",
        arc: FeatureArc::Ingress,
        // A packet that is dropped may well be the one that matters.
        after: &[],
        element: &element::CLASS,
    }],
    guards: false,
    kernel: "the kernel forwards, and samples nothing",
    drop_reasons: &[],
    columns: &[
        Column { field: "interface", heading: "interface", summary: "The interface." },
        Column {
            field: "rate",
            heading: "rate",
            summary: "Sampling rate: one packet in so many on average.",
        },
        Column {
            field: "packets",
            heading: "packets",
            summary: "Packets that could have been sampled.",
        },
        Column { field: "samples", heading: "samples", summary: "Packets that were sampled." },
        Column {
            field: "lost",
            heading: "lost",
            summary: "Samples of these that were lost, since their queue was full.",
        },
    ],
};

/// Samples that wait for the control side: 10 ms of 400,000 a second.
const QUEUE: usize = 4096;

/// Counts of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sampled {
    /// Packets that could have been sampled.
    pub packets: u64,
    /// Packets that were sampled.
    pub samples: u64,
    /// Samples of these that were lost.
    pub lost: u64,
}

impl Sampled {
    /// The sums of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets.wrapping_add(other.packets),
            samples: self.samples.wrapping_add(other.samples),
            lost: self.lost.wrapping_add(other.lost),
        }
    }

    /// What was counted since `before`.
    fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            samples: self.samples.saturating_sub(before.samples),
            lost: self.lost.saturating_sub(before.lost),
        }
    }
}

/// Counts of one worker.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Hits {
    packets: Count,
    samples: Count,
    lost: Count,
}

/// An interface that samples.
#[derive(Debug)]
struct Interface {
    name: String,
    rate: u32,
    hits: PerWorker<Hits>,
    /// What was counted in the graph before this one was made.
    before: Mutex<Sampled>,
    /// What the XDP datapath has counted of it so far, under whatever port numbers.
    xdp: Mutex<Sampled>,
}

fn value<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Numbers are whole whatever panicked beside them.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Interface {
    fn in_graph(&self) -> Sampled {
        let here = Sampled {
            packets: self.hits.sum(|hits| hits.packets.read()),
            samples: self.hits.sum(|hits| hits.samples.read()),
            lost: self.hits.sum(|hits| hits.lost.read()),
        };
        here.plus(*value(&self.before))
    }

    fn totals(&self) -> Sampled {
        self.in_graph().plus(*value(&self.xdp))
    }

    fn go_on_with(&self, before: &Self) {
        *value(&self.before) = before.in_graph();
        *value(&self.xdp) = *value(&before.xdp);
    }
}

/// The queue between workers and the control side.
struct Queue {
    sender: SyncSender<Sample>,
    samples: Mutex<Receiver<Sample>>,
}

impl Queue {
    fn new(len: usize) -> Self {
        let (sender, samples) = sync_channel(len);
        Self { sender, samples: Mutex::new(samples) }
    }
}

/// What samples, and what was sampled.
pub struct Sampling {
    interfaces: Vec<Arc<Interface>>,
    collectors: Vec<Collector>,
    /// For each port the number of its interface and one more, or 0.
    ports: Arc<PortWords>,
    queue: Arc<Queue>,
    /// What the XDP datapath had counted of each port when that was noted last: a number is used again for other interfaces.
    noted: Arc<Mutex<BTreeMap<u16, Sampled>>>,
}

impl Sampling {
    /// Makes it of interfaces with their rates. Those that are the same as in `before` are taken over from there, and the
    /// queue is. Rates are 1 to 65,535.
    pub fn new(rates: &[(String, u32)], collectors: Vec<Collector>, before: Option<&Self>) -> Self {
        let interface = |(name, rate): &(String, u32)| {
            let known = before.and_then(|before| before.find(name));
            match known {
                Some(known) if known.rate == *rate => known.clone(),
                known => {
                    let made = Interface {
                        name: name.clone(),
                        rate: *rate,
                        hits: PerWorker::default(),
                        before: Mutex::default(),
                        xdp: Mutex::default(),
                    };
                    known.iter().for_each(|known| made.go_on_with(known));
                    Arc::new(made)
                }
            }
        };
        let queue = before.map_or_else(|| Arc::new(Queue::new(QUEUE)), |known| known.queue.clone());
        Self {
            interfaces: rates.iter().map(interface).collect(),
            collectors,
            ports: Arc::new(PortWords::all(0)),
            queue,
            noted: before.map(|known| known.noted.clone()).unwrap_or_default(),
        }
    }

    fn find(&self, name: &str) -> Option<&Arc<Interface>> {
        self.interfaces.iter().find(|known| known.name == name)
    }

    /// The collectors.
    pub fn collectors(&self) -> &[Collector] {
        &self.collectors
    }

    /// Interfaces that sample, with their rates and counts.
    pub fn interfaces(&self) -> impl Iterator<Item = (&str, u32, Sampled)> {
        self.interfaces.iter().map(|one| (&*one.name, one.rate, one.totals()))
    }

    /// Rate and counts of an interface that samples.
    pub fn of(&self, interface: &str) -> Option<(u32, Sampled)> {
        self.find(interface).map(|one| (one.rate, one.totals()))
    }

    /// Whether some interface samples.
    pub fn is_used(&self) -> bool {
        !self.interfaces.is_empty()
    }

    fn at(&self, port: u16) -> Option<&Interface> {
        let number = usize::from(self.ports.word(port)).checked_sub(1)?;
        self.interfaces.get(number).map(|one| &**one)
    }

    /// Sampling rate of a port; 0 where it does not sample.
    pub fn rate(&self, port: u16) -> u16 {
        self.at(port).map_or(0, |one| u16::try_from(one.rate).expect("rates have 16 bits"))
    }

    /// Notes what the XDP datapath has counted of a port so far: what is new since the last call is of the interface that has
    /// the port.
    pub fn note_xdp(&self, port: u16, counts: Sampled) {
        let before = value(&self.noted).insert(port, counts).unwrap_or_default();
        if let Some(one) = self.at(port) {
            let mut xdp = value(&one.xdp);
            *xdp = xdp.plus(counts.since(before));
        }
    }

    /// Takes up to `most` samples of the graph out of their queue. Returns how many there were.
    pub fn take(&self, most: usize, mut each: impl FnMut(&Sample)) -> usize {
        let samples = value(&self.queue.samples);
        let taken = samples.try_iter().take(most);
        taken.map(|sample| each(&sample)).count()
    }
}

impl State for Sampling {
    fn runs(&self, arc: FeatureArc) -> bool {
        arc == FeatureArc::Ingress && !self.interfaces.is_empty()
    }

    fn follow(&self, ports: &[(u16, &str)]) {
        for (port, interface) in ports {
            let found = self.interfaces.iter().position(|one| one.name == *interface);
            let word = found.map_or(0, |number| u16::try_from(number + 1).unwrap_or(0));
            self.ports.set(*port, word);
        }
    }

    fn go_on_with(&self, before: &dyn State) {
        let Some(before) = before.of::<Self>() else { return };
        for one in &self.interfaces {
            let known = before.find(&one.name).filter(|known| !Arc::ptr_eq(known, one));
            known.into_iter().for_each(|known| one.go_on_with(known));
        }
    }

    fn rows(&self) -> Vec<Vec<Cell>> {
        let row = |(name, rate, counts): (&str, u32, Sampled)| {
            vec![
                Cell::Text(name.to_owned()),
                Cell::Number(rate.into()),
                Cell::Number(counts.packets),
                Cell::Number(counts.samples),
                Cell::Number(counts.lost),
            ]
        };
        self.interfaces().map(row).collect()
    }
}

impl fmt::Debug for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.interfaces).finish()
    }
}
