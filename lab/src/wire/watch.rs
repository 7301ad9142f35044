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
use fingerpost_io::xdp::asm::Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
use fingerpost_io::xdp::asm::Width::{Double, Half, Word};
use fingerpost_io::xdp::asm::{Asm, Helper, Insn, When, be16};
use fingerpost_io::xdp::bpf::{Link, Map, MapKind, Program};
use fingerpost_io::xdp::generator::STAMP_BYTES;
use fingerpost_io::xdp::meter::Reading;
use fingerpost_io::xdp::{Meter, Mode, XDP_PASS};

use super::latency::{BUCKET_SHIFT, BUCKETS, Latency};

/// Offsets in the state of an end.
const LATE: i16 = 0;
const MAX: i16 = 8;
/// The last number of each of four streams, and one more.
const LAST: i16 = 16;
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
            let number = |at: i16| {
                let at = usize::try_from(at).expect("an offset");
                u64::from_ne_bytes(state[at..at + 8].try_into().expect("a slice of 8 bytes"))
            };
            late += number(LATE);
            max_ns = max_ns.max(number(MAX));
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

    /// The program. R6 is the context, R7 the frame, R8 the state and R9 the place of its stream in it.
    fn program(&self, state: &Map, next: &Map) -> Vec<Insn> {
        let len = i32::try_from(self.len).expect("a frame is short");
        let stamp = i16::try_from(self.len - STAMP_BYTES).expect("a frame is short");
        let last = i32::try_from(BUCKETS - 1).expect("few buckets");
        let shift = i32::try_from(BUCKET_SHIFT).expect("a few bits");
        let mut a = Asm::new();
        let (go_on, positive, counted, inside, late) =
            (a.label(), a.label(), a.label(), a.label(), a.label());
        a.set(R6, R1).load(Word, R7, R6, 0).load(Word, R8, R6, 4);
        // The router's kernel speaks as well: only packets of IPv4 in a frame of this very length are ours.
        a.set(R1, R7).add(R1, len).branch(R1, When::Gt, R8, go_on).branch(R1, When::Lt, R8, go_on);
        a.load(Half, R1, R7, 12).branch(R1, When::Ne, be16(0x0800), go_on);
        a.set_map_value(R8, state.as_fd(), 0).set(R9, R8);

        // How long it was on its way. Clocks of two CPUs may differ by nanoseconds.
        a.call(Helper::TimeNs).load(Double, R1, R7, stamp).set(R2, 0);
        a.branch(R1, When::Gt, R0, positive).set(R2, R0).sub(R2, R1);
        a.bind(positive).load(Double, R3, R8, MAX).branch(R2, When::Le, R3, counted);
        a.store(Double, R8, MAX, R2);
        a.bind(counted).shr(R2, shift).branch(R2, When::Lt, last, inside).set(R2, last);
        a.bind(inside).store(Word, R10, -4, R2);
        a.set_map(R1, self.histogram.as_fd()).set(R2, R10).add(R2, -4).call(Helper::MapLookup);
        a.branch(R0, When::Eq, 0, go_on).set(R1, 1).fetch_add(R0, 0, R1);

        // Whether it is late.
        a.load(Word, R1, R7, stamp + 8).set(R3, R1).shr(R3, 30).mul(R3, 8).add(R9, R3).add(R1, 1);
        a.load(Double, R2, R9, LAST).branch(R1, When::Le, R2, late);
        a.store(Double, R9, LAST, R1).jump(go_on);
        a.bind(late).set(R1, 1).fetch_add(R8, LATE, R1);

        a.bind(go_on).set(R1, R6).set_map(R2, next.as_fd()).set(R3, 0).call(Helper::TailCall);
        a.set(R0, XDP_PASS).exit();
        a.finish()
    }
}
