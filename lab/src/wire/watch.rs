//! Where packets end that are numbered and stamped: order and latency, then all that a [`Meter`] checks.
//!
//! Shape: for each far end a program before that of the meter, with a state of its own; one histogram for all, in the
//!        buckets of [`Latency`].
//! Cost:  some 60 ns a packet, two thirds of it the clock, on the CPU that delivers.
//!
//! Late is what comes behind a later packet of its stream by the same output: a stream is the packets of a generator,
//! of all its flows, so that this is more than order inside flows. The two highest bits of a number are its stream.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;

use anyhow::Result;
use fingerpost_io::xdp::Mode;
use fingerpost_io::xdp::bpf::{Link, Map, MapKind, Program};
use fingerpost_io::xdp::load::{self, Bound, Insn};

use super::latency::{BUCKET_SHIFT, BUCKETS, Latency};
use crate::traffic::Meter;
use crate::traffic::generator::STAMP_BYTES;
use crate::traffic::meter::Reading;

/// Bytes of the state of an end (`watch.c`), which begins with the number of late packets and the longest time.
const STATE_BYTES: usize = 48;

/// All ends of a run.
pub(super) struct Watch {
    meter: Meter,
    len: usize,
    histogram: Map,
    /// Words of the histogram, before what is watched.
    before: Vec<u64>,
    ends: Vec<End>,
}

struct End {
    state: Map,
    // The kernel empties it when its last descriptor closes.
    _next: Map,
    _link: Link,
}

/// What was seen since the last [`Watch::reset`].
#[derive(Default)]
pub(super) struct Seen {
    pub(super) reading: Reading,
    pub(super) late: u64,
    pub(super) latency: Latency,
}

impl Watch {
    /// A watch for frames of `len` bytes with a stamp at their end.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn new(meter: Meter, len: usize) -> Result<Self> {
        let histogram = Map::new(MapKind::Array, "latency", 4, 8, u32::try_from(BUCKETS)?)?;
        Ok(Self { meter, len, histogram, before: vec![0; BUCKETS], ends: Vec::new() })
    }

    /// Ends a link of the present network namespace: the far end of the output with that MAC.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn attach(&mut self, ifindex: u32, output: [u8; 6]) -> Result<()> {
        let state = Map::new(MapKind::Array, "watch", 4, u32::try_from(STATE_BYTES)?, 1)?;
        let next = Map::new(MapKind::ProgArray, "meter", 4, 4, 1)?;
        let meter = self.meter.load(output)?;
        next.update(&0u32.to_ne_bytes(), &meter.as_fd().as_raw_fd().to_ne_bytes())?;
        let program = Program::load("watch", &self.program(&state, &next))?;
        let link = program.attach(ifindex, Mode::Native)?;
        self.ends.push(End { state, _next: next, _link: link });
        Ok(())
    }

    /// Begins anew.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn reset(&mut self) -> Result<()> {
        self.meter.reset()?;
        for end in &self.ends {
            end.state.update(&0u32.to_ne_bytes(), &[0; STATE_BYTES])?;
        }
        self.before = self.counts()?;
        Ok(())
    }

    /// Packets that arrived so far, and how many of them were wrong.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn reading(&self) -> Result<Reading> {
        Ok(self.meter.read()?)
    }

    /// Everything.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn read(&self) -> Result<Seen> {
        let (mut late, mut max_ns) = (0, 0);
        for end in &self.ends {
            let mut state = [0; STATE_BYTES];
            end.state.lookup(&0u32.to_ne_bytes(), &mut state)?;
            let words = state.as_chunks().0;
            late += u64::from_ne_bytes(words[0]);
            max_ns = max_ns.max(u64::from_ne_bytes(words[1]));
        }
        let counts =
            self.counts()?.iter().zip(&self.before).map(|(now, then)| now - then).collect();
        Ok(Seen { reading: self.reading()?, late, latency: Latency::new(counts, max_ns) })
    }

    fn counts(&self) -> Result<Vec<u64>> {
        let mut counts = vec![0; BUCKETS];
        self.histogram.each(&mut |bucket, value| {
            if let (Some(count), Ok(bytes)) = (counts.get_mut(bucket as usize), value.try_into()) {
                *count = u64::from_ne_bytes(bytes);
            }
        })?;
        Ok(counts)
    }

    /// The program: `watch.c`.
    fn program(&self, state: &Map, next: &Map) -> Vec<Insn> {
        load::link(include_bytes!("watch.o"), "watch", |name| {
            Some(match name {
                "state" => Bound::Memory(state.as_fd()),
                "histogram" => Bound::Map(self.histogram.as_fd()),
                "meter" => Bound::Map(next.as_fd()),
                "len" => Bound::Number(self.len as u64),
                "stamp" => Bound::Number((self.len - STAMP_BYTES) as u64),
                "shift" => Bound::Number(BUCKET_SHIFT.into()),
                "buckets" => Bound::Number(BUCKETS as u64),
                _ => return None,
            })
        })
    }
}
