//! Samples of programs: packets that they forward or drop, one in N, as they arrived.
//!
//! Source: distances as in `fingerpost_packet::sample::Skip`; what the graph does is `feature/sampling/element.rs`.
//! Shape:  record [u8; 272]: port [u32], bytes of the frame [u32], bytes of the header [u64], header [u8; 256]. A CPU has one
//!         for the packet in progress; it goes into the ring buffer when the packet has ended. The rate is in the word of the
//!         port ([`super::features`]), countdown and counts are in its line of [`super::received`].
//! Cost:   a packet of a port that samples pays a countdown and two stores; a sample two copies of the header. The control
//!         thread looks for records by itself: no program wakes it.
//! Limits: Linux 5.18, which has `bpf_xdp_load_bytes`; before, packets of such a port are the graph's.
//!
//! A packet that a program leaves counts down as well and is reported by nobody here: where it goes it is sampled with the
//! chance of each other packet.

use std::collections::BTreeMap;
use std::sync::Arc;

use fingerpost_packet::feature::sampling::{Sampled, Sampling};
use fingerpost_packet::sample::{HEADER_BYTES, Sample};

use super::features::PortFeatures;
use super::{Forwarder, Names};
use crate::xdp::XdpError;
use crate::xdp::bpf::SharedMemory;
use crate::xdp::ring_buffer::RingBuffer;

/// Bytes of the ring buffer: some 3,700 samples, 10 ms of 370,000 a second.
const RING_BYTES: u32 = 1 << 20;

/// Bytes of a record (`forward.c`).
const RECORD: usize = 16 + HEADER_BYTES;

/// Why packets of ports that sample are not for programs.
const NO_MEMORY: &str = "no kernel memory for samples";

/// What programs put samples into.
#[derive(Debug)]
pub(super) struct Samples {
    ring: RingBuffer,
    records: Arc<SharedMemory>,
}

impl Samples {
    fn new(cpus: usize) -> Result<Self, XdpError> {
        let ring = RingBuffer::new("samples", RING_BYTES)?;
        Ok(Self { ring, records: SharedMemory::new("sample", cpus * RECORD)? })
    }
}

/// A record as a sample; `None` for one that no program of ours writes.
fn sample(record: &[u8]) -> Option<Sample> {
    let word = |at: usize| record.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word));
    let header = record.get(16..)?.first_chunk::<HEADER_BYTES>()?;
    Some(Sample {
        port: u16::try_from(word(0)?).ok()?,
        frame_len: word(4)?,
        header_len: u16::try_from(word(8)?).ok()?,
        header: *header,
    })
}

impl<'a> Names<'a> {
    /// What a program of ports that sample writes.
    pub(super) fn samples(
        &mut self,
        features: Option<&PortFeatures>,
        samples: Option<&'a Samples>,
        counts: bool,
    ) {
        let samples = samples.filter(|_| counts && features.is_some_and(PortFeatures::samples));
        self.number("samples", samples.is_some().into());
        self.memory("sample", samples.map_or(self.any, |samples| &samples.records));
        self.map("ring", samples.map_or(self.any.map(), |samples| samples.ring.map()));
    }
}

impl Forwarder {
    /// What samples from now on, by the ports that it is for by now: to be called when either has changed.
    ///
    /// # Errors
    /// No memory, in words: the interfaces that sample are the graph's.
    pub fn set_sampling(&self, sampling: Option<Arc<Sampling>>) -> Result<(), String> {
        let used = sampling.filter(|sampling| !self.0.only_guards && sampling.is_used());
        let made = match (&used, self.0.samples.get()) {
            (Some(_), None) => Samples::new(self.0.epochs.cpus()).map(|samples| {
                // The first one stays.
                let _ = self.0.samples.set(samples);
            }),
            _ => Ok(()),
        };
        let mut state = self.state();
        let sampling = |used| if made.is_ok() { Ok(used) } else { Err(NO_MEMORY) };
        state.sampling = used.map(sampling);
        self.relink_outdated(&mut state, 0);
        made.map_err(|error| error.to_string())
    }

    /// Takes up to `most` samples of programs. Returns how many there were.
    pub fn take_samples(&self, most: usize, mut each: impl FnMut(&Sample)) -> usize {
        let Some(samples) = self.0.samples.get() else { return 0 };
        samples.ring.take(most, |record| {
            if let Some(sample) = sample(record) {
                each(&sample);
            }
        })
    }

    /// What programs sampled, by ingress port.
    pub fn sampled(&self) -> BTreeMap<u16, Sampled> {
        if self.0.samples.get().is_none() {
            return BTreeMap::new();
        }
        self.received().into_iter().map(|(port, received)| (port, received.sampled)).collect()
    }
}
