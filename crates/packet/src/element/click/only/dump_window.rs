//! Which packets of a capture file `FromDump` has: those of a time, a part of them at random, from a place in the file on.
//!
//! Source: Click's `FromDump`. `END`, `END_AFTER` (behind the first record) and `INTERVAL` (behind the first packet that
//! leaves) are reached once; what is called then may extend them, or have the rest read as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::random::Sampling;
use super::times::Time;
use crate::element::support::setting::Setting;
use crate::graph::{Made, Setup};
use crate::handler::Handler;
use crate::language::{ConfigError, Value};

/// What becomes of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Leaves,
    IsSkipped,
    /// It is at the end, which was not reached before.
    Ends,
}

/// What handlers reach. Relaxed everywhere: nothing else depends on it.
struct Shared {
    /// When the end is, in nanoseconds.
    end: AtomicI64,
    /// The end is not reached yet.
    armed: AtomicBool,
    /// Where the next record begins in the file, and where the last one did that left.
    next: AtomicU64,
    last: AtomicU64,
}

/// Bounds of the packets of one file.
#[derive(Clone)]
pub(crate) struct Window {
    shared: Arc<Shared>,
    start: i64,
    start_after: Option<i64>,
    end_after: Option<i64>,
    interval: Option<i64>,
    from: u64,
    sampling: Sampling,
}

/// Bytes before the first record, and those of a record before its packet.
pub(super) const FILE_HEADER: u64 = 24;
const RECORD_HEADER: u64 = 16;

impl Window {
    pub(crate) fn read(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let mut time = |name| -> Result<Option<i64>, ConfigError> {
            Ok(setup.args.keyword::<Time>(name)?.map(Time::ns))
        };
        let (start, start_after) = (time("START")?, time("START_AFTER")?);
        let (end, end_after, interval) = (time("END")?, time("END_AFTER")?, time("INTERVAL")?);
        let sample = setup.args.keyword("SAMPLE")?;
        let from = setup.args.keyword("FILEPOS")?.unwrap_or(0);
        if start.is_some() && start_after.is_some()
            || [end, end_after, interval].iter().flatten().count() > 1
        {
            return Err(setup.args.refuse_all("a bound is given twice"));
        }
        let shared = Shared {
            end: AtomicI64::new(end.unwrap_or(i64::MAX)),
            armed: AtomicBool::new(true),
            next: AtomicU64::new(FILE_HEADER),
            last: AtomicU64::new(0),
        };
        Ok(Self {
            shared: Arc::new(shared),
            start: start.unwrap_or(i64::MIN),
            start_after,
            end_after,
            interval,
            from,
            sampling: Sampling::new(setup, sample),
        })
    }

    /// What becomes of the record at hand, of this time and so many bytes.
    pub(crate) fn fate(&mut self, time: Duration, bytes: usize) -> Fate {
        let shared = &self.shared;
        let at = shared.next.load(Relaxed);
        let time = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        if at >= self.from {
            if let Some(after) = self.start_after.take() {
                self.start = time.saturating_add(after);
            }
            if let Some(after) = self.end_after.take() {
                shared.end.store(time.saturating_add(after), Relaxed);
            }
        }
        let is_within = at >= self.from && time >= self.start;
        if is_within {
            if let Some(interval) = self.interval.take() {
                shared.end.store(time.saturating_add(interval), Relaxed);
            }
            if time >= shared.end.load(Relaxed) && shared.armed.swap(false, Relaxed) {
                return Fate::Ends;
            }
        }
        shared.next.store(at + RECORD_HEADER + bytes as u64, Relaxed);
        if !is_within || !self.sampling.takes() {
            return Fate::IsSkipped;
        }
        shared.last.store(at, Relaxed);
        Fate::Leaves
    }

    /// The next record is the one at this place.
    pub(crate) fn seek(&mut self, at: u64) {
        self.from = 0;
        self.shared.next.store(at, Relaxed);
    }

    /// Adds the handlers.
    pub(crate) fn handled(&self, made: Made, active: &Setting<bool>) -> Made {
        let [next, last, extend] = [(); 3].map(|()| self.shared.clone());
        let active = active.clone();
        self.sampling
            .handled(made)
            .handler(Handler::read("filepos", move || next.next.load(Relaxed).to_string()))
            .handler(Handler::read("packet_filepos", move || last.last.load(Relaxed).to_string()))
            .handler(Handler::write("extend_interval", move |text| {
                let by = Time::read(text.trim())?.ns();
                let end = extend.end.load(Relaxed);
                if end != i64::MAX {
                    extend.end.store(end.saturating_add(by), Relaxed);
                    extend.armed.store(true, Relaxed);
                    active.set(true);
                }
                Ok(())
            }))
    }
}
